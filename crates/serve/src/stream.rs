//! A connection's socket, which can be looked at while it is being read and written. Who reads nothing, since
//! there is no room for it, does not see that the other side has gone; the socket does.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::connections::Connection;

/// One of several hands on a socket.
#[derive(Debug, Clone)]
pub(crate) struct Stream {
    socket: Arc<TcpStream>,
    /// Is told that something was read.
    connection: Arc<Connection>,
}

impl Stream {
    pub(crate) fn new(stream: TcpStream, connection: Arc<Connection>) -> Stream {
        Stream { socket: Arc::new(stream), connection }
    }

    /// Whether the other side has closed it, even if something that it sent is still to be read.
    pub(crate) fn is_left(&self) -> bool {
        let mut fds = [PollFd::new(&*self.socket, PollFlags::RDHUP)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fds, Some(&now)).is_ok_and(|found| found > 0)
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.socket.poll_read_ready(context))?;
            match self.socket.try_read(into.initialize_unfilled()) {
                Ok(length) => {
                    if length > 0 {
                        self.connection.reads();
                    }
                    into.advance(length);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl Stream {
    fn poll_writing(
        &self,
        context: &mut Context<'_>,
        write: impl Fn(&TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.socket.poll_write_ready(context))?;
            match write(&self.socket) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_writing(context, |stream| stream.try_write(bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_writing(context, |stream| stream.try_write_vectored(bytes))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let done = rustix::net::shutdown(&*self.socket, rustix::net::Shutdown::Write);
        match done {
            Err(error) if error != rustix::io::Errno::NOTCONN => Poll::Ready(Err(error.into())),
            _ => Poll::Ready(Ok(())),
        }
    }
}
