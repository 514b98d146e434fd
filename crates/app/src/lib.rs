//! The binary's inside: command line, configuration, wiring, and what users see.
//!
//! It guards
//! - **APP-1**: the only place with the wall clock, the environment and the process exit;
//! - **APP-2**: standard output carries only the result; errors and progress go to standard error;
//! - **APP-3**: a report adds nothing of its own: its sums are sums of postings, exact.
//!
//! It knows no rule of attribution and no file format.
//!
//! In reading order: [`cli`] and [`config`] say what is asked, [`command`] calls it, [`pipeline`] makes the ledger,
//! [`report`] chooses and sums postings, [`render`] shows them, [`output`] writes them, [`exit`] says how it ended.

pub mod bills;
pub mod cli;
pub mod command;
pub mod config;
pub mod demo;
pub mod evidence;
pub mod exit;
pub mod filter;
pub mod output;
pub mod pipeline;
pub mod progress;
pub mod render;
pub mod report;
pub mod report_command;
pub mod simulate;
pub mod small_file;
pub mod window_arg;
