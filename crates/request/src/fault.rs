//! What is wrong with a document, and where. Faults are data for whoever sent it, a model included, so
//! they are bounded and show nothing that could steer a terminal.

use std::fmt;

use serde::Serialize;

use crate::text::shown;

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fault {
    at: String,
    what: String,
    why: String,
    fix: String,
}

/// Most characters of the place that a fault names.
const PLACE_MOST: usize = 512;

impl Fault {
    /// `at` is the JSON pointer of the place; that of the whole document is empty.
    pub fn new(
        at: &str,
        what: impl Into<String>,
        why: impl Into<String>,
        fix: impl Into<String>,
    ) -> Fault {
        let at = shown(at, PLACE_MOST);
        Fault { at, what: what.into(), why: why.into(), fix: fix.into() }
    }

    /// The JSON pointer of the place.
    pub fn at(&self) -> &str {
        &self.at
    }

    pub fn what(&self) -> &str {
        &self.what
    }

    pub fn why(&self) -> &str {
        &self.why
    }

    pub fn fix(&self) -> &str {
        &self.fix
    }

    /// The same fault at another place.
    pub(crate) fn at_place(self, at: &str) -> Fault {
        Fault { at: shown(at, PLACE_MOST), ..self }
    }

    /// The same fault, seen from the document that holds this one at `outer`.
    pub(crate) fn within(mut self, outer: &str) -> Fault {
        self.at.insert_str(0, outer);
        self
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.at.is_empty() {
            write!(f, "{}: ", self.at)?;
        }
        f.write_str(&self.what)
    }
}

impl std::error::Error for Fault {}

/// A step from a value to one inside it.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    Key(String),
    Index(usize),
}

/// The JSON pointer of a place (RFC 6901).
pub(crate) fn pointer(path: &[Step]) -> String {
    let mut text = String::new();
    for step in path {
        match step {
            Step::Key(key) => push_key(&mut text, key),
            Step::Index(index) => text.push_str(&format!("/{index}")),
        }
    }
    text
}

/// Goes one key down.
pub(crate) fn push_key(pointer: &mut String, key: &str) {
    pointer.push('/');
    for c in key.chars() {
        match c {
            '~' => pointer.push_str("~0"),
            '/' => pointer.push_str("~1"),
            other => pointer.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_json_pointer() {
        let path = [Step::Key("a/b".into()), Step::Index(3), Step::Key("m~n".into())];
        assert_eq!(pointer(&path), "/a~1b/3/m~0n");
        assert_eq!(pointer(&[]), "");
    }

    #[test]
    fn a_fault_is_short_and_harmless() {
        let fault = Fault::new(&format!("/\u{1b}[2J{}", "x".repeat(9000)), "is bad", "why", "fix");
        assert!(!fault.to_string().contains('\u{1b}') && fault.to_string().len() < 600, "{fault}");
        assert_eq!(Fault::new("", "is bad", "", "").to_string(), "is bad");
        assert_eq!(
            Fault::new("/a", "is bad", "", "").within("/input").to_string(),
            "/input/a: is bad"
        );
    }
}
