//! Rules of one operation that differ by their paths, and a call that one of them allows.

use hotcell_policy::{Facts, Snapshot, Verdict, judge};
use hotcell_request::{Arguments, Call, Registry, Request, Tool};
use hotcell_types::{CallId, Caller, Door, Name};
use serde_json::json;

use crate::Failure;

/// The path of the call. Rule 7 is about it.
pub(crate) const PATH: &str = "m7/deep/file.rs";

fn registry() -> Result<Registry, Failure> {
    let registry = Registry::new();
    let tool = json!({
        "name": "fs.write", "version": "1.0.0", "title": "Write", "description": "Writes a file.",
        "input": {"type": "object", "properties": {
            "path": {"type": "string", "x-hotcell": "path"}, "size": {"type": "integer"},
        }},
        "output": true, "effects": ["write"], "category": "files",
    });
    registry.register(Tool::from_json(tool.to_string().as_bytes()).map_err(|_| "no tool")?)?;
    Ok(registry)
}

pub(crate) fn call() -> Result<Call, Failure> {
    let args = json!({"path": PATH, "size": 100});
    let request = Request::new("fs.write".parse()?, Arguments::Value(args));
    let caller = Caller::local(Name::LOCAL, Door::Cli);
    Ok(Call::new(request, caller, CallId::new(1, [0; 10]), &registry()?)?)
}

pub(crate) fn facts() -> Result<Facts, Failure> {
    Ok(Facts { tags: vec!["agent".parse()?], ..Facts::default() })
}

/// One rule in ten denies, and none of these is about the call.
pub(crate) fn policy(size: usize, with_when: bool) -> Result<Snapshot, Failure> {
    // As short as it can be: ten thousand of them fit into a file.
    let mut text = String::from("rules:\n");
    for number in 0..size {
        let action = if number % 10 == 9 { "deny" } else { "allow" };
        let when = if with_when { ",when: args.size<999" } else { "" };
        text += &format!(
            "- {{name: r{number},match: {{operation: fs.write,tag: agent,path: m{number}/**}},action: {action}{when}}}\n"
        );
    }
    let loaded = Snapshot::load(text.as_bytes(), &registry()?.tools());
    Ok(loaded.map_err(|faults| format!("{faults:?}"))?.snapshot)
}

pub(crate) fn allows(policy: &Snapshot, call: &Call, facts: &Facts) -> bool {
    matches!(judge(policy, call, facts), Verdict::Allow(_))
}
