//! The record of hotcell: what happened, in a chain of hashes in SQLite, durable before it matters,
//! signed so that it can be proven to others, and verified by a stranger from the written format alone
//! (docs/record-format.md).
//!
//! [`Record::open`] opens a home. [`Record::begin`] records an intent before an effect and gives back an
//! [`Intent`], whose [`Intent::finish`] records what became of it; [`Record::append`] records anything
//! else. [`verify`] says whether what is there is what was recorded.

mod backup;
mod checkpoint;
mod compact;
mod db;
mod encode;
mod error;
mod event;
mod export;
mod hex;
mod house;
mod owner;
mod prepare;
mod query;
mod record;
mod recover;
mod redact;
mod retention;
mod row;
mod schema;
mod sink;
mod store;
mod verify;
mod writer;

pub use backup::{BackupError, restore};
pub use checkpoint::{BadCheckpoint, Checkpoint};
pub use compact::Compacted;
pub use db::{OpenError, OpenFault};
pub use encode::{UnknownVersion, VERSION, encode};
pub use error::{AppendError, ReadError, WriteError};
pub use event::{Draft, Event, Kind, MOST_ROW, Payload, Secret, Stated, Summary, genesis};
pub use export::{Exported, Watch, export, export_watched};
pub use hex::{BadHex, Digest, EventId, Hex, HomeId, OwnerId};
pub use prepare::{MOST_CONTENT, MOST_NAME, MOST_REASON, MOST_RULES};
pub use query::{Filter, MOST_PAGE, Run, is_told, look, statements};
pub use record::{Intent, Options, Record, now};
pub use redact::{LEAST_SECRET, MOST_PATTERNS, Pattern, Redactor};
pub use retention::{Fill, Pruned, RetentionPolicy, Size};
pub use sink::Sink;
pub use store::Receipt;
pub use verify::{Fault, From, Standing, Verdict, verify, verify_watched};
pub use writer::{Durability, LAZY_MOST, Lag, MOST_BUFFERED, MOST_WAITING};
