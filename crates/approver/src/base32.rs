//! Bytes as people read them out: Crockford's base 32, five bytes in eight characters, one spelling.

const DIGITS: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";

/// Of a multiple of five bytes.
pub(crate) fn text(bytes: &[u8]) -> String {
    let (groups, _) = bytes.as_chunks::<5>();
    groups.iter().flat_map(digits).collect()
}

fn digits(group: &[u8; 5]) -> impl Iterator<Item = char> + use<> {
    let number = group.iter().fold(0_u64, |all, &byte| all << 8 | u64::from(byte));
    (0..8).rev().map(move |place| {
        let digit = (number >> (5 * place)) & 31;
        char::from(DIGITS.get(digit as usize).copied().unwrap_or(b'0'))
    })
}

/// `None` for anything but `N` bytes, a multiple of five, spelled like this.
pub(crate) fn parse<const N: usize>(text: &str) -> Option<[u8; N]> {
    let (groups, rest) = text.as_bytes().as_chunks::<8>();
    let mut bytes = Vec::with_capacity(N);
    for group in groups {
        let mut number = 0_u64;
        for letter in group {
            let digit = DIGITS.iter().position(|known| known == letter)?;
            number = number << 5 | digit as u64;
        }
        let [_, _, _, of_number @ ..] = number.to_be_bytes();
        bytes.extend(of_number);
    }
    bytes.try_into().ok().filter(|_| rest.is_empty())
}
