//! The public files of FOCUS, where they are at hand (`GPULEDGER_SHARED`, or `../shared` beside the repository).

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::PathBuf;

use gpuledger_ingest::focus::{Assume, BillFile, Dataset, Deliveries, ScopeState, merge_bills, read_csv};
use gpuledger_model::money::Decimal;

fn folder() -> Option<PathBuf> {
    let shared = std::env::var_os("GPULEDGER_SHARED")
        .map(PathBuf::from)
        .unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared"));
    let folder = shared.join("data/billing/focus");
    if !folder.is_dir() {
        println!("skipped: no {}", folder.display());
        return None;
    }
    Some(folder)
}

fn read(path: PathBuf, assume: &Assume) -> BillFile {
    let name = path.file_name().unwrap().to_string_lossy().into_owned();
    read_csv(&name, File::open(path).unwrap(), assume)
}

#[test]
fn the_public_sample_loads_closes_and_warns_of_rounded_costs() {
    let Some(folder) = folder() else { return };
    let file = read(folder.join("focus_1_0_sample_1000.csv"), &Assume::default());
    assert_eq!((file.rows, file.charges.len(), file.refused.len()), (1000, 1000, 0), "{:?}", file.rejects);
    assert_eq!(file.format, "focus-1.0");
    let bills = merge_bills(vec![file], Deliveries::Refuse);
    let mut billed: BTreeMap<&str, Decimal> = BTreeMap::new();
    for scope in &bills.scopes {
        assert_eq!(scope.state, ScopeState::Closed);
        let sum = billed.entry(&scope.scope.provider).or_insert(Decimal::ZERO);
        *sum = sum.checked_add(scope.billed.unwrap()).unwrap();
    }
    let billed: Vec<(&str, String)> = billed.into_iter().map(|(p, d)| (p, d.normalized().to_string())).collect();
    assert_eq!(billed, [("AWS", "18.0066386184".into()), ("Microsoft", "1.97651418586".into()), ("Oracle", "0.53707392473".into())]);
    let about = |kind: &str| -> Vec<&str> { bills.notices.iter().filter(|n| n.kind == kind).map(|n| n.subject.as_str()).collect() };
    assert_eq!(about("effective_cost_integral"), ["AWS", "Oracle"]);
    let negative = bills.notices.iter().find(|n| n.kind == "negative_usage").unwrap();
    assert!(negative.subject.starts_with("Microsoft/") && negative.message.starts_with("12 "), "{negative:?}");
    assert!(bills.notices.iter().any(|n| n.kind == "value_case" && n.message.contains("Usage-based")));
}

#[test]
fn generated_cost_files_close_with_every_commitment() {
    let Some(folder) = folder() else { return };
    for (name, format, commitments) in [
        ("focus_1_2_cost_and_usage_aws.csv", "focus-1.2", 21),
        ("focus_1_3_cost_and_usage_aws.csv", "focus-1.3", 27),
        ("focus_1_3_cost_and_usage_azure.csv", "focus-1.3", 26),
        ("focus_1_3_cost_and_usage_gcp.csv", "focus-1.3", 28),
        ("focus_1_4_bundle/synthetic_focus_1_4_cost_and_usage.csv", "focus-1.4", 27),
    ] {
        let file = read(folder.join("generated").join(name), &Assume::default());
        assert_eq!(file.format, format, "{name}");
        assert!(file.rejects.is_empty(), "{name}: {:?}", file.rejects);
        let rows = file.rows;
        let bills = merge_bills(vec![file], Deliveries::Refuse);
        assert!(!bills.is_any_refused());
        assert_eq!(bills.charges.len() as u64, rows);
        let checked: u64 = bills.commitments.iter().map(|c| c.checked).sum();
        let closed: u64 = bills.commitments.iter().map(|c| c.closed).sum();
        let unchecked: u64 = bills.commitments.iter().map(|c| c.unchecked).sum();
        assert_eq!((checked, closed, unchecked), (commitments, commitments, 0), "{name}");
    }
    for (name, kind) in [
        ("focus_1_3_contract_commitment_aws.csv", Dataset::ContractCommitment),
        ("focus_1_4_bundle/synthetic_focus_1_4_invoice_detail.csv", Dataset::InvoiceDetail),
        ("focus_1_4_bundle/synthetic_focus_1_4_billing_period.csv", Dataset::BillingPeriod),
    ] {
        let file = read(folder.join("generated").join(name), &Assume::default());
        assert_eq!(file.kind, kind);
        assert!(file.rows > 0 && file.charges.is_empty() && file.refused.is_empty(), "{name}");
        assert_eq!(merge_bills(vec![file], Deliveries::Refuse).datasets.len(), 1);
    }
}

#[test]
fn the_same_month_in_two_versions_is_a_second_delivery() {
    let Some(folder) = folder() else { return };
    let of = |name: &str| read(folder.join("generated").join(name), &Assume::default());
    let files = || vec![of("focus_1_3_cost_and_usage_aws.csv"), of("focus_1_4_bundle/synthetic_focus_1_4_cost_and_usage.csv")];
    let bills = merge_bills(files(), Deliveries::Refuse);
    assert!(bills.scopes.iter().all(|scope| scope.state == ScopeState::Refused), "{:?}", bills.scopes);
    let bills = merge_bills(files(), Deliveries::Latest);
    assert_eq!(bills.charges.len(), 400);
}

#[test]
fn the_examples_of_the_specification_load_or_say_why_not() {
    let Some(folder) = folder() else { return };
    let (mut plain, mut assumed, mut refused) = (0, 0, 0);
    let mut names: Vec<PathBuf> = fs::read_dir(folder.join("spec_examples")).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    let assume = Assume::parse("currency=USD,account=000-00-000").unwrap();
    for path in names {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let file = read(path.clone(), &Assume::default());
        let (rows, fields): (u64, Vec<String>) = (file.rows, file.rejects.iter().map(|r| r.field.clone()).collect());
        let bills = merge_bills(vec![file], Deliveries::Refuse);
        if !bills.is_any_refused() {
            plain += 1;
            assert!(rows > 0 && bills.charges.len() as u64 == rows, "{name}");
            continue;
        }
        assert!(bills.charges.is_empty(), "{name}");
        if fields == ["BillingAccountId", "BillingCurrency"] {
            assumed += 1;
            let file = read(path, &assume);
            let rows = file.rows;
            let bills = merge_bills(vec![file], Deliveries::Refuse);
            assert!(!bills.is_any_refused(), "{name}: {:?}", bills.rejects);
            assert_eq!(bills.charges.len() as u64, rows, "{name}");
            assert!(bills.notices.iter().any(|n| n.kind == "assumed"));
        } else {
            refused += 1;
            assert!(bills.scopes.iter().all(|s| s.state == ScopeState::Refused && !s.reasons.is_empty()), "{name}");
            for field in ["BilledCost", "EffectiveCost"] {
                assert!(bills.rejects.iter().any(|r| r.file == name && r.line == 2 && r.field == field), "{name}");
            }
        }
    }
    assert_eq!((plain, assumed, refused), (10, 11, 5));
}
