//! Reads exposition text line by line: a bad line costs that line.

use std::io::BufRead;

use super::collected::{Counts, Rejects};
use super::gate::Reason;
use super::intake::{Intake, LabelSetId};
use super::labels::Labels;
use super::names::NameTable;
use super::number::Number;

/// One exposition text.
#[derive(Clone, Copy, Debug)]
pub struct Scrape<'a> {
    /// The target's name: the folder, or the file without its time.
    pub target: &'a str,
    /// The scrape's time for lines without one, UTC ms.
    pub time_ms: Option<i64>,
}

/// A longer line is refused and skipped, so that memory stays bounded.
pub const LINE_LIMIT_BYTES: usize = 1 << 20;
/// Prometheus' own default bound is none; real rows have about thirty.
const LABEL_LIMIT: usize = 256;
/// Larger timestamps are milliseconds (as seconds: the year 5138), smaller are seconds (as milliseconds: 1973).
const SMALLEST_MILLISECONDS: f64 = 1e11;

/// Reads a text to its end, or to where it breaks off: what was read stays, and a reject says where.
pub fn read_exposition(mut reader: impl BufRead, scrape: Scrape<'_>, intake: &mut Intake, rejects: &mut Rejects) -> Counts {
    let mut parser = Parser { scrape, intake, rejects, counts: Counts::default(), line: 0 };
    parser.intake.begin_scrape();
    let mut carry: Vec<u8> = Vec::new();
    let mut is_skipping = false;
    loop {
        let buffer = match reader.fill_buf() {
            Ok([]) => break,
            Ok(buffer) => buffer,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => {
                // The last line may be cut within its number.
                carry.clear();
                let reason = format!("input ends early ({error}); what came before was read, get the file again for the rest");
                parser.rejects.add_text(parser.line + 1, "", &reason);
                break;
            }
        };
        let length = buffer.len();
        let mut rest = buffer;
        while let Some(end) = memchr::memchr(b'\n', rest) {
            let (line, after) = (rest.get(..end).unwrap_or_default(), rest.get(end + 1..).unwrap_or_default());
            rest = after;
            if is_skipping {
                is_skipping = false;
                parser.line += 1;
                parser.refuse("", Reason::LineTooLong);
            } else if carry.is_empty() && line.len() <= LINE_LIMIT_BYTES {
                parser.read_line(line);
            } else {
                carry.extend_from_slice(line);
                let whole = std::mem::take(&mut carry);
                parser.read_line(&whole);
                carry = whole;
                carry.clear();
            }
        }
        if !is_skipping {
            carry.extend_from_slice(rest);
            if carry.len() > LINE_LIMIT_BYTES {
                carry = Vec::new();
                is_skipping = true;
            }
        }
        reader.consume(length);
    }
    if is_skipping {
        parser.line += 1;
        parser.refuse("", Reason::LineTooLong);
    } else if !carry.is_empty() {
        parser.read_line(&carry);
    }
    let counts = parser.counts;
    intake.end_scrape(scrape.target, scrape.time_ms);
    counts
}

/// Whether a line reads as a sample of any metric: a name, then labels or a number.
pub fn is_sample_line(line: &[u8]) -> bool {
    let line = trim_start(line.strip_suffix(b"\r").unwrap_or(line));
    match split_name(line) {
        Some((name, rest)) if !name.is_empty() && std::str::from_utf8(line).is_ok() => match rest.split_first() {
            Some((b'{', labels)) => labels.first() == Some(&b'}') || memchr::memmem::find(labels, b"=\"").is_some(),
            _ => name.contains(['_', ':']) && read_value(rest).is_ok(),
        },
        _ => false,
    }
}

struct Parser<'a> {
    scrape: Scrape<'a>,
    intake: &'a mut Intake,
    rejects: &'a mut Rejects,
    counts: Counts,
    line: u64,
}

/// Labels of a line as found.
enum Found<'t> {
    Known(LabelSetId),
    /// Their text, and the names and values read from it.
    New(&'t [u8], Vec<(String, String)>),
}

fn labels_of(pairs: &[(String, String)]) -> Labels {
    Labels::new(pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())))
}

impl Parser<'_> {
    fn read_line(&mut self, line: &[u8]) {
        self.line += 1;
        let mut line = line.strip_suffix(b"\r").unwrap_or(line);
        if self.line == 1 {
            line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        }
        let line = trim_start(line);
        match line.first() {
            None | Some(b'#') => return,
            _ if line.len() > LINE_LIMIT_BYTES => return self.refuse("", Reason::LineTooLong),
            _ => {}
        }
        if std::str::from_utf8(line).is_err() {
            return self.refuse("", Reason::NotUtf8);
        }
        let (name, rest) = match split_name(line) {
            Some(split) => split,
            None => return self.refuse("", Reason::MalformedName),
        };
        let table = NameTable::get();
        let metric = table.lookup(name);
        if metric.is_none() && !name.is_empty() {
            return self.pass_unmapped(name, rest);
        }
        let (found, after) = match rest.split_first() {
            Some((b'{', text)) => match self.find_labels(text) {
                Ok(found) => found,
                Err(reason) => return self.refuse(name, reason),
            },
            _ => match self.intake.known_labels(self.scrape.target, b"") {
                Some(set) => (Found::Known(set), rest),
                None => (Found::New(&b""[..], Vec::new()), rest),
            },
        };
        let (metric, set) = match (metric, found) {
            (Some(metric), Found::Known(set)) => (metric, set),
            (Some(metric), Found::New(text, pairs)) => (metric, self.intake.remember_labels(self.scrape.target, text, labels_of(&pairs))),
            (None, Found::Known(_)) => return self.refuse("", Reason::MalformedName),
            // `{"name", label="value"}`: the name stands among the labels.
            (None, Found::New(_, mut pairs)) => {
                let Some(at) = pairs.iter().position(|pair| pair.0.is_empty()) else {
                    return self.refuse("", Reason::MalformedName);
                };
                let name = pairs.swap_remove(at).1;
                let Some(metric) = table.lookup(&name) else { return self.pass_value(&name, after) };
                (metric, self.intake.add_labels(self.scrape.target, labels_of(&pairs)))
            }
        };
        let name = table.name(metric);
        let (number, time_ms) = match read_value(after) {
            Ok(value) => value,
            Err(reason) => return self.refuse(name, reason),
        };
        let Some(time_ms) = time_ms.or(self.scrape.time_ms) else {
            return self.refuse(name, Reason::NoTimestamp);
        };
        match self.intake.sample(set, metric, time_ms, &number) {
            Ok(true) => {
                self.counts.samples += 1;
                self.counts.accepted += 1;
            }
            Ok(false) => {
                self.counts.samples += 1;
                self.counts.unmapped += 1;
            }
            Err(reason) => self.refuse(name, reason),
        }
    }

    /// A metric that feeds nothing still has to be a sample, with labels that can be read.
    fn pass_unmapped(&mut self, name: &str, rest: &[u8]) {
        let after = match rest.split_first() {
            Some((b'{', text)) => match self.find_labels(text) {
                Ok((_, after)) => after,
                Err(reason) => return self.refuse(name, reason),
            },
            _ => rest,
        };
        self.pass_value(name, after);
    }

    fn pass_value(&mut self, name: &str, after: &[u8]) {
        match read_value(after) {
            Ok(_) => {
                self.counts.samples += 1;
                self.counts.unmapped += 1;
            }
            Err(reason) => self.refuse(name, reason),
        }
    }

    /// The labels after `{`, and what follows `}`.
    fn find_labels<'t>(&mut self, text: &'t [u8]) -> Result<(Found<'t>, &'t [u8]), Reason> {
        let after = |end: usize| text.get(end + 1..).unwrap_or_default();
        // Reading goes from left to right, so a text that once ended at its first `}` always does.
        if let Some(end) = memchr::memchr(b'}', text)
            && let Some(set) = self.intake.known_labels(self.scrape.target, text.get(..end).unwrap_or_default())
        {
            return Ok((Found::Known(set), after(end)));
        }
        let mut pairs = Vec::new();
        let end = parse_labels(text, &mut pairs)?;
        let head = text.get(..end).unwrap_or_default();
        match self.intake.known_labels(self.scrape.target, head) {
            Some(set) => Ok((Found::Known(set), after(end))),
            None => Ok((Found::New(head, pairs), after(end))),
        }
    }

    fn refuse(&mut self, field: &str, reason: Reason) {
        self.counts.samples += 1;
        self.counts.rejected += 1;
        self.rejects.add(self.line, field, reason);
    }
}

fn trim_start(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = text {
        text = rest;
    }
    text
}

/// The name and what follows it; an empty name before `{` is the quoted form.
fn split_name(line: &[u8]) -> Option<(&str, &[u8])> {
    let end = line.iter().position(|b| matches!(b, b'{' | b' ' | b'\t')).unwrap_or(line.len());
    let (name, rest) = (line.get(..end)?, line.get(end..)?);
    let is_name = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b':' | b'.');
    if !name.iter().all(is_name) || name.first().is_some_and(u8::is_ascii_digit) || name.len() > 1_024 {
        return None;
    }
    if name.is_empty() && rest.first() != Some(&b'{') {
        return None;
    }
    let rest = trim_start(rest);
    Some((std::str::from_utf8(name).ok()?, rest))
}

/// Parses `name="value",...}`; the position of the brace.
fn parse_labels(text: &[u8], pairs: &mut Vec<(String, String)>) -> Result<usize, Reason> {
    let mut at = 0usize;
    let blank = |at: &mut usize| {
        while matches!(text.get(*at), Some(b' ' | b'\t')) {
            *at += 1;
        }
    };
    loop {
        blank(&mut at);
        match text.get(at) {
            None => return Err(Reason::MalformedLabels),
            Some(b'}') => return Ok(at),
            Some(b'.') => return Err(Reason::ElidedLabels),
            Some(b'"') => {
                let quoted = parse_quoted(text, &mut at)?;
                blank(&mut at);
                if text.get(at) == Some(&b'=') {
                    at += 1;
                    blank(&mut at);
                    let value = parse_quoted(text, &mut at)?;
                    push_pair(pairs, quoted, value)?;
                } else {
                    push_pair(pairs, String::new(), quoted)?;
                }
            }
            Some(_) => {
                let start = at;
                while text.get(at).is_some_and(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b':' | b'.' | b'-')) {
                    at += 1;
                }
                let name = text.get(start..at).unwrap_or_default();
                blank(&mut at);
                if name.is_empty() || text.get(at) != Some(&b'=') {
                    return Err(Reason::MalformedLabels);
                }
                at += 1;
                blank(&mut at);
                let name = String::from_utf8_lossy(name).into_owned();
                let value = parse_quoted(text, &mut at)?;
                push_pair(pairs, name, value)?;
            }
        }
        blank(&mut at);
        match text.get(at) {
            Some(b',') => at += 1,
            Some(b'}') => return Ok(at),
            _ => return Err(Reason::MalformedLabels),
        }
    }
}

fn push_pair(pairs: &mut Vec<(String, String)>, name: String, value: String) -> Result<(), Reason> {
    if pairs.len() >= LABEL_LIMIT {
        return Err(Reason::TooManyLabels);
    }
    if pairs.iter().any(|pair| pair.0 == name) {
        return Err(Reason::RepeatedLabel);
    }
    pairs.push((name, value));
    Ok(())
}

/// A quoted text with its escapes, from its opening quote.
fn parse_quoted(text: &[u8], at: &mut usize) -> Result<String, Reason> {
    if text.get(*at) != Some(&b'"') {
        return Err(Reason::MalformedLabels);
    }
    *at += 1;
    let mut value = Vec::new();
    loop {
        let rest = text.get(*at..).unwrap_or_default();
        let Some(end) = memchr::memchr2(b'"', b'\\', rest) else { return Err(Reason::MalformedLabels) };
        value.extend_from_slice(rest.get(..end).unwrap_or_default());
        *at += end + 1;
        if rest.get(end) == Some(&b'"') {
            return String::from_utf8(value).map_err(|_| Reason::NotUtf8);
        }
        match text.get(*at) {
            Some(b'n') => value.push(b'\n'),
            Some(byte @ (b'"' | b'\\')) => value.push(*byte),
            // Exporters that do not escape write lone backslashes.
            Some(byte) => value.extend_from_slice(&[b'\\', *byte]),
            None => return Err(Reason::MalformedLabels),
        }
        *at += 1;
    }
}

/// Value and optional timestamp; an exemplar after `#` is passed over.
fn read_value(text: &[u8]) -> Result<(Number, Option<i64>), Reason> {
    let text = match memchr::memchr(b'#', text) {
        Some(end) => text.get(..end).unwrap_or_default(),
        None => text,
    };
    let mut words = text.split(|b| matches!(b, b' ' | b'\t')).filter(|word| !word.is_empty());
    let value = words.next().ok_or(Reason::NoValue)?;
    let number = Number::parse(value).ok_or(Reason::TextValue)?;
    let Some(word) = words.next() else { return Ok((number, None)) };
    if words.next().is_some() {
        return Err(Reason::MalformedTimestamp);
    }
    match Number::parse(word) {
        Some(Number::Finite(time)) => {
            let magnitude = time.mantissa as f64 * 10f64.powi(time.exponent);
            let power = if magnitude >= SMALLEST_MILLISECONDS { 0 } else { 3 };
            let time_ms = time.times_power_of_ten(power).ok_or(Reason::MalformedTimestamp)?;
            if time_ms.abs() > LARGEST_TIME_MS {
                return Err(Reason::MalformedTimestamp);
            }
            Ok((number, Some(time_ms)))
        }
        _ => Err(Reason::MalformedTimestamp),
    }
}

/// The year 9999.
const LARGEST_TIME_MS: i64 = 253_402_300_800_000;
