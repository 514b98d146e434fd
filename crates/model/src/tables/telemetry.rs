//! `samples`: canonical telemetry in columns, one pair of columns (time, value) per series.
//!
//! Values are integers: gauges at 10^-6 of the canonical unit, counters in the unit of [`Field::unit`].
//! **MODEL-3**: what is absent has no row here; nothing stands for it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

macro_rules! fields {
    ($($(#[$meta:meta])* $variant:ident = $name:literal, $unit:literal, $kind:ident, $scope:ident;)*) => {
        /// A canonical field of a device, instance or host.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Field { $($(#[$meta])* #[serde(rename = $name)] $variant,)* }
        impl Field {
            /// Every field.
            pub const ALL: &'static [Field] = &[$(Field::$variant,)*];
            /// Name in tables.
            pub fn as_str(self) -> &'static str { match self { $(Field::$variant => $name,)* } }
            /// The field of a name.
            pub fn from_name(name: &str) -> Option<Field> { match name { $($name => Some(Field::$variant),)* _ => None } }
            /// The unit of one integer step.
            pub fn unit(self) -> &'static str { match self { $(Field::$variant => $unit,)* } }
            /// Gauge or counter.
            pub fn kind(self) -> FieldKind { match self { $(Field::$variant => FieldKind::$kind,)* } }
            /// Whose value it is.
            pub fn scope(self) -> FieldScope { match self { $(Field::$variant => FieldScope::$scope,)* } }
        }
    };
}

/// Gauge or counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldKind {
    /// Stands until the next sample.
    Gauge,
    /// Gives the mean rate between two samples.
    Counter,
}

/// Whose value a field is when a board is cut into instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldScope {
    /// Of the row's device or instance.
    Unit,
    /// Of the board, repeated on the rows of its instances.
    Board,
}

fields! {
    /// Engine busy.
    Engine = "engine", "1e-6 ratio", Gauge, Unit;
    /// GPU_UTIL, as a ratio.
    Util = "util", "1e-6 ratio", Gauge, Unit;
    /// SMs with a resident warp.
    SmActive = "sm_active", "1e-6 ratio", Gauge, Unit;
    /// Occupancy.
    SmOccupancy = "sm_occupancy", "1e-6 ratio", Gauge, Unit;
    /// Tensor pipe.
    Tensor = "tensor", "1e-6 ratio", Gauge, Unit;
    /// Memory interface.
    Dram = "dram", "1e-6 ratio", Gauge, Unit;
    /// FP64 pipe.
    Fp64 = "fp64", "1e-6 ratio", Gauge, Unit;
    /// FP32 pipe.
    Fp32 = "fp32", "1e-6 ratio", Gauge, Unit;
    /// FP16 pipe.
    Fp16 = "fp16", "1e-6 ratio", Gauge, Unit;
    /// Memory used.
    MemoryUsed = "memory_used", "1e-6 MiB", Gauge, Unit;
    /// Memory free.
    MemoryFree = "memory_free", "1e-6 MiB", Gauge, Unit;
    /// Memory reserved by the driver.
    MemoryReserved = "memory_reserved", "1e-6 MiB", Gauge, Unit;
    /// Memory in all.
    MemoryTotal = "memory_total", "1e-6 MiB", Gauge, Unit;
    /// Memory used as a ratio of all.
    MemoryUsedRatio = "memory_used_ratio", "1e-6 ratio", Gauge, Unit;
    /// Processes on the device.
    Processes = "processes", "1e-6 processes", Gauge, Unit;
    /// Power of the board.
    PowerWatts = "power_watts", "1e-6 W", Gauge, Board;
    /// Enforced power limit of the board.
    PowerLimitWatts = "power_limit_watts", "1e-6 W", Gauge, Board;
    /// Energy of the board since the driver loaded.
    Energy = "energy", "1e-6 J", Counter, Board;
    /// Device to host over PCIe.
    PcieTx = "pcie_tx", "1e-6 MB/s", Gauge, Board;
    /// Host to device over PCIe.
    PcieRx = "pcie_rx", "1e-6 MB/s", Gauge, Board;
    /// Device to host, counted.
    PcieTxTotal = "pcie_tx_total", "byte", Counter, Board;
    /// Host to device, counted.
    PcieRxTotal = "pcie_rx_total", "byte", Counter, Board;
    /// PCIe generation of the link.
    PcieLinkGen = "pcie_link_gen", "1e-6 generation", Gauge, Board;
    /// PCIe lanes of the link.
    PcieLinkWidth = "pcie_link_width", "1e-6 lanes", Gauge, Board;
    /// NVLink transmit.
    NvlinkTx = "nvlink_tx", "1e-6 MB/s", Gauge, Board;
    /// NVLink receive.
    NvlinkRx = "nvlink_rx", "1e-6 MB/s", Gauge, Board;
    /// SM cycles elapsed.
    SmCyclesElapsed = "sm_cycles_elapsed", "cycle", Counter, Unit;
    /// SM cycles with a resident warp.
    SmCyclesActive = "sm_cycles_active", "cycle", Counter, Unit;
    /// Tensor cycles.
    MmaCyclesActive = "mma_cycles_active", "cycle", Counter, Unit;
    /// FP64 cycles.
    Fp64CyclesActive = "fp64_cycles_active", "cycle", Counter, Unit;
    /// FP32 cycles.
    Fp32CyclesActive = "fp32_cycles_active", "cycle", Counter, Unit;
    /// FP16 cycles.
    Fp16CyclesActive = "fp16_cycles_active", "cycle", Counter, Unit;
    /// Time below clocks for the power limit.
    ThrottlePower = "throttle_power", "1e-6 s", Counter, Board;
    /// Time below clocks for heat.
    ThrottleThermal = "throttle_thermal", "1e-6 s", Counter, Board;
    /// Time below clocks for heat, by hardware.
    ThrottleHwThermal = "throttle_hw_thermal", "1e-6 s", Counter, Board;
    /// Time below clocks for the external power brake.
    ThrottleHwPowerBrake = "throttle_hw_power_brake", "1e-6 s", Counter, Board;
    /// Last XID code, sticky.
    XidLast = "xid_last", "1e-6 code", Gauge, Board;
    /// Row remapping failed.
    RowRemapFailed = "row_remap_failed", "1e-6 flag", Gauge, Board;
    /// Recovery action asked for.
    RecoveryAction = "recovery_action", "1e-6 code", Gauge, Board;
}

/// A field of a host or a serving process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SignalField {
    /// Host CPU seconds of all modes, summed over processors; microseconds, counter.
    HostCpuTotal,
    /// Host CPU seconds idle; microseconds, counter.
    HostCpuIdle,
    /// Host CPU seconds waiting for input and output; microseconds, counter.
    HostCpuIowait,
    /// CPU seconds used by the holder's containers; microseconds, counter.
    HolderCpuUsed,
    /// CPU limit of the holder's containers; 10^-6 cores, gauge.
    HolderCpuLimit,
    /// Requests running; 10^-6, gauge.
    RequestsRunning,
    /// Requests waiting; 10^-6, gauge.
    RequestsWaiting,
}

/// A host as telemetry names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Host {
    /// `cluster` label, if the series carry one.
    pub cluster: Option<String>,
    /// Host label, else the target's name.
    pub name: String,
}

/// A board, or an instance of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Unit {
    /// UUID of the board.
    pub uuid: String,
    /// GPU instance id under MIG.
    pub instance: Option<String>,
}

impl Unit {
    /// `UUID` or `UUID/GI`.
    pub fn id(&self) -> String {
        match &self.instance {
            None => self.uuid.clone(),
            Some(instance) => format!("{}/{instance}", self.uuid),
        }
    }
}

/// What identifies a series. Holder labels are no part of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SeriesKey {
    /// Host.
    pub host: Host,
    /// Board or instance.
    pub unit: Unit,
    /// Field.
    pub field: Field,
    /// Producer: the exporter's target.
    pub producer: String,
}

/// One column pair. After [`Telemetry::canonicalize`] the times ascend strictly.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Column {
    /// Times, UTC ms.
    pub times_ms: Vec<i64>,
    /// Values, in steps of the field's unit.
    pub values: Vec<i64>,
}

/// A name that an exporter put on a device's series.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum HolderLabel {
    /// A pod.
    Pod {
        /// Namespace.
        namespace: String,
        /// Name.
        pod: String,
    },
    /// A Slurm job id (`hpc_job`).
    Job(String),
}

/// What a unit's series said about it within an hour.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SightingKey {
    /// Host.
    pub host: Host,
    /// Board or instance.
    pub unit: Unit,
    /// Start of the hour, ms.
    pub hour_ms: i64,
    /// Exporter's `gpu` index.
    pub index: Option<u32>,
    /// `modelName`.
    pub model: Option<String>,
    /// MIG profile, without the compute instance.
    pub profile: Option<String>,
}

/// Canonical telemetry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Telemetry {
    /// Device series.
    pub series: BTreeMap<SeriesKey, Column>,
    /// Values from rows with a `vgpu` label: used where [`Telemetry::series`] has no value at that time.
    pub vgpu_series: BTreeMap<SeriesKey, Column>,
    /// First and last sample (ms) of each sighting.
    pub sightings: BTreeMap<SightingKey, (i64, i64)>,
    /// Times at which a label stood on a unit of a host.
    pub holder_labels: BTreeMap<(Host, Unit, HolderLabel), Vec<i64>>,
    /// Times at which a producer of a host was scraped, empty scrapes included.
    pub scrapes: BTreeMap<(Host, String), Vec<i64>>,
    /// Host and holder signals: by host, by (namespace, pod) or by address.
    pub signals: BTreeMap<(SignalSource, SignalField), Column>,
}

/// What a signal is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum SignalSource {
    /// A host.
    Host(Host),
    /// A pod by its labels.
    Pod {
        /// `cluster` label, if the series carry one.
        cluster: Option<String>,
        /// Namespace.
        namespace: String,
        /// Name.
        pod: String,
    },
    /// A target by its address, without the port.
    Address(String),
}

impl Telemetry {
    /// Adds everything of another part; call [`Telemetry::canonicalize`] after the last.
    pub fn merge(&mut self, other: Telemetry) {
        merge_columns(&mut self.series, other.series);
        merge_columns(&mut self.vgpu_series, other.vgpu_series);
        merge_columns(&mut self.signals, other.signals);
        for (key, (first, last)) in other.sightings {
            self.sightings.entry(key).and_modify(|e| *e = (e.0.min(first), e.1.max(last))).or_insert((first, last));
        }
        for (key, times) in other.holder_labels {
            self.holder_labels.entry(key).or_default().extend(times);
        }
        for (key, times) in other.scrapes {
            self.scrapes.entry(key).or_default().extend(times);
        }
    }

    /// Sorts, and leaves one value per series and time: the row without `vgpu`, then the greatest
    /// (ACCOUNTING section 5). Order of files and lines, and repeats, leave no trace.
    pub fn canonicalize(&mut self) {
        for column in self.series.values_mut().chain(self.vgpu_series.values_mut()).chain(self.signals.values_mut()) {
            column.canonicalize();
        }
        for (key, column) in std::mem::take(&mut self.vgpu_series) {
            let own = self.series.entry(key).or_default();
            let extra: Vec<usize> =
                (0..column.times_ms.len()).filter(|at| own.times_ms.binary_search(&column.times_ms[*at]).is_err()).collect();
            for at in extra {
                own.times_ms.push(column.times_ms[at]);
                own.values.push(column.values[at]);
            }
            own.canonicalize();
        }
        for times in self.holder_labels.values_mut().chain(self.scrapes.values_mut()) {
            times.sort_unstable();
            times.dedup();
        }
    }

    /// The latest sample or scrape, ms.
    pub fn last_sample_ms(&self) -> Option<i64> {
        self.series.values().filter_map(|c| c.times_ms.last().copied()).max()
    }

    /// Samples held.
    pub fn sample_count(&self) -> usize {
        self.series.values().map(|c| c.times_ms.len()).sum()
    }
}

impl Column {
    /// Adds a sample.
    pub fn push(&mut self, time_ms: i64, value: i64) {
        self.times_ms.push(time_ms);
        self.values.push(value);
    }

    /// Adds the samples of another column of the same series: in order, the greatest value of each time.
    pub fn merge(&mut self, other: &Column) {
        self.times_ms.extend_from_slice(&other.times_ms);
        self.values.extend_from_slice(&other.values);
        self.canonicalize();
    }

    fn canonicalize(&mut self) {
        if self.times_ms.windows(2).all(|w| w[0] < w[1]) {
            return;
        }
        let mut rows: Vec<(i64, i64)> = self.times_ms.iter().copied().zip(self.values.iter().copied()).collect();
        rows.sort_unstable();
        let mut kept: Vec<(i64, i64)> = Vec::with_capacity(rows.len());
        for row in rows {
            match kept.last_mut() {
                Some(last) if last.0 == row.0 => *last = row,
                _ => kept.push(row),
            }
        }
        self.times_ms = kept.iter().map(|r| r.0).collect();
        self.values = kept.iter().map(|r| r.1).collect();
    }
}

fn merge_columns<K: Ord>(into: &mut BTreeMap<K, Column>, from: BTreeMap<K, Column>) {
    for (key, column) in from {
        let own = into.entry(key).or_default();
        if own.times_ms.is_empty() {
            *own = column;
        } else {
            own.times_ms.extend(column.times_ms);
            own.values.extend(column.values);
        }
    }
}
