//! The conversation with hotcell: what is asked, and what comes back.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::Instant;

use tokio::io::unix::AsyncFd;
use tokio::sync::{Notify, oneshot};
use tokio::time::timeout;

use super::run::{Direction, Run};
use super::socket::{Side, Socket, watched};
use crate::wire::{
    self, Answer, End, Fault, FromAirlock, MOST_PACKET, MOST_UNTOLD, Received, ToAirlock, Wanted,
};

/// Most messages that wait for hotcell before nobody asks any more. Ends do not wait: each belongs to a question.
const MOST_WAITING: usize = 256;
/// How often one thing is connected: an address after the other.
const MOST_ATTEMPTS: u32 = 16;
/// hotcell has this many times as long to answer as connecting may take, since it looks names up.
const ANSWER_TIMES: u32 = 3;

pub(crate) struct Desk {
    control: AsyncFd<OwnedFd>,
    waiting: RefCell<VecDeque<FromAirlock>>,
    more: Notify,
    room: Notify,
    answers: RefCell<HashMap<u64, oneshot::Sender<Reply>>>,
    next: Cell<u64>,
}

pub(crate) struct Reply {
    answer: Answer,
    descriptor: Option<OwnedFd>,
}

/// Something that was asked. Says that it has ended when it is dropped.
pub(crate) struct Ticket {
    desk: Rc<Desk>,
    pub(crate) run: Rc<Run>,
    number: u64,
    connection: u64,
    up: Cell<u64>,
    down: Cell<u64>,
    /// What hotcell knows of both together.
    told: Cell<u64>,
    how: Cell<End>,
    answer: RefCell<Option<oneshot::Receiver<Reply>>>,
    /// When something last went on.
    last: Cell<Instant>,
}

/// What came of a question.
pub(crate) enum Settled {
    Connected {
        side: Side,
        raw: bool,
    },
    Relay(Side),
    Again,
    Intercept {
        chain: Vec<Vec<u8>>,
        key: Vec<u8>,
    },
    Refused {
        status: u16,
        body: String,
    },
    /// No answer.
    Unanswered,
}

impl Desk {
    pub(crate) fn new(control: OwnedFd) -> io::Result<Desk> {
        Ok(Desk {
            control: watched(control)?,
            waiting: RefCell::default(),
            more: Notify::new(),
            room: Notify::new(),
            answers: RefCell::default(),
            next: Cell::new(0),
        })
    }

    /// A number that nothing else has.
    pub(crate) fn number(&self) -> u64 {
        self.next.set(self.next.get().wrapping_add(1));
        self.next.get()
    }

    /// The next message of hotcell's, or nothing when it has gone.
    pub(crate) async fn hear(
        &self,
        buffer: &mut Vec<u8>,
    ) -> io::Result<Option<Received<ToAirlock>>> {
        buffer.resize(MOST_PACKET, 0);
        loop {
            let mut guard = self.control.readable().await?;
            if let Ok(heard) = guard.try_io(|control| wire::receive(control.as_fd(), buffer)) {
                return heard;
            }
        }
    }

    /// What came for a ticket that is no longer there is dropped, its descriptor too.
    pub(crate) fn answered(&self, ticket: u64, answer: Answer, descriptor: Option<OwnedFd>) {
        if let Some(sender) = self.answers.borrow_mut().remove(&ticket) {
            drop(sender.send(Reply { answer, descriptor }));
        }
    }

    pub(crate) fn say(&self, message: FromAirlock) {
        let mut waiting = self.waiting.borrow_mut();
        if waiting.is_empty() && wire::send(self.control.as_fd(), &message, &[]).is_ok() {
            return;
        }
        waiting.push_back(message);
        self.more.notify_one();
    }

    /// Says what waits, as soon as hotcell takes it.
    pub(crate) async fn write(&self) -> io::Result<()> {
        loop {
            self.more.notified().await;
            loop {
                let Some(message) = self.waiting.borrow().front().cloned() else { break };
                let mut guard = self.control.writable().await?;
                let sent = guard.try_io(|control| wire::send(control.as_fd(), &message, &[]));
                if sent.is_ok() {
                    // One that cannot be said will not be said later either.
                    self.waiting.borrow_mut().pop_front();
                    self.room.notify_waiters();
                }
            }
        }
    }

    async fn has_room(&self) {
        loop {
            let room = self.room.notified();
            if self.waiting.borrow().len() < MOST_WAITING {
                return;
            }
            room.await;
        }
    }

    pub(crate) async fn malformed(&self, run: &Run, connection: u64, why: Fault) {
        self.has_room().await;
        self.say(FromAirlock::Malformed { run: run.number, connection, why });
    }

    pub(crate) async fn ask(
        self: &Rc<Desk>,
        run: &Rc<Run>,
        connection: u64,
        wanted: Wanted,
    ) -> Ticket {
        self.has_room().await;
        let ticket = Ticket {
            desk: Rc::clone(self),
            run: Rc::clone(run),
            number: self.number(),
            connection,
            up: Cell::new(0),
            down: Cell::new(0),
            told: Cell::new(0),
            how: Cell::new(End::Closed),
            answer: RefCell::default(),
            last: Cell::new(Instant::now()),
        };
        ticket.expect();
        self.say(FromAirlock::Ask { run: run.number, ticket: ticket.number, connection, wanted });
        ticket
    }
}

impl Ticket {
    fn expect(&self) {
        let (sender, receiver) = oneshot::channel();
        self.desk.answers.borrow_mut().insert(self.number, sender);
        *self.answer.borrow_mut() = Some(receiver);
    }

    /// Waits for an answer, and until what it gave is connected.
    pub(crate) async fn settle(&self) -> Settled {
        for _ in 0..MOST_ATTEMPTS {
            let Some(receiver) = self.answer.borrow_mut().take() else { break };
            let patience = self.run.connect_time().saturating_mul(ANSWER_TIMES);
            let Ok(Ok(Reply { answer, descriptor })) = timeout(patience, receiver).await else {
                break;
            };
            let socket = descriptor.and_then(|descriptor| Socket::new(descriptor).ok());
            let (socket, raw) = match (answer, socket) {
                (Answer::Connected { raw }, Some(socket)) => (socket, Some(raw)),
                (Answer::Relay, Some(socket)) => (socket, None),
                (Answer::Connected { .. } | Answer::Relay, None) => break,
                (Answer::Again, _) => return Settled::Again,
                (Answer::Intercept { chain, key }, _) => return Settled::Intercept { chain, key },
                (Answer::Refused { status, body }, _) => return Settled::Refused { status, body },
            };
            let error = match timeout(self.run.connect_time(), socket.connected()).await {
                Ok(Ok(())) => {
                    self.touch();
                    let side = Side::Plain(socket);
                    return match raw {
                        Some(raw) => Settled::Connected { side, raw },
                        None => Settled::Relay(side),
                    };
                }
                Ok(Err(error)) => error.raw_os_error().unwrap_or(0),
                Err(_) => 0,
            };
            self.expect();
            let error = u32::try_from(error).unwrap_or(0);
            self.desk.say(FromAirlock::Unreached { ticket: self.number, error });
        }
        Settled::Unanswered
    }

    /// How it ended, if nothing else is said.
    pub(crate) fn end(&self, how: End) {
        self.how.set(how);
    }

    /// Bytes that go somewhere. hotcell is told before there are too many that it does not know of: they count
    /// also when nobody is left to say how it ended.
    pub(crate) fn count(&self, direction: Direction, count: u64) {
        let counted = match direction {
            Direction::Up => &self.up,
            Direction::Down => &self.down,
        };
        counted.set(counted.get().saturating_add(count));
        self.run.spend(direction, count);
        self.touch();
        let (up, down) = (self.up.get(), self.down.get());
        let moved = up.saturating_add(down);
        if moved.saturating_sub(self.told.get()) >= MOST_UNTOLD {
            self.told.set(moved);
            self.desk.say(FromAirlock::Moved { ticket: self.number, up, down });
        }
    }

    pub(crate) fn touch(&self) {
        self.last.set(Instant::now());
    }

    /// Comes back when nothing has gone on for too long.
    pub(crate) async fn idle(&self) {
        loop {
            let until = self.last.get() + self.run.idle_time();
            if Instant::now() >= until {
                return;
            }
            tokio::time::sleep_until(until.into()).await;
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.desk.answers.borrow_mut().remove(&self.number);
        self.desk.say(FromAirlock::Ended {
            run: self.run.number,
            ticket: self.number,
            connection: self.connection,
            up: self.up.get(),
            down: self.down.get(),
            how: self.how.get(),
        });
    }
}
