//! Files and directories.

use hotcell_request::{Effect, Spec, ToolError};
use hotcell_workspace::{Found, ListOptions, Root};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Deadline, Told, on_tree, refused};
use crate::BuiltIn;
use crate::path::{NotUsed, PathArg};
use crate::spec::spec;

/// Most bytes of one reading, and how many it is unless asked for otherwise.
const READ_MOST: u64 = 1 << 20;
const READ_USUAL: u64 = 256 << 10;
/// A character has up to four bytes, and one always fits.
const READ_LEAST: u64 = 4;
/// Most entries of a listing, and how many they are unless asked for otherwise.
const LIST_MOST: u64 = 10_000;
const LIST_USUAL: u64 = 1_000;
/// Most directories below each other, as a path has parts.
const DEPTH_MOST: u64 = 64;

const READ: Spec = spec(
    "fs.read",
    "fs",
    &[Effect::Read],
    "Reads a text file of the workspace, or a part of it. Links are not followed. If there is more, \
     `truncated` is true and `next` is the byte to go on from.",
);
const FILE_READ: Spec = Spec { name: "file_read", operation: Some("fs.read"), ..READ };

pub(super) fn tools() -> Vec<BuiltIn> {
    let example = || {
        [(
            json!({"path": "notes.txt"}),
            json!({"path": "notes.txt", "text": "hello\n", "bytes": 6, "truncated": false}),
        )]
    };
    vec![
        on_tree(READ, example, read),
        on_tree(FILE_READ, example, read),
        on_tree(
            spec(
                "fs.list",
                "fs",
                &[Effect::Read],
                "Lists a directory of the workspace, sorted by path. What begins with a dot is left out \
                 unless asked for; what did not fit is counted.",
            ),
            || {
                [(
                    json!({"path": "src"}),
                    json!({
                        "entries": [
                            {"path": "src/main.rs", "kind": "file", "bytes": 120, "executable": false},
                        ],
                        "skipped": [],
                        "hidden": 0,
                        "left_out": 0,
                        "truncated": false,
                    }),
                )]
            },
            list,
        ),
        on_tree(
            spec(
                "fs.exists",
                "fs",
                &[Effect::Read],
                "Tells whether there is something at a path of the workspace, and what. What is behind a \
                 link is an error, and not absent.",
            ),
            || {
                [
                    (json!({"path": "notes.txt"}), json!({"kind": "file", "bytes": 6})),
                    (json!({"path": "no.txt"}), json!({"kind": "absent"})),
                ]
            },
            exists,
        ),
    ]
}

#[derive(Deserialize, JsonSchema)]
struct Read {
    /// The file, relative to the workspace's root.
    path: PathArg,
    /// The first byte to read.
    #[serde(default)]
    from: u64,
    /// Most bytes to read.
    #[serde(default = "read_usual")]
    #[schemars(range(min = READ_LEAST, max = READ_MOST))]
    most: u64,
}

fn read_usual() -> u64 {
    READ_USUAL
}

#[derive(Serialize, JsonSchema)]
struct Content {
    path: String,
    text: String,
    /// Of the whole file.
    bytes: u64,
    /// Whether there is more after this.
    truncated: bool,
    /// The byte to go on from, if there is more.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<u64>,
}

fn read(root: &Root, args: Read, _: Deadline) -> Result<Content, ToolError> {
    let path = args.path.of_file()?;
    let most = usize::try_from(args.most.min(READ_MOST)).unwrap_or(usize::MAX);
    let content = root.read(&path, args.from.., most).map_err(refused)?;
    let Some(text) = content.text() else {
        return Err(ToolError::new(
            format!("`{path}` cannot be shown"),
            "this part of it is not text in UTF-8",
            "read from a byte at which a character begins, or use a program that knows its format",
        ));
    };
    let next = content.truncated.then(|| args.from.saturating_add(text.len() as u64));
    Ok(Content {
        path: path.to_string(),
        text: text.to_owned(),
        bytes: content.total,
        truncated: content.truncated,
        next,
    })
}

#[derive(Deserialize, JsonSchema)]
struct List {
    /// The directory, relative to the workspace's root.
    #[serde(default = "PathArg::root")]
    path: PathArg,
    /// How many directories below each other are listed; 1 is the directory alone.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = DEPTH_MOST))]
    depth: u64,
    /// Most entries.
    #[serde(default = "list_usual")]
    #[schemars(range(min = 1, max = LIST_MOST))]
    most: u64,
    /// Also what begins with a dot, and what is in it.
    #[serde(default)]
    hidden: bool,
}

fn one() -> u64 {
    1
}

fn list_usual() -> u64 {
    LIST_USUAL
}

#[derive(Serialize, JsonSchema)]
struct Listed {
    entries: Vec<Told>,
    /// What is there and never used, with the reason.
    skipped: Vec<NotUsed>,
    /// How many were left out because they begin with a dot.
    hidden: u64,
    /// How many did not fit.
    left_out: u64,
    /// Whether something did not fit, or not all was looked at in time.
    truncated: bool,
}

fn list(root: &Root, args: List, _: Deadline) -> Result<Listed, ToolError> {
    let at = args.path.below_root()?;
    let options = ListOptions {
        depth: usize::try_from(args.depth.min(DEPTH_MOST)).unwrap_or(1),
        most: usize::try_from(args.most.min(LIST_MOST)).unwrap_or(1),
        hidden: args.hidden,
    };
    let listing = root.list(at.as_ref(), options).map_err(refused)?;
    Ok(Listed {
        entries: listing.entries.into_iter().map(Told::from).collect(),
        skipped: listing.skipped.into_iter().map(NotUsed::from).collect(),
        hidden: listing.hidden,
        left_out: listing.left_out,
        truncated: listing.truncated,
    })
}

#[derive(Deserialize, JsonSchema)]
struct Exists {
    /// The path, relative to the workspace's root.
    path: PathArg,
}

/// What is at a path.
#[derive(Serialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum There {
    Absent,
    File {
        bytes: u64,
    },
    Directory,
    /// Something that is never used.
    Other {
        why: String,
    },
}

fn exists(root: &Root, args: Exists, _: Deadline) -> Result<There, ToolError> {
    let Some(path) = args.path.below_root()? else { return Ok(There::Directory) };
    Ok(match root.exists(&path).map_err(refused)? {
        None => There::Absent,
        Some(Found::File { bytes, .. }) => There::File { bytes },
        Some(Found::Directory) => There::Directory,
        Some(Found::Other(why)) => There::Other { why: why.to_string() },
    })
}
