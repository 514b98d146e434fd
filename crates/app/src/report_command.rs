//! `gpuledger report`: settings, pipeline, report, form, exit code.

use std::path::Path;

use gpuledger_ingest::focus::ScopeState;
use gpuledger_ingest::owners::{self, Owners};
use gpuledger_model::tables::reject::Reject;
use gpuledger_store::inputs;

use crate::cli::{ReportArgs, ReportFormat};
use crate::command::say;
use crate::config::{InputSettings, report_settings};
use crate::exit::{Exit, Failure};
use crate::output::write_result;
use crate::pipeline::{self, Outcome, Step};
use crate::progress::Progress;
use crate::render;
use crate::render::amount::{format_count, harmless};
use crate::render::view::reject_text;
use crate::report::{InputFile, InvoiceRow, Report, ReportInput, ReportOptions, build};
use crate::small_file;

/// The largest owners file, in bytes.
const OWNERS_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Refusals that standard error tells one by one; the report has all of them.
const REFUSALS_SAID_MAX: usize = 50;

/// Runs the command.
pub fn run(args: &ReportArgs, now_ms: i64) -> Result<Exit, Failure> {
    let settings = report_settings(args, now_ms)?;
    let request = &settings.inputs.request;
    if request.bills.is_empty() && request.telemetry.is_empty() && request.placements.is_empty() && settings.inputs.store.is_none() {
        return Err(Failure::usage("find anything to report on").with_hint(
            "give --bills, --telemetry or --placements, or list them in gpuledger.toml; `gpuledger demo` shows a simulated fleet",
        ));
    }
    let owners = read_owners(settings.inputs.owners.as_deref())?;
    let outcome = run_pipeline(&settings.inputs)?;
    say_refusals(&outcome);
    let report = report_of(&outcome, owners.as_ref(), &settings.options, settings.inputs.is_simulated)?;
    let text = match settings.format {
        ReportFormat::Table => render::table::render(&report),
        ReportFormat::Html => render::html::render(&report),
        ReportFormat::Json => {
            report.to_json().map_err(|error| Failure::new(Exit::Unexpected, format!("write the report as JSON: {error}")))?
        }
    };
    write_result(settings.out.as_deref(), &text)?;
    Ok(exit_of(&settings.inputs, &outcome))
}

/// Runs the pipeline and shows how far it is, on a terminal.
pub fn run_pipeline(inputs: &InputSettings) -> Result<Outcome, Failure> {
    let progress = Progress::on_stderr();
    let settings = pipeline::Settings {
        prices: inputs.prices.clone(),
        rules: inputs.rules.clone(),
        deliveries: inputs.deliveries,
        store: inputs.store.clone(),
    };
    let outcome = pipeline::run(&inputs.request, &settings, &mut |step| show(&progress, step));
    progress.finish();
    outcome
}

/// The report of a run.
pub fn report_of(outcome: &Outcome, owners: Option<&Owners>, options: &ReportOptions, is_simulated: bool) -> Result<Report, Failure> {
    let files: Vec<InputFile> = outcome
        .files
        .iter()
        .map(|file| InputFile { path: file.path.clone(), kind: file.kind.as_str().to_string(), rows: file.rows, rejects: file.rejects })
        .collect();
    let invoices: Vec<InvoiceRow> = outcome
        .bills
        .invoices
        .iter()
        .map(|invoice| InvoiceRow {
            scope: invoice.scope.id(),
            invoice: invoice.invoice.clone(),
            currency: invoice.scope.currency.clone(),
            billed: invoice.billed,
        })
        .collect();
    let input = ReportInput {
        ledger: &outcome.ledger,
        placements: &outcome.placements,
        owners,
        inputs: &files,
        invoices: &invoices,
        rejects: &outcome.rejects,
        notices: &outcome.notices,
        is_simulated,
    };
    build(&input, options).map_err(|error| Failure::input(error.to_string()))
}

/// Reads an owners file; all that is wrong with it is told at once.
pub fn read_owners(path: Option<&Path>) -> Result<Option<Owners>, Failure> {
    let Some(path) = path else { return Ok(None) };
    let name = path.display().to_string();
    let unreadable = |why: String| Failure::input(format!("read owners {name}: {why}"));
    let bytes = small_file::read(path, OWNERS_BYTES_MAX).map_err(unreadable)?;
    owners::parse(&name, &bytes).map(Some).map_err(|rejects| {
        let lines: Vec<String> = rejects.iter().map(reject_text).collect();
        Failure::usage(format!("understand owners:\n  {}", harmless_lines(&lines)))
    })
}

/// The exit code of a run that gave a report: a refused scope, else an input that was named and could not be read,
/// or nothing read at all.
fn exit_of(inputs: &InputSettings, outcome: &Outcome) -> Exit {
    let request = &inputs.request;
    if outcome.bills.scopes.iter().any(|scope| scope.state == ScopeState::Refused) {
        return Exit::Refused;
    }
    let specs = || request.bills.iter().chain(&request.telemetry).chain(&request.placements).map(|spec| spec.path.as_str());
    let is_mapping = |file: &str| request.mapping.as_deref().is_some_and(|path| path == Path::new(file));
    // A price list is read whole or, without its columns, not at all.
    let is_prices = |reject: &Reject| inputs.prices.as_deref().is_some_and(|path| path == Path::new(&reject.file)) && reject.line <= 1;
    let is_named_refused = outcome
        .rejects
        .iter()
        .any(|reject| is_prices(reject) || (reject.line == 0 && (is_mapping(&reject.file) || specs().any(|path| path == reject.file))));
    let is_nothing_read = outcome.files.iter().all(|file| file.rows == 0);
    if is_named_refused || is_nothing_read || !outcome.bills.refused_files.is_empty() { Exit::Input } else { Exit::Done }
}

fn say_refusals(outcome: &Outcome) {
    for reject in outcome.rejects.iter().take(REFUSALS_SAID_MAX) {
        say(&harmless(&reject_text(reject)));
    }
    let hidden = outcome.rejects.len().saturating_sub(REFUSALS_SAID_MAX);
    if hidden > 0 {
        say(&format!("and {} more refusals; the report lists them", format_count(hidden as u64)));
    }
}

fn harmless_lines(lines: &[String]) -> String {
    lines.iter().map(|line| harmless(line)).collect::<Vec<_>>().join("\n  ")
}

/// Shows a step of the pipeline.
pub fn show(progress: &Progress, step: Step) {
    match step {
        Step::Inputs(inputs::Progress::Finding) => progress.stage("finding inputs"),
        Step::Inputs(inputs::Progress::Reading { done: 0, total }) => progress.counted_stage("reading inputs", total as u64),
        Step::Inputs(inputs::Progress::Reading { .. }) => progress.step(),
        Step::Inputs(inputs::Progress::Joining) => progress.stage("joining what was read"),
        Step::Attributing => progress.stage("posting every dollar"),
    }
}
