//! Progress of long work: on standard error, only on a terminal, never on standard output.

use indicatif::{ProgressBar, ProgressStyle};
use std::time::Duration;

/// A line that says what is being done. Cheap to call from loops; silent when standard error is no terminal.
#[derive(Clone, Debug)]
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Shows itself on standard error if that is a terminal.
    pub fn on_stderr() -> Progress {
        // indicatif draws nothing when standard error is no terminal.
        let bar = ProgressBar::new_spinner();
        bar.enable_steady_tick(Duration::from_millis(120));
        Progress { bar }
    }

    /// Never shows anything.
    pub fn hidden() -> Progress {
        Progress { bar: ProgressBar::hidden() }
    }

    /// A new stage of unknown length, such as `reading bills`.
    pub fn stage(&self, text: &str) {
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} [{elapsed}]") {
            self.bar.set_style(style);
        }
        self.bar.set_message(text.to_string());
    }

    /// A new stage with a known number of steps.
    pub fn counted_stage(&self, text: &str, steps: u64) {
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {pos}/{len} {bar:30} [{elapsed}]") {
            self.bar.set_style(style);
        }
        self.bar.set_length(steps);
        self.bar.set_position(0);
        self.bar.set_message(text.to_string());
    }

    /// One step of a counted stage is done.
    pub fn step(&self) {
        self.bar.inc(1);
    }

    /// Removes the line: a result or an error follows.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
