//! A seeded fleet that writes its telemetry, placements and bills in the sources' own formats, and the true ledger.
//!
//! It guards
//! - **SIM-1**: one seed, one world, to the byte;
//! - **SIM-2**: truth is written by construction, never by calling the accounting.
//!
//! It knows no rule of recognition and reads no clock.

pub mod chance;
pub mod fleet;
pub mod holder;
pub mod options;
pub mod plan;
pub mod state;
pub mod workload;
