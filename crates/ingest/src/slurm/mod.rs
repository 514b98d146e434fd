//! Slurm placements: `sacct` says who had which nodes from when to when, `scontrol` which devices and which
//! machines the nodes are.
//!
//! One holder is one incarnation of a job: its key is `slurm/<cluster>/<job>/<start>`, so a requeued job has
//! several, all of one run `slurm/<cluster>/<job>`. Array tasks (`12_3`) and parts of heterogeneous jobs
//! (`12+1`) are jobs of their own. Jobs without GPUs are no holders and are passed over.
//!
//! Comments of a job may declare, parted by commas: `checkpoint=<time>` (several), `resumed_from=<time>`,
//! `recompute_until=<time>`, `standby=true`, `bandwidth=expected`; times without a zone are in the cluster's.

mod hostlist;
mod job;
mod sacct;
mod scontrol;
#[cfg(test)]
mod tests;
mod tres;

pub use sacct::parse_sacct;
pub use scontrol::parse_scontrol;
