//! The `expect` sections: compares what came out with what was computed by hand, and tells every difference.

use std::collections::BTreeMap;

use gpuledger_model::money::Decimal;
use gpuledger_model::tables::posting::{Ledger, Posting};
use gpuledger_model::tables::reject::Reject;
use gpuledger_model::time::format_rfc3339;

use super::format::{Line, Read, Scenario, Section, cells, mistake};

/// One line that differs.
#[derive(Debug)]
pub struct Difference {
    pub line: usize,
    pub message: String,
}

const KEYS: &[&str] = &[
    "hour",
    "device",
    "machine",
    "node",
    "cluster",
    "model",
    "holder",
    "cause",
    "class",
    "part",
    "scope",
    "currency",
    "state",
    "confidence",
    "rule",
    "placed_by",
    "service",
];
const MEASURES: &[&str] = &["seconds", "energy"];

#[derive(Clone, Debug, Default)]
struct Sums {
    amount: Decimal0,
    device_ms: i64,
    energy_joules: i64,
}

/// A decimal that begins at zero.
#[derive(Clone, Copy, Debug)]
struct Decimal0(Decimal);

impl Default for Decimal0 {
    fn default() -> Decimal0 {
        Decimal0(Decimal::ZERO)
    }
}

/// `== expect postings by KEYS [where KEY=VALUE,...]`.
pub fn postings(scenario: &Scenario, section: &Section, ledger: &Ledger) -> Read<Vec<Difference>> {
    let words: Vec<&str> = section.head.split_whitespace().collect();
    let (by, filters) = match words.as_slice() {
        ["by", by] => (*by, ""),
        ["by", by, "where", filters] => (*by, *filters),
        _ => return mistake(section.line, "write `== expect postings by KEY,KEY [where KEY=VALUE,...]`"),
    };
    let (measures, keys): (Vec<&str>, Vec<&str>) = by.split(',').partition(|key| MEASURES.contains(key));
    for key in &keys {
        if !KEYS.contains(key) {
            return mistake(section.line, format!("no key `{key}`"));
        }
    }
    let mut conditions = Vec::new();
    for filter in filters.split(',').filter(|filter| !filter.is_empty()) {
        match filter.split_once('=') {
            Some((key, value)) if KEYS.contains(&key) => conditions.push((key, value)),
            _ => return mistake(section.line, format!("`{filter}` is no condition")),
        }
    }
    let mut got: BTreeMap<Vec<String>, Sums> = BTreeMap::new();
    for posting in &ledger.postings {
        if conditions.iter().any(|(key, value)| !matches_pattern(value, &shown(scenario, posting, key))) {
            continue;
        }
        let group: Vec<String> = keys.iter().map(|key| shown(scenario, posting, key)).collect();
        let sums = got.entry(group).or_default();
        sums.amount.0 = sums.amount.0.checked_add(posting.amount).expect("amounts of a scenario are small");
        sums.device_ms += posting.device_ms;
        sums.energy_joules += posting.energy_joules;
    }
    let mut differences = Vec::new();
    for line in &section.lines {
        let values = cells(&line.text);
        if values.len() != keys.len() + 1 + measures.len() {
            return mistake(line.number, format!("{} cells, expected {}", values.len(), keys.len() + 1 + measures.len()));
        }
        let group: Vec<String> = keys.iter().zip(&values).map(|(key, cell)| wanted(scenario, line, key, cell)).collect::<Read<_>>()?;
        let amount = expression(line.number, values[keys.len()].as_deref().unwrap_or("0"))?;
        let sums = take(&mut got, &group);
        let label = group.join(" | ");
        let Some(sums) = sums else {
            if !amount.is_zero() {
                differences
                    .push(Difference { line: line.number, message: format!("missing: {label} | expected {amount}, got no posting") });
            }
            continue;
        };
        if sums.amount.0 != amount {
            let message = format!("{label} | expected {amount}, got {}", sums.amount.0.normalized());
            differences.push(Difference { line: line.number, message });
        }
        for (measure, cell) in measures.iter().zip(&values[keys.len() + 1..]) {
            let want = expression(line.number, cell.as_deref().unwrap_or("0"))?;
            let have = match *measure {
                "seconds" => Decimal { mantissa: i128::from(sums.device_ms), scale: 3 },
                _ => Decimal::from_integer(i128::from(sums.energy_joules)),
            };
            if have != want {
                let message = format!("{label} | expected {want} {measure}, got {}", have.normalized());
                differences.push(Difference { line: line.number, message });
            }
        }
    }
    for (group, sums) in got.into_iter().filter(|(_, sums)| !sums.amount.0.is_zero()) {
        let message = format!("not expected: {} | {}", group.join(" | "), sums.amount.0.normalized());
        differences.push(Difference { line: section.line, message });
    }
    Ok(differences)
}

fn shown(scenario: &Scenario, posting: &Posting, key: &str) -> String {
    let text = match key {
        "hour" => hour(scenario, posting.hour_ms),
        "device" => posting.device.clone(),
        "machine" => posting.machine.clone(),
        "node" => posting.node.clone(),
        "cluster" => posting.cluster.clone(),
        "model" => posting.model.clone(),
        "holder" => posting.holder.clone(),
        "cause" => posting.cause.to_string(),
        "class" => posting.cause.class().to_string(),
        "part" => posting.part.to_string(),
        "scope" => posting.scope.id(),
        "currency" => posting.scope.currency.clone(),
        "state" => posting.state.to_string(),
        "confidence" => posting.confidence.to_string(),
        "rule" => posting.rule.clone(),
        "placed_by" => format!("{:?}", posting.placed_by).to_lowercase(),
        _ => posting.service.clone(),
    };
    if text.is_empty() { "-".into() } else { text }
}

/// The sums of a group, or of all groups that a row with `*` in its cells means.
fn take(got: &mut BTreeMap<Vec<String>, Sums>, wanted: &[String]) -> Option<Sums> {
    if !wanted.iter().any(|cell| cell.contains('*')) {
        return got.remove(wanted);
    }
    let fits = |group: &&Vec<String>| group.iter().zip(wanted).all(|(text, pattern)| matches_pattern(pattern, text));
    let groups: Vec<Vec<String>> = got.keys().filter(fits).cloned().collect();
    groups.iter().filter_map(|group| got.remove(group)).reduce(|one, other| Sums {
        amount: Decimal0(one.amount.0.checked_add(other.amount.0).expect("amounts of a scenario are small")),
        device_ms: one.device_ms + other.device_ms,
        energy_joules: one.energy_joules + other.energy_joules,
    })
}

/// Hours of the scenario's day and of those after it are short.
fn hour(scenario: &Scenario, time_ms: i64) -> String {
    let minutes = (time_ms - scenario.day_ms).div_euclid(60_000);
    if (0..100 * 60).contains(&minutes) { format!("{:02}:{:02}", minutes / 60, minutes % 60) } else { format_rfc3339(time_ms) }
}

fn wanted(scenario: &Scenario, line: &Line, key: &str, cell: &Option<String>) -> Read<String> {
    match (key, cell) {
        (_, None) => Ok("-".into()),
        ("hour", Some(text)) => Ok(hour(scenario, scenario.time(line.number, text)?)),
        (_, Some(text)) => Ok(text.clone()),
    }
}

/// `12.60 + 0.42 - 36 * 0.1`, exactly.
pub fn expression(line: usize, text: &str) -> Read<Decimal> {
    let mut sum = Decimal::ZERO;
    let mut product: Option<Decimal> = None;
    let mut sign = 1;
    let mut factor_is_next = false;
    let wrong = || -> Read<Decimal> { mistake(line, format!("`{text}` is no amount")) };
    for word in text.split_whitespace() {
        match word {
            "+" | "-" => {
                let Some(done) = product.take() else { return wrong() };
                sum = add(sum, done, sign);
                sign = if word == "+" { 1 } else { -1 };
            }
            "*" => factor_is_next = true,
            number => {
                let Ok(number) = number.parse::<Decimal>() else { return wrong() };
                product = match (product, factor_is_next) {
                    (None, false) => Some(number),
                    (Some(left), true) => Some(Decimal { mantissa: left.mantissa * number.mantissa, scale: left.scale + number.scale }),
                    _ => return wrong(),
                };
                factor_is_next = false;
            }
        }
    }
    match product {
        Some(last) if !factor_is_next => Ok(add(sum, last, sign).normalized()),
        _ => wrong(),
    }
}

fn add(left: Decimal, right: Decimal, sign: i128) -> Decimal {
    left.checked_add(Decimal { mantissa: right.mantissa * sign, scale: right.scale }).expect("amounts of a scenario are small")
}

/// `== expect closing`.
pub fn closing(section: &Section, ledger: &Ledger) -> Read<Vec<Difference>> {
    let mut differences = Vec::new();
    let mut left: BTreeMap<String, _> = ledger.closings.iter().map(|closing| (closing.scope.id(), closing)).collect();
    for line in &section.lines {
        let values = cells(&line.text);
        let [Some(scope), Some(bill), Some(posted), Some(state)] = values.as_slice() else {
            return mistake(line.number, "write `scope | bill | posted | state`");
        };
        let (bill, posted) = (expression(line.number, bill)?, expression(line.number, posted)?);
        let Some(closing) = left.keys().find(|id| matches_pattern(scope, id)).cloned().and_then(|id| left.remove(&id)) else {
            differences.push(Difference { line: line.number, message: format!("no scope {scope}") });
            continue;
        };
        if closing.bill != bill || closing.posted != posted || !matches_pattern(state, &closing.state) {
            let message = format!(
                "{scope} | expected {bill} | {posted} | {state}, got {} | {} | {}",
                closing.bill.normalized(),
                closing.posted.normalized(),
                closing.state
            );
            differences.push(Difference { line: line.number, message });
        }
    }
    for (scope, closing) in left {
        let message =
            format!("not expected: {scope} | {} | {} | {}", closing.bill.normalized(), closing.posted.normalized(), closing.state);
        differences.push(Difference { line: section.line, message });
    }
    Ok(differences)
}

/// `== expect totals`.
pub fn totals(section: &Section, ledger: &Ledger) -> Read<Vec<Difference>> {
    let mut got: BTreeMap<String, Decimal> = BTreeMap::new();
    for posting in &ledger.postings {
        let sum = got.entry(posting.scope.currency.clone()).or_insert(Decimal::ZERO);
        *sum = sum.checked_add(posting.amount).expect("amounts of a scenario are small");
    }
    let mut differences = Vec::new();
    for line in &section.lines {
        let values = cells(&line.text);
        let [Some(currency), Some(amount)] = values.as_slice() else { return mistake(line.number, "write `currency | amount`") };
        let want = expression(line.number, amount)?;
        let have = got.remove(currency.as_str()).unwrap_or(Decimal::ZERO);
        if have != want {
            differences.push(Difference { line: line.number, message: format!("{currency} | expected {want}, got {}", have.normalized()) });
        }
    }
    for (currency, amount) in got.into_iter().filter(|(_, amount)| !amount.is_zero()) {
        differences.push(Difference { line: section.line, message: format!("not expected: {currency} | {}", amount.normalized()) });
    }
    Ok(differences)
}

/// What holds of every ledger: each scope closes, and its postings add to its line.
pub fn invariants(ledger: &Ledger) -> Vec<Difference> {
    let mut posted: BTreeMap<String, Decimal> = BTreeMap::new();
    for posting in &ledger.postings {
        let sum = posted.entry(posting.scope.id()).or_insert(Decimal::ZERO);
        *sum = sum.checked_add(posting.amount).expect("amounts of a scenario are small");
    }
    let mut differences = Vec::new();
    for closing in &ledger.closings {
        let sum = posted.remove(&closing.scope.id()).unwrap_or(Decimal::ZERO);
        if !closing.difference.is_zero() || closing.bill != closing.posted || sum != closing.posted {
            let message = format!(
                "ATTR-1: {} bill {} posted {} difference {}, postings add to {}",
                closing.scope.id(),
                closing.bill,
                closing.posted,
                closing.difference,
                sum
            );
            differences.push(Difference { line: 0, message });
        }
    }
    for (scope, sum) in posted {
        differences.push(Difference { line: 0, message: format!("ATTR-1: {scope} has postings of {sum} and no closing line") });
    }
    differences
}

/// `== expect findings`: `kind | subject | amount`.
pub fn findings(section: &Section, ledger: &Ledger) -> Read<Vec<Difference>> {
    let got: Vec<Vec<String>> = ledger
        .findings
        .iter()
        .map(|finding| {
            let cause = finding.cause.map(|cause| cause.to_string()).unwrap_or_default();
            let amount = finding.amount.map(|amount| amount.normalized().to_string()).unwrap_or_default();
            vec![if cause.is_empty() { finding.kind.clone() } else { cause }, finding.subject.clone(), amount]
        })
        .collect();
    rows(section, &got, 2)
}

/// `== expect rejects`: `file | line | field | reason`.
pub fn rejects(section: &Section, rejects: &[Reject]) -> Read<Vec<Difference>> {
    let got: Vec<Vec<String>> = rejects
        .iter()
        .map(|reject| vec![reject.file.clone(), reject.line.to_string(), reject.field.clone(), reject.reason.clone()])
        .collect();
    rows(section, &got, usize::MAX)
}

/// `== expect no rejects`.
pub fn no_rejects(section: &Section, rejects: &[Reject]) -> Vec<Difference> {
    rejects.iter().map(|reject| Difference { line: section.line, message: format!("not expected: {reject:?}") }).collect()
}

fn rows(section: &Section, got: &[Vec<String>], decimal_at: usize) -> Read<Vec<Difference>> {
    let mut differences = Vec::new();
    for line in &section.lines {
        let (is_wanted, text) = match line.text.trim().strip_prefix("not ") {
            Some(rest) => (false, rest),
            None => (true, line.text.trim()),
        };
        let wanted = cells(text);
        let fits = |row: &Vec<String>| {
            wanted.iter().enumerate().all(|(at, cell)| match cell {
                None => true,
                Some(cell) if at == decimal_at && cell != "*" => {
                    matches!((expression(line.number, cell), row[at].parse::<Decimal>()), (Ok(want), Ok(have)) if want == have)
                }
                Some(cell) => row.get(at).is_some_and(|text| matches_pattern(cell, text)),
            })
        };
        if got.iter().any(fits) != is_wanted {
            let all: Vec<String> = got.iter().map(|row| format!("\n        {}", row.join(" | "))).collect();
            let message = format!("{} `{text}` among{}", if is_wanted { "nothing like" } else { "found" }, all.concat());
            differences.push(Difference { line: line.number, message });
        }
    }
    Ok(differences)
}

/// Whether a text fits a pattern whose `*` stand for any run of characters.
pub fn matches_pattern(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    if !pattern.contains('*') {
        return rest.is_empty();
    }
    let mut parts: Vec<&str> = parts.collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}
