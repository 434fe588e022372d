//! Contents by their digest. Small ones go into the ledger with the row that refers to them, and cost no
//! sync of their own. The others are in a directory: `ab/cdef…`, read-only, each written beside, synced
//! and renamed, so that a name is there with its whole content or not at all.

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

use crate::digest::{Blob, Digest};
use crate::dir::{self, Partial};
use crate::error::StoreError;
use crate::media::HEAD;
use crate::words::Media;

/// Largest content, whatever a caller allows.
pub const MAX_BLOB: u64 = 64 * 1024 * 1024 * 1024;
/// Largest content that is kept in the ledger itself.
pub const MAX_SMALL: u64 = 64 * 1024;
/// How long to wait for others who use the store, and how often to look.
const LOCKED_FOR: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// How much is copied at once.
const COPIED: usize = 128 * 1024;

/// The directory of contents. Several processes may use it at once, and clones share it.
#[derive(Debug, Clone)]
pub struct Store {
    pub(crate) dir: Arc<OwnedFd>,
    /// First bytes of digests whose directory this process knows to be on disk.
    synced: Arc<Mutex<BTreeSet<u8>>>,
}

/// The right to put contents. While there is one, in any process, nothing is swept: what was put and is
/// not referenced yet stays. It needs one descriptor, however many contents are put.
#[derive(Debug)]
pub struct Hold {
    store: Store,
    lock: Arc<Lock>,
}

/// A content that can be referred to: a large one is on disk, and a small one comes along with its row.
/// Keep it until that row is committed, and the content cannot be swept before.
#[derive(Debug, Clone)]
pub struct Stored {
    blob: Blob,
    media: Media,
    place: Place,
}

#[derive(Debug, Clone)]
enum Place {
    Ledger(Arc<[u8]>),
    File {
        #[expect(dead_code, reason = "keeps the content from being swept")]
        lock: Arc<Lock>,
    },
}

/// Whoever has one has locked the store; the kernel ends it with its last descriptor.
#[derive(Debug)]
pub(crate) struct Lock {
    #[expect(dead_code, reason = "the lock belongs to the descriptor")]
    fd: OwnedFd,
}

impl Stored {
    /// A content of at most [`MAX_SMALL`] bytes, which needs no store; others come back.
    pub fn small(bytes: Vec<u8>) -> Result<Stored, Vec<u8>> {
        if bytes.len() as u64 > MAX_SMALL {
            return Err(bytes);
        }
        let blob = Blob::of(&bytes);
        Ok(Stored { blob, media: Media::guess(&bytes), place: Place::Ledger(bytes.into()) })
    }

    /// What is to be written with the row.
    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        match &self.place {
            Place::Ledger(bytes) => Some(bytes),
            Place::File { .. } => None,
        }
    }

    pub fn blob(&self) -> Blob {
        self.blob
    }

    /// A guess from the first bytes.
    pub fn media(&self) -> Media {
        self.media
    }
}

impl Store {
    /// Opens the directory, made if it is not there. Refused if it belongs to somebody else or if others
    /// may write to it.
    pub fn open(path: &Path) -> Result<Store, StoreError> {
        let dir = dir::open_or_make(path).map_err(StoreError::io("open the artifact store"))?;
        Ok(Store { dir: Arc::new(dir), synced: Arc::default() })
    }

    /// Keeps everything from being swept, also what nothing refers to yet.
    pub fn hold(&self) -> Result<Hold, StoreError> {
        let lock = self.lock(FlockOperation::NonBlockingLockShared)?;
        Ok(Hold { store: self.clone(), lock: Arc::new(lock) })
    }

    fn place(&self, mut partial: Partial<'_>, blob: &Blob) -> io::Result<()> {
        let (shard, rest) = halves(&blob.digest);
        match rustix::fs::mkdirat(&self.dir, &shard, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
        let shard = dir::open_beneath(&self.dir, &shard, OFlags::DIRECTORY)?;
        let is_there = || is_there(&shard, &rest, blob.size);
        if !is_there() {
            partial.file.sync_all()?;
            match partial.place(&shard, &rest) {
                // Somebody else was faster, and others may be reading theirs.
                Err(Errno::EXIST) if is_there() => {}
                // It is damaged.
                Err(Errno::EXIST) => partial.replace(&shard, &rest)?,
                placed => placed?,
            }
        }
        // Also what another process has just put, and maybe not synced yet.
        rustix::fs::fsync(&shard)?;
        self.sync_once(blob)
    }

    /// A new directory is on disk when the one above it is.
    fn sync_once(&self, blob: &Blob) -> io::Result<()> {
        let [first, ..] = blob.digest.to_bytes();
        if !self.synced.lock().unwrap_or_else(PoisonError::into_inner).contains(&first) {
            rustix::fs::fsync(&self.dir)?;
            self.synced.lock().unwrap_or_else(PoisonError::into_inner).insert(first);
        }
        Ok(())
    }

    /// Locks the directory itself, by a descriptor of its own.
    pub(crate) fn lock(&self, how: FlockOperation) -> Result<Lock, StoreError> {
        let locking = |errno: Errno| StoreError::io("lock the artifact store")(errno.into());
        let fd = dir::open_beneath(&*self.dir, ".", OFlags::DIRECTORY).map_err(locking)?;
        let deadline = Instant::now() + LOCKED_FOR;
        loop {
            match rustix::fs::flock(&fd, how) {
                Ok(()) => return Ok(Lock { fd }),
                Err(Errno::INTR) => {}
                Err(Errno::WOULDBLOCK) if Instant::now() < deadline => thread::sleep(LOOK_EVERY),
                Err(Errno::WOULDBLOCK) => return Err(StoreError::Busy),
                Err(errno) => return Err(locking(errno)),
            }
        }
    }
}

impl Hold {
    /// Stores a content of at most `most` bytes. When this returns, it is on stable storage, unless it is
    /// small; when it fails, nothing half-written is left.
    pub fn put(&self, mut source: impl Read, most: u64) -> Result<Stored, StoreError> {
        let most = most.min(MAX_BLOB);
        let mut begin = Vec::new();
        source.by_ref().take(MAX_SMALL + 1).read_to_end(&mut begin).map_err(StoreError::Source)?;
        if begin.len() as u64 > most {
            return Err(StoreError::TooLarge { most });
        }
        match Stored::small(begin) {
            Ok(small) => Ok(small),
            Err(begin) => self.put_file(begin.chain(source), most),
        }
    }

    fn put_file(&self, source: impl Read, most: u64) -> Result<Stored, StoreError> {
        let writing = StoreError::io("write an artifact");
        let mut partial = Partial::create(&self.store.dir, Mode::RUSR).map_err(writing)?;
        let (blob, media) = copy(source, &mut partial.file, most)?;
        self.store.place(partial, &blob).map_err(StoreError::io("store an artifact"))?;
        Ok(Stored { blob, media, place: Place::File { lock: Arc::clone(&self.lock) } })
    }
}

/// The directory and the name of a content.
pub(crate) fn halves(digest: &Digest) -> (String, String) {
    let mut shard = digest.to_string();
    let rest = shard.split_off(2);
    (shard, rest)
}

/// Whether the content is there already. One of another size is damaged, and replaced.
fn is_there(shard: &OwnedFd, name: &str, size: u64) -> bool {
    let file = dir::open_beneath(shard, name, OFlags::empty());
    file.and_then(dir::plain_size) == Ok(Some(size))
}

fn copy(
    mut source: impl Read,
    target: &mut impl Write,
    most: u64,
) -> Result<(Blob, Media), StoreError> {
    let mut hasher = Sha256::new();
    let mut head = Vec::with_capacity(HEAD);
    let mut size = 0_u64;
    let mut buffer = vec![0; COPIED];
    loop {
        let length = match source.read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            other => other.map_err(StoreError::Source)?,
        };
        let chunk = buffer.get(..length).unwrap_or_default();
        if chunk.is_empty() {
            let blob = Blob { digest: Digest::finish(hasher), size };
            return Ok((blob, Media::guess(&head)));
        }
        size = size.saturating_add(chunk.len() as u64);
        if size > most {
            return Err(StoreError::TooLarge { most });
        }
        head.extend(chunk.iter().take(HEAD - head.len()));
        hasher.update(chunk);
        target.write_all(chunk).map_err(StoreError::io("write an artifact"))?;
    }
}
