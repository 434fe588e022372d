//! One server for each home, as long as its process lives: a lock that the kernel gives up with it.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{FlockOperation, OFlags, flock};

/// Longest note that is read.
const MOST_NOTE: u64 = 200;

/// Held by the one server of a home.
#[derive(Debug)]
pub struct HomeLock {
    file: File,
}

/// Why it is not held.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// With what the other one wrote down of itself.
    #[error("another server has it: {0}")]
    Held(String),
    #[error(transparent)]
    Failed(#[from] io::Error),
}

impl HomeLock {
    pub fn take(home: &Path) -> Result<HomeLock, LockError> {
        let directory = home.join("run");
        DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
        let mut open = OpenOptions::new();
        open.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(flags);
        let file = open.open(directory.join("serve.lock"))?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            return Ok(HomeLock { file });
        }
        let mut note = String::new();
        file.take(MOST_NOTE).read_to_string(&mut note).ok();
        let note: String = note.chars().filter(|c| !c.is_control()).collect();
        Err(LockError::Held(note))
    }

    /// Tells whoever comes next who is here.
    pub fn note(&mut self, address: &str) -> io::Result<()> {
        self.file.set_len(0)?;
        write!(self.file, "process {}, at {address}", std::process::id())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_has_one_server_and_says_which() {
        let home = tempfile::tempdir().unwrap();
        let mut first = HomeLock::take(home.path()).unwrap();
        first.note("http://127.0.0.1:1").unwrap();
        let Err(LockError::Held(note)) = HomeLock::take(home.path()) else { panic!() };
        assert!(note.ends_with("at http://127.0.0.1:1"), "{note}");
        drop(first);
        HomeLock::take(home.path()).unwrap();
    }
}
