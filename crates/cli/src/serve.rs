//! `hotcell serve`: the HTTP door of a home, until a signal ends it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use hotcell_engine::{Engine, Options, StayBounds};
use hotcell_local::Desk;
use hotcell_sandbox::cause;
use hotcell_serve::{HomeLock, LockError, LogForm, Observer, ServeError, Settings, Socket, Traces};
use hotcell_socket::Grace;
use hotcell_types::Span;

use crate::config::Config;
use crate::home;
use crate::policy;
use crate::print;
use crate::problem::{self, Problem};
use crate::resident;

/// How long threads may take to go when everything was answered, and how often it is looked.
const LAST: Duration = Duration::from_secs(3);
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Serves every question of hotcell over HTTP
///
/// Whoever asks needs a key (`hotcell key create`); what is asked for is judged by the policy as any other
/// call. It listens on this machine only, unless told otherwise, and speaks plain HTTP. docs/serve.md is the
/// guide, /openapi.json the list of routes.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where to listen; port 0 is one that is free
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8642")]
    listen: SocketAddr,
    /// A name under which it is reached besides, with whatever port; several times
    #[arg(long = "host", value_name = "NAME")]
    hosts: Vec<String>,
    /// The directory that tools read, and that copies are taken from [default: none]
    #[arg(long, value_name = "DIRECTORY")]
    workspace: Option<PathBuf>,
    /// How lines about requests look, on standard error
    #[arg(long, value_name = "FORM", value_enum, default_value_t = Form::Text)]
    log: Form,
    /// Most connections at one time
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u16).range(1..))]
    connections: u16,
    /// Longest that a connection waits for a request, or does not take its answer
    #[arg(long, value_name = "TIME", default_value = "30s")]
    idle: Span,
    /// How long what goes on may take to end when the server is to end; after that it is cancelled
    #[arg(long, value_name = "TIME", default_value = "10s")]
    grace: Span,
    /// Print the OpenAPI document, and serve nothing
    #[arg(long)]
    openapi: bool,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Form {
    Text,
    Json,
}

pub(crate) fn main(args: Args) -> u8 {
    if args.openapi {
        return print::data(&hotcell_serve::openapi());
    }
    serve(args).unwrap_or_else(|problem| problem::report(&problem, false))
}

fn serve(args: Args) -> Result<u8, Problem> {
    let config = Config::load()?;
    let home = config.settings().home;
    let observer = Observer::new(config.traces().map(Traces::to));
    let options = home::options(&config, args.workspace.clone());
    let engine = home::open_with(Options {
        watch: Some(observer.watch()),
        stays: StayBounds::default(),
        ..options
    })?;
    let mut lock = HomeLock::take(&home).map_err(|error| not_alone(&error))?;
    policy::ready(&engine)?;
    let engine = Arc::new(engine);
    // Commands of this user come in through the socket, to the same engine.
    let desk = Desk::new(Arc::clone(&engine)).counted(observer.counts());
    let local = resident::listen(&home, desk)?;
    let listening = |address: SocketAddr| {
        // Whoever comes second is told that somebody is here in any case.
        lock.note(&format!("http://{address}")).ok();
    };
    let socket = Some(Socket::new(move || hotcell_local::serves(&home)));
    let settings = Settings { socket, ..args.settings() };
    let served = hotcell_serve::serve(Arc::clone(&engine), observer, settings, listening);
    local.stop(Grace::default());
    drop(local);
    served.map_err(|error| not_served(&error))?;
    Ok(close(engine))
}

/// Closes the record once the last thread has let go of the engine.
fn close(mut engine: Arc<Engine>) -> u8 {
    let begun = Instant::now();
    loop {
        engine = match Arc::try_unwrap(engine) {
            Ok(engine) => return home::close(engine, 0),
            // A call could not be ended: the next process of this home tells what became of it.
            Err(_) if begun.elapsed() > LAST => return crate::exit::ERROR,
            Err(engine) => engine,
        };
        thread::sleep(LOOK_EVERY);
    }
}

impl Args {
    fn settings(self) -> Settings {
        let log = match self.log {
            Form::Text => LogForm::Text,
            Form::Json => LogForm::Json,
        };
        let idle = self.idle.duration();
        Settings {
            hosts: self.hosts,
            log,
            connections: self.connections.into(),
            idle,
            stall: idle,
            grace: self.grace.duration(),
            ..Settings::at(self.listen)
        }
    }
}

fn not_alone(error: &LockError) -> Problem {
    match error {
        LockError::Held(who) => Problem::error("this home has a server already")
            .why(who.clone())
            .fix("use that one, end it first, or have HOTCELL_HOME name another home"),
        LockError::Failed(error) => {
            Problem::error("the home cannot be locked for a server").why(cause(error))
        }
    }
}

fn not_served(error: &ServeError) -> Problem {
    let source = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    let fix = match error {
        ServeError::Listen { .. } => "`--listen` names another address; port 0 is one that is free",
        ServeError::Threads(_) => "see how many processes and descriptors are allowed",
    };
    Problem::error(error.to_string()).why(source).fix(fix)
}
