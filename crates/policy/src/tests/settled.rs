//! What was settled about a call, and what of it counts for what the call changes and finds.

use std::sync::Arc;

use hotcell_request::{Arguments, Call, Request, Value};
use hotcell_types::{CallId, Caller, Door, Name};
use serde_json::json;

use super::{call, facts, policy, said, shared};
use crate::{Constraints, Extension, Facts, Grant, Snapshot, Spoken, TokenStatus, Verdict, judge};

fn agreed(snapshot: &Snapshot, call: &Call) -> Facts {
    let grant = Grant {
        call: call.digest(),
        policy: snapshot.digest(),
        expires: 2_000,
        approver: "anna".into(),
    };
    Facts { grant: Some(grant), ..facts() }
}

fn change_by(caller: Caller, parent: &Call, args: Value) -> Call {
    let mut request = Request::new("fs.patch".parse().unwrap(), Arguments::Value(args));
    request.parent = Some(parent.id());
    Call::new(request, caller, CallId::new(2, [0; 10]), shared()).unwrap()
}

pub(super) fn change(parent: &Call, path: &str) -> Call {
    change_by(parent.caller().clone(), parent, json!({ "path": path }))
}

/// What is said of a change that a call made, which these facts allowed.
fn judged(snapshot: &Snapshot, by: &Call, with: &Facts, own: &[&str], change: &Call) -> String {
    let Verdict::Allow(permit) = judge(snapshot, by, with) else { panic!("{by:?}") };
    let settled = Some(Arc::new(permit.settles(snapshot, &facts(), own)));
    said(&judge(snapshot, change, &Facts { settled, ..facts() }))
}

const ASKED: &str = "
rules:
  - { name: kept, match: { path: ['kept/**'] }, action: deny, reason: kept }
  - { name: looked, match: { path: ['looked/**'] }, action: require_review, reason: look }
  - { name: sized, match: { operation: [shell.run, fs.patch] }, action: require_review, reason: sized, when: '!has(args.size) || args.size < 9' }
  - { name: writes, match: { effect: [write, execute] }, action: require_review, reason: it writes }
";

#[test]
fn who_agreed_because_a_rule_asked_is_not_asked_again_by_that_rule_and_is_by_any_other() {
    let snapshot = policy(&ASKED.replace("  - { name: sized", "  # - { name: sized"));
    let shell = call("shell.run", json!({}));
    let with = agreed(&snapshot, &shell);
    for (path, expected) in [
        ("a", "allow [writes grant] `anna` agreed to this call"),
        ("looked/a", "review [looked writes] look; it writes"),
        ("kept/a", "deny [kept writes] kept"),
        ("policy.yaml", "deny [protect-policy] the policy is changed by `policy.update` only"),
    ] {
        assert_eq!(judged(&snapshot, &shell, &with, &[], &change(&shell, path)), expected);
    }
    // A path that the call named, or below one, was looked at with it.
    let named = call("fs.patch", json!({"paths": ["looked/a", "looked/dir", "b"]}));
    let with = agreed(&snapshot, &named);
    for (path, is_answered) in
        [("looked/a", true), ("looked/dir/x", true), ("looked/ab", false), ("looked/c", false)]
    {
        let said = judged(&snapshot, &named, &with, &[], &change(&named, path));
        assert_eq!(said.starts_with("allow"), is_answered, "{path}: {said}");
    }
    // A rule that looks at arguments looked at those of the call.
    let snapshot = policy(ASKED);
    let with = agreed(&snapshot, &shell);
    let said = judged(&snapshot, &shell, &with, &[], &change(&shell, "a"));
    assert_eq!(said, "review [sized writes] sized; it writes");
}

#[test]
fn it_counts_for_changes_of_this_very_call_under_this_very_policy() {
    let snapshot = policy("rules: [{ name: writes, match: {}, action: require_review }]");
    let shell = call("shell.run", json!({}));
    let with = agreed(&snapshot, &shell);
    let Verdict::Allow(permit) = judge(&snapshot, &shell, &with) else { panic!() };
    let settled = Some(Arc::new(permit.settles(&snapshot, &facts(), &[])));
    let with = Facts { settled, ..facts() };
    let is_allowed = |snapshot: &Snapshot, call: &Call| {
        matches!(judge(snapshot, call, &with), Verdict::Allow(_))
    };
    assert!(is_allowed(&snapshot, &change(&shell, "a")));
    assert!(!is_allowed(&snapshot, &call("fs.patch", json!({"path": "a"}))), "of no call");
    let other = Caller::local("other".parse::<Name>().unwrap(), Door::Cli);
    assert!(!is_allowed(&snapshot, &change_by(other, &shell, json!({"path": "a"}))));
    let next = snapshot.clone().as_version(2, &Default::default());
    assert!(!is_allowed(&next, &change(&shell, "a")));
}

#[test]
fn silence_is_settled_by_who_agreed_in_silence_and_what_a_tool_does_by_itself_by_whoever_allowed_it()
 {
    let silent = policy("rules: []");
    let shell = call("shell.run", json!({}));
    let allowed = "allow [grant] `anna` agreed to this call";
    assert_eq!(
        judged(&silent, &shell, &agreed(&silent, &shell), &[], &change(&shell, "a")),
        allowed
    );
    let rules =
        "rules: [{ name: shell, match: { operation: shell.run }, action: ACTION, reason: r }]";
    let asked = policy(&rules.replace("ACTION", "require_review"));
    let nobody = "deny [] no rule allows it";
    let with = agreed(&asked, &shell);
    assert_eq!(judged(&asked, &shell, &with, &[], &change(&shell, "a")), nobody);
    let plain = policy(&rules.replace("ACTION", "allow"));
    assert_eq!(judged(&plain, &shell, &facts(), &[], &change(&shell, "a")), nobody);
    for (path, expected) in
        [(".git/HEAD", "allow [shell] r"), (".gitx", nobody), ("a/.git/HEAD", nobody)]
    {
        assert_eq!(judged(&plain, &shell, &facts(), &[".git"], &change(&shell, path)), expected);
    }
    // What somebody else would execute is denied in there as well.
    let said = judged(&plain, &shell, &facts(), &[".git"], &change(&shell, ".git/hooks/x"));
    assert!(said.starts_with("deny [nothing-that-starts-itself]"), "{said}");
}

#[test]
fn a_token_that_a_rule_wanted_is_not_wanted_again_by_that_rule() {
    let snapshot = policy(
        "
rules:
  - { name: both, match: { operation: [shell.run, fs.patch], }, action: allow, constraints: { token: required, max_file_size: 1KiB } }
  - { name: more, match: { operation: fs.patch, path: ['more/**'] }, action: require_review }",
    );
    let shell = call("shell.run", json!({}));
    let with = Facts { token: TokenStatus::Valid(Constraints::default()), ..facts() };
    let change = |path: &str| change(&shell, path);
    assert!(judged(&snapshot, &shell, &with, &[], &change("a")).starts_with("allow [both]"));
    assert!(
        judged(&snapshot, &shell, &with, &[], &change("more/a")).starts_with("review [both more]")
    );
    let Verdict::Allow(permit) = judge(&snapshot, &shell, &with) else { panic!() };
    let settled = Some(Arc::new(permit.settles(&snapshot, &facts(), &[])));
    let (change, with) = (change("a"), Facts { settled, ..facts() });
    let Verdict::Allow(permit) = judge(&snapshot, &change, &with) else { panic!() };
    assert!(permit.constraints().max_file_size.is_some(), "what it is bound to holds as well");
    let only = policy(
        "rules: [{ name: shell, match: { operation: shell.run }, action: allow, constraints: { token: required } }, \
         { name: patch, match: { operation: fs.patch }, action: allow, constraints: { token: required } }]",
    );
    let with = Facts { token: TokenStatus::Valid(Constraints::default()), ..facts() };
    assert!(judged(&only, &shell, &with, &[], &change).starts_with("deny []"));
}

#[test]
fn who_agreed_to_a_search_agreed_to_nothing_that_another_rule_wants_looked_at() {
    let snapshot = policy(
        "
rules:
  - { name: reads, match: { operation: fs.read }, action: require_review }
  - { name: secrets, match: { path: ['secrets/**'] }, action: require_review }
  - { name: kept, match: { path: ['kept/**'] }, action: deny }",
    );
    let none = Extension::NotConfigured;
    let search = call("fs.read", json!({"path": "."}));
    let with = agreed(&snapshot, &search);
    for (path, shown) in [("a", true), ("secrets/a", false), ("kept/a", false)] {
        assert_eq!(snapshot.shows(&search, &with, path, &none), shown, "{path}");
    }
    assert!(!snapshot.shows(&search, &facts(), "a", &none), "nobody agreed");
    let there = call("fs.read", json!({"path": "secrets"}));
    let with = agreed(&snapshot, &there);
    assert!(
        snapshot.shows(&there, &with, "secrets/a", &none),
        "the rule was about what leads there"
    );
    let there = call("fs.read", json!({"path": "secrets/b"}));
    let with = agreed(&snapshot, &there);
    assert!(snapshot.shows(&there, &with, "secrets/b/c", &none));
    assert!(!snapshot.shows(&there, &with, "secrets/c", &none));
    // Silence, where there was silence.
    let silent =
        policy("rules: [{ name: look, match: { path: ['looked/**'] }, action: require_review }]");
    let with = agreed(&silent, &search);
    assert!(
        silent.shows(&search, &with, "a", &none)
            && !silent.shows(&search, &with, "looked/a", &none)
    );
    let there = call("fs.read", json!({"path": "looked/x"}));
    assert!(!silent.shows(&there, &agreed(&silent, &there), "a", &none));
    // What an extension says of the call is said of the call, and of a path of that path.
    let extended = policy("extensions: [a.ts]\nrules: []");
    let ext = |decision| Extension::Answered(vec![Spoken::new("a.ts", decision, "")]);
    let (allow, review) = (hotcell_types::Decision::Allow, hotcell_types::Decision::Review);
    let of_call = Facts { extension: ext(allow), ..agreed(&extended, &search) };
    assert!(!extended.shows(&search, &of_call, "a", &ext(review)));
    let of_call = Facts { extension: ext(review), ..of_call };
    assert!(extended.shows(&search, &of_call, "a", &ext(review)));
}
