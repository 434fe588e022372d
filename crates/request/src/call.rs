//! A call: a request that was read, checked and spelled in one way. From here on its arguments are what
//! is judged, recorded and executed; nobody parses them again, and nobody can make one in another way.

use std::fmt;
use std::sync::Arc;

use hotcell_types::{CallId, Caller, Effects, Limits, Span};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::canonical::{self, Digest};
use crate::fault::{Fault, push_key};
use crate::json::{self, Bounds};
use crate::name::{ToolName, Version, VersionReq};
use crate::place;
use crate::registered::Registered;
use crate::registry::{LookupError, Registry};
use crate::request::{Arguments, Key, Priority, Request, Token};
use crate::schema::{Mark, SECRET};
use crate::settle::{Marks, settle};
use crate::text::{Label, shown};
use crate::units;

/// What is asked for, by whom.
#[derive(Clone)]
pub struct Call {
    id: CallId,
    caller: Caller,
    tool: Arc<Registered>,
    args: Value,
    marks: Arc<Marks>,
    priority: Priority,
    timeout: Span,
    key: Option<Key>,
    parent: Option<CallId>,
    after: Vec<CallId>,
    token: Option<Token>,
    ask: bool,
}

/// Why there is no call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    #[error(transparent)]
    Tool(#[from] LookupError),
    /// Places are those in the request.
    #[error("the request cannot be carried out: {0}")]
    Request(Fault),
    /// Places are those in the arguments.
    #[error("these are not arguments of `{tool}`: {}", .faults.first().map(ToString::to_string).unwrap_or_default())]
    Arguments { tool: ToolName, faults: Vec<Fault> },
    /// A stored call is not one any more.
    #[error("the stored call cannot be used: {0}")]
    Stored(Fault),
}

impl CallError {
    /// What is wrong, for whoever sent it.
    pub fn faults(&self) -> Vec<Fault> {
        match self {
            CallError::Tool(error) => vec![error.fault()],
            CallError::Request(fault) | CallError::Stored(fault) => vec![fault.clone()],
            CallError::Arguments { faults, .. } => faults.clone(),
        }
    }
}

impl Call {
    /// Makes a call of a request. The caller and the id come from the door, never from the request.
    pub fn new(
        request: Request,
        caller: Caller,
        id: CallId,
        registry: &Registry,
    ) -> Result<Call, CallError> {
        let tool = registry.get(&request.tool, request.version.as_ref())?;
        let args = match request.arguments {
            Arguments::Bytes(bytes) => json::parse(&bytes, &Bounds::CALL),
            Arguments::Value(value) => json::adopt(value, &Bounds::CALL),
        };
        let args = args.map_err(|fault| wrong(&tool, vec![fault]))?;
        let (args, marks) = settle(tool.input(), args).map_err(|faults| wrong(&tool, faults))?;
        let timeout = timeout(&tool, request.timeout).map_err(CallError::Request)?;
        let after = check_order(id, request.parent, request.after).map_err(CallError::Request)?;
        Ok(Call {
            id,
            caller,
            tool,
            args,
            marks: Arc::new(marks),
            priority: request.priority,
            timeout,
            key: request.key,
            parent: request.parent,
            after,
            token: request.token,
            ask: request.ask,
        })
    }

    /// Reads a call that was stored. It is checked as if it were new, and refused if the tool is not the
    /// one it was made for.
    pub fn from_bytes(bytes: &[u8], registry: &Registry) -> Result<Call, CallError> {
        let value = json::parse(bytes, &STORED_BOUNDS).map_err(CallError::Stored)?;
        let stored: Stored = serde_json::from_value(value).map_err(|error| {
            let why = shown(&error.to_string(), 200);
            CallError::Stored(Fault::new(
                "",
                "this is not a stored call",
                why,
                "make the call again",
            ))
        })?;
        let mut request = Request::new(stored.tool, Arguments::Value(stored.args));
        request.version = Some(VersionReq::exactly(stored.version));
        request.priority = stored.priority;
        request.timeout = Some(stored.timeout);
        request.key = stored.key;
        request.parent = stored.parent;
        request.after = stored.after;
        let call = Call::new(request, stored.caller, stored.id, registry)?;
        if call.tool.digest() != stored.surface {
            return Err(CallError::Stored(Fault::new(
                "/surface",
                format!(
                    "`{}` {} is not what it was when the call was made",
                    call.name(),
                    call.version()
                ),
                "the call was made for what the tool said of itself then",
                "make the call again",
            )));
        }
        if call.to_bytes() != bytes {
            return Err(CallError::Stored(Fault::new(
                "",
                "the stored call is not as it was written",
                "it has one spelling, and this is another",
                "make the call again",
            )));
        }
        Ok(call)
    }

    /// The call in canonical form, with its secrets: for whoever carries it out, not for the record. A
    /// token is left out, since it is spent when the call is first judged, and so is the wish to have a
    /// person asked, since that was done by then.
    pub fn to_bytes(&self) -> Vec<u8> {
        let stored = Stored {
            id: self.id,
            caller: self.caller.clone(),
            tool: self.name().clone(),
            version: self.version(),
            surface: self.tool.digest(),
            args: self.args.clone(),
            priority: self.priority,
            timeout: self.timeout,
            key: self.key.clone(),
            parent: self.parent,
            after: self.after.clone(),
        };
        canonical::bytes(&serde_json::to_value(stored).unwrap_or_default())
    }

    /// The same call, given no more time than this.
    pub fn within(self, most: Span) -> Call {
        Call { timeout: self.timeout.min(most), ..self }
    }

    pub fn id(&self) -> CallId {
        self.id
    }

    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    pub fn tool(&self) -> &Arc<Registered> {
        &self.tool
    }

    pub fn name(&self) -> &ToolName {
        &self.tool.tool().name
    }

    pub fn version(&self) -> Version {
        self.tool.tool().version
    }

    /// What a policy calls it.
    pub fn operation(&self) -> &ToolName {
        self.tool.tool().operation()
    }

    pub fn tags(&self) -> &[Label] {
        &self.tool.tool().tags
    }

    pub fn effects(&self) -> Effects {
        self.tool.tool().effects
    }

    /// The arguments, in the one form that is judged and executed.
    pub fn args(&self) -> &Value {
        &self.args
    }

    /// The arguments with what is secret left out: for people, models and the record.
    pub fn redacted_args(&self) -> Value {
        let mut args = self.args.clone();
        for (at, _) in self.marks.iter().filter(|(_, mark)| *mark == Mark::Secret) {
            if let Some(place) = args.pointer_mut(at) {
                *place = SECRET.into();
            }
        }
        args
    }

    /// Paths below the workspace's root, in the order of their places.
    pub fn paths(&self) -> Vec<&str> {
        self.each_path().collect()
    }

    /// The same, one after the other, without a list of them.
    pub fn each_path(&self) -> impl Iterator<Item = &str> {
        self.marked(Mark::Path)
    }

    /// Those of them that a kept result depends on, in the order of their places: the values of the
    /// arguments that the tool's [`Cache`](crate::Cache) rule names. `None` if results are not kept.
    pub fn cache_inputs(&self) -> Option<Vec<&str>> {
        let cache = &self.tool.tool().cache;
        let declared = |at: &str| cache.inputs().iter().any(|name| is_in(at, name));
        (!cache.is_never()).then(|| self.marked_where(Mark::Path, declared).collect())
    }

    /// Hosts, those of URLs among them.
    pub fn hosts(&self) -> Vec<&str> {
        self.each_host().collect()
    }

    pub fn each_host(&self) -> impl Iterator<Item = &str> {
        self.marked(Mark::Host).chain(self.marked(Mark::Url).filter_map(place::host_of_url))
    }

    pub fn methods(&self) -> Vec<&str> {
        self.each_method().collect()
    }

    pub fn each_method(&self) -> impl Iterator<Item = &str> {
        self.marked(Mark::Method)
    }

    pub fn urls(&self) -> Vec<&str> {
        self.marked(Mark::Url).collect()
    }

    /// Of the arguments alone: what a cache and a token go by.
    pub fn args_digest(&self) -> Digest {
        canonical::digest(&self.args)
    }

    /// Of everything that is judged, but not of when and how often it is asked: who calls, which tool as
    /// it describes itself, and the arguments. What an approval is bound to.
    pub fn digest(&self) -> Digest {
        canonical::digest(&json!({
            "caller": self.caller,
            "tool": self.name(),
            "version": self.version(),
            "surface": self.tool.digest(),
            "args": self.args,
        }))
    }

    pub fn priority(&self) -> Priority {
        self.priority
    }

    /// How long it may take: what the request says, and the tool's own limit otherwise.
    pub fn timeout(&self) -> Span {
        self.timeout
    }

    /// How much it may use.
    pub fn limits(&self) -> Limits {
        Limits { timeout: self.timeout, ..self.tool.tool().limits() }
    }

    pub fn key(&self) -> Option<&Key> {
        self.key.as_ref()
    }

    pub fn parent(&self) -> Option<CallId> {
        self.parent
    }

    /// Calls that have to be over before.
    pub fn after(&self) -> &[CallId] {
        &self.after
    }

    pub fn token(&self) -> Option<&Token> {
        self.token.as_ref()
    }

    /// Whether a person is to be asked where no rule speaks.
    pub fn asks(&self) -> bool {
        self.ask
    }

    fn marked(&self, mark: Mark) -> impl Iterator<Item = &str> {
        self.marked_where(mark, |_| true)
    }

    fn marked_where(
        &self,
        mark: Mark,
        wanted: impl Fn(&str) -> bool,
    ) -> impl Iterator<Item = &str> {
        let places = self.marks.iter().filter(move |(at, m)| *m == mark && wanted(at));
        places.filter_map(|(at, _)| value_at(&self.args, at)?.as_str())
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("id", &self.id)
            .field("caller", &self.caller)
            .field("tool", self.name())
            .field("version", &self.version())
            .field("args", &self.redacted_args())
            .finish_non_exhaustive()
    }
}

impl PartialEq for Call {
    /// Tokens do not count: they are not part of what is asked for.
    fn eq(&self, other: &Call) -> bool {
        self.to_bytes() == other.to_bytes()
    }
}

/// Arguments, and what a call adds to them.
const STORED_BOUNDS: Bounds = Bounds {
    bytes: Bounds::CALL.bytes + (64 << 10),
    nodes: Bounds::CALL.nodes + 1000,
    ..Bounds::CALL
};

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    id: CallId,
    caller: Caller,
    tool: ToolName,
    version: Version,
    surface: Digest,
    args: Value,
    priority: Priority,
    #[serde(with = "units")]
    timeout: Span,
    key: Option<Key>,
    parent: Option<CallId>,
    after: Vec<CallId>,
}

fn wrong(tool: &Registered, faults: Vec<Fault>) -> CallError {
    CallError::Arguments { tool: tool.tool().name.clone(), faults }
}

fn timeout(tool: &Registered, wanted: Option<Span>) -> Result<Span, Fault> {
    let most = tool.tool().limits().timeout;
    match wanted {
        Some(wanted) if wanted > most => Err(Fault::new(
            "/timeout",
            format!("{wanted} is longer than the tool's limit"),
            "a request can only ask for less",
            format!("at most {most}"),
        )),
        wanted => Ok(wanted.unwrap_or(most)),
    }
}

/// What stands at a place. Unlike `Value::pointer`, it copies no part of the place: a policy asks for every
/// place of every call.
fn value_at<'a>(value: &'a Value, at: &str) -> Option<&'a Value> {
    if at.contains('~') {
        return value.pointer(at);
    }
    at.split('/').skip(1).try_fold(value, |value, part| match value {
        Value::Object(members) => members.get(part),
        Value::Array(items) => items.get(part.parse::<usize>().ok()?),
        _ => None,
    })
}

/// Whether a place is that of an argument, or in it.
fn is_in(at: &str, argument: &str) -> bool {
    let mut of_argument = String::new();
    push_key(&mut of_argument, argument);
    at.strip_prefix(&of_argument).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// A call comes after others, and not after itself.
fn check_order(
    id: CallId,
    parent: Option<CallId>,
    mut after: Vec<CallId>,
) -> Result<Vec<CallId>, Fault> {
    if after.len() > Request::AFTER_MOST {
        let what = format!("the call waits for {} others", after.len());
        let fix = format!("at most {}", Request::AFTER_MOST);
        return Err(Fault::new("/after", what, "everything has a most", fix));
    }
    if after.contains(&id) || parent == Some(id) {
        let what = "the call waits for itself";
        return Err(Fault::new("/after", what, "it would never begin", "name other calls"));
    }
    after.sort();
    after.dedup();
    Ok(after)
}
