//! The input files of a scenario: gathered from its sections, varied, and written to a folder.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;

use super::bill::{self, BillFile};
use super::format::{Read, Scenario, mistake};
use super::kubernetes;
use super::telemetry::{self, Form, Sample, Target, exposition};

/// Everything that is written to files.
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    targets: Vec<Target>,
    bills: Vec<BillFile>,
    /// Other files: path and text.
    texts: Vec<(String, String)>,
    /// Clusters that paths are given with: folder (`telemetry`, `placements`) and name.
    clusters: BTreeSet<(&'static str, String)>,
    /// `key = value` of `== options`.
    pub options: BTreeMap<String, String>,
}

/// The names of variations.
pub const VARIATIONS: &[&str] = &["shuffled", "split", "repeated", "renamed", "labelled", "reordered", "scrapes"];

/// Gathers the inputs of a scenario.
pub fn gather(scenario: &Scenario) -> Read<Inputs> {
    let mut inputs = Inputs::default();
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for section in &scenario.sections {
        let count = counts.entry(section.name.clone()).or_default();
        *count += 1;
        let raw = || section.lines.iter().map(|line| format!("{}\n", line.text)).collect::<String>();
        match section.name.as_str() {
            "telemetry" => {
                for target in telemetry::read(scenario, section)? {
                    if let Some(cluster) = &target.cluster {
                        inputs.clusters.insert(("telemetry", cluster.clone()));
                    }
                    let is_same = |t: &&mut Target| t.name == target.name && t.form == target.form && t.cluster == target.cluster;
                    match inputs.targets.iter_mut().find(is_same) {
                        Some(own) => {
                            own.samples.extend(target.samples);
                            own.scrapes_ms.extend(target.scrapes_ms);
                        }
                        None => inputs.targets.push(target),
                    }
                }
            }
            "kubernetes" | "sacct" | "scontrol job" | "scontrol node" | "inventory" => {
                let default = (section.name == "kubernetes").then(|| "west".to_string());
                let folder = match section.options.get("cluster").cloned().or(default) {
                    Some(cluster) => {
                        inputs.clusters.insert(("placements", cluster.clone()));
                        format!("placements/{cluster}")
                    }
                    None => "placements".to_string(),
                };
                let (ending, text) = match section.name.as_str() {
                    "kubernetes" => ("json", kubernetes::read(scenario, section)?),
                    "inventory" => ("csv", raw()),
                    _ => ("txt", raw()),
                };
                inputs.texts.push((format!("{folder}/{}-{count}.{ending}", section.name.replace(' ', "-")), text));
            }
            "bill" => {
                let name = section.options.get("file").cloned().unwrap_or_else(|| format!("bill-{count}.csv"));
                inputs.bills.push(bill::read(scenario, section, name)?);
            }
            "prices" => inputs.texts.push(("prices.csv".into(), raw())),
            "owners" => inputs.texts.push(("owners.toml".into(), raw())),
            "mapping" => inputs.texts.push(("mapping.csv".into(), raw())),
            "file" => {
                let path = section.head.clone();
                if path.is_empty() || path.starts_with('/') || path.split('/').any(|part| part == "..") {
                    return mistake(section.line, "a file has a path below the scenario's folder");
                }
                inputs.texts.push((path, raw()));
            }
            "options" => {
                for line in &section.lines {
                    let Some((key, value)) = line.text.split_once('=') else {
                        return mistake(line.number, "an option is written key = value");
                    };
                    inputs.options.insert(key.trim().into(), value.trim().into());
                }
            }
            _ => {}
        }
    }
    for target in &mut inputs.targets {
        // Metrics in a fixed order, each metric's samples together, as exporters write them.
        target.samples.sort();
    }
    Ok(inputs)
}

impl Inputs {
    /// The paths of a folder as a user gives them, those of clusters first.
    pub fn paths(&self, folder: &Path, kind: &str) -> Vec<String> {
        let clusters = self.clusters.iter().filter(|cluster| cluster.0 == kind).map(|cluster| cluster.1.as_str());
        let mut paths: Vec<String> = clusters.map(|cluster| format!("@{cluster}={}", folder.join(kind).join(cluster).display())).collect();
        paths.push(folder.join(kind).display().to_string());
        paths
    }

    /// The one cluster of the placements, for telemetry that names none.
    pub fn only_cluster(&self) -> Option<&str> {
        let mut names = self.clusters.iter().map(|cluster| cluster.1.as_str()).collect::<BTreeSet<_>>().into_iter();
        names.next().filter(|_| names.next().is_none())
    }

    /// Writes all files below a folder.
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        for kind in ["telemetry", "placements", "bills"] {
            fs::create_dir_all(folder.join(kind))?;
        }
        for target in &self.targets {
            let place = folder.join("telemetry").join(target.cluster.as_deref().unwrap_or_default());
            match target.form {
                Form::Text => put(&place.join(format!("{}.prom", target.name)), &exposition(&target.samples, true))?,
                Form::Scrapes => {
                    let mut scrapes: BTreeMap<i64, Vec<Sample>> = target.scrapes_ms.iter().map(|time| (*time, Vec::new())).collect();
                    for sample in &target.samples {
                        scrapes.entry(sample.time_ms).or_default().push(sample.clone());
                    }
                    for (time_ms, samples) in scrapes {
                        put(&place.join(&target.name).join(format!("{}.prom", time_ms / 1000)), &exposition(&samples, false))?;
                    }
                }
            }
        }
        for bill in &self.bills {
            put(&folder.join("bills").join(&bill.name), &bill.text())?;
        }
        for (path, text) in &self.texts {
            put(&folder.join(path), text)?;
        }
        Ok(())
    }

    /// The same facts, written in another way.
    pub fn varied(&self, variation: &str) -> Inputs {
        let mut inputs = self.clone();
        match variation {
            "shuffled" => {
                for target in &mut inputs.targets {
                    shuffle(&mut target.samples);
                }
                for bill in &mut inputs.bills {
                    shuffle(&mut bill.rows);
                }
            }
            "split" => {
                inputs.bills = inputs.bills.iter().flat_map(split_bill).collect();
                inputs.targets = inputs.targets.iter().flat_map(split_target).collect();
            }
            "repeated" => {
                let copies: Vec<BillFile> =
                    inputs.bills.iter().map(|bill| BillFile { name: format!("again-{}", bill.name), ..bill.clone() }).collect();
                inputs.bills.extend(copies);
                for target in &mut inputs.targets {
                    let copies = target.samples.clone();
                    target.samples.extend(copies);
                    target.samples.sort();
                }
            }
            "renamed" => {
                for sample in inputs.targets.iter_mut().flat_map(|target| &mut target.samples) {
                    sample.metric = telemetry::renamed(&sample.metric).to_string();
                }
            }
            "labelled" => {
                for sample in inputs.targets.iter_mut().flat_map(|target| &mut target.samples) {
                    sample.labels.push(("rack".into(), "r7".into()));
                    sample.labels.push(("pci_bus_id".into(), "00000000:1A:00.0".into()));
                }
            }
            "reordered" => {
                let count = inputs.bills.len();
                for (at, bill) in inputs.bills.iter_mut().enumerate() {
                    bill.name = format!("{:02}-{}", count - at, bill.name);
                }
                for (path, _) in &mut inputs.texts {
                    if let Some((folder, name)) = path.rsplit_once('/') {
                        *path = format!("{folder}/z-{name}");
                    }
                }
            }
            "scrapes" => {
                for target in &mut inputs.targets {
                    target.form = Form::Scrapes;
                }
            }
            _ => {}
        }
        inputs
    }
}

fn put(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, text)
}

/// Another order, always the same one: every seventh, from the end.
fn shuffle<T>(rows: &mut Vec<T>) {
    let mut piles: Vec<Vec<T>> = (0..7).map(|_| Vec::new()).collect();
    for (at, row) in std::mem::take(rows).into_iter().enumerate() {
        piles[(at * 5 + at / 7) % 7].push(row);
    }
    for pile in piles.into_iter().rev() {
        rows.extend(pile.into_iter().rev());
    }
}

fn split_bill(bill: &BillFile) -> Vec<BillFile> {
    let half = bill.rows.len().div_ceil(2).max(1);
    let parts = bill.rows.chunks(half).enumerate();
    parts
        .map(|(at, rows)| BillFile { name: format!("part-{at}-{}", bill.name), columns: bill.columns.clone(), rows: rows.to_vec() })
        .collect()
}

/// In another folder, under the same name: a target's name is part of what its series are.
fn split_target(target: &Target) -> Vec<Target> {
    if target.form == Form::Scrapes {
        return vec![target.clone()];
    }
    let mut parts = vec![Target { name: target.name.clone(), samples: Vec::new(), ..target.clone() }; 2];
    parts[1].name = format!("second/{}", target.name);
    for (at, sample) in target.samples.iter().enumerate() {
        parts[at % 2].samples.push(sample.clone());
    }
    parts
}
