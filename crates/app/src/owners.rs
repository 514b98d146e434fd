//! Owners: which team and business unit answers for a dollar, by rules that a person writes.
//!
//! ```toml
//! # The first rule whose conditions all hold wins. A trailing `*` stands for any ending.
//! [[owner]]
//! team = "vision"
//! unit = "research"
//! namespace = ["vision", "vision-*"]
//!
//! [[owner]]
//! team = "simulation"
//! account = "physics"                    # Slurm's account
//!
//! [[owner]]
//! team_label = "team"                    # the label's value is the team
//!
//! [[owner]]
//! team = "platform"
//! billing_account = "0012"
//!
//! [units]                                # unit of each team that its rule gives none
//! simulation = "science"
//! ```

use std::collections::BTreeMap;

use serde::Deserialize;

/// Rules in the user's order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owners {
    rules: Vec<Rule>,
    units: BTreeMap<String, String>,
}

/// What a posting is, for the rules.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// Kubernetes namespace.
    pub namespace: Option<&'a str>,
    /// Slurm account.
    pub account: Option<&'a str>,
    /// BillingAccountId.
    pub billing_account: &'a str,
    /// Cluster.
    pub cluster: Option<&'a str>,
    /// Labels of the holder, if one is known.
    pub labels: Option<&'a BTreeMap<String, String>>,
}

/// Who answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner<'a> {
    /// The team.
    pub team: &'a str,
    /// Its business unit.
    pub unit: Option<&'a str>,
}

impl Owners {
    /// Reads an owners file. The error names the key and the line.
    pub fn parse(text: &str) -> Result<Owners, String> {
        let raw: RawOwners = toml::from_str(text).map_err(|error| error.to_string().trim_end().to_string())?;
        let mut rules = Vec::with_capacity(raw.owner.len());
        let mut mistakes = Vec::new();
        for (at, rule) in raw.owner.into_iter().enumerate() {
            if rule.team.is_none() == rule.team_label.is_none() {
                mistakes.push(format!("owner[{at}]: give `team` or `team_label`, one of them"));
            }
            if rule.namespace.is_empty()
                && rule.account.is_empty()
                && rule.billing_account.is_empty()
                && rule.cluster.is_empty()
                && rule.label.is_empty()
                && rule.team_label.is_none()
            {
                mistakes.push(format!(
                    "owner[{at}]: give at least one of `namespace`, `account`, `billing_account`, `cluster`, `label`, `team_label`"
                ));
            }
            rules.push(Rule {
                team: rule.team,
                team_label: rule.team_label,
                unit: rule.unit,
                namespace: rule.namespace.0,
                account: rule.account.0,
                billing_account: rule.billing_account.0,
                cluster: rule.cluster.0,
                label: rule.label,
            });
        }
        if mistakes.is_empty() { Ok(Owners { rules, units: raw.units }) } else { Err(mistakes.join("; ")) }
    }

    /// The owner by the first rule that holds.
    pub fn owner_of<'a>(&'a self, facts: &Facts<'a>) -> Option<Owner<'a>> {
        self.rules.iter().find_map(|rule| {
            let team = rule.team_of(facts)?;
            let unit = rule.unit.as_deref().or_else(|| self.units.get(team).map(String::as_str));
            Some(Owner { team, unit })
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    team: Option<String>,
    team_label: Option<String>,
    unit: Option<String>,
    namespace: Vec<String>,
    account: Vec<String>,
    billing_account: Vec<String>,
    cluster: Vec<String>,
    label: BTreeMap<String, String>,
}

impl Rule {
    fn team_of<'a>(&'a self, facts: &Facts<'a>) -> Option<&'a str> {
        let holds = allows(&self.namespace, facts.namespace)
            && allows(&self.account, facts.account)
            && allows(&self.billing_account, Some(facts.billing_account))
            && allows(&self.cluster, facts.cluster)
            && self.label.iter().all(|(name, pattern)| label(facts, name).is_some_and(|value| matches(pattern, value)));
        if !holds {
            return None;
        }
        match (&self.team, &self.team_label) {
            (Some(team), _) => Some(team),
            (None, Some(name)) => label(facts, name).filter(|value| !value.is_empty()),
            (None, None) => None,
        }
    }
}

fn label<'a>(facts: &Facts<'a>, name: &str) -> Option<&'a str> {
    facts.labels.and_then(|labels| labels.get(name)).map(String::as_str)
}

/// No pattern asks for nothing.
fn allows(patterns: &[String], value: Option<&str>) -> bool {
    patterns.is_empty() || value.is_some_and(|value| patterns.iter().any(|pattern| matches(pattern, value)))
}

fn matches(pattern: &str, value: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => value.starts_with(start),
        None => pattern == value,
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawOwners {
    #[serde(default)]
    owner: Vec<RawRule>,
    #[serde(default)]
    units: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRule {
    team: Option<String>,
    team_label: Option<String>,
    unit: Option<String>,
    #[serde(default)]
    namespace: Patterns,
    #[serde(default)]
    account: Patterns,
    #[serde(default)]
    billing_account: Patterns,
    #[serde(default)]
    cluster: Patterns,
    #[serde(default)]
    label: BTreeMap<String, String>,
}

/// One text or a list of them. Read by hand: an untagged enum would lose the line of a mistake.
#[derive(Default)]
struct Patterns(Vec<String>);

impl Patterns {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'de> Deserialize<'de> for Patterns {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Patterns, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Patterns;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a text or a list of texts")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Patterns, E> {
                Ok(Patterns(vec![text.to_string()]))
            }
            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut seq: A) -> Result<Patterns, A::Error> {
                let mut texts = Vec::new();
                while let Some(text) = seq.next_element::<String>()? {
                    texts.push(text);
                }
                Ok(Patterns(texts))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
        [[owner]]
        team = "vision"
        unit = "research"
        namespace = ["vision", "vision-*"]
        [[owner]]
        team = "simulation"
        account = "physics"
        [[owner]]
        team_label = "team"
        label = { stage = "prod" }
        [[owner]]
        team = "platform"
        billing_account = "0012"
        [units]
        simulation = "science"
    "#;

    fn facts() -> Facts<'static> {
        Facts { namespace: None, account: None, billing_account: "1", cluster: None, labels: None }
    }

    #[test]
    fn the_first_rule_that_holds_wins() {
        let owners = Owners::parse(FILE).unwrap();
        let team = |facts: Facts<'_>| owners.owner_of(&facts).map(|o| (o.team.to_string(), o.unit.map(str::to_string)));
        let some = |team: &str, unit: Option<&str>| Some((team.to_string(), unit.map(str::to_string)));
        assert_eq!(team(Facts { namespace: Some("vision-eval"), ..facts() }), some("vision", Some("research")));
        assert_eq!(team(Facts { account: Some("physics"), ..facts() }), some("simulation", Some("science")));
        let labels = BTreeMap::from([("team".to_string(), "ads".to_string()), ("stage".to_string(), "prod".to_string())]);
        assert_eq!(team(Facts { labels: Some(&labels), ..facts() }), some("ads", None));
        assert_eq!(team(Facts { billing_account: "0012", ..facts() }), some("platform", None));
        assert_eq!(team(Facts { billing_account: "12", ..facts() }), None);
    }

    #[test]
    fn mistakes_are_named_with_their_place() {
        assert!(Owners::parse("[[owner]]\nteem = \"x\"\n").unwrap_err().contains("teem"));
        let error = Owners::parse("[[owner]]\nteam = \"x\"\n[[owner]]\naccount = \"a\"\n").unwrap_err();
        assert!(error.contains("owner[0]") && error.contains("owner[1]"), "{error}");
        assert!(Owners::parse("[[owner]]\nteam = \"x\"\naccount = 3\n").unwrap_err().contains("line 3"));
    }
}
