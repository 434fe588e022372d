//! What can go wrong besides a key that is worth nothing.

use std::io;

use crate::id::KeyId;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Also what belongs to somebody else.
    #[error("there is no key {0}")]
    NoKey(KeyId),
    #[error("a key like this cannot be made: {0}")]
    Impossible(&'static str),
    #[error(
        "there are {most} keys, which is the most; revoke some: those that ended are removed after 90 days"
    )]
    Full { most: u64 },
    #[error("the row of key {0} is not one that we wrote")]
    Damaged(u64),
    #[error("keys cannot be read or written")]
    Sql(#[from] rusqlite::Error),
    #[error("no secret can be made for a key")]
    Chance(#[source] io::Error),
    #[error(
        "the keys have version {found}, and this hotcell knows {known} at most; use a newer hotcell"
    )]
    Newer { found: i64, known: i64 },
}
