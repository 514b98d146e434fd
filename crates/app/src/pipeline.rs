//! The pipeline: inputs in, ledger out. The table of contents of the product.
//!
//! 1. `store::inputs` finds and reads files: telemetry, placements, bills, rejects.
//! 2. `ingest::focus` puts the bills together into scopes.
//! 3. `attribute` makes the ledger.

use std::path::{Path, PathBuf};

use gpuledger_attribute::rules::RuleBook;
use gpuledger_attribute::{Input, Observed, observe_all, observed_again, record};
use gpuledger_ingest::focus::{Bills, Deliveries, merge_bills};
use gpuledger_model::invariant;
use gpuledger_model::money::Decimal;
use gpuledger_model::price::PriceList;
use gpuledger_model::tables::charge::Charge;
use gpuledger_model::tables::placement::{Holder, Placements};
use gpuledger_model::tables::posting::{Closing, Ledger};
use gpuledger_model::tables::record::RecordTables;
use gpuledger_model::tables::reject::{Notice, Reject};
use gpuledger_model::tables::telemetry::Telemetry;
use gpuledger_store::folder::{Catalog, Folder, StoreError};
use gpuledger_store::inputs::{self, InputFile, Inputs, Request};
use gpuledger_store::keep::{self, Kept};

use crate::exit::Failure;
use crate::small_file;

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
    let mut source = Source::read(request, settings.store.as_deref(), progress)?;
    let mut inputs = source.take_inputs();
    rejects.extend(std::mem::take(&mut inputs.rejects));
    let mut notices = std::mem::take(&mut inputs.notices);
    let bills = merge_bills(std::mem::take(&mut inputs.bills), settings.deliveries);
    rejects.extend(bills.rejects.iter().cloned());
    notices.extend(bills.notices.iter().cloned());
    progress(Step::Attributing);
    let input = Input { placements: &inputs.placements, charges: &bills.charges, prices: &prices, book: &book };
    let observed = source.observed(&inputs.telemetry, &input, settings)?;
    let mut ledger = gpuledger_attribute::ledger(&observed, &input);
    debug_assert_held(check_ledger(&rejects, &bills.charges, &ledger));
    ledger.closings.extend(refused(&bills));
    ledger.closings.sort_by(|a, b| a.scope.cmp(&b.scope));
    let mut placements = inputs.placements;
    placements.holders.extend(observed.label_holders);
    rejects.sort();
    rejects.dedup();
    notices.sort();
    notices.dedup();
    Ok(Outcome { files: inputs.files, placements, bills, rejects, notices, ledger, records: observed.records })
}

/// Where the inputs of a run come from.
enum Source {
    /// Files, read for this run alone.
    Files(Box<Inputs>),
    /// A folder that keeps what was read, and the record made of it.
    Folder(Box<(Folder, Kept)>),
}

/// Tables of the record, by their names in the folder. No batch of the store may have one of the same name: those of
/// former records are removed by name.
const RECORD_TABLES: [&str; 8] = ["windows", "window_signals", "units", "holdings", "spans", "machines", "hosts", "label_holders"];

impl Source {
    fn read(request: &Request, store: Option<&Path>, progress: &mut dyn FnMut(Step)) -> Result<Source, Failure> {
        let mut step = |step| progress(Step::Inputs(step));
        match store {
            None => Ok(Source::Files(Box::new(inputs::read(request, &mut step)))),
            Some(path) => {
                let mut folder = Folder::open(path).map_err(|error| store_failure(path, &error))?;
                let kept = keep::refresh(request, &mut folder, &mut step).map_err(|error| store_failure(path, &error))?;
                Ok(Source::Folder(Box::new((folder, kept))))
            }
        }
    }

    /// The inputs but for what a folder loads only when it is needed: telemetry.
    fn take_inputs(&mut self) -> Inputs {
        match self {
            Source::Files(inputs) => std::mem::take(inputs),
            Source::Folder(own) => std::mem::take(&mut own.1.inputs),
        }
    }

    /// The record of the machines: from a folder that keeps it for the same telemetry, placements and rules, else from
    /// the samples.
    fn observed(self, telemetry: &Telemetry, input: &Input<'_>, settings: &Settings) -> Result<Observed, Failure> {
        let (Source::Folder(own), Some(path)) = (self, settings.store.as_deref()) else {
            debug_assert_held(check_telemetry(telemetry));
            return Ok(observe_all(telemetry, input));
        };
        let (mut folder, kept) = *own;
        debug_assert_held(check_store(folder.catalog()));
        let failed = |error: &StoreError| store_failure(path, error);
        let key = record_key(&kept, input);
        if let Some((tables, label_holders)) = load_record(&folder, &key).map_err(|e| failed(&e))?
            && let Some(former) = record::from_tables(&tables, label_holders)
            && let Some(observed) = observed_again(former, input)
        {
            return Ok(observed);
        }
        let samples = kept.load_telemetry(&folder).map_err(|e| failed(&e))?;
        debug_assert_held(check_telemetry(&samples));
        let observed = observe_all(&samples, input);
        let holders: Vec<_> = input.placements.holders.iter().chain(&observed.label_holders).cloned().collect();
        if let Some(tables) = record::to_tables(&observed, &holders) {
            debug_assert_held(|| invariant::model_3_windows(&tables.windows));
            keep_record(&mut folder, &key, &tables, &observed).map_err(|e| failed(&e))?;
        }
        Ok(observed)
    }
}

/// In debug builds and tests, a broken invariant ends the run where it broke; release builds do not ask.
fn debug_assert_held(check: impl FnOnce() -> invariant::Held) {
    debug_assert_eq!(check(), Ok(()));
}

/// What must hold of telemetry before it is accounted.
fn check_telemetry(telemetry: &Telemetry) -> impl FnOnce() -> invariant::Held {
    move || invariant::model_3(telemetry).and_then(|()| invariant::ing_1(telemetry)).and_then(|()| invariant::ing_2(telemetry))
}

/// What must hold of a folder that was read into.
fn check_store(catalog: &Catalog) -> impl FnOnce() -> invariant::Held {
    move || {
        let sources = catalog.sources.iter().map(|(name, source)| (name.clone(), source.batch.clone())).collect();
        invariant::store_1(&catalog.batches, &catalog.tables)
            .and_then(|()| invariant::store_2(&catalog.batches))
            .and_then(|()| invariant::store_3(&sources, &catalog.batches))
    }
}

/// What must hold of a ledger, before refused scopes join its proof.
fn check_ledger(rejects: &[Reject], charges: &[Charge], ledger: &Ledger) -> impl FnOnce() -> invariant::Held {
    move || {
        invariant::model_1(ledger)
            .and_then(|()| invariant::model_2(charges, ledger))
            .and_then(|()| invariant::ing_3(rejects))
            .and_then(|()| invariant::attr_1(charges, ledger))
            .and_then(|()| invariant::attr_2(ledger))
            .and_then(|()| invariant::attr_3(ledger))
    }
}

/// What the record is made of: telemetry, placements and the rules of windows.
fn record_key(kept: &Kept, input: &Input<'_>) -> String {
    let rules = format!("{:?}", input.book.limits);
    gpuledger_store::content::bytes_sha256(format!("{}|{}|{rules}|{RECORD_VERSION}", kept.telemetry_id, kept.placements_id).as_bytes())
}

/// Raised whenever the record of the same inputs changes.
const RECORD_VERSION: u32 = 1;

fn load_record(folder: &Folder, key: &str) -> Result<Option<(RecordTables, Vec<Holder>)>, StoreError> {
    if !folder.has_table("machines", key) {
        return Ok(None);
    }
    let tables = RecordTables {
        windows: folder.get_rows("windows", key)?.unwrap_or_default(),
        signals: folder.get_rows("window_signals", key)?.unwrap_or_default(),
        units: folder.get_rows("units", key)?.unwrap_or_default(),
        holdings: folder.get_rows("holdings", key)?.unwrap_or_default(),
        spans: folder.get_rows("spans", key)?.unwrap_or_default(),
        machines: folder.get_rows("machines", key)?.unwrap_or_default(),
        hosts: folder.get_rows("hosts", key)?.unwrap_or_default(),
    };
    Ok(Some((tables, folder.get_rows("label_holders", key)?.unwrap_or_default())))
}

/// Keeps the record; `machines` comes last, so that a record cut short is not taken for whole.
fn keep_record(folder: &mut Folder, key: &str, tables: &RecordTables, observed: &Observed) -> Result<(), StoreError> {
    folder.put_rows("windows", key, &tables.windows)?;
    folder.put_rows("window_signals", key, &tables.signals)?;
    folder.put_rows("units", key, &tables.units)?;
    folder.put_rows("holdings", key, &tables.holdings)?;
    folder.put_rows("spans", key, &tables.spans)?;
    folder.put_rows("hosts", key, &tables.hosts)?;
    folder.put_rows("label_holders", key, &observed.label_holders)?;
    folder.put_rows("machines", key, &tables.machines)?;
    for name in RECORD_TABLES {
        folder.keep_only(name, &[key])?;
    }
    Ok(())
}

fn store_failure(path: &Path, error: &StoreError) -> Failure {
    Failure::output(format!("use the store {}: {error}", path.display()))
}

/// Refused scopes stand in the proof too: nothing of them is posted.
fn refused(bills: &Bills) -> Vec<Closing> {
    bills
        .scopes
        .iter()
        .filter(|s| s.state == gpuledger_ingest::focus::ScopeState::Refused)
        .map(|s| Closing {
            scope: s.scope.clone(),
            bill: Decimal::ZERO,
            posted: Decimal::ZERO,
            difference: Decimal::ZERO,
            state: "refused".to_string(),
        })
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
    small_file::read_text(path, TEXT_BYTES_MAX).map_err(|why| Failure::input(format!("read {}: {why}", path.display())))
}
