//! Calls that are made for one question, and end when nobody waits for its answer any more.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use hotcell_request::Request;
use hotcell_types::{CallId, Caller};

use crate::attached::Attached;
use crate::engine::{Asker, Engine, new_id};
use crate::reply::{Problem, ProblemKind, Reply};

/// How often it is looked whether somebody still waits.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The calls of one question.
pub(crate) struct Together<'a> {
    engine: &'a Engine,
    caller: &'a Caller,
    asker: Asker<'a>,
    going: Mutex<HashSet<CallId>>,
    is_over: AtomicBool,
}

impl<'a> Together<'a> {
    pub(crate) fn new(engine: &'a Engine, caller: &'a Caller, asker: Asker<'a>) -> Together<'a> {
        let (going, is_over) = (Mutex::default(), AtomicBool::new(false));
        Together { engine, caller, asker, going, is_over }
    }

    /// Does what makes the calls, and ends them if it is interrupted.
    pub(crate) fn make<T>(&self, calls: impl FnOnce() -> T) -> T {
        let Some(interrupt) = self.asker.interrupt else { return calls() };
        thread::scope(|scope| {
            // Where there can be no thread, what has begun goes on to its own end.
            let watch = || self.watch(interrupt);
            let watching =
                thread::Builder::new().name("interrupt".into()).spawn_scoped(scope, watch);
            let made = calls();
            self.is_over.store(true, Ordering::SeqCst);
            watching.iter().for_each(|watching| watching.thread().unpark());
            made
        })
    }

    /// One of the calls, with the contents that go along with it.
    pub(crate) fn call(&self, request: Request, attached: Attached<'_>) -> Reply {
        let id = new_id();
        if self.asker.interrupt.is_some_and(|interrupt| interrupt.load(Ordering::SeqCst)) {
            let (what, why) = ("this was not begun", "nobody waits for it any more");
            let reply = Reply::failed(id, Problem::new(what, why, "").of(ProblemKind::Busy));
            return self.engine.unjudged(self.caller, &request.tool, reply);
        }
        self.going().insert(id);
        let Asker { interrupt, from } = self.asker.clone();
        let Attached { files, stdin, .. } = attached;
        let attached =
            Attached { id: Some(id), interrupt, from, files, stdin, ..Attached::default() };
        let reply = self.engine.guarded(self.caller, request, attached);
        self.going().remove(&id);
        reply
    }

    fn watch(&self, interrupt: &AtomicBool) {
        while !self.is_over.load(Ordering::SeqCst) {
            if interrupt.load(Ordering::SeqCst) {
                let going: Vec<CallId> = self.going().iter().copied().collect();
                // One that cannot be found has not begun yet, or has ended: the next look tells.
                going.into_iter().for_each(|id| drop(self.engine.cancel(self.caller, id)));
            }
            thread::park_timeout(LOOK_EVERY);
        }
    }

    fn going(&self) -> MutexGuard<'_, HashSet<CallId>> {
        self.going.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
