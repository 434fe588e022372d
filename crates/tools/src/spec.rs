//! What tools that are more than a function say of themselves, and their arguments and results as types.

use hotcell_request::{Effect, Example, Fault, Spec, Tool, ToolError};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Arguments, and what the tool answers to them.
pub(crate) type Shown = (Value, Value);

/// What every tool says. The version is that of the tool's arguments, result and meaning.
pub(crate) const fn spec(
    name: &'static str,
    category: &'static str,
    effects: &'static [Effect],
    description: &'static str,
) -> Spec {
    Spec {
        name,
        version: "1.0.0",
        description,
        effects,
        title: None,
        category: Some(category),
        operation: None,
        template: None,
        timeout: None,
        memory: None,
        retry: None,
        tags: &[],
        hosts: &[],
        varies: &[],
        paths: &[],
    }
}

/// The tool with these types.
pub(crate) fn tool_of<I, O>(
    spec: &Spec,
    examples: impl IntoIterator<Item = Shown>,
) -> Result<Tool, Fault>
where
    I: DeserializeOwned + JsonSchema,
    O: Serialize + JsonSchema,
{
    spec.tool_of(only_its_types::<I, O>).map(|tool| with_examples(tool, examples))
}

pub(crate) fn with_examples(mut tool: Tool, examples: impl IntoIterator<Item = Shown>) -> Tool {
    let all = examples.into_iter();
    tool.examples = all.map(|(input, output)| Example { input, output }).collect();
    tool
}

/// A spec is made for a function, of which it looks at nothing but the types.
fn only_its_types<I, O>(_: I) -> Result<O, ToolError> {
    Err(ToolError::new("nothing was done", "this is not how the tool is called", "report it"))
}

/// The arguments as their type. They were checked against the schema that follows from it.
pub(crate) fn read<I: DeserializeOwned>(arguments: Value) -> Result<I, ToolError> {
    // What serde says would show values, and some are secret.
    serde_json::from_value(arguments).map_err(|_| {
        let why = "they are not of the type that the tool takes";
        ToolError::new("the arguments cannot be read", why, "send them as the tool's schema says")
    })
}

pub(crate) fn written<O: Serialize>(result: O) -> Result<Value, ToolError> {
    serde_json::to_value(result).map_err(|_| {
        let why = "it has something that JSON does not have";
        ToolError::new("the result cannot be written", why, "report it: the tool is broken")
    })
}
