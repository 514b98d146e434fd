//! The ladder of a window: paid >= held >= engine busy >= filled >= issuing >= useful, and the one name of each
//! part (ACCOUNTING section 6). Levels are whole parts per million, rounded half up once from exact means.

use std::collections::BTreeMap;

use gpuledger_model::cause::{Cause, Confidence, Part};
use gpuledger_model::tables::placement::Holder;
use gpuledger_model::time::{MINUTE_MS, WINDOW_MS, Window, WindowSet, floor_to};

use crate::facts::{Facts, Grade, machine_facts};
use crate::lost::{Lost, lost_work};
use crate::observe::{MachineRecord, UnitRecord};
use crate::remark;
use crate::rules::RuleBook;
use crate::window::WindowField;

/// Parts per million of a whole.
pub const WHOLE_PPM: i64 = 1_000_000;

/// A part of a window's held and observed time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its name.
    pub cause: Cause,
    /// Its step.
    pub part: Part,
    /// Parts per million of the window.
    pub ppm: i64,
    /// The rule that named it.
    pub rule: &'static str,
    /// Grade and rule; the holding's and the placement's confidence come on top.
    pub confidence: Confidence,
}

/// The pieces of each window of a unit, per holder: `pieces[row]` lists (holding row, pieces).
#[derive(Clone, Debug, Default)]
pub struct UnitVerdicts {
    /// By window row.
    pub pieces: Vec<Vec<(usize, Vec<Piece>)>>,
}

/// Findings of the ladder that post nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// Kind.
    pub kind: &'static str,
    /// Subject.
    pub subject: String,
    /// When.
    pub window: Window,
    /// Figures.
    pub evidence: String,
    /// What would change it.
    pub would_change: &'static str,
}

/// Judges all windows. The result is by machine and unit id.
pub fn judge(records: &[MachineRecord], holders: &[Holder], book: &RuleBook) -> (Vec<BTreeMap<String, UnitVerdicts>>, Vec<Remark>) {
    let mut remarks = Vec::new();
    let facts: Vec<BTreeMap<&str, Vec<Facts>>> = records.iter().map(|record| machine_facts(record, book)).collect();
    let mut work = HolderWork::collect(records, &facts, holders, book);
    let lost = lost_work(holders, &mut remarks);
    // Rule 6 first, for all devices: it lets idle windows of the same run wait.
    let fires: Vec<BTreeMap<&str, Vec<Vec<bool>>>> =
        records.iter().zip(&facts).map(|(record, facts)| interconnect_fires(record, facts, &work, book)).collect();
    remarks.extend(remark::Ground { records, facts: &facts, fires: &fires, holders, book }.remarks());
    for (record, fires) in records.iter().zip(&fires) {
        for (unit, rows) in fires {
            let unit_record = &record.unit_records[*unit];
            for (row, by_holder) in rows.iter().enumerate() {
                for ((at, _), fired) in holders_of_row(unit_record, row).iter().zip(by_holder) {
                    if *fired {
                        let run = holders[record.holdings.rows[*at].holder].run.clone();
                        work.run_waits.entry(run).or_default().entry(unit.to_string()).or_default().push(unit_record.windows.window(row));
                    }
                }
            }
        }
    }
    let waits: BTreeMap<String, BTreeMap<String, WindowSet>> = std::mem::take(&mut work.run_waits)
        .into_iter()
        .map(|(run, units)| (run, units.into_iter().map(|(unit, windows)| (unit, WindowSet::from_windows(windows))).collect()))
        .collect();
    let mut out = Vec::new();
    for ((record, facts), fires) in records.iter().zip(&facts).zip(&fires) {
        let mut by_unit = BTreeMap::new();
        for (id, unit) in &record.unit_records {
            let judge = UnitJudge {
                record,
                id,
                unit,
                facts: &facts[id.as_str()],
                fires: &fires[id.as_str()],
                holders,
                work: &work,
                waits: &waits,
                lost: &lost,
                book,
            };
            by_unit.insert(id.clone(), judge.verdicts());
        }
        out.push(by_unit);
    }
    (out, remarks)
}

pub(crate) fn holders_of_row(unit: &UnitRecord, row: usize) -> &[(usize, gpuledger_model::mig::Share)] {
    let window = unit.windows.window(row);
    let at = unit.held.partition_point(|h| h.window.to_ms <= window.from_ms);
    match unit.held.get(at) {
        Some(held) if held.window.from_ms <= window.from_ms => &held.holders,
        _ => &[],
    }
}

/// What a holder did over all its devices.
#[derive(Clone, Copy, Debug, Default)]
struct HolderStats {
    first_working_ms: Option<i64>,
    busiest_watts: Option<f64>,
    holding_from_ms: Option<i64>,
}

#[derive(Default)]
struct HolderWork {
    stats: BTreeMap<usize, HolderStats>,
    run_waits: BTreeMap<String, BTreeMap<String, Vec<Window>>>,
}

impl HolderWork {
    fn collect(records: &[MachineRecord], facts: &[BTreeMap<&str, Vec<Facts>>], holders: &[Holder], book: &RuleBook) -> HolderWork {
        let mut out = HolderWork::default();
        for (record, facts) in records.iter().zip(facts) {
            for row in &record.holdings.rows {
                let own = out.stats.entry(row.holder).or_default();
                let from = row.window.from_ms.max(holders[row.holder].from_ms);
                own.holding_from_ms = Some(own.holding_from_ms.map_or(from, |f| f.min(from)));
            }
            for (id, unit) in &record.unit_records {
                // Power by 5-minute slot and holder.
                let mut slots: BTreeMap<(usize, i64), (i64, i128)> = BTreeMap::new();
                for (row, own_facts) in facts[id.as_str()].iter().enumerate() {
                    for (at, _) in holders_of_row(unit, row) {
                        let holder = record.holdings.rows[*at].holder;
                        let stats = out.stats.entry(holder).or_default();
                        if !own_facts.is_idle && !own_facts.latch {
                            let from = unit.windows.from_ms[row];
                            stats.first_working_ms = Some(stats.first_working_ms.map_or(from, |f| f.min(from)));
                        }
                        if let Some((covered, sum)) = unit.windows.sum(WindowField::Power, row) {
                            let slot = slots.entry((holder, floor_to(unit.windows.from_ms[row], WINDOW_MS))).or_default();
                            slot.0 += covered;
                            slot.1 += sum;
                        }
                    }
                }
                for ((holder, _), (covered, sum)) in slots {
                    if covered >= book.interconnect_wait.busy_power_seconds_min * 1000 {
                        let watts = sum as f64 / covered as f64 / 1e6;
                        let stats = out.stats.entry(holder).or_default();
                        stats.busiest_watts = Some(stats.busiest_watts.map_or(watts, |b| b.max(watts)));
                    }
                }
            }
        }
        out
    }
}

fn interconnect_fires<'a>(
    record: &'a MachineRecord,
    facts: &BTreeMap<&str, Vec<Facts>>,
    work: &HolderWork,
    book: &RuleBook,
) -> BTreeMap<&'a str, Vec<Vec<bool>>> {
    let mut out = BTreeMap::new();
    for (id, unit) in &record.unit_records {
        let rows = (0..unit.windows.len())
            .map(|row| {
                holders_of_row(unit, row)
                    .iter()
                    .map(|(at, _)| {
                        let holder = record.holdings.rows[*at].holder;
                        let busiest = work.stats.get(&holder).and_then(|s| s.busiest_watts);
                        rule_6(&facts[id.as_str()][row], busiest, book)
                    })
                    .collect()
            })
            .collect();
        out.insert(id.as_str(), rows);
    }
    out
}

/// Rule 6 (b) spinning at low power, (c) a hang.
fn rule_6(facts: &Facts, busiest_watts: Option<f64>, book: &RuleBook) -> bool {
    let spins = match (facts.sm, facts.tensor, facts.power_watts, busiest_watts) {
        (Some(sm), Some(tensor), Some(watts), Some(busiest)) => {
            sm >= book.interconnect_wait.sm_ratio_min
                && tensor < book.interconnect_wait.tensor_ratio_max
                && watts < book.interconnect_wait.power_of_busy_ratio_max * busiest
        }
        _ => false,
    };
    spins || facts.hang
}

struct UnitJudge<'a> {
    record: &'a MachineRecord,
    id: &'a str,
    unit: &'a UnitRecord,
    facts: &'a [Facts],
    fires: &'a [Vec<bool>],
    holders: &'a [Holder],
    work: &'a HolderWork,
    waits: &'a BTreeMap<String, BTreeMap<String, WindowSet>>,
    lost: &'a BTreeMap<usize, Lost>,
    book: &'a RuleBook,
}

impl UnitJudge<'_> {
    fn verdicts(&self) -> UnitVerdicts {
        let count = self.unit.windows.len();
        let in_run = self.idle_runs();
        let mut pieces = Vec::with_capacity(count);
        for row in 0..count {
            let holders = holders_of_row(self.unit, row);
            let mut own = Vec::with_capacity(holders.len());
            for (place, (at, _)) in holders.iter().enumerate() {
                let idle_run = in_run.get(&self.record.holdings.rows[*at].holder).is_some_and(|rows| rows[row]);
                let mut parts = self.pieces(row, *at, self.fires[row][place], idle_run);
                if holders.len() > 1 {
                    for piece in &mut parts {
                        piece.confidence = Confidence::Low;
                    }
                }
                debug_assert_eq!(parts.iter().map(|p| p.ppm).sum::<i64>(), WHOLE_PPM);
                own.push((*at, parts));
            }
            pieces.push(own);
        }
        UnitVerdicts { pieces }
    }

    /// Rows within runs of idle windows of one holder of at least `idle_min`, by holder.
    fn idle_runs(&self) -> BTreeMap<usize, Vec<bool>> {
        let windows = &self.unit.windows;
        let mut by_holder: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for row in 0..windows.len() {
            for (at, _) in holders_of_row(self.unit, row) {
                by_holder.entry(self.record.holdings.rows[*at].holder).or_default().push(row);
            }
        }
        let break_ms = self.book.idle.unobserved_break_minutes * MINUTE_MS;
        let least_ms = self.book.idle.idle_minutes_min * MINUTE_MS;
        let mut out = BTreeMap::new();
        for (holder, mut rows) in by_holder {
            rows.dedup();
            let mut flags = vec![false; windows.len()];
            let mut run: Vec<usize> = Vec::new();
            let mut length = 0;
            let close = |run: &mut Vec<usize>, length: &mut i64, flags: &mut Vec<bool>| {
                if *length >= least_ms {
                    for row in run.iter() {
                        flags[*row] = true;
                    }
                }
                run.clear();
                *length = 0;
            };
            for row in rows {
                if let Some(last) = run.last() {
                    let gap = windows.from_ms[row] - windows.to_ms[*last];
                    if gap > break_ms || (gap > 0 && !self.held_throughout(holder, windows.to_ms[*last], windows.from_ms[row])) {
                        close(&mut run, &mut length, &mut flags);
                    }
                }
                if self.facts[row].is_idle {
                    length += windows.to_ms[row] - windows.from_ms[row];
                    run.push(row);
                } else {
                    close(&mut run, &mut length, &mut flags);
                }
            }
            close(&mut run, &mut length, &mut flags);
            out.insert(holder, flags);
        }
        out
    }

    fn held_throughout(&self, holder: usize, from_ms: i64, to_ms: i64) -> bool {
        let held: Vec<Window> = self
            .unit
            .held
            .iter()
            .filter(|h| h.holders.iter().any(|(at, _)| self.record.holdings.rows[*at].holder == holder))
            .map(|h| h.window)
            .collect();
        WindowSet::from_windows(held).overlap_ms(Window::new(from_ms, to_ms)) == to_ms - from_ms
    }

    fn is_starting(&self, row: usize, at: usize) -> bool {
        let holding = &self.record.holdings.rows[at];
        let Some(stats) = self.work.stats.get(&holding.holder) else { return false };
        let start = stats.holding_from_ms.unwrap_or(holding.window.from_ms);
        let (from, to) = (self.unit.windows.from_ms[row], self.unit.windows.to_ms[row]);
        let within = to.saturating_sub(start) <= self.book.idle.starting_minutes * MINUTE_MS;
        within && stats.first_working_ms.is_none_or(|first| from < first) && self.facts[row].is_idle
    }

    /// The name of an idle window's idle part.
    fn idle_name(&self, row: usize, at: usize, in_run: bool) -> Option<(Cause, &'static str)> {
        let facts = &self.facts[row];
        let holding = &self.record.holdings.rows[at];
        let holder = &self.holders[holding.holder];
        if self.is_starting(row, at) {
            return Some((Cause::Starting, "starting"));
        }
        if !in_run {
            return None;
        }
        if facts.broken {
            return Some((Cause::Faulty, "faulty.xid"));
        }
        if holder.standby_declared {
            return Some((Cause::Standby, "standby"));
        }
        if self.run_waits_elsewhere(&holder.run, row) {
            return Some((Cause::InterconnectWait, "interconnect_wait.6.peer"));
        }
        if facts.memory.is_some_and(|m| m >= self.book.idle.parked_memory_ratio_min) || facts.process {
            return Some((Cause::VramParked, "vram_parked"));
        }
        Some((Cause::Empty, "empty"))
    }

    fn run_waits_elsewhere(&self, run: &str, row: usize) -> bool {
        let window = self.unit.windows.window(row);
        self.waits.get(run).is_some_and(|units| units.iter().any(|(unit, set)| unit != self.id && set.overlap_ms(window) > 0))
    }

    fn input_starved(&self, row: usize, at: usize) -> Option<bool> {
        let facts = &self.facts[row];
        let rule = &self.book.input_starved;
        let g = facts.g as f64 / 1e6;
        if g < self.book.idle.engine_ratio_max || g >= rule.engine_ratio_max {
            return None;
        }
        let unfilled = match (facts.sm, facts.tensor, facts.dram) {
            (Some(sm), _, _) => sm < rule.sm_ratio_max,
            (None, Some(tensor), Some(dram)) => tensor < rule.tensor_ratio_max && dram < rule.dram_ratio_max,
            _ => false,
        };
        if !unfilled || facts.pcie_mb.is_none_or(|p| p >= rule.pcie_mb_per_second_max) {
            return None;
        }
        let holder = self.record.holdings.rows[at].holder;
        let of_limit = self.unit.signals.get(&(row, holder)).and_then(|s| s.cpu_mean());
        let cpu = of_limit.or(facts.host_cpu);
        if cpu.is_some() || facts.host_iowait.is_some() {
            let starved =
                cpu.is_some_and(|c| c >= rule.host_cpu_ratio_min) || facts.host_iowait.is_some_and(|w| w >= rule.host_iowait_ratio_min);
            return starved.then_some(true);
        }
        facts.deviation.is_some_and(|d| d >= rule.engine_deviation_min).then_some(false)
    }

    fn bandwidth_expected(&self, row: usize, at: usize) -> bool {
        let holder = self.record.holdings.rows[at].holder;
        if self.holders[holder].bandwidth_expected {
            return true;
        }
        self.unit
            .signals
            .get(&(row, holder))
            .and_then(|s| s.running_mean())
            .is_some_and(|running| running >= self.book.bandwidth_bound.requests_running_min)
    }

    fn bandwidth_bound(&self, facts: &Facts) -> bool {
        let rule = &self.book.bandwidth_bound;
        let starves_sm = matches!((facts.dram, facts.sm), (Some(dram), Some(sm)) if dram >= rule.dram_ratio_min && sm < rule.sm_ratio_max);
        let alone = matches!((facts.dram, facts.tensor), (Some(dram), Some(tensor)) if dram >= rule.dram_alone_ratio_min && tensor < rule.tensor_ratio_max);
        facts.tensor.is_some() && (starves_sm || alone)
    }

    fn pieces(&self, row: usize, at: usize, waits: bool, in_run: bool) -> Vec<Piece> {
        let facts = &self.facts[row];
        let confidence = facts.grade.confidence();
        let whole = |cause, part, rule| vec![Piece { cause, part, ppm: WHOLE_PPM, rule, confidence }];
        match facts.grade {
            Grade::A | Grade::B => self.ladder(row, at, waits, in_run),
            Grade::C | Grade::D if facts.is_idle => match self.idle_name(row, at, in_run) {
                Some((cause, rule)) => whole(cause, Part::Idle, rule),
                None if facts.grade == Grade::D => whole(Cause::Unresolved, Part::Unknown, "grade_d"),
                None => whole(Cause::Headroom, Part::Idle, "idle_short"),
            },
            Grade::C if facts.hang => whole(Cause::InterconnectWait, Part::Issue, "interconnect_wait.6c"),
            Grade::C if facts.latch => whole(Cause::Empty, Part::Idle, "latched_counter"),
            Grade::C => whole(Cause::Unresolved, Part::Unknown, "grade_c"),
            Grade::D => whole(Cause::Unresolved, Part::Unknown, "grade_d"),
        }
    }

    fn ladder(&self, row: usize, at: usize, waits: bool, in_run: bool) -> Vec<Piece> {
        let facts = &self.facts[row];
        let book = self.book;
        let grade = facts.grade.confidence();
        let mut out = Vec::with_capacity(6);
        let mut push = |cause, part, ppm: i64, rule, confidence| {
            if ppm > 0 {
                out.push(Piece { cause, part, ppm, rule, confidence });
            }
        };
        // 1-g
        let starved = self.input_starved(row, at);
        let (cause, rule, sure) = if facts.is_idle {
            match self.idle_name(row, at, in_run) {
                Some((cause, rule)) => (cause, rule, grade),
                None => (Cause::Headroom, "idle_short", grade),
            }
        } else if let Some(by_host) = starved {
            (
                Cause::InputStarved,
                if by_host { "input_starved.4.host" } else { "input_starved.4.sawtooth" },
                if by_host { grade } else { Confidence::Low },
            )
        } else if facts.copy_bound {
            (Cause::InputStarved, "input_starved.5", grade)
        } else {
            (Cause::Headroom, "headroom.idle", grade)
        };
        push(cause, Part::Idle, WHOLE_PPM - facts.g, rule, sure);
        if facts.grade == Grade::A {
            let pcie_small = facts.pcie_mb.is_some_and(|p| p < book.under_filled.pcie_mb_per_second_max);
            let under_filled = facts.g as f64 / 1e6 >= book.under_filled.engine_ratio_min
                && facts.sm.is_some_and(|s| s < book.under_filled.sm_ratio_max)
                && facts.dram.is_some_and(|d| d < book.under_filled.dram_ratio_max)
                && pcie_small;
            let (cause, rule) = if waits {
                (Cause::InterconnectWait, "interconnect_wait.6")
            } else if facts.copy_bound {
                (Cause::CopyBound, "copy_bound.5")
            } else if under_filled {
                (Cause::UnderFilled, "under_filled.8")
            } else {
                (Cause::Headroom, "headroom.fill")
            };
            push(cause, Part::Fill, facts.g - facts.s, rule, grade);
            let low_precision = facts.sm.is_some_and(|s| s >= book.low_precision_unused.sm_ratio_min)
                && facts.tensor.is_some_and(|t| t < book.low_precision_unused.tensor_ratio_max)
                && facts.fp32.is_some_and(|f| f >= book.low_precision_unused.fp32_ratio_min);
            let latency = facts.occupancy.is_some_and(|o| o < book.memory_latency.occupancy_ratio_max)
                && facts.sm.is_some_and(|s| s >= book.memory_latency.sm_ratio_min)
                && facts.tensor.is_some_and(|t| t < book.memory_latency.tensor_ratio_max);
            let (cause, rule) = if waits {
                (Cause::InterconnectWait, "interconnect_wait.6")
            } else if facts.throttled {
                (Cause::Throttled, "throttled.12")
            } else if low_precision {
                (Cause::LowPrecisionUnused, "low_precision_unused.9")
            } else if latency {
                (Cause::MemoryLatency, "memory_latency.10")
            } else {
                (Cause::Headroom, "headroom.issue")
            };
            push(cause, Part::Issue, facts.s - facts.u, rule, grade);
        } else {
            let missing = facts.tensor.is_none() || facts.dram.is_none();
            let (cause, part, rule) = if waits {
                (Cause::InterconnectWait, Part::Issue, "interconnect_wait.6")
            } else if facts.copy_bound {
                (Cause::CopyBound, Part::Fill, "copy_bound.5")
            } else if facts.throttled {
                (Cause::Throttled, Part::Issue, "throttled.12")
            } else if missing {
                (Cause::Unresolved, Part::Unknown, "grade_b")
            } else {
                (Cause::Headroom, Part::Issue, "headroom.issue")
            };
            push(cause, part, facts.g - facts.u, rule, grade);
        }
        // u-useful, and what is left
        let mut useful = facts.u;
        if self.bandwidth_bound(facts) && !self.bandwidth_expected(row, at) {
            let tensor = facts.t.min(facts.u);
            push(Cause::BandwidthBound, Part::Use, facts.u - tensor, "bandwidth_bound.7", grade);
            useful = tensor;
        }
        let window = self.unit.windows.window(row);
        let holding = &self.record.holdings.rows[at];
        let share_of = |ppm: i64, part: Window| {
            let (own, all) = (i128::from(part.duration_ms()), i128::from(window.duration_ms()));
            ((2 * i128::from(ppm) * own + all) / (2 * all)) as i64
        };
        if let Some(lost) = self.lost.get(&holding.holder) {
            let ppm = share_of(useful, lost.window.intersect(window));
            push(Cause::LostWork, Part::Use, ppm, "lost_work", grade.min(lost.confidence));
            useful -= ppm;
        }
        let holder = &self.holders[holding.holder];
        if let Some(until) = holder.recompute_until_ms {
            let earlier = self.holders.iter().any(|h| h.cluster == holder.cluster && h.run == holder.run && h.from_ms < holder.from_ms);
            if !earlier {
                let ppm = share_of(useful, Window::new(holder.from_ms, until).intersect(window));
                push(Cause::Recompute, Part::Use, ppm, "recompute", grade);
                useful -= ppm;
            }
        }
        push(Cause::Useful, Part::Useful, useful, "useful", grade);
        out
    }
}
