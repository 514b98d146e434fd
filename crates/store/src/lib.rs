//! Files in and out: finds what each input is, reads it through the parsers of `ingest`, and keeps the
//! result in a folder of Parquet tables.
//!
//! It guards
//! - **STORE-1**: an append is all or nothing: a reader sees all of a batch or none of it;
//! - **STORE-2**: an append is idempotent by its batch id;
//! - **STORE-3**: an input whose bytes were read before is not read again, and counts once.
//!
//! It knows no clock and no rule of attribution; files that cannot be read are rejects, never a crash.

pub mod bills;
pub mod content;
pub mod discover;
pub mod folder;
pub mod inputs;
pub mod keep;
pub mod parquet_series;
pub mod telemetry;
pub mod telemetry_tables;
