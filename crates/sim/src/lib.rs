//! A seeded fleet that writes its telemetry, placements and bills in the sources' own formats, and the true ledger.
//!
//! It guards
//! - **SIM-1**: one seed, one world, to the byte;
//! - **SIM-2**: truth is written by construction, never by calling the accounting.
//!
//! It knows no rule of recognition and reads no clock. The way through it: [`fleet`] buys machines, [`plan`] says
//! who holds what and in which [`state`] every device is at every moment, [`bill`] charges for it, [`truth`] spreads
//! the charges over the states, [`emit`] shows what exporters, schedulers and clouds would have written, and
//! [`score`] compares a ledger with the truth.

pub mod bill;
pub mod chance;
pub mod emit;
pub mod fleet;
pub mod holder;
pub mod options;
pub mod plan;
pub mod score;
pub mod state;
pub mod truth;
pub mod workload;
pub mod world;

pub use options::{DEMO_SEED, Fault, Options, demo_options};
pub use world::{Fields, World};
