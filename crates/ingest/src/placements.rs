//! Placements of many files, dumps and repeats made one: the same rows whatever the order (**ING-1**).

use std::collections::BTreeMap;

use gpuledger_model::tables::placement::{Holder, Node, NodeClaim, Outcome, Placements, RecordKind, Reservation};

/// Joins placements. Records of one node or one holder become one row: the newest wins, at equal times the
/// fuller one, at equal fullness the greater text; what the winner does not know is taken from the others.
///
/// Two things follow from several records and from none alone: a node or pod that is listed alive, and whose
/// name a younger one bears, had ended when the younger began; and a holder whose devices any record names has
/// those devices.
pub fn merge_placements(parts: Vec<Placements>) -> Placements {
    let mut all = Placements::default();
    parts.into_iter().for_each(|part| all.extend(part));
    let mut merged = Placements { nodes: merge_nodes(all.nodes), holders: merge_holders(all.holders), reservations: all.reservations };
    merged.reservations.sort_by(|a, b| reservation_key(a).cmp(&reservation_key(b)));
    merged.reservations.dedup();
    merged
}

fn reservation_key(r: &Reservation) -> (&str, &str, &str, i64, Option<i64>, u32) {
    (&r.cluster, &r.node, &r.name, r.from_ms, r.to_ms, r.count)
}

/// How many of its facts a record knows.
pub(crate) fn node_fullness(node: &Node) -> usize {
    let known = [
        node.uid.is_some(),
        node.machine_id.is_some(),
        node.cloud.is_some(),
        node.instance_type.is_some(),
        node.region.is_some(),
        node.from_ms.is_some(),
        node.capacity_devices.is_some(),
        node.allocatable_devices.is_some(),
        node.accelerator_model.is_some(),
    ];
    known.into_iter().filter(|&is_known| is_known).count() + node.labels.len()
}

fn merge_nodes(nodes: Vec<Node>) -> Vec<Node> {
    let mut groups: BTreeMap<_, Vec<Node>> = BTreeMap::new();
    for node in nodes {
        // An inventory has one row per time in which a machine bore the name.
        let inventory = (node.record == RecordKind::Inventory).then(|| (node.machine_id.clone(), node.from_ms, node.to_ms));
        groups.entry((node.cluster.clone(), node.name.clone(), node.record, node.uid.clone(), inventory)).or_default().push(node);
    }
    let mut merged: Vec<Node> = Vec::with_capacity(groups.len());
    for mut records in groups.into_values() {
        records.sort_by_cached_key(|n| (n.last_record_ms, node_fullness(n), text_of(n)));
        merged.extend(merge_records_of_node(records));
    }
    end_replaced_nodes(&mut merged);
    merged
}

/// One row, or one per machine where the scheduler (a Slurm cloud node) gave the name to several, one after the
/// other; the older machine is known until the last record that names it.
fn merge_records_of_node(mut oldest_first: Vec<Node>) -> Vec<Node> {
    let mut newest_first: Vec<Node> = Vec::new();
    let mut machines: Vec<Option<String>> = Vec::new();
    for node in oldest_first.iter().rev().filter(|n| n.machine_id.is_some()) {
        if !machines.contains(&node.machine_id) {
            machines.push(node.machine_id.clone());
        }
    }
    if machines.len() < 2 {
        let winner = oldest_first.pop();
        newest_first.extend(winner.map(|winner| oldest_first.iter().rev().fold(winner, fill_node)));
        return newest_first;
    }
    for machine in machines {
        let mut of_machine: Vec<&Node> = oldest_first.iter().filter(|n| n.machine_id == machine).collect();
        let Some(winner) = of_machine.pop().cloned() else { continue };
        let mut node = of_machine.into_iter().rev().fold(winner, fill_node);
        if let Some(younger) = newest_first.last_mut() {
            node.to_ms = node.to_ms.or(node.last_record_ms);
            younger.from_ms = younger.from_ms.or(node.to_ms);
        }
        newest_first.push(node);
    }
    newest_first.reverse();
    newest_first
}

fn fill_node(mut known: Node, older: &Node) -> Node {
    fn fill<T: Clone>(field: &mut Option<T>, from: &Option<T>) {
        if field.is_none() {
            field.clone_from(from);
        }
    }
    // Devices and their sharing are one statement, and cordoning another: neither is mixed from two records.
    if known.capacity_devices.is_none() && known.mig_resources.is_empty() {
        known.capacity_devices = older.capacity_devices;
        known.mig_resources.clone_from(&older.mig_resources);
        known.mig_single_profile.clone_from(&older.mig_single_profile);
        known.replicas = known.replicas.max(older.replicas);
        fill(&mut known.allocatable_devices, &older.allocatable_devices);
    }
    fill(&mut known.machine_id, &older.machine_id);
    fill(&mut known.cloud, &older.cloud);
    fill(&mut known.instance_type, &older.instance_type);
    fill(&mut known.region, &older.region);
    fill(&mut known.from_ms, &older.from_ms);
    fill(&mut known.to_ms, &older.to_ms);
    fill(&mut known.accelerator_model, &older.accelerator_model);
    if known.is_cordoned && older.is_cordoned {
        fill(&mut known.cordoned_from_ms, &older.cordoned_from_ms);
    }
    known.last_record_ms = known.last_record_ms.max(older.last_record_ms);
    for (key, value) in &older.labels {
        known.labels.entry(key.clone()).or_insert_with(|| value.clone());
    }
    known
}

/// A name is borne by one node at a time.
fn end_replaced_nodes(nodes: &mut [Node]) {
    let mut by_name: BTreeMap<(String, String), Vec<(i64, usize)>> = BTreeMap::new();
    for (at, node) in nodes.iter().enumerate().filter(|(_, n)| n.record == RecordKind::KubernetesDump) {
        if let Some(from_ms) = node.from_ms {
            by_name.entry((node.cluster.clone(), node.name.clone())).or_default().push((from_ms, at));
        }
    }
    for mut places in by_name.into_values() {
        places.sort_unstable();
        for (&(older_from_ms, older), &(younger_from_ms, _)) in places.iter().zip(places.iter().skip(1)) {
            if let Some(node) = nodes.get_mut(older).filter(|_| older_from_ms < younger_from_ms) {
                node.to_ms = Some(node.to_ms.map_or(younger_from_ms, |to_ms| to_ms.min(younger_from_ms)));
            }
        }
    }
}

fn merge_holders(holders: Vec<Holder>) -> Vec<Holder> {
    let mut groups: BTreeMap<String, Vec<Holder>> = BTreeMap::new();
    for holder in holders {
        groups.entry(holder.key.clone()).or_default().push(holder);
    }
    let mut merged: Vec<Holder> = Vec::with_capacity(groups.len());
    for mut records in groups.into_values() {
        // At equal times an end is the later news.
        records.sort_by_cached_key(|h| (h.last_record_ms, h.to_ms.is_some(), h.claims.len(), text_of(h)));
        let claims = claims_of(&records);
        if let Some(winner) = records.pop() {
            let mut holder = records.iter().rev().fold(winner, fill_holder);
            holder.claims = claims;
            merged.push(holder);
        }
    }
    end_replaced_pods(&mut merged);
    merged
}

/// The newest claims that name devices, else the newest claims.
fn claims_of(oldest_first: &[Holder]) -> Vec<NodeClaim> {
    let names_devices = |h: &&Holder| h.claims.iter().any(|c| !c.device_indices.is_empty() || !c.device_uuids.is_empty());
    let newest_named = oldest_first.iter().rev().find(names_devices);
    let newest = || oldest_first.iter().rev().find(|h| !h.claims.is_empty());
    newest_named.or_else(newest).map(|h| h.claims.clone()).unwrap_or_default()
}

fn fill_holder(mut known: Holder, older: &Holder) -> Holder {
    if known.account.is_none() {
        known.account.clone_from(&older.account);
    }
    if known.user.is_none() {
        known.user.clone_from(&older.user);
    }
    if known.name.is_empty() {
        known.name.clone_from(&older.name);
    }
    for (key, value) in &older.labels {
        known.labels.entry(key.clone()).or_insert_with(|| value.clone());
    }
    for (key, value) in &older.annotations {
        known.annotations.entry(key.clone()).or_insert_with(|| value.clone());
    }
    known.addresses.extend(older.addresses.iter().cloned());
    known.addresses.sort_unstable();
    known.addresses.dedup();
    known.checkpoints_ms.extend_from_slice(&older.checkpoints_ms);
    known.checkpoints_ms.sort_unstable();
    known.checkpoints_ms.dedup();
    known.resumed_from_ms = known.resumed_from_ms.or(older.resumed_from_ms);
    known.recompute_until_ms = known.recompute_until_ms.or(older.recompute_until_ms);
    known.standby_declared |= older.standby_declared;
    known.bandwidth_expected |= older.bandwidth_expected;
    known
}

/// A pod's name is borne by one pod at a time: the older was deleted before the younger started.
fn end_replaced_pods(holders: &mut [Holder]) {
    let mut by_name: BTreeMap<(String, String, String), Vec<(i64, usize)>> = BTreeMap::new();
    for (at, holder) in holders.iter().enumerate().filter(|(_, h)| h.record == RecordKind::KubernetesDump) {
        let namespace = holder.namespace.clone().unwrap_or_default();
        by_name.entry((holder.cluster.clone(), namespace, holder.name.clone())).or_default().push((holder.from_ms, at));
    }
    for mut places in by_name.into_values().filter(|places| places.len() > 1) {
        places.sort_unstable();
        for (&(older_from_ms, older), &(younger_from_ms, _)) in places.iter().zip(places.iter().skip(1)) {
            if let Some(holder) = holders.get_mut(older).filter(|h| h.to_ms.is_none() && older_from_ms < younger_from_ms) {
                holder.to_ms = Some(younger_from_ms);
                holder.outcome = Outcome::Deleted;
            }
        }
    }
}

/// The last word in ties: the row's text.
fn text_of<T: serde::Serialize>(row: &T) -> String {
    serde_json::to_string(row).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::kubernetes::{self, Options};

    /// A dump of one pod and one node in a state of a small world.
    fn dump((name, uid, minute, phase): (u8, u8, u8, u8)) -> Placements {
        let phase = ["Running", "Succeeded", "Failed"][usize::from(phase % 3)];
        let text = format!(
            r#"{{"kind":"List","items":[
              {{"kind":"Pod","metadata":{{"name":"p{name}","namespace":"a","uid":"u{name}-{uid}","annotations":{{"gpuledger.io/last-checkpoint":"2026-10-06T1{uid}:0{minute}:00Z"}}}},
               "spec":{{"nodeName":"n{name}","containers":[{{"resources":{{"limits":{{"nvidia.com/gpu":"{}"}}}}}}]}},
               "status":{{"phase":"{phase}","startTime":"2026-10-06T1{uid}:00:00Z","conditions":[{{"type":"Ready","status":"False","lastTransitionTime":"2026-10-06T1{uid}:0{minute}:30Z"}}]}}}},
              {{"kind":"Node","metadata":{{"name":"n{name}","uid":"n{uid}","creationTimestamp":"2026-10-06T0{uid}:00:00Z","labels":{{"minute":"{minute}"}}}},
               "status":{{"capacity":{{"nvidia.com/gpu":"8"}},"conditions":[{{"lastHeartbeatTime":"2026-10-06T1{uid}:0{minute}:00Z"}}]}}}}]}}"#,
            minute % 4 + 1
        );
        kubernetes::parse("d", text.as_bytes(), "c", &Options::default()).value
    }

    proptest! {
        #[test]
        fn ing_1_order_and_repeats_do_not_matter(states in prop::collection::vec((0u8..2, 0u8..3, 0u8..10, 0u8..3), 1..8), shift in 0usize..8) {
            let parts: Vec<Placements> = states.into_iter().map(dump).collect();
            let once = merge_placements(parts.clone());
            let mut other = parts.clone();
            other.reverse();
            other.rotate_left(shift % parts.len());
            other.extend(parts);
            prop_assert_eq!(&merge_placements(other), &once);
            prop_assert_eq!(&merge_placements(vec![once.clone()]), &once);
        }
    }

    #[test]
    fn the_newest_record_wins_and_names_pass_on() {
        let merged = merge_placements(vec![dump((0, 0, 5, 0)), dump((0, 0, 9, 1))]);
        assert_eq!(merged.holders.len(), 1);
        assert_eq!(merged.holders[0].outcome, Outcome::Succeeded);
        assert_eq!(merged.holders[0].checkpoints_ms.len(), 2, "what either dump knew of checkpoints is known");
        assert_eq!(merged.nodes[0].labels["minute"], "9");
        // The name was given to a younger pod and a younger node.
        let merged = merge_placements(vec![dump((0, 1, 5, 0)), dump((0, 0, 5, 0))]);
        let older = &merged.holders[0];
        assert_eq!((older.outcome, older.to_ms), (Outcome::Deleted, Some(merged.holders[1].from_ms)));
        assert_eq!(merged.nodes[0].to_ms, merged.nodes[1].from_ms);
        assert_eq!(merged.nodes[1].to_ms, None);
    }
}
