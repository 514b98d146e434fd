//! Findings: one cause and subject over windows less than 10 minutes apart, from 15 minutes and one unit of
//! currency up. A finding explains postings; it adds nothing to them.

use std::collections::BTreeMap;

use gpuledger_model::cause::{Cause, Class, Confidence};
use gpuledger_model::money::{Decimal, SCOPE_SCALE_MIN};
use gpuledger_model::tables::posting::Finding;
use gpuledger_model::time::{MINUTE_MS, Window, format_rfc3339};

use num_bigint::BigUint;

use crate::rules::RuleBook;

/// Decimals that a stretch's amount has beyond its finding's: a sum of many is still right to the last digit. None
/// beyond 28 in all, so that ten digits stay before the point.
fn stretch_scale(scale: u8) -> u8 {
    (scale + 4).min(28).max(scale)
}

/// A stretch of money: one cause and subject in one currency.
#[derive(Clone, Debug)]
pub struct MoneyStretch {
    /// When.
    pub window: Window,
    /// Amount, in units a little finer than the digits of the currency's findings.
    pub units: i128,
    /// Rule.
    pub rule: &'static str,
    /// Confidence.
    pub confidence: Confidence,
    /// Device.
    pub device: String,
}

/// Money by (cause, subject, currency).
#[derive(Clone, Debug, Default)]
pub struct Ground {
    /// Digits of a currency's findings: the greatest scale of its scopes.
    scales: BTreeMap<String, u8>,
    rows: BTreeMap<(Cause, String, String), Vec<MoneyStretch>>,
}

/// A share of an amount: `weight / total` of it, at `scale` decimals, rounded towards zero.
fn share_units(amount: Decimal, weight: u128, total: u128, scale: u8) -> i128 {
    let amount = amount.rounded(scale);
    if total == 0 {
        return 0;
    }
    let magnitude = amount.mantissa.unsigned_abs();
    let units = match magnitude.checked_mul(weight) {
        Some(product) => product / total,
        None => u128::try_from(BigUint::from(magnitude) * BigUint::from(weight) / BigUint::from(total)).unwrap_or(0),
    };
    let units = i128::try_from(units).unwrap_or(0);
    if amount.mantissa < 0 { -units } else { units }
}

impl Ground {
    /// No money yet; `scales` are the digits of each currency's scopes.
    pub fn new(scales: BTreeMap<String, u8>) -> Ground {
        Ground { scales, rows: BTreeMap::new() }
    }

    fn scale(&self, currency: &str) -> u8 {
        self.scales.get(currency).copied().unwrap_or(SCOPE_SCALE_MIN)
    }

    /// The share `weight / total` of an amount, in the units of a stretch of the currency.
    pub fn share(&self, amount: Decimal, weight: u128, total: u128, currency: &str) -> i128 {
        share_units(amount, weight, total, stretch_scale(self.scale(currency)))
    }

    /// Adds a stretch.
    pub fn add(&mut self, cause: Cause, subject: &str, currency: &str, stretch: MoneyStretch) {
        self.rows.entry((cause, subject.to_string(), currency.to_string())).or_default().push(stretch);
    }

    /// The findings, the most expensive first. `figures` describes the devices of stretches.
    pub fn findings(self, book: &RuleBook, figures: &dyn Fn(&[MoneyStretch]) -> String) -> Vec<Finding> {
        let mut out = Vec::new();
        let gap_ms = book.findings.gap_minutes_max * MINUTE_MS;
        let least_ms = book.findings.minutes_min * MINUTE_MS;
        for ((cause, subject, currency), mut stretches) in self.rows {
            let scale = self.scales.get(&currency).copied().unwrap_or(SCOPE_SCALE_MIN);
            let least = Decimal::from_integer(book.findings.amount_min);
            stretches.sort_by(|a, b| (a.window, &a.device, a.rule).cmp(&(b.window, &b.device, b.rule)));
            let mut start = 0;
            while start < stretches.len() {
                let mut end_ms = stretches[start].window.to_ms;
                let mut end = start + 1;
                while end < stretches.len() && stretches[end].window.from_ms - end_ms < gap_ms {
                    end_ms = end_ms.max(stretches[end].window.to_ms);
                    end += 1;
                }
                let own = &stretches[start..end];
                let window = Window::new(own[0].window.from_ms, end_ms);
                let sum: i128 = own.iter().map(|s| s.units).sum();
                let amount = Decimal { mantissa: sum, scale: stretch_scale(scale) }.rounded(scale);
                if window.duration_ms() >= least_ms && amount >= least {
                    out.push(finding(cause, &subject, &currency, own, window, amount, book, figures));
                }
                start = end;
            }
        }
        out.sort_by(|a, b| b.amount.cmp(&a.amount).then_with(|| a.id.cmp(&b.id)));
        out
    }
}

#[allow(clippy::too_many_arguments, reason = "one private constructor")]
fn finding(
    cause: Cause,
    subject: &str,
    currency: &str,
    own: &[MoneyStretch],
    window: Window,
    amount: Decimal,
    book: &RuleBook,
    figures: &dyn Fn(&[MoneyStretch]) -> String,
) -> Finding {
    let mut by_rule: BTreeMap<&str, i128> = BTreeMap::new();
    let mut by_confidence: BTreeMap<Confidence, i128> = BTreeMap::new();
    for stretch in own {
        *by_rule.entry(stretch.rule).or_default() += stretch.units;
        *by_confidence.entry(stretch.confidence).or_default() += stretch.units;
    }
    let rule = by_rule.iter().max_by(|a, b| a.1.cmp(b.1).then(b.0.cmp(a.0))).map(|(r, _)| *r).unwrap_or_default();
    let confidence = by_confidence.iter().max_by(|a, b| a.1.cmp(b.1).then(b.0.cmp(a.0))).map(|(c, _)| *c).unwrap_or(Confidence::Low);
    let mut devices: Vec<String> = own.iter().map(|s| s.device.clone()).filter(|d| !d.is_empty()).collect();
    devices.sort();
    devices.dedup();
    let kind = match cause.class() {
        Class::Waste => "waste",
        Class::Tunable => "tunable",
        Class::Unknown => "unknown",
        _ => "neutral",
    };
    let seen = figures(own);
    let span_minutes = window.duration_ms() / MINUTE_MS;
    let evidence = match devices.len() {
        0 => format!("known from the bill alone, over {span_minutes} min"),
        count => format!("{count} device(s) within {span_minutes} min; {seen}"),
    };
    Finding {
        id: finding_id(rule, subject, window.from_ms),
        kind: kind.to_string(),
        cause: Some(cause),
        subject: subject.to_string(),
        currency: Some(currency.to_string()),
        amount: Some(amount),
        from_ms: Some(window.from_ms),
        to_ms: Some(window.to_ms),
        confidence,
        evidence,
        rule: format!("{rule}@{}", book.version),
        would_change: would_change(cause).to_string(),
    }
}

/// A stable id from rule, subject and start.
pub fn finding_id(rule: &str, subject: &str, from_ms: i64) -> String {
    let text = format!("{rule}|{subject}|{}", format_rfc3339(from_ms));
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    format!("F-{hash:016x}")
}

/// What evidence would change the verdict.
pub fn would_change(cause: Cause) -> &'static str {
    match cause {
        Cause::Unallocated => "a holder that this record does not know: another scheduler's record, or exporter labels naming a pod or job",
        Cause::LayoutStranded => "a layout that uses all slices of the board",
        Cause::Cordoned => "the time at which the node was opened again",
        Cause::ReservedUnused => "a record that the gang or reservation ran on these devices",
        Cause::Empty => "memory in use, a process on the device, or `gpuledger.io/standby: \"true\"` on the holder",
        Cause::VramParked => "`gpuledger.io/standby: \"true\"` or a stated SLO on the holder, or engine activity within the idle time",
        Cause::InputStarved => "host CPU and iowait of the node below the rule's limits while the engine waits",
        Cause::InterconnectWait => "tensor activity or power near the holder's busiest in these windows",
        Cause::Throttled => "thermal and power-brake counters that do not rise",
        Cause::Faulty => "samples of the board in this time, or a record of its planned removal",
        Cause::LostWork => "a later checkpoint: annotation `gpuledger.io/checkpoints`, or `checkpoint=` in the job's comment",
        Cause::Recompute => "the first run of these steps within the data",
        Cause::UnusedCommitment => "usage rows that the commitment covers in these hours",
        Cause::UnusedCapacityBlock => "usage rows that the reservation covers in these hours",
        Cause::StoppedMachineStorage => "a usage row or any sign of the machine in these hours",
        Cause::UnderFilled => "SM_ACTIVE above the rule's limit, or PCIe traffic that explains it",
        Cause::CopyBound => "a PCIe link faster than reported, or less traffic",
        Cause::MemoryLatency => "occupancy or tensor activity above the rule's limits",
        Cause::LowPrecisionUnused => "a need for FP32 arithmetic stated by the owner",
        Cause::BandwidthBound => "serving signals of the process, or `gpuledger.io/bandwidth: expected` on the holder",
        Cause::Unobserved => "telemetry or a scheduler's record for this time",
        Cause::Unresolved => "profiling fields (GR_ENGINE_ACTIVE, SM_ACTIVE, PIPE_TENSOR_ACTIVE, DRAM_ACTIVE) in the exporter's list",
        Cause::NotInInventory => "telemetry, a scheduler's record or an inventory row of this machine",
        _ => "",
    }
}
