//! The same key is the same call, however often it is sent. Of those that come to this process at once, one
//! goes on and the others get its reply; of those that come to several processes, one claims the key with its
//! intent. Whoever comes later gets what was replied then, or hears that nobody knows what became of it: a
//! call that was begun under a key is never begun again.
//!
//! A call that changes nothing has no intent, and claims nothing: one that is sent again may be carried out
//! again.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use hotcell_ledger::Role;
use hotcell_once::{self as once, Claim, Digest, Whose};
use hotcell_record::{Durability, ReadError, Redactor, WriteError};
use hotcell_request::Call;
use hotcell_types::{CallId, SomeLimits, Status};
use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::artifacts::not_read;
use crate::attached::Attached;
use crate::engine::Engine;
use crate::path::{Done, not_recorded};
use crate::reply::{Problem, ProblemKind, Registered, Reply};
use crate::show::artifacts_of;
use crate::story::Story;

/// How often the record is asked about a call that another process carries out: soon at first.
const STEPS: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(100));

/// A key that a call is made under, and what is asked for under it.
#[derive(Debug, Clone)]
pub(crate) struct Once {
    whose: Whose,
    digest: Digest,
}

impl Once {
    pub(crate) fn of(call: &Call) -> Option<Once> {
        let (caller, key) = (call.caller(), call.key()?.as_str().to_owned());
        let (tenant, subject) = (caller.tenant.clone(), caller.subject.clone());
        let mut hash = Sha256::new();
        hash.update(call.name().to_string());
        hash.update([0]);
        hash.update(call.args_digest().as_bytes());
        let whose = Whose { tenant, subject, key };
        Some(Once { whose, digest: hash.finalize().into() })
    }

    /// Whether it is this call's from now on, in the transaction of its intent.
    pub(crate) fn claim(
        &self,
        tx: &once::Transaction<'_>,
        call: CallId,
        now: i64,
    ) -> Result<bool, once::Error> {
        Ok(once::claim(tx, &self.whose, self.digest, call, now)?.is_none())
    }
}

/// Calls with a key that this process carries out.
#[derive(Debug, Default)]
pub(crate) struct Flights {
    all: Mutex<HashMap<Whose, Arc<Flight>>>,
}

#[derive(Debug)]
struct Flight {
    digest: Digest,
    state: Mutex<State>,
    landed: Condvar,
}

#[derive(Debug, Clone)]
enum State {
    Flying,
    /// Boxed, since few come for it.
    Landed(Box<Reply>),
    /// It was given up: whoever waited for it goes on by itself.
    Lost,
}

/// The one call that goes on. Dropped, it lets another one.
struct Pilot<'a> {
    flights: &'a Flights,
    whose: &'a Whose,
    flight: Arc<Flight>,
}

impl Flights {
    /// A pilot, or the flight to wait for.
    fn enter<'a>(&'a self, once: &'a Once) -> Result<Pilot<'a>, Arc<Flight>> {
        match lock(&self.all).entry(once.whose.clone()) {
            Entry::Occupied(flight) => Err(Arc::clone(flight.get())),
            Entry::Vacant(place) => {
                let (digest, state) = (once.digest, Mutex::new(State::Flying));
                let flight = Arc::new(Flight { digest, state, landed: Condvar::new() });
                place.insert(Arc::clone(&flight));
                Ok(Pilot { flights: self, whose: &once.whose, flight })
            }
        }
    }
}

impl Flight {
    /// What became of it until then.
    fn wait(&self, until: Instant) -> State {
        let is_flying = |state: &mut State| matches!(state, State::Flying);
        let left = until.saturating_duration_since(Instant::now());
        let waited = self.landed.wait_timeout_while(lock(&self.state), left, is_flying);
        waited.unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    fn end(&self, end: State) {
        let mut state = lock(&self.state);
        if matches!(*state, State::Flying) {
            *state = end;
        }
        drop(state);
        self.landed.notify_all();
    }
}

impl Drop for Pilot<'_> {
    fn drop(&mut self) {
        lock(&self.flights.all).remove(self.whose);
        self.flight.end(State::Lost);
    }
}

/// What becomes of a claim when its call ends.
#[derive(Debug)]
pub(crate) enum Ending {
    Keep(String),
    /// Nothing was done: the key is for whoever tries again.
    Release,
}

impl Ending {
    /// Of a call that was begun under a key.
    pub(crate) fn of(
        call: &Call,
        story: &Story<'_>,
        done: &Done,
        hidden: &Redactor,
    ) -> Option<Ending> {
        call.key()?;
        let is_unmade = |problem: &Problem| {
            matches!(problem.kind, ProblemKind::Busy | ProblemKind::Refused) && done.run.is_none()
        };
        if done.problem.as_ref().is_some_and(is_unmade) {
            return Some(Ending::Release);
        }
        let problems: Vec<&Problem> = done.problem.iter().collect();
        let of = |value: Option<&serde_json::Value>, problems: &[&Problem]| {
            let reply = json!({
                "status": done.status, "value": value, "problems": problems, "rules": story.rules(),
            });
            hidden.redact_json(&reply).to_string()
        };
        let whole = of(done.value.as_ref(), &problems);
        if whole.len() <= once::MAX_REPLY {
            return Some(Ending::Keep(whole));
        }
        let why = format!("it has {} bytes, and {} is the most", whole.len(), once::MAX_REPLY);
        let fix = format!("`hotcell runs show {}` tells what is known of it", call.id());
        let large = Problem::new("what was replied is too large to be replied again", why, fix);
        Some(Ending::Keep(of(None, &[&large])))
    }

    /// With the outcome. What cannot be kept is told from the record instead, so that this stops nothing.
    pub(crate) fn write(self, tx: &once::Transaction<'_>, call: CallId) {
        match self {
            Ending::Keep(reply) => once::keep(tx, call, &reply),
            Ending::Release => once::release(tx, call),
        }
        .ok();
    }
}

impl Engine {
    /// Carries a call out, unless that was done, or is being done, under its key.
    pub(crate) fn once(
        &self,
        call: &Call,
        once: &Once,
        asked: &SomeLimits,
        attached: Attached<'_>,
    ) -> Reply {
        let until = Instant::now() + call.timeout().duration();
        let pilot = loop {
            let flight = match self.flights.enter(once) {
                Ok(pilot) => break pilot,
                Err(flight) => flight,
            };
            if flight.digest != once.digest {
                return self.unjudged(
                    call.caller(),
                    call.name(),
                    Reply::failed(call.id(), drifted()),
                );
            }
            match flight.wait(until) {
                State::Landed(reply) => return Reply { again: true, ..*reply },
                State::Lost => {}
                State::Flying => return Reply::failed(call.id(), goes_on()),
            }
        };
        let reply = self.first_of_its_key(call, once, until, asked, attached);
        let reply = reply.unwrap_or_else(|problem| {
            self.unjudged(call.caller(), call.name(), Reply::failed(call.id(), problem))
        });
        pilot.flight.end(State::Landed(Box::new(reply.clone())));
        reply
    }

    fn first_of_its_key(
        &self,
        call: &Call,
        once: &Once,
        until: Instant,
        asked: &SomeLimits,
        attached: Attached<'_>,
    ) -> Result<Reply, Problem> {
        if let Some(claim) = self.claim(once)? {
            return self.replied_before(call, once, claim, until);
        }
        let reply = self.judged(call, None, asked, attached);
        if !reply.is_unspent {
            return Ok(reply);
        }
        // Another process may have been first.
        match self.claim(once)?.filter(|claim| claim.call != call.id()) {
            Some(claim) => self.replied_before(call, once, claim, until),
            None => Ok(reply),
        }
    }

    fn claim(&self, once: &Once) -> Result<Option<Claim>, Problem> {
        let found =
            self.recording()?.look(|conn| once::find(conn, &once.whose).map_err(Look::from));
        found.map_err(|error| {
            let fix = "`hotcell audit verify` says more";
            Problem::new("the record cannot be read", error.to_string(), fix)
        })
    }

    /// The reply of the call that has the key, when there is one.
    fn replied_before(
        &self,
        call: &Call,
        once: &Once,
        mut claim: Claim,
        until: Instant,
    ) -> Result<Reply, Problem> {
        let (mut step, longest) = STEPS;
        loop {
            if claim.digest != once.digest {
                return Err(drifted());
            }
            let kept = claim.reply.as_deref().and_then(|kept| Reply::again(claim.call, kept));
            if let Some(reply) = kept {
                let artifacts = artifacts_of(self.recording()?, call.caller(), claim.call);
                let mut artifacts = artifacts.map_err(|error| not_read(&error))?;
                // What it made comes first.
                artifacts.sort_by_key(|one| matches!(one.role, Role::Script | Role::Input));
                let artifacts = artifacts.iter().map(Registered::from).collect();
                return Ok(Reply { artifacts, again: true, ..reply });
            }
            // Also if its process has ended.
            self.recording()?.recover().map_err(|error| not_recorded(&error))?;
            let shown = self.show(call.caller(), claim.call)?;
            let is_over = shown.end.is_some();
            // What is kept came with the end, and perhaps after the first look.
            claim = match self.claim(once)? {
                Some(newer) if is_over && newer.call == claim.call && newer.reply.is_none() => {
                    return Ok(as_recorded(&shown));
                }
                Some(newer) => newer,
                None => return Err(goes_on()),
            };
            if !is_over {
                if Instant::now() + step >= until {
                    return Err(goes_on());
                }
                thread::sleep(step);
                step = longest.min(step * 2);
            }
        }
    }

    /// Gives up keys of calls from before this time, of which nobody is carried out any more. None that is
    /// younger than a day.
    pub(crate) fn forget_keys(&self, before: i64) -> Result<(), Problem> {
        let before = before.min(hotcell_record::now().saturating_sub(once::KEPT));
        loop {
            let pruned = self.recording()?.write(Durability::Synced, move |tx| {
                Ok::<_, once::Error>((once::prune(tx, before)?, Vec::new()))
            });
            let (count, _) = pruned.map_err(|error| match error {
                WriteError::Own(error) => not_recorded(&error),
                WriteError::Append(error) => not_recorded(&error),
            })?;
            if count < once::MAX_REMOVED {
                return Ok(());
            }
        }
    }
}

/// What the record has of a call whose reply was not kept.
fn as_recorded(shown: &crate::show::Shown) -> Reply {
    let fix = format!("`hotcell runs show {}` tells what is known of it", shown.id);
    let (status, problem) = match shown.status().unwrap_or(Status::Unknown) {
        Status::Unknown => {
            let fix = format!("{fix}; if it was not done, ask again under another key");
            let why = "whoever carried it out ended before it did, and it is not done twice";
            (Status::Unknown, Problem::new("nobody knows what became of the call", why, fix))
        }
        status => {
            (status, Problem::new("what was replied is not there any more", "it was not kept", fix))
        }
    };
    let value = shown.result.value().and_then(|result| result.get("value")).cloned();
    Reply { value, problems: vec![problem], again: true, ..Reply::new(shown.id, status) }
}

#[derive(Debug, thiserror::Error)]
enum Look {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Once(#[from] once::Error),
}

/// The key was used for something else.
fn drifted() -> Problem {
    let why = "the same key is the same call, and that one had another tool or other arguments";
    let fix = "give each call a key of its own, and send it again as it was";
    let problem =
        Problem::new("the key is that of another call", why, fix).of(ProblemKind::Conflict);
    Problem { at: "/key".into(), ..problem }
}

/// Nobody can say yet what becomes of it.
pub(crate) fn goes_on() -> Problem {
    let why = "a call with this key is being carried out, or was not begun";
    Problem::new("there is no reply yet", why, "ask again, under the same key")
        .of(ProblemKind::Busy)
}

/// There is no room for the key, or it cannot be written.
pub(crate) fn not_claimed(error: &once::Error) -> Problem {
    match error {
        once::Error::Full => {
            let problem =
                Problem::new("there is no room for the key", error.to_string(), "ask again later");
            problem.of(ProblemKind::Busy)
        }
        _ => not_recorded(error),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
