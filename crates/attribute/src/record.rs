//! The record of the machines as tables, and back: what the store keeps so that bills and rules can be run again.

use std::collections::{BTreeMap, BTreeSet};

use gpuledger_model::cause::Confidence;
use gpuledger_model::mig::Share;
use gpuledger_model::tables::placement::{Holder, RecordKind};
use gpuledger_model::tables::record::{HoldingRow, HostRow, MachineRow, Measure, RecordTables, SignalRow, SpanRow, UnitRow, WindowRow};
use gpuledger_model::tables::telemetry::{Field, Host};
use gpuledger_model::time::{Window, WindowSet};

use crate::device::{UnitKind, UnitSpan};
use crate::holding::{Holding, Holdings, Part};
use crate::machine::Machine;
use crate::observe::{MachineRecord, SignalMeans};
use crate::run::Observed;
use crate::share;
use crate::window::{FieldColumn, WindowField, WindowRows};

const KINDS: [(UnitKind, &str); 6] = [
    (UnitKind::Board, "board"),
    (UnitKind::Instance, "instance"),
    (UnitKind::Stranded, "stranded"),
    (UnitKind::Anonymous, "anonymous"),
    (UnitKind::Missing, "missing"),
    (UnitKind::Unknown, "unknown"),
];

/// In the order of [`gpuledger_model::tables::record::MEASURES`].
const FIELDS: [WindowField; 24] = [
    WindowField::Engine,
    WindowField::Util,
    WindowField::Sm,
    WindowField::Occupancy,
    WindowField::Tensor,
    WindowField::Dram,
    WindowField::Fp64,
    WindowField::Fp32,
    WindowField::Fp16,
    WindowField::MemoryRatio,
    WindowField::Processes,
    WindowField::Power,
    WindowField::PowerLimit,
    WindowField::Pcie,
    WindowField::LinkPeak,
    WindowField::Energy,
    WindowField::Thermal,
    WindowField::HwThermal,
    WindowField::PowerBrake,
    WindowField::Xid,
    WindowField::RowRemapFailed,
    WindowField::HostCpu,
    WindowField::HostIowait,
    WindowField::PowerLimited,
];

/// The tables of a record; `None` where a sum leaves 64 bits and the tables could not hold it exactly.
pub fn to_tables(observed: &Observed, holders: &[Holder]) -> Option<RecordTables> {
    let mut out = RecordTables::default();
    for host in &observed.hosts {
        out.hosts.push(HostRow { cluster: host.cluster.clone(), name: host.name.clone(), last_sample_ms: observed.last_sample_ms });
    }
    for record in &observed.records {
        let machine = record.machine.id.as_str();
        out.machines.push(MachineRow { machine: machine.to_string(), identity: record.machine.identity(), model: record.model.clone() });
        for unit in &record.units {
            out.units.push(UnitRow {
                machine: machine.to_string(),
                unit: unit.id.clone(),
                board: unit.board.clone(),
                kind: KINDS.iter().find(|(k, _)| *k == unit.kind).map(|(_, word)| *word).unwrap_or_default().to_string(),
                from_ms: unit.window.from_ms,
                to_ms: unit.window.to_ms,
                share_numerator: unit.share.numerator,
                share_denominator: unit.share.denominator,
                profile: unit.profile.clone(),
                model: unit.model.clone(),
            });
        }
        for row in &record.holdings.rows {
            let (is_exact, share) = match row.part {
                Part::Exact(share) => (true, share),
                Part::Weight(share) => (false, share),
            };
            out.holdings.push(HoldingRow {
                machine: machine.to_string(),
                unit: row.unit.clone(),
                holder: row.holder as u64,
                holder_key: holders.get(row.holder).map(|h| h.key.clone()).unwrap_or_default(),
                from_ms: row.window.from_ms,
                to_ms: row.window.to_ms,
                is_exact,
                numerator: share.numerator,
                denominator: share.denominator,
                evidence: row.evidence,
                confidence: row.confidence.as_str().to_string(),
                record: row.record.map(|r| record_word(r).to_string()),
            });
        }
        spans_of(record, &mut out.spans);
        for (id, unit) in &record.unit_records {
            for row in 0..unit.windows.len() {
                out.windows.push(window_row(machine, id, &unit.windows, row)?);
            }
            for ((row, holder), means) in &unit.signals {
                out.signals.push(SignalRow {
                    machine: machine.to_string(),
                    unit: id.clone(),
                    from_ms: unit.windows.from_ms[*row],
                    holder: *holder as u64,
                    running_covered_ms: means.running.0,
                    running_sum: means.running.1,
                    cpu_covered_ms: means.cpu_of_limit.0,
                    cpu_sum: means.cpu_of_limit.1,
                });
            }
        }
    }
    Some(out)
}

fn record_word(record: RecordKind) -> &'static str {
    match record {
        RecordKind::KubernetesDump => "kubernetes_dump",
        RecordKind::SlurmAccounting => "slurm_accounting",
        RecordKind::Inventory => "inventory",
    }
}

fn record_of(word: &str) -> Option<RecordKind> {
    match word {
        "kubernetes_dump" => Some(RecordKind::KubernetesDump),
        "slurm_accounting" => Some(RecordKind::SlurmAccounting),
        "inventory" => Some(RecordKind::Inventory),
        _ => None,
    }
}

fn window_row(machine: &str, unit: &str, windows: &WindowRows, row: usize) -> Option<WindowRow> {
    let mut out = WindowRow::bare(machine, unit, windows.from_ms[row], windows.to_ms[row], windows.observed_ms[row]);
    for (at, field) in FIELDS.iter().enumerate() {
        let Some(column) = windows.fields.get(field).filter(|c| c.covered_ms[row] > 0) else { continue };
        let measure = Measure {
            covered_ms: column.covered_ms[row],
            sum: i64::try_from(column.sum[row]).ok()?,
            sum_squares: i64::try_from(column.sum_squares.get(row).copied().unwrap_or(0)).ok()?,
            least: column.least[row],
            greatest: column.greatest[row],
        };
        if let Some(slot) = out.measure_mut(at) {
            *slot = Some(measure);
        }
    }
    Some(out)
}

fn spans_of(record: &MachineRecord, out: &mut Vec<SpanRow>) {
    let machine = record.machine.id.clone();
    let mut push = |unit: &str, kind: &str, from_ms: i64, to_ms: i64, note: &str, names: &str| {
        out.push(SpanRow {
            machine: machine.clone(),
            unit: unit.to_string(),
            kind: kind.to_string(),
            from_ms,
            to_ms,
            note: note.to_string(),
            names: names.to_string(),
        });
    };
    for part in record.observed.parts() {
        push("", "observed", part.from_ms, part.to_ms, "", "");
    }
    for (hour, (first, last)) in &record.sample_hours {
        push("", "samples", *first, *last, &hour.to_string(), "");
    }
    for (unit, own) in &record.unit_records {
        for part in own.faulty.parts() {
            push(unit, "faulty", part.from_ms, part.to_ms, "", "");
        }
        for part in own.reconfiguring.parts() {
            push(unit, "reconfiguring", part.from_ms, part.to_ms, "", "");
        }
    }
    for (unit, own) in &record.holdings.reserved {
        for part in own.parts() {
            push(unit, "reserved", part.from_ms, part.to_ms, "", "");
        }
    }
    for (unit, field, producers, window) in &record.duplicates {
        push(unit, "duplicate", window.from_ms, window.to_ms, field.as_str(), producers);
    }
    for unit in &record.holdings.over_declared {
        push(unit, "over_declared", 0, 0, "", "");
    }
    for (holder, node, count, window) in &record.holdings.without_device {
        push(holder, "without_device", window.from_ms, window.to_ms, &count.to_string(), node);
    }
}

/// A record from its tables, without the machines' own rows: those come from the bills and placements of the run.
/// `None` where a table does not fit the others.
pub fn from_tables(tables: &RecordTables, label_holders: Vec<Holder>) -> Option<Observed> {
    let mut records: BTreeMap<&str, MachineRecord> = BTreeMap::new();
    for row in &tables.machines {
        let machine = Machine { id: row.machine.clone(), former_identity: Some(row.identity.clone()), ..Machine::default() };
        records.insert(
            &row.machine,
            MachineRecord {
                machine,
                units: Vec::new(),
                unit_records: BTreeMap::new(),
                holdings: Holdings::default(),
                observed: WindowSet::default(),
                sample_hours: BTreeMap::new(),
                duplicates: Vec::new(),
                model: row.model.clone(),
            },
        );
    }
    for row in &tables.units {
        let record = records.get_mut(row.machine.as_str())?;
        record.unit_records.entry(row.unit.clone()).or_default();
        record.units.push(UnitSpan {
            id: row.unit.clone(),
            board: row.board.clone(),
            kind: KINDS.iter().find(|(_, word)| *word == row.kind)?.0,
            window: Window { from_ms: row.from_ms, to_ms: row.to_ms },
            share: Share { numerator: row.share_numerator, denominator: row.share_denominator.max(1) },
            profile: row.profile.clone(),
            model: row.model.clone(),
        });
    }
    for row in &tables.holdings {
        let share = Share { numerator: row.numerator, denominator: row.denominator.max(1) };
        let record = match &row.record {
            Some(word) => Some(record_of(word)?),
            None => None,
        };
        records.get_mut(row.machine.as_str())?.holdings.rows.push(Holding {
            holder: usize::try_from(row.holder).ok()?,
            unit: row.unit.clone(),
            window: Window { from_ms: row.from_ms, to_ms: row.to_ms },
            part: if row.is_exact { Part::Exact(share) } else { Part::Weight(share) },
            evidence: row.evidence,
            confidence: Confidence::from_name(&row.confidence)?,
            record,
        });
    }
    for row in &tables.windows {
        let record = records.get_mut(row.machine.as_str())?;
        push_window(&mut record.unit_records.entry(row.unit.clone()).or_default().windows, row);
    }
    for row in &tables.signals {
        let unit = records.get_mut(row.machine.as_str())?.unit_records.get_mut(&row.unit)?;
        let at = unit.windows.from_ms.binary_search(&row.from_ms).ok()?;
        let means = SignalMeans { running: (row.running_covered_ms, row.running_sum), cpu_of_limit: (row.cpu_covered_ms, row.cpu_sum) };
        unit.signals.insert((at, usize::try_from(row.holder).ok()?), means);
    }
    let mut sets: BTreeMap<(&str, &str, &str), Vec<Window>> = BTreeMap::new();
    for row in &tables.spans {
        let record = records.get_mut(row.machine.as_str())?;
        let window = Window { from_ms: row.from_ms, to_ms: row.to_ms };
        match row.kind.as_str() {
            "samples" => {
                record.sample_hours.insert(row.note.parse().ok()?, (row.from_ms, row.to_ms));
            }
            "duplicate" => record.duplicates.push((row.unit.clone(), Field::from_name(&row.note)?, row.names.clone(), window)),
            "over_declared" => {
                record.holdings.over_declared.insert(row.unit.clone());
            }
            "without_device" => record.holdings.without_device.push((row.unit.clone(), row.names.clone(), row.note.parse().ok()?, window)),
            _ => sets.entry((&row.machine, &row.unit, &row.kind)).or_default().push(window),
        }
    }
    for ((machine, unit, kind), windows) in sets {
        let record = records.get_mut(machine)?;
        let set = WindowSet::from_windows(windows);
        match kind {
            "observed" => record.observed = set,
            "faulty" => record.unit_records.entry(unit.to_string()).or_default().faulty = set,
            "reconfiguring" => record.unit_records.entry(unit.to_string()).or_default().reconfiguring = set,
            "reserved" => {
                record.holdings.reserved.insert(unit.to_string(), set);
            }
            _ => return None,
        }
    }
    for record in records.values_mut() {
        let rows = &record.holdings.rows;
        for (id, unit) in &mut record.unit_records {
            unit.held = share::held_spans(rows, id, &mut BTreeSet::new());
        }
    }
    let hosts = tables.hosts.iter().map(|h| Host { cluster: h.cluster.clone(), name: h.name.clone() }).collect();
    let last_sample_ms = tables.hosts.iter().filter_map(|h| h.last_sample_ms).max();
    Some(Observed { hosts, last_sample_ms, records: records.into_values().collect(), label_holders })
}

fn push_window(windows: &mut WindowRows, row: &WindowRow) {
    let before = windows.len();
    windows.from_ms.push(row.from_ms);
    windows.to_ms.push(row.to_ms);
    windows.observed_ms.push(row.observed_ms);
    for (at, measure) in row.measures().into_iter().enumerate() {
        let field = FIELDS[at];
        if measure.is_none() && !windows.fields.contains_key(&field) {
            continue;
        }
        let squares = field == WindowField::Engine;
        let column = windows.fields.entry(field).or_insert_with(|| FieldColumn {
            covered_ms: vec![0; before],
            sum: vec![0; before],
            sum_squares: vec![0; if squares { before } else { 0 }],
            least: vec![i64::MAX; before],
            greatest: vec![i64::MIN; before],
        });
        let own = measure.unwrap_or(Measure { covered_ms: 0, sum: 0, sum_squares: 0, least: i64::MAX, greatest: i64::MIN });
        column.covered_ms.push(own.covered_ms);
        column.sum.push(i128::from(own.sum));
        if squares {
            column.sum_squares.push(i128::from(own.sum_squares));
        }
        column.least.push(own.least);
        column.greatest.push(own.greatest);
    }
}
