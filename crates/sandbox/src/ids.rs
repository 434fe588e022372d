//! Ids of runs: each run that can have one gets a user id that nobody else has, and gives it back when
//! nothing of the run is left.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Ids that are in use are locked bytes of one file, so that all hotcell processes of a host share
/// them, and an id comes back when its last holder has ended, however it ended.
#[derive(Debug)]
pub(crate) struct IdPool {
    held: Arc<Held>,
    ids: Range<u32>,
    next: AtomicU32,
}

/// The file, and which of its bytes this process has: the kernel would lock them for it again.
#[derive(Debug)]
struct Held {
    file: File,
    offsets: Mutex<HashSet<u32>>,
}

/// An id that nobody else has.
#[derive(Debug)]
pub(crate) struct Id {
    held: Arc<Held>,
    offset: u32,
    number: u32,
}

impl IdPool {
    /// Ids that neither distributions, systemd nor /etc/subuid hand out.
    pub(crate) const USUAL: Range<u32> = 0x7100_0000..0x7101_0000;

    /// Opens a pool of these ids in a directory that only its owner can write.
    pub(crate) fn open(dir: &Path, ids: Range<u32>) -> io::Result<IdPool> {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        let flags = rustix::fs::OFlags::NOFOLLOW.bits() as i32;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(flags)
            .open(dir.join("ids"))?;
        // Somewhere else in each process, so that an id rests before it is used again.
        let start = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic).tv_nsec as u32;
        let held = Arc::new(Held { file, offsets: Mutex::default() });
        Ok(IdPool { held, ids, next: AtomicU32::new(start) })
    }

    /// What must be held by everything that outlives this process and may still use an id.
    pub(crate) fn lock(&self) -> BorrowedFd<'_> {
        self.held.file.as_fd()
    }

    /// Reserves the next free id; `None` when all are in use.
    pub(crate) fn reserve(&self) -> io::Result<Option<Id>> {
        let count = self.ids.end.saturating_sub(self.ids.start).max(1);
        for _ in 0..count {
            let offset = self.next.fetch_add(1, Ordering::Relaxed) % count;
            if self.held.take(offset)? {
                let number = self.ids.start + offset;
                return Ok(Some(Id { held: Arc::clone(&self.held), offset, number }));
            }
        }
        Ok(None)
    }
}

impl Held {
    fn take(&self, offset: u32) -> io::Result<bool> {
        let mut offsets = self.offsets.lock().unwrap_or_else(PoisonError::into_inner);
        if offsets.contains(&offset) || !hotcell_jail::lock_byte(&self.file, offset)? {
            return Ok(false);
        }
        Ok(offsets.insert(offset))
    }

    fn give_back(&self, offset: u32) -> io::Result<()> {
        let mut offsets = self.offsets.lock().unwrap_or_else(PoisonError::into_inner);
        offsets.remove(&offset);
        Ok(hotcell_jail::unlock_byte(&self.file, offset)?)
    }
}

impl Id {
    pub(crate) fn number(&self) -> u32 {
        self.number
    }
}

impl Drop for Id {
    fn drop(&mut self) {
        if let Err(error) = self.held.give_back(self.offset) {
            debug_assert!(false, "an id cannot be given back: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_belongs_to_one_holder_at_a_time_across_pools_and_within_one() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (
            IdPool::open(dir.path(), 500..600).unwrap(),
            IdPool::open(dir.path(), 500..600).unwrap(),
        );
        one.next.store(7, Ordering::Relaxed);
        two.next.store(7, Ordering::Relaxed);
        let first = one.reserve().unwrap().unwrap();
        assert_eq!(first.number(), 507);
        assert_eq!(two.reserve().unwrap().unwrap().number(), 508);
        one.next.store(7, Ordering::Relaxed);
        assert_ne!(one.reserve().unwrap().unwrap().number(), first.number());
        drop(first);
        two.next.store(7, Ordering::Relaxed);
        assert_eq!(two.reserve().unwrap().unwrap().number(), 507);
    }
}
