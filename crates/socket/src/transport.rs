//! What a connection stands on. Both halves are used through one shared reference, so that a connection is
//! one descriptor.

use std::fmt::Debug;
use std::io;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::net::{RecvFlags, SendFlags, sockopt};

/// Who is at the other end, as the kernel says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    pub uid: u32,
    pub gid: u32,
    pub pid: i32,
}

impl Peer {
    /// Whether it is the user of this process, or root.
    pub fn is_ours(&self) -> bool {
        self.uid == 0 || self.uid == rustix::process::geteuid().as_raw()
    }
}

/// A stream of bytes in both directions.
pub trait Transport: Send + Sync + Debug {
    /// Waits for bytes, at most as long as the timeout says. None at all is the end.
    fn receive(&self, into: &mut [u8]) -> io::Result<usize>;
    /// Sends as much as there is room for, and waits for some, at most as long as the timeout says.
    fn send(&self, bytes: &[u8]) -> io::Result<usize>;
    /// For [`receive`](Transport::receive), which then fails with `WouldBlock` or `TimedOut`.
    fn set_receive_timeout(&self, timeout: Option<Duration>) -> io::Result<()>;
    fn set_send_timeout(&self, timeout: Option<Duration>) -> io::Result<()>;
    /// Ends it in both directions, and wakes whoever waits in it.
    fn shutdown(&self) -> io::Result<()>;
    fn peer(&self) -> io::Result<Peer>;
}

impl Transport for UnixStream {
    /// Descriptors that came along are dropped by the kernel, since nobody asks for them.
    fn receive(&self, into: &mut [u8]) -> io::Result<usize> {
        let (received, _) = rustix::net::recv(self, into, RecvFlags::empty())?;
        Ok(received)
    }

    fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::net::send(self, bytes, SendFlags::NOSIGNAL)?)
    }

    fn set_receive_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.set_read_timeout(timeout)
    }

    fn set_send_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.set_write_timeout(timeout)
    }

    fn shutdown(&self) -> io::Result<()> {
        UnixStream::shutdown(self, Shutdown::Both)
    }

    fn peer(&self) -> io::Result<Peer> {
        let peer = sockopt::socket_peercred(self)?;
        let pid = peer.pid.as_raw_nonzero().get();
        Ok(Peer { uid: peer.uid.as_raw(), gid: peer.gid.as_raw(), pid })
    }
}
