//! What can go wrong besides a bearer that is worth nothing.

use std::io;

use crate::check::Why;
use crate::id::BearerId;
use crate::ring::RingError;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The bearer is worth nothing here.
    #[error(transparent)]
    Refused(#[from] Why),
    /// Also what belongs to somebody else.
    #[error("there is no token {0}")]
    NoBearer(BearerId),
    #[error("no token is reserved for this call")]
    NotReserved,
    #[error("a token is reserved for this call already")]
    Reserved,
    #[error("a token like this cannot be made: {0}")]
    Impossible(&'static str),
    #[error("there are {most} tokens; sweep those that expired, or wait until they do")]
    Full { most: u64 },
    #[error("the clock is far off (before 1970, or after 2199); set it right")]
    Clock,
    #[error(transparent)]
    Ring(#[from] RingError),
    #[error("the row of token {0} is not one that we wrote")]
    Damaged(u64),
    #[error("tokens cannot be read or written")]
    Sql(#[from] rusqlite::Error),
    #[error("no id can be made for a token")]
    Chance(#[source] io::Error),
    #[error(
        "the tokens have version {found}, and this hotcell knows {known} at most; use a newer hotcell"
    )]
    Newer { found: i64, known: i64 },
}
