//! Paths below a root, in one spelling.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A path below a root: UTF-8, parts separated by one `/`, none of them `.` or `..`, no control characters.
/// Nothing is cleaned up: a text either is the one spelling of its path, or it is refused, a leading or
/// trailing `/` included. The root itself has no spelling; where it can be meant, `None` means it.
///
/// Paths are ordered part by part, so that a directory comes right before what is in it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Relative(Box<str>);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{shown}` is not a path below a root: {why}")]
pub struct BadPath {
    shown: String,
    why: &'static str,
}

impl Relative {
    /// What the kernel takes in one call, without the end mark.
    pub const MOST_BYTES: usize = 4095;
    pub const MOST_PARTS: usize = 64;
    pub const MOST_PART: usize = 255;

    pub fn parse(text: &str) -> Result<Relative, BadPath> {
        match objection(text) {
            None => Ok(Relative(text.into())),
            Some(why) => Err(BadPath { shown: shown(text, BadPath::MOST_SHOWN), why }),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn parts(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.0.split('/')
    }

    /// How many parts it has.
    pub fn depth(&self) -> usize {
        self.parts().count()
    }

    /// The last part.
    pub fn name(&self) -> &str {
        self.split().1
    }

    /// The directory that it is in; `None` for the root.
    pub fn parent(&self) -> Option<Relative> {
        self.split().0.map(|parent| Relative(parent.into()))
    }

    /// The directories above it, nearest first, without the root.
    pub fn ancestors(&self) -> impl Iterator<Item = Relative> {
        std::iter::successors(self.parent(), Relative::parent)
    }

    /// The path of `name` in the directory `parent`; `None` is the root.
    pub fn join(parent: Option<&Relative>, name: &str) -> Result<Relative, BadPath> {
        match parent {
            Some(parent) => Relative::parse(&format!("{parent}/{name}")),
            None => Relative::parse(name),
        }
    }

    fn split(&self) -> (Option<&str>, &str) {
        match self.0.rsplit_once('/') {
            Some((parent, name)) => (Some(parent), name),
            None => (None, &self.0),
        }
    }
}

/// Why a text is not a path below a root.
fn objection(text: &str) -> Option<&'static str> {
    if text.is_empty() {
        return Some("it is empty");
    }
    if text.len() > Relative::MOST_BYTES {
        return Some("it is longer than 4095 bytes");
    }
    if text.starts_with('/') {
        return Some("it begins with `/`");
    }
    if text.chars().any(char::is_control) {
        return Some("it has a control character");
    }
    if text.split('/').count() > Relative::MOST_PARTS {
        return Some("it has more than 64 parts");
    }
    text.split('/').find_map(|part| match part {
        "" => Some("it has an empty part, or ends with `/`"),
        "." | ".." => Some("it has a part `.` or `..`"),
        _ if part.len() > Relative::MOST_PART => Some("a part is longer than 255 bytes"),
        _ => None,
    })
}

/// A text made harmless for a terminal and a log: control characters and those that change the direction
/// of the text are written out, and it is cut.
pub(crate) fn shown(text: &str, most: usize) -> String {
    let mut shown = String::new();
    for c in text.chars().take(most) {
        if c.is_control() || turns_text(c) {
            shown.extend(c.escape_unicode());
        } else {
            shown.push(c);
        }
    }
    if text.chars().nth(most).is_some() {
        shown.push('…');
    }
    shown
}

/// Whether a character shows what follows it in another order than it is read.
pub(crate) fn turns_text(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

impl BadPath {
    const MOST_SHOWN: usize = 200;

    pub fn why(&self) -> &'static str {
        self.why
    }
}

impl Ord for Relative {
    fn cmp(&self, other: &Relative) -> Ordering {
        self.parts().cmp(other.parts())
    }
}

impl PartialOrd for Relative {
    fn partial_cmp(&self, other: &Relative) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Relative {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Relative {
    type Err = BadPath;

    fn from_str(text: &str) -> Result<Relative, BadPath> {
        Relative::parse(text)
    }
}

impl TryFrom<String> for Relative {
    type Error = BadPath;

    fn try_from(text: String) -> Result<Relative, BadPath> {
        Relative::parse(&text)
    }
}

impl From<Relative> for String {
    fn from(path: Relative) -> String {
        path.0.into()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn fs_02_a_path_has_one_spelling_and_never_leads_up_or_out() {
        let long = |n: usize| "x".repeat(n);
        let deep = |n: usize| vec!["d"; n].join("/");
        for good in ["a", "a/b", ".git/hooks/x", "...", "a b", "ä/ö", " ", "a\\b", "-rf", "~", "*"]
        {
            assert_eq!(Relative::parse(good).map(String::from), Ok(good.to_owned()));
        }
        for good in [long(255), deep(64)] {
            assert!(Relative::parse(&good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "/",
            "/etc/passwd",
            "a/",
            "a//b",
            ".",
            "..",
            "./a",
            "a/.",
            "a/./b",
            "../a",
            "a/..",
            "a/../b",
            "a\0",
            "a\nb",
            "\u{1b}[2J",
            "a\u{7f}",
            "a\u{85}",
            "a/../../../etc/shadow",
        ] {
            assert!(Relative::parse(bad).is_err(), "{bad:?}");
        }
        for bad in [long(256), deep(65), vec![long(255); 17].join("/"), "../".repeat(64) + "etc"] {
            assert!(Relative::parse(&bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_bad_path_is_shown_harmlessly_and_cut() {
        let hostile = format!("/\u{1b}[31m\u{202e}{}", "x".repeat(10_000));
        let error = Relative::parse(&hostile).unwrap_err().to_string();
        assert!(!error.contains(['\u{1b}', '\u{202e}']) && error.len() < 400, "{error}");
    }

    #[test]
    fn a_path_knows_what_is_above_it() {
        let path = Relative::parse("a/b/c").unwrap();
        let above: Vec<String> = path.ancestors().map(String::from).collect();
        assert_eq!(above, ["a/b", "a"]);
        assert_eq!((path.name(), path.depth()), ("c", 3));
        assert_eq!(Relative::parse("a").unwrap().parent(), None);
        assert_eq!(Relative::join(path.parent().as_ref(), "c"), Ok(path));
        assert!(Relative::join(None, "a/../b").is_err());
    }

    proptest! {
        #[test]
        fn what_is_accepted_stays_as_it_is(text in "[a./\\\\ \u{0}\n\u{e4}]{0,12}") {
            if let Ok(path) = Relative::parse(&text) {
                prop_assert_eq!(path.as_str(), &text);
                prop_assert!(path.parts().all(|p| !["", ".", ".."].contains(&p)));
                prop_assert!(!text.contains(['\0', '\n']));
            }
        }

        #[test]
        fn a_directory_comes_right_before_what_is_in_it(
            a in "[a.b]{1,3}(/[a.b]{1,3}){0,3}", b in "[a.b]{1,3}(/[a.b]{1,3}){0,3}",
        ) {
            let (Ok(a), Ok(b)) = (Relative::parse(&a), Relative::parse(&b)) else { return Ok(()) };
            let parts = |p: &Relative| p.parts().map(str::to_owned).collect::<Vec<_>>();
            prop_assert_eq!(a.cmp(&b), parts(&a).cmp(&parts(&b)));
            // Between a directory and something in it there is only what is in it.
            let inside = Relative::join(Some(&a), "z").unwrap();
            if a < b && b < inside {
                prop_assert!(b.ancestors().any(|above| above == a));
            }
        }
    }
}
