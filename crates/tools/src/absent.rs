//! Tools that have a name and a form, and that nothing carries out yet. They are there so that a caller
//! learns why, and what to do instead.

use hotcell_request::{Effect, Fault, Spec, Tool, ToolError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::spec::{spec, tool_of};
use crate::{BuiltIn, change, connect, policy};

/// A tool that cannot be carried out.
#[derive(Debug)]
pub struct Absent {
    spec: &'static Spec,
    tool: fn() -> Result<Tool, Fault>,
    error: ToolError,
}

impl Absent {
    /// What it says of itself in words.
    pub fn spec(&self) -> &Spec {
        self.spec
    }

    /// What it says of itself, with its schemas and examples.
    pub fn tool(&self) -> Result<Tool, Fault> {
        (self.tool)()
    }

    /// What every call of it is answered with.
    pub fn error(&self) -> &ToolError {
        &self.error
    }
}

pub(crate) fn tools() -> Vec<BuiltIn> {
    let absent = |spec: &'static Spec, tool, what: &str, why: &str, fix: &str| {
        BuiltIn::Absent(Absent { spec, tool, error: ToolError::new(what, why, fix) })
    };
    vec![
        absent(
            &WEB_SEARCH,
            web_search,
            "the web was not searched",
            "there is no provider",
            "register a tool that searches, under a name of its own",
        ),
        absent(
            &HTTP_FETCH,
            http_fetch,
            "nothing was fetched",
            "there is no network for tools yet",
            "fetch it outside of hotcell, and hand it in as a file or as an argument",
        ),
        absent(
            &change::SPEC,
            change::tool,
            "nothing was changed",
            "a change is a part of the call that made it",
            "write a file with fs.write",
        ),
        absent(
            &connect::SPEC,
            connect::tool,
            "nothing was connected",
            "a connection is made by the run that wants it",
            "fetch something with http_fetch, or run a program that has a network",
        ),
        absent(
            &policy::SPEC,
            policy::tool,
            "the policy stays as it is",
            "a policy is changed by the signature of an approver, and not by a call",
            "have the proposal approved: `hotcell approvals` lists what waits",
        ),
        absent(
            &CANVAS_APPEND,
            canvas_append,
            "nothing was appended",
            "calls cannot keep artifacts yet",
            "write a file with fs.write",
        ),
    ]
}

const TEXT_MOST: usize = 1 << 20;
const QUERY_MOST: usize = 1000;
const RESULTS_MOST: u64 = 50;

#[derive(Deserialize, JsonSchema)]
#[expect(dead_code, reason = "a type that only its schema is made from")]
struct WebSearch {
    #[schemars(length(min = 1, max = QUERY_MOST))]
    query: String,
    /// Most results.
    #[serde(default = "ten")]
    #[schemars(range(min = 1, max = RESULTS_MOST))]
    most: u64,
}

fn ten() -> u64 {
    10
}

#[derive(Serialize, JsonSchema)]
struct WebResult {
    title: String,
    url: String,
    text: String,
}

static WEB_SEARCH: Spec = spec(
    "web.search",
    "web",
    &[Effect::Network],
    "Searches the web. There is no provider yet, so that every call is an error.",
);

fn web_search() -> Result<Tool, Fault> {
    let example = (
        json!({"query": "rust"}),
        json!([{"title": "Rust", "url": "https://rust-lang.org/", "text": "A language"}]),
    );
    tool_of::<WebSearch, Vec<WebResult>>(&WEB_SEARCH, [example])
}

#[derive(Deserialize, JsonSchema)]
#[expect(dead_code, reason = "a type that only its schema is made from")]
struct HttpFetch {
    #[schemars(extend("x-hotcell" = "url"))]
    url: String,
    #[serde(default = "get")]
    #[schemars(extend("x-hotcell" = "method"))]
    method: String,
    #[schemars(length(max = TEXT_MOST))]
    body: Option<String>,
}

fn get() -> String {
    "GET".into()
}

#[derive(Serialize, JsonSchema)]
struct Fetched {
    status: u16,
    body: String,
    truncated: bool,
}

static HTTP_FETCH: Spec = spec(
    "http_fetch",
    "web",
    &[Effect::Network],
    "Fetches a URL. There is no network for tools yet, so that every call is an error.",
);

fn http_fetch() -> Result<Tool, Fault> {
    let example = (
        json!({"url": "https://example.com/"}),
        json!({"status": 200, "body": "hello", "truncated": false}),
    );
    tool_of::<HttpFetch, Fetched>(&HTTP_FETCH, [example])
}

#[derive(Deserialize, JsonSchema)]
#[expect(dead_code, reason = "a type that only its schema is made from")]
struct CanvasAppend {
    #[schemars(length(min = 1, max = TEXT_MOST))]
    text: String,
}

#[derive(Serialize, JsonSchema)]
struct Appended {
    /// Of the whole canvas.
    bytes: u64,
}

static CANVAS_APPEND: Spec = spec(
    "canvas_append",
    "canvas",
    &[Effect::Write],
    "Appends text to the canvas. Calls cannot keep artifacts yet, so that every call is an error.",
);

fn canvas_append() -> Result<Tool, Fault> {
    let example = (json!({"text": "hello"}), json!({"bytes": 5}));
    tool_of::<CanvasAppend, Appended>(&CANVAS_APPEND, [example])
}
