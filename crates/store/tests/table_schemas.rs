//! What stands in Parquet is what `model` says of each table.

use arrow_schema::{DataType, Field};
use gpuledger_ingest::focus::{Assume, read_csv};
use gpuledger_model::cause::{Cause, Confidence, Part, State};
use gpuledger_model::money::Decimal;
use gpuledger_model::tables::charge::Scope;
use gpuledger_model::tables::placement::{Holder, Node, Reservation};
use gpuledger_model::tables::posting::{Closing, Finding, PlacedBy, Posting};
use gpuledger_model::tables::record::{HoldingRow, HostRow, MachineRow, SignalRow, SpanRow, UnitRow, WindowRow};
use gpuledger_model::tables::reject::{Notice, Reject};
use gpuledger_model::tables::schema;
use gpuledger_store::folder::rows_to_batch;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Columns by name, type and nulls, without the metadata that the writer keeps for itself.
fn columns<'a>(fields: impl IntoIterator<Item = &'a std::sync::Arc<Field>>) -> Vec<(String, String, bool)> {
    fields.into_iter().map(|field| (field.name().clone(), plain(field.data_type()), field.is_nullable())).collect()
}

fn plain(kind: &DataType) -> String {
    match kind {
        DataType::LargeList(of) => format!("list of {:?}", columns([of])),
        DataType::Map(of, _) => format!("map of {:?}", columns([of])),
        DataType::Struct(fields) => format!("{:?}", columns(fields)),
        other => format!("{other:?}"),
    }
}

fn check<T: Serialize + DeserializeOwned>(table: &str, rows: &[T]) {
    let written = rows_to_batch(table, rows).unwrap().schema();
    let said = schema::of(table).unwrap_or_else(|| panic!("model has no schema of {table}"));
    assert_eq!(columns(written.fields()), columns(said.fields()), "{table}");
}

#[test]
fn tables_of_the_record_have_the_columns_that_model_says() {
    check::<WindowRow>("windows", &[]);
    check::<SignalRow>("window_signals", &[]);
    check::<UnitRow>("units", &[]);
    check::<HoldingRow>("holdings", &[]);
    check::<SpanRow>("spans", &[]);
    check::<MachineRow>("machines", &[]);
    check::<HostRow>("hosts", &[]);
}

#[test]
fn tables_of_placements_and_refusals_have_the_columns_that_model_says() {
    check::<Node>("nodes", &[]);
    check::<Holder>("holders", &[]);
    check::<Reservation>("reservations", &[]);
    check::<Reject>("rejects", &[]);
    check::<Notice>("notices", &[]);
}

#[test]
fn tables_of_money_have_the_columns_that_model_says() {
    let bill = "ProviderName,BillingAccountId,BillingCurrency,BillingPeriodStart,BillingPeriodEnd,ChargePeriodStart,ChargePeriodEnd,\
ChargeCategory,BilledCost,EffectiveCost\n\
AWS,0012,USD,2026-10-01T00:00:00Z,2026-11-01T00:00:00Z,2026-10-06T09:00:00Z,2026-10-06T10:00:00Z,Usage,36,36\n";
    check("charges", &read_csv("bill.csv", bill.as_bytes(), &Assume::default()).charges);

    let scope = Scope { provider: "AWS".into(), account: "0012".into(), period: "2026-10".into(), currency: "USD".into() };
    let amount = Decimal { mantissa: 1, scale: 10 };
    check("closings", &[Closing { scope: scope.clone(), bill: amount, posted: amount, difference: amount, state: "closed".into() }]);
    let posting = Posting {
        scope,
        pool: "p".into(),
        hour_ms: 0,
        device: "GPU-a".into(),
        machine: "i-1".into(),
        node: "n".into(),
        cluster: "c".into(),
        model: "H100".into(),
        holder: String::new(),
        cause: Cause::Empty,
        part: Part::Idle,
        amount,
        device_ms: 1,
        energy_joules: 1,
        rule: "empty@1".into(),
        confidence: Confidence::High,
        state: State::Reconciled,
        placed_by: PlacedBy::Rows,
        service: String::new(),
    };
    check("ledger", &[posting]);
    let finding = Finding {
        id: "F-1".into(),
        kind: "waste".into(),
        cause: Some(Cause::Empty),
        subject: "s".into(),
        currency: Some("USD".into()),
        amount: Some(amount),
        from_ms: Some(0),
        to_ms: Some(1),
        confidence: Confidence::Low,
        evidence: "e".into(),
        rule: "empty@1".into(),
        would_change: "w".into(),
    };
    // One row settles the types, one that nothing is required.
    let bare = Finding { id: "F-2".into(), cause: None, currency: None, amount: None, from_ms: None, to_ms: None, ..finding.clone() };
    check("findings", &[finding, bare]);
}
