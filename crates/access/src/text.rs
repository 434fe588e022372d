//! The text of a key: `hck_` and base32 (RFC 4648, section 7, capitals, no padding) of an id, a secret and a
//! checksum. Each of them ends where a character ends, so that there are no bits left over and one spelling.

use std::fmt;
use std::io;

use data_encoding::BASE32HEX_NOPAD;
use sha2::{Digest as _, Sha256};

use crate::id::{ID, KeyId};
use crate::statement::Digest;

pub const PREFIX: &str = "hck_";
/// Length of every text.
pub const TEXT: usize = PREFIX.len() + (ID + SECRET + CHECK) / 5 * 8;

/// Bytes of a secret: 160 bits of chance.
const SECRET: usize = 20;
/// Bytes by which a text that was not copied whole is told from one that is not known.
const CHECK: usize = 5;

const CHECK_DOMAIN: &[u8] = b"hotcell key check 1\n";
const SECRET_DOMAIN: &[u8] = b"hotcell key secret 1\n";

/// The text of a new key, for whoever is to have it. It is nowhere else, and does not print itself.
#[derive(Clone, PartialEq, Eq)]
pub struct Shown {
    text: String,
    id: KeyId,
}

impl Shown {
    /// A new key, and what is kept of its secret.
    pub(crate) fn new() -> io::Result<(Shown, Digest)> {
        let (id, secret) = (KeyId(random()?), random()?);
        let mut bytes = [&id.0[..], &secret].concat();
        bytes.extend_from_slice(&check(&bytes));
        let text = format!("{PREFIX}{}", BASE32HEX_NOPAD.encode(&bytes));
        Ok((Shown { text, id }, digest(id, &secret)))
    }

    pub fn id(&self) -> KeyId {
        self.id
    }

    /// The text, for whoever hands it over.
    pub fn reveal(&self) -> &str {
        &self.text
    }
}

impl fmt::Debug for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shown({})", self.id)
    }
}

/// A text that is spelled as a key is. Whether there is such a key is another question.
#[derive(Clone)]
pub struct Presented {
    id: KeyId,
    digest: Digest,
}

/// The text is no key: it was cut, mistyped, or is something else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is not spelled as a key")]
pub struct Malformed;

impl Presented {
    pub fn read(text: &str) -> Result<Presented, Malformed> {
        // Before anything is made of it.
        let encoded = Some(text).filter(|text| text.len() == TEXT).ok_or(Malformed)?;
        let encoded = encoded.strip_prefix(PREFIX).ok_or(Malformed)?;
        let bytes = BASE32HEX_NOPAD.decode(encoded.as_bytes()).map_err(|_| Malformed)?;
        let (known, sum) = bytes.split_last_chunk::<CHECK>().ok_or(Malformed)?;
        let (id, secret) = known.split_first_chunk::<ID>().ok_or(Malformed)?;
        let secret: &[u8; SECRET] = secret.try_into().map_err(|_| Malformed)?;
        if check(known) != *sum {
            return Err(Malformed);
        }
        let id = KeyId(*id);
        Ok(Presented { id, digest: digest(id, secret) })
    }

    pub fn id(&self) -> KeyId {
        self.id
    }

    pub(crate) fn digest(&self) -> &Digest {
        &self.digest
    }
}

impl fmt::Debug for Presented {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Presented({})", self.id)
    }
}

/// Tells about no secret: whoever has it has the text.
fn check(bytes: &[u8]) -> [u8; CHECK] {
    let digest: Digest =
        Sha256::new().chain_update(CHECK_DOMAIN).chain_update(bytes).finalize().into();
    let mut sum = [0; CHECK];
    sum.iter_mut().zip(digest).for_each(|(sum, byte)| *sum = byte);
    sum
}

/// What is kept of a secret.
fn digest(id: KeyId, secret: &[u8; SECRET]) -> Digest {
    Sha256::new()
        .chain_update(SECRET_DOMAIN)
        .chain_update(id.0)
        .chain_update(secret)
        .finalize()
        .into()
}

/// From the kernel's generator.
fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        filled += rustix::rand::getrandom(rest, rustix::rand::GetRandomFlags::empty())?;
    }
    Ok(bytes)
}
