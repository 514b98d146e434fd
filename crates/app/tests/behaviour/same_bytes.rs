//! Order, split and repetition of what is read leave no trace, and more telemetry never raises a total.

use super::place::{Place, bill, figures, lines, rows};

/// The figures of the small world, with this text as its telemetry.
fn with(telemetry: &[String]) -> String {
    let place = Place::small();
    place.file("telemetry.prom", telemetry.concat());
    figures(&place.report(&["telemetry.prom"]))
}

#[test]
fn permuted_lines_and_duplicated_scrapes_give_the_same_bytes() {
    let plain = with(&lines());
    let mut reversed = lines();
    reversed.reverse();
    assert_eq!(with(&reversed), plain);
    let mut mixed = lines();
    mixed.sort_by_key(|line| line.bytes().rev().map(u64::from).fold(7, |hash, byte| (hash * 31 + byte) % 1_000_003));
    assert_eq!(with(&mixed), plain);
    assert_eq!(with(&[lines(), lines()].concat()), plain);
}

#[test]
fn order_split_and_repeated_import_of_files_give_the_same_bytes() {
    let place = Place::small();
    let plain = figures(&place.report(&["telemetry.prom"]));
    let all = lines();
    let (first, second) = all.split_at(all.len() / 3);
    place.file("a/one.prom", first.concat());
    place.file("a/two.prom", second.concat());
    place.file("copy/telemetry.prom", all.concat());
    for paths in [
        &["a/one.prom", "a/two.prom"][..],
        &["a/two.prom", "a/one.prom"],
        &["a"],
        &["a/*.prom"],
        &["a", "a"],
        &["telemetry.prom", "copy/telemetry.prom"],
    ] {
        assert_eq!(figures(&place.report(paths)), plain, "{paths:?}");
    }

    let bills: Vec<String> = rows().iter().map(|row| bill(std::slice::from_ref(row))).collect();
    for (at, text) in bills.iter().enumerate() {
        place.file(&format!("bills/{at}.csv"), text);
    }
    let reports: Vec<String> = [&["bills"][..], &["bills/3.csv", "bills/2.csv", "bills/1.csv", "bills/0.csv"], &["bills", "bills/0.csv"]]
        .into_iter()
        .map(|paths| {
            let mut arguments =
                vec!["report", "--telemetry", "telemetry.prom", "--placements", "@west=placements.json", "--by", "cause,device"];
            paths.iter().for_each(|path| arguments.extend(["--bills", path]));
            figures(&place.json(&arguments))
        })
        .collect();
    assert!(reports.iter().all(|report| *report == plain), "{reports:#?}\n{plain}");
}

#[test]
fn renamed_fields_and_extra_labels_give_the_same_bytes() {
    let plain = with(&lines());
    let renamed = |old: &str, new: &str| -> Vec<String> { lines().iter().map(|line| line.replace(old, new)).collect() };
    let labelled = renamed("{gpu=", "{DCGM_FI_DRIVER_VERSION=\"570.1\",rack=\"r1\",pci_bus_id=\"00000000:07:00.0\",gpu=");
    // One bus address for both boards would be one board: each keeps its own.
    let labelled: Vec<String> =
        labelled.iter().map(|line| if line.contains("GPU-b") { line.replace(":07:00.0", ":08:00.0") } else { line.clone() }).collect();
    assert_eq!(with(&labelled), plain);

    // Names before and since DCGM 4.6.
    let names = [
        ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO"),
        ("DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_PROF_SM_UTIL_RATIO"),
        ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "DCGM_FI_PROF_TENSOR_UTIL_RATIO"),
        ("DCGM_FI_PROF_DRAM_ACTIVE", "DCGM_FI_PROF_DRAM_UTIL_RATIO"),
    ];
    let mut since = lines().concat();
    for (old, new) in names {
        assert!(since.contains(old), "{old}");
        since = since.replace(old, new);
    }
    assert_eq!(with(&[since]), plain);
}

#[test]
fn a_second_exporter_changes_no_dollar_and_is_found() {
    let place = Place::small();
    let plain = place.report(&["telemetry.prom"]);
    let second: Vec<String> = lines().iter().map(|line| line.replace("{gpu=", "{instance=\"10.0.0.9:9401\",gpu=")).collect();
    place.file("second.prom", second.concat());
    let both = place.report(&["telemetry.prom", "second.prom"]);
    for part in ["window", "closing", "totals", "unknown", "causes", "groups", "timeline"] {
        assert_eq!(both[part], plain[part], "{part}");
    }
    let kinds = |report: &serde_json::Value| -> Vec<String> {
        report["findings"].as_array().unwrap().iter().map(|finding| finding["kind"].as_str().unwrap().to_string()).collect()
    };
    assert!(kinds(&both).contains(&"duplicate_producer".to_string()), "{:?}", kinds(&both));
    assert!(!kinds(&plain).contains(&"duplicate_producer".to_string()));
}

#[test]
fn adding_a_telemetry_source_never_raises_a_total() {
    let place = Place::small();
    let all = lines();
    let halves: Vec<String> = ["GPU-a", "GPU-b"].map(|device| all.iter().filter(|line| line.contains(device)).cloned().collect()).into();
    place.file("first.prom", &halves[0]);
    place.file("second.prom", &halves[1]);
    let totals = |telemetry: &[&str]| place.report(telemetry)["totals"].clone();
    let none = totals(&[]);
    for telemetry in [&["first.prom"][..], &["second.prom"], &["first.prom", "second.prom"], &["telemetry.prom", "first.prom"]] {
        assert_eq!(totals(telemetry), none, "{telemetry:?}");
    }
}
