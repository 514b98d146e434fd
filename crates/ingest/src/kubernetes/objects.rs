//! What is kept of Kubernetes objects before they are joined: small, and independent of the file they came in.

use std::collections::BTreeMap;

use gpuledger_model::time::parse_time;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::refusals::{Refusals, excerpt};

/// Labels or annotations kept per object; more are cut, in the order of their keys.
const MAX_LABELS: usize = 256;
/// Longest label or annotation kept (manifests and certificates are dropped).
const MAX_LABEL_BYTES: usize = 4096;
/// Nested status fields looked at for times.
const MAX_STATUS_DEPTH: usize = 16;

/// Objects of one or several dumps of one cluster, not joined yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Objects {
    pub(super) nodes: Vec<NodeObject>,
    pub(super) pods: Vec<PodObject>,
    pub(super) owners: Vec<OwnerObject>,
    /// Labels of namespaces.
    pub(super) namespaces: BTreeMap<String, BTreeMap<String, String>>,
    /// Devices that resource slices name: (driver, pool, device) to UUID.
    pub(super) slice_devices: Vec<(DeviceName, String)>,
    /// Devices that resource claims give to pods, by pod UID.
    pub(super) claimed_devices: Vec<(String, DeviceName)>,
}

impl Objects {
    /// Adds another dump of the same cluster.
    pub fn extend(&mut self, other: Objects) {
        self.nodes.extend(other.nodes);
        self.pods.extend(other.pods);
        self.owners.extend(other.owners);
        // The greater value wins: any rule that does not depend on the order of the files will do.
        for (name, labels) in other.namespaces {
            let known = self.namespaces.entry(name).or_default();
            if labels > *known {
                *known = labels;
            }
        }
        self.slice_devices.extend(other.slice_devices);
        self.claimed_devices.extend(other.claimed_devices);
    }
}

/// How dynamic resource allocation names a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct DeviceName {
    pub driver: String,
    pub pool: String,
    pub device: String,
}

/// A node.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct NodeObject {
    pub last_record_ms: Option<i64>,
    pub name: String,
    pub uid: Option<String>,
    pub provider_id: Option<String>,
    pub created_ms: Option<i64>,
    pub is_cordoned: bool,
    pub cordoned_from_ms: Option<i64>,
    pub labels: BTreeMap<String, String>,
    pub capacity: BTreeMap<String, u64>,
    pub allocatable: BTreeMap<String, u64>,
    /// HAMi's devices: UUID to (pods that may share it, memory MiB).
    pub hami_devices: BTreeMap<String, (u64, u64)>,
}

/// A pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct PodObject {
    pub last_record_ms: Option<i64>,
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub service_account: Option<String>,
    pub node: Option<String>,
    pub phase: String,
    pub reason: Option<String>,
    pub has_disruption: bool,
    pub start_ms: Option<i64>,
    pub first_container_start_ms: Option<i64>,
    pub last_finish_ms: Option<i64>,
    /// When a pod that lists no finish had stopped, by its conditions.
    pub stopped_by_condition_ms: Option<i64>,
    pub has_container_status: bool,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub addresses: Vec<String>,
    pub owner: Option<OwnerReference>,
    /// Extended resources of all its containers.
    pub resources: BTreeMap<String, u64>,
    /// `CUDA_MPS_ACTIVE_THREAD_PERCENTAGE` of a container, as written.
    pub thread_percentage: Option<String>,
}

/// A reference to an owner.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct OwnerReference {
    pub kind: String,
    pub name: String,
    pub uid: String,
}

/// Any other object that may own pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct OwnerObject {
    pub kind: String,
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub owner: Option<OwnerReference>,
    /// It says that idle is by intention.
    pub declares_standby: bool,
    /// It says that bandwidth is what it is for.
    pub declares_bandwidth: bool,
}

/// Files one object under its kind.
pub(super) fn take(kind: &str, value: &Value, line: u64, objects: &mut Objects, refusals: &mut Refusals) {
    match kind {
        "Pod" => match read_pod(value, line, refusals) {
            Some(pod) => objects.pods.push(pod),
            None => refusals.reject(line, "metadata", "a pod without name, namespace or uid; send what the API server gave"),
        },
        "Node" => match read_node(value, line, refusals) {
            Some(node) => objects.nodes.push(node),
            None => refusals.reject(line, "metadata.name", "a node without a name; send what the API server gave"),
        },
        "Namespace" => {
            if let Some(name) = text_at(value, "/metadata/name") {
                let labels = text_map(value.pointer("/metadata/labels"));
                let namespaces = BTreeMap::from([(name.to_string(), labels)]);
                objects.extend(Objects { namespaces, ..Objects::default() });
            }
        }
        "ResourceClaim" => read_claim(value, objects),
        "ResourceSlice" => read_slice(value, objects),
        "" => refusals.reject(line, "kind", "no Kubernetes object: it has no kind; use kubectl get -o json"),
        // Kinds that own nothing, common in full dumps.
        "Event" | "Secret" | "ConfigMap" | "Endpoints" | "EndpointSlice" | "Lease" | "ServiceAccount" | "Service" => {
            refusals.notice("kubernetes_other_kinds", "objects that hold no accelerators and own no pods were passed over");
        }
        kind => {
            if let Some(owner) = read_owner(kind, value) {
                objects.owners.push(owner);
            }
        }
    }
}

fn read_node(value: &Value, line: u64, refusals: &mut Refusals) -> Option<NodeObject> {
    let name = text_at(value, "/metadata/name")?.to_string();
    let mut node = NodeObject {
        last_record_ms: last_record_ms(value),
        name,
        uid: owned_text_at(value, "/metadata/uid"),
        provider_id: owned_text_at(value, "/spec/providerID"),
        created_ms: time_at(value, "/metadata/creationTimestamp"),
        is_cordoned: value.pointer("/spec/unschedulable").and_then(Value::as_bool).unwrap_or(false),
        labels: text_map(value.pointer("/metadata/labels")),
        capacity: quantities(value.pointer("/status/capacity"), line, refusals),
        allocatable: quantities(value.pointer("/status/allocatable"), line, refusals),
        ..NodeObject::default()
    };
    for taint in list_at(value, "/spec/taints") {
        if text_at(taint, "/key") == Some("node.kubernetes.io/unschedulable") {
            node.is_cordoned = true;
            node.cordoned_from_ms = time_at(taint, "/timeAdded").or(node.cordoned_from_ms);
        }
    }
    // Google's numeric instance id stands in an annotation; bills may name the machine by it.
    const NUMERIC_ID: &str = "container.googleapis.com/instance_id";
    let annotations = text_map(value.pointer("/metadata/annotations"));
    if let Some(id) = annotations.get(NUMERIC_ID) {
        node.labels.insert(NUMERIC_ID.to_string(), id.clone());
    }
    // Read from the object: a register of 16 devices is longer than the annotations kept.
    if let Some(register) = text_member(value.pointer("/metadata/annotations"), "hami.io/node-nvidia-register") {
        node.hami_devices = hami_register(register);
    }
    Some(node)
}

/// `UUID,split,memory,cores,type,numa,health:` repeated, or a JSON list of the same.
fn hami_register(text: &str) -> BTreeMap<String, (u64, u64)> {
    let mut devices = BTreeMap::new();
    if let Ok(Value::Array(items)) = serde_json::from_str::<Value>(text) {
        for item in &items {
            let number = |name: &str| item.get(name).and_then(Value::as_u64).unwrap_or(0);
            if let Some(uuid) = item.get("id").and_then(Value::as_str) {
                devices.insert(uuid.to_string(), (number("count"), number("devmem")));
            }
        }
        return devices;
    }
    for device in text.split(':') {
        let mut fields = device.split(',');
        let uuid = fields.next().unwrap_or_default().trim();
        let mut number = || fields.next().and_then(|f| f.trim().parse().ok()).unwrap_or(0);
        let (split, memory_mib) = (number(), number());
        if uuid.starts_with("GPU-") {
            devices.insert(uuid.to_string(), (split, memory_mib));
        }
    }
    devices
}

fn read_pod(value: &Value, line: u64, refusals: &mut Refusals) -> Option<PodObject> {
    let mut pod = PodObject {
        last_record_ms: last_record_ms(value),
        namespace: owned_text_at(value, "/metadata/namespace")?,
        name: owned_text_at(value, "/metadata/name")?,
        uid: owned_text_at(value, "/metadata/uid")?,
        service_account: owned_text_at(value, "/spec/serviceAccountName"),
        node: owned_text_at(value, "/spec/nodeName"),
        phase: owned_text_at(value, "/status/phase").unwrap_or_default(),
        reason: owned_text_at(value, "/status/reason"),
        start_ms: time_at(value, "/status/startTime"),
        labels: text_map(value.pointer("/metadata/labels")),
        annotations: text_map(value.pointer("/metadata/annotations")),
        owner: owner_reference(value),
        resources: pod_resources(value, line, refusals),
        ..PodObject::default()
    };
    if let Some(text) = text_at(value, "/status/startTime").filter(|_| pod.start_ms.is_none()) {
        refusals.reject(line, "status.startTime", format!("{} is no RFC 3339 time; the first container's start serves", excerpt(text)));
    }
    for list in ["/status/initContainerStatuses", "/status/containerStatuses", "/status/ephemeralContainerStatuses"] {
        for status in list_at(value, list) {
            pod.has_container_status = true;
            for state in ["/state/running", "/state/terminated", "/lastState/terminated"] {
                let Some(state) = status.pointer(state) else { continue };
                pod.first_container_start_ms = least(pod.first_container_start_ms, time_at(state, "/startedAt"));
                pod.last_finish_ms = pod.last_finish_ms.max(time_at(state, "/finishedAt"));
            }
        }
    }
    let mut not_ready_ms = None;
    let mut disrupted_ms = None;
    for condition in list_at(value, "/status/conditions") {
        let (kind, is_true) = (text_at(condition, "/type"), text_at(condition, "/status") == Some("True"));
        let since_ms = time_at(condition, "/lastTransitionTime");
        match kind {
            Some("DisruptionTarget") if is_true => {
                pod.has_disruption = true;
                disrupted_ms = disrupted_ms.max(since_ms);
            }
            Some("Ready" | "ContainersReady") if !is_true => not_ready_ms = not_ready_ms.max(since_ms),
            _ => {}
        }
    }
    pod.stopped_by_condition_ms = not_ready_ms.max(disrupted_ms);
    let single = text_at(value, "/status/podIP").into_iter();
    let several = list_at(value, "/status/podIPs").iter().filter_map(|ip| text_at(ip, "/ip"));
    pod.addresses = single.chain(several).map(str::to_string).collect();
    pod.addresses.sort_unstable();
    pod.addresses.dedup();
    for container in list_at(value, "/spec/containers") {
        for variable in list_at(container, "/env") {
            if text_at(variable, "/name") == Some("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE") {
                pod.thread_percentage = pod.thread_percentage.max(owned_text_at(variable, "/value"));
            }
        }
    }
    Some(pod)
}

/// Containers add up; an init container needs its own only while no later one runs, so the most counts;
/// sidecars (init containers that restart always) stay and add to all that start after them.
fn pod_resources(value: &Value, line: u64, refusals: &mut Refusals) -> BTreeMap<String, u64> {
    let mut container_resources = |container: &Value| {
        // Requests and limits of extended resources are equal when both stand; either may be absent.
        let mut of_container = quantities(container.pointer("/resources/requests"), line, refusals);
        for (name, count) in quantities(container.pointer("/resources/limits"), line, refusals) {
            let known = of_container.entry(name).or_default();
            *known = count.max(*known);
        }
        of_container
    };
    let mut standing: BTreeMap<String, u64> = BTreeMap::new();
    let mut peak: BTreeMap<String, u64> = BTreeMap::new();
    for container in list_at(value, "/spec/initContainers") {
        let is_sidecar = text_at(container, "/restartPolicy") == Some("Always");
        for (name, count) in container_resources(container) {
            let standing_count = standing.get(&name).copied().unwrap_or(0).saturating_add(count);
            let known = peak.entry(name.clone()).or_default();
            *known = standing_count.max(*known);
            if is_sidecar {
                standing.insert(name, standing_count);
            }
        }
    }
    for container in list_at(value, "/spec/containers") {
        for (name, count) in container_resources(container) {
            let known = standing.entry(name).or_default();
            *known = known.saturating_add(count);
        }
    }
    for (name, count) in peak {
        let known = standing.entry(name).or_default();
        *known = count.max(*known);
    }
    standing.retain(|_, count| *count > 0);
    standing
}

fn read_owner(kind: &str, value: &Value) -> Option<OwnerObject> {
    let annotations = text_map(value.pointer("/metadata/annotations"));
    // KServe: replicas that the author asks to keep.
    let minimum = value.pointer("/spec/predictor/minReplicas").and_then(Value::as_u64);
    Some(OwnerObject {
        kind: kind.to_string(),
        namespace: owned_text_at(value, "/metadata/namespace").unwrap_or_default(),
        name: owned_text_at(value, "/metadata/name")?,
        uid: owned_text_at(value, "/metadata/uid")?,
        owner: owner_reference(value),
        declares_standby: super::declares_standby(&annotations) || minimum.is_some_and(|n| n >= 1),
        declares_bandwidth: super::declares_bandwidth(&annotations),
    })
}

fn read_claim(value: &Value, objects: &mut Objects) {
    for consumer in list_at(value, "/status/reservedFor") {
        let Some(uid) = owned_text_at(consumer, "/uid") else { continue };
        for result in list_at(value, "/status/allocation/devices/results") {
            // Access for administration looks at a device that others hold.
            if result.get("adminAccess").and_then(Value::as_bool) == Some(true) {
                continue;
            }
            let text = |path| owned_text_at(result, path).unwrap_or_default();
            let name = DeviceName { driver: text("/driver"), pool: text("/pool"), device: text("/device") };
            objects.claimed_devices.push((uid.clone(), name));
        }
    }
}

fn read_slice(value: &Value, objects: &mut Objects) {
    let driver = owned_text_at(value, "/spec/driver").unwrap_or_default();
    let pool = owned_text_at(value, "/spec/pool/name").unwrap_or_default();
    for device in list_at(value, "/spec/devices") {
        // Until v1beta1 the attributes stood under `basic`.
        let uuid = ["/attributes/uuid/string", "/basic/attributes/uuid/string"].iter().find_map(|path| text_at(device, path));
        if let (Some(name), Some(uuid)) = (owned_text_at(device, "/name"), uuid) {
            let name = DeviceName { driver: driver.clone(), pool: pool.clone(), device: name };
            objects.slice_devices.push((name, uuid.to_string()));
        }
    }
}

/// The latest time written in the object. Plans (`deletionTimestamp`) and annotations are no record of life.
fn last_record_ms(value: &Value) -> Option<i64> {
    let mut latest = time_at(value, "/metadata/creationTimestamp");
    for entry in list_at(value, "/metadata/managedFields") {
        latest = latest.max(time_at(entry, "/time"));
    }
    for taint in list_at(value, "/spec/taints") {
        latest = latest.max(time_at(taint, "/timeAdded"));
    }
    if let Some(status) = value.get("status") {
        latest = latest.max(latest_time_in(status, 0));
    }
    latest
}

fn latest_time_in(value: &Value, depth: usize) -> Option<i64> {
    if depth > MAX_STATUS_DEPTH {
        return None;
    }
    match value {
        Value::String(text) if (20..=40).contains(&text.len()) && text.starts_with(|c: char| c.is_ascii_digit()) => parse_object_time(text),
        Value::Array(items) => items.iter().filter_map(|item| latest_time_in(item, depth + 1)).max(),
        Value::Object(fields) => fields.values().filter_map(|field| latest_time_in(field, depth + 1)).max(),
        _ => None,
    }
}

/// The controlling owner, else the first.
fn owner_reference(value: &Value) -> Option<OwnerReference> {
    let references = list_at(value, "/metadata/ownerReferences");
    let is_controller = |r: &&Value| r.get("controller").and_then(Value::as_bool) == Some(true);
    let reference = references.iter().find(is_controller).or_else(|| references.first())?;
    Some(OwnerReference {
        kind: owned_text_at(reference, "/kind")?,
        name: owned_text_at(reference, "/name")?,
        uid: owned_text_at(reference, "/uid")?,
    })
}

/// Whole numbers of extended resources (those with a domain, and not Kubernetes' own).
fn quantities(value: Option<&Value>, line: u64, refusals: &mut Refusals) -> BTreeMap<String, u64> {
    let mut out = BTreeMap::new();
    let Some(fields) = value.and_then(Value::as_object) else { return out };
    for (name, quantity) in fields.iter().filter(|(name, _)| name.contains('/') && !name.contains("kubernetes.io/")) {
        let count = match quantity {
            Value::Number(number) => number.as_u64(),
            Value::String(text) => parse_quantity(text),
            _ => None,
        };
        match count {
            Some(count) => {
                out.insert(name.clone(), count);
            }
            None => refusals.reject(line, name, "no whole quantity; extended resources are counted in whole numbers"),
        }
    }
    out
}

/// `8`, `40k`, `80Gi`, `2000m`: quantities that are whole numbers.
fn parse_quantity(text: &str) -> Option<u64> {
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text.get(..split)?.parse().ok()?;
    let factor = match text.get(split..)? {
        "" => 1,
        "m" => return number.is_multiple_of(1000).then_some(number / 1000),
        "k" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        _ => return None,
    };
    number.checked_mul(factor)
}

fn text_map(value: Option<&Value>) -> BTreeMap<String, String> {
    let Some(fields) = value.and_then(Value::as_object) else { return BTreeMap::new() };
    let kept = fields.iter().filter_map(|(key, value)| {
        let value = value.as_str()?;
        let is_kept =
            value.len() <= MAX_LABEL_BYTES && key.len() <= MAX_LABEL_BYTES && key != "kubectl.kubernetes.io/last-applied-configuration";
        is_kept.then_some((key, value))
    });
    let sorted: BTreeMap<&String, &str> = kept.collect();
    sorted.into_iter().take(MAX_LABELS).map(|(key, value)| (key.clone(), value.to_string())).collect()
}

fn text_at<'a>(value: &'a Value, path: &str) -> Option<&'a str> {
    value.pointer(path).and_then(Value::as_str).filter(|text| !text.is_empty())
}

fn text_member<'a>(value: Option<&'a Value>, key: &str) -> Option<&'a str> {
    value.and_then(|v| v.get(key)).and_then(Value::as_str)
}

fn owned_text_at(value: &Value, path: &str) -> Option<String> {
    text_at(value, path).map(str::to_string)
}

fn list_at<'a>(value: &'a Value, path: &str) -> &'a [Value] {
    value.pointer(path).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn time_at(value: &Value, path: &str) -> Option<i64> {
    text_at(value, path).and_then(parse_object_time)
}

/// The kubelet writes the epoch for times it does not know.
fn parse_object_time(text: &str) -> Option<i64> {
    parse_time(text, &TimeZone::UTC).filter(|&time_ms| time_ms > 0)
}

fn least(a: Option<i64>, b: Option<i64>) -> Option<i64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
