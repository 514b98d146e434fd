//! Recorded expositions of real exporters: every sample is counted, none is out of range, every reject explained.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use gpuledger_ingest::prometheus::names::NameTable;
use gpuledger_model::tables::telemetry::{Field, HolderLabel, SignalField, SignalSource};
use gpuledger_store::discover::{InputKind, PathSpec};
use gpuledger_store::inputs::{Inputs, Request, read};

const T0: i64 = 1_791_277_200_000;

fn corpus() -> Option<PathBuf> {
    let root = std::env::var_os("GPULEDGER_SHARED")
        .map(PathBuf::from)
        .unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"));
    let folder = root.join("data/telemetry");
    if !folder.is_dir() {
        println!("no recorded telemetry at {}; nothing to test", folder.display());
        return None;
    }
    Some(folder)
}

fn read_path(path: &Path, kind: Option<InputKind>) -> Inputs {
    let spec = PathSpec { path: path.display().to_string(), kind, cluster: None };
    let request = Request { telemetry: vec![spec], assumed_time_ms: Some(T0), ..Request::default() };
    read(&request, &mut |_| {})
}

fn reasons(inputs: &Inputs) -> Vec<(String, String, u64)> {
    let word = |reason: &str| reason.split([';', ':', '(']).next().unwrap_or_default().trim().to_string();
    let mut reasons: Vec<_> = inputs.rejects.iter().map(|r| (r.field.clone(), word(&r.reason), r.count)).collect();
    reasons.sort();
    reasons
}

fn check_ranges(inputs: &Inputs) {
    for (key, column) in &inputs.telemetry.series {
        for value in &column.values {
            let limit = match key.field.unit() {
                "1e-6 ratio" => 1_000_000,
                "1e-6 W" => 3_000_000_000,
                "1e-6 MiB" => 300_000_000_000,
                _ => i64::MAX,
            };
            assert!((0..=limit).contains(value), "{key:?} {value}");
        }
    }
}

#[test]
fn recorded_dcgm_texts_load() {
    let Some(folder) = corpus() else { return };
    // File, samples taken, rejects: metric, reason, count.
    let elided = "labels are elided with \"...\"";
    let elided_rows = |metrics: &[&'static str], count| metrics.iter().map(|metric| (*metric, elided, count)).collect();
    type Refused = Vec<(&'static str, &'static str, u64)>;
    let wants: [(&str, u64, Refused); 14] = [
        ("dcgm_exporter_scrapes/ericsson_t4_590_busy.prom", 20, vec![]),
        ("dcgm_exporter_scrapes/kops_l4_580_idle.prom", 23, vec![]),
        ("dcgm_exporter_scrapes/rafay_t4_580_idle.prom", 17, vec![]),
        ("dcgm_exporter_scrapes/upcloud_l40s_595.prom", 23, vec![]),
        (
            "dcgm_exporter_scrapes/viettel_l40s_x2_580_elided.prom",
            2,
            elided_rows(
                &[
                    "DCGM_FI_DEV_FB_FREE",
                    "DCGM_FI_DEV_FB_USED",
                    "DCGM_FI_DEV_GPU_TEMP",
                    "DCGM_FI_DEV_GPU_UTIL",
                    "DCGM_FI_DEV_MEM_CLOCK",
                    "DCGM_FI_DEV_MEM_COPY_UTIL",
                    "DCGM_FI_DEV_POWER_USAGE",
                    "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
                    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
                ],
                2,
            ),
        ),
        ("dcgm_exporter_scrapes/vks135_vgpu.prom", 11, vec![]),
        ("dcgm_exporter_scrapes/vks136_grid_a100_10c_vgpu.prom", 11, vec![]),
        ("issue_snippets/a30_mig_power_issue317.prom", 6, vec![]),
        (
            "issue_snippets/a800_mixed_mig_8gpu.prom",
            162,
            vec![("DCGM_FI_DEV_VGPU_PER_PROCESS_UTILIZATION", "value is a text, not a number", 4)],
        ),
        ("issue_snippets/h100_mig_kserve_issue512.prom", 3, vec![]),
        ("issue_snippets/rtx3090_xid_err_labels.prom", 1, vec![]),
        (
            "issue_snippets/rtx4090_exported_pod_issue340.promql.txt",
            0,
            vec![("DCGM_FI_DEV_GPU_TEMP", "no value after the name and labels", 2)],
        ),
        ("issue_snippets/t4_lowercase_hostname_4_8.prom", 1, vec![]),
        ("issue_snippets/timeslice_identical_issue587.txt", 0, elided_rows(&["DCGM_FI_PROF_GR_ENGINE_ACTIVE"], 3)),
    ];
    let mut got = String::new();
    let mut want = String::new();
    for (file, rows, rejects) in wants {
        let inputs = read_path(&folder.join(file), Some(InputKind::Prometheus));
        check_ranges(&inputs);
        let samples: u64 = inputs.files.iter().map(|f| f.rows).sum();
        got.push_str(&format!("{file} {samples} {:?}\n", reasons(&inputs)));
        want.push_str(&format!("{file} {rows} {rejects:?}\n"));
    }
    assert_eq!(got, want);
}

#[test]
fn recorded_texts_of_other_exporters_are_read_without_a_sample_of_ours() {
    let Some(folder) = corpus() else { return };
    for part in ["nvidia_gpu_exporter", "netdata_nvidia_smi", "alibaba_pai_v2020", "acmetrace_cdf", "alibaba_gentd26"] {
        for entry in std::fs::read_dir(folder.join(part)).unwrap() {
            let path = entry.unwrap().path();
            let inputs = read_path(&path, Some(InputKind::Prometheus));
            assert!(inputs.telemetry.series.is_empty(), "{}", path.display());
        }
    }
}

#[test]
fn a_folder_of_everything_is_sorted_by_content() {
    let Some(folder) = corpus() else { return };
    let inputs = read_path(&folder, None);
    let mut kinds: BTreeMap<InputKind, usize> = BTreeMap::new();
    for file in &inputs.files {
        *kinds.entry(file.kind).or_default() += 1;
    }
    assert_eq!(kinds.keys().collect::<Vec<_>>(), [&InputKind::Prometheus], "{:?}", inputs.files);
    assert!(inputs.notices.iter().any(|n| n.kind == "unrecognized_file" && n.subject.ends_with("README.md")));
    check_ranges(&inputs);
}

#[test]
fn recorded_mig_rows_count_board_values_once() {
    let Some(folder) = corpus() else { return };
    let inputs = read_path(&folder.join("issue_snippets/a800_mixed_mig_8gpu.prom"), None);
    let power: Vec<i64> = inputs
        .telemetry
        .series
        .iter()
        .filter(|(key, _)| key.field == Field::PowerWatts)
        .map(|(key, column)| {
            assert_eq!(key.unit.instance, None);
            column.values[0]
        })
        .collect();
    assert_eq!(power.len(), 8);
    assert_eq!(power.iter().max(), Some(&78_446_000));
    let pods = read_path(&folder.join("issue_snippets/h100_mig_kserve_issue512.prom"), None);
    assert_eq!(pods.telemetry.holder_labels.len(), 2);
    for (_, unit, label) in pods.telemetry.holder_labels.keys() {
        assert!(unit.instance.is_some());
        assert!(matches!(label, HolderLabel::Pod { namespace, .. } if namespace == "model-playground-stg"));
    }
}

#[test]
fn recorded_vllm_scrape_gives_its_signals() {
    let Some(folder) = corpus() else { return };
    let inputs = read_path(&folder.join("vllm_scrape"), None);
    let signals: Vec<_> = inputs.telemetry.signals.iter().map(|((source, field), c)| (source.clone(), *field, c.values.clone())).collect();
    let address = SignalSource::Address("kops_vllm_qwen2.5-0.5b".into());
    assert_eq!(signals, [(address.clone(), SignalField::RequestsRunning, vec![0]), (address, SignalField::RequestsWaiting, vec![0])]);
    assert!(inputs.rejects.is_empty());
}

#[test]
fn samples_without_any_time_are_refused_with_a_remedy() {
    let Some(folder) = corpus() else { return };
    let path = folder.join("dcgm_exporter_scrapes/kops_l4_580_idle.prom");
    let request = Request { telemetry: vec![PathSpec::parse(&path.display().to_string())], ..Request::default() };
    let inputs = read(&request, &mut |_| {});
    assert!(inputs.telemetry.series.is_empty());
    assert!(inputs.rejects.iter().all(|r| r.reason.contains("--assume time=")) && !inputs.rejects.is_empty());
}

#[test]
fn every_renamed_name_means_what_the_old_one_meant() {
    let Some(folder) = corpus() else { return };
    let text = std::fs::read_to_string(folder.join("../telemetry_dialects.json")).unwrap();
    let dialects: serde_json::Value = serde_json::from_str(&text).unwrap();
    let table = NameTable::get();
    let meaning = |name: &str| {
        let mappings = table.lookup(name).map(|id| table.mappings(id)).unwrap_or_default();
        mappings.iter().map(|m| (m.destination, m.scale, m.is_secondary)).collect::<Vec<_>>()
    };
    let mut renamed = 0;
    for (old, entry) in dialects["dcgm_aliases_4_6"].as_object().unwrap() {
        if !meaning(old).is_empty() {
            renamed += 1;
            assert_eq!(meaning(entry["new"].as_str().unwrap()), meaning(old), "{old}");
        }
    }
    assert_eq!(renamed, 16);
}
