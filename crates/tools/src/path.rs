//! Paths among arguments, marked so that a policy judges them and the call spells them in one way; and
//! paths in answers that are for people only.

use std::borrow::Cow;

use hotcell_request::ToolError;
use hotcell_workspace::{Relative, Skipped};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// A path below the workspace's root; `.` is the root itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct PathArg(String);

impl PathArg {
    pub(crate) fn of(path: &Relative) -> PathArg {
        PathArg(path.as_str().into())
    }

    pub(crate) fn root() -> PathArg {
        PathArg(".".into())
    }

    pub(crate) fn is_root(&self) -> bool {
        self.0 == "."
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The path; `None` is the root.
    pub(crate) fn below_root(&self) -> Result<Option<Relative>, ToolError> {
        if self.is_root() {
            return Ok(None);
        }
        Relative::parse(&self.0).map(Some).map_err(|bad| {
            ToolError::new(bad.to_string(), bad.why(), "write it relative to the workspace's root")
        })
    }

    /// The path of something that is not the root.
    pub(crate) fn of_file(&self) -> Result<Relative, ToolError> {
        self.below_root()?.ok_or_else(|| {
            ToolError::new("`.` is not a file", "it is the workspace's root", "name a file in it")
        })
    }
}

impl JsonSchema for PathArg {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Path".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "minLength": 1, "x-hotcell": "path" })
    }
}

/// Something that is there and never used.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct NotUsed {
    pub path: String,
    pub why: String,
}

impl From<Skipped> for NotUsed {
    fn from(Skipped { path, why }: Skipped) -> NotUsed {
        NotUsed { path, why }
    }
}
