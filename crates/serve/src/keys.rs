//! Who comes in. The only place in which the server hears of keys: whatever can tell whose a text is can
//! stand behind it.

use std::fmt;
use std::num::NonZeroU32;

use hotcell_access::{Rate, Scopes};
use hotcell_api::Problem;
use hotcell_engine::{Admitted, Engine, NotAdmitted};
use hotcell_record::now;
use hotcell_types::{Caller, Door};

/// Tells whose a key is.
pub trait Keys: Send + Sync + fmt::Debug {
    fn check(&self, presented: &str) -> Result<Identity, Refused>;

    /// The same where that needs no waiting. Who cannot tell says nothing, and is asked again, on a thread
    /// that may wait.
    fn check_at_once(&self, _presented: &str) -> Option<Result<Identity, Refused>> {
        None
    }

    /// Whether there is anybody who could come in.
    fn has_any(&self) -> bool;
}

/// Whom a key has let in.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The key's id, which is no secret.
    pub key: String,
    pub caller: Caller,
    pub scopes: Scopes,
    pub rate: Option<Rate>,
    /// Most requests at one time.
    pub concurrent: Option<NonZeroU32>,
}

/// Why nobody was let in.
#[derive(Debug, Clone)]
pub enum Refused {
    /// Whoever asks hears no more than that.
    Worthless,
    /// Nobody can say, which is not the fault of whoever asks.
    Failed(Problem),
}

/// The keys of a home: `hotcell key`.
impl Keys for Engine {
    fn check(&self, presented: &str) -> Result<Identity, Refused> {
        identity(self.check_key(presented, Door::Rest, now()))
    }

    fn check_at_once(&self, presented: &str) -> Option<Result<Identity, Refused>> {
        self.check_key_at_once(presented, Door::Rest, now()).map(identity)
    }

    fn has_any(&self) -> bool {
        // Who cannot be asked will say so when somebody comes.
        self.has_keys().unwrap_or(true)
    }
}

fn identity(admitted: Result<Admitted, NotAdmitted>) -> Result<Identity, Refused> {
    match admitted {
        Ok(admitted) => Ok(Identity {
            key: admitted.key.to_string(),
            caller: admitted.caller,
            scopes: admitted.scopes,
            rate: admitted.rate,
            concurrent: admitted.concurrent,
        }),
        Err(NotAdmitted::Refused(_)) => Err(Refused::Worthless),
        Err(NotAdmitted::Failed(problem)) => Err(Refused::Failed(problem.into())),
    }
}
