//! How schemas hang together, and what is refused before one is compiled. The checks know every way from
//! a schema to another; what they do not know cannot be used.

use std::collections::BTreeSet;

use jsonschema::Draft;
use serde_json::{Map, Value};

use super::PATTERNS_MOST;
use super::walk::{self, Budget, MARK, Mark};
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
pub(super) fn check(root: &Value, draft: Draft) -> Result<(), Fault> {
    let mut scan = Scan { root, draft, patterns: 0, marked: Vec::new() };
    scan.visit(root, &mut String::new())?;
    let mut budget = Budget::for_a_schema();
    let (of_values, names) = reached(&mut budget, root, vec![root])?;
    let (of_names, _) = reached(&mut budget, root, names)?;
    let works =
        |schema| of_values.contains(&address(schema)) && !of_names.contains(&address(schema));
    if let Some((at, _)) = scan.marked.iter().find(|(_, schema)| !works(schema)) {
        return Err(Fault::new(
            at,
            format!("`{MARK}` has no effect here"),
            "only values are looked at for it, and only where a schema is used",
            "put it beside the `type` of the property, and use each definition",
        ));
    }
    whole_defaults(&mut budget, root, root, &mut String::new())
}

/// Looks at every object of the document, whether it is a schema or not.
struct Scan<'s> {
    root: &'s Value,
    draft: Draft,
    patterns: usize,
    marked: Vec<(String, &'s Value)>,
}

/// Keys that give a part of the schema a name or a draft of its own, or look one up by its name.
const NAMED: [&str; 7] = [
    "$id",
    "$anchor",
    "$dynamicAnchor",
    "$dynamicRef",
    "$recursiveAnchor",
    "$recursiveRef",
    "$schema",
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
            // Older drafts do not know it, and so it would not count where the elements after it begin.
            ("prefixItems", Value::Array(_)) if self.draft != Draft::Draft202012 => {
                Err(Fault::new(
                    at,
                    "`prefixItems` is not of this draft",
                    "it would be ignored",
                    "use draft 2020-12, or an array of `items`",
                ))
            }
            ("pattern", Value::String(_)) => self.pattern(1, at),
            ("patternProperties", Value::Object(all)) => self.pattern(all.len(), at),
            (MARK, value) => {
                walk::mark(value).ok_or_else(|| unknown_mark(value, at))?;
                let owner = at.rsplit_once('/').map(|(owner, _)| owner).unwrap_or_default();
                self.marked.push((owner.to_owned(), of));
                Ok(())
            }
            // The draft of the whole is known already.
            ("$schema", _) if at == "/$schema" => Ok(()),
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
        if self.patterns <= PATTERNS_MOST {
            return Ok(());
        }
        Err(Fault::new(
            at,
            format!("there are more than {PATTERNS_MOST} patterns"),
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

/// The schemas that are used from these on, and apart from them those that the names of members are held
/// against. Each comes to an end.
fn reached<'s>(
    budget: &mut Budget,
    root: &'s Value,
    mut waiting: Vec<&'s Value>,
) -> Result<(BTreeSet<usize>, Vec<&'s Value>), Fault> {
    let mut reached: BTreeSet<usize> = waiting.iter().map(|schema| address(schema)).collect();
    let mut names = Vec::new();
    while let Some(schema) = waiting.pop() {
        // With a value that has no parts, only what speaks of the same value is followed.
        walk::walk_within(budget, root, schema, &Value::Null)?;
        for (reach, part) in schema.as_object().map(|s| parts(root, s)).unwrap_or_default() {
            if reach == Reach::Names {
                names.push(part);
            } else if reached.insert(address(part)) {
                waiting.push(part);
            }
        }
    }
    Ok((reached, names))
}

/// Whether something that this schema speaks of is marked as a path.
pub(super) fn takes_path(root: &Value, schema: &Value) -> bool {
    let (mut waiting, mut seen) = (vec![schema], BTreeSet::new());
    while let Some(schema) = waiting.pop() {
        let Some(members) = schema.as_object().filter(|_| seen.insert(address(schema))) else {
            continue;
        };
        if members.get(MARK).and_then(walk::mark) == Some(Mark::Path) {
            return true;
        }
        let parts = parts(root, members).into_iter().filter(|(reach, _)| *reach != Reach::Names);
        waiting.extend(parts.map(|(_, part)| part));
    }
    false
}

/// Every default is whole: putting defaults into it changes nothing.
fn whole_defaults(
    budget: &mut Budget,
    root: &Value,
    value: &Value,
    at: &mut String,
) -> Result<(), Fault> {
    let length = at.len();
    let parts: Vec<(String, &Value)> = match value {
        Value::Array(items) => items.iter().enumerate().map(|(i, v)| (i.to_string(), v)).collect(),
        Value::Object(members) => members.iter().map(|(k, v)| (k.clone(), v)).collect(),
        _ => return Ok(()),
    };
    if let Some(default) = value.get("default") {
        push_key(at, "default");
        let mut filled = default.clone();
        walk::fill_within(budget, root, value, &mut filled).map_err(|fault| fault.within(at))?;
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
        whole_defaults(budget, root, part, at)?;
        at.truncate(length);
    }
    Ok(())
}

/// Which value it is, not what is in it.
fn address(value: &Value) -> usize {
    std::ptr::from_ref(value) as usize
}
