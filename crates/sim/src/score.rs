//! How near a ledger comes to the truth (ACCOUNTING section 9).

use std::collections::{BTreeMap, BTreeSet};

use gpuledger_model::cause::{Cause, Class};
use gpuledger_model::money::Decimal;
use gpuledger_model::tables::posting::Posting;

use crate::truth::Truth;

/// The shares of one currency. Currencies are never added.
#[derive(Clone, Debug, PartialEq)]
pub struct Score {
    /// All dollars of the truth.
    pub dollars: Decimal,
    /// Posted to a known cause beyond what it truly was.
    pub misattributed_share: f64,
    /// Posted to class waste on the counter-examples beyond their true waste, over their dollars.
    pub false_waste_share: f64,
    /// Posted as unknown.
    pub unobserved_share: f64,
    /// Dollars of time for which the world emitted nothing.
    pub gap_share: f64,
    /// True waste.
    pub true_waste_share: f64,
    /// Posted to `unallocated`, `empty`, `vram_parked` where it is true, over true.
    pub idle_recall: f64,
}

impl Score {
    /// The score of nothing against nothing.
    pub fn empty() -> Score {
        Score {
            dollars: Decimal::ZERO,
            misattributed_share: 0.0,
            false_waste_share: 0.0,
            unobserved_share: 0.0,
            gap_share: 0.0,
            true_waste_share: 0.0,
            idle_recall: 1.0,
        }
    }
}

/// One place of the ledger: hour, device, holder.
type Place<'a> = (i64, &'a str, &'a str);
/// Amounts by cause: true, posted.
type Causes = BTreeMap<Cause, [Decimal; 2]>;

/// Compares postings with the truth, by currency.
pub fn compare(truth: &Truth, postings: &[Posting]) -> BTreeMap<String, Score> {
    let mut currencies: BTreeMap<&str, BTreeMap<Place, Causes>> = BTreeMap::new();
    let counterexamples: BTreeSet<&str> = truth.rows.iter().filter(|r| r.is_counterexample).map(|r| r.holder.as_str()).collect();
    let mut add = |currency, place, cause: Cause, side: usize, amount: Decimal| {
        let places: &mut BTreeMap<Place, Causes> = currencies.entry(currency).or_default();
        let sums = places.entry(place).or_default().entry(cause).or_insert([Decimal::ZERO; 2]);
        sums[side] = sums[side].checked_add(amount).unwrap_or(sums[side]);
    };
    for row in &truth.rows {
        add(row.currency.as_str(), (row.hour_ms, row.device.as_str(), row.holder.as_str()), row.cause, 0, row.amount);
    }
    for posting in postings {
        let place = (posting.hour_ms, posting.device.as_str(), posting.holder.as_str());
        add(posting.scope.currency.as_str(), place, posting.cause, 1, posting.amount);
    }
    let zero = Decimal::ZERO;
    currencies
        .iter()
        .map(|(currency, places)| {
            let gap = truth.gaps.get(*currency).copied().unwrap_or(zero);
            (currency.to_string(), score(places, &counterexamples, gap))
        })
        .collect()
}

/// Where a ledger is furthest from the truth: amounts posted to a known cause beyond what it truly was, over all hours.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Currency.
    pub currency: String,
    /// Holder, or empty.
    pub holder: String,
    /// Cause.
    pub cause: Cause,
    /// Truly.
    pub true_amount: Decimal,
    /// As posted.
    pub posted_amount: Decimal,
    /// Sum of what was posted beyond the truth, hour by hour and device by device.
    pub beyond: Decimal,
}

/// The differences of a ledger from the truth by holder and cause, the largest first.
pub fn differences(truth: &Truth, postings: &[Posting]) -> Vec<Difference> {
    let mut places: BTreeMap<(&str, &str, Cause, i64, &str), [Decimal; 2]> = BTreeMap::new();
    let zero = [Decimal::ZERO; 2];
    for row in &truth.rows {
        plus(&mut places.entry((&row.currency, &row.holder, row.cause, row.hour_ms, &row.device)).or_insert(zero)[0], row.amount);
    }
    for posting in postings {
        let place = (posting.scope.currency.as_str(), posting.holder.as_str(), posting.cause, posting.hour_ms, posting.device.as_str());
        plus(&mut places.entry(place).or_insert(zero)[1], posting.amount);
    }
    let mut sums: BTreeMap<(&str, &str, Cause), [Decimal; 3]> = BTreeMap::new();
    for ((currency, holder, cause, _, _), [is, posted]) in places {
        let sum = sums.entry((currency, holder, cause)).or_insert([Decimal::ZERO; 3]);
        plus(&mut sum[0], is);
        plus(&mut sum[1], posted);
        plus(&mut sum[2], posted.checked_sub(is).unwrap_or(Decimal::ZERO).max(Decimal::ZERO));
    }
    let mut out: Vec<Difference> = sums
        .into_iter()
        .filter(|(_, [_, _, beyond])| *beyond > Decimal::ZERO)
        .map(|((currency, holder, cause), [true_amount, posted_amount, beyond])| Difference {
            currency: currency.to_string(),
            holder: holder.to_string(),
            cause,
            true_amount,
            posted_amount,
            beyond,
        })
        .collect();
    out.sort_by(|a, b| b.beyond.cmp(&a.beyond).then_with(|| (&a.currency, &a.holder, a.cause).cmp(&(&b.currency, &b.holder, b.cause))));
    out
}

fn score(places: &BTreeMap<Place, Causes>, counterexamples: &BTreeSet<&str>, gap: Decimal) -> Score {
    let mut sums = Sums::NONE;
    for ((_, _, holder), causes) in places {
        let mut waste = [Decimal::ZERO; 2];
        let is_counterexample = counterexamples.contains(holder);
        for (cause, [is, posted]) in causes {
            plus(&mut sums.dollars, *is);
            let beyond = posted.checked_sub(*is).unwrap_or(Decimal::ZERO).max(Decimal::ZERO);
            match cause.class() {
                Class::Unknown => plus(&mut sums.unknown, *posted),
                _ => plus(&mut sums.misattributed, beyond),
            }
            if cause.class() == Class::Waste {
                plus(&mut sums.waste, *is);
                plus(&mut waste[0], *is);
                plus(&mut waste[1], *posted);
            }
            if matches!(cause, Cause::Unallocated | Cause::Empty | Cause::VramParked) {
                plus(&mut sums.idle, *is);
                plus(&mut sums.idle_found, (*is).min(*posted).max(Decimal::ZERO));
            }
            if is_counterexample {
                plus(&mut sums.counterexamples, *is);
            }
        }
        if is_counterexample {
            plus(&mut sums.false_waste, waste[1].checked_sub(waste[0]).unwrap_or(Decimal::ZERO).max(Decimal::ZERO));
        }
    }
    let share = |part: Decimal, whole: Decimal| if whole.is_zero() { 0.0 } else { part.to_f64() / whole.to_f64() };
    Score {
        dollars: sums.dollars,
        misattributed_share: share(sums.misattributed, sums.dollars),
        false_waste_share: share(sums.false_waste, sums.counterexamples),
        unobserved_share: share(sums.unknown, sums.dollars),
        gap_share: share(gap, sums.dollars),
        true_waste_share: share(sums.waste, sums.dollars),
        idle_recall: if sums.idle.is_zero() { 1.0 } else { share(sums.idle_found, sums.idle) },
    }
}

struct Sums {
    dollars: Decimal,
    misattributed: Decimal,
    unknown: Decimal,
    waste: Decimal,
    idle: Decimal,
    idle_found: Decimal,
    counterexamples: Decimal,
    false_waste: Decimal,
}

impl Sums {
    const NONE: Sums = Sums {
        dollars: Decimal::ZERO,
        misattributed: Decimal::ZERO,
        unknown: Decimal::ZERO,
        waste: Decimal::ZERO,
        idle: Decimal::ZERO,
        idle_found: Decimal::ZERO,
        counterexamples: Decimal::ZERO,
        false_waste: Decimal::ZERO,
    };
}

fn plus(sum: &mut Decimal, amount: Decimal) {
    *sum = sum.checked_add(amount).unwrap_or(*sum);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::truth::TruthRow;
    use gpuledger_model::cause::{Confidence, Part, State};
    use gpuledger_model::tables::charge::Scope;
    use gpuledger_model::tables::posting::PlacedBy;

    fn row(holder: &str, cause: Cause, dollars: i128, is_counterexample: bool) -> TruthRow {
        let amount = Decimal::from_integer(dollars);
        TruthRow { hour_ms: 0, device: "GPU-a".into(), holder: holder.into(), cause, currency: "USD".into(), amount, is_counterexample }
    }

    fn posting(holder: &str, cause: Cause, dollars: i128) -> Posting {
        Posting {
            scope: Scope { provider: "AWS".into(), account: "1".into(), period: "2026-10".into(), currency: "USD".into() },
            pool: String::new(),
            hour_ms: 0,
            device: "GPU-a".into(),
            machine: String::new(),
            node: String::new(),
            cluster: String::new(),
            model: String::new(),
            holder: holder.into(),
            cause,
            part: Part::Idle,
            amount: Decimal::from_integer(dollars),
            device_ms: 0,
            energy_joules: 0,
            rule: String::new(),
            confidence: Confidence::High,
            state: State::Reconciled,
            placed_by: PlacedBy::Rows,
            service: String::new(),
        }
    }

    #[test]
    fn shares_are_as_the_standard_defines_them() {
        let truth = Truth {
            rows: vec![row("a", Cause::Useful, 60, true), row("a", Cause::Headroom, 20, true), row("", Cause::Unallocated, 20, false)],
            gaps: BTreeMap::from([("USD".to_string(), Decimal::from_integer(5))]),
        };
        let postings = [
            posting("a", Cause::Useful, 50),
            posting("a", Cause::Headroom, 16),
            posting("a", Cause::Empty, 8),
            posting("a", Cause::Unobserved, 6),
            posting("", Cause::Unallocated, 15),
            posting("b", Cause::Unallocated, 5),
        ];
        let score = &compare(&truth, &postings)["USD"];
        assert_eq!(score.dollars, Decimal::from_integer(100));
        // 8 empty on `a` and 5 unallocated under a holder who was not there.
        assert_eq!(score.misattributed_share, 0.13);
        assert_eq!(score.false_waste_share, 0.1);
        assert_eq!(score.unobserved_share, 0.06);
        assert_eq!(score.gap_share, 0.05);
        assert_eq!(score.true_waste_share, 0.2);
        assert_eq!(score.idle_recall, 0.75);
    }

    #[test]
    fn the_truth_itself_scores_whole() {
        let truth = Truth { rows: vec![row("a", Cause::Useful, 60, false), row("", Cause::Unallocated, 40, false)], gaps: BTreeMap::new() };
        let score = &compare(&truth, &[posting("a", Cause::Useful, 60), posting("", Cause::Unallocated, 40)])["USD"];
        assert_eq!((score.misattributed_share, score.idle_recall), (0.0, 1.0));
    }
}
