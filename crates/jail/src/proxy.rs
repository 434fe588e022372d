//! The one way out of a run that has one: sockets that listen inside its namespaces. Its own init makes
//! them, before any byte of the job is looked at, and hands them out to hotcell. A listening socket belongs
//! to the namespaces that it was made in, whoever accepts on it: so nothing has to run inside to forward
//! anything, and no other run can reach it.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::net::{
    AddressFamily, Ipv4Addr, SocketAddrUnix, SocketAddrV4, SocketFlags, SocketType, bind, listen,
    socket_with,
};

use crate::{place, sys, tree};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// The most that there are.
pub(crate) const MOST: usize = 2;

#[derive(Debug)]
pub(crate) struct Listeners {
    local: OwnedFd,
    tcp: Option<OwnedFd>,
}

impl Listeners {
    /// In the order in which they are handed out.
    pub(crate) fn each(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        [Some(&self.local), self.tcp.as_ref()].into_iter().flatten().map(AsFd::as_fd)
    }
}

/// Makes them under the run's own id: one by a path, and one on the loopback interface if that is up.
pub(crate) fn open(loopback: bool) -> rustix::io::Result<Listeners> {
    let place = tree::proxy_place()?;
    let local = made(AddressFamily::UNIX)?;
    bind(&local, &SocketAddrUnix::new(place::PROXY_SOCKET)?)?;
    listen(&local, BACKLOG)?;
    // Whoever may connect does not write to the mount. Whoever removes a name does.
    sys::make_read_only(&place)?;
    let tcp = loopback.then(open_tcp).transpose()?;
    Ok(Listeners { local, tcp })
}

fn open_tcp() -> rustix::io::Result<OwnedFd> {
    let socket = made(AddressFamily::INET)?;
    bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, place::PROXY_PORT))?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}

fn made(family: AddressFamily) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(family, SocketType::STREAM, flags, None)
}
