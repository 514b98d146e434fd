//! `sim write`: every fault by its name, and a main job that closes on each of them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use gpuledger_model::invariant;
use gpuledger_model::money::Decimal;
use gpuledger_sim::Fault;
use serde_json::Value;

use super::place::{Place, text};

fn write(place: &Place, out: &str, gpus: &str, faults: &[&str]) -> Value {
    let mut arguments = vec!["sim", "write", "--seed", "5", "--gpus", gpus, "--days", "1", "--out", out];
    faults.iter().for_each(|fault| arguments.extend(["--fault", fault]));
    let output = place.run(&arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The content of each file below a folder.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut open: Vec<PathBuf> = vec![folder.to_path_buf()];
    while let Some(at) = open.pop() {
        for entry in fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                found.insert(path.strip_prefix(folder).unwrap().display().to_string(), fs::read(&path).unwrap());
            }
        }
    }
    found
}

#[test]
fn every_fault_is_written_closes_and_sums_to_the_truth() {
    for fault in Fault::ALL {
        let place = Place::empty();
        let world = write(&place, "world", "8", &[fault.as_str()]);
        assert!(world["faults"].as_array().unwrap().iter().any(|name| name == fault.as_str()), "{world}");
        let share = world["true_waste_share"]["USD"].as_f64().unwrap();
        assert!((0.2..0.8).contains(&share), "{fault:?}: {share}");
        let report = place.json(&["report", "--config", "world/gpuledger.toml"]);
        for closing in report["closing"].as_array().unwrap() {
            assert!(["closed", "estimated"].contains(&closing["state"].as_str().unwrap()), "{fault:?}: {closing}");
        }
        let [total, truth] =
            [&report["totals"][0]["amount"], &world["dollars"]["USD"]].map(|v| v.as_str().unwrap().parse::<Decimal>().unwrap());
        // What stands for a bill that is late is an estimate, which ends with the last sample.
        if *fault != Fault::LateBill {
            assert_eq!(total, truth, "{fault:?}");
        }
    }
}

#[test]
fn the_faults_of_the_promise_are_all_there() {
    let names: Vec<&str> = Fault::ALL.iter().map(|fault| fault.as_str()).collect();
    for name in [
        "exporter_30s",
        "no_profiling",
        "mig",
        "time_slicing",
        "exporter_restart",
        "gaps",
        "uuid_vanishes",
        "label_clobber",
        "sentinels",
        "late_bill",
        "restated_bill",
        "duplicate_exporter",
    ] {
        assert!(names.contains(&name), "{name}");
    }
    let place = Place::empty();
    let output = place.run(&["sim", "write", "--seed", "1", "--out", "world", "--fault", "gremlins"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(names.iter().all(|name| text(&output.stderr).contains(name)) && !place.path().join("world").exists());
}

#[test]
fn sim_1_the_command_writes_one_world_for_one_seed() {
    let place = Place::empty();
    write(&place, "one", "24", &["gaps", "sentinels"]);
    write(&place, "two", "24", &["gaps", "sentinels"]);
    let [one, two] = ["one", "two"].map(|name| files(&place.path().join(name)));
    assert_eq!(invariant::sim_1(&one, &two), Ok(()));
    for part in ["telemetry/", "placements/", "bills/", "truth/ledger.csv"] {
        assert!(one.keys().any(|name| name.starts_with(part)), "{part}");
    }
    // Bills of four providers; telemetry as series and as scrapes; both schedulers.
    for part in
        ["bills/aws", "bills/azure", "bills/gcp", "bills/oci", ".parquet", ".prom.gz", "kubectl.json", "sacct.txt", "scontrol-job.txt"]
    {
        assert!(one.keys().any(|name| name.contains(part)), "{part}");
    }
}
