//! What `when` says, what it refuses, and that it is CEL.

use hotcell_request::{Registered, Value};
use proptest::prelude::*;
use serde_json::json;
use std::sync::Arc;

use super::{DEPTH_MOST, NODES_MOST, When};
use crate::subject::Subject;
use crate::tests::{call, facts, shared};

fn tools() -> Vec<Arc<Registered>> {
    vec![shared().tools().get(&"fs.write".parse().unwrap(), None).unwrap()]
}

fn args() -> Value {
    json!({
        "path": "src/a.rs", "host": "example.com", "method": "GET", "size": 10, "ratio": 0.5, "text": "höllo",
        "maybe": null, "flag": true, "list": [1, 2, 3], "deep": {"a": "b"}, "open": {"x": 1, "y": [true]},
    })
}

fn eval(text: &str, args: &Value) -> String {
    let call = call("fs.write", args.clone());
    let facts = crate::Facts { state: Some("planning".into()), ..facts() };
    let when = match When::parse(text, &tools()) {
        Ok(when) => when,
        Err(bad) => return format!("{}: {}: {}", bad.at, bad.what, bad.fix),
    };
    match when.holds(&Subject::new(&call, &facts)) {
        Ok(truth) => truth.to_string(),
        Err(wrong) => wrong.to_string(),
    }
}

#[test]
fn a_condition_says_what_it_says_in_cel() {
    for (text, expected) in [
        ("true", "true"),
        ("args.size < 65536", "true"),
        ("args.size >= 10 && args.size <= 10", "true"),
        ("args.size == 10.0", "true"),
        ("args.ratio * 2.0 == 1", "true"),
        ("args.size + 2 * 3 - 1 == 15", "true"),
        ("(args.size + 2) * 3 == 36", "true"),
        ("args.size / 3 == 3 && args.size % 3 == 1", "true"),
        ("-args.size == -10", "true"),
        ("0x10 == 16", "true"),
        ("args.text == 'höllo'", "true"),
        ("size(args.text) == 5", "true"),
        ("args.text.size() == 5", "true"),
        ("args.text.startsWith('hö') && args.text.endsWith(\"lo\")", "true"),
        ("args.text.contains('öll')", "true"),
        ("args.text.matches('^h.llo$')", "true"),
        ("args.text.matches(r'\\d')", "false"),
        ("args.text < 'i'", "true"),
        ("args.maybe == null", "true"),
        ("args.maybe != 'a'", "true"),
        ("args.flag", "true"),
        ("!args.flag || args.size > 5", "true"),
        ("args.flag ? args.size > 5 : false", "true"),
        ("args.size in [1, 10]", "true"),
        ("args.size in args.list", "false"),
        ("'x' in args.open", "true"),
        ("args.list[1] == 2", "true"),
        ("args.list == [1, 2, 3]", "true"),
        ("args['deep'].a == 'b'", "true"),
        ("has(args.path) && !has(args.hosts)", "true"),
        ("args.list.all(x, x > 0)", "true"),
        ("args.list.exists(x, x == 2)", "true"),
        ("args.list.exists_one(x, x > 2)", "true"),
        ("args.list.all(x, args.list.exists(y, x == y))", "true"),
        ("[1, 2].all(x, x in args.list)", "true"),
        ("paths.all(p, p.startsWith('src/'))", "true"),
        ("path == 'src/a.rs' && host == 'example.com' && method == 'GET'", "true"),
        ("tool == 'fs.write' && operation == 'fs.write'", "true"),
        ("caller.tenant == 'local' && caller.subject == 'local' && caller.door == 'cli'", "true"),
        ("state == 'planning' && mode == null", "true"),
        ("args.open.x == 1 && args.open.y[0]", "true"),
        // One side that decides makes up for another without a value.
        ("args.list[9] == 1 && false", "false"),
        ("args.list[9] == 1 || true", "true"),
        ("true || args.list[9] == 1", "true"),
        ("args.list.exists(x, args.list[x] == 2)", "true"),
        // What has no value.
        ("args.list[9] == 1", "the list has no such item"),
        ("args.list[-1] == 1", "the list has no such item"),
        ("args.hosts.size() > 0", "there is no `hosts`"),
        ("args.open.z == 1", "there is no `z`"),
        ("args.open.x", "what should be true or false is not"),
        ("args.open.x.y == 1", "a field of what has none"),
        ("args.open.y < 1", "what is compared has no order"),
        ("args.size / 0 == 1", "a number is divided by zero"),
        ("args.size % 0 == 1", "a number is divided by zero"),
        ("9223372036854775807 + 1 > 0", "a number is too large"),
        ("-9223372036854775807 - 2 < 0", "a number is too large"),
    ] {
        assert_eq!(eval(text, &args()), expected, "{text}");
    }
    let two = json!({"paths": ["a", "b"]});
    assert_eq!(eval("path == 'a'", &two), "the call has more than one path: use `paths`");
    assert_eq!(eval("paths.exists(p, p == 'b')", &two), "true");
    assert_eq!(eval("host == 'a'", &two), "the call has no host");
}

#[test]
fn what_could_have_no_value_is_refused_with_its_place() {
    for (text, expected) in [
        ("", "0: `when` ends too early"),
        ("args.size", "5: `when` is a number"),
        ("'a'", "0: `when` is text"),
        ("null", "0: `when` is null"),
        ("args.sise < 1", "5: there is no field `sise`: did you mean `size`?"),
        ("args.deep.b == 'a'", "10: there is no field `b`: did you mean `a`?"),
        ("caller.name == 'a'", "7: there is no field `name`"),
        ("arg.size < 1", "0: there is no `arg`: did you mean `args`?"),
        ("now > 1", "0: there is no `now`"),
        ("args.size < 'a'", "10: a number and text are compared"),
        ("args.size == 'a'", "10: a number and text are compared"),
        ("args.flag < true", "10: true or false and true or false are compared"),
        ("args.list < [1]", "10: a list and a list are compared"),
        ("args.size in 'abc'", "13: `in` text"),
        ("args.text in args.list", "10: text in a list of a number"),
        ("args.text + 'a' == 'b'", "5: this is text: write a number here"),
        ("!args.size", "6: this is a number"),
        ("args.size && true", "5: this is a number"),
        ("args.size.startsWith('a')", "5: this is a number: write text here"),
        ("args.text.startsWith(1)", "21: this is a number: write text here"),
        ("args.text.upper() == 'A'", "10: there is no function `upper`"),
        (
            "args.text.startswith('a')",
            "10: there is no function `startswith`: did you mean `startsWith`?",
        ),
        (
            "state == 'code_writting'",
            "9: it is never `code_writting`: did you mean `code_writing`?",
        ),
        ("mode in ['strict', 'debgu']", "19: it is never `debgu`: did you mean `debug`?"),
        ("'PATHC' in methods", "0: it is never `PATHC`: did you mean `PATCH`?"),
        ("!has(args.path) || method != 'get'", "29: it is never `get`: did you mean `GET`?"),
        ("caller.door != 'clj'", "15: it is never `clj`: did you mean `cli`?"),
        ("args.word == 'thre'", "13: it is never `thre`: did you mean `three`?"),
        ("duration('1s') > 0", "0: there is no function `duration`"),
        ("size(args.size) > 1", "10: `size` of a number"),
        ("has(args)", "4: `has` of what is no field"),
        ("args.text.matches(args.text)", "18: a pattern that is not written down"),
        ("args.text.matches('(')", "18: the pattern cannot be used"),
        ("args.text.matches('(a{1000}){1000}')", "18: the pattern cannot be used"),
        ("args.size.all(x, true)", "5: this is a number: only a list has items"),
        ("args.list.all(args, true)", "14: `args` has a meaning already"),
        ("args.list.all(x, x == 'a')", "19: a number and text are compared"),
        ("args.list.map(x, x)", "10: there is no function `map`"),
        ("[1].all(a, [1].all(b, [1].all(c, true)))", "26: too many loops in one another"),
        ("{'a': 1}.a == 1", "0: a map: "),
        ("b'a' == b'a'", "0: bytes"),
        ("args.size < 1 args", "14: text behind the end"),
        ("args.size < ", "12: `when` ends too early"),
        ("(args.flag", "10: `)` is missing"),
        ("args.size = 1", "10: the character `=`"),
        ("args.flag; true", "9: the character `;`"),
        ("'abc", "0: a text without an end"),
        ("'\\q' == 'q'", "1: an escape that is not known"),
        ("99999999999999999999 > 1", "0: `99999999999999999999` is not a number"),
        ("1u == 1", "0: `1u` is not a number"),
        ("1e999 > 1", "0: `1e999` is not a number"),
        ("args.flag ? 1 : 2", "0: `when` is a number"),
    ] {
        let found = eval(text, &args());
        assert!(found.starts_with(expected), "{text}\nshould say {expected}\nand says  {found}");
    }
}

#[test]
fn a_condition_is_neither_deep_nor_long() {
    for text in [
        "(".repeat(100_000),
        "!".repeat(4000) + "true",
        "-".repeat(4000) + "1 == 1",
        "[".repeat(DEPTH_MOST + 1) + &"]".repeat(DEPTH_MOST + 1),
        "true ? ".repeat(500),
        "a.".repeat(2000),
        format!("args{} == 1", ".open".repeat(NODES_MOST)),
        format!("true{}", " && true".repeat(NODES_MOST)),
        "[1]".repeat(1000),
    ] {
        assert!(When::parse(&text, &[]).is_err(), "{text:.20}…");
    }
}

/// What a call costs is bounded, whatever it brings along.
#[test]
fn a_condition_ends_soon() {
    let many: Vec<u32> = (0..100_000).collect();
    let steps = "it takes more than 20000 steps";
    for (text, args) in [
        ("args.list.all(x, x >= 0)", json!({"list": many})),
        ("args.list.exists(x, x < 0 || false)", json!({"list": many})),
        ("args.list.all(x, args.list.exists(y, y == x))", json!({"list": many[..1000]})),
        ("-1 in args.list", json!({"list": many})),
        ("args.text.contains('b')", json!({"text": "a".repeat(6_000_000)})),
        ("args.text.matches('a*b')", json!({"text": "a".repeat(400_000)})),
        ("args.open == args.open", json!({"open": {"x": many}})),
    ] {
        assert_eq!(eval(text, &args), steps, "{text}");
    }
    assert_eq!(eval("args.text.contains('b')", &json!({"text": "a".repeat(1_000_000)})), "false");
}

/// An expression of what both know. Theirs does not mix whole numbers with others, so that these do not.
fn expression() -> impl Strategy<Value = String> {
    let number = prop_oneof![
        (-20i64..20).prop_map(|n| if n < 0 { format!("({n})") } else { n.to_string() }),
        Just("args.size".to_owned()),
        Just("size(args.list)".to_owned()),
        Just("size(args.text)".to_owned()),
        (0usize..5).prop_map(|n| format!("args.list[{n}]")),
    ];
    let number = number.prop_recursive(2, 8, 2, |inner| {
        (inner.clone(), "[-+*/%]", inner).prop_map(|(a, op, b)| format!("({a} {op} {b})"))
    });
    let text = prop_oneof![Just("args.text"), Just("'höllo'"), Just("'a'"), Just("args.deep.a")];
    let truth = prop_oneof![
        Just("true".to_owned()),
        Just("args.flag".to_owned()),
        Just("has(args.nope)".to_owned()),
        (number.clone(), "<|<=|>|>=|==|!=", number.clone())
            .prop_map(|(a, op, b)| format!("{a} {op} {b}")),
        (text.clone(), "<|<=|>|>=|==|!=", text.clone())
            .prop_map(|(a, op, b)| format!("{a} {op} {b}")),
        (text.clone(), "startsWith|endsWith|contains", text)
            .prop_map(|(a, f, b)| format!("{a}.{f}({b})")),
        (number.clone(), number.clone()).prop_map(|(a, b)| format!("{a} in [1, {b}, 3]")),
        (number, "all|exists|exists_one", "<|==|!=")
            .prop_map(|(n, f, op)| format!("args.list.{f}(x, x {op} {n})")),
    ];
    truth.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            (inner.clone(), "&&|\\|\\|", inner.clone())
                .prop_map(|(a, op, b)| format!("({a} {op} {b})")),
            inner.clone().prop_map(|a| format!("!({a})")),
            (inner.clone(), inner.clone(), inner)
                .prop_map(|(a, b, c)| format!("({a} ? {b} : {c})")),
        ]
    })
}

/// Theirs has a kind of its own for whole numbers that JSON does not have.
fn theirs_of(value: &Value) -> cel::Value {
    match value {
        Value::Null => cel::Value::Null,
        Value::Bool(truth) => (*truth).into(),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => whole.into(),
            None => number.as_f64().unwrap().into(),
        },
        Value::String(text) => text.as_str().into(),
        Value::Array(items) => items.iter().map(theirs_of).collect::<Vec<_>>().into(),
        Value::Object(members) => {
            let members = members.iter().map(|(name, value)| (name.clone(), theirs_of(value)));
            members.collect::<std::collections::HashMap<String, cel::Value>>().into()
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, max_shrink_iters: 100, ..ProptestConfig::default() })]

    /// The same text has the same value in the crate `cel`, or none in both.
    #[test]
    fn it_is_what_cel_says(text in expression()) {
        let args = args();
        let program = cel::Program::compile(&text).unwrap();
        let mut context = cel::Context::default();
        context.add_variable_from_value("args", theirs_of(&args));
        let theirs = match program.execute(&context) {
            Ok(cel::Value::Bool(truth)) => Some(truth),
            _ => None,
        };
        let when = When::parse(&text, &[]).map_err(|bad| TestCaseError::fail(bad.what))?;
        let call = call("fs.write", args);
        let ours = when.holds(&Subject::new(&call, &facts())).ok();
        prop_assert_eq!(ours, theirs, "{}", text);
    }

    #[test]
    fn no_text_is_too_odd_to_be_read(
        text in "\\PC{0,40}|[a-z.()\\[\\]'\"0-9<>=!&|?:,+*/ -]{0,60}|(args|\\.|size|\\(|\\)|1|<|&&|has|x|,|all){0,12}"
    ) {
        let call = call("fs.write", args());
        if let Ok(when) = When::parse(&text, &tools()) {
            drop(when.holds(&Subject::new(&call, &facts())));
        }
    }
}

#[test]
fn a_pattern_costs_what_it_may_take() {
    let text: String = (0..20_001_u64).map(|i| if i * i % 7 < 3 { 'a' } else { 'b' }).collect();
    let steps = "it takes more than 20000 steps";
    for (pattern, length, expected) in [
        ("^[ab]+c$", 20_000, "false"),
        ("[ab]*a[ab]{300}c", 20_000, "false"),
        // Thousands of places in the pattern, each of which every letter could be at.
        ("[ab]*a[ab]{2000}c", 1000, "false"),
        ("[ab]*a[ab]{2000}c", 20_001, steps),
    ] {
        let when = format!("args.text.matches('{pattern}')");
        let said = eval(&when, &json!({ "text": text.get(..length) }));
        assert_eq!(said, expected, "{pattern} {length}");
    }
}
