//! Tools that have a name and a form, and that nothing carries out yet. They are there so that a caller
//! learns why, and what to do instead.

use hotcell_request::{Effect, Fault, Spec, Tool, ToolError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::BuiltIn;
use crate::spec::{Shown, spec, tool_of};

/// A tool that cannot be carried out.
#[derive(Debug)]
pub struct Absent {
    spec: Spec,
    examples: Vec<Shown>,
    made_by: fn(&Spec, &[Shown]) -> Result<Tool, Fault>,
    error: ToolError,
}

impl Absent {
    /// What it says of itself.
    pub fn tool(&self) -> Result<Tool, Fault> {
        (self.made_by)(&self.spec, &self.examples)
    }

    /// What every call of it is answered with.
    pub fn error(&self) -> &ToolError {
        &self.error
    }
}

pub(crate) fn tools() -> Vec<BuiltIn> {
    [web_search(), http_fetch(), canvas_append()].into_iter().map(BuiltIn::Absent).collect()
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

fn web_search() -> Absent {
    let about = "Searches the web. There is no provider yet, so that every call is an error.";
    let result = json!([{"title": "Rust", "url": "https://rust-lang.org/", "text": "A language"}]);
    Absent {
        spec: spec("web.search", "web", &[Effect::Network], about),
        examples: vec![(json!({"query": "rust"}), result)],
        made_by: tool_of::<WebSearch, Vec<WebResult>>,
        error: ToolError::new(
            "the web was not searched",
            "there is no provider",
            "register a tool that searches, under a name of its own",
        ),
    }
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

fn http_fetch() -> Absent {
    let about = "Fetches a URL. There is no network for tools yet, so that every call is an error.";
    Absent {
        spec: spec("http_fetch", "web", &[Effect::Network], about),
        examples: vec![(
            json!({"url": "https://example.com/"}),
            json!({"status": 200, "body": "hello", "truncated": false}),
        )],
        made_by: tool_of::<HttpFetch, Fetched>,
        error: ToolError::new(
            "nothing was fetched",
            "there is no network for tools yet",
            "fetch it outside of hotcell, and hand it in as a file or as an argument",
        ),
    }
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

fn canvas_append() -> Absent {
    let about = "Appends text to the canvas. Calls cannot keep artifacts yet, so that every call is an error.";
    Absent {
        spec: spec("canvas_append", "canvas", &[Effect::Write], about),
        examples: vec![(json!({"text": "hello"}), json!({"bytes": 5}))],
        made_by: tool_of::<CanvasAppend, Appended>,
        error: ToolError::new(
            "nothing was appended",
            "calls cannot keep artifacts yet",
            "write a file with fs.write",
        ),
    }
}
