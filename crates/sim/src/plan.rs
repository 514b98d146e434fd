//! The plan of a world: who holds what when, and in which state every device is at every moment.
//!
//! Truth decisions:
//! - a device that nobody holds is `unallocated`; `cordoned` from the taint's time on; `faulty` where its board is gone;
//! - a preempted run that saved its state loses what was useful since its last checkpoint; without a checkpoint it
//!   loses nothing; a run that failed for good without one loses all that was useful;
//! - pods of deployments and notebooks live to the end of the data: a dump does not list deleted pods.

use gpuledger_model::cause::Cause;
use gpuledger_model::tables::placement::Outcome;
use gpuledger_model::time::{HOUR_MS, MINUTE_MS, SECOND_MS};

use crate::chance::Chance;
use crate::fleet::{Machine, Scheduler, Sharing};
use crate::holder::{Holder, Place, Run};
use crate::options::{Fault, Options};
use crate::state::{Signal, State};
use crate::workload::{Holding, Phase, Workload, script, unheld};

/// A time of a slot with one state and the same holders.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    /// From, ms.
    pub from_ms: i64,
    /// To, ms.
    pub to_ms: i64,
    /// Who holds it: nobody, one, or two that share.
    pub holders: [Option<usize>; 2],
    /// State.
    pub state: State,
}

/// Pieces of one slot, ascending, without holes, over the machine's paid time.
pub type Timeline = Vec<Piece>;

/// What happens in a world.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Holders.
    pub holders: Vec<Holder>,
    /// Timelines by machine, board and slot.
    pub timelines: Vec<Vec<Vec<Timeline>>>,
    /// Times without any sample, by machine.
    pub gaps: Vec<Vec<(i64, i64)>>,
    /// Boards that leave the bus: machine, board, time.
    pub vanished: Vec<(usize, usize, i64)>,
    /// Restarts of exporters: machine and time.
    pub restarts: Vec<(usize, i64)>,
    /// Machines that Slurm keeps free for a gang: machine, from, to.
    pub reservations: Vec<(usize, i64, i64)>,
}

struct Deck {
    cards: Vec<Workload>,
    left: Vec<Workload>,
}

impl Deck {
    fn new(cards: &[Workload]) -> Deck {
        Deck { cards: cards.to_vec(), left: Vec::new() }
    }

    fn draw(&mut self, chance: &mut Chance) -> Workload {
        if self.left.is_empty() {
            self.left = self.cards.clone();
            chance.shuffle(&mut self.left);
        }
        self.left.pop().unwrap_or(Workload::Training)
    }
}

const LARGE: &[Workload] = &[
    Workload::Training,
    Workload::Training,
    Workload::Training,
    Workload::TrainingStarved,
    Workload::TrainingStarved,
    Workload::TrainingInterconnect,
    Workload::TrainingFp32,
    Workload::TrainingSmallKernels,
    Workload::TrainingMemoryLatency,
    Workload::CopyBound,
    Workload::FlashAttention,
    Workload::PowerCapped,
    Workload::EvaluationPhases,
    Workload::StagedTraining,
    Workload::Throttled,
    Workload::HungCollective,
    Workload::FailedForGood,
    Workload::Preempted,
    Workload::PreemptedResumed,
    Workload::BatchInference,
];

const SMALL: &[Workload] = &[
    Workload::NotebookParked,
    Workload::NotebookParked,
    Workload::NotebookEmpty,
    Workload::LlmDecode,
    Workload::LlmDecode,
    Workload::WarmStandby,
    Workload::TrainingSmallKernels,
    Workload::BatchInference,
    Workload::TrainingFp32,
    Workload::FailedForGood,
    Workload::Training,
    Workload::StagedTraining,
    Workload::FlashAttention,
];

/// How eight boards are parted among jobs that do not wait for each other, under Slurm.
const BATCH_LAYOUTS: &[&[usize]] = &[&[8], &[4, 4]];
/// The same under Kubernetes.
const CLUSTER_LAYOUTS: &[&[usize]] = &[&[8], &[4, 4], &[4, 2, 1, 1], &[2, 2, 2, 2], &[4, 1, 1, 1, 1]];

struct Planner<'a> {
    machines: &'a mut [Machine],
    options: &'a Options,
    chance: Chance,
    plan: Plan,
    large: Deck,
    small: Deck,
    job_id: u32,
}

/// Plans a world.
pub fn plan(seed: u64, attempt: u64, machines: &mut [Machine], options: &Options) -> Plan {
    let mut planner = Planner {
        machines,
        options,
        chance: Chance::new(seed, 1_000 + attempt),
        plan: Plan::default(),
        large: Deck::new(LARGE),
        small: Deck::new(SMALL),
        job_id: 41_000,
    };
    planner.cordon();
    let joint = planner.joint_time();
    for machine in 0..planner.machines.len() {
        planner.fill_machine(machine, joint.filter(|_| planner.machines[machine].scheduler == Scheduler::Slurm));
    }
    if let Some(joint) = joint {
        planner.fill_joint(joint);
    }
    planner.fill_holes();
    planner.reserve();
    planner.vanish();
    planner.silence();
    planner.plan
}

impl Planner<'_> {
    fn end_ms(&self) -> i64 {
        self.options.end_ms()
    }

    /// Closes one of the large Kubernetes machines in some worlds.
    fn cordon(&mut self) {
        for machine in self.machines.iter_mut() {
            machine.cordoned_from_ms = None;
        }
        let candidates: Vec<usize> = (0..self.machines.len())
            .filter(|at| self.machines[*at].boards.len() == 8 && self.machines[*at].scheduler == Scheduler::Kubernetes)
            .collect();
        let days = self.options.days;
        if !candidates.is_empty() && (days > 1 || self.chance.percent(35)) {
            let at = *self.chance.pick(&candidates);
            let time = self.options.end_ms() - self.chance.between(180, 420) * MINUTE_MS - self.chance.between(0, 59) * SECOND_MS;
            self.machines[at].cordoned_from_ms = Some(time);
        }
    }

    /// When the Slurm machines of a world that has several work on one job.
    fn joint_time(&mut self) -> Option<(i64, i64)> {
        let machines = self.machines.iter().filter(|m| m.scheduler == Scheduler::Slurm).count();
        if machines < 2 {
            return None;
        }
        let from = self.options.start_ms + self.chance.between(9, 12) * HOUR_MS + self.chance.between(0, 3_599) * SECOND_MS;
        Some((from, from + self.chance.between(6, 9) * HOUR_MS))
    }

    /// One job on all boards of all Slurm machines.
    fn fill_joint(&mut self, (from, to): (i64, i64)) {
        let machines: Vec<usize> = (0..self.machines.len()).filter(|at| self.machines[*at].scheduler == Scheduler::Slurm).collect();
        let places: Vec<Place> = machines
            .iter()
            .flat_map(|machine| (0..self.machines[*machine].boards.len()).map(|board| Place { machine: *machine, board, slot: 0 }))
            .collect();
        self.job_id += 1;
        let workload = *self.chance.pick(&[Workload::Training, Workload::TrainingInterconnect, Workload::HungCollective]);
        let mut run = Run::new(workload, &self.machines[machines[0]], self.job_id, &mut self.chance);
        self.hold(&mut run, workload, machines[0], &places, (from, Some(to)), Outcome::Succeeded, Vec::new());
    }

    /// Slurm keeps a machine free for a gang in the longest time in which nobody holds any of its boards.
    fn reserve(&mut self) {
        for (machine, boards) in self.plan.timelines.iter_mut().enumerate() {
            if self.machines[machine].scheduler != Scheduler::Slurm {
                continue;
            }
            let free: Vec<Vec<(i64, i64)>> = boards
                .iter()
                .map(|slots| slots[0].iter().filter(|p| p.holders[0].is_none()).map(|p| (p.from_ms, p.to_ms)).collect())
                .collect();
            let common = free.iter().skip(1).fold(free.first().cloned().unwrap_or_default(), |common, other| {
                common.iter().flat_map(|a| other.iter().map(move |b| (a.0.max(b.0), a.1.min(b.1)))).filter(|(from, to)| to > from).collect()
            });
            let longest = common.into_iter().max_by_key(|(from, to)| (to - from, *from)).filter(|(from, to)| to - from > 50 * MINUTE_MS);
            let Some((from, to)) = longest else { continue };
            let kept = (from + 10 * MINUTE_MS, to);
            self.plan.reservations.push((machine, kept.0, kept.1));
            for timeline in boards.iter_mut().flatten() {
                *timeline = timeline
                    .iter()
                    .flat_map(|piece| {
                        let is_free = piece.holders[0].is_none();
                        let before = Piece { to_ms: if is_free { piece.to_ms.min(kept.0) } else { piece.to_ms }, ..*piece };
                        let within = Piece {
                            from_ms: piece.from_ms.max(kept.0),
                            to_ms: if is_free { piece.to_ms.min(kept.1) } else { piece.from_ms },
                            state: unheld(Cause::ReservedUnused),
                            ..*piece
                        };
                        let after = Piece { from_ms: if is_free { piece.from_ms.max(kept.1) } else { piece.to_ms }, ..*piece };
                        [before, within, after].into_iter().filter(|p| p.to_ms > p.from_ms)
                    })
                    .collect();
            }
        }
    }

    fn fill_machine(&mut self, machine: usize, joint: Option<(i64, i64)>) {
        let shape: Vec<usize> = self.machines[machine].boards.iter().map(|b| b.slots.len()).collect();
        self.plan.timelines.push(shape.iter().map(|slots| vec![Vec::new(); *slots]).collect());
        let boards = shape.len();
        match self.machines[machine].sharing {
            Sharing::TimeSliced => (0..boards).for_each(|board| self.fill_shared(machine, board)),
            Sharing::Mig => {
                for (board, slots) in shape.iter().enumerate() {
                    for slot in 0..*slots {
                        self.fill_instance(Place { machine, board, slot });
                    }
                }
            }
            Sharing::Whole => {
                let layouts: &[&[usize]] = match (boards, self.machines[machine].scheduler) {
                    (8, Scheduler::Slurm) => BATCH_LAYOUTS,
                    (8, Scheduler::Kubernetes) => CLUSTER_LAYOUTS,
                    _ => &[&[1; 8][..boards.min(8)]],
                };
                let layout = self.chance.pick(layouts).iter();
                let mut first = 0;
                for size in layout {
                    let places: Vec<Place> = (first..first + size).map(|board| Place { machine, board, slot: 0 }).collect();
                    let from = self.machines[machine].paid_from_ms(self.options);
                    match joint {
                        None => self.fill_lane(machine, &places, from, self.end_ms()),
                        Some((joint_from, joint_to)) => {
                            self.fill_lane(machine, &places, from, joint_from - MINUTE_MS);
                            self.fill_lane(machine, &places, joint_to + 2 * MINUTE_MS, self.end_ms());
                        }
                    }
                    first += size;
                }
            }
        }
    }

    /// One job after another on the same boards, with time between them.
    fn fill_lane(&mut self, machine: usize, places: &[Place], from: i64, until: i64) {
        let is_old = self.machines[machine].from_ms < self.options.start_ms && from == self.options.start_ms;
        let closes_at = self.machines[machine].cordoned_from_ms.unwrap_or(i64::MAX);
        let scheduler = self.machines[machine].scheduler;
        let mut at = from;
        let mut is_first = true;
        while at < until - 20 * MINUTE_MS {
            let workload = loop {
                let deck = if places.len() >= 4 { &mut self.large } else { &mut self.small };
                let workload = deck.draw(&mut self.chance);
                if scheduler == Scheduler::Kubernetes || LARGE.contains(&workload) {
                    break workload;
                }
            };
            let start = if is_first && is_old && self.chance.percent(65) {
                at - self.chance.between(60, 600) * MINUTE_MS - self.chance.between(0, 59) * SECOND_MS
            } else {
                at + self.chance.between(0, 12) * MINUTE_MS + self.chance.between(0, 59) * SECOND_MS
            };
            is_first = false;
            if start >= closes_at {
                break;
            }
            at = self.place_run(workload, machine, places, start, until);
            // Between jobs: mostly a short wait for the queue, at times hours with nothing to do.
            at += if self.chance.percent(70) { self.chance.between(1, 15) } else { self.chance.between(60, 240) } * MINUTE_MS
                + self.chance.between(0, 59) * SECOND_MS;
        }
    }

    /// A run with all its incarnations; returns its end.
    fn place_run(&mut self, workload: Workload, machine: usize, places: &[Place], start: i64, until: i64) -> i64 {
        let (low, high) = match workload {
            Workload::FailedForGood | Workload::Preempted => (120, 300),
            Workload::HungCollective | Workload::Throttled => (300, 460),
            _ => (240, 540),
        };
        let stretch = if self.options.days > 2 { 2 } else { 1 };
        let wanted = start + self.chance.between(low, high) * stretch * MINUTE_MS + self.chance.between(0, 59) * SECOND_MS;
        let lives_on = matches!(workload, Workload::LlmDecode | Workload::WarmStandby | Workload::NotebookParked | Workload::NotebookEmpty);
        // What began before the data is to be seen in it for a while.
        let wanted = wanted.max(self.options.start_ms + 45 * MINUTE_MS);
        // Before a joint job the others have to end; at the end of the data they live on.
        let is_last = until == self.end_ms();
        let end = if lives_on || wanted >= until { until } else { wanted };
        let to = (!is_last || end < until).then_some(end);
        self.job_id += 1 + self.chance.below(40);
        let mut run = Run::new(workload, &self.machines[machine], self.job_id, &mut self.chance);
        if workload == Workload::PreemptedResumed && end - start > 180 * MINUTE_MS && to.is_some() {
            let cut = start.max(self.options.start_ms) + (end - start.max(self.options.start_ms)) / 2;
            let cut = cut - cut.rem_euclid(SECOND_MS);
            let saved = cut - self.chance.between(20, 50) * MINUTE_MS;
            self.hold(&mut run, workload, machine, places, (start, Some(cut)), Outcome::Preempted, vec![saved]);
            let again = cut + self.chance.between(2, 9) * MINUTE_MS;
            self.hold(&mut run, workload, machine, places, (again, to), Outcome::Succeeded, Vec::new());
        } else {
            let outcome = match (to, workload) {
                (None, _) => Outcome::Alive,
                (_, Workload::FailedForGood) => Outcome::Failed,
                (_, Workload::Preempted) => Outcome::Preempted,
                _ => Outcome::Succeeded,
            };
            // A run that has not failed yet has lost nothing yet.
            let workload = if workload == Workload::FailedForGood && to.is_none() { Workload::Training } else { workload };
            self.hold(&mut run, workload, machine, places, (start, to), outcome, Vec::new());
        }
        end
    }

    #[allow(clippy::too_many_arguments)]
    fn hold(
        &mut self,
        run: &mut Run,
        workload: Workload,
        machine: usize,
        places: &[Place],
        (from_ms, to_ms): (i64, Option<i64>),
        outcome: Outcome,
        checkpoints_ms: Vec<i64>,
    ) {
        let mut holder = run.incarnation(workload, &self.machines[machine], from_ms, to_ms, places.to_vec(), &mut self.chance);
        holder.outcome = outcome;
        let holding =
            Holding { from_ms, to_ms: to_ms.unwrap_or(self.end_ms()), data_from_ms: self.machines[machine].paid_from_ms(self.options) };
        let mut phases = script(workload, holding, &mut self.chance);
        if outcome == Outcome::Preempted
            && let Some(saved) = checkpoints_ms.last()
        {
            phases = lose_from(phases, *saved);
        }
        holder.checkpoints_ms = checkpoints_ms;
        self.plan.holders.push(holder);
        let id = self.plan.holders.len() - 1;
        for place in places {
            let timeline = &mut self.plan.timelines[place.machine][place.board][place.slot];
            timeline.extend(phases.iter().map(|p| Piece { from_ms: p.from_ms, to_ms: p.to_ms, holders: [Some(id), None], state: p.state }));
        }
    }

    /// Instances: most serve, some wait for somebody.
    fn fill_instance(&mut self, place: Place) {
        let draw = self.chance.below(100);
        let share = self.machines[place.machine].boards[place.board].slots[place.slot].share;
        let has_notebook = self.plan.holders.iter().any(|h| h.workload == Workload::InstanceNotebook);
        let workload = match draw {
            0..=59 => Workload::InstanceInference,
            60..=74 if share < 40 && !has_notebook => Workload::InstanceNotebook,
            _ if draw < 80 => Workload::InstanceInference,
            _ => return,
        };
        let start_ms = self.options.start_ms;
        let from = if self.chance.percent(60) {
            start_ms - self.chance.between(2, 60) * HOUR_MS
        } else {
            start_ms + self.chance.between(30, 500) * MINUTE_MS + 17 * SECOND_MS
        };
        let mut run = Run::new(workload, &self.machines[place.machine], 0, &mut self.chance);
        self.hold(&mut run, workload, place.machine, &[place], (from, None), Outcome::Alive, Vec::new());
    }

    /// Two pods on one board: one from the start, another that joins while the board works.
    fn fill_shared(&mut self, machine: usize, board: usize) {
        let place = Place { machine, board, slot: 0 };
        let workload = Workload::SharedInference;
        let from = self.options.start_ms - self.chance.between(2, 60) * HOUR_MS;
        let mut run = Run::new(workload, &self.machines[machine], 0, &mut self.chance);
        self.hold(&mut run, workload, machine, &[place], (from, None), Outcome::Alive, Vec::new());
        let busy: Vec<(i64, i64)> = self.plan.timelines[machine][board][0]
            .iter()
            .filter(|p| p.state.levels.get(Signal::Engine) > 500_000 && p.to_ms - p.from_ms > 60 * MINUTE_MS)
            .map(|p| (p.from_ms, p.to_ms))
            .collect();
        let Some((busy_from, _)) = busy.get(busy.len() / 2).copied() else { return };
        let joins = busy_from + self.chance.between(12, 40) * MINUTE_MS + 11 * SECOND_MS;
        let mut second = Run::new(workload, &self.machines[machine], 0, &mut self.chance);
        let holder = second.incarnation(workload, &self.machines[machine], joins, None, vec![place], &mut self.chance);
        self.plan.holders.push(holder);
        let id = self.plan.holders.len() - 1;
        let timeline = std::mem::take(&mut self.plan.timelines[machine][board][0]);
        for piece in timeline {
            if piece.from_ms < joins && piece.to_ms > joins {
                self.plan.timelines[machine][board][0].push(Piece { to_ms: joins, ..piece });
                self.plan.timelines[machine][board][0].push(Piece { from_ms: joins, holders: [piece.holders[0], Some(id)], ..piece });
            } else if piece.from_ms >= joins {
                self.plan.timelines[machine][board][0].push(Piece { holders: [piece.holders[0], Some(id)], ..piece });
            } else {
                self.plan.timelines[machine][board][0].push(piece);
            }
        }
    }

    /// Gives every slot a state for the time in which nobody holds it.
    fn fill_holes(&mut self) {
        let end_ms = self.end_ms();
        for (machine, boards) in self.plan.timelines.iter_mut().enumerate() {
            let from = self.machines[machine].paid_from_ms(self.options);
            let closed = self.machines[machine].cordoned_from_ms.unwrap_or(i64::MAX);
            for timeline in boards.iter_mut().flatten() {
                let mut whole = Vec::with_capacity(timeline.len() * 2 + 1);
                let mut at = from;
                let nobody = |whole: &mut Timeline, from_ms: i64, to_ms: i64| {
                    for (from_ms, to_ms, cause) in
                        [(from_ms, to_ms.min(closed), Cause::Unallocated), (from_ms.max(closed), to_ms, Cause::Cordoned)]
                    {
                        if to_ms > from_ms {
                            whole.push(Piece { from_ms, to_ms, holders: [None, None], state: unheld(cause) });
                        }
                    }
                };
                timeline.sort_by_key(|p| p.from_ms);
                for piece in timeline.drain(..) {
                    nobody(&mut whole, at, piece.from_ms);
                    at = piece.to_ms;
                    whole.push(piece);
                }
                nobody(&mut whole, at, end_ms);
                *timeline = whole;
            }
        }
    }

    /// One board of a large machine leaves the bus within the last holding on it and does not come back.
    fn vanish(&mut self) {
        if !self.options.has(Fault::UuidVanishes) {
            return;
        }
        let mut candidates: Vec<(usize, usize, i64)> = Vec::new();
        for (machine, boards) in self.plan.timelines.iter().enumerate().filter(|(_, b)| b.len() == 8) {
            for (board, slots) in boards.iter().enumerate() {
                let timeline = &slots[0];
                let Some(last) = timeline.iter().rev().find_map(|p| p.holders[0]) else { continue };
                let holder = &self.plan.holders[last];
                let from = holder.from_ms.max(self.options.start_ms);
                let to = holder.to_ms.unwrap_or(self.end_ms());
                if to - from > 3 * HOUR_MS {
                    candidates.push((machine, board, from + (to - from) * 2 / 3));
                }
            }
        }
        if candidates.is_empty() {
            return;
        }
        let (machine, board, time) = *self.chance.pick(&candidates);
        let time = time - time.rem_euclid(SECOND_MS);
        self.plan.vanished.push((machine, board, time));
        let timeline = &mut self.plan.timelines[machine][board][0];
        *timeline = timeline
            .iter()
            .flat_map(|piece| {
                let before = Piece { to_ms: piece.to_ms.min(time), ..*piece };
                let after = Piece { from_ms: piece.from_ms.max(time), state: piece.state.vanished(), ..*piece };
                [before, after].into_iter().filter(|p| p.to_ms > p.from_ms)
            })
            .collect();
    }

    /// Times without samples.
    fn silence(&mut self) {
        self.plan.gaps = vec![Vec::new(); self.machines.len()];
        let mut large: Vec<usize> = (0..self.machines.len()).filter(|at| self.machines[*at].boards.len() == 8).collect();
        large.retain(|at| self.plan.vanished.iter().all(|v| v.0 != *at));
        if large.is_empty() {
            return;
        }
        let span = i64::from(self.options.days) * 24 * 60;
        if self.options.has(Fault::Gaps) {
            for _ in 0..self.options.days {
                let at = *self.chance.pick(&large);
                let from = self.options.start_ms + self.chance.between(60, span - 120) * MINUTE_MS + self.chance.between(0, 59) * SECOND_MS;
                let to = from + self.chance.between(20, 45) * MINUTE_MS;
                self.plan.gaps[at].push((from, to));
            }
        }
        if self.options.has(Fault::ExporterRestart) {
            let at = *self.chance.pick(&large);
            let from = self.options.start_ms + self.chance.between(60, span - 120) * MINUTE_MS + self.chance.between(0, 59) * SECOND_MS;
            self.plan.gaps[at].push((from, from + 2 * MINUTE_MS));
            self.plan.restarts.push((at, from));
        }
        for gaps in &mut self.plan.gaps {
            gaps.sort_unstable();
        }
    }
}

/// The same phases, with what was useful from a time on lost.
fn lose_from(phases: Vec<Phase>, time_ms: i64) -> Vec<Phase> {
    phases
        .into_iter()
        .flat_map(|phase| {
            let kept = Phase { to_ms: phase.to_ms.min(time_ms), ..phase };
            let mut lost = Phase { from_ms: phase.from_ms.max(time_ms), ..phase };
            lost.state.is_lost = true;
            [kept, lost].into_iter().filter(|p| p.to_ms > p.from_ms)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::fleet;

    #[test]
    fn every_slot_has_a_state_at_every_moment() {
        for seed in 0..10 {
            let options = Options::score(seed);
            let mut machines = fleet(seed, &options, &mut Chance::new(seed, 1));
            let plan = plan(seed, 0, &mut machines, &options);
            for (machine, boards) in machines.iter().zip(&plan.timelines) {
                for timeline in boards.iter().flatten() {
                    assert_eq!(timeline[0].from_ms, machine.paid_from_ms(&options));
                    assert_eq!(timeline.last().unwrap().to_ms, options.end_ms());
                    assert!(timeline.windows(2).all(|w| w[0].to_ms == w[1].from_ms), "seed {seed}");
                }
            }
            let mut keys: Vec<&str> = plan.holders.iter().map(|h| h.key.as_str()).collect();
            keys.sort_unstable();
            keys.dedup();
            assert_eq!(keys.len(), plan.holders.len());
        }
    }
}
