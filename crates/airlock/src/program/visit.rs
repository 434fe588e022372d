//! One connection of a run, from its first byte to its end.

use std::rc::Rc;

use tokio::time::timeout;

use super::desk::{Desk, Ticket};
use super::flow::Inbox;
use super::run::Run;
use super::socket::{Side, Socket};
use super::tunnel::{self, Manner};
use super::{http, tunnel::Tunnel};
use crate::head::Form;
use crate::socks::{self, Refused, Step};
use crate::target::Authority;
use crate::wire::{Fault, Wanted};

pub(crate) struct Visit {
    pub(crate) desk: Rc<Desk>,
    pub(crate) run: Rc<Run>,
    pub(crate) number: u64,
}

impl Visit {
    pub(crate) async fn receive(&self, client: Socket) {
        if !self.run.is_heard() {
            return;
        }
        let client = Side::Plain(client);
        let mut inbox = Inbox::default();
        let first =
            timeout(self.run.head_time(), inbox.fill(&client, self.run.limits().bytes)).await;
        if !matches!(first, Ok(Ok(1..))) {
            return;
        }
        let asked = if inbox.rest().first() == Some(&5) {
            let asked = self.socks(&client, &mut inbox).await;
            asked.map(|authority| (authority, Manner::Socks))
        } else {
            let asked = http::serve(self, &client, &mut inbox, &Form::Proxy).await;
            asked.map(|authority| (authority, Manner::Http))
        };
        if let Some((authority, manner)) = asked {
            tunnel::serve(self, client, Tunnel { authority, manner, inbox }).await;
        }
    }

    pub(crate) async fn ask(&self, wanted: Wanted) -> Ticket {
        self.desk.ask(&self.run, self.number, wanted).await
    }

    pub(crate) async fn malformed(&self, why: Fault) {
        self.desk.malformed(&self.run, self.number, why).await;
    }

    /// What a client of SOCKS wants to be connected to, once it has said who it is.
    async fn socks(&self, client: &Side, inbox: &mut Inbox) -> Option<Authority> {
        // Counted as one, however far it gets.
        let within = self.run.request();
        let talk = async {
            self.step(client, inbox, socks::greeting).await?;
            client.write(socks::CHOSEN).await.map_err(|_| None)?;
            let run = &self.run;
            let good = self
                .step(client, inbox, |bytes| {
                    let step = socks::credential(bytes)?;
                    Ok(step.map(|((user, password), length)| (run.admits(user, password), length)))
                })
                .await?;
            if !good {
                return Err(Some((Fault::Credential, socks::UNWELCOME)));
            }
            client.write(socks::WELCOME).await.map_err(|_| None)?;
            let authority = self.step(client, inbox, socks::request).await?;
            if within {
                Ok(authority)
            } else {
                Err(Some((Fault::OverRequests, socks::Reply::Failed.bytes())))
            }
        };
        match timeout(self.run.head_time(), talk).await {
            Ok(Ok(authority)) => Some(authority),
            Ok(Err(None)) => None,
            Ok(Err(Some((why, answer)))) => {
                self.malformed(why).await;
                drop(client.write(answer).await);
                super::words::part(client).await;
                None
            }
            Err(_) => {
                self.malformed(Fault::Slow).await;
                None
            }
        }
    }

    /// The next message. An error is what it was, and what the client is told; nothing if it has gone.
    async fn step<T>(
        &self,
        client: &Side,
        inbox: &mut Inbox,
        read: impl Fn(&[u8]) -> Step<T>,
    ) -> Result<T, Option<(Fault, &'static [u8])>> {
        loop {
            match read(inbox.rest()) {
                Ok(Some((message, length))) => {
                    inbox.used(length);
                    return Ok(message);
                }
                Ok(None) => {}
                Err(Refused(answer)) => return Err(Some((Fault::Unsupported, answer))),
            }
            self.run.share.turn().await;
            self.run.share.worked(super::share::STEP);
            if !matches!(inbox.fill(client, socks::MOST_MESSAGE).await, Ok(1..)) {
                return Err(None);
            }
        }
    }
}
