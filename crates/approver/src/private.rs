//! Files that only their owner can use, in directories that only their owner can use, and reached by no
//! link: what decides about approvals, or opens keys, is read from and written to such places only.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, openat, unlinkat};
use rustix::io::Errno;

/// Largest file that is read, in bytes.
pub const MOST_FILE: u64 = 64 << 10;

/// Why a file was not read or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot use `{}`: {why}", .path.display())]
pub struct FileError {
    pub path: PathBuf,
    pub why: String,
    pub fix: String,
}

impl FileError {
    pub(crate) fn new(path: &Path, why: impl Into<String>, fix: &str) -> FileError {
        FileError { path: path.to_owned(), why: why.into(), fix: fix.to_owned() }
    }

    fn io(path: &Path, error: impl Into<io::Error>) -> FileError {
        let why = error.into().to_string();
        FileError::new(path, why, "see that it is there, and that you may use it")
    }

    fn link(path: &Path) -> FileError {
        FileError::new(path, "it is a link", "name the file itself, and put no link in its place")
    }
}

/// All of a file.
pub(crate) fn read(path: &Path) -> Result<String, FileError> {
    let (directory, name) = open_directory(path)?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = match openat(&directory, name, flags, Mode::empty()) {
        Err(Errno::LOOP) => return Err(FileError::link(path)),
        opened => File::from(opened.map_err(|error| FileError::io(path, error))?),
    };
    let found = file.metadata().map_err(|error| FileError::io(path, error))?;
    if !found.is_file() || found.nlink() != 1 {
        let why = "it is not a regular file with one name";
        return Err(FileError::new(path, why, "put a file of its own there"));
    }
    refuse_shared(path, &found, "chmod 600, and own it")?;
    let mut text = String::new();
    let most = MOST_FILE + 1;
    file.take(most).read_to_string(&mut text).map_err(|error| FileError::io(path, error))?;
    if text.len() as u64 == most {
        let why = format!("it has more than {MOST_FILE} bytes");
        return Err(FileError::new(path, why, "put back what hotcell has written"));
    }
    Ok(text)
}

/// Makes a file that was not there. If that fails, it is not there.
pub(crate) fn write_new(path: &Path, text: &str) -> Result<(), FileError> {
    let (directory, name) = open_directory(path)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = match openat(&directory, name, flags, Mode::RUSR | Mode::WUSR) {
        Err(Errno::EXIST) => {
            let fix = "choose another name, or move it away";
            return Err(FileError::new(path, "it is there already", fix));
        }
        opened => File::from(opened.map_err(|error| FileError::io(path, error))?),
    };
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    let kept = written.and_then(|()| Ok(rustix::fs::fsync(&directory)?));
    kept.map_err(|error| {
        // Whether that works or not, the reason is what stood in the way before.
        unlinkat(&directory, name, rustix::fs::AtFlags::empty()).ok();
        FileError::io(path, error)
    })
}

/// The directory of a file, and the file's name in it.
fn open_directory(path: &Path) -> Result<(OwnedFd, &Path), FileError> {
    let name = path.file_name().map(Path::new);
    let name = name.ok_or_else(|| FileError::new(path, "it names no file", "name a file"))?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = match openat(CWD, parent, flags, Mode::empty()) {
        // A link is not a directory.
        Err(Errno::LOOP | Errno::NOTDIR) if parent.is_symlink() => {
            return Err(FileError::link(parent));
        }
        opened => File::from(opened.map_err(|error| FileError::io(parent, error))?),
    };
    let found = directory.metadata().map_err(|error| FileError::io(parent, error))?;
    refuse_shared(parent, &found, "chmod 700, and own it")?;
    Ok((directory.into(), name))
}

fn refuse_shared(path: &Path, found: &std::fs::Metadata, fix: &str) -> Result<(), FileError> {
    let is_ours = found.uid() == rustix::process::geteuid().as_raw();
    if is_ours && found.mode() & 0o077 == 0 {
        return Ok(());
    }
    Err(FileError::new(path, "others than its owner may use it", fix))
}
