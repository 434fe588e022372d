//! What can go wrong when the record is written or read.

use hotcell_types::CallId;
use rusqlite::ErrorCode;

use crate::event::Kind;

/// Why something was not recorded. None of it was, then.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    #[error("too much waits to be recorded; try again")]
    Busy,
    #[error("the record is closed")]
    Closed,
    #[error("another program holds the record's database locked")]
    Locked,
    #[error("there is no space left for the record")]
    Full,
    #[error("the record cannot be written: {0}")]
    Failed(String),
    #[error("an event of kind `{0}` is not appended by itself: intents begin and finish")]
    NotByItself(Kind),
    #[error("an event of kind `{0}` needs a call")]
    NoCall(Kind),
    #[error("an event of kind `{0}` is about no row")]
    NoRow(Kind),
    #[error("call {0} was begun before")]
    AlreadyBegun(CallId),
    #[error("call {0} is not open: it was finished before, or never begun")]
    NotOpen(CallId),
    #[error("what is recorded together with rows is given back, not appended meanwhile")]
    Nested,
    #[error("what was to be recorded together with it panicked")]
    Panicked,
}

impl From<rusqlite::Error> for AppendError {
    fn from(error: rusqlite::Error) -> AppendError {
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => AppendError::Locked,
            Some(ErrorCode::DiskFull) => AppendError::Full,
            _ => AppendError::Failed(error.to_string()),
        }
    }
}

impl From<std::io::Error> for AppendError {
    fn from(error: std::io::Error) -> AppendError {
        AppendError::Failed(error.to_string())
    }
}

/// Why rows were not written: for a reason of the record's, or of whoever wanted to write them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WriteError<E> {
    #[error(transparent)]
    Append(#[from] AppendError),
    #[error("{0}")]
    Own(E),
}

/// Why something was not read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It is there, and it is not what was recorded.
    #[error("event {seq} is not what was recorded: {why}")]
    Tampered { seq: u64, why: String },
    #[error("the content of a payload is not what was recorded")]
    TamperedPayload,
    #[error("the record cannot be read")]
    Sql(#[from] rusqlite::Error),
    #[error(transparent)]
    Open(#[from] crate::db::OpenError),
    #[error("cannot write what was read")]
    Io(#[from] std::io::Error),
    #[error("nobody waits for it any more")]
    Unwanted,
}
