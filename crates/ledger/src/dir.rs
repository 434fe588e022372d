//! Directories by held descriptors: nothing is opened through a link, above the directory or across a
//! mount, and what is written appears under its name whole or not at all.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, ResolveFlags};
use rustix::io::Errno;

/// What the name of a file begins with that is still being written.
pub(crate) const PARTIAL: &str = ".part-";

/// Opens a directory, made for nobody but its owner if it is not there.
pub(crate) fn open_or_make(path: &Path) -> io::Result<OwnedFd> {
    match rustix::fs::mkdir(path, Mode::RWXU) {
        Ok(()) => sync_parent(path)?,
        Err(Errno::EXIST) => {}
        Err(errno) => return Err(errno.into()),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = rustix::fs::open(path, flags, Mode::empty())?;
    let stat = rustix::fs::fstat(&dir)?;
    if stat.st_uid != rustix::process::geteuid().as_raw() {
        return Err(io::Error::other("it belongs to somebody else"));
    }
    if stat.st_mode & 0o022 != 0 {
        return Err(io::Error::other("others may write to it"));
    }
    Ok(dir)
}

fn sync_parent(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

/// Opens something below a directory, for reading. Never blocks.
pub(crate) fn open_beneath(dir: impl AsFd, name: &str, extra: OFlags) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | extra;
    let resolve = ResolveFlags::BENEATH
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_MAGICLINKS
        | ResolveFlags::NO_XDEV;
    rustix::fs::openat2(dir, name, flags, Mode::empty(), resolve)
}

/// The length of a regular file with one name; `None` for anything else.
pub(crate) fn plain_size(file: impl AsFd) -> Result<Option<u64>, Errno> {
    let stat = rustix::fs::fstat(file)?;
    let is_plain =
        FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && stat.st_nlink == 1;
    Ok(u64::try_from(stat.st_size).ok().filter(|_| is_plain))
}

/// Names in a directory, without those that are not UTF-8: none of ours is.
pub(crate) fn names(dir: impl AsFd) -> io::Result<impl Iterator<Item = io::Result<String>>> {
    let entries = rustix::fs::Dir::read_from(dir)?;
    Ok(entries.filter_map(|entry| match entry {
        Ok(entry) => entry.file_name().to_str().ok().map(|name| Ok(name.to_owned())),
        Err(errno) => Some(Err(errno.into())),
    }))
}

/// From the kernel's generator, which gives as much as this at once.
pub(crate) fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(bytes)
}

/// A new file under a name that nobody can guess. Dropped, it is gone.
#[derive(Debug)]
pub(crate) struct Partial<'a> {
    dir: &'a OwnedFd,
    name: CString,
    pub(crate) file: File,
    is_placed: bool,
}

impl Partial<'_> {
    pub(crate) fn create(dir: &OwnedFd, mode: Mode) -> io::Result<Partial<'_>> {
        let name = CString::new(format!("{PARTIAL}{:032x}", u128::from_ne_bytes(random()?)))?;
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::openat(dir, &name, flags, mode)?);
        Ok(Partial { dir, name, file, is_placed: false })
    }

    /// Gives it its name, if nothing else has it.
    pub(crate) fn place(&mut self, dir: impl AsFd, name: &str) -> Result<(), Errno> {
        self.rename(dir, name, RenameFlags::NOREPLACE)
    }

    /// Gives it its name, in place of what stands there.
    pub(crate) fn replace(&mut self, dir: impl AsFd, name: &str) -> Result<(), Errno> {
        self.rename(dir, name, RenameFlags::empty())
    }

    fn rename(&mut self, dir: impl AsFd, name: &str, how: RenameFlags) -> Result<(), Errno> {
        rustix::fs::renameat_with(self.dir, &self.name, dir, name, how)?;
        self.is_placed = true;
        Ok(())
    }
}

impl Drop for Partial<'_> {
    fn drop(&mut self) {
        if !self.is_placed {
            // What cannot be removed is never seen as content, and swept later.
            rustix::fs::unlinkat(self.dir, &self.name, AtFlags::empty()).ok();
        }
    }
}
