//! `hotcell run`: from the command line to a call of the tool `run`, and from its reply to an exit status.

mod inputs;
mod live;
pub(crate) mod report;
mod target;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use hotcell_api::Called;
use hotcell_engine::run::{LimitWords, Placeholder, Run, Word};
use hotcell_engine::{Attached, Attachment, Input, Options};
use hotcell_request::{Arguments, Request, Token, ToolName};
use hotcell_sandbox::lang::{self, Language};
use hotcell_sandbox::{Handle, cause};
use hotcell_socket::Canceller;
use hotcell_types::{
    Bytes, CallId, Count, Cpus, Limits, Outcome, SomeLimits, Span, Status, Template,
};
use hotcell_vault::SecretName;

use crate::config::Config;
use crate::kernel::{Begun, Kernel};
use crate::problem::{self, Problem};
use crate::signals::Signals;
use crate::{exit, gc, home, print, token, tool, wait};
use inputs::OutputDir;
use live::{Live, Streams};
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
/// directory /work with the inputs in it. It has nothing of the environment, and no network unless
/// `--network` gives it one. Options of hotcell come before FILE; everything after it belongs to the
/// program. Ctrl-C ends the run with everything in it; a second one does not wait for that.
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

    /// Add a variable to the environment of the program, of which nothing is inherited; or, without
    /// `=`, name an environment whose packages it can use (`hotcell env`)
    #[arg(long, value_name = "KEY=VALUE|NAME")]
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

    /// A file with the token that allows the run; `-` is standard input. There is no option for the
    /// token itself: whoever lists processes would see it
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    #[command(flatten)]
    asking: wait::AskArgs,

    /// Execute the program in any case: do not fork it from an interpreter that had started, which a process
    /// that stays keeps, and with which runs share some things (docs/warm.md)
    #[arg(long)]
    no_zygote: bool,

    /// Let the program reach the hosts that the policy allows (rules about `net.connect`), through the proxy
    /// that its environment names, and nothing else (docs/network.md)
    #[arg(long)]
    network: bool,

    /// Give the program a placeholder of a secret, in the variable of its name or in another. hotcell puts the
    /// value in, over TLS to the hosts that the secret is bound to (`hotcell secret`, docs/secrets.md)
    #[arg(long, value_name = "NAME[=VARIABLE]")]
    secret: Vec<String>,

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
        "Limits, network and seccomp profile to start from: {names} [default: {}]",
        Template::DEFAULT.name
    )
}

impl LimitArgs {
    /// As the call has them: only those that were given.
    fn words(&self) -> LimitWords {
        LimitWords::of(&SomeLimits {
            memory: self.mem,
            cpu: self.cpu,
            pids: self.pids,
            timeout: self.timeout,
            cpu_time: self.cpu_time,
            disk: self.disk,
            files: self.files,
            open_files: self.open_files,
            output: self.max_output,
        })
    }
}

/// What `--env` was given: variables, and at most one environment, whose name has no `=`.
fn environment(given: &[OsString]) -> Result<(Option<String>, BTreeMap<String, Word>), Problem> {
    let (variables, names): (Vec<_>, Vec<_>) =
        given.iter().partition(|text| text.as_bytes().contains(&b'='));
    let name = match names.as_slice() {
        [] => None,
        [name] => Some(name.to_str().map(str::to_owned).ok_or_else(|| {
            let problem = Problem::invalid(format!("`{}` does not suit `--env`", name.display()));
            problem.why("it is neither KEY=VALUE nor the name of an environment")
        })?),
        [_, second, ..] => {
            let what = format!("`--env {}` cannot be used as well", second.display());
            return Err(Problem::invalid(what)
                .why("a run has one environment")
                .fix("make one that has everything; variables are written KEY=VALUE"));
        }
    };
    let variables = variables.into_iter().map(|text| variable(text)).collect::<Result<_, _>>()?;
    Ok((name, variables))
}

/// `KEY=VALUE`. No name is forbidden, not even LD_PRELOAD: the environment is the program's own,
/// hotcell's launcher does not read it, and every layer is on before the program starts.
pub(crate) fn variable(text: &OsStr) -> Result<(String, Word), Problem> {
    let mut halves = text.as_bytes().splitn(2, |&b| b == b'=');
    let key = halves.next().and_then(|key| str::from_utf8(key).ok());
    match (key, halves.next()) {
        (Some(key), Some(value)) if !key.is_empty() => {
            Ok((key.into(), Word::new(OsString::from_vec(value.to_vec()))))
        }
        _ => Err(Problem::invalid(format!("`{}` does not suit `--env`", text.display()))
            .why("it is not KEY=VALUE with a key that is text and not empty")
            .fix("write `--env KEY=VALUE`; nothing is taken from hotcell's own environment")),
    }
}

/// What `--secret` was given. Whoever took it for `--env` has put a value there: it is not said again, and no call
/// is made of it that would be recorded.
fn placeholder(text: &str) -> Result<Placeholder, Problem> {
    let (name, variable) = match text.split_once('=') {
        Some((name, variable)) => (name, Some(variable)),
        None => (text, None),
    };
    let is_capital = |byte: u8| byte.is_ascii_uppercase() || byte == b'_';
    let is_variable = |variable: &str| {
        variable.bytes().next().is_some_and(is_capital)
            && variable.len() <= 64
            && variable.bytes().all(|byte| is_capital(byte) || byte.is_ascii_digit())
    };
    let fix =
        "give `--secret NAME` or `--secret NAME=VARIABLE`; `hotcell secret set` takes the value";
    if name.parse::<SecretName>().is_err() {
        let what = Problem::invalid("`--secret` has something that is not the name of a secret");
        return Err(what.why("a name has letters, digits and `_`, and no digit first").fix(fix));
    }
    if !variable.is_none_or(is_variable) {
        let what = "what stands behind `=` of `--secret` is not the name of a variable";
        let why = "it has capital letters, digits and `_`, and no digit first";
        return Err(Problem::invalid(what).why(why).fix(fix));
    }
    Ok(Placeholder { name: name.to_owned(), variable: variable.map(str::to_owned) })
}

pub(crate) fn main(args: Args, words: &[OsString], begun: Begun) -> u8 {
    let json = args.json;
    match prepare(args, words, &begun).and_then(|prepared| execute(prepared, begun, json)) {
        Ok(code) => code,
        Err(problem) => problem::report(&problem, json),
    }
}

/// Everything checked and read; nothing on the host has changed yet.
struct Prepared {
    options: Options,
    request: Request,
    limits: Limits,
    files: Vec<Attachment>,
    stdin: Option<Input>,
    output_dir: Option<PathBuf>,
    quota: Bytes,
    record_most: u64,
    no_wait: bool,
}

fn prepare(args: Args, words: &[OsString], begun: &Begun) -> Result<Prepared, Problem> {
    let config = Config::load()?;
    let options = home::options(&config, None);
    let template = args.template.as_ref().unwrap_or_else(|| config.template());
    let given = args.limits.words();
    // The same words, read the same way, as those of the call.
    let asked =
        given.read().map_err(|error| Problem::invalid(error.what).why(error.why).fix(error.fix))?;
    let limits = asked.over(config.ceiling().cap(template.limits));
    let target = Target::of(&args, is_command(words, args.words.len()))?;
    let takes_stdin = target.reads_stdin() || args.stdin.as_deref() == Some(Path::new("-"));
    let token = token(args.token_file.as_deref(), takes_stdin)?;
    let stdin = stdin(args.stdin.as_deref(), target.reads_stdin(), limits.disk)?;
    let (run, script) = target.describe(args.lang, limits.disk)?;
    let (environment, env) = environment(&args.env)?;
    let placeholders =
        args.secret.iter().map(|text| placeholder(text)).collect::<Result<_, _>>()?;
    if environment.is_none() {
        // What is in an environment is found out with the call.
        begun.expect(&options, &run);
    }
    let files = inputs::open(script, &args.input, limits.disk)?;
    let run = Run {
        env,
        environment,
        files: files.iter().map(Attachment::described).collect(),
        stdin: stdin.as_ref().map(Input::described),
        template: Some(template.name.into()),
        limits: given,
        no_zygote: args.no_zygote,
        network: args.network,
        placeholders,
        ..run
    };
    let mut request = Request::new(run_tool()?, Arguments::Value(json_of(&run)?));
    request.timeout = Some(limits.timeout);
    request.token = token;
    request.ask = args.asking.ask;
    let (output_dir, quota, no_wait) = (args.output_dir, config.quota(), args.asking.no_wait);
    let record_most = config.retention().most_bytes;
    Ok(Prepared { options, request, limits, files, stdin, output_dir, quota, record_most, no_wait })
}

fn run_tool() -> Result<ToolName, Problem> {
    "run".parse().map_err(|_| Problem::error("the tool `run` has no name"))
}

fn json_of(run: &Run) -> Result<serde_json::Value, Problem> {
    serde_json::to_value(run)
        .map_err(|error| Problem::error("the call cannot be written").why(error.to_string()))
}

/// Whether the last `count` words came after a `--`. clap has taken it away by now, and its own way
/// of telling the two apart does not go together with words that are left as they are.
fn is_command(words: &[OsString], count: usize) -> bool {
    let before = words.len().checked_sub(count + 1).and_then(|i| words.get(i));
    before.is_some_and(|word| word == "--")
}

fn token(file: Option<&Path>, is_taken: bool) -> Result<Option<Token>, Problem> {
    match file {
        Some(file) if file == "-" && is_taken => Err(Problem::invalid(
            "standard input cannot be both the token and what the program gets",
        )
        .fix("give the token as `--token-file FILE`")),
        file => file.map(token::read).transpose(),
    }
}

pub(crate) fn stdin(
    file: Option<&Path>,
    is_code: bool,
    most: Bytes,
) -> Result<Option<Input>, Problem> {
    match file {
        None => Ok(None),
        Some(file) if file == "-" && is_code => {
            Err(Problem::invalid("standard input cannot be both the code and what it reads")
                .fix("give the code as a file or with -c, or what it reads as `--stdin FILE`"))
        }
        Some(file) if file == "-" => Ok(Some(Input::Live(inputs::own_stdin()?))),
        Some(path) => match inputs::open_regular(path) {
            // What is too large to be held is read while the program reads, as from a pipe.
            Ok(file) if file.metadata().is_ok_and(|data| data.len() > most.get()) => {
                Ok(Some(Input::Live(file)))
            }
            Ok(file) => Ok(Some(Input::Content(inputs::attach(path, file, most)?))),
            Err(unusable) => Err(unusable
                .invalid()
                .fix(format!("give a regular file, or redirect: --stdin - < {}", path.display()))),
        },
    }
}

/// Carries out a call of a program that runs where others have run.
pub(crate) fn in_a_sandbox_that_stays(
    request: Request,
    (options, config): (Options, &Config),
    (stdin, limits): (Option<Input>, Limits),
    (begun, no_wait): (Begun, bool),
    json: bool,
) -> Result<u8, Problem> {
    let (quota, record_most) = (config.quota(), config.retention().most_bytes);
    let (files, output_dir) = (Vec::new(), None);
    let prepared = Prepared {
        options,
        request,
        limits,
        files,
        stdin,
        output_dir,
        quota,
        record_most,
        no_wait,
    };
    execute(prepared, begun, json)
}

fn execute(prepared: Prepared, begun: Begun, json: bool) -> Result<u8, Problem> {
    let Prepared {
        options,
        request,
        limits,
        files,
        stdin,
        output_dir,
        quota,
        record_most,
        no_wait,
    } = prepared;
    let signals = Signals::catch().map_err(failed("catching signals"))?;
    let outputs = output_dir.map(OutputDir::make).transpose()?;
    let reins = Reins::default();
    let mut live = reins.live(json)?;
    let tidy_up = outputs.as_ref().map(OutputDir::remover);
    let run = reins.clone();
    let signals = signals
        .listen(move || run.cancel(), move || tidy_up.into_iter().for_each(|tidy_up| tidy_up()))
        .map_err(failed("starting a thread"))?;
    let kernel = Kernel::soon(options, begun)?;
    reins.hold(kernel.canceller());
    // After the run, for which the record must be open.
    let measures = kernel.is_to_be_measured();
    // Should it have to wait, it is handed over again.
    let again = files.iter().map(Attachment::try_clone).collect::<io::Result<Vec<_>>>();
    let again =
        again.and_then(|files| Ok((files, stdin.as_ref().map(Input::try_clone).transpose()?)));
    let (files_again, stdin_again) = again.map_err(failed("keeping what goes along"))?;
    let attached = Attached {
        files,
        stdin,
        sink: Some(&mut live),
        outputs: outputs.as_ref().map(OutputDir::path),
        started: Some(Box::new(|run: Handle| reins.take(run))),
        is_last: !measures,
        ..Attached::default()
    };
    let mut reply = kernel.call(request, attached)?;
    if let Some(item) = wait::item_of(&reply).filter(|_| !no_wait) {
        wait::announce(&reply);
        reins.waits();
        let attached = Attached {
            files: files_again,
            stdin: stdin_again,
            sink: Some(&mut live),
            outputs: outputs.as_ref().map(OutputDir::path),
            started: Some(Box::new(|run: Handle| reins.take(run))),
            ..Attached::default()
        };
        reply = kernel.wait(item, &reins.interrupt, attached)?;
    }
    let id = reply.id;
    let Some(outcome) = reply.run.take() else {
        let document = || json.then(|| report::not_here(&reply));
        let code = match (reply.status, signals.first()) {
            (Status::Review, Some(signal)) => wait::left(&reply, signal, document()),
            (Status::Cancelled, Some(signal)) => ended_by(signal, document()),
            _ => unrun(&reply, json),
        };
        return Ok(kernel.close(code));
    };
    let wants_files = outputs.is_some();
    if let Some(outputs) = outputs {
        outputs.keep();
    }
    let code = conclude(id, &outcome, &limits, live, signals.first(), json)?;
    // Who asked for files and gets fewer must be told.
    if wants_files && !json {
        print::to_people(&report::not_taken(&outcome.skipped));
    }
    if let (true, Kernel::Here(engine)) = (measures, &kernel) {
        gc::warn(engine, quota, record_most);
    }
    Ok(kernel.close(code))
}

/// It was ended before there was a run, as whoever sent the signal knows.
fn ended_by(signal: u8, document: Option<String>) -> u8 {
    let code = exit::SIGNAL.saturating_add(signal);
    document.map_or(code, |document| print::data_and(&document, code))
}

/// Why nothing was run, or not here.
fn unrun(reply: &Called, json: bool) -> u8 {
    if reply.status == Status::Review || reply.value.is_some() {
        let code = tool::exit_of(reply.status);
        let document = || print::data_and(&report::not_here(reply), code);
        return if json { document() } else { tool::tell(reply, json) };
    }
    match reply.problems.first() {
        Some(problem) => problem::report(&problem.clone().into(), json),
        None => problem::report(&Problem::error("nothing was run, and nobody says why"), json),
    }
}

/// The run, for those who were there before it.
#[derive(Clone, Default)]
struct Reins {
    run: Arc<OnceLock<Handle>>,
    /// Where somebody else carries it out.
    there: Arc<OnceLock<Canceller>>,
    /// Nobody has agreed to it yet.
    waits: Arc<AtomicBool>,
    interrupt: Arc<AtomicBool>,
}

impl Reins {
    fn take(&self, run: Handle) {
        // There is one run.
        self.run.set(run).ok();
        // Whoever gave up waiting just now may not have seen it.
        if self.interrupt.load(Ordering::SeqCst) {
            self.cancel();
        }
    }

    fn hold(&self, there: Option<Canceller>) {
        if let Some(there) = there {
            // There is one.
            self.there.set(there).ok();
        }
    }

    fn waits(&self) {
        self.waits.store(true, Ordering::SeqCst);
    }

    fn live(&self, json: bool) -> Result<Live, Problem> {
        if json {
            return Ok(Live::Silent);
        }
        let streams = Streams::own().map_err(failed("taking stdout and stderr"))?;
        let run = self.clone();
        Ok(Live::new(streams, move || {
            run.cancel();
        }))
    }

    /// Whether there is something that ends by it.
    fn cancel(&self) -> bool {
        let waits = self.waits.load(Ordering::SeqCst);
        if waits {
            self.interrupt.store(true, Ordering::SeqCst);
        }
        if let Some(run) = self.run.get() {
            run.cancel();
        }
        let is_there = self.there.get().is_some_and(Canceller::cancel);
        waits || self.run.get().is_some() || is_there
    }
}

fn failed(doing: &'static str) -> impl Fn(io::Error) -> Problem {
    move |e| Problem::error(format!("{doing} failed")).why(cause(&e))
}

/// Prints what is left to print, and gives the number to exit with.
fn conclude(
    id: CallId,
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
        let written = print::data(&report::run_document(id, outcome));
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
