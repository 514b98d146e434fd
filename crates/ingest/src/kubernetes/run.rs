//! To which run a pod belongs: the topmost owner that restarts and replaces it.

use std::collections::BTreeMap;

use super::Options;
use super::objects::{Objects, OwnerObject, OwnerReference, PodObject};

/// Longest chain of owners followed; a longer one is a loop.
const MAX_CHAIN: usize = 16;

/// Owners that start new work on a schedule: what they own are runs of their own.
const SCHEDULES: &[&str] = &["CronJob", "CronWorkflow", "ScheduledWorkflow", "ScheduledSparkApplication"];

/// Owners of a cluster by UID and by name.
pub(super) struct Owners<'a> {
    by_uid: BTreeMap<&'a str, OwnerView<'a>>,
    by_name: BTreeMap<(&'a str, &'a str, &'a str), &'a str>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct OwnerView<'a> {
    owner: Option<&'a OwnerReference>,
    declares_standby: bool,
    declares_bandwidth: bool,
}

/// A pod's run, and what its owners declare.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Run {
    /// Identity of the run.
    pub run: String,
    /// `Kind/name`.
    pub workload: String,
    pub declares_standby: bool,
    pub declares_bandwidth: bool,
}

impl<'a> Owners<'a> {
    /// Indexes owners and pods (a pod owns pods in a LeaderWorkerSet).
    pub(super) fn new(objects: &'a Objects) -> Owners<'a> {
        let mut by_uid: BTreeMap<&str, OwnerView> = BTreeMap::new();
        let mut by_name: BTreeMap<(&str, &str, &str), &str> = BTreeMap::new();
        let of_owner = |o: &'a OwnerObject| OwnerView {
            owner: o.owner.as_ref(),
            declares_standby: o.declares_standby,
            declares_bandwidth: o.declares_bandwidth,
        };
        let of_pod = |p: &'a PodObject| OwnerView { owner: p.owner.as_ref(), declares_standby: false, declares_bandwidth: false };
        let views = objects.owners.iter().map(|o| (o.uid.as_str(), of_owner(o)));
        for (uid, view) in views.chain(objects.pods.iter().map(|p| (p.uid.as_str(), of_pod(p)))) {
            // Two dumps of one owner: the greater record, whatever the order of the files.
            let known = by_uid.entry(uid).or_insert(view);
            *known = view.max(*known);
        }
        for o in &objects.owners {
            let known = by_name.entry((&o.namespace, &o.kind, &o.name)).or_insert(&o.uid);
            *known = o.uid.as_str().max(*known);
        }
        Owners { by_uid, by_name }
    }

    /// The run of a pod of `cluster`.
    pub(super) fn run_of(&self, cluster: &str, pod: &PodObject, options: &Options) -> Run {
        let mut run = self.owned_run(cluster, pod);
        if let Some(value) = options.run_label.as_ref().and_then(|label| pod.labels.get(label)).filter(|value| !value.is_empty()) {
            run.run = value.clone();
        }
        run
    }

    fn owned_run(&self, cluster: &str, pod: &PodObject) -> Run {
        let mut run = Run { run: pod.uid.clone(), workload: format!("Pod/{}", pod.name), ..Run::default() };
        // Static pods are owned by their node, which is no run.
        let Some(owner) = pod.owner.as_ref().filter(|owner| owner.kind != "Node") else { return run };
        let mut current = owner.clone();
        for _ in 0..MAX_CHAIN {
            let view = self.by_uid.get(current.uid.as_str());
            run.declares_standby |= view.is_some_and(|v| v.declares_standby);
            run.declares_bandwidth |= view.is_some_and(|v| v.declares_bandwidth);
            let next = match view.and_then(|v| v.owner) {
                Some(next) => Some(next.clone()),
                None => self.labelled_owner(cluster, pod, &current),
            };
            match next {
                Some(next) if !SCHEDULES.contains(&next.kind.as_str()) && next.uid != current.uid => current = next,
                _ => break,
            }
        }
        run.workload = readable_name(pod, &current, self.by_uid.contains_key(current.uid.as_str()));
        run.run = current.uid;
        run
    }

    /// The owner above `current` that the pod's labels name where the dump lacks the object between.
    fn labelled_owner(&self, cluster: &str, pod: &PodObject, current: &OwnerReference) -> Option<OwnerReference> {
        let label = |key: &str| pod.labels.get(key).map(String::as_str).filter(|value| !value.is_empty());
        let (kind, name, uid) = match current.kind.as_str() {
            "Job" => ("JobSet", label("jobset.sigs.k8s.io/jobset-name")?, label("jobset.sigs.k8s.io/jobset-uid")),
            "StatefulSet" => ("LeaderWorkerSet", label("leaderworkerset.sigs.k8s.io/name")?, None),
            "RayCluster" => {
                (label("ray.io/originated-from-crd").filter(|kind| *kind != "RayCluster")?, label("ray.io/originated-from-cr-name")?, None)
            }
            _ => return None,
        };
        let known = || self.by_name.get(&(pod.namespace.as_str(), kind, name)).copied();
        let uid = match uid.or_else(known) {
            Some(uid) => uid.to_string(),
            // Nothing gives the UID: the name is the identity.
            None => format!("k8s/{cluster}/{}/{kind}/{name}", pod.namespace),
        };
        Some(OwnerReference { kind: kind.to_string(), name: name.to_string(), uid })
    }
}

/// `Kind/name`; the Deployment's name where only its ReplicaSet is known.
fn readable_name(pod: &PodObject, owner: &OwnerReference, is_known: bool) -> String {
    if owner.kind == "ReplicaSet" && !is_known {
        for (label, kind) in [("pod-template-hash", "Deployment"), ("rollouts-pod-template-hash", "Rollout")] {
            let hash = pod.labels.get(label).map(String::as_str).unwrap_or_default();
            let name = owner.name.strip_suffix(hash).and_then(|name| name.strip_suffix('-'));
            if let Some(name) = name.filter(|name| !hash.is_empty() && !name.is_empty()) {
                return format!("{kind}/{name}");
            }
        }
    }
    format!("{}/{}", owner.kind, owner.name)
}
