//! MIG geometry: what share of its board an instance is.
//!
//! Source: NVIDIA MIG User Guide, supported profiles; carried in `data/mig_profiles.csv`.

use std::collections::BTreeMap;
use std::sync::OnceLock;

const PROFILES_CSV: &str = include_str!("../data/mig_profiles.csv");

/// A share of a device as an exact ratio.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Share {
    /// Numerator.
    pub numerator: u64,
    /// Denominator, above zero.
    pub denominator: u64,
}

impl Share {
    /// The whole device.
    pub const WHOLE: Share = Share { numerator: 1, denominator: 1 };

    /// In lowest terms.
    pub fn new(numerator: u64, denominator: u64) -> Share {
        let divisor = gcd(numerator, denominator).max(1);
        Share { numerator: numerator / divisor, denominator: denominator / divisor }
    }

    /// The product, in lowest terms.
    pub fn times(self, other: Share) -> Share {
        let a = Share::new(self.numerator, other.denominator);
        let b = Share::new(other.numerator, self.denominator);
        Share { numerator: a.numerator * b.numerator, denominator: a.denominator * b.denominator }
    }

    /// As a float, for display and comparison of sizes only.
    pub fn as_f64(self) -> f64 {
        self.numerator as f64 / self.denominator as f64
    }
}

/// Greatest common divisor.
pub fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// One profile of one board.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigProfile {
    /// Board row of the table.
    pub board: String,
    /// Name in DCGM's spelling, `1g.10gb+me`.
    pub profile: String,
    /// Compute slices of the instance.
    pub compute_slices: u64,
    /// Compute slices of the board.
    pub compute_slices_total: u64,
    /// Memory slices of the instance, if published.
    pub memory_slices: Option<u64>,
    /// Memory slices of the board, if published.
    pub memory_slices_total: Option<u64>,
    /// Usable memory of the instance, MiB, if published.
    pub memory_mib: Option<u64>,
}

impl MigProfile {
    /// The mean of compute share and memory share (ACCOUNTING section 3).
    pub fn share(&self) -> Share {
        let compute = (self.compute_slices, self.compute_slices_total);
        match (self.memory_slices, self.memory_slices_total) {
            (Some(memory), Some(total)) => Share::new(compute.0 * total + memory * compute.1, 2 * compute.1 * total),
            _ => Share::new(compute.0, compute.1),
        }
    }
}

struct Table {
    by_name: BTreeMap<String, Vec<MigProfile>>,
}

fn table() -> &'static Table {
    static TABLE: OnceLock<Table> = OnceLock::new();
    TABLE.get_or_init(|| {
        let mut by_name: BTreeMap<String, Vec<MigProfile>> = BTreeMap::new();
        let mut reader = csv::Reader::from_reader(PROFILES_CSV.as_bytes());
        for row in reader.records().flatten() {
            let number = |at: usize| row.get(at).and_then(|t| t.parse::<u64>().ok());
            let (Some(compute_slices_total), Some(compute_slices)) = (number(2), number(5)) else { continue };
            let profile = MigProfile {
                board: row[0].to_string(),
                profile: row[4].to_string(),
                compute_slices,
                compute_slices_total,
                memory_slices: number(6),
                memory_slices_total: number(3),
                memory_mib: row.get(7).and_then(|t| t.parse::<f64>().ok()).map(|gib| (gib * 1024.0) as u64),
            };
            by_name.entry(profile.profile.clone()).or_default().push(profile);
        }
        Table { by_name }
    })
}

/// The profile of a name: DCGM's `1g.10gb+me`, the resource's `1g.10gb.me`, with or without a `mig-` prefix.
/// The board's model settles names that several boards share (they agree but for A30's quarters);
/// without a match the first board that knows the name serves.
pub fn profile(name: &str, model: Option<&str>) -> Option<&'static MigProfile> {
    let name = normalize_profile(name);
    let rows = table().by_name.get(&name)?;
    let board_key = |board: &str| board.split('-').next().unwrap_or_default().to_ascii_lowercase();
    let model = model.unwrap_or_default().to_ascii_lowercase();
    rows.iter().find(|row| !model.is_empty() && model.contains(&board_key(&row.board))).or_else(|| rows.first())
}

/// DCGM's spelling of a profile name.
pub fn normalize_profile(name: &str) -> String {
    let name = name.trim().to_ascii_lowercase();
    let name = name.strip_prefix("mig-").unwrap_or(&name);
    match name.split_once("gb.") {
        Some((size, rest)) => format!("{size}gb+{rest}"),
        None => name.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_the_mean_of_compute_and_memory() {
        assert_eq!(profile("1g.10gb", Some("NVIDIA H100 80GB HBM3")).unwrap().share(), Share::new(15, 112));
        assert_eq!(profile("3g.40gb", Some("NVIDIA A100-SXM4-80GB")).unwrap().share(), Share::new(52, 112));
        assert_eq!(profile("2g.12gb", Some("NVIDIA A30")).unwrap().share(), Share::new(1, 2));
        assert_eq!(profile("mig-1g.5gb.me", None).unwrap().profile, "1g.5gb+me");
        assert!(profile("9g.1gb", None).is_none());
    }
}
