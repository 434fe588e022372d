//! Who carries jobs out: this process, or a hotcell that serves the same home. What comes of them is the
//! same.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use hotcell_api::batch::{Done, Task};
use hotcell_api::{Ask, Called, Context};
use hotcell_engine::{Brake, Engine, Options, new_id};
use hotcell_local::{Remote, Unreached};
use hotcell_socket::{AskError, Canceller};
use hotcell_types::CallId;

use crate::kernel::{context, not_asked};
use crate::problem::Problem;
use crate::{home, kernel};

/// How often what goes on elsewhere is told to end, until it has.
const AGAIN: Duration = Duration::from_millis(20);

pub(super) enum Carrier {
    Here(Arc<Engine>),
    There(Box<There>),
}

/// One connection for each job that goes at one time.
pub(super) struct There {
    home: PathBuf,
    context: Context,
    idle: Mutex<Vec<Remote>>,
    going_on: Mutex<HashMap<CallId, Canceller>>,
}

impl Carrier {
    pub(super) fn find(options: Options) -> Result<Carrier, Problem> {
        let home = options.home.clone();
        match Remote::find(&home).map_err(|Unreached(problem)| Problem::from(problem))? {
            None => Ok(Carrier::Here(Arc::new(home::open_with(options)?))),
            Some(remote) => Ok(Carrier::There(Box::new(There {
                home,
                context: context(&options),
                idle: Mutex::new(vec![remote]),
                going_on: Mutex::default(),
            }))),
        }
    }

    /// The result of a job. None if it is too late to begin it; a problem if nobody knows what became of
    /// it, or nothing can be begun any more.
    pub(super) fn carry_out(&self, task: Task, brake: &Brake) -> Result<Option<Done>, Problem> {
        match self {
            Carrier::Here(engine) => Ok(task.answer(engine, &home::caller(), brake)),
            Carrier::There(there) => there.carry_out(task, brake),
        }
    }

    /// Begins nothing any more, and ends what goes on; whether that is done.
    pub(super) fn end(&self, brake: &Brake) -> bool {
        match self {
            Carrier::Here(engine) => engine.brake_until_idle(&home::caller(), brake),
            Carrier::There(there) => there.end(brake),
        }
        true
    }

    pub(super) fn close(self, code: u8) -> u8 {
        match self {
            Carrier::Here(engine) => match Arc::into_inner(engine) {
                Some(engine) => home::close(engine, code),
                None => code,
            },
            Carrier::There(_) => code,
        }
    }
}

impl There {
    fn carry_out(&self, task: Task, brake: &Brake) -> Result<Option<Done>, Problem> {
        let mut lost = None;
        let done = task.answered(brake, |ask| {
            let mark = new_id();
            let _held = brake.holds(mark)?;
            self.ask(&ask, mark).map_err(|problem| lost = Some(problem)).ok()
        });
        match lost {
            // What was cancelled while it was sent was not begun.
            Some(_) if brake.is_pulled() => Ok(None),
            Some(problem) => Err(problem),
            None => Ok(done),
        }
    }

    fn ask(&self, ask: &Ask, mark: CallId) -> Result<Called, Problem> {
        let remote = self.connection()?;
        lock(&self.going_on).insert(mark, remote.canceller());
        let asked = remote.run(ask, self.context.clone());
        lock(&self.going_on).remove(&mark);
        match asked {
            Ok(called) => {
                lock(&self.idle).push(remote);
                Ok(called)
            }
            // What is said to the question is its answer, unless nobody will be there for the next one.
            Err(AskError::Refused(problem))
                if problem.kind != hotcell_socket::Problem::STOPPING =>
            {
                lock(&self.idle).push(remote);
                Ok(Called::failed(mark, kernel::problem_of(&problem)))
            }
            Err(error) => Err(not_asked(error).fix(GO_ON)),
        }
    }

    fn connection(&self) -> Result<Remote, Problem> {
        if let Some(remote) = lock(&self.idle).pop() {
            return Ok(remote);
        }
        let found =
            Remote::find(&self.home).map_err(|Unreached(problem)| Problem::from(problem))?;
        found
            .ok_or_else(|| Problem::error("the hotcell that serves this home has ended").fix(GO_ON))
    }

    fn end(&self, brake: &Brake) {
        brake.pull();
        while !brake.is_idle() {
            for call in lock(&self.going_on).values() {
                call.cancel();
            }
            thread::sleep(AGAIN);
        }
    }
}

const GO_ON: &str = "with --output, the same command goes on where this one ended";

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
