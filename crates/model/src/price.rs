//! List prices: which instance types have accelerators, how many, and what a machine costs an hour.
//!
//! Carried in `data/gpu_instances.csv` with date and source of each row. A user's rows override ours.
//! List prices serve estimates and the catalogue; they never replace a bill. An empty price is unknown, never zero.

use std::collections::BTreeMap;

use crate::money::Decimal;
use crate::tables::reject::Reject;

const PRICES_CSV: &str = include_str!("../data/gpu_instances.csv");

/// One (cloud, instance type, region).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Price {
    /// `aws`, `azure`, `gcp`, `oracle` ...
    pub cloud: String,
    /// Instance type.
    pub instance_type: String,
    /// Region; `*` for all.
    pub region: String,
    /// Accelerator model.
    pub accelerator: String,
    /// Whole accelerators of the machine; `None` where the list does not tell or tells a fraction.
    pub accelerator_count: Option<u32>,
    /// vCPUs.
    pub vcpus: Option<u32>,
    /// Memory, GiB.
    pub memory_gib: Option<Decimal>,
    /// On-demand price, USD an hour.
    pub on_demand_usd_per_hour: Option<Decimal>,
    /// Spot price, USD an hour.
    pub spot_usd_per_hour: Option<Decimal>,
    /// Date of the price.
    pub price_date: String,
    /// Source.
    pub source: String,
}

/// The price list, in file order; the user's rows first.
#[derive(Clone, Debug, Default)]
pub struct PriceList {
    rows: Vec<Price>,
    by_type: BTreeMap<String, Vec<usize>>,
    /// How many rows, from the first, are the user's own.
    own_rows: usize,
}

/// Columns of a price file.
pub const PRICE_COLUMNS: [&str; 14] = [
    "cloud",
    "instance_type",
    "region",
    "accelerator",
    "accelerator_vendor",
    "accelerator_count",
    "accelerator_memory_mib",
    "vcpus",
    "memory_gib",
    "on_demand_usd_per_hour",
    "spot_usd_per_hour",
    "price_includes_host",
    "price_date",
    "source",
];

impl PriceList {
    /// The list we ship.
    pub fn bundled() -> PriceList {
        let (list, _) = PriceList::parse("bundled", PRICES_CSV.as_bytes());
        list
    }

    /// Reads a price file (columns by name, any order; `cloud`, `instance_type`, `on_demand_usd_per_hour` required).
    pub fn parse(file: &str, text: &[u8]) -> (PriceList, Vec<Reject>) {
        let mut list = PriceList::default();
        let mut rejects = Vec::new();
        let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(text);
        let header = reader.headers().cloned().unwrap_or_default();
        let column = |name: &str| header.iter().position(|h| h.trim_start_matches('\u{feff}').trim() == name);
        let reject = |line: u64, field: &str, reason: &str| Reject {
            file: file.to_string(),
            line,
            field: field.to_string(),
            reason: reason.to_string(),
            count: 1,
        };
        for required in ["cloud", "instance_type", "on_demand_usd_per_hour"] {
            if column(required).is_none() {
                rejects.push(reject(1, required, "column missing; a price file needs cloud, instance_type, on_demand_usd_per_hour"));
                return (list, rejects);
            }
        }
        let columns: Vec<Option<usize>> = PRICE_COLUMNS.iter().map(|name| column(name)).collect();
        for (at, row) in reader.records().enumerate() {
            let line = at as u64 + 2;
            let row = match row {
                Ok(row) => row,
                Err(error) => {
                    rejects.push(reject(line, "", &format!("unreadable row: {error}")));
                    continue;
                }
            };
            let cell = |name: usize| columns[name].and_then(|c| row.get(c)).map(str::trim).filter(|t| !t.is_empty());
            let money = |name: usize, rejects: &mut Vec<Reject>| match cell(name).map(str::parse::<Decimal>) {
                None => None,
                Some(Ok(value)) if value >= Decimal::ZERO => Some(value),
                Some(_) => {
                    rejects.push(reject(line, PRICE_COLUMNS[name], "not a price: give USD an hour as a plain decimal"));
                    None
                }
            };
            let (Some(cloud), Some(instance_type)) = (cell(0), cell(1)) else {
                rejects.push(reject(line, "instance_type", "cloud or instance_type is empty"));
                continue;
            };
            let price = Price {
                cloud: cloud.to_string(),
                instance_type: instance_type.to_string(),
                region: cell(2).unwrap_or("*").to_string(),
                accelerator: cell(3).unwrap_or_default().to_string(),
                accelerator_count: cell(5).and_then(|t| t.parse().ok()),
                vcpus: cell(7).and_then(|t| t.parse().ok()),
                memory_gib: cell(8).and_then(|t| t.parse().ok()),
                on_demand_usd_per_hour: money(9, &mut rejects),
                spot_usd_per_hour: money(10, &mut rejects),
                price_date: cell(12).unwrap_or_default().to_string(),
                source: cell(13).unwrap_or(file).to_string(),
            };
            list.push(price);
        }
        (list, rejects)
    }

    fn push(&mut self, price: Price) {
        self.by_type.entry(price.instance_type.to_ascii_lowercase()).or_default().push(self.rows.len());
        self.rows.push(price);
    }

    /// This list's rows before another's: they override it. What they leave empty of a type is taken from there.
    pub fn over(mut self, base: PriceList) -> PriceList {
        for own in &mut self.rows {
            let Some(known) = base.find(Some(&own.cloud), &own.instance_type, Some(&own.region)) else { continue };
            if own.accelerator.is_empty() {
                own.accelerator.clone_from(&known.accelerator);
            }
            own.accelerator_count = own.accelerator_count.or(known.accelerator_count);
            own.vcpus = own.vcpus.or(known.vcpus);
            own.memory_gib = own.memory_gib.or(known.memory_gib);
        }
        self.own_rows = self.rows.len();
        for price in base.rows {
            self.push(price);
        }
        self
    }

    /// The row of a type: of its region, else of `*`, else the first listed; the user's rows of its region or of `*`
    /// before ours. A cloud that is given must match.
    pub fn find(&self, cloud: Option<&str>, instance_type: &str, region: Option<&str>) -> Option<&Price> {
        let rows = self.by_type.get(&instance_type.to_ascii_lowercase())?;
        let rank = |at: usize, price: &Price| {
            let is_own = at < self.own_rows;
            if region.is_some_and(|r| price.region.eq_ignore_ascii_case(r)) {
                if is_own { 0 } else { 2 }
            } else if price.region == "*" {
                if is_own { 1 } else { 3 }
            } else {
                4
            }
        };
        let of_cloud = rows.iter().map(|at| (*at, &self.rows[*at])).filter(|(_, p)| cloud.is_none_or(|c| p.cloud.eq_ignore_ascii_case(c)));
        of_cloud.min_by_key(|(at, price)| (rank(*at, price), *at)).map(|(_, price)| price)
    }

    /// Whether the type is in the list, on any cloud or the one given.
    pub fn knows(&self, cloud: Option<&str>, instance_type: &str) -> bool {
        self.find(cloud, instance_type, None).is_some()
    }

    /// The instance types of a cloud, lower case.
    pub fn types(&self, cloud: Option<&str>) -> impl Iterator<Item = &Price> {
        self.by_type.values().filter_map(move |rows| rows.iter().map(|at| &self.rows[*at]).find(|p| cloud.is_none_or(|c| p.cloud == c)))
    }

    /// A known type that stands as a whole word in a text: no letter, digit, `.`, `_` or `-` beside it
    /// (ACCOUNTING section 1). The longest wins.
    pub fn type_in_text(&self, cloud: Option<&str>, text: &str) -> Option<&Price> {
        let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        text.split(|c: char| !is_word(c))
            .filter(|word| !word.is_empty())
            .filter_map(|word| self.find(cloud, word, None))
            .max_by_key(|p| p.instance_type.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_found_by_region_and_never_zero() {
        let list = PriceList::bundled();
        let p5 = list.find(Some("aws"), "p5.48xlarge", Some("eu-nowhere-1")).unwrap();
        assert_eq!(p5.on_demand_usd_per_hour.unwrap().to_string(), "55.04");
        assert_eq!(p5.accelerator_count, Some(8));
        assert!(list.find(Some("gcp"), "p5.48xlarge", None).is_none());
        assert!(list.find(None, "p5e.48xlarge", None).unwrap().on_demand_usd_per_hour.is_none());
        assert_eq!(list.type_in_text(Some("aws"), "BoxUsage:p5.48xlarge").unwrap().instance_type, "p5.48xlarge");
        assert!(list.type_in_text(Some("aws"), "xp5.48xlarge").is_none());
    }

    #[test]
    fn a_users_rows_come_first() {
        let (own, rejects) = PriceList::parse("p.csv", b"cloud,instance_type,on_demand_usd_per_hour\naws,p5.48xlarge,40\naws,x,abc\n");
        assert_eq!(rejects.len(), 1);
        assert_eq!((rejects[0].line, rejects[0].field.as_str()), (3, "on_demand_usd_per_hour"));
        let list = own.over(PriceList::bundled());
        assert_eq!(list.find(Some("aws"), "p5.48xlarge", None).unwrap().on_demand_usd_per_hour.unwrap().to_string(), "40");
        // Over ours of a region too, and the count of accelerators is still known.
        let price = list.find(Some("aws"), "p5.48xlarge", Some("us-east-1")).unwrap();
        assert_eq!((price.on_demand_usd_per_hour.unwrap().to_string(), price.accelerator_count), ("40".to_string(), Some(8)));
        let (own, _) = PriceList::parse("p.csv", b"cloud,instance_type,region,on_demand_usd_per_hour\nAWS,p5.48xlarge,eu-west-1,50\n");
        let list = own.over(PriceList::bundled());
        let price = |region| list.find(Some("aws"), "p5.48xlarge", Some(region)).unwrap().on_demand_usd_per_hour.unwrap().to_string();
        assert_eq!((price("eu-west-1"), price("us-east-1")), ("50".to_string(), "55.04".to_string()));
    }
}
