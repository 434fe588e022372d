//! What a bearer is known by. It is no secret: who has the id has nothing.

use std::fmt;
use std::io;
use std::str::FromStr;

use hotcell_types::hex;
use rusqlite::types::{FromSql, FromSqlResult, ToSql, ToSqlOutput, ValueRef};

/// 128 bits of chance, written as 32 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BearerId(pub(crate) [u8; 16]);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the id of a token has 32 digits and letters from a to f")]
pub struct BadBearerId;

impl BearerId {
    pub(crate) fn random() -> io::Result<BearerId> {
        random().map(BearerId)
    }

    pub fn to_bytes(self) -> [u8; 16] {
        self.0
    }
}

/// From the kernel's generator.
pub(crate) fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        filled += rustix::rand::getrandom(rest, rustix::rand::GetRandomFlags::empty())?;
    }
    Ok(bytes)
}

impl fmt::Display for BearerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex::write(f, &self.0)
    }
}

impl fmt::Debug for BearerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for BearerId {
    type Err = BadBearerId;

    /// One spelling only.
    fn from_str(text: &str) -> Result<BearerId, BadBearerId> {
        hex::parse(text).map(BearerId).ok_or(BadBearerId)
    }
}

impl ToSql for BearerId {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        self.0.to_sql()
    }
}

impl FromSql for BearerId {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<BearerId> {
        FromSql::column_result(value).map(BearerId)
    }
}
