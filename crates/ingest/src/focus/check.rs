//! Checks over all charges of a run. None of them refuses anything: a bill that breaks them is still the bill.

use std::collections::{BTreeMap, BTreeSet};

use gpuledger_model::money::Decimal;
use gpuledger_model::tables::charge::{Charge, ChargeCategory};
use gpuledger_model::tables::reject::Notice;
use gpuledger_model::time::format_rfc3339;
use serde::{Deserialize, Serialize};

/// Fewer rows with whole EffectiveCost than this may be chance.
const INTEGRAL_ROWS_MIN: u64 = 5;

/// How many commitments of a billing account close: used + unused = purchased.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CommitmentCount {
    /// The provider.
    pub provider: String,
    /// BillingAccountId.
    pub account: String,
    /// BillingCurrency.
    pub currency: String,
    /// Commitments with both purchase rows and usage rows.
    pub checked: u64,
    /// Those whose used and unused cost is what was purchased, to the last digit.
    pub closed: u64,
    /// Commitments with only one side in the files, which cannot be checked.
    pub unchecked: u64,
}

/// The commitment identities, with a notice for each that does not close.
pub fn commitments(charges: &[Charge]) -> (Vec<CommitmentCount>, Vec<Notice>) {
    #[derive(Default)]
    struct Sides {
        used: Option<Decimal>,
        unused: Option<Decimal>,
        purchased: Option<Decimal>,
        is_overflown: bool,
        usage_to_ms: i64,
        purchase_to_ms: i64,
    }
    let mut all: BTreeMap<(&str, &str, &str), BTreeMap<&str, Sides>> = BTreeMap::new();
    for charge in charges {
        let Some(id) = charge.commitment_id.as_deref() else { continue };
        let account = (charge.scope.provider.as_str(), charge.scope.account.as_str(), charge.scope.currency.as_str());
        let sides = all.entry(account).or_default().entry(id).or_default();
        let (sum, amount) = match (charge.category, charge.commitment_status.as_deref()) {
            (ChargeCategory::Usage, Some("Used")) => (&mut sides.used, charge.effective),
            (ChargeCategory::Usage, Some("Unused")) => (&mut sides.unused, charge.effective),
            (ChargeCategory::Purchase, _) => {
                sides.purchase_to_ms = sides.purchase_to_ms.max(charge.charge_to_ms);
                (&mut sides.purchased, charge.billed)
            }
            _ => continue,
        };
        if charge.category == ChargeCategory::Usage {
            sides.usage_to_ms = sides.usage_to_ms.max(charge.charge_to_ms);
        }
        match sum.unwrap_or(Decimal::ZERO).checked_add(amount) {
            Some(total) => *sum = Some(total),
            None => sides.is_overflown = true,
        }
    }
    let mut counts = Vec::new();
    let mut notices = Vec::new();
    for ((provider, account, currency), commitments) in all {
        let mut count = CommitmentCount {
            provider: provider.to_owned(),
            account: account.to_owned(),
            currency: currency.to_owned(),
            checked: 0,
            closed: 0,
            unchecked: 0,
        };
        for (id, sides) in commitments {
            let (used, unused) = (sides.used.unwrap_or(Decimal::ZERO), sides.unused.unwrap_or(Decimal::ZERO));
            let has_usage = sides.used.is_some() || sides.unused.is_some();
            let (Some(purchased), true, false) = (sides.purchased, has_usage, sides.is_overflown) else {
                count.unchecked += 1;
                continue;
            };
            count.checked += 1;
            let total = used.checked_add(unused);
            if total == Some(purchased) {
                count.closed += 1;
                continue;
            }
            let difference = total.and_then(|total| total.checked_sub(purchased));
            let mut message = format!(
                "used {used} + unused {unused} is not purchased {purchased} {currency}: difference {}",
                difference.map_or_else(|| "beyond 128 bits".to_owned(), |d| d.to_string())
            );
            if sides.purchase_to_ms > sides.usage_to_ms {
                message.push_str(&format!(
                    "; the purchase runs to {}, its use is known to {}",
                    format_rfc3339(sides.purchase_to_ms),
                    format_rfc3339(sides.usage_to_ms)
                ));
            }
            notices.push(notice("commitment_not_closed", format!("{provider}/{account}/{id}"), message));
        }
        let one_sided = format!("{} have only their purchase or only their use in these files", count.unchecked);
        let closed = format!("{} of {} close: used + unused = purchased, in {currency}", count.closed, count.checked);
        let message = match (count.checked, count.unchecked) {
            (0, _) => one_sided,
            (_, 0) => closed,
            _ => format!("{closed}; {one_sided}"),
        };
        notices.push(notice("commitments", format!("{provider}/{account}"), message));
        counts.push(count);
    }
    (counts, notices)
}

/// What the amounts themselves give away: rounded costs, negative usage, costs in the wrong column.
pub fn amounts(charges: &[Charge]) -> Vec<Notice> {
    let mut notices = integral_costs(charges);
    let mut counts: BTreeMap<(&str, String), u64> = BTreeMap::new();
    for charge in charges {
        let is_commitment = charge.commitment_id.is_some();
        let mut count = |kind| *counts.entry((kind, charge.scope.id())).or_default() += 1;
        match charge.category {
            ChargeCategory::Usage if charge.billed < Decimal::ZERO || charge.effective < Decimal::ZERO => {
                count("negative_usage");
            }
            ChargeCategory::Purchase if is_commitment && !charge.effective.is_zero() => count("purchase_effective"),
            _ => {}
        }
        if charge.category == ChargeCategory::Usage
            && charge.commitment_status.as_deref() == Some("Used")
            && is_commitment
            && !charge.billed.is_zero()
        {
            count("covered_usage_billed");
        }
    }
    for ((kind, scope), count) in counts {
        let message = match kind {
            "negative_usage" => format!("{count} Usage rows are negative; they count as they are"),
            "purchase_effective" => {
                format!("{count} purchases of commitments have an EffectiveCost, which their use has too: it may be there twice")
            }
            _ => format!("{count} rows covered by a commitment have a BilledCost, which the purchase has too"),
        };
        notices.push(notice(kind, scope, message));
    }
    notices
}

/// Providers whose EffectiveCost is whole in every row though other costs of the rows are not: rounded
/// somewhere on the way (the public FOCUS 1.0 sample is such a file).
fn integral_costs(charges: &[Charge]) -> Vec<Notice> {
    let mut rows: BTreeMap<&str, (u64, bool)> = BTreeMap::new();
    let mut fractional: BTreeSet<&str> = BTreeSet::new();
    for charge in charges {
        let provider = charge.scope.provider.as_str();
        let entry = rows.entry(provider).or_default();
        entry.0 += 1;
        if !charge.effective.is_integral() {
            fractional.insert(provider);
        }
        entry.1 |= !charge.billed.is_integral() || charge.list.is_some_and(|list| !list.is_integral());
    }
    rows.into_iter()
        .filter(|(provider, (count, others_fractional))| {
            *count >= INTEGRAL_ROWS_MIN && *others_fractional && !fractional.contains(provider)
        })
        .map(|(provider, (count, _))| {
            let message =
                format!("EffectiveCost is integral in 100 % of {count} rows while other costs are not: it was rounded before delivery");
            notice("effective_cost_integral", provider.to_owned(), message)
        })
        .collect()
}

fn notice(kind: &str, subject: String, message: String) -> Notice {
    Notice { kind: kind.to_owned(), subject, message }
}
