//! Who is alive. Each process that uses a home holds a locked file for as long as it lives, and every
//! event names it; the kernel drops the lock however the process ends.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::hex::{Hex, OwnerId};

/// Below a home.
const DIRECTORY: &str = "run/owners";
/// How often a name is tried when somebody sweeps the file away before it is locked.
const TRIES: usize = 8;

/// Dropping it says that this process no longer uses the home.
#[derive(Debug)]
pub(crate) struct Owner {
    id: OwnerId,
    path: PathBuf,
    #[expect(dead_code, reason = "locked for as long as it is open")]
    lock: File,
    #[expect(dead_code, reason = "shared by all who use the home, so that it can be had alone")]
    home: File,
}

impl Owner {
    pub(crate) fn new(home: &Path) -> io::Result<Owner> {
        let directory = home.join(DIRECTORY);
        DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        let shared = File::open(&directory)?;
        flock(&shared, FlockOperation::NonBlockingLockShared)?;
        for _ in 0..TRIES {
            let id = OwnerId::random()?;
            let path = lock_path(home, id);
            let lock = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
            flock(&lock, FlockOperation::LockExclusive)?;
            // Until it was locked it looked like one that a dead process left.
            if fs::metadata(&path).is_ok_and(|found| is_same(&found, &lock)) {
                return Ok(Owner { id, path, lock, home: shared });
            }
        }
        Err(io::Error::other("its owner files are swept away as they are made"))
    }

    pub(crate) fn id(&self) -> OwnerId {
        self.id
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        // One that stays is free, and swept by the next process.
        fs::remove_file(&self.path).ok();
    }
}

fn is_same(found: &fs::Metadata, lock: &File) -> bool {
    lock.metadata().is_ok_and(|ours| (ours.dev(), ours.ino()) == (found.dev(), found.ino()))
}

fn lock_path(home: &Path, id: OwnerId) -> PathBuf {
    home.join(DIRECTORY).join(format!("{id}.lock"))
}

/// Whether the process is there. If that cannot be said, it is.
pub(crate) fn is_alive(home: &Path, id: OwnerId) -> bool {
    match File::open(lock_path(home, id)) {
        Err(error) => error.kind() != io::ErrorKind::NotFound,
        Ok(file) => flock(&file, FlockOperation::NonBlockingLockShared).is_err(),
    }
}

/// Removes what dead processes left, and says of how many. Where nobody else is, that is one look at the
/// directory.
pub(crate) fn sweep(home: &Path, own: OwnerId) -> io::Result<usize> {
    let mut dead = 0;
    for entry in fs::read_dir(home.join(DIRECTORY))? {
        let name = entry?.file_name();
        let id = name.to_str().and_then(|name| name.strip_suffix(".lock")?.parse::<Hex<16>>().ok());
        let Some(id) = id.filter(|&id| id != own) else { continue };
        let Ok(file) = File::open(lock_path(home, id)) else { continue };
        // Held while it goes, so that whoever made it just now sees that it is gone.
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            fs::remove_file(lock_path(home, id)).ok();
            dead += 1;
        }
    }
    Ok(dead)
}

/// Whether no other process uses the home. If that cannot be said, one does.
pub(crate) fn is_alone(home: &Path, own: OwnerId) -> bool {
    let Ok(entries) = fs::read_dir(home.join(DIRECTORY)) else { return false };
    entries.into_iter().all(|entry| {
        let name = entry.map(|entry| entry.file_name()).unwrap_or_default();
        let id = name.to_str().and_then(|name| name.strip_suffix(".lock")?.parse::<Hex<16>>().ok());
        id.is_some_and(|id| id == own || !is_alive(home, id))
    })
}

/// The home, alone: nobody uses it, and nobody can begin to before this is dropped.
#[derive(Debug)]
pub(crate) struct Alone {
    #[expect(dead_code, reason = "locked for as long as it is open")]
    home: File,
}

impl Alone {
    /// `None` if somebody uses it.
    pub(crate) fn with(home: &Path) -> io::Result<Option<Alone>> {
        let directory = home.join(DIRECTORY);
        DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        let home = File::open(&directory)?;
        match flock(&home, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Alone { home })),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_is_alive_until_it_is_dropped() {
        let home = tempfile::tempdir().unwrap();
        let (one, two) = (Owner::new(home.path()).unwrap(), Owner::new(home.path()).unwrap());
        let gone = one.id();
        assert!(is_alive(home.path(), one.id()) && is_alive(home.path(), two.id()));
        assert!(!is_alive(home.path(), Hex::ZERO));
        sweep(home.path(), one.id()).unwrap();
        assert!(!is_alone(home.path(), one.id()));
        assert!(Alone::with(home.path()).unwrap().is_none());
        drop(one);
        assert!(!is_alive(home.path(), gone) && is_alive(home.path(), two.id()));
        assert!(is_alone(home.path(), two.id()));
        drop(two);
        let alone = Alone::with(home.path()).unwrap().unwrap();
        assert!(Owner::new(home.path()).is_err());
        drop(alone);
        assert!(Owner::new(home.path()).is_ok());
    }

    #[test]
    fn what_a_dead_process_left_is_swept() {
        let home = tempfile::tempdir().unwrap();
        drop(Owner::new(home.path()).unwrap());
        let left = lock_path(home.path(), Hex([7; 16]));
        fs::write(&left, "").unwrap();
        assert!(!is_alive(home.path(), Hex([7; 16])));
        assert_eq!(sweep(home.path(), Hex::ZERO).unwrap(), 1);
        assert!(!left.exists());
    }
}
