//! `hotcell run`: from the command line to a [`Job`], and from its outcome to an exit status.

mod inputs;
mod live;
pub(crate) mod report;
mod signals;
mod target;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use hotcell_sandbox::lang::{self, Host, Language};
use hotcell_sandbox::{Job, Sandbox, Settings, Stdin, cause};
use hotcell_types::{Bytes, Count, Cpus, Limits, Outcome, Span, Template};

use crate::config::Config;
use crate::problem::{self, Problem};
use crate::{exit, print};
use inputs::OutputDir;
use live::{Live, Streams};
use signals::Signals;
use target::Target;

const USAGE: &str = "hotcell run [OPTIONS] FILE [ARGS]...
       hotcell run [OPTIONS] --lang LANG -c CODE [ARGS]...
       hotcell run [OPTIONS] --lang LANG - [ARGS]... < CODE
       hotcell run [OPTIONS] -- COMMAND [ARGS]...";

const EXAMPLES: &str = "Examples:
  hotcell run examples/hello.py
  hotcell run --mem 256MiB --timeout 10s script.py --its-own-option
  hotcell run --lang python -c 'print(6 * 7)'
  echo 'console.log(6 * 7)' | hotcell run --lang js
  hotcell run --input data.csv --output-dir out -- sort -o sorted.csv data.csv
  hotcell run --json -- ls -la";

/// Runs a file, code or a command in a sandbox
///
/// The program sees the system's read-only directories, its own empty /tmp, and its working
/// directory /work with the inputs in it. It has no network and nothing of the environment. Options
/// of hotcell come before FILE; everything after it belongs to the program. Ctrl-C ends the run with
/// everything in it; a second one does not wait for that.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = USAGE,
    after_help = exit::help(),
    after_long_help = format!("{EXAMPLES}\n\n{}", exit::help())
)]
pub(crate) struct Args {
    /// The file to run and its arguments; `-` reads the code from standard input; after `--`, a
    /// command and its arguments
    #[arg(value_name = "FILE", trailing_var_arg = true)]
    words: Vec<OsString>,

    /// Run CODE instead of a file
    #[arg(short = 'c', value_name = "CODE", requires = "lang", allow_hyphen_values = true)]
    code: Option<OsString>,

    #[arg(long, value_name = "LANG", help = lang_help(), value_parser = str::parse::<Language>)]
    lang: Option<Language>,

    #[arg(long, value_name = "NAME", help = template_help(), value_parser = str::parse::<Template>)]
    template: Option<Template>,

    /// Add a variable to the environment of the program; nothing is inherited
    #[arg(long, value_name = "KEY=VALUE")]
    env: Vec<OsString>,

    /// What the program reads on standard input; `-` passes on hotcell's own [default: nothing]
    #[arg(long, value_name = "FILE")]
    stdin: Option<PathBuf>,

    /// Copy a file into the working directory of the program
    #[arg(long, value_name = "FILE")]
    input: Vec<PathBuf>,

    /// Write the files that the program leaves in its working directory to DIR, which must be new
    /// or empty
    #[arg(long, value_name = "DIR")]
    output_dir: Option<PathBuf>,

    /// Print one JSON document when the run has ended, instead of its output (docs/result.md)
    #[arg(long)]
    json: bool,

    // Last, because their heading holds for everything that follows.
    #[command(flatten)]
    limits: LimitArgs,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Limits (the defaults are those of the template code-executor)")]
struct LimitArgs {
    #[arg(long, value_name = "SIZE", help = limit_help("Memory, its files included", DEFAULTS.memory))]
    mem: Option<Bytes>,

    #[arg(long, value_name = "N", help = limit_help("Share of processors, such as 0.5", DEFAULTS.cpu))]
    cpu: Option<Cpus>,

    #[arg(long, value_name = "N", help = limit_help("Processes and threads at one time", DEFAULTS.pids))]
    pids: Option<Count>,

    #[arg(long, value_name = "TIME", help = limit_help("Wall time", DEFAULTS.timeout))]
    timeout: Option<Span>,

    #[arg(long, value_name = "TIME", help = limit_help("Processor time of all processes together", "as --cpu and --timeout give"))]
    cpu_time: Option<Span>,

    #[arg(long, value_name = "SIZE", help = limit_help("Bytes in /work and /tmp together", DEFAULTS.disk))]
    disk: Option<Bytes>,

    #[arg(long, value_name = "N", help = limit_help("Files and directories in /work and /tmp together", DEFAULTS.files))]
    files: Option<Count>,

    #[arg(long, value_name = "N", help = limit_help("Open files of each process", DEFAULTS.open_files))]
    open_files: Option<Count>,

    #[arg(long, value_name = "SIZE", help = limit_help("Bytes kept of stdout, and of stderr", DEFAULTS.output))]
    max_output: Option<Bytes>,
}

const DEFAULTS: Limits = Template::DEFAULT.limits;

fn limit_help(what: &str, default: impl Display) -> String {
    format!("{what} [default: {default}]")
}

fn lang_help() -> String {
    format!("Language of the code, if its name does not tell: {}", lang::language_names())
}

fn template_help() -> String {
    let names = Template::BUILT_IN.map(|t| t.name).join(", ");
    format!(
        "Limits and seccomp profile to start from: {names} [default: {}]",
        Template::DEFAULT.name
    )
}

impl LimitArgs {
    fn over(&self, base: Limits) -> Limits {
        Limits {
            memory: self.mem.unwrap_or(base.memory),
            cpu: self.cpu.unwrap_or(base.cpu),
            pids: self.pids.unwrap_or(base.pids),
            timeout: self.timeout.unwrap_or(base.timeout),
            cpu_time: self.cpu_time.or(base.cpu_time),
            disk: self.disk.unwrap_or(base.disk),
            files: self.files.unwrap_or(base.files),
            open_files: self.open_files.unwrap_or(base.open_files),
            output: self.max_output.unwrap_or(base.output),
        }
    }
}

/// `KEY=VALUE`. No name is forbidden, not even LD_PRELOAD: the environment is the program's own,
/// hotcell's launcher does not read it, and every layer is on before the program starts.
fn variable(text: &OsStr) -> Result<(OsString, OsString), Problem> {
    let mut halves = text.as_bytes().splitn(2, |&b| b == b'=');
    match (halves.next(), halves.next()) {
        (Some(key), Some(value)) if !key.is_empty() => {
            Ok((OsString::from_vec(key.to_vec()), OsString::from_vec(value.to_vec())))
        }
        _ => Err(Problem::invalid(format!("`{}` does not suit `--env`", text.display()))
            .why("it is not KEY=VALUE with a key that is not empty")
            .fix("write `--env KEY=VALUE`; nothing is taken from hotcell's own environment")),
    }
}

pub(crate) fn main(args: Args, words: &[OsString]) -> u8 {
    let json = args.json;
    match prepare(args, words).and_then(|prepared| execute(prepared, json)) {
        Ok(code) => code,
        Err(problem) => problem::report(&problem, json),
    }
}

/// Everything checked and opened; nothing on the host has changed yet.
struct Prepared {
    settings: Settings,
    job: Job,
    output_dir: Option<PathBuf>,
}

fn prepare(args: Args, words: &[OsString]) -> Result<Prepared, Problem> {
    let config = Config::load()?;
    let template = args.template.as_ref().unwrap_or_else(|| config.template());
    let limits = args.limits.over(template.limits);
    let target = Target::of(&args, is_command(words, args.words.len()))?;
    let stdin = stdin(args.stdin.as_deref(), target.reads_stdin())?;
    let host = Host::of_this_process();
    let (command, script) = target.resolve(&host, args.lang)?;
    let inputs = inputs::open(script, &args.input, limits.disk)?;
    let mut env: BTreeMap<OsString, OsString> = lang::runtime_env(&limits);
    env.insert("PATH".into(), lang::search_path(&command));
    for text in &args.env {
        let (key, value) = variable(text)?;
        env.insert(key, value);
    }
    let job =
        Job { command, env, stdin, inputs, working_copy: None, limits, profile: template.profile };
    Ok(Prepared { settings: config.settings(), job, output_dir: args.output_dir })
}

/// Whether the last `count` words came after a `--`. clap has taken it away by now, and its own way
/// of telling the two apart does not go together with words that are left as they are.
fn is_command(words: &[OsString], count: usize) -> bool {
    let before = words.len().checked_sub(count + 1).and_then(|i| words.get(i));
    before.is_some_and(|word| word == "--")
}

fn stdin(file: Option<&std::path::Path>, is_code: bool) -> Result<Stdin, Problem> {
    match file {
        None => Ok(Stdin::Empty),
        Some(file) if file == "-" && is_code => {
            Err(Problem::invalid("standard input cannot be both the code and what it reads")
                .fix("give the code as a file or with -c, or what it reads as `--stdin FILE`"))
        }
        Some(file) if file == "-" => inputs::own_stdin().map(Stdin::From),
        Some(file) => match inputs::open_regular(file) {
            Ok(file) => Ok(Stdin::From(file)),
            Err(unusable) => Err(unusable
                .invalid()
                .fix(format!("give a regular file, or redirect: --stdin - < {}", file.display()))),
        },
    }
}

fn execute(prepared: Prepared, json: bool) -> Result<u8, Problem> {
    let Prepared { settings, job, output_dir } = prepared;
    let limits = job.limits;
    let signals = Signals::catch().map_err(failed("catching signals"))?;
    let outputs = output_dir.map(OutputDir::make).transpose()?;
    let sandbox = Sandbox::open(&settings)?;
    let running = sandbox.start(job)?;
    let (run, again) = (running.handle(), running.handle());
    let signals = signals.cancel(move || run.cancel()).map_err(failed("starting a thread"))?;
    let mut live = if json {
        Live::Silent
    } else {
        let streams = Streams::own().map_err(failed("taking stdout and stderr"))?;
        Live::new(streams, move || again.cancel())
    };
    let outcome = running.wait(&mut live, outputs.as_ref().map(OutputDir::path))?;
    let wants_files = outputs.is_some();
    if let Some(outputs) = outputs {
        outputs.keep();
    }
    let code = conclude(&outcome, &limits, live, signals.first(), json)?;
    // Who asked for files and gets fewer must be told.
    if wants_files && !json {
        print::to_people(&report::not_taken(&outcome.skipped));
    }
    Ok(code)
}

fn failed(doing: &'static str) -> impl Fn(io::Error) -> Problem {
    move |e| Problem::error(format!("{doing} failed")).why(cause(&e))
}

/// Prints what is left to print, and gives the number to exit with.
fn conclude(
    outcome: &Outcome,
    limits: &Limits,
    live: Live,
    signal: Option<u8>,
    json: bool,
) -> Result<u8, Problem> {
    let code = exit::of_outcome(outcome, signal);
    match live.finish() {
        Err(e) if e.kind() == ErrorKind::BrokenPipe => return Ok(exit::PIPE),
        Err(e) => return Err(Problem::not_written(&e)),
        Ok(()) => {}
    }
    if json {
        let written = print::data(&report::run_document(outcome));
        return Ok(if written == 0 { code } else { written });
    }
    let remarks = report::remarks(outcome, limits);
    if !remarks.is_empty() && report::ends_within_a_line(outcome) {
        print::to_people("\n");
    }
    print::to_people(&remarks);
    Ok(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_what_comes_after_two_dashes() {
        for (line, count, expected) in [
            ("hotcell run f.py", 1, false),
            ("hotcell run f.py -- x", 3, false),
            ("hotcell run -- ls -l", 2, true),
            ("hotcell run --json -- ls -- -l", 3, true),
            ("hotcell run --", 0, true),
            ("hotcell run", 0, false),
            ("hotcell", 5, false),
        ] {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            assert_eq!(is_command(&words, count), expected, "{line}");
        }
    }
}
