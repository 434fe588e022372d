//! A directory tree of the host that calls work on. Tools read and search it, a sandbox gets a copy of it,
//! and what a run changed in the copy is applied to it.
//!
//! Everything goes through one held descriptor, [`Root`], and every name below it is opened with `openat2`:
//! beneath the root, through no link of any kind, onto no other mount, without blocking. Only directories
//! and regular files with one name are used; whatever else is there is told and left alone. So a
//! [`Relative`] that was judged by its spelling is the file that is opened, whoever renames things
//! meanwhile.
//!
//! ```
//! use hotcell_workspace::{Relative, Root};
//! # let dir = tempfile::tempdir()?;
//! # std::fs::write(dir.path().join("notes.txt"), "hello")?;
//! let root = Root::open(dir.path())?;
//! let notes = root.read(&Relative::parse("notes.txt")?, .., 1024)?;
//! assert_eq!(notes.text(), Some("hello"));
//! assert!(Relative::parse("../notes.txt").is_err());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The way of a change: [`Root::snapshot`] hands the tree over, [`Snapshot::diff`] compares what the run
//! left with it, the [`Changeset`] is shown and judged, [`apply`](fn@apply) makes it so.

mod apply;
mod changeset;
mod diff;
mod digest;
mod error;
mod glob;
mod grep;
mod held;
mod list;
mod relative;
mod root;
mod snapshot;
mod unified;
mod walk;

pub use apply::{Applied, ApplyError, Cause, Conflict, Refused, apply, apply_within};
pub use changeset::{BadChangeset, Change, ChangeKind, Changeset, Skipped};
pub use diff::DiffBounds;
pub use digest::{BadDigest, Digest};
pub use error::{Error, TooMuch, Unfit};
pub use glob::{BadGlob, GlobOptions, Globbed, Globs};
pub use grep::{BadPattern, Case, GrepOptions, Grepped, Line, Match, Pattern};
pub use list::{ListOptions, Listing};
pub use relative::{BadPath, Relative};
pub use root::{Content, Found, Root, Seen, Window};
pub use snapshot::{Handover, Measured, Opened, Snapshot, SnapshotBounds, What};
pub use unified::{unified, unified_text};
pub use walk::{Bounds, Cut, Entry, FileFacts, Kind, Modified, Walk};
