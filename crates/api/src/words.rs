//! How closed lists of words and names look in a schema.

use hotcell_types::{Decision, Door, Status};
use schemars::{Schema, SchemaGenerator, json_schema};

/// A call, an artifact: 26 letters and digits.
pub(crate) fn id(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "pattern": "^[0-7][0-9A-HJKMNP-TV-Z]{25}$" })
}

pub(crate) fn maybe_id(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": ["string", "null"], "pattern": "^[0-7][0-9A-HJKMNP-TV-Z]{25}$" })
}

pub(crate) fn ids(_: &mut SchemaGenerator) -> Schema {
    let id = json_schema!({ "type": "string", "pattern": "^[0-7][0-9A-HJKMNP-TV-Z]{25}$" });
    json_schema!({ "type": "array", "items": id })
}

pub(crate) fn status(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": Status::ALL.map(Status::name) })
}

pub(crate) fn maybe_status(_: &mut SchemaGenerator) -> Schema {
    let words = Status::ALL.map(|status| Some(status.name()));
    let words: Vec<_> = words.into_iter().chain([None]).collect();
    json_schema!({ "type": ["string", "null"], "enum": words })
}

pub(crate) fn decision(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": decisions().collect::<Vec<_>>() })
}

pub(crate) fn maybe_decision(_: &mut SchemaGenerator) -> Schema {
    let words: Vec<_> = decisions().map(Some).chain([None]).collect();
    json_schema!({ "type": ["string", "null"], "enum": words })
}

fn decisions() -> impl Iterator<Item = &'static str> {
    [Decision::Allow, Decision::Review, Decision::Deny].into_iter().map(Decision::name)
}

/// Who asked, and through which door.
pub(crate) fn caller(_: &mut SchemaGenerator) -> Schema {
    let name = json_schema!({ "type": "string" });
    let door = json_schema!({ "type": "string", "enum": Door::ALL.map(Door::name) });
    json_schema!({
        "type": "object",
        "properties": { "tenant": name, "subject": name, "door": door },
        "required": ["tenant", "subject", "door"],
    })
}

pub(crate) fn anything(_: &mut SchemaGenerator) -> Schema {
    json_schema!({})
}
