//! Finds the few tokens that a syntax tree does not place: modifiers, `?`, `!` and commas.

use oxc_span::Span;

use crate::blank::ends_line;

/// Where the next token begins.
pub(crate) fn skip_trivia(source: &str, from: u32) -> u32 {
    let mut rest = source.get(from as usize..).unwrap_or_default();
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == '\u{feff}');
        if let Some(comment) = rest.strip_prefix("//") {
            rest = comment.find(ends_line).and_then(|end| comment.get(end..)).unwrap_or_default();
        } else if let Some(comment) = rest.strip_prefix("/*") {
            rest = comment.split_once("*/").map_or("", |(_, rest)| rest);
        } else {
            return (source.len() - rest.len()) as u32;
        }
    }
}

/// The next token, if it is one of these characters.
pub(crate) fn mark(source: &str, from: u32, marks: &[char]) -> Option<Span> {
    let at = skip_trivia(source, from);
    let is_there = source.get(at as usize..)?.starts_with(marks);
    is_there.then_some(Span::new(at, at + 1))
}

/// The words of a span, outside of comments.
pub(crate) fn words(source: &str, span: Span) -> Vec<(Span, &str)> {
    let mut found = Vec::new();
    let mut at = skip_trivia(source, span.start);
    while at < span.end {
        let rest = source.get(at as usize..).unwrap_or_default();
        let end = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
        let word = rest.get(..end).unwrap_or_default();
        let step =
            if word.is_empty() { rest.chars().next().map_or(1, char::len_utf8) } else { end };
        if !word.is_empty() {
            found.push((Span::new(at, at + end as u32), word));
        }
        at = skip_trivia(source, at + step as u32);
    }
    found
}
