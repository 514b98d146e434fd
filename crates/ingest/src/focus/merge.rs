//! The bills of one run: files put together, scopes closed or refused, and their sums.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use gpuledger_model::money::{Decimal, SCOPE_SCALE_MIN};
use gpuledger_model::tables::charge::{Charge, ChargeCategory, Scope};
use gpuledger_model::tables::reject::{Notice, Reject};
use serde::{Deserialize, Serialize};

use super::check::{self, CommitmentCount};
use super::column::Dataset;
use super::delivery::{Part, overlaps, superseded};
use super::parse::BillFile;

/// What to do with a scope that seems to be delivered twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Deliveries {
    /// Refuse it until the user says which.
    #[default]
    Refuse,
    /// They are different rows: add them.
    Add,
    /// The later delivery replaces the earlier: the one whose usage reaches further, then the one with more rows,
    /// then the one with the greater name.
    Latest,
}

impl FromStr for Deliveries {
    type Err = String;

    fn from_str(text: &str) -> Result<Deliveries, String> {
        match text {
            "refuse" => Ok(Deliveries::Refuse),
            "add" => Ok(Deliveries::Add),
            "latest" => Ok(Deliveries::Latest),
            other => Err(format!("`{other}` is none of refuse, add, latest")),
        }
    }
}

/// Whether a scope is in the charges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScopeState {
    /// All its rows were read and its sums are exact.
    Closed,
    /// None of its rows is taken.
    Refused,
}

impl ScopeState {
    /// The word used in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            ScopeState::Closed => "closed",
            ScopeState::Refused => "refused",
        }
    }
}

/// A scope and its sums. The sums of a refused scope are absent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScopeSummary {
    /// The scope.
    pub scope: Scope,
    /// `focus-1.x`; several joined by `+`.
    pub format: String,
    /// Closed or refused.
    pub state: ScopeState,
    /// Source rows, the unread ones of a refused scope included.
    pub rows: u64,
    /// Sum of BilledCost over all rows.
    pub billed: Option<Decimal>,
    /// Sum of EffectiveCost over all rows.
    pub effective: Option<Decimal>,
    /// Sum of ListCost over Usage rows; absent when none has one.
    pub list: Option<Decimal>,
    /// The part of `billed` in Tax rows.
    pub tax: Option<Decimal>,
    /// The part of `billed` in Credit rows.
    pub credits: Option<Decimal>,
    /// The largest number of decimals in the rows' costs, at least 10: the scale of the scope's postings.
    pub scale: u8,
    /// Why it is refused.
    pub reasons: Vec<String>,
}

/// BilledCost per invoice of a scope.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InvoiceSummary {
    /// The scope.
    pub scope: Scope,
    /// InvoiceId; `None` for rows of a scope with invoices that are on none yet.
    pub invoice: Option<String>,
    /// Sum of BilledCost.
    pub billed: Decimal,
}

/// A file of another FOCUS dataset: recognised and listed, no money.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DatasetSummary {
    /// The file.
    pub file: String,
    /// Which dataset.
    pub kind: Dataset,
    /// Its rows.
    pub rows: u64,
}

/// All bills of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bills {
    /// The rows of closed scopes, ordered by content, so that neither the order of files nor their split shows.
    pub charges: Vec<Charge>,
    /// Every scope seen.
    pub scopes: Vec<ScopeSummary>,
    /// What was not taken.
    pub rejects: Vec<Reject>,
    /// What a user should know.
    pub notices: Vec<Notice>,
    /// Sums per invoice.
    pub invoices: Vec<InvoiceSummary>,
    /// Commitment identities.
    pub commitments: Vec<CommitmentCount>,
    /// Other datasets of FOCUS.
    pub datasets: Vec<DatasetSummary>,
    /// Files of which no row could be given a scope for certain.
    pub refused_files: Vec<String>,
}

impl Bills {
    /// Whether anything was refused whole.
    pub fn is_any_refused(&self) -> bool {
        !self.refused_files.is_empty() || self.scopes.iter().any(|scope| scope.state == ScopeState::Refused)
    }
}

/// Puts the files of a run together.
pub fn merge_bills(files: Vec<BillFile>, deliveries: Deliveries) -> Bills {
    let mut bills = Bills::default();
    let files = distinct_files(files, &mut bills.notices);
    let mut books: BTreeMap<Scope, Book> = BTreeMap::new();
    for file in &files {
        bills.rejects.extend(file.rejects.iter().cloned());
        bills.notices.extend(file.notices.iter().cloned());
        if matches!(file.kind, Dataset::ContractCommitment | Dataset::InvoiceDetail | Dataset::BillingPeriod) {
            bills.datasets.push(DatasetSummary { file: file.file.clone(), kind: file.kind, rows: file.rows });
        }
        if file.refused.iter().any(|refusal| refusal.scope.is_none()) {
            bills.refused_files.push(file.file.clone());
        }
        open_books(file, &mut books);
    }
    let dropped = settle_deliveries(&files, &mut books, deliveries, &mut bills);
    for (at, file) in files.into_iter().enumerate() {
        for charge in file.charges {
            if dropped.get(&charge.scope).is_some_and(|parts| parts.contains(&at)) {
                continue;
            }
            if books.get(&charge.scope).is_some_and(|book| book.reasons.is_empty()) {
                bills.charges.push(charge);
            }
        }
    }
    bills.charges.sort_by(by_content);
    close(&mut bills, books);

    let (counts, notices) = check::commitments(&bills.charges);
    bills.commitments = counts;
    bills.notices.extend(notices);
    bills.notices.extend(check::amounts(&bills.charges));
    bills.rejects.sort();
    bills.notices.sort();
    bills.notices.dedup();
    bills.datasets.sort();
    bills
}

/// What is known of a scope before its rows are summed.
#[derive(Default)]
struct Book {
    rows: u64,
    formats: BTreeSet<String>,
    reasons: BTreeSet<String>,
}

/// One of each content, in the order of names.
fn distinct_files(mut files: Vec<BillFile>, notices: &mut Vec<Notice>) -> Vec<BillFile> {
    files.sort_by(|a, b| (&a.file, &a.content_id).cmp(&(&b.file, &b.content_id)));
    let mut first_by_content: BTreeMap<String, String> = BTreeMap::new();
    files.retain(|file| {
        if file.content_id.is_empty() {
            return true;
        }
        match first_by_content.get(&file.content_id) {
            None => {
                first_by_content.insert(file.content_id.clone(), file.file.clone());
                true
            }
            Some(first) => {
                if *first != file.file {
                    let message = format!("byte for byte the same as {first}: counted once");
                    notices.push(Notice { kind: "same_file".to_owned(), subject: file.file.clone(), message });
                }
                false
            }
        }
    });
    files
}

fn open_books(file: &BillFile, books: &mut BTreeMap<Scope, Book>) {
    let mut rows: BTreeMap<&Scope, u64> = BTreeMap::new();
    for charge in &file.charges {
        *rows.entry(&charge.scope).or_default() += 1;
    }
    for (scope, count) in &file.unread {
        if let Some(scope) = scope {
            *rows.entry(scope).or_default() += count;
        }
    }
    for (scope, count) in &rows {
        let book = books.entry((*scope).clone()).or_default();
        book.rows += count;
        book.formats.insert(file.format.clone());
    }
    for refusal in &file.refused {
        let reason = place(&file.file, refusal.line, &refusal.field, &refusal.reason);
        match &refusal.scope {
            Some(scope) => {
                books.entry(scope.clone()).or_default().reasons.insert(reason);
            }
            None => {
                for scope in rows.keys() {
                    books.entry((*scope).clone()).or_default().reasons.insert(reason.clone());
                }
            }
        }
    }
}

/// `file:line: field: reason`, without what is not known.
fn place(file: &str, line: u64, field: &str, reason: &str) -> String {
    let mut text = file.to_owned();
    if line > 0 {
        text.push_str(&format!(":{line}"));
    }
    if !field.is_empty() {
        text.push_str(&format!(": {field}"));
    }
    format!("{text}: {reason}")
}

/// Looks for second deliveries in every scope that several files share, and does what the user said. Returns
/// the files left out, by scope.
fn settle_deliveries(
    files: &[BillFile],
    books: &mut BTreeMap<Scope, Book>,
    deliveries: Deliveries,
    bills: &mut Bills,
) -> BTreeMap<Scope, BTreeSet<usize>> {
    let mut by_scope: BTreeMap<&Scope, BTreeMap<usize, Part<'_>>> = BTreeMap::new();
    for (at, file) in files.iter().enumerate() {
        for (charge, digest) in file.charges.iter().zip(&file.digests) {
            let part = by_scope.entry(&charge.scope).or_default().entry(at).or_insert_with(|| Part {
                file: &file.file,
                columns: &file.columns,
                charges: Vec::new(),
                digests: Vec::new(),
            });
            part.charges.push(charge);
            part.digests.push(*digest);
        }
    }
    let mut dropped: BTreeMap<Scope, BTreeSet<usize>> = BTreeMap::new();
    for (scope, parts) in by_scope {
        let Some(book) = books.get_mut(scope) else { continue };
        if parts.len() < 2 || !book.reasons.is_empty() {
            continue;
        }
        let (indexes, parts): (Vec<usize>, Vec<Part<'_>>) = parts.into_iter().unzip();
        let found = overlaps(&parts);
        for overlap in &found {
            let (Some(smaller), Some(larger)) = (parts.get(overlap.smaller), parts.get(overlap.larger)) else { continue };
            let share = format!("{} of {} rows of the scope stand digit for digit in {}", overlap.matched, overlap.rows, larger.file);
            if !overlap.is_suspect() || deliveries == Deliveries::Add {
                let message = format!("{share}; all are counted");
                bills.notices.push(Notice {
                    kind: "repeated_rows".to_owned(),
                    subject: format!("{} {}", smaller.file, scope.id()),
                    message,
                });
            } else if deliveries == Deliveries::Refuse {
                let reason = format!(
                    "{share}: a second delivery of scope {} is suspected and the scope refused; \
                     say --deliveries latest (the later file counts) or --deliveries add (both count)",
                    scope.id()
                );
                book.reasons.insert(format!("{}: {reason}", smaller.file));
                bills.rejects.push(Reject { file: smaller.file.to_owned(), line: 0, field: String::new(), reason, count: overlap.rows });
            }
        }
        if deliveries != Deliveries::Latest {
            continue;
        }
        for (loser, winner) in superseded(&parts, &found) {
            let (Some(old), Some(new), Some(file)) = (parts.get(loser), parts.get(winner), indexes.get(loser)) else { continue };
            let rows = old.charges.len() as u64;
            bills.notices.push(Notice {
                kind: "superseded".to_owned(),
                subject: format!("{} {}", old.file, scope.id()),
                message: format!("{rows} rows are replaced by the later delivery {} (--deliveries latest)", new.file),
            });
            book.rows = book.rows.saturating_sub(rows);
            dropped.entry(scope.clone()).or_default().insert(*file);
        }
    }
    dropped
}

/// Rows by scope, time and content. Where the row came from decides only between rows that are the same.
fn by_content(a: &Charge, b: &Charge) -> Ordering {
    a.scope
        .cmp(&b.scope)
        .then_with(|| (a.charge_from_ms, a.charge_to_ms).cmp(&(b.charge_from_ms, b.charge_to_ms)))
        .then_with(|| (a.category, a.is_correction).cmp(&(b.category, b.is_correction)))
        .then_with(|| texts(a).cmp(&texts(b)))
        .then_with(|| numbers(a).cmp(&numbers(b)))
        .then_with(|| (a.billing_from_ms, a.billing_to_ms).cmp(&(b.billing_from_ms, b.billing_to_ms)))
        .then_with(|| numbers(a).map(|n| n.map(|n| n.scale)).cmp(&numbers(b).map(|n| n.map(|n| n.scale))))
        .then_with(|| (&a.file, a.line).cmp(&(&b.file, b.line)))
}

/// All texts of a row, those that differ most often first.
fn texts(charge: &Charge) -> [&Option<String>; 25] {
    [
        &charge.resource_id,
        &charge.sku_id,
        &charge.sku_price_id,
        &charge.sku_meter,
        &charge.charge_description,
        &charge.sub_account_id,
        &charge.service_name,
        &charge.region_id,
        &charge.availability_zone,
        &charge.pricing_category,
        &charge.commitment_id,
        &charge.commitment_status,
        &charge.commitment_type,
        &charge.capacity_reservation_id,
        &charge.capacity_reservation_status,
        &charge.resource_name,
        &charge.resource_type,
        &charge.service_category,
        &charge.invoice_id,
        &charge.invoice_issuer,
        &charge.pricing_unit,
        &charge.consumed_unit,
        &charge.sku_price_details,
        &charge.tags,
        &charge.extra,
    ]
}

/// All numbers of a row.
fn numbers(charge: &Charge) -> [Option<Decimal>; 6] {
    [Some(charge.effective), Some(charge.billed), charge.list, charge.contracted, charge.pricing_quantity, charge.consumed_quantity]
}

/// Sums every open scope. A sum beyond 128 bits refuses the scope and names the row.
fn close(bills: &mut Bills, books: BTreeMap<Scope, Book>) {
    let mut rows: BTreeMap<&Scope, Vec<&Charge>> = BTreeMap::new();
    for charge in &bills.charges {
        rows.entry(&charge.scope).or_default().push(charge);
    }
    let mut overflown: BTreeSet<Scope> = BTreeSet::new();
    for (scope, mut book) in books {
        let charges = rows.get(&scope).map(Vec::as_slice).unwrap_or_default();
        let scale = scale(charges);
        let mut sums = None;
        if book.reasons.is_empty() {
            match Sums::of(charges, scale) {
                Ok(found) => sums = Some(found),
                Err(reject) => {
                    book.reasons.insert(place(&reject.file, reject.line, &reject.field, &reject.reason));
                    bills.rejects.push(reject);
                    overflown.insert(scope.clone());
                }
            }
        }
        let state = if sums.is_some() { ScopeState::Closed } else { ScopeState::Refused };
        let sums = sums.unwrap_or_default();
        let has_invoices = sums.invoices.keys().any(Option::is_some);
        for (invoice, billed) in sums.invoices.into_iter().filter(|_| has_invoices) {
            bills.invoices.push(InvoiceSummary { scope: scope.clone(), invoice, billed });
        }
        bills.scopes.push(ScopeSummary {
            scope,
            format: book.formats.into_iter().collect::<Vec<_>>().join("+"),
            state,
            rows: book.rows,
            billed: sums.billed,
            effective: sums.effective,
            list: sums.list,
            tax: sums.tax,
            credits: sums.credits,
            scale,
            reasons: book.reasons.into_iter().collect(),
        });
    }
    bills.charges.retain(|charge| !overflown.contains(&charge.scope));
}

fn scale(charges: &[&Charge]) -> u8 {
    let of = |charge: &&Charge| charge.effective.scale.max(charge.billed.scale).max(charge.list.map_or(0, |list| list.scale));
    charges.iter().map(of).max().unwrap_or(0).max(SCOPE_SCALE_MIN)
}

/// The sums of one scope; absent until there is something to add.
#[derive(Default)]
struct Sums {
    billed: Option<Decimal>,
    effective: Option<Decimal>,
    list: Option<Decimal>,
    tax: Option<Decimal>,
    credits: Option<Decimal>,
    invoices: BTreeMap<Option<String>, Decimal>,
}

impl Sums {
    fn of(charges: &[&Charge], scale: u8) -> Result<Sums, Reject> {
        let zero = Some(Decimal::ZERO);
        let mut sums = Sums { billed: zero, effective: zero, tax: zero, credits: zero, ..Sums::default() };
        for charge in charges {
            sums.add(charge, scale).map_err(|field| Reject {
                file: charge.file.clone(),
                line: charge.line,
                field: field.to_owned(),
                reason: format!(
                    "with this row the sum of {field} needs more than 128 bits at {scale} decimals: scope {} is refused whole",
                    charge.scope.id()
                ),
                count: 1,
            })?;
        }
        Ok(sums)
    }

    /// Adds one row, or names the column whose sum does not fit.
    fn add(&mut self, charge: &Charge, scale: u8) -> Result<(), &'static str> {
        // Sums are kept at the scope's scale, so that what does not fit there is found at its row.
        let plus = |sum: &mut Option<Decimal>, amount: Decimal| {
            *sum = Some(amount.rescaled(scale)?.checked_add(sum.unwrap_or(Decimal::ZERO))?);
            Some(())
        };
        plus(&mut self.billed, charge.billed).ok_or("BilledCost")?;
        plus(&mut self.effective, charge.effective).ok_or("EffectiveCost")?;
        if let (ChargeCategory::Usage, Some(list)) = (charge.category, charge.list) {
            plus(&mut self.list, list).ok_or("ListCost")?;
        }
        match charge.category {
            ChargeCategory::Tax => plus(&mut self.tax, charge.billed).ok_or("BilledCost")?,
            ChargeCategory::Credit => plus(&mut self.credits, charge.billed).ok_or("BilledCost")?,
            _ => {}
        }
        let invoice = self.invoices.entry(charge.invoice_id.clone()).or_insert(Decimal::ZERO);
        let mut sum = Some(*invoice);
        plus(&mut sum, charge.billed).ok_or("BilledCost")?;
        *invoice = sum.unwrap_or(Decimal::ZERO);
        Ok(())
    }
}
