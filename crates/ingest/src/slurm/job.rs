//! What `sacct` and `scontrol` say alike about jobs: states, ends, comments, and claims on nodes.

use std::collections::BTreeMap;

use gpuledger_model::tables::placement::{Holder, Node, NodeClaim, Outcome, RecordKind};
use gpuledger_model::time::{format_rfc3339, parse_time};
use jiff::tz::TimeZone;

use super::tres::Gpus;
use crate::refusals::{Refusals, excerpt};

/// What a job's state says about its hold on nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It never had nodes, or does not have them yet.
    HoldsNothing,
    /// It holds them now.
    Holds,
    /// It held them until its end.
    Ended(Outcome),
}

/// The meaning of a state's word; `CANCELLED by 1000` is CANCELLED. `None` for words that no version of Slurm uses.
pub(super) fn parse_state(text: &str) -> Option<State> {
    let word = text.split_whitespace().next().unwrap_or_default();
    Some(match word {
        "PENDING" | "REVOKED" => State::HoldsNothing,
        "RUNNING" | "SUSPENDED" | "COMPLETING" | "CONFIGURING" | "RESIZING" | "SIGNALING" | "STAGE_OUT" | "STOPPED" => State::Holds,
        "COMPLETED" => State::Ended(Outcome::Succeeded),
        "FAILED" | "NODE_FAIL" | "BOOT_FAIL" | "OUT_OF_MEMORY" | "LAUNCH_FAILED" | "RECONFIG_FAIL" => State::Ended(Outcome::Failed),
        "PREEMPTED" => State::Ended(Outcome::Preempted),
        "REQUEUED" | "REQUEUE_HOLD" | "REQUEUE_FED" | "SPECIAL_EXIT" => State::Ended(Outcome::Requeued),
        "CANCELLED" => State::Ended(Outcome::Cancelled),
        "TIMEOUT" | "DEADLINE" => State::Ended(Outcome::TimedOut),
        _ => return None,
    })
}

/// Slurm's words for no time.
pub(super) fn is_no_time(text: &str) -> bool {
    matches!(text.trim(), "" | "Unknown" | "None" | "N/A" | "NONE" | "(null)" | "Unlimited")
}

/// `D-HH:MM:SS`, `HH:MM:SS`, `MM:SS` (with a fraction or not), in milliseconds.
pub(super) fn parse_elapsed_ms(text: &str) -> Option<i64> {
    let (days, clock) = match text.trim().split_once('-') {
        Some((days, clock)) => (days.parse::<i64>().ok()?, clock),
        None => (0, text.trim()),
    };
    let clock = clock.split('.').next()?;
    let mut seconds = 0i64;
    for part in clock.split(':') {
        seconds = seconds.checked_mul(60)?.checked_add(part.parse::<u32>().ok()?.into())?;
    }
    days.checked_mul(86_400)?.checked_add(seconds)?.checked_mul(1000)
}

/// What a comment declares: `checkpoint=…` (any number), `resumed_from=…`, `recompute_until=…`, `standby=true`,
/// `bandwidth=expected`, separated by commas or semicolons; anything else is left alone.
pub(super) fn apply_comment(holder: &mut Holder, text: &str, zone: &TimeZone, line: u64, refusals: &mut Refusals) {
    for part in text.split([',', ';']) {
        let Some((key, value)) = part.trim().split_once('=') else { continue };
        let (key, value) = (key.trim(), value.trim());
        match key {
            "checkpoint" | "resumed_from" | "recompute_until" => match (key, parse_time(value, zone)) {
                ("checkpoint", Some(time_ms)) => holder.checkpoints_ms.push(time_ms),
                ("resumed_from", Some(time_ms)) => holder.resumed_from_ms = Some(time_ms),
                (_, Some(time_ms)) => holder.recompute_until_ms = Some(time_ms),
                (_, None) => refusals.reject(line, "Comment", format!("{key}={} is no time; write 2026-10-06T12:00:00", excerpt(value))),
            },
            "standby" => holder.standby_declared |= value.eq_ignore_ascii_case("true"),
            "bandwidth" => holder.bandwidth_expected |= value.eq_ignore_ascii_case("expected"),
            _ => {}
        }
    }
    holder.checkpoints_ms.sort_unstable();
    holder.checkpoints_ms.dedup();
}

/// A job's holder without claims, times as given.
pub(super) fn holder(cluster: &str, job: &str, from_ms: i64) -> Holder {
    Holder {
        key: format!("slurm/{cluster}/{job}/{}", format_rfc3339(from_ms)),
        record: RecordKind::SlurmAccounting,
        cluster: cluster.to_string(),
        namespace: None,
        account: None,
        user: None,
        name: String::new(),
        uid: job.to_string(),
        claims: Vec::new(),
        from_ms,
        to_ms: None,
        outcome: Outcome::Alive,
        run: format!("slurm/{cluster}/{job}"),
        workload: format!("Job/{job}"),
        labels: BTreeMap::new(),
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

/// The claims of one node with these GPUs.
pub(super) fn claims_on(node: &str, gpus: &Gpus) -> Vec<NodeClaim> {
    let claim = |count: u64| NodeClaim {
        node: node.to_string(),
        count: u32::try_from(count).unwrap_or(u32::MAX),
        mig_profile: None,
        device_indices: Vec::new(),
        device_uuids: Vec::new(),
        fraction_ppm: None,
    };
    let mut claims = Vec::new();
    if gpus.total == 0 && (gpus.mps > 0 || gpus.shards > 0) {
        // One device, shared: MPS counts declare the share, shards do not.
        claims.push(NodeClaim { device_indices: gpus.indices.clone(), fraction_ppm: gpus.mps_share_ppm(), ..claim(1) });
        return claims;
    }
    let instances = gpus.instances();
    let of_instances = instances.values().fold(0u64, |sum, &count| sum.saturating_add(count));
    let whole = gpus.total.saturating_sub(of_instances);
    if whole > 0 {
        // With instances among them, Slurm's indices cannot be told to be those of boards.
        let device_indices = if instances.is_empty() { gpus.indices.clone() } else { Vec::new() };
        claims.push(NodeClaim { device_indices, ..claim(whole) });
    }
    for (profile, count) in instances {
        claims.push(NodeClaim { mig_profile: Some(profile), ..claim(count) });
    }
    claims
}

/// A total over nodes in equal parts; the nodes first in the list have what is left over.
pub(super) fn divide(gpus: &Gpus, nodes: &[String]) -> Vec<NodeClaim> {
    let parts = nodes.len() as u64;
    if parts == 0 {
        return Vec::new();
    }
    let share = |total: u64, at: u64| total / parts + u64::from(at < total % parts);
    let mut claims = Vec::new();
    for (at, node) in (0u64..).zip(nodes) {
        let mut of_node = Gpus {
            total: share(gpus.total, at),
            by_type: gpus.by_type.iter().map(|(kind, &count)| (kind.clone(), share(count, at))).collect(),
            indices: Vec::new(),
            mps: share(gpus.mps, at),
            shards: share(gpus.shards, at),
            unreadable: None,
        };
        of_node.by_type.retain(|_, count| *count > 0);
        claims.extend(claims_on(node, &of_node));
    }
    claims
}

/// A node of which only the name is known.
pub(super) fn named_node(cluster: &str, name: &str) -> Node {
    Node {
        cluster: cluster.to_string(),
        name: name.to_string(),
        uid: None,
        record: RecordKind::SlurmAccounting,
        machine_id: None,
        cloud: None,
        instance_type: None,
        region: None,
        from_ms: None,
        to_ms: None,
        capacity_devices: None,
        allocatable_devices: None,
        replicas: 1,
        mig_single_profile: None,
        mig_resources: Vec::new(),
        accelerator_model: None,
        is_cordoned: false,
        cordoned_from_ms: None,
        last_record_ms: None,
        labels: BTreeMap::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_say_who_holds() {
        assert_eq!(parse_state("PENDING"), Some(State::HoldsNothing));
        assert_eq!(parse_state("SUSPENDED"), Some(State::Holds));
        assert_eq!(parse_state("CONFIGURING"), Some(State::Holds));
        assert_eq!(parse_state("CANCELLED by 1000"), Some(State::Ended(Outcome::Cancelled)));
        assert_eq!(parse_state("OUT_OF_MEMORY"), Some(State::Ended(Outcome::Failed)));
        assert_eq!(parse_state("DEADLINE"), Some(State::Ended(Outcome::TimedOut)));
        assert_eq!(parse_state("CANCELLED+"), None);
    }

    #[test]
    fn elapsed_times_are_read() {
        assert_eq!(parse_elapsed_ms("1-02:03:04"), Some(93_784_000));
        assert_eq!(parse_elapsed_ms("00:05:00"), Some(300_000));
        assert_eq!(parse_elapsed_ms("02:03.456"), Some(123_000));
        assert_eq!(parse_elapsed_ms("UNLIMITED"), None);
    }

    #[test]
    fn totals_divide_over_nodes() {
        let nodes: Vec<String> = ["a", "b", "c"].map(String::from).to_vec();
        let counts = |total| {
            let gpus = Gpus { total, ..Gpus::default() };
            divide(&gpus, &nodes).iter().map(|c| (c.node.clone(), c.count)).collect::<Vec<_>>()
        };
        assert_eq!(counts(8), [("a".into(), 3), ("b".into(), 3), ("c".into(), 2)]);
        assert_eq!(counts(6), [("a".into(), 2), ("b".into(), 2), ("c".into(), 2)]);
        assert_eq!(counts(1), [("a".into(), 1)]);
        assert!(divide(&Gpus { total: 3, ..Gpus::default() }, &[]).is_empty());
    }
}
