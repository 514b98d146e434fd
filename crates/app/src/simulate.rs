//! `gpuledger sim`: worlds whose true ledger is known, and how near the program comes to it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use gpuledger_model::tables::posting::Ledger;
use gpuledger_sim::score::{Difference, Score, compare, differences};
use gpuledger_sim::{Fault, Fields, Options, World};
use gpuledger_store::discover::PathSpec;
use gpuledger_store::inputs::Request;
use serde_json::{Value, json};

use crate::cli::{ListFormat, SeedRange, SimScoreArgs, SimWriteArgs};
use crate::exit::Failure;
use crate::output::while_writing_folder;
use crate::pipeline;
use crate::progress::Progress;

/// Boards of a written world, where the user does not say.
const GPUS: u32 = 64;
/// Days of a written world, where the user does not say.
const DAYS: u32 = 1;
/// Differences shown of each world.
const SHOWN: usize = 5;

/// `gpuledger sim write`: writes a world and says what it is.
pub fn write(args: &SimWriteArgs, progress: &Progress) -> Result<String, Failure> {
    let mut options = Options::new(args.gpus.unwrap_or(GPUS), args.days.unwrap_or(DAYS));
    if args.gpus == Some(0) || args.days == Some(0) {
        return Err(Failure::usage("simulate a fleet of nothing").with_hint("give at least one accelerator and one day"));
    }
    for name in &args.faults {
        options.faults.insert(fault(name)?);
    }
    progress.stage("planning the fleet");
    let world = World::generate(args.seed, &options);
    write_world(&world, &args.out, Fields::Full, progress)?;
    progress.finish();
    Ok(format!("{:#}\n", world.summary()))
}

fn fault(name: &str) -> Result<Fault, Failure> {
    let names: Vec<&str> = Fault::ALL.iter().map(|f| f.as_str()).collect();
    let unknown = || Failure::usage(format!("simulate the fault {name:?}: not known")).with_hint(format!("one of {}", names.join(", ")));
    Fault::from_name(name).ok_or_else(unknown)
}

/// Writes a world's files, with progress.
pub fn write_world(world: &World, dir: &Path, fields: Fields, progress: &Progress) -> Result<(), Failure> {
    progress.stage("writing the simulated fleet");
    let is_counted = std::sync::Once::new();
    let step = |_: usize, steps: usize| {
        is_counted.call_once(|| progress.counted_stage("writing the simulated fleet", steps as u64));
        progress.step();
    };
    while_writing_folder(dir, || world.write(dir, fields, &step)).map_err(|error| {
        Failure::output(format!("write the simulated fleet to {}: {error}", dir.display())).with_hint("check the folder and its free space")
    })
}

/// The inputs of a written world, as `gpuledger report` would be given them.
pub fn request(world: &World, dir: &Path) -> Request {
    let spec = |path: PathBuf, cluster: Option<&str>| PathSpec {
        path: path.display().to_string(),
        kind: None,
        cluster: cluster.map(str::to_string),
    };
    Request {
        bills: vec![spec(dir.join("bills"), None)],
        telemetry: vec![spec(dir.join("telemetry"), None)],
        placements: world.clusters().into_iter().map(|cluster| spec(dir.join("placements").join(cluster), Some(cluster))).collect(),
        ..Request::default()
    }
}

/// One world under one set of fields.
#[derive(Clone, Debug)]
pub struct ScoredWorld {
    /// Seed.
    pub seed: u64,
    /// Fields that were sent.
    pub fields: Fields,
    /// Its score.
    pub score: Score,
    /// What is furthest from the truth.
    pub differences: Vec<Difference>,
}

/// `gpuledger sim score`: the text of the result.
pub fn score(args: &SimScoreArgs, progress: &Progress) -> Result<String, Failure> {
    let worlds = score_worlds(args.seeds, progress, |world, dir| {
        pipeline::run(&request(world, dir), &pipeline::Settings::default(), &mut |_| ()).map(|outcome| outcome.ledger)
    })?;
    progress.finish();
    Ok(match args.format {
        ListFormat::Json => format!("{:#}\n", as_json(&worlds)),
        ListFormat::Table => as_table(&worlds),
    })
}

/// Scores each seed with all fields and without profiling fields. `ledger_of` runs the main job on the files of a world.
pub fn score_worlds(
    seeds: SeedRange,
    progress: &Progress,
    ledger_of: impl Fn(&World, &Path) -> Result<Ledger, Failure>,
) -> Result<Vec<ScoredWorld>, Failure> {
    let mut scored = Vec::new();
    progress.counted_stage("scoring simulated worlds", (seeds.last - seeds.first + 1) * 2);
    for seed in seeds.first..=seeds.last {
        let world = World::generate(seed, &Options::score(seed));
        for fields in [Fields::Full, Fields::NoProfiling] {
            let folder = ScratchFolder::create()?;
            world
                .write(&folder.path, fields, &|_, _| ())
                .map_err(|error| Failure::output(format!("write a simulated world to {}: {error}", folder.path.display())))?;
            let ledger = ledger_of(&world, &folder.path)?;
            let score = compare(&world.truth, &ledger.postings).remove(CURRENCY).unwrap_or_else(Score::empty);
            scored.push(ScoredWorld { seed, fields, score, differences: differences(&world.truth, &ledger.postings) });
            progress.step();
        }
    }
    Ok(scored)
}

/// Scored worlds are billed in one currency.
const CURRENCY: &str = "USD";

fn word(fields: Fields) -> &'static str {
    match fields {
        Fields::Full => "full",
        Fields::NoProfiling => "no_profiling",
    }
}

/// `gpuledger.score/1`.
pub fn as_json(worlds: &[ScoredWorld]) -> Value {
    let worlds: Vec<Value> = worlds
        .iter()
        .map(|world| {
            json!({
                "seed": world.seed,
                "fields": word(world.fields),
                "dollars": world.score.dollars.to_string(),
                "misattributed_share": world.score.misattributed_share,
                "false_waste_share": world.score.false_waste_share,
                "unobserved_share": world.score.unobserved_share,
                "gap_share": world.score.gap_share,
                "true_waste_share": world.score.true_waste_share,
                "idle_recall": world.score.idle_recall,
            })
        })
        .collect();
    json!({"schema": "gpuledger.score/1", "worlds": worlds})
}

fn as_table(worlds: &[ScoredWorld]) -> String {
    let mut out =
        String::from("seed  fields             dollars  misattributed  false waste  unknown  not sent  true waste  idle recall\n");
    for world in worlds {
        let score = &world.score;
        out.push_str(&format!(
            "{:>4}  {:<12} {:>13}  {:>13}  {:>11}  {:>7}  {:>8}  {:>10}  {:>11}\n",
            world.seed,
            word(world.fields),
            score.dollars.rounded(2).to_string(),
            percent(score.misattributed_share),
            percent(score.false_waste_share),
            percent(score.unobserved_share),
            percent(score.gap_share),
            percent(score.true_waste_share),
            percent(score.idle_recall),
        ));
        for difference in world.differences.iter().take(SHOWN) {
            out.push_str(&format!(
                "        {:>10} beyond the truth: {} posted {}, truly {}, {}\n",
                difference.beyond.rounded(2).to_string(),
                difference.cause,
                difference.posted_amount.rounded(2),
                difference.true_amount.rounded(2),
                if difference.holder.is_empty() { "nobody" } else { &difference.holder },
            ));
        }
    }
    out
}

fn percent(share: f64) -> String {
    format!("{:.2} %", share * 100.0)
}

/// A folder of our own under the system's temporary one, removed at the end.
struct ScratchFolder {
    path: PathBuf,
}

impl ScratchFolder {
    fn create() -> Result<ScratchFolder, Failure> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("gpuledger-score-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).map_err(|error| Failure::output(format!("create {}: {error}", path.display())))?;
        Ok(ScratchFolder { path })
    }
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_score_has_the_documented_shape_and_an_empty_ledger_finds_nothing() {
        let seeds = SeedRange { first: 3, last: 3 };
        let worlds = score_worlds(seeds, &Progress::hidden(), |world, dir| {
            for path in request(world, dir).placements {
                assert!(Path::new(&path.path).is_dir(), "{}", path.path);
            }
            Ok(Ledger::default())
        })
        .unwrap();
        let json = as_json(&worlds);
        assert_eq!(json["schema"], "gpuledger.score/1");
        assert_eq!(json["worlds"].as_array().unwrap().len(), 2);
        assert_eq!(json["worlds"][1]["fields"], "no_profiling");
        assert!(json["worlds"][0]["dollars"].is_string());
        assert_eq!(json["worlds"][0]["idle_recall"], 0.0);
        assert_eq!(json["worlds"][0]["false_waste_share"], 0.0);
        let keys: Vec<&str> = json["worlds"][0].as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(
            keys,
            [
                "seed",
                "fields",
                "dollars",
                "misattributed_share",
                "false_waste_share",
                "unobserved_share",
                "gap_share",
                "true_waste_share",
                "idle_recall",
            ]
        );
    }

    #[test]
    fn an_unknown_fault_is_refused_with_those_known() {
        let failure = fault("bit_rot").unwrap_err();
        assert!(failure.to_string().contains("exporter_30s"));
    }
}
