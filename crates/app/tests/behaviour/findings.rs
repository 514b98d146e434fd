//! Findings: from 15 minutes and one unit of currency up, stable in their names, with the evidence behind them.

use serde_json::Value;

use super::place::{FROM_MS, Place, bill, row};

/// A device that is idle but in these minutes.
fn telemetry(busy: impl Fn(i64) -> bool, minutes: i64) -> String {
    let mut text = String::new();
    for second in (0..minutes * 60).step_by(15) {
        let value = if busy(second / 60) { "0.9" } else { "0" };
        for name in
            ["DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "DCGM_FI_PROF_DRAM_ACTIVE"]
        {
            let time_ms = FROM_MS + second * 1_000;
            text.push_str(&format!(
                "{name}{{gpu=\"0\",UUID=\"GPU-a\",modelName=\"NVIDIA H100 80GB HBM3\",Hostname=\"gpu-1\"}} {value} {time_ms}\n"
            ));
        }
    }
    text
}

fn place(cost: &str, busy: impl Fn(i64) -> bool) -> Place {
    let place = Place::small();
    place.file("bill.csv", bill(&[row(cost, "USD", "Usage", 9), row(cost, "USD", "Usage", 10)]));
    place.file("telemetry.prom", telemetry(busy, 120));
    place
}

fn idle(report: &Value) -> Vec<Value> {
    report["findings"].as_array().unwrap().iter().filter(|finding| finding["cause"] == "empty").cloned().collect()
}

#[test]
fn stretches_less_than_ten_minutes_apart_are_one_finding() {
    // Idle 9:00 to 9:30 and 9:35 to 10:05: five minutes apart. Then 10:30 to 11:00: twenty-five.
    let near = idle(&place("36", |m| (30..35).contains(&m) || (65..90).contains(&m)).report(&["telemetry.prom"]));
    let mut spans: Vec<(&str, &str)> = near.iter().map(|f| (f["from"].as_str().unwrap(), f["to"].as_str().unwrap())).collect();
    spans.sort_unstable();
    assert_eq!(spans, [("2026-10-06T09:00:00Z", "2026-10-06T10:05:00Z"), ("2026-10-06T10:30:00Z", "2026-10-06T11:00:00Z")]);
}

#[test]
fn less_than_a_unit_of_currency_is_no_finding() {
    // Half a device-hour a board: USD 0.4 in two hours.
    assert!(idle(&place("0.4", |_| false).report(&["telemetry.prom"])).is_empty());
    assert_eq!(idle(&place("4", |_| false).report(&["telemetry.prom"])).len(), 1);
}

#[test]
fn the_name_of_a_finding_stays_when_its_end_and_price_change() {
    let id = |cost: &str, until: i64| idle(&place(cost, |m| m >= until).report(&["telemetry.prom"]))[0]["id"].clone();
    assert_eq!(id("36", 40), id("36", 90));
    assert_eq!(id("36", 40), id("72", 40));
}

#[test]
fn evidence_shows_windows_holdings_and_bill_rows_from_inputs_and_from_the_store_alone() {
    let place = place("36", |_| false);
    let inputs = ["--bills", "bill.csv", "--placements", "@west=placements.json", "--telemetry", "telemetry.prom"];
    let report = place.json(&[&["report"], &inputs[..], &["--store", "kept"]].concat());
    let id = idle(&report)[0]["id"].as_str().unwrap().to_string();
    let given = place.json(&[&["evidence", &id], &inputs[..]].concat());
    let kept = place.json(&["evidence", &id, "--store", "kept"]);
    assert_eq!(given, kept);
    assert_eq!(given["finding"]["id"], id.as_str());
    assert_eq!(given["windows"].as_array().unwrap().len(), 24);
    assert_eq!(given["holdings"].as_array().unwrap().len(), 1);
    assert_eq!(given["bill_rows"].as_array().unwrap().len(), 2);
    assert_eq!(place.run(&["evidence", "F-none", "--store", "kept"]).status.code(), Some(2));
}
