//! A home in one file, and a home from one. The record, its key, its anchor and all contents are in it; the
//! configuration is not, and the keys of tokens and of secrets are not either.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use hotcell_record::{
    Draft, Durability, From, Kind, Options, Record, Standing, Verdict, now, verify,
};
use hotcell_sandbox::cause;
use hotcell_types::{Caller, Status, hex};
use rustix::fs::{CWD, FlockOperation, OFlags, RenameFlags, flock, renameat_with};

use crate::archive::{Entry, Reader, Writer};
use crate::artifacts::{Checked, DIRECTORY, verify_artifacts};
use crate::engine::{Anchor, Engine};
use crate::keys::revoke_restored;
use crate::policy::install::put_copy;
use crate::reply::{Problem, ProblemKind};
use crate::secrets::remove_restored;

/// The first file of a backup, and what is in it.
const MARK: (&str, &str) = ("hotcell-backup", "1\n");
const DATABASE: &str = "hotcell.db";
const ANCHOR: &str = "anchor.log";
/// Not those of tokens: what was used or revoked since would be good again. A restored home makes new ones,
/// and no token of before is worth anything there.
const KEYS: [&str; 2] = ["keys/record.key", "keys/record.pub"];
/// Largest key, and largest anchor: a million checkpoints.
const MOST_KEY: u64 = 4096;
const MOST_ANCHOR: u64 = 512 * 1024 * 1024;
/// Largest record, and largest content.
const MOST_FILE: u64 = 1 << 40;
/// Most files of a backup.
const MOST_FILES: u64 = 100_000_000;

/// What was copied.
#[derive(Debug)]
pub struct BackedUp {
    pub verdict: Verdict,
    pub contents: u64,
    pub bytes: u64,
}

/// What was put back, and what was found there.
#[derive(Debug)]
pub struct Restored {
    pub verdict: Verdict,
    pub artifacts: Checked,
}

impl Engine {
    /// Copies the home into a new file while others write. What began before it is in it as a whole.
    pub fn backup(&self, caller: &Caller, to: &Path) -> Result<BackedUp, Problem> {
        let record = self.recording()?;
        let mut file = OpenOptions::new();
        let file = file.write(true).create_new(true).mode(0o600).open(to).map_err(|error| {
            let what = format!("`{}` cannot be made", to.display());
            let kind = match error.kind() {
                io::ErrorKind::AlreadyExists => ProblemKind::Invalid,
                _ => ProblemKind::Error,
            };
            let fix = "give a file that is not there yet, in a directory that you can write to";
            Problem::new(what, cause(&error), fix).of(kind)
        })?;
        let copied = note(record, caller, "backup", "a copy of the home was made")
            .and_then(|()| self.copy(record, file));
        if copied.is_err() {
            // Half a backup is none.
            fs::remove_file(to).ok();
        }
        copied
    }

    fn copy(&self, record: &Record, file: File) -> Result<BackedUp, Problem> {
        // Nothing is swept from now on.
        let held = self.artifacts.store().and_then(|store| store.hold());
        let held = held.map_err(|error| not_copied(&error.to_string()))?;
        // So that the copy has all that is in an anchor elsewhere, unless others go on.
        record.checkpoint().map_err(|error| not_copied(&error.to_string()))?;
        // Before the record: whatever is in the anchor is then in the record as well.
        let anchor = self.anchor().anchor(self.home()).map(|path| whole_lines(&path)).transpose();
        let anchor = anchor.map_err(|e| not_copied(&cause(&e)))?.unwrap_or_default();
        let staging = Staging::new(self.home()).map_err(|error| not_copied(&cause(&error)))?;
        let database = staging.path(DATABASE);
        let verdict = record.backup(&database).map_err(|error| not_copied(&error.to_string()))?;
        let packed = || {
            let mut writer = Writer::new(BufWriter::new(file));
            writer.file(MARK.0, MARK.1.len() as u64, MARK.1.as_bytes())?;
            writer.file(ANCHOR, anchor.len() as u64, anchor.as_slice())?;
            for key in KEYS {
                pack(&mut writer, key, &self.home().join(key))?;
            }
            let mut copied = BackedUp { verdict, contents: 0, bytes: 0 };
            for_each_content(&self.home().join(DIRECTORY), |name, path| {
                copied.bytes += pack(&mut writer, name, path)?;
                copied.contents += 1;
                Ok(())
            })?;
            copied.bytes += pack(&mut writer, DATABASE, &database)?;
            writer.end()?.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
            Ok(copied)
        };
        let packed = packed().map_err(|error: io::Error| not_copied(&cause(&error)));
        drop(held);
        packed
    }
}

/// Makes a home from a backup: one that is new, or has nothing recorded. It is verified before it is put
/// in place, also against the anchor that is used from now on.
pub fn restore(
    caller: &Caller,
    home: &Path,
    anchor: &Anchor,
    from: &Path,
) -> Result<Restored, Problem> {
    let failed = |error: &io::Error| {
        let fix = "see that the home can be written and has room";
        Problem::new("the home cannot be restored", cause(error), fix)
    };
    let file = open_backup(from).map_err(|error| {
        let what = format!("`{}` cannot be read", from.display());
        Problem::new(what, cause(&error), "give a backup").of(ProblemKind::Invalid)
    })?;
    DirBuilder::new().recursive(true).mode(0o700).create(home).map_err(|e| failed(&e))?;
    must_be_empty(home)?;
    let staging = Staging::new(home).map_err(|error| failed(&error))?;
    unpack(&staging, BufReader::new(file)).map_err(|error| {
        let what = format!("`{}` is not a whole backup", from.display());
        let is_disk = matches!(
            error.kind(),
            io::ErrorKind::StorageFull
                | io::ErrorKind::QuotaExceeded
                | io::ErrorKind::PermissionDenied
        );
        if is_disk {
            return failed(&error);
        }
        Problem::new(what, cause(&error), "give another copy of it").of(ProblemKind::Invalid)
    })?;
    check(&staging, &staging.path(ANCHOR))?;
    if let Anchor::File(elsewhere) = anchor {
        check(&staging, elsewhere).map_err(|problem| {
            let fix = "it has what was recorded after the backup was made: restore a newer one, or \
                       name another anchor in config.toml if that is to be given up";
            let what = format!("the anchor `{}` speaks against it", elsewhere.display());
            Problem { what, fix: fix.into(), ..problem }
        })?;
    }
    for name in [DIRECTORY, "keys", ANCHOR, DATABASE] {
        let (from, to) = (staging.path(name), home.join(name));
        if from.exists() {
            renameat_with(CWD, &from, CWD, &to, RenameFlags::NOREPLACE)
                .map_err(|errno| failed(&errno.into()))?;
        }
    }
    sync(home).map_err(|error| failed(&error))?;
    drop(staging);
    // Calls that went on when the copy was made are closed with this.
    let record = Record::open(home, Options { sink: anchor.clone(), ..Options::default() });
    let record = record.map_err(|error| failed(&io::Error::other(error)))?;
    note(&record, caller, "restore", "the home was restored from a backup")?;
    revoke_restored(&record, caller)?;
    remove_restored(&record, caller)?;
    put_copy(&record, home)?;
    record.close().map_err(|error| failed(&io::Error::other(error)))?;
    let verdict = verify(&home.join(DATABASE), anchor.anchor(home).as_deref(), From::Start);
    Ok(Restored { verdict, artifacts: verify_artifacts(home)? })
}

/// Without waiting for whoever may write into a FIFO.
fn open_backup(from: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(from)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    Ok(file)
}

fn must_be_empty(home: &Path) -> Result<(), Problem> {
    for name in [DATABASE, "hotcell.db-wal", ANCHOR, "keys", DIRECTORY] {
        // A broken link is something as well.
        if fs::symlink_metadata(home.join(name)).is_ok() {
            let what = format!("the home `{}` is not empty", home.display());
            let why = format!("`{name}` is there, and nothing is written over");
            let fix = "name another home with HOTCELL_HOME, or move this one away";
            return Err(Problem::new(what, why, fix).of(ProblemKind::Invalid));
        }
    }
    Ok(())
}

/// Is it what was recorded?
fn check(staging: &Staging, anchor: &Path) -> Result<(), Problem> {
    let verdict = verify(&staging.path(DATABASE), Some(anchor), From::Start);
    let fault = verdict.fault.filter(|_| verdict.standing == Standing::Broken);
    let fault = fault.map(|fault| fault.to_string());
    let artifacts = verify_artifacts(&staging.path)?;
    match fault.or_else(|| artifacts.told.first().cloned()) {
        None => Ok(()),
        Some(fault) => {
            let fix = "give another copy of it; nothing was put in place";
            Err(Problem::new("the backup is not what was recorded", fault, fix))
        }
    }
}

fn note(record: &Record, caller: &Caller, operation: &str, said: &str) -> Result<(), Problem> {
    let draft = Draft {
        operation: Some(operation.into()),
        reason: Some(said.into()),
        status: Some(Status::Success),
        ..Draft::new(Kind::Note, caller.clone(), now())
    };
    let noted = record.append(draft, Durability::Synced);
    noted.map(drop).map_err(|error| {
        let fix = "make room for the record, or repair it: `hotcell audit verify`";
        Problem::new("it could not be recorded", error.to_string(), fix)
    })
}

fn not_copied(why: &str) -> Problem {
    let fix =
        "see that both places have room; `hotcell audit verify` says what is wrong with a record";
    Problem::new("the home cannot be copied", why, fix)
}

/// A line that is just being written is not in the record's copy either.
fn whole_lines(path: &Path) -> io::Result<Vec<u8>> {
    let mut lines = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        file => {
            let mut lines = Vec::new();
            file?.take(MOST_ANCHOR).read_to_end(&mut lines)?;
            lines
        }
    };
    let end = lines.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
    lines.truncate(end);
    Ok(lines)
}

fn pack(writer: &mut Writer<impl Write>, name: &str, path: &Path) -> io::Result<u64> {
    let file = File::open(path)?;
    let size = file.metadata()?.len();
    writer.file(name, size, file)?;
    Ok(size)
}

/// With its name in a backup. What has another name than a content's is left alone.
pub(crate) fn for_each_content(
    store: &Path,
    mut each: impl FnMut(&str, &Path) -> io::Result<()>,
) -> io::Result<()> {
    for shard in fs::read_dir(store)? {
        let shard = shard?;
        if !shard.file_type()?.is_dir() {
            continue;
        }
        for content in fs::read_dir(shard.path())? {
            let content = content?;
            let (shard, rest) = (shard.file_name(), content.file_name());
            let name = format!("{DIRECTORY}/{}/{}", shard.display(), rest.display());
            if place(&name) == Some(Place::Content) {
                each(&name, &content.path())?;
            }
        }
    }
    Ok(())
}

/// What a file of a backup is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Mark,
    Anchor,
    Key,
    Content,
    Database,
}

impl Place {
    fn most(self) -> u64 {
        match self {
            Place::Mark => MARK.1.len() as u64,
            Place::Key => MOST_KEY,
            Place::Anchor => MOST_ANCHOR,
            Place::Content | Place::Database => MOST_FILE,
        }
    }
}

/// Nothing but these names ever becomes a path.
fn place(name: &str) -> Option<Place> {
    match name {
        name if name == MARK.0 => Some(Place::Mark),
        ANCHOR => Some(Place::Anchor),
        DATABASE => Some(Place::Database),
        name if KEYS.contains(&name) => Some(Place::Key),
        name => {
            let (shard, rest) = name.strip_prefix(DIRECTORY)?.strip_prefix('/')?.split_once('/')?;
            let is_hex = |text: &str, length| {
                text.len() == length
                    && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
            };
            (is_hex(shard, 2) && is_hex(rest, 62)).then_some(Place::Content)
        }
    }
}

fn unpack(staging: &Staging, source: impl Read) -> io::Result<()> {
    walk(source, |name, place| {
        let path = staging.path(name);
        if let Some(above) = path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(above)?;
        }
        let mode = if place == Place::Content { 0o400 } else { 0o600 };
        OpenOptions::new().write(true).create_new(true).mode(mode).open(&path)
    })?;
    sync(&staging.path)
}

/// Every file of a backup, into what is opened for it. The mark goes nowhere.
fn walk<W: Write>(
    source: impl Read,
    mut open: impl FnMut(&str, Place) -> io::Result<W>,
) -> io::Result<()> {
    let bad = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
    let mut reader = Reader::new(source);
    let mut has_database = false;
    let mut files = 0;
    while let Some(entry) = reader.next()? {
        let Entry { name, size } = &entry;
        let place = place(name).filter(|place| (*place == Place::Mark) == (files == 0));
        let place = place.ok_or_else(|| bad(format!("`{name}` is not a part of one")))?;
        files += 1;
        if *size > place.most() || files > MOST_FILES {
            return Err(bad(format!("`{name}` is too large, or one file too many")));
        }
        if place == Place::Mark {
            let mut mark = Vec::new();
            reader.content(&entry, &mut mark)?;
            if mark != MARK.1.as_bytes() {
                return Err(bad("a newer hotcell made it".into()));
            }
            continue;
        }
        reader.content(&entry, &mut open(name, place)?)?;
        has_database |= place == Place::Database;
    }
    if has_database { Ok(()) } else { Err(bad("there is no record in it".into())) }
}

/// For the fuzz targets: what a restore would take of a backup, by name, without a disk.
#[doc(hidden)]
pub fn names_in_backup(backup: &[u8]) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    walk(backup, |name, _| {
        names.push(name.to_owned());
        Ok(io::sink())
    })?;
    Ok(names)
}

/// Everything on the file system of the directory.
fn sync(directory: &Path) -> io::Result<()> {
    Ok(rustix::fs::syncfs(File::open(directory)?)?)
}

/// A directory below a home that goes away by itself, locked for as long as it is used.
struct Staging {
    path: PathBuf,
    #[expect(dead_code, reason = "the lock belongs to the descriptor")]
    lock: File,
}

impl Staging {
    const PREFIX: &str = "copy-";

    fn new(home: &Path) -> io::Result<Staging> {
        let mut chance = [0; 8];
        rustix::rand::getrandom(&mut chance, rustix::rand::GetRandomFlags::empty())?;
        let name = format!("{}{}", Staging::PREFIX, hex::text(&chance));
        let path = home.join("run").join(name);
        DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
        let lock = File::open(&path)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Staging { path, lock })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // What stays is free, and swept with the next collection.
        fs::remove_dir_all(&self.path).ok();
    }
}

/// Removes what copies left whose process was killed.
pub(crate) fn sweep(home: &Path) -> io::Result<()> {
    for entry in fs::read_dir(home.join("run"))? {
        let entry = entry?;
        if !entry.file_name().as_encoded_bytes().starts_with(Staging::PREFIX.as_bytes()) {
            continue;
        }
        let lock = File::open(entry.path())?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_copy_left_is_swept_and_one_that_goes_on_is_not() {
        let home = tempfile::tempdir().unwrap();
        let living = Staging::new(home.path()).unwrap();
        fs::create_dir_all(home.path().join("run/copy-dead/keys")).unwrap();
        sweep(home.path()).unwrap();
        assert!(living.path.exists() && !home.path().join("run/copy-dead").exists());
        drop(living);
        assert_eq!(fs::read_dir(home.path().join("run")).unwrap().count(), 0);
    }

    #[test]
    fn no_name_leads_anywhere_else() {
        let rest = "0".repeat(62);
        for (name, expected) in [
            ("hotcell.db", Some(Place::Database)),
            ("keys/record.key", Some(Place::Key)),
            ("keys/bearer-1.key", None),
            (&format!("artifacts/ab/{rest}"), Some(Place::Content)),
            (&format!("artifacts/../{rest}"), None),
            (&format!("artifacts/ab/../{}", "0".repeat(59)), None),
            (&format!("artifacts/AB/{rest}"), None),
            ("/hotcell.db", None),
            ("../hotcell.db", None),
            ("config.toml", None),
            ("keys/../config.toml", None),
            ("", None),
        ] {
            assert_eq!(place(name), expected, "{name}");
        }
    }
}
