//! What the guard does with the cgroups of a hotcell that was killed: everything in them is ended by
//! then, so that they only have to be thawed and removed.

use core::ffi::CStr;
use core::mem::MaybeUninit;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir};
use rustix::io::Errno;
use rustix::thread::{NanosleepRelativeResult, Timespec, nanosleep};

use crate::chan::Fds;
use crate::wire::Standing;

/// A cgroup whose last task is just ending is busy for a moment: how often it is tried again, and how
/// long after. Together two seconds; the next hotcell sweeps what is left even then.
const TRIES: u32 = 200;
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };

/// Lets frozen runs go on, so that they can die.
pub(crate) fn thaw(standing: &Standing<'_>, kept: &Fds) {
    for parent in parents(standing, kept) {
        each_child(parent, |dir, _| {
            for (file, word) in [(c"freezer.state", &b"THAWED"[..]), (c"cgroup.freeze", b"0")] {
                // One of the two is there; a hierarchy that freezes nothing has neither.
                if let Ok(file) = open(dir, file, OFlags::WRONLY) {
                    rustix::io::write(file, word).ok();
                }
            }
        });
    }
}

/// Removes hotcell's own directory with all runs in it.
pub(crate) fn remove(standing: &Standing<'_>, kept: &Fds) {
    for parent in parents(standing, kept) {
        each_child(parent, |_, name| remove_when_empty(parent, name));
        if let Ok(above) = open(parent, c"..", OFlags::PATH | OFlags::DIRECTORY) {
            remove_when_empty(above.as_fd(), standing.cgroup_name);
        }
    }
}

fn parents<'a>(
    standing: &Standing<'_>,
    kept: &'a Fds,
) -> impl Iterator<Item = BorrowedFd<'a>> + use<'a> {
    (0..standing.cgroups as usize).map_while(|index| kept.get(index).ok())
}

fn each_child(parent: BorrowedFd<'_>, mut act: impl FnMut(BorrowedFd<'_>, &CStr)) {
    let Ok(listing) = open(parent, c".", OFlags::RDONLY | OFlags::DIRECTORY) else { return };
    let mut space = [MaybeUninit::uninit(); 4096];
    let mut entries = RawDir::new(&listing, &mut space);
    while let Some(Ok(entry)) = entries.next() {
        let name = entry.file_name();
        if entry.file_type() == FileType::Directory && !matches!(name.to_bytes(), b"." | b"..") {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW;
            if let Ok(dir) = open(parent, name, flags) {
                act(dir.as_fd(), name);
            }
        }
    }
}

fn open(dir: BorrowedFd<'_>, name: &CStr, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    rustix::fs::openat(dir, name, flags | OFlags::CLOEXEC, Mode::empty())
}

fn remove_when_empty(dir: BorrowedFd<'_>, name: &CStr) {
    for _ in 0..TRIES {
        match rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR) {
            Err(Errno::BUSY) => match nanosleep(&PAUSE) {
                NanosleepRelativeResult::Ok | NanosleepRelativeResult::Interrupted(_) => {}
                NanosleepRelativeResult::Err(_) => return,
            },
            // Removed, or gone already, or not to be removed by anybody here.
            _ => return,
        }
    }
}
