//! What cannot be read gives a clear error and takes nothing else with it.

use std::io::Write;

use serde_json::Value;

use super::place::{Place, bill, figures, lines, row, rows, text};

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// The exit code, the JSON and what stands on standard error.
fn run(place: &Place, arguments: &[&str]) -> (i32, Value, String) {
    let output = place.run(&[arguments, &["--format", "json"]].concat());
    let error = text(&output.stderr);
    assert!(!error.contains("panicked"), "{error}");
    (output.status.code().unwrap(), serde_json::from_slice(&output.stdout).unwrap_or(Value::Null), error)
}

#[test]
fn a_byte_order_mark_and_crlf_change_nothing() {
    let place = Place::small();
    let plain = place.json(&["bills", "bill.csv"]);
    let windows = format!("\u{feff}{}", bill(&rows()).replace('\n', "\r\n"));
    place.file("windows.csv", windows);
    let other = place.json(&["bills", "windows.csv"]);
    assert_eq!(other["scopes"], plain["scopes"]);
    assert_eq!(other["rejects"], plain["rejects"]);

    let base = figures(&place.report(&["telemetry.prom"]));
    place.file("crlf.prom", lines().concat().replace('\n', "\r\n"));
    assert_eq!(figures(&place.report(&["crlf.prom"])), base);
}

#[test]
fn a_truncated_gzip_is_named_and_the_rest_of_the_data_kept() {
    let place = Place::small();
    let whole = gzip(lines().concat().as_bytes());
    place.file("cut.prom.gz", &whole[..whole.len() / 2]);
    let arguments = ["report", "--bills", "bill.csv", "--placements", "@west=placements.json", "--telemetry", "cut.prom.gz"];
    let (_, report, error) = run(&place, &arguments);
    assert!(error.contains("cut.prom.gz"), "{error}");
    assert!(report["inputs"].as_array().unwrap().iter().any(|input| input["path"] == "cut.prom.gz" && input["rows"].as_u64().unwrap() > 0));
    assert_eq!(report["closing"][1]["state"], "closed");

    // Half a bill is no bill: its scopes are refused, those of another file stay.
    let cut = gzip(bill(&(0..2_000).map(|_| row("1", "USD", "Usage", 9)).collect::<Vec<_>>()).as_bytes());
    place.file("cut.csv.gz", &cut[..cut.len() / 2]);
    place.file("other.csv", bill(&[row("2", "GBP", "Usage", 9)]));
    let (code, bills, error) = run(&place, &["bills", "cut.csv.gz", "other.csv"]);
    assert_eq!(code, 4, "{error}");
    let states: Vec<(&str, &str)> =
        bills["scopes"].as_array().unwrap().iter().map(|s| (s["currency"].as_str().unwrap(), s["state"].as_str().unwrap())).collect();
    assert_eq!(states, [("GBP", "closed"), ("USD", "refused")], "{error}");
}

#[test]
fn an_unreadable_cost_refuses_its_scope_and_names_line_and_field() {
    for cost in ["NaN", "inf", "$1", "1,000.00", "1.2.3", "", "null", "0x10", "\u{661}"] {
        let place = Place::empty();
        place.file("bill.csv", bill(&[row("5", "EUR", "Usage", 9), row(&format!("\"{cost}\""), "USD", "Usage", 9)]));
        let (code, bills, error) = run(&place, &["bills", "bill.csv"]);
        assert_eq!(code, 4, "{cost}: {error}");
        assert_eq!(bills["scopes"][0]["billed"], "5", "{cost}");
        assert_eq!(bills["scopes"][1]["state"], "refused", "{cost}");
        let reject = &bills["rejects"][0];
        assert_eq!((reject["line"].as_u64(), reject["field"].as_str()), (Some(3), Some("BilledCost")), "{cost}: {reject}");
        assert!(error.contains("bill.csv:3: BilledCost"), "{cost}: {error}");
    }
}

#[test]
fn a_sample_that_is_no_number_is_refused_alone() {
    let place = Place::small();
    let base = place.report(&["telemetry.prom"]);
    let bad = [
        "DCGM_FI_PROF_SM_ACTIVE{gpu=\"0\",UUID=\"GPU-a\",Hostname=\"gpu-1\"} NaN 1791277207000\n",
        "DCGM_FI_DEV_POWER_USAGE{gpu=\"0\",UUID=\"GPU-a\",Hostname=\"gpu-1\"} 1.7976931348623157e+308 1791277207000\n",
        "DCGM_FI_DEV_FB_USED{gpu=\"0\",UUID=\"GPU-a\",Hostname=\"gpu-1\"} 9223372036854775794 1791277207000\n",
        "DCGM_FI_DEV_FB_USED{gpu=\"0\",UUID=\"GPU-a\" 5 1791277207000\n",
        "not a line of telemetry at all, { \" } \n",
    ];
    place.file("bad.prom", [lines().concat(), bad.concat()].concat());
    let report = place.report(&["bad.prom"]);
    for part in ["closing", "totals", "causes", "groups"] {
        assert_eq!(report[part], base[part], "{part}");
    }
    let rejects = report["rejects"].as_array().unwrap();
    assert!(rejects.len() >= 4, "{rejects:?}");
    assert!(rejects.iter().all(|r| r["file"] == "bad.prom" && r["line"].as_u64().unwrap() > 0 && r["reason"] != ""), "{rejects:?}");
}

#[test]
fn wrong_encodings_and_bytes_of_chance_are_refused_with_a_reason() {
    let utf16: Vec<u8> = [0xff, 0xfe].into_iter().chain(bill(&rows()).encode_utf16().flat_map(u16::to_le_bytes)).collect();
    let chance: Vec<u8> = (0..200_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let cases: [(&str, Vec<u8>); 6] = [
        ("utf16.csv", utf16),
        ("chance.csv", chance.clone()),
        ("zeros.csv", vec![0; 50_000]),
        ("empty.csv", Vec::new()),
        ("fake.parquet", [b"PAR1".as_slice(), &chance[..500], b"PAR1"].concat()),
        ("fake.csv.gz", [[0x1f, 0x8b, 8, 0].as_slice(), &chance[..500]].concat()),
    ];
    for (name, bytes) in cases {
        let place = Place::small();
        place.file(name, bytes);
        let (code, bills, error) = run(&place, &["bills", "bill.csv", name]);
        assert!([0, 3, 4].contains(&code), "{name}: {code} {error}");
        assert!(code == 0 || error.contains(name), "{name}: {error}");
        assert_eq!(bills["scopes"].as_array().unwrap().iter().filter(|s| s["state"] == "closed").count(), 2, "{name}");
        for kind in ["--telemetry", "--placements"] {
            let (code, report, error) = run(&place, &["report", "--bills", "bill.csv", kind, name]);
            assert!([0, 3, 4].contains(&code), "{kind} {name}: {code} {error}");
            assert_eq!(report["closing"].as_array().unwrap().len(), 2, "{kind} {name}");
        }
    }
}

#[test]
fn huge_lines_are_refused_within_bounds_and_the_rest_read() {
    let place = Place::small();
    let base = place.report(&["telemetry.prom"]);
    let mut huge = lines().concat().into_bytes();
    huge.extend(std::iter::repeat_n(b'x', 40 << 20));
    huge.push(b'\n');
    place.file("huge.prom", &huge);
    let report = place.report(&["huge.prom"]);
    assert_eq!(report["causes"], base["causes"]);
    assert!(report["rejects"].as_array().unwrap().iter().any(|r| r["file"] == "huge.prom"));

    let mut long = bill(&[row("5", "EUR", "Usage", 9)]).into_bytes();
    long.extend(std::iter::repeat_n(b'y', 40 << 20));
    place.file("long.csv", &long);
    let (code, _, error) = run(&place, &["bills", "long.csv", "bill.csv"]);
    assert!([0, 3, 4].contains(&code) && error.contains("long.csv"), "{code} {error}");
}
