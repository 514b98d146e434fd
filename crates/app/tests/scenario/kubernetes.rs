//! `== kubernetes`: short lines of nodes and pods become one `kubectl get -o json` list.

use gpuledger_model::time::format_rfc3339;
use serde_json::{Map, Value, json};

use super::format::{Line, Read, Scenario, Section, fields, mistake};

/// The list as JSON text.
pub fn read(scenario: &Scenario, section: &Section) -> Read<String> {
    let mut items = Vec::new();
    for line in &section.lines {
        let (plain, pairs) = fields(&line.text);
        let Some(name) = plain.get(1) else { return mistake(line.number, "an object has a name") };
        items.push(match plain[0].as_str() {
            "node" => node(scenario, line, name, &pairs)?,
            "pod" => pod(scenario, line, name, &pairs)?,
            other => return mistake(line.number, format!("`{other}` is neither node nor pod")),
        });
    }
    let list = json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": items});
    Ok(serde_json::to_string_pretty(&list).expect("a list of plain values"))
}

fn time(scenario: &Scenario, line: &Line, text: &str) -> Read<Value> {
    Ok(Value::String(format_rfc3339(scenario.time(line.number, text)?)))
}

fn count(line: &Line, text: &str) -> Read<u64> {
    text.parse().or_else(|_| mistake(line.number, format!("`{text}` is no count")))
}

fn node(scenario: &Scenario, line: &Line, name: &str, pairs: &[(String, String)]) -> Read<Value> {
    let mut metadata = Map::new();
    metadata.insert("name".into(), json!(name));
    metadata.insert("uid".into(), json!(format!("node-{name}")));
    let mut labels = Map::new();
    labels.insert("kubernetes.io/hostname".into(), json!(name));
    let (mut spec, mut capacity, mut allocatable) = (Map::new(), Map::new(), Map::new());
    let mut conditions = Vec::new();
    let (mut devices, mut replicas, mut free) = (None, 1, None);
    for (key, value) in pairs {
        match key.as_str() {
            "machine" => drop(spec.insert("providerID".into(), json!(value))),
            "gpus" => devices = Some(count(line, value)?),
            "replicas" => replicas = count(line, value)?,
            "allocatable" => free = Some(count(line, value)?),
            "type" => drop(labels.insert("node.kubernetes.io/instance-type".into(), json!(value))),
            "region" => drop(labels.insert("topology.kubernetes.io/region".into(), json!(value))),
            "product" => drop(labels.insert("nvidia.com/gpu.product".into(), json!(value))),
            "created" => drop(metadata.insert("creationTimestamp".into(), time(scenario, line, value)?)),
            "deleted" => drop(metadata.insert("deletionTimestamp".into(), time(scenario, line, value)?)),
            "seen" => {
                let seen = time(scenario, line, value)?;
                let since = metadata.get("creationTimestamp").cloned().unwrap_or_else(|| seen.clone());
                conditions.push(json!({"type": "Ready", "status": "True", "lastHeartbeatTime": seen, "lastTransitionTime": since}));
            }
            "cordoned" => {
                spec.insert("unschedulable".into(), json!(true));
                let mut taint = json!({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"});
                if value != "yes" {
                    taint["timeAdded"] = time(scenario, line, value)?;
                }
                spec.insert("taints".into(), json!([taint]));
            }
            key => match (key.strip_prefix("mig."), key.strip_prefix("label.")) {
                (Some(profile), _) => {
                    let count = json!(count(line, value)?.to_string());
                    capacity.insert(format!("nvidia.com/mig-{profile}"), count.clone());
                    allocatable.insert(format!("nvidia.com/mig-{profile}"), count);
                }
                (_, Some(label)) => drop(labels.insert(label.into(), json!(value))),
                _ => return mistake(line.number, format!("a node has no `{key}`")),
            },
        }
    }
    if let Some(devices) = devices {
        capacity.insert("nvidia.com/gpu".into(), json!((devices * replicas).to_string()));
        allocatable.insert("nvidia.com/gpu".into(), json!((free.unwrap_or(devices) * replicas).to_string()));
        if replicas > 1 {
            labels.insert("nvidia.com/gpu.count".into(), json!(devices.to_string()));
            labels.insert("nvidia.com/gpu.replicas".into(), json!(replicas.to_string()));
        }
    }
    metadata.insert("labels".into(), Value::Object(labels));
    Ok(json!({
        "apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec,
        "status": {"capacity": capacity, "allocatable": allocatable, "conditions": conditions},
    }))
}

fn pod(scenario: &Scenario, line: &Line, name: &str, pairs: &[(String, String)]) -> Read<Value> {
    let Some((namespace, name)) = name.split_once('/') else {
        return mistake(line.number, "a pod is written namespace/name");
    };
    let mut metadata = Map::new();
    metadata.insert("name".into(), json!(name));
    metadata.insert("namespace".into(), json!(namespace));
    let (mut spec, mut resources, mut status) = (Map::new(), Map::new(), Map::new());
    let (mut labels, mut annotations) = (Map::new(), Map::new());
    let (mut from, mut to, mut phase) = (Value::Null, Value::Null, None);
    for (key, value) in pairs {
        match key.as_str() {
            "uid" => drop(metadata.insert("uid".into(), json!(value))),
            "node" => drop(spec.insert("nodeName".into(), json!(value))),
            "gpus" => drop(resources.insert("nvidia.com/gpu".into(), json!(count(line, value)?.to_string()))),
            "from" => from = time(scenario, line, value)?,
            "to" => to = time(scenario, line, value)?,
            "phase" => phase = Some(value.clone()),
            "reason" => drop(status.insert("reason".into(), json!(value))),
            "deleted" => drop(metadata.insert("deletionTimestamp".into(), time(scenario, line, value)?)),
            "ip" => {
                status.insert("podIP".into(), json!(value));
                status.insert("podIPs".into(), json!([{"ip": value}]));
            }
            "owner" => {
                let owner = value.split_once('/').and_then(|(kind, rest)| Some((kind, rest.split_once(':')?)));
                let Some((kind, (name, uid))) = owner else {
                    return mistake(line.number, "an owner is written Job/name:uid");
                };
                let version = match kind {
                    "Job" | "CronJob" => "batch/v1",
                    "JobSet" => "jobset.x-k8s.io/v1alpha2",
                    "RayCluster" => "ray.io/v1",
                    "ReplicaSet" | "StatefulSet" | "DaemonSet" | "Deployment" => "apps/v1",
                    _ => "kubeflow.org/v1",
                };
                let reference = json!({"apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": true});
                metadata.insert("ownerReferences".into(), json!([reference]));
            }
            key => {
                if let Some(label) = key.strip_prefix("label.") {
                    labels.insert(label.into(), json!(value));
                } else if let Some(annotation) = key.strip_prefix("annotation.") {
                    annotations.insert(annotation.into(), json!(value));
                } else if let Some(resource) = key.strip_prefix("mig.") {
                    resources.insert(format!("nvidia.com/mig-{resource}"), json!(count(line, value)?.to_string()));
                } else {
                    return mistake(line.number, format!("a pod has no `{key}`"));
                }
            }
        }
    }
    let phase = phase.unwrap_or_else(|| if to.is_null() { "Running".into() } else { "Succeeded".into() });
    let state = if to.is_null() {
        json!({"running": {"startedAt": from}})
    } else {
        let is_well = phase == "Succeeded";
        let (code, reason) = if is_well { (0, "Completed") } else { (1, "Error") };
        json!({"terminated": {"startedAt": from, "finishedAt": to, "exitCode": code, "reason": reason}})
    };
    metadata.insert("creationTimestamp".into(), from.clone());
    metadata.insert("labels".into(), Value::Object(labels));
    metadata.insert("annotations".into(), Value::Object(annotations));
    spec.insert("containers".into(), json!([{"name": "main", "image": "x", "resources": {"limits": resources, "requests": resources}}]));
    status.insert("phase".into(), json!(phase));
    status.insert("startTime".into(), from);
    status.insert("containerStatuses".into(), json!([{"name": "main", "restartCount": 0, "state": state}]));
    Ok(json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}))
}
