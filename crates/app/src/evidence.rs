//! `gpuledger evidence FINDING`: the windows, holdings and bill rows behind a finding.

use std::collections::{BTreeMap, BTreeSet};

use gpuledger_attribute::post::pool_ids;
use gpuledger_attribute::window::WindowField;
use gpuledger_model::money::Decimal;
use gpuledger_model::tables::posting::{Finding, Posting};
use gpuledger_model::time::{HOUR_MS, Window, floor_to, format_rfc3339};
use serde::Serialize;

use crate::cli::{EvidenceArgs, ListFormat};
use crate::config::input_settings;
use crate::exit::{Exit, Failure};
use crate::output::write_result;
use crate::pipeline::Outcome;
use crate::render::amount::{format_amount, harmless};
use crate::render::grid::{Grid, Side};
use crate::report_command::run_pipeline;

/// The schema of the JSON form.
pub const SCHEMA: &str = "gpuledger.evidence/1";

/// Rows of each list in the table form; the JSON form has all.
const ROWS_SHOWN: usize = 40;

/// What stands behind a finding.
#[derive(Debug, Serialize)]
pub struct Evidence {
    schema: &'static str,
    finding: FindingFacts,
    windows: Vec<WindowRow>,
    holdings: Vec<HoldingRow>,
    bill_rows: Vec<BillRow>,
}

#[derive(Debug, Serialize)]
struct FindingFacts {
    id: String,
    kind: String,
    cause: Option<String>,
    subject: String,
    currency: Option<String>,
    amount: Option<Decimal>,
    from: Option<String>,
    to: Option<String>,
    confidence: String,
    evidence: String,
    rule: String,
    would_change: String,
}

#[derive(Debug, Serialize)]
struct WindowRow {
    device: String,
    from: String,
    to: String,
    observed_seconds: f64,
    fields: BTreeMap<&'static str, f64>,
}

#[derive(Debug, Serialize)]
struct HoldingRow {
    device: String,
    holder: String,
    from: Option<String>,
    to: Option<String>,
    evidence: u8,
    confidence: String,
}

#[derive(Debug, Serialize)]
struct BillRow {
    file: String,
    line: u64,
    scope: String,
    charge_from: String,
    charge_to: String,
    resource: Option<String>,
    effective: Decimal,
    posted: Decimal,
    currency: String,
}

/// Runs the command.
pub fn run(args: &EvidenceArgs) -> Result<Exit, Failure> {
    let settings = input_settings(&args.inputs)?;
    let request = &settings.request;
    let is_store_alone = request.bills.is_empty() && request.telemetry.is_empty() && request.placements.is_empty();
    // A folder that is not there would be made, and found empty: a slip of the pen, not an empty ledger.
    if let Some(store) = settings.store.as_deref().filter(|store| is_store_alone && !store.exists()) {
        return Err(
            Failure::input(format!("read the store {}: no such folder", store.display())).with_hint("give the folder of the report")
        );
    }
    let outcome = run_pipeline(&settings)?;
    let Some(finding) = outcome.ledger.findings.iter().find(|f| f.id == args.finding) else {
        return Err(Failure::usage(format!("find {:?} among {} findings", args.finding, outcome.ledger.findings.len()))
            .with_hint("take the id from the report of the same inputs: it starts with F-"));
    };
    let evidence = of_finding(&outcome, finding);
    let text = match args.format {
        ListFormat::Json => {
            let mut text = serde_json::to_string_pretty(&evidence)
                .map_err(|error| Failure::new(Exit::Unexpected, format!("write the evidence as JSON: {error}")))?;
            text.push('\n');
            text
        }
        ListFormat::Table => table(&evidence),
    };
    write_result(args.out.as_deref(), &text)?;
    Ok(Exit::Done)
}

/// Collects the evidence of a finding.
pub fn of_finding(outcome: &Outcome, finding: &Finding) -> Evidence {
    let window = Window::new(finding.from_ms.unwrap_or(i64::MIN), finding.to_ms.unwrap_or(i64::MAX));
    let postings: Vec<&Posting> = outcome.ledger.postings.iter().filter(|p| belongs(p, finding, window, outcome)).collect();
    let devices: BTreeSet<&str> = postings.iter().map(|p| p.device.as_str()).filter(|d| !d.is_empty()).collect();
    let mut posted: BTreeMap<&str, Decimal> = BTreeMap::new();
    for posting in &postings {
        let slot = posted.entry(&posting.pool).or_insert(Decimal::ZERO);
        *slot = slot.checked_add(posting.amount).unwrap_or(*slot);
    }
    let mut windows = Vec::new();
    let mut holdings = Vec::new();
    for record in &outcome.records {
        for device in &devices {
            if let Some(unit) = record.unit_records.get(*device) {
                for row in unit.windows.rows_within(window) {
                    windows.push(WindowRow {
                        device: device.to_string(),
                        from: format_rfc3339(unit.windows.from_ms[row]),
                        to: format_rfc3339(unit.windows.to_ms[row]),
                        observed_seconds: unit.windows.observed_ms[row] as f64 / 1e3,
                        fields: FIELDS
                            .iter()
                            .filter_map(|(field, name)| {
                                let (covered, sum) = unit.windows.sum(*field, row)?;
                                let mean = sum as f64 / covered as f64 / 1e6;
                                Some((*name, (mean * 1e6).round() / 1e6))
                            })
                            .collect(),
                    });
                }
            }
            for row in record.holdings.rows.iter().filter(|h| h.unit == *device && h.window.overlaps(window)) {
                let time = |ms: i64| (ms != i64::MIN && ms != i64::MAX).then(|| format_rfc3339(ms));
                holdings.push(HoldingRow {
                    device: device.to_string(),
                    holder: outcome.placements.holders.get(row.holder).map(|h| h.key.clone()).unwrap_or_default(),
                    from: time(row.window.from_ms),
                    to: time(row.window.to_ms),
                    evidence: row.evidence,
                    confidence: row.confidence.as_str().to_string(),
                });
            }
        }
    }
    let ids = pool_ids(&outcome.bills.charges);
    let bill_rows = outcome
        .bills
        .charges
        .iter()
        .zip(&ids)
        .filter_map(|(charge, id)| {
            Some(BillRow {
                posted: *posted.get(id.as_str())?,
                file: charge.file.clone(),
                line: charge.line,
                scope: charge.scope.id(),
                charge_from: format_rfc3339(charge.charge_from_ms),
                charge_to: format_rfc3339(charge.charge_to_ms),
                resource: charge.resource_id.clone(),
                effective: charge.effective,
                currency: charge.scope.currency.clone(),
            })
        })
        .collect();
    Evidence { schema: SCHEMA, finding: facts(finding), windows, holdings, bill_rows }
}

/// Whether a posting is of the finding: its cause and subject, in its hours.
fn belongs(posting: &Posting, finding: &Finding, window: Window, outcome: &Outcome) -> bool {
    let hour = Window::new(posting.hour_ms, posting.hour_ms + HOUR_MS);
    let hours = Window::new(if window.from_ms == i64::MIN { i64::MIN } else { floor_to(window.from_ms, HOUR_MS) }, window.to_ms);
    let cause_fits = finding.cause.is_none_or(|cause| cause == posting.cause);
    let subject = &finding.subject;
    let of_bill = || {
        outcome
            .bills
            .charges
            .iter()
            .any(|c| [&c.commitment_id, &c.capacity_reservation_id, &c.resource_id].into_iter().flatten().any(|id| id == subject))
    };
    let subject_fits = posting.holder == *subject
        || (posting.holder.is_empty() && posting.machine == *subject)
        || (posting.device == *subject && !subject.is_empty())
        || (posting.device.is_empty() && of_bill());
    cause_fits && subject_fits && hour.overlaps(hours)
}

const FIELDS: [(WindowField, &str); 11] = [
    (WindowField::Engine, "engine"),
    (WindowField::Util, "util"),
    (WindowField::Sm, "sm_active"),
    (WindowField::Occupancy, "sm_occupancy"),
    (WindowField::Tensor, "tensor"),
    (WindowField::Dram, "dram"),
    (WindowField::Fp32, "fp32"),
    (WindowField::MemoryRatio, "memory_ratio"),
    (WindowField::Power, "power_watts"),
    (WindowField::Pcie, "pcie_mb_per_second"),
    (WindowField::HostCpu, "host_cpu"),
];

fn facts(finding: &Finding) -> FindingFacts {
    FindingFacts {
        id: finding.id.clone(),
        kind: finding.kind.clone(),
        cause: finding.cause.map(|c| c.as_str().to_string()),
        subject: finding.subject.clone(),
        currency: finding.currency.clone(),
        amount: finding.amount,
        from: finding.from_ms.map(format_rfc3339),
        to: finding.to_ms.map(format_rfc3339),
        confidence: finding.confidence.as_str().to_string(),
        evidence: finding.evidence.clone(),
        rule: finding.rule.clone(),
        would_change: finding.would_change.clone(),
    }
}

fn table(evidence: &Evidence) -> String {
    let finding = &evidence.finding;
    let mut out =
        format!("Finding {}: {} of {}\n", finding.id, finding.cause.as_deref().unwrap_or(&finding.kind), harmless(&finding.subject));
    if let (Some(currency), Some(amount)) = (&finding.currency, finding.amount) {
        out.push_str(&format!("{currency} {}, ", format_amount(amount)));
    }
    out.push_str(&format!(
        "{} to {}, confidence {}, rule {}\n{}\nwould change the verdict: {}\n",
        finding.from.as_deref().unwrap_or("-"),
        finding.to.as_deref().unwrap_or("-"),
        finding.confidence,
        finding.rule,
        harmless(&finding.evidence),
        finding.would_change
    ));
    out.push_str("\nWindows\n");
    let mut grid = Grid::new(&[("from", Side::Left), ("device", Side::Left), ("seen s", Side::Right), ("means", Side::Left)]);
    for row in evidence.windows.iter().take(ROWS_SHOWN) {
        let means: Vec<String> = row.fields.iter().map(|(name, mean)| format!("{name} {mean:.3}")).collect();
        grid.row(vec![row.from.clone(), row.device.clone(), format!("{:.0}", row.observed_seconds), means.join(", ")]);
    }
    finish(grid, evidence.windows.len(), &mut out);
    out.push_str("\nHoldings\n");
    let mut grid = Grid::new(&[
        ("device", Side::Left),
        ("holder", Side::Left),
        ("from", Side::Left),
        ("to", Side::Left),
        ("evidence", Side::Right),
        ("sure", Side::Left),
    ]);
    for row in evidence.holdings.iter().take(ROWS_SHOWN) {
        grid.row(vec![
            row.device.clone(),
            harmless(&row.holder),
            row.from.clone().unwrap_or_else(|| "-".to_string()),
            row.to.clone().unwrap_or_else(|| "alive".to_string()),
            row.evidence.to_string(),
            row.confidence.clone(),
        ]);
    }
    finish(grid, evidence.holdings.len(), &mut out);
    out.push_str("\nBill rows\n");
    let mut grid = Grid::new(&[
        ("file:line", Side::Left),
        ("charge period", Side::Left),
        ("resource", Side::Left),
        ("effective", Side::Right),
        ("of it here", Side::Right),
    ]);
    for row in evidence.bill_rows.iter().take(ROWS_SHOWN) {
        grid.row(vec![
            format!("{}:{}", harmless(&row.file), row.line),
            format!("{} to {}", row.charge_from, row.charge_to),
            harmless(row.resource.as_deref().unwrap_or("-")),
            format!("{} {}", row.currency, row.effective),
            row.posted.to_string(),
        ]);
    }
    finish(grid, evidence.bill_rows.len(), &mut out);
    out
}

fn finish(grid: Grid, count: usize, out: &mut String) {
    if count == 0 {
        out.push_str("  none\n");
        return;
    }
    grid.write(out);
    if count > ROWS_SHOWN {
        out.push_str(&format!("  and {} more in the JSON form\n", count - ROWS_SHOWN));
    }
}
