//! `hotcell mcp`: hotcell as a server of the Model Context Protocol, for an agent that starts it.

mod behind;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;

use hotcell_engine::StayBounds;
use hotcell_mcp::stdio::{self, Stop};
use hotcell_mcp::{Behind, MANY, Options, Server};
use hotcell_types::Name;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::{flag, iterator};

use crate::config::Config;
use crate::print::{self, harmless};
use crate::problem::{self, Problem};
use crate::{exit, home};

use self::behind::{Home, NotOpened};

/// Serves an agent: tools, code in a sandbox and artifacts over the Model Context Protocol
///
/// Reads requests on standard input and answers on standard output, one message a line. It ends when
/// standard input does. Calls that go on then are ended. Nothing that comes in here can approve a call.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example, for agents that have a file of servers:
  { \"mcpServers\": { \"hotcell\": { \"command\": \"hotcell\", \"args\": [\"mcp\"] } } }")]
pub(crate) struct Args {
    /// The directory that tools read, and that runs have a copy of [default: the current directory]
    #[arg(long, value_name = "DIR")]
    workspace: Option<PathBuf>,
    /// Who the calls are made for, as the policy knows them [default: `uid` and your number]
    #[arg(long, value_name = "NAME")]
    subject: Option<Name>,
    /// List three tools to search, describe and call the others, however few there are
    #[arg(long)]
    search: bool,
    /// List them if there are more tools than this
    #[arg(long, value_name = "COUNT", default_value_t = MANY)]
    many: usize,
    /// If no rule speaks of a call, put it before a person instead of refusing it
    #[arg(long)]
    ask: bool,
}

pub(crate) fn main(args: Args) -> u8 {
    serve(args).unwrap_or_else(|problem| problem::report(&problem, false))
}

fn serve(args: Args) -> Result<u8, Problem> {
    let Args { workspace, subject, search, many, ask } = args;
    let config = Config::load()?;
    let home = Arc::new(match workspace {
        Some(named) => Home::open(options(&config, Some(named)), subject)?,
        None => here_if_possible(&config, subject)?,
    });
    let stop = Stop::default();
    stop_at_signals(&stop)
        .map_err(|e| Problem::error("catching signals failed").why(hotcell_sandbox::cause(&e)))?;
    let server = Server::new(Arc::clone(&home) as Arc<dyn Behind>, Options { search, many, ask });
    let served = stdio::serve(&server, &stop);
    drop(server);
    served.map_err(|e| Problem::error("serving failed").why(hotcell_sandbox::cause(&e)))?;
    // Whoever still has it keeps it to the end of the process, which the record can bear.
    Ok(Arc::into_inner(home).map_or(0, Home::close))
}

/// With the current directory as the workspace, unless that cannot be one: agents start servers anywhere, also
/// above hotcell's own home.
fn here_if_possible(config: &Config, subject: Option<Name>) -> Result<Home, Problem> {
    let here = std::env::current_dir().ok();
    match Home::open(options(config, here), subject.clone()) {
        Err(NotOpened::Workspace { why, .. }) => {
            let note =
                format!("hotcell: no workspace: {}; --workspace names one\n", harmless(&why));
            print::to_people(&note);
            Ok(Home::open(options(config, None), subject)?)
        }
        opened => Ok(opened?),
    }
}

/// Of a process that goes on as long as its agent does.
fn options(config: &Config, workspace: Option<PathBuf>) -> hotcell_engine::Options {
    let stays = StayBounds::default();
    hotcell_engine::Options { stays, ..home::options(config, workspace) }
}

/// The first one ends what goes on, in order; a second one ends this process.
fn stop_at_signals(stop: &Stop) -> io::Result<()> {
    const CAUGHT: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];
    let mut arriving = iterator::Signals::new(CAUGHT)?;
    let once = Arc::new(AtomicBool::new(false));
    for signal in CAUGHT {
        // In this order: the first signal finds the flag unset and sets it.
        let status = i32::from(exit::SIGNAL) + signal;
        flag::register_conditional_shutdown(signal, status, Arc::clone(&once))?;
        flag::register(signal, Arc::clone(&once))?;
    }
    let stop = stop.clone();
    thread::Builder::new().name("signals".into()).spawn(move || {
        if arriving.forever().next().is_some() {
            stop.now();
        }
    })?;
    Ok(())
}
