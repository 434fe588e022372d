//! What can be called.

use std::borrow::Cow;

use hotcell_engine::Engine;
use hotcell_engine::policy::Outlook;
use hotcell_request as request;
use hotcell_types::Caller;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A tool, as the tool standard describes it.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Tool {
    #[serde(flatten)]
    pub tool: request::Tool,
    /// Whether it can be called now.
    pub enabled: bool,
    /// What the policy says to whoever asks, before there is a call: `possible` (some call could be allowed,
    /// or looked at), `unspoken` (no rule speaks for it) or `never`. Missing where there is no telling.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub outlook: Option<Cow<'static, str>>,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Tools {
    pub version: u32,
    pub tools: Vec<Tool>,
}

impl Tool {
    pub(crate) fn of(
        tool: &request::Registered,
        enabled: bool,
        engine: &Engine,
        caller: &Caller,
    ) -> Tool {
        let tool = tool.tool().clone();
        let outlook = engine.outlook(caller, &tool).ok().map(Outlook::name).map(Cow::Borrowed);
        Tool { tool, enabled, outlook }
    }
}
