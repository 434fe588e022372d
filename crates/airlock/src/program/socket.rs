//! Connections, and the two ends that a conversation has.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::net::{Shutdown, sockopt};
use tokio::io::Interest;
use tokio::io::unix::{AsyncFd, AsyncFdReadyGuard};

use super::secure::Secure;

/// A stream socket, whatever its family.
pub(crate) struct Socket {
    io: AsyncFd<OwnedFd>,
}

/// Who waits for a socket remembers here that it has waited.
#[derive(Default)]
pub(crate) struct Waiting<'a> {
    guard: Option<AsyncFdReadyGuard<'a, OwnedFd>>,
}

/// One end of what is passed on.
pub(crate) enum Side {
    Plain(Socket),
    /// The airlock is its TLS server.
    Secure(Box<Secure>),
}

/// A descriptor that is waited for, and that holds nobody up.
#[expect(
    deprecated,
    reason = "its successor is unsafe for what does not own its descriptor, as this one does"
)]
pub(crate) fn watched(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    let flags = rustix::fs::fcntl_getfl(&descriptor)?;
    rustix::fs::fcntl_setfl(&descriptor, flags | OFlags::NONBLOCK)?;
    AsyncFd::new(descriptor)
}

impl Socket {
    pub(crate) fn new(socket: OwnedFd) -> io::Result<Socket> {
        // Unix sockets do not hold anything back, and say that they know of no such option.
        sockopt::set_tcp_nodelay(&socket, true).ok();
        Ok(Socket { io: watched(socket)? })
    }

    /// Takes what is there, or nothing if that would be waiting.
    pub(crate) fn attempt<T>(
        &self,
        operation: impl FnOnce(&OwnedFd) -> Result<T, Errno>,
    ) -> io::Result<Option<T>> {
        match operation(self.io.get_ref()) {
            Ok(value) => Ok(Some(value)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Waits after an attempt that came to nothing. What was known before it is forgotten first.
    pub(crate) async fn wait<'a>(
        &'a self,
        interest: Interest,
        waiting: &mut Waiting<'a>,
    ) -> io::Result<()> {
        if let Some(mut guard) = waiting.guard.take() {
            guard.clear_ready();
        }
        waiting.guard = Some(self.io.ready(interest).await?);
        Ok(())
    }

    pub(crate) async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut waiting = Waiting::default();
        loop {
            if let Some(count) = self.attempt(|socket| rustix::io::read(socket, &mut *buffer))? {
                return Ok(count);
            }
            self.wait(Interest::READABLE, &mut waiting).await?;
        }
    }

    pub(crate) async fn write(&self, mut bytes: &[u8]) -> io::Result<()> {
        let mut waiting = Waiting::default();
        while !bytes.is_empty() {
            match self.attempt(|socket| rustix::io::write(socket, bytes))? {
                Some(count) => bytes = bytes.get(count..).unwrap_or_default(),
                None => self.wait(Interest::WRITABLE, &mut waiting).await?,
            }
        }
        Ok(())
    }

    /// Waits until it is connected.
    pub(crate) async fn connected(&self) -> io::Result<()> {
        self.wait(Interest::WRITABLE, &mut Waiting::default()).await?;
        Ok(sockopt::socket_error(self.io.get_ref())??)
    }

    /// Whether nothing has come that nobody asked for: neither bytes nor the end.
    pub(crate) fn is_quiet(&self) -> bool {
        let mut fds =
            [PollFd::from_borrowed_fd(self.io.get_ref().as_fd(), PollFlags::IN | PollFlags::RDHUP)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        rustix::event::poll(&mut fds, Some(&now)) == Ok(0)
    }

    fn end(&self) {
        // It may be gone already.
        rustix::net::shutdown(self.io.get_ref(), Shutdown::Write).ok();
    }
}

impl Side {
    pub(crate) async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Side::Plain(socket) => socket.read(buffer).await,
            Side::Secure(secure) => secure.read(buffer).await,
        }
    }

    pub(crate) async fn write(&self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Side::Plain(socket) => socket.write(bytes).await,
            Side::Secure(secure) => secure.write(bytes).await,
        }
    }

    /// Says that nothing more comes.
    pub(crate) async fn end(&self) {
        match self {
            Side::Plain(socket) => socket.end(),
            Side::Secure(secure) => {
                secure.end().await;
                secure.socket().end();
            }
        }
    }

    pub(crate) fn is_quiet(&self) -> bool {
        match self {
            Side::Plain(socket) => socket.is_quiet(),
            Side::Secure(_) => false,
        }
    }
}
