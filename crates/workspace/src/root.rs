//! The held root of a tree, and looking at single files.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::ops::{Bound, RangeBounds};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};

use crate::held::{self, Sort};
use crate::{Error, FileFacts, Relative, Unfit};

/// A directory of the host, held since it was opened: what becomes of its name afterwards does not matter.
/// What is mounted somewhere in it is not entered.
#[derive(Debug, Clone)]
pub struct Root {
    dir: Arc<OwnedFd>,
    window: Option<Window>,
}

/// What of a tree somebody may see who searches or lists it.
#[derive(Clone)]
pub struct Window(Arc<dyn Fn(&str) -> Seen + Send + Sync>);

/// Whether a path is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    Yes,
    No,
    /// Nobody could say any more: it is not shown, and what is shown is not all.
    Unknown,
}

impl Window {
    /// Asked with each path that was found, relative to the root.
    pub fn new(may_see: impl Fn(&str) -> Seen + Send + Sync + 'static) -> Window {
        Window(Arc::new(may_see))
    }
}

impl std::fmt::Debug for Window {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Window(…)")
    }
}

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    File {
        bytes: u64,
        executable: bool,
    },
    Directory,
    /// Something that is there and never used, a link among them.
    Other(Unfit),
}

/// A part of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    pub bytes: Vec<u8>,
    /// Of the whole file.
    pub total: u64,
    /// There is more in the range than was read.
    pub truncated: bool,
}

impl Root {
    /// The same tree, of which a search or a list shows only what somebody may see. A path that is named is
    /// for whoever names it to answer for.
    pub fn seen_through(&self, window: Window) -> Root {
        Root { dir: Arc::clone(&self.dir), window: Some(window) }
    }

    pub(crate) fn shows(&self, path: &Relative) -> Seen {
        self.window.as_ref().map_or(Seen::Yes, |window| (window.0)(path.as_str()))
    }

    /// Most bytes that one reading gives, whatever is asked for.
    pub const MOST_READ: usize = 64 * 1024 * 1024;

    /// Opens a directory by a name that the operator or the user chose: links in it are followed, once.
    pub fn open(path: &Path) -> Result<Root, Error> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(dir) => Ok(Root { dir: Arc::new(dir), window: None }),
            Err(errno) => Err(Error::Io {
                doing: "opening the directory",
                path: crate::relative::shown(&path.to_string_lossy(), Relative::MOST_BYTES),
                source: errno.into(),
            }),
        }
    }

    /// A directory that is already held, such as the one that a run worked in.
    pub fn held(dir: OwnedFd) -> Result<Root, Error> {
        let stat = rustix::fs::fstat(&dir);
        match stat.map_err(Unfit::from).and_then(|stat| held::sort(&stat)) {
            Ok(Sort::Directory) => Ok(Root { dir: Arc::new(dir), window: None }),
            Ok(_) => Err(Error::unfit(None, Unfit::NotDirectory)),
            Err(why) => Err(Error::unfit(None, why)),
        }
    }

    /// What is there. What is behind a link or on another mount is refused, and not absent.
    pub fn exists(&self, path: &Relative) -> Result<Option<Found>, Error> {
        let stat = match held::look(&self.dir, path.as_str()) {
            Ok((_, stat)) => stat,
            Err(Unfit::Missing | Unfit::NotDirectory) => return Ok(None),
            Err(why) => return Err(Error::unfit(Some(path), why)),
        };
        Ok(Some(match held::sort(&stat) {
            Ok(Sort::File) => {
                let FileFacts { bytes, executable, .. } = FileFacts::of(&stat);
                Found::File { bytes, executable }
            }
            Ok(Sort::Directory) => Found::Directory,
            Ok(Sort::Symlink) => Found::Other(Unfit::Symlink),
            Err(why) => Found::Other(why),
        }))
    }

    /// Reads the bytes of this range, `most` of them at most.
    pub fn read(
        &self,
        path: &Relative,
        range: impl RangeBounds<u64>,
        most: usize,
    ) -> Result<Content, Error> {
        let (mut file, facts) = self.open_file(path)?;
        let begin = match range.start_bound() {
            Bound::Included(&begin) => begin,
            Bound::Excluded(&before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&last) => last.saturating_add(1),
            Bound::Excluded(&end) => end,
            Bound::Unbounded => u64::MAX,
        };
        // Never beyond the end: the kernel takes no position as large as a range may say.
        let begin = begin.min(facts.bytes);
        let there = end.min(facts.bytes).saturating_sub(begin);
        let most = (most.min(Root::MOST_READ) as u64).min(there);
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(begin))
            .and_then(|_| file.take(most).read_to_end(&mut bytes))
            .map_err(|error| Error::io("reading", Some(path), error))?;
        Ok(Content { bytes, total: facts.bytes, truncated: most < there })
    }

    /// A regular file, opened for reading, and how many bytes it has.
    pub fn file(&self, path: &Relative) -> Result<(File, u64), Error> {
        self.open_file(path).map(|(file, facts)| (file, facts.bytes))
    }

    /// Opens a directory for reading; `None` is the root itself.
    pub(crate) fn directory(&self, at: Option<&Relative>) -> Result<OwnedFd, Error> {
        held::open_directory(&self.dir, at.map_or(".", Relative::as_str))
            .map_err(|why| Error::unfit(at, why))
    }

    pub(crate) fn open_file(&self, path: &Relative) -> Result<(File, FileFacts), Error> {
        match held::open_file(&self.dir, path.as_str()) {
            Ok((file, stat)) => Ok((file, FileFacts::of(&stat))),
            Err(why) => Err(Error::unfit(Some(path), why)),
        }
    }
}

impl AsFd for Root {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }
}

impl Content {
    /// The content if it is UTF-8. A character that the truncation cut in two is left out.
    pub fn text(&self) -> Option<&str> {
        match str::from_utf8(&self.bytes) {
            Ok(text) => Some(text),
            Err(error) if self.truncated && error.error_len().is_none() => {
                str::from_utf8(self.bytes.get(..error.valid_up_to())?).ok()
            }
            Err(_) => None,
        }
    }
}
