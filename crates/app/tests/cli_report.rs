//! What a report says of a ledger made by hand: exact JSON and text, and sums that agree whatever is shown.
//!
//! `UPDATE_GOLDEN=1 cargo test -p gpuledger` writes the golden files anew; read the difference before you commit it.

#[path = "../src/report/fixture.rs"]
mod fixture;

use std::collections::BTreeMap;
use std::path::PathBuf;

use gpuledger::filter::Filter;
use gpuledger::render;
use gpuledger::report::dimension::Key;
use gpuledger::report::{InputFile, InvoiceRow, Report, ReportInput, ReportOptions, build};
use gpuledger_ingest::owners::{self, Owners};
use gpuledger_model::money::Decimal;
use gpuledger_model::tables::posting::Ledger;
use gpuledger_model::tables::reject::{Notice, Reject};
use gpuledger_model::time::{HOUR_MS, Window};
use jiff::tz::TimeZone;
use proptest::prelude::*;

const OWNERS: &str = r#"
    [[rule]]
    team = "nlp"
    unit = "research"
    namespace = "train"
    [[rule]]
    team = "platform"
    billing_account = "0042"
"#;

fn options() -> ReportOptions {
    ReportOptions { window: None, by: Vec::new(), filter: None, timezone: TimeZone::UTC }
}

fn report_of(ledger: &Ledger, owners: Option<&Owners>, options: &ReportOptions) -> Report {
    let world = fixture::world();
    let input = |path: &str, kind: &str, rows, rejects| InputFile { path: path.into(), kind: kind.into(), rows, rejects };
    let inputs = [input("bills/aws.csv", "focus", 3, 0), input("telemetry/series.parquet", "parquet series", 10_000, 2)];
    let invoices = [InvoiceRow {
        scope: "Amazon Web Services/000123456789/2026-10/USD".into(),
        invoice: Some("INV-7".into()),
        currency: "USD".into(),
        billed: "197.8000000000".parse().unwrap(),
    }];
    let rejects = [Reject {
        file: "telemetry/series.parquet".into(),
        line: 17,
        field: "DCGM_FI_DEV_POWER_USAGE".into(),
        reason: "a sentinel of the driver, no value".into(),
        count: 2,
    }];
    let notices = [Notice {
        kind: "effective_cost_integral".into(),
        subject: "bills/aws.csv".into(),
        message: "EffectiveCost is a whole number in all 3 rows".into(),
    }];
    let input = ReportInput {
        ledger,
        placements: &world.placements,
        owners,
        inputs: &inputs,
        invoices: &invoices,
        rejects: &rejects,
        notices: &notices,
        is_simulated: false,
    };
    build(&input, options).unwrap()
}

fn report(options: &ReportOptions) -> Report {
    report_of(&fixture::world().ledger, None, options)
}

fn check_golden(name: &str, text: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, text).unwrap();
        return;
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(golden == text, "{name} differs from tests/golden; UPDATE_GOLDEN=1 writes it anew.\n{}", first_difference(&golden, text));
}

fn first_difference(golden: &str, text: &str) -> String {
    for (at, (want, got)) in golden.lines().zip(text.lines()).enumerate() {
        if want != got {
            return format!("line {}:\n- {want}\n+ {got}", at + 1);
        }
    }
    format!("{} lines against {}", golden.lines().count(), text.lines().count())
}

#[test]
fn the_json_form_is_exact() {
    check_golden("report.json", &report(&options()).to_json().unwrap());
}

#[test]
fn the_text_form_is_exact() {
    check_golden("report.txt", &render::table::render(&report(&options())));
}

#[test]
fn owners_window_filter_and_two_keys_in_one_exact_report() {
    let owners = owners::parse("owners.toml", OWNERS.as_bytes()).unwrap();
    let start = fixture::start_ms();
    let options = ReportOptions {
        window: Some(Window::new(start + 1_800_000, start + 25 * HOUR_MS + 60_000)),
        by: vec![Key::Unit, Key::Cause],
        filter: Some(Filter::parse(r#"class!:"neutral""#).unwrap()),
        timezone: TimeZone::get("Europe/Berlin").unwrap(),
    };
    let report = report_of(&fixture::world().ledger, Some(&owners), &options);
    check_golden("report_chosen.json", &report.to_json().unwrap());
    check_golden("report_chosen.txt", &render::table::render(&report));
}

#[test]
fn keys_default_to_teams_with_owners_and_namespaces_without() {
    assert_eq!(report(&options()).by, ["namespace"]);
    let owners = owners::parse("owners.toml", OWNERS.as_bytes()).unwrap();
    let report = report_of(&fixture::world().ledger, Some(&owners), &options());
    assert_eq!(report.by, ["team"]);
    let of =
        |what: &str, currency: &str| report.unknown.iter().find(|r| r.what == what && r.currency == currency).unwrap().amount.to_string();
    // 50 unallocated and 50 of namespace serve have no rule; tax, credit and other services need none.
    assert_eq!(of("unowned", "USD"), "100.000000000000");
    assert_eq!(of("unowned", "EUR"), "17.5000000000");
    assert_eq!(of("estimated", "USD"), "4.000000000000");
    assert_eq!(of("not_in_inventory", "USD"), "2.500000000000");
}

#[test]
fn an_empty_ledger_gives_an_empty_report() {
    let ledger = Ledger::default();
    let report = report_of(&ledger, None, &options());
    assert!(report.totals.is_empty() && report.groups.is_empty() && report.window.from.is_none());
    assert!(render::table::render(&report).contains("no postings"));
}

#[test]
fn a_window_outside_the_data_says_where_the_data_are() {
    let report = report(&ReportOptions { window: Some(Window::new(0, HOUR_MS)), ..options() });
    assert!(report.totals.is_empty());
    assert!(report.notes.iter().any(|n| n.contains("the data reach from 2026-10-06T00:00:00Z")), "{:?}", report.notes);
    assert_eq!(report.closing.len(), 4);
}

#[test]
fn an_overflow_is_an_error_that_names_the_currency() {
    let mut ledger = fixture::world().ledger;
    ledger.postings[0].amount = Decimal { mantissa: i128::MAX, scale: 10 };
    let world = fixture::world();
    let input = ReportInput {
        ledger: &ledger,
        placements: &world.placements,
        owners: None,
        inputs: &[],
        invoices: &[],
        rejects: &[],
        notices: &[],
        is_simulated: false,
    };
    assert!(build(&input, &options()).unwrap_err().to_string().contains("USD"));
}

#[test]
fn the_page_stands_alone_and_escapes_what_it_shows() {
    let mut world = fixture::world();
    for finding in &mut world.ledger.findings {
        finding.subject = "<script>alert('x')</script>".into();
    }
    world.ledger.postings[0].scope.currency = "U<S>".into();
    let by = vec![Key::Machine];
    world.ledger.postings[1].machine = "\"><img src=x>".into();
    let report = report_of(&world.ledger, None, &ReportOptions { by, ..options() });
    let page = render::html::render(&report);
    for part in ["What is not known", "Proof: postings = bill", "<svg", "prefers-color-scheme", "Dollars by machine", "&lt;script&gt;"] {
        assert!(page.contains(part), "{part}");
    }
    for part in ["http:", "https:", "//", "<script", "<img", "@import", "url(http", "U<S>", "Simulated data"] {
        assert!(!page.contains(part), "{part}");
    }
}

#[test]
fn simulated_data_say_so_everywhere() {
    let world = fixture::world();
    let input = ReportInput {
        ledger: &world.ledger,
        placements: &world.placements,
        owners: None,
        inputs: &[],
        invoices: &[],
        rejects: &[],
        notices: &[],
        is_simulated: true,
    };
    let report = build(&input, &options()).unwrap();
    assert!(report.notes[0].contains("simulated"));
    assert!(render::html::render(&report).contains("Simulated data."));
    assert!(render::table::render(&report).contains("SIMULATED DATA"));
    assert!(report.to_json().unwrap().contains("\"simulated\": true"));
}

fn sums<'a>(rows: impl Iterator<Item = (&'a str, Decimal)>) -> BTreeMap<String, Decimal> {
    let mut sums: BTreeMap<String, Decimal> = BTreeMap::new();
    for (currency, amount) in rows {
        let sum = sums.entry(currency.to_string()).or_insert(Decimal::ZERO);
        *sum = sum.checked_add(amount).unwrap();
    }
    sums
}

/// Every view of what is shown has the same sum, per currency.
fn check_sums(report: &Report) {
    let totals = sums(report.totals.iter().map(|r| (r.currency.as_str(), r.amount)));
    assert_eq!(sums(report.causes.iter().map(|r| (r.currency.as_str(), r.amount))), totals);
    assert_eq!(sums(report.groups.iter().map(|r| (r.currency.as_str(), r.amount))), totals);
    assert_eq!(sums(report.timeline.iter().map(|r| (r.currency.as_str(), r.amount))), totals);
    let parts = |r: &gpuledger::report::ConfidenceAmounts| r.high.checked_add(r.medium).unwrap().checked_add(r.low).unwrap();
    for row in &report.causes {
        assert_eq!(parts(&row.confidence), row.amount);
    }
    for row in &report.groups {
        let by_cause = row.causes.iter().fold(Decimal::ZERO, |sum, c| sum.checked_add(c.amount).unwrap());
        assert_eq!(by_cause, row.amount);
        assert_eq!(row.key.0.len(), report.by.len());
    }
}

fn keys() -> Vec<Key> {
    let names = [
        "cause",
        "class",
        "team",
        "unit",
        "namespace",
        "account",
        "billing_account",
        "run",
        "workload",
        "machine",
        "device",
        "model",
        "cluster",
        "provider",
        "label:app",
        "label:none",
    ];
    names.iter().map(|name| name.parse().unwrap()).collect()
}

#[test]
fn causes_and_groups_sum_to_the_totals_for_every_pair_of_keys() {
    let owners = owners::parse("owners.toml", OWNERS.as_bytes()).unwrap();
    for first in keys() {
        for second in keys().into_iter().chain([first.clone()]) {
            let by = if first == second { vec![first.clone()] } else { vec![first.clone(), second] };
            let report = report_of(&fixture::world().ledger, Some(&owners), &ReportOptions { by, ..options() });
            assert_eq!(report.totals[1].amount.to_string(), "205.300000000001");
            check_sums(&report);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn app_3_sums_agree_and_order_leaves_no_trace(
        amounts in prop::collection::vec((any::<i64>(), 8u8..14, 0i64..60, 0usize..15), 1..60),
        pair in (0usize..16, 0usize..16),
        window in prop::option::of((0i64..70, 1i64..70)),
        filter in prop::sample::select(vec!["", r#"namespace:"train""#, r#"cause!:"empty"+cluster:"east""#, r#"provider:"aws"|account:"""#]),
        seed in any::<u64>(),
    ) {
        let templates = fixture::world().ledger.postings;
        let mut ledger = Ledger::default();
        for (mantissa, scale, hour, template) in amounts {
            let mut posting = templates[template].clone();
            posting.amount = Decimal { mantissa: i128::from(mantissa), scale };
            posting.hour_ms = fixture::start_ms() + hour * HOUR_MS;
            ledger.postings.push(posting);
        }
        let mut by = vec![keys()[pair.0].clone(), keys()[pair.1].clone()];
        by.dedup();
        let start = fixture::start_ms();
        let options = ReportOptions {
            window: window.map(|(from, hours)| Window::new(start + from * HOUR_MS + 1, start + (from + hours) * HOUR_MS - 1)),
            by,
            filter: Some(Filter::parse(filter).unwrap()),
            timezone: TimeZone::get("America/New_York").unwrap(),
        };
        let report = report_of(&ledger, None, &options);
        check_sums(&report);

        let mut shuffled = ledger.clone();
        let length = shuffled.postings.len();
        for at in 0..length {
            shuffled.postings.swap(at, (seed as usize).wrapping_mul(at + 7) % length);
        }
        prop_assert_eq!(report_of(&shuffled, None, &options).to_json().unwrap(), report.to_json().unwrap());
    }
}
