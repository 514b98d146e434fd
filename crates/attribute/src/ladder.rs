//! The ladder of a window: paid >= held >= engine busy >= filled >= issuing >= useful, and the one name of each
//! part (ACCOUNTING section 6). Levels are whole parts per million, rounded half up once from exact means.

use std::collections::{BTreeMap, BTreeSet};

use gpuledger_model::accelerator;
use gpuledger_model::cause::{Cause, Confidence, Part};
use gpuledger_model::tables::placement::{Holder, Outcome};
use gpuledger_model::time::{MINUTE_MS, WINDOW_MS, Window, WindowSet, floor_to};

use crate::observe::{MachineRecord, UnitRecord};
use crate::rules::{RuleBook, ppm};
use crate::window::{Mean, WindowField, WindowRows};

/// Parts per million of a whole.
pub const WHOLE_PPM: i64 = 1_000_000;

/// XIDs after which a board needs a reset or a reboot (alert rules of public exporters).
const RESET_XIDS: [i64; 8] = [48, 62, 64, 74, 79, 95, 119, 120];

/// What fields a window has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grade {
    /// Engine, SM, tensor and memory interface.
    A,
    /// Engine and one of tensor and memory interface.
    B,
    /// Engine alone, or GPU_UTIL.
    C,
    /// Power alone.
    D,
}

impl Grade {
    fn confidence(self) -> Confidence {
        match self {
            Grade::A => Confidence::High,
            Grade::B => Confidence::Medium,
            Grade::C | Grade::D => Confidence::Low,
        }
    }
}

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
            let judge = UnitJudge { record, id, unit, facts: &facts[id.as_str()], fires: &fires[id.as_str()], holders, work: &work, waits: &waits, lost: &lost, book };
            by_unit.insert(id.clone(), judge.verdicts());
        }
        out.push(by_unit);
    }
    (out, remarks)
}

/// What a window's fields say, before any holder is asked.
#[derive(Clone, Copy, Debug)]
struct Facts {
    grade: Grade,
    /// g, s, u and tensor / 0.93 in parts per million.
    g: i64,
    s: i64,
    u: i64,
    t: i64,
    sm: Option<f64>,
    tensor: Option<f64>,
    dram: Option<f64>,
    fp32: Option<f64>,
    occupancy: Option<f64>,
    memory: Option<f64>,
    process: bool,
    power_watts: Option<f64>,
    pcie_mb: Option<f64>,
    is_idle: bool,
    hang: bool,
    latch: bool,
    throttled: bool,
    copy_bound: bool,
    deviation: Option<f64>,
    host_cpu: Option<f64>,
    host_iowait: Option<f64>,
    broken: bool,
}

/// The idle power and the limit of a board, watts.
#[derive(Clone, Copy, Debug, Default)]
struct BoardPower {
    idle_watts: Option<f64>,
    tdp_watts: Option<f64>,
}

fn board_power(record: &MachineRecord, board: &str, units: &[&str], book: &RuleBook) -> BoardPower {
    let model = record.units.iter().find(|u| u.board == board).and_then(|u| u.model.as_deref()).or(record.model.as_deref());
    let tdp_watts = model.and_then(accelerator::by_name).and_then(|a| a.tdp_watts).map(|w| w as f64);
    // Slots of 5 minutes: power covered for at least 240 s and every unit's engine and util, as far as known, below 5 %.
    let mut slots: BTreeMap<i64, Slot> = BTreeMap::new();
    for unit in units {
        let rows = &record.unit_records[*unit].windows;
        for row in 0..rows.len() {
            let slot = slots.entry(floor_to(rows.from_ms[row], WINDOW_MS)).or_default();
            if let Some((covered, sum)) = rows.sum(WindowField::Power, row) {
                slot.power_ms += covered;
                slot.power_sum += sum;
            }
            for (at, field) in [WindowField::Engine, WindowField::Util].into_iter().enumerate() {
                if let Some((covered, sum)) = rows.sum(field, row) {
                    let own = slot.busy.entry((unit, at)).or_insert((0, 0));
                    own.0 += covered;
                    own.1 += sum;
                }
            }
        }
    }
    let count = units.len().max(1) as i64;
    let limits = [ppm(book.idle.engine_ratio_max), ppm(book.idle.util_ratio_max)];
    let least = slots
        .values()
        .filter(|s| s.power_ms >= book.interconnect_wait.busy_power_seconds_min * 1000 * count && !s.busy.is_empty())
        .filter(|s| s.busy.iter().all(|((_, at), (covered, sum))| *sum < i128::from(limits[*at]) * i128::from(*covered)))
        .map(|s| s.power_sum as f64 / s.power_ms as f64 / 1e6)
        .fold(None::<f64>, |least, watts| Some(least.map_or(watts, |l| l.min(watts))));
    let bound = match tdp_watts {
        Some(tdp) => (book.idle.idle_power_tdp_ratio_max * tdp).max(book.idle.idle_power_watts_max),
        None => book.idle.idle_power_watts_max,
    };
    let idle_watts = least.filter(|l| *l <= bound).or(tdp_watts.map(|tdp| book.idle.idle_power_tdp_ratio_default * tdp));
    BoardPower { idle_watts, tdp_watts }
}

#[derive(Default)]
struct Slot<'a> {
    power_ms: i64,
    power_sum: i128,
    busy: BTreeMap<(&'a str, usize), (i64, i128)>,
}

fn machine_facts<'a>(record: &'a MachineRecord, book: &RuleBook) -> BTreeMap<&'a str, Vec<Facts>> {
    let mut by_board: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for unit in record.units.iter().filter(|u| record.unit_records.contains_key(&u.id)) {
        by_board.entry(&unit.board).or_default().insert(&unit.id);
    }
    let mut out = BTreeMap::new();
    for (board, units) in by_board {
        let with_windows: Vec<&str> = units.iter().copied().filter(|u| !record.unit_records[*u].windows.is_empty()).collect();
        let power = board_power(record, board, &with_windows, book);
        for unit in units {
            out.insert(unit, unit_facts(&record.unit_records[unit].windows, power, book));
        }
    }
    out
}

fn unit_facts(rows: &WindowRows, power: BoardPower, book: &RuleBook) -> Vec<Facts> {
    let least = book.limits.field_covered_ratio_min;
    let ratio = |field, row| rows.mean(field, row, least).map(|m: Mean| m.value() / 1e6);
    let limit_of = |row| ratio(WindowField::PowerLimit, row).or(power.tdp_watts);
    let above_idle = |row: usize, part: f64| match (power.idle_watts, limit_of(row)) {
        (Some(idle), Some(limit)) => Some(idle + part * (limit - idle).max(0.0)),
        _ => None,
    };
    // Profiling fields that contradict GPU_UTIL and power for 10 minutes are not used.
    let contradicts = runs(rows, book.contradiction.minutes_min, |row| {
        let util = ratio(WindowField::Util, row).is_some_and(|u| u >= book.contradiction.util_ratio_min);
        let zero = rows.extremes(WindowField::Engine, row).is_some_and(|(_, greatest)| greatest == 0);
        let warm = match (ratio(WindowField::Power, row), power.idle_watts) {
            (Some(watts), Some(idle)) => watts > book.contradiction.power_factor * idle,
            _ => false,
        };
        util && zero && warm
    });
    let pinned = |row: usize| {
        let util = rows.mean(WindowField::Util, row, least).is_some()
            && rows.extremes(WindowField::Util, row).is_some_and(|(least, _)| least >= ppm(book.interconnect_wait.hang_util_ratio_min));
        let cold = match (ratio(WindowField::Power, row), power.idle_watts) {
            (Some(watts), Some(idle)) => {
                let headroom = above_idle(row, book.interconnect_wait.hang_power_headroom_ratio).unwrap_or(0.0);
                watts <= (book.interconnect_wait.hang_power_factor * idle).max(headroom)
            }
            _ => false,
        };
        util && cold
    };
    let has_process = |row| ratio(WindowField::Processes, row).is_some_and(|p| p > 0.0);
    let hangs = runs(rows, book.interconnect_wait.hang_minutes_min, |row| {
        pinned(row)
            && match ratio(WindowField::MemoryRatio, row) {
                Some(memory) => memory >= book.interconnect_wait.hang_memory_ratio_min,
                None => has_process(row),
            }
    });
    let latches = runs(rows, book.interconnect_wait.hang_minutes_min, |row| {
        pinned(row)
            && !has_process(row)
            && ratio(WindowField::MemoryRatio, row).is_some_and(|m| m < book.interconnect_wait.latch_memory_ratio_max)
    });
    let mut broken = false;
    let mut last_xid: Option<i64> = None;
    let mut out = Vec::with_capacity(rows.len());
    for row in 0..rows.len() {
        let mean = |field| if contradicts[row] && is_profiling(field) { None } else { rows.mean(field, row, least) };
        let value = |field| mean(field).map(|m| m.value() / 1e6);
        let whole = |field| mean(field).map_or(0, |m| m.scaled(1, 1));
        let (engine, sm, tensor, dram) = (mean(WindowField::Engine), mean(WindowField::Sm), mean(WindowField::Tensor), mean(WindowField::Dram));
        let util = value(WindowField::Util);
        let grade = match (engine, sm, tensor, dram) {
            (Some(_), Some(_), Some(_), Some(_)) => Grade::A,
            (Some(_), _, Some(_), _) | (Some(_), _, _, Some(_)) => Grade::B,
            (Some(_), _, _, _) => Grade::C,
            _ if util.is_some() => Grade::C,
            _ => Grade::D,
        };
        let peak = |mean: Option<Mean>, peak: f64| mean.map_or(0, |m| m.scaled(1_000_000, i128::from(ppm(peak))));
        let g = engine.map_or(0, |m| m.scaled(1, 1)).clamp(0, WHOLE_PPM);
        let t = peak(tensor, book.limits.tensor_practical_peak);
        let issuing = [
            t,
            peak(dram, book.limits.dram_practical_peak),
            whole(WindowField::Fp64),
            whole(WindowField::Fp32),
            whole(WindowField::Fp16),
        ];
        let u = issuing.into_iter().max().unwrap_or(0).min(g);
        let s = sm.map_or(u, |m| m.scaled(1, 1)).clamp(u, g);
        let power_watts = value(WindowField::Power);
        let is_idle = match (engine, util, grade) {
            (Some(_), _, _) => value(WindowField::Engine).is_some_and(|g| g < book.idle.engine_ratio_max),
            (None, Some(util), _) => {
                let cool = match (power_watts, above_idle(row, book.idle.power_headroom_ratio)) {
                    (Some(watts), Some(bound)) => watts < bound,
                    _ => true,
                };
                util < book.idle.util_ratio_max && cool
            }
            (None, None, _) => match (power_watts, power.idle_watts) {
                (Some(watts), Some(idle)) => watts <= book.idle.grade_d_power_factor * idle,
                _ => false,
            },
        };
        let pcie_mb = value(WindowField::Pcie);
        let copy_bound = match (pcie_mb, value(WindowField::LinkPeak), value(WindowField::Sm)) {
            (Some(pcie), Some(peak), Some(sm)) => {
                peak > 0.0
                    && pcie >= book.copy_bound.pcie_mb_per_second_min
                    && pcie >= book.copy_bound.link_peak_ratio_min * peak
                    && sm < book.copy_bound.sm_ratio_max
            }
            _ => false,
        };
        let above = |field, least: f64| value(field).is_some_and(|rate| rate > least);
        let throttled = above(WindowField::Thermal, book.throttled.thermal_rate_min)
            || above(WindowField::HwThermal, book.throttled.thermal_rate_min)
            || above(WindowField::PowerBrake, book.throttled.power_brake_rate_min);
        // A board is broken from the edge of a reset-class XID until it works again.
        if let Some((_, xid)) = rows.extremes(WindowField::Xid, row) {
            let code = xid / 1_000_000;
            if last_xid.is_some_and(|last| last != code) && RESET_XIDS.contains(&code) {
                broken = true;
            }
            last_xid = Some(code);
        }
        if !is_idle {
            broken = false;
        }
        let remap_failed = rows.extremes(WindowField::RowRemapFailed, row).is_some_and(|(_, greatest)| greatest > 0);
        out.push(Facts {
            grade,
            g,
            s,
            u,
            t,
            sm: value(WindowField::Sm),
            tensor: value(WindowField::Tensor),
            dram: value(WindowField::Dram),
            fp32: value(WindowField::Fp32),
            occupancy: value(WindowField::Occupancy),
            memory: value(WindowField::MemoryRatio),
            process: has_process(row),
            power_watts,
            pcie_mb,
            is_idle,
            hang: hangs[row],
            latch: latches[row],
            throttled,
            copy_bound,
            deviation: rows.deviation(WindowField::Engine, row).map(|d| d / 1e6),
            host_cpu: value(WindowField::HostCpu),
            host_iowait: value(WindowField::HostIowait),
            broken: broken || remap_failed,
        });
    }
    out
}

fn is_profiling(field: WindowField) -> bool {
    matches!(
        field,
        WindowField::Engine
            | WindowField::Sm
            | WindowField::Occupancy
            | WindowField::Tensor
            | WindowField::Dram
            | WindowField::Fp64
            | WindowField::Fp32
            | WindowField::Fp16
    )
}

/// Rows in runs of adjacent windows that all satisfy `holds` and last at least `minutes`.
fn runs(rows: &WindowRows, minutes: i64, holds: impl Fn(usize) -> bool) -> Vec<bool> {
    let mut out = vec![false; rows.len()];
    let mut start = 0;
    while start < rows.len() {
        if !holds(start) {
            start += 1;
            continue;
        }
        let mut end = start + 1;
        while end < rows.len() && rows.from_ms[end] == rows.to_ms[end - 1] && holds(end) {
            end += 1;
        }
        if rows.to_ms[end - 1] - rows.from_ms[start] >= minutes * MINUTE_MS {
            out[start..end].fill(true);
        }
        start = end;
    }
    out
}

fn holders_of_row(unit: &UnitRecord, row: usize) -> &[(usize, gpuledger_model::mig::Share)] {
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
                for row in 0..unit.windows.len() {
                    let own_facts = &facts[id.as_str()][row];
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

fn interconnect_fires<'a>(record: &'a MachineRecord, facts: &BTreeMap<&str, Vec<Facts>>, work: &HolderWork, book: &RuleBook) -> BTreeMap<&'a str, Vec<Vec<bool>>> {
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

/// When a holder's useful work was lost, and how sure that is.
#[derive(Clone, Copy, Debug)]
struct Lost {
    window: Window,
    confidence: Confidence,
}

fn lost_work(holders: &[Holder], remarks: &mut Vec<Remark>) -> BTreeMap<usize, Lost> {
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
                });
            }
        }
    }
    out
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
        self.waits
            .get(run)
            .is_some_and(|units| units.iter().any(|(unit, set)| unit != self.id && set.overlap_ms(window) > 0))
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
            let starved = cpu.is_some_and(|c| c >= rule.host_cpu_ratio_min) || facts.host_iowait.is_some_and(|w| w >= rule.host_iowait_ratio_min);
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
            (Cause::InputStarved, if by_host { "input_starved.4.host" } else { "input_starved.4.sawtooth" }, if by_host { grade } else { Confidence::Low })
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
