//! Packets with descriptors over SOCK_SEQPACKET sockets.

use core::mem::MaybeUninit;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{Errno, IoSlice, IoSliceMut, Result};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use rustix::process::Pid;

use crate::sys;
use crate::wire::{MAX_FDS, Report, Writer};

/// Largest report: far below a packet, so that it can live on the stack.
pub const MAX_REPORT: usize = 1024;

/// Descriptors that came with a packet.
#[derive(Debug)]
pub struct Fds {
    list: [Option<OwnedFd>; MAX_FDS],
    count: usize,
}

impl Fds {
    pub const fn none() -> Fds {
        Fds { list: [const { None }; MAX_FDS], count: 0 }
    }

    pub fn count(&self) -> usize {
        self.count
    }

    pub fn get(&self, index: usize) -> Result<BorrowedFd<'_>> {
        self.list.get(index).and_then(Option::as_ref).map(AsFd::as_fd).ok_or(Errno::BADF)
    }

    pub fn take(&mut self, index: usize) -> Result<OwnedFd> {
        self.list.get_mut(index).and_then(Option::take).ok_or(Errno::BADF)
    }

    fn push(&mut self, fd: OwnedFd) {
        // More than fit were already refused by the control buffer's size.
        if let Some(slot) = self.list.get_mut(self.count) {
            *slot = Some(fd);
            self.count += 1;
        }
    }
}

/// What came besides the bytes.
#[derive(Debug)]
pub struct Received {
    pub length: usize,
    pub fds: Fds,
    /// The sender, in the receiver's pid namespace, as the kernel says (with SO_PASSCRED).
    pub sender: Option<Pid>,
}

/// Receives one packet. A closed peer is a packet of no bytes; a cut one is an error.
pub fn receive(socket: impl AsFd, buffer: &mut [u8]) -> Result<Received> {
    match receive_once(&socket, buffer, RecvFlags::empty()) {
        // A peer that ended with something unread resets the connection, once; what it had said before
        // comes after that.
        Err(Errno::CONNRESET) => receive_once(&socket, buffer, RecvFlags::empty()),
        other => other,
    }
}

/// The same from a peer that has said what it had to say: nothing is waited for.
pub(crate) fn receive_now(socket: impl AsFd, buffer: &mut [u8]) -> Result<Received> {
    receive_once(socket, buffer, RecvFlags::DONTWAIT)
}

fn receive_once(socket: impl AsFd, buffer: &mut [u8], flags: RecvFlags) -> Result<Received> {
    let mut space =
        [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS), ScmCredentials(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(buffer)];
    let message = recvmsg(socket, &mut parts, &mut control, flags | RecvFlags::CMSG_CLOEXEC)?;
    let mut received = Received { length: message.bytes, fds: Fds::none(), sender: None };
    for part in control.drain() {
        match part {
            RecvAncillaryMessage::ScmRights(fds) => fds.for_each(|fd| received.fds.push(fd)),
            RecvAncillaryMessage::ScmCredentials(credentials) => {
                received.sender = Some(credentials.pid);
            }
            _ => {}
        }
    }
    if message.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(Errno::MSGSIZE);
    }
    Ok(received)
}

/// Sends a report, with a descriptor if there is one.
pub fn report(socket: impl AsFd, report: &Report, fd: Option<BorrowedFd<'_>>) -> Result<()> {
    report_with(socket, report, fd.as_slice())
}

/// A report from behind a filter that lets descriptors out only with `key`.
pub(crate) fn report_with_key(
    socket: BorrowedFd<'_>,
    report: &Report,
    fd: BorrowedFd<'_>,
    key: u64,
) -> Result<()> {
    let mut buffer = [0; MAX_REPORT];
    sys::send_descriptor(socket, written(report, &mut buffer)?, fd, key)
}

/// The same with several.
pub(crate) fn report_with(
    socket: impl AsFd,
    report: &Report,
    fds: &[BorrowedFd<'_>],
) -> Result<()> {
    let mut buffer = [0; MAX_REPORT];
    // A few small packets always fit.
    send_now(socket, written(report, &mut buffer)?, fds)
}

fn written<'a>(report: &Report, buffer: &'a mut [u8]) -> Result<&'a [u8]> {
    let mut writer = Writer::new(buffer);
    report.write(&mut writer);
    writer.finish().map_err(|_| Errno::MSGSIZE)
}

/// Sends one packet now or not at all: nobody is held up by who does not read.
pub(crate) fn send_now(socket: impl AsFd, packet: &[u8], fds: &[BorrowedFd<'_>]) -> Result<()> {
    send_with(socket, packet, fds, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
}

/// Sends one packet with its descriptors.
pub fn send(socket: impl AsFd, packet: &[u8], fds: &[BorrowedFd<'_>]) -> Result<()> {
    loop {
        // A packet goes as a whole or not at all.
        match send_with(&socket, packet, fds, SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

fn send_with(
    socket: impl AsFd,
    packet: &[u8],
    fds: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(Errno::MSGSIZE);
    }
    sendmsg(socket, &[IoSlice::new(packet)], &mut control, flags).map(drop)
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
    }

    #[test]
    fn packets_keep_their_bounds_and_their_descriptors() {
        let (a, b) = pair();
        send(&a, b"one", &[a.as_fd(), b.as_fd()]).unwrap();
        send(&a, b"two", &[]).unwrap();
        let mut buffer = [0; 16];
        let mut one = receive(&b, &mut buffer).unwrap();
        assert_eq!((&buffer[..one.length], one.fds.count()), (&b"one"[..], 2));
        assert!(one.fds.take(0).is_ok() && one.fds.take(0).is_err());
        let two = receive(&b, &mut buffer).unwrap();
        assert_eq!((&buffer[..two.length], two.fds.count()), (&b"two"[..], 0));
    }

    #[test]
    fn a_packet_larger_than_the_buffer_is_an_error_and_not_half_a_packet() {
        let (a, b) = pair();
        send(&a, b"too large", &[a.as_fd()]).unwrap();
        assert_eq!(receive(&b, &mut [0; 4]).unwrap_err(), Errno::MSGSIZE);
    }

    #[test]
    fn what_a_peer_said_before_it_ended_with_something_unread_is_heard() {
        let (a, b) = pair();
        send(&a, b"unread", &[]).unwrap();
        send(&b, b"last words", &[]).unwrap();
        drop(b);
        let mut buffer = [0; 16];
        assert_eq!(receive(&a, &mut buffer).unwrap().length, 10);
        assert_eq!(receive(&a, &mut buffer).unwrap().length, 0);
    }

    #[test]
    fn a_closed_peer_is_a_packet_of_no_bytes() {
        let (a, b) = pair();
        drop(a);
        assert_eq!(receive(&b, &mut [0; 4]).unwrap().length, 0);
    }
}
