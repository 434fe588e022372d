//! One change that a run made in its copy of the workspace, as a call: what a policy judges before the
//! change is applied. Nobody calls it by itself.

use hotcell_request::{Effect, Fault, Spec, Tool};
use hotcell_workspace as workspace;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::path::PathArg;
use crate::spec::{spec, tool_of};

pub const NAME: &str = "fs.change";

/// The arguments.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// The file, relative to the workspace's root.
    path: PathArg,
    kind: Kind,
    /// How many bytes it has then.
    bytes: u64,
    /// What it has then.
    #[schemars(regex(pattern = "^[0-9a-f]{64}$"))]
    sha256: Option<String>,
    executable: bool,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Added,
    Modified,
    Deleted,
}

impl From<&workspace::Change> for Change {
    fn from(change: &workspace::Change) -> Change {
        Change {
            path: PathArg::of(&change.path),
            kind: match change.kind {
                workspace::ChangeKind::Added => Kind::Added,
                workspace::ChangeKind::Modified => Kind::Modified,
                workspace::ChangeKind::Deleted => Kind::Deleted,
            },
            bytes: change.bytes,
            sha256: change.after.map(|digest| digest.to_string()),
            executable: change.executable,
        }
    }
}

#[derive(Serialize, JsonSchema)]
struct Nothing {}

pub(crate) const SPEC: Spec = Spec {
    operation: Some("fs.write"),
    ..spec(
        NAME,
        "fs",
        &[Effect::Write],
        "One change that a run made in its copy of the workspace. It is judged as a write before the \
         changes of a run are applied, and cannot be called by itself.",
    )
};

pub(crate) fn tool() -> Result<Tool, Fault> {
    let example = json!({
        "path": "notes.txt", "kind": "deleted", "bytes": 0, "sha256": null, "executable": false,
    });
    tool_of::<Change, Nothing>(&SPEC, [(example, json!({}))])
}
