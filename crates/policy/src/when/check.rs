//! Whether a condition can have a value: every field is one of the tool's, and only what can be compared is
//! compared. What the tool's schema leaves open is left open here.

use hotcell_request::{Tool, Value};
use hotcell_types::Door;

use super::Bad;
use super::expr::{Expr, Kind, Op, Var};
use crate::fault::{instead, shown};
use crate::read::{METHODS, MODES, STATES};

/// Most references in a schema that are followed to get to one field.
const REFERENCES_MOST: usize = 16;

/// What is known of a value.
#[derive(Debug, Clone, PartialEq)]
enum Type<'s> {
    Any,
    Null,
    Bool,
    /// Whole or not.
    Number,
    Text,
    List(Box<Type<'s>>),
    /// With the schema that says which fields there are, if there is one.
    Object(Option<&'s Value>),
    Caller,
}

impl Type<'_> {
    fn name(&self) -> &'static str {
        match self {
            Type::Any => "anything",
            Type::Null => "null",
            Type::Bool => "true or false",
            Type::Number => "a number",
            Type::Text => "text",
            Type::List(_) => "a list",
            Type::Object(_) | Type::Caller => "an object",
        }
    }

    /// Whether a value could be of both. Any of them may be missing, and be `null` then.
    fn meets(&self, other: &Type<'_>) -> bool {
        match (self, other) {
            (Type::Any | Type::Null, _) | (_, Type::Any | Type::Null) => true,
            (Type::List(one), Type::List(other)) => one.meets(other),
            (Type::Object(_), Type::Object(_)) => true,
            (one, other) => one == other,
        }
    }
}

/// Checks a condition against the arguments of a tool, or of any tool.
pub(crate) fn check(expr: &Expr, tool: Option<&Tool>) -> Result<(), Bad> {
    let mut checker = Checker { root: tool.map(|tool| &tool.input), locals: Vec::new() };
    let found = checker.of(expr)?;
    if found.meets(&Type::Bool) && found != Type::Null {
        return Ok(());
    }
    let what = format!("`when` is {}", found.name());
    Err(Bad::new(expr.at, what, "write a condition, which is true or false"))
}

struct Checker<'s> {
    root: Option<&'s Value>,
    locals: Vec<Type<'s>>,
}

impl<'s> Checker<'s> {
    fn want(&mut self, expr: &Expr, wanted: &Type<'_>) -> Result<(), Bad> {
        let found = self.of(expr)?;
        if found.meets(wanted) && found != Type::Null {
            return Ok(());
        }
        let what = format!("this is {}", found.name());
        Err(Bad::new(expr.at, what, format!("write {} here", wanted.name())))
    }

    fn of(&mut self, expr: &Expr) -> Result<Type<'s>, Bad> {
        Ok(match &expr.kind {
            Kind::Null => Type::Null,
            Kind::Bool(_) => Type::Bool,
            Kind::Int(_) | Kind::Double(_) => Type::Number,
            Kind::Text(_) => Type::Text,
            Kind::List(items) => {
                let mut of = None;
                for item in items {
                    let found = self.of(item)?;
                    of = Some(of.map_or_else(|| found.clone(), |known| join(known, found.clone())));
                }
                Type::List(Box::new(of.unwrap_or(Type::Any)))
            }
            Kind::Var(var) => match var {
                Var::Args => Type::Object(self.root),
                Var::Caller => Type::Caller,
                Var::Paths | Var::Hosts | Var::Methods => Type::List(Box::new(Type::Text)),
                _ => Type::Text,
            },
            Kind::Local(depth) => self.locals.get(*depth).cloned().unwrap_or(Type::Any),
            Kind::Select(of, name) | Kind::Has(of, name) => {
                let of = self.of(of)?;
                let field = self.field(expr.at, &of, name)?;
                if matches!(expr.kind, Kind::Has(..)) { Type::Bool } else { field }
            }
            Kind::Index(both) => self.index(both)?,
            Kind::Not(inner) => {
                self.want(inner, &Type::Bool)?;
                Type::Bool
            }
            Kind::Minus(inner) => {
                self.want(inner, &Type::Number)?;
                Type::Number
            }
            Kind::Binary(op, both) => self.binary(expr.at, *op, both)?,
            Kind::Choice(parts) => {
                let [condition, yes, no] = &**parts;
                self.want(condition, &Type::Bool)?;
                let (yes, no) = (self.of(yes)?, self.of(no)?);
                join(yes, no)
            }
            Kind::Size(of) => match self.of(of)? {
                Type::Any | Type::Text | Type::List(_) | Type::Object(_) => Type::Number,
                other => {
                    let what = format!("`size` of {}", other.name());
                    return Err(Bad::new(of.at, what, "only text, lists and objects have one"));
                }
            },
            Kind::Find(_, both) => {
                for text in &**both {
                    self.want(text, &Type::Text)?;
                }
                Type::Bool
            }
            Kind::Matches(of, _) => {
                self.want(of, &Type::Text)?;
                Type::Bool
            }
            Kind::Loop(_, both) => {
                let [of, body] = &**both;
                let item = match self.of(of)? {
                    Type::List(item) => *item,
                    Type::Any => Type::Any,
                    other => {
                        let what = format!("this is {}", other.name());
                        return Err(Bad::new(of.at, what, "only a list has items"));
                    }
                };
                self.locals.push(item);
                let body = self.want(body, &Type::Bool);
                self.locals.pop();
                body?;
                Type::Bool
            }
        })
    }

    fn index(&mut self, [of, index]: &[Expr; 2]) -> Result<Type<'s>, Bad> {
        let found = self.of(of)?;
        match (&found, &index.kind) {
            (Type::Object(_) | Type::Caller, Kind::Text(name)) => {
                self.field(index.at, &found, name)
            }
            (Type::Object(_) | Type::Caller, _) => {
                self.want(index, &Type::Text)?;
                Ok(Type::Any)
            }
            (Type::List(item), _) => {
                let item = (**item).clone();
                self.want(index, &Type::Number)?;
                Ok(item)
            }
            (Type::Any, _) => {
                self.of(index)?;
                Ok(Type::Any)
            }
            (other, _) => {
                let what = format!("`[]` of {}", other.name());
                Err(Bad::new(of.at, what, "only lists and objects have it"))
            }
        }
    }

    fn binary(&mut self, at: usize, op: Op, both: &[Expr; 2]) -> Result<Type<'s>, Bad> {
        let [left, right] = both;
        if matches!(op, Op::Or | Op::And) {
            self.want(left, &Type::Bool)?;
            self.want(right, &Type::Bool)?;
            return Ok(Type::Bool);
        }
        let (one, other) = (self.of(left)?, self.of(right)?);
        if matches!(op, Op::Equal | Op::Unequal | Op::In) {
            self.can_be(left, right)?;
            self.can_be(right, left)?;
        }
        let unlike = || {
            let what = format!("{} and {} are compared", one.name(), other.name());
            Bad::new(at, what, "compare what is alike")
        };
        let both_are = |wanted: Type<'_>| one.meets(&wanted) && other.meets(&wanted);
        match op {
            Op::Equal | Op::Unequal if one.meets(&other) => Ok(Type::Bool),
            Op::In => match &other {
                Type::List(item) if one.meets(item) => Ok(Type::Bool),
                Type::Object(_) if one.meets(&Type::Text) => Ok(Type::Bool),
                Type::Any => Ok(Type::Bool),
                Type::List(item) => {
                    let what = format!("{} in a list of {}", one.name(), item.name());
                    Err(Bad::new(at, what, "compare what is alike"))
                }
                _ => Err(Bad::new(right.at, format!("`in` {}", other.name()), "write a list here")),
            },
            Op::Less | Op::LessOrEqual | Op::Greater | Op::GreaterOrEqual => {
                match both_are(Type::Number) || both_are(Type::Text) {
                    true if one != Type::Null && other != Type::Null => Ok(Type::Bool),
                    _ => Err(unlike()),
                }
            }
            Op::Plus | Op::Minus | Op::Times | Op::Divide | Op::Rest => {
                self.want(left, &Type::Number)?;
                self.want(right, &Type::Number)?;
                Ok(Type::Number)
            }
            _ => Err(unlike()),
        }
    }

    /// Refuses to compare what has one of a few values with a text that is none of them: a condition that is
    /// never true is a mistake, and one that always is a dangerous one.
    fn can_be(&self, asked: &Expr, texts: &Expr) -> Result<(), Bad> {
        let Some(known) = self.words(asked) else { return Ok(()) };
        let texts = match &texts.kind {
            Kind::List(items) => &**items,
            _ => std::slice::from_ref(texts),
        };
        for text in texts {
            if let Kind::Text(word) = &text.kind
                && !known.contains(&&**word)
            {
                let what = format!("it is never `{}`", shown(word));
                return Err(Bad::new(text.at, what, instead(word, &known)));
            }
        }
        Ok(())
    }

    /// All values that this can have, where there are a few.
    fn words(&self, expr: &Expr) -> Option<Vec<&'s str>> {
        match &expr.kind {
            Kind::Var(Var::State) => Some(STATES.to_vec()),
            Kind::Var(Var::Mode) => Some(MODES.to_vec()),
            Kind::Var(Var::Method | Var::Methods) => Some(METHODS.to_vec()),
            Kind::Select(of, name) => match of.kind {
                Kind::Var(Var::Caller) if **name == *"door" => {
                    Some(Door::ALL.into_iter().map(Door::name).collect())
                }
                Kind::Var(Var::Args) => {
                    let field = self.root?.get("properties")?.get(&**name)?;
                    let values = field.get("enum")?.as_array()?;
                    values.iter().map(Value::as_str).collect()
                }
                _ => None,
            },
            _ => None,
        }
    }

    fn field(&self, at: usize, of: &Type<'s>, name: &str) -> Result<Type<'s>, Bad> {
        let unknown = |known: &[&str]| {
            let fix =
                if known.is_empty() { "it has no fields".into() } else { instead(name, known) };
            Bad::new(at, format!("there is no field `{}`", shown(name)), fix)
        };
        match of {
            Type::Any | Type::Object(None) => Ok(Type::Any),
            Type::Caller => match name {
                "tenant" | "subject" | "door" => Ok(Type::Text),
                _ => Err(unknown(&["tenant", "subject", "door"])),
            },
            Type::Object(Some(schema)) => {
                let members = schema.get("properties").and_then(Value::as_object);
                if let Some(field) = members.and_then(|members| members.get(name)) {
                    return Ok(self.of_schema(field, 0));
                }
                if self.is_open(schema) {
                    return Ok(Type::Any);
                }
                let known: Vec<&str> = members
                    .into_iter()
                    .flat_map(|members| members.keys())
                    .map(String::as_str)
                    .collect();
                Err(unknown(&known))
            }
            other => Err(Bad::new(at, format!("a field of {}", other.name()), "it has none")),
        }
    }

    /// Whether there may be fields that the schema does not name. Arguments as a whole are closed, unless
    /// they say otherwise; what lies in them is open, unless it does.
    fn is_open(&self, schema: &Value) -> bool {
        let combined =
            ["allOf", "anyOf", "oneOf", "$ref", "if", "dependentSchemas", "patternProperties"];
        if combined.iter().any(|word| schema.get(word).is_some()) {
            return true;
        }
        let said =
            schema.get("additionalProperties").or_else(|| schema.get("unevaluatedProperties"));
        match said {
            Some(said) => *said != Value::Bool(false),
            None => !self.root.is_some_and(|root| std::ptr::eq(root, schema)),
        }
    }

    fn of_schema(&self, schema: &'s Value, depth: usize) -> Type<'s> {
        if depth > REFERENCES_MOST {
            return Type::Any;
        }
        if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
            let place = reference.strip_prefix('#').and_then(|place| self.root?.pointer(place));
            return place.map_or(Type::Any, |schema| self.of_schema(schema, depth + 1));
        }
        if let Some(kind) = schema.get("type") {
            return self.of_kind(kind, schema, depth);
        }
        if let Some(value) = schema.get("const") {
            return of_value(value);
        }
        if let Some(values) = schema.get("enum").and_then(Value::as_array) {
            return values.iter().map(of_value).reduce(join).unwrap_or(Type::Any);
        }
        let choices = ["anyOf", "oneOf"].iter().find_map(|word| schema.get(word)?.as_array());
        match choices {
            Some(choices) => {
                let types = choices.iter().map(|choice| self.of_schema(choice, depth + 1));
                types.reduce(join).unwrap_or(Type::Any)
            }
            None => Type::Any,
        }
    }

    fn of_kind(&self, kind: &Value, schema: &'s Value, depth: usize) -> Type<'s> {
        match kind {
            Value::String(word) => match word.as_str() {
                "string" => Type::Text,
                "integer" | "number" => Type::Number,
                "boolean" => Type::Bool,
                "null" => Type::Null,
                "object" => Type::Object(Some(schema)),
                "array" => {
                    let item = schema.get("items");
                    Type::List(Box::new(
                        item.map_or(Type::Any, |item| self.of_schema(item, depth + 1)),
                    ))
                }
                _ => Type::Any,
            },
            Value::Array(kinds) => {
                let types = kinds.iter().map(|kind| self.of_kind(kind, schema, depth + 1));
                types.reduce(join).unwrap_or(Type::Any)
            }
            _ => Type::Any,
        }
    }
}

/// What is one or the other. What may be missing is what it is otherwise.
fn join<'s>(one: Type<'s>, other: Type<'s>) -> Type<'s> {
    match (one, other) {
        (Type::Null, known) | (known, Type::Null) => known,
        (one, other) if one == other => one,
        (Type::List(one), Type::List(other)) => Type::List(Box::new(join(*one, *other))),
        _ => Type::Any,
    }
}

fn of_value<'s>(value: &Value) -> Type<'s> {
    match value {
        Value::Null => Type::Null,
        Value::Bool(_) => Type::Bool,
        Value::Number(_) => Type::Number,
        Value::String(_) => Type::Text,
        Value::Array(_) => Type::List(Box::new(Type::Any)),
        Value::Object(_) => Type::Object(None),
    }
}
