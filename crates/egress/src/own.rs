//! Whether an address is this host's own, whatever range it is from: asked of the kernel each time, since
//! interfaces come and go.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use rustix::io::Errno;

/// Addresses that no interface has.
const NOBODYS: Ipv4Addr = Ipv4Addr::new(240, 0, 0, 1);
const NOBODYS_V6: Ipv6Addr = Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 1);

/// Any port will do; nothing is sent.
const SOME_PORT: u16 = 9;

/// Packets to it would never leave this host.
pub(crate) fn is_own(address: IpAddr) -> bool {
    leads_back(address) || (binds(address) && !binds(nobodys(address)))
}

/// A socket can be bound to what is local, also where a whole network is routed to this host. Where the
/// host lets sockets bind to anything (`ip_nonlocal_bind`), it proves nothing.
fn binds(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

/// Something ran out, and nothing was found out.
fn is_short(error: &io::Error) -> bool {
    let short = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    error.raw_os_error().is_some_and(|raw| short.iter().any(|errno| errno.raw_os_error() == raw))
}

/// What is reached from an address by that very address.
fn leads_back(address: IpAddr) -> bool {
    let from: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let source = UdpSocket::bind((from, 0)).and_then(|socket| {
        socket.connect(SocketAddr::new(address, SOME_PORT))?;
        socket.local_addr()
    });
    match source {
        Ok(source) => source.ip() == address,
        // Without descriptors or memory it is not known.
        Err(error) => is_short(&error),
    }
}

fn nobodys(like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => NOBODYS.into(),
        IpAddr::V6(_) => NOBODYS_V6.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn net_26_an_address_of_an_interface_is_own_and_others_are_not() {
        for own in ["127.0.0.1", "127.1.2.3"] {
            assert!(is_own(own.parse().unwrap()), "{own}");
        }
        for other in ["198.51.100.1", "8.8.8.8", "2001:db8::1"] {
            assert!(!is_own(other.parse().unwrap()), "{other}");
        }
        // Whatever this host sends with, it is its own.
        if let Ok(socket) = UdpSocket::bind("0.0.0.0:0")
            && socket.connect("192.0.2.1:9").is_ok()
            && let Ok(source) = socket.local_addr()
        {
            assert!(is_own(source.ip()), "{source}");
        }
    }
}
