//! From what came over the wire to a question. Everything is strict: what nobody reads is refused, and so is
//! what could be read in two ways.

use std::collections::HashSet;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, TRANSFER_ENCODING};
use axum::http::{HeaderMap, Method, StatusCode};
use hotcell_api::{Ask, without_types};
use hotcell_request::json::{self, Bounds};
use hotcell_request::{Fault, Key};
use http_body_util::BodyExt;
use serde_json::{Map, Value};

use crate::bodies::{Bodies, Taken};
use crate::hosts::one;
use crate::lines::JOBS_MOST;
use crate::openapi::{Fields, Kind};
use crate::problem::Trouble;
use crate::route::{self, Keyed, Reply, Route};

/// Longest body.
pub(crate) const MOST_BODY: usize = Bounds::CALL.bytes;
/// Longest that it may take to arrive.
const BODY_TIME: Duration = Duration::from_secs(30);

/// Longest key of several calls: each has `/` and its number behind it, of which there are 10,000.
pub(crate) const KEY_OF_MANY: usize = Key::MAX - "/9999".len();

/// What a query says.
#[derive(Debug, Default)]
pub(crate) struct Query {
    pub(crate) fields: Map<String, Value>,
    /// `wait=false`.
    pub(crate) is_left: bool,
    /// Of a batch.
    pub(crate) jobs: Option<usize>,
    pub(crate) is_in_order: bool,
}

pub(crate) fn query(route: &Route, fields: &Fields, text: &str) -> Result<Query, Trouble> {
    let mut query = Query::default();
    let mut seen = HashSet::new();
    for (name, value) in form_urlencoded::parse(text.as_bytes()) {
        let wrong = |why: &str| {
            let what = format!("the query has a wrong `{}`", shown(&name));
            Trouble::bad_request(what, why)
        };
        if !seen.insert(name.to_string()) {
            return Err(wrong("it is there twice"));
        }
        if name == "wait" && may_be_left(route) {
            query.is_left = !flag(&value).ok_or_else(|| wrong("it is neither true nor false"))?;
            continue;
        }
        if matches!(route.answer, Reply::Lines) && name == "jobs" {
            let number = value.parse().ok().filter(|number| (1..=JOBS_MOST).contains(number));
            let why = format!("it is not a number from 1 to {JOBS_MOST}");
            query.jobs = Some(number.ok_or_else(|| wrong(&why))?);
            continue;
        }
        if matches!(route.answer, Reply::Lines) && name == "in_order" {
            query.is_in_order =
                flag(&value).ok_or_else(|| wrong("it is neither true nor false"))?;
            continue;
        }
        if !route.query.contains(&&*name) {
            return Err(wrong("there is no such parameter here"));
        }
        let value = match fields.kind(route.ask, &name) {
            Kind::Text => Some(Value::from(&*value)),
            Kind::Flag => flag(&value).map(Value::from),
            Kind::Number => value
                .parse::<i64>()
                .map(Value::from)
                .or_else(|_| value.parse::<u64>().map(Value::from))
                .ok(),
        };
        let value = value.ok_or_else(|| wrong("that is no value for it"))?;
        query.fields.insert(name.into_owned(), value);
    }
    Ok(query)
}

fn flag(text: &str) -> Option<bool> {
    match text {
        "true" => Some(true),
        "false" => Some(false),
        _ => None,
    }
}

/// A call that somebody begins here, and not one that waits already.
fn may_be_left(route: &Route) -> bool {
    matches!(route.answer, Reply::Call) && route.body != route::Body::None
}

/// A little of a text that somebody sent.
fn shown(text: &str) -> String {
    text.chars().take(40).collect::<String>().escape_default().to_string()
}

/// The bytes of a body, within their bounds and those of the key that sends it.
pub(crate) async fn body(
    method: &Method,
    headers: &HeaderMap,
    body: Body,
    (bodies, key): (&Bodies, &str),
) -> Result<Taken, Trouble> {
    let declared = one(headers, CONTENT_LENGTH.as_str())?.map(str::parse::<u64>).transpose();
    let declared = declared.map_err(|error| {
        Trouble::bad_request("the length of the body cannot be read", error.to_string()).last()
    })?;
    let is_chunked = headers.contains_key(TRANSFER_ENCODING);
    if declared.unwrap_or(0) == 0 && !is_chunked {
        return Ok(Taken::default());
    }
    if matches!(*method, Method::GET | Method::HEAD | Method::DELETE) {
        let why = format!("{method} takes none here");
        return Err(Trouble::bad_request("the request has a body", why).last());
    }
    // Without a length, it may be as long as any.
    let length = declared.map_or(Ok(MOST_BODY), usize::try_from).unwrap_or(usize::MAX);
    if length > MOST_BODY {
        return Err(too_large());
    }
    check_type(headers, &["application/json"])?;
    let room = bodies.room(key, length).await?;
    let read = tokio::time::timeout(BODY_TIME, collect(body)).await;
    read.map(|read| read.map(|bytes| Taken::new(bytes.into(), room))).unwrap_or_else(|_| {
        let why = format!("it took longer than {} s to arrive", BODY_TIME.as_secs());
        let status = StatusCode::REQUEST_TIMEOUT;
        let what = "the body came too slowly";
        Err(Trouble::new(status, "too-slow", what, why, "send it faster, or less").last())
    })
}

async fn collect(mut body: Body) -> Result<Vec<u8>, Trouble> {
    let mut all: Vec<u8> = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| {
            Trouble::bad_request("the body is broken off", "its end did not arrive").last()
        })?;
        if let Ok(data) = frame.into_data() {
            if all.len() + data.len() > MOST_BODY {
                return Err(too_large());
            }
            all.extend_from_slice(&data);
        }
    }
    Ok(all)
}

pub(crate) fn too_large() -> Trouble {
    let why = format!("{} MiB are the most", MOST_BODY >> 20);
    let status = StatusCode::PAYLOAD_TOO_LARGE;
    Trouble::new(status, "too-large", "the body is too large", why, "send less").last()
}

/// What is expected, as it is.
pub(crate) fn check_type(headers: &HeaderMap, expected: &[&str]) -> Result<(), Trouble> {
    let wrong = |why: String| {
        let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        let fix = format!("send it as `Content-Type: {}`", expected.join("` or `"));
        let what = "the body is not what is read here";
        Trouble::new(status, "wrong-type", what, why, fix).last()
    };
    if let Some(encoding) = one(headers, CONTENT_ENCODING.as_str())?
        && !encoding.eq_ignore_ascii_case("identity")
    {
        return Err(wrong("it is compressed, which is not understood here".into()));
    }
    let Some(media) = one(headers, CONTENT_TYPE.as_str())? else {
        return Err(wrong("there is no Content-Type".into()));
    };
    let mut parts = media.split(';').map(str::trim);
    let is_expected = |name: &str| expected.iter().any(|one| name.eq_ignore_ascii_case(one));
    let is_expected = parts.next().is_some_and(is_expected);
    let is_utf8 = |part: &str| {
        let part = part.to_ascii_lowercase();
        matches!(part.as_str(), "charset=utf-8" | "charset=\"utf-8\"" | "")
    };
    if is_expected && parts.all(is_utf8) {
        return Ok(());
    }
    Err(wrong(format!("its type is `{}`", shown(media))))
}

/// Everything that a question is made of.
#[derive(Debug)]
pub(crate) struct Parts {
    /// By name, as the path has them.
    pub(crate) path: Vec<(String, String)>,
    pub(crate) query: Map<String, Value>,
    pub(crate) body: Taken,
    /// Of `Idempotency-Key`.
    pub(crate) key: Option<String>,
}

impl Parts {
    /// The question. Large bodies take a while: on a thread that may block.
    pub(crate) fn ask(self, route: &Route) -> Result<Ask, Trouble> {
        let Parts { path, query, body, key } = self;
        let mut given = members(&body.bytes)?;
        // What it was is used up, and it takes room.
        drop(body);
        for (name, field) in route.places() {
            let found = path.iter().find(|(one, _)| one == name);
            let value = found.map(|(_, value)| value.clone()).unwrap_or_default();
            insert(&mut given, field, value.into())?;
        }
        let mut all = match route.body {
            route::Body::Under(field) => Map::from_iter([(field.into(), Value::Object(given))]),
            route::Body::Rest | route::Body::None | route::Body::Lines => given,
        };
        for (name, value) in query {
            insert(&mut all, &name, value)?;
        }
        match (key, route.keyed()) {
            (Some(key), Keyed::Call) => {
                let place = match route.ask {
                    "run" => "manner",
                    _ => "request",
                };
                insert_key(&mut all, place, key)?;
            }
            (Some(key), Keyed::EachCall) => {
                fits_many(&key)?;
                let calls = all.get_mut("calls").and_then(Value::as_array_mut);
                let calls = calls.into_iter().flatten().filter_map(Value::as_object_mut);
                for (call, n) in calls.zip(0..) {
                    insert_key(call, "request", format!("{key}/{n}"))?;
                }
            }
            // Of lines, it is for those who read them; elsewhere there is none.
            (_, Keyed::EachLine | Keyed::Nothing) | (None, _) => {}
        }
        insert(&mut all, "ask", route.ask.into())?;
        serde_json::from_value(Value::Object(all)).map_err(|error| {
            Trouble::bad_request("the request is not what is asked for here", without_types(&error))
        })
    }
}

/// What is in a body, if there is one.
fn members(body: &[u8]) -> Result<Map<String, Value>, Trouble> {
    if body.is_empty() {
        return Ok(Map::new());
    }
    let value = json::parse(body, &Bounds::CALL).map_err(|fault| bad_json(&fault))?;
    match value {
        Value::Object(members) => Ok(members),
        _ => Err(Trouble::bad_request("the body is not an object", "it is another kind of JSON")),
    }
}

pub(crate) fn bad_json(fault: &Fault) -> Trouble {
    let (what, why, fix) = (fault.what(), fault.why(), fault.fix());
    Trouble::new(StatusCode::BAD_REQUEST, "bad-json", what, why, fix).at(fault.at())
}

/// Whether it is a key of each call, and not only of the first ones.
fn fits_many(key: &str) -> Result<(), Trouble> {
    if key.len() <= KEY_OF_MANY && key.parse::<Key>().is_ok() {
        return Ok(());
    }
    let why = format!("of several calls, it is 1 to {KEY_OF_MANY} visible characters");
    Err(Trouble::bad_request("the header `Idempotency-Key` cannot be used", why))
}

/// The key of a call, where its request has it.
fn insert_key(all: &mut Map<String, Value>, place: &str, key: String) -> Result<(), Trouble> {
    let place = all.entry(place).or_insert_with(|| Value::Object(Map::new()));
    place.as_object_mut().map_or(Ok(()), |place| insert(place, "key", key.into()))
}

/// What has a place of its own is not given in another one.
fn insert(into: &mut Map<String, Value>, name: &str, value: Value) -> Result<(), Trouble> {
    if into.contains_key(name) {
        let why = format!("`{name}` has another place than the body, and is there as well");
        return Err(
            Trouble::bad_request("the request says something twice", why).at(format!("/{name}"))
        );
    }
    into.insert(name.into(), value);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::routes;

    fn route(name: &str) -> &'static Route {
        routes().iter().find(|route| route.name == name).unwrap()
    }

    fn parts(path: &[(&str, &str)], body: &str) -> Parts {
        let path = path.iter().map(|(n, v)| (n.to_string(), v.to_string())).collect();
        let body = Taken::new(body.to_owned().into(), None);
        Parts { path, query: Map::new(), body, key: None }
    }

    #[test]
    fn fields_come_from_where_the_table_says() {
        let ask = parts(&[("name", "add")], r#"{"arguments": {"a": 1}}"#).ask(route("tool_call"));
        let Ok(Ask::Call { request }) = ask else { panic!() };
        assert_eq!(request, serde_json::json!({"tool": "add", "arguments": {"a": 1}}));
        let ask = parts(&[("artifact", "x")], r#"{"version": 3}"#).ask(route("artifact_rollback"));
        let Ok(Ask::Rollback { name, version }) = ask else { panic!() };
        assert_eq!((name.as_str(), version), ("x", 3));
        let keyed =
            Parts { key: Some("k".into()), ..parts(&[], r#"{"run": {"command": ["true"]}}"#) };
        let Ok(Ask::Run { manner, .. }) = keyed.ask(route("run")) else { panic!() };
        assert_eq!(manner.key.unwrap().as_str(), "k");
    }

    #[test]
    fn a_key_is_that_of_each_call() {
        let calls_of = r#"{"calls": [{"request": {"tool": "add"}}, {"request": {"tool": "sub"}}]}"#;
        let keyed = |body| Parts { key: Some("k".into()), ..parts(&[], body) }.ask(route("batch"));
        let Ok(Ask::Batch { calls }) = keyed(calls_of) else { panic!() };
        assert_eq!(calls[0].request, serde_json::json!({"tool": "add", "key": "k/0"}));
        assert_eq!(calls[1].request["key"], "k/1");
        for bad in ["".to_owned(), "a b".into(), "k".repeat(KEY_OF_MANY + 1)] {
            let parts = Parts { key: Some(bad), ..parts(&[], calls_of) };
            assert_eq!(parts.ask(route("batch")).unwrap_err().status(), 400);
        }
        let twice = r#"{"calls": [{"request": {"tool": "add", "key": "own"}}]}"#;
        assert_eq!(keyed(twice).unwrap_err().status(), 400);
    }

    #[test]
    fn what_nobody_reads_is_refused() {
        for (name, path, body) in [
            ("run", None, r#"{"run": {"command": ["true"]}, "tenant": "x"}"#),
            ("run", None, r#"{"run": {"command": ["true"], "uid": 0}}"#),
            ("run", None, r#"{"run": {"command": ["true"]}, "ask": "show"}"#),
            ("run", None, r#"{"run": {}, "run": {}}"#),
            ("run", None, r#"{"run": 1}"#),
            ("run", None, "[]"),
            ("run", None, "{} x"),
            ("run", None, "\u{feff}{}"),
            ("run", None, r#"{"run": {"code": "\ud800"}}"#),
            ("run", None, r#"{"run": {"code": 1e999}}"#),
            ("run_cancel", Some(("call", "x")), "{}"),
            ("tool_call", Some(("name", "add")), r#"{"tool": "sub"}"#),
            ("run_cancel", Some(("call", "01ARZ3NDEKTSV4RRFFQ69G5FAV")), r#"{"state": 1}"#),
        ] {
            let path: Vec<_> = path.into_iter().collect();
            let trouble = parts(&path, body).ask(route(name)).unwrap_err();
            assert_eq!(trouble.status(), 400, "{name} {body}");
            let problem = trouble.problem();
            assert!(!problem.why.contains("struct"), "{problem:?}");
        }
    }

    #[test]
    fn a_query_says_each_thing_once_and_nothing_else() {
        let fields = Fields::new();
        let of = |name: &str, text: &str| query(route(name), &fields, text);
        let good = of("runs", "limit=5&tool=add&since_ns=-1&status=success").unwrap();
        assert_eq!(good.fields["limit"], 5);
        assert_eq!(good.fields["since_ns"], -1);
        assert!(of("run", "wait=false").unwrap().is_left);
        for (name, text) in [
            ("runs", "limit=5&limit=6"),
            ("runs", "limit=a"),
            ("runs", "limit="),
            ("runs", "tenant=x"),
            ("runs", "wait=false"),
            ("runs", "ask=show"),
            ("run", "wait=no"),
            ("approval_await", "wait=false"),
            ("run_events", "follow=1"),
        ] {
            assert_eq!(of(name, text).unwrap_err().status(), 400, "{name} {text}");
        }
    }
}
