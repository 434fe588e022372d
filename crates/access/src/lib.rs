//! API keys: who may come through a server's door, for whom and for what. None exist until somebody at the
//! machine makes one.
//!
//! [`create`] makes a key and shows its text, once: what is kept is a SHA-256 of a secret of 160 bits from
//! the kernel. That needs neither salt nor a slow function, which make up for what people think of: nobody
//! finds the secret by trying, however quick trying is. [`Keys`] is what a server checks texts against;
//! [`version`] tells, with one cheap query, whether that is still all there is to know. Everything that
//! changes a key gives back a [`Change`], which belongs into the chain in the same transaction.
//!
//! Times are nanoseconds since 1970, of a clock that never runs back: whose that is, is the caller's affair.

/// What rows are read from, and written in.
pub use rusqlite::{Connection, Transaction};

mod error;
mod id;
mod key;
mod keys;
mod schema;
mod scope;
mod statement;
mod store;
mod text;
mod verify;
mod write;

#[cfg(test)]
mod tests;

pub use error::Error;
pub use id::{BadKeyId, KeyId};
pub use key::{Key, MAX_NUMBER, New, Rate, State};
pub use keys::{Keys, Refused, version};
pub use schema::{is_current, migrate};
pub use scope::{BadScope, Scope, Scopes};
pub use statement::{Change, Digest, Statement, What};
pub use store::{MAX_PAGE, get, list};
pub use text::{Malformed, PREFIX, Presented, Shown, TEXT};
pub use verify::{Fault, Said};
pub use write::{
    KEPT_ENDED, MAX_KEYS, MAX_REMOVED, create, remove_ended, revoke, revoke_all, used,
};
