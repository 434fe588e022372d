//! A held cgroup directory. Everything is done relative to it, so that no path is resolved twice.

use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Access, AtFlags, FileType, FlockOperation, Mode, OFlags, RawDir};
use rustix::io::Errno;
use rustix::path::Arg;

/// Largest text taken from a file of a cgroup. The longest that is read, `cgroup.procs`, is read in
/// pieces of it.
pub(super) const TEXT_MOST: usize = 4096;
/// Most names taken from one directory.
const ENTRIES_MOST: usize = 65_536;
/// Most bytes of `cgroup.procs`: all processes that a kernel can have, eight characters each.
const PROCS_MOST: usize = 8 * 4_194_304;

#[derive(Debug)]
pub(super) struct Dir(OwnedFd);

/// The text of one file, on the stack.
#[derive(Debug, Clone, Copy)]
pub(super) struct Text {
    bytes: [u8; TEXT_MOST],
    len: usize,
}

impl Text {
    pub(super) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    pub(super) fn to_line(self) -> String {
        String::from_utf8_lossy(self.as_bytes().trim_ascii()).into_owned()
    }
}

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW);

impl Dir {
    pub(super) fn open(path: &Path) -> Result<Dir, Errno> {
        rustix::fs::open(path, DIRECTORY, Mode::empty()).map(Dir)
    }

    pub(super) fn child(&self, name: impl Arg) -> Result<Dir, Errno> {
        rustix::fs::openat(&self.0, name, DIRECTORY, Mode::empty()).map(Dir)
    }

    /// For the owner alone: whoever may open it could take its lock.
    pub(super) fn make(&self, name: impl Arg) -> Result<(), Errno> {
        rustix::fs::mkdirat(&self.0, name, Mode::RWXU)
    }

    pub(super) fn remove(&self, name: impl Arg) -> Result<(), Errno> {
        rustix::fs::unlinkat(&self.0, name, AtFlags::REMOVEDIR)
    }

    /// Whether `child` is still what `name` stands for here.
    pub(super) fn holds(&self, name: impl Arg, child: &Dir) -> bool {
        let here = rustix::fs::statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW);
        match (here, rustix::fs::fstat(&child.0)) {
            (Ok(a), Ok(b)) => (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino),
            _ => false,
        }
    }

    /// Takes the lock that says "the owner lives", or tells that another holds it.
    pub(super) fn lock(&self) -> Result<(), Errno> {
        rustix::fs::flock(&self.0, FlockOperation::NonBlockingLockExclusive)
    }

    pub(super) fn has(&self, file: &CStr) -> bool {
        self.allows(file, Access::EXISTS).is_ok()
    }

    pub(super) fn writable(&self, file: &CStr) -> Result<(), Errno> {
        self.allows(file, Access::WRITE_OK)
    }

    fn allows(&self, file: &CStr, access: Access) -> Result<(), Errno> {
        rustix::fs::accessat(&self.0, file, access, AtFlags::EACCESS)
    }

    pub(super) fn open_to_write(&self, file: &CStr) -> Result<OwnedFd, Errno> {
        self.open_file(file, OFlags::WRONLY)
    }

    fn open_file(&self, file: &CStr, how: OFlags) -> Result<OwnedFd, Errno> {
        rustix::fs::openat(&self.0, file, how | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty())
    }

    pub(super) fn write(&self, file: &CStr, value: &[u8]) -> Result<(), Errno> {
        write_all(self.open_file(file, OFlags::WRONLY)?.as_fd(), value)
    }

    /// Writes and reads what the kernel made of it, with one open.
    pub(super) fn write_and_read(&self, file: &CStr, value: &[u8]) -> Result<Text, Errno> {
        let file = self.open_file(file, OFlags::RDWR)?;
        write_all(file.as_fd(), value)?;
        read_text(file.as_fd())
    }

    pub(super) fn read(&self, file: &CStr) -> Result<Text, Errno> {
        read_text(self.open_file(file, OFlags::RDONLY)?.as_fd())
    }

    /// The whole of `cgroup.procs`.
    pub(super) fn procs(&self) -> Result<Vec<u8>, Errno> {
        let file = self.open_file(c"cgroup.procs", OFlags::RDONLY)?;
        let mut all = Vec::new();
        let mut piece = [0; TEXT_MOST];
        while all.len() < PROCS_MOST {
            let n = rustix::io::retry_on_intr(|| rustix::io::read(&file, &mut piece))?;
            if n == 0 {
                return Ok(all);
            }
            all.extend_from_slice(piece.get(..n).unwrap_or_default());
        }
        Err(Errno::FBIG)
    }

    /// The directories in it. Collected before anything is done, since removing while reading may
    /// skip some.
    pub(super) fn children(&self) -> Result<Vec<CString>, Errno> {
        let again = rustix::fs::openat(&self.0, c".", DIRECTORY, Mode::empty())?;
        let mut buffer = [MaybeUninit::uninit(); TEXT_MOST];
        let mut entries = RawDir::new(again, &mut buffer);
        let mut names = Vec::new();
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name();
            if entry.file_type() == FileType::Directory && !name.to_bytes().starts_with(b".") {
                names.push(name.to_owned());
            }
            if names.len() > ENTRIES_MOST {
                return Err(Errno::FBIG);
            }
        }
        Ok(names)
    }
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The kernel takes a value in one write or not at all.
pub(super) fn write_all(file: BorrowedFd<'_>, value: &[u8]) -> Result<(), Errno> {
    let n = rustix::io::retry_on_intr(|| rustix::io::pwrite(file, value, 0))?;
    if n == value.len() { Ok(()) } else { Err(Errno::IO) }
}

fn read_text(file: BorrowedFd<'_>) -> Result<Text, Errno> {
    let mut text = Text { bytes: [0; TEXT_MOST], len: 0 };
    text.len = rustix::io::retry_on_intr(|| rustix::io::pread(file, &mut text.bytes, 0))?;
    Ok(text)
}
