//! Passing bytes on: from where they arrive to where they go, counted, in turns, and without looking at them
//! wherever that is possible.

use std::cell::RefCell;
use std::io;
use std::os::fd::OwnedFd;

use rustix::pipe::{PipeFlags, SpliceFlags};
use tokio::io::Interest;

use super::desk::Ticket;
use super::run::Direction;
use super::share::STEP;
use super::socket::{Side, Socket, Waiting};
use crate::chunked::Chunked;
use crate::wire::End;

/// What is read at once where bytes are looked at, and least where a reading is begun.
const PIECE: usize = 16 * 1024;
const FIRST: usize = 4 * 1024;
/// What moves at once where they are not. A pipe takes as many pages, however full they are.
const MOVE: usize = 256 * 1024;
/// A chunk of which so much is to come is not worth looking at.
const WORTH_MOVING: u64 = 16 * 1024;
/// Most pipes that lie around unused.
const MOST_PIPES: usize = 32;

/// Why something is not passed on any more.
pub(crate) type Broken = End;

/// The way that bytes take, and who has to know about them.
#[derive(Clone, Copy)]
pub(crate) struct Way<'a> {
    pub(crate) ticket: &'a Ticket,
    pub(crate) direction: Direction,
    pub(crate) from: &'a Side,
    pub(crate) to: &'a Side,
}

/// What has arrived and was not used yet.
#[derive(Default)]
pub(crate) struct Inbox {
    bytes: Vec<u8>,
    start: usize,
}

impl Inbox {
    pub(crate) fn rest(&self) -> &[u8] {
        self.bytes.get(self.start..).unwrap_or_default()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest().is_empty()
    }

    /// So much of it was used. An empty one keeps no memory.
    pub(crate) fn used(&mut self, count: usize) {
        self.start = self.start.saturating_add(count).min(self.bytes.len());
        if self.is_empty() {
            *self = Inbox::default();
        }
    }

    /// All of it.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        let all = self.rest().to_vec();
        *self = Inbox::default();
        all
    }

    /// Reads more, so that there are at most so many bytes. Says how many came; none at the end, or if there
    /// is no room.
    pub(crate) async fn fill(&mut self, from: &Side, most: usize) -> io::Result<usize> {
        self.bytes.drain(..self.start);
        self.start = 0;
        let have = self.bytes.len();
        // Who waits for the first byte of something waits without a buffer.
        if let (0, Side::Plain(socket)) = (have, from) {
            self.bytes = Vec::new();
            return self.first(socket, most).await;
        }
        let room = most.saturating_sub(have).min(have.clamp(FIRST, PIECE));
        self.bytes.resize(have + room, 0);
        let read = from.read(self.bytes.get_mut(have..).unwrap_or_default()).await;
        self.bytes.truncate(have + read.as_ref().map_or(0, |&count| count));
        read
    }

    async fn first(&mut self, socket: &Socket, most: usize) -> io::Result<usize> {
        let mut waiting = Waiting::default();
        loop {
            let mut buffer = vec![0; most.min(FIRST)];
            if let Some(count) = socket.attempt(|socket| rustix::io::read(socket, &mut *buffer))? {
                buffer.truncate(count);
                self.bytes = buffer;
                return Ok(count);
            }
            drop(buffer);
            socket.wait(Interest::READABLE, &mut waiting).await?;
        }
    }
}

impl Way<'_> {
    /// What has gone wrong if reading or writing does not work.
    fn source(&self) -> Broken {
        if self.direction == Direction::Up { End::Left } else { End::Broken }
    }

    fn target(&self) -> Broken {
        if self.direction == Direction::Up { End::Broken } else { End::Left }
    }

    /// What may go at once of so much.
    fn allowed(&self, count: u64) -> Result<u64, Broken> {
        let allowed = self.ticket.run.left(self.direction).min(count);
        if allowed == 0 { Err(self.over()) } else { Ok(allowed) }
    }

    /// Bytes are counted when they are taken, so that no two connections spend the same.
    fn counted(&self, count: u64) {
        self.ticket.count(self.direction, count);
        self.ticket.run.share.worked(STEP + count);
    }

    /// Passes on bytes that were made here or looked at.
    pub(crate) async fn write(&self, bytes: &[u8]) -> Result<(), Broken> {
        self.ticket.run.share.turn().await;
        let count = bytes.len() as u64;
        if self.ticket.run.left(self.direction) < count {
            return Err(self.over());
        }
        self.counted(count);
        self.to.write(bytes).await.map_err(|_| self.target())
    }

    fn over(&self) -> Broken {
        if self.direction == Direction::Up { End::OverUp } else { End::OverDown }
    }

    /// Passes on so many bytes, or all until the end: first `ahead`, which was made here, and what has
    /// arrived already. Says how many of them came.
    pub(crate) async fn pass(
        &self,
        mut ahead: Vec<u8>,
        inbox: &mut Inbox,
        count: u64,
    ) -> Result<u64, Broken> {
        let here = usize::try_from(count).unwrap_or(usize::MAX).min(inbox.rest().len());
        ahead.extend(inbox.rest().get(..here).unwrap_or_default());
        inbox.used(here);
        if !ahead.is_empty() {
            self.write(&ahead).await?;
        }
        drop(ahead);
        let here = here as u64;
        let left = count - here;
        if left == 0 {
            return Ok(here);
        }
        let moved = match (self.from, self.to) {
            (Side::Plain(from), Side::Plain(to)) => self.splice(from, to, left).await?,
            _ => self.copy(left).await?,
        };
        Ok(here + moved)
    }

    /// Passes on a body in chunks.
    pub(crate) async fn pass_chunks(
        &self,
        ahead: Vec<u8>,
        inbox: &mut Inbox,
        mut chunked: Chunked,
    ) -> Result<(), Broken> {
        let broken = match self.direction {
            Direction::Up => End::Malformed,
            Direction::Down => End::BadResponse,
        };
        let mut out = ahead;
        loop {
            let taken = chunked.take(inbox.rest(), &mut out).map_err(|_| broken)?;
            inbox.used(taken);
            if !out.is_empty() {
                self.write(&out).await?;
                out.clear();
            }
            if chunked.is_done() {
                return Ok(());
            }
            let plain = chunked.plain();
            if plain >= WORTH_MOVING && inbox.is_empty() {
                if self.pass(Vec::new(), inbox, plain).await? < plain {
                    return Err(self.source());
                }
                chunked.passed(plain);
            } else if inbox.fill(self.from, PIECE).await.map_err(|_| self.source())? == 0 {
                return Err(self.source());
            } else {
                self.ticket.run.share.worked(STEP);
                self.ticket.run.share.turn().await;
            }
        }
    }

    /// Moves bytes from socket to socket within the kernel.
    async fn splice(&self, from: &Socket, to: &Socket, count: u64) -> Result<u64, Broken> {
        let mut left = count;
        let (mut readable, mut writable) = (Waiting::default(), Waiting::default());
        while left > 0 {
            self.ticket.run.share.turn().await;
            let most = usize::try_from(self.allowed(left)?).unwrap_or(MOVE).min(MOVE);
            let Ok(pipe) = Pipe::take() else { return Ok(count - left + self.copy(left).await?) };
            let taken =
                from.attempt(|from| pipe.take_from(from, most)).map_err(|_| self.source())?;
            match taken {
                None => {
                    // Nobody holds a pipe for nothing.
                    pipe.give_back();
                    let ready = from.wait(Interest::READABLE, &mut readable).await;
                    ready.map_err(|_| self.source())?;
                    continue;
                }
                Some(0) => {
                    pipe.give_back();
                    break;
                }
                Some(taken) => {
                    self.counted(taken as u64);
                    let mut rest = taken;
                    while rest > 0 {
                        match to.attempt(|to| pipe.give_to(to, rest)).map_err(|_| self.target())? {
                            Some(given) => {
                                rest = rest.saturating_sub(given);
                                self.ticket.touch();
                            }
                            None => {
                                let ready = to.wait(Interest::WRITABLE, &mut writable).await;
                                ready.map_err(|_| self.target())?;
                            }
                        }
                    }
                    pipe.give_back();
                    left = left.saturating_sub(taken as u64);
                }
            }
        }
        Ok(count - left)
    }

    async fn copy(&self, count: u64) -> Result<u64, Broken> {
        let mut left = count;
        let mut inbox = Inbox::default();
        while left > 0 {
            let most = usize::try_from(self.allowed(left)?).unwrap_or(PIECE).min(PIECE);
            let came = inbox.fill(self.from, most).await.map_err(|_| self.source())?;
            if came == 0 {
                break;
            }
            self.write(inbox.rest()).await?;
            inbox.used(came);
            left = left.saturating_sub(came as u64);
        }
        Ok(count - left)
    }
}

/// Through which bytes move. Empty whenever nobody has it.
struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
}

thread_local! {
    static PIPES: RefCell<Vec<Pipe>> = const { RefCell::new(Vec::new()) };
}

impl Pipe {
    fn take() -> io::Result<Pipe> {
        if let Some(pipe) = PIPES.with_borrow_mut(Vec::pop) {
            return Ok(pipe);
        }
        let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        Ok(Pipe { read, write })
    }

    /// An empty one is of use to others. One that is not is dropped where it was left.
    fn give_back(self) {
        PIPES.with_borrow_mut(|pipes| {
            if pipes.len() < MOST_PIPES {
                pipes.push(self);
            }
        });
    }

    fn take_from(&self, from: &OwnedFd, most: usize) -> rustix::io::Result<usize> {
        let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
        rustix::pipe::splice(from, None, &self.write, None, most, flags)
    }

    fn give_to(&self, to: &OwnedFd, most: usize) -> rustix::io::Result<usize> {
        let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
        rustix::pipe::splice(&self.read, None, to, None, most, flags)
    }
}
