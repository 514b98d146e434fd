//! Rejects and notices of one file while it is read: equal reasons are told once, with their number.

use std::collections::BTreeMap;

use gpuledger_model::tables::reject::{Notice, Reject};

/// Longest excerpt of an input quoted in a reason.
const EXCERPT_CHARS: usize = 60;

/// Collects what a parser refuses or remarks.
pub(crate) struct Refusals {
    file: String,
    rejects: BTreeMap<(String, String), (u64, u64)>,
    notices: BTreeMap<String, (u64, String)>,
}

impl Refusals {
    /// For one file.
    pub(crate) fn new(file: &str) -> Refusals {
        Refusals { file: file.to_string(), rejects: BTreeMap::new(), notices: BTreeMap::new() }
    }

    /// Refuses a row or a cell; the first line of each (field, reason) is kept, the others are counted.
    pub(crate) fn reject(&mut self, line: u64, field: &str, reason: impl Into<String>) {
        let entry = self.rejects.entry((field.to_string(), reason.into())).or_insert((line, 0));
        entry.0 = entry.0.min(line);
        entry.1 += 1;
    }

    /// Remarks something once per kind; `message` should say what follows from it.
    pub(crate) fn notice(&mut self, kind: &str, message: impl Into<String>) {
        let entry = self.notices.entry(kind.to_string()).or_insert_with(|| (0, message.into()));
        entry.0 += 1;
    }

    /// How much was refused so far.
    pub(crate) fn rejected(&self) -> u64 {
        self.rejects.values().map(|(_, count)| count).sum()
    }

    /// The collected rows, in the order of their lines.
    pub(crate) fn finish(self) -> (Vec<Reject>, Vec<Notice>) {
        let file = self.file;
        let mut rejects: Vec<Reject> = self
            .rejects
            .into_iter()
            .map(|((field, reason), (line, count))| Reject { file: file.clone(), line, field, reason, count })
            .collect();
        rejects.sort_by(|a, b| (a.line, &a.field, &a.reason).cmp(&(b.line, &b.field, &b.reason)));
        let notices = self
            .notices
            .into_iter()
            .map(|(kind, (count, message))| {
                let message = if count > 1 { format!("{message} ({count} times)") } else { message };
                Notice { kind, subject: file.clone(), message }
            })
            .collect();
        (rejects, notices)
    }
}

/// A short quotation of an input for a message.
pub(crate) fn excerpt(text: &str) -> String {
    match text.char_indices().nth(EXCERPT_CHARS) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()),
        None => text.to_string(),
    }
}

/// Why bytes cannot be text of ours, if they begin like another encoding.
pub(crate) fn foreign_encoding(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => Some("the file is UTF-16; save it as UTF-8"),
        [0x1f, 0x8b, ..] => Some("the file is compressed; decompress it or name it .gz"),
        _ => None,
    }
}

/// The bytes after a UTF-8 byte order mark, if there is one.
pub(crate) fn without_mark(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes)
}
