//! Contents by their SHA-256.

use std::fmt;
use std::io::{self, Read, Write};
use std::str::FromStr;

use hotcell_types::hex;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// Bytes read at once.
const CHUNK: usize = 64 * 1024;

/// The SHA-256 of a content, written as 64 lowercase hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest([u8; 32]);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a digest has 64 digits: 0 to 9 and a to f")]
pub struct BadDigest;

impl Digest {
    pub fn of(content: &[u8]) -> Digest {
        Digest(Sha256::digest(content).into())
    }

    pub fn from_bytes(bytes: [u8; 32]) -> Digest {
        Digest(bytes)
    }

    pub fn to_bytes(self) -> [u8; 32] {
        self.0
    }

    /// Reads a source to its end into a target; also tells how many bytes that were.
    pub fn copy(mut source: impl Read, target: &mut impl Write) -> io::Result<(Digest, u64)> {
        let mut hasher = Sha256::new();
        let mut buffer = vec![0; CHUNK];
        let mut bytes = 0;
        loop {
            let length = match source.read(&mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            };
            let chunk = buffer.get(..length).unwrap_or_default();
            if chunk.is_empty() {
                return Ok((Digest(hasher.finalize().into()), bytes));
            }
            hasher.update(chunk);
            target.write_all(chunk)?;
            bytes += length as u64;
        }
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex::write(f, &self.0)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

impl FromStr for Digest {
    type Err = BadDigest;

    fn from_str(text: &str) -> Result<Digest, BadDigest> {
        hex::parse(text).map(Digest).ok_or(BadDigest)
    }
}

impl TryFrom<String> for Digest {
    type Error = BadDigest;

    fn try_from(text: String) -> Result<Digest, BadDigest> {
        text.parse()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> String {
        digest.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_has_one_spelling() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Digest::of(b"").to_string(), empty);
        assert_eq!(empty.parse(), Ok(Digest::of(b"")));
        for bad in [
            "",
            "e3",
            &empty.to_uppercase(),
            empty.get(1..).unwrap(),
            &format!("{empty}00"),
            &"ä".repeat(32),
        ] {
            assert_eq!(bad.parse::<Digest>(), Err(BadDigest), "{bad}");
        }
    }

    #[test]
    fn copying_hashes_what_was_written() {
        let content = vec![7; 3 * CHUNK + 1];
        let mut copy = Vec::new();
        let copied = Digest::copy(content.as_slice(), &mut copy).unwrap();
        assert_eq!(copied, (Digest::of(&content), content.len() as u64));
        assert_eq!(copy, content);
    }
}
