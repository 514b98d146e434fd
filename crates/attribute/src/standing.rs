//! From samples to intervals: how long a value stands, whose value counts, and when it is stale
//! (ACCOUNTING section 5). Everything here works on columns of integers.

use std::collections::BTreeMap;

use arrow_buffer::ScalarBuffer;
use gpuledger_model::tables::telemetry::Column;
use gpuledger_model::time::{DAY_MS, HOUR_MS, MINUTE_MS, Window, WindowSet, floor_to};

use crate::rules::RuleBook;

/// Values on disjoint intervals in order of time: a step function with holes, as three Arrow columns. Copies share them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Steps {
    /// First millisecond of each interval.
    pub from_ms: ScalarBuffer<i64>,
    /// First millisecond after it.
    pub to_ms: ScalarBuffer<i64>,
    /// Value on it.
    pub value: ScalarBuffer<i64>,
}

/// Steps in the making.
#[derive(Debug, Default)]
pub struct StepsBuilder {
    from_ms: Vec<i64>,
    to_ms: Vec<i64>,
    value: Vec<i64>,
}

impl StepsBuilder {
    /// Room for so many intervals.
    pub fn with_capacity(count: usize) -> StepsBuilder {
        StepsBuilder { from_ms: Vec::with_capacity(count), to_ms: Vec::with_capacity(count), value: Vec::with_capacity(count) }
    }

    /// Adds an interval after the last; empty ones are dropped.
    pub fn push(&mut self, from_ms: i64, to_ms: i64, value: i64) {
        if to_ms > from_ms {
            self.from_ms.push(from_ms);
            self.to_ms.push(to_ms);
            self.value.push(value);
        }
    }

    /// The columns, without a copy.
    pub fn finish(self) -> Steps {
        Steps { from_ms: self.from_ms.into(), to_ms: self.to_ms.into(), value: self.value.into() }
    }
}

impl Steps {
    /// Whether there is no interval.
    pub fn is_empty(&self) -> bool {
        self.from_ms.is_empty()
    }

    /// The time covered.
    pub fn covered(&self) -> WindowSet {
        WindowSet::from_windows(self.from_ms.iter().zip(&self.to_ms).map(|(f, t)| Window::new(*f, *t)).collect())
    }

    /// The intervals outside of `holes`.
    pub fn without(&self, holes: &WindowSet) -> Steps {
        if holes.parts().is_empty() {
            return self.clone();
        }
        let mut out = StepsBuilder::default();
        for at in 0..self.from_ms.len() {
            let own = WindowSet::from_windows(vec![Window::new(self.from_ms[at], self.to_ms[at])]);
            for part in own.minus(holes).parts() {
                out.push(part.from_ms, part.to_ms, self.value[at]);
            }
        }
        out.finish()
    }

    /// Only the intervals inside of `window`.
    pub fn clipped(&self, window: Window) -> Steps {
        let mut out = StepsBuilder::default();
        for at in 0..self.from_ms.len() {
            out.push(self.from_ms[at].max(window.from_ms), self.to_ms[at].min(window.to_ms), self.value[at]);
        }
        out.finish()
    }

    /// This where it has a value, the other in its holes.
    pub fn filled_by(&self, other: &Steps) -> Steps {
        if other.is_empty() {
            return self.clone();
        }
        let rest = other.without(&self.covered());
        let mut rows: Vec<(i64, i64, i64)> = Vec::with_capacity(self.value.len() + rest.value.len());
        for steps in [self, &rest] {
            rows.extend((0..steps.value.len()).map(|at| (steps.from_ms[at], steps.to_ms[at], steps.value[at])));
        }
        rows.sort_unstable();
        let mut out = StepsBuilder::default();
        for (from, to, value) in rows {
            out.push(from, to, value);
        }
        out.finish()
    }

    /// Covered milliseconds and time-weighted sum within a window.
    pub fn sum_within(&self, window: Window) -> (i64, i128) {
        let mut at = self.to_ms.partition_point(|to| *to <= window.from_ms);
        let mut covered = 0i64;
        let mut sum = 0i128;
        while at < self.from_ms.len() && self.from_ms[at] < window.to_ms {
            let from = self.from_ms[at].max(window.from_ms);
            let to = self.to_ms[at].min(window.to_ms);
            covered += to - from;
            sum += i128::from(self.value[at]) * i128::from(to - from);
            at += 1;
        }
        (covered, sum)
    }
}

/// The longest time that a sample stands: 2.5 median gaps, and at most a day: two samples years apart vouch for nothing
/// between them.
fn cap_of(median_ms: i64, book: &RuleBook) -> i64 {
    ((median_ms as f64 * book.limits.standing_gaps_max).floor() as i64).min(DAY_MS)
}

/// For each hour in which samples start: the longest time that a sample of it stands.
fn standing_caps(times_ms: &[i64], book: &RuleBook) -> BTreeMap<i64, i64> {
    let mut caps = BTreeMap::new();
    let mut gaps: Vec<i64> = Vec::new();
    let mut at = 0;
    while at < times_ms.len() {
        let hour = floor_to(times_ms[at], HOUR_MS);
        gaps.clear();
        while at < times_ms.len() && times_ms[at] < hour + HOUR_MS {
            if let Some(next) = times_ms.get(at + 1) {
                gaps.push(next - times_ms[at]);
            }
            at += 1;
        }
        gaps.sort_unstable();
        let median = match gaps.len() {
            0 => book.limits.standing_gap_seconds_default * 1000,
            count => gaps[(count - 1) / 2],
        };
        caps.insert(hour, cap_of(median, book));
    }
    caps
}

/// A gauge: each sample stands to the next of its series, for at most 2.5 times the lower median of the
/// gaps that start in its hour.
pub fn gauge_steps(column: &Column, book: &RuleBook) -> Steps {
    let times = &column.times_ms;
    let mut out = StepsBuilder::with_capacity(times.len());
    let caps = standing_caps(times, book);
    let mut hour = i64::MIN;
    let mut cap = 0;
    for (at, time) in times.iter().enumerate() {
        let own_hour = floor_to(*time, HOUR_MS);
        if own_hour != hour {
            hour = own_hour;
            cap = caps.get(&hour).copied().unwrap_or(0);
        }
        let next = times.get(at + 1).copied().unwrap_or(i64::MAX);
        out.push(*time, next.min(time.saturating_add(cap)), column.values[at]);
    }
    out.finish()
}

/// The end of standing of the last sample at or before each time, for any one series: what `faulty` counts from.
pub fn standing_end(times_ms: &[i64], at: usize, book: &RuleBook) -> i64 {
    let Some(time) = times_ms.get(at) else { return i64::MIN };
    let hour = floor_to(*time, HOUR_MS);
    let first = times_ms.partition_point(|t| *t < hour);
    let last = times_ms.partition_point(|t| *t < hour + HOUR_MS);
    let slice = &times_ms[first..(last + 1).min(times_ms.len())];
    let mut gaps: Vec<i64> = slice.windows(2).map(|w| w[1] - w[0]).collect();
    gaps.sort_unstable();
    let median = match gaps.len() {
        0 => book.limits.standing_gap_seconds_default * 1000,
        count => gaps[(count - 1) / 2],
    };
    let cap = cap_of(median, book);
    times_ms.get(at + 1).copied().unwrap_or(i64::MAX).min(time + cap)
}

/// A counter: the mean rate between two samples, in steps of the counter's unit per second; a reset ends
/// the interval.
pub fn counter_rate_steps(column: &Column) -> Steps {
    let mut out = StepsBuilder::default();
    for at in 1..column.times_ms.len() {
        let (from, to) = (column.times_ms[at - 1], column.times_ms[at]);
        let rise = column.values[at] - column.values[at - 1];
        if rise < 0 {
            continue;
        }
        let rate = i128::from(rise) * 1000 / i128::from(to - from).max(1);
        out.push(from, to, rate.min(i128::from(i64::MAX)) as i64);
    }
    out.finish()
}

/// The ratio of two counters of one producer between samples that both have, in parts per million.
pub fn counter_ratio_steps(part: &Column, whole: &Column) -> Steps {
    let mut out = StepsBuilder::default();
    let mut last: Option<(i64, i64, i64)> = None;
    let mut at_whole = 0;
    for (at, time) in part.times_ms.iter().enumerate() {
        while at_whole < whole.times_ms.len() && whole.times_ms[at_whole] < *time {
            at_whole += 1;
        }
        if whole.times_ms.get(at_whole) != Some(time) {
            continue;
        }
        let own = (*time, part.values[at], whole.values[at_whole]);
        if let Some((from, part_before, whole_before)) = last {
            let (rise, of) = (own.1 - part_before, own.2 - whole_before);
            if rise >= 0 && of > 0 && i128::from(rise) * 100 <= i128::from(of) * 103 {
                let ratio = ((i128::from(rise) * 2_000_000 + i128::from(of)) / (2 * i128::from(of))).min(1_000_000);
                out.push(from, *time, ratio as i64);
            }
        }
        last = Some(own);
    }
    out.finish()
}

/// The time in which values of a producer are stale: its energy counter of the board is present and does
/// not rise for 5 minutes. A sample is stale if the counter has not risen since the sample before it.
pub fn stale_time(energy: &Column, book: &RuleBook) -> WindowSet {
    let least = book.limits.stale_minutes * MINUTE_MS;
    let mut holes = Vec::new();
    let mut start = 0;
    while start < energy.times_ms.len() {
        let mut end = start;
        while end + 1 < energy.times_ms.len() && energy.values[end + 1] == energy.values[start] {
            end += 1;
        }
        if end > start && energy.times_ms[end] - energy.times_ms[start] >= least {
            let to = match energy.times_ms.get(end + 1) {
                Some(next) => *next,
                None => standing_end(&energy.times_ms, end, book),
            };
            holes.push(Window::new(energy.times_ms[start + 1], to));
        }
        start = end + 1;
    }
    WindowSet::from_windows(holes)
}

/// What one producer says of one field.
#[derive(Clone, Debug)]
pub struct Voice<'a> {
    /// Producer's name.
    pub producer: &'a str,
    /// Its sample times.
    pub times_ms: &'a [i64],
    /// Its values as steps.
    pub steps: Steps,
}

/// One value of each second from several producers: per hour the one with more samples wins, then the
/// smaller name; what it leaves uncovered is filled by the next. Also tells the time in which two overlap.
pub fn choose_voices(mut voices: Vec<Voice<'_>>) -> (Steps, WindowSet) {
    voices.sort_by(|a, b| a.producer.cmp(b.producer));
    if voices.len() <= 1 {
        return (voices.pop().map(|v| v.steps).unwrap_or_default(), WindowSet::default());
    }
    let mut hours: Vec<i64> = Vec::new();
    for voice in &voices {
        for at in 0..voice.steps.from_ms.len() {
            let mut hour = floor_to(voice.steps.from_ms[at], HOUR_MS);
            while hour < voice.steps.to_ms[at] {
                if hours.last() != Some(&hour) {
                    hours.push(hour);
                }
                hour += HOUR_MS;
            }
        }
    }
    hours.sort_unstable();
    hours.dedup();
    let mut out = StepsBuilder::default();
    let mut overlaps = Vec::new();
    for hour in hours {
        let window = Window::new(hour, hour + HOUR_MS);
        let range = |voice: &Voice<'_>| {
            let first = voice.times_ms.partition_point(|t| *t < hour);
            let last = voice.times_ms.partition_point(|t| *t < hour + HOUR_MS);
            (first, last)
        };
        let mut order: Vec<&Voice<'_>> = voices.iter().collect();
        order.sort_by_key(|voice| {
            let (first, last) = range(voice);
            std::cmp::Reverse(last - first)
        });
        let mut merged = Steps::default();
        for voice in &order {
            merged = merged.filled_by(&voice.steps.clipped(window));
        }
        for at in 0..merged.value.len() {
            out.push(merged.from_ms[at], merged.to_ms[at], merged.value[at]);
        }
        let spans: Vec<Window> = voices
            .iter()
            .filter_map(|voice| {
                let (first, last) = range(voice);
                (last > first).then(|| Window::new(voice.times_ms[first], voice.times_ms[last - 1] + 1))
            })
            .collect();
        for (at, left) in spans.iter().enumerate() {
            overlaps.extend(spans[at + 1..].iter().map(|right| left.intersect(*right)));
        }
    }
    (out.finish(), WindowSet::from_windows(overlaps))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(rows: &[(i64, i64)]) -> Column {
        Column { times_ms: rows.iter().map(|r| r.0 * 1000).collect(), values: rows.iter().map(|r| r.1).collect() }
    }

    #[test]
    fn a_sample_stands_to_the_next_for_at_most_two_and_a_half_median_gaps() {
        let book = RuleBook::shipped();
        let steps = gauge_steps(&column(&[(0, 1), (15, 2), (30, 3), (200, 4)]), &book);
        // Gaps 15, 15, 170: lower median 15, cap 37.5 s.
        assert_eq!(steps.to_ms, vec![15_000, 30_000, 67_500, 237_500]);
        let single = gauge_steps(&column(&[(0, 1)]), &book);
        assert_eq!(single.to_ms, vec![150_000]);
    }

    #[test]
    fn counters_give_rates_and_a_reset_ends_the_interval() {
        let steps = counter_rate_steps(&column(&[(0, 100), (10, 300), (20, 50), (30, 60)]));
        assert_eq!((steps.from_ms.to_vec(), steps.value.to_vec()), (vec![0, 20_000], vec![20, 1]));
        let ratio = counter_ratio_steps(&column(&[(0, 0), (10, 1)]), &column(&[(0, 0), (10, 3)]));
        assert_eq!(ratio.value, vec![333_333]);
    }

    #[test]
    fn an_energy_counter_that_rests_makes_values_stale() {
        let book = RuleBook::shipped();
        let rows: Vec<(i64, i64)> = (0..60).map(|i| (i * 15, if (10..40).contains(&i) { 10 } else { i })).collect();
        let stale = stale_time(&column(&rows), &book);
        assert_eq!(stale.parts(), &[Window::new(11 * 15_000, 40 * 15_000)]);
        let short: Vec<(i64, i64)> = (0..60).map(|i| (i * 15, if (10..20).contains(&i) { 10 } else { i })).collect();
        assert!(stale_time(&column(&short), &book).parts().is_empty());
    }

    #[test]
    fn of_two_producers_one_counts_and_the_other_fills() {
        let book = RuleBook::shipped();
        let a = column(&[(0, 1), (15, 1), (30, 1)]);
        let b = column(&[(5, 9), (20, 9), (35, 9), (50, 9)]);
        let voices = vec![
            Voice { producer: "a", times_ms: &a.times_ms, steps: gauge_steps(&a, &book) },
            Voice { producer: "b", times_ms: &b.times_ms, steps: gauge_steps(&b, &book) },
        ];
        let (steps, overlap) = choose_voices(voices);
        assert_eq!(steps.value, vec![1, 9, 9, 9, 9]);
        assert_eq!(steps.to_ms.last(), Some(&87_500));
        assert!(!overlap.parts().is_empty());
    }
}
