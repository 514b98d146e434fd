//! Texts as Slurm writes them (22.05 and later), and what they must become.

use gpuledger_model::tables::charge::Cloud;
use gpuledger_model::tables::placement::{Holder, Node, Outcome, Placements};
use gpuledger_model::time::parse_time;
use jiff::tz::TimeZone;

use super::*;
use crate::Parsed;
use crate::placements::merge_placements;

const HEADER: &str = "JobID|JobIDRaw|JobName|State|Account|User|Submit|Start|End|NodeList|AllocTRES|ReqTRES|ElapsedRaw|Comment|AdminComment|ExitCode|Partition";

fn ms(text: &str) -> i64 {
    parse_time(text, &TimeZone::UTC).unwrap()
}

fn sacct(text: &str) -> Parsed<Placements> {
    parse_sacct("sacct.txt", text.as_bytes(), "hpc", &TimeZone::UTC)
}

fn holders(text: &str) -> Vec<Holder> {
    let parsed = sacct(text);
    assert_eq!(parsed.rejects, vec![]);
    parsed.value.holders
}

fn counts(holder: &Holder) -> Vec<(&str, u32)> {
    holder.claims.iter().map(|c| (c.node.as_str(), c.count)).collect()
}

fn named<'a>(holders: &'a [Holder], job: &str) -> &'a Holder {
    holders.iter().find(|h| h.uid == job).unwrap()
}

#[test]
fn rows_of_a_cluster_become_holders() {
    let text = format!(
        "{HEADER}\n\
1|1|wrap|COMPLETED|ml|root|2026-12-01T15:25:26|2026-12-01T15:25:28|2026-12-01T15:26:28|gpu1|billing=1,cpu=1,gres/gpu:h100=3,gres/gpu=3,node=1|billing=1,cpu=1,gres/gpu=3,mem=2000M,node=1|60|||0:0|gpu\n\
1.batch|1.batch|batch|COMPLETED|ml||2026-12-01T15:25:28|2026-12-01T15:25:28|2026-12-01T15:26:28|gpu1|cpu=1,gres/gpu:h100=3,gres/gpu=3,mem=0,node=1||60|||0:0|\n\
2|2|na|me|RUNNING|ml|root|2026-12-01T15:25:26|2026-12-01T15:25:28|Unknown|gpu[1-2]|billing=2,cpu=2,gres/gpu:h100=4,gres/gpu=4,node=2|billing=2,cpu=2,gres/gpu=4,mem=4000M,node=2|60|||0:0|gpu\n\
2.0|2.0|bash|RUNNING|ml||2026-12-01T15:25:28|2026-12-01T15:25:28|Unknown|gpu1|cpu=1,gres/gpu:h100=2,gres/gpu=2,mem=0,node=1||1|||0:0|\n\
5|5|wrap|COMPLETED|ml|root|2026-12-01T15:25:26|2026-12-01T15:38:41|2026-12-01T15:39:11|gpu[1-2]|billing=3,cpu=3,gres/gpu:h100=3,gres/gpu=3,node=2|billing=3,cpu=3,gres/gpu=3,mem=4000M,node=2|30|||0:0|gpu\n\
3_1|6|wrap|RUNNING|ml|root|2026-12-01T15:25:26|2026-12-01T15:25:28|Unknown|gpu2|billing=1,cpu=1,gres/gpu:h100=1,gres/gpu=1,node=1|billing=1,cpu=1,gres/gpu=1,mem=2000M,node=1|1|||0:0|gpu\n\
3_[2-4]|3|wrap|PENDING|ml|root|2026-12-01T15:25:26|Unknown|Unknown|None assigned||billing=1,cpu=1,gres/gpu=1,mem=2000M,node=1|0|||0:0|gpu\n\
10|10|cpu|COMPLETED|ml|root|2026-12-01T15:25:26|2026-12-01T15:25:28|2026-12-01T15:26:28|gpu1|billing=1,cpu=1,node=1|billing=1,cpu=1,node=1|60|||0:0|gpu\n\
11|11|never|CANCELLED by 1000|ml|root|2026-12-01T15:25:26|None|2026-12-01T15:26:28|None assigned||billing=1,gres/gpu=1|0|||0:0|gpu\n\
20+0|20|het|COMPLETED|ml|root|2026-12-01T15:25:26|2026-12-01T15:25:28|2026-12-01T15:26:28|gpu1|gres/gpu=1|gres/gpu=1|60|||0:0|gpu\n\
20+1|21|het|COMPLETED|ml|root|2026-12-01T15:25:26|2026-12-01T15:25:28|2026-12-01T15:26:28|gpu2|gres/gpu=2|gres/gpu=2|60|||0:0|gpu\n"
    );
    let parsed = sacct(&text);
    assert_eq!(parsed.rejects, vec![]);
    assert_eq!(parsed.rows, 11);
    let holders = &parsed.value.holders;
    let jobs: Vec<_> = holders.iter().map(|h| h.uid.as_str()).collect();
    assert_eq!(jobs, ["1", "2", "20+0", "20+1", "3_1", "5"]);
    let first = named(holders, "1");
    assert_eq!(first.key, "slurm/hpc/1/2026-12-01T15:25:28Z");
    assert_eq!(first.run, "slurm/hpc/1");
    assert_eq!((first.account.as_deref(), first.user.as_deref(), first.workload.as_str()), (Some("ml"), Some("root"), "Job/wrap"));
    assert_eq!((first.outcome, first.to_ms), (Outcome::Succeeded, Some(ms("2026-12-01T15:26:28Z"))));
    assert_eq!(counts(first), [("gpu1", 3)], "typed and untyped counts are the same GPUs");
    let second = named(holders, "2");
    assert_eq!((second.name.as_str(), second.outcome, second.to_ms), ("na|me", Outcome::Alive, None));
    assert_eq!(counts(second), [("gpu1", 2), ("gpu2", 2)], "a total, not a number per node");
    assert_eq!(second.last_record_ms, Some(ms("2026-12-01T15:26:28Z")), "start and elapsed time: when sacct was asked");
    assert_eq!(counts(named(holders, "5")), [("gpu1", 2), ("gpu2", 1)], "what is left over goes to the first nodes");
    assert_eq!(named(holders, "3_1").run, "slurm/hpc/3_1");
    let nodes: Vec<_> = parsed.value.nodes.iter().map(|n| (n.name.as_str(), n.capacity_devices)).collect();
    assert_eq!(nodes, [("gpu1", None), ("gpu2", None)]);
}

#[test]
fn t56_gpus_per_node_jobs_are_held_once() {
    // `--gpus-per-node=4 -N 2`: AllocTRES has all eight, and no --gres shows anywhere.
    let text = "JobID|State|Start|End|NodeList|AllocTRES\n7|COMPLETED|2026-10-06T09:00:00|2026-10-06T10:00:00|gpu[1-2]|cpu=16,gres/gpu:h100=8,gres/gpu=8,node=2\n";
    assert_eq!(counts(&holders(text)[0]), [("gpu1", 4), ("gpu2", 4)]);
    // The fixed-width output cuts columns.
    let cut = "JobID|State|Start|End|NodeList|AllocTRES\n7|COMPLETED|2026-10-06T09:00:00|2026-10-06T10:00:00|gpu[1-2]|cpu=16,gre+\n8|CANCELLED+|2026-10-06T09:00:00|2026-10-06T10:00:00|gpu1|gres/gpu=1\n";
    let parsed = sacct(cut);
    assert_eq!(parsed.value.holders, vec![]);
    let fields: Vec<_> = parsed.rejects.iter().map(|r| (r.line, r.field.as_str())).collect();
    assert_eq!(fields, [(2, "AllocTRES"), (3, "State")]);
    assert!(parsed.rejects[0].reason.contains("sacct -P"));
    let wide = "JobID             State               Start                 End        NodeList  AllocTRES \n------------ ---------- ------------------- ------------------- --------------- ---------- \n1             COMPLETED 2026-12-01T15:25:28 2026-12-01T15:26:28            gpu1 billing=1+ \n";
    let parsed = sacct(wide);
    assert_eq!((parsed.rejects.len(), parsed.rejects[0].line, parsed.rejects[0].count), (1, 1, 3));
}

#[test]
fn t57_old_and_poor_columns_are_understood() {
    let old = "JobID|State|Start|End|NodeList|AllocGRES\n7|COMPLETED|2026-10-06T09:00:00|2026-10-06T10:00:00|gpu1|gpu:4\n8|COMPLETED|2026-10-06T09:00:00|2026-10-06T10:00:00|gpu1|gpu:a100:2\n";
    let counts: Vec<_> = holders(old).iter().map(|h| h.claims[0].count).collect();
    assert_eq!(counts, [4, 2]);
    let asked = "JobIDRaw|State|Start|End|NodeList|AllocTRES|ReqTRES\n7|COMPLETED|2026-10-06T09:00:00|2026-10-06T10:00:00|gpu1||billing=1,gres/gpu=2\n";
    let parsed = sacct(asked);
    assert_eq!(parsed.value.holders[0].claims[0].count, 2);
    assert!(parsed.notices.iter().any(|n| n.kind == "slurm_requested_tres"));
    // The order is free, -p ends its lines with a delimiter, names come in any case, lines may end in CR LF.
    let trailing =
        "\u{feff}AllocTRES|End|start|state|NodeList|JobId|\r\ngres/gpu=2|2026-10-06T10:00:00|2026-10-06T09:00:00|FAILED|gpu1|7|\r\n";
    assert_eq!(holders(trailing)[0].outcome, Outcome::Failed);
    let missing = sacct("JobID|State|Start|NodeList|AllocTRES\n7|COMPLETED|x|gpu1|gres/gpu=1\n");
    assert_eq!(missing.rejects[0].field, "End");
    assert_eq!(sacct("7|COMPLETED|gpu1\n").rejects.len(), 1);
}

#[test]
fn delimiters_inside_of_texts_are_told_apart() {
    let text = "JobName|JobID|State|Start|End|NodeList|SubmitLine|AllocTRES|Comment\n\
a|b|7|COMPLETED|2026-10-06T09:00:00|2026-10-06T10:00:00|gpu1|sbatch -J a|b x.sh|gres/gpu=2|checkpoint=2026-10-06T09:30:00\n\
c|8|COMPLETED|2026-10-06T09:00:00|2026-10-06T10:00:00|gpu1|sbatch --wrap x | y | z|gres/gpu=1|\n";
    let holders = holders(text);
    let rows: Vec<_> = holders.iter().map(|h| (h.name.as_str(), h.claims[0].count, h.checkpoints_ms.len())).collect();
    assert_eq!(rows, [("a|b", 2, 1), ("c", 1, 0)]);
    let odd = sacct("JobID|State|Start|End|NodeList|AllocTRES\n7|COMPLETED|2026-10-06T09:00:00|2026-10-06T10:00:00|gpu1|x|gres/gpu=2\n");
    assert_eq!(odd.rejects.len(), 1);
}

#[test]
fn requeued_incarnations_are_holders_of_one_run() {
    let text = "JobID|State|Start|End|NodeList|AllocTRES|ElapsedRaw\n\
8|REQUEUED|2026-12-01T15:39:12|2026-12-01T15:42:06|gpu2|gres/gpu:h100=1,gres/gpu=1|174\n\
8|PREEMPTED|2026-12-01T15:50:00|2026-12-01T15:55:00|gpu1|gres/gpu=1|300\n\
8|NODE_FAIL|2026-12-01T16:00:00|2026-12-01T16:05:00|gpu1|gres/gpu=1|300\n\
8|PENDING|Unknown|Unknown|None assigned||0\n";
    let holders = holders(text);
    let outcomes: Vec<_> = holders.iter().map(|h| h.outcome).collect();
    assert_eq!(outcomes, [Outcome::Requeued, Outcome::Preempted, Outcome::Failed]);
    assert!(holders.iter().all(|h| h.run == "slurm/hpc/8"));
    let last_only = sacct("JobID|State|Start|End|NodeList|AllocTRES|Restarts\n8|RUNNING|2026-12-01T15:39:12|Unknown|gpu2|gres/gpu=1|2\n");
    assert!(last_only.notices.iter().any(|n| n.kind == "slurm_requeued"));
}

#[test]
fn states_and_times_without_sense_are_refused() {
    let row = |state: &str, start: &str, end: &str, elapsed: &str| {
        sacct(&format!("JobID|State|Start|End|NodeList|AllocTRES|ElapsedRaw\n8|{state}|{start}|{end}|gpu2|gres/gpu=1|{elapsed}\n"))
    };
    assert_eq!(row("BEWITCHED", "2026-12-01T15:00:00", "Unknown", "").rejects[0].field, "State");
    assert_eq!(row("RUNNING", "soon", "Unknown", "").rejects[0].field, "Start");
    assert_eq!(row("FAILED", "2026-12-01T15:00:00", "Unknown", "").rejects[0].field, "End");
    let mended = row("FAILED", "2026-12-01T15:00:00", "Unknown", "60");
    assert_eq!(mended.value.holders[0].to_ms, Some(ms("2026-12-01T15:01:00Z")));
    assert_eq!(row("SUSPENDED", "2026-12-01T15:00:00", "Unknown", "60").value.holders[0].outcome, Outcome::Alive);
    let odd_nodes = sacct("JobID|State|Start|End|NodeList|AllocTRES\n8|FAILED|2026-12-01T15:00:00|2026-12-01T15:00:01|gpu[1-|gres/gpu=1\n");
    assert_eq!(odd_nodes.rejects[0].field, "NodeList");
}

#[test]
fn times_are_in_the_clusters_zone() {
    let zone = TimeZone::get("Europe/Zurich").unwrap();
    let text = "JobID|State|Start|End|NodeList|AllocTRES\n7|COMPLETED|2026-10-06T09:00:00|2026-10-06T10:00:00|gpu1|gres/gpu=1\n";
    let parsed = parse_sacct("s", text.as_bytes(), "hpc", &zone);
    assert_eq!(parsed.value.holders[0].key, "slurm/hpc/7/2026-10-06T07:00:00Z");
}

#[test]
fn comments_declare_checkpoints() {
    let text = "JobID|State|Start|End|NodeList|AllocTRES|Comment|AdminComment\n\
7|FAILED|2026-10-06T09:00:00|2026-10-06T12:00:00|gpu1|gres/gpu=1|checkpoint=2026-10-06T11:00:00,checkpoint=2026-10-06T10:00:00,resumed_from=2026-10-06T08:30:00Z|standby=true,bandwidth=expected,ticket=42\n\
8|FAILED|2026-10-06T09:00:00|2026-10-06T12:00:00|gpu1|gres/gpu=1|checkpoint=noon|\n";
    let parsed = sacct(text);
    let holder = &parsed.value.holders[0];
    assert_eq!(holder.checkpoints_ms, ["2026-10-06T10:00:00Z", "2026-10-06T11:00:00Z"].map(ms));
    assert_eq!(holder.resumed_from_ms, Some(ms("2026-10-06T08:30:00Z")));
    assert!(holder.standby_declared && holder.bandwidth_expected);
    assert_eq!((parsed.rejects.len(), parsed.rejects[0].line, parsed.rejects[0].field.as_str()), (1, 3, "Comment"));
    assert_eq!(parsed.value.holders.len(), 2);
}

#[test]
fn slices_and_shares_become_claims() {
    let text = "JobID|State|Start|End|NodeList|AllocTRES\n\
7|RUNNING|2026-10-06T09:00:00|Unknown|gpu1|gres/gpu:1g.10gb=2,gres/gpu=2\n\
8|RUNNING|2026-10-06T09:00:00|Unknown|gpu1|cpu=1,gres/mps=25\n\
9|RUNNING|2026-10-06T09:00:00|Unknown|gpu1|cpu=1,gres/shard=2\n";
    let claims: Vec<_> =
        holders(text).iter().map(|h| (h.claims[0].count, h.claims[0].mig_profile.clone(), h.claims[0].fraction_ppm)).collect();
    assert_eq!(claims, [(2, Some("1g.10gb".into()), None), (1, None, Some(250_000)), (1, None, None)]);
}

const SHOW_JOB: &str = "JobId=1 JobName=wrap
   UserId=root(0) GroupId=root(0) MCS_label=N/A
   Priority=4294901759 Nice=0 Account=ml QOS=normal
   JobState=RUNNING Reason=None Dependency=(null)
   Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0
   RunTime=00:00:01 TimeLimit=00:05:00 TimeMin=N/A
   SubmitTime=2026-12-01T15:25:26 EligibleTime=2026-12-01T15:25:26
   StartTime=2026-12-01T15:25:28 EndTime=2026-12-01T15:30:28 Deadline=N/A
   SuspendTime=None SecsPreSuspend=0 LastSchedEval=2026-12-01T15:25:28 Scheduler=Main
   Partition=gpu AllocNode:Sid=localhost:4041
   NodeList=gpu1
   NumNodes=1 NumCPUs=1 NumTasks=1 CPUs/Task=1 ReqB:S:C:T=0:0:*:*
   TRES=cpu=1,node=1,billing=1,gres/gpu=3,gres/gpu:h100=3
   JOB_GRES=gpu:h100:3
     Nodes=gpu1 CPU_IDs=0 Mem=0 GRES=gpu:h100:3(IDX:0-2)
   MinCPUsNode=1 MinMemoryNode=0 MinTmpDiskNode=0
   Command=(null)
   Comment=checkpoint=2026-12-01T15:25:29,standby=true 
   TresPerJob=gres:gpu:3
   

JobId=2 JobName=my long name
   UserId=alice(1001) GroupId=users(100) MCS_label=N/A
   Account=ml QOS=normal
   JobState=RUNNING Reason=None Dependency=(null)
   RunTime=00:00:01
   StartTime=2026-12-01T15:25:28 EndTime=2026-12-01T15:30:28 Deadline=N/A
   Partition=gpu
   NodeList=gpu[1-3]
   TRES=cpu=2,node=3,billing=2,gres/gpu=5,gres/gpu:h100=5
   JOB_GRES=gpu:h100:5
     Nodes=gpu1 CPU_IDs=1 Mem=0 GRES=gpu:h100:1(IDX:3)
     Nodes=gpu[2-3] CPU_IDs=0 Mem=0 GRES=gpu:h100:2(IDX:0,2)

JobId=6 ArrayJobId=3 ArrayTaskId=1 JobName=wrap
   JobState=RUNNING NodeList=gpu2 StartTime=2026-12-01T15:25:28 EndTime=Unknown
   TRES=cpu=1,gres/gpu=1
     Nodes=gpu2 CPU_IDs=0 Mem=0 GRES=gpu:h100:1(IDX:N/A)

JobId=4 JobName=later
   JobState=PENDING NodeList=(null) StartTime=2026-12-02T00:00:00 EndTime=2026-12-02T01:00:00
   TRES=cpu=1,gres/gpu=1

JobId=12 JobName=done
   JobState=COMPLETED NodeList=gpu2 StartTime=2026-12-01T14:00:00 EndTime=2026-12-01T15:00:00
   TRES=cpu=1,gres/gpu=1
";

fn scontrol(text: &str) -> Parsed<Placements> {
    parse_scontrol("scontrol.txt", text.as_bytes(), "hpc", &TimeZone::UTC)
}

#[test]
fn scontrol_names_the_devices_of_running_jobs() {
    let parsed = scontrol(SHOW_JOB);
    assert_eq!(parsed.rejects, vec![]);
    assert_eq!(parsed.rows, 5);
    let holders = &parsed.value.holders;
    let jobs: Vec<_> = holders.iter().map(|h| (h.uid.as_str(), h.outcome)).collect();
    assert_eq!(jobs, [("1", Outcome::Alive), ("12", Outcome::Succeeded), ("2", Outcome::Alive), ("3_1", Outcome::Alive)]);
    let first = named(holders, "1");
    assert_eq!((first.claims[0].count, first.claims[0].device_indices.as_slice()), (3, &[0, 1, 2][..]));
    assert_eq!(
        (first.to_ms, first.user.as_deref(), first.standby_declared),
        (None, Some("root"), true),
        "an EndTime of a running job is a plan"
    );
    assert_eq!(first.last_record_ms, Some(ms("2026-12-01T15:25:29Z")));
    let second = named(holders, "2");
    assert_eq!(second.name, "my long name");
    assert_eq!(counts(second), [("gpu1", 1), ("gpu2", 2), ("gpu3", 2)]);
    assert_eq!(second.claims[2].device_indices, [0, 2]);
    assert_eq!(counts(named(holders, "3_1")), [("gpu2", 1)]);
    assert_eq!(named(holders, "12").to_ms, Some(ms("2026-12-01T15:00:00Z")));
    // One record per line says the same.
    let one_line: String = SHOW_JOB.split("\n\n").map(|record| record.split_whitespace().collect::<Vec<_>>().join(" ") + "\n").collect();
    assert_eq!(scontrol(&one_line).value, parsed.value);
}

#[test]
fn sacct_and_scontrol_make_one_holder() {
    let late = "JobID|JobName|State|Account|User|Start|End|NodeList|AllocTRES|Comment\n\
2|my long name|COMPLETED|ml|alice|2026-12-01T15:25:28|2026-12-01T15:28:00|gpu[1-3]|gres/gpu:h100=5,gres/gpu=5|checkpoint=2026-12-01T15:27:00\n";
    let (records, accounting) = (scontrol(SHOW_JOB).value, sacct(late).value);
    let merged = merge_placements(vec![records.clone(), accounting.clone()]);
    assert_eq!(merged, merge_placements(vec![accounting.clone(), records.clone(), accounting]));
    let job = named(&merged.holders, "2");
    assert_eq!((job.outcome, job.to_ms), (Outcome::Succeeded, Some(ms("2026-12-01T15:28:00Z"))), "the end that accounting knows");
    assert_eq!(counts(job), [("gpu1", 1), ("gpu2", 2), ("gpu3", 2)], "the devices that scontrol knew, not equal parts");
    assert_eq!(job.claims[1].device_indices, [0, 2]);
    assert_eq!(job.checkpoints_ms.len(), 1);
    assert_eq!(merged.holders.len(), 4);
}

const SHOW_NODE: &str = "NodeName=gpu1 Arch=x86_64 CoresPerSocket=1 
   CPUAlloc=2 CPUEfctv=2 CPUTot=2 CPULoad=0.06
   AvailableFeatures=(null)
   Gres=gpu:h100:8(S:0-1)
   NodeAddr=127.0.0.1 NodeHostName=vm Port=16811 Version=24.05.1
   OS=Linux 6.18.44 #1 SMP PREEMPT_DYNAMIC @0 
   State=ALLOCATED+DRAIN ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A
   Partitions=gpu 
   BootTime=2026-12-01T14:58:07 SlurmdStartTime=2026-12-01T15:25:25
   LastBusyTime=2026-12-01T15:25:25
   CfgTRES=cpu=2,mem=2000M,billing=2,gres/gpu=8,gres/gpu:h100=8
   AllocTRES=cpu=2,gres/gpu=5,gres/gpu:h100=5
   Reason=bad fan [root@2026-12-01T15:25:29]
   InstanceId=i-0123456789abcdef0 InstanceType=p5.48xlarge

NodeName=gpu2 Arch=x86_64 
   Gres=gpu:h100:8 State=IDLE*
   InstanceId=(null) InstanceType=(null)
   CfgTRES=cpu=2,mem=2000M,billing=2,gres/gpu=8

NodeName=gpu3 Gres=(null) State=IDLE+CLOUD+POWERED_DOWN
   CfgTRES=cpu=2,mem=2000M,billing=2
   
NodeName=gpu4 Gres=gpu:1g.10gb:14,gpu:h100:6 State=DOWN*
   CfgTRES=cpu=2,gres/gpu=20
";

fn node<'a>(nodes: &'a [Node], name: &str) -> &'a Node {
    nodes.iter().find(|n| n.name == name).unwrap()
}

#[test]
fn scontrol_names_the_machines_of_nodes() {
    let parsed = scontrol(SHOW_NODE);
    assert_eq!(parsed.rejects, vec![]);
    let nodes = &parsed.value.nodes;
    let first = node(nodes, "gpu1");
    assert_eq!(
        (first.machine_id.as_deref(), first.cloud, first.instance_type.as_deref()),
        (Some("i-0123456789abcdef0"), Some(Cloud::Aws), Some("p5.48xlarge"))
    );
    assert_eq!((first.capacity_devices, first.allocatable_devices, first.accelerator_model.as_deref()), (Some(8), Some(8), Some("h100")));
    assert_eq!((first.is_cordoned, first.cordoned_from_ms), (true, Some(ms("2026-12-01T15:25:29Z"))));
    assert_eq!((first.from_ms, first.last_record_ms), (None, Some(ms("2026-12-01T15:25:29Z"))));
    let second = node(nodes, "gpu2");
    assert_eq!((second.machine_id.as_deref(), second.instance_type.as_deref(), second.is_cordoned), (None, None, false));
    assert_eq!((node(nodes, "gpu3").capacity_devices, node(nodes, "gpu3").is_cordoned), (Some(0), false));
    let sliced = node(nodes, "gpu4");
    assert_eq!(
        (sliced.capacity_devices, sliced.mig_resources.as_slice(), sliced.is_cordoned),
        (Some(8), &[("1g.10gb".to_string(), 14)][..], true)
    );
    // Accounting knows the name only, and adds nothing to what scontrol told.
    let named = sacct("JobID|State|Start|End|NodeList|AllocTRES\n7|RUNNING|2026-10-06T09:00:00|Unknown|gpu1|gres/gpu=1\n").value;
    let merged = merge_placements(vec![named, parsed.value.clone()]);
    assert_eq!(node(&merged.nodes, "gpu1"), first);
}

#[test]
fn a_cloud_node_that_was_two_machines_is_two_rows() {
    let at = |machine: &str, time: &str| format!("NodeName=gpu1 Gres=gpu:h100:8 State=IDLE InstanceId={machine} BootTime={time}\n");
    let text = at("i-0aaaaaaaa", "2026-10-06T09:00:00") + "\n" + &at("i-0bbbbbbbb", "2026-10-07T09:00:00");
    let nodes = scontrol(&text).value.nodes;
    let rows: Vec<_> = nodes.iter().map(|n| (n.machine_id.as_deref().unwrap(), n.from_ms, n.to_ms)).collect();
    let cut = Some(ms("2026-10-06T09:00:00Z"));
    assert_eq!(rows, [("i-0aaaaaaaa", None, cut), ("i-0bbbbbbbb", cut, None)]);
}

#[test]
fn reservations_keep_devices() {
    let reservation = "ReservationName=res1 StartTime=2026-12-01T15:25:29 EndTime=2026-12-01T16:25:29 Duration=01:00:00
   Nodes=gpu[1-2] NodeCnt=2 CoreCnt=4 Features=(null) PartitionName=(null) Flags=IGNORE_JOBS,SPEC_NODES
   TRES=cpu=4
   Users=root Groups=(null) Accounts=(null) Licenses=(null) State=ACTIVE BurstBuffer=(null) Watts=n/a
   MaxStartDelay=(null)
";
    let parsed = scontrol(reservation);
    assert_eq!(parsed.value.reservations, vec![]);
    assert!(parsed.notices.iter().any(|n| n.kind == "slurm_reservation_without_gpus"));
    let rows = scontrol(&format!("{reservation}\n{SHOW_NODE}")).value.reservations;
    let rows: Vec<_> = rows.iter().map(|r| (r.node.as_str(), r.count, r.from_ms, r.to_ms)).collect();
    let (from, to) = (ms("2026-12-01T15:25:29Z"), Some(ms("2026-12-01T16:25:29Z")));
    assert_eq!(rows, [("gpu1", 8, from, to), ("gpu2", 8, from, to)]);
    let counted = scontrol(&reservation.replace("TRES=cpu=4", "TRES=cpu=4,gres/gpu=6")).value.reservations;
    assert_eq!(counted.iter().map(|r| r.count).collect::<Vec<_>>(), [3, 3]);
    assert_eq!(scontrol("No reservations in the system\n").rejects, vec![]);
    assert_eq!(scontrol("slurm_load_jobs error: Unable to contact slurm controller\n").rejects.len(), 1);
}

#[test]
fn a_count_of_gpus_that_is_no_number_is_a_reject_and_no_job_without_gpus() {
    for tres in ["gres/gpu=99999999999999999999", "gres/gpu=-1", "gres/gpu:h100=x", "cpu=1,gres/shard=", "gres/mps=1.5"] {
        let row = format!("1|1|a|COMPLETED|ml|u||2026-10-06T09:00:00|2026-10-06T10:00:00|n1|{tres}||60||||\n");
        let parsed = sacct(&format!("{HEADER}\n{row}"));
        assert_eq!((parsed.value.holders.len(), parsed.notices.len(), parsed.rejects.len()), (0, 0, 1), "{tres}");
        assert_eq!((parsed.rejects[0].line, parsed.rejects[0].field.as_str()), (2, "AllocTRES"));
    }
}
