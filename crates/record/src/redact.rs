//! Takes secrets out of text before it is hashed or stored: one pass over the bytes, and one more for each
//! regular expression of a policy. Nothing backtracks, and how often a byte is looked at is bounded.

use std::borrow::Cow;
use std::io::{self, Read};
use std::ops::Range;
use std::sync::OnceLock;

use aho_corasick::{AhoCorasick, Input, MatchKind};
use regex::bytes::Regex;
use serde_json::Value;

use crate::event::Secret;

/// Most patterns that can be added.
pub const MOST_PATTERNS: usize = 256;
/// A value that is shorter cannot be told from ordinary text.
pub const LEAST_SECRET: usize = 4;

const KEY_BEGIN: &[u8] = b"-----BEGIN ";
const KEY_WORD: &[u8] = b"PRIVATE KEY";
const KEY_END: &[u8] = b"-----END ";
const DASHES: &[u8] = b"-----";
/// Longest text between `-----BEGIN ` and the dashes that end it.
const KEY_NAME_MOST: usize = 64;
/// How far back a look goes for the beginning of a word.
const BEHIND: usize = 3;
/// Bytes of a source that are read at once.
const CHUNK: usize = 64 * 1024;
/// From how many bytes on a text is long.
const LONG: usize = 16 * 1024;
/// Within how many bytes a regular expression has to find that it matches. What goes on after that belongs to
/// the match as well, however long it is.
pub(crate) const STRETCH: usize = 4 * 1024;
/// Most matches of one expression in a stretch; with more of them, what is left of the stretch is taken out.
/// Each may have looked ahead to its end.
const MOST_IN_A_STRETCH: usize = 32;
/// What the patterns of a policy are called in what is recorded.
const OF_POLICY: &str = "policy";

/// Text that is not recorded.
#[derive(Debug, Clone)]
pub struct Pattern {
    kind: String,
    start: Secret,
    /// What follows the start, and how much of it there has to be.
    tail: Tail,
    least: usize,
    /// `task-force` is not `sk-`.
    begins_a_word: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tail {
    Nothing,
    Letters,
    Capitals,
    /// Letters, digits, `_` and `-`.
    Token,
    /// Up to the next space or quote.
    Word,
}

impl Tail {
    fn has(self, byte: u8) -> bool {
        match self {
            Tail::Nothing => false,
            Tail::Letters => byte.is_ascii_alphanumeric(),
            Tail::Capitals => byte.is_ascii_uppercase() || byte.is_ascii_digit(),
            Tail::Token => byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-',
            Tail::Word => {
                !byte.is_ascii_whitespace()
                    && !byte.is_ascii_control()
                    && !matches!(byte, b'"' | b'\'' | b'`')
            }
        }
    }
}

impl Pattern {
    /// Whatever begins so and goes on with at least so many letters, digits, `_` and `-`.
    pub fn prefix(kind: impl Into<String>, start: impl Into<String>, least: usize) -> Pattern {
        let start = Secret::new(start);
        Pattern { kind: kind.into(), start, tail: Tail::Token, least, begins_a_word: false }
    }

    /// Whatever begins so, up to the next space or quote, as a policy says it.
    pub fn word(start: impl Into<String>) -> Pattern {
        let (tail, least, begins_a_word) = (Tail::Word, 1, false);
        let start = Secret::new(start);
        Pattern { kind: OF_POLICY.to_owned(), start, tail, least, begins_a_word }
    }

    /// One value.
    pub fn exact(kind: impl Into<String>, value: Secret) -> Pattern {
        let (tail, least, begins_a_word) = (Tail::Nothing, 0, false);
        Pattern { kind: kind.into(), start: value, tail, least, begins_a_word }
    }

    fn builtin(kind: &str, start: &str, tail: Tail, least: usize, begins_a_word: bool) -> Pattern {
        Pattern { kind: kind.to_owned(), start: Secret::new(start), tail, least, begins_a_word }
    }

    /// Where a match that begins here ends.
    fn end(&self, bytes: &[u8], at: usize) -> Option<usize> {
        let rest = bytes.get(at..)?.strip_prefix(self.start.0.as_bytes())?;
        // First, since what follows may be long and is looked at only once if it is taken.
        if self.begins_a_word && !is_boundary(bytes, at) {
            return None;
        }
        let tail = rest.iter().take_while(|&&byte| self.tail.has(byte)).count();
        (tail >= self.least).then_some(at + self.start.0.len() + tail)
    }
}

/// Nothing in front that would make it the middle of a word; an escape (`\n`, `%20`) is no word.
fn is_boundary(bytes: &[u8], at: usize) -> bool {
    let before = |back: usize| at.checked_sub(back).and_then(|place| bytes.get(place)).copied();
    !before(1).is_some_and(|byte| byte.is_ascii_alphanumeric())
        || before(2) == Some(b'\\')
        || before(BEHIND) == Some(b'%')
}

/// Everything that is taken out of every text.
#[derive(Debug)]
pub struct Redactor {
    patterns: Vec<Pattern>,
    /// Bytes after which it is clear whether a pattern begins at a place.
    clear_after: usize,
    /// For each byte, the patterns that begin with it: most bytes begin none.
    starts: Vec<Vec<usize>>,
    /// Of a policy.
    expressions: Vec<Regex>,
    /// The same for what is long. It takes longer to make than a short text to look through.
    quick: OnceLock<Option<AhoCorasick>>,
}

impl Redactor {
    /// The usual ones and these.
    pub fn new(further: &[Pattern]) -> Redactor {
        let mut patterns = vec![
            Pattern::builtin("sk", "sk-", Tail::Token, 8, true),
            Pattern::builtin("github", "ghp_", Tail::Letters, 8, false),
            Pattern::builtin("github", "gho_", Tail::Letters, 8, false),
            Pattern::builtin("github", "ghu_", Tail::Letters, 8, false),
            Pattern::builtin("github", "ghs_", Tail::Letters, 8, false),
            Pattern::builtin("github", "ghr_", Tail::Letters, 8, false),
            Pattern::builtin("github", "github_pat_", Tail::Token, 8, false),
            Pattern::builtin("aws", "AKIA", Tail::Capitals, 8, false),
            Pattern::builtin("slack", "xox", Tail::Token, 8, false),
            Pattern::builtin("gitlab", "glpat-", Tail::Token, 8, false),
            Pattern::builtin("npm", "npm_", Tail::Letters, 8, false),
            Pattern::builtin("hotcell", "hct_", Tail::Token, 8, false),
            Pattern::builtin("hotcell", "hck_", Tail::Letters, 8, false),
        ];
        patterns.extend(further.iter().take(MOST_PATTERNS).cloned());
        Redactor::of(patterns, Vec::new())
    }

    /// What these match is taken out as well.
    pub fn and_expressions(self, expressions: Vec<Regex>) -> Redactor {
        Redactor { expressions, ..self }
    }

    fn of(patterns: Vec<Pattern>, expressions: Vec<Regex>) -> Redactor {
        let mut starts = vec![Vec::new(); 256];
        for (place, pattern) in patterns.iter().enumerate() {
            let first = pattern.start.0.as_bytes().first();
            if let Some(start) = first.and_then(|&first| starts.get_mut(usize::from(first))) {
                start.push(place);
            }
        }
        let lengths = patterns.iter().map(|pattern| pattern.start.0.len() + pattern.least);
        let clear_after = lengths.fold(KEY_BEGIN.len() + KEY_NAME_MOST, usize::max);
        Redactor { patterns, clear_after, starts, expressions, quick: OnceLock::new() }
    }

    /// One that takes these values out as well, as they are and as JSON writes them.
    pub fn with(&self, secrets: &[Secret]) -> Redactor {
        let mut patterns = self.patterns.clone();
        for secret in secrets.iter().filter(|secret| secret.0.len() >= LEAST_SECRET) {
            patterns.push(Pattern::exact("declared", secret.clone()));
            let json = serde_json::Value::from(secret.0.as_str()).to_string();
            let inner = json.trim_start_matches('"').trim_end_matches('"');
            if inner != secret.0 && inner.len() >= LEAST_SECRET {
                patterns.push(Pattern::exact("declared", Secret::new(inner)));
            }
        }
        Redactor::of(patterns, self.expressions.clone())
    }

    pub fn redact<'a>(&self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        let found = self.found(bytes);
        if found.is_empty() {
            return Cow::Borrowed(bytes);
        }
        let (mut out, mut kept) = (Vec::new(), 0);
        for (range, kind) in found {
            out.extend(bytes.get(kept..range.start).unwrap_or_default());
            out.extend(format!("[redacted:{kind}]").bytes());
            kept = range.end;
        }
        out.extend(bytes.get(kept..).unwrap_or_default());
        Cow::Owned(out)
    }

    /// The same of each text in a value, of the names of its members and of its numbers: it stays one that
    /// can be read, whatever is taken out.
    pub fn redact_json(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.redact_text(text)),
            Value::Number(number) if self.is_in(number.to_string().as_bytes()) => {
                Value::String(self.redact_text(&number.to_string()))
            }
            Value::Array(items) => items.iter().map(|item| self.redact_json(item)).collect(),
            Value::Object(members) => members
                .iter()
                .map(|(name, member)| (self.redact_text(name), self.redact_json(member)))
                .collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        }
    }

    pub fn redact_text(&self, text: &str) -> String {
        // If a pattern cut a character in two, that is shown.
        String::from_utf8_lossy(&self.redact(text.as_bytes())).into_owned()
    }

    /// What is to be taken out, in order; no two of them touch the same byte.
    fn found(&self, bytes: &[u8]) -> Vec<(Range<usize>, &str)> {
        let (mut found, mut at) = (Vec::new(), 0);
        while let Some(&byte) = bytes.get(at) {
            let Some((kind, end)) = self.find(byte, bytes, at) else {
                at += 1;
                continue;
            };
            found.push((at..end, kind));
            at = end;
        }
        if self.expressions.is_empty() {
            return found;
        }
        for expression in &self.expressions {
            found.extend(matches(expression, bytes).into_iter().map(|range| (range, OF_POLICY)));
        }
        found.sort_by_key(|(range, _)| range.start);
        found.dedup_by(|(next, _), (range, _)| {
            let overlaps = next.start < range.end;
            if overlaps {
                range.end = range.end.max(next.end);
            }
            overlaps
        });
        found
    }

    /// Whether there is anything to take out.
    pub fn is_in(&self, bytes: &[u8]) -> bool {
        self.begins_in(bytes, 0..bytes.len()) || self.is_matched(bytes)
    }

    /// Whether an expression matches something. A text is looked at once by each.
    fn is_matched(&self, bytes: &[u8]) -> bool {
        self.expressions.iter().any(|expression| expression.is_match(bytes))
    }

    /// The same of a source of any length, which is read to the first that is found.
    pub fn is_in_source(&self, mut source: impl Read) -> io::Result<bool> {
        let mut window = Vec::new();
        // The first place in the window that was not looked at.
        let mut at = 0;
        loop {
            let read = source.by_ref().take(CHUNK as u64).read_to_end(&mut window)?;
            let is_end = read < CHUNK;
            let clear = if is_end { 0 } else { self.clear_after };
            let to = window.len().saturating_sub(clear).max(at);
            if self.begins_in(&window, at..to) || self.is_matched(&window) {
                return Ok(true);
            }
            if is_end {
                return Ok(false);
            }
            // So much stays that a match lies in one window or the other.
            let stays = if self.expressions.is_empty() { BEHIND } else { STRETCH };
            let behind = to.saturating_sub(stays);
            window.drain(..behind);
            at = to - behind;
        }
    }

    fn begins_in(&self, bytes: &[u8], places: Range<usize>) -> bool {
        let quick = if places.len() < LONG { None } else { self.quick() };
        if let Some(quick) = quick {
            return self.begins_quickly(quick, bytes, places);
        }
        let looked_at = bytes.get(places.clone()).unwrap_or_default();
        let mut found = places.zip(looked_at);
        found.any(|(at, &first)| self.find(first, bytes, at).is_some())
    }

    fn begins_quickly(&self, quick: &AhoCorasick, bytes: &[u8], places: Range<usize>) -> bool {
        let mut at = places.start;
        while let Some(found) = quick.find(Input::new(bytes).range(at..)) {
            let start = found.start();
            if start >= places.end {
                return false;
            }
            if bytes.get(start).is_some_and(|&first| self.find(first, bytes, start).is_some()) {
                return true;
            }
            at = start + 1;
        }
        false
    }

    fn quick(&self) -> Option<&AhoCorasick> {
        let make = || {
            let starts = self.patterns.iter().map(|pattern| pattern.start.0.as_bytes());
            let starts = starts.filter(|start| !start.is_empty()).chain([KEY_BEGIN]);
            AhoCorasick::builder().match_kind(MatchKind::LeftmostFirst).build(starts).ok()
        };
        self.quick.get_or_init(make).as_ref()
    }

    /// What begins here, and where it ends. The longest wins, so that the end of a value never stays.
    fn find(&self, first: u8, bytes: &[u8], at: usize) -> Option<(&str, usize)> {
        let starts = self.starts.get(usize::from(first))?;
        if starts.is_empty() && first != b'-' {
            return None;
        }
        let patterns = starts.iter().filter_map(|&place| self.patterns.get(place));
        let found = patterns
            .filter_map(|pattern| Some((pattern.kind.as_str(), pattern.end(bytes, at)?)))
            .max_by_key(|&(_, end)| end);
        let key = if first == b'-' { private_key(bytes, at) } else { None };
        found.into_iter().chain(key.map(|end| ("private-key", end))).max_by_key(|&(_, end)| end)
    }
}

/// What an expression matches, from left to right. It is shown a stretch beyond the place where it begins to
/// look, and more only as long as its match reaches the end of that.
fn matches(expression: &Regex, bytes: &[u8]) -> Vec<Range<usize>> {
    let mut found: Vec<Range<usize>> = Vec::new();
    let (mut at, mut stretch, mut in_stretch) = (0, 0, 0);
    while at < bytes.len() {
        if at >= stretch {
            (stretch, in_stretch) = (at + STRETCH, 0);
        }
        let end = bytes.len().min(at + 2 * STRETCH);
        let Some(matched) = first_match(expression, bytes, at, end) else {
            // What begins in the rest of it may go on.
            at = if end == bytes.len() { end } else { end - STRETCH };
            continue;
        };
        in_stretch += 1;
        let to = match in_stretch {
            MOST_IN_A_STRETCH => matched.end.max(stretch.min(bytes.len())),
            _ => matched.end,
        };
        at = to.max(matched.start + 1);
        found.push(matched.start..to);
    }
    found
}

fn first_match(expression: &Regex, bytes: &[u8], at: usize, end: usize) -> Option<Range<usize>> {
    let mut matched = expression.find_at(bytes.get(..end)?, at)?.range();
    let mut seen = end;
    // It is cut where it reaches the end of what was shown. Twice as much is shown each time, so that all of
    // it together is in proportion to the match.
    while matched.end == seen && seen < bytes.len() {
        seen = bytes.len().min(seen + matched.len().max(STRETCH));
        matched = expression.find_at(bytes.get(..seen)?, matched.start)?.range();
    }
    Some(matched)
}

/// A block from its first dashes to its last; to the end of the text if it is not closed.
fn private_key(bytes: &[u8], at: usize) -> Option<usize> {
    let rest = bytes.get(at..)?.strip_prefix(KEY_BEGIN)?;
    let name_end = find(rest.get(..KEY_NAME_MOST).unwrap_or(rest), DASHES)?;
    find(rest.get(..name_end)?, KEY_WORD)?;
    let Some(end) = find(rest, KEY_END) else { return Some(bytes.len()) };
    let after = rest.get(end + KEY_END.len()..)?;
    let Some(close) = find(after, DASHES) else { return Some(bytes.len()) };
    Some(bytes.len() - after.len() + close + DASHES.len())
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redacted(text: &str) -> String {
        let redactor = Redactor::new(&[Pattern::prefix("ours", "tok:", 3)]);
        String::from_utf8(redactor.redact(text.as_bytes()).into_owned()).unwrap()
    }

    #[test]
    fn what_looks_like_a_secret_goes_and_the_rest_stays() {
        for (text, expected) in [
            ("", ""),
            ("nothing here", "nothing here"),
            ("key=sk-proj-0123456789_x;", "key=[redacted:sk];"),
            (r#"{"a":"x\nsk-0123456789"}"#, r#"{"a":"x\n[redacted:sk]"}"#),
            ("a%20sk-0123456789", "a%20[redacted:sk]"),
            ("task-management-by-risk-assessment", "task-management-by-risk-assessment"),
            ("sk-short", "sk-short"),
            ("ghp_0123456789abcdef gho_0123456789", "[redacted:github] [redacted:github]"),
            ("xghp_0123456789abcdef", "x[redacted:github]"),
            ("github_pat_11ABC_0123456789", "[redacted:github]"),
            ("AKIAIOSFODNN7EXAMPLE", "[redacted:aws]"),
            ("xoxb-123456789012-abc", "[redacted:slack]"),
            ("glpat-0123456789_-abc", "[redacted:gitlab]"),
            ("npm_0123456789abcdefghij npm_config_registry", "[redacted:npm] npm_config_registry"),
            ("token hct_AQEAAAB-_x9, said he", "token [redacted:hotcell], said he"),
            ("a tok:abc b tok:ab", "a [redacted:ours] b tok:ab"),
            (
                "-----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY-----\nafter",
                "[redacted:private-key]\nafter",
            ),
            ("-----BEGIN OPENSSH PRIVATE KEY-----\\nb3Bl", "[redacted:private-key]"),
            ("-----BEGIN CERTIFICATE-----\nMII", "-----BEGIN CERTIFICATE-----\nMII"),
            ("----------BEGIN PRIVATE KEY-----x", "-----[redacted:private-key]"),
        ] {
            assert_eq!(redacted(text), expected, "{text}");
        }
    }

    fn of_policy(words: &[&str], expressions: &[&str]) -> Redactor {
        let words: Vec<Pattern> = words.iter().map(|&word| Pattern::word(word)).collect();
        let expressions = expressions.iter().map(|text| Regex::new(text).unwrap()).collect();
        Redactor::new(&words).and_expressions(expressions)
    }

    #[test]
    fn what_a_policy_says_goes_as_well() {
        let redactor = of_policy(&["corp-"], &["tok_[a-z]{8}", "(?i)pin=[0-9]+"]);
        for (text, expected) in [
            ("corp-", "corp-"),
            ("a corp-x/y=z b", "a [redacted:policy] b"),
            ("'corp-x' \"corp-y\"", "'[redacted:policy]' \"[redacted:policy]\""),
            ("tok_abcdefg", "tok_abcdefg"),
            ("tok_abcdefghi tok_aaaaaaaa", "[redacted:policy]i [redacted:policy]"),
            ("Pin=1234567, pin=x", "[redacted:policy], pin=x"),
            // What two of them find together is one place.
            ("corp-ghp_0123456789", "[redacted:policy]"),
            (
                "corp-tok_abcdefghi pin=1xcorp-2",
                "[redacted:policy] [redacted:policy]x[redacted:policy]",
            ),
            ("ghp_0123456789abcdefpin=1", "[redacted:github]"),
        ] {
            let found = redactor.redact_text(text);
            assert_eq!(found, expected, "{text}");
            assert_eq!(redactor.is_in(text.as_bytes()), found != text, "{text}");
        }
    }

    #[test]
    fn a_document_stays_one_whatever_is_taken_out_of_it() {
        let redactor = of_policy(&["corp-"], &["tok.*", "[0-9]{16}"]);
        let value = serde_json::json!({
            "a": ["x tok\",}]", 1234567890123456u64, 1, null, true],
            "corp-b": {"c": "say \"corp-1\" twice"},
        });
        let expected = serde_json::json!({
            "a": ["x [redacted:policy]", "[redacted:policy]", 1, null, true],
            "[redacted:policy]": {"c": "say \"[redacted:policy]\" twice"},
        });
        assert_eq!(redactor.redact_json(&value), expected);
    }

    #[test]
    fn a_match_is_found_wherever_it_begins_and_goes_to_its_end() {
        let redactor = of_policy(&[], &["tok_[a-z]+"]);
        for length in [1, STRETCH - 1, STRETCH + 1, 5 * STRETCH, CHUNK + 3] {
            for before in [0, STRETCH - 3, 2 * STRETCH - 3, CHUNK - 2, CHUNK + STRETCH] {
                let text =
                    [" ".repeat(before), "tok_".into(), "a".repeat(length), " end".into()].concat();
                let expected = [" ".repeat(before), "[redacted:policy] end".into()].concat();
                assert!(redactor.redact_text(&text) == expected, "{before} {length}");
                assert!(redactor.is_in_source(text.as_bytes()).unwrap(), "{before} {length}");
            }
        }
        assert!(!redactor.is_in_source(&b" tok_ "[..].repeat(CHUNK)[..]).unwrap());
    }

    #[test]
    fn where_there_are_too_many_to_look_at_each_all_of_it_goes() {
        let redactor = of_policy(&[], &["k[0-9]"]);
        let text = "k1 ".repeat(2 * STRETCH);
        let found = redactor.redact_text(&text);
        assert!(!found.contains("k1") && found.len() < 3 * STRETCH, "{}", found.len());
        // Fewer are taken out one by one.
        let few = "k1 word ".repeat(MOST_IN_A_STRETCH - 1);
        assert_eq!(redactor.redact_text(&few), few.replace("k1", "[redacted:policy]"));
    }

    #[test]
    fn declared_values_go_in_every_spelling() {
        let redactor = Redactor::new(&[]).with(&[Secret::new("pa\"ss\nword"), Secret::new("abc")]);
        let text = "x pa\"ss\nword y pa\\\"ss\\nword abc";
        let expected = "x [redacted:declared] y [redacted:declared] abc";
        assert_eq!(redactor.redact(text.as_bytes()), expected.as_bytes());
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]
        #[test]
        fn a_source_has_what_its_bytes_have(
            before in CHUNK - 60..CHUNK + 60,
            text in "(x?sk-[a-z]{6,10}|AKIA[A-Z]{6,10}|-----BEGIN (RSA )?PRIVATE KEY-----|word)",
        ) {
            let redactor = Redactor::new(&[]);
            let bytes = [vec![b' '; before], text.into_bytes(), vec![b' '; 9]].concat();
            let expected = redactor.redact(&bytes) != bytes;
            proptest::prop_assert_eq!(redactor.is_in(&bytes), expected);
            proptest::prop_assert_eq!(redactor.is_in_source(&bytes[..]).unwrap(), expected);
        }
    }

    #[test]
    fn hostile_repetition_takes_time_in_proportion() {
        let begun = std::time::Instant::now();
        for unit in
            ["-----BEGIN ", "sk-", "-----BEGIN PRIVATE KEY----------END ", "AKIA", "-", "xsk-"]
        {
            redacted(&unit.repeat(4_000_000 / unit.len()));
        }
        assert!(begun.elapsed() < std::time::Duration::from_secs(20), "{:?}", begun.elapsed());
    }

    proptest::proptest! {
        #[test]
        fn a_secret_never_stays_whatever_is_around_it(before in ".{0,20}", after in ".{0,20}") {
            let text = format!("{before}ghp_S3cretS3cret{after}");
            proptest::prop_assert!(!redacted(&text).contains("S3cretS3cret"));
        }
    }
}
