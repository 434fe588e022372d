//! Takes secrets out of text before it is hashed or stored: one pass over the bytes, no regular
//! expressions, nothing to backtrack.

use std::borrow::Cow;
use std::io::{self, Read};
use std::ops::Range;
use std::sync::OnceLock;

use aho_corasick::{AhoCorasick, Input, MatchKind};

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
}

impl Tail {
    fn has(self, byte: u8) -> bool {
        match self {
            Tail::Nothing => false,
            Tail::Letters => byte.is_ascii_alphanumeric(),
            Tail::Capitals => byte.is_ascii_uppercase() || byte.is_ascii_digit(),
            Tail::Token => byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-',
        }
    }
}

impl Pattern {
    /// Whatever begins so and goes on with at least so many letters, digits, `_` and `-`.
    pub fn prefix(kind: impl Into<String>, start: impl Into<String>, least: usize) -> Pattern {
        let start = Secret::new(start);
        Pattern { kind: kind.into(), start, tail: Tail::Token, least, begins_a_word: false }
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
        Redactor::of(patterns)
    }

    fn of(patterns: Vec<Pattern>) -> Redactor {
        let mut starts = vec![Vec::new(); 256];
        for (place, pattern) in patterns.iter().enumerate() {
            let first = pattern.start.0.as_bytes().first();
            if let Some(start) = first.and_then(|&first| starts.get_mut(usize::from(first))) {
                start.push(place);
            }
        }
        let lengths = patterns.iter().map(|pattern| pattern.start.0.len() + pattern.least);
        let clear_after = lengths.fold(KEY_BEGIN.len() + KEY_NAME_MOST, usize::max);
        Redactor { patterns, clear_after, starts, quick: OnceLock::new() }
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
        Redactor::of(patterns)
    }

    pub fn redact<'a>(&self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        let mut out = Vec::new();
        let (mut at, mut kept) = (0, 0);
        while let Some(&byte) = bytes.get(at) {
            let Some((kind, end)) = self.find(byte, bytes, at) else {
                at += 1;
                continue;
            };
            out.extend(bytes.get(kept..at).unwrap_or_default());
            out.extend(format!("[redacted:{kind}]").bytes());
            (at, kept) = (end, end);
        }
        if kept == 0 {
            return Cow::Borrowed(bytes);
        }
        out.extend(bytes.get(kept..).unwrap_or_default());
        Cow::Owned(out)
    }

    /// Whether there is anything to take out.
    pub fn is_in(&self, bytes: &[u8]) -> bool {
        self.begins_in(bytes, 0..bytes.len())
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
            if self.begins_in(&window, at..to) {
                return Ok(true);
            }
            if is_end {
                return Ok(false);
            }
            let behind = to.saturating_sub(BEHIND);
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
