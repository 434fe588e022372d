//! Functions of their arguments.

use hotcell_request::json as strict;
use hotcell_tools::{BuiltIn, built_in};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{assert_helps, call, checked, pure_tool, settled};

fn answer(name: &str, args: Value) -> Result<Value, String> {
    match pure_tool(name).call(settled(name, args)) {
        Ok(result) => Ok(checked(name, result)),
        Err(error) => {
            assert_helps(&error);
            Err(error.why)
        }
    }
}

#[test]
fn the_examples_are_true() {
    for built in built_in() {
        let tool = built.tool().unwrap();
        let BuiltIn::Pure(_) = built else { continue };
        // The clock goes on.
        if !tool.effects.has(hotcell_request::Effect::Pure) {
            continue;
        }
        let name = tool.name.to_string();
        for example in tool.examples {
            assert_eq!(answer(&name, example.input), Ok(example.output), "{name}");
        }
    }
}

#[test]
fn what_is_asked_is_answered() {
    for (name, args, expected) in [
        ("echo", json!({"message": "\u{0}\"ä"}), json!("\u{0}\"ä")),
        // Exact where doubles are not.
        ("add", json!({"a": 9007199254740993_i64, "b": 1}), json!(9007199254740994_i64)),
        ("add", json!({"a": i64::MAX, "b": 1}), json!(1_u64 << 63)),
        ("add", json!({"a": 0.5, "b": 0.5}), json!(1)),
        ("add", json!({"a": 1e300, "b": 1}), json!(1e300)),
        ("subtract", json!({"a": u64::MAX, "b": u64::MAX}), json!(0)),
        ("multiply", json!({"a": i64::MIN, "b": 1}), json!(i64::MIN)),
        ("multiply", json!({"a": -0.0, "b": 5}), json!(0)),
        ("divide", json!({"a": u64::MAX, "b": 5}), json!(u64::MAX / 5)),
        ("divide", json!({"a": 7, "b": 2}), json!(3.5)),
        ("divide", json!({"a": 0, "b": -3}), json!(0)),
        ("power", json!({"base": 2, "exponent": 63}), json!(1_u64 << 63)),
        ("power", json!({"base": 0, "exponent": 0}), json!(1)),
        ("power", json!({"base": -1, "exponent": u64::MAX}), json!(-1)),
        ("power", json!({"base": 1, "exponent": u64::MAX}), json!(1)),
        ("power", json!({"base": 2, "exponent": -1}), json!(0.5)),
        ("power", json!({"base": 9, "exponent": 0.5}), json!(3)),
        ("sqrt", json!({"x": 0}), json!(0)),
        ("sqrt", json!({"x": 2}), json!(std::f64::consts::SQRT_2)),
        ("sqrt", json!({"x": 9007199136250225_i64}), json!(94906265)),
        ("sqrt", json!({"x": 18446744065119617025_u64}), json!(4294967295_u64)),
        ("uppercase", json!({"text": ""}), json!("")),
        ("lowercase", json!({"text": "ΑΣ"}), json!("ας")),
        ("reverse_text", json!({"text": "añ🦀"}), json!("🦀ña")),
        ("count_words", json!({"text": "  \u{3000}a\u{a0}b \n"}), json!(2)),
        // A family of three is five scalar values.
        ("count_characters", json!({"text": "👨\u{200d}👩\u{200d}👧"}), json!(5)),
        ("extract_numbers", json!({"text": "no"}), json!({"numbers": [], "left_out": 0})),
        (
            "extract_numbers",
            json!({"text": "2020-01-31 a-5 (-5) 007 1.2.3 .5 3. 1e5 2e 4e+ 5E-1 x9 --8 ٣"}),
            json!({
                "numbers": [2020, 1, 31, 5, -5, 7, 1.2, 3, 5, 3, 100000, 2, 4, 0.5, 9, -8],
                "left_out": 0,
            }),
        ),
        (
            "extract_numbers",
            json!({"text": "18446744073709551615 18446744073709551616 1e400 1e22"}),
            json!({"numbers": [u64::MAX, 1e22], "left_out": 2}),
        ),
        ("format_date", json!({"timestamp": -1}), json!("1969-12-31T23:59:59Z")),
        ("format_date", json!({"timestamp": 253402300799_i64}), json!("9999-12-31T23:59:59Z")),
        ("format_date", json!({"timestamp": 253402300800_i64}), json!("+10000-01-01T00:00:00Z")),
        ("format_date", json!({"timestamp": i64::MAX}), json!("+292277026596-12-04T15:30:07Z")),
        ("format_date", json!({"timestamp": i64::MIN}), json!("-292277022657-01-27T08:29:52Z")),
        (
            "format_date",
            json!({"timestamp": 1709210096, "format": "%a %e %b %y %j %F %T %s %%Y ü"}),
            json!("Thu 29 Feb 24 060 2024-02-29 12:34:56 1709210096 %Y ü"),
        ),
        ("sum", json!({"items": []}), json!(0)),
        ("sum", json!({"items": [u64::MAX, -1, i64::MIN]}), json!((1_i128 << 63) as u64 - 2)),
        ("average", json!({"items": [1, 2]}), json!(1.5)),
        ("average", json!({"items": [u64::MAX, u64::MAX]}), json!(u64::MAX)),
        ("min", json!({"items": [1.5, 1e300, -2, 1]}), json!(-2)),
        (
            "max",
            json!({"items": [9007199254740992_i64, 9007199254740993_i64]}),
            json!(9007199254740993_i64),
        ),
        (
            "unique",
            json!({"items": [1, 1.0, "1", null, {"a": 1, "b": 2}, {"b": 2, "a": 1}, null]}),
            json!([1, "1", null, {"a": 1, "b": 2}]),
        ),
        ("sort", json!({"items": []}), json!([])),
        ("sort", json!({"items": ["b", "", "B", "ä", "a"]}), json!(["", "B", "a", "b", "ä"])),
        (
            "sort",
            json!({"items": [u64::MAX, 1e30, -1, 0.5], "order": "descending"}),
            json!([1e30, u64::MAX, 0.5, -1]),
        ),
        ("parse_json", json!({"text": " null "}), Value::Null),
        ("to_json", json!({"value": "a\n"}), json!("\"a\\n\"")),
        ("to_json", json!({"value": null}), json!("null")),
    ] {
        let shown = format!("{name} {args}");
        assert_eq!(answer(name, args), Ok(expected), "{shown}");
    }
}

#[test]
fn what_has_no_answer_says_why() {
    let overflow = "the result is larger than a number of 64 bits";
    for (name, args, why) in [
        ("add", json!({"a": u64::MAX, "b": 1}), overflow),
        ("add", json!({"a": f64::MAX, "b": f64::MAX}), overflow),
        ("subtract", json!({"a": i64::MIN, "b": 1}), overflow),
        ("multiply", json!({"a": u64::MAX, "b": u64::MAX}), overflow),
        // A double that JSON would write as an integer which is none.
        ("multiply", json!({"a": 1.5e10, "b": 1e10}), overflow),
        ("divide", json!({"a": 1, "b": 0}), "it divides by zero"),
        ("divide", json!({"a": 0.5, "b": -0.0}), "it divides by zero"),
        ("divide", json!({"a": 1e300, "b": 1e-300}), overflow),
        ("power", json!({"base": 2, "exponent": 64}), overflow),
        ("power", json!({"base": 2, "exponent": u64::MAX}), overflow),
        ("power", json!({"base": 10.5, "exponent": 1000}), overflow),
        ("power", json!({"base": 0, "exponent": -1}), "it divides by zero"),
        ("power", json!({"base": -8, "exponent": 0.5}), "there is no real number that it could be"),
        ("sqrt", json!({"x": -1}), "the number is negative"),
        ("sqrt", json!({"x": -1e-300}), "the number is negative"),
        ("sum", json!({"items": [u64::MAX, 1]}), overflow),
        ("average", json!({"items": []}), "the list is empty"),
        ("min", json!({"items": []}), "the list is empty"),
        ("max", json!({"items": []}), "the list is empty"),
        (
            "format_date",
            json!({"timestamp": 0, "format": "%Q"}),
            "that does not stand for anything",
        ),
        (
            "format_date",
            json!({"timestamp": 0, "format": "100%"}),
            "that does not stand for anything",
        ),
    ] {
        let shown = format!("{name} {args}");
        assert_eq!(answer(name, args), Err(why.into()), "{shown}");
    }
    for text in ["", "{", "{\"a\":1,\"a\":2}", "1 2", "NaN", "1e999", &"[".repeat(1000)] {
        assert!(answer("parse_json", json!({"text": text})).is_err(), "{text}");
    }
}

#[test]
fn what_is_too_much_or_mixed_is_refused_before() {
    for (name, args, at) in [
        ("uppercase", json!({"text": "x".repeat((1 << 20) + 1)}), "/text"),
        ("sum", json!({"items": vec![0; 100_001]}), "/items"),
        ("sort", json!({"items": vec![0; 100_001]}), "/items"),
        ("sum", json!({"items": ["1"]}), "/items/0"),
        ("sort", json!({"items": [1, "a"]}), "/items"),
        ("add", json!({"a": "1", "b": 1}), "/a"),
        ("add", json!({"a": 1}), "/b"),
        ("format_date", json!({"timestamp": 1.5}), "/timestamp"),
        ("format_date", json!({"timestamp": u64::MAX}), "/timestamp"),
    ] {
        let faults = call(name, args).unwrap_err();
        assert!(faults.iter().any(|fault| fault.starts_with(at)), "{name}: {faults:?}");
    }
}

#[test]
fn the_clock_is_told_in_utc() {
    let seconds = || {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        i64::try_from(now.unwrap().as_secs()).unwrap()
    };
    let before = seconds();
    let timestamp = answer("current_timestamp", json!({})).unwrap();
    let both = answer("timestamp", json!({})).unwrap();
    let datetime = answer("current_datetime", json!({})).unwrap();
    let times: Vec<String> = (before..=seconds())
        .map(|at| answer("format_date", json!({"timestamp": at})).unwrap().as_str().unwrap().into())
        .collect();
    assert!((before..=seconds()).contains(&timestamp.as_i64().unwrap()));
    assert!(times.contains(&datetime.as_str().unwrap().to_owned()));
    assert!(times.contains(&both["iso"].as_str().unwrap().to_owned()));
    assert!((before..=seconds()).contains(&(both["unix_ms"].as_i64().unwrap() / 1000)));
}

fn number() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-1e15..1e15).prop_map(|double: f64| Value::from(double)),
        Just(json!(1e300)),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        number(),
        ".*".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(".*", inner, 0..4)
                .prop_map(|members| members.into_iter().collect::<Value>()),
        ]
    })
    .prop_filter_map("not JSON as it is read here", |v| strict::adopt(v, &Default::default()).ok())
}

fn of(name: &str, args: Value) -> Result<Value, hotcell_request::ToolError> {
    pure_tool(name).call(args)
}

proptest! {
    #[test]
    fn what_is_written_reads_back(value in value()) {
        for style in ["compact", "pretty"] {
            let text = of("to_json", json!({"value": value, "style": style})).unwrap();
            prop_assert_eq!(&of("parse_json", json!({"text": text})).unwrap(), &value);
        }
    }

    #[test]
    fn turned_around_twice_it_is_itself(text in ".*") {
        let once = of("reverse_text", json!({"text": text})).unwrap();
        prop_assert_eq!(of("reverse_text", json!({"text": once})).unwrap(), text);
    }

    #[test]
    fn sorted_twice_is_sorted_once(items in prop::collection::vec(number(), 0..20)) {
        let once = of("sort", json!({"items": items, "order": "ascending"})).unwrap();
        let twice = of("sort", json!({"items": once, "order": "ascending"})).unwrap();
        prop_assert_eq!(&once, &twice);
        let mut down = of("sort", json!({"items": items, "order": "descending"})).unwrap();
        prop_assert_eq!(items.len(), down.as_array().unwrap().len());
        down.as_array_mut().unwrap().reverse();
        prop_assert_eq!(once, down);
    }

    #[test]
    fn what_is_unique_keeps_its_order(items in prop::collection::vec(0..5_i64, 0..20)) {
        let mut expected = Vec::new();
        for item in &items {
            if !expected.contains(item) {
                expected.push(*item);
            }
        }
        prop_assert_eq!(of("unique", json!({"items": items})).unwrap(), json!(expected));
    }

    /// A result is a number that can leave, or an error: never null, never one that nobody can read.
    #[test]
    fn arithmetic_ends_in_a_number_or_an_error(a in number(), b in number()) {
        for name in ["add", "subtract", "multiply", "divide"] {
            if let Ok(result) = of(name, json!({"a": a, "b": b})) {
                prop_assert!(result.is_number());
                prop_assert!(strict::adopt(result, &Default::default()).is_ok());
            }
        }
        for (name, args) in [("power", json!({"base": a, "exponent": b})), ("sqrt", json!({"x": a}))] {
            if let Ok(result) = of(name, args) {
                prop_assert!(strict::adopt(result, &Default::default()).is_ok());
            }
        }
    }

    #[test]
    fn a_number_in_a_text_is_found(a in any::<i64>(), b in -1e9..1e9_f64) {
        let text = format!("from {a} to {b:?}.");
        let found = of("extract_numbers", json!({"text": text})).unwrap();
        let expected = strict::adopt(json!([a, b]), &Default::default()).unwrap();
        prop_assert_eq!(strict::adopt(found["numbers"].clone(), &Default::default()).unwrap(), expected);
    }

    #[test]
    fn no_text_is_too_strange(text in ".*") {
        for name in ["echo", "uppercase", "lowercase", "reverse_text", "count_words", "count_characters",
            "extract_numbers", "parse_json", "format_date"] {
            let key = match name {
                "echo" => "message",
                "format_date" => "format",
                _ => "text",
            };
            if let Err(error) = of(name, json!({key: text, "timestamp": 0})) {
                assert_helps(&error);
            }
        }
    }
}
