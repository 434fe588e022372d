//! The one spelling of bytes that have no other: two lower-case hexadecimal digits each.

use std::fmt;

pub fn text(bytes: &[u8]) -> String {
    digits(bytes).collect()
}

/// For a `Display` of something that is written so.
pub fn write(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    f.write_str(&text(bytes))
}

/// `None` for anything but `N` bytes spelled like this: no capitals, signs or blanks.
pub fn parse<const N: usize>(text: &str) -> Option<[u8; N]> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let mut bytes = [0; N];
    if pairs.len() != N || !rest.is_empty() {
        return None;
    }
    for (byte, &[high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = value(high)? << 4 | value(low)?;
    }
    Some(bytes)
}

fn digits(bytes: &[u8]) -> impl Iterator<Item = char> {
    let digit = |value: u8| char::from_digit(value.into(), 16).unwrap_or('0');
    bytes.iter().flat_map(move |byte| [byte >> 4, byte & 15].map(digit))
}

fn value(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    struct Shown<'a>(&'a [u8]);

    impl fmt::Display for Shown<'_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write(f, self.0)
        }
    }

    proptest! {
        #[test]
        fn bytes_come_back_from_their_spelling(bytes: [u8; 7]) {
            let spelled: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            prop_assert_eq!(&text(&bytes), &spelled);
            prop_assert_eq!(Shown(&bytes).to_string(), spelled.clone());
            prop_assert_eq!(parse(&spelled), Some(bytes));
            prop_assert_eq!(parse::<6>(&spelled), None);
            prop_assert_eq!(parse::<8>(&spelled), None);
        }

        #[test]
        fn what_is_parsed_is_what_was_spelled(spelled in "[0-9a-fA-F+ ]{4}|\\PC{0,4}") {
            if let Some(bytes) = parse::<2>(&spelled) {
                prop_assert_eq!(text(&bytes), spelled);
            }
        }
    }

    #[test]
    fn nothing_else_is_hexadecimal() {
        for bad in ["", "0", "000", "0A", "0g", "+1", " 1", "0x", "ä", "00\n"] {
            assert_eq!(parse::<1>(bad), None, "{bad}");
        }
        assert_eq!(parse(""), Some([]));
    }
}
