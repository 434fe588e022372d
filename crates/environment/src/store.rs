//! Where trees lie: `envs/DIGEST` below a home, and what is being made or removed beside them under names
//! that begin with a dot. Locks on the directories themselves tell who uses what; the kernel drops them
//! however a process ends.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use hotcell_types::hex;
use rustix::fs::{CWD, FlockOperation, RenameFlags, flock, renameat_with};
use rustix::io::Errno;

use crate::Digest;

/// Below a home.
const DIRECTORY: &str = "envs";
/// What is being made.
const NEW: &str = ".new-";
/// What is being removed.
const GONE: &str = ".gone-";
/// How often something is tried again that somebody else removed meanwhile.
const TRIES: usize = 8;
/// Deepest directory that is opened up to be removed.
const MOST_DEPTH: usize = 256;

#[derive(Debug, Clone)]
pub struct Store {
    directory: PathBuf,
}

/// A place to make a tree in, for one process. Dropping it removes it.
#[derive(Debug)]
pub struct Staging {
    path: PathBuf,
    #[expect(dead_code, reason = "locked for as long as it is open")]
    lock: File,
}

/// A tree that is not removed for as long as this is there.
#[derive(Debug)]
pub struct Held {
    path: PathBuf,
    dir: File,
}

/// A tree in its place.
#[derive(Debug)]
pub struct Settled {
    pub held: Held,
    /// It was not there before.
    pub is_new: bool,
}

impl Held {
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn dir(&self) -> &File {
        &self.dir
    }
}

impl Staging {
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // What cannot be removed now is swept by the next process.
        remove_tree(&self.path).ok();
    }
}

impl Store {
    pub fn at(home: &Path) -> Store {
        Store { directory: home.join(DIRECTORY) }
    }

    fn path_of(&self, digest: &Digest) -> PathBuf {
        self.directory.join(digest.to_string())
    }

    pub fn stage(&self) -> io::Result<Staging> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)?;
        for _ in 0..TRIES {
            let path = self.beside(NEW)?;
            DirBuilder::new().mode(0o755).create(&path)?;
            let lock = File::open(&path)?;
            // Until it was locked it looked like one that a dead process left.
            if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() && is_at(&lock, &path)
            {
                return Ok(Staging { path, lock });
            }
        }
        Err(io::Error::other("what is made is swept away at once"))
    }

    /// A name that nothing has.
    fn beside(&self, prefix: &str) -> io::Result<PathBuf> {
        let mut chance = [0; 8];
        rustix::rand::getrandom(&mut chance, rustix::rand::GetRandomFlags::empty())?;
        Ok(self.directory.join(format!("{prefix}{}", hex::text(&chance))))
    }

    /// Keeps a tree from being removed. `None` if it is not there.
    pub fn hold(&self, digest: &Digest) -> io::Result<Option<Held>> {
        let path = self.path_of(digest);
        for _ in 0..TRIES {
            let dir = match File::open(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                other => other?,
            };
            // Whoever has it alone is removing it.
            if flock(&dir, FlockOperation::LockShared).is_ok() && is_at(&dir, &path) {
                return Ok(Some(Held { path, dir }));
            }
        }
        Ok(None)
    }

    /// Puts a tree in its place, or finds it there. It is on the disk before this returns, and held.
    pub fn settle(&self, tree: &Path, digest: &Digest) -> io::Result<Settled> {
        let place = self.path_of(digest);
        let dir = File::open(tree)?;
        flock(&dir, FlockOperation::NonBlockingLockShared)?;
        for _ in 0..TRIES {
            match renameat_with(CWD, tree, CWD, &place, RenameFlags::NOREPLACE) {
                Ok(()) => {
                    // Only now: what cannot be written cannot be moved either.
                    dir.set_permissions(Permissions::from_mode(0o555))?;
                    let held = Held { path: place, dir };
                    rustix::fs::syncfs(&held.dir)?;
                    File::open(&self.directory)?.sync_all()?;
                    return Ok(Settled { held, is_new: true });
                }
                Err(Errno::EXIST) => {
                    if let Some(held) = self.hold(digest)? {
                        return Ok(Settled { held, is_new: false });
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(io::Error::other("the same tree is removed again and again"))
    }

    /// Removes a tree, unless somebody uses it. Says whether it is gone. `is_wanted` is asked while nobody
    /// can begin to use it.
    pub fn remove(&self, digest: &Digest, is_wanted: &dyn Fn() -> bool) -> io::Result<bool> {
        let path = self.path_of(digest);
        let dir = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
            other => other?,
        };
        if flock(&dir, FlockOperation::NonBlockingLockExclusive).is_err() || is_wanted() {
            return Ok(false);
        }
        if !is_at(&dir, &path) {
            return Ok(true);
        }
        dir.set_permissions(Permissions::from_mode(0o700))?;
        let gone = self.beside(GONE)?;
        fs::rename(&path, &gone)?;
        remove_tree(&gone)?;
        Ok(true)
    }

    /// Removes what dead processes left: what they were making or removing, and trees that never got a name.
    /// Where there are no environments this costs one look.
    pub fn sweep(&self, is_wanted: &dyn Fn(&Digest) -> bool) -> io::Result<()> {
        let entries = match fs::read_dir(&self.directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other?,
        };
        for entry in entries {
            let name = entry?.file_name();
            let Some(name) = name.to_str() else { continue };
            let path = self.directory.join(name);
            if name.starts_with(NEW) || name.starts_with(GONE) {
                let Ok(lock) = File::open(&path) else { continue };
                if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
                    remove_tree(&path)?;
                }
            } else if let Ok(digest) = name.parse::<Digest>()
                && !is_wanted(&digest)
            {
                self.remove(&digest, &|| is_wanted(&digest))?;
            }
        }
        Ok(())
    }
}

fn is_at(dir: &File, path: &Path) -> bool {
    let of = |found: fs::Metadata| (found.dev(), found.ino());
    match (dir.metadata(), fs::symlink_metadata(path)) {
        (Ok(held), Ok(there)) => of(held) == of(there),
        _ => false,
    }
}

/// Removes a tree whose directories cannot be written.
fn remove_tree(path: &Path) -> io::Result<()> {
    open_up(path, 0)?;
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn open_up(path: &Path, depth: usize) -> io::Result<()> {
    let found = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    if !found.is_dir() || depth > MOST_DEPTH {
        return Ok(());
    }
    if found.mode() & 0o700 != 0o700 {
        fs::set_permissions(path, Permissions::from_mode(0o700))?;
    }
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            open_up(&entry.path(), depth + 1)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct World {
        home: tempfile::TempDir,
        store: Store,
    }

    fn world() -> World {
        let home = tempfile::tempdir().unwrap();
        let store = Store::at(home.path());
        World { home, store }
    }

    impl World {
        fn names(&self) -> Vec<String> {
            let all = fs::read_dir(self.home.path().join("envs")).into_iter().flatten();
            let mut all: Vec<String> =
                all.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            all.sort();
            all
        }

        fn tree(&self, staging: &Staging) -> PathBuf {
            let tree = staging.path().join("tree");
            fs::create_dir_all(tree.join("a")).unwrap();
            fs::write(tree.join("a/b"), "x").unwrap();
            fs::set_permissions(tree.join("a"), Permissions::from_mode(0o555)).unwrap();
            tree
        }

        fn settled(&self) -> (Digest, Settled) {
            let (staging, digest) = (self.store.stage().unwrap(), Digest::of(b"x"));
            let settled = self.store.settle(&self.tree(&staging), &digest).unwrap();
            (digest, settled)
        }
    }

    #[test]
    fn a_tree_is_settled_once_and_shared() {
        let world = world();
        let (digest, first) = world.settled();
        let (_, second) = world.settled();
        assert_eq!((first.is_new, second.is_new), (true, false));
        assert_eq!(first.held.path(), second.held.path());
        assert_eq!(world.names(), [digest.to_string()], "and nothing else is left");
        let mode = fs::metadata(first.held.path()).unwrap().mode();
        assert_eq!(mode & 0o777, 0o555);
    }

    #[test]
    fn what_somebody_holds_or_wants_is_not_removed() {
        let world = world();
        let (digest, settled) = world.settled();
        assert!(!world.store.remove(&digest, &|| false).unwrap(), "it is held");
        world.store.sweep(&|_| false).unwrap();
        assert_eq!(world.names().len(), 1);
        drop(settled);
        assert!(!world.store.remove(&digest, &|| true).unwrap(), "it is wanted");
        assert!(world.store.hold(&digest).unwrap().is_some());
        assert!(world.store.remove(&digest, &|| false).unwrap());
        assert!(world.store.hold(&digest).unwrap().is_none());
        assert!(world.names().is_empty());
    }

    #[test]
    fn what_dead_processes_left_is_swept_and_what_living_ones_make_is_not() {
        let world = world();
        let (digest, settled) = world.settled();
        drop(settled);
        let alive = world.store.stage().unwrap();
        for name in [".new-dead", ".gone-dead"] {
            let path = world.home.path().join("envs").join(name).join("tree/deep");
            fs::create_dir_all(&path).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o555)).unwrap();
        }
        world.store.sweep(&|found| *found == digest).unwrap();
        let own = alive.path().file_name().unwrap().to_str().unwrap().to_owned();
        assert_eq!(world.names(), [own, digest.to_string()]);
        world.store.sweep(&|_| false).unwrap();
        assert_eq!(world.names().len(), 1, "a tree without a name goes as well");
        drop(alive);
        assert!(world.names().is_empty());
        let nothing = tempfile::tempdir().unwrap();
        Store::at(nothing.path()).sweep(&|_| false).unwrap();
        assert!(!nothing.path().join("envs").exists());
    }
}
