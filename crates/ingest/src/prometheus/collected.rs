//! What was read, before it is canonical: counts, rejects, and series in parts that add up in any order.

use std::collections::{BTreeMap, BTreeSet};

use gpuledger_model::tables::reject::Reject;
use gpuledger_model::tables::telemetry::{Column, HolderLabel, Host, SignalSource, Telemetry};
use serde::{Deserialize, Serialize};

use super::gate::Reason;
use super::names::SignalPart;
use super::signals::sum_parts;

/// What became of the samples of one input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Samples seen: accepted + unmapped + stale + rejected.
    pub samples: u64,
    /// Taken.
    pub accepted: u64,
    /// Of metrics that feed no field.
    pub unmapped: u64,
    /// Prometheus' stale markers: the series ends, nothing is refused.
    pub stale: u64,
    /// Refused.
    pub rejected: u64,
}

impl Counts {
    /// Adds another input's counts.
    pub fn add(&mut self, other: Counts) {
        self.samples += other.samples;
        self.accepted += other.accepted;
        self.unmapped += other.unmapped;
        self.stale += other.stale;
        self.rejected += other.rejected;
    }
}

/// Rejects of one input, one entry per metric and reason with the first line and the count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rejects {
    entries: BTreeMap<(String, String), (u64, u64)>,
}

/// Distinct metrics named in the rejects of one input; beyond, the metric is left out.
const REJECT_ENTRIES: usize = 500;

impl Rejects {
    /// Counts one.
    pub fn add(&mut self, line: u64, field: &str, reason: Reason) {
        self.add_text(line, field, reason.text());
    }

    /// Counts one with a text of its own.
    pub fn add_text(&mut self, line: u64, field: &str, reason: &str) {
        let field = if self.entries.len() < REJECT_ENTRIES { field } else { "" };
        let field: String = field.chars().take(200).collect();
        let entry = self.entries.entry((field, reason.to_string())).or_insert((line, 0));
        entry.0 = entry.0.min(line);
        entry.1 += 1;
    }

    /// Rows refused.
    pub fn count(&self) -> u64 {
        self.entries.values().map(|entry| entry.1).sum()
    }

    /// As rows of the `rejects` table.
    pub fn into_rows(self, file: &str) -> Vec<Reject> {
        self.entries
            .into_iter()
            .map(|((field, reason), (line, count))| Reject { file: file.to_string(), line, field, reason, count })
            .collect()
    }
}

/// A part of a host or holder signal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SignalPartKey {
    /// What it is about.
    pub source: SignalSource,
    /// Which signal.
    pub part: SignalPart,
    /// Producer.
    pub producer: String,
    /// The part: processor and mode, container, engine.
    pub key: String,
}

/// What is known of a scraped target, to give its empty scrapes a producer and host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetScrapes {
    /// Hosts and producers of its device rows.
    pub producers: BTreeSet<(Host, String)>,
    /// Times of scrapes without a device row.
    pub empty_times_ms: BTreeSet<i64>,
    /// Whether it ever gave a host or holder signal.
    pub gives_signals: bool,
}

/// All that was read from some inputs; parts of a whole add up in any order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Device series, sightings, labels and scrapes, not canonical yet; its `signals` stay empty.
    pub telemetry: Telemetry,
    /// Parts of signals.
    pub signal_parts: BTreeMap<SignalPartKey, Column>,
    /// Targets scraped as files; the target's name stands for a host.
    pub targets: BTreeMap<Host, TargetScrapes>,
    /// Pods proven to be exporters: (namespace, pod).
    pub exporter_pods: BTreeSet<(String, String)>,
}

impl Collected {
    /// Adds another part.
    pub fn merge(&mut self, other: Collected) {
        self.telemetry.merge(other.telemetry);
        for (key, column) in other.signal_parts {
            let own = self.signal_parts.entry(key).or_default();
            own.times_ms.extend(column.times_ms);
            own.values.extend(column.values);
        }
        for (name, scrapes) in other.targets {
            let own = self.targets.entry(name).or_default();
            own.producers.extend(scrapes.producers);
            own.empty_times_ms.extend(scrapes.empty_times_ms);
            own.gives_signals |= scrapes.gives_signals;
        }
        self.exporter_pods.extend(other.exporter_pods);
    }

    /// The canonical table.
    pub fn into_telemetry(mut self) -> Telemetry {
        let mut telemetry = std::mem::take(&mut self.telemetry);
        for (name, scrapes) in &self.targets {
            if scrapes.empty_times_ms.is_empty() {
                continue;
            }
            let own = (name.clone(), name.name.clone());
            // An empty scrape says that the exporter lives and sees no device. Which exporter is plain
            // where the target has had one; a target with several says of each by its own rows only.
            let producer = match (scrapes.producers.first(), scrapes.producers.len()) {
                (Some(producer), 1) => producer.clone(),
                (None, _) if !scrapes.gives_signals => own,
                _ => continue,
            };
            telemetry.scrapes.entry(producer).or_default().extend(&scrapes.empty_times_ms);
        }
        telemetry.holder_labels.retain(|(_, _, label), _| match label {
            HolderLabel::Pod { namespace, pod } => {
                self.exporter_pods.is_empty() || !self.exporter_pods.contains(&(namespace.clone(), pod.clone()))
            }
            HolderLabel::Job(_) => true,
        });
        let mut parts = Telemetry::default();
        let keys: Vec<SignalPartKey> = self.signal_parts.keys().cloned().collect();
        let mut canonical = BTreeMap::new();
        for key in keys {
            if let Some(mut column) = self.signal_parts.remove(&key) {
                sort_column(&mut column);
                canonical.insert(key, column);
            }
        }
        parts.signals = sum_parts(&canonical);
        telemetry.merge(parts);
        telemetry.canonicalize();
        telemetry
    }
}

/// Ascending times, the greatest value of each.
fn sort_column(column: &mut Column) {
    if column.times_ms.windows(2).all(|pair| pair[0] < pair[1]) {
        return;
    }
    let mut values: BTreeMap<i64, i64> = BTreeMap::new();
    for (time_ms, value) in column.times_ms.iter().zip(&column.values) {
        let own = values.entry(*time_ms).or_insert(*value);
        *own = (*own).max(*value);
    }
    *column = Column { times_ms: values.keys().copied().collect(), values: values.values().copied().collect() };
}
