//! What is put before people has a name that they can type.

use std::fmt;
use std::io;
use std::str::FromStr;

use crate::{base32, chance};

/// One item of the queue: 40 bits of chance, written as eight characters. Unique in its home, because the
/// queue takes another one where it is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ItemId([u8; 5]);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an item has 8 digits and capital letters, without I, L, O and U")]
pub struct BadItemId;

impl ItemId {
    /// From the kernel's generator.
    pub fn make() -> io::Result<ItemId> {
        chance::bytes().map(ItemId)
    }

    pub fn from_bytes(bytes: [u8; 5]) -> ItemId {
        ItemId(bytes)
    }

    pub fn to_bytes(self) -> [u8; 5] {
        self.0
    }
}

impl fmt::Display for ItemId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&base32::text(&self.0))
    }
}

impl FromStr for ItemId {
    type Err = BadItemId;

    /// One spelling only.
    fn from_str(text: &str) -> Result<ItemId, BadItemId> {
        base32::parse(text).map(ItemId).ok_or(BadItemId)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn an_item_has_one_spelling(bytes: [u8; 5], other in "[0-9A-Za-z-]{7,9}") {
            let id = ItemId::from_bytes(bytes);
            prop_assert_eq!(id.to_string().parse(), Ok(id));
            if let Ok(read) = other.parse::<ItemId>() {
                prop_assert_eq!(read.to_string(), other);
            }
        }
    }

    #[test]
    fn nothing_else_is_an_item() {
        for bad in ["", "0000000", "000000000", "0000000i", "0000000O", "0000000a", "000 0000"] {
            assert_eq!(bad.parse::<ItemId>(), Err(BadItemId), "{bad}");
        }
        assert_eq!(ItemId([0xff; 5]).to_string(), "ZZZZZZZZ");
    }
}
