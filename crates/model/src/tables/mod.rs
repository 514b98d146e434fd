//! The tables between the rooms. `docs/LEDGER.md` says who writes and who reads each.

pub mod charge;
pub mod placement;
pub mod posting;
pub mod record;
pub mod reject;
pub mod schema;
pub mod telemetry;
