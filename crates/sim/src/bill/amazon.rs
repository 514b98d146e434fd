//! The bill of AWS: FOCUS 1.2, hourly, with a Savings Plan for each committed machine.

use gpuledger_model::cause::Cause;
use gpuledger_model::money::Decimal;
use gpuledger_model::tables::charge::Cloud;
use gpuledger_model::time::{DAY_MS, HOUR_MS};

use super::column::COLUMNS_1_2;
use super::{Account, Bill, BillRow, Desk, Pays, decimal, scaled};
use crate::chance::Chance;
use crate::fleet::Payment;

impl Desk<'_> {
    pub(super) fn amazon(&self, chance: &mut Chance) -> Bill {
        let account = Account {
            provider: "AWS",
            id: "111122223333",
            name: "Example Master",
            sub_account: "444455556666",
            invoice: "EUINUS26-1010",
            currency: "USD",
            per_dollar_percent: 100,
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
                    (
                        "SkuPriceDetails",
                        format!("{{\"InstanceType\":\"{}\",\"GpuCount\":{}}}", machine.instance_type, machine.boards.len()),
                    ),
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
                ("ServiceName", "Amazon Elastic Compute Cloud"),
                ("ServiceCategory", "Compute"),
                ("ResourceId", id),
                ("ResourceName", name),
                ("ResourceType", "Instance"),
                ("RegionId", "us-east-1"),
                ("PricingQuantity", "1"),
                ("PricingUnit", "Hours"),
                ("ConsumedQuantity", "1"),
                ("ConsumedUnit", "Hours"),
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
                ("ServiceName", "Amazon Elastic Block Store"),
                ("ServiceCategory", "Storage"),
                ("ResourceId", volume.as_str()),
                ("ResourceName", "gpu-dev"),
                ("ResourceType", "Volume"),
                ("RegionId", "us-east-1"),
                ("SkuMeter", "EBS:VolumeUsage.gp3"),
                ("ConsumedQuantity", "1.389"),
                ("ConsumedUnit", "GB-Months"),
                ("PricingQuantity", "1.389"),
                ("PricingUnit", "GB-Months"),
            ] {
                disk.cells.insert(column, text.to_string());
            }
            rows.push(disk);
            if (10..12).contains(&of_day) {
                let price = decimal(21_957_642, 6);
                let mut block = self.row(account, hour, hour + HOUR_MS, Pays::Cause(Cause::UnusedCapacityBlock), price, price);
                for (column, text) in [
                    ("ServiceName", "Amazon Elastic Compute Cloud"),
                    ("ServiceCategory", "Compute"),
                    ("RegionId", "us-east-1"),
                    ("SkuMeter", "UnusedBox:p4d.24xlarge"),
                    ("PricingQuantity", "1"),
                    ("PricingUnit", "Hours"),
                    ("CapacityReservationStatus", "Unused"),
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
                    ("ServiceName", "AWS Data Transfer"),
                    ("ServiceCategory", "Networking"),
                    ("ResourceId", machine.resource_id.as_str()),
                    ("ResourceName", machine.resource_name.as_str()),
                    ("SkuMeter", "DataTransfer-Regional-Bytes"),
                    ("ConsumedUnit", "GB"),
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
        let mut correction =
            self.row(account, september, september + DAY_MS, Pays::Cause(Cause::OtherService), decimal(-12_345, 4), decimal(-12_345, 4));
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
}

fn commit(row: &mut BillRow, id: &str, status: &str) {
    for (column, text) in [
        ("CommitmentDiscountId", id),
        ("CommitmentDiscountCategory", "Spend"),
        ("CommitmentDiscountType", "Savings Plan"),
        ("CommitmentDiscountStatus", status),
    ] {
        if !text.is_empty() {
            row.cells.insert(column, text.to_string());
        }
    }
}
