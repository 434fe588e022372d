//! A verdict on the usual path allocates nothing.

use allocation_counter::measure;
use hotcell_policy::{Facts, Snapshot, Verdict, judge};
use hotcell_request::{Arguments, Call, Registry, Request, Tool, ToolName};
use hotcell_types::{CallId, Caller, Door, Name};
use serde_json::json;

#[test]
fn a_verdict_on_the_usual_path_allocates_nothing() {
    let registry = Registry::new();
    let tool = json!({
        "name": "fs.write", "version": "1.0.0", "title": "A tool", "description": "Does something.",
        "input": {"type": "object", "properties": {
            "path": {"type": "string", "x-hotcell": "path"},
            "url": {"type": "string", "x-hotcell": "url"},
            "size": {"type": "integer"},
        }},
        "output": true, "effects": ["write"], "category": "test",
    });
    registry.register(Tool::from_json(tool.to_string().as_bytes()).unwrap()).unwrap();
    let text = "
rules:
  - { name: may, match: { operation: fs.write, path: ['src/**', '*.md'] }, action: allow }
  - { name: small, match: { path: ['src/*/x?.rs'], state: planning }, action: allow, when: args.size < 65536 }
  - { name: kernel, match: { path: ['src/kernel/**'] }, action: deny, except: [{ path: ['src/kernel/doc/**'] }] }
  - { name: hosts, match: { host: ['*.example.com'] }, action: require_review }
  - { name: strangers, match: { tag: [stranger] }, action: deny }
  - { name: run, match: { operation: code.execute }, action: allow }";
    let policy = Snapshot::load(text.as_bytes(), &registry.tools()).unwrap().snapshot;
    let facts = Facts { state: Some("planning".into()), ..Facts::default() };
    for (args, expected) in [
        (json!({"path": "src/a/xy.rs", "size": 10}), "allow"),
        (json!({"path": "src/kernel/a.rs", "size": 10}), "deny"),
        (json!({"path": "lib/a.rs"}), "deny"),
        (json!({"path": "README.md", "url": "https://api.example.com/x"}), "review"),
    ] {
        let request = Request::new("fs.write".parse::<ToolName>().unwrap(), Arguments::Value(args));
        let caller = Caller::local(Name::LOCAL, Door::Cli);
        let call = Call::new(request, caller, CallId::new(1, [0; 10]), &registry).unwrap();
        let mut said = "";
        let counted = measure(|| {
            said = match judge(&policy, &call, &facts) {
                Verdict::Allow(_) => "allow",
                Verdict::Review(_) => "review",
                Verdict::Deny(_) => "deny",
                Verdict::Ask(_) => "ask",
            };
        });
        assert_eq!((said, counted.count_total), (expected, 0), "{call:?}");
    }
}
