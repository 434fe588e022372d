//! Keys as they are stored.

use std::fmt;
use std::num::NonZeroU32;

use hotcell_types::{Name, Span};

use crate::id::KeyId;
use crate::scope::Scopes;
use crate::statement::Digest;

/// Most requests in a second, in a burst and at one time that a key can be given.
pub const MAX_NUMBER: u32 = 1_000_000;

/// What a key is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct New {
    /// For people, who can have several of one name.
    pub name: Name,
    pub tenant: Name,
    pub subject: Name,
    pub scopes: Scopes,
    /// Until it is revoked, if nobody says.
    pub life: Option<Span>,
    pub rate: Option<Rate>,
    /// Most requests at one time.
    pub concurrent: Option<NonZeroU32>,
}

/// How often it may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    pub per_second: NonZeroU32,
    /// How many at once, after a rest.
    pub burst: NonZeroU32,
}

/// A key, and what became of it. The text is not in it.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Key {
    /// 1, 2, 3 … of the home.
    pub number: u64,
    pub id: KeyId,
    pub name: Name,
    pub tenant: Name,
    pub subject: Name,
    pub scopes: Scopes,
    pub rate: Option<Rate>,
    pub concurrent: Option<NonZeroU32>,
    pub created: i64,
    pub expires: Option<i64>,
    pub revoked: Option<i64>,
    /// About when, to the minute. The chain does not vouch for that.
    pub used: Option<i64>,
    /// How often the row was changed, its making included.
    pub changes: u64,
    /// Of the secret.
    pub(crate) digest: Digest,
}

/// What it is good for at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Good,
    Expired,
    Revoked,
}

impl State {
    pub fn name(self) -> &'static str {
        match self {
            State::Good => "good",
            State::Expired => "expired",
            State::Revoked => "revoked",
        }
    }
}

impl Key {
    pub fn state(&self, now: i64) -> State {
        if self.revoked.is_some() {
            return State::Revoked;
        }
        if self.expires.is_some_and(|expires| expires <= now) {
            State::Expired
        } else {
            State::Good
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key")
            .field("id", &self.id)
            .field("name", &self.name)
            .field("tenant", &self.tenant)
            .field("subject", &self.subject)
            .field("scopes", &self.scopes)
            .finish_non_exhaustive()
    }
}
