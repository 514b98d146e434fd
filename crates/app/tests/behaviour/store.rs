//! With `--store`: later runs read only what changed, and a late bill needs no sample.

use std::fs;

use super::place::{Place, bill, figures, row, rows};

#[test]
fn a_late_bill_prices_again_without_touching_samples() {
    let place = Place::small();
    let inputs = ["--placements", "@west=placements.json", "--telemetry", "telemetry.prom", "--by", "cause,device"];
    let first = [&["report", "--bills", "bill.csv"], &inputs[..], &["--store", "kept"]].concat();
    assert_eq!(figures(&place.json(&first)), figures(&place.json(&first)));

    // Whoever opened the samples now would fail: the records of the machines stay.
    let samples = place.path().join("kept/tables/samples");
    for entry in fs::read_dir(&samples).unwrap() {
        fs::write(entry.unwrap().path(), b"gone").unwrap();
    }
    place.file("late.csv", bill(&[row("9", "USD", "Adjustment", 10)]));
    let late = place.json(&[&["report", "--bills", "bill.csv", "--bills", "late.csv"], &inputs[..], &["--store", "kept"]].concat());
    let anew = place.json(&[&["report", "--bills", "bill.csv", "--bills", "late.csv"], &inputs[..]].concat());
    assert_eq!(figures(&late), figures(&anew));
    assert_eq!(late["totals"][1]["amount"], "82.500000000002");
    // And with the folder alone.
    assert_eq!(figures(&place.json(&["report", "--store", "kept", "--by", "cause,device"])), figures(&anew));
}

#[test]
fn a_restated_bill_replaces_what_it_restates() {
    let place = Place::small();
    let inputs = ["--placements", "@west=placements.json", "--telemetry", "telemetry.prom", "--by", "cause,device", "--store", "kept"];
    place.json(&[&["report", "--bills", "bill.csv"], &inputs[..]].concat());
    let mut restated = rows();
    restated[0] = row("40", "USD", "Usage", 9);
    place.file("bill.csv", bill(&restated));
    let report = place.json(&[&["report", "--bills", "bill.csv"], &inputs[..]].concat());
    assert_eq!(report["totals"][1]["amount"], "77.500000000001");
    assert!(report["closing"].as_array().unwrap().iter().all(|c| c["state"] == "closed"));
}

#[test]
fn telemetry_that_comes_later_finds_all_that_came_before() {
    let place = Place::empty();
    assert!(place.run(&["sim", "write", "--seed", "3", "--out", "world", "--gpus", "24", "--days", "1"]).status.success());
    // A node's telemetry arrives after the first run, in which the record of all others was made and kept.
    let telemetry = place.path().join("world/telemetry");
    let mut names: Vec<_> = fs::read_dir(&telemetry).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| name.contains("-2026-"));
    names.sort();
    let late = names.first().unwrap();
    fs::rename(telemetry.join(late), place.path().join(late)).unwrap();
    let arguments = ["report", "--config", "world/gpuledger.toml", "--by", "cause,device"];
    place.json(&[&arguments[..], &["--store", "kept"]].concat());
    fs::rename(place.path().join(late), telemetry.join(late)).unwrap();
    for _ in 0..2 {
        let kept = place.json(&[&arguments[..], &["--store", "kept"]].concat());
        assert_eq!(figures(&kept), figures(&place.json(&arguments)));
    }
}
