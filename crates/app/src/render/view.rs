//! Choices that the table and the page share: what is shown first, and what words mean.

use gpuledger_model::cause::{Cause, Class};
use gpuledger_model::money::Decimal;
use gpuledger_model::tables::reject::Reject;
use gpuledger_model::time::format_rfc3339;

use crate::report::{ConfidenceAmounts, FindingRow, GroupCause, GroupRow, Report};

/// Findings that people are shown.
pub const FINDINGS_MAX: usize = 10;

/// A cause over all its parts.
#[derive(Clone, Debug)]
pub struct CauseOverParts {
    /// The cause.
    pub cause: Cause,
    /// Currency.
    pub currency: String,
    /// Amount.
    pub amount: Decimal,
    /// Of the window's dollars.
    pub share: Option<f64>,
    /// Device time.
    pub device_seconds: f64,
    /// Amounts by confidence.
    pub confidence: ConfidenceAmounts,
}

/// The cause rows with parts added up, per currency the largest first.
pub fn causes_over_parts(report: &Report) -> Vec<CauseOverParts> {
    let mut rows: Vec<CauseOverParts> = Vec::new();
    for row in &report.causes {
        // Parts of one currency's total, which was added without overflow.
        let add = |sum: Decimal, amount: Decimal| sum.checked_add(amount).unwrap_or(sum);
        match rows.iter_mut().find(|r| r.cause == row.cause && r.currency == row.currency) {
            Some(known) => {
                known.amount = add(known.amount, row.amount);
                known.share = known.share.zip(row.share).map(|(a, b)| a + b);
                known.device_seconds += row.device_seconds;
                known.confidence.high = add(known.confidence.high, row.confidence.high);
                known.confidence.medium = add(known.confidence.medium, row.confidence.medium);
                known.confidence.low = add(known.confidence.low, row.confidence.low);
            }
            None => rows.push(CauseOverParts {
                cause: row.cause,
                currency: row.currency.clone(),
                amount: row.amount,
                share: row.share,
                device_seconds: row.device_seconds,
                confidence: row.confidence,
            }),
        }
    }
    rows.sort_by(|a, b| a.currency.cmp(&b.currency).then(b.amount.cmp(&a.amount)));
    rows
}

/// The most expensive findings, in the report's order.
pub fn top_findings(report: &Report) -> Vec<&FindingRow> {
    report.findings.iter().filter(|f| f.amount.is_some()).take(FINDINGS_MAX).collect()
}

/// A group's largest cause of class waste.
pub fn largest_waste(group: &GroupRow) -> Option<&GroupCause> {
    group.causes.iter().filter(|c| c.cause.class() == Class::Waste && c.amount > Decimal::ZERO).max_by_key(|c| c.amount)
}

/// A group's amounts by class, in the order of the classes.
pub fn classes_of_group(group: &GroupRow) -> Vec<(Class, Decimal)> {
    let of = |class: Class| {
        let causes = group.causes.iter().filter(|c| c.cause.class() == class);
        causes.fold(Decimal::ZERO, |sum, c| sum.checked_add(c.amount).unwrap_or(sum))
    };
    Class::ALL.iter().map(|class| (*class, of(*class))).filter(|(_, amount)| !amount.is_zero()).collect()
}

/// Energy by class, without classes that have none.
pub fn energy_by_class(report: &Report) -> Vec<(Class, f64)> {
    let of = |class: Class| report.causes.iter().filter(|c| c.class == class).map(|c| c.energy_kwh).sum::<f64>();
    Class::ALL.iter().map(|class| (*class, of(*class))).filter(|(_, kwh)| *kwh > 0.0).collect()
}

/// What a row of `unknown` means.
pub fn unknown_meaning(what: &str) -> &'static str {
    match what {
        "unobserved" => "paid, and nothing was seen",
        "unresolved" => "seen, and the fields that arrived do not decide",
        "not_in_inventory" => "billed, and no record knew the machine",
        "unowned" => "nobody answers for it",
        "estimated" => "list price: no bill row yet",
        _ => "",
    }
}

/// What a class means.
pub fn class_meaning(class: Class) -> &'static str {
    match class {
        Class::Useful => "work at the device's limit",
        Class::Waste => "paid, and nobody's work used it",
        Class::Tunable => "used, and better code or settings would need less",
        Class::Neutral => "costs of being there, tax, credits, other services",
        Class::Unknown => "not known",
    }
}

/// What a cause means.
pub fn cause_meaning(cause: Cause) -> &'static str {
    match cause {
        Cause::Useful => "the device issued work at its limit",
        Cause::Unallocated => "a record says that nobody held the device",
        Cause::LayoutStranded => "what a MIG layout leaves without an instance",
        Cause::Cordoned => "the node was closed to new work",
        Cause::ReservedUnused => "kept free for a gang or a reservation",
        Cause::Empty => "held, idle, no memory in use",
        Cause::VramParked => "held, idle, memory in use",
        Cause::InputStarved => "waited for its input",
        Cause::InterconnectWait => "waited for its peers",
        Cause::Throttled => "clocks lowered by heat or a power brake",
        Cause::Faulty => "the board was broken while it was paid for",
        Cause::LostWork => "useful work, lost with its incarnation",
        Cause::Recompute => "steps done a second time",
        Cause::UnusedCommitment => "a commitment paid for and not used",
        Cause::UnusedCapacityBlock => "reserved capacity paid for and not used",
        Cause::StoppedMachineStorage => "storage of a stopped machine",
        Cause::UnderFilled => "kernels too small for the device",
        Cause::CopyBound => "bound by copies between host and device",
        Cause::MemoryLatency => "warps waited for memory",
        Cause::LowPrecisionUnused => "FP32 arithmetic where the tensor pipe idled",
        Cause::BandwidthBound => "at the memory's limit, below the arithmetic's",
        Cause::Headroom => "below the peak, and nothing seen says why",
        Cause::Starting => "had not begun to work yet",
        Cause::Standby => "idle by declaration",
        Cause::Reconfiguring => "being repartitioned",
        Cause::OtherService => "a service that is no accelerator machine",
        Cause::Host => "the host's share, kept apart",
        Cause::Tax => "as billed",
        Cause::Credit => "as billed",
        Cause::Adjustment => "as billed",
        Cause::Support => "as billed",
        Cause::CommitmentPurchase => "a purchase row that carries effective cost",
        Cause::Unobserved => "nothing was seen",
        Cause::Unresolved => "seen, and the fields do not decide",
        Cause::NotInInventory => "billed, and nobody knew the machine",
    }
}

/// `2026-10-06T00:00:00Z to 2026-10-06T01:00:00Z`, as far as known.
pub fn span_text(from: Option<i64>, to: Option<i64>) -> String {
    match (from, to) {
        (Some(from), Some(to)) => format!("{} to {}", format_rfc3339(from), format_rfc3339(to)),
        (Some(from), None) => format!("from {}", format_rfc3339(from)),
        (None, Some(to)) => format!("to {}", format_rfc3339(to)),
        (None, None) => "time unknown".to_string(),
    }
}

/// `file:line: field: reason (n rows)`.
pub fn reject_text(reject: &Reject) -> String {
    let mut text = reject.file.clone();
    if reject.line > 0 {
        text.push_str(&format!(":{}", reject.line));
    }
    if !reject.field.is_empty() {
        text.push_str(&format!(": {}", reject.field));
    }
    text.push_str(&format!(": {}", reject.reason));
    if reject.count > 1 {
        text.push_str(&format!(" ({} rows)", reject.count));
    }
    text
}
