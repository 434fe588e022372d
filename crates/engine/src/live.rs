//! What a run prints and uses while it goes on, in a file that other processes follow. A short run has
//! none: it is made when a run has lasted for a while, or has printed much. It is locked for as long as
//! its process lives, and removed when the outcome is recorded.
//!
//! The file is a row of entries: a letter, the microseconds since the run was let go (8 bytes), a length
//! (4 bytes, as the other numbers in little endian), and so many bytes. `o` and `e` are what was printed;
//! `u` is what was used: microseconds of processors and bytes of memory, each of 8 bytes, all ones where
//! nobody knows.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hotcell_sandbox::{Look, Sink};
use hotcell_types::CallId;
use rustix::fs::{FlockOperation, flock};

/// Below a home.
const DIRECTORY: &str = "run/live";
/// How long a run goes on without a file, unless it prints more than that.
pub(crate) const UNTOLD: Duration = Duration::from_millis(200);
const UNTOLD_BYTES: usize = 64 * 1024;
/// How often it is looked at what a run uses; less often when it has gone on for long.
const LOOK_LEAST: Duration = Duration::from_millis(500);
const LOOK_PARTS: u32 = 512;
/// Largest file. What is printed beyond that is told by the outcome.
pub(crate) const MOST_FILE: u64 = 64 * 1024 * 1024;
/// How often a file is made again that somebody swept away before it was locked.
const TRIES: usize = 8;

/// Before each entry's bytes.
pub(crate) const HEAD: usize = 13;
pub(crate) const STDOUT: u8 = b'o';
pub(crate) const STDERR: u8 = b'e';
pub(crate) const USED: u8 = b'u';
pub(crate) const UNKNOWN: u64 = u64::MAX;

pub(crate) fn directory(home: &Path) -> PathBuf {
    home.join(DIRECTORY)
}

pub(crate) fn made(directory: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

/// Tells whoever listens in this process, and the others by the file.
pub(crate) struct Teller<'a> {
    near: Option<&'a mut dyn Sink>,
    begun: Instant,
    far: Far,
    next: Duration,
}

/// Those who are not in this process.
enum Far {
    /// Nothing is on the disk yet.
    Early {
        directory: PathBuf,
        call: CallId,
        told: Vec<u8>,
    },
    Told(Live),
    /// It cannot be told, or it was enough.
    Silent,
}

/// A file that is followed. Dropping it removes it.
#[derive(Debug)]
pub(crate) struct Live {
    path: PathBuf,
    file: File,
    bytes: u64,
}

impl<'a> Teller<'a> {
    pub(crate) fn new(home: &Path, call: CallId, near: Option<&'a mut dyn Sink>) -> Teller<'a> {
        let far = Far::Early { directory: directory(home), call, told: Vec::new() };
        Teller { near, begun: Instant::now(), far, next: UNTOLD }
    }

    /// To be kept until the outcome is recorded.
    pub(crate) fn into_live(self) -> Option<Live> {
        match self.far {
            Far::Told(live) => Some(live),
            Far::Early { .. } | Far::Silent => None,
        }
    }

    fn tell(&mut self, what: u8, at: Duration, bytes: &[u8]) {
        let goes_on = match &mut self.far {
            Far::Early { told, .. } => {
                push(told, what, at, bytes);
                at < UNTOLD && told.len() < UNTOLD_BYTES || self.publish()
            }
            Far::Told(live) => {
                let mut entry = Vec::with_capacity(HEAD + bytes.len());
                push(&mut entry, what, at, bytes);
                live.write(&entry)
            }
            Far::Silent => true,
        };
        if !goes_on {
            self.far = Far::Silent;
        }
    }

    /// Makes the file, with what there is to tell so far.
    fn publish(&mut self) -> bool {
        let Far::Early { directory, call, told } = &self.far else { return true };
        let Ok(mut live) = Live::new(directory, *call) else { return false };
        let is_told = live.write(told);
        self.far = Far::Told(live);
        is_told
    }
}

impl Sink for Teller<'_> {
    fn stdout(&mut self, chunk: &[u8]) {
        if let Some(near) = &mut self.near {
            near.stdout(chunk);
        }
        self.tell(STDOUT, self.begun.elapsed(), chunk);
    }

    fn stderr(&mut self, chunk: &[u8]) {
        if let Some(near) = &mut self.near {
            near.stderr(chunk);
        }
        self.tell(STDERR, self.begun.elapsed(), chunk);
    }

    fn next_look(&self) -> Option<Duration> {
        (!matches!(self.far, Far::Silent)).then_some(self.next)
    }

    fn look(&mut self, look: Look) {
        let cpu = look.cpu.map_or(UNKNOWN, micros);
        let memory = look.memory_bytes.unwrap_or(UNKNOWN);
        let used = [cpu.to_le_bytes(), memory.to_le_bytes()].concat();
        self.tell(USED, look.at.max(UNTOLD), &used);
        self.next = look.at + LOOK_LEAST.max(look.at / LOOK_PARTS);
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(UNKNOWN)
}

fn push(told: &mut Vec<u8>, what: u8, at: Duration, bytes: &[u8]) {
    // A chunk is 64 KiB at most.
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    told.push(what);
    told.extend(micros(at).to_le_bytes());
    told.extend(length.to_le_bytes());
    told.extend(bytes);
}

impl Live {
    fn new(directory: &Path, call: CallId) -> io::Result<Live> {
        made(directory)?;
        sweep(directory)?;
        let path = directory.join(call.to_string());
        for _ in 0..TRIES {
            let file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(&path)?;
            flock(&file, FlockOperation::LockExclusive)?;
            // Until it was locked it looked like one that a dead process left.
            if is_at(&file, &path) {
                return Ok(Live { path, file, bytes: 0 });
            }
        }
        Err(io::Error::other("it is swept away as it is made"))
    }

    /// Whether that was not the last of it.
    fn write(&mut self, entry: &[u8]) -> bool {
        self.bytes = self.bytes.saturating_add(entry.len() as u64);
        self.bytes <= MOST_FILE && self.file.write_all(entry).is_ok()
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        // One that stays is free, and swept by the next.
        fs::remove_file(&self.path).ok();
    }
}

fn is_at(file: &File, path: &Path) -> bool {
    let known = |found: fs::Metadata| (found.dev(), found.ino());
    match (file.metadata(), fs::metadata(path)) {
        (Ok(ours), Ok(found)) => known(ours) == known(found),
        _ => false,
    }
}

/// Removes what dead processes left.
pub(crate) fn sweep(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let Ok(file) = File::open(&path) else { continue };
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() && is_at(&file, &path) {
            // Whoever else sweeps may be faster.
            fs::remove_file(&path).ok();
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call() -> CallId {
        "01ARZ3NDEKTSV4RRFFQ69G5FAV".parse().unwrap()
    }

    fn files(home: &Path) -> usize {
        fs::read_dir(directory(home)).map_or(0, Iterator::count)
    }

    fn look(ms: u64) -> Look {
        Look { at: Duration::from_millis(ms), cpu: None, memory_bytes: Some(1) }
    }

    #[test]
    fn a_short_run_leaves_the_disk_alone_and_a_long_one_is_gone_with_its_end() {
        let home = tempfile::tempdir().unwrap();
        let mut teller = Teller::new(home.path(), call(), None);
        teller.stdout(b"hello");
        assert_eq!((files(home.path()), teller.next_look()), (0, Some(UNTOLD)));
        teller.look(look(200));
        assert_eq!((files(home.path()), teller.next_look()), (1, Some(Duration::from_millis(700))));
        let told = fs::read(directory(home.path()).join(call().to_string())).unwrap();
        assert_eq!(told.len(), HEAD + 5 + HEAD + 16);
        let live = teller.into_live().unwrap();
        assert_eq!(files(home.path()), 1);
        drop(live);
        assert_eq!(files(home.path()), 0);
    }

    /// Far more than it takes, and far less than a run does.
    #[test]
    fn a_short_run_pays_next_to_nothing_for_it() {
        let home = tempfile::tempdir().unwrap();
        let cost = |_| {
            let begun = Instant::now();
            let mut teller = Teller::new(home.path(), call(), None);
            teller.stdout(b"hello from the sandbox\n");
            assert!(teller.into_live().is_none());
            begun.elapsed()
        };
        let least = (0..1000).map(cost).min().unwrap();
        println!("a short run pays {least:?}");
        assert!(least < Duration::from_micros(50), "{least:?}");
    }

    #[test]
    fn who_prints_much_is_told_of_at_once() {
        let home = tempfile::tempdir().unwrap();
        let mut teller = Teller::new(home.path(), call(), None);
        teller.stderr(&[b'x'; UNTOLD_BYTES]);
        assert_eq!(files(home.path()), 1);
    }

    #[test]
    fn looks_become_rare_so_that_no_run_fills_the_disk_with_them() {
        let home = tempfile::tempdir().unwrap();
        let mut teller = Teller::new(home.path(), call(), None);
        let mut looks = 0;
        while let Some(next) = teller.next_look().filter(|next| next.as_secs() < 366 * 86_400) {
            teller.look(Look { at: next, cpu: None, memory_bytes: None });
            looks += 1;
        }
        assert!((1000..10_000).contains(&looks), "{looks}");
    }

    #[test]
    fn a_file_that_is_full_is_no_longer_written() {
        let home = tempfile::tempdir().unwrap();
        let mut teller = Teller::new(home.path(), call(), None);
        for _ in 0..MOST_FILE / (1 << 20) + 2 {
            teller.stdout(&vec![b'x'; 1 << 20]);
        }
        assert!(teller.next_look().is_none() && teller.into_live().is_none());
        assert_eq!(files(home.path()), 0);
    }

    #[test]
    fn what_the_dead_left_is_swept_and_what_lives_is_not() {
        let home = tempfile::tempdir().unwrap();
        let directory = directory(home.path());
        let living = Live::new(&directory, call()).unwrap();
        fs::write(directory.join("01ARZ3NDEKTSV4RRFFQ69G5FAX"), "left").unwrap();
        let other = Live::new(&directory, "01ARZ3NDEKTSV4RRFFQ69G5FAW".parse().unwrap()).unwrap();
        assert_eq!(files(home.path()), 2);
        drop((living, other));
        assert_eq!(files(home.path()), 0);
    }
}
