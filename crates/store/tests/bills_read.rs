//! Bills from disk: the same table as CSV, CSV.gz and Parquet gives the same charges.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::builder::{MapBuilder, StringBuilder, StringDictionaryBuilder};
use arrow_array::types::Int32Type;
use arrow_array::{
    ArrayRef, BooleanArray, Date32Array, Decimal128Array, Float64Array, Int64Array, LargeStringArray, RecordBatch, StringArray,
    TimestampMicrosecondArray, TimestampNanosecondArray,
};
use flate2::Compression;
use flate2::write::GzEncoder;
use gpuledger_ingest::focus::{Assume, BillFile, Deliveries, ScopeState, merge_bills};
use gpuledger_store::bills::read_bill;
use parquet::arrow::ArrowWriter;

const CSV: &str = "\
BilledCost,EffectiveCost,ListCost,BillingAccountId,BillingCurrency,BillingPeriodStart,BillingPeriodEnd,ChargePeriodStart,\
ChargePeriodEnd,ChargeCategory,ServiceProviderName,ResourceId,PricingQuantity,Tags,x_Cores,x_Spot
0.10,0.0000000000001234,0.1,007,USD,2026-10-01,2026-11-01,2026-10-06T08:00:00Z,2026-10-06T09:00:00.5Z,Usage,AWS,i-1,1,\
\"{\"\"team\"\":\"\"a\"\",\"\"live\"\":null}\",8,true
-2.50,12345678901.0000000000005678,1e-7,007,USD,2026-10-01,2026-11-01,2026-10-06T09:00:00Z,2026-10-06T10:00:00Z,Credit,AWS,,-3,,,
";

fn read(path: &Path) -> BillFile {
    read_bill(path, "bill", &Assume::default())
}

fn write(folder: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, bytes).unwrap();
    path
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// The table of [`CSV`] in the types that exports use.
fn batch() -> RecordBatch {
    const DAY: i32 = 20_727; // 2026-10-01
    const HOUR_US: i64 = 3_600_000_000;
    let start_us = i64::from(DAY + 5) * 24 * HOUR_US + 8 * HOUR_US;
    let mut tags = MapBuilder::new(None, StringBuilder::new(), StringBuilder::new());
    tags.keys().append_value("team");
    tags.values().append_value("a");
    tags.keys().append_value("live");
    tags.values().append_null();
    tags.append(true).unwrap();
    tags.append(false).unwrap();
    let mut provider = StringDictionaryBuilder::<Int32Type>::new();
    provider.append_value("AWS");
    provider.append_value("AWS");
    let effective = Decimal128Array::from(vec![1_234, 123_456_789_010_000_000_000_005_678]).with_precision_and_scale(38, 16).unwrap();
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("BilledCost", Arc::new(StringArray::from(vec!["0.10", "-2.50"]))),
        ("EffectiveCost", Arc::new(effective)),
        ("ListCost", Arc::new(Float64Array::from(vec![0.1, 1e-7]))),
        ("BillingAccountId", Arc::new(LargeStringArray::from(vec!["007", "007"]))),
        ("BillingCurrency", Arc::new(StringArray::from(vec!["USD", "USD"]))),
        ("BillingPeriodStart", Arc::new(Date32Array::from(vec![DAY, DAY]))),
        ("BillingPeriodEnd", Arc::new(Date32Array::from(vec![DAY + 31, DAY + 31]))),
        ("ChargePeriodStart", Arc::new(TimestampMicrosecondArray::from(vec![start_us, start_us + HOUR_US]).with_timezone("UTC"))),
        (
            "ChargePeriodEnd",
            Arc::new(TimestampNanosecondArray::from(vec![(start_us + HOUR_US) * 1000 + 500_000_000, (start_us + 2 * HOUR_US) * 1000])),
        ),
        ("ChargeCategory", Arc::new(StringArray::from(vec!["Usage", "Credit"]))),
        ("ServiceProviderName", Arc::new(provider.finish())),
        ("ResourceId", Arc::new(StringArray::from(vec![Some("i-1"), None]))),
        ("PricingQuantity", Arc::new(Int64Array::from(vec![1, -3]))),
        ("Tags", Arc::new(tags.finish())),
        ("x_Cores", Arc::new(Int64Array::from(vec![Some(8), None]))),
        ("x_Spot", Arc::new(BooleanArray::from(vec![Some(true), None]))),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

fn parquet(path: &Path) {
    let batch = batch();
    let mut writer = ArrowWriter::try_new(File::create(path).unwrap(), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

#[test]
fn csv_gzip_and_parquet_give_the_same_charges() {
    let folder = tempfile::tempdir().unwrap();
    let csv = read(&write(folder.path(), "bill.csv", CSV.as_bytes()));
    assert_eq!((csv.charges.len(), csv.rejects.len(), csv.format.as_str()), (2, 0, "focus-1.4"), "{:?}", csv.rejects);
    assert_eq!(csv.charges[0].scope.id(), "AWS/007/2026-10/USD");
    // The name says nothing: gzip without its ending, members joined.
    let (head, tail) = CSV.as_bytes().split_at(300);
    let gz = read(&write(folder.path(), "bill.txt", &[gzip(head), gzip(tail)].concat()));
    assert_eq!(csv.charges, gz.charges);
    assert_eq!(csv.digests, gz.digests);
    assert_ne!(csv.content_id, gz.content_id);

    let path = folder.path().join("bill.csv.parquet");
    parquet(&path);
    let columns = read(&path);
    assert!(columns.rejects.is_empty(), "{:?}", columns.rejects);
    let plain = |file: &BillFile| -> Vec<String> { file.charges.iter().map(|charge| format!("{charge:?}")).collect() };
    // A typed column has one scale for all rows, text has its own: the values are the same, and so the digests.
    assert_eq!(csv.digests, columns.digests);
    for (a, b) in csv.charges.iter().zip(&columns.charges) {
        assert_eq!(a, b, "\n{}\n{}", plain(&csv).join("\n"), plain(&columns).join("\n"));
    }
    let sums = |file: BillFile| {
        let scope = merge_bills(vec![file], Deliveries::Refuse).scopes.remove(0);
        (scope.effective.unwrap().normalized().to_string(), scope.billed, scope.rows)
    };
    assert_eq!(sums(columns.clone()), sums(csv));
    assert_eq!(sums(columns).0, "12345678901.0000000000006912");
}

#[test]
fn a_cut_gzip_refuses_every_scope_of_the_file_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let mut text = CSV.to_owned();
    let row = CSV.lines().nth(2).unwrap().to_owned();
    // Hours that do not compress away, so that the cut falls behind whole rows.
    for i in 0..5000 {
        text.push_str(&row.replace("i-1", &format!("i-{}", i * 7919)).replace("-3,", &format!("{},", i * 104_729)));
        text.push('\n');
    }
    let whole = gzip(text.as_bytes());
    let bill = read(&write(folder.path(), "cut.csv.gz", &whole[..whole.len() - 100]));
    assert!(!bill.charges.is_empty());
    assert!(bill.rejects.iter().any(|r| r.reason.contains("cut")), "{:?}", bill.rejects);
    let bills = merge_bills(vec![bill], Deliveries::Refuse);
    assert!(bills.charges.is_empty());
    assert!(bills.scopes.iter().all(|scope| scope.state == ScopeState::Refused));

    let mut damaged = whole.clone();
    let middle = damaged.len() / 2;
    damaged[middle..middle + 64].fill(0x55);
    let bill = read(&write(folder.path(), "damaged.csv.gz", &damaged));
    assert!(bill.refused.iter().any(|r| r.scope.is_none()), "{:?}", bill.refused);
}

#[test]
fn what_is_no_bill_says_what_it_is() {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes, word) in [
        ("a.zip", &b"PK\x03\x04rest"[..], "ZIP"),
        ("a.zst", &[0x28, 0xb5, 0x2f, 0xfd, 0, 0][..], "zstd"),
        ("a.parquet", &b"PAR1 and no more"[..], "Parquet"),
        ("a.csv.gz", &[0x1f, 0x8b, 8, 0][..], "cut"),
        ("empty.csv", &b""[..], "empty"),
        ("utf16.csv", &[0xff, 0xfe, b'B', 0][..], "UTF-16"),
    ] {
        let bill = read(&write(folder.path(), name, bytes));
        assert!(bill.rejects[0].reason.contains(word), "{name}: {:?}", bill.rejects);
        assert!(bill.charges.is_empty() && bill.refused[0].scope.is_none());
    }
    assert!(read(&folder.path().join("none.csv")).rejects[0].reason.contains("cannot be opened"));
    assert!(read(folder.path()).rejects[0].reason.contains("folder"));
}

#[test]
fn a_damaged_parquet_file_never_panics() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bill.parquet");
    parquet(&path);
    let whole = fs::read(&path).unwrap();
    for at in (4..whole.len()).step_by(whole.len() / 150 + 1) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x5a;
        read(&write(folder.path(), "damaged.parquet", &bytes));
        read(&write(folder.path(), "cut.parquet", &whole[..at]));
    }
}
