//! The key that seals the secrets of a home, as a file: `keys/secrets.key`, private, complete or not there, and
//! never behind a link. It is in no backup.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use data_encoding::HEXLOWER;
use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;
use zeroize::Zeroizing;

use crate::chance;

const DIRECTORY: &str = "keys";
const NAME: &str = "secrets.key";
/// What it is called until it is complete.
const UNFINISHED: &str = "secrets-new";
const MARK: &str = "hotcell-secrets-key 1 ";
/// Longest file, in bytes.
const MOST_FILE: u64 = 256;
/// How long another process that makes it is waited for, and how often it is looked.
const PATIENCE: Duration = Duration::from_secs(5);
const STEP: Duration = Duration::from_millis(5);

const OWN: &str =
    "make `keys` a directory of your own, with mode 700, and the key in it a file with mode 600";
const RESTORE: &str = "put it back as it was; without it, set the secrets again";

/// Never shown, and wiped when it goes.
pub struct Key(Zeroizing<[u8; 32]>);

/// Why there is no key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the key of secrets in `{}` cannot be used: {why}", .path.display())]
pub struct KeyError {
    pub path: PathBuf,
    pub why: String,
    pub fix: &'static str,
}

/// Where it lies.
pub fn path(home: &Path) -> PathBuf {
    home.join(DIRECTORY).join(NAME)
}

impl Key {
    /// The key of a home, if it has one.
    pub fn read(home: &Path) -> Result<Option<Key>, KeyError> {
        Place::open(home)?.read()
    }

    /// The key of a home, which is made if there is none.
    pub fn open(home: &Path) -> Result<Key, KeyError> {
        let place = Place::open(home)?;
        if let Some(key) = place.read()? {
            return Ok(key);
        }
        let _lock = place.lock()?;
        // Another process may have been first.
        if let Some(key) = place.read()? {
            return Ok(key);
        }
        place.make().map_err(|error| place.refuse(error, OWN))?;
        place.read()?.ok_or_else(|| place.refuse("it is gone", RESTORE))
    }

    pub(crate) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    #[cfg(test)]
    pub(crate) fn of(bytes: [u8; 32]) -> Key {
        Key(Zeroizing::new(bytes))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

/// The directory, held.
struct Place {
    path: PathBuf,
    directory: OwnedFd,
}

impl Place {
    fn open(home: &Path) -> Result<Place, KeyError> {
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
            return Err(place.refuse("others can put a key there", OWN));
        }
        Ok(place)
    }

    fn read(&self) -> Result<Option<Key>, KeyError> {
        let flags = OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(&self.directory, NAME, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            file => file.map_err(|error| self.failed(error))?,
        };
        let stat = rustix::fs::fstat(&file).map_err(|error| self.failed(error))?;
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        if !is_file || !is_ours(&stat) || stat.st_mode & 0o077 != 0 || stat.st_nlink != 1 {
            return Err(self.refuse(format!("{NAME} is not a private file of this user"), OWN));
        }
        let mut text = Zeroizing::new(String::new());
        let read = File::from(file).take(MOST_FILE).read_to_string(&mut text);
        let key = read.ok().and_then(|_| parse(&text));
        key.map(Some).ok_or_else(|| self.refuse(format!("{NAME} is not that key"), RESTORE))
    }

    /// While the lock is held. Whenever it is killed, the file is complete or not there.
    fn make(&self) -> io::Result<()> {
        match rustix::fs::unlinkat(&self.directory, UNFINISHED, AtFlags::empty()) {
            Err(error) if error != Errno::NOENT => return Err(error.into()),
            _ => {}
        }
        let flags =
            OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::WRONLY | OFlags::CLOEXEC;
        let private = Mode::RUSR | Mode::WUSR;
        let file = rustix::fs::openat(&self.directory, UNFINISHED, flags, private)?;
        let mut file = File::from(file);
        file.write_all(text(&Zeroizing::new(chance::bytes()?)).as_bytes())?;
        file.sync_all()?;
        let never_over_another = RenameFlags::NOREPLACE;
        let directory = &self.directory;
        rustix::fs::renameat_with(directory, UNFINISHED, directory, NAME, never_over_another)?;
        Ok(rustix::fs::fsync(directory)?)
    }

    /// Until it is dropped, no other process makes a key; a killed one holds nothing.
    fn lock(&self) -> Result<OwnedFd, KeyError> {
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

    fn refuse(&self, why: impl ToString, fix: &'static str) -> KeyError {
        refuse(&self.path, why, fix)
    }

    fn failed(&self, error: Errno) -> KeyError {
        self.refuse(io::Error::from(error), OWN)
    }
}

fn refuse(path: &Path, why: impl ToString, fix: &'static str) -> KeyError {
    KeyError { path: path.to_owned(), why: why.to_string(), fix }
}

fn is_ours(stat: &Stat) -> bool {
    stat.st_uid == rustix::process::geteuid().as_raw()
}

fn text(key: &[u8; 32]) -> Zeroizing<String> {
    Zeroizing::new(format!("{MARK}{}\n", *Zeroizing::new(HEXLOWER.encode(key))))
}

/// One spelling only.
fn parse(file: &str) -> Option<Key> {
    let hex = file.strip_prefix(MARK)?.strip_suffix('\n')?;
    let bytes = Zeroizing::new(HEXLOWER.decode(hex.as_bytes()).ok()?);
    let mut key = Zeroizing::new([0; 32]);
    if bytes.len() != key.len() {
        return None;
    }
    key.copy_from_slice(&bytes);
    Some(Key(key))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_home_gets_one_key_which_stays_and_is_private() {
        let home = tempfile::tempdir().unwrap();
        assert!(Key::read(home.path()).unwrap().is_none());
        let keys: Vec<_> = thread::scope(|scope| {
            let each: Vec<_> =
                (0..8).map(|_| scope.spawn(|| *Key::open(home.path()).unwrap().bytes())).collect();
            each.into_iter().map(|one| one.join().unwrap()).collect()
        });
        assert!(keys.iter().all(|key| *key == keys[0]));
        assert_eq!(Key::read(home.path()).unwrap().unwrap().bytes(), &keys[0]);
        let mode = path(home.path()).metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(!home.path().join("keys").join(UNFINISHED).exists());
        assert_eq!(format!("{:?}", Key::of([7; 32])), "Key(…)");
    }

    #[test]
    fn what_others_can_read_and_what_is_no_key_is_refused() {
        let home = tempfile::tempdir().unwrap();
        Key::open(home.path()).unwrap();
        let path = path(home.path());
        let good = std::fs::read_to_string(&path).unwrap();
        let set = |mode| std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        for mode in [0o640, 0o604, 0o620] {
            set(mode);
            assert!(Key::open(home.path()).is_err(), "{mode:o}");
        }
        set(0o600);
        for bad in [
            "".to_owned(),
            good.replace("1 ", "2 "),
            good.trim_end().to_owned(),
            format!("{good}\n"),
            good.to_uppercase(),
            format!("{MARK}00\n"),
        ] {
            std::fs::write(&path, &bad).unwrap();
            let error = Key::open(home.path()).unwrap_err().to_string();
            assert!(!error.contains(good.strip_prefix(MARK).unwrap().trim_end()), "{error}");
        }
        // What a killed process left is no key, and in nobody's way.
        std::fs::remove_file(&path).unwrap();
        std::fs::write(home.path().join("keys").join(UNFINISHED), "half").unwrap();
        Key::open(home.path()).unwrap();
        std::fs::rename(&path, home.path().join("elsewhere")).unwrap();
        symlink(home.path().join("elsewhere"), &path).unwrap();
        assert!(Key::open(home.path()).is_err(), "a link");
    }
}
