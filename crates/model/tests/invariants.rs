//! Each invariant holds of sound tables, and says what is wrong with broken ones.

use std::collections::BTreeMap;

use gpuledger_model::cause::{Cause, Confidence, Part, State};
use gpuledger_model::invariant::{self, Breach};
use gpuledger_model::money::Decimal;
use gpuledger_model::tables::charge::{Charge, ChargeCategory, Cloud, Scope};
use gpuledger_model::tables::posting::{Closing, Ledger, PlacedBy, Posting};
use gpuledger_model::tables::record::{Measure, WindowRow};
use gpuledger_model::tables::reject::Reject;
use gpuledger_model::tables::telemetry::{Column, Field, Host, SeriesKey, Telemetry, Unit};
use gpuledger_model::time::HOUR_MS;

fn scope() -> Scope {
    Scope { provider: "AWS".into(), account: "0012".into(), period: "2026-10".into(), currency: "USD".into() }
}

fn amount(text: &str) -> Decimal {
    text.parse().unwrap()
}

fn posting(cause: Cause, amount: Decimal) -> Posting {
    Posting {
        scope: scope(),
        pool: "row 1".into(),
        hour_ms: 10 * HOUR_MS,
        device: "GPU-a".into(),
        machine: "i-1".into(),
        node: "n".into(),
        cluster: "c".into(),
        model: String::new(),
        holder: String::new(),
        cause,
        part: Part::Idle,
        amount,
        device_ms: 1,
        energy_joules: 0,
        rule: "idle@1".into(),
        confidence: Confidence::High,
        state: State::Reconciled,
        placed_by: PlacedBy::Rows,
        service: String::new(),
    }
}

fn charge(effective: Decimal) -> Charge {
    Charge {
        file: "bill.csv".into(),
        line: 2,
        scope: scope(),
        cloud: Cloud::Aws,
        billing_from_ms: 0,
        billing_to_ms: 720 * HOUR_MS,
        charge_from_ms: 10 * HOUR_MS,
        charge_to_ms: 11 * HOUR_MS,
        category: ChargeCategory::Usage,
        is_correction: false,
        billed: effective,
        effective,
        list: None,
        contracted: None,
        invoice_id: None,
        invoice_issuer: None,
        sub_account_id: None,
        service_name: None,
        service_category: None,
        resource_id: None,
        resource_name: None,
        resource_type: None,
        region_id: None,
        availability_zone: None,
        sku_id: None,
        sku_meter: None,
        sku_price_id: None,
        sku_price_details: None,
        charge_description: None,
        pricing_category: None,
        pricing_quantity: None,
        pricing_unit: None,
        consumed_quantity: None,
        consumed_unit: None,
        commitment_id: None,
        commitment_status: None,
        commitment_type: None,
        capacity_reservation_id: None,
        capacity_reservation_status: None,
        tags: None,
        extra: None,
    }
}

/// One bill row of 36, posted as 20 and 16.
fn sound() -> (Vec<Charge>, Ledger) {
    let closing = Closing {
        scope: scope(),
        bill: amount("36.0000000000"),
        posted: amount("36.0000000000"),
        difference: amount("0.0000000000"),
        state: "closed".into(),
    };
    let postings = vec![posting(Cause::Empty, amount("20.0000000000")), posting(Cause::VramParked, amount("16.0000000000"))];
    (vec![charge(amount("36"))], Ledger { postings, closings: vec![closing], findings: Vec::new() })
}

fn telemetry(times_ms: Vec<i64>, values: Vec<i64>) -> Telemetry {
    let host = Host { cluster: None, name: "n".into() };
    let unit = Unit { uuid: "GPU-a".into(), instance: None };
    let key = SeriesKey { host, unit, field: Field::Engine, producer: "x".into() };
    Telemetry { series: BTreeMap::from([(key, Column { times_ms, values })]), ..Telemetry::default() }
}

fn id(held: invariant::Held) -> &'static str {
    held.map_or_else(|breach: Breach| breach.id, |()| "holds")
}

#[test]
fn model_1_amounts_are_exact_and_of_one_scale() {
    let (_, mut ledger) = sound();
    assert_eq!(invariant::model_1(&ledger), Ok(()));
    ledger.postings[1].amount = amount("16.0");
    assert_eq!(id(invariant::model_1(&ledger)), "MODEL-1");
    let (_, mut ledger) = sound();
    ledger.postings[0].scope.currency.clear();
    assert_eq!(id(invariant::model_1(&ledger)), "MODEL-1");
}

#[test]
fn model_2_hours_are_whole_and_nothing_ends_before_it_starts() {
    let (charges, mut ledger) = sound();
    assert_eq!(invariant::model_2(&charges, &ledger), Ok(()));
    ledger.postings[0].hour_ms += 1;
    assert_eq!(id(invariant::model_2(&charges, &ledger)), "MODEL-2");
    let (mut charges, ledger) = sound();
    charges[0].charge_to_ms = charges[0].charge_from_ms - 1;
    assert_eq!(id(invariant::model_2(&charges, &ledger)), "MODEL-2");
}

#[test]
fn model_3_what_was_not_seen_has_no_row() {
    assert_eq!(invariant::model_3(&telemetry(vec![1], vec![0])), Ok(()));
    assert_eq!(id(invariant::model_3(&telemetry(Vec::new(), Vec::new()))), "MODEL-3");
    assert_eq!(id(invariant::model_3(&telemetry(vec![1, 2], vec![0]))), "MODEL-3");

    let mut window = WindowRow::bare("i-1", "GPU-a", 0, 300_000, 300_000);
    window.engine = Some(Measure { covered_ms: 300_000, sum: 0, sum_squares: 0, least: 0, greatest: 0 });
    assert_eq!(invariant::model_3_windows(std::slice::from_ref(&window)), Ok(()));
    let unseen = Some(Measure { covered_ms: 0, sum: 0, sum_squares: 0, least: 0, greatest: 0 });
    let mean_above = Some(Measure { covered_ms: 1, sum: 3, sum_squares: 9, least: 1, greatest: 2 });
    for measure in [unseen, mean_above] {
        window.engine = measure;
        assert_eq!(id(invariant::model_3_windows(std::slice::from_ref(&window))), "MODEL-3");
    }
    let long = WindowRow::bare("i-1", "GPU-a", 100_000, 400_000, 1);
    assert_eq!(id(invariant::model_3_windows(&[long])), "MODEL-3");
}

#[test]
fn ing_1_times_ascend() {
    assert_eq!(invariant::ing_1(&telemetry(vec![1, 2], vec![0, 0])), Ok(()));
    assert_eq!(id(invariant::ing_1(&telemetry(vec![2, 1], vec![0, 0]))), "ING-1");
    assert_eq!(id(invariant::ing_1(&telemetry(vec![1, 1], vec![0, 0]))), "ING-1");
}

#[test]
fn ing_2_no_sentinel_is_a_value() {
    assert_eq!(invariant::ing_2(&telemetry(vec![1], vec![1_000_000])), Ok(()));
    for value in [-1, 1_000_001, 0x7fff_fff0] {
        assert_eq!(id(invariant::ing_2(&telemetry(vec![1], vec![value]))), "ING-2");
    }
}

#[test]
fn ing_3_rows_are_taken_or_refused_with_a_reason() {
    let reject = Reject { file: "f".into(), line: 1, field: String::new(), reason: "no number".into(), count: 1 };
    assert_eq!(invariant::ing_3(std::slice::from_ref(&reject)), Ok(()));
    assert_eq!(id(invariant::ing_3(&[Reject { reason: String::new(), ..reject.clone() }])), "ING-3");
    assert_eq!(id(invariant::ing_3(&[Reject { count: 0, ..reject }])), "ING-3");
    assert_eq!(invariant::ing_3_rows(3, 2, 1), Ok(()));
    assert_eq!(id(invariant::ing_3_rows(3, 2, 0)), "ING-3");
}

#[test]
fn store_1_store_2_and_store_3_of_a_catalogue() {
    let table = ("charges".to_string(), "a".to_string());
    let batches = BTreeMap::from([("a".to_string(), vec![table.clone()])]);
    let tables = BTreeMap::from([("charges".to_string(), BTreeMap::from([("a".to_string(), 1)]))]);
    let sources = BTreeMap::from([("bill.csv".to_string(), "a".to_string()), ("copy.csv".to_string(), "a".to_string())]);
    assert_eq!(invariant::store_1(&batches, &tables), Ok(()));
    assert_eq!(invariant::store_2(&batches), Ok(()));
    assert_eq!(invariant::store_3(&sources, &batches), Ok(()));

    assert_eq!(id(invariant::store_1(&batches, &BTreeMap::new())), "STORE-1");
    let twice = BTreeMap::from([("a".to_string(), vec![table.clone()]), ("b".to_string(), vec![table])]);
    assert_eq!(id(invariant::store_2(&twice)), "STORE-2");
    assert_eq!(id(invariant::store_3(&sources, &BTreeMap::new())), "STORE-3");
    assert_eq!(id(invariant::store_3(&BTreeMap::new(), &batches)), "STORE-3");
}

#[test]
fn attr_1_sums_are_exact_by_scope_and_by_row() {
    let (charges, ledger) = sound();
    assert_eq!(invariant::attr_1(&charges, &ledger), Ok(()));
    // A digit too much.
    let mut off = ledger.clone();
    off.postings[0].amount.mantissa += 1;
    assert_eq!(id(invariant::attr_1(&charges, &off)), "ATTR-1");
    // The sum is right, and it is not that of the rows.
    let mut moved = ledger.clone();
    moved.postings[0].pool = "row 2".into();
    assert_eq!(id(invariant::attr_1(&charges, &moved)), "ATTR-1");
    // A scope without its proof.
    let open = Ledger { closings: Vec::new(), ..ledger };
    assert_eq!(id(invariant::attr_1(&charges, &open)), "ATTR-1");
    assert_eq!(id(invariant::attr_1(&charges, &Ledger::default())), "ATTR-1");
}

#[test]
fn attr_2_postings_have_one_order() {
    let (_, mut ledger) = sound();
    assert_eq!(invariant::attr_2(&ledger), Ok(()));
    ledger.postings.reverse();
    assert_eq!(id(invariant::attr_2(&ledger)), "ATTR-2");
    ledger.postings[1] = ledger.postings[0].clone();
    assert_eq!(id(invariant::attr_2(&ledger)), "ATTR-2");
}

#[test]
fn attr_3_each_posting_names_its_rule_and_version() {
    let (_, mut ledger) = sound();
    assert_eq!(invariant::attr_3(&ledger), Ok(()));
    ledger.postings[0].rule = "idle".into();
    assert_eq!(id(invariant::attr_3(&ledger)), "ATTR-3");
}

#[test]
fn sim_1_and_sim_2_of_two_worlds() {
    let world = BTreeMap::from([("bills/aws.csv".to_string(), b"1".to_vec())]);
    let other = BTreeMap::from([("bills/aws.csv".to_string(), b"2".to_vec())]);
    assert_eq!(invariant::sim_1(&world, &world.clone()), Ok(()));
    assert_eq!(id(invariant::sim_1(&world, &other)), "SIM-1");
    assert_eq!(id(invariant::sim_1(&world, &BTreeMap::new())), "SIM-1");

    let billed = BTreeMap::from([("USD".to_string(), amount("36"))]);
    assert_eq!(invariant::sim_2(&billed, &BTreeMap::from([("USD".to_string(), amount("36.0000000000"))])), Ok(()));
    assert_eq!(id(invariant::sim_2(&billed, &BTreeMap::new())), "SIM-2");
}
