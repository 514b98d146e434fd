//! From postings to the report: one pass that chooses and adds.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use gpuledger_model::cause::{Cause, Class, Confidence, Part, State};
use gpuledger_model::money::Decimal;
use gpuledger_model::tables::posting::{Finding, Posting};
use gpuledger_model::time::{HOUR_MS, Window, format_rfc3339};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};

use super::dimension::{Dimensions, Key, NONE, Named};
use super::{
    CauseRow, ClosingRow, ConfidenceAmounts, FindingRow, GroupCause, GroupKey, GroupRow, Report, ReportError, ReportInput, ReportOptions,
    SCHEMA, Span, TimelineRow, TotalRow, UnknownRow,
};
use crate::window_arg::round_outward;

/// Up to this length a report's timeline is drawn by hours, beyond it by days.
const HOURLY_TIMELINE_MAX_MS: i64 = 48 * HOUR_MS;

const JOULES_PER_KWH: f64 = 3_600_000.0;

/// The keys of groups when none are asked for: teams if owners are known by rules, else namespaces.
pub fn default_keys(has_owner_rules: bool) -> Vec<Key> {
    vec![if has_owner_rules { Key::Team } else { Key::Namespace }]
}

/// Chooses and adds. The postings may come in any order: the report is the same.
pub fn build(input: &ReportInput<'_>, options: &ReportOptions) -> Result<Report, ReportError> {
    let dimensions = Dimensions::new(input.placements, input.owners);
    let keys = if options.by.is_empty() { default_keys(dimensions.has_owner_rules()) } else { options.by.clone() };
    let asked = options.window.map(round_outward);
    let window = asked.map(|(window, _)| window).or_else(|| span_of(&input.ledger.postings));

    let mut sums = Sums::default();
    for posting in &input.ledger.postings {
        if !window.is_some_and(|window| window.contains(posting.hour_ms)) {
            continue;
        }
        sums.add_to_window(posting)?;
        let named = dimensions.named(posting);
        if options.filter.as_ref().is_none_or(|filter| filter.keeps(&named)) {
            sums.add(&named, &keys)?;
            if options.filter.is_some() {
                sums.add_subjects(&named);
            }
        }
    }

    let timeline = timeline(&sums.hours, window, &options.timezone)?;
    Ok(Report {
        schema: SCHEMA,
        window: Span { from: window.map(|w| w.from_ms), to: window.map(|w| w.to_ms) },
        inputs: input.inputs.to_vec(),
        closing: closing_rows(input),
        invoices: input.invoices.to_vec(),
        totals: sums.totals.iter().map(|(currency, amount)| TotalRow { currency: currency.to_string(), amount: *amount }).collect(),
        unknown: sums.unknown_rows(),
        causes: sums.cause_rows(),
        groups: sums.group_rows(&keys),
        findings: finding_rows(input, options, window, &sums.subjects),
        notes: notes(input, options, asked, &sums, dimensions.has_owner_rules()),
        by: keys.iter().map(Key::to_string).collect(),
        filter: options.filter.as_ref().map(|filter| filter.text().to_string()),
        timezone: options.timezone.iana_name().unwrap_or("UTC").to_string(),
        simulated: input.is_simulated,
        energy_kwh: kwh(sums.energy_joules),
        timeline,
        rejects: input.rejects.to_vec(),
        notices: input.notices.to_vec(),
    })
}

/// The hours of all postings.
fn span_of(postings: &[Posting]) -> Option<Window> {
    let from_ms = postings.iter().map(|p| p.hour_ms).min()?;
    let to_ms = postings.iter().map(|p| p.hour_ms).max()?;
    Some(Window::new(from_ms, to_ms.saturating_add(HOUR_MS)))
}

/// All sums of one pass. Ordered maps: the order of postings leaves no trace.
#[derive(Default)]
struct Sums<'a> {
    /// Per currency, before the filter: what shares are of.
    window: BTreeMap<&'a str, Decimal>,
    totals: BTreeMap<&'a str, Decimal>,
    unknown: BTreeMap<(&'a str, usize), Decimal>,
    causes: BTreeMap<(&'a str, Cause, Part), CauseSum>,
    groups: BTreeMap<(&'a str, Vec<Cow<'a, str>>), GroupSum>,
    hours: BTreeMap<(i64, &'a str, Class), Decimal>,
    /// What findings may be about, of the postings shown.
    subjects: BTreeSet<(Cause, &'a str)>,
    energy_joules: i128,
    has_estimates: bool,
}

#[derive(Default)]
struct CauseSum {
    amount: Decimals,
    device_ms: i128,
    energy_joules: i128,
    high: Decimals,
    medium: Decimals,
    low: Decimals,
}

#[derive(Default)]
struct GroupSum {
    amount: Decimals,
    energy_joules: i128,
    causes: BTreeMap<Cause, Decimals>,
}

/// A sum that starts at zero.
#[derive(Clone, Copy)]
struct Decimals(Decimal);

impl Default for Decimals {
    fn default() -> Decimals {
        Decimals(Decimal::ZERO)
    }
}

impl Decimals {
    fn add(&mut self, amount: Decimal, currency: &str) -> Result<(), ReportError> {
        self.0 = add(self.0, amount, currency)?;
        Ok(())
    }
}

/// The rows of `unknown`, in the order in which a report opens.
const UNKNOWN_ROWS: [&str; 5] = ["unobserved", "unresolved", "not_in_inventory", "unowned", "estimated"];

impl<'a> Sums<'a> {
    fn add_to_window(&mut self, posting: &'a Posting) -> Result<(), ReportError> {
        let currency = posting.scope.currency.as_str();
        let sum = self.window.entry(currency).or_insert(Decimal::ZERO);
        *sum = add(*sum, posting.amount, currency)?;
        Ok(())
    }

    fn add(&mut self, named: &Named<'a>, keys: &[Key]) -> Result<(), ReportError> {
        let posting = named.posting;
        let currency = posting.scope.currency.as_str();
        let amount = posting.amount;

        let total = self.totals.entry(currency).or_insert(Decimal::ZERO);
        *total = add(*total, amount, currency)?;

        let unknown = [
            posting.cause == Cause::Unobserved,
            posting.cause == Cause::Unresolved,
            posting.cause == Cause::NotInInventory,
            named.is_unowned(),
            posting.state == State::Estimated,
        ];
        for (at, is_unknown) in unknown.into_iter().enumerate() {
            let sum = self.unknown.entry((currency, at)).or_insert(Decimal::ZERO);
            if is_unknown {
                *sum = add(*sum, amount, currency)?;
            }
        }
        self.has_estimates |= posting.state == State::Estimated;

        let cause = self.causes.entry((currency, posting.cause, posting.part)).or_default();
        cause.amount.add(amount, currency)?;
        cause.device_ms += i128::from(posting.device_ms);
        cause.energy_joules += i128::from(posting.energy_joules);
        match posting.confidence {
            Confidence::High => cause.high.add(amount, currency)?,
            Confidence::Medium => cause.medium.add(amount, currency)?,
            Confidence::Low => cause.low.add(amount, currency)?,
        }

        let values = keys.iter().map(|key| named.value(key).unwrap_or(Cow::Borrowed(NONE))).collect();
        let group = self.groups.entry((currency, values)).or_default();
        group.amount.add(amount, currency)?;
        group.energy_joules += i128::from(posting.energy_joules);
        group.causes.entry(posting.cause).or_default().add(amount, currency)?;

        let hour = self.hours.entry((posting.hour_ms, currency, posting.cause.class())).or_insert(Decimal::ZERO);
        *hour = add(*hour, amount, currency)?;

        self.energy_joules += i128::from(posting.energy_joules);
        Ok(())
    }

    /// What findings may be about, for a filter that has to choose among them.
    fn add_subjects(&mut self, named: &Named<'a>) {
        let posting = named.posting;
        for subject in [&posting.holder, &posting.device, &posting.machine, &posting.node, &posting.pool, &posting.service] {
            if !subject.is_empty() {
                self.subjects.insert((posting.cause, subject));
            }
        }
        if let Some(run) = named.value(&Key::Run)
            && let Cow::Borrowed(run) = run
        {
            self.subjects.insert((posting.cause, run));
        }
    }

    fn share(&self, currency: &str, amount: Decimal) -> Option<f64> {
        share(amount, *self.window.get(currency)?)
    }

    fn unknown_rows(&self) -> Vec<UnknownRow> {
        let row = |(&(currency, at), amount): (&(&str, usize), &Decimal)| {
            let amount = at_scale_of(*amount, self.totals.get(currency).copied());
            let what = UNKNOWN_ROWS.get(at).copied().unwrap_or_default();
            UnknownRow { what, currency: currency.to_string(), amount, share: self.share(currency, amount) }
        };
        self.unknown.iter().map(row).collect()
    }

    fn cause_rows(&self) -> Vec<CauseRow> {
        let mut rows: Vec<CauseRow> = self
            .causes
            .iter()
            .map(|(&(currency, cause, part), sum)| {
                let amount = sum.amount.0;
                let scaled = |part: Decimals| at_scale_of(part.0, Some(amount));
                CauseRow {
                    cause,
                    class: cause.class(),
                    part,
                    currency: currency.to_string(),
                    amount,
                    share: self.share(currency, amount),
                    device_seconds: sum.device_ms as f64 / 1_000.0,
                    confidence: ConfidenceAmounts { high: scaled(sum.high), medium: scaled(sum.medium), low: scaled(sum.low) },
                    energy_kwh: kwh(sum.energy_joules),
                }
            })
            .collect();
        // Stable: equal amounts keep the order of causes and parts.
        rows.sort_by(|a, b| a.currency.cmp(&b.currency).then(b.amount.cmp(&a.amount)));
        rows
    }

    fn group_rows(&self, keys: &[Key]) -> Vec<GroupRow> {
        let mut rows: Vec<GroupRow> = self
            .groups
            .iter()
            .map(|((currency, values), sum)| {
                let mut causes: Vec<GroupCause> = sum
                    .causes
                    .iter()
                    .map(|(cause, amount)| GroupCause { cause: *cause, amount: at_scale_of(amount.0, Some(sum.amount.0)) })
                    .collect();
                causes.sort_by_key(|c| std::cmp::Reverse(c.amount));
                let names = keys.iter().map(Key::to_string);
                GroupRow {
                    key: GroupKey(names.zip(values.iter().map(|v| v.to_string())).collect()),
                    currency: currency.to_string(),
                    amount: sum.amount.0,
                    share: self.share(currency, sum.amount.0),
                    energy_kwh: kwh(sum.energy_joules),
                    causes,
                }
            })
            .collect();
        rows.sort_by(|a, b| a.currency.cmp(&b.currency).then(b.amount.cmp(&a.amount)));
        rows
    }
}

fn closing_rows(input: &ReportInput<'_>) -> Vec<ClosingRow> {
    let mut rows: Vec<ClosingRow> = input
        .ledger
        .closings
        .iter()
        .map(|closing| ClosingRow {
            scope: closing.scope.id(),
            currency: closing.scope.currency.clone(),
            bill: closing.bill,
            posted: closing.posted,
            difference: closing.difference,
            state: closing.state.clone(),
        })
        .collect();
    rows.sort_by(|a, b| a.scope.cmp(&b.scope));
    rows
}

/// Findings of the window and of what the filter keeps. Findings about the data itself pass every filter.
fn finding_rows(
    input: &ReportInput<'_>,
    options: &ReportOptions,
    window: Option<Window>,
    subjects: &BTreeSet<(Cause, &str)>,
) -> Vec<FindingRow> {
    let is_in_window = |finding: &Finding| match (options.window, window, finding.from_ms, finding.to_ms) {
        (Some(_), Some(window), Some(from_ms), Some(to_ms)) => window.contains(from_ms) || window.overlaps(Window::new(from_ms, to_ms)),
        _ => true,
    };
    let is_kept = |finding: &Finding| match (&options.filter, finding.cause) {
        (Some(_), Some(cause)) => subjects.contains(&(cause, finding.subject.as_str())),
        _ => true,
    };
    input.ledger.findings.iter().filter(|f| is_in_window(f) && is_kept(f)).map(FindingRow::from).collect()
}

fn notes(
    input: &ReportInput<'_>,
    options: &ReportOptions,
    asked: Option<(Window, bool)>,
    sums: &Sums<'_>,
    has_owner_rules: bool,
) -> Vec<String> {
    let mut notes = Vec::new();
    let pair = |window: Window| format!("{} to {}", format_rfc3339(window.from_ms), format_rfc3339(window.to_ms));
    if input.is_simulated {
        notes.push("The data are simulated: no figure here is about a real fleet or a real bill.".to_string());
    }
    if let (Some(given), Some((rounded, true))) = (options.window, asked) {
        notes.push(format!("The window {} was rounded outward to whole hours, {}: postings are per hour.", pair(given), pair(rounded)));
    }
    if let (Some((window, _)), true) = (asked, sums.window.is_empty()) {
        match span_of(&input.ledger.postings) {
            Some(span) => notes.push(format!("No posting lies in the window {}; the data reach from {}.", pair(window), pair(span))),
            None => notes.push("There is no posting at all.".to_string()),
        }
    }
    if asked.is_some() || options.filter.is_some() {
        notes.push("Closing and invoices are complete whatever the window and the filter show.".to_string());
        if !input.ledger.findings.is_empty() {
            notes.push("A finding that reaches over the edge of the window or the filter is shown whole.".to_string());
        }
    }
    if options.filter.is_some() {
        notes.push("Shares are of all dollars of the window in that currency, not only of those that the filter keeps.".to_string());
        if sums.totals.is_empty() && !sums.window.is_empty() {
            notes.push("The filter keeps no posting.".to_string());
        }
    }
    if sums.has_estimates {
        notes.push(
            "Estimated scopes have no bill row: list price times the time seen. Their bill equals what was posted by construction."
                .to_string(),
        );
    }
    notes.push(if has_owner_rules {
        "Owned: a rule of the owners file matched.".to_string()
    } else {
        "Owned: a namespace or a Slurm account is known; there is no owners file.".to_string()
    });
    notes
}

/// Hours, or days of the zone, from the hourly sums.
fn timeline(
    hours: &BTreeMap<(i64, &str, Class), Decimal>,
    window: Option<Window>,
    zone: &TimeZone,
) -> Result<Vec<TimelineRow>, ReportError> {
    let is_hourly = window.is_none_or(|window| window.duration_ms() <= HOURLY_TIMELINE_MAX_MS);
    let mut buckets: BTreeMap<(i64, i64, &str, Class), Decimal> = BTreeMap::new();
    let mut day: Option<Window> = None;
    for (&(hour_ms, currency, class), amount) in hours {
        let hour = Window::new(hour_ms, hour_ms.saturating_add(HOUR_MS));
        let bucket = if is_hourly {
            hour
        } else {
            // Hours ascend: the last day found serves until it is over.
            let found = day.filter(|day| day.contains(hour_ms)).or_else(|| day_of(hour_ms, zone)).unwrap_or(hour);
            day = Some(found);
            found
        };
        let sum = buckets.entry((bucket.from_ms, bucket.to_ms, currency, class)).or_insert(Decimal::ZERO);
        *sum = add(*sum, *amount, currency)?;
    }
    let row = |((from, to, currency, class), amount): ((i64, i64, &str, Class), Decimal)| TimelineRow {
        from,
        to,
        currency: currency.to_string(),
        class,
        amount,
    };
    Ok(buckets.into_iter().map(row).collect())
}

fn day_of(time_ms: i64, zone: &TimeZone) -> Option<Window> {
    let start = Timestamp::from_millisecond(time_ms).ok()?.to_zoned_datetime(zone.clone()).start_of_day().ok()?;
    let end = start.checked_add(1.day()).ok()?.start_of_day().ok()?;
    Some(Window::new(start.timestamp().as_millisecond(), end.timestamp().as_millisecond()))
}

fn add(sum: Decimal, amount: Decimal, currency: &str) -> Result<Decimal, ReportError> {
    sum.checked_add(amount).ok_or_else(|| ReportError::Overflow { currency: currency.to_string() })
}

/// The amount with as many digits as the reference shows, when it has fewer.
fn at_scale_of(amount: Decimal, reference: Option<Decimal>) -> Decimal {
    match reference {
        Some(reference) if reference.scale > amount.scale => amount.rescaled(reference.scale).unwrap_or(amount),
        _ => amount,
    }
}

/// A ratio, not money: floats are allowed. Unknown where the whole is zero.
fn share(amount: Decimal, whole: Decimal) -> Option<f64> {
    if whole.is_zero() {
        return None;
    }
    if amount.is_zero() {
        // Not `-0.0`, where the whole is a credit.
        return Some(0.0);
    }
    let scale = amount.scale.max(whole.scale);
    match (amount.rescaled(scale), whole.rescaled(scale)) {
        (Some(amount), Some(whole)) => Some(amount.mantissa as f64 / whole.mantissa as f64),
        _ => Some(amount.to_f64() / whole.to_f64()),
    }
}

fn kwh(joules: i128) -> f64 {
    joules as f64 / JOULES_PER_KWH
}
