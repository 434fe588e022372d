//! Compares what a run left with what it was given.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::time::{Duration, Instant};

use crate::apply::is_reserved;
use crate::error::name;
use crate::walk::Walk;
use crate::{
    Bounds, Change, ChangeKind, Changeset, Cut, Digest, Entry, Error, FileFacts, Kind, Relative,
    Root, Skipped, Snapshot, TooMuch, Unfit,
};

/// Most things that are told as skipped.
const MOST_SKIPPED: usize = 10_000;

#[derive(Debug, Clone, Copy)]
pub struct DiffBounds {
    /// Most files, directories and links that the run may have left.
    pub entries: usize,
    /// Most bytes of all changed files together, holes included. Beyond it there is no changeset: half
    /// of what a run changed is nobody's intention.
    pub bytes: u64,
    pub within: Duration,
}

impl Default for DiffBounds {
    fn default() -> DiffBounds {
        let (entries, bytes) = (100_000, 1024 * 1024 * 1024);
        DiffBounds { entries, bytes, within: Duration::from_secs(60) }
    }
}

impl Snapshot {
    /// What the run changed in the directory that it worked in. The content of whatever is new or differs
    /// in size, time of modification or right of execution is given to `store`, which keeps it and answers
    /// with its SHA-256.
    ///
    /// A run that changes a file and puts its old time back hides the change from this, and so from the
    /// tree of the host as well. Links are never taken over.
    pub fn diff(
        &self,
        after: &Root,
        bounds: DiffBounds,
        store: impl FnMut(&mut dyn Read) -> io::Result<Digest>,
    ) -> Result<Changeset, Error> {
        let walk = Bounds { entries: bounds.entries, ..Bounds::within(bounds.within) };
        let mut comparing = Comparing {
            snapshot: self,
            store,
            bytes: bounds.bytes,
            most: bounds.bytes,
            until: walk.until,
            changes: Vec::new(),
            skipped: Vec::new(),
            more_skipped: 0,
        };
        comparing.compare(after, after.walk(None, walk)?, bounds)?;
        comparing.finish()
    }

    /// What was applied of a changeset counts as handed over from now on, as far as it is there: what somebody
    /// else has changed since stays a conflict.
    pub fn advance(&mut self, applied: &Changeset) {
        for Change { path, after, .. } in applied.changes() {
            let facts = after.and_then(|after| {
                let (_, is) = self.root.open_file(path).ok()?;
                (self.before(path, &is) == Some(after)).then_some(is)
            });
            if let Some(facts) = facts {
                self.manifest.insert(path.clone(), Kind::File(facts));
            } else if after.is_none()
                && matches!(crate::held::look(&self.root, path.as_str()), Err(Unfit::Missing))
            {
                self.manifest.remove(path);
            }
        }
    }

    /// The digest of what was handed over, if that is still there as it was.
    fn before(&self, path: &Relative, was: &FileFacts) -> Option<Digest> {
        let (file, is) = self.root.open_file(path).ok().filter(|(_, is)| is == was)?;
        let digest = Digest::copy((&file).take(is.bytes), &mut io::sink()).ok()?.0;
        let still = FileFacts::of(&rustix::fs::fstat(&file).ok()?);
        (still == *was).then_some(digest)
    }
}

struct Comparing<'a, S> {
    snapshot: &'a Snapshot,
    store: S,
    /// What may still be read, and what could be at first.
    bytes: u64,
    most: u64,
    until: Instant,
    changes: Vec<Change>,
    skipped: Vec<Skipped>,
    more_skipped: usize,
}

impl<S: FnMut(&mut dyn Read) -> io::Result<Digest>> Comparing<'_, S> {
    fn compare(&mut self, after: &Root, mut walk: Walk, bounds: DiffBounds) -> Result<(), Error> {
        let mut unseen: BTreeMap<&Relative, &Kind> = self.snapshot.manifest.iter().collect();
        while let Some(told) = walk.next() {
            match told {
                Ok(entry) => {
                    let was = unseen.remove(&entry.path);
                    self.entry(&mut walk, entry, was)?;
                }
                Err(skipped) => self.skip(skipped),
            }
        }
        // What was not looked at must not pass for deleted.
        if let Some(cut) = walk.cut() {
            return Err(too_much(cut, bounds).into());
        }
        for (path, was) in unseen {
            self.unseen(after, path, was);
        }
        Ok(())
    }

    fn entry(
        &mut self,
        walk: &mut Walk,
        Entry { path, kind }: Entry,
        was: Option<&Kind>,
    ) -> Result<(), Error> {
        let is_directory = kind == Kind::Directory;
        if self.snapshot.except.covers(&path, is_directory) {
            walk.pass_over();
            self.skip(Skipped::new(&path, "it was left out when the tree was handed over"));
            return Ok(());
        }
        if is_reserved(&path) {
            walk.pass_over();
            self.skip(Skipped::new(&path, "its name is reserved for applying changes"));
            return Ok(());
        }
        match (was, kind) {
            // The walk does not enter it, and what is in it must not be lost in silence.
            (_, Kind::Directory) if path.depth() >= Relative::MOST_PARTS => {
                self.skip(Skipped::new(&path, Unfit::TooDeep));
            }
            (Some(was), is) if *was == is => {}
            (None | Some(Kind::Directory), Kind::Directory) => {}
            (Some(Kind::File(was)), Kind::Directory) => self.deleted(path, was),
            (_, Kind::Symlink { .. }) => self.skip(Skipped::new(&path, "it is a symbolic link")),
            (Some(Kind::Symlink { .. }), _) => {
                walk.pass_over();
                self.skip(Skipped::new(&path, "it was a symbolic link"));
            }
            (Some(Kind::File(was)), Kind::File(is)) => {
                if !was.looks_like(&is) {
                    self.written(walk, path, Some(was))?;
                }
            }
            (None | Some(Kind::Directory), Kind::File(_)) => self.written(walk, path, None)?,
        }
        Ok(())
    }

    /// A file that is new or may have changed.
    fn written(
        &mut self,
        walk: &Walk,
        path: Relative,
        was: Option<&FileFacts>,
    ) -> Result<(), Error> {
        let (file, is) = match walk.open_current() {
            Ok(opened) => opened,
            Err(why) => {
                self.skip(Skipped::new(&path, why));
                return Ok(());
            }
        };
        let Some(rest) = self.bytes.checked_sub(is.bytes) else {
            return Err(TooMuch::Changed { most: self.most, path: name(Some(&path)) }.into());
        };
        self.bytes = rest;
        let mut source = Timed { source: file.take(is.bytes), until: self.until };
        let after = (self.store)(&mut source).map_err(|e| Error::io("keeping", Some(&path), e))?;
        // Nothing writes to it any more; if something does, what was kept is what counts.
        let bytes = is.bytes - source.source.limit();
        let before = was.and_then(|was| self.snapshot.before(&path, was));
        let is_same = before == Some(after) && was.is_some_and(|w| w.executable == is.executable);
        if !is_same {
            let kind = if was.is_some() { ChangeKind::Modified } else { ChangeKind::Added };
            let (after, executable) = (Some(after), is.executable);
            self.changes.push(Change { path, kind, before, after, bytes, executable });
        }
        Ok(())
    }

    /// Something that the walk did not come by: deleted if it is really not there.
    fn unseen(&mut self, after: &Root, path: &Relative, was: &Kind) {
        let is_gone = matches!(
            crate::held::look(after, path.as_str()),
            Err(Unfit::Missing | Unfit::NotDirectory)
        );
        match was {
            Kind::File(was) if is_gone => self.deleted(path.clone(), was),
            Kind::Symlink { .. } if is_gone => {
                self.skip(Skipped::new(path, "it was a symbolic link, and was removed"));
            }
            // Either a directory, or the walk has said why it or a directory above it was skipped.
            _ => {}
        }
    }

    fn deleted(&mut self, path: Relative, was: &FileFacts) {
        let before = self.snapshot.before(&path, was);
        let (kind, after, bytes, executable) = (ChangeKind::Deleted, None, 0, false);
        self.changes.push(Change { path, kind, before, after, bytes, executable });
    }

    fn skip(&mut self, skipped: Skipped) {
        if self.skipped.len() < MOST_SKIPPED {
            self.skipped.push(skipped);
        } else {
            self.more_skipped += 1;
        }
    }

    fn finish(mut self) -> Result<Changeset, Error> {
        if self.more_skipped > 0 {
            let why = format!("{} more were skipped", self.more_skipped);
            self.skipped.push(Skipped { path: ".".into(), why });
        }
        Changeset::new(self.changes, self.skipped)
            .map_err(|bad| Error::io("comparing", None, io::Error::other(bad)))
    }
}

fn too_much(cut: Cut, bounds: DiffBounds) -> TooMuch {
    match cut {
        Cut::Time => TooMuch::Time,
        Cut::Entries | Cut::Names => TooMuch::Left { most: bounds.entries as u64 },
    }
}

impl FileFacts {
    /// Whether a copy was left alone. It is another file, so that its inode says nothing.
    fn looks_like(&self, copy: &FileFacts) -> bool {
        let content = self.bytes == copy.bytes && self.modified == copy.modified;
        content && self.executable == copy.executable
    }
}

/// A source that fails when the time is over.
struct Timed {
    source: io::Take<File>,
    until: Instant,
}

impl Read for Timed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if Instant::now() > self.until {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.source.read(buffer)
    }
}
