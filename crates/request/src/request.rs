//! What a door hands over. It has the fields that a caller may decide on, and no others: nothing in it
//! names a sandbox, a level, a user or an environment, so nothing in it can loosen one.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;

use hotcell_types::{CallId, Span};
use schemars::{JsonSchema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::fault::Fault;
use crate::json::{self, Bounds};
use crate::name::{ToolName, VersionReq};
use crate::schema::Schema;
use crate::text::{as_text, shows_itself};
use crate::units;

/// A wish. [`Call::new`](crate::Call::new) makes a call of it, or says what is wrong.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    pub tool: ToolName,
    /// Which versions are accepted; the newest of them is called.
    pub version: Option<VersionReq>,
    pub arguments: Arguments,
    pub priority: Priority,
    /// How long it may take at most: less than the tool's own limit, never more.
    pub timeout: Option<Span>,
    /// The same key of the same subject is the same call, however often it is sent: what changes something
    /// is done once.
    pub key: Option<Key>,
    /// The call in which this one was made.
    pub parent: Option<CallId>,
    /// Calls that have to be over before.
    pub after: Vec<CallId>,
    pub token: Option<Token>,
    /// If no rule speaks of the call, put it before a person instead of refusing it. Allows nothing by
    /// itself: somebody has to agree, and what a rule denies stays denied.
    pub ask: bool,
}

/// Arguments as they came.
#[derive(Clone, PartialEq)]
pub enum Arguments {
    Bytes(Vec<u8>),
    Value(Value),
}

impl fmt::Debug for Arguments {
    /// What is secret in them is known only to the tool's schema.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Arguments::Bytes(_) => "Bytes(…)",
            Arguments::Value(_) => "Value(…)",
        })
    }
}

impl Request {
    /// Most calls that one can wait for.
    pub const AFTER_MOST: usize = 64;

    /// A request with nothing but what every request has.
    pub fn new(tool: ToolName, arguments: Arguments) -> Request {
        Request {
            tool,
            version: None,
            arguments,
            priority: Priority::default(),
            timeout: None,
            key: None,
            parent: None,
            after: Vec::new(),
            token: None,
            ask: false,
        }
    }

    /// Reads a request from JSON. What it does not know is refused, not ignored.
    pub fn from_json(bytes: &[u8]) -> Result<Request, Vec<Fault>> {
        Request::from_value(json::parse(bytes, &Bounds::CALL).map_err(|fault| vec![fault])?)
    }

    /// The same from what was read with [`json::parse`].
    pub fn from_value(value: Value) -> Result<Request, Vec<Fault>> {
        let wire: Wire = crate::read_as(&WIRE, value)?;
        Ok(Request {
            tool: wire.tool,
            version: wire.version,
            arguments: Arguments::Value(Value::Object(wire.arguments)),
            priority: wire.priority,
            timeout: wire.timeout,
            key: wire.key,
            parent: wire.parent,
            after: wire.after,
            token: wire.token,
            ask: wire.ask,
        })
    }

    /// The JSON Schema of a request.
    pub fn standard() -> Value {
        schemars::schema_for!(Wire).to_value()
    }
}

static WIRE: LazyLock<Result<Schema, Fault>> = LazyLock::new(|| Schema::new(&Request::standard()));

/// A request in JSON.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "Request")]
struct Wire {
    tool: ToolName,
    version: Option<VersionReq>,
    #[serde(default)]
    arguments: Map<String, Value>,
    #[serde(default)]
    priority: Priority,
    #[serde(default, with = "units::option")]
    #[schemars(schema_with = "units::span_schema")]
    timeout: Option<Span>,
    key: Option<Key>,
    #[serde(default)]
    #[schemars(schema_with = "maybe_id_schema")]
    parent: Option<CallId>,
    #[serde(default)]
    #[schemars(schema_with = "ids_schema")]
    after: Vec<CallId>,
    #[schemars(extend("x-hotcell" = "secret"))]
    token: Option<Token>,
    /// If no rule speaks of the call, put it before a person instead of refusing it.
    #[serde(default)]
    ask: bool,
}

const ID_PATTERN: &str = "^[0-7][0-9A-HJKMNP-TV-Z]{25}$";

fn maybe_id_schema(_: &mut SchemaGenerator) -> schemars::Schema {
    json_schema!({ "type": ["string", "null"], "pattern": ID_PATTERN })
}

fn ids_schema(_: &mut SchemaGenerator) -> schemars::Schema {
    let id = json_schema!({ "type": "string", "pattern": ID_PATTERN });
    json_schema!({ "type": "array", "items": id, "maxItems": Request::AFTER_MOST })
}

/// How soon: 1 is first, 5 is last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct Priority(u8);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not a priority: 1 is first, 5 is last")]
pub struct BadPriority(u8);

impl Priority {
    pub fn get(self) -> u8 {
        self.0
    }
}

impl Default for Priority {
    fn default() -> Priority {
        Priority(3)
    }
}

impl TryFrom<u8> for Priority {
    type Error = BadPriority;

    fn try_from(number: u8) -> Result<Priority, BadPriority> {
        if (1..=5).contains(&number) { Ok(Priority(number)) } else { Err(BadPriority(number)) }
    }
}

impl From<Priority> for u8 {
    fn from(priority: Priority) -> u8 {
        priority.0
    }
}

impl JsonSchema for Priority {
    fn schema_name() -> Cow<'static, str> {
        "Priority".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> schemars::Schema {
        json_schema!({ "type": "integer", "minimum": 1, "maximum": 5, "default": 3 })
    }
}

/// An idempotency key: 1 to 128 visible characters of ASCII.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Key(String);

/// The text of a token. It does not print itself.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Token(String);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{what} has 1 to {most} visible characters of ASCII")]
pub struct BadKey {
    what: &'static str,
    most: usize,
}

impl Key {
    pub const MAX: usize = 128;

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Token {
    pub const MAX: usize = 4096;

    /// The text, for whoever checks it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

fn visible(text: &str, what: &'static str, most: usize) -> Result<String, BadKey> {
    let fits = (1..=most).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic());
    if fits { Ok(text.to_owned()) } else { Err(BadKey { what, most }) }
}

impl FromStr for Key {
    type Err = BadKey;

    fn from_str(text: &str) -> Result<Key, BadKey> {
        visible(text, "a key", Key::MAX).map(Key)
    }
}

impl FromStr for Token {
    type Err = BadKey;

    fn from_str(text: &str) -> Result<Token, BadKey> {
        visible(text, "a token", Token::MAX).map(Token)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

shows_itself!(Key);
as_text!(Key, BadKey, { "type": "string", "maxLength": Key::MAX, "pattern": "^[!-~]+$" });

impl TryFrom<String> for Token {
    type Error = BadKey;

    fn try_from(text: String) -> Result<Token, BadKey> {
        text.parse()
    }
}

impl JsonSchema for Token {
    fn schema_name() -> Cow<'static, str> {
        "Token".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> schemars::Schema {
        json_schema!({ "type": "string", "maxLength": Token::MAX, "pattern": "^[!-~]+$" })
    }
}
