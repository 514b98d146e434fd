//! What `kubectl get nodes,pods,… -o json` prints at the end of the data.

use std::io::{self, Write};

use gpuledger_model::tables::charge::Cloud;
use gpuledger_model::tables::placement::Outcome;
use gpuledger_model::time::{MINUTE_MS, SECOND_MS, format_rfc3339};
use serde_json::{Map, Value, json};

use super::serving::CORES_PER_DEVICE;
use crate::fleet::{Machine, Sharing};
use crate::holder::{Holder, OwnerKind};
use crate::workload::Workload;
use crate::world::World;

/// Writes the dump of a cluster.
pub fn write(world: &World, cluster: &str, out: &mut impl Write) -> io::Result<()> {
    let mut items: Vec<Value> = Vec::new();
    for (at, machine) in world.machines.iter().enumerate().filter(|(_, m)| m.cluster == cluster) {
        items.push(node(world, at, machine));
    }
    let mut groups: Vec<&str> = Vec::new();
    let mut owners: Vec<&str> = Vec::new();
    for holder in world.plan.holders.iter().filter(|h| h.cluster == cluster) {
        items.push(pod(world, holder));
        if !owners.contains(&holder.owner_uid.as_str()) {
            owners.push(&holder.owner_uid);
            items.extend(owner(holder));
        }
        if !groups.contains(&holder.group) {
            groups.push(holder.group);
        }
    }
    for group in groups {
        let team = if group == "serving" { "inference" } else { group };
        items.push(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": group, "labels": {"team": team}}}));
    }
    let list = json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": items});
    serde_json::to_writer_pretty(&mut *out, &list)?;
    writeln!(out)
}

fn node(world: &World, at: usize, machine: &Machine) -> Value {
    let boards = machine.boards.len();
    let gone = world.plan.vanished.iter().filter(|v| v.0 == at).count();
    let mut labels = Map::new();
    for (key, value) in [
        ("kubernetes.io/hostname", machine.node.clone()),
        ("node.kubernetes.io/instance-type", machine.instance_type.to_string()),
        ("topology.kubernetes.io/region", machine.region.to_string()),
        ("topology.kubernetes.io/zone", machine.zone.clone()),
        ("nvidia.com/gpu.present", "true".to_string()),
        ("nvidia.com/gpu.count", boards.to_string()),
        (
            "nvidia.com/gpu.product",
            match machine.sharing {
                Sharing::TimeSliced => format!("{}-SHARED", machine.product),
                _ => machine.product.to_string(),
            },
        ),
        (cluster_label(machine.cloud), machine.cluster.to_string()),
    ] {
        labels.insert(key.to_string(), json!(value));
    }
    let mut capacity = Map::new();
    capacity.insert("cpu".to_string(), json!(machine.vcpus.to_string()));
    capacity.insert("memory".to_string(), json!(format!("{}Gi", machine.memory_gib)));
    capacity.insert("pods".to_string(), json!("110"));
    let mut allocatable = capacity.clone();
    match machine.sharing {
        Sharing::Whole => {
            capacity.insert("nvidia.com/gpu".to_string(), json!(boards.to_string()));
            allocatable.insert("nvidia.com/gpu".to_string(), json!((boards - gone).to_string()));
        }
        Sharing::TimeSliced => {
            labels.insert("nvidia.com/gpu.replicas".to_string(), json!("2"));
            labels.insert("nvidia.com/gpu.sharing-strategy".to_string(), json!("time-slicing"));
            for resources in [&mut capacity, &mut allocatable] {
                resources.insert("nvidia.com/gpu".to_string(), json!((boards * 2).to_string()));
            }
        }
        Sharing::Mig => {
            labels.insert("nvidia.com/mig.strategy".to_string(), json!("mixed"));
            labels.insert("nvidia.com/mig.capable".to_string(), json!("true"));
            let mut profiles: Vec<&str> =
                machine.boards.iter().flat_map(|b| b.slots.iter().filter_map(|s| s.instance.map(|i| i.1))).collect();
            profiles.sort_unstable();
            for resources in [&mut capacity, &mut allocatable] {
                resources.insert("nvidia.com/gpu".to_string(), json!("0"));
                for profile in &profiles {
                    let count = profiles.iter().filter(|p| *p == profile).count();
                    resources.insert(format!("nvidia.com/mig-{profile}"), json!(count.to_string()));
                }
            }
        }
    }
    let heartbeat = format_rfc3339(world.options.end_ms() - 20 * SECOND_MS);
    let mut spec = json!({"providerID": machine.provider_id});
    if let Some(time) = machine.cordoned_from_ms {
        spec["unschedulable"] = json!(true);
        spec["taints"] = json!([{"effect": "NoSchedule", "key": "node.kubernetes.io/unschedulable", "timeAdded": format_rfc3339(time)}]);
    }
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": machine.node, "uid": machine.uid, "creationTimestamp": format_rfc3339(machine.from_ms), "labels": labels,
        },
        "spec": spec,
        "status": {
            "capacity": capacity,
            "allocatable": allocatable,
            "addresses": [{"type": "Hostname", "address": machine.node}],
            "conditions": [{
                "type": "Ready", "status": "True", "reason": "KubeletReady",
                "lastHeartbeatTime": heartbeat, "lastTransitionTime": format_rfc3339(machine.from_ms),
            }],
        },
    })
}

fn cluster_label(cloud: Cloud) -> &'static str {
    match cloud {
        Cloud::Aws => "alpha.eksctl.io/cluster-name",
        Cloud::Azure => "kubernetes.azure.com/cluster",
        _ => "cloud.google.com/gke-cluster-name",
    }
}

/// The resource that a holder asks for, and how many.
fn claim(world: &World, holder: &Holder) -> (String, usize) {
    let Some(place) = holder.places.first() else { return ("nvidia.com/gpu".to_string(), 0) };
    let slot = &world.machines[place.machine].boards[place.board].slots[place.slot];
    match slot.instance {
        Some((_, profile)) => (format!("nvidia.com/mig-{profile}"), holder.places.len()),
        None => ("nvidia.com/gpu".to_string(), holder.places.len()),
    }
}

fn pod(world: &World, holder: &Holder) -> Value {
    let node = holder.places.first().map(|p| world.machines[p.machine].node.clone()).unwrap_or_default();
    let (resource, count) = claim(world, holder);
    let mut limits = Map::new();
    limits.insert(resource, json!(count.to_string()));
    limits.insert("cpu".to_string(), json!((CORES_PER_DEVICE as usize * count).to_string()));
    limits.insert("memory".to_string(), json!(format!("{}Gi", 64 * count)));
    let mut annotations = Map::new();
    if holder.workload == Workload::WarmStandby {
        annotations.insert("gpuledger.io/standby".to_string(), json!("true"));
    }
    if !holder.checkpoints_ms.is_empty() {
        let times: Vec<String> = holder.checkpoints_ms.iter().map(|t| format_rfc3339(*t)).collect();
        annotations.insert("gpuledger.io/checkpoints".to_string(), json!(times.join(",")));
    }
    let (kind, owner_name) = match holder.owner_kind {
        OwnerKind::Job => ("Job", holder.owner_name.clone()),
        OwnerKind::Deployment => ("ReplicaSet", replica_set(holder)),
        OwnerKind::StatefulSet => ("StatefulSet", holder.owner_name.clone()),
    };
    let started = format_rfc3339(holder.from_ms);
    let (phase, state) = match (holder.outcome, holder.to_ms) {
        (_, None) => ("Running", json!({"running": {"startedAt": started}})),
        (outcome, Some(to)) => {
            let is_good = outcome == Outcome::Succeeded;
            let state = json!({"terminated": {
                "exitCode": if is_good { 0 } else if outcome == Outcome::Preempted { 143 } else { 1 },
                "reason": if is_good { "Completed" } else { "Error" },
                "startedAt": started,
                "finishedAt": format_rfc3339(to),
            }});
            (if is_good { "Succeeded" } else { "Failed" }, state)
        }
    };
    let mut conditions = vec![json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": started})];
    if holder.outcome == Outcome::Preempted
        && let Some(to) = holder.to_ms
    {
        conditions.push(json!({
            "type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler",
            "message": "preempting to accommodate a higher priority pod", "lastTransitionTime": format_rfc3339(to),
        }));
    }
    let restart_policy = if holder.owner_kind == OwnerKind::Job { "Never" } else { "Always" };
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": holder.name, "namespace": holder.group, "uid": holder.uid,
            "creationTimestamp": format_rfc3339(holder.from_ms - MINUTE_MS),
            "labels": {"app.kubernetes.io/name": holder.workload.word(), "app.kubernetes.io/instance": holder.owner_name},
            "annotations": annotations,
            "ownerReferences": [{"apiVersion": "v1", "kind": kind, "name": owner_name, "uid": holder.owner_uid, "controller": true}],
        },
        "spec": {
            "nodeName": node,
            "restartPolicy": restart_policy,
            "serviceAccountName": holder.user,
            "containers": [{
                "name": "main", "image": format!("registry.example/{}:1", holder.workload.word()),
                "resources": {"limits": limits, "requests": limits},
            }],
        },
        "status": {
            "phase": phase,
            "startTime": started,
            "podIP": holder.address,
            "podIPs": [{"ip": holder.address}],
            "conditions": conditions,
            "containerStatuses": [{"name": "main", "ready": holder.to_ms.is_none(), "restartCount": 0, "state": state}],
        },
    })
}

fn replica_set(holder: &Holder) -> String {
    format!("{}-{}", holder.owner_name, &holder.owner_uid[..8])
}

/// What owns a pod: a job, a stateful set, or a replica set and its deployment.
fn owner(holder: &Holder) -> Vec<Value> {
    let metadata = |name: &str, uid: &str| json!({"name": name, "namespace": holder.group, "uid": uid, "creationTimestamp": format_rfc3339(holder.from_ms - MINUTE_MS)});
    match holder.owner_kind {
        OwnerKind::Job => {
            vec![
                json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata(&holder.owner_name, &holder.owner_uid), "spec": {"backoffLimit": 0}}),
            ]
        }
        OwnerKind::StatefulSet => {
            vec![
                json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata(&holder.owner_name, &holder.owner_uid), "spec": {"replicas": 1}}),
            ]
        }
        OwnerKind::Deployment => {
            let deployment_uid = format!("{}d", &holder.owner_uid[..holder.owner_uid.len() - 1]);
            let mut set = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": metadata(&replica_set(holder), &holder.owner_uid), "spec": {"replicas": 1}});
            set["metadata"]["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": "Deployment", "name": holder.owner_name, "uid": deployment_uid, "controller": true}]);
            let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata(&holder.owner_name, &deployment_uid), "spec": {"replicas": 1}});
            vec![set, deployment]
        }
    }
}
