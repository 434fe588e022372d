//! What a run changed in its copy of the workspace: found, judged path by path, and made so in the
//! workspace itself, all of it or nothing.

use std::collections::HashMap;
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use hotcell_policy::{Facts, Verdict, judge};
use hotcell_request::{Arguments, Call, Request};
use hotcell_sandbox::{Item, What, WorkingCopy};
use hotcell_tools::change;
use hotcell_types::{Bytes, Decision};
use hotcell_workspace::{
    self as workspace, ApplyError, Cause, Change, Changeset, DiffBounds, Digest, Handover, Refused,
    Root, Snapshot, SnapshotBounds,
};
use rustix::fs::{Mode, OFlags};

use crate::engine::{Engine, new_id};
use crate::reply::{Problem, ProblemKind};
use crate::story::Story;

/// The workspace as it was when a run began, and what the run made of it.
#[derive(Debug)]
pub(crate) struct Copied {
    root: Root,
    /// There when everything was handed over.
    snapshot: Mutex<Option<Snapshot>>,
}

impl Copied {
    pub(crate) fn new(root: Root) -> Copied {
        Copied { root, snapshot: Mutex::default() }
    }

    fn snapshot(&self) -> MutexGuard<'_, Option<Snapshot>> {
        self.snapshot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Compares the directory that a run left with what it was given; contents go to the spool. They are
    /// no more than the run could write: holes count, and are not written out for it.
    pub(crate) fn changes(
        &self,
        left: BorrowedFd<'_>,
        most: Bytes,
        spool: &mut Spool,
    ) -> Result<Changeset, Problem> {
        let unknown = |why: String| {
            let fix = "ask again, with less to copy or more time";
            Problem::new("what the run changed cannot be told", why, fix)
        };
        let left = left.try_clone_to_owned().map_err(|error| unknown(error.to_string()))?;
        let left = Root::held(left).map_err(|error| unknown(error.to_string()))?;
        let snapshot = self.snapshot();
        let snapshot = snapshot.as_ref();
        let snapshot = snapshot.ok_or_else(|| unknown("the copy was not complete".into()))?;
        let usual = DiffBounds::default();
        let bounds = DiffBounds { bytes: usual.bytes.min(most.get()), ..usual };
        let found = snapshot.diff(&left, bounds, |content| spool.keep(content));
        found.map_err(|error| unknown(error.to_string()))
    }
}

impl WorkingCopy for Copied {
    fn items(&self) -> Box<dyn Iterator<Item = io::Result<Item>> + '_> {
        *self.snapshot() = None;
        match self.root.snapshot(SnapshotBounds::default()) {
            Ok(handover) => Box::new(Items { copied: self, handover: Some(handover) }),
            Err(error) => Box::new(std::iter::once(Err(io::Error::other(error.to_string())))),
        }
    }
}

/// Hands the tree over, and keeps what it was like.
struct Items<'a> {
    copied: &'a Copied,
    handover: Option<Handover>,
}

impl Iterator for Items<'_> {
    type Item = io::Result<Item>;

    fn next(&mut self) -> Option<io::Result<Item>> {
        let told = |error: workspace::Error| io::Error::other(error.to_string());
        match self.handover.as_mut()?.next() {
            Some(Ok(opened)) => Some(item(opened)),
            Some(Err(error)) => Some(Err(told(error))),
            None => match self.handover.take()?.finish() {
                Ok(snapshot) => {
                    *self.copied.snapshot() = Some(snapshot);
                    None
                }
                Err(error) => Some(Err(told(error))),
            },
        }
    }
}

fn item(opened: workspace::Opened) -> io::Result<Item> {
    let what = match opened.what {
        workspace::What::File { file, .. } => What::File(file),
        workspace::What::Directory => What::Directory,
        workspace::What::Symlink { target } => What::Link(CString::new(target)?),
    };
    Ok(Item { path: CString::new(opened.path.as_str())?, what })
}

/// New contents, one after the other in a file that has no name, until they are applied.
#[derive(Debug)]
pub(crate) struct Spool {
    file: File,
    end: u64,
    places: HashMap<Digest, (u64, u64)>,
}

impl Spool {
    /// In a directory of hotcell's own.
    pub(crate) fn new(directory: &Path) -> io::Result<Spool> {
        std::fs::create_dir_all(directory)?;
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = rustix::fs::open(directory, flags, Mode::RUSR | Mode::WUSR)?;
        Ok(Spool { file: file.into(), end: 0, places: HashMap::new() })
    }

    fn keep(&mut self, content: &mut dyn Read) -> io::Result<Digest> {
        let (digest, length) = Digest::copy(content, &mut &self.file)?;
        // What is there already need not be there twice; the file is only as long as it was read.
        self.places.entry(digest).or_insert((self.end, length));
        self.end += length;
        self.file.flush()?;
        Ok(digest)
    }

    fn content(&self, digest: &Digest) -> io::Result<Kept<'_>> {
        let (at, left) = self.places.get(digest).copied().ok_or(io::ErrorKind::NotFound)?;
        Ok(Kept { file: &self.file, at, left })
    }
}

/// One content of a spool.
struct Kept<'a> {
    file: &'a File,
    at: u64,
    left: u64,
}

impl Read for Kept<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        let Some(part) = buffer.get_mut(..most) else { return Ok(0) };
        let read = self.file.read_at(part, self.at)?;
        self.at += read as u64;
        self.left -= read as u64;
        Ok(read)
    }
}

impl Engine {
    /// Makes the changes of a run in the workspace, if the policy allows every single one.
    pub(crate) fn apply(
        &self,
        call: &Call,
        root: &Root,
        changes: &Changeset,
        spool: &Spool,
    ) -> Result<(), Problem> {
        let content = |digest: &Digest| spool.content(digest);
        let allow = |change: &Change| self.allow(call, change);
        workspace::apply(root, changes, content, allow).map(drop).map_err(not_applied)
    }

    /// Each change is judged as a call of its own, by the same caller, within the call that made it. A
    /// refusal is on the disk before it is told.
    fn allow(&self, parent: &Call, change: &Change) -> Result<(), Refused> {
        let call = self.call_of(parent, change).map_err(Refused)?;
        let facts = Facts { now: hotcell_record::now(), mode: None, state: None };
        let (decision, account, why) = match judge(&self.policy, &call, &facts) {
            Verdict::Allow(_) => return Ok(()),
            Verdict::Deny(account) => (Decision::Deny, account, ""),
            Verdict::Review(account) => {
                (Decision::Review, account, "somebody has to agree first: ")
            }
        };
        Err(Refused(match self.record_now(Story::new(&call, &facts, &account).refusal(decision)) {
            Ok(()) => format!("{why}{}", account.reason()),
            Err(problem) => problem.why,
        }))
    }

    fn call_of(&self, parent: &Call, change: &Change) -> Result<Call, String> {
        let name = change::NAME.parse().map_err(|_| "the change has no tool".to_owned())?;
        let args = serde_json::to_value(change::Change::from(change));
        let args = args.map_err(|error| error.to_string())?;
        let mut request = Request::new(name, Arguments::Value(args));
        request.parent = Some(parent.id());
        Call::new(request, parent.caller().clone(), new_id(), &self.registry)
            .map_err(|error| error.to_string())
    }
}

fn not_applied(error: ApplyError) -> Problem {
    let why = error.to_string();
    match error {
        ApplyError::Untouched(Cause::Refused { .. }) => {
            let fix = "leave such paths alone, or have the policy changed";
            Problem::new("what the run changed was not applied", why, fix).of(ProblemKind::Blocked)
        }
        ApplyError::Untouched(Cause::Conflicts(_)) => {
            let what = "somebody else changed the same files meanwhile";
            Problem::new(what, why, "ask again").of(ProblemKind::Failed)
        }
        ApplyError::Untouched(Cause::Busy) => {
            Problem::new("nothing was applied", why, "ask again").of(ProblemKind::Busy)
        }
        ApplyError::Untouched(Cause::Io { .. }) => {
            Problem::new("nothing was applied", why, "see that the workspace can be written")
        }
        ApplyError::Partly { .. } => {
            let fix = "put back what the directory named above has";
            Problem::new("only a part of the changes was applied", why, fix)
        }
    }
}
