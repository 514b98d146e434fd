//! The JSON of each command, field by field: names, order, types, and sums that agree (`docs/REPORT.md`).

use std::collections::{BTreeMap, BTreeSet};

use gpuledger_model::cause::{Cause, Class};
use gpuledger_model::money::Decimal;
use serde_json::Value;

use super::place::{Place, bill, row};

const KEYS: [&str; 15] = [
    "cause",
    "class",
    "team",
    "unit",
    "namespace",
    "account",
    "billing_account",
    "run",
    "workload",
    "machine",
    "device",
    "model",
    "cluster",
    "provider",
    "label:app",
];
const PARTS: [&str; 8] = ["bill", "not_held", "idle", "fill", "issue", "use", "useful", "unknown"];

/// The object has these fields first, in this order; others may follow.
fn starts_with(object: &Value, fields: &[&str]) {
    let names: Vec<&str> = object.as_object().unwrap_or_else(|| panic!("no object: {object}")).keys().map(String::as_str).collect();
    assert!(names.len() >= fields.len() && names[..fields.len()] == *fields, "{names:?} instead of {fields:?}");
}

fn rows(of: &Value) -> &Vec<Value> {
    of.as_array().unwrap_or_else(|| panic!("no list: {of}"))
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}"))
}

/// A string of digits with at most one point, and no exponent.
fn money(value: &Value) -> Decimal {
    let text = word(value);
    let digits = text.strip_prefix('-').unwrap_or(text);
    let (whole, rest) = digits.split_once('.').unwrap_or((digits, "0"));
    let is_plain = [whole, rest].iter().all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()));
    assert!(is_plain, "{text} is not a plain decimal");
    text.parse().unwrap()
}

fn is_time(value: &Value) {
    let text = word(value);
    assert!(text.ends_with('Z') && text.parse::<jiff::Timestamp>().is_ok(), "{text} is not RFC 3339 in UTC");
}

fn sum(amounts: impl IntoIterator<Item = Decimal>) -> Decimal {
    amounts.into_iter().fold(Decimal::ZERO, |sum, amount| sum.checked_add(amount).unwrap())
}

fn by_currency(rows: &[Value]) -> BTreeMap<String, Decimal> {
    let mut sums = BTreeMap::new();
    for row in rows {
        let own = sums.entry(word(&row["currency"]).to_string()).or_insert(Decimal::ZERO);
        *own = own.checked_add(money(&row["amount"])).unwrap();
    }
    sums
}

fn check_report(report: &Value) {
    starts_with(report, &["schema", "window", "inputs", "closing", "invoices", "totals", "unknown", "causes", "groups", "findings"]);
    assert_eq!(report["schema"], "gpuledger.report/1");
    starts_with(&report["window"], &["from", "to"]);
    is_time(&report["window"]["from"]);
    is_time(&report["window"]["to"]);
    for input in rows(&report["inputs"]) {
        starts_with(input, &["path", "kind", "rows", "rejects"]);
        assert!(!word(&input["path"]).is_empty() && !word(&input["kind"]).is_empty());
        assert!(input["rows"].is_u64() && input["rejects"].is_u64());
    }
    for closing in rows(&report["closing"]) {
        starts_with(closing, &["scope", "currency", "bill", "posted", "difference", "state"]);
        assert!(money(&closing["difference"]).is_zero());
        // Every digit of the scale, on both sides.
        assert_eq!(closing["bill"], closing["posted"]);
        assert!(money(&closing["bill"]).scale >= 10, "{closing}");
        assert!(["closed", "estimated", "refused"].contains(&word(&closing["state"])));
    }
    for invoice in rows(&report["invoices"]) {
        starts_with(invoice, &["scope", "invoice", "currency", "billed"]);
        money(&invoice["billed"]);
    }
    let totals = by_currency(rows(&report["totals"]));
    rows(&report["totals"]).iter().for_each(|total| starts_with(total, &["currency", "amount"]));
    assert_eq!(totals.len(), rows(&report["totals"]).len());
    for unknown in rows(&report["unknown"]) {
        starts_with(unknown, &["what", "currency", "amount", "share"]);
        money(&unknown["amount"]);
    }
    check_causes(rows(&report["causes"]), &totals);
    check_groups(report, &totals);
    check_findings(rows(&report["findings"]));
}

fn check_causes(causes: &[Value], totals: &BTreeMap<String, Decimal>) {
    let mut shares: BTreeMap<&str, f64> = BTreeMap::new();
    for row in causes {
        starts_with(row, &["cause", "class", "part", "currency", "amount", "share", "device_seconds", "confidence"]);
        let cause = Cause::from_name(word(&row["cause"])).unwrap();
        assert_eq!(word(&row["class"]), cause.class().as_str());
        assert!(PARTS.contains(&word(&row["part"])), "{row}");
        assert!(row["device_seconds"].as_f64().unwrap() >= 0.0);
        starts_with(&row["confidence"], &["high", "medium", "low"]);
        let levels = ["high", "medium", "low"].map(|level| money(&row["confidence"][level]));
        assert_eq!(sum(levels), money(&row["amount"]), "{row}");
        assert!(levels.iter().all(|level| level.scale == money(&row["amount"]).scale), "{row}");
        *shares.entry(word(&row["currency"])).or_default() += row["share"].as_f64().unwrap_or_default();
    }
    assert_eq!(by_currency(causes), *totals);
    for (currency, share) in shares {
        assert!((share - 1.0).abs() < 1e-9 || totals[currency].is_zero(), "{currency}: {share}");
    }
}

fn check_groups(report: &Value, totals: &BTreeMap<String, Decimal>) {
    let mut met = BTreeSet::new();
    for group in rows(&report["groups"]) {
        starts_with(group, &["key", "currency", "amount", "share", "energy_kwh", "causes"]);
        let keys: Vec<&String> = group["key"].as_object().unwrap().keys().collect();
        assert_eq!(keys, rows(&report["by"]).iter().map(word).collect::<Vec<_>>());
        assert!(group["key"].as_object().unwrap().values().all(|value| !word(value).is_empty()), "{group}");
        assert!(met.insert((group["key"].to_string(), word(&group["currency"]))), "{group} is there twice");
        assert!(group["energy_kwh"].is_number());
        let causes = rows(&group["causes"]);
        causes.iter().for_each(|cause| starts_with(cause, &["cause", "amount"]));
        assert_eq!(sum(causes.iter().map(|cause| money(&cause["amount"]))), money(&group["amount"]));
    }
    assert_eq!(by_currency(rows(&report["groups"])), *totals, "{}", report["by"]);
}

fn check_findings(findings: &[Value]) {
    let mut ids = BTreeSet::new();
    for finding in findings {
        starts_with(
            finding,
            &["id", "kind", "cause", "subject", "currency", "amount", "from", "to", "confidence", "evidence", "rule", "would_change"],
        );
        assert!(ids.insert(word(&finding["id"])), "{} is there twice", finding["id"]);
        for field in ["kind", "subject", "evidence", "would_change"] {
            assert!(!word(&finding[field]).is_empty(), "{field}: {finding}");
        }
        assert!(word(&finding["rule"]).contains('@'), "{finding}");
        assert!(["high", "medium", "low"].contains(&word(&finding["confidence"])));
        if finding["cause"].is_null() {
            continue;
        }
        let [from, to]: [jiff::Timestamp; 2] = ["from", "to"].map(|end| word(&finding[end]).parse().unwrap());
        assert!(to.as_second() - from.as_second() >= 15 * 60, "{finding}");
        assert!(money(&finding["amount"]) >= Decimal::from_integer(1), "{finding}");
    }
    let amounts: Vec<Decimal> = findings.iter().filter(|f| !f["amount"].is_null()).map(|f| money(&f["amount"])).collect();
    assert!(amounts.windows(2).all(|pair| pair[0] >= pair[1]), "the most expensive comes first");
}

#[test]
fn every_field_of_the_report_by_every_two_keys_on_a_small_world() {
    let place = Place::small();
    place.file("owners.toml", "[[rule]]\nnamespace = \"train\"\nteam = \"ml\"\nunit = \"research\"\n");
    let inputs = ["report", "--bills", "bill.csv", "--telemetry", "telemetry.prom", "--placements", "@west=placements.json"];
    for first in KEYS {
        for second in KEYS {
            let by = if first == second { first.to_string() } else { format!("{first},{second}") };
            check_report(&place.json(&[&inputs[..], &["--owners", "owners.toml", "--by", &by]].concat()));
        }
    }
    let report = place.json(&[&inputs[..], &["--by", "team,label:app"]].concat());
    // Every digit of the bill, per currency.
    assert_eq!(
        report["totals"].to_string(),
        r#"[{"currency":"EUR","amount":"-0.0010000000"},{"currency":"USD","amount":"73.500000000002"}]"#
    );
    let key = |at: usize| report["groups"][at]["key"].to_string();
    assert_eq!(key(0), r#"{"team":"__none__","label:app":"__none__"}"#);
}

#[test]
fn every_field_of_the_report_on_a_simulated_world() {
    let place = Place::empty();
    let written = place.run(&["sim", "write", "--seed", "3", "--out", "world", "--gpus", "24", "--days", "1", "--fault", "late_bill"]);
    assert!(written.status.success());
    for by in ["cause,machine", "model,provider", "run,namespace", "workload,label:app", "cluster,device", "class,account"] {
        let report = place.json(&["report", "--config", "world/gpuledger.toml", "--store", "kept", "--by", by]);
        check_report(&report);
    }
    let classes: BTreeSet<&str> = Class::ALL.iter().map(|class| class.as_str()).collect();
    let report = place.json(&["report", "--store", "kept", "--by", "class"]);
    assert!(rows(&report["groups"]).iter().all(|group| classes.contains(word(&group["key"]["class"]))));
}

#[test]
fn every_field_of_bills() {
    let place = Place::empty();
    let mut text = vec![row("2.50", "USD", "Usage", 9), row("2.50", "USD", "Usage", 9), row("-1E-3", "USD", "Credit", 9)];
    text.push(row("0.25", "USD", "Tax", 9));
    text.push(row("$1", "EUR", "Usage", 9));
    place.file("bill.csv", bill(&text));
    let output = place.run(&["bills", "bill.csv", "--format", "json"]);
    assert_eq!(output.status.code(), Some(4));
    let bills: Value = serde_json::from_slice(&output.stdout).unwrap();
    starts_with(&bills, &["schema", "scopes"]);
    assert_eq!(bills["schema"], "gpuledger.bills/1");
    for scope in rows(&bills["scopes"]) {
        let fields = ["scope", "provider", "account", "period", "currency", "format", "state", "rows"];
        starts_with(scope, &[&fields[..], &["billed", "effective", "list", "tax", "credits"]].concat());
        assert_eq!((word(&scope["account"]), word(&scope["period"])), ("0012", "2026-10"));
    }
    let (refused, closed) = (&bills["scopes"][0], &bills["scopes"][1]);
    assert_eq!((word(&refused["state"]), word(&closed["state"])), ("refused", "closed"));
    let amounts = ["billed", "effective", "tax", "credits"].map(|field| money(&closed[field]).normalized().to_string());
    assert_eq!(amounts, ["5.249", "5.249", "0.25", "-0.001"]);
    // No row says what it costs by the list.
    assert!(closed["list"].is_null());
    assert_eq!(closed["rows"], 4);
    for reject in rows(&bills["rejects"]) {
        starts_with(reject, &["file", "line", "field", "reason"]);
    }
    assert!(bills["findings"].is_array());
}

#[test]
fn every_field_of_scores_and_the_same_scores_twice() {
    let place = Place::empty();
    let run = || place.run(&["sim", "score", "--seeds", "4..4", "--format", "json"]).stdout;
    let first = run();
    assert_eq!(first, run());
    let scores: Value = serde_json::from_slice(&first).unwrap();
    starts_with(&scores, &["schema", "worlds"]);
    assert_eq!(scores["schema"], "gpuledger.score/1");
    let worlds = rows(&scores["worlds"]);
    assert_eq!(worlds.iter().map(|world| word(&world["fields"])).collect::<Vec<_>>(), ["full", "no_profiling"]);
    for world in worlds {
        let shares = ["misattributed_share", "false_waste_share", "unobserved_share", "gap_share", "true_waste_share", "idle_recall"];
        starts_with(world, &[&["seed", "fields", "dollars"][..], &shares].concat());
        assert_eq!(world["seed"], 4);
        money(&world["dollars"]);
        assert!(shares.iter().all(|share| (0.0..=1.0).contains(&world[share].as_f64().unwrap())), "{world}");
    }
}
