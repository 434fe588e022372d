//! The database file: what may be opened, how every connection is set up, and how a new one is made.
//! Settings are read back, or there is no connection.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::hex::random_name;
use crate::schema;

/// What a connection keeps of the database in memory, in KiB. Events go to the end, and who reads them goes
/// from one to the next: more was measured to save no time.
const CACHE_KIB: i64 = 256;
/// Prepared statements that a connection keeps.
const STATEMENTS_KEPT: usize = 32;
/// Pages in the write-ahead log after which a commit moves them into the database.
const WAL_PAGES: i64 = 2000;
/// Write-ahead logs are cut to this after they were moved.
const WAL_BYTES: i64 = 64 * 1024 * 1024;
/// Pages that may be in the write-ahead log when a process first writes. Each process reads all of them, which
/// for so many takes less time than the syncs with which they are moved.
pub(crate) const WAL_FOUND: i64 = 64;
/// Pages that a process may leave there when it closes, and somebody waits for its end. The next one to write
/// moves them, while it has something else to do.
pub(crate) const WAL_LEFT: i64 = 512;
/// What stays of the file then. Writing over what is there is quicker to sync than a file that grows.
const WAL_FILE_LEFT: u64 = 1024 * 1024;
/// Before it, a reset of the write-ahead log could corrupt the database.
const SQLITE_LEAST: i32 = 3_051_003;
/// Was withdrawn.
const SQLITE_NOT: i32 = 3_052_000;

/// What helps where files cannot be used.
const CANNOT_USE: &str = "make it readable and writable for the user who runs hotcell, or name another home with \
     HOTCELL_HOME";

/// Why a home was not opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {why}")]
pub struct OpenError {
    pub fault: OpenFault,
    pub what: String,
    pub why: String,
    pub fix: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenFault {
    /// A directory, a link, a device.
    NotAFile,
    NotADatabase,
    /// A database of another program.
    Foreign,
    OtherOwner,
    /// Others than the owner can read or write it.
    OpenToOthers,
    /// A newer hotcell wrote it.
    Newer,
    /// The database is not there, and what lies beside it says that it was.
    Gone,
    /// It does not hold what it says it holds.
    Damaged,
    /// A setting was not taken.
    Setting,
    /// SQLite of a version that loses data.
    BadSqlite,
    /// The key that signs checkpoints is missing or not the one that signed the last.
    Key,
    /// Somebody else uses the home.
    InUse,
    Io,
}

impl OpenError {
    pub(crate) fn new(fault: OpenFault, path: &Path, why: &str, fix: &str) -> OpenError {
        let what = format!("cannot open `{}`", path.display());
        OpenError { fault, what, why: why.to_owned(), fix: fix.to_owned() }
    }

    pub(crate) fn io(path: &Path, error: &io::Error) -> OpenError {
        let fix = CANNOT_USE;
        OpenError::new(OpenFault::Io, path, &error.to_string(), fix)
    }

    pub(crate) fn damaged(path: &Path, why: &str) -> OpenError {
        let fix = "keep the file for inspection and restore a backup";
        OpenError::new(OpenFault::Damaged, path, why, fix)
    }

    pub(crate) fn sql(path: &Path, error: &rusqlite::Error) -> OpenError {
        let why = error.to_string();
        let (fault, fix) = match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase) => {
                (OpenFault::NotADatabase, "move the file away, or restore a backup")
            }
            Some(ErrorCode::DatabaseCorrupt) => return OpenError::damaged(path, &why),
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                (OpenFault::InUse, "end the program that holds the database locked")
            }
            // Also when there is no room for what it maps into memory.
            Some(ErrorCode::DiskFull | ErrorCode::SystemIoFailure) => {
                (OpenFault::Io, "free some space on its file system, and see that it works")
            }
            _ => (OpenFault::Io, CANNOT_USE),
        };
        OpenError::new(fault, path, &why, fix)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Write,
    Read,
}

/// Whether this SQLite may be used.
pub(crate) fn check_sqlite(path: &Path, version: i32) -> Result<(), OpenError> {
    if version >= SQLITE_LEAST && version != SQLITE_NOT {
        return Ok(());
    }
    let why = format!("SQLite {version} can corrupt databases");
    let fix = "build hotcell with the SQLite that it brings";
    Err(OpenError::new(OpenFault::BadSqlite, path, &why, fix))
}

/// Looks at the file without opening it: closing a descriptor of it would drop the locks that SQLite
/// holds elsewhere in this process. `false` if there is none.
pub(crate) fn inspect(path: &Path) -> Result<bool, OpenError> {
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(OpenError::io(path, &error)),
    };
    let refuse = |fault, why: &str, fix: &str| Err(OpenError::new(fault, path, why, fix));
    if !metadata.is_file() {
        let fix = "move it away: hotcell makes this file itself";
        return refuse(OpenFault::NotAFile, "it is not a regular file", fix);
    }
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        let fix = "run hotcell as its owner, or use another home";
        return refuse(OpenFault::OtherOwner, "it belongs to another user", fix);
    }
    if metadata.mode() & 0o077 != 0 {
        let fix = "make it private: chmod 600";
        return refuse(OpenFault::OpenToOthers, "others than its owner may use it", fix);
    }
    if metadata.len() == 0 {
        let fix = "restore a backup, or move it away to begin a new record";
        return refuse(OpenFault::NotADatabase, "it is empty", fix);
    }
    Ok(true)
}

/// A connection to a record that is there, with the tables of today.
pub(crate) fn connect(
    path: &Path,
    access: Access,
    busy: Duration,
) -> Result<Connection, OpenError> {
    check_sqlite(path, rusqlite::version_number())?;
    let sql = |error: rusqlite::Error| OpenError::sql(path, &error);
    let connection = open(path, access, busy).map_err(sql)?;
    read_back(path, &connection)?;
    let version = identify(path, &connection)?;
    if access == Access::Write {
        set_up(path, &connection)?;
        keep_name_of_wal(path, &connection)?;
        if version < schema::VERSION {
            schema::migrate(&connection, schema::STEPS).map_err(sql)?;
        }
    }
    Ok(connection)
}

/// Sees that the log's name is on the disk before anything is in it: what is committed to a file that nobody
/// finds is lost. Nobody writes to a log before it has come past here, so that the name of one with something in
/// it is there; and none is removed while a connection to it is open, as ours is by now.
fn keep_name_of_wal(path: &Path, connection: &Connection) -> Result<(), OpenError> {
    if wal(path).metadata().is_ok_and(|found| found.len() > 0) {
        return Ok(());
    }
    // A new one is made by whoever reads first.
    pragma::<i64>(connection, "user_version").map_err(|error| OpenError::sql(path, &error))?;
    sync_directory(path).map_err(|error| OpenError::io(path, &error))
}

fn open(path: &Path, access: Access, busy: Duration) -> rusqlite::Result<Connection> {
    let access = match access {
        Access::Write => OpenFlags::SQLITE_OPEN_READ_WRITE,
        Access::Read => OpenFlags::SQLITE_OPEN_READ_ONLY,
    };
    let flags = access | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(busy)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_KEPT);
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_FKEY, true)?;
    // The last to close would move and remove the log, and the next to open make it anew: see `shorten_wal`.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "cache_size", -CACHE_KIB)?;
    Ok(connection)
}

/// Moves what is in the write-ahead log into the database if it is much and nobody else is there, so that
/// the next commit begins the log anew. No more is done when a process closes: the log is as much the
/// record as the database is.
pub(crate) fn shorten_wal(connection: &Connection, path: &Path, busy: Duration, most: i64) {
    let pages = "PRAGMA wal_checkpoint(NOOP)";
    let pages = connection.query_row(pages, [], |row| row.get::<_, i64>(1));
    if pages.is_ok_and(|pages| pages <= most) {
        return;
    }
    let length = wal(path).metadata().map_or(0, |found| found.len());
    let how = if length > WAL_FILE_LEFT { "TRUNCATE" } else { "RESTART" };
    let moved = connection.busy_timeout(Duration::ZERO).and_then(|()| {
        connection.pragma_update_and_check(None, "wal_checkpoint", how, |_| Ok(()))?;
        connection.busy_timeout(busy)
    });
    // Nothing is lost if it cannot be done: the next one tries again.
    moved.ok();
}

/// The write-ahead log of a database.
pub(crate) fn wal(database: &Path) -> PathBuf {
    let mut wal = database.as_os_str().to_owned();
    wal.push("-wal");
    wal.into()
}

/// How a connection that only looks keeps out of the way of others.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Look {
    Locked,
    /// Not at all: for a database that cannot be locked and has no write-ahead log, with its length and
    /// time when it was opened, since only these tell whether somebody wrote meanwhile.
    Unlocked((u64, SystemTime)),
}

impl Look {
    /// `None` where there is a log, without which the database is only older.
    pub(crate) fn unlocked(path: &Path) -> Option<(u64, SystemTime)> {
        if wal(path).metadata().is_ok_and(|log| log.len() > 0) {
            return None;
        }
        let found = path.metadata().ok()?;
        Some((found.len(), found.modified().ok()?))
    }
}

/// A connection to any file, for a verifier. SQLite wants to write beside the database even to read it,
/// unless it is told that nobody writes.
pub(crate) fn connect_to_look(path: &Path, busy: Duration) -> rusqlite::Result<(Connection, Look)> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(busy)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    let cannot = [ErrorCode::ReadOnly, ErrorCode::CannotOpen, ErrorCode::PermissionDenied];
    let tried = pragma::<i64>(&connection, "schema_version");
    let code = tried.err().and_then(|error| error.sqlite_error_code());
    match (code.is_some_and(|code| cannot.contains(&code)), Look::unlocked(path)) {
        (true, Some(before)) => {
            let flags = flags | OpenFlags::SQLITE_OPEN_URI;
            let connection = Connection::open_with_flags(immutable(path), flags)?;
            Ok((connection, Look::Unlocked(before)))
        }
        _ => Ok((connection, Look::Locked)),
    }
}

/// The name of a file that nobody writes.
fn immutable(path: &Path) -> String {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut uri = "file:".to_owned();
    for &byte in path.as_os_str().as_bytes() {
        match byte {
            b'/' | b'.' | b'_' | b'-' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => {
                uri.push(char::from(byte));
            }
            other => uri.push_str(&format!("%{other:02X}")),
        }
    }
    uri + "?immutable=1"
}

/// Before anything is written: is this ours, and not newer than we are?
fn identify(path: &Path, connection: &Connection) -> Result<i64, OpenError> {
    let sql = |error: rusqlite::Error| OpenError::sql(path, &error);
    let application: i64 = pragma(connection, "application_id").map_err(sql)?;
    if application != schema::APPLICATION_ID {
        let why = "another program made it";
        let fix = "move it away, or use another home";
        return Err(OpenError::new(OpenFault::Foreign, path, why, fix));
    }
    let version: i64 = pragma(connection, "user_version").map_err(sql)?;
    if version > schema::VERSION {
        let why =
            format!("its tables have version {version}, this hotcell knows {}", schema::VERSION);
        let fix = "use the newer hotcell that wrote it";
        return Err(OpenError::new(OpenFault::Newer, path, &why, fix));
    }
    if version < 1 {
        return Err(OpenError::damaged(path, &format!("its tables have version {version}")));
    }
    Ok(version)
}

/// Each answers with what holds now.
fn set_up(path: &Path, connection: &Connection) -> Result<(), OpenError> {
    let sql = |error: rusqlite::Error| OpenError::sql(path, &error);
    let mode = connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0));
    let mode: String = mode.map_err(sql)?;
    if mode != "wal" {
        return Err(not_taken(path, "journal_mode", &mode));
    }
    for (name, value) in [("wal_autocheckpoint", WAL_PAGES), ("journal_size_limit", WAL_BYTES)] {
        let found = connection.pragma_update_and_check(None, name, value, |row| row.get(0));
        let found: i64 = found.map_err(sql)?;
        if found != value {
            return Err(not_taken(path, name, &found.to_string()));
        }
    }
    Ok(())
}

fn read_back(path: &Path, connection: &Connection) -> Result<(), OpenError> {
    let sql = |error: rusqlite::Error| OpenError::sql(path, &error);
    let configured = [
        ("defensive", DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true),
        ("trusted_schema", DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false),
        ("foreign_keys", DbConfig::SQLITE_DBCONFIG_ENABLE_FKEY, true),
    ];
    for (name, config, value) in configured {
        if connection.db_config(config).map_err(sql)? != value {
            return Err(not_taken(path, name, &(!value).to_string()));
        }
    }
    for (name, value) in [("synchronous", 2), ("cell_size_check", 1)] {
        let found: i64 = pragma(connection, name).map_err(sql)?;
        if found != value {
            return Err(not_taken(path, name, &found.to_string()));
        }
    }
    Ok(())
}

fn not_taken(path: &Path, name: &str, found: &str) -> OpenError {
    let why = format!("SQLite keeps `{name}` at `{found}`");
    let fix = "put the home on a local file system with locks and shared memory";
    OpenError::new(OpenFault::Setting, path, &why, fix)
}

pub(crate) fn pragma<T: rusqlite::types::FromSql>(
    connection: &Connection,
    name: &str,
) -> rusqlite::Result<T> {
    connection.pragma_query_value(None, name, |row| row.get(0))
}

/// Makes a database under another name, and gives it its own when it is complete: a process that is
/// killed leaves none, and of two that do it at once one wins.
pub(crate) fn create(
    path: &Path,
    steps: &[&str],
    fill: impl FnOnce(&Connection) -> rusqlite::Result<()>,
) -> Result<(), OpenError> {
    let io = |error: io::Error| OpenError::io(path, &error);
    let beside = path.with_extension(random_name("new").map_err(io)?);
    let made = make(&beside, steps, fill).map_err(|error| OpenError::sql(path, &error));
    let linked = made.and_then(|()| match fs::hard_link(&beside, path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(io(error)),
        _ => sync_directory(path).map_err(io),
    });
    fs::remove_file(&beside).map_err(io).and(linked)
}

fn make(
    path: &Path,
    steps: &[&str],
    fill: impl FnOnce(&Connection) -> rusqlite::Result<()>,
) -> rusqlite::Result<()> {
    let cannot = |error: io::Error| rusqlite::Error::ToSqlConversionFailure(Box::new(error));
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(cannot)?;
    let connection = open(path, Access::Write, Duration::ZERO)?;
    connection.pragma_update(None, "application_id", schema::APPLICATION_ID)?;
    schema::migrate(&connection, steps)?;
    fill(&connection)?;
    connection.close().map_err(|(_, error)| error)
}

/// So that a name that was given or taken stays so.
pub(crate) fn sync_directory(file: &Path) -> io::Result<()> {
    let directory = file.parent().unwrap_or(Path::new("."));
    fs::File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sql_04_a_sqlite_that_is_known_to_be_bad_is_refused() {
        let path = Path::new("x");
        for (version, is_good) in [
            (3_040_001, false),
            (3_051_002, false),
            (3_051_003, true),
            (3_052_000, false),
            (3_052_001, true),
            (rusqlite::version_number(), true),
        ] {
            assert_eq!(check_sqlite(path, version).is_ok(), is_good, "{version}");
        }
    }
}
