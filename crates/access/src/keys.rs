//! All keys at one moment: what a server checks texts against, without asking the database for any.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use rusqlite::Connection;
use subtle::ConstantTimeEq;

use crate::error::Error;
use crate::id::KeyId;
use crate::key::{Key, State};
use crate::schema;
use crate::statement::Digest;
use crate::store;
use crate::text::{Malformed, Presented};

/// Every key that there was.
#[derive(Default)]
pub struct Keys {
    version: u64,
    by_id: HashMap<KeyId, Arc<Key>>,
}

/// Why a text opens nothing. A stranger is told no more than that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Told apart without a look at any key.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// There is no such id, or that is not its secret: nobody hears which.
    #[error("it is not known here")]
    Unknown,
    #[error("it has expired")]
    Expired,
    #[error("it was revoked")]
    Revoked,
}

/// How often keys were changed so far. As long as this stays the same, so do all keys.
pub fn version(conn: &Connection) -> Result<u64, Error> {
    // Without a key there is no table either.
    if schema::is_current(conn)? { Ok(store::mark(conn)?.0) } else { Ok(0) }
}

impl Keys {
    /// As they are at this moment.
    pub fn load(conn: &Connection) -> Result<Keys, Error> {
        if !schema::is_current(conn)? {
            return Ok(Keys::default());
        }
        let (version, _) = store::mark(conn)?;
        let all = store::select(conn, "ORDER BY number", [])?;
        Ok(Keys { version, by_id: all.into_iter().map(|key| (key.id, Arc::new(key))).collect() })
    }

    /// Whether these are still all that there is to know: one query, and a cheap one.
    pub fn are_current(&self, conn: &Connection) -> Result<bool, Error> {
        // What has been counted once has tables.
        let version = if self.version == 0 { version(conn)? } else { store::mark(conn)?.0 };
        Ok(version == self.version)
    }

    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// The key of a text. An id that is not known and a secret that is wrong take the same way to the same
    /// answer.
    pub fn check(&self, text: &str, now: i64) -> Result<&Arc<Key>, Refused> {
        /// No secret has it: it would have to be found.
        const NOBODY: Digest = [0; 32];
        let presented = Presented::read(text)?;
        let found = self.by_id.get(&presented.id());
        let kept = found.map_or(&NOBODY, |key| &key.digest);
        let is_same = bool::from(kept.ct_eq(presented.digest()));
        let key = found.filter(|_| is_same).ok_or(Refused::Unknown)?;
        match key.state(now) {
            State::Good => Ok(key),
            State::Expired => Err(Refused::Expired),
            State::Revoked => Err(Refused::Revoked),
        }
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keys({} at {})", self.by_id.len(), self.version)
    }
}
