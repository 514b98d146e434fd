//! One file of a bill: from its header and rows to charges, with everything that was refused and why.

use std::collections::BTreeMap;

use gpuledger_model::money::Decimal;
use gpuledger_model::tables::charge::{Charge, Cloud, Scope};
use gpuledger_model::tables::reject::{Notice, Reject};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use super::cell::{Cell, quoted, read_decimal, read_text, read_time};
use super::column::{Dataset, RECOMMENDED, REQUIRED, detect_dataset, detect_format};
use super::remark::{Remarks, Weight};
use super::row::{Layout, note_form};

/// What the user vouches for where a file does not say it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assume {
    /// BillingCurrency.
    pub currency: Option<String>,
    /// BillingAccountId.
    pub account: Option<String>,
}

impl Assume {
    /// Reads `currency=USD,account=X`, either or both.
    pub fn parse(text: &str) -> Result<Assume, String> {
        let mut assume = Assume::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            match part.split_once('=') {
                Some(("currency", value)) if !value.trim().is_empty() => assume.currency = Some(value.trim().to_owned()),
                Some(("account", value)) if !value.trim().is_empty() => assume.account = Some(value.trim().to_owned()),
                _ => return Err(format!("cannot read {}: write currency=USD,account=X", quoted(part))),
            }
        }
        Ok(assume)
    }

    fn value(&self, name: &str) -> Option<&str> {
        match name {
            "BillingCurrency" => self.currency.as_deref(),
            "BillingAccountId" => self.account.as_deref(),
            _ => None,
        }
    }
}

/// A scope, or the whole file, that is not taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The scope; `None` where the row's scope cannot be told, so that every scope of the file is in doubt.
    pub scope: Option<Scope>,
    /// The first line that is at fault; 0 where it is the whole file.
    pub line: u64,
    /// The column at fault; empty for the whole row.
    pub field: String,
    /// Why, and the remedy.
    pub reason: String,
}

/// What one file holds. Charges of refused scopes are still in it: [`super::merge_bills`] leaves them out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BillFile {
    /// The file as the user named it.
    pub file: String,
    /// Which dataset of FOCUS.
    pub kind: Dataset,
    /// `focus-1.0` to `focus-1.4`, by the columns present.
    pub format: String,
    /// The identity of the file's bytes (SHA-256); empty where the caller did not set it.
    pub content_id: String,
    /// The names of its columns, sorted.
    pub columns: Vec<String>,
    /// Its rows, in file order.
    pub charges: Vec<Charge>,
    /// The identity of each charge's row over all its cells, known columns or not.
    pub digests: Vec<u64>,
    /// Data rows seen, refused ones included.
    pub rows: u64,
    /// Rows that are no charge, by scope where it is known.
    pub unread: Vec<(Option<Scope>, u64)>,
    /// Rows and values not taken.
    pub rejects: Vec<Reject>,
    /// What a user should know.
    pub notices: Vec<Notice>,
    /// What is refused whole.
    pub refused: Vec<Refusal>,
}

impl BillFile {
    /// A file of which nothing could be read.
    pub fn unreadable(file: &str, reason: String) -> BillFile {
        let mut remarks = Remarks::new(file);
        remarks.refuse_file(0, "", reason, 0);
        let (rejects, notices, refused) = remarks.finish();
        BillFile {
            file: file.to_owned(),
            kind: Dataset::Unknown,
            format: String::new(),
            content_id: String::new(),
            columns: Vec::new(),
            charges: Vec::new(),
            digests: Vec::new(),
            rows: 0,
            unread: Vec::new(),
            rejects,
            notices,
            refused,
        }
    }
}

/// Takes the rows of one file, in order.
pub struct BillParser {
    file: String,
    kind: Dataset,
    assume: Assume,
    layout: Layout,
    remarks: Remarks,
    charges: Vec<Charge>,
    digests: Vec<u64>,
    rows: u64,
    scope_rows: BTreeMap<Scope, u64>,
    unread: BTreeMap<Option<Scope>, u64>,
    /// Rows with a wrong number of cells, by the scope that they seem to be of: first line, count.
    ragged: BTreeMap<Scope, (u64, u64, usize)>,
    missing: Vec<&'static str>,
}

impl BillParser {
    /// A parser for rows under this header.
    pub fn new(file: &str, header: &[String], assume: &Assume) -> BillParser {
        let kind = detect_dataset(header);
        let layout = Layout::new(header);
        let mut remarks = Remarks::new(file);
        let mut missing = Vec::new();
        if kind == Dataset::CostAndUsage {
            missing = REQUIRED.into_iter().filter(|name| !layout.has(name) && assume.value(name).is_none()).collect();
            note_columns(&layout, assume, &mut remarks);
        }
        BillParser {
            file: file.to_owned(),
            kind,
            assume: assume.clone(),
            layout,
            remarks,
            charges: Vec::new(),
            digests: Vec::new(),
            rows: 0,
            scope_rows: BTreeMap::new(),
            unread: BTreeMap::new(),
            ragged: BTreeMap::new(),
            missing,
        }
    }

    /// Takes one row. A row whose cells are all null is a blank line, not a row.
    pub fn push(&mut self, line: u64, cells: &[Cell<'_>]) {
        if cells.iter().all(Cell::is_null) {
            return;
        }
        self.rows += 1;
        if self.kind != Dataset::CostAndUsage || !self.missing.is_empty() {
            return;
        }
        let width = self.layout.width;
        if cells.len() < width || cells.iter().skip(width).any(|cell| !cell.is_null()) {
            self.push_ragged(line, cells);
            return;
        }
        if cells.len() > width {
            self.remarks.notice("trailing_cells", "", line, || "the row has empty cells beyond the header".to_owned());
        }
        match self.scope(line, cells) {
            Err(faults) => {
                for (field, why) in faults {
                    self.remarks.reject(Weight::File, line, field, &why);
                }
                *self.unread.entry(None).or_default() += 1;
            }
            Ok((scope, billing_from_ms)) => {
                match self.scope_rows.get_mut(&scope) {
                    Some(rows) => *rows += 1,
                    None => {
                        self.scope_rows.insert(scope.clone(), 1);
                    }
                }
                self.push_charge(line, cells, scope, billing_from_ms);
            }
        }
    }

    /// Notes a row that could not be taken apart at all; whose it was is unknown.
    pub fn push_unreadable(&mut self, line: u64, reason: &str) {
        self.rows += 1;
        *self.unread.entry(None).or_default() += 1;
        self.remarks.reject(Weight::File, line, "", reason);
    }

    /// Ends the file early: what follows `line` cannot be read, so no scope of the file can be trusted to close.
    pub fn fail(&mut self, line: u64, reason: String) {
        self.remarks.refuse_file(line, "", reason, 0);
    }

    /// The file.
    pub fn finish(mut self) -> BillFile {
        match self.kind {
            Dataset::Unknown => {
                let reason = "no dataset of FOCUS: its first line names none of FOCUS's columns".to_owned();
                self.remarks.refuse_file(1, "", reason, self.rows);
            }
            Dataset::CostAndUsage => {
                for name in std::mem::take(&mut self.missing) {
                    let remedy = match name {
                        "BillingCurrency" => "; say it with --assume currency=USD",
                        "BillingAccountId" => "; say it with --assume account=X",
                        _ => "; without it no row has an amount and a place",
                    };
                    self.remarks.refuse_file(1, name, format!("required column {name} is missing{remedy}"), self.rows);
                }
                for name in REQUIRED.iter().filter(|name| self.layout.repeated.iter().any(|r| r == *name)) {
                    let reason = format!("column {name} is there more than once: which one counts cannot be told");
                    self.remarks.refuse_file(1, name, reason, self.rows);
                }
                self.settle_ragged();
                self.note_repeated_rows();
                if self.rows == 0 && !self.remarks.is_file_refused() {
                    self.remarks.notice("no_rows", "", 0, || "the file has a header and no rows".to_owned());
                }
            }
            _ => {}
        }
        let (rejects, notices, refused) = self.remarks.finish();
        BillFile {
            file: self.file,
            kind: self.kind,
            format: if self.kind == Dataset::CostAndUsage { detect_format(&self.layout.present) } else { String::new() },
            content_id: String::new(),
            columns: self.layout.names,
            charges: self.charges,
            digests: self.digests,
            rows: self.rows,
            unread: self.unread.into_iter().collect(),
            rejects,
            notices,
            refused,
        }
    }

    /// The scope of a row with its billing period's start, or everything that hides it.
    fn scope(&mut self, line: u64, cells: &[Cell<'_>]) -> Result<(Scope, i64), Vec<(&'static str, String)>> {
        let mut faults = Vec::new();
        let account = self.account_or_currency("BillingAccountId", line, cells, &mut faults);
        let currency = self.account_or_currency("BillingCurrency", line, cells, &mut faults);
        let billing_from_ms = self.time("BillingPeriodStart", line, cells, &mut faults);
        let (Some(account), Some(currency), Some(billing_from_ms)) = (account, currency, billing_from_ms) else {
            return Err(faults);
        };
        if currency.len() != 3 || !currency.bytes().all(|byte| byte.is_ascii_uppercase()) {
            let note = || format!("BillingCurrency {} is not a three-letter code", quoted(&currency));
            self.remarks.notice("currency_form", &currency, line, note);
        }
        let provider = self.layout.provider(cells).unwrap_or_else(|| {
            let note = || "no column names the provider: it is called `unknown`".to_owned();
            self.remarks.notice("provider_missing", "", if self.layout.has_provider() { line } else { 0 }, note);
            "unknown".to_owned()
        });
        Ok((Scope { provider, account, period: month(billing_from_ms), currency }, billing_from_ms))
    }

    fn push_charge(&mut self, line: u64, cells: &[Cell<'_>], scope: Scope, billing_from_ms: i64) {
        let mut faults = Vec::new();
        let billing_to_ms = self.time("BillingPeriodEnd", line, cells, &mut faults);
        let charge_from_ms = self.time("ChargePeriodStart", line, cells, &mut faults);
        let charge_to_ms = self.time("ChargePeriodEnd", line, cells, &mut faults);
        let billed = self.cost("BilledCost", line, cells, &mut faults);
        let effective = self.cost("EffectiveCost", line, cells, &mut faults);
        let (Some(billing_to_ms), Some(charge_from_ms), Some(charge_to_ms), Some(billed), Some(effective)) =
            (billing_to_ms, charge_from_ms, charge_to_ms, billed, effective)
        else {
            for (field, why) in faults {
                self.remarks.reject(Weight::Scope(scope.clone()), line, field, &why);
            }
            *self.unread.entry(Some(scope)).or_default() += 1;
            return;
        };
        let remarks = &mut self.remarks;
        if charge_to_ms <= charge_from_ms {
            remarks.notice("charge_period_empty", "", line, || "the charge period ends where it starts, or before".to_owned());
        } else if charge_to_ms.rem_euclid(60_000) == 59_000 {
            let note = || "the charge period ends at the last second instead of after it; taken as written".to_owned();
            remarks.notice("charge_period_inclusive", "", line, note);
        }
        if billing_to_ms <= billing_from_ms {
            remarks.notice("billing_period_empty", "", line, || "the billing period ends where it starts, or before".to_owned());
        }
        let mut charge = Charge {
            file: self.file.clone(),
            line,
            cloud: Cloud::from_provider_name(&scope.provider),
            scope,
            billing_from_ms,
            billing_to_ms,
            charge_from_ms,
            charge_to_ms,
            category: self.layout.category(cells, line, remarks),
            is_correction: self.layout.is_correction(cells, line, remarks),
            billed,
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
        };
        self.layout.fill(&mut charge, cells, line, remarks);
        self.digests.push(self.layout.digest(cells));
        self.charges.push(charge);
    }

    /// A row with a wrong number of cells is no charge. Its scope is believed only if whole rows have it too:
    /// a stray comma may have moved every cell behind it.
    fn push_ragged(&mut self, line: u64, cells: &[Cell<'_>]) {
        match self.scope(line, cells) {
            Ok((scope, _)) => {
                let entry = self.ragged.entry(scope).or_insert((line, 0, cells.len()));
                entry.1 += 1;
            }
            Err(_) => {
                let reason = format!("the row has {} cells and the header {}", cells.len(), self.layout.width);
                self.remarks.reject(Weight::File, line, "", &reason);
                *self.unread.entry(None).or_default() += 1;
            }
        }
    }

    fn settle_ragged(&mut self) {
        for (scope, (line, count, cell_count)) in std::mem::take(&mut self.ragged) {
            let reason = format!("the row has {cell_count} cells and the header {}", self.layout.width);
            let is_known = self.scope_rows.contains_key(&scope);
            for _ in 0..count {
                let weight = if is_known { Weight::Scope(scope.clone()) } else { Weight::File };
                self.remarks.reject(weight, line, "", &reason);
            }
            *self.unread.entry(is_known.then_some(scope)).or_default() += count;
        }
    }

    fn note_repeated_rows(&mut self) {
        let mut sorted = self.digests.clone();
        sorted.sort_unstable();
        let repeated = sorted.windows(2).filter(|pair| pair.first() == pair.last()).count();
        if repeated > 0 {
            self.remarks.notice("duplicate_rows", "", 0, || {
                format!("{repeated} rows stand digit for digit in the file already; all are counted, as FOCUS asks")
            });
        }
    }

    fn account_or_currency(
        &mut self,
        name: &'static str,
        line: u64,
        cells: &[Cell<'_>],
        faults: &mut Vec<(&'static str, String)>,
    ) -> Option<String> {
        match read_text(self.layout.cell(cells, name)) {
            Ok(Some((text, form))) => {
                note_form(form, name, line, &mut self.remarks);
                Some(text.trim().to_owned())
            }
            Ok(None) => match self.assume.value(name) {
                Some(value) => {
                    if self.layout.has(name) {
                        let note = || format!("{name} is null: {value} is assumed (--assume)");
                        self.remarks.notice("assumed", name, line, note);
                    }
                    Some(value.to_owned())
                }
                None => {
                    faults.push((name, "is null".to_owned()));
                    None
                }
            },
            Err(why) => {
                faults.push((name, why));
                None
            }
        }
    }

    fn time(&mut self, name: &'static str, line: u64, cells: &[Cell<'_>], faults: &mut Vec<(&'static str, String)>) -> Option<i64> {
        let fault = match read_time(self.layout.cell(cells, name)) {
            Ok(Some((time_ms, form))) => {
                note_form(form, name, line, &mut self.remarks);
                return Some(time_ms);
            }
            Ok(None) => "is null".to_owned(),
            Err(why) => why,
        };
        faults.push((name, fault));
        None
    }

    fn cost(&mut self, name: &'static str, line: u64, cells: &[Cell<'_>], faults: &mut Vec<(&'static str, String)>) -> Option<Decimal> {
        let fault = match read_decimal(self.layout.cell(cells, name)) {
            Ok(Some((number, form))) => {
                note_form(form, name, line, &mut self.remarks);
                return Some(number);
            }
            Ok(None) => "is null".to_owned(),
            Err(why) => why,
        };
        faults.push((name, fault));
        None
    }
}

fn note_columns(layout: &Layout, assume: &Assume, remarks: &mut Remarks) {
    for name in REQUIRED.iter().filter(|name| !layout.has(name)) {
        if let Some(value) = assume.value(name) {
            remarks.notice("assumed", name, 0, || format!("{name} is not in the file: {value} is assumed (--assume)"));
        }
    }
    for (name, loss) in RECOMMENDED.iter().filter(|(name, _)| !layout.has(name)) {
        remarks.notice("column_missing", name, 0, || format!("{name} is not in the file: {loss}"));
    }
    for (kind, names, what) in [
        ("column_ignored", &layout.ignored, "columns that FOCUS does not know are not read"),
        ("column_name", &layout.respelled, "columns are spelled otherwise than FOCUS does"),
        ("column_repeated", &layout.repeated, "columns are there more than once; the first counts"),
    ] {
        if !names.is_empty() {
            let shown: Vec<String> = names.iter().take(10).map(|name| quoted(name)).collect();
            let more = if names.len() > 10 { format!(" and {} more", names.len() - 10) } else { String::new() };
            remarks.notice(kind, "", 0, || format!("{what}: {}{more}", shown.join(", ")));
        }
    }
}

/// The UTC month of an instant, `2026-10`.
fn month(time_ms: i64) -> String {
    match Timestamp::from_millisecond(time_ms) {
        Ok(timestamp) => {
            let date = TimeZone::UTC.to_datetime(timestamp).date();
            format!("{:04}-{:02}", date.year(), date.month())
        }
        Err(_) => "0000-00".to_owned(),
    }
}
