//! What the exporter sends: names of both generations, and how a state becomes a number.

use crate::state::Signal;

/// How a value is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A ratio, 0..1, with noise.
    Ratio(Signal),
    /// GPU_UTIL, 0..100.
    Util,
    /// MiB used.
    MemoryUsed,
    /// MiB free.
    MemoryFree,
    /// MiB kept by the driver.
    MemoryReserved,
    /// W.
    Power,
    /// W.
    PowerLimit,
    /// mJ since the driver loaded.
    Energy,
    /// Bytes a second.
    Traffic(Signal),
    /// ns since the driver loaded.
    LostTime(Signal),
    /// Last XID.
    Xid,
    /// PCIe generation.
    LinkGeneration,
    /// PCIe lanes.
    LinkWidth,
}

/// A metric of the exporter.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Name up to DCGM 4.5.
    pub name: &'static str,
    /// Name of DCGM 4.6.
    pub new_name: &'static str,
    /// `gauge` or `counter`, as the exporter declares it.
    pub kind: &'static str,
    /// How its value is made.
    pub source: Source,
    /// Whether rows of MIG instances carry it.
    pub is_on_instances: bool,
}

impl Metric {
    /// Whether it is a profiling field.
    pub fn is_profiling(&self) -> bool {
        self.name.starts_with("DCGM_FI_PROF_")
    }
}

const fn metric(name: &'static str, new_name: &'static str, kind: &'static str, source: Source, is_on_instances: bool) -> Metric {
    Metric { name, new_name, kind, source, is_on_instances }
}

/// All metrics, in the order of columns.
pub const METRICS: &[Metric] = &[
    metric("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_GPU_UTIL_RATIO", "gauge", Source::Util, false),
    metric("DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_USED", "gauge", Source::MemoryUsed, true),
    metric("DCGM_FI_DEV_FB_FREE", "DCGM_FI_DEV_FB_FREE", "gauge", Source::MemoryFree, true),
    metric("DCGM_FI_DEV_FB_RESERVED", "DCGM_FI_DEV_FB_RESERVED", "gauge", Source::MemoryReserved, true),
    metric("DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_BOARD_POWER_WATTS", "gauge", Source::Power, true),
    metric("DCGM_FI_DEV_ENFORCED_POWER_LIMIT", "DCGM_FI_DEV_BOARD_POWER_LIMIT_ENFORCED_WATTS", "gauge", Source::PowerLimit, true),
    metric("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "counter", Source::Energy, true),
    metric("DCGM_FI_DEV_THERMAL_VIOLATION", "DCGM_FI_DEV_THERMAL_VIOLATION", "counter", Source::LostTime(Signal::Thermal), false),
    metric("DCGM_FI_DEV_POWER_VIOLATION", "DCGM_FI_DEV_POWER_VIOLATION", "counter", Source::LostTime(Signal::PowerCap), false),
    metric("DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_XID_ERROR", "gauge", Source::Xid, true),
    metric("DCGM_FI_DEV_PCIE_LINK_GEN", "DCGM_FI_DEV_PCIE_LINK_GEN", "gauge", Source::LinkGeneration, false),
    metric("DCGM_FI_DEV_PCIE_LINK_WIDTH", "DCGM_FI_DEV_PCIE_LINK_WIDTH", "gauge", Source::LinkWidth, false),
    metric("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO", "gauge", Source::Ratio(Signal::Engine), true),
    metric("DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_PROF_SM_UTIL_RATIO", "gauge", Source::Ratio(Signal::Sm), true),
    metric("DCGM_FI_PROF_SM_OCCUPANCY", "DCGM_FI_PROF_SM_OCCUPANCY_RATIO", "gauge", Source::Ratio(Signal::Occupancy), true),
    metric("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "DCGM_FI_PROF_TENSOR_UTIL_RATIO", "gauge", Source::Ratio(Signal::Tensor), true),
    metric("DCGM_FI_PROF_DRAM_ACTIVE", "DCGM_FI_PROF_DRAM_UTIL_RATIO", "gauge", Source::Ratio(Signal::Dram), true),
    metric("DCGM_FI_PROF_PIPE_FP64_ACTIVE", "DCGM_FI_PROF_FP64_UTIL_RATIO", "gauge", Source::Ratio(Signal::Fp64), true),
    metric("DCGM_FI_PROF_PIPE_FP32_ACTIVE", "DCGM_FI_PROF_FP32_UTIL_RATIO", "gauge", Source::Ratio(Signal::Fp32), true),
    metric("DCGM_FI_PROF_PIPE_FP16_ACTIVE", "DCGM_FI_PROF_FP16_UTIL_RATIO", "gauge", Source::Ratio(Signal::Fp16), true),
    metric("DCGM_FI_PROF_PCIE_TX_BYTES", "DCGM_FI_PROF_PCIE_TX_BYTES", "gauge", Source::Traffic(Signal::PcieTx), false),
    metric("DCGM_FI_PROF_PCIE_RX_BYTES", "DCGM_FI_PROF_PCIE_RX_BYTES", "gauge", Source::Traffic(Signal::PcieRx), false),
    metric("DCGM_FI_PROF_NVLINK_TX_BYTES", "DCGM_FI_PROF_NVLINK_TX_BYTES", "gauge", Source::Traffic(Signal::Nvlink), false),
];
