//! Devices of a machine: how many places it has, which board stands in each, and how a board is cut
//! (ACCOUNTING section 3).

use std::collections::{BTreeMap, BTreeSet};

use gpuledger_model::mig::{self, Share};
use gpuledger_model::tables::placement::Placements;
use gpuledger_model::tables::telemetry::{Host, SightingKey};
use gpuledger_model::time::{HOUR_MS, Window, WindowSet, floor_to};

use crate::machine::Machine;

/// What a span of a place is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitKind {
    /// A whole board.
    Board,
    /// A MIG instance.
    Instance,
    /// What the layout of a MIG board leaves.
    Stranded,
    /// A place without any board.
    Anonymous,
    /// A place without a board that the node's capacity has and its allocatable has not.
    Missing,
    /// A place without a board beyond what the node knows.
    Unknown,
}

/// A device, instance or place for a time.
#[derive(Clone, Debug)]
pub struct UnitSpan {
    /// `UUID`, `UUID/GI` or `machine#n`.
    pub id: String,
    /// UUID of the board; the place's name where there is none.
    pub board: String,
    /// What it is.
    pub kind: UnitKind,
    /// When.
    pub window: Window,
    /// Share of the device.
    pub share: Share,
    /// MIG profile of an instance.
    pub profile: Option<String>,
    /// Model name.
    pub model: Option<String>,
}

/// First and last sample of an instance (id, profile), by hour.
type InstanceSpans = BTreeMap<(String, String), Vec<(i64, i64)>>;

/// Sightings of each host, with the first and last sample.
pub type SightingsByHost<'a> = BTreeMap<Host, Vec<(&'a SightingKey, (i64, i64))>>;

/// What telemetry says about the boards of a machine.
#[derive(Clone, Debug, Default)]
pub struct Boards {
    /// First and last sample of each board and hour.
    pub seen: BTreeMap<String, BTreeMap<i64, (i64, i64)>>,
    /// First and last sample of each instance (board, id, profile) by hour.
    instances: BTreeMap<String, InstanceSpans>,
    /// Spans in which rows of the whole board came, by hour.
    whole: BTreeMap<String, Vec<(i64, i64)>>,
    /// Exporter's index: board and span.
    pub indices: BTreeMap<u32, Vec<(String, Window)>>,
    /// Model of each board.
    pub models: BTreeMap<String, String>,
}

impl Boards {
    /// Collects the sightings of a machine's hosts.
    pub fn collect(machine: &Machine, sightings: &SightingsByHost<'_>) -> Boards {
        let mut out = Boards::default();
        for span in &machine.hosts {
            for (key, (first, last)) in sightings.get(&span.host).into_iter().flatten() {
                let (first, last) = ((*first).max(span.window.from_ms), (*last).min(span.window.to_ms.saturating_sub(1)));
                if first > last {
                    continue;
                }
                let uuid = &key.unit.uuid;
                let hour = out.seen.entry(uuid.clone()).or_default().entry(key.hour_ms).or_insert((first, last));
                *hour = (hour.0.min(first), hour.1.max(last));
                match &key.unit.instance {
                    Some(instance) => out
                        .instances
                        .entry(uuid.clone())
                        .or_default()
                        .entry((instance.clone(), key.profile.clone().unwrap_or_default()))
                        .or_default()
                        .push((first, last)),
                    None => out.whole.entry(uuid.clone()).or_default().push((first, last)),
                }
                if let Some(index) = key.index {
                    out.indices.entry(index).or_default().push((uuid.clone(), Window::new(first, last + 1)));
                }
                if let Some(model) = &key.model {
                    let slot = out.models.entry(uuid.clone()).or_insert_with(|| model.clone());
                    if *model < *slot {
                        *slot = model.clone();
                    }
                }
            }
        }
        out
    }

    /// Where exporters label instances with a profile that the node does not offer, and it offers exactly as many of one
    /// other that are not seen, the node's own profile stands (dcgm-exporter#544).
    pub fn correct_profiles(&mut self, machine: &Machine, placements: &Placements) {
        let mut offered: BTreeMap<String, usize> = BTreeMap::new();
        for node in machine.nodes.iter().filter_map(|n| n.node).map(|at| &placements.nodes[at]) {
            for (profile, count) in &node.mig_resources {
                *offered.entry(mig::normalize_profile(profile)).or_default() += *count as usize;
            }
        }
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        for (_, profile) in self.instances.values().flat_map(|own| own.keys()) {
            *seen.entry(mig::normalize_profile(profile)).or_default() += 1;
        }
        let unseen: Vec<(String, usize)> = offered
            .iter()
            .map(|(profile, count)| (profile.clone(), count.saturating_sub(seen.get(profile).copied().unwrap_or(0))))
            .filter(|(_, count)| *count > 0)
            .collect();
        let [(right, missing)] = unseen.as_slice() else { return };
        let strange: Vec<&String> = seen.keys().filter(|profile| !offered.contains_key(*profile)).collect();
        let [wrong] = strange.as_slice() else { return };
        if seen.get(*wrong) != Some(missing) {
            return;
        }
        for own in self.instances.values_mut() {
            let keys: Vec<(String, String)> = own.keys().filter(|(_, p)| mig::normalize_profile(p) == **wrong).cloned().collect();
            for key in keys {
                if let Some(spans) = own.remove(&key) {
                    own.entry((key.0, right.clone())).or_default().extend(spans);
                }
            }
        }
    }

    /// The board of an index within a time: the one seen longest under it.
    pub fn board_of_index(&self, index: u32, window: Window) -> Option<&str> {
        let mut by_board: BTreeMap<&str, i64> = BTreeMap::new();
        for (board, span) in self.indices.get(&index)? {
            let common = span.intersect(window);
            if !common.is_empty() {
                *by_board.entry(board).or_default() += common.duration_ms();
            }
        }
        by_board.into_iter().max_by(|a, b| a.1.cmp(&b.1).then(b.0.cmp(a.0))).map(|(board, _)| board)
    }

    /// Layouts of a board in order: from when, and the instances (id, profile). Empty for a board never cut.
    fn layouts(&self, board: &str) -> Vec<(i64, Vec<(String, String)>)> {
        let Some(instances) = self.instances.get(board) else { return Vec::new() };
        let model = self.models.get(board).map(String::as_str);
        let mut events: Vec<(i64, &(String, String))> = Vec::new();
        let mut last_seen: BTreeMap<&(String, String), i64> = BTreeMap::new();
        for (key, spans) in instances {
            events.extend(spans.iter().map(|(first, _)| (*first, key)));
            last_seen.insert(key, spans.iter().map(|s| s.1).max().unwrap_or(i64::MIN));
        }
        events.sort();
        let mut layouts: Vec<(i64, Vec<(String, String)>)> = Vec::new();
        // Whole-board rows in hours without any instance row: the board was not cut then.
        let whole_only: Vec<(i64, i64)> = self
            .whole
            .get(board)
            .map(|spans| {
                spans
                    .iter()
                    .copied()
                    .filter(|(first, _)| {
                        let hour = floor_to(*first, HOUR_MS);
                        !instances.values().flatten().any(|(f, _)| floor_to(*f, HOUR_MS) == hour)
                    })
                    .collect()
            })
            .unwrap_or_default();
        let mut at = 0;
        let mut whole_at = 0;
        while at < events.len() {
            let time = events[at].0;
            while whole_at < whole_only.len() && whole_only[whole_at].0 < time {
                if layouts.last().is_none_or(|(_, own)| !own.is_empty()) {
                    layouts.push((whole_only[whole_at].0, Vec::new()));
                }
                whole_at += 1;
            }
            let mut fresh: Vec<(String, String)> = Vec::new();
            while at < events.len() && events[at].0 == time {
                fresh.push(events[at].1.clone());
                at += 1;
            }
            let current = layouts.last().map(|(_, own)| own.clone()).unwrap_or_default();
            fresh.retain(|key| !current.contains(key));
            if fresh.is_empty() {
                continue;
            }
            let mut union = current.clone();
            union.extend(fresh.iter().cloned());
            let next = if fits(&union, model) {
                union
            } else {
                let mut kept: Vec<(String, String)> =
                    current.into_iter().filter(|key| last_seen.get(key).is_some_and(|last| *last >= time)).collect();
                kept.extend(fresh.iter().cloned());
                if fits(&kept, model) { kept } else { fresh }
            };
            let mut next = next;
            next.sort();
            layouts.push((time, next));
        }
        while whole_at < whole_only.len() {
            if layouts.last().is_none_or(|(_, own)| !own.is_empty()) {
                layouts.push((whole_only[whole_at].0, Vec::new()));
            }
            whole_at += 1;
        }
        // The first layout seen is taken to hold before it was first seen.
        if let Some(first) = layouts.first_mut() {
            first.0 = i64::MIN;
        }
        layouts
    }
}

fn fits(layout: &[(String, String)], model: Option<&str>) -> bool {
    let mut ids = BTreeSet::new();
    let (mut compute, mut memory) = (0, 0);
    let (mut compute_total, mut memory_total) = (7, 8);
    for (id, profile) in layout {
        if !ids.insert(id) {
            return false;
        }
        if let Some(known) = mig::profile(profile, model) {
            compute += known.compute_slices;
            compute_total = known.compute_slices_total;
            memory += known.memory_slices.unwrap_or(0);
            memory_total = known.memory_slices_total.unwrap_or(u64::MAX);
        }
    }
    compute <= compute_total && memory <= memory_total
}

/// The places of a machine over `range` (whole hours), and what stands in each. What stands at an edge of the
/// range stands beyond it: a silent place is the board of its nearest hour.
pub fn unit_spans(machine: &Machine, boards: &Boards, placements: &Placements, range: Window) -> Vec<UnitSpan> {
    let mut device_spans: Vec<(String, bool, Option<UnitKind>, Window)> = Vec::new();
    let mut last_of: BTreeMap<String, usize> = BTreeMap::new();
    for hour in range.aligned_parts(HOUR_MS) {
        let start = floor_to(hour.from_ms, HOUR_MS);
        let hour = Window::new(start, start + HOUR_MS);
        for (name, is_board, kind, window) in places_of_hour(machine, boards, placements, hour) {
            let extended = last_of.get(&name).is_some_and(|at| {
                let last = &mut device_spans[*at];
                let joins = last.3.to_ms == window.from_ms && last.2 == kind;
                if joins {
                    last.3.to_ms = window.to_ms;
                }
                joins
            });
            if !extended {
                last_of.insert(name.clone(), device_spans.len());
                device_spans.push((name, is_board, kind, window));
            }
        }
    }
    let mut out = Vec::new();
    for (name, is_board, kind, window) in device_spans {
        let window = Window {
            from_ms: if window.from_ms == range.from_ms { i64::MIN } else { window.from_ms },
            to_ms: if window.to_ms == range.to_ms { i64::MAX } else { window.to_ms },
        };
        if !is_board {
            out.push(UnitSpan {
                board: name.clone(),
                id: name,
                kind: kind.unwrap_or(UnitKind::Anonymous),
                window,
                share: Share::WHOLE,
                profile: None,
                model: machine_model(machine, placements, window),
            });
            continue;
        }
        let model = boards.models.get(&name).cloned().or_else(|| machine_model(machine, placements, window));
        let layouts = boards.layouts(&name);
        if layouts.is_empty() {
            out.push(whole(&name, window, model));
            continue;
        }
        for (at, (from, layout)) in layouts.iter().enumerate() {
            let to = layouts.get(at + 1).map(|n| n.0).unwrap_or(i64::MAX);
            let span = Window::new(*from, to).intersect(window);
            if span.is_empty() {
                continue;
            }
            if layout.is_empty() {
                out.push(whole(&name, span, model.clone()));
                continue;
            }
            let mut used = Vec::new();
            for (id, profile) in layout {
                let share = match mig::profile(profile, model.as_deref()) {
                    Some(known) => known.share(),
                    None => Share::new(1, 7),
                };
                used.push(share);
                out.push(UnitSpan {
                    id: format!("{name}/{id}"),
                    board: name.clone(),
                    kind: UnitKind::Instance,
                    window: span,
                    share,
                    profile: Some(mig::normalize_profile(profile)),
                    model: model.clone(),
                });
            }
            if let Some(rest) = rest_of(&used) {
                out.push(UnitSpan {
                    id: name.clone(),
                    board: name.clone(),
                    kind: UnitKind::Stranded,
                    window: span,
                    share: rest,
                    profile: None,
                    model: model.clone(),
                });
            }
        }
    }
    out.sort_by(|a, b| a.id.cmp(&b.id).then(a.window.cmp(&b.window)));
    out
}

fn whole(name: &str, window: Window, model: Option<String>) -> UnitSpan {
    UnitSpan { id: name.to_string(), board: name.to_string(), kind: UnitKind::Board, window, share: Share::WHOLE, profile: None, model }
}

fn rest_of(used: &[Share]) -> Option<Share> {
    let denominator = used.iter().fold(1u64, |d, s| d / mig::gcd(d, s.denominator) * s.denominator);
    let sum: u64 = used.iter().map(|s| s.numerator * (denominator / s.denominator)).sum();
    (sum < denominator).then(|| Share::new(denominator - sum, denominator))
}

fn machine_model(machine: &Machine, placements: &Placements, window: Window) -> Option<String> {
    machine.nodes_within(window).filter_map(|n| n.node).find_map(|at| placements.nodes[at].accelerator_model.clone())
}

/// (name, whether it is a board, kind of a place without board, time within the hour).
fn places_of_hour(
    machine: &Machine,
    boards: &Boards,
    placements: &Placements,
    hour: Window,
) -> Vec<(String, bool, Option<UnitKind>, Window)> {
    let nodes: Vec<_> = machine.nodes_within(hour).filter_map(|n| n.node).map(|at| &placements.nodes[at]).collect();
    let capacity = nodes.iter().filter_map(|n| n.capacity_devices).max();
    let allocatable = nodes.iter().filter_map(|n| n.allocatable_devices).max();
    let known = machine.catalogue_devices.max(capacity.unwrap_or(0)) as usize;
    let mut seen: Vec<(&String, (i64, i64))> =
        boards.seen.iter().filter_map(|(board, hours)| hours.get(&hour.from_ms).map(|span| (board, *span))).collect();
    let mut out = Vec::new();
    let mut places = 0usize;
    if seen.len() > known {
        // Boards that never overlap within the hour are one place, until no more are seen than known.
        seen.sort_by_key(|(board, span)| (span.0, (*board).clone()));
        let mut chains: Vec<Vec<(&String, (i64, i64))>> = Vec::new();
        let mut surplus = seen.len() - known;
        for (board, span) in seen.iter() {
            let free = chains
                .iter_mut()
                .filter(|chain| chain.last().is_some_and(|(_, last)| last.1 < span.0))
                .min_by_key(|chain| chain.last().map(|(_, last)| last.1));
            match free {
                Some(chain) if surplus > 0 => {
                    surplus -= 1;
                    chain.push((board, *span));
                }
                _ => chains.push(vec![(board, *span)]),
            }
        }
        for chain in &chains {
            for (at, (board, _)) in chain.iter().enumerate() {
                let from = if at == 0 { hour.from_ms } else { chain[at].1.0 };
                let to = chain.get(at + 1).map(|next| next.1.0).unwrap_or(hour.to_ms);
                out.push(((*board).clone(), true, None, Window::new(from, to)));
            }
        }
        places += chains.len();
    } else {
        out.extend(seen.iter().map(|(board, _)| ((*board).clone(), true, None, hour)));
        places += seen.len();
    }
    if places < known {
        let present: BTreeSet<&String> = seen.iter().map(|(board, _)| *board).collect();
        let mut earlier: Vec<(i64, &String)> = Vec::new();
        let mut later: Vec<(i64, &String)> = Vec::new();
        for (board, hours) in &boards.seen {
            if present.contains(board) {
                continue;
            }
            if let Some((before, _)) = hours.range(..hour.from_ms).next_back() {
                earlier.push((-*before, board));
            } else if let Some((after, _)) = hours.range(hour.to_ms..).next() {
                later.push((*after, board));
            }
        }
        earlier.sort();
        later.sort();
        for (_, board) in earlier.into_iter().chain(later) {
            if places == known {
                break;
            }
            out.push((board.clone(), true, None, hour));
            places += 1;
        }
    }
    let mut number = 0;
    while places < known {
        let kind = match allocatable {
            Some(allocatable) if places >= allocatable as usize => {
                if capacity.is_some_and(|c| places < c as usize) {
                    UnitKind::Missing
                } else {
                    UnitKind::Unknown
                }
            }
            _ => UnitKind::Anonymous,
        };
        out.push((format!("{}#{number}", machine.id), false, Some(kind), hour));
        number += 1;
        places += 1;
    }
    out
}

/// When a board's samples stop while its exporter goes on, and come back never or after a reset:
/// from the end of its last standing sample to its return, else to the last scrape of its exporter.
///
/// `present` is the time that any sample of the board covers, `resets_ms` the returns at which a counter
/// had fallen, `scrapes_ms` the scrapes of its exporters in order.
pub fn faulty_spans(present: &WindowSet, resets_ms: &BTreeSet<i64>, scrapes_ms: &[i64]) -> WindowSet {
    let mut out = Vec::new();
    let parts = present.parts();
    for (at, part) in parts.iter().enumerate() {
        let first_after = scrapes_ms.partition_point(|t| *t < part.to_ms);
        match parts.get(at + 1) {
            Some(next) => {
                let went_on = scrapes_ms.get(first_after).is_some_and(|t| *t < next.from_ms);
                if went_on && resets_ms.contains(&next.from_ms) {
                    out.push(Window::new(part.to_ms, next.from_ms));
                }
            }
            None => {
                if let Some(last) = scrapes_ms.last() {
                    out.push(Window::new(part.to_ms, *last));
                }
            }
        }
    }
    WindowSet::from_windows(out)
}
