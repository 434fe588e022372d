//! What runs made and used, kept so that it can be proven.
//!
//! A [`Store`] has the contents, each under its own digest. The ledger, some tables of SQLite, has the
//! rows about them (name, version, owner, what they came from, tags and verdicts) and those contents that
//! are small. Every row that is added comes with a [`Statement`] for the chain, and [`verify`] compares
//! all three.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use hotcell_ledger as ledger;
//! use ledger::{By, Edge, NewArtifact, Role, Store, Type};
//! # let home = tempfile::tempdir()?;
//! # let mut conn = rusqlite::Connection::open(home.path().join("hotcell.db"))?;
//! # let tx = conn.transaction()?;
//! # ledger::migrate(&tx)?;
//! # tx.commit()?;
//!
//! let store = Store::open(&home.path().join("artifacts"))?;
//! let stored = store.hold()?.put(&b"a,1\n"[..], 1024)?;
//! let tx = conn.transaction()?;
//! let by = By { tenant: "local".parse()?, subject: "alice".parse()?, time: 0 };
//! let new = NewArtifact {
//!     by: by.clone(),
//!     call: "01ARZ3NDEKTSV4RRFFQ69G5FAV".parse()?,
//!     tool: None,
//!     name: "sorted.csv".parse()?,
//!     kind: Type::Data,
//!     role: Role::File,
//!     edges: vec![Edge::unknown_input()],
//! };
//! let (artifact, statement) = ledger::add(&tx, &stored, new)?;
//! // … the statement's digest goes into the chain …
//! tx.commit()?;
//! drop(stored); // now that a row refers to it
//!
//! let mut text = String::new();
//! std::io::Read::read_to_string(&mut store.content(&conn, &artifact.blob)?, &mut text)?;
//! assert_eq!(text, "a,1\n");
//! # Ok(())
//! # }
//! ```
//!
//! Nothing here parses or executes a content, and no name of an artifact ever becomes a path.

/// What rows are read from, and added in.
pub use rusqlite::{Connection, Transaction};

mod content;
mod digest;
mod dir;
mod error;
mod export;
mod line;
mod lineage;
mod media;
mod prune;
mod query;
mod rows;
mod schema;
mod statement;
mod store;
mod sweep;
mod verify;
mod words;
mod write;

pub use content::{Content, MAX_RANGE};
pub use digest::{BadDigest, Blob, Digest};
pub use error::{Damage, Error, StoreError};
pub use export::{Exported, MANIFEST, MAX_EXPORT, export};
pub use line::{ArtifactName, BadLine, Line, Note, Search, Source, Tag, ToolName};
pub use lineage::{Lineage, Link, MAX_LINKS, lineage};
pub use prune::{MAX_PRUNED, Prunable, Pruned, Pruning, prunable, prune};
pub use query::{
    Details, Filter, MAX_PAGE, Named, Page, Usage, find, get, is_referenced, list, search, usage,
    versions,
};
pub use rows::{Artifact, ArtifactId, BadRow, Edge, RowId, Tagging, Target, Verdict};
pub use schema::{is_current, migrate};
pub use statement::Statement;
pub use store::{Hold, MAX_BLOB, MAX_SMALL, Store, Stored};
pub use sweep::Swept;
pub use verify::{
    Counts, Fault, Table, Verified, verify, verify_contents, verify_row, verify_rows,
};
pub use words::{Aspect, Media, Relation, Role, Ruling, Type, UnknownWord};
pub use write::{
    By, MAX_CHANGES, MAX_EDGES, MAX_TAGS, NewArtifact, add, add_unkept, judge, rollback, tag, untag,
};
