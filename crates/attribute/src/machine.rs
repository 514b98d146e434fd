//! Machines: where telemetry hosts, nodes, inventories and bills meet (ACCOUNTING section 1, 2.5 of the bills' reference).

use std::collections::{BTreeMap, BTreeSet};

use gpuledger_model::machine;
use gpuledger_model::price::PriceList;
use gpuledger_model::tables::charge::{Charge, Cloud};
use gpuledger_model::tables::placement::{Node, Placements, RecordKind};
use gpuledger_model::tables::telemetry::Host;
use gpuledger_model::time::Window;

use crate::pool::RowFacts;

/// A node's time on a machine.
#[derive(Clone, Debug)]
pub struct NodeSpan {
    /// Cluster of the node; part of its identity.
    pub cluster: String,
    /// Node name.
    pub name: String,
    /// When this machine was the node.
    pub window: Window,
    /// Row of `placements.nodes`, when a scheduler knows it.
    pub node: Option<usize>,
    /// The scheduler's record, when one covers the node.
    pub record: Option<RecordKind>,
}

/// A host of telemetry on a machine.
#[derive(Clone, Debug)]
pub struct HostSpan {
    /// The host.
    pub host: Host,
    /// When its samples are this machine's.
    pub window: Window,
}

/// One machine.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// Reduced id, or `cluster/node` where no id is known.
    pub id: String,
    /// Whether the id is a provider's.
    pub has_provider_id: bool,
    /// Cloud.
    pub cloud: Option<Cloud>,
    /// Instance type, by node, else inventory, else bill.
    pub instance_type: Option<String>,
    /// Region.
    pub region: Option<String>,
    /// Nodes it was.
    pub nodes: Vec<NodeSpan>,
    /// Hosts of its telemetry.
    pub hosts: Vec<HostSpan>,
    /// Accelerators by the price list or the bill.
    pub catalogue_devices: u32,
    /// Whether anything shows that it has accelerators.
    pub has_accelerators: bool,
    /// Resource names of its usage rows.
    pub resource_names: BTreeSet<String>,
    /// Identity under which a kept record was made; `None` for a machine just joined.
    pub former_identity: Option<String>,
}

impl Machine {
    /// What its record depends on beside telemetry and placements, as text.
    pub fn identity(&self) -> String {
        if let Some(identity) = &self.former_identity {
            return identity.clone();
        }
        let nodes: Vec<String> =
            self.nodes.iter().map(|n| format!("{}/{}@{}..{}#{:?}", n.cluster, n.name, n.window.from_ms, n.window.to_ms, n.node)).collect();
        let hosts: Vec<String> =
            self.hosts.iter().map(|h| format!("{:?}/{}@{}..{}", h.host.cluster, h.host.name, h.window.from_ms, h.window.to_ms)).collect();
        format!("nodes {}; hosts {}; devices {}", nodes.join(","), hosts.join(","), self.catalogue_devices)
    }

    /// The nodes of a time.
    pub fn nodes_within(&self, window: Window) -> impl Iterator<Item = &NodeSpan> {
        self.nodes.iter().filter(move |n| n.window.overlaps(window))
    }
}

/// Joins everything by exact identity. The result is sorted by machine id.
pub fn join(
    hosts: &BTreeSet<Host>,
    placements: &Placements,
    charges: &[Charge],
    facts: &[RowFacts],
    prices: &PriceList,
) -> (Vec<Machine>, Vec<String>) {
    let mut machines: BTreeMap<String, Machine> = BTreeMap::new();
    let mut remarks = Vec::new();
    let mut spans: BTreeMap<(String, String), Vec<(Window, String)>> = BTreeMap::new();

    // Inventory rows tell which machine a node name was, and when.
    let mut inventory: BTreeMap<&str, Vec<&Node>> = BTreeMap::new();
    for node in placements.nodes.iter().filter(|n| n.record == RecordKind::Inventory) {
        inventory.entry(node.name.as_str()).or_default().push(node);
    }
    let scheduler_names: BTreeSet<(&str, &str)> =
        placements.nodes.iter().filter(|n| n.record != RecordKind::Inventory).map(|n| (n.cluster.as_str(), n.name.as_str())).collect();

    // Scheduler nodes: several objects of one name follow each other.
    let mut by_name: BTreeMap<(&str, &str), Vec<usize>> = BTreeMap::new();
    for (at, node) in placements.nodes.iter().enumerate() {
        if node.record != RecordKind::Inventory {
            by_name.entry((&node.cluster, &node.name)).or_default().push(at);
        }
    }
    for ((cluster, name), mut rows) in by_name {
        rows.sort_by_key(|at| {
            (placements.nodes[*at].from_ms.unwrap_or(i64::MIN), placements.nodes[*at].uid.clone(), placements.nodes[*at].machine_id.clone())
        });
        for (place, at) in rows.iter().enumerate() {
            let node = &placements.nodes[*at];
            let first = if place == 0 { i64::MIN } else { node.from_ms.unwrap_or(i64::MIN) };
            let next = rows.get(place + 1).and_then(|n| placements.nodes[*n].from_ms).unwrap_or(i64::MAX);
            let window = Window::new(first, next);
            if window.is_empty() {
                continue;
            }
            let mut parts: Vec<(Window, String, Option<&Node>)> = Vec::new();
            match &node.machine_id {
                Some(id) => parts.push((window, id.clone(), None)),
                None => {
                    for row in
                        inventory.get(name).into_iter().flatten().filter(|r| {
                            r.cluster.is_empty() || r.cluster == cluster || !scheduler_names.contains(&(r.cluster.as_str(), name))
                        })
                    {
                        let own = Window::new(row.from_ms.unwrap_or(i64::MIN), row.to_ms.unwrap_or(i64::MAX)).intersect(window);
                        if let (false, Some(id)) = (own.is_empty(), &row.machine_id) {
                            parts.push((own, id.clone(), Some(row)));
                        }
                    }
                    if parts.is_empty() {
                        parts.push((window, format!("{cluster}/{name}"), None));
                    }
                }
            }
            for (window, id, row) in parts {
                let has_provider_id = node.machine_id.is_some() || row.is_some();
                let machine =
                    machines.entry(id.clone()).or_insert_with(|| Machine { id: id.clone(), has_provider_id, ..Machine::default() });
                machine.cloud = machine.cloud.or(node.cloud).or(row.and_then(|r| r.cloud)).or(machine::reduce(&id).cloud);
                fill(&mut machine.instance_type, node.instance_type.as_ref().or(row.and_then(|r| r.instance_type.as_ref())));
                fill(&mut machine.region, node.region.as_ref().or(row.and_then(|r| r.region.as_ref())));
                let told = row.and_then(|r| r.capacity_devices).unwrap_or(0);
                machine.catalogue_devices = machine.catalogue_devices.max(told);
                if told > 0 || node.capacity_devices.unwrap_or(0) > 0 || node.allocatable_devices.unwrap_or(0) > 0 {
                    machine.has_accelerators = true;
                }
                machine.nodes.push(NodeSpan {
                    cluster: cluster.to_string(),
                    name: name.to_string(),
                    window,
                    node: Some(*at),
                    record: Some(node.record),
                });
                spans.entry((cluster.to_string(), name.to_string())).or_default().push((window, id));
            }
        }
    }
    // Inventory rows of names that no scheduler knows.
    for (name, rows) in &inventory {
        if scheduler_names.iter().any(|(_, n)| n == name) {
            continue;
        }
        for row in rows {
            let Some(id) = &row.machine_id else { continue };
            let window = Window::new(row.from_ms.unwrap_or(i64::MIN), row.to_ms.unwrap_or(i64::MAX));
            let machine =
                machines.entry(id.clone()).or_insert_with(|| Machine { id: id.clone(), has_provider_id: true, ..Machine::default() });
            machine.cloud = machine.cloud.or(row.cloud).or(machine::reduce(id).cloud);
            fill(&mut machine.instance_type, row.instance_type.as_ref());
            fill(&mut machine.region, row.region.as_ref());
            let told = row.capacity_devices.unwrap_or(0);
            machine.catalogue_devices = machine.catalogue_devices.max(told);
            machine.has_accelerators |= told > 0;
            machine.nodes.push(NodeSpan { cluster: row.cluster.clone(), name: name.to_string(), window, node: None, record: None });
            spans.entry((row.cluster.clone(), name.to_string())).or_default().push((window, id.clone()));
        }
    }
    // Machines that only a bill knows yet: the host of telemetry may carry their id.
    let billed: BTreeSet<&str> = facts.iter().map(|f| f.machine.as_str()).filter(|id| !id.is_empty()).collect();

    // Hosts of telemetry.
    // A `cluster` label that no record bears says nothing about ours.
    let clusters: BTreeSet<&str> = spans.keys().map(|(cluster, _)| cluster.as_str()).collect();
    for host in hosts {
        let known_cluster = host.cluster.as_ref().filter(|c| clusters.contains(c.as_str()));
        let named: Vec<_> = spans
            .iter()
            .filter(|((cluster, name), _)| *name == host.name && known_cluster.is_none_or(|c| c == cluster || cluster.is_empty()))
            .collect();
        let clusters: BTreeSet<&str> = named.iter().map(|((cluster, _), _)| cluster.as_str()).collect();
        let reduced = machine::reduce(&host.name);
        let mut targets: Vec<(Window, String)> = Vec::new();
        if clusters.len() == 1 {
            targets.extend(named.iter().flat_map(|(_, rows)| rows.iter().cloned()));
        } else if clusters.len() > 1 {
            remarks.push(format!(
                "host `{}` is a node of several clusters ({}); its telemetry needs a `cluster` label",
                host.name,
                clusters.into_iter().collect::<Vec<_>>().join(", ")
            ));
        } else if machines.contains_key(&reduced.id) || billed.contains(reduced.id.as_str()) || reduced.cloud.is_some() {
            targets.push((Window::new(i64::MIN, i64::MAX), reduced.id.clone()));
        }
        if targets.is_empty() {
            let cluster = host.cluster.clone().unwrap_or_default();
            targets.push((Window::new(i64::MIN, i64::MAX), format!("{cluster}/{}", host.name)));
        }
        for (window, id) in targets {
            let known = reduced.cloud.is_some() && id == reduced.id;
            let machine = machines.entry(id.clone()).or_insert_with(|| Machine {
                id: id.clone(),
                has_provider_id: known,
                cloud: reduced.cloud,
                ..Machine::default()
            });
            machine.has_accelerators = true;
            machine.hosts.push(HostSpan { host: host.clone(), window });
        }
    }
    // Bills: rows of known machines add what they tell; rows that show accelerators make a machine.
    for (charge, row) in charges.iter().zip(facts) {
        if row.machine.is_empty() || !row.is_machine_usage {
            continue;
        }
        let shows = row.shows_accelerators();
        if !shows && !machines.contains_key(&row.machine) {
            continue;
        }
        let machine = machines.entry(row.machine.clone()).or_insert_with(|| Machine {
            id: row.machine.clone(),
            has_provider_id: true,
            ..Machine::default()
        });
        machine.cloud = machine.cloud.or(Some(charge.cloud));
        fill(&mut machine.instance_type, row.instance_type.as_ref());
        fill(&mut machine.region, charge.region_id.as_ref());
        machine.catalogue_devices = machine.catalogue_devices.max(row.gpu_count.unwrap_or(0));
        machine.has_accelerators |= shows;
        if let Some(name) = &charge.resource_name {
            machine.resource_names.insert(name.clone());
        }
    }
    for machine in machines.values_mut() {
        if let Some(kind) = &machine.instance_type {
            let word = machine.cloud.and_then(crate::pool::cloud_word);
            if let Some(price) = prices.find(word, kind, machine.region.as_deref()) {
                machine.has_accelerators = true;
                machine.catalogue_devices = machine.catalogue_devices.max(price.accelerator_count.unwrap_or(0));
            }
        }
    }
    (machines.into_values().collect(), remarks)
}

fn fill(slot: &mut Option<String>, value: Option<&String>) {
    if slot.is_none() {
        *slot = value.cloned();
    }
}
