//! The invariants as functions over tables: pure, and the same ones for tests and for debug builds.
//!
//! Each is named after its id in `docs/ARCHITECTURE.md`, takes the tables that can show it broken, and says in
//! words what is. Debug builds ask them of every run (`app::pipeline`); release builds do not. Invariants that no
//! table can show broken (who may read the clock, what standard output carries) are tests of `app`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::money::Decimal;
use crate::tables::charge::{Charge, Scope};
use crate::tables::posting::{Ledger, Posting};
use crate::tables::record::WindowRow;
use crate::tables::reject::Reject;
use crate::tables::telemetry::{Field, Telemetry};
use crate::time::{HOUR_MS, WINDOW_MS, floor_to};

/// An invariant that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breach {
    /// Id of the invariant.
    pub id: &'static str,
    /// What is wrong, and where.
    pub what: String,
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} does not hold: {}", self.id, self.what)
    }
}

impl std::error::Error for Breach {}

/// What a check says.
pub type Held = Result<(), Breach>;

/// The check fails with these words unless the condition holds.
fn unless(holds: bool, id: &'static str, what: impl FnOnce() -> String) -> Held {
    if holds { Ok(()) } else { Err(Breach { id, what: what() }) }
}

/// **MODEL-1**: money is an exact decimal with a currency. Every amount reads back from its own text, digit for
/// digit, and all amounts of a scope have one scale.
pub fn model_1(ledger: &Ledger) -> Held {
    let mut scales: BTreeMap<&Scope, u8> = BTreeMap::new();
    for posting in &ledger.postings {
        let amount = posting.amount;
        unless(!posting.scope.currency.is_empty(), "MODEL-1", || format!("{} has no currency", shown(posting)))?;
        let again: Option<Decimal> = amount.to_string().parse().ok();
        let is_exact = again.is_some_and(|again| (again.mantissa, again.scale) == (amount.mantissa, amount.scale));
        unless(is_exact, "MODEL-1", || format!("{} does not survive its text", shown(posting)))?;
        let scale = *scales.entry(&posting.scope).or_insert(amount.scale);
        unless(scale == amount.scale, "MODEL-1", || {
            format!("{} has {} decimals, others of its scope {scale}", shown(posting), amount.scale)
        })?;
    }
    for closing in &ledger.closings {
        unless(!closing.scope.currency.is_empty(), "MODEL-1", || format!("scope {} has no currency", closing.scope.id()))?;
    }
    Ok(())
}

/// **MODEL-2**: windows are half-open and UTC. Hours of postings are whole hours of UTC, and no finding or charge
/// ends before it starts.
pub fn model_2(charges: &[Charge], ledger: &Ledger) -> Held {
    for posting in &ledger.postings {
        unless(floor_to(posting.hour_ms, HOUR_MS) == posting.hour_ms, "MODEL-2", || format!("{} is not of a whole hour", shown(posting)))?;
    }
    for finding in &ledger.findings {
        if let (Some(from_ms), Some(to_ms)) = (finding.from_ms, finding.to_ms) {
            unless(from_ms < to_ms, "MODEL-2", || format!("finding {} is of no time", finding.id))?;
        }
    }
    for charge in charges {
        unless(charge.charge_from_ms <= charge.charge_to_ms, "MODEL-2", || {
            format!("{}:{}: the charge period ends before it starts", charge.file, charge.line)
        })?;
    }
    Ok(())
}

/// **MODEL-3**: absent is a missing row, never zero. A series that is there has samples, and a value for each time.
pub fn model_3(telemetry: &Telemetry) -> Held {
    for (key, column) in telemetry.series.iter().chain(&telemetry.vgpu_series) {
        unless(!column.times_ms.is_empty() && column.times_ms.len() == column.values.len(), "MODEL-3", || {
            format!("{} {}: {} times, {} values", key.unit.id(), key.field.as_str(), column.times_ms.len(), column.values.len())
        })?;
    }
    Ok(())
}

/// **MODEL-3** of windows: what covers nothing is not there. Observed and covered time lie within the window, and a
/// mean lies between the least and the greatest value.
pub fn model_3_windows(windows: &[WindowRow]) -> Held {
    for row in windows {
        let length_ms = row.to_ms.saturating_sub(row.from_ms);
        let about = || format!("window {} of {}", row.from_ms, row.unit);
        let is_one =
            length_ms > 0 && row.from_ms >= floor_to(row.from_ms, WINDOW_MS) && row.to_ms <= floor_to(row.from_ms, WINDOW_MS) + WINDOW_MS;
        unless(is_one, "MODEL-3", || format!("{} reaches over five minutes", about()))?;
        unless((0..=length_ms).contains(&row.observed_ms), "MODEL-3", || format!("{} is observed for {} ms", about(), row.observed_ms))?;
        for measure in row.measures().into_iter().flatten() {
            let is_covered = (1..=length_ms).contains(&measure.covered_ms);
            unless(is_covered, "MODEL-3", || format!("{} has a field that covers {} ms", about(), measure.covered_ms))?;
            let (least, greatest) = (i128::from(measure.least), i128::from(measure.greatest));
            let (sum, covered) = (i128::from(measure.sum), i128::from(measure.covered_ms));
            let is_mean = (least * covered..=greatest * covered).contains(&sum);
            unless(is_mean, "MODEL-3", || format!("{} has a mean outside of its values", about()))?;
        }
    }
    Ok(())
}

/// **ING-1**: order, splits and repeats leave no trace. Times of a series, label or target ascend strictly.
pub fn ing_1(telemetry: &Telemetry) -> Held {
    let series = telemetry.series.iter().map(|(key, column)| (key.unit.id(), &column.times_ms));
    let labels = telemetry.holder_labels.iter().map(|((_, unit, _), times)| (unit.id(), times));
    let scrapes = telemetry.scrapes.iter().map(|((host, _), times)| (host.name.clone(), times));
    for (name, times) in series.chain(labels).chain(scrapes) {
        unless(times.iter().zip(times.iter().skip(1)).all(|(a, b)| a < b), "ING-1", || format!("times of {name} do not ascend"))?;
    }
    Ok(())
}

/// **ING-2**: sentinels never become values. Nothing is below zero, and no ratio is above one.
pub fn ing_2(telemetry: &Telemetry) -> Held {
    for (key, column) in &telemetry.series {
        let most = if is_ratio(key.field) { 1_000_000 } else { i64::MAX };
        if let Some(value) = column.values.iter().find(|value| !(0..=most).contains(*value)) {
            return Err(Breach { id: "ING-2", what: format!("{} {}: {value} of {}", key.unit.id(), key.field.as_str(), key.field.unit()) });
        }
    }
    Ok(())
}

fn is_ratio(field: Field) -> bool {
    field.unit() == "1e-6 ratio"
}

/// **ING-3**: every input row is in a table or in `rejects`: a reject names its file and reason, and counts what it
/// stands for.
pub fn ing_3(rejects: &[Reject]) -> Held {
    for reject in rejects {
        let is_named = !reject.file.is_empty() && !reject.reason.is_empty() && reject.count > 0;
        unless(is_named, "ING-3", || format!("a reject does not say what it is: {reject:?}"))?;
    }
    Ok(())
}

/// **ING-3** of one input: so many rows were seen as were taken and refused.
pub fn ing_3_rows(seen: u64, taken: u64, refused: u64) -> Held {
    unless(taken.checked_add(refused) == Some(seen), "ING-3", || format!("of {seen} rows {taken} were taken and {refused} refused"))
}

/// **STORE-1**: an append is all or nothing. Every table of an appended batch is in the catalogue.
/// `batches` names the tables (name, key) of each batch, `tables` the rows of each table by name and key.
pub fn store_1(batches: &BTreeMap<String, Vec<(String, String)>>, tables: &BTreeMap<String, BTreeMap<String, u64>>) -> Held {
    for (id, own) in batches {
        for (name, key) in own {
            let is_there = tables.get(name).is_some_and(|keys| keys.contains_key(key));
            unless(is_there, "STORE-1", || format!("table {name} of batch {id} is missing"))?;
        }
    }
    Ok(())
}

/// **STORE-2**: an append is idempotent by its batch id. No table belongs to two batches.
pub fn store_2(batches: &BTreeMap<String, Vec<(String, String)>>) -> Held {
    let mut met = BTreeSet::new();
    for (id, own) in batches {
        for table in own {
            unless(met.insert(table), "STORE-2", || format!("batch {id} appends {} again", table.0))?;
        }
    }
    Ok(())
}

/// **STORE-3**: bytes that were read before count once. Each input stands on a batch that is there, and no batch is
/// without one. `sources` names the batch of each input.
pub fn store_3(sources: &BTreeMap<String, String>, batches: &BTreeMap<String, Vec<(String, String)>>) -> Held {
    for (source, batch) in sources {
        unless(batches.contains_key(batch), "STORE-3", || format!("{source} stands on no batch"))?;
    }
    let used: BTreeSet<&String> = sources.values().collect();
    match batches.keys().find(|id| !used.contains(id)) {
        Some(id) => Err(Breach { id: "STORE-3", what: format!("no input stands behind batch {id}") }),
        None => Ok(()),
    }
}

/// **ATTR-1**: per scope, the sum of postings is the sum of EffectiveCost, exactly; and so it is row by row.
/// `charges` are the rows of the scopes that were not refused.
pub fn attr_1(charges: &[Charge], ledger: &Ledger) -> Held {
    let overflow = |scope: &Scope| Breach { id: "ATTR-1", what: format!("the sum of {} leaves 128 bits", scope.id()) };
    let mut rows: BTreeMap<&Scope, Vec<Decimal>> = BTreeMap::new();
    for charge in charges {
        rows.entry(&charge.scope).or_default().push(charge.effective);
    }
    let mut pools: BTreeMap<(&Scope, &str), Decimal> = BTreeMap::new();
    for posting in &ledger.postings {
        let sum = pools.entry((&posting.scope, &posting.pool)).or_insert(Decimal::ZERO);
        *sum = sum.checked_add(posting.amount).ok_or_else(|| overflow(&posting.scope))?;
    }
    let mut posted: BTreeMap<&Scope, Vec<Decimal>> = BTreeMap::new();
    for ((scope, _), sum) in &pools {
        posted.entry(*scope).or_default().push(*sum);
    }
    for closing in &ledger.closings {
        let own = posted.remove(&closing.scope).unwrap_or_default();
        let sum = total(&own).ok_or_else(|| overflow(&closing.scope))?;
        unless(closing.difference.is_zero() && closing.bill == closing.posted && sum == closing.posted, "ATTR-1", || {
            format!("{}: bill {}, posted {}, postings {sum}", closing.scope.id(), closing.bill, closing.posted)
        })?;
        // Estimates have no row, and refused scopes no posting.
        if let Some(billed) = rows.remove(&closing.scope) {
            let is_same = total(&billed) == Some(sum) && amounts(billed) == amounts(own);
            unless(is_same, "ATTR-1", || format!("{}: pools are not the rows of the bill", closing.scope.id()))?;
        }
    }
    match posted.keys().chain(rows.keys()).next() {
        Some(scope) => Err(Breach { id: "ATTR-1", what: format!("{} is not closed", scope.id()) }),
        None => Ok(()),
    }
}

fn total(amounts: &[Decimal]) -> Option<Decimal> {
    amounts.iter().try_fold(Decimal::ZERO, |sum, amount| sum.checked_add(*amount))
}

/// In order, without the rows of nothing: these make no posting.
fn amounts(mut amounts: Vec<Decimal>) -> Vec<Decimal> {
    amounts.retain(|amount| !amount.is_zero());
    amounts.sort();
    amounts
}

/// **ATTR-2**: same inputs, same bytes. Postings stand in the order of their keys, and no key twice.
pub fn attr_2(ledger: &Ledger) -> Held {
    let before = |a: &Posting, b: &Posting| {
        let first = (&a.scope, a.hour_ms, &a.device, &a.machine, &a.holder, a.cause.as_str(), a.part, &a.pool);
        first < (&b.scope, b.hour_ms, &b.device, &b.machine, &b.holder, b.cause.as_str(), b.part, &b.pool)
    };
    let next = ledger.postings.iter().skip(1);
    match ledger.postings.iter().zip(next).find(|(a, b)| !before(a, b)) {
        Some((_, posting)) => Err(Breach { id: "ATTR-2", what: format!("{} is out of order, or there twice", shown(posting)) }),
        None => Ok(()),
    }
}

/// **ATTR-3**: each posting names its rule and version; each finding its rule and evidence.
pub fn attr_3(ledger: &Ledger) -> Held {
    let is_rule = |rule: &str| rule.split_once('@').is_some_and(|(name, version)| !name.is_empty() && !version.is_empty());
    for posting in &ledger.postings {
        unless(is_rule(&posting.rule), "ATTR-3", || format!("{} names the rule {:?}", shown(posting), posting.rule))?;
    }
    for finding in &ledger.findings {
        let is_told = is_rule(&finding.rule) && !finding.evidence.is_empty() && !finding.would_change.is_empty();
        unless(is_told, "ATTR-3", || format!("finding {} names no rule, no evidence, or nothing that would change it", finding.id))?;
    }
    Ok(())
}

/// **SIM-1**: one seed, one world, to the byte. Both hold the content of each file of a world by its name.
pub fn sim_1(first: &BTreeMap<String, Vec<u8>>, second: &BTreeMap<String, Vec<u8>>) -> Held {
    let names: BTreeSet<&String> = first.keys().chain(second.keys()).collect();
    match names.into_iter().find(|name| first.get(*name) != second.get(*name)) {
        Some(name) => Err(Breach { id: "SIM-1", what: format!("{name} differs") }),
        None => Ok(()),
    }
}

/// **SIM-2**: truth is written by construction. Per currency it sums to the bills, whatever an accounting says.
pub fn sim_2(billed: &BTreeMap<String, Decimal>, truth: &BTreeMap<String, Decimal>) -> Held {
    unless(billed == truth, "SIM-2", || format!("bills hold {billed:?}, the truth {truth:?}"))
}

fn shown(posting: &Posting) -> String {
    format!("posting {} {} {} {} of pool {}", posting.hour_ms, posting.device, posting.holder, posting.cause, posting.pool)
}
