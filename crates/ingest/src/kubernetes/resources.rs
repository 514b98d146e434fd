//! Which extended resources are accelerators, and how many physical devices a node's resources stand for
//! (ACCOUNTING section 3).

use std::collections::BTreeMap;

use gpuledger_model::mig;

use super::Options;
use super::objects::NodeObject;

/// What a resource counts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Resource {
    /// Devices, or replicas of them under time-slicing and MPS.
    Device,
    /// Replicas for certain: the plugin renames what it shares.
    Replica,
    /// Replicas whose number per device the plugin does not publish.
    HiddenReplica,
    /// MIG instances of a profile, in DCGM's spelling.
    Mig(String),
}

/// Resources that count whole devices. `aws.amazon.com/neurondevice` and `neuroncore` name the devices of
/// `aws.amazon.com/neuron` again and are left out.
const DEVICE_RESOURCES: &[&str] = &[
    "nvidia.com/gpu",
    "amd.com/gpu",
    "intel.com/gpu",
    "gpu.intel.com/i915",
    "gpu.intel.com/xe",
    "habana.ai/gaudi",
    "aws.amazon.com/neuron",
    "google.com/tpu",
    "qualcomm.com/qaic",
];

/// Resources of plugins that split a device without saying into how many.
const HIDDEN_REPLICA_RESOURCES: &[&str] = &["k8s.amazonaws.com/vgpu", "volcano.sh/vgpu-number"];

/// What a resource counts, if it is an accelerator.
pub(super) fn classify(name: &str, options: &Options) -> Option<Resource> {
    if let Some(profile) = name.strip_prefix("nvidia.com/mig-") {
        let profile = profile.strip_suffix(".shared").unwrap_or(profile);
        return Some(Resource::Mig(mig::normalize_profile(profile)));
    }
    if HIDDEN_REPLICA_RESOURCES.contains(&name) {
        return Some(Resource::HiddenReplica);
    }
    let plain = name.strip_suffix(".shared").unwrap_or(name);
    if DEVICE_RESOURCES.contains(&plain) || options.extra_resources.iter().any(|extra| extra == name || extra == plain) {
        return Some(if plain == name { Resource::Device } else { Resource::Replica });
    }
    None
}

/// A node's devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Devices {
    pub capacity: Option<u32>,
    pub allocatable: Option<u32>,
    pub replicas: u32,
    pub mig_single_profile: Option<String>,
    pub mig_resources: Vec<(String, u32)>,
    /// It has replicas and nothing says how many devices they are of.
    pub is_hidden: bool,
}

/// Counts a node's physical devices.
pub(super) fn devices_of(node: &NodeObject, options: &Options) -> Devices {
    let model = accelerator_model(&node.labels);
    let single_profile = single_profile(&node.labels);
    let label_count = label_number(&node.labels, "nvidia.com/gpu.count").filter(|_| single_profile.is_none());
    let capacity = Totals::of(&node.capacity, &node.labels, options);
    let allocatable = Totals::of(&node.allocatable, &node.labels, options);

    // HAMi registers its devices; their split is what its plugin multiplies the resource by.
    let hami_count = Some(node.hami_devices.len() as u64).filter(|&count| count > 0);
    let device_count = label_count.or(hami_count);
    let shared_total = capacity.shared_total();
    let named_replicas = label_number(&node.labels, "nvidia.com/gpu.replicas")
        .or_else(|| label_number(&node.labels, "cloud.google.com/gke-max-shared-clients-per-gpu"));
    let inferred_replicas = device_count.filter(|&count| shared_total > count).map(|count| shared_total.div_ceil(count));
    let replicas = named_replicas.or(inferred_replicas);
    let is_hidden = replicas.is_none() && capacity.hidden > 0 && capacity.devices == 0 && device_count.is_none();
    let replicas = replicas.unwrap_or(1).max(1);

    let from_resources = |totals: &Totals| -> Option<u64> {
        if let Some(profile) = &single_profile {
            let (slices, total) = compute_slices(profile, model);
            return totals.is_known.then(|| (totals.shared_total().div_ceil(replicas) * slices).div_ceil(total));
        }
        if is_hidden {
            return None;
        }
        totals.is_known.then(|| totals.whole_devices(replicas).saturating_add(boards_of(&totals.mig, model)))
    };
    let of_capacity = from_resources(&capacity);
    let of_allocatable = from_resources(&allocatable);
    let physical = device_count.or(of_capacity);
    // Instances of a layout with holes fold to fewer boards than there are; what is withheld is the difference.
    let offered = match (physical, of_capacity, of_allocatable) {
        (Some(physical), Some(all), Some(offered)) if !capacity.mig.is_empty() => {
            Some(physical.saturating_sub(all.saturating_sub(offered)))
        }
        (Some(physical), _, Some(offered)) => Some(offered.min(physical)),
        (_, _, offered) => offered,
    };
    Devices {
        capacity: physical.map(narrow),
        allocatable: offered.map(narrow),
        replicas: narrow(replicas),
        mig_single_profile: single_profile,
        mig_resources: capacity.mig.iter().map(|(profile, count)| (profile.clone(), narrow(*count))).collect(),
        is_hidden,
    }
}

/// A resource list by what it counts.
#[derive(Default)]
struct Totals {
    /// Some accelerator resource is named, be it with zero.
    is_known: bool,
    devices: u64,
    replicas: u64,
    hidden: u64,
    mig: BTreeMap<String, u64>,
}

impl Totals {
    fn of(resources: &BTreeMap<String, u64>, labels: &BTreeMap<String, String>, options: &Options) -> Totals {
        let mut totals = Totals::default();
        for (name, &count) in resources {
            let Some(resource) = classify(name, options) else { continue };
            totals.is_known = true;
            match resource {
                Resource::Device => totals.devices = totals.devices.saturating_add(count),
                Resource::Replica => totals.replicas = totals.replicas.saturating_add(count),
                Resource::HiddenReplica => totals.hidden = totals.hidden.saturating_add(count),
                Resource::Mig(profile) if count > 0 => {
                    let plain = name.strip_suffix(".shared").unwrap_or(name);
                    let replicas = label_number(labels, &format!("{plain}.replicas")).unwrap_or(1).max(1);
                    let known = totals.mig.entry(profile).or_default();
                    *known = known.saturating_add(count.div_ceil(replicas));
                }
                Resource::Mig(_) => {}
            }
        }
        totals
    }

    /// What replicas multiply: renamed resources alone where there are some, else the plain one.
    fn shared_total(&self) -> u64 {
        match (self.replicas, self.devices) {
            (0, 0) => self.hidden,
            (0, devices) => devices,
            (replicas, _) => replicas,
        }
    }

    fn whole_devices(&self, replicas: u64) -> u64 {
        let unshared = if self.replicas > 0 { self.devices } else { 0 };
        self.shared_total().div_ceil(replicas).saturating_add(unshared)
    }
}

/// MIG instances as boards: compute slices over the board's total, rounded up.
fn boards_of(instances: &BTreeMap<String, u64>, model: Option<&str>) -> u64 {
    let mut slices = 0u64;
    let mut total = 7;
    for (profile, &count) in instances {
        let (of_profile, of_board) = compute_slices(profile, model);
        slices = slices.saturating_add(count.saturating_mul(of_profile));
        total = of_board;
    }
    slices.div_ceil(total)
}

/// Compute slices of a profile and of its board; a profile that no table knows counts the number before its `g`.
pub(crate) fn compute_slices(profile: &str, model: Option<&str>) -> (u64, u64) {
    match mig::profile(profile, model) {
        Some(row) => (row.compute_slices, row.compute_slices_total.max(1)),
        None => (profile.split('g').next().and_then(|n| n.parse().ok()).unwrap_or(1).clamp(1, 7), 7),
    }
}

/// The profile that the plain resource counts under the single strategy, by NVIDIA's labels or Google's.
fn single_profile(labels: &BTreeMap<String, String>) -> Option<String> {
    if let Some(size) = labels.get("cloud.google.com/gke-gpu-partition-size").filter(|size| !size.is_empty()) {
        return Some(mig::normalize_profile(size));
    }
    if labels.get("nvidia.com/mig.strategy").map(String::as_str) != Some("single") {
        return None;
    }
    let product = labels.get("nvidia.com/gpu.product")?;
    let (_, profile) = product.split_once("-MIG-")?;
    let profile = profile.strip_suffix("-SHARED").unwrap_or(profile);
    // `MIG-INVALID` stands where boards disagree; there the plugin offers nothing.
    profile.contains("g.").then(|| mig::normalize_profile(profile))
}

/// The product label.
pub(super) fn accelerator_model(labels: &BTreeMap<String, String>) -> Option<&str> {
    const PRODUCT_LABELS: &[&str] = &[
        "nvidia.com/gpu.product",
        "amd.com/gpu.product-name",
        "cloud.google.com/gke-accelerator",
        "k8s.amazonaws.com/accelerator",
        "gpu.intel.com/product",
        "accelerator",
    ];
    PRODUCT_LABELS.iter().find_map(|key| labels.get(*key)).map(String::as_str).filter(|text| !text.is_empty())
}

/// A label's number, if it is one above zero.
pub(super) fn label_number(labels: &BTreeMap<String, String>, key: &str) -> Option<u64> {
    labels.get(key)?.trim().parse().ok().filter(|&number| number > 0 && number <= u64::from(u32::MAX))
}

/// Into the width of the tables; no node has more.
pub(super) fn narrow(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
