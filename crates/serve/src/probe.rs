//! What needs no key: whether the process answers, and whether it could do what it is there for. Neither
//! tells anything about anybody, and both are cheap however often they are asked.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hotcell_engine::Engine;
use schemars::JsonSchema;
use serde::Serialize;

/// How long an answer is good for.
const GOOD_FOR: Duration = Duration::from_secs(1);
/// How long one may take. A disk that hangs is one that cannot be written.
pub(crate) const LONGEST: Duration = Duration::from_secs(2);

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Health {
    /// `ok`.
    pub(crate) status: &'static str,
}

/// Whether a call that comes now could be recorded and run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct Ready {
    pub(crate) ready: bool,
    /// `ok`, or `not writable`.
    pub(crate) record: &'static str,
    /// `ok`, or `refused`.
    pub(crate) sandbox: &'static str,
    /// `ok`, or what keeps it from deciding anything.
    pub(crate) policy: String,
    /// The level that runs have here.
    pub(crate) level: Option<&'static str>,
    /// The socket through which commands of this user come in: `ok`, or `does not answer`.
    pub(crate) socket: Option<&'static str>,
    /// It is about to end, and takes nothing new.
    pub(crate) stopping: bool,
}

impl Ready {
    /// Nobody knows in time.
    pub(crate) fn unknown(stopping: bool) -> Ready {
        let (record, sandbox) = ("not writable", "refused");
        let policy = "not known".to_owned();
        Ready { ready: false, record, sandbox, policy, level: None, socket: None, stopping }
    }
}

/// Another door of the same process, and whether it can be come through.
#[derive(Clone)]
pub struct Socket(Arc<dyn Fn() -> bool + Send + Sync>);

impl Socket {
    /// `answers` tries it.
    pub fn new(answers: impl Fn() -> bool + Send + Sync + 'static) -> Socket {
        Socket(Arc::new(answers))
    }
}

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Socket").finish_non_exhaustive()
    }
}

/// What was found last, so that it is not looked for with every question.
#[derive(Debug, Default)]
pub(crate) struct Probe {
    pub(crate) socket: Option<Socket>,
    last: Mutex<Option<(Instant, Ready)>>,
    /// Held by whoever looks.
    looking: tokio::sync::Mutex<()>,
}

impl Probe {
    pub(crate) async fn ready(&self, engine: &Arc<Engine>, stopping: bool) -> Ready {
        let look = async {
            let _looking = self.looking.lock().await;
            if let Some(known) = self.known() {
                return known;
            }
            let (engine, socket) = (Arc::clone(engine), self.socket.clone());
            let look = move || look(&engine, socket.as_ref());
            let found = tokio::task::spawn_blocking(look).await;
            let found = found.unwrap_or(Ready::unknown(false));
            *self.last.lock().unwrap_or_else(PoisonError::into_inner) =
                Some((Instant::now(), found.clone()));
            found
        };
        match tokio::time::timeout(LONGEST, look).await {
            Ok(found) => Ready { stopping, ready: found.ready && !stopping, ..found },
            Err(_) => Ready::unknown(stopping),
        }
    }

    fn known(&self) -> Option<Ready> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let known = last.as_ref().filter(|(when, _)| when.elapsed() < GOOD_FOR);
        known.map(|(_, ready)| ready.clone())
    }
}

fn look(engine: &Engine, socket: Option<&Socket>) -> Ready {
    let health = engine.health();
    let record = if health.record.is_ok() { "ok" } else { "not writable" };
    let sandbox = if health.sandbox.is_ok() { "ok" } else { "refused" };
    // Whoever asks has no key: what is wrong is one of a few sentences, and why is for those who have one.
    let policy = health.policy.as_ref().map_or_else(|problem| &*problem.what, |()| "ok").to_owned();
    let level = health.sandbox.as_ref().ok().map(|level| level.name());
    let answers = socket.is_none_or(|Socket(answers)| answers());
    let socket = socket.map(|_| if answers { "ok" } else { "does not answer" });
    let works = health.record.is_ok() && health.sandbox.is_ok() && health.policy.is_ok();
    let ready = works && answers;
    Ready { ready, record, sandbox, policy, level, socket, stopping: false }
}
