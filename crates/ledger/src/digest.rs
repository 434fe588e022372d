//! What a content is known by.

use std::fmt;
use std::str::FromStr;

use hotcell_types::hex;
use rusqlite::types::{FromSql, FromSqlResult, ToSql, ToSqlOutput, ValueRef};
use serde::{Serialize, Serializer};
use sha2::{Digest as _, Sha256};

/// A SHA-256, written as 64 lowercase digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

/// A content: its digest and its length in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct Blob {
    pub digest: Digest,
    pub size: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a digest has 64 digits and letters from a to f")]
pub struct BadDigest;

impl Blob {
    pub fn of(bytes: &[u8]) -> Blob {
        Blob { digest: Digest::of(bytes), size: bytes.len() as u64 }
    }
}

impl Digest {
    pub fn of(bytes: &[u8]) -> Digest {
        Digest(Sha256::digest(bytes).into())
    }

    pub fn from_bytes(bytes: [u8; 32]) -> Digest {
        Digest(bytes)
    }

    pub fn to_bytes(self) -> [u8; 32] {
        self.0
    }

    pub(crate) fn finish(hasher: Sha256) -> Digest {
        Digest(hasher.finalize().into())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex::write(f, &self.0)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Digest {
    type Err = BadDigest;

    /// One spelling only.
    fn from_str(text: &str) -> Result<Digest, BadDigest> {
        hex::parse(text).map(Digest).ok_or(BadDigest)
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl ToSql for Digest {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        self.0.to_sql()
    }
}

impl FromSql for Digest {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Digest> {
        FromSql::column_result(value).map(Digest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_has_one_spelling() {
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(Digest::of(b"abc").to_string(), abc);
        assert_eq!(abc.parse(), Ok(Digest::of(b"abc")));
        for bad in ["", "ab", &abc.to_uppercase(), &format!("{abc}0"), &abc.replace('b', "+")] {
            assert_eq!(bad.parse::<Digest>(), Err(BadDigest), "{bad}");
        }
        assert!("ä".repeat(32).parse::<Digest>().is_err());
    }
}
