//! Names of calls: unique, in the order of their making, short enough to type.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A call, and what became of it. 48 bits of time and 80 of chance, written as 26 characters that sort
/// like the numbers (Crockford's base 32, as ULIDs are).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CallId(u128);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an id has 26 digits and capital letters, without I, L, O and U")]
pub struct BadId;

const DIGITS: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
const LENGTH: usize = 26;

impl CallId {
    /// From the time and from chance, both of which the caller brings.
    pub fn new(millis_since_1970: u64, chance: [u8; 10]) -> CallId {
        let time = u128::from(millis_since_1970 & 0xffff_ffff_ffff) << 80;
        let chance = chance.iter().fold(0_u128, |all, &byte| all << 8 | u128::from(byte));
        CallId(time | chance)
    }

    pub fn from_bytes(bytes: [u8; 16]) -> CallId {
        CallId(u128::from_be_bytes(bytes))
    }

    pub fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    pub fn millis_since_1970(self) -> u64 {
        (self.0 >> 80) as u64
    }
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for place in (0..LENGTH).rev() {
            let digit = (self.0 >> (5 * place)) & 31;
            let letter = DIGITS.get(digit as usize).copied().unwrap_or(b'0');
            fmt::Write::write_char(f, char::from(letter))?;
        }
        Ok(())
    }
}

impl FromStr for CallId {
    type Err = BadId;

    /// One spelling only.
    fn from_str(text: &str) -> Result<CallId, BadId> {
        if text.len() != LENGTH {
            return Err(BadId);
        }
        let mut number = 0_u128;
        for letter in text.bytes() {
            let digit = DIGITS.iter().position(|&known| known == letter).ok_or(BadId)?;
            // The first digit has room for three bits.
            number =
                number.checked_mul(32).and_then(|n| n.checked_add(digit as u128)).ok_or(BadId)?;
        }
        Ok(CallId(number))
    }
}

impl TryFrom<String> for CallId {
    type Error = BadId;

    fn try_from(text: String) -> Result<CallId, BadId> {
        text.parse()
    }
}

impl From<CallId> for String {
    fn from(id: CallId) -> String {
        id.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_one_spelling_and_sorts_by_time() {
        let one = CallId::new(1_700_000_000_000, [7; 10]);
        let two = CallId::new(1_700_000_000_001, [0; 10]);
        assert!(one < two && one.to_string() < two.to_string());
        for id in [one, two, CallId::new(0, [0; 10]), CallId::new(u64::MAX, [0xff; 10])] {
            assert_eq!(id.to_string().parse(), Ok(id));
            assert_eq!(CallId::from_bytes(id.to_bytes()), id);
        }
        assert_eq!(one.millis_since_1970(), 1_700_000_000_000);
        for bad in ["", "0", &one.to_string().to_lowercase(), &"8".repeat(26), &"I".repeat(26)] {
            assert_eq!(bad.parse::<CallId>(), Err(BadId), "{bad}");
        }
    }
}
