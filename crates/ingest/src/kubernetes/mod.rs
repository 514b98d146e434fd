//! Kubernetes placements from `kubectl get -o json` dumps: who could hold which node's accelerators, and when.
//!
//! [`read`] takes one file apart; [`resolve`] joins the objects of all files of a cluster (owner chains, memory
//! of nodes, devices that sharers reserve), so that splitting a dump changes nothing (**ING-1**); [`parse`] does
//! both for a single file. Read are pods, nodes, namespaces (their labels fill in where a pod has none of that
//! key), resource claims and slices, and whatever owns pods.
//!
//! # What people can declare
//! As annotations of a pod, or of an object that owns it where marked `*`:
//!
//! | annotation | value | meaning |
//! |---|---|---|
//! | `gpuledger.io/standby` * | `"true"` | idle is by intention: a warm standby |
//! | `gpuledger.io/slo` * | any text | the service level that the workload is kept ready for; idle is by intention |
//! | `gpuledger.io/bandwidth` * | `expected` | memory bandwidth is what the workload is for |
//! | `gpuledger.io/checkpoints` | RFC 3339 times, comma separated | when its state was saved |
//! | `gpuledger.io/last-checkpoint` | RFC 3339 time | one more of them |
//! | `gpuledger.io/resumed-from` | RFC 3339 time | the time of the state that it resumed from |
//! | `gpuledger.io/recompute-until` | RFC 3339 time | until then it repeats steps whose first run lies before the data |
//!
//! Standby is also declared by a minimum of replicas of one or more: `autoscaling.knative.dev/min-scale` (and
//! `minScale`) on the pod or an owner, and `spec.predictor.minReplicas` of a KServe InferenceService.

use std::collections::BTreeMap;

use gpuledger_model::machine;
use gpuledger_model::tables::placement::{Holder, Node, NodeClaim, Outcome, Placements, RecordKind};
use gpuledger_model::tables::reject::Notice;
use gpuledger_model::time::parse_time;
use jiff::tz::TimeZone;

use crate::Parsed;
use crate::declared::parse_times;
use crate::placements::{merge_placements, node_fullness};
use crate::refusals::{Refusals, excerpt};

mod document;
mod objects;
mod resources;
mod run;
mod sharing;
#[cfg(test)]
mod tests;

pub use objects::Objects;
use objects::{NodeObject, PodObject};
pub(crate) use resources::compute_slices;

/// What a user configures.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// A pod label whose value is the run; pods without it belong to their topmost owner's run.
    pub run_label: Option<String>,
    /// Extended resources that count whole devices, beside those known.
    pub extra_resources: Vec<String>,
}

/// Reads one dump and joins its objects.
pub fn parse(file: &str, bytes: &[u8], cluster: &str, options: &Options) -> Parsed<Placements> {
    let read = read(file, bytes);
    let mut joined = resolve(file, &read.value, cluster, options);
    joined.rows = read.rows;
    joined.rejects.splice(0..0, read.rejects);
    joined.notices.splice(0..0, read.notices);
    joined
}

/// Takes one dump apart: lists, single objects, several documents, JSON lines or watch events.
pub fn read(file: &str, bytes: &[u8]) -> Parsed<Objects> {
    let mut refusals = Refusals::new(file);
    let mut objects = Objects::default();
    let rows = document::for_each_object(bytes, &mut refusals, |kind, value, line, refusals| {
        objects::take(kind, value, line, &mut objects, refusals);
    });
    let (rejects, notices) = refusals.finish();
    Parsed { value: objects, rows, rejects, notices }
}

/// Joins the objects of a cluster, in whatever order and however often they came; `subject` names the input
/// in rejects and notices.
pub fn resolve(subject: &str, objects: &Objects, cluster: &str, options: &Options) -> Parsed<Placements> {
    let mut refusals = Refusals::new(subject);
    let mut placements = Placements::default();
    let mut notices = Vec::new();
    for node in &objects.nodes {
        placements.nodes.push(node_row(node, cluster, options, &mut refusals));
    }
    conflicting_nodes(&placements.nodes, &mut notices);
    let context = sharing::Context::new(objects);
    let owners = run::Owners::new(objects);
    for pod in &objects.pods {
        if sharing::is_reservation(pod) {
            refusals.notice("reservation_pods", "pods that only reserve a device for sharers are no holders");
            continue;
        }
        // A pod without a node, or that never started, holds nothing.
        let (Some(node), Some(from_ms)) = (&pod.node, pod.start_ms.or(pod.first_container_start_ms)) else { continue };
        let claims = sharing::claims_of(pod, node, &context, options, &mut refusals);
        let mut holder = holder_row(pod, cluster, from_ms, claims, &mut refusals);
        let run = owners.run_of(cluster, pod, options);
        holder.standby_declared |= run.declares_standby;
        holder.bandwidth_expected |= run.declares_bandwidth;
        (holder.run, holder.workload) = (run.run, run.workload);
        for (key, value) in objects.namespaces.get(&pod.namespace).into_iter().flatten() {
            holder.labels.entry(key.clone()).or_insert_with(|| value.clone());
        }
        placements.holders.push(holder);
    }
    let (rejects, more) = refusals.finish();
    notices.extend(more);
    Parsed { value: merge_placements(vec![placements]), rows: 0, rejects, notices }
}

fn node_row(node: &NodeObject, cluster: &str, options: &Options, refusals: &mut Refusals) -> Node {
    let devices = resources::devices_of(node, options);
    if devices.is_hidden {
        refusals.notice(
            "device_count_hidden",
            format!("node {} advertises replicas and no label nvidia.com/gpu.count: its physical devices are unknown here", node.name),
        );
    }
    let machine = node.provider_id.as_deref().map(machine::reduce);
    let label = |keys: &[&str]| keys.iter().find_map(|key| node.labels.get(*key)).filter(|text| !text.is_empty()).cloned();
    Node {
        cluster: cluster.to_string(),
        name: node.name.clone(),
        uid: node.uid.clone(),
        record: RecordKind::KubernetesDump,
        cloud: machine.as_ref().and_then(|m| m.cloud),
        machine_id: machine.map(|m| m.id),
        instance_type: label(&["node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type"]),
        region: label(&["topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"]),
        from_ms: node.created_ms,
        // A deletionTimestamp is a plan: a node that is listed is there.
        to_ms: None,
        capacity_devices: devices.capacity,
        allocatable_devices: devices.allocatable,
        replicas: devices.replicas,
        mig_single_profile: devices.mig_single_profile,
        mig_resources: devices.mig_resources,
        accelerator_model: resources::accelerator_model(&node.labels).map(str::to_string),
        is_cordoned: node.is_cordoned,
        cordoned_from_ms: node.cordoned_from_ms,
        last_record_ms: node.last_record_ms,
        labels: node.labels.clone(),
    }
}

/// One node, told differently: the fuller record wins, and the user hears of it.
fn conflicting_nodes(nodes: &[Node], notices: &mut Vec<Notice>) {
    let mut by_identity: BTreeMap<(&str, Option<&str>), Vec<&Node>> = BTreeMap::new();
    for node in nodes {
        by_identity.entry((&node.name, node.uid.as_deref())).or_default().push(node);
    }
    for ((name, _), records) in by_identity {
        let mut machines: Vec<_> =
            records.iter().map(|n| (n.machine_id.as_deref(), n.instance_type.as_deref(), n.region.as_deref())).collect();
        machines.sort_unstable();
        machines.dedup();
        if machines.len() > 1 {
            let fullest = records.iter().max_by_key(|n| node_fullness(n)).and_then(|n| n.instance_type.as_deref());
            notices.push(Notice {
                kind: "node_conflict".to_string(),
                subject: name.to_string(),
                message: format!(
                    "{} records of one node differ in machine, instance type or region; the fuller one stands (instance type {})",
                    machines.len(),
                    fullest.unwrap_or("unknown")
                ),
            });
        }
    }
}

fn holder_row(pod: &PodObject, cluster: &str, from_ms: i64, claims: Vec<NodeClaim>, refusals: &mut Refusals) -> Holder {
    let (outcome, to_ms) = end_of(pod, from_ms);
    let mut time = |key: &str| -> Option<i64> {
        let text = pod.annotations.get(key)?;
        let time_ms = parse_time(text, &TimeZone::UTC);
        if time_ms.is_none() {
            refusals.reject(0, key, format!("pod {}/{}: {} is no RFC 3339 time", pod.namespace, pod.name, excerpt(text)));
        }
        time_ms
    };
    let resumed_from_ms = time("gpuledger.io/resumed-from");
    let recompute_until_ms = time("gpuledger.io/recompute-until");
    let last_checkpoint = time("gpuledger.io/last-checkpoint");
    let list = pod.annotations.get("gpuledger.io/checkpoints").map(String::as_str).unwrap_or_default();
    let (mut checkpoints_ms, wrong) = parse_times(list, &TimeZone::UTC);
    for text in wrong {
        let reason = format!("pod {}/{}: {} is no RFC 3339 time", pod.namespace, pod.name, excerpt(&text));
        refusals.reject(0, "gpuledger.io/checkpoints", reason);
    }
    checkpoints_ms.extend(last_checkpoint);
    checkpoints_ms.sort_unstable();
    checkpoints_ms.dedup();
    Holder {
        key: format!("k8s/{cluster}/{}/{}/{}", pod.namespace, pod.name, pod.uid),
        record: RecordKind::KubernetesDump,
        cluster: cluster.to_string(),
        namespace: Some(pod.namespace.clone()),
        account: None,
        user: pod.service_account.clone(),
        name: pod.name.clone(),
        uid: pod.uid.clone(),
        claims,
        from_ms,
        to_ms,
        outcome,
        run: pod.uid.clone(),
        workload: String::new(),
        labels: pod.labels.clone(),
        annotations: pod.annotations.clone(),
        addresses: pod.addresses.clone(),
        bandwidth_expected: declares_bandwidth(&pod.annotations),
        standby_declared: declares_standby(&pod.annotations),
        checkpoints_ms,
        resumed_from_ms,
        recompute_until_ms,
        last_record_ms: pod.last_record_ms,
    }
}

/// How and when a pod let its devices go. Completed pods hold nothing however long they are listed; a pod with
/// a deletionTimestamp that is still listed is alive.
fn end_of(pod: &PodObject, from_ms: i64) -> (Outcome, Option<i64>) {
    /// Reasons with which kubelet and controllers take a pod away.
    const TAKEN_AWAY: &[&str] = &["Evicted", "Preempted", "Preempting", "Shutdown", "NodeShutdown", "Terminated", "DeletionByTaintManager"];
    let reason = pod.reason.as_deref().unwrap_or_default();
    let outcome = match pod.phase.as_str() {
        "Succeeded" => Outcome::Succeeded,
        "Failed" if pod.has_disruption || TAKEN_AWAY.contains(&reason) => Outcome::Preempted,
        "Failed" => Outcome::Failed,
        _ => return (Outcome::Alive, None),
    };
    // A pod that the kubelet refused never had its devices.
    let was_refused = pod.last_finish_ms.is_none()
        && !pod.has_container_status
        && (reason == "UnexpectedAdmissionError" || reason == "NodeAffinity" || reason.starts_with("OutOf"));
    let end_ms = match (was_refused, pod.last_finish_ms.or(pod.stopped_by_condition_ms).or(pod.last_record_ms)) {
        (false, Some(end_ms)) => end_ms.max(from_ms),
        _ => from_ms,
    };
    (outcome, Some(end_ms))
}

/// Whether annotations say that idle is by intention.
fn declares_standby(annotations: &BTreeMap<String, String>) -> bool {
    let is_kept = |key: &str| annotations.get(key).and_then(|text| text.trim().parse::<u64>().ok()).is_some_and(|n| n >= 1);
    annotations.get("gpuledger.io/standby").is_some_and(|text| text.trim().eq_ignore_ascii_case("true"))
        || annotations.get("gpuledger.io/slo").is_some_and(|text| !text.trim().is_empty())
        || is_kept("autoscaling.knative.dev/min-scale")
        || is_kept("autoscaling.knative.dev/minScale")
}

/// Whether annotations say that bandwidth is what the workload is for.
fn declares_bandwidth(annotations: &BTreeMap<String, String>) -> bool {
    annotations.get("gpuledger.io/bandwidth").is_some_and(|text| text.trim().eq_ignore_ascii_case("expected"))
}
