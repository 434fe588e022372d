//! Bytes in files: base 64 with padding, one spelling.

use base64ct::{Base64, Encoding};

pub(crate) fn text(bytes: &[u8]) -> String {
    Base64::encode_string(bytes)
}

/// `None` for anything but `N` bytes spelled like this.
pub(crate) fn parse<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    let read = Base64::decode(text, &mut bytes).ok()?.len();
    (read == N).then_some(bytes)
}
