//! The exporter's physics: what it sends of a node in a day.
//!
//! A value is the mean of the true level over the collect interval before the sample, with a little noise; where the
//! exporter collects every 30 s, scrapes between two collections repeat the last one. Counters rise with the true
//! power and lost time. What the exporter does not send is absent.

use std::io::{self, Write};

use gpuledger_model::time::{DAY_MS, SECOND_MS};

use super::metric::{METRICS, Metric, Source};
use super::table::{self, Block};
use crate::chance::Chance;
use crate::fleet::{Machine, SHARE_WHOLE, Scheduler, Sharing};
use crate::options::Fault;
use crate::plan::{Piece, Timeline};
use crate::state::{Levels, SIGNAL_COUNT, Signal, WHOLE_PPM};
use crate::workload::IDLE_POWER;
use crate::world::{Fields, World};

/// Label columns of the Parquet files.
const LABELS: &[&str] = &[
    "gpu",
    "UUID",
    "pci_bus_id",
    "device",
    "modelName",
    "GPU_I_PROFILE",
    "GPU_I_ID",
    "Hostname",
    "namespace",
    "pod",
    "container",
    "exported_namespace",
    "exported_pod",
    "exported_container",
    "hpc_job",
    "job",
    "instance",
    "cluster",
];

/// What the exporter sends of a node in a day.
#[derive(Clone, Debug)]
pub struct NodeDay {
    /// Metrics, in the order of the blocks' values.
    pub metrics: Vec<Metric>,
    /// Whether they go by the names of DCGM 4.6.
    pub is_renamed: bool,
    /// One block for each board or instance.
    pub blocks: Vec<Block>,
}

impl NodeDay {
    /// The names that the metrics go by.
    pub fn names(&self) -> Vec<&'static str> {
        self.metrics.iter().map(|m| if self.is_renamed { m.new_name } else { m.name }).collect()
    }
}

/// Writes a node's day as Parquet.
pub fn write<W: Write + Send>(world: &World, machine: usize, day: i64, fields: Fields, is_second: bool, out: W) -> io::Result<()> {
    let samples = node_day(world, machine, day, fields, is_second);
    let names = samples.names();
    table::write(LABELS, &names, samples.blocks.into_iter(), out)
}

/// What the exporter sends of a node in a day; `is_second` for the other exporter that watches it too.
pub fn node_day(world: &World, machine: usize, day: i64, fields: Fields, is_second: bool) -> NodeDay {
    let metrics: Vec<Metric> = METRICS.iter().filter(|m| fields == Fields::Full || !m.is_profiling()).copied().collect();
    let mut blocks = Vec::new();
    for board in 0..world.machines[machine].boards.len() {
        for slot in 0..world.machines[machine].boards[board].slots.len() {
            let sampler = Sampler::new(world, machine, board, slot, day, is_second);
            blocks.push(sampler.run(&metrics));
        }
    }
    let large = world.machines.iter().position(|m| m.boards.len() == 8).unwrap_or(0);
    // The node next to the first large one is on the new version.
    let is_renamed = world.options.has(Fault::RenamedFields) && machine != large && world.machines[machine].boards.len() == 8;
    NodeDay { metrics, is_renamed, blocks }
}

struct Sampler<'a> {
    world: &'a World,
    machine: &'a Machine,
    number: usize,
    board: usize,
    slot: usize,
    from_ms: i64,
    to_ms: i64,
    /// Mean over so long before a sample.
    collect_ms: i64,
    is_second: bool,
    chance: Chance,
    /// Power of the board over time, in parts per million of its limit.
    power: Vec<(i64, i64, u32)>,
}

impl<'a> Sampler<'a> {
    fn new(world: &'a World, number: usize, board: usize, slot: usize, day: i64, is_second: bool) -> Sampler<'a> {
        let machine = &world.machines[number];
        let from_ms = world.options.start_ms + day * DAY_MS;
        let stream = ((number as u64 * 64 + board as u64) * 16 + slot as u64) * 64 + day as u64 + if is_second { 1 << 40 } else { 0 };
        Sampler {
            world,
            machine,
            number,
            board,
            slot,
            from_ms,
            // A second exporter was started for a few hours only.
            to_ms: if is_second { from_ms + DAY_MS / 3 } else { from_ms + DAY_MS },
            collect_ms: if world.options.has(Fault::Exporter30s) { 30 * SECOND_MS } else { world.options.scrape_ms },
            is_second,
            chance: Chance::new(world.seed, 10_000 + stream),
            power: board_power(machine, board, &world.plan.timelines[number][board]),
        }
    }

    fn run(mut self, metrics: &[Metric]) -> Block {
        let timeline = &self.world.plan.timelines[self.number][self.board][self.slot];
        let step = self.world.options.scrape_ms;
        let rows = usize::try_from((self.to_ms - self.from_ms) / step).unwrap_or(0) + 1;
        let mut block = Block {
            label_sets: Vec::new(),
            sets: Vec::with_capacity(rows),
            times_ms: Vec::with_capacity(rows),
            values: metrics.iter().map(|_| Vec::with_capacity(rows)).collect(),
        };
        let begins = self.machine.paid_from_ms(&self.world.options);
        let gone_at = self.world.plan.vanished.iter().find(|v| v.0 == self.number && v.1 == self.board).map_or(i64::MAX, |v| v.2);
        let gaps = &self.world.plan.gaps[self.number];
        let mut sets: Vec<(Option<usize>, bool)> = Vec::new();
        let mut cursor = 0;
        let mut power_cursor = 0;
        let mut lost = [self.lost_before(timeline, Signal::Thermal, begins), self.lost_before(timeline, Signal::PowerCap, begins)];
        let base = self.counter_base();
        let mut energy_mj = base + energy_between(&self.power, begins, self.from_ms.max(begins), self.machine.limit_watts);
        let mut counted_to = self.from_ms.max(begins);
        let offset = if self.is_second { (self.machine.scrape_offset_ms + 4_000) % step } else { self.machine.scrape_offset_ms };
        let mut collected_at = i64::MIN;
        let mut time = self.from_ms + offset;
        let has_sentinels = self.world.options.has(Fault::Sentinels) && self.number == self.first_large();
        while time < self.to_ms {
            let now = time;
            time += step;
            if now < begins || now >= gone_at || gaps.iter().any(|(from, to)| (*from..*to).contains(&now)) {
                continue;
            }
            let at = now - (now - offset).rem_euclid(self.collect_ms);
            while timeline.get(cursor).is_some_and(|p| p.to_ms <= now) {
                cursor += 1;
            }
            let Some(piece) = timeline.get(cursor) else { break };
            // Exporters name one of several sharers: the last they were told of.
            let holder = piece.holders[1].or(piece.holders[0]);
            let has_moved = self.world.plan.restarts.iter().any(|(machine, at)| *machine == self.number && *at <= now);
            let set = sets.iter().position(|s| *s == (holder, has_moved)).unwrap_or_else(|| {
                sets.push((holder, has_moved));
                block.label_sets.push(self.labels(holder, has_moved));
                sets.len() - 1
            });
            block.sets.push(set as u32);
            block.times_ms.push(now);
            if at == collected_at {
                for column in &mut block.values {
                    let last = column.last().copied().unwrap_or(f64::NAN);
                    column.push(last);
                }
                continue;
            }
            collected_at = at;
            let (since, until) = (at - self.collect_ms, at.max(begins));
            let levels = mean_levels(timeline, cursor, since, until);
            let watts_ppm = mean_power(&self.power, &mut power_cursor, since, until);
            energy_mj += energy_between(&self.power, counted_to, until.max(counted_to), self.machine.limit_watts);
            for (sum, signal) in lost.iter_mut().zip([Signal::Thermal, Signal::PowerCap]) {
                *sum += (until.max(counted_to) - counted_to) as u64 * u64::from(levels.get(signal));
            }
            counted_to = until.max(counted_to);
            for (metric, column) in metrics.iter().zip(&mut block.values) {
                let mut value = self.value(metric, &levels, watts_ppm, energy_mj, lost);
                if has_sentinels && !value.is_nan() && self.chance.number().is_multiple_of(1_024) {
                    value = if metric.kind == "counter" { 9_223_372_036_854_775_794.0 } else { 140_737_488_355_328.0 };
                }
                column.push(value);
            }
        }
        block
    }

    fn value(&mut self, metric: &Metric, levels: &Levels, watts_ppm: u32, energy_mj: u64, lost: [u64; 2]) -> f64 {
        if self.machine.sharing == Sharing::Mig && !metric.is_on_instances {
            return f64::NAN;
        }
        let slot = &self.machine.boards[self.board].slots[self.slot];
        let used = slot.memory_mib * u64::from(levels.get(Signal::Memory)) / 1_000_000;
        let reserved = slot.memory_mib / 128;
        match metric.source {
            Source::Ratio(signal) => {
                let level = self.noisy(levels.get(signal)).min(WHOLE_PPM);
                f64::from((level + 500) / 1_000) / 1_000.0
            }
            Source::Util => f64::from((levels.get(Signal::Util) + 5_000) / 10_000),
            Source::MemoryUsed => used as f64,
            Source::MemoryFree => (slot.memory_mib - reserved).saturating_sub(used) as f64,
            Source::MemoryReserved => reserved as f64,
            Source::Power => {
                let level = u64::from(self.noisy(watts_ppm).min(WHOLE_PPM));
                ((level * u64::from(self.machine.limit_watts) + 50_000) / 100_000) as f64 / 10.0
            }
            Source::PowerLimit => f64::from(self.machine.limit_watts),
            Source::Energy => energy_mj as f64,
            // Traffic over PCIe is stated for generation 5; each generation before it has half of that.
            Source::Traffic(Signal::Nvlink) => f64::from(self.noisy(levels.get(Signal::Nvlink))) * 1_000_000.0,
            Source::Traffic(signal) => f64::from(self.noisy(levels.get(signal)) >> (5 - self.machine.pcie_generation.min(5))) * 1_000_000.0,
            // Milliseconds x parts per million are nanoseconds.
            Source::LostTime(Signal::Thermal) => lost[0] as f64,
            Source::LostTime(_) => lost[1] as f64,
            Source::Xid => 0.0,
            Source::LinkGeneration => f64::from(self.machine.pcie_generation),
            Source::LinkWidth => 16.0,
        }
    }

    /// A level with noise of at most 1.2 % of itself. Nothing stays nothing, and what is full stays full.
    fn noisy(&mut self, level: u32) -> u32 {
        if level == 0 || level == WHOLE_PPM {
            return level;
        }
        let width = level / 83 + 1;
        level - width / 2 + self.chance.below(width + width / 2) / 2 + self.chance.below(width / 4 + 1)
    }

    /// Where the board's energy counter stood when the data began.
    fn counter_base(&self) -> u64 {
        let mut chance = Chance::new(self.world.seed, 5_000 + (self.number * 64 + self.board) as u64);
        4_000_000_000 + u64::from(chance.below(1_000_000)) * 10_000
    }

    fn lost_before(&self, timeline: &Timeline, signal: Signal, begins: i64) -> u64 {
        let until = self.from_ms.max(begins);
        timeline
            .iter()
            .take_while(|p| p.from_ms < until)
            .map(|p| (p.to_ms.min(until) - p.from_ms) as u64 * u64::from(p.state.levels.get(signal)))
            .sum()
    }

    fn first_large(&self) -> usize {
        self.world.machines.iter().position(|m| m.boards.len() == 8).unwrap_or(0)
    }

    fn labels(&self, holder: Option<usize>, has_moved: bool) -> Vec<(&'static str, String)> {
        let board = &self.machine.boards[self.board];
        let mut labels = vec![
            ("gpu", board.index.to_string()),
            ("UUID", board.uuid.clone()),
            ("pci_bus_id", format!("00000000:{:02X}:00.0", 0x10 + board.index * 8)),
            ("device", format!("nvidia{}", board.index)),
            ("modelName", self.machine.model_name.to_string()),
            ("Hostname", self.machine.node.clone()),
            ("cluster", self.machine.cluster.to_string()),
        ];
        if let Some((id, profile)) = board.slots[self.slot].instance {
            labels.push(("GPU_I_PROFILE", profile.to_string()));
            labels.push(("GPU_I_ID", id.to_string()));
        }
        if self.is_second {
            labels.push(("job", "gpu-metrics".to_string()));
            labels.push(("instance", self.machine.exporter.replace(":9400", ":9401")));
        } else {
            labels.push(("job", "dcgm-exporter".to_string()));
            let address = if has_moved { self.machine.exporter.replace("10.", "10.1") } else { self.machine.exporter.clone() };
            labels.push(("instance", address));
        }
        let is_clobbered = self.world.options.has(Fault::LabelClobber) && self.machine.cluster == "west-eks" && !self.is_second;
        if is_clobbered {
            labels.push(("namespace", "monitoring".to_string()));
            labels.push(("pod", format!("dcgm-exporter-{}", &self.machine.uid[..5])));
            labels.push(("container", "exporter".to_string()));
        }
        let Some(holder) = holder.map(|at| &self.world.plan.holders[at]) else { return labels };
        match self.machine.scheduler {
            Scheduler::Slurm => labels.push(("hpc_job", holder.uid.clone())),
            Scheduler::Kubernetes => {
                let names = if is_clobbered {
                    ["exported_namespace", "exported_pod", "exported_container"]
                } else {
                    ["namespace", "pod", "container"]
                };
                for (name, value) in names.into_iter().zip([holder.group, holder.name.as_str(), "main"]) {
                    labels.push((name, value.to_string()));
                }
            }
        }
        labels
    }
}

/// Mean levels over `[since, until)`; the piece at `until` is the one at `cursor` or before it.
fn mean_levels(timeline: &[Piece], cursor: usize, since: i64, until: i64) -> Levels {
    let current = &timeline[cursor];
    if current.from_ms <= since || until <= since {
        return current.state.levels;
    }
    let mut sums = [0u64; SIGNAL_COUNT];
    let mut covered = 0;
    for piece in timeline[..=cursor].iter().rev() {
        let ms = (piece.to_ms.min(until) - piece.from_ms.max(since)).max(0) as u64;
        for (sum, level) in sums.iter_mut().zip(piece.state.levels.0) {
            *sum += ms * u64::from(level);
        }
        covered += ms;
        if piece.from_ms <= since {
            break;
        }
    }
    if covered == 0 {
        return current.state.levels;
    }
    Levels(sums.map(|sum| ((sum + covered / 2) / covered) as u32))
}

/// The power of a board over time: idle power, and what each slot adds by its share.
fn board_power(machine: &Machine, board: usize, slots: &[Timeline]) -> Vec<(i64, i64, u32)> {
    let idle = IDLE_POWER * 1_000;
    if let [timeline] = slots {
        return timeline.iter().map(|p| (p.from_ms, p.to_ms, p.state.levels.get(Signal::Power))).collect();
    }
    let mut cuts: Vec<i64> = slots.iter().flatten().flat_map(|p| [p.from_ms, p.to_ms]).collect();
    cuts.sort_unstable();
    cuts.dedup();
    let shares: Vec<u64> = machine.boards[board].slots.iter().map(|s| s.share).collect();
    let mut cursors = vec![0usize; slots.len()];
    cuts.windows(2)
        .map(|cut| {
            let mut power = u64::from(idle);
            for ((timeline, cursor), share) in slots.iter().zip(&mut cursors).zip(&shares) {
                while timeline.get(*cursor).is_some_and(|p| p.to_ms <= cut[0]) {
                    *cursor += 1;
                }
                let level = timeline.get(*cursor).map_or(idle, |p| p.state.levels.get(Signal::Power));
                power += u64::from(level.saturating_sub(idle)) * share / SHARE_WHOLE;
            }
            (cut[0], cut[1], power as u32)
        })
        .collect()
}

fn mean_power(power: &[(i64, i64, u32)], cursor: &mut usize, since: i64, until: i64) -> u32 {
    while power.get(*cursor).is_some_and(|p| p.1 <= since) {
        *cursor += 1;
    }
    let mut sum = 0u64;
    let mut covered = 0u64;
    for (from, to, level) in power.iter().skip(*cursor).take_while(|p| p.0 < until) {
        let ms = (to.min(&until) - from.max(&since)).max(0) as u64;
        sum += ms * u64::from(*level);
        covered += ms;
    }
    let standing = power.get(*cursor).map_or(0, |p| p.2);
    sum.checked_div(covered).map_or(standing, |mean| mean as u32)
}

/// Energy of a board between two times, mJ: W x ms.
fn energy_between(power: &[(i64, i64, u32)], from: i64, to: i64, limit_watts: u32) -> u64 {
    if to <= from {
        return 0;
    }
    let first = power.partition_point(|p| p.1 <= from);
    power[first..]
        .iter()
        .take_while(|p| p.0 < to)
        .map(|p| (p.1.min(to) - p.0.max(from)).max(0) as u64 * u64::from(p.2) * u64::from(limit_watts) / 1_000_000)
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;

    #[test]
    fn signals_are_in_range_and_counters_rise_over_days() {
        let mut options = Options::new(20, 2);
        options.faults.insert(Fault::UuidVanishes);
        let world = World::generate(5, &options);
        for machine in 0..world.machines.len() {
            let mut before: Vec<f64> = Vec::new();
            for day in 0..2 {
                let samples = node_day(&world, machine, day, Fields::Full, false);
                let energy = samples.metrics.iter().position(|m| m.source == Source::Energy).unwrap();
                let mut after = Vec::new();
                for (at, block) in samples.blocks.iter().enumerate() {
                    for (metric, column) in samples.metrics.iter().zip(&block.values) {
                        for value in column.iter().filter(|v| !v.is_nan()) {
                            match metric.source {
                                Source::Ratio(_) => assert!((0.0..=1.0).contains(value), "{} {value}", metric.name),
                                Source::Util => assert!((0.0..=100.0).contains(value)),
                                Source::Power => assert!(*value > 0.0 && *value <= f64::from(world.machines[machine].limit_watts)),
                                _ => assert!(*value >= 0.0),
                            }
                        }
                    }
                    let counter = &block.values[energy];
                    assert!(counter.windows(2).all(|w| w[0] <= w[1]));
                    if let (Some(first), Some(last)) = (counter.first(), before.get(at)) {
                        assert!(first > last, "the counter goes on over midnight");
                    }
                    after.push(counter.last().copied().unwrap_or(f64::MAX));
                }
                before = after;
            }
        }
    }

    #[test]
    fn without_profiling_no_profiling_field_is_sent() {
        let world = World::generate(5, &Options::new(20, 1));
        let samples = node_day(&world, 3, 0, Fields::NoProfiling, false);
        assert!(samples.names().iter().all(|name| !name.contains("PROF")));
        assert!(samples.names().contains(&"DCGM_FI_DEV_GPU_UTIL"));
    }

    #[test]
    fn a_thirty_second_exporter_repeats_itself() {
        let mut options = Options::new(20, 1);
        options.faults.insert(Fault::Exporter30s);
        let world = World::generate(5, &options);
        let samples = node_day(&world, 3, 0, Fields::Full, false);
        let power = samples.metrics.iter().position(|m| m.source == Source::Power).unwrap();
        let column = &samples.blocks[0].values[power];
        let pairs = column.chunks(2).filter(|pair| pair.len() == 2 && pair[0] == pair[1]).count();
        assert!(
            pairs + 2 >= column.len() / 2 || column[1..].chunks(2).filter(|p| p.len() == 2 && p[0] == p[1]).count() + 2 >= column.len() / 2
        );
    }
}
