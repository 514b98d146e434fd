//! Finds input files and what each is, by its content.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use gpuledger_ingest::focus::{Dataset, detect_dataset, read_header};
use gpuledger_ingest::prometheus::is_sample_line;
use gpuledger_model::tables::reject::{Notice, Reject};

use crate::{content, parquet_series};

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum InputKind {
    /// A bill, or another dataset of FOCUS.
    Focus,
    /// Prometheus or OpenMetrics text.
    Prometheus,
    /// Time series in Parquet.
    Series,
    /// A `kubectl get -o json` dump.
    Kubernetes,
    /// `sacct -P`.
    Sacct,
    /// `scontrol show job`.
    ScontrolJob,
    /// `scontrol show node`.
    ScontrolNode,
    /// A CSV of nodes and instance ids.
    Inventory,
    /// None of these.
    Unknown,
}

impl InputKind {
    /// Every kind that can be forced.
    pub const ALL: [InputKind; 8] = [
        InputKind::Focus,
        InputKind::Prometheus,
        InputKind::Series,
        InputKind::Kubernetes,
        InputKind::Sacct,
        InputKind::ScontrolJob,
        InputKind::ScontrolNode,
        InputKind::Inventory,
    ];

    /// The word used in reports, and to force a kind.
    pub fn as_str(self) -> &'static str {
        match self {
            InputKind::Focus => "focus",
            InputKind::Prometheus => "prometheus",
            InputKind::Series => "series",
            InputKind::Kubernetes => "kubernetes",
            InputKind::Sacct => "sacct",
            InputKind::ScontrolJob => "scontrol-job",
            InputKind::ScontrolNode => "scontrol-node",
            InputKind::Inventory => "inventory",
            InputKind::Unknown => "unknown",
        }
    }

    /// The kind of a word.
    pub fn from_word(word: &str) -> Option<InputKind> {
        InputKind::ALL.into_iter().find(|kind| kind.as_str() == word.replace('_', "-"))
    }
}

/// A path as the user gave it: a file, folder or glob, perhaps with its kind or cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathSpec {
    /// File, folder or glob.
    pub path: String,
    /// The kind that its files have, whatever they look like.
    pub kind: Option<InputKind>,
    /// The cluster of what names none.
    pub cluster: Option<String>,
}

impl PathSpec {
    /// Reads `PATH`, `KIND=PATH`, `@CLUSTER=PATH` or `KIND@CLUSTER=PATH`. What stands before `=` and is no
    /// kind belongs to the path.
    pub fn parse(text: &str) -> PathSpec {
        let plain = PathSpec { path: text.to_string(), kind: None, cluster: None };
        let Some((head, path)) = text.split_once('=') else { return plain };
        let (word, cluster) = match head.split_once('@') {
            Some((word, cluster)) if !cluster.is_empty() && !cluster.contains('/') => (word, Some(cluster.to_string())),
            Some(_) => return plain,
            None => (head, None),
        };
        let kind = InputKind::from_word(word);
        if path.is_empty() || (kind.is_none() && !(word.is_empty() && cluster.is_some())) {
            return plain;
        }
        PathSpec { path: path.to_string(), kind, cluster }
    }
}

/// A file found.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FoundFile {
    /// Where it lies.
    pub path: PathBuf,
    /// What it is.
    pub kind: InputKind,
    /// The cluster of what names none.
    pub cluster: Option<String>,
    /// Bytes.
    pub size: u64,
    /// Modification time, nanoseconds since the epoch; 0 if unknown.
    pub modified_ns: u64,
}

impl FoundFile {
    /// The path for people.
    pub fn name(&self) -> String {
        self.path.display().to_string()
    }

    /// The scraped target and time that the path of a scrape names: `<target>/<unix seconds>.prom[.gz]`.
    pub fn scrape_name(&self) -> Option<(String, i64)> {
        let name = self.path.file_name()?.to_str()?;
        let time_ms = scrape_time_ms(name)?;
        let folder_name = |path: &Path| Some(path.parent()?.file_name()?.to_str()?.to_string());
        // A path without a folder lies in the working folder, which has a name too.
        let target = folder_name(&self.path).or_else(|| folder_name(&self.path.canonicalize().ok()?))?;
        Some((target, time_ms))
    }
}

/// All files of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Files with a kind, by path; none twice.
    pub files: Vec<FoundFile>,
    /// Paths that could not be read or recognised.
    pub rejects: Vec<Reject>,
    /// Files of folders that are nothing of ours.
    pub notices: Vec<Notice>,
}

/// Folders within folders.
const DEPTH_LIMIT: usize = 32;
/// Files in all: a year of scrapes of a target every 15 s.
const FILE_LIMIT: usize = 2_200_000;

/// Finds the files of paths. Folders are walked in the order of names; names that begin with a dot are not ours.
pub fn find(specs: &[PathSpec]) -> Found {
    let mut finder = Finder::default();
    for spec in specs {
        finder.find_spec(spec);
    }
    let mut found = finder.found;
    found.files = finder.files.into_values().collect();
    found
}

/// The time in a scrape file's name, ms: seconds or milliseconds, then `.prom` or another ending, then `.gz`.
fn scrape_time_ms(name: &str) -> Option<i64> {
    let name = name.strip_suffix(".gz").unwrap_or(name);
    let stem = ["prom", "txt", "metrics", "om", "openmetrics"]
        .iter()
        .find_map(|ending| name.strip_suffix(ending)?.strip_suffix('.'))
        .unwrap_or(name);
    if !stem.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    match stem.len() {
        9..=11 => stem.parse::<i64>().ok()?.checked_mul(1_000),
        12..=14 => stem.parse().ok(),
        _ => None,
    }
}

#[derive(Default)]
struct Finder {
    files: BTreeMap<PathBuf, FoundFile>,
    found: Found,
    /// Folders known to hold scrapes, so that each of their many files need not be opened twice.
    scrape_folders: BTreeSet<PathBuf>,
    is_full: bool,
}

impl Finder {
    fn find_spec(&mut self, spec: &PathSpec) {
        let path = Path::new(&spec.path);
        if path.exists() {
            return self.find_path(path, spec);
        }
        if spec.path.contains(['*', '?', '[']) {
            let paths = match glob::glob(&spec.path) {
                Ok(paths) => paths,
                Err(error) => return self.refuse(&spec.path, format!("pattern cannot be read ({error})")),
            };
            let mut matches = Vec::new();
            for path in paths {
                match path {
                    Ok(path) => matches.push(path),
                    Err(error) => self.refuse(&error.path().display().to_string(), format!("cannot be listed ({})", error.error())),
                }
            }
            matches.sort();
            if matches.is_empty() {
                return self.refuse(&spec.path, "no file matches this pattern".into());
            }
            return matches.iter().for_each(|path| self.find_path(path, spec));
        }
        self.refuse(&spec.path, "no such file or folder".into());
    }

    fn find_path(&mut self, path: &Path, spec: &PathSpec) {
        match fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => self.walk(path, spec, &mut Vec::new()),
            Ok(metadata) if metadata.is_file() => self.take(path, &metadata, spec, true),
            // A pipe can be read once and may never end; an input is read for its kind, its hash and its rows.
            Ok(_) => self.refuse(&path.display().to_string(), "is a pipe or a device; write its content to a file and give that".into()),
            Err(error) => self.refuse(&path.display().to_string(), format!("cannot be read ({error})")),
        }
    }

    fn walk(&mut self, folder: &Path, spec: &PathSpec, above: &mut Vec<PathBuf>) {
        let name = folder.display().to_string();
        let real = match folder.canonicalize() {
            Ok(real) => real,
            Err(error) => return self.refuse(&name, format!("cannot be read ({error})")),
        };
        if above.contains(&real) {
            return self.refuse(&name, "a link leads back to a folder above it; it was not followed".into());
        }
        if above.len() >= DEPTH_LIMIT {
            return self.refuse(&name, format!("folders are nested deeper than {DEPTH_LIMIT}; name the folder itself"));
        }
        let mut entries = Vec::new();
        match fs::read_dir(folder) {
            Ok(listing) => {
                for entry in listing {
                    match entry {
                        Ok(entry) => entries.push(entry.path()),
                        Err(error) => self.refuse(&name, format!("cannot be listed to its end ({error})")),
                    }
                    if entries.len() > FILE_LIMIT {
                        break;
                    }
                }
            }
            Err(error) => return self.refuse(&name, format!("cannot be listed ({error})")),
        }
        entries.sort();
        above.push(real);
        for path in entries {
            let is_hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
            if is_hidden || self.is_full {
                continue;
            }
            match fs::metadata(&path) {
                Ok(metadata) if metadata.is_dir() => self.walk(&path, spec, above),
                Ok(metadata) if metadata.is_file() => self.take(&path, &metadata, spec, false),
                Ok(_) => {}
                Err(error) => self.refuse(&path.display().to_string(), format!("cannot be read ({error})")),
            }
        }
        above.pop();
    }

    fn take(&mut self, path: &Path, metadata: &fs::Metadata, spec: &PathSpec, is_named: bool) {
        if self.files.contains_key(path) {
            return;
        }
        if self.files.len() >= FILE_LIMIT {
            self.is_full = true;
            return self.refuse(&spec.path, format!("more than {FILE_LIMIT} files; give Parquet series for the bulk of them"));
        }
        let kind = match spec.kind {
            Some(kind) => kind,
            None => match self.kind_of(path, metadata) {
                Ok(InputKind::Unknown) if is_named => {
                    return self.refuse(
                        &path.display().to_string(),
                        "is no bill, exposition, Parquet series, dump or record that is known; force its kind with KIND=PATH".into(),
                    );
                }
                Ok(InputKind::Unknown) => {
                    self.found.notices.push(Notice {
                        kind: "unrecognized_file".into(),
                        subject: path.display().to_string(),
                        message: "was not read: it is no bill, exposition, Parquet series, dump or record that is known".into(),
                    });
                    return;
                }
                Ok(kind) => kind,
                Err(reason) => return self.refuse(&path.display().to_string(), reason),
            },
        };
        let modified_ns = metadata
            .modified()
            .ok()
            .and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok())
            .and_then(|since| u64::try_from(since.as_nanos()).ok())
            .unwrap_or(0);
        let file = FoundFile { path: path.to_path_buf(), kind, cluster: spec.cluster.clone(), size: metadata.len(), modified_ns };
        self.files.insert(path.to_path_buf(), file);
    }

    fn kind_of(&mut self, path: &Path, metadata: &fs::Metadata) -> Result<InputKind, String> {
        let is_scrape =
            path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.contains(".prom") && scrape_time_ms(name).is_some());
        let folder = path.parent().unwrap_or(Path::new("")).to_path_buf();
        if is_scrape && (metadata.len() == 0 || self.scrape_folders.contains(&folder)) {
            return Ok(InputKind::Prometheus);
        }
        let kind = detect(path)?;
        if is_scrape && kind == InputKind::Prometheus {
            self.scrape_folders.insert(folder);
        }
        Ok(kind)
    }

    fn refuse(&mut self, file: &str, reason: String) {
        self.found.rejects.push(Reject { file: file.to_string(), line: 0, field: String::new(), reason, count: 1 });
    }
}

/// The kind of a file by its content; an error says why it cannot be told.
pub fn detect(path: &Path) -> Result<InputKind, String> {
    let head = content::head(path).map_err(|error| format!("cannot be read ({error}); fetch it again"))?;
    if head.starts_with(b"PAR1") {
        let columns = parquet_series::column_names(path)?;
        return Ok(match detect_dataset(&columns) {
            Dataset::Unknown if parquet_series::is_series(path) => InputKind::Series,
            Dataset::Unknown => InputKind::Unknown,
            _ => InputKind::Focus,
        });
    }
    if head.starts_with(&[0xff, 0xfe]) || head.starts_with(&[0xfe, 0xff]) {
        return Err("is UTF-16 text; save it as UTF-8".into());
    }
    let head = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&head);
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if head.iter().all(u8::is_ascii_whitespace) {
        let is_exposition = name.strip_suffix(".gz").unwrap_or(name).ends_with(".prom");
        return Ok(if is_exposition { InputKind::Prometheus } else { InputKind::Unknown });
    }
    let kind = detect_text(head);
    if kind == InputKind::Unknown && name.strip_suffix(".gz").unwrap_or(name).to_ascii_lowercase().ends_with(".csv") {
        // A table whose header cannot be read may be a bill: why it cannot is told, rather than that it is nothing of ours.
        read_header(head)?;
    }
    Ok(kind)
}

fn detect_text(head: &[u8]) -> InputKind {
    let contains = |needle: &[u8]| memchr::memmem::find(head, needle).is_some();
    let first = head.iter().find(|b| !b.is_ascii_whitespace());
    if matches!(first, Some(b'{' | b'[')) {
        // Prometheus 3 may quote names: `{"name", label="value"}`.
        let is_dump = contains(b"\"apiVersion\"") || (contains(b"\"kind\"") && contains(b"\"items\""));
        if is_dump {
            return InputKind::Kubernetes;
        }
    }
    let mut lines = head.split(|b| *b == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty());
    let is_comment = |line: &[u8]| [&b"# HELP "[..], b"# TYPE ", b"# UNIT ", b"# EOF"].iter().any(|start| line.starts_with(start));
    let Some(line) = lines.next() else { return InputKind::Unknown };
    if is_comment(line) || is_sample_line(line) {
        return InputKind::Prometheus;
    }
    if line.starts_with(b"JobId=") {
        return InputKind::ScontrolJob;
    }
    if line.starts_with(b"NodeName=") {
        return InputKind::ScontrolNode;
    }
    let is_job_column = |word: &[u8]| word.eq_ignore_ascii_case(b"jobid") || word.eq_ignore_ascii_case(b"jobidraw");
    if line.contains(&b'|') && line.split(|b| *b == b'|').any(|word| is_job_column(word.trim_ascii())) {
        return InputKind::Sacct;
    }
    if let Ok(header) = read_header(head)
        && detect_dataset(&header) != Dataset::Unknown
    {
        return InputKind::Focus;
    }
    let columns: Vec<String> =
        line.split(|b| *b == b',').map(|word| String::from_utf8_lossy(word).trim().trim_matches('"').to_ascii_lowercase()).collect();
    if ["node", "instance_id"].iter().all(|name| columns.iter().any(|column| column == name)) {
        return InputKind::Inventory;
    }
    // A comment of some other tool may stand before the first sample.
    if lines.take(50).any(|line| is_comment(line) || is_sample_line(line)) {
        return InputKind::Prometheus;
    }
    InputKind::Unknown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_told_from_the_text() {
        for (text, kind) in [
            ("# HELP x y\n", InputKind::Prometheus),
            ("DCGM_FI_DEV_GPU_UTIL{gpu=\"0\"} 1\n", InputKind::Prometheus),
            ("{\"kind\": \"List\", \"apiVersion\": \"v1\", \"items\": []}", InputKind::Kubernetes),
            ("JobID|JobName|AllocTRES|Start|End\n", InputKind::Sacct),
            ("JobId=12 JobName=a\n", InputKind::ScontrolJob),
            ("NodeName=n1 Arch=x86_64\n", InputKind::ScontrolNode),
            ("node,instance_id,from,to\nn1,i-1,,\n", InputKind::Inventory),
            ("BilledCost,EffectiveCost,ChargePeriodStart\n1,1,2026-10-01\n", InputKind::Focus),
            ("# Notes\n\nSome text about things.\n", InputKind::Unknown),
            ("{\"a\": 1}", InputKind::Unknown),
        ] {
            assert_eq!(detect_text(text.as_bytes()), kind, "{text}");
        }
    }

    #[test]
    fn paths_may_carry_kind_and_cluster() {
        let spec = |text: &str| PathSpec::parse(text);
        assert_eq!(spec("focus=a.csv").kind, Some(InputKind::Focus));
        assert_eq!(spec("kubernetes@blue=dump.json").cluster.as_deref(), Some("blue"));
        assert_eq!(spec("@blue=dump.json").path, "dump.json");
        assert_eq!(spec("key=value.csv").path, "key=value.csv");
        assert_eq!(spec("a/b@c=d").path, "a/b@c=d");
    }

    #[test]
    fn scrape_files_name_their_time() {
        assert_eq!(scrape_time_ms("1791277200.prom"), Some(1_791_277_200_000));
        assert_eq!(scrape_time_ms("1791277200123.prom.gz"), Some(1_791_277_200_123));
        assert_eq!(scrape_time_ms("1791277200"), Some(1_791_277_200_000));
        assert_eq!(scrape_time_ms("node-7.prom"), None);
        assert_eq!(scrape_time_ms("7.prom"), None);
    }
}
