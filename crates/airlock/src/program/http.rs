//! Requests, one after the other on a connection: each is read, asked for and carried to its own answer.

use std::cell::Cell;
use std::pin::pin;

use tokio::time::timeout;

use super::desk::{Settled, Ticket};
use super::flow::{Broken, Inbox, Way};
use super::run::{Direction, Run};
use super::share::{REQUEST, STEP};
use super::socket::Side;
use super::visit::Visit;
use super::words::{self, Next, part, refuse};
use crate::chunked::{Chunked, Extensions, Framed};
use crate::head::{self, Connection, Extent, Form, Request, Response};
use crate::target::{self, Authority, Target};
use crate::wire::{End, Fault, Protocol, Wanted};

/// Most announcements (1xx) before a response.
const MOST_ANNOUNCED: u32 = 8;
/// How often a request is tried: once more if the connection that was kept turns out to be gone.
const TRIES: u32 = 2;

/// A connection of the last request that can be used once more.
struct Kept {
    upstream: Side,
    protocol: Protocol,
    authority: Authority,
}

/// A request and where it goes.
struct Errand<'a> {
    request: &'a Request,
    protocol: Protocol,
    authority: &'a Authority,
    path: &'a str,
    intercepted: bool,
}

/// What became of a request that was passed on.
struct Done {
    /// The other side can be used again.
    upstream: bool,
    client: Next,
}

/// Serves requests until the connection is over, or the client wants a tunnel to somewhere.
pub(crate) async fn serve(
    visit: &Visit,
    client: &Side,
    inbox: &mut Inbox,
    form: &Form,
) -> Option<Authority> {
    let run = &visit.run;
    let mut kept = None;
    let mut patience = run.head_time();
    loop {
        if inbox.is_empty() {
            let first = timeout(patience, inbox.fill(client, run.limits().bytes)).await;
            if !matches!(first, Ok(Ok(1..))) {
                // A goodbye for who understands one.
                client.end().await;
                return None;
            }
        }
        patience = run.idle_time();
        run.share.turn().await;
        run.share.worked(REQUEST);
        if !run.request() {
            return fault(visit, client, Fault::OverRequests).await;
        }
        let request = match read(run, client, inbox, form).await {
            Ok(Some(request)) => request,
            Ok(None) => return None,
            Err(why) => return fault(visit, client, why).await,
        };
        // Within a tunnel the credential was said in front of it.
        if let (Form::Proxy, Err(why)) = (form, check(run, &request)) {
            visit.malformed(why).await;
            // A client may ask first and say who it is when it is told to.
            let next = next(&request, why == Fault::Anonymous);
            refuse(client, &request.method, why.status(), why.body(), next).await;
            if next == Next::Ends {
                return None;
            }
            continue;
        }
        let (protocol, authority, path) = match (&request.target, form) {
            (Target::Tunnel(authority), _) => return Some(authority.clone()),
            (Target::Absolute { secure: true, authority, path }, _) => {
                (Protocol::Https, authority, path)
            }
            (Target::Absolute { authority, path, .. }, _) => (Protocol::Http, authority, path),
            (Target::Origin { path }, Form::Within(authority)) => {
                (Protocol::Https, authority, path)
            }
            (Target::Origin { .. }, Form::Proxy) => return None,
        };
        let intercepted = matches!(form, Form::Within(_));
        let errand = Errand { request: &request, protocol, authority, path, intercepted };
        if carry(visit, client, inbox, &errand, &mut kept).await == Next::Ends {
            return None;
        }
    }
}

/// The next request, or nothing if the client has gone in the middle of it.
async fn read(
    run: &Run,
    client: &Side,
    inbox: &mut Inbox,
    form: &Form,
) -> Result<Option<Request>, Fault> {
    let most = run.limits().bytes;
    let mut seen = 0;
    let whole = async {
        loop {
            match head::end(inbox.rest(), &mut seen)? {
                Some(length) if length <= most => return Ok(Some(length)),
                None if inbox.rest().len() < most => {}
                _ => return Err(Fault::Long),
            }
            run.share.turn().await;
            run.share.worked(STEP);
            if !matches!(inbox.fill(client, most).await, Ok(1..)) {
                return Ok(None);
            }
        }
    };
    let Some(length) = timeout(run.head_time(), whole).await.map_err(|_| Fault::Slow)?? else {
        return Ok(None);
    };
    let request =
        head::request(inbox.rest().get(..length).unwrap_or_default(), form, run.limits())?;
    inbox.used(length);
    Ok(Some(request))
}

async fn fault(visit: &Visit, client: &Side, why: Fault) -> Option<Authority> {
    visit.malformed(why).await;
    refuse(client, "", why.status(), why.body(), Next::Ends).await;
    None
}

fn check(run: &Run, request: &Request) -> Result<(), Fault> {
    match &request.credential {
        None => Err(Fault::Anonymous),
        Some(value) if run.admits_basic(value) => Ok(()),
        Some(_) => Err(Fault::Credential),
    }
}

/// Where a body is still to come nobody reads it: it would be taken for the next request.
fn next(request: &Request, may: bool) -> Next {
    let nothing = matches!(request.body, Extent::None | Extent::Length(0));
    if may && nothing && request.keep { Next::GoesOn } else { Next::Ends }
}

/// Asks for a request, and carries it there and its response back.
async fn carry(
    visit: &Visit,
    client: &Side,
    inbox: &mut Inbox,
    errand: &Errand<'_>,
    kept: &mut Option<Kept>,
) -> Next {
    let request = errand.request;
    for attempt in 1..=TRIES {
        let old = kept.take().filter(|kept| attempt == 1 && kept.serves(errand));
        let ticket = visit.ask(errand.wanted(old.is_some())).await;
        let (upstream, again) = match (ticket.settle().await, old) {
            (Settled::Again, Some(old)) => (old.upstream, true),
            (Settled::Relay(upstream), _) => (upstream, false),
            // In the open only where it was asked for in the open.
            (Settled::Connected { side, .. }, _) if errand.protocol == Protocol::Http => {
                (side, false)
            }
            (Settled::Refused { status, body }, _) => {
                ticket.end(End::Refused);
                drop(ticket);
                let next = next(request, true);
                refuse(client, &request.method, status, &body, next).await;
                return next;
            }
            _ => {
                ticket.end(End::Unanswered);
                drop(ticket);
                let next = next(request, true);
                refuse(client, &request.method, 502, words::UNANSWERED, next).await;
                return next;
            }
        };
        let begun = Cell::new(Begun::Nothing);
        let ends = Ends { client, upstream: &upstream };
        let done = converse(&ticket, &ends, inbox, errand, &begun).await;
        match done {
            Ok(done) => {
                ticket.end(End::Done);
                drop(ticket);
                if done.upstream {
                    let authority = errand.authority.clone();
                    *kept = Some(Kept { upstream, protocol: errand.protocol, authority });
                }
                if done.client == Next::Ends {
                    part(client).await;
                }
                return done.client;
            }
            Err(how) => {
                ticket.end(how);
                drop(ticket);
                let stale = again && how == End::Broken && begun.get() == Begun::Nothing;
                if stale && errand.may_be_repeated() {
                    continue;
                }
                if begun.get() != Begun::Response {
                    let (status, body) = told(how);
                    refuse(client, &request.method, status, body, Next::Ends).await;
                }
                return Next::Ends;
            }
        }
    }
    Next::Ends
}

impl Kept {
    fn serves(&self, errand: &Errand<'_>) -> bool {
        self.protocol == errand.protocol
            && self.authority == *errand.authority
            && self.upstream.is_quiet()
    }
}

impl Errand<'_> {
    fn wanted(&self, kept: bool) -> Wanted {
        Wanted {
            protocol: self.protocol,
            host: self.authority.host.clone(),
            port: self.authority.port,
            method: Some(self.request.method.clone()),
            path: Some(target::judged(self.path).to_owned()),
            intercepted: self.intercepted,
            kept,
        }
    }

    fn may_be_repeated(&self) -> bool {
        let safe = ["GET", "HEAD", "OPTIONS"].contains(&self.request.method.as_str());
        safe && self.request.body == Extent::None
    }

    fn head(&self) -> Vec<u8> {
        let usual = if self.protocol == Protocol::Http { 80 } else { 443 };
        let last = if self.request.keep { Connection::Keep } else { Connection::Close };
        self.request.forwarded(&self.authority.shown(usual), self.path, last)
    }
}

/// What is said where a request did not come to a response.
fn told(how: Broken) -> (u16, &'static str) {
    match how {
        End::Malformed => (400, words::BAD_BODY),
        End::OverUp | End::OverDown => (429, words::OVER),
        End::Idle => (504, words::LATE),
        End::BadResponse => (502, words::BAD_RESPONSE),
        _ => (502, words::BROKEN),
    }
}

/// Both ends of a conversation.
struct Ends<'a> {
    client: &'a Side,
    upstream: &'a Side,
}

/// How far a response has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Begun {
    Nothing,
    /// The other side has said something.
    Heard,
    /// The client has.
    Response,
}

/// Sends the request and passes the response on, both at once: a server may answer before it has heard all.
async fn converse(
    ticket: &Ticket,
    ends: &Ends<'_>,
    inbox: &mut Inbox,
    errand: &Errand<'_>,
    begun: &Cell<Begun>,
) -> Result<Done, Broken> {
    let mut sending = pin!(send(ticket, ends, inbox, errand));
    let mut receiving = pin!(receive(ticket, ends, errand.request, begun));
    let mut idle = pin!(ticket.idle());
    let mut sent = None;
    loop {
        tokio::select! {
            biased;
            result = &mut sending, if sent.is_none() => match result {
                // There may be an answer that says why nobody listens.
                Ok(()) | Err(End::Broken) => sent = Some(result.is_ok()),
                Err(how) => return Err(how),
            },
            received = &mut receiving => {
                let mut done = received?;
                if sent != Some(true) {
                    done.upstream = false;
                    done.client = Next::Ends;
                }
                return Ok(done);
            }
            () = &mut idle => return Err(End::Idle),
        }
    }
}

async fn send(
    ticket: &Ticket,
    ends: &Ends<'_>,
    inbox: &mut Inbox,
    errand: &Errand<'_>,
) -> Result<(), Broken> {
    let way = Way { ticket, direction: Direction::Up, from: ends.client, to: ends.upstream };
    match errand.request.body {
        Extent::Length(length) => {
            let count = way.pass(errand.head(), inbox, length).await?;
            if count < length { Err(End::Left) } else { Ok(()) }
        }
        Extent::Chunked => {
            let chunked = Chunked::new(Extensions::Refused, Framed::InChunks);
            way.pass_chunks(errand.head(), inbox, chunked).await
        }
        Extent::None | Extent::End => way.write(&errand.head()).await,
    }
}

async fn receive(
    ticket: &Ticket,
    ends: &Ends<'_>,
    request: &Request,
    begun: &Cell<Begun>,
) -> Result<Done, Broken> {
    let way = Way { ticket, direction: Direction::Down, from: ends.upstream, to: ends.client };
    let mut inbox = Inbox::default();
    let mut announced = 0;
    let response = loop {
        let response = response(ticket, ends.upstream, &mut inbox, request, begun).await?;
        // What comes after a switch of protocols could not be judged, and nobody has asked for one.
        if response.status == 101 || announced == MOST_ANNOUNCED {
            return Err(End::BadResponse);
        }
        if response.status >= 200 {
            break response;
        }
        announced += 1;
        if !request.old {
            way.write(&response.forwarded(Extent::None, Connection::Keep)).await?;
        }
    };
    let framed = if request.old { Framed::Plain } else { Framed::InChunks };
    let body = match response.body {
        Extent::Chunked if request.old => Extent::End,
        body => body,
    };
    let goes_on = request.keep && body != Extent::End;
    let last = if goes_on { Connection::Keep } else { Connection::Close };
    let head = response.forwarded(body, last);
    begun.set(Begun::Response);
    match response.body {
        Extent::None => way.write(&head).await?,
        Extent::Length(length) => {
            if way.pass(head, &mut inbox, length).await? < length {
                return Err(End::Broken);
            }
        }
        Extent::Chunked => {
            let chunked = Chunked::new(Extensions::Dropped, framed);
            way.pass_chunks(head, &mut inbox, chunked).await?;
        }
        Extent::End => {
            way.pass(head, &mut inbox, u64::MAX).await?;
        }
    }
    Ok(Done {
        // More than was asked for belongs to nobody.
        upstream: response.keep && inbox.is_empty(),
        client: if goes_on { Next::GoesOn } else { Next::Ends },
    })
}

/// The head of the next response.
async fn response(
    ticket: &Ticket,
    upstream: &Side,
    inbox: &mut Inbox,
    request: &Request,
    begun: &Cell<Begun>,
) -> Result<Response, Broken> {
    let limits = ticket.run.limits();
    let mut seen = 0;
    loop {
        match head::end(inbox.rest(), &mut seen).map_err(|_| End::BadResponse)? {
            Some(length) if length <= limits.bytes => {
                let head = inbox.rest().get(..length).unwrap_or_default();
                let response = head::response(head, &request.method, limits);
                inbox.used(length);
                return response.map_err(|_| End::BadResponse);
            }
            None if inbox.rest().len() < limits.bytes => {}
            _ => return Err(End::BadResponse),
        }
        if inbox.fill(upstream, limits.bytes).await.map_err(|_| End::Broken)? == 0 {
            return Err(End::Broken);
        }
        begun.set(begun.get().max(Begun::Heard));
        ticket.run.share.worked(STEP);
        ticket.run.share.turn().await;
    }
}
