//! Reading into a folder that keeps what was read, and out of it.
//!
//! Every input is a batch named by the hash of its bytes and of how it was to be read. A file whose size and
//! time have not changed is not opened; one whose bytes are known is not parsed (**STORE-3**). Inputs of former
//! runs stay in the folder: a late bill is one more batch, and telemetry need not even be loaded when what was
//! made of it is kept under [`Kept::telemetry_id`].

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, BinaryArray, RecordBatch};
use gpuledger_ingest::focus::BillFile;
use gpuledger_ingest::prometheus::Collected;
use gpuledger_ingest::prometheus::names::NAMES_CSV;
use gpuledger_model::tables::charge::Charge;
use gpuledger_model::tables::reject::{Notice, Reject};
use gpuledger_model::tables::telemetry::Telemetry;
use gpuledger_model::time::{DAY_MS, floor_to};
use serde::{Deserialize, Serialize};

use crate::content::{self, bytes_sha256};
use crate::discover::{FoundFile, InputKind};
use crate::folder::{Batch, Folder, Source, StoreError};
use crate::inputs::{self, Inputs, Item, ItemResult, Payload, Progress, Request, Worker};
use crate::telemetry_tables;

/// Raised whenever a parser gives something else for the same bytes.
const READ_VERSION: &str = "2";
/// Batches written between two catalogues.
const BATCHES_PER_APPEND: usize = 32;

/// What the folder holds after a run's inputs were read into it.
#[derive(Clone, Debug, Default)]
pub struct Kept {
    /// All inputs, those of former runs included; its telemetry is empty until [`Kept::load_telemetry`].
    pub inputs: Inputs,
    /// Identity of all telemetry.
    pub telemetry_id: String,
    /// Identity of all placements and of how they were read.
    pub placements_id: String,
    telemetry_batches: Vec<String>,
}

impl Kept {
    /// The canonical telemetry of the folder.
    pub fn load_telemetry(&self, folder: &Folder) -> Result<Telemetry, StoreError> {
        let mut whole = Collected::default();
        for id in &self.telemetry_batches {
            whole.merge(telemetry_tables::read_tables(folder, id)?);
        }
        Ok(whole.into_telemetry())
    }
}

/// Reads what is new or changed into the folder, and gives all that the folder holds but telemetry.
pub fn refresh(request: &Request, folder: &mut Folder, progress: &mut dyn FnMut(Progress)) -> Result<Kept, StoreError> {
    progress(Progress::Finding);
    let found = inputs::find(request);
    let units = units_of(request, found.files);
    read_changed(request, units, folder, progress)?;
    folder.forget_unused()?;
    progress(Progress::Joining);
    let mut kept = load(request, folder)?;
    kept.inputs.rejects.extend(found.rejects);
    kept.inputs.rejects.sort();
    kept.inputs.rejects.dedup();
    kept.inputs.notices.extend(found.notices);
    kept.inputs.notices.sort();
    kept.inputs.notices.dedup();
    Ok(kept)
}

/// An input: a file, or a day of scrapes of a folder.
struct Unit {
    key: String,
    item: Item,
    /// How it is to be read.
    manner: String,
}

impl Unit {
    fn cluster(&self) -> Option<String> {
        self.item.files.first().and_then(|file| file.cluster.clone())
    }

    fn fingerprint(&self) -> String {
        let mut listing = self.manner.clone();
        for file in &self.item.files {
            listing.push_str(&format!("\n{}\t{}\t{}", file.name(), file.size, file.modified_ns));
        }
        bytes_sha256(listing.as_bytes())
    }

    /// The hash of its bytes, and of what else gives them meaning.
    fn identity(&self) -> std::io::Result<String> {
        let mut listing = self.manner.clone();
        for file in &self.item.files {
            let name = match (self.item.kind, file.scrape_name()) {
                (InputKind::Prometheus, Some((target, time_ms))) => format!("{target}@{time_ms}"),
                // Without a label for it, a text's target is its file's name.
                (InputKind::Prometheus, None) => file.path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
                _ => String::new(),
            };
            listing.push_str(&format!("\n{name}\t{}", content::file_sha256(&file.path)?));
        }
        Ok(bytes_sha256(listing.as_bytes()))
    }
}

fn units_of(request: &Request, files: Vec<FoundFile>) -> Vec<Unit> {
    let mut units: Vec<Unit> = Vec::new();
    let mut scrapes: BTreeMap<(PathBuf, i64), Vec<FoundFile>> = BTreeMap::new();
    for file in files {
        match (file.kind, file.scrape_name()) {
            (InputKind::Prometheus, Some((_, time_ms))) => {
                let folder = file.path.parent().map(PathBuf::from).unwrap_or_default();
                scrapes.entry((folder, floor_to(time_ms, DAY_MS))).or_default().push(file);
            }
            _ => {
                let path = file.name();
                let item = Item { path, kind: file.kind, files: vec![file], groups: None };
                units.push(Unit { key: String::new(), manner: manner(request, &item), item });
            }
        }
    }
    for ((folder, day_ms), files) in scrapes {
        let item = Item { path: folder.display().to_string(), kind: InputKind::Prometheus, files, groups: None };
        units.push(Unit { key: format!("#{day_ms}"), manner: manner(request, &item), item });
    }
    for unit in &mut units {
        // The same place under two spellings is one input.
        let path = PathBuf::from(&unit.item.path);
        let absolute = path.canonicalize().unwrap_or(path);
        unit.key = format!("{}{}", absolute.display(), unit.key);
    }
    units
}

fn manner(request: &Request, item: &Item) -> String {
    let cluster = item.files.first().and_then(|file| file.cluster.as_deref()).unwrap_or_default();
    let how = match item.kind {
        InputKind::Prometheus | InputKind::Series => {
            format!("{:?}\t{}", request.assumed_time_ms, bytes_sha256(NAMES_CSV.as_bytes()))
        }
        InputKind::Focus => format!("{:?}", request.assume),
        _ => String::new(),
    };
    format!("{READ_VERSION}\t{}\t{cluster}\t{how}", item.kind.as_str())
}

fn read_changed(request: &Request, units: Vec<Unit>, folder: &mut Folder, progress: &mut dyn FnMut(Progress)) -> Result<(), StoreError> {
    let is_unchanged = |unit: &Unit| {
        folder
            .catalog()
            .sources
            .get(&unit.key)
            .is_some_and(|source| source.fingerprint == unit.fingerprint() && folder.has_batch(&source.batch))
    };
    let changed: Vec<Unit> = units.into_iter().filter(|unit| !is_unchanged(unit)).collect();
    let known: BTreeMap<String, Source> = folder.catalog().sources.values().map(|source| (source.batch.clone(), source.clone())).collect();
    let total = changed.iter().map(|unit| unit.item.files.len()).sum();
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from).clamp(1, 8).min(changed.len().max(1));
    // A bounded channel: parsed inputs wait for the disk instead of filling the memory.
    let (done, reports) = mpsc::sync_channel::<(usize, Result<Reading, StoreError>)>(threads);
    let mut outcome = Ok(());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            let done = done.clone();
            let (changed, known, next) = (&changed, &known, &next);
            scope.spawn(move || {
                while let Some(unit) = changed.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if done.send((unit.item.files.len(), read_unit(request, unit, known))).is_err() {
                        break;
                    }
                }
            });
        }
        drop(done);
        let mut files_done = 0;
        let (mut batches, mut sources) = (Vec::new(), Vec::new());
        while let Ok((files, result)) = reports.recv() {
            files_done += files;
            progress(Progress::Reading { done: files_done, total });
            match result {
                Ok((batch, (key, source))) => {
                    batches.extend(batch);
                    sources.push((key, source));
                }
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
            if batches.len() >= BATCHES_PER_APPEND || batches.iter().any(is_large) {
                outcome = folder.append(std::mem::take(&mut batches), std::mem::take(&mut sources));
                if outcome.is_err() {
                    break;
                }
            }
        }
        drop(reports);
        if outcome.is_ok() {
            outcome = folder.append(batches, sources);
        }
    });
    outcome
}

fn is_large(batch: &Batch) -> bool {
    batch.tables.iter().flat_map(|table| &table.2).map(RecordBatch::num_rows).sum::<usize>() > 1 << 20
}

#[derive(Serialize, Deserialize)]
struct BillRow {
    bill: String,
}

#[derive(Serialize, Deserialize)]
struct DigestRow {
    digest: u64,
}

/// A batch, unless it is known, and the source that stands behind it.
type Reading = (Option<Batch>, (String, Source));

/// Parses one input, unless its bytes are known.
fn read_unit(request: &Request, unit: &Unit, known: &BTreeMap<String, Source>) -> Result<Reading, StoreError> {
    let mut source = Source {
        fingerprint: unit.fingerprint(),
        batch: String::new(),
        kind: unit.item.kind.as_str().to_string(),
        path: unit.item.path.clone(),
        cluster: unit.cluster(),
        rows: 0,
        rejects: 0,
    };
    source.batch = match unit.identity() {
        Ok(id) => id,
        Err(error) => {
            // It is looked into again next time: an unreadable file has no fingerprint.
            source.fingerprint.clear();
            source.batch = bytes_sha256(format!("unreadable\t{}", unit.key).as_bytes());
            source.rejects = 1;
            let mut batch = Batch::new(&source.batch);
            batch.add_rows("rejects", &[inputs::whole_file(&unit.item.path, format!("cannot be read ({error})"))])?;
            return Ok((Some(batch), (unit.key.clone(), source)));
        }
    };
    if let Some(same) = known.get(&source.batch) {
        (source.rows, source.rejects) = (same.rows, same.rejects);
        return Ok((None, (unit.key.clone(), source)));
    }
    let mut batch = Batch::new(&source.batch);
    if is_document(unit.item.kind) {
        add_document(unit, &mut batch)?;
        return Ok((Some(batch), (unit.key.clone(), source)));
    }
    let mut worker = Worker::new(request);
    let mut result = worker.read(&unit.item);
    (source.rows, source.rejects) = (result.rows, result.refused);
    if let Payload::Bill(bill) = &mut result.payload {
        add_bill(bill, &mut batch)?;
    }
    let mut whole = Collected::default();
    worker.finish().into_iter().for_each(|part| whole.merge(part));
    telemetry_tables::add_tables(&whole, &mut batch)?;
    batch.add_rows("rejects", &result.rejects)?;
    batch.add_rows("notices", &result.notices)?;
    Ok((Some(batch), (unit.key.clone(), source)))
}

fn is_document(kind: InputKind) -> bool {
    !matches!(kind, InputKind::Focus | InputKind::Prometheus | InputKind::Series)
}

/// Dumps and records are kept as they are: what they say depends on the others of their cluster.
fn add_document(unit: &Unit, batch: &mut Batch) -> Result<(), StoreError> {
    let Some(file) = unit.item.files.first() else { return Ok(()) };
    let (bytes, end) = match content::document(&file.path) {
        Ok(document) => document,
        Err(error) => (Vec::new(), Some(format!("cannot be read ({error})"))),
    };
    let column: ArrayRef = Arc::new(BinaryArray::from_vec(vec![bytes.as_slice()]));
    let rows = RecordBatch::try_from_iter([("bytes", column)])
        .map_err(|error| StoreError::Damaged { path: "documents".into(), reason: error.to_string() })?;
    batch.add("documents", vec![rows]);
    let rejects: Vec<Reject> = end.map(|reason| inputs::whole_file(&unit.item.path, reason)).into_iter().collect();
    batch.add_rows("rejects", &rejects)
}

fn add_bill(bill: &mut BillFile, batch: &mut Batch) -> Result<(), StoreError> {
    let charges: Vec<Charge> = std::mem::take(&mut bill.charges);
    let digests: Vec<DigestRow> = std::mem::take(&mut bill.digests).into_iter().map(|digest| DigestRow { digest }).collect();
    let text = serde_json::to_string(bill).map_err(|error| StoreError::Damaged { path: "bills".into(), reason: error.to_string() })?;
    batch.add_rows("bills", &[BillRow { bill: text }])?;
    batch.add_rows("charges", &charges)?;
    batch.add_rows("digests", &digests)
}

/// All that the folder holds, but telemetry.
fn load(request: &Request, folder: &Folder) -> Result<Kept, StoreError> {
    let mut kept = Kept::default();
    let mut seen: BTreeMap<String, String> = BTreeMap::new();
    let mut items = Vec::new();
    let mut results = Vec::new();
    let (mut telemetry, mut documents) = (BTreeSet::new(), BTreeSet::new());
    for source in folder.catalog().sources.values() {
        let kind = InputKind::from_word(&source.kind).unwrap_or(InputKind::Unknown);
        let item = Item { path: source.path.clone(), kind, files: Vec::new(), groups: None };
        if let Some(first) = seen.get(&source.batch) {
            if *first != source.path {
                kept.inputs.notices.push(Notice {
                    kind: "duplicate_file".into(),
                    subject: source.path.clone(),
                    message: format!("is byte for byte the same as {first} and counts once"),
                });
                items.push(item);
                results.push(ItemResult::default());
            }
            continue;
        }
        seen.insert(source.batch.clone(), source.path.clone());
        let mut result = ItemResult { rows: source.rows, refused: source.rejects, ..ItemResult::default() };
        if is_document(kind) {
            documents.insert(format!("{}\t{:?}", source.batch, source.cluster));
            if let Some(bytes) = document(folder, &source.batch)? {
                result = inputs::parse_document(request, &source.path, kind, source.cluster.as_deref(), &bytes);
            }
        } else if kind == InputKind::Focus {
            result.payload = bill(folder, &source.batch)?.map_or(Payload::Taken, |bill| Payload::Bill(Box::new(bill)));
        } else {
            telemetry.insert(source.batch.clone());
        }
        let rejects = folder.get_rows::<Reject>("rejects", &source.batch)?.unwrap_or_default();
        if is_document(kind) {
            result.refused += rejects.iter().map(|reject| reject.count).sum::<u64>();
        }
        result.rejects.extend(rejects);
        result.notices.extend(folder.get_rows::<Notice>("notices", &source.batch)?.unwrap_or_default());
        items.push(item);
        results.push(result);
    }
    inputs::join(request, &items, results, &mut kept.inputs);
    kept.telemetry_batches = telemetry.into_iter().collect();
    kept.telemetry_id = bytes_sha256(kept.telemetry_batches.join("\n").as_bytes());
    let documents: Vec<String> = documents.into_iter().collect();
    let how = format!("{READ_VERSION}\t{}\t{:?}\t{:?}", request.cluster, request.slurm_zone.iana_name(), request.run_label);
    kept.placements_id = bytes_sha256(format!("{how}\n{}", documents.join("\n")).as_bytes());
    Ok(kept)
}

fn document(folder: &Folder, id: &str) -> Result<Option<Vec<u8>>, StoreError> {
    let batches = folder.get_table("documents", id)?.unwrap_or_default();
    let column = batches.first().and_then(|batch| batch.column_by_name("bytes")?.as_binary_opt::<i32>().cloned());
    Ok(column.filter(|column| !arrow_array::Array::is_empty(column)).map(|column| column.value(0).to_vec()))
}

fn bill(folder: &Folder, id: &str) -> Result<Option<BillFile>, StoreError> {
    let Some(row) = folder.get_rows::<BillRow>("bills", id)?.unwrap_or_default().pop() else { return Ok(None) };
    let mut bill: BillFile = serde_json::from_str(&row.bill)
        .map_err(|error| StoreError::Damaged { path: format!("bills of {id}").into(), reason: error.to_string() })?;
    bill.charges = folder.get_rows("charges", id)?.unwrap_or_default();
    bill.digests = folder.get_rows::<DigestRow>("digests", id)?.unwrap_or_default().into_iter().map(|row| row.digest).collect();
    Ok(Some(bill))
}
