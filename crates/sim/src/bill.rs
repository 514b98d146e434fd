//! The bills of a world: FOCUS rows of four providers, and what each row truly paid for.
//!
//! Truth decisions:
//! - a machine's row pays for the machine's time in its charge period; what else a row is, its cause says;
//! - tax, support, credits and adjustments spread evenly over their charge period;
//! - a machine without a node object and without telemetry is `not_in_inventory`;
//! - the disk of a machine that is stopped is `stopped_machine_storage` in the hours without a usage row, and
//!   `other_service` in the others;
//! - where the last rows have not arrived, the truth is what the standard estimates: list price x time.

use std::collections::BTreeMap;

use gpuledger_model::cause::Cause;
use gpuledger_model::money::Decimal;
use gpuledger_model::tables::charge::Cloud;
use gpuledger_model::time::{DAY_MS, HOUR_MS, floor_to, format_rfc3339};

use crate::chance::Chance;
use crate::fleet::{AZURE_SUBSCRIPTION, GOOGLE_PROJECT, Machine, Payment};
use crate::options::{Fault, Options};

/// What a row truly pays for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pays {
    /// The time of a machine.
    Machine(usize),
    /// Something that the bill alone tells; evenly over the charge period.
    Cause(Cause),
}

/// A row of a bill.
#[derive(Clone, Debug)]
pub struct BillRow {
    /// FOCUS columns that are not null.
    pub cells: BTreeMap<&'static str, String>,
    /// Start of the charge period, ms.
    pub from_ms: i64,
    /// End of it, ms.
    pub to_ms: i64,
    /// EffectiveCost.
    pub effective: Decimal,
    /// What it pays for.
    pub pays: Pays,
}

/// One provider's bill.
#[derive(Clone, Debug)]
pub struct Bill {
    /// File name; compressed if it ends in `.gz`.
    pub file: String,
    /// FOCUS version.
    pub version: &'static str,
    /// Its columns, in order.
    pub columns: &'static [&'static str],
    /// BillingCurrency.
    pub currency: &'static str,
    /// Its rows.
    pub rows: Vec<BillRow>,
}

/// Time that no bill covers yet: machine, from when, and the estimate of the standard in USD.
#[derive(Clone, Debug)]
pub struct Estimate {
    /// Machine.
    pub machine: usize,
    /// From, ms.
    pub from_ms: i64,
    /// To, ms.
    pub to_ms: i64,
    /// List price x time, at 9 decimals.
    pub amount: Decimal,
}

/// All bills of a world.
#[derive(Clone, Debug, Default)]
pub struct Bills {
    /// One for each provider and account.
    pub bills: Vec<Bill>,
    /// An earlier delivery, not valid any more.
    pub earlier: Option<Bill>,
    /// Estimates for what has not arrived.
    pub estimates: Vec<Estimate>,
}

/// FOCUS 1.0.
const COLUMNS_1_0: &[&str] = &[
    "AvailabilityZone", "BilledCost", "BillingAccountId", "BillingAccountName", "BillingCurrency", "BillingPeriodEnd",
    "BillingPeriodStart", "ChargeCategory", "ChargeClass", "ChargeDescription", "ChargeFrequency", "ChargePeriodEnd",
    "ChargePeriodStart", "CommitmentDiscountCategory", "CommitmentDiscountId", "CommitmentDiscountName", "CommitmentDiscountStatus",
    "CommitmentDiscountType", "ConsumedQuantity", "ConsumedUnit", "ContractedCost", "ContractedUnitPrice", "EffectiveCost",
    "InvoiceIssuerName", "ListCost", "ListUnitPrice", "PricingCategory", "PricingQuantity", "PricingUnit", "ProviderName",
    "PublisherName", "RegionId", "RegionName", "ResourceId", "ResourceName", "ResourceType", "ServiceCategory", "ServiceName",
    "SkuId", "SkuPriceId", "SubAccountId", "SubAccountName", "Tags", "x_SkuMeterName",
];

/// FOCUS 1.2.
const COLUMNS_1_2: &[&str] = &[
    "ProviderName", "PublisherName", "InvoiceIssuerName", "InvoiceId", "BillingAccountId", "BillingAccountName", "BillingAccountType",
    "SubAccountId", "SubAccountName", "SubAccountType", "BillingPeriodStart", "BillingPeriodEnd", "ChargePeriodStart",
    "ChargePeriodEnd", "ChargeCategory", "ChargeClass", "ChargeDescription", "ChargeFrequency", "BilledCost", "EffectiveCost",
    "ListCost", "ContractedCost", "ListUnitPrice", "ContractedUnitPrice", "PricingCategory", "PricingQuantity", "PricingUnit",
    "PricingCurrency", "BillingCurrency", "ConsumedQuantity", "ConsumedUnit", "ServiceName", "ServiceCategory",
    "ServiceSubcategory", "SkuId", "SkuMeter", "SkuPriceId", "SkuPriceDetails", "ResourceId", "ResourceName", "ResourceType",
    "RegionId", "RegionName", "AvailabilityZone", "CommitmentDiscountId", "CommitmentDiscountName", "CommitmentDiscountCategory",
    "CommitmentDiscountType", "CommitmentDiscountStatus", "CommitmentDiscountQuantity", "CommitmentDiscountUnit",
    "CapacityReservationId", "CapacityReservationStatus", "Tags",
];

/// FOCUS 1.4.
const COLUMNS_1_4: &[&str] = &[
    "AvailabilityZone", "BilledCost", "BillingAccountId", "BillingAccountName", "BillingAccountType", "BillingCurrency",
    "BillingPeriodEnd", "BillingPeriodStart", "CapacityReservationId", "CapacityReservationStatus", "ChargeCategory", "ChargeClass",
    "ChargeDescription", "ChargeFrequency", "ChargePeriodEnd", "ChargePeriodStart", "CommitmentDiscountId",
    "CommitmentDiscountStatus", "ConsumedQuantity", "ConsumedUnit", "ContractedCost", "ContractedUnitPrice", "EffectiveCost",
    "HostProviderName", "InvoiceDetailId", "InvoiceId", "InvoiceIssuerName", "ListCost", "ListUnitPrice", "PricingCategory",
    "PricingCurrency", "PricingQuantity", "PricingUnit", "RegionId", "RegionName", "ResourceId", "ResourceName", "ResourceType",
    "ServiceCategory", "ServiceName", "ServiceProviderName", "ServiceSubcategory", "SkuId", "SkuMeter", "SkuPriceDetails",
    "SkuPriceId", "SubAccountId", "SubAccountName", "SubAccountType", "Tags",
];

/// `price` x `numerator` / `denominator`, rounded half away from zero to `scale` decimals.
pub fn scaled(price: Decimal, numerator: i128, denominator: i128, scale: u8) -> Decimal {
    let denominator = denominator.max(1) * 10i128.pow(u32::from(price.scale));
    let product = price.mantissa * numerator * 10i128.pow(u32::from(scale));
    let half = if product < 0 { -denominator / 2 } else { denominator / 2 };
    Decimal { mantissa: (product + half) / denominator, scale }
}

fn decimal(mantissa: i128, scale: u8) -> Decimal {
    Decimal { mantissa, scale }
}

struct Desk<'a> {
    machines: &'a [Machine],
    options: &'a Options,
    month: (i64, i64),
}

/// What every row of a bill repeats.
struct Account {
    provider: &'static str,
    id: &'static str,
    name: &'static str,
    sub_account: &'static str,
    invoice: &'static str,
    currency: &'static str,
    /// One unit of the billing currency costs so many USD, in hundredths per dollar.
    per_dollar_percent: i128,
}

/// Makes the bills of a world.
pub fn bills(seed: u64, machines: &[Machine], options: &Options) -> Bills {
    let mut chance = Chance::new(seed, 4_000);
    let desk = Desk { machines, options, month: month_of(options.start_ms) };
    let mut out = Bills { bills: Vec::new(), earlier: None, estimates: Vec::new() };
    out.bills.push(desk.amazon(&mut chance));
    out.bills.push(desk.microsoft(&mut chance));
    out.bills.push(desk.google(&mut chance));
    out.bills.push(desk.oracle(&mut chance));
    if options.has(Fault::RestatedBill)
        && let Some(first) = out.bills.first()
    {
        out.earlier = Some(earlier_delivery(first));
    }
    if options.has(Fault::LateBill) {
        desk.hold_back(&mut out);
    }
    out
}

/// First of the month of a time and first of the next, ms. Worlds stand in October 2026, of 31 days.
fn month_of(time_ms: i64) -> (i64, i64) {
    let mut first = floor_to(time_ms, DAY_MS);
    while !format_rfc3339(first).contains("-01T") {
        first -= DAY_MS;
    }
    let mut next = first + 28 * DAY_MS;
    while !format_rfc3339(next).contains("-01T") {
        next += DAY_MS;
    }
    (first, next)
}

/// The first delivery of a bill: a little dearer, and without its last tenth.
fn earlier_delivery(bill: &Bill) -> Bill {
    let mut earlier = bill.clone();
    earlier.rows.truncate(bill.rows.len() * 9 / 10);
    for row in &mut earlier.rows {
        row.effective = scaled(row.effective, 103, 100, 10);
        for column in ["EffectiveCost", "BilledCost"] {
            if let Some(cell) = row.cells.get_mut(column)
                && let Ok(value) = cell.parse::<Decimal>()
            {
                *cell = scaled(value, 103, 100, 10).normalized().to_string();
            }
        }
    }
    earlier
}

impl Desk<'_> {
    fn row(&self, account: &Account, from_ms: i64, to_ms: i64, pays: Pays, billed: Decimal, effective: Decimal) -> BillRow {
        let mut row = BillRow { cells: BTreeMap::new(), from_ms, to_ms, effective, pays };
        for (column, text) in [
            ("ProviderName", account.provider.to_string()),
            ("PublisherName", account.provider.to_string()),
            ("ServiceProviderName", account.provider.to_string()),
            ("HostProviderName", account.provider.to_string()),
            ("InvoiceIssuerName", account.provider.to_string()),
            ("InvoiceId", account.invoice.to_string()),
            ("BillingAccountId", account.id.to_string()),
            ("BillingAccountName", account.name.to_string()),
            ("BillingAccountType", "Billing Account".to_string()),
            ("SubAccountId", account.sub_account.to_string()),
            ("BillingCurrency", account.currency.to_string()),
            ("PricingCurrency", account.currency.to_string()),
            ("BillingPeriodStart", format_rfc3339(self.month.0)),
            ("BillingPeriodEnd", format_rfc3339(self.month.1)),
            ("ChargePeriodStart", format_rfc3339(from_ms)),
            ("ChargePeriodEnd", format_rfc3339(to_ms)),
            ("ChargeCategory", "Usage".to_string()),
            ("ChargeFrequency", "Usage-Based".to_string()),
            ("BilledCost", billed.normalized().to_string()),
            ("EffectiveCost", effective.normalized().to_string()),
            ("ListCost", effective.normalized().to_string()),
            ("ContractedCost", effective.normalized().to_string()),
            ("PricingCategory", "Standard".to_string()),
        ] {
            row.cells.insert(column, text);
        }
        row
    }

    /// Parts of a machine's paid time of at most `step_ms`, aligned to it: charge period and paid time within it.
    fn periods(&self, machine: &Machine, step_ms: i64) -> Vec<(i64, i64, i64)> {
        let from = machine.paid_from_ms(self.options);
        let mut out = Vec::new();
        let mut at = floor_to(from, step_ms);
        while at < self.options.end_ms() {
            out.push((at, at + step_ms, at + step_ms - from.max(at)));
            at += step_ms;
        }
        out
    }

    fn hours(&self) -> impl Iterator<Item = i64> {
        let start = self.options.start_ms;
        (0..i64::from(self.options.days) * 24).map(move |hour| start + hour * HOUR_MS)
    }

    fn amazon(&self, chance: &mut Chance) -> Bill {
        let account = Account {
            provider: "AWS", id: "111122223333", name: "Example Master", sub_account: "444455556666", invoice: "EUINUS26-1010",
            currency: "USD", per_dollar_percent: 100,
        };
        let mut rows = Vec::new();
        for (at, machine) in self.machines.iter().enumerate().filter(|(_, m)| m.cloud == Cloud::Aws) {
            let plan = format!("arn:aws:savingsplans::111122223333:savingsplan/{}", chance.uuid());
            for (from, to, paid) in self.periods(machine, HOUR_MS) {
                let list = scaled(machine.price, i128::from(paid), i128::from(HOUR_MS), 10);
                let hours = scaled(decimal(1, 0), i128::from(paid), i128::from(HOUR_MS), 10).normalized().to_string();
                let (billed, effective) = match machine.payment {
                    Payment::OnDemand => (list, list),
                    Payment::Spot => (scaled(list, 41, 100, 10), scaled(list, 41, 100, 10)),
                    Payment::Committed => (Decimal::ZERO, scaled(list, 66, 100, 10)),
                };
                let mut row = self.row(&account, from, to, Pays::Machine(at), billed, effective);
                row.cells.insert("ListCost", list.normalized().to_string());
                row.cells.insert("ListUnitPrice", machine.price.to_string());
                for (column, text) in [
                    ("ServiceName", "Amazon Elastic Compute Cloud".to_string()),
                    ("ServiceCategory", "Compute".to_string()),
                    ("ServiceSubcategory", "Virtual Machines".to_string()),
                    ("ResourceId", machine.resource_id.clone()),
                    ("ResourceName", machine.resource_name.clone()),
                    ("ResourceType", "Instance".to_string()),
                    ("RegionId", machine.region.to_string()),
                    ("AvailabilityZone", machine.zone.clone()),
                    ("SkuId", format!("SKU{}", machine.instance_type.replace('.', "").to_uppercase())),
                    ("SkuMeter", format!("BoxUsage:{}", machine.instance_type)),
                    ("SkuPriceDetails", format!("{{\"InstanceType\":\"{}\",\"GpuCount\":{}}}", machine.instance_type, machine.boards.len())),
                    ("ChargeDescription", format!("${} per hour for {} Linux", machine.price, machine.instance_type)),
                    ("PricingQuantity", hours.clone()),
                    ("PricingUnit", "Hours".to_string()),
                    ("ConsumedQuantity", hours),
                    ("ConsumedUnit", "Hours".to_string()),
                    ("Tags", format!("{{\"cluster\":\"{}\",\"team\":\"platform\"}}", machine.cluster)),
                ] {
                    row.cells.insert(column, text);
                }
                match machine.payment {
                    Payment::OnDemand => {}
                    Payment::Spot => {
                        row.cells.insert("PricingCategory", "Dynamic".to_string());
                        row.cells.insert("SkuMeter", format!("SpotUsage:{}", machine.instance_type));
                    }
                    Payment::Committed => {
                        // The plan commits a tenth more than the machine uses; what is left of it is unused.
                        let committed = scaled(list, 72, 100, 10);
                        let unused = committed.checked_sub(effective).unwrap_or(Decimal::ZERO);
                        row.cells.insert("PricingCategory", "Committed".to_string());
                        commit(&mut row, &plan, "Used");
                        let mut rest = self.row(&account, from, to, Pays::Cause(Cause::UnusedCommitment), Decimal::ZERO, unused);
                        rest.cells.insert("ServiceName", "Savings Plans for AWS Compute usage".to_string());
                        rest.cells.insert("ServiceCategory", "Compute".to_string());
                        rest.cells.insert("ResourceId", plan.clone());
                        rest.cells.insert("PricingCategory", "Committed".to_string());
                        rest.cells.insert("ListCost", "0".to_string());
                        rest.cells.insert("ChargeDescription", "Unused part of the Savings Plan".to_string());
                        commit(&mut rest, &plan, "Unused");
                        rows.push(rest);
                        let mut fee = self.row(&account, from, to, Pays::Cause(Cause::CommitmentPurchase), committed, Decimal::ZERO);
                        fee.cells.insert("ServiceName", "Savings Plans for AWS Compute usage".to_string());
                        fee.cells.insert("ServiceCategory", "Compute".to_string());
                        fee.cells.insert("ChargeCategory", "Purchase".to_string());
                        fee.cells.insert("ChargeFrequency", "Recurring".to_string());
                        fee.cells.insert("ResourceId", plan.clone());
                        fee.cells.insert("ListCost", committed.normalized().to_string());
                        fee.cells.insert("ContractedCost", committed.normalized().to_string());
                        fee.cells.insert("ChargeDescription", "1 yr No Upfront Compute Savings Plan".to_string());
                        commit(&mut fee, &plan, "");
                        rows.push(fee);
                    }
                }
                rows.push(row);
            }
        }
        self.amazon_others(&account, chance, &mut rows);
        Bill { file: "aws-focus-1.2.csv".to_string(), version: "1.2", columns: COLUMNS_1_2, currency: account.currency, rows }
    }

    /// Everything on the bill of AWS that is no machine we see.
    fn amazon_others(&self, account: &Account, chance: &mut Chance, rows: &mut Vec<BillRow>) {
        let unseen = format!("i-0{}", chance.hex(16));
        let stopped = format!("i-0{}", chance.hex(16));
        let volume = format!("vol-0{}", chance.hex(16));
        let reservation = format!("arn:aws:ec2:us-east-1:111122223333:capacity-reservation/cr-0{}", chance.hex(16));
        let machine_row = |from: i64, id: &str, name: &str, kind: &str, price: Decimal| {
            let mut row = self.row(account, from, from + HOUR_MS, Pays::Cause(Cause::NotInInventory), price, price);
            for (column, text) in [
                ("ServiceName", "Amazon Elastic Compute Cloud"), ("ServiceCategory", "Compute"), ("ResourceId", id), ("ResourceName", name),
                ("ResourceType", "Instance"), ("RegionId", "us-east-1"), ("PricingQuantity", "1"), ("PricingUnit", "Hours"),
                ("ConsumedQuantity", "1"), ("ConsumedUnit", "Hours"),
            ] {
                row.cells.insert(column, text.to_string());
            }
            row.cells.insert("SkuMeter", format!("BoxUsage:{kind}"));
            row.cells.insert("SkuPriceDetails", format!("{{\"InstanceType\":\"{kind}\"}}"));
            row
        };
        for hour in self.hours() {
            let of_day = (hour - self.options.start_ms) / HOUR_MS % 24;
            if (2..5).contains(&of_day) {
                rows.push(machine_row(hour, &unseen, "render-box", "g5.12xlarge", decimal(5_672, 3)));
            }
            let is_running = of_day < 6;
            if is_running {
                rows.push(machine_row(hour, &stopped, "gpu-dev", "g5.xlarge", decimal(1_006, 3)));
            }
            let cause = if is_running { Cause::OtherService } else { Cause::StoppedMachineStorage };
            let mut disk = self.row(account, hour, hour + HOUR_MS, Pays::Cause(cause), decimal(1_111, 4), decimal(1_111, 4));
            for (column, text) in [
                ("ServiceName", "Amazon Elastic Block Store"), ("ServiceCategory", "Storage"), ("ResourceId", volume.as_str()),
                ("ResourceName", "gpu-dev"), ("ResourceType", "Volume"), ("RegionId", "us-east-1"), ("SkuMeter", "EBS:VolumeUsage.gp3"),
                ("ConsumedQuantity", "1.389"), ("ConsumedUnit", "GB-Months"), ("PricingQuantity", "1.389"), ("PricingUnit", "GB-Months"),
            ] {
                disk.cells.insert(column, text.to_string());
            }
            rows.push(disk);
            if (10..12).contains(&of_day) {
                let price = decimal(21_957_642, 6);
                let mut block = self.row(account, hour, hour + HOUR_MS, Pays::Cause(Cause::UnusedCapacityBlock), price, price);
                for (column, text) in [
                    ("ServiceName", "Amazon Elastic Compute Cloud"), ("ServiceCategory", "Compute"), ("RegionId", "us-east-1"),
                    ("SkuMeter", "UnusedBox:p4d.24xlarge"), ("PricingQuantity", "1"), ("PricingUnit", "Hours"), ("CapacityReservationStatus", "Unused"),
                ] {
                    block.cells.insert(column, text.to_string());
                }
                block.cells.insert("ResourceId", reservation.clone());
                block.cells.insert("CapacityReservationId", reservation.clone());
                rows.push(block);
            }
            for machine in self.machines.iter().filter(|m| m.cloud == Cloud::Aws && m.from_ms <= hour) {
                let cost = scaled(decimal(i128::from(chance.between(100, 900)), 5), machine.boards.len() as i128, 1, 7);
                let mut traffic = self.row(account, hour, hour + HOUR_MS, Pays::Cause(Cause::OtherService), cost, cost);
                for (column, text) in [
                    ("ServiceName", "AWS Data Transfer"), ("ServiceCategory", "Networking"), ("ResourceId", machine.resource_id.as_str()),
                    ("ResourceName", machine.resource_name.as_str()), ("SkuMeter", "DataTransfer-Regional-Bytes"), ("ConsumedUnit", "GB"),
                    ("RegionId", machine.region),
                ] {
                    traffic.cells.insert(column, text.to_string());
                }
                traffic.cells.insert("ConsumedQuantity", chance.between(1, 40).to_string());
                rows.push(traffic);
            }
        }
        for day in 0..i64::from(self.options.days) {
            let from = self.options.start_ms + day * DAY_MS;
            let cost = decimal(i128::from(chance.between(20_000, 90_000)), 4);
            let mut bucket = self.row(account, from, from + DAY_MS, Pays::Cause(Cause::OtherService), cost, cost);
            bucket.cells.insert("ServiceName", "Amazon Simple Storage Service".to_string());
            bucket.cells.insert("ServiceCategory", "Storage".to_string());
            bucket.cells.insert("ResourceId", "arn:aws:s3:::checkpoints-example".to_string());
            rows.push(bucket);
        }
        // A correction of a bucket's September charge, on October's bill.
        let september = self.month.0 - 18 * DAY_MS;
        let mut correction = self.row(account, september, september + DAY_MS, Pays::Cause(Cause::OtherService), decimal(-12_345, 4), decimal(-12_345, 4));
        correction.cells.insert("ServiceName", "Amazon Simple Storage Service".to_string());
        correction.cells.insert("ServiceCategory", "Storage".to_string());
        correction.cells.insert("ChargeClass", "Correction".to_string());
        correction.cells.insert("ResourceId", "arn:aws:s3:::checkpoints-example".to_string());
        rows.push(correction);
        let whole: Decimal = rows.iter().fold(Decimal::ZERO, |sum, row| sum.checked_add(row.effective).unwrap_or(sum));
        for (category, service, cause, percent) in [
            ("Usage", "AWS Support (Business)", Cause::Support, 3),
            ("Credit", "Amazon Elastic Compute Cloud", Cause::Credit, -2),
            ("Tax", "Amazon Elastic Compute Cloud", Cause::Tax, 4),
        ] {
            let cost = scaled(whole, percent, 100, 2);
            let mut row = self.row(account, self.month.0, self.month.1, Pays::Cause(cause), cost, cost);
            row.cells.insert("ChargeCategory", category.to_string());
            row.cells.insert("ChargeFrequency", "Recurring".to_string());
            row.cells.insert("ServiceName", service.to_string());
            row.cells.insert("ServiceCategory", if cause == Cause::Support { "Other" } else { "Compute" }.to_string());
            row.cells.remove("PricingCategory");
            rows.push(row);
        }
    }

    fn microsoft(&self, chance: &mut Chance) -> Bill {
        let (currency, per_dollar_percent) = if self.options.has_second_currency { ("EUR", 92) } else { ("USD", 100) };
        let account = Account {
            provider: "Microsoft", id: "0087654321", name: "Example Nord", sub_account: AZURE_SUBSCRIPTION, invoice: "E0300ABCDE",
            currency, per_dollar_percent,
        };
        let mut rows = Vec::new();
        for (at, machine) in self.machines.iter().enumerate().filter(|(_, m)| m.cloud == Cloud::Azure) {
            let price = scaled(machine.price, account.per_dollar_percent, 100, 6);
            for (from, to, paid) in self.periods(machine, DAY_MS) {
                let cost = scaled(price, i128::from(paid), i128::from(HOUR_MS), 10);
                let hours = scaled(decimal(1, 0), i128::from(paid), i128::from(HOUR_MS), 10).normalized().to_string();
                let mut row = self.row(&account, from, to, Pays::Machine(at), cost, cost);
                for (column, text) in [
                    ("ServiceName", "Virtual Machines".to_string()),
                    ("ServiceCategory", "Compute".to_string()),
                    ("ResourceId", machine.resource_id.clone()),
                    ("ResourceName", machine.resource_name.clone()),
                    ("ResourceType", "Virtual machine scale set instance".to_string()),
                    ("RegionId", machine.region.to_string()),
                    ("SkuId", "DZH318Z0F1L1".to_string()),
                    ("SkuPriceId", "DZH318Z0F1L1_001".to_string()),
                    ("ChargeDescription", format!("{} compute hours", machine.instance_type)),
                    ("x_SkuMeterName", machine.instance_type.to_string()),
                    ("ListUnitPrice", price.normalized().to_string()),
                    ("PricingQuantity", hours.clone()),
                    ("PricingUnit", "Hours".to_string()),
                    ("ConsumedQuantity", hours),
                    ("ConsumedUnit", "Hours".to_string()),
                ] {
                    row.cells.insert(column, text);
                }
                rows.push(row);
                let cost = decimal(i128::from(chance.between(90_000, 240_000)), 5);
                let mut disk = self.row(&account, from, to, Pays::Cause(Cause::OtherService), cost, cost);
                disk.cells.insert("ServiceName", "Storage".to_string());
                disk.cells.insert("ServiceCategory", "Storage".to_string());
                disk.cells.insert("ResourceId", format!("/subscriptions/{AZURE_SUBSCRIPTION}/resourceGroups/MC_north/providers/Microsoft.Compute/disks/{}-os", machine.node));
                disk.cells.insert("ResourceType", "Disk".to_string());
                rows.push(disk);
            }
        }
        for day in 0..i64::from(self.options.days) {
            let from = self.options.start_ms + day * DAY_MS;
            let cost = decimal(7_219_471_196, 10);
            let mut logs = self.row(&account, from, from + DAY_MS, Pays::Cause(Cause::OtherService), cost, cost);
            logs.cells.insert("ServiceName", "Log Analytics".to_string());
            logs.cells.insert("ServiceCategory", "Management and Governance".to_string());
            rows.push(logs);
        }
        let last = self.options.end_ms();
        let mut rounding = self.row(&account, last - DAY_MS, last, Pays::Cause(Cause::Adjustment), decimal(-31, 4), decimal(-31, 4));
        rounding.cells.insert("ChargeCategory", "Adjustment".to_string());
        rounding.cells.insert("ChargeFrequency", "One-Time".to_string());
        rounding.cells.insert("ChargeDescription", "Rounding adjustment".to_string());
        rounding.cells.remove("PricingCategory");
        rows.push(rounding);
        Bill { file: "azure-focus-1.0.csv".to_string(), version: "1.0", columns: COLUMNS_1_0, currency, rows }
    }

    fn google(&self, chance: &mut Chance) -> Bill {
        let account = Account {
            provider: "Google Cloud", id: "01A2B3-C4D5E6-F7A8B9", name: "Example Tune", sub_account: GOOGLE_PROJECT, invoice: "5201234567",
            currency: "USD", per_dollar_percent: 100,
        };
        let mut rows = Vec::new();
        for (at, machine) in self.machines.iter().enumerate().filter(|(_, m)| m.cloud == Cloud::Gcp) {
            let gpu_thousandths = if machine.instance_type.starts_with("a3") { 893 } else { 799 };
            let core_thousandths = (1000 - gpu_thousandths) * 7 / 10;
            for (from, to, paid) in self.periods(machine, HOUR_MS) {
                let family = if machine.instance_type.starts_with("a3") { "A3" } else { "A2" };
                let gpu = if family == "A3" { "Nvidia H100 80GB" } else { "Nvidia Tesla A100" };
                for (meter, unit, quantity, thousandths) in [
                    (format!("{gpu} GPU running in Americas"), "GPU Hours", machine.boards.len() as i128, gpu_thousandths),
                    (format!("{family} Instance Core running in Americas"), "Core Hours", i128::from(machine.vcpus), core_thousandths),
                    (format!("{family} Instance Ram running in Americas"), "GiB Hours", i128::from(machine.memory_gib), 1000 - gpu_thousandths - core_thousandths),
                ] {
                    let cost = scaled(machine.price, thousandths * i128::from(paid), 1000 * i128::from(HOUR_MS), 10);
                    let quantity = scaled(decimal(quantity, 0), i128::from(paid), i128::from(HOUR_MS), 6).normalized().to_string();
                    let mut row = self.row(&account, from, to, Pays::Machine(at), cost, cost);
                    for (column, text) in [
                        ("ServiceName", "Compute Engine".to_string()),
                        ("ServiceCategory", "Compute".to_string()),
                        ("ServiceSubcategory", "Virtual Machines".to_string()),
                        ("ResourceId", machine.resource_id.clone()),
                        ("ResourceName", machine.resource_name.clone()),
                        ("ResourceType", "Instance".to_string()),
                        ("RegionId", machine.region.to_string()),
                        ("AvailabilityZone", machine.zone.clone()),
                        ("SkuId", format!("{:04X}-{:04X}", thousandths, 0x5A5A)),
                        ("SkuMeter", meter.clone()),
                        ("ChargeDescription", meter.clone()),
                        ("SkuPriceDetails", format!("{{\"InstanceType\":\"{}\"}}", machine.instance_type)),
                        ("PricingQuantity", quantity.clone()),
                        ("PricingUnit", unit.to_string()),
                        ("ConsumedQuantity", quantity.clone()),
                        ("ConsumedUnit", unit.to_string()),
                        ("Tags", format!("{{\"goog-k8s-cluster-name\":\"{}\"}}", machine.cluster)),
                    ] {
                        row.cells.insert(column, text);
                    }
                    rows.push(row);
                }
            }
        }
        for day in 0..i64::from(self.options.days) {
            let from = self.options.start_ms + day * DAY_MS;
            for (category, service, cause, cost) in [
                ("Usage", "Cloud Storage", Cause::OtherService, chance.between(90_000, 190_000)),
                ("Credit", "Compute Engine", Cause::Credit, -chance.between(20_000, 60_000)),
            ] {
                let cost = decimal(i128::from(cost), 4);
                let mut row = self.row(&account, from, from + DAY_MS, Pays::Cause(cause), cost, cost);
                row.cells.insert("ChargeCategory", category.to_string());
                row.cells.insert("ServiceName", service.to_string());
                row.cells.insert("ServiceCategory", if service == "Cloud Storage" { "Storage" } else { "Compute" }.to_string());
                rows.push(row);
            }
        }
        Bill { file: "gcp-focus-1.4.csv".to_string(), version: "1.4", columns: COLUMNS_1_4, currency: account.currency, rows }
    }

    fn oracle(&self, chance: &mut Chance) -> Bill {
        let account = Account {
            provider: "Oracle", id: "0020209880", name: "", sub_account: "ocid1.tenancy.oc1..aaaaaaaaexample", invoice: "",
            currency: "USD", per_dollar_percent: 100,
        };
        let mut rows = Vec::new();
        for (at, machine) in self.machines.iter().enumerate().filter(|(_, m)| m.cloud == Cloud::Oracle) {
            for (from, to, paid) in self.periods(machine, HOUR_MS) {
                let cost = scaled(machine.price, i128::from(paid), i128::from(HOUR_MS), 10);
                let quantity = scaled(decimal(machine.boards.len() as i128, 0), i128::from(paid), i128::from(HOUR_MS), 10).normalized().to_string();
                let mut row = self.row(&account, from, to, Pays::Machine(at), cost, cost);
                for (column, text) in [
                    ("ServiceName", "COMPUTE".to_string()),
                    ("ServiceCategory", "Compute".to_string()),
                    ("ResourceId", machine.resource_id.clone()),
                    ("ResourceType", "instance".to_string()),
                    ("RegionId", machine.region.to_string()),
                    ("AvailabilityZone", machine.zone.clone()),
                    ("SkuId", "B98415".to_string()),
                    ("ChargeDescription", format!("Compute - GPU - {}", machine.instance_type)),
                    ("ListUnitPrice", scaled(machine.price, 1, machine.boards.len() as i128, 6).normalized().to_string()),
                    ("PricingQuantity", quantity.clone()),
                    ("PricingUnit", "GPU Hours".to_string()),
                    ("ConsumedQuantity", quantity),
                    ("ConsumedUnit", "GPU Hours".to_string()),
                ] {
                    row.cells.insert(column, text);
                }
                rows.push(row);
                let cost = decimal(i128::from(chance.between(1_000, 9_000)), 5);
                let mut volume = self.row(&account, from, to, Pays::Cause(Cause::OtherService), cost, cost);
                volume.cells.insert("ServiceName", "BLOCK_STORAGE".to_string());
                volume.cells.insert("ServiceCategory", "Storage".to_string());
                volume.cells.insert("ResourceType", "bootvolume".to_string());
                volume.cells.insert("ResourceId", format!("ocid1.bootvolume.oc1.iad.{}", &machine.uid));
                rows.push(volume);
            }
        }
        Bill { file: "oci-focus-1.0.csv.gz".to_string(), version: "1.0", columns: COLUMNS_1_0, currency: account.currency, rows }
    }

    /// Holds back the last six hours of AWS and leaves their estimate.
    fn hold_back(&self, bills: &mut Bills) {
        let cut = self.options.end_ms() - 6 * HOUR_MS;
        let Some(bill) = bills.bills.first_mut() else { return };
        bill.rows.retain(|row| row.from_ms < cut);
        for (at, machine) in self.machines.iter().enumerate().filter(|(_, m)| m.cloud == Cloud::Aws) {
            let (from_ms, to_ms) = (cut.max(machine.from_ms), self.options.end_ms());
            let amount = scaled(machine.price, i128::from(to_ms - from_ms), i128::from(HOUR_MS), 9);
            bills.estimates.push(Estimate { machine: at, from_ms, to_ms, amount });
        }
    }
}

fn commit(row: &mut BillRow, id: &str, status: &str) {
    for (column, text) in [
        ("CommitmentDiscountId", id), ("CommitmentDiscountCategory", "Spend"), ("CommitmentDiscountType", "Savings Plan"),
        ("CommitmentDiscountStatus", status),
    ] {
        if !text.is_empty() {
            row.cells.insert(column, text.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::fleet;

    #[test]
    fn commitments_close_and_each_row_is_on_its_bill_once() {
        let options = Options::demo();
        let machines = fleet(0, &options, &mut Chance::new(0, 1));
        let bills = bills(0, &machines, &options);
        assert_eq!(bills.bills.len(), 4);
        let mut plans: BTreeMap<String, [Decimal; 2]> = BTreeMap::new();
        for row in bills.bills.iter().flat_map(|b| &b.rows) {
            let Some(id) = row.cells.get("CommitmentDiscountId") else { continue };
            let sums = plans.entry(id.clone()).or_insert([Decimal::ZERO; 2]);
            if row.cells["ChargeCategory"] == "Purchase" {
                sums[0] = sums[0].checked_add(row.cells["BilledCost"].parse().unwrap()).unwrap();
            } else {
                sums[1] = sums[1].checked_add(row.effective).unwrap();
            }
        }
        assert!(!plans.is_empty());
        for (id, [purchased, used]) in plans {
            assert_eq!(purchased, used, "{id}");
        }
        for bill in &bills.bills {
            for row in &bill.rows {
                assert_eq!(row.cells["EffectiveCost"].parse::<Decimal>().unwrap(), row.effective);
                assert!(row.to_ms > row.from_ms);
            }
        }
    }

    #[test]
    fn products_are_rounded_once() {
        assert_eq!(scaled(decimal(1, 0), 1, 3, 10).to_string(), "0.3333333333");
        assert_eq!(scaled(decimal(-1, 0), 2, 3, 4).to_string(), "-0.6667");
        assert_eq!(format_rfc3339(month_of(Options::demo().start_ms).1), "2026-11-01T00:00:00Z");
    }
}
