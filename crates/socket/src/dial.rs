//! Where a socket is, and how to get to the one who listens there.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use crate::problem::Problem;
use crate::transport::{Peer, Transport};

/// Why there is no connection. Nothing was begun.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("no server listens at `{}`", .path.display())]
    NotThere {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the server belongs to user {uid}, who is neither this one nor root")]
    NotOurs { uid: u32 },
    #[error("the socket `{}` may not be used by this user", .path.display())]
    NotAllowed { path: PathBuf },
    #[error("the server speaks other versions of the protocol: {speaks:?}")]
    WrongVersion { speaks: Vec<u32> },
    #[error("the server has no room: {0}")]
    Busy(Box<Problem>),
    /// It is on its way out, or has just gone.
    #[error("the server ended the connection: {0}")]
    Ended(Box<Problem>),
    #[error("the server does not answer")]
    Silent,
    #[error("what answers is not a hotcell server: {0}")]
    Protocol(String),
    #[error("the connection failed")]
    Io(#[from] io::Error),
}

impl ConnectError {
    /// Whether nobody serves there, so that it is as if there were no server.
    pub fn is_nobody(&self) -> bool {
        matches!(self, ConnectError::NotThere { .. } | ConnectError::Ended(_))
    }
}

/// Connects, and looks at who listens before the first byte.
pub(crate) fn dial(path: &Path, wait: Duration) -> Result<(UnixStream, Peer), ConnectError> {
    let stream = reach(path, wait).map_err(|errno| refused(path, errno))?;
    let peer = stream.peer()?;
    match peer.is_ours() {
        true => Ok((stream, peer)),
        false => Err(ConnectError::NotOurs { uid: peer.uid }),
    }
}

/// Connects. Where too many wait to be accepted, it waits as well.
pub(crate) fn reach(path: &Path, wait: Duration) -> rustix::io::Result<UnixStream> {
    let socket = new_socket()?;
    set_socket_timeout(&socket, Timeout::Send, Some(wait))?;
    match SocketAddrUnix::new(path) {
        Ok(address) => connect(&socket, &address)?,
        Err(Errno::NAMETOOLONG) => {
            let (dir, name) = open_parent(path)?;
            connect(&socket, &within(&dir, name)?)?;
        }
        Err(errno) => return Err(errno),
    }
    set_socket_timeout(&socket, Timeout::Send, None)?;
    Ok(UnixStream::from(socket))
}

pub(crate) fn new_socket() -> rustix::io::Result<OwnedFd> {
    socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
}

fn open_parent(path: &Path) -> rustix::io::Result<(OwnedFd, &OsStr)> {
    let name = path.file_name().ok_or(Errno::INVAL)?;
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    let dir = dir.unwrap_or(Path::new("."));
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok((openat(CWD, dir, flags, Mode::empty())?, name))
}

/// The address of a name in a held directory. However long the directory's path is, this is short.
pub(crate) fn within(dir: impl AsFd, name: &OsStr) -> rustix::io::Result<SocketAddrUnix> {
    let mut path = format!("/proc/self/fd/{}/", dir.as_fd().as_raw_fd()).into_bytes();
    path.extend_from_slice(name.as_bytes());
    SocketAddrUnix::new(path.as_slice())
}

fn refused(path: &Path, errno: Errno) -> ConnectError {
    let path = path.to_owned();
    match errno {
        Errno::NOENT | Errno::CONNREFUSED | Errno::NOTDIR | Errno::LOOP | Errno::PROTOTYPE => {
            ConnectError::NotThere { path, source: errno.into() }
        }
        Errno::ACCESS | Errno::PERM => ConnectError::NotAllowed { path },
        Errno::AGAIN => ConnectError::Busy(Box::new(Problem::new(
            Problem::BUSY,
            "the server accepts no connection",
            "too many wait for it",
            "try again in a moment",
        ))),
        other => ConnectError::Io(other.into()),
    }
}
