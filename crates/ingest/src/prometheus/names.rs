//! The table of metric names: which source name is which field, in which unit.

use std::collections::HashMap;
use std::sync::OnceLock;

use gpuledger_model::tables::telemetry::{Field, SignalField};

use super::number::Scale;

/// The text of the table; what was mapped by another is out of date.
pub const NAMES_CSV: &str = include_str!("../../data/metric_names.csv");

/// What a metric feeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Destination {
    /// A field of a device or instance.
    Device(Field),
    /// A signal of a host or holder.
    Signal(SignalPart),
}

/// A signal, or one of the two metrics that a CPU limit is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SignalPart {
    /// The signal itself.
    Whole(SignalField),
    /// CPU microseconds allowed per period.
    CpuQuota,
    /// The period in microseconds.
    CpuPeriod,
}

/// One row of the table.
#[derive(Clone, Debug)]
pub struct Mapping {
    /// Exporter dialect.
    pub dialect: String,
    /// What it feeds.
    pub destination: Destination,
    /// Source number to steps.
    pub scale: Scale,
    /// A lesser source of the field: used only where the first has no value at that time.
    pub is_secondary: bool,
    /// Rows must satisfy this.
    pub condition: Option<Condition>,
    /// Labels that tell the parts of a sum apart.
    pub parts: Vec<String>,
}

/// `label=a|b` or `label!=a|b`; an absent label is the empty text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    label: String,
    is_negated: bool,
    values: Vec<String>,
}

impl Condition {
    fn parse(text: &str) -> Option<Condition> {
        let (label, values, is_negated) = match text.split_once("!=") {
            Some((label, values)) => (label, values, true),
            None => text.split_once('=').map(|(label, values)| (label, values, false))?,
        };
        let values = values.split('|').map(str::to_string).collect();
        Some(Condition { label: label.to_string(), is_negated, values })
    }

    /// Whether a row with these labels satisfies it.
    pub fn holds<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        let value = label(&self.label).unwrap_or_default();
        self.values.iter().any(|v| v == value) != self.is_negated
    }
}

/// A mapped name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MetricId(u16);

impl MetricId {
    /// Its place in the table.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// The names we map; every other name is counted as unmapped.
#[derive(Debug)]
pub struct NameTable {
    ids: HashMap<String, MetricId>,
    rows: Vec<(String, Vec<Mapping>)>,
}

impl NameTable {
    /// The table of `data/metric_names.csv`.
    pub fn get() -> &'static NameTable {
        static TABLE: OnceLock<NameTable> = OnceLock::new();
        TABLE.get_or_init(|| NameTable::read(NAMES_CSV))
    }

    fn read(text: &str) -> NameTable {
        let mut table = NameTable { ids: HashMap::new(), rows: Vec::new() };
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        for row in reader.records().flatten() {
            let cell = |at: usize| row.get(at).unwrap_or_default();
            let number = |at: usize| cell(at).parse::<u64>().ok().filter(|n| *n > 0);
            let (Some(destination), Some(numerator), Some(denominator)) = (destination(cell(2)), number(3), number(4)) else {
                continue;
            };
            let steps_per_unit = match destination {
                Destination::Device(field) if !field.unit().starts_with("1e-6 ") => 1,
                _ => 1_000_000,
            };
            let mapping = Mapping {
                dialect: cell(0).to_string(),
                destination,
                scale: Scale { numerator, denominator, steps_per_unit },
                is_secondary: cell(5) != "1",
                condition: Condition::parse(cell(6)),
                parts: cell(7).split('|').filter(|p| !p.is_empty()).map(str::to_string).collect(),
            };
            match table.ids.get(cell(1)) {
                Some(id) => {
                    if let Some(row) = table.rows.get_mut(usize::from(id.0)) {
                        row.1.push(mapping);
                    }
                }
                None => {
                    let Ok(id) = u16::try_from(table.rows.len()) else { break };
                    table.ids.insert(cell(1).to_string(), MetricId(id));
                    table.rows.push((cell(1).to_string(), vec![mapping]));
                }
            }
        }
        table
    }

    /// The id of a name that is mapped.
    pub fn lookup(&self, name: &str) -> Option<MetricId> {
        self.ids.get(name).copied()
    }

    /// What a name feeds.
    pub fn mappings(&self, id: MetricId) -> &[Mapping] {
        self.rows.get(usize::from(id.0)).map(|row| row.1.as_slice()).unwrap_or_default()
    }

    /// The name of an id.
    pub fn name(&self, id: MetricId) -> &str {
        self.rows.get(usize::from(id.0)).map(|row| row.0.as_str()).unwrap_or_default()
    }

    /// All names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.rows.iter().map(|row| row.0.as_str())
    }
}

fn destination(text: &str) -> Option<Destination> {
    if let Some(field) = Field::from_name(text) {
        return Some(Destination::Device(field));
    }
    let part = match text {
        "host_cpu_total" => SignalPart::Whole(SignalField::HostCpuTotal),
        "host_cpu_idle" => SignalPart::Whole(SignalField::HostCpuIdle),
        "host_cpu_iowait" => SignalPart::Whole(SignalField::HostCpuIowait),
        "holder_cpu_used" => SignalPart::Whole(SignalField::HolderCpuUsed),
        "holder_cpu_limit" => SignalPart::Whole(SignalField::HolderCpuLimit),
        "requests_running" => SignalPart::Whole(SignalField::RequestsRunning),
        "requests_waiting" => SignalPart::Whole(SignalField::RequestsWaiting),
        "cpu_quota" => SignalPart::CpuQuota,
        "cpu_period" => SignalPart::CpuPeriod,
        _ => return None,
    };
    Some(Destination::Signal(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_the_table_is_understood() {
        let rows = NAMES_CSV.lines().count() - 1;
        let table = NameTable::get();
        assert_eq!(table.rows.iter().map(|row| row.1.len()).sum::<usize>(), rows);
        let id = table.lookup("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION").unwrap();
        let mapping = &table.mappings(id)[0];
        assert_eq!(mapping.destination, Destination::Device(Field::Energy));
        assert_eq!(mapping.scale, Scale { numerator: 1, denominator: 1_000, steps_per_unit: 1_000_000 });
        assert_eq!(table.mappings(table.lookup("node_cpu_seconds_total").unwrap()).len(), 3);
        assert!(table.lookup("vllm:prompt_tokens_created").is_none());
    }
}
