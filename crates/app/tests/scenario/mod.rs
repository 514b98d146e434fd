//! Scenario files: read, run, compared.

pub mod bill;
pub mod command;
pub mod expect;
pub mod format;
pub mod inputs;
pub mod kubernetes;
pub mod run;
pub mod telemetry;

use std::path::Path;

use expect::Difference;
use format::{Mistake, Read, words};

/// Runs one scenario in a folder; returns the lines that differ.
pub fn check(text: &str, folder: &Path) -> Vec<Difference> {
    match check_all(text, folder) {
        Ok(differences) => differences,
        Err(Mistake { line, message }) => vec![Difference { line, message: format!("the scenario is wrong: {message}") }],
    }
}

fn check_all(text: &str, folder: &Path) -> Read<Vec<Difference>> {
    let scenario = format::read(text)?;
    let inputs = inputs::gather(&scenario)?;
    let own = folder.join("as-written");
    let run = |inputs: &inputs::Inputs, folder: &Path| -> Read<run::Run> {
        match inputs.write(folder) {
            Ok(()) => run::run(folder, inputs).or_else(|message| format::mistake(0, message)),
            Err(error) => format::mistake(0, format!("the input files were not written: {error}")),
        }
    };
    let needs_ledger =
        scenario.sections.iter().any(|s| s.name.starts_with("expect") && !matches!(s.name.as_str(), "expect report" | "expect bills"));
    if !needs_ledger {
        if let Err(error) = inputs.write(&own) {
            return format::mistake(0, format!("the input files were not written: {error}"));
        }
        let mut differences = Vec::new();
        for section in scenario.sections.iter().filter(|s| s.name.starts_with("expect")) {
            differences.extend(command::check(section, &inputs, &own)?);
        }
        return Ok(differences);
    }
    let first = run(&inputs, &own)?;
    let mut differences = expect::invariants(&first.ledger);
    for section in &scenario.sections {
        differences.extend(match section.name.as_str() {
            "expect postings" => expect::postings(&scenario, section, &first.ledger)?,
            "expect closing" => expect::closing(section, &first.ledger)?,
            "expect totals" => expect::totals(section, &first.ledger)?,
            "expect findings" => expect::findings(section, &first.ledger)?,
            "expect rejects" => expect::rejects(section, &first.rejects)?,
            "expect no rejects" => expect::no_rejects(section, &first.rejects),
            "expect report" | "expect bills" => command::check(section, &inputs, &own)?,
            "expect same" => {
                let mut differences = Vec::new();
                for line in &section.lines {
                    for variation in words(&line.text) {
                        if !inputs::VARIATIONS.contains(&variation.as_str()) {
                            return format::mistake(line.number, format!("no variation `{variation}`"));
                        }
                        let second = run(&inputs.varied(&variation), &folder.join(&variation))?;
                        if let Some(message) = first_change(&first.ledger, &second.ledger) {
                            differences.push(Difference { line: line.number, message: format!("{variation}: {message}") });
                        }
                    }
                }
                differences
            }
            _ => Vec::new(),
        });
    }
    Ok(differences)
}

/// Where two ledgers part, if they do.
fn first_change(first: &gpuledger_model::tables::posting::Ledger, second: &gpuledger_model::tables::posting::Ledger) -> Option<String> {
    for (one, other) in first.postings.iter().zip(&second.postings) {
        if one != other {
            return Some(format!("was {one:?}, is {other:?}"));
        }
    }
    if first.postings.len() != second.postings.len() {
        return Some(format!("{} postings were, {} are", first.postings.len(), second.postings.len()));
    }
    if first.closings != second.closings {
        return Some(format!("closings were {:?}, are {:?}", first.closings, second.closings));
    }
    (first.findings != second.findings).then(|| format!("findings were {:?}, are {:?}", first.findings, second.findings))
}
