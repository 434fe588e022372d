//! Takes what a run left in its working directory, by held descriptors: no name that the run chose is
//! ever resolved through a link, and only regular files with one name are read.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::time::Instant;

use hotcell_types::{Artifact, Skipped, hex};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, RawMode, ResolveFlags};
use sha2::{Digest, Sha256};

use crate::supplies::{Placed, Thing};
use crate::{cause, random};

/// Deepest directory that is looked into.
const MAX_DEPTH: usize = 64;
/// Most artifacts and skipped things together, and most bytes of their names.
const MAX_LISTED: usize = 10_000;
const MAX_NAMES: usize = 1024 * 1024;

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Collected {
    pub(crate) artifacts: Vec<Artifact>,
    pub(crate) skipped: Vec<Skipped>,
}

/// How much is taken at most.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// Of all files together, holes included: what was never written is not read for ever.
    pub(crate) bytes: u64,
    pub(crate) until: Instant,
}

/// The run's working directory, whatever it did to it.
pub(crate) fn open_work(cell: &OwnedFd) -> io::Result<OwnedFd> {
    open_own(cell, c"work", OFlags::DIRECTORY, 0o700).or_else(|_| {
        // The run closed even the directory above; it is behind the held descriptor all the same.
        let held = format!("/proc/self/fd/{}", cell.as_raw_fd());
        std::fs::set_permissions(held, std::fs::Permissions::from_mode(0o700))?;
        open_own(cell, c"work", OFlags::DIRECTORY, 0o700)
    })
}

/// Collects what is in the working directory, copying to `outputs` when there is one.
pub(crate) fn collect(
    work: &OwnedFd,
    placed: &Placed,
    bounds: Bounds,
    outputs: Option<OwnedFd>,
) -> io::Result<Collected> {
    let mut collector = Collector { placed, bounds, names: 0, collected: Collected::default() };
    collector.directory(work.try_clone()?, outputs, b"", 0);
    let mut collected = collector.collected;
    collected.artifacts.sort_by(|a, b| a.path.cmp(&b.path));
    collected.skipped.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(collected)
}

struct Collector<'a> {
    placed: &'a Placed,
    /// What may still be taken.
    bounds: Bounds,
    /// Bytes of names so far.
    names: usize,
    collected: Collected,
}

impl Collector<'_> {
    fn directory(&mut self, dir: OwnedFd, target: Option<OwnedFd>, prefix: &[u8], depth: usize) {
        let entries = match Dir::read_from(&dir) {
            Ok(entries) => entries,
            Err(errno) => {
                return self.skip(prefix, &format!("cannot be listed: {}", cause(&errno.into())));
            }
        };
        for entry in entries {
            if self.is_full() {
                return self.skip(prefix, "there is more than can be listed");
            }
            if Instant::now() > self.bounds.until {
                return self.skip(prefix, "the run's time was over before it was looked through");
            }
            let Ok(entry) = entry else {
                return self.skip(prefix, "cannot be listed to its end");
            };
            let name = entry.file_name();
            if name != c"." && name != c".." {
                self.entry(&dir, target.as_ref(), name, prefix, depth);
            }
        }
    }

    fn is_full(&self) -> bool {
        let listed = self.collected.artifacts.len() + self.collected.skipped.len();
        listed >= MAX_LISTED || self.names >= MAX_NAMES
    }

    fn skip(&mut self, path: &[u8], why: &str) {
        let path = if path.is_empty() { b"." } else { path };
        self.names += path.len();
        self.collected.skipped.push(Skipped { path: shown(path), why: why.into() });
    }

    fn entry(
        &mut self,
        dir: &OwnedFd,
        target: Option<&OwnedFd>,
        name: &CStr,
        prefix: &[u8],
        depth: usize,
    ) {
        let name_bytes = name.to_bytes();
        let path =
            if prefix.is_empty() { name_bytes.into() } else { [prefix, name_bytes].join(&b'/') };
        let stat = match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(errno) => {
                return self.skip(&path, &format!("cannot be looked at: {}", cause(&errno.into())));
            }
        };
        if self.is_untouched(dir, name, &path, &stat) {
            return;
        }
        if let Some(why) = refusal(name, &stat, depth) {
            return self.skip(&path, why);
        }
        let taken = if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            self.descend(dir, target, name, &path, depth)
        } else {
            self.file(dir, target, name, &path, stat.st_size as u64)
        };
        if let Err(error) = taken {
            self.skip(&path, &format!("cannot be copied: {}", cause(&error)));
        }
    }

    /// Whether it is as it was put there; a directory is looked into.
    fn is_untouched(
        &self,
        dir: &OwnedFd,
        name: &CStr,
        path: &[u8],
        stat: &rustix::fs::Stat,
    ) -> bool {
        let path = CString::new(path).unwrap_or_default();
        match (self.placed.get(&path), FileType::from_raw_mode(stat.st_mode)) {
            (Some(Thing::File { bytes, modified }), FileType::RegularFile) => {
                // A program can give a file any time but that of its last change.
                stat.st_size as u64 == *bytes
                    && stat.st_mtime == modified.seconds
                    && stat.st_mtime_nsec == u64::from(modified.nanos)
                    && !self.placed.was_done_before(stat.st_ctime, stat.st_ctime_nsec)
            }
            (Some(Thing::Link(target)), FileType::Symlink) => {
                rustix::fs::readlinkat(dir, name, Vec::new()).is_ok_and(|now| now == *target)
            }
            _ => false,
        }
    }

    fn descend(
        &mut self,
        dir: &OwnedFd,
        target: Option<&OwnedFd>,
        name: &CStr,
        path: &[u8],
        depth: usize,
    ) -> io::Result<()> {
        let below = open_own(dir, name, OFlags::DIRECTORY, 0o700)?;
        let target = target.map(|target| enter(target, name)).transpose()?;
        self.directory(below, target, path, depth + 1);
        Ok(())
    }

    fn file(
        &mut self,
        dir: &OwnedFd,
        target: Option<&OwnedFd>,
        name: &CStr,
        path: &[u8],
        bytes: u64,
    ) -> io::Result<()> {
        // Never blocks, whatever it has become since it was looked at.
        let file = File::from(open_own(dir, name, OFlags::NONBLOCK, 0o600)?);
        let stat = rustix::fs::fstat(&file)?;
        if refusal(name, &stat, 0).is_some() || stat.st_size as u64 != bytes {
            return Err(io::Error::other("it changed while it was looked at"));
        }
        self.bounds.bytes = self.bounds.bytes.checked_sub(bytes).ok_or_else(|| {
            io::Error::other("with it the files are larger than the run's disk, holes included")
        })?;
        let executable = stat.st_mode & 0o100 != 0;
        let source = Timed { source: file.take(bytes), until: self.bounds.until };
        let sha256 = match target {
            Some(target) => store(target, name, source, executable)?,
            None => copy_and_hash(source, &mut io::sink())?,
        };
        self.names += path.len();
        self.collected.artifacts.push(Artifact { path: shown(path), bytes, sha256 });
        Ok(())
    }
}

fn shown(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

/// A source that fails when the time is over.
struct Timed<R> {
    source: R,
    until: Instant,
}

impl<R: Read> Read for Timed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if Instant::now() > self.until {
            return Err(io::Error::other("the run's time was over before it was read"));
        }
        self.source.read(buffer)
    }
}

/// Why something is not taken.
fn refusal(name: &CStr, stat: &rustix::fs::Stat, depth: usize) -> Option<&'static str> {
    let text = match name.to_str() {
        Ok(text) => text,
        Err(_) => return Some("its name is not UTF-8"),
    };
    if text.chars().any(char::is_control) {
        return Some("its name has control characters");
    }
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory if depth >= MAX_DEPTH => Some("it is too deep"),
        FileType::Directory => None,
        FileType::RegularFile if stat.st_nlink != 1 => Some("it has more than one name"),
        FileType::RegularFile => None,
        FileType::Symlink => Some("it is a symbolic link"),
        FileType::Fifo => Some("it is a pipe"),
        FileType::Socket => Some("it is a socket"),
        _ => Some("it is not a regular file"),
    }
}

/// Opens something that the run made. Where hotcell is its owner and not root, the run may have taken
/// away the right to read it: that is given back. Nobody of the run is left to change what it is.
fn open_own(dir: &OwnedFd, name: &CStr, extra: OFlags, mode: RawMode) -> io::Result<OwnedFd> {
    match open_beneath(dir, name, extra) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            rustix::fs::chmodat(dir, name, Mode::from_raw_mode(mode), AtFlags::empty())?;
            open_beneath(dir, name, extra)
        }
        other => other,
    }
}

/// Opens one component below a directory, following nothing and crossing no mount.
fn open_beneath(dir: impl AsFd, name: &CStr, extra: OFlags) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | extra;
    let resolve = ResolveFlags::BENEATH
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_MAGICLINKS
        | ResolveFlags::NO_XDEV;
    Ok(rustix::fs::openat2(dir, name, flags, Mode::empty(), resolve)?)
}

/// Makes or enters a directory of the target.
fn enter(target: &OwnedFd, name: &CStr) -> io::Result<OwnedFd> {
    match rustix::fs::mkdirat(target, name, Mode::from_raw_mode(0o755)) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => {}
        Err(errno) => return Err(errno.into()),
    }
    open_beneath(target, name, OFlags::DIRECTORY)
}

/// Writes beside and renames, so that nothing half-written is ever seen under the name, and a link
/// that stands there is replaced and not followed.
fn store(
    target: &OwnedFd,
    name: &CStr,
    mut source: impl Read,
    executable: bool,
) -> io::Result<String> {
    let beside = &part_name()?;
    let mode: RawMode = if executable { 0o755 } else { 0o644 };
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file =
        File::from(rustix::fs::openat(target, beside, flags, Mode::from_raw_mode(mode))?);
    let stored = copy_and_hash(&mut source, &mut file).and_then(|sha256| {
        Ok(rustix::fs::renameat(target, beside, target, name).map(|()| sha256)?)
    });
    if stored.is_err() {
        // The first error is the one that counts.
        rustix::fs::unlinkat(target, beside, AtFlags::empty()).ok();
    }
    stored
}

/// A name that the run cannot have chosen.
fn part_name() -> io::Result<CString> {
    Ok(CString::new(format!(".hotcell-{}.part", random::digits()?))?)
}

fn copy_and_hash(mut source: impl Read, target: &mut impl Write) -> io::Result<String> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let length = source.read(&mut buffer)?;
        let chunk = buffer.get(..length).unwrap_or_default();
        if chunk.is_empty() {
            return Ok(hex::text(&hasher.finalize()));
        }
        hasher.update(chunk);
        target.write_all(chunk)?;
    }
}
