//! Makes a changeset so. Everything is judged and compared first; then the new contents are written aside,
//! and each file is put in its place by one atomic rename that keeps what was there until all is done.

mod check;

use std::collections::BTreeSet;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, Dir, FlockOperation, Gid, Mode, OFlags, RenameFlags, Stat, Uid};
use rustix::io::Errno;
use rustix::rand::GetRandomFlags;

use self::check::{Step, check};
use crate::error::name;
use crate::held::{self, Sort};
use crate::{Change, ChangeKind, Changeset, Digest, FileFacts, Relative, Root, Unfit};

/// A directory of this name in the root has what is being applied. One that is there while nobody applies
/// anything was left by a process that was killed, and goes with the next changeset.
const STAGE: &str = ".hotcell-apply-";
/// What it is called when not even going back worked: nobody removes it.
const KEPT: &str = ".hotcell-kept-";
/// How long [`apply`] waits for others that apply changes to the same directory.
const PATIENCE: Duration = Duration::from_secs(2);
/// Most conflicts that are named.
const MOST_CONFLICTS: usize = 100;

/// What became of a changeset.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Applied {
    pub changed: Vec<Relative>,
    /// What was already as the changeset wants it.
    pub already: Vec<Relative>,
    /// A directory in the root that could not be removed.
    pub left_behind: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    #[error("{0}; nothing was applied")]
    Untouched(Cause),
    #[error(
        "{cause}; and {} of {} changes could not be taken back: what was there is in `{kept}`",
        applied.len(), applied.len() + not_applied.len()
    )]
    Partly {
        cause: Cause,
        /// These could not be taken back.
        applied: Vec<Relative>,
        /// These are as they were.
        not_applied: Vec<Relative>,
        kept: String,
    },
}

/// Why a changeset was not applied.
#[derive(Debug, thiserror::Error)]
pub enum Cause {
    #[error("`{}` may not be changed: {why}", name(Some(path)))]
    Refused { path: Relative, why: Refused },
    #[error("{}", Listed(.0))]
    Conflicts(Vec<Conflict>),
    #[error("another process applies changes to this directory")]
    Busy,
    #[error("`{path}` cannot be changed: {source}")]
    Io { path: String, source: io::Error },
}

/// What the judge of a change says against it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refused(pub String);

/// A path that is not as the changeset found it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    pub path: Relative,
    pub why: String,
}

/// Applies a changeset.
///
/// `allow` is asked for each change before anything else happens. Then each path is compared with the
/// changeset: what already is as it should be is left alone, so that applying twice changes nothing and
/// applying again after a crash completes the rest; any other difference is a conflict. Either all changes
/// are made or, when one fails, those before it are taken back. Whenever the process ends, each file is
/// wholly old or wholly new; when this returns, the new ones are on stable storage.
///
/// A file that is replaced keeps its permissions and, where hotcell may give files away, its owner; a new
/// file belongs to the owner of its directory. No file gets more than the right of execution from a
/// changeset. Directories are made as needed, and those that a deletion leaves empty are removed.
///
/// The file system must be able to exchange two files in one step, as ext4, XFS, btrfs, overlayfs and tmpfs
/// are; on one that is not, nothing is applied.
pub fn apply<R: Read>(
    root: &Root,
    changeset: &Changeset,
    content: impl FnMut(&Digest) -> io::Result<R>,
    allow: impl FnMut(&Change) -> Result<(), Refused>,
) -> Result<Applied, ApplyError> {
    apply_within(PATIENCE, root, changeset, content, allow)
}

/// The same, waiting so long for others that apply changes to the same directory.
pub fn apply_within<R: Read>(
    patience: Duration,
    root: &Root,
    changeset: &Changeset,
    mut content: impl FnMut(&Digest) -> io::Result<R>,
    mut allow: impl FnMut(&Change) -> Result<(), Refused>,
) -> Result<Applied, ApplyError> {
    for change in changeset.changes() {
        let refused = |why| Cause::Refused { path: change.path.clone(), why };
        allow(change).map_err(refused).map_err(ApplyError::Untouched)?;
    }
    // Held to the end.
    let _lock = lock(root, patience).map_err(ApplyError::Untouched)?;
    sweep(root).map_err(|error| ApplyError::Untouched(io_cause(None, error)))?;
    let (steps, already) = check(root, changeset).map_err(ApplyError::Untouched)?;
    if steps.is_empty() {
        return Ok(Applied { already, ..Applied::default() });
    }
    let mut applying = Applying::begin(root).map_err(ApplyError::Untouched)?;
    match applying.all(&steps, &mut content) {
        Ok(()) => {
            let changed = steps.iter().map(|step| step.change.path.clone()).collect();
            Ok(Applied { changed, already, left_behind: applying.remove_stage() })
        }
        Err(cause) => Err(applying.take_back(&steps, cause)),
    }
}

/// Whether a path is where changes are kept while they are applied.
pub(crate) fn is_reserved(path: &Relative) -> bool {
    path.parts().next().is_some_and(|first| first.starts_with(STAGE) || first.starts_with(KEPT))
}

/// One process at a time applies changes; the kernel frees the lock of one that is killed. A process that
/// this one forked meanwhile has it as well, until it executes something: that is waited for.
fn lock(root: &Root, patience: Duration) -> Result<OwnedFd, Cause> {
    const AGAIN: Duration = Duration::from_millis(5);
    let dir =
        held::open_directory(root, ".").map_err(|why| io_cause(None, io::Error::other(why)))?;
    let deadline = Instant::now() + patience;
    loop {
        match rustix::fs::flock(&dir, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(dir),
            Err(Errno::WOULDBLOCK) if Instant::now() >= deadline => return Err(Cause::Busy),
            Err(Errno::WOULDBLOCK) => std::thread::sleep(AGAIN),
            Err(errno) => return Err(io_cause(None, errno.into())),
        }
    }
}

fn io_cause(path: Option<&Relative>, source: io::Error) -> Cause {
    Cause::Io { path: name(path), source }
}

/// What went wrong with a step.
#[derive(Debug)]
enum Trouble {
    Conflict(String),
    Io(io::Error),
}

impl Trouble {
    fn with(self, path: &Relative) -> Cause {
        match self {
            Trouble::Conflict(why) => Cause::Conflicts(vec![Conflict { path: path.clone(), why }]),
            Trouble::Io(error) => io_cause(Some(path), error),
        }
    }
}

impl From<Unfit> for Trouble {
    fn from(why: Unfit) -> Trouble {
        match why {
            Unfit::System(kind) => Trouble::Io(kind.into()),
            other => Trouble::Conflict(other.to_string()),
        }
    }
}

impl From<Errno> for Trouble {
    fn from(errno: Errno) -> Trouble {
        match errno {
            Errno::EXIST => Trouble::Conflict("something else is there now".into()),
            Errno::NOENT => Trouble::Conflict("it is not there any more".into()),
            other => Trouble::Io(other.into()),
        }
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Trouble {
        Trouble::Io(error)
    }
}

/// What was done, to be undone in case.
#[derive(Debug)]
enum Done {
    MadeDirectory(Relative),
    RemovedDirectory(Relative, Stat),
    Placed { path: Relative, slot: String },
    Exchanged { path: Relative, slot: String },
    TakenAway { path: Relative, slot: String },
}

#[derive(Debug)]
struct Applying<'a> {
    root: &'a Root,
    stage: OwnedFd,
    stage_name: String,
    done: Vec<Done>,
}

impl<'a> Applying<'a> {
    fn begin(root: &'a Root) -> Result<Applying<'a>, Cause> {
        let make = || -> io::Result<(OwnedFd, String)> {
            let name = random_name(STAGE)?;
            rustix::fs::mkdirat(root, &name, Mode::RWXU)?;
            Ok((held::open_directory(root, &name).map_err(io::Error::other)?, name))
        };
        let (stage, stage_name) = make().map_err(|error| io_cause(None, error))?;
        Ok(Applying { root, stage, stage_name, done: Vec::new() })
    }

    fn all<R: Read>(
        &mut self,
        steps: &[Step<'_>],
        content: &mut impl FnMut(&Digest) -> io::Result<R>,
    ) -> Result<(), Cause> {
        for step in steps {
            let written = self.write(step, content);
            written.map_err(|error| io_cause(Some(&step.change.path), error))?;
        }
        for step in steps {
            self.make(step).map_err(|trouble| trouble.with(&step.change.path))?;
        }
        let paths = steps.iter().map(|step| &step.change.path);
        let directories: BTreeSet<Relative> = paths.flat_map(Relative::ancestors).collect();
        for directory in directories.iter().map(Some).chain([None]) {
            self.sync(directory).map_err(|error| io_cause(directory, error))?;
        }
        Ok(())
    }

    /// Writes the content of a step aside, checked while it is written, and onto stable storage.
    fn write<R: Read>(
        &self,
        step: &Step<'_>,
        content: &mut impl FnMut(&Digest) -> io::Result<R>,
    ) -> io::Result<()> {
        let Change { path, after: Some(after), bytes, executable, .. } = step.change else {
            return Ok(());
        };
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let usual = Mode::from_raw_mode(if *executable { 0o755 } else { 0o644 });
        let mut file = File::from(rustix::fs::openat(&self.stage, &step.slot, flags, usual)?);
        // One byte more than it should have shows that it has more.
        let source = content(after)?.take(bytes.saturating_add(1));
        if Digest::copy(source, &mut file)? != (*after, *bytes) {
            return Err(io::Error::other("its content is not what the changeset says"));
        }
        match &step.old {
            Some(old) => {
                own_like(&file, old)?;
                rustix::fs::fchmod(&file, mode_like(old, *executable))?;
            }
            None => own_like(&file, &self.directory_above(path)?)?,
        }
        file.sync_all()
    }

    /// The nearest directory above a path that is there.
    fn directory_above(&self, path: &Relative) -> io::Result<Stat> {
        let look = |above: Relative| held::look(self.root, above.as_str()).ok();
        let is_directory = |stat: &Stat| held::sort(stat) == Ok(Sort::Directory);
        match path.ancestors().filter_map(look).map(|(_, stat)| stat).find(is_directory) {
            Some(stat) => Ok(stat),
            None => Ok(rustix::fs::fstat(self.root)?),
        }
    }

    fn make(&mut self, step: &Step<'_>) -> Result<(), Trouble> {
        let (path, slot) = (step.change.path.clone(), step.slot.clone());
        let stage = (self.stage.as_fd(), slot.as_str());
        match step.change.kind {
            ChangeKind::Added => {
                make_parents(self.root, &path, &mut self.done)?;
                let parent = parent(self.root, &path)?;
                rename(stage, (parent.as_fd(), path.name()), RenameFlags::NOREPLACE)?;
                self.done.push(Done::Placed { path, slot });
                Ok(())
            }
            ChangeKind::Modified => {
                let parent = parent(self.root, &path)?;
                rename(stage, (parent.as_fd(), path.name()), RenameFlags::EXCHANGE)?;
                self.done.push(Done::Exchanged { path, slot });
                self.is_what_was_compared(step)
            }
            ChangeKind::Deleted => {
                let parent = parent(self.root, &path)?;
                rename((parent.as_fd(), path.name()), stage, RenameFlags::NOREPLACE)?;
                self.done.push(Done::TakenAway { path, slot });
                self.is_what_was_compared(step)?;
                self.remove_empty_above(&step.change.path);
                Ok(())
            }
        }
    }

    /// Nothing that somebody else wrote since the comparison is lost: it is found here, and put back.
    fn is_what_was_compared(&self, step: &Step<'_>) -> Result<(), Trouble> {
        let (_, stat) = held::look(&self.stage, step.slot.as_str())?;
        let compared = step.old.as_ref().map(FileFacts::of);
        if held::sort(&stat) == Ok(Sort::File) && compared == Some(FileFacts::of(&stat)) {
            return Ok(());
        }
        Err(Trouble::Conflict("it was changed while the changes were applied".into()))
    }

    /// Removes directories that a deletion left empty, upwards until one is not or cannot be removed.
    fn remove_empty_above(&mut self, path: &Relative) {
        for directory in path.ancestors() {
            let Ok((_, stat)) = held::look(self.root, directory.as_str()) else { return };
            let Ok(parent) = parent(self.root, &directory) else { return };
            if rustix::fs::unlinkat(&parent, directory.name(), AtFlags::REMOVEDIR).is_err() {
                return;
            }
            self.done.push(Done::RemovedDirectory(directory, stat));
        }
    }

    fn sync(&self, directory: Option<&Relative>) -> io::Result<()> {
        match held::open_directory(self.root, directory.map_or(".", Relative::as_str)) {
            Ok(directory) => Ok(rustix::fs::fsync(&directory)?),
            // Removed, since it was empty; or somebody else did something with it.
            Err(_) => Ok(()),
        }
    }

    /// Undoes what was done, the last first.
    fn take_back(mut self, steps: &[Step<'_>], cause: Cause) -> ApplyError {
        let mut stuck = BTreeSet::new();
        while let Some(done) = self.done.pop() {
            if self.undo(&done).is_err()
                && let Done::Placed { path, .. }
                | Done::Exchanged { path, .. }
                | Done::TakenAway { path, .. } = done
            {
                stuck.insert(path);
            }
        }
        if stuck.is_empty() {
            // What cannot be removed goes with the next changeset.
            self.remove_stage();
            return ApplyError::Untouched(cause);
        }
        let paths = steps.iter().map(|step| step.change.path.clone());
        let (applied, not_applied) = paths.partition(|path| stuck.contains(path));
        ApplyError::Partly { cause, applied, not_applied, kept: self.keep_stage() }
    }

    fn undo(&self, done: &Done) -> Result<(), Trouble> {
        let place = |path: &Relative| parent(self.root, path);
        match done {
            Done::MadeDirectory(path) => {
                rustix::fs::unlinkat(place(path)?, path.name(), AtFlags::REMOVEDIR)?;
            }
            Done::RemovedDirectory(path, stat) => {
                let parent = place(path)?;
                rustix::fs::mkdirat(&parent, path.name(), Mode::RWXU)?;
                let directory = held::open_directory(&parent, path.name())?;
                own_like(&directory, stat)?;
                rustix::fs::fchmod(&directory, Mode::from_raw_mode(stat.st_mode & 0o7777))?;
            }
            Done::Placed { path, slot } => {
                let (parent, stage) = (place(path)?, (self.stage.as_fd(), slot.as_str()));
                rename((parent.as_fd(), path.name()), stage, RenameFlags::NOREPLACE)?;
            }
            Done::Exchanged { path, slot } => {
                let (parent, stage) = (place(path)?, (self.stage.as_fd(), slot.as_str()));
                rename(stage, (parent.as_fd(), path.name()), RenameFlags::EXCHANGE)?;
            }
            Done::TakenAway { path, slot } => {
                let (parent, stage) = (place(path)?, (self.stage.as_fd(), slot.as_str()));
                rename(stage, (parent.as_fd(), path.name()), RenameFlags::NOREPLACE)?;
            }
        }
        Ok(())
    }

    /// Removes what was aside. Its name if that did not work.
    fn remove_stage(self) -> Option<String> {
        remove_stage(self.root, &self.stage_name).err().map(|_| self.stage_name)
    }

    /// Gives what was aside a name under which nobody removes it.
    fn keep_stage(self) -> String {
        let kept = || -> io::Result<String> {
            let kept = random_name(KEPT)?;
            let (root, flags) = (self.root, RenameFlags::NOREPLACE);
            rustix::fs::renameat_with(root, &self.stage_name, root, &kept, flags)?;
            Ok(kept)
        };
        kept().unwrap_or(self.stage_name)
    }
}

/// The directory that a path is in.
fn parent(root: &Root, path: &Relative) -> Result<OwnedFd, Unfit> {
    let parent = path.parent();
    held::open_directory(root, parent.as_ref().map_or(".", Relative::as_str))
}

/// Makes the directories above a path that are missing.
fn make_parents(root: &Root, path: &Relative, done: &mut Vec<Done>) -> Result<(), Trouble> {
    let mut missing = Vec::new();
    for above in path.ancestors() {
        match held::open_directory(root, above.as_str()) {
            Ok(_) => break,
            Err(Unfit::Missing) => missing.push(above),
            Err(why) => return Err(why.into()),
        }
    }
    for directory in missing.into_iter().rev() {
        let parent = parent(root, &directory)?;
        rustix::fs::mkdirat(&parent, directory.name(), Mode::RWXU | Mode::RWXG | Mode::RWXO)?;
        done.push(Done::MadeDirectory(directory.clone()));
        let made = held::open_directory(&parent, directory.name())?;
        own_like(&made, &rustix::fs::fstat(&parent)?)?;
    }
    Ok(())
}

/// Renames without following anything.
fn rename(
    (from, old): (impl AsFd, &str),
    (to, new): (impl AsFd, &str),
    flags: RenameFlags,
) -> Result<(), Trouble> {
    match rustix::fs::renameat_with(from, old, to, new, flags) {
        Err(Errno::INVAL | Errno::NOSYS) => Err(Trouble::Io(io::Error::new(
            io::ErrorKind::Unsupported,
            "this file system cannot exchange files in one step",
        ))),
        other => Ok(other?),
    }
}

/// Gives something new to whom the old one belongs, where that is allowed: what an ordinary user makes
/// stays the user's, as with any editor.
fn own_like(new: impl AsFd, old: &Stat) -> io::Result<()> {
    let is = rustix::fs::fstat(&new)?;
    if (is.st_uid, is.st_gid) == (old.st_uid, old.st_gid) {
        return Ok(());
    }
    let (uid, gid) = (Uid::from_raw(old.st_uid), Gid::from_raw(old.st_gid));
    match rustix::fs::fchown(new, Some(uid), Some(gid)) {
        Err(Errno::PERM) => Ok(()),
        other => Ok(other?),
    }
}

/// The permissions of a file that takes the place of another; whoever may read it may execute it as well,
/// if anybody may.
fn mode_like(old: &Stat, executable: bool) -> Mode {
    let mode = old.st_mode & 0o666;
    let execute = if executable { (mode & 0o444) >> 2 | 0o100 } else { 0 };
    Mode::from_raw_mode(mode | execute)
}

fn random_name(prefix: &str) -> io::Result<String> {
    let mut random = [0; 8];
    rustix::rand::getrandom(&mut random, GetRandomFlags::empty())?;
    Ok(format!("{prefix}{:016x}", u64::from_ne_bytes(random)))
}

/// Removes what killed processes left aside. Called with the lock.
fn sweep(root: &Root) -> io::Result<()> {
    let dir = held::open_directory(root, ".").map_err(io::Error::other)?;
    for entry in Dir::read_from(&dir)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy();
        if name.starts_with(STAGE) {
            // Whatever else has such a name is in nobody's way.
            remove_stage(root, &name).ok();
        }
    }
    Ok(())
}

/// Removes a stage: files whose names are numbers, and then the directory if nothing else was in it.
fn remove_stage(root: &Root, name: &str) -> io::Result<()> {
    let stage = held::open_directory(root, name).map_err(io::Error::other)?;
    for entry in Dir::read_from(&stage)? {
        let entry = entry?;
        if entry.file_name().to_bytes().iter().all(u8::is_ascii_digit) {
            rustix::fs::unlinkat(&stage, entry.file_name(), AtFlags::empty())?;
        }
    }
    Ok(rustix::fs::unlinkat(root, name, AtFlags::REMOVEDIR)?)
}

/// Conflicts in a sentence.
struct Listed<'a>(&'a [Conflict]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, conflict) in self.0.iter().take(MOST_CONFLICTS).enumerate() {
            let comma = if number == 0 { "" } else { "; " };
            write!(f, "{comma}`{}`: {}", name(Some(&conflict.path)), conflict.why)?;
        }
        match self.0.len().saturating_sub(MOST_CONFLICTS) {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_cannot_be_taken_back_is_named_and_what_was_there_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir(at("d")).unwrap();
        for name in ["d/x", "y", "z"] {
            fs::write(at(name), "old").unwrap();
        }
        let change = |path: &str| Change {
            path: Relative::parse(path).unwrap(),
            kind: ChangeKind::Modified,
            before: Some(Digest::of(b"old")),
            after: Some(Digest::of(b"new")),
            bytes: 3,
            executable: false,
        };
        let changes = ["d/x", "y", "z"].map(change).into();
        let changeset = Changeset::new(changes, Vec::new()).unwrap();
        let root = Root::open(dir.path()).unwrap();
        let (steps, _) = check(&root, &changeset).unwrap();
        let mut applying = Applying::begin(&root).unwrap();
        for step in &steps {
            applying.write(step, &mut |_| Ok(&b"new"[..])).unwrap();
        }
        for step in steps.iter().take(2) {
            applying.make(step).unwrap();
        }
        fs::rename(at("d"), at("elsewhere")).unwrap();
        let error = applying.take_back(&steps, Cause::Busy);
        let ApplyError::Partly { applied, not_applied, kept, .. } = &error else {
            panic!("{error:?}");
        };
        let names = |paths: &[Relative]| paths.iter().map(Relative::to_string).collect::<Vec<_>>();
        assert_eq!(
            (names(applied), names(not_applied)),
            (vec!["d/x".into()], vec!["y".into(), "z".into()])
        );
        assert!(error.to_string().contains("1 of 3 changes could not be taken back"), "{error}");
        assert_eq!(fs::read(at("y")).unwrap(), b"old");
        assert_eq!(fs::read(at("elsewhere/x")).unwrap(), b"new");
        assert_eq!(fs::read(at(kept).join("0")).unwrap(), b"old");
        // The next changeset removes what killed processes left, and not this.
        sweep(&root).unwrap();
        assert_eq!(fs::read(at(kept).join("0")).unwrap(), b"old");
    }
}
