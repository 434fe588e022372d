//! Who asks. Every row of the record has an owner, and every query filters on it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Who a call is made for, and through which door it came. Set by the door, never by a request.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Caller {
    pub tenant: Name,
    pub subject: Name,
    pub door: Door,
}

impl Caller {
    /// Somebody on this machine, under the one tenant that a home has without configuration.
    pub fn local(subject: Name, door: Door) -> Caller {
        Caller { tenant: Name::LOCAL, subject, door }
    }
}

/// The ways in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Door {
    Cli,
    /// Another program that embeds the engine.
    Library,
    Socket,
    Rest,
    Mcp,
    Kafka,
    /// The agent loop.
    Agent,
    /// A step of a plan.
    Plan,
    /// Code inside a sandbox that calls back.
    Callback,
}

impl Door {
    pub const ALL: [Door; 9] = [
        Door::Cli,
        Door::Library,
        Door::Socket,
        Door::Rest,
        Door::Mcp,
        Door::Kafka,
        Door::Agent,
        Door::Plan,
        Door::Callback,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Door::Cli => "cli",
            Door::Library => "library",
            Door::Socket => "socket",
            Door::Rest => "rest",
            Door::Mcp => "mcp",
            Door::Kafka => "kafka",
            Door::Agent => "agent",
            Door::Plan => "plan",
            Door::Callback => "callback",
        }
    }
}

impl fmt::Display for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A short name without surprises: 1 to 64 letters, digits, `.`, `_`, `-`, `@` and `+` of ASCII,
/// beginning with a letter or a digit.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(Text);

/// A constant costs nothing.
#[derive(Debug, Clone)]
enum Text {
    Fixed(&'static str),
    Own(Box<str>),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a name: 1 to 64 letters, digits and `._-@+`, beginning with a letter or a digit"
)]
pub struct BadName(String);

impl Name {
    pub const LOCAL: Name = Name(Text::Fixed("local"));
    pub const MAX: usize = 64;

    pub fn as_str(&self) -> &str {
        match &self.0 {
            Text::Fixed(text) => text,
            Text::Own(text) => text,
        }
    }
}

impl Text {
    fn as_str(&self) -> &str {
        match self {
            Text::Fixed(text) => text,
            Text::Own(text) => text,
        }
    }
}

impl PartialEq for Text {
    fn eq(&self, other: &Text) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Text {}

impl PartialOrd for Text {
    fn partial_cmp(&self, other: &Text) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Text {
    fn cmp(&self, other: &Text) -> std::cmp::Ordering {
        self.as_str().cmp(other.as_str())
    }
}

impl std::hash::Hash for Text {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl FromStr for Name {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Name, BadName> {
        let is_plain = |c: u8| c.is_ascii_alphanumeric() || b"._-@+".contains(&c);
        let begins_well = text.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric);
        if begins_well && text.len() <= Name::MAX && text.bytes().all(is_plain) {
            return Ok(Name(Text::Own(text.into())));
        }
        let shown: String = text.chars().take(Name::MAX).collect();
        Err(BadName(shown.escape_default().to_string()))
    }
}

impl TryFrom<String> for Name {
    type Error = BadName;

    fn try_from(text: String) -> Result<Name, BadName> {
        text.parse()
    }
}

impl From<Name> for String {
    fn from(name: Name) -> String {
        name.as_str().to_owned()
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_short_and_plain() {
        for good in ["a", "0", "alice@example.com", "ci-7", "A.b_c+d", &"x".repeat(64)] {
            assert_eq!(good.parse::<Name>().map(String::from), Ok(good.to_owned()));
        }
        for bad in ["", " ", ".a", "-a", "a b", "a/b", "ä", "a\n", "a\0", &"x".repeat(65)] {
            assert!(bad.parse::<Name>().is_err(), "{bad:?}");
        }
        assert_eq!("local".parse::<Name>(), Ok(Name::LOCAL));
    }

    #[test]
    fn a_bad_name_is_shown_harmlessly() {
        let error = "\u{1b}[31m".parse::<Name>().unwrap_err();
        assert!(!error.to_string().contains('\u{1b}'), "{error}");
    }

    #[test]
    fn doors_are_written_as_they_are_named() {
        for door in Door::ALL {
            assert_eq!(serde_json::to_value(door).unwrap(), door.name());
        }
    }
}
