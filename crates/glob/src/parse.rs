//! From text to a pattern. What could mean two things is refused, with its place and what to write.

use crate::glob::{Glob, Part};
use crate::segment::{Chars, Piece, Segment};

/// Why a text is not a pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} at character {at}: {fix}")]
pub struct BadGlob {
    /// Counted from 1.
    pub at: usize,
    pub what: &'static str,
    pub fix: &'static str,
}

/// What has a meaning of its own, and is escaped to have none. `!` and space have one only at an end, and
/// braces none: they are refused, since elsewhere they mean alternatives.
pub(crate) const SPECIAL: [char; 9] = ['*', '?', '[', ']', '{', '}', '\\', '!', ' '];

/// Most parts of a pattern.
const PARTS_MOST: usize = 128;
/// Most characters of a part: no file system has more.
const PIECES_MOST: usize = 255;

/// A character, whether it was escaped, and where it stands.
#[derive(Clone, Copy)]
struct Char {
    c: char,
    escaped: bool,
    at: usize,
}

impl Char {
    fn is(self, c: char) -> bool {
        self.c == c && !self.escaped
    }
}

pub(crate) fn parts(text: &str) -> Result<Box<[Part]>, BadGlob> {
    if text.len() > Glob::MAX {
        return Err(bad(1, "the pattern is too long", "write at most 4095 bytes"));
    }
    // The one spelling of the root itself, which has no parts.
    if text == "/." {
        return Ok(Box::new([]));
    }
    let chars = unescape(text)?;
    check_ends(&chars)?;
    let (first, body) = match chars.split_first() {
        Some((first, rest)) if first.is('/') => (Some(*first), rest),
        _ => (None, chars.as_slice()),
    };
    let (body, is_directory) = match body.split_last() {
        Some((last, rest)) if last.is('/') => (rest, true),
        _ => (body, false),
    };
    if body.is_empty() {
        return Err(bad(1, "the pattern is empty", "name a path, or `**` for every path"));
    }
    let is_tied = first.is_some() || body.iter().any(|c| c.is('/'));
    let mut parts = Vec::new();
    if !is_tied {
        push(&mut parts, Part::Any);
    }
    for written in body.split(|c| c.is('/')) {
        let place = written.first().or(body.first()).map_or(1, |c| c.at);
        push(&mut parts, part(written, place)?);
    }
    if is_directory {
        push(&mut parts, Part::Any);
    }
    if parts.len() > PARTS_MOST {
        return Err(bad(1, "the pattern has too many parts", "write at most 128"));
    }
    Ok(parts.into())
}

/// Two `**` in a row say no more than one.
fn push(parts: &mut Vec<Part>, part: Part) {
    if part != Part::Any || parts.last() != Some(&Part::Any) {
        parts.push(part);
    }
}

fn unescape(text: &str) -> Result<Vec<Char>, BadGlob> {
    let mut chars = Vec::with_capacity(text.len());
    let mut rest = text.chars().zip(1..);
    while let Some((c, at)) = rest.next() {
        let (c, escaped) = match c {
            '\\' => match rest.next() {
                Some(('/', _)) => {
                    return Err(bad(at, "`\\` before `/`", "a `/` always parts names"));
                }
                Some((c, _)) => (c, true),
                None => {
                    return Err(bad(
                        at,
                        "`\\` at the end",
                        "write `\\\\` for the character itself",
                    ));
                }
            },
            c => (c, false),
        };
        if c.is_control() {
            return Err(bad(at, "a character that is not shown", "leave it out: no path has one"));
        }
        chars.push(Char { c, escaped, at });
    }
    Ok(chars)
}

fn check_ends(chars: &[Char]) -> Result<(), BadGlob> {
    if let Some(first) = chars.first().filter(|c| c.is('!')) {
        return Err(bad(
            first.at,
            "`!`",
            "there is no negation: use `except`, or `\\!` for a name",
        ));
    }
    for end in [chars.first(), chars.last()].into_iter().flatten() {
        if end.c.is_whitespace() && !end.escaped {
            return Err(bad(end.at, "a space at an end", "leave it out, or write `\\ `"));
        }
    }
    Ok(())
}

fn part(written: &[Char], place: usize) -> Result<Part, BadGlob> {
    let is_plain = |text: &str| written.iter().map(|c| c.c).eq(text.chars());
    match written {
        [] => return Err(bad(place, "an empty part", "write one `/` between two parts")),
        [a, b] if a.is('*') && b.is('*') => return Ok(Part::Any),
        _ if is_plain(".") || is_plain("..") => {
            return Err(bad(place, "`.` or `..`", "write the path as it is from the root"));
        }
        _ => {}
    }
    let mut pieces = Vec::with_capacity(written.len());
    let mut rest = written;
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        let piece = match first.c {
            _ if first.escaped => Piece::One(Chars::one(first.c)),
            '*' if pieces.last() == Some(&Piece::Star) => {
                let fix = "write it alone between two `/`, or one `*`";
                return Err(bad(first.at, "`**` beside other text", fix));
            }
            '*' => Piece::Star,
            '?' => Piece::One(Chars::any()),
            '[' => {
                let (class, after) = class(*first, rest)?;
                rest = after;
                Piece::One(class)
            }
            '{' | '}' => {
                let fix = "there are no alternatives: write several patterns, or `\\{` for a name";
                return Err(bad(first.at, "a brace", fix));
            }
            c => Piece::One(Chars::one(c)),
        };
        pieces.push(piece);
    }
    if pieces.len() > PIECES_MOST {
        return Err(bad(place, "a part that is too long", "write at most 255 characters"));
    }
    Ok(Part::One(Segment::of(pieces)))
}

/// What stands between `[` and `]`. A `]` that comes first is one of the characters.
fn class(open: Char, mut rest: &[Char]) -> Result<(Chars, &[Char]), BadGlob> {
    let unclosed = || bad(open.at, "`[` without `]`", "close it, or write `\\[` for the character");
    let negated = rest.first().is_some_and(|c| c.is('!') || c.is('^'));
    if negated {
        rest = rest.get(1..).unwrap_or_default();
    }
    let mut ranges = Vec::new();
    loop {
        let (from, after) = rest.split_first().ok_or_else(unclosed)?;
        rest = after;
        if from.is(']') && !ranges.is_empty() {
            return Ok((Chars::of(ranges, negated), rest));
        }
        if from.is('[') && rest.first().is_some_and(|c| c.is(':') || c.is('.') || c.is('=')) {
            return Err(bad(from.at, "a named class", "write its characters, such as `a-z`"));
        }
        let to = match rest {
            [dash, to, after @ ..] if dash.is('-') && !to.is(']') => {
                rest = after;
                to
            }
            _ => from,
        };
        if to.c < from.c {
            return Err(bad(from.at, "a range that goes backwards", "write the lower end first"));
        }
        ranges.push((from.c, to.c));
    }
}

fn bad(at: usize, what: &'static str, fix: &'static str) -> BadGlob {
    BadGlob { at, what, fix }
}
