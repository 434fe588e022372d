//! Calls that go on in this process, for whoever wants one of them to end.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hotcell_request::Call;
use hotcell_sandbox::Handle;
use hotcell_schedule::Canceller;
use hotcell_types::{CallId, Caller, Name};

use crate::engine::Engine;
use crate::reply::{Problem, ProblemKind};

#[derive(Debug, Default)]
pub(crate) struct UnderWay {
    /// By each name under which one can be ended.
    calls: Mutex<HashMap<CallId, (Name, Arc<Rope>)>>,
}

/// By which a call is pulled back, wherever it is.
#[derive(Debug, Default)]
pub(crate) struct Rope {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    is_pulled: bool,
    holds: Hold,
}

/// What ends the call where it is now.
#[derive(Debug, Default)]
enum Hold {
    /// It waits for something that ends by itself, and looks at the rope then.
    #[default]
    Nothing,
    Waiting(Canceller),
    Running(Handle),
}

/// Until it is dropped, the call can be found.
pub(crate) struct Findable<'a> {
    all: &'a UnderWay,
    names: [CallId; 2],
    pub(crate) rope: Arc<Rope>,
}

impl UnderWay {
    /// `asked` is the name that its door has for what it asks for. A call that somebody agreed to keeps the name
    /// that it had when it was put before them; who has it carried out now can end it by either.
    pub(crate) fn begin(&self, call: &Call, asked: Option<CallId>) -> Findable<'_> {
        let rope = Arc::<Rope>::default();
        let names = [call.id(), asked.unwrap_or_else(|| call.id())];
        let mut calls = self.lock();
        for name in names {
            calls.insert(name, (call.caller().tenant.clone(), Arc::clone(&rope)));
        }
        drop(calls);
        Findable { all: self, names, rope }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<CallId, (Name, Arc<Rope>)>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Findable<'_> {
    fn drop(&mut self) {
        let mut calls = self.all.lock();
        self.names.iter().for_each(|name| drop(calls.remove(name)));
    }
}

impl Rope {
    pub(crate) fn is_pulled(&self) -> bool {
        self.lock().is_pulled
    }

    pub(crate) fn waits(&self, canceller: Canceller) {
        self.hold(Hold::Waiting(canceller));
    }

    pub(crate) fn runs(&self, run: Handle) {
        self.hold(Hold::Running(run));
    }

    /// What was pulled before it was tied ends at once.
    fn hold(&self, hold: Hold) {
        let mut state = self.lock();
        state.holds = hold;
        if state.is_pulled {
            state.holds.end();
        }
    }

    fn pull(&self) {
        let mut state = self.lock();
        state.is_pulled = true;
        state.holds.end();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Hold {
    fn end(&self) {
        match self {
            Hold::Nothing => {}
            Hold::Waiting(canceller) => {
                canceller.cancel();
            }
            Hold::Running(run) => run.cancel(),
        }
    }
}

impl Engine {
    /// Ends a call of the same tenant that goes on in this process. Its own caller is told.
    pub(crate) fn cancel(&self, caller: &Caller, id: CallId) -> Result<(), Problem> {
        let found = self.under_way.lock().get(&id).cloned();
        match found.filter(|(tenant, _)| *tenant == caller.tenant) {
            Some((_, rope)) => {
                rope.pull();
                Ok(())
            }
            None => {
                let why = "it has ended, was never begun, or goes on in another process";
                let fix = format!("`hotcell runs show {id}` tells what became of it");
                let problem = Problem::new(format!("there is no call {id} to end"), why, fix);
                Err(problem.of(ProblemKind::NotFound))
            }
        }
    }
}
