//! `scontrol show job -d`, `show node` and `show reservation`, one after the other or mixed, long or `-o`.

use std::collections::BTreeMap;

use gpuledger_model::machine;
use gpuledger_model::tables::placement::{Holder, Node, NodeClaim, Outcome, Placements, Reservation};
use gpuledger_model::time::parse_time;
use jiff::tz::TimeZone;

use super::hostlist;
use super::job::{self, State};
use super::tres::{Gpus, parse_gres, parse_tres};
use crate::Parsed;
use crate::placements::merge_placements;
use crate::refusals::{Refusals, excerpt, foreign_encoding, without_mark};

/// Longest line read.
const MAX_LINE_BYTES: usize = 16 << 20;

/// Reads `scontrol` text. Jobs meet their `sacct` rows by id and start ([`merge_placements`]); times of jobs
/// that still run (`EndTime`) are plans and end nothing.
pub fn parse_scontrol(file: &str, bytes: &[u8], cluster: &str, zone: &TimeZone) -> Parsed<Placements> {
    let mut refusals = Refusals::new(file);
    let mut placements = Placements::default();
    let mut reservations = Vec::new();
    let records = read_records(bytes, &mut refusals);
    let rows = records.len() as u64;
    for record in &records {
        let mut reader = Reader { cluster, zone, record, refusals: &mut refusals };
        match record.fields.first().map(|(key, _)| key.as_str()) {
            Some("JobId") => {
                let (holder, nodes) = reader.job();
                placements.holders.extend(holder);
                placements.nodes.extend(nodes);
            }
            Some("NodeName") => placements.nodes.extend(reader.node()),
            Some("ReservationName") => reservations.push(record),
            _ => refusals.reject(record.line, "", "no record of scontrol show job, node or reservation"),
        }
    }
    // Reservations of whole nodes list no GPUs: the nodes' own are meant.
    for record in reservations {
        let mut reader = Reader { cluster, zone, record, refusals: &mut refusals };
        placements.reservations.extend(reader.reservation(&placements.nodes));
    }
    let (rejects, notices) = refusals.finish();
    Parsed { value: merge_placements(vec![placements]), rows, rejects, notices }
}

/// One record: keys and values in their order, keys repeated where scontrol repeats them.
struct Record {
    line: u64,
    fields: Vec<(String, String)>,
}

impl Record {
    /// A value, unless it is absent or one of Slurm's words for nothing.
    fn value(&self, key: &str) -> Option<&str> {
        let value = self.fields.iter().find(|(k, _)| k == key).map(|(_, value)| value.trim())?;
        (!matches!(value, "" | "(null)" | "N/A" | "n/a" | "None" | "Unknown")).then_some(value)
    }
}

/// Keys that begin a record.
const BEGINNINGS: &[&str] = &["JobId", "NodeName", "ReservationName"];

fn read_records(bytes: &[u8], refusals: &mut Refusals) -> Vec<Record> {
    if let Some(reason) = foreign_encoding(bytes) {
        refusals.reject(0, "", reason);
        return Vec::new();
    }
    let mut records: Vec<Record> = Vec::new();
    let mut is_open = false;
    for (line, bytes) in (1u64..).zip(without_mark(bytes).split(|&b| b == b'\n')) {
        if bytes.len() > MAX_LINE_BYTES {
            refusals.reject(line, "", format!("the line is longer than {} MiB", MAX_LINE_BYTES >> 20));
            continue;
        }
        let Ok(text) = std::str::from_utf8(bytes) else {
            refusals.reject(line, "", "the line is no UTF-8; run scontrol under a UTF-8 locale");
            continue;
        };
        let begins = |text: &str| text.split_once('=').is_some_and(|(key, _)| BEGINNINGS.contains(&key));
        if begins(text) {
            records.push(Record { line, fields: Vec::new() });
            is_open = true;
        } else if !text.starts_with(char::is_whitespace) && !text.trim().is_empty() {
            if !text.starts_with("No ") {
                refusals.reject(line, "", "no line of scontrol show job, node or reservation");
            }
            is_open = false;
        }
        if let Some(record) = records.last_mut().filter(|_| is_open) {
            read_fields(text, &mut record.fields);
        }
    }
    records
}

/// `Key=value` words; a word without `=` continues the value before it (job names and reasons have blanks).
fn read_fields(line: &str, fields: &mut Vec<(String, String)>) {
    for word in line.split_whitespace() {
        let key = word.split_once('=').filter(|(key, _)| is_key(key));
        match (key, fields.last_mut()) {
            (Some((key, value)), _) => fields.push((key.to_string(), value.to_string())),
            (None, Some((_, value))) => {
                value.push(' ');
                value.push_str(word);
            }
            (None, None) => {}
        }
    }
}

/// Keys begin with a capital letter and are short; what people write in comments mostly does not.
fn is_key(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_uppercase())
        && text.len() <= 40
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'/' | b':'))
}

struct Reader<'a> {
    cluster: &'a str,
    zone: &'a TimeZone,
    record: &'a Record,
    refusals: &'a mut Refusals,
}

impl Reader<'_> {
    fn time(&self, key: &str) -> Option<i64> {
        parse_time(self.record.value(key)?, self.zone)
    }

    fn job(&mut self) -> (Option<Holder>, Vec<Node>) {
        let nothing = (None, Vec::new());
        let record = self.record;
        let job = job_id(record);
        let state_text = record.value("JobState").unwrap_or_default();
        let Some(state) = job::parse_state(state_text) else {
            self.refusals.reject(record.line, "JobState", format!("{} is no job state", excerpt(state_text)));
            return nothing;
        };
        // A pending job's StartTime is a plan.
        let (State::Holds | State::Ended(_), Some(from_ms)) = (state, self.time("StartTime")) else { return nothing };
        let nodes = match record.value("NodeList").map(hostlist::expand) {
            Some(Some(nodes)) => nodes,
            Some(None) => {
                self.refusals.reject(record.line, "NodeList", "no list of nodes");
                return nothing;
            }
            None => return nothing,
        };
        let mut holder = job::holder(self.cluster, &job, from_ms);
        if let State::Ended(outcome) = state {
            holder.outcome = outcome;
            holder.to_ms = self.time("EndTime").map(|to_ms| to_ms.max(from_ms));
            if holder.to_ms.is_none() {
                holder.outcome = Outcome::Alive;
            }
        }
        holder.claims = self.claims(&nodes);
        if holder.claims.is_empty() {
            return nothing;
        }
        holder.account = record.value("Account").map(str::to_string);
        holder.user = record.value("UserId").map(|user| user.split('(').next().unwrap_or(user).to_string());
        holder.name = record.value("JobName").unwrap_or_default().to_string();
        if !holder.name.is_empty() {
            holder.workload = format!("Job/{}", holder.name);
        }
        for (key, label) in [("Partition", "partition"), ("QOS", "qos"), ("WCKey", "wckey")] {
            holder.labels.extend(record.value(key).map(|value| (label.to_string(), value.to_string())));
        }
        for (key, name) in [("Comment", "comment"), ("AdminComment", "admincomment")] {
            if let Some(text) = record.value(key) {
                job::apply_comment(&mut holder, text, self.zone, record.line, self.refusals);
                holder.annotations.insert(name.to_string(), text.to_string());
            }
        }
        // The time that a running job has run tells when scontrol was asked.
        let asked_ms = record.value("RunTime").and_then(job::parse_elapsed_ms).map(|run_ms| from_ms.saturating_add(run_ms));
        let planned = |key: &&str| state == State::Holds || *key != "LastSchedEval";
        let seen_ms = ["SubmitTime", "LastSchedEval"].iter().filter(|key| planned(key)).filter_map(|key| self.time(key)).max();
        holder.last_record_ms = Some(from_ms).max(holder.to_ms).max(asked_ms).max(seen_ms);
        let rows = nodes.iter().map(|name| Node { last_record_ms: holder.last_record_ms, ..job::named_node(self.cluster, name) });
        let rows = rows.collect();
        (Some(holder), rows)
    }

    /// The detail lines of `-d` (`Nodes=… GRES=gpu:h100:3(IDX:0-2)`), else the total in equal parts.
    fn claims(&mut self, nodes: &[String]) -> Vec<NodeClaim> {
        let mut by_node: BTreeMap<String, Vec<NodeClaim>> = BTreeMap::new();
        let mut current: Vec<String> = Vec::new();
        for (key, value) in &self.record.fields {
            match key.as_str() {
                "Nodes" => current = hostlist::expand(value).unwrap_or_default(),
                "GRES" | "GRES_IDX" => {
                    let gpus = parse_gres(value);
                    for node in current.drain(..) {
                        by_node.entry(node).or_insert_with_key(|node| job::claims_on(node, &gpus));
                    }
                }
                _ => {}
            }
        }
        if by_node.values().any(|claims| !claims.is_empty()) {
            // In the order of the job's nodes, and only those.
            return nodes.iter().filter_map(|node| by_node.remove(node)).flatten().collect();
        }
        let total = ["AllocTRES", "TRES"].iter().find_map(|key| self.record.value(key)).map(parse_tres).unwrap_or_default();
        job::divide(&total, nodes)
    }

    fn node(&mut self) -> Option<Node> {
        let record = self.record;
        let mut node = job::named_node(self.cluster, record.value("NodeName")?);
        let configured = record.value("CfgTRES").map(parse_tres);
        let gres = record.value("Gres").map(parse_gres);
        if configured.is_some() || gres.is_some() {
            let counted = gres.filter(|g| !g.is_none()).or_else(|| configured.clone()).unwrap_or_default();
            let model = counted.model().map(str::to_string);
            let capacity = boards_of(&counted);
            let offered =
                configured.filter(|c| c.total > 0).map_or(capacity, |c| boards_of(&Gpus { by_type: counted.by_type.clone(), ..c }));
            node.capacity_devices = Some(capacity);
            node.allocatable_devices = Some(offered.min(capacity));
            node.mig_resources = counted.instances().into_iter().map(|(p, n)| (p, u32::try_from(n).unwrap_or(u32::MAX))).collect();
            node.accelerator_model = model;
        }
        if let Some(id) = record.value("InstanceId") {
            let machine = machine::reduce(id);
            node.machine_id = Some(machine.id);
            node.cloud = machine.cloud;
        }
        node.instance_type = record.value("InstanceType").map(str::to_string);
        let state = record.value("State").unwrap_or_default();
        let is_closed = |word: &str| word.starts_with("DRAIN") || word.starts_with("DOWN") || word.starts_with("FAIL");
        node.is_cordoned = state.split(['+', '*', '~', '#', '!', '%', '$', '@', '^', '-']).any(is_closed);
        // `Reason=bad fan [root@2026-10-06T10:00:00]`
        let since = record.value("Reason").and_then(|reason| reason.rsplit_once('@')).map(|(_, time)| time.trim_end_matches(']'));
        let since_ms = since.and_then(|text| parse_time(text, self.zone));
        if node.is_cordoned {
            node.cordoned_from_ms = since_ms;
        }
        let signs = ["BootTime", "SlurmdStartTime", "LastBusyTime"];
        node.last_record_ms = signs.iter().filter_map(|key| self.time(key)).max().max(since_ms);
        for (key, label) in [("Partitions", "partitions"), ("ActiveFeatures", "features")] {
            node.labels.extend(record.value(key).map(|value| (label.to_string(), value.to_string())));
        }
        Some(node)
    }

    fn reservation(&mut self, nodes: &[Node]) -> Vec<Reservation> {
        let record = self.record;
        let name = record.value("ReservationName").unwrap_or_default().to_string();
        let (Some(from_ms), Some(names)) = (self.time("StartTime"), record.value("Nodes").and_then(hostlist::expand)) else {
            self.refusals.notice("slurm_reservation_without_nodes", "reservations without a start or without nodes keep nothing free");
            return Vec::new();
        };
        let gpus = record.value("TRES").map(parse_tres).unwrap_or_default();
        let to_ms = self.time("EndTime");
        let row = |node: &str, count: u32| Reservation {
            cluster: self.cluster.to_string(),
            node: node.to_string(),
            name: name.clone(),
            count,
            from_ms,
            to_ms,
        };
        if gpus.total > 0 {
            return job::divide(&gpus, &names).iter().map(|claim| row(&claim.node, claim.count)).collect();
        }
        let capacity = |name: &str| nodes.iter().find(|n| n.name == name && n.capacity_devices.is_some()).and_then(|n| n.capacity_devices);
        let rows: Vec<Reservation> =
            names.iter().filter_map(|node| capacity(node).map(|count| row(node, count))).filter(|r| r.count > 0).collect();
        if rows.is_empty() {
            let message = "a reservation lists no GPUs, and its nodes are not in the same file: put scontrol show node into it";
            self.refusals.notice("slurm_reservation_without_gpus", message);
        }
        rows
    }
}

/// Array tasks as `sacct` writes them (`12_3`), parts of heterogeneous jobs likewise (`12+1`).
fn job_id(record: &Record) -> String {
    if let (Some(array), Some(task)) = (record.value("ArrayJobId"), record.value("ArrayTaskId")) {
        return format!("{array}_{task}");
    }
    if let (Some(job), Some(offset)) = (record.value("HetJobId"), record.value("HetJobOffset")) {
        return format!("{job}+{offset}");
    }
    record.value("JobId").unwrap_or_default().to_string()
}

/// GPUs as boards: instances fold to the boards that their slices fill.
fn boards_of(gpus: &Gpus) -> u32 {
    let instances = gpus.instances();
    let of_instances = instances.values().fold(0u64, |sum, &count| sum.saturating_add(count));
    let mut slices = 0u64;
    let mut total = 7;
    for (profile, &count) in &instances {
        let (of_profile, of_board) = crate::kubernetes::compute_slices(profile, None);
        slices = slices.saturating_add(count.saturating_mul(of_profile));
        total = of_board;
    }
    let boards = gpus.total.saturating_sub(of_instances).saturating_add(slices.div_ceil(total));
    u32::try_from(boards).unwrap_or(u32::MAX)
}
