//! How far a batch is, for a person at a terminal.

use std::io::{self, IsTerminal};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use super::source::Source;

/// How often it is drawn when nothing happens.
const TICK: Duration = Duration::from_millis(250);

pub(super) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Nothing, where nobody sees it or results are printed in the same place.
    pub(super) fn new(source: &Source, is_file: bool) -> Progress {
        if !io::stderr().is_terminal() || (io::stdout().is_terminal() && !is_file) {
            return Progress { bar: ProgressBar::hidden() };
        }
        let (bar, style) = match source.count() {
            Some(lines) => (
                ProgressBar::new(lines),
                ProgressStyle::with_template("{bar:30} {pos}/{len} {per_sec} eta {eta}"),
            ),
            None => (
                ProgressBar::new_spinner(),
                ProgressStyle::with_template("{spinner} {pos} {per_sec} in {elapsed}"),
            ),
        };
        // It is a constant, and a plain bar if it were wrong.
        if let Ok(style) = style {
            bar.set_style(style);
        }
        bar.enable_steady_tick(TICK);
        Progress { bar }
    }

    pub(super) fn step(&self) {
        self.bar.inc(1);
    }

    /// Does something that may print.
    pub(super) fn aside<T>(&self, doing: impl FnOnce() -> T) -> T {
        if self.bar.is_hidden() { doing() } else { self.bar.suspend(doing) }
    }

    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
