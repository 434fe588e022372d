//! One spelling for every value (RFC 8785), so that equal values have equal digests and different ones
//! do not. Ours is exact where the RFC rounds: an integer beyond 2^53 keeps all its digits, since two
//! different arguments must never look the same to an approval.
//!
//! Own code: the crates that do this write such integers as rounded doubles, or fail on them.

use std::fmt;
use std::str::FromStr;

use hotcell_types::hex;
use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};
use sha2::Digest as _;

use crate::json::{EXPONENT_FROM, exact};

/// The canonical spelling of a value, which is as deep at most as `json` lets it be.
pub fn bytes(value: &Value) -> Vec<u8> {
    let mut text = String::new();
    write_value(&mut text, value);
    text.into_bytes()
}

/// The digest of the canonical spelling.
pub fn digest(value: &Value) -> Digest {
    Digest(sha2::Sha256::digest(bytes(value)).into())
}

/// A SHA-256, written as 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest([u8; 32]);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a digest has 64 hexadecimal digits, in lower case")]
pub struct BadDigest;

impl Digest {
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex::write(f, &self.0)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Digest {
    type Err = BadDigest;

    fn from_str(text: &str) -> Result<Digest, BadDigest> {
        hex::parse(text).map(Digest).ok_or(BadDigest)
    }
}

impl TryFrom<String> for Digest {
    type Error = BadDigest;

    fn try_from(text: String) -> Result<Digest, BadDigest> {
        text.parse()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> String {
        digest.to_string()
    }
}

fn write_value(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(true) => out.push_str("true"),
        Value::Bool(false) => out.push_str("false"),
        Value::Number(number) => write_number(out, number),
        Value::String(text) => write_string(out, text),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                separate(out, index);
                write_value(out, item);
            }
            out.push(']');
        }
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by(|a, b| a.0.encode_utf16().cmp(b.0.encode_utf16()));
            out.push('{');
            for (index, (key, member)) in members.into_iter().enumerate() {
                separate(out, index);
                write_string(out, key);
                out.push(':');
                write_value(out, member);
            }
            out.push('}');
        }
    }
}

fn separate(out: &mut String, index: usize) {
    if index > 0 {
        out.push(',');
    }
}

fn write_string(out: &mut String, text: &str) {
    out.push('"');
    let is_special = |byte: u8| byte < b' ' || byte == b'"' || byte == b'\\';
    if !text.bytes().any(is_special) {
        out.push_str(text);
        out.push('"');
        return;
    }
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\u{c}' => out.push_str("\\f"),
            '\r' => out.push_str("\\r"),
            c if c < ' ' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
}

fn write_number(out: &mut String, number: &Number) {
    let double = number.as_f64().filter(|_| number.is_f64());
    match double.map(|double| (double, exact(double))) {
        None => out.push_str(&number.to_string()),
        // Whole, and an integer in canonical form.
        Some((_, Some(exact))) if !exact.is_f64() => out.push_str(&exact.to_string()),
        Some((double, _)) => write_double(out, double),
    }
}

/// As ECMAScript writes numbers: the fewest digits that read back, plain between 1e-6 and 1e21.
fn write_double(out: &mut String, double: f64) {
    let (digits, exponent) = digits_of(double.abs());
    if double < 0.0 {
        out.push('-');
    }
    if double.abs() >= EXPONENT_FROM || double.abs() < 1e-6 {
        let (first, rest) = digits.split_at_checked(1).unwrap_or((&digits, ""));
        let point = if rest.is_empty() { "" } else { "." };
        let sign = if exponent < 0 { '-' } else { '+' };
        out.push_str(&format!("{first}{point}{rest}e{sign}{}", exponent.abs()));
    } else if exponent < 0 {
        let zeros = usize::try_from(-exponent - 1).unwrap_or_default();
        out.push_str(&format!("0.{}{digits}", "0".repeat(zeros)));
    } else {
        let whole = usize::try_from(exponent + 1).unwrap_or_default();
        match digits.split_at_checked(whole) {
            Some((whole, rest)) if !rest.is_empty() => out.push_str(&format!("{whole}.{rest}")),
            _ => out.push_str(&format!("{digits:0<whole$}")),
        }
    }
}

/// The fewest digits that read back, and the power of ten of the first. From serde_json's spelling and
/// not from the standard library's, which of two equally near ones takes the odd one.
fn digits_of(double: f64) -> (String, i32) {
    let text = Value::from(double).to_string();
    let (number, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let all = format!("{whole}{fraction}");
    let digits = all.trim_start_matches('0');
    let shift = whole.len() as i32 - 1 - (all.len() - digits.len()) as i32;
    let exponent: i32 = exponent.parse().unwrap_or_default();
    (digits.trim_end_matches('0').to_owned(), exponent + shift)
}
