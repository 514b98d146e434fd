//! `== expect report` and `== expect bills`: runs the program as a user does and looks into its JSON.

use std::path::Path;
use std::process::Command;

use gpuledger_model::money::Decimal;
use serde_json::Value;

use super::expect::{Difference, expression};
use super::format::{Read, Section, mistake, words};
use super::inputs::Inputs;

/// Runs `gpuledger report` or `gpuledger bills` on the files of a folder and checks the lines of a section.
pub fn check(section: &Section, inputs: &Inputs, folder: &Path) -> Read<Vec<Difference>> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpuledger"));
    if section.name == "expect bills" {
        command.arg("bills").arg(folder.join("bills"));
        if let Some(assume) = inputs.options.get("assume") {
            command.arg("--assume").arg(assume);
        }
    } else {
        command.arg("report");
        for kind in ["bills", "telemetry", "placements"] {
            for path in inputs.paths(folder, kind) {
                command.arg(format!("--{kind}")).arg(path);
            }
        }
        for (flag, file) in [("prices", "prices.csv"), ("owners", "owners.toml"), ("mapping", "mapping.csv")] {
            if folder.join(file).exists() {
                command.arg(format!("--{flag}")).arg(folder.join(file));
            }
        }
        if let Some(cluster) = inputs.only_cluster() {
            command.arg("--cluster").arg(cluster);
        }
        for (key, value) in &inputs.options {
            command.arg(format!("--{}", key.replace('_', "-"))).arg(value);
        }
    }
    let output = match command.args(["--format", "json"]).args(words(&section.head)).output() {
        Ok(output) => output,
        Err(error) => return mistake(section.line, format!("the program did not run: {error}")),
    };
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let json: Value = serde_json::from_str(&stdout).unwrap_or(Value::Null);
    let mut differences = Vec::new();
    for line in &section.lines {
        let (path, operator, want) = match (line.text.split_once(" = "), line.text.split_once(" ~ ")) {
            (Some((path, want)), _) => (path.trim(), '=', want.trim()),
            (None, Some((path, want))) => (path.trim(), '~', want.trim()),
            _ => return mistake(line.number, "write `path = value` or `path ~ part of it`"),
        };
        let got = match path {
            "exit" => output.status.code().map(|code| code.to_string()),
            "stderr" => Some(stderr.to_string()),
            "stdout" => Some(stdout.to_string()),
            path => look_up(&json, path),
        };
        let is_equal = match (&got, operator) {
            (None, _) => want == "missing",
            (Some(got), '~') => got.contains(want),
            (Some(got), _) => {
                let want = want.trim_matches('"');
                got == want || matches!((got.parse::<Decimal>(), expression(line.number, want)), (Ok(a), Ok(b)) if a == b)
            }
        };
        if !is_equal {
            let got = got.unwrap_or_else(|| "missing".into());
            differences.push(Difference { line: line.number, message: format!("{path} | expected {operator} {want}, got {got}") });
        }
    }
    if !differences.is_empty() && json.is_null() {
        differences.push(Difference { line: section.line, message: format!("the program said: {}", stderr.trim()) });
    }
    Ok(differences)
}

/// `totals[0].amount`, `causes[cause=useful].amount`, `inputs.length`, `groups[key.namespace=train].amount`.
fn look_up(json: &Value, path: &str) -> Option<String> {
    let mut at = json;
    let mut rest = path;
    while !rest.is_empty() {
        if let Some(inside) = rest.strip_prefix('[') {
            let (selector, after) = inside.split_once(']')?;
            let rows = at.as_array()?;
            at = match selector.parse::<usize>() {
                Ok(index) => rows.get(index)?,
                Err(_) => rows.iter().find(|row| {
                    selector
                        .split(',')
                        .all(|condition| condition.split_once('=').is_some_and(|(key, want)| look_up(row, key).as_deref() == Some(want)))
                })?,
            };
            rest = after.strip_prefix('.').unwrap_or(after);
            continue;
        }
        let end = rest.find(['.', '[']).unwrap_or(rest.len());
        let key = &rest[..end];
        rest = rest[end..].strip_prefix('.').unwrap_or(&rest[end..]);
        if key == "length" && (at.is_array() || at.is_object()) {
            return Some(at.as_array().map_or_else(|| at.as_object().map_or(0, |o| o.len()), Vec::len).to_string());
        }
        at = at.get(key)?;
    }
    Some(match at {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    })
}
