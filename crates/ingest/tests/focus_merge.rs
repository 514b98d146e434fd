//! What the files of one run give together: scopes, sums, second deliveries, identities.

use gpuledger_ingest::focus::{Assume, BillFile, Bills, Deliveries, ScopeState, merge_bills, read_csv};
use gpuledger_model::money::Decimal;
use proptest::prelude::*;

const HEADER: &str = "BilledCost,EffectiveCost,BillingAccountId,BillingCurrency,BillingPeriodStart,BillingPeriodEnd,\
ChargePeriodStart,ChargePeriodEnd,ChargeCategory,ProviderName,ListCost,InvoiceId,CommitmentDiscountId,CommitmentDiscountStatus";

/// Money, category, hour and what is behind it.
fn row(billed: &str, effective: &str, category: &str, hour: u32, rest: &str) -> String {
    format!(
        "{billed},{effective},a,USD,2026-10-01T00:00:00Z,2026-11-01T00:00:00Z,2026-10-{:02}T{:02}:00:00Z,\
         2026-10-{:02}T{:02}:59:00Z,{category},AWS,{rest}",
        1 + hour / 24,
        hour % 24,
        1 + hour / 24,
        hour % 24
    )
}

fn file(name: &str, rows: &[String]) -> BillFile {
    let text = format!("{HEADER}\n{}\n", rows.join("\n"));
    let mut file = read_csv(name, text.as_bytes(), &Assume::default());
    file.content_id = text;
    file
}

fn amounts(count: u32) -> Vec<String> {
    (0..count).map(|i| row(&format!("{i}.5"), &format!("{i}.25"), "Usage", i, "1,,,")).collect()
}

fn kinds(bills: &Bills) -> Vec<&str> {
    bills.notices.iter().map(|n| n.kind.as_str()).collect()
}

#[test]
fn sums_are_exact_and_by_category() {
    let rows = [
        row("1.10", "1.10", "Usage", 0, "2.00,I1,,"),
        row("-0.10", "-0.10", "Credit", 0, "9,I1,,"),
        row("0.000000000001", "0.000000000001", "Tax", 0, "9,I2,,"),
        row("5", "0", "Purchase", 0, "9,,,"),
        row("1", "1", "Usage", 1, ",I2,,"),
    ];
    let bills = merge_bills(vec![file("a.csv", &rows)], Deliveries::Refuse);
    let scope = &bills.scopes[0];
    let text = |d: Option<Decimal>| d.unwrap().normalized().to_string();
    assert_eq!(text(scope.billed), "7.000000000001");
    assert_eq!(text(scope.effective), "2.000000000001");
    assert_eq!(text(scope.list), "2");
    assert_eq!(text(scope.tax), "0.000000000001");
    assert_eq!(text(scope.credits), "-0.1");
    assert_eq!((scope.rows, scope.scale, scope.state), (5, 12, ScopeState::Closed));
    let invoices: Vec<(Option<&str>, String)> =
        bills.invoices.iter().map(|i| (i.invoice.as_deref(), i.billed.normalized().to_string())).collect();
    assert_eq!(invoices, [(None, "5".into()), (Some("I1"), "1".into()), (Some("I2"), "1.000000000001".into())]);
    assert!(!kinds(&bills).contains(&"effective_cost_integral"));
}

#[test]
fn identical_files_count_once() {
    let rows = amounts(10);
    let once = merge_bills(vec![file("a.csv", &rows)], Deliveries::Refuse);
    let twice = merge_bills(vec![file("b.csv", &rows), file("a.csv", &rows)], Deliveries::Refuse);
    assert_eq!(once.scopes, twice.scopes);
    assert_eq!(once.charges, twice.charges);
    assert!(kinds(&twice).contains(&"same_file"));
}

#[test]
fn more_than_one_percent_of_common_rows_is_a_second_delivery() {
    let rows = amounts(300);
    let (a, b) = rows.split_at(150);
    let with = |common: usize| {
        let mut second = b.to_vec();
        second.truncate(150 - common);
        second.extend_from_slice(&a[..common]);
        vec![file("a.csv", a), file("b.csv", &second)]
    };
    let one = merge_bills(with(1), Deliveries::Refuse);
    assert_eq!(one.scopes[0].state, ScopeState::Closed, "1 of 150 is below 1 %");
    assert!(kinds(&one).contains(&"repeated_rows"));

    let two = merge_bills(with(2), Deliveries::Refuse);
    assert_eq!((two.scopes[0].state, two.scopes[0].rows), (ScopeState::Refused, 300));
    assert!(two.scopes[0].billed.is_none() && two.charges.is_empty());
    assert!(two.rejects.iter().any(|r| r.reason.contains("--deliveries")));

    let added = merge_bills(with(2), Deliveries::Add);
    assert_eq!((added.scopes[0].state, added.charges.len()), (ScopeState::Closed, 300));
}

#[test]
fn the_latest_delivery_is_the_one_that_reaches_further() {
    let rows = amounts(100);
    let early = file("z-early.csv", &rows[..60]);
    let late = file("a-late.csv", &rows);
    let bills = merge_bills(vec![early, late], Deliveries::Latest);
    assert_eq!((bills.charges.len(), bills.scopes[0].rows), (100, 100));
    assert!(kinds(&bills).contains(&"superseded"));

    // Two deliveries of two files each: the later delivery stays whole.
    let parts = vec![file("1a.csv", &rows[..30]), file("1b.csv", &rows[30..60]), file("2a.csv", &rows[..50]), file("2b.csv", &rows[50..])];
    let bills = merge_bills(parts, Deliveries::Latest);
    assert_eq!(bills.charges.len(), 100);
}

#[test]
fn files_with_other_columns_are_compared_by_what_both_say() {
    let rows = amounts(40);
    let more = format!("{HEADER},Note\n{}\n", rows.iter().map(|r| format!("{r},x")).collect::<Vec<_>>().join("\n"));
    let other = read_csv("b.csv", more.as_bytes(), &Assume::default());
    let bills = merge_bills(vec![file("a.csv", &rows), other], Deliveries::Refuse);
    assert_eq!(bills.scopes[0].state, ScopeState::Refused);
}

#[test]
fn a_refused_scope_is_refused_in_every_file_and_the_others_stay() {
    let good = file("a.csv", &amounts(5));
    let bad = file("b.csv", &[row("$1", "1", "Usage", 200, "1,,,"), row("1", "1", "Usage", 201, "1,,,").replace(",a,", ",b,")]);
    let bills = merge_bills(vec![good, bad], Deliveries::Refuse);
    let states: Vec<(String, ScopeState, u64)> = bills.scopes.iter().map(|s| (s.scope.account.clone(), s.state, s.rows)).collect();
    assert_eq!(states, [("a".into(), ScopeState::Refused, 6), ("b".into(), ScopeState::Closed, 1)]);
    assert_eq!(bills.charges.len(), 1);
    assert!(bills.is_any_refused());
}

#[test]
fn commitments_close_or_are_findings() {
    let rows = [
        row("3.00", "0", "Purchase", 0, "3,,c1,"),
        row("0", "2.50", "Usage", 0, "3,,c1,Used"),
        row("0", "0.50", "Usage", 0, "3,,c1,Unused"),
        row("3.00", "0", "Purchase", 1, "3,,c2,"),
        row("0", "2.75", "Usage", 1, "3,,c2,used"),
        row("0", "1.5", "Usage", 2, "3,,c3,Used"),
    ];
    let bills = merge_bills(vec![file("a.csv", &rows)], Deliveries::Refuse);
    let count = &bills.commitments[0];
    assert_eq!((count.checked, count.closed, count.unchecked), (2, 1, 1));
    let open = bills.notices.iter().find(|n| n.kind == "commitment_not_closed").unwrap();
    assert!(open.subject.ends_with("c2") && open.message.contains("difference -0.25"), "{open:?}");
}

#[test]
fn a_sum_beyond_128_bits_refuses_the_scope_and_names_the_row() {
    let big = "99999999999999999999999999999";
    let rows = [row(big, "1", "Usage", 0, ",,,"), row("1", "0.0000000001", "Usage", 1, ",,,")];
    let mut bills = merge_bills(vec![file("a.csv", &rows)], Deliveries::Refuse);
    let scope = bills.scopes.remove(0);
    assert_eq!(scope.state, ScopeState::Refused);
    assert!(bills.charges.is_empty());
    assert!(bills.rejects.iter().any(|r| r.line == 2 && r.field == "BilledCost" && r.reason.contains("128 bits")));
}

#[test]
fn whole_effective_costs_beside_broken_billed_costs_are_noticed() {
    let whole: Vec<String> = (0..6).map(|i| row("1.14", "1.0", "Usage", i, "1.14,,,")).collect();
    assert!(kinds(&merge_bills(vec![file("a.csv", &whole)], Deliveries::Refuse)).contains(&"effective_cost_integral"));
    let plain: Vec<String> = (0..6).map(|i| row("1.14", "1.14", "Usage", i, "1.14,,,")).collect();
    assert!(!kinds(&merge_bills(vec![file("a.csv", &plain)], Deliveries::Refuse)).contains(&"effective_cost_integral"));
}

fn any_rows() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec((-1000i64..1000, 0u32..12, 0u32..700, 0usize..5), 1..40).prop_map(|rows| {
        let categories = ["Usage", "Purchase", "Tax", "Credit", "Adjustment"];
        let mut out: Vec<String> = rows
            .into_iter()
            .map(|(amount, scale, hour, category)| {
                let money = Decimal { mantissa: i128::from(amount), scale: scale as u8 };
                row(&money.to_string(), &money.to_string(), categories[category], hour, "1,,,")
            })
            .collect();
        out.sort();
        out.dedup();
        out
    })
}

fn without_place(bills: &Bills) -> Vec<String> {
    bills.charges.iter().map(|c| c.content_key()).collect()
}

proptest! {
    /// ING-1: order, split and repetition of files and rows change neither charges nor sums.
    #[test]
    fn ing_1_order_split_and_repeat_of_files_change_nothing(
        rows in any_rows(),
        places in prop::collection::vec((0usize..3, any::<u32>()), 40),
        repeated in 0usize..3,
    ) {
        let whole = merge_bills(vec![file("whole.csv", &rows)], Deliveries::Refuse);
        let mut order: Vec<usize> = (0..rows.len()).collect();
        order.sort_by_key(|i| places[*i].1);
        let parts: Vec<Vec<String>> =
            (0..3).map(|part| order.iter().filter(|i| places[**i].0 == part).map(|i| rows[*i].clone()).collect()).collect();
        let mut files: Vec<BillFile> = parts.iter().enumerate().map(|(i, rows)| file(&format!("part{i}.csv"), rows)).collect();
        files.push(file("again.csv", &parts[repeated]));
        files.rotate_left(repeated);
        let split = merge_bills(files, Deliveries::Refuse);
        prop_assert_eq!(without_place(&whole), without_place(&split));
        prop_assert_eq!(&whole.scopes, &split.scopes);
        prop_assert_eq!(&whole.invoices, &split.invoices);
    }
}
