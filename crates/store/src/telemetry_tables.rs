//! Collected telemetry as tables, and back.
//!
//! | table | rows |
//! |---|---|
//! | `series` | one per series: id, host, unit, field, producer |
//! | `samples` | series id, time (ms), value (steps of the field's unit) |
//! | `sightings`, `labels`, `scrapes` | what rows said of devices, holders and producers |
//! | `signals`, `targets`, `exporters` | parts of host and holder signals; scraped targets; exporters' own pods |

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, UInt32Type};
use arrow_array::{ArrayRef, Int64Array, RecordBatch, UInt32Array};
use arrow_schema::{DataType, Field as ArrowField, Schema};
use gpuledger_ingest::prometheus::{Collected, SignalPartKey, TargetScrapes};
use gpuledger_model::tables::telemetry::{Column, Field, HolderLabel, Host, SeriesKey, SightingKey, Unit};
use serde::{Deserialize, Serialize};

use crate::folder::{Batch, Folder, StoreError};

#[derive(Serialize, Deserialize)]
struct SeriesRow {
    id: u32,
    cluster: Option<String>,
    host: String,
    uuid: String,
    instance: Option<String>,
    field: String,
    producer: String,
    is_secondary: bool,
}

#[derive(Serialize, Deserialize)]
struct SightingRow {
    cluster: Option<String>,
    host: String,
    uuid: String,
    instance: Option<String>,
    hour_ms: i64,
    index: Option<u32>,
    model: Option<String>,
    profile: Option<String>,
    first_ms: i64,
    last_ms: i64,
}

#[derive(Serialize, Deserialize)]
struct LabelRow {
    cluster: Option<String>,
    host: String,
    uuid: String,
    instance: Option<String>,
    namespace: Option<String>,
    pod: Option<String>,
    job: Option<String>,
    times_ms: Vec<i64>,
}

#[derive(Serialize, Deserialize)]
struct ScrapeRow {
    cluster: Option<String>,
    host: String,
    producer: String,
    times_ms: Vec<i64>,
}

/// Nested keys as JSON: their shapes differ by what they speak of.
#[derive(Serialize, Deserialize)]
struct SignalRow {
    key: String,
    times_ms: Vec<i64>,
    values: Vec<i64>,
}

#[derive(Serialize, Deserialize)]
struct TargetRow {
    cluster: Option<String>,
    target: String,
    scrapes: String,
}

#[derive(Serialize, Deserialize)]
struct ExporterRow {
    namespace: String,
    pod: String,
}

/// Samples per record batch.
const BATCH_ROWS: usize = 1 << 20;

/// Adds the tables of collected telemetry to a batch.
pub fn add_tables(collected: &Collected, batch: &mut Batch) -> Result<(), StoreError> {
    let telemetry = &collected.telemetry;
    let mut series = Vec::new();
    let mut samples = Samples::default();
    let both = telemetry.series.iter().map(|pair| (pair, false)).chain(telemetry.vgpu_series.iter().map(|pair| (pair, true)));
    for ((key, column), is_secondary) in both {
        let id = u32::try_from(series.len()).unwrap_or(u32::MAX);
        samples.push(id, column);
        series.push(SeriesRow {
            id,
            cluster: key.host.cluster.clone(),
            host: key.host.name.clone(),
            uuid: key.unit.uuid.clone(),
            instance: key.unit.instance.clone(),
            field: key.field.as_str().to_string(),
            producer: key.producer.clone(),
            is_secondary,
        });
    }
    batch.add_rows("series", &series)?;
    batch.add("samples", samples.into_batches()?);
    let sightings: Vec<SightingRow> = telemetry
        .sightings
        .iter()
        .map(|(key, span)| SightingRow {
            cluster: key.host.cluster.clone(),
            host: key.host.name.clone(),
            uuid: key.unit.uuid.clone(),
            instance: key.unit.instance.clone(),
            hour_ms: key.hour_ms,
            index: key.index,
            model: key.model.clone(),
            profile: key.profile.clone(),
            first_ms: span.0,
            last_ms: span.1,
        })
        .collect();
    batch.add_rows("sightings", &sightings)?;
    let labels: Vec<LabelRow> = telemetry
        .holder_labels
        .iter()
        .map(|((host, unit, label), times)| {
            let (namespace, pod, job) = match label {
                HolderLabel::Pod { namespace, pod } => (Some(namespace.clone()), Some(pod.clone()), None),
                HolderLabel::Job(job) => (None, None, Some(job.clone())),
            };
            LabelRow {
                cluster: host.cluster.clone(),
                host: host.name.clone(),
                uuid: unit.uuid.clone(),
                instance: unit.instance.clone(),
                namespace,
                pod,
                job,
                times_ms: times.clone(),
            }
        })
        .collect();
    batch.add_rows("labels", &labels)?;
    let scrapes: Vec<ScrapeRow> = telemetry
        .scrapes
        .iter()
        .map(|((host, producer), times)| ScrapeRow {
            cluster: host.cluster.clone(),
            host: host.name.clone(),
            producer: producer.clone(),
            times_ms: times.clone(),
        })
        .collect();
    batch.add_rows("scrapes", &scrapes)?;
    let mut signals = Vec::new();
    for (key, column) in &collected.signal_parts {
        signals.push(SignalRow { key: json("signals", key)?, times_ms: column.times_ms.clone(), values: column.values.clone() });
    }
    batch.add_rows("signals", &signals)?;
    let mut targets = Vec::new();
    for (host, scrapes) in &collected.targets {
        targets.push(TargetRow { cluster: host.cluster.clone(), target: host.name.clone(), scrapes: json("targets", scrapes)? });
    }
    batch.add_rows("targets", &targets)?;
    let exporters: Vec<ExporterRow> =
        collected.exporter_pods.iter().map(|(namespace, pod)| ExporterRow { namespace: namespace.clone(), pod: pod.clone() }).collect();
    batch.add_rows("exporters", &exporters)
}

/// Reads the tables of a batch.
pub fn read_tables(folder: &Folder, id: &str) -> Result<Collected, StoreError> {
    let damaged = |what: &str| StoreError::Damaged { path: format!("{what} of {id}").into(), reason: "a value is not readable".into() };
    let mut collected = Collected::default();
    let telemetry = &mut collected.telemetry;
    let rows: Vec<SeriesRow> = folder.get_rows("series", id)?.unwrap_or_default();
    let mut columns: Vec<Column> = rows.iter().map(|_| Column::default()).collect();
    for batch in folder.get_table("samples", id)?.unwrap_or_default() {
        let ids = batch.column_by_name("series").and_then(|c| c.as_primitive_opt::<UInt32Type>());
        let times = batch.column_by_name("time_ms").and_then(|c| c.as_primitive_opt::<Int64Type>());
        let values = batch.column_by_name("value").and_then(|c| c.as_primitive_opt::<Int64Type>());
        let (Some(ids), Some(times), Some(values)) = (ids, times, values) else { return Err(damaged("samples")) };
        let mut at = 0;
        // Samples of a series lie together.
        for run in ids.values().chunk_by(|a, b| a == b) {
            let end = at + run.len();
            let place = run.first().and_then(|id| columns.get_mut(*id as usize)).ok_or_else(|| damaged("samples"))?;
            place.times_ms.extend_from_slice(times.values().get(at..end).unwrap_or_default());
            place.values.extend_from_slice(values.values().get(at..end).unwrap_or_default());
            at = end;
        }
    }
    for (row, column) in rows.into_iter().zip(columns) {
        let key = SeriesKey {
            host: Host { cluster: row.cluster, name: row.host },
            unit: Unit { uuid: row.uuid, instance: row.instance },
            field: Field::from_name(&row.field).ok_or_else(|| damaged("series"))?,
            producer: row.producer,
        };
        let into = if row.is_secondary { &mut telemetry.vgpu_series } else { &mut telemetry.series };
        into.insert(key, column);
    }
    for row in folder.get_rows::<SightingRow>("sightings", id)?.unwrap_or_default() {
        let key = SightingKey {
            host: Host { cluster: row.cluster, name: row.host },
            unit: Unit { uuid: row.uuid, instance: row.instance },
            hour_ms: row.hour_ms,
            index: row.index,
            model: row.model,
            profile: row.profile,
        };
        telemetry.sightings.insert(key, (row.first_ms, row.last_ms));
    }
    for row in folder.get_rows::<LabelRow>("labels", id)?.unwrap_or_default() {
        let label = match (row.namespace, row.pod, row.job) {
            (Some(namespace), Some(pod), _) => HolderLabel::Pod { namespace, pod },
            (_, _, Some(job)) => HolderLabel::Job(job),
            _ => return Err(damaged("labels")),
        };
        let key = (Host { cluster: row.cluster, name: row.host }, Unit { uuid: row.uuid, instance: row.instance }, label);
        telemetry.holder_labels.insert(key, row.times_ms);
    }
    for row in folder.get_rows::<ScrapeRow>("scrapes", id)?.unwrap_or_default() {
        telemetry.scrapes.insert((Host { cluster: row.cluster, name: row.host }, row.producer), row.times_ms);
    }
    for row in folder.get_rows::<SignalRow>("signals", id)?.unwrap_or_default() {
        let key: SignalPartKey = serde_json::from_str(&row.key).map_err(|_| damaged("signals"))?;
        collected.signal_parts.insert(key, Column { times_ms: row.times_ms, values: row.values });
    }
    for row in folder.get_rows::<TargetRow>("targets", id)?.unwrap_or_default() {
        let scrapes: TargetScrapes = serde_json::from_str(&row.scrapes).map_err(|_| damaged("targets"))?;
        collected.targets.insert(Host { cluster: row.cluster, name: row.target }, scrapes);
    }
    for row in folder.get_rows::<ExporterRow>("exporters", id)?.unwrap_or_default() {
        collected.exporter_pods.insert((row.namespace, row.pod));
    }
    Ok(collected)
}

fn json<T: Serialize>(table: &str, value: &T) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|error| StoreError::Damaged { path: table.into(), reason: error.to_string() })
}

#[derive(Default)]
struct Samples {
    full: Vec<(Vec<u32>, Vec<i64>, Vec<i64>)>,
    series: Vec<u32>,
    times_ms: Vec<i64>,
    values: Vec<i64>,
}

impl Samples {
    fn push(&mut self, id: u32, column: &Column) {
        self.series.extend(std::iter::repeat_n(id, column.times_ms.len()));
        self.times_ms.extend(&column.times_ms);
        self.values.extend(&column.values);
        if self.series.len() >= BATCH_ROWS {
            self.full.push((std::mem::take(&mut self.series), std::mem::take(&mut self.times_ms), std::mem::take(&mut self.values)));
        }
    }

    fn into_batches(mut self) -> Result<Vec<RecordBatch>, StoreError> {
        self.full.push((self.series, self.times_ms, self.values));
        let schema = Arc::new(Schema::new(vec![
            ArrowField::new("series", DataType::UInt32, false),
            ArrowField::new("time_ms", DataType::Int64, false),
            ArrowField::new("value", DataType::Int64, false),
        ]));
        self.full
            .into_iter()
            .map(|(series, times, values)| {
                let columns: Vec<ArrayRef> =
                    vec![Arc::new(UInt32Array::from(series)), Arc::new(Int64Array::from(times)), Arc::new(Int64Array::from(values))];
                RecordBatch::try_new(schema.clone(), columns)
                    .map_err(|error| StoreError::Damaged { path: "samples".into(), reason: error.to_string() })
            })
            .collect()
    }
}
