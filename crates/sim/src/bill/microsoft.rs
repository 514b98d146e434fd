//! The bill of Microsoft: FOCUS 1.0, daily, in another currency if the world has two.

use gpuledger_model::cause::Cause;
use gpuledger_model::tables::charge::Cloud;
use gpuledger_model::time::{DAY_MS, HOUR_MS};

use super::column::COLUMNS_1_0;
use super::{Account, Bill, Desk, Pays, decimal, scaled};
use crate::chance::Chance;
use crate::fleet::AZURE_SUBSCRIPTION;

impl Desk<'_> {
    pub(super) fn microsoft(&self, chance: &mut Chance) -> Bill {
        let (currency, per_dollar_percent) = if self.options.has_second_currency { ("EUR", 92) } else { ("USD", 100) };
        let account = Account {
            provider: "Microsoft",
            id: "0087654321",
            name: "Example Nord",
            sub_account: AZURE_SUBSCRIPTION,
            invoice: "E0300ABCDE",
            currency,
            per_dollar_percent,
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
                disk.cells.insert(
                    "ResourceId",
                    format!(
                        "/subscriptions/{AZURE_SUBSCRIPTION}/resourceGroups/MC_north/providers/Microsoft.Compute/disks/{}-os",
                        machine.node
                    ),
                );
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
}
