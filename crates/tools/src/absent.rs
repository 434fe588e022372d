//! Tools that have a name and a form, and that no call carries out. They are there so that a caller learns why,
//! and what to do instead.

use hotcell_request::{Effect, Fault, Spec, Tool, ToolError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::spec::{spec, tool_of};
use crate::{BuiltIn, change, connect, policy};

/// A tool that cannot be carried out.
#[derive(Debug)]
pub struct Absent {
    spec: &'static Spec,
    tool: fn() -> Result<Tool, Fault>,
    error: ToolError,
}

impl Absent {
    /// What it says of itself in words.
    pub fn spec(&self) -> &Spec {
        self.spec
    }

    /// What it says of itself, with its schemas and examples.
    pub fn tool(&self) -> Result<Tool, Fault> {
        (self.tool)()
    }

    /// What every call of it is answered with.
    pub fn error(&self) -> &ToolError {
        &self.error
    }
}

pub(crate) fn tools() -> Vec<BuiltIn> {
    let absent = |spec: &'static Spec, tool, what: &str, why: &str, fix: &str| {
        BuiltIn::Absent(Absent { spec, tool, error: ToolError::new(what, why, fix) })
    };
    vec![
        absent(
            &change::SPEC,
            change::tool,
            "nothing was changed",
            "a change is a part of the call that made it",
            "write a file with fs.write",
        ),
        absent(
            &connect::SPEC,
            connect::tool,
            "nothing was connected",
            "a connection is made by the run that wants it",
            "fetch something with http_fetch, or run a program that has a network",
        ),
        absent(
            &policy::SPEC,
            policy::tool,
            "the policy stays as it is",
            "a policy is changed by the signature of an approver, and not by a call",
            "have the proposal approved: `hotcell approvals` lists what waits",
        ),
        absent(
            &CANVAS_APPEND,
            canvas_append,
            "nothing was appended",
            "there is no canvas yet",
            "write a file with fs.write",
        ),
    ]
}

const TEXT_MOST: usize = 1 << 20;

#[derive(Deserialize, JsonSchema)]
#[expect(dead_code, reason = "a type that only its schema is made from")]
struct CanvasAppend {
    #[schemars(length(min = 1, max = TEXT_MOST))]
    text: String,
}

#[derive(Serialize, JsonSchema)]
struct Appended {
    /// Of the whole canvas.
    bytes: u64,
}

static CANVAS_APPEND: Spec = spec(
    "canvas_append",
    "canvas",
    &[Effect::Write],
    "Appends text to the canvas. There is no canvas yet, so that every call is an error.",
);

fn canvas_append() -> Result<Tool, Fault> {
    let example = (json!({"text": "hello"}), json!({"bytes": 5}));
    tool_of::<CanvasAppend, Appended>(&CANVAS_APPEND, [example])
}
