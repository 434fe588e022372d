//! Holding a value against a schema, to find the places that a policy asks for and to put in defaults.
//! It takes every way that a value could be checked on, and is bounded: what costs too much here is
//! not given to the validator either.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::shape::{Reach, parts, resolve};
use crate::fault::{Fault, push_key};

/// The annotation.
pub(crate) const MARK: &str = "x-hotcell";
/// Most schemas that a value is held against, counting each for each part of the value.
const STEPS_MOST: usize = 5_000_000;
/// Most schemas that speak of the same value, for all schemas of a document together.
const SAME_MOST: usize = 500_000;
/// So many bytes of text in a default count as a step.
const STEP_BYTES: usize = 16;
/// Most schemas around a schema on the way to it, references counted.
const DEPTH_MOST: usize = 400;

/// What kind of argument a property is: its schema says `"x-hotcell": "path"`. A mark in any branch of a
/// schema counts, whether the value fits the branch or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mark {
    /// A path below the workspace's root.
    Path,
    /// The name or the address of a host.
    Host,
    /// A method of HTTP.
    Method,
    /// A URL, which names a host as well.
    Url,
    /// Something that is never shown.
    Secret,
}

impl Mark {
    pub const ALL: [Mark; 5] = [Mark::Path, Mark::Host, Mark::Method, Mark::Url, Mark::Secret];

    pub fn name(self) -> &'static str {
        match self {
            Mark::Path => "path",
            Mark::Host => "host",
            Mark::Method => "method",
            Mark::Url => "url",
            Mark::Secret => "secret",
        }
    }
}

pub(super) fn mark(value: &Value) -> Option<Mark> {
    let name = value.as_str()?;
    Mark::ALL.into_iter().find(|mark| mark.name() == name)
}

#[derive(Debug)]
pub(super) struct Walked {
    /// Places, in order, each with its marks.
    pub(super) marks: Vec<(String, Mark)>,
    pub(super) steps: usize,
}

/// What may still be looked at.
pub(super) struct Budget {
    steps: usize,
    most: usize,
}

impl Budget {
    fn for_a_value() -> Budget {
        Budget { steps: 0, most: STEPS_MOST }
    }

    pub(super) fn for_a_schema() -> Budget {
        Budget { steps: 0, most: SAME_MOST }
    }

    fn spend(&mut self, steps: usize, depth: usize) -> Result<(), Fault> {
        self.steps = self.steps.saturating_add(steps);
        if self.steps <= self.most && depth <= DEPTH_MOST {
            return Ok(());
        }
        Err(Fault::new(
            "",
            "it takes too long to hold this against its schema",
            "the schema refers to itself without end, or to too much for so large a value",
            "use a simpler schema or a smaller value",
        ))
    }
}

pub(super) fn walk(root: &Value, value: &Value) -> Result<Walked, Fault> {
    let mut budget = Budget::for_a_value();
    let marks = walk_within(&mut budget, root, root, value)?;
    Ok(Walked { marks, steps: budget.steps })
}

/// The same for a schema inside of `root`.
pub(super) fn walk_within(
    budget: &mut Budget,
    root: &Value,
    schema: &Value,
    value: &Value,
) -> Result<Vec<(String, Mark)>, Fault> {
    let mut walk = Walk { budget, root, at: String::new(), found: BTreeSet::new() };
    walk.visit(schema, value, 0)?;
    Ok(walk.found.into_iter().collect())
}

struct Walk<'w> {
    budget: &'w mut Budget,
    root: &'w Value,
    at: String,
    found: BTreeSet<(String, Mark)>,
}

impl<'w> Walk<'w> {
    fn visit(&mut self, schema: &'w Value, value: &Value, depth: usize) -> Result<(), Fault> {
        let Some(schema) = schema.as_object() else { return Ok(()) };
        let parts = parts(self.root, schema);
        let choices = schema.get("enum").and_then(Value::as_array).map_or(0, Vec::len);
        self.budget.spend(1 + parts.len() + choices, depth)?;
        if let Some(mark) = schema.get(MARK).and_then(mark) {
            self.found.insert((self.at.clone(), mark));
        }
        for (reach, part) in parts {
            match (reach, value) {
                (Reach::Same, value) => self.visit(part, value, depth + 1)?,
                (Reach::Member(name), Value::Object(members)) => {
                    if let Some(member) = members.get(name) {
                        self.member(name, part, member, depth)?;
                    }
                }
                (Reach::Members, Value::Object(members)) => {
                    for (name, member) in members {
                        self.member(name, part, member, depth)?;
                    }
                }
                (Reach::OtherMembers, Value::Object(members)) => {
                    for (name, member) in members.iter().filter(|(name, _)| !names(schema, name)) {
                        self.member(name, part, member, depth)?;
                    }
                }
                (Reach::Element(index), Value::Array(items)) => {
                    if let Some(item) = items.get(index) {
                        self.element(index, part, item, depth)?;
                    }
                }
                (Reach::Elements(from), Value::Array(items)) => {
                    for (index, item) in items.iter().enumerate().skip(from) {
                        self.element(index, part, item, depth)?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn member(
        &mut self,
        name: &str,
        schema: &'w Value,
        value: &Value,
        depth: usize,
    ) -> Result<(), Fault> {
        let length = self.at.len();
        push_key(&mut self.at, name);
        self.visit(schema, value, depth + 1)?;
        self.at.truncate(length);
        Ok(())
    }

    fn element(
        &mut self,
        index: usize,
        schema: &'w Value,
        value: &Value,
        depth: usize,
    ) -> Result<(), Fault> {
        let length = self.at.len();
        self.at.push_str(&format!("/{index}"));
        self.visit(schema, value, depth + 1)?;
        self.at.truncate(length);
        Ok(())
    }
}

fn names(schema: &Map<String, Value>, name: &str) -> bool {
    schema.get("properties").and_then(Value::as_object).is_some_and(|all| all.contains_key(name))
}

/// Puts in the defaults of properties that are left out, on the ways that every value takes: through
/// references, `allOf`, properties and elements.
pub(super) fn fill(root: &Value, value: &mut Value) -> Result<(), Fault> {
    fill_within(&mut Budget::for_a_value(), root, root, value)
}

/// The same for a schema inside of `root`.
pub(super) fn fill_within(
    budget: &mut Budget,
    root: &Value,
    schema: &Value,
    value: &mut Value,
) -> Result<(), Fault> {
    Fill { budget, root }.fill(vec![schema], value, 0)
}

struct Fill<'s> {
    budget: &'s mut Budget,
    root: &'s Value,
}

impl<'s> Fill<'s> {
    /// All schemas that speak of one value are taken together: a default that one of them puts in is
    /// seen by the others, so that a second time changes nothing.
    fn fill(
        &mut self,
        about: Vec<&'s Value>,
        value: &mut Value,
        depth: usize,
    ) -> Result<(), Fault> {
        if about.is_empty() {
            return Ok(());
        }
        let about = self.with_same(about, depth)?;
        match value {
            Value::Object(members) => {
                let properties: Vec<&Map<String, Value>> = about
                    .iter()
                    .filter_map(|schema| schema.get("properties")?.as_object())
                    .collect();
                for (name, part) in properties.iter().copied().flatten() {
                    if let Some(default) = self.default_of(part)
                        && !members.contains_key(name)
                    {
                        // Many small values with a large default each would take all memory.
                        self.budget.spend(weight(default), depth)?;
                        members.insert(name.clone(), default.clone());
                    }
                }
                for (name, member) in members {
                    let parts = properties.iter().filter_map(|all| all.get(name)).collect();
                    self.fill(parts, member, depth + 1)?;
                }
            }
            Value::Array(items) => {
                let each = about.iter().filter(|schema| !schema.contains_key("prefixItems"));
                let each: Vec<&Value> = each.filter_map(|schema| schema.get("items")).collect();
                for item in items {
                    self.fill(each.clone(), item, depth + 1)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The schemas, and those that they put in their place.
    fn with_same(
        &mut self,
        mut waiting: Vec<&'s Value>,
        depth: usize,
    ) -> Result<Vec<&'s Map<String, Value>>, Fault> {
        let mut all = Vec::new();
        while let Some(schema) = waiting.pop() {
            let Some(schema) = schema.as_object() else { continue };
            self.budget.spend(1 + schema.get("properties").map_or(0, size), depth)?;
            waiting.extend(schema.get("allOf").and_then(Value::as_array).into_iter().flatten());
            waiting.extend(self.target(schema.get("$ref")));
            all.push(schema);
        }
        Ok(all)
    }

    /// A schema's default, or that of what it refers to.
    fn default_of(&self, schema: &'s Value) -> Option<&'s Value> {
        schema.get("default").or_else(|| self.target(schema.get("$ref"))?.get("default"))
    }

    fn target(&self, reference: Option<&Value>) -> Option<&'s Value> {
        resolve(self.root, reference?.as_str()?)
    }
}

/// How many steps a value counts for when it is copied.
fn weight(value: &Value) -> usize {
    match value {
        Value::String(text) => 1 + text.len() / STEP_BYTES,
        Value::Array(items) => 1 + items.iter().map(weight).sum::<usize>(),
        Value::Object(members) => {
            let weigh =
                |(key, member): (&String, &Value)| 1 + key.len() / STEP_BYTES + weight(member);
            1 + members.iter().map(weigh).sum::<usize>()
        }
        _ => 1,
    }
}

fn size(value: &Value) -> usize {
    value.as_object().map_or(0, Map::len)
}
