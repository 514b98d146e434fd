//! From bill rows to pools (ACCOUNTING section 1): what each row pays for, and which machine.

use std::collections::BTreeSet;

use gpuledger_model::machine;
use gpuledger_model::money::Decimal;
use gpuledger_model::price::{Price, PriceList};
use gpuledger_model::tables::charge::{Charge, ChargeCategory, Cloud};

use crate::rules::RuleBook;

/// What a bill row says about the accelerators of its resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowFacts {
    /// Reduced machine id of the row's resource; empty when the row has none.
    pub machine: String,
    /// Instance type named by the row.
    pub instance_type: Option<String>,
    /// Accelerators that the row names (`SkuPriceDetails.GpuCount`).
    pub gpu_count: Option<u32>,
    /// Whether the row is usage of a machine by its service category.
    pub is_machine_usage: bool,
    /// What of the machine the row sells.
    pub sold: Sold,
    /// Billed instance-milliseconds, if the row is the whole machine or its accelerators.
    pub hours: Option<BilledHours>,
}

/// What of a machine a row sells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sold {
    /// The whole machine.
    #[default]
    Machine,
    /// Its accelerators alone.
    Accelerators,
    /// Cores or memory alone.
    CoresOrMemory,
}

impl RowFacts {
    /// Whether the row itself shows that its machine has accelerators.
    pub fn shows_accelerators(&self) -> bool {
        self.instance_type.is_some() || self.gpu_count.is_some() || self.sold == Sold::Accelerators
    }

    /// Whether the row is usage of this machine.
    pub fn is_machine_usage_of(&self, machine_id: &str) -> bool {
        self.is_machine_usage && self.machine == machine_id
    }
}

/// The quantity of a row in hours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BilledHours {
    /// Quantity.
    pub quantity: Decimal,
    /// It counts accelerators: divide by their number.
    pub per_accelerator: bool,
}

/// Instance milliseconds of the rows of one machine of `devices` accelerators: the sum of their quantities, rounded
/// half up once. `None` where no row tells, or the sum is not above zero.
pub fn instance_ms(rows: impl Iterator<Item = BilledHours>, devices: u32) -> Option<i64> {
    let (mut whole, mut per_accelerator) = (Decimal::ZERO, Decimal::ZERO);
    for row in rows {
        let slot = if row.per_accelerator { &mut per_accelerator } else { &mut whole };
        *slot = slot.checked_add(row.quantity)?;
    }
    let devices = i128::from(devices.max(1));
    let all = Decimal { mantissa: whole.mantissa.checked_mul(devices)?, scale: whole.scale };
    let all = all.checked_add(per_accelerator)?.normalized();
    if all <= Decimal::ZERO {
        return None;
    }
    let denominator = 10i128.checked_pow(u32::from(all.scale))?.checked_mul(devices)?;
    let numerator = all.mantissa.checked_mul(3_600_000)?;
    i64::try_from((numerator.checked_mul(2)?.checked_add(denominator)?) / denominator.checked_mul(2)?).ok()
}

/// Reads a row.
pub fn row_facts(charge: &Charge, prices: &PriceList, book: &RuleBook) -> RowFacts {
    let machine = charge.resource_id.as_deref().map(|id| machine_of(id, charge.resource_name.as_deref())).unwrap_or_default();
    let cloud = cloud_word(charge.cloud);
    let details: Option<serde_json::Value> = charge.sku_price_details.as_deref().and_then(|text| serde_json::from_str(text).ok());
    let extra: Option<serde_json::Value> = charge.extra.as_deref().and_then(|text| serde_json::from_str(text).ok());
    let named_type = type_named(charge, details.as_ref(), extra.as_ref(), prices, cloud);
    let gpu_count = details.as_ref().and_then(|d| d.get("GpuCount")).and_then(json_count);
    let is_machine_usage = charge.category == ChargeCategory::Usage && is_machine_category(charge, extra.as_ref(), book);
    let sold = sold(charge, named_type.as_ref().is_some_and(|n| n.in_text), named_type.is_some() || gpu_count.is_some());
    let hours = if is_machine_usage && !charge.is_correction { billed_hours(charge, sold, book) } else { None };
    RowFacts { machine, instance_type: named_type.map(|n| n.name), gpu_count, is_machine_usage, sold, hours }
}

/// The reduced machine id of a row. Google's bills may carry the numeric id in the path: the machine's own name in
/// the same project and zone then stands in its place, as schedulers know it.
fn machine_of(resource_id: &str, resource_name: Option<&str>) -> String {
    let id = machine::reduce(resource_id).id;
    match (machine::gcp_numeric_id(&id), id.rsplit_once('/'), resource_name) {
        (Some(_), Some((place, _)), Some(name)) if place.contains('/') && !name.is_empty() => {
            let name = name.rsplit('/').next().unwrap_or(name);
            format!("{place}/{}", name.to_ascii_lowercase())
        }
        _ => id,
    }
}

/// The price list's word for a cloud; `None` for other providers (any row of the list may match).
pub fn cloud_word(cloud: Cloud) -> Option<&'static str> {
    (cloud != Cloud::Other).then(|| cloud.as_str())
}

fn json_count(value: &serde_json::Value) -> Option<u32> {
    match value {
        serde_json::Value::Number(number) => number.as_f64().filter(|n| (1.0..10_000.0).contains(n)).map(|n| n as u32),
        serde_json::Value::String(text) => text.parse().ok().filter(|n| *n > 0),
        _ => None,
    }
}

/// A known instance type that a row names.
struct NamedType {
    name: String,
    /// It stands in the text of the row's SKU, which then sells the machine.
    in_text: bool,
}

fn type_named(
    charge: &Charge,
    details: Option<&serde_json::Value>,
    extra: Option<&serde_json::Value>,
    prices: &PriceList,
    cloud: Option<&str>,
) -> Option<NamedType> {
    let apart = |price: &Price| NamedType { name: price.instance_type.clone(), in_text: false };
    let known = |text: &str| prices.find(cloud, text.trim(), None).map(apart);
    if let Some(text) = details.and_then(|d| d.get("InstanceType")).and_then(|v| v.as_str())
        && let Some(found) = known(text)
    {
        return Some(found);
    }
    if let Some(columns) = extra.and_then(|e| e.as_object()) {
        for (name, value) in columns {
            let folded = name.to_ascii_lowercase().replace('_', "");
            if (folded.contains("instancetype") || folded.contains("machinetype") || folded.contains("armsku") || folded.contains("shape"))
                && let Some(found) = value.as_str().and_then(known)
            {
                return Some(found);
            }
        }
        // `x_SkuDetails` and the like: a JSON object in a cell.
        for value in columns.values() {
            if let Some(inner) =
                value.as_str().filter(|t| t.starts_with('{')).and_then(|t| serde_json::from_str::<serde_json::Value>(t).ok())
                && let Some(fields) = inner.as_object()
            {
                for field in fields.values() {
                    if let Some(found) = field.as_str().and_then(known) {
                        return Some(found);
                    }
                }
            }
        }
    }
    let texts = [&charge.sku_meter, &charge.sku_id, &charge.resource_name, &charge.charge_description];
    let usage_types = usage_types(extra);
    usage_types
        .into_iter()
        .chain(texts.into_iter().flatten().map(String::as_str))
        .find_map(|text| prices.type_in_text(cloud, text).map(|price| NamedType { name: price.instance_type.clone(), in_text: true }))
}

/// The provider's own words for what was used: `x_UsageType` and the like.
fn usage_types(extra: Option<&serde_json::Value>) -> Vec<&str> {
    let columns = extra.and_then(|e| e.as_object()).into_iter().flatten();
    columns.filter(|(name, _)| name.to_ascii_lowercase().replace('_', "").contains("usagetype")).filter_map(|(_, v)| v.as_str()).collect()
}

fn is_machine_category(charge: &Charge, extra: Option<&serde_json::Value>, book: &RuleBook) -> bool {
    let category_fits = match charge.service_category.as_deref() {
        None => true,
        Some(category) => book.bills.machine_service_categories.iter().any(|c| c.eq_ignore_ascii_case(category)),
    };
    let holds = |text: &str, words: &[String]| {
        let text = text.to_ascii_lowercase();
        words.iter().any(|word| text.contains(&word.to_ascii_lowercase()))
    };
    let names = [&charge.service_name, &charge.sku_meter];
    let texts = [&charge.sku_meter, &charge.charge_description];
    let is_named_otherwise = names.into_iter().flatten().any(|text| holds(text, &book.bills.not_machine_words));
    let is_told_otherwise =
        texts.into_iter().flatten().map(String::as_str).chain(usage_types(extra)).any(|text| holds(text, &book.bills.not_machine_texts));
    let units = [&charge.consumed_unit, &charge.pricing_unit];
    let counts_data = units.into_iter().flatten().any(|unit| is_data_without_time(unit));
    category_fits && !is_named_otherwise && !is_told_otherwise && !counts_data
}

/// Units of traffic and disks: `GB`, `GB-Months`, `gibibyte month`; memory of a machine counts by the hour.
fn is_data_without_time(unit: &str) -> bool {
    let unit = unit.to_ascii_lowercase();
    let words: Vec<&str> = unit.split(|c: char| !c.is_ascii_alphabetic()).filter(|w| !w.is_empty()).collect();
    let is_data = |w: &&str| {
        matches!(
            w.strip_suffix('s').unwrap_or(w),
            "byte"
                | "kb"
                | "mb"
                | "gb"
                | "tb"
                | "kib"
                | "mib"
                | "gib"
                | "tib"
                | "gigabyte"
                | "terabyte"
                | "gibibyte"
                | "tebibyte"
                | "mebibyte"
        )
    };
    let is_time = |w: &&str| matches!(w.strip_suffix('s').unwrap_or(w), "hour" | "hr" | "h" | "minute" | "second" | "day");
    words.iter().any(is_data) && !words.iter().any(is_time)
}

fn is_hours(unit: &str, book: &RuleBook) -> bool {
    unit.to_ascii_lowercase()
        .split(|c: char| !c.is_ascii_alphabetic())
        .filter(|word| !word.is_empty())
        .any(|word| book.bills.hour_units.iter().any(|h| h == word))
}

/// How many hours one unit is: Azure prices by `100 Hours`.
fn block_of(unit: &str) -> Decimal {
    let number = unit.split_whitespace().next().and_then(|word| word.parse::<u32>().ok()).filter(|n| *n > 0);
    Decimal::from_integer(i128::from(number.unwrap_or(1)))
}

/// Units whose hours are those of a part that is no accelerator: `GiB-Hours`, `vCPU-Hours`.
fn counts_cores_or_memory(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    text.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| {
        matches!(
            word,
            "core" | "cores" | "cpu" | "vcpu" | "vcpus" | "ocpu" | "ocpus" | "ram" | "memory" | "gib" | "gb" | "gibibyte" | "gigabyte"
        )
    })
}

fn counts_accelerators(text: &str) -> bool {
    text.to_ascii_lowercase()
        .split(|c: char| !c.is_ascii_alphanumeric())
        .any(|word| matches!(word, "gpu" | "gpus" | "accelerator" | "accelerators" | "tpu" | "chip"))
}

fn sold(charge: &Charge, is_named_in_text: bool, names_machine: bool) -> Sold {
    let units = [&charge.consumed_unit, &charge.pricing_unit];
    if units.into_iter().flatten().any(|u| counts_accelerators(u)) {
        return Sold::Accelerators;
    }
    if units.into_iter().flatten().any(|u| counts_cores_or_memory(u)) {
        return Sold::CoresOrMemory;
    }
    // Google's rows of cores, memory and accelerators all name the machine's type beside their SKU.
    if is_named_in_text || (names_machine && charge.cloud != Cloud::Gcp) {
        return Sold::Machine;
    }
    let texts = [&charge.sku_meter, &charge.charge_description, &charge.sku_id];
    if texts.into_iter().flatten().any(|t| counts_accelerators(t)) {
        return Sold::Accelerators;
    }
    if texts.into_iter().flatten().any(|t| counts_cores_or_memory(t)) {
        return Sold::CoresOrMemory;
    }
    Sold::Machine
}

fn billed_hours(charge: &Charge, sold: Sold, book: &RuleBook) -> Option<BilledHours> {
    let in_hours =
        |quantity: Option<Decimal>, unit: &Option<String>| times(quantity?, unit.as_deref().filter(|u| is_hours(u, book)).map(block_of)?);
    let quantity =
        in_hours(charge.consumed_quantity, &charge.consumed_unit).or_else(|| in_hours(charge.pricing_quantity, &charge.pricing_unit))?;
    match sold {
        Sold::Machine => Some(BilledHours { quantity, per_accelerator: false }),
        Sold::Accelerators => Some(BilledHours { quantity, per_accelerator: true }),
        Sold::CoresOrMemory => None,
    }
}

/// The host's share of a machine row, as (host, whole), where it is kept apart: all of a row that sells cores or
/// memory, nothing of one that sells accelerators, else what a machine without accelerators of like cores and memory
/// would cost of the list price. `None` where the price list does not tell.
pub fn host_share(facts: &RowFacts, price: Option<&Price>, book: &RuleBook) -> Option<(u128, u128)> {
    match facts.sold {
        Sold::CoresOrMemory => Some((1, 1)),
        Sold::Accelerators => Some((0, 1)),
        Sold::Machine => {
            let price = price?;
            let whole = price.on_demand_usd_per_hour.filter(|p| *p > Decimal::ZERO)?;
            let rate = |text: &str| text.parse::<Decimal>().ok();
            let cores = times(rate(&book.bills.host_usd_per_vcpu_hour)?, Decimal::from_integer(i128::from(price.vcpus?)))?;
            let memory = times(rate(&book.bills.host_usd_per_gib_hour)?, price.memory_gib?)?;
            let host = cores.checked_add(memory)?.min(whole);
            let scale = host.scale.max(whole.scale);
            Some((host.rescaled(scale)?.mantissa.unsigned_abs(), whole.rescaled(scale)?.mantissa.unsigned_abs()))
        }
    }
}

fn times(a: Decimal, b: Decimal) -> Option<Decimal> {
    Some(Decimal { mantissa: a.mantissa.checked_mul(b.mantissa)?, scale: a.scale.checked_add(b.scale).filter(|s| *s <= 38)? })
}

/// The kinds that the bill alone settles, in the order of the standard; `None` for usage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BillKind {
    /// Tax, credit, adjustment or support.
    Category(gpuledger_model::cause::Cause),
    /// Unused commitment or capacity.
    Unused(gpuledger_model::cause::Cause),
    /// Purchase.
    Purchase,
}

/// Rows 1 to 3 of the standard's table.
pub fn bill_kind(charge: &Charge, book: &RuleBook) -> Option<BillKind> {
    use gpuledger_model::cause::Cause;
    match charge.category {
        ChargeCategory::Tax => return Some(BillKind::Category(Cause::Tax)),
        ChargeCategory::Credit => return Some(BillKind::Category(Cause::Credit)),
        ChargeCategory::Adjustment => return Some(BillKind::Category(Cause::Adjustment)),
        _ => {}
    }
    if charge.service_name.as_deref().is_some_and(|name| book.bills.support_words.iter().any(|word| name.contains(word.as_str()))) {
        return Some(BillKind::Category(Cause::Support));
    }
    let is_unused = |status: &Option<String>| status.as_deref().is_some_and(|s| s.eq_ignore_ascii_case("unused"));
    if is_unused(&charge.commitment_status) {
        return Some(BillKind::Unused(Cause::UnusedCommitment));
    }
    if is_unused(&charge.capacity_reservation_status) || says_unused_capacity(charge, book) {
        return Some(BillKind::Unused(Cause::UnusedCapacityBlock));
    }
    (charge.category == ChargeCategory::Purchase).then_some(BillKind::Purchase)
}

/// Whether the native usage type of a row says that it is reserved capacity nobody used.
fn says_unused_capacity(charge: &Charge, book: &RuleBook) -> bool {
    let holds = |text: &str| book.bills.unused_capacity_words.iter().any(|word| text.contains(word.as_str()));
    if charge.sku_meter.as_deref().is_some_and(holds) {
        return true;
    }
    let extra = charge.extra.as_deref().filter(|text| holds(text));
    let extra: Option<serde_json::Value> = extra.and_then(|text| serde_json::from_str(text).ok());
    usage_types(extra.as_ref()).into_iter().any(holds)
}

/// The machines that a tag value, an `x_` value or an attachment of the row may name: texts in reduced form.
pub fn machines_named(charge: &Charge) -> BTreeSet<String> {
    let mut out = BTreeSet::new();
    for text in [&charge.tags, &charge.extra].into_iter().flatten() {
        if let Ok(serde_json::Value::Object(fields)) = serde_json::from_str(text) {
            out.extend(fields.values().filter_map(|v| v.as_str()).map(|text| machine::reduce(text).id));
        }
    }
    out
}
