//! The bill of Oracle: FOCUS 1.0, hourly, by the accelerator hour.

use gpuledger_model::cause::Cause;
use gpuledger_model::tables::charge::Cloud;
use gpuledger_model::time::HOUR_MS;

use super::column::COLUMNS_1_0;
use super::{Account, Bill, Desk, Pays, decimal, scaled};
use crate::chance::Chance;

impl Desk<'_> {
    pub(super) fn oracle(&self, chance: &mut Chance) -> Bill {
        let account = Account {
            provider: "Oracle",
            id: "0020209880",
            name: "",
            sub_account: "ocid1.tenancy.oc1..aaaaaaaaexample",
            invoice: "",
            currency: "USD",
            per_dollar_percent: 100,
        };
        let mut rows = Vec::new();
        for (at, machine) in self.machines.iter().enumerate().filter(|(_, m)| m.cloud == Cloud::Oracle) {
            for (from, to, paid) in self.periods(machine, HOUR_MS) {
                let cost = scaled(machine.price, i128::from(paid), i128::from(HOUR_MS), 10);
                let quantity =
                    scaled(decimal(machine.boards.len() as i128, 0), i128::from(paid), i128::from(HOUR_MS), 10).normalized().to_string();
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
}
