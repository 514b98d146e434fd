//! The true ledger: every row of the bills spread over what its time truly was.
//!
//! A machine's row falls on its boards in equal parts, on an instance by its share, on sharers in equal parts, on each
//! paid millisecond alike, and on the parts of the state that the world put there. Rows of a bill alone spread evenly
//! over their charge period. Each row is split once, so that the truth sums to the bill exactly.

use std::collections::BTreeMap;
use std::io::{self, Write};

use gpuledger_model::cause::{Cause, Class};
use gpuledger_model::money::{Decimal, SCOPE_SCALE_MIN, split_largest_remainder};
use gpuledger_model::time::{HOUR_MS, floor_to, format_rfc3339};

use crate::bill::{BillRow, Bills, Pays};
use crate::fleet::{Machine, SHARE_WHOLE};
use crate::options::Options;
use crate::plan::Plan;

/// One row of the true ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TruthRow {
    /// Start of the hour, ms.
    pub hour_ms: i64,
    /// `UUID` or `UUID/GI`; empty for what the bill alone tells.
    pub device: String,
    /// Holder key, or empty.
    pub holder: String,
    /// Cause.
    pub cause: Cause,
    /// Currency.
    pub currency: String,
    /// Amount.
    pub amount: Decimal,
    /// The holder must not be called waste.
    pub is_counterexample: bool,
}

/// The true ledger of a world.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Truth {
    /// Rows, by currency, hour, device, holder and cause.
    pub rows: Vec<TruthRow>,
    /// Dollars of time for which the world emitted nothing, by currency.
    pub gaps: BTreeMap<String, Decimal>,
}

impl Truth {
    /// All dollars, by currency.
    pub fn totals(&self) -> BTreeMap<String, Decimal> {
        let mut totals: BTreeMap<String, Decimal> = BTreeMap::new();
        for row in &self.rows {
            let sum = totals.entry(row.currency.clone()).or_insert(Decimal::ZERO);
            *sum = sum.checked_add(row.amount).unwrap_or(*sum);
        }
        totals
    }

    /// Share of a currency's dollars that is true waste.
    pub fn waste_share(&self, currency: &str) -> f64 {
        let mut whole = 0.0;
        let mut waste = 0.0;
        for row in self.rows.iter().filter(|r| r.currency == currency) {
            whole += row.amount.to_f64();
            if row.cause.class() == Class::Waste {
                waste += row.amount.to_f64();
            }
        }
        if whole == 0.0 { 0.0 } else { waste / whole }
    }

    /// Writes the rows as CSV.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "hour,device,holder,cause,currency,amount,counterexample")?;
        for row in &self.rows {
            writeln!(
                out,
                "{},{},{},{},{},{},{}",
                format_rfc3339(row.hour_ms),
                row.device,
                row.holder,
                row.cause,
                row.currency,
                row.amount,
                row.is_counterexample
            )?;
        }
        Ok(())
    }
}

/// A weight of a machine's time: board and slot (none for what a layout strands), holder, cause.
type Key = (usize, Option<usize>, Option<usize>, Cause);

struct Hour {
    weights: Vec<(Key, u128)>,
    silent: u128,
}

/// Builds the truth of a world.
pub fn truth(machines: &[Machine], plan: &Plan, bills: &Bills, options: &Options) -> Truth {
    let mut builder = Builder { machines, plan, options, hours: BTreeMap::new(), sums: BTreeMap::new(), gaps: BTreeMap::new() };
    for bill in &bills.bills {
        let scale = bill.rows.iter().map(|r| r.effective.normalized().scale).max().unwrap_or(0).max(SCOPE_SCALE_MIN);
        for row in &bill.rows {
            builder.post(row, bill.currency, scale);
        }
    }
    for estimate in &bills.estimates {
        let row = BillRow {
            cells: BTreeMap::new(),
            from_ms: estimate.from_ms,
            to_ms: estimate.to_ms,
            effective: estimate.amount,
            pays: Pays::Machine(estimate.machine),
        };
        builder.post(&row, "USD", SCOPE_SCALE_MIN);
    }
    builder.finish()
}

type Place = (i64, String, Option<usize>, Cause);

struct Builder<'a> {
    machines: &'a [Machine],
    plan: &'a Plan,
    options: &'a Options,
    hours: BTreeMap<(usize, i64, i64), Hour>,
    sums: BTreeMap<(&'static str, i64, String, Option<usize>, Cause), Decimal>,
    gaps: BTreeMap<&'static str, Decimal>,
}

impl Builder<'_> {
    fn post(&mut self, row: &BillRow, currency: &'static str, scale: u8) {
        let Some(amount) = row.effective.rescaled(scale).filter(|a| !a.is_zero()) else { return };
        let mut places: Vec<Place> = Vec::new();
        let mut weights: Vec<u128> = Vec::new();
        let mut silent: u128 = 0;
        let machines = self.machines;
        let mut hour = floor_to(row.from_ms, HOUR_MS);
        while hour < row.to_ms {
            let (from, to) = (hour.max(row.from_ms), (hour + HOUR_MS).min(row.to_ms));
            match row.pays {
                Pays::Cause(cause) => {
                    places.push((hour, String::new(), None, cause));
                    weights.push((to - from) as u128);
                    if cause == Cause::NotInInventory {
                        silent += (to - from) as u128;
                    }
                }
                Pays::Machine(machine) => {
                    let boards = &machines[machine].boards;
                    let part = self.hour(machine, from, to);
                    silent += part.silent;
                    for ((board, slot, holder, cause), weight) in &part.weights {
                        let board = &boards[*board];
                        let device = slot.map_or_else(|| board.uuid.clone(), |slot| board.device(slot));
                        places.push((hour, device, *holder, *cause));
                        weights.push(*weight);
                    }
                }
            }
            hour += HOUR_MS;
        }
        let Some(parts) = split_largest_remainder(amount.mantissa, &weights) else { return };
        for ((hour, device, holder, cause), mantissa) in places.into_iter().zip(parts) {
            if mantissa != 0 {
                let sum = self.sums.entry((currency, hour, device, holder, cause)).or_insert(Decimal { mantissa: 0, scale });
                *sum = sum.checked_add(Decimal { mantissa, scale }).unwrap_or(*sum);
            }
        }
        if silent > 0
            && let Some(split) = split_largest_remainder(amount.mantissa, &[silent, weights.iter().sum::<u128>() - silent])
        {
            let sum = self.gaps.entry(currency).or_insert(Decimal::ZERO);
            *sum = sum.checked_add(Decimal { mantissa: split[0], scale }).unwrap_or(*sum);
        }
    }

    /// What a machine's time was within an hour.
    fn hour(&mut self, machine: usize, from: i64, to: i64) -> &Hour {
        let plan = self.plan;
        let machines = self.machines;
        let options = self.options;
        self.hours.entry((machine, from, to)).or_insert_with(|| {
            let from = from.max(machines[machine].paid_from_ms(options));
            let mut weights: BTreeMap<Key, u128> = BTreeMap::new();
            let mut silent = 0;
            for (board, slots) in machines[machine].boards.iter().zip(&plan.timelines[machine]) {
                let at = board.index as usize;
                for (slot, timeline) in slots.iter().enumerate() {
                    let share = u128::from(board.slots[slot].share);
                    let first = timeline.partition_point(|p| p.to_ms <= from);
                    for piece in timeline[first..].iter().take_while(|p| p.from_ms < to) {
                        let ms = (piece.to_ms.min(to) - piece.from_ms.max(from)).max(0) as u128;
                        let sharers = piece.holders.iter().flatten().count().max(1) as u128;
                        for (cause, part) in piece.state.parts() {
                            for holder in holders(&piece.holders) {
                                *weights.entry((at, Some(slot), holder, cause)).or_default() += ms * share * u128::from(part) / sharers;
                            }
                        }
                    }
                    silent += silent_ms(&plan.gaps[machine], from, to) as u128 * share * 1_000_000;
                }
                if board.stranded > 0 && to > from {
                    let weight = (to - from) as u128 * u128::from(board.stranded) * 1_000_000;
                    *weights.entry((at, None, None, Cause::LayoutStranded)).or_default() += weight;
                }
            }
            debug_assert_eq!(
                weights.values().sum::<u128>(),
                (to - from).max(0) as u128 * u128::from(SHARE_WHOLE) * 1_000_000 * machines[machine].boards.len() as u128
            );
            Hour { weights: weights.into_iter().collect(), silent }
        })
    }

    fn finish(self) -> Truth {
        let plan = self.plan;
        let mut rows: Vec<TruthRow> = self
            .sums
            .into_iter()
            .map(|((currency, hour_ms, device, holder, cause), amount)| {
                let holder = holder.map(|at| &plan.holders[at]);
                TruthRow {
                    hour_ms,
                    device,
                    holder: holder.map(|h| h.key.clone()).unwrap_or_default(),
                    cause,
                    currency: currency.to_string(),
                    amount,
                    is_counterexample: holder.is_some_and(|h| h.workload.is_counterexample()),
                }
            })
            .collect();
        rows.sort_by(|a, b| {
            (&a.currency, a.hour_ms, &a.device, &a.holder, a.cause).cmp(&(&b.currency, b.hour_ms, &b.device, &b.holder, b.cause))
        });
        Truth { rows, gaps: self.gaps.into_iter().map(|(currency, sum)| (currency.to_string(), sum)).collect() }
    }
}

/// The holders of a piece; nobody is one of them.
fn holders(of: &[Option<usize>; 2]) -> impl Iterator<Item = Option<usize>> {
    let first = of[0];
    std::iter::once(first).chain(of[1].map(Some))
}

fn silent_ms(gaps: &[(i64, i64)], from: i64, to: i64) -> i64 {
    gaps.iter().map(|(start, end)| (to.min(*end) - from.max(*start)).max(0)).sum()
}
