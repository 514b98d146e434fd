//! ING-1: what leaves no trace in the canonical table, and ING-3: what is refused and why.

use std::collections::BTreeMap;
use std::io::Read;

use gpuledger_model::tables::telemetry::{Field, HolderLabel, SignalField, SignalSource, Telemetry};
use proptest::prelude::*;

use super::*;

const T0: i64 = 1_791_277_200_000;

fn read_with(texts: &[(&str, i64, &str)]) -> (Telemetry, Counts, BTreeMap<String, u64>) {
    let mut intake = Intake::new();
    let mut rejects = Rejects::default();
    let mut counts = Counts::default();
    for (target, time_ms, text) in texts {
        let scrape = Scrape { target, time_ms: Some(*time_ms) };
        counts.add(read_exposition(text.as_bytes(), scrape, &mut intake, &mut rejects));
    }
    let mut reasons = BTreeMap::new();
    for reject in rejects.into_rows("f") {
        *reasons.entry(reject.reason).or_insert(0) += reject.count;
    }
    assert_eq!(counts.samples, counts.accepted + counts.unmapped + counts.stale + counts.rejected);
    (intake.finish().into_telemetry(), counts, reasons)
}

fn read(texts: &[(&str, i64, &str)]) -> Telemetry {
    read_with(texts).0
}

fn one_value(telemetry: &Telemetry, field: Field) -> i64 {
    let columns: Vec<_> = telemetry.series.iter().filter(|(key, _)| key.field == field).collect();
    assert_eq!(columns.len(), 1, "{field:?}");
    assert_eq!(columns[0].1.values.len(), 1);
    columns[0].1.values[0]
}

const BOARD: &str =
    "gpu=\"0\",UUID=\"GPU-6d5c0ac5-74d7-3130-46f1-e93ed57f469a\",pci_bus_id=\"00000000:37:00.0\",modelName=\"Tesla T4\",Hostname=\"n1\"";

fn scrape_text() -> String {
    let mut text = String::from("# HELP DCGM_FI_DEV_GPU_UTIL tabs\there {}\n# TYPE DCGM_FI_DEV_GPU_UTIL gauge\n");
    for (name, value) in [
        ("DCGM_FI_DEV_GPU_UTIL", "91"),
        ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "0.156205"),
        ("DCGM_FI_DEV_POWER_USAGE", "68.244000"),
        ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "15152422938"),
        ("DCGM_FI_PROF_PCIE_RX_BYTES", "6935930"),
        ("DCGM_FI_DEV_FB_USED", "5120"),
        ("DCGM_FI_DEV_XID_ERRORS", "0"),
        ("DCGM_FI_DEV_SM_CLOCK", "660"),
    ] {
        text.push_str(&format!("{name}{{{BOARD},namespace=\"ml\",pod=\"train-0\"}} {value}\n"));
    }
    text
}

#[test]
fn a_scrape_gives_exact_values_in_canonical_units() {
    let (telemetry, counts, reasons) = read_with(&[("n1", T0, &scrape_text())]);
    assert_eq!((counts.samples, counts.accepted, counts.unmapped), (8, 7, 1));
    assert!(reasons.is_empty());
    assert_eq!(one_value(&telemetry, Field::Util), 910_000);
    assert_eq!(one_value(&telemetry, Field::Engine), 156_205);
    assert_eq!(one_value(&telemetry, Field::Energy), 15_152_422_938_000);
    assert_eq!(one_value(&telemetry, Field::PcieRx), 6_935_930);
    assert_eq!(one_value(&telemetry, Field::MemoryUsed), 5_120_000_000);
    let label = telemetry.holder_labels.keys().next().unwrap();
    assert_eq!(label.2, HolderLabel::Pod { namespace: "ml".into(), pod: "train-0".into() });
    assert_eq!(telemetry.sightings.len(), 1);
    assert_eq!(telemetry.scrapes.values().next().unwrap(), &vec![T0]);
}

#[test]
fn ing_1_order_repeats_names_and_encodings_leave_no_trace() {
    let text = scrape_text();
    let want = read(&[("n1", T0, &text), ("n1", T0 + 15_000, &text)]);
    let mut lines: Vec<&str> = text.lines().filter(|l| !l.starts_with('#')).collect();
    lines.reverse();
    let permuted = lines.join("\n");
    let crlf = format!("\u{feff}{}", text.replace('\n', "\r\n"));
    let spaced = text.replace(",", " , ").replace("} ", "}\t");
    let labelled = text.replace("{gpu", "{brand=\"Tesla\",DCGM_FI_DRIVER_VERSION=\"590\",gpu");
    let exemplars = text.replace("91\n", "91 # {trace_id=\"a}b\"} 0.5\n");
    let renamed = text
        .replace("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_GPU_UTIL_RATIO")
        .replace("PROF_GR_ENGINE_ACTIVE", "PROF_GR_ENGINE_UTIL_RATIO")
        .replace("DEV_POWER_USAGE", "DEV_BOARD_POWER_WATTS")
        .replace("DEV_XID_ERRORS", "DEV_XID_ERROR")
        .replace("Hostname", "hostname");
    let old_pods = text.replace("pod=", "pod_name=").replace("namespace=", "pod_namespace=").replace("UUID=\"GPU-", "uuid=\"");
    for (what, variant) in [
        ("permuted", &permuted),
        ("crlf", &crlf),
        ("spaced", &spaced),
        ("labelled", &labelled),
        ("exemplars", &exemplars),
        ("renamed", &renamed),
        ("old pods", &old_pods),
    ] {
        let got = read(&[("n1", T0 + 15_000, variant), ("n1", T0, variant), ("n1", T0, &text)]);
        assert_eq!(got, want, "{what}");
    }
    let halves: Vec<&str> = text.splitn(2, "DCGM_FI_DEV_FB_USED").collect();
    let second = format!("DCGM_FI_DEV_FB_USED{}", halves[1]);
    let split = [("n1", T0 + 15_000, second.as_str()), ("n1", T0, halves[0]), ("n1", T0, &second), ("n1", T0 + 15_000, halves[0])];
    assert_eq!(read(&split), want);
    // Timestamps in the lines, in milliseconds and as OpenMetrics' seconds.
    let stamped = |stamp: &str| {
        text.lines().map(|l| if l.starts_with('#') { format!("{l}\n") } else { format!("{l} {stamp}\n") }).collect::<String>()
    };
    let (ms, s) = (stamped("1791277200000"), format!("{}# EOF\n", stamped("1791277215.000")));
    assert_eq!(read(&[("n1", 5, &ms), ("n1", 7, &s)]), want);
    // Parts read apart and merged.
    let mut parts = Vec::new();
    for time_ms in [T0 + 15_000, T0, T0] {
        let mut intake = Intake::new();
        read_exposition(text.as_bytes(), Scrape { target: "n1", time_ms: Some(time_ms) }, &mut intake, &mut Rejects::default());
        parts.push(intake.finish());
    }
    let mut whole = Collected::default();
    parts.into_iter().for_each(|part| whole.merge(part));
    assert_eq!(whole.into_telemetry(), want);
}

#[test]
fn ing_2_a_sentinel_only_removes_its_sample() {
    let text = scrape_text();
    let want = read(&[("n1", T0, &text)]);
    for line in text.lines().filter(|l| !l.starts_with('#') && !l.contains("SM_CLOCK")) {
        let (head, _) = line.rsplit_once(' ').unwrap();
        let name = head.split('{').next().unwrap();
        for bad in [
            "2147483635",
            "4294967295",
            "9223372036854775792",
            "140737488355328.000000",
            "NaN",
            "+Inf",
            "-1",
            "ERROR - FAILED TO CONVERT TO STRING",
        ] {
            let got = read(&[("n1", T0, &text.replace(line, &format!("{head} {bad}")))]);
            let mut expected = want.clone();
            let id = names::NameTable::get().lookup(name).unwrap();
            let names::Destination::Device(field) = names::NameTable::get().mappings(id)[0].destination else { panic!() };
            expected.series.retain(|key, _| key.field != field);
            assert_eq!(got, expected, "{name} {bad}");
        }
    }
}

#[test]
fn ing_3_bad_lines_are_refused_one_by_one() {
    let cases = [
        ("DCGM_FI_DEV_GPU_UTIL{gpu=\"0\",...,modelName=\"x\"} 1", Reason::ElidedLabels),
        ("DCGM_FI_DEV_GPU_UTIL{UUID=\"GPU-a\",modelName=\"a \"b\" c\"} 1", Reason::MalformedLabels),
        ("DCGM_FI_DEV_GPU_UTIL{UUID=\"GPU-a\"", Reason::MalformedLabels),
        ("DCGM_FI_DEV_GPU_UTIL{UUID=\"GPU-a\",UUID=\"GPU-b\"} 1", Reason::RepeatedLabel),
        ("DCGM_FI_DEV_GPU_UTIL{UUID=\"GPU-a\"}", Reason::NoValue),
        ("DCGM_FI_DEV_GPU_UTIL{UUID=\"GPU-a\"} 1 yesterday", Reason::MalformedTimestamp),
        ("DCGM_FI_DEV_GPU_UTIL{UUID=\"GPU-a\"} 1 2 3", Reason::MalformedTimestamp),
        ("DCGM_FI_DEV_GPU_UTIL{Hostname=\"n1\"} 1", Reason::NoDevice),
        ("DCGM_FI_DEV_GPU_UTIL 1", Reason::NoDevice),
        ("DCGM_FI_DEV_CLOCK{UUID=\"GPU-a\"} ERROR", Reason::TextValue),
        ("<html>", Reason::MalformedName),
        ("container_cpu_usage_seconds_total{container=\"c\"} 1", Reason::NoHolder),
    ];
    for (line, reason) in cases {
        let (telemetry, counts, reasons) = read_with(&[("n1", T0, &format!("{}{line}\n{}", scrape_text(), scrape_text()))]);
        assert_eq!(telemetry, read(&[("n1", T0, &scrape_text())]), "{line}");
        assert_eq!((counts.rejected, counts.accepted), (1, 14), "{line}");
        assert_eq!(reasons, BTreeMap::from([(reason.text().to_string(), 1)]), "{line}");
    }
}

#[test]
fn ing_3_long_lines_wrong_bytes_and_early_ends_keep_the_rest() {
    let mut bytes = scrape_text().into_bytes();
    bytes.extend(std::iter::repeat_n(b'x', 3 << 20));
    bytes.extend(b"\nDCGM_FI_DEV_FB_FREE{UUID=\"GPU-\xff\"} 1\n");
    bytes.extend(scrape_text().into_bytes());
    let mut intake = Intake::new();
    let mut rejects = Rejects::default();
    let reader = std::io::BufReader::with_capacity(1_000, bytes.as_slice());
    read_exposition(reader, Scrape { target: "n1", time_ms: Some(T0) }, &mut intake, &mut rejects);
    let rows = rejects.into_rows("f");
    let lines: Vec<u64> = rows.iter().map(|r| r.line).collect();
    assert_eq!(lines, [11, 12], "{rows:?}");
    assert_eq!(intake.finish().into_telemetry(), read(&[("n1", T0, &scrape_text())]));

    struct Broken<'a>(&'a [u8]);
    impl Read for Broken<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            match self.0.read(buffer)? {
                0 => Err(std::io::Error::other("corrupt deflate stream")),
                n => Ok(n),
            }
        }
    }
    let text = scrape_text();
    let cut = format!("{text}DCGM_FI_DEV_FB_FREE{{{BOARD}}} 12");
    let mut intake = Intake::new();
    let mut rejects = Rejects::default();
    let reader = std::io::BufReader::new(Broken(cut.as_bytes()));
    read_exposition(reader, Scrape { target: "n1", time_ms: Some(T0) }, &mut intake, &mut rejects);
    assert_eq!(intake.finish().into_telemetry(), read(&[("n1", T0, &text)]));
    assert!(rejects.into_rows("f")[0].reason.contains("corrupt deflate stream"));
}

#[test]
fn board_values_of_instances_go_to_the_board_once() {
    let row = |name: &str, instance: &str, value: &str| {
        format!("{name}{{gpu=\"0\",UUID=\"GPU-1f\",GPU_I_PROFILE=\"2g.20gb\",GPU_I_ID=\"{instance}\",Hostname=\"n1\"}} {value}\n")
    };
    let mut text = String::new();
    for (instance, power) in [("3", "78.174"), ("5", "78.174"), ("6", "78.446")] {
        text.push_str(&row("DCGM_FI_DEV_POWER_USAGE", instance, power));
        text.push_str(&row("DCGM_FI_DEV_FB_USED", instance, "11"));
        text.push_str(&row("DCGM_FI_PROF_GR_ENGINE_ACTIVE", instance, "0.5"));
    }
    let telemetry = read(&[("n1", T0, &text)]);
    assert_eq!(one_value(&telemetry, Field::PowerWatts), 78_446_000);
    assert_eq!(telemetry.series.keys().filter(|k| k.unit.instance.is_some()).count(), 6);
    assert!(telemetry.sightings.keys().all(|k| k.profile.as_deref() == Some("2g.20gb")));
}

#[test]
fn sharers_copies_and_lesser_names_only_fill_holes() {
    let text = format!(
        "DCGM_FI_DEV_GPU_UTIL{{{BOARD},vgpu=\"1\",pod=\"a\"}} 90\nDCGM_FI_DEV_GPU_UTIL{{{BOARD}}} 40\n\
         DCGM_FI_DEV_FB_USED{{{BOARD},vgpu=\"0\"}} 10\nDCGM_FI_DEV_FB_USED{{{BOARD},vgpu=\"1\"}} 20\n\
         DCGM_FI_DEV_POWER_USAGE_INSTANT{{{BOARD}}} 99\nDCGM_FI_DEV_POWER_USAGE{{{BOARD}}} 70\n"
    );
    let telemetry = read(&[("n1", T0, &text)]);
    assert_eq!(one_value(&telemetry, Field::Util), 400_000);
    assert_eq!(one_value(&telemetry, Field::MemoryUsed), 20_000_000);
    assert_eq!(one_value(&telemetry, Field::PowerWatts), 70_000_000);
}

#[test]
fn empty_scrapes_join_the_producer_of_their_target() {
    let text = scrape_text().replace("Hostname=\"n1\"", "Hostname=\"host-1\"");
    let telemetry = read(&[("n1:9400", T0, &text), ("n1:9400", T0 + 15_000, ""), ("n2:9400", T0, "DCGM_FI_DEV_SM_CLOCK{gpu=\"0\"} 3\n")]);
    let scrapes: Vec<(&str, usize)> = telemetry.scrapes.iter().map(|(k, v)| (k.0.name.as_str(), v.len())).collect();
    assert_eq!(scrapes, [("host-1", 2), ("n2:9400", 1)]);
}

#[test]
fn signals_are_summed_over_their_parts() {
    let mut texts = Vec::new();
    for (step, time_ms) in [(0i64, T0), (1, T0 + 15_000), (2, T0 + 30_000)] {
        let mut text = String::new();
        for cpu in 0..2 {
            text.push_str(&format!("node_cpu_seconds_total{{cpu=\"{cpu}\",mode=\"idle\",instance=\"n1:9100\"}} {}\n", 1_000 + 10 * step));
            text.push_str(&format!("node_cpu_seconds_total{{cpu=\"{cpu}\",mode=\"user\",instance=\"n1:9100\"}} {}.5\n", 5 * step));
            text.push_str(&format!("node_cpu_seconds_total{{cpu=\"{cpu}\",mode=\"guest\",instance=\"n1:9100\"}} {}\n", 5 * step));
        }
        text.push_str(&format!("container_cpu_usage_seconds_total{{container=\"\",namespace=\"ml\",pod=\"p\"}} {}\n", 99 * step));
        text.push_str(&format!("container_cpu_usage_seconds_total{{container=\"a\",namespace=\"ml\",pod=\"p\"}} {}\n", 7 * step));
        text.push_str("container_spec_cpu_quota{container=\"a\",namespace=\"ml\",pod=\"p\"} 150000\ncontainer_spec_cpu_period{container=\"a\",namespace=\"ml\",pod=\"p\"} 100000\n");
        text.push_str("vllm:num_requests_running{engine=\"0\",model_name=\"m\",namespace=\"ml\",pod=\"p\"} 2.0\nvllm:num_requests_running{engine=\"1\",model_name=\"m\",namespace=\"ml\",pod=\"p\"} 1.0\n");
        texts.push((time_ms, text));
    }
    let inputs: Vec<(&str, i64, &str)> = texts.iter().map(|(t, s)| ("x", *t, s.as_str())).collect();
    let telemetry = read(&inputs);
    let values = |field: SignalField| -> Vec<i64> {
        telemetry.signals.iter().filter(|(k, _)| k.1 == field).flat_map(|(_, c)| c.values.clone()).collect()
    };
    assert_eq!(values(SignalField::HostCpuTotal), [0, 30_000_000, 60_000_000]);
    assert_eq!(values(SignalField::HostCpuIdle), [0, 20_000_000, 40_000_000]);
    assert_eq!(values(SignalField::HolderCpuUsed), [0, 7_000_000, 14_000_000]);
    assert_eq!(values(SignalField::HolderCpuLimit), [1_500_000; 3]);
    assert_eq!(values(SignalField::RequestsRunning), [3_000_000; 3]);
    assert!(telemetry.signals.keys().any(|k| k.0 == SignalSource::Pod { cluster: None, namespace: "ml".into(), pod: "p".into() }));
    assert!(telemetry.scrapes.is_empty());
    let twice: Vec<_> = inputs.iter().rev().chain(&inputs).copied().collect();
    assert_eq!(read(&twice), telemetry);
}

proptest! {
    #[test]
    fn ing_3_arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..600), capacity in 1usize..200) {
        let mut intake = Intake::new();
        let mut rejects = Rejects::default();
        let reader = std::io::BufReader::with_capacity(capacity, bytes.as_slice());
        let counts = read_exposition(reader, Scrape { target: "t", time_ms: Some(T0) }, &mut intake, &mut rejects);
        prop_assert_eq!(counts.samples, counts.accepted + counts.unmapped + counts.stale + counts.rejected);
        prop_assert_eq!(counts.rejected, rejects.count());
        let _ = intake.finish().into_telemetry();
    }

    #[test]
    fn ing_3_mangled_scrapes_never_panic(at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<prop::sample::Index>()) {
        let mut bytes = scrape_text().into_bytes();
        let position = at.index(bytes.len());
        bytes[position] = byte;
        bytes.truncate(cut.index(bytes.len()) + 1);
        let mut intake = Intake::new();
        let mut rejects = Rejects::default();
        read_exposition(bytes.as_slice(), Scrape { target: "t", time_ms: Some(T0) }, &mut intake, &mut rejects);
        let _ = intake.finish().into_telemetry();
    }
}

#[test]
fn times_of_clocks_that_were_never_set_are_refused() {
    let mut text = String::new();
    for time in ["0", "-62135596800000", "253402300799000", "9223372036854775807", "946684799999", "4102444800000"] {
        text.push_str(&format!("DCGM_FI_DEV_GPU_UTIL{{{BOARD}}} 50 {time}\n"));
    }
    text.push_str(&format!("DCGM_FI_DEV_GPU_UTIL{{{BOARD}}} 60 {T0}\n"));
    let (telemetry, counts, reasons) = read_with(&[("n1", T0, &text)]);
    assert_eq!((counts.accepted, counts.rejected), (1, 6));
    assert!(reasons.keys().all(|reason| reason.contains("years 2000 to 2099") || reason.contains("timestamp is not")), "{reasons:?}");
    let column = telemetry.series.values().next().unwrap();
    assert_eq!(column.times_ms, [T0]);
    // Nor does an empty scrape of such a name say that its target lived then.
    assert!(read(&[("n1", 253_402_300_799_000, "")]).scrapes.is_empty());
}
