//! One cell of a bill, as its format delivers it, and how it is read: numbers exactly, times as UTC.

use std::borrow::Cow;

use gpuledger_model::money::{Decimal, DecimalError};
use gpuledger_model::time::parse_time;
use jiff::civil;
use jiff::tz::TimeZone;

/// The longest text of one cell; a longer one is unreadable.
pub const CELL_BYTES_MAX: usize = 1 << 20;

/// Times of bills lie in these years; others are mistakes of a format (and would make endless periods).
const YEAR_MIN_MS: i64 = 946_684_800_000; // 2000-01-01
const YEAR_END_MS: i64 = 4_102_444_800_000; // 2100-01-01

/// A cell, typed as far as its format types it.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell<'a> {
    /// Nothing delivered.
    Null,
    /// Text: all of CSV, and the text columns of Parquet.
    Text(Cow<'a, str>),
    /// An exact number.
    Number(Decimal),
    /// A floating-point number, which means its shortest decimal.
    Float(f64),
    /// An instant in ms since the epoch.
    Time(i64),
    /// Yes or no.
    Bool(bool),
    /// Bytes that are no text, or a value beyond what we hold; why.
    Unreadable(String),
}

impl<'a> Cell<'a> {
    /// A cell of raw bytes: null words are null, anything but UTF-8 is unreadable.
    pub fn from_bytes(bytes: &'a [u8]) -> Cell<'a> {
        if bytes.len() > CELL_BYTES_MAX {
            return Cell::Unreadable(format!("is longer than {CELL_BYTES_MAX} bytes"));
        }
        match std::str::from_utf8(bytes) {
            Ok(text) => Cell::Text(Cow::Borrowed(text)),
            Err(_) => Cell::Unreadable("is not UTF-8 text".to_owned()),
        }
    }

    /// Whether the cell holds nothing: empty, blanks, `NULL`, `null` or `None`.
    pub fn is_null(&self) -> bool {
        match self {
            Cell::Null => true,
            Cell::Text(text) => matches!(text.trim(), "" | "NULL" | "null" | "None"),
            _ => false,
        }
    }
}

/// How a value was written, where that breaks FOCUS's rules and is read all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As FOCUS says, or near enough that nothing is in doubt.
    Plain,
    /// Blanks around a number.
    Padded,
    /// Month/day/year.
    MonthDayYear,
    /// An hour of 24 or more, counted on from midnight.
    HourOverflow,
    /// A text column delivered as a number, where leading zeros may have been lost.
    TypedText,
}

/// Why a cell is unreadable: a fragment that follows the column's name.
pub type Unreadable = String;

/// The cell as a number; `None` is null.
pub fn read_decimal(cell: &Cell<'_>) -> Result<Option<(Decimal, Form)>, Unreadable> {
    if cell.is_null() {
        return Ok(None);
    }
    let refused = |error: DecimalError, text: &str| match error {
        DecimalError::NotANumber => {
            format!("{} is not a plain number (digits, one point, no currency sign or separator)", quoted(text))
        }
        DecimalError::TooLong => format!("{} needs more than 38 digits", quoted(text)),
    };
    match cell {
        Cell::Number(number) => Ok(Some((*number, Form::Plain))),
        Cell::Float(float) => {
            Decimal::from_f64_shortest(*float).map(|n| Some((n, Form::Plain))).map_err(|e| refused(e, &float.to_string()))
        }
        Cell::Text(text) => match text.parse::<Decimal>() {
            Ok(number) => Ok(Some((number, Form::Plain))),
            Err(first) => match text.trim().parse::<Decimal>() {
                Ok(number) => Ok(Some((number, Form::Padded))),
                Err(_) => Err(refused(first, text)),
            },
        },
        Cell::Time(_) | Cell::Bool(_) => Err("is no number".to_owned()),
        Cell::Unreadable(reason) => Err(reason.clone()),
        Cell::Null => Ok(None),
    }
}

/// The cell as an instant; `None` is null. Times without a zone are UTC.
pub fn read_time(cell: &Cell<'_>) -> Result<Option<(i64, Form)>, Unreadable> {
    if cell.is_null() {
        return Ok(None);
    }
    let (time_ms, form, shown) = match cell {
        Cell::Time(time_ms) => (*time_ms, Form::Plain, None),
        Cell::Text(text) => {
            let read = parse_time(text, &TimeZone::UTC)
                .map(|ms| (ms, Form::Plain))
                .or_else(|| month_day_year(text).map(|ms| (ms, Form::MonthDayYear)))
                .or_else(|| hour_overflow(text).map(|ms| (ms, Form::HourOverflow)));
            let Some((time_ms, form)) = read else {
                return Err(format!("{} is not a time (write 2026-10-06T09:00:00Z)", quoted(text)));
            };
            (time_ms, form, Some(text))
        }
        Cell::Unreadable(reason) => return Err(reason.clone()),
        _ => return Err("is no time".to_owned()),
    };
    if !(YEAR_MIN_MS..YEAR_END_MS).contains(&time_ms) {
        let shown = shown.map_or_else(|| format!("{time_ms} ms"), |text| quoted(text));
        return Err(format!("{shown} is outside the years 2000 to 2099"));
    }
    Ok(Some((time_ms, form)))
}

/// The cell as text, as delivered; `None` is null.
pub fn read_text(cell: &Cell<'_>) -> Result<Option<(String, Form)>, Unreadable> {
    if cell.is_null() {
        return Ok(None);
    }
    match cell {
        Cell::Text(text) => Ok(Some((text.clone().into_owned(), Form::Plain))),
        Cell::Unreadable(reason) => Err(reason.clone()),
        typed => Ok(Some((typed_text(typed), Form::TypedText))),
    }
}

/// A typed cell written out; the same cell always gives the same text.
pub fn typed_text(cell: &Cell<'_>) -> String {
    match cell {
        Cell::Null | Cell::Unreadable(_) => String::new(),
        Cell::Text(text) => text.clone().into_owned(),
        Cell::Number(number) => number.to_string(),
        Cell::Float(float) => match Decimal::from_f64_shortest(*float) {
            Ok(number) => number.to_string(),
            Err(_) => float.to_string(),
        },
        Cell::Time(time_ms) => gpuledger_model::time::format_rfc3339(*time_ms),
        Cell::Bool(value) => value.to_string(),
    }
}

/// A value for a message: quoted, its controls escaped, cut after 40 characters.
pub fn quoted(text: &str) -> String {
    let mut short: String = text.chars().take(40).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    format!("`{}`", short.escape_debug().to_string().replace("\\\"", "\"").replace("\\'", "'"))
}

/// `4/1/25`, `04/01/2025`, with an optional `hh:mm[:ss]` behind it.
fn month_day_year(text: &str) -> Option<i64> {
    let text = text.trim();
    let (date, clock) = match text.split_once([' ', 'T']) {
        Some((date, clock)) => (date, Some(clock)),
        None => (text, None),
    };
    let mut parts = date.split('/');
    let month = digits(parts.next()?, 2)?;
    let day = digits(parts.next()?, 2)?;
    let year_text = parts.next()?;
    if parts.next().is_some() {
        return None;
    }
    let year = match year_text.len() {
        2 => 2000 + digits(year_text, 2)?,
        4 => digits(year_text, 4)?,
        _ => return None,
    };
    let midnight = midnight_ms(year, month, day)?;
    match clock {
        None => Some(midnight),
        Some(clock) => {
            let (hour, rest_ms) = clock_ms(clock)?;
            (hour < 24).then_some(midnight + hour * 3_600_000 + rest_ms)
        }
    }
}

/// `2023-02-01T30:00:00Z`: thirty hours after midnight. The specification's own examples count so.
fn hour_overflow(text: &str) -> Option<i64> {
    let text = text.trim();
    let (date, clock) = text.split_once(['T', ' '])?;
    let mut parts = date.split('-');
    let year = digits(parts.next()?, 4)?;
    let month = digits(parts.next()?, 2)?;
    let day = digits(parts.next()?, 2)?;
    if parts.next().is_some() {
        return None;
    }
    let (hour, rest_ms) = clock_ms(clock)?;
    Some(midnight_ms(year, month, day)? + hour * 3_600_000 + rest_ms)
}

fn midnight_ms(year: i64, month: i64, day: i64) -> Option<i64> {
    let date = civil::Date::new(i16::try_from(year).ok()?, i8::try_from(month).ok()?, i8::try_from(day).ok()?).ok()?;
    Some(TimeZone::UTC.to_timestamp(date.to_datetime(civil::Time::midnight())).ok()?.as_millisecond())
}

/// `hh:mm[:ss][Z]` as hours and the milliseconds behind them.
fn clock_ms(text: &str) -> Option<(i64, i64)> {
    let text = text.strip_suffix(['Z', 'z']).unwrap_or(text);
    let mut parts = text.split(':');
    let hour = digits(parts.next()?, 2)?;
    let minute = digits(parts.next()?, 2)?;
    let second = match parts.next() {
        Some(second) => digits(second, 2)?,
        None => 0,
    };
    (parts.next().is_none() && minute < 60 && second < 60).then_some((hour, minute * 60_000 + second * 1_000))
}

/// A number of at most `length_max` digits and nothing else.
fn digits(text: &str, length_max: usize) -> Option<i64> {
    if text.is_empty() || text.len() > length_max || !text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Cell<'_> {
        Cell::Text(Cow::Borrowed(text))
    }

    #[test]
    fn null_words_are_null_and_nothing_else_is() {
        for word in ["", " ", "NULL", "null", "None"] {
            assert!(text(word).is_null(), "{word:?}");
        }
        for word in ["0", "N/A", "Null", "none", "-"] {
            assert!(!text(word).is_null(), "{word:?}");
        }
    }

    #[test]
    fn times_of_bills_are_utc() {
        let want = read_time(&text("2025-04-01T00:00:00Z")).unwrap().unwrap();
        for (given, form) in [
            ("2025-04-01 00:00:00", Form::Plain),
            ("2025-04-01", Form::Plain),
            ("4/1/25", Form::MonthDayYear),
            ("04/01/2025", Form::MonthDayYear),
            ("4/1/2025 0:00", Form::MonthDayYear),
            ("2025-03-31T24:00:00Z", Form::HourOverflow),
        ] {
            assert_eq!(read_time(&text(given)), Ok(Some((want.0, form))), "{given}");
        }
        for bad in ["13/13/25", "2025-13-01", "soon", "4/1", "1825-04-01", "45383", "4/1/25 25:00"] {
            assert!(read_time(&text(bad)).is_err(), "{bad}");
        }
        assert_eq!(read_time(&text("NULL")), Ok(None));
    }

    #[test]
    fn numbers_are_read_exactly_or_not_at_all() {
        let read = |t: &str| read_decimal(&text(t)).map(|v| v.map(|(n, _)| n.to_string()));
        assert_eq!(read("7.21947119616E-7"), Ok(Some("0.000000721947119616".into())));
        assert_eq!(read("1e2"), Ok(Some("100".into())));
        assert_eq!(read("0.00 "), Ok(Some("0.00".into())));
        assert_eq!(read("null"), Ok(None));
        for bad in ["$10,100.00 ", "1,5", "NaN", "1 000", "--1"] {
            assert!(read(bad).is_err(), "{bad}");
        }
        assert_eq!(read_decimal(&Cell::Float(0.1)).unwrap().unwrap().0.to_string(), "0.1");
        assert!(read_decimal(&Cell::Float(f64::NAN)).is_err());
    }
}
