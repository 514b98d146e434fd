//! Shares of a device among the holders of each second: stated shares as they are, the rest by weight
//! (ACCOUNTING section 3).

use std::collections::BTreeSet;

use gpuledger_model::mig::{self, Share};
use gpuledger_model::time::Window;

use crate::holding::{Holding, Part};

/// Who holds a unit in a span of time, and with what share of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldSpan {
    /// When: the set of holders does not change within it.
    pub window: Window,
    /// (row of the holdings, share of the unit); shares add to at most one.
    pub holders: Vec<(usize, Share)>,
}

/// Resolves the holdings of a unit into spans with exact shares: stated shares as they are (scaled to one if
/// they exceed it), the rest in proportion to the weights.
pub fn held_spans(rows: &[Holding], unit: &str, over_declared: &mut BTreeSet<String>) -> Vec<HeldSpan> {
    let own: Vec<usize> = (0..rows.len()).filter(|at| rows[*at].unit == unit).collect();
    let mut edges: Vec<i64> = own.iter().flat_map(|at| [rows[*at].window.from_ms, rows[*at].window.to_ms]).collect();
    edges.sort_unstable();
    edges.dedup();
    let mut by_start = own.clone();
    by_start.sort_by_key(|at| rows[*at].window.from_ms);
    let mut started = by_start.into_iter().peekable();
    let mut active: BTreeSet<usize> = BTreeSet::new();
    let mut out: Vec<HeldSpan> = Vec::new();
    for pair in edges.windows(2) {
        let window = Window::new(pair[0], pair[1]);
        while let Some(at) = started.next_if(|at| rows[*at].window.from_ms <= window.from_ms) {
            active.insert(at);
        }
        active.retain(|at| rows[*at].window.to_ms > window.from_ms);
        let mut stated: Vec<(usize, Share)> = Vec::new();
        let mut weighted: Vec<(usize, Share)> = Vec::new();
        for at in &active {
            match rows[*at].part {
                Part::Exact(share) => stated.push((*at, share)),
                Part::Weight(weight) => weighted.push((*at, weight)),
            }
        }
        if stated.is_empty() && weighted.is_empty() {
            continue;
        }
        let stated_sum = sum(&stated);
        let mut holders = Vec::new();
        if stated_sum.numerator > stated_sum.denominator {
            over_declared.insert(unit.to_string());
        }
        if stated_sum.numerator >= stated_sum.denominator {
            for (at, share) in &stated {
                holders.push((*at, share.times(Share::new(stated_sum.denominator, stated_sum.numerator))));
            }
        } else {
            holders.extend(stated);
            let rest = Share::new(stated_sum.denominator - stated_sum.numerator, stated_sum.denominator);
            let weight_sum = sum(&weighted);
            for (at, weight) in &weighted {
                let share = weight.times(Share::new(weight_sum.denominator, weight_sum.numerator.max(1)));
                holders.push((*at, share.times(rest)));
            }
        }
        holders.sort_by_key(|h| h.0);
        match out.last_mut() {
            Some(last) if last.window.to_ms == window.from_ms && last.holders == holders => last.window.to_ms = window.to_ms,
            _ => out.push(HeldSpan { window, holders }),
        }
    }
    out
}

fn sum(shares: &[(usize, Share)]) -> Share {
    let mut total = Share { numerator: 0, denominator: 1 };
    for (_, share) in shares {
        let divisor = mig::gcd(total.denominator, share.denominator);
        let denominator = total.denominator / divisor * share.denominator;
        let numerator = total.numerator * (denominator / total.denominator) + share.numerator * (denominator / share.denominator);
        total = Share::new(numerator, denominator);
    }
    total
}
