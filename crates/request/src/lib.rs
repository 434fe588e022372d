//! From bytes to a call. A document is read once and strictly ([`json`]), spelled in one way
//! ([`canonical`]), checked against what the tool says of itself ([`Tool`], [`Schema`], [`Registry`]), and
//! only then is it a [`Call`]. Nothing here does IO, and nothing in a [`Request`] can make anything looser.

mod call;
pub mod canonical;
mod fault;
pub mod json;
mod name;
mod place;
mod registry;
mod request;
mod schema;
mod settle;
mod text;
mod tool;
mod units;

use serde::de::DeserializeOwned;
use serde_json::Value;

pub use call::{Call, CallError};
pub use canonical::{BadDigest, Digest};
pub use fault::Fault;
pub use name::{BadToolName, BadVersion, BadVersionReq, ToolName, Version, VersionReq};
pub use place::WORKSPACE;
pub use registry::{Listed, LookupError, RegisterError, Registered, Registry, Tools};
pub use request::{Arguments, BadKey, BadPriority, Key, Priority, Request, Token};
pub use schema::{Mark, Schema};
pub use text::{BadText, Description, Label, Title};
pub use tool::{
    BadPattern, Cache, Example, HostPattern, Overrides, PathPattern, Permissions, Rate,
    TemplateName, Tool,
};

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
