//! The policy of a home without one.

use crate::{Facts, Snapshot, Verdict, judge};
use hotcell_request::{Arguments, Call, Registry, Request, Tool, ToolName};
use hotcell_types::{CallId, Caller, Door, Effect, Name};
use serde_json::json;

fn call(name: &str, effects: &[Effect]) -> Call {
    let registry = Registry::new();
    let tool = json!({
        "name": name, "version": "1.0.0", "title": "A tool", "description": "Does something.",
        "input": {"type": "object"}, "output": true,
        "effects": effects, "category": "test",
        "operation": if name == "code_execute" { "code.execute" } else { name },
    });
    registry.register(Tool::from_json(tool.to_string().as_bytes()).unwrap()).unwrap();
    let request = Request::new(name.parse::<ToolName>().unwrap(), Arguments::Value(json!({})));
    let caller = Caller::local(Name::LOCAL, Door::Cli);
    Call::new(request, caller, CallId::new(1, [0; 10]), &registry).unwrap()
}

fn check(name: &str, effects: &[Effect], expected: &str) {
    let call = call(name, effects);
    let verdict = judge(&Snapshot::built_in(), &call, &Facts::default());
    let said = match &verdict {
        Verdict::Allow(permit) => {
            assert!(std::ptr::eq(permit.call(), &call), "the value judged is the value executed");
            format!("allow: {}", permit.account().reason())
        }
        Verdict::Review(account) => format!("review: {}", account.reason()),
        Verdict::Deny(account) => format!("deny: {}", account.reason()),
    };
    assert_eq!(said, expected, "{name} {effects:?}");
}

#[test]
fn what_is_pure_or_only_reads_is_allowed_and_so_is_code_in_a_sandbox() {
    check("math.add", &[Effect::Pure], "allow: it depends on its arguments alone");
    check("fs.read", &[Effect::Read], "allow: it only reads");
    let code =
        "allow: it runs in a sandbox without a network, and only files that it made come back";
    check("code_execute", &[Effect::Execute], code);
}

#[test]
fn everything_else_is_refused() {
    for (name, effects) in [
        ("fs.write", &[Effect::Write][..]),
        ("fs.change", &[Effect::Read, Effect::Write]),
        ("shell.run", &[Effect::Execute]),
        ("http_fetch", &[Effect::Network]),
        ("http_read", &[Effect::Read, Effect::Network]),
    ] {
        check(name, effects, "deny: no rule allows it");
    }
}
