//! Connections to addresses that were decided on, and to nothing else.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, socket_with, sockopt};

/// What the kernel keeps of a connection: memory of the process that passes it on, which all runs share, and not
/// to be had back from who does not read.
const RECEIVED: usize = 512 * 1024;
const SENT: usize = 256 * 1024;

/// Shortest time that one of several addresses is given.
const LEAST: Duration = Duration::from_millis(500);

/// A socket on its way to an address. It never blocks.
pub(crate) fn begin(address: SocketAddr) -> io::Result<OwnedFd> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    sockopt::set_tcp_nodelay(&socket, true)?;
    sockopt::set_socket_recv_buffer_size(&socket, RECEIVED)?;
    sockopt::set_socket_send_buffer_size(&socket, SENT)?;
    match rustix::net::connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => Ok(socket),
        Err(error) => Err(error.into()),
    }
}

/// A connection to the first address that answers, each tried in its turn. It never blocks.
pub(crate) fn connect(
    addresses: &[SocketAddr],
    deadline: Instant,
) -> io::Result<(TcpStream, SocketAddr)> {
    let mut failed = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for (tried, &address) in addresses.iter().enumerate() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let rest = u32::try_from(addresses.len() - tried).unwrap_or(u32::MAX).max(1);
        let share = (left / rest).max(LEAST).min(left);
        match begin(address).and_then(|socket| finish(socket, Instant::now() + share)) {
            Ok(stream) => return Ok((stream, address)),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

fn finish(socket: OwnedFd, deadline: Instant) -> io::Result<TcpStream> {
    wait(&socket, PollFlags::OUT, deadline)?;
    match sockopt::socket_error(&socket)? {
        Ok(()) => Ok(TcpStream::from(socket)),
        Err(error) => Err(error.into()),
    }
}

/// Waits until a descriptor is as wanted; too late is an error.
pub(crate) fn wait(descriptor: &impl AsFd, wanted: PollFlags, deadline: Instant) -> io::Result<()> {
    loop {
        let mut fds = [PollFd::new(descriptor, wanted)];
        match poll(&mut fds, Some(&until(deadline))) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// What is left until then. Never nothing before it is over, which would make a loop of a wait.
pub(crate) fn until(deadline: Instant) -> Timespec {
    let left = deadline.saturating_duration_since(Instant::now());
    Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(20)
    }

    #[test]
    fn the_first_address_that_answers_is_connected_to() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let there = listener.local_addr().unwrap();
        // Nobody listens at the second address of the same port.
        let nobody = SocketAddr::new("127.0.0.2".parse().unwrap(), there.port());
        let (stream, address) = connect(&[nobody, there], soon()).unwrap();
        assert_eq!((address, stream.peer_addr().unwrap()), (there, there));
        assert!(connect(&[nobody], soon()).is_err());
        assert!(connect(&[], soon()).is_err());
    }

    #[test]
    fn what_never_answers_is_given_up() {
        // A listener whose queue is full answers nobody.
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        rustix::net::bind(&socket, &any).unwrap();
        rustix::net::listen(&socket, 0).unwrap();
        let there = TcpListener::from(socket).local_addr();
        let Ok(there) = there else { return };
        let error = connect(&[there], Instant::now()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
