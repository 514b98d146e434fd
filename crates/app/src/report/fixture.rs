//! A small ledger made by hand, for tests of what users see. Integration tests include this file by its path,
//! so it names nothing of this crate.

use std::collections::BTreeMap;

use gpuledger_model::cause::{Cause, Confidence, Part, State};
use gpuledger_model::money::Decimal;
use gpuledger_model::tables::charge::Scope;
use gpuledger_model::tables::placement::{Holder, Outcome, Placements, RecordKind};
use gpuledger_model::tables::posting::{Closing, Finding, Ledger, PlacedBy, Posting};
use gpuledger_model::time::{HOUR_MS, parse_time};

/// A ledger and the placements behind it.
pub struct World {
    /// Two clouds, two currencies, one estimate.
    pub ledger: Ledger,
    /// Two pods and a Slurm job.
    pub placements: Placements,
}

/// Midnight of the first day, ms.
pub fn start_ms() -> i64 {
    parse_time("2026-10-06T00:00:00Z", &jiff::tz::TimeZone::UTC).unwrap()
}

fn scope(provider: &str, account: &str, currency: &str) -> Scope {
    Scope { provider: provider.into(), account: account.into(), period: "2026-10".into(), currency: currency.into() }
}

fn holder(key: &str, namespace: Option<&str>, account: Option<&str>, workload: &str, labels: &[(&str, &str)]) -> Holder {
    Holder {
        key: key.into(),
        record: if namespace.is_some() { RecordKind::KubernetesDump } else { RecordKind::SlurmAccounting },
        cluster: key.split('/').nth(1).unwrap_or_default().into(),
        namespace: namespace.map(str::to_string),
        account: account.map(str::to_string),
        user: None,
        name: "x".into(),
        uid: "u".into(),
        claims: Vec::new(),
        from_ms: start_ms(),
        to_ms: None,
        outcome: Outcome::Alive,
        run: format!("run-of-{workload}"),
        workload: workload.into(),
        labels: labels.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect(),
        annotations: BTreeMap::new(),
        addresses: Vec::new(),
        bandwidth_expected: false,
        standby_declared: false,
        checkpoints_ms: Vec::new(),
        resumed_from_ms: None,
        recompute_until_ms: None,
        last_record_ms: None,
    }
}

const TRAIN: &str = "k8s/east/train/llm-0/uid-1";
const SERVE: &str = "k8s/east/serve/chat-0/uid-2";
const JOB: &str = "slurm/hpc/812/2026-10-06T00:00:00Z";

#[allow(clippy::too_many_arguments)]
fn posting(scope: &Scope, hour: i64, device: &str, holder: &str, cause: Cause, part: Part, amount: &str, seconds: i64) -> Posting {
    let is_bill_only = part == Part::Bill;
    let is_hpc = scope.provider.starts_with("Oracle");
    Posting {
        scope: scope.clone(),
        pool: format!("pool-{hour}"),
        hour_ms: start_ms() + hour * HOUR_MS,
        device: device.into(),
        machine: if is_bill_only {
            String::new()
        } else if is_hpc {
            "ocid1.instance.oc1.phx.a".into()
        } else {
            "i-0a1".into()
        },
        node: if is_bill_only { String::new() } else { "gpu-node-1".into() },
        cluster: if is_bill_only {
            String::new()
        } else if is_hpc {
            "hpc".into()
        } else {
            "east".into()
        },
        model: if is_bill_only { String::new() } else { "NVIDIA H100 80GB HBM3".into() },
        holder: holder.into(),
        cause,
        part,
        amount: amount.parse().unwrap(),
        device_ms: seconds * 1000,
        energy_joules: seconds * 500,
        rule: format!("{cause}/1"),
        confidence: match part {
            Part::Bill | Part::NotHeld => Confidence::High,
            Part::Useful => Confidence::Medium,
            _ => Confidence::Low,
        },
        state: if scope.provider.starts_with("estimate:") { State::Estimated } else { State::Reconciled },
        placed_by: PlacedBy::Rows,
        service: if is_bill_only { "AmazonS3".into() } else { String::new() },
    }
}

/// The world of the tests: small enough to add up by hand.
pub fn world() -> World {
    let aws = scope("Amazon Web Services", "000123456789", "USD");
    let azure = scope("Microsoft", "0042", "USD");
    let oracle = scope("Oracle", "ocid1.tenancy", "EUR");
    let estimate = scope("estimate:gcp", "estimate", "USD");
    let postings = vec![
        // 100.0000000000 of a machine-hour with two devices, and what stands beside it on the bill.
        posting(&aws, 0, "GPU-1", TRAIN, Cause::Useful, Part::Useful, "30.0000000001", 2160),
        posting(&aws, 0, "GPU-1", TRAIN, Cause::Headroom, Part::Idle, "9.9999999999", 720),
        posting(&aws, 0, "GPU-1", TRAIN, Cause::InputStarved, Part::Idle, "10.0000000000", 720),
        posting(&aws, 0, "GPU-2", "", Cause::Unallocated, Part::NotHeld, "50.0000000000", 3600),
        posting(&aws, 1, "GPU-1", SERVE, Cause::BandwidthBound, Part::Use, "20.0000000000", 1440),
        posting(&aws, 1, "GPU-1", SERVE, Cause::Useful, Part::Useful, "30.0000000000", 2160),
        posting(&aws, 1, "GPU-2", TRAIN, Cause::Unobserved, Part::Unknown, "50.0000000000", 3600),
        posting(&aws, 1, "", "", Cause::OtherService, Part::Bill, "3.1400000000", 0),
        posting(&aws, 0, "", "", Cause::Tax, Part::Bill, "7.0000000000", 0),
        posting(&aws, 0, "", "", Cause::Credit, Part::Bill, "-12.3400000000", 0),
        // Twelve decimals: sums over both scopes take the larger scale.
        posting(&azure, 25, "GPU-9", TRAIN, Cause::Useful, Part::Useful, "1.000000000001", 3600),
        posting(&azure, 25, "machine#1", "", Cause::NotInInventory, Part::Bill, "2.500000000000", 0),
        posting(&estimate, 25, "GPU-7", TRAIN, Cause::Empty, Part::Idle, "4.0000000000", 3600),
        posting(&oracle, 24, "GPU-5", JOB, Cause::Empty, Part::Idle, "8.7500000000", 1800),
        posting(&oracle, 24, "GPU-5", JOB, Cause::Unresolved, Part::Unknown, "8.7500000000", 1800),
    ];
    let sum =
        |scope: &Scope| postings.iter().filter(|p| p.scope == *scope).fold(Decimal::ZERO, |sum, p| sum.checked_add(p.amount).unwrap());
    let closings = [&aws, &azure, &oracle, &estimate]
        .into_iter()
        .map(|scope| {
            let bill = sum(scope);
            let zero = Decimal { mantissa: 0, scale: bill.scale };
            let state = if scope.provider.starts_with("estimate:") { "estimated" } else { "closed" };
            Closing { scope: scope.clone(), bill, posted: bill, difference: zero, state: state.into() }
        })
        .collect();
    let hour = |at: i64| Some(start_ms() + at * HOUR_MS);
    let findings = vec![
        Finding {
            id: "f-1".into(),
            kind: "waste".into(),
            cause: Some(Cause::Unallocated),
            subject: "GPU-2".into(),
            currency: Some("USD".into()),
            amount: Some("50.0000000000".parse().unwrap()),
            from_ms: hour(0),
            to_ms: hour(1),
            confidence: Confidence::High,
            evidence: "3600 s paid, no holder in the record of cluster east".into(),
            rule: "unallocated/1".into(),
            would_change: "a pod that names the device in this hour".into(),
        },
        Finding {
            id: "f-2".into(),
            kind: "waste".into(),
            cause: Some(Cause::Empty),
            subject: JOB.into(),
            currency: Some("EUR".into()),
            amount: Some("8.7500000000".parse().unwrap()),
            from_ms: hour(24),
            to_ms: hour(25),
            confidence: Confidence::Low,
            evidence: "engine 0.00 for 1800 s, memory 0.4 %".into(),
            rule: "empty/1".into(),
            would_change: "a process on the device".into(),
        },
        Finding {
            id: "f-3".into(),
            kind: "duplicate_producer".into(),
            cause: None,
            subject: "GPU-1".into(),
            currency: None,
            amount: None,
            from_ms: hour(0),
            to_ms: hour(2),
            confidence: Confidence::High,
            evidence: "two exporters sampled <GPU-1> & agreed".into(),
            rule: "duplicate_producer/1".into(),
            would_change: "one exporter less".into(),
        },
    ];
    let placements = Placements {
        nodes: Vec::new(),
        holders: vec![
            holder(TRAIN, Some("train"), None, "JobSet/llm-pretrain", &[("app", "llm"), ("team", "nlp")]),
            holder(SERVE, Some("serve"), None, "Deployment/chat", &[("app", "chat")]),
            holder(JOB, None, Some("physics"), "Job/relax", &[]),
        ],
        reservations: Vec::new(),
    };
    World { ledger: Ledger { postings, closings, findings }, placements }
}
