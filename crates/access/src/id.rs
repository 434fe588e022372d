//! What a key is known by. It is no secret: who has the id has nothing.

use std::fmt;
use std::str::FromStr;

use data_encoding::BASE32HEX_NOPAD;
use rusqlite::types::{FromSql, FromSqlResult, ToSql, ToSqlOutput, ValueRef};

/// Bytes of an id.
pub(crate) const ID: usize = 10;

/// 80 bits of chance, written as 16 digits and capital letters up to `V`: as the text of the key begins.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(pub(crate) [u8; ID]);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the id of a key has 16 digits and capital letters from A to V")]
pub struct BadKeyId;

impl KeyId {
    pub fn to_bytes(self) -> [u8; ID] {
        self.0
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&BASE32HEX_NOPAD.encode(&self.0))
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for KeyId {
    type Err = BadKeyId;

    /// One spelling only.
    fn from_str(text: &str) -> Result<KeyId, BadKeyId> {
        let bytes = BASE32HEX_NOPAD.decode(text.as_bytes()).map_err(|_| BadKeyId)?;
        bytes.try_into().map(KeyId).map_err(|_| BadKeyId)
    }
}

impl ToSql for KeyId {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        self.0.to_sql()
    }
}

impl FromSql for KeyId {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<KeyId> {
        FromSql::column_result(value).map(KeyId)
    }
}
