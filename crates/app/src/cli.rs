//! The command line, as typed. Nothing is opened or looked up here; [`crate::config`] gives it its meaning.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use gpuledger_ingest::focus::Deliveries;

/// Posts every invoiced GPU dollar exactly once: to useful work or to a named cause of waste, and to an owner.
#[derive(Debug, Parser)]
#[command(name = "gpuledger", version, max_term_width = 100, propagate_version = true)]
#[command(after_help = "Exit codes: 0 done, 1 unexpected, 2 usage, 3 input, 4 a scope was refused, 5 output, 130 interrupted.\n\
                        Manual: docs/REPORT.md")]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Bills, telemetry and placements in; where every dollar went out.
    Report(Box<ReportArgs>),
    /// Normalise and close bills, without telemetry.
    Bills(BillsArgs),
    /// The windows, holdings and bill rows behind a finding.
    Evidence(Box<EvidenceArgs>),
    /// Seeded fleets whose true ledger is known.
    #[command(subcommand)]
    Sim(SimCommand),
    /// Simulate a fleet, run the whole job on it, write the report.
    Demo(DemoArgs),
}

/// Where inputs come from. Flags stand above the configuration file, kind of flag by kind of flag.
#[derive(Debug, Default, Args)]
pub struct InputArgs {
    /// A bill: file, folder or glob; focus=PATH forces the kind.
    #[arg(long, value_name = "PATH")]
    pub bills: Vec<String>,
    /// Telemetry: file, folder or glob; KIND=PATH forces the kind (prometheus, series), KIND@CLUSTER=PATH the cluster too.
    #[arg(long, value_name = "PATH")]
    pub telemetry: Vec<String>,
    /// Placements: file, folder or glob; KIND=PATH forces the kind (kubernetes, sacct, scontrol-job, scontrol-node,
    /// inventory), KIND@CLUSTER=PATH or @CLUSTER=PATH the cluster.
    #[arg(long, value_name = "PATH")]
    pub placements: Vec<String>,
    /// List prices that stand before the bundled ones (columns of gpu_instances.csv).
    #[arg(long, value_name = "FILE")]
    pub prices: Option<PathBuf>,
    /// Rules of ownership (TOML): namespace, label, account -> team -> business unit.
    #[arg(long, value_name = "FILE")]
    pub owners: Option<PathBuf>,
    /// Inventory (CSV): node, instance id, from, to.
    #[arg(long, value_name = "FILE")]
    pub mapping: Option<PathBuf>,
    /// Rule book (TOML) instead of the shipped one: thresholds, ratios and waits.
    #[arg(long, value_name = "FILE")]
    pub rules: Option<PathBuf>,
    /// Keep what was read in this folder, and read only what changed next time.
    #[arg(long, value_name = "DIR")]
    pub store: Option<PathBuf>,
    /// Cluster of inputs that name none.
    #[arg(long, value_name = "NAME")]
    pub cluster: Option<String>,
    /// What bills without these columns mean: currency=USD,account=X,time=RFC3339.
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',')]
    pub assume: Vec<String>,
    /// When a second delivery of a scope is suspected: refuse, add or latest.
    #[arg(long, value_name = "HOW")]
    pub deliveries: Option<Deliveries>,
    /// Zone of times in Slurm's text, such as Europe/Berlin; UTC if not given.
    #[arg(long, value_name = "ZONE")]
    pub slurm_timezone: Option<String>,
    /// Label whose value joins pods into one run, where no owner does.
    #[arg(long, value_name = "KEY")]
    pub run_label: Option<String>,
    /// Configuration file; ./gpuledger.toml is read if it is there.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// `gpuledger report`.
#[derive(Debug, Default, Args)]
pub struct ReportArgs {
    /// Inputs.
    #[command(flatten)]
    pub inputs: InputArgs,
    /// today, yesterday, week, month, lastweek, lastmonth, 12h, 7d, or FROM,TO; all data if not given.
    #[arg(long, value_name = "W")]
    pub window: Option<String>,
    /// One or two keys: cause, class, team, unit, namespace, account, billing_account, run, workload, machine,
    /// device, model, cluster, provider, label:NAME.
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    pub by: Vec<String>,
    /// OpenCost's filter language, version 2: `namespace:"a"+label[app]:"x"`.
    #[arg(long, value_name = "F")]
    pub filter: Option<String>,
    /// Zone in which days begin; UTC if not given.
    #[arg(long, value_name = "ZONE")]
    pub timezone: Option<String>,
    /// Form of the result; by default that of --out's ending, else table.
    #[arg(long, value_name = "FORM")]
    pub format: Option<ReportFormat>,
    /// Write to this file instead of standard output.
    #[arg(long, value_name = "PATH")]
    pub out: Option<PathBuf>,
    /// Take this time as now, for --window (RFC 3339).
    #[arg(long, value_name = "TIME")]
    pub now: Option<String>,
}

/// `gpuledger bills`.
#[derive(Debug, Default, Args)]
pub struct BillsArgs {
    /// Bills: files, folders or globs; focus=PATH forces the kind.
    #[arg(value_name = "PATH", required = true)]
    pub paths: Vec<String>,
    /// Form of the result.
    #[arg(long, value_name = "FORM", default_value = "table")]
    pub format: ListFormat,
    /// What bills without these columns mean: currency=USD,account=X,time=RFC3339.
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',')]
    pub assume: Vec<String>,
    /// When a second delivery of a scope is suspected: refuse, add or latest.
    #[arg(long, value_name = "HOW", default_value = "refuse")]
    pub deliveries: Deliveries,
    /// Write to this file instead of standard output.
    #[arg(long, value_name = "PATH")]
    pub out: Option<PathBuf>,
}

/// `gpuledger evidence`.
#[derive(Debug, Default, Args)]
pub struct EvidenceArgs {
    /// Id of the finding, as the report prints it.
    #[arg(value_name = "FINDING")]
    pub finding: String,
    /// Inputs, or the folder that keeps them.
    #[command(flatten)]
    pub inputs: InputArgs,
    /// Form of the result.
    #[arg(long, value_name = "FORM", default_value = "table")]
    pub format: ListFormat,
    /// Write to this file instead of standard output.
    #[arg(long, value_name = "PATH")]
    pub out: Option<PathBuf>,
}

/// `gpuledger sim`.
#[derive(Debug, Subcommand)]
pub enum SimCommand {
    /// Write a world: telemetry, placements, bills, and the true ledger in DIR/truth/.
    Write(SimWriteArgs),
    /// Compare what the ledger says of seeded worlds with what is true of them.
    Score(SimScoreArgs),
}

/// `gpuledger sim write`.
#[derive(Debug, Args)]
pub struct SimWriteArgs {
    /// The world's seed: the same seed gives the same bytes.
    #[arg(long, value_name = "N")]
    pub seed: u64,
    /// Folder to write to.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Accelerators of the fleet.
    #[arg(long, value_name = "N")]
    pub gpus: Option<u32>,
    /// Days of data.
    #[arg(long, value_name = "N")]
    pub days: Option<u32>,
    /// A fault to put into the data; may be repeated.
    #[arg(long = "fault", value_name = "NAME")]
    pub faults: Vec<String>,
}

/// `gpuledger sim score`.
#[derive(Debug, Args)]
pub struct SimScoreArgs {
    /// First and last seed, both included.
    #[arg(long, value_name = "A..B", value_parser = parse_seeds)]
    pub seeds: SeedRange,
    /// Form of the result.
    #[arg(long, value_name = "FORM", default_value = "table")]
    pub format: ListFormat,
    /// Write to this file instead of standard output.
    #[arg(long, value_name = "PATH")]
    pub out: Option<PathBuf>,
}

/// `gpuledger demo`.
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Folder to write to.
    #[arg(long, value_name = "DIR", default_value = "gpuledger-demo")]
    pub out: PathBuf,
    /// The fleet's seed.
    #[arg(long, value_name = "N", default_value_t = gpuledger_sim::DEMO_SEED)]
    pub seed: u64,
    /// Accelerators of the fleet.
    #[arg(long, value_name = "N")]
    pub gpus: Option<u32>,
    /// Days of data.
    #[arg(long, value_name = "N")]
    pub days: Option<u32>,
}

/// Seeds `first..=last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeedRange {
    /// First seed.
    pub first: u64,
    /// Last seed, included.
    pub last: u64,
}

/// Forms of a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ReportFormat {
    /// Text for people.
    #[default]
    Table,
    /// `gpuledger.report/1`.
    Json,
    /// One self-contained page.
    Html,
}

/// Forms of the other results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ListFormat {
    /// Text for people.
    #[default]
    Table,
    /// JSON with its schema's name.
    Json,
}

/// Worlds scored in one run.
const SEEDS_MAX: u64 = 1_000_000;

fn parse_seeds(text: &str) -> Result<SeedRange, String> {
    let read = |part: &str| part.trim().parse::<u64>().map_err(|_| format!("{part:?} is no seed; write two numbers as 1..20"));
    let (first, last) = match text.split_once("..") {
        Some((first, last)) => (read(first)?, read(last.strip_prefix('=').unwrap_or(last))?),
        None => (read(text)?, read(text)?),
    };
    if last < first {
        return Err(format!("{text}: the last seed is before the first"));
    }
    if last - first >= SEEDS_MAX {
        return Err(format!("{text}: more than {SEEDS_MAX} seeds; score them in parts"));
    }
    Ok(SeedRange { first, last })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn seeds_include_both_ends() {
        assert_eq!(parse_seeds("1..20"), Ok(SeedRange { first: 1, last: 20 }));
        assert_eq!(parse_seeds("3"), Ok(SeedRange { first: 3, last: 3 }));
        assert!(parse_seeds("5..1").is_err() && parse_seeds("a..b").is_err() && parse_seeds("1..").is_err());
    }
}
