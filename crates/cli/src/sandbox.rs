//! `hotcell sandbox`: sandboxes that stay, with programs that run in them one after the other.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use hotcell_api::Called;
use hotcell_engine::exec::{EXEC, Exec, Language};
use hotcell_engine::run::{LimitWords, Word};
use hotcell_engine::sandboxes::{
    APPLY, CREATE, Create, DIFF, GET, Given, LIST, Listed, PAUSE, PUT, Put, REMOVE, RESTART,
    RESUME, SHOW, STOP, Sandbox, State, Taken,
};
use hotcell_engine::{Attached, Attachment, Changes, Way};
use hotcell_sandbox::cause;
use hotcell_types::{Bytes, CallId, Count, Cpus, SomeLimits, Span, Template};
use serde_json::{Value, json};

use crate::config::Config;
use crate::env::{finish, request, shown};
use crate::kernel::{Begun, Kernel};
use crate::print::{self, harmless};
use crate::problem::{self, Problem};
use crate::run::report::size;
use crate::{artifact, home, resident, run, wait};

/// Most bytes of a file that is put into a sandbox.
const PUT_MOST: u64 = 256 << 20;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Makes a sandbox that stays, and prints its id
    ///
    /// Its files are there for each program that runs in it, until it is stopped, nobody has used it for a
    /// while, or its lifetime is over. It stays as long as a hotcell serves this home: if none does, one is
    /// started (`hotcell resident start`), which does not end while there are sandboxes. It has no network.
    Create(Box<CreateArgs>),
    /// Runs a program in a sandbox: what it writes stays, what it started ends with it
    ///
    /// Its working directory is /work. Output appears as it is printed, and its exit status is that of this
    /// command.
    Exec(Box<ExecArgs>),
    /// Copies a file into a sandbox, or out of one
    ///
    /// One of both is a path in a sandbox, `ID:PATH`, relative to its working directory. What is taken out is
    /// in the ledger as well, and a file that is there on the host is not written over without --force.
    Cp(CpArgs),
    /// Shows what was changed since the workspace was copied into a sandbox
    Diff(OneArgs),
    /// Takes over into the workspace what was changed in a sandbox, if the policy allows every single change
    Apply(OneArgs),
    /// Stops every program of a sandbox where it stands
    Pause(OneArgs),
    /// Lets them go on
    Resume(OneArgs),
    /// Makes a sandbox anew, as it was at first; its files are gone
    Restart(OneArgs),
    /// Ends every program of a sandbox, and removes it with its files
    Stop(OneArgs),
    /// Stops a sandbox and forgets how it was made
    Rm(OneArgs),
    /// Lists sandboxes
    Ls {
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Tells how a sandbox was made, and what it uses
    #[command(alias = "stats")]
    Inspect(OneArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct OneArgs {
    /// The sandbox, by its id
    id: String,
    #[command(flatten)]
    asking: wait::AskArgs,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct CreateArgs {
    /// A language whose interpreter its programs find [default: python and javascript, as far as they are
    /// there]
    #[arg(long, value_name = "LANGUAGE")]
    lang: Vec<String>,
    /// Begin with a copy of this directory, which it can be compared with
    #[arg(long, value_name = "DIR")]
    workspace: Option<PathBuf>,
    /// Limits and seccomp profile to start from [default: code-executor]
    #[arg(long, value_name = "NAME")]
    template: Option<Template>,
    /// How long nobody uses it before it is stopped [default: 30m]
    #[arg(long, value_name = "TIME")]
    idle: Option<Span>,
    /// How long it stays at most [default: 8h]
    #[arg(long, value_name = "TIME")]
    lifetime: Option<Span>,
    #[command(flatten)]
    asking: wait::AskArgs,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    limits: LimitArgs,
}

#[derive(Debug, clap::Args)]
#[command(
    next_help_heading = "Limits for everything in it together (the defaults are those of the template)"
)]
struct LimitArgs {
    /// Memory, its files included
    #[arg(long, value_name = "SIZE")]
    mem: Option<Bytes>,
    /// Share of processors, such as 0.5
    #[arg(long, value_name = "N")]
    cpu: Option<Cpus>,
    /// Processes and threads at one time
    #[arg(long, value_name = "N")]
    pids: Option<Count>,
    /// Bytes in /work and /tmp together
    #[arg(long, value_name = "SIZE")]
    disk: Option<Bytes>,
    /// Files and directories in /work and /tmp together
    #[arg(long, value_name = "N")]
    files: Option<Count>,
    /// Wall time of a program that asks for none
    #[arg(long, value_name = "TIME")]
    timeout: Option<Span>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ExecArgs {
    /// The sandbox, by its id
    id: String,
    /// The program and its arguments
    #[arg(last = true, value_name = "COMMAND", required_unless_present = "code")]
    command: Vec<OsString>,
    /// Code in place of a command
    #[arg(short = 'c', long, value_name = "CODE", requires = "lang", conflicts_with = "command")]
    code: Option<String>,
    /// Language of the code
    #[arg(long, value_name = "LANGUAGE", requires = "code")]
    lang: Option<LanguageArg>,
    /// A variable of the environment
    #[arg(short = 'e', long, value_name = "KEY=VALUE")]
    env: Vec<OsString>,
    /// A file that it reads as standard input; `-` is that of this command
    #[arg(long, value_name = "FILE")]
    stdin: Option<PathBuf>,
    /// How long it may take [default: as the sandbox was made]
    #[arg(long, value_name = "TIME")]
    timeout: Option<Span>,
    /// Bytes kept of stdout, and of stderr
    #[arg(long, value_name = "SIZE")]
    max_output: Option<Bytes>,
    #[command(flatten)]
    asking: wait::AskArgs,
    /// Print one JSON document, as `hotcell run --json` does
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum LanguageArg {
    #[value(alias = "py")]
    Python,
    #[value(alias = "js")]
    Javascript,
    #[value(alias = "sh")]
    Shell,
}

#[derive(Debug, clap::Args)]
pub(crate) struct CpArgs {
    /// What to copy
    from: String,
    /// Where to; a path that ends with `/` is a directory
    to: String,
    /// Write over a file of the host that is there
    #[arg(long)]
    force: bool,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub(crate) fn main(command: Command) -> u8 {
    let (done, json) = match command {
        Command::Create(args) => {
            let json = args.json;
            (create(*args), json)
        }
        Command::Exec(args) => {
            let json = args.json;
            (exec(*args), json)
        }
        Command::Cp(args) => {
            let json = args.json;
            (copy(&args), json)
        }
        Command::Ls { json } => (list(json), json),
        Command::Inspect(args) => (about(SHOW, &args, details), args.json),
        Command::Pause(args) => (about(PAUSE, &args, state), args.json),
        Command::Resume(args) => (about(RESUME, &args, state), args.json),
        Command::Restart(args) => (about(RESTART, &args, state), args.json),
        Command::Stop(args) => (about(STOP, &args, state), args.json),
        Command::Rm(args) => {
            (about(REMOVE, &args, |it: &Sandbox| format!("{}: removed\n", it.id)), args.json)
        }
        Command::Diff(args) => (about(DIFF, &args, changes), args.json),
        Command::Apply(args) => (about(APPLY, &args, changes), args.json),
    };
    done.unwrap_or_else(|problem| problem::report(&problem, json))
}

fn create(args: CreateArgs) -> Result<u8, Problem> {
    let CreateArgs { lang, workspace, template, idle, lifetime, asking, json, limits } = args;
    let LimitArgs { mem, cpu, pids, disk, files, timeout } = limits;
    let limits =
        SomeLimits { memory: mem, cpu, pids, disk, files, timeout, ..SomeLimits::default() };
    let create = Create {
        languages: lang,
        workspace: workspace.is_some(),
        template: template.map(|template| template.name.to_owned()),
        limits: LimitWords::of(&limits),
        idle: idle.map(|idle| idle.to_string()),
        lifetime: lifetime.map(|lifetime| lifetime.to_string()),
    };
    let mut request = request(CREATE, arguments(&create)?)?;
    request.ask = asking.ask;
    let kernel = staying(workspace)?;
    let called = kernel.call(request, Attached::default())?;
    let code = finish::<Sandbox>(&kernel, &called, &asking, json, |made| format!("{}\n", made.id))?;
    Ok(kernel.close(code))
}

/// Whoever serves this home; if nobody does, somebody from now on.
fn staying(workspace: Option<PathBuf>) -> Result<Kernel, Problem> {
    let kernel = Kernel::open(workspace.clone())?;
    if matches!(kernel, Kernel::There(_)) {
        return Ok(kernel);
    }
    kernel.close(0);
    let code = resident::start_one()?;
    if code != 0 {
        return Err(Problem::error("no hotcell that stays could be started")
            .why("it said why above")
            .fix("`hotcell resident serve` tries the same in the foreground"));
    }
    print::to_people(
        "hotcell: started one that stays with the sandbox; `hotcell resident stop` ends both\n",
    );
    Kernel::open(workspace)
}

fn exec(args: ExecArgs) -> Result<u8, Problem> {
    let ExecArgs { id, command, code, lang, env, stdin, timeout, max_output, asking, json } = args;
    let config = Config::load()?;
    let options = home::options(&config, None);
    let begun = Begun::begin();
    let template = Template::DEFAULT.limits;
    let stdin = run::stdin(stdin.as_deref(), false, template.disk)?;
    let mut variables = BTreeMap::new();
    for variable in env {
        let (name, value) = run::variable(&variable)?;
        variables.insert(name, value);
    }
    let exec = Exec {
        sandbox: id,
        command: command.into_iter().map(Word::new).collect(),
        language: lang.map(|language| match language {
            LanguageArg::Python => Language::Python,
            LanguageArg::Javascript => Language::JavaScript,
            LanguageArg::Shell => Language::Shell,
        }),
        code,
        env: variables,
        text: None,
        stdin: stdin.as_ref().map(hotcell_engine::Input::described),
        timeout: timeout.map(|timeout| timeout.to_string()),
        output: max_output.map(|most| most.to_string()),
    };
    let mut request = request(EXEC, arguments(&exec)?)?;
    request.timeout = timeout;
    request.ask = asking.ask;
    let asked = SomeLimits { timeout, output: max_output, ..SomeLimits::default() };
    run::in_a_sandbox_that_stays(
        request,
        (options, &config),
        (stdin, asked.over(template)),
        (begun, asking.no_wait),
        json,
    )
}

/// One side of a copy.
enum Side<'a> {
    Host(&'a Path),
    Inside { id: &'a str, path: &'a str },
}

impl Side<'_> {
    fn of(text: &str) -> Side<'_> {
        match text.split_once(':') {
            Some((id, path)) if id.parse::<CallId>().is_ok() => Side::Inside { id, path },
            _ => Side::Host(Path::new(text)),
        }
    }
}

fn copy(args: &CpArgs) -> Result<u8, Problem> {
    match (Side::of(&args.from), Side::of(&args.to)) {
        (Side::Host(file), Side::Inside { id, path }) => put(file, id, path, args.json),
        (Side::Inside { id, path }, Side::Host(file)) => get(id, path, file, args),
        _ => Err(Problem::invalid("it is not clear what to copy where")
            .why("one of both has to be a path in a sandbox, and the other one of the host")
            .fix("write `hotcell sandbox cp FILE ID:PATH`, or `hotcell sandbox cp ID:PATH FILE`")),
    }
}

fn put(file: &Path, id: &str, path: &str, json: bool) -> Result<u8, Problem> {
    let unusable = |why: String| {
        let what = format!("`{}` cannot be copied", file.display());
        Problem::invalid(what)
            .why(why)
            .fix("give a regular file that can be read; of a directory, an archive")
    };
    let own = || file.file_name().map(|name| name.to_string_lossy().into_owned());
    let name = if path.is_empty() || path.ends_with('/') {
        let own = own().ok_or_else(|| unusable("it has no name".into()))?;
        format!("{path}{own}")
    } else {
        path.to_owned()
    };
    let name = name.trim_start_matches("./").to_owned();
    let found = std::fs::metadata(file).map_err(|error| unusable(cause(&error)))?;
    if !found.is_file() {
        return Err(unusable("it is not a regular file".into()));
    }
    let opened = File::open(file).map_err(|error| unusable(cause(&error)))?;
    let attachment = Attachment::of_file(name, opened, PUT_MOST);
    let attachment = attachment.map_err(|error| unusable(cause(&error)))?;
    let put = Put { sandbox: id.to_owned(), files: vec![attachment.described()] };
    let kernel = Kernel::open(None)?;
    let attached = Attached { files: vec![attachment], ..Attached::default() };
    let called = kernel.call(request(PUT, arguments(&put)?)?, attached)?;
    let code = shown::<Taken>(&called, json, |_| String::new());
    Ok(kernel.close(code))
}

fn get(id: &str, path: &str, file: &Path, args: &CpArgs) -> Result<u8, Problem> {
    let name = Path::new(path).file_name().map(OsString::from).unwrap_or_default();
    let is_directory = file.is_dir();
    let file = if is_directory { file.join(name) } else { file.to_owned() };
    if !args.force && std::fs::symlink_metadata(&file).is_ok() {
        return Err(Problem::invalid(format!("`{}` is there already", file.display()))
            .fix("give another file, or --force to write over it"));
    }
    let kernel = Kernel::open(None)?;
    let asked = json!({ "sandbox": id, "path": path.trim_start_matches("./") });
    let called = kernel.call(request(GET, asked)?, Attached::default())?;
    let code = match called.artifacts.first().filter(|_| called.value.is_some()) {
        None => shown::<Given>(&called, args.json, |_| String::new()),
        Some(artifact) => {
            artifact::save(&artifact.id, |content| written(&file, args.force, content))?;
            shown::<Given>(&called, args.json, |_| String::new())
        }
    };
    Ok(kernel.close(code))
}

/// Beside, and under its name when it is whole.
fn written(
    path: &Path,
    force: bool,
    fill: &mut dyn FnMut(&mut dyn Write) -> Result<(), Problem>,
) -> Result<(), Problem> {
    let failed = |error: std::io::Error| {
        Problem::error(format!("`{}` cannot be written", path.display())).why(cause(&error))
    };
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}.part", std::process::id()));
    let beside = PathBuf::from(beside);
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&beside)
        .map_err(failed)?;
    let filled = fill(&mut file).and_then(|()| {
        drop(file);
        match force {
            true => std::fs::rename(&beside, path).map_err(failed),
            // Nothing that came there meanwhile is written over.
            false => std::fs::hard_link(&beside, path).map_err(failed),
        }
    });
    if !force || filled.is_err() {
        std::fs::remove_file(&beside).ok();
    }
    filled
}

fn about<T: serde::de::DeserializeOwned>(
    tool: &str,
    args: &OneArgs,
    words: impl FnOnce(&T) -> String,
) -> Result<u8, Problem> {
    let kernel = Kernel::open(None)?;
    let mut request = request(tool, json!({ "sandbox": args.id }))?;
    request.ask = args.asking.ask;
    let called = kernel.call(request, Attached::default())?;
    let code = finish(&kernel, &called, &args.asking, args.json, words)?;
    Ok(kernel.close(code))
}

fn list(json: bool) -> Result<u8, Problem> {
    let kernel = Kernel::open(None)?;
    let called: Called = kernel.call(request(LIST, json!({}))?, Attached::default())?;
    let code = shown::<Listed>(&called, json, table);
    Ok(kernel.close(code))
}

fn table(listed: &Listed) -> String {
    let row = |id: &str, state: &str, running: &str, programs: &str, memory: &str, made: &str| {
        format!("{id:<26} {state:<9} {running:>7} {programs:>8} {memory:>10}  {made}\n")
    };
    let mut text = row("ID", "STATE", "RUNNING", "PROGRAMS", "MEMORY", "CREATED");
    for one in &listed.sandboxes {
        let memory = one.usage.as_ref().and_then(|usage| usage.memory_bytes);
        text.push_str(&row(
            &one.id,
            state_name(one.state),
            &one.running.to_string(),
            &one.programs.to_string(),
            &memory.map_or("-".into(), size),
            &home::moment(one.created_ns),
        ));
    }
    text
}

fn state_name(state: State) -> &'static str {
    match state {
        State::Creating => "creating",
        State::Running => "running",
        State::Paused => "paused",
        State::Stopping => "stopping",
        State::Cleanup => "cleanup",
        State::Destroyed => "destroyed",
        State::Failed => "failed",
    }
}

fn state(sandbox: &Sandbox) -> String {
    format!("{}: {}\n", sandbox.id, state_name(sandbox.state))
}

fn details(sandbox: &Sandbox) -> String {
    let Sandbox { id, template, languages, idle, lifetime, running, programs, .. } = sandbox;
    let mut text = format!("id:         {id}\nstate:      {}\n", state_name(sandbox.state));
    if let Some(why) = &sandbox.why {
        text.push_str(&format!("why:        {}\n", harmless(why)));
    }
    let limits = &sandbox.limits;
    let said = |limit: &Option<String>| limit.clone().unwrap_or_default();
    text.push_str(&format!(
        "created:    {}\ntemplate:   {template}\nlanguages:  {}\nworkspace:  {}\nstays:      {idle} without \
         use, {lifetime} at most\nlimits:     memory {}, cpu {}, processes {}, disk {}, files {}\nprograms:   \
         {running} running, {programs} so far\n",
        home::moment(sandbox.created_ns),
        harmless(&languages.join(", ")),
        if sandbox.workspace { "a copy" } else { "none" },
        said(&limits.memory),
        said(&limits.cpu),
        said(&limits.pids),
        said(&limits.disk),
        said(&limits.files),
    ));
    if let Some(usage) = &sandbox.usage {
        let known = |bytes: Option<u64>| bytes.map_or("unknown".into(), size);
        text.push_str(&format!(
            "memory:     {} now, {} at most so far\nprocessor:  {}\ndisk:       {} in {} files\n",
            known(usage.memory_bytes),
            known(usage.peak_memory_bytes),
            usage.cpu_ms.map_or("unknown".into(), |ms| format!("{ms} ms")),
            size(usage.disk_bytes),
            usage.files,
        ));
    }
    text
}

fn changes(changes: &Changes) -> String {
    let mut text = String::new();
    for change in &changes.files {
        let way = match change.kind {
            Way::Added => "added",
            Way::Modified => "modified",
            Way::Deleted => "deleted",
        };
        text.push_str(&format!("{way:<9} {} ({})\n", harmless(&change.path), size(change.bytes)));
    }
    for skipped in &changes.skipped {
        text.push_str(&format!(
            "skipped   {}: {}\n",
            harmless(&skipped.path),
            harmless(&skipped.why)
        ));
    }
    if changes.left_out > 0 {
        text.push_str(&format!("and {} more\n", changes.left_out));
    }
    if text.is_empty() {
        text.push_str("nothing was changed\n");
    }
    text
}

fn arguments(of: &impl serde::Serialize) -> Result<Value, Problem> {
    serde_json::to_value(of)
        .map_err(|error| Problem::error("the call cannot be written").why(error.to_string()))
}
