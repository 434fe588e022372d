//! Digests and random names: a fixed number of bytes, with one way to write them.

use std::fmt;
use std::str::FromStr;

use hotcell_types::hex;
use sha2::{Digest as _, Sha256};

/// `N` bytes, written as lower-case hexadecimal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hex<const N: usize>(pub [u8; N]);

/// A SHA-256.
pub type Digest = Hex<32>;
/// One event, wherever it is told about.
pub type EventId = Hex<16>;
/// One process that uses a home, for as long as it lives.
pub type OwnerId = Hex<16>;
/// One home, for good.
pub type HomeId = Hex<16>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not lower-case hexadecimal of the right length")]
pub struct BadHex;

impl<const N: usize> Hex<N> {
    pub const ZERO: Hex<N> = Hex([0; N]);

    pub(crate) fn from_slice(bytes: &[u8]) -> Option<Hex<N>> {
        bytes.try_into().ok().map(Hex)
    }

    /// From the kernel's generator.
    pub(crate) fn random() -> std::io::Result<Hex<N>> {
        let mut bytes = [0; N];
        let mut filled = 0;
        while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            filled += rustix::rand::getrandom(rest, rustix::rand::GetRandomFlags::empty())?;
        }
        Ok(Hex(bytes))
    }
}

/// A name that nobody else has, for a file that gets its own when it is complete.
pub(crate) fn random_name(start: &str) -> std::io::Result<String> {
    Ok(format!("{start}-{}", Hex::<8>::random()?))
}

impl Digest {
    pub fn of(bytes: &[u8]) -> Digest {
        Hex(Sha256::digest(bytes).into())
    }
}

impl<const N: usize> fmt::Display for Hex<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex::write(f, &self.0)
    }
}

impl<const N: usize> fmt::Debug for Hex<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<const N: usize> FromStr for Hex<N> {
    type Err = BadHex;

    fn from_str(text: &str) -> Result<Hex<N>, BadHex> {
        hex::parse(text).map(Hex).ok_or(BadHex)
    }
}

impl<const N: usize> serde::Serialize for Hex<N> {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_one_spelling() {
        let digest = Digest::of(b"");
        let text = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!((digest.to_string(), text.parse()), (text.to_owned(), Ok(digest)));
        for bad in [
            "",
            "E3",
            text.trim_start_matches('e'),
            &text.to_uppercase(),
            &format!("{text}00"),
            "0x",
        ] {
            assert_eq!(bad.parse::<Digest>(), Err(BadHex), "{bad}");
        }
        assert_ne!(EventId::random().unwrap(), EventId::random().unwrap());
    }
}
