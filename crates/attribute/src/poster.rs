//! What is posted where: machine pools, estimates, rows that the bill alone explains, and findings beside them.

use std::collections::{BTreeMap, BTreeSet};

use gpuledger_model::cause::{Cause, Class, Confidence, Part, State};
use gpuledger_model::money::Decimal;
use gpuledger_model::price::PriceList;
use gpuledger_model::tables::charge::{Charge, Scope};
use gpuledger_model::tables::placement::Holder;
use gpuledger_model::tables::posting::{Finding, PlacedBy, Posting};
use gpuledger_model::time::{HOUR_MS, Window, WindowSet, format_rfc3339};

use crate::find::{self, Ground, MoneyStretch};
use crate::ladder::{self, Remark};
use crate::machine::Machine;
use crate::observe::MachineRecord;
use crate::paid::{self, Signs};
use crate::pool::{self, BillKind, RowFacts};
use crate::post::{self, Grouped, Pool};
use crate::rules::RuleBook;
use crate::run::{SignSpans, is_stopped, price_of};
use crate::spread::{NOBODY, Spreader};

/// Collects postings and the ground of findings.
pub(crate) struct Poster<'a> {
    pub(crate) book: &'a RuleBook,
    pub(crate) holders: &'a [Holder],
    pub(crate) postings: Vec<Posting>,
    pub(crate) ground: Ground,
    pub(crate) findings: Vec<Finding>,
}

impl Poster<'_> {
    /// Posts the rows of a machine and period; `false` when there was nothing to post on.
    pub(crate) fn machine(&mut self, spreader: &Spreader<'_>, paid: &paid::Paid, pools: &[Pool<'_>], counted: &mut WindowSet) -> bool {
        let placed = match paid.placed_by {
            PlacedBy::Rows => Confidence::High,
            PlacedBy::Evidence => Confidence::Medium,
            PlacedBy::Period => Confidence::Low,
        };
        let spread = spreader.weights(&paid.time, placed).finish();
        if spread.keys.is_empty() {
            return false;
        }
        let fresh = paid.time.minus(counted);
        let fresh_spread = if fresh == paid.time {
            None
        } else if fresh.parts().is_empty() {
            Some(None)
        } else {
            Some(Some(spreader.weights(&fresh, placed).finish()))
        };
        let time_of = match &fresh_spread {
            None => Some(&spread),
            Some(own) => own.as_ref(),
        };
        *counted = counted.union(&paid.time);
        let grouped = Grouped::new(&spread, time_of, spreader.record, spreader.unit_ids, self.holders);
        for (at, pool) in pools.iter().enumerate() {
            grouped.post(pool, paid.placed_by, &self.book.version, at == 0, &mut self.postings);
        }
        // Findings: the money of each stretch, by currency.
        let mut by_currency: BTreeMap<&str, Decimal> = BTreeMap::new();
        for pool in pools {
            let own = Decimal { mantissa: pool.units, scale: pool.scale };
            let slot = by_currency.entry(&pool.scope.currency).or_insert(Decimal::ZERO);
            *slot = slot.checked_add(own).unwrap_or(*slot);
        }
        let total = device_weight(&spread);
        for stretch in &spread.stretches {
            let subject = match stretch.holder {
                NOBODY => spreader.record.machine.id.as_str(),
                holder => self.holders[holder as usize].key.as_str(),
            };
            for (currency, amount) in &by_currency {
                let units = self.ground.share(*amount, u128::from(stretch.weight), total, currency);
                let row = MoneyStretch {
                    window: stretch.window,
                    units,
                    rule: stretch.rule,
                    confidence: stretch.confidence,
                    device: spreader.unit_ids[stretch.unit as usize].to_string(),
                };
                self.ground.add(stretch.cause, subject, currency, row);
            }
        }
        true
    }

    /// Takes the host's share out of a pool and posts it as `host`.
    pub(crate) fn host_apart(&mut self, record: &MachineRecord, paid: &paid::Paid, pool: &mut Pool<'_>, share: Option<(u128, u128)>) {
        let Some((host, whole)) = share else { return };
        let Some(parts) = gpuledger_model::money::split_largest_remainder(pool.units, &[host, whole - host]) else { return };
        let own = Pool { units: parts[0], ..pool.clone() };
        pool.units = parts[1];
        let template = Posting {
            machine: record.machine.id.clone(),
            cause: Cause::Host,
            part: Part::Bill,
            rule: format!("host_share.apart@{}", self.book.version),
            placed_by: paid.placed_by,
            ..blank(own.scope)
        };
        post::spread_over_paid(&own, &paid.time, &template, &mut self.postings);
    }

    /// An accelerator machine that was seen after its last usage row, or has none: list price x the time seen.
    pub(crate) fn estimate(
        &mut self,
        spreader: &Spreader<'_>,
        signs: &Signs,
        spans: &SignSpans,
        usage: &BTreeMap<Window, Vec<usize>>,
        prices: &PriceList,
        counted: &mut WindowSet,
    ) {
        let record = spreader.record;
        let machine = &record.machine;
        if !machine.has_accelerators {
            return;
        }
        let last_sample = record.sample_hours.values().map(|(_, last)| *last).max();
        let Some(last_time) = last_sample.max(spans.last_time_ms) else { return };
        let first_time = signs.first_ms().unwrap_or(last_time);
        let billed_to = usage.keys().map(|w| w.to_ms).max();
        let seen = Window::new(billed_to.map_or(first_time, |t| t.max(first_time)), last_time);
        if seen.is_empty() {
            return;
        }
        let price = price_of(machine, prices);
        let Some(hourly) = price.and_then(|p| p.on_demand_usd_per_hour) else {
            self.findings.push(Finding {
                id: find::finding_id("estimate.no_price", &machine.id, seen.from_ms),
                kind: "no_price".to_string(),
                cause: None,
                subject: machine.id.clone(),
                currency: None,
                amount: None,
                from_ms: Some(seen.from_ms),
                to_ms: Some(seen.to_ms),
                confidence: Confidence::High,
                evidence: format!(
                    "seen from {} to {} without a bill row, and instance type `{}` has no price",
                    format_rfc3339(seen.from_ms),
                    format_rfc3339(seen.to_ms),
                    machine.instance_type.as_deref().unwrap_or("unknown")
                ),
                rule: format!("estimate.no_price@{}", self.book.version),
                would_change: "a bill row of the machine, or a row for its instance type in `--prices`".to_string(),
            });
            return;
        };
        let word = machine.cloud.map(|c| c.as_str()).or(price.map(|p| p.cloud.as_str())).unwrap_or("other");
        let scope =
            Scope { provider: format!("estimate:{word}"), account: String::new(), period: String::new(), currency: "USD".to_string() };
        let Some(amount) = estimate_amount(hourly, seen.duration_ms()) else { return };
        let scale = gpuledger_model::money::SCOPE_SCALE_MIN;
        let Some(units) = amount.rescaled(scale).map(|d| d.mantissa) else { return };
        let pool = Pool { id: format!("estimate.{}", machine.id), scope: &scope, units, scale, state: State::Estimated };
        let placed_by = PlacedBy::Evidence;
        let paid = paid::Paid { time: WindowSet::from_windows(vec![seen]), placed_by };
        self.machine(spreader, &paid, &[pool], counted);
    }

    /// Rows that no machine's time carries.
    #[allow(clippy::too_many_arguments, reason = "the tables that settle the kind of a row")]
    pub(crate) fn bill_only(
        &mut self,
        charge: &Charge,
        facts: &RowFacts,
        pool: &Pool<'_>,
        machine: Option<&Machine>,
        machines: &[Machine],
        usage: &[BTreeMap<Window, Vec<usize>>],
        signs: &[Signs],
    ) {
        let mut stopped = None;
        let (cause, rule) = match pool::bill_kind(charge, self.book) {
            Some(BillKind::Category(cause)) => (cause, "bill.category"),
            Some(BillKind::Unused(cause)) => (cause, "bill.unused"),
            Some(BillKind::Purchase) => (Cause::CommitmentPurchase, "bill.purchase"),
            None if machine.is_some() || (facts.machine.is_empty() && facts.is_machine_usage && facts.shows_accelerators()) => {
                (Cause::NotInInventory, "bill.not_seen")
            }
            None => {
                let named = pool::machines_named(charge);
                stopped = machines.iter().position(|m| {
                    let by_name = charge.resource_name.as_ref().is_some_and(|name| m.resource_names.contains(name));
                    let is_linked = !facts.is_machine_usage_of(&m.id) && (by_name || named.contains(&m.id));
                    m.has_accelerators && m.has_provider_id && is_linked
                });
                (Cause::OtherService, "bill.other")
            }
        };
        let part = if cause.class() == Class::Unknown { Part::Unknown } else { Part::Bill };
        let subject = match cause {
            Cause::UnusedCommitment => charge.commitment_id.clone().or(charge.resource_id.clone()),
            Cause::UnusedCapacityBlock => charge.capacity_reservation_id.clone().or(charge.resource_id.clone()),
            _ => charge.resource_id.clone(),
        };
        let template = Posting {
            machine: machines.binary_search_by(|m| m.id.cmp(&facts.machine)).map(|_| facts.machine.clone()).unwrap_or_default(),
            cause,
            part,
            rule: format!("{rule}@{}", self.book.version),
            service: charge.service_name.clone().unwrap_or_default(),
            ..blank(&charge.scope)
        };
        let before = self.postings.len();
        post::spread_over_hours(pool, charge.charge_window(), &template, &mut self.postings);
        let subject = subject.unwrap_or_default();
        for posting in &mut self.postings[before..] {
            let window = Window::new(posting.hour_ms, posting.hour_ms + HOUR_MS).intersect(charge.charge_window());
            let mut rule = rule;
            // Storage of a machine that stood still in this hour.
            if stopped.is_some_and(|at| is_stopped(window, &usage[at], &signs[at])) {
                rule = "bill.stopped_storage";
                posting.cause = Cause::StoppedMachineStorage;
                posting.rule = format!("{rule}@{}", self.book.version);
            }
            if matches!(posting.cause.class(), Class::Waste | Class::Unknown) {
                let units = self.ground.share(posting.amount, 1, 1, &charge.scope.currency);
                let row = MoneyStretch { window, units, rule, confidence: Confidence::High, device: String::new() };
                self.ground.add(posting.cause, &subject, &charge.scope.currency, row);
            }
        }
    }

    /// Faults of the data that a machine's record shows.
    pub(crate) fn machine_findings(&mut self, record: &MachineRecord) {
        let book = self.book;
        let mut push = |kind: &str, subject: &str, window: Option<Window>, evidence: String, would_change: &str| {
            let finding = Finding {
                id: find::finding_id(kind, subject, window.map_or(0, |w| w.from_ms)),
                kind: kind.to_string(),
                cause: None,
                subject: subject.to_string(),
                currency: None,
                amount: None,
                from_ms: window.map(|w| w.from_ms),
                to_ms: window.map(|w| w.to_ms),
                confidence: Confidence::High,
                evidence,
                rule: format!("{kind}@{}", book.version),
                would_change: would_change.to_string(),
            };
            self.findings.push(finding);
        };
        let mut producers: BTreeMap<&str, (BTreeSet<&str>, Window, BTreeSet<&str>)> = BTreeMap::new();
        for (unit, field, names, window) in &record.duplicates {
            let slot = producers.entry(names).or_insert_with(|| (BTreeSet::new(), *window, BTreeSet::new()));
            slot.0.insert(unit);
            slot.1 = Window::new(slot.1.from_ms.min(window.from_ms), slot.1.to_ms.max(window.to_ms));
            slot.2.insert(field.as_str());
        }
        for (names, (units, window, fields)) in producers {
            push(
                "duplicate_producer",
                &record.machine.id,
                Some(window),
                format!("{names} both say {} field(s) of {} device(s); one counts per hour, none is added", fields.len(), units.len()),
                "one exporter per node",
            );
        }
        for unit in &record.holdings.over_declared {
            push(
                "fractions_over_one",
                unit,
                None,
                "declared fractions add to more than one and were scaled to one".to_string(),
                "fractions that add to at most one",
            );
        }
        for (holder, node, count, window) in &record.holdings.without_device {
            push(
                "count_without_device",
                holder,
                Some(*window).filter(|w| w.to_ms != i64::MAX && w.from_ms != i64::MIN),
                format!("{count} device(s) counted on node {node}, and none was free: nothing is held by this count"),
                "the device named by the scheduler, or telemetry of the missing device",
            );
        }
    }

    pub(crate) fn remarks(&mut self, joins: &[String], ladder: &[Remark]) {
        for text in joins {
            self.findings.push(Finding {
                id: find::finding_id("ambiguous_host", text, 0),
                kind: "ambiguous_host".to_string(),
                cause: None,
                subject: text.split('`').nth(1).unwrap_or_default().to_string(),
                currency: None,
                amount: None,
                from_ms: None,
                to_ms: None,
                confidence: Confidence::High,
                evidence: text.clone(),
                rule: format!("ambiguous_host@{}", self.book.version),
                would_change: "a `cluster` label on the series".to_string(),
            });
        }
        for remark in ladder {
            self.findings.push(Finding {
                id: find::finding_id(remark.kind, &remark.subject, remark.window.from_ms),
                kind: remark.kind.to_string(),
                cause: None,
                subject: remark.subject.clone(),
                currency: None,
                amount: None,
                from_ms: Some(remark.window.from_ms),
                to_ms: Some(remark.window.to_ms),
                confidence: Confidence::High,
                evidence: remark.evidence.clone(),
                rule: format!("{}@{}", remark.kind, self.book.version),
                would_change: remark.would_change.to_string(),
            });
        }
    }
}

/// A posting of the bill alone, to be filled in.
fn blank(scope: &Scope) -> Posting {
    Posting {
        scope: scope.clone(),
        pool: String::new(),
        hour_ms: 0,
        device: String::new(),
        machine: String::new(),
        node: String::new(),
        cluster: String::new(),
        model: String::new(),
        holder: String::new(),
        cause: Cause::OtherService,
        part: Part::Bill,
        amount: Decimal::ZERO,
        device_ms: 0,
        energy_joules: 0,
        rule: String::new(),
        confidence: Confidence::High,
        state: State::Reconciled,
        placed_by: PlacedBy::Rows,
        service: String::new(),
    }
}

/// Sum of the weights in the unit of stretches: device-ms x 10^6.
fn device_weight(spread: &crate::spread::Spread) -> u128 {
    u128::try_from(spread.weights.total_over(&spread.common)).unwrap_or(0) * ladder::WHOLE_PPM as u128
}

/// List price x time, rounded half up to 9 decimals.
fn estimate_amount(hourly: Decimal, ms: i64) -> Option<Decimal> {
    let at_nine = hourly.rescaled(hourly.scale.max(9))?;
    let numerator = at_nine.mantissa.checked_mul(i128::from(ms))?;
    let denominator = i128::from(HOUR_MS).checked_mul(10i128.checked_pow(u32::from(at_nine.scale - 9))?)?;
    Some(Decimal { mantissa: (2 * numerator + denominator) / (2 * denominator), scale: 9 })
}
