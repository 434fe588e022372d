//! Goes through a tree in the order of its paths, holding one descriptor for each directory that it is in.

use std::collections::BinaryHeap;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::fs::{Dir, Stat};

use crate::held::{self, Sort};
use crate::relative::shown;
use crate::{Error, Relative, Root, Skipped, Unfit};

/// Something in a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub path: Relative,
    pub kind: Kind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    File(FileFacts),
    Directory,
    /// Where it points is text, and nothing that is ever followed.
    Symlink {
        target: String,
    },
}

/// What is known of a file without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileFacts {
    pub bytes: u64,
    /// Whether its owner may execute it.
    pub executable: bool,
    pub modified: Modified,
    pub inode: u64,
}

/// When a content was last written, since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Modified {
    pub seconds: i64,
    pub nanoseconds: u32,
}

/// How far a walk goes.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Most things that are told, skipped ones included.
    pub entries: usize,
    /// Most directories below each other that are looked into; 1 is where the walk starts.
    pub depth: usize,
    pub until: Instant,
}

/// Which bound ended a walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    Entries,
    /// The paths together have more than [`Bounds::MOST_NAMES`] bytes.
    Names,
    Time,
}

impl Bounds {
    pub const MOST_ENTRIES: usize = 1_000_000;
    /// A path has at most so many parts.
    pub const MOST_DEPTH: usize = Relative::MOST_PARTS;
    pub const MOST_NAMES: usize = 64 * 1024 * 1024;
    pub const MOST_TIME: Duration = Duration::from_secs(60 * 60);

    /// As far as a walk can go in this time.
    pub fn within(time: Duration) -> Bounds {
        let until = Instant::now() + time.min(Bounds::MOST_TIME);
        Bounds { entries: Bounds::MOST_ENTRIES, depth: Bounds::MOST_DEPTH, until }
    }
}

/// An iterator over a tree: each thing in it, or what was skipped and why. Directories come before what is
/// in them and are entered when the next thing is asked for; links are told and never followed.
#[derive(Debug)]
pub struct Walk {
    levels: Vec<Level>,
    /// What was told last, in the last level.
    current: CString,
    /// It is a directory that is still to be entered.
    entering: Option<Relative>,
    bounds: Bounds,
    told: usize,
    names: usize,
    cut: Option<Cut>,
}

#[derive(Debug)]
struct Level {
    dir: OwnedFd,
    path: Option<Relative>,
    names: std::vec::IntoIter<CString>,
}

impl Root {
    /// Walks what is in the directory `at`; `None` is the root.
    pub fn walk(&self, at: Option<&Relative>, bounds: Bounds) -> Result<Walk, Error> {
        let bounds = Bounds {
            entries: bounds.entries.min(Bounds::MOST_ENTRIES),
            depth: bounds.depth.min(Bounds::MOST_DEPTH),
            ..bounds
        };
        let mut walk = Walk {
            levels: Vec::new(),
            current: CString::default(),
            entering: None,
            bounds,
            told: 0,
            names: 0,
            cut: None,
        };
        let dir = self.directory(at)?;
        walk.enter(dir, at.cloned()).map_err(|why| Error::unfit(at, why))?;
        Ok(walk)
    }
}

impl Walk {
    /// Does not enter the directory that was told last.
    pub fn pass_over(&mut self) {
        self.entering = None;
    }

    /// Which bound ended the walk before it was through, if one did.
    pub fn cut(&self) -> Option<Cut> {
        self.cut
    }

    /// Opens the file that was told last, in the directory that it was seen in.
    pub(crate) fn open_current(&self) -> Result<(File, FileFacts), Unfit> {
        let level = self.levels.last().ok_or(Unfit::Missing)?;
        let (file, stat) = held::open_seen(&level.dir, self.current.as_c_str())?;
        Ok((file, FileFacts::of(&stat)))
    }

    fn enter(&mut self, dir: OwnedFd, path: Option<Relative>) -> Result<(), Unfit> {
        let names = self.read_names(&dir)?.into_iter();
        self.levels.push(Level { dir, path, names });
        Ok(())
    }

    /// The first names of a directory in their order. One more than can be told is enough to know that
    /// there are more.
    fn read_names(&mut self, dir: &OwnedFd) -> Result<Vec<CString>, Unfit> {
        let most = self.bounds.entries.saturating_sub(self.told).saturating_add(1);
        let mut first = BinaryHeap::new();
        for entry in Dir::read_from(dir)? {
            let entry = entry?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            if self.is_late() {
                break;
            }
            if first.len() < most {
                first.push(name.to_owned());
            } else if let Some(mut last) = first.peek_mut().filter(|last| last.as_c_str() > name) {
                *last = name.to_owned();
            }
        }
        Ok(first.into_sorted_vec())
    }

    fn is_late(&mut self) -> bool {
        if Instant::now() > self.bounds.until {
            self.cut = Some(Cut::Time);
        }
        self.cut.is_some()
    }

    fn is_full(&mut self) -> bool {
        if self.told >= self.bounds.entries {
            self.cut = Some(Cut::Entries);
        } else if self.names > Bounds::MOST_NAMES {
            self.cut = Some(Cut::Names);
        }
        self.cut.is_some()
    }

    fn enter_current(&mut self, path: Relative) -> Result<(), Skipped> {
        let Some(level) = self.levels.last() else { return Ok(()) };
        held::open_directory(&level.dir, self.current.as_c_str())
            .and_then(|dir| self.enter(dir, Some(path.clone())))
            .map_err(|why| Skipped::new(&path, why))
    }
}

impl Iterator for Walk {
    type Item = Result<Entry, Skipped>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(path) = self.entering.take()
            && let Err(skipped) = self.enter_current(path)
        {
            return Some(Err(skipped));
        }
        loop {
            if self.is_late() {
                return None;
            }
            let level = self.levels.last_mut()?;
            let Some(name) = level.names.next() else {
                self.levels.pop();
                continue;
            };
            if self.is_full() {
                return None;
            }
            let level = self.levels.last()?;
            let told = level.entry(&name);
            self.told += 1;
            self.current = name;
            match &told {
                Ok(entry) => {
                    self.names += entry.path.as_str().len();
                    if entry.kind == Kind::Directory && self.levels.len() < self.bounds.depth {
                        self.entering = Some(entry.path.clone());
                    }
                }
                Err(skipped) => self.names += skipped.path.len(),
            }
            return Some(told);
        }
    }
}

impl Level {
    fn entry(&self, name: &CStr) -> Result<Entry, Skipped> {
        let path = self.path_of(name).map_err(|why| self.skipped(name, why))?;
        let kind = self.kind_of(name).map_err(|why| Skipped::new(&path, why))?;
        Ok(Entry { path, kind })
    }

    fn path_of(&self, name: &CStr) -> Result<Relative, Unfit> {
        let name = name.to_str().map_err(|_| Unfit::NotUtf8)?;
        if name.chars().any(char::is_control) {
            return Err(Unfit::ControlCharacters);
        }
        Relative::join(self.path.as_ref(), name).map_err(|_| Unfit::TooDeep)
    }

    fn kind_of(&self, name: &CStr) -> Result<Kind, Unfit> {
        let (held, stat) = held::look(&self.dir, name)?;
        Ok(match held::sort(&stat)? {
            Sort::File => Kind::File(FileFacts::of(&stat)),
            Sort::Directory => Kind::Directory,
            Sort::Symlink => {
                let target = rustix::fs::readlinkat(&held, c"", Vec::new())?;
                Kind::Symlink { target: target.into_string().map_err(|_| Unfit::NotUtf8)? }
            }
        })
    }

    fn skipped(&self, name: &CStr, why: Unfit) -> Skipped {
        let name = shown(&name.to_string_lossy(), usize::MAX);
        let path = match &self.path {
            Some(above) => format!("{above}/{name}"),
            None => name,
        };
        Skipped { path, why: why.to_string() }
    }
}

impl Entry {
    pub fn is_directory(&self) -> bool {
        self.kind == Kind::Directory
    }
}

impl FileFacts {
    pub(crate) fn of(stat: &Stat) -> FileFacts {
        FileFacts {
            bytes: u64::try_from(stat.st_size).unwrap_or(0),
            executable: stat.st_mode & 0o100 != 0,
            modified: Modified {
                seconds: stat.st_mtime,
                nanoseconds: u32::try_from(stat.st_mtime_nsec).unwrap_or(0),
            },
            inode: stat.st_ino,
        }
    }
}
