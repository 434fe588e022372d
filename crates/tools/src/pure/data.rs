//! JSON.

use hotcell_request::json::{self, Bounds};
use hotcell_request::{ToolError, canonical, tool};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{TEXT_MOST, shown};
use crate::BuiltIn;

/// How much of a document is read. The result goes down the same path as arguments do.
const BOUNDS: Bounds = Bounds { bytes: TEXT_MOST * 4, nodes: 100_000, ..Bounds::CALL };

pub(super) fn tools() -> Vec<BuiltIn> {
    vec![
        shown(ParseJsonTool, || [(json!({"text": "{\"a\": [1, 2.50]}"}), json!({"a": [1, 2.5]}))]),
        shown(ToJsonTool, || {
            [
                (json!({"value": {"b": 1, "a": null}}), json!("{\"a\":null,\"b\":1}")),
                (json!({"value": [1], "style": "pretty"}), json!("[\n  1\n]")),
            ]
        }),
    ]
}

#[derive(Deserialize, JsonSchema)]
struct ParseJson {
    #[schemars(length(max = TEXT_MOST))]
    text: String,
}

/// Reads JSON, strictly: a key that is there twice, or a number that two readers would round differently,
/// is an error.
#[tool(name = "parse_json", version = "1.0.0", category = "data", effects(pure))]
fn parse_json(input: ParseJson) -> Result<Value, ToolError> {
    json::parse(input.text.as_bytes(), &BOUNDS)
        .map_err(|fault| ToolError::new(fault.to_string(), fault.why(), fault.fix()))
}

#[derive(Deserialize, JsonSchema)]
struct ToJson {
    value: Value,
    #[serde(default = "compact")]
    style: Style,
}

#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Style {
    Compact,
    Pretty,
}

fn compact() -> Style {
    Style::Compact
}

/// Writes a value as JSON: in canonical form, or with a line for each member. Keys are sorted.
#[tool(name = "to_json", version = "1.0.0", category = "data", effects(pure))]
fn to_json(input: ToJson) -> Result<String, ToolError> {
    let text = match input.style {
        Style::Compact => String::from_utf8(canonical::bytes(&input.value)).ok(),
        Style::Pretty => serde_json::to_string_pretty(&input.value).ok(),
    };
    text.ok_or_else(|| ToolError::new("the value cannot be written", "it is not JSON", "report it"))
}
