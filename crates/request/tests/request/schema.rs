//! What a schema refuses to be, and what it says of values.

use std::time::{Duration, Instant};

use hotcell_request::{Mark, Schema};
use proptest::prelude::*;
use serde_json::{Value, json};

fn schema(source: Value) -> Schema {
    Schema::new(&source).unwrap_or_else(|fault| panic!("{source}: {fault}: {}", fault.why()))
}

fn faults(schema: &Schema, value: Value) -> Vec<String> {
    schema.validate(&value).err().unwrap_or_default().iter().map(ToString::to_string).collect()
}

#[test]
fn faults_name_the_field_in_words() {
    let schema = schema(json!({
        "type": "object",
        "properties": {
            "path": {"type": "string", "maxLength": 8},
            "mode": {"enum": ["read", "write"]},
            "many": {"enum": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]},
            "size": {"type": ["integer", "null"], "minimum": 1, "maximum": 9},
            "list": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2, "uniqueItems": true},
            "name": {"type": "string", "pattern": "^[a-z]+$"},
            "one": {"const": 1},
            "pick": {"oneOf": [
                {"type": "string"},
                {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
            ]},
            "a/b": {"type": "number", "exclusiveMinimum": 0, "multipleOf": 2}
        },
        "required": ["path"],
        "additionalProperties": false
    }));
    for (value, expected) in [
        (json!({}), "/path: `path` is missing"),
        (json!({"path": 5}), "/path: 5 is not a string"),
        (json!({"path": "123456789"}), "/path: \"123456789\" is too long"),
        (json!({"path": "", "mode": "Read"}), "/mode: \"Read\" is not one of \"read\", \"write\""),
        (
            json!({"path": "", "many": 0}),
            "/many: 0 is not one of 1, 2, 3, 4, 5, 6, 7, 8 and 2 more",
        ),
        (json!({"path": "", "size": "1"}), "/size: \"1\" is not null or an integer"),
        (json!({"path": "", "size": 1.5}), "/size: 1.5 is not null or an integer"),
        (json!({"path": "", "size": 0}), "/size: 0 is less than 1"),
        (json!({"path": "", "size": 10}), "/size: 10 is more than 9"),
        (json!({"path": "", "list": [true, 1]}), "/list/1: 1 is not true or false"),
        (json!({"path": "", "list": [true, true, false]}), "/list: an array of 3 is too many"),
        (json!({"path": "", "name": "A\u{1b}"}), "/name: \"A\\u{1b}\" does not match `^[a-z]+$`"),
        (json!({"path": "", "one": 2}), "/one: 2 is not 1"),
        (json!({"path": "", "pick": 2}), "/pick: 2 has none of the forms that it can have"),
        (json!({"path": "", "pick": {"a": "x"}}), "/pick/a: \"x\" is not an integer"),
        (json!({"path": "", "pick": {}}), "/pick/a: `a` is missing"),
        (json!({"path": "", "a/b": 0}), "/a~1b: 0 is not more than 0"),
        (json!({"path": "", "sandbox": false}), "/sandbox: `sandbox` is not known here"),
        (json!({"path": "", "__proto__": {}}), "/__proto__: `__proto__` is not known here"),
        (json!([]), "an array of 0 is not an object"),
    ] {
        let found = faults(&schema, value.clone());
        assert!(found.iter().any(|f| f == expected), "{value}: {found:?}, not {expected}");
    }
    assert_eq!(
        faults(&schema, json!({"path": "a", "size": null, "list": [], "pick": "x"})),
        [""; 0]
    );
}

#[test]
fn at_most_20_faults_are_told_whatever_is_wrong() {
    let schema = schema(json!({"type": "array", "items": {"type": "string"}}));
    assert_eq!(faults(&schema, json!(vec![0; 100])).len(), 20);
    let start = Instant::now();
    assert_eq!(faults(&schema, json!(vec![0; 900_000])).len(), 1);
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    let closed = Schema::of_arguments(&json!({"type": "object"})).unwrap();
    let many: Value = (0..1000).map(|n| (n.to_string(), json!(1))).collect();
    assert_eq!(faults(&closed, many).len(), 20);
}

#[test]
fn a_fault_shows_no_secret() {
    let schema = schema(json!({
        "properties": {
            "key": {"type": "string", "maxLength": 3, "x-hotcell": "secret"},
            "all": {"x-hotcell": "secret", "properties": {"inner": {"type": "integer"}}},
            "pick": {"anyOf": [{"const": "a", "x-hotcell": "secret"}, {"const": "b"}]},
            "list": {"type": "array", "uniqueItems": true, "items": {"x-hotcell": "secret"}}
        }
    }));
    for value in [
        json!({"key": "hunter2"}),
        json!({"all": {"inner": "hunter2"}}),
        json!({"pick": "hunter2"}),
        json!({"list": ["hunter2", "hunter2"]}),
    ] {
        let faults = schema.validate(&value).unwrap_err();
        assert!(!format!("{faults:?}").contains("hunter2"), "{faults:?}");
    }
}

#[test]
fn tool_05_schemas_that_lead_elsewhere_are_refused_at_their_place() {
    for (source, at) in [
        (json!({"$ref": "http://169.254.169.254/latest"}), "/$ref"),
        (json!({"$ref": "file:///proc/self/environ"}), "/$ref"),
        (json!({"$ref": "../../etc/passwd"}), "/$ref"),
        (json!({"$ref": "other.json#/a"}), "/$ref"),
        (json!({"$ref": "https://json-schema.org/draft/2020-12/schema"}), "/$ref"),
        (json!({"$ref": "#anchor"}), "/$ref"),
        (json!({"$ref": "#/$defs/none"}), "/$ref"),
        (json!({"$ref": "#/%24defs/a", "$defs": {"a": true}}), "/$ref"),
        (json!({"examples": [{"$ref": "http://a/"}]}), "/examples/0/$ref"),
        (
            json!({"$defs": {"unused": {"items": {"$ref": "http://a/"}}}}),
            "/$defs/unused/items/$ref",
        ),
        (json!({"properties": {"a": {"$id": "http://a/"}}}), "/properties/a/$id"),
        (json!({"$defs": {"a": {"$anchor": "a"}}}), "/$defs/a/$anchor"),
        (json!({"not": {"$schema": "http://json-schema.org/draft-07/schema#"}}), "/not/$schema"),
        (json!({"$dynamicRef": "#a"}), "/$dynamicRef"),
        (json!({"$recursiveRef": "#"}), "/$recursiveRef"),
        (json!({"$schema": "http://a/meta"}), "/$schema"),
        (json!({"$schema": "http://json-schema.org/draft-03/schema#"}), "/$schema"),
        (json!({"$schema": 7}), "/$schema"),
    ] {
        let fault = Schema::new(&source).expect_err(&source.to_string());
        assert_eq!(fault.at(), at, "{source}: {fault}");
    }
    for draft in [
        "https://json-schema.org/draft/2020-12/schema",
        "https://json-schema.org/draft/2019-09/schema",
        "http://json-schema.org/draft-07/schema#",
        "http://json-schema.org/draft-07/schema",
    ] {
        schema(json!({"$schema": draft, "$id": "http://a/b", "type": "object"}));
    }
    // A property may have any name.
    schema(json!({"properties": {"$ref": {"type": "string"}, "$id": {"type": "string"}}}));
}

#[test]
fn schemas_that_do_not_compile_are_refused() {
    for source in [
        json!({"type": "text"}),
        json!({"properties": []}),
        json!({"pattern": "("}),
        json!({"pattern": "(?=a)b"}),
        json!({"pattern": "(a)\\1"}),
        json!({"pattern": "\\w{4000}\\w{4000}"}),
        json!({"minimum": "1"}),
        json!({"required": "a"}),
        json!({"items": 5}),
        json!("string"),
        json!(null),
        json!([]),
    ] {
        assert!(Schema::new(&source).is_err(), "{source}");
    }
}

/// The library has an engine that backtracks as well. Nothing in a schema gets there: what only that could
/// look for is refused wherever a pattern can stand, and what it would never finish is finished.
#[test]
fn res_18_no_pattern_of_a_schema_backtracks() {
    for bad in ["(?=a)b", "(?!a)b", "(?<=a)b", "(a)\\1", "(?>a+)b", "a++b"] {
        for place in [
            json!({"pattern": bad}),
            json!({"patternProperties": {bad: true}}),
            json!({"propertyNames": {"pattern": bad}}),
            json!({"$defs": {"x": {"pattern": bad}}, "properties": {"a": {"$ref": "#/$defs/x"}}}),
            json!({"not": {"anyOf": [{"pattern": bad}]}}),
            json!({"patternProperties": {bad: true}, "unevaluatedProperties": false}),
            json!({"patternProperties": {bad: true}, "additionalProperties": false}),
        ] {
            // `a++` is one of many, twice, to an engine that looks at each byte once.
            let is_fine = bad == "a++b";
            assert_eq!(Schema::new(&place).is_ok(), is_fine, "{place}");
        }
    }
    let text = format!("{}!", "a".repeat(1 << 20));
    for hostile in ["^(a+)+$", "^(a|a)*$", "^(a*)*b", "^([a-z]+)*[0-9]$", "^[ab]{1,1000}c$"] {
        let is_one = Schema::new(&json!({"properties": {"x": {"pattern": hostile}}})).unwrap();
        assert!(is_one.validate(&json!({ "x": text })).is_err(), "{hostile}");
        let name = json!({"patternProperties": {hostile: false}, "additionalProperties": true});
        assert!(Schema::new(&name).unwrap().validate(&json!({ &text: 1 })).is_ok(), "{hostile}");
    }
}

#[test]
fn tool_06_large_deep_and_intricate_schemas_are_refused_at_once() {
    let deep = (0..65).fold(json!(true), |schema, _| json!({"not": schema}));
    let large = json!({"description": "x".repeat(256 << 10)});
    let names: Vec<Value> = (0..200_000).map(|_| json!(true)).collect();
    let patterns: Value = (0..300).map(|n| (format!("p{n}"), json!({"pattern": "a"}))).collect();
    // Each level twice the one below: 2^40 ways to the last.
    let mut defs = serde_json::Map::from_iter([("d40".to_owned(), json!(true))]);
    for n in 0..40 {
        let next = json!({"$ref": format!("#/$defs/d{}", n + 1)});
        defs.insert(format!("d{n}"), json!({"allOf": [next, next]}));
    }
    let doubling = json!({"$ref": "#/$defs/d0", "$defs": defs});
    let below = json!({"properties": {"a": {"items": {"$ref": "#/$defs/d0"}}}, "$defs": defs});
    for (what, source) in [
        ("deep", deep),
        ("large", large),
        ("many", json!({"allOf": names})),
        ("patterns", json!({"properties": patterns})),
        ("itself", json!({"$ref": "#"})),
        (
            "in a circle",
            json!({"$ref": "#/$defs/a", "$defs": {
            "a": {"allOf": [{"$ref": "#/$defs/b"}]}, "b": {"anyOf": [{"$ref": "#/$defs/a"}]}}}),
        ),
        ("in a circle below", json!({"properties": {"a": {"not": {"$ref": "#/properties/a"}}}})),
        ("doubling", doubling),
        ("doubling below", below),
    ] {
        let start = Instant::now();
        assert!(Schema::new(&source).is_err(), "{what}");
        assert!(start.elapsed() < Duration::from_secs(10), "{what}: {:?}", start.elapsed());
    }
}

#[test]
fn tool_06_a_value_that_multiplies_the_work_is_refused() {
    // For each level of the value, everything below is looked at twice.
    let again = json!({"properties": {"x": {"$ref": "#"}}});
    let schema = schema(json!({"allOf": [again, again]}));
    let deep = (0..60).fold(json!({}), |value, _| json!({"x": value}));
    let start = Instant::now();
    assert!(faults(&schema, deep)[0].contains("takes too long"));
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    let shallow = (0..8).fold(json!({}), |value, _| json!({"x": value}));
    assert_eq!(faults(&schema, shallow), [""; 0]);
}

#[test]
fn a_tree_is_not_intricate() {
    let node = json!({"type": "object", "properties": {
        "left": {"$ref": "#/$defs/node"}, "right": {"$ref": "#/$defs/node"}, "file": {"x-hotcell": "path"}}});
    let schema = schema(json!({"$ref": "#/$defs/node", "$defs": {"node": node}}));
    let tree =
        (0..12).fold(json!({"file": "f"}), |value, _| json!({"left": value, "right": value}));
    assert_eq!(faults(&schema, tree.clone()), [""; 0]);
    assert_eq!(schema.marks(&tree).unwrap().len(), 4096);
}

#[test]
fn marks_are_found_wherever_a_value_is_checked() {
    let path = json!({"type": "string", "x-hotcell": "path"});
    let host = json!({"type": "string", "x-hotcell": "host"});
    for (source, value, expected) in [
        (json!({"properties": {"p": path}}), json!({"p": "a", "q": "b"}), vec![("/p", Mark::Path)]),
        (
            json!({"properties": {"p": {"items": path}}}),
            json!({"p": ["a", "b"]}),
            vec![("/p/0", Mark::Path), ("/p/1", Mark::Path)],
        ),
        (
            json!({"prefixItems": [path], "items": host}),
            json!(["a", "b", "c"]),
            vec![("/0", Mark::Path), ("/1", Mark::Host), ("/2", Mark::Host)],
        ),
        (
            json!({"$schema": "http://json-schema.org/draft-07/schema#", "items": [path], "additionalItems": host}),
            json!(["a", "b"]),
            vec![("/0", Mark::Path), ("/1", Mark::Host)],
        ),
        (
            json!({"properties": {"q": true}, "additionalProperties": path}),
            json!({"a/b": "x", "q": 1}),
            vec![("/a~1b", Mark::Path)],
        ),
        (json!({"patternProperties": {"^p": path}}), json!({"p": "a"}), vec![("/p", Mark::Path)]),
        (
            json!({"properties": {"p": {"$ref": "#/$defs/p", "x-hotcell": "secret"}}, "$defs": {"p": path}}),
            json!({"p": "a"}),
            vec![("/p", Mark::Path), ("/p", Mark::Secret)],
        ),
        (
            json!({"if": {"properties": {"p": path}}, "then": {"properties": {"q": host}}}),
            json!({"p": "a", "q": "b"}),
            vec![("/p", Mark::Path), ("/q", Mark::Host)],
        ),
        (
            json!({"dependentSchemas": {"p": {"properties": {"p": path}}}}),
            json!({"p": "a"}),
            vec![("/p", Mark::Path)],
        ),
        (
            json!({"properties": {"m": {"x-hotcell": "method"}, "u": {"x-hotcell": "url"}}}),
            json!({"m": "GET", "u": "http://a/"}),
            vec![("/m", Mark::Method), ("/u", Mark::Url)],
        ),
    ] {
        let found = schema(source.clone()).marks(&value).unwrap();
        let found: Vec<_> = found.iter().map(|(at, mark)| (at.as_str(), *mark)).collect();
        assert_eq!(found, expected, "{source}");
    }
}

#[test]
fn marks_without_effect_or_meaning_are_refused() {
    for (source, at) in [
        (json!({"properties": {"p": {"x-hotcell": "file"}}}), "/properties/p/x-hotcell"),
        (json!({"properties": {"p": {"x-hotcell": true}}}), "/properties/p/x-hotcell"),
        (json!({"$defs": {"p": {"x-hotcell": "path"}}}), "/$defs/p"),
        (json!({"contentSchema": {"x-hotcell": "path"}}), "/contentSchema"),
        (json!({"propertyNames": {"x-hotcell": "path"}}), "/propertyNames"),
        (
            json!({"propertyNames": {"$ref": "#/$defs/p"}, "items": {"$ref": "#/$defs/p"}, "$defs": {
            "p": {"x-hotcell": "path"}}}),
            "/$defs/p",
        ),
        (
            json!({"$schema": "http://json-schema.org/draft-07/schema#", "prefixItems": [true],
            "items": {"x-hotcell": "path"}}),
            "/prefixItems",
        ),
        (json!({"examples": [{"x-hotcell": "path"}]}), "/examples/0"),
        (json!({"properties": {"x-hotcell": {"type": "string"}}}), "/properties/x-hotcell"),
    ] {
        let fault = Schema::new(&source).expect_err(&source.to_string());
        assert_eq!(fault.at(), at, "{source}: {fault}");
    }
}

#[test]
fn arguments_are_closed_unless_the_schema_decides() {
    let base = json!({"type": "object", "properties": {"a": true}});
    let with = |key: &str, value: Value| {
        let mut schema = base.clone();
        schema[key] = value;
        Schema::of_arguments(&schema).unwrap()
    };
    let b = json!({"properties": {"b": true}});
    let both = json!({"a": 1, "b": 1});
    assert_eq!(faults(&with("title", json!("t")), both.clone()), ["/b: `b` is not known here"]);
    assert_eq!(faults(&with("additionalProperties", json!(true)), both.clone()), [""; 0]);
    assert_eq!(faults(&with("allOf", json!([b])), both.clone()), [""; 0]);
    let open = json!({"a": 1, "b": 1, "c": 1});
    assert_eq!(faults(&with("allOf", json!([b])), open), ["/c: `c` is not known here"]);
    for bad in
        [json!({}), json!(true), json!({"type": "array"}), json!({"type": ["object", "null"]})]
    {
        assert!(Schema::of_arguments(&bad).is_err(), "{bad}");
    }
}

#[test]
fn defaults_are_put_in_once() {
    for (source, value, expected) in [
        (json!({"properties": {"a": {"default": 1}}}), json!({}), json!({"a": 1})),
        (json!({"properties": {"a": {"default": 1}}}), json!({"a": null}), json!({"a": null})),
        (
            json!({"properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"default": [1]}}}),
            json!({}),
            json!({"a": [1]}),
        ),
        (
            json!({"properties": {"a": {"items": {"properties": {"b": {"default": 2}}}}}}),
            json!({"a": [{}, {"b": 3}, 4]}),
            json!({"a": [{"b": 2}, {"b": 3}, 4]}),
        ),
        // One branch has the default, the other the defaults inside of it.
        (
            json!({"allOf": [
                {"properties": {"a": {"properties": {"b": {"default": 1}}}}},
                {"properties": {"a": {"default": {}}}}
            ]}),
            json!({}),
            json!({"a": {"b": 1}}),
        ),
        (json!({"anyOf": [{"properties": {"a": {"default": 1}}}]}), json!({}), json!({})),
    ] {
        let schema = schema(source.clone());
        let mut filled = value;
        schema.fill(&mut filled).unwrap();
        assert_eq!(filled, expected, "{source}");
        schema.fill(&mut filled).unwrap();
        assert_eq!(filled, expected, "{source} again");
    }
    let endless = json!({"properties": {"x": {"$ref": "#", "default": {}}}});
    assert_eq!(Schema::new(&endless).unwrap_err().at(), "/properties/x/default");
}

#[test]
fn defaults_do_not_multiply_without_end() {
    let large = json!({"items": {"properties": {"x": {"default": "x".repeat(200_000)}}}});
    let mut value = json!(vec![json!({}); 300_000]);
    assert!(schema(large).fill(&mut value).unwrap_err().what().contains("takes too long"));
}

#[test]
fn many_values_are_checked_in_good_time() {
    let args: Value = (0..200_000).map(|n| (n.to_string(), json!(n))).collect();
    for source in [
        json!({"type": "object", "additionalProperties": {"type": "integer"}}),
        json!({"type": "object", "allOf": [{"additionalProperties": {"type": "integer"}}]}),
    ] {
        let schema = Schema::of_arguments(&source).unwrap();
        let start = Instant::now();
        assert_eq!(faults(&schema, args.clone()), [""; 0]);
        assert!(start.elapsed() < Duration::from_secs(20), "{source}: {:?}", start.elapsed());
    }
}

proptest! {
    /// Whatever is in a schema, it is compiled or refused; whatever it is held against, it answers.
    #[test]
    fn any_schema_compiles_or_is_refused(keys in prop::collection::vec(0..18_usize, 1..12), value in 0..6_usize) {
        let words = ["type", "properties", "items", "$ref", "allOf", "not", "enum", "default", "x-hotcell",
            "additionalProperties", "prefixItems", "if", "pattern", "$defs", "required", "contains",
            "propertyNames", "unevaluatedProperties"];
        let source = keys.iter().fold(json!({"type": "object"}), |inner, &key| match words[key] {
            "type" => json!({"type": "object", "properties": {"a": inner}}),
            "properties" | "$defs" => json!({words[key]: {"a": inner, "b": {"$ref": "#"}}}),
            "$ref" => json!({"$ref": "#/$defs/a", "$defs": {"a": inner}}),
            "allOf" | "prefixItems" => json!({words[key]: [inner, inner]}),
            "enum" => json!({"enum": [inner]}),
            "x-hotcell" => json!({"x-hotcell": "path", "not": inner}),
            "pattern" => json!({"pattern": "a+", "items": inner}),
            "required" => json!({"required": ["a"], "contains": inner}),
            word => json!({word: inner}),
        });
        let values = [json!(null), json!({}), json!({"a": {"a": ["x"]}}), json!([["a"]]), json!("a"), json!(1)];
        if let Ok(schema) = Schema::new(&source) {
            let mut value = values[value].clone();
            schema.fill(&mut value).unwrap();
            let once = value.clone();
            schema.fill(&mut value).unwrap();
            prop_assert_eq!(&once, &value);
            drop(schema.validate(&value));
            drop(schema.marks(&value));
        }
    }
}
