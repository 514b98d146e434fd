//! When a machine was there: paid time within a charge period (ACCOUNTING section 2).

use gpuledger_model::tables::posting::PlacedBy;
use gpuledger_model::time::{HOUR_MS, Window, WindowSet};

/// Signs of life of a machine.
#[derive(Clone, Debug, Default)]
pub struct Signs {
    /// From its first to its last sign by source: node objects, holders.
    pub spans: Vec<Window>,
    /// First and last sample of each hour: instants, both included.
    pub samples: Vec<(i64, i64)>,
    /// Seconds with samples or holdings: the first to be paid.
    pub busy: WindowSet,
}

/// Paid time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paid {
    /// The paid milliseconds.
    pub time: WindowSet,
    /// How they were placed.
    pub placed_by: PlacedBy,
}

impl Signs {
    /// From the first to the last sign within a period, gaps included; of no length after a single sample.
    pub fn evidence(&self, period: Window) -> Option<Window> {
        let spans = self.spans.iter().map(|w| w.intersect(period)).filter(|w| !w.is_empty());
        let samples = self
            .samples
            .iter()
            .filter(|(first, last)| *first < period.to_ms && *last >= period.from_ms)
            .map(|(first, last)| Window::new((*first).max(period.from_ms), (*last).min(period.to_ms)));
        spans.chain(samples).reduce(|a, b| Window::new(a.from_ms.min(b.from_ms), a.to_ms.max(b.to_ms)))
    }

    /// The first sign of all, ms.
    pub fn first_ms(&self) -> Option<i64> {
        self.spans.iter().map(|w| w.from_ms).chain(self.samples.iter().map(|s| s.0)).min()
    }
}

/// Places billed time in its charge period. Billed time that is unknown or not above zero is the evidence, or the
/// period where the evidence has no length.
pub fn paid_time(period: Window, billed_ms: Option<i64>, signs: &Signs) -> Paid {
    let is_hourly = period.duration_ms() <= HOUR_MS;
    let Some(evidence) = signs.evidence(period) else {
        let placed_by = if is_hourly { PlacedBy::Rows } else { PlacedBy::Period };
        return Paid { time: WindowSet::from_windows(vec![period]), placed_by };
    };
    let placed_by = if is_hourly { PlacedBy::Rows } else { PlacedBy::Evidence };
    let billed = match (billed_ms.filter(|b| *b > 0), evidence.duration_ms()) {
        (Some(billed), _) => billed.min(period.duration_ms()),
        (None, 0) => period.duration_ms(),
        (None, length) => length,
    };
    let seen = WindowSet::from_windows(vec![evidence]);
    let time = if evidence.duration_ms() > billed {
        let first = signs.busy.clipped(evidence).earliest(billed);
        let rest = seen.minus(&first).minus(&signs.busy).earliest(billed - first.duration_ms());
        first.union(&rest)
    } else {
        let missing = billed - evidence.duration_ms();
        let back = missing.min(evidence.from_ms - period.from_ms);
        let forward = (missing - back).min(period.to_ms - evidence.to_ms);
        WindowSet::from_windows(vec![Window::new(evidence.from_ms - back, evidence.to_ms + forward)])
    };
    Paid { time, placed_by }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn day() -> Window {
        Window::new(0, 24 * HOUR_MS)
    }

    fn hours(from: i64, to: i64) -> Window {
        Window::new(from * HOUR_MS, to * HOUR_MS)
    }

    #[test]
    fn evidence_shorter_than_billed_is_extended_back_then_forward() {
        let signs = Signs { spans: vec![hours(2, 4)], samples: Vec::new(), busy: WindowSet::from_windows(vec![hours(2, 4)]) };
        assert_eq!(paid_time(day(), Some(3 * HOUR_MS), &signs).time.parts(), &[hours(1, 4)]);
        assert_eq!(paid_time(day(), Some(6 * HOUR_MS), &signs).time.parts(), &[hours(0, 6)]);
        assert_eq!(paid_time(day(), None, &signs).time.parts(), &[hours(2, 4)]);
    }

    #[test]
    fn evidence_longer_than_billed_pays_samples_and_holdings_first() {
        let signs = Signs { spans: vec![hours(0, 10)], samples: Vec::new(), busy: WindowSet::from_windows(vec![hours(6, 8)]) };
        assert_eq!(paid_time(day(), Some(HOUR_MS), &signs).time.parts(), &[hours(6, 7)]);
        assert_eq!(paid_time(day(), Some(3 * HOUR_MS), &signs).time.parts(), &[hours(0, 1), hours(6, 8)]);
        assert_eq!(paid_time(day(), Some(3 * HOUR_MS), &Signs::default()).placed_by, PlacedBy::Period);
        assert_eq!(paid_time(hours(0, 1), None, &Signs::default()).placed_by, PlacedBy::Rows);
    }
}
