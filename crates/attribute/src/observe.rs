//! From samples to the record of one machine: its units, who held them, and their windows.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use gpuledger_model::accelerator;
use gpuledger_model::mig;
use gpuledger_model::tables::placement::{Holder, Placements};
use gpuledger_model::tables::telemetry::{
    Column, Field, FieldScope, HolderLabel, Host, SeriesKey, SignalField, SignalSource, Telemetry, Unit,
};
use gpuledger_model::time::{HOUR_MS, Window, WindowSet, floor_to};

use crate::device::{self, Boards, SightingsByHost, UnitKind, UnitSpan};
use crate::holding::{self, Activity, Evidence, Holdings};
use crate::machine::Machine;
use crate::rules::RuleBook;
use crate::share::{self, HeldSpan};
use crate::standing::{self, Steps, StepsBuilder, Voice};
use crate::window::{WindowField, WindowRows};

/// The record of one unit.
#[derive(Clone, Debug, Default)]
pub struct UnitRecord {
    /// Its windows.
    pub windows: WindowRows,
    /// Who held it, with shares.
    pub held: Vec<HeldSpan>,
    /// When its board was broken.
    pub faulty: WindowSet,
    /// When its board was being cut anew.
    pub reconfiguring: WindowSet,
    /// Signals of its holders by (window row, holder row).
    pub signals: BTreeMap<(usize, usize), SignalMeans>,
}

/// What a holder's own signals say within a window: covered milliseconds and time-weighted sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SignalMeans {
    /// Requests running, 10^-6.
    pub running: (i64, i64),
    /// CPU used of its limit, 10^-6.
    pub cpu_of_limit: (i64, i64),
}

impl SignalMeans {
    /// Mean of requests running.
    pub fn running_mean(&self) -> Option<f64> {
        (self.running.0 > 0).then(|| self.running.1 as f64 / self.running.0 as f64 / 1e6)
    }

    /// Mean of CPU used of its limit, as a ratio.
    pub fn cpu_mean(&self) -> Option<f64> {
        (self.cpu_of_limit.0 > 0).then(|| self.cpu_of_limit.1 as f64 / self.cpu_of_limit.0 as f64 / 1e6)
    }
}

/// The record of one machine.
#[derive(Clone, Debug)]
pub struct MachineRecord {
    /// The machine.
    pub machine: Machine,
    /// Its units over time.
    pub units: Vec<UnitSpan>,
    /// Record by unit id.
    pub unit_records: BTreeMap<String, UnitRecord>,
    /// The evidence of holding.
    pub holdings: Holdings,
    /// Time with samples.
    pub observed: WindowSet,
    /// First and last sample by hour.
    pub sample_hours: BTreeMap<i64, (i64, i64)>,
    /// Two producers said the same field at the same time: unit, field, producers, when.
    pub duplicates: Vec<(String, Field, String, Window)>,
    /// Energy counters fell back, by board: a reset.
    pub model: Option<String>,
}

/// Rows of holders by the nodes they have a claim on: (cluster, node).
pub type HoldersByNode = BTreeMap<(String, String), Vec<usize>>;

/// Makes [`HoldersByNode`].
pub fn holders_by_node(placements: &Placements) -> HoldersByNode {
    let mut out = HoldersByNode::new();
    for (at, holder) in placements.holders.iter().enumerate() {
        let nodes: BTreeSet<&str> = holder.claims.iter().map(|c| c.node.as_str()).collect();
        for node in nodes {
            out.entry((holder.cluster.clone(), node.to_string())).or_default().push(at);
        }
    }
    out
}

/// A label on a unit, and when it stood there.
type LabelTimes<'a> = (&'a Unit, &'a HolderLabel, &'a [i64]);

/// Rows of telemetry and placements by what machines need, made once.
pub struct Index<'a> {
    sightings: SightingsByHost<'a>,
    series: BTreeMap<&'a Host, Vec<(&'a SeriesKey, &'a Column)>>,
    labels: BTreeMap<&'a Host, Vec<LabelTimes<'a>>>,
    scrapes: BTreeMap<&'a Host, Vec<(&'a str, &'a [i64])>>,
    signals: BTreeMap<(&'a SignalSource, SignalField), &'a Column>,
    /// `cluster` labels of signals that no record bears.
    strange_clusters: BTreeSet<String>,
    holders_by_name: BTreeMap<(String, String, String), Vec<usize>>,
}

impl<'a> Index<'a> {
    /// Builds the index.
    pub fn new(telemetry: &'a Telemetry, placements: &'a Placements) -> Index<'a> {
        let mut out = Index {
            sightings: BTreeMap::new(),
            series: BTreeMap::new(),
            labels: BTreeMap::new(),
            scrapes: BTreeMap::new(),
            signals: BTreeMap::new(),
            strange_clusters: BTreeSet::new(),
            holders_by_name: BTreeMap::new(),
        };
        for (key, span) in &telemetry.sightings {
            out.sightings.entry(key.host.clone()).or_default().push((key, *span));
        }
        for (key, column) in &telemetry.series {
            out.series.entry(&key.host).or_default().push((key, column));
        }
        for ((host, unit, label), times) in &telemetry.holder_labels {
            out.labels.entry(host).or_default().push((unit, label, times));
        }
        for ((host, producer), times) in &telemetry.scrapes {
            out.scrapes.entry(host).or_default().push((producer, times));
        }
        let known: BTreeSet<&str> = placements.holders.iter().map(|h| h.cluster.as_str()).collect();
        for ((source, field), column) in &telemetry.signals {
            out.signals.insert((source, *field), column);
            if let SignalSource::Pod { cluster: Some(cluster), .. } = source
                && !known.contains(cluster.as_str())
            {
                out.strange_clusters.insert(cluster.clone());
            }
        }
        for (at, holder) in placements.holders.iter().enumerate() {
            let name = match &holder.namespace {
                Some(namespace) => (holder.cluster.clone(), namespace.clone(), holder.name.clone()),
                None => (holder.cluster.clone(), String::new(), holder.uid.clone()),
            };
            out.holders_by_name.entry(name).or_default().push(at);
        }
        out
    }

    /// From the first to the last sample of a machine.
    pub fn sample_window(&self, machine: &Machine) -> Option<Window> {
        let spans = machine.hosts.iter().flat_map(|h| {
            let rows = self.sightings.get(&h.host).into_iter().flatten();
            rows.map(|(_, (first, last))| Window::new(*first, last + 1).intersect(h.window)).filter(|w| !w.is_empty())
        });
        spans.reduce(|a, b| Window::new(a.from_ms.min(b.from_ms), a.to_ms.max(b.to_ms)))
    }

    fn holder_steps(&self, holder: &Holder, book: &RuleBook) -> (Steps, Steps) {
        let gauge = |field| self.holder_signal(holder, field).map(|c| standing::gauge_steps(c, book)).unwrap_or_default();
        let used = self.holder_signal(holder, SignalField::HolderCpuUsed).map(standing::counter_rate_steps).unwrap_or_default();
        let of_limit = combine(&used, &gauge(SignalField::HolderCpuLimit), |used, limit| {
            if limit > 0 { (i128::from(used) * 1_000_000 / i128::from(limit)).min(i128::from(i64::MAX)) as i64 } else { 0 }
        });
        (gauge(SignalField::RequestsRunning), of_limit)
    }

    /// A signal of a holder, by its names or addresses.
    fn holder_signal(&self, holder: &Holder, field: SignalField) -> Option<&'a Column> {
        if let Some(namespace) = &holder.namespace {
            // The holder's own cluster, else a series that names none, or one that no record bears.
            let of_cluster = |cluster: Option<String>| {
                let source = SignalSource::Pod { cluster, namespace: namespace.clone(), pod: holder.name.clone() };
                self.signals.get(&(&source, field)).copied()
            };
            let strange = || self.strange_clusters.iter().find_map(|cluster| of_cluster(Some(cluster.clone())));
            if let Some(column) = of_cluster(Some(holder.cluster.clone())).or_else(|| of_cluster(None)).or_else(strange) {
                return Some(column);
            }
        }
        holder.addresses.iter().find_map(|address| self.signals.get(&(&SignalSource::Address(address.clone()), field)).copied())
    }
}

/// Makes the record of a machine. `range` is the time of interest in whole hours; holders that only labels
/// know are added to `extra`.
pub fn observe(
    machine: &Machine,
    index: &Index<'_>,
    by_node: &HoldersByNode,
    placements: &Placements,
    range: Window,
    book: &RuleBook,
    extra: &mut Vec<Holder>,
) -> MachineRecord {
    let mut boards = Boards::collect(machine, &index.sightings);
    boards.correct_profiles(machine, placements);
    let units = device::unit_spans(machine, &boards, placements, range);
    let mut steps = MachineSteps::collect(machine, index, book);
    let mut labels: BTreeMap<String, BTreeMap<HolderLabel, Vec<i64>>> = BTreeMap::new();
    for span in &machine.hosts {
        for (unit, label, times) in index.labels.get(&span.host).into_iter().flatten() {
            let own = times.iter().copied().filter(|t| span.window.contains(*t));
            labels.entry(unit.id()).or_default().entry((*label).clone()).or_default().extend(own);
        }
    }
    for times in labels.values_mut().flat_map(|l| l.values_mut()) {
        times.sort_unstable();
        times.dedup();
    }
    let ids: BTreeSet<&str> = units.iter().map(|u| u.id.as_str()).collect();
    let rank: BTreeMap<String, (Option<Steps>, Option<Steps>)> = ids
        .iter()
        .map(|id| {
            let busy = steps.of(id, Field::Engine).or_else(|| steps.of(id, Field::Util)).cloned();
            (id.to_string(), (busy, steps.of(id, Field::PowerWatts).cloned()))
        })
        .collect();
    let activity = |unit: &str| {
        let own = rank.get(unit);
        Activity { busy: own.and_then(|o| o.0.as_ref()), power: own.and_then(|o| o.1.as_ref()) }
    };
    let evidence = Evidence {
        machine,
        units: &units,
        boards: &boards,
        placements,
        holders_by_node: by_node,
        holders_by_name: &index.holders_by_name,
        labels: &labels,
        activity: &activity,
    };
    let mut holdings = holding::hold(&evidence, extra);
    let mut over_declared = BTreeSet::new();
    let mut unit_records = BTreeMap::new();
    let mut all_observed = Vec::new();
    for id in ids {
        let spans: Vec<&UnitSpan> = units.iter().filter(|u| u.id == id).collect();
        let board = spans.first().map(|u| u.board.clone()).unwrap_or_default();
        let held = share::held_spans(&holdings.rows, id, &mut over_declared);
        let mut edges: Vec<i64> = held.iter().flat_map(|h| [h.window.from_ms, h.window.to_ms]).collect();
        edges.extend(spans.iter().flat_map(|u| [u.window.from_ms, u.window.to_ms]));
        edges.sort_unstable();
        edges.dedup();
        let observed = steps.observed(id);
        all_observed.extend(observed.parts().iter().copied());
        let mut windows = WindowRows::cut(&observed, &edges);
        let model = boards.models.get(&board).map(String::as_str).or(spans.first().and_then(|u| u.model.as_deref()));
        let profile = spans.iter().find_map(|u| u.profile.as_deref());
        steps.fill(&mut windows, id, model, profile);
        let faulty = steps.faulty(&board, book);
        let record = UnitRecord { windows, held, faulty, ..UnitRecord::default() };
        unit_records.insert(id.to_string(), record);
    }
    fill_signals(&holdings, placements, index, book, &mut unit_records);
    mark_reconfiguring(&units, &mut unit_records, &steps);
    holdings.over_declared.extend(over_declared);
    let mut sample_hours: BTreeMap<i64, (i64, i64)> = BTreeMap::new();
    for hours in boards.seen.values() {
        for (hour, (first, last)) in hours {
            let own = sample_hours.entry(*hour).or_insert((*first, *last));
            *own = (own.0.min(*first), own.1.max(*last));
        }
    }
    let model = boards.models.values().next().cloned().or_else(|| units.iter().find_map(|u| u.model.clone()));
    MachineRecord {
        machine: machine.clone(),
        units,
        unit_records,
        holdings,
        observed: WindowSet::from_windows(all_observed),
        sample_hours,
        duplicates: std::mem::take(&mut steps.duplicates),
        model,
    }
}

/// Joins the signals of holders to the windows of the units they held.
fn fill_signals(
    holdings: &Holdings,
    placements: &Placements,
    index: &Index<'_>,
    book: &RuleBook,
    records: &mut BTreeMap<String, UnitRecord>,
) {
    let mut steps: BTreeMap<usize, (Steps, Steps)> = BTreeMap::new();
    for holding in &holdings.rows {
        if let Some(holder) = placements.holders.get(holding.holder) {
            steps.entry(holding.holder).or_insert_with(|| index.holder_steps(holder, book));
        }
    }
    steps.retain(|_, (running, cpu)| !running.is_empty() || !cpu.is_empty());
    for holding in &holdings.rows {
        let (Some((running, cpu)), Some(record)) = (steps.get(&holding.holder), records.get_mut(&holding.unit)) else { continue };
        for row in record.windows.rows_within(holding.window) {
            let window = record.windows.window(row);
            let sum = |steps: &Steps| {
                let (covered, sum) = steps.sum_within(window);
                (covered, i64::try_from(sum).unwrap_or(i64::MAX))
            };
            let means = SignalMeans { running: sum(running), cpu_of_limit: sum(cpu) };
            if means != SignalMeans::default() {
                record.signals.insert((row, holding.holder), means);
            }
        }
    }
}

/// Between the last sample of an old layout and the first of the next, an unheld board is being cut anew.
fn mark_reconfiguring(units: &[UnitSpan], records: &mut BTreeMap<String, UnitRecord>, steps: &MachineSteps<'_>) {
    let mut by_board: BTreeMap<&str, Vec<&UnitSpan>> = BTreeMap::new();
    for unit in units.iter().filter(|u| matches!(u.kind, UnitKind::Instance)) {
        by_board.entry(&unit.board).or_default().push(unit);
    }
    for (board, spans) in by_board {
        let starts: BTreeSet<i64> = spans.iter().map(|u| u.window.from_ms).collect();
        for start in starts {
            let ended: Vec<&&UnitSpan> = spans.iter().filter(|u| u.window.to_ms == start).collect();
            if ended.is_empty() {
                continue;
            }
            let last_seen = steps.present(board).parts().iter().filter(|p| p.from_ms < start).map(|p| p.to_ms.min(start)).max();
            if let Some(last_seen) = last_seen.filter(|l| *l < start) {
                let gap = WindowSet::from_windows(vec![Window::new(last_seen, start)]);
                for unit in ended {
                    if let Some(record) = records.get_mut(&unit.id) {
                        record.reconfiguring = record.reconfiguring.union(&gap);
                    }
                }
            }
        }
    }
}

/// The step functions of a machine's units and boards, one voice each.
struct MachineSteps<'a> {
    by_unit: BTreeMap<String, BTreeMap<Field, Steps>>,
    present: BTreeMap<String, WindowSet>,
    resets: BTreeMap<String, BTreeSet<i64>>,
    scrapes: BTreeMap<String, Vec<i64>>,
    host_cpu: Steps,
    host_iowait: Steps,
    duplicates: Vec<(String, Field, String, Window)>,
    marker: std::marker::PhantomData<&'a ()>,
}

impl<'a> MachineSteps<'a> {
    fn collect(machine: &Machine, index: &Index<'a>, book: &RuleBook) -> MachineSteps<'a> {
        // (unit, field) -> producer -> column, clipped to the machine's time on the host.
        let mut columns: BTreeMap<(String, Field), BTreeMap<&'a str, std::borrow::Cow<'a, Column>>> = BTreeMap::new();
        let mut producers_of_board: BTreeMap<String, BTreeSet<(&'a Host, &'a str)>> = BTreeMap::new();
        for span in &machine.hosts {
            let Some((host, series)) = index.series.get_key_value(&span.host) else { continue };
            for (key, column) in series {
                let clipped = clip(column, span.window);
                if clipped.times_ms.is_empty() {
                    continue;
                }
                producers_of_board.entry(key.unit.uuid.clone()).or_default().insert((host, key.producer.as_str()));
                // One exporter may name its machine in two ways, such as with and without a `cluster` label.
                match columns.entry((key.unit.id(), key.field)).or_default().entry(key.producer.as_str()) {
                    Entry::Vacant(slot) => {
                        slot.insert(clipped);
                    }
                    Entry::Occupied(mut slot) => slot.get_mut().to_mut().merge(&clipped),
                }
            }
        }
        let mut stale: BTreeMap<(String, &str), WindowSet> = BTreeMap::new();
        let mut resets: BTreeMap<String, BTreeSet<i64>> = BTreeMap::new();
        for ((unit, field), by_producer) in &columns {
            for (producer, column) in by_producer {
                if *field == Field::Energy {
                    stale.insert((unit.clone(), producer), standing::stale_time(column, book));
                }
                if matches!(field, Field::Energy | Field::SmCyclesElapsed) {
                    let board = unit.split('/').next().unwrap_or_default().to_string();
                    let falls = (1..column.values.len()).filter(|at| column.values[*at] < column.values[*at - 1]);
                    resets.entry(board).or_default().extend(falls.map(|at| column.times_ms[at]));
                }
            }
        }
        let mut out = MachineSteps {
            by_unit: BTreeMap::new(),
            present: BTreeMap::new(),
            resets,
            scrapes: BTreeMap::new(),
            host_cpu: Steps::default(),
            host_iowait: Steps::default(),
            duplicates: Vec::new(),
            marker: std::marker::PhantomData,
        };
        let mut presence: BTreeMap<String, Vec<Window>> = BTreeMap::new();
        for ((unit, field), by_producer) in &columns {
            let board = unit.split('/').next().unwrap_or_default();
            let mut voices = Vec::new();
            for (producer, column) in by_producer {
                let raw = match field.kind() {
                    gpuledger_model::tables::telemetry::FieldKind::Gauge => standing::gauge_steps(column, book),
                    gpuledger_model::tables::telemetry::FieldKind::Counter => standing::counter_rate_steps(column),
                };
                if field.kind() == gpuledger_model::tables::telemetry::FieldKind::Gauge {
                    presence.entry(board.to_string()).or_default().extend(raw.covered().parts());
                }
                let steps = match stale.get(&(board.to_string(), *producer)) {
                    Some(holes) => raw.without(holes),
                    None => raw,
                };
                voices.push(Voice { producer, times_ms: &column.times_ms, steps });
            }
            let names: Vec<&str> = by_producer.keys().copied().collect();
            let (steps, overlap) = standing::choose_voices(voices);
            if let (Some(first), Some(last)) = (overlap.parts().first(), overlap.parts().last()) {
                out.duplicates.push((unit.clone(), *field, names.join(", "), Window::new(first.from_ms, last.to_ms)));
            }
            out.by_unit.entry(unit.clone()).or_default().insert(*field, steps);
        }
        out.derive_ratios(&columns, &stale);
        out.present = presence.into_iter().map(|(board, windows)| (board, WindowSet::from_windows(windows))).collect();
        for (board, producers) in producers_of_board {
            let mut times: Vec<i64> = Vec::new();
            for (host, producer) in producers {
                for (name, own) in index.scrapes.get(host).into_iter().flatten() {
                    if *name == producer {
                        times.extend_from_slice(own);
                    }
                }
            }
            times.sort_unstable();
            times.dedup();
            out.scrapes.insert(board, times);
        }
        for span in &machine.hosts {
            let source = SignalSource::Host(span.host.clone());
            let signal = |field| index.signals.get(&(&source, field)).copied();
            if let (Some(total), Some(idle)) = (signal(SignalField::HostCpuTotal), signal(SignalField::HostCpuIdle)) {
                let mut busy = standing::counter_ratio_steps(idle, total);
                busy.value = busy.value.iter().map(|idle| 1_000_000 - idle).collect();
                out.host_cpu = out.host_cpu.filled_by(&busy);
            }
            if let (Some(total), Some(iowait)) = (signal(SignalField::HostCpuTotal), signal(SignalField::HostCpuIowait)) {
                out.host_iowait = out.host_iowait.filled_by(&standing::counter_ratio_steps(iowait, total));
            }
        }
        out
    }

    /// Ratios of cycle counters, which come before the gauges where both are there.
    fn derive_ratios(
        &mut self,
        columns: &BTreeMap<(String, Field), BTreeMap<&str, std::borrow::Cow<'_, Column>>>,
        stale: &BTreeMap<(String, &str), WindowSet>,
    ) {
        let pairs = [
            (Field::SmCyclesActive, Field::SmActive),
            (Field::MmaCyclesActive, Field::Tensor),
            (Field::Fp64CyclesActive, Field::Fp64),
            (Field::Fp32CyclesActive, Field::Fp32),
            (Field::Fp16CyclesActive, Field::Fp16),
        ];
        let units: Vec<String> = self.by_unit.keys().cloned().collect();
        for unit in units {
            let Some(elapsed) = columns.get(&(unit.clone(), Field::SmCyclesElapsed)) else { continue };
            let board = unit.split('/').next().unwrap_or_default().to_string();
            for (part, target) in pairs {
                let Some(active) = columns.get(&(unit.clone(), part)) else { continue };
                let voices = active
                    .iter()
                    .filter_map(|(producer, column)| {
                        let ratio = standing::counter_ratio_steps(column, elapsed.get(producer)?);
                        let steps = match stale.get(&(board.clone(), *producer)) {
                            Some(holes) => ratio.without(holes),
                            None => ratio,
                        };
                        Some(Voice { producer, times_ms: &column.times_ms, steps })
                    })
                    .collect();
                let (steps, _) = standing::choose_voices(voices);
                let own = self.by_unit.entry(unit.clone()).or_default();
                let merged = steps.filled_by(own.get(&target).unwrap_or(&Steps::default()));
                own.insert(target, merged);
            }
            // There is no cycle counter of the engine: where its gauge is missing too, the SMs' stands for it.
            let own = self.by_unit.entry(unit.clone()).or_default();
            if !own.contains_key(&Field::Engine)
                && let Some(sm) = own.get(&Field::SmActive).cloned()
            {
                own.insert(Field::Engine, sm);
            }
        }
    }

    /// A field of a unit; board fields of an instance come from its board.
    fn of(&self, unit: &str, field: Field) -> Option<&Steps> {
        let id = if field.scope() == FieldScope::Board { unit.split('/').next().unwrap_or(unit) } else { unit };
        self.by_unit.get(id)?.get(&field).filter(|s| !s.is_empty())
    }

    fn present(&self, board: &str) -> &WindowSet {
        static NONE: WindowSet = WindowSet::EMPTY;
        self.present.get(board).unwrap_or(&NONE)
    }

    fn observed(&self, unit: &str) -> WindowSet {
        let mut parts = Vec::new();
        for field in [Field::Engine, Field::Util, Field::PowerWatts] {
            if let Some(steps) = self.of(unit, field) {
                parts.extend_from_slice(steps.covered().parts());
            }
        }
        WindowSet::from_windows(parts)
    }

    fn faulty(&self, board: &str, _book: &RuleBook) -> WindowSet {
        let none = BTreeSet::new();
        match (self.present.get(board), self.scrapes.get(board)) {
            (Some(present), Some(scrapes)) => {
                device::faulty_spans(present, self.returns_after_reset(board, present).unwrap_or(&none), scrapes)
            }
            _ => WindowSet::default(),
        }
    }

    fn returns_after_reset(&self, board: &str, _present: &WindowSet) -> Option<&BTreeSet<i64>> {
        self.resets.get(board)
    }

    fn fill(&self, windows: &mut WindowRows, unit: &str, model: Option<&str>, profile: Option<&str>) {
        let simple = [
            (Field::Engine, WindowField::Engine),
            (Field::Util, WindowField::Util),
            (Field::SmActive, WindowField::Sm),
            (Field::SmOccupancy, WindowField::Occupancy),
            (Field::Tensor, WindowField::Tensor),
            (Field::Dram, WindowField::Dram),
            (Field::Fp64, WindowField::Fp64),
            (Field::Fp32, WindowField::Fp32),
            (Field::Fp16, WindowField::Fp16),
            (Field::Processes, WindowField::Processes),
            (Field::PowerWatts, WindowField::Power),
            (Field::PowerLimitWatts, WindowField::PowerLimit),
            (Field::Energy, WindowField::Energy),
            (Field::ThrottlePower, WindowField::PowerLimited),
            (Field::ThrottleThermal, WindowField::Thermal),
            (Field::ThrottleHwThermal, WindowField::HwThermal),
            (Field::ThrottleHwPowerBrake, WindowField::PowerBrake),
            (Field::XidLast, WindowField::Xid),
            (Field::RowRemapFailed, WindowField::RowRemapFailed),
        ];
        for (field, target) in simple {
            if let Some(steps) = self.of(unit, field) {
                windows.add(target, steps);
            }
        }
        windows.add(WindowField::MemoryRatio, &self.memory_ratio(unit, model, profile));
        windows.add(WindowField::Pcie, &self.pcie(unit));
        windows.add(WindowField::LinkPeak, &self.link_peak(unit));
        windows.add(WindowField::HostCpu, &self.host_cpu);
        windows.add(WindowField::HostIowait, &self.host_iowait);
    }

    /// Memory used over the unit's memory: reported total, else used + free + reserved, else the table.
    fn memory_ratio(&self, unit: &str, model: Option<&str>, profile: Option<&str>) -> Steps {
        if let Some(ratio) = self.of(unit, Field::MemoryUsedRatio) {
            return ratio.clone();
        }
        let Some(used) = self.of(unit, Field::MemoryUsed) else { return Steps::default() };
        let table_mib = match profile {
            Some(profile) => mig::profile(profile, model).and_then(|p| p.memory_mib),
            None => model.and_then(accelerator::by_name).and_then(|a| a.memory_mib),
        };
        let total = self.of(unit, Field::MemoryTotal);
        let free = self.of(unit, Field::MemoryFree);
        let reserved = self.of(unit, Field::MemoryReserved);
        let mut out = StepsBuilder::default();
        let mut cursors = [0usize; 3];
        for at in 0..used.value.len() {
            let time = used.from_ms[at];
            let mut value_at = |which: usize, steps: Option<&Steps>| {
                let steps = steps?;
                while cursors[which] < steps.value.len() && steps.to_ms[cursors[which]] <= time {
                    cursors[which] += 1;
                }
                (cursors[which] < steps.value.len() && steps.from_ms[cursors[which]] <= time).then(|| steps.value[cursors[which]])
            };
            let whole = match value_at(0, total) {
                Some(total) => Some(total),
                None => match value_at(1, free) {
                    Some(free) => Some(used.value[at] + free + value_at(2, reserved).unwrap_or(0)),
                    None => table_mib.map(|mib| mib as i64 * 1_000_000),
                },
            };
            if let Some(whole) = whole.filter(|w| *w > 0) {
                let ratio = (i128::from(used.value[at]) * 1_000_000 / i128::from(whole)).min(1_000_000) as i64;
                out.push(used.from_ms[at], used.to_ms[at], ratio);
            }
        }
        out.finish()
    }

    fn pcie(&self, unit: &str) -> Steps {
        if unit.contains('/') {
            // PCIe of an instance has no meaning.
            return Steps::default();
        }
        let side = |gauge, counter| self.of(unit, gauge).or_else(|| self.of(unit, counter));
        match (side(Field::PcieTx, Field::PcieTxTotal), side(Field::PcieRx, Field::PcieRxTotal)) {
            (Some(tx), Some(rx)) => add(tx, rx),
            _ => Steps::default(),
        }
    }

    /// Peak of the link one way: lanes x MB/s per lane of its generation (PCI-SIG rates after encoding).
    fn link_peak(&self, unit: &str) -> Steps {
        match (self.of(unit, Field::PcieLinkGen), self.of(unit, Field::PcieLinkWidth)) {
            (Some(generation), Some(width)) => combine(generation, width, |generation, width| {
                let lane = match generation / 1_000_000 {
                    1 => 250,
                    2 => 500,
                    3 => 985,
                    4 => 1_969,
                    5 => 3_938,
                    6 => 7_563,
                    _ => 0,
                };
                lane * width
            }),
            _ => Steps::default(),
        }
    }
}

fn add(left: &Steps, right: &Steps) -> Steps {
    combine(left, right, |a, b| a.saturating_add(b))
}

/// A function of two step functions where both have a value.
fn combine(left: &Steps, right: &Steps, f: impl Fn(i64, i64) -> i64) -> Steps {
    let mut out = StepsBuilder::default();
    let (mut a, mut b) = (0, 0);
    while a < left.value.len() && b < right.value.len() {
        let from = left.from_ms[a].max(right.from_ms[b]);
        let to = left.to_ms[a].min(right.to_ms[b]);
        out.push(from, to, f(left.value[a], right.value[b]));
        if left.to_ms[a] <= right.to_ms[b] {
            a += 1;
        } else {
            b += 1;
        }
    }
    out.finish()
}

fn clip(column: &Column, window: Window) -> std::borrow::Cow<'_, Column> {
    let first = column.times_ms.partition_point(|t| *t < window.from_ms);
    let last = column.times_ms.partition_point(|t| *t < window.to_ms);
    if first == 0 && last == column.times_ms.len() {
        return std::borrow::Cow::Borrowed(column);
    }
    std::borrow::Cow::Owned(Column { times_ms: column.times_ms[first..last].to_vec(), values: column.values[first..last].to_vec() })
}

/// The hours that a machine's record must cover: from its first to its last sign, and its charges.
pub fn hours_of(windows: &[Window]) -> Option<Window> {
    let first = windows.iter().filter(|w| !w.is_empty()).map(|w| w.from_ms).min()?;
    let last = windows.iter().filter(|w| !w.is_empty()).map(|w| w.to_ms).max()?;
    let from = floor_to(first, HOUR_MS);
    let to = floor_to(last - 1, HOUR_MS) + HOUR_MS;
    Some(Window::new(from, to))
}
