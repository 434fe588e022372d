//! What can be called.

use hotcell_request as request;
use schemars::JsonSchema;
use serde::Serialize;

/// A tool, as the tool standard describes it.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Tool {
    #[serde(flatten)]
    pub tool: request::Tool,
    /// Whether it can be called now.
    pub enabled: bool,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Tools {
    pub version: u32,
    pub tools: Vec<Tool>,
}

impl From<&request::Listed> for Tool {
    fn from(listed: &request::Listed) -> Tool {
        Tool { tool: listed.tool.tool().clone(), enabled: listed.enabled }
    }
}
