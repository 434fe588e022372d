//! Keys as files: `keys/bearer-N.key` of a home, private, complete or not there, and never behind a link.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use hmac::{Hmac, KeyInit};
use hotcell_types::hex;
use rustix::fs::{AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;
use sha2::Sha256;

use crate::id::random;
use crate::ring::{MAX_KEYS, RingError};

const DIRECTORY: &str = "keys";
/// What a file is called until it is complete.
const UNFINISHED: &str = "bearer-new";
/// What a file begins with.
const MARK: &str = "hotcell-bearer-key 1 ";
/// Longest file, in bytes.
const MAX_FILE: u64 = 256;
/// How long another process that makes a key is waited for, and how often it is looked.
const PATIENCE: Duration = Duration::from_secs(5);
const STEP: Duration = Duration::from_millis(5);

const OWN: &str = "make it a directory of your own, with mode 700, and its keys with mode 600";
const RESTORE: &str =
    "restore it from a backup, or remove it: what it signed is then worth nothing";

/// The directory, held.
#[derive(Debug)]
pub(crate) struct Place {
    path: PathBuf,
    directory: OwnedFd,
}

/// A key and what its file says of it.
pub(crate) struct KeyFile {
    pub(crate) terms: Terms,
    pub(crate) hmac: Hmac<Sha256>,
}

/// Its number, and from which number on and until when older keys are good.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    pub(crate) number: u32,
    pub(crate) oldest: u32,
    pub(crate) older_until: i64,
}

impl Place {
    pub(crate) fn open(home: &Path) -> Result<Place, RingError> {
        let path = home.join(DIRECTORY);
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
        let opened = match rustix::fs::mkdir(&path, Mode::RWXU) {
            Err(error) if error != Errno::EXIST => Err(error),
            _ => rustix::fs::open(&path, flags, Mode::empty()),
        };
        let directory = opened.map_err(|error| refuse(&path, io::Error::from(error), OWN))?;
        let place = Place { path, directory };
        let stat = rustix::fs::fstat(&place.directory).map_err(|error| place.failed(error))?;
        if !is_ours(&stat) || stat.st_mode & 0o022 != 0 {
            return Err(place.refuse("others can put keys there", OWN));
        }
        Ok(place)
    }

    /// All that are there.
    pub(crate) fn load(&self) -> Result<Vec<KeyFile>, RingError> {
        let mut files = Vec::new();
        let entries = Dir::read_from(&self.directory).map_err(|error| self.failed(error))?;
        for entry in entries {
            let entry = entry.map_err(|error| self.failed(error))?;
            let name = entry.file_name().to_str().ok();
            let Some(number) = name.and_then(number_of) else { continue };
            files.extend(self.read(number)?);
            if files.len() > MAX_KEYS {
                let why = format!("there are more than {MAX_KEYS}");
                return Err(self.refuse(why, "remove those that were put there"));
            }
        }
        Ok(files)
    }

    /// `None` if it is gone, as one that is good for nothing may be at any time.
    fn read(&self, number: u32) -> Result<Option<KeyFile>, RingError> {
        let flags = OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(&self.directory, name(number), flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            file => file.map_err(|error| self.failed(error))?,
        };
        let stat = rustix::fs::fstat(&file).map_err(|error| self.failed(error))?;
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        if !is_file || !is_ours(&stat) || stat.st_mode & 0o077 != 0 {
            let why = format!("{} is not a private file of this user", name(number));
            return Err(self.refuse(why, OWN));
        }
        let mut text = String::new();
        let read = File::from(file).take(MAX_FILE).read_to_string(&mut text);
        let key = read.ok().and_then(|_| KeyFile::parse(number, &text));
        let not_it = || self.refuse(format!("{} is not that key", name(number)), RESTORE);
        key.map(Some).ok_or_else(not_it)
    }

    pub(crate) fn has(&self, number: u32) -> Result<bool, RingError> {
        match rustix::fs::statat(&self.directory, name(number), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(self.failed(error)),
        }
    }

    pub(crate) fn remove(&self, number: u32) -> Result<(), RingError> {
        self.unlink(&name(number))
    }

    fn unlink(&self, name: &str) -> Result<(), RingError> {
        match rustix::fs::unlinkat(&self.directory, name, AtFlags::empty()) {
            Err(error) if error != Errno::NOENT => Err(self.failed(error)),
            _ => Ok(()),
        }
    }

    /// While the lock is held. Whenever it is killed, the file is complete or not there.
    pub(crate) fn make(&self, terms: Terms) -> Result<(), RingError> {
        self.unlink(UNFINISHED)?;
        self.write(terms).map_err(|error| self.refuse(error, OWN))
    }

    fn write(&self, terms: Terms) -> io::Result<()> {
        let flags =
            OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::WRONLY | OFlags::CLOEXEC;
        let private = Mode::RUSR | Mode::WUSR;
        let file = rustix::fs::openat(&self.directory, UNFINISHED, flags, private)?;
        let mut file = File::from(file);
        file.write_all(terms.text(&random()?).as_bytes())?;
        file.sync_all()?;
        let (directory, name) = (&self.directory, name(terms.number));
        let never_over_another = RenameFlags::NOREPLACE;
        rustix::fs::renameat_with(directory, UNFINISHED, directory, name, never_over_another)?;
        Ok(rustix::fs::fsync(directory)?)
    }

    /// Until it is dropped, no other process makes a key; a killed one holds nothing.
    pub(crate) fn lock(&self) -> Result<OwnedFd, RingError> {
        // A lock belongs to what was opened, and this is opened anew.
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let own = rustix::fs::openat(&self.directory, ".", flags, Mode::empty());
        let own = own.map_err(|error| self.failed(error))?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            match rustix::fs::flock(&own, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(own),
                Err(Errno::WOULDBLOCK) if Instant::now() < deadline => thread::sleep(STEP),
                Err(error) => return Err(self.failed(error)),
            }
        }
    }

    pub(crate) fn gone(&self) -> RingError {
        self.refuse("they are gone", RESTORE)
    }

    pub(crate) fn refuse(&self, why: impl ToString, fix: &'static str) -> RingError {
        refuse(&self.path, why, fix)
    }

    fn failed(&self, error: Errno) -> RingError {
        self.refuse(io::Error::from(error), OWN)
    }
}

fn refuse(path: &Path, why: impl ToString, fix: &'static str) -> RingError {
    RingError { path: path.to_owned(), why: why.to_string(), fix }
}

fn is_ours(stat: &Stat) -> bool {
    stat.st_uid == rustix::process::geteuid().as_raw()
}

fn name(number: u32) -> String {
    format!("bearer-{number}.key")
}

fn number_of(file: &str) -> Option<u32> {
    let number = file.strip_prefix("bearer-")?.strip_suffix(".key")?.parse().ok()?;
    (name(number) == file).then_some(number)
}

impl Terms {
    fn text(self, key: &[u8; 32]) -> String {
        let Terms { number, oldest, older_until } = self;
        let key = hex::text(key);
        format!("{MARK}number={number} oldest={oldest} older_until={older_until} key={key}\n")
    }
}

impl KeyFile {
    /// One spelling only, and of that number.
    fn parse(number: u32, text: &str) -> Option<KeyFile> {
        let mut words = text.strip_prefix(MARK)?.strip_suffix('\n')?.split(' ').skip(1);
        let mut value = |name: &str| words.next()?.strip_prefix(name)?.strip_prefix('=');
        let oldest = value("oldest")?.parse().ok()?;
        let older_until = value("older_until")?.parse().ok()?;
        let key = hex::parse(value("key")?)?;
        let terms = Terms { number, oldest, older_until };
        let hmac = Hmac::new_from_slice(&key).ok()?;
        (terms.text(&key) == text).then_some(KeyFile { terms, hmac })
    }
}
