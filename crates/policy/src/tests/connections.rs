//! Rules and connections. Of tunnels, nobody sees which requests go through them, and so they may be there
//! only where each request could be made; of names, what they lead to counts as well.

use hotcell_request::{Call, Registry, Tool};
use serde_json::json;

use super::{call_of, facts, said};
use crate::{Explained, Outcome, Snapshot, Verdict, judge};

const OPEN: &str = "{ name: may, match: { host: a.test }, action: allow, reason: may }";

/// Connections as the engine judges them.
fn registry() -> Registry {
    let tool = json!({
        "name": "net.connect", "version": "1.0.0", "title": "A connection", "description": "One.",
        "input": {"type": "object", "properties": {
            "host": {"type": "string", "x-hotcell": "host"},
            "protocol": {"type": "string"},
            "method": {"type": ["string", "null"], "x-hotcell": "method"},
            "path": {"type": ["string", "null"]},
        }},
        "output": true, "effects": ["network"], "category": "test", "operation": "net.connect",
    });
    let registry = Registry::new();
    registry.register(Tool::from_json(tool.to_string().as_bytes()).unwrap()).unwrap();
    registry
}

fn policy(rules: &[&str], registry: &Registry) -> Snapshot {
    let rules: String = rules.iter().map(|rule| format!("\n  - {rule}")).collect();
    Snapshot::load(format!("rules:{rules}").as_bytes(), &registry.tools()).unwrap().snapshot
}

fn connect(registry: &Registry, method: Option<&str>, path: Option<&str>) -> Call {
    let args = json!({"host": "a.test", "protocol": "https", "method": method, "path": path});
    call_of(registry, "net.connect", args)
}

#[test]
fn net_06_a_tunnel_is_there_only_where_each_request_in_it_could_be_made() {
    let registry = registry();
    let rule = |action: &str, further: &str| {
        format!("{{ name: rule, match: {{ host: a.test }}, {further}, action: {action} }}")
    };
    let when = |action: &str, text: &str| rule(action, &format!("when: '{text}'"));
    let method = |action: &str| {
        format!("{{ name: rule, match: {{ host: a.test, method: [POST] }}, action: {action} }}")
    };
    // Beside a rule that allows everything: what is denied or reviewed of it, somewhere.
    for (rule, decision) in [
        (method("deny"), "deny"),
        (method("require_review"), "review"),
        (rule("deny", "except: [{ method: [GET] }]"), "deny"),
        (rule("require_review", "except: [{ method: [GET] }]"), "review"),
        (when("deny", r#"args.path == "/admin""#), "deny"),
        (when("deny", r#"args.path != null && args.path.startsWith("/admin")"#), "deny"),
        (when("deny", r#"args["path"] in ["/admin", "/root"]"#), "deny"),
        (when("deny", r#"has(args.path) && args.path == "/admin""#), "deny"),
        (when("deny", r#"args.method == "POST""#), "deny"),
        (when("deny", r#"method == "POST""#), "deny"),
        (when("deny", r#"methods.exists(m, m == "POST")"#), "deny"),
        (when("deny", r#"args.protocol == "https" && args.path == "/admin""#), "deny"),
        (when("require_review", r#"args.path == "/admin""#), "deny"),
        // What is seen decides where that is enough.
        (when("deny", r#"args.path == "/admin" && args.protocol == "http""#), "allow"),
        (when("deny", r#"args.protocol == "http" && args.method == "POST""#), "allow"),
        (when("require_review", r#"host == "b.test" && args.path == "/admin""#), "allow"),
        // What allows less takes nothing away from what allows all.
        (method("allow"), "allow"),
        (when("allow", r#"args.path.startsWith("/public")"#), "allow"),
    ] {
        let policy = policy(&[OPEN, &rule], &registry);
        let tunnel = connect(&registry, None, None);
        let verdict = said(&judge(&policy, &tunnel, &facts()));
        assert!(verdict.starts_with(decision), "{rule}: {verdict}");
        // Where it is seen, it is judged by what it is.
        let seen = connect(&registry, Some("GET"), Some("/public"));
        let verdict = said(&judge(&policy, &seen, &facts()));
        assert!(verdict.starts_with("allow"), "{rule}: {verdict}");
    }
    // Alone: what allows some requests allows no tunnel.
    for (rule, expected) in [
        (OPEN.to_owned(), "allow"),
        (method("allow"), "deny"),
        (rule("allow", "except: [{ method: [POST] }]"), "deny"),
        (when("allow", r#"args.path != "/admin""#), "deny"),
        (when("allow", r#"!(args.path == "/admin")"#), "deny"),
        (when("allow", r#"args.path == null || args.path == "/public""#), "deny"),
        (when("allow", r#"args.method != "POST""#), "deny"),
        (when("allow", r#"!("POST" in methods)"#), "deny"),
        (when("allow", "size(methods) == 0"), "deny"),
        (when("allow", r#"args.protocol == "https" || args.path == "/public""#), "allow"),
    ] {
        let policy = policy(&[&rule], &registry);
        let tunnel = connect(&registry, None, None);
        let verdict = judge(&policy, &tunnel, &facts());
        assert!(said(&verdict).starts_with(expected), "{rule}: {}", said(&verdict));
        let names = policy.names_host(&tunnel, &facts());
        assert_eq!(names, matches!(verdict, Verdict::Allow(_)), "{rule}");
    }
}

#[test]
fn what_is_seen_of_a_request_is_not_unknown_because_something_else_is() {
    let registry = registry();
    let deny = r#"{ name: rule, match: { host: a.test, method: [POST] }, when: 'args.path == "/admin"', action: deny }"#;
    let policy = policy(&[OPEN, deny], &registry);
    for (method, path, expected) in [
        (Some("POST"), None, "deny"),
        (Some("GET"), None, "allow"),
        (None, Some("/admin"), "deny"),
        (None, Some("/public"), "allow"),
        (None, None, "deny"),
    ] {
        let call = connect(&registry, method, path);
        let verdict = said(&judge(&policy, &call, &facts()));
        assert!(verdict.starts_with(expected), "{method:?} {path:?}: {verdict}");
    }
}

#[test]
fn who_asks_why_is_told_what_nobody_sees() {
    let registry = registry();
    let rules = [
        r#"{ name: some, match: { host: a.test }, when: 'args.path == "/a"', action: allow }"#,
        r#"{ name: never, match: { host: a.test }, when: 'args.path == "/b"', action: deny }"#,
    ];
    let policy = policy(&rules, &registry);
    let explained = policy.explain(&connect(&registry, None, None), &facts());
    let outcomes: Vec<_> =
        explained.rules.iter().map(|Explained { outcome, .. }| outcome.clone()).collect();
    let why = "nobody sees the path of this call";
    assert_eq!(outcomes, [Outcome::Failed(why.into()), Outcome::Unseen("path")]);
    assert!(explained.reason.contains(why), "{}", explained.reason);
    assert_eq!(outcomes[1].to_string(), format!("abstains: {why}"));
}

#[test]
fn a_rule_against_an_address_is_against_names_that_lead_there() {
    let registry = registry();
    let rules = [
        "{ name: all, match: { operation: net.connect }, action: allow }",
        "{ name: but, match: { operation: net.connect }, except: [{ host: 'a.test:*' }], action: deny }",
        "{ name: never, match: { host: [93.184.216.34, evil.test] }, action: deny, reason: not there }",
        "{ name: ask, match: { host: '[2600::1]' }, action: require_review, reason: ask }",
        "{ name: port, match: { host: '93.184.216.35:22' }, action: deny, reason: no shell }",
        r#"{ name: path, match: { host: 93.184.216.36 }, when: 'args.path == "/a"', action: deny }"#,
    ];
    let policy = policy(&rules, &registry);
    for (address, rule) in [
        ("93.184.216.34", Some("never")),
        ("93.184.216.34:8443", Some("never")),
        ("[2600::1]", Some("ask")),
        ("93.184.216.35:22", Some("port")),
        ("93.184.216.35", None),
        // A tunnel could have this path.
        ("93.184.216.36", Some("path")),
        // What is said of all hosts is said of the name.
        ("93.184.216.37", None),
        ("1.1.1.1", None),
    ] {
        let args = json!({"host": address, "protocol": "https", "method": null, "path": null});
        let call = call_of(&registry, "net.connect", args);
        let found = policy.refuses_host(&call, &facts()).map(|(rule, _)| rule);
        assert_eq!(found, rule, "{address}");
    }
}
