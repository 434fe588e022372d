//! `/mcp`: the Model Context Protocol over streamable HTTP. A request comes as far as any other (its host, its
//! key, its rate, its body); then each key has a server and sessions of its own, so that nobody reaches the
//! session of another key, by whatever name. What is asked there takes its place in the lanes, is for the
//! scopes of the key, and ends with the server, as what is asked elsewhere.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, Response, StatusCode, header};
use hotcell_access::{Scope, Scopes};
use hotcell_api::{Ask, Problem};
use hotcell_engine::Engine;
use hotcell_mcp::http::{
    CancellationToken, LocalSessionManager, Service, StreamableHttpServerConfig, service,
};
use hotcell_mcp::{
    Behind, Found, Held, Need, Options, Room, Server, Talk, Waiting, ask_engine, end_in_engine,
    tool_of,
};
use hotcell_request::json::{self, Bounds};
use hotcell_request::{Tool, ToolName};
use hotcell_types::{Caller, Door as Through};
use http_body_util::BodyExt;
use serde_json::Value;
use tokio::sync::Semaphore;

use crate::connections::watched;
use crate::door::{Answered, Door, Told, named, no_key_of_a_call, queued, told};
use crate::hosts::one;
use crate::input::{self, MOST_BODY};
use crate::keys::Identity;
use crate::lanes::Lanes;
use crate::log::Log;
use crate::metrics::Metrics;
use crate::problem::{Trouble, harmless};
use crate::rights;
use crate::route::{Lane, MCP};
use crate::traces::{Context, Traces};
use crate::under_way::{Observer, UnderWay, Work};

/// Most sessions of one key, and of all together.
const SESSIONS_EACH: usize = 32;
const SESSIONS_MOST: usize = 256;
/// After how long a session ends in which nothing happens.
const SESSION_IDLE: Duration = Duration::from_secs(1800);
/// How often a stream says that it is alive, as those of events do.
const ALIVE: Duration = Duration::from_secs(10);
/// Looks at what is new that nobody waits for, at one time.
const WATCHES: usize = 2;
/// Bodies up to here are read on the spot; longer ones on a thread that may take its time.
const READ_HERE: usize = 64 * 1024;

/// Everything that answers at `/mcp`.
pub(crate) struct Mcp {
    shared: Arc<Shared>,
    keys: Mutex<HashMap<String, Arc<OfKey>>>,
    /// Held while a session begins, so that there are never more than there may be.
    beginning: tokio::sync::Mutex<()>,
    /// Ends streams on which nothing is waited for, and then all.
    listening: CancellationToken,
    asking: CancellationToken,
}

/// What the servers of all keys have in common.
struct Shared {
    engine: Arc<Engine>,
    lanes: Arc<Lanes>,
    under_way: Arc<UnderWay>,
    metrics: Arc<Metrics>,
    log: Log,
    traces: Option<Traces>,
    watches: Arc<Semaphore>,
}

/// What one key has.
struct OfKey {
    sessions: Arc<LocalSessionManager>,
    /// For GET, which only listens.
    listens: Service,
    asks: Service,
}

impl std::fmt::Debug for Mcp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mcp").finish_non_exhaustive()
    }
}

impl Mcp {
    pub(crate) fn new(
        engine: Arc<Engine>,
        lanes: Arc<Lanes>,
        under_way: Arc<UnderWay>,
        observer: &Observer,
        log: Log,
    ) -> Mcp {
        let watches = Arc::new(Semaphore::new(WATCHES));
        let (metrics, traces) = (observer.metrics(), observer.traces().cloned());
        let shared = Shared { engine, lanes, under_way, metrics, log, traces, watches };
        Mcp {
            shared: Arc::new(shared),
            keys: Mutex::default(),
            beginning: tokio::sync::Mutex::new(()),
            listening: CancellationToken::new(),
            asking: CancellationToken::new(),
        }
    }

    /// Those who only listen need not hold up the end.
    pub(crate) fn stop_listening(&self) {
        self.listening.cancel();
    }

    /// Everybody is told no more.
    pub(crate) fn stop(&self) {
        self.stop_listening();
        self.asking.cancel();
    }

    fn of(&self, who: &Identity) -> Arc<OfKey> {
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = keys.get(&who.key) {
            return Arc::clone(known);
        }
        keys.retain(|_, one| is_wanted(Arc::strong_count(one), &one.sessions));
        let made = Arc::new(self.made(who));
        keys.insert(who.key.clone(), Arc::clone(&made));
        made
    }

    fn made(&self, who: &Identity) -> OfKey {
        let behind = Somebody {
            shared: Arc::clone(&self.shared),
            caller: Caller { door: Through::Mcp, ..who.caller.clone() },
            who: who.clone(),
        };
        let server = Server::new(Arc::new(behind), Options::default());
        let mut sessions = LocalSessionManager::default();
        sessions.session_config.keep_alive = Some(SESSION_IDLE);
        // Nothing is kept of what has been answered: how much that is would be for clients to say.
        sessions.session_config.completed_cache_ttl = Duration::ZERO;
        let sessions = Arc::new(sessions);
        let of = |ends: &CancellationToken| {
            // Hosts and origins were looked at where those of all requests are.
            let config = StreamableHttpServerConfig::default()
                .disable_allowed_hosts()
                .disable_allowed_origins()
                .with_sse_keep_alive(Some(ALIVE))
                .with_max_request_body_bytes(MOST_BODY)
                .with_cancellation_token(ends.clone());
            service(&server, Arc::clone(&sessions), config)
        };
        OfKey { listens: of(&self.listening), asks: of(&self.asking), sessions }
    }

    /// Whether there is room for one more session of a key.
    async fn has_room(&self, own: &OfKey) -> Result<(), Trouble> {
        let count = own.sessions.sessions.read().await.len();
        let keys: Vec<_> = {
            let keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
            keys.values().cloned().collect()
        };
        let mut all = 0;
        for key in keys {
            all += key.sessions.sessions.read().await.len();
        }
        if count < SESSIONS_EACH && all < SESSIONS_MOST {
            return Ok(());
        }
        let why = format!("there are {count} of this key, and {all} of all keys together");
        let fix = "end one with DELETE, or go on with one that is there";
        let status = StatusCode::TOO_MANY_REQUESTS;
        let trouble = Trouble::new(status, "too-many-at-once", "too many sessions", why, fix);
        Err(trouble.retry_after(crate::problem::SOON))
    }
}

/// Whether what a key has is to be kept: while somebody is about to use it, or has a session. What is being
/// changed just now has one, or had one until now.
fn is_wanted(holders: usize, sessions: &LocalSessionManager) -> bool {
    holders > 1 || sessions.sessions.try_read().map_or(true, |all| !all.is_empty())
}

pub(crate) async fn handle(State(door): State<Arc<Door>>, request: Request) -> Response<Body> {
    let (id, _) = named(&request);
    let mut who = None;
    let answered = answer(&door, request, &mut who).await;
    let key = who.map(|who: Identity| who.key);
    let mut response = match answered {
        Ok(mut response) => {
            response.extensions_mut().insert(Told { key, trouble: None });
            response
        }
        Err(trouble) => told(trouble, &id, key),
    };
    response.extensions_mut().insert(Answered(MCP.1));
    response
}

async fn answer(
    door: &Arc<Door>,
    request: Request,
    who: &mut Option<Identity>,
) -> Result<Response<Body>, Trouble> {
    let (_, connection) = named(&request);
    let who = who.insert(door.identify(request.headers(), connection.clone(), &[MCP.2]).await?);
    no_key_of_a_call(request.headers())?;
    let (mut head, body) = request.into_parts();
    let room = (&door.bodies, who.key.as_str());
    let body = input::body(&head.method, &head.headers, body, room).await?;
    let wish = Wish::of(&head.method, &head.headers, &body.bytes).await?;
    // What is asked there counts, and not that somebody can ask.
    let place = door.lanes.enter(wish.lane(), &who.key, None);
    let place = queued(connection.as_deref(), place).await?;
    // From here on nobody needs it.
    head.headers.remove(header::AUTHORIZATION);
    let own = door.mcp.of(who);
    let service = if head.method == Method::GET { &own.listens } else { &own.asks };
    let (body, room) = body.split();
    let request = Request::from_parts(head, Body::from(body));
    let response = if wish == Wish::Begin {
        let _alone = door.mcp.beginning.lock().await;
        door.mcp.has_room(&own).await?;
        service.handle(request).await
    } else {
        service.handle(request).await
    };
    let mut response = in_our_words(response.map(Body::new)).await?;
    if let Some(connection) = connection {
        let body = std::mem::take(response.body_mut());
        // What it was asked with is kept there until it has answered.
        *response.body_mut() = watched(body, connection, Box::new((place, room)));
    }
    Ok(response)
}

/// What a request at this path is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wish {
    /// A session.
    Begin,
    /// To hear what is new, and nothing else.
    Listen,
    /// Anything that is answered.
    Ask,
}

impl Wish {
    /// What is no JSON goes no further, nor what could be read in two ways.
    async fn of(method: &Method, headers: &HeaderMap, body: &Bytes) -> Result<Wish, Trouble> {
        match *method {
            Method::GET => return Ok(Wish::Listen),
            Method::POST => {}
            _ => return Ok(Wish::Ask),
        }
        let has_session = one(headers, "mcp-session-id")?.is_some();
        let read = move |body: &[u8]| {
            let value =
                json::parse(body, &Bounds::CALL).map_err(|fault| input::bad_json(&fault))?;
            Ok(match value.get("method").and_then(Value::as_str) {
                Some("initialize") if !has_session => Wish::Begin,
                Some("subscriptions/listen") => Wish::Listen,
                _ => Wish::Ask,
            })
        };
        if body.len() <= READ_HERE {
            return read(body);
        }
        let body = body.clone();
        let read = tokio::task::spawn_blocking(move || read(&body)).await;
        read.unwrap_or_else(|_| Err(not_a_message("it could not be read")))
    }

    fn lane(self) -> Lane {
        match self {
            Wish::Begin | Wish::Ask => Lane::Talks,
            Wish::Listen => Lane::Listens,
        }
    }
}

fn not_a_message(why: &str) -> Trouble {
    let fix = "send one message of the Model Context Protocol; docs/mcp.md";
    let what = "the body is not a message";
    Trouble::new(StatusCode::BAD_REQUEST, "bad-request", what, why, fix)
}

/// What the protocol's library refuses in a line of text is a problem as any other.
async fn in_our_words(response: Response<Body>) -> Result<Response<Body>, Trouble> {
    let status = response.status();
    let is_document = response.headers().contains_key(header::CONTENT_TYPE);
    if status.is_success() || is_document {
        return Ok(response);
    }
    let allow = response.headers().get(header::ALLOW).and_then(|allow| allow.to_str().ok());
    let allow = allow.map(str::to_owned);
    let text = response.into_body().collect().await.map(|text| text.to_bytes());
    let text = String::from_utf8_lossy(&text.unwrap_or_default()).into_owned();
    Err(match status {
        StatusCode::NOT_FOUND => {
            let (what, why) = ("there is no such session", "it has ended, or is not yours");
            Trouble::new(status, "no-session", what, why, "begin one with `initialize`")
        }
        // That it is JSON was found out before.
        StatusCode::UNSUPPORTED_MEDIA_TYPE | StatusCode::BAD_REQUEST => not_a_message(&text),
        StatusCode::METHOD_NOT_ALLOWED => {
            let (what, fix) = ("the path does not take this method", "use another method");
            let why = format!("it takes {}", allow.as_deref().unwrap_or("others"));
            let trouble = Trouble::new(status, "wrong-method", what, why, fix);
            allow.into_iter().fold(trouble, Trouble::allow)
        }
        StatusCode::NOT_ACCEPTABLE => {
            let what = "the client does not take what is answered";
            let fix = "send `Accept: application/json, text/event-stream`";
            Trouble::new(status, "not-acceptable", what, text, fix)
        }
        StatusCode::PAYLOAD_TOO_LARGE => input::too_large(),
        _ => {
            let what = "the session did not answer";
            let status = StatusCode::INTERNAL_SERVER_ERROR;
            Trouble::new(status, "error", what, text, "try again")
        }
    })
}

/// Whoever has a key.
struct Somebody {
    shared: Arc<Shared>,
    caller: Caller,
    who: Identity,
}

impl Behind for Somebody {
    fn may(&self, need: Need) -> Result<(), Problem> {
        may(self.who.scopes, need)
    }

    fn room(&self, room: Room) -> Waiting<'_> {
        Box::pin(async move {
            let Some(lane) = lane(room) else {
                let watches = Arc::clone(&self.shared.watches).acquire_owned().await;
                return Ok(Box::new(watches) as Held);
            };
            let place = self.shared.lanes.enter(lane, &self.who.key, self.who.concurrent).await;
            let place = place.map_err(|trouble| trouble.problem().clone())?;
            Ok(Box::new(place) as Held)
        })
    }

    fn ask(&self, ask: Ask, talk: &Talk) -> Result<Found, Problem> {
        let Shared { engine, under_way, metrics, log, traces, .. } = &*self.shared;
        rights::covers(self.who.scopes, engine, &self.caller, &ask)
            .map_err(|trouble| trouble.problem().clone())?;
        let call = || Work::Call(self.caller.clone(), talk.id);
        let (lane, work) = match &ask {
            Ask::Call { .. } | Ask::Run { .. } => (Lane::Calls, call()),
            // Once somebody has agreed, there is a call.
            Ask::Await { .. } => (Lane::Waits, call()),
            _ => (Lane::Reads, Work::Nothing),
        };
        let job = under_way.begin_with(lane, work, Arc::clone(&talk.interrupt));
        // A session goes on for many requests: each message is of the one that brought it.
        let head = talk.extensions.get::<Parts>();
        let context = head.and_then(|head| head.extensions.get::<Context>().copied());
        let _traced = traces.as_ref().zip(context).map(|(traces, context)| traces.enter(context));
        let answered = ask_engine(engine, &self.caller, ask, talk);
        under_way.end(&job);
        if let Ok(Found::Called(called)) = &answered {
            metrics.called(called);
        }
        harmless(answered, |problem| {
            let why = format!("{}: {}", problem.what, problem.why);
            log.say(
                "problem",
                serde_json::json!({ "route": MCP.1, "key": self.who.key, "why": why }),
            );
        })
    }

    fn end(&self, talk: &Talk) {
        end_in_engine(&self.shared.engine, &self.caller, talk);
    }

    fn tool(&self, name: &ToolName) -> Option<Tool> {
        tool_of(&self.shared.engine, name)
    }
}

fn lane(room: Room) -> Option<Lane> {
    match room {
        Room::Look => Some(Lane::Reads),
        Room::Call => Some(Lane::Calls),
        Room::Wait => Some(Lane::Waits),
        Room::Watch => None,
    }
}

/// As the routes have it that ask for the same.
fn may(scopes: Scopes, need: Need) -> Result<(), Problem> {
    let scope = match need {
        Need::Tools => Scope::Tools,
        Need::Run => Scope::Run,
        Need::Artifacts => Scope::ArtifactsRead,
        Need::Withdraw => Scope::ApprovalsWrite,
    };
    rights::opens(scopes, &[scope]).map_err(|trouble| trouble.problem().clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_key_has_is_kept_while_somebody_uses_it_or_changes_it() {
        let sessions = LocalSessionManager::default();
        assert!(!is_wanted(1, &sessions), "it has none, and nobody is about to begin one");
        assert!(is_wanted(2, &sessions), "somebody has it in hand");
        let changing = sessions.sessions.try_write().unwrap();
        assert!(is_wanted(1, &sessions), "it cannot be known now");
        drop(changing);
        assert!(!is_wanted(1, &sessions));
    }
}
