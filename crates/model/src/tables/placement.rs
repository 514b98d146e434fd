//! `nodes` and `holders`: who could hold what, by the schedulers' own records.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::charge::Cloud;

/// Which record speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordKind {
    /// A `kubectl get -o json` dump: one look, medium confidence.
    KubernetesDump,
    /// Slurm accounting: continuous.
    SlurmAccounting,
    /// A user's inventory: joins names to machines, covers nothing.
    Inventory,
}

/// A node as a scheduler or an inventory knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Cluster it belongs to; part of its identity.
    pub cluster: String,
    /// Its name in the cluster.
    pub name: String,
    /// The object's UID, where the scheduler gives one.
    pub uid: Option<String>,
    /// The record that speaks.
    pub record: RecordKind,
    /// The machine in its reduced form (`i-0abc`, lower-case Azure id, OCID, `project/zone/name`), if known.
    pub machine_id: Option<String>,
    /// The machine's cloud, if known.
    pub cloud: Option<Cloud>,
    /// Instance type.
    pub instance_type: Option<String>,
    /// Region.
    pub region: Option<String>,
    /// From when it is known to exist (creation, or the inventory's `from`), ms.
    pub from_ms: Option<i64>,
    /// Its end (deletion, or the inventory's `to`), ms; `None` while it lives.
    pub to_ms: Option<i64>,
    /// Physical accelerators it has, by ACCOUNTING section 3 (MIG resources folded to boards).
    pub capacity_devices: Option<u32>,
    /// Physical accelerators it offers to workloads.
    pub allocatable_devices: Option<u32>,
    /// Replicas per device under time-slicing or MPS; 1 when not shared.
    pub replicas: u32,
    /// Under the single MIG strategy, the profile that the plain resource counts.
    pub mig_single_profile: Option<String>,
    /// MIG resources: profile and count.
    pub mig_resources: Vec<(String, u32)>,
    /// Product label or GRES type.
    pub accelerator_model: Option<String>,
    /// Closed to new work.
    pub is_cordoned: bool,
    /// Since when, ms; `None` with `is_cordoned` means over the whole record.
    pub cordoned_from_ms: Option<i64>,
    /// Latest time written anywhere in the record about it (conditions, heartbeats), ms.
    pub last_record_ms: Option<i64>,
    /// Labels.
    pub labels: BTreeMap<String, String>,
}

/// What a holder asked of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeClaim {
    /// Node name.
    pub node: String,
    /// Devices, replicas or instances counted, by `resource`.
    pub count: u32,
    /// MIG profile asked for (`1g.10gb`), if the resource names one; `None` counts whole boards or replicas.
    pub mig_profile: Option<String>,
    /// Device indices that the scheduler names (Slurm `IDX`).
    pub device_indices: Vec<u32>,
    /// Device UUIDs that the scheduler names (pod-resources, DRA, HAMi), `UUID` or `UUID/GI`.
    pub device_uuids: Vec<String>,
    /// Declared share of each device, in millionths; `None` without a declaration.
    pub fraction_ppm: Option<u32>,
}

/// How an incarnation ended, or that it did not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Still there.
    Alive,
    /// Ended well.
    Succeeded,
    /// Failed, and not evicted (FAILED, NODE_FAIL, BOOT_FAIL, OUT_OF_MEMORY).
    Failed,
    /// Taken away for another (PREEMPTED, evicted, DisruptionTarget).
    Preempted,
    /// Requeued by its owner or the scheduler, no failure.
    Requeued,
    /// Cancelled.
    Cancelled,
    /// Ran into its limit.
    TimedOut,
    /// Deleted while running, reason unknown.
    Deleted,
}

/// One incarnation of work: a pod, or one row of `sacct -D`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// `k8s/cluster/ns/pod/uid` or `slurm/cluster/job/start`.
    pub key: String,
    /// The record that speaks.
    pub record: RecordKind,
    /// Cluster.
    pub cluster: String,
    /// Namespace (Kubernetes).
    pub namespace: Option<String>,
    /// Account (Slurm).
    pub account: Option<String>,
    /// User (Slurm) or service account.
    pub user: Option<String>,
    /// Pod or job name.
    pub name: String,
    /// UID or job id.
    pub uid: String,
    /// What it asked, per node; empty if it asked for no accelerator.
    pub claims: Vec<NodeClaim>,
    /// Start, ms.
    pub from_ms: i64,
    /// End, ms; `None` while it lives.
    pub to_ms: Option<i64>,
    /// How it ended.
    pub outcome: Outcome,
    /// The run: owner UID, Slurm job id, or a configured label; a pod without an owner is its own run.
    pub run: String,
    /// The workload's readable name, `Kind/name`.
    pub workload: String,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// Pod addresses, to join serving signals scraped by address.
    pub addresses: Vec<String>,
    /// Declared: bandwidth is what this workload is for.
    pub bandwidth_expected: bool,
    /// Declared: idle is by intention (annotation, minimum replicas, SLO).
    pub standby_declared: bool,
    /// Checkpoints known, ms, ascending.
    pub checkpoints_ms: Vec<i64>,
    /// The time of the state it resumed from, if it says so, ms.
    pub resumed_from_ms: Option<i64>,
    /// Until when it repeats steps whose first run lies before the data, ms.
    pub recompute_until_ms: Option<i64>,
    /// Latest time written anywhere in the record about it, ms.
    pub last_record_ms: Option<i64>,
}

/// Something the scheduler keeps free on purpose: a gang or reservation that waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    /// Cluster.
    pub cluster: String,
    /// Node.
    pub node: String,
    /// Name of the reservation or gang.
    pub name: String,
    /// Devices kept.
    pub count: u32,
    /// From, ms.
    pub from_ms: i64,
    /// To, ms.
    pub to_ms: Option<i64>,
}

/// All placements of one run of the product.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placements {
    /// Nodes.
    pub nodes: Vec<Node>,
    /// Holders.
    pub holders: Vec<Holder>,
    /// Reservations.
    pub reservations: Vec<Reservation>,
}

impl Placements {
    /// Adds another record's rows.
    pub fn extend(&mut self, other: Placements) {
        self.nodes.extend(other.nodes);
        self.holders.extend(other.holders);
        self.reservations.extend(other.reservations);
    }
}
