//! The 26 cases by their numbers, and the rows of the catalogue of attacks that are about rules.

use hotcell_request::{Call, Value};
use hotcell_types::Decision;
use serde_json::json;

use super::{call, facts, policy, said, shared, tag, verdict_of};
use crate::built_in::BuiltIn;
use crate::{Constraints, Extension, Facts, Protected, Snapshot, Spoken, TokenStatus, judge};

const ALLOW: &str = "
rules:
  - { name: may, match: { operation: fs.write }, action: allow, reason: may }";
const BOTH: &str = "
rules:
  - { name: may, match: { operation: fs.write }, action: allow, reason: may }
  - { name: not, match: { operation: fs.write }, action: deny, reason: not }";
const REVIEW: &str = "
rules:
  - { name: may, match: { operation: fs.write }, action: allow, reason: may }
  - { name: ask, match: { operation: fs.write }, action: require_review, reason: ask }";
const ASKING: &str = "
extensions: [mine.ts]
rules:
  - { name: may, match: { operation: fs.write }, action: allow, reason: may }
  - { name: ask, match: { operation: fs.write }, action: require_review, reason: ask }";
const REVIEWS: &str = "
rules:
  - { name: ask-one, match: { operation: fs.write }, action: require_review, reason: one }
  - { name: ask-two, match: { path: ['src/**'] }, action: require_review, reason: two }";
const EXCEPT: &str = "
rules:
  - name: ask
    match: { operation: fs.write }
    action: require_review
    reason: ask
    except: [{ path: ['docs/**'] }, { path: ['src/gen/**'] }]";
const ALLOWS: &str = "
rules:
  - { name: a, match: { operation: fs.write }, action: allow, reason: one }
  - { name: b, match: { path: ['src/**'] }, action: allow, reason: two }";
const PASS: &str = "
rules:
  - { name: may, match: { operation: fs.write }, action: allow, except: [{ path: ['src/**'] }] }";
const EMPTY_PATH: &str = "
rules:
  - { name: may, match: { operation: fs.write, path: [] }, action: allow }";
const IDENTICAL: &str = "
rules:
  - { name: may, match: { path: ['src/**'] }, action: allow, except: [{ path: ['src/**'] }] }";
const ON_SRC: &str = "
rules:
  - { name: may, match: { operation: fs.write, path: ['src/**'] }, action: allow, reason: may }";

fn valid() -> Facts {
    Facts { token: TokenStatus::Valid(Constraints::default()), ..facts() }
}

fn invalid(why: &str) -> Facts {
    Facts { token: TokenStatus::Invalid(why.into()), ..facts() }
}

fn answered(spoken: &[(&'static str, Decision)]) -> Facts {
    let spoken =
        spoken.iter().map(|(rule, decision)| Spoken::new(*rule, *decision, "because")).collect();
    Facts { extension: Extension::Answered(spoken), ..facts() }
}

fn write(path: &str) -> (&'static str, Value) {
    ("fs.write", json!({"path": path}))
}

/// Whether other rules than ours are built in, and those of the file.
type Layers = (Option<&'static [BuiltIn]>, &'static str);

fn ours(text: &'static str) -> Layers {
    (None, text)
}

/// With another built-in layer, which is what only a test can have.
fn with(built_in: &'static [BuiltIn], text: &'static str) -> Layers {
    (Some(built_in), text)
}

/// Ours has no rule that allows.
static ALWAYS: &[BuiltIn] =
    &[BuiltIn { name: "always", reason: "always", decision: Decision::Allow, speaks: |_, _| true }];

/// Number, rules, call, facts, and what is said.
type Row = (&'static str, Layers, (&'static str, Value), Facts, &'static str);

/// As the engine has it: the clock is read once. Where the extension is asked, time goes by until it answers, and
/// nothing but its answer is another fact then.
fn evaluated(policy: &Snapshot, call: &Call, facts: &Facts) -> String {
    if let Extension::Answered(_) = facts.extension {
        let asked = Facts { extension: Extension::NotAsked, ..facts.clone() };
        let first = said(&judge(policy, call, &asked));
        let is_over = first.starts_with("deny") || first.contains("[token]");
        let is_asked = first.starts_with("ask ") || policy.extensions().is_empty();
        assert!(is_over || is_asked, "{first}");
    }
    said(&judge(policy, call, facts))
}

/// Somebody agreed to exactly this call, until 2000, and the extension allows it as well.
fn granted(text: &str, now: i64) -> Facts {
    let (name, args) = write("src/a.rs");
    let grant = crate::Grant {
        call: call(name, args).digest(),
        policy: policy(text).digest(),
        expires: 2_000,
        approver: "anna".into(),
    };
    Facts { now, grant: Some(grant), ..answered(&[("ext", Decision::Allow)]) }
}

#[test]
fn the_26_cases() {
    let src = || write("src/a.rs");
    let ext_deny = answered(&[("ext", Decision::Deny)]);
    let ext_allow = answered(&[("ext", Decision::Allow)]);
    let crash = Facts { extension: Extension::Failed("it ended".into()), ..facts() };
    let rows: Vec<Row> = vec![
        (
            "1",
            ours(ON_SRC),
            ("fs.read", json!({"path": "src/a"})),
            facts(),
            "deny [] no rule allows it",
        ),
        ("2", ours(PASS), src(), facts(), "deny [] no rule allows it"),
        ("3", ours(BOTH), src(), facts(), "deny [may not] not"),
        ("4", ours(REVIEW), src(), facts(), "review [ask may] ask"),
        ("5", with(ALWAYS, ""), src(), ext_deny.clone(), "deny [always ext] because"),
        ("5 without the extension", with(ALWAYS, ""), src(), facts(), "allow [always] always"),
        ("5 in the rules", ours(ALLOW), src(), ext_deny, "deny [may ext] because"),
        ("6", ours(EXCEPT), write("docs/a"), facts(), "deny [] no rule allows it"),
        (
            "7",
            ours(ALLOW),
            write("x/policy.yaml"),
            valid(),
            "deny [protect-policy] the policy is changed by `policy.update` only",
        ),
        (
            "8",
            ours(BOTH),
            src(),
            Facts { extension: Extension::Failed("x".into()), ..valid() },
            "allow [token] its token allows it",
        ),
        ("9", ours(ALLOW), src(), invalid("it is expired"), "allow [may] may"),
        (
            "9 without a rule",
            ours(ON_SRC),
            write("x"),
            invalid("it is expired"),
            "deny [] no rule allows it; its token does not count: it is expired",
        ),
        ("10", ours(REVIEWS), src(), facts(), "review [ask-one ask-two] one; two"),
        (
            "11",
            ours(BOTH),
            src(),
            Facts { extension: Extension::NotAsked, ..facts() },
            "deny [may not] not",
        ),
        ("12", ours(ON_SRC), write("docs/a"), facts(), "deny [] no rule allows it"),
        ("13", ours(EXCEPT), write("lib/a"), facts(), "review [ask] ask"),
        ("14", ours(EXCEPT), write("src/gen/a"), facts(), "deny [] no rule allows it"),
        ("15", ours(EXCEPT), write("src/a"), facts(), "review [ask] ask"),
        ("16", ours(ALLOWS), src(), facts(), "allow [a b] one; two"),
        ("17", ours(ALLOW), src(), ext_allow, "allow [may ext] may; because"),
        ("18", with(&[], ALLOW), write("policy.yaml"), facts(), "allow [may] may"),
        ("18 without rules", with(&[], ""), src(), facts(), "deny [] no rule allows it"),
        ("18 with a token", with(&[], ""), src(), valid(), "allow [token] its token allows it"),
        ("19", ours(""), src(), facts(), "deny [] no rule allows it"),
        (
            "19 built in",
            ours("# nothing\n"),
            write("hotcell.db"),
            facts(),
            "deny [protect-audit] the record is written by hotcell alone",
        ),
        (
            "20",
            ours(ALLOW),
            src(),
            crash,
            "deny [may extension] the extension cannot be asked: it ended",
        ),
        (
            "21",
            ours(ON_SRC),
            write("x"),
            invalid("all its operations are used"),
            "deny [] no rule allows it; its token does not count: all its operations are used",
        ),
        // It began in time, and is over when the extension has answered; or it began a moment later.
        (
            "22",
            ours(ASKING),
            src(),
            granted(ASKING, 1_999),
            "allow [ask may ext grant] may; because; `anna` agreed to this call",
        ),
        ("22 later", ours(ASKING), src(), granted(ASKING, 2_000), "review [ask may ext] ask"),
        (
            "23",
            ours(ON_SRC),
            write("x"),
            invalid("it is another sandbox's"),
            "deny [] no rule allows it; its token does not count: it is another sandbox's",
        ),
        ("24", ours(ALLOWS), ("shell.run", json!({})), facts(), "deny [] no rule allows it"),
        ("25", ours(EMPTY_PATH), src(), facts(), "deny [] no rule allows it"),
        ("26", ours(IDENTICAL), src(), facts(), "deny [] no rule allows it"),
    ];
    let has_row = |number: usize| {
        let is_it = |row: &Row| row.0.split(' ').next() == Some(&number.to_string());
        rows.iter().any(is_it)
    };
    assert!((1..=26).all(has_row));
    for (number, (built_in, text), (name, args), facts, expected) in rows {
        let policy = match built_in {
            Some(built_in) => Snapshot::with_built_in(&[text.as_bytes()], built_in),
            None => policy(text),
        };
        assert_eq!(evaluated(&policy, &call(name, args), &facts), expected, "case {number}");
    }
    assert_eq!(
        super::loaded(EMPTY_PATH).warnings[0].to_string(),
        "line 3, column 54: this list of paths is empty: the condition never holds"
    );
    assert_eq!(
        super::loaded(IDENTICAL).warnings[0].to_string(),
        "line 3, column 71: this item of `except` is the same as `match`: the rule never speaks"
    );
}

#[test]
fn what_decides_and_what_remembers_is_protected_at_any_depth_and_in_any_spelling() {
    let protected = Protected {
        bootstrap: vec!["bootstrap.sh".into()],
        kernel: vec!["hotcell-bin".into()],
        ..Protected::default()
    };
    let text = b"rules: [{ name: all, match: {}, action: allow, reason: all }]";
    let policy = Snapshot::load_protecting(text, &shared().tools(), protected).unwrap().snapshot;
    for (name, path, expected) in [
        ("fs.write", "policy.yaml", "deny [protect-policy"),
        ("fs.write", "a/b/Policy.YAML", "deny [protect-policy"),
        ("fs.write", "policy.yaml.", "deny [protect-policy"),
        ("fs.write", "policy.yaml::$DATA", "deny [protect-policy"),
        ("fs.write", "pol\u{200c}icy.yaml", "deny [protect-policy"),
        ("fs.patch", "policy.yaml", "deny [protect-policy"),
        ("fs.copy", "policy.yaml", "deny [protect-policy"),
        ("other/fs.write", "policy.yaml", "deny [protect-policy"),
        ("fs.read", "policy.yaml", "allow [all"),
        ("fs.write", "policy.yaml.txt", "allow [all"),
        ("fs.write", "my-policy.yaml", "allow [all"),
        ("fs.write", "x/hotcell.db", "deny [protect-audit"),
        ("fs.write", "hotcell.db-wal", "deny [protect-audit"),
        ("fs.write", "anchor.log", "deny [protect-audit"),
        ("fs.write", "state.db", "deny [protect-state"),
        ("fs.write", "x/bootstrap.sh", "review [protect-bootstrap all]"),
        ("fs.write", "hotcell-bin/x", "review [protect-kernel all]"),
        ("policy.update", "x", "review [review-policy-update all]"),
        ("fs.write", "x/.git/config", "deny [nothing-that-starts-itself"),
    ] {
        let call = call(name, json!({"path": path}));
        let said = said(&judge(&policy, &call, &facts()));
        assert!(said.starts_with(expected), "{name} {path}: {said}");
        // Case 7: a token does not help against a built-in rule.
        let with_token = super::said(&judge(&policy, &call, &valid()));
        let decision = expected.split(' ').next().unwrap();
        assert!(with_token.starts_with(decision), "{name} {path}: {with_token}");
    }
}

#[test]
fn a_review_of_one_path_does_not_speak_for_another() {
    let text =
        "rules: [{ name: ask, match: { path: ['docs/**'] }, action: require_review, reason: ask }]";
    for (name, paths, expected) in [
        ("fs.write", json!(["docs/a", "docs/b"]), "review [ask] ask"),
        ("fs.write", json!(["docs/a", "src/b"]), "deny [ask] no rule allows it"),
        (
            "policy.update",
            json!([]),
            "review [review-policy-update] it would change what is allowed",
        ),
        ("policy.update", json!(["a", "b"]), "deny [review-policy-update] no rule allows it"),
    ] {
        let call = call(name, json!({"paths": paths}));
        assert_eq!(verdict_of(text, &call, &facts()), expected, "{name} {paths}");
    }
}

#[test]
fn only_a_grant_for_exactly_this_call_and_policy_makes_an_allow_of_a_review_or_of_silence() {
    use crate::Grant;
    let policy = policy(REVIEW);
    let (one, other) =
        (call("fs.write", json!({"path": "a"})), call("fs.write", json!({"path": "b"})));
    let grant = Grant {
        call: one.digest(),
        policy: policy.digest(),
        expires: 2000,
        approver: "anna".into(),
    };
    let with = |grant: &Grant, now| Facts { now, grant: Some(grant.clone()), ..facts() };
    let judged = |call, facts: &Facts| said(&judge(&policy, call, facts));
    assert_eq!(
        judged(&one, &with(&grant, 1999)),
        "allow [ask may grant] may; `anna` agreed to this call"
    );
    assert_eq!(judged(&one, &with(&grant, 2000)), "review [ask may] ask");
    assert_eq!(judged(&other, &with(&grant, 1000)), "review [ask may] ask", "POL-17: another call");
    let drifted = Grant { policy: Snapshot::built_in().digest(), ..grant.clone() };
    assert_eq!(judged(&one, &with(&drifted, 1000)), "review [ask may] ask");
    // It does not help against a deny.
    let denying = super::policy(BOTH);
    let grant = Grant { policy: denying.digest(), ..grant };
    assert_eq!(said(&judge(&denying, &one, &with(&grant, 1000))), "deny [may not] not");
    let silent = super::policy("");
    let grant = Grant { policy: silent.digest(), ..grant };
    for (call, now, expected) in [
        (&one, 1000, "allow [grant] `anna` agreed to this call"),
        (&one, 2000, "deny [] no rule allows it"),
        (&other, 1000, "deny [] no rule allows it"),
    ] {
        assert_eq!(said(&judge(&silent, call, &with(&grant, now))), expected);
    }
    // Nor against an extension that cannot be asked.
    let failed = Extension::Failed("late".into());
    let facts = Facts { extension: failed, ..with(&grant, 1000) };
    assert!(said(&judge(&silent, &one, &facts)).starts_with("deny [extension]"));
}

#[test]
fn an_extension_is_asked_unless_a_deny_came_first() {
    let text = "extensions: [rules/mine.ts]\nrules: [{ name: may, match: {}, action: allow }]";
    let policy = policy(text);
    assert_eq!(policy.extensions(), ["rules/mine.ts"]);
    let call = call("fs.write", json!({"path": "a"}));
    let asked = Facts { extension: Extension::NotAsked, ..facts() };
    assert_eq!(said(&judge(&policy, &call, &asked)), "ask [may]");
    let nobody = "deny [may extension] the policy has extensions, and nobody asks them";
    assert_eq!(said(&judge(&policy, &call, &facts())), nobody);
    let review = answered(&[("ext", Decision::Review)]);
    assert_eq!(said(&judge(&policy, &call, &review)), "review [may ext] because");
}

#[test]
fn an_allow_is_bound_to_the_tightest_of_what_its_rules_say() {
    let text = "
rules:
  - { name: a, match: {}, action: allow, constraints: { memory: 64MiB, timeout: 30s, sandbox: tool } }
  - { name: b, match: {}, action: allow, constraints: { memory: 1GiB, timeout: 5s, max_file_size: 1MiB } }
  - { name: c, match: { path: ['x/**'] }, action: allow, constraints: { sandbox: code-executor } }
  - { name: d, match: { path: ['y/**'] }, action: require_review, constraints: { cpu: 0.5 } }
  - { name: e, match: {}, action: allow }";
    let policy = policy(text);
    let one = call("fs.write", json!({"path": "a"}));
    let crate::Verdict::Allow(permit) = judge(&policy, &one, &facts()) else { panic!() };
    let bound = "sandbox: tool, max_file_size: 1MiB, memory: 64MiB, timeout: 5s";
    assert_eq!(permit.constraints().to_string(), bound);
    assert_eq!(permit.constraints().template().unwrap().name, "tool");
    let two = call("fs.write", json!({"path": "x/a"}));
    let both = "deny [a b c e constraints] it would have to run in `code-executor` and in `tool`";
    assert_eq!(said(&judge(&policy, &two, &facts())), both);
}

#[test]
fn a_rule_that_wants_a_token_abstains_without_one_and_says_so() {
    let text = "
rules:
  - { name: with-token, match: { operation: fs.write }, action: allow, constraints: { token: required } }";
    let one = call("fs.write", json!({"path": "a"}));
    let without = "deny [] no rule allows it; `with-token` allows it for a call with a token";
    assert_eq!(verdict_of(text, &one, &facts()), without);
    let expired = format!("{without}; its token does not count: expired");
    assert_eq!(verdict_of(text, &one, &invalid("expired")), expired);
    assert_eq!(verdict_of(text, &one, &valid()), "allow [token] its token allows it");
}

#[test]
fn every_field_of_a_condition_counts() {
    let text = "
rules:
  - name: all
    match:
      operation: [fs.write, http.fetch]
      tool: [fs.write, fs.copy, http.fetch]
      path: ['src/**', '*.md']
      host: [example.com, '*.example.org']
      method: [GET, POST]
      tag: [agent]
      state: code_writing
      mode: strict
      door: [cli, mcp]
      effect: [write, read]
    action: allow
    reason: all";
    let args = json!({"path": "src/a", "host": "a.example.org", "method": "GET"});
    let right = Facts {
        tags: vec![tag("free"), tag("agent")],
        state: Some("code_writing".into()),
        mode: Some("strict".into()),
        ..facts()
    };
    let with = |name: &str, value: Value| {
        let mut args = args.clone();
        args[name] = value;
        args
    };
    let rows: Vec<(&str, Value, Facts, Option<&str>)> = vec![
        ("fs.write", args.clone(), right.clone(), None),
        ("fs.copy", args.clone(), right.clone(), None),
        ("fs.patch", args.clone(), right.clone(), Some("operation")),
        ("http.fetch", args.clone(), right.clone(), Some("effect")),
        ("fs.write", with("path", json!("lib/a")), right.clone(), Some("path")),
        ("fs.write", json!({"host": "example.com", "method": "GET"}), right.clone(), Some("path")),
        ("fs.write", with("host", json!("example.org")), right.clone(), Some("host")),
        ("fs.write", with("method", json!("PUT")), right.clone(), Some("method")),
        ("fs.write", args.clone(), Facts { tags: vec![tag("free")], ..right.clone() }, Some("tag")),
        ("fs.write", args.clone(), Facts { state: None, ..right.clone() }, Some("state")),
        (
            "fs.write",
            args.clone(),
            Facts { mode: Some("debug".into()), ..right.clone() },
            Some("mode"),
        ),
    ];
    let policy = policy(text);
    for (name, args, facts, unmet) in rows {
        let call = call(name, args);
        let verdict = said(&judge(&policy, &call, &facts));
        let expected =
            if unmet.is_none() { "allow [all] all" } else { "deny [] no rule allows it" };
        assert_eq!(verdict, expected, "{call:?}");
        let explained = policy.explain(&call, &facts);
        match (explained.rules.first(), unmet) {
            (Some(rule), None) => assert_eq!(rule.outcome.to_string(), "speaks"),
            (Some(rule), Some(field)) => {
                assert_eq!(rule.outcome.to_string(), format!("abstains: `{field}` does not hold"));
            }
            // Another operation: the rule is not about it.
            (None, unmet) => assert_eq!(unmet, Some("operation")),
        }
    }
}

#[test]
fn a_second_path_is_not_carried_through_by_the_first() {
    let text = "
rules:
  - { name: may, match: { operation: fs.write, path: ['src/**'] }, action: allow, except: [{ path: ['src/kernel/**'] }], reason: may }
  - { name: not, match: { path: ['**/*.key'] }, action: deny, except: [{ path: ['src/test.key'] }, { path: ['src/b.key'] }], reason: not }";
    for (paths, expected) in [
        (json!(["src/a", "src/b"]), "allow [may] may"),
        (json!(["src/a", "lib/b"]), "deny [] no rule allows it"),
        (json!(["src/a", "src/kernel/b"]), "deny [] no rule allows it"),
        (json!(["src/a", "src/b.x.key"]), "deny [may not] not"),
        (json!(["src/test.key", "src/a"]), "allow [may] may"),
        (json!(["src/test.key", "src/b.key"]), "allow [may] may"),
        (json!(["src/test.key", "src/other.key"]), "deny [may not] not"),
    ] {
        let call = call("fs.write", json!({"paths": paths}));
        assert_eq!(verdict_of(text, &call, &facts()), expected, "{paths}");
    }
}

/// POL-06, POL-07 and POL-16: what is asked for has one spelling, and rules have no other.
#[test]
fn another_spelling_of_a_name_is_the_same_name_or_none() {
    let text = "
rules:
  - { name: may, match: { operation: fs.write, path: ['src/**'], host: [api.example.test] }, action: allow, reason: may }
  - { name: not, match: { path: ['src/secret'] }, action: deny, reason: not }";
    for (path, host, expected) in [
        ("src/a", "api.example.test", "allow [may] may"),
        ("/work/src//./a", "API.example.TEST.", "allow [may] may"),
        ("src/a", "apixexample.test", "deny [] no rule allows it"),
        ("/work/./src/secret/", "api.example.test", "deny [may not] not"),
        ("./src/secret", "api.example.test", "deny [may not] not"),
    ] {
        let call = call("fs.write", json!({"path": path, "host": host}));
        assert_eq!(verdict_of(text, &call, &facts()), expected, "{path} {host}");
    }
}

/// POL-16: a pattern of a directory is about what lies in it, as in gitignore. An allow alone is not: it would
/// be wider than it reads.
#[test]
fn what_is_denied_is_denied_with_everything_below_it() {
    let text = "
rules:
  - { name: may, match: { path: ['**'] }, action: allow, except: [{ path: ['.env*'] }], reason: may }
  - { name: not, match: { path: [secrets, 'keys/*'] }, action: deny, except: [{ path: [secrets/public] }], reason: not }
  - { name: ask, match: { path: [/build] }, action: require_review, reason: ask }";
    for (path, expected) in [
        ("a", "allow [may] may"),
        (".env", "deny [] no rule allows it"),
        (".env.d/local", "deny [] no rule allows it"),
        ("secrets", "deny [may not] not"),
        ("a/secrets/b/c", "deny [may not] not"),
        ("secrets/public/a", "allow [may] may"),
        ("keys/a", "deny [may not] not"),
        ("keys/a/b", "deny [may not] not"),
        ("build/x/y", "review [ask may] ask"),
        ("a/build/x", "allow [may] may"),
    ] {
        let call = call("fs.write", json!({ "path": path }));
        assert_eq!(verdict_of(text, &call, &facts()), expected, "{path}");
    }
    let one =
        "rules: [{ name: may, match: { path: [src, 'docs/*'] }, action: allow, reason: may }]";
    for (path, expected) in [
        ("src", "allow [may] may"),
        ("src/a", "deny [] no rule allows it"),
        ("docs/a", "allow [may] may"),
        ("docs/a/b", "deny [] no rule allows it"),
    ] {
        let call = call("fs.write", json!({ "path": path }));
        assert_eq!(verdict_of(one, &call, &facts()), expected, "{path}");
    }
    // Case 26, of a rule that refuses.
    let never = "
rules:
  - { name: may, match: {}, action: allow, reason: may }
  - { name: not, match: { path: [src] }, action: deny, except: [{ path: [src] }] }";
    for path in ["src", "src/a/b"] {
        let call = call("fs.write", json!({ "path": path }));
        assert_eq!(verdict_of(never, &call, &facts()), "allow [may] may", "{path}");
    }
}

#[test]
fn net_07_a_host_is_not_every_service_on_it() {
    let text = "rules:
  - { name: may, match: { operation: http.fetch, host: ['*.example.test', 'db.test:5432'] }, action: allow, reason: may }
  - { name: never, match: { host: evil.example.test }, action: deny, reason: never }
  - { name: any, match: { host: 'lab.test:*' }, action: allow, reason: any, except: [{ host: 'lab.test:22' }] }
";
    for (host, expected) in [
        ("a.example.test", "allow [may] may"),
        ("a.example.test:443", "allow [may] may"),
        ("a.example.test:22", "deny [] no rule allows it"),
        ("db.test:5432", "allow [may] may"),
        ("db.test", "deny [] no rule allows it"),
        // Who denies a host means all of it.
        ("evil.example.test", "deny [may never] never"),
        ("evil.example.test:6379", "deny [never] never"),
        ("lab.test", "allow [any] any"),
        ("lab.test:8080", "allow [any] any"),
        ("lab.test:22", "deny [] no rule allows it"),
    ] {
        let call = call("http.fetch", json!({"host": host}));
        assert_eq!(verdict_of(text, &call, &facts()), expected, "{host}");
    }
}

#[test]
fn who_allows_any_host_has_named_none() {
    let text = "rules:
  - { name: all, match: { operation: http.fetch }, action: allow }
  - { name: one, match: { host: [10.0.0.1, 'inside.test:8080'] }, action: allow }
  - { name: never, match: { host: 10.0.0.2 }, action: deny }
  - { name: person, match: { host: 10.0.0.3, door: mcp }, action: allow }
  - { name: other, match: { host: 10.0.0.4, operation: fs.write }, action: allow }
  - { name: but, match: { host: 10.0.0.5 }, except: [{ tool: http.fetch }], action: allow }
  - { name: when, match: { host: 10.0.0.6 }, when: 'false', action: allow }
  - { name: shown, match: { host: 10.0.0.7 }, constraints: { token: required }, action: allow }
";
    let policy = policy(text);
    for (args, named) in [
        (json!({"host": "10.0.0.1"}), true),
        // Whoever names it speaks of something else.
        (json!({"host": "10.0.0.3"}), false),
        (json!({"host": "10.0.0.4"}), false),
        (json!({"host": "10.0.0.5"}), false),
        (json!({"host": "10.0.0.6"}), false),
        (json!({"host": "10.0.0.7"}), false),
        (json!({"host": "inside.test:8080"}), true),
        (json!({"host": "inside.test"}), false),
        (json!({"host": "10.0.0.2"}), false),
        (json!({"host": "example.com"}), false),
        (json!({"hosts": ["10.0.0.1", "example.com"]}), false),
        (json!({}), false),
    ] {
        assert_eq!(policy.names_host(&call("http.fetch", args.clone()), &facts()), named, "{args}");
    }
}
