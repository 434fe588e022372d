//! What can go wrong, in words.

use std::io;

use rustix::io::Errno;

use crate::digest::Digest;
use crate::rows::ArtifactId;

/// Something is wrong with the store or with a content.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("cannot {doing}: the disk is full; make room and try again")]
    Full { doing: &'static str },
    #[error("an artifact is larger than {most} bytes")]
    TooLarge { most: u64 },
    #[error("what was to be stored cannot be read")]
    Source(#[source] io::Error),
    #[error("the content {0} is missing in the artifact store")]
    Missing(Digest),
    #[error("the content {digest} is not what was stored: {damage}")]
    Tampered { digest: Digest, damage: Damage },
    #[error("the artifact store is in use; try again when no run is being recorded")]
    Busy,
    #[error("cannot {doing}")]
    Io {
        doing: &'static str,
        #[source]
        source: io::Error,
    },
}

/// How a content differs from what was stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    #[error("it has {0} bytes")]
    Size(u64),
    #[error("its digest is {0}")]
    Content(Digest),
    #[error("it is not a regular file with one name")]
    NotPlain,
}

impl StoreError {
    /// What was being done when something failed.
    pub(crate) fn io(doing: &'static str) -> impl Fn(io::Error) -> StoreError {
        move |source| {
            let full = [Errno::NOSPC, Errno::DQUOT, Errno::FBIG].map(|errno| errno.raw_os_error());
            match source.raw_os_error() {
                Some(errno) if full.contains(&errno) => StoreError::Full { doing },
                _ => StoreError::Io { doing, source },
            }
        }
    }
}

/// Something is wrong with the ledger or with what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the artifact ledger cannot be read or written")]
    Sql(#[from] rusqlite::Error),
    /// Also what belongs to somebody else.
    #[error("there is no artifact {0}")]
    NoArtifact(ArtifactId),
    #[error("there is no version {version} of `{name}`")]
    NoVersion { name: String, version: u64 },
    #[error("an artifact has at most {most} {what}")]
    TooMany { what: &'static str, most: usize },
    #[error("a number is too large for the artifact ledger")]
    TooLarge,
    #[error(
        "the artifact ledger has version {found}, and this hotcell knows {known} at most; use a newer hotcell"
    )]
    Newer { found: i64, known: i64 },
    #[error("cannot export to the directory")]
    Export(#[source] io::Error),
}
