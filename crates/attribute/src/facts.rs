//! What a window's fields say, before any holder is asked: its grade, its levels, and whether it is idle, hung,
//! latched, throttled or broken (ACCOUNTING section 6).

use std::collections::{BTreeMap, BTreeSet};

use gpuledger_model::accelerator;
use gpuledger_model::cause::Confidence;
use gpuledger_model::time::{MINUTE_MS, WINDOW_MS, floor_to};

use crate::ladder::WHOLE_PPM;
use crate::observe::MachineRecord;
use crate::rules::{RuleBook, ppm};
use crate::window::{Mean, WindowField, WindowRows};

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
    /// The confidence of a grade.
    pub fn confidence(self) -> Confidence {
        match self {
            Grade::A => Confidence::High,
            Grade::B => Confidence::Medium,
            Grade::C | Grade::D => Confidence::Low,
        }
    }
}

/// What a window's fields say, before any holder is asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    pub(crate) grade: Grade,
    /// g, s, u and tensor / 0.93 in parts per million.
    pub(crate) g: i64,
    pub(crate) s: i64,
    pub(crate) u: i64,
    pub(crate) t: i64,
    pub(crate) sm: Option<f64>,
    pub(crate) tensor: Option<f64>,
    pub(crate) dram: Option<f64>,
    pub(crate) fp32: Option<f64>,
    pub(crate) occupancy: Option<f64>,
    pub(crate) memory: Option<f64>,
    pub(crate) process: bool,
    pub(crate) power_watts: Option<f64>,
    pub(crate) pcie_mb: Option<f64>,
    pub(crate) is_idle: bool,
    pub(crate) hang: bool,
    pub(crate) latch: bool,
    pub(crate) throttled: bool,
    pub(crate) copy_bound: bool,
    pub(crate) deviation: Option<f64>,
    pub(crate) host_cpu: Option<f64>,
    pub(crate) host_iowait: Option<f64>,
    pub(crate) broken: bool,
    pub(crate) power_capped: bool,
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

pub(crate) fn machine_facts<'a>(record: &'a MachineRecord, book: &RuleBook) -> BTreeMap<&'a str, Vec<Facts>> {
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
        let (engine, sm, tensor, dram) =
            (mean(WindowField::Engine), mean(WindowField::Sm), mean(WindowField::Tensor), mean(WindowField::Dram));
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
        let issuing =
            [t, peak(dram, book.limits.dram_practical_peak), whole(WindowField::Fp64), whole(WindowField::Fp32), whole(WindowField::Fp16)];
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
            power_capped: above(WindowField::PowerLimited, book.power_capped.rate_min)
                && matches!((power_watts, limit_of(row)), (Some(watts), Some(limit)) if watts >= book.power_capped.power_of_limit_ratio_min * limit),
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
