//! Accelerator models: names, memory and power, from vendors' data sheets (`data/accelerators.csv`, sources in it).

use std::sync::OnceLock;

const ACCELERATORS_CSV: &str = include_str!("../data/accelerators.csv");

/// One accelerator model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accelerator {
    /// Our id, `h100-sxm-80`.
    pub id: String,
    /// Vendor.
    pub vendor: String,
    /// Usable memory as the driver reports it, MiB, else the label's size.
    pub memory_mib: Option<u64>,
    /// Board power, watts.
    pub tdp_watts: Option<u64>,
    /// PCIe generation.
    pub pcie_gen: Option<u64>,
    /// Names the driver uses.
    pub nvml_names: Vec<String>,
    /// Names in node labels.
    pub product_labels: Vec<String>,
}

fn table() -> &'static [Accelerator] {
    static TABLE: OnceLock<Vec<Accelerator>> = OnceLock::new();
    TABLE.get_or_init(|| {
        let mut reader = csv::Reader::from_reader(ACCELERATORS_CSV.as_bytes());
        reader
            .records()
            .flatten()
            .map(|row| {
                let number = |at: usize| row.get(at).and_then(|t| t.parse::<f64>().ok()).map(|n| n as u64);
                let list = |at: usize| row.get(at).unwrap_or_default().split('|').filter(|t| !t.is_empty()).map(str::to_string).collect();
                Accelerator {
                    id: row[0].to_string(),
                    vendor: row[1].to_string(),
                    memory_mib: number(3).or_else(|| number(2).map(|gb| gb * 1024)),
                    tdp_watts: number(4),
                    pcie_gen: number(6),
                    nvml_names: list(7),
                    product_labels: list(8),
                }
            })
            .collect()
    })
}

/// The model of a driver name or a node label; the suffixes of sharing and MIG are ignored.
pub fn by_name(name: &str) -> Option<&'static Accelerator> {
    let mut plain = name.trim();
    if let Some(at) = plain.find("-MIG-") {
        plain = &plain[..at];
    }
    plain = plain.strip_suffix("-SHARED").unwrap_or(plain);
    let folded = fold(plain);
    table().iter().find(|a| a.id == plain || a.nvml_names.iter().chain(&a.product_labels).any(|n| n == plain || fold(n) == folded))
}

fn fold(name: &str) -> String {
    name.to_ascii_lowercase().replace([' ', '_'], "-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_known_by_driver_name_and_label() {
        let h100 = by_name("NVIDIA H100 80GB HBM3").unwrap();
        assert_eq!(h100.tdp_watts, Some(700));
        assert_eq!(by_name("NVIDIA-H100-80GB-HBM3-MIG-1g.10gb").unwrap().id, h100.id);
        assert!(by_name("Abacus 9000").is_none());
    }
}
