//! Prometheus text exposition 0.0.4 and OpenMetrics 1.0, mapped to canonical telemetry by a table of names.
//!
//! What a number means comes from its name ([`names`], `data/metric_names.csv`), never from TYPE or HELP
//! lines: those call rates counters and ratios percentages. Another exporter dialect is more rows there.
//! The way of a sample: a line of text or a row of a column file gives (name, labels, time, number);
//! [`labels`] says which host, board, instance, producer and holder it speaks of, [`gate`] refuses
//! sentinels and impossible values, [`Intake`] keeps the rest, and [`Collected::into_telemetry`] gives the
//! canonical table, the same for any order, split or repetition of the input.

mod collected;
pub mod exposition;
pub mod gate;
mod intake;
pub mod labels;
pub mod names;
pub mod number;
mod signals;

pub use collected::{Collected, Counts, Rejects, SignalPartKey, TargetScrapes};
pub use exposition::{Scrape, is_sample_line, read_exposition};
pub use gate::Reason;
pub use intake::{Intake, LabelSetId};
pub use number::{Exact, Number};

#[cfg(test)]
mod tests;
