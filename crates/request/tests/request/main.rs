//! From bytes to a call, by what can be seen from outside.
//!
//! TOOL-14 is in crates/cli/tests/mcp/bad_input.rs, TOOL-16 and TOOL-17 are in crates/cli/tests/serve/mcp.rs. Not
//! here, because there is nothing yet that they apply to: of TOOL-05 to TOOL-09 what is about OpenAPI documents and
//! about requests that go out, and of TOOL-11 what is about the tools of other servers.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    reason = "a test that cannot go on has failed"
)]

mod call;
mod json;
mod registry;
mod schema;
mod tool;
mod typed;

use hotcell_request::Tool;
use serde_json::{Value, json};

/// A tool with this name, these arguments, these effects, and whatever else.
fn tool(name: &str, input: Value, effects: &[&str], more: Value) -> Tool {
    let mut document = json!({
        "name": name, "version": "1.0.0", "description": "Does something.", "input": input,
        "effects": effects
    });
    for (key, value) in more.as_object().unwrap() {
        document[key] = value.clone();
    }
    Tool::from_json(document.to_string().as_bytes())
        .unwrap_or_else(|faults| panic!("{name}: {faults:?}"))
}

fn takes_anything() -> Value {
    json!({"type": "object", "additionalProperties": true})
}
