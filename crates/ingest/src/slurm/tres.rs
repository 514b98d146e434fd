//! Counts of GPUs in Slurm's trackable resources (`AllocTRES`) and generic resources (`Gres`, `AllocGRES`).

use std::collections::BTreeMap;

use gpuledger_model::mig;

use super::hostlist::indices_of;
use crate::declared::ratio_ppm;

/// MPS shares that Slurm's documentation gives to one device.
const MPS_PER_DEVICE: u64 = 100;

/// GPUs of a job or node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Gpus {
    /// All of them, MIG instances included, each once.
    pub total: u64,
    /// By type, where types are told.
    pub by_type: BTreeMap<String, u64>,
    /// Device indices, where they are told.
    pub indices: Vec<u32>,
    /// `gres/mps` or `gres/shard` counts of a job that shares a device.
    pub mps: u64,
    /// Shards likewise.
    pub shards: u64,
    /// A count of GPUs that is no number: what was held cannot be told.
    pub unreadable: Option<String>,
}

impl Gpus {
    /// Whether it asks for no device at all.
    pub(super) fn is_none(&self) -> bool {
        self.total == 0 && self.mps == 0 && self.shards == 0
    }

    /// The share of one device that MPS counts declare.
    pub(super) fn mps_share_ppm(&self) -> Option<u32> {
        (self.total == 0 && self.mps > 0).then(|| ratio_ppm(self.mps, MPS_PER_DEVICE)).flatten()
    }

    /// MIG instances by profile, in DCGM's spelling.
    pub(super) fn instances(&self) -> BTreeMap<String, u64> {
        let mut instances = BTreeMap::new();
        for (kind, &count) in &self.by_type {
            if let Some(profile) = mig_profile_in(kind) {
                let known: &mut u64 = instances.entry(profile).or_default();
                *known = known.saturating_add(count);
            }
        }
        instances
    }

    /// The one type that is no MIG profile, as a model's name.
    pub(super) fn model(&self) -> Option<&str> {
        let mut models = self.by_type.keys().filter(|kind| mig_profile_in(kind).is_none());
        models.next().filter(|_| models.next().is_none()).map(String::as_str)
    }
}

/// `gres/gpu=4,gres/gpu:h100=4`: the same GPUs twice. The untyped count is the whole; types alone add up.
pub(super) fn parse_tres(text: &str) -> Gpus {
    let mut gpus = Gpus::default();
    let mut untyped = None;
    for item in text.split(',') {
        let Some((name, count)) = item.trim().split_once('=') else { continue };
        let Ok(count) = count.trim().parse::<u64>() else {
            if ["gres/gpu", "gres/mps", "gres/shard"].iter().any(|gres| name.starts_with(gres)) {
                gpus.unreadable = Some(item.trim().to_string());
            }
            continue;
        };
        match name.strip_prefix("gres/") {
            Some("gpu") => untyped = untyped.max(Some(count)),
            Some("mps") => gpus.mps = gpus.mps.saturating_add(count),
            Some("shard") => gpus.shards = gpus.shards.saturating_add(count),
            Some(name) => {
                if let Some(kind) = name.strip_prefix("gpu:") {
                    let known = gpus.by_type.entry(kind.to_string()).or_default();
                    *known = known.saturating_add(count);
                }
            }
            None => {}
        }
    }
    let typed = gpus.by_type.values().fold(0u64, |sum, &count| sum.saturating_add(count));
    gpus.total = untyped.unwrap_or(typed);
    gpus
}

/// `gpu:h100:3(IDX:0-2),gpu:a100:1(IDX:7)`, `gpu:4`, `gpu(CNT:2)`, `gpu:(null):2(IDX:0-1)`, `gpu:8(S:0-1)`.
pub(super) fn parse_gres(text: &str) -> Gpus {
    let mut gpus = Gpus::default();
    for item in split_outside_parentheses(text) {
        let (name, detail) = match item.split_once("(IDX:").or_else(|| item.split_once("(S:")).or_else(|| item.split_once("(CNT:")) {
            Some((name, detail)) => (name, detail.trim_end_matches(')')),
            None => (item, ""),
        };
        let mut parts = name.trim().split(':');
        let gres = parts.next().unwrap_or_default();
        let parts: Vec<&str> = parts.filter(|part| *part != "(null)").collect();
        let indices = if item.contains("(IDX:") { indices_of(detail) } else { Vec::new() };
        let count = match parts.last().and_then(|part| part.parse::<u64>().ok()) {
            Some(count) => count,
            None if item.contains("(CNT:") => detail.parse().unwrap_or(0),
            // `GRES_IDX=gpu:h100(IDX:0-1)` of old versions gives indices only; `gpu` alone is one.
            None if indices.is_empty() => u64::from(!item.contains("(IDX:")),
            None => indices.len() as u64,
        };
        match gres {
            "gpu" => {
                gpus.total = gpus.total.saturating_add(count);
                if let Some(kind) = parts.first().filter(|kind| kind.parse::<u64>().is_err()) {
                    let known = gpus.by_type.entry(kind.to_string()).or_default();
                    *known = known.saturating_add(count);
                }
                gpus.indices.extend(indices);
            }
            "mps" => {
                gpus.mps = gpus.mps.saturating_add(count);
                gpus.indices.extend(indices);
            }
            "shard" => gpus.shards = gpus.shards.saturating_add(count),
            _ => {}
        }
    }
    gpus.indices.sort_unstable();
    gpus.indices.dedup();
    gpus
}

fn split_outside_parentheses(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut depth = 0u32;
    let mut start = 0;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'(' => depth += 1,
            b')' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => {
                parts.push(text.get(start..at).unwrap_or_default());
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(text.get(start..).unwrap_or_default());
    parts.retain(|part| !part.trim().is_empty() && part.trim() != "(null)");
    parts
}

/// A MIG profile inside a type's name: `1g.10gb`, `nvidia_h100_80gb_hbm3_1g.10gb`.
fn mig_profile_in(kind: &str) -> Option<String> {
    let kind = kind.to_ascii_lowercase();
    let at = kind.find("g.")?;
    let start = at.checked_sub(1)?;
    let slices = kind.get(start..at)?;
    let is_alone = start == 0 || kind.get(..start)?.ends_with(['_', '-', '.']);
    let memory = kind.get(at + 2..)?;
    let digits = memory.bytes().take_while(u8::is_ascii_digit).count();
    let is_profile = is_alone && slices.bytes().all(|b| b.is_ascii_digit()) && digits > 0 && memory.get(digits..)?.starts_with("gb");
    is_profile.then(|| mig::normalize_profile(kind.get(start..).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typed_and_untyped_counts_are_the_same_gpus() {
        assert_eq!(parse_tres("billing=4,cpu=4,gres/gpu:h100=3,gres/gpu=3,node=1").total, 3);
        assert_eq!(parse_tres("cpu=4,gres/gpu:a100=2,gres/gpu:h100=3").total, 5);
        assert_eq!(parse_tres("gres/gpu=4").total, 4);
        assert_eq!(parse_tres("billing=1,cpu=1,mem=2000M,node=1").total, 0);
        assert!(parse_tres("").is_none());
        assert_eq!(parse_tres("gres/gpu:h100=3,gres/gpu=3").model(), Some("h100"));
    }

    #[test]
    fn generic_resources_of_all_versions_are_read() {
        let gpus = parse_gres("gpu:h100:3(IDX:0-2)");
        assert_eq!((gpus.total, gpus.indices.as_slice(), gpus.model()), (3, &[0, 1, 2][..], Some("h100")));
        let gpus = parse_gres("gpu:a100:2(IDX:0,3),gpu:h100:1(IDX:5)");
        assert_eq!((gpus.total, gpus.indices.as_slice(), gpus.model()), (3, &[0, 3, 5][..], None));
        assert_eq!(parse_gres("gpu:4").total, 4);
        assert_eq!(parse_gres("gpu:a100:2").total, 2);
        assert_eq!(parse_gres("gpu(CNT:3)").total, 3);
        assert_eq!(parse_gres("gpu:8(S:0-1)").total, 8);
        assert_eq!(parse_gres("gpu:(null):2(IDX:0-1)").indices, [0, 1]);
        assert_eq!(parse_gres("gpu:(null):0(IDX:N/A)").total, 0);
        assert_eq!(parse_gres("gpu:h100(IDX:4-5)").total, 2);
        assert_eq!(parse_gres("gpu:h100:2(IDX:N/A)").total, 2);
        assert_eq!(parse_gres("(null)"), Gpus::default());
        assert_eq!(parse_gres("craynetwork:1,gpu:1").total, 1);
    }

    #[test]
    fn slices_and_shares_are_told_apart() {
        let gpus = parse_tres("gres/gpu:1g.10gb=2,gres/gpu=2");
        assert_eq!(gpus.instances(), BTreeMap::from([("1g.10gb".to_string(), 2)]));
        assert_eq!(parse_gres("gpu:nvidia_h100_80gb_hbm3_1g.10gb:7").instances(), BTreeMap::from([("1g.10gb".to_string(), 7)]));
        assert!(parse_tres("gres/gpu:h100_80gb=1").instances().is_empty());
        let gpus = parse_tres("gres/mps=25");
        assert_eq!((gpus.total, gpus.mps_share_ppm()), (0, Some(250_000)));
    }
}
