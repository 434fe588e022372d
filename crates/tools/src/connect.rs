//! One connection that a run wants to make, or one request on it, as a call: what a policy judges before
//! anything is looked up. Nobody calls it by itself.

use hotcell_request::{Effect, Fault, Spec, Tool};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::spec::{spec, tool_of};

pub const NAME: &str = "net.connect";

/// Most bytes of a path that is judged.
const PATH_MOST: usize = 8192;

/// The arguments.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Connect {
    /// A port that is not one of the web's stands behind it: `example.com:8443`.
    #[schemars(extend("x-hotcell" = "host"))]
    pub host: String,
    pub protocol: Protocol,
    /// What of a request can be seen; of what is encrypted nothing can.
    #[schemars(extend("x-hotcell" = "method"))]
    pub method: Option<String>,
    /// Without its query.
    #[schemars(length(max = PATH_MOST))]
    pub path: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    Http,
    Https,
    /// Whatever is spoken there.
    Tcp,
}

#[derive(Serialize, JsonSchema)]
struct Nothing {}

pub(crate) const SPEC: Spec = spec(
    NAME,
    "web",
    &[Effect::Network],
    "One connection of a run that has a network, or one request on it. It is judged before its host is \
     looked up, and cannot be called by itself.",
);

pub fn tool() -> Result<Tool, Fault> {
    let example =
        json!({ "host": "example.com", "protocol": "https", "method": null, "path": null });
    tool_of::<Connect, Nothing>(&SPEC, [(example, json!({}))])
}
