//! The pipeline: inputs in, ledger out. The table of contents of the product.
//!
//! 1. `store::inputs` finds and reads files: telemetry, placements, bills, rejects.
//! 2. `ingest::focus` puts the bills together into scopes.
//! 3. `attribute` makes the ledger.

use std::path::{Path, PathBuf};

use gpuledger_attribute::rules::RuleBook;
use gpuledger_attribute::{Input, attribute};
use gpuledger_ingest::focus::{Bills, Deliveries, merge_bills};
use gpuledger_model::price::PriceList;
use gpuledger_model::tables::placement::Placements;
use gpuledger_model::tables::posting::{Closing, Ledger};
use gpuledger_model::tables::reject::{Notice, Reject};
use gpuledger_model::money::Decimal;
use gpuledger_store::inputs::{self, InputFile, Request};

use crate::exit::Failure;

/// Largest price list or rule book, bytes.
const TEXT_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// What the accounting needs beside the inputs.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The user's price list, before the bundled one.
    pub prices: Option<PathBuf>,
    /// The user's rule book, instead of the shipped one.
    pub rules: Option<PathBuf>,
    /// Two deliveries of one scope.
    pub deliveries: Deliveries,
    /// Folder that keeps what was read.
    pub store: Option<PathBuf>,
}

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Reading inputs.
    Inputs(inputs::Progress),
    /// Making the ledger.
    Attributing,
}

/// What a run yields.
pub struct Outcome {
    /// The inputs, as listed in the report.
    pub files: Vec<InputFile>,
    /// Placements, with the holders that only labels know.
    pub placements: Placements,
    /// Bills.
    pub bills: Bills,
    /// What was not taken.
    pub rejects: Vec<Reject>,
    /// What is odd about the inputs.
    pub notices: Vec<Notice>,
    /// Postings, proof, findings.
    pub ledger: Ledger,
    /// Records of the machines: the evidence behind findings.
    pub records: Vec<gpuledger_attribute::observe::MachineRecord>,
}

/// Runs everything.
pub fn run(request: &Request, settings: &Settings, progress: &mut dyn FnMut(Step)) -> Result<Outcome, Failure> {
    let (prices, mut rejects) = prices(settings.prices.as_deref())?;
    let book = rule_book(settings.rules.as_deref())?;
    let inputs = inputs::read(request, &mut |step| progress(Step::Inputs(step)));
    rejects.extend(inputs.rejects);
    let mut notices = inputs.notices;
    let bills = merge_bills(inputs.bills, settings.deliveries);
    rejects.extend(bills.rejects.iter().cloned());
    notices.extend(bills.notices.iter().cloned());
    progress(Step::Attributing);
    let input = Input { telemetry: &inputs.telemetry, placements: &inputs.placements, charges: &bills.charges, prices: &prices, book: &book };
    let result = attribute(&input);
    let mut ledger = result.ledger;
    ledger.closings.extend(refused(&bills));
    ledger.closings.sort_by(|a, b| a.scope.cmp(&b.scope));
    let mut placements = inputs.placements;
    placements.holders.extend(result.label_holders);
    rejects.sort();
    rejects.dedup();
    notices.sort();
    notices.dedup();
    Ok(Outcome { files: inputs.files, placements, bills, rejects, notices, ledger, records: result.records })
}

/// Refused scopes stand in the proof too: nothing of them is posted.
fn refused(bills: &Bills) -> Vec<Closing> {
    bills
        .scopes
        .iter()
        .filter(|s| s.state == gpuledger_ingest::focus::ScopeState::Refused)
        .map(|s| Closing { scope: s.scope.clone(), bill: Decimal::ZERO, posted: Decimal::ZERO, difference: Decimal::ZERO, state: "refused".to_string() })
        .collect()
}

fn prices(path: Option<&Path>) -> Result<(PriceList, Vec<Reject>), Failure> {
    let Some(path) = path else { return Ok((PriceList::bundled(), Vec::new())) };
    let text = bounded_text(path)?;
    let (own, rejects) = PriceList::parse(&path.display().to_string(), text.as_bytes());
    Ok((own.over(PriceList::bundled()), rejects))
}

fn rule_book(path: Option<&Path>) -> Result<RuleBook, Failure> {
    let Some(path) = path else { return Ok(RuleBook::shipped()) };
    let text = bounded_text(path)?;
    RuleBook::parse(&text).map_err(|error| Failure::usage(format!("read rule book {}: {error}", path.display())))
}

fn bounded_text(path: &Path) -> Result<String, Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::input(format!("read {}: {error}", path.display()));
    let size = std::fs::metadata(path).map_err(|e| failed(&e))?.len();
    if size > TEXT_BYTES_MAX {
        return Err(failed(&format!("{size} bytes are more than the {TEXT_BYTES_MAX} allowed")));
    }
    std::fs::read_to_string(path).map_err(|e| failed(&e))
}
