//! Who held which device: the ladder of evidence (ACCOUNTING section 4).
//!
//! Strongest first: (1) the device named by the scheduler; (2) exporter labels that agree with the
//! scheduler's interval; (3) the scheduler's count, on the busiest of what 1 and 2 leave; (4) exporter
//! labels alone, where no record covers the node or the holder is one that it cannot know.

use std::collections::{BTreeMap, BTreeSet};

use gpuledger_model::cause::Confidence;
use gpuledger_model::mig::{self, Share};
use gpuledger_model::tables::placement::{Holder, NodeClaim, Outcome, Placements, RecordKind};
use gpuledger_model::tables::telemetry::HolderLabel;
use gpuledger_model::time::{Window, WindowSet};

use crate::device::{Boards, UnitKind, UnitSpan};
use crate::machine::{Machine, NodeSpan};
use crate::standing::Steps;

/// How a holder's part of a device is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A weight among the holders of the second: equal parts have equal weights.
    Weight(Share),
    /// A stated share of the device; the rest is nobody's.
    Exact(Share),
}

/// One holding: half-open, of one device.
#[derive(Clone, Debug)]
pub struct Holding {
    /// Row of the holder table.
    pub holder: usize,
    /// Unit id.
    pub unit: String,
    /// When; an open end is `i64::MAX`.
    pub window: Window,
    /// Its part.
    pub part: Part,
    /// Evidence 1 to 4.
    pub evidence: u8,
    /// How sure.
    pub confidence: Confidence,
    /// The record, which says until when an open end lasts.
    pub record: Option<RecordKind>,
}

/// What the evidence yields on one machine.
#[derive(Clone, Debug, Default)]
pub struct Holdings {
    /// The holdings.
    pub rows: Vec<Holding>,
    /// Devices that the scheduler keeps free for a gang or reservation.
    pub reserved: BTreeMap<String, WindowSet>,
    /// Counts that found no device: holder key, node, count, when.
    pub without_device: Vec<(String, String, u32, Window)>,
    /// Devices whose declared fractions add to more than one.
    pub over_declared: BTreeSet<String>,
}

/// What ranks the devices of an interval.
#[derive(Clone, Copy, Debug, Default)]
pub struct Activity<'a> {
    /// Engine, else util, as steps of parts per million.
    pub busy: Option<&'a Steps>,
    /// Power in 10^-6 W.
    pub power: Option<&'a Steps>,
}

/// Everything that the evidence of a machine needs.
pub struct Evidence<'a> {
    /// The machine.
    pub machine: &'a Machine,
    /// Its units over time.
    pub units: &'a [UnitSpan],
    /// Its boards.
    pub boards: &'a Boards,
    /// The schedulers' rows.
    pub placements: &'a Placements,
    /// Rows of `placements.holders` with a claim on a node of the machine, by (cluster, node).
    pub holders_by_node: &'a BTreeMap<(String, String), Vec<usize>>,
    /// Rows of `placements.holders` by (cluster, namespace, name) of pods and (cluster, "", job id).
    pub holders_by_name: &'a BTreeMap<(String, String, String), Vec<usize>>,
    /// Times at which labels stood on units.
    pub labels: &'a BTreeMap<String, BTreeMap<HolderLabel, Vec<i64>>>,
    /// What ranks the units.
    pub activity: &'a dyn Fn(&str) -> Activity<'a>,
}

/// Applies the ladder. Holders that only labels know are added to `extra`, whose rows follow the
/// placements' holders in the holder table.
pub fn hold(evidence: &Evidence<'_>, extra: &mut Vec<Holder>) -> Holdings {
    let mut out = Holdings::default();
    let mut named: Vec<Holding> = Vec::new();
    let claims = claims_of(evidence);
    for claim in &claims {
        for unit in named_units(evidence, claim) {
            push_named(evidence, &mut named, claim, unit, 1);
        }
    }
    let mut alone: BTreeMap<(String, HolderLabel), Vec<i64>> = BTreeMap::new();
    for (unit, labels) in evidence.labels {
        for (label, times) in labels {
            let known = holders_named(evidence, label);
            let candidates: Vec<usize> = (0..claims.len()).filter(|at| known.contains(&claims[*at].holder)).collect();
            for at in &candidates {
                let window = claims[*at].window;
                let first = times.partition_point(|t| *t < window.from_ms);
                if times.get(first).is_some_and(|t| window.contains(*t)) {
                    push_named(evidence, &mut named, &claims[*at], unit.clone(), 2);
                }
            }
            let left = times.iter().copied().filter(|t| !candidates.iter().any(|at| claims[*at].window.contains(*t)));
            let left: Vec<i64> = left.filter(|time| stands_alone(evidence, &known, label, *time)).collect();
            if !left.is_empty() {
                alone.insert((unit.clone(), label.clone()), left);
            }
        }
    }
    let labelled_alone: BTreeSet<&str> = alone.keys().map(|(unit, _)| unit.as_str()).collect();
    let counted = count_only(evidence, &claims, &named, &labelled_alone, &mut out);
    out.rows.extend(named);
    out.rows.extend(counted);
    label_only(evidence, alone, &mut out, extra);
    reserve(evidence, &mut out);
    out.rows.sort_by(|a, b| (&a.unit, a.window, a.holder).cmp(&(&b.unit, b.window, b.holder)));
    out
}

/// A holder's claim on this machine while its node was it.
struct Claim<'a> {
    holder: usize,
    row: &'a Holder,
    claim: &'a NodeClaim,
    window: Window,
    replicas: u32,
    single_profile: Option<&'a str>,
}

fn claims_of<'a>(evidence: &Evidence<'a>) -> Vec<Claim<'a>> {
    let mut out = Vec::new();
    for span in &evidence.machine.nodes {
        let node = span.node.map(|at| &evidence.placements.nodes[at]);
        let node_end = node.and_then(|n| n.to_ms).unwrap_or(i64::MAX);
        let key = (span.cluster.clone(), span.name.clone());
        for at in evidence.holders_by_node.get(&key).into_iter().flatten() {
            let row = &evidence.placements.holders[*at];
            let window = Window::new(row.from_ms, row.to_ms.unwrap_or(i64::MAX).min(node_end)).intersect(span.window);
            if window.is_empty() {
                continue;
            }
            for claim in row.claims.iter().filter(|c| c.node == span.name && c.count > 0) {
                out.push(Claim {
                    holder: *at,
                    row,
                    claim,
                    window,
                    replicas: node.map(|n| n.replicas.max(1)).unwrap_or(1),
                    single_profile: node.and_then(|n| n.mig_single_profile.as_deref()),
                });
            }
        }
    }
    out.sort_by(|a, b| (a.window, &a.row.key).cmp(&(b.window, &b.row.key)));
    out
}

/// Evidence 1: UUIDs, or indices of the exporter on that node during the job.
fn named_units(evidence: &Evidence<'_>, claim: &Claim<'_>) -> Vec<String> {
    let mut out = Vec::new();
    for uuid in &claim.claim.device_uuids {
        if evidence.units.iter().any(|u| u.id == *uuid || u.board == *uuid) {
            out.push(uuid.clone());
        }
    }
    for index in &claim.claim.device_indices {
        let place = format!("{}#{index}", evidence.machine.id);
        if let Some(board) = evidence.boards.board_of_index(*index, claim.window) {
            out.push(board.to_string());
        } else if evidence.units.iter().any(|u| u.id == place) {
            out.push(place);
        }
    }
    out.sort();
    out.dedup();
    out
}

fn record_confidence(record: RecordKind, best: Confidence) -> Confidence {
    match record {
        RecordKind::KubernetesDump => best.min(Confidence::Medium),
        _ => best,
    }
}

fn push_named(evidence: &Evidence<'_>, named: &mut Vec<Holding>, claim: &Claim<'_>, unit: String, level: u8) {
    let known = named.iter().any(|h| h.holder == claim.holder && h.unit == unit && h.window.overlaps(claim.window));
    if known {
        return;
    }
    let part = match claim.claim.fraction_ppm {
        Some(ppm) => Part::Exact(Share::new(u64::from(ppm), 1_000_000)),
        None => Part::Weight(Share::WHOLE),
    };
    for window in unit_windows(evidence.units, &unit, claim.window) {
        named.push(Holding {
            holder: claim.holder,
            unit: unit.clone(),
            window,
            part,
            evidence: level,
            confidence: record_confidence(claim.row.record, Confidence::High),
            record: Some(claim.row.record),
        });
    }
}

/// The parts of a window in which the unit is there.
fn unit_windows(units: &[UnitSpan], unit: &str, window: Window) -> Vec<Window> {
    let spans = units.iter().filter(|u| u.id == unit && u.kind != UnitKind::Stranded).map(|u| u.window).collect();
    WindowSet::from_windows(spans).parts().iter().map(|part| part.intersect(window)).filter(|w| !w.is_empty()).collect()
}

/// Holders of the scheduler that a label names, on any cluster of the machine.
fn holders_named(evidence: &Evidence<'_>, label: &HolderLabel) -> BTreeSet<usize> {
    let (namespace, name) = match label {
        HolderLabel::Pod { namespace, pod } => (namespace.as_str(), pod.as_str()),
        HolderLabel::Job(id) => ("", id.as_str()),
    };
    let mut known = BTreeSet::new();
    for node in &evidence.machine.nodes {
        let key = (node.cluster.clone(), namespace.to_string(), name.to_string());
        known.extend(evidence.holders_by_name.get(&key).into_iter().flatten().copied());
    }
    known
}

/// Whether a label outside of every interval of its holder is evidence of its own: nobody's record could know
/// the holder, or it is an earlier incarnation of a known one. Labels that outlive their holder are not.
fn stands_alone(evidence: &Evidence<'_>, known: &BTreeSet<usize>, label: &HolderLabel, time_ms: i64) -> bool {
    let nodes: Vec<&NodeSpan> = evidence.machine.nodes.iter().filter(|n| n.window.contains(time_ms)).collect();
    if known.is_empty() {
        let covering = nodes.iter().filter_map(|n| n.record).max();
        // Slurm's accounting knows every job of its nodes.
        return !matches!((covering, label), (Some(RecordKind::SlurmAccounting), HolderLabel::Job(_)));
    }
    let holders: Vec<&Holder> = known.iter().map(|at| &evidence.placements.holders[*at]).collect();
    if holders.iter().any(|h| h.claims.is_empty()) {
        return false;
    }
    holders.iter().any(|h| h.from_ms > time_ms && nodes.iter().any(|n| h.claims.iter().any(|c| c.node == n.name)))
}

/// Evidence 3.
fn count_only(
    evidence: &Evidence<'_>,
    claims: &[Claim<'_>],
    named: &[Holding],
    labelled_alone: &BTreeSet<&str>,
    out: &mut Holdings,
) -> Vec<Holding> {
    let mut rows = Vec::new();
    let mut kinds: BTreeSet<Option<String>> = BTreeSet::new();
    for claim in claims {
        kinds.insert(claim_profile(claim));
    }
    for kind in kinds {
        let own: Vec<&Claim<'_>> = claims.iter().filter(|c| claim_profile(c) == kind).collect();
        let mut edges: BTreeSet<i64> = BTreeSet::new();
        for claim in &own {
            edges.extend([claim.window.from_ms, claim.window.to_ms]);
        }
        for holding in named {
            edges.extend([holding.window.from_ms, holding.window.to_ms]);
        }
        for unit in evidence.units {
            edges.extend([unit.window.from_ms, unit.window.to_ms]);
        }
        let edges: Vec<i64> = edges.into_iter().collect();
        // Elementary segments with the same pending claims and free units are one interval.
        let mut segments: Vec<(Window, Pending)> = Vec::new();
        for pair in edges.windows(2) {
            let window = Window::new(pair[0], pair[1]);
            let pending = pending_of(evidence, &own, named, kind.as_deref(), window);
            if pending.claims.is_empty() {
                continue;
            }
            match segments.last_mut() {
                Some((last, same)) if last.to_ms == window.from_ms && *same == pending => last.to_ms = window.to_ms,
                _ => segments.push((window, pending)),
            }
        }
        for (window, pending) in segments {
            place_counts(evidence, claims, window, &pending, labelled_alone, &mut rows, out);
        }
    }
    join_adjacent(rows)
}

fn claim_profile(claim: &Claim<'_>) -> Option<String> {
    claim.claim.mig_profile.as_deref().or(claim.single_profile).map(mig::normalize_profile)
}

#[derive(PartialEq, Eq)]
struct Pending {
    /// (index into all claims' holders, holder row, remaining count, millionths of a device per count)
    claims: Vec<(usize, u32, u64)>,
    /// Free units and the slots left on each.
    free: Vec<(String, u32)>,
    /// Profile asked for where no instance of it is known: the share of a board per count.
    board_share: Option<(u64, u64)>,
    record: RecordKind,
    replicas: u32,
}

fn pending_of(evidence: &Evidence<'_>, own: &[&Claim<'_>], named: &[Holding], profile: Option<&str>, window: Window) -> Pending {
    let mut pending = Pending { claims: Vec::new(), free: Vec::new(), board_share: None, record: RecordKind::SlurmAccounting, replicas: 1 };
    for claim in own.iter().filter(|c| c.window.from_ms <= window.from_ms && window.to_ms <= c.window.to_ms) {
        let have = named.iter().filter(|h| h.holder == claim.holder && h.window.contains(window.from_ms)).count() as u32;
        let left = claim.claim.count.saturating_sub(have);
        if left > 0 {
            pending.claims.push((claim.holder, left, u64::from(claim.claim.fraction_ppm.unwrap_or(1_000_000))));
        }
        pending.replicas = pending.replicas.max(if profile.is_some() { 1 } else { claim.replicas });
        if claim.row.record == RecordKind::KubernetesDump {
            pending.record = RecordKind::KubernetesDump;
        }
    }
    if pending.claims.is_empty() {
        return pending;
    }
    pending.claims.sort_by(|a, b| evidence.placements.holders[a.0].key.cmp(&evidence.placements.holders[b.0].key));
    let there = |unit: &UnitSpan| unit.window.from_ms <= window.from_ms && window.to_ms <= unit.window.to_ms;
    let taken = |unit: &str| named.iter().filter(|h| h.unit == unit && h.window.contains(window.from_ms)).count() as u32;
    let push = |pending: &mut Pending, unit: &UnitSpan, slots: u32| {
        let left = slots.saturating_sub(taken(&unit.id));
        if left > 0 && !pending.free.iter().any(|(id, _)| *id == unit.id) {
            pending.free.push((unit.id.clone(), left));
        }
    };
    for unit in evidence.units.iter().filter(|u| there(u)) {
        match (profile, unit.kind) {
            (Some(profile), UnitKind::Instance) if unit.profile.as_deref() == Some(profile) => push(&mut pending, unit, 1),
            (None, UnitKind::Board | UnitKind::Anonymous) => {
                let slots = pending.replicas;
                push(&mut pending, unit, slots);
            }
            _ => {}
        }
    }
    if pending.free.is_empty()
        && let Some(profile) = profile
    {
        // No instance of the profile is known: its share of the boards without a layout.
        let model = evidence.units.first().and_then(|u| u.model.as_deref());
        let share = mig::profile(profile, model).map(|p| p.share()).unwrap_or(Share::new(1, 7));
        for unit in evidence.units.iter().filter(|u| there(u) && matches!(u.kind, UnitKind::Board | UnitKind::Anonymous)) {
            push(&mut pending, unit, 1);
        }
        pending.board_share = Some((share.numerator, share.denominator));
    }
    pending
}

fn place_counts(
    evidence: &Evidence<'_>,
    claims: &[Claim<'_>],
    window: Window,
    pending: &Pending,
    labelled_alone: &BTreeSet<&str>,
    rows: &mut Vec<Holding>,
    out: &mut Holdings,
) {
    if pending.free.is_empty() {
        for (holder, count, _) in &pending.claims {
            let row = &evidence.placements.holders[*holder];
            let node = claims.iter().find(|c| c.holder == *holder).map(|c| c.claim.node.clone()).unwrap_or_default();
            out.without_device.push((row.key.clone(), node, *count, window));
        }
        return;
    }
    let mut ranked: Vec<(bool, u8, i128, &str, u32)> = pending
        .free
        .iter()
        .map(|(unit, slots)| {
            let activity = (evidence.activity)(unit);
            let mean = |steps: Option<&Steps>| steps.map(|s| s.sum_within(window)).filter(|(covered, _)| *covered > 0);
            let (tier, level) = match (mean(activity.busy), mean(activity.power)) {
                (Some((covered, sum)), _) => (0, sum * 1000 / i128::from(covered)),
                (None, Some((covered, sum))) => (1, sum * 1000 / i128::from(covered)),
                (None, None) => (2, 0),
            };
            (labelled_alone.contains(unit.as_str()), tier, -level, unit.as_str(), *slots)
        })
        .collect();
    ranked.sort();
    let free = ranked.len() as u64;
    let none_observed = ranked.iter().all(|r| r.1 == 2);
    let unit_share = pending.board_share.unwrap_or((1, 1));
    // Millionths of a device (or of an instance) that the claims add up to.
    let total_ppm: u64 = pending.claims.iter().map(|(_, count, ppm)| u64::from(*count) * ppm).sum::<u64>() * unit_share.0 / unit_share.1;
    let chosen: Vec<&str> = if none_observed || pending.board_share.is_some() {
        ranked.iter().map(|r| r.3).collect()
    } else if pending.replicas > 1 {
        let counts: u32 = pending.claims.iter().map(|c| c.1).sum();
        let mut slots = 0;
        ranked
            .iter()
            .take_while(|r| {
                let wanted = slots < counts;
                slots += r.4;
                wanted
            })
            .map(|r| r.3)
            .collect()
    } else {
        ranked.iter().take(total_ppm.div_ceil(1_000_000) as usize).map(|r| r.3).collect()
    };
    let devices = chosen.len() as u64;
    let whole_counts = pending.replicas == 1 && pending.board_share.is_none() && pending.claims.iter().all(|c| c.2 == 1_000_000);
    if whole_counts {
        // Counts beyond the devices that are free: whose they are is not known, so the last by key are told.
        let mut beyond = (total_ppm / 1_000_000).saturating_sub(devices) as u32;
        for (holder, count, _) in pending.claims.iter().rev() {
            let own = beyond.min(*count);
            beyond -= own;
            if own > 0 {
                let node = claims.iter().find(|c| c.holder == *holder).map(|c| c.claim.node.clone()).unwrap_or_default();
                out.without_device.push((evidence.placements.holders[*holder].key.clone(), node, own, window));
            }
        }
    }
    let fills = total_ppm >= free * 1_000_000 && pending.replicas == 1;
    let best = if fills { Confidence::High } else { Confidence::Low };
    for unit in chosen {
        for (holder, count, ppm) in &pending.claims {
            let amount = u64::from(*count) * ppm;
            let part = if pending.replicas > 1 {
                Part::Weight(Share::new(u64::from(*count), devices))
            } else {
                // count x fraction / max(devices, total): in proportion to the counts, never above one.
                let own = (amount * unit_share.0, 1_000_000 * unit_share.1);
                if total_ppm > devices * 1_000_000 {
                    if pending.claims.iter().any(|(_, _, ppm)| *ppm < 1_000_000) {
                        out.over_declared.insert(unit.to_string());
                    }
                    let all: u64 = pending.claims.iter().map(|(_, c, p)| u64::from(*c) * p).sum();
                    Part::Exact(Share::new(amount, all))
                } else {
                    Part::Exact(Share::new(own.0, own.1 * devices))
                }
            };
            rows.push(Holding {
                holder: *holder,
                unit: unit.to_string(),
                window,
                part,
                evidence: 3,
                confidence: record_confidence(pending.record, best),
                record: Some(pending.record),
            });
        }
    }
}

fn join_adjacent(mut rows: Vec<Holding>) -> Vec<Holding> {
    rows.sort_by(|a, b| (&a.unit, a.holder, a.window).cmp(&(&b.unit, b.holder, b.window)));
    let mut out: Vec<Holding> = Vec::new();
    for row in rows {
        if let Some(last) = out.last_mut()
            && last.unit == row.unit
            && last.holder == row.holder
            && last.window.to_ms == row.window.from_ms
            && last.part == row.part
            && last.confidence == row.confidence
        {
            last.window.to_ms = row.window.to_ms;
            continue;
        }
        out.push(row);
    }
    out
}

/// Evidence 4: from the first to the last label, cut where a sample names another, on what 1 to 3 leave.
fn label_only(evidence: &Evidence<'_>, alone: BTreeMap<(String, HolderLabel), Vec<i64>>, out: &mut Holdings, extra: &mut Vec<Holder>) {
    let replicas =
        evidence.machine.nodes.iter().filter_map(|n| n.node).map(|at| evidence.placements.nodes[at].replicas.max(1)).max().unwrap_or(1)
            as usize;
    let cluster = evidence.machine.nodes.first().map(|n| n.cluster.clone()).unwrap_or_default();
    let mut by_key: BTreeMap<String, usize> = BTreeMap::new();
    let mut of_unit: Option<(String, WindowSet, LabelTimeline<'_>)> = None;
    for ((unit, label), mut times) in alone {
        times.sort_unstable();
        times.dedup();
        if of_unit.as_ref().is_none_or(|(own, _, _)| *own != unit) {
            of_unit = Some((unit.clone(), taken_time(&out.rows, &unit, replicas), label_timeline(evidence, &unit)));
        }
        let Some((_, taken, timeline)) = &of_unit else { continue };
        let (mut start, last) = (times[0], times[times.len() - 1]);
        let mut spans = Vec::new();
        for pair in times.windows(2) {
            let after = timeline.partition_point(|(t, _)| *t <= pair[0]);
            let between = timeline[after..].iter().take_while(|(t, _)| *t < pair[1]);
            if let Some((cut, _)) = between.into_iter().find(|(_, only)| only.is_none_or(|l| *l != label)) {
                spans.push(Window::new(start, *cut));
                start = pair[1];
            }
        }
        spans.push(Window::new(start, last));
        let holder = extra_holder(extra, &mut by_key, evidence.placements.holders.len(), &cluster, &label, (start, last));
        for window in WindowSet::from_windows(spans).minus(taken).parts() {
            out.rows.push(Holding {
                holder,
                unit: unit.clone(),
                window: *window,
                part: Part::Weight(Share::WHOLE),
                evidence: 4,
                confidence: Confidence::Low,
                record: None,
            });
        }
    }
}

/// The times at which labels stood on a unit, in order, each with its label if it was the only one.
type LabelTimeline<'a> = Vec<(i64, Option<&'a HolderLabel>)>;

fn label_timeline<'a>(evidence: &Evidence<'a>, unit: &str) -> LabelTimeline<'a> {
    let mut rows: Vec<(i64, &HolderLabel)> = Vec::new();
    for (label, times) in evidence.labels.get(unit).into_iter().flatten() {
        rows.extend(times.iter().map(|t| (*t, label)));
    }
    rows.sort_unstable();
    let mut out: LabelTimeline<'a> = Vec::with_capacity(rows.len());
    for (time, label) in rows {
        match out.last_mut() {
            Some(last) if last.0 == time => last.1 = last.1.filter(|only| *only == label),
            _ => out.push((time, Some(label))),
        }
    }
    out
}

/// The time in which a unit has no place left: a holder of evidence 1 to 3, or `replicas` of them.
fn taken_time(rows: &[Holding], unit: &str, replicas: usize) -> WindowSet {
    let own: Vec<Window> = rows.iter().filter(|h| h.unit == unit && h.evidence < 4).map(|h| h.window).collect();
    if replicas <= 1 {
        return WindowSet::from_windows(own);
    }
    let mut edges: Vec<i64> = own.iter().flat_map(|w| [w.from_ms, w.to_ms]).collect();
    edges.sort_unstable();
    edges.dedup();
    let full = edges
        .windows(2)
        .map(|e| Window::new(e[0], e[1]))
        .filter(|w| own.iter().filter(|o| o.contains(w.from_ms)).count() >= replicas)
        .collect();
    WindowSet::from_windows(full)
}

fn extra_holder(
    extra: &mut Vec<Holder>,
    by_key: &mut BTreeMap<String, usize>,
    base: usize,
    cluster: &str,
    label: &HolderLabel,
    (from_ms, to_ms): (i64, i64),
) -> usize {
    let (key, namespace, name, uid) = match label {
        HolderLabel::Pod { namespace, pod } => {
            (format!("k8s/{cluster}/{namespace}/{pod}/"), Some(namespace.clone()), pod.clone(), String::new())
        }
        HolderLabel::Job(id) => (format!("slurm/{cluster}/{id}/"), None, id.clone(), id.clone()),
    };
    if let Some(at) = by_key.get(&key).copied() {
        extra[at].from_ms = extra[at].from_ms.min(from_ms);
        extra[at].to_ms = extra[at].to_ms.max(Some(to_ms));
        return base + at;
    }
    by_key.insert(key.clone(), extra.len());
    extra.push(Holder {
        run: key.clone(),
        workload: name.clone(),
        key,
        record: RecordKind::Inventory,
        cluster: cluster.to_string(),
        namespace,
        account: None,
        user: None,
        name,
        uid,
        claims: Vec::new(),
        from_ms,
        to_ms: Some(to_ms),
        outcome: Outcome::Deleted,
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        addresses: Vec::new(),
        bandwidth_expected: false,
        standby_declared: false,
        checkpoints_ms: Vec::new(),
        resumed_from_ms: None,
        recompute_until_ms: None,
        last_record_ms: None,
    });
    base + extra.len() - 1
}

/// Devices kept for a gang or reservation: of what nobody holds, as many as it counts, by id.
fn reserve(evidence: &Evidence<'_>, out: &mut Holdings) {
    for reservation in &evidence.placements.reservations {
        let on_node = evidence.machine.nodes.iter().find(|n| n.cluster == reservation.cluster && n.name == reservation.node);
        let Some(node) = on_node else { continue };
        let window = Window::new(reservation.from_ms, reservation.to_ms.unwrap_or(i64::MAX)).intersect(node.window);
        let mut edges: BTreeSet<i64> = BTreeSet::from([window.from_ms, window.to_ms]);
        for row in &out.rows {
            edges.extend([row.window.from_ms, row.window.to_ms].into_iter().filter(|t| window.contains(*t)));
        }
        let edges: Vec<i64> = edges.into_iter().collect();
        let mut spans: BTreeMap<String, Vec<Window>> = BTreeMap::new();
        for pair in edges.windows(2) {
            let part = Window::new(pair[0], pair[1]);
            let held: BTreeSet<&str> = out.rows.iter().filter(|r| r.window.overlaps(part)).map(|r| r.unit.as_str()).collect();
            let free: BTreeSet<&str> = evidence
                .units
                .iter()
                .filter(|u| matches!(u.kind, UnitKind::Board | UnitKind::Anonymous | UnitKind::Instance) && u.window.overlaps(part))
                .map(|u| u.id.as_str())
                .filter(|id| !held.contains(id))
                .collect();
            for unit in free.into_iter().take(reservation.count as usize) {
                spans.entry(unit.to_string()).or_default().push(part);
            }
        }
        for (unit, windows) in spans {
            let own = out.reserved.entry(unit).or_default();
            *own = own.union(&WindowSet::from_windows(windows));
        }
    }
}
