//! Tunnels: `CONNECT` and SOCKS. What goes through one has to be TLS for the host that was asked for, unless the
//! policy knows better.

use tokio::time::timeout;

use super::desk::{Settled, Ticket};
use super::flow::{Broken, Inbox, Way};
use super::http;
use super::run::Direction;
use super::secure::{self, Secure};
use super::share::STEP;
use super::socket::Side;
use super::visit::Visit;
use super::words::{self, Next, part, refuse};
use crate::head::Form;
use crate::hello::{self, Hello, MOST_HELLO};
use crate::socks::Reply;
use crate::target::Authority;
use crate::wire::{End, Protocol, Wanted};

/// A greeting may come in many small records.
const MOST_GREETING: usize = 2 * MOST_HELLO;
/// A fatal alert of TLS: `unrecognized_name`.
const WRONG_NAME: &[u8] = &[21, 3, 3, 0, 2, 2, 112];

/// How the client asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    Http,
    Socks,
}

pub(crate) struct Tunnel {
    pub(crate) authority: Authority,
    pub(crate) manner: Manner,
    /// What the client has said already behind its question.
    pub(crate) inbox: Inbox,
}

pub(crate) async fn serve(visit: &Visit, client: Side, mut tunnel: Tunnel) {
    let wanted = Wanted {
        protocol: Protocol::Https,
        host: tunnel.authority.host.clone(),
        port: tunnel.authority.port,
        method: None,
        path: None,
        intercepted: false,
        kept: false,
    };
    let ticket = visit.ask(wanted).await;
    match ticket.settle().await {
        Settled::Connected { side, raw } => {
            let how = connected(&ticket, &client, &side, &mut tunnel, raw).await;
            ticket.end(how.err().unwrap_or(End::Done));
        }
        Settled::Intercept { chain, key } => {
            let how = intercepted(visit, &ticket, client, tunnel, (chain, key)).await;
            ticket.end(how.err().unwrap_or(End::Done));
        }
        Settled::Refused { status, body } => {
            ticket.end(End::Refused);
            drop(ticket);
            tell(&client, tunnel.manner, status, &body).await;
        }
        Settled::Relay(_) | Settled::Again | Settled::Unanswered => {
            ticket.end(End::Unanswered);
            drop(ticket);
            tell(&client, tunnel.manner, 502, words::UNANSWERED).await;
        }
    }
}

async fn connected(
    ticket: &Ticket,
    client: &Side,
    upstream: &Side,
    tunnel: &mut Tunnel,
    raw: bool,
) -> Result<(), Broken> {
    grant(client, tunnel.manner).await?;
    if !raw && greet(ticket, client, tunnel).await?.encrypted {
        // Whom it is for, only the other side could tell.
        client.write(WRONG_NAME).await.ok();
        return Err(End::OtherName);
    }
    let up = Way { ticket, direction: Direction::Up, from: client, to: upstream };
    let down = Way { ticket, direction: Direction::Down, from: upstream, to: client };
    let up = async {
        up.pass(Vec::new(), &mut tunnel.inbox, u64::MAX).await?;
        upstream.end().await;
        Ok(())
    };
    let down = async {
        down.pass(Vec::new(), &mut Inbox::default(), u64::MAX).await?;
        client.end().await;
        Ok(())
    };
    ticket.touch();
    tokio::select! {
        biased;
        both = async { tokio::try_join!(up, down) } => both.map(|_: ((), ())| ()),
        () = ticket.idle() => Err(End::Idle),
    }
}

async fn intercepted(
    visit: &Visit,
    ticket: &Ticket,
    client: Side,
    mut tunnel: Tunnel,
    (chain, key): (Vec<Vec<u8>>, Vec<u8>),
) -> Result<(), Broken> {
    grant(&client, tunnel.manner).await?;
    greet(ticket, &client, &mut tunnel).await?;
    let Side::Plain(socket) = client else { return Err(End::Unanswered) };
    // The one step here that costs a processor something.
    visit.run.share.turn().await;
    visit.run.share.worked(super::share::REQUEST * 4);
    let config = secure::config(chain, key).map_err(|_| End::Unanswered)?;
    let secure = Secure::new(socket, config, tunnel.inbox.take()).map_err(|_| End::Unanswered)?;
    let shaken = timeout(visit.run.head_time(), secure.handshake()).await;
    shaken.map_err(|_| End::Idle)?.map_err(|_| End::Malformed)?;
    let client = Side::Secure(Box::new(secure));
    http::serve(visit, &client, &mut Inbox::default(), &Form::Within(tunnel.authority)).await;
    Ok(())
}

/// Tells the client that it is connected.
async fn grant(client: &Side, manner: Manner) -> Result<(), Broken> {
    let granted = match manner {
        Manner::Http => b"HTTP/1.1 200 Connection Established\r\n\r\n",
        Manner::Socks => Reply::Granted.bytes(),
    };
    client.write(granted).await.map_err(|_| End::Left)
}

async fn tell(client: &Side, manner: Manner, status: u16, body: &str) {
    if manner == Manner::Http {
        return refuse(client, "CONNECT", status, body, Next::Ends).await;
    }
    let reply = match status {
        403 => Reply::NotAllowed,
        502..=504 => Reply::Unreachable,
        _ => Reply::Failed,
    };
    // Who has gone learns it in another way.
    drop(client.write(reply.bytes()).await);
    part(client).await;
}

/// Waits until the client has said for which host it wants the other side, and that it is this one. Nothing was
/// passed on so far.
async fn greet(ticket: &Ticket, client: &Side, tunnel: &mut Tunnel) -> Result<Hello, Broken> {
    let run = &ticket.run;
    let inbox = &mut tunnel.inbox;
    let greeting = async {
        loop {
            match hello::hello(inbox.rest()) {
                Ok(Some(hello)) => return Ok(hello),
                Ok(None) if inbox.rest().len() < MOST_GREETING => {}
                _ => return Err(End::NotTls),
            }
            run.share.turn().await;
            run.share.worked(STEP + inbox.rest().len() as u64);
            match inbox.fill(client, MOST_GREETING).await {
                Ok(1..) => {}
                _ => return Err(End::Left),
            }
        }
    };
    let hello = timeout(run.head_time(), greeting).await.map_err(|_| End::Idle)??;
    if hello.is_for(&tunnel.authority.host) {
        return Ok(hello);
    }
    // It may have gone.
    drop(client.write(WRONG_NAME).await);
    Err(End::OtherName)
}
