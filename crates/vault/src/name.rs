//! What a secret is called.

use std::fmt;
use std::str::FromStr;

/// Longest name, in bytes.
const MOST: usize = 64;

/// A name that is one of a variable as well: letters, digits and `_`, and no digit first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SecretName(Box<str>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a secret is called as a variable is: up to {MOST} letters, digits and `_`, and no digit first"
)]
pub struct BadSecretName;

impl SecretName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SecretName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for SecretName {
    type Err = BadSecretName;

    fn from_str(text: &str) -> Result<SecretName, BadSecretName> {
        let is_letter = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
        let is_fine = (1..=MOST).contains(&text.len())
            && text.bytes().next().is_some_and(is_letter)
            && text.bytes().all(|byte| is_letter(byte) || byte.is_ascii_digit());
        if is_fine { Ok(SecretName(text.into())) } else { Err(BadSecretName) }
    }
}
