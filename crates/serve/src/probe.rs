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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct Ready {
    pub(crate) ready: bool,
    /// `ok`, or `not writable`.
    pub(crate) record: &'static str,
    /// `ok`, or `refused`.
    pub(crate) sandbox: &'static str,
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
        Ready { ready: false, record, sandbox, level: None, socket: None, stopping }
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
                Some((Instant::now(), found));
            found
        };
        match tokio::time::timeout(LONGEST, look).await {
            Ok(found) => Ready { stopping, ready: found.ready && !stopping, ..found },
            Err(_) => Ready::unknown(stopping),
        }
    }

    fn known(&self) -> Option<Ready> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.filter(|(when, _)| when.elapsed() < GOOD_FOR).map(|(_, ready)| ready)
    }
}

fn look(engine: &Engine, socket: Option<&Socket>) -> Ready {
    let health = engine.health();
    let record = if health.record.is_ok() { "ok" } else { "not writable" };
    let sandbox = if health.sandbox.is_ok() { "ok" } else { "refused" };
    let level = health.sandbox.as_ref().ok().map(|level| level.name());
    let answers = socket.is_none_or(|Socket(answers)| answers());
    let socket = socket.map(|_| if answers { "ok" } else { "does not answer" });
    let ready = health.record.is_ok() && health.sandbox.is_ok() && answers;
    Ready { ready, record, sandbox, level, socket, stopping: false }
}
