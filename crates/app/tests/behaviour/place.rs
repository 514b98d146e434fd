//! A folder with a small world in it, and the binary run there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

/// 2026-10-06T09:00:00Z.
pub const FROM_MS: i64 = 1_791_277_200_000;

const BILL_HEADER: &str = "ProviderName,BillingAccountId,BillingCurrency,BillingPeriodStart,BillingPeriodEnd,ChargePeriodStart,\
ChargePeriodEnd,ChargeCategory,BilledCost,EffectiveCost,ResourceId,ServiceCategory,ConsumedQuantity,ConsumedUnit,ServiceName\n";

const NODE_AND_POD: &str = r#"{"kind":"List","apiVersion":"v1","items":[
{"kind":"Node","apiVersion":"v1","metadata":{"name":"gpu-1","uid":"n1","creationTimestamp":"2026-10-06T08:00:00Z"},
 "spec":{"providerID":"aws:///us-east-1a/i-0abc12345"},
 "status":{"capacity":{"nvidia.com/gpu":"2"},"allocatable":{"nvidia.com/gpu":"2"}}},
{"kind":"Pod","apiVersion":"v1","metadata":{"name":"t-0","namespace":"train","uid":"u1","labels":{"app":"llm"}},
 "spec":{"nodeName":"gpu-1","containers":[{"name":"c","resources":{"limits":{"nvidia.com/gpu":"1"}}}]},
 "status":{"phase":"Running","startTime":"2026-10-06T08:00:00Z"}}]}"#;

/// One folder, gone with its owner.
pub struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    pub fn empty() -> Place {
        Place { folder: tempfile::tempdir().unwrap() }
    }

    /// Two devices of one machine for two hours: one held and busy in the first hour, the other unallocated.
    /// USD 36.000000000001 an hour, tax, a credit in another currency.
    pub fn small() -> Place {
        let place = Place::empty();
        place.file("bill.csv", bill(&rows()));
        place.file("placements.json", NODE_AND_POD);
        place.file("telemetry.prom", lines().concat());
        place
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    pub fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }

    pub fn run(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_gpuledger")).args(arguments).current_dir(self.folder.path()).output().unwrap()
    }

    /// The JSON of a run that must end with 0.
    pub fn json(&self, arguments: &[&str]) -> Value {
        let output = self.run(&[arguments, &["--format", "json"]].concat());
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// The report of the small world with other telemetry.
    pub fn report(&self, telemetry: &[&str]) -> Value {
        let mut arguments = vec!["report", "--bills", "bill.csv", "--placements", "@west=placements.json", "--by", "cause,device"];
        telemetry.iter().for_each(|path| arguments.extend(["--telemetry", path]));
        self.json(&arguments)
    }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What must be the same whatever the files are called: the postings in all their sums, and the findings.
pub fn figures(report: &Value) -> String {
    ["window", "closing", "invoices", "totals", "unknown", "causes", "groups", "findings", "timeline"]
        .map(|part| report[part].to_string())
        .join("\n")
}

pub fn bill(rows: &[String]) -> String {
    format!("{BILL_HEADER}{}", rows.concat())
}

pub fn row(cost: &str, currency: &str, category: &str, hour: u32) -> String {
    let machine = if category == "Usage" { "i-0abc12345,Compute,1,Hours,Amazon EC2" } else { ",,,,Amazon EC2" };
    format!(
        "AWS,0012,{currency},2026-10-01T00:00:00Z,2026-11-01T00:00:00Z,2026-10-06T{hour:02}:00:00Z,2026-10-06T{:02}:00:00Z,{category},{cost},{cost},{machine}\n",
        hour + 1
    )
}

pub fn rows() -> Vec<String> {
    vec![
        row("36.000000000001", "USD", "Usage", 9),
        row("36.000000000001", "USD", "Usage", 10),
        row("1.5", "USD", "Tax", 9),
        row("-1e-3", "EUR", "Credit", 9),
    ]
}

/// Exposition lines of two devices, every 15 s for two hours, each with its time.
pub fn lines() -> Vec<String> {
    let mut lines = Vec::new();
    for second in (0..7_200).step_by(15) {
        let time_ms = FROM_MS + second * 1_000;
        for (device, uuid) in ["GPU-a", "GPU-b"].into_iter().enumerate() {
            let busy = if device == 0 && second < 3_600 { "0.75" } else { "0" };
            for (name, value) in [
                ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", busy),
                ("DCGM_FI_PROF_SM_ACTIVE", busy),
                ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", busy),
                ("DCGM_FI_PROF_DRAM_ACTIVE", "0"),
                ("DCGM_FI_DEV_FB_USED", "40"),
                ("DCGM_FI_DEV_POWER_USAGE", "120.5"),
            ] {
                lines.push(format!(
                    "{name}{{gpu=\"{device}\",UUID=\"{uuid}\",modelName=\"NVIDIA H100 80GB HBM3\",Hostname=\"gpu-1\"}} {value} {time_ms}\n"
                ));
            }
        }
    }
    lines
}
