//! Lost work: what a failed or preempted incarnation had done since its last checkpoint (ACCOUNTING section 6).

use std::collections::BTreeMap;

use gpuledger_model::cause::Confidence;
use gpuledger_model::tables::placement::{Holder, Outcome};
use gpuledger_model::time::Window;

use crate::ladder::Remark;

/// When a holder's useful work was lost, and how sure that is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lost {
    pub(crate) window: Window,
    pub(crate) confidence: Confidence,
}

/// Which time of which holder was lost. A run that failed for good without any checkpoint evidence lost all of it.
pub(crate) fn lost_work(holders: &[Holder], remarks: &mut Vec<Remark>) -> BTreeMap<usize, Lost> {
    let mut runs: BTreeMap<(&str, &str), Vec<usize>> = BTreeMap::new();
    for (at, holder) in holders.iter().enumerate() {
        runs.entry((&holder.cluster, &holder.run)).or_default().push(at);
    }
    let mut out = BTreeMap::new();
    for mut incarnations in runs.into_values() {
        incarnations.sort_by_key(|at| (holders[*at].from_ms, holders[*at].key.clone()));
        let ends_badly = |h: &Holder| matches!(h.outcome, Outcome::Failed | Outcome::Preempted);
        if !incarnations.iter().any(|at| ends_badly(&holders[*at])) {
            continue;
        }
        let mut checkpoints: Vec<i64> = incarnations.iter().flat_map(|at| holders[*at].checkpoints_ms.iter().copied()).collect();
        checkpoints.sort_unstable();
        let has_evidence = !checkpoints.is_empty() || incarnations.iter().any(|at| holders[*at].resumed_from_ms.is_some());
        let last_ended = incarnations.iter().filter(|at| holders[**at].to_ms.is_some()).max_by_key(|at| holders[**at].to_ms);
        let for_good = last_ended.is_some_and(|at| holders[*at].outcome == Outcome::Failed)
            && !incarnations.iter().any(|at| matches!(holders[*at].outcome, Outcome::Succeeded | Outcome::Alive));
        if !has_evidence && for_good {
            for at in &incarnations {
                let holder = &holders[*at];
                let window = Window::new(holder.from_ms, holder.to_ms.unwrap_or(i64::MAX));
                out.insert(*at, Lost { window, confidence: Confidence::Low });
            }
            continue;
        }
        for (place, at) in incarnations.iter().enumerate() {
            let holder = &holders[*at];
            let Some(end) = holder.to_ms.filter(|_| ends_badly(holder)) else { continue };
            let resumed = incarnations[place + 1..].iter().map(|n| &holders[*n]).find(|n| n.from_ms >= end || n.resumed_from_ms.is_some());
            let resumed_from = resumed.and_then(|n| n.resumed_from_ms);
            let last_checkpoint = checkpoints.iter().copied().filter(|t| *t <= end).max();
            if let Some(from) = resumed_from.or(last_checkpoint) {
                let window = Window::new(from.max(holder.from_ms), end);
                out.insert(*at, Lost { window, confidence: Confidence::High });
            } else if has_evidence {
                out.insert(*at, Lost { window: Window::new(holder.from_ms, end), confidence: Confidence::High });
            } else if holder.outcome == Outcome::Preempted {
                remarks.push(Remark {
                    kind: "preempted_without_checkpoint",
                    subject: holder.key.clone(),
                    window: Window::new(holder.from_ms, end),
                    evidence: "preempted, and no checkpoint is known: what it lost cannot be told".to_string(),
                    would_change: "a checkpoint time: annotation `gpuledger.io/checkpoints`, or `checkpoint=` in the job's comment",
                });
            }
        }
    }
    out
}
