//! The web, for a call: one thing that is fetched, or a search. What is done is the engine's affair, which
//! judges each connection and each redirect.

use std::collections::BTreeMap;
use std::num::NonZeroU16;

use hotcell_request::{Effect, Fault, Spec, Tool, ToolError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::BuiltIn;
use crate::spec::{read, spec, tool_of, written};

pub const FETCH: &str = "http_fetch";
pub const SEARCH: &str = "web.search";

/// Longest URL, header, body that is sent, and body that is kept.
const URL_MOST: usize = 8 * 1024;
const HEADER_MOST: usize = 8 * 1024;
const HEADERS_MOST: usize = 32;
/// Most secrets of a call, longest name of a header that one goes in, and longest text before it.
const PLACEHOLDERS_MOST: usize = 16;
const HEADER_NAME_MOST: usize = 256;
const BEFORE_MOST: usize = 256;
const SENT_MOST: usize = 1 << 20;
const KEPT_MOST: u64 = 1 << 20;
const QUERY_MOST: usize = 1000;
const RESULTS_MOST: u64 = 50;
/// Calls of one of them that go on at one time: each holds a thread and a connection.
const AT_ONCE: NonZeroU16 = NonZeroU16::MIN.saturating_add(15);

/// A tool that hotcell carries out with a network of its own.
#[derive(Debug)]
pub struct WebTool {
    spec: &'static Spec,
    tool: fn() -> Result<Tool, Fault>,
    read: fn(Value) -> Result<Wanted, ToolError>,
}

/// What a call wants of it.
#[derive(Debug, Clone)]
pub enum Wanted {
    Fetch(Box<Fetch>),
    Search(Search),
}

impl WebTool {
    pub fn spec(&self) -> &Spec {
        self.spec
    }

    pub fn tool(&self) -> Result<Tool, Fault> {
        (self.tool)()
    }

    /// What a call with these arguments wants, which have been checked by the tool's schema.
    pub fn wanted(&self, arguments: &Value) -> Result<Wanted, ToolError> {
        (self.read)(arguments.clone())
    }
}

pub(crate) fn tools() -> Vec<BuiltIn> {
    let tool = |spec, tool, read| BuiltIn::Web(WebTool { spec, tool, read });
    vec![
        tool(&FETCH_SPEC, fetch, |args| Ok(Wanted::Fetch(Box::new(read(args)?)))),
        tool(&SEARCH_SPEC, search, |args| Ok(Wanted::Search(read(args)?))),
    ]
}

/// The arguments of `http_fetch`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct Fetch {
    #[schemars(length(max = URL_MOST), extend("x-hotcell" = "url"))]
    pub url: String,
    #[serde(default = "get")]
    #[schemars(extend("x-hotcell" = "method"))]
    pub method: String,
    /// Headers, except those that are the connection's own affair. With a redirect to another host, only
    /// harmless ones go along.
    #[serde(default)]
    #[schemars(extend(
        "maxProperties" = HEADERS_MOST,
        "additionalProperties" = { "type": "string", "maxLength": HEADER_MOST },
    ))]
    pub headers: BTreeMap<String, String>,
    #[schemars(length(max = SENT_MOST))]
    pub body: Option<String>,
    /// Secrets that go along in headers of their own, where the secret is bound to the tool `http_fetch` and to the
    /// host. Nobody who calls has their values, and they are hidden in what comes back.
    #[serde(default)]
    #[schemars(length(max = PLACEHOLDERS_MOST))]
    pub placeholders: Vec<Placeholder>,
    /// Most bytes of the answer's body that are kept.
    #[serde(default = "kept")]
    #[schemars(range(min = 1, max = KEPT_MOST))]
    pub most: u64,
}

/// A secret, and the header that it is sent in.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Placeholder {
    pub name: String,
    #[schemars(length(min = 1, max = HEADER_NAME_MOST))]
    pub header: String,
    /// What stands before it in the header, such as `Bearer ` with its space.
    #[serde(default)]
    #[schemars(length(max = BEFORE_MOST))]
    pub before: String,
}

fn get() -> String {
    "GET".into()
}

fn kept() -> u64 {
    256 * 1024
}

/// The answer of `http_fetch`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Fetched {
    pub status: u16,
    /// Where it came from in the end.
    pub url: String,
    pub redirects: u64,
    /// What the server says that it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    pub body: String,
    /// There was more.
    pub truncated: bool,
}

/// The arguments of `web.search`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct Search {
    #[schemars(length(min = 1, max = QUERY_MOST))]
    pub query: String,
    /// Most results.
    #[serde(default = "ten")]
    #[schemars(range(min = 1, max = RESULTS_MOST))]
    pub most: u64,
}

fn ten() -> u64 {
    10
}

/// One result of `web.search`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Found {
    pub title: String,
    pub url: String,
    pub text: String,
}

/// An answer as it leaves.
pub fn answer(answer: &impl Serialize) -> Result<Value, ToolError> {
    written(answer)
}

static FETCH_SPEC: Spec = Spec {
    timeout: Some("30s"),
    ..spec(
        FETCH,
        "web",
        &[Effect::Network],
        "Fetches a URL, as text. The policy has to allow the call, and `net.connect` to the host, and the \
         same to each host that it redirects to, five times at most. An answer that is not text is an error. A \
         secret goes along by its name, and is never seen.",
    )
};

fn fetch() -> Result<Tool, Fault> {
    let example = (
        json!({"url": "https://example.com/"}),
        json!({
            "status": 200,
            "url": "https://example.com/",
            "redirects": 0,
            "content_type": "text/plain",
            "body": "hello",
            "truncated": false,
        }),
    );
    let tool = tool_of::<Fetch, Fetched>(&FETCH_SPEC, [example])?;
    Ok(Tool { concurrency: Some(AT_ONCE), ..tool })
}

static SEARCH_SPEC: Spec = Spec {
    timeout: Some("30s"),
    ..spec(
        SEARCH,
        "web",
        &[Effect::Network],
        "Searches the web by asking the server that `network.search` of the settings names, which speaks the \
         JSON of SearXNG. Without one, every call is an error.",
    )
};

fn search() -> Result<Tool, Fault> {
    let example = (
        json!({"query": "rust"}),
        json!([{"title": "Rust", "url": "https://rust-lang.org/", "text": "A language"}]),
    );
    let tool = tool_of::<Search, Vec<Found>>(&SEARCH_SPEC, [example])?;
    Ok(Tool { concurrency: Some(AT_ONCE), ..tool })
}
