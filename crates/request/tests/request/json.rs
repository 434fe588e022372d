//! The laws of reading and spelling.

use std::time::{Duration, Instant};

use hotcell_request::canonical;
use hotcell_request::json::{self, Bounds, DEPTH_MOST};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

fn parse(text: &str) -> Result<Value, hotcell_request::Fault> {
    json::parse(text.as_bytes(), &Bounds::CALL)
}

fn spelled(value: &Value) -> String {
    String::from_utf8(canonical::bytes(value)).unwrap()
}

#[test]
fn tool_01_a_refused_document_is_refused_at_its_place() {
    for (text, at, word) in [
        (r#"{"a": 1, "a": 1}"#, "", "twice"),
        (r#"{"a": {"b/c": [0, {"x": 1, "\u0078": 2}]}}"#, "/a/b~1c/1", "twice"),
        (r#"{"a": [1, 2,]}"#, "/a/2", "JSON"),
        (r#"{"a": 1"#, "", "JSON"),
        (r#"{"a": 1}}"#, "", "JSON"),
        (r#"{"a": 1} {"b": 1}"#, "", "JSON"),
        ("", "", "JSON"),
        (" ", "", "JSON"),
        ("[1] // no", "", "JSON"),
        ("{'a': 1}", "", "JSON"),
        ("\u{feff}{}", "", "byte order mark"),
        (r#"["a", "\ud800"]"#, "/1", "JSON"),
        (r#"["\udc00\ud800"]"#, "/0", "JSON"),
        ("[\"a\u{1}\"]", "/0", "JSON"),
        ("[\"\\x41\"]", "/0", "JSON"),
        ("[01]", "/0", "JSON"),
        ("[+1]", "/0", "JSON"),
        ("[.5]", "/0", "JSON"),
        ("[1.]", "/0", "JSON"),
        ("[0x10]", "/1", "JSON"),
    ] {
        let fault = parse(text).expect_err(text);
        assert_eq!(fault.at(), at, "{text}: {fault}");
        assert!(fault.what().contains(word), "{text}: {fault}");
        assert!(!fault.why().is_empty() && !fault.fix().is_empty(), "{text}");
    }
}

#[test]
fn tool_19_numbers_that_readers_round_differently_are_refused() {
    for text in [
        "NaN",
        "Infinity",
        "-Infinity",
        "1e999",
        "-1e999",
        "18446744073709551616",
        "-9223372036854775809",
        "1e20",
        "100000000000000000001",
        "1000000000000000000000",
        "1000000000000000000001",
        "18446744073709551616.0",
        "-1e19",
    ] {
        let whole = format!(r#"{{"a -1 \" 2": ["-3\\", 4, 1e30, {text}, 1]}}"#);
        let fault = parse(&whole).expect_err(text);
        assert_eq!(fault.at(), r#"/a -1 " 2/3"#, "{text}: {fault}");
    }
    for (text, value) in [
        ("-0", json!(0)),
        ("-0.0", json!(0)),
        ("1.0", json!(1)),
        ("1e3", json!(1000)),
        ("9223372036854775808", json!(9_223_372_036_854_775_808_u64)),
        ("18446744073709551615", json!(u64::MAX)),
        ("-9223372036854775808", json!(i64::MIN)),
        ("9007199254740993", json!(9_007_199_254_740_993_u64)),
        ("1.5", json!(1.5)),
        ("1e21", json!(1e21)),
        ("1e-400", json!(0)),
        ("5e-324", json!(5e-324)),
    ] {
        assert_eq!(parse(text), Ok(value), "{text}");
    }
}

#[test]
fn tool_19_nul_and_odd_keys_are_data() {
    let value =
        parse(r#"{"__proto__": "\u0000", "": null, "constructor": "\ud83d\ude00"}"#).unwrap();
    assert_eq!(value, json!({"__proto__": "\0", "": null, "constructor": "😀"}));
}

#[test]
fn invalid_utf_8_is_refused_wherever_it_is() {
    for bytes in [&b"\"\xff\""[..], b"\xc0\xaf", b"{\"\xed\xa0\x80\": 1}", b"1\x80"] {
        let fault = json::parse(bytes, &Bounds::CALL).unwrap_err();
        assert!(fault.what().contains("UTF-8"), "{fault}");
    }
}

#[test]
fn tool_02_res_17_bombs_are_refused_at_once() {
    let nested = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n)).into_bytes();
    let objects = r#"{"a":"#.repeat(100_000).into_bytes();
    let many = format!("[{}0]", "0,".repeat(1_000_000)).into_bytes();
    let large = vec![b' '; 100 << 20];
    let text = format!("\"{}\"", "x".repeat(100 << 20)).into_bytes();
    for (what, bytes, word) in [
        ("1e5 arrays", nested(100_000), "nested"),
        ("1e5 objects", objects, "nested"),
        ("one too deep", nested(DEPTH_MOST + 1), "nested"),
        ("100 MB", large, "bytes"),
        ("a text of 100 MB", text, "bytes"),
        ("1e400", b"{\"a\": 1e400}".to_vec(), "JSON"),
        ("a key twice", b"{\"a\": 1, \"a\": [[[]]]}".to_vec(), "twice"),
    ] {
        let start = Instant::now();
        let fault = json::parse(&bytes, &Bounds::CALL).expect_err(what);
        assert!(start.elapsed() < Duration::from_millis(100), "{what}: {:?}", start.elapsed());
        assert!(fault.what().contains(word), "{what}: {fault}");
    }
    assert!(json::parse(&nested(DEPTH_MOST), &Bounds::CALL).is_ok());
    let fault = json::parse(&many, &Bounds::CALL).unwrap_err();
    assert!(fault.what().contains("more than 1000000 values"), "{fault}");
    let keys: Vec<String> = (0..1_000_000).map(|key| format!("\"{key}\":0")).collect();
    let fault = parse(&format!("{{{}}}", keys.join(","))).unwrap_err();
    assert!(fault.what().contains("more than 1000000 values"), "{fault}");
}

#[test]
fn a_value_of_a_program_obeys_the_same_rules() {
    let deep = (0..DEPTH_MOST + 1).fold(json!(0), |value, _| json!([value]));
    let small = Bounds { bytes: 8, nodes: 4, ..Bounds::CALL };
    for (value, bounds, at, word) in [
        (deep, Bounds::CALL, "/0".repeat(64), "nested"),
        (json!({"a": [1e20]}), Bounds::CALL, "/a/0".into(), "64 bits"),
        (json!(["123456789"]), small, String::new(), "bytes"),
        (json!({"123456789": 1}), small, String::new(), "bytes"),
        (json!([1, 2, 3, 4]), small, "/3".into(), "values"),
    ] {
        let fault = json::adopt(value, &bounds).unwrap_err();
        assert_eq!(fault.at(), at);
        assert!(fault.what().contains(word), "{fault}");
    }
    assert_eq!(json::adopt(json!([1.0, -0.0, 1.5]), &Bounds::CALL), Ok(json!([1, 0, 1.5])));
}

/// Appendix B of RFC 8785, and integers, which stay exact.
#[test]
fn numbers_are_spelled_as_rfc_8785_has_them() {
    for (bits, expected) in [
        (0x0000000000000000_u64, "0"),
        (0x8000000000000000, "0"),
        (0x0000000000000001, "5e-324"),
        (0x8000000000000001, "-5e-324"),
        (0x7fefffffffffffff, "1.7976931348623157e+308"),
        (0xffefffffffffffff, "-1.7976931348623157e+308"),
        (0x4340000000000000, "9007199254740992"),
        (0xc340000000000000, "-9007199254740992"),
        (0x4430000000000000, "295147905179352830000"),
        (0x44b52d02c7e14af5, "9.999999999999997e+22"),
        (0x44b52d02c7e14af6, "1e+23"),
        (0x44b52d02c7e14af7, "1.0000000000000001e+23"),
        (0x444b1ae4d6e2ef4e, "999999999999999700000"),
        (0x444b1ae4d6e2ef4f, "999999999999999900000"),
        (0x444b1ae4d6e2ef50, "1e+21"),
        (0x3eb0c6f7a0b5ed8c, "9.999999999999997e-7"),
        (0x3eb0c6f7a0b5ed8d, "0.000001"),
        (0x41b3de4355555553, "333333333.3333332"),
        (0x41b3de4355555554, "333333333.33333325"),
        (0x41b3de4355555555, "333333333.3333333"),
        (0x41b3de4355555556, "333333333.3333334"),
        (0x41b3de4355555557, "333333333.33333343"),
        (0xbecbf647612f3696, "-0.0000033333333333333333"),
        (0x43143ff3c1cb0959, "1424953923781206.2"),
    ] {
        assert_eq!(spelled(&json!(f64::from_bits(bits))), expected, "{bits:016x}");
    }
    assert_eq!(
        spelled(&json!([u64::MAX, i64::MIN])),
        "[18446744073709551615,-9223372036854775808]"
    );
}

/// Section 3.2.3 of RFC 8785: keys by UTF-16, and its string escapes.
#[test]
fn keys_and_strings_are_spelled_as_rfc_8785_has_them() {
    let value = json!({
        "\u{20ac}": "Euro Sign", "\r": "Carriage Return", "\u{fb33}": "Hebrew Letter Dalet With Dagesh",
        "1": "One", "\u{1f600}": "Emoji: Grinning Face", "\u{80}": "Control",
        "\u{f6}": "Latin Small Letter O With Diaeresis"
    });
    let expected = "{\"\\r\":\"Carriage Return\",\"1\":\"One\",\"\u{80}\":\"Control\",\
        \"\u{f6}\":\"Latin Small Letter O With Diaeresis\",\"\u{20ac}\":\"Euro Sign\",\
        \"\u{1f600}\":\"Emoji: Grinning Face\",\"\u{fb33}\":\"Hebrew Letter Dalet With Dagesh\"}";
    assert_eq!(spelled(&value), expected);
    let text = "\u{20ac}$\u{f}\nA'\u{42}\"\\\\\"/\u{8}\t\u{c}";
    assert_eq!(spelled(&json!(text)), r#""€$\u000f\nA'B\"\\\\\"/\b\t\f""#);
}

#[test]
fn a_digest_is_that_of_the_spelling_and_has_one_itself() {
    let digest = canonical::digest(&json!({}));
    let hex = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a";
    assert_eq!(digest.to_string(), hex);
    assert_eq!(hex.parse(), Ok(digest));
    for bad in ["", "44", &hex.to_uppercase(), &hex[1..], &format!("{hex}0"), &"é".repeat(32)] {
        assert!(bad.parse::<hotcell_request::Digest>().is_err(), "{bad}");
    }
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 64, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
            prop::collection::btree_map(any::<String>(), inner, 0..8)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// What is read or adopted; the rest is refused.
fn good_value() -> impl Strategy<Value = Value> {
    any_value().prop_filter_map("a number is refused", |v| json::adopt(v, &Bounds::CALL).ok())
}

/// Another spelling: other white space, keys in another order.
fn respelled(value: &Value, seed: u64, out: &mut String) {
    let space =
        |n: u64| [" ", "", "\n", "\t\r "][(seed.wrapping_mul(31).wrapping_add(n) % 4) as usize];
    out.push_str(space(1));
    match value {
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                out.push_str(if index > 0 { "," } else { "" });
                respelled(item, seed.wrapping_add(index as u64), out);
            }
            out.push(']');
        }
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            if seed.is_multiple_of(2) {
                members.reverse();
            }
            out.push('{');
            for (index, (key, member)) in members.into_iter().enumerate() {
                out.push_str(if index > 0 { "," } else { "" });
                out.push_str(&serde_json::to_string(key).unwrap());
                out.push_str(space(2));
                out.push(':');
                respelled(member, seed / 2, out);
            }
            out.push('}');
        }
        other => out.push_str(&other.to_string()),
    }
    out.push_str(space(3));
}

proptest! {
    #[test]
    fn a_spelling_reads_back_and_is_its_own_spelling(value in good_value()) {
        let bytes = canonical::bytes(&value);
        let read = json::parse(&bytes, &Bounds::CALL).unwrap();
        prop_assert_eq!(&read, &value);
        prop_assert_eq!(canonical::bytes(&read), bytes);
    }

    #[test]
    fn order_and_white_space_never_matter(value in good_value(), seed: u64) {
        let mut text = String::new();
        respelled(&value, seed, &mut text);
        prop_assert_eq!(parse(&text).unwrap(), value);
    }

    #[test]
    fn different_values_have_different_spellings(a in good_value(), b in good_value()) {
        prop_assert_eq!(a == b, canonical::bytes(&a) == canonical::bytes(&b));
    }

    #[test]
    fn neighbouring_numbers_have_different_spellings(bits: u64, integer: u64) {
        let double = f64::from_bits(bits);
        prop_assume!(double.is_finite() && f64::from_bits(bits ^ 1).is_finite());
        prop_assert_ne!(spelled(&json!(double)), spelled(&json!(f64::from_bits(bits ^ 1))));
        prop_assert_ne!(spelled(&json!(integer)), spelled(&json!(integer ^ 1)));
    }

    #[test]
    fn reading_anything_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        drop(json::parse(&bytes, &Bounds::CALL));
    }

    /// What passes is what serde_json reads, but for the spelling of numbers; what it refuses, we do.
    #[test]
    fn nothing_passes_that_is_not_json(text in r#"[\[\]{}:,"\\a0-9.eE+ u\-tfn]{0,24}"#) {
        let ours = parse(&text);
        let theirs = serde_json::from_str::<Value>(&text);
        if let Ok(value) = ours {
            prop_assert_eq!(Ok(value), json::adopt(theirs.unwrap(), &Bounds::CALL));
        }
    }

    #[test]
    fn json_like_text_is_read_or_refused(value in any_value(), cut in 0..200_usize, flip: u8) {
        let mut bytes = value.to_string().into_bytes();
        if let Some(byte) = bytes.get_mut(cut) {
            *byte ^= flip;
        }
        drop(json::parse(&bytes, &Bounds::CALL));
        bytes.truncate(cut);
        drop(json::parse(&bytes, &Bounds::CALL));
    }

    #[test]
    fn a_key_twice_is_always_refused(mut keys in prop::collection::vec("[a-c]{0,2}", 2..6)) {
        keys.push(keys[0].clone());
        let members: Vec<String> = keys.iter().map(|key| format!("{key:?}:1")).collect();
        let object = format!("{{{}}}", members.join(","));
        prop_assert!(parse(&object).is_err());
        let array = format!("[{object}]");
        prop_assert!(parse(&array).is_err());
    }
}

#[test]
fn a_map_of_a_program_is_spelled_whatever_its_order() {
    let mut map = Map::new();
    for key in ["b", "a", "\u{fb33}", "\u{1f600}"] {
        map.insert(key.into(), json!(1));
    }
    assert_eq!(spelled(&Value::Object(map)), "{\"a\":1,\"b\":1,\"\u{1f600}\":1,\"\u{fb33}\":1}");
}
