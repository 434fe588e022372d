//! How schemas hang together, and what is refused before one is compiled. The checks know every way from
//! a schema to another; what they do not know cannot be used.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::walk::{self, MARK};
use crate::fault::{Fault, push_key};
use crate::text::shown;

/// Which part of a value another schema speaks of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach<'s> {
    /// The same value.
    Same,
    Member(&'s str),
    /// Every member: which ones a pattern means is not worth knowing here.
    Members,
    /// The members that `properties` does not name.
    OtherMembers,
    /// The names of members.
    Names,
    Element(usize),
    /// The elements from this one on.
    Elements(usize),
}

/// The schemas that a schema uses, with where they are.
pub(super) fn parts<'s>(
    root: &'s Value,
    schema: &'s Map<String, Value>,
) -> Vec<(Reach<'s>, &'s Value)> {
    let mut parts = Vec::new();
    let length = |key: &str| schema.get(key).and_then(Value::as_array).map_or(0, Vec::len);
    for (key, value) in schema {
        match (key.as_str(), value) {
            ("$ref", Value::String(target)) => {
                parts.extend(resolve(root, target).map(|schema| (Reach::Same, schema)));
            }
            ("allOf" | "anyOf" | "oneOf", Value::Array(all)) => {
                parts.extend(all.iter().map(|schema| (Reach::Same, schema)));
            }
            ("not" | "if" | "then" | "else", schema) => parts.push((Reach::Same, schema)),
            ("dependentSchemas" | "dependencies", Value::Object(all)) => {
                parts.extend(all.values().map(|schema| (Reach::Same, schema)));
            }
            ("properties", Value::Object(all)) => {
                parts.extend(all.iter().map(|(name, schema)| (Reach::Member(name), schema)));
            }
            ("patternProperties", Value::Object(all)) => {
                parts.extend(all.values().map(|schema| (Reach::Members, schema)));
            }
            ("additionalProperties", schema) => parts.push((Reach::OtherMembers, schema)),
            ("unevaluatedProperties", schema) => parts.push((Reach::Members, schema)),
            ("propertyNames", schema) => parts.push((Reach::Names, schema)),
            ("prefixItems" | "items", Value::Array(all)) => parts.extend(
                all.iter().enumerate().map(|(index, schema)| (Reach::Element(index), schema)),
            ),
            ("items", schema) => parts.push((Reach::Elements(length("prefixItems")), schema)),
            ("additionalItems", schema) => parts.push((Reach::Elements(length("items")), schema)),
            ("contains" | "unevaluatedItems", schema) => parts.push((Reach::Elements(0), schema)),
            _ => {}
        }
    }
    parts
}

/// What `#` or `#/…` means. There are no other references.
pub(super) fn resolve<'s>(root: &'s Value, target: &str) -> Option<&'s Value> {
    root.pointer(target.strip_prefix('#')?)
}

/// Refuses what leads elsewhere, what has no end, and marks that would have no effect.
pub(super) fn check(root: &Value, patterns_most: usize) -> Result<(), Fault> {
    let mut scan = Scan { root, patterns: 0, patterns_most, marked: Vec::new() };
    scan.visit(root, &mut String::new())?;
    let used = used(root)?;
    let unused = scan.marked.iter().find(|(_, schema)| !used.contains(&address(schema)));
    if let Some((at, _)) = unused {
        return Err(Fault::new(
            at,
            format!("`{MARK}` has no effect here"),
            "no value is ever looked at for it",
            "put it beside the `type` of the property, and use each definition",
        ));
    }
    used_defaults(root)
}

/// Looks at every object of the document, whether it is a schema or not.
struct Scan<'s> {
    root: &'s Value,
    patterns: usize,
    patterns_most: usize,
    marked: Vec<(String, &'s Value)>,
}

/// Keys that give a part of the schema a name of its own, or look one up by it.
const NAMED: [&str; 7] = [
    "$id",
    "$anchor",
    "$dynamicAnchor",
    "$dynamicRef",
    "$recursiveAnchor",
    "$recursiveRef",
    "$vocabulary",
];

impl<'s> Scan<'s> {
    fn visit(&mut self, value: &'s Value, at: &mut String) -> Result<(), Fault> {
        let length = at.len();
        match value {
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    at.push_str(&format!("/{index}"));
                    self.visit(item, at)?;
                    at.truncate(length);
                }
            }
            Value::Object(members) => {
                for (key, member) in members {
                    push_key(at, key);
                    self.member(value, key, member, at)?;
                    self.visit(member, at)?;
                    at.truncate(length);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn member(&mut self, of: &'s Value, key: &str, value: &Value, at: &str) -> Result<(), Fault> {
        match (key, value) {
            ("$ref", Value::String(target)) => self.reference(target, at),
            ("pattern", Value::String(_)) => self.pattern(1, at),
            ("patternProperties", Value::Object(all)) => self.pattern(all.len(), at),
            (MARK, value) => {
                walk::mark(value).ok_or_else(|| unknown_mark(value, at))?;
                let owner = at.rsplit_once('/').map(|(owner, _)| owner).unwrap_or_default();
                self.marked.push((owner.to_owned(), of));
                Ok(())
            }
            (key, value) if NAMED.contains(&key) && !value.is_object() => Err(Fault::new(
                at,
                format!("`{key}` cannot be used"),
                "it changes what references mean",
                "refer to definitions as `#/$defs/name`",
            )),
            _ => Ok(()),
        }
    }

    fn reference(&self, target: &str, at: &str) -> Result<(), Fault> {
        let inside = target == "#" || target.starts_with("#/");
        if inside && !target.contains('%') && resolve(self.root, target).is_some() {
            return Ok(());
        }
        let why = match inside {
            true => "there is nothing at that place",
            false => "nothing is fetched, from wherever",
        };
        let what = format!("the schema refers to `{}`", shown(target, 120));
        Err(Fault::new(at, what, why, "put it into `$defs` and refer to it as `#/$defs/name`"))
    }

    fn pattern(&mut self, count: usize, at: &str) -> Result<(), Fault> {
        self.patterns += count;
        if self.patterns <= self.patterns_most {
            return Ok(());
        }
        Err(Fault::new(
            at,
            format!("there are more than {} patterns", self.patterns_most),
            "each takes memory as long as the tool is there",
            "use fewer",
        ))
    }
}

fn unknown_mark(value: &Value, at: &str) -> Fault {
    Fault::new(
        at,
        format!("`{}` is not a kind of argument", shown(&value.to_string(), 40)),
        "a policy could not ask for it",
        "write path, host, method, url or secret",
    )
}

/// The schemas that values are held against, each of which comes to an end.
fn used(root: &Value) -> Result<BTreeSet<usize>, Fault> {
    let mut used = BTreeSet::from([address(root)]);
    let mut waiting = vec![root];
    let mut budget = walk::Budget::for_a_schema();
    while let Some(schema) = waiting.pop() {
        // With a value that has no parts, only what speaks of the same value is followed.
        walk::walk_within(&mut budget, root, schema, &Value::Null)?;
        for (_, part) in schema.as_object().map(|schema| parts(root, schema)).unwrap_or_default() {
            if used.insert(address(part)) {
                waiting.push(part);
            }
        }
    }
    Ok(used)
}

/// Every default is whole: putting defaults into it changes nothing.
fn used_defaults(root: &Value) -> Result<(), Fault> {
    let mut at = String::new();
    whole_defaults(root, root, &mut at)
}

fn whole_defaults(root: &Value, value: &Value, at: &mut String) -> Result<(), Fault> {
    let length = at.len();
    let parts: Vec<(String, &Value)> = match value {
        Value::Array(items) => items.iter().enumerate().map(|(i, v)| (i.to_string(), v)).collect(),
        Value::Object(members) => members.iter().map(|(k, v)| (k.clone(), v)).collect(),
        _ => return Ok(()),
    };
    if let Some(default) = value.get("default") {
        push_key(at, "default");
        let mut filled = default.clone();
        walk::fill_within(root, value, &mut filled).map_err(|fault| fault.within(at))?;
        if filled != *default {
            return Err(Fault::new(
                at,
                "the default leaves out what has a default itself",
                "it would depend on how often defaults are put in",
                "write the default in full",
            ));
        }
        at.truncate(length);
    }
    for (key, part) in parts {
        push_key(at, &key);
        whole_defaults(root, part, at)?;
        at.truncate(length);
    }
    Ok(())
}

/// Which value it is, not what is in it.
pub(super) fn address(value: &Value) -> usize {
    std::ptr::from_ref(value) as usize
}
