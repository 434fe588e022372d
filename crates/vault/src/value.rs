//! The text that nobody is to see.

use std::fmt;
use std::io::{self, Read};

use zeroize::Zeroizing;

/// Shortest value, in bytes: what is shorter cannot be told from ordinary text, and would be hidden where it is
/// not meant.
pub const LEAST_VALUE: usize = 8;
/// Longest value, in bytes: more than any header that a server takes.
pub const MOST_VALUE: usize = 4096;

/// Never shown, never cloned, and wiped when it goes.
///
/// ```compile_fail
/// println!("{}", hotcell_vault::Value::new(b"a value of a secret".to_vec()).unwrap());
/// ```
///
/// ```compile_fail
/// let value = hotcell_vault::Value::new(b"a value of a secret".to_vec()).unwrap();
/// let (one, other) = (value.clone(), value);
/// ```
#[derive(PartialEq, Eq)]
pub struct Value(Zeroizing<Vec<u8>>);

/// Why bytes are not the value of a secret. Says nothing of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadValue {
    #[error("it has fewer than {LEAST_VALUE} bytes, and could not be told from ordinary text")]
    Short,
    #[error("it has more than {MOST_VALUE} bytes")]
    Long,
    #[error("it goes into the header of a request, which has printable ASCII only, in one line")]
    Form,
}

impl Value {
    /// What a header can have: printable ASCII, with spaces inside only. One line's end behind it is taken off,
    /// as files and typing have it.
    pub fn new(bytes: Vec<u8>) -> Result<Value, BadValue> {
        let mut bytes = Zeroizing::new(bytes);
        if bytes.last() == Some(&b'\n') {
            bytes.pop();
            if bytes.last() == Some(&b'\r') {
                bytes.pop();
            }
        }
        if bytes.len() > MOST_VALUE {
            return Err(BadValue::Long);
        }
        let is_printable = bytes.iter().all(|byte| matches!(byte, b' '..=b'~'));
        if !is_printable || bytes.first() == Some(&b' ') || bytes.last() == Some(&b' ') {
            return Err(BadValue::Form);
        }
        if bytes.len() < LEAST_VALUE { Err(BadValue::Short) } else { Ok(Value(bytes)) }
    }

    /// All that a source has. What is too long is not read to its end.
    pub fn read(source: impl Read) -> io::Result<Result<Value, BadValue>> {
        /// With a line's end, and one that is too many.
        const MOST: usize = MOST_VALUE + 3;
        // It never grows, so that nothing is left behind elsewhere.
        let mut bytes = Zeroizing::new(Vec::with_capacity(MOST + 32));
        source.take(MOST as u64).read_to_end(&mut bytes)?;
        Ok(Value::new(std::mem::take(&mut *bytes)))
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Value(…)")
    }
}
