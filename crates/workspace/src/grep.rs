//! The search in contents. Lines are matched one by one with a regular expression that takes time linear
//! in their length; files are read and never mapped, since a mapped file that somebody shortens kills the
//! reader.

use std::collections::VecDeque;
use std::io::Read;
use std::time::{Duration, Instant};

use regex::bytes::{Regex, RegexBuilder};

use crate::list::is_hidden;
use crate::relative::shown;
use crate::walk::Walk;
use crate::{Bounds, Error, Globs, Kind, Relative, Root, Seen};

/// What is searched for.
#[derive(Debug, Clone)]
pub struct Pattern(Regex);

/// Whether capital and small letters are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Case {
    Sensitive,
    Ignored,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{shown}` cannot be searched for: {why}")]
pub struct BadPattern {
    shown: String,
    why: String,
}

impl Pattern {
    /// Longest pattern in bytes.
    pub const MOST_BYTES: usize = 4096;
    /// Largest compiled pattern in bytes. Time grows with it: one of this size takes about half a second
    /// for a piece of a line.
    pub const MOST_COMPILED: usize = 512 * 1024;
    /// Deepest nesting of groups.
    const MOST_NESTED: u32 = 50;
    const MOST_SHOWN: usize = 200;

    /// A regular expression, in the syntax of the `regex` crate: no look-around and no back-references.
    pub fn new(text: &str, case: Case) -> Result<Pattern, BadPattern> {
        let bad = |why: String| BadPattern { shown: shown(text, Pattern::MOST_SHOWN), why };
        if text.len() > Pattern::MOST_BYTES {
            return Err(bad(format!("it is longer than {} bytes", Pattern::MOST_BYTES)));
        }
        RegexBuilder::new(text)
            .case_insensitive(case == Case::Ignored)
            .size_limit(Pattern::MOST_COMPILED)
            .dfa_size_limit(Pattern::MOST_COMPILED)
            .nest_limit(Pattern::MOST_NESTED)
            .build()
            .map(Pattern)
            .map_err(|error| bad(reason(&error)))
    }

    /// A text that stands for itself.
    pub fn literal(text: &str, case: Case) -> Result<Pattern, BadPattern> {
        Pattern::new(&regex::escape(text), case)
    }
}

fn reason(error: &regex::Error) -> String {
    match error {
        regex::Error::CompiledTooBig(_) => {
            "it is too large: repeat less, or write (?-u) before classes that need only ASCII"
                .into()
        }
        // The rest of the message is a drawing of where it is wrong.
        other => {
            let text = other.to_string();
            text.rsplit("error: ").next().unwrap_or_default().trim().to_owned()
        }
    }
}

#[derive(Debug, Clone)]
pub struct GrepOptions {
    /// Searches only files that these cover; all files if there are none.
    pub only: Globs,
    /// Passes over what these cover.
    pub except: Globs,
    /// Lines shown before and after each match; [`GrepOptions::MOST_CONTEXT`] at most.
    pub context: usize,
    /// Most matching lines; [`GrepOptions::MOST_MATCHES`] at most.
    pub most: usize,
    /// Most bytes that are shown of a line; [`GrepOptions::MOST_LINE`] at most.
    pub most_line: usize,
    /// Largest file that is searched; [`Root::MOST_READ`] at most.
    pub most_file: u64,
    /// Also what begins with a dot, and what is in it.
    pub hidden: bool,
    pub within: Duration,
}

impl GrepOptions {
    pub const MOST_MATCHES: usize = 10_000;
    pub const MOST_CONTEXT: usize = 20;
    pub const MOST_LINE: usize = 4096;
    /// Most bytes of all lines that are shown.
    pub const MOST_SHOWN: usize = 8 * 1024 * 1024;
    /// A longer line is searched in pieces of this size, and a match across two of them is not found.
    pub const PIECE: usize = 8 * 1024;
}

impl Default for GrepOptions {
    fn default() -> GrepOptions {
        GrepOptions {
            only: Globs::default(),
            except: Globs::default(),
            context: 0,
            most: 1000,
            most_line: 500,
            most_file: 8 * 1024 * 1024,
            hidden: false,
            within: Duration::from_secs(10),
        }
    }
}

/// A line that matched, with its neighbours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Match {
    pub path: Relative,
    pub line: Line,
    /// Where in the line the match begins, in bytes from 1.
    pub column: u64,
    pub before: Vec<Line>,
    pub after: Vec<Line>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// From 1.
    pub number: u64,
    /// Without its end. What is not UTF-8 is replaced.
    pub text: String,
    /// Only a part of it is in `text`.
    pub cut: bool,
}

/// What a search found, and what it did not look into.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Grepped {
    /// By path and line.
    pub matches: Vec<Match>,
    /// Files that were searched.
    pub searched: u64,
    /// Files with a zero byte in them, which were not.
    pub binary: u64,
    /// Files that are larger than was asked for.
    pub too_large: u64,
    /// Links, files with several names and others that are not used, or cannot be read.
    pub skipped: u64,
    /// Lines that were searched in pieces.
    pub long_lines: u64,
    /// The search ended before it was through.
    pub truncated: bool,
}

impl Root {
    pub fn grep(&self, pattern: &Pattern, options: &GrepOptions) -> Result<Grepped, Error> {
        let bounds = Bounds::within(options.within);
        let mut walk = self.walk(None, bounds)?;
        let mut search = Search {
            regex: &pattern.0,
            options,
            until: bounds.until,
            shown: 0,
            grepped: Grepped::default(),
        };
        while !search.grepped.truncated
            && let Some(told) = walk.next()
        {
            let Ok(entry) = told else {
                search.grepped.skipped += 1;
                continue;
            };
            let is_hidden = !options.hidden && is_hidden(entry.path.as_str());
            if is_hidden || options.except.covers(&entry.path, entry.is_directory()) {
                walk.pass_over();
                continue;
            }
            if options.only.is_empty() || options.only.covers(&entry.path, entry.is_directory()) {
                let seen = if entry.is_directory() { Seen::Yes } else { self.shows(&entry.path) };
                match seen {
                    Seen::Yes => search.entry(&walk, &entry.path, &entry.kind),
                    Seen::No | Seen::Unknown => search.grepped.skipped += 1,
                }
                search.grepped.truncated |= seen == Seen::Unknown;
            }
        }
        search.grepped.truncated |= walk.cut().is_some();
        Ok(search.grepped)
    }
}

struct Search<'a> {
    regex: &'a Regex,
    options: &'a GrepOptions,
    until: Instant,
    /// Bytes of lines so far.
    shown: usize,
    grepped: Grepped,
}

impl Search<'_> {
    fn entry(&mut self, walk: &Walk, path: &Relative, kind: &Kind) {
        let most = self.options.most_file.min(Root::MOST_READ as u64);
        match kind {
            Kind::Directory => {}
            Kind::Symlink { .. } => self.grepped.skipped += 1,
            Kind::File(facts) if facts.bytes > most => self.grepped.too_large += 1,
            Kind::File(_) => match read(walk, most) {
                None => self.grepped.skipped += 1,
                // It has grown since it was listed.
                Some(content) if content.len() as u64 > most => self.grepped.too_large += 1,
                Some(content) if content.contains(&0) => self.grepped.binary += 1,
                Some(content) => {
                    self.grepped.searched += 1;
                    self.file(path, &content);
                }
            },
        }
    }

    fn file(&mut self, path: &Relative, content: &[u8]) {
        let context = self.options.context.min(GrepOptions::MOST_CONTEXT);
        let mut before = VecDeque::with_capacity(context);
        let mut lines =
            (1_u64..).zip(content.split_inclusive(|&byte| byte == b'\n').map(without_end));
        while let Some((number, line)) = lines.next() {
            if Instant::now() > self.until {
                self.grepped.truncated = true;
                return;
            }
            if let Some(at) = self.find(line) {
                let found = Match {
                    path: path.clone(),
                    line: self.line(number, line, at),
                    column: at as u64 + 1,
                    before: before
                        .iter()
                        .map(|&(number, line)| self.line(number, line, 0))
                        .collect(),
                    after: lines
                        .clone()
                        .take(context)
                        .map(|(n, line)| self.line(n, line, 0))
                        .collect(),
                };
                self.tell(found);
                if self.grepped.truncated {
                    return;
                }
            }
            if context > 0 {
                if before.len() == context {
                    before.pop_front();
                }
                before.push_back((number, line));
            }
        }
    }

    /// Where the first match of a line begins.
    fn find(&mut self, line: &[u8]) -> Option<usize> {
        if line.len() <= GrepOptions::PIECE {
            return self.regex.find(line).map(|found| found.start());
        }
        self.grepped.long_lines += 1;
        let mut begin = 0;
        for piece in line.chunks(GrepOptions::PIECE) {
            if let Some(found) = self.regex.find(piece) {
                return Some(begin + found.start());
            }
            if Instant::now() > self.until {
                self.grepped.truncated = true;
                return None;
            }
            begin += piece.len();
        }
        None
    }

    fn tell(&mut self, found: Match) {
        let lines = found.before.iter().chain([&found.line]).chain(&found.after);
        self.shown += lines.map(|line| line.text.len()).sum::<usize>();
        let most = self.options.most.min(GrepOptions::MOST_MATCHES);
        if self.grepped.matches.len() >= most || self.shown > GrepOptions::MOST_SHOWN {
            self.grepped.truncated = true;
        } else {
            self.grepped.matches.push(found);
        }
    }

    /// A line, or the part of it around a place.
    fn line(&self, number: u64, line: &[u8], at: usize) -> Line {
        let most = self.options.most_line.min(GrepOptions::MOST_LINE);
        let lead = most / 4;
        let begin = if at + lead < most { 0 } else { at.saturating_sub(lead) };
        let part = line.get(begin..).unwrap_or_default();
        let part = part.get(..most).unwrap_or(part);
        let text = String::from_utf8_lossy(part).into_owned();
        Line { number, text, cut: part.len() < line.len() }
    }
}

fn read(walk: &Walk, most: u64) -> Option<Vec<u8>> {
    let (file, _) = walk.open_current().ok()?;
    let mut content = Vec::new();
    file.take(most.saturating_add(1)).read_to_end(&mut content).ok()?;
    Some(content)
}

fn without_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}
