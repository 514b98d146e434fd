//! Second deliveries: the same rows given twice in two files of one scope (ACCOUNTING section 8).

use std::collections::{BTreeMap, HashMap};

use gpuledger_model::money::Decimal;
use gpuledger_model::tables::charge::{Charge, ChargeCategory};

use super::row::text_digest;

/// The rows of one file in one scope.
pub(super) struct Part<'a> {
    pub(super) file: &'a str,
    pub(super) columns: &'a [String],
    pub(super) charges: Vec<&'a Charge>,
    pub(super) digests: Vec<u64>,
}

/// Rows of the smaller part that stand digit for digit in the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Overlap {
    pub(super) smaller: usize,
    pub(super) larger: usize,
    pub(super) matched: u64,
    pub(super) rows: u64,
}

impl Overlap {
    /// More than 1 % of the smaller.
    pub(super) fn is_suspect(&self) -> bool {
        self.matched.saturating_mul(100) > self.rows
    }
}

/// Every pair with common rows, in order.
pub(super) fn overlaps(parts: &[Part<'_>]) -> Vec<Overlap> {
    let all_columns_equal = parts.windows(2).all(|pair| match pair {
        [a, b] => a.columns == b.columns,
        _ => true,
    });
    let whole: Vec<&[u64]> = parts.iter().map(|part| part.digests.as_slice()).collect();
    let by_cells = matches(&whole);
    // Files with different columns are compared by what both say: the charge itself.
    let by_content = if all_columns_equal {
        BTreeMap::new()
    } else {
        let keys: Vec<Vec<u64>> = parts.iter().map(|part| part.charges.iter().map(|charge| meaning_digest(charge)).collect()).collect();
        matches(&keys.iter().map(Vec::as_slice).collect::<Vec<_>>())
    };
    let mut out = Vec::new();
    for (a, first) in parts.iter().enumerate() {
        for (b, second) in parts.iter().enumerate().skip(a + 1) {
            let found = if first.columns == second.columns { &by_cells } else { &by_content };
            let (rows_a, rows_b) = (first.charges.len() as u64, second.charges.len() as u64);
            let in_b = found.get(&(a, b)).copied().unwrap_or(0);
            let in_a = found.get(&(b, a)).copied().unwrap_or(0);
            let overlap = if rows_a < rows_b || (rows_a == rows_b && in_b >= in_a) {
                Overlap { smaller: a, larger: b, matched: in_b, rows: rows_a }
            } else {
                Overlap { smaller: b, larger: a, matched: in_a, rows: rows_b }
            };
            if overlap.matched > 0 {
                out.push(overlap);
            }
        }
    }
    out
}

/// Which parts `--deliveries latest` leaves out: those that a later one repeats. The latest of all stays, what
/// it repeats goes, then the latest of the rest stays, and so on; a delivery in several files thus stays whole.
pub(super) fn superseded(parts: &[Part<'_>], overlaps: &[Overlap]) -> Vec<(usize, usize)> {
    let mut order: Vec<usize> = (0..parts.len()).collect();
    order.sort_by(|a, b| match (parts.get(*a), parts.get(*b)) {
        (Some(a), Some(b)) => horizon(b).cmp(&horizon(a)).then(b.charges.len().cmp(&a.charges.len())).then(b.file.cmp(a.file)),
        _ => std::cmp::Ordering::Equal,
    });
    let mut out: Vec<(usize, usize)> = Vec::new();
    for winner in order {
        if out.iter().any(|(loser, _)| *loser == winner) {
            continue;
        }
        for overlap in overlaps.iter().filter(|overlap| overlap.is_suspect()) {
            let loser = match (overlap.smaller == winner, overlap.larger == winner) {
                (true, _) => overlap.larger,
                (_, true) => overlap.smaller,
                _ => continue,
            };
            if !out.iter().any(|(known, _)| *known == loser) {
                out.push((loser, winner));
            }
        }
    }
    out
}

/// The identity of a charge whatever zeros stand behind its last digits.
fn meaning_digest(charge: &Charge) -> u64 {
    let mut plain = charge.clone();
    for amount in [&mut plain.billed, &mut plain.effective] {
        *amount = amount.normalized();
    }
    for amount in [&mut plain.list, &mut plain.contracted, &mut plain.pricing_quantity, &mut plain.consumed_quantity] {
        *amount = amount.map(Decimal::normalized);
    }
    text_digest(&plain.content_key())
}

/// The end of the last usage of a part.
fn horizon(part: &Part<'_>) -> Option<i64> {
    part.charges.iter().filter(|c| c.category == ChargeCategory::Usage).map(|c| c.charge_to_ms).max()
}

/// For each ordered pair, how many rows of the first stand in the second.
fn matches(parts: &[&[u64]]) -> BTreeMap<(usize, usize), u64> {
    let mut holders: HashMap<u64, Vec<usize>> = HashMap::new();
    for (part, digests) in parts.iter().enumerate() {
        for digest in *digests {
            let known = holders.entry(*digest).or_default();
            if known.last() != Some(&part) {
                known.push(part);
            }
        }
    }
    let mut out = BTreeMap::new();
    for (part, digests) in parts.iter().enumerate() {
        for digest in *digests {
            for other in holders.get(digest).into_iter().flatten().filter(|other| **other != part) {
                *out.entry((part, *other)).or_default() += 1;
            }
        }
    }
    out
}
