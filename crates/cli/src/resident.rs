//! `hotcell resident`: a hotcell of this user that stays, so that others need not begin from nothing.

use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command as Process, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hotcell_engine::{Engine, Options, StayBounds};
use hotcell_local::{Desk, Remote, Unreached};
use hotcell_sandbox::cause;
use hotcell_serve::{Observer, Traces};
use hotcell_socket::{Grace, ListenError, Listener, Server, Settings};
use hotcell_types::Span;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use crate::config::Config;
use crate::policy;
use crate::print;
use crate::problem::{self, Problem};
use crate::{exit, home};

/// How often it is looked whether it is to end.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long one that is started, or stopped, is waited for.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long nobody asks before one ends.
const USUAL_IDLE: Span = Span::seconds(15 * 60);
/// What it says when it serves.
const READY: &str = "ready\n";

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Starts one in the background, unless there is one, and returns when it serves
    Start {
        #[command(flatten)]
        args: StartArgs,
        /// Print what `hotcell resident status --json` would
        #[arg(long)]
        json: bool,
    },
    /// Ends it; what it carries out is finished first, for five seconds at most, and cancelled then
    Stop {
        /// Print what `hotcell resident status --json` would
        #[arg(long)]
        json: bool,
    },
    /// Says whether there is one
    Status {
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Serves in the foreground, until Ctrl-C or until nobody has asked for a while
    Serve(StartArgs),
}

#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct StartArgs {
    /// How long nobody asks before it ends
    #[arg(long, value_name = "TIME", default_value_t = USUAL_IDLE)]
    idle: Span,
}

pub(crate) fn main(command: Command) -> u8 {
    let (done, json) = match command {
        Command::Start { args, json } => (start(args).and_then(then_status(json)), json),
        Command::Stop { json } => (stop().and_then(then_status(json)), json),
        Command::Status { json } => (status(json), json),
        Command::Serve(args) => (serve(args), false),
    };
    done.unwrap_or_else(|problem| problem::report(&problem, json))
}

fn serve(args: StartArgs) -> Result<u8, Problem> {
    let ended = ends_by_signal().map_err(failed("catching signals"))?;
    let config = Config::load()?;
    let traces = config.traces().map(Traces::to);
    let options = home::options(&config, None);
    let watch = traces.clone().map(|traces| Observer::new(Some(traces)).watch());
    let stays = StayBounds::default();
    let engine = home::open_with(Options { watch, stays, ..options })?;
    policy::ready(&engine)?;
    let engine = Arc::new(engine);
    let server = listen(&config.settings().home, Desk::new(Arc::clone(&engine)))?;
    // Who started it waits for that.
    let told = print::data(READY);
    let code = until_idle(&server, &engine, args.idle.duration(), &ended);
    server.stop(Grace::default());
    drop(server);
    if let Some(traces) = traces {
        traces.finish();
    }
    let closed = Arc::try_unwrap(engine).map(|engine| home::close(engine, code));
    Ok(closed.unwrap_or(code).max(told))
}

/// Answers whoever comes through the socket of a home, with an engine that others may use as well.
pub(crate) fn listen(home: &Path, desk: Desk) -> Result<Server, Problem> {
    let listener = Listener::bind(&hotcell_local::socket(home)).map_err(not_bound)?;
    Server::start(listener, Arc::new(desk), Settings::default()).map_err(failed("listening"))
}

/// Until a signal, or until nobody has been there for so long, and no sandbox stays.
fn until_idle(server: &Server, engine: &Engine, idle: Duration, ended: &AtomicBool) -> u8 {
    let mut last = Instant::now();
    while !ended.load(Ordering::SeqCst) {
        if server.connections() > 0 || engine.sandboxes() > 0 {
            last = Instant::now();
        }
        if last.elapsed() >= idle {
            break;
        }
        thread::sleep(LOOK_EVERY.min(idle));
    }
    0
}

fn ends_by_signal() -> io::Result<Arc<AtomicBool>> {
    let ended = Arc::<AtomicBool>::default();
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // The second one does not wait.
        flag::register_conditional_shutdown(
            signal,
            i32::from(exit::SIGNAL) + signal,
            Arc::clone(&ended),
        )?;
        flag::register(signal, Arc::clone(&ended))?;
    }
    Ok(ended)
}

/// One as it usually is.
pub(crate) fn start_one() -> Result<u8, Problem> {
    start(StartArgs { idle: USUAL_IDLE })
}

/// One that outlives this process and its terminal.
fn start(args: StartArgs) -> Result<u8, Problem> {
    let home = Config::load()?.settings().home;
    if reached(&home)?.is_some() {
        print::to_people("hotcell: there is one already\n");
        return Ok(0);
    }
    let own = std::env::current_exe().map_err(failed("finding hotcell itself"))?;
    let mut process = Process::new(own);
    process.args(["resident", "serve", "--idle"]).arg(args.idle.to_string());
    process.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    process.current_dir("/");
    let mut child = process.spawn().map_err(failed("starting it"))?;
    let mut said = String::new();
    if let Some(stdout) = child.stdout.take() {
        stdout
            .take(READY.len() as u64)
            .read_to_string(&mut said)
            .map_err(failed("hearing whether it serves"))?;
    }
    if said == READY {
        return Ok(0);
    }
    let mut why = String::new();
    if let Some(stderr) = child.stderr.take() {
        stderr.take(64 * 1024).read_to_string(&mut why).ok();
    }
    print::to_people(&why);
    let status = child.wait().map_err(failed("waiting for it"))?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(exit::ERROR))
}

fn stop() -> Result<u8, Problem> {
    let home = Config::load()?.settings().home;
    let Some(client) = reached(&home)? else {
        print::to_people("hotcell: there is none\n");
        return Ok(0);
    };
    let pid = client.server().pid;
    drop(client);
    let process = rustix::process::Pid::from_raw(pid).ok_or_else(|| {
        Problem::error("the one that serves cannot be seen").why("it is in another container")
    })?;
    rustix::process::kill_process(process, rustix::process::Signal::TERM)
        .map_err(|error| failed("ending it")(error.into()))?;
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        if reached(&home)?.is_none() {
            return Ok(0);
        }
        thread::sleep(LOOK_EVERY);
    }
    Err(Problem::error("it did not end").fix(format!("see what process {pid} does")))
}

/// What there is now, for programs that want to know.
fn then_status(json: bool) -> impl FnOnce(u8) -> Result<u8, Problem> {
    move |code| if json && code == 0 { status(json) } else { Ok(code) }
}

fn status(json: bool) -> Result<u8, Problem> {
    let home = Config::load()?.settings().home;
    let serving = reached(&home)?.map(|client| client.server().pid);
    if json {
        let document =
            serde_json::json!({ "version": 1, "serving": serving.is_some(), "pid": serving });
        return Ok(print::data(&print::document(&document)));
    }
    Ok(print::data(&match serving {
        Some(pid) => format!("process {pid} serves `{}`\n", home.display()),
        None => "nobody serves this home; every command is on its own\n".to_owned(),
    }))
}

/// Whoever serves a home.
fn reached(home: &Path) -> Result<Option<Remote>, Problem> {
    Remote::find(home).map_err(|Unreached(problem)| problem.into())
}

fn not_bound(error: ListenError) -> Problem {
    let because = std::error::Error::source(&error);
    let why = because.map_or_else(|| error.to_string(), |because| format!("{error}: {because}"));
    Problem::error("this home cannot be served").why(why).fix(error.fix())
}

fn failed(doing: &'static str) -> impl Fn(io::Error) -> Problem {
    move |error| Problem::error(format!("{doing} failed")).why(cause(&error))
}
