//! What people are told: hints, explanations, and policies that are learned.

use serde_json::json;

use super::{call, facts, policy, said};
use crate::{Verdict, Wanted, judge, learn};

const POLICY: &str = "
rules:
  - { name: may, match: { operation: fs.write, path: ['src/**'] }, action: allow, reason: may }
  - { name: not, match: { operation: fs.write, path: ['**/*.key'] }, action: deny, reason: not, except: [{ path: [/a.key] }] }
  - { name: ask, match: { path: ['docs/**'] }, action: require_review, reason: ask }
  - { name: small, match: { tool: fs.write, path: ['small/**'] }, action: allow, when: args.size < 5 }
  - { name: tok, match: { operation: fs.write, path: ['tok/**'] }, action: allow, constraints: { token: required } }
  - { name: other, match: { operation: fs.read }, action: allow }";

#[test]
fn a_refusal_says_what_would_allow_it() {
    for (args, expected) in [
        (json!({"path": "src/a"}), ""),
        (
            json!({"path": "lib/a b", "host": "example.com", "method": "GET"}),
            "- { name: allow-fs.write, match: { operation: fs.write, path: [\"/lib/a\\\\ b\"], host: \
             [\"example.com\"], method: [\"GET\"] }, action: allow }",
        ),
        (
            json!({"path": "src/x.key"}),
            "the rule `not` denies it; it would not with this among its `except`: - { operation: fs.write, \
             path: [\"/src/x.key\"] }",
        ),
        (json!({"path": "docs/a"}), "somebody who may has to agree to this call"),
        (json!({"path": "tok/a"}), "a token for this call: the rule `tok` allows it with one"),
        (
            json!({"path": "policy.yaml"}),
            "`protect-policy` denies it, and nothing overrides that: the policy is changed by `policy.update` only",
        ),
        (
            json!({"path": "small/a"}),
            "`when` of the rule `small` has no value: there is no `size`; correct `when` of the rule `small`",
        ),
    ] {
        let (policy, call) = (policy(POLICY), call("fs.write", args));
        let verdict = judge(&policy, &call, &facts());
        assert_eq!(verdict.would_allow(&policy, &call), expected, "{call:?}");
    }
}

/// Where nothing would be left that speaks for a call, taking the deny away is half of it.
#[test]
fn what_would_allow_a_call_that_is_denied_and_that_nothing_allows_is_both() {
    let except = "{ operation: fs.write, path: [\"/lib/x.key\"] }";
    let rule = "- { name: allow-fs.write, match: { operation: fs.write, path: [\"/lib/x.key\"] }, action: allow }";
    let one = call("fs.write", json!({"path": "lib/x.key"}));
    let snapshot = policy(POLICY);
    let verdict = judge(&snapshot, &one, &facts());
    assert_eq!(
        verdict.would_allow(&snapshot, &one),
        format!(
            "the rule `not` denies it; it would not with this among its `except`: - {except}; and nothing allows \
             it then; this would: {rule}"
        )
    );
    // Neither is enough alone; both are.
    let freed =
        POLICY.replace("[{ path: [/a.key] }]", &format!("[{{ path: [/a.key] }}, {except}]"));
    for (text, expected) in [
        (freed.clone(), "deny [] no rule allows it"),
        (format!("{POLICY}\n  {rule}"), "deny [allow-fs.write not] not"),
        (
            format!("{freed}\n  {rule}"),
            "allow [allow-fs.write] the rule `allow-fs.write` allows it",
        ),
    ] {
        assert_eq!(said(&judge(&policy(&text), &one, &facts())), expected);
    }
    let (snapshot, one) = (policy(POLICY), call("fs.write", json!({"path": "tok/x.key"})));
    let told = judge(&snapshot, &one, &facts()).would_allow(&snapshot, &one);
    assert!(
        told.ends_with("; and then a token for this call: the rule `tok` allows it with one"),
        "{told}"
    );
}

#[test]
fn the_rule_that_is_proposed_has_a_name_that_the_policy_does_not_have() {
    let text = "
rules:
  - { name: allow-fs.write, match: { operation: fs.read }, action: allow }
  - { name: allow-fs.write-2, match: { operation: fs.read }, action: allow }";
    let one = call("fs.write", json!({"path": "a"}));
    let snapshot = policy(text);
    let rule = judge(&snapshot, &one, &facts()).would_allow(&snapshot, &one);
    assert!(rule.starts_with("- { name: allow-fs.write-3, "), "{rule}");
    let with = policy(&format!("{text}\n  {rule}"));
    assert!(matches!(judge(&with, &one, &facts()), Verdict::Allow(_)));
}

#[test]
fn an_explanation_says_why_each_rule_spoke_or_did_not() {
    let policy = policy(POLICY);
    let one = call("fs.write", json!({"path": "small/a.key", "size": 9}));
    let expected = "\
fs.write: deny: not
  ask (review): abstains: `path` does not hold
  may (allow): abstains: `path` does not hold
  not (deny): speaks
  small (allow): abstains: `when` is false
  tok (allow): abstains: `path` does not hold
";
    assert_eq!(policy.explain(&one, &facts()).to_string(), expected);
    let other = call("fs.write", json!({"path": "a.key"}));
    let explained = policy.explain(&other, &facts()).to_string();
    assert!(explained.contains("not (deny): abstains: item 1 of `except` holds"), "{explained}");
    let hooks = call("fs.write", json!({"path": "tok/.git/config"}));
    let explained = policy.explain(&hooks, &facts()).to_string();
    assert!(explained.contains("nothing-that-starts-itself (deny): speaks"), "{explained}");
    assert!(explained.contains("tok (allow): abstains: it wants a token"), "{explained}");
}

#[test]
fn what_is_learned_allows_what_was_asked_for_and_little_else() {
    let calls = [
        call("fs.write", json!({"path": "src/a.rs"})),
        call("fs.write", json!({"path": "src/b.rs"})),
        call("fs.write", json!({"path": "src/[c].rs"})),
        call("fs.write", json!({"path": "docs/one.md"})),
        call("fs.write", json!({"path": "x"})),
        call("fs.write", json!({"path": "y"})),
        call("fs.write", json!({"path": "z"})),
        call("fs.write", json!({"size": 1})),
        call("fs.copy", json!({"paths": ["a/b", "c/d"]})),
        call("http.fetch", json!({"host": "example.com", "method": "GET"})),
        call("other/fs.write", json!({"path": "q"})),
    ];
    let wanted: Vec<Wanted> = calls.iter().map(Wanted::from).collect();
    let text = learn(&wanted);
    let expected = r#"rules:
  - name: learned-fs.copy
    match: { operation: fs.write, tool: fs.copy, path: ["/a/b", "/c/d"] }
    when: size(hosts) == 0
    action: allow
  - name: learned-fs.write
    match: { operation: fs.write }
    when: size(paths) == 0 && size(hosts) == 0
    action: allow
  - name: learned-fs.write-2
    match: { operation: fs.write, path: ["/x", "/y", "/z", "/docs/one.md", "/src/*"] }
    when: size(hosts) == 0
    action: allow
  - name: learned-other.fs.write
    match: { operation: other/fs.write, path: ["/q"] }
    when: size(hosts) == 0
    action: allow
  - name: learned-http.fetch
    match: { operation: http.fetch, host: ["example.com"], method: ["GET"] }
    when: size(paths) == 0
    action: allow
"#;
    assert_eq!(text, expected);
    let learned = policy(&text);
    for call in &calls {
        let verdict = judge(&learned, call, &facts());
        assert!(matches!(verdict, Verdict::Allow(_)), "{call:?}: {}", said(&verdict));
    }
    assert_eq!(learn(&[]), "rules: []\n");
    policy(&learn(&[]));
}
