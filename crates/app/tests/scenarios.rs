//! Runs every file of `scenarios/`: telemetry, placements and a bill go in, postings computed by hand are expected out.
//!
//! `GPULEDGER_SCENARIO=part-of-a-name` runs some; `GPULEDGER_SCENARIO_KEEP=folder` keeps their input files.

mod scenario;

use std::fs;
use std::path::{Path, PathBuf};

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let mut files: Vec<PathBuf> = fs::read_dir(&folder)
        .expect("the folder scenarios/ stands at the root of the workspace")
        .map(|entry| entry.expect("an entry of scenarios/").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "scn"))
        .collect();
    files.sort();
    files
}

#[test]
fn every_scenario_gives_the_postings_computed_by_hand() {
    let filter = std::env::var("GPULEDGER_SCENARIO").unwrap_or_default();
    let keep = std::env::var_os("GPULEDGER_SCENARIO_KEEP").map(PathBuf::from);
    let files = files();
    let (mut ran, mut failed) = (0, Vec::new());
    for path in &files {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if !name.contains(&filter) {
            continue;
        }
        let text = fs::read_to_string(path).expect("a scenario is UTF-8 text");
        let own = tempfile::tempdir().expect("a folder for the input files");
        let folder = keep.as_ref().map_or_else(|| own.path().to_path_buf(), |keep| keep.join(&name));
        let differences = scenario::check(&text, &folder);
        ran += 1;
        println!("{} {name}", if differences.is_empty() { "ok  " } else { "FAIL" });
        for difference in &differences {
            println!("    {name}.scn:{}: {}", difference.line, difference.message);
        }
        if !differences.is_empty() {
            failed.push(name);
        }
    }
    assert!(!files.is_empty(), "scenarios/ holds no scenario");
    assert!(ran == files.len() || !filter.is_empty(), "{ran} of {} scenarios ran", files.len());
    assert!(failed.is_empty(), "{} of {ran} scenarios differ: {}", failed.len(), failed.join(", "));
}

#[test]
fn the_example_in_the_readme_is_a_scenario_that_holds() {
    let readme = include_str!("../../../scenarios/README.md");
    let (_, rest) = readme.split_once("## The smallest useful file").expect("the README shows a file");
    let lines = rest.lines().skip_while(|line| line.is_empty()).take_while(|line| line.is_empty() || line.starts_with("    "));
    let example: String = lines.map(|line| format!("{}\n", line.strip_prefix("    ").unwrap_or_default())).collect();
    let folder = tempfile::tempdir().expect("a folder for the input files");
    let differences = scenario::check(&example, folder.path());
    assert!(differences.is_empty(), "{differences:?}");
}
