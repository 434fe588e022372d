//! The binary `hotcell`: one file per command, the numbered exits in `exit`, the one error format in
//! `problem`. A command returns the number to exit with; nothing here exits on its own.

mod api_key;
mod approvals;
mod approve;
mod approver;
mod artifact;
mod audit;
mod backup;
mod batch;
mod completions;
mod config;
mod doctor;
mod env;
mod exit;
mod gc;
mod home;
mod init;
mod kernel;
mod key;
mod logs;
mod mcp;
mod policy;
mod print;
mod problem;
mod progress;
mod replay;
mod resident;
mod run;
mod runs;
mod sandbox;
mod secret;
mod serve;
mod shell;
mod signals;
mod template;
mod token;
mod tool;
mod wait;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser, Subcommand, ValueEnum};

use hotcell_sandbox::lang;
use kernel::Begun;
use print::Colour;
use problem::Problem;

/// Runs untrusted code in a sandbox it cannot leave
#[derive(Debug, Parser)]
#[command(
    name = "hotcell",
    version,
    max_term_width = 100,
    after_help = format!("{}\n\n{}", shell::ABOUT, exit::help()),
    disable_help_subcommand = true
)]
struct Cli {
    #[command(flatten)]
    manners: Manners,
    #[command(subcommand)]
    command: Command,
}

/// What every command has.
#[derive(Debug, clap::Args)]
struct Manners {
    /// Colour: auto (at a terminal, unless NO_COLOR is set or TERM is dumb), always or never
    #[arg(
        long = "color",
        global = true,
        value_name = "WHEN",
        value_enum,
        default_value_t = Colour::Auto,
        hide_default_value = true,
        hide_possible_values = true,
        display_order = 900
    )]
    colour: Colour,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(Box<run::Args>),
    Batch(batch::Args),
    Doctor(doctor::Args),
    /// Tools: what can be called, and calling it
    #[command(subcommand)]
    Tool(tool::Command),
    /// The policy: what is allowed, why, and changing it
    #[command(subcommand)]
    Policy(policy::Command),
    Init(init::Args),
    Serve(serve::Args),
    /// The record: what happened, and whether that is still what is there
    #[command(subcommand)]
    Audit(audit::Command),
    Runs(runs::Args),
    Logs(logs::Args),
    Mcp(mcp::Args),
    Replay(replay::Args),
    Gc(gc::Args),
    Backup(backup::BackupArgs),
    Restore(backup::RestoreArgs),
    Approvals(approvals::Args),
    Approve(approve::ApproveArgs),
    Reject(approve::RejectArgs),
    /// The key that answers what waits
    #[command(subcommand)]
    Approver(approver::Command),
    /// What calls were given and made: contents, versions, where they came from
    #[command(subcommand)]
    Artifact(artifact::Command),
    /// Sandboxes that stay: one program after the other, with the same files
    #[command(subcommand)]
    Sandbox(sandbox::Command),
    /// Environments: packages that runs can use
    #[command(subcommand)]
    Env(env::Command),
    /// Tokens: what the policy allows, remembered for a while and for so many calls
    #[command(subcommand)]
    Token(token::Command),
    /// API keys: who may come through the door of a server
    #[command(subcommand)]
    Key(api_key::Command),
    /// Secrets: values that runs use and never see
    #[command(subcommand)]
    Secret(secret::Command),
    /// Named limits, network and seccomp profile
    #[command(subcommand)]
    Template(template::Command),
    /// What is configured, and where
    #[command(subcommand)]
    Config(config::Command),
    /// A hotcell of this user that stays, so that others need not begin from nothing
    #[command(subcommand)]
    Resident(resident::Command),
    Completions(completions::Args),
}

/// The same with one command only: making all of them takes longer than reading the words.
#[derive(Debug, Parser)]
#[command(name = "hotcell", version, max_term_width = 100, disable_help_subcommand = true)]
struct OnlyRun {
    #[command(flatten)]
    manners: Manners,
    #[command(subcommand)]
    command: RunCommand,
}

#[derive(Debug, Subcommand)]
enum RunCommand {
    Run(Box<run::Args>),
}

fn parse(words: &[OsString]) -> Result<(Command, Manners), clap::Error> {
    if !is_run(words) {
        return Cli::try_parse_from(words).map(|cli| (cli.command, cli.manners));
    }
    OnlyRun::try_parse_from(words).map(|cli| match cli.command {
        RunCommand::Run(args) => (Command::Run(args), cli.manners),
    })
}

fn is_run(words: &[OsString]) -> bool {
    words.get(1).is_some_and(|word| word == "run")
}

/// Or the program is given these words, which does no harm either.
fn asks_for_help(words: &[OsString]) -> bool {
    words.iter().any(|word| word == "--help" || word == "-h")
}

fn main() -> ExitCode {
    raise_open_files();
    keep_no_core();
    let words: Vec<OsString> = std::env::args_os().collect();
    if words.len() == 1 && shell::is_possible() {
        return ExitCode::from(shell::main(Cli::command()));
    }
    // What is most probably needed comes up while it is found out what for.
    let begun = (is_run(&words) && !asks_for_help(&words)).then(Begun::begin);
    let code = match parse(&words) {
        Ok((command, manners)) => {
            print::choose(manners.colour);
            dispatch(command, &words, begun)
        }
        Err(error) => not_parsed(&error, &words),
    };
    ExitCode::from(code)
}

/// Keys and secrets are in this process's memory, and not for a file that an end by accident leaves behind.
fn keep_no_core() {
    use rustix::process::{Resource, Rlimit, setrlimit};
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) }).ok();
}

/// Descriptors on their way to a run count against this user's limit, together with those that runs of
/// the same user send each other.
fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    // Where it cannot be raised there is less room, and nothing else.
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).ok();
}

fn dispatch(command: Command, words: &[OsString], begun: Option<Begun>) -> u8 {
    match command {
        Command::Run(args) => run::main(*args, words, begun.unwrap_or_else(Begun::begin)),
        Command::Batch(args) => batch::main(args),
        Command::Doctor(args) => doctor::main(args),
        Command::Tool(command) => tool::main(command),
        Command::Policy(command) => policy::main(command),
        Command::Init(args) => init::main(args),
        Command::Serve(args) => serve::main(args),
        Command::Audit(command) => audit::main(command),
        Command::Runs(args) => runs::main(args),
        Command::Logs(args) => logs::main(args),
        Command::Mcp(args) => mcp::main(args),
        Command::Replay(args) => replay::main(args),
        Command::Gc(args) => gc::main(args),
        Command::Backup(args) => backup::backup(args),
        Command::Restore(args) => backup::restore(args),
        Command::Approvals(args) => approvals::main(args),
        Command::Approve(args) => approve::approve(args),
        Command::Reject(args) => approve::reject(args),
        Command::Approver(command) => approver::main(command),
        Command::Artifact(command) => artifact::main(command),
        Command::Sandbox(command) => sandbox::main(command),
        Command::Env(command) => env::main(command),
        Command::Token(command) => token::main(command),
        Command::Key(command) => api_key::main(command),
        Command::Secret(command) => secret::main(command),
        Command::Template(command) => template::main(command),
        Command::Config(command) => config::main(command),
        Command::Resident(command) => resident::main(command),
        Command::Completions(args) => completions::main(args, &mut Cli::command()),
    }
}

/// Help and version are data; everything else is a wrong use.
fn not_parsed(error: &clap::Error, words: &[OsString]) -> u8 {
    print::choose(asked_colour(words));
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        let text = error.render();
        return print::data(&match print::colour_of_data() {
            true => text.ansi().to_string(),
            false => text.to_string(),
        });
    }
    problem::report(&usage_problem(error), asks_for_json(words))
}

/// The arguments cannot be trusted to mean what they say when they were not understood, so that any
/// `--json` among hotcell's own words counts.
fn asks_for_json(words: &[OsString]) -> bool {
    words.iter().take_while(|w| *w != "--").any(|w| w == "--json")
}

/// The same for `--color`.
fn asked_colour(words: &[OsString]) -> Colour {
    let own: Vec<&str> =
        words.iter().take_while(|w| *w != "--").filter_map(|word| word.to_str()).collect();
    let joined = own.iter().find_map(|word| word.strip_prefix("--color="));
    let apart = || {
        own.windows(2).find_map(|pair| match pair {
            ["--color", when] => Some(*when),
            _ => None,
        })
    };
    let when = joined.or_else(apart).and_then(|when| Colour::from_str(when, false).ok());
    when.unwrap_or(Colour::Auto)
}

fn usage_problem(error: &clap::Error) -> Problem {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        _ => None,
    };
    let help = "`hotcell --help` and `hotcell run --help` list the options";
    let value = (context(ContextKind::InvalidArg), context(ContextKind::InvalidValue));
    let cause = std::error::Error::source(error);
    if let Some(language) = cause.and_then(|c| c.downcast_ref::<lang::Error>()) {
        return language.clone().into();
    }
    match (value, cause) {
        ((Some(option), Some(value)), Some(cause)) => {
            let problem = Problem::invalid(format!("`{value}` does not suit `{option}`"));
            // Units and templates say after a colon what to write instead.
            let cause = cause.to_string();
            match cause.rsplit_once(": ") {
                Some((why, fix)) => problem.why(why).fix(fix),
                None => problem.why(cause).fix(help),
            }
        }
        ((Some(number), None), _) if is_negative(&number) => {
            Problem::invalid(format!("`{number}` is below zero")).fix("give a number above zero")
        }
        _ => Problem::invalid(headline(error)).fix(tip(error).unwrap_or_else(|| help.into())),
    }
}

/// A value that looks like an option, and that no option takes.
fn is_negative(option: &str) -> bool {
    option.strip_prefix('-').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// What clap says went wrong, without its prefix, tips and usage.
fn headline(error: &clap::Error) -> String {
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return "no command was given".into();
    }
    let text = error.render().to_string();
    let first = text.split("\n\n").next().unwrap_or_default();
    let words: Vec<&str> = first.split_whitespace().collect();
    words.join(" ").trim_start_matches("error: ").replace('\'', "`")
}

fn tip(error: &clap::Error) -> Option<String> {
    let text = error.render().to_string();
    let tip = text.lines().find_map(|line| line.trim().strip_prefix("tip: "))?;
    Some(tip.replace('\'', "`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
        OnlyRun::command().debug_assert();
    }

    /// What prints nothing that `--json` could make a document of.
    const WITHOUT_JSON: [(&str, &str); 6] = [
        ("hotcell audit export", "what it writes is JSON Lines in any case"),
        ("hotcell batch", "a result is a line of JSON in any case"),
        ("hotcell completions", "a script for a shell"),
        ("hotcell mcp", "what it says is messages of a protocol"),
        ("hotcell resident serve", "serves, and prints nothing"),
        ("hotcell serve", "serves; its log has a form of its own, and --openapi is JSON"),
    ];

    #[test]
    fn every_command_that_prints_data_prints_it_as_json_if_asked() {
        fn walk(command: &clap::Command, path: &str, without: &mut Vec<String>) {
            let path = format!("{path} {}", command.get_name()).trim().to_owned();
            let does_something = !command.is_subcommand_required_set();
            let has_json = command.get_arguments().any(|arg| arg.get_long() == Some("json"));
            if does_something && !has_json {
                without.push(path.clone());
            }
            command.get_subcommands().for_each(|below| walk(below, &path, without));
        }
        let mut without = Vec::new();
        let mut root = Cli::command();
        root.build();
        // The shell itself prints nothing.
        root.get_subcommands().for_each(|command| walk(command, "hotcell", &mut without));
        without.sort();
        assert_eq!(without, WITHOUT_JSON.map(|(command, _)| command), "give it `--json`");
    }

    #[test]
    fn run_alone_is_read_and_explained_as_it_is_among_all_commands() {
        for line in [
            "hotcell run",
            "hotcell run --help",
            "hotcell run -h",
            "hotcell run f.py --help",
            "hotcell run --lang python -c x y",
            "hotcell run -- ls -l",
            "hotcell run --mem",
            "hotcell run --mem lots f.py",
            "hotcell run --tiemout 1s f.py",
            "hotcell run -c x",
            "hotcell run --version",
            "hotcell run --color never f.py --color x",
            "hotcell run --color red f.py",
        ] {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            let told = |parsed: Result<(Command, Manners), clap::Error>| match parsed {
                Ok(parsed) => format!("{parsed:?}"),
                Err(error) => format!("{:?} {}", error.kind(), error.render()),
            };
            let among_all = Cli::try_parse_from(&words).map(|cli| (cli.command, cli.manners));
            assert_eq!(told(parse(&words)), told(among_all), "{line}");
        }
    }
}
