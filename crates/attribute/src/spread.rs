//! From a machine's paid time to weights: device-milliseconds x share x part, as exact ratios, per
//! (hour, device, holder, cause) (ACCOUNTING sections 3, 6 and 8).

use std::collections::BTreeMap;

use gpuledger_model::cause::{Cause, Confidence, Part};
use gpuledger_model::mig::{Share, gcd};
use gpuledger_model::money::{split_largest_remainder, split_largest_remainder_wide};
use gpuledger_model::tables::placement::{Holder, Placements, RecordKind};
use gpuledger_model::time::{HOUR_MS, Window, WindowSet, floor_to};
use num_bigint::BigUint;

use crate::device::{UnitKind, UnitSpan};
use crate::ladder::{UnitVerdicts, WHOLE_PPM};
use crate::observe::{MachineRecord, UnitRecord};
use crate::window::WindowField;

/// The finest key of a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FineKey {
    /// Start of the hour.
    pub hour_ms: i64,
    /// Rank of the unit's id among the machine's, in byte order.
    pub unit: u32,
    /// Row of the holder table; `u32::MAX` where nobody held.
    pub holder: u32,
    /// Cause.
    pub cause: Cause,
    /// Part.
    pub part: Part,
    /// Rule.
    pub rule: &'static str,
    /// Confidence.
    pub confidence: Confidence,
}

/// Nobody.
pub const NOBODY: u32 = u32::MAX;

/// A stretch of time with one cause, for findings: weight in device-ms x 10^6.
#[derive(Clone, Copy, Debug)]
pub struct Stretch {
    /// When.
    pub window: Window,
    /// Unit rank.
    pub unit: u32,
    /// Holder row or [`NOBODY`].
    pub holder: u32,
    /// Cause.
    pub cause: Cause,
    /// Rule.
    pub rule: &'static str,
    /// Confidence.
    pub confidence: Confidence,
    /// Weight.
    pub weight: u64,
}

/// A sum of fractions by denominator.
#[derive(Clone, Debug, Default)]
struct Fractions(Vec<(u64, u128)>);

impl Fractions {
    fn add(&mut self, numerator: u128, denominator: u64) {
        match self.0.iter_mut().find(|(d, _)| *d == denominator) {
            Some((_, n)) => *n += numerator,
            None => self.0.push((denominator, numerator)),
        }
    }
}

/// Weights of a paid time.
#[derive(Clone, Debug, Default)]
pub struct Weights {
    rows: BTreeMap<FineKey, (Fractions, f64)>,
    /// Stretches for findings.
    pub stretches: Vec<Stretch>,
}

/// Context of a machine.
pub struct Spreader<'a> {
    /// The machine's record.
    pub record: &'a MachineRecord,
    /// Its verdicts.
    pub verdicts: &'a BTreeMap<String, UnitVerdicts>,
    /// Placements.
    pub placements: &'a Placements,
    /// Holder table: placements' holders, then those that only labels know.
    pub holders: &'a [Holder],
    /// Until when open holdings and coverage of a single dump last.
    pub dump_end_ms: i64,
    /// End of data.
    pub data_end_ms: i64,
    /// Unit ids in byte order.
    pub unit_ids: &'a [&'a str],
}

impl Spreader<'_> {
    /// Weights of the paid time; `placed` is the confidence of its placement.
    pub fn weights(&self, paid: &WindowSet, placed: Confidence) -> Weights {
        let mut out = Weights::default();
        let Some((first, last)) = paid.parts().first().zip(paid.parts().last()) else { return out };
        for span in &self.record.units {
            let window = span.window.intersect(Window::new(first.from_ms, last.to_ms));
            if window.is_empty() {
                continue;
            }
            let Ok(unit) = self.unit_ids.binary_search(&span.id.as_str()) else { continue };
            for hour in window.aligned_parts(HOUR_MS) {
                let own = paid.clipped(hour);
                if !own.parts().is_empty() {
                    self.unit_hour(span, unit as u32, hour, &own, placed, &mut out);
                }
            }
        }
        out
    }

    /// The strongest record that knows a node of the machine within a time.
    fn covering(&self, window: Window) -> Option<RecordKind> {
        self.record.machine.nodes_within(window).filter_map(|n| n.record).max()
    }

    fn open_end(&self, record: Option<RecordKind>) -> i64 {
        match record {
            Some(RecordKind::KubernetesDump) => self.dump_end_ms,
            _ => self.data_end_ms,
        }
    }

    fn unit_hour(&self, span: &UnitSpan, unit: u32, hour: Window, paid: &WindowSet, placed: Confidence, out: &mut Weights) {
        let hour_ms = floor_to(hour.from_ms, HOUR_MS);
        let simple = |cause, part, rule, confidence| FineKey { hour_ms, unit, holder: NOBODY, cause, part, rule, confidence };
        match span.kind {
            UnitKind::Stranded => {
                let key = simple(Cause::LayoutStranded, Part::NotHeld, "layout_stranded", placed);
                out.add_time(key, paid, span.share);
                return;
            }
            UnitKind::Missing => {
                // The node's own record says what it lacks.
                let sure = record_confidence(self.covering(hour), placed);
                out.add_time(simple(Cause::Faulty, Part::NotHeld, "faulty.missing", sure), paid, span.share);
                return;
            }
            UnitKind::Unknown => {
                out.add_time(simple(Cause::Unobserved, Part::Unknown, "unobserved.place", placed.min(Confidence::Low)), paid, span.share);
                return;
            }
            UnitKind::Board | UnitKind::Instance | UnitKind::Anonymous => {}
        }
        let Some(record) = self.record.unit_records.get(&span.id) else { return };
        let mut at = hour.from_ms;
        let first = record.held.partition_point(|h| h.window.to_ms <= hour.from_ms);
        for held in record.held[first..].iter().take_while(|h| h.window.from_ms < hour.to_ms) {
            // An open end lasts as long as its record covers the node.
            let end = if held.window.to_ms == i64::MAX {
                let record_kind = held.holders.first().and_then(|(row, _)| self.record.holdings.rows[*row].record);
                self.open_end(record_kind)
            } else {
                held.window.to_ms
            };
            let window = Window::new(held.window.from_ms, end).intersect(hour);
            if window.is_empty() {
                continue;
            }
            self.not_held(span, record, unit, Window::new(at, window.from_ms), paid, span.share, placed, out);
            at = window.to_ms;
            let mut used = Share { numerator: 0, denominator: 1 };
            for (row, share) in &held.holders {
                let own = share.times(span.share);
                self.held(record, unit, *row, window, paid, own, placed, out);
                used = add_share(used, *share);
            }
            if used.numerator < used.denominator {
                let rest = Share::new(used.denominator - used.numerator, used.denominator).times(span.share);
                self.not_held(span, record, unit, window, paid, rest, placed, out);
            }
        }
        self.not_held(span, record, unit, Window::new(at, hour.to_ms), paid, span.share, placed, out);
    }

    #[allow(clippy::too_many_arguments, reason = "one private step of one loop; a struct would only rename its locals")]
    fn held(
        &self,
        record: &UnitRecord,
        unit: u32,
        holding: usize,
        window: Window,
        paid: &WindowSet,
        share: Share,
        placed: Confidence,
        out: &mut Weights,
    ) {
        let row = &self.record.holdings.rows[holding];
        let hour_ms = floor_to(window.from_ms, HOUR_MS);
        let sure = row.confidence.min(placed);
        let key = |cause, part, rule, confidence| FineKey { hour_ms, unit, holder: row.holder as u32, cause, part, rule, confidence };
        let unobserved = key(Cause::Unobserved, Part::Unknown, "unobserved.held", sure);
        let faulty = key(Cause::Faulty, Part::Idle, "faulty.vanished", sure);
        let verdicts = self.verdicts.get(self.unit_ids[unit as usize]);
        let mut at = window.from_ms;
        for index in record.windows.rows_within(window) {
            let own = record.windows.window(index);
            let inside = own.intersect(window);
            self.unobserved(Window::new(at, inside.from_ms), paid, record, share, faulty, unobserved, out);
            at = inside.to_ms;
            let paid_ms = paid.overlap_ms(inside);
            if paid_ms == 0 {
                continue;
            }
            let length = own.duration_ms();
            let observed = record.windows.observed_ms[index];
            let joules = record
                .windows
                .sum(WindowField::Energy, index)
                .or_else(|| record.windows.sum(WindowField::Power, index))
                .map_or(0.0, |(_, sum)| sum as f64 / 1e9 * share.as_f64() * paid_ms as f64 / length as f64);
            let pieces = verdicts.and_then(|v| v.pieces.get(index)).and_then(|p| p.iter().find(|(h, _)| *h == holding));
            match pieces {
                Some((_, pieces)) => {
                    for piece in pieces {
                        let key = key(piece.cause, piece.part, piece.rule, piece.confidence.min(sure));
                        out.add(key, inside, paid_ms, piece.ppm, share, (observed, length), joules);
                    }
                }
                None => out.add(unobserved, inside, paid_ms, WHOLE_PPM, share, (observed, length), joules),
            }
            let missing = length - observed;
            if missing > 0 {
                let broken = record.faulty.overlap_ms(own).min(missing);
                out.add(faulty, inside, paid_ms, WHOLE_PPM, share, (broken, length), 0.0);
                out.add(unobserved, inside, paid_ms, WHOLE_PPM, share, (missing - broken, length), 0.0);
            }
        }
        self.unobserved(Window::new(at, window.to_ms), paid, record, share, faulty, unobserved, out);
    }

    #[allow(clippy::too_many_arguments, reason = "one private step of one loop; a struct would only rename its locals")]
    fn unobserved(
        &self,
        window: Window,
        paid: &WindowSet,
        record: &UnitRecord,
        share: Share,
        faulty: FineKey,
        unobserved: FineKey,
        out: &mut Weights,
    ) {
        if window.is_empty() {
            return;
        }
        let own = paid.clipped(window);
        let rest = own.minus(&record.faulty);
        out.add_time(faulty, &own.minus(&rest), share);
        out.add_time(unobserved, &rest, share);
    }

    #[allow(clippy::too_many_arguments, reason = "one private step of one loop; a struct would only rename its locals")]
    fn not_held(
        &self,
        span: &UnitSpan,
        record: &UnitRecord,
        unit: u32,
        window: Window,
        paid: &WindowSet,
        share: Share,
        placed: Confidence,
        out: &mut Weights,
    ) {
        if window.is_empty() {
            return;
        }
        let mut left = paid.clipped(window);
        if left.parts().is_empty() {
            return;
        }
        let hour_ms = floor_to(window.from_ms, HOUR_MS);
        let nodes: Vec<_> = self.record.machine.nodes_within(window).collect();
        let covering = self.covering(window);
        let sure = record_confidence(covering, placed);
        let mut post = |part_of: WindowSet, cause, part, rule, confidence, left: &mut WindowSet| {
            *left = left.minus(&part_of);
            out.add_time(FineKey { hour_ms, unit, holder: NOBODY, cause, part, rule, confidence }, &part_of, share);
        };
        let common = |set: &WindowSet, left: &WindowSet| left.minus(&left.minus(set));
        let broken = common(&record.faulty, &left);
        post(broken, Cause::Faulty, Part::NotHeld, "faulty.vanished", sure, &mut left);
        let cutting = common(&record.reconfiguring, &left);
        post(cutting, Cause::Reconfiguring, Part::NotHeld, "reconfiguring", sure, &mut left);
        let coverage_end = self.open_end(covering);
        let mut covered = Vec::new();
        for node in &nodes {
            let Some(at) = node.node.filter(|_| node.record.is_some()) else { continue };
            let row = &self.placements.nodes[at];
            covered.push(Window::new(node.window.from_ms, node.window.to_ms.min(coverage_end)));
            if row.is_cordoned {
                let closed = Window::new(row.cordoned_from_ms.unwrap_or(i64::MIN), coverage_end).intersect(node.window);
                let closed = common(&WindowSet::from_windows(vec![closed]), &left);
                post(closed, Cause::Cordoned, Part::NotHeld, "cordoned", sure, &mut left);
            }
        }
        if let Some(reserved) = self.record.holdings.reserved.get(&span.id) {
            let reserved = common(reserved, &left);
            post(reserved, Cause::ReservedUnused, Part::NotHeld, "reserved_unused", sure, &mut left);
        }
        let known = common(&WindowSet::from_windows(covered), &left);
        post(known, Cause::Unallocated, Part::NotHeld, "unallocated", sure, &mut left);
        let rest = left.clone();
        post(rest, Cause::Unobserved, Part::Unknown, "unobserved.no_record", sure.min(Confidence::Low), &mut left);
        // Energy of unheld, observed time belongs to whatever was posted there first.
        let joules: f64 = record
            .windows
            .rows_within(window)
            .filter_map(|index| {
                let own = record.windows.window(index);
                let (_, sum) = record.windows.sum(WindowField::Energy, index).or_else(|| record.windows.sum(WindowField::Power, index))?;
                Some(sum as f64 / 1e9 * share.as_f64() * paid.overlap_ms(own.intersect(window)) as f64 / own.duration_ms() as f64)
            })
            .sum();
        if joules > 0.0 {
            out.add_energy(hour_ms, unit, joules);
        }
    }
}

/// Time not held is as sure as its record.
fn record_confidence(record: Option<RecordKind>, placed: Confidence) -> Confidence {
    match record {
        Some(RecordKind::SlurmAccounting) => placed,
        Some(RecordKind::KubernetesDump) => placed.min(Confidence::Medium),
        _ => Confidence::Low,
    }
}

fn add_share(a: Share, b: Share) -> Share {
    let divisor = gcd(a.denominator, b.denominator);
    let denominator = a.denominator / divisor * b.denominator;
    Share::new(a.numerator * (denominator / a.denominator) + b.numerator * (denominator / b.denominator), denominator)
}

impl Weights {
    /// Adds paid milliseconds x `ppm` x share x a ratio of the window (observed of its length).
    #[allow(clippy::too_many_arguments, reason = "the factors of one product")]
    fn add(&mut self, key: FineKey, window: Window, paid_ms: i64, ppm: i64, share: Share, of_window: (i64, i64), joules: f64) {
        let (mut over, mut under) = (of_window.0 as u64, of_window.1 as u64);
        if over == 0 || ppm == 0 || paid_ms == 0 {
            return;
        }
        // A window that is paid whole gives its observed milliseconds as they are.
        let mut ms = paid_ms as u64;
        if ms == under {
            ms = over;
            (over, under) = (1, 1);
        }
        let divisor = gcd(over, under).max(1);
        (over, under) = (over / divisor, under / divisor);
        let numerator = u128::from(ms) * u128::from(over) * ppm as u128 * u128::from(share.numerator);
        let entry = self.rows.entry(key).or_default();
        entry.0.add(numerator, under * share.denominator);
        entry.1 += joules * ppm as f64 / WHOLE_PPM as f64;
        self.stretch(key, window, (ms as f64 * over as f64 / under as f64 * ppm as f64 * share.as_f64()).round() as u64);
    }

    /// Adds a set of paid time whole.
    fn add_time(&mut self, key: FineKey, time: &WindowSet, share: Share) {
        for part in time.parts() {
            let ms = part.duration_ms();
            self.rows.entry(key).or_default().0.add(ms as u128 * WHOLE_PPM as u128 * u128::from(share.numerator), share.denominator);
            self.stretch(key, *part, (ms as f64 * WHOLE_PPM as f64 * share.as_f64()).round() as u64);
        }
    }

    fn add_energy(&mut self, hour_ms: i64, unit: u32, joules: f64) {
        let low = FineKey { hour_ms, unit, holder: NOBODY, cause: Cause::Useful, part: Part::Bill, rule: "", confidence: Confidence::Low };
        if let Some((_, (_, own))) = self.rows.range_mut(low..).find(|(k, _)| k.hour_ms == hour_ms && k.unit == unit && k.holder == NOBODY)
        {
            *own += joules;
        }
    }

    fn stretch(&mut self, key: FineKey, window: Window, weight: u64) {
        use gpuledger_model::cause::Class;
        if weight > 0 && matches!(key.cause.class(), Class::Waste | Class::Tunable | Class::Unknown) {
            self.stretches.push(Stretch {
                window,
                unit: key.unit,
                holder: key.holder,
                cause: key.cause,
                rule: key.rule,
                confidence: key.confidence,
                weight,
            });
        }
    }

    /// Whether nothing was weighed.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The weights as integers of one common denominator, in order of their keys.
    pub fn finish(self) -> Spread {
        let mut common = BigUint::from(1u8);
        for (fractions, _) in self.rows.values() {
            for (denominator, _) in &fractions.0 {
                let own = BigUint::from(*denominator);
                let divisor = big_gcd(common.clone(), own.clone());
                common = &common / divisor * own;
            }
        }
        let joules = self.rows.values().map(|(_, energy)| *energy).collect();
        let weights = self.narrow(&common).map(Integers::Narrow).unwrap_or_else(|| {
            let sum = |fractions: &Fractions| fractions.0.iter().map(|(d, n)| &common / BigUint::from(*d) * BigUint::from(*n)).sum();
            Integers::Wide(self.rows.values().map(|(fractions, _)| sum(fractions)).collect())
        });
        Spread { keys: self.rows.into_keys().collect(), weights, joules, common, stretches: self.stretches }
    }

    fn narrow(&self, common: &BigUint) -> Option<Vec<u128>> {
        let common = u64::try_from(common).ok()?;
        self.rows
            .values()
            .map(|(fractions, _)| {
                fractions.0.iter().try_fold(0u128, |sum, (denominator, numerator)| {
                    numerator.checked_mul(u128::from(common / denominator)).and_then(|own| sum.checked_add(own))
                })
            })
            .collect()
    }
}

fn big_gcd(mut a: BigUint, mut b: BigUint) -> BigUint {
    while b != BigUint::ZERO {
        (a, b) = (b.clone(), a % b);
    }
    a
}

/// Integer weights.
#[derive(Clone, Debug)]
pub enum Integers {
    /// Within 128 bits.
    Narrow(Vec<u128>),
    /// Beyond.
    Wide(Vec<BigUint>),
}

impl Integers {
    /// Sums by runs: `ends` are the exclusive ends of the groups, in order.
    pub fn grouped(&self, ends: &[usize]) -> Integers {
        let mut start = 0;
        match self {
            Integers::Narrow(values) => {
                let mut out = Vec::with_capacity(ends.len());
                for end in ends {
                    match values[start..*end].iter().try_fold(0u128, |a, b| a.checked_add(*b)) {
                        Some(sum) => out.push(sum),
                        None => return self.widened().grouped(ends),
                    }
                    start = *end;
                }
                Integers::Narrow(out)
            }
            Integers::Wide(values) => Integers::Wide(
                ends.iter()
                    .map(|end| {
                        let sum = values[start..*end].iter().sum();
                        start = *end;
                        sum
                    })
                    .collect(),
            ),
        }
    }

    fn widened(&self) -> Integers {
        match self {
            Integers::Narrow(values) => Integers::Wide(values.iter().map(|v| BigUint::from(*v)).collect()),
            Integers::Wide(values) => Integers::Wide(values.clone()),
        }
    }

    /// A part of them.
    pub fn slice(&self, range: std::ops::Range<usize>) -> Integers {
        match self {
            Integers::Narrow(values) => Integers::Narrow(values[range].to_vec()),
            Integers::Wide(values) => Integers::Wide(values[range].to_vec()),
        }
    }

    /// The weights at some places.
    pub fn picked(&self, places: &[usize]) -> Integers {
        match self {
            Integers::Narrow(values) => Integers::Narrow(places.iter().map(|at| values[*at]).collect()),
            Integers::Wide(values) => Integers::Wide(places.iter().map(|at| values[*at].clone()).collect()),
        }
    }

    /// Their sum over a common denominator, as whole device-milliseconds rounded half up.
    pub fn total_over(&self, common: &BigUint) -> i64 {
        let sum: BigUint = match self.widened() {
            Integers::Wide(values) => values.iter().sum(),
            Integers::Narrow(_) => BigUint::ZERO,
        };
        let under = common * BigUint::from(WHOLE_PPM as u64);
        i64::try_from((sum * 2u8 + &under) / (under * 2u8)).unwrap_or(i64::MAX)
    }

    /// Splits a total over them by largest remainder.
    pub fn split(&self, total: i128) -> Option<Vec<i128>> {
        match self {
            Integers::Narrow(values) => split_largest_remainder(total, values),
            Integers::Wide(values) => split_largest_remainder_wide(total, values),
        }
    }

    /// Whether the weight at `a` is above that at `b`.
    pub fn above(&self, a: usize, b: usize) -> bool {
        match self {
            Integers::Narrow(values) => values[a] > values[b],
            Integers::Wide(values) => values[a] > values[b],
        }
    }

    /// Number of weights.
    pub fn len(&self) -> usize {
        match self {
            Integers::Narrow(values) => values.len(),
            Integers::Wide(values) => values.len(),
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Weights ready to split amounts over.
#[derive(Clone, Debug)]
pub struct Spread {
    /// Keys in order.
    pub keys: Vec<FineKey>,
    /// Their weights.
    pub weights: Integers,
    /// Their energy, joules.
    pub joules: Vec<f64>,
    /// The common denominator: a weight over it is device-milliseconds x 10^6.
    pub common: BigUint,
    /// Stretches for findings.
    pub stretches: Vec<Stretch>,
}
