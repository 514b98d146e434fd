//! The physical state of a device over a time, and what part of it is lost to what.
//!
//! Truth decisions (ACCOUNTING sections 6 and 7, definitions only):
//! - levels are what the hardware did: engine `g`, filled `s` = SM moved into `[u, g]`, issuing
//!   `u` = min(g, max(tensor / 0.93, dram / 0.80, pipes)); these are definitions, not rules;
//! - the name of each lost part is put there by the world's builder, which knows why the device waited;
//! - a state that is lost whole (nobody holds, board gone) has one name for all of it.

use gpuledger_model::cause::Cause;

/// A quantity of a device. Ratios are parts per million; memory is of the board or instance, power of the
/// board's limit, rates of the time; traffic is MB/s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Signal {
    /// Engine busy.
    Engine,
    /// SM active.
    Sm,
    /// SM occupancy.
    Occupancy,
    /// Tensor pipe.
    Tensor,
    /// Memory interface.
    Dram,
    /// FP64 pipe.
    Fp64,
    /// FP32 pipe.
    Fp32,
    /// FP16 pipe.
    Fp16,
    /// GPU_UTIL.
    Util,
    /// Memory used.
    Memory,
    /// Power.
    Power,
    /// Device to host.
    PcieTx,
    /// Host to device.
    PcieRx,
    /// NVLink, each way.
    Nvlink,
    /// Time lost to heat.
    Thermal,
    /// Time at the power cap.
    PowerCap,
    /// Requests running in the serving process, in millionths.
    Requests,
}

/// How many signals there are.
pub const SIGNAL_COUNT: usize = 17;

/// Levels of all signals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Levels(pub [u32; SIGNAL_COUNT]);

impl Levels {
    /// The level of a signal.
    pub fn get(&self, signal: Signal) -> u32 {
        self.0[signal as usize]
    }

    /// With another level of a signal.
    pub fn with(mut self, signal: Signal, level: u32) -> Levels {
        self.0[signal as usize] = level;
        self
    }
}

/// Parts per million.
pub const WHOLE_PPM: u32 = 1_000_000;

/// A device's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// Levels.
    pub levels: Levels,
    /// Name for all of it, where it is lost whole.
    pub whole: Option<Cause>,
    /// Name of `1-g`.
    pub idle: Cause,
    /// Name of `g-s`.
    pub fill: Cause,
    /// Name of `s-u`.
    pub issue: Cause,
    /// Bandwidth is not what the job is for: `u` less tensor / 0.93 is `bandwidth_bound`.
    pub is_bandwidth_waste: bool,
    /// What would be useful was lost with its incarnation.
    pub is_lost: bool,
}

impl State {
    /// Levels whose lost parts are all `headroom`.
    pub const fn neutral(levels: Levels) -> State {
        State {
            levels,
            whole: None,
            idle: Cause::Headroom,
            fill: Cause::Headroom,
            issue: Cause::Headroom,
            is_bandwidth_waste: false,
            is_lost: false,
        }
    }

    /// The causes of a second in this state; they add to a million.
    pub fn parts(&self) -> Vec<(Cause, u32)> {
        if let Some(cause) = self.whole {
            return vec![(cause, WHOLE_PPM)];
        }
        let ratio = |signal: Signal, peak: u32| (u64::from(self.levels.get(signal)) * 1_000_000 / u64::from(peak)) as u32;
        let engine = self.levels.get(Signal::Engine).min(WHOLE_PPM);
        let tensor = ratio(Signal::Tensor, 930_000);
        let issuing =
            [ratio(Signal::Dram, 800_000), ratio(Signal::Fp64, WHOLE_PPM), ratio(Signal::Fp32, WHOLE_PPM), ratio(Signal::Fp16, WHOLE_PPM)]
                .into_iter()
                .fold(tensor, u32::max)
                .min(engine);
        let filled = self.levels.get(Signal::Sm).max(issuing).min(engine);
        let useful = if self.is_bandwidth_waste { tensor.min(issuing) } else { issuing };
        let last = if self.is_lost { Cause::LostWork } else { Cause::Useful };
        [
            (self.idle, WHOLE_PPM - engine),
            (self.fill, engine - filled),
            (self.issue, filled - issuing),
            (Cause::BandwidthBound, issuing - useful),
            (last, useful),
        ]
        .into_iter()
        .filter(|(_, part)| *part > 0)
        .collect()
    }

    /// The same device with the board gone from the bus.
    pub fn vanished(mut self) -> State {
        self.whole = Some(Cause::Faulty);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_follow_the_ladder_and_add_to_one() {
        let levels = Levels([0; SIGNAL_COUNT])
            .with(Signal::Engine, 960_000)
            .with(Signal::Sm, 700_000)
            .with(Signal::Tensor, 93_000)
            .with(Signal::Dram, 640_000);
        let mut state = State::neutral(levels);
        state.is_bandwidth_waste = true;
        // u = 0.64 / 0.80 = 0.8, above SM 0.7, so s = 0.8; tensor gives 0.1.
        assert_eq!(
            state.parts(),
            vec![(Cause::Headroom, 40_000), (Cause::Headroom, 160_000), (Cause::BandwidthBound, 700_000), (Cause::Useful, 100_000)]
        );
        assert_eq!(state.vanished().parts(), vec![(Cause::Faulty, 1_000_000)]);
    }
}
