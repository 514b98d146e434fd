//! `windows`, `units`, `holdings`, `spans`, `hosts`: the record of the machines, from which any rule and any bill can
//! be run again without the samples.

use serde::{Deserialize, Serialize};

/// One field of one window: all integers, so that sums of windows are exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measure {
    /// Covered milliseconds, above zero.
    pub covered_ms: i64,
    /// Time-weighted sum: value x ms.
    pub sum: i64,
    /// Time-weighted sum of squares; 0 for fields that keep none.
    pub sum_squares: i64,
    /// Least value.
    pub least: i64,
    /// Greatest value.
    pub greatest: i64,
}

macro_rules! window_row {
    ($($(#[$meta:meta])* $field:ident,)*) => {
        /// One observed window of a device or instance.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        pub struct WindowRow {
            /// Machine id.
            pub machine: String,
            /// `UUID`, `UUID/GI` or `machine#n`.
            pub unit: String,
            /// Start, ms.
            pub from_ms: i64,
            /// End, ms.
            pub to_ms: i64,
            /// Observed milliseconds.
            pub observed_ms: i64,
            $($(#[$meta])* pub $field: Option<Measure>,)*
        }

        /// Names of the measures of a window, in the order of [`WindowRow::measures`].
        pub const MEASURES: &[&str] = &[$(stringify!($field),)*];

        impl WindowRow {
            /// A window without measures.
            pub fn bare(machine: &str, unit: &str, from_ms: i64, to_ms: i64, observed_ms: i64) -> WindowRow {
                WindowRow { machine: machine.to_string(), unit: unit.to_string(), from_ms, to_ms, observed_ms, $($field: None,)* }
            }

            /// The measures in order.
            pub fn measures(&self) -> Vec<Option<Measure>> {
                vec![$(self.$field,)*]
            }

            /// The place of a measure, by its order.
            pub fn measure_mut(&mut self, at: usize) -> Option<&mut Option<Measure>> {
                let mut slots = [$(&mut self.$field,)*];
                if at < slots.len() { slots.swap(0, at); slots.into_iter().next() } else { None }
            }
        }
    };
}

window_row! {
    /// Engine busy, 10^-6.
    engine,
    /// GPU_UTIL, 10^-6.
    util,
    /// SMs with a resident warp, 10^-6.
    sm_active,
    /// Occupancy, 10^-6.
    sm_occupancy,
    /// Tensor pipe, 10^-6.
    tensor,
    /// Memory interface, 10^-6.
    dram,
    /// FP64 pipe, 10^-6.
    fp64,
    /// FP32 pipe, 10^-6.
    fp32,
    /// FP16 pipe, 10^-6.
    fp16,
    /// Memory used of the unit's memory, 10^-6.
    memory_ratio,
    /// Processes, 10^-6.
    processes,
    /// Board power, 10^-6 W.
    power,
    /// Enforced limit, 10^-6 W.
    power_limit,
    /// PCIe both ways, 10^-6 MB/s.
    pcie,
    /// Peak of the PCIe link one way, 10^-6 MB/s.
    link_peak,
    /// Energy rate, 10^-6 W.
    energy,
    /// Thermal slow-down, 10^-6 s/s.
    thermal,
    /// Thermal slow-down by hardware, 10^-6 s/s.
    hw_thermal,
    /// Power brake, 10^-6 s/s.
    power_brake,
    /// Last XID, 10^-6.
    xid,
    /// Row remapping failed, 10^-6.
    row_remap_failed,
    /// Host CPU busy, 10^-6.
    host_cpu,
    /// Host iowait, 10^-6.
    host_iowait,
    /// Slowed down by the power limit, 10^-6 s/s.
    power_limited,
}

/// A signal of a holder within a window of one of its units.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignalRow {
    /// Machine id.
    pub machine: String,
    /// Unit id.
    pub unit: String,
    /// Start of the window, ms.
    pub from_ms: i64,
    /// Row of the holder table.
    pub holder: u64,
    /// Covered milliseconds of running requests; 0 without.
    pub running_covered_ms: i64,
    /// Their time-weighted sum, 10^-6.
    pub running_sum: i64,
    /// Covered milliseconds of CPU used of its limit; 0 without.
    pub cpu_covered_ms: i64,
    /// Its time-weighted sum, 10^-6.
    pub cpu_sum: i64,
}

/// A unit for a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitRow {
    /// Machine id.
    pub machine: String,
    /// Unit id.
    pub unit: String,
    /// UUID of the board, or the place's name.
    pub board: String,
    /// `board`, `instance`, `stranded`, `anonymous`, `missing` or `unknown`.
    pub kind: String,
    /// From, ms; the least number where it was always so.
    pub from_ms: i64,
    /// To, ms; the greatest number where it stays so.
    pub to_ms: i64,
    /// Share of the device, numerator.
    pub share_numerator: u64,
    /// Share of the device, denominator.
    pub share_denominator: u64,
    /// MIG profile.
    pub profile: Option<String>,
    /// Model.
    pub model: Option<String>,
}

/// A holding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldingRow {
    /// Machine id.
    pub machine: String,
    /// Unit id.
    pub unit: String,
    /// Row of the holder table.
    pub holder: u64,
    /// The holder's key.
    pub holder_key: String,
    /// From, ms.
    pub from_ms: i64,
    /// To, ms; the greatest number while it is open.
    pub to_ms: i64,
    /// A stated share (else a weight among the holders of the second).
    pub is_exact: bool,
    /// Share or weight, numerator.
    pub numerator: u64,
    /// Share or weight, denominator.
    pub denominator: u64,
    /// Evidence 1 to 4.
    pub evidence: u8,
    /// Confidence.
    pub confidence: String,
    /// The record: `kubernetes_dump`, `slurm_accounting`, or none.
    pub record: Option<String>,
}

/// A span of time of a machine or unit, by kind: `observed`, `faulty`, `reconfiguring`, `reserved`, `samples` (first
/// and last of an hour), `duplicate`, `over_declared`, `without_device`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpanRow {
    /// Machine id.
    pub machine: String,
    /// Unit id, or empty.
    pub unit: String,
    /// Kind.
    pub kind: String,
    /// From, ms.
    pub from_ms: i64,
    /// To, ms.
    pub to_ms: i64,
    /// Field, holder or count that goes with it; empty else.
    pub note: String,
    /// Producers or node that go with it; empty else.
    pub names: String,
}

/// A machine as it was observed: what must be the same for its record to serve again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineRow {
    /// Machine id.
    pub machine: String,
    /// Its nodes, hosts and catalogue count, as text.
    pub identity: String,
    /// Model.
    pub model: Option<String>,
}

/// A host of telemetry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct HostRow {
    /// `cluster` label.
    pub cluster: Option<String>,
    /// Name.
    pub name: String,
    /// The latest sample of all hosts, ms.
    pub last_sample_ms: Option<i64>,
}

/// The record of all machines as tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordTables {
    /// Windows.
    pub windows: Vec<WindowRow>,
    /// Signals of holders.
    pub signals: Vec<SignalRow>,
    /// Units.
    pub units: Vec<UnitRow>,
    /// Holdings.
    pub holdings: Vec<HoldingRow>,
    /// Spans.
    pub spans: Vec<SpanRow>,
    /// Machines.
    pub machines: Vec<MachineRow>,
    /// Hosts.
    pub hosts: Vec<HostRow>,
}
