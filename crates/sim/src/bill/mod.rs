//! The bills of a world: FOCUS rows of four providers, and what each row truly paid for.
//!
//! Truth decisions:
//! - a machine's row pays for the machine's time in its charge period; what else a row is, its cause says;
//! - tax, support, credits and adjustments spread evenly over their charge period;
//! - a machine without a node object and without telemetry is `not_in_inventory`;
//! - the disk of a machine that is stopped is `stopped_machine_storage` in the hours without a usage row, and
//!   `other_service` in the others;
//! - where the last rows have not arrived, the truth is what the standard estimates: list price x time.

mod amazon;
mod column;
mod google;
mod microsoft;
mod oracle;

use std::collections::BTreeMap;

use gpuledger_model::cause::Cause;
use gpuledger_model::money::Decimal;
use gpuledger_model::tables::charge::Cloud;
use gpuledger_model::time::{DAY_MS, HOUR_MS, floor_to, format_rfc3339};

use crate::chance::Chance;
use crate::fleet::Machine;
use crate::options::{Fault, Options};

/// What a row truly pays for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pays {
    /// The time of a machine.
    Machine(usize),
    /// Something that the bill alone tells; evenly over the charge period.
    Cause(Cause),
}

/// A row of a bill.
#[derive(Clone, Debug)]
pub struct BillRow {
    /// FOCUS columns that are not null.
    pub cells: BTreeMap<&'static str, String>,
    /// Start of the charge period, ms.
    pub from_ms: i64,
    /// End of it, ms.
    pub to_ms: i64,
    /// EffectiveCost.
    pub effective: Decimal,
    /// What it pays for.
    pub pays: Pays,
}

/// One provider's bill.
#[derive(Clone, Debug)]
pub struct Bill {
    /// File name; compressed if it ends in `.gz`.
    pub file: String,
    /// FOCUS version.
    pub version: &'static str,
    /// Its columns, in order.
    pub columns: &'static [&'static str],
    /// BillingCurrency.
    pub currency: &'static str,
    /// Its rows.
    pub rows: Vec<BillRow>,
}

/// Time that no bill covers yet: machine, from when, and the estimate of the standard in USD.
#[derive(Clone, Debug)]
pub struct Estimate {
    /// Machine.
    pub machine: usize,
    /// From, ms.
    pub from_ms: i64,
    /// To, ms.
    pub to_ms: i64,
    /// List price x time, at 9 decimals.
    pub amount: Decimal,
}

/// All bills of a world.
#[derive(Clone, Debug, Default)]
pub struct Bills {
    /// One for each provider and account.
    pub bills: Vec<Bill>,
    /// An earlier delivery, not valid any more.
    pub earlier: Option<Bill>,
    /// Estimates for what has not arrived.
    pub estimates: Vec<Estimate>,
}

/// `price` x `numerator` / `denominator`, rounded half away from zero to `scale` decimals.
pub fn scaled(price: Decimal, numerator: i128, denominator: i128, scale: u8) -> Decimal {
    let denominator = denominator.max(1) * 10i128.pow(u32::from(price.scale));
    let product = price.mantissa * numerator * 10i128.pow(u32::from(scale));
    let half = if product < 0 { -denominator / 2 } else { denominator / 2 };
    Decimal { mantissa: (product + half) / denominator, scale }
}

fn decimal(mantissa: i128, scale: u8) -> Decimal {
    Decimal { mantissa, scale }
}

struct Desk<'a> {
    machines: &'a [Machine],
    options: &'a Options,
    month: (i64, i64),
}

/// What every row of a bill repeats.
struct Account {
    provider: &'static str,
    id: &'static str,
    name: &'static str,
    sub_account: &'static str,
    invoice: &'static str,
    currency: &'static str,
    /// One unit of the billing currency costs so many USD, in hundredths per dollar.
    per_dollar_percent: i128,
}

/// Makes the bills of a world.
pub fn bills(seed: u64, machines: &[Machine], options: &Options) -> Bills {
    let mut chance = Chance::new(seed, 4_000);
    let desk = Desk { machines, options, month: month_of(options.start_ms) };
    let mut out = Bills { bills: Vec::new(), earlier: None, estimates: Vec::new() };
    out.bills.push(desk.amazon(&mut chance));
    out.bills.push(desk.microsoft(&mut chance));
    out.bills.push(desk.google(&mut chance));
    out.bills.push(desk.oracle(&mut chance));
    if options.has(Fault::RestatedBill)
        && let Some(first) = out.bills.first()
    {
        out.earlier = Some(earlier_delivery(first));
    }
    if options.has(Fault::LateBill) {
        desk.hold_back(&mut out);
    }
    out
}

/// First of the month of a time and first of the next, ms. Worlds stand in October 2026, of 31 days.
fn month_of(time_ms: i64) -> (i64, i64) {
    let mut first = floor_to(time_ms, DAY_MS);
    while !format_rfc3339(first).contains("-01T") {
        first -= DAY_MS;
    }
    let mut next = first + 28 * DAY_MS;
    while !format_rfc3339(next).contains("-01T") {
        next += DAY_MS;
    }
    (first, next)
}

/// The first delivery of a bill: a little dearer, and without its last tenth.
fn earlier_delivery(bill: &Bill) -> Bill {
    let mut earlier = bill.clone();
    earlier.rows.truncate(bill.rows.len() * 9 / 10);
    for row in &mut earlier.rows {
        row.effective = scaled(row.effective, 103, 100, 10);
        for column in ["EffectiveCost", "BilledCost"] {
            if let Some(cell) = row.cells.get_mut(column)
                && let Ok(value) = cell.parse::<Decimal>()
            {
                *cell = scaled(value, 103, 100, 10).normalized().to_string();
            }
        }
    }
    earlier
}

impl Desk<'_> {
    fn row(&self, account: &Account, from_ms: i64, to_ms: i64, pays: Pays, billed: Decimal, effective: Decimal) -> BillRow {
        let mut row = BillRow { cells: BTreeMap::new(), from_ms, to_ms, effective, pays };
        for (column, text) in [
            ("ProviderName", account.provider.to_string()),
            ("PublisherName", account.provider.to_string()),
            ("ServiceProviderName", account.provider.to_string()),
            ("HostProviderName", account.provider.to_string()),
            ("InvoiceIssuerName", account.provider.to_string()),
            ("InvoiceId", account.invoice.to_string()),
            ("BillingAccountId", account.id.to_string()),
            ("BillingAccountName", account.name.to_string()),
            ("BillingAccountType", "Billing Account".to_string()),
            ("SubAccountId", account.sub_account.to_string()),
            ("BillingCurrency", account.currency.to_string()),
            ("PricingCurrency", account.currency.to_string()),
            ("BillingPeriodStart", format_rfc3339(self.month.0)),
            ("BillingPeriodEnd", format_rfc3339(self.month.1)),
            ("ChargePeriodStart", format_rfc3339(from_ms)),
            ("ChargePeriodEnd", format_rfc3339(to_ms)),
            ("ChargeCategory", "Usage".to_string()),
            ("ChargeFrequency", "Usage-Based".to_string()),
            ("BilledCost", billed.normalized().to_string()),
            ("EffectiveCost", effective.normalized().to_string()),
            ("ListCost", effective.normalized().to_string()),
            ("ContractedCost", effective.normalized().to_string()),
            ("PricingCategory", "Standard".to_string()),
        ] {
            row.cells.insert(column, text);
        }
        row
    }

    /// Parts of a machine's paid time of at most `step_ms`, aligned to it: charge period and paid time within it.
    fn periods(&self, machine: &Machine, step_ms: i64) -> Vec<(i64, i64, i64)> {
        let from = machine.paid_from_ms(self.options);
        let mut out = Vec::new();
        let mut at = floor_to(from, step_ms);
        while at < self.options.end_ms() {
            out.push((at, at + step_ms, at + step_ms - from.max(at)));
            at += step_ms;
        }
        out
    }

    fn hours(&self) -> impl Iterator<Item = i64> {
        let start = self.options.start_ms;
        (0..i64::from(self.options.days) * 24).map(move |hour| start + hour * HOUR_MS)
    }

    /// Holds back the last six hours of AWS and leaves their estimate.
    fn hold_back(&self, bills: &mut Bills) {
        let cut = self.options.end_ms() - 6 * HOUR_MS;
        let Some(bill) = bills.bills.first_mut() else { return };
        bill.rows.retain(|row| row.from_ms < cut);
        for (at, machine) in self.machines.iter().enumerate().filter(|(_, m)| m.cloud == Cloud::Aws) {
            let (from_ms, to_ms) = (cut.max(machine.from_ms), self.options.end_ms());
            let amount = scaled(machine.price, i128::from(to_ms - from_ms), i128::from(HOUR_MS), 9);
            bills.estimates.push(Estimate { machine: at, from_ms, to_ms, amount });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::fleet;

    #[test]
    fn commitments_close_and_each_row_is_on_its_bill_once() {
        let options = Options::demo();
        let machines = fleet(0, &options, &mut Chance::new(0, 1));
        let bills = bills(0, &machines, &options);
        assert_eq!(bills.bills.len(), 4);
        let mut plans: BTreeMap<String, [Decimal; 2]> = BTreeMap::new();
        for row in bills.bills.iter().flat_map(|b| &b.rows) {
            let Some(id) = row.cells.get("CommitmentDiscountId") else { continue };
            let sums = plans.entry(id.clone()).or_insert([Decimal::ZERO; 2]);
            if row.cells["ChargeCategory"] == "Purchase" {
                sums[0] = sums[0].checked_add(row.cells["BilledCost"].parse().unwrap()).unwrap();
            } else {
                sums[1] = sums[1].checked_add(row.effective).unwrap();
            }
        }
        assert!(!plans.is_empty());
        for (id, [purchased, used]) in plans {
            assert_eq!(purchased, used, "{id}");
        }
        for bill in &bills.bills {
            for row in &bill.rows {
                assert_eq!(row.cells["EffectiveCost"].parse::<Decimal>().unwrap(), row.effective);
                assert!(row.to_ms > row.from_ms);
            }
        }
    }

    #[test]
    fn products_are_rounded_once() {
        assert_eq!(scaled(decimal(1, 0), 1, 3, 10).to_string(), "0.3333333333");
        assert_eq!(scaled(decimal(-1, 0), 2, 3, 4).to_string(), "-0.6667");
        assert_eq!(format_rfc3339(month_of(Options::demo().start_ms).1), "2026-11-01T00:00:00Z");
    }
}
