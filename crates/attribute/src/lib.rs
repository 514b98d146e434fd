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
mod facts;
pub mod find;
pub mod holding;
pub mod ladder;
mod lost;
pub mod machine;
pub mod observe;
pub mod paid;
pub mod pool;
pub mod post;
mod poster;
pub mod record;
mod remark;
pub mod rules;
mod run;
pub mod share;
pub mod spread;
pub mod standing;
pub mod window;

pub use run::{Attribution, Input, Observed, attribute, ledger, observe_all, observed_again};
