//! What an environment is called: one spelling, and nothing that means something elsewhere.

use std::fmt;
use std::str::FromStr;

/// Lower-case letters and digits, with `.`, `_` and `-` between them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(String);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` cannot be the name of an environment")]
pub struct BadName(String);

impl Name {
    pub const MAX: usize = 64;

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl BadName {
    pub fn why(&self) -> &'static str {
        "a name has up to 64 lower-case letters and digits, with `.`, `_` and `-` between them"
    }
}

impl FromStr for Name {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Name, BadName> {
        let is_end = |byte: Option<&u8>| {
            byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        };
        let is_plain =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-".contains(&byte);
        let bytes = text.as_bytes();
        let is_good = text.len() <= Name::MAX
            && is_end(bytes.first())
            && is_end(bytes.last())
            && text.bytes().all(is_plain);
        if is_good {
            return Ok(Name(text.into()));
        }
        let shown: String = text.chars().take(Name::MAX).collect();
        Err(BadName(shown.escape_default().to_string()))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_short_plain_and_spelled_in_one_way() {
        for good in ["a", "0", "data", "py3.11-data_2", &"x".repeat(64)] {
            assert_eq!(good.parse::<Name>().map(|name| name.to_string()), Ok(good.to_owned()));
        }
        for bad in [
            "",
            ".",
            "..",
            "a.",
            ".a",
            "-a",
            "a-",
            "A",
            "a b",
            "a/b",
            "../a",
            "a=b",
            "ä",
            "a\n",
            "a\0",
            "/etc",
            &"x".repeat(65),
        ] {
            assert!(bad.parse::<Name>().is_err(), "{bad:?}");
        }
        assert!(!"\u{1b}[31m".parse::<Name>().unwrap_err().to_string().contains('\u{1b}'));
    }
}
