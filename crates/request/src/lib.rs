//! From bytes to a call. A document is read once and strictly ([`json`]), spelled in one way
//! ([`canonical`]), checked against what the tool says of itself ([`Tool`], [`Schema`]), and only then is
//! it a [`Call`]. Nothing here does IO, and nothing in a request can make anything looser.

pub mod canonical;
mod fault;
pub mod json;
mod name;
mod place;
mod schema;
mod text;

pub use canonical::Digest;
pub use fault::Fault;
pub use name::{BadToolName, BadVersion, BadVersionReq, ToolName, Version, VersionReq};
pub use place::WORKSPACE;
pub use schema::{Mark, Schema};
pub use text::{BadText, Description, Label, Title};
