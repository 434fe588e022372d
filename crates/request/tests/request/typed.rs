//! Tools that are Rust functions.

use hotcell_request::{
    Arguments, Call, Effect, Registry, Request, ToolError, TypedTool, typed_call,
};
use hotcell_types::{CallId, Caller, Door, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Add {
    /// The first.
    a: f64,
    b: f64,
}

/// Adds two numbers.
///
/// Exactly as a processor does.
#[hotcell_request::tool(name = "math.add", version = "1.2.0", category = "math", effects(pure))]
fn add(input: Add) -> Result<f64, ToolError> {
    Ok(input.a + input.b)
}

#[derive(Deserialize, JsonSchema)]
struct Count {
    #[schemars(extend("x-hotcell" = "path"))]
    path: String,
    #[serde(default = "usual")]
    unit: Unit,
    limit: Option<u32>,
}

#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Unit {
    Words,
    Lines,
}

fn usual() -> Unit {
    Unit::Words
}

#[derive(Serialize, JsonSchema)]
struct Counted {
    path: String,
    count: u32,
}

/// Counts.
#[hotcell_request::tool(
    name = "text.count",
    version = "1.0.0",
    title = "Count",
    operation = "fs.read",
    template = "code-executor",
    timeout = "2s",
    memory = "64MiB",
    retry(attempts = 3, wait = "100ms"),
    effects(read, network),
    tags("text", "files"),
    hosts("example.com"),
    paths("docs/**")
)]
fn count_words(input: Count) -> Result<Counted, ToolError> {
    if input.limit == Some(0) {
        return Err(ToolError::new("cannot count", "the limit is 0", "raise it"));
    }
    let count = match input.unit {
        Unit::Words => 2,
        Unit::Lines => 1,
    };
    Ok(Counted { path: input.path, count })
}

/// Says a name it cannot have.
#[hotcell_request::tool(name = "Bad Name", version = "1.0.0", effects(pure))]
fn badly_named(input: Add) -> Result<f64, ToolError> {
    Ok(input.a)
}

#[test]
fn a_function_is_a_tool() {
    let tool = AddTool.tool().unwrap();
    assert_eq!(
        (tool.name.to_string(), tool.version.to_string()),
        ("math.add".into(), "1.2.0".into())
    );
    assert_eq!(tool.description.as_str(), "Adds two numbers.\n\nExactly as a processor does.");
    assert!(tool.effects.has(Effect::Pure));
    assert_eq!(tool.category.as_ref().unwrap().as_str(), "math");
    assert_eq!(tool.input["properties"]["a"]["type"], "number");
    assert_eq!(tool.input["properties"]["a"]["description"], "The first.");
    assert_eq!(tool.output["type"], "number");
    assert_eq!(AddTool.call(json!({"a": 1, "b": 2.5})), Ok(json!(3.5)));
    assert_eq!(add(Add { a: 1.0, b: 1.0 }), Ok(2.0), "the function is still there");
    assert!(AddTool.call(json!({"a": "1"})).is_err());
}

#[test]
fn all_words_reach_the_tool() {
    let tool = CountWordsTool.tool().unwrap();
    assert_eq!(tool.title.as_ref().unwrap().as_str(), "Count");
    assert_eq!(tool.operation().to_string(), "fs.read");
    assert_eq!(tool.template.to_string(), "code-executor");
    assert_eq!(
        (tool.limits().timeout, tool.limits().memory.to_string().as_str()),
        (Span::seconds(2), "64MiB")
    );
    assert_eq!((tool.retry.unwrap().attempts, tool.tags.len()), (3, 2));
    assert_eq!(tool.permissions.hosts[0].as_str(), "example.com");
    assert_eq!(tool.permissions.paths[0].as_str(), "docs/**");
    assert!(tool.effects.has(Effect::Read) && tool.effects.has(Effect::Network));
}

#[test]
fn a_typed_tool_goes_down_the_same_path() {
    let registry = Registry::new();
    let mut tool = CountWordsTool.tool().unwrap();
    // It reaches the network, so it is not tried again.
    assert_eq!(registry.register(tool.clone()).unwrap_err().faults()[0].at(), "/retry");
    tool.retry = None;
    registry.register(tool).unwrap();
    let call = |args| {
        let request = Request::new("text.count".parse().unwrap(), Arguments::Value(args));
        let caller = Caller::local("alice".parse().unwrap(), Door::Library);
        Call::new(request, caller, CallId::new(0, [0; 10]), &registry)
    };
    let made = call(json!({"path": "./docs/a"})).unwrap();
    assert_eq!(made.paths(), ["docs/a"]);
    assert_eq!(made.args(), &json!({"path": "docs/a", "unit": "words"}));
    let result = CountWordsTool.call(made.args().clone()).unwrap();
    assert_eq!(result, json!({"path": "docs/a", "count": 2}));
    assert_eq!(made.tool().output().validate(&result), Ok(()));
    assert_eq!(call(json!({"path": "a", "unit": "pages"})).unwrap_err().faults()[0].at(), "/unit");
    assert_eq!(call(json!({"path": "a", "more": 1})).unwrap_err().faults()[0].at(), "/more");
    let error = CountWordsTool.call(json!({"path": "a", "limit": 0})).unwrap_err();
    assert_eq!(error, ToolError::new("cannot count", "the limit is 0", "raise it"));
    assert_eq!(error.to_string(), "cannot count: the limit is 0");
}

#[test]
fn what_the_attribute_says_wrong_is_found_when_the_tool_is_made() {
    let fault = BadlyNamedTool.tool().unwrap_err();
    assert_eq!(fault.at(), "/name");
    assert!(fault.what().contains("`Bad Name`"), "{fault}");
    assert_eq!(BadlyNamedTool.call(json!({"a": 1, "b": 2})), Ok(json!(1.0)));
}

/// A result that JSON does not have is null, and no tool that says `number` may answer that.
#[test]
fn a_result_that_is_not_a_number_does_not_fit() {
    let result = typed_call(add, json!({"a": 1e308, "b": 1e308})).unwrap();
    let registered = hotcell_request::Registered::new(AddTool.tool().unwrap()).unwrap();
    assert!(registered.output().validate(&result).is_err(), "{result}");
}
