//! What only the approver knows.

use std::fmt;

use zeroize::Zeroizing;

/// Shortest that a new key is sealed with, and longest, in bytes.
pub const LEAST_PASSPHRASE: usize = 8;
pub const MOST_PASSPHRASE: usize = 1024;

/// Typed at a terminal: nothing else makes one. Never shown, and wiped when it goes.
///
/// ```compile_fail
/// let given = hotcell_approver::Passphrase::new(b"from an argument".to_vec());
/// ```
pub struct Passphrase(Zeroizing<Vec<u8>>);

impl Passphrase {
    pub(crate) fn typed(bytes: Zeroizing<Vec<u8>>) -> Passphrase {
        Passphrase(bytes)
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn into_bytes(self) -> Zeroizing<Vec<u8>> {
        self.0
    }

    pub(crate) fn is_same(&self, other: &Passphrase) -> bool {
        self.0 == other.0
    }
}

impl fmt::Debug for Passphrase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Passphrase(…)")
    }
}
