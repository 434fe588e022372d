//! The second wall: which paths of the new root may be read, written and executed.

use core::ffi::CStr;

use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::fail::{At, Done, failed};
use crate::place;
use crate::sys::{self, RulesetAttr};
use crate::wire::{Entry, Step};

const EXECUTE: u64 = 1 << 0;
const WRITE_FILE: u64 = 1 << 1;
const READ_FILE: u64 = 1 << 2;
const READ_DIR: u64 = 1 << 3;
const MAKE_CHAR: u64 = 1 << 6;
const MAKE_BLOCK: u64 = 1 << 11;
const REFER: u64 = 1 << 13;
const TRUNCATE: u64 = 1 << 14;
const IOCTL_DEV: u64 = 1 << 15;
/// The rights of ABI 1.
const FIRST_ABI: u64 = (1 << 13) - 1;

/// TCP bind and connect.
const ALL_NET: u64 = 0b11;
/// Abstract sockets and signals.
const ALL_SCOPES: u64 = 0b11;

/// Most rules of a tree.
const MAX_RULES: usize = 128;

/// The rules that are the same for every run, with their paths already opened. The kernel looks only
/// at what lies above a mount, never at the directory below it, so that the run's own places, being
/// new mounts, need rules of their own, made by the run.
#[derive(Debug)]
pub(crate) struct Rules {
    pub(crate) abi: u32,
    list: [Option<(OwnedFd, u64)>; MAX_RULES],
    count: usize,
}

/// Everything that this kernel's Landlock can handle is handled: what has no rule is refused.
fn handled(abi: u32, loopback: bool) -> RulesetAttr {
    let mut access_fs = FIRST_ABI;
    for (since, right) in [(2, REFER), (3, TRUNCATE), (5, IOCTL_DEV)] {
        if abi >= since {
            access_fs |= right;
        }
    }
    let access_net = if abi >= 4 && !loopback { ALL_NET } else { 0 };
    let scoped = if abi >= 6 { ALL_SCOPES } else { 0 };
    RulesetAttr { access_fs, access_net, scoped }
}

/// What a run may do in its own places: everything but make and drive devices.
fn writable(abi: u32) -> u64 {
    handled(abi, false).access_fs & !(MAKE_CHAR | MAKE_BLOCK | IOCTL_DEV)
}

impl Rules {
    /// Opens the paths of the tree, which is the root by now; or, without one, those of the host.
    pub(crate) fn of<'a>(entries: impl Iterator<Item = Entry<'a>>, bare: bool) -> Done<Rules> {
        let abi =
            sys::landlock_abi().ok_or_else(|| failed(Step::LandlockRuleset, Errno::NOSYS, 0))?;
        let mut rules = Rules { abi, list: [const { None }; MAX_RULES], count: 0 };
        if !bare {
            // Listing is harmless: everything in the tree was put there by us.
            rules.add(c"/", READ_DIR)?;
        }
        for entry in entries {
            match entry {
                Entry::Dir(_) | Entry::Link { .. } => {}
                Entry::File { at, .. } => rules.add(at, READ_FILE)?,
                Entry::BindDir { at, .. } => rules.add(at, EXECUTE | READ_FILE | READ_DIR)?,
                Entry::BindFile { at, .. } => rules.add(at, EXECUTE | READ_FILE)?,
                Entry::Device { at, .. } => rules.add(at, READ_FILE | WRITE_FILE | TRUNCATE)?,
                #[cfg(feature = "holes")]
                Entry::Hole { .. } => {}
            }
        }
        Ok(rules)
    }

    fn add(&mut self, path: &CStr, access: u64) -> Done {
        let fd = open(path).at(Step::LandlockRuleset)?;
        let access = access & handled(self.abi, false).access_fs;
        let place = self.list.get_mut(self.count);
        *place.ok_or_else(|| failed(Step::LandlockRuleset, Errno::TOOBIG, MAX_RULES))? =
            Some((fd, access));
        self.count += 1;
        Ok(())
    }

    /// A ruleset for one run; the run adds its own places.
    pub(crate) fn ruleset(&self, loopback: bool) -> Done<OwnedFd> {
        let ruleset =
            sys::landlock_ruleset(&handled(self.abi, loopback)).at(Step::LandlockRuleset)?;
        for (fd, access) in self.list.iter().flatten() {
            sys::landlock_allow(&ruleset, fd, *access).at(Step::LandlockRuleset)?;
        }
        Ok(ruleset)
    }
}

/// Adds the run's own places in its file system.
pub(crate) fn allow_places(ruleset: BorrowedFd<'_>, abi: u32, cell: BorrowedFd<'_>) -> Done {
    for name in place::NAMES {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(cell, name, flags, Mode::empty()).at(Step::Landlock)?;
        sys::landlock_allow(ruleset, fd, writable(abi)).at(Step::Landlock)?;
    }
    Ok(())
}

/// Adds the run's own /proc.
pub(crate) fn allow_proc(ruleset: BorrowedFd<'_>) -> Done {
    let fd = open(place::PROC).at(Step::Landlock)?;
    sys::landlock_allow(ruleset, fd, READ_FILE | READ_DIR).at(Step::Landlock)
}

fn open(path: &CStr) -> rustix::io::Result<OwnedFd> {
    rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_abi_handles_all_that_it_knows_and_nothing_that_it_does_not() {
        let bits = |abi, loopback| {
            let attr = handled(abi, loopback);
            (attr.access_fs.count_ones(), attr.access_net, attr.scoped)
        };
        assert_eq!(bits(1, false), (13, 0, 0));
        assert_eq!(bits(2, false), (14, 0, 0));
        assert_eq!(bits(3, false), (15, 0, 0));
        assert_eq!(bits(4, false), (15, 0b11, 0));
        assert_eq!(bits(5, false), (16, 0b11, 0));
        assert_eq!(bits(6, false), (16, 0b11, 0b11));
        assert_eq!(bits(6, true), (16, 0, 0b11));
    }

    #[test]
    fn nobody_makes_or_drives_devices_in_writable_places() {
        for abi in 1..10 {
            assert_eq!(writable(abi) & (MAKE_CHAR | MAKE_BLOCK | IOCTL_DEV), 0);
        }
    }
}
