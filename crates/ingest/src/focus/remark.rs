//! What is said about one file: rejects and notices, counted, each with the first line it was met on.

use std::collections::BTreeMap;

use gpuledger_model::tables::charge::Scope;
use gpuledger_model::tables::reject::{Notice, Reject};

use super::parse::Refusal;

/// What a reject means for the money.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Weight {
    /// The whole file is refused.
    File,
    /// The scope is refused.
    Scope(Scope),
    /// The value is read as null; nothing is refused.
    Value,
}

/// Collects remarks about one file.
pub(crate) struct Remarks {
    file: String,
    rejects: BTreeMap<(Weight, String), Reject>,
    notices: BTreeMap<(&'static str, String), (String, u64, u64)>,
}

impl Remarks {
    pub(crate) fn new(file: &str) -> Remarks {
        Remarks { file: file.to_owned(), rejects: BTreeMap::new(), notices: BTreeMap::new() }
    }

    /// Counts a row that was not taken, or a value of it. The reason is that of the first one.
    pub(crate) fn reject(&mut self, weight: Weight, line: u64, field: &str, reason: &str) {
        let file = &self.file;
        let remedy = match &weight {
            Weight::File => "the row's scope cannot be told, so the whole file is refused; correct it, or leave the file out".to_owned(),
            Weight::Scope(scope) => {
                format!("scope {} is refused whole; correct the value in the file, or leave the file out", scope.id())
            }
            Weight::Value => "read as null".to_owned(),
        };
        let reject = self.rejects.entry((weight, field.to_owned())).or_insert_with(|| Reject {
            file: file.clone(),
            line,
            field: field.to_owned(),
            reason: format!("{reason}: {remedy}"),
            count: 0,
        });
        reject.count += 1;
    }

    /// Refuses the file for something that is not one row's fault; `count` rows are affected.
    pub(crate) fn refuse_file(&mut self, line: u64, field: &str, reason: String, count: u64) {
        let reject = Reject { file: self.file.clone(), line, field: field.to_owned(), reason, count };
        self.rejects.entry((Weight::File, field.to_owned())).or_insert(reject);
    }

    /// Notes something; the message is that of the first time.
    pub(crate) fn notice(&mut self, kind: &'static str, detail: &str, line: u64, message: impl FnOnce() -> String) {
        let entry = self.notices.entry((kind, detail.to_owned())).or_insert_with(|| (message(), line, 0));
        entry.2 += 1;
    }

    /// Whether the whole file is refused.
    pub(crate) fn is_file_refused(&self) -> bool {
        self.rejects.keys().any(|(weight, _)| *weight == Weight::File)
    }

    /// Everything, in order.
    pub(crate) fn finish(self) -> (Vec<Reject>, Vec<Notice>, Vec<Refusal>) {
        let mut rejects = Vec::new();
        let mut refused = Vec::new();
        for ((weight, _), reject) in self.rejects {
            let scope = match weight {
                Weight::File => Some(None),
                Weight::Scope(scope) => Some(Some(scope)),
                Weight::Value => None,
            };
            if let Some(scope) = scope {
                refused.push(Refusal { scope, line: reject.line, field: reject.field.clone(), reason: reject.reason.clone() });
            }
            rejects.push(reject);
        }
        rejects.sort();
        let file = self.file;
        let notices = self.notices.into_iter().map(|((kind, _), (message, line, count))| Notice {
            kind: kind.to_owned(),
            subject: file.clone(),
            message: if line == 0 {
                message
            } else if count == 1 {
                format!("{message} (line {line})")
            } else {
                format!("{message} ({count} times, first in line {line})")
            },
        });
        (rejects, notices.collect(), refused)
    }
}
