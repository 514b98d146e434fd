//! `== bill`: a table with short column names becomes a FOCUS CSV file.

use std::collections::BTreeMap;

use gpuledger_model::time::format_rfc3339;
use jiff::civil::Date;

use super::format::{Line, Read, Scenario, Section, cells, mistake};

/// A FOCUS file: column names and rows.
#[derive(Clone, Debug)]
pub struct BillFile {
    pub name: String,
    pub columns: Vec<String>,
    pub rows: Vec<Vec<String>>,
}

const REQUIRED: &[&str] = &[
    "BillingAccountId",
    "BillingCurrency",
    "BillingPeriodStart",
    "BillingPeriodEnd",
    "ChargePeriodStart",
    "ChargePeriodEnd",
    "ChargeCategory",
    "BilledCost",
    "EffectiveCost",
    "ProviderName",
    "ServiceName",
    "ServiceCategory",
    "ResourceId",
    "ConsumedQuantity",
    "ConsumedUnit",
];

const SHORT: &[(&str, &str)] = &[
    ("cost", "EffectiveCost"),
    ("billed", "BilledCost"),
    ("list", "ListCost"),
    ("hours", "ConsumedQuantity"),
    ("resource", "ResourceId"),
    ("name", "ResourceName"),
    ("category", "ChargeCategory"),
    ("service", "ServiceName"),
    ("family", "ServiceCategory"),
    ("region", "RegionId"),
    ("class", "ChargeClass"),
    ("currency", "BillingCurrency"),
    ("account", "BillingAccountId"),
    ("provider", "ProviderName"),
];

/// Reads a section.
pub fn read(scenario: &Scenario, section: &Section, name: String) -> Read<BillFile> {
    let Some((head, body)) = section.lines.split_first() else { return mistake(section.line, "an empty bill") };
    let names: Vec<String> = head.text.split('|').map(|name| name.trim().to_string()).collect();
    let mut rows = Vec::new();
    for line in body {
        rows.push(row(scenario, section, line, &names)?);
    }
    let mut columns: Vec<String> = REQUIRED.iter().map(|name| name.to_string()).collect();
    for column in rows.iter().flat_map(|row| row.keys()) {
        if !columns.contains(column) {
            columns.push(column.clone());
        }
    }
    let rows = rows.into_iter().map(|mut row| columns.iter().map(|c| row.remove(c).unwrap_or_default()).collect()).collect();
    Ok(BillFile { name, columns, rows })
}

fn row(scenario: &Scenario, section: &Section, line: &Line, names: &[String]) -> Read<BTreeMap<String, String>> {
    let values = cells(&line.text);
    if values.len() != names.len() {
        return mistake(line.number, format!("{} cells under {} columns", values.len(), names.len()));
    }
    let mut row = BTreeMap::new();
    let mut put = |key: &str, value: String| drop(row.insert(key.to_string(), value));
    for (key, focus) in [("provider", "ProviderName"), ("account", "BillingAccountId"), ("currency", "BillingCurrency")] {
        if let Some(value) = section.options.get(key) {
            put(focus, value.clone());
        }
    }
    put("ChargeCategory", "Usage".into());
    let mut charge_from = None;
    let mut month = None;
    for (name, value) in names.iter().zip(values) {
        let Some(value) = value else { continue };
        match name.as_str() {
            "charge" => {
                let (from, to) = scenario.range(line.number, &value)?;
                charge_from = Some(format_rfc3339(from));
                put("ChargePeriodStart", format_rfc3339(from));
                put("ChargePeriodEnd", format_rfc3339(to));
            }
            "period" => month = Some(value),
            "type" => put("SkuPriceDetails", format!("{{\"InstanceType\":\"{value}\"}}")),
            "commitment" => {
                let Some((id, status)) = value.split_once(':') else {
                    return mistake(line.number, "a commitment is written sp-1:Used or sp-1:Unused");
                };
                put("CommitmentDiscountId", id.into());
                put("CommitmentDiscountStatus", status.into());
            }
            name => {
                let focus = SHORT.iter().find(|short| short.0 == name).map_or(name, |short| short.1);
                if !focus.starts_with("x_") && !focus.starts_with(char::is_uppercase) {
                    return mistake(line.number, format!("no column `{name}`"));
                }
                if name == "hours" {
                    put("ConsumedUnit", "Hours".into());
                }
                put(focus, value);
            }
        }
    }
    let month = month.or_else(|| charge_from.map(|from| from[..7].to_string()));
    if let Some(month) = month {
        let Ok(first) = format!("{month}-01").parse::<Date>() else { return mistake(line.number, format!("`{month}` is no month")) };
        let next = first.last_of_month().tomorrow().expect("a month before the end of time");
        put("BillingPeriodStart", format!("{first}T00:00:00Z"));
        put("BillingPeriodEnd", format!("{next}T00:00:00Z"));
    }
    if !names.iter().any(|name| name == "billed" || name == "BilledCost")
        && let Some(cost) = row.get("EffectiveCost").cloned()
    {
        row.insert("BilledCost".into(), cost);
    }
    if row.get("ChargeCategory").is_some_and(|category| category == "Usage") && !row.contains_key("ServiceCategory") {
        row.insert("ServiceCategory".into(), "Compute".into());
    }
    Ok(row)
}

impl BillFile {
    /// The file's text.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for row in std::iter::once(&self.columns).chain(&self.rows) {
            let cells: Vec<String> = row.iter().map(|cell| quoted(cell)).collect();
            out.push_str(&cells.join(","));
            out.push('\n');
        }
        out
    }
}

fn quoted(cell: &str) -> String {
    if cell.contains([',', '"', '\n']) { format!("\"{}\"", cell.replace('"', "\"\"")) } else { cell.to_string() }
}
