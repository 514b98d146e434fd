//! A world: everything of one seed, and its files.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use gpuledger_model::time::{DAY_MS, format_rfc3339};
use serde_json::json;

use crate::bill::{self, Bills};
use crate::chance::Chance;
use crate::emit::{focus, kubernetes, series, serving, slurm, text};
use crate::fleet::{self, Machine};
use crate::options::{Fault, Options};
use crate::plan::{self, Plan};
use crate::truth::{self, Truth};

/// Everything of one seed.
#[derive(Clone, Debug)]
pub struct World {
    /// Seed.
    pub seed: u64,
    /// What it was asked to be.
    pub options: Options,
    /// Machines.
    pub machines: Vec<Machine>,
    /// Holders and states.
    pub plan: Plan,
    /// Bills.
    pub bills: Bills,
    /// The true ledger.
    pub truth: Truth,
}

/// True waste of a world's dollars, in every currency: between a fifth and four fifths, with a margin.
const WASTE_SHARE: std::ops::Range<f64> = 0.22..0.78;
/// So many plans are tried for a seed; the last one stands whatever its waste.
const ATTEMPTS: u64 = 40;

/// Which files of a world are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fields {
    /// All fields that the world's exporters send.
    Full,
    /// Without any profiling field.
    NoProfiling,
}

impl World {
    /// The world of a seed: the first plan whose true waste is neither small nor all.
    pub fn generate(seed: u64, options: &Options) -> World {
        let mut machines = fleet::fleet(seed, options, &mut Chance::new(seed, 1));
        let bills = bill::bills(seed, &machines, options);
        let mut attempt = 0;
        loop {
            let plan = plan::plan(seed, attempt, &mut machines, options);
            let truth = truth::truth(&machines, &plan, &bills, options);
            attempt += 1;
            let is_fit = truth.totals().keys().all(|currency| WASTE_SHARE.contains(&truth.waste_share(currency)));
            if is_fit || attempt >= ATTEMPTS {
                return World { seed, options: options.clone(), machines, plan, bills, truth };
            }
        }
    }

    /// Writes the world's files into `dir`: `telemetry/`, `placements/`, `bills/`, `truth/`. `progress` is told how
    /// many files of how many are done. A file is whole or not there.
    pub fn write(&self, dir: &Path, fields: Fields, progress: &(dyn Fn(usize, usize) + Sync)) -> io::Result<()> {
        let fields = if self.options.has(Fault::NoProfiling) { Fields::NoProfiling } else { fields };
        clear(dir)?;
        // First, so that a run that was interrupted can be told from somebody's own folder.
        write_whole(&dir.join(SUMMARY), |out| writeln!(out, "{:#}", self.summary()))?;
        let tasks = self.tasks();
        let next = AtomicUsize::new(0);
        let done = AtomicUsize::new(0);
        let failed: Mutex<Option<io::Error>> = Mutex::new(None);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while let Some(task) = tasks.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let has_failed = failed.lock().map(|f| f.is_some()).unwrap_or(true);
                        if has_failed {
                            break;
                        }
                        if let Err(error) = self.perform(*task, dir, fields)
                            && let Ok(mut failed) = failed.lock()
                        {
                            failed.get_or_insert(error);
                        }
                        progress(done.fetch_add(1, Ordering::Relaxed) + 1, tasks.len());
                    }
                });
            }
        });
        match failed.into_inner() {
            Ok(Some(error)) => Err(error),
            Ok(None) => Ok(()),
            Err(_) => Err(io::Error::other("a writer of simulated files stopped")),
        }
    }

    fn tasks(&self) -> Vec<Task> {
        let mut tasks = Vec::new();
        let days = i64::from(self.options.days);
        let textual = self.textual_node_day();
        for machine in 0..self.machines.len() {
            for day in 0..days {
                if self.machines[machine].from_ms >= self.options.start_ms + (day + 1) * DAY_MS {
                    continue;
                }
                if textual == Some((machine, day)) {
                    tasks.push(Task::Text(machine, day));
                } else {
                    tasks.push(Task::Series(machine, day, false));
                }
                if self.options.has(Fault::DuplicateExporter) && machine == self.duplicated() && day == 0 {
                    tasks.push(Task::Series(machine, day, true));
                }
            }
        }
        tasks.extend([Task::Serving, Task::Placements, Task::Bills, Task::Truth]);
        tasks
    }

    /// The node-day that is written as text: the last day of the smallest node that is cut or shared.
    fn textual_node_day(&self) -> Option<(usize, i64)> {
        let machine = (0..self.machines.len()).min_by_key(|at| (self.machines[*at].boards.len(), usize::MAX - at))?;
        Some((machine, i64::from(self.options.days) - 1))
    }

    /// The machine that a second exporter watches.
    fn duplicated(&self) -> usize {
        self.machines.iter().position(|m| m.boards.len() == 8).unwrap_or(0)
    }

    fn perform(&self, task: Task, dir: &Path, fields: Fields) -> io::Result<()> {
        match task {
            Task::Series(machine, day, is_second) => {
                let suffix = if is_second { "-second" } else { "" };
                let node = &self.machines[machine].node;
                let path = dir.join("telemetry").join(format!("{node}-{}{suffix}.parquet", self.date(day)));
                write_whole(&path, |out| series::write(self, machine, day, fields, is_second, out))
            }
            Task::Text(machine, day) => {
                let samples = series::node_day(self, machine, day, fields, false);
                let node = &self.machines[machine].node;
                if self.options.has_scrape_folder {
                    let folder = dir.join("telemetry").join("scrapes").join(node);
                    fs::create_dir_all(&folder)?;
                    text::scrapes(&samples, |seconds, bytes| {
                        write_whole(&folder.join(format!("{seconds}.prom.gz")), |out| text::compress(bytes, out))
                    })
                } else {
                    let path = dir.join("telemetry").join(format!("{node}-{}.prom", self.date(day)));
                    write_whole(&path, |out| text::exposition(&samples, out))
                }
            }
            Task::Serving => write_whole(&dir.join("telemetry").join("vllm.parquet"), |out| serving::write_requests(self, out))
                .and_then(|()| write_whole(&dir.join("telemetry").join("containers.parquet"), |out| serving::write_containers(self, out))),
            Task::Placements => {
                write_whole(&dir.join("gpuledger.toml"), |out| out.write_all(self.configuration().as_bytes()))?;
                self.write_placements(&dir.join("placements"))
            }
            Task::Bills => {
                for bill in &self.bills.bills {
                    write_whole(&dir.join("bills").join(&bill.file), |out| focus::write_file(bill, out))?;
                }
                match &self.bills.earlier {
                    Some(bill) => write_whole(&dir.join("earlier").join(&bill.file), |out| focus::write_file(bill, out)),
                    None => Ok(()),
                }
            }
            Task::Truth => write_whole(&dir.join("truth").join("ledger.csv"), |out| self.truth.write(out)),
        }
    }

    /// The clusters, by name.
    pub fn clusters(&self) -> Vec<&'static str> {
        let mut clusters: Vec<&str> = self.machines.iter().map(|m| m.cluster).collect();
        clusters.sort_unstable();
        clusters.dedup();
        clusters
    }

    /// A configuration that names the world's inputs, for `gpuledger report --config`.
    fn configuration(&self) -> String {
        let mut text =
            String::from("# Simulated data.\nsimulated = true\n\n[[bills]]\npath = \"bills\"\n\n[[telemetry]]\npath = \"telemetry\"\n");
        for cluster in self.clusters() {
            text.push_str(&format!("\n[[placements]]\npath = \"placements/{cluster}\"\ncluster = \"{cluster}\"\n"));
        }
        text
    }

    fn write_placements(&self, dir: &Path) -> io::Result<()> {
        for cluster in self.clusters() {
            let folder = dir.join(cluster);
            match self.machines.iter().find(|m| m.cluster == cluster).map(|m| m.scheduler) {
                Some(fleet::Scheduler::Slurm) => {
                    write_whole(&folder.join("sacct.txt"), |out| slurm::write_accounting(self, cluster, out))?;
                    write_whole(&folder.join("scontrol-job.txt"), |out| slurm::write_jobs(self, cluster, out))?;
                    write_whole(&folder.join("scontrol-node.txt"), |out| slurm::write_nodes(self, cluster, out))?;
                }
                _ => write_whole(&folder.join("kubectl.json"), |out| kubernetes::write(self, cluster, out))?,
            }
        }
        Ok(())
    }

    fn date(&self, day: i64) -> String {
        format_rfc3339(self.options.start_ms + day * DAY_MS).chars().take(10).collect()
    }

    /// What the world is, in figures.
    pub fn summary(&self) -> serde_json::Value {
        let totals = self.truth.totals();
        let text = |amounts: &std::collections::BTreeMap<String, gpuledger_model::money::Decimal>| {
            amounts.iter().map(|(currency, sum)| (currency.clone(), json!(sum.to_string()))).collect::<serde_json::Map<_, _>>()
        };
        json!({
            "schema": "gpuledger.world/1",
            "simulated": true,
            "seed": self.seed,
            "gpus": self.machines.iter().map(|m| m.boards.len()).sum::<usize>(),
            "machines": self.machines.len(),
            "days": self.options.days,
            "from": format_rfc3339(self.options.start_ms),
            "to": format_rfc3339(self.options.end_ms()),
            "faults": self.options.faults.iter().map(|f| f.as_str()).collect::<Vec<_>>(),
            "dollars": text(&totals),
            "gap_dollars": text(&self.truth.gaps),
            "true_waste_share": totals.keys().map(|c| (c.clone(), json!(self.truth.waste_share(c)))).collect::<serde_json::Map<_, _>>(),
        })
    }
}

#[derive(Clone, Copy, Debug)]
enum Task {
    /// Machine, day, by the second exporter.
    Series(usize, i64, bool),
    Text(usize, i64),
    Serving,
    Placements,
    Bills,
    Truth,
}

/// Says what the world is, and that the folder is ours.
const SUMMARY: &str = "truth/world.json";

/// Removes an earlier world. A folder that holds such folders of somebody else is left alone.
fn clear(dir: &Path) -> io::Result<()> {
    let is_ours = dir.join(SUMMARY).is_file();
    for name in ["telemetry", "placements", "bills", "earlier", "truth"] {
        let folder = dir.join(name);
        if folder.exists() && !is_ours {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                format!("{} is there and no simulated world; give an empty folder", folder.display()),
            ));
        }
    }
    for name in ["telemetry", "placements", "bills", "earlier", "truth"] {
        let folder = dir.join(name);
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
    }
    Ok(())
}

/// Writes a file under another name first, so that an interrupted run leaves no half of it.
fn write_whole(path: &Path, write: impl FnOnce(&mut BufWriter<fs::File>) -> io::Result<()>) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    // Names that begin with a dot are nobody's input.
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let partial: PathBuf = path.with_file_name(format!(".{name}.partial"));
    let mut out = BufWriter::with_capacity(1 << 18, fs::File::create(&partial)?);
    let outcome = write(&mut out).and_then(|()| out.flush());
    drop(out);
    match outcome {
        Ok(()) => fs::rename(&partial, path),
        Err(error) => {
            let _ = fs::remove_file(&partial);
            Err(error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuledger_model::money::Decimal;

    #[test]
    fn sim_2_the_truth_sums_to_the_bills_exactly() {
        for seed in 0..6 {
            let mut options = Options::score(seed);
            options.faults.insert(Fault::LateBill);
            options.has_second_currency = seed % 2 == 0;
            let world = World::generate(seed, &options);
            let mut sums: std::collections::BTreeMap<String, Decimal> = Default::default();
            let mut add = |currency: &str, amount: Decimal| {
                let sum = sums.entry(currency.to_string()).or_insert(Decimal::ZERO);
                *sum = sum.checked_add(amount).unwrap();
            };
            for bill in &world.bills.bills {
                bill.rows.iter().for_each(|row| add(bill.currency, row.effective));
            }
            world.bills.estimates.iter().for_each(|e| add("USD", e.amount));
            assert_eq!(gpuledger_model::invariant::sim_2(&sums, &world.truth.totals()), Ok(()), "seed {seed}");
        }
    }

    #[test]
    fn a_fifth_to_four_fifths_of_a_worlds_dollars_are_waste() {
        for seed in 0..20 {
            let world = World::generate(seed, &Options::score(seed));
            let share = world.truth.waste_share("USD");
            assert!((0.2..0.8).contains(&share), "seed {seed}: {share}");
        }
    }

    #[test]
    fn a_world_replaces_a_world_and_nothing_else() {
        let dir = std::env::temp_dir().join(format!("gpuledger-sim-clear-{}", std::process::id()));
        let world = World::generate(3, &Options::score(3));
        world.write(&dir, Fields::Full, &|_, _| ()).unwrap();
        fs::write(dir.join("telemetry").join("stale.parquet"), b"").unwrap();
        world.write(&dir, Fields::Full, &|_, _| ()).unwrap();
        assert!(!dir.join("telemetry").join("stale.parquet").exists());
        fs::remove_file(dir.join(SUMMARY)).unwrap();
        assert_eq!(world.write(&dir, Fields::Full, &|_, _| ()).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn sim_1_one_seed_writes_the_same_bytes() {
        let dir = std::env::temp_dir().join(format!("gpuledger-sim-{}", std::process::id()));
        let read = |name: &str| {
            let folder = dir.join(name);
            World::generate(11, &Options::score(11)).write(&folder, Fields::Full, &|_, _| ()).unwrap();
            let mut files = std::collections::BTreeMap::new();
            let mut stack = vec![folder.clone()];
            while let Some(at) = stack.pop() {
                for entry in fs::read_dir(at).unwrap() {
                    let path = entry.unwrap().path();
                    if path.is_dir() {
                        stack.push(path);
                    } else {
                        files.insert(path.strip_prefix(&folder).unwrap().display().to_string(), fs::read(&path).unwrap());
                    }
                }
            }
            files
        };
        let (first, second) = (read("a"), read("b"));
        assert!(first.len() > 10);
        assert_eq!(gpuledger_model::invariant::sim_1(&first, &second), Ok(()));
        fs::remove_dir_all(&dir).unwrap();
    }
}
