//! Who answers an agent: whoever serves the home, and where nobody does an engine of this process. It is
//! looked for each question, since either can come and go while an agent works.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use hotcell_api::{Ask, Context, Problem, ProblemKind, WORKSPACE};
use hotcell_engine::{Engine, OpenError, Options};
use hotcell_local::{Remote, Unreached, With};
use hotcell_mcp::{
    Behind, Ear, Found, Room, Rooms, Talk, Waiting, ask_engine, end_in_engine, reader,
};
use hotcell_socket::{AskError, Canceller};
use hotcell_types::{CallId, Caller, Door, Name};
use serde_json::Value;

use crate::home;
use crate::policy;
use crate::problem;

/// How often somebody is looked for who then does not begin.
const ATTEMPTS: usize = 3;

/// The home of this user, for an agent.
pub(super) struct Home {
    options: Options,
    context: Context,
    caller: Caller,
    rooms: Rooms,
    /// Opened when it is needed, and then kept.
    engine: OnceLock<Engine>,
    opening: Mutex<()>,
    /// What ends calls that somebody else carries out.
    going: Mutex<HashMap<CallId, Canceller>>,
}

/// Why there is none.
pub(super) enum NotOpened {
    /// It can be opened without the workspace.
    Workspace {
        why: String,
        problem: problem::Problem,
    },
    Other(problem::Problem),
}

impl From<NotOpened> for problem::Problem {
    fn from(not: NotOpened) -> problem::Problem {
        match not {
            NotOpened::Workspace { problem, .. } | NotOpened::Other(problem) => problem,
        }
    }
}

impl Home {
    /// What cannot be used is told now, and not with the first question.
    pub(super) fn open(options: Options, subject: Option<Name>) -> Result<Home, NotOpened> {
        let own = Caller { door: Door::Mcp, ..home::caller() };
        let caller = Caller { subject: subject.clone().unwrap_or(own.subject), ..own };
        let bounds = home::bounds(&options);
        let context = Context::here(Door::Mcp, options.workspace.as_deref(), bounds);
        let home = Home {
            context: Context { subject, ..context },
            options,
            caller,
            rooms: Rooms::default(),
            engine: OnceLock::new(),
            opening: Mutex::default(),
            going: Mutex::default(),
        };
        match home.find().map_err(|problem| NotOpened::Other(problem.into()))? {
            Some(remote) => home.greet(&remote)?,
            None => {
                let engine = Engine::open(home.options.clone()).map_err(not_opened)?;
                policy::ready(&engine).map_err(NotOpened::Other)?;
                home.engine.set(engine).ok();
            }
        }
        Ok(home)
    }

    pub(super) fn close(self) -> u8 {
        self.engine.into_inner().map_or(0, |engine| home::close(engine, 0))
    }

    fn find(&self) -> Result<Option<Remote>, Problem> {
        Remote::find(&self.options.home).map_err(|Unreached(problem)| problem)
    }

    /// Whether whoever serves takes this workspace.
    fn greet(&self, remote: &Remote) -> Result<(), NotOpened> {
        let look = Ask::Tools { words: Some("run".into()) };
        let asked = document(&look).and_then(|look| {
            remote.ask(&look, self.context.clone(), With::default()).map_err(not_asked)
        });
        match asked {
            Err(problem) if problem.at == WORKSPACE => {
                let why = problem.why.clone();
                Err(NotOpened::Workspace { why, problem: problem.into() })
            }
            Err(problem) if problem.kind != ProblemKind::Busy => {
                Err(NotOpened::Other(problem.into()))
            }
            // Who is busy, or about to end, is asked again.
            Err(_) => Ok(()),
            Ok(_) => self.is_decided_there(remote),
        }
    }

    /// Whether whoever serves has a policy that can be used. It was so when that one began.
    fn is_decided_there(&self, remote: &Remote) -> Result<(), NotOpened> {
        let told = document(&Ask::Policy {}).and_then(|ask| {
            remote.ask(&ask, self.context.clone(), With::default()).map_err(not_asked)
        });
        let trouble = match told {
            Ok(mut policy) => policy.get_mut("trouble").map(Value::take),
            Err(problem) if problem.kind == ProblemKind::Busy => None,
            Err(problem) => return Err(NotOpened::Other(problem.into())),
        };
        match trouble.map(serde_json::from_value::<Option<Problem>>) {
            Some(Ok(Some(problem))) => Err(NotOpened::Other(problem.into())),
            _ => Ok(()),
        }
    }

    fn engine(&self) -> Result<&Engine, Problem> {
        let _alone = lock(&self.opening);
        if self.engine.get().is_none() {
            let engine = Engine::open(self.options.clone()).map_err(|error| {
                let what = "the home cannot be used";
                let fix = "see that the directory is yours and has room";
                Problem::new(ProblemKind::Error, what, error.to_string(), fix)
            })?;
            self.engine.set(engine).ok();
        }
        self.engine
            .get()
            .ok_or_else(|| Problem::new(ProblemKind::Error, "there is no engine", "", ""))
    }

    fn ask_there(
        &self,
        remote: &Remote,
        ask: &Value,
        talk: &Talk,
        waits: bool,
    ) -> Result<Value, AskError> {
        lock(&self.going).insert(talk.id, remote.canceller());
        let mut ear = Ear(talk);
        let started = || talk.is_running.store(true, Ordering::Relaxed);
        let with = With { sink: Some(&mut ear), started: Some(&started), ..With::default() };
        let answer = if waits {
            // Ending the question would end the run as well, if there is one by now.
            let is_unwanted = || {
                talk.interrupt.load(Ordering::SeqCst) && !talk.is_running.load(Ordering::Relaxed)
            };
            remote.ask_unless(&is_unwanted, ask, self.context.clone(), with)
        } else {
            remote.ask(ask, self.context.clone(), with)
        };
        lock(&self.going).remove(&talk.id);
        answer
    }
}

impl Behind for Home {
    fn room(&self, room: Room) -> Waiting<'_> {
        self.rooms.enter(room)
    }

    fn ask(&self, ask: Ask, talk: &Talk) -> Result<Found, Problem> {
        let mut last = None;
        for _ in 0..ATTEMPTS {
            let Some(remote) = self.find()? else {
                return ask_engine(self.engine()?, &self.caller, ask, talk);
            };
            let waits = matches!(ask, Ask::Await { .. });
            match self.ask_there(&remote, &document(&ask)?, talk, waits) {
                Ok(answer) => return reader(&ask)(answer),
                // Whoever was there has gone, and has begun nothing.
                Err(error) if error.is_unbegun() => last = Some(error),
                Err(error) => return Err(not_asked(error)),
            }
        }
        Err(last
            .map_or_else(|| Problem::new(ProblemKind::Busy, "nobody answers", "", ""), not_asked))
    }

    fn end(&self, talk: &Talk) {
        let there = lock(&self.going).get(&talk.id).cloned();
        match (there, self.engine.get()) {
            (Some(canceller), _) => drop(canceller.cancel()),
            (None, Some(engine)) => end_in_engine(engine, &self.caller, talk),
            (None, None) => {}
        }
    }
}

fn document(ask: &Ask) -> Result<Value, Problem> {
    serde_json::to_value(ask).map_err(|error| {
        Problem::new(ProblemKind::Invalid, "this cannot be asked", error.to_string(), "")
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn not_opened(error: OpenError) -> NotOpened {
    match &error {
        OpenError::Workspace { why, .. } => {
            NotOpened::Workspace { why: why.clone(), problem: home::unusable(error) }
        }
        _ => NotOpened::Other(home::unusable(error)),
    }
}

fn not_asked(error: AskError) -> Problem {
    match error {
        AskError::Refused(problem) => {
            let hotcell_socket::Problem { kind, at, what, why, fix } = *problem;
            Problem { at, ..Problem::of_kind(&kind, what, why, fix) }
        }
        AskError::Lost { why } => {
            let what = "the hotcell that serves this home ended early";
            let fix = "`hotcell runs` tells whether the call was made, and what became of it";
            Problem::new(ProblemKind::Error, what, why, fix)
        }
        other => {
            let what = "the hotcell that serves this home was not asked";
            let fix = "nothing was begun: try again";
            Problem::new(ProblemKind::Busy, what, other.to_string(), fix)
        }
    }
}
