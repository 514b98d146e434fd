//! Charts as inline SVG, drawn here: no script, no outside file. Colour never speaks alone: every class has its
//! own pattern, and every mark its words.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use gpuledger_model::cause::Class;
use gpuledger_model::money::Decimal;
use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::amount::format_amount;
use super::html::escape;
use crate::report::TimelineRow;

const CHART_WIDTH: f64 = 960.0;
const CHART_HEIGHT: f64 = 290.0;
const PLOT_LEFT: f64 = 84.0;
const PLOT_RIGHT: f64 = CHART_WIDTH - 8.0;
const PLOT_TOP: f64 = 10.0;
const PLOT_BOTTOM: f64 = CHART_HEIGHT - 28.0;

/// Lines across the plot.
const TICKS: f64 = 4.0;
/// Room of a label below it: as many are written as fit without touching.
const TIME_LABEL_WIDTH: f64 = 88.0;
/// Hours or days at the ends with less than this part of the greatest are left out of the drawing: tax that is
/// spread over a month would else squeeze two days of data into a line.
const DRAWN_PART_MIN: f64 = 0.01;

/// Patterns of the classes, defined once per page.
pub fn pattern_definitions() -> &'static str {
    concat!(
        "<svg width=\"0\" height=\"0\" aria-hidden=\"true\" style=\"position:absolute\"><defs>",
        "<pattern id=\"p-waste\" width=\"7\" height=\"7\" patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\">",
        "<line class=\"mark\" x1=\"0\" y1=\"0\" x2=\"0\" y2=\"7\" stroke-width=\"3\"/></pattern>",
        "<pattern id=\"p-tunable\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\">",
        "<line class=\"mark\" x1=\"0\" y1=\"1\" x2=\"6\" y2=\"1\" stroke-width=\"2\"/></pattern>",
        "<pattern id=\"p-neutral\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\">",
        "<line class=\"mark\" x1=\"1\" y1=\"0\" x2=\"1\" y2=\"6\" stroke-width=\"2\"/></pattern>",
        "<pattern id=\"p-unknown\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\">",
        "<circle class=\"dot\" cx=\"2\" cy=\"2\" r=\"1.5\"/></pattern>",
        "</defs></svg>"
    )
}

/// A small sample of a class's colour and pattern.
pub fn swatch(class: Class) -> String {
    let mut out = String::from("<svg viewBox=\"0 0 16 12\" aria-hidden=\"true\">");
    block(class, 0.0, 0.0, 16.0, 12.0, "", &mut out);
    out.push_str("</svg>");
    out
}

/// A bar in a cell: its length is the sum of its parts over the greatest of its column. Negative parts are left
/// out of the drawing, not out of the figure beside it.
pub fn bar(parts: &[(Class, f64)], greatest: f64, words: &str) -> String {
    let mut out = format!(
        "<svg viewBox=\"0 0 100 10\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{0}\"><title>{0}</title>",
        escape(words)
    );
    let mut at = 0.0;
    for (class, value) in parts.iter().filter(|(_, value)| *value > 0.0 && greatest > 0.0) {
        let length = (value / greatest * 100.0).clamp(0.0, 100.0 - at);
        // Plain colour: a stretched pattern would not be recognised, and the words say the same.
        let _ = write!(out, "<rect class=\"{class}\" x=\"{at:.2}\" width=\"{length:.2}\" height=\"10\"/>");
        at += length;
    }
    out.push_str("</svg>");
    out
}

/// A chart, and whether it leaves out ends with next to nothing.
#[derive(Clone, Debug, Default)]
pub struct Chart {
    /// The drawing.
    pub svg: String,
    /// Ends were left out.
    pub is_trimmed: bool,
}

/// Dollars by class over time, stacked; what is negative hangs below the zero line.
pub fn stacked_timeline(rows: &[TimelineRow], currency: &str, zone: &TimeZone) -> Chart {
    let all: Vec<&TimelineRow> = rows.iter().filter(|row| row.currency == currency).collect();
    let Some((from, to)) = drawn_span(&all) else { return Chart::default() };
    let rows: Vec<&TimelineRow> = all.iter().copied().filter(|row| from <= row.from && row.from < to).collect();
    let is_trimmed = rows.len() < all.len();
    let mut up: BTreeMap<i64, f64> = BTreeMap::new();
    let mut down: BTreeMap<i64, f64> = BTreeMap::new();
    for row in &rows {
        let amount = row.amount.to_f64();
        *if amount < 0.0 { &mut down } else { &mut up }.entry(row.from).or_insert(0.0) += amount;
    }
    let highest = up.values().copied().fold(0.0, f64::max);
    let lowest = down.values().copied().fold(0.0, f64::min);
    let step = tick_step(highest - lowest);
    // A few credits need no whole step below zero.
    let bottom = if lowest > -step / 3.0 { lowest } else { (lowest / step).floor() * step };
    let top = ((highest / step).ceil() * step).max(step);
    let scale = Scale { from, to: to.max(from + 1), top, bottom };

    let mut out = format!(
        "<svg viewBox=\"0 0 {CHART_WIDTH} {CHART_HEIGHT}\" role=\"img\" aria-label=\"{}\">",
        escape(&format!("Dollars by class over time, {currency}; the figures stand in the table below"))
    );
    ticks(&scale, step, &mut out);
    let mut heights: BTreeMap<(i64, bool), f64> = BTreeMap::new();
    for class in Class::ALL {
        for row in rows.iter().filter(|row| row.class == *class) {
            let amount = row.amount.to_f64();
            let base = heights.entry((row.from, amount < 0.0)).or_insert(0.0);
            let (start, end) = (*base, *base + amount);
            *base = end;
            let (y, height) = (scale.y(start.max(end)), (scale.y(start.min(end)) - scale.y(start.max(end))).max(0.0));
            let (x, width) = (scale.x(row.from), scale.x(row.to) - scale.x(row.from));
            let gap = if width > 6.0 { 1.5 } else { 0.0 };
            let words = format!("{} {class}: {currency} {}", time_label(row.from, row.to, zone), format_amount(row.amount));
            block(*class, x + gap / 2.0, y, (width - gap).max(0.5), height, &words, &mut out);
        }
    }
    time_labels(&rows, &scale, zone, &mut out);
    out.push_str("</svg>");
    Chart { svg: out, is_trimmed }
}

/// From the first to the last hour or day that is worth drawing.
fn drawn_span(rows: &[&TimelineRow]) -> Option<(i64, i64)> {
    let mut sums: BTreeMap<(i64, i64), f64> = BTreeMap::new();
    for row in rows {
        *sums.entry((row.from, row.to)).or_insert(0.0) += row.amount.to_f64().abs();
    }
    let greatest = sums.values().copied().fold(0.0, f64::max);
    let mut drawn = sums.iter().filter(|(_, sum)| **sum >= greatest * DRAWN_PART_MIN).map(|(span, _)| *span);
    let first = drawn.next()?;
    let last = drawn.next_back().unwrap_or(first);
    Some((first.0, last.1))
}

/// The timeline as rows of `(label, amounts by class in their order)`.
pub fn timeline_table(rows: &[TimelineRow], currency: &str, zone: &TimeZone) -> Vec<(String, Vec<Option<Decimal>>)> {
    let buckets: BTreeSet<(i64, i64)> = rows.iter().filter(|r| r.currency == currency).map(|r| (r.from, r.to)).collect();
    let amount =
        |from: i64, class: Class| rows.iter().find(|r| r.currency == currency && r.from == from && r.class == class).map(|r| r.amount);
    buckets
        .into_iter()
        .map(|(from, to)| (time_label(from, to, zone), Class::ALL.iter().map(|class| amount(from, *class)).collect()))
        .collect()
}

struct Scale {
    from: i64,
    to: i64,
    top: f64,
    bottom: f64,
}

impl Scale {
    fn x(&self, time_ms: i64) -> f64 {
        PLOT_LEFT + (time_ms - self.from) as f64 / (self.to - self.from) as f64 * (PLOT_RIGHT - PLOT_LEFT)
    }

    fn y(&self, amount: f64) -> f64 {
        PLOT_TOP + (self.top - amount) / (self.top - self.bottom) * (PLOT_BOTTOM - PLOT_TOP)
    }
}

/// A coloured block with its class's pattern over it.
fn block(class: Class, x: f64, y: f64, width: f64, height: f64, words: &str, out: &mut String) {
    let place = format!("x=\"{x:.2}\" y=\"{y:.2}\" width=\"{width:.2}\" height=\"{height:.2}\"");
    let title = if words.is_empty() { String::new() } else { format!("<title>{}</title>", escape(words)) };
    let _ = write!(out, "<g>{title}<rect class=\"{class}\" {place}/>");
    if class != Class::Useful {
        let _ = write!(out, "<rect fill=\"url(#p-{class})\" {place}/>");
    }
    out.push_str("</g>");
}

/// 1, 2 or 5 times a power of ten, so that about four steps cover the range.
fn tick_step(range: f64) -> f64 {
    if !range.is_finite() || range <= 0.0 {
        return 1.0;
    }
    let raw = range / TICKS;
    let power = 10f64.powf(raw.log10().floor());
    let digit = raw / power;
    power
        * if digit <= 1.0 {
            1.0
        } else if digit <= 2.0 {
            2.0
        } else if digit <= 5.0 {
            5.0
        } else {
            10.0
        }
}

fn ticks(scale: &Scale, step: f64, out: &mut String) {
    let first = (scale.bottom / step).ceil() as i64;
    let last = (scale.top / step).round() as i64;
    let places = if step >= 1.0 { 0 } else { (-step.log10().floor()).clamp(0.0, 9.0) as usize };
    for at in first..=last {
        let value = at as f64 * step;
        let y = scale.y(value);
        let kind = if at == 0 { "zero" } else { "rule" };
        let label = match places {
            0 => format_amount(Decimal::from_integer(value as i128)).trim_end_matches(".00").to_string(),
            places => format!("{value:.places$}"),
        };
        let _ = write!(
            out,
            "<line class=\"{kind}\" x1=\"{PLOT_LEFT}\" y1=\"{y:.2}\" x2=\"{PLOT_RIGHT}\" y2=\"{y:.2}\"/>\
             <text x=\"{:.2}\" y=\"{:.2}\" text-anchor=\"end\">{label}</text>",
            PLOT_LEFT - 8.0,
            y + 4.0
        );
    }
}

fn time_labels(rows: &[&TimelineRow], scale: &Scale, zone: &TimeZone, out: &mut String) {
    let buckets: Vec<(i64, i64)> = rows.iter().map(|r| (r.from, r.to)).collect::<BTreeSet<_>>().into_iter().collect();
    let mut free_from = PLOT_LEFT;
    for (from, to) in &buckets {
        let x = ((scale.x(*from) + scale.x(*to)) / 2.0).clamp(PLOT_LEFT, PLOT_RIGHT - TIME_LABEL_WIDTH / 2.0 + 4.0);
        if x - TIME_LABEL_WIDTH / 2.0 < free_from - TIME_LABEL_WIDTH / 2.0 {
            continue;
        }
        free_from = x + TIME_LABEL_WIDTH;
        let _ = write!(
            out,
            "<text x=\"{x:.2}\" y=\"{:.2}\" text-anchor=\"middle\">{}</text>",
            PLOT_BOTTOM + 18.0,
            escape(&time_label(*from, *to, zone))
        );
    }
}

/// `2026-10-06` for a day, `10-06 14:00` for an hour, in the report's zone.
fn time_label(from: i64, to: i64, zone: &TimeZone) -> String {
    let Ok(timestamp) = Timestamp::from_millisecond(from) else { return String::new() };
    let local = timestamp.to_zoned_datetime(zone.clone());
    let is_day = to - from > 2 * gpuledger_model::time::HOUR_MS;
    local.strftime(if is_day { "%Y-%m-%d" } else { "%m-%d %H:%M" }).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ticks_are_round_figures() {
        for (range, step) in [(0.0, 1.0), (100.0, 50.0), (39.0, 10.0), (8.0, 2.0), (0.5, 0.2), (f64::NAN, 1.0)] {
            assert!((tick_step(range) - step).abs() < 1e-9, "{range}");
        }
    }

    #[test]
    fn days_and_hours_are_labelled_in_the_zone() {
        let zone = TimeZone::get("Europe/Berlin").unwrap();
        let hour = gpuledger_model::time::HOUR_MS;
        assert_eq!(time_label(0, hour, &zone), "01-01 01:00");
        assert_eq!(time_label(23 * hour, 47 * hour, &zone), "1970-01-02");
    }

    #[test]
    fn a_month_of_tax_does_not_hide_two_days_of_data() {
        let day = gpuledger_model::time::DAY_MS;
        let row = |at: i64, amount: i128| TimelineRow {
            from: at * day,
            to: (at + 1) * day,
            currency: "USD".into(),
            class: Class::Neutral,
            amount: Decimal::from_integer(amount),
        };
        let rows: Vec<TimelineRow> = (0..30).map(|at| row(at, if at == 4 || at == 5 { 1000 } else { 1 })).collect();
        let chart = stacked_timeline(&rows, "USD", &TimeZone::UTC);
        assert!(chart.is_trimmed);
        assert_eq!(chart.svg.matches("<title>").count(), 2);
        assert_eq!(timeline_table(&rows, "USD", &TimeZone::UTC).len(), 30);
        assert!(!stacked_timeline(&rows[4..6], "USD", &TimeZone::UTC).is_trimmed);
    }

    proptest! {
        #[test]
        fn any_amounts_are_drawn_within_the_chart(amounts in prop::collection::vec((any::<i64>(), 0u8..12, 0i64..400), 1..40)) {
            let hour = gpuledger_model::time::HOUR_MS;
            let rows: Vec<TimelineRow> = amounts.into_iter().enumerate().map(|(at, (mantissa, scale, hours))| TimelineRow {
                from: hours * hour,
                to: (hours + 1) * hour,
                currency: "USD".into(),
                class: Class::ALL[at % Class::ALL.len()],
                amount: Decimal { mantissa: i128::from(mantissa), scale },
            }).collect();
            let text = stacked_timeline(&rows, "USD", &TimeZone::UTC).svg;
            prop_assert!(!text.contains("NaN") && !text.contains("inf") && text.len() < 200_000);
        }
    }
}
