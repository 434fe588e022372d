//! `hotcell env`: packages that runs can use, installed once and kept by name.

use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use clap::ValueEnum;
use hotcell_api::Called;
use hotcell_engine::env::{
    CREATE, Create, Environment, LIST, Listed, Preset, REMOVE, Removed, SHOW,
};
use hotcell_engine::run::LimitWords;
use hotcell_engine::{Attached, MOST_REQUIREMENTS, Sink, new_id, requirement_lines};
use hotcell_request::{Arguments, Request};
use hotcell_sandbox::cause;
use hotcell_types::{Bytes, Count, SomeLimits, Span, Status};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::kernel::Kernel;
use crate::print::{self, harmless};
use crate::problem::{self, Problem};
use crate::run::report::size;
use crate::signals::Signals;
use crate::{exit, home, tool, wait};

/// How often it is looked whether somebody wants the end.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Most characters of a line that says how it goes on.
const LINE_MOST: usize = 76;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Makes an environment from packages
    ///
    /// This host's pip downloads wheels from wherever it is configured to, and nothing of them is executed
    /// outside a sandbox: a package without a wheel is refused. A sandbox installs them; what it made is kept
    /// read-only and known by its content. Then `hotcell run --env NAME FILE` can import them.
    Create(Box<CreateArgs>),
    /// Lists environments
    Ls {
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Tells what is in an environment
    Show {
        name: String,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Takes the name of an environment away
    ///
    /// Its files go as soon as no other name and no run needs them.
    Rm {
        name: String,
        #[command(flatten)]
        asking: wait::AskArgs,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct CreateArgs {
    /// Lower-case letters and digits, with `.`, `_` and `-` between them
    name: String,
    /// A file of packages by name, with versions and markers; no options, paths or addresses
    #[arg(
        long,
        value_name = "REQUIREMENTS",
        required_unless_present = "preset",
        conflicts_with = "preset"
    )]
    python: Option<PathBuf>,
    /// `python` is the interpreter alone; `data` is numpy, pandas and matplotlib
    #[arg(long, value_name = "NAME")]
    preset: Option<PresetArg>,
    /// If the name stands for another content, have it stand for this one
    #[arg(long)]
    replace: bool,
    #[command(flatten)]
    asking: wait::AskArgs,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    limits: LimitArgs,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum PresetArg {
    Python,
    Data,
}

#[derive(Debug, clap::Args)]
#[command(
    next_help_heading = "Limits of the sandbox that installs them, whose files live in its memory"
)]
struct LimitArgs {
    /// Memory, its files included [default: 2GiB]
    #[arg(long, value_name = "SIZE")]
    mem: Option<Bytes>,
    /// Bytes of the environment and of what is downloaded for it [default: 1GiB]
    #[arg(long, value_name = "SIZE")]
    disk: Option<Bytes>,
    /// Files and directories [default: 100000]
    #[arg(long, value_name = "N")]
    files: Option<Count>,
    /// Wall time of all of it [default: 30m]
    #[arg(long, value_name = "TIME")]
    timeout: Option<Span>,
}

pub(crate) fn main(command: Command) -> u8 {
    let (done, json) = match command {
        Command::Create(args) => {
            let json = args.json;
            (create(*args), json)
        }
        Command::Ls { json } => (list(json), json),
        Command::Show { name, json } => (show(&name, json), json),
        Command::Rm { name, asking, json } => (remove(&name, &asking, json), json),
    };
    done.unwrap_or_else(|problem| problem::report(&problem, json))
}

fn create(args: CreateArgs) -> Result<u8, Problem> {
    let CreateArgs { name, python, preset, replace, asking, json, limits } = args;
    let limits = SomeLimits {
        memory: limits.mem,
        disk: limits.disk,
        files: limits.files,
        timeout: limits.timeout,
        ..SomeLimits::default()
    };
    let python = match &python {
        Some(file) => requirements(file)?,
        None => Vec::new(),
    };
    let preset = preset.map(|preset| match preset {
        PresetArg::Python => Preset::Python,
        PresetArg::Data => Preset::Data,
    });
    let create = Create { name, python, preset, replace, limits: LimitWords::of(&limits) };
    let arguments = serde_json::to_value(&create)
        .map_err(|error| Problem::error("the call cannot be written").why(error.to_string()))?;
    let mut request = request(CREATE, arguments)?;
    request.timeout = limits.timeout;
    request.ask = asking.ask;
    let signals = Signals::catch().map_err(failed("catching signals"))?;
    let kernel = Kernel::open(None)?;
    let mut progress = Progress::new(json);
    let (called, signal) = cancellable(&kernel, request, &mut progress, signals)?;
    progress.clear();
    let code = finish::<Environment>(&kernel, &called, &asking, json, |environment| {
        let Environment { name, interpreter_version, packages, files, bytes, .. } = environment;
        let (count, bytes) = (packages.len(), size(*bytes));
        format!("{name}: Python {interpreter_version}, {count} packages, {files} files, {bytes}\n")
    })?;
    let code = match signal.filter(|_| called.status == Status::Cancelled) {
        Some(signal) => exit::SIGNAL.saturating_add(signal),
        None => code,
    };
    Ok(kernel.close(code))
}

/// What a file asks for. What of it cannot be asked for is told by whoever carries it out.
fn requirements(path: &Path) -> Result<Vec<String>, Problem> {
    let unusable = |why: String| {
        let what = format!("`{}` cannot be read", path.display());
        Problem::invalid(what).why(why).fix("give a text file with a package on each line")
    };
    let found = std::fs::metadata(path).map_err(|error| unusable(cause(&error)))?;
    if !found.is_file() {
        return Err(unusable("it is not a regular file".into()));
    }
    let file = File::open(path).map_err(|error| unusable(cause(&error)))?;
    let mut text = String::new();
    let mut file = file.take(MOST_REQUIREMENTS + 1);
    file.read_to_string(&mut text).map_err(|error| unusable(cause(&error)))?;
    if text.len() as u64 > MOST_REQUIREMENTS {
        return Err(unusable(format!("it has more than {}", size(MOST_REQUIREMENTS))));
    }
    let lines = requirement_lines(&text);
    if lines.is_empty() {
        let problem = unusable("it names no package".into());
        return Err(problem.fix("name some, or take `--preset python` for the interpreter alone"));
    }
    Ok(lines)
}

/// Makes the call, and ends it with the first signal.
fn cancellable(
    kernel: &Kernel,
    request: Request,
    progress: &mut Progress,
    signals: Signals,
) -> Result<(Called, Option<u8>), Problem> {
    let id = new_id();
    let (interrupt, is_over) = (Arc::<AtomicBool>::default(), AtomicBool::new(false));
    let told = Arc::clone(&interrupt);
    let listen = move || {
        told.store(true, Ordering::SeqCst);
        true
    };
    let signals = signals.listen(listen, || ()).map_err(failed("starting a thread"))?;
    let attached = Attached { id: Some(id), sink: Some(progress), ..Attached::default() };
    let called = thread::scope(|scope| {
        let watching = scope.spawn(|| {
            while !is_over.load(Ordering::SeqCst) {
                if interrupt.load(Ordering::SeqCst) && kernel.cancel(id) {
                    return;
                }
                thread::park_timeout(LOOK_EVERY);
            }
        });
        let called = kernel.call(request, attached);
        is_over.store(true, Ordering::SeqCst);
        watching.thread().unpark();
        called
    });
    Ok((called?, signals.first()))
}

fn list(json: bool) -> Result<u8, Problem> {
    let kernel = Kernel::open(None)?;
    let called = kernel.call(request(LIST, json!({}))?, Attached::default())?;
    let code = shown::<Listed>(&called, json, table);
    Ok(kernel.close(code))
}

fn table(listed: &Listed) -> String {
    let row = |name: &str, version: &str, packages: &str, size: &str, made: &str| {
        format!("{name:<20} {version:<8} {packages:>8} {size:>10}  {made}\n")
    };
    let mut text = row("NAME", "PYTHON", "PACKAGES", "SIZE", "CREATED");
    for environment in &listed.environments {
        let Environment { name, interpreter_version, packages, .. } = environment;
        let Environment { bytes, created_ns, present, .. } = environment;
        let size = if *present { size(*bytes) } else { "not there".into() };
        let made = home::moment(*created_ns);
        text.push_str(&row(name, interpreter_version, &packages.len().to_string(), &size, &made));
    }
    text
}

fn show(name: &str, json: bool) -> Result<u8, Problem> {
    let kernel = Kernel::open(None)?;
    let called = kernel.call(request(SHOW, json!({ "name": name }))?, Attached::default())?;
    let code = shown::<Environment>(&called, json, details);
    Ok(kernel.close(code))
}

fn details(environment: &Environment) -> String {
    let Environment { name, language, sha256, interpreter, platform, .. } = environment;
    let version = &environment.interpreter_version;
    let made = home::moment(environment.created_ns);
    let mut text = format!(
        "name:         {name}\nsha256:       {sha256}\ninterpreter:  {} ({language} {version}, {})\n\
         created:      {made}\nsize:         {} in {} files{}\nrequirements: {}\npackages:\n",
        harmless(interpreter),
        harmless(platform),
        size(environment.bytes),
        environment.files,
        if environment.present { "" } else { ", which are not there" },
        harmless(&environment.requirements.join(", ")),
    );
    for package in &environment.packages {
        text.push_str(&format!("  {} {}\n", harmless(&package.name), harmless(&package.version)));
    }
    text
}

fn remove(name: &str, asking: &wait::AskArgs, json: bool) -> Result<u8, Problem> {
    let kernel = Kernel::open(None)?;
    let mut request = request(REMOVE, json!({ "name": name }))?;
    request.ask = asking.ask;
    let called = kernel.call(request, Attached::default())?;
    let code =
        finish::<Removed>(&kernel, &called, asking, json, |Removed { name, removed, .. }| {
            match removed {
                true => format!("{name}: removed\n"),
                false => format!("{name}: its name is removed, its files are still used\n"),
            }
        })?;
    Ok(kernel.close(code))
}

pub(crate) fn request(tool: &str, arguments: Value) -> Result<Request, Problem> {
    let name =
        tool.parse().map_err(|_| Problem::error(format!("the tool `{tool}` has no name")))?;
    Ok(Request::new(name, Arguments::Value(arguments)))
}

/// What came of a call that somebody may have to agree to.
pub(crate) fn finish<T: DeserializeOwned>(
    kernel: &Kernel,
    called: &Called,
    asking: &wait::AskArgs,
    json: bool,
    words: impl FnOnce(&T) -> String,
) -> Result<u8, Problem> {
    match wait::item_of(called).filter(|_| !asking.no_wait) {
        Some(item) => {
            wait::announce(called);
            wait::to_the_end(kernel, item, json)
        }
        None => Ok(shown(called, json, words)),
    }
}

/// In words, or as a document; or what went wrong.
pub(crate) fn shown<T: DeserializeOwned>(
    called: &Called,
    json: bool,
    words: impl FnOnce(&T) -> String,
) -> u8 {
    let Some(value) = called.value.as_ref().filter(|_| called.status == Status::Success) else {
        let code = tool::exit_of(called.status);
        return match called.problems.first() {
            Some(problem) => {
                let told = problem::report(&problem.clone().into(), json);
                match called.status {
                    Status::Timeout | Status::Oom | Status::Limit | Status::Cancelled => code,
                    _ => told,
                }
            }
            None => tool::tell(called, json),
        };
    };
    if json {
        let mut document = value.clone();
        if let Some(members) = document.as_object_mut() {
            members.insert("version".into(), 1.into());
        }
        return print::data(&print::document(&document));
    }
    match serde_json::from_value(value.clone()) {
        Ok(read) => print::data(&words(&read)),
        Err(error) => {
            let problem = Problem::error("the answer cannot be read").why(error.to_string());
            problem::report(&problem, json)
        }
    }
}

fn failed(doing: &'static str) -> impl Fn(io::Error) -> Problem {
    move |error| Problem::error(format!("{doing} failed")).why(cause(&error))
}

/// How it goes on, on one line of a terminal.
struct Progress {
    is_shown: bool,
}

impl Progress {
    fn new(json: bool) -> Progress {
        Progress { is_shown: !json && io::stderr().is_terminal() }
    }

    fn clear(&self) {
        if self.is_shown {
            print::to_people("\r\x1b[K");
        }
    }
}

impl Sink for Progress {
    fn stdout(&mut self, _: &[u8]) {}

    fn stderr(&mut self, chunk: &[u8]) {
        if !self.is_shown {
            return;
        }
        let text = String::from_utf8_lossy(chunk);
        let Some(line) = text.lines().rfind(|line| !line.trim().is_empty()) else { return };
        let line: String = harmless(line).chars().take(LINE_MOST).collect();
        print::to_people(&format!("\r\x1b[K{line}"));
    }
}
