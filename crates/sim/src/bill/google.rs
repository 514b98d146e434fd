//! The bill of Google: FOCUS 1.4, hourly, accelerators, cores and memory sold apart.

use gpuledger_model::cause::Cause;
use gpuledger_model::tables::charge::Cloud;
use gpuledger_model::time::{DAY_MS, HOUR_MS};

use super::column::COLUMNS_1_4;
use super::{Account, Bill, Desk, Pays, decimal, scaled};
use crate::chance::Chance;
use crate::fleet::GOOGLE_PROJECT;

impl Desk<'_> {
    pub(super) fn google(&self, chance: &mut Chance) -> Bill {
        let account = Account {
            provider: "Google Cloud",
            id: "01A2B3-C4D5E6-F7A8B9",
            name: "Example Tune",
            sub_account: GOOGLE_PROJECT,
            invoice: "5201234567",
            currency: "USD",
            per_dollar_percent: 100,
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
                    (
                        format!("{family} Instance Ram running in Americas"),
                        "GiB Hours",
                        i128::from(machine.memory_gib),
                        1000 - gpu_thousandths - core_thousandths,
                    ),
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
}
