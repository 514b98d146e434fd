//! Time: UTC milliseconds since the epoch, and half-open windows of them.
//!
//! **MODEL-2**: windows are half-open and UTC; a zone is applied at the doors (Slurm in, reports out).

use jiff::Timestamp;
use jiff::civil;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

/// One second in milliseconds.
pub const SECOND_MS: i64 = 1_000;
/// One minute in milliseconds.
pub const MINUTE_MS: i64 = 60 * SECOND_MS;
/// One hour in milliseconds.
pub const HOUR_MS: i64 = 60 * MINUTE_MS;
/// One day in milliseconds.
pub const DAY_MS: i64 = 24 * HOUR_MS;
/// The accounting window of ACCOUNTING section 5.
pub const WINDOW_MS: i64 = 5 * MINUTE_MS;

/// A half-open interval `[from_ms, to_ms)` of UTC milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Window {
    /// First millisecond inside.
    pub from_ms: i64,
    /// First millisecond after it.
    pub to_ms: i64,
}

impl Window {
    /// An interval; an end before its start gives the empty interval at the start.
    pub fn new(from_ms: i64, to_ms: i64) -> Window {
        Window { from_ms, to_ms: to_ms.max(from_ms) }
    }

    /// Milliseconds inside.
    pub fn duration_ms(self) -> i64 {
        self.to_ms - self.from_ms
    }

    /// Whether nothing is inside.
    pub fn is_empty(self) -> bool {
        self.to_ms <= self.from_ms
    }

    /// Whether the instant is inside.
    pub fn contains(self, time_ms: i64) -> bool {
        self.from_ms <= time_ms && time_ms < self.to_ms
    }

    /// The common part, empty when there is none.
    pub fn intersect(self, other: Window) -> Window {
        Window::new(self.from_ms.max(other.from_ms), self.to_ms.min(other.to_ms))
    }

    /// Whether the two have a common part.
    pub fn overlaps(self, other: Window) -> bool {
        self.from_ms.max(other.from_ms) < self.to_ms.min(other.to_ms)
    }

    /// Parts of the interval between multiples of `step_ms`, in order (hours of a day, windows of an hour).
    pub fn aligned_parts(self, step_ms: i64) -> impl Iterator<Item = Window> {
        let mut at = self.from_ms;
        std::iter::from_fn(move || {
            if at >= self.to_ms {
                return None;
            }
            let end = (floor_to(at, step_ms) + step_ms).min(self.to_ms);
            let part = Window { from_ms: at, to_ms: end };
            at = end;
            Some(part)
        })
    }
}

/// The multiple of `step_ms` at or before the instant.
pub fn floor_to(time_ms: i64, step_ms: i64) -> i64 {
    time_ms.div_euclid(step_ms) * step_ms
}

/// The instant as RFC 3339 in UTC, with milliseconds only when there are any.
pub fn format_rfc3339(time_ms: i64) -> String {
    match Timestamp::from_millisecond(time_ms) {
        Ok(timestamp) => timestamp.to_string(),
        Err(_) => format!("{time_ms}ms"),
    }
}

/// Reads RFC 3339 and its near relatives found in bills and records: `T` or a blank between date and
/// time, with or without seconds, fraction or zone (without: `zone`), or a date alone (its first instant).
pub fn parse_time(text: &str, zone: &TimeZone) -> Option<i64> {
    let text = text.trim();
    if text.len() > 40 {
        return None;
    }
    if let Ok(timestamp) = text.parse::<Timestamp>() {
        return Some(timestamp.as_millisecond());
    }
    // `2026-10-06T08:00Z`: minutes only, with the zone letter.
    let (plain, zone) = match text.strip_suffix(['Z', 'z']) {
        Some(rest) => (rest, TimeZone::UTC),
        None => match text.strip_suffix(" UTC") {
            Some(rest) => (rest, TimeZone::UTC),
            None => (text, zone.clone()),
        },
    };
    let date_time = match plain.parse::<civil::DateTime>() {
        Ok(date_time) => date_time,
        Err(_) => plain.parse::<civil::Date>().ok()?.to_datetime(civil::Time::midnight()),
    };
    Some(zone.to_ambiguous_timestamp(date_time).compatible().ok()?.as_millisecond())
}

/// Unions of windows: sorted, disjoint, none empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WindowSet {
    parts: Vec<Window>,
}

impl WindowSet {
    /// No time at all.
    pub const EMPTY: WindowSet = WindowSet { parts: Vec::new() };

    /// From windows in any order, overlapping or not.
    pub fn from_windows(mut windows: Vec<Window>) -> WindowSet {
        windows.retain(|w| !w.is_empty());
        windows.sort_unstable();
        let mut parts: Vec<Window> = Vec::with_capacity(windows.len());
        for window in windows {
            match parts.last_mut() {
                Some(last) if window.from_ms <= last.to_ms => last.to_ms = last.to_ms.max(window.to_ms),
                _ => parts.push(window),
            }
        }
        WindowSet { parts }
    }

    /// The disjoint parts in order.
    pub fn parts(&self) -> &[Window] {
        &self.parts
    }

    /// Milliseconds inside.
    pub fn duration_ms(&self) -> i64 {
        self.parts.iter().map(|w| w.duration_ms()).sum()
    }

    /// Milliseconds of `window` inside.
    pub fn overlap_ms(&self, window: Window) -> i64 {
        let first = self.parts.partition_point(|p| p.to_ms <= window.from_ms);
        self.parts[first..].iter().take_while(|p| p.from_ms < window.to_ms).map(|p| p.intersect(window).duration_ms()).sum()
    }

    /// The part of the set inside `window`.
    pub fn clipped(&self, window: Window) -> WindowSet {
        let first = self.parts.partition_point(|p| p.to_ms <= window.from_ms);
        let parts = self.parts[first..]
            .iter()
            .take_while(|p| p.from_ms < window.to_ms)
            .map(|p| p.intersect(window))
            .filter(|p| !p.is_empty())
            .collect();
        WindowSet { parts }
    }

    /// Everything in either set.
    pub fn union(&self, other: &WindowSet) -> WindowSet {
        WindowSet::from_windows(self.parts.iter().chain(&other.parts).copied().collect())
    }

    /// Everything in this set and not in the other.
    pub fn minus(&self, other: &WindowSet) -> WindowSet {
        let mut out = Vec::new();
        for part in &self.parts {
            let mut at = part.from_ms;
            let first = other.parts.partition_point(|p| p.to_ms <= part.from_ms);
            for hole in other.parts[first..].iter().take_while(|p| p.from_ms < part.to_ms) {
                if hole.from_ms > at {
                    out.push(Window { from_ms: at, to_ms: hole.from_ms });
                }
                at = at.max(hole.to_ms);
            }
            if at < part.to_ms {
                out.push(Window { from_ms: at, to_ms: part.to_ms });
            }
        }
        WindowSet { parts: out }
    }

    /// The earliest `budget_ms` milliseconds of the set.
    pub fn earliest(&self, budget_ms: i64) -> WindowSet {
        let mut left = budget_ms;
        let mut parts = Vec::new();
        for part in &self.parts {
            if left <= 0 {
                break;
            }
            let take = part.duration_ms().min(left);
            parts.push(Window { from_ms: part.from_ms, to_ms: part.from_ms + take });
            left -= take;
        }
        WindowSet { parts }
    }

    /// Whether the instant is inside.
    pub fn contains(&self, time_ms: i64) -> bool {
        let at = self.parts.partition_point(|p| p.to_ms <= time_ms);
        self.parts.get(at).is_some_and(|p| p.contains(time_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_bills_and_records_are_read() {
        let utc = TimeZone::UTC;
        let want = parse_time("2024-09-01T00:00:00Z", &utc).unwrap();
        for text in ["2024-09-01 00:00:00", "2024-09-01", "2024-09-01T00:00Z", "2024-09-01T02:00:00+02:00", "2024-09-01T00:00:00.000Z"] {
            assert_eq!(parse_time(text, &utc), Some(want), "{text}");
        }
        assert_eq!(format_rfc3339(want), "2024-09-01T00:00:00Z");
        assert_eq!(parse_time("yesterday", &utc), None);
    }

    #[test]
    fn model_2_sets_of_windows_subtract_and_count() {
        let set = WindowSet::from_windows(vec![Window::new(10, 20), Window::new(0, 5), Window::new(4, 8)]);
        assert_eq!(set.parts(), &[Window::new(0, 8), Window::new(10, 20)]);
        let rest = set.minus(&WindowSet::from_windows(vec![Window::new(3, 12)]));
        assert_eq!(rest.parts(), &[Window::new(0, 3), Window::new(12, 20)]);
        assert_eq!(set.overlap_ms(Window::new(6, 11)), 3);
        assert_eq!(set.earliest(9).parts(), &[Window::new(0, 8), Window::new(10, 11)]);
    }
}
