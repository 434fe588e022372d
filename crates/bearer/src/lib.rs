//! Rights that somebody carries: signed, bound to a holder and to what may be done, expiring, used up.
//! A token and the credentials of a run are the same thing for different [`Audience`]s.
//!
//! [`Presented::read`] takes a text and gives what we signed, or nothing. [`Presented::status`] says
//! whether that is good for a call; it is pure. [`consume`] uses it up, in the transaction in which the
//! call is recorded: of ten that try, one succeeds. Everything else here makes bearers ([`mint`],
//! [`attenuate`]) or takes them back ([`revoke`], [`reserve`], [`Ring::rotate`]).
//!
//! A bearer never brings anything about by itself: one that is worth nothing is as good as none.

/// What rows are read from, and written in.
pub use rusqlite::{Connection, Transaction};

mod check;
mod claims;
mod encode;
mod error;
mod id;
mod keyfile;
mod ring;
mod rows;
mod schema;
mod statement;
mod store;
mod time;
mod token;
mod verify;
mod write;

#[cfg(test)]
mod laws;

pub use check::{Covered, Facts, Who, Why};
pub use claims::{
    Audience, BadWord, Claims, Digest, Holder, MAX_DEPTH, MAX_PATHS, MAX_USES, Paths, Scope,
    TooManyPaths, Tool, Word,
};
pub use error::Error;
pub use id::{BadBearerId, BearerId};
pub use ring::{MAX_GRACE, MAX_KEYS, Ring, RingError};
pub use rows::{Lineage, Stored};
pub use schema::{is_current, migrate};
pub use statement::{Change, Statement, What};
pub use store::{Listed, MAX_PAGE, find, get, list, now};
pub use time::{MAX_TIME, Moment};
pub use token::{Bearer, MAX_CLAIMS, MAX_TEXT, PREFIX, Presented};
pub use verify::{Fault, Said};
pub use write::{
    Allowed, KEPT_EXPIRED, MAX_KEPT, MAX_SWEPT, Minted, Narrower, Swept, advance, attenuate,
    consume, mint, redeem, release, reserve, revoke, sweep,
};
