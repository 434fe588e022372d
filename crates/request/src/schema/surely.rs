//! Whether a value fits a schema without a doubt, by looking at the schema as it is. Compiling one takes
//! the validator milliseconds the first time; most values are plain, and fit. What is not known here, or
//! does not fit, is for the validator to say, so that it alone decides what is refused, and in which words.

use serde_json::{Map, Number, Value};

use super::shape::resolve;
use super::walk::MARK;

/// Integers up to here are doubles as well.
const DOUBLES_EXACT: f64 = 9_007_199_254_740_992.0;

/// True only for what the validator says is valid, in draft 2020-12. Never goes where
/// [`walk`](super::walk::walk) does not go, which has to have been there before: that is its bound.
pub(super) fn fits(root: &Value, schema: &Value, value: &Value) -> bool {
    match schema {
        Value::Bool(fits) => *fits,
        Value::Object(schema) => {
            schema.iter().all(|(word, says)| holds(root, schema, word, says, value))
        }
        _ => false,
    }
}

fn holds(
    root: &Value,
    schema: &Map<String, Value>,
    word: &str,
    says: &Value,
    value: &Value,
) -> bool {
    match (word, value) {
        // Nothing about the value. What a format means is not checked in this draft.
        (
            "$schema" | "$defs" | "$comment" | "title" | "description" | "default" | "examples"
            | "deprecated" | "readOnly" | "writeOnly" | "format" | MARK,
            _,
        ) => true,
        ("type", _) => match says {
            Value::Array(several) => several.iter().any(|one| is_of_type(one, value)),
            one => is_of_type(one, value),
        },
        ("enum", _) => says.as_array().is_some_and(|choices| choices.contains(value)),
        ("const", _) => says == value,
        ("$ref", _) => says
            .as_str()
            .and_then(|target| resolve(root, target))
            .is_some_and(|schema| fits(root, schema, value)),
        ("allOf", _) => says.as_array().is_some_and(|all| all.iter().all(|s| fits(root, s, value))),
        ("anyOf", _) => says.as_array().is_some_and(|any| any.iter().any(|s| fits(root, s, value))),
        ("oneOf", Value::String(_)) => is_one_of_constants(root, says, value),
        ("minimum", Value::Number(n)) => compare(n, says).is_some_and(|order| order.is_ge()),
        ("maximum", Value::Number(n)) => compare(n, says).is_some_and(|order| order.is_le()),
        ("exclusiveMinimum", Value::Number(n)) => compare(n, says).is_some_and(|o| o.is_gt()),
        ("exclusiveMaximum", Value::Number(n)) => compare(n, says).is_some_and(|o| o.is_lt()),
        ("minLength", Value::String(text)) => at_least(says, text.chars().count()),
        // No text has more characters than bytes.
        ("maxLength", Value::String(text)) => {
            at_most(says, text.len()) || at_most(says, text.chars().count())
        }
        ("minItems", Value::Array(items)) => at_least(says, items.len()),
        ("maxItems", Value::Array(items)) => at_most(says, items.len()),
        ("uniqueItems", Value::Array(items)) => items.len() < 2 || *says == Value::Bool(false),
        ("items", Value::Array(items)) => items.iter().all(|item| fits(root, says, item)),
        ("minProperties", Value::Object(members)) => at_least(says, members.len()),
        ("maxProperties", Value::Object(members)) => at_most(says, members.len()),
        ("required", Value::Object(members)) => says.as_array().is_some_and(|names| {
            names.iter().all(|name| name.as_str().is_some_and(|name| members.contains_key(name)))
        }),
        ("properties", Value::Object(members)) => says.as_object().is_some_and(|properties| {
            let here = properties.iter().filter_map(|(name, s)| Some((s, members.get(name)?)));
            here.into_iter().all(|(schema, member)| fits(root, schema, member))
        }),
        ("additionalProperties", Value::Object(members)) => {
            let named = schema.get("properties").and_then(Value::as_object);
            let is_named = |name: &String| named.is_some_and(|named| named.contains_key(name));
            let mut others = members.iter().filter(|(name, _)| !is_named(name));
            others.all(|(_, member)| fits(root, says, member))
        }
        ("propertyNames" | "patternProperties", Value::Object(members)) => members.is_empty(),
        // They speak of another type.
        ("minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum", _)
        | (
            "minLength" | "maxLength" | "pattern",
            Value::Null | Value::Bool(_) | Value::Number(_),
        )
        | ("minLength" | "maxLength" | "pattern", Value::Array(_) | Value::Object(_))
        | ("minItems" | "maxItems" | "uniqueItems" | "items", _)
        | ("minProperties" | "maxProperties" | "required" | "properties", _)
        | ("additionalProperties" | "propertyNames" | "patternProperties", _) => true,
        _ => false,
    }
}

fn is_of_type(name: &Value, value: &Value) -> bool {
    match (name.as_str(), value) {
        (Some("null"), Value::Null)
        | (Some("boolean"), Value::Bool(_))
        | (Some("number"), Value::Number(_))
        | (Some("string"), Value::String(_))
        | (Some("array"), Value::Array(_))
        | (Some("object"), Value::Object(_)) => true,
        (Some("integer"), Value::Number(number)) => !number.is_f64(),
        _ => false,
    }
}

/// Of schemas that each have a constant, a text fits one at most if all constants are different texts.
fn is_one_of_constants(root: &Value, says: &Value, value: &Value) -> bool {
    let forms = says.as_array().map(Vec::as_slice).unwrap_or_default();
    let constant = |form: &Value| form.get("const").filter(|c| c.is_string()).cloned();
    let all_constant = forms.iter().all(|form| constant(form).is_some());
    let mut same = forms.iter().filter(|form| constant(form).as_ref() == Some(value));
    match (same.next(), same.next()) {
        (Some(only), None) => all_constant && fits(root, only, value),
        _ => false,
    }
}

fn at_least(says: &Value, count: usize) -> bool {
    says.as_u64().is_some_and(|least| count as u64 >= least)
}

fn at_most(says: &Value, count: usize) -> bool {
    says.as_u64().is_some_and(|most| count as u64 <= most)
}

/// `None` where it takes more than doubles to know.
fn compare(number: &Number, with: &Value) -> Option<std::cmp::Ordering> {
    let with = with.as_number()?;
    let whole = |n: &Number| n.as_i64().map(i128::from).or(n.as_u64().map(i128::from));
    if let (Some(one), Some(other)) = (whole(number), whole(with)) {
        return Some(one.cmp(&other));
    }
    let double = |n: &Number| n.as_f64().filter(|d| n.is_f64() || d.abs() < DOUBLES_EXACT);
    double(number)?.partial_cmp(&double(with)?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::super::{Schema, walk};
    use super::*;

    fn surely(schema: &Value, value: &Value) -> bool {
        Schema::later(schema.clone()).surely_fits(value)
    }

    #[test]
    fn what_is_plain_is_known_to_fit() {
        let plain = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "Plain",
            "type": "object",
            "properties": {
                "language": {"$ref": "#/$defs/Language"},
                "code": {"type": "string", "minLength": 1, "maxLength": 9},
                "stdin": {"type": ["string", "null"], "description": "Standard input."},
                "env": {"type": "object", "default": {}, "maxProperties": 2,
                    "propertyNames": {"pattern": "^A"}, "additionalProperties": {"type": "string"}},
                "most": {"type": "integer", "format": "uint64", "minimum": 1, "maximum": 9},
                "mode": {"oneOf": [{"const": "a", "description": "One."}, {"const": "b"}]},
                "paths": {"type": "array", "items": {"type": "string", "x-hotcell": "path"}, "maxItems": 2},
                "sum": {"anyOf": [{"type": "number"}, {"type": "null"}]}
            },
            "required": ["language", "code"],
            "additionalProperties": false,
            "$defs": {"Language": {"type": "string", "enum": ["python", "shell"]}}
        });
        let with = |name: &str, value: Value| {
            let mut args = json!({"language": "python", "code": "äöü"});
            args[name] = value;
            args
        };
        for (name, value, fits) in [
            ("stdin", json!(null), true),
            ("stdin", json!(1), false),
            ("code", json!("äöüäöüäöü"), true),
            ("code", json!("äöüäöüäöü!"), false),
            ("code", json!(""), false),
            ("language", json!("ruby"), false),
            ("env", json!({}), true),
            ("most", json!(9), true),
            ("most", json!(0), false),
            ("most", json!(1.5), false),
            ("mode", json!("b"), true),
            ("mode", json!("c"), false),
            ("paths", json!(["a", "b"]), true),
            ("paths", json!(["a", "b", "c"]), false),
            ("paths", json!(["a", 1]), false),
            ("sum", json!(1e300), true),
            ("sum", json!("1"), false),
            ("other", json!(1), false),
        ] {
            assert_eq!(surely(&plain, &with(name, value.clone())), fits, "{name} {value}");
            let valid = Schema::new(&plain).unwrap().validate(&with(name, value.clone())).is_ok();
            assert_eq!(valid, fits, "{name} {value}");
        }
        assert!(!surely(&plain, &json!({"language": "python"})), "something is missing");
    }

    /// It says no where only the validator knows, and the validator is asked.
    #[test]
    fn what_is_not_plain_is_left_to_the_validator() {
        for (schema, value) in [
            (json!({"pattern": "^a"}), json!("a")),
            (json!({"multipleOf": 2}), json!(4)),
            (json!({"type": "integer"}), json!(1.0)),
            (json!({"not": false}), json!(1)),
            (json!({"oneOf": [{"type": "string"}, {"type": "null"}]}), json!("a")),
            (json!({"propertyNames": {"maxLength": 1}}), json!({"a": 1})),
            (json!({"prefixItems": [true]}), json!([1])),
            (json!({"uniqueItems": true}), json!([1, 2])),
            (json!({"maximum": 1e300}), json!(u64::MAX)),
            (json!({"x-other": 1}), json!(1)),
            (json!({"$schema": "http://json-schema.org/draft-07/schema#"}), json!(1)),
        ] {
            assert!(!surely(&schema, &value), "{schema} {value}");
            let later = Schema::later(schema.clone());
            assert_eq!(later.validate(&value), Ok(()), "{schema} {value}");
            assert!(later.validator.get().is_some());
        }
    }

    fn value() -> impl Strategy<Value = Value> {
        let numbers = [0.5, -1.5, 2.0, 9_007_199_254_740_993.0, 1e300];
        let texts = ["", "a", "ab", "äöü", "abc\u{1f600}"];
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (-3_i64..4).prop_map(Value::from),
            prop::sample::select(vec![i64::MIN, i64::MAX, 1 << 53, (1 << 53) + 1])
                .prop_map(Value::from),
            Just(Value::from(u64::MAX)),
            prop::sample::select(numbers.to_vec()).prop_map(Value::from),
            prop::sample::select(texts.to_vec()).prop_map(Value::from),
        ];
        leaf.prop_recursive(2, 12, 4, |inner| {
            let name = prop::sample::select(vec!["a", "b", "c"]).prop_map(String::from);
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(name, inner, 0..3)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    fn schema() -> impl Strategy<Value = Value> {
        let types =
            ["null", "boolean", "integer", "number", "string", "array", "object"].map(Value::from);
        let one = prop::sample::select(types.to_vec());
        let number = value().prop_filter_map("a number", |v| v.is_number().then_some(v));
        let count = (0_u64..4).prop_map(Value::from);
        let names = prop::sample::subsequence(vec!["a", "b"], 0..3).prop_map(|n| json!(n));
        let word = |words: Vec<&'static str>| prop::sample::select(words).prop_map(String::from);
        let leaf = prop_oneof![
            any::<bool>().prop_map(Value::from),
            Just(json!({})),
            Just(json!({"$ref": "#/$defs/a"})),
            one.clone().prop_map(|one| json!({"type": one})),
            (one.clone(), one).prop_map(|(a, b)| match a == b {
                true => json!({"type": [a]}),
                false => json!({"type": [a, b]}),
            }),
            value().prop_map(|v| json!({"const": v})),
            value().prop_map(|v| json!({"enum": [v]})),
            (word(vec!["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"]), number)
                .prop_map(|(word, n)| json!({word: n})),
            (
                word(vec![
                    "minLength",
                    "maxLength",
                    "minItems",
                    "maxItems",
                    "minProperties",
                    "maxProperties"
                ]),
                count
            )
                .prop_map(|(word, n)| json!({word: n})),
            names.prop_map(|names| json!({"required": names})),
            any::<bool>().prop_map(|unique| json!({"uniqueItems": unique})),
            (word(vec!["", "a", "ab"]), word(vec!["a", "ab", "abc"]))
                .prop_map(|(a, b)| json!({"oneOf": [{"const": a, "minLength": 1}, {"const": b}]})),
            Just(json!({"pattern": "^a"})),
            Just(json!({"format": "email", "title": "t", "x-other": 1})),
        ];
        leaf.prop_recursive(3, 24, 3, |inner| {
            let words = vec![
                "items",
                "additionalProperties",
                "propertyNames",
                "not",
                "contains",
                "unevaluatedProperties",
                "unevaluatedItems",
                "if",
                "then",
            ];
            let all = prop::collection::vec(inner.clone(), 1..3);
            let two = (inner.clone(), inner.clone());
            prop_oneof![
                (prop::sample::select(words).prop_map(String::from), inner.clone())
                    .prop_map(|(word, inner)| json!({word: inner})),
                (word_of_many(), all).prop_map(|(word, all)| json!({word: all})),
                two.clone().prop_map(|(a, b)| json!({"properties": {"a": a, "b": b}})),
                two.clone().prop_map(|(a, b)| {
                    json!({"properties": {"a": a}, "additionalProperties": b})
                }),
                two.clone().prop_map(|(a, b)| {
                    json!({"patternProperties": {"^a": a}, "additionalProperties": b})
                }),
                // Several words of one schema have to hold together.
                prop::collection::vec(inner, 2..4).prop_map(merged),
            ]
        })
    }

    fn word_of_many() -> impl Strategy<Value = String> {
        prop::sample::select(vec!["allOf", "anyOf", "oneOf", "prefixItems"]).prop_map(String::from)
    }

    fn merged(schemas: Vec<Value>) -> Value {
        let objects = schemas.into_iter().filter_map(|schema| schema.as_object().cloned());
        Value::Object(objects.flatten().collect())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]

        /// The one thing that must never be wrong: what surely fits is valid.
        #[test]
        fn what_surely_fits_is_valid(
            mut source in schema(), a in schema(), values in prop::collection::vec(value(), 1..12)
        ) {
            if let Some(members) = source.as_object_mut() {
                members.insert("$defs".into(), json!({"a": a}));
            }
            if let Ok(compiled) = Schema::new(&source) {
                for value in values {
                    if walk::walk(&source, &value).is_ok() && surely(&source, &value) {
                        prop_assert_eq!(compiled.validate(&value), Ok(()), "{} {}", source, value);
                    }
                }
            }
        }
    }
}
