//! The private half of a key in a file, of no use without its passphrase: Argon2id makes a key of that,
//! and XChaCha20-Poly1305 seals the signing key with it, together with everything else that the file
//! says. A strict text, with one valid spelling:
//!
//! ```text
//! hotcell-approver-key 1
//! name alice
//! public 6kpsY+KcUgq+9VB7Ey7F+ZVHdq6+vnuSQh7qaRRG0iw=
//! argon2id memory=65536 passes=3
//! salt AAAAAAAAAAAAAAAAAAAAAA==
//! nonce AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA
//! sealed …
//! ```

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use argon2::{Algorithm, Argon2, Params, Version};
use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use zeroize::Zeroizing;

use crate::key::{Approver, Public};
use crate::passphrase::Passphrase;
use crate::private::{self, FileError};
use crate::{base64, chance};

/// What a file may ask for, so that a bad one cannot use up the machine.
pub const MOST_MEMORY_KIB: u32 = 256 << 10;
pub const MOST_PASSES: u32 = 8;
/// Less would be a guess too cheap.
const LEAST_MEMORY_KIB: u32 = 8 << 10;

const FIRST: &str = "hotcell-approver-key 1";

/// How dear a guess is. One lane: this version has no other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cost {
    memory_kib: u32,
    passes: u32,
}

impl Cost {
    /// The second of the two that RFC 9106 recommends, in one lane: about 150 ms.
    const USUAL: Cost = Cost { memory_kib: 64 << 10, passes: 3 };

    fn is_bounded(self) -> bool {
        (LEAST_MEMORY_KIB..=MOST_MEMORY_KIB).contains(&self.memory_kib)
            && (1..=MOST_PASSES).contains(&self.passes)
    }
}

/// A key that needs its passphrase.
#[derive(Clone, PartialEq, Eq)]
pub struct Sealed {
    public: Public,
    cost: Cost,
    salt: [u8; 16],
    nonce: [u8; 24],
    /// The key's seed and the tag.
    sealed: [u8; 48],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadSealed {
    #[error("not an approver's key")]
    Text,
    #[error(
        "an approver's key asks for {LEAST_MEMORY_KIB} to {MOST_MEMORY_KIB} KiB of memory and 1 to {MOST_PASSES} passes"
    )]
    Cost,
}

/// Why a key was not sealed or opened.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    #[error("the passphrase is not the one of this key, or the file was changed")]
    Passphrase,
    #[error("there is not enough memory to try the passphrase")]
    Memory,
    #[error("the kernel gives no random numbers")]
    Chance(#[from] std::io::Error),
}

impl Sealed {
    pub fn new(approver: &Approver, passphrase: &Passphrase) -> Result<Sealed, SealError> {
        Sealed::with_cost(approver, passphrase, Cost::USUAL)
    }

    fn with_cost(
        approver: &Approver,
        passphrase: &Passphrase,
        cost: Cost,
    ) -> Result<Sealed, SealError> {
        let (salt, nonce) = (chance::bytes()?, chance::bytes()?);
        let mut made = Sealed { public: approver.public(), cost, salt, nonce, sealed: [0; 48] };
        let header = made.header();
        let payload = Payload { msg: approver.seed(), aad: header.as_bytes() };
        let sealed = made.cipher(passphrase)?.encrypt(&XNonce::from(nonce), payload);
        let sealed = sealed.ok().and_then(|sealed| sealed.try_into().ok());
        made.sealed = sealed.ok_or(SealError::Memory)?;
        Ok(made)
    }

    pub fn open(&self, passphrase: &Passphrase) -> Result<Approver, SealError> {
        let header = self.header();
        let payload = Payload { msg: &self.sealed, aad: header.as_bytes() };
        let seed = self.cipher(passphrase)?.decrypt(&XNonce::from(self.nonce), payload);
        let seed = Zeroizing::new(seed.map_err(|_| SealError::Passphrase)?);
        let seed = seed.as_slice().try_into().map_err(|_| SealError::Passphrase)?;
        let approver = Approver::from_seed(seed, self.public.name().clone());
        if approver.public() == self.public { Ok(approver) } else { Err(SealError::Passphrase) }
    }

    /// Known without the passphrase.
    pub fn public(&self) -> &Public {
        &self.public
    }

    /// From a file that nobody else can read or write, in such a directory.
    pub fn read(path: &Path) -> Result<Sealed, FileError> {
        let text = private::read(path)?;
        let fix = "restore it from a backup, or make a new key";
        text.parse().map_err(|error: BadSealed| FileError::new(path, error.to_string(), fix))
    }

    /// To a new file, in a directory that nobody else can read or write.
    pub fn write_new(&self, path: &Path) -> Result<(), FileError> {
        private::write_new(path, &self.to_string())
    }

    fn cipher(&self, passphrase: &Passphrase) -> Result<XChaCha20Poly1305, SealError> {
        let Cost { memory_kib, passes } = self.cost;
        let params = Params::new(memory_kib, passes, 1, Some(32));
        let params = params.map_err(|_| SealError::Passphrase)?;
        let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
        let mut key = Zeroizing::new([0; 32]);
        let made = argon2.hash_password_into(passphrase.as_bytes(), &self.salt, &mut *key);
        made.map_err(|_| SealError::Memory)?;
        Ok(XChaCha20Poly1305::new((&*key).into()))
    }

    /// All that is not secret. It is sealed along, so that none of it can be changed.
    fn header(&self) -> String {
        let Sealed { public, cost: Cost { memory_kib, passes }, salt, nonce, .. } = self;
        let (name, key) = (public.name(), base64::text(public.key()));
        let (salt, nonce) = (base64::text(salt), base64::text(nonce));
        format!(
            "{FIRST}\nname {name}\npublic {key}\nargon2id memory={memory_kib} passes={passes}\n\
             salt {salt}\nnonce {nonce}\n"
        )
    }
}

impl fmt::Debug for Sealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealed").field("public", &self.public).finish_non_exhaustive()
    }
}

impl fmt::Display for Sealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}sealed {}", self.header(), base64::text(&self.sealed))
    }
}

impl FromStr for Sealed {
    type Err = BadSealed;

    fn from_str(text: &str) -> Result<Sealed, BadSealed> {
        let read = read(text).ok_or(BadSealed::Text)?;
        // `007` and what follows the last line would be other spellings.
        if read.to_string() != text {
            return Err(BadSealed::Text);
        }
        if read.cost.is_bounded() { Ok(read) } else { Err(BadSealed::Cost) }
    }
}

fn read(text: &str) -> Option<Sealed> {
    let mut lines = text.lines();
    let mut value = |name: &str| lines.next()?.strip_prefix(name);
    value(FIRST)?;
    let name = value("name ")?.parse().ok()?;
    let key = base64::parse(value("public ")?)?;
    let (memory, passes) = value("argon2id memory=")?.split_once(" passes=")?;
    let cost = Cost { memory_kib: memory.parse().ok()?, passes: passes.parse().ok()? };
    Some(Sealed {
        public: Public::new(&key, name)?,
        cost,
        salt: base64::parse(value("salt ")?)?,
        nonce: base64::parse(value("nonce ")?)?,
        sealed: base64::parse(value("sealed ")?)?,
    })
}

#[cfg(test)]
mod tests;
