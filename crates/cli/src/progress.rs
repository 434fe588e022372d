//! How far something is that takes long: one line on standard error, at a terminal only, and not before it
//! has taken a while. It is gone when the thing is done.

use std::io::{self, IsTerminal};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::print;

/// What is done sooner is told by nothing but its result.
const PATIENCE: Duration = Duration::from_millis(300);
const TICK: Duration = Duration::from_millis(100);

/// Where nobody knows how much there is to do, and where somebody does.
const SPINNER: &str = "{spinner} {msg} {elapsed}";
const BAR: &str = "{msg} [{wide_bar}] {human_pos}/{human_len} {elapsed}";

/// The line, for as long as this is there.
pub(crate) struct Progress {
    bar: ProgressBar,
    /// Dropped at the end, which is how whoever draws learns of it.
    goes_on: Option<Sender<()>>,
    drawing: Option<JoinHandle<()>>,
}

impl Progress {
    pub(crate) fn start(what: &'static str) -> Progress {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        let mut progress = Progress { bar, goes_on: None, drawing: None };
        if !io::stderr().is_terminal() || print::is_dumb() {
            return progress;
        }
        progress.bar.set_message(what);
        progress.style(SPINNER);
        let (goes_on, end) = mpsc::channel::<()>();
        let bar = progress.bar.clone();
        let drawing = thread::Builder::new().name("progress".into()).spawn(move || {
            if end.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                bar.set_draw_target(ProgressDrawTarget::stderr());
                bar.enable_steady_tick(TICK);
            }
        });
        // Without a thread there is no line, and the thing itself is done all the same.
        progress.drawing = drawing.ok();
        progress.goes_on = Some(goes_on);
        progress
    }

    /// So much of all of it is done.
    pub(crate) fn at(&self, done: u64, all: u64) {
        if self.bar.length() != Some(all) {
            self.style(BAR);
            self.bar.set_length(all);
        }
        self.bar.set_position(done.min(all));
    }

    fn style(&self, template: &str) {
        if let Ok(style) = ProgressStyle::with_template(template) {
            self.bar.set_style(style.progress_chars("=> "));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        drop(self.goes_on.take());
        // It may be about to draw, which has to be before what is drawn is taken away.
        if let Some(drawing) = self.drawing.take() {
            drawing.join().ok();
        }
        self.bar.finish_and_clear();
    }
}

/// Does something that may take long.
pub(crate) fn while_doing<T>(what: &'static str, work: impl FnOnce() -> T) -> T {
    let _line = Progress::start(what);
    work()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_templates_can_be_read() {
        for template in [SPINNER, BAR] {
            ProgressStyle::with_template(template).unwrap();
        }
    }
}
