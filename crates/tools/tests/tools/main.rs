//! The built-in tools from outside: what they say of themselves, and what they do.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod docs;
mod git;
mod pure;
mod sandboxed;
mod standard;
mod tree;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use hotcell_request::{Arguments, Call, Registry, Request, ToolError, TypedTool};
use hotcell_tools::{Absent, BuiltIn, Plan, Ran, SandboxedTool, TreeTool, built_in};
use hotcell_types::{CallId, Caller, Door, Status};
use serde_json::Value;

/// Made once: what tools say of themselves is computed each time.
static ALL: LazyLock<BTreeMap<String, BuiltIn>> = LazyLock::new(|| {
    built_in().into_iter().map(|tool| (tool.tool().unwrap().name.to_string(), tool)).collect()
});

static REGISTRY: LazyLock<Registry> = LazyLock::new(|| {
    let registry = Registry::new();
    for tool in ALL.values() {
        registry.register(tool.tool().unwrap()).unwrap();
    }
    registry
});

fn find(name: &str) -> &'static BuiltIn {
    ALL.get(name).unwrap_or_else(|| panic!("there is no `{name}`"))
}

fn pure_tool(name: &str) -> &'static dyn TypedTool {
    match find(name) {
        BuiltIn::Pure(tool) => tool.as_ref(),
        other => panic!("{other:?}"),
    }
}

fn tree_tool(name: &str) -> &'static dyn TreeTool {
    match find(name) {
        BuiltIn::Tree(tool) => tool.as_ref(),
        other => panic!("{other:?}"),
    }
}

fn sandboxed_tool(name: &str) -> &'static dyn SandboxedTool {
    match find(name) {
        BuiltIn::Sandboxed(tool) => tool.as_ref(),
        other => panic!("{other:?}"),
    }
}

fn absent_tool(name: &str) -> &'static Absent {
    match find(name) {
        BuiltIn::Absent(tool) => tool,
        other => panic!("{other:?}"),
    }
}

/// A call as every door makes it: registered, filled, spelled and checked.
fn call(name: &str, args: Value) -> Result<Call, Vec<String>> {
    let request = Request::new(name.parse().unwrap(), Arguments::Value(args));
    let caller = Caller::local("alice".parse().unwrap(), Door::Library);
    Call::new(request, caller, CallId::new(0, [0; 10]), &REGISTRY)
        .map_err(|error| error.faults().iter().map(|fault| fault.at().to_owned()).collect())
}

/// The arguments of such a call.
fn settled(name: &str, args: Value) -> Value {
    let made = call(name, args.clone());
    made.unwrap_or_else(|faults| panic!("{name} {args}: {faults:?}")).args().clone()
}

fn plan(name: &str, args: Value) -> Result<Plan, ToolError> {
    sandboxed_tool(name).plan(&settled(name, args))
}

/// A run that went well and printed this.
fn ran(stdout: &str) -> Ran {
    Ran {
        status: Status::Success,
        exit_code: Some(0),
        signal: None,
        stdout: stdout.into(),
        stderr: String::new(),
        truncated: false,
        artifacts: Vec::new(),
        changes: None,
        network: None,
    }
}

/// A result as it leaves: in canonical numbers, and as the tool's schema says.
fn checked(name: &str, result: Value) -> Value {
    let registered = REGISTRY.get(&name.parse().unwrap(), None).unwrap();
    let result = hotcell_request::json::adopt(result, &Default::default()).unwrap();
    registered.output().validate(&result).unwrap_or_else(|faults| panic!("{name}: {faults:?}"));
    result
}

fn assert_helps(error: &ToolError) {
    for part in [&error.what, &error.why, &error.fix] {
        assert!(!part.is_empty() && !part.ends_with('.') && !part.contains('\0'), "{error:?}");
    }
}
