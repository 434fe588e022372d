//! What is wrong with a rule file, and where.

use std::fmt;

/// A place in a rule file, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct At {
    pub line: usize,
    pub column: usize,
}

/// Why a rule file is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    pub at: At,
    pub what: String,
    pub fix: String,
}

/// Something that is allowed, and hardly meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    pub at: At,
    pub what: String,
}

/// Most faults that are told at once.
pub const FAULTS_MOST: usize = 20;

impl At {
    pub(crate) const BEGIN: At = At { line: 1, column: 1 };

    pub(crate) fn right(self, columns: usize) -> At {
        At { column: self.column + columns, ..self }
    }
}

impl Fault {
    pub(crate) fn new(at: At, what: impl Into<String>, fix: impl Into<String>) -> Fault {
        Fault { at, what: what.into(), fix: fix.into() }
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.at, self.what, self.fix)
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.at, self.what)
    }
}

/// The known word that a wrong one was probably meant to be.
pub(crate) fn meant<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wrong = shown(wrong).to_lowercase();
    let near = known.into_iter().map(|word| (distance(&wrong, &word.to_lowercase()), word));
    let (distance, word) = near.min_by_key(|(distance, _)| *distance)?;
    (distance <= 1 + word.chars().count() / 4).then_some(word)
}

/// What to write instead of a wrong word.
pub(crate) fn instead(wrong: &str, known: &[&str]) -> String {
    match meant(wrong, known.iter().copied()) {
        Some(word) => format!("did you mean `{word}`?"),
        None => format!("write one of {}", known.join(", ")),
    }
}

/// A text of the file as it may be told: short, and without what is not seen.
pub(crate) fn shown(text: &str) -> String {
    const MOST: usize = 60;
    let mut shown: String =
        text.chars().take(MOST).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if text.chars().nth(MOST).is_some() {
        shown.push('…');
    }
    shown
}

/// How many characters have to be added, left out or changed.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, c) in a.chars().enumerate() {
        let (mut left, mut diagonal) = (i + 1, i);
        for (other, above) in [None].into_iter().chain(b.iter().map(Some)).zip(&mut row) {
            let here = match other {
                None => i + 1,
                Some(other) => (diagonal + usize::from(*other != c)).min(left + 1).min(*above + 1),
            };
            diagonal = std::mem::replace(above, here);
            left = here;
        }
    }
    row.last().copied().unwrap_or(0)
}
