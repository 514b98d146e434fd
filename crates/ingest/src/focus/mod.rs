//! Bills in FOCUS 1.0 to 1.4: rows in, exact charges out, and the sums that must close.
//!
//! - [`read_csv`] and [`BillParser`] turn one file into a [`BillFile`]: every row is a charge, or is named in
//!   `rejects` (ING-3). No number passes through a float; a `float64` cell means its shortest decimal.
//! - [`merge_bills`] puts the files of one run together: scopes that close, scopes that are refused and why,
//!   sums per invoice, and the checks that a bill must stand ([`check`]).
//!
//! A scope (provider, account, billing month, currency) is taken whole or not at all: one unreadable cost,
//! currency, account, period or time refuses it. What a column holds beyond those never does.

pub mod cell;
pub mod check;
pub mod column;
mod delivery;
pub mod merge;
pub mod parse;
mod record;
mod remark;
mod row;
mod text;

pub use cell::Cell;
pub use check::CommitmentCount;
pub use column::{Dataset, detect_dataset};
pub use merge::{Bills, DatasetSummary, Deliveries, InvoiceSummary, ScopeState, ScopeSummary, merge_bills};
pub use parse::{Assume, BillFile, BillParser, Refusal};
pub use text::{read_csv, read_header};
