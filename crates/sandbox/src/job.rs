//! What to run, and how it can be refused.

use std::collections::BTreeMap;
use std::ffi::{CString, OsString};
use std::fmt::Debug;
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hotcell_types::{Layer, Level, Limits, Profile};
use rustix::fs::{MemfdFlags, memfd_create};

/// What the operator decided. No request can change any of it.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The lowest level that is accepted.
    pub minimum: Level,
    /// Where hotcell keeps what must outlive a process.
    pub home: PathBuf,
}

/// One run.
#[derive(Debug)]
pub struct Job {
    pub command: Command,
    /// The whole environment of the program, on top of the constructed one. Nothing is inherited.
    pub env: BTreeMap<OsString, OsString>,
    pub stdin: Stdin,
    pub inputs: Vec<Input>,
    /// Further things for the working directory.
    pub working_copy: Option<Arc<dyn WorkingCopy>>,
    pub limits: Limits,
    pub profile: Profile,
    pub network: Network,
    #[cfg(feature = "holes")]
    pub holes: Holes,
}

/// What a run can reach.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Network {
    /// An empty network namespace.
    #[default]
    None,
    /// The same, and sockets in it on which somebody outside accepts, who decides what else it reaches:
    /// see [`Running::listeners`](crate::Running::listeners).
    Proxied,
}

#[cfg(feature = "holes")]
impl Job {
    pub(crate) fn seeing_the_host(mut self) -> Job {
        self.holes.layers |= hotcell_jail::wire::hole::ROOT;
        self
    }
}

/// A program with everything that its start needs to see.
#[derive(Debug, Clone)]
pub struct Command {
    /// Absolute path of the real executable, behind every shim and link.
    pub program: PathBuf,
    /// `argv`, the name first.
    pub args: Vec<OsString>,
    /// Further directories or files of the host to show read-only, at the same paths: the prefix of
    /// an interpreter. The system's own (`/usr` and so on) are always there.
    pub read_only: Vec<PathBuf>,
    /// A tree of hotcell's own that is shown besides.
    pub tree: Option<Tree>,
    /// What was chosen and why, for the result.
    pub note: Option<String>,
    /// Whether it is a file for an interpreter that can be forked after it has started: see `warm`.
    pub forks: bool,
}

impl Command {
    /// What runs of it see of the host.
    pub fn view(&self) -> View {
        View { read_only: self.read_only.clone(), tree: self.tree.clone() }
    }
}

/// What a run can see of the host besides what every run sees. Runs with the same view share a launcher.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct View {
    pub(crate) read_only: Vec<PathBuf>,
    pub(crate) tree: Option<Tree>,
}

impl View {
    /// Whether everything that is in the other one can be seen.
    pub(crate) fn covers(&self, other: &View) -> bool {
        let is_seen = |path: &PathBuf| self.read_only.iter().any(|own| path.starts_with(own));
        other.read_only.iter().all(is_seen) && (other.tree.is_none() || other.tree == self.tree)
    }

    /// With what another one shows.
    pub fn and(mut self, other: View) -> View {
        for path in other.read_only {
            if !self.read_only.contains(&path) {
                self.read_only.push(path);
            }
        }
        self.tree = self.tree.or(other.tree);
        self
    }
}

/// A directory of the host that a run sees read-only, and under another name. Whoever makes it keeps the
/// directory from being removed while there are runs that see it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Tree {
    pub(crate) from: PathBuf,
    pub(crate) at: &'static str,
    /// Another directory may have the same name later: device and inode tell them apart.
    pub(crate) identity: (u64, u64),
}

impl Tree {
    /// `held` is the directory that is at `from`; `at` is an absolute path of one component.
    pub fn new(from: PathBuf, held: &File, at: &'static str) -> io::Result<Tree> {
        let found = held.metadata()?;
        Ok(Tree { from, at, identity: (found.dev(), found.ino()) })
    }
}

#[derive(Debug)]
pub enum Stdin {
    Empty,
    /// Copied into the run's pipe as the program reads it.
    From(File),
    /// Stays open for whoever started the run, who also reads its standard output: see
    /// [`Running::talk`](crate::Running::talk).
    Held,
    /// One end of a pair of Unix sockets, so that descriptors can be passed to the program and back. Closed
    /// here once the run has it.
    Line(OwnedFd),
}

/// The caller's ends of a run's standard input and output. Neither ever waits: what is not possible now
/// is `WouldBlock`.
#[derive(Debug)]
pub struct Talk {
    /// Dropping it is the end of the run's input.
    pub to: File,
    /// Nothing of it is kept or counted in the outcome.
    pub from: File,
}

/// A file given to the run: a copy of `file`, which the holder has opened and checked, at `name` in
/// the working directory.
#[derive(Debug)]
pub struct Input {
    /// One path component.
    pub name: OsString,
    pub file: File,
}

/// A file that is nowhere but in memory, for an [`Input`] or [`Stdin`] that is not on a disk.
pub fn in_memory(bytes: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create("input", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file)
}

/// What a working directory is filled with. It may be asked for more than once: a run whose launcher is
/// lost before its program was let go is started again.
pub trait WorkingCopy: Debug + Send + Sync {
    /// Everything in it; a directory comes before what it contains.
    fn items(&self) -> Box<dyn Iterator<Item = io::Result<Item>> + '_>;
}

/// One thing of a working copy.
#[derive(Debug)]
pub struct Item {
    /// Relative to the working directory, without `.` and `..`.
    pub path: CString,
    pub what: What,
}

#[derive(Debug)]
pub enum What {
    /// A copy of a file that the holder has opened and checked.
    File(File),
    Directory,
    /// A symbolic link, with its target as it is.
    Link(CString),
}

/// Walls to leave out, for tests that show what each of them stops. Exists only with the feature
/// `holes`, which is never on in what is shipped.
#[cfg(feature = "holes")]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Holes {
    /// Bits of [`hotcell_jail::wire::hole`].
    pub layers: u32,
    /// Every system call is allowed.
    pub seccomp: bool,
    /// The run's id outside is hotcell's own.
    pub own_id: bool,
    /// No cgroup.
    pub cgroup: bool,
}

/// Where output goes while it appears. Chunks are already bounded by the output limit.
pub trait Sink {
    fn stdout(&mut self, chunk: &[u8]);
    fn stderr(&mut self, chunk: &[u8]);

    /// When the run is to be looked at next, counted from its release. Nothing means never.
    fn next_look(&self) -> Option<Duration> {
        None
    }

    /// Called once that time has come, if the run has not ended.
    fn look(&mut self, _: Look) {}
}

/// What a run has used so far, where there is a cgroup that counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// Since its release.
    pub at: Duration,
    pub cpu: Option<Duration>,
    pub memory_bytes: Option<u64>,
}

/// Why nothing was run.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The host gives less than the operator accepts.
    #[error("this host gives level `{given}`, and `{minimum}` is the lowest accepted: {why}")]
    Level { given: Level, minimum: Level, why: String, fix: String },
    /// A layer could not be set up, although the host seemed to allow it.
    #[error("layer `{layer}` could not be set up: {why}")]
    Layer { layer: Layer, why: String, fix: String },
    /// The job itself is wrong.
    #[error("{what}: {why}")]
    Invalid { what: String, why: String, fix: String },
    /// The program cannot be executed.
    #[error("`{program}` cannot be executed: {why}")]
    NotRunnable { program: String, why: String },
    /// There are as many runs as there can be.
    #[error("no room for another run: {running} are running")]
    Busy { running: u32 },
    /// Our own failure.
    #[error("{doing}")]
    Internal { doing: String, source: io::Error },
}

impl Refusal {
    /// Talking to the launcher failed.
    pub(crate) fn of_talking(doing: &'static str, error: io::Error) -> Refusal {
        use std::io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
        let is_lost = matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof);
        let source = if is_lost { io::Error::new(error.kind(), Lost) } else { error };
        Refusal::Internal { doing: doing.into(), source }
    }

    /// Whether the other side went away before it said that the program was let go: it was not.
    pub(crate) fn is_lost(&self) -> bool {
        let Refusal::Internal { source, .. } = self else { return false };
        source.get_ref().is_some_and(|source| source.is::<Lost>())
    }
}

/// The launcher, or the run's part of it, is not there any more.
#[derive(Debug, thiserror::Error)]
#[error("it has ended")]
struct Lost;

/// What the system said, without the number that only programmers know.
pub fn cause(error: &io::Error) -> String {
    let text = error.to_string();
    match text.split_once(" (os error ") {
        Some((words, _)) => words.to_lowercase(),
        None => text,
    }
}
