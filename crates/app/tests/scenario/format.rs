//! Reads a scenario file into sections; knows times, ranges, options and tables, and nothing of what they mean.

use std::collections::BTreeMap;

use gpuledger_model::time::{DAY_MS, HOUR_MS, MINUTE_MS, parse_time};
use jiff::tz::TimeZone;

/// A mistake in a scenario file, with its line.
#[derive(Debug)]
pub struct Mistake {
    pub line: usize,
    pub message: String,
}

pub type Read<T> = Result<T, Mistake>;

/// A mistake at a line.
pub fn mistake<T>(line: usize, message: impl Into<String>) -> Read<T> {
    Err(Mistake { line, message: message.into() })
}

/// One line of a section.
#[derive(Clone, Debug)]
pub struct Line {
    pub number: usize,
    pub text: String,
}

/// One section.
#[derive(Clone, Debug)]
pub struct Section {
    /// `telemetry`, `expect postings` ...
    pub name: String,
    /// What stands behind the name.
    pub head: String,
    /// The `key=value` words of the head.
    pub options: BTreeMap<String, String>,
    /// Line of the head.
    pub line: usize,
    /// The lines, comments and blank lines removed (but in `file`).
    pub lines: Vec<Line>,
}

/// A scenario as it stands in its file.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub day_ms: i64,
    pub sections: Vec<Section>,
}

const SECTIONS: &[&str] = &[
    "telemetry",
    "kubernetes",
    "sacct",
    "scontrol job",
    "scontrol node",
    "inventory",
    "prices",
    "owners",
    "mapping",
    "bill",
    "file",
    "options",
    "expect postings",
    "expect closing",
    "expect totals",
    "expect findings",
    "expect rejects",
    "expect no rejects",
    "expect same",
    "expect report",
    "expect bills",
];

/// Reads the text of a scenario file.
pub fn read(text: &str) -> Read<Scenario> {
    let mut scenario = Scenario { day_ms: day(1, "2026-10-06")?, sections: Vec::new() };
    for (at, line) in text.lines().enumerate() {
        let number = at + 1;
        if let Some(head) = line.strip_prefix("==") {
            let head = head.trim();
            if let Some(date) = head.strip_prefix("day ") {
                scenario.day_ms = day(number, date.trim())?;
                continue;
            }
            let Some(name) = SECTIONS.iter().filter(|name| starts_with_words(head, name)).max_by_key(|name| name.len()) else {
                return mistake(number, format!("unknown section `{head}`"));
            };
            let rest = head[name.len()..].trim().to_string();
            let mut options = BTreeMap::new();
            for word in words(&rest) {
                if let Some((key, value)) = word.split_once('=') {
                    options.insert(key.to_string(), value.to_string());
                }
            }
            scenario.sections.push(Section { name: name.to_string(), head: rest, options, line: number, lines: Vec::new() });
            continue;
        }
        let Some(section) = scenario.sections.last_mut() else {
            if line.starts_with('#') || line.trim().is_empty() {
                continue;
            }
            return mistake(number, "text before the first section; comments start with `#`");
        };
        let is_raw = section.name == "file";
        if is_raw || !(line.starts_with('#') || line.trim().is_empty()) {
            section.lines.push(Line { number, text: line.to_string() });
        }
    }
    if !scenario.sections.iter().any(|section| section.name.starts_with("expect")) {
        return mistake(0, "nothing is expected");
    }
    Ok(scenario)
}

impl Scenario {
    /// `09:00`, `33:00:07.250` on the scenario's day, or RFC 3339.
    pub fn time(&self, line: usize, text: &str) -> Read<i64> {
        let text = text.trim();
        if text.len() > 9 && text.as_bytes()[4] == b'-' {
            return parse_time(text, &TimeZone::UTC).map_or_else(|| mistake(line, format!("`{text}` is no time")), Ok);
        }
        let parts: Vec<&str> = text.split(':').collect();
        let number = |text: &str| text.parse::<i64>().ok().filter(|_| text.len() >= 2);
        let read = || -> Option<i64> {
            let (hours, minutes, seconds) = match parts.as_slice() {
                [hours, minutes] => (number(hours)?, number(minutes)?, "00"),
                [hours, minutes, seconds] => (number(hours)?, number(minutes)?, *seconds),
                _ => return None,
            };
            let (whole, fraction) = seconds.split_once('.').unwrap_or((seconds, "0"));
            let milliseconds = format!("{fraction:0<3}").parse::<i64>().ok().filter(|_| fraction.len() <= 3)?;
            Some(hours * HOUR_MS + minutes * MINUTE_MS + number(whole)? * 1000 + milliseconds)
        };
        match read() {
            Some(offset) => Ok(self.day_ms + offset),
            None => mistake(line, format!("`{text}` is no time")),
        }
    }

    /// `09:00..09:30`, or a date for its whole day.
    pub fn range(&self, line: usize, text: &str) -> Read<(i64, i64)> {
        match text.split_once("..") {
            Some((from, to)) => {
                let range = (self.time(line, from)?, self.time(line, to)?);
                if range.0 >= range.1 {
                    return mistake(line, format!("`{text}` is empty"));
                }
                Ok(range)
            }
            None => {
                let from = day(line, text.trim())?;
                Ok((from, from + DAY_MS))
            }
        }
    }
}

fn day(line: usize, text: &str) -> Read<i64> {
    match parse_time(text, &TimeZone::UTC) {
        Some(day) if text.len() == 10 => Ok(day),
        _ => mistake(line, format!("`{text}` is no date like 2026-10-06")),
    }
}

fn starts_with_words(head: &str, name: &str) -> bool {
    head.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
}

/// Words parted by blanks; double or single quotes hold blanks together and are dropped.
pub fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut quote = None;
    let mut is_open = false;
    for c in text.chars() {
        match c {
            '"' | '\'' if quote.is_none() => {
                quote = Some(c);
                is_open = true;
            }
            c if quote == Some(c) => quote = None,
            c if c.is_whitespace() && quote.is_none() => {
                if is_open {
                    words.push(std::mem::take(&mut word));
                    is_open = false;
                }
            }
            c => {
                word.push(c);
                is_open = true;
            }
        }
    }
    if is_open {
        words.push(word);
    }
    words
}

/// The `key=value` words of a line, and the others in order.
pub fn fields(text: &str) -> (Vec<String>, Vec<(String, String)>) {
    let mut plain = Vec::new();
    let mut pairs = Vec::new();
    for word in words(text) {
        match word.split_once('=') {
            Some((key, value)) => pairs.push((key.to_string(), value.to_string())),
            None => plain.push(word),
        }
    }
    (plain, pairs)
}

/// The cells of a table row; `-` and nothing are null.
pub fn cells(text: &str) -> Vec<Option<String>> {
    text.split('|')
        .map(|cell| match cell.trim() {
            "" | "-" => None,
            cell => Some(cell.to_string()),
        })
        .collect()
}
