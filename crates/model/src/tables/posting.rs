//! `ledger`: one row per (pool, hour, device, holder, cause, part).

use serde::{Deserialize, Serialize};

use super::charge::Scope;
use crate::cause::{Cause, Confidence, Part, State};
use crate::money::Decimal;

/// How the time of a posting was placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlacedBy {
    /// A charge period of an hour or less.
    Rows,
    /// Evidence of the machine within a longer charge period.
    Evidence,
    /// The bare charge period.
    Period,
}

/// One row of the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Posting {
    /// The scope of the bill, or `estimate:<cloud>` as the provider.
    pub scope: Scope,
    /// The pool: identity of the bill row by its content.
    pub pool: String,
    /// Start of the hour, ms.
    pub hour_ms: i64,
    /// `UUID`, `UUID/GI` or `machine#n`; empty for bill-only causes.
    pub device: String,
    /// Machine id in reduced form; empty where there is none.
    pub machine: String,
    /// Node name; empty where there is none.
    pub node: String,
    /// Cluster; empty where there is none.
    pub cluster: String,
    /// Accelerator model; empty where unknown.
    pub model: String,
    /// Holder key; empty where nobody held.
    pub holder: String,
    /// The cause.
    pub cause: Cause,
    /// The part of the ladder.
    pub part: Part,
    /// Amount, at the scope's scale.
    pub amount: Decimal,
    /// Device-milliseconds: its paid time, counted once however many rows pay for it.
    pub device_ms: i64,
    /// Energy of that time, joules.
    pub energy_joules: i64,
    /// The rule that made it.
    pub rule: String,
    /// How sure.
    pub confidence: Confidence,
    /// Whether a bill stands behind it.
    pub state: State,
    /// How its time was placed.
    pub placed_by: PlacedBy,
    /// Bill service, for bill-only causes; empty else.
    pub service: String,
}

/// One line of the proof: the postings of a scope against its bill.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Closing {
    /// Scope.
    pub scope: Scope,
    /// Sum of EffectiveCost.
    pub bill: Decimal,
    /// Sum of postings.
    pub posted: Decimal,
    /// `bill - posted`; always zero, and shown.
    pub difference: Decimal,
    /// `closed`, `estimated`, or why not.
    pub state: String,
}

/// Something found: a cause and a subject over windows, or a fault of the data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Stable id from rule, subject and start.
    pub id: String,
    /// `waste`, `tunable`, `unknown`, or a data-quality word such as `duplicate_producer`.
    pub kind: String,
    /// The cause, where there is one.
    pub cause: Option<Cause>,
    /// Holder, machine, device, commitment ...
    pub subject: String,
    /// Currency of the amount.
    pub currency: Option<String>,
    /// The dollars of it.
    pub amount: Option<Decimal>,
    /// From, ms.
    pub from_ms: Option<i64>,
    /// To, ms.
    pub to_ms: Option<i64>,
    /// How sure.
    pub confidence: Confidence,
    /// Figures a person can check.
    pub evidence: String,
    /// Rule id and version.
    pub rule: String,
    /// What would change the verdict.
    pub would_change: String,
}

/// Everything that attribution hands over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    /// The postings, sorted by scope, hour, device, holder, cause, part, pool.
    pub postings: Vec<Posting>,
    /// One line per scope, estimates included.
    pub closings: Vec<Closing>,
    /// Findings, the most expensive first.
    pub findings: Vec<Finding>,
}
