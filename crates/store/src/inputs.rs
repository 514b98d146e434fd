//! All inputs of a run: found, read on all processors, put together, the same for any order of files.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Mutex, mpsc};

use gpuledger_ingest::focus::{Assume, BillFile};
use gpuledger_ingest::placements::merge_placements;
use gpuledger_ingest::prometheus::{Collected, Counts, Intake, Rejects};
use gpuledger_ingest::{Parsed, inventory, kubernetes, slurm};
use gpuledger_model::tables::placement::Placements;
use gpuledger_model::tables::reject::{Notice, Reject};
use gpuledger_model::tables::telemetry::Telemetry;
use jiff::tz::TimeZone;

use crate::bills::read_bill;
use crate::content;
use crate::discover::{self, Found, FoundFile, InputKind, PathSpec};
use crate::parquet_series::{read_series, row_group_count};
use crate::telemetry::ExpositionReader;

/// What to read, and what to take for granted.
#[derive(Clone, Debug)]
pub struct Request {
    /// Bills. Whatever is found here is taken for what it is, as under the other two.
    pub bills: Vec<PathSpec>,
    /// Telemetry.
    pub telemetry: Vec<PathSpec>,
    /// Placements.
    pub placements: Vec<PathSpec>,
    /// Inventory of nodes and instance ids.
    pub mapping: Option<PathBuf>,
    /// Cluster of placements that name none.
    pub cluster: String,
    /// Currency and account of bills that carry none.
    pub assume: Assume,
    /// Time of samples that carry none, ms.
    pub assumed_time_ms: Option<i64>,
    /// Zone of Slurm's times.
    pub slurm_zone: TimeZone,
    /// Pod label whose value is the run.
    pub run_label: Option<String>,
}

impl Default for Request {
    fn default() -> Request {
        Request {
            bills: Vec::new(),
            telemetry: Vec::new(),
            placements: Vec::new(),
            mapping: None,
            cluster: "default".into(),
            assume: Assume::default(),
            assumed_time_ms: None,
            slurm_zone: TimeZone::UTC,
            run_label: None,
        }
    }
}

/// One input as the report lists it: a file, or a folder of scrapes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InputFile {
    /// As the user named it.
    pub path: String,
    /// What it was found to be.
    pub kind: InputKind,
    /// Rows or samples read; of metrics that feed no field too.
    pub rows: u64,
    /// Rows, cells or samples refused.
    pub rejects: u64,
}

/// All that was read.
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    /// Inputs by path.
    pub files: Vec<InputFile>,
    /// Canonical telemetry.
    pub telemetry: Telemetry,
    /// Placements of all records, joined.
    pub placements: Placements,
    /// Bills; their own rejects and notices are in them.
    pub bills: Vec<BillFile>,
    /// What else was not taken.
    pub rejects: Vec<Reject>,
    /// What a user should know.
    pub notices: Vec<Notice>,
}

/// How far the reading is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Looking for files.
    Finding,
    /// Reading them.
    Reading {
        /// Files done.
        done: usize,
        /// Files in all.
        total: usize,
    },
    /// Putting together what was read.
    Joining,
}

/// Finds the files of a request.
pub fn find(request: &Request) -> Found {
    let mut specs: Vec<PathSpec> = Vec::new();
    specs.extend(request.bills.iter().chain(&request.telemetry).chain(&request.placements).cloned());
    if let Some(path) = &request.mapping {
        let path = path.display().to_string();
        specs.push(PathSpec { path, kind: Some(InputKind::Inventory), cluster: None });
    }
    discover::find(&specs)
}

/// Finds and reads everything.
pub fn read(request: &Request, progress: &mut dyn FnMut(Progress)) -> Inputs {
    progress(Progress::Finding);
    let found = find(request);
    read_found(request, found, progress)
}

/// Reads the files found.
pub fn read_found(request: &Request, mut found: Found, progress: &mut dyn FnMut(Progress)) -> Inputs {
    let mut inputs =
        Inputs { rejects: std::mem::take(&mut found.rejects), notices: std::mem::take(&mut found.notices), ..Inputs::default() };
    let files = without_duplicates(std::mem::take(&mut found.files), &mut inputs);
    let items = items_of(files);
    let (results, collected) = read_items(request, &items, progress);
    progress(Progress::Joining);
    let mut whole = Collected::default();
    collected.into_iter().for_each(|part| whole.merge(part));
    inputs.telemetry = whole.into_telemetry();
    join(request, &items, results, &mut inputs);
    inputs
}

/// Scrapes read as one piece of work.
const SCRAPES_PER_ITEM: usize = 512;
/// Parquet files above this are read in two pieces.
const SPLIT_BYTES: u64 = 8 << 20;

/// A piece of work: a file, a part of one, or some scrapes of a folder.
#[derive(Debug)]
pub(crate) struct Item {
    /// The line of the report that it belongs to.
    pub path: String,
    pub kind: InputKind,
    pub files: Vec<FoundFile>,
    pub groups: Option<std::ops::Range<usize>>,
}

#[derive(Default)]
pub(crate) struct ItemResult {
    pub rows: u64,
    pub refused: u64,
    pub rejects: Vec<Reject>,
    pub notices: Vec<Notice>,
    pub payload: Payload,
}

#[derive(Default)]
pub(crate) enum Payload {
    /// In the worker's intake, or nothing.
    #[default]
    Taken,
    Bill(Box<BillFile>),
    Objects(String, kubernetes::Objects),
    Placements(Placements),
}

/// Files that are byte for byte the same count once. Scrapes may well repeat, at another time.
fn without_duplicates(files: Vec<FoundFile>, inputs: &mut Inputs) -> Vec<FoundFile> {
    let mut same_size: BTreeMap<(InputKind, u64), usize> = BTreeMap::new();
    for file in files.iter().filter(|file| file.kind != InputKind::Prometheus) {
        *same_size.entry((file.kind, file.size)).or_default() += 1;
    }
    let mut seen: BTreeMap<(InputKind, Option<String>, String), String> = BTreeMap::new();
    let mut kept = Vec::with_capacity(files.len());
    for file in files {
        if same_size.get(&(file.kind, file.size)).is_some_and(|count| *count > 1)
            && let Ok(hash) = content::file_sha256(&file.path)
        {
            let key = (file.kind, file.cluster.clone(), hash);
            if let Some(first) = seen.get(&key) {
                inputs.files.push(InputFile { path: file.name(), kind: file.kind, rows: 0, rejects: 0 });
                inputs.notices.push(Notice {
                    kind: "duplicate_file".into(),
                    subject: file.name(),
                    message: format!("is byte for byte the same as {first} and counts once"),
                });
                continue;
            }
            seen.insert(key, file.name());
        }
        kept.push(file);
    }
    kept
}

fn items_of(files: Vec<FoundFile>) -> Vec<Item> {
    let mut items = Vec::new();
    let mut scrapes: BTreeMap<(PathBuf, Option<String>), Vec<FoundFile>> = BTreeMap::new();
    for file in files {
        let path = file.name();
        match file.kind {
            InputKind::Prometheus if file.scrape_name().is_some() => {
                let folder = file.path.parent().map(PathBuf::from).unwrap_or_default();
                scrapes.entry((folder, file.cluster.clone())).or_default().push(file);
            }
            InputKind::Series if file.size > SPLIT_BYTES => {
                let groups = row_group_count(&file.path);
                let half = groups.div_ceil(2);
                for range in [0..half, half..groups] {
                    if !range.is_empty() || groups == 0 {
                        items.push(Item { path: path.clone(), kind: file.kind, files: vec![file.clone()], groups: Some(range) });
                    }
                }
            }
            kind => items.push(Item { path, kind, files: vec![file], groups: None }),
        }
    }
    for ((folder, _), files) in scrapes {
        let path = folder.display().to_string();
        for chunk in files.chunks(SCRAPES_PER_ITEM) {
            items.push(Item { path: path.clone(), kind: InputKind::Prometheus, files: chunk.to_vec(), groups: None });
        }
    }
    items
}

/// Reads the items on all processors. What each thread collected comes in no order: it is summed.
fn read_items(request: &Request, items: &[Item], progress: &mut dyn FnMut(Progress)) -> (Vec<ItemResult>, Vec<Collected>) {
    let total = items.iter().map(|item| item.files.len()).sum();
    let threads = std::thread::available_parallelism().map_or(1, usize::from).clamp(1, 8).min(items.len().max(1));
    let queues = queues_of(items, threads);
    let (done, reports) = mpsc::channel::<(usize, usize, ItemResult)>();
    let mut results: Vec<ItemResult> = items.iter().map(|_| ItemResult::default()).collect();
    let mut collected = Vec::new();
    std::thread::scope(|scope| {
        let mut workers = Vec::new();
        for own in 0..threads {
            let done = done.clone();
            let queues = &queues;
            workers.push(scope.spawn(move || {
                let mut worker = Worker::new(request);
                while let Some(at) = next_item(queues, own) {
                    let Some(item) = items.get(at) else { continue };
                    let result = worker.read(item);
                    if done.send((at, item.files.len(), result)).is_err() {
                        break;
                    }
                }
                worker.finish()
            }));
        }
        drop(done);
        let mut files_done = 0;
        while let Ok((at, files, result)) = reports.recv() {
            files_done += files;
            progress(Progress::Reading { done: files_done, total });
            if let Some(slot) = results.get_mut(at) {
                *slot = result;
            }
        }
        for worker in workers {
            if let Ok(parts) = worker.join() {
                collected.extend(parts);
            }
        }
    });
    (results, collected)
}

/// Items in the order of their paths, in stretches of about equal size: files of one host mostly lie together
/// and in the order of time, so that its series grow in one thread and need no sorting.
fn queues_of(items: &[Item], threads: usize) -> Vec<Mutex<VecDeque<usize>>> {
    let weight = |item: &Item| item.files.iter().map(|file| file.size + 20_000).sum::<u64>() / if item.groups.is_some() { 2 } else { 1 };
    let mut order: Vec<(&str, usize)> = items.iter().enumerate().map(|(at, item)| (item.path.as_str(), at)).collect();
    order.sort_unstable();
    let total: u64 = items.iter().map(weight).sum();
    let mut queues: Vec<VecDeque<usize>> = vec![VecDeque::new(); threads];
    let mut before = 0u64;
    for (_, at) in order {
        let stretch = (u128::from(before) * threads as u128 / u128::from(total.max(1))) as usize;
        if let Some(queue) = queues.get_mut(stretch.min(threads - 1)) {
            queue.push_back(at);
        }
        before += items.get(at).map_or(0, weight);
    }
    queues.into_iter().map(Mutex::new).collect()
}

/// The next of the own stretch, else the last of another.
fn next_item(queues: &[Mutex<VecDeque<usize>>], own: usize) -> Option<usize> {
    let lock = |at: usize| queues.get(at).map(|queue| queue.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
    if let Some(at) = lock(own).and_then(|mut queue| queue.pop_front()) {
        return Some(at);
    }
    (0..queues.len()).find_map(|other| lock(other)?.pop_back())
}

pub(crate) struct Worker<'a> {
    request: &'a Request,
    intakes: BTreeMap<Option<String>, Intake>,
    reader: ExpositionReader,
}

impl<'a> Worker<'a> {
    pub fn new(request: &'a Request) -> Worker<'a> {
        Worker { request, intakes: BTreeMap::new(), reader: ExpositionReader::default() }
    }

    /// What the items read so far collected.
    pub fn finish(self) -> Vec<Collected> {
        self.intakes.into_values().map(Intake::finish).collect()
    }

    pub fn read(&mut self, item: &Item) -> ItemResult {
        // A format library that fails on damaged input costs that input, not the run.
        catch_unwind(AssertUnwindSafe(|| self.try_read(item))).unwrap_or_else(|_| ItemResult {
            refused: 1,
            rejects: vec![whole_file(&item.path, "is damaged and could not be read; get the file again".into())],
            ..ItemResult::default()
        })
    }

    fn try_read(&mut self, item: &Item) -> ItemResult {
        let Some(file) = item.files.first() else { return ItemResult::default() };
        match item.kind {
            InputKind::Prometheus => self.read_expositions(item),
            InputKind::Series => {
                let mut rejects = Rejects::default();
                let intake = intake_of(&mut self.intakes, file);
                let counts = read_series(&file.path, item.groups.clone(), intake, &mut rejects);
                telemetry_result(counts, rejects.into_rows(&item.path))
            }
            InputKind::Focus => {
                let bill = read_bill(&file.path, &item.path, &self.request.assume);
                let refused = bill.rejects.iter().map(|reject| reject.count).sum();
                ItemResult { rows: bill.rows, refused, payload: Payload::Bill(Box::new(bill)), ..ItemResult::default() }
            }
            _ => read_document(self.request, item, file),
        }
    }

    fn read_expositions(&mut self, item: &Item) -> ItemResult {
        let mut counts = Counts::default();
        let mut rows = Vec::new();
        for file in &item.files {
            let mut rejects = Rejects::default();
            let intake = intake_of(&mut self.intakes, file);
            counts.add(self.reader.read(file, self.request.assumed_time_ms, intake, &mut rejects));
            rows.extend(rejects.into_rows(&file.name()));
        }
        telemetry_result(counts, rows)
    }
}

/// Dumps and records, read whole.
fn read_document(request: &Request, item: &Item, file: &FoundFile) -> ItemResult {
    let (bytes, end) = match content::document(&file.path) {
        Ok(document) => document,
        Err(error) => {
            let rejects = vec![whole_file(&item.path, format!("cannot be read ({error})"))];
            return ItemResult { refused: 1, rejects, ..ItemResult::default() };
        }
    };
    let mut result = parse_document(request, &item.path, item.kind, file.cluster.as_deref(), &bytes);
    if let Some(reason) = end {
        result.refused += 1;
        result.rejects.push(whole_file(&item.path, reason));
    }
    result
}

pub(crate) fn parse_document(request: &Request, path: &str, kind: InputKind, cluster: Option<&str>, bytes: &[u8]) -> ItemResult {
    let cluster = cluster.unwrap_or(&request.cluster);
    let zone = &request.slurm_zone;
    match kind {
        InputKind::Kubernetes => placement_result(kubernetes::read(path, bytes), |objects| Payload::Objects(cluster.to_string(), objects)),
        InputKind::Sacct => placement_result(slurm::parse_sacct(path, bytes, cluster, zone), Payload::Placements),
        InputKind::ScontrolJob | InputKind::ScontrolNode => {
            placement_result(slurm::parse_scontrol(path, bytes, cluster, zone), Payload::Placements)
        }
        InputKind::Inventory => {
            placement_result(inventory::parse(path, bytes), |nodes| Payload::Placements(Placements { nodes, ..Placements::default() }))
        }
        InputKind::Focus | InputKind::Prometheus | InputKind::Series | InputKind::Unknown => ItemResult::default(),
    }
}

fn intake_of<'a>(intakes: &'a mut BTreeMap<Option<String>, Intake>, file: &FoundFile) -> &'a mut Intake {
    intakes.entry(file.cluster.clone()).or_insert_with(|| Intake::in_cluster(file.cluster.as_deref()))
}

fn telemetry_result(counts: Counts, rejects: Vec<Reject>) -> ItemResult {
    let refused = rejects.iter().map(|reject| reject.count).sum();
    // Every sample that was read, those of metrics that feed no field among them.
    ItemResult { rows: counts.samples - counts.rejected, refused, rejects, ..ItemResult::default() }
}

fn placement_result<T>(parsed: Parsed<T>, payload: impl FnOnce(T) -> Payload) -> ItemResult {
    ItemResult {
        rows: parsed.rows,
        refused: parsed.rejects.iter().map(|reject| reject.count).sum(),
        rejects: parsed.rejects,
        notices: parsed.notices,
        payload: payload(parsed.value),
    }
}

pub(crate) fn whole_file(path: &str, reason: String) -> Reject {
    Reject { file: path.to_string(), line: 0, field: String::new(), reason, count: 1 }
}

/// Puts results together: a line per input, rejects and notices, bills, and placements of all records.
pub(crate) fn join(request: &Request, items: &[Item], results: Vec<ItemResult>, inputs: &mut Inputs) {
    let mut lines: BTreeMap<(String, InputKind), (u64, u64)> = BTreeMap::new();
    let mut rejects: BTreeMap<(String, String, String), Reject> = BTreeMap::new();
    let mut dumps: BTreeMap<String, (BTreeSet<String>, kubernetes::Objects)> = BTreeMap::new();
    let mut placements = Vec::new();
    for (item, result) in items.iter().zip(results) {
        let line = lines.entry((item.path.clone(), item.kind)).or_default();
        line.0 += result.rows;
        line.1 += result.refused;
        for reject in result.rejects {
            // The scrapes of a folder are one input: the first file is named, the count is of all.
            let key = (item.path.clone(), reject.field.clone(), reject.reason.clone());
            let is_scrapes = item.kind == InputKind::Prometheus;
            match rejects.get_mut(&key) {
                Some(own) if is_scrapes => {
                    own.count += reject.count;
                    if (&reject.file, reject.line) < (&own.file, own.line) {
                        (own.file, own.line) = (reject.file, reject.line);
                    }
                }
                Some(_) => inputs.rejects.push(reject),
                None => {
                    rejects.insert(key, reject);
                }
            }
        }
        inputs.notices.extend(result.notices);
        match result.payload {
            Payload::Taken => {}
            Payload::Bill(bill) => inputs.bills.push(*bill),
            Payload::Objects(cluster, objects) => {
                let dump = dumps.entry(cluster).or_default();
                dump.0.insert(item.path.clone());
                dump.1.extend(objects);
            }
            Payload::Placements(part) => placements.push(part),
        }
    }
    let options = kubernetes::Options { run_label: request.run_label.clone(), ..kubernetes::Options::default() };
    for (cluster, (files, objects)) in dumps {
        let subject = match (files.first(), files.len()) {
            (Some(file), 1) => file.clone(),
            _ => format!("dumps of cluster {cluster}"),
        };
        let joined = kubernetes::resolve(&subject, &objects, &cluster, &options);
        placements.push(joined.value);
        inputs.rejects.extend(joined.rejects);
        inputs.notices.extend(joined.notices);
    }
    inputs.placements = merge_placements(placements);
    inputs.files.extend(lines.into_iter().map(|((path, kind), (rows, rejects))| InputFile { path, kind, rows, rejects }));
    inputs.rejects.extend(rejects.into_values());
    inputs.files.sort();
    inputs.rejects.sort();
    inputs.rejects.dedup();
    inputs.notices.sort();
    inputs.notices.dedup();
}
