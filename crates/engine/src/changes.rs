//! What a run changed in its copy of the workspace: found, judged path by path, and made so in the
//! workspace itself, all of it or nothing.

use std::collections::HashMap;
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hotcell_policy::{Account, Constraints, Permit, Settled, Verdict};
use hotcell_request::{Arguments, Call, Request};
use hotcell_sandbox::{Item, What, WorkingCopy};
use hotcell_tools::change;
use hotcell_types::{Bytes, Decision, Limits};
use hotcell_workspace::{
    self as workspace, ApplyError, Cause, Change, ChangeKind, Changeset, DiffBounds, Digest,
    Handover, Measured, Refused, Root, Snapshot, SnapshotBounds,
};
use rustix::fs::{Mode, OFlags};

use crate::engine::{Engine, new_id};
use crate::reply::{Problem, ProblemKind};
use crate::rulebook::Book;
use crate::story::Story;

/// The workspace as it was when a run began, and what the run made of it.
#[derive(Debug)]
pub(crate) struct Copied {
    root: Root,
    bounds: SnapshotBounds,
    /// There when everything was handed over.
    snapshot: Mutex<Option<Snapshot>>,
}

impl Copied {
    pub(crate) fn new(root: Root, bounds: SnapshotBounds) -> Copied {
        Copied { root, bounds, snapshot: Mutex::default() }
    }

    /// Limits that have room for the copy as well, or what is too much about it.
    pub(crate) fn with_room(&self, limits: Limits, most: Bytes) -> Result<Limits, Problem> {
        /// What the kernel needs to keep a file or directory in memory, besides its content.
        const ENTRY: u64 = 2048;
        let too_large = |why: String| {
            let what = "the workspace is too large for a copy";
            let fix = "as the operator, leave a part of it out or raise the bound: `except`, `files` \
                       and `bytes` of [workspace] in hotcell's config.toml";
            Problem::new(what, why, fix).of(ProblemKind::Refused)
        };
        let measured = self.root.measure(&self.bounds).map_err(|error| match error {
            workspace::Error::TooMuch(much) => too_large(much.to_string()),
            error => {
                let fix = "see that the directory can be read";
                Problem::new("the workspace cannot be copied", error.to_string(), fix)
            }
        });
        let Measured { entries, bytes } = measured?;
        let taken = bytes.saturating_add(entries.saturating_mul(ENTRY));
        if taken > most.get() {
            return Err(too_large(format!(
                "files of runs live in memory: it would take {taken} bytes of it, and all runs together \
                 have {most}"
            )));
        }
        Ok(Limits {
            memory: limits.memory.plus(taken),
            disk: limits.disk.plus(bytes),
            files: limits.files.plus(entries),
            ..limits
        })
    }

    /// What was applied is what the run was given, from now on.
    pub(crate) fn advance(&self, applied: &Changeset) {
        if let Some(snapshot) = &mut *self.snapshot() {
            snapshot.advance(applied);
        }
    }

    fn snapshot(&self) -> MutexGuard<'_, Option<Snapshot>> {
        self.snapshot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Compares the directory that a run left with what it was given; contents go to the spool. They are
    /// no more than the run could write: holes count, and are not written out for it.
    pub(crate) fn changes(
        &self,
        left: BorrowedFd<'_>,
        limits: &Limits,
        spool: &mut Spool,
    ) -> Result<Changeset, Problem> {
        let unknown = |why: String| {
            let fix =
                "see that hotcell's home has room, or ask again with less to copy or more time";
            Problem::new("what the run changed cannot be told", why, fix)
        };
        let left = left.try_clone_to_owned().map_err(|error| unknown(error.to_string()))?;
        let left = Root::held(left).map_err(|error| unknown(error.to_string()))?;
        let snapshot = self.snapshot();
        let snapshot = snapshot.as_ref();
        let snapshot = snapshot.ok_or_else(|| unknown("the copy was not complete".into()))?;
        let bounds = DiffBounds {
            entries: usize::try_from(limits.files.get()).unwrap_or(usize::MAX),
            bytes: DiffBounds::default().bytes.min(limits.disk.get()),
            within: self.bounds.within,
        };
        let found = snapshot.diff(&left, bounds, |content| spool.keep(content));
        found.map_err(|error| match error {
            workspace::Error::TooMuch(much) => {
                let fix = "have it change less; nothing of it was applied";
                Problem::new("the run changed too much", much.to_string(), fix)
                    .of(ProblemKind::Failed)
            }
            error => unknown(error.to_string()),
        })
    }
}

impl WorkingCopy for Copied {
    fn items(&self) -> Box<dyn Iterator<Item = io::Result<Item>> + '_> {
        *self.snapshot() = None;
        match self.root.snapshot(self.bounds.clone()) {
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

    /// The file that everything is in, which has no name.
    pub(crate) fn into_file(self) -> File {
        self.file
    }

    pub(crate) fn keep(&mut self, content: &mut dyn Read) -> io::Result<Digest> {
        let (digest, length) = Digest::copy(content, &mut &self.file)?;
        // What is there already need not be there twice; the file is only as long as it was read.
        self.places.entry(digest).or_insert((self.end, length));
        self.end += length;
        self.file.flush()?;
        Ok(digest)
    }

    fn content(&self, digest: &Digest) -> io::Result<Part<'_>> {
        let (at, left) = self.places.get(digest).copied().ok_or(io::ErrorKind::NotFound)?;
        Ok(Part { file: &self.file, at, left })
    }
}

/// A part of a file, read without moving the place at which others read.
pub(crate) struct Part<'a> {
    file: &'a File,
    at: u64,
    left: u64,
}

impl<'a> Part<'a> {
    /// Its first bytes.
    pub(crate) fn of(file: &'a File, bytes: u64) -> Part<'a> {
        Part { file, at: 0, left: bytes }
    }
}

impl Read for Part<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        let Some(part) = buffer.get_mut(..most) else { return Ok(0) };
        let read = self.file.read_at(part, self.at)?;
        self.at += read as u64;
        self.left -= read as u64;
        Ok(read)
    }
}

/// Why a change may not be made, and what to do about it.
struct NotAllowed {
    why: String,
    fix: String,
}

impl Engine {
    /// Makes the changes of a run in the workspace, if the policy allows every single one. `own` are paths that
    /// its tool writes without being told to.
    pub(crate) fn apply(
        &self,
        permit: &Permit<'_>,
        root: &Root,
        changes: &Changeset,
        spool: &Spool,
        own: &[&str],
    ) -> Result<(), Problem> {
        let content = |digest: &Digest| spool.content(digest);
        // One version decides on all of it: what each of two allows in part, neither allows.
        let book = self.book()?;
        let (facts, _) = self.facts_of(permit.call().caller(), &book)?;
        let settled = Arc::new(permit.settles(&book.policy, &facts, own));
        let mut fix = None;
        let allow = |change: &Change| {
            self.allow(permit, &book, &settled, change).map_err(|not| {
                fix = Some(not.fix);
                Refused(not.why)
            })
        };
        // The run is over, and to give up now would be to have run for nothing.
        let patience = permit.call().timeout().duration();
        let applied = workspace::apply_within(patience, root, changes, content, allow);
        applied.map(drop).map_err(|error| not_applied(error, fix))
    }

    /// Each change is judged as a call of its own, by the same caller, within the call that made it, and by
    /// the policy that holds when they are applied; what was settled about the call is not asked again. It is
    /// held to what the call itself is bound to as well. A refusal is on the disk before it is told.
    fn allow(
        &self,
        permit: &Permit<'_>,
        book: &Book,
        settled: &Arc<Settled>,
        change: &Change,
    ) -> Result<(), NotAllowed> {
        within(permit.constraints(), change)?;
        let call = self.call_of(permit.call(), change).map_err(NotAllowed::internal)?;
        let weighed = self.weigh(&call, book);
        let mut weighed = weighed.map_err(|Problem { why, fix, .. }| NotAllowed { why, fix })?;
        weighed.facts.settled = Some(Arc::clone(settled));
        let verdict = weighed.judge(&call, book);
        let (account, not) = match &verdict {
            Verdict::Allow(permit) => return within(permit.constraints(), change),
            Verdict::Review(account) => (account, to_be_looked_at(account, book, change)),
            Verdict::Deny(account) | Verdict::Ask(account) => {
                let help = verdict.would_allow(&book.policy, &call);
                let is_rule = help.starts_with("- ");
                let fix = if is_rule { format!("a policy with this:\n{help}") } else { help };
                (account, NotAllowed { why: denied(account), fix })
            }
        };
        // Nobody is asked about a part of what is over: it is a refusal as any other.
        let refusal = Story::new(&call, &weighed.facts, account, book).refusal(Decision::Deny);
        match self.record_now(refusal) {
            Ok(()) => Err(not),
            Err(Problem { why, fix, .. }) => Err(NotAllowed { why, fix }),
        }
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

impl NotAllowed {
    fn internal(why: String) -> NotAllowed {
        NotAllowed { why, fix: LEAVE.to_owned() }
    }
}

const LEAVE: &str = "leave such paths alone, or have the policy changed";

/// Who denies a change, and why.
fn denied(account: &Account<'_>) -> String {
    match account.decision() {
        None => account.reason(),
        Some(_) => told(account, Decision::Deny, "denies it"),
    }
}

fn told(account: &Account<'_>, decision: Decision, does: &str) -> String {
    let spoken = account.spoken().iter().filter(|spoken| spoken.decision == decision);
    let told = spoken.map(|spoken| format!("`{}` {does}: {}", spoken.rule, spoken.reason));
    told.collect::<Vec<_>>().join("; ")
}

/// A rule wants somebody to look at this change who was not asked about it when the call was.
fn to_be_looked_at(account: &Account<'_>, book: &Book, change: &Change) -> NotAllowed {
    let why = told(account, Decision::Review, "wants somebody to agree to this very change");
    let fix = match change.kind {
        ChangeKind::Added | ChangeKind::Modified if book.can_answer() => format!(
            "make this one with `fs.write` by itself, which an approver is asked about, and the others without \
             it; or leave `{}` alone",
            change.path
        ),
        _ => LEAVE.to_owned(),
    };
    NotAllowed { why, fix }
}

/// What the rules that allow a change bind it to.
fn within(constraints: &Constraints, change: &Change) -> Result<(), NotAllowed> {
    let bytes = change.bytes;
    match constraints.max_file_size {
        Some(most) if bytes > most.get() => Err(NotAllowed {
            why: format!("it has {bytes} bytes, and the policy allows {most}"),
            fix: "write less, or have the policy changed".to_owned(),
        }),
        _ => Ok(()),
    }
}

fn not_applied(error: ApplyError, fix: Option<String>) -> Problem {
    let why = error.to_string();
    match error {
        ApplyError::Untouched(Cause::Refused { .. }) => {
            let fix = fix.unwrap_or_else(|| LEAVE.to_owned());
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
