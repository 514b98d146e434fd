//! Telemetry as it lies in folders: layouts, encodings and repeats leave no trace; damage costs only itself.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use arrow_array::types::Int32Type;
use arrow_array::{ArrayRef, DictionaryArray, Float64Array, Int64Array, RecordBatch, StringArray, TimestampMillisecondArray};
use flate2::Compression;
use flate2::write::GzEncoder;
use gpuledger_model::tables::telemetry::{Field, Telemetry};
use gpuledger_store::discover::{InputKind, PathSpec};
use gpuledger_store::inputs::{Inputs, Request, read};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;

const START_S: i64 = 1_791_277_200;
const METRICS: [&str; 4] =
    ["DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "DCGM_FI_DEV_FB_USED"];

fn read_paths(paths: &[&Path]) -> Inputs {
    let telemetry = paths.iter().map(|path| PathSpec::parse(&path.display().to_string())).collect();
    read(&Request { telemetry, ..Request::default() }, &mut |_| {})
}

/// A small world: two nodes of two boards, five scrapes; the same numbers in every layout.
fn value(metric: usize, node: usize, board: usize, step: i64) -> f64 {
    let seed = (node * 2 + board) as f64 + step as f64;
    match metric {
        0 => 0.1 + seed / 100.0,
        1 => 100.507 + seed,
        2 => 4_742_776.0 + seed * 1_000.0,
        _ => 5_120.0 + seed,
    }
}

fn uuid(node: usize, board: usize) -> String {
    format!("GPU-0000000{node}-0000-0000-0000-00000000000{}", board + 1)
}

fn labels(node: usize, board: usize) -> String {
    format!(
        "gpu=\"{board}\",UUID=\"{}\",modelName=\"NVIDIA L4\",Hostname=\"node-{node}\",instance=\"10.0.0.{node}:9400\",job=\"dcgm\",namespace=\"ml\",pod=\"train-{node}\"",
        uuid(node, board)
    )
}

fn scrape(node: usize, step: i64, stamp: &str) -> String {
    let mut text = String::new();
    for (at, metric) in METRICS.iter().enumerate() {
        text.push_str(&format!("# TYPE {metric} gauge\n"));
        for board in 0..2 {
            text.push_str(&format!("{metric}{{{}}} {}{stamp}\n", labels(node, board), value(at, node, board, step)));
        }
    }
    text
}

fn write_scrapes(folder: &Path, is_packed: bool) {
    for node in 0..2 {
        let target = folder.join(format!("10.0.0.{node}:9400"));
        fs::create_dir_all(&target).unwrap();
        for step in 0..5 {
            let name = format!("{}.prom", START_S + 15 * step);
            let text = scrape(node, step, "");
            if is_packed {
                fs::write(target.join(format!("{name}.gz")), packed(text.as_bytes())).unwrap();
            } else {
                fs::write(target.join(name), text).unwrap();
            }
        }
    }
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn wide_batch(nodes: std::ops::Range<usize>, is_dictionary: bool) -> RecordBatch {
    let rows: Vec<(usize, usize, i64)> =
        nodes.flat_map(|node| (0..5).flat_map(move |step| (0..2).map(move |board| (node, board, step)))).collect();
    let text = |of: &dyn Fn(usize, usize) -> String| -> ArrayRef {
        let texts: Vec<String> = rows.iter().map(|(node, board, _)| of(*node, *board)).collect();
        if is_dictionary {
            Arc::new(texts.iter().map(String::as_str).collect::<DictionaryArray<Int32Type>>())
        } else {
            Arc::new(StringArray::from(texts))
        }
    };
    let mut columns: Vec<(&str, ArrayRef)> = vec![
        ("timestamp", Arc::new(TimestampMillisecondArray::from_iter_values(rows.iter().map(|r| (START_S + 15 * r.2) * 1_000)))),
        ("gpu", text(&|_, board| board.to_string())),
        ("UUID", text(&uuid)),
        ("modelName", text(&|_, _| "NVIDIA L4".into())),
        ("Hostname", text(&|node, _| format!("node-{node}"))),
        ("instance", text(&|node, _| format!("10.0.0.{node}:9400"))),
        ("job", text(&|_, _| "dcgm".into())),
        ("namespace", text(&|_, _| "ml".into())),
        ("pod", text(&|node, _| format!("train-{node}"))),
    ];
    for (at, metric) in METRICS.iter().enumerate() {
        columns.push((metric, Arc::new(rows.iter().map(|(n, b, s)| Some(value(at, *n, *b, *s))).collect::<Float64Array>())));
    }
    columns.push(("DCGM_FI_DEV_SM_CLOCK", Arc::new(Int64Array::from(vec![210; rows.len()]))));
    columns.push(("DCGM_FI_PROF_SM_ACTIVE", Arc::new(Float64Array::from(vec![None; rows.len()]))));
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, column)| (name, column, true))).unwrap()
}

fn long_batch() -> RecordBatch {
    let mut names = Vec::new();
    let mut objects = Vec::new();
    let mut times = Vec::new();
    let mut values = Vec::new();
    for (at, metric) in METRICS.iter().enumerate() {
        for (node, board) in [(1, 1), (0, 0), (1, 0), (0, 1)] {
            for step in 0..5 {
                names.push(metric.to_string());
                let object: serde_json::Map<String, serde_json::Value> = labels(node, board)
                    .split("\",")
                    .map(|pair| pair.split_once("=\"").unwrap())
                    .map(|(name, text)| (name.to_string(), text.trim_end_matches('"').into()))
                    .collect();
                objects.push(serde_json::Value::Object(object).to_string());
                times.push(START_S + 15 * step);
                values.push(value(at, node, board, step));
            }
        }
    }
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("__name__", Arc::new(StringArray::from(names))),
        ("labels", Arc::new(StringArray::from(objects))),
        ("timestamp", Arc::new(Int64Array::from(times))),
        ("value", Arc::new(Float64Array::from(values))),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

fn write_parquet(path: &Path, batch: &RecordBatch) {
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(4)).build();
    let mut writer = ArrowWriter::try_new(fs::File::create(path).unwrap(), batch.schema(), Some(properties)).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
}

fn world() -> (tempfile::TempDir, Telemetry) {
    let folder = tempfile::tempdir().unwrap();
    write_scrapes(&folder.path().join("plain"), false);
    let inputs = read_paths(&[&folder.path().join("plain")]);
    assert!(inputs.rejects.is_empty(), "{:?}", inputs.rejects);
    assert_eq!(inputs.telemetry.sample_count(), 2 * 2 * 5 * METRICS.len());
    assert_eq!(inputs.files.iter().map(|f| (f.kind, f.rows)).collect::<Vec<_>>(), [(InputKind::Prometheus, 40); 2]);
    let energy = inputs.telemetry.series.iter().find(|(key, _)| key.field == Field::Energy).unwrap();
    assert_eq!(energy.1.values[0], 4_742_776_000);
    (folder, inputs.telemetry)
}

#[test]
fn ing_1_every_layout_gives_the_same_telemetry() {
    let (folder, want) = world();
    let at = |name: &str| folder.path().join(name);
    write_scrapes(&at("packed"), true);
    write_parquet(&at("wide.parquet"), &wide_batch(0..2, true));
    write_parquet(&at("texts.parquet"), &wide_batch(0..2, false));
    write_parquet(&at("long.parquet"), &long_batch());
    fs::create_dir(at("split")).unwrap();
    write_parquet(&at("split/a.parquet"), &wide_batch(0..1, false));
    write_parquet(&at("split/b.parquet"), &wide_batch(1..2, true));
    let mut dump = String::new();
    for step in [3, 0, 4, 1, 2] {
        for node in [1, 0] {
            dump.push_str(&scrape(node, step, &format!(" {}", (START_S + 15 * step) * 1_000)));
        }
    }
    fs::write(at("dump.prom"), format!("\u{feff}{}", dump.replace('\n', "\r\n"))).unwrap();
    for name in ["packed", "wide.parquet", "texts.parquet", "long.parquet", "split", "dump.prom"] {
        let inputs = read_paths(&[&at(name)]);
        assert!(inputs.rejects.is_empty(), "{name}: {:?}", inputs.rejects);
        assert!(inputs.telemetry == want, "{name}");
        let twice = read_paths(&[&at(name), &at("plain"), &at(name)]);
        assert!(twice.telemetry == want, "{name} beside the scrapes");
    }
}

#[test]
fn files_that_are_the_same_count_once() {
    let (folder, want) = world();
    let at = |name: &str| folder.path().join(name);
    write_parquet(&at("a.parquet"), &wide_batch(0..2, true));
    fs::copy(at("a.parquet"), at("b.parquet")).unwrap();
    let inputs = read_paths(&[&at("b.parquet"), &at("a.parquet")]);
    assert_eq!(inputs.files.iter().map(|f| f.rows).collect::<Vec<_>>(), [100, 0]);
    assert!(inputs.notices.iter().any(|n| n.kind == "duplicate_file"));
    assert!(inputs.telemetry == want);
}

#[test]
fn an_empty_scrape_is_a_scrape_of_its_target() {
    let (folder, want) = world();
    let target = folder.path().join("plain/10.0.0.1:9400");
    fs::write(target.join(format!("{}.prom", START_S + 75)), "").unwrap();
    let inputs = read_paths(&[&folder.path().join("plain")]);
    let producer = inputs.telemetry.scrapes.iter().find(|(key, _)| key.0.name == "node-1").unwrap();
    assert_eq!(producer.1.last(), Some(&((START_S + 75) * 1_000)));
    assert_eq!(inputs.telemetry.scrapes.len(), want.scrapes.len());
    assert!(inputs.telemetry.series == want.series);
}

#[test]
fn a_cut_gzip_keeps_what_came_before_and_says_so() {
    let (folder, _) = world();
    let mut text = String::new();
    for step in 0..2_000 {
        text.push_str(&scrape(0, step % 7, &format!(" {}", (START_S + 15 * step) * 1_000)));
    }
    let bytes = packed(text.as_bytes());
    let path = folder.path().join("dump.prom.gz");
    fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    let inputs = read_paths(&[&path]);
    assert!(inputs.files[0].rows > 100 && inputs.files[0].rows < 16_000);
    assert_eq!(inputs.rejects.len(), 1, "{:?}", inputs.rejects);
    assert!(inputs.rejects[0].reason.contains("ends early"));
}

#[test]
fn damaged_parquet_is_a_reject() {
    let (folder, _) = world();
    let path = folder.path().join("a.parquet");
    write_parquet(&path, &wide_batch(0..2, true));
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    let inputs = read_paths(&[&path]);
    assert!(inputs.telemetry.series.is_empty());
    assert!(inputs.rejects[0].reason.contains("damaged"), "{:?}", inputs.rejects);
    // Any byte may be wrong: whatever is read, the run ends in order.
    for at in (4..bytes.len()).step_by(97) {
        let mut bytes = bytes.clone();
        bytes[at] ^= 0x55;
        fs::write(&path, &bytes).unwrap();
        let _ = read_paths(&[&path]);
    }
}

#[test]
fn paths_that_lead_nowhere_or_in_circles_are_rejects() {
    let (folder, want) = world();
    let loops = folder.path().join("plain/10.0.0.0:9400/loop");
    #[cfg(unix)]
    std::os::unix::fs::symlink(folder.path().join("plain"), &loops).unwrap();
    let missing = folder.path().join("missing");
    let inputs = read_paths(&[&folder.path().join("plain"), &missing, &folder.path().join("*.nothing")]);
    assert!(inputs.telemetry == want);
    assert_eq!(inputs.rejects.len(), if loops.exists() { 3 } else { 2 }, "{:?}", inputs.rejects);
}

#[test]
fn a_cluster_can_be_given_to_series_without_one() {
    let (folder, _) = world();
    let spec = PathSpec::parse(&format!("@blue={}", folder.path().join("plain").display()));
    let inputs = read(&Request { telemetry: vec![spec], ..Request::default() }, &mut |_| {});
    assert!(inputs.telemetry.series.keys().all(|key| key.host.cluster.as_deref() == Some("blue")));
}
