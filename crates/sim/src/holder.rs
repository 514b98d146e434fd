//! Who holds devices: pods and jobs.

use gpuledger_model::tables::placement::Outcome;

use crate::chance::Chance;
use crate::fleet::{Machine, Scheduler};
use crate::workload::Workload;

/// A place on a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Machine.
    pub machine: usize,
    /// Board.
    pub board: usize,
    /// Slot of the board.
    pub slot: usize,
}

/// What owns a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnerKind {
    /// A batch job.
    Job,
    /// A deployment, by its replica set.
    Deployment,
    /// A stateful set.
    StatefulSet,
}

/// One incarnation of work.
#[derive(Clone, Debug)]
pub struct Holder {
    /// As the ledger names it.
    pub key: String,
    /// Scheduler.
    pub scheduler: Scheduler,
    /// Cluster.
    pub cluster: &'static str,
    /// Namespace, or Slurm account.
    pub group: &'static str,
    /// Pod or job name.
    pub name: String,
    /// Pod UID, or job id.
    pub uid: String,
    /// Slurm user.
    pub user: &'static str,
    /// What owns the pod.
    pub owner_kind: OwnerKind,
    /// Name of the owner.
    pub owner_name: String,
    /// UID of the owner.
    pub owner_uid: String,
    /// What it does.
    pub workload: Workload,
    /// Start, ms.
    pub from_ms: i64,
    /// End, ms; `None` while it lives.
    pub to_ms: Option<i64>,
    /// How it ended.
    pub outcome: Outcome,
    /// What it holds.
    pub places: Vec<Place>,
    /// Pod address.
    pub address: String,
    /// Checkpoints, ms.
    pub checkpoints_ms: Vec<i64>,
}

/// The names that the incarnations of one run share.
#[derive(Clone, Debug)]
pub struct Run {
    /// Name.
    pub name: String,
    /// Owner's UID, or the job id.
    pub uid: String,
    /// Namespace, or Slurm account.
    pub group: &'static str,
    /// Slurm user.
    pub user: &'static str,
    incarnations: u32,
}

impl Run {
    /// A new run of a workload on a machine.
    pub fn new(workload: Workload, machine: &Machine, job_id: u32, chance: &mut Chance) -> Run {
        let group = match workload {
            Workload::LlmDecode | Workload::WarmStandby | Workload::SharedInference | Workload::InstanceInference => "serving",
            Workload::NotebookParked | Workload::NotebookEmpty | Workload::InstanceNotebook => "notebooks",
            Workload::BatchInference => "scoring",
            _ => *chance.pick(&["research", "vision", "speech"]),
        };
        let user = *chance.pick(&["amara", "bo", "chen", "devi", "emil"]);
        let uid = match machine.scheduler {
            Scheduler::Kubernetes => chance.uuid(),
            Scheduler::Slurm => job_id.to_string(),
        };
        Run { name: format!("{}-{}", workload.word(), chance.hex(4)), uid, group, user, incarnations: 0 }
    }

    /// Its next incarnation.
    pub fn incarnation(
        &mut self,
        workload: Workload,
        machine: &Machine,
        from_ms: i64,
        to_ms: Option<i64>,
        places: Vec<Place>,
        chance: &mut Chance,
    ) -> Holder {
        self.incarnations += 1;
        let owner_kind = match workload {
            Workload::LlmDecode | Workload::WarmStandby | Workload::SharedInference | Workload::InstanceInference => OwnerKind::Deployment,
            Workload::NotebookParked | Workload::NotebookEmpty | Workload::InstanceNotebook => OwnerKind::StatefulSet,
            _ => OwnerKind::Job,
        };
        let (name, uid, key) = match machine.scheduler {
            Scheduler::Kubernetes => {
                let name = match owner_kind {
                    OwnerKind::Job => format!("{}-{}", self.name, chance.hex(5)),
                    OwnerKind::Deployment => format!("{}-{}-{}", self.name, &self.uid[..8], chance.hex(5)),
                    OwnerKind::StatefulSet => format!("{}-0", self.name),
                };
                let uid = chance.uuid();
                let key = format!("k8s/{}/{}/{name}/{uid}", machine.cluster, self.group);
                (name, uid, key)
            }
            Scheduler::Slurm => {
                let start = gpuledger_model::time::format_rfc3339(from_ms);
                (self.name.clone(), self.uid.clone(), format!("slurm/{}/{}/{start}", machine.cluster, self.uid))
            }
        };
        Holder {
            key,
            scheduler: machine.scheduler,
            cluster: machine.cluster,
            group: self.group,
            name,
            uid,
            user: self.user,
            owner_kind,
            owner_name: self.name.clone(),
            owner_uid: self.uid.clone(),
            workload,
            from_ms,
            to_ms,
            outcome: if to_ms.is_none() { Outcome::Alive } else { Outcome::Succeeded },
            places,
            address: format!("10.{}.{}.{}", 128 + chance.below(64), chance.below(256), 2 + chance.below(250)),
            checkpoints_ms: Vec::new(),
        }
    }
}
