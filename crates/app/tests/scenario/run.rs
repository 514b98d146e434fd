//! The one place where scenarios touch the program's inside.

use std::path::Path;

use gpuledger::pipeline::{Settings, run as run_pipeline};
use gpuledger_ingest::focus::{Assume, Deliveries};
use gpuledger_model::tables::posting::Ledger;
use gpuledger_model::tables::reject::Reject;
use gpuledger_store::discover::PathSpec;
use gpuledger_store::inputs::Request;
use jiff::tz::TimeZone;

use super::inputs::Inputs;

/// What came out.
pub struct Run {
    pub ledger: Ledger,
    pub rejects: Vec<Reject>,
}

/// Runs the main job on the files of a folder.
pub fn run(folder: &Path, inputs: &Inputs) -> Result<Run, String> {
    let specs = |kind: &str| -> Vec<PathSpec> { inputs.paths(folder, kind).iter().map(|path| PathSpec::parse(path)).collect() };
    let option = |key: &str| inputs.options.get(key).map(String::as_str);
    let file = |name: &str| Some(folder.join(name)).filter(|path| path.exists());
    let mut request = Request {
        bills: specs("bills"),
        telemetry: specs("telemetry"),
        placements: specs("placements"),
        mapping: file("mapping.csv"),
        run_label: option("run_label").map(str::to_string),
        ..Request::default()
    };
    if let Some(cluster) = inputs.only_cluster() {
        request.cluster = cluster.to_string();
    }
    if let Some(text) = option("assume") {
        request.assume = Assume::parse(text)?;
    }
    if let Some(zone) = option("slurm_timezone") {
        request.slurm_zone = TimeZone::get(zone).map_err(|error| error.to_string())?;
    }
    let deliveries = match option("deliveries") {
        None => Deliveries::default(),
        Some("add") => Deliveries::Add,
        Some("latest") => Deliveries::Latest,
        Some(other) => return Err(format!("deliveries are add or latest, not {other}")),
    };
    let settings = Settings { prices: file("prices.csv"), deliveries, ..Settings::default() };
    let outcome = run_pipeline(&request, &settings, &mut |_| {}).map_err(|failure| format!("{failure:?}"))?;
    Ok(Run { ledger: outcome.ledger, rejects: outcome.rejects })
}
