//! Writing a file. It is done in a copy, so that what it changes is shown, judged and applied as every
//! other change is.

use hotcell_request::{Effect, ToolError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Changes, Plan, Program, Ran, Source, changes, in_sandbox, succeeded};
use crate::BuiltIn;
use crate::path::PathArg;
use crate::spec::spec;

/// Most characters of a text that is written.
const TEXT_MOST: usize = 4 << 20;

/// Writes standard input to the file `$1`, and makes the directories above it. Where a link leads to is
/// judged under its own path, as every change is.
const SCRIPT: &str = r#"case $1 in */*/*) mkdir -p -- "${1%/*}" ;; esac && cat > "$1""#;

pub(super) fn tools() -> Vec<BuiltIn> {
    vec![in_sandbox(
        spec(
            "fs.write",
            "fs",
            &[Effect::Write],
            "Writes a text to a file of the workspace, in place of what is in it, and makes the directories \
             above it. The answer has no change if the file had this text already.",
        ),
        || {
            [(
                json!({"path": "notes.txt", "text": "hello\n"}),
                json!({"changes": {"files": [{"path": "notes.txt", "kind": "added", "bytes": 6}], "skipped": [], "left_out": 0}}),
            )]
        },
        plan,
        answer,
    )]
}

#[derive(Deserialize, JsonSchema)]
struct Write {
    /// The file, relative to the workspace's root.
    path: PathArg,
    #[schemars(length(max = TEXT_MOST))]
    text: String,
}

#[derive(Serialize, JsonSchema)]
struct Written {
    changes: Changes,
}

fn plan(args: Write) -> Result<Plan, ToolError> {
    // With `./` before it, no path is an option of anything.
    let path = format!("./{}", args.path.of_file()?);
    let argv = ["sh", "-c", SCRIPT, "sh", &path].map(String::from);
    let plan = Plan::in_copy(Program::command(argv));
    Ok(Plan { stdin: Source::Text(args.text), brings_changes: true, ..plan })
}

fn answer(ran: &Ran) -> Result<Written, ToolError> {
    let fix = "look at what is there: fs.exists tells whether it is a file";
    let ran = succeeded(ran, "writing the file", fix)?;
    Ok(Written { changes: changes(ran).unwrap_or_default() })
}
