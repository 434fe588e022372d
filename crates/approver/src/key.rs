//! A person who approves: a signing key with a name, and its public half as one line of text.

use std::fmt;
use std::io;
use std::str::FromStr;

use ed25519_dalek::{Signer, SigningKey, VerifyingKey};
use hotcell_types::Name;
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use crate::statement::Statement;
use crate::{base32, base64, chance};

const LINE: &str = "hotcell-approver ed25519 ";
const FINGERPRINT: &[u8] = b"hotcell approver 1\n";

/// Both halves. Neither shown nor cloned, and wiped when it goes.
pub struct Approver {
    key: SigningKey,
    name: Name,
}

impl Approver {
    /// Somebody new, from the kernel's generator.
    pub fn make(name: Name) -> io::Result<Approver> {
        let seed = Zeroizing::new(chance::bytes()?);
        Ok(Approver::from_seed(&seed, name))
    }

    pub(crate) fn from_seed(seed: &[u8; 32], name: Name) -> Approver {
        Approver { key: SigningKey::from_bytes(seed), name }
    }

    pub(crate) fn seed(&self) -> &[u8; 32] {
        self.key.as_bytes()
    }

    pub fn public(&self) -> Public {
        Public { key: self.key.verifying_key(), name: self.name.clone() }
    }

    pub fn sign(&self, statement: &impl Statement) -> Signature {
        Signature(self.key.sign(&statement.message()).to_bytes())
    }
}

impl fmt::Debug for Approver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Approver").field("name", &self.name).finish_non_exhaustive()
    }
}

/// What others know of an approver. Written as `hotcell-approver ed25519 KEY NAME`, the key in base 64.
#[derive(Clone, PartialEq, Eq)]
pub struct Public {
    key: VerifyingKey,
    name: Name,
}

/// The statement is not one that this key signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the signature is not of this statement and this key")]
pub struct NotSigned;

impl Public {
    /// `None` for bytes that are no key, and for keys whose signatures prove nothing.
    pub(crate) fn new(key: &[u8; 32], name: Name) -> Option<Public> {
        let key = VerifyingKey::from_bytes(key).ok().filter(|key| !key.is_weak())?;
        Some(Public { key, name })
    }

    pub fn name(&self) -> &Name {
        &self.name
    }

    pub fn key(&self) -> &[u8; 32] {
        self.key.as_bytes()
    }

    pub fn fingerprint(&self) -> Fingerprint {
        let digest = Sha256::new().chain_update(FINGERPRINT).chain_update(self.key()).finalize();
        Fingerprint(digest.first_chunk().copied().unwrap_or_default())
    }

    /// Strictly: one signature of a key for each statement.
    pub fn verify(
        &self,
        statement: &impl Statement,
        signature: &Signature,
    ) -> Result<(), NotSigned> {
        let signature = ed25519_dalek::Signature::from_bytes(&signature.0);
        self.key.verify_strict(&statement.message(), &signature).map_err(|_| NotSigned)
    }
}

impl fmt::Debug for Public {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Public {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{LINE}{} {}", base64::text(self.key()), self.name)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an approver is written as `{LINE}KEY NAME`, with the key in base 64")]
pub struct BadPublic;

impl FromStr for Public {
    type Err = BadPublic;

    /// One spelling only.
    fn from_str(line: &str) -> Result<Public, BadPublic> {
        let words = line.strip_prefix(LINE).and_then(|words| words.split_once(' '));
        let (key, name) = words.ok_or(BadPublic)?;
        let key = base64::parse(key).ok_or(BadPublic)?;
        let name = name.parse().map_err(|_| BadPublic)?;
        Public::new(&key, name).ok_or(BadPublic)
    }
}

/// A key, short enough to be compared by people: 80 bits, in groups of four characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint([u8; 10]);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a fingerprint has four groups of four digits and capital letters")]
pub struct BadFingerprint;

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, letter) in base32::text(&self.0).chars().enumerate() {
            if place > 0 && place % 4 == 0 {
                f.write_str("-")?;
            }
            write!(f, "{letter}")?;
        }
        Ok(())
    }
}

impl FromStr for Fingerprint {
    type Err = BadFingerprint;

    /// One spelling only.
    fn from_str(text: &str) -> Result<Fingerprint, BadFingerprint> {
        let read = base32::parse(&text.replace('-', "")).map(Fingerprint);
        read.filter(|read| read.to_string() == text).ok_or(BadFingerprint)
    }
}

/// An Ed25519 signature.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Signature([u8; 64]);

impl Signature {
    pub fn from_bytes(bytes: [u8; 64]) -> Signature {
        Signature(bytes)
    }

    pub fn to_bytes(self) -> [u8; 64] {
        self.0
    }
}

impl fmt::Debug for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hotcell_types::hex::write(f, &self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alice() -> Approver {
        Approver::from_seed(&[7; 32], "alice".parse().unwrap())
    }

    #[test]
    fn an_approver_has_one_line() {
        let public = alice().public();
        let line = "hotcell-approver ed25519 6kpsY+KcUgq+9VB7Ey7F+ZVHdq6+vnuSQh7qaRRG0iw= alice";
        assert_eq!((public.to_string(), line.parse()), (line.to_owned(), Ok(public.clone())));
        assert_eq!(public.fingerprint().to_string().parse(), Ok(public.fingerprint()));
        for (from, to) in [
            ("hotcell-approver ", "hotcell-approver  "),
            ("hotcell", "Hotcell"),
            ("ed25519", "ed448"),
            ("= alice", "=  alice"),
            ("= alice", "=alice"),
            ("= alice", " alice"),
            ("= alice", "= "),
            ("= alice", "="),
            ("= alice", "= a b"),
            ("= alice", "= alice\n"),
            ("= alice", "== alice"),
            // Another spelling of the same bytes.
            ("0iw=", "0ix="),
            ("6kps", "6k\nps"),
            ("6kps", ""),
            ("+", "-"),
            // The key of order one.
            (
                "6kpsY+KcUgq+9VB7Ey7F+ZVHdq6+vnuSQh7qaRRG0iw=",
                "AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
            ),
        ] {
            let other = line.replacen(from, to, 1);
            assert_ne!(other, line, "{from}");
            assert_eq!(other.parse::<Public>(), Err(BadPublic), "{other}");
        }
    }

    #[test]
    fn a_fingerprint_has_one_spelling() {
        let text = alice().public().fingerprint().to_string();
        assert_eq!((text.len(), text.matches('-').count()), (19, 3));
        for bad in [&text.replace('-', ""), &text.to_lowercase(), &format!("-{text}"), ""] {
            assert_eq!(bad.parse::<Fingerprint>(), Err(BadFingerprint), "{bad}");
        }
        let other = Approver::make("alice".parse().unwrap()).unwrap();
        assert_ne!(other.public().fingerprint().to_string(), text);
    }

    #[test]
    fn the_private_half_is_not_shown() {
        assert_eq!(format!("{:?}", alice()), "Approver { name: Name(Own(\"alice\")), .. }");
    }
}
