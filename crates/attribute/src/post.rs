//! From weights to money: each bill row is split once, from row to postings (ACCOUNTING section 8).

use std::collections::{BTreeMap, BTreeSet};

use gpuledger_model::cause::{Cause, Confidence, Part, State};
use gpuledger_model::money::{Decimal, SCOPE_SCALE_MIN, split_largest_remainder};
use gpuledger_model::tables::charge::{Charge, Scope};
use gpuledger_model::tables::placement::Holder;
use gpuledger_model::tables::posting::{Closing, PlacedBy, Posting};
use gpuledger_model::time::{HOUR_MS, Window, WindowSet, floor_to};

use crate::device::UnitSpan;
use crate::observe::MachineRecord;
use crate::spread::{FineKey, Integers, NOBODY, Spread};

/// Hours that a bill row may spread over: ten years. A longer charge period stands on its first hour.
pub const SPREAD_HOURS_MAX: i64 = 10 * 366 * 24;

/// One bill row, or one estimate, as an amount to post.
#[derive(Clone, Debug)]
pub struct Pool<'a> {
    /// Identity.
    pub id: String,
    /// Scope.
    pub scope: &'a Scope,
    /// Units at the scope's scale.
    pub units: i128,
    /// Scale.
    pub scale: u8,
    /// Estimated or reconciled.
    pub state: State,
}

/// Scales of scopes: the largest number of decimals of their rows, at least 10.
pub fn scope_scales(charges: &[Charge]) -> BTreeMap<&Scope, u8> {
    let mut out: BTreeMap<&Scope, u8> = BTreeMap::new();
    for charge in charges {
        let own = charge.effective.scale.max(charge.billed.scale).max(charge.list.map_or(0, |l| l.scale));
        let slot = out.entry(&charge.scope).or_insert(SCOPE_SCALE_MIN);
        *slot = (*slot).max(own);
    }
    out
}

/// Identity of rows by content: the same row has the same id in any file, and equal rows are numbered.
pub fn pool_ids(charges: &[Charge]) -> Vec<String> {
    let mut seen: BTreeMap<u128, u32> = BTreeMap::new();
    charges
        .iter()
        .map(|charge| {
            let hash = fnv_128(charge.content_key().as_bytes());
            let number = seen.entry(hash).or_insert(0);
            *number += 1;
            format!("{hash:032x}.{number}")
        })
        .collect()
}

/// FNV-1a of 128 bits: a name, no defence.
fn fnv_128(bytes: &[u8]) -> u128 {
    bytes.iter().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, |hash, byte| {
        (hash ^ u128::from(*byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
    })
}

/// A row that the bill alone explains: spread evenly over the hours of its charge period.
pub fn spread_over_hours(pool: &Pool<'_>, window: Window, template: &Posting, out: &mut Vec<Posting>) {
    let hours: Vec<Window> = if window.is_empty() || window.duration_ms() > SPREAD_HOURS_MAX * HOUR_MS {
        vec![Window::new(window.from_ms, window.from_ms + 1)]
    } else {
        window.aligned_parts(HOUR_MS).collect()
    };
    let weights: Vec<u128> = hours.iter().map(|h| h.duration_ms() as u128).collect();
    let Some(parts) = split_largest_remainder(pool.units, &weights) else { return };
    for (hour, units) in hours.iter().zip(parts) {
        if units != 0 {
            out.push(Posting {
                scope: pool.scope.clone(),
                pool: pool.id.clone(),
                hour_ms: floor_to(hour.from_ms, HOUR_MS),
                amount: Decimal { mantissa: units, scale: pool.scale },
                state: pool.state,
                ..template.clone()
            });
        }
    }
}

/// Weights grouped to postings of one machine.
pub struct Grouped<'a> {
    groups: Vec<Group>,
    weights: Integers,
    fine: Integers,
    machine: MachineFacts<'a>,
}

/// Hour, unit, holder, cause and part of a row.
type PartKey = (i64, u32, u32, Cause, Part);

struct MachineFacts<'a> {
    record: &'a MachineRecord,
    unit_ids: &'a [&'a str],
    holders: &'a [Holder],
    by_unit: BTreeMap<&'a str, &'a UnitSpan>,
}

struct Group {
    key: FineKey,
    rule: &'static str,
    confidence: Confidence,
    parts: Vec<PartGroup>,
}

struct PartGroup {
    part: Part,
    range: std::ops::Range<usize>,
    device_ms: i64,
    joules: f64,
}

impl<'a> Grouped<'a> {
    /// Groups a spread. Times and energy come from `counted`, the weights of the time that no earlier row paid
    /// for; `None` where all of it was counted before.
    pub fn new(
        spread: &Spread,
        counted: Option<&Spread>,
        record: &'a MachineRecord,
        unit_ids: &'a [&'a str],
        holders: &'a [Holder],
    ) -> Grouped<'a> {
        let spread = sorted(spread, holders);
        let counted = counted.map(|c| sorted(c, holders));
        let mut time: BTreeMap<PartKey, (i64, f64)> = BTreeMap::new();
        if let Some(counted) = &counted {
            for (at, ms) in device_ms(counted, record, unit_ids).into_iter().enumerate() {
                let key = &counted.keys[at];
                let slot = time.entry((key.hour_ms, key.unit, key.holder, key.cause, key.part)).or_default();
                slot.0 += ms;
                slot.1 += counted.joules[at];
            }
        }
        let mut groups: Vec<Group> = Vec::new();
        let mut ends = Vec::new();
        let mut start = 0;
        while start < spread.keys.len() {
            let key = spread.keys[start];
            let same = |k: &FineKey| (k.hour_ms, k.unit, k.holder, k.cause) == (key.hour_ms, key.unit, key.holder, key.cause);
            let end = start + spread.keys[start..].iter().take_while(|k| same(k)).count();
            let mut parts = Vec::new();
            let mut at = start;
            while at < end {
                let part = spread.keys[at].part;
                let to = at + spread.keys[at..end].iter().take_while(|k| k.part == part).count();
                let (device_ms, joules) = time.remove(&(key.hour_ms, key.unit, key.holder, key.cause, part)).unwrap_or_default();
                parts.push(PartGroup { part, range: at..to, device_ms, joules });
                at = to;
            }
            let confidence = heaviest(&spread, start..end, |k| k.confidence, |a, b| a < b);
            let rule = heaviest(&spread, start..end, |k| k.rule, |a, b| a < b);
            groups.push(Group { key, rule, confidence, parts });
            ends.push(end);
            start = end;
        }
        let weights = spread.weights.grouped(&ends);
        let by_unit = record.units.iter().map(|u| (u.id.as_str(), u)).collect();
        Grouped { groups, weights, fine: spread.weights, machine: MachineFacts { record, unit_ids, holders, by_unit } }
    }

    /// Splits an amount over the postings. `with_time` puts the device time on them: once per paid time.
    pub fn post(&self, pool: &Pool<'_>, placed_by: PlacedBy, version: &str, with_time: bool, out: &mut Vec<Posting>) {
        let Some(amounts) = self.weights.split(pool.units) else { return };
        for (group, units) in self.groups.iter().zip(amounts) {
            let ends: Vec<usize> = group.parts.iter().map(|p| p.range.end - group.parts[0].range.start).collect();
            let range = group.parts[0].range.start..group.parts[group.parts.len() - 1].range.end;
            let of_parts = if group.parts.len() == 1 { Some(vec![units]) } else { self.fine.slice(range).grouped(&ends).split(units) };
            let Some(of_parts) = of_parts else { continue };
            for (part, units) in group.parts.iter().zip(of_parts) {
                let device_ms = if with_time { part.device_ms } else { 0 };
                if units == 0 && device_ms == 0 {
                    continue;
                }
                let mut confidence = group.confidence;
                if pool.state == State::Estimated {
                    confidence = confidence.min(Confidence::Medium);
                }
                out.push(self.posting(pool, group, part, units, device_ms, with_time, placed_by, confidence, version));
            }
        }
    }

    #[allow(clippy::too_many_arguments, reason = "one private constructor")]
    fn posting(
        &self,
        pool: &Pool<'_>,
        group: &Group,
        part: &PartGroup,
        units: i128,
        device_ms: i64,
        with_time: bool,
        placed_by: PlacedBy,
        confidence: Confidence,
        version: &str,
    ) -> Posting {
        let record = self.machine.record;
        let device = self.machine.unit_ids[group.key.unit as usize];
        let holder = (group.key.holder != NOBODY).then(|| &self.machine.holders[group.key.holder as usize]);
        let hour = Window::new(group.key.hour_ms, group.key.hour_ms + HOUR_MS);
        let node = record.machine.nodes_within(hour).next().or(record.machine.nodes.first());
        let host = record.machine.hosts.first().map(|h| h.host.name.clone());
        Posting {
            scope: pool.scope.clone(),
            pool: pool.id.clone(),
            hour_ms: group.key.hour_ms,
            device: device.to_string(),
            machine: record.machine.id.clone(),
            node: node.map(|n| n.name.clone()).or(host).unwrap_or_default(),
            cluster: holder.map(|h| h.cluster.clone()).or(node.map(|n| n.cluster.clone())).unwrap_or_default(),
            model: self.machine.by_unit.get(device).and_then(|u| u.model.clone()).or(record.model.clone()).unwrap_or_default(),
            holder: holder.map(|h| h.key.clone()).unwrap_or_default(),
            cause: group.key.cause,
            part: part.part,
            amount: Decimal { mantissa: units, scale: pool.scale },
            device_ms,
            energy_joules: if with_time { part.joules.round() as i64 } else { 0 },
            rule: format!("{}@{version}", group.rule),
            confidence,
            state: pool.state,
            placed_by,
            service: String::new(),
        }
    }

    /// Whether there is nothing to post on.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }
}

/// The value with the most weight; a tie goes to the one that `lower` puts first.
fn heaviest<T: Copy + Ord>(spread: &Spread, range: std::ops::Range<usize>, of: impl Fn(&FineKey) -> T, lower: impl Fn(T, T) -> bool) -> T {
    let mut order: Vec<usize> = range.collect();
    order.sort_by_key(|at| of(&spread.keys[*at]));
    let mut values: Vec<T> = Vec::new();
    let mut ends = Vec::new();
    for (place, at) in order.iter().enumerate() {
        let value = of(&spread.keys[*at]);
        if values.last() == Some(&value) {
            if let Some(end) = ends.last_mut() {
                *end = place + 1;
            }
        } else {
            values.push(value);
            ends.push(place + 1);
        }
    }
    let sums = spread.weights.picked(&order).grouped(&ends);
    let mut best = 0;
    for at in 1..values.len() {
        if sums.above(at, best) || (!sums.above(best, at) && lower(values[at], values[best])) {
            best = at;
        }
    }
    values[best]
}

/// Keys in the order of postings: hour, device, holder, cause as strings, then part, rule, confidence.
fn sorted(spread: &Spread, holders: &[Holder]) -> Spread {
    let mut order: Vec<usize> = (0..spread.keys.len()).collect();
    let holder = |at: u32| if at == NOBODY { "" } else { holders[at as usize].key.as_str() };
    order.sort_by(|a, b| {
        let (a, b) = (&spread.keys[*a], &spread.keys[*b]);
        (a.hour_ms, a.unit)
            .cmp(&(b.hour_ms, b.unit))
            .then_with(|| holder(a.holder).cmp(holder(b.holder)))
            .then_with(|| a.holder.cmp(&b.holder))
            .then_with(|| a.cause.as_str().cmp(b.cause.as_str()))
            .then_with(|| (a.part, a.rule, a.confidence).cmp(&(b.part, b.rule, b.confidence)))
    });
    Spread {
        keys: order.iter().map(|at| spread.keys[*at]).collect(),
        weights: spread.weights.picked(&order),
        joules: order.iter().map(|at| spread.joules[*at]).collect(),
        common: spread.common.clone(),
        stretches: Vec::new(),
    }
}

/// Device-milliseconds of each key: the paid time of each device and hour, split by largest remainder.
fn device_ms(spread: &Spread, record: &MachineRecord, unit_ids: &[&str]) -> Vec<i64> {
    let board_of: BTreeMap<&str, &str> = record.units.iter().map(|u| (u.id.as_str(), u.board.as_str())).collect();
    let mut by_device: BTreeMap<(i64, &str), Vec<usize>> = BTreeMap::new();
    for (at, key) in spread.keys.iter().enumerate() {
        let id = unit_ids[key.unit as usize];
        by_device.entry((key.hour_ms, board_of.get(id).copied().unwrap_or(id))).or_default().push(at);
    }
    let mut out = vec![0; spread.keys.len()];
    for places in by_device.into_values() {
        let own = spread.weights.picked(&places);
        let total = own.total_over(&spread.common);
        if let Some(parts) = own.split(i128::from(total)) {
            for (at, ms) in places.into_iter().zip(parts) {
                out[at] = ms as i64;
            }
        }
    }
    out
}

/// The proof: per scope, the sum of postings against the sum of EffectiveCost. `refused` scopes are listed by
/// the caller.
pub fn closings(charges: &[Charge], scales: &BTreeMap<&Scope, u8>, postings: &[Posting]) -> Vec<Closing> {
    let mut bills: BTreeMap<Scope, Decimal> = BTreeMap::new();
    for charge in charges {
        let scale = scales.get(&charge.scope).copied().unwrap_or(SCOPE_SCALE_MIN);
        let slot = bills.entry(charge.scope.clone()).or_insert(Decimal { mantissa: 0, scale });
        *slot = slot.checked_add(charge.effective).unwrap_or(*slot);
    }
    let mut posted: BTreeMap<&Scope, Decimal> = BTreeMap::new();
    for posting in postings {
        let slot = posted.entry(&posting.scope).or_insert(Decimal { mantissa: 0, scale: posting.amount.scale });
        *slot = slot.checked_add(posting.amount).unwrap_or(*slot);
    }
    let estimates: BTreeSet<&Scope> = postings.iter().filter(|p| p.state == State::Estimated).map(|p| &p.scope).collect();
    let mut out = Vec::new();
    for (scope, bill) in &bills {
        let own = posted.get(scope).copied().unwrap_or(Decimal { mantissa: 0, scale: bill.scale });
        let difference = bill.checked_sub(own).unwrap_or(*bill);
        let state = if difference.is_zero() { "closed" } else { "open" };
        out.push(Closing { scope: scope.clone(), bill: *bill, posted: own, difference, state: state.to_string() });
    }
    for scope in estimates {
        let own = posted.get(scope).copied().unwrap_or(Decimal::ZERO);
        let difference = Decimal { mantissa: 0, scale: own.scale };
        out.push(Closing { scope: scope.clone(), bill: own, posted: own, difference, state: "estimated".to_string() });
    }
    out
}

/// A machine's host share, kept apart: spread evenly over the paid hours.
pub fn spread_over_paid(pool: &Pool<'_>, paid: &WindowSet, template: &Posting, out: &mut Vec<Posting>) {
    let mut hours: BTreeMap<i64, u128> = BTreeMap::new();
    for part in paid.parts() {
        for hour in part.aligned_parts(HOUR_MS) {
            *hours.entry(floor_to(hour.from_ms, HOUR_MS)).or_default() += hour.duration_ms() as u128;
        }
    }
    let weights: Vec<u128> = hours.values().copied().collect();
    let Some(parts) = split_largest_remainder(pool.units, &weights) else { return };
    for (hour_ms, units) in hours.keys().zip(parts) {
        if units != 0 {
            out.push(Posting {
                scope: pool.scope.clone(),
                pool: pool.id.clone(),
                hour_ms: *hour_ms,
                amount: Decimal { mantissa: units, scale: pool.scale },
                state: pool.state,
                ..template.clone()
            });
        }
    }
}
