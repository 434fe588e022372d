//! What is said to one airlock process, from several threads, and whether it still listens.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hotcell_airlock::wire::{self, FromAirlock, Message, Received, ToAirlock};
use rustix::event::PollFlags;
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, shutdown, socketpair};

use crate::connect::wait;
use crate::gate::Run;
use crate::judge::Wanted;

/// How long it may leave something unheard.
pub(crate) const DEAF: Duration = Duration::from_secs(5);

/// One process and the socket to it.
pub(crate) struct Line {
    socket: OwnedFd,
    /// The process's own end, only to see what it has not taken from there.
    theirs: OwnedFd,
    end: Mutex<Option<Box<dyn Fn() + Send + Sync>>>,
    watch: Mutex<Watch>,
    pub(crate) tickets: Mutex<HashMap<u64, Ticket>>,
}

struct Watch {
    said: u64,
    heard: u64,
    since: Instant,
}

/// Something that was asked and has not ended.
pub(crate) struct Ticket {
    pub(crate) number: u64,
    pub(crate) run: Arc<Run>,
    pub(crate) wanted: Option<Wanted>,
    pub(crate) is_raw: bool,
    /// It was allowed, so that bytes of it may move.
    pub(crate) is_open: bool,
    /// What is known of them.
    pub(crate) up: u64,
    pub(crate) down: u64,
    /// Addresses that were decided on and not tried yet.
    pub(crate) rest: Vec<SocketAddr>,
    pub(crate) since: Instant,
}

impl Line {
    /// And the end that belongs to the process.
    pub(crate) fn new() -> io::Result<(Line, OwnedFd)> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (socket, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        let given = theirs.try_clone()?;
        let watch = Watch { said: 0, heard: 0, since: Instant::now() };
        let line = Line {
            socket,
            theirs,
            end: Mutex::new(None),
            watch: Mutex::new(watch),
            tickets: Mutex::new(HashMap::new()),
        };
        Ok((line, given))
    }

    pub(crate) fn ended_by(&self, end: Box<dyn Fn() + Send + Sync>) {
        *lock(&self.end) = Some(end);
    }

    /// Ends the process; whoever hears it finds the end.
    pub(crate) fn hang_up(&self) {
        if let Some(end) = &*lock(&self.end) {
            end();
        }
        // It may be gone already.
        shutdown(&self.socket, Shutdown::Both).ok();
    }

    /// Says something. A process that does not listen is ended.
    pub(crate) fn say(&self, message: &ToAirlock, with: &[BorrowedFd<'_>]) -> io::Result<()> {
        let deadline = Instant::now() + DEAF;
        loop {
            match wire::send(self.socket.as_fd(), message, with) {
                Ok(()) => break,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if let Err(error) = wait(&self.socket, PollFlags::OUT, deadline) {
                        self.hang_up();
                        return Err(error);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        let length = message.packet().map_or(0, |packet| packet.len() as u64);
        lock(&self.watch).said += length;
        Ok(())
    }

    /// What it says next, if it does within this time.
    pub(crate) fn hear(
        &self,
        buffer: &mut [u8],
        within: Duration,
    ) -> io::Result<Option<FromAirlock>> {
        loop {
            match wire::receive::<FromAirlock>(self.socket.as_fd(), buffer) {
                Ok(Some(Received { message, descriptors })) if descriptors.is_empty() => {
                    return Ok(Some(message));
                }
                Ok(Some(_)) => return Err(io::ErrorKind::InvalidData.into()),
                Ok(None) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            match wait(&self.socket, PollFlags::IN, Instant::now() + within) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::TimedOut => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether it has taken nothing for too long although there is something. If all is taken, it is said
    /// something that means nothing, so that a process which has stopped is found also when nobody asks.
    pub(crate) fn is_deaf(&self) -> bool {
        let waiting = rustix::io::ioctl_fionread(&self.theirs).unwrap_or(0);
        if waiting == 0 {
            let mut watch = lock(&self.watch);
            (watch.heard, watch.since) = (watch.said, Instant::now());
            drop(watch);
            // Run 0 is none.
            return self.say(&ToAirlock::Close { run: 0 }, &[]).is_err();
        }
        let mut watch = lock(&self.watch);
        let heard = watch.said.saturating_sub(waiting);
        if heard > watch.heard {
            (watch.heard, watch.since) = (heard, Instant::now());
        }
        watch.since.elapsed() > DEAF
    }

    pub(crate) fn tickets(&self) -> MutexGuard<'_, HashMap<u64, Ticket>> {
        lock(&self.tickets)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
