//! The policy that holds. Without one of its own a home has the built-in one; a policy that somebody wrote
//! is a version in the record, signed by an approver, and `policy.yaml` is its copy for people. A copy that
//! says something else is an unsigned change, and nothing is decided until that is settled.

use std::fs::{self, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread;
use std::time::{Duration, Instant};

use hotcell_approver::{Approvers, Public};
use hotcell_extension::{Extension, Source};
use hotcell_policy::{FILE_MOST, Loaded, Redact, Snapshot, Warning};
use hotcell_record::{Pattern, ReadError, Record, Redactor};
use hotcell_request::Tools;
use hotcell_review::versions::{self, Rules, Version};
use hotcell_sandbox::Sandbox;
use rustix::fs::OFlags;

use crate::engine::Engine;
use crate::reply::{Problem, ProblemKind};

/// The file in a home.
pub const POLICY_FILE: &str = "policy.yaml";

/// One version of the policy, ready to decide. A call is decided by one of them, from its beginning on.
#[derive(Debug)]
pub struct Book {
    pub policy: Snapshot,
    /// 0 where nobody has written one.
    pub number: u64,
    /// Who may answer, and sign what follows it.
    pub approvers: Approvers,
    /// Rules in TypeScript, in a process of their own that waits.
    pub(crate) extension: Option<Extension>,
    /// What its authors might not have meant.
    pub warnings: Vec<Warning>,
    /// What nothing that is recorded of a call has in it, where the policy says more than is usual.
    pub(crate) hidden: Option<Arc<Redactor>>,
    /// `None` of a policy that whoever embeds this has set.
    copy: Option<Copy>,
}

impl Book {
    fn new(policy: Snapshot, number: u64, approvers: Approvers, copy: Option<Copy>) -> Book {
        let hidden = hidden(policy.redact()).map(Arc::new);
        let (extension, warnings) = (None, Vec::new());
        Book { policy, number, approvers, extension, warnings, hidden, copy }
    }

    /// Whether there is anybody to put something before.
    pub(crate) fn can_answer(&self) -> bool {
        self.approvers.iter().next().is_some()
    }

    /// The version that has to hold while a call is begun; `None` where only whoever embeds this decides.
    pub(crate) fn must_hold(&self) -> Option<u64> {
        self.copy.as_ref().map(|_| self.number)
    }
}

/// What `policy.yaml` is at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Copy {
    Absent,
    There { inode: (u64, u64), length: u64, modified: (i64, i64), changed: (i64, i64) },
}

/// As long as it is there, this process changes no policy.
pub(crate) type Steady<'a> = RwLockReadGuard<'a, ()>;

#[derive(Debug)]
pub(crate) struct Rulebook {
    path: PathBuf,
    held: RwLock<Option<Arc<Book>>>,
    /// Read from when a call is judged until it is begun, and written while the policy is changed.
    changing: RwLock<()>,
}

impl Rulebook {
    /// That of a home, or the one that whoever embeds this has set.
    pub(crate) fn new(home: &Path, set: Option<Snapshot>) -> Rulebook {
        let set = set.map(|policy| Arc::new(Book::new(policy, 0, Approvers::default(), None)));
        let changing = RwLock::default();
        Rulebook { path: home.join(POLICY_FILE), held: RwLock::new(set), changing }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether whoever embeds this has set the policy.
    pub(crate) fn is_set(&self) -> bool {
        let held = self.held.read().unwrap_or_else(PoisonError::into_inner);
        held.as_ref().is_some_and(|book| book.copy.is_none())
    }

    pub(crate) fn steady(&self) -> Steady<'_> {
        self.changing.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn changing(&self) -> RwLockWriteGuard<'_, ()> {
        self.changing.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The book as it was read last, if it still is what lies there.
    fn held(&self) -> Result<Result<Arc<Book>, Copy>, Problem> {
        let held = self.held.read().unwrap_or_else(PoisonError::into_inner).clone();
        match held {
            Some(book) if book.copy.is_none() => Ok(Ok(book)),
            held => {
                let copy = Copy::at(&self.path).map_err(|error| unreadable(&self.path, &error))?;
                Ok(held.filter(|book| book.copy == Some(copy)).ok_or(copy))
            }
        }
    }

    /// Read again by whoever comes next.
    pub(crate) fn forget(&self) {
        let mut held = self.held.write().unwrap_or_else(PoisonError::into_inner);
        held.take_if(|book| book.copy.is_some());
    }

    fn hold(&self, book: Book) -> Arc<Book> {
        let book = Arc::new(book);
        *self.held.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&book));
        book
    }
}

impl Engine {
    /// The policy that decides from now on.
    pub(crate) fn book(&self) -> Result<Arc<Book>, Problem> {
        let until = Instant::now() + PATIENCE;
        let mut copy = match self.rulebook.held()? {
            Ok(book) => return Ok(book),
            Err(copy) => copy,
        };
        loop {
            let loaded = self.load(copy);
            if loaded.as_ref().is_ok_and(|book| book.number > 0) {
                return loaded.map(|book| self.rulebook.hold(book));
            }
            // Somebody may be about to put another version in its place, or have come to an end before that.
            let is_open = match self.finish_install()? {
                Finished::Done => true,
                Finished::Busy => {
                    thread::sleep(LOOK_AGAIN);
                    true
                }
                Finished::Nothing => false,
            };
            // In this order: what was put in its place before that look is another copy now.
            let path = self.rulebook.path();
            let now = Copy::at(path).map_err(|error| unreadable(path, &error))?;
            if !is_open && now == copy {
                return loaded.map(|book| self.rulebook.hold(book));
            }
            if Instant::now() >= until {
                let why = "another process changes it again and again";
                let problem = Problem::new("the policy cannot be read now", why, "ask again");
                return Err(problem.of(ProblemKind::Busy));
            }
            copy = now;
        }
    }

    /// The policy as it lies there now, whatever was read before.
    pub(crate) fn reload(&self) -> Result<Arc<Book>, Problem> {
        let path = self.rulebook.path();
        let copy = Copy::at(path).map_err(|error| unreadable(path, &error))?;
        self.load(copy).map(|book| self.rulebook.hold(book))
    }

    /// Whether the policy can be used. With the first look it is read, and rules in TypeScript start to wait;
    /// as long as nobody touches it, another look is one at its file.
    pub fn can_decide(&self) -> Result<(), Problem> {
        self.surely_has(&*self.book()?)
    }

    /// What the authors of the policy that holds might not have meant.
    pub fn policy_warnings(&self) -> Result<Vec<Warning>, Problem> {
        Ok(self.book()?.warnings.clone())
    }

    /// `copy` was looked at before: what is changed while it is read is another one next time.
    fn load(&self, copy: Copy) -> Result<Book, Problem> {
        if copy == Copy::Absent {
            // Whether it was there once is asked with the intent, or before something is read.
            let policy = Snapshot::built_in_protecting(self.protected.clone());
            return Ok(Book::new(policy, 0, Approvers::default(), Some(copy)));
        }
        let path = self.rulebook.path();
        let text = read(path).map_err(|error| unreadable(path, &error))?;
        let version = newest(self.recording()?)?.ok_or_else(unsigned)?;
        if version.rules.text.as_bytes() != text {
            return Err(changed());
        }
        let tools = self.registry.tools();
        let book = self.checked(&version, &tools)?;
        let extension = self.extension_of(&book.policy, &version.rules)?;
        Ok(Book { extension, copy: Some(copy), ..book })
    }

    /// That a home without a policy never had one. What has an intent asks that with it. It is asked each time:
    /// another process can have made a version, and its copy be gone, before this one saw either.
    pub(crate) fn surely_has(&self, book: &Book) -> Result<(), Problem> {
        if book.number > 0 || book.copy.is_none() {
            return Ok(());
        }
        let number =
            self.recording()?.look(|conn| versions::newest_number(conn).map_err(Look::from));
        match number.map_err(|error| not_looked_up(&error))? {
            0 => Ok(()),
            _ => Err(gone()),
        }
    }

    /// A version of this home that was signed by whom it has to be.
    pub(crate) fn checked(&self, version: &Version, tools: &Tools) -> Result<Book, Problem> {
        let number = version.number();
        let (text, protected) = (version.rules.text.as_bytes(), self.protected.clone());
        let loaded = Snapshot::load_protecting(text, tools, protected);
        let Loaded { snapshot, warnings } = loaded.map_err(|faults| {
            let why = faults.first().map(ToString::to_string).unwrap_or_default();
            let fix = "use the hotcell that it was written for, or update the policy";
            Problem::new("the policy cannot be used any more", why, fix)
        })?;
        let policy = snapshot.as_version(number, &version.rules.extensions);
        let approvers = approvers(policy.approvers())?;
        self.signer(version)?;
        Ok(Book { warnings, ..Book::new(policy, number, approvers, None) })
    }

    /// Starts the rules in TypeScript, so that they wait for the first call.
    pub(crate) fn extension_of(
        &self,
        policy: &Snapshot,
        rules: &Rules,
    ) -> Result<Option<Extension>, Problem> {
        if policy.extensions().is_empty() {
            return Ok(None);
        }
        let sources = policy.extensions().iter().map(|name| {
            let text = rules.extensions.get(name).cloned();
            Some(Source { name: name.clone(), text: text? })
        });
        let sources: Option<Vec<Source>> = sources.collect();
        let broken = |why: String| {
            let fix = "correct the extension, and `hotcell policy update` again";
            Problem::new("the extensions of the policy cannot be used", why, fix)
        };
        let sources = sources.ok_or_else(|| broken("the source of one is missing".into()))?;
        // One of its own: it stays while others come and go.
        let sandbox = Sandbox::open(self.settings()).map_err(Problem::from)?;
        let started = Extension::start(&sources, move |job| sandbox.start(job));
        let at = |fault: &hotcell_extension::Fault| {
            format!("{}:{}:{}: {fault}", fault.file, fault.line, fault.column)
        };
        started.map(Some).map_err(|fault| broken(at(&fault)))
    }

    /// Who signed a version, and might: the one before it says who.
    pub(crate) fn signer(&self, version: &Version) -> Result<Public, Problem> {
        let record = self.recording()?;
        let before = match version.number() {
            1 => named_by(version)?,
            number => {
                let before = record.look(|conn| {
                    versions::version(conn, number.saturating_sub(1)).map_err(Look::from)
                });
                let before = before.map_err(|error| not_looked_up(&error))?;
                named_by(&before.ok_or_else(gone)?)?
            }
        };
        let signer = versions::check(version, &record.home_id().0, &before).map_err(|error| {
            let fix = "restore a backup of the home, and find out who changed it";
            Problem::new("the policy is not signed by one who may", error.to_string(), fix)
        })?;
        Ok(signer.clone())
    }
}

/// The usual secrets and those of a policy, if it names any.
fn hidden(patterns: &[Redact]) -> Option<Redactor> {
    let (mut words, mut expressions) = (Vec::new(), Vec::new());
    for pattern in patterns {
        match pattern {
            Redact::Prefix(start) => words.push(Pattern::word(start)),
            Redact::Regex(expression) => expressions.push(expression.compiled().clone()),
        }
    }
    let is_usual = patterns.is_empty();
    (!is_usual).then(|| Redactor::new(&words).and_expressions(expressions))
}

/// Those whom a version names, whatever its rules say.
pub(crate) fn named_by(version: &Version) -> Result<Approvers, Problem> {
    let lines = hotcell_policy::approvers(version.rules.text.as_bytes());
    approvers(&lines.unwrap_or_default())
}

/// Those whom a policy names.
pub(crate) fn approvers(lines: &[String]) -> Result<Approvers, Problem> {
    let bad = |why: String| {
        let fix = "write the line that `hotcell approver show` prints";
        Problem::new("the policy names an approver who is none", why, fix).of(ProblemKind::Invalid)
    };
    let all = lines
        .iter()
        .map(|line| line.parse::<Public>().map_err(|error| bad(format!("`{line}`: {error}"))));
    let all = all.collect::<Result<Vec<Public>, Problem>>()?;
    Approvers::new(all).map_err(|error| bad(error.to_string()))
}

pub(crate) fn newest(record: &Record) -> Result<Option<Version>, Problem> {
    record
        .look(|conn| versions::newest(conn).map_err(Look::from))
        .map_err(|error| not_looked_up(&error))
}

impl Copy {
    fn at(path: &Path) -> io::Result<Copy> {
        match fs::symlink_metadata(path) {
            Ok(found) => Ok(Copy::There {
                inode: (found.dev(), found.ino()),
                length: found.len(),
                modified: (found.mtime(), found.mtime_nsec()),
                changed: (found.ctime(), found.ctime_nsec()),
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Copy::Absent),
            Err(error) => Err(error),
        }
    }
}

/// A file of ours that nobody else can write, and no link to one.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let found = file.metadata()?;
    let own = rustix::process::geteuid().as_raw();
    let wrong = |why: &str| Err(io::Error::other(why.to_owned()));
    if !found.is_file() {
        return wrong("it is not a regular file");
    }
    if (found.uid() != own && found.uid() != 0) || found.mode() & 0o022 != 0 {
        return wrong("others may write to it");
    }
    let mut text = Vec::new();
    file.take(FILE_MOST as u64 + 1).read_to_end(&mut text)?;
    if text.len() > FILE_MOST { wrong("it is too long") } else { Ok(text) }
}

/// What there was to be finished of a change of the policy.
pub(crate) enum Finished {
    Nothing,
    Done,
    /// Somebody else is at it.
    Busy,
}

/// How long versions that come and go are waited for, and another process that changes the policy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
pub(crate) const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Why something could not be looked up in the record's database.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Look {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Review(#[from] hotcell_review::Error),
    #[error(transparent)]
    Bearer(#[from] hotcell_bearer::Error),
}

pub(crate) fn not_looked_up(error: &Look) -> Problem {
    Problem::new("the record cannot be read", error.to_string(), "`hotcell audit verify` says more")
}

fn unreadable(path: &Path, error: &io::Error) -> Problem {
    Problem::new(
        "`policy.yaml` cannot be read",
        format!("`{}`: {error}", path.display()),
        "see that it is a file of yours that nobody else can write",
    )
}

fn unsigned() -> Problem {
    let fix = "`hotcell policy update FILE` has it signed; without a policy, move the file away";
    Problem::new(
        "`policy.yaml` is there, and nobody has signed it",
        "what is not signed does not hold",
        fix,
    )
}

fn changed() -> Problem {
    let fix = "`hotcell policy update FILE` has a changed policy signed; `hotcell policy show` prints \
               the one that holds";
    let why = "it was changed, and nobody has signed that";
    Problem::new("`policy.yaml` is not the policy that holds", why, fix)
}

fn gone() -> Problem {
    let fix = "`hotcell policy show` prints the one that holds: put it there";
    Problem::new("`policy.yaml` is gone", "the record says that this home has a policy", fix)
}

/// What stands in the way of a call that was judged by a version that holds no more.
pub(crate) fn stale(book: &Book) -> Problem {
    if book.number == 0 {
        return gone();
    }
    let why = "it was changed while the call was judged";
    Problem::new("the policy is another one now", why, "ask again").of(ProblemKind::Busy)
}
