//! The report: which postings are shown, summed by class, cause and keys; `docs/REPORT.md` is its manual.
//!
//! **APP-3**: nothing is computed here but sums of postings, exact, per currency. What is shown is chosen by
//! window and filter; what closes (`closing`, `invoices`) is always complete. Every posting shown is in one
//! cause row, one group and one class.

mod build;
pub mod dimension;
#[cfg(test)]
pub(crate) mod fixture;

use gpuledger_ingest::owners::Owners;
use gpuledger_model::cause::{Cause, Class, Confidence, Part};
use gpuledger_model::money::Decimal;
use gpuledger_model::tables::placement::Placements;
use gpuledger_model::tables::posting::{Finding, Ledger};
use gpuledger_model::tables::reject::{Notice, Reject};
use gpuledger_model::time::{Window, format_rfc3339};
use jiff::tz::TimeZone;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::filter::Filter;
use dimension::Key;

pub use build::{build, default_keys};

/// The schema of the JSON form. Fields may be added under one version, none renamed or removed.
pub const SCHEMA: &str = "gpuledger.report/1";

/// The most keys that groups have.
pub const KEYS_MAX: usize = 2;

/// Everything that a report is made of.
#[derive(Clone, Copy, Debug)]
pub struct ReportInput<'a> {
    /// The postings, their proof and the findings.
    pub ledger: &'a Ledger,
    /// Who holders are.
    pub placements: &'a Placements,
    /// Rules of ownership, if the user gave any.
    pub owners: Option<&'a Owners>,
    /// What was read.
    pub inputs: &'a [InputFile],
    /// BilledCost per invoice.
    pub invoices: &'a [InvoiceRow],
    /// What was refused.
    pub rejects: &'a [Reject],
    /// What is odd about the inputs.
    pub notices: &'a [Notice],
    /// The data come from the simulator.
    pub is_simulated: bool,
}

/// What the user asked to see.
#[derive(Clone, Debug)]
pub struct ReportOptions {
    /// Only postings of these hours; `None` is all data.
    pub window: Option<Window>,
    /// Keys of the groups; none means [`default_keys`].
    pub by: Vec<Key>,
    /// Only postings that it keeps.
    pub filter: Option<Filter>,
    /// Zone in which days begin and people read times.
    pub timezone: TimeZone,
}

/// Why there is no report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReportError {
    /// A sum of the currency leaves 128 bits.
    Overflow {
        /// The currency.
        currency: String,
    },
}

impl std::fmt::Display for ReportError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ReportError::Overflow { currency } => {
                write!(f, "add up {currency}: the sum needs more than 38 digits; report fewer scopes at once, by --filter or fewer bills")
            }
        }
    }
}

impl std::error::Error for ReportError {}

/// The report, in the order in which it is read and written.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// What is shown.
    pub window: Span,
    /// What was read.
    pub inputs: Vec<InputFile>,
    /// The proof: postings against bills, complete whatever is shown.
    pub closing: Vec<ClosingRow>,
    /// BilledCost per invoice, complete whatever is shown.
    pub invoices: Vec<InvoiceRow>,
    /// Sum of what is shown, per currency.
    pub totals: Vec<TotalRow>,
    /// What is not known.
    pub unknown: Vec<UnknownRow>,
    /// By cause and part.
    pub causes: Vec<CauseRow>,
    /// By the keys asked for.
    pub groups: Vec<GroupRow>,
    /// Findings, the most expensive first.
    pub findings: Vec<FindingRow>,
    /// What a reader should know about the figures.
    pub notes: Vec<String>,
    /// Keys of the groups.
    pub by: Vec<String>,
    /// The filter, as given.
    pub filter: Option<String>,
    /// Zone in which days begin.
    pub timezone: String,
    /// The data come from the simulator.
    pub simulated: bool,
    /// Energy of what is shown.
    pub energy_kwh: f64,
    /// Dollars by class over time.
    pub timeline: Vec<TimelineRow>,
    /// What was refused, and why.
    pub rejects: Vec<Reject>,
    /// What is odd about the inputs.
    pub notices: Vec<Notice>,
}

/// A span of time; both ends are null when there is no posting at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Span {
    /// Start.
    #[serde(serialize_with = "rfc3339")]
    pub from: Option<i64>,
    /// End, excluded.
    #[serde(serialize_with = "rfc3339")]
    pub to: Option<i64>,
}

/// A file that was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InputFile {
    /// As the user named it.
    pub path: String,
    /// What it was found to be.
    pub kind: String,
    /// Rows or samples taken.
    pub rows: u64,
    /// Rows, cells or samples refused.
    pub rejects: u64,
}

/// One scope's proof.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClosingRow {
    /// `provider/account/period/currency`.
    pub scope: String,
    /// Currency.
    pub currency: String,
    /// Sum of EffectiveCost.
    pub bill: Decimal,
    /// Sum of postings.
    pub posted: Decimal,
    /// The difference: zero, and shown.
    pub difference: Decimal,
    /// `closed`, `estimated`, or why not.
    pub state: String,
}

/// BilledCost of one invoice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InvoiceRow {
    /// `provider/account/period/currency`.
    pub scope: String,
    /// InvoiceId; null for rows that carry none.
    pub invoice: Option<String>,
    /// Currency.
    pub currency: String,
    /// Sum of BilledCost.
    pub billed: Decimal,
}

/// A currency's sum.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TotalRow {
    /// Currency.
    pub currency: String,
    /// Sum.
    pub amount: Decimal,
}

/// One thing that is not known.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct UnknownRow {
    /// `unobserved`, `unresolved`, `not_in_inventory`, `unowned` or `estimated`.
    pub what: &'static str,
    /// Currency.
    pub currency: String,
    /// How much of it.
    pub amount: Decimal,
    /// Of the window's dollars.
    pub share: Option<f64>,
}

/// Dollars of one cause in one part of the ladder.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CauseRow {
    /// The cause.
    pub cause: Cause,
    /// Its class.
    pub class: Class,
    /// The part.
    pub part: Part,
    /// Currency.
    pub currency: String,
    /// Amount.
    pub amount: Decimal,
    /// Of the window's dollars.
    pub share: Option<f64>,
    /// Paid device time.
    pub device_seconds: f64,
    /// Amounts by how sure they are.
    pub confidence: ConfidenceAmounts,
    /// Energy of that time.
    pub energy_kwh: f64,
}

/// Amounts by confidence; they add to the row's amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ConfidenceAmounts {
    /// High.
    pub high: Decimal,
    /// Medium.
    pub medium: Decimal,
    /// Low.
    pub low: Decimal,
}

/// Dollars of one group.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GroupRow {
    /// Its values, in the order of the keys.
    pub key: GroupKey,
    /// Currency.
    pub currency: String,
    /// Amount.
    pub amount: Decimal,
    /// Of the window's dollars.
    pub share: Option<f64>,
    /// Energy.
    pub energy_kwh: f64,
    /// Amounts by cause, the largest first; they add to the group's amount.
    pub causes: Vec<GroupCause>,
}

/// Names and values of a group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupKey(pub Vec<(String, String)>);

impl Serialize for GroupKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

/// One cause within a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct GroupCause {
    /// The cause.
    pub cause: Cause,
    /// Amount.
    pub amount: Decimal,
}

/// A finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FindingRow {
    /// Stable id.
    pub id: String,
    /// Its kind.
    pub kind: String,
    /// Its cause, where there is one.
    pub cause: Option<Cause>,
    /// What it is about.
    pub subject: String,
    /// Currency.
    pub currency: Option<String>,
    /// Dollars.
    pub amount: Option<Decimal>,
    /// From.
    #[serde(serialize_with = "rfc3339")]
    pub from: Option<i64>,
    /// To.
    #[serde(serialize_with = "rfc3339")]
    pub to: Option<i64>,
    /// How sure.
    pub confidence: Confidence,
    /// Figures that a person can check.
    pub evidence: String,
    /// Rule and version.
    pub rule: String,
    /// What would change the verdict.
    pub would_change: String,
}

impl From<&Finding> for FindingRow {
    fn from(finding: &Finding) -> FindingRow {
        FindingRow {
            id: finding.id.clone(),
            kind: finding.kind.clone(),
            cause: finding.cause,
            subject: finding.subject.clone(),
            currency: finding.currency.clone(),
            amount: finding.amount,
            from: finding.from_ms,
            to: finding.to_ms,
            confidence: finding.confidence,
            evidence: finding.evidence.clone(),
            rule: finding.rule.clone(),
            would_change: finding.would_change.clone(),
        }
    }
}

/// Dollars of one class in one bucket of time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TimelineRow {
    /// Start of the hour or day.
    #[serde(serialize_with = "rfc3339_always")]
    pub from: i64,
    /// Its end, excluded.
    #[serde(serialize_with = "rfc3339_always")]
    pub to: i64,
    /// Currency.
    pub currency: String,
    /// Class.
    pub class: Class,
    /// Amount.
    pub amount: Decimal,
}

impl Report {
    /// The JSON form, indented, with a newline at its end.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        Ok(text)
    }

    /// Sums of what is shown by class, per currency, in the order of the classes.
    pub fn classes(&self) -> Vec<(String, Class, Decimal, Option<f64>)> {
        let mut rows: Vec<(String, Class, Decimal, Option<f64>)> = Vec::new();
        for total in &self.totals {
            for class in Class::ALL {
                let of_class = || self.causes.iter().filter(|c| c.currency == total.currency && c.class == *class);
                if of_class().next().is_none() {
                    continue;
                }
                // These are parts of a total that was added without overflow, at its scale or a smaller one.
                let amount = of_class().fold(Decimal { mantissa: 0, scale: 0 }, |sum, c| sum.checked_add(c.amount).unwrap_or(sum));
                let share = of_class().try_fold(0.0, |sum, c| c.share.map(|share| sum + share));
                rows.push((total.currency.clone(), *class, amount, share));
            }
        }
        rows
    }
}

fn rfc3339<S: Serializer>(time_ms: &Option<i64>, serializer: S) -> Result<S::Ok, S::Error> {
    match time_ms {
        Some(time_ms) => serializer.serialize_some(&format_rfc3339(*time_ms)),
        None => serializer.serialize_none(),
    }
}

fn rfc3339_always<S: Serializer>(time_ms: &i64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&format_rfc3339(*time_ms))
}
