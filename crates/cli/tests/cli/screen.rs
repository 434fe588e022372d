//! Commands whose own output is at a terminal.

use std::process::{Child, Command, Stdio};

use crate::person::Pty;

/// With stdin, stdout and stderr there.
pub(crate) fn with_all(command: &Command) -> (Pty, Child) {
    Pty::start_with(command, |child, tty| {
        child.stdout(tty.try_clone().unwrap()).stderr(tty.try_clone().unwrap());
    })
}

/// With stdin and stderr there; stdout is a pipe.
pub(crate) fn with_errors(command: &Command) -> (Pty, Child) {
    Pty::start_with(command, |child, tty| {
        child.stdout(Stdio::piped()).stderr(tty.try_clone().unwrap());
    })
}

/// With everything there, and nobody who types; how it ended, and the screen.
pub(crate) fn all_at_terminal(command: &Command) -> (Option<i32>, String) {
    let (mut pty, mut child) = with_all(command);
    let ended = pty.until_end(&mut child);
    (ended, String::from_utf8_lossy(&pty.seen).into_owned())
}
