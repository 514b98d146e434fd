//! `rejects`: what was not taken, and why. **ING-3**: every input row is in a batch or here.

use serde::{Deserialize, Serialize};

/// One refused row, cell or sample.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Reject {
    /// The file, as the user named it.
    pub file: String,
    /// Line or row from 1; 0 where it is the whole file.
    pub line: u64,
    /// Column, metric or label; empty for the whole row.
    pub field: String,
    /// What is wrong and what would mend it.
    pub reason: String,
    /// How many rows of the file were refused for this reason (only the first is named by `line`).
    pub count: u64,
}

/// Something about the data that a user should know; nothing was refused for it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Notice {
    /// A stable word, such as `effective_cost_integral`.
    pub kind: String,
    /// What it is about: a file, scope, commitment or machine.
    pub subject: String,
    /// A sentence with the figures.
    pub message: String,
}
