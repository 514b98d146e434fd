//! MODEL-3, from outside: what was not seen is not idle.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

const NODE_AND_POD: &str = r#"{"kind":"List","apiVersion":"v1","items":[
{"kind":"Node","apiVersion":"v1","metadata":{"name":"gpu-1","uid":"n1","creationTimestamp":"2026-10-06T08:00:00Z"},
 "spec":{"providerID":"aws:///us-east-1a/i-0abc12345"},
 "status":{"capacity":{"nvidia.com/gpu":"1"},"allocatable":{"nvidia.com/gpu":"1"}}},
{"kind":"Pod","apiVersion":"v1","metadata":{"name":"t-0","namespace":"train","uid":"u1"},
 "spec":{"nodeName":"gpu-1","containers":[{"name":"c","resources":{"limits":{"nvidia.com/gpu":"1"}}}]},
 "status":{"phase":"Running","startTime":"2026-10-06T08:00:00Z"}}]}"#;

const BILL: &str = "ProviderName,BillingAccountId,BillingCurrency,BillingPeriodStart,BillingPeriodEnd,ChargePeriodStart,ChargePeriodEnd,\
ChargeCategory,BilledCost,EffectiveCost,ResourceId,ServiceCategory,ConsumedQuantity,ConsumedUnit\n\
AWS,0012,USD,2026-10-01T00:00:00Z,2026-11-01T00:00:00Z,2026-10-06T09:00:00Z,2026-10-06T10:00:00Z,Usage,36,36,i-0abc12345,Compute,1,Hours\n";

/// 2026-10-06T09:00:00Z.
const FROM_MS: i64 = 1_791_277_200_000;

/// A device that says 0 % in the minutes given, and nothing else.
fn zeros(minutes: std::ops::Range<i64>) -> String {
    let mut text = String::new();
    for second in (minutes.start * 60..minutes.end * 60).step_by(15) {
        let time_ms = FROM_MS + second * 1000;
        for name in ["DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_DEV_FB_USED"] {
            text.push_str(&format!(
                "{name}{{gpu=\"0\",UUID=\"GPU-a\",modelName=\"NVIDIA H100 80GB HBM3\",Hostname=\"gpu-1\"}} 0 {time_ms}\n"
            ));
        }
    }
    text
}

/// What a report posts to a cause, in cents.
fn cents(folder: &Path, telemetry: &str, cause: &str) -> f64 {
    fs::write(folder.join("t.prom"), telemetry).unwrap();
    fs::write(folder.join("placements.json"), NODE_AND_POD).unwrap();
    fs::write(folder.join("bill.csv"), BILL).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_gpuledger"))
        .current_dir(folder)
        .args(["report", "--bills", "bill.csv", "--telemetry", "t.prom", "--placements", "@west=placements.json", "--format", "json"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let causes = report["causes"].as_array().unwrap();
    causes.iter().filter(|row| row["cause"] == cause).map(|row| row["amount"].as_str().unwrap().parse::<f64>().unwrap() * 100.0).sum()
}

#[test]
fn model_3_zero_is_idle_and_absent_is_unobserved() {
    let folder = tempfile::tempdir().unwrap();
    // The whole hour at zero: a cent a second is idle.
    let seen = zeros(0..60);
    assert_eq!(cents(folder.path(), &seen, "empty"), 3600.0);
    assert_eq!(cents(folder.path(), &seen, "unobserved"), 0.0);
    // Half of it was not seen: the last sample stands for 37.5 s, and what follows is not known.
    let half = zeros(0..30);
    let unseen = cents(folder.path(), &half, "unobserved");
    assert!((1770.0..=1800.0).contains(&unseen), "{unseen}");
    assert_eq!(cents(folder.path(), &half, "empty") + unseen, 3600.0);
}
