//! From bytes to a call. A document is read once and strictly ([`json`]), spelled in one way
//! ([`canonical`]), checked against what the tool says of itself ([`Tool`], [`Schema`], [`Registry`]), and
//! only then is it a [`Call`]. Nothing here does IO, and nothing in a [`Request`] can make anything looser.

mod call;
pub mod canonical;
mod fault;
pub mod json;
mod name;
mod place;
mod registered;
mod registry;
mod request;
mod schema;
mod settle;
mod text;
mod tool;
mod typed;
mod units;

use serde::de::DeserializeOwned;

pub use hotcell_types::Effect;
pub use serde_json::Value;

pub use call::{Call, CallError};
pub use canonical::{BadDigest, Digest};
pub use fault::Fault;
pub use name::{BadToolName, BadVersion, BadVersionReq, ToolName, Version, VersionReq};
pub use place::WORKSPACE;
pub use registered::{Later, RegisterError, Registered};
pub use registry::{Listed, LookupError, Registry, Tools};
pub use request::{Arguments, BadKey, BadPriority, Key, Priority, Request, Token};
pub use schema::{Mark, Schema};
pub use text::{BadText, Description, Label, Title};
pub use tool::{
    BadPattern, Cache, Example, HostPattern, Overrides, PathPattern, Permissions, Rate, Retry,
    TemplateName, Tool,
};
pub use typed::{Spec, ToolError, TypedTool, typed_call};

/// Makes a tool of a function that takes one struct and returns a result.
///
/// The function stays as it is. Beside it there is a value named after it that implements [`TypedTool`];
/// the doc comment is the tool's description, and the schemas follow from the types.
///
/// ```
/// use hotcell_request::{Registry, ToolError, TypedTool, tool};
/// use schemars::JsonSchema;
/// use serde::Deserialize;
///
/// #[derive(Deserialize, JsonSchema)]
/// struct Add {
///     a: f64,
///     b: f64,
/// }
///
/// /// Adds two numbers.
/// #[tool(name = "math.add", version = "1.0.0", category = "math", effects(pure))]
/// fn add(input: Add) -> Result<f64, ToolError> {
///     Ok(input.a + input.b)
/// }
///
/// let registry = Registry::new();
/// registry.register(AddTool.tool()?)?;
/// assert_eq!(AddTool.call(serde_json::json!({"a": 1, "b": 2}))?, 3.0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// `name`, `version` and `effects(...)` are needed. There are also `title`, `category`, `operation`,
/// `template`, `timeout`, `memory`, `retry(attempts = 3, wait = "100ms")`, `tags(...)`, `hosts(...)`,
/// `paths(...)` and `varies(...)`, with the meaning that they have in a [`Tool`]; the rest of it can be set on the value. A field of the struct
/// is marked with `#[schemars(extend("x-hotcell" = "path"))]`.
pub use hotcell_request_macros::tool;

/// Reads one of our documents. Its schema goes first, since that knows the places of what is wrong.
fn read_as<T: DeserializeOwned>(
    schema: &Result<Schema, Fault>,
    value: Value,
) -> Result<T, Vec<Fault>> {
    schema.as_ref().map_err(|fault| vec![fault.clone()])?.validate(&value)?;
    serde_json::from_value(value).map_err(|error| {
        let what = text::shown(&error.to_string(), 300);
        vec![Fault::new("", what, "a field cannot be read", "write it as its schema says")]
    })
}

/// The blocks of the guide for authors are compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/tool-author.md")]
mod guide {}
