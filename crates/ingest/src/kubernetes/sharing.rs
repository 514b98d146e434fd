//! What a pod claims of its node: counted resources, named devices, declared shares.
//!
//! The strongest record speaks alone: HAMi's allocations (they name the devices), else the fractions of KAI and
//! Run:ai (such pods request no resource), else resources and resource claims.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use gpuledger_model::mig;
use gpuledger_model::tables::placement::NodeClaim;
use serde_json::Value;

use super::Options;
use super::objects::{DeviceName, NodeObject, Objects, PodObject};
use super::resources::{Resource, classify, label_number, narrow};
use crate::declared::{WHOLE_PPM, parse_ppm, ratio_ppm};
use crate::refusals::{Refusals, excerpt};

/// Label by which KAI and Run:ai put sharers and the pod that reserves their device into one group.
const GPU_GROUP: &str = "runai-gpu-group";
/// Annotation in which a reserving pod names its device: a UUID, an index in old versions.
const RESERVED_DEVICE: &str = "run.ai/reserve_for_gpu_index";
/// Most devices that one pod may declare; no node has more.
const MAX_DEVICES: u64 = 1024;

/// What claims are read from, beside the pod.
pub(super) struct Context<'a> {
    nodes: BTreeMap<&'a str, &'a NodeObject>,
    /// Devices of sharing groups: node and group to the device's name.
    reserved: BTreeMap<(&'a str, &'a str), &'a str>,
    /// Devices that resource claims give, by pod UID.
    claimed: BTreeMap<&'a str, Vec<&'a DeviceName>>,
    uuids: BTreeMap<&'a DeviceName, &'a str>,
}

impl<'a> Context<'a> {
    /// Indexes the objects of a cluster; the node of a name is its newest record.
    pub(super) fn new(objects: &'a Objects) -> Context<'a> {
        let mut nodes: BTreeMap<&str, &NodeObject> = BTreeMap::new();
        for node in &objects.nodes {
            let known = nodes.entry(&node.name).or_insert(node);
            if node > *known {
                *known = node;
            }
        }
        let mut reserved = BTreeMap::new();
        for pod in &objects.pods {
            let device = pod.annotations.get(RESERVED_DEVICE).map(String::as_str).filter(|d| !d.is_empty() && *d != "-1");
            if let (Some(device), Some(group), Some(node)) = (device, pod.labels.get(GPU_GROUP), pod.node.as_deref()) {
                let known: &mut &str = reserved.entry((node, group.as_str())).or_insert(device);
                *known = device.max(*known);
            }
        }
        let mut claimed: BTreeMap<&str, Vec<&DeviceName>> = BTreeMap::new();
        for (uid, name) in &objects.claimed_devices {
            claimed.entry(uid).or_default().push(name);
        }
        let uuids = objects.slice_devices.iter().map(|(name, uuid)| (name, uuid.as_str())).collect();
        Context { nodes, reserved, claimed, uuids }
    }

    fn node_memory_mib(&self, node: &str) -> Option<u64> {
        label_number(&self.nodes.get(node)?.labels, "nvidia.com/gpu.memory")
    }
}

/// A pod that KAI or Run:ai keeps on a device only to reserve it for sharers: no holder.
pub(super) fn is_reservation(pod: &PodObject) -> bool {
    let is_reserving_namespace = matches!(pod.namespace.as_str(), "kai-resource-reservation" | "runai-reservation");
    pod.annotations.contains_key(RESERVED_DEVICE) || (is_reserving_namespace && pod.labels.contains_key(GPU_GROUP))
}

/// The pod's claims on its node.
pub(super) fn claims_of(pod: &PodObject, node: &str, context: &Context, options: &Options, refusals: &mut Refusals) -> Vec<NodeClaim> {
    let mut claims = hami_instances(pod, node, refusals);
    if claims.is_empty() {
        claims = hami_devices(pod, node, context, refusals);
    }
    if claims.is_empty() {
        claims = annotated_fraction(pod, node, context, refusals);
    }
    if claims.is_empty() {
        claims = counted(pod, node, context, options, refusals);
    }
    claims.sort_by(|a, b| (&a.mig_profile, &a.device_uuids, a.fraction_ppm).cmp(&(&b.mig_profile, &b.device_uuids, b.fraction_ppm)));
    claims
}

fn claim(node: &str, count: u64) -> NodeClaim {
    NodeClaim {
        node: node.to_string(),
        count: narrow(count),
        mig_profile: None,
        device_indices: Vec::new(),
        device_uuids: Vec::new(),
        fraction_ppm: None,
    }
}

/// `hami.io/vgpu-mig-allocations`: a JSON list with board, profile and GPU instance.
fn hami_instances(pod: &PodObject, node: &str, refusals: &mut Refusals) -> Vec<NodeClaim> {
    const KEY: &str = "hami.io/vgpu-mig-allocations";
    let Some(text) = pod.annotations.get(KEY) else { return Vec::new() };
    let Ok(Value::Array(items)) = serde_json::from_str::<Value>(text) else {
        refusals.reject(0, KEY, format!("pod {}/{}: no JSON list: {}", pod.namespace, pod.name, excerpt(text)));
        return Vec::new();
    };
    let mut by_profile: BTreeMap<String, NodeClaim> = BTreeMap::new();
    for item in &items {
        let Some(profile) = item.get("profile").and_then(Value::as_str) else { continue };
        let entry = by_profile
            .entry(mig::normalize_profile(profile))
            .or_insert_with_key(|profile| NodeClaim { mig_profile: Some(profile.clone()), ..claim(node, 0) });
        entry.count = entry.count.saturating_add(1);
        let board = item.get("gpuUUID").and_then(Value::as_str);
        if let (Some(board), Some(instance)) = (board, item.get("gpuInstanceID").and_then(Value::as_u64)) {
            entry.device_uuids.push(format!("{board}/{instance}"));
        }
    }
    let mut claims: Vec<NodeClaim> = by_profile.into_values().collect();
    claims.iter_mut().for_each(|claim| claim.device_uuids.sort_unstable());
    if !claims.is_empty() {
        refusals.notice("declared_hami_mig", "HAMi named the MIG instances of pods");
    }
    claims
}

/// `hami.io/vgpu-devices-allocated`: `UUID,type,memory MiB,cores %` per device, `:` between devices, `;` between
/// containers. The declared share is the cores, which bound the time on the device; without a core limit (0) the
/// memory over the device's memory.
fn hami_devices(pod: &PodObject, node: &str, context: &Context, refusals: &mut Refusals) -> Vec<NodeClaim> {
    const KEY: &str = "hami.io/vgpu-devices-allocated";
    let Some(text) = pod.annotations.get(KEY) else { return Vec::new() };
    let mut shares: BTreeMap<&str, Option<u32>> = BTreeMap::new();
    for device in text.split([':', ';']).map(str::trim).filter(|d| !d.is_empty()) {
        let mut fields = device.split(',').map(str::trim);
        // An instance in HAMi's old dynamic MIG stands as `UUID[template-position]`.
        let uuid = fields.next().and_then(|f| f.split('[').next()).unwrap_or_default();
        let kind = fields.next().unwrap_or_default();
        let mut number = || fields.next().and_then(|f| f.parse::<u64>().ok());
        let (Some(memory_mib), Some(cores)) = (number(), number()) else {
            refusals.reject(0, KEY, format!("pod {}/{}: {} is not UUID,type,memory,cores", pod.namespace, pod.name, excerpt(device)));
            continue;
        };
        if uuid.is_empty() || kind.is_empty() {
            continue;
        }
        let device_memory_mib = || {
            let registered = context.nodes.get(node).and_then(|n| n.hami_devices.get(uuid)).map(|d| d.1).filter(|&m| m > 0);
            registered.or_else(|| context.node_memory_mib(node))
        };
        let share = match cores {
            0 if memory_mib == 0 => None,
            0 => device_memory_mib().and_then(|total| ratio_ppm(memory_mib, total)),
            cores => ratio_ppm(cores, 100),
        };
        match shares.entry(uuid) {
            Entry::Vacant(place) => {
                place.insert(share);
            }
            // Two containers of the pod on one device.
            Entry::Occupied(mut known) => {
                if let (Some(before), Some(more)) = (*known.get(), share) {
                    known.insert(Some(before.saturating_add(more).min(WHOLE_PPM)));
                }
            }
        }
    }
    let mut by_share: BTreeMap<Option<u32>, NodeClaim> = BTreeMap::new();
    for (uuid, share) in shares {
        let entry = by_share.entry(share).or_insert_with(|| NodeClaim { fraction_ppm: share, ..claim(node, 0) });
        entry.count = entry.count.saturating_add(1);
        entry.device_uuids.push(uuid.to_string());
    }
    let claims: Vec<NodeClaim> = by_share.into_values().collect();
    if !claims.is_empty() {
        refusals.notice("declared_hami", "HAMi named the devices of pods; shares are its core limits, else memory over device memory");
    }
    claims
}

/// KAI and Run:ai: `gpu-fraction` or `gpu-memory` of each of `gpu-fraction-num-devices` devices, no resource request.
/// The pod that reserves a device carries the group's label and the device's name.
fn annotated_fraction(pod: &PodObject, node: &str, context: &Context, refusals: &mut Refusals) -> Vec<NodeClaim> {
    let subject = || format!("pod {}/{}", pod.namespace, pod.name);
    let annotation = |key: &str| pod.annotations.get(key).map(|text| text.trim()).filter(|text| !text.is_empty());
    let (field, text) = match (annotation("gpu-fraction"), annotation("gpu-memory")) {
        (Some(text), _) => ("gpu-fraction", text),
        (None, Some(text)) => ("gpu-memory", text),
        (None, None) => return Vec::new(),
    };
    let fraction_ppm = if field == "gpu-fraction" {
        let Some(share) = parse_ppm(text, u64::from(WHOLE_PPM)).filter(|&share| share > 0) else {
            refusals.reject(0, field, format!("{}: {} is no share above 0 and up to 1", subject(), excerpt(text)));
            return Vec::new();
        };
        Some(share)
    } else {
        // Run:ai writes MiB without a unit.
        let Ok(memory_mib) = text.trim_end_matches("Mi").parse::<u64>() else {
            refusals.reject(0, field, format!("{}: {} is no memory in MiB", subject(), excerpt(text)));
            return Vec::new();
        };
        let share = context.node_memory_mib(node).and_then(|total| ratio_ppm(memory_mib, total));
        if share.is_none() {
            refusals.notice(
                "declared_memory_without_size",
                "pods ask for device memory (gpu-memory, nvidia.com/gpumem) and their node has no label nvidia.com/gpu.memory: no share known",
            );
        }
        share
    };
    let count = match annotation("gpu-fraction-num-devices").map(str::parse::<u64>) {
        None => 1,
        Some(Ok(count)) if (1..=MAX_DEVICES).contains(&count) => count,
        Some(_) => {
            refusals.reject(0, "gpu-fraction-num-devices", format!("{}: no number from 1 to {MAX_DEVICES}; counted as 1", subject()));
            1
        }
    };
    let mut claim = NodeClaim { fraction_ppm, ..claim(node, count) };
    for group in groups_of(pod) {
        let Some(&device) = context.reserved.get(&(node, group)) else { continue };
        match device.parse::<u32>() {
            Ok(index) => claim.device_indices.push(index),
            Err(_) => claim.device_uuids.push(device.to_string()),
        }
    }
    claim.device_indices.sort_unstable();
    claim.device_indices.dedup();
    claim.device_uuids.sort_unstable();
    claim.device_uuids.dedup();
    refusals.notice("declared_fraction", "shares are declared by the annotations gpu-fraction and gpu-memory (KAI, Run:ai)");
    vec![claim]
}

/// `runai-gpu-group: G`, or `runai-gpu-group/G: G` per device of several.
fn groups_of(pod: &PodObject) -> impl Iterator<Item = &str> {
    pod.labels
        .iter()
        .filter(|(key, _)| key.strip_prefix(GPU_GROUP).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
        .map(|(_, group)| group.as_str())
}

/// Requests and limits, resource claims, and what containers declare beside them.
fn counted(pod: &PodObject, node: &str, context: &Context, options: &Options, refusals: &mut Refusals) -> Vec<NodeClaim> {
    let mut devices = 0u64;
    let mut instances: BTreeMap<String, u64> = BTreeMap::new();
    for (name, &count) in &pod.resources {
        match classify(name, options) {
            Some(Resource::Mig(profile)) => {
                let known = instances.entry(profile).or_default();
                *known = known.saturating_add(count);
            }
            Some(_) => devices = devices.saturating_add(count),
            None => {}
        }
    }
    let mut claims = Vec::new();
    if devices > 0 {
        let fraction_ppm = declared_share(pod, node, context, refusals);
        claims.push(NodeClaim { fraction_ppm, ..claim(node, devices) });
    }
    for (profile, count) in instances {
        claims.push(NodeClaim { mig_profile: Some(profile), ..claim(node, count) });
    }
    let names = context.claimed.get(pod.uid.as_str()).map_or(&[][..], Vec::as_slice);
    let accelerators: Vec<&&DeviceName> = names.iter().filter(|name| name.driver.starts_with("gpu.")).collect();
    if !accelerators.is_empty() {
        let mut uuids: Vec<String> =
            accelerators.iter().filter_map(|name| context.uuids.get(**name)).map(|uuid| uuid.to_string()).collect();
        uuids.sort_unstable();
        uuids.dedup();
        let count = if uuids.is_empty() { accelerators.len() } else { uuids.len() };
        claims.push(NodeClaim { device_uuids: uuids, ..claim(node, count as u64) });
        refusals.notice("dynamic_resource_allocation", "resource claims named the devices of pods");
    }
    claims
}

/// A share of each counted device: HAMi's core percentage, MPS' thread percentage, a memory percentage, memory.
fn declared_share(pod: &PodObject, node: &str, context: &Context, refusals: &mut Refusals) -> Option<u32> {
    let number = |name: &str| pod.resources.get(name).copied().filter(|&n| n > 0);
    if let Some(cores) = number("nvidia.com/gpucores").or_else(|| number("volcano.sh/vgpu-cores")) {
        refusals.notice("declared_cores", "shares are declared by core percentages (nvidia.com/gpucores, volcano.sh/vgpu-cores)");
        return ratio_ppm(cores, 100);
    }
    if let Some(text) = &pod.thread_percentage {
        // A percentage of one device is one hundred times ten thousand parts per million.
        let share = parse_ppm(text, u64::from(WHOLE_PPM) / 100).filter(|&share| share > 0);
        match share {
            Some(_) => refusals.notice("declared_mps", "shares are declared by CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"),
            None => refusals.reject(
                0,
                "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
                format!("pod {}/{}: {} is no percentage up to 100", pod.namespace, pod.name, excerpt(text)),
            ),
        }
        return share;
    }
    if let Some(percentage) = number("nvidia.com/gpumem-percentage") {
        refusals.notice("declared_memory", "shares are declared by memory percentages (nvidia.com/gpumem-percentage)");
        return ratio_ppm(percentage, 100);
    }
    let memory_mib = number("nvidia.com/gpumem").or_else(|| number("volcano.sh/vgpu-memory"))?;
    let share = context.node_memory_mib(node).and_then(|total| ratio_ppm(memory_mib, total));
    if share.is_none() {
        refusals.notice(
            "declared_memory_without_size",
            "pods ask for device memory (gpu-memory, nvidia.com/gpumem) and their node has no label nvidia.com/gpu.memory: no share known",
        );
    }
    share
}
