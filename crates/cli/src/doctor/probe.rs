//! Tries everything: real runs of programs that hotcell itself chose.
//!
//! They run whatever the operator's minimum is, so that a host below it can be explained: nothing of
//! a user's is executed here.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::time::{Duration, Instant};

use hotcell_sandbox::host::{self, CgroupSearch, Diagnosis, HostFacts, Trial, diagnose};
use hotcell_sandbox::lang::{self, Host, Language};
use hotcell_sandbox::{Command, Job, Network, Refusal, Sandbox, Settings, Sink, Stdin};
use hotcell_types::{Layer, Level, Limits, Outcome, Profile, Span, Template};

use crate::problem::Problem;

/// A host that takes longer than this to print a line is not well.
const MOST_TIME: Span = Span::seconds(20);
const HELLO: &str = "print('hello from Python')";

/// Longest version that is shown.
const MAX_VERSION: usize = 60;

/// What was found.
pub(super) struct Probe {
    pub(super) facts: HostFacts,
    pub(super) diagnosis: Diagnosis,
    pub(super) languages: Vec<Interpreter>,
    pub(super) run: Attempt,
}

/// The interpreter of one language.
pub(super) struct Interpreter {
    pub(super) language: Language,
    pub(super) found: Result<Usable, Problem>,
}

pub(super) struct Usable {
    /// The real executable.
    pub(super) path: String,
    /// What was chosen and why.
    pub(super) note: String,
    /// As it said itself, inside a sandbox.
    pub(super) version: Option<String>,
}

/// One run.
pub(super) struct Attempt {
    pub(super) what: &'static str,
    pub(super) program: String,
    pub(super) result: Result<Outcome, Problem>,
    /// With everything that building and ending the sandbox took.
    pub(super) took: Duration,
}

struct Discard;

impl Sink for Discard {
    fn stdout(&mut self, _: &[u8]) {}
    fn stderr(&mut self, _: &[u8]) {}
}

impl Probe {
    pub(super) fn of_this_host(home: &Path) -> Probe {
        let host = Host::of_this_process();
        let settings = Settings { minimum: Level::LandlockOnly, home: home.into() };
        let bench = Bench { sandbox: Sandbox::open(&settings).map_err(Tried::of) };
        let commands = Language::ALL.map(|language| (language, interpreter(&host, language)));
        let (run, trial) = bench.last_run(&host, &commands);
        let facts = HostFacts::of_this_host(search(&trial));
        let diagnosis = diagnose(&facts, &trial);
        let found = |(language, command): (Language, Result<Command, lang::Error>)| Interpreter {
            language,
            found: command.map(|c| bench.usable(c)).map_err(|e| missing(&facts, language, &e)),
        };
        let languages = commands.map(found).into();
        Probe { facts, diagnosis, languages, run }
    }
}

/// With the command for this distribution.
fn missing(facts: &HostFacts, language: Language, error: &lang::Error) -> Problem {
    let command = host::install(facts, language);
    let fix = format!("{command}, or put one on PATH that every user can read and execute");
    Problem::not_found(error.to_string()).why(error.why()).fix(fix)
}

/// Looking for cgroups again is only worth it where the run had none.
fn search(trial: &Trial) -> CgroupSearch {
    let has = |layers: &[hotcell_types::LayerReport]| {
        layers.iter().any(|report| report.layer == Layer::CgroupMemory && report.active)
    };
    match trial {
        Trial::Ran { layers, .. } if has(layers) => CgroupSearch::Skip,
        _ => CgroupSearch::Search,
    }
}

/// The interpreter alone, without a script.
fn interpreter(host: &Host, language: Language) -> Result<Command, lang::Error> {
    let mut command = lang::script(host, language, OsStr::new(language.main_file()), &[])?;
    command.args.truncate(1);
    Ok(command)
}

fn with(command: &Command, args: &[&str]) -> Command {
    let mut command = command.clone();
    command.args.extend(args.iter().map(OsString::from));
    command
}

/// Where the runs take place, if anywhere.
struct Bench {
    sandbox: Result<Sandbox, Box<Tried>>,
}

impl Bench {
    /// Hello from Python, or `true` where there is none.
    fn last_run(
        &self,
        host: &Host,
        commands: &[(Language, Result<Command, lang::Error>)],
    ) -> (Attempt, Trial) {
        let python = commands.iter().find(|(language, _)| *language == Language::Python);
        let (what, command) = match python {
            Some((_, Ok(python))) => ("hello from Python", Ok(with(python, &["-c", HELLO]))),
            _ => ("true", lang::command(host, OsStr::new("true"), &[])),
        };
        let command = match command {
            Ok(command) => command,
            Err(error) => return nothing_to_run(what, error),
        };
        let program = command.program.display().to_string();
        let begun = Instant::now();
        let (result, trial) = match self.run(command) {
            Ok(outcome) => {
                let trial = Trial::from(&outcome);
                (Ok(outcome), trial)
            }
            Err(tried) => (Err(tried.problem), tried.trial),
        };
        (Attempt { what, program, result, took: begun.elapsed() }, trial)
    }

    fn usable(&self, command: Command) -> Usable {
        let path = command.program.display().to_string();
        let note = command.note.clone().unwrap_or_default();
        let version = self.run(with(&command, &["--version"])).ok().and_then(|o| version(&o));
        Usable { path, note, version }
    }

    fn run(&self, command: Command) -> Result<Outcome, Box<Tried>> {
        let sandbox = self.sandbox.as_ref().map_err(Clone::clone)?;
        let running = sandbox.start(job(command)).map_err(Tried::of)?;
        running.wait(&mut Discard, None).map_err(Tried::of)
    }
}

/// A refusal, both as it is shown and as it is judged.
#[derive(Clone)]
struct Tried {
    trial: Trial,
    problem: Problem,
}

impl Tried {
    fn of(refusal: Refusal) -> Box<Tried> {
        Box::new(Tried { trial: Trial::from(&refusal), problem: Problem::from(refusal) })
    }
}

fn nothing_to_run(what: &'static str, error: lang::Error) -> (Attempt, Trial) {
    let trial = Trial::Refused { layer: None, why: error.why(), fix: error.fix() };
    let result = Err(Problem::from(error));
    (Attempt { what, program: String::new(), result, took: Duration::ZERO }, trial)
}

fn job(command: Command) -> Job {
    let limits = Limits { timeout: MOST_TIME, ..Template::DEFAULT.limits };
    let mut env: BTreeMap<OsString, OsString> = lang::runtime_env(&limits);
    env.insert("PATH".into(), lang::search_path(&command));
    Job {
        command,
        env,
        stdin: Stdin::Empty,
        inputs: vec![],
        working_copy: None,
        limits,
        profile: Profile::Standard,
        network: Network::None,
    }
}

/// The first line that has a number: `Python 3.11.2`, `v18.19.0`, `GNU bash, version 5.2.15 …`.
fn version(outcome: &Outcome) -> Option<String> {
    let text = String::from_utf8_lossy(&outcome.stdout.bytes);
    let line = text.lines().find(|line| line.contains(|c: char| c.is_ascii_digit()))?;
    let word = line
        .split([' ', ',', '('])
        .find(|word| word.trim_start_matches('v').starts_with(|c: char| c.is_ascii_digit()))?;
    Some(word.trim_start_matches('v').chars().take(MAX_VERSION).collect())
}

#[cfg(test)]
mod tests {
    use hotcell_types::{Output, Status};

    use super::*;
    use crate::run::report::tests::outcome;

    #[test]
    fn the_version_is_the_first_number_of_the_first_line_that_has_one() {
        for (text, expected) in [
            ("Python 3.11.2\n", Some("3.11.2")),
            ("v18.19.0\n", Some("18.19.0")),
            ("GNU bash, version 5.2.15(1)-release (x86_64-pc-linux-gnu)\n", Some("5.2.15")),
            ("hello\n", None),
            ("", None),
        ] {
            let mut said = outcome(Status::Success);
            said.stdout = Output { bytes: text.into(), total: 0, truncated: false };
            assert_eq!(version(&said).as_deref(), expected, "{text}");
        }
    }
}
