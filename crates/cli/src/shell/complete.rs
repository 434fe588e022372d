//! What can come next in a line: from the commands as clap knows them, the tools, and files.

use std::any::TypeId;
use std::cell::OnceCell;

use clap::{Arg, Command};
use hotcell_engine::{Answer, Ask};
use hotcell_request::ToolName;
use rustyline::Context;
use rustyline::completion::{Completer, FilenameCompleter, Pair};
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::validate::Validator;

use super::words;
use crate::config::Config;
use crate::home;

/// What the prompt itself knows.
const OWN: [&str; 2] = ["exit", "help"];

pub(super) struct Helper {
    commands: Command,
    files: FilenameCompleter,
    /// Found out when the first one is asked for.
    tools: OnceCell<Vec<String>>,
}

impl Helper {
    pub(super) fn new(mut commands: Command) -> Helper {
        commands.build();
        Helper { commands, files: FilenameCompleter::new(), tools: OnceCell::new() }
    }

    fn tools(&self) -> Vec<String> {
        // Whatever is wrong is told by the command that needs it.
        self.tools.get_or_init(|| tool_names().unwrap_or_default()).clone()
    }

    /// What begins as the last word does; `None` where files may come.
    fn names(&self, before: &[String], word: &str) -> Option<Vec<String>> {
        let before = before.strip_prefix(&["hotcell".to_owned()]).unwrap_or(before);
        let before = before.strip_prefix(&["help".to_owned()]).unwrap_or(before);
        let place = place(&self.commands, before);
        let names = if word.starts_with('-') && place.takes_options {
            options(place.command)
        } else if let Some(arg) = place.arg {
            self.values(arg)?
        } else if place.command.has_subcommands() && place.positionals == 0 {
            let own = OWN.iter().filter(|_| before.is_empty()).map(ToString::to_string);
            let below = place.command.get_subcommands().filter(|command| !command.is_hide_set());
            below.map(|command| command.get_name().to_owned()).chain(own).collect()
        } else {
            self.values(place.command.get_positionals().nth(place.positionals)?)?
        };
        let mut names: Vec<String> =
            names.into_iter().filter(|name| name.starts_with(word)).collect();
        names.sort();
        Some(names)
    }

    /// What an argument can be, if that can be listed.
    fn values(&self, arg: &Arg) -> Option<Vec<String>> {
        if arg.get_value_parser().type_id() == TypeId::of::<ToolName>() {
            return Some(self.tools());
        }
        let possible = arg.get_possible_values();
        let possible = possible.iter().filter(|value| !value.is_hide_set());
        let names: Vec<String> = possible.map(|value| value.get_name().to_owned()).collect();
        (!names.is_empty()).then_some(names)
    }
}

/// Where in the tree of commands a line is.
struct Place<'a> {
    command: &'a Command,
    /// The option whose value comes next.
    arg: Option<&'a Arg>,
    positionals: usize,
    takes_options: bool,
}

fn place<'a>(root: &'a Command, words: &[String]) -> Place<'a> {
    let mut place = Place { command: root, arg: None, positionals: 0, takes_options: true };
    for word in words {
        if place.arg.take().is_some() {
            continue;
        }
        if word == "--" {
            place.takes_options = false;
        } else if place.takes_options && word.len() > 1 && word.starts_with('-') {
            place.arg = option(place.command, word);
        } else if let Some(below) = place.command.find_subcommand(word)
            && place.positionals == 0
        {
            place.command = below;
        } else {
            place.positionals += 1;
            let last = place.command.get_positionals().last();
            // What follows belongs to the program that is run.
            place.takes_options &= !last.is_some_and(Arg::is_trailing_var_arg_set);
        }
    }
    place
}

/// The option that a word is, if a value has to follow.
fn option<'a>(command: &'a Command, word: &str) -> Option<&'a Arg> {
    let takes_value = |arg: &&Arg| arg.get_action().takes_values();
    match word.strip_prefix("--") {
        Some(long) => {
            command.get_opts().filter(takes_value).find(|arg| arg.get_long() == Some(long))
        }
        None => {
            let mut letters = word.chars().skip(1);
            let (short, more) = (letters.next(), letters.next());
            let mut with_value = command.get_opts().filter(takes_value);
            with_value.find(|arg| arg.get_short() == short).filter(|_| more.is_none())
        }
    }
}

fn options(command: &Command) -> Vec<String> {
    let shown = command.get_arguments().filter(|arg| !arg.is_hide_set());
    shown.filter_map(|arg| Some(format!("--{}", arg.get_long()?))).collect()
}

fn tool_names() -> Option<Vec<String>> {
    let engine = home::engine(home::options(&Config::load().ok()?, None)).ok()?;
    let Answer::Tools(tools) = engine.ask(&home::caller(), Ask::Tools(None)) else { return None };
    let names = tools.iter().map(|listed| listed.tool.tool().name.to_string()).collect();
    home::close(engine, 0);
    Some(names)
}

impl Completer for Helper {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        pos: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        let line = line.get(..pos).unwrap_or(line);
        let Some((begin, before)) = words::unfinished(line) else {
            return self.files.complete_path(line, pos);
        };
        let word = line.get(begin..).unwrap_or_default();
        match self.names(&before, word) {
            Some(names) => {
                let pair = |name: String| Pair { replacement: format!("{name} "), display: name };
                Ok((begin, names.into_iter().map(pair).collect()))
            }
            None => self.files.complete_path(line, pos),
        }
    }
}

impl Hinter for Helper {
    type Hint = String;
}

impl Highlighter for Helper {}
impl Validator for Helper {}
impl rustyline::Helper for Helper {}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn what_can_come_next_is_found() {
        let helper = Helper::new(crate::Cli::command());
        helper.tools.set(vec!["fs.read".into(), "fs.write".into(), "add".into()]).unwrap();
        for (line, expected) in [
            ("ru", &["run", "runs"][..]),
            ("hotcell ru", &["run", "runs"]),
            ("help ru", &["run", "runs"]),
            ("he", &["help"]),
            ("tool c", &["call"]),
            ("tool call fs", &["fs.read", "fs.write"]),
            ("tool show a", &["add"]),
            ("policy explain fs.w", &["fs.write"]),
            ("token mint a", &["add"]),
            ("audit verify --j", &["--json"]),
            ("run --out", &["--output-dir"]),
            ("--col", &["--color"]),
            ("runs --color n", &["never"]),
            ("init --profile s", &["strict"]),
            ("completions z", &["zsh"]),
            ("policy explain fs.read {} --state id", &["idle"]),
            ("nothing", &[]),
        ] {
            let (begin, before) = words::unfinished(line).unwrap();
            let names = helper.names(&before, line.get(begin..).unwrap());
            assert_eq!(
                names.as_deref(),
                Some(&expected.iter().map(ToString::to_string).collect::<Vec<_>>()[..]),
                "{line}"
            );
        }
        for line in ["run exa", "run f.py --out", "run --input d", "backup f", "run -- l"] {
            let (begin, before) = words::unfinished(line).unwrap();
            assert_eq!(helper.names(&before, line.get(begin..).unwrap()), None, "{line}");
        }
    }
}
