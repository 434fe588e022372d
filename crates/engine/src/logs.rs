//! What a call prints, for whoever asks: from the file of a run that goes on (`live`), and from the
//! ledger once it has ended.

use std::fs::{self, File};
use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hotcell_ledger::{Artifact, Role};
use hotcell_sandbox::cause;
use hotcell_types::{CallId, Caller};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::artifacts::{ArtifactAnswer, ArtifactAsk, Which};
use crate::engine::Engine;
use crate::live::{self, HEAD, STDERR, STDOUT, UNKNOWN, USED};
use crate::reply::Problem;
use crate::show::Shown;

/// How long the file says nothing before the record is asked. What is written, and that it is closed or
/// removed, is told at once; a call that ends without ever having had a file is told by nothing else.
const PATIENCE: Duration = Duration::from_millis(500);
/// Bytes that are read at once.
const CHUNK: usize = 64 * 1024;

/// Something that is known of a run while it goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Since the run was let go; known only as long as it goes on.
    pub at: Option<Duration>,
    pub what: Said,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    Stdout(Vec<u8>),
    Stderr(Vec<u8>),
    /// What it has used so far.
    Used {
        cpu: Option<Duration>,
        memory_bytes: Option<u64>,
    },
}

/// How far to listen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    Now,
    /// Also if that takes long.
    TheEnd,
}

/// How to listen.
pub struct Listen<'a> {
    pub until: Until,
    /// What was heard before is left out.
    pub from: Position,
    /// Asked now and again, while nothing is said, whether anybody still wants to hear.
    pub still: &'a dyn Fn() -> bool,
}

/// Bytes of each stream, counted from the beginning.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Position {
    pub stdout: u64,
    pub stderr: u64,
}

impl Listen<'_> {
    pub fn new(until: Until) -> Listen<'static> {
        Listen { until, from: Position::default(), still: &|| true }
    }
}

impl std::fmt::Debug for Listen<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Listen { until, from, .. } = self;
        f.debug_struct("Listen").field("until", until).field("from", from).finish_non_exhaustive()
    }
}

impl Engine {
    /// Tells what a call has printed and, if that is asked for, goes on until it has ended. `each` says
    /// whether it wants more. Gives what is known of the call then.
    pub fn logs(
        &self,
        caller: &Caller,
        call: CallId,
        listen: Listen<'_>,
        each: &mut dyn FnMut(Entry) -> bool,
    ) -> Result<Shown, Problem> {
        let Listen { until, from, still } = listen;
        let mut shown = self.show(caller, call)?;
        let mut heard = Heard { each, at: Position::default(), from, wants_more: true };
        if shown.end.is_none() {
            let mut ear = Ear::new(self.home(), call).map_err(|error| deaf(&error))?;
            let mut has_news = true;
            loop {
                let written = ear.listen(&mut heard).map_err(|error| deaf(&error))?;
                if written == Written::Abandoned {
                    // Its process is dead, and nobody else may know.
                    self.recording()?.recover().ok();
                }
                if written != Written::GoesOn || !has_news {
                    shown = self.show(caller, call)?;
                }
                if shown.end.is_some() || until == Until::Now || !heard.wants_more || !still() {
                    break;
                }
                has_news = ear.wait().map_err(|error| deaf(&error))?;
            }
            if shown.end.is_some() {
                ear.read(&mut heard).map_err(|error| deaf(&error))?;
            }
        }
        if shown.end.is_some() {
            self.rest(caller, &shown, &mut heard)?;
        }
        Ok(shown)
    }

    /// What the ledger has of it beyond what was heard.
    fn rest(&self, caller: &Caller, shown: &Shown, heard: &mut Heard<'_>) -> Result<(), Problem> {
        for artifact in &shown.artifacts {
            let begin = match artifact.role {
                Role::Stdout => heard.at.stdout.max(heard.from.stdout),
                Role::Stderr => heard.at.stderr.max(heard.from.stderr),
                _ => continue,
            };
            if heard.wants_more && begin < artifact.blob.size {
                self.rest_of(caller, artifact, begin, heard)?;
            }
        }
        Ok(())
    }

    fn rest_of(
        &self,
        caller: &Caller,
        artifact: &Artifact,
        begin: u64,
        heard: &mut Heard<'_>,
    ) -> Result<(), Problem> {
        let ask = ArtifactAsk::Content(Which::Id(artifact.id));
        let answer = self.artifacts.ask(self.recording()?, caller, ask)?;
        let ArtifactAnswer::Content { mut content, .. } = answer else { return Ok(()) };
        io::copy(&mut content.by_ref().take(begin), &mut io::sink()).map_err(|e| deaf(&e))?;
        match artifact.role {
            Role::Stdout => heard.at.stdout = begin,
            _ => heard.at.stderr = begin,
        }
        let mut chunk = vec![0; CHUNK];
        while heard.wants_more {
            let length = content.read(&mut chunk).map_err(|error| deaf(&error))?;
            let Some(some) = chunk.get(..length).filter(|some| !some.is_empty()) else { break };
            let what = match artifact.role {
                Role::Stdout => Said::Stdout(some.to_vec()),
                _ => Said::Stderr(some.to_vec()),
            };
            heard.hear(Entry { at: None, what });
        }
        Ok(())
    }
}

/// How much was passed on.
struct Heard<'a> {
    each: &'a mut dyn FnMut(Entry) -> bool,
    at: Position,
    /// Only what comes later is passed on.
    from: Position,
    wants_more: bool,
}

impl Heard<'_> {
    fn hear(&mut self, mut entry: Entry) {
        let is_news = match &mut entry.what {
            Said::Stdout(bytes) => is_news(bytes, &mut self.at.stdout, self.from.stdout),
            Said::Stderr(bytes) => is_news(bytes, &mut self.at.stderr, self.from.stderr),
            Said::Used { .. } => true,
        };
        if is_news {
            self.wants_more = self.wants_more && (self.each)(entry);
        }
    }
}

/// Leaves what comes after `from`, and says whether there is any.
fn is_news(bytes: &mut Vec<u8>, at: &mut u64, from: u64) -> bool {
    let known = usize::try_from(from.saturating_sub(*at)).unwrap_or(usize::MAX).min(bytes.len());
    *at += bytes.len() as u64;
    bytes.drain(..known);
    !bytes.is_empty()
}

/// What there is of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Written {
    /// It is not there yet, or no more.
    Nothing,
    GoesOn,
    /// It is there, and nobody writes it.
    Abandoned,
}

/// At the file of a run.
struct Ear {
    path: PathBuf,
    file: Option<File>,
    /// What was read and is not a whole entry yet.
    begun: Vec<u8>,
    news: OwnedFd,
}

impl Ear {
    fn new(home: &Path, call: CallId) -> io::Result<Ear> {
        let directory = live::directory(home);
        live::made(&directory)?;
        let news = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let wanted = WatchFlags::CREATE
            | WatchFlags::MODIFY
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::DELETE
            | WatchFlags::ONLYDIR;
        inotify::add_watch(&news, &directory, wanted)?;
        let path = directory.join(call.to_string());
        Ok(Ear { path, file: None, begun: Vec::new(), news })
    }

    /// Passes on what is written, and says whether there can be more.
    fn listen(&mut self, heard: &mut Heard<'_>) -> io::Result<Written> {
        if self.file.is_none() {
            self.file = match File::open(&self.path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                opened => Some(opened?),
            };
        }
        self.read(heard)?;
        let Some(file) = self.file.as_ref().filter(|_| fs::exists(&self.path).unwrap_or(false))
        else {
            return Ok(Written::Nothing);
        };
        if flock(file, FlockOperation::NonBlockingLockShared).is_err() {
            return Ok(Written::GoesOn);
        }
        // Who has just made it, and not locked it yet, must not wait for us.
        flock(file, FlockOperation::Unlock)?;
        Ok(Written::Abandoned)
    }

    /// Every whole entry that is there.
    fn read(&mut self, heard: &mut Heard<'_>) -> io::Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let mut chunk = vec![0; CHUNK];
        while heard.wants_more {
            let length = file.read(&mut chunk)?;
            if length == 0 {
                break;
            }
            self.begun.extend(chunk.get(..length).unwrap_or_default());
            let mut rest = self.begun.as_slice();
            while let Some((entry, after)) = entry(rest) {
                entry.into_iter().for_each(|entry| heard.hear(entry));
                rest = after;
            }
            let taken = self.begun.len() - rest.len();
            self.begun.drain(..taken);
        }
        Ok(())
    }

    /// Until something was done with a file, and no longer than the patience lasts: whether it was.
    fn wait(&self) -> io::Result<bool> {
        let patience = Timespec { tv_sec: 0, tv_nsec: i64::from(PATIENCE.subsec_nanos()) };
        match poll(&mut [PollFd::new(&self.news, PollFlags::IN)], Some(&patience)) {
            Ok(0) | Err(Errno::INTR) => return Ok(false),
            Ok(_) => {}
            Err(errno) => return Err(errno.into()),
        }
        // What the news are is found by looking.
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut news = inotify::Reader::new(&self.news, &mut buffer);
        loop {
            match news.next() {
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(true),
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

/// The first entry, if it is whole, and what comes after it. One that nobody knows here is passed over.
fn entry(bytes: &[u8]) -> Option<(Option<Entry>, &[u8])> {
    let (head, rest) = bytes.split_first_chunk::<HEAD>()?;
    let [what, head @ ..] = head;
    let (at, length) = head.split_first_chunk::<8>()?;
    let length = u32::from_le_bytes(length.try_into().ok()?);
    let (said, after) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    let what = match *what {
        STDOUT => Some(Said::Stdout(said.to_vec())),
        STDERR => Some(Said::Stderr(said.to_vec())),
        USED => used(said),
        _ => None,
    };
    let at = Some(Duration::from_micros(u64::from_le_bytes(*at)));
    Some((what.map(|what| Entry { at, what }), after))
}

fn used(bytes: &[u8]) -> Option<Said> {
    let (cpu, memory) = bytes.split_first_chunk::<8>()?;
    let known = |bytes: [u8; 8]| Some(u64::from_le_bytes(bytes)).filter(|known| *known != UNKNOWN);
    let cpu = known(*cpu).map(Duration::from_micros);
    Some(Said::Used { cpu, memory_bytes: known(memory.try_into().ok()?) })
}

fn deaf(error: &io::Error) -> Problem {
    let fix = "see that the home can be read, and that there are not too many who follow";
    Problem::new("what it prints cannot be read", cause(error), fix)
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn nothing_that_is_in_a_file_is_too_much(bytes: Vec<u8>) {
            let mut rest = bytes.as_slice();
            while let Some((_, after)) = entry(rest) {
                assert!(after.len() < rest.len());
                rest = after;
            }
        }
    }
}
