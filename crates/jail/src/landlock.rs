//! The second wall: which paths of the new root may be read, written and executed.

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags};

use crate::fail::{At, Done, failed};
use crate::place;
use crate::sys::{self, RulesetAttr};
use crate::wire::{Entry, Step};
use rustix::io::Errno;

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

/// Rulesets for the whole life of the launcher. A run's own mounts lie on directories that have a
/// rule, so nothing has to be added per run.
#[derive(Debug)]
pub(crate) struct Rulesets {
    pub(crate) abi: u32,
    pub(crate) sealed: OwnedFd,
    pub(crate) loopback: OwnedFd,
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

/// Makes the rulesets, with the new root already in place.
pub(crate) fn rulesets<'a>(entries: impl Iterator<Item = Entry<'a>> + Clone) -> Done<Rulesets> {
    let abi =
        sys::landlock_abi().ok_or_else(|| failed(Step::LandlockRuleset, Errno::NOSYS, 0))?;
    let sealed = ruleset(abi, false, entries.clone())?;
    let loopback = ruleset(abi, true, entries)?;
    Ok(Rulesets { abi, sealed, loopback })
}

fn ruleset<'a>(
    abi: u32,
    loopback: bool,
    entries: impl Iterator<Item = Entry<'a>>,
) -> Done<OwnedFd> {
    let attr = handled(abi, loopback);
    let ruleset = sys::landlock_ruleset(&attr).at(Step::LandlockRuleset)?;
    let writable = attr.access_fs & !(MAKE_CHAR | MAKE_BLOCK | IOCTL_DEV);
    // Listing is harmless: everything in the tree was put there by us.
    allow(&ruleset, c"/", READ_DIR)?;
    allow(&ruleset, place::PROC, READ_FILE | READ_DIR)?;
    for place in [place::WORK, place::TMP, place::SHM] {
        allow(&ruleset, place, writable)?;
    }
    for entry in entries {
        match entry {
            Entry::Dir(_) | Entry::Link { .. } => {}
            Entry::File { at, .. } => allow(&ruleset, at, READ_FILE)?,
            Entry::BindDir { at, .. } => allow(&ruleset, at, EXECUTE | READ_FILE | READ_DIR)?,
            Entry::BindFile { at, .. } => allow(&ruleset, at, EXECUTE | READ_FILE)?,
            Entry::Device { at, .. } => {
                allow(&ruleset, at, (READ_FILE | WRITE_FILE | TRUNCATE) & attr.access_fs)?;
            }
        }
    }
    Ok(ruleset)
}

fn allow(ruleset: impl AsFd, path: &core::ffi::CStr, access: u64) -> Done {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let parent = rustix::fs::open(path, flags, Mode::empty()).at(Step::LandlockRuleset)?;
    sys::landlock_allow(ruleset, parent, access).at(Step::LandlockRuleset)
}
