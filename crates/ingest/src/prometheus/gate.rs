//! The door: which numbers may become samples of a field.
//!
//! DCGM and its relatives write codes for *not available* as ordinary numbers; one of them in an energy
//! counter ruins a month. They, and values that no device can have, are refused by reason, never clamped
//! to zero (**MODEL-3**).

use gpuledger_model::tables::telemetry::Field;

use super::number::{Exact, Number, Scale};

/// Why a line or sample was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// Bytes that are no UTF-8.
    NotUtf8,
    /// A line above the limit.
    LineTooLong,
    /// No metric name where one must be.
    MalformedName,
    /// Labels that do not follow the grammar, such as an unescaped quote.
    MalformedLabels,
    /// Labels replaced by `...`.
    ElidedLabels,
    /// More labels than the limit.
    TooManyLabels,
    /// One label given twice.
    RepeatedLabel,
    /// No value after the labels.
    NoValue,
    /// A text where a number belongs.
    TextValue,
    /// A timestamp that is none.
    MalformedTimestamp,
    /// No time in the line, the file's name or the request.
    NoTimestamp,
    /// A time that no fleet of accelerators has seen.
    TimeOutOfRange,
    /// `NaN`.
    NotANumber,
    /// An infinite value.
    Infinite,
    /// A code that stands for *not available*.
    Sentinel,
    /// Below zero.
    Negative,
    /// A ratio above 1.03 or a percentage above 103.
    RatioAboveOne,
    /// Above what a device can have.
    OutOfRange,
    /// A device value without UUID, PCI address or index.
    NoDevice,
    /// A holder signal without namespace, pod or address.
    NoHolder,
}

impl Reason {
    /// What is wrong and what would mend it.
    pub fn text(self) -> &'static str {
        match self {
            Reason::NotUtf8 => "line is not UTF-8; re-encode the file",
            Reason::LineTooLong => "line is longer than 1 MiB",
            Reason::MalformedName => "no metric name at the start of the line; is this Prometheus text?",
            Reason::MalformedLabels => "labels cannot be read (an unescaped quote?); fix the label in the exporter",
            Reason::ElidedLabels => "labels are elided with \"...\"; give the line in full",
            Reason::TooManyLabels => "more than 256 labels",
            Reason::RepeatedLabel => "a label is given twice",
            Reason::NoValue => "no value after the name and labels",
            Reason::TextValue => "value is a text, not a number: not measured",
            Reason::MalformedTimestamp => "timestamp is not a number of seconds or milliseconds",
            Reason::NoTimestamp => {
                "sample has no time; name the file <unix seconds>.prom, give timestamps in the lines, or pass --assume time=..."
            }
            Reason::TimeOutOfRange => "time is outside the years 2000 to 2099; set the clock of the host or mend the timestamps",
            Reason::NotANumber => "value is NaN: not measured",
            Reason::Infinite => "value is infinite: not measured",
            Reason::Sentinel => "value is a code for \"not available\": not measured",
            Reason::Negative => "value is negative: not measured",
            Reason::RatioAboveOne => "ratio is above 1.03 (percentage above 103): not measured",
            Reason::OutOfRange => "value is above what a device can have: not measured",
            Reason::NoDevice => "no UUID, PCI address or index names a device; keep the UUID label when relabelling",
            Reason::NoHolder => "no namespace and pod labels name a holder; keep them when relabelling",
        }
    }
}

/// Ratios up to here are rounding of a full one (ACCOUNTING section 5).
const RATIO_TOLERATED_STEPS: i64 = 1_030_000;
const ONE: i64 = 1_000_000;

/// 2000-01-01 and 2100-01-01: a clock that was never set says 1970, a damaged timestamp may say anything, and either
/// would stretch a device's history over all the years between.
const YEARS_MS: std::ops::Range<i64> = 946_684_800_000..4_102_444_800_000;

/// Whether a sample may have this time.
pub fn admit_time(time_ms: i64) -> Result<(), Reason> {
    if YEARS_MS.contains(&time_ms) { Ok(()) } else { Err(Reason::TimeOutOfRange) }
}

/// The steps of a device field, or why not.
pub fn admit(field: Field, scale: &Scale, number: &Number) -> Result<i64, Reason> {
    let exact = finite(number)?;
    let steps = scale.steps(exact).ok_or(Reason::OutOfRange)?;
    admit_steps(field, steps)
}

/// [`admit`] for a float, without the detour over its text where that cannot matter.
pub fn admit_float(field: Field, scale: &Scale, value: f64) -> Result<i64, Reason> {
    if (0.0..SMALLEST_SENTINEL as f64).contains(&value)
        && let Some(steps) = scale.quick_steps(value)
    {
        return admit_steps(field, steps);
    }
    admit(field, scale, &Number::from_f64(value))
}

/// The steps of a host or holder signal, or why not.
pub fn admit_signal(scale: &Scale, number: &Number) -> Result<i64, Reason> {
    scale.steps(finite(number)?).ok_or(Reason::OutOfRange)
}

/// Whether a label's value stands for *absent*.
pub fn is_absent_text(text: &str) -> bool {
    let text = text.trim();
    text.is_empty()
        || (text.starts_with("<<<") && text.ends_with(">>>"))
        || matches!(text, "N/A" | "[N/A]" | "NA" | "[Not Supported]" | "4294967295" | "2147483632")
        || text.starts_with("ERROR - ")
}

fn finite(number: &Number) -> Result<&Exact, Reason> {
    let exact = match number {
        Number::Finite(exact) => exact,
        Number::NotANumber => return Err(Reason::NotANumber),
        Number::Infinite => return Err(Reason::Infinite),
    };
    if is_sentinel(exact) {
        return Err(Reason::Sentinel);
    }
    if exact.is_negative && exact.mantissa != 0 {
        return Err(Reason::Negative);
    }
    Ok(exact)
}

const SMALLEST_SENTINEL: u128 = 0x7fff_fff0;

/// DCGM's blanks (`dcgm_structs.h`): the top of int32 and int64, 2^47 and seven codes above as a double,
/// and -1 as an unsigned 32-bit number.
fn is_sentinel(exact: &Exact) -> bool {
    if exact.is_negative || (exact.exponent <= 0 && exact.mantissa < SMALLEST_SENTINEL) {
        return false;
    }
    match exact.as_integer() {
        Some(value) => {
            (SMALLEST_SENTINEL..=0x7fff_ffff).contains(&value)
                || value == 0xffff_ffff
                || (140_737_488_355_328..=140_737_488_355_335).contains(&value)
                || value >= 0x7fff_ffff_ffff_fff0
        }
        None => false,
    }
}

fn admit_steps(field: Field, steps: i64) -> Result<i64, Reason> {
    match limit_steps(field) {
        Limit::Ratio if steps <= ONE => Ok(steps),
        Limit::Ratio if steps <= RATIO_TOLERATED_STEPS => Ok(ONE),
        Limit::Ratio => Err(Reason::RatioAboveOne),
        Limit::AtMost(limit) if steps <= limit => Ok(steps),
        Limit::AtMost(_) => Err(Reason::OutOfRange),
    }
}

enum Limit {
    Ratio,
    AtMost(i64),
}

fn limit_steps(field: Field) -> Limit {
    let units = match field {
        Field::Engine
        | Field::Util
        | Field::SmActive
        | Field::SmOccupancy
        | Field::Tensor
        | Field::Dram
        | Field::Fp64
        | Field::Fp32
        | Field::Fp16
        | Field::MemoryUsedRatio => return Limit::Ratio,
        Field::PcieTxTotal
        | Field::PcieRxTotal
        | Field::SmCyclesElapsed
        | Field::SmCyclesActive
        | Field::MmaCyclesActive
        | Field::Fp64CyclesActive
        | Field::Fp32CyclesActive
        | Field::Fp16CyclesActive => return Limit::AtMost(i64::MAX),
        // 16 TiB on one board.
        Field::MemoryUsed | Field::MemoryFree | Field::MemoryReserved | Field::MemoryTotal => 16 * 1024 * 1024,
        Field::Processes => 1_000_000,
        Field::PowerWatts | Field::PowerLimitWatts => 3_000,
        // A kilowatt for thirty years.
        Field::Energy => 1_000_000_000_000,
        Field::PcieTx | Field::PcieRx => 300_000,
        Field::PcieLinkGen => 16,
        Field::PcieLinkWidth => 32,
        Field::NvlinkTx | Field::NvlinkRx => 4_000_000,
        // Three centuries.
        Field::ThrottlePower | Field::ThrottleThermal | Field::ThrottleHwThermal | Field::ThrottleHwPowerBrake => 10_000_000_000,
        Field::XidLast => 1_000,
        Field::RowRemapFailed => 1,
        Field::RecoveryAction => 16,
    };
    Limit::AtMost(units * ONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admit_text(field: Field, scale: Scale, text: &str) -> Result<i64, Reason> {
        admit(field, &scale, &Number::parse(text.as_bytes()).unwrap())
    }

    const UNIT: Scale = Scale { numerator: 1, denominator: 1, steps_per_unit: 1_000_000 };
    const PERCENT: Scale = Scale { numerator: 1, denominator: 100, steps_per_unit: 1_000_000 };
    const COUNT: Scale = Scale { numerator: 1, denominator: 1, steps_per_unit: 1 };

    #[test]
    fn sentinels_never_become_values() {
        for text in [
            "2147483632",
            "2147483635.000000",
            "4294967295",
            "140737488355328",
            "140737488355331.000000",
            "1.40737488355328e+14",
            "9223372036854775792",
            "9223372036854775794.000000",
            "9.2233720368547758e+18",
            "9.223372036854776e+018",
            "18446744073709551615",
        ] {
            for field in Field::ALL {
                assert_eq!(admit_text(*field, COUNT, text), Err(Reason::Sentinel), "{field:?} {text}");
            }
        }
        // A cycle counter passes 2^47 within a day.
        assert_eq!(admit_text(Field::SmCyclesElapsed, COUNT, "140737488355900"), Ok(140_737_488_355_900));
    }

    #[test]
    fn ratios_just_above_one_are_one() {
        assert_eq!(admit_text(Field::SmActive, UNIT, "1.03"), Ok(1_000_000));
        assert_eq!(admit_text(Field::SmActive, UNIT, "1.0300006"), Err(Reason::RatioAboveOne));
        assert_eq!(admit_text(Field::Util, PERCENT, "103"), Ok(1_000_000));
        assert_eq!(admit_text(Field::Util, PERCENT, "104"), Err(Reason::RatioAboveOne));
        assert_eq!(admit_text(Field::Util, PERCENT, "808334905"), Err(Reason::RatioAboveOne));
        assert_eq!(admit_text(Field::PowerWatts, UNIT, "3000.1"), Err(Reason::OutOfRange));
        assert_eq!(admit_text(Field::PowerWatts, UNIT, "-1"), Err(Reason::Negative));
        assert_eq!(admit_text(Field::PowerWatts, UNIT, "-0"), Ok(0));
        assert_eq!(admit_float(Field::PowerWatts, &UNIT, 15.507), Ok(15_507_000));
        assert_eq!(admit_float(Field::PowerWatts, &UNIT, f64::NAN), Err(Reason::NotANumber));
        assert_eq!(admit_float(Field::Energy, &UNIT, 9.223372036854776e18), Err(Reason::Sentinel));
    }
}
