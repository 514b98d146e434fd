//! What one bill file gives: charges, rejects, refusals, notices.

use gpuledger_ingest::focus::{Assume, BillFile, Dataset, read_csv};
use gpuledger_model::tables::charge::ChargeCategory;
use proptest::prelude::*;

const HEADER: &str = "BilledCost,EffectiveCost,BillingAccountId,BillingCurrency,BillingPeriodStart,BillingPeriodEnd,\
ChargePeriodStart,ChargePeriodEnd,ChargeCategory,ProviderName,ListCost,ConsumedQuantity,Tags,x_Cores";

fn row(billed: &str, effective: &str, account: &str, period: &str) -> String {
    format!(
        "{billed},{effective},{account},USD,{period}-01T00:00:00Z,2026-12-01T00:00:00Z,2026-10-06T08:00:00Z,\
         2026-10-06T09:00:00Z,Usage,AWS,2.5,1,NULL,007"
    )
}

fn read(rows: &[String]) -> BillFile {
    read_text(&format!("{HEADER}\n{}\n", rows.join("\n")))
}

fn read_text(text: &str) -> BillFile {
    read_csv("bill.csv", text.as_bytes(), &Assume::default())
}

fn has_notice(file: &BillFile, kind: &str) -> bool {
    file.notices.iter().any(|notice| notice.kind == kind)
}

#[test]
fn a_row_is_read_exactly_as_delivered() {
    let file = read(&[row("-1.50", "7.21947119616E-7", "000123", "2026-10")]);
    assert_eq!((file.rows, file.rejects.len(), file.refused.len()), (1, 0, 0), "{:?}", file.rejects);
    let charge = &file.charges[0];
    assert_eq!(charge.billed.to_string(), "-1.50");
    assert_eq!(charge.effective.to_string(), "0.000000721947119616");
    assert_eq!(charge.scope.id(), "AWS/000123/2026-10/USD");
    assert_eq!(charge.category, ChargeCategory::Usage);
    assert_eq!(charge.list.unwrap().to_string(), "2.5");
    assert_eq!(charge.tags, None);
    assert_eq!(charge.extra.as_deref(), Some("{\"x_Cores\":\"007\"}"));
    assert_eq!(charge.line, 2);
    assert_eq!((file.kind, file.format.as_str()), (Dataset::CostAndUsage, "focus-1.0"));
}

#[test]
fn an_unreadable_cost_refuses_its_scope_whole_and_names_line_and_field() {
    let file = read(&[
        row("1", "1", "a", "2026-10"),
        row("\"$10,100.00 \"", "1", "a", "2026-10"),
        row("1", "null", "a", "2026-11"),
        row("1", "1", "b", "2026-10"),
        row("NaN", "1", "c", "2026-10"),
    ]);
    assert_eq!(file.charges.len(), 2);
    let refused: Vec<(String, u64, &str)> =
        file.refused.iter().map(|r| (r.scope.as_ref().unwrap().id(), r.line, r.field.as_str())).collect();
    assert_eq!(
        refused,
        [
            ("AWS/a/2026-10/USD".to_owned(), 3, "BilledCost"),
            ("AWS/a/2026-11/USD".to_owned(), 4, "EffectiveCost"),
            ("AWS/c/2026-10/USD".to_owned(), 6, "BilledCost"),
        ]
    );
    assert!(file.rejects.iter().any(|r| r.line == 3 && r.field == "BilledCost" && r.reason.contains("$10,100.00")));
}

#[test]
fn a_row_without_a_scope_refuses_the_file() {
    for bad in [
        row("1", "1", "", "2026-10"),
        row("1", "1", "a", "2026-1x"),
        row("1", "1", "a", "2026-10").replace("USD", "NULL"),
        "1,2,3".to_owned(),
    ] {
        let file = read(&[row("1", "1", "a", "2026-10"), bad.clone()]);
        assert!(file.refused.iter().any(|r| r.scope.is_none() && r.line == 3), "{bad}: {:?}", file.refused);
        assert_eq!(file.charges.len(), 1);
    }
}

#[test]
fn an_unreadable_value_elsewhere_becomes_null_and_is_named() {
    let text = row("1", "1", "a", "2026-10").replace(",2.5,1,NULL,", ",n/a,1,[1],");
    let file = read(&[text]);
    assert!(file.refused.is_empty());
    assert_eq!(file.charges[0].list, None);
    assert_eq!(file.charges[0].tags, None);
    let fields: Vec<&str> = file.rejects.iter().map(|r| r.field.as_str()).collect();
    assert_eq!(fields, ["ListCost", "Tags"]);
}

#[test]
fn categories_in_another_case_or_unknown_are_read_and_noted() {
    let with = |word: &str| read(&[row("1", "1", "a", "2026-10").replace("Usage", word)]);
    assert_eq!(with("tax").charges[0].category, ChargeCategory::Tax);
    assert!(has_notice(&with("tax"), "value_case"));
    for word in ["Refund", "NULL", ""] {
        let file = with(word);
        assert_eq!(file.charges[0].category, ChargeCategory::Usage);
        assert!(has_notice(&file, "category_unknown") && file.refused.is_empty());
    }
}

#[test]
fn a_ragged_row_refuses_the_scope_that_it_surely_belongs_to() {
    let good = row("1", "1", "a", "2026-10");
    let short = good.trim_end_matches(",NULL,007").to_owned();
    let file = read(&[good.clone(), short.clone()]);
    assert_eq!(file.refused.len(), 1);
    assert_eq!(file.refused[0].scope.as_ref().unwrap().account, "a");
    let file = read(&[good.clone(), short.replace(",a,", ",b,")]);
    assert!(file.refused[0].scope.is_none(), "a scope that no whole row has is not believed");
    let file = read(&[format!("{good},,")]);
    assert!(file.refused.is_empty() && has_notice(&file, "trailing_cells"));
}

#[test]
fn marks_line_ends_and_blank_lines_change_nothing() {
    let plain = read(&[row("1", "2", "a", "2026-10"), row("3", "4", "a", "2026-10")]);
    let text = format!("\u{feff}{HEADER}\n\n{}\n\n{}", row("1", "2", "a", "2026-10"), row("3", "4", "a", "2026-10"));
    let odd = read_text(&text.replace('\n', "\r\n"));
    let keys = |file: &BillFile| file.charges.iter().map(|c| c.content_key()).collect::<Vec<_>>();
    assert_eq!(keys(&plain), keys(&odd));
    assert_eq!(plain.digests, odd.digests);
    assert_eq!(odd.charges.iter().map(|c| c.line).collect::<Vec<_>>(), [3, 5]);
}

#[test]
fn the_order_and_the_spelling_of_columns_change_nothing() {
    let file = read_text(
        "x_Cores,billing_currency,BillingAccountId,effectivecost,BilledCost,BillingPeriodStart,BillingPeriodEnd,\
         ChargePeriodStart,ChargePeriodEnd,ChargeCategory,ProviderName,ListCost,ConsumedQuantity,Tags\n\
         007,USD,a,2,1,2026-10-01T00:00:00Z,2026-12-01T00:00:00Z,2026-10-06T08:00:00Z,2026-10-06T09:00:00Z,Usage,AWS,2.5,1,NULL\n",
    );
    let plain = read(&[row("1", "2", "a", "2026-10")]);
    assert_eq!(file.charges[0].content_key(), plain.charges[0].content_key());
    assert_eq!(file.digests, plain.digests);
    assert!(has_notice(&file, "column_name"));
}

#[test]
fn account_and_currency_may_be_assumed_and_that_is_marked() {
    let text =
        format!("{HEADER}\n{}\n", row("1", "2", "a", "2026-10")).replace("BillingAccountId,BillingCurrency,", "").replace(",a,USD,", ",");
    let refused = read_text(&text);
    let fields: Vec<(&str, u64, u64)> = refused.rejects.iter().map(|r| (r.field.as_str(), r.line, r.count)).collect();
    assert_eq!(fields, [("BillingAccountId", 1, 1), ("BillingCurrency", 1, 1)]);
    let assume = Assume::parse("currency=EUR,account=007").unwrap();
    let file = read_csv("bill.csv", text.as_bytes(), &assume);
    assert_eq!(file.charges[0].scope.id(), "AWS/007/2026-10/EUR");
    assert!(has_notice(&file, "assumed") && file.rejects.is_empty());
    assert!(Assume::parse("colour=red").is_err());
}

#[test]
fn clear_errors_for_what_is_no_csv() {
    let utf16: Vec<u8> = HEADER.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let marked: Vec<u8> = [0xff, 0xfe].into_iter().chain(utf16.iter().copied()).collect();
    for (bytes, word) in [
        (marked, "UTF-16"),
        (utf16, "zero bytes"),
        (Vec::new(), "empty"),
        (HEADER.replace(',', ";").into_bytes(), "commas"),
        (b"name,price\nx,1\n".to_vec(), "no dataset of FOCUS"),
    ] {
        let file = read_csv("odd", bytes.as_slice(), &Assume::default());
        assert!(file.rejects[0].reason.contains(word), "{word}: {:?}", file.rejects);
        assert!(file.refused[0].scope.is_none());
    }
}

#[test]
fn bytes_that_are_no_text_are_null_where_no_money_hangs_on_them() {
    let mut bytes = format!("{HEADER}\n").into_bytes();
    bytes.extend(row("1", "2", "a", "2026-10").replace("007", "@").bytes().map(|b| if b == b'@' { 0xe9 } else { b }));
    let file = read_csv("latin", bytes.as_slice(), &Assume::default());
    assert_eq!(file.charges.len(), 1);
    assert_eq!(file.charges[0].extra, None);
    assert_eq!(file.rejects[0].field, "x_Cores");
}

#[test]
fn a_huge_line_is_refused_and_the_rest_read() {
    let mut text = format!("{HEADER}\n{}\n", row("1", "2", "a", "2026-10"));
    text.push('"');
    text.push_str(&"x".repeat(17 << 20));
    text.push_str("\"\n");
    text.push_str(&row("3", "4", "a", "2026-10"));
    let file = read_text(&text);
    assert_eq!((file.rows, file.charges.len()), (3, 2));
    assert_eq!(file.charges[1].line, 4);
    assert!(file.refused.iter().any(|r| r.scope.is_none() && r.line == 3));
}

#[test]
fn repeated_rows_are_counted_and_reported() {
    let file = read(&[row("1", "2", "a", "2026-10"), row("1", "2", "a", "2026-10")]);
    assert_eq!(file.charges.len(), 2);
    assert!(has_notice(&file, "duplicate_rows"));
}

proptest! {
    /// ING-3: every row is a charge or is counted as unread, and nothing panics.
    #[test]
    fn ing_3_any_bytes_under_a_header_are_charges_or_unread(body in prop::collection::vec(any::<u8>(), 0..400)) {
        let mut bytes = format!("{HEADER}\n").into_bytes();
        bytes.extend(body);
        let file = read_csv("any", bytes.as_slice(), &Assume::default());
        let unread: u64 = file.unread.iter().map(|(_, rows)| rows).sum();
        prop_assert_eq!(file.rows, file.charges.len() as u64 + unread);
        prop_assert!(unread == 0 || !file.refused.is_empty());
    }

    #[test]
    fn any_bytes_at_all_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        read_csv("any", bytes.as_slice(), &Assume::default());
    }

    /// Cells of the kinds that bills hold, in any place.
    #[test]
    fn ing_3_any_cells_are_charges_or_unread(cells in prop::collection::vec(prop::sample::select(vec![
        "", "NULL", "1", "-2.50", "1e400", "1E-30", "2026-10-01T00:00:00Z", "4/1/25", "2026-10-01T99:00:00Z", "USD", "\"a,b\"",
        "{}", "\"{\"\"k\"\":true}\"", "Usage", "\"", "9999-12-31", "0000-01-01", "99999999999999999999999999999999999999", "é",
    ]), 0..60)) {
        let rows: Vec<String> = cells.chunks(14).map(|row| row.join(",")).collect();
        let file = read(&rows);
        let unread: u64 = file.unread.iter().map(|(_, rows)| rows).sum();
        prop_assert_eq!(file.rows, file.charges.len() as u64 + unread);
    }
}
