//! Searching. A search is judged by its `path`, so nothing outside of it is ever looked into: every
//! pattern is put below it.

use hotcell_request::{Effect, ToolError};
use hotcell_workspace::{
    BadGlob, Case, GlobOptions, Globs, GrepOptions, Line, Match, Pattern, Relative, Root,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Deadline, Told, on_tree, refused};
use crate::BuiltIn;
use crate::path::PathArg;
use crate::spec::spec;

/// Most entries that a search by name finds, and how many they are unless asked for otherwise.
const GLOB_MOST: usize = 10_000;
const GLOB_USUAL: usize = 1_000;
/// Most matches of a search in contents unless asked for otherwise.
const GREP_USUAL: usize = 200;
/// Most patterns for paths.
const PATTERNS_MOST: usize = 64;

pub(super) fn tools() -> Vec<BuiltIn> {
    vec![
        on_tree(
            spec(
                "search.grep",
                "search",
                &[Effect::Read],
                "Searches the text files of the workspace for a regular expression (without look-around and \
                 back-references) or for a text, line by line. Tells what it did not look into.",
            ),
            || {
                [(
                    json!({"pattern": "fn main", "only": ["*.rs"]}),
                    json!({
                        "matches": [{"path": "src/main.rs", "line": 3, "column": 1, "text": "fn main() {"}],
                        "searched": 12,
                        "binary": 0,
                        "too_large": 0,
                        "skipped": 0,
                        "long_lines": 0,
                        "truncated": false,
                    }),
                )]
            },
            grep,
        ),
        on_tree(
            spec(
                "search.glob",
                "search",
                &[Effect::Read],
                "Finds files and directories of the workspace by patterns as in gitignore: without a `/` one \
                 matches at any depth; `**` is any number of directories; of several the last one counts, \
                 and one that begins with `!` takes back.",
            ),
            || {
                [(
                    json!({"patterns": ["*.md"]}),
                    json!({
                        "entries": [
                            {"path": "README.md", "kind": "file", "bytes": 80, "executable": false},
                        ],
                        "left_out": 0,
                        "truncated": false,
                    }),
                )]
            },
            glob,
        ),
    ]
}

#[derive(Deserialize, JsonSchema)]
struct Grep {
    /// What to search for.
    #[schemars(length(min = 1, max = Pattern::MOST_BYTES))]
    pattern: String,
    /// Whether the pattern is a regular expression or stands for itself.
    #[serde(default = "regex")]
    kind: PatternKind,
    /// The file or directory to search, relative to the workspace's root.
    #[serde(default = "PathArg::root")]
    path: PathArg,
    /// Searches only files that these patterns match, below `path`.
    #[serde(default)]
    #[schemars(length(max = PATTERNS_MOST))]
    only: Vec<String>,
    /// Passes over what these patterns match, below `path`.
    #[serde(default)]
    #[schemars(length(max = PATTERNS_MOST))]
    except: Vec<String>,
    /// Whether capital and small letters are the same.
    #[serde(default)]
    ignore_case: bool,
    /// Lines shown before and after each match.
    #[serde(default)]
    #[schemars(range(max = GrepOptions::MOST_CONTEXT))]
    context: usize,
    /// Most matching lines.
    #[serde(default = "grep_usual")]
    #[schemars(range(min = 1, max = GrepOptions::MOST_MATCHES))]
    most: usize,
    /// Also what begins with a dot, and what is in it.
    #[serde(default)]
    hidden: bool,
}

#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum PatternKind {
    Regex,
    Text,
}

fn regex() -> PatternKind {
    PatternKind::Regex
}

fn grep_usual() -> usize {
    GREP_USUAL
}

#[derive(Serialize, JsonSchema)]
struct Grepped {
    /// By path and line.
    matches: Vec<Found>,
    /// Files that were searched.
    searched: u64,
    /// Files with a zero byte in them, which were not.
    binary: u64,
    /// Files that were too large to be searched.
    too_large: u64,
    /// Links and others that are never used.
    skipped: u64,
    /// Lines so long that a match across two of their pieces is not found.
    long_lines: u64,
    /// Whether the search ended before it was through.
    truncated: bool,
}

#[derive(Serialize, JsonSchema)]
struct Found {
    path: String,
    /// From 1.
    line: u64,
    /// Where in the line the match begins, in bytes from 1.
    column: u64,
    text: String,
    /// Only a part of the line is in `text`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schemars(default)]
    cut: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default)]
    before: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default)]
    after: Vec<String>,
}

impl From<Match> for Found {
    fn from(found: Match) -> Found {
        let texts = |lines: Vec<Line>| lines.into_iter().map(|line| line.text).collect();
        Found {
            path: found.path.into(),
            line: found.line.number,
            column: found.column,
            text: found.line.text,
            cut: found.line.cut,
            before: texts(found.before),
            after: texts(found.after),
        }
    }
}

fn grep(root: &Root, args: Grep, within: Deadline) -> Result<Grepped, ToolError> {
    let case = if args.ignore_case { Case::Ignored } else { Case::Sensitive };
    let pattern = match args.kind {
        PatternKind::Regex => Pattern::new(&args.pattern, case),
        PatternKind::Text => Pattern::literal(&args.pattern, case),
    };
    let pattern = pattern.map_err(|bad| {
        let fix = "change the pattern, or send `\"kind\": \"text\"` to search for it as it is";
        ToolError::new("nothing was searched", bad.to_string(), fix)
    })?;
    let at = there(root, &args.path)?;
    let only = match (args.only.is_empty(), &at) {
        (true, Some(at)) => globs([format!("/{}", escaped(at))]),
        (_, at) => globs(below(at.as_ref(), &args.only)),
    }?;
    let options = GrepOptions {
        only,
        except: globs(below(at.as_ref(), &args.except))?,
        context: args.context,
        most: args.most,
        hidden: args.hidden,
        within: within.left(),
        ..GrepOptions::default()
    };
    let grepped = root.grep(&pattern, &options).map_err(refused)?;
    Ok(Grepped {
        matches: grepped.matches.into_iter().map(Found::from).collect(),
        searched: grepped.searched,
        binary: grepped.binary,
        too_large: grepped.too_large,
        skipped: grepped.skipped,
        long_lines: grepped.long_lines,
        truncated: grepped.truncated,
    })
}

#[derive(Deserialize, JsonSchema)]
struct Glob {
    /// What to look for, below `path`.
    #[schemars(length(min = 1, max = PATTERNS_MOST))]
    patterns: Vec<String>,
    /// The directory to search, relative to the workspace's root.
    #[serde(default = "PathArg::root")]
    path: PathArg,
    /// Most entries.
    #[serde(default = "glob_usual")]
    #[schemars(range(min = 1, max = GLOB_MOST))]
    most: usize,
    /// Also what begins with a dot, and what is in it.
    #[serde(default)]
    hidden: bool,
}

fn glob_usual() -> usize {
    GLOB_USUAL
}

#[derive(Serialize, JsonSchema)]
struct Globbed {
    /// By path.
    entries: Vec<Told>,
    /// How many more matched.
    left_out: u64,
    /// Whether something was left out, or not all was looked at in time.
    truncated: bool,
}

fn glob(root: &Root, args: Glob, within: Deadline) -> Result<Globbed, ToolError> {
    let at = there(root, &args.path)?;
    let globs = globs(below(at.as_ref(), &args.patterns))?;
    let options =
        GlobOptions { most: args.most.min(GLOB_MOST), hidden: args.hidden, within: within.left() };
    let globbed = root.glob(&globs, options).map_err(refused)?;
    Ok(Globbed {
        entries: globbed.entries.into_iter().map(Told::from).collect(),
        left_out: globbed.left_out,
        truncated: globbed.truncated,
    })
}

/// The path to search; `None` is the root. A search of what is not there would find nothing, and say so.
fn there(root: &Root, path: &PathArg) -> Result<Option<Relative>, ToolError> {
    let Some(path) = path.below_root()? else { return Ok(None) };
    match root.exists(&path).map_err(refused)? {
        Some(_) => Ok(Some(path)),
        None => Err(ToolError::new(
            format!("`{path}` cannot be searched"),
            "it is not there",
            "list the directory to see what is there",
        )),
    }
}

fn globs(patterns: impl IntoIterator<Item = String>) -> Result<Globs, ToolError> {
    Globs::new(patterns).map_err(|bad: BadGlob| {
        let fix = "write patterns as in gitignore, with `\\` before what stands for itself";
        ToolError::new("nothing was searched", bad.to_string(), fix)
    })
}

/// Patterns with the directory before them, so that they match nothing outside of it.
fn below(at: Option<&Relative>, patterns: &[String]) -> Vec<String> {
    let Some(at) = at.map(escaped) else { return patterns.to_vec() };
    let put = |pattern: &String| {
        let (not, rest) = match pattern.strip_prefix('!') {
            Some(rest) => ("!", rest),
            None => ("", pattern.as_str()),
        };
        let is_name = !rest.trim_end_matches('/').contains('/');
        let between = if is_name { "/**/" } else { "/" };
        format!("{not}/{at}{between}{}", rest.trim_start_matches('/'))
    };
    patterns.iter().map(put).collect()
}

/// A path as a pattern that matches nothing else.
fn escaped(path: &Relative) -> String {
    let mut text = String::new();
    for c in path.as_str().chars() {
        if "\\*?[]{}!,".contains(c) {
            text.push('\\');
        }
        text.push(c);
    }
    text
}
