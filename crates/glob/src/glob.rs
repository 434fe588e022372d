//! The pattern of a path.

use std::fmt;
use std::str::{FromStr, Split};

use crate::parse::{self, BadGlob};
use crate::relate::{Item, cover, meet};
use crate::segment::Segment;

/// A pattern of paths, as in a `.gitignore`:
///
/// - `*` is any number of characters of one part, `?` one character, `[a-z]` and `[!a-z]` one of a class;
///   `\` takes the meaning from what follows it;
/// - `**` is any number of whole parts, none included;
/// - without a `/` before its end it matches at any depth; `/` at its beginning ties it to the root;
/// - `/` at its end means the directory and everything below.
///
/// Stricter than there: `**` stands alone between two `/`, there is no `!`, and a pattern names only what it
/// matches, and not what lies below that; for that there is [`Glob::and_below`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Glob {
    text: Box<str>,
    pub(crate) parts: Box<[Part]>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Part {
    /// `**`
    Any,
    One(Segment),
}

impl Glob {
    /// Longest pattern, in bytes: no path is longer.
    pub const MAX: usize = 4095;

    pub fn parse(text: &str) -> Result<Glob, BadGlob> {
        Ok(Glob { parts: parse::parts(text)?, text: text.into() })
    }

    /// The pattern that matches this path and nothing else.
    pub fn exactly(path: &str) -> Glob {
        let mut text = String::with_capacity(path.len() + 1);
        text.push('/');
        for c in path.chars() {
            if parse::SPECIAL.contains(&c) || c.is_whitespace() {
                text.push('\\');
            }
            text.push(c);
        }
        let parts = parts_of(path).map(|part| Part::One(Segment::Literal(part.into()))).collect();
        Glob { text: text.into(), parts }
    }

    /// The same, and everything below what it matches, as `.gitignore` has it.
    pub fn and_below(self) -> Glob {
        if self.parts.last() == Some(&Part::Any) {
            return self;
        }
        let parts = self.parts.into_iter().chain([Part::Any]).collect();
        Glob { text: self.text, parts }
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub fn matches(&self, path: &str) -> bool {
        let (mut at, mut rest) = (0, parts_of(path));
        // Going back to the last `**` is enough: it can take what an earlier one could.
        let mut last_any = None;
        loop {
            let before = rest.clone();
            match (self.parts.get(at), rest.next()) {
                (None, None) => return true,
                (Some(Part::Any), _) => {
                    at += 1;
                    rest = before.clone();
                    last_any = Some((at, before));
                }
                (Some(Part::One(segment)), Some(part)) if segment.matches(part) => at += 1,
                _ => {
                    let Some((any, from)) = &mut last_any else { return false };
                    if from.next().is_none() {
                        return false;
                    }
                    at = *any;
                    rest = from.clone();
                }
            }
        }
    }

    /// Whether some path matches both. Never says no when there is one.
    pub fn intersects(&self, other: &Glob) -> bool {
        meet(&self.parts, &other.parts)
    }

    /// Whether every path that matches the other matches this one. Says yes only if that is so; it may
    /// say no where several of our parts together would be needed to see it.
    pub fn covers(&self, other: &Glob) -> bool {
        cover(&self.parts, &other.parts)
    }
}

impl Item for Part {
    fn is_any(&self) -> bool {
        matches!(self, Part::Any)
    }

    fn meets(&self, other: &Part) -> bool {
        match (self, other) {
            (Part::One(one), Part::One(other)) => one.intersects(other),
            _ => true,
        }
    }

    fn includes(&self, other: &Part) -> bool {
        match (self, other) {
            (Part::One(one), Part::One(other)) => one.covers(other),
            _ => false,
        }
    }
}

/// The root has none.
pub(crate) fn parts_of(path: &str) -> Parts<'_> {
    let mut parts = path.split('/');
    if path == "." {
        parts.next();
    }
    Parts(parts)
}

#[derive(Debug, Clone)]
pub(crate) struct Parts<'a>(Split<'a, char>);

impl<'a> Iterator for Parts<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        self.0.next()
    }
}

impl FromStr for Glob {
    type Err = BadGlob;

    fn from_str(text: &str) -> Result<Glob, BadGlob> {
        Glob::parse(text)
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
