//! Every opening of a name. Nothing here follows a link, leaves the directory that is held, enters another
//! mount or blocks, and only a regular file with one name is ever opened for reading.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::path::Arg;

use crate::Unfit;

const RESOLVE: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);

/// What this crate has a use for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sort {
    File,
    Directory,
    Symlink,
}

/// Holds what a name stands for without opening it, be it a link or a device.
pub(crate) fn look(dir: impl AsFd, path: impl Arg) -> Result<(OwnedFd, Stat), Unfit> {
    let held = open(dir, path, OFlags::PATH)?;
    let stat = rustix::fs::fstat(&held)?;
    Ok((held, stat))
}

pub(crate) fn open_directory(dir: impl AsFd, path: impl Arg) -> Result<OwnedFd, Unfit> {
    open(dir, path, OFlags::RDONLY | OFlags::DIRECTORY)
}

/// Opens a regular file for reading. Looks first: opening alone would already do something to a device or
/// to whoever waits at the other end of a pipe.
pub(crate) fn open_file(dir: impl AsFd, path: impl Arg + Copy) -> Result<(File, Stat), Unfit> {
    let (_, stat) = look(&dir, path)?;
    only_file(&stat)?;
    open_seen(dir, path)
}

/// The same for a name that was just looked at. Whatever it has become since is looked at again.
pub(crate) fn open_seen(dir: impl AsFd, path: impl Arg) -> Result<(File, Stat), Unfit> {
    let file = open(dir, path, OFlags::RDONLY)?;
    let stat = rustix::fs::fstat(&file)?;
    only_file(&stat)?;
    Ok((file.into(), stat))
}

pub(crate) fn sort(stat: &Stat) -> Result<Sort, Unfit> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => match stat.st_nlink {
            0 => Err(Unfit::Missing),
            1 => Ok(Sort::File),
            _ => Err(Unfit::ManyNames),
        },
        FileType::Directory => Ok(Sort::Directory),
        FileType::Symlink => Ok(Sort::Symlink),
        FileType::Fifo => Err(Unfit::Pipe),
        FileType::Socket => Err(Unfit::Socket),
        _ => Err(Unfit::Device),
    }
}

fn only_file(stat: &Stat) -> Result<(), Unfit> {
    match sort(stat)? {
        Sort::File => Ok(()),
        Sort::Directory => Err(Unfit::Directory),
        Sort::Symlink => Err(Unfit::Symlink),
    }
}

fn open(dir: impl AsFd, path: impl Arg, flags: OFlags) -> Result<OwnedFd, Unfit> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // These two mean nothing to a descriptor that only holds, and the kernel refuses them there.
    let harmless = OFlags::NONBLOCK | OFlags::NOCTTY;
    let flags = if flags.contains(OFlags::PATH) { flags } else { flags | harmless };
    Ok(rustix::fs::openat2(dir, path, flags, Mode::empty(), RESOLVE)?)
}
