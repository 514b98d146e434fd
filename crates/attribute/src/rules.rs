//! The rule book: the judgements of the accounting as versioned data that a user can read and change.

use serde::Deserialize;

/// The book we ship.
pub const RULES_TOML: &str = include_str!("../data/rules.toml");

macro_rules! table {
    ($(#[$meta:meta])* $name:ident { $($(#[$fmeta:meta])* $field:ident : $type:ty,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name { $($(#[$fmeta])* pub $field: $type,)* }
    };
}

table! {
    /// The whole book. Its numbers are explained beside them in `data/rules.toml`.
    RuleBook {
        /// Version that every posting names.
        version: String,
        /// Idle, starting, parked, idle power.
        idle: Idle,
        /// Practical peaks and coverage.
        limits: Limits,
        /// Rule 4.
        input_starved: InputStarved,
        /// Rule 5.
        copy_bound: CopyBound,
        /// Rule 6.
        interconnect_wait: InterconnectWait,
        /// Rule 7.
        bandwidth_bound: BandwidthBound,
        /// Rule 8.
        under_filled: UnderFilled,
        /// Rule 9.
        low_precision_unused: LowPrecisionUnused,
        /// Rule 10.
        memory_latency: MemoryLatency,
        /// Rule 12.
        throttled: Throttled,
        /// Rule 11.
        power_capped: PowerCapped,
        /// Rule 14.
        straggler: Straggler,
        /// Rule 17.
        wrong_board: WrongBoard,
        /// Profiling fields that contradict the rest.
        contradiction: Contradiction,
        /// From what size a finding is made.
        findings: Findings,
        /// Words and units of bills.
        bills: Bills,
    }
}

table! {
    /// Idle, starting, parked, idle power.
    Idle {
        /// Engine share below which a window is idle.
        engine_ratio_max: f64,
        /// GPU_UTIL below which a window without engine is idle.
        util_ratio_max: f64,
        /// Part of (limit - idle) that idle power may exceed.
        power_headroom_ratio: f64,
        /// Least length of an idle run, minutes.
        idle_minutes_min: i64,
        /// Unobserved time that breaks a run, minutes.
        unobserved_break_minutes: i64,
        /// Length of the start of a holding, minutes.
        starting_minutes: i64,
        /// Memory share from which idle is parked.
        parked_memory_ratio_min: f64,
        /// Bound of measured idle power, share of board power.
        idle_power_tdp_ratio_max: f64,
        /// Bound of measured idle power, watts.
        idle_power_watts_max: f64,
        /// Default idle power, share of board power.
        idle_power_tdp_ratio_default: f64,
        /// Grade D: idle up to this times idle power.
        grade_d_power_factor: f64,
    }
}

table! {
    /// Practical peaks and coverage.
    Limits {
        /// Issue limit of the tensor pipe.
        tensor_practical_peak: f64,
        /// Practical peak of the memory interface.
        dram_practical_peak: f64,
        /// Least coverage of a field.
        field_covered_ratio_min: f64,
        /// How many median gaps a sample stands.
        standing_gaps_max: f64,
        /// Median gap where there is none, seconds.
        standing_gap_seconds_default: i64,
        /// Energy that does not rise this long makes values stale, minutes.
        stale_minutes: i64,
    }
}

table! {
    /// Rule 4.
    InputStarved {
        /// Engine below.
        engine_ratio_max: f64,
        /// SM below.
        sm_ratio_max: f64,
        /// Tensor below (grade B).
        tensor_ratio_max: f64,
        /// Memory interface below (grade B).
        dram_ratio_max: f64,
        /// PCIe below, MB/s.
        pcie_mb_per_second_max: f64,
        /// Host CPU from.
        host_cpu_ratio_min: f64,
        /// iowait from.
        host_iowait_ratio_min: f64,
        /// Standard deviation of the engine from.
        engine_deviation_min: f64,
    }
}

table! {
    /// Rule 5.
    CopyBound {
        /// PCIe from, MB/s.
        pcie_mb_per_second_min: f64,
        /// Share of the link's peak from.
        link_peak_ratio_min: f64,
        /// SM below.
        sm_ratio_max: f64,
    }
}

table! {
    /// Rule 6.
    InterconnectWait {
        /// SM from.
        sm_ratio_min: f64,
        /// Tensor below.
        tensor_ratio_max: f64,
        /// Power below this share of the holder's busiest.
        power_of_busy_ratio_max: f64,
        /// GPU_UTIL of every sample of a hang from.
        hang_util_ratio_min: f64,
        /// A hang lasts from, minutes.
        hang_minutes_min: i64,
        /// Power of a hang up to this times idle power.
        hang_power_factor: f64,
        /// Or idle power and this part of (limit - idle).
        hang_power_headroom_ratio: f64,
        /// Memory of a hang from.
        hang_memory_ratio_min: f64,
        /// Memory of a latched counter below.
        latch_memory_ratio_max: f64,
        /// Power seconds that make a 5-minute mean.
        busy_power_seconds_min: i64,
    }
}

table! {
    /// Rule 7.
    BandwidthBound {
        /// Memory interface from.
        dram_ratio_min: f64,
        /// SM below.
        sm_ratio_max: f64,
        /// Or memory interface from.
        dram_alone_ratio_min: f64,
        /// With tensor below.
        tensor_ratio_max: f64,
        /// Requests running that show serving.
        requests_running_min: f64,
    }
}

table! {
    /// Rule 8.
    UnderFilled {
        /// Engine from.
        engine_ratio_min: f64,
        /// SM below.
        sm_ratio_max: f64,
        /// Memory interface below.
        dram_ratio_max: f64,
        /// PCIe below, MB/s.
        pcie_mb_per_second_max: f64,
    }
}

table! {
    /// Rule 9.
    LowPrecisionUnused {
        /// SM from.
        sm_ratio_min: f64,
        /// Tensor below.
        tensor_ratio_max: f64,
        /// FP32 pipe from.
        fp32_ratio_min: f64,
    }
}

table! {
    /// Rule 10.
    MemoryLatency {
        /// Occupancy below.
        occupancy_ratio_max: f64,
        /// SM from.
        sm_ratio_min: f64,
        /// Tensor below.
        tensor_ratio_max: f64,
    }
}

table! {
    /// Rule 12.
    Throttled {
        /// Thermal slow-down above, seconds per second.
        thermal_rate_min: f64,
        /// Power brake above, seconds per second.
        power_brake_rate_min: f64,
    }
}

table! {
    /// Rule 11.
    PowerCapped {
        /// Power from this share of the limit.
        power_of_limit_ratio_min: f64,
        /// Slowed down by the limit above, seconds per second.
        rate_min: f64,
    }
}

table! {
    /// Rule 14.
    Straggler {
        /// Standard deviations from the mean power of the run's devices above.
        z_score_min: f64,
        /// SM below while all peers spin.
        sm_ratio_max: f64,
    }
}

table! {
    /// Rule 17.
    WrongBoard {
        /// Memory never above this share.
        memory_ratio_max: f64,
        /// Seen for, days.
        days_min: i64,
    }
}

table! {
    /// Profiling fields that contradict the rest.
    Contradiction {
        /// GPU_UTIL from.
        util_ratio_min: f64,
        /// Power above this times idle power.
        power_factor: f64,
        /// For, minutes.
        minutes_min: i64,
    }
}

table! {
    /// From what size a finding is made.
    Findings {
        /// Windows closer than this belong together, minutes.
        gap_minutes_max: i64,
        /// Least length, minutes.
        minutes_min: i64,
        /// Least amount, units of currency.
        amount_min: i128,
    }
}

table! {
    /// Words and units of bills.
    Bills {
        /// Words of ServiceName that mean support.
        support_words: Vec<String>,
        /// ServiceCategory of machine usage.
        machine_service_categories: Vec<String>,
        /// Words of a machine's rows that are no machine usage.
        not_machine_words: Vec<String>,
        /// Words of a row's SKU, usage type or description that are no machine usage: traffic, disks, addresses, licences.
        not_machine_texts: Vec<String>,
        /// Words of a native usage type that mean unused reserved capacity.
        unused_capacity_words: Vec<String>,
        /// Units that are hours, lower case.
        hour_units: Vec<String>,
        /// `devices` or `apart`.
        host_share: String,
        /// Rate of a host's vCPU for `apart`.
        host_usd_per_vcpu_hour: String,
        /// Rate of a host's GiB for `apart`.
        host_usd_per_gib_hour: String,
    }
}

impl RuleBook {
    /// Reads a rule book; the message names line and key.
    pub fn parse(text: &str) -> Result<RuleBook, String> {
        let book: RuleBook = toml::from_str(text).map_err(|error| error.to_string())?;
        if !matches!(book.bills.host_share.as_str(), "devices" | "apart") {
            return Err(format!("bills.host_share is `{}`; give `devices` or `apart`", book.bills.host_share));
        }
        let peaks = [book.limits.tensor_practical_peak, book.limits.dram_practical_peak];
        if peaks.iter().any(|p| !(0.01..=1.0).contains(p)) {
            return Err("limits: a practical peak lies between 0.01 and 1".to_string());
        }
        Ok(book)
    }

    /// The book we ship.
    pub fn shipped() -> RuleBook {
        RuleBook::parse(RULES_TOML).unwrap_or_else(|error| unreachable!("the shipped rule book is checked by a test: {error}"))
    }
}

/// A ratio of the book in parts per million, rounded.
pub fn ppm(ratio: f64) -> i64 {
    (ratio * 1e6).round() as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_book_reads() {
        let book = RuleBook::shipped();
        assert_eq!(book.version, "1");
        assert!(RuleBook::parse("version = \"1\"\nunknown = 1\n").is_err());
    }
}
