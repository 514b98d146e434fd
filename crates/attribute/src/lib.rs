//! The accounting of GPU Ledger: tables of a time in, postings out (ACCOUNTING.md).
//!
//! It guards
//! - **ATTR-1**: per scope, the sum of postings is the sum of EffectiveCost, exactly;
//! - **ATTR-2**: same inputs, same bytes;
//! - **ATTR-3**: each posting names its rule and evidence.
//!
//! It knows no time of day, disk or network, and gives no advice. Reading order: [`pool`] (bill rows),
//! [`machine`] (who meets whom), [`device`], [`holding`], [`standing`] and [`window`] (samples), [`ladder`]
//! (causes), [`paid`] (time), [`post`] (money), [`find`] (findings).

pub mod device;
pub mod holding;
pub mod ladder;
pub mod machine;
pub mod observe;
pub mod pool;
pub mod record;
pub mod rules;
pub mod standing;
pub mod window;
pub mod find;
pub mod paid;
pub mod post;
pub mod spread;
mod run;

pub use run::{Attribution, Input, Observed, attribute, ledger, observe_all, observed_again};
