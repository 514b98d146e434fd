//! `sacct -P` (`-P -D` for every incarnation): one row per job, whatever its columns and their order.

use std::collections::{BTreeMap, BTreeSet};

use gpuledger_model::tables::placement::{Holder, Node, Outcome, Placements};
use gpuledger_model::time::parse_time;
use jiff::tz::TimeZone;

use super::hostlist;
use super::job::{self, State};
use super::tres::{Gpus, parse_gres, parse_tres};
use crate::Parsed;
use crate::placements::merge_placements;
use crate::refusals::{Refusals, excerpt, foreign_encoding, without_mark};

/// Longest line read; the longest host lists are far shorter.
const MAX_LINE_BYTES: usize = 16 << 20;

/// Columns whose text people write, and which may therefore hold a `|`.
const FREE_TEXT: &[&str] = &["jobname", "comment", "admincomment", "systemcomment", "submitline", "workdir", "extra", "wckey", "reason"];

/// Most delimiters inside the texts of one row; what has more is no row of sacct.
const MAX_SURPLUS: usize = 1024;

/// Ways tried to part surplus delimiters between two columns.
const MAX_SPLITS: usize = 32;

/// Columns that tell when a job had its nodes.
const REQUIRED: &[&str] = &["State", "Start", "End", "NodeList"];

/// Reads `sacct -P` text. `cluster` names the cluster, `zone` is the zone of its times.
pub fn parse_sacct(file: &str, bytes: &[u8], cluster: &str, zone: &TimeZone) -> Parsed<Placements> {
    let mut reader = Reader {
        cluster,
        zone,
        refusals: Refusals::new(file),
        columns: None,
        holders: Vec::new(),
        nodes: BTreeMap::new(),
        clusters: BTreeSet::new(),
    };
    let mut rows = 0;
    if let Some(reason) = foreign_encoding(bytes) {
        reader.refusals.reject(0, "", reason);
    } else {
        for (number, line) in (1u64..).zip(without_mark(bytes).split(|&b| b == b'\n')) {
            rows += reader.line(number, line.strip_suffix(b"\r").unwrap_or(line));
        }
    }
    if reader.clusters.len() > 1 {
        let names: Vec<&str> = reader.clusters.iter().map(String::as_str).take(8).collect();
        let message = format!("rows of several clusters ({}) were all taken as {cluster}; give one file per cluster", names.join(", "));
        reader.refusals.notice("slurm_several_clusters", message);
    }
    let placements = Placements { nodes: reader.nodes.into_values().collect(), holders: reader.holders, reservations: Vec::new() };
    let (rejects, notices) = reader.refusals.finish();
    Parsed { value: merge_placements(vec![placements]), rows, rejects, notices }
}

struct Reader<'a> {
    cluster: &'a str,
    zone: &'a TimeZone,
    refusals: Refusals,
    columns: Option<Columns>,
    holders: Vec<Holder>,
    nodes: BTreeMap<String, Node>,
    clusters: BTreeSet<String>,
}

/// A header.
struct Columns {
    delimiter: char,
    /// `-p` ends every line with a delimiter, `-P` does not.
    has_trailing_delimiter: bool,
    /// Lower-case names in their order.
    names: Vec<String>,
}

/// One row under its header.
struct Row<'a> {
    cells: BTreeMap<&'a str, String>,
}

impl Row<'_> {
    fn cell(&self, name: &str) -> &str {
        self.cells.get(name).map(|cell| cell.trim()).unwrap_or_default()
    }

    fn has(&self, name: &str) -> bool {
        self.cells.contains_key(name)
    }
}

impl Reader<'_> {
    /// Reads a line; the number of rows it is.
    fn line(&mut self, number: u64, bytes: &[u8]) -> u64 {
        if bytes.iter().all(u8::is_ascii_whitespace) {
            return 0;
        }
        if bytes.len() > MAX_LINE_BYTES {
            self.refusals.reject(number, "", format!("the line is longer than {} MiB", MAX_LINE_BYTES >> 20));
            return 1;
        }
        let Ok(text) = std::str::from_utf8(bytes) else {
            self.refusals.reject(number, "", "the line is no UTF-8; run sacct under a UTF-8 locale");
            return 1;
        };
        if let Some(header) = read_header(text) {
            if let Some(missing) = missing_column(&header) {
                self.refusals.reject(number, missing, format!("the column {missing} is missing; run {}", COMMAND));
                self.columns = None;
            } else {
                self.columns = Some(header);
            }
            return 0;
        }
        let Some(columns) = self.columns.take() else {
            let reason = format!("no header of sacct -P above this line (names parted by |); run {COMMAND}");
            self.refusals.reject(number, "", reason);
            return 1;
        };
        match columns.row(text, self.zone) {
            Ok(row) => self.row(number, &row),
            Err(reason) => self.refusals.reject(number, "", reason),
        }
        self.columns = Some(columns);
        1
    }

    fn row(&mut self, line: u64, row: &Row) {
        let job = match (row.cell("jobid"), row.cell("jobidraw")) {
            ("", raw) => raw,
            (id, _) => id,
        };
        if job.is_empty() {
            self.refusals.reject(line, "JobID", "the row has no job id");
            return;
        }
        // Steps repeat what their job has.
        if job.contains('.') {
            self.refusals.notice("slurm_steps", "job steps were passed over: their GPUs are the job's");
            return;
        }
        if let Some(field) = cut_cell(row) {
            self.refusals.reject(line, field, format!("the cell ends in +: sacct cut it short; run {COMMAND}"));
            return;
        }
        let state = row.cell("state");
        let Some(state_kind) = job::parse_state(state) else {
            self.refusals.reject(line, "State", format!("{} is no job state", excerpt(state)));
            return;
        };
        self.clusters.extend(Some(row.cell("cluster")).filter(|name| !name.is_empty()).map(str::to_string));
        if state_kind == State::HoldsNothing || job::is_no_time(row.cell("start")) {
            return;
        }
        let Some(from_ms) = parse_time(row.cell("start"), self.zone) else {
            self.refusals.reject(line, "Start", format!("{} is no time", excerpt(row.cell("start"))));
            return;
        };
        let gpus = self.gpus_of(row);
        if let Some(item) = &gpus.unreadable {
            let field = if row.cell("alloctres").is_empty() { "ReqTRES" } else { "AllocTRES" };
            self.refusals.reject(line, field, format!("{} is no count of GPUs; mend it, or take the job out", excerpt(item)));
            return;
        }
        if gpus.is_none() {
            self.refusals.notice("slurm_jobs_without_gpus", "jobs without GPUs were passed over");
            return;
        }
        match self.end_of(row, state_kind, from_ms) {
            Ok((outcome, to_ms)) => self.holder(line, row, job, &gpus, (from_ms, to_ms, outcome)),
            Err((field, reason)) => self.refusals.reject(line, field, reason),
        }
    }

    /// AllocTRES; AllocGRES of versions before 20.11; what was asked for only where neither is told.
    fn gpus_of(&mut self, row: &Row) -> Gpus {
        if !row.cell("alloctres").is_empty() {
            return parse_tres(row.cell("alloctres"));
        }
        for gres in ["allocgres", "reqgres"] {
            let gpus = parse_gres(row.cell(gres));
            if !gpus.is_none() {
                if gres == "reqgres" {
                    self.refusals.notice(
                        "slurm_requested_gres",
                        "jobs without AllocTRES hold what they asked for (ReqGRES), which may be less or more",
                    );
                }
                return gpus;
            }
        }
        let gpus = parse_tres(row.cell("reqtres"));
        if !gpus.is_none() {
            self.refusals
                .notice("slurm_requested_tres", "jobs without AllocTRES hold what they asked for (ReqTRES), which may be less or more");
        }
        gpus
    }

    fn end_of(&self, row: &Row, state: State, from_ms: i64) -> Result<(Outcome, Option<i64>), (&'static str, String)> {
        let State::Ended(outcome) = state else { return Ok((Outcome::Alive, None)) };
        let end = row.cell("end");
        if !job::is_no_time(end) {
            let to_ms = parse_time(end, self.zone).ok_or_else(|| ("End", format!("{} is no time", excerpt(end))))?;
            return Ok((outcome, Some(to_ms.max(from_ms))));
        }
        match elapsed_ms(row) {
            Some(elapsed_ms) => Ok((outcome, Some(from_ms.saturating_add(elapsed_ms)))),
            None => Err((
                "End",
                format!("an ended job ({}) without an End; add ElapsedRaw, or mend it with sacctmgr show runaway", row.cell("state")),
            )),
        }
    }

    fn holder(&mut self, line: u64, row: &Row, job: &str, gpus: &Gpus, (from_ms, to_ms, outcome): (i64, Option<i64>, Outcome)) {
        let list = row.cell("nodelist");
        let Some(nodes) = hostlist::expand(list).filter(|nodes| !nodes.is_empty()) else {
            // A job that was cancelled or requeued before it had nodes.
            if list == "None assigned" || list.is_empty() {
                return;
            }
            self.refusals.reject(line, "NodeList", format!("{} is no list of nodes", excerpt(list)));
            return;
        };
        let mut holder = job::holder(self.cluster, job, from_ms);
        holder.to_ms = to_ms;
        holder.outcome = outcome;
        holder.claims = job::divide(gpus, &nodes);
        let text = |name: &str| Some(row.cell(name)).filter(|cell| !cell.is_empty()).map(str::to_string);
        holder.account = text("account");
        holder.user = text("user");
        holder.name = text("jobname").unwrap_or_default();
        if !holder.name.is_empty() {
            holder.workload = format!("Job/{}", holder.name);
        }
        for label in ["partition", "qos", "exitcode", "wckey", "reservation", "constraints"] {
            holder.labels.extend(text(label).map(|value| (label.to_string(), value)));
        }
        for comment in ["comment", "admincomment"] {
            job::apply_comment(&mut holder, row.cell(comment), self.zone, line, &mut self.refusals);
            holder.annotations.extend(text(comment).map(|value| (comment.to_string(), value)));
        }
        // The elapsed time of a running job tells when sacct was asked.
        let asked_ms = elapsed_ms(row).map(|elapsed_ms| from_ms.saturating_add(elapsed_ms));
        holder.last_record_ms = Some(from_ms).max(to_ms).max(asked_ms);
        if row.cell("restarts").parse::<u32>().is_ok_and(|restarts| restarts > 0) {
            let message = "jobs were requeued; with sacct -D every incarnation has its row, without it the earlier ones are missing";
            self.refusals.notice("slurm_requeued", message);
        }
        if gpus.mps_share_ppm().is_some() {
            self.refusals.notice("declared_slurm_mps", "shares are declared by gres/mps, taken as hundredths of one device");
        }
        for name in &nodes {
            let node = self.nodes.entry(name.clone()).or_insert_with(|| job::named_node(self.cluster, name));
            node.last_record_ms = node.last_record_ms.max(holder.last_record_ms);
        }
        self.holders.push(holder);
    }
}

/// The command whose output is read.
const COMMAND: &str = "sacct -P -D -o JobID,JobName,State,Account,User,Submit,Start,End,NodeList,AllocTRES,ElapsedRaw,Partition,Comment";

impl Columns {
    /// The row's cells by column. A delimiter inside a text that people write gives a cell too many: the column
    /// is found under which all the others still make sense.
    fn row(&self, text: &str, zone: &TimeZone) -> Result<Row<'_>, String> {
        let mut cells: Vec<&str> = text.split(self.delimiter).collect();
        if self.has_trailing_delimiter && cells.len() > self.names.len() && cells.last().is_some_and(|c| c.trim().is_empty()) {
            cells.pop();
        }
        let (have, want) = (cells.len(), self.names.len());
        if have < want {
            return Err(format!("the row has {have} of {want} columns: it was cut short; run {COMMAND}"));
        }
        if have == want {
            return Ok(Row { cells: self.names.iter().map(String::as_str).zip(cells.iter().map(|c| c.to_string())).collect() });
        }
        let extra = have - want;
        let refusal = || format!("the row has {have} columns for {want}: a | inside a text; leave that column out");
        if extra > MAX_SURPLUS {
            return Err(refusal());
        }
        let places: Vec<usize> = (0..want).filter(|&at| self.names.get(at).is_some_and(|n| FREE_TEXT.contains(&n.as_str()))).collect();
        // One wide text; else two (a job's name stands again in its submit line).
        let alone = places.iter().map(|&place| vec![(place, extra)]);
        let pairs = places.iter().enumerate().flat_map(|(at, &first)| {
            let seconds = places.iter().skip(at + 1);
            seconds.flat_map(move |&second| (1..extra.min(MAX_SPLITS)).map(move |part| vec![(first, part), (second, extra - part)]))
        });
        let mut rows = alone.chain(pairs).filter_map(|wide| self.row_with_wide_columns(&cells, &wide));
        rows.find(|row| is_sensible(row, zone)).ok_or_else(refusal)
    }

    /// The row if each of these columns has so many delimiters inside.
    fn row_with_wide_columns(&self, cells: &[&str], wide: &[(usize, usize)]) -> Option<Row<'_>> {
        let mut row = BTreeMap::new();
        let mut at = 0;
        for (place, name) in self.names.iter().enumerate() {
            let extra = wide.iter().find(|(column, _)| *column == place).map_or(0, |(_, extra)| *extra);
            row.insert(name.as_str(), cells.get(at..=at + extra)?.join(&self.delimiter.to_string()));
            at += extra + 1;
        }
        Some(Row { cells: row })
    }
}

/// Names of columns, one of which is the job's id.
fn read_header(text: &str) -> Option<Columns> {
    let delimiter = if text.contains('|') { '|' } else { '\t' };
    let mut names: Vec<String> = text.split(delimiter).map(|name| name.trim().to_ascii_lowercase()).collect();
    if !names.iter().any(|name| name == "jobid" || name == "jobidraw") || !names.iter().any(|name| name == "state") {
        return None;
    }
    let has_trailing_delimiter = names.last().is_some_and(String::is_empty);
    if has_trailing_delimiter {
        names.pop();
    }
    Some(Columns { delimiter, has_trailing_delimiter, names })
}

fn missing_column(header: &Columns) -> Option<&'static str> {
    let has = |name: &str| header.names.iter().any(|n| n.eq_ignore_ascii_case(name));
    let counts = ["alloctres", "allocgres", "reqtres", "reqgres"];
    REQUIRED.iter().copied().find(|name| !has(name)).or_else(|| (!counts.iter().any(|name| has(name))).then_some("AllocTRES"))
}

/// Whether the cells of known form have it.
fn is_sensible(row: &Row, zone: &TimeZone) -> bool {
    let is_time = |name: &str| {
        let cell = row.cell(name);
        job::is_no_time(cell) || parse_time(cell, zone).is_some()
    };
    let is_number = |name: &str| row.cell(name).bytes().all(|b| b.is_ascii_digit());
    let is_tres = |name: &str| row.cell(name).is_empty() || row.cell(name).split(',').all(|item| item.contains('='));
    let list = row.cell("nodelist");
    (job::parse_state(row.cell("state")).is_some() || row.cell("jobid").contains('.'))
        && ["submit", "eligible", "start", "end"].into_iter().all(is_time)
        && ["elapsedraw", "restarts"].into_iter().all(is_number)
        && ["alloctres", "reqtres"].into_iter().all(is_tres)
        && (list == "None assigned" || hostlist::expand(list).is_some())
}

/// A cell that the fixed-width output cut: it ends in `+`, which none of these columns does by itself.
fn cut_cell(row: &Row) -> Option<&'static str> {
    let columns = [
        ("state", "State"),
        ("alloctres", "AllocTRES"),
        ("allocgres", "AllocGRES"),
        ("nodelist", "NodeList"),
        ("account", "Account"),
        ("user", "User"),
    ];
    columns.into_iter().find(|(name, _)| row.has(name) && row.cell(name).ends_with('+')).map(|(_, field)| field)
}

fn elapsed_ms(row: &Row) -> Option<i64> {
    let raw = row.cell("elapsedraw").parse::<u32>().ok().map(|seconds| i64::from(seconds) * 1000);
    raw.or_else(|| job::parse_elapsed_ms(row.cell("elapsed")).filter(|_| !row.cell("elapsed").is_empty()))
}
