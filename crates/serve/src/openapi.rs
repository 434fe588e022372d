//! The OpenAPI document, made of the table of routes and of the schemas that all documents have. What the
//! document says of a question's fields is also what queries are read by ([`Fields`]).

use std::collections::BTreeMap;

use axum::http::Method;
use hotcell_api::batch::{Done, Job};
use hotcell_api::{Ask, Called};
use hotcell_request::{Key, Request};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::events::Event;
use crate::input::KEY_OF_MANY;
use crate::lines::{JOBS_MOST, MEDIA};
use crate::probe::{Health, Ready};
use crate::problem::{self, Document};
use crate::route::{Body, Keyed, METRICS, OPEN, Reply, Route, routes};

/// What is answered when a call goes on by itself.
#[derive(Debug, serde::Serialize, JsonSchema)]
pub(crate) struct Accepted {
    pub(crate) version: u32,
    /// Of the call: `/v1/runs/{id}` tells what becomes of it.
    #[schemars(regex(pattern = "^[0-7][0-9A-HJKMNP-TV-Z]{25}$"))]
    pub(crate) id: String,
}

/// The fields of each question, by its `ask`, as schemas.
#[derive(Debug)]
pub(crate) struct Fields {
    by_ask: BTreeMap<String, Value>,
    /// A line of a batch.
    job: Value,
    definitions: Map<String, Value>,
}

/// What a text in a query stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    Number,
    Flag,
}

fn generator(for_output: bool) -> SchemaGenerator {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    if for_output { settings.for_serialize() } else { settings.for_deserialize() }.into_generator()
}

impl Fields {
    pub(crate) fn new() -> Fields {
        let mut generator = generator(false);
        let schema = Ask::json_schema(&mut generator).to_value();
        let all = schema.get("oneOf").or_else(|| schema.get("anyOf"));
        let mut by_ask = BTreeMap::new();
        for one in all.and_then(Value::as_array).into_iter().flatten() {
            if let Some(ask) = one.pointer("/properties/ask/const").and_then(Value::as_str) {
                by_ask.insert(ask.to_owned(), one.clone());
            }
        }
        let job = generator.subschema_for::<Job>().to_value();
        Fields { by_ask, job, definitions: generator.take_definitions(true) }
    }

    fn properties(&self, ask: &str) -> Option<&Map<String, Value>> {
        self.by_ask.get(ask)?.get("properties")?.as_object()
    }

    fn schema(&self, ask: &str, field: &str) -> Value {
        self.properties(ask).and_then(|all| all.get(field)).cloned().unwrap_or_else(|| json!({}))
    }

    fn is_required(&self, ask: &str, field: &str) -> bool {
        let required = self.by_ask.get(ask).and_then(|one| one.get("required"));
        required.and_then(Value::as_array).is_some_and(|all| all.iter().any(|one| one == field))
    }

    /// How a text in a query is read.
    pub(crate) fn kind(&self, ask: &str, field: &str) -> Kind {
        let schema = self.schema(ask, field);
        let is = |name: &str| match schema.get("type") {
            Some(Value::Array(types)) => types.iter().any(|one| one == name),
            Some(one) => one == name,
            None => false,
        };
        match () {
            () if is("integer") => Kind::Number,
            () if is("boolean") => Kind::Flag,
            () => Kind::Text,
        }
    }
}

/// The whole document, as it is checked in.
pub fn openapi() -> String {
    let document = document(&Fields::new(), routes());
    let text = serde_json::to_string_pretty(&document).unwrap_or_default();
    text + "\n"
}

fn document(fields: &Fields, routes: &[Route]) -> Value {
    let mut generator = generator(true);
    let mut paths: Map<String, Value> = Map::new();
    for (path, name, summary) in OPEN {
        let operation = open(&mut generator, name, summary);
        paths.insert(path.into(), json!({ "get": operation }));
    }
    let (path, name, summary) = METRICS;
    paths.insert(path.into(), json!({ "get": metrics(name, summary) }));
    for route in routes {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        if let Some(methods) = path.as_object_mut() {
            let operation = operation(fields, &mut generator, route);
            methods.insert(route.method.as_str().to_lowercase(), operation);
        }
    }
    let problem = generator.subschema_for::<Document<'_>>();
    let mut schemas = generator.take_definitions(true);
    schemas.extend(fields.definitions.clone());
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "hotcell",
            "version": "1",
            "summary": "Runs untrusted code in a sandbox it cannot leave",
            "description": "docs/serve.md is the guide. Where no `Idempotency-Key` is listed, a request \
                that would change something and has one is refused with 400.",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "servers": [{ "url": "/" }],
        "security": [{ "key": [] }],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "key": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "An API key, as `hotcell key create` prints it.",
                },
            },
            "responses": {
                "Problem": {
                    "description": "What, why and fix, as RFC 9457 has it",
                    "headers": { "X-Request-Id": request_id() },
                    "content": { problem::MEDIA: { "schema": problem } },
                },
            },
        },
    })
}

fn request_id() -> Value {
    let description = "The request's own, if it had one, or another";
    json!({ "description": description, "schema": { "type": "string" } })
}

fn problem_response() -> Value {
    json!({ "$ref": "#/components/responses/Problem" })
}

fn open(generator: &mut SchemaGenerator, name: &str, summary: &str) -> Value {
    let schema = match name {
        "health" => generator.subschema_for::<Health>().to_value(),
        "readiness" => generator.subschema_for::<Ready>().to_value(),
        _ => json!({ "type": "object" }),
    };
    let content = json!({ "application/json": { "schema": schema } });
    let mut responses = json!({
        "200": { "description": "As it is", "content": content.clone() },
        "default": problem_response(),
    });
    if let (true, Some(all)) = (name == "readiness", responses.as_object_mut()) {
        all.insert("503".into(), json!({ "description": "Not ready", "content": content }));
    }
    let (id, none) = (name, Vec::<Value>::new());
    json!({ "operationId": id, "summary": summary, "security": none, "responses": responses })
}

fn metrics(name: &str, summary: &str) -> Value {
    json!({
        "operationId": name,
        "summary": summary,
        "description": "Needs a key for `metrics`.",
        "responses": {
            "200": {
                "description": "The text format",
                "content": { "text/plain": { "schema": { "type": "string" } } },
            },
            "default": problem_response(),
        },
    })
}

fn operation(fields: &Fields, generator: &mut SchemaGenerator, route: &Route) -> Value {
    let mut operation = json!({
        "operationId": route.name,
        "summary": route.summary,
        "description": needs(route),
        "parameters": parameters(fields, route),
        "responses": responses(generator, route),
    });
    if let (Some(body), Some(all)) = (body(fields, route), operation.as_object_mut()) {
        all.insert("requestBody".into(), body);
    }
    operation
}

/// What a key has to be for, in words.
fn needs(route: &Route) -> String {
    let scopes: Vec<String> = route.scopes.iter().map(|scope| format!("`{scope}`")).collect();
    let more = match route.ask {
        "call" | "batch" => " A tool that executes something needs `run` as well.",
        "await" => " It is `run` for a tool that executes something, and `tools` for any other.",
        _ => "",
    };
    format!("Needs a key for {}.{more}", scopes.join(" or "))
}

fn parameters(fields: &Fields, route: &Route) -> Vec<Value> {
    let mut all = Vec::new();
    for (name, field) in route.places() {
        let schema = match route.body {
            Body::Under(_) => json!({ "type": "string" }),
            _ => fields.schema(route.ask, field),
        };
        all.push(json!({ "name": name, "in": "path", "required": true, "schema": schema }));
    }
    for name in route.query {
        let mut schema = fields.schema(route.ask, name);
        let described = schema.as_object_mut().and_then(|all| all.remove("description"));
        let mut one = json!({ "name": name, "in": "query", "schema": without_null(schema) });
        if let (Some(text), Some(members)) = (described, one.as_object_mut()) {
            members.insert("description".into(), text);
        }
        all.push(one);
    }
    match route.answer {
        Reply::Call if route.body != Body::None => {
            all.push(json!({
                "name": "wait", "in": "query", "schema": { "type": "boolean", "default": true },
                "description": "`false`: answer with 202 and the id as soon as it is in the record",
            }));
        }
        Reply::Lines => {
            all.push(json!({
                "name": "jobs", "in": "query",
                "schema": { "type": "integer", "minimum": 1, "maximum": JOBS_MOST },
                "description": "Jobs at one time; without it, the number of processors",
            }));
            all.push(json!({
                "name": "in_order", "in": "query", "schema": { "type": "boolean", "default": false },
                "description": "`true`: results in the order of the jobs, not as they finish",
            }));
        }
        Reply::Events => all.push(json!({
            "name": "Last-Event-ID", "in": "header",
            "schema": { "type": "string", "pattern": "^[0-9]{1,19}-[0-9]{1,19}$" },
            "description": "The id of the last event that arrived: what comes after it is sent",
        })),
        Reply::Content => all.push(json!({
            "name": "Range", "in": "header", "schema": { "type": "string" },
            "description": "One range of bytes",
        })),
        _ => {}
    }
    all.extend(key_of_a_call(route));
    all
}

fn key_of_a_call(route: &Route) -> Option<Value> {
    let visible = |most| json!({ "type": "string", "minLength": 1, "maxLength": most, "pattern": "^[!-~]+$" });
    let (schema, description) = match route.keyed() {
        Keyed::Nothing => return None,
        Keyed::Call => {
            (visible(Key::MAX), "The same key is the same call, however often it is sent")
        }
        Keyed::EachCall => (
            visible(KEY_OF_MANY),
            "The key of each call, with `/` and its number behind it, counted from 0: the same call \
             of a batch with the same key is carried out once, however often it is sent",
        ),
        Keyed::EachLine => (
            json!({ "type": "string", "minLength": 1 }),
            "The same job of a batch with the same key is the same call, however often it is sent",
        ),
    };
    let name = "Idempotency-Key";
    Some(json!({ "name": name, "in": "header", "schema": schema, "description": description }))
}

/// A query has a field or has it not: there is no `null` in it.
fn without_null(mut schema: Value) -> Value {
    let Some(all) = schema.as_object_mut() else { return schema };
    all.remove("default");
    if let Some(Value::Array(types)) = all.get_mut("type") {
        types.retain(|one| one != "null");
        if let (1, Some(only)) = (types.len(), types.first().cloned()) {
            all.insert("type".into(), only);
        }
    }
    if let Some(Value::Array(words)) = all.get_mut("enum") {
        words.retain(|one| !one.is_null());
    }
    schema
}

fn body(fields: &Fields, route: &Route) -> Option<Value> {
    let (schema, is_required) = match route.body {
        Body::None => return None,
        Body::Rest => rest(fields, route),
        Body::Under(_) => (request_without_tool(), false),
        Body::Lines => {
            let schema = json!({ "schema": fields.job });
            let content = MEDIA.map(|media| (media.to_owned(), schema.clone()));
            let content = Value::Object(content.into_iter().collect());
            let what = "A job on each line. Jobs begin while the body is still arriving";
            return Some(json!({ "description": what, "required": true, "content": content }));
        }
    };
    let content = json!({ "application/json": { "schema": schema } });
    Some(json!({ "required": is_required, "content": content }))
}

/// What neither the path nor the query has.
fn rest(fields: &Fields, route: &Route) -> (Value, bool) {
    let elsewhere: Vec<&str> = route.places().map(|(_, field)| field).collect();
    let is_here = |name: &str| name != "ask" && !elsewhere.contains(&name);
    let all = fields.properties(route.ask).into_iter().flatten();
    let all = all.filter(|(name, _)| is_here(name));
    let properties: Map<String, Value> = all.map(|(n, s)| (n.clone(), s.clone())).collect();
    let required: Vec<&String> =
        properties.keys().filter(|name| fields.is_required(route.ask, name)).collect();
    let is_required = !required.is_empty();
    let mut schema = json!({
        "type": "object", "properties": properties, "required": required,
        "additionalProperties": false,
    });
    if let (false, Some(all)) = (is_required, schema.as_object_mut()) {
        all.remove("required");
    }
    (schema, is_required)
}

/// A request, as the tool standard has it; which tool is in the path.
fn request_without_tool() -> Value {
    let mut schema = Request::standard();
    if let Some(all) = schema.as_object_mut() {
        all.remove("$schema");
        all.remove("required");
        // What is referred to stands in the same place.
        if let Some(definitions) = all.remove("$defs") {
            return inlined(&schema, &definitions);
        }
    }
    without_tool(schema)
}

fn inlined(schema: &Value, definitions: &Value) -> Value {
    fn walk(value: &Value, definitions: &Value, depth: usize) -> Value {
        if let Some(name) = value.get("$ref").and_then(Value::as_str)
            && let Some(name) = name.strip_prefix("#/$defs/")
            && depth > 0
        {
            let found = definitions.get(name).cloned().unwrap_or_default();
            return walk(&found, definitions, depth - 1);
        }
        match value {
            Value::Object(all) => {
                let each = all.iter().map(|(n, v)| (n.clone(), walk(v, definitions, depth)));
                Value::Object(each.collect())
            }
            Value::Array(all) => {
                Value::Array(all.iter().map(|one| walk(one, definitions, depth)).collect())
            }
            other => other.clone(),
        }
    }
    /// A description refers to itself nowhere; if it did, this would be the end of it.
    const DEEPEST: usize = 16;
    without_tool(walk(schema, definitions, DEEPEST))
}

fn without_tool(mut schema: Value) -> Value {
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        properties.remove("tool");
    }
    schema
}

fn responses(generator: &mut SchemaGenerator, route: &Route) -> Value {
    let json = |description: &str, schema: Value| {
        json!({
            "description": description,
            "headers": { "X-Request-Id": request_id() },
            "content": { "application/json": { "schema": schema } },
        })
    };
    let mut all = Map::new();
    match route.answer {
        Reply::Document(schema) => {
            all.insert("200".into(), json("The answer", schema(generator).to_value()));
        }
        Reply::Call => {
            let called = generator.subschema_for::<Called>().to_value();
            all.insert(
                "200".into(),
                json("It was carried out: `status` says how it ended", called.clone()),
            );
            let accepted = generator.subschema_for::<Accepted>().to_value();
            let either = json!({ "anyOf": [accepted, called] });
            let what =
                "It goes on by itself, or waits for somebody to agree (`status` is `review`)";
            all.insert("202".into(), json(what, either));
        }
        Reply::Content => {
            for (status, what) in [("200", "All of it"), ("206", "The range")] {
                let content =
                    json!({ "*/*": { "schema": { "type": "string", "format": "binary" } } });
                all.insert(status.into(), json!({ "description": what, "content": content }));
            }
            all.insert(
                "304".into(),
                json!({ "description": "It is the one that If-None-Match names" }),
            );
        }
        Reply::Lines => {
            let schema = generator.subschema_for::<Done>().to_value();
            all.insert(
                "200".into(),
                json!({
                    "description": "A result on each line, as it is known. What does not end as \
                        chunks do was broken off",
                    "content": { MEDIA[0]: { "schema": schema } },
                }),
            );
        }
        Reply::Events => {
            // One event, as newer versions of OpenAPI describe it: what is in its data is a document.
            let data = generator.subschema_for::<Event>().to_value();
            let schema = json!({
                "type": "object",
                "properties": {
                    "id": { "type": "string", "description": "For `Last-Event-ID`" },
                    "event": { "type": "string", "enum": Event::NAMES },
                    "data": {
                        "type": "string",
                        "contentMediaType": "application/json",
                        "contentSchema": data,
                    },
                },
                "required": ["id", "event", "data"],
            });
            all.insert("200".into(), json!({
                "description": "Server-sent events: `state`, `output`, `usage`, and at the end `end` or `error`",
                "content": { "text/event-stream": { "schema": schema } },
            }));
        }
    }
    all.insert("default".into(), problem_response());
    Value::Object(all)
}

/// The methods of a path, for a 405.
pub(crate) fn methods_of(routes: &[Route], path: &str) -> String {
    let all = routes.iter().filter(|route| route.path == path).map(|route| &route.method);
    let mut names: Vec<&str> = all.map(Method::as_str).collect();
    if names.contains(&"GET") {
        names.push("HEAD");
    }
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_asks_for_something_that_there_is_with_fields_that_it_has() {
        let fields = Fields::new();
        for route in routes() {
            let has = fields.properties(route.ask).unwrap_or_else(|| panic!("{}", route.ask));
            if let Body::Under(field) = route.body {
                assert!(has.contains_key(field), "{}", route.name);
                continue;
            }
            for field in route.query.iter().copied().chain(route.places().map(|(_, f)| f)) {
                assert!(has.contains_key(field), "{}: {field}", route.name);
            }
            let elsewhere: Vec<_> =
                route.places().map(|(_, f)| f).chain(route.query.iter().copied()).collect();
            for field in has.keys().filter(|field| *field != "ask") {
                let is_reached = elsewhere.contains(&field.as_str())
                    || matches!(route.body, Body::Rest | Body::Lines);
                let is_left_out = matches!(
                    (route.ask, field.as_str()),
                    ("content", "from" | "length") | ("runs", "call" | "kind")
                );
                assert!(is_reached || is_left_out, "{}: nobody can set {field}", route.name);
            }
        }
    }

    #[test]
    fn every_question_has_a_route() {
        let fields = Fields::new();
        for ask in fields.by_ask.keys() {
            assert!(routes().iter().any(|route| route.ask == ask), "{ask}");
        }
    }

    #[test]
    fn names_of_operations_are_there_once() {
        let mut names: Vec<_> = routes().iter().map(|route| route.name).collect();
        let many = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), many);
    }
}
