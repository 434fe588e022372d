//! One part of a path, and the patterns of one: text, `*`, `?` and classes.

use crate::relate::{Item, cover, meet};

/// The pattern of one part.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Segment {
    Literal(Box<str>),
    Wild(Box<[Piece]>),
}

/// What a pattern of a part is made of.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Piece {
    /// `*`: any number of characters.
    Star,
    /// Exactly one character out of these ranges, which are sorted and do not touch.
    One(Chars),
}

/// A set of characters. `?` is all of them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Chars(pub(crate) Box<[(char, char)]>);

impl Chars {
    pub(crate) fn any() -> Chars {
        Chars(Box::new([('\0', char::MAX)]))
    }

    pub(crate) fn one(c: char) -> Chars {
        Chars(Box::new([(c, c)]))
    }

    /// The ranges in order and joined, or everything but them.
    pub(crate) fn of(mut ranges: Vec<(char, char)>, negated: bool) -> Chars {
        ranges.sort_unstable();
        let mut joined: Vec<(char, char)> = Vec::with_capacity(ranges.len());
        for (from, to) in ranges {
            match joined.last_mut() {
                Some((_, end)) if from <= *end || Some(from) == after(*end) => *end = to.max(*end),
                _ => joined.push((from, to)),
            }
        }
        Chars(if negated { complement(&joined) } else { joined.into() })
    }

    /// The only character in it, if there is just one.
    pub(crate) fn single(&self) -> Option<char> {
        match *self.0 {
            [(from, to)] if from == to => Some(from),
            _ => None,
        }
    }

    fn has(&self, c: char) -> bool {
        self.0.iter().any(|&(from, to)| from <= c && c <= to)
    }

    fn meets(&self, other: &Chars) -> bool {
        self.0.iter().any(|a| other.0.iter().any(|b| a.0 <= b.1 && b.0 <= a.1))
    }

    /// Since ranges are joined, one within several of ours lies within one of them.
    fn includes(&self, other: &Chars) -> bool {
        other.0.iter().all(|b| self.0.iter().any(|a| a.0 <= b.0 && b.1 <= a.1))
    }
}

fn complement(ranges: &[(char, char)]) -> Box<[(char, char)]> {
    let mut left = Vec::with_capacity(ranges.len() + 1);
    let mut next = Some('\0');
    for &(from, to) in ranges {
        if let (Some(begin), Some(end)) = (next, before(from))
            && begin <= end
        {
            left.push((begin, end));
        }
        next = after(to);
    }
    left.extend(next.map(|begin| (begin, char::MAX)));
    left.into()
}

fn after(c: char) -> Option<char> {
    (c..=char::MAX).nth(1)
}

fn before(c: char) -> Option<char> {
    ('\0'..c).next_back()
}

impl Piece {
    /// The character that it is, if it is just one.
    fn text(&self) -> Option<char> {
        match self {
            Piece::One(chars) => chars.single(),
            Piece::Star => None,
        }
    }
}

impl Item for Piece {
    fn is_any(&self) -> bool {
        matches!(self, Piece::Star)
    }

    fn meets(&self, other: &Piece) -> bool {
        match (self, other) {
            (Piece::One(one), Piece::One(other)) => one.meets(other),
            _ => true,
        }
    }

    fn includes(&self, other: &Piece) -> bool {
        match (self, other) {
            (Piece::One(one), Piece::One(other)) => one.includes(other),
            _ => false,
        }
    }
}

impl Segment {
    /// Pieces as the simplest pattern that means the same.
    pub(crate) fn of(pieces: Vec<Piece>) -> Segment {
        match pieces.iter().map(Piece::text).collect::<Option<String>>() {
            Some(text) => Segment::Literal(text.into()),
            None => Segment::Wild(pieces.into()),
        }
    }

    pub(crate) fn matches(&self, part: &str) -> bool {
        match self {
            Segment::Literal(text) => **text == *part,
            Segment::Wild(pieces) => wild_matches(pieces, part),
        }
    }

    /// Whether some part matches both. Never wrong when it says no.
    pub(crate) fn intersects(&self, other: &Segment) -> bool {
        match (self, other) {
            (Segment::Literal(text), _) => other.matches(text),
            (_, Segment::Literal(text)) => self.matches(text),
            (Segment::Wild(a), Segment::Wild(b)) => meet(a, b),
        }
    }

    /// Whether every part that matches the other matches this one. Never wrong when it says yes.
    pub(crate) fn covers(&self, other: &Segment) -> bool {
        match (self, other) {
            (_, Segment::Literal(text)) => self.matches(text),
            (Segment::Literal(_), Segment::Wild(_)) => false,
            (Segment::Wild(a), Segment::Wild(b)) => cover(a, b),
        }
    }

    /// The text that every match begins with, and the one that it ends with.
    pub(crate) fn ends(&self) -> (String, String) {
        let Segment::Wild(pieces) = self else { return Default::default() };
        let prefix = pieces.iter().map_while(Piece::text).collect();
        let suffix: Vec<char> = pieces.iter().rev().map_while(Piece::text).collect();
        (prefix, suffix.into_iter().rev().collect())
    }
}

/// Goes back to the last `*` only: it can take what an earlier one could.
fn wild_matches(pieces: &[Piece], part: &str) -> bool {
    let (mut at, mut rest) = (0, part.chars());
    let mut last_star = None;
    loop {
        let before = rest.clone();
        match (pieces.get(at), rest.next()) {
            (None, None) => return true,
            (Some(Piece::Star), _) => {
                at += 1;
                rest = before.clone();
                last_star = Some((at, before));
            }
            (Some(Piece::One(chars)), Some(c)) if chars.has(c) => at += 1,
            _ => {
                let Some((star, from)) = &mut last_star else { return false };
                if from.next().is_none() {
                    return false;
                }
                at = *star;
                rest = from.clone();
            }
        }
    }
}
