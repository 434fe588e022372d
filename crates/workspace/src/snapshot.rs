//! A tree as it was handed to a sandbox.

use std::collections::BTreeMap;
use std::fs::File;
use std::time::Duration;

use crate::apply::is_reserved;
use crate::walk::{Cut, Walk};
use crate::{
    Bounds, Entry, Error, FileFacts, Globs, Kind, Modified, Relative, Root, Skipped, TooMuch, Unfit,
};

#[derive(Debug, Clone)]
pub struct SnapshotBounds {
    /// Most files, directories and links together.
    pub entries: usize,
    /// Most bytes of all files together, holes included.
    pub bytes: u64,
    /// What these cover is neither handed over nor looked at afterwards.
    pub except: Globs,
    pub within: Duration,
}

impl Default for SnapshotBounds {
    fn default() -> SnapshotBounds {
        SnapshotBounds {
            entries: 100_000,
            bytes: 1024 * 1024 * 1024,
            except: Globs::default(),
            within: Duration::from_secs(60),
        }
    }
}

/// What a copy of a tree takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Measured {
    /// Files, directories and links.
    pub entries: u64,
    /// In whole pages, as a file system has them.
    pub bytes: u64,
}

/// What was handed over, to be compared with what a run made of it.
#[derive(Debug)]
pub struct Snapshot {
    pub(crate) root: Root,
    pub(crate) manifest: BTreeMap<Relative, Kind>,
    pub(crate) except: Globs,
    skipped: Vec<Skipped>,
}

/// An iterator that opens a tree for copying, directories before what is in them. When it is through,
/// [`Handover::finish`] gives the snapshot.
///
/// The copy of a file must get its time of modification: by that and its size a file that the run left
/// alone is known.
#[derive(Debug)]
pub struct Handover {
    root: Root,
    walk: Walk,
    bounds: SnapshotBounds,
    manifest: BTreeMap<Relative, Kind>,
    skipped: Vec<Skipped>,
    tally: Tally,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Going,
    Through,
    Failed,
}

/// Something to be copied.
#[derive(Debug)]
pub struct Opened {
    pub path: Relative,
    pub what: What,
}

#[derive(Debug)]
pub enum What {
    /// A file, opened for reading. What it has beyond `bytes` was written since and is not to be copied.
    File {
        file: File,
        bytes: u64,
        modified: Modified,
        executable: bool,
    },
    Directory,
    Symlink {
        target: String,
    },
}

impl SnapshotBounds {
    fn walk(&self, root: &Root) -> Result<Walk, Error> {
        let bounds = Bounds { entries: self.entries, ..Bounds::within(self.within) };
        root.walk(None, bounds)
    }

    /// Goes on to the next thing that is to be handed over; what is skipped is told.
    fn next(
        &self,
        walk: &mut Walk,
        tally: &Tally,
        mut skip: impl FnMut(Skipped),
    ) -> Result<Option<Entry>, TooMuch> {
        while let Some(told) = walk.next() {
            match told {
                Err(skipped) => skip(skipped),
                Ok(entry) => {
                    let is_left_out = self.except.covers(&entry.path, entry.is_directory());
                    if !is_left_out && !is_reserved(&entry.path) {
                        return Ok(Some(entry));
                    }
                    walk.pass_over();
                }
            }
        }
        match walk.cut() {
            None => Ok(None),
            Some(Cut::Time) => Err(TooMuch::Time),
            Some(Cut::Entries | Cut::Names) => Err(tally.too_many(self)),
        }
    }
}

impl Root {
    /// Begins to hand the tree over.
    pub fn snapshot(&self, bounds: SnapshotBounds) -> Result<Handover, Error> {
        Ok(Handover {
            root: self.clone(),
            walk: bounds.walk(self)?,
            bounds,
            manifest: BTreeMap::new(),
            skipped: Vec::new(),
            tally: Tally::default(),
            state: State::Going,
        })
    }

    /// What a copy would take, or why it would be too much. No file is opened.
    pub fn measure(&self, bounds: &SnapshotBounds) -> Result<Measured, Error> {
        let mut walk = bounds.walk(self)?;
        let mut tally = Tally::default();
        while let Some(entry) = bounds.next(&mut walk, &tally, drop)? {
            tally.add(&entry.path, &entry.kind, bounds)?;
        }
        Ok(Measured { entries: tally.entries, bytes: tally.pages })
    }
}

/// Counts what is handed over, and says what makes it too much.
#[derive(Debug, Default)]
struct Tally {
    entries: u64,
    bytes: u64,
    /// The same, in whole pages.
    pages: u64,
    /// Entries and bytes of each name directly below the root.
    parts: BTreeMap<String, (u64, u64)>,
}

impl Tally {
    fn add(
        &mut self,
        path: &Relative,
        kind: &Kind,
        bounds: &SnapshotBounds,
    ) -> Result<(), TooMuch> {
        const PAGE: u64 = 4096;
        let bytes = match kind {
            Kind::File(facts) => facts.bytes,
            Kind::Directory | Kind::Symlink { .. } => 0,
        };
        self.entries += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        let pages = bytes.checked_next_multiple_of(PAGE).unwrap_or(bytes);
        self.pages = self.pages.saturating_add(pages);
        let name = path.parts().next().unwrap_or_default();
        let part = match self.parts.get_mut(name) {
            Some(part) => part,
            None => self.parts.entry(name.to_owned()).or_default(),
        };
        *part = (part.0 + 1, part.1.saturating_add(bytes));
        if self.bytes > bounds.bytes { Err(self.too_large(bounds)) } else { Ok(()) }
    }

    fn too_many(&self, bounds: &SnapshotBounds) -> TooMuch {
        let (heaviest, part) = self.heaviest(|part| part.0);
        TooMuch::Entries { most: bounds.entries as u64, heaviest, part }
    }

    fn too_large(&self, bounds: &SnapshotBounds) -> TooMuch {
        let (heaviest, part) = self.heaviest(|part| part.1);
        TooMuch::Bytes { most: bounds.bytes, heaviest, part }
    }

    /// The name directly below the root that has the most of something.
    fn heaviest(&self, weight: impl Fn(&(u64, u64)) -> u64) -> (String, u64) {
        let weights = self.parts.iter().map(|(name, part)| (name, weight(part)));
        let heaviest = weights.max_by_key(|&(_, weight)| weight);
        heaviest.map(|(name, weight)| (name.clone(), weight)).unwrap_or_default()
    }
}

impl Handover {
    /// The snapshot, if everything was handed over.
    pub fn finish(self) -> Result<Snapshot, Error> {
        if self.state != State::Through {
            return Err(Error::Unfinished);
        }
        let Handover { root, manifest, skipped, bounds, .. } = self;
        Ok(Snapshot { root, manifest, except: bounds.except, skipped })
    }

    fn step(&mut self) -> Result<Option<Opened>, Error> {
        loop {
            let skip = |skipped| self.skipped.push(skipped);
            let Some(entry) = self.bounds.next(&mut self.walk, &self.tally, skip)? else {
                return Ok(None);
            };
            if let Some(opened) = self.open(entry)? {
                return Ok(Some(opened));
            }
        }
    }

    /// `None` if it turned out to be unfit.
    fn open(&mut self, Entry { path, mut kind }: Entry) -> Result<Option<Opened>, Error> {
        let what = match &mut kind {
            Kind::Directory => {
                if path.depth() >= Relative::MOST_PARTS {
                    self.skipped.push(Skipped::new(&path, Unfit::TooDeep));
                }
                What::Directory
            }
            Kind::Symlink { target } => What::Symlink { target: target.clone() },
            Kind::File(facts) => match self.walk.open_current() {
                Ok((file, seen)) => {
                    // What was opened counts, and not what was there when it was listed.
                    *facts = seen;
                    let FileFacts { bytes, modified, executable, .. } = seen;
                    What::File { file, bytes, modified, executable }
                }
                Err(why) => {
                    self.skipped.push(Skipped::new(&path, why));
                    return Ok(None);
                }
            },
        };
        self.tally.add(&path, &kind, &self.bounds)?;
        self.manifest.insert(path.clone(), kind);
        Ok(Some(Opened { path, what }))
    }
}

impl Iterator for Handover {
    type Item = Result<Opened, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.state != State::Going {
            return None;
        }
        let step = self.step();
        match &step {
            Ok(Some(_)) => {}
            Ok(None) => self.state = State::Through,
            Err(_) => self.state = State::Failed,
        }
        step.transpose()
    }
}

impl Snapshot {
    /// What of the tree was handed over.
    pub fn manifest(&self) -> &BTreeMap<Relative, Kind> {
        &self.manifest
    }

    /// What is in the tree and was not handed over, but for what was left out on purpose.
    pub fn skipped(&self) -> &[Skipped] {
        &self.skipped
    }
}
