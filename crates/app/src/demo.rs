//! `gpuledger demo`: a simulated fleet, the whole job on its files, and the report.

use std::fs;
use std::path::Path;

use gpuledger_ingest::owners;
use gpuledger_sim::{Fields, World, demo_options};

use crate::cli::DemoArgs;
use crate::exit::{Exit, Failure};
use crate::output::{write_file, write_result};
use crate::pipeline::{self, Settings};
use crate::progress::Progress;
use crate::render;
use crate::report::ReportOptions;
use crate::report::dimension::Key;
use crate::report_command::{report_of, show};
use crate::simulate;

/// Teams of the simulated fleet, as a user would write them.
const OWNERS_TOML: &str = r#"# Owners of the simulated fleet: the first rule whose conditions all hold wins.
[[rule]]
namespace = "research"
team = "foundation-models"
unit = "research"

[[rule]]
account = "research"
team = "foundation-models"
unit = "research"

[[rule]]
namespace = "vision"
team = "perception"
unit = "research"

[[rule]]
account = "vision"
team = "perception"
unit = "research"

[[rule]]
namespace = "speech"
team = "voice"
unit = "product"

[[rule]]
account = "speech"
team = "voice"
unit = "product"

[[rule]]
namespace = "serving"
team = "inference"
unit = "product"

[[rule]]
namespace = "notebooks"
team = "data-science"
unit = "product"
"#;

/// Runs the command.
pub fn run(args: &DemoArgs) -> Result<Exit, Failure> {
    let mut options = demo_options();
    options.gpus = args.gpus.unwrap_or(options.gpus).clamp(1, 4_096);
    options.days = args.days.unwrap_or(options.days).clamp(1, 26);
    let data = args.out.join("data");
    clear_earlier(&data)?;
    let progress = Progress::on_stderr();
    progress.stage("planning the simulated fleet");
    let world = World::generate(args.seed, &options);
    simulate::write_world(&world, &data, Fields::Full, &progress)?;
    write_file(&data.join("owners.toml"), OWNERS_TOML.as_bytes())?;

    let request = simulate::request(&world, &data);
    let outcome = pipeline::run(&request, &Settings::default(), &mut |step| show(&progress, step))?;
    progress.finish();
    let owners = owners::parse("owners.toml", OWNERS_TOML.as_bytes())
        .map_err(|rejects| Failure::new(Exit::Unexpected, format!("read the demo's owners: {rejects:?}")))?;
    let options = ReportOptions { window: None, by: vec![Key::Team], filter: None, timezone: jiff::tz::TimeZone::UTC };
    let report = report_of(&outcome, Some(&owners), &options, true)?;
    let json = report.to_json().map_err(|error| Failure::new(Exit::Unexpected, format!("write the report as JSON: {error}")))?;
    let (html_path, json_path) = (args.out.join("report.html"), args.out.join("report.json"));
    write_file(&html_path, render::html::render(&report).as_bytes())?;
    write_file(&json_path, json.as_bytes())?;
    let mut text = render::table::render(&report);
    text.push_str(&format!(
        "\nThese data are simulated: seed {}, nothing here is a real bill.\n  page    {}\n  JSON    {}\n  inputs  {} (with the true ledger in truth/)\nThe same on your own files: gpuledger report --help\n",
        args.seed,
        html_path.display(),
        json_path.display(),
        data.display()
    ));
    write_result(None, &text)?;
    Ok(Exit::Done)
}

/// Removes what an earlier demo wrote, and only that: the folder must hold the marker of a simulated world.
fn clear_earlier(data: &Path) -> Result<(), Failure> {
    if !data.exists() {
        return Ok(());
    }
    if !data.join("truth").join("world.json").exists() {
        let empty = fs::read_dir(data).map(|mut entries| entries.next().is_none()).unwrap_or(false);
        if !empty {
            return Err(Failure::output(format!("write to {}: it exists and is no simulated world", data.display()))
                .with_hint("give another folder with --out"));
        }
    }
    for part in ["bills", "telemetry", "placements", "truth"] {
        let path = data.join(part);
        if path.exists() {
            fs::remove_dir_all(&path).map_err(|error| Failure::output(format!("clear {}: {error}", path.display())))?;
        }
    }
    Ok(())
}
