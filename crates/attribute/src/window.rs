//! Windows: 5-minute intervals aligned to the epoch, cut where a device's holders change (ACCOUNTING section 5).
//!
//! They are the record: per unit, window and field the covered milliseconds, the time-weighted sum and sum of
//! squares, and the least and greatest value, all integers. Any rule can be run again from them.

use std::collections::BTreeMap;

use gpuledger_model::time::{WINDOW_MS, Window, WindowSet, floor_to};

use crate::standing::Steps;

/// What a window knows of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WindowField {
    /// Engine busy.
    Engine,
    /// GPU_UTIL.
    Util,
    /// SMs with a resident warp.
    Sm,
    /// Occupancy.
    Occupancy,
    /// Tensor pipe.
    Tensor,
    /// Memory interface.
    Dram,
    /// FP64 pipe.
    Fp64,
    /// FP32 pipe.
    Fp32,
    /// FP16 pipe.
    Fp16,
    /// Memory used, as a ratio of the unit's memory.
    MemoryRatio,
    /// Processes.
    Processes,
    /// Board power, 10^-6 W.
    Power,
    /// Enforced limit, 10^-6 W.
    PowerLimit,
    /// PCIe both ways, 10^-6 MB/s.
    Pcie,
    /// Peak of the PCIe link one way, 10^-6 MB/s.
    LinkPeak,
    /// Energy rate, 10^-6 W.
    Energy,
    /// Thermal slow-down, 10^-6 s/s.
    Thermal,
    /// Thermal slow-down by hardware, 10^-6 s/s.
    HwThermal,
    /// Power brake, 10^-6 s/s.
    PowerBrake,
    /// Last XID, 10^-6.
    Xid,
    /// Row remapping failed, 10^-6.
    RowRemapFailed,
    /// Host CPU busy.
    HostCpu,
    /// Host iowait.
    HostIowait,
    /// Slowed down by the power limit, 10^-6 s/s.
    PowerLimited,
}

/// One field of all windows of a unit; `covered_ms` 0 where it has no value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldColumn {
    /// Covered milliseconds.
    pub covered_ms: Vec<i64>,
    /// Time-weighted sum: value x ms.
    pub sum: Vec<i128>,
    /// Time-weighted sum of squares (ratios only).
    pub sum_squares: Vec<i128>,
    /// Least value.
    pub least: Vec<i64>,
    /// Greatest value.
    pub greatest: Vec<i64>,
}

/// The windows of one unit that were observed, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WindowRows {
    /// First millisecond.
    pub from_ms: Vec<i64>,
    /// First millisecond after it.
    pub to_ms: Vec<i64>,
    /// Observed milliseconds.
    pub observed_ms: Vec<i64>,
    /// The fields that came.
    pub fields: BTreeMap<WindowField, FieldColumn>,
}

impl WindowRows {
    /// Cuts the observed time at multiples of 5 minutes and at `edges_ms` (ascending).
    pub fn cut(observed: &WindowSet, edges_ms: &[i64]) -> WindowRows {
        let mut out = WindowRows::default();
        let mut done_to = i64::MIN;
        for part in observed.parts() {
            let mut start = floor_to(part.from_ms, WINDOW_MS).max(done_to);
            while start < part.to_ms {
                let end = floor_to(start, WINDOW_MS) + WINDOW_MS;
                let mut at = start;
                let first = edges_ms.partition_point(|e| *e <= start);
                for edge in edges_ms[first..].iter().copied().take_while(|e| *e < end).chain([end]) {
                    let window = Window::new(at, edge);
                    let seen = observed.overlap_ms(window);
                    if seen > 0 {
                        out.from_ms.push(window.from_ms);
                        out.to_ms.push(window.to_ms);
                        out.observed_ms.push(seen);
                    }
                    at = edge;
                }
                start = end;
            }
            done_to = done_to.max(start);
        }
        out
    }

    /// Number of windows.
    pub fn len(&self) -> usize {
        self.from_ms.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.from_ms.is_empty()
    }

    /// The window of a row.
    pub fn window(&self, row: usize) -> Window {
        Window { from_ms: self.from_ms[row], to_ms: self.to_ms[row] }
    }

    /// Rows that overlap a time.
    pub fn rows_within(&self, window: Window) -> std::ops::Range<usize> {
        let first = self.to_ms.partition_point(|t| *t <= window.from_ms);
        let last = self.from_ms.partition_point(|t| *t < window.to_ms);
        first..last.max(first)
    }

    /// Adds a field: one sweep over its steps and the windows.
    pub fn add(&mut self, field: WindowField, steps: &Steps) {
        if steps.is_empty() || self.is_empty() {
            return;
        }
        let squares = matches!(field, WindowField::Engine);
        let count = self.len();
        let mut column = FieldColumn {
            covered_ms: vec![0; count],
            sum: vec![0; count],
            sum_squares: vec![0; if squares { count } else { 0 }],
            least: vec![i64::MAX; count],
            greatest: vec![i64::MIN; count],
        };
        let mut any = false;
        let mut step = 0;
        for row in 0..count {
            let (from, to) = (self.from_ms[row], self.to_ms[row]);
            while step < steps.value.len() && steps.to_ms[step] <= from {
                step += 1;
            }
            let mut at = step;
            while at < steps.value.len() && steps.from_ms[at] < to {
                let ms = steps.to_ms[at].min(to) - steps.from_ms[at].max(from);
                let value = steps.value[at];
                column.covered_ms[row] += ms;
                column.sum[row] += i128::from(value) * i128::from(ms);
                if squares {
                    column.sum_squares[row] += i128::from(value) * i128::from(value) * i128::from(ms);
                }
                column.least[row] = column.least[row].min(value);
                column.greatest[row] = column.greatest[row].max(value);
                any = true;
                at += 1;
            }
        }
        if any {
            self.fields.insert(field, column);
        }
    }

    /// Covered milliseconds and sum of a field.
    pub fn sum(&self, field: WindowField, row: usize) -> Option<(i64, i128)> {
        let column = self.fields.get(&field)?;
        (column.covered_ms[row] > 0).then(|| (column.covered_ms[row], column.sum[row]))
    }

    /// The mean of a field that counts in the window: covered for at least `covered_ratio_min` of the observed
    /// time. An exact ratio (sum, covered ms).
    pub fn mean(&self, field: WindowField, row: usize, covered_ratio_min: f64) -> Option<Mean> {
        let (covered, sum) = self.sum(field, row)?;
        let least = self.observed_ms[row] as f64 * covered_ratio_min;
        (covered as f64 >= least).then_some(Mean { sum, covered_ms: covered })
    }

    /// Least and greatest value of a field.
    pub fn extremes(&self, field: WindowField, row: usize) -> Option<(i64, i64)> {
        let column = self.fields.get(&field)?;
        (column.covered_ms[row] > 0).then(|| (column.least[row], column.greatest[row]))
    }

    /// Standard deviation of a field in its own unit.
    pub fn deviation(&self, field: WindowField, row: usize) -> Option<f64> {
        let column = self.fields.get(&field)?;
        let covered = column.covered_ms[row] as f64;
        if covered <= 0.0 || column.sum_squares.is_empty() {
            return None;
        }
        let mean = column.sum[row] as f64 / covered;
        Some((column.sum_squares[row] as f64 / covered - mean * mean).max(0.0).sqrt())
    }
}

/// A mean as an exact ratio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mean {
    /// Time-weighted sum.
    pub sum: i128,
    /// Milliseconds.
    pub covered_ms: i64,
}

impl Mean {
    /// Rounded half up to whole steps, after scaling by `numerator / denominator`.
    pub fn scaled(self, numerator: i128, denominator: i128) -> i64 {
        let over = i128::from(self.covered_ms) * denominator;
        ((2 * self.sum * numerator + over).div_euclid(2 * over)) as i64
    }

    /// As a float in the field's steps, for thresholds.
    pub fn value(self) -> f64 {
        self.sum as f64 / self.covered_ms as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_cut_at_five_minutes_and_at_holders() {
        let observed = WindowSet::from_windows(vec![Window::new(100_000, 700_000)]);
        let mut rows = WindowRows::cut(&observed, &[400_000]);
        assert_eq!(rows.from_ms, vec![0, 300_000, 400_000, 600_000]);
        assert_eq!(rows.observed_ms, vec![200_000, 100_000, 200_000, 100_000]);
        let mut steps = crate::standing::StepsBuilder::default();
        steps.push(100_000, 350_000, 10);
        steps.push(350_000, 700_000, 20);
        rows.add(WindowField::Engine, &steps.finish());
        let mean = rows.mean(WindowField::Engine, 1, 0.8).unwrap();
        assert_eq!((mean.sum, mean.covered_ms), (1_500_000, 100_000));
        assert_eq!(rows.extremes(WindowField::Engine, 1), Some((10, 20)));
        assert_eq!(rows.deviation(WindowField::Engine, 1), Some(5.0));
    }
}
