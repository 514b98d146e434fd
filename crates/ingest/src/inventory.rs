//! A user's inventory: which machine bore which node name, and when. It joins names to machines where the
//! scheduler does not, and covers nothing.
//!
//! CSV with the columns `node,instance_id,from,to` and, where known, `cluster,cloud,instance_type,region,devices`,
//! in any order. `from` and `to` may be empty (open); times without a zone are UTC. An empty `cluster` means
//! whatever cluster knows a node of that name.

use std::collections::BTreeMap;

use gpuledger_model::machine;
use gpuledger_model::tables::charge::Cloud;
use gpuledger_model::tables::placement::{Node, RecordKind};
use gpuledger_model::time::parse_time;
use jiff::tz::TimeZone;

use crate::Parsed;
use crate::refusals::{Refusals, excerpt, foreign_encoding, without_mark};

/// Longest cell read.
const MAX_CELL_BYTES: usize = 1 << 20;

/// The columns known.
const COLUMNS: &[&str] = &["node", "instance_id", "from", "to", "cluster", "cloud", "instance_type", "region", "devices"];

/// Reads an inventory.
pub fn parse(file: &str, bytes: &[u8]) -> Parsed<Vec<Node>> {
    let mut refusals = Refusals::new(file);
    let mut nodes = Vec::new();
    let mut rows = 0;
    match foreign_encoding(bytes) {
        Some(reason) => refusals.reject(0, "", reason),
        None => rows = read_rows(without_mark(bytes), &mut nodes, &mut refusals),
    }
    nodes.sort_by(|a: &Node, b: &Node| node_key(a).cmp(&node_key(b)));
    nodes.dedup();
    let (rejects, notices) = refusals.finish();
    Parsed { value: nodes, rows, rejects, notices }
}

fn node_key(node: &Node) -> (&str, &str, Option<i64>, Option<i64>, Option<&str>) {
    (&node.cluster, &node.name, node.from_ms, node.to_ms, node.machine_id.as_deref())
}

fn read_rows(bytes: &[u8], nodes: &mut Vec<Node>, refusals: &mut Refusals) -> u64 {
    let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).trim(csv::Trim::All).from_reader(bytes);
    let mut columns: Option<Vec<String>> = None;
    let mut record = csv::ByteRecord::new();
    let mut rows = 0;
    loop {
        let line = reader.position().line();
        match reader.read_byte_record(&mut record) {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) => {
                refusals.reject(line, "", format!("no readable CSV row: {error}"));
                break;
            }
        }
        let line = record.position().map_or(line, csv::Position::line);
        let mut cells = Vec::with_capacity(record.len());
        for cell in &record {
            cells.push(std::str::from_utf8(cell).ok().filter(|cell| cell.len() <= MAX_CELL_BYTES));
        }
        let Some(columns) = &columns else {
            let names: Vec<String> = cells.iter().map(|cell| cell.unwrap_or_default().to_ascii_lowercase()).collect();
            if let Some(missing) = ["node", "instance_id"].iter().find(|name| !names.iter().any(|n| n == *name)) {
                let reason = format!("the column {missing} is missing; the first line must be node,instance_id,from,to");
                refusals.reject(line, missing, reason);
                return rows;
            }
            for name in names.iter().filter(|name| !COLUMNS.contains(&name.as_str())) {
                refusals.notice("inventory_unknown_column", format!("the column {} is not known and was passed over", excerpt(name)));
            }
            columns = Some(names);
            continue;
        };
        rows += 1;
        if cells.len() != columns.len() {
            refusals.reject(line, "", format!("the row has {} cells for {} columns", cells.len(), columns.len()));
            continue;
        }
        if let Some((name, _)) = columns.iter().zip(&cells).find(|(_, cell)| cell.is_none()) {
            refusals.reject(line, name, "the cell is no UTF-8 text of at most 1 MiB");
            continue;
        }
        let cells: BTreeMap<&str, &str> =
            columns.iter().zip(&cells).map(|(name, cell)| (name.as_str(), cell.unwrap_or_default())).collect();
        nodes.extend(read_row(&cells, line, refusals));
    }
    if columns.is_none() {
        refusals.reject(1, "", "the file is empty; the first line must be node,instance_id,from,to");
    }
    rows
}

fn read_row(cells: &BTreeMap<&str, &str>, line: u64, refusals: &mut Refusals) -> Option<Node> {
    let text = |name: &str| cells.get(name).copied().filter(|cell| !cell.is_empty());
    let Some(name) = text("node") else {
        refusals.reject(line, "node", "the row names no node");
        return None;
    };
    let mut time = |name: &str| match text(name).map(|cell| (cell, parse_time(cell, &TimeZone::UTC))) {
        None => Some(None),
        Some((_, Some(time_ms))) => Some(Some(time_ms)),
        Some((cell, None)) => {
            refusals.reject(line, name, format!("{} is no time; write 2026-10-06T00:00:00Z or leave it empty", excerpt(cell)));
            None
        }
    };
    let (from_ms, to_ms) = (time("from")?, time("to")?);
    if let (Some(from_ms), Some(to_ms)) = (from_ms, to_ms)
        && to_ms <= from_ms
    {
        refusals.reject(line, "to", "the row ends before it begins");
        return None;
    }
    let devices = match text("devices").map(str::parse::<u32>) {
        None => None,
        Some(Ok(devices)) => Some(devices),
        Some(Err(_)) => {
            refusals.reject(line, "devices", "no whole number of accelerators");
            return None;
        }
    };
    let named_cloud = text("cloud").map(Cloud::from_provider_name);
    let machine = text("instance_id").map(machine::reduce);
    Some(Node {
        cluster: text("cluster").unwrap_or_default().to_string(),
        name: name.to_string(),
        uid: None,
        record: RecordKind::Inventory,
        cloud: named_cloud.or_else(|| machine.as_ref().and_then(|m| m.cloud)),
        machine_id: machine.map(|m| m.id),
        instance_type: text("instance_type").map(str::to_string),
        region: text("region").map(str::to_string),
        from_ms,
        to_ms,
        capacity_devices: devices,
        allocatable_devices: devices,
        replicas: 1,
        mig_single_profile: None,
        mig_resources: Vec::new(),
        accelerator_model: None,
        is_cordoned: false,
        cordoned_from_ms: None,
        last_record_ms: to_ms.or(from_ms),
        labels: BTreeMap::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_join_names_to_machines() {
        let text = "\u{feff}Instance_ID,node,from,to,devices,cloud\r\ni-0abc,gpu1,2026-10-06T00:00:00Z,2026-10-07T00:00:00Z,8,\r\n\"ocid1.instance.oc1.x\",gpu2,,,,\r\nrack7,gpu3,2026-10-06,,4,on-premises\r\n";
        let parsed = parse("map.csv", text.as_bytes());
        assert_eq!((parsed.rejects, parsed.rows), (vec![], 3));
        let first = &parsed.value[0];
        assert_eq!((first.name.as_str(), first.machine_id.as_deref(), first.cloud), ("gpu1", Some("i-0abc"), Some(Cloud::Aws)));
        assert_eq!((first.from_ms, first.to_ms, first.capacity_devices), (Some(1_791_244_800_000), Some(1_791_331_200_000), Some(8)));
        assert_eq!((parsed.value[1].cloud, parsed.value[1].from_ms), (Some(Cloud::Oracle), None));
        assert_eq!((parsed.value[2].cloud, parsed.value[2].record), (Some(Cloud::Other), RecordKind::Inventory));
    }

    #[test]
    fn wrong_rows_are_told_and_the_rest_kept() {
        let text = "node,instance_id,from,to\n,i-1,,\ngpu1,i-2,noon,\ngpu2,i-3,2026-10-07,2026-10-06\ngpu3,i-4\ngpu4,i-5,,\n";
        let parsed = parse("map.csv", text.as_bytes());
        let fields: Vec<_> = parsed.rejects.iter().map(|r| (r.line, r.field.as_str())).collect();
        assert_eq!(fields, [(2, "node"), (3, "from"), (4, "to"), (5, "")]);
        assert_eq!((parsed.value.len(), parsed.rows), (1, 5));
        assert_eq!(parse("m", b"name,id\nx,y\n").rejects[0].field, "node");
        assert_eq!(parse("m", b"").rejects.len(), 1);
        assert_eq!(parse("m", b"node,instance_id\ngpu1,\xff\n").rejects[0].field, "instance_id");
    }
}
