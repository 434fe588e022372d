//! Tools that read a held tree of the host. Every path is opened through [`Root`], which follows no link;
//! every answer is bounded and says what was left out.

mod fs;
mod search;

use std::time::{Duration, Instant};

use hotcell_request::{Fault, Spec, Tool, ToolError};
use hotcell_workspace::{Entry, Error, FileFacts, Kind, Root, TooMuch, Unfit};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::BuiltIn;
use crate::spec::{Shown, read, tool_of, written};

/// A tool that reads a tree.
pub trait TreeTool: Send + Sync {
    /// What it says of itself in words. It costs nothing to ask for.
    fn spec(&self) -> &Spec;

    /// What it says of itself, with its schemas and examples.
    fn tool(&self) -> Result<Tool, Fault>;

    /// Carries out a call, whose arguments have been checked and spelled by the tool's schema.
    fn call(&self, root: &Root, args: Value, within: Deadline) -> Result<Value, ToolError>;
}

/// When a call has to be over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(Instant);

impl Deadline {
    /// A longer time is cut to this.
    pub const MOST: Duration = Duration::from_secs(60 * 60);

    pub fn after(time: Duration) -> Deadline {
        Deadline(Instant::now() + time.min(Deadline::MOST))
    }

    pub fn at(instant: Instant) -> Deadline {
        Deadline(instant)
    }

    /// How much time is left.
    pub fn left(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }
}

pub(crate) fn tools() -> Vec<BuiltIn> {
    [fs::tools(), search::tools()].into_iter().flatten().collect()
}

/// A function on a tree.
struct OnTree<I, O, const N: usize> {
    spec: Spec,
    examples: fn() -> [Shown; N],
    function: fn(&Root, I, Deadline) -> Result<O, ToolError>,
}

impl<I, O, const N: usize> TreeTool for OnTree<I, O, N>
where
    I: DeserializeOwned + JsonSchema,
    O: Serialize + JsonSchema,
{
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn tool(&self) -> Result<Tool, Fault> {
        tool_of::<I, O>(&self.spec, (self.examples)())
    }

    fn call(&self, root: &Root, args: Value, within: Deadline) -> Result<Value, ToolError> {
        let args = read(args)?;
        if within.left().is_zero() {
            let why = "its time was over before it began";
            return Err(ToolError::new("nothing was read", why, "allow more time"));
        }
        written((self.function)(root, args, within)?)
    }
}

fn on_tree<I, O, const N: usize>(
    spec: Spec,
    examples: fn() -> [Shown; N],
    function: fn(&Root, I, Deadline) -> Result<O, ToolError>,
) -> BuiltIn
where
    I: DeserializeOwned + JsonSchema + 'static,
    O: Serialize + JsonSchema + 'static,
{
    BuiltIn::Tree(Box::new(OnTree { spec, examples, function }))
}

/// Something in a tree, as an answer tells it.
#[derive(Serialize, JsonSchema)]
struct Told {
    /// From the workspace's root on.
    path: String,
    kind: ToldKind,
    /// Of a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    /// Whether a file is executable.
    #[serde(skip_serializing_if = "Option::is_none")]
    executable: Option<bool>,
    /// Where a link points. It is never followed.
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum ToldKind {
    File,
    Directory,
    Link,
}

impl From<Entry> for Told {
    fn from(entry: Entry) -> Told {
        let path = entry.path.into();
        let told = |kind| Told { path, kind, bytes: None, executable: None, target: None };
        match entry.kind {
            Kind::File(FileFacts { bytes, executable, .. }) => {
                Told { bytes: Some(bytes), executable: Some(executable), ..told(ToldKind::File) }
            }
            Kind::Directory => told(ToldKind::Directory),
            Kind::Symlink { target } => Told { target: Some(target), ..told(ToldKind::Link) },
        }
    }
}

/// What went wrong with a tree, for whoever called.
fn refused(error: Error) -> ToolError {
    match error {
        Error::Unfit { path, why } => {
            let fix = match why {
                Unfit::Missing => "list the directory to see what is there",
                Unfit::Directory => "name a file in it, or use fs.list",
                Unfit::NotDirectory => "name a directory, or use fs.read",
                Unfit::Symlink => "name what the link points to, if that is in the workspace",
                _ => "choose another file",
            };
            ToolError::new(format!("`{path}` cannot be used"), why.to_string(), fix)
        }
        Error::Io { doing, ref path, ref source } => {
            let what = format!("{doing} `{path}` failed");
            ToolError::new(what, source.kind().to_string(), "look at the file's permissions")
        }
        Error::TooMuch(TooMuch::Time) => ToolError::new(
            "the tree was not read",
            "there was not enough time",
            "name a smaller part of it",
        ),
        other => ToolError::new("the tree was not read", other.to_string(), "name a part of it"),
    }
}
