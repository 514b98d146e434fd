//! Signals beside the devices': requests in serving processes, and the CPU of containers.

use std::io::{self, Write};

use gpuledger_model::time::SECOND_MS;

use super::table::{self, Block};
use crate::fleet::Scheduler;
use crate::holder::Holder;
use crate::plan::Piece;
use crate::state::Signal;
use crate::workload::Workload;
use crate::world::World;

/// Between two samples.
const STEP_MS: i64 = 30 * SECOND_MS;

/// vLLM's gauges of the pods that serve, as Parquet.
pub fn write_requests<W: Write + Send>(world: &World, out: W) -> io::Result<()> {
    let labels = ["namespace", "pod", "job", "instance", "cluster", "model_name", "engine"];
    let metrics = ["vllm:num_requests_running", "vllm:num_requests_waiting"];
    let blocks = holders(world, |h| h.workload.is_serving()).map(|(at, holder)| {
        let set = vec![
            ("namespace", holder.group.to_string()),
            ("pod", holder.name.clone()),
            ("job", "vllm".to_string()),
            ("instance", format!("{}:8000", holder.address)),
            ("cluster", holder.cluster.to_string()),
            ("model_name", "llama-70b".to_string()),
            ("engine", "0".to_string()),
        ];
        sample(world, at, holder, vec![set], |piece, _| {
            let running = f64::from(piece.state.levels.get(Signal::Requests) / 1_000_000);
            vec![running, (running / 6.0).floor()]
        })
    });
    table::write(&labels, &metrics, blocks, out)
}

/// CPU used by, and allowed to, the containers of all pods, as Parquet: that the series is there tells nothing.
pub fn write_containers<W: Write + Send>(world: &World, out: W) -> io::Result<()> {
    let labels = ["namespace", "pod", "container", "job", "instance", "cluster", "resource", "unit"];
    let metrics = ["container_cpu_usage_seconds_total", "kube_pod_container_resource_limits"];
    let blocks = holders(world, |h| h.scheduler == Scheduler::Kubernetes).flat_map(|(at, holder)| {
        let base = |job: &str, port: u32| {
            vec![
                ("namespace", holder.group.to_string()),
                ("pod", holder.name.clone()),
                ("container", "main".to_string()),
                ("job", job.to_string()),
                ("instance", format!("{}:{port}", holder.address)),
                ("cluster", holder.cluster.to_string()),
            ]
        };
        let mut limits = base("kube-state-metrics", 8080);
        limits.push(("resource", "cpu".to_string()));
        limits.push(("unit", "core".to_string()));
        let cores = f64::from(CORES_PER_DEVICE) * holder.places.len() as f64;
        // A starved input pipeline uses 97 % of what it may, others from a quarter to three fifths.
        let share = if holder.workload == Workload::TrainingStarved { 0.97 } else { 0.25 + 0.05 * (at % 8) as f64 };
        let used =
            sample(world, at, holder, vec![base("kubelet", 10250)], |_, ms| vec![(ms as f64 / 1_000.0 * cores * share).round(), f64::NAN]);
        let limit = sample(world, at, holder, vec![limits], |_, _| vec![f64::NAN, cores]);
        [used, limit]
    });
    table::write(&labels, &metrics, blocks, out)
}

/// CPU cores that a pod may use per device.
pub const CORES_PER_DEVICE: u32 = 8;

fn holders<'a>(world: &'a World, is_meant: impl Fn(&Holder) -> bool + 'a) -> impl Iterator<Item = (usize, &'a Holder)> {
    world.plan.holders.iter().enumerate().filter(move |(_, h)| is_meant(h))
}

fn sample(
    world: &World,
    at: usize,
    holder: &Holder,
    label_sets: Vec<Vec<(&'static str, String)>>,
    value: impl Fn(&Piece, i64) -> Vec<f64>,
) -> Block {
    let mut block = Block { label_sets, sets: Vec::new(), times_ms: Vec::new(), values: vec![Vec::new(), Vec::new()] };
    let Some(place) = holder.places.first() else { return block };
    let timeline = &world.plan.timelines[place.machine][place.board][place.slot];
    let from = holder.from_ms.max(world.options.start_ms);
    let to = holder.to_ms.unwrap_or(world.options.end_ms());
    let mut time = from - from.rem_euclid(STEP_MS) + STEP_MS;
    let mut cursor = 0;
    while time < to {
        while timeline.get(cursor).is_some_and(|p| p.to_ms <= time) {
            cursor += 1;
        }
        let Some(piece) = timeline.get(cursor) else { break };
        if piece.holders.contains(&Some(at)) {
            block.sets.push(0);
            block.times_ms.push(time);
            for (column, value) in block.values.iter_mut().zip(value(piece, time - from)) {
                column.push(value);
            }
        }
        time += STEP_MS;
    }
    block
}
