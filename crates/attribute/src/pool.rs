//! From bill rows to pools (ACCOUNTING section 1): what each row pays for, and which machine.

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

impl BilledHours {
    /// Instance milliseconds, rounded half up, for a machine of `devices` accelerators.
    pub fn instance_ms(self, devices: u32) -> Option<i64> {
        if self.quantity <= Decimal::ZERO {
            return None;
        }
        let divisor = if self.per_accelerator { i128::from(devices.max(1)) } else { 1 };
        let plain = self.quantity.normalized();
        let denominator = 10i128.checked_pow(u32::from(plain.scale))?.checked_mul(divisor)?;
        let numerator = plain.mantissa.checked_mul(3_600_000)?;
        i64::try_from((numerator.checked_mul(2)?.checked_add(denominator)?) / denominator.checked_mul(2)?).ok()
    }
}

/// Reads a row.
pub fn row_facts(charge: &Charge, prices: &PriceList, book: &RuleBook) -> RowFacts {
    let machine = charge.resource_id.as_deref().map(|id| machine_of(id, charge.resource_name.as_deref())).unwrap_or_default();
    let cloud = cloud_word(charge.cloud);
    let details: Option<serde_json::Value> = charge.sku_price_details.as_deref().and_then(|text| serde_json::from_str(text).ok());
    let named_type = type_named(charge, details.as_ref(), prices, cloud);
    let gpu_count = details.as_ref().and_then(|d| d.get("GpuCount")).and_then(json_count);
    let is_machine_usage = charge.category == ChargeCategory::Usage && is_machine_category(charge, book);
    let sold = sold(charge, named_type.is_some() || gpu_count.is_some());
    let hours = if is_machine_usage && !charge.is_correction { billed_hours(charge, sold, book) } else { None };
    RowFacts { machine, instance_type: named_type, gpu_count, is_machine_usage, sold, hours }
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

fn type_named(charge: &Charge, details: Option<&serde_json::Value>, prices: &PriceList, cloud: Option<&str>) -> Option<String> {
    let known = |text: &str| prices.find(cloud, text.trim(), None).map(|p: &Price| p.instance_type.clone());
    if let Some(text) = details.and_then(|d| d.get("InstanceType")).and_then(|v| v.as_str())
        && let Some(found) = known(text)
    {
        return Some(found);
    }
    if let Some(extra) = charge.extra.as_deref().and_then(|text| serde_json::from_str::<serde_json::Value>(text).ok())
        && let Some(columns) = extra.as_object()
    {
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
    for text in [&charge.sku_meter, &charge.sku_id, &charge.resource_name, &charge.charge_description].into_iter().flatten() {
        if let Some(price) = prices.type_in_text(cloud, text) {
            return Some(price.instance_type.clone());
        }
    }
    None
}

fn is_machine_category(charge: &Charge, book: &RuleBook) -> bool {
    let category_fits = match charge.service_category.as_deref() {
        None => true,
        Some(category) => book.bills.machine_service_categories.iter().any(|c| c.eq_ignore_ascii_case(category)),
    };
    let words = [&charge.service_name, &charge.sku_meter];
    let excluded = words.into_iter().flatten().any(|text| {
        let text = text.to_ascii_lowercase();
        book.bills.not_machine_words.iter().any(|word| text.contains(&word.to_ascii_lowercase()))
    });
    category_fits && !excluded
}

fn is_hours(unit: &str, book: &RuleBook) -> bool {
    unit.to_ascii_lowercase()
        .split(|c: char| !c.is_ascii_alphabetic())
        .filter(|word| !word.is_empty())
        .any(|word| book.bills.hour_units.iter().any(|h| h == word))
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

fn sold(charge: &Charge, names_machine: bool) -> Sold {
    let units = [&charge.consumed_unit, &charge.pricing_unit];
    if units.into_iter().flatten().any(|u| counts_accelerators(u)) {
        return Sold::Accelerators;
    }
    if units.into_iter().flatten().any(|u| counts_cores_or_memory(u)) {
        return Sold::CoresOrMemory;
    }
    let texts = [&charge.sku_meter, &charge.charge_description, &charge.sku_id];
    if names_machine {
        return Sold::Machine;
    }
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
        |quantity: Option<Decimal>, unit: &Option<String>| quantity.filter(|_| unit.as_deref().is_some_and(|u| is_hours(u, book)));
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
    if is_unused(&charge.capacity_reservation_status) {
        return Some(BillKind::Unused(Cause::UnusedCapacityBlock));
    }
    (charge.category == ChargeCategory::Purchase).then_some(BillKind::Purchase)
}

/// Whether a tag value, an `x_` value or an attachment of the row names the machine exactly.
pub fn names_machine(charge: &Charge, machine_id: &str) -> bool {
    [&charge.tags, &charge.extra].into_iter().flatten().any(|text| {
        serde_json::from_str::<serde_json::Value>(text)
            .ok()
            .and_then(|value| {
                value.as_object().map(|o| o.values().any(|v| v.as_str().is_some_and(|t| machine::reduce(t).id == machine_id)))
            })
            .unwrap_or(false)
    })
}
