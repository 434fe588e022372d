//! What a token may be made for.

use hotcell_glob::Glob;
use hotcell_request::ToolName;
use hotcell_types::{Door, Effect};
use proptest::prelude::*;
use serde_json::json;

use super::{call, facts, policy, tag};
use crate::{Facts, NotCovered, Scope, Snapshot, Verdict, judge};

fn scope<'a>(name: &'a ToolName, facts: &'a Facts, paths: &[&str]) -> Scope<'a> {
    Scope {
        operation: name,
        tool: name,
        effects: [Effect::Write].into_iter().collect(),
        door: Door::Cli,
        paths: paths.iter().map(|path| path.parse::<Glob>().unwrap()).collect(),
        facts,
        call: None,
    }
}

fn covered(snapshot: &Snapshot, paths: &[&str]) -> String {
    let (name, facts) =
        ("fs.write".parse().unwrap(), Facts { tags: vec![tag("agent")], ..facts() });
    match snapshot.allows_all_of(&scope(&name, &facts, paths)) {
        Ok(constraints) => format!("yes {constraints}"),
        Err(why) => why.to_string(),
    }
}

#[test]
fn a_token_is_made_only_for_what_is_allowed_as_a_whole() {
    let snapshot = policy(
        "
rules:
  - { name: may, match: { operation: fs.write, path: ['src/**'] }, action: allow, constraints: { memory: 1GiB } }
  - { name: small, match: { path: ['src/small/**'], tag: agent }, action: allow, constraints: { memory: 1MiB } }
  - { name: with-token, match: { path: ['tok/**'] }, action: allow, constraints: { token: required } }
  - { name: some, match: { path: ['part/**'] }, action: allow, except: [{ path: ['part/x/**'] }] }
  - { name: not, match: { path: ['**/*.key'] }, action: deny, except: [{ path: ['tok/**'] }] }
  - { name: ask, match: { path: ['src/ask/*'] }, action: require_review }
  - { name: sized, match: { path: ['sized/**'] }, action: allow, when: args.size < 5 }
  - { name: far, match: { path: ['far/**'], host: [example.com] }, action: allow }
  - { name: not-strangers, match: { path: ['src/**'], tag: [stranger] }, action: deny }",
    );
    for (paths, expected) in [
        (&["src/a.rs"][..], "yes memory: 1GiB"),
        (&["src/small/a.rs"], "yes memory: 1MiB"),
        (&["src/sm*l/*.rs"], "yes memory: 1MiB"),
        // Of a directory with such a name, all of it.
        (&["src/s*/*.rs"], "the rule `not` could deny some of it, or ask for somebody to agree"),
        (&["src/a/*.rs", "src/b/*.rs"], "yes memory: 1GiB"),
        (&["src/**"], "the rule `ask` could deny some of it, or ask for somebody to agree"),
        (&["src/a/*"], "the rule `not` could deny some of it, or ask for somebody to agree"),
        (&["src/a.rs", "lib/a.rs"], "no rule allows all of it"),
        (&["*.rs"], "the rule `ask` could deny some of it, or ask for somebody to agree"),
        (&["lib/*.rs"], "no rule allows all of it"),
        (&["tok/**"], "yes "),
        (&["part/*.rs"], "yes "),
        (&["part/x/*.rs"], "no rule allows all of it"),
        (&["sized/a"], "`when` of the rule `sized` depends on arguments, and they are not fixed"),
        (&["far/a"], "no rule allows all of it"),
        (&[], "no rule allows all of it"),
    ] {
        assert_eq!(covered(&snapshot, paths), expected, "{paths:?}");
    }
}

#[test]
fn with_fixed_arguments_the_call_itself_is_judged() {
    let snapshot =
        policy("rules: [{ name: sized, match: {}, action: allow, when: args.size < 5 }]");
    let facts = facts();
    for (size, expected) in [(4, true), (5, false)] {
        let call = call("fs.write", json!({"path": "a", "size": size}));
        let scope = Scope { call: Some(&call), ..scope(call.name(), &facts, &["a"]) };
        assert_eq!(snapshot.allows_all_of(&scope).is_ok(), expected);
    }
    let no_size = call("fs.write", json!({"path": "a"}));
    let scope = Scope { call: Some(&no_size), ..scope(no_size.name(), &facts, &["a"]) };
    assert_eq!(snapshot.allows_all_of(&scope), Err(NotCovered::Against("sized".into())));
    let extended = policy("extensions: [a.ts]\nrules: [{ name: a, match: {}, action: allow }]");
    assert_eq!(extended.allows_all_of(&scope), Err(NotCovered::Extension));
}

fn part() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("**".to_owned()),
        Just("*".to_owned()),
        "[ab]",
        Just("a*".to_owned()),
        Just("[!b]".to_owned())
    ]
}

fn glob() -> impl Strategy<Value = String> {
    prop::collection::vec(part(), 1..4).prop_map(|parts| format!("/{}", parts.join("/")))
}

fn rule() -> impl Strategy<Value = String> {
    let action = prop_oneof![3 => Just("allow"), 1 => Just("deny"), 1 => Just("require_review")];
    let list = |globs: Vec<String>| serde_json::to_string(&globs).unwrap();
    (prop::collection::vec(glob(), 1..3), action, prop::collection::vec(glob(), 0..2)).prop_map(
        move |(globs, action, except)| {
            let except = match except.is_empty() {
                true => String::new(),
                false => format!(", except: [{{ path: {} }}]", list(except)),
            };
            format!("match: {{ path: {} }}, action: {action}{except}", list(globs))
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    /// No call of a scope that is covered is refused, alone or with another path of it.
    #[test]
    fn what_is_covered_is_allowed(
        rules in prop::collection::vec(rule(), 1..4),
        globs in prop::collection::vec(glob(), 1..3),
        paths in prop::collection::vec("[abc]{1,2}(/[abc]){0,3}", 1..30),
    ) {
        let rules: Vec<String> =
            rules.iter().enumerate().map(|(id, rule)| format!("- {{ name: r{id}, {rule} }}\n")).collect();
        let snapshot = policy(&format!("rules:\n{}", rules.concat()));
        let globs: Vec<&str> = globs.iter().map(String::as_str).collect();
        let (name, facts) = ("fs.write".parse().unwrap(), facts());
        let scope = scope(&name, &facts, &globs);
        if snapshot.allows_all_of(&scope).is_ok() {
            let inside: Vec<&String> =
                paths.iter().filter(|path| scope.paths.iter().any(|glob| glob.matches(path))).collect();
            for (one, other) in inside.iter().zip(inside.iter().rev()) {
                for paths in [json!([one]), json!([one, other])] {
                    let call = call("fs.write", json!({"paths": paths}));
                    prop_assert!(matches!(judge(&snapshot, &call, &facts), Verdict::Allow(_)), "{:?}", call);
                }
            }
        }
    }
}
