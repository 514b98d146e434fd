//! The tables as Arrow schemas: names, types and nulls of their columns, as they stand in Parquet.
//!
//! Times are milliseconds, money is the text of an exact decimal (each scope has its own scale, and Arrow's decimals
//! have one per column), words of a fixed set are dictionaries. What may be absent is nullable, and nothing else is.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields, Schema};

use super::record::MEASURES;

/// A table's name, and what makes its schema.
pub type Table = (&'static str, fn() -> Schema);

/// Every table by its name.
pub const TABLES: [Table; 17] = [
    ("samples", samples),
    ("windows", windows),
    ("window_signals", window_signals),
    ("units", units),
    ("holdings", holdings),
    ("spans", spans),
    ("machines", machines),
    ("hosts", hosts),
    ("nodes", nodes),
    ("holders", holders),
    ("reservations", reservations),
    ("charges", charges),
    ("rejects", rejects),
    ("notices", notices),
    ("ledger", ledger),
    ("closings", closings),
    ("findings", findings),
];

/// The schema of a table.
pub fn of(table: &str) -> Option<Schema> {
    TABLES.iter().find(|(name, _)| *name == table).map(|(_, schema)| schema())
}

const INT: DataType = DataType::Int64;
const TEXT: DataType = DataType::LargeUtf8;
const FLAG: DataType = DataType::Boolean;
const COUNT: DataType = DataType::UInt32;
const ROW: DataType = DataType::UInt64;
/// The digits of an exact decimal.
const MONEY: DataType = DataType::LargeUtf8;

/// A column that every row has.
fn own(name: &str, kind: DataType) -> Field {
    Field::new(name, kind, false)
}

/// A column that may be absent.
fn may(name: &str, kind: DataType) -> Field {
    Field::new(name, kind, true)
}

/// A word of a fixed set.
fn word() -> DataType {
    DataType::Dictionary(Box::new(COUNT), Box::new(TEXT))
}

fn list(kind: DataType) -> DataType {
    DataType::LargeList(Arc::new(own("element", kind)))
}

fn parts(fields: Vec<Field>) -> DataType {
    DataType::Struct(Fields::from(fields))
}

fn labels() -> DataType {
    DataType::Map(Arc::new(own("entries", parts(vec![own("key", TEXT), own("value", TEXT)]))), false)
}

fn scope() -> DataType {
    parts(vec![own("provider", TEXT), own("account", TEXT), own("period", TEXT), own("currency", TEXT)])
}

/// `samples`: one row per sample of a numbered series.
pub fn samples() -> Schema {
    Schema::new(vec![own("series", COUNT), own("time_ms", INT), own("value", INT)])
}

/// `windows`: one row per window of a unit; a measure that is not covered is absent.
pub fn windows() -> Schema {
    let measure = || parts(["covered_ms", "sum", "sum_squares", "least", "greatest"].map(|name| own(name, INT)).to_vec());
    let mut fields = vec![own("machine", TEXT), own("unit", TEXT), own("from_ms", INT), own("to_ms", INT), own("observed_ms", INT)];
    fields.extend(MEASURES.iter().map(|name| may(name, measure())));
    Schema::new(fields)
}

/// `window_signals`: one row per window of a unit and holder with signals.
pub fn window_signals() -> Schema {
    let mut fields = vec![own("machine", TEXT), own("unit", TEXT), own("from_ms", INT), own("holder", ROW)];
    fields.extend(["running_covered_ms", "running_sum", "cpu_covered_ms", "cpu_sum"].map(|name| own(name, INT)));
    Schema::new(fields)
}

/// `units`: one row per unit and time.
pub fn units() -> Schema {
    Schema::new(vec![
        own("machine", TEXT),
        own("unit", TEXT),
        own("board", TEXT),
        own("kind", TEXT),
        own("from_ms", INT),
        own("to_ms", INT),
        own("share_numerator", ROW),
        own("share_denominator", ROW),
        may("profile", TEXT),
        may("model", TEXT),
    ])
}

/// `holdings`: one row per holder, unit and time.
pub fn holdings() -> Schema {
    Schema::new(vec![
        own("machine", TEXT),
        own("unit", TEXT),
        own("holder", ROW),
        own("holder_key", TEXT),
        own("from_ms", INT),
        own("to_ms", INT),
        own("is_exact", FLAG),
        own("numerator", ROW),
        own("denominator", ROW),
        own("evidence", DataType::UInt8),
        own("confidence", TEXT),
        may("record", TEXT),
    ])
}

/// `spans`: one row per kind and time of a machine or unit.
pub fn spans() -> Schema {
    let mut fields = vec![own("machine", TEXT), own("unit", TEXT), own("kind", TEXT), own("from_ms", INT), own("to_ms", INT)];
    fields.extend(["note", "names"].map(|name| own(name, TEXT)));
    Schema::new(fields)
}

/// `machines`: one row per machine.
pub fn machines() -> Schema {
    Schema::new(vec![own("machine", TEXT), own("identity", TEXT), may("model", TEXT)])
}

/// `hosts`: one row per host of telemetry.
pub fn hosts() -> Schema {
    Schema::new(vec![may("cluster", TEXT), own("name", TEXT), may("last_sample_ms", INT)])
}

/// `nodes`: one row per node as a scheduler or an inventory knows it.
pub fn nodes() -> Schema {
    let resources = list(parts(vec![own("0", TEXT), own("1", COUNT)]));
    Schema::new(vec![
        own("cluster", TEXT),
        own("name", TEXT),
        may("uid", TEXT),
        own("record", word()),
        may("machine_id", TEXT),
        may("cloud", word()),
        may("instance_type", TEXT),
        may("region", TEXT),
        may("from_ms", INT),
        may("to_ms", INT),
        may("capacity_devices", COUNT),
        may("allocatable_devices", COUNT),
        own("replicas", COUNT),
        may("mig_single_profile", TEXT),
        own("mig_resources", resources),
        may("accelerator_model", TEXT),
        own("is_cordoned", FLAG),
        may("cordoned_from_ms", INT),
        may("last_record_ms", INT),
        own("labels", labels()),
    ])
}

/// `holders`: one row per incarnation of work.
pub fn holders() -> Schema {
    let claim = parts(vec![
        own("node", TEXT),
        own("count", COUNT),
        may("mig_profile", TEXT),
        own("device_indices", list(COUNT)),
        own("device_uuids", list(TEXT)),
        may("fraction_ppm", COUNT),
    ]);
    Schema::new(vec![
        own("key", TEXT),
        own("record", word()),
        own("cluster", TEXT),
        may("namespace", TEXT),
        may("account", TEXT),
        may("user", TEXT),
        own("name", TEXT),
        own("uid", TEXT),
        own("claims", list(claim)),
        own("from_ms", INT),
        may("to_ms", INT),
        own("outcome", word()),
        own("run", TEXT),
        own("workload", TEXT),
        own("labels", labels()),
        own("annotations", labels()),
        own("addresses", list(TEXT)),
        own("bandwidth_expected", FLAG),
        own("standby_declared", FLAG),
        own("checkpoints_ms", list(INT)),
        may("resumed_from_ms", INT),
        may("recompute_until_ms", INT),
        may("last_record_ms", INT),
    ])
}

/// `reservations`: one row per reservation of a node.
pub fn reservations() -> Schema {
    let mut fields = vec![own("cluster", TEXT), own("node", TEXT), own("name", TEXT)];
    fields.extend([own("count", COUNT), own("from_ms", INT), may("to_ms", INT)]);
    Schema::new(fields)
}

/// `charges`: one row per bill row.
pub fn charges() -> Schema {
    let mut fields = vec![own("file", TEXT), own("line", ROW), own("scope", scope()), own("cloud", word())];
    fields.extend(["billing_from_ms", "billing_to_ms", "charge_from_ms", "charge_to_ms"].map(|name| own(name, INT)));
    fields.extend([own("category", word()), own("is_correction", FLAG), own("billed", MONEY), own("effective", MONEY)]);
    fields.extend(["list", "contracted"].map(|name| may(name, MONEY)));
    let texts = [
        "invoice_id",
        "invoice_issuer",
        "sub_account_id",
        "service_name",
        "service_category",
        "resource_id",
        "resource_name",
        "resource_type",
        "region_id",
        "availability_zone",
        "sku_id",
        "sku_meter",
        "sku_price_id",
        "sku_price_details",
        "charge_description",
        "pricing_category",
        "pricing_quantity",
        "pricing_unit",
        "consumed_quantity",
        "consumed_unit",
        "commitment_id",
        "commitment_status",
        "commitment_type",
        "capacity_reservation_id",
        "capacity_reservation_status",
        "tags",
        "extra",
    ];
    fields.extend(texts.map(|name| may(name, TEXT)));
    Schema::new(fields)
}

/// `rejects`: one row per reason of a file.
pub fn rejects() -> Schema {
    Schema::new(vec![own("file", TEXT), own("line", ROW), own("field", TEXT), own("reason", TEXT), own("count", ROW)])
}

/// `notices`: one row per oddity.
pub fn notices() -> Schema {
    Schema::new(["kind", "subject", "message"].map(|name| own(name, TEXT)).to_vec())
}

/// `ledger`: one row per pool, hour, device, holder, cause and part.
pub fn ledger() -> Schema {
    let mut fields = vec![own("scope", scope()), own("pool", TEXT), own("hour_ms", INT)];
    fields.extend(["device", "machine", "node", "cluster", "model", "holder"].map(|name| own(name, TEXT)));
    fields.extend([own("cause", word()), own("part", word()), own("amount", MONEY), own("device_ms", INT), own("energy_joules", INT)]);
    fields.extend([own("rule", TEXT), own("confidence", word()), own("state", word()), own("placed_by", word()), own("service", TEXT)]);
    Schema::new(fields)
}

/// `closings`: one row per scope.
pub fn closings() -> Schema {
    let mut fields = vec![own("scope", scope())];
    fields.extend(["bill", "posted", "difference"].map(|name| own(name, MONEY)));
    fields.push(own("state", TEXT));
    Schema::new(fields)
}

/// `findings`: one row per finding.
pub fn findings() -> Schema {
    let mut fields = vec![own("id", TEXT), own("kind", TEXT), may("cause", word()), own("subject", TEXT)];
    fields.extend([may("currency", TEXT), may("amount", MONEY), may("from_ms", INT), may("to_ms", INT), own("confidence", word())]);
    fields.extend(["evidence", "rule", "would_change"].map(|name| own(name, TEXT)));
    Schema::new(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_found_by_its_name_and_no_column_is_named_twice() {
        for (name, schema) in TABLES {
            let names: std::collections::BTreeSet<String> = schema().fields().iter().map(|f| f.name().clone()).collect();
            assert_eq!(names.len(), schema().fields().len(), "{name}");
            assert_eq!(of(name), Some(schema()));
        }
        assert_eq!(of("no such table"), None);
    }
}
