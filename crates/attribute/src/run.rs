//! The whole accounting of one set of tables.

use std::collections::{BTreeMap, BTreeSet};

use gpuledger_model::cause::State;
use gpuledger_model::price::PriceList;
use gpuledger_model::tables::charge::Charge;
use gpuledger_model::tables::placement::{Holder, Placements, RecordKind};
use gpuledger_model::tables::posting::Ledger;
use gpuledger_model::tables::telemetry::{Host, Telemetry};
use gpuledger_model::time::{HOUR_MS, Window, WindowSet, floor_to};

use crate::find::{Ground, MoneyStretch};
use crate::ladder;
use crate::machine::{self, Machine};
use crate::observe::{self, HoldersByNode, Index, MachineRecord};
use crate::paid::{self, Signs};
use crate::pool::{self, RowFacts};
use crate::post::{self, Pool};
use crate::poster::Poster;
use crate::rules::RuleBook;
use crate::spread::Spreader;
use crate::window::WindowField;

/// The tables of a run, but for telemetry.
#[derive(Clone, Copy)]
pub struct Input<'a> {
    /// Placements.
    pub placements: &'a Placements,
    /// Bill rows of the scopes that were not refused, in order of content.
    pub charges: &'a [Charge],
    /// Price list.
    pub prices: &'a PriceList,
    /// Rule book.
    pub book: &'a RuleBook,
}

/// What telemetry and placements yield: the record of the machines. Bills and rules are run from it.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// Hosts of the telemetry.
    pub hosts: BTreeSet<Host>,
    /// The latest sample of all, ms.
    pub last_sample_ms: Option<i64>,
    /// Records by machine id.
    pub records: Vec<MachineRecord>,
    /// Holders that only labels know: rows of the holder table after those of the placements.
    pub label_holders: Vec<Holder>,
}

/// What a run yields.
pub struct Attribution {
    /// Postings, closings, findings.
    pub ledger: Ledger,
    /// The evidence.
    pub observed: Observed,
}

/// Attributes from samples. Same inputs, same bytes (ATTR-2).
pub fn attribute(telemetry: &Telemetry, input: &Input<'_>) -> Attribution {
    let observed = observe_all(telemetry, input);
    Attribution { ledger: ledger(&observed, input), observed }
}

/// Makes the record of all machines.
pub fn observe_all(telemetry: &Telemetry, input: &Input<'_>) -> Observed {
    let hosts: BTreeSet<Host> =
        telemetry.series.keys().map(|k| &k.host).chain(telemetry.sightings.keys().map(|k| &k.host)).cloned().collect();
    let facts = row_facts(input);
    let (machines, _) = machine::join(&hosts, input.placements, input.charges, &facts, input.prices);
    let usage = usage_by_machine(&machines, input, &facts);
    let index = Index::new(telemetry, input.placements);
    let by_node = observe::holders_by_node(input.placements);
    let last_sample_ms = telemetry.last_sample_ms();
    let spans = sign_spans(&machines, &usage.periods, last_sample_ms, &by_node, input).1;
    let (records, label_holders) = records(&machines, &spans, &usage.periods, &index, &by_node, input);
    Observed { hosts, last_sample_ms, records, label_holders }
}

/// Takes a former record for new bills: the same telemetry and placements are understood. `None` where a bill shows
/// something of a machine with telemetry or holders that its record was made without.
pub fn observed_again(former: Observed, input: &Input<'_>) -> Option<Observed> {
    let facts = row_facts(input);
    let (machines, _) = machine::join(&former.hosts, input.placements, input.charges, &facts, input.prices);
    let usage = usage_by_machine(&machines, input, &facts);
    let by_node = observe::holders_by_node(input.placements);
    let mut known: BTreeMap<String, MachineRecord> = former.records.into_iter().map(|r| (r.machine.id.clone(), r)).collect();
    let nothing = Telemetry::default();
    let index = Index::new(&nothing, input.placements);
    let mut out = Vec::with_capacity(machines.len());
    for (at, machine) in machines.into_iter().enumerate() {
        match known.remove(&machine.id) {
            Some(mut record) if record.machine.identity() == machine.identity() => {
                record.machine = machine;
                out.push(record);
            }
            _ if machine.hosts.is_empty() && machine.nodes.is_empty() => {
                // Only bills know it: there is nothing to observe.
                let windows: Vec<Window> = usage.periods[at].keys().copied().collect();
                let range = observe::hours_of(&windows).unwrap_or(Window::new(0, HOUR_MS));
                out.push(observe::observe(&machine, &index, &by_node, input.placements, range, input.book, &mut Vec::new()));
            }
            _ => return None,
        }
    }
    Some(Observed { hosts: former.hosts, last_sample_ms: former.last_sample_ms, records: out, label_holders: former.label_holders })
}

fn row_facts(input: &Input<'_>) -> Vec<RowFacts> {
    input.charges.iter().map(|c| pool::row_facts(c, input.prices, input.book)).collect()
}

/// Machine usage rows.
struct Usage {
    /// Rows by machine and charge period.
    periods: Vec<BTreeMap<Window, Vec<usize>>>,
    /// Machine of each row.
    machine_of_row: Vec<Option<usize>>,
}

fn usage_by_machine(machines: &[Machine], input: &Input<'_>, facts: &[RowFacts]) -> Usage {
    let by_id: BTreeMap<&str, usize> = machines.iter().enumerate().map(|(at, m)| (m.id.as_str(), at)).collect();
    let mut out = Usage { periods: vec![BTreeMap::new(); machines.len()], machine_of_row: vec![None; input.charges.len()] };
    for (at, (charge, row)) in input.charges.iter().zip(facts).enumerate() {
        if !row.is_machine_usage || pool::bill_kind(charge, input.book).is_some() {
            continue;
        }
        if let Some(machine) = by_id.get(row.machine.as_str()).filter(|m| machines[**m].has_accelerators) {
            out.machine_of_row[at] = Some(*machine);
            out.periods[*machine].entry(charge.charge_window()).or_default().push(at);
        }
    }
    out
}

/// Ends of open holdings, and signs of each machine.
struct Ends {
    data_end_ms: i64,
    dump_ends_ms: Vec<i64>,
}

fn sign_spans(
    machines: &[Machine],
    periods: &[BTreeMap<Window, Vec<usize>>],
    last_sample_ms: Option<i64>,
    by_node: &HoldersByNode,
    input: &Input<'_>,
) -> (Ends, Vec<SignSpans>) {
    let data_end_ms = end_of_data(last_sample_ms, input, periods);
    let dump_ends_ms: Vec<i64> = periods.iter().map(|periods| dump_end(periods, last_sample_ms, data_end_ms)).collect();
    let spans =
        machines.iter().zip(&dump_ends_ms).map(|(m, dump_end_ms)| SignSpans::of(m, input, by_node, *dump_end_ms, data_end_ms)).collect();
    (Ends { data_end_ms, dump_ends_ms }, spans)
}

/// Posts every bill row over the record of the machines.
pub fn ledger(observed: &Observed, input: &Input<'_>) -> Ledger {
    let book = input.book;
    let facts = row_facts(input);
    let (machines, remarks) = machine::join(&observed.hosts, input.placements, input.charges, &facts, input.prices);
    debug_assert_eq!(machines.len(), observed.records.len());
    let Usage { periods: usage, machine_of_row: usage_machine } = usage_by_machine(&machines, input, &facts);
    let by_node = observe::holders_by_node(input.placements);
    let (Ends { data_end_ms, dump_ends_ms: dump_ends }, spans) = sign_spans(&machines, &usage, observed.last_sample_ms, &by_node, input);
    let records = &observed.records;
    let holders: Vec<Holder> = input.placements.holders.iter().chain(&observed.label_holders).cloned().collect();
    let (verdicts, ladder_remarks) = ladder::judge(records, &holders, book);

    let scales = post::scope_scales(input.charges);
    let ids = post::pool_ids(input.charges);
    let pool_of = |at: usize| {
        let charge = &input.charges[at];
        let scale = scales.get(&charge.scope).copied().unwrap_or(gpuledger_model::money::SCOPE_SCALE_MIN);
        let units = charge.effective.rescaled(scale).map(|d| d.mantissa).unwrap_or(0);
        Pool { id: ids[at].clone(), scope: &charge.scope, units, scale, state: State::Reconciled }
    };

    let mut digits: BTreeMap<String, u8> = BTreeMap::new();
    for (scope, scale) in &scales {
        let slot = digits.entry(scope.currency.clone()).or_insert(*scale);
        *slot = (*slot).max(*scale);
    }
    let ground = Ground::new(digits);
    let mut poster = Poster { book, holders: &holders, postings: Vec::new(), ground, findings: Vec::new() };
    let mut seen_rows = vec![false; input.charges.len()];
    let all_signs: Vec<Signs> = spans.iter().zip(records).map(|(spans, record)| spans.signs(record)).collect();
    for (at, record) in records.iter().enumerate() {
        let signs = &all_signs[at];
        let unit_ids = unit_ids(record);
        let spreader = Spreader {
            record,
            verdicts: &verdicts[at],
            placements: input.placements,
            holders: &holders,
            dump_end_ms: dump_ends[at],
            data_end_ms,
            unit_ids: &unit_ids,
        };
        let mut counted = WindowSet::default();
        for (period, rows) in &usage[at] {
            if signs.evidence(*period).is_none() && !spans[at].is_covered(*period) {
                continue;
            }
            let devices = devices_of(record, *period);
            let billed_ms = pool::instance_ms(rows.iter().filter_map(|row| facts[*row].hours), devices);
            let paid = paid::paid_time(*period, billed_ms, signs);
            let mut pools: Vec<Pool<'_>> = rows.iter().map(|row| pool_of(*row)).collect();
            if book.bills.host_share == "apart" {
                for (pool, row) in pools.iter_mut().zip(rows) {
                    let share = pool::host_share(&facts[*row], price_of(&record.machine, input.prices), book);
                    poster.host_apart(record, &paid, pool, share);
                }
            }
            if poster.machine(&spreader, &paid, &pools, &mut counted) {
                for row in rows {
                    seen_rows[*row] = true;
                }
            }
        }
        poster.estimate(&spreader, signs, &spans[at], &usage[at], input.prices, &mut counted);
    }
    for (at, charge) in input.charges.iter().enumerate() {
        if !seen_rows[at] {
            let machine = usage_machine[at].map(|m| &machines[m]);
            poster.bill_only(charge, &facts[at], &pool_of(at), machine, &machines, &usage, &all_signs);
        }
    }
    for record in records {
        poster.machine_findings(record);
    }
    poster.remarks(&remarks, &ladder_remarks);
    let Poster { mut postings, ground, mut findings, .. } = poster;
    postings.sort_by(|a, b| {
        (&a.scope, a.hour_ms, &a.device, &a.machine, &a.holder, a.cause.as_str(), a.part, &a.pool).cmp(&(
            &b.scope,
            b.hour_ms,
            &b.device,
            &b.machine,
            &b.holder,
            b.cause.as_str(),
            b.part,
            &b.pool,
        ))
    });
    let closings = post::closings(input.charges, &scales, &postings);
    let figures = |stretches: &[MoneyStretch]| figures_of(records, stretches);
    let mut costly = ground.findings(book, &figures);
    costly.append(&mut findings);
    Ledger { postings, closings, findings: costly }
}

fn unit_ids(record: &MachineRecord) -> Vec<&str> {
    let mut ids: Vec<&str> = record.units.iter().map(|u| u.id.as_str()).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

pub(crate) fn price_of<'a>(machine: &Machine, prices: &'a PriceList) -> Option<&'a gpuledger_model::price::Price> {
    let cloud = machine.cloud.and_then(pool::cloud_word);
    prices.find(cloud, machine.instance_type.as_deref()?, machine.region.as_deref())
}

/// Devices of a machine in a period: what accelerator-hours are divided by.
fn devices_of(record: &MachineRecord, period: Window) -> u32 {
    let mut by_hour: BTreeMap<i64, BTreeSet<&str>> = BTreeMap::new();
    for unit in &record.units {
        let own = unit.window.intersect(period);
        if !own.is_empty() {
            by_hour.entry(floor_to(own.from_ms, HOUR_MS)).or_default().insert(&unit.board);
        }
    }
    let most = by_hour.values().map(|boards| boards.len() as u32).max().unwrap_or(1);
    if record.machine.catalogue_devices > 0 { record.machine.catalogue_devices } else { most }
}

/// The latest sample, scheduler time or end of machine usage.
fn end_of_data(samples: Option<i64>, input: &Input<'_>, usage: &[BTreeMap<Window, Vec<usize>>]) -> i64 {
    let nodes = input.placements.nodes.iter().flat_map(|n| [n.from_ms, n.to_ms, n.last_record_ms]).flatten().max();
    let holders = input.placements.holders.iter().flat_map(|h| [Some(h.from_ms), h.to_ms, h.last_record_ms]).flatten().max();
    let charges = usage.iter().flat_map(|u| u.keys()).map(|w| w.to_ms).max();
    [samples, nodes, holders, charges].into_iter().flatten().max().unwrap_or(0)
}

/// After a single dump, what is alive lasts at most to the end of the machine's charge period that holds the
/// last sample of all.
fn dump_end(periods: &BTreeMap<Window, Vec<usize>>, last_sample_ms: Option<i64>, data_end_ms: i64) -> i64 {
    match last_sample_ms {
        None => data_end_ms,
        Some(last) => periods.keys().filter(|w| w.contains(last)).map(|w| w.to_ms).max().unwrap_or(last).min(data_end_ms),
    }
}

/// The spans of a machine's signs that do not come from samples.
pub(crate) struct SignSpans {
    pub(crate) nodes: Vec<Window>,
    pub(crate) holders: Vec<Window>,
    /// Latest sample or scheduler time.
    pub(crate) last_time_ms: Option<i64>,
    /// Time that a continuous record of a scheduler covers, held or not.
    covered: Vec<Window>,
}

impl SignSpans {
    fn of(machine: &Machine, input: &Input<'_>, by_node: &HoldersByNode, dump_end_ms: i64, data_end_ms: i64) -> SignSpans {
        let mut nodes = Vec::new();
        let mut holders = Vec::new();
        let mut times: Vec<i64> = Vec::new();
        let mut covered = Vec::new();
        for span in &machine.nodes {
            if span.record == Some(RecordKind::SlurmAccounting) {
                covered.push(accounting_window(input, &span.cluster).intersect(span.window));
            }
            if let Some(at) = span.node {
                let node = &input.placements.nodes[at];
                times.extend([node.from_ms, node.to_ms, node.last_record_ms].into_iter().flatten());
                if let Some(from) = node.from_ms {
                    nodes.push(Window::new(from, node.to_ms.unwrap_or(data_end_ms)).intersect(span.window));
                }
            }
            for at in by_node.get(&(span.cluster.clone(), span.name.clone())).into_iter().flatten() {
                let holder = &input.placements.holders[*at];
                let open = if holder.record == RecordKind::KubernetesDump { dump_end_ms } else { data_end_ms };
                let own = Window::new(holder.from_ms, holder.to_ms.unwrap_or(open)).intersect(span.window);
                if !own.is_empty() {
                    holders.push(own);
                    times.push(own.from_ms);
                    times.extend(holder.to_ms.filter(|t| *t <= span.window.to_ms));
                    times.extend(holder.last_record_ms.filter(|t| span.window.contains(*t)));
                }
            }
        }
        covered.retain(|w| !w.is_empty());
        SignSpans { nodes, holders, last_time_ms: times.into_iter().max(), covered }
    }

    /// Whether a continuous record covers the node within a time although it shows nothing of it there.
    fn is_covered(&self, period: Window) -> bool {
        self.covered.iter().any(|w| w.overlaps(period))
    }

    fn signs(&self, record: &MachineRecord) -> Signs {
        let spans = self.nodes.iter().chain(&self.holders).copied().collect();
        let busy = record.observed.union(&WindowSet::from_windows(self.holders.clone()));
        Signs { spans, samples: record.sample_hours.values().copied().collect(), busy }
    }
}

/// From the first to the last time that Slurm's accounting of a cluster tells.
fn accounting_window(input: &Input<'_>, cluster: &str) -> Window {
    let own = input.placements.holders.iter().filter(|h| h.record == RecordKind::SlurmAccounting && h.cluster == cluster);
    let times = own.flat_map(|h| [Some(h.from_ms), h.to_ms, h.last_record_ms]).flatten();
    let (first, last) = times.fold((i64::MAX, i64::MIN), |(first, last), t| (first.min(t), last.max(t)));
    Window::new(first, last.max(first))
}

/// Records of all machines, on as many threads as the machine has; the order of threads leaves no trace.
fn records(
    machines: &[Machine],
    spans: &[SignSpans],
    usage: &[BTreeMap<Window, Vec<usize>>],
    index: &Index<'_>,
    by_node: &HoldersByNode,
    input: &Input<'_>,
) -> (Vec<MachineRecord>, Vec<Holder>) {
    let one = |at: usize| {
        let machine = &machines[at];
        // The time of its signs; a bill alone says when a machine without any was there.
        let mut windows: Vec<Window> = index.sample_window(machine).into_iter().collect();
        let last = spans[at].last_time_ms.unwrap_or(i64::MIN);
        windows.extend(spans[at].holders.iter().chain(&spans[at].nodes).map(|w| Window::new(w.from_ms, w.to_ms.min(last))));
        windows.retain(|w| !w.is_empty());
        if windows.is_empty() {
            windows.extend(usage[at].keys().copied());
        }
        let range = observe::hours_of(&windows).unwrap_or(Window::new(0, HOUR_MS));
        let range = Window::new(range.from_ms.max(range.to_ms - post::SPREAD_HOURS_MAX * HOUR_MS), range.to_ms);
        let mut extra = Vec::new();
        let record = observe::observe(machine, index, by_node, input.placements, range, input.book, &mut extra);
        (record, extra)
    };
    let threads = std::thread::available_parallelism().map(|n| n.get()).unwrap_or(1).min(machines.len().max(1));
    let next = std::sync::atomic::AtomicUsize::new(0);
    let mut slots: Vec<Option<(MachineRecord, Vec<Holder>)>> = Vec::new();
    slots.resize_with(machines.len(), || None);
    let done = std::sync::Mutex::new(&mut slots);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    if at >= machines.len() {
                        break;
                    }
                    let own = one(at);
                    if let Ok(mut slots) = done.lock() {
                        slots[at] = Some(own);
                    }
                }
            });
        }
    });
    let base = input.placements.holders.len();
    let mut holders: Vec<Holder> = Vec::new();
    let mut out = Vec::new();
    for slot in slots.into_iter().flatten() {
        let (mut record, extra) = slot;
        let offset = holders.len();
        for row in &mut record.holdings.rows {
            if row.holder >= base {
                row.holder += offset;
            }
        }
        holders.extend(extra);
        out.push(record);
    }
    (out, holders)
}

/// No usage row and no sign of the machine in the time.
pub(crate) fn is_stopped(window: Window, usage: &BTreeMap<Window, Vec<usize>>, signs: &Signs) -> bool {
    !usage.keys().any(|w| w.overlaps(window)) && signs.evidence(window).is_none()
}

/// Means of the figures that a person would look at first.
fn figures_of(records: &[MachineRecord], stretches: &[MoneyStretch]) -> String {
    let fields = [
        (WindowField::Engine, "engine"),
        (WindowField::Util, "util"),
        (WindowField::Sm, "SM"),
        (WindowField::Tensor, "tensor"),
        (WindowField::Dram, "memory interface"),
        (WindowField::MemoryRatio, "memory used"),
        (WindowField::Power, "power"),
    ];
    let mut sums = [(0i64, 0i128); 7];
    // One record has the unit of a stretch; each window counts once however many rows paid for it.
    let mut times: BTreeMap<&str, Vec<Window>> = BTreeMap::new();
    for stretch in stretches {
        times.entry(&stretch.device).or_default().push(stretch.window);
    }
    for (device, windows) in times {
        let time = WindowSet::from_windows(windows);
        for unit in records.iter().filter_map(|record| record.unit_records.get(device)) {
            for row in time.parts().iter().flat_map(|part| unit.windows.rows_within(*part)) {
                for (at, (field, _)) in fields.iter().enumerate() {
                    if let Some((covered, sum)) = unit.windows.sum(*field, row) {
                        sums[at].0 += covered;
                        sums[at].1 += sum;
                    }
                }
            }
        }
    }
    let texts: Vec<String> = fields
        .iter()
        .zip(sums)
        .filter(|(_, (covered, _))| *covered > 0)
        .map(|((field, name), (covered, sum))| {
            let mean = sum as f64 / covered as f64 / 1e6;
            if *field == WindowField::Power { format!("{name} {mean:.0} W") } else { format!("{name} {:.1} %", mean * 100.0) }
        })
        .collect();
    if texts.is_empty() { "no samples".to_string() } else { format!("mean {}", texts.join(", ")) }
}
