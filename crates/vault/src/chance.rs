//! Chance, from the kernel's generator.

use std::io;

use rustix::rand::{GetRandomFlags, getrandom};

pub(crate) fn bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        filled += rustix::io::retry_on_intr(|| getrandom(&mut *rest, GetRandomFlags::empty()))?;
    }
    Ok(bytes)
}
