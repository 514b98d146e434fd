//! Machine ids: the one reduced form in which bills, schedulers and inventories meet (ACCOUNTING section 1).
//!
//! Machines are joined by exact id, never by substring, tag or name.

use crate::tables::charge::Cloud;

/// A machine's cloud and reduced id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MachineId {
    /// Cloud, where the form tells.
    pub cloud: Option<Cloud>,
    /// Reduced id.
    pub id: String,
}

/// Reduces a Kubernetes `providerID`, a bill's ResourceId or an inventory id to one form:
/// `aws:///us-east-1a/i-0abc` = `arn:aws:ec2:…:instance/i-0abc` = `i-0abc`; Azure ids in lower case without
/// scheme, scale-set instances decoded to `…/virtualmachines/<index>`; OCI OCID;
/// Google `project/zone/name` (the numeric id is kept apart by [`gcp_numeric_id`]).
/// Texts of no known form stay as they are.
pub fn reduce(text: &str) -> MachineId {
    let text = text.trim();
    let lower = text.to_ascii_lowercase();
    if let Some(rest) = lower.strip_prefix("aws://") {
        let id = rest.rsplit('/').next().unwrap_or(rest);
        return MachineId { cloud: Some(Cloud::Aws), id: id.to_string() };
    }
    if lower.starts_with("arn:aws") {
        if let Some(at) = lower.find(":instance/") {
            return MachineId { cloud: Some(Cloud::Aws), id: lower[at + ":instance/".len()..].to_string() };
        }
        return MachineId { cloud: Some(Cloud::Aws), id: text.to_string() };
    }
    if is_ec2_instance_id(&lower) {
        return MachineId { cloud: Some(Cloud::Aws), id: lower };
    }
    if let Some(rest) = lower.strip_prefix("azure://") {
        return MachineId { cloud: Some(Cloud::Azure), id: azure_form(rest) };
    }
    if lower.starts_with("/subscriptions/") {
        return MachineId { cloud: Some(Cloud::Azure), id: azure_form(&lower) };
    }
    if let Some(rest) = lower.strip_prefix("gce://") {
        return MachineId { cloud: Some(Cloud::Gcp), id: rest.to_string() };
    }
    if let Some(id) = gcp_path_form(&lower) {
        return MachineId { cloud: Some(Cloud::Gcp), id };
    }
    if let Some(rest) = lower.strip_prefix("oci://") {
        return MachineId { cloud: Some(Cloud::Oracle), id: rest.to_string() };
    }
    if lower.starts_with("ocid1.") {
        return MachineId { cloud: Some(Cloud::Oracle), id: lower };
    }
    MachineId { cloud: None, id: text.to_string() }
}

/// `i-` and 8 to 17 (or, in tests and mocks, any number of) letters and digits.
fn is_ec2_instance_id(lower: &str) -> bool {
    lower.strip_prefix("i-").is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_alphanumeric()))
}

/// `//compute.googleapis.com/projects/P/zones/Z/instances/N` and `projects/P/zones/Z/instances/N` to `p/z/n`.
fn gcp_path_form(lower: &str) -> Option<String> {
    let rest = lower
        .strip_prefix("//compute.googleapis.com/")
        .or_else(|| lower.strip_prefix("https://www.googleapis.com/compute/v1/"))
        .unwrap_or(lower);
    let parts: Vec<&str> = rest.split('/').collect();
    match parts.as_slice() {
        ["projects", project, "zones", zone, "instances", name] => Some(format!("{project}/{zone}/{name}")),
        ["projects", project, "instances", id] => Some(format!("{project}/{id}")),
        _ => None,
    }
}

/// The numeric instance id at the end of a reduced Google id, if it is one.
pub fn gcp_numeric_id(id: &str) -> Option<&str> {
    let last = id.rsplit('/').next()?;
    (last.len() >= 10 && last.bytes().all(|b| b.is_ascii_digit())).then_some(last)
}

fn azure_form(lower: &str) -> String {
    let path = format!("/{}", lower.trim_matches('/'));
    // `…/virtualmachinescalesets/<set>/virtualmachines/<set>_3` or `…/<set>000003`: the last six are base 36.
    if let Some((head, tail)) = path.rsplit_once("/virtualmachines/")
        && let Some((_, set)) = head.rsplit_once("/virtualmachinescalesets/")
        && let Some(index) = scale_set_index(set, tail)
    {
        return format!("{head}/virtualmachines/{index}");
    }
    path
}

/// The instance index of a scale-set machine's name (`<set>_3`, `<set>000003` in base 36, or `3`).
pub fn scale_set_index(set: &str, name: &str) -> Option<u64> {
    let name = name.to_ascii_lowercase();
    if let Ok(index) = name.parse::<u64>()
        && name.len() < 6
    {
        return Some(index);
    }
    if let Some((head, tail)) = name.rsplit_once('_')
        && head == set
        && let Ok(index) = tail.parse()
    {
        return Some(index);
    }
    if name.len() >= 6 && name.is_ascii() {
        let (head, tail) = name.split_at(name.len() - 6);
        if head.is_empty() || head == set {
            return u64::from_str_radix(tail, 36).ok();
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_forms_of_one_machine_meet() {
        let want = MachineId { cloud: Some(Cloud::Aws), id: "i-0abc12345".into() };
        for text in ["aws:///us-east-1a/i-0abc12345", "arn:aws:ec2:us-east-1:123:instance/i-0abc12345", "i-0abc12345"] {
            assert_eq!(reduce(text), want, "{text}");
        }
        let set = "/subscriptions/S/resourceGroups/mc_x/providers/Microsoft.Compute/virtualMachineScaleSets/aks-gpu";
        let want = reduce(&format!("azure://{set}/virtualMachines/12"));
        assert_eq!(reduce(&format!("{set}/virtualMachines/aks-gpu_12")), want);
        assert_eq!(reduce(&format!("{set}/virtualMachines/aks-gpu00000C")), want);
        assert_eq!(reduce("gce://proj/us-a/n1").id, "proj/us-a/n1");
        assert_eq!(reduce("//compute.googleapis.com/projects/proj/zones/us-a/instances/n1").id, "proj/us-a/n1");
        assert_eq!(reduce("ocid1.instance.oc1.phx.ABC").id, "ocid1.instance.oc1.phx.abc");
        assert_ne!(reduce("i-0abc1234"), reduce("i-0abc12345"));
        assert_eq!(reduce("gpu-1").id, "gpu-1");
    }
}
