//! Text from outside: one line, bounded, and nothing in it that a terminal would obey.

use std::fmt;
use std::str::FromStr;

use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, ValueRef};
use serde::{Serialize, Serializer};

/// UTF-8 without control characters, 1 to `MOST` bytes. It is data: never a path, never a command.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Line<const MOST: usize>(Box<str>);

/// The name of an artifact, as whoever made it called it.
pub type ArtifactName = Line<1024>;
pub type Tag = Line<64>;
/// A tool's name, with its version if it has one.
pub type ToolName = Line<256>;
pub type Note = Line<4096>;
/// What something came from when it is neither an artifact nor a call.
pub type Source = Line<1024>;
/// Words to search for.
pub type Search = Line<1024>;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadLine {
    #[error("a text is empty")]
    Empty,
    #[error("a text of {length} bytes is longer than {most}")]
    TooLong { length: usize, most: usize },
    #[error("a text has the control character {0:?}")]
    Control(char),
}

impl<const MOST: usize> Line<MOST> {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<const MOST: usize> FromStr for Line<MOST> {
    type Err = BadLine;

    fn from_str(text: &str) -> Result<Line<MOST>, BadLine> {
        if text.is_empty() {
            return Err(BadLine::Empty);
        }
        if text.len() > MOST {
            return Err(BadLine::TooLong { length: text.len(), most: MOST });
        }
        match text.chars().find(|c| c.is_control()) {
            Some(control) => Err(BadLine::Control(control)),
            None => Ok(Line(text.into())),
        }
    }
}

impl<const MOST: usize> fmt::Display for Line<MOST> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<const MOST: usize> Serialize for Line<MOST> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<const MOST: usize> ToSql for Line<MOST> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(self.as_str().into())
    }
}

impl<const MOST: usize> FromSql for Line<MOST> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Line<MOST>> {
        value.as_str()?.parse().map_err(|error| FromSqlError::Other(Box::new(error)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_bounded_and_has_no_control_characters() {
        for good in ["a", "../x", "a b/ü", "CON", "-rf", "a\u{202e}b"] {
            assert_eq!(good.parse::<Tag>().map(|tag| tag.to_string()), Ok(good.to_owned()));
        }
        for (bad, why) in [
            (String::new(), BadLine::Empty),
            ("x".repeat(65), BadLine::TooLong { length: 65, most: 64 }),
            ("ü".repeat(33), BadLine::TooLong { length: 66, most: 64 }),
            ("a\nb".into(), BadLine::Control('\n')),
            ("a\0".into(), BadLine::Control('\0')),
            ("\u{1b}[31m".into(), BadLine::Control('\u{1b}')),
            ("a\u{85}".into(), BadLine::Control('\u{85}')),
        ] {
            assert_eq!(bad.parse::<Tag>(), Err(why), "{bad:?}");
        }
    }
}
