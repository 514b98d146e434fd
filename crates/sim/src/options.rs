//! What a world is asked to be.

use std::collections::BTreeSet;

use gpuledger_model::time::{DAY_MS, SECOND_MS};

macro_rules! faults {
    ($($(#[$meta:meta])* $variant:ident = $text:literal,)*) => {
        /// Something that goes wrong with the data, by option.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Fault { $($(#[$meta])* $variant,)* }
        impl Fault {
            /// Every fault.
            pub const ALL: &'static [Fault] = &[$(Fault::$variant,)*];
            /// The name for `--fault`.
            pub fn as_str(self) -> &'static str { match self { $(Fault::$variant => $text,)* } }
            /// The fault of a name.
            pub fn from_name(name: &str) -> Option<Fault> { match name { $($text => Some(Fault::$variant),)* _ => None } }
        }
    };
}

faults! {
    /// The exporter collects every 30 s under scrapes every 15 s: each value arrives twice and lags.
    Exporter30s = "exporter_30s",
    /// No profiling fields at all.
    NoProfiling = "no_profiling",
    /// Some boards are cut into MIG instances.
    Mig = "mig",
    /// Some boards are shared by time-slicing.
    TimeSlicing = "time_slicing",
    /// An exporter restarts: two minutes without samples, then another address.
    ExporterRestart = "exporter_restart",
    /// A node sends nothing for half an hour or so.
    Gaps = "gaps",
    /// A board leaves the bus while its node is paid for.
    UuidVanishes = "uuid_vanishes",
    /// Prometheus clobbers the labels: `exported_pod` is the workload, `pod` the exporter.
    LabelClobber = "label_clobber",
    /// Blank values leak out of the driver as huge numbers.
    Sentinels = "sentinels",
    /// The last hours of one provider's bill have not arrived.
    LateBill = "late_bill",
    /// An earlier delivery of a bill lies in `earlier/`, apart from the valid one.
    RestatedBill = "restated_bill",
    /// A second exporter sends the same devices of a node.
    DuplicateExporter = "duplicate_exporter",
    /// One node's exporter writes the names of DCGM 4.6.
    RenamedFields = "renamed_fields",
}

/// What a world is asked to be. The seed is apart: it chooses among the worlds that fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// At least so many boards.
    pub gpus: u32,
    /// Days of data.
    pub days: u32,
    /// Start of the data, midnight UTC, ms.
    pub start_ms: i64,
    /// Between two scrapes.
    pub scrape_ms: i64,
    /// What goes wrong.
    pub faults: BTreeSet<Fault>,
    /// One account is billed in EUR.
    pub has_second_currency: bool,
    /// One node-day is written as a folder of scrapes; else as one exposition file with times.
    pub has_scrape_folder: bool,
}

/// Monday 2026-10-05, midnight UTC.
const START_MS: i64 = 20_731 * DAY_MS;

impl Options {
    /// A world of so many boards and days, with MIG and shared boards and nothing wrong with the data.
    pub fn new(gpus: u32, days: u32) -> Options {
        Options {
            gpus: gpus.clamp(1, 4_096),
            days: days.clamp(1, 26),
            start_ms: START_MS,
            scrape_ms: 15 * SECOND_MS,
            faults: BTreeSet::from([Fault::Mig, Fault::TimeSlicing]),
            has_second_currency: false,
            has_scrape_folder: true,
        }
    }

    /// The world of `make demo`: at least 64 boards on four clouds, 7 days.
    pub fn demo() -> Options {
        let mut options = Options::new(64, 7);
        options.has_second_currency = true;
        options.faults.extend([Fault::UuidVanishes, Fault::Gaps, Fault::ExporterRestart, Fault::LabelClobber]);
        options
    }

    /// The world that `sim score` judges under a seed: small, one day, one currency, with faults that vary by seed.
    pub fn score(seed: u64) -> Options {
        let mut options = Options::new(20, 1);
        options.has_scrape_folder = false;
        let varied = [
            Fault::Exporter30s,
            Fault::Gaps,
            Fault::UuidVanishes,
            Fault::LabelClobber,
            Fault::Sentinels,
            Fault::DuplicateExporter,
            Fault::RenamedFields,
            Fault::ExporterRestart,
        ];
        for (at, fault) in varied.into_iter().enumerate() {
            // Each fault is in three of five worlds, in another mixture for every seed.
            if (seed.wrapping_mul(7) + 3 * at as u64 + seed / 5) % 5 < 3 {
                options.faults.insert(fault);
            }
        }
        if seed % 4 == 3 {
            options.faults.insert(Fault::LateBill);
        }
        options
    }

    /// End of the data, ms.
    pub fn end_ms(&self) -> i64 {
        self.start_ms + i64::from(self.days) * DAY_MS
    }

    /// Whether a fault is asked for.
    pub fn has(&self, fault: Fault) -> bool {
        self.faults.contains(&fault)
    }
}

/// The seed of `make demo`.
pub const DEMO_SEED: u64 = 2_026;

/// The options of `make demo`.
pub fn demo_options() -> Options {
    Options::demo()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_is_a_monday_midnight_and_names_read_back() {
        assert_eq!(gpuledger_model::time::format_rfc3339(START_MS), "2026-10-05T00:00:00Z");
        for fault in Fault::ALL {
            assert_eq!(Fault::from_name(fault.as_str()), Some(*fault));
        }
    }
}
