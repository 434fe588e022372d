//! The ways to exit, numbered. The program's own status passes through, so that a script around
//! hotcell sees what it would see without it; ours are where shells and `timeout` have theirs.

use hotcell_types::{Exit, Outcome, Status};

/// The policy refused it, or somebody has to agree first.
pub(crate) const BLOCKED: u8 = 119;
/// hotcell itself failed.
pub(crate) const ERROR: u8 = 120;
/// Arguments, inputs or configuration are wrong.
pub(crate) const INVALID: u8 = 121;
/// The host cannot give the required level, or a layer failed.
pub(crate) const REFUSED: u8 = 122;
/// A limit other than time and memory ended the run.
pub(crate) const LIMIT: u8 = 123;
/// The wall time was over.
pub(crate) const TIMEOUT: u8 = 124;
/// The memory was used up.
pub(crate) const OOM: u8 = 125;
/// The program exists and cannot be executed.
pub(crate) const NOT_RUNNABLE: u8 = 126;
/// No such file, command or interpreter.
pub(crate) const NOT_FOUND: u8 = 127;
/// Added to the number of a signal.
pub(crate) const SIGNAL: u8 = 128;
/// Interrupted, as a shell has it for SIGINT.
pub(crate) const CANCELLED: u8 = 130;
/// Whoever read the output went away, as a shell has it for SIGPIPE.
pub(crate) const PIPE: u8 = 141;

/// For `--help` and docs/cli.md.
const TABLE: [(&str, &str); 12] = [
    ("0-118", "the program's own status"),
    ("119", "blocked: the policy refused it, or somebody has to agree first"),
    ("120", "error: hotcell itself failed"),
    ("121", "invalid: arguments, inputs or configuration"),
    ("122", "refused: this host cannot give the required level, or a layer failed"),
    ("123", "limit: processor time or another limit ended the run"),
    ("124", "timeout: the wall time was over"),
    ("125", "oom: the memory was used up"),
    ("126", "the program is there and cannot be executed"),
    ("127", "no such file, command or interpreter"),
    ("128+N", "signal N ended the program"),
    ("130", "cancelled by Ctrl-C (143 by SIGTERM, 129 by SIGHUP, 141 when the reader left)"),
];

pub(crate) fn help() -> String {
    let mut text = String::from("Exit status:\n");
    for (number, meaning) in TABLE {
        text.push_str(&format!("  {number:<6}  {meaning}\n"));
    }
    text.push_str("A program may use any of these numbers itself: --json tells them apart.");
    text
}

/// `signal` is the one that hotcell was asked to end by.
pub(crate) fn of_outcome(outcome: &Outcome, signal: Option<u8>) -> u8 {
    match outcome.status {
        Status::Success => 0,
        Status::Failure | Status::Killed => of_program(outcome.exit),
        Status::Error | Status::CircuitOpen | Status::Unknown => ERROR,
        Status::Blocked | Status::Review => BLOCKED,
        Status::Invalid => INVALID,
        Status::Timeout => TIMEOUT,
        Status::Oom => OOM,
        Status::Limit => LIMIT,
        Status::Cancelled => signal.map_or(CANCELLED, |n| SIGNAL.saturating_add(n)),
    }
}

fn of_program(exit: Option<Exit>) -> u8 {
    match exit {
        Some(Exit::Code(code)) => code,
        Some(Exit::Signal(n)) => SIGNAL.saturating_add(n),
        // Its end could not be observed, which is not a success.
        None => ERROR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::report::tests::outcome;

    #[test]
    fn each_end_has_its_number() {
        for (status, exit, signal, expected) in [
            (Status::Success, Some(Exit::Code(0)), None, 0),
            (Status::Failure, Some(Exit::Code(3)), None, 3),
            (Status::Failure, Some(Exit::Code(255)), None, 255),
            (Status::Failure, Some(Exit::Code(124)), None, 124),
            (Status::Killed, Some(Exit::Signal(11)), None, 139),
            (Status::Killed, Some(Exit::Signal(255)), None, 255),
            (Status::Killed, None, None, 120),
            (Status::Error, None, None, 120),
            (Status::Limit, Some(Exit::Signal(9)), None, 123),
            (Status::Timeout, Some(Exit::Signal(9)), None, 124),
            (Status::Oom, Some(Exit::Signal(9)), None, 125),
            (Status::Cancelled, None, None, 130),
            (Status::Cancelled, None, Some(15), 143),
            (Status::Cancelled, None, Some(1), 129),
            (Status::Success, Some(Exit::Code(0)), Some(2), 0),
        ] {
            let mut outcome = outcome(status);
            outcome.exit = exit;
            assert_eq!(of_outcome(&outcome, signal), expected, "{status:?} {exit:?} {signal:?}");
        }
    }
}
