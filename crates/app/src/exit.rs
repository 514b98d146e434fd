//! Exit codes: one table for all commands. Scripts may rely on them; a code is never reused.
//!
//! | code | name | when |
//! |---|---|---|
//! | 0 | done | everything that was asked for was done |
//! | 1 | unexpected | a fault of ours: please report it |
//! | 2 | usage | a flag, a key of the configuration, a filter or a window could not be understood |
//! | 3 | input | an input could not be read at all, or nothing was read |
//! | 4 | refused | at least one billing scope was refused; the rest is reported |
//! | 5 | output | the result could not be written |
//! | 130 | interrupted | stopped by Ctrl-C; no half file is left |
//!
//! Refused cells and rows that leave their scope readable are reported and do not change the code.

use std::fmt;
use std::process::ExitCode;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Everything was done.
    Done,
    /// Our own fault.
    Unexpected,
    /// The command line or the configuration is wrong.
    Usage,
    /// An input could not be read, or nothing was read.
    Input,
    /// A scope was refused; the rest is reported.
    Refused,
    /// The result could not be written.
    Output,
    /// Stopped by the user.
    Interrupted,
}

impl Exit {
    /// The process exit code.
    pub fn code(self) -> u8 {
        match self {
            Exit::Done => 0,
            Exit::Unexpected => 1,
            Exit::Usage => 2,
            Exit::Input => 3,
            Exit::Refused => 4,
            Exit::Output => 5,
            Exit::Interrupted => 130,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}

/// Why a command gave no result. The message is a lowercase fragment that follows `failed to`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The exit code that goes with it.
    pub exit: Exit,
    /// What failed, with the thing and the value.
    pub message: String,
    /// What the user can do about it.
    pub hint: Option<String>,
}

impl Failure {
    /// A failure without a hint.
    pub fn new(exit: Exit, message: impl Into<String>) -> Failure {
        Failure { exit, message: message.into(), hint: None }
    }

    /// A wrong command line or configuration.
    pub fn usage(message: impl Into<String>) -> Failure {
        Failure::new(Exit::Usage, message)
    }

    /// An unreadable input.
    pub fn input(message: impl Into<String>) -> Failure {
        Failure::new(Exit::Input, message)
    }

    /// A result that could not be written.
    pub fn output(message: impl Into<String>) -> Failure {
        Failure::new(Exit::Output, message)
    }

    /// The same failure with a remedy.
    pub fn with_hint(mut self, hint: impl Into<String>) -> Failure {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: failed to {}", self.message)?;
        if let Some(hint) = &self.hint {
            write!(f, "\n  hint: {hint}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_distinct_and_as_documented() {
        let all = [Exit::Done, Exit::Unexpected, Exit::Usage, Exit::Input, Exit::Refused, Exit::Output, Exit::Interrupted];
        let codes: Vec<u8> = all.iter().map(|e| e.code()).collect();
        assert_eq!(codes, [0, 1, 2, 3, 4, 5, 130]);
    }

    #[test]
    fn a_failure_reads_as_one_sentence_with_its_remedy() {
        let failure = Failure::input("read bill.csv: no such file").with_hint("check the path");
        assert_eq!(failure.to_string(), "error: failed to read bill.csv: no such file\n  hint: check the path");
    }
}
