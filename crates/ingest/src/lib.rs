//! Reads what clusters and clouds deliver, in their own formats, into the tables of `model`.
//!
//! Pure parsers: bytes in, tables and rejects out. It guards
//! - **ING-1**: the same input, in any order, split or repeated, gives the same tables;
//! - **ING-2**: numbers are exact: what a source wrote in digits is never carried through a float that can
//!   change it, and sentinels never become values ([`prometheus`]);
//! - **ING-3**: every input row is in a table or in `rejects`, with file, line, field and reason.
//!
//! It opens no file, knows no clock and decides nothing about money.

use gpuledger_model::tables::reject::{Notice, Reject};

pub mod focus;
pub mod inventory;
pub mod kubernetes;
pub mod owners;
pub mod placements;
pub mod prometheus;
pub mod slurm;

mod declared;
mod refusals;

/// What a parser made of one input.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parsed<T> {
    /// What was read.
    pub value: T,
    /// Rows (or objects, or samples) seen, rejected ones included.
    pub rows: u64,
    /// What was not taken, and why.
    pub rejects: Vec<Reject>,
    /// What a user should know; nothing was refused for it.
    pub notices: Vec<Notice>,
}
