//! What goes along with a question, as both sides write it.

use base64ct::{Base64, Encoding};
use hotcell_api::Context;
use hotcell_engine::run::Word;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Asked here beside what every door hears: that everything which was answered so far is in the record, where
/// other processes see it.
const SETTLE: &str = "settle";

pub(crate) fn settle() -> Value {
    json!({ "ask": SETTLE })
}

pub(crate) fn is_settle(ask: &Value) -> bool {
    ask.get("ask").and_then(Value::as_str) == Some(SETTLE)
}

/// The context of a request: where it is asked, and what comes along.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Along {
    pub from: Context,
    /// Names and sizes of the files, in the order in which they come.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<File>,
    /// Whether standard input is passed on while the program reads, or known before: its size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin: Option<Stdin>,
    /// A directory of the caller's for the files that a run makes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outputs: Option<Word>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    pub name: Word,
    pub bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stdin {
    Live,
    Bytes(u64),
}

/// What is told while a call goes on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Told {
    Stdout(Output),
    Stderr(Output),
    /// There is a run. Only agents are told: others have no use for it.
    Started,
}

/// Bytes that a program printed: as text where they are text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Output {
    Text(String),
    Base64(String),
}

impl Output {
    pub(crate) fn of(bytes: &[u8]) -> Output {
        match str::from_utf8(bytes) {
            Ok(text) => Output::Text(text.to_owned()),
            Err(_) => Output::Base64(Base64::encode_string(bytes)),
        }
    }

    /// `None` if that is not what it says.
    pub(crate) fn bytes(self) -> Option<Vec<u8>> {
        match self {
            Output::Text(text) => Some(text.into_bytes()),
            Output::Base64(coded) => Base64::decode_vec(&coded).ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_arrives_as_it_was() {
        for bytes in [&b""[..], b"text\n", b"\xff\x00", "ü\u{0}".as_bytes(), &[0xc3]] {
            let told = serde_json::to_string(&Told::Stdout(Output::of(bytes))).unwrap();
            let Ok(Told::Stdout(output)) = serde_json::from_str(&told) else { panic!("{told}") };
            assert_eq!(output.bytes().as_deref(), Some(bytes));
        }
        assert_eq!(Output::Base64("?".into()).bytes(), None);
    }
}
