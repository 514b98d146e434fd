//! Dumps shaped as kubectl writes them, and what they must become.

use gpuledger_model::tables::charge::Cloud;
use serde_json::{Value, json};

use super::*;

fn ms(text: &str) -> i64 {
    parse_time(text, &TimeZone::UTC).unwrap()
}

fn list(items: &[Value]) -> Vec<u8> {
    json!({"apiVersion": "v1", "items": items, "kind": "List", "metadata": {"resourceVersion": ""}}).to_string().into_bytes()
}

fn parse_items(items: &[Value]) -> Parsed<Placements> {
    parse("dump.json", &list(items), "prod", &Options::default())
}

fn node_json(name: &str, labels: Value, capacity: Value, allocatable: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "uid": format!("uid-{name}"), "creationTimestamp": "2026-10-05T08:00:00Z", "labels": labels},
        "spec": {"providerID": "aws:///us-east-1a/i-0abc"},
        "status": {"capacity": capacity, "allocatable": allocatable,
            "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-10-06T12:00:00Z", "lastTransitionTime": "2026-10-05T08:01:00Z"}],
            "nodeInfo": {"kubeletVersion": "v1.34.1"}}
    })
}

/// A running pod of one container that asks for `limits`.
fn pod_json(name: &str, limits: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "train", "uid": format!("uid-{name}"), "creationTimestamp": "2026-10-06T08:59:00Z", "labels": {}, "annotations": {}},
        "spec": {"nodeName": "n1", "serviceAccountName": "trainer", "containers": [{"name": "main", "resources": {"limits": limits}}]},
        "status": {"phase": "Running", "startTime": "2026-10-06T09:00:00Z", "podIP": "10.1.2.3", "podIPs": [{"ip": "10.1.2.3"}],
            "containerStatuses": [{"name": "main", "state": {"running": {"startedAt": "2026-10-06T09:02:00Z"}}}]}
    })
}

fn with(mut value: Value, pointer: &str, new: Value) -> Value {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    value.pointer_mut(parent).unwrap().as_object_mut().unwrap().insert(key.replace("~1", "/"), new);
    value
}

fn one_node(node: Value) -> Node {
    let parsed = parse_items(&[node]);
    assert_eq!(parsed.rejects, vec![]);
    parsed.value.nodes.into_iter().next().unwrap()
}

fn one_holder(items: &[Value]) -> Holder {
    let parsed = parse_items(items);
    assert_eq!(parsed.rejects, vec![]);
    assert_eq!(parsed.value.holders.len(), 1);
    parsed.value.holders.into_iter().next().unwrap()
}

#[test]
fn a_node_is_joined_to_its_machine() {
    let labels = json!({"node.kubernetes.io/instance-type": "p5.48xlarge", "topology.kubernetes.io/region": "us-east-1",
        "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.count": "8", "nvidia.com/gpu.replicas": "1"});
    let gpus = json!({"cpu": "192", "memory": "2097152Ki", "pods": "110", "nvidia.com/gpu": "8"});
    let node = one_node(with(node_json("n1", labels, gpus.clone(), gpus), "/metadata/deletionTimestamp", json!("2026-10-07T00:00:00Z")));
    assert_eq!((node.cluster.as_str(), node.name.as_str(), node.uid.as_deref()), ("prod", "n1", Some("uid-n1")));
    assert_eq!((node.machine_id.as_deref(), node.cloud), (Some("i-0abc"), Some(Cloud::Aws)));
    assert_eq!((node.instance_type.as_deref(), node.region.as_deref()), (Some("p5.48xlarge"), Some("us-east-1")));
    assert_eq!((node.capacity_devices, node.allocatable_devices, node.replicas), (Some(8), Some(8), 1));
    assert_eq!(node.from_ms, Some(ms("2026-10-05T08:00:00Z")));
    assert_eq!(node.to_ms, None, "a deletionTimestamp is a plan");
    assert_eq!(node.last_record_ms, Some(ms("2026-10-06T12:00:00Z")), "and no sign of life either");
    assert_eq!(node.accelerator_model.as_deref(), Some("NVIDIA-H100-80GB-HBM3"));
}

#[test]
fn physical_devices_are_counted_by_the_accounting_standard() {
    // (labels, capacity, allocatable) -> (capacity, allocatable, replicas)
    let cases = [
        // A board that the plugin found unhealthy.
        (json!({"nvidia.com/gpu.count": "8"}), json!({"nvidia.com/gpu": "8"}), json!({"nvidia.com/gpu": "7"}), (Some(8), Some(7), 1)),
        // Time-slicing, with and without the count label, renamed and not.
        (json!({"nvidia.com/gpu.replicas": "4"}), json!({"nvidia.com/gpu": "32"}), json!({"nvidia.com/gpu": "28"}), (Some(8), Some(7), 4)),
        (
            json!({"nvidia.com/gpu.count": "8", "nvidia.com/gpu.replicas": "4"}),
            json!({"nvidia.com/gpu.shared": "32", "nvidia.com/gpu": "0"}),
            json!({"nvidia.com/gpu.shared": "32", "nvidia.com/gpu": "0"}),
            (Some(8), Some(8), 4),
        ),
        (
            json!({"cloud.google.com/gke-max-shared-clients-per-gpu": "2"}),
            json!({"nvidia.com/gpu": "8"}),
            json!({"nvidia.com/gpu": "8"}),
            (Some(4), Some(4), 2),
        ),
        // T11: a plugin that hides the count behind its replicas.
        (
            json!({"nvidia.com/gpu.count": "1"}),
            json!({"k8s.amazonaws.com/vgpu": "10"}),
            json!({"k8s.amazonaws.com/vgpu": "10"}),
            (Some(1), Some(1), 10),
        ),
        (json!({}), json!({"k8s.amazonaws.com/vgpu": "10"}), json!({"k8s.amazonaws.com/vgpu": "10"}), (None, None, 1)),
        // MIG resources fold to boards, rounded up; whole boards beside them add.
        (
            json!({"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}),
            json!({"nvidia.com/mig-1g.10gb": "7", "nvidia.com/mig-3g.40gb": "2"}),
            json!({"nvidia.com/mig-1g.10gb": "7", "nvidia.com/mig-3g.40gb": "2"}),
            (Some(2), Some(2), 1),
        ),
        (
            json!({}),
            json!({"nvidia.com/gpu": "6", "nvidia.com/mig-1g.10gb": "8"}),
            json!({"nvidia.com/gpu": "6", "nvidia.com/mig-1g.10gb": "8"}),
            (Some(8), Some(8), 1),
        ),
        (
            json!({"nvidia.com/gpu.product": "NVIDIA-A30"}),
            json!({"nvidia.com/mig-1g.6gb": "5"}),
            json!({"nvidia.com/mig-1g.6gb": "4"}),
            (Some(2), Some(1), 1),
        ),
        // Layouts with holes: the label knows four boards, the slices would make two.
        (
            json!({"nvidia.com/gpu.count": "4", "nvidia.com/mig.strategy": "mixed"}),
            json!({"nvidia.com/gpu": "0", "nvidia.com/mig-3g.40gb": "4"}),
            json!({"nvidia.com/gpu": "0", "nvidia.com/mig-3g.40gb": "4"}),
            (Some(4), Some(4), 1),
        ),
        // The single strategy: the plain resource and the count label count instances.
        (
            json!({"nvidia.com/mig.strategy": "single", "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb", "nvidia.com/gpu.count": "56"}),
            json!({"nvidia.com/gpu": "56"}),
            json!({"nvidia.com/gpu": "49"}),
            (Some(8), Some(7), 1),
        ),
        (
            json!({"nvidia.com/mig.strategy": "single", "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3-MIG-2g.20gb-SHARED", "nvidia.com/gpu.replicas": "2"}),
            json!({"nvidia.com/gpu": "12"}),
            json!({"nvidia.com/gpu": "12"}),
            (Some(2), Some(2), 2),
        ),
        // A single strategy that is invalid or has no MIG board.
        (
            json!({"nvidia.com/mig.strategy": "single", "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.count": "8"}),
            json!({"nvidia.com/gpu": "8"}),
            json!({"nvidia.com/gpu": "8"}),
            (Some(8), Some(8), 1),
        ),
        // Nothing, and other vendors.
        (json!({}), json!({"cpu": "4"}), json!({"cpu": "4"}), (None, None, 1)),
        (json!({}), json!({"amd.com/gpu": 8}), json!({"amd.com/gpu": 8}), (Some(8), Some(8), 1)),
        // The label is there, the plugin has not registered.
        (json!({"nvidia.com/gpu.count": "8"}), json!({}), json!({}), (Some(8), None, 1)),
        (json!({"nvidia.com/gpu.count": "8"}), json!({"nvidia.com/gpu": "7"}), json!({"nvidia.com/gpu": "7"}), (Some(8), Some(7), 1)),
    ];
    for (labels, capacity, allocatable, want) in cases {
        let said = format!("{labels} {capacity} {allocatable}");
        let node = one_node(node_json("n1", labels, capacity, allocatable));
        assert_eq!((node.capacity_devices, node.allocatable_devices, node.replicas), want, "{said}");
    }
}

#[test]
fn t11_a_hidden_device_count_is_told() {
    let parsed = parse_items(&[node_json("n1", json!({}), json!({"k8s.amazonaws.com/vgpu": "10"}), json!({}))]);
    assert!(parsed.notices.iter().any(|n| n.kind == "device_count_hidden"), "{:?}", parsed.notices);
}

#[test]
fn hami_registers_its_devices() {
    let register = "GPU-aaa,10,81559,100,NVIDIA-NVIDIA H100 80GB HBM3,0,true:GPU-bbb,10,81559,100,NVIDIA-NVIDIA H100 80GB HBM3,0,true:";
    let node = node_json("n1", json!({}), json!({"nvidia.com/gpu": "20"}), json!({"nvidia.com/gpu": "20"}));
    let node = one_node(with(node, "/metadata/annotations", json!({"hami.io/node-nvidia-register": register})));
    assert_eq!((node.capacity_devices, node.allocatable_devices, node.replicas), (Some(2), Some(2), 10));
    let register =
        json!([{"id": "GPU-aaa", "count": 10, "devmem": 24576, "devcore": 100, "type": "NVIDIA-A10", "health": true}]).to_string();
    let node = node_json("n1", json!({}), json!({"nvidia.com/gpu": "10"}), json!({"nvidia.com/gpu": "10"}));
    let node = one_node(with(node, "/metadata/annotations", json!({"hami.io/node-nvidia-register": register})));
    assert_eq!((node.capacity_devices, node.replicas), (Some(1), 10));
}

#[test]
fn cordoned_nodes_say_since_when() {
    let gpus = json!({"nvidia.com/gpu": "8"});
    let node = with(node_json("n1", json!({}), gpus.clone(), gpus), "/spec/unschedulable", json!(true));
    assert_eq!((one_node(node.clone()).is_cordoned, one_node(node.clone()).cordoned_from_ms), (true, None));
    let taint = json!([{"key": "nvidia.com/gpu", "effect": "NoSchedule"}, {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule", "timeAdded": "2026-10-06T10:30:00Z"}]);
    assert_eq!(one_node(with(node, "/spec/taints", taint)).cordoned_from_ms, Some(ms("2026-10-06T10:30:00Z")));
}

#[test]
fn t13_a_node_told_twice_is_one_and_the_fuller_record_wins() {
    let gpus = json!({"nvidia.com/gpu": "8"});
    let full = node_json("n1", json!({"node.kubernetes.io/instance-type": "p5.48xlarge"}), gpus.clone(), gpus.clone());
    let empty = node_json("n1", json!({"node.kubernetes.io/instance-type": ""}), gpus.clone(), gpus);
    for items in [[full.clone(), empty.clone()], [empty, full]] {
        let parsed = parse_items(&items);
        assert_eq!(parsed.value.nodes.len(), 1);
        assert_eq!(parsed.value.nodes[0].instance_type.as_deref(), Some("p5.48xlarge"));
        assert!(parsed.notices.iter().any(|n| n.kind == "node_conflict" && n.subject == "n1"), "{:?}", parsed.notices);
    }
}

#[test]
fn a_pod_holds_from_its_start_time() {
    let holder = one_holder(&[pod_json("p1", json!({"cpu": "8", "nvidia.com/gpu": "2"}))]);
    assert_eq!(holder.key, "k8s/prod/train/p1/uid-p1");
    assert_eq!((holder.from_ms, holder.to_ms, holder.outcome), (ms("2026-10-06T09:00:00Z"), None, Outcome::Alive));
    assert_eq!(holder.claims.len(), 1);
    assert_eq!((holder.claims[0].node.as_str(), holder.claims[0].count, holder.claims[0].fraction_ppm), ("n1", 2, None));
    assert_eq!((holder.run.as_str(), holder.workload.as_str()), ("uid-p1", "Pod/p1"));
    assert_eq!((holder.user.as_deref(), holder.addresses.as_slice()), (Some("trainer"), &["10.1.2.3".to_string()][..]));
    assert_eq!(holder.last_record_ms, Some(ms("2026-10-06T09:02:00Z")));
    // Without a startTime, its first container's.
    let mut pod = pod_json("p1", json!({"nvidia.com/gpu": "2"}));
    pod["status"].as_object_mut().unwrap().remove("startTime");
    assert_eq!(one_holder(&[pod.clone()]).from_ms, ms("2026-10-06T09:02:00Z"));
    // Never started, or never placed: no holder.
    pod["status"] = json!({"phase": "Pending"});
    assert_eq!(parse_items(&[pod]).value.holders, vec![]);
    let pod = with(pod_json("p1", json!({"nvidia.com/gpu": "2"})), "/spec/nodeName", Value::Null);
    assert_eq!(parse_items(&[pod]).value.holders, vec![]);
}

#[test]
fn completed_pods_hold_nothing_however_long_they_are_listed() {
    let ended = |phase: &str, reason: Value| {
        let mut pod = pod_json("p1", json!({"nvidia.com/gpu": "1"}));
        pod["status"]["phase"] = json!(phase);
        pod["status"]["reason"] = reason;
        pod["status"]["containerStatuses"] = json!([
            {"state": {"terminated": {"startedAt": "2026-10-06T09:02:00Z", "finishedAt": "2026-10-06T11:00:00Z", "exitCode": 1}}},
            {"state": {"terminated": {"startedAt": "2026-10-06T09:02:00Z", "finishedAt": "2026-10-06T10:00:00Z", "exitCode": 0}}}]);
        pod["metadata"]["managedFields"] = json!([{"manager": "kubelet", "time": "2026-10-06T11:00:01Z"}]);
        one_holder(&[pod])
    };
    let end = Some(ms("2026-10-06T11:00:00Z"));
    assert_eq!((ended("Succeeded", Value::Null).outcome, ended("Succeeded", Value::Null).to_ms), (Outcome::Succeeded, end));
    assert_eq!((ended("Failed", Value::Null).outcome, ended("Failed", Value::Null).to_ms), (Outcome::Failed, end));
    for reason in ["Evicted", "Preempted", "Terminated", "NodeShutdown"] {
        assert_eq!(ended("Failed", json!(reason)).outcome, Outcome::Preempted, "{reason}");
    }
}

#[test]
fn an_evicted_pod_without_containers_ends_with_its_condition() {
    let mut pod = pod_json("p1", json!({"nvidia.com/gpu": "1"}));
    pod["status"] = json!({"phase": "Failed", "reason": "Evicted", "startTime": "2026-10-06T09:00:00Z",
        "conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet", "lastTransitionTime": "2026-10-06T10:15:00Z"}]});
    let holder = one_holder(&[pod.clone()]);
    assert_eq!((holder.outcome, holder.to_ms), (Outcome::Preempted, Some(ms("2026-10-06T10:15:00Z"))));
    // The kubelet writes the epoch, or null, where it does not know.
    pod["status"]["containerStatuses"] =
        json!([{"state": {"terminated": {"finishedAt": null, "startedAt": "1970-01-01T00:00:00Z", "reason": "ContainerStatusUnknown"}}}]);
    assert_eq!(one_holder(&[pod]).to_ms, Some(ms("2026-10-06T10:15:00Z")));
    // Refused at admission: it never had a device.
    let mut pod = pod_json("p1", json!({"nvidia.com/gpu": "1"}));
    pod["status"] = json!({"phase": "Failed", "reason": "UnexpectedAdmissionError", "startTime": "2026-10-06T09:00:00Z"});
    let holder = one_holder(&[pod]);
    assert_eq!((holder.outcome, holder.to_ms), (Outcome::Failed, Some(holder.from_ms)));
}

#[test]
fn a_pod_with_a_deletion_timestamp_is_alive_while_it_is_listed() {
    let pod = with(pod_json("p1", json!({"nvidia.com/gpu": "1"})), "/metadata/deletionTimestamp", json!("2026-10-06T12:00:30Z"));
    let holder = one_holder(&[pod]);
    assert_eq!((holder.outcome, holder.to_ms), (Outcome::Alive, None));
    assert_eq!(holder.last_record_ms, Some(ms("2026-10-06T09:02:00Z")));
}

#[test]
fn restarts_of_containers_do_not_end_a_pod() {
    let mut pod = pod_json("p1", json!({"nvidia.com/gpu": "1"}));
    pod["status"]["containerStatuses"] = json!([{"restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": {"startedAt": "2026-10-06T10:00:00Z", "finishedAt": "2026-10-06T10:05:00Z", "exitCode": 1}}}]);
    assert_eq!(one_holder(&[pod]).to_ms, None);
}

#[test]
fn containers_add_up_and_init_containers_do_not() {
    let claim_count = |init: Value, containers: Value| {
        let mut pod = pod_json("p1", json!({}));
        pod["spec"]["initContainers"] = init;
        pod["spec"]["containers"] = containers;
        one_holder(&[pod]).claims.iter().map(|c| c.count).sum::<u32>()
    };
    let asks = |n: u32| json!({"resources": {"requests": {"nvidia.com/gpu": n.to_string()}, "limits": {"nvidia.com/gpu": n.to_string()}}});
    let sidecar = |n: u32| with(asks(n), "/restartPolicy", json!("Always"));
    assert_eq!(claim_count(json!([]), json!([asks(1), asks(2)])), 3);
    assert_eq!(claim_count(json!([asks(4), asks(2)]), json!([asks(1), asks(2)])), 4);
    assert_eq!(claim_count(json!([sidecar(1)]), json!([asks(2)])), 3);
    assert_eq!(claim_count(json!([sidecar(1), asks(3)]), json!([asks(2)])), 4);
}

#[test]
fn t38_resources_of_other_kinds_and_names_are_claims() {
    let holder = one_holder(&[pod_json("p1", json!({"nvidia.com/mig-1g.10gb.me": "2", "nvidia.com/gpu.shared": "1"}))]);
    let claims: Vec<_> = holder.claims.iter().map(|c| (c.mig_profile.as_deref(), c.count)).collect();
    assert_eq!(claims, [(None, 1), (Some("1g.10gb+me"), 2)]);
    for resource in ["amd.com/gpu", "gpu.intel.com/xe", "habana.ai/gaudi", "google.com/tpu", "aws.amazon.com/neuron"] {
        assert_eq!(one_holder(&[pod_json("p1", json!({resource: "4"}))]).claims[0].count, 4, "{resource}");
    }
    let options = Options { extra_resources: vec!["example.com/accelerator".into()], ..Options::default() };
    let dump = list(&[pod_json("p1", json!({"example.com/accelerator": "4", "example.com/nic": "8"}))]);
    assert_eq!(parse("d", &dump, "prod", &options).value.holders[0].claims[0].count, 4);
    // A pod without accelerators is known (its labels on a device are the exporter's mistake) and claims nothing.
    assert_eq!(one_holder(&[pod_json("p1", json!({"cpu": "4"}))]).claims, vec![]);
}

#[test]
fn t37_hami_names_devices_and_shares() {
    let memory =
        json!({"hami.io/node-nvidia-register": "GPU-aaa,10,40000,100,NVIDIA-A100,0,true:GPU-bbb,10,40000,100,NVIDIA-A100,0,true:"});
    let node = with(node_json("n1", json!({}), json!({"nvidia.com/gpu": "20"}), json!({})), "/metadata/annotations", memory);
    let claims = |text: &str| {
        let pod =
            with(pod_json("p1", json!({"nvidia.com/gpu": "1"})), "/metadata/annotations", json!({"hami.io/vgpu-devices-allocated": text}));
        let holder = one_holder(&[node.clone(), pod]);
        holder.claims.iter().map(|c| (c.device_uuids.join("+"), c.count, c.fraction_ppm)).collect::<Vec<_>>()
    };
    assert_eq!(claims("GPU-aaa,NVIDIA,8000,25:;"), [("GPU-aaa".into(), 1, Some(250_000))]);
    // No core limit: memory over the device's memory.
    assert_eq!(claims("GPU-aaa,NVIDIA,10000,0:;"), [("GPU-aaa".into(), 1, Some(250_000))]);
    assert_eq!(claims("GPU-aaa,NVIDIA,10000,50:GPU-bbb,NVIDIA,10000,50:;"), [("GPU-aaa+GPU-bbb".into(), 2, Some(500_000))]);
    assert_eq!(claims("GPU-aaa,NVIDIA,1,50:;GPU-aaa,NVIDIA,1,25:;"), [("GPU-aaa".into(), 1, Some(750_000))]);
    assert_eq!(claims("GPU-aaa,NVIDIA,1,30:;GPU-bbb,NVIDIA,1,60:;").len(), 2);
    assert_eq!(claims(";"), [(String::new(), 1, None)], "nothing allocated: the request counts");
    let instances = r#"[{"containerIndex":0,"gpuUUID":"GPU-aaa","profile":"1g.10gb","placement":{"start":2,"size":1},"migUUID":"MIG-x","gpuInstanceID":9}]"#;
    let pod =
        with(pod_json("p1", json!({"nvidia.com/gpu": "1"})), "/metadata/annotations", json!({"hami.io/vgpu-mig-allocations": instances}));
    let claim = one_holder(&[pod]).claims[0].clone();
    assert_eq!((claim.mig_profile.as_deref(), claim.device_uuids), (Some("1g.10gb"), vec!["GPU-aaa/9".to_string()]));
}

#[test]
fn fractions_of_kai_and_runai_find_their_device() {
    let mut reserver = pod_json("gpu-reservation-n1-x", json!({"nvidia.com/gpu": "1"}));
    reserver["metadata"]["namespace"] = json!("kai-resource-reservation");
    reserver["metadata"]["labels"] = json!({"runai-gpu-group": "g1"});
    reserver["metadata"]["annotations"] = json!({"run.ai/reserve_for_gpu_index": "GPU-aaa"});
    let sharer = |annotations: Value, labels: Value| {
        let pod = with(pod_json("p1", json!({})), "/metadata/annotations", annotations);
        with(pod, "/metadata/labels", labels)
    };
    let holder = one_holder(&[
        sharer(json!({"gpu-fraction": "0.25", "received-resource-type": "Fraction"}), json!({"runai-gpu-group": "g1"})),
        reserver.clone(),
    ]);
    assert_eq!(
        holder.claims,
        vec![NodeClaim {
            node: "n1".into(),
            count: 1,
            mig_profile: None,
            device_indices: vec![],
            device_uuids: vec!["GPU-aaa".into()],
            fraction_ppm: Some(250_000)
        }]
    );
    let two = one_holder(&[
        sharer(
            json!({"gpu-fraction": "0.5", "gpu-fraction-num-devices": "2"}),
            json!({"runai-gpu-group/g1": "g1", "runai-gpu-group/g2": "g2"}),
        ),
        reserver,
    ]);
    assert_eq!((two.claims[0].count, two.claims[0].fraction_ppm, two.claims[0].device_uuids.len()), (2, Some(500_000), 1));
    let node = node_json("n1", json!({"nvidia.com/gpu.memory": "40960"}), json!({"nvidia.com/gpu": "8"}), json!({}));
    let by_memory = one_holder(&[node, sharer(json!({"gpu-memory": "10240"}), json!({}))]);
    assert_eq!(by_memory.claims[0].fraction_ppm, Some(250_000));
    let wrong = parse_items(&[sharer(json!({"gpu-fraction": "half"}), json!({}))]);
    assert_eq!((wrong.rejects.len(), wrong.rejects[0].field.as_str()), (1, "gpu-fraction"));
}

#[test]
fn declared_percentages_are_shares_and_replicas_are_not() {
    let mps = |text: &str| {
        let env = json!([{"name": "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "value": text}]);
        with(
            pod_json("p1", json!({"nvidia.com/gpu": "1"})),
            "/spec/containers",
            json!([{"resources": {"limits": {"nvidia.com/gpu": "1"}}, "env": env}]),
        )
    };
    let parsed = parse_items(&[mps("33.5")]);
    assert_eq!(parsed.value.holders[0].claims[0].fraction_ppm, Some(335_000));
    assert!(parsed.notices.iter().any(|n| n.kind == "declared_mps"));
    assert_eq!(parse_items(&[mps("lots")]).rejects[0].field, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
    let holder = one_holder(&[pod_json("p1", json!({"nvidia.com/gpu": "1", "nvidia.com/gpucores": "40", "nvidia.com/gpumem": "8000"}))]);
    assert_eq!(holder.claims[0].fraction_ppm, Some(400_000));
    let holder = one_holder(&[pod_json("p1", json!({"nvidia.com/gpu": "1", "nvidia.com/gpumem-percentage": "50"}))]);
    assert_eq!(holder.claims[0].fraction_ppm, Some(500_000));
    assert_eq!(one_holder(&[pod_json("p1", json!({"nvidia.com/gpu.shared": "1"}))]).claims[0].fraction_ppm, None);
}

#[test]
fn resource_claims_name_devices() {
    let slice = json!({"kind": "ResourceSlice", "metadata": {"name": "s"}, "spec": {"driver": "gpu.nvidia.com", "nodeName": "n1", "pool": {"name": "n1"},
        "devices": [{"name": "gpu-0", "attributes": {"uuid": {"string": "GPU-aaa"}}}, {"name": "gpu-1", "basic": {"attributes": {"uuid": {"string": "GPU-bbb"}}}}]}});
    let claim = json!({"kind": "ResourceClaim", "metadata": {"name": "c", "namespace": "train", "uid": "c"}, "status": {
        "allocation": {"devices": {"results": [{"driver": "gpu.nvidia.com", "pool": "n1", "device": "gpu-1", "request": "gpu"}]}},
        "reservedFor": [{"resource": "pods", "name": "p1", "uid": "uid-p1"}]}});
    let holder = one_holder(&[slice, claim, pod_json("p1", json!({}))]);
    assert_eq!((holder.claims[0].count, holder.claims[0].device_uuids.as_slice()), (1, &["GPU-bbb".to_string()][..]));
}

fn owned(pod: Value, kind: &str, name: &str, uid: &str) -> Value {
    with(pod, "/metadata/ownerReferences", json!([{"apiVersion": "x/v1", "kind": kind, "name": name, "uid": uid, "controller": true}]))
}

fn owner_json(kind: &str, name: &str, uid: &str) -> Value {
    json!({"kind": kind, "metadata": {"name": name, "namespace": "train", "uid": uid, "creationTimestamp": "2026-10-06T08:00:00Z"}})
}

#[test]
fn a_run_is_the_topmost_owner() {
    let pod = || pod_json("p1", json!({"nvidia.com/gpu": "1"}));
    let run = |items: &[Value]| {
        let holder = one_holder(items);
        (holder.run, holder.workload)
    };
    let want = |run: &str, workload: &str| (run.to_string(), workload.to_string());
    // Objects of the dump resolve the chain, whatever the kinds.
    let job = owned(owner_json("Job", "t-0", "u-job"), "JobSet", "t", "u-set");
    assert_eq!(run(&[owned(pod(), "Job", "t-0", "u-job"), job.clone()]), want("u-set", "JobSet/t"));
    let job_set = owned(owner_json("JobSet", "t", "u-set"), "TrainJob", "t", "u-train");
    assert_eq!(run(&[job_set, owned(pod(), "Job", "t-0", "u-job"), job]), want("u-train", "TrainJob/t"));
    // A schedule starts runs, and is none.
    let job = owned(owner_json("Job", "nightly-1", "u-job"), "CronJob", "nightly", "u-cron");
    assert_eq!(run(&[owned(pod(), "Job", "nightly-1", "u-job"), job]), want("u-job", "Job/nightly-1"));
    // Without the objects, labels name the owner.
    let labelled = |pod: Value, labels: Value| with(pod, "/metadata/labels", labels);
    let labels = json!({"jobset.sigs.k8s.io/jobset-name": "t", "jobset.sigs.k8s.io/jobset-uid": "u-set"});
    assert_eq!(run(&[labelled(owned(pod(), "Job", "t-0", "u-job"), labels)]), want("u-set", "JobSet/t"));
    let labels = json!({"jobset.sigs.k8s.io/jobset-name": "t"});
    assert_eq!(run(&[labelled(owned(pod(), "Job", "t-0", "u-job"), labels)]), want("k8s/prod/train/JobSet/t", "JobSet/t"));
    let labels = json!({"leaderworkerset.sigs.k8s.io/name": "vllm"});
    assert_eq!(run(&[labelled(owned(pod(), "StatefulSet", "vllm-0", "u-sts"), labels)]).1, "LeaderWorkerSet/vllm");
    let labels = json!({"ray.io/originated-from-crd": "RayJob", "ray.io/originated-from-cr-name": "tune"});
    assert_eq!(run(&[labelled(owned(pod(), "RayCluster", "tune-raycluster-x", "u-ray"), labels)]).1, "RayJob/tune");
    assert_eq!(run(&[owned(pod(), "PyTorchJob", "llama", "u-pt")]), want("u-pt", "PyTorchJob/llama"));
    let labels = json!({"pod-template-hash": "5d9f"});
    assert_eq!(run(&[labelled(owned(pod(), "ReplicaSet", "web-5d9f", "u-rs"), labels)]), want("u-rs", "Deployment/web"));
    let set = owned(owner_json("ReplicaSet", "web-5d9f", "u-rs"), "Deployment", "web", "u-dep");
    assert_eq!(run(&[owned(pod(), "ReplicaSet", "web-5d9f", "u-rs"), set]), want("u-dep", "Deployment/web"));
    // Static pods belong to their node, which is no run; a loop ends.
    assert_eq!(run(&[owned(pod(), "Node", "n1", "u-n1")]), want("uid-p1", "Pod/p1"));
    let a = owned(owner_json("A", "a", "u-a"), "B", "b", "u-b");
    let b = owned(owner_json("B", "b", "u-b"), "A", "a", "u-a");
    assert!(run(&[owned(pod(), "A", "a", "u-a"), a, b]).0.starts_with("u-"));
    // A configured label decides.
    let options = Options { run_label: Some("wandb/run".into()), ..Options::default() };
    let dump = list(&[labelled(owned(pod(), "Job", "t", "u-job"), json!({"wandb/run": "r7"}))]);
    assert_eq!(parse("d", &dump, "prod", &options).value.holders[0].run, "r7");
}

#[test]
fn declarations_are_read_from_annotations() {
    let annotated = |annotations: Value| with(pod_json("p1", json!({"nvidia.com/gpu": "1"})), "/metadata/annotations", annotations);
    let holder = one_holder(&[annotated(json!({
        "gpuledger.io/bandwidth": "expected", "gpuledger.io/standby": "true",
        "gpuledger.io/checkpoints": "2026-10-06T10:00:00Z, 2026-10-06T09:30:00Z,2026-10-06T10:00:00Z",
        "gpuledger.io/last-checkpoint": "2026-10-06T10:30:00Z", "gpuledger.io/resumed-from": "2026-10-06T08:00:00Z",
        "gpuledger.io/recompute-until": "2026-10-06T09:20:00Z", "kubectl.kubernetes.io/last-applied-configuration": "{}", "big": "x".repeat(5000)}))]);
    assert!(holder.bandwidth_expected && holder.standby_declared);
    let times = ["2026-10-06T09:30:00Z", "2026-10-06T10:00:00Z", "2026-10-06T10:30:00Z"].map(ms);
    assert_eq!(holder.checkpoints_ms, times);
    assert_eq!(holder.resumed_from_ms, Some(ms("2026-10-06T08:00:00Z")));
    assert_eq!(holder.recompute_until_ms, Some(ms("2026-10-06T09:20:00Z")));
    assert!(
        !holder.annotations.contains_key("big") && !holder.annotations.contains_key("kubectl.kubernetes.io/last-applied-configuration")
    );
    for annotations in [
        json!({"gpuledger.io/slo": "p95 < 2 s"}),
        json!({"autoscaling.knative.dev/min-scale": "1"}),
        json!({"autoscaling.knative.dev/minScale": "2"}),
    ] {
        assert!(one_holder(&[annotated(annotations)]).standby_declared);
    }
    for annotations in [json!({"gpuledger.io/standby": "false"}), json!({"autoscaling.knative.dev/min-scale": "0"}), json!({})] {
        assert!(!one_holder(&[annotated(annotations)]).standby_declared);
    }
    // A minimum of replicas on the owner.
    let service = with(owner_json("InferenceService", "llm", "u-is"), "/spec", json!({"predictor": {"minReplicas": 1}}));
    let deployment = owned(owner_json("Deployment", "llm", "u-d"), "InferenceService", "llm", "u-is");
    assert!(one_holder(&[owned(annotated(json!({})), "Deployment", "llm", "u-d"), deployment, service]).standby_declared);
    let wrong = parse_items(&[annotated(json!({"gpuledger.io/checkpoints": "2026-10-06T10:00:00Z,noon"}))]);
    assert_eq!((wrong.value.holders[0].checkpoints_ms.len(), wrong.rejects.len()), (1, 1));
}

#[test]
fn labels_of_the_namespace_fill_in() {
    let namespace = json!({"kind": "Namespace", "metadata": {"name": "train", "labels": {"team": "ranking", "tier": "prod"}}});
    let holder =
        one_holder(&[with(pod_json("p1", json!({"nvidia.com/gpu": "1"})), "/metadata/labels", json!({"tier": "test"})), namespace]);
    assert_eq!((holder.labels["team"].as_str(), holder.labels["tier"].as_str()), ("ranking", "test"));
}

#[test]
fn every_shape_of_a_dump_is_read() {
    let pod = |name: &str| pod_json(name, json!({"nvidia.com/gpu": "1"}));
    let names = |bytes: &[u8]| {
        let parsed = parse("d", bytes, "prod", &Options::default());
        assert_eq!(parsed.rejects, vec![]);
        (parsed.value.holders.iter().map(|h| h.name.clone()).collect::<Vec<_>>().join(" "), parsed.rows)
    };
    let both = ("a b".to_string(), 2);
    let pretty = |value: &Value| serde_json::to_string_pretty(value).unwrap();
    assert_eq!(names(&list(&[pod("a"), pod("b")])), both);
    assert_eq!(names(format!("\u{feff}{}\r\n{}\r\n", pod("a"), pod("b")).as_bytes()), both);
    assert_eq!(names(format!("{}{}", pretty(&pod("a")), pretty(&pod("b"))).as_bytes()), both);
    assert_eq!(names(json!([pod("a"), pod("b")]).to_string().as_bytes()), both);
    assert_eq!(names(&[list(&[pod("a")]), list(&[pod("b")])].concat()), both);
    // The API's own lists: kind first, none on the items.
    let mut bare = [pod("a"), pod("b")];
    bare.iter_mut().for_each(|p| drop(p.as_object_mut().unwrap().remove("kind")));
    assert_eq!(names(json!({"kind": "PodList", "apiVersion": "v1", "items": bare}).to_string().as_bytes()), both);
    assert_eq!(names(json!({"items": bare}).to_string().as_bytes()), both);
    // Watch events.
    let event = |kind: &str, object: Value| json!({"type": kind, "object": object}).to_string();
    assert_eq!(names(format!("{}\n{}\n", event("ADDED", pod("a")), event("MODIFIED", pod("b"))).as_bytes()), both);
    assert_eq!(names(b""), (String::new(), 0));
    assert_eq!(names(br#"{"kind": "List", "items": null}"#), (String::new(), 0));
}

#[test]
fn what_is_unreadable_is_told_and_the_rest_kept() {
    let pod = |name: &str| pod_json(name, json!({"nvidia.com/gpu": "1"}));
    let text = format!("{}\n{{\"kind\": \"Pod\", broken\n{}\n", pod("a"), pod("b"));
    let parsed = parse("d.json", text.as_bytes(), "prod", &Options::default());
    assert_eq!(parsed.value.holders.len(), 2);
    assert_eq!((parsed.rejects.len(), parsed.rejects[0].line, parsed.rejects[0].file.as_str()), (1, 2, "d.json"));
    // A dump that was cut: what stands before the cut counts.
    let whole = list(&[pod("a"), pod("b")]);
    let parsed = parse("d", &whole[..whole.len() - 300], "prod", &Options::default());
    assert_eq!((parsed.value.holders.len(), parsed.rejects.len()), (1, 1));
    // Too deep.
    let deep = format!("{}{}\n{}", "[".repeat(100_000), "]".repeat(100_000), pod("a"));
    let parsed = parse("d", deep.as_bytes(), "prod", &Options::default());
    assert_eq!((parsed.value.holders.len(), parsed.rejects.len()), (1, 1));
    // Objects that are none, quantities that are none.
    let nameless = json!({"kind": "Pod", "metadata": {"name": "x"}});
    let mut odd = pod("c");
    odd["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = json!("0.5");
    let parsed = parse_items(&[nameless, odd, json!({"a": 1}), json!(7)]);
    let fields: Vec<_> = parsed.rejects.iter().map(|r| r.field.as_str()).collect();
    assert_eq!(fields, ["kind", "metadata", "nvidia.com/gpu"]);
    assert_eq!(parsed.rows, 4);
    let utf16: Vec<u8> = [0xff, 0xfe, b'{', 0].to_vec();
    assert!(parse("d", &utf16, "prod", &Options::default()).rejects[0].reason.contains("UTF-16"));
}

#[test]
fn ing_1_splitting_and_repeating_a_dump_changes_nothing() {
    let annotations = json!({"gpu-memory": "10240"});
    let items = [
        node_json("n1", json!({"nvidia.com/gpu.memory": "40960"}), json!({"nvidia.com/gpu": "8"}), json!({"nvidia.com/gpu": "8"})),
        owned(with(pod_json("p1", json!({})), "/metadata/annotations", annotations), "Job", "j", "u-j"),
        owned(owner_json("Job", "j", "u-j"), "JobSet", "s", "u-s"),
        json!({"kind": "Namespace", "metadata": {"name": "train", "labels": {"team": "ranking"}}}),
    ];
    let whole = parse_items(&items).value;
    let mut parts = Objects::default();
    for item in items.iter().rev().chain(&items) {
        parts.extend(read("part.json", &list(std::slice::from_ref(item))).value);
    }
    assert_eq!(resolve("parts", &parts, "prod", &Options::default()).value, whole);
    assert_eq!(whole.holders[0].claims[0].fraction_ppm, Some(250_000));
    assert_eq!(whole.holders[0].run, "u-s");
}
