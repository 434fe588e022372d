//! What can be wrong with a name, a tree or a request.

use std::io;

use rustix::io::Errno;

use crate::Relative;

/// Why something of a tree is not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    #[error("it is not there")]
    Missing,
    #[error("it is a directory")]
    Directory,
    #[error("it, or something above it, is not a directory")]
    NotDirectory,
    #[error("it is a symbolic link, or behind one")]
    Symlink,
    /// Another name of it may be anywhere, also where the caller may not look.
    #[error("it has more than one name (hard links)")]
    ManyNames,
    #[error("it is a pipe")]
    Pipe,
    #[error("it is a socket")]
    Socket,
    #[error("it is a device")]
    Device,
    #[error("it is on another mount")]
    Mount,
    #[error("its name is not UTF-8")]
    NotUtf8,
    #[error("its name has control characters")]
    ControlCharacters,
    #[error("it is too deep, or its path too long")]
    TooDeep,
    #[error("the policy does not show it to this call")]
    Unseen,
    #[error("{0}")]
    System(io::ErrorKind),
}

impl From<Errno> for Unfit {
    fn from(errno: Errno) -> Unfit {
        match errno {
            Errno::NOENT => Unfit::Missing,
            Errno::NOTDIR => Unfit::NotDirectory,
            Errno::LOOP => Unfit::Symlink,
            Errno::XDEV => Unfit::Mount,
            Errno::NAMETOOLONG => Unfit::TooDeep,
            other => Unfit::System(io::Error::from(other).kind()),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("`{path}` cannot be used: {why}")]
    Unfit { path: String, why: Unfit },
    #[error("{doing} `{path}` failed: {}", source.kind())]
    Io { doing: &'static str, path: String, source: io::Error },
    #[error(transparent)]
    TooMuch(#[from] TooMuch),
    /// A copy of which a part is missing must not be compared with what it was made from.
    #[error("the tree was not handed over to its end")]
    Unfinished,
}

impl Error {
    pub(crate) fn unfit(path: Option<&Relative>, why: Unfit) -> Error {
        Error::Unfit { path: name(path), why }
    }

    pub(crate) fn io(doing: &'static str, path: Option<&Relative>, source: io::Error) -> Error {
        Error::Io { doing, path: name(path), source }
    }
}

/// A path as people write it.
pub(crate) fn name(path: Option<&Relative>) -> String {
    path.map_or_else(|| ".".into(), |path| crate::relative::shown(path.as_str(), usize::MAX))
}

/// A tree that is larger than its bounds, and what makes it so.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TooMuch {
    #[error(
        "there are more than {most} files and directories, {part} of them in `{heaviest}`: leave it out, \
         or raise the bound"
    )]
    Entries { most: u64, heaviest: String, part: u64 },
    #[error(
        "the files have more than {most} bytes together, {part} of them in `{heaviest}`: leave it out, or \
         raise the bound"
    )]
    Bytes { most: u64, heaviest: String, part: u64 },
    #[error("the run left more than {most} files and directories: raise the bound")]
    Left { most: u64 },
    #[error(
        "with `{path}` the changes have more than {most} bytes, holes included: change less, or raise \
         the bound"
    )]
    Changed { most: u64, path: String },
    #[error(
        "the tree cannot be looked through in time: leave a part of it out, or allow more time"
    )]
    Time,
}
