//! From a row of cells to a charge: where each column is, and how its cell fills the charge.

use std::collections::BTreeMap;

use gpuledger_model::money::Decimal;
use gpuledger_model::tables::charge::{Charge, ChargeCategory};

use super::cell::{Cell, Form, Unreadable, quoted, read_decimal, read_text, read_time, typed_text};
use super::column::{ALLOWED_VALUES, ColumnName, column_name};
use super::remark::{Remarks, Weight};

type TextSlot = fn(&mut Charge) -> &mut Option<String>;
type NumberSlot = fn(&mut Charge) -> &mut Option<Decimal>;

/// Text columns with the place of the charge that they fill.
const TEXTS: [(&str, TextSlot); 22] = [
    ("InvoiceId", |c| &mut c.invoice_id),
    ("InvoiceIssuerName", |c| &mut c.invoice_issuer),
    ("SubAccountId", |c| &mut c.sub_account_id),
    ("ServiceName", |c| &mut c.service_name),
    ("ServiceCategory", |c| &mut c.service_category),
    ("ResourceId", |c| &mut c.resource_id),
    ("ResourceName", |c| &mut c.resource_name),
    ("ResourceType", |c| &mut c.resource_type),
    ("RegionId", |c| &mut c.region_id),
    ("AvailabilityZone", |c| &mut c.availability_zone),
    ("SkuId", |c| &mut c.sku_id),
    ("SkuMeter", |c| &mut c.sku_meter),
    ("SkuPriceId", |c| &mut c.sku_price_id),
    ("ChargeDescription", |c| &mut c.charge_description),
    ("PricingCategory", |c| &mut c.pricing_category),
    ("PricingUnit", |c| &mut c.pricing_unit),
    ("ConsumedUnit", |c| &mut c.consumed_unit),
    ("CommitmentDiscountId", |c| &mut c.commitment_id),
    ("CommitmentDiscountStatus", |c| &mut c.commitment_status),
    ("CommitmentDiscountType", |c| &mut c.commitment_type),
    ("CapacityReservationId", |c| &mut c.capacity_reservation_id),
    ("CapacityReservationStatus", |c| &mut c.capacity_reservation_status),
];

/// Columns that hold a JSON object.
const JSONS: [(&str, TextSlot); 2] = [("SkuPriceDetails", |c| &mut c.sku_price_details), ("Tags", |c| &mut c.tags)];

/// Numbers that are not the amount of the row.
const NUMBERS: [(&str, NumberSlot); 4] = [
    ("ListCost", |c| &mut c.list),
    ("ContractedCost", |c| &mut c.contracted),
    ("PricingQuantity", |c| &mut c.pricing_quantity),
    ("ConsumedQuantity", |c| &mut c.consumed_quantity),
];

/// Columns whose words are checked though no charge carries them.
const WORDS_ONLY: [&str; 2] = ["ChargeFrequency", "CommitmentDiscountCategory"];

/// Who a charge comes from: the first of these that is not null.
const PROVIDERS: [&str; 5] = ["ServiceProviderName", "ProviderName", "HostProviderName", "PublisherName", "InvoiceIssuerName"];

/// Where each column of a file is.
pub(crate) struct Layout {
    /// How many cells a row has.
    pub(crate) width: usize,
    /// FOCUS names present, each once, sorted.
    pub(crate) present: Vec<&'static str>,
    /// Names of all columns, sorted: two files with the same are compared cell by cell.
    pub(crate) names: Vec<String>,
    /// Names that appear more than once; the first counts.
    pub(crate) repeated: Vec<String>,
    /// Columns that are neither FOCUS nor `x_`.
    pub(crate) ignored: Vec<String>,
    /// FOCUS columns that are written in another way.
    pub(crate) respelled: Vec<String>,
    positions: BTreeMap<&'static str, usize>,
    providers: Vec<usize>,
    texts: Vec<(usize, &'static str, TextSlot)>,
    jsons: Vec<(usize, &'static str, TextSlot)>,
    numbers: Vec<(usize, &'static str, NumberSlot)>,
    words_only: Vec<(usize, &'static str)>,
    extras: Vec<(String, usize)>,
    digest_order: Vec<(u64, usize, Meaning)>,
}

/// What the cells of a column mean where rows are compared.
#[derive(Clone, Copy)]
enum Meaning {
    Text,
    Number,
    Time,
}

fn meaning(name: &str) -> Meaning {
    if name.ends_with("PeriodStart") || name.ends_with("PeriodEnd") {
        Meaning::Time
    } else if name.ends_with("Cost") || name.ends_with("Price") || name.ends_with("Quantity") || name.starts_with("x_") {
        Meaning::Number
    } else {
        Meaning::Text
    }
}

impl Layout {
    pub(crate) fn new(header: &[String]) -> Layout {
        let mut positions = BTreeMap::new();
        let mut extras: BTreeMap<String, usize> = BTreeMap::new();
        let mut named: BTreeMap<String, usize> = BTreeMap::new();
        let (mut repeated, mut ignored, mut respelled) = (Vec::new(), Vec::new(), Vec::new());
        for (at, delivered) in header.iter().enumerate() {
            let name = match column_name(delivered) {
                ColumnName::Focus(name) => {
                    if delivered != name {
                        respelled.push(name.to_owned());
                    }
                    positions.entry(name).or_insert(at);
                    name.to_owned()
                }
                ColumnName::Extra(name) => {
                    extras.entry(name.clone()).or_insert(at);
                    name
                }
                ColumnName::Other(name) => {
                    ignored.push(name.clone());
                    name
                }
            };
            if named.insert(name.clone(), at).is_some() {
                repeated.push(name);
            }
        }
        let at = |name: &str| positions.get(name).copied();
        Layout {
            width: header.len(),
            present: positions.keys().copied().collect(),
            digest_order: named.iter().map(|(name, at)| (text_digest(name), *at, meaning(name))).collect(),
            names: named.into_keys().collect(),
            repeated,
            ignored,
            respelled,
            providers: PROVIDERS.iter().filter_map(|name| at(name)).collect(),
            texts: TEXTS.iter().filter_map(|(name, slot)| Some((at(name)?, *name, *slot))).collect(),
            jsons: JSONS.iter().filter_map(|(name, slot)| Some((at(name)?, *name, *slot))).collect(),
            numbers: NUMBERS.iter().filter_map(|(name, slot)| Some((at(name)?, *name, *slot))).collect(),
            words_only: WORDS_ONLY.iter().filter_map(|name| Some((at(name)?, *name))).collect(),
            extras: extras.into_iter().collect(),
            positions,
        }
    }

    /// Whether the file has the column.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.positions.contains_key(name)
    }

    /// Whether any column names a provider.
    pub(crate) fn has_provider(&self) -> bool {
        !self.providers.is_empty()
    }

    /// The cell of a column; a missing column is null.
    pub(crate) fn cell<'c, 'a>(&self, cells: &'c [Cell<'a>], name: &str) -> &'c Cell<'a> {
        self.positions.get(name).and_then(|at| cells.get(*at)).unwrap_or(&Cell::Null)
    }

    /// The provider that the row names.
    pub(crate) fn provider(&self, cells: &[Cell<'_>]) -> Option<String> {
        self.providers.iter().filter_map(|at| cells.get(*at)).find_map(|cell| match read_text(cell) {
            Ok(Some((text, _))) => Some(text.trim().to_owned()),
            _ => None,
        })
    }

    /// The identity of the row: what its cells mean, by column name. The order of columns, zeros behind the last
    /// digit and the way a time is written are no part of it, so that CSV and Parquet of one table agree.
    pub(crate) fn digest(&self, cells: &[Cell<'_>]) -> u64 {
        let mut hash = FNV_START;
        for (name_hash, at, meaning) in &self.digest_order {
            let Some(cell) = cells.get(*at).filter(|cell| !cell.is_null()) else { continue };
            hash = fnv(hash, &name_hash.to_le_bytes());
            let number = || match read_decimal(cell) {
                Ok(Some((number, _))) => Some(number.normalized()),
                _ => None,
            };
            let time = || match read_time(cell) {
                Ok(Some((time_ms, _))) => Some(time_ms),
                _ => None,
            };
            let known = match meaning {
                Meaning::Number => number().map(|n| fnv(fnv(hash, &n.mantissa.to_le_bytes()), &[n.scale])),
                Meaning::Time => time().map(|time_ms| fnv(hash, &time_ms.to_le_bytes())),
                Meaning::Text => None,
            };
            hash = match (known, cell) {
                (Some(known), _) => known,
                (None, Cell::Text(text)) => fnv(hash, text.as_bytes()),
                (None, typed) => fnv(hash, typed_text(typed).as_bytes()),
            };
            hash = fnv(hash, &[0xff]);
        }
        hash
    }

    /// The charge's category; a null or unknown one is Usage, and noted.
    pub(crate) fn category(&self, cells: &[Cell<'_>], line: u64, remarks: &mut Remarks) -> ChargeCategory {
        const ALL: [ChargeCategory; 5] =
            [ChargeCategory::Usage, ChargeCategory::Purchase, ChargeCategory::Tax, ChargeCategory::Credit, ChargeCategory::Adjustment];
        let word = match read_text(self.cell(cells, "ChargeCategory")) {
            Ok(Some((text, _))) => text,
            Ok(None) => {
                remarks.notice("category_unknown", "", line, || "ChargeCategory is null: read as Usage".to_owned());
                return ChargeCategory::Usage;
            }
            Err(why) => {
                remarks.notice("category_unknown", "", line, || format!("ChargeCategory {why}: read as Usage"));
                return ChargeCategory::Usage;
            }
        };
        if let Some(category) = ALL.into_iter().find(|category| category.as_str() == word) {
            return category;
        }
        match ALL.into_iter().find(|category| category.as_str().eq_ignore_ascii_case(word.trim())) {
            Some(category) => {
                let note = || format!("ChargeCategory {} is read as {}", quoted(&word), category.as_str());
                remarks.notice("value_case", &format!("ChargeCategory {word}"), line, note);
                category
            }
            None => {
                let note = || format!("ChargeCategory {} is none of FOCUS's words: read as Usage", quoted(&word));
                remarks.notice("category_unknown", "word", line, note);
                ChargeCategory::Usage
            }
        }
    }

    /// Whether the row corrects a closed month.
    pub(crate) fn is_correction(&self, cells: &[Cell<'_>], line: u64, remarks: &mut Remarks) -> bool {
        match read_text(self.cell(cells, "ChargeClass")) {
            Ok(Some((text, _))) => allowed_word("ChargeClass", text, line, remarks) == "Correction",
            Ok(None) => false,
            Err(why) => {
                remarks.reject(Weight::Value, line, "ChargeClass", &why);
                false
            }
        }
    }

    /// Fills everything that the row's amount and place do not depend on. What is unreadable stays null and
    /// is named.
    pub(crate) fn fill(&self, charge: &mut Charge, cells: &[Cell<'_>], line: u64, remarks: &mut Remarks) {
        for (at, name, slot) in &self.texts {
            let text = self.optional(cells, *at, name, line, remarks, read_text).map(|(text, form)| {
                note_form(form, name, line, remarks);
                allowed_word(name, text, line, remarks)
            });
            *slot(charge) = text;
        }
        for (at, name) in &self.words_only {
            if let Some((text, _)) = self.optional(cells, *at, name, line, remarks, read_text) {
                allowed_word(name, text, line, remarks);
            }
        }
        for (at, name, slot) in &self.numbers {
            *slot(charge) = self.optional(cells, *at, name, line, remarks, read_decimal).map(|(number, form)| {
                note_form(form, name, line, remarks);
                number
            });
        }
        for (at, name, slot) in &self.jsons {
            *slot(charge) = self.optional(cells, *at, name, line, remarks, read_json_object).map(|(text, is_bare)| {
                if is_bare {
                    remarks.notice("json_bare", name, line, || format!("{name} is a JSON object without its braces"));
                }
                text
            });
        }
        charge.extra = self.extra(cells, line, remarks);
    }

    /// The `x_` columns that are not null, as JSON with sorted keys.
    fn extra(&self, cells: &[Cell<'_>], line: u64, remarks: &mut Remarks) -> Option<String> {
        let mut object: BTreeMap<&str, String> = BTreeMap::new();
        for (name, at) in &self.extras {
            if let Some((text, _)) = self.optional(cells, *at, name, line, remarks, read_text) {
                object.insert(name, text);
            }
        }
        if object.is_empty() { None } else { serde_json::to_string(&object).ok() }
    }

    fn optional<T>(
        &self,
        cells: &[Cell<'_>],
        at: usize,
        name: &str,
        line: u64,
        remarks: &mut Remarks,
        read: fn(&Cell<'_>) -> Result<Option<T>, Unreadable>,
    ) -> Option<T> {
        match read(cells.get(at)?) {
            Ok(value) => value,
            Err(why) => {
                remarks.reject(Weight::Value, line, name, &why);
                None
            }
        }
    }
}

/// Notes a value that was read although FOCUS writes it differently.
pub(crate) fn note_form(form: Form, name: &str, line: u64, remarks: &mut Remarks) {
    match form {
        Form::Plain => {}
        Form::Padded => remarks.notice("number_form", name, line, || format!("{name} has blanks around its number")),
        Form::MonthDayYear => {
            remarks.notice("date_form", "", line, || "dates are written month/day/year, and read so in UTC".to_owned());
        }
        Form::HourOverflow => {
            let note = || "times have an hour of 24 or more, counted on from midnight".to_owned();
            remarks.notice("date_form", "hours", line, note);
        }
        Form::TypedText => {
            let note = || format!("{name} arrives as a number or time, not as text: leading zeros may have been lost");
            remarks.notice("id_form", name, line, note);
        }
    }
}

/// The text in FOCUS's own spelling where it differs in case only; other words stay and are noted.
fn allowed_word(name: &str, text: String, line: u64, remarks: &mut Remarks) -> String {
    let Some((_, words)) = ALLOWED_VALUES.iter().find(|(column, _)| *column == name) else { return text };
    if words.contains(&text.as_str()) {
        return text;
    }
    match words.iter().find(|word| word.eq_ignore_ascii_case(text.trim())) {
        Some(word) => {
            let note = || format!("{name} {} is read as {word}", quoted(&text));
            remarks.notice("value_case", &format!("{name} {word}"), line, note);
            (*word).to_owned()
        }
        None => {
            remarks.notice("value_unknown", name, line, || format!("{name} {} is none of FOCUS's words", quoted(&text)));
            text
        }
    }
}

/// A JSON object as delivered, and whether its braces were missing (some exports write tags so).
fn read_json_object(cell: &Cell<'_>) -> Result<Option<(String, bool)>, Unreadable> {
    let Some((text, _)) = read_text(cell)? else { return Ok(None) };
    if is_json_object(&text) {
        return Ok(Some((text, false)));
    }
    let braced = format!("{{{text}}}");
    if is_json_object(&braced) {
        return Ok(Some((braced, true)));
    }
    Err(format!("{} is not a JSON object", quoted(&text)))
}

fn is_json_object(text: &str) -> bool {
    text.trim_start().starts_with('{') && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}

const FNV_START: u64 = 0xcbf2_9ce4_8422_2325;

/// FNV-1a: the same on every machine and version, so that a stored digest stays comparable.
pub(crate) fn fnv(start: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(start, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// The digest of a text.
pub(crate) fn text_digest(text: &str) -> u64 {
    fnv(FNV_START, text.as_bytes())
}
