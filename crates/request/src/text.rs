//! Text that people and models read to decide something. It has no characters that are there and not
//! seen: what a person approves is what a model reads.

use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::fault::{Fault, push_key};

/// One line: the title of a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Title(String);

/// Some lines: what a tool does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Description(String);

/// A tag or a category: `[a-z][a-z0-9_-]*`, at most 32 long.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Label(String);

/// Why a text was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadText {
    #[error("{what} is empty: write what a reader has to know")]
    Empty { what: &'static str },
    #[error("{what} has {length} characters: at most {most}")]
    Long { what: &'static str, length: usize, most: usize },
    #[error("{what} has the character {character}, which nobody would see: remove it")]
    Hidden { what: &'static str, character: String },
    #[error(
        "`{0}` is not a label: a lowercase letter, then letters, digits, `_` and `-`, at most 32"
    )]
    Label(String),
}

impl Title {
    pub const MAX: usize = 80;

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Description {
    pub const MAX: usize = 4096;

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Label {
    pub const MAX: usize = 32;
    pub(crate) const PATTERN: &str = "^[a-z][a-z0-9_-]{0,31}$";

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Title {
    type Err = BadText;

    fn from_str(text: &str) -> Result<Title, BadText> {
        readable("the title", text, Title::MAX)?;
        match text.chars().find(|c| c.is_control()) {
            None => Ok(Title(text.into())),
            Some(c) => Err(BadText::Hidden { what: "the title", character: number(c) }),
        }
    }
}

impl FromStr for Description {
    type Err = BadText;

    fn from_str(text: &str) -> Result<Description, BadText> {
        readable("the description", text, Description::MAX)?;
        Ok(Description(text.into()))
    }
}

impl FromStr for Label {
    type Err = BadText;

    fn from_str(text: &str) -> Result<Label, BadText> {
        let is_plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || b"_-".contains(&c);
        let begins_well = text.as_bytes().first().is_some_and(u8::is_ascii_lowercase);
        if begins_well && text.len() <= Label::MAX && text.bytes().all(is_plain) {
            return Ok(Label(text.into()));
        }
        Err(BadText::Label(shown(text, Label::MAX)))
    }
}

/// A type that is text in JSON, read by its `FromStr` and written by its `Display`.
macro_rules! as_text {
    ($name:ident, $error:ident, $schema:tt) => {
        impl TryFrom<String> for $name {
            type Error = $error;

            fn try_from(text: String) -> Result<$name, $error> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(text: $name) -> String {
                text.to_string()
            }
        }

        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!($schema)
            }
        }
    };
}
pub(crate) use as_text;

macro_rules! shows_itself {
    ($($name:ident),+) => {$(
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }
    )+};
}

pub(crate) use shows_itself;

shows_itself!(Title, Description, Label);
as_text!(Title, BadText, { "type": "string", "minLength": 1, "maxLength": Title::MAX });
as_text!(Description, BadText, { "type": "string", "minLength": 1, "maxLength": Description::MAX });
as_text!(Label, BadText, { "type": "string", "pattern": Label::PATTERN });

fn readable(what: &'static str, text: &str, most: usize) -> Result<(), BadText> {
    let length = text.chars().count();
    if text.trim().is_empty() {
        return Err(BadText::Empty { what });
    }
    if length > most {
        return Err(BadText::Long { what, length, most });
    }
    match text.chars().find(|&c| is_hidden(c)) {
        None => Ok(()),
        Some(c) => Err(BadText::Hidden { what, character: number(c) }),
    }
}

/// The first string or key in a document that has a hidden character.
pub(crate) fn hidden_in(value: &Value) -> Option<Fault> {
    // Where it is takes longer to know than that there is none.
    if has_hidden(value) { find_hidden(value, &mut String::new()) } else { None }
}

fn has_hidden(value: &Value) -> bool {
    let is_plain = |byte: u8| (b' '..=b'~').contains(&byte);
    let hidden = |text: &str| !text.bytes().all(is_plain) && text.chars().any(is_hidden);
    match value {
        Value::String(text) => hidden(text),
        Value::Array(items) => items.iter().any(has_hidden),
        Value::Object(members) => members.iter().any(|(key, m)| hidden(key) || has_hidden(m)),
        _ => false,
    }
}

/// The document is at most as deep as `json` lets it be.
fn find_hidden(value: &Value, at: &mut String) -> Option<Fault> {
    match value {
        Value::String(text) => hidden_fault(text, at, "the text"),
        Value::Array(items) => items.iter().enumerate().find_map(|(index, item)| {
            let length = at.len();
            at.push_str(&format!("/{index}"));
            let found = find_hidden(item, at);
            at.truncate(length);
            found
        }),
        Value::Object(members) => members.iter().find_map(|(key, member)| {
            let length = at.len();
            if let Some(fault) = hidden_fault(key, at, "a name") {
                return Some(fault);
            }
            push_key(at, key);
            let found = find_hidden(member, at);
            at.truncate(length);
            found
        }),
        _ => None,
    }
}

fn hidden_fault(text: &str, at: &str, what: &str) -> Option<Fault> {
    let c = text.chars().find(|&c| is_hidden(c))?;
    Some(Fault::new(
        at,
        format!("{what} has the character {}", number(c)),
        "nobody who approves it would see it, and a model would read it",
        "remove it; in a pattern, write it as an escape",
    ))
}

fn number(c: char) -> String {
    format!("U+{:04X}", u32::from(c))
}

/// Whether a character is there and not seen, or changes how others are seen: controls but line feed
/// and tab, what joins, separates or turns text around, fillers, tags. U+FE0F stays: it only asks for
/// the coloured form of the sign before it.
pub(crate) fn is_hidden(c: char) -> bool {
    match c {
        '\n' | '\t' => false,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{feff}' | '\u{3164}' | '\u{ffa0}' => true,
        '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}' => true,
        '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' => true,
        '\u{fe00}'..='\u{fe0e}' | '\u{fff0}'..='\u{fffb}' => true,
        '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}' => true,
        other => other.is_control(),
    }
}

/// What somebody sent, for a message: harmless, and with at most so many characters.
pub(crate) fn shown(text: &str, most: usize) -> String {
    let mut out = String::new();
    for (index, c) in text.chars().enumerate() {
        if index == most {
            out.push('…');
            break;
        }
        if is_hidden(c) || c.is_control() {
            out.extend(c.escape_unicode());
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// What hides, by the way it does.
    const HIDDEN: &[(&str, &str)] = &[
        ("tag", "read \u{e0041}\u{e0042} files"),
        ("zero width", "read\u{200b} files"),
        ("joiner", "read\u{200d} files"),
        ("bidi override", "read \u{202e}selif"),
        ("bidi isolate", "read \u{2066}files\u{2069}"),
        ("control", "read \u{7} files"),
        ("NUL", "read \0 files"),
        ("ANSI", "read \u{1b}[8m files"),
        ("C1", "read \u{9b}8m files"),
        ("BOM", "\u{feff}read files"),
        ("line separator", "read\u{2028}files"),
        ("filler", "read\u{3164}files"),
        ("variation selector", "read\u{e0100}files"),
    ];

    #[test]
    fn tool_10_text_with_hidden_characters_is_refused() {
        for (kind, text) in HIDDEN {
            assert!(text.parse::<Title>().is_err(), "{kind}");
            assert!(text.parse::<Description>().is_err(), "{kind}");
            let schema = json!({"properties": {"a": [{"description": text}]}});
            assert_eq!(hidden_in(&schema).unwrap().at(), "/properties/a/0/description", "{kind}");
            let schema = json!({"properties": {*text: true}});
            assert_eq!(hidden_in(&schema).unwrap().at(), "/properties", "{kind}");
        }
        for good in ["Reads files.\n\n\tAll of them.", "Dateien öffnen ⚠\u{fe0f} 読む", "قراءة"]
        {
            assert!(good.parse::<Description>().is_ok(), "{good}");
        }
        assert!("two\nlines".parse::<Title>().is_err());
    }

    #[test]
    fn tool_10_text_has_a_length() {
        assert!("x".repeat(Title::MAX).parse::<Title>().is_ok());
        assert!("x".repeat(Title::MAX + 1).parse::<Title>().is_err());
        assert!("x".repeat(Description::MAX).parse::<Description>().is_ok());
        assert!("x".repeat(1 << 20).parse::<Description>().is_err());
        for empty in ["", " \n\t "] {
            assert!(empty.parse::<Description>().is_err() && empty.parse::<Title>().is_err());
        }
    }

    #[test]
    fn a_label_is_short_and_plain() {
        for good in ["a", "file-system", "x_1", &"x".repeat(32)] {
            assert_eq!(good.parse::<Label>().map(String::from), Ok(good.to_owned()));
        }
        for bad in ["", "A", "1a", "-a", "a b", "a/b", "ä", &"x".repeat(33)] {
            assert!(bad.parse::<Label>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn what_is_shown_is_harmless_and_short() {
        assert_eq!(shown("a\u{1b}b\nc\u{202e}", 80), "a\\u{1b}b\\u{a}c\\u{202e}");
        assert_eq!(shown("abcdef", 3), "abc…");
    }
}
