//! What a program is given in place of a secret, and the way back, for one request at a time.

use std::collections::VecDeque;
use std::fmt;
use std::io;

use data_encoding::{BASE32HEX_NOPAD, Encoding};

use crate::binding::Binding;
use crate::chance;
use crate::mask::{Masker, Masks};
use crate::name::SecretName;
use crate::value::Value;

/// How every placeholder begins.
pub const PREFIX: &str = "hotcell-secret-";
/// Letters that follow: 160 bits of chance.
const LETTERS: usize = 32;
/// Bytes of a placeholder.
pub const LENGTH: usize = PREFIX.len() + LETTERS;

/// The secrets of one run. Nothing in here is shown.
pub struct Purse {
    held: Vec<Held>,
    masks: Option<Masks>,
}

struct Held {
    name: SecretName,
    binding: Binding,
    placeholder: String,
    value: Value,
}

/// Where a request goes.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// As policies write it: with its port, if that is neither 80 nor 443.
    pub host: &'a str,
    pub tls: bool,
}

/// A placeholder that is in the wrong place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Misplaced {
    #[error("it has a placeholder that is none of this run's: each run gets new ones")]
    Unknown,
    #[error("the secret `{0}` goes over TLS only")]
    Plain(SecretName),
    #[error("the secret `{name}` is not bound to `{host}`")]
    Host { name: SecretName, host: String },
    #[error("secrets go into the values of headers, and a placeholder is in {0}")]
    Elsewhere(&'static str),
}

impl Purse {
    /// Takes secrets, and makes a placeholder for each.
    pub fn new(
        secrets: impl IntoIterator<Item = (SecretName, Binding, Value)>,
    ) -> io::Result<Purse> {
        let held: io::Result<Vec<Held>> = secrets
            .into_iter()
            .map(|(name, binding, value)| {
                Ok(Held { name, binding, placeholder: placeholder()?, value })
            })
            .collect();
        let held = held?;
        let masks = Masks::of(held.iter().map(|held| &held.value));
        if masks.is_none() && !held.is_empty() {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        Ok(Purse { held, masks })
    }

    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// What the program is given.
    pub fn placeholder(&self, name: &SecretName) -> Option<&str> {
        let held = self.held.iter().find(|held| held.name == *name)?;
        Some(&held.placeholder)
    }

    /// A secret that is for this host, whatever the port.
    pub fn of_name(&self, host: &str) -> Option<&SecretName> {
        self.held.iter().find(|held| held.binding.has_name(host)).map(|held| &held.name)
    }

    /// A header's value with secrets in the places of their placeholders. What has none comes back as it is.
    pub fn fill(&self, to: Place<'_>, text: &[u8]) -> Result<Vec<u8>, Misplaced> {
        let (mut filled, mut rest) = (Vec::with_capacity(text.len()), text);
        while let Some(at) = find(rest) {
            let (before, found) = rest.split_at_checked(at).unwrap_or((rest, b""));
            let (found, behind) = found.split_at_checked(LENGTH).unwrap_or((found, b""));
            let held = self.held.iter().find(|held| held.placeholder.as_bytes() == found);
            let held = held.ok_or(Misplaced::Unknown)?;
            if !to.tls {
                return Err(Misplaced::Plain(held.name.clone()));
            }
            if !held.binding.has_host(to.host) {
                let (name, host) = (held.name.clone(), to.host.to_owned());
                return Err(Misplaced::Host { name, host });
            }
            filled.extend_from_slice(before);
            filled.extend_from_slice(held.value.as_bytes());
            rest = behind;
        }
        filled.extend_from_slice(rest);
        Ok(filled)
    }

    /// Refuses a placeholder anywhere else.
    pub fn refuse_in(&self, place: &'static str, text: &[u8]) -> Result<(), Misplaced> {
        if find(text).is_some() { Err(Misplaced::Elsewhere(place)) } else { Ok(()) }
    }

    /// What hides the values in what comes from a host, if something is bound to it.
    pub fn masker(&self, host: &str) -> Option<Masker> {
        self.masks.as_ref().filter(|_| self.of_name(host).is_some()).map(Masks::masker)
    }

    /// Every spelling that is in no event, as text.
    pub fn spellings(&self) -> Vec<String> {
        let all = self.held.iter().flat_map(|held| crate::spelling::of(held.value.as_bytes()));
        all.filter_map(|(text, _)| str::from_utf8(&text).ok().map(str::to_owned)).collect()
    }
}

impl fmt::Debug for Purse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.held.iter().map(|held| &held.name);
        f.debug_list().entries(names).finish()
    }
}

/// Looks for placeholders in a stream, wherever it is cut.
#[derive(Debug, Default)]
pub struct Seeker {
    last: VecDeque<u8>,
}

impl Seeker {
    /// Whether one has ended by now.
    pub fn push(&mut self, bytes: &[u8]) -> bool {
        self.last.extend(bytes);
        let is_there = find(self.last.make_contiguous()).is_some();
        let kept = self.last.len().min(LENGTH - 1);
        self.last.drain(..self.last.len() - kept);
        is_there
    }
}

/// Where the first placeholder begins, whoever's it is.
fn find(text: &[u8]) -> Option<usize> {
    let is_one = |window: &[u8]| {
        window.strip_prefix(PREFIX.as_bytes()).is_some_and(|letters| letters.iter().all(is_letter))
    };
    text.windows(LENGTH).position(is_one)
}

fn is_letter(byte: &u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'v')
}

/// Nobody guesses it, and no other run has it.
fn placeholder() -> io::Result<String> {
    let chance: [u8; 20] = chance::bytes()?;
    let encoding: &Encoding = &BASE32HEX_NOPAD;
    Ok(format!("{PREFIX}{}", encoding.encode(&chance).to_ascii_lowercase()))
}
