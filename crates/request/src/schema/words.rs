//! What the validator found, in words for people and models.

use jsonschema::ValidationError;
use jsonschema::error::{TypeKind, ValidationErrorKind as Kind};
use serde_json::Value;

use super::walk::Mark;
use crate::fault::{Fault, push_key};
use crate::text::shown;

/// Most characters of a value in a message, and most choices.
const VALUE_MOST: usize = 60;
const CHOICES_MOST: usize = 8;
/// Most names of one object that are told.
const NAMES_MOST: usize = 20;
/// Stands for what is not shown.
pub(crate) const SECRET: &str = "[secret]";

pub(super) fn faults(error: &ValidationError<'_>, marks: &[(String, Mark)]) -> Vec<Fault> {
    let at = error.instance_path().as_str();
    match error.kind() {
        Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected } => {
            unexpected.iter().take(NAMES_MOST).map(|name| unknown(at, name)).collect()
        }
        Kind::Required { property } => vec![missing(at, property)],
        Kind::AnyOf { context } | Kind::OneOfNotValid { context } => nearest(at, context)
            .map_or_else(
                || vec![other(error, at, marks)],
                |errors| errors.iter().flat_map(|error| faults(error, marks)).collect(),
            ),
        _ => vec![other(error, at, marks)],
    }
}

fn unknown(at: &str, name: &str) -> Fault {
    let mut at = at.to_owned();
    push_key(&mut at, name);
    let what = format!("`{}` is not known here", shown(name, VALUE_MOST));
    Fault::new(
        &at,
        what,
        "the schema does not name it",
        "leave it out, or look for another spelling",
    )
}

fn missing(at: &str, property: &Value) -> Fault {
    let name = property.as_str().unwrap_or_default();
    let mut at = at.to_owned();
    push_key(&mut at, name);
    let what = format!("`{}` is missing", shown(name, VALUE_MOST));
    Fault::new(&at, what, "the schema requires it", "give it")
}

/// Of the forms that a value can have, the one it comes closest to: the only one of its type, or that
/// whose faults lie deepest inside.
fn nearest<'e>(
    at: &str,
    context: &'e [Vec<ValidationError<'static>>],
) -> Option<&'e [ValidationError<'static>]> {
    let mut of_its_type =
        context.iter().filter(|errors| !errors.iter().any(|e| is_other_type(at, e)));
    if let (Some(only), None) = (of_its_type.next(), of_its_type.next()) {
        return Some(only);
    }
    let depth = |errors: &Vec<ValidationError<'_>>| {
        errors.iter().map(|e| place(e).matches('/').count()).min().unwrap_or_default()
    };
    let best = context.iter().max_by_key(|errors| depth(errors))?;
    (depth(best) > at.matches('/').count()).then_some(best)
}

fn is_other_type(at: &str, error: &ValidationError<'_>) -> bool {
    matches!(error.kind(), Kind::Type { .. }) && error.instance_path().as_str() == at
}

/// The place of what is wrong: for what is missing, one below.
fn place(error: &ValidationError<'_>) -> String {
    let at = error.instance_path().as_str();
    match error.kind() {
        Kind::Required { .. } => format!("{at}/"),
        _ => at.to_owned(),
    }
}

fn other(error: &ValidationError<'_>, at: &str, marks: &[(String, Mark)]) -> Fault {
    let value = match is_secret(at, marks) {
        true => SECRET.to_owned(),
        false => show(error.instance()),
    };
    let (what, fix) = match error.kind() {
        Kind::Type { kind } => {
            let kind = types(kind);
            (format!("{value} is not {kind}"), format!("send {kind}"))
        }
        Kind::Enum { options } => {
            let choices = choices(options);
            (format!("{value} is not one of {choices}"), "send one of them".into())
        }
        Kind::Constant { expected_value } => {
            let expected = show(expected_value);
            (format!("{value} is not {expected}"), format!("send {expected}"))
        }
        Kind::Maximum { limit } => {
            (format!("{value} is more than {limit}"), format!("at most {limit}"))
        }
        Kind::Minimum { limit } => {
            (format!("{value} is less than {limit}"), format!("at least {limit}"))
        }
        Kind::ExclusiveMaximum { limit } => {
            (format!("{value} is not less than {limit}"), format!("less than {limit}"))
        }
        Kind::ExclusiveMinimum { limit } => {
            (format!("{value} is not more than {limit}"), format!("more than {limit}"))
        }
        Kind::MultipleOf { multiple_of } => (
            format!("{value} is not a multiple of {multiple_of}"),
            format!("send a multiple of {multiple_of}"),
        ),
        Kind::MaxLength { limit } => {
            (format!("{value} is too long"), format!("at most {limit} characters"))
        }
        Kind::MinLength { limit } => {
            (format!("{value} is too short"), format!("at least {limit} characters"))
        }
        Kind::MaxItems { limit } => (format!("{value} is too many"), format!("at most {limit}")),
        Kind::MinItems { limit } => (format!("{value} is too few"), format!("at least {limit}")),
        Kind::MaxProperties { limit } => {
            (format!("{value} has too many members"), format!("at most {limit}"))
        }
        Kind::MinProperties { limit } => {
            (format!("{value} has too few members"), format!("at least {limit}"))
        }
        Kind::AdditionalItems { limit } => {
            (format!("{value} is too many"), format!("at most {limit}"))
        }
        Kind::UniqueItems => (format!("{value} has some twice"), "send each once".into()),
        Kind::Contains => (format!("{value} lacks what it must contain"), "see the schema".into()),
        Kind::Pattern { pattern } => {
            let pattern = shown(pattern, VALUE_MOST);
            (format!("{value} does not match `{pattern}`"), "write it as the pattern says".into())
        }
        Kind::FalseSchema => {
            ("there is something that must not be here".into(), "leave it out".into())
        }
        Kind::AnyOf { .. } | Kind::OneOfNotValid { .. } => {
            (format!("{value} has none of the forms that it can have"), "see the schema".into())
        }
        Kind::OneOfMultipleValid { .. } => (
            format!("{value} has several of the forms of which it can have one"),
            "see the schema".into(),
        ),
        Kind::Not { .. } => (format!("{value} is what it must not be"), "see the schema".into()),
        Kind::PropertyNames { .. } => {
            (format!("{value} has a name that it must not have"), "see the schema".into())
        }
        kind => (format!("{value} fails `{}`", shown(kind.keyword(), 40)), "see the schema".into()),
    };
    Fault::new(at, what, "the schema says so", fix)
}

/// Whether a place, or one around it, is marked as secret.
fn is_secret(at: &str, marks: &[(String, Mark)]) -> bool {
    let around =
        |place: &str| at.strip_prefix(place).is_some_and(|r| r.is_empty() || r.starts_with('/'));
    marks.iter().any(|(place, mark)| *mark == Mark::Secret && around(place))
}

/// What is inside of arrays and objects is not shown: it can be long, and it can be secret.
fn show(value: &Value) -> String {
    match value {
        Value::Array(items) => format!("an array of {}", items.len()),
        Value::Object(_) => "an object".into(),
        Value::String(text) => format!("\"{}\"", shown(text, VALUE_MOST)),
        other => other.to_string(),
    }
}

fn choices(options: &Value) -> String {
    let all = options.as_array().map(Vec::as_slice).unwrap_or_default();
    let mut text = all.iter().take(CHOICES_MOST).map(show).collect::<Vec<_>>().join(", ");
    if all.len() > CHOICES_MOST {
        text.push_str(&format!(" and {} more", all.len() - CHOICES_MOST));
    }
    text
}

fn types(kind: &TypeKind) -> String {
    let name = |json: &str| match json {
        "array" | "integer" | "object" => format!("an {json}"),
        "boolean" => "true or false".into(),
        "null" => "null".into(),
        other => format!("a {other}"),
    };
    match kind {
        TypeKind::Single(one) => name(one.as_str()),
        TypeKind::Multiple(several) => {
            several.iter().map(|one| name(one.as_str())).collect::<Vec<_>>().join(" or ")
        }
    }
}
