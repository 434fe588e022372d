//! A socket that is ours alone: in a directory that nobody else can enter, never in the place of something
//! else, and never twice. A locked file beside it is the proof that its server lives; the kernel lets go of
//! it however that ends.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{
    AtFlags, CWD, FileType, FlockOperation, Mode, OFlags, Stat, fchmod, flock, fstat, mkdirat,
    openat, renameat, statat, unlinkat,
};
use rustix::io::Errno;
use rustix::net::{Shutdown, SocketFlags, accept_with, bind, connect, listen, shutdown};
use rustix::process::geteuid;

use crate::bounds::BACKLOG;
use crate::dial::{new_socket, within};

const PRIVATE: Mode = Mode::RUSR.union(Mode::WUSR);
const PRIVATE_DIR: Mode = Mode::RWXU;

/// Why there is no socket. Nothing that was there has been touched.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    #[error("`{}` is no place for a socket: {why}", .path.display())]
    Directory { path: PathBuf, why: &'static str },
    #[error("`{}` is in the way: {why}", .path.display())]
    InTheWay { path: PathBuf, why: &'static str },
    /// A second server on the same home.
    #[error("a server listens at `{}` already{}", .path.display(), of_process(*.pid))]
    Served { path: PathBuf, pid: Option<u32> },
    #[error("{doing} `{}` failed", .path.display())]
    Io {
        doing: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

fn of_process(pid: Option<u32>) -> String {
    pid.map_or(String::new(), |pid| format!(", process {pid}"))
}

impl ListenError {
    pub fn fix(&self) -> String {
        match self {
            ListenError::Directory { path, .. } => {
                format!("make `{}` a directory of yours with `chmod 700`", path.display())
            }
            ListenError::InTheWay { path, .. } => {
                format!("see what `{}` is, and move it away", path.display())
            }
            ListenError::Served { .. } => "use that one, or stop it first".into(),
            ListenError::Io { .. } => String::new(),
        }
    }
}

/// Listens until it is dropped, and then takes away what it made.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    dir: OwnedFd,
    name: OsString,
    path: PathBuf,
    /// Device and inode of the socket that is ours.
    made: (u64, u64),
    lock: Mutex<Option<File>>,
    /// How often accepting ends in a panic.
    #[cfg(test)]
    pub(crate) panics: std::sync::atomic::AtomicU32,
}

impl Listener {
    /// Makes the directory if it is missing, and the socket in it.
    pub fn bind(path: &Path) -> Result<Listener, ListenError> {
        let place = Place::open(path)?;
        let lock = place.lock()?;
        place.must_be_free()?;
        let (socket, made) = place.make()?;
        let Place { dir, name, path } = place;
        Ok(Listener {
            socket,
            dir,
            name,
            path,
            made,
            lock: Mutex::new(Some(lock)),
            #[cfg(test)]
            panics: Default::default(),
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The next connection.
    pub(crate) fn accept(&self) -> Result<UnixStream, Errno> {
        let accepted = accept_with(&self.socket, SocketFlags::CLOEXEC).map(UnixStream::from);
        #[cfg(test)]
        self.panics_on_purpose();
        accepted
    }

    #[cfg(test)]
    fn panics_on_purpose(&self) {
        use std::sync::atomic::Ordering;
        let less = |left: u32| left.checked_sub(1);
        let left = self.panics.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
        assert!(left.is_err(), "on purpose");
    }

    /// Accepts nothing more, and wakes whoever waits for a connection. The name goes at once: whoever comes
    /// now finds nobody.
    pub(crate) fn close(&self) {
        // It fails only if that was done before.
        shutdown(&self.socket, Shutdown::Both).ok();
        self.remove();
    }

    /// Lets another server begin.
    pub(crate) fn release(&self) {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Takes the name away if it still is that of our socket. The lock stays where it is: who removes a lock
    /// file locks nothing.
    fn remove(&self) {
        let seen = statat(&self.dir, &self.name, AtFlags::SYMLINK_NOFOLLOW);
        if seen.is_ok_and(|seen| identity(&seen) == self.made) {
            // A name that stays is that of a dead socket, which the next server replaces.
            unlinkat(&self.dir, &self.name, AtFlags::empty()).ok();
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.close();
    }
}

/// Where a socket is to be.
struct Place {
    dir: OwnedFd,
    name: OsString,
    path: PathBuf,
}

impl Place {
    fn open(path: &Path) -> Result<Place, ListenError> {
        let wrong = |why| ListenError::Directory { path: path.to_owned(), why };
        let name = path.file_name().ok_or_else(|| wrong("it has no file name"))?;
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
        let dir = dir.ok_or_else(|| wrong("it names no directory"))?;
        let held = open_dir(dir)?;
        Ok(Place { dir: held, name: name.to_owned(), path: path.to_owned() })
    }

    /// Proof that no other server lives here, as long as it is held.
    fn lock(&self) -> Result<File, ListenError> {
        let name = self.beside(".lock");
        let path = self.path.with_file_name(&name);
        let flags = OFlags::CREATE | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let flags = flags | OFlags::NONBLOCK;
        let file = openat(&self.dir, &name, flags, PRIVATE);
        let file = file.map_err(|errno| match errno {
            Errno::LOOP => in_the_way(&path, "it is a link"),
            Errno::ISDIR | Errno::NXIO => in_the_way(&path, "it is not a file"),
            other => failed("opening", &path, other),
        })?;
        let seen = fstat(&file).map_err(|errno| failed("looking at", &path, errno))?;
        if FileType::from_raw_mode(seen.st_mode) != FileType::RegularFile {
            return Err(in_the_way(&path, "it is not a file"));
        }
        if seen.st_uid != geteuid().as_raw() {
            return Err(in_the_way(&path, "it belongs to somebody else"));
        }
        let mut file = File::from(file);
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                let pid = noted(&mut file);
                return Err(ListenError::Served { path: self.path.clone(), pid });
            }
            Err(errno) => return Err(failed("locking", &path, errno)),
        }
        note(&mut file).map_err(|source| ListenError::Io { doing: "writing", path, source })?;
        Ok(file)
    }

    /// Whether there is nothing, or a dead socket of ours.
    fn must_be_free(&self) -> Result<(), ListenError> {
        let seen = match statat(&self.dir, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(seen) => seen,
            Err(Errno::NOENT) => return Ok(()),
            Err(errno) => return Err(failed("looking at", &self.path, errno)),
        };
        must_be_our_socket(&seen, &self.path)?;
        match self.knock() {
            Err(Errno::CONNREFUSED) => Ok(()),
            // A server that knows of no lock, and even one that has no time now, is one.
            Ok(()) | Err(Errno::AGAIN) => {
                Err(ListenError::Served { path: self.path.clone(), pid: None })
            }
            Err(errno) => Err(failed("trying", &self.path, errno)),
        }
    }

    fn knock(&self) -> Result<(), Errno> {
        let socket = new_socket()?;
        rustix::fs::fcntl_setfl(&socket, OFlags::NONBLOCK)?;
        connect(&socket, &within(&self.dir, &self.name)?)
    }

    /// Makes the socket under another name, and moves it into place when it listens: nobody ever finds one
    /// that is not ready, or that others may use.
    fn make(&self) -> Result<(OwnedFd, (u64, u64)), ListenError> {
        let name = self.beside(".new");
        self.clear(&name)?;
        let failed = |errno| failed("listening at", &self.path, errno);
        let socket = new_socket().map_err(failed)?;
        // The name gets the mode of the socket, so that it is private from its first moment on.
        fchmod(&socket, PRIVATE).map_err(failed)?;
        bind(&socket, &within(&self.dir, &name).map_err(failed)?).map_err(failed)?;
        let seen = statat(&self.dir, &name, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
        must_be_our_socket(&seen, &self.path)?;
        if Mode::from_raw_mode(seen.st_mode).intersects(Mode::RWXG | Mode::RWXO) {
            return Err(in_the_way(&self.path, "its mode cannot be set to 0600"));
        }
        listen(&socket, BACKLOG).map_err(failed)?;
        renameat(&self.dir, &name, &self.dir, &self.name).map_err(failed)?;
        Ok((socket, identity(&seen)))
    }

    /// Removes what a server left that was killed while it began.
    fn clear(&self, name: &OsStr) -> Result<(), ListenError> {
        let path = self.path.with_file_name(name);
        match statat(&self.dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(failed("looking at", &path, errno)),
            Ok(seen) => {
                must_be_our_socket(&seen, &path)?;
                unlinkat(&self.dir, name, AtFlags::empty())
                    .map_err(|errno| failed("removing", &path, errno))
            }
        }
    }

    fn beside(&self, ending: &str) -> OsString {
        let mut name = self.name.clone();
        name.push(ending);
        name
    }
}

/// Opens a directory that only this user can enter. It is made if it is missing; where it is comes from the
/// configuration, so that links on the way are the user's own.
fn open_dir(path: &Path) -> Result<OwnedFd, ListenError> {
    let wrong = |why| ListenError::Directory { path: path.to_owned(), why };
    match mkdirat(CWD, path, PRIVATE_DIR) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(failed("making", path, errno)),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = openat(CWD, path, flags, Mode::empty()).map_err(|errno| match errno {
        Errno::LOOP => wrong("it is a link"),
        Errno::NOTDIR => wrong("it is not a directory"),
        other => failed("opening", path, other),
    })?;
    let seen = fstat(dir.as_fd()).map_err(|errno| failed("looking at", path, errno))?;
    if seen.st_uid != geteuid().as_raw() {
        return Err(wrong("it belongs to somebody else"));
    }
    if Mode::from_raw_mode(seen.st_mode).intersects(Mode::RWXG | Mode::RWXO) {
        return Err(wrong("others may enter it"));
    }
    Ok(dir)
}

fn must_be_our_socket(seen: &Stat, path: &Path) -> Result<(), ListenError> {
    match FileType::from_raw_mode(seen.st_mode) {
        FileType::Socket if seen.st_uid == geteuid().as_raw() => Ok(()),
        FileType::Socket => Err(in_the_way(path, "it belongs to somebody else")),
        FileType::Symlink => Err(in_the_way(path, "it is a link")),
        _ => Err(in_the_way(path, "it is not a socket")),
    }
}

fn identity(seen: &Stat) -> (u64, u64) {
    (seen.st_dev, seen.st_ino)
}

/// Who holds the lock, for messages.
fn note(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    write!(file, "{}", std::process::id())
}

fn noted(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.take(16).read_to_string(&mut text).ok()?;
    text.parse().ok()
}

fn in_the_way(path: &Path, why: &'static str) -> ListenError {
    ListenError::InTheWay { path: path.to_owned(), why }
}

fn failed(doing: &'static str, path: &Path, errno: Errno) -> ListenError {
    ListenError::Io { doing, path: path.to_owned(), source: errno.into() }
}
