//! Tools that are functions of their arguments. Those of `date` that read the clock say `read`, since
//! their results do not follow from their arguments alone.

mod data;
mod date;
mod list;
mod math;
mod text;

use hotcell_request::{Fault, Spec, Tool, ToolError, TypedTool, tool};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::BuiltIn;
use crate::spec::{Shown, with_examples};

/// Most characters of a text that is worked on.
const TEXT_MOST: usize = 1 << 20;

pub(crate) fn tools() -> Vec<BuiltIn> {
    let echo = shown(EchoTool, || [(json!({"message": "hello"}), json!("hello"))]);
    [vec![echo], math::tools(), text::tools(), date::tools(), list::tools(), data::tools()]
        .into_iter()
        .flatten()
        .collect()
}

/// A function with its examples, for which `#[tool]` has no word.
struct WithExamples<T, const N: usize> {
    tool: T,
    examples: fn() -> [Shown; N],
}

impl<T: TypedTool, const N: usize> TypedTool for WithExamples<T, N> {
    fn spec(&self) -> Spec {
        self.tool.spec()
    }

    fn tool(&self) -> Result<Tool, Fault> {
        self.tool.tool().map(|tool| with_examples(tool, (self.examples)()))
    }

    fn call(&self, arguments: Value) -> Result<Value, ToolError> {
        self.tool.call(arguments)
    }
}

fn shown<const N: usize>(tool: impl TypedTool + 'static, examples: fn() -> [Shown; N]) -> BuiltIn {
    BuiltIn::Pure(Box::new(WithExamples { tool, examples }))
}

#[derive(Deserialize, JsonSchema)]
struct Echo {
    #[schemars(length(max = TEXT_MOST))]
    message: String,
}

/// Answers with the message that it was sent.
#[tool(name = "echo", version = "1.0.0", category = "text", effects(pure))]
fn echo(input: Echo) -> Result<String, ToolError> {
    Ok(input.message)
}
