//! Settings: the configuration file and the flags above it, read raw and given their meaning once.
//!
//! A flag replaces what the file says under the same name; a list of paths is replaced as a whole.
//! All mistakes are reported together, each with its key. No secret is ever a setting.

use std::path::{Path, PathBuf};

use gpuledger_ingest::focus::{Assume, Deliveries};
use gpuledger_model::time::parse_time;
use gpuledger_store::discover::{InputKind, PathSpec};
use gpuledger_store::inputs::Request;
use jiff::tz::TimeZone;
use serde::Deserialize;

use crate::cli::{InputArgs, ReportArgs, ReportFormat};
use crate::exit::Failure;
use crate::filter::Filter;
use crate::report::dimension::Key;
use crate::report::{KEYS_MAX, ReportOptions};
use crate::small_file;
use crate::window_arg::parse_window;

/// The configuration file that is read when none is named.
pub const DEFAULT_FILE: &str = "gpuledger.toml";

/// The largest configuration file, in bytes.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Inputs, with their meaning.
#[derive(Clone, Debug, Default)]
pub struct InputSettings {
    /// What to read.
    pub request: Request,
    /// The user's price list.
    pub prices: Option<PathBuf>,
    /// Rules of ownership.
    pub owners: Option<PathBuf>,
    /// The user's rule book.
    pub rules: Option<PathBuf>,
    /// Folder that keeps what was read.
    pub store: Option<PathBuf>,
    /// Two deliveries of one scope.
    pub deliveries: Deliveries,
    /// The inputs come from the simulator, as its configuration file says.
    pub is_simulated: bool,
}

/// What bills and samples that lack these mean; marked in the report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assumed {
    /// Currency and account of bills.
    pub bills: Assume,
    /// Time of samples and dumps that carry none, ms.
    pub time_ms: Option<i64>,
}

/// Everything about a report run.
#[derive(Clone, Debug)]
pub struct ReportSettings {
    /// Inputs.
    pub inputs: InputSettings,
    /// What to show.
    pub options: ReportOptions,
    /// Form.
    pub format: ReportFormat,
    /// File to write; `None` is standard output.
    pub out: Option<PathBuf>,
}

/// The configuration file, as written. The doc comments are its manual.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawConfig {
    /// Bills: `[[bills]]` tables with `path` (file, folder or glob) and optionally `kind`.
    #[serde(default)]
    bills: Vec<RawInput>,
    /// Telemetry: `[[telemetry]]` tables with `path` and optionally `kind` and `cluster`.
    #[serde(default)]
    telemetry: Vec<RawInput>,
    /// Placements: `[[placements]]` tables with `path` and optionally `kind` and `cluster`.
    #[serde(default)]
    placements: Vec<RawInput>,
    /// Price list that stands before the bundled one.
    prices: Option<PathBuf>,
    /// Owners file.
    owners: Option<PathBuf>,
    /// Rule book instead of the shipped one.
    rules: Option<PathBuf>,
    /// Inventory: node, instance id, from, to.
    mapping: Option<PathBuf>,
    /// Folder that keeps what was read.
    store: Option<PathBuf>,
    /// Cluster of inputs that name none.
    cluster: Option<String>,
    /// `currency`, `account`, `time` of inputs that carry none.
    #[serde(default)]
    assume: RawAssumed,
    /// `refuse`, `add` or `latest`.
    deliveries: Option<String>,
    /// Zone of Slurm's times.
    slurm_timezone: Option<String>,
    /// Label that joins pods into runs.
    run_label: Option<String>,
    /// The inputs come from the simulator: the report says so.
    #[serde(default)]
    simulated: bool,
    /// As `--window`.
    window: Option<String>,
    /// As `--by`: one or two keys.
    #[serde(default)]
    by: Vec<String>,
    /// As `--filter`.
    filter: Option<String>,
    /// Zone in which days begin.
    timezone: Option<String>,
    /// `table`, `json` or `html`.
    format: Option<String>,
    /// File to write.
    out: Option<PathBuf>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawInput {
    /// File, folder or glob; relative to the configuration file.
    path: String,
    /// Its kind, when content does not tell.
    kind: Option<String>,
    /// Its cluster, when it names none.
    cluster: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawAssumed {
    /// BillingCurrency.
    currency: Option<String>,
    /// BillingAccountId.
    account: Option<String>,
    /// Time of samples and dumps that carry none, RFC 3339.
    time: Option<String>,
}

/// Reads the settings of a report.
pub fn report_settings(args: &ReportArgs, now_ms: i64) -> Result<ReportSettings, Failure> {
    let config = Config::find(args.inputs.config.as_deref())?;
    let mut mistakes = Mistakes::default();
    let inputs = config.inputs(&args.inputs, &mut mistakes);

    let timezone = config.pick(args.timezone.as_deref(), config.raw.timezone.as_deref(), "timezone");
    let zone = mistakes.take(timezone.map(|given| given.read(parse_zone))).unwrap_or(TimeZone::UTC);
    let now = args.now.as_deref().map(|text| {
        Given { text, place: "--now".to_string() }.read(|text| parse_time(text, &zone).ok_or_else(|| format!("{text:?} is no time")))
    });
    let now_ms = mistakes.take(now).unwrap_or(now_ms);
    let window = config.pick(args.window.as_deref(), config.raw.window.as_deref(), "window");
    let window = mistakes.take(window.map(|given| given.read(|text| parse_window(text, now_ms, &zone))));
    let filter = config.pick(args.filter.as_deref(), config.raw.filter.as_deref(), "filter");
    let filter = mistakes.take(filter.map(|given| given.read(|text| Filter::parse(text).map_err(|error| error.to_string()))));

    let (keys, place) = if args.by.is_empty() { (&config.raw.by, config.place("by")) } else { (&args.by, "--by".to_string()) };
    let mut by: Vec<Key> = Vec::new();
    for key in keys {
        match key.parse::<Key>() {
            Ok(key) if by.contains(&key) => mistakes.add(&place, format!("key {key} is given twice")),
            Ok(key) => by.push(key),
            Err(error) => mistakes.add(&place, error),
        }
    }
    if by.len() > KEYS_MAX {
        mistakes.add(&place, format!("{} keys; give one or two", by.len()));
    }

    let out = args.out.clone().or_else(|| config.raw.out.as_deref().map(|path| config.beside(path)));
    let configured = config.raw.format.as_deref().map(|text| Given { text, place: config.place("format") }.read(parse_format));
    let format = args.format.or(mistakes.take(configured)).or_else(|| format_of_ending(out.as_deref())).unwrap_or_default();

    mistakes.into_failure()?;
    Ok(ReportSettings { inputs, options: ReportOptions { window, by, filter, timezone: zone }, format, out })
}

/// Reads the settings of a command that only needs inputs.
pub fn input_settings(args: &InputArgs) -> Result<InputSettings, Failure> {
    let config = Config::find(args.config.as_deref())?;
    let mut mistakes = Mistakes::default();
    let inputs = config.inputs(args, &mut mistakes);
    mistakes.into_failure()?;
    Ok(inputs)
}

/// Reads `--assume currency=USD,account=X,time=...`.
pub fn parse_assumed(pairs: &[String]) -> Result<Assumed, Failure> {
    let mut mistakes = Mistakes::default();
    let mut assumed = Assumed::default();
    assume_pairs(&mut assumed, pairs, &mut mistakes);
    mistakes.into_failure()?;
    Ok(assumed)
}

/// The file that was found, or an empty one.
struct Config {
    raw: RawConfig,
    /// Name for messages; empty without a file.
    name: String,
    folder: PathBuf,
}

impl Config {
    fn find(named: Option<&Path>) -> Result<Config, Failure> {
        let path = match named {
            Some(path) => path,
            None if Path::new(DEFAULT_FILE).is_file() => Path::new(DEFAULT_FILE),
            None => return Ok(Config { raw: RawConfig::default(), name: String::new(), folder: PathBuf::new() }),
        };
        let name = path.display().to_string();
        let unreadable = |why: String| Failure::input(format!("read configuration {name}: {why}"));
        let text = small_file::read_text(path, FILE_BYTES_MAX).map_err(unreadable)?;
        let raw = toml::from_str(text.trim_start_matches('\u{feff}'))
            .map_err(|error| Failure::usage(format!("read configuration {name}: {}", error.to_string().trim_end())))?;
        Ok(Config { raw, name, folder: path.parent().unwrap_or(Path::new("")).to_path_buf() })
    }

    /// The place of a key, for messages.
    fn place(&self, key: &str) -> String {
        format!("{}: {key}", self.name)
    }

    /// The flag, else the file's value.
    fn pick<'a>(&self, flag: Option<&'a str>, value: Option<&'a str>, key: &str) -> Option<Given<'a>> {
        match (flag, value) {
            (Some(text), _) => Some(Given { text, place: format!("--{}", key.replace('_', "-")) }),
            (None, Some(text)) => Some(Given { text, place: self.place(key) }),
            (None, None) => None,
        }
    }

    /// A path of the file stands relative to it.
    fn beside(&self, path: &Path) -> PathBuf {
        if path.is_absolute() { path.to_path_buf() } else { self.folder.join(path) }
    }

    fn inputs(&self, args: &InputArgs, mistakes: &mut Mistakes) -> InputSettings {
        let raw = &self.raw;
        let file =
            |flag: &Option<PathBuf>, value: &Option<PathBuf>| flag.clone().or_else(|| value.as_deref().map(|path| self.beside(path)));
        let text = |flag: &Option<String>, value: &Option<String>| flag.clone().or_else(|| value.clone());

        let mut assume = Assumed::default();
        assume.bills.currency.clone_from(&raw.assume.currency);
        assume.bills.account.clone_from(&raw.assume.account);
        let time = raw.assume.time.as_deref().map(|text| Given { text, place: self.place("assume.time") }.read(parse_assumed_time));
        assume.time_ms = mistakes.take(time);
        assume_pairs(&mut assume, &args.assume, mistakes);

        let configured = raw.deliveries.as_deref().map(|text| Given { text, place: self.place("deliveries") }.read(str::parse));
        let slurm_zone = self.pick(args.slurm_timezone.as_deref(), raw.slurm_timezone.as_deref(), "slurm_timezone");
        let mut request = Request {
            bills: self.paths("bills", &args.bills, &raw.bills, mistakes),
            telemetry: self.paths("telemetry", &args.telemetry, &raw.telemetry, mistakes),
            placements: self.paths("placements", &args.placements, &raw.placements, mistakes),
            mapping: file(&args.mapping, &raw.mapping),
            assume: assume.bills,
            assumed_time_ms: assume.time_ms,
            slurm_zone: mistakes.take(slurm_zone.map(|given| given.read(parse_zone))).unwrap_or(TimeZone::UTC),
            run_label: text(&args.run_label, &raw.run_label),
            ..Request::default()
        };
        if let Some(cluster) = text(&args.cluster, &raw.cluster) {
            request.cluster = cluster;
        }
        InputSettings {
            request,
            prices: file(&args.prices, &raw.prices),
            owners: file(&args.owners, &raw.owners),
            rules: file(&args.rules, &raw.rules),
            store: file(&args.store, &raw.store),
            deliveries: args.deliveries.or(mistakes.take(configured)).unwrap_or_default(),
            is_simulated: raw.simulated,
        }
    }

    fn paths(&self, key: &str, flags: &[String], configured: &[RawInput], mistakes: &mut Mistakes) -> Vec<PathSpec> {
        if !flags.is_empty() {
            return flags.iter().map(|text| PathSpec::parse(text)).collect();
        }
        let mut specs = Vec::with_capacity(configured.len());
        for (at, input) in configured.iter().enumerate() {
            let kind = input.kind.as_deref().map(|word| {
                let place = format!("{}[{at}].kind", self.place(key));
                Given { text: word, place }.read(parse_kind)
            });
            specs.push(PathSpec {
                kind: mistakes.take(kind),
                path: self.beside(Path::new(&input.path)).to_string_lossy().into_owned(),
                cluster: input.cluster.clone(),
            });
        }
        specs
    }
}

/// A text with the place that gave it.
struct Given<'a> {
    text: &'a str,
    place: String,
}

impl Given<'_> {
    fn read<T>(&self, parse: impl FnOnce(&str) -> Result<T, String>) -> Result<T, (String, String)> {
        parse(self.text).map_err(|error| (self.place.clone(), error))
    }
}

/// Mistakes, collected so that a user sees all of them at once.
#[derive(Default)]
struct Mistakes {
    lines: Vec<String>,
}

impl Mistakes {
    fn add(&mut self, place: &str, mistake: impl AsRef<str>) {
        self.lines.push(format!("{place}: {}", mistake.as_ref()));
    }

    fn take<T>(&mut self, read: Option<Result<T, (String, String)>>) -> Option<T> {
        match read? {
            Ok(value) => Some(value),
            Err((place, mistake)) => {
                self.add(&place, mistake);
                None
            }
        }
    }

    fn into_failure(self) -> Result<(), Failure> {
        match self.lines.as_slice() {
            [] => Ok(()),
            [one] => Err(Failure::usage(format!("understand {one}"))),
            many => Err(Failure::usage(format!("understand {} settings:\n  {}", many.len(), many.join("\n  ")))),
        }
    }
}

fn assume_pairs(assumed: &mut Assumed, pairs: &[String], mistakes: &mut Mistakes) {
    for pair in pairs {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        if value.is_empty() {
            mistakes.add("--assume", format!("{pair:?}: write KEY=VALUE with a key of currency, account, time"));
            continue;
        }
        match key.trim() {
            "currency" => assumed.bills.currency = Some(value.to_string()),
            "account" => assumed.bills.account = Some(value.to_string()),
            "time" => match parse_assumed_time(value) {
                Ok(time_ms) => assumed.time_ms = Some(time_ms),
                Err(error) => mistakes.add("--assume", error),
            },
            _ => mistakes.add("--assume", format!("unknown key {key:?}; use currency, account, time")),
        }
    }
}

fn parse_assumed_time(text: &str) -> Result<i64, String> {
    parse_time(text, &TimeZone::UTC).ok_or_else(|| format!("{text:?} is no time; write 2026-10-06T09:00:00Z"))
}

fn parse_zone(text: &str) -> Result<TimeZone, String> {
    TimeZone::get(text).map_err(|_| format!("unknown zone {text:?}; write one such as Europe/Berlin or UTC"))
}

fn parse_kind(word: &str) -> Result<InputKind, String> {
    InputKind::from_word(word).ok_or_else(|| {
        let words: Vec<&str> = InputKind::ALL.iter().map(|kind| kind.as_str()).collect();
        format!("unknown kind {word:?}; use {}", words.join(", "))
    })
}

fn parse_format(text: &str) -> Result<ReportFormat, String> {
    <ReportFormat as clap::ValueEnum>::from_str(text, false).map_err(|_| format!("{text:?}; use table, json or html"))
}

fn format_of_ending(out: Option<&Path>) -> Option<ReportFormat> {
    match out?.extension()?.to_str()? {
        "json" => Some(ReportFormat::Json),
        "html" | "htm" => Some(ReportFormat::Html),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::exit::Exit;

    fn settings(config: &str, change: impl FnOnce(&mut ReportArgs)) -> Result<ReportSettings, Failure> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gpuledger.toml");
        fs::write(&path, config).unwrap();
        let mut args = ReportArgs::default();
        args.inputs.config = Some(path);
        change(&mut args);
        report_settings(&args, 0)
    }

    const CONFIG: &str = r#"
        timezone = "Europe/Berlin"
        cluster = "east"
        by = ["team", "label:app"]
        format = "json"
        deliveries = "latest"
        [assume]
        currency = "USD"
        account = "0012"
        [[bills]]
        path = "bills/*.csv"
        kind = "focus"
        [[placements]]
        path = "/var/dumps"
        cluster = "west"
    "#;

    #[test]
    fn the_file_is_read_and_flags_stand_above_it() {
        let read = settings(CONFIG, |_| ()).unwrap();
        let request = &read.inputs.request;
        assert_eq!(request.bills[0].kind, Some(InputKind::Focus));
        assert!(request.bills[0].path.ends_with("/bills/*.csv") && request.bills[0].path.starts_with('/'));
        assert_eq!(request.placements[0].cluster.as_deref(), Some("west"));
        assert_eq!(request.cluster, "east");
        assert_eq!(read.inputs.deliveries, Deliveries::Latest);
        assert_eq!(request.assume.account.as_deref(), Some("0012"));
        assert_eq!(read.options.by, [Key::Team, Key::Label("app".into())]);
        assert_eq!(read.format, ReportFormat::Json);

        let read = settings(CONFIG, |args| {
            args.inputs.bills = vec!["focus=x.csv".into(), "./a=b.csv".into()];
            args.inputs.assume = vec!["account=7".into(), "time=2026-10-06T00:00:00Z".into()];
            args.by = vec!["cause".into()];
            args.format = Some(ReportFormat::Table);
            args.window = Some("today".into());
        })
        .unwrap();
        let request = &read.inputs.request;
        assert_eq!(
            request.bills,
            [
                PathSpec { kind: Some(InputKind::Focus), path: "x.csv".into(), cluster: None },
                PathSpec { kind: None, path: "./a=b.csv".into(), cluster: None },
            ]
        );
        assert_eq!(request.assume.currency.as_deref(), Some("USD"));
        assert_eq!(request.assume.account.as_deref(), Some("7"));
        assert!(request.assumed_time_ms.is_some());
        assert_eq!(read.options.by, [Key::Cause]);
        assert_eq!(read.format, ReportFormat::Table);
        // Midnight in Berlin.
        assert_eq!(read.options.window.unwrap().from_ms, -3_600_000);
    }

    #[test]
    fn the_ending_of_the_file_chooses_the_form() {
        let format = |out: &str| settings("", |args| args.out = Some(out.into())).unwrap().format;
        assert_eq!(format("r.html"), ReportFormat::Html);
        assert_eq!(format("r.json"), ReportFormat::Json);
        assert_eq!(format("r.txt"), ReportFormat::Table);
    }

    #[test]
    fn all_mistakes_are_told_with_their_places() {
        let failure =
            settings("timezone = \"Mars\"\ndeliveries = \"x\"\nformat = \"pdf\"\n[[bills]]\npath = \"b\"\nkind = \"cur\"", |args| {
                args.window = Some("fortnight".into());
                args.filter = Some("pod".into());
                args.by = vec!["team".into(), "team".into(), "colour".into()];
                args.inputs.assume = vec!["currency".into(), "colour=red".into()];
            })
            .unwrap_err();
        assert_eq!(failure.exit, Exit::Usage);
        for part in [
            "gpuledger.toml: timezone",
            "gpuledger.toml: deliveries",
            "gpuledger.toml: format",
            "bills[0].kind",
            "--window",
            "--filter",
            "--by: key team is given twice",
            "\"colour\"",
            "--assume: \"currency\"",
        ] {
            assert!(failure.message.contains(part), "{part} in {failure}");
        }
        let failure = settings("", |args| args.by = vec!["team".into(), "cause".into(), "class".into()]).unwrap_err();
        assert!(failure.message.contains("3 keys"), "{failure}");
    }

    #[test]
    fn unknown_keys_and_missing_files_are_refused() {
        let failure = settings("[[bills]]\npaht = \"x\"", |_| ()).unwrap_err();
        assert_eq!(failure.exit, Exit::Usage);
        assert!(failure.message.contains("paht") && failure.message.contains("line 2"), "{failure}");
        let failure = settings("", |args| args.inputs.config = Some("/no/such.toml".into())).unwrap_err();
        assert_eq!(failure.exit, Exit::Input);
    }
}
