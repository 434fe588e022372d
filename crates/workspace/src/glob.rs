//! Patterns for paths, as gitignore has them, and the search for what they match.

use std::time::Duration;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use crate::list::is_hidden;
use crate::relative::shown;
use crate::{Bounds, Entry, Error, Relative, Root, Seen};

/// Patterns as in gitignore: without a `/` before its end one matches at any depth, otherwise from the
/// root; `*` and `?` stop at `/`; `**` is any number of directories; one that ends with `/` matches
/// directories only; of several that match the last one counts, and one that begins with `!` takes back.
/// Beyond gitignore, `{a,b}` is either of both. `#` has no meaning.
///
/// Matching takes time linear in the length of the path.
#[derive(Debug, Clone, Default)]
pub struct Globs {
    set: GlobSet,
    rules: Vec<Rule>,
}

#[derive(Debug, Clone, Copy)]
struct Rule {
    takes_back: bool,
    directories_only: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadGlob {
    #[error("`{shown}` is not a pattern for paths: {why}")]
    Pattern { shown: String, why: String },
    #[error("there are more than {} patterns for paths", Globs::MOST)]
    TooMany,
}

impl Globs {
    /// Most patterns of one set.
    pub const MOST: usize = 256;
    /// Longest pattern in bytes.
    pub const MOST_BYTES: usize = 1024;
    const MOST_SHOWN: usize = 200;

    pub fn new<T: AsRef<str>>(patterns: impl IntoIterator<Item = T>) -> Result<Globs, BadGlob> {
        let mut set = GlobSetBuilder::new();
        let mut rules = Vec::new();
        for pattern in patterns {
            if rules.len() >= Globs::MOST {
                return Err(BadGlob::TooMany);
            }
            rules.push(add(&mut set, pattern.as_ref())?);
        }
        let set = set.build().map_err(|error| bad(error.glob().unwrap_or(""), error.kind()))?;
        Ok(Globs { set, rules })
    }

    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Whether the patterns match this very path.
    pub fn matches(&self, path: &Relative, is_directory: bool) -> bool {
        self.verdict(path, is_directory) == Some(true)
    }

    /// Whether they match it or a directory above it; the nearest about which they say something counts.
    pub fn covers(&self, path: &Relative, is_directory: bool) -> bool {
        let own = self.verdict(path, is_directory);
        own.or_else(|| path.ancestors().find_map(|above| self.verdict(&above, true)))
            .unwrap_or(false)
    }

    fn verdict(&self, path: &Relative, is_directory: bool) -> Option<bool> {
        let matching = self.set.matches(path.as_str());
        let mut rules = matching.iter().rev().filter_map(|&number| self.rules.get(number));
        rules.find(|rule| is_directory || !rule.directories_only).map(|rule| !rule.takes_back)
    }
}

fn add(set: &mut GlobSetBuilder, pattern: &str) -> Result<Rule, BadGlob> {
    if pattern.len() > Globs::MOST_BYTES {
        return Err(bad(pattern, format!("it is longer than {} bytes", Globs::MOST_BYTES)));
    }
    let (takes_back, rest) = strip(pattern, |p| p.strip_prefix('!'));
    let (directories_only, rest) = strip(rest, |p| p.strip_suffix('/'));
    let (begins_at_root, rest) = strip(rest, |p| p.strip_prefix('/'));
    if rest.is_empty() {
        return Err(bad(pattern, "it is empty"));
    }
    let anywhere = if begins_at_root || rest.contains('/') { "" } else { "**/" };
    // What is in the directory, and not the directory itself.
    let inside = if rest.ends_with("/**") { "/*" } else { "" };
    let glob = GlobBuilder::new(&format!("{anywhere}{rest}{inside}"))
        .literal_separator(true)
        .backslash_escape(true)
        .build()
        .map_err(|error| bad(pattern, error.kind()))?;
    set.add(glob);
    Ok(Rule { takes_back, directories_only })
}

fn strip<'a>(text: &'a str, by: impl Fn(&'a str) -> Option<&'a str>) -> (bool, &'a str) {
    by(text).map_or((false, text), |rest| (true, rest))
}

fn bad(pattern: &str, why: impl ToString) -> BadGlob {
    BadGlob::Pattern { shown: shown(pattern, Globs::MOST_SHOWN), why: why.to_string() }
}

#[derive(Debug, Clone, Copy)]
pub struct GlobOptions {
    /// Most entries that are found.
    pub most: usize,
    /// Also what begins with a dot, and what is in it.
    pub hidden: bool,
    pub within: Duration,
}

/// What patterns matched, sorted by path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Globbed {
    pub entries: Vec<Entry>,
    /// How many more matched.
    pub left_out: u64,
    /// Something was left out, or not all of the tree was looked at in time.
    pub truncated: bool,
}

impl Root {
    /// Finds files, directories and links by their paths.
    pub fn glob(&self, globs: &Globs, options: GlobOptions) -> Result<Globbed, Error> {
        let mut walk = self.walk(None, Bounds::within(options.within))?;
        let mut globbed = Globbed::default();
        while let Some(told) = walk.next() {
            let Ok(entry) = told else { continue };
            if !options.hidden && is_hidden(entry.path.as_str()) {
                walk.pass_over();
                continue;
            }
            if !globs.matches(&entry.path, entry.is_directory()) {
                continue;
            }
            match self.shows(&entry.path) {
                Seen::Yes if globbed.entries.len() < options.most => globbed.entries.push(entry),
                Seen::Yes => globbed.left_out += 1,
                Seen::No => {}
                Seen::Unknown => globbed.truncated = true,
            }
        }
        globbed.truncated |= globbed.left_out > 0 || walk.cut().is_some();
        Ok(globbed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Patterns, a path (a directory ends with `/`), whether they match it, whether they cover it.
    const CASES: &[(&[&str], &str, bool, bool)] = &[
        (&["*.rs"], "main.rs", true, true),
        (&["*.rs"], "src/deep/main.rs", true, true),
        (&["/*.rs"], "src/main.rs", false, false),
        (&["/*.rs"], "main.rs", true, true),
        (&["src/*.rs"], "src/main.rs", true, true),
        (&["src/*.rs"], "src/deep/main.rs", false, false),
        (&["src/*.rs"], "a/src/main.rs", false, false),
        (&["src/**"], "src/", false, false),
        (&["src/**"], "src/deep/main.rs", true, true),
        (&["src/**/x"], "src/x", true, true),
        (&["src/**/x"], "src/a/b/x", true, true),
        (&["**/x"], "x", true, true),
        (&["**/x"], "a/b/x", true, true),
        (&["src"], "src/", true, true),
        (&["src"], "src/a/b", false, true),
        (&["src"], "src2/a", false, false),
        (&["src/"], "src", false, false),
        (&["src/"], "src/", true, true),
        (&["src/"], "src/a", false, true),
        (&["*.rs", "!main.rs"], "main.rs", false, false),
        (&["*.rs", "!main.rs"], "lib.rs", true, true),
        (&["!main.rs", "*.rs"], "main.rs", true, true),
        (&["target", "!target/keep"], "target/keep", false, false),
        (&["target", "!target/keep"], "target/other", false, true),
        (&["*"], ".env", true, true),
        (&["?"], "a/b", true, true),
        (&["a?b"], "a/b", false, false),
        (&["[!a]"], "b", true, true),
        (&["[!a]"], "a", false, false),
        (&["\\!x"], "!x", true, true),
        (&["#x"], "#x", true, true),
        (&["*.{js,ts}"], "a/b.ts", true, true),
        (&["\\*"], "*", true, true),
        (&["\\*"], "a", false, false),
        (&["ä*"], "äö", true, true),
        (&[], "a", false, false),
    ];

    #[test]
    fn patterns_match_as_in_gitignore() {
        for &(patterns, path, matches, covers) in CASES {
            let globs = Globs::new(patterns).unwrap();
            let (is_directory, plain) = strip(path, |p| p.strip_suffix('/'));
            let relative = Relative::parse(plain).unwrap();
            assert_eq!(globs.matches(&relative, is_directory), matches, "{patterns:?} {path}");
            assert_eq!(globs.covers(&relative, is_directory), covers, "{patterns:?} {path}");
        }
    }

    #[test]
    fn bad_and_hostile_patterns_are_refused_or_answered_at_once() {
        for bad in ["", "!", "/", "!/", "[", "{a", "a}", "[b-a]", &"x".repeat(1025)] {
            assert!(Globs::new([bad]).is_err(), "{bad}");
        }
        assert!(matches!(Globs::new(vec!["a"; 257]), Err(BadGlob::TooMany)));
        let long = Relative::parse(&vec!["a".repeat(250); 16].join("/")).unwrap();
        for hostile in
            ["*a".repeat(500), "**/".repeat(300) + "x", "{a,".repeat(300), "[a-z]*".repeat(150)]
        {
            let begun = std::time::Instant::now();
            if let Ok(globs) = Globs::new([&hostile]) {
                globs.covers(&long, false);
            }
            assert!(begun.elapsed() < Duration::from_secs(20), "{hostile}");
        }
    }
}
