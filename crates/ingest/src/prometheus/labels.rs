//! Whom a series speaks of: host, board or instance, producer and holder, by its labels.
//!
//! Labels are what relabelling left of them: `exported_*` beats the plain ones, a node label of the
//! scrape configuration beats what the exporter says of its host, and a device is its UUID, never its index.

use gpuledger_model::mig::normalize_profile;
use gpuledger_model::tables::telemetry::{HolderLabel, Host, Unit};

use super::gate::is_absent_text;

/// Everything that a set of labels says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowIdentity {
    /// Host.
    pub host: Host,
    /// Producer: `job/instance`, else the target's name.
    pub producer: String,
    /// Board or instance that the row is about; `None` if nothing names a device.
    pub unit: Option<Unit>,
    /// Exporter's index.
    pub index: Option<u32>,
    /// Model name.
    pub model: Option<String>,
    /// MIG profile without the compute instance.
    pub profile: Option<String>,
    /// Holders named on the row.
    pub holders: Vec<HolderLabel>,
    /// The pod of the exporter itself, where the row proves which it is: (namespace, pod).
    pub exporter_pod: Option<(String, String)>,
    /// A copy of the device's value for one sharer.
    pub is_virtual: bool,
    /// The address scraped, without the port, else the target's name.
    pub address: String,
}

/// The labels of one row, absent values left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels {
    pairs: Vec<(String, String)>,
}

impl Labels {
    /// From name and value pairs; empty values and sentinels stand for absent labels.
    pub fn new<'a>(pairs: impl Iterator<Item = (&'a str, &'a str)>) -> Labels {
        let pairs = pairs.map(|(name, value)| (name.to_string(), value.to_string())).collect();
        Labels { pairs }
    }

    /// A label's value, unless it stands for absent.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.raw(name).map(str::trim).filter(|value| !is_absent_text(value))
    }

    fn raw(&self, name: &str) -> Option<&str> {
        self.pairs.iter().find(|pair| pair.0 == name).map(|pair| pair.1.as_str())
    }

    fn first(&self, names: &[&str]) -> Option<&str> {
        names.iter().find_map(|name| self.get(name))
    }

    /// What the labels say, for a row delivered by `target` of `cluster`; a cluster label beats that.
    pub fn identify(&self, target: &str, cluster: Option<&str>) -> RowIdentity {
        let instance_host = self.get("instance").map(without_port);
        let host = Host {
            cluster: self.get("cluster").or(cluster).map(str::to_string),
            name: self
                .first(&["nodeName", "node", "kubernetes_node"])
                .filter(|name| !is_local(name))
                .or_else(|| ["Hostname", "hostname", "host"].iter().find_map(|n| self.get(n).filter(|v| !is_local(v))))
                .or_else(|| instance_host.filter(|name| !is_local(name)))
                .unwrap_or(target)
                .to_string(),
        };
        let producer = match (self.get("job"), self.get("instance")) {
            (Some(job), Some(instance)) => format!("{job}/{instance}"),
            (Some(one), None) | (None, Some(one)) => one.to_string(),
            (None, None) => target.to_string(),
        };
        let index = self.get("gpu").and_then(|text| text.parse::<u32>().ok());
        let instance = self.get("GPU_I_ID").map(str::to_string);
        let profile = self.get("GPU_I_PROFILE").map(|text| without_compute_instance(&normalize_profile(text)));
        let uuid = self
            .first(&["UUID", "uuid", "gpu_uuid"])
            .and_then(normalize_uuid)
            .or_else(|| self.get("pci_bus_id").map(|pci| format!("{}/{}", host.name, pci.to_ascii_lowercase())))
            .or_else(|| index.map(|index| format!("{}/gpu{index}", host.name)));
        let (holders, exporter_pod) = self.holders(target);
        RowIdentity {
            unit: uuid.map(|uuid| Unit { uuid, instance }),
            index,
            model: self.first(&["modelName", "model_name"]).map(str::to_string),
            profile,
            holders,
            exporter_pod,
            is_virtual: self.get("vgpu").is_some(),
            address: instance_host.unwrap_or_else(|| without_port(target)).to_string(),
            host,
            producer,
        }
    }

    /// The pod that the row is about: `exported_*`, else the plain labels.
    pub fn pod(&self) -> Option<(&str, &str)> {
        if let Some(pod) = self.get("exported_pod") {
            return Some((self.get("exported_namespace").unwrap_or_default(), pod));
        }
        let pod = self.first(&["pod", "pod_name"])?;
        Some((self.first(&["namespace", "pod_namespace"]).unwrap_or_default(), pod))
    }

    fn holders(&self, target: &str) -> (Vec<HolderLabel>, Option<(String, String)>) {
        let mut holders = Vec::new();
        let plain = self.first(&["pod", "pod_name"]).map(|pod| (self.first(&["namespace", "pod_namespace"]).unwrap_or_default(), pod));
        let owned = |(namespace, pod): (&str, &str)| (namespace.to_string(), pod.to_string());
        // An exported label, empty or not, proves that the plain ones were written by the scrape
        // configuration and name the exporter (dcgm-exporter#27, #340).
        let is_relabelled = ["exported_pod", "exported_namespace", "exported_container"].iter().any(|n| self.raw(n).is_some());
        let mut exporter_pod = None;
        if is_relabelled {
            exporter_pod = plain.map(owned);
            if let Some(pod) = self.get("exported_pod") {
                let namespace = self.get("exported_namespace").unwrap_or_default().to_string();
                holders.push(HolderLabel::Pod { namespace, pod: pod.to_string() });
            }
        } else if let Some((namespace, pod)) = plain
            && !self.names_exporter(pod, target)
        {
            holders.push(HolderLabel::Pod { namespace: namespace.to_string(), pod: pod.to_string() });
        }
        if let Some(job) = self.get("hpc_job") {
            holders.push(HolderLabel::Job(job.to_string()));
        }
        (holders, exporter_pod)
    }

    /// Whether a plain pod label names the exporter itself.
    fn names_exporter(&self, pod: &str, target: &str) -> bool {
        let container = self.first(&["container", "container_name"]).unwrap_or_default();
        let is_of_service = ["service", "job"].iter().any(|label| {
            // A pod of the scraped service is called after it, with a generated ending.
            self.get("instance").is_some() && self.get(label).is_some_and(|name| name.contains("exporter") && pod.starts_with(name))
        });
        pod.contains("dcgm-exporter")
            || pod == target
            || matches!(container, "exporter" | "dcgm-exporter" | "nvidia-dcgm-exporter")
            || is_of_service
    }

    /// The labels that tell the parts of a sum apart, as one text.
    pub fn part_key(&self, names: &[String]) -> String {
        let mut key = String::new();
        for name in names {
            if !key.is_empty() {
                key.push('|');
            }
            key.push_str(self.get(name).unwrap_or_default());
        }
        key
    }
}

fn is_local(name: &str) -> bool {
    matches!(name, "localhost" | "localhost.localdomain" | "127.0.0.1" | "::1" | "[::1]")
}

fn without_port(address: &str) -> &str {
    match address.rsplit_once(':') {
        // A bare IPv6 address has colons and no port.
        Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) && (!host.contains(':') || host.ends_with(']')) => host,
        _ => address,
    }
}

/// `1c.3g.20gb` is a compute instance of `3g.20gb`.
fn without_compute_instance(profile: &str) -> String {
    match profile.split_once('.') {
        Some((head, rest)) if head.len() > 1 && head.ends_with('c') && head.bytes().rev().skip(1).all(|b| b.is_ascii_digit()) => {
            rest.to_string()
        }
        _ => profile.to_string(),
    }
}

/// Digits and hyphens of a UUID.
const UUID_LENGTH: usize = 36;

/// `GPU-` restored, the hexadecimal digits of a whole UUID in lower case; `None` for the all-zero UUID of virtual functions.
pub fn normalize_uuid(text: &str) -> Option<String> {
    let text = text.trim();
    let prefix = text.get(..4).unwrap_or_default();
    let (prefix, body) = if prefix.eq_ignore_ascii_case("gpu-") {
        ("GPU-", text.get(4..).unwrap_or_default())
    } else if prefix.eq_ignore_ascii_case("mig-") {
        ("MIG-", text.get(4..).unwrap_or_default())
    } else {
        ("GPU-", text)
    };
    if body.is_empty() || body.bytes().all(|b| matches!(b, b'0' | b'-')) {
        return None;
    }
    if body.len() == UUID_LENGTH && body.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-') {
        Some(format!("{prefix}{}", body.to_ascii_lowercase()))
    } else {
        Some(format!("{prefix}{body}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identify(pairs: &[(&str, &str)]) -> RowIdentity {
        Labels::new(pairs.iter().copied()).identify("target-7", None)
    }

    #[test]
    fn devices_are_their_uuid_then_their_address() {
        let unit = |pairs: &[(&str, &str)]| identify(pairs).unit.map(|u| u.id());
        let whole = unit(&[("uuid", "6D5C0AC5-74d7-4ad2-9b0c-0123456789AB")]);
        assert_eq!(whole.unwrap(), "GPU-6d5c0ac5-74d7-4ad2-9b0c-0123456789ab");
        assert_eq!(unit(&[("UUID", "GPU-B")]).unwrap(), "GPU-B");
        assert_eq!(unit(&[("UUID", "GPU-aa"), ("GPU_I_ID", "7"), ("GPU_I_PROFILE", "1c.2g.20gb")]).unwrap(), "GPU-aa/7");
        let zero = ("gpu_uuid", "00000000-0000-0000-0000-000000000000");
        assert_eq!(unit(&[zero, ("pci_bus_id", "0000:1A:00.0"), ("hostname", "n1")]).unwrap(), "n1/0000:1a:00.0");
        assert_eq!(unit(&[zero, ("gpu", "3")]).unwrap(), "target-7/gpu3");
        assert_eq!(unit(&[("Hostname", "n1")]), None);
        let mig = identify(&[("UUID", "GPU-aa"), ("GPU_I_ID", "7"), ("GPU_I_PROFILE", "1c.2g.20gb")]);
        assert_eq!(mig.profile.as_deref(), Some("2g.20gb"));
        assert_eq!(identify(&[("UUID", "GPU-aa"), ("GPU_I_PROFILE", "<<<NULL>>>")]).profile, None);
    }

    #[test]
    fn relabelled_nodes_beat_host_names_and_localhost_is_none() {
        let host = |pairs: &[(&str, &str)]| identify(pairs).host.name;
        assert_eq!(host(&[("Hostname", "pod-x"), ("node", "n1")]), "n1");
        assert_eq!(host(&[("Hostname", "localhost"), ("instance", "10.0.0.7:9400")]), "10.0.0.7");
        assert_eq!(host(&[("Hostname", "localhost")]), "target-7");
        assert_eq!(identify(&[("job", "dcgm"), ("instance", "a:9400")]).producer, "dcgm/a:9400");
        assert_eq!(identify(&[("instance", "[fd00::1]:9400")]).address, "[fd00::1]");
    }

    #[test]
    fn the_exporters_own_pod_holds_nothing() {
        let holders = |pairs: &[(&str, &str)]| identify(pairs).holders;
        let pod = |ns: &str, pod: &str| HolderLabel::Pod { namespace: ns.into(), pod: pod.into() };
        assert_eq!(holders(&[("pod", "train-0"), ("namespace", "ml")]), [pod("ml", "train-0")]);
        assert_eq!(holders(&[("pod_name", "train-0"), ("pod_namespace", "ml")]), [pod("ml", "train-0")]);
        let relabelled = [("pod", "x-78z52"), ("namespace", "monitoring"), ("exported_pod", "p1"), ("exported_namespace", "default")];
        assert_eq!(holders(&relabelled), [pod("default", "p1")]);
        assert_eq!(identify(&relabelled).exporter_pod, Some(("monitoring".into(), "x-78z52".into())));
        assert!(holders(&[("pod", "nvidia-dcgm-exporter-abc"), ("namespace", "gpu-operator")]).is_empty());
        assert!(holders(&[("pod", "x-78z52"), ("container", "exporter")]).is_empty());
        assert!(holders(&[("pod", "x-78z52"), ("exported_pod", "")]).is_empty());
        assert!(holders(&[("pod", ""), ("namespace", "")]).is_empty());
        assert_eq!(holders(&[("hpc_job", "4711")]), [HolderLabel::Job("4711".into())]);
    }
}
