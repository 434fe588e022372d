//! What can go wrong. No error has a value in it.

use std::io;

use crate::name::SecretName;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("there is no secret `{0}`")]
    NoSecret(SecretName),
    #[error("there are {most} secrets, which is the most; remove some")]
    Full { most: u64 },
    #[error("what is noted has more than {most} characters, or some that are not shown")]
    Note { most: usize },
    #[error("the row of secret {0} is not one that we wrote")]
    Damaged(u64),
    #[error(
        "the secret `{0}` cannot be opened: the key that sealed it is not the one of this home, or its row was \
         changed"
    )]
    Sealed(SecretName),
    #[error("secrets cannot be read or written")]
    Sql(#[from] rusqlite::Error),
    #[error("the kernel gives no random numbers")]
    Chance(#[source] io::Error),
    #[error(
        "the secrets have version {found}, and this hotcell knows {known} at most; use a newer hotcell"
    )]
    Newer { found: i64, known: i64 },
}
