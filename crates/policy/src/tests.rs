//! What the tests of this crate have in common: tools to call, and verdicts as one line of text.

mod cases;
mod connections;
mod default;
mod files;
mod laws;
mod settled;
mod tokens;
mod words;

use hotcell_request::{Arguments, Call, Label, Registry, Request, Tool, ToolName, Value};
use hotcell_types::{CallId, Caller, Door, Effect, Name};
use serde_json::json;

use crate::{Account, Facts, Loaded, Snapshot, Verdict, judge};

/// A tool of each kind that rules tell apart. All take the same arguments.
pub(crate) fn registry() -> Registry {
    let registry = Registry::new();
    for (name, effect) in [
        ("fs.write", Effect::Write),
        ("fs.patch", Effect::Write),
        ("fs.read", Effect::Read),
        ("math.add", Effect::Pure),
        ("shell.run", Effect::Execute),
        ("http.fetch", Effect::Network),
        ("policy.update", Effect::Write),
        ("other/fs.write", Effect::Write),
    ] {
        registry.register(tool(name, name, &[effect])).unwrap();
    }
    registry.register(tool("fs.copy", "fs.write", &[Effect::Read, Effect::Write])).unwrap();
    registry.register(tool("code_execute", "code.execute", &[Effect::Execute])).unwrap();
    registry
}

pub(crate) fn tool(name: &str, operation: &str, effects: &[Effect]) -> Tool {
    let place = |kind: &str| json!({"type": "string", "x-hotcell": kind});
    let tool = json!({
        "name": name, "version": "1.0.0", "title": "A tool", "description": "Does something.",
        "input": {"type": "object", "properties": {
            "path": place("path"),
            "paths": {"type": "array", "items": place("path")},
            "host": place("host"),
            "hosts": {"type": "array", "items": place("host")},
            "method": place("method"),
            "size": {"type": "integer"},
            "ratio": {"type": "number"},
            "text": {"type": "string"},
            "maybe": {"type": ["string", "null"]},
            "flag": {"type": "boolean"},
            "word": {"enum": ["one", "two", "three"]},
            "list": {"type": "array", "items": {"type": "integer"}},
            "deep": {"type": "object", "properties": {"a": {"$ref": "#/$defs/word"}},
                     "additionalProperties": false},
            "open": {"type": "object"},
        }, "$defs": {"word": {"type": "string"}}},
        "output": true, "effects": effects, "category": "test", "operation": operation,
    });
    Tool::from_json(tool.to_string().as_bytes()).unwrap()
}

pub(crate) fn call_of(registry: &Registry, name: &str, args: Value) -> Call {
    let request = Request::new(name.parse::<ToolName>().unwrap(), Arguments::Value(args));
    let caller = Caller::local(Name::LOCAL, Door::Cli);
    Call::new(request, caller, CallId::new(1, [0; 10]), registry).unwrap()
}

/// Registering tools takes longer than everything else.
pub(crate) fn shared() -> &'static Registry {
    static SHARED: std::sync::OnceLock<Registry> = std::sync::OnceLock::new();
    SHARED.get_or_init(registry)
}

pub(crate) fn call(name: &str, args: Value) -> Call {
    call_of(shared(), name, args)
}

pub(crate) fn loaded(text: &str) -> Loaded {
    Snapshot::load(text.as_bytes(), &shared().tools()).unwrap_or_else(|faults| {
        panic!("{}", faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
    })
}

pub(crate) fn policy(text: &str) -> Snapshot {
    loaded(text).snapshot
}

pub(crate) fn facts() -> Facts {
    Facts { now: 1_000, ..Facts::default() }
}

pub(crate) fn tag(name: &str) -> Label {
    name.parse().unwrap()
}

/// `decision [rules that spoke] why`
pub(crate) fn said(verdict: &Verdict<'_>) -> String {
    let line = |decision: &str, account: &Account<'_>| {
        format!("{decision} [{}] {}", account.rules().join(" "), account.reason())
    };
    match verdict {
        Verdict::Allow(permit) => line("allow", permit.account()),
        Verdict::Review(account) => line("review", account),
        Verdict::Deny(account) => line("deny", account),
        Verdict::Ask(account) => format!("ask [{}]", account.rules().join(" ")),
    }
}

pub(crate) fn verdict_of(text: &str, call: &Call, facts: &Facts) -> String {
    let snapshot = policy(text);
    said(&judge(&snapshot, call, facts))
}
