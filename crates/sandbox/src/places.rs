//! Where a run without a mount namespace works: a directory of the host, made for it alone and removed
//! with it. It is handled by held descriptors only, since the run names everything in it.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use hotcell_jail::place;
use rustix::fs::{AtFlags, CWD, Dir, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::random;

/// Says of a directory that it is one of these.
const PREFIX: &str = "run-";

/// A run's places. Dropping it removes them.
#[derive(Debug)]
pub(crate) struct Places {
    above: OwnedFd,
    name: CString,
    dir: OwnedFd,
    path: PathBuf,
}

impl Places {
    /// Makes them in `home/run`. The lock on the directory tells others that its owner lives.
    pub(crate) fn make(home: &Path) -> io::Result<Places> {
        let run = home.join("run");
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&run)?;
        let above = open_dir(CWD, &c_path(&run)?)?;
        let name = format!("{PREFIX}{}", random::digits()?);
        let path = run.join(&name);
        let name = CString::new(name)?;
        rustix::fs::mkdirat(&above, &name, Mode::from_raw_mode(0o700))?;
        let dir = open_dir(&above, &name)?;
        let places = Places { above, name, dir, path };
        rustix::fs::flock(&places.dir, FlockOperation::NonBlockingLockExclusive)?;
        places.fill()?;
        Ok(places)
    }

    fn fill(&self) -> io::Result<()> {
        for name in place::NAMES {
            rustix::fs::mkdirat(&self.dir, name, Mode::from_raw_mode(0o700))?;
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o600);
        rustix::fs::openat(&self.dir, place::BARE_SENTINEL, flags, mode)?;
        Ok(())
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    /// A place as the run has to name it.
    pub(crate) fn path(&self, place: &str) -> PathBuf {
        self.path.join(place)
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        // What cannot be removed now is swept by the next process.
        if remove_tree(&self.dir).is_ok() {
            rustix::fs::unlinkat(&self.above, &self.name, AtFlags::REMOVEDIR).ok();
        }
    }
}

/// Removes the places of processes that did not end in order.
pub(crate) fn sweep(home: &Path) {
    let Ok(path) = c_path(&home.join("run")) else { return };
    let Ok(above) = open_dir(CWD, &path) else { return };
    let Ok(entries) = Dir::read_from(&above) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        if !name.to_bytes().starts_with(PREFIX.as_bytes()) {
            continue;
        }
        let Ok(dir) = open_dir(&above, name) else { continue };
        let free = rustix::fs::flock(&dir, FlockOperation::NonBlockingLockExclusive).is_ok();
        if free && remove_tree(&dir).is_ok() {
            rustix::fs::unlinkat(&above, name, AtFlags::REMOVEDIR).ok();
        }
    }
}

fn c_path(path: &Path) -> io::Result<CString> {
    use std::os::unix::ffi::OsStrExt;
    Ok(CString::new(path.as_os_str().as_bytes())?)
}

fn open_dir(above: impl AsFd, name: &CStr) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(above, name, flags, Mode::empty())?)
}

/// Empties a directory, however deep: directories in directories are moved up and wait there for their
/// turn, so that two descriptors and no recursion are enough.
fn remove_tree(top: &OwnedFd) -> io::Result<()> {
    let mut moved: u64 = 0;
    loop {
        let mut found_directory = false;
        for name in names(top)? {
            if !is_directory(top, &name)? {
                rustix::fs::unlinkat(top, &name, AtFlags::empty())?;
                continue;
            }
            found_directory = true;
            let dir = enter(top, &name)?;
            for below in names(&dir)? {
                if is_directory(&dir, &below)? {
                    // Whoever may not write a directory cannot move it either.
                    chmod(&dir, &below)?;
                    moved += 1;
                    let up = CString::new(format!(".up-{moved}"))?;
                    rustix::fs::renameat(&dir, &below, top, &up)?;
                } else {
                    rustix::fs::unlinkat(&dir, &below, AtFlags::empty())?;
                }
            }
            rustix::fs::unlinkat(top, &name, AtFlags::REMOVEDIR)?;
        }
        if !found_directory {
            return Ok(());
        }
    }
}

fn names(dir: &OwnedFd) -> io::Result<Vec<CString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            names.push(entry.file_name().to_owned());
        }
    }
    Ok(names)
}

fn is_directory(dir: &OwnedFd, name: &CStr) -> io::Result<bool> {
    let stat = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
}

fn enter(above: &OwnedFd, name: &CStr) -> io::Result<OwnedFd> {
    chmod(above, name)?;
    open_dir(above, name)
}

/// Makes a directory of our own usable again. Nobody of the run is left to put a link in its place.
fn chmod(above: &OwnedFd, name: &CStr) -> io::Result<()> {
    match rustix::fs::chmodat(above, name, Mode::from_raw_mode(0o700), AtFlags::empty()) {
        Err(Errno::PERM) => Ok(()),
        other => Ok(other?),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn places_are_removed_whatever_the_run_did_to_them() {
        let home = tempfile::tempdir().unwrap();
        let outside = home.path().join("outside");
        std::fs::write(&outside, "kept").unwrap();
        let places = Places::make(home.path()).unwrap();
        let work = places.path("work");
        std::os::unix::fs::symlink(&outside, work.join("link")).unwrap();
        std::os::unix::fs::symlink(home.path(), work.join("dirlink")).unwrap();
        std::fs::create_dir_all(work.join("a/b/c")).unwrap();
        std::fs::write(work.join("a/b/c/file"), "x").unwrap();
        std::fs::write(work.join("a/.up-1"), "x").unwrap();
        std::fs::set_permissions(work.join("a/b"), PermissionsExt::from_mode(0o000)).unwrap();
        drop(places);
        assert_eq!(std::fs::read_dir(home.path().join("run")).unwrap().count(), 0);
        assert_eq!(std::fs::read_to_string(&outside).unwrap(), "kept");
    }

    #[test]
    fn a_tree_deeper_than_any_path_is_removed() {
        let home = tempfile::tempdir().unwrap();
        let places = Places::make(home.path()).unwrap();
        let mut dir = open_dir(places.fd(), c"work").unwrap();
        for _ in 0..5000 {
            rustix::fs::mkdirat(&dir, c"d", Mode::from_raw_mode(0o700)).unwrap();
            dir = open_dir(&dir, c"d").unwrap();
        }
        drop(dir);
        drop(places);
        assert_eq!(std::fs::read_dir(home.path().join("run")).unwrap().count(), 0);
    }

    #[test]
    fn only_places_without_an_owner_are_swept() {
        let home = tempfile::tempdir().unwrap();
        let alive = Places::make(home.path()).unwrap();
        let dead = Places::make(home.path()).unwrap();
        rustix::fs::flock(&dead.dir, FlockOperation::Unlock).unwrap();
        std::fs::create_dir(home.path().join("run/other")).unwrap();
        sweep(home.path());
        assert!(alive.path.exists() && home.path().join("run/other").exists());
        assert!(!dead.path.exists());
    }
}
