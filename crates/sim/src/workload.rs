//! What runs on the devices: each kind of work as a script of phases with known losses.
//!
//! Truth decisions:
//! - a holding that begins within the data is `starting` until it first works, at most 30 minutes of it; one that
//!   never works starts for 30 minutes and is then `empty` or `vram_parked`;
//! - idle of 15 minutes or more has its name from its first second; shorter idle is `headroom`. The scripts keep
//!   clear of the limit: idle gaps are at most 10 minutes or at least 30;
//! - what interrupts work (idle, waits, heat) begins at any second; work begins on a whole 5 minutes or, in a third
//!   of all cases, up to 75 s after one. This favours the accounting: where work begins late in a window, that
//!   window mixes much idle with a little work, and its mean and deviation are those of a starved device. With
//!   beginnings at any second too, a few of sixty worlds post 1 % to 1.5 % of their counter-examples as waste;
//! - where the link between host and device is full, idle is `input_starved` and unfilled is `copy_bound`.

use gpuledger_model::cause::Cause;
use gpuledger_model::time::{MINUTE_MS, SECOND_MS, WINDOW_MS, floor_to};

use crate::chance::Chance;
use crate::state::{Levels, SIGNAL_COUNT, Signal, State};

/// A kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Workload {
    /// Training that keeps its devices busy, with checkpoints.
    Training,
    /// Training that waits for its input.
    TrainingStarved,
    /// Training with long waits for its peers.
    TrainingInterconnect,
    /// Training in FP32.
    TrainingFp32,
    /// Training of small kernels.
    TrainingSmallKernels,
    /// Training bound by memory latency at low occupancy.
    TrainingMemoryLatency,
    /// Low occupancy at high tensor use, by design.
    FlashAttention,
    /// Full power at the cap.
    PowerCapped,
    /// Training with evaluation phases and short idle gaps.
    EvaluationPhases,
    /// A long staging of data before the work.
    StagedTraining,
    /// Training bound by copies over PCIe.
    CopyBound,
    /// Clocks lowered by heat for a time.
    Throttled,
    /// Hangs in a collective for a time.
    HungCollective,
    /// Fails for good, without a checkpoint.
    FailedForGood,
    /// Preempted, without evidence of a checkpoint.
    Preempted,
    /// Preempted, requeued and resumed from its last checkpoint.
    PreemptedResumed,
    /// Serves an LLM with requests in flight: bandwidth is what it is for.
    LlmDecode,
    /// Offline inference at the memory's limit, not declared.
    BatchInference,
    /// A replica kept warm by declaration.
    WarmStandby,
    /// A notebook that works now and then and keeps its memory.
    NotebookParked,
    /// A notebook that never works.
    NotebookEmpty,
    /// Small inference on a shared device.
    SharedInference,
    /// Small inference on an instance, at its limit.
    InstanceInference,
    /// A notebook on an instance. Without profiling fields nothing shows when it is idle beside busy neighbours:
    /// instances have no GPU_UTIL and the board's power is shared.
    InstanceNotebook,
}

impl Workload {
    /// Work that must not be called waste (ACCOUNTING section 9).
    pub fn is_counterexample(self) -> bool {
        matches!(
            self,
            Workload::FlashAttention
                | Workload::PowerCapped
                | Workload::EvaluationPhases
                | Workload::StagedTraining
                | Workload::LlmDecode
                | Workload::WarmStandby
        )
    }

    /// A word for names of pods and jobs.
    pub fn word(self) -> &'static str {
        match self {
            Workload::Training => "pretrain",
            Workload::TrainingStarved => "vision-train",
            Workload::TrainingInterconnect => "moe-train",
            Workload::TrainingFp32 => "physics-fit",
            Workload::TrainingSmallKernels => "graph-train",
            Workload::TrainingMemoryLatency => "embed-train",
            Workload::FlashAttention => "longctx-train",
            Workload::PowerCapped => "dense-train",
            Workload::EvaluationPhases => "finetune-eval",
            Workload::StagedTraining => "video-train",
            Workload::CopyBound => "offload-train",
            Workload::Throttled => "diffusion-train",
            Workload::HungCollective => "rlhf-train",
            Workload::FailedForGood => "sweep",
            Workload::Preempted => "backfill",
            Workload::PreemptedResumed => "resilient-train",
            Workload::LlmDecode => "llm-serve",
            Workload::BatchInference => "batch-score",
            Workload::WarmStandby => "llm-warm",
            Workload::NotebookParked => "notebook",
            Workload::NotebookEmpty => "workspace",
            Workload::SharedInference => "small-serve",
            Workload::InstanceInference => "mig-serve",
            Workload::InstanceNotebook => "mig-notebook",
        }
    }

    /// Whether it serves requests and says so.
    pub fn is_serving(self) -> bool {
        matches!(self, Workload::LlmDecode | Workload::WarmStandby)
    }
}

/// A time with one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phase {
    /// From, ms.
    pub from_ms: i64,
    /// To, ms.
    pub to_ms: i64,
    /// State.
    pub state: State,
}

/// `(engine, sm, occupancy, tensor, dram, fp32, util, memory, power)` in thousandths.
type Figures = (u32, u32, u32, u32, u32, u32, u32, u32, u32);

const fn levels(figures: Figures) -> Levels {
    let mut out = [0; SIGNAL_COUNT];
    out[Signal::Engine as usize] = figures.0 * 1000;
    out[Signal::Sm as usize] = figures.1 * 1000;
    out[Signal::Occupancy as usize] = figures.2 * 1000;
    out[Signal::Tensor as usize] = figures.3 * 1000;
    out[Signal::Dram as usize] = figures.4 * 1000;
    out[Signal::Fp32 as usize] = figures.5 * 1000;
    out[Signal::Util as usize] = figures.6 * 1000;
    out[Signal::Memory as usize] = figures.7 * 1000;
    out[Signal::Power as usize] = figures.8 * 1000;
    // Some host traffic with any work; nothing here comes near a link's limit.
    out[Signal::PcieTx as usize] = figures.0 / 20;
    out[Signal::PcieRx as usize] = figures.0 / 8;
    Levels(out)
}

/// Power of a device that does nothing, in thousandths of its limit.
pub const IDLE_POWER: u32 = 100;

const TRAINING: Figures = (970, 900, 450, 620, 420, 60, 1000, 780, 900);
const FLASH: Figures = (980, 850, 100, 760, 300, 50, 1000, 820, 930);
const CAPPED: Figures = (990, 930, 400, 700, 450, 60, 1000, 850, 985);
const FP32: Figures = (970, 850, 500, 10, 300, 550, 1000, 600, 750);
const SMALL_KERNELS: Figures = (850, 180, 300, 30, 80, 40, 980, 300, 330);
const MEMORY_LATENCY: Figures = (960, 780, 90, 120, 280, 100, 1000, 500, 520);
const COPYING: Figures = (850, 200, 300, 50, 300, 60, 970, 880, 380);
const HOT: Figures = (970, 900, 450, 500, 350, 50, 1000, 780, 700);
const DECODE: Figures = (960, 720, 350, 110, 640, 40, 990, 900, 560);
const BATCH: Figures = (970, 700, 350, 150, 680, 40, 1000, 850, 580);
const STARVED_LOW: Figures = (80, 40, 200, 10, 20, 5, 300, 700, 180);
const STARVED_HIGH: Figures = (580, 360, 400, 200, 200, 40, 800, 700, 420);
const PEER_WAIT: Figures = (990, 930, 200, 20, 50, 10, 1000, 780, 330);
const HUNG: Figures = (1000, 950, 200, 0, 0, 0, 1000, 780, 160);
const EVALUATION: Figures = (650, 480, 300, 250, 250, 40, 900, 780, 500);
const CHECKPOINT: Figures = (10, 5, 0, 0, 0, 0, 20, 780, 200);
const NOTEBOOK: Figures = (550, 420, 300, 120, 220, 80, 700, 600, 420);
const SHARED: Figures = (700, 450, 300, 160, 300, 60, 900, 700, 500);
const INSTANCE: Figures = (900, 700, 350, 420, 380, 60, 0, 750, 620);
const PARKED: Figures = (0, 0, 0, 0, 0, 0, 0, 600, 120);
const WARM: Figures = (0, 0, 0, 0, 0, 0, 0, 880, 120);
const EMPTY: Figures = (0, 0, 0, 0, 0, 0, 0, 4, IDLE_POWER);
const STAGING: Figures = (0, 0, 0, 0, 0, 0, 0, 20, 104);

/// A device that nobody holds.
pub fn unheld(cause: Cause) -> State {
    let mut state = idle(EMPTY, cause);
    state.whole = Some(cause);
    state
}

fn idle(figures: Figures, cause: Cause) -> State {
    let mut state = State::neutral(levels(figures));
    state.idle = cause;
    state
}

/// What a script needs to know of its holding.
#[derive(Clone, Copy, Debug)]
pub struct Holding {
    /// Start of the holding, ms; may lie before the data.
    pub from_ms: i64,
    /// End of it, or of the data, ms.
    pub to_ms: i64,
    /// Start of the data, ms.
    pub data_from_ms: i64,
}

/// The phases of a holding, within the data. `checkpoints_ms` are the times at which it saved its state.
pub fn script(workload: Workload, holding: Holding, chance: &mut Chance) -> Vec<Phase> {
    let mut writer = Writer {
        at_ms: holding.from_ms.max(holding.data_from_ms),
        to_ms: holding.to_ms,
        phases: Vec::new(),
        jitter: chance.between(970, 1_030) as u32,
    };
    let begins_here = holding.from_ms >= holding.data_from_ms;
    if begins_here {
        let minutes = match workload {
            Workload::StagedTraining => chance.between(18, 24),
            Workload::NotebookEmpty => 30,
            Workload::LlmDecode | Workload::WarmStandby => chance.between(4, 12),
            Workload::SharedInference => 0,
            _ => chance.between(2, 9),
        };
        if minutes > 0 {
            let end = match workload {
                Workload::NotebookEmpty => holding.from_ms + 30 * MINUTE_MS,
                Workload::WarmStandby => writer.boundary(minutes).min(floor_to(holding.from_ms + 30 * MINUTE_MS, WINDOW_MS)),
                _ => {
                    let latest = floor_to(holding.from_ms + 29 * MINUTE_MS, WINDOW_MS);
                    let end = writer.busy_from(minutes, chance);
                    if end > latest { latest } else { end }
                }
            };
            writer.until(end, idle(STAGING, Cause::Starting));
        }
    }
    while writer.at_ms < writer.to_ms {
        round(workload, &mut writer, chance, holding);
    }
    writer.phases
}

/// One round of a workload's life.
fn round(workload: Workload, writer: &mut Writer, chance: &mut Chance, holding: Holding) {
    let rest = writer.to_ms - writer.at_ms;
    match workload {
        Workload::Training | Workload::Preempted | Workload::PreemptedResumed | Workload::StagedTraining => {
            train(writer, chance, TRAINING, |_| ());
        }
        Workload::FailedForGood => train(writer, chance, TRAINING, |state| state.is_lost = true),
        Workload::FlashAttention => train(writer, chance, FLASH, |_| ()),
        Workload::PowerCapped => train(writer, chance, CAPPED, |state| {
            state.levels = state.levels.with(Signal::PowerCap, 600_000);
        }),
        Workload::TrainingFp32 => train(writer, chance, FP32, |state| state.issue = Cause::LowPrecisionUnused),
        Workload::TrainingSmallKernels => train(writer, chance, SMALL_KERNELS, |state| state.fill = Cause::UnderFilled),
        Workload::TrainingMemoryLatency => train(writer, chance, MEMORY_LATENCY, |state| state.issue = Cause::MemoryLatency),
        Workload::CopyBound => train(writer, chance, COPYING, |state| {
            // Both directions of the link near their limit: what is idle waits for its input, what is busy copies.
            state.idle = Cause::InputStarved;
            state.fill = Cause::CopyBound;
            state.levels = state.levels.with(Signal::PcieRx, 56_000).with(Signal::PcieTx, 28_000);
        }),
        Workload::TrainingStarved => {
            let end = writer.at_ms + 60 * MINUTE_MS;
            while writer.at_ms < end.min(writer.to_ms) {
                for figures in [STARVED_LOW, STARVED_HIGH] {
                    writer.until(writer.at_ms + 75 * SECOND_MS, idle(figures, Cause::InputStarved));
                }
            }
        }
        Workload::TrainingInterconnect => {
            writer.busy(chance.between(50, 80), TRAINING, chance);
            let mut wait = State::neutral(levels(PEER_WAIT));
            wait.fill = Cause::InterconnectWait;
            wait.issue = Cause::InterconnectWait;
            wait.levels = wait.levels.with(Signal::Nvlink, 24_000);
            writer.until(writer.boundary(chance.between(20, 45)), wait);
        }
        Workload::Throttled => {
            writer.busy(chance.between(60, 100), TRAINING, chance);
            let mut hot = State::neutral(levels(HOT));
            hot.issue = Cause::Throttled;
            hot.levels = hot.levels.with(Signal::Thermal, 300_000);
            writer.until(writer.boundary(chance.between(60, 150)), hot);
        }
        Workload::HungCollective => {
            writer.busy(chance.between(60, 120), TRAINING, chance);
            let mut hung = State::neutral(levels(HUNG));
            hung.fill = Cause::InterconnectWait;
            hung.issue = Cause::InterconnectWait;
            writer.until(writer.boundary(chance.between(60, 130)), hung);
        }
        Workload::EvaluationPhases => {
            writer.busy(chance.between(60, 100), TRAINING, chance);
            writer.until(writer.boundary(chance.between(8, 15)), State::neutral(levels(EVALUATION)));
            if chance.percent(50) {
                writer.busy(chance.between(20, 40), TRAINING, chance);
                writer.until(writer.boundary(5), idle(PARKED, Cause::Headroom));
            }
        }
        Workload::LlmDecode => {
            let mut decode = State::neutral(levels(DECODE));
            decode.levels = decode.levels.with(Signal::Requests, 12_000_000);
            let minutes = chance.between(240, 420);
            writer.until(writer.interrupted_from(minutes, chance), writer.varied(decode));
            if rest > 600 * MINUTE_MS && chance.percent(60) {
                let minutes = chance.between(60, 150);
                writer.until(writer.busy_from(minutes, chance), idle(WARM, Cause::VramParked));
            }
        }
        Workload::BatchInference => {
            let mut state = State::neutral(levels(BATCH));
            state.is_bandwidth_waste = true;
            writer.until(writer.boundary(chance.between(60, 120)), writer.varied(state));
        }
        Workload::WarmStandby => {
            // The loading replica never works: the rest of its first half hour is `starting` too.
            if holding.from_ms >= holding.data_from_ms {
                writer.until((holding.from_ms + 30 * MINUTE_MS).max(writer.at_ms), idle(WARM, Cause::Starting));
            }
            writer.until(writer.to_ms, idle(WARM, Cause::Standby));
        }
        Workload::NotebookParked => {
            let minutes = chance.between(15, 35);
            writer.until(writer.interrupted_from(minutes, chance), writer.varied(State::neutral(levels(NOTEBOOK))));
            let minutes = chance.between(60, 200);
            writer.until(writer.busy_from(minutes, chance), idle(PARKED, Cause::VramParked));
        }
        Workload::NotebookEmpty => writer.until(writer.to_ms, idle(EMPTY, Cause::Empty)),
        Workload::SharedInference => {
            let minutes = chance.between(90, 240);
            writer.until(writer.interrupted_from(minutes, chance), writer.varied(State::neutral(levels(SHARED))));
            let minutes = chance.between(45, 120);
            writer.until(writer.busy_from(minutes, chance), idle(PARKED, Cause::VramParked));
        }
        Workload::InstanceNotebook => {
            let minutes = chance.between(60, 120);
            writer.until(writer.interrupted_from(minutes, chance), writer.varied(State::neutral(levels(NOTEBOOK))));
            let minutes = chance.between(40, 70);
            writer.until(writer.busy_from(minutes, chance), idle(PARKED, Cause::VramParked));
        }
        Workload::InstanceInference => {
            writer.until(writer.boundary(chance.between(120, 240)), writer.varied(State::neutral(levels(INSTANCE))));
        }
    }
}

/// Busy for an hour or two, then a checkpoint of two minutes.
fn train(writer: &mut Writer, chance: &mut Chance, figures: Figures, mark: impl Fn(&mut State)) {
    let mut state = writer.varied(State::neutral(levels(figures)));
    mark(&mut state);
    writer.until(writer.boundary(chance.between(60, 120)) + 90 * SECOND_MS, state);
    let mut pause = State::neutral(levels(CHECKPOINT));
    pause.is_lost = state.is_lost;
    writer.until(writer.at_ms + 2 * MINUTE_MS, pause);
}

struct Writer {
    at_ms: i64,
    to_ms: i64,
    phases: Vec<Phase>,
    jitter: u32,
}

impl Writer {
    fn until(&mut self, to_ms: i64, state: State) {
        let to_ms = to_ms.min(self.to_ms);
        if to_ms > self.at_ms {
            self.phases.push(Phase { from_ms: self.at_ms, to_ms, state });
            self.at_ms = to_ms;
        }
    }

    /// Work until something interrupts it.
    fn busy(&mut self, minutes: i64, figures: Figures, chance: &mut Chance) {
        let end = self.interrupted_from(minutes, chance);
        self.until(end, self.varied(State::neutral(levels(figures))));
    }

    /// The whole five minutes nearest to so many minutes from here, at least one on.
    fn boundary(&self, minutes: i64) -> i64 {
        floor_to(self.at_ms + minutes * MINUTE_MS + WINDOW_MS / 2, WINDOW_MS).max(floor_to(self.at_ms, WINDOW_MS) + WINDOW_MS)
    }

    /// Where work begins after idle: on a boundary, or a little after it.
    fn busy_from(&self, minutes: i64, chance: &mut Chance) -> i64 {
        self.boundary(minutes) + if chance.percent(35) { chance.between(1, 75) * SECOND_MS } else { 0 }
    }

    /// Where work is interrupted: at any second of the five minutes before a boundary.
    fn interrupted_from(&self, minutes: i64, chance: &mut Chance) -> i64 {
        self.boundary(minutes.max(10)) - chance.between(0, 299) * SECOND_MS
    }

    /// The state with this holding's own strength of work: no two jobs are alike.
    fn varied(&self, mut state: State) -> State {
        for signal in [Signal::Sm, Signal::Tensor, Signal::Dram] {
            let level = u64::from(state.levels.get(signal)) * u64::from(self.jitter) / 1_000;
            state.levels = state.levels.with(signal, level as u32);
        }
        state
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuledger_model::time::HOUR_MS;

    const ALL: &[Workload] = &[
        Workload::Training,
        Workload::TrainingStarved,
        Workload::TrainingInterconnect,
        Workload::TrainingFp32,
        Workload::TrainingSmallKernels,
        Workload::TrainingMemoryLatency,
        Workload::FlashAttention,
        Workload::PowerCapped,
        Workload::EvaluationPhases,
        Workload::StagedTraining,
        Workload::CopyBound,
        Workload::Throttled,
        Workload::HungCollective,
        Workload::FailedForGood,
        Workload::Preempted,
        Workload::PreemptedResumed,
        Workload::LlmDecode,
        Workload::BatchInference,
        Workload::WarmStandby,
        Workload::NotebookParked,
        Workload::NotebookEmpty,
        Workload::SharedInference,
        Workload::InstanceInference,
        Workload::InstanceNotebook,
    ];

    fn phases(workload: Workload, seed: u64) -> Vec<Phase> {
        let holding = Holding { from_ms: 3 * HOUR_MS + 133_000, to_ms: 14 * HOUR_MS + 7_000, data_from_ms: 0 };
        script(workload, holding, &mut Chance::new(seed, 1))
    }

    #[test]
    fn a_script_covers_its_holding_without_a_hole() {
        for workload in ALL {
            for seed in 0..20 {
                let phases = phases(*workload, seed);
                assert_eq!(phases[0].from_ms, 3 * HOUR_MS + 133_000);
                assert_eq!(phases.last().unwrap().to_ms, 14 * HOUR_MS + 7_000);
                assert!(phases.windows(2).all(|w| w[0].to_ms == w[1].from_ms), "{workload:?}");
                for phase in phases {
                    assert_eq!(phase.state.parts().iter().map(|p| p.1).sum::<u32>(), 1_000_000, "{workload:?}");
                }
            }
        }
    }

    #[test]
    fn idle_is_clearly_short_or_clearly_long() {
        for workload in ALL {
            for seed in 0..20 {
                let mut run: Option<(Cause, i64)> = None;
                for phase in phases(*workload, seed) {
                    let is_idle = phase.state.levels.get(Signal::Engine) < 50_000;
                    run = match (is_idle, run) {
                        (true, Some((cause, length))) => Some((cause, length + phase.to_ms - phase.from_ms)),
                        (true, None) => Some((phase.state.idle, phase.to_ms - phase.from_ms)),
                        (false, Some((cause, length))) => {
                            match cause {
                                Cause::Starting => assert!(length <= 30 * MINUTE_MS),
                                Cause::Headroom => assert!(length <= 10 * MINUTE_MS, "{workload:?} {length}"),
                                _ => assert!(length >= 30 * MINUTE_MS, "{workload:?} {length}"),
                            }
                            None
                        }
                        (false, None) => None,
                    };
                }
            }
        }
    }

    #[test]
    fn each_workload_shows_what_it_loses() {
        let has = |workload, cause| phases(workload, 3).iter().any(|p| p.state.parts().iter().any(|(c, _)| *c == cause));
        for (workload, cause) in [
            (Workload::TrainingStarved, Cause::InputStarved),
            (Workload::TrainingInterconnect, Cause::InterconnectWait),
            (Workload::TrainingFp32, Cause::LowPrecisionUnused),
            (Workload::TrainingSmallKernels, Cause::UnderFilled),
            (Workload::TrainingMemoryLatency, Cause::MemoryLatency),
            (Workload::CopyBound, Cause::CopyBound),
            (Workload::Throttled, Cause::Throttled),
            (Workload::HungCollective, Cause::InterconnectWait),
            (Workload::FailedForGood, Cause::LostWork),
            (Workload::BatchInference, Cause::BandwidthBound),
            (Workload::WarmStandby, Cause::Standby),
            (Workload::NotebookParked, Cause::VramParked),
            (Workload::NotebookEmpty, Cause::Empty),
        ] {
            assert!(has(workload, cause), "{workload:?} {cause}");
        }
        for workload in ALL.iter().filter(|w| w.is_counterexample() && **w != Workload::LlmDecode) {
            assert!(
                phases(*workload, 3).iter().flat_map(|p| p.state.parts()).all(|(c, _)| c.class() != gpuledger_model::cause::Class::Waste)
            );
        }
    }
}
