//! How a tool is called: its name, its version, and which versions a caller accepts.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::text::{as_text, shown};

/// The name of a tool: lowercase segments joined by dots (`fs.read`), or with the namespace of whoever it
/// was imported from before it (`github/issues.list`).
// The order is by name and then by namespace, so that tools of one name stand together.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ToolName {
    name: Box<str>,
    namespace: Option<Box<str>>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a tool's name: lowercase words of letters, digits and `_` that begin with a letter, joined \
     by dots, up to 64, such as `fs.read` or `github/issues.list`"
)]
pub struct BadToolName(String);

impl ToolName {
    /// Most characters of the name, and of the namespace.
    pub const MAX: usize = 64;
    pub(crate) const PATTERN: &str =
        r"^([a-z][a-z0-9_]{0,63}/)?[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*$";

    /// Without the namespace.
    pub fn bare(&self) -> &str {
        &self.name
    }

    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }
}

fn is_segment(text: &str) -> bool {
    let plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_';
    text.as_bytes().first().is_some_and(u8::is_ascii_lowercase) && text.bytes().all(plain)
}

impl FromStr for ToolName {
    type Err = BadToolName;

    fn from_str(text: &str) -> Result<ToolName, BadToolName> {
        let (namespace, name) = match text.split_once('/') {
            Some((namespace, name)) => (Some(namespace), name),
            None => (None, text),
        };
        let good_name = name.len() <= ToolName::MAX && name.split('.').all(is_segment);
        let good_space = namespace.is_none_or(|n| n.len() <= ToolName::MAX && is_segment(n));
        if good_name && good_space {
            return Ok(ToolName { name: name.into(), namespace: namespace.map(Box::from) });
        }
        Err(BadToolName(shown(text, ToolName::MAX)))
    }
}

impl fmt::Display for ToolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(namespace) = &self.namespace {
            write!(f, "{namespace}/")?;
        }
        f.write_str(&self.name)
    }
}

as_text!(ToolName, BadToolName, { "type": "string", "maxLength": 129, "pattern": ToolName::PATTERN });

/// `major.minor.patch`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Version {
    pub major: u32,
    pub minor: u32,
    pub patch: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a version: three numbers such as `1.0.3`")]
pub struct BadVersion(String);

impl Version {
    pub(crate) const PATTERN: &str = r"^(0|[1-9][0-9]{0,8})(\.(0|[1-9][0-9]{0,8})){2}$";
}

impl FromStr for Version {
    type Err = BadVersion;

    fn from_str(text: &str) -> Result<Version, BadVersion> {
        let bad = || BadVersion(shown(text, 40));
        match *numbers(text).ok_or_else(bad)?.as_slice() {
            [major, minor, patch] => Ok(Version { major, minor, patch }),
            _ => Err(bad()),
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

as_text!(Version, BadVersion, { "type": "string", "pattern": Version::PATTERN });

/// Which versions a caller accepts: `1` is every 1.x.y, `1.2` every 1.2.x, `1.2.3` that one.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct VersionReq {
    major: u32,
    minor: Option<u32>,
    patch: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` does not say which version: write `1`, `1.2` or `1.2.3`")]
pub struct BadVersionReq(String);

impl VersionReq {
    pub(crate) const PATTERN: &str = r"^(0|[1-9][0-9]{0,8})(\.(0|[1-9][0-9]{0,8})){0,2}$";

    pub fn exactly(version: Version) -> VersionReq {
        let Version { major, minor, patch } = version;
        VersionReq { major, minor: Some(minor), patch: Some(patch) }
    }

    pub fn accepts(&self, version: Version) -> bool {
        self.major == version.major
            && self.minor.is_none_or(|minor| minor == version.minor)
            && self.patch.is_none_or(|patch| patch == version.patch)
    }
}

impl FromStr for VersionReq {
    type Err = BadVersionReq;

    fn from_str(text: &str) -> Result<VersionReq, BadVersionReq> {
        let bad = || BadVersionReq(shown(text, 40));
        let (major, minor, patch) = match *numbers(text).ok_or_else(bad)?.as_slice() {
            [major] => (major, None, None),
            [major, minor] => (major, Some(minor), None),
            [major, minor, patch] => (major, Some(minor), Some(patch)),
            _ => return Err(bad()),
        };
        Ok(VersionReq { major, minor, patch })
    }
}

impl fmt::Display for VersionReq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.major)?;
        [self.minor, self.patch].iter().flatten().try_for_each(|number| write!(f, ".{number}"))
    }
}

as_text!(VersionReq, BadVersionReq, { "type": "string", "pattern": VersionReq::PATTERN });

/// Numbers joined by dots, each in its one spelling.
fn numbers(text: &str) -> Option<Vec<u32>> {
    let number = |part: &str| {
        let plain = part.len() <= 9 && !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        let one_spelling = part == "0" || !part.starts_with('0');
        if plain && one_spelling { part.parse().ok() } else { None }
    };
    text.split('.').take(4).map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tools_name_is_lowercase_segments() {
        for (text, bare, namespace) in [
            ("echo", "echo", None),
            ("fs.read", "fs.read", None),
            ("a1_.b_2.c", "a1_.b_2.c", None),
            ("github/issues.list", "issues.list", Some("github")),
        ] {
            let name: ToolName = text.parse().unwrap();
            assert_eq!((name.bare(), name.namespace()), (bare, namespace));
            assert_eq!(name.to_string(), text);
        }
        assert!("x".repeat(64).parse::<ToolName>().is_ok());
        for bad in [
            "",
            ".",
            "a.",
            ".a",
            "a..b",
            "A",
            "1a",
            "_a",
            "a-b",
            "a b",
            "a/",
            "/a",
            "a/b/c",
            "a.b/c",
            "ä",
            "a\n",
            "fs.read ",
            "fs．read",
            "__proto__",
            &"x".repeat(65),
            &format!("{}/a", "x".repeat(65)),
        ] {
            assert!(bad.parse::<ToolName>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn names_sort_so_that_equal_ones_of_all_namespaces_are_together() {
        let mut names: Vec<ToolName> =
            ["b/x", "y", "a/x", "x", "a/w"].iter().map(|n| n.parse().unwrap()).collect();
        names.sort();
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["a/w", "x", "a/x", "b/x", "y"]);
    }

    #[test]
    fn a_version_has_one_spelling() {
        assert_eq!("1.20.3".parse(), Ok(Version { major: 1, minor: 20, patch: 3 }));
        assert!("1.9.0".parse::<Version>().unwrap() < "1.10.0".parse().unwrap());
        for bad in [
            "",
            "1",
            "1.2",
            "1.2.3.4",
            "v1.2.3",
            "01.2.3",
            "1.2.3-rc",
            "1..3",
            "1.2.-3",
            "+1.2.3",
            "1.2.4294967296",
        ] {
            assert!(bad.parse::<Version>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_requirement_accepts_what_it_does_not_name() {
        for (req, version, accepted) in [
            ("1", "1.0.0", true),
            ("1", "1.9.9", true),
            ("1", "2.0.0", false),
            ("1.2", "1.2.7", true),
            ("1.2", "1.3.0", false),
            ("1.2.3", "1.2.3", true),
            ("1.2.3", "1.2.4", false),
        ] {
            let parsed: VersionReq = req.parse().unwrap();
            assert_eq!(parsed.accepts(version.parse().unwrap()), accepted, "{req} {version}");
            assert_eq!(parsed.to_string(), req);
        }
        for bad in ["", "*", "^1", "1.x", "latest", "1.2.3.4"] {
            assert!(bad.parse::<VersionReq>().is_err(), "{bad:?}");
        }
    }
}
