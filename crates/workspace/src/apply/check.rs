//! Compares a tree with a changeset before anything in it is touched.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Bound;

use rustix::fs::Stat;

use super::{Cause, Conflict, is_reserved};
use crate::{Change, ChangeKind, Changeset, Digest, FileFacts, Relative, Root, Unfit, held};

/// Largest file that is compared with a digest.
const MOST_COMPARED: u64 = 4 * 1024 * 1024 * 1024;

/// A change that is still to be made.
#[derive(Debug)]
pub(super) struct Step<'a> {
    pub(super) change: &'a Change,
    /// Its name in the stage: of the new content first, then of what was there.
    pub(super) slot: String,
    /// What it replaces, as it was when it was compared.
    pub(super) old: Option<Stat>,
}

/// Compares the tree with the changeset: what is to be done, in the order of doing, and what is done.
pub(super) fn check<'a>(
    root: &Root,
    changeset: &'a Changeset,
) -> Result<(Vec<Step<'a>>, Vec<Relative>), Cause> {
    let (deleted, written): (Vec<&Change>, Vec<&Change>) =
        changeset.changes().iter().partition(|change| change.kind == ChangeKind::Deleted);
    let deleted: BTreeSet<&Relative> = deleted.iter().map(|change| &change.path).collect();
    let written: BTreeSet<&Relative> = written.iter().map(|change| &change.path).collect();
    let (mut steps, mut already, mut conflicts) = (Vec::new(), Vec::new(), Vec::new());
    for (number, change) in changeset.changes().iter().enumerate() {
        match state(root, change, &deleted) {
            Ok(State::AsWanted) => already.push(change.path.clone()),
            Ok(State::Due(old)) => steps.push(Step { change, slot: number.to_string(), old }),
            Err(why) => conflicts.push(Conflict { path: change.path.clone(), why }),
        }
    }
    if !conflicts.is_empty() {
        return Err(Cause::Conflicts(conflicts));
    }
    // Deletions come last, but for what stands where a file or a directory is to be.
    steps.sort_by_key(|step| match step.change.kind {
        ChangeKind::Deleted if has_above(&written, &step.change.path) => 0,
        ChangeKind::Deleted if has_below(&written, &step.change.path) => 0,
        ChangeKind::Added | ChangeKind::Modified => 1,
        ChangeKind::Deleted => 2,
    });
    Ok((steps, already))
}

fn has_above(paths: &BTreeSet<&Relative>, path: &Relative) -> bool {
    path.ancestors().any(|above| paths.contains(&above))
}

fn has_below(paths: &BTreeSet<&Relative>, path: &Relative) -> bool {
    // In the order of paths, what is in a directory comes right after it.
    let mut after = paths.range::<Relative, _>((Bound::Excluded(path), Bound::Unbounded));
    after.next().is_some_and(|next| next.ancestors().any(|above| above == *path))
}

enum State {
    AsWanted,
    /// With what is there now.
    Due(Option<Stat>),
}

fn state(root: &Root, change: &Change, deleted: &BTreeSet<&Relative>) -> Result<State, String> {
    let path = &change.path;
    if is_reserved(path) {
        return Err("its name is reserved for applying changes".into());
    }
    let there = match held::open_file(root, path.as_str()) {
        Ok((file, stat)) => Some((digest(&file, &stat)?, stat)),
        Err(Unfit::Missing) => None,
        Err(Unfit::NotDirectory | Unfit::Directory) if change.kind == ChangeKind::Deleted => None,
        // What stands there is taken away by this very changeset.
        Err(Unfit::NotDirectory) if has_above(deleted, path) => None,
        Err(Unfit::Directory) if has_below(deleted, path) => None,
        Err(why) => return Err(why.to_string()),
    };
    match (change.kind, there) {
        (ChangeKind::Deleted, None) => Ok(State::AsWanted),
        (ChangeKind::Added, None) => Ok(State::Due(None)),
        (ChangeKind::Modified, None) => Err("it is not there any more".into()),
        (_, Some((digest, stat))) => {
            let is_executable = FileFacts::of(&stat).executable;
            if change.after == Some(digest) && is_executable == change.executable {
                Ok(State::AsWanted)
            } else if change.kind == ChangeKind::Added {
                Err("it is there already, and another one".into())
            } else if change.before == Some(digest) {
                Ok(State::Due(Some(stat)))
            } else {
                Err("it was changed since the run began".into())
            }
        }
    }
}

fn digest(file: &File, stat: &Stat) -> Result<Digest, String> {
    if FileFacts::of(stat).bytes > MOST_COMPARED {
        return Err("it is too large to be compared".into());
    }
    match Digest::copy(file.take(MOST_COMPARED), &mut io::sink()) {
        Ok((digest, _)) => Ok(digest),
        Err(error) => Err(format!("it cannot be read: {error}")),
    }
}
