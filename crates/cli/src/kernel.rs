//! Who carries out calls: this process, or a hotcell that serves the same home. What comes of them is the
//! same.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use hotcell_api::{Called, Context, Replayed};
use hotcell_approver::ItemId;
use hotcell_engine::run::Run;
use hotcell_engine::{
    Answer, Ask, Attached, Early, Engine, Ignore, Options, QueueAnswer, QueueAsk, new_id,
};
use hotcell_local::{Remote, Unreached};
use hotcell_request::{Arguments, Request, json};
use hotcell_review::MOST_WAIT;
use hotcell_socket::{AskError, Canceller};
use hotcell_types::{CallId, Door, Status};

use crate::config::{self, Config};
use crate::home;
use crate::problem::Problem;

pub(crate) enum Kernel {
    Here(Box<Engine>),
    There(Box<There>),
}

pub(crate) struct There {
    remote: Remote,
    context: Context,
}

/// What a process that runs one thing has begun before it knows what.
pub(crate) enum Begun {
    /// Somebody serves this home.
    Served(Box<Remote>),
    Early(Early),
    /// Somebody does, and cannot be asked.
    Not(Problem),
}

impl Begun {
    pub(crate) fn begin() -> Begun {
        // A home that cannot be told is told with everything else that is wrong.
        let Ok(home) = config::home_path() else { return Begun::Early(Early::begin()) };
        match Remote::find(&home) {
            Ok(Some(remote)) => Begun::Served(Box::new(remote)),
            Ok(None) => Begun::Early(Early::begin()),
            Err(Unreached(problem)) => Begun::Not(problem.into()),
        }
    }

    /// Goes on, now that it is known what to run. Whoever serves the home has everything already.
    pub(crate) fn expect(&self, options: &Options, run: &Run) {
        if let Begun::Early(early) = self {
            early.expect(options, run);
        }
    }
}

impl Kernel {
    /// For calls about a directory, or none.
    pub(crate) fn open(workspace: Option<PathBuf>) -> Result<Kernel, Problem> {
        let config = Config::load()?;
        let remote = Remote::find(&config.settings().home);
        match remote.map_err(|Unreached(problem)| Problem::from(problem))? {
            Some(remote) => Ok(Kernel::there(remote, home::options(&config, workspace))),
            None => home::engine(home::options(&config, workspace)).map(Kernel::here),
        }
    }

    /// For the one call that was begun.
    pub(crate) fn soon(options: Options, begun: Begun) -> Result<Kernel, Problem> {
        match begun {
            Begun::Served(remote) => Ok(Kernel::there(*remote, options)),
            Begun::Early(early) => home::engine_soon(options, early).map(Kernel::here),
            Begun::Not(problem) => Err(problem),
        }
    }

    pub(crate) fn here(engine: Engine) -> Kernel {
        Kernel::Here(Box::new(engine))
    }

    /// What is configured here holds there as well.
    fn there(remote: Remote, options: Options) -> Kernel {
        Kernel::There(Box::new(There { remote, context: context(&options) }))
    }

    /// What ends a call that somebody else carries out.
    pub(crate) fn canceller(&self) -> Option<Canceller> {
        match self {
            Kernel::Here(_) => None,
            Kernel::There(there) => Some(there.remote.canceller()),
        }
    }

    pub(crate) fn call(&self, request: Request, attached: Attached<'_>) -> Result<Called, Problem> {
        match self {
            Kernel::Here(engine) => {
                let ask = Ask::Run(Box::new(request), Box::new(attached));
                match engine.ask(&home::caller(), ask) {
                    Answer::Called(reply) => Ok((*reply).into()),
                    _ => Err(Problem::error("the call got no answer")),
                }
            }
            Kernel::There(there) => {
                let request = match read(request) {
                    Ok(request) => request,
                    Err(called) => return Ok(*called),
                };
                let called = there.remote.call(request, there.context.clone(), along(attached));
                called.map_err(not_asked)
            }
        }
    }

    /// The call that was named, or the newest that ran something.
    pub(crate) fn or_newest(&self, named: Option<CallId>) -> Result<CallId, Problem> {
        match (named, self) {
            (Some(call), _) => Ok(call),
            (None, Kernel::Here(engine)) => home::or_newest(engine, None),
            (None, Kernel::There(_)) => home::or_newest(&home::look()?, None),
        }
    }

    /// A recorded call again, and how the two compare.
    pub(crate) fn replay(&self, call: CallId, ignore: Vec<String>) -> Result<Replayed, Problem> {
        match self {
            Kernel::Here(engine) => {
                let ignore = Ignore::new(&ignore).map_err(not_ignored)?;
                match engine.ask(&home::caller(), Ask::Replay(call, ignore)) {
                    Answer::Replayed(replayed) => Ok((*replayed).into()),
                    Answer::Failed(problem) => Err(problem.into()),
                    _ => Err(Problem::error("the call got no answer")),
                }
            }
            Kernel::There(there) => {
                // Said here in the words of the command line.
                Ignore::new(&ignore).map_err(not_ignored)?;
                let ask = hotcell_api::Ask::Replay { call, ignore };
                there.remote.replay(&ask, there.context.clone()).map_err(not_asked)
            }
        }
    }

    /// Ends a call that is under way. Says whether there was one.
    pub(crate) fn cancel(&self, id: CallId) -> bool {
        match self {
            Kernel::Here(engine) => {
                matches!(engine.ask(&home::caller(), Ask::Cancel(id)), Answer::Cancelled)
            }
            Kernel::There(there) => there.remote.canceller().cancel(),
        }
    }

    /// Waits for somebody to agree, and has it carried out then.
    pub(crate) fn wait<'a>(
        &self,
        item: ItemId,
        interrupt: &'a AtomicBool,
        attached: Attached<'a>,
    ) -> Result<Called, Problem> {
        match self {
            Kernel::Here(engine) => {
                let attached = Box::new(attached);
                let ask = QueueAsk::Await { item, patience: MOST_WAIT, interrupt, attached };
                match engine.ask(&home::caller(), Ask::Queue(ask)) {
                    Answer::Queue(QueueAnswer::Reply(reply)) => Ok((*reply).into()),
                    Answer::Failed(problem) => Err(problem.into()),
                    _ => Err(Problem::error("the queue gave no answer")),
                }
            }
            Kernel::There(there) => {
                let (item, context) = (item.to_string(), there.context.clone());
                let called = there.remote.wait(&item, context, along(attached), interrupt);
                called.map_err(not_asked)
            }
        }
    }

    /// Whether whoever ran something looks at how full the home is. Who serves does that itself.
    pub(crate) fn is_to_be_measured(&self) -> bool {
        match self {
            Kernel::Here(engine) => engine.is_to_be_measured(),
            Kernel::There(_) => false,
        }
    }

    pub(crate) fn close(self, code: u8) -> u8 {
        match self {
            Kernel::Here(engine) => home::close(*engine, code),
            Kernel::There(_) => code,
        }
    }
}

/// What whoever serves the home has to know of this process.
pub(crate) fn context(options: &Options) -> Context {
    let bounds = home::bounds(options);
    Context::here(Door::Cli, options.workspace.as_deref(), bounds)
}

fn not_ignored(error: impl std::fmt::Display) -> Problem {
    Problem::invalid("`--ignore` cannot be used")
        .why(error.to_string())
        .fix("give the path of a file, or a pattern such as `*.log`")
}

fn along(attached: Attached<'_>) -> hotcell_local::With<'_> {
    let Attached { files, stdin, sink, outputs, .. } = attached;
    hotcell_local::With { files, stdin, sink, started: None, outputs }
}

/// What cannot be read is told as it is where the call would have been made.
fn read(request: Request) -> Result<Request, Box<Called>> {
    let Arguments::Bytes(bytes) = &request.arguments else { return Ok(request) };
    match json::parse(bytes, &json::Bounds::CALL) {
        Ok(value) => Ok(Request { arguments: Arguments::Value(value), ..request }),
        Err(fault) => Err(Box::new(Called {
            problems: vec![hotcell_api::Problem::from(&fault)],
            ..Called::new(new_id(), Status::Invalid)
        })),
    }
}

pub(crate) fn not_asked(error: AskError) -> Problem {
    match error {
        AskError::Refused(problem) => problem_of(&problem).into(),
        AskError::Lost { why } => Problem::error("the hotcell that serves this home ended early")
            .why(why)
            .fix("`hotcell runs` tells whether the call was made, and what became of it"),
        other => Problem::error("the hotcell that serves this home was not asked")
            .why(other.to_string())
            .fix("nothing was begun: try again"),
    }
}

/// What whoever serves the home said.
pub(crate) fn problem_of(problem: &hotcell_socket::Problem) -> hotcell_api::Problem {
    let hotcell_socket::Problem { kind, at, what, why, fix } = problem.clone();
    hotcell_api::Problem { at, ..hotcell_api::Problem::of_kind(&kind, what, why, fix) }
}
