//! `hotcell` alone at a terminal: a prompt at which each line is a command of hotcell.
//!
//! A command is a process of its own, started with the words of the line and nothing else: the same parser,
//! the same path, the same end. So Ctrl-C ends what runs and not the prompt, and nothing that a command leaves
//! behind is there for the next one.

mod complete;
mod history;
mod words;

use std::io::{self, IsTerminal};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command as Process, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use hotcell_sandbox::cause;
use rustix::termios::{QueueSelector, tcflush};
use rustyline::error::ReadlineError;
use rustyline::history::MemHistory;
use rustyline::{CompletionType, Config as Editing, Editor};
use signal_hook::consts::{SIGINT, SIGQUIT};
use signal_hook::flag;

use crate::exit;
use crate::print;
use crate::problem::{self, Problem};
use complete::Helper;
use history::History;

/// For `--help`.
pub(crate) const ABOUT: &str =
    "`hotcell` alone, at a terminal, is a prompt at which each line is a command.";

const PROMPT: &str = "hotcell> ";
const GREETING: &str = "hotcell: each line is a command; `help` lists them, Ctrl-D ends\n";
const HELP: &str = "Each line is a command of hotcell, without the word `hotcell`: `run -c 'print(1)' --lang python`.
Words are separated by spaces; '…' and \"…\" hold one together, \\ takes the next character as it is.
There are no variables, patterns or pipes. A number in brackets is the exit status, if it is not 0.

  help [COMMAND]   this, or all about a command
  exit, Ctrl-D     ends the prompt, with the status of the last command
  Ctrl-C           ends the command that runs, or forgets the line
  Tab, ↑, Ctrl-R   completes; goes back; searches what was typed

";

/// Longest line, in bytes.
const MOST_LINE: usize = 64 * 1024;

/// Whether somebody is there to type.
pub(crate) fn is_possible() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

pub(crate) fn main(commands: clap::Command) -> u8 {
    talk(commands).unwrap_or_else(|problem| problem::report(&problem, false))
}

fn talk(commands: clap::Command) -> Result<u8, Problem> {
    let failed =
        |error: ReadlineError| Problem::error("the terminal cannot be used").why(error.to_string());
    outlive_commands().map_err(|e| Problem::error("catching signals failed").why(cause(&e)))?;
    let mut history = History::of_home();
    let editing = Editing::builder()
        .completion_type(CompletionType::List)
        .auto_add_history(false)
        .max_history_size(history::MOST_LINES)
        .and_then(|builder| builder.history_ignore_dups(true))
        .map_err(failed)?
        .build();
    let past = MemHistory::with_config(&editing);
    let mut editor = Editor::<Helper, MemHistory>::with_history(editing, past).map_err(failed)?;
    editor.set_helper(Some(Helper::new(commands)));
    for line in history.read() {
        editor.add_history_entry(line).map_err(failed)?;
    }
    print::to_people(GREETING);
    let mut last = 0;
    loop {
        let line = match editor.readline(PROMPT) {
            Ok(line) => line,
            Err(ReadlineError::Interrupted) => continue,
            Err(ReadlineError::Eof) => return Ok(last),
            Err(ReadlineError::Io(error)) if error.kind() == io::ErrorKind::InvalidData => {
                last = problem::report(&not_text(), false);
                continue;
            }
            Err(error) => return Err(failed(error)),
        };
        if history::is_to_keep(&line) {
            editor.add_history_entry(line.as_str()).map_err(failed)?;
            history.add(&line);
        }
        last = match read(&line) {
            Ok(Said::Nothing) => continue,
            Ok(Said::End) => return Ok(last),
            Ok(Said::Command(words)) => carry_out(&words),
            Err(problem) => problem::report(&problem, false),
        };
        if last != 0 {
            print::to_people(&format!("[{last}]\n"));
        }
    }
}

/// What a line means.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    Nothing,
    End,
    Command(Vec<String>),
}

fn read(line: &str) -> Result<Said, Problem> {
    if line.len() > MOST_LINE {
        return Err(Problem::invalid(format!("the line has more than {MOST_LINE} bytes"))
            .fix("put what is long into a file"));
    }
    let mut words = words::split(line)?;
    // As it stands in documentation.
    if words.first().is_some_and(|word| word == "hotcell") {
        words.remove(0);
    }
    Ok(match words.first().map(String::as_str) {
        None => Said::Nothing,
        Some("exit" | "quit") if words.len() == 1 => Said::End,
        Some("help") => {
            if words.len() == 1 {
                print::to_people(HELP);
            }
            words.remove(0);
            words.push("--help".into());
            Said::Command(words)
        }
        Some(_) => Said::Command(words),
    })
}

fn carry_out(words: &[String]) -> u8 {
    let ended = std::env::current_exe().and_then(|own| Process::new(own).args(words).status());
    match ended {
        Ok(status) => number(status),
        Err(error) => {
            let problem = Problem::error("the command could not be started").why(cause(&error));
            problem::report(&problem, false)
        }
    }
}

/// As a shell has it.
fn number(status: ExitStatus) -> u8 {
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    let signal = status.signal().and_then(|signal| u8::try_from(signal).ok());
    code.or(signal.map(|signal| exit::SIGNAL.saturating_add(signal))).unwrap_or(exit::ERROR)
}

/// What is typed to end a command reaches this process as well. It is handled and not ignored, since what is
/// ignored stays so in the command.
fn outlive_commands() -> io::Result<()> {
    for signal in [SIGINT, SIGQUIT] {
        flag::register(signal, Arc::new(AtomicBool::new(false)))?;
    }
    Ok(())
}

/// The rest of that line is still to come, and is not a line of its own.
fn not_text() -> Problem {
    let problem = Problem::invalid("the line is not UTF-8").fix("nothing was done; type it again");
    match tcflush(io::stdin(), QueueSelector::IFlush) {
        Ok(()) => problem,
        Err(errno) => problem.why(format!("the rest of it may still come: {errno}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_command_or_one_of_the_few_words_of_the_prompt() {
        let command =
            |words: &[&str]| Said::Command(words.iter().map(ToString::to_string).collect());
        for (line, expected) in [
            ("", Said::Nothing),
            ("  \t ", Said::Nothing),
            ("hotcell", Said::Nothing),
            ("exit", Said::End),
            ("quit ", Said::End),
            ("runs --limit 3", command(&["runs", "--limit", "3"])),
            ("hotcell runs", command(&["runs"])),
            ("help run", command(&["run", "--help"])),
            ("exit now", command(&["exit", "now"])),
            ("run -- hotcell", command(&["run", "--", "hotcell"])),
        ] {
            assert_eq!(read(line).unwrap(), expected, "{line:?}");
        }
    }

    #[test]
    fn a_line_that_is_too_long_is_refused() {
        let problem = read(&"x".repeat(MOST_LINE + 1)).unwrap_err();
        assert!(problem.text(false).contains("more than 65536 bytes"), "{problem:?}");
    }

    #[test]
    fn a_command_ends_with_a_number_however_it_ends() {
        for (raw, expected) in [(0, 0), (119 << 8, 119), (2, 130), (9, 137)] {
            assert_eq!(number(ExitStatus::from_raw(raw)), expected);
        }
    }
}
