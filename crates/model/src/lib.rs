//! The vocabulary of GPU Ledger, and the floor all rooms stand on: time, money, ids, accelerators,
//! causes and the tables that rooms exchange.
//!
//! It guards
//! - **MODEL-1**: money is an exact decimal with a currency, never a float ([`money`]);
//! - **MODEL-2**: windows are half-open and UTC ([`time`]);
//! - **MODEL-3**: *unobserved* is not *idle*: absent is a missing row or `None`, never zero ([`tables::telemetry`]).
//!
//! It knows no input or output, no clock, and no rule of attribution.

pub mod accelerator;
pub mod cause;
pub mod invariant;
pub mod machine;
pub mod mig;
pub mod money;
pub mod price;
pub mod tables;
pub mod time;
