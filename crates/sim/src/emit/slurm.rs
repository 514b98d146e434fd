//! What `sacct -P -D`, `scontrol show job -d` and `scontrol show node` print at the end of the data.

use std::io::{self, Write};

use gpuledger_model::tables::placement::Outcome;
use gpuledger_model::time::{SECOND_MS, format_rfc3339};

use crate::fleet::{Machine, Scheduler};
use crate::holder::Holder;
use crate::world::World;

/// Slurm prints times of the cluster's zone, without one; this cluster keeps UTC.
fn time(ms: i64) -> String {
    format_rfc3339(ms).trim_end_matches('Z').to_string()
}

fn elapsed(ms: i64) -> String {
    let seconds = ms / SECOND_MS;
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let clock = format!("{:02}:{:02}:{:02}", rest / 3_600, rest / 60 % 60, rest % 60);
    if days > 0 { format!("{days}-{clock}") } else { clock }
}

/// The nodes of a job and its boards on each.
fn nodes_of<'a>(world: &'a World, job: &Holder) -> Vec<(&'a Machine, Vec<usize>)> {
    let mut nodes: Vec<(usize, Vec<usize>)> = Vec::new();
    for place in &job.places {
        match nodes.last_mut().filter(|n| n.0 == place.machine) {
            Some(node) => node.1.push(place.board),
            None => nodes.push((place.machine, vec![place.board])),
        }
    }
    nodes.into_iter().map(|(machine, boards)| (&world.machines[machine], boards)).collect()
}

/// `gpu-004`, or `gpu-[004,009]`.
fn node_list(nodes: &[(&Machine, Vec<usize>)]) -> String {
    match nodes {
        [(machine, _)] => machine.node.clone(),
        _ => {
            let numbers: Vec<&str> = nodes.iter().filter_map(|(m, _)| m.node.strip_prefix("gpu-")).collect();
            format!("gpu-[{}]", numbers.join(","))
        }
    }
}

fn jobs<'a>(world: &'a World, cluster: &'a str) -> impl Iterator<Item = (&'a Holder, &'a Machine)> {
    let jobs = world.plan.holders.iter().filter(move |h| h.scheduler == Scheduler::Slurm && h.cluster == cluster);
    jobs.filter_map(|h| h.places.first().map(|place| (h, &world.machines[place.machine])))
}

/// `sacct -P -D`: every incarnation.
pub fn write_accounting(world: &World, cluster: &str, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "JobID|JobName|Cluster|Account|User|Partition|State|ExitCode|Submit|Start|End|Elapsed|AllocTRES|NodeList|Comment")?;
    let mut rows: Vec<(&Holder, &Machine)> = jobs(world, cluster).collect();
    rows.sort_by_key(|(h, _)| (h.from_ms, h.uid.clone()));
    for (job, machine) in rows {
        let gpus = job.places.len();
        let state = match job.outcome {
            Outcome::Alive => "RUNNING",
            Outcome::Succeeded => "COMPLETED",
            Outcome::Failed => "FAILED",
            Outcome::Preempted => "PREEMPTED",
            Outcome::TimedOut => "TIMEOUT",
            _ => "CANCELLED by 1001",
        };
        let exit = if job.outcome == Outcome::Failed { "1:0" } else { "0:0" };
        let cpus = machine.vcpus as usize * gpus / machine.boards.len().max(1);
        let nodes = nodes_of(world, job);
        let tres = format!("billing={cpus},cpu={cpus},gres/gpu:h100={gpus},gres/gpu={gpus},mem={}G,node={}", 200 * gpus, nodes.len());
        let comment = job.checkpoints_ms.iter().map(|t| format!("checkpoint={}", time(*t))).collect::<Vec<_>>().join(",");
        let end = job.to_ms.map_or("Unknown".to_string(), time);
        let length = elapsed(job.to_ms.unwrap_or(world.options.end_ms()) - job.from_ms);
        writeln!(
            out,
            "{}|{}|{cluster}|{}|{}|gpu|{state}|{exit}|{}|{}|{end}|{length}|{tres}|{}|{comment}",
            job.uid,
            job.name,
            job.group,
            job.user,
            time(job.from_ms - 40 * SECOND_MS),
            time(job.from_ms),
            node_list(&nodes)
        )?;
    }
    Ok(())
}

/// `scontrol show job -d`: jobs that run.
pub fn write_jobs(world: &World, cluster: &str, out: &mut impl Write) -> io::Result<()> {
    let mut rows: Vec<(&Holder, &Machine)> = jobs(world, cluster).filter(|(h, _)| h.to_ms.is_none()).collect();
    rows.sort_by_key(|(h, _)| h.uid.clone());
    if rows.is_empty() {
        writeln!(out, "No jobs in the system")?;
    }
    for (job, machine) in rows {
        let gpus = job.places.len();
        let cpus = machine.vcpus as usize * gpus / machine.boards.len().max(1);
        let nodes = nodes_of(world, job);
        writeln!(out, "JobId={} JobName={}", job.uid, job.name)?;
        writeln!(out, "   UserId={}(1001) GroupId={}(1001) MCS_label=N/A", job.user, job.user)?;
        writeln!(out, "   Priority=4294901757 Nice=0 Account={} QOS=normal", job.group)?;
        writeln!(out, "   JobState=RUNNING Reason=None Dependency=(null)")?;
        writeln!(out, "   Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0")?;
        writeln!(out, "   RunTime={} TimeLimit=14-00:00:00 TimeMin=N/A", elapsed(world.options.end_ms() - job.from_ms))?;
        writeln!(out, "   SubmitTime={} EligibleTime={}", time(job.from_ms - 40 * SECOND_MS), time(job.from_ms - 40 * SECOND_MS))?;
        writeln!(out, "   StartTime={} EndTime={} Deadline=N/A", time(job.from_ms), time(job.from_ms + 14 * 86_400 * SECOND_MS))?;
        writeln!(out, "   Partition=gpu AllocNode:Sid=login-1:2211")?;
        writeln!(out, "   NodeList={} BatchHost={}", node_list(&nodes), machine.node)?;
        writeln!(out, "   NumNodes={} NumCPUs={cpus} NumTasks=1 CPUs/Task={cpus} ReqB:S:C:T=0:0:*:*", nodes.len())?;
        writeln!(
            out,
            "   AllocTRES=cpu={cpus},mem={}G,node={},billing={cpus},gres/gpu={gpus},gres/gpu:h100={gpus}",
            200 * gpus,
            nodes.len()
        )?;
        writeln!(out, "   JOB_GRES=gpu:h100:{gpus}")?;
        for (node, boards) in &nodes {
            let (first, last) = (boards.first().copied().unwrap_or(0), boards.last().copied().unwrap_or(0));
            let range = if first == last { first.to_string() } else { format!("{first}-{last}") };
            let held = boards.len();
            let cpus = node.vcpus as usize * held / node.boards.len().max(1);
            writeln!(
                out,
                "     Nodes={} CPU_IDs=0-{} Mem={} GRES=gpu:h100:{held}(IDX:{range})",
                node.node,
                cpus.max(1) - 1,
                204_800 * held
            )?;
        }
        writeln!(out, "   TresPerNode=gres/gpu:h100:{gpus}")?;
        writeln!(out)?;
    }
    Ok(())
}

/// `scontrol show node`, and after it `scontrol show reservation`.
pub fn write_nodes(world: &World, cluster: &str, out: &mut impl Write) -> io::Result<()> {
    for machine in world.machines.iter().filter(|m| m.cluster == cluster) {
        let boards = machine.boards.len();
        writeln!(out, "NodeName={} Arch=x86_64 CoresPerSocket=56", machine.node)?;
        writeln!(out, "   CPUAlloc=0 CPUEfctv={} CPUTot={} CPULoad=1.20", machine.vcpus, machine.vcpus)?;
        writeln!(out, "   AvailableFeatures=gpu ActiveFeatures=gpu")?;
        writeln!(out, "   Gres=gpu:h100:{boards}(S:0-1)")?;
        writeln!(out, "   NodeAddr={} NodeHostName={} Version=24.05.4", machine.node, machine.node)?;
        writeln!(out, "   OS=Linux 5.15.0 RealMemory={} AllocMem=0 Sockets=2 Boards=1", u64::from(machine.memory_gib) * 1_024)?;
        writeln!(out, "   State=IDLE ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A")?;
        writeln!(out, "   Partitions=gpu")?;
        writeln!(out, "   BootTime={} SlurmdStartTime={}", time(machine.from_ms), time(machine.from_ms + 60 * SECOND_MS))?;
        writeln!(out, "   LastBusyTime={} ResumeAfterTime=None", time(world.options.end_ms()))?;
        writeln!(
            out,
            "   CfgTRES=cpu={},mem={}G,billing={},gres/gpu={boards},gres/gpu:h100={boards}",
            machine.vcpus, machine.memory_gib, machine.vcpus
        )?;
        writeln!(out, "   AllocTRES=")?;
        writeln!(out, "   InstanceId={} InstanceType={}", machine.provider_id, machine.instance_type)?;
        writeln!(out)?;
    }
    for (machine, from, to) in &world.plan.reservations {
        let machine = &world.machines[*machine];
        let boards = machine.boards.len();
        writeln!(
            out,
            "ReservationName=gang-{} StartTime={} EndTime={} Duration={}",
            machine.node,
            time(*from),
            time(*to),
            elapsed(to - from)
        )?;
        writeln!(
            out,
            "   Nodes={} NodeCnt=1 CoreCnt={} Features=(null) PartitionName=gpu Flags=SPEC_NODES",
            machine.node,
            machine.vcpus / 2
        )?;
        writeln!(out, "   TRES=cpu={},gres/gpu={boards}", machine.vcpus)?;
        writeln!(out, "   Users=(null) Groups=(null) Accounts=research Licenses=(null) State=ACTIVE BurstBuffer=(null) Watts=n/a")?;
        writeln!(out)?;
    }
    Ok(())
}
