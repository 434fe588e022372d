//! The policy of a home without one.

use hotcell_request::Registry;
use hotcell_types::Effect;
use serde_json::json;

use super::{call_of, said, tool};
use crate::{Facts, Snapshot, Verdict, judge};

fn check(snapshot: &Snapshot, name: &str, effects: &[Effect], path: Option<&str>, expected: &str) {
    let registry = Registry::new();
    let operation = if name == "code_execute" { "code.execute" } else { name };
    registry.register(tool(name, operation, effects)).unwrap();
    let args = path.map_or(json!({}), |path| json!({"path": path}));
    let call = call_of(&registry, name, args);
    let verdict = judge(snapshot, &call, &Facts::default());
    if let Verdict::Allow(permit) = &verdict {
        assert!(std::ptr::eq(permit.call(), &call), "the value judged is the value executed");
    }
    assert_eq!(said(&verdict), expected, "{name} {effects:?}");
}

#[test]
fn what_is_pure_or_only_reads_is_allowed_and_so_is_code_in_a_sandbox() {
    let policy = Snapshot::built_in();
    assert_eq!(policy.name(), "built-in 1");
    let pure = "allow [pure-tools] it depends on its arguments alone";
    check(&policy, "math.add", &[Effect::Pure], None, pure);
    check(&policy, "fs.read", &[Effect::Read], Some("a"), "allow [read-tools] it only reads");
    let code = "allow [code-in-a-sandbox] it runs in a sandbox, reaches only hosts that a rule names, and only \
                files that it made come back";
    check(&policy, "code_execute", &[Effect::Execute], None, code);
}

#[test]
fn everything_else_is_refused() {
    for (name, effects) in [
        ("fs.write", &[Effect::Write][..]),
        ("fs.change", &[Effect::Read, Effect::Write]),
        ("shell.run", &[Effect::Execute]),
        ("other/code.execute", &[Effect::Execute]),
        ("http_fetch", &[Effect::Network]),
        ("http_read", &[Effect::Read, Effect::Network]),
    ] {
        check(&Snapshot::built_in(), name, effects, None, "deny [] no rule allows it");
    }
}

#[test]
fn with_writes_what_a_run_changed_is_brought_back_but_not_what_starts_itself() {
    let policy = Snapshot::with_workspace_writes();
    assert_eq!(policy.name(), "built-in 1, with writes");
    let yes =
        "allow [workspace-writes] it works on a copy, and what it changed is judged path by path";
    check(&policy, "fs.write", &[Effect::Write], Some("src/a"), yes);
    check(&policy, "run", &[Effect::Write, Effect::Execute], None, yes);
    check(&policy, "run", &[Effect::Write, Effect::Execute, Effect::Read], None, yes);
    for effects in [&[Effect::Execute][..], &[Effect::Write, Effect::Network], &[Effect::Network]] {
        check(&policy, "run", effects, None, "deny [] no rule allows it");
    }
    let starts =
        "deny [nothing-that-starts-itself] somebody else would execute it without being asked";
    check(&policy, "fs.write", &[Effect::Write], Some("sub/.git/hooks/pre-commit"), starts);
    check(&policy, "fs.write", &[Effect::Write], Some(".VSCode/tasks.json"), starts);
}

#[test]
fn embedded_policies_are_read() {
    assert_eq!(Snapshot::built_in().rules().len(), 5);
    assert_eq!(Snapshot::with_workspace_writes().rules().len(), 6);
    assert_ne!(Snapshot::built_in().digest(), Snapshot::with_workspace_writes().digest());
    assert!(Snapshot::built_in().built_in_rules().count() <= 10);
}
