//! The binary as users meet it: what stands on standard output, what on standard error, and the exit code.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

const HEADER: &str = "BilledCost,EffectiveCost,BillingAccountId,BillingCurrency,BillingPeriodStart,BillingPeriodEnd,\
ChargePeriodStart,ChargePeriodEnd,ChargeCategory,ProviderName,ListCost,InvoiceId,ServiceName\n";

/// One bill row of an hour on the sixth.
fn row(money: &str, account: &str, category: &str, hour: u32) -> String {
    format!(
        "{money},{money},{account},USD,2026-10-01T00:00:00Z,2026-11-01T00:00:00Z,2026-10-06T{hour:02}:00:00Z,\
         2026-10-06T{:02}:00:00Z,{category},AWS,2,INV-1,S3\n",
        hour + 1
    )
}

struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        Place { folder: tempfile::tempdir().unwrap() }
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }

    fn bill(&self) -> PathBuf {
        self.file("bill.csv", &[HEADER, &row("1.5", "007", "Usage", 9), &row("0.1", "007", "Tax", 10)].concat())
    }

    /// Runs the binary in the folder.
    fn run(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_gpuledger")).args(arguments).current_dir(self.folder.path()).output().unwrap()
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn help_names_every_command_and_ends_with_0() {
    let place = Place::new();
    let output = place.run(&["--help"]);
    assert_eq!(code(&output), 0);
    for command in ["report", "bills", "evidence", "sim", "demo"] {
        assert!(out(&output).contains(command), "{command}");
    }
    assert!(err(&output).is_empty());
}

#[test]
fn a_wrong_command_line_ends_with_2_and_an_empty_output() {
    let place = Place::new();
    place.bill();
    for arguments in [
        vec!["frobnicate"],
        vec!["report"],
        vec!["report", "--bills", "bill.csv", "--by", "colour"],
        vec!["report", "--bills", "bill.csv", "--window", "fortnight"],
        vec!["report", "--bills", "bill.csv", "--filter", "namespace:train"],
        vec!["report", "--bills", "bill.csv", "--timezone", "Mars/Olympus"],
        vec!["report", "--bills", "bill.csv", "--format", "pdf"],
        vec!["report", "--bills", "bill.csv", "--deliveries", "perhaps"],
        vec!["report", "--bills", "bill.csv", "--assume", "colour=red"],
        vec!["sim", "score", "--seeds", "9..1"],
        vec!["bills"],
    ] {
        let output = place.run(&arguments);
        assert_eq!(code(&output), 2, "{arguments:?}: {}", err(&output));
        assert!(out(&output).is_empty() && !err(&output).is_empty(), "{arguments:?}");
    }
    let output = place.run(&["report", "--bills", "bill.csv", "--filter", "namespace:train"]);
    assert!(err(&output).contains("namespace:train\n              ^"), "{}", err(&output));
}

#[test]
fn a_report_closes_and_app_2_its_output_is_only_the_result() {
    let place = Place::new();
    place.bill();
    let output = place.run(&["report", "--bills", "bill.csv", "--format", "json", "--by", "cause"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    let json: Value = serde_json::from_str(&out(&output)).unwrap();
    assert_eq!(json["schema"], "gpuledger.report/1");
    assert_eq!(json["closing"][0]["scope"], "AWS/007/2026-10/USD");
    assert_eq!(json["closing"][0]["bill"], "1.6000000000");
    assert_eq!(json["closing"][0]["difference"], "0.0000000000");
    assert_eq!(json["totals"][0]["amount"], "1.6000000000");
    assert_eq!(json["invoices"][0]["billed"].as_str().unwrap().trim_end_matches('0'), "1.6");
    assert_eq!(json["groups"][0]["key"]["cause"], "other_service");
    assert_eq!(json["inputs"][0]["rows"], 2);

    let output = place.run(&["report", "--bills", "bill.csv"]);
    assert!(out(&output).starts_with("GPU Ledger: 2026-10-06T09:00:00Z to 2026-10-06T11:00:00Z\n"), "{}", out(&output));
}

#[test]
fn the_window_chooses_and_the_proof_stays() {
    let place = Place::new();
    place.bill();
    let window = "2026-10-06T10:10:00Z,2026-10-06T10:20:00Z";
    let output = place.run(&["report", "--bills", "bill.csv", "--format", "json", "--window", window]);
    let json: Value = serde_json::from_str(&out(&output)).unwrap();
    assert_eq!(json["window"]["from"], "2026-10-06T10:00:00Z");
    assert_eq!(json["totals"][0]["amount"], "0.1000000000");
    assert_eq!(json["closing"][0]["posted"], "1.6000000000");
    assert!(json["notes"][0].as_str().unwrap().contains("rounded outward"));

    let today = place.run(&["report", "--bills", "bill.csv", "--format", "json", "--window", "today", "--now", "2026-10-06T23:00:00Z"]);
    let json: Value = serde_json::from_str(&out(&today)).unwrap();
    assert_eq!(json["totals"][0]["amount"], "1.6000000000");
}

#[test]
fn what_cannot_be_read_ends_with_3_and_the_rest_is_reported() {
    let place = Place::new();
    place.bill();
    assert_eq!(code(&place.run(&["report", "--bills", "no-such.csv"])), 3);
    assert_eq!(code(&place.run(&["bills", "no-such.csv"])), 3);
    assert_eq!(code(&place.run(&["report", "--bills", "bill.csv", "--owners", "no-such.toml"])), 3);
    let output = place.run(&["report", "--bills", "bill.csv", "--bills", "no-such.csv", "--format", "json"]);
    assert_eq!(code(&output), 3);
    assert!(err(&output).contains("no-such.csv"), "{}", err(&output));
    let json: Value = serde_json::from_str(&out(&output)).unwrap();
    assert_eq!(json["closing"][0]["state"], "closed");
}

#[test]
fn a_refused_scope_ends_with_4_and_the_rest_is_reported() {
    let place = Place::new();
    place.file("bill.csv", &[HEADER, &row("1.5", "007", "Usage", 9), &row("$2", "008", "Usage", 9)].concat());
    let output = place.run(&["report", "--bills", "bill.csv", "--format", "json"]);
    assert_eq!(code(&output), 4, "{}", err(&output));
    assert!(err(&output).contains("bill.csv:3"), "{}", err(&output));
    let json: Value = serde_json::from_str(&out(&output)).unwrap();
    let states: Vec<&str> = json["closing"].as_array().unwrap().iter().map(|c| c["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["closed", "refused"]);
    assert_eq!(code(&place.run(&["bills", "bill.csv"])), 4);
}

#[test]
fn a_file_that_cannot_be_written_ends_with_5() {
    let place = Place::new();
    place.bill();
    for command in [vec!["report", "--bills", "bill.csv"], vec!["bills", "bill.csv"]] {
        let output = place.run(&[command, vec!["--out", "no/such/folder/result"]].concat());
        assert_eq!(code(&output), 5, "{}", err(&output));
        assert!(err(&output).contains("no/such/folder/result"));
    }
}

#[test]
fn results_are_written_whole_in_the_form_of_their_ending() {
    let place = Place::new();
    place.bill();
    for (name, start) in [("r.html", "<!DOCTYPE html>"), ("r.json", "{"), ("r.txt", "GPU Ledger")] {
        let output = place.run(&["report", "--bills", "bill.csv", "--out", name]);
        assert_eq!((code(&output), out(&output)), (0, String::new()), "{}", err(&output));
        assert!(fs::read_to_string(place.path().join(name)).unwrap().starts_with(start), "{name}");
    }
    // The bill and three results; no temporary file.
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 4);
}

#[test]
fn the_configuration_is_found_and_flags_stand_above_it() {
    let place = Place::new();
    place.bill();
    place.file("owners.toml", "[[rule]]\nbilling_account = \"007\"\nteam = \"bond\"\n");
    place.file("gpuledger.toml", "format = \"json\"\nowners = \"owners.toml\"\n[[bills]]\npath = \"*.csv\"\n");
    let json: Value = serde_json::from_str(&out(&place.run(&["report"]))).unwrap();
    assert_eq!(json["groups"][0]["key"]["team"], "bond");
    assert!(out(&place.run(&["report", "--format", "table"])).starts_with("GPU Ledger"));

    place.file("gpuledger.toml", "formt = \"json\"\n");
    let output = place.run(&["report"]);
    assert_eq!(code(&output), 2);
    assert!(err(&output).contains("gpuledger.toml") && err(&output).contains("formt"), "{}", err(&output));

    place.file("owners.toml", "[[rule]]\nteam = \"x\"\nnamespaec = \"y\"\n");
    let output = place.run(&["report", "--config", "/dev/null", "--bills", "bill.csv", "--owners", "owners.toml"]);
    assert_eq!(code(&output), 2);
    assert!(err(&output).contains("owners.toml:3"), "{}", err(&output));
}

#[test]
fn order_and_split_of_files_leave_no_trace() {
    let place = Place::new();
    let rows = [row("1.5", "007", "Usage", 9), row("0.1", "007", "Tax", 10), row("-0.25", "007", "Credit", 11)];
    place.file("a.csv", &[HEADER, &rows[0], &rows[1]].concat());
    place.file("b.csv", &[HEADER, &rows[2]].concat());
    place.file("c.csv", &[HEADER, &rows[2], &rows[0], &rows[1]].concat());
    let totals = |bills: &[&str]| {
        let mut arguments = vec!["report", "--format", "json"];
        bills.iter().for_each(|bill| arguments.extend(["--bills", bill]));
        let json: Value = serde_json::from_str(&out(&place.run(&arguments))).unwrap();
        [json["closing"].clone(), json["totals"].clone(), json["causes"].clone(), json["groups"].clone()]
    };
    assert_eq!(totals(&["a.csv", "b.csv"]), totals(&["b.csv", "a.csv"]));
    assert_eq!(totals(&["a.csv", "b.csv"]), totals(&["c.csv"]));
    assert_eq!(totals(&["c.csv", "./c.csv"]), totals(&["c.csv"]));
}

/// The configuration is a pipe: once it is open for writing here, the binary waits in it, and its handler stands.
#[cfg(unix)]
#[test]
fn an_interrupt_ends_with_130() {
    let place = Place::new();
    let pipe = place.path().join("config");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let mut child = Command::new(env!("CARGO_BIN_EXE_gpuledger"))
        .args(["report", "--config", "config", "--bills", "x"])
        .current_dir(place.path())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let writer = fs::OpenOptions::new().write(true).open(&pipe).unwrap();
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let status = child.wait().unwrap();
    drop(writer);
    assert_eq!(status.code(), Some(130));
}

#[test]
fn every_named_file_that_cannot_be_read_makes_the_code_3() {
    let place = Place::new();
    place.bill();
    place.file("prices.csv", "a,b\n1,2\n");
    for flags in [["--mapping", "nowhere.csv"], ["--prices", "prices.csv"], ["--prices", "nowhere.csv"], ["--owners", "nowhere.toml"]] {
        let output = place.run(&[&["report", "--bills", "bill.csv"][..], &flags[..]].concat());
        assert_eq!(code(&output), 3, "{flags:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn evidence_makes_no_store_where_none_is() {
    let place = Place::new();
    let output = place.run(&["evidence", "F-1", "--store", "nowhere"]);
    assert_eq!(code(&output), 3);
    assert!(!place.path().join("nowhere").exists());
}

#[test]
fn a_range_of_all_seeds_is_a_usage_error() {
    let output = Place::new().run(&["sim", "score", "--seeds", "0..18446744073709551615"]);
    assert_eq!(code(&output), 2, "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
#[cfg(unix)]
fn endless_and_special_files_are_refused_and_never_replaced() {
    let place = Place::new();
    place.bill();
    for flags in [["--owners", "/dev/zero"], ["--prices", "/dev/zero"], ["--rules", "/dev/zero"], ["--config", "/dev/zero"]] {
        let output = place.run(&[&["report", "--bills", "bill.csv"][..], &flags[..]].concat());
        assert_eq!(code(&output), 3, "{flags:?}");
    }
    assert_eq!(code(&place.run(&["bills", "/dev/zero"])), 3);
    let output = place.run(&["report", "--bills", "bill.csv", "--out", "/dev/null"]);
    assert_eq!(code(&output), 0, "{}", String::from_utf8_lossy(&output.stderr));
    assert!(!fs::metadata("/dev/null").unwrap().is_file());
}
