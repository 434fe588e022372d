//! API keys: made, listed and revoked by whoever is at the machine, and checked for whoever comes through a
//! server's door. None exist until somebody makes one.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hotcell_access::{self as access, Change, Key, KeyId, Keys, New, Rate, Refused, Scopes, Shown};
use hotcell_bearer::{self as bearer, MAX_TIME, Moment, Transaction};
use hotcell_record::{Draft, Durability, Hex, Kind, ReadError, Record, Stated, WriteError, now};
use hotcell_types::{Caller, Decision, Door, Name, Status};

use crate::engine::Engine;
use crate::path::not_recorded;
use crate::reply::{Problem, ProblemKind};
use crate::weigh::moment;

/// How often it is written down which keys were used, at most.
const NOTED_EVERY: Duration = Duration::from_secs(60);

/// What can be asked about keys. Whoever belongs to the home's own tenant, `local`, is its operator and can
/// ask about the keys of all tenants; everybody else about those of their own.
#[derive(Debug)]
pub enum KeyAsk {
    Create(Box<New>),
    Revoke(KeyId),
    /// Those with higher numbers than that, in their order, [`access::MAX_PAGE`] at most; of one tenant, or
    /// of all.
    List {
        tenant: Option<Name>,
        after: u64,
        limit: usize,
    },
}

#[derive(Debug)]
pub enum KeyAnswer {
    /// The text is nowhere else, and is never told again.
    Created {
        text: Shown,
        key: Box<Key>,
    },
    /// Whether it was not revoked before.
    Revoked(bool),
    Listed(Vec<Key>),
}

/// Whom a key has let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admitted {
    pub key: KeyId,
    pub caller: Caller,
    pub scopes: Scopes,
    pub rate: Option<Rate>,
    /// Most requests at one time.
    pub concurrent: Option<NonZeroU32>,
    pub expires: Option<i64>,
}

/// Why somebody was not let in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAdmitted {
    /// The key is worth nothing. To strangers all of these are one answer.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// Nobody can say: whoever asks is not let in, and it is not their fault.
    #[error(transparent)]
    Failed(Problem),
}

/// What an engine remembers of keys, to ask for as little as it can.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    seen: Mutex<Option<Seen>>,
    /// The latest time that a key was checked at: it never becomes earlier.
    latest: AtomicI64,
    uses: Mutex<Uses>,
}

/// All keys, as they were when they were last found to have changed.
#[derive(Debug, Clone)]
struct Seen {
    keys: Arc<Keys>,
    /// The home's time then, and for how long the system had been up.
    time: i64,
    uptime: i64,
}

#[derive(Debug, Default)]
struct Uses {
    /// Those that are not written down yet.
    last: HashMap<KeyId, i64>,
    /// One had expired. That is remembered, so that no clock that is set back makes it good again.
    has_expired: bool,
    noted: Option<Instant>,
}

impl KeyAsk {
    fn operation(&self) -> &'static str {
        match self {
            KeyAsk::Create(_) => "key.create",
            KeyAsk::Revoke(_) => "key.revoke",
            KeyAsk::List { .. } => "key.list",
        }
    }
}

impl Engine {
    /// What is refused here is on the disk before it is told.
    pub(crate) fn ask_key(&self, caller: &Caller, ask: KeyAsk) -> Result<KeyAnswer, Problem> {
        let operation = ask.operation();
        let answer = may_ask(caller, &ask).and_then(|()| self.answer_about_keys(caller, ask));
        answer.map_err(|problem| {
            if problem.kind != ProblemKind::Blocked {
                return problem;
            }
            let mut draft = Draft::new(Kind::Denied, caller.clone(), now());
            draft.operation = Some(operation.to_owned());
            draft.reason = Some(problem.to_string());
            draft.decision = Some(Decision::Deny);
            draft.status = Some(Status::Blocked);
            self.record_now(draft).err().unwrap_or(problem)
        })
    }

    fn answer_about_keys(&self, caller: &Caller, ask: KeyAsk) -> Result<KeyAnswer, Problem> {
        match ask {
            KeyAsk::Create(new) => {
                let made = self.change_keys(caller, move |tx, time| {
                    // Whoever makes one removes those that ended long ago.
                    let mut changes = access::remove_ended(tx, time)?;
                    let (text, key, change) = access::create(tx, *new, time)?;
                    changes.push(change);
                    Ok(((text, Box::new(key)), changes))
                });
                made.map(|(text, key)| KeyAnswer::Created { text, key })
            }
            KeyAsk::Revoke(id) => {
                let own = own(caller);
                let revoked = self.change_keys(caller, move |tx, time| {
                    let change = access::revoke(tx, own.as_ref(), id, time)?;
                    Ok((change.is_some(), change.into_iter().collect()))
                });
                revoked.map(KeyAnswer::Revoked)
            }
            KeyAsk::List { tenant, after, limit } => {
                self.note_uses(Instant::now()).ok();
                let of = tenant.or_else(|| own(caller));
                let listed = self
                    .recording()?
                    .look(|conn| access::list(conn, of.as_ref(), after, limit).map_err(Look::from));
                listed.map(KeyAnswer::Listed).map_err(|error| not_looked_up(&error))
            }
        }
    }

    /// Rows and what the chain says of them, on the disk.
    fn change_keys<T: Send + 'static>(
        &self,
        caller: &Caller,
        change: impl FnOnce(&Transaction<'_>, i64) -> Result<(T, Vec<Change>), Unchanged>
        + Send
        + 'static,
    ) -> Result<T, Problem> {
        let moment = moment(now())?;
        let by = caller.clone();
        let written = self.recording()?.write(Durability::Synced, move |tx| {
            let time = bearer::advance(tx, &moment)?;
            let (value, changes) = change(tx, time)?;
            let told = changes.iter().map(|change| of_key(change, &by, moment.clock)).collect();
            Ok((value, told))
        });
        written.map(|(value, _)| value).map_err(not_changed)
    }

    /// Whom a key lets in. What another process has revoked by the time that this is called lets nobody in:
    /// each check asks the database for one number, and for the keys only if that is another than before.
    /// `clock` is what the caller's clock says; that it is set back does not make anything good again.
    pub fn check_key(&self, text: &str, door: Door, clock: i64) -> Result<Admitted, NotAdmitted> {
        let moment = moment(clock).map_err(NotAdmitted::Failed)?;
        let seen = self.see_keys(&moment).map_err(NotAdmitted::Failed)?;
        let admitted = self.admit(text, door, &seen, &moment);
        // What cannot be written down is nothing to turn anybody away for.
        self.note_uses_in_time(Instant::now()).ok();
        admitted
    }

    /// The same, if it can be told without waiting for anything or anybody: for threads that must not. The
    /// first check of all, one after keys have changed, and now and then another tell nothing here.
    pub fn check_key_at_once(
        &self,
        text: &str,
        door: Door,
        clock: i64,
    ) -> Option<Result<Admitted, NotAdmitted>> {
        let moment = moment(clock).ok()?;
        let seen = self.gate.seen.try_lock().ok()?.clone()?;
        let record = self.record_at_once()?;
        let is_current = record.glance(|conn| seen.keys.are_current(conn))?;
        let is_noted = self.gate.is_noted(Instant::now());
        (is_current && is_noted).then(|| self.admit(text, door, &seen, &moment))
    }

    fn admit(
        &self,
        text: &str,
        door: Door,
        seen: &Seen,
        moment: &Moment,
    ) -> Result<Admitted, NotAdmitted> {
        let time = self.gate.time(seen, moment).ok_or_else(|| NotAdmitted::Failed(no_time()))?;
        let checked = seen.keys.check(text, time);
        match &checked {
            Ok(key) => drop(self.gate.uses().last.insert(key.id, time)),
            Err(Refused::Expired) => self.gate.uses().has_expired = true,
            Err(_) => {}
        }
        let key = checked?;
        let Key { id, tenant, subject, scopes, rate, concurrent, expires, .. } = &**key;
        let caller = Caller { tenant: tenant.clone(), subject: subject.clone(), door };
        let (rate, concurrent, expires) = (*rate, *concurrent, *expires);
        Ok(Admitted { key: *id, caller, scopes: *scopes, rate, concurrent, expires })
    }

    /// Whether anybody could be let in at all.
    pub fn has_keys(&self) -> Result<bool, Problem> {
        Ok(!self.see_keys(&moment(now())?)?.keys.is_empty())
    }

    /// All keys as they are now. One after the other, so that it takes one connection: who waits here waits
    /// for less time than it takes to make another.
    fn see_keys(&self, moment: &Moment) -> Result<Seen, Problem> {
        let record = self.recording()?;
        let mut seen = lock(&self.gate.seen);
        let newest = record.look(|conn| -> Result<Option<Seen>, Look> {
            if let Some(seen) = &*seen
                && seen.keys.are_current(conn)?
            {
                return Ok(None);
            }
            let (keys, time) = (Arc::new(Keys::load(conn)?), bearer::now(conn, moment)?);
            Ok(Some(Seen { keys, time, uptime: moment.uptime }))
        });
        match newest.map_err(|error| not_looked_up(&error))? {
            Some(newest) => Ok(seen.insert(newest).clone()),
            None => seen.clone().ok_or_else(no_time),
        }
    }

    fn note_uses_in_time(&self, now: Instant) -> Result<(), Problem> {
        if self.gate.is_noted(now) { Ok(()) } else { self.note_uses(now) }
    }

    /// Writes down when keys were used last, and with it what time it is by now.
    pub(crate) fn note_uses(&self, now: Instant) -> Result<(), Problem> {
        let mut uses = self.gate.uses();
        uses.noted = Some(now);
        let last = std::mem::take(&mut uses.last);
        let has_expired = std::mem::take(&mut uses.has_expired);
        drop(uses);
        if last.is_empty() && !has_expired {
            return Ok(());
        }
        let moment = moment(hotcell_record::now())?;
        let written = self.recording()?.write(Durability::Committed, move |tx| {
            bearer::advance(tx, &moment)?;
            access::used(tx, last)?;
            Ok::<_, Unchanged>(((), Vec::new()))
        });
        written.map(drop).map_err(not_changed)
    }
}

impl Gate {
    /// What time it is: no earlier than the clock says, than it was in this home, and than it ever was here.
    /// `None` if that is no time.
    fn time(&self, seen: &Seen, moment: &Moment) -> Option<i64> {
        let passed = moment.uptime.saturating_sub(seen.uptime).max(0);
        let time = moment.clock.max(seen.time.saturating_add(passed));
        if !(0..=MAX_TIME).contains(&time) {
            return None;
        }
        Some(self.latest.fetch_max(time, Ordering::Relaxed).max(time))
    }

    fn uses(&self) -> MutexGuard<'_, Uses> {
        lock(&self.uses)
    }

    /// Whether uses were written down a short while ago.
    fn is_noted(&self, now: Instant) -> bool {
        let is_soon = |noted: Instant| now.saturating_duration_since(noted) < NOTED_EVERY;
        self.uses().noted.is_some_and(is_soon)
    }
}

/// Makes keys of a home worth nothing that was put in the place of another: what was revoked since it was
/// copied would be good again.
pub(crate) fn revoke_restored(record: &Record, caller: &Caller) -> Result<(), Problem> {
    let (moment, by) = (moment(now())?, caller.clone());
    let written = record.write(Durability::Synced, move |tx| {
        if !access::is_current(tx)? {
            return Ok(((), Vec::new()));
        }
        let time = bearer::advance(tx, &moment)?;
        let changes = access::revoke_all(tx, time)?;
        let told = changes.iter().map(|change| of_key(change, &by, moment.clock)).collect();
        Ok::<_, Unchanged>(((), told))
    });
    written.map(drop).map_err(not_changed)
}

/// A change of a key, as the chain tells it.
fn of_key(change: &Change, by: &Caller, time: i64) -> Draft {
    let mut draft = Draft::new(Kind::BearerChanged, by.clone(), time);
    draft.operation = Some(change.what.operation().to_owned());
    draft.bearer = Some(change.id.to_string());
    draft.reason = Some(change.reason());
    let (row, digest) = (change.statement.row().to_owned(), Hex(change.statement.digest()));
    let length = change.statement.bytes().len() as u64;
    draft.stated = Some(Stated { row, digest, length });
    draft
}

/// The only tenant whose keys a caller can ask about.
fn own(caller: &Caller) -> Option<Name> {
    (caller.tenant != Name::LOCAL).then(|| caller.tenant.clone())
}

/// Who comes in with a key never gets another one.
fn may_ask(caller: &Caller, ask: &KeyAsk) -> Result<(), Problem> {
    let what = "keys are not for everybody to make";
    let fix = "have somebody do it at the command line: `hotcell key`";
    if !matches!(caller.door, Door::Cli | Door::Library) {
        let why = format!(
            "who comes through `{}` may use a key, and not make or change one",
            caller.door
        );
        return Err(Problem::new(what, why, fix).of(ProblemKind::Blocked));
    }
    let of = match ask {
        KeyAsk::Create(new) => Some(&new.tenant),
        KeyAsk::List { tenant, .. } => tenant.as_ref(),
        KeyAsk::Revoke(_) => None,
    };
    match (of, own(caller)) {
        (Some(of), Some(own)) if *of != own => {
            let why =
                format!("`{own}` is not the operator of this home, and `{of}` is another tenant");
            Err(Problem::new(what, why, fix).of(ProblemKind::Blocked))
        }
        _ => Ok(()),
    }
}

/// Why keys could not be looked at.
#[derive(Debug, thiserror::Error)]
enum Look {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Access(#[from] access::Error),
    #[error(transparent)]
    Time(#[from] bearer::Error),
}

/// Why nothing was changed.
#[derive(Debug, thiserror::Error)]
enum Unchanged {
    #[error(transparent)]
    Access(#[from] access::Error),
    #[error(transparent)]
    Time(#[from] bearer::Error),
}

fn not_looked_up(error: &Look) -> Problem {
    Problem::new("keys cannot be read", error.to_string(), "`hotcell audit verify` says more")
}

fn not_changed(error: WriteError<Unchanged>) -> Problem {
    let error = match error {
        WriteError::Own(error) => error,
        WriteError::Append(error) => return not_recorded(&error),
    };
    let problem = |what: &str, fix: &str| Problem::new(what, error.to_string(), fix);
    match &error {
        Unchanged::Access(access::Error::NoKey(_)) => {
            problem("there is no such key", "`hotcell key ls` lists them").of(ProblemKind::NotFound)
        }
        Unchanged::Access(access::Error::Impossible(_)) => {
            problem("there is no key like this", "ask for another").of(ProblemKind::Invalid)
        }
        Unchanged::Access(access::Error::Full { .. }) => {
            problem("there is no room for it", "revoke keys that nobody uses").of(ProblemKind::Busy)
        }
        Unchanged::Access(_) => {
            problem("keys cannot be changed", "`hotcell audit verify` says more")
        }
        Unchanged::Time(_) => problem("keys cannot be changed", "set the clock right"),
    }
}

fn no_time() -> Problem {
    let why = "the clock is far off (before 1970, or after 2199)";
    Problem::new("keys cannot be checked", why, "set the clock right")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
