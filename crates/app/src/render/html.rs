//! The report as one page that stands alone: no outside address, no script, readable on paper and on a phone.

use std::fmt::Write;

use gpuledger_model::cause::Class;
use gpuledger_model::money::Decimal;
use gpuledger_model::time::format_rfc3339;
use jiff::tz::TimeZone;

use super::amount::{format_amount, format_count, format_quantity, format_share, harmless};
use super::{svg, view};
use crate::report::{FindingRow, Report};

const STYLE: &str = include_str!("page.css");

/// Groups that are shown; the others stand in the JSON form.
const GROUPS_MAX: usize = 50;
/// Rows of lists about the inputs.
const LIST_ROWS_MAX: usize = 40;

/// The whole page.
pub fn render(report: &Report) -> String {
    let zone = TimeZone::get(&report.timezone).unwrap_or(TimeZone::UTC);
    let mut out = String::with_capacity(64 * 1024);
    let _ = write!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\
         <meta name=\"referrer\" content=\"no-referrer\">\
         <title>GPU Ledger{}</title><style>\n{STYLE}</style></head>\n<body>{}",
        if report.simulated { " (simulated data)" } else { "" },
        svg::pattern_definitions()
    );
    header(report, &mut out);
    out.push_str("<main>\n");
    unknown(report, &mut out);
    proof(report, &mut out);
    timeline(report, &zone, &mut out);
    causes(report, &mut out);
    groups(report, &mut out);
    findings(report, &mut out);
    energy(report, &mut out);
    inputs(report, &mut out);
    notes(report, &mut out);
    let _ = write!(
        out,
        "</main>\n<footer><p>Amounts are rounded here, once, for reading; the JSON form has every digit. \
         Days begin in {}; times are UTC. Schema {}.</p></footer>\n</body></html>\n",
        escape(&report.timezone),
        report.schema
    );
    out
}

/// Text from outside, for element content and attribute values.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in harmless(text).chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
    out
}

fn header(report: &Report, out: &mut String) {
    out.push_str("<header><h1>GPU Ledger: where every dollar went</h1>");
    let _ = match (report.window.from, report.window.to) {
        (Some(from), Some(to)) => {
            write!(out, "<p class=\"quiet\">{} to {}</p>", format_rfc3339(from), format_rfc3339(to))
        }
        _ => write!(out, "<p class=\"quiet\">No postings.</p>"),
    };
    if let Some(filter) = &report.filter {
        let _ = write!(out, "<p>Filter: <code>{}</code></p>", escape(filter));
    }
    if report.simulated {
        out.push_str("<p class=\"banner\" role=\"note\">Simulated data. No figure on this page is about a real fleet or a real bill.</p>");
    }
    let classes = report.classes();
    for total in &report.totals {
        let currency = escape(&total.currency);
        let _ = write!(
            out,
            "<ul class=\"cards\"><li><span class=\"what\">total</span><span class=\"figure\">{currency} {}</span>\
             <span class=\"what\">effective cost</span></li>",
            format_amount(total.amount)
        );
        for (_, class, amount, share) in classes.iter().filter(|row| row.0 == total.currency) {
            let _ = write!(
                out,
                "<li><span class=\"what class\">{}{class}</span><span class=\"figure\">{}</span><span class=\"what\">{}</span></li>",
                svg::swatch(*class),
                format_amount(*amount),
                format_share(*share)
            );
        }
        out.push_str("</ul>");
    }
    out.push_str("</header>\n");
}

fn unknown(report: &Report, out: &mut String) {
    out.push_str("<section class=\"box\"><h2>What is not known</h2>");
    let rows = report.unknown.iter().map(|row| {
        vec![
            Cell::Named(row.what.to_string(), view::unknown_meaning(row.what)),
            Cell::Word(row.currency.clone()),
            Cell::Figure(format_amount(row.amount)),
            Cell::Figure(format_share(row.share)),
        ]
    });
    table("What is not known", &["what", "", "amount#", "share#"], rows, out);
    out.push_str("</section>\n");
}

fn proof(report: &Report, out: &mut String) {
    out.push_str(
        "<section><h2>Proof: postings = bill</h2>\
         <p class=\"quiet\">Per scope and currency, whatever the window and filter show. The difference is never rounded.</p>",
    );
    let rows = report.closing.iter().map(|row| {
        vec![
            Cell::Head(row.scope.clone()),
            Cell::Word(row.currency.clone()),
            Cell::Figure(format_amount(row.bill)),
            Cell::Figure(format_amount(row.posted)),
            Cell::Figure(row.difference.normalized().to_string()),
            Cell::Word(row.state.clone()),
        ]
    });
    table("Proof: postings = bill", &["scope", "", "bill#", "posted#", "difference#", "state"], rows, out);
    out.push_str("</section>\n");
}

fn timeline(report: &Report, zone: &TimeZone, out: &mut String) {
    if report.timeline.is_empty() {
        return;
    }
    out.push_str("<section><h2>Dollars by class over time</h2><ul class=\"legend\">");
    for class in Class::ALL {
        let _ = write!(out, "<li>{}{class}: {}</li>", svg::swatch(*class), view::class_meaning(*class));
    }
    out.push_str("</ul>");
    for total in &report.totals {
        let currency = escape(&total.currency);
        let _ =
            write!(out, "<h3>{currency}</h3><div class=\"chart scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Chart, {currency}\">");
        let chart = svg::stacked_timeline(&report.timeline, &total.currency, zone);
        out.push_str(&chart.svg);
        out.push_str("</div>");
        if chart.is_trimmed {
            out.push_str(
                "<p class=\"quiet\">Before and after what is drawn lies less than 1 % of the greatest bar each; the figures have it.</p>",
            );
        }
        out.push_str("<details><summary>The figures of this chart</summary>");
        let mut columns = vec![format!("from ({})", report.timezone)];
        columns.extend(Class::ALL.iter().map(|class| format!("{class}#")));
        let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
        let rows = svg::timeline_table(&report.timeline, &total.currency, zone).into_iter().map(|(label, amounts)| {
            let mut cells = vec![Cell::Head(label)];
            cells.extend(amounts.into_iter().map(|amount| Cell::Figure(amount.map(format_amount).unwrap_or_default())));
            cells
        });
        table(&format!("Dollars by class over time, {}", total.currency), &columns, rows, out);
        out.push_str("</details>");
    }
    out.push_str("</section>\n");
}

fn causes(report: &Report, out: &mut String) {
    let causes = view::causes_over_parts(report);
    out.push_str("<section><h2>Dollars by cause</h2>");
    for total in &report.totals {
        let of_currency = || causes.iter().filter(|row| row.currency == total.currency);
        let greatest = of_currency().map(|row| row.amount.to_f64().abs()).fold(0.0, f64::max);
        let rows = of_currency().map(|row| {
            vec![
                Cell::Named(row.cause.to_string(), view::cause_meaning(row.cause)),
                Cell::Class(row.cause.class()),
                Cell::Figure(format_amount(row.amount)),
                Cell::Figure(format_share(row.share)),
                Cell::Bar(vec![(row.cause.class(), row.amount)], greatest),
                Cell::Figure(format_quantity(row.device_seconds / 3_600.0)),
                Cell::Figure(confidence_text(row.amount, &row.confidence)),
            ]
        });
        let title = format!("Dollars by cause, {}", total.currency);
        let columns = ["cause", "class", "amount#", "share#", "", "device hours#", "confidence#"];
        let _ = write!(out, "<h3>{}</h3>", escape(&total.currency));
        table(&title, &columns, rows, out);
    }
    out.push_str("<p class=\"quiet\">Confidence: per cent of the amount at high / medium / low confidence.</p></section>\n");
}

/// `100 / 0 / 0`: shares of high, medium and low. A sum with negative parts may pass 100.
fn confidence_text(amount: Decimal, parts: &crate::report::ConfidenceAmounts) -> String {
    if amount.is_zero() {
        return "-".to_string();
    }
    let of = |part: Decimal| (part.to_f64() / amount.to_f64() * 100.0).round() as i64;
    format!("{} / {} / {}", of(parts.high), of(parts.medium), of(parts.low))
}

fn groups(report: &Report, out: &mut String) {
    let title = format!("Dollars by {}", report.by.join(" and "));
    let _ = write!(out, "<section><h2>{}</h2><p class=\"quiet\">Bars: amounts by class, in the colours above.</p>", escape(&title));
    let mut columns: Vec<&str> = report.by.iter().map(String::as_str).collect();
    columns.extend(["", "amount#", "share#", "", "kWh#", "largest waste", "amount#"]);
    let greatest =
        |currency: &str| report.groups.iter().filter(|g| g.currency == currency).map(|g| g.amount.to_f64().abs()).fold(0.0, f64::max);
    let rows = report.groups.iter().take(GROUPS_MAX).map(|row| {
        let mut cells: Vec<Cell> = row.key.0.iter().map(|(_, value)| Cell::Head(value.clone())).collect();
        let waste = view::largest_waste(row);
        cells.extend([
            Cell::Word(row.currency.clone()),
            Cell::Figure(format_amount(row.amount)),
            Cell::Figure(format_share(row.share)),
            Cell::Bar(view::classes_of_group(row), greatest(&row.currency)),
            Cell::Figure(format_quantity(row.energy_kwh)),
            Cell::Word(waste.map_or(String::new(), |w| w.cause.to_string())),
            Cell::Figure(waste.map_or(String::new(), |w| format_amount(w.amount))),
        ]);
        cells
    });
    table(&title, &columns, rows, out);
    more(report.groups.len().saturating_sub(GROUPS_MAX), "groups", out);
    out.push_str("</section>\n");
}

fn findings(report: &Report, out: &mut String) {
    out.push_str("<section><h2>The most expensive findings</h2>");
    let priced = view::top_findings(report);
    if priced.is_empty() {
        out.push_str("<p>None from 15 minutes and 1 unit of currency up.</p>");
    }
    out.push_str("<ol class=\"findings\">");
    for finding in &priced {
        finding_item(finding, out);
    }
    out.push_str("</ol>");
    more(report.findings.iter().filter(|f| f.amount.is_some()).count() - priced.len(), "findings with an amount", out);

    let about_data: Vec<&FindingRow> = report.findings.iter().filter(|f| f.amount.is_none()).collect();
    if !about_data.is_empty() || !report.notices.is_empty() {
        let lines = about_data
            .iter()
            .map(|f| (f.kind.as_str(), f.subject.as_str(), f.evidence.as_str()))
            .chain(report.notices.iter().map(|n| (n.kind.as_str(), n.subject.as_str(), n.message.as_str())));
        out.push_str("<h3>About the data</h3><ul class=\"plain\">");
        for (kind, subject, words) in lines.take(LIST_ROWS_MAX) {
            let _ = write!(out, "<li><strong>{}</strong> {}: {}</li>", escape(kind), escape(subject), escape(words));
        }
        out.push_str("</ul>");
        more((about_data.len() + report.notices.len()).saturating_sub(LIST_ROWS_MAX), "lines about the data", out);
    }
    out.push_str("</section>\n");
}

fn finding_item(finding: &FindingRow, out: &mut String) {
    let cause = finding.cause.map_or(finding.kind.clone(), |cause| cause.to_string());
    let _ = write!(
        out,
        "<li><h3><span>{} {}</span><span>{}</span><span class=\"subject\">{}</span></h3><dl>",
        escape(finding.currency.as_deref().unwrap_or_default()),
        finding.amount.map(format_amount).unwrap_or_default(),
        escape(&cause),
        escape(&finding.subject)
    );
    let confidence = format!("{}, by rule {}", finding.confidence, finding.rule);
    for (name, words) in [
        ("when", view::span_text(finding.from, finding.to)),
        ("evidence", finding.evidence.clone()),
        ("would change the verdict", finding.would_change.clone()),
        ("confidence", confidence),
        ("id", finding.id.clone()),
    ] {
        let _ = write!(out, "<dt>{name}</dt><dd>{}</dd>", escape(&words));
    }
    out.push_str("</dl></li>");
}

fn energy(report: &Report, out: &mut String) {
    let _ = write!(out, "<section><h2>Energy</h2><p>{} kWh measured on the boards.</p>", format_quantity(report.energy_kwh));
    let rows = view::energy_by_class(report).into_iter().map(|(class, kwh)| vec![Cell::Class(class), Cell::Figure(format_quantity(kwh))]);
    out.push_str("<div class=\"narrow\">");
    table("Energy by class", &["class", "kWh#"], rows, out);
    out.push_str("</div>");
    out.push_str("</section>\n");
}

fn inputs(report: &Report, out: &mut String) {
    out.push_str("<section><h2>Inputs</h2>");
    let rows = report.inputs.iter().take(LIST_ROWS_MAX).map(|row| {
        vec![
            Cell::Head(row.path.clone()),
            Cell::Word(row.kind.clone()),
            Cell::Figure(format_count(row.rows)),
            Cell::Figure(format_count(row.rejects)),
        ]
    });
    table("What was read", &["path", "kind", "rows#", "rejects#"], rows, out);
    more(report.inputs.len().saturating_sub(LIST_ROWS_MAX), "files", out);
    if !report.invoices.is_empty() {
        out.push_str("<h3>Invoices: BilledCost, the cash book</h3>");
        let rows = report.invoices.iter().take(LIST_ROWS_MAX).map(|row| {
            vec![
                Cell::Head(row.invoice.clone().unwrap_or_else(|| "without a number".to_string())),
                Cell::Word(row.scope.clone()),
                Cell::Word(row.currency.clone()),
                Cell::Figure(format_amount(row.billed)),
            ]
        });
        table("Invoices", &["invoice", "scope", "", "billed#"], rows, out);
        more(report.invoices.len().saturating_sub(LIST_ROWS_MAX), "invoices", out);
    }
    if !report.rejects.is_empty() {
        out.push_str("<h3>Refused</h3><ul class=\"plain\">");
        for reject in report.rejects.iter().take(LIST_ROWS_MAX) {
            let _ = write!(out, "<li>{}</li>", escape(&view::reject_text(reject)));
        }
        out.push_str("</ul>");
        more(report.rejects.len().saturating_sub(LIST_ROWS_MAX), "refusals", out);
    }
    out.push_str("</section>\n");
}

fn notes(report: &Report, out: &mut String) {
    out.push_str("<section><h2>Notes</h2><ul class=\"plain\">");
    for note in &report.notes {
        let _ = write!(out, "<li>{}</li>", escape(note));
    }
    out.push_str("</ul></section>\n");
}

fn more(hidden: usize, what: &str, out: &mut String) {
    if hidden > 0 {
        let _ = write!(out, "<p class=\"quiet\">And {} more {what} in the JSON form.</p>", format_count(hidden as u64));
    }
}

/// A cell of a table, by what it holds.
enum Cell {
    Head(String),
    Word(String),
    /// A name, and under it what it means.
    Named(String, &'static str),
    Figure(String),
    Class(Class),
    /// Amounts by class, and the greatest sum of the column.
    Bar(Vec<(Class, Decimal)>, f64),
}

/// A table in a region that scrolls sideways on narrow screens. A column whose name ends in `#` holds figures.
fn table(title: &str, columns: &[&str], rows: impl Iterator<Item = Vec<Cell>>, out: &mut String) {
    let mut rows = rows.peekable();
    if rows.peek().is_none() {
        out.push_str("<p class=\"quiet\">Nothing to show.</p>");
        return;
    }
    let _ = write!(out, "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{}\"><table><thead><tr>", escape(title));
    for column in columns {
        let _ = match column.strip_suffix('#') {
            Some(name) => write!(out, "<th scope=\"col\" class=\"figure\">{}</th>", escape(name)),
            None if column.is_empty() => write!(out, "<td></td>"),
            None => write!(out, "<th scope=\"col\">{}</th>", escape(column)),
        };
    }
    out.push_str("</tr></thead><tbody>\n");
    for row in rows {
        out.push_str("<tr>");
        let mut is_first = true;
        for cell in row {
            let _ = match cell {
                Cell::Head(text) if is_first => write!(out, "<th scope=\"row\" class=\"name\">{}</th>", escape(&text)),
                Cell::Head(text) => write!(out, "<td class=\"name\">{}</td>", escape(&text)),
                Cell::Word(text) => write!(out, "<td>{}</td>", escape(&text)),
                Cell::Named(name, meaning) => {
                    write!(out, "<th scope=\"row\" class=\"named\">{}<small>{}</small></th>", escape(&name), escape(meaning))
                }
                Cell::Figure(text) => write!(out, "<td class=\"figure\">{}</td>", escape(&text)),
                Cell::Class(class) => write!(out, "<td class=\"class\">{}{class}</td>", svg::swatch(class)),
                Cell::Bar(parts, greatest) => {
                    let words: Vec<String> = parts.iter().map(|(class, amount)| format!("{class} {}", format_amount(*amount))).collect();
                    let lengths: Vec<(Class, f64)> = parts.iter().map(|(class, amount)| (*class, amount.to_f64())).collect();
                    write!(out, "<td class=\"bar\">{}</td>", svg::bar(&lengths, greatest, &words.join(", ")))
                }
            };
            is_first = false;
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_from_outside_cannot_leave_its_place() {
        assert_eq!(escape("<b a='\"'>&\u{1b}"), "&lt;b a=&#39;&quot;&#39;&gt;&amp;\u{fffd}");
    }
}
