//! What tests of the whole engine begin with.

use std::path::Path;

use hotcell_engine::{Options, Policy};
use hotcell_request::{Arguments, Request};
use hotcell_types::Level;
use serde_json::Value;

/// A home and a workspace in one directory, with writes allowed.
pub(crate) fn options(dir: &Path) -> Options {
    let mut options = Options::at(dir.join("home"));
    options.workspace = Some(dir.join("tree"));
    options.minimum = Level::LandlockOnly;
    options.policy = Some(Policy::with_workspace_writes());
    options
}

pub(crate) fn request(tool: &str, arguments: Value) -> Request {
    Request::new(tool.parse().unwrap(), Arguments::Value(arguments))
}
