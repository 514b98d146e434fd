//! `--window`: the words of OpenCost's allocation query, relative to a given now and zone.
//!
//! `today`, `yesterday`, `week`, `month`, `lastweek`, `lastmonth`; `30m`, `12h`, `7d`, `2w`; a pair of
//! RFC 3339 times or of unix seconds. As in OpenCost: weeks begin on Sunday, `week` and `month` end now,
//! and the past N days are today whole and the N-1 days before it.

use gpuledger_model::time::{HOUR_MS, MINUTE_MS, Window, floor_to, parse_time};
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};

/// The words and forms that are read, for messages and help.
pub const FORMS: &str =
    "today, yesterday, week, month, lastweek, lastmonth, 30m, 12h, 7d, 2w, or a pair such as 2026-10-06T09:00:00Z,2026-10-06T11:00:00Z";

/// The longest duration that is read, in its unit: 10 000 weeks are 190 years.
const COUNT_MAX: i64 = 10_000;

/// Reads a window. The error is a fragment that follows `failed to`.
pub fn parse_window(text: &str, now_ms: i64, zone: &TimeZone) -> Result<Window, String> {
    let text = text.trim();
    let bad = |why: &str| format!("read window {text:?}: {why}; use {FORMS}");
    if let Some((from, to)) = text.split_once(',') {
        let from_ms = parse_instant(from, zone).ok_or_else(|| bad(&format!("{from:?} is no time")))?;
        let to_ms = parse_instant(to, zone).ok_or_else(|| bad(&format!("{to:?} is no time")))?;
        if to_ms <= from_ms {
            return Err(bad("it ends before it starts"));
        }
        return Ok(Window::new(from_ms, to_ms));
    }
    let out_of_range = || bad("out of the calendar");
    let now = Timestamp::from_millisecond(now_ms).map_err(|_| out_of_range())?;
    let today = now.to_zoned_datetime(zone.clone()).date();
    let midnight = |date: Date| {
        zone.to_ambiguous_timestamp(date.to_datetime(jiff::civil::Time::midnight()))
            .compatible()
            .map(|t| t.as_millisecond())
            .map_err(|_| out_of_range())
    };
    let days_off = |date: Date, days: i64| date.checked_add(days.days()).map_err(|_| out_of_range());
    let sunday = days_off(today, -i64::from(today.weekday().to_sunday_zero_offset()))?;
    let (from_ms, to_ms) = match text {
        "today" => (midnight(today)?, midnight(days_off(today, 1)?)?),
        "yesterday" => (midnight(days_off(today, -1)?)?, midnight(today)?),
        "week" => (midnight(sunday)?, now_ms),
        "lastweek" => (midnight(days_off(sunday, -7)?)?, midnight(sunday)?),
        "month" => (midnight(today.first_of_month())?, now_ms),
        "lastmonth" => {
            let last_day = days_off(today.first_of_month(), -1)?;
            (midnight(last_day.first_of_month())?, midnight(today.first_of_month())?)
        }
        _ => {
            let mut letters = text.chars();
            let unit = letters.next_back().ok_or_else(|| bad("it is empty"))?;
            let count: i64 = letters.as_str().parse().map_err(|_| bad("unknown word"))?;
            if !(1..=COUNT_MAX).contains(&count) {
                return Err(bad(&format!("the count must be 1 to {COUNT_MAX}")));
            }
            match unit {
                'm' => (now_ms - count * MINUTE_MS, now_ms),
                'h' => (now_ms - count * HOUR_MS, now_ms),
                'd' => (midnight(days_off(today, 1 - count)?)?, midnight(days_off(today, 1)?)?),
                'w' => (midnight(days_off(today, 1 - 7 * count)?)?, midnight(days_off(today, 1)?)?),
                _ => return Err(bad("unknown word")),
            }
        }
    };
    Ok(Window::new(from_ms, to_ms))
}

/// The window's bounds moved outward to whole hours, and whether they moved.
pub fn round_outward(window: Window) -> (Window, bool) {
    let from_ms = floor_to(window.from_ms, HOUR_MS);
    let floor = floor_to(window.to_ms, HOUR_MS);
    let to_ms = if floor == window.to_ms { floor } else { floor.saturating_add(HOUR_MS) };
    let rounded = Window::new(from_ms, to_ms);
    (rounded, rounded != window)
}

/// RFC 3339, a date, or unix seconds.
fn parse_instant(text: &str, zone: &TimeZone) -> Option<i64> {
    let text = text.trim();
    if !text.is_empty() && text.len() <= 12 && text.bytes().all(|b| b.is_ascii_digit()) {
        let time_ms = text.parse::<i64>().ok()?.checked_mul(1_000)?;
        return Timestamp::from_millisecond(time_ms).ok().map(|t| t.as_millisecond());
    }
    parse_time(text, zone)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuledger_model::time::format_rfc3339;
    use proptest::prelude::*;

    // A Tuesday.
    const NOW: &str = "2026-10-06T14:25:30Z";

    fn window_text(text: &str, zone: &str) -> String {
        let zone = TimeZone::get(zone).unwrap();
        let window = parse_window(text, parse_time(NOW, &TimeZone::UTC).unwrap(), &zone).unwrap();
        format!("{} {}", format_rfc3339(window.from_ms), format_rfc3339(window.to_ms))
    }

    #[test]
    fn every_word_means_what_opencost_means() {
        for (text, want) in [
            ("today", "2026-10-06T00:00:00Z 2026-10-07T00:00:00Z"),
            ("yesterday", "2026-10-05T00:00:00Z 2026-10-06T00:00:00Z"),
            ("week", "2026-10-04T00:00:00Z 2026-10-06T14:25:30Z"),
            ("lastweek", "2026-09-27T00:00:00Z 2026-10-04T00:00:00Z"),
            ("month", "2026-10-01T00:00:00Z 2026-10-06T14:25:30Z"),
            ("lastmonth", "2026-09-01T00:00:00Z 2026-10-01T00:00:00Z"),
            ("30m", "2026-10-06T13:55:30Z 2026-10-06T14:25:30Z"),
            ("12h", "2026-10-06T02:25:30Z 2026-10-06T14:25:30Z"),
            ("7d", "2026-09-30T00:00:00Z 2026-10-07T00:00:00Z"),
            ("2w", "2026-09-23T00:00:00Z 2026-10-07T00:00:00Z"),
            ("2026-10-06T09:00:00Z,2026-10-06T11:00:00Z", "2026-10-06T09:00:00Z 2026-10-06T11:00:00Z"),
            ("1791276000,1791279600", "2026-10-06T08:40:00Z 2026-10-06T09:40:00Z"),
        ] {
            assert_eq!(window_text(text, "UTC"), want, "{text}");
        }
    }

    #[test]
    fn days_are_those_of_the_zone_even_when_the_clock_changes() {
        assert_eq!(window_text("today", "Europe/Berlin"), "2026-10-05T22:00:00Z 2026-10-06T22:00:00Z");
        let zone = TimeZone::get("Europe/Berlin").unwrap();
        let now_ms = parse_time("2026-10-26T12:00:00Z", &TimeZone::UTC).unwrap();
        // The day on which summer time ended has 25 hours.
        assert_eq!(parse_window("yesterday", now_ms, &zone).unwrap().duration_ms(), 25 * HOUR_MS);
    }

    #[test]
    fn bounds_inside_an_hour_move_outward() {
        let zone = TimeZone::UTC;
        let window = parse_window("2026-10-06T09:10:00Z,2026-10-06T10:50:00Z", 0, &zone).unwrap();
        let (rounded, moved) = round_outward(window);
        assert!(moved);
        assert_eq!(format_rfc3339(rounded.from_ms), "2026-10-06T09:00:00Z");
        assert_eq!(format_rfc3339(rounded.to_ms), "2026-10-06T11:00:00Z");
        assert_eq!(round_outward(rounded), (rounded, false));
    }

    #[test]
    fn what_is_no_window_is_refused_with_the_forms() {
        for text in ["", "fortnight", "0d", "-1d", "d", "99999d", "2026-10-06,2026-10-05", "a,b", "1791280000", "7 d,"] {
            let error = parse_window(text, 0, &TimeZone::UTC).unwrap_err();
            assert!(error.contains("lastmonth"), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".{0,40}", now_ms in any::<i64>()) {
            let _ = parse_window(&text, now_ms, &TimeZone::UTC);
        }

        #[test]
        fn numbers_are_read_or_refused(count in any::<i64>(), unit in "[mhdw]", now_ms in any::<i64>()) {
            let _ = parse_window(&format!("{count}{unit}"), now_ms, &TimeZone::UTC);
        }
    }
}
