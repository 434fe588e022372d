//! Copies of a record that are whole, and the way back.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::Connection;
use rusqlite::backup::Backup;

use crate::checkpoint::{Checkpoint, Key};
use crate::db::{self, Access, OpenError, sync_directory};
use crate::error::ReadError;
use crate::hex::random_name;
use crate::owner::Alone;
use crate::record::{DATABASE, Record};
use crate::verify::{Fault, From, Standing, Verdict, last_checkpoint, verify};

/// How long a lock is waited for.
const BUSY: Duration = Duration::from_secs(5);
/// How often a copy is begun anew because a writer came between.
const TRIES: usize = 100;

/// Why there is no backup, or why it was not put in place.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error("`{path}` is not a sound record: {1}", path = .0.display())]
    Broken(PathBuf, String),
    #[error("the home is in use: end every hotcell that uses it")]
    InUse,
    #[error("the home's key did not sign this backup: restore `keys/record.key` of its home first")]
    Key,
    #[error("too much is written to make a copy")]
    Busy,
    #[error("cannot copy the record")]
    Io(#[from] io::Error),
    #[error("cannot copy the record")]
    Sql(#[from] rusqlite::Error),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Read(#[from] ReadError),
}

impl Record {
    /// Copies the record into a new file while it is written, and verifies the copy.
    pub fn backup(&self, to: &Path) -> Result<Verdict, BackupError> {
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(to)?;
        let copied = self.copy(to);
        if copied.is_err() {
            fs::remove_file(to)?;
        }
        copied
    }

    fn copy(&self, to: &Path) -> Result<Verdict, BackupError> {
        let from = db::connect(self.database(), Access::Read, BUSY)?;
        let mut copy = Connection::open(to)?;
        let backup = Backup::new(&from, &mut copy)?;
        let is_done = |step| step == rusqlite::backup::StepResult::Done;
        // All pages in one step, which is one state of the record. In WAL mode that stops no writer.
        let mut done = false;
        for _ in 0..TRIES {
            done = is_done(backup.step(-1)?);
            if done {
                break;
            }
        }
        drop(backup);
        if !done {
            return Err(BackupError::Busy);
        }
        // One file, without a write-ahead log beside it.
        copy.pragma_update_and_check(None, "journal_mode", "DELETE", |_| Ok(()))?;
        copy.close().map_err(|(_, error)| error)?;
        File::open(to)?.sync_all()?;
        sync_directory(to)?;
        is_intact(to)
    }
}

/// Puts a backup in the place of a home's record, if nobody uses the home. What was there is kept beside
/// it, under the name that is returned; with it the home's `anchor.log`, which speaks of another history
/// from now on.
pub fn restore(home: &Path, backup: &Path) -> Result<PathBuf, BackupError> {
    let home = home.canonicalize()?;
    let alone = Alone::with(&home)?.ok_or(BackupError::InUse)?;
    is_intact(backup)?;
    is_ours(&home, backup)?;
    let mark = random_name("old")?;
    let (database, beside) = (home.join(DATABASE), home.join(random_name("hotcell.db.new")?));
    fs::copy(backup, &beside)?;
    fs::set_permissions(&beside, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    File::open(&beside)?.sync_all()?;
    // The log first: without it the database is only older, with a foreign one it would be damaged.
    let kept = |name: &str| home.join(format!("{name}.{mark}"));
    let old = kept(DATABASE);
    for (name, to) in [
        ("hotcell.db-wal", home.join(format!("{DATABASE}.{mark}-wal"))),
        ("hotcell.db-shm", home.join(format!("{DATABASE}.{mark}-shm"))),
        ("anchor.log", kept("anchor.log")),
        (DATABASE, old.clone()),
    ] {
        match fs::rename(home.join(name), to) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
    }
    fs::rename(&beside, &database)?;
    sync_directory(&database)?;
    drop(alone);
    Ok(old)
}

/// A backup has no anchor of its own; nothing else may be missing.
fn is_intact(path: &Path) -> Result<Verdict, BackupError> {
    let verdict = verify(path, None, From::Start);
    let why = match (&verdict.fault, verdict.missing.as_slice(), verdict.standing) {
        (Some(Fault { .. }), _, _) => verdict.fault.as_ref().map(Fault::to_string),
        (None, [_only_the_anchor], Standing::Unproven) => None,
        (None, missing, _) => Some(missing.join("; ")),
    };
    match why {
        Some(why) => Err(BackupError::Broken(path.to_owned(), why)),
        None => Ok(verdict),
    }
}

fn is_ours(home: &Path, backup: &Path) -> Result<(), BackupError> {
    let key = Key::open(home)?;
    let connection =
        Connection::open_with_flags(backup, rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    let last = last_checkpoint(&connection)?.and_then(|line| line.parse::<Checkpoint>().ok());
    if last.is_some_and(|last| last.key == key.public()) { Ok(()) } else { Err(BackupError::Key) }
}
