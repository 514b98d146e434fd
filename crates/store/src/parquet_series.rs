//! Time series in Parquet, under Prometheus' names and labels.
//!
//! Two layouts are read, with the same mapping as text:
//! - **long**: a name column (`__name__`, `name` or `metric`), a time column, a `value` column (float, integer
//!   or decimal) and labels: one column each, or one `labels` column (a map, or a JSON object as text);
//! - **wide**: a time column, one text column per label, and one numeric column per metric, called as the
//!   metric is (`DCGM_FI_PROF_SM_ACTIVE`); a null cell is an absent sample.
//!
//! The time column is `timestamp`, `time`, `timestamp_ms` or `ts`: a timestamp of any unit (UTC), or an
//! integer of seconds, milliseconds, microseconds or nanoseconds, told apart by size. Text columns are best
//! written as dictionaries. A series without `job` and `instance` labels has the producer [`TARGET`].

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, Float64Array, MapArray, RecordBatch};
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use gpuledger_ingest::prometheus::labels::Labels;
use gpuledger_ingest::prometheus::names::{MetricId, NameTable};
use gpuledger_ingest::prometheus::number::{Exact, Number};
use gpuledger_ingest::prometheus::{Counts, Intake, LabelSetId, Reason, Rejects};
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder};

/// The target of series that no scrape configuration named.
pub const TARGET: &str = "series";

const NAME_COLUMNS: [&str; 4] = ["__name__", "name", "metric", "metric_name"];
const TIME_COLUMNS: [&str; 4] = ["timestamp", "time", "timestamp_ms", "ts"];
const VALUE_COLUMN: &str = "value";
const LABELS_COLUMN: &str = "labels";
const BATCH_ROWS: usize = 8_192;
/// Prometheus' stale marker: the series ends here.
const STALE_BITS: u64 = 0x7ff0_0000_0000_0002;

/// The top-level columns of a Parquet file.
pub fn column_names(path: &Path) -> Result<Vec<String>, String> {
    let file = File::open(path).map_err(|error| format!("cannot be read ({error})"))?;
    let metadata = load(&file, ArrowReaderOptions::new())?;
    Ok(metadata.schema().fields().iter().map(|field| field.name().clone()).collect())
}

/// Whether a Parquet file has one of the layouts.
pub fn is_series(path: &Path) -> bool {
    let Ok(file) = File::open(path) else { return false };
    load(&file, ArrowReaderOptions::new()).is_ok_and(|metadata| Layout::of(metadata.schema()).is_ok())
}

/// Row groups of a file.
pub fn row_group_count(path: &Path) -> usize {
    let Ok(file) = File::open(path) else { return 0 };
    load(&file, ArrowReaderOptions::new()).map_or(0, |metadata| metadata.metadata().num_row_groups())
}

/// Reads a range of row groups, all of them for `None`. What comes before damage stays.
pub fn read_series(path: &Path, groups: Option<std::ops::Range<usize>>, intake: &mut Intake, rejects: &mut Rejects) -> Counts {
    let mut counts = Counts::default();
    if let Err(reason) = try_read(path, groups, intake, rejects, &mut counts) {
        rejects.add_text(0, "", &reason);
    }
    counts
}

fn load(file: &File, options: ArrowReaderOptions) -> Result<ArrowReaderMetadata, String> {
    // The crate trusts some lengths in a footer; damage there must not take the run down.
    std::panic::catch_unwind(|| ArrowReaderMetadata::load(file, options))
        .map_err(|_| "is damaged Parquet; get the file again".to_string())?
        .map_err(|error| format!("is damaged Parquet ({error}); get the file again"))
}

fn try_read(
    path: &Path,
    groups: Option<std::ops::Range<usize>>,
    intake: &mut Intake,
    rejects: &mut Rejects,
    counts: &mut Counts,
) -> Result<(), String> {
    let file = File::open(path).map_err(|error| format!("cannot be read ({error})"))?;
    let plain = load(&file, ArrowReaderOptions::new())?;
    // Texts come as dictionaries, so that a label costs a key per row and not a string.
    let metadata = load(&file, ArrowReaderOptions::new().with_schema(with_dictionaries(plain.schema()))).unwrap_or(plain);
    let layout = Layout::of(metadata.schema())?;
    let total = metadata.metadata().num_row_groups();
    let groups: Vec<usize> = groups.map_or_else(|| (0..total).collect(), |range| range.filter(|g| *g < total).collect());
    let rows_before: i64 = metadata.metadata().row_groups().iter().take(groups.first().copied().unwrap_or(0)).map(|g| g.num_rows()).sum();
    let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata)
        .with_batch_size(BATCH_ROWS)
        .with_row_groups(groups)
        .build()
        .map_err(|error| format!("is damaged Parquet ({error}); get the file again"))?;
    let mut rows = Rows {
        intake,
        rejects,
        counts,
        row: u64::try_from(rows_before).unwrap_or(0),
        codes: HashMap::new(),
        sets: HashMap::new(),
        metrics: HashMap::new(),
    };
    for batch in reader {
        let batch = batch.map_err(|error| format!("ends early ({error}); what came before was read, get the file again for the rest"))?;
        rows.take(&layout, &batch)?;
    }
    Ok(())
}

fn with_dictionaries(schema: &Schema) -> Arc<Schema> {
    let fields: Vec<Field> = schema
        .fields()
        .iter()
        .map(|field| match field.data_type() {
            DataType::Utf8 => {
                let dictionary = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
                Field::new(field.name(), dictionary, field.is_nullable())
            }
            _ => field.as_ref().clone(),
        })
        .collect();
    Arc::new(Schema::new(fields))
}

/// Which column is what.
struct Layout {
    time: usize,
    /// Long: the columns of name and value.
    long: Option<(usize, usize)>,
    /// Wide: metric columns that are mapped.
    metrics: Vec<(usize, MetricId)>,
    /// Wide: numeric columns that feed nothing.
    unmapped: Vec<usize>,
    /// Label columns.
    labels: Vec<usize>,
    /// A map or JSON object of labels.
    label_map: Option<usize>,
}

impl Layout {
    fn of(schema: &Schema) -> Result<Layout, String> {
        let column = |name: &str| schema.fields().iter().position(|f| f.name() == name);
        let type_of = |at: usize| schema.fields().get(at).map(|f| f.data_type());
        let time = TIME_COLUMNS
            .iter()
            .filter_map(|name| column(name))
            .find(|at| type_of(*at).is_some_and(is_time))
            .ok_or("has no time column (timestamp, time or timestamp_ms)")?;
        let name = NAME_COLUMNS.iter().filter_map(|name| column(name)).find(|at| type_of(*at).is_some_and(is_text));
        let value = column(VALUE_COLUMN).filter(|at| type_of(*at).is_some_and(is_number));
        let long = name.zip(value);
        let label_map = column(LABELS_COLUMN).filter(|at| type_of(*at).is_some_and(|t| is_text(t) || matches!(t, DataType::Map(_, _))));
        let mut layout = Layout { time, long, metrics: Vec::new(), unmapped: Vec::new(), labels: Vec::new(), label_map };
        for (at, field) in schema.fields().iter().enumerate() {
            if at == time || Some(at) == label_map || long.is_some_and(|(name, value)| at == name || at == value) {
                continue;
            }
            let is_label_number = matches!(field.name().as_str(), "gpu" | "GPU_I_ID" | "vgpu" | "cpu" | "engine" | "hpc_job");
            if is_text(field.data_type()) || (is_number(field.data_type()) && is_label_number) {
                layout.labels.push(at);
            } else if long.is_none() && is_number(field.data_type()) {
                match NameTable::get().lookup(field.name()) {
                    Some(metric) => layout.metrics.push((at, metric)),
                    None => layout.unmapped.push(at),
                }
            }
        }
        if layout.long.is_none() && layout.metrics.is_empty() {
            return Err("has neither name and value columns nor a column called as a metric that is mapped".into());
        }
        Ok(layout)
    }
}

fn is_text(kind: &DataType) -> bool {
    match kind {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => true,
        DataType::Dictionary(_, value) => matches!(value.as_ref(), DataType::Utf8 | DataType::LargeUtf8),
        _ => false,
    }
}

fn is_number(kind: &DataType) -> bool {
    kind.is_integer() || matches!(kind, DataType::Float32 | DataType::Float64 | DataType::Decimal128(_, _))
}

fn is_time(kind: &DataType) -> bool {
    matches!(kind, DataType::Timestamp(_, _) | DataType::Int64 | DataType::UInt64 | DataType::Float64)
}

struct Rows<'a> {
    intake: &'a mut Intake,
    rejects: &'a mut Rejects,
    counts: &'a mut Counts,
    /// Rows before this batch.
    row: u64,
    /// Per label column: its texts and their codes, from 1; 0 is absent.
    codes: HashMap<usize, Codes>,
    sets: HashMap<Box<[u32]>, LabelSetId>,
    /// Long: the metric of a name's code; `None` if it feeds nothing.
    metrics: HashMap<u32, Option<MetricId>>,
}

#[derive(Default)]
struct Codes {
    by_text: HashMap<Box<str>, u32>,
    texts: Vec<Box<str>>,
}

impl Codes {
    fn code(&mut self, text: &str) -> u32 {
        if let Some(code) = self.by_text.get(text) {
            return *code;
        }
        self.texts.push(text.into());
        let code = u32::try_from(self.texts.len()).unwrap_or(u32::MAX);
        self.by_text.insert(text.into(), code);
        code
    }

    fn text(&self, code: u32) -> Option<&str> {
        self.texts.get(usize::try_from(code).ok()?.checked_sub(1)?).map(|text| text.as_ref())
    }
}

impl Rows<'_> {
    fn take(&mut self, layout: &Layout, batch: &RecordBatch) -> Result<(), String> {
        let times = times_ms(batch.column(layout.time))?;
        let mut columns: Vec<(usize, Vec<u32>)> = Vec::new();
        for at in layout.labels.iter().chain(&layout.label_map) {
            columns.push((*at, self.codes_of(*at, batch.column(*at))));
        }
        let sets = self.label_sets(layout, batch, &columns);
        match layout.long {
            Some((name, value)) => {
                let names = self.codes_of(name, batch.column(name));
                self.take_long(name, &names, &times, &sets, batch.column(value));
            }
            None => {
                let columns: Vec<(MetricId, &ArrayRef, Option<&Float64Array>)> = layout
                    .metrics
                    .iter()
                    .map(|(at, metric)| (*metric, batch.column(*at)))
                    .map(|(metric, column)| (metric, column, column.as_primitive_opt::<Float64Type>()))
                    .collect();
                self.take_wide(&columns, &times, &sets);
                for at in &layout.unmapped {
                    let column = batch.column(*at);
                    let present = (column.len() - column.null_count()) as u64;
                    self.counts.samples += present;
                    self.counts.unmapped += present;
                }
            }
        }
        self.row += batch.num_rows() as u64;
        Ok(())
    }

    fn codes_of(&mut self, at: usize, column: &ArrayRef) -> Vec<u32> {
        let codes = self.codes.entry(at).or_default();
        match column.data_type() {
            DataType::Dictionary(_, _) => {
                let Some(dictionary) = column.as_any_dictionary_opt() else { return vec![0; column.len()] };
                let values = plain_codes(codes, dictionary.values());
                let keys = dictionary.normalized_keys();
                (0..column.len())
                    .map(|row| match column.is_null(row) {
                        true => 0,
                        false => keys.get(row).and_then(|key| values.get(*key)).copied().unwrap_or(0),
                    })
                    .collect()
            }
            _ => plain_codes(codes, column),
        }
    }

    /// The label set of each row.
    fn label_sets(&mut self, layout: &Layout, batch: &RecordBatch, columns: &[(usize, Vec<u32>)]) -> Vec<LabelSetId> {
        let schema = batch.schema();
        let mut sets = Vec::with_capacity(batch.num_rows());
        let mut tuple: Vec<u32> = Vec::with_capacity(columns.len());
        let mut last: Option<(Vec<u32>, LabelSetId)> = None;
        for row in 0..batch.num_rows() {
            tuple.clear();
            tuple.extend(columns.iter().map(|(_, codes)| codes.get(row).copied().unwrap_or(0)));
            if let Some((known, set)) = &last
                && *known == tuple
            {
                sets.push(*set);
                continue;
            }
            let set = match self.sets.get(tuple.as_slice()) {
                Some(set) => *set,
                None => {
                    let mut pairs: Vec<(String, String)> = Vec::new();
                    for ((at, _), code) in columns.iter().zip(&tuple) {
                        let Some(text) = self.codes.get(at).and_then(|codes| codes.text(*code)) else { continue };
                        if Some(*at) == layout.label_map {
                            pairs.extend(pairs_of_object(text));
                        } else if let Some(field) = schema.fields().get(*at) {
                            pairs.push((field.name().clone(), text.to_string()));
                        }
                    }
                    let labels = Labels::new(pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())));
                    let set = self.intake.add_labels(TARGET, labels);
                    self.sets.insert(tuple.as_slice().into(), set);
                    set
                }
            };
            sets.push(set);
            last = Some((tuple.clone(), set));
        }
        sets
    }

    /// Row by row, so that what a row says of its device is noted once.
    fn take_wide(&mut self, columns: &[(MetricId, &ArrayRef, Option<&Float64Array>)], times: &[Option<i64>], sets: &[LabelSetId]) {
        for (row, (set, time)) in sets.iter().zip(times).enumerate() {
            for (metric, column, floats) in columns {
                match floats {
                    Some(floats) if floats.is_valid(row) => self.take_float(*metric, row, *set, *time, floats.value(row)),
                    Some(_) => {}
                    None => match cell(column, row) {
                        None => {}
                        Some(Cell::Float(value)) => self.take_float(*metric, row, *set, *time, value),
                        Some(Cell::Exact(number)) => self.take_exact(*metric, row, *set, *time, &number),
                    },
                }
            }
        }
    }

    fn take_long(&mut self, name: usize, names: &[u32], times: &[Option<i64>], sets: &[LabelSetId], column: &ArrayRef) {
        for (row, (((code, set), time), cell)) in
            names.iter().zip(sets).zip(times).zip((0..column.len()).map(|row| cell(column, row))).enumerate()
        {
            let Some(cell) = cell else { continue };
            let metric = *self.metrics.entry(*code).or_insert_with(|| {
                self.codes.get(&name).and_then(|codes| codes.text(*code)).and_then(|text| NameTable::get().lookup(text))
            });
            match (metric, cell) {
                (None, _) => {
                    self.counts.samples += 1;
                    self.counts.unmapped += 1;
                }
                (Some(metric), Cell::Float(value)) => self.take_float(metric, row, *set, *time, value),
                (Some(metric), Cell::Exact(number)) => self.take_exact(metric, row, *set, *time, &number),
            }
        }
    }

    fn take_float(&mut self, metric: MetricId, row: usize, set: LabelSetId, time: Option<i64>, value: f64) {
        if value.to_bits() == STALE_BITS {
            self.counts.samples += 1;
            self.counts.stale += 1;
            return;
        }
        let taken = match time {
            Some(time_ms) => self.intake.sample_float(set, metric, time_ms, value),
            None => Err(Reason::NoTimestamp),
        };
        self.count(metric, row, taken);
    }

    fn take_exact(&mut self, metric: MetricId, row: usize, set: LabelSetId, time: Option<i64>, number: &Number) {
        let taken = match time {
            Some(time_ms) => self.intake.sample(set, metric, time_ms, number),
            None => Err(Reason::NoTimestamp),
        };
        self.count(metric, row, taken);
    }

    fn count(&mut self, metric: MetricId, row: usize, taken: Result<bool, Reason>) {
        self.counts.samples += 1;
        match taken {
            Ok(true) => self.counts.accepted += 1,
            Ok(false) => self.counts.unmapped += 1,
            Err(reason) => {
                self.counts.rejected += 1;
                self.rejects.add(self.row + row as u64 + 1, NameTable::get().name(metric), reason);
            }
        }
    }
}

fn plain_codes(codes: &mut Codes, column: &ArrayRef) -> Vec<u32> {
    let length = column.len();
    let mut out = Vec::with_capacity(length);
    let mut last: Option<(String, u32)> = None;
    let mut code = |text: &str| match &last {
        Some((known, code)) if known == text => *code,
        _ => {
            let code = codes.code(text);
            last = Some((text.to_string(), code));
            code
        }
    };
    macro_rules! texts {
        ($array:expr) => {
            for row in 0..length {
                out.push(if $array.is_null(row) { 0 } else { code($array.value(row)) });
            }
        };
    }
    if let Some(array) = column.as_string_opt::<i32>() {
        texts!(array);
    } else if let Some(array) = column.as_string_opt::<i64>() {
        texts!(array);
    } else if let Some(array) = column.as_string_view_opt() {
        texts!(array);
    } else if let Some(map) = column.as_map_opt() {
        for row in 0..length {
            out.push(if map.is_null(row) { 0 } else { code(&object_of_map(map, row)) });
        }
    } else {
        for row in 0..length {
            out.push(match cell(column, row) {
                Some(Cell::Exact(Number::Finite(number))) => match number.as_integer() {
                    Some(whole) if !number.is_negative => code(&whole.to_string()),
                    _ => 0,
                },
                Some(Cell::Float(value)) if value.fract() == 0.0 => code(&format!("{value}")),
                _ => 0,
            });
        }
    }
    out
}

/// A map of labels as a JSON object.
fn object_of_map(map: &MapArray, row: usize) -> String {
    let entries = map.value(row);
    let mut object = serde_json::Map::new();
    if let (Some(names), Some(values)) = (entries.column(0).as_string_opt::<i32>(), entries.column(1).as_string_opt::<i32>()) {
        for at in 0..entries.len() {
            if names.is_valid(at) && values.is_valid(at) {
                object.insert(names.value(at).to_string(), values.value(at).into());
            }
        }
    }
    serde_json::Value::Object(object).to_string()
}

fn pairs_of_object(text: &str) -> Vec<(String, String)> {
    match serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(text) {
        Ok(object) => object
            .into_iter()
            .filter_map(|(name, value)| match value {
                serde_json::Value::String(text) => Some((name, text)),
                serde_json::Value::Number(number) => Some((name, number.to_string())),
                _ => None,
            })
            .collect(),
        Err(_) => Vec::new(),
    }
}

enum Cell {
    Float(f64),
    Exact(Number),
}

fn cell(column: &ArrayRef, row: usize) -> Option<Cell> {
    if column.is_null(row) {
        return None;
    }
    macro_rules! whole {
        ($($type:ty),*) => {
            $(if let Some(array) = column.as_primitive_opt::<$type>() {
                return Some(Cell::Exact(Number::Finite(Exact::from_i64(i64::from(array.value(row))))));
            })*
        };
    }
    if let Some(array) = column.as_primitive_opt::<Float64Type>() {
        return Some(Cell::Float(array.value(row)));
    }
    if let Some(array) = column.as_primitive_opt::<Float32Type>() {
        // Its own shortest text, so that 0.1 stays 0.1.
        return Number::parse(format!("{:e}", array.value(row)).as_bytes()).map(Cell::Exact);
    }
    whole!(Int64Type, Int32Type, Int16Type, Int8Type, UInt32Type, UInt16Type, UInt8Type);
    if let Some(array) = column.as_primitive_opt::<UInt64Type>() {
        return Number::parse(array.value(row).to_string().as_bytes()).map(Cell::Exact);
    }
    if let Some(array) = column.as_primitive_opt::<Decimal128Type>() {
        let value = array.value(row);
        let exponent = -i32::from(array.scale());
        return Some(Cell::Exact(Number::Finite(Exact { is_negative: value < 0, mantissa: value.unsigned_abs(), exponent })));
    }
    None
}

fn times_ms(column: &ArrayRef) -> Result<Vec<Option<i64>>, String> {
    macro_rules! times {
        ($type:ty, $to_ms:expr) => {
            column.as_primitive_opt::<$type>().map(|array| array.iter().map(|time| time.and_then($to_ms)).collect())
        };
    }
    let times: Option<Vec<Option<i64>>> = match column.data_type() {
        DataType::Timestamp(TimeUnit::Second, _) => times!(TimestampSecondType, |t: i64| t.checked_mul(1_000)),
        DataType::Timestamp(TimeUnit::Millisecond, _) => times!(TimestampMillisecondType, Some),
        DataType::Timestamp(TimeUnit::Microsecond, _) => times!(TimestampMicrosecondType, |t: i64| Some(t.div_euclid(1_000))),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => times!(TimestampNanosecondType, |t: i64| Some(t.div_euclid(1_000_000))),
        DataType::Int64 => times!(Int64Type, |t: i64| whole_time_ms(i128::from(t))),
        DataType::UInt64 => times!(UInt64Type, |t: u64| whole_time_ms(i128::from(t))),
        DataType::Float64 => times!(Float64Type, |t: f64| match Number::from_f64(t) {
            Number::Finite(number) => number.times_power_of_ten(if t.abs() < 1e11 { 3 } else { 0 }),
            _ => None,
        }),
        _ => None,
    };
    let mut times = times.ok_or("time column has a type that is not read")?;
    // Outside the years 1 to 9999 it is no time.
    times.iter_mut().for_each(|time| *time = time.filter(|t| t.abs() <= 253_402_300_800_000));
    Ok(times)
}

/// Seconds, milliseconds, microseconds or nanoseconds by size: all of them past 1973 and before 5138.
fn whole_time_ms(time: i128) -> Option<i64> {
    let ms = match time.unsigned_abs() {
        0..100_000_000_000 => time * 1_000,
        100_000_000_000..100_000_000_000_000 => time,
        100_000_000_000_000..100_000_000_000_000_000 => time.div_euclid(1_000),
        _ => time.div_euclid(1_000_000),
    };
    i64::try_from(ms).ok()
}
