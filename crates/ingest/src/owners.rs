//! Owners: whose money it is, by rules that people write. The first rule whose conditions all hold decides.
//!
//! ```toml
//! [[rule]]
//! namespace = "ml-*"                       # a text, or the start of one before a final *
//! label = { key = "tier", value = "prod" } # the value may end in * too
//! team = "ranking"
//! unit = "search"                          # business unit, may be left out
//!
//! [[rule]]
//! account = "physics"                      # Slurm account
//! team = "physics"
//!
//! [[rule]]
//! cluster = "*"                            # everything else
//! team = "platform"
//! ```
//! Conditions are `namespace`, `account`, `billing_account`, `cluster` and `label`; a rule needs one at least.
//! A condition on something that a holder does not have does not hold.

use std::collections::BTreeMap;
use std::ops::Range;

use gpuledger_model::tables::reject::Reject;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::refusals::{Refusals, excerpt, foreign_encoding, without_mark};

/// Rules in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owners {
    rules: Vec<Rule>,
}

/// What rules look at.
#[derive(Clone, Copy, Debug)]
pub struct HolderFacts<'a> {
    /// Cluster.
    pub cluster: Option<&'a str>,
    /// Kubernetes namespace.
    pub namespace: Option<&'a str>,
    /// Slurm account.
    pub account: Option<&'a str>,
    /// BillingAccountId of the bill that pays.
    pub billing_account: Option<&'a str>,
    /// Labels.
    pub labels: &'a BTreeMap<String, String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    namespace: Option<Pattern>,
    account: Option<Pattern>,
    billing_account: Option<Pattern>,
    cluster: Option<Pattern>,
    label: Option<(String, Pattern)>,
    team: String,
    unit: Option<String>,
}

/// A whole text, or the start of one.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Pattern {
    Whole(String),
    Start(String),
}

impl Pattern {
    fn matches(&self, text: Option<&str>) -> bool {
        match (self, text) {
            (Pattern::Whole(whole), Some(text)) => whole == text,
            (Pattern::Start(start), Some(text)) => text.starts_with(start.as_str()),
            (_, None) => false,
        }
    }
}

impl Owners {
    /// Team and business unit of a holder, by the first rule that fits.
    pub fn owner_of(&self, facts: &HolderFacts) -> Option<(&str, Option<&str>)> {
        let holds = |pattern: &Option<Pattern>, text: Option<&str>| pattern.as_ref().is_none_or(|p| p.matches(text));
        let rule = self.rules.iter().find(|rule| {
            holds(&rule.namespace, facts.namespace)
                && holds(&rule.account, facts.account)
                && holds(&rule.billing_account, facts.billing_account)
                && holds(&rule.cluster, facts.cluster)
                && rule.label.as_ref().is_none_or(|(key, value)| value.matches(facts.labels.get(key).map(String::as_str)))
        })?;
        Some((&rule.team, rule.unit.as_deref()))
    }

    /// Whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }
}

/// Reads the rules, or tells all that is wrong with them: a file of which only some rules are understood would
/// send money to the wrong team.
pub fn parse(file: &str, bytes: &[u8]) -> Result<Owners, Vec<Reject>> {
    let mut reader = Reader { refusals: Refusals::new(file), line_starts: Vec::new() };
    let mut rules = Vec::new();
    match std::str::from_utf8(without_mark(bytes)) {
        Ok(text) => reader.rules(text, &mut rules),
        Err(_) => reader.refusals.reject(0, "", foreign_encoding(bytes).unwrap_or("the file is no UTF-8 text")),
    }
    let (rejects, _) = reader.refusals.finish();
    if rejects.is_empty() { Ok(Owners { rules }) } else { Err(rejects) }
}

struct Reader {
    refusals: Refusals,
    line_starts: Vec<usize>,
}

impl Reader {
    fn rules(&mut self, text: &str, rules: &mut Vec<Rule>) {
        self.line_starts = memchr::memchr_iter(b'\n', text.as_bytes()).map(|at| at + 1).collect();
        let table = match DeTable::parse(text) {
            Ok(table) => table,
            Err(error) => {
                let line = error.span().map_or(0, |span| self.line(&span));
                self.refusals.reject(line, "", format!("no readable TOML: {}", error.message()));
                return;
            }
        };
        for (key, value) in table.get_ref() {
            if key.get_ref() != "rule" {
                self.unknown(key.span(), key.get_ref(), "rule");
                continue;
            }
            let Some(items) = value.get_ref().as_array() else {
                self.wrong(value.span(), "rule", "must be a list of tables: begin each with [[rule]]");
                continue;
            };
            for item in items {
                match item.get_ref().as_table() {
                    Some(fields) => rules.extend(self.rule(item.span(), fields)),
                    None => self.wrong(item.span(), "rule", "must be a table: begin it with [[rule]]"),
                }
            }
        }
    }

    fn rule(&mut self, span: Range<usize>, fields: &DeTable) -> Option<Rule> {
        let before = self.refused();
        let mut rule =
            Rule { namespace: None, account: None, billing_account: None, cluster: None, label: None, team: String::new(), unit: None };
        for (key, value) in fields {
            match key.get_ref().as_ref() {
                "namespace" => rule.namespace = self.pattern("namespace", value),
                "account" => rule.account = self.pattern("account", value),
                "billing_account" => rule.billing_account = self.pattern("billing_account", value),
                "cluster" => rule.cluster = self.pattern("cluster", value),
                "label" => rule.label = self.label(value),
                "team" => rule.team = self.text("team", value).unwrap_or_default(),
                "unit" => rule.unit = self.text("unit", value),
                other => self.unknown(key.span(), other, "namespace, account, billing_account, cluster, label, team, unit"),
            }
        }
        if !fields.keys().any(|key| key.get_ref() == "team") {
            self.wrong(span.clone(), "team", "is missing: a rule must name the team");
        }
        let conditions = ["namespace", "account", "billing_account", "cluster", "label"];
        if !fields.keys().any(|key| conditions.contains(&key.get_ref().as_ref())) {
            self.wrong(span, "rule", "has no condition; write cluster = \"*\" for a rule that takes everything");
        }
        (self.refused() == before).then_some(rule)
    }

    fn label(&mut self, value: &Spanned<DeValue>) -> Option<(String, Pattern)> {
        let Some(fields) = value.get_ref().as_table() else {
            self.wrong(value.span(), "label", "must be a table: label = { key = \"…\", value = \"…\" }");
            return None;
        };
        let (mut label_key, mut pattern) = (None, None);
        for (key, value) in fields {
            match key.get_ref().as_ref() {
                "key" => label_key = self.text("label.key", value),
                "value" => pattern = self.pattern("label.value", value),
                other => self.unknown(key.span(), &format!("label.{other}"), "key, value"),
            }
        }
        for field in ["key", "value"] {
            if !fields.keys().any(|key| key.get_ref() == field) {
                self.wrong(value.span(), &format!("label.{field}"), "is missing: label = { key = \"…\", value = \"…\" }");
            }
        }
        Some((label_key?, pattern?))
    }

    fn pattern(&mut self, field: &str, value: &Spanned<DeValue>) -> Option<Pattern> {
        let text = self.text(field, value)?;
        let (start, is_open) = match text.strip_suffix('*') {
            Some(start) => (start, true),
            None => (text.as_str(), false),
        };
        if start.contains('*') {
            self.wrong(value.span(), field, "may have a * at its end only");
            return None;
        }
        Some(if is_open { Pattern::Start(start.to_string()) } else { Pattern::Whole(text) })
    }

    fn text(&mut self, field: &str, value: &Spanned<DeValue>) -> Option<String> {
        match value.get_ref().as_str().map(str::trim) {
            Some("") => self.wrong(value.span(), field, "is empty"),
            Some(text) => return Some(text.to_string()),
            None => self.wrong(value.span(), field, "must be a text in quotes"),
        }
        None
    }

    fn unknown(&mut self, span: Range<usize>, key: &str, known: &str) {
        self.wrong(span, &excerpt(key), &format!("is no field known here; known are {known}"));
    }

    fn wrong(&mut self, span: Range<usize>, field: &str, what: &str) {
        let line = self.line(&span);
        self.refusals.reject(line, field, format!("{field} {what}"));
    }

    fn refused(&self) -> u64 {
        self.refusals.rejected()
    }

    fn line(&self, span: &Range<usize>) -> u64 {
        self.line_starts.partition_point(|&start| start <= span.start) as u64 + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: &str = r#"
[[rule]]
namespace = "ml-*"
label = { key = "tier", value = "prod*" }
team = "ranking"
unit = "search"

[[rule]]
account = "physics"
cluster = "hpc"
team = "physics"

[[rule]]
billing_account = "0123*"
team = "sandbox"
"#;

    fn owner(namespace: Option<&str>, account: Option<&str>, labels: &[(&str, &str)]) -> Option<(String, Option<String>)> {
        let owners = parse("owners.toml", RULES.as_bytes()).unwrap();
        let labels = labels.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        let facts = HolderFacts { cluster: Some("hpc"), namespace, account, billing_account: Some("012"), labels: &labels };
        owners.owner_of(&facts).map(|(team, unit)| (team.to_string(), unit.map(str::to_string)))
    }

    #[test]
    fn the_first_rule_that_fits_decides() {
        assert_eq!(owner(Some("ml-rank"), None, &[("tier", "production")]), Some(("ranking".into(), Some("search".into()))));
        assert_eq!(owner(Some("ml-rank"), None, &[("tier", "test")]), None);
        assert_eq!(owner(None, Some("physics"), &[]), Some(("physics".into(), None)));
        assert_eq!(owner(None, Some("physics2"), &[]), None);
        let everything = parse("o", b"[[rule]]\ncluster = \"*\"\nteam = \"platform\"\n").unwrap();
        let labels = BTreeMap::new();
        let facts = HolderFacts { cluster: Some("x"), namespace: None, account: None, billing_account: None, labels: &labels };
        assert_eq!(everything.owner_of(&facts), Some(("platform", None)));
        assert!(parse("o", b"").unwrap().is_empty());
    }

    #[test]
    fn all_that_is_wrong_is_told_with_line_and_field() {
        let text = "[[rule]]\nnamespace = \"a*b\"\nteem = \"x\"\n\n[[rule]]\nteam = 7\nlabel = { key = \"k\" }\n\n[[rule]]\nteam = \"t\"\n[other]\n";
        let rejects = parse("owners.toml", text.as_bytes()).unwrap_err();
        let told: Vec<_> = rejects.iter().map(|r| (r.line, r.field.as_str())).collect();
        assert_eq!(told, [(1, "team"), (2, "namespace"), (3, "teem"), (6, "team"), (7, "label.value"), (9, "rule"), (11, "other")]);
        assert!(rejects.iter().all(|r| r.file == "owners.toml"));
        let broken = parse("owners.toml", b"[[rule]]\nteam = \"t\nunit = 1\n").unwrap_err();
        assert_eq!((broken.len(), broken[0].line), (1, 2));
        assert_eq!(parse("o", b"\xff\xfer").unwrap_err().len(), 1);
        assert_eq!(parse("o", b"rule = 1\n").unwrap_err()[0].field, "rule");
    }
}
