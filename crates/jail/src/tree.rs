//! The root that every run starts from: built from nothing, once, in the spawner's own mount
//! namespace. A run gets a copy of it whose mounts the kernel has locked.

use core::ffi::CStr;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags,
    OpenTreeFlags, UnmountFlags,
};

use crate::fail::{At, Done};
use crate::place;
use crate::sys;
use crate::wire::{Entries, Entry, Setup, Step};

/// Bytes and inodes of the root itself: a few small files and mount points.
const ROOT_SIZE: &CStr = c"1m";
const ROOT_INODES: &CStr = c"4096";

const SENTINEL_TEXT: &[u8] =
    b"Reading this file is refused inside a sandbox: that is how hotcell checks the Landlock layer.\n";

/// Builds the tree and makes it the root. Nothing of the host's tree can be reached afterwards.
pub(crate) fn enter(setup: Setup, entries: Entries<'_>) -> Done {
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    rustix::mount::mount_change(c"/", private).at(Step::Propagation)?;
    let root = new_root().at(Step::RootMount)?;
    for place in [place::PROC, place::WORK, place::TMP, place::CELL, c"/run", place::PROXY] {
        make_dir(&root, place).at(Step::RootMount)?;
    }
    make_file(&root, place::SENTINEL, SENTINEL_TEXT).at(Step::RootMount)?;
    for (index, entry) in entries.enumerate() {
        make(&root, entry).at_index(Step::TreeEntry, index)?;
    }
    make_dir(&root, place::SHM).at(Step::RootMount)?;
    if setup.proc {
        // Each run mounts a /proc of its own over this one, which shows nothing but the spawner's own
        // pid namespace: the kernel allows a new /proc only where one is already fully visible.
        mount_proc(&root).at(Step::ProcMount)?;
    }
    pivot(&root).at(Step::Pivot)?;
    sys::make_read_only(&root).at(Step::RootReadOnly)
}

/// A fresh tmpfs, mounted over the current root so that it can be pivoted into.
fn new_root() -> rustix::io::Result<OwnedFd> {
    let context = rustix::mount::fsopen(c"tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in [(c"size", ROOT_SIZE), (c"nr_inodes", ROOT_INODES), (c"mode", c"755")] {
        rustix::mount::fsconfig_set_string(context.as_fd(), key, value)?;
    }
    rustix::mount::fsconfig_create(context.as_fd())?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    let root = mount_of(&context, attributes)?;
    attach(&root, CWD, c"/")?;
    Ok(root)
}

fn mount_of(context: &OwnedFd, attributes: MountAttrFlags) -> rustix::io::Result<OwnedFd> {
    rustix::mount::fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

fn attach(mount: &OwnedFd, dir: BorrowedFd<'_>, at: &CStr) -> rustix::io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    rustix::mount::move_mount(mount.as_fd(), c"", dir, at, flags)
}

fn make(root: &OwnedFd, entry: Entry<'_>) -> rustix::io::Result<()> {
    match entry {
        Entry::Dir(at) => make_dir(root, at),
        Entry::Link { at, to } => {
            let (above, name) = split(relative(at)?)?;
            rustix::fs::symlinkat(to, beneath(root, &above)?, name)
        }
        Entry::File { at, content } => make_file(root, at, content),
        Entry::BindDir { from, at } => {
            make_dir(root, at)?;
            bind(root, from, at, false)
        }
        Entry::BindFile { from, at } => {
            make_file(root, at, b"")?;
            bind(root, from, at, false)
        }
        Entry::Device { from, at } => {
            make_file(root, at, b"")?;
            bind(root, from, at, true)
        }
        #[cfg(feature = "holes")]
        Entry::Hole { from, at } => {
            make_dir(root, at)?;
            // Without what is mounted below: the new root is already mounted over the old.
            attach_to(&view(from, OpenTreeFlags::empty())?, root, at)
        }
    }
}

/// Paths in the tree are absolute; they are made below the held root, whatever `/` is by now.
fn relative(path: &CStr) -> rustix::io::Result<&CStr> {
    let bytes = path.to_bytes_with_nul();
    let rest = bytes.strip_prefix(b"/").ok_or(Errno::INVAL)?;
    CStr::from_bytes_with_nul(rest).map_err(|_| Errno::INVAL)
}

/// A directory's path, and the last component in it.
fn split(path: &CStr) -> rustix::io::Result<(Above, &CStr)> {
    let bytes = path.to_bytes_with_nul();
    let slash = bytes.iter().rposition(|&b| b == b'/');
    let (above, name) = match slash {
        Some(at) => (bytes.get(..at), bytes.get(at + 1..)),
        None => (Some(&b"."[..]), Some(bytes)),
    };
    let name = CStr::from_bytes_with_nul(name.unwrap_or_default()).map_err(|_| Errno::INVAL)?;
    Ok((Above::of(above.unwrap_or_default())?, name))
}

/// A directory's path of its own, with a terminator.
struct Above([u8; PATH_MOST]);

/// Longest path of a directory in the tree.
const PATH_MOST: usize = 1024;

impl Above {
    fn of(bytes: &[u8]) -> rustix::io::Result<Above> {
        let mut path = [0; PATH_MOST];
        // One byte stays for the terminator.
        let place = path.get_mut(..bytes.len()).filter(|p| p.len() < PATH_MOST);
        place.ok_or(Errno::NAMETOOLONG)?.copy_from_slice(bytes);
        Ok(Above(path))
    }
}

/// Opens a directory of the new root. No link is followed, our own included: an absolute one would
/// lead out, into the host's tree, which is still this process's root.
fn beneath(root: &OwnedFd, path: &Above) -> rustix::io::Result<OwnedFd> {
    let path = CStr::from_bytes_until_nul(&path.0).map_err(|_| Errno::INVAL)?;
    open_in(root, path, OFlags::DIRECTORY)
}

fn open_in(root: &OwnedFd, path: &CStr, extra: OFlags) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC | extra;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(root, path, flags, Mode::empty(), resolve)
}

fn make_dir(root: &OwnedFd, at: &CStr) -> rustix::io::Result<()> {
    let (above, name) = split(relative(at)?)?;
    match rustix::fs::mkdirat(beneath(root, &above)?, name, Mode::from_raw_mode(0o755)) {
        Err(Errno::EXIST) => Ok(()),
        other => other,
    }
}

fn make_file(root: &OwnedFd, at: &CStr, content: &[u8]) -> rustix::io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let (above, name) = split(relative(at)?)?;
    let above = beneath(root, &above)?;
    let file = rustix::fs::openat(above, name, flags, Mode::from_raw_mode(0o644))?;
    write_all(file, content)
}

fn bind(root: &OwnedFd, from: &CStr, at: &CStr, device: bool) -> rustix::io::Result<()> {
    let mount = view(from, OpenTreeFlags::AT_RECURSIVE)?;
    sys::restrict_mount(&mount, device)?;
    attach_to(&mount, root, at)
}

/// Mounts at a path of the new root, which must be there and no link.
fn attach_to(mount: &OwnedFd, root: &OwnedFd, at: &CStr) -> rustix::io::Result<()> {
    let target = open_in(root, relative(at)?, OFlags::empty())?;
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    rustix::mount::move_mount(mount.as_fd(), c"", target.as_fd(), c"", flags)
}

/// A copy of the host's mount at a path, and of those below it if `extra` says so.
fn view(from: &CStr, extra: OpenTreeFlags) -> rustix::io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | extra;
    rustix::mount::open_tree(CWD, from, flags)
}

fn mount_proc(root: &OwnedFd) -> rustix::io::Result<()> {
    let context = rustix::mount::fsopen(c"proc", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_create(context.as_fd())?;
    let mount = mount_of(&context, proc_attributes())?;
    attach_to(&mount, root, place::PROC)
}

fn proc_attributes() -> MountAttrFlags {
    MountAttrFlags::MOUNT_ATTR_RDONLY
        | MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC
}

/// Swaps the roots in place and detaches the old one with everything in it.
fn pivot(root: &OwnedFd) -> rustix::io::Result<()> {
    let old =
        rustix::fs::open(c"/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::process::fchdir(root)?;
    rustix::process::pivot_root(c".", c".")?;
    rustix::process::fchdir(&old)?;
    rustix::mount::unmount(c".", UnmountFlags::DETACH)?;
    rustix::process::chdir(c"/")
}

pub(crate) fn write_all(file: impl AsFd, mut content: &[u8]) -> rustix::io::Result<()> {
    while !content.is_empty() {
        let written = rustix::io::write(&file, content)?;
        content = content.get(written..).ok_or(Errno::IO)?;
    }
    Ok(())
}

/// The run's own writable file system, with its places: made inside the run, under its own id, so
/// that its memory is charged to the run.
pub(crate) fn writable(size: u64, files: u64) -> rustix::io::Result<OwnedFd> {
    /// Its root and its places, which are not the program's.
    const OWN: u64 = 4;
    let context = rustix::mount::fsopen(c"tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    let mut digits = [0; DECIMAL];
    rustix::mount::fsconfig_set_string(context.as_fd(), c"size", decimal(size, &mut digits)?)?;
    rustix::mount::fsconfig_set_string(
        context.as_fd(),
        c"nr_inodes",
        decimal(files.saturating_add(OWN), &mut digits)?,
    )?;
    rustix::mount::fsconfig_set_string(context.as_fd(), c"mode", c"700")?;
    rustix::mount::fsconfig_create(context.as_fd())?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    let cell = mount_of(&context, attributes)?;
    attach(&cell, CWD, place::CELL)?;
    for (name, at, mode) in
        [(c"work", place::WORK, 0o755), (c"tmp", place::TMP, 0o1777), (c"shm", place::SHM, 0o1777)]
    {
        rustix::fs::mkdirat(&cell, name, Mode::from_raw_mode(mode))?;
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let mount = rustix::mount::open_tree(&cell, name, flags)?;
        attach(&mount, CWD, at)?;
    }
    Ok(cell)
}

/// The same of the cell inside which this one is made: they have it together.
pub(crate) fn shared_places() -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::open(place::CELL, flags, Mode::empty())
}

/// Takes the view of another cell's processes off a copy of its mounts.
pub(crate) fn leave_proc() -> rustix::io::Result<()> {
    rustix::mount::unmount(place::PROC, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)
}

/// Where the way out of a run is: room for one name, which is made by whoever asks.
pub(crate) fn proxy_place() -> rustix::io::Result<OwnedFd> {
    let context = rustix::mount::fsopen(c"tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in [(c"size", c"4096"), (c"nr_inodes", c"2"), (c"mode", c"755")] {
        rustix::mount::fsconfig_set_string(context.as_fd(), key, value)?;
    }
    rustix::mount::fsconfig_create(context.as_fd())?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let place = mount_of(&context, attributes)?;
    attach(&place, CWD, place::PROXY)?;
    Ok(place)
}

/// The run's own view of its processes, read-only.
pub(crate) fn own_proc() -> rustix::io::Result<()> {
    let context = rustix::mount::fsopen(c"proc", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_set_string(context.as_fd(), c"subset", c"pid")?;
    rustix::mount::fsconfig_create(context.as_fd())?;
    let mount = mount_of(&context, proc_attributes())?;
    attach(&mount, CWD, place::PROC)
}

/// Longest decimal of a u64, with its terminator.
const DECIMAL: usize = 21;

fn decimal(value: u64, buffer: &mut [u8; DECIMAL]) -> rustix::io::Result<&CStr> {
    let mut rest = value;
    let mut start = DECIMAL - 1;
    *buffer.last_mut().ok_or(Errno::INVAL)? = 0;
    loop {
        start = start.checked_sub(1).ok_or(Errno::OVERFLOW)?;
        *buffer.get_mut(start).ok_or(Errno::OVERFLOW)? = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    let text = buffer.get(start..).ok_or(Errno::OVERFLOW)?;
    CStr::from_bytes_with_nul(text).map_err(|_| Errno::INVAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_written_whole() {
        for (value, text) in
            [(0, c"0"), (7, c"7"), (1024, c"1024"), (u64::MAX, c"18446744073709551615")]
        {
            assert_eq!(decimal(value, &mut [0xff; DECIMAL]), Ok(text));
        }
    }

    #[test]
    fn only_absolute_paths_are_made_in_the_tree() {
        assert_eq!(relative(c"/etc/hosts"), Ok(c"etc/hosts"));
        assert_eq!(relative(c"etc"), Err(Errno::INVAL));
        assert_eq!(relative(c""), Err(Errno::INVAL));
    }
}
