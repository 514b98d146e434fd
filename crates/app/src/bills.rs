//! `gpuledger bills`: normalises and closes bills, without telemetry.

use std::io::Write;

use gpuledger_ingest::focus::{
    Assume, BillFile, Bills, CommitmentCount, DatasetSummary, Deliveries, InvoiceSummary, ScopeState, ScopeSummary, merge_bills,
};
use gpuledger_model::money::Decimal;
use gpuledger_model::tables::reject::{Notice, Reject};
use gpuledger_store::bills::read_bill;
use gpuledger_store::discover::{InputKind, PathSpec, find};
use serde::Serialize;

use crate::cli::ListFormat;
use crate::exit::Exit;
use crate::render::amount::{format_count, harmless};
use crate::render::grid::{Grid, Side};
use crate::render::view::reject_text;

/// The name and version of the JSON form. Fields may be added; none is renamed.
pub const SCHEMA: &str = "gpuledger.bills/1";

/// Reads the paths (files, folders, globs; `focus=PATH` forces the kind), closes what they hold and writes the
/// result to `out`. What was refused goes to `err` as well, a line each.
pub fn run(
    paths: &[String],
    format: ListFormat,
    assume: &Assume,
    deliveries: Deliveries,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Exit {
    let bills = read(paths, assume, deliveries);
    for reject in &bills.rejects {
        // A closed standard error is no reason to keep the result back.
        let _ = writeln!(err, "{}", harmless(&reject_text(reject)));
    }
    let text = match format {
        ListFormat::Table => table(&bills),
        ListFormat::Json => match serde_json::to_string_pretty(&Document::from(&bills)) {
            Ok(json) => json + "\n",
            Err(error) => {
                let _ = writeln!(err, "error: failed to write the bills as JSON: {error}");
                return Exit::Unexpected;
            }
        },
    };
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => exit(&bills),
        // `gpuledger bills ... | head` is no failure of ours.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => exit(&bills),
        Err(error) => {
            let _ = writeln!(err, "error: failed to write the result: {error}");
            Exit::Output
        }
    }
}

/// The bills under the paths, put together.
pub fn read(paths: &[String], assume: &Assume, deliveries: Deliveries) -> Bills {
    let specs: Vec<PathSpec> = paths.iter().map(|path| PathSpec::parse(path)).collect();
    let found = find(&specs);
    let mut notices = found.notices;
    let mut rejects = found.rejects;
    let mut files: Vec<BillFile> = Vec::new();
    for file in found.files {
        let name = file.name();
        if file.kind == InputKind::Focus {
            files.push(read_bill(&file.path, &name, assume));
        } else if paths.contains(&name) {
            rejects.push(Reject {
                file: name,
                line: 0,
                field: String::new(),
                reason: format!("is {}, not a bill; force it with focus=PATH if it is one", file.kind.as_str()),
                count: 1,
            });
        } else {
            let message = format!("was not read: it is {}, not a bill", file.kind.as_str());
            notices.push(Notice { kind: "unrecognized_file".to_owned(), subject: name, message });
        }
    }
    let mut bills = merge_bills(files, deliveries);
    bills.refused_files.extend(rejects.iter().map(|reject| reject.file.clone()));
    bills.rejects.extend(rejects);
    bills.rejects.sort();
    bills.notices.extend(notices);
    bills.notices.sort();
    bills
}

fn exit(bills: &Bills) -> Exit {
    let is_nothing_read = bills.scopes.is_empty() && bills.datasets.is_empty();
    if bills.scopes.iter().any(|scope| scope.state == ScopeState::Refused) {
        Exit::Refused
    } else if is_nothing_read || !bills.refused_files.is_empty() {
        Exit::Input
    } else {
        Exit::Done
    }
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    scopes: Vec<ScopeRow<'a>>,
    invoices: Vec<InvoiceRow<'a>>,
    commitments: Vec<CommitmentRow<'a>>,
    datasets: &'a [DatasetSummary],
    rejects: Vec<RejectRow<'a>>,
    findings: &'a [Notice],
}

#[derive(Serialize)]
struct ScopeRow<'a> {
    scope: String,
    provider: &'a str,
    account: &'a str,
    period: &'a str,
    currency: &'a str,
    format: &'a str,
    state: &'static str,
    rows: u64,
    billed: Option<String>,
    effective: Option<String>,
    list: Option<String>,
    tax: Option<String>,
    credits: Option<String>,
    scale: u8,
    reasons: &'a [String],
}

#[derive(Serialize)]
struct InvoiceRow<'a> {
    scope: String,
    invoice: Option<&'a str>,
    currency: &'a str,
    billed: String,
}

#[derive(Serialize)]
struct CommitmentRow<'a> {
    provider: &'a str,
    account: &'a str,
    currency: &'a str,
    checked: u64,
    closed: u64,
    unchecked: u64,
}

#[derive(Serialize)]
struct RejectRow<'a> {
    file: &'a str,
    line: u64,
    field: &'a str,
    reason: &'a str,
    count: u64,
}

impl<'a> From<&'a Bills> for Document<'a> {
    fn from(bills: &'a Bills) -> Document<'a> {
        Document {
            schema: SCHEMA,
            scopes: bills.scopes.iter().map(ScopeRow::from).collect(),
            invoices: bills.invoices.iter().map(InvoiceRow::from).collect(),
            commitments: bills.commitments.iter().map(CommitmentRow::from).collect(),
            datasets: &bills.datasets,
            rejects: bills
                .rejects
                .iter()
                .map(|r| RejectRow { file: &r.file, line: r.line, field: &r.field, reason: &r.reason, count: r.count })
                .collect(),
            findings: &bills.notices,
        }
    }
}

impl<'a> From<&'a ScopeSummary> for ScopeRow<'a> {
    fn from(summary: &'a ScopeSummary) -> ScopeRow<'a> {
        ScopeRow {
            scope: summary.scope.id(),
            provider: &summary.scope.provider,
            account: &summary.scope.account,
            period: &summary.scope.period,
            currency: &summary.scope.currency,
            format: &summary.format,
            state: summary.state.as_str(),
            rows: summary.rows,
            billed: summary.billed.map(plain),
            effective: summary.effective.map(plain),
            list: summary.list.map(plain),
            tax: summary.tax.map(plain),
            credits: summary.credits.map(plain),
            scale: summary.scale,
            reasons: &summary.reasons,
        }
    }
}

impl<'a> From<&'a InvoiceSummary> for InvoiceRow<'a> {
    fn from(summary: &'a InvoiceSummary) -> InvoiceRow<'a> {
        InvoiceRow {
            scope: summary.scope.id(),
            invoice: summary.invoice.as_deref(),
            currency: &summary.scope.currency,
            billed: plain(summary.billed),
        }
    }
}

impl<'a> From<&'a CommitmentCount> for CommitmentRow<'a> {
    fn from(count: &'a CommitmentCount) -> CommitmentRow<'a> {
        CommitmentRow {
            provider: &count.provider,
            account: &count.account,
            currency: &count.currency,
            checked: count.checked,
            closed: count.closed,
            unchecked: count.unchecked,
        }
    }
}

/// All digits that carry value, no exponent.
fn plain(amount: Decimal) -> String {
    amount.normalized().to_string()
}

fn table(bills: &Bills) -> String {
    let mut text = String::new();
    let closed = bills.scopes.iter().filter(|scope| scope.state == ScopeState::Closed).count();
    text.push_str(&format!("{closed} of {} scopes closed\n", bills.scopes.len()));
    let mut scopes = Grid::new(&[
        ("provider", Side::Left),
        ("account", Side::Left),
        ("period", Side::Left),
        ("currency", Side::Left),
        ("state", Side::Left),
        ("rows", Side::Right),
        ("billed", Side::Right),
        ("effective", Side::Right),
        ("list", Side::Right),
        ("tax", Side::Right),
        ("credits", Side::Right),
    ]);
    let shown = |amount: Option<Decimal>| amount.map_or_else(|| "-".to_owned(), plain);
    for summary in &bills.scopes {
        scopes.row(vec![
            summary.scope.provider.clone(),
            summary.scope.account.clone(),
            summary.scope.period.clone(),
            summary.scope.currency.clone(),
            summary.state.as_str().to_owned(),
            format_count(summary.rows),
            shown(summary.billed),
            shown(summary.effective),
            shown(summary.list),
            shown(summary.tax),
            shown(summary.credits),
        ]);
    }
    if !scopes.is_empty() {
        scopes.write(&mut text);
    }
    if !bills.datasets.is_empty() {
        text.push_str("\nother datasets of FOCUS\n");
        let mut datasets = Grid::new(&[("file", Side::Left), ("dataset", Side::Left), ("rows", Side::Right)]);
        for dataset in &bills.datasets {
            datasets.row(vec![dataset.file.clone(), dataset.kind.as_str().to_owned(), format_count(dataset.rows)]);
        }
        datasets.write(&mut text);
    }
    if !bills.rejects.is_empty() {
        let count = bills.rejects.len();
        text.push_str(&format!("\n{count} reasons why rows were refused or values read as null: see standard error, or --format json\n"));
    }
    let findings = bills.notices.iter().map(|n| format!("{}: {}: {}", n.kind, n.subject, n.message)).collect();
    section(&mut text, "findings", findings);
    text
}

fn section(text: &mut String, title: &str, lines: Vec<String>) {
    if lines.is_empty() {
        return;
    }
    text.push_str(&format!("\n{title}\n"));
    for line in lines {
        text.push_str(&format!("  {}\n", harmless(&line)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use std::fs;

    const HEADER: &str = "BilledCost,EffectiveCost,BillingAccountId,BillingCurrency,BillingPeriodStart,BillingPeriodEnd,\
ChargePeriodStart,ChargePeriodEnd,ChargeCategory,ProviderName,ListCost,InvoiceId\n";

    fn row(money: &str, account: &str, category: &str) -> String {
        format!("{money},{money},{account},USD,2026-10-01,2026-11-01,2026-10-06,2026-10-07,{category},AWS,2,I1\n")
    }

    fn run_on(path: &std::path::Path, format: ListFormat) -> (Exit, String, String) {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let paths = [path.display().to_string()];
        let exit = run(&paths, format, &Assume::default(), Deliveries::Refuse, &mut out, &mut err);
        (exit, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
    }

    #[test]
    fn json_has_the_documented_fields_and_plain_decimals() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a.csv"), [HEADER, &row("1.5E-7", "007", "Usage"), &row("2.50", "007", "Tax")].concat()).unwrap();
        fs::write(folder.path().join("notes.md"), "# nothing\n\nof ours\n").unwrap();
        let (exit, out, err) = run_on(folder.path(), ListFormat::Json);
        assert_eq!((exit, err.as_str()), (Exit::Done, ""));
        let json: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(json["schema"], SCHEMA);
        let scope = &json["scopes"][0];
        for (field, value) in [
            ("scope", "AWS/007/2026-10/USD"),
            ("provider", "AWS"),
            ("account", "007"),
            ("period", "2026-10"),
            ("currency", "USD"),
            ("format", "focus-1.2"),
            ("state", "closed"),
            ("billed", "2.50000015"),
            ("effective", "2.50000015"),
            ("list", "2"),
            ("tax", "2.5"),
            ("credits", "0"),
        ] {
            assert_eq!(scope[field], value, "{field}");
        }
        assert_eq!(scope["rows"], 2);
        assert_eq!(json["invoices"][0]["billed"], "2.50000015");
        assert!(json["findings"].as_array().unwrap().iter().any(|f| f["kind"] == "unrecognized_file"));
    }

    #[test]
    fn a_refused_scope_exits_with_4_and_the_rest_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.csv");
        fs::write(&path, [HEADER, &row("1", "a", "Usage"), &row("$2", "b", "Usage")].concat()).unwrap();
        let (exit, out, err) = run_on(&path, ListFormat::Json);
        assert_eq!(exit, Exit::Refused);
        let json: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(json["scopes"][0]["state"], "closed");
        assert_eq!(json["scopes"][1]["state"], "refused");
        assert_eq!(json["scopes"][1]["billed"], Value::Null);
        let reject = &json["rejects"][0];
        assert_eq!((reject["line"].as_u64(), reject["field"].as_str()), (Some(3), Some("BilledCost")));
        assert!(err.contains("a.csv:3: BilledCost"), "{err}");
        let (exit, out, _) = run_on(&path, ListFormat::Table);
        assert_eq!(exit, Exit::Refused);
        assert!(out.starts_with("1 of 2 scopes closed\n") && out.contains("refused"), "{out}");
    }

    #[test]
    fn nothing_readable_exits_with_3() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(run_on(&folder.path().join("none.csv"), ListFormat::Table).0, Exit::Input);
        let path = folder.path().join("a.csv");
        fs::write(&path, "BilledCost,BillingCurrency,ChargeCategory\n1,USD,Usage\n").unwrap();
        let (exit, _, err) = run_on(&path, ListFormat::Table);
        assert_eq!(exit, Exit::Input);
        assert!(err.contains("BillingAccountId") && err.contains("--assume account=X"), "{err}");
    }
}
