//! Wide Parquet tables of series: a time, a text column for each label, a number column for each metric.

use std::io::{self, Write};
use std::sync::Arc;

use arrow_array::builder::StringDictionaryBuilder;
use arrow_array::types::Int32Type;
use arrow_array::{ArrayRef, Float64Array, RecordBatch, TimestampMillisecondArray};
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::{EnabledStatistics, WriterProperties};

/// Rows of one or several series that share their metrics.
#[derive(Clone, Debug, Default)]
pub struct Block {
    /// Sets of labels, each a list of name and value.
    pub label_sets: Vec<Vec<(&'static str, String)>>,
    /// Per row: which set.
    pub sets: Vec<u32>,
    /// Per row: time, ms.
    pub times_ms: Vec<i64>,
    /// Per metric and row: the value; NaN is absent.
    pub values: Vec<Vec<f64>>,
}

/// Writes blocks as one Parquet file.
pub fn write<W: Write + Send>(labels: &[&'static str], metrics: &[&str], blocks: impl Iterator<Item = Block>, out: W) -> io::Result<()> {
    let text = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
    let mut fields = vec![Field::new("timestamp", DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into())), false)];
    fields.extend(labels.iter().map(|name| Field::new(*name, text.clone(), true)));
    fields.extend(metrics.iter().map(|name| Field::new(*name, DataType::Float64, true)));
    let schema = Arc::new(Schema::new(fields));
    let level = ZstdLevel::try_new(1).map_err(io::Error::other)?;
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(level))
        .set_statistics_enabled(EnabledStatistics::None)
        .set_created_by("gpuledger sim".to_string())
        .build();
    let mut writer = ArrowWriter::try_new(out, schema.clone(), Some(properties)).map_err(io::Error::other)?;
    for block in blocks {
        if block.times_ms.is_empty() {
            continue;
        }
        let mut columns: Vec<ArrayRef> = vec![Arc::new(TimestampMillisecondArray::from(block.times_ms).with_timezone("UTC"))];
        for label in labels {
            let by_set: Vec<Option<&str>> =
                block.label_sets.iter().map(|set| set.iter().find(|(name, _)| name == label).map(|(_, value)| value.as_str())).collect();
            let mut column = StringDictionaryBuilder::<Int32Type>::new();
            for set in &block.sets {
                column.append_option(by_set.get(*set as usize).copied().flatten());
            }
            columns.push(Arc::new(column.finish()));
        }
        for values in block.values {
            let column: Float64Array = if values.iter().any(|v| v.is_nan()) {
                values.into_iter().map(|v| (!v.is_nan()).then_some(v)).collect()
            } else {
                Float64Array::from(values)
            };
            columns.push(Arc::new(column));
        }
        let batch = RecordBatch::try_new(schema.clone(), columns).map_err(io::Error::other)?;
        writer.write(&batch).map_err(io::Error::other)?;
    }
    writer.close().map_err(io::Error::other)?;
    Ok(())
}
