//! `--filter`: the filter language of OpenCost, version 2, over the ledger's fields.
//!
//! `namespace:"train"+label[app]:"llm","rag"` keeps postings of the namespace whose label is one of two.
//!
//! | operator | keeps | negated |
//! |---|---|---|
//! | `:` | equal | `!:` |
//! | `~:` | contains | `!~:` |
//! | `<~:` | starts with | `!<~:` |
//! | `~>:` | ends with | `!~>:` |
//!
//! A list of values means any of them (none of them, when negated). `+` is and, `|` is or; as in OpenCost
//! the two may not stand side by side without parentheses. `""`, `"__none__"` and `"__unallocated__"` stand for
//! an absent value. In a string, `\"` is a quote and `\\` a backslash. Blanks between words mean nothing.

use std::fmt;

use crate::report::dimension::{Key, NONE, Named, label_value};

/// The longest filter, in bytes: a person's line, or a generated list of a few hundred names.
const TEXT_BYTES_MAX: usize = 64 * 1024;

/// The deepest nesting of parentheses: bounds the stack.
const DEPTH_MAX: usize = 64;

/// A filter that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    text: String,
    root: Option<Expression>,
}

/// Why a text is no filter, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterError {
    /// Column of the first character that does not fit, from 1.
    pub column: usize,
    /// What was expected there.
    pub message: String,
    /// The filter, for the pointer under it.
    pub text: String,
}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "read filter: column {}: {}", self.column, self.message)?;
        let is_one_line = !self.text.chars().any(char::is_control);
        if is_one_line && self.text.chars().count() <= 200 {
            write!(f, "\n    {}\n    {}^", self.text, " ".repeat(self.column.saturating_sub(1)))?;
        }
        Ok(())
    }
}

impl std::error::Error for FilterError {}

impl Filter {
    /// Reads a filter. An empty text keeps everything.
    pub fn parse(text: &str) -> Result<Filter, FilterError> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(FilterError { column: 1, message: format!("longer than {TEXT_BYTES_MAX} bytes"), text: String::new() });
        }
        let mut parser = Parser { text, at: 0 };
        parser.skip_blanks();
        let root = if parser.is_at_end() {
            None
        } else {
            let root = parser.expression(0)?;
            if !parser.is_at_end() {
                return Err(parser.error_here("expected `+`, `|` or the end"));
            }
            Some(root)
        };
        Ok(Filter { text: text.to_string(), root })
    }

    /// The filter as it was given.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether the posting is kept.
    pub fn keeps(&self, named: &Named<'_>) -> bool {
        self.root.as_ref().is_none_or(|root| root.keeps(named))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Expression {
    All(Vec<Expression>),
    Any(Vec<Expression>),
    Comparison { field: Field, operator: Operator, is_negated: bool, values: Vec<String> },
}

impl Expression {
    fn keeps(&self, named: &Named<'_>) -> bool {
        match self {
            Expression::All(parts) => parts.iter().all(|part| part.keeps(named)),
            Expression::Any(parts) => parts.iter().any(|part| part.keeps(named)),
            Expression::Comparison { field, operator, is_negated, values } => {
                let mut is_absent = true;
                let mut is_match = false;
                field.each_value(named, &mut |value| {
                    is_absent &= value.is_empty();
                    is_match |= values.iter().any(|wanted| operator.holds(value, wanted));
                });
                let asks_absent = || values.iter().any(|wanted| matches!(wanted.as_str(), "" | NONE | "__unallocated__"));
                (is_match || (is_absent && asks_absent())) != *is_negated
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Equals,
    Contains,
    StartsWith,
    EndsWith,
}

impl Operator {
    fn holds(self, value: &str, wanted: &str) -> bool {
        match self {
            Operator::Equals => value == wanted,
            Operator::Contains => value.contains(wanted),
            Operator::StartsWith => value.starts_with(wanted),
            Operator::EndsWith => value.ends_with(wanted),
        }
    }
}

/// Longest first, so that none hides another.
const OPERATORS: [(&str, Operator, bool); 8] = [
    ("!<~:", Operator::StartsWith, true),
    ("!~>:", Operator::EndsWith, true),
    ("!~:", Operator::Contains, true),
    ("<~:", Operator::StartsWith, false),
    ("~>:", Operator::EndsWith, false),
    ("!:", Operator::Equals, true),
    ("~:", Operator::Contains, false),
    (":", Operator::Equals, false),
];

#[derive(Clone, Debug, PartialEq, Eq)]
enum Field {
    Key(Key),
    Node,
    Pod,
    ControllerKind,
    ControllerName,
    /// Without a name: the names of the labels themselves, as in OpenCost.
    Label(Option<String>),
    Annotation(Option<String>),
}

const FIELD_NAMES: &str = "cluster, node, namespace, controllerKind, controllerName, pod, provider, account, billing_account, team, unit, \
     department, cause, class, device, model, machine, run, workload, label[NAME], annotation[NAME]";

impl Field {
    fn from_name(name: &str) -> Result<Field, String> {
        Ok(match name {
            "node" => Field::Node,
            "pod" => Field::Pod,
            "controllerKind" => Field::ControllerKind,
            "controllerName" => Field::ControllerName,
            "department" => Field::Key(Key::Unit),
            "label" => Field::Label(None),
            "annotation" => Field::Annotation(None),
            "container" => return Err("`container` is not recorded: accelerators are held by pods; use `pod`".to_string()),
            _ => match name.parse::<Key>() {
                Ok(key) => Field::Key(key),
                Err(_) => return Err(format!("unknown field `{name}`; use {FIELD_NAMES}")),
            },
        })
    }

    fn each_value(&self, named: &Named<'_>, visit: &mut dyn FnMut(&str)) {
        match self {
            Field::Key(key) => {
                if let Some(value) = named.value(key) {
                    visit(&value);
                }
                // A bill says `Amazon Web Services`, OpenCost and people say `aws`.
                if *key == Key::Provider
                    && let Some(code) = named.cloud_code()
                {
                    visit(code);
                }
            }
            Field::Node => visit(named.node().unwrap_or_default()),
            Field::Pod => visit(named.pod().unwrap_or_default()),
            Field::ControllerKind => visit(named.controller().unwrap_or_default().0),
            Field::ControllerName => visit(named.controller().unwrap_or_default().1),
            Field::Label(name) => visit_map(named.labels(), name.as_deref(), visit),
            Field::Annotation(name) => visit_map(named.annotations(), name.as_deref(), visit),
        }
    }
}

fn visit_map(map: Option<&std::collections::BTreeMap<String, String>>, name: Option<&str>, visit: &mut dyn FnMut(&str)) {
    let Some(map) = map else { return };
    match name {
        Some(name) => visit(label_value(map, name).unwrap_or_default()),
        None => map.keys().for_each(|key| visit(key)),
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    /// A comparison or a group, then more of them joined by one operator.
    fn expression(&mut self, depth: usize) -> Result<Expression, FilterError> {
        let first = self.element(depth)?;
        let joint = match self.peek() {
            Some(joint @ ('+' | '|')) => joint,
            _ => return Ok(first),
        };
        let mut parts = vec![first];
        loop {
            match self.peek() {
                Some(next) if next == joint => {
                    self.advance();
                    parts.push(self.element(depth)?);
                }
                Some('+' | '|') => return Err(self.error_here("`+` and `|` stand side by side; put one of them in parentheses")),
                _ => break,
            }
        }
        Ok(if joint == '+' { Expression::All(parts) } else { Expression::Any(parts) })
    }

    fn element(&mut self, depth: usize) -> Result<Expression, FilterError> {
        self.skip_blanks();
        if self.peek() != Some('(') {
            return self.comparison();
        }
        if depth >= DEPTH_MAX {
            return Err(self.error_here(&format!("more than {DEPTH_MAX} parentheses inside one another")));
        }
        self.advance();
        let inner = self.expression(depth + 1)?;
        if self.peek() != Some(')') {
            return Err(self.error_here("expected `)`, `+` or `|`"));
        }
        self.advance();
        Ok(inner)
    }

    fn comparison(&mut self) -> Result<Expression, FilterError> {
        let field = self.field()?;
        let Some((symbol, operator, is_negated)) = OPERATORS.into_iter().find(|(symbol, _, _)| self.rest().starts_with(symbol)) else {
            return Err(self.error_here("expected an operator: `:` `!:` `~:` `!~:` `<~:` `!<~:` `~>:` `!~>:`"));
        };
        self.at += symbol.len();
        self.skip_blanks();
        let mut values = vec![self.string()?];
        while self.peek() == Some(',') {
            self.advance();
            values.push(self.string()?);
        }
        Ok(Expression::Comparison { field, operator, is_negated, values })
    }

    fn field(&mut self) -> Result<Field, FilterError> {
        let start = self.at;
        let length: usize = self.rest().chars().take_while(|c| c.is_alphanumeric() || matches!(c, '-' | '_')).map(char::len_utf8).sum();
        if length == 0 {
            return Err(self.error_here("expected a field, such as `namespace`"));
        }
        let name = &self.text[start..start + length];
        let field = Field::from_name(name).map_err(|message| self.error_here(&message))?;
        self.at += length;
        self.skip_blanks();
        if self.peek() != Some('[') {
            return Ok(field);
        }
        if !matches!(field, Field::Label(_) | Field::Annotation(_)) {
            return Err(self.error_here("only `label` and `annotation` take a name in brackets"));
        }
        let Some(end) = self.rest().find(']') else {
            return Err(self.error_here("the bracket is not closed"));
        };
        let inside = self.rest()[1..end].trim().to_string();
        if inside.is_empty() {
            return Err(self.error_here("give a name in the brackets"));
        }
        self.at += end + 1;
        self.skip_blanks();
        Ok(match field {
            Field::Label(_) => Field::Label(Some(inside)),
            _ => Field::Annotation(Some(inside)),
        })
    }

    fn string(&mut self) -> Result<String, FilterError> {
        self.skip_blanks();
        if self.peek() != Some('"') {
            return Err(self.error_here("expected a value in double quotes"));
        }
        let mut value = String::new();
        let mut characters = self.rest().char_indices().skip(1);
        while let Some((offset, character)) = characters.next() {
            match character {
                '"' => {
                    self.at += offset + 1;
                    self.skip_blanks();
                    return Ok(value);
                }
                '\\' => match characters.next() {
                    Some((_, escaped @ ('"' | '\\'))) => value.push(escaped),
                    _ => {
                        self.at += offset;
                        return Err(self.error_here("after a backslash in a string comes `\"` or another backslash"));
                    }
                },
                _ => value.push(character),
            }
        }
        Err(self.error_here("the string is not closed"))
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn advance(&mut self) {
        self.at += self.peek().map_or(0, char::len_utf8);
        self.skip_blanks();
    }

    fn skip_blanks(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
    }

    fn is_at_end(&self) -> bool {
        self.at >= self.text.len()
    }

    fn error_here(&self, message: &str) -> FilterError {
        let before = self.text.get(..self.at).unwrap_or(self.text);
        FilterError { column: before.chars().count() + 1, message: message.to_string(), text: self.text.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::dimension::Dimensions;
    use crate::report::fixture;
    use proptest::prelude::*;

    fn kept(filter: &str) -> Vec<usize> {
        let filter = Filter::parse(filter).unwrap();
        let world = fixture::world();
        let dimensions = Dimensions::new(&world.placements, None);
        let postings = &world.ledger.postings;
        (0..postings.len()).filter(|at| filter.keeps(&dimensions.named(&postings[*at]))).collect()
    }

    fn all() -> Vec<usize> {
        (0..fixture::world().ledger.postings.len()).collect()
    }

    #[test]
    fn every_operator_and_its_negation_part_the_ledger() {
        for (yes, no) in [
            (r#"namespace:"train""#, r#"namespace!:"train""#),
            (r#"namespace~:"rai""#, r#"namespace!~:"rai""#),
            (r#"namespace<~:"tr""#, r#"namespace!<~:"tr""#),
            (r#"namespace~>:"in""#, r#"namespace!~>:"in""#),
            (r#"cause:"empty","useful""#, r#"cause!:"empty","useful""#),
            (r#"label[app]:"llm""#, r#"label[app]!:"llm""#),
            (r#"namespace:"""#, r#"namespace!:"""#),
        ] {
            let (yes, no) = (kept(yes), kept(no));
            assert!(!yes.is_empty() && !no.is_empty());
            let mut both = [yes, no].concat();
            both.sort_unstable();
            assert_eq!(both, all());
        }
    }

    #[test]
    fn and_or_lists_and_parentheses() {
        assert_eq!(kept(""), all());
        assert_eq!(kept(r#"namespace:"train","serve""#), kept(r#"namespace:"train" | namespace:"serve""#));
        assert_eq!(kept(r#"namespace:"train"+cause:"useful""#).len(), 2);
        assert_eq!(
            kept(r#"(namespace:"train" | namespace:"serve") + cause:"useful""#),
            kept(r#"cause:"useful"+(namespace:"serve"|namespace:"train")"#)
        );
        assert_eq!(kept(r#"namespace:"__none__""#), kept(r#"namespace:"__unallocated__""#));
        assert_eq!(kept(r#"provider:"aws""#), kept(r#"provider:"Amazon Web Services""#));
        assert_eq!(kept(r#"label:"app""#), kept(r#"label[app]!:"""#));
        assert_eq!(kept(r#"controllerKind:"JobSet""#), kept(r#"workload<~:"JobSet/""#));
        assert_eq!(kept(r#"namespace:"nobody\"s""#), Vec::<usize>::new());
    }

    #[test]
    fn mistakes_are_pointed_at() {
        for (text, column, message) in [
            ("namespace", 10, "operator"),
            ("namespace:train", 11, "double quotes"),
            ("nmspace:\"a\"", 1, "unknown field"),
            ("container:\"a\"", 1, "use `pod`"),
            ("namespace:\"a\"+cause:\"b\"|class:\"c\"", 24, "parentheses"),
            ("(namespace:\"a\"", 15, "`)`"),
            ("namespace:\"a\")", 14, "end"),
            ("namespace:\"a", 11, "not closed"),
            ("namespace:\"a\\x\"", 13, "backslash"),
            ("namespace[x]:\"a\"", 10, "brackets"),
            ("label[x:\"a\"", 6, "not closed"),
            ("namespace:\"a\",", 15, "double quotes"),
            ("namespace:\"ä\"+", 15, "field"),
        ] {
            let error = Filter::parse(text).unwrap_err();
            assert_eq!(error.column, column, "{error}");
            assert!(error.message.contains(message), "{error}");
        }
        assert_eq!(
            Filter::parse("namespace:train").unwrap_err().to_string(),
            "read filter: column 11: expected a value in double quotes\n    namespace:train\n              ^"
        );
        assert!(Filter::parse(&"(".repeat(1000)).is_err());
        assert!(Filter::parse(&" ".repeat(TEXT_BYTES_MAX + 1)).is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".{0,80}") {
            let _ = Filter::parse(&text);
        }

        #[test]
        fn near_filters_are_read_or_refused(text in r#"(namespace|label\[a\]|label|cause|pod|\(|\)|\+|\||:|!|~|<|>|,|"a"|"|\\| |é){0,24}"#) {
            if let Err(error) = Filter::parse(&text) {
                prop_assert!(error.column <= text.chars().count() + 1);
            }
        }
    }
}
