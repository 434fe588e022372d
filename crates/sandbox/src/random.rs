//! Chance, for names that nobody can guess and nobody else has.

use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

/// A number from the kernel's generator.
pub(crate) fn number() -> Result<u64, Errno> {
    let mut bytes = [0; 8];
    let filled = rustix::io::retry_on_intr(|| getrandom(&mut bytes, GetRandomFlags::empty()))?;
    if filled == bytes.len() { Ok(u64::from_ne_bytes(bytes)) } else { Err(Errno::IO) }
}

/// Sixteen hexadecimal digits: enough that no two processes ever choose the same.
pub(crate) fn digits() -> Result<String, Errno> {
    Ok(format!("{:016x}", number()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_sixteen_and_others_each_time() {
        let (one, another) = (digits().unwrap(), digits().unwrap());
        assert_ne!(one, another);
        for digits in [one, another] {
            assert!(
                digits.len() == 16 && digits.bytes().all(|b| b.is_ascii_hexdigit()),
                "{digits}"
            );
        }
    }
}
