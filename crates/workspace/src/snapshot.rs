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
    /// Bytes so far.
    bytes: u64,
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

impl Root {
    /// Begins to hand the tree over.
    pub fn snapshot(&self, bounds: SnapshotBounds) -> Result<Handover, Error> {
        let walk = Bounds { entries: bounds.entries, ..Bounds::within(bounds.within) };
        Ok(Handover {
            root: self.clone(),
            walk: self.walk(None, walk)?,
            bounds,
            manifest: BTreeMap::new(),
            skipped: Vec::new(),
            bytes: 0,
            state: State::Going,
        })
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
        while let Some(told) = self.walk.next() {
            let entry = match told {
                Ok(entry) => entry,
                Err(skipped) => {
                    self.skipped.push(skipped);
                    continue;
                }
            };
            let is_left_out = self.bounds.except.covers(&entry.path, entry.is_directory());
            if is_left_out || is_reserved(&entry.path) {
                self.walk.pass_over();
            } else if let Some(opened) = self.open(entry)? {
                return Ok(Some(opened));
            }
        }
        match self.walk.cut() {
            None => Ok(None),
            Some(Cut::Time) => Err(TooMuch::Time.into()),
            Some(Cut::Entries | Cut::Names) => Err(self.too_many().into()),
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
        if let What::File { bytes, .. } = what {
            self.bytes = self.bytes.saturating_add(bytes);
        }
        self.manifest.insert(path.clone(), kind);
        if self.bytes > self.bounds.bytes {
            return Err(self.too_large().into());
        }
        Ok(Some(Opened { path, what }))
    }

    fn too_many(&self) -> TooMuch {
        let (heaviest, part) = self.heaviest(|_| 1);
        TooMuch::Entries { most: self.bounds.entries as u64, heaviest, part }
    }

    fn too_large(&self) -> TooMuch {
        let (heaviest, part) = self.heaviest(|kind| match kind {
            Kind::File(facts) => facts.bytes,
            _ => 0,
        });
        TooMuch::Bytes { most: self.bounds.bytes, heaviest, part }
    }

    /// The name directly below the root that has the most of something.
    fn heaviest(&self, weight: impl Fn(&Kind) -> u64) -> (String, u64) {
        let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
        for (path, kind) in &self.manifest {
            let sum = sums.entry(path.parts().next().unwrap_or_default()).or_default();
            *sum = sum.saturating_add(weight(kind));
        }
        let heaviest = sums.into_iter().max_by_key(|&(_, sum)| sum);
        heaviest.map(|(name, sum)| (name.to_owned(), sum)).unwrap_or_default()
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
