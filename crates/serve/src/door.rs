//! The way of a request: its name and host, its key, its body, its place, the engine, its answer. Read
//! [`front`] and then [`Door::handle`] from top to bottom.

use std::future::poll_fn;
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::extract::{Extension, RawPathParams, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::routing::{MethodFilter, MethodRouter, get, on};
use axum::{RequestExt, Router};
use hotcell_access::{Scope, Scopes};
use hotcell_api::batch::Name;
use hotcell_api::{self as api, Answer, Ask, Called, With};
use hotcell_engine::{Attached, Engine, Order, Pace, new_id};
use hotcell_record::now;
use hotcell_types::{CallId, Caller};
use serde::Serialize;
use serde_json::json;
use tokio::sync::Semaphore;

use crate::bodies::Bodies;
use crate::connections::{Connection, Connections, watched};
use crate::content;
use crate::events::{self, Phase};
use crate::hosts::{Hosts, one};
use crate::input::{self, Parts};
use crate::keys::{Identity, Keys, Refused};
use crate::lanes::{Lanes, Place};
use crate::lines;
use crate::log::Log;
use crate::mcp::{self, Mcp};
use crate::metrics::{Metrics, Now, Spans};
use crate::openapi::{Accepted, Fields, methods_of, openapi};
use crate::probe::{Health, Probe, Socket};
use crate::problem::{Trouble, of_call};
use crate::rate::{Guesses, Requests};
use crate::rights;
use crate::route::{Keyed, MCP, METRICS, OPEN, Reply, Route, routes};
use crate::traces::{self, Context, Traces};
use crate::under_way::{Attention, Job, Observer, UnderWay, Work};

const IDEMPOTENCY_KEY: &str = "idempotency-key";
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Longest that a client may choose itself.
const MOST_ID: usize = 64;
/// Keys that are checked at one time.
const CHECKS: usize = 16;
/// Who guesses too often waits for the answer, so many at one time and so long.
const SLOWED: usize = 256;
const SLOWED_FOR: Duration = Duration::from_secs(1);

/// Everything that answers requests.
#[derive(Debug)]
pub(crate) struct Door {
    pub(crate) engine: Arc<Engine>,
    keys: Arc<dyn Keys>,
    hosts: Hosts,
    pub(crate) connections: Arc<Connections>,
    pub(crate) under_way: Arc<UnderWay>,
    pub(crate) is_stopping: AtomicBool,
    observer: Observer,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) log: Log,
    pub(crate) lanes: Arc<Lanes>,
    requests: Requests,
    guesses: Guesses,
    probe: Probe,
    fields: Fields,
    openapi: Bytes,
    checks: Semaphore,
    slowed: Semaphore,
    pub(crate) bodies: Bodies,
    pub(crate) mcp: Mcp,
}

/// Which route answered, for the log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Answered(pub(crate) &'static str);

/// Whose key it was, and what went wrong, for the log.
#[derive(Debug, Clone)]
pub(crate) struct Told {
    pub(crate) key: Option<String>,
    pub(crate) trouble: Option<Arc<Trouble>>,
}

/// The name of a request.
#[derive(Debug, Clone)]
pub(crate) struct RequestId(pub(crate) String);

impl Door {
    pub(crate) fn new(
        engine: Arc<Engine>,
        observer: Observer,
        hosts: Hosts,
        connections: Arc<Connections>,
        log: Log,
    ) -> Door {
        let lanes = Arc::new(Lanes::new(connections.most()));
        let under_way = Arc::<UnderWay>::default();
        let mcp = Mcp::new(
            Arc::clone(&engine),
            Arc::clone(&lanes),
            Arc::clone(&under_way),
            &observer,
            log.clone(),
        );
        Door {
            keys: Arc::clone(&engine) as Arc<dyn Keys>,
            engine,
            hosts,
            connections,
            under_way,
            is_stopping: AtomicBool::new(false),
            metrics: observer.metrics(),
            observer,
            log,
            lanes,
            requests: Requests::default(),
            guesses: Guesses::default(),
            probe: Probe::default(),
            fields: Fields::new(),
            openapi: openapi().into(),
            checks: Semaphore::new(CHECKS),
            slowed: Semaphore::new(SLOWED),
            bodies: Bodies::default(),
            mcp,
        }
    }

    /// Is not ready unless that can be come through as well.
    pub(crate) fn beside(mut self, socket: Option<Socket>) -> Door {
        self.probe.socket = socket;
        self
    }

    pub(crate) fn traces(&self) -> Option<&Traces> {
        self.observer.traces()
    }

    pub(crate) fn has_keys(&self) -> bool {
        self.keys.has_any()
    }
}

/// The table as a router.
pub(crate) fn router(door: Arc<Door>) -> Router {
    let mut router: Router<Arc<Door>> = Router::new();
    let mut paths: Vec<&str> = routes().iter().map(|route| route.path).collect();
    paths.sort_unstable();
    paths.dedup();
    for path in paths {
        let mut methods: MethodRouter<Arc<Door>> = MethodRouter::new();
        for route in routes().iter().filter(|route| route.path == path) {
            methods = methods.merge(method(route));
        }
        router = router.route(path, methods.fallback(other_method(methods_of(routes(), path))));
    }
    let allow = || other_method("GET, HEAD".into());
    for (path, name, _) in OPEN {
        let probe = move |State(door): State<Arc<Door>>| async move { door.probe(name).await };
        router = router.route(path, get(probe).fallback(allow()));
    }
    router = router.route(METRICS.0, get(metrics).fallback(allow()));
    let talk = on(MethodFilter::GET.or(MethodFilter::POST).or(MethodFilter::DELETE), mcp::handle);
    let allow = other_method("GET, POST, DELETE".into());
    router = router.route(MCP.0, talk.fallback(allow));
    router = router.fallback(|Extension(id): Extension<RequestId>| async move {
        let why = "no route leads there; /openapi.json lists them";
        let status = StatusCode::NOT_FOUND;
        let trouble =
            Trouble::new(status, "no-route", "there is nothing here", why, "see docs/serve.md");
        told(trouble, &id, None)
    });
    router.layer(from_fn_with_state(Arc::clone(&door), front)).with_state(door)
}

fn method(route: &'static Route) -> MethodRouter<Arc<Door>> {
    let handler = move |State(door): State<Arc<Door>>, request: Request| async move {
        door.handle(route, request).await
    };
    // The table has no other methods than these.
    on(MethodFilter::try_from(route.method.clone()).unwrap_or(MethodFilter::GET), handler)
}

/// For what a path does not take.
fn other_method(
    allow: String,
) -> impl Fn(Extension<RequestId>) -> std::future::Ready<Response<Body>> + Clone + Send + 'static {
    move |Extension(id)| {
        let status = StatusCode::METHOD_NOT_ALLOWED;
        let why = format!("it takes {allow}");
        let what = "the path does not take this method";
        let trouble = Trouble::new(status, "wrong-method", what, why, "use another method");
        std::future::ready(told(trouble.allow(allow.clone()), &id, None))
    }
}

/// Around every request, whatever becomes of it: its name, whether it is meant for us, the log.
async fn front(
    State(door): State<Arc<Door>>,
    Extension(connection): Extension<Arc<Connection>>,
    mut request: Request,
    next: Next,
) -> Response<Body> {
    let (begun, begun_at) = (Instant::now(), now());
    let id = RequestId::of(request.headers());
    let method = request.method().clone();
    request.extensions_mut().insert(id.clone());
    let trace = door.traces().map(|traces| (traces, Context::of(request.headers())));
    if let Some((_, context)) = trace {
        request.extensions_mut().insert(context);
    }
    let mut response = match door.hosts.check(request.uri(), request.headers()) {
        Ok(()) => match surviving(next.run(request)).await {
            Some(response) => response,
            None => told(door.panicked(), &id, None),
        },
        Err(trouble) => told(trouble, &id, None),
    };
    let headers = response.headers_mut();
    if let Ok(value) = HeaderValue::from_str(&id.0) {
        headers.insert(REQUEST_ID, value);
    }
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    door.noted(&id, &method, &response, begun.elapsed(), connection.peer.ip());
    if let Some((traces, context)) = trace {
        let (route, status) = (route_of(&response), response.status().as_u16());
        let method = plain(&method);
        let request = traces::Answered { id: &id.0, method, route, status, begun: begun_at };
        traces.answered(context, request);
    }
    response
}

/// A panic costs the request in which it happens, and is none of what others ask for on the same connection or
/// will ask for.
async fn surviving<T>(answer: impl Future<Output = T>) -> Option<T> {
    let mut answer = pin!(answer);
    poll_fn(|context| {
        let polled = catch_unwind(AssertUnwindSafe(|| answer.as_mut().poll(context)));
        polled.map_or(Poll::Ready(None), |polled| polled.map(Some))
    })
    .await
}

/// Which route answered.
fn route_of(response: &Response<Body>) -> &'static str {
    response.extensions().get::<Answered>().map_or("none", |one| one.0)
}

/// A method as a word of ours.
fn plain(method: &Method) -> &'static str {
    const KNOWN: [&str; 6] = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"];
    KNOWN.into_iter().find(|known| *known == method.as_str()).unwrap_or("_OTHER")
}

impl RequestId {
    /// The client's own, if it is a plain word.
    fn of(headers: &HeaderMap) -> RequestId {
        let own = one(headers, REQUEST_ID.as_str()).ok().flatten().filter(|own| {
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
            (1..=MOST_ID).contains(&own.len()) && own.bytes().all(is_plain)
        });
        RequestId(own.map_or_else(|| new_id().to_string(), str::to_owned))
    }
}

pub(crate) fn told(trouble: Trouble, id: &RequestId, key: Option<String>) -> Response<Body> {
    let mut response = trouble.response(&id.0);
    let trouble = Some(Arc::new(trouble));
    response.extensions_mut().insert(Told { key, trouble });
    response
}

fn document(status: StatusCode, document: &impl Serialize) -> Response<Body> {
    let mut response = Response::new(Body::from(serde_json::to_vec(document).unwrap_or_default()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, JSON);
    response
}

const JSON: HeaderValue = HeaderValue::from_static("application/json");

async fn metrics(State(door): State<Arc<Door>>, request: Request) -> Response<Body> {
    let (id, peer) = named(&request);
    let who = match door.identify(request.headers(), peer, &[Scope::Metrics]).await {
        Ok(who) => who,
        Err(trouble) => return told(trouble, &id, None),
    };
    let (lanes, log_dropped) = (door.lanes.counts().collect(), door.log.dropped());
    let connections = door.connections.count();
    let spans = door.traces().map(|traces| {
        let (sent, no_room, not_taken) = traces.counts();
        Spans { sent, no_room, not_taken }
    });
    let now = Now { load: door.engine.going_on(), lanes, connections, log_dropped, spans };
    let mut response = Response::new(Body::from(door.metrics.text(&now)));
    let media = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, media);
    response.extensions_mut().insert(Answered(METRICS.1));
    response.extensions_mut().insert(Told { key: Some(who.key), trouble: None });
    response
}

/// Waits for a place. Meanwhile the connection is not one of those that make room for anybody.
pub(crate) async fn queued<T>(
    connection: Option<&Connection>,
    place: impl Future<Output = Result<T, Trouble>>,
) -> Result<T, Trouble> {
    match connection {
        Some(connection) => connection.queued(place).await,
        None => place.await,
    }
}

/// What `front` and the accepting loop have put there.
pub(crate) fn named(request: &Request) -> (RequestId, Option<Arc<Connection>>) {
    let id = request.extensions().get::<RequestId>().cloned();
    let id = id.unwrap_or_else(|| RequestId(new_id().to_string()));
    (id, request.extensions().get::<Arc<Connection>>().cloned())
}

impl Door {
    fn noted(
        &self,
        id: &RequestId,
        method: &Method,
        response: &Response<Body>,
        took: Duration,
        peer: IpAddr,
    ) {
        let route = route_of(response);
        let status = response.status();
        let code = status.as_str();
        let labels = [("route", route), ("status", code)];
        self.metrics.count("hotcell_requests_total", &labels);
        self.metrics.time("hotcell_request_seconds", &[("route", route)], took);
        let told = response.extensions().get::<Told>();
        let trouble = told.and_then(|told| told.trouble.as_deref());
        if let Some(trouble) = trouble
            && matches!(status.as_u16(), 401 | 403 | 421 | 429)
        {
            self.metrics.count("hotcell_denials_total", &[("why", trouble.sort())]);
        }
        let why = trouble.map(|trouble| {
            let problem = trouble.problem();
            format!("{}: {}", problem.what, problem.why)
        });
        self.log.say(
            "request",
            json!({
                "request_id": id.0, "method": method.as_str(), "route": route,
                "status": status.as_u16(), "ms": (took.as_secs_f64() * 1e6).round() / 1e3,
                "peer": peer.to_string(), "key": told.and_then(|told| told.key.clone()),
                "why": why,
            }),
        );
    }

    /// Without a key.
    async fn probe(&self, name: &'static str) -> Response<Body> {
        let is_stopping = self.is_stopping.load(Ordering::Relaxed);
        let mut response = match name {
            "health" => document(StatusCode::OK, &Health { status: "ok" }),
            "readiness" => {
                let ready = self.probe.ready(&self.engine, is_stopping).await;
                let status =
                    if ready.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
                document(status, &ready)
            }
            _ => {
                let mut response = Response::new(Body::from(self.openapi.clone()));
                response.headers_mut().insert(header::CONTENT_TYPE, JSON);
                response
            }
        };
        response.extensions_mut().insert(Answered(name));
        response
    }

    async fn handle(self: &Arc<Door>, route: &'static Route, request: Request) -> Response<Body> {
        let (id, connection) = named(&request);
        let mut who = None;
        let answered = self.answer(route, request, connection, &mut who).await;
        let key = who.map(|who: Identity| who.key);
        let mut response = match answered {
            Ok(mut response) => {
                response.extensions_mut().insert(Told { key, trouble: None });
                response
            }
            Err(trouble) => told(trouble, &id, key),
        };
        response.extensions_mut().insert(Answered(route.name));
        response
    }

    /// Whoever asks is told nothing, and takes nothing of anybody's room, before their key was checked.
    async fn answer(
        self: &Arc<Door>,
        route: &'static Route,
        request: Request,
        connection: Option<Arc<Connection>>,
        who: &mut Option<Identity>,
    ) -> Result<Response<Body>, Trouble> {
        let identity = self.identify(request.headers(), connection.clone(), &route.scopes).await?;
        let identity = who.insert(identity);
        if let Reply::Lines = route.answer {
            return self.lines(route, request, identity, connection).await;
        }
        let trace = request.extensions().get::<Context>().copied();
        let request = Asked::read(self, route, request, &identity.key).await?;
        let most = identity.concurrent.filter(|_| route.counts());
        let place = self.lanes.enter(route.lane, &identity.key, most);
        let place = Arc::new(queued(connection.as_deref(), place).await?);
        let (door, caller) = (Arc::clone(self), identity.caller.clone());
        let scopes = identity.scopes;
        let turn = Turn { door, caller, scopes, place, connection, trace };
        match route.answer {
            Reply::Document(_) | Reply::Call => turn.document(route, request).await,
            Reply::Content => turn.content(request).await,
            Reply::Events => turn.events(route, request).await,
            // It is answered while it is read.
            Reply::Lines => Err(self.panicked()),
        }
    }

    /// A batch. Its body is read when it has its place.
    async fn lines(
        self: &Arc<Door>,
        route: &'static Route,
        request: Request,
        identity: &Identity,
        connection: Option<Arc<Connection>>,
    ) -> Result<Response<Body>, Trouble> {
        let trace = request.extensions().get::<Context>().copied();
        let trace = self.traces().cloned().zip(trace);
        let query = request.uri().query().unwrap_or_default();
        let query = input::query(route, &self.fields, query)?;
        input::check_type(request.headers(), &lines::MEDIA)?;
        let name = one(request.headers(), IDEMPOTENCY_KEY)?.map(Name::new);
        let order = if query.is_in_order { Order::Given } else { Order::Finished };
        // Each job counts: a batch has no more at one time than the key still may.
        let wanted = query.jobs.unwrap_or(Pace::of_machine().jobs);
        let entered = self.lanes.enter_with(route.lane, &identity.key, identity.concurrent, wanted);
        let (place, jobs) = queued(connection.as_deref(), entered).await?;
        let place = Arc::new(place);
        let manner = lines::Manner { jobs, order, name };
        let (caller, batch) = (identity.caller.clone(), Arc::<lines::Batch>::default());
        let work = Work::Batch(caller.clone(), Arc::clone(&batch.brake));
        let job = self.under_way.begin(route.lane, work);
        let ended = Ended(Arc::clone(self), Arc::clone(&job));
        let attention = self.attention(&job);
        let source =
            lines::receive(request.into_body(), Arc::clone(&batch), self.connections.idle());
        let (line, taken) = lines::Line::new();
        let (engine, metrics) = (Arc::clone(&self.engine), Arc::clone(&self.metrics));
        let kept = (attention, Arc::clone(&place));
        tokio::task::spawn_blocking(move || {
            let (_ended, _place) = (ended, place);
            line.carry_out(source, manner, &batch, (&engine, &caller, &metrics), trace);
        });
        let mut response = lines::response(taken);
        if let Some(connection) = connection {
            let body = std::mem::take(response.body_mut());
            *response.body_mut() = watched(body, connection, Box::new(kept));
        }
        Ok(response)
    }

    /// Who it is, and whether they may: a key in one header, and nowhere else.
    pub(crate) async fn identify(
        &self,
        headers: &HeaderMap,
        connection: Option<Arc<Connection>>,
        any: &[Scope],
    ) -> Result<Identity, Trouble> {
        let text = presented(headers)?.to_owned();
        let who = match self.check(text).await {
            Ok(who) => who,
            Err(Refused::Failed(problem)) => return Err(problem.into()),
            Err(Refused::Worthless) => return Err(self.guessed(connection).await),
        };
        // What is refused counts as well: whoever asks for it goes on asking otherwise.
        if let Some(rate) = who.rate
            && let Err(wait) = self.requests.take(&who.key, rate, Instant::now())
        {
            let why = format!("{} in a second are what this key may have", rate.per_second);
            let (what, fix) = ("too many requests", "send them more slowly");
            let status = StatusCode::TOO_MANY_REQUESTS;
            let trouble = Trouble::new(status, "too-many-requests", what, why, fix);
            return Err(trouble.retry_after(wait.as_secs_f64().ceil() as u64));
        }
        rights::opens(who.scopes, any)?;
        if self.is_stopping.load(Ordering::Relaxed) {
            let (what, why) = ("the server is about to end", "it takes nothing new");
            let status = StatusCode::SERVICE_UNAVAILABLE;
            let trouble = Trouble::new(status, "stopping", what, why, "try again later");
            return Err(trouble.retry_after(crate::problem::SOON).last());
        }
        Ok(who)
    }

    /// Asks the record for one number, which mostly takes some microseconds, and can block.
    async fn check(&self, text: String) -> Result<Identity, Refused> {
        if let Some(checked) = self.keys.check_at_once(&text) {
            return checked;
        }
        let busy = || {
            let why = "as many keys as there is room for are being checked";
            let kind = api::ProblemKind::Busy;
            Refused::Failed(api::Problem::new(
                kind,
                "there is no room for it now",
                why,
                "try again",
            ))
        };
        let _turn = self.checks.acquire().await.map_err(|_| busy())?;
        let keys = Arc::clone(&self.keys);
        let checked = tokio::task::spawn_blocking(move || keys.check(&text)).await;
        checked.unwrap_or_else(|_| Err(Refused::Failed(self.panicked().problem().clone())))
    }

    /// A wrong key. Who sends many waits for each answer; whoever has a good one never comes here.
    async fn guessed(&self, connection: Option<Arc<Connection>>) -> Trouble {
        self.metrics.count("hotcell_key_guesses_total", &[]);
        let peer = connection.map(|connection| connection.peer.ip());
        let Some(Err(wait)) = peer.map(|peer| self.guesses.take(peer, Instant::now())) else {
            return no_key("the key is worth nothing here");
        };
        if let Ok(_slow) = self.slowed.try_acquire() {
            tokio::time::sleep(wait.min(SLOWED_FOR)).await;
        }
        let why = "many keys from this address were worth nothing";
        let (what, fix) = ("too many wrong keys", "use a key that `hotcell key create` printed");
        let status = StatusCode::TOO_MANY_REQUESTS;
        let trouble = Trouble::new(status, "too-many-keys", what, why, fix);
        trouble.retry_after(wait.as_secs_f64().ceil() as u64).last()
    }
}

fn presented(headers: &HeaderMap) -> Result<&str, Trouble> {
    let header = one(headers, header::AUTHORIZATION.as_str());
    let header = header.map_err(|_| no_key("there are several keys"))?;
    let Some((scheme, text)) = header.and_then(|header| header.split_once(' ')) else {
        return Err(no_key("there is no key"));
    };
    let is_bearer = scheme.eq_ignore_ascii_case("bearer");
    is_bearer.then(|| text.trim()).ok_or_else(|| no_key("the key is not given as a bearer"))
}

fn no_key(why: &str) -> Trouble {
    let fix = "send `Authorization: Bearer KEY`; `hotcell key create` makes one";
    let what = "nobody comes in without a key";
    Trouble::new(StatusCode::UNAUTHORIZED, "no-key", what, why, fix)
}

/// What a request says, as it came.
struct Asked {
    parts: Parts,
    headers: HeaderMap,
    /// Nobody waits for it.
    is_left: bool,
}

/// Who sends the key of a call believes that the request is carried out once, however often it is sent.
pub(crate) fn no_key_of_a_call(headers: &HeaderMap) -> Result<(), Trouble> {
    if !headers.contains_key(IDEMPOTENCY_KEY) {
        return Ok(());
    }
    let what = "the header `Idempotency-Key` means nothing here";
    let why = "it is for calls, and would be passed over in silence";
    let fix = "leave it out; /openapi.json lists the routes that take it";
    Err(Trouble::new(StatusCode::BAD_REQUEST, "bad-request", what, why, fix))
}

impl Asked {
    async fn read(
        door: &Door,
        route: &Route,
        mut request: Request,
        key_id: &str,
    ) -> Result<Asked, Trouble> {
        let path = request.extract_parts::<RawPathParams>().await.map_err(|_| {
            Trouble::bad_request("the path cannot be read", "it is not UTF-8 once it is decoded")
        })?;
        let path = path.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let query = request.uri().query().unwrap_or_default();
        let mut query = input::query(route, &door.fields, query)?;
        let key = one(request.headers(), IDEMPOTENCY_KEY)?.map(str::to_owned);
        if route.keyed() == Keyed::Nothing && !request.method().is_safe() {
            no_key_of_a_call(request.headers())?;
        }
        if let Reply::Events = route.answer {
            query.fields.entry("follow").or_insert(true.into());
            if let Some(at) = events::last_event(request.headers())? {
                for (name, at) in [("stdout", at.stdout), ("stderr", at.stderr)] {
                    // A client that comes back sends both; what the query says is still looked at.
                    let said = query.fields.insert(name.into(), at.into());
                    if said.is_some_and(|said| said.as_u64().is_none()) {
                        let why = format!("`{name}` is no number of bytes");
                        return Err(Trouble::bad_request("the query cannot be read", &why));
                    }
                }
            }
        }
        let (head, body) = request.into_parts();
        let room = (&door.bodies, key_id);
        let body = input::body(&head.method, &head.headers, body, room).await?;
        let parts = Parts { path, query: query.fields, body, key };
        Ok(Asked { parts, headers: head.headers, is_left: query.is_left })
    }
}

/// A request that is served.
struct Turn {
    door: Arc<Door>,
    caller: Caller,
    scopes: Scopes,
    /// Also of an answer that was not taken yet.
    place: Arc<Place>,
    connection: Option<Arc<Connection>>,
    trace: Option<Context>,
}

/// What is ready to be sent.
enum Made {
    Document(StatusCode, Vec<u8>),
    Left(CallId),
}

impl Turn {
    async fn document(
        self,
        route: &'static Route,
        asked: Asked,
    ) -> Result<Response<Body>, Trouble> {
        let Turn { door, caller, scopes, place, connection, trace } = self;
        let call = new_id();
        // Only calls can be named before they have ended. Who waits for an approval has one as soon as that is
        // there.
        let work = match route.ask {
            "run" | "call" | "await" => Work::Call(caller.clone(), call),
            _ => Work::Nothing,
        };
        let job = door.under_way.begin(route.lane, work);
        let ended = Ended(Arc::clone(&door), Arc::clone(&job));
        let begun = asked.is_left.then(|| door.observer.when_begun(call));
        let attention = (!asked.is_left).then(|| door.attention(&job));
        let (engine, metrics) = (Arc::clone(&door.engine), Arc::clone(&door.metrics));
        let parts = asked.parts;
        let trace = door.traces().cloned().zip(trace);
        let work = tokio::task::spawn_blocking(move || {
            let (_ended, _place) = (ended, place);
            let _traced = trace.map(|(traces, context)| traces.enter(context));
            carry_out(route, parts, (&engine, &caller, scopes), call, &job, &metrics)
        });
        let made = match begun {
            None => work.await,
            Some(begun) => {
                let made = tokio::select! {
                    biased;
                    made = work => made,
                    Ok(()) = begun => Ok(Ok(Made::Left(call))),
                };
                door.observer.forget(call);
                made
            }
        };
        drop(attention);
        let made = made.unwrap_or_else(|_| Err(door.panicked()))?;
        let mut response = match made {
            Made::Left(call) => left(call),
            Made::Document(status, bytes) => {
                let mut response = Response::new(Body::from(bytes));
                *response.status_mut() = status;
                response.headers_mut().insert(header::CONTENT_TYPE, JSON);
                response
            }
        };
        if let Some(connection) = connection {
            let body = std::mem::take(response.body_mut());
            *response.body_mut() = watched(body, connection, ());
        }
        Ok(response)
    }

    async fn content(self, asked: Asked) -> Result<Response<Body>, Trouble> {
        let Turn { door, caller, place, connection, .. } = self;
        let job = door.under_way.begin(crate::route::Lane::Contents, Work::Nothing);
        let ended = Ended(Arc::clone(&door), Arc::clone(&job));
        let named = asked.parts.path.into_iter().next().map(|(_, value)| value).unwrap_or_default();
        let (engine, whose, own) = (Arc::clone(&door.engine), caller.clone(), Arc::clone(&job));
        let headers = asked.headers;
        let begun = tokio::task::spawn_blocking(move || {
            content::begin(&engine, &whose, named, &headers, &own)
        });
        let begun = begun.await.unwrap_or_else(|_| Err(door.panicked()))?;
        let mut response = begun.response(Arc::clone(&door.engine), caller, job);
        if let Some(connection) = connection {
            let body = std::mem::take(response.body_mut());
            *response.body_mut() = watched(body, connection, Box::new((place, ended)));
        }
        Ok(response)
    }

    async fn events(self, route: &'static Route, asked: Asked) -> Result<Response<Body>, Trouble> {
        let Turn { door, caller, place, connection, .. } = self;
        let ask = asked.parts.ask(route)?;
        let Ask::Logs { call, .. } = ask else { return Err(door.panicked()) };
        // Before it is looked whether it has ended: nothing is missed.
        let phases = door.observer.follow(call);
        let first = phases.as_ref().map_or(Phase::Running, |phases| *phases.borrow());
        let job = door.under_way.begin(route.lane, Work::Nothing);
        let ended = Ended(Arc::clone(&door), Arc::clone(&job));
        let attention = door.attention(&job);
        let (line, begun, taken) = events::Line::new();
        let engine = Arc::clone(&door.engine);
        let kept = (attention, Arc::clone(&place));
        tokio::task::spawn_blocking(move || {
            let (_ended, _place) = (ended, place);
            line.tell(&engine, &caller, (ask, first), &job);
        });
        begun.await.unwrap_or_else(|_| Err(door.panicked()))?;
        let mut response = events::response(call, taken, phases.filter(|_| first == Phase::Queued));
        if let Some(connection) = connection {
            let body = std::mem::take(response.body_mut());
            *response.body_mut() = watched(body, connection, Box::new(kept));
        }
        Ok(response)
    }
}

impl Door {
    fn attention(self: &Arc<Door>, job: &Arc<Job>) -> Attention {
        Attention::new(Arc::clone(job), Arc::clone(&self.under_way), Arc::clone(&self.engine))
    }

    fn panicked(&self) -> Trouble {
        self.metrics.count("hotcell_panics_total", &[]);
        let (what, why) = ("the request could not be answered", "hotcell has a fault");
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        Trouble::new(status, "error", what, why, "report it")
    }
}

/// Tells when a job is over, however that happens.
struct Ended(Arc<Door>, Arc<Job>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.under_way.end(&self.1);
    }
}

/// On a thread that may block: from bytes to bytes.
fn carry_out(
    route: &Route,
    parts: Parts,
    (engine, caller, scopes): (&Engine, &Caller, Scopes),
    call: CallId,
    job: &Job,
    metrics: &Metrics,
) -> Result<Made, Trouble> {
    let ask = parts.ask(route)?;
    rights::covers(scopes, engine, caller, &ask)?;
    let attached = Attached { id: Some(call), ..Attached::default() };
    let with = With { attached, interrupt: &job.interrupt, log: &mut |_, _| true };
    let answer = api::answer(engine, caller, ask, with)?;
    answer.calls().for_each(|called| metrics.called(called));
    match answer {
        Answer::Called(called) => {
            let (status, called): (_, Box<Called>) = of_call(called)?;
            Ok(Made::Document(status, bytes(&called)?))
        }
        // Rules that cannot be read are an answer only to whoever asks about them.
        Answer::Checked(checked) if route.ask != "policy_check" && !checked.good => {
            let first = checked.faults.first();
            let why = first.map(|fault| format!("line {}: {}", fault.line, fault.what));
            let status = StatusCode::UNPROCESSABLE_ENTITY;
            let (what, fix) =
                ("the rules cannot be read", "`/v1/policy/check` lists what is wrong");
            Err(Trouble::new(status, "invalid", what, why.unwrap_or_default(), fix))
        }
        answer => Ok(Made::Document(StatusCode::OK, bytes(&answer)?)),
    }
}

fn bytes(document: &impl Serialize) -> Result<Vec<u8>, Trouble> {
    serde_json::to_vec(document).map_err(|error| {
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        Trouble::new(
            status,
            "error",
            "the answer cannot be written",
            error.to_string(),
            "report it",
        )
    })
}

fn left(call: CallId) -> Response<Body> {
    let id = call.to_string();
    let mut response = document(StatusCode::ACCEPTED, &Accepted { version: 1, id: id.clone() });
    if let Ok(place) = HeaderValue::from_str(&format!("/v1/runs/{id}")) {
        response.headers_mut().insert(header::LOCATION, place);
    }
    response
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use hotcell_engine::Options;
    use http_body_util::BodyExt;
    use tower_service::Service;

    use super::*;
    use crate::connections::Bounds;
    use crate::log::LogForm;

    /// A place where keys are looked up that has a fault, here or on a thread of its own.
    #[derive(Debug)]
    struct Broken {
        at_once: bool,
    }

    impl Keys for Broken {
        fn check(&self, _: &str) -> Result<Identity, Refused> {
            panic!("on a thread that may block")
        }

        fn check_at_once(&self, _: &str) -> Option<Result<Identity, Refused>> {
            assert!(!self.at_once, "while the request is polled");
            None
        }

        fn has_any(&self) -> bool {
            true
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_panic_costs_one_request_and_is_a_500() {
        let home = tempfile::tempdir().unwrap();
        let engine = Arc::new(Engine::open(Options::at(home.path().to_owned())).unwrap());
        let address: SocketAddr = "127.0.0.1:1".parse().unwrap();
        let minute = Duration::from_secs(60);
        let bounds = Bounds { most: 64, idle: minute, head: minute, stall: minute };
        let connections = Connections::new(bounds);
        let connection = connections.admit(address).0.unwrap();
        let log = Log::begin(LogForm::Json, std::io::sink());
        let hosts = Hosts::new(address, &[]);
        let mut door = Door::new(engine, Observer::new(None), hosts, connections, log);
        for at_once in [true, false] {
            door.keys = Arc::new(Broken { at_once });
            let shared = Arc::new(door);
            let mut router = router(Arc::clone(&shared));
            let ask = |path: &str| {
                let mut request = Request::builder().uri(path).header("host", "127.0.0.1:1");
                request = request.header("authorization", "Bearer hck_x");
                let mut request = request.body(Body::empty()).unwrap();
                request.extensions_mut().insert(Arc::clone(&connection.connection));
                request
            };
            let broken = router.call(ask("/v1/tools")).await.unwrap();
            assert_eq!(broken.status(), 500);
            let media = broken.headers().get("content-type").unwrap();
            assert_eq!(media, crate::problem::MEDIA);
            let text = broken.into_body().collect().await.unwrap().to_bytes();
            let text = String::from_utf8_lossy(&text).into_owned();
            assert!(!text.contains("polled") && !text.contains("thread"), "{text}");
            // What comes next is answered.
            assert_eq!(router.call(ask("/healthz")).await.unwrap().status(), 200);
            drop(router);
            door = Arc::into_inner(shared).unwrap();
        }
        let now = Now {
            load: door.engine.going_on(),
            lanes: Vec::new(),
            connections: 0,
            log_dropped: 0,
            spans: None,
        };
        assert!(door.metrics.text(&now).contains("hotcell_panics_total 2\n"));
    }
}
