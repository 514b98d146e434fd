//! The report as text for people, in the order in which it should be read: what is not known, the proof, then dollars.

use std::collections::BTreeMap;
use std::fmt::Write;

use gpuledger_model::cause::Cause;
use gpuledger_model::money::Decimal;
use gpuledger_model::time::format_rfc3339;

use super::amount::{format_amount, format_count, format_quantity, format_share, harmless};
use super::grid::{Grid, Side};
use super::view;
use crate::report::{FindingRow, Report};

use Side::{Left, Right};

/// Groups that are shown; the others are added up in one line.
const GROUPS_MAX: usize = 30;
/// Rows of lists about the inputs.
const LIST_ROWS_MAX: usize = 12;

/// The whole report.
pub fn render(report: &Report) -> String {
    let mut out = String::new();
    heading(report, &mut out);
    unknown(report, &mut out);
    proof(report, &mut out);
    classes(report, &mut out);
    causes(report, &mut out);
    groups(report, &mut out);
    findings(report, &mut out);
    energy(report, &mut out);
    inputs(report, &mut out);
    notes(report, &mut out);
    out
}

fn section(out: &mut String, title: &str) {
    let _ = write!(out, "\n{title}\n");
}

fn heading(report: &Report, out: &mut String) {
    let _ = match (report.window.from, report.window.to) {
        (Some(from), Some(to)) => writeln!(out, "GPU Ledger: {} to {}", format_rfc3339(from), format_rfc3339(to)),
        _ => writeln!(out, "GPU Ledger: no postings"),
    };
    if report.simulated {
        out.push_str("SIMULATED DATA: no figure here is about a real fleet or a real bill.\n");
    }
    if let Some(filter) = &report.filter {
        let _ = writeln!(out, "Filter: {}", harmless(filter));
    }
    for total in &report.totals {
        let _ = writeln!(out, "Total: {} {}", harmless(&total.currency), format_amount(total.amount));
    }
}

fn unknown(report: &Report, out: &mut String) {
    section(out, "What is not known");
    if report.unknown.is_empty() {
        out.push_str("  There is no posting to know anything about.\n");
        return;
    }
    let mut grid = Grid::new(&[("what", Left), ("", Left), ("amount", Right), ("share", Right), ("meaning", Left)]);
    for row in &report.unknown {
        grid.row(vec![
            row.what.to_string(),
            row.currency.clone(),
            format_amount(row.amount),
            format_share(row.share),
            view::unknown_meaning(row.what).to_string(),
        ]);
    }
    grid.write(out);
}

fn proof(report: &Report, out: &mut String) {
    section(out, "Proof: postings = bill, per scope and currency");
    if report.closing.is_empty() {
        out.push_str("  No bill was read.\n");
        return;
    }
    let mut grid = Grid::new(&[("scope", Left), ("", Left), ("bill", Right), ("posted", Right), ("difference", Right), ("state", Left)]);
    for row in &report.closing {
        grid.row(vec![
            row.scope.clone(),
            row.currency.clone(),
            format_amount(row.bill),
            format_amount(row.posted),
            // A difference is never rounded away.
            row.difference.normalized().to_string(),
            row.state.clone(),
        ]);
    }
    grid.write(out);
}

fn classes(report: &Report, out: &mut String) {
    section(out, "Dollars by class");
    let mut grid = Grid::new(&[("class", Left), ("", Left), ("amount", Right), ("share", Right), ("meaning", Left)]);
    for (currency, class, amount, share) in report.classes() {
        grid.row(vec![class.to_string(), currency, format_amount(amount), format_share(share), view::class_meaning(class).to_string()]);
    }
    grid.write(out);
}

fn causes(report: &Report, out: &mut String) {
    section(out, "Dollars by cause");
    let mut grid = Grid::new(&[
        ("cause", Left),
        ("class", Left),
        ("", Left),
        ("amount", Right),
        ("share", Right),
        ("device hours", Right),
        ("high", Right),
        ("medium", Right),
        ("low", Right),
    ]);
    for row in view::causes_over_parts(report) {
        grid.row(vec![
            row.cause.to_string(),
            row.cause.class().to_string(),
            row.currency,
            format_amount(row.amount),
            format_share(row.share),
            format_quantity(row.device_seconds / 3_600.0),
            format_amount(row.confidence.high),
            format_amount(row.confidence.medium),
            format_amount(row.confidence.low),
        ]);
    }
    grid.write(out);
}

fn groups(report: &Report, out: &mut String) {
    section(out, &format!("Dollars by {}", harmless(&report.by.join(" and "))));
    let mut columns: Vec<(&str, Side)> = report.by.iter().map(|key| (key.as_str(), Left)).collect();
    columns.extend([("", Left), ("amount", Right), ("share", Right), ("kWh", Right), ("largest waste", Left), ("", Right)]);
    let mut grid = Grid::new(&columns);
    for row in report.groups.iter().take(GROUPS_MAX) {
        let mut cells: Vec<String> = row.key.0.iter().map(|(_, value)| value.clone()).collect();
        let waste = view::largest_waste(row);
        cells.extend([
            row.currency.clone(),
            format_amount(row.amount),
            format_share(row.share),
            format_quantity(row.energy_kwh),
            waste.map_or(String::new(), |w| w.cause.to_string()),
            waste.map_or(String::new(), |w| format_amount(w.amount)),
        ]);
        grid.row(cells);
    }
    grid.write(out);
    let mut rest: BTreeMap<&str, (usize, Decimal)> = BTreeMap::new();
    for row in report.groups.iter().skip(GROUPS_MAX) {
        let (count, sum) = rest.entry(&row.currency).or_insert((0, Decimal::ZERO));
        *count += 1;
        *sum = sum.checked_add(row.amount).unwrap_or(*sum);
    }
    for (currency, (count, sum)) in rest {
        let _ = writeln!(out, "  and {count} more groups with {} {} together", harmless(currency), format_amount(sum));
    }
}

fn findings(report: &Report, out: &mut String) {
    section(out, "The most expensive findings");
    let priced = view::top_findings(report);
    if priced.is_empty() {
        out.push_str("  None from 15 minutes and 1 unit of currency up.\n");
    }
    for (at, finding) in priced.iter().enumerate() {
        finding_lines(at + 1, finding, out);
    }
    let others = report.findings.iter().filter(|f| f.amount.is_some()).count() - priced.len();
    if others > 0 {
        let _ = writeln!(out, "  {} more findings with an amount stand in the JSON form.", format_count(others as u64));
    }
    let about_data: Vec<&FindingRow> = report.findings.iter().filter(|f| f.amount.is_none()).collect();
    if about_data.is_empty() && report.notices.is_empty() {
        return;
    }
    section(out, "Findings about the data");
    for finding in about_data.iter().take(LIST_ROWS_MAX) {
        let _ = writeln!(out, "  {} {}: {}", harmless(&finding.kind), harmless(&finding.subject), harmless(&finding.evidence));
    }
    for notice in report.notices.iter().take(LIST_ROWS_MAX) {
        let _ = writeln!(out, "  {} {}: {}", harmless(&notice.kind), harmless(&notice.subject), harmless(&notice.message));
    }
    let hidden = about_data.len().saturating_sub(LIST_ROWS_MAX) + report.notices.len().saturating_sub(LIST_ROWS_MAX);
    more(hidden, out);
}

fn finding_lines(number: usize, finding: &FindingRow, out: &mut String) {
    let currency = finding.currency.as_deref().unwrap_or_default();
    let amount = finding.amount.map(format_amount).unwrap_or_default();
    let cause = finding.cause.map_or(finding.kind.clone(), |cause: Cause| cause.to_string());
    let _ = writeln!(out, "{number:>3}. {} {amount}  {}  {}", harmless(currency), harmless(&cause), harmless(&finding.subject));
    let _ = writeln!(
        out,
        "     {}; confidence {}; rule {}; id {}",
        view::span_text(finding.from, finding.to),
        finding.confidence,
        harmless(&finding.rule),
        harmless(&finding.id)
    );
    let _ = writeln!(out, "     evidence: {}", harmless(&finding.evidence));
    let _ = writeln!(out, "     would change the verdict: {}", harmless(&finding.would_change));
}

fn energy(report: &Report, out: &mut String) {
    section(out, "Energy");
    let _ = writeln!(out, "  {} kWh measured on the boards", format_quantity(report.energy_kwh));
    for row in view::energy_by_class(report) {
        let _ = writeln!(out, "  {:<8} {:>12} kWh", row.0.as_str(), format_quantity(row.1));
    }
}

fn inputs(report: &Report, out: &mut String) {
    section(out, "Inputs");
    if report.inputs.is_empty() {
        out.push_str("  Nothing was read.\n");
    } else {
        let mut grid = Grid::new(&[("path", Left), ("kind", Left), ("rows", Right), ("rejects", Right)]);
        for row in report.inputs.iter().take(LIST_ROWS_MAX) {
            grid.row(vec![row.path.clone(), row.kind.clone(), format_count(row.rows), format_count(row.rejects)]);
        }
        grid.write(out);
        more(report.inputs.len().saturating_sub(LIST_ROWS_MAX), out);
    }
    for invoice in report.invoices.iter().take(LIST_ROWS_MAX) {
        let _ = writeln!(
            out,
            "  invoice {} of {}: {} {} billed",
            harmless(invoice.invoice.as_deref().unwrap_or("without a number")),
            harmless(&invoice.scope),
            harmless(&invoice.currency),
            format_amount(invoice.billed)
        );
    }
    more(report.invoices.len().saturating_sub(LIST_ROWS_MAX), out);
    if report.rejects.is_empty() {
        return;
    }
    section(out, "Refused");
    for reject in report.rejects.iter().take(LIST_ROWS_MAX) {
        let _ = writeln!(out, "  {}", harmless(&view::reject_text(reject)));
    }
    more(report.rejects.len().saturating_sub(LIST_ROWS_MAX), out);
}

fn notes(report: &Report, out: &mut String) {
    section(out, "Notes");
    for note in &report.notes {
        let _ = writeln!(out, "  {}", harmless(note));
    }
    out.push_str("  Amounts are rounded here, once; the JSON form has every digit.\n");
}

fn more(hidden: usize, out: &mut String) {
    if hidden > 0 {
        let _ = writeln!(out, "  and {} more in the JSON form", format_count(hidden as u64));
    }
}
