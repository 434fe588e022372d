//! A home with a store, a ledger and what a chain would know of it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use hotcell_ledger::{
    Artifact, ArtifactId, By, Counts, Digest, Edge, MAX_SMALL, NewArtifact, Role, RowId, Statement,
    Store, Stored, Type, add, migrate,
};
use hotcell_types::{CallId, Name};
use rusqlite::Connection;

pub(crate) struct Home {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) conn: Connection,
    pub(crate) store: Store,
    pub(crate) chain: Chain,
}

/// The digests of all statements.
#[derive(Default)]
pub(crate) struct Chain(pub(crate) HashMap<RowId, Digest>);

impl Chain {
    pub(crate) fn take(&mut self, statement: &Statement) {
        assert_eq!(self.0.insert(statement.row(), statement.digest()), None);
    }

    pub(crate) fn counts(&self) -> Counts {
        let count = |is: fn(&RowId) -> bool| self.0.keys().filter(|row| is(row)).count() as u64;
        Counts {
            artifacts: count(|row| matches!(row, RowId::Artifact(_))),
            taggings: count(|row| matches!(row, RowId::Tagging(_))),
            verdicts: count(|row| matches!(row, RowId::Verdict(_))),
            prunings: count(|row| matches!(row, RowId::Pruning(_))),
        }
    }
}

impl Home {
    pub(crate) fn new() -> Home {
        let dir = tempfile::tempdir().unwrap();
        let (conn, store) = open(dir.path());
        Home { dir, conn, store, chain: Chain::default() }
    }

    pub(crate) fn put(&self, content: &[u8]) -> Stored {
        self.store.hold().unwrap().put(content, 1 << 30).unwrap()
    }

    /// As large as what is in a file at least is.
    pub(crate) fn put_large(&self, begin: &[u8]) -> Stored {
        self.put(&large(begin))
    }

    pub(crate) fn add(&mut self, name: &str, content: &[u8]) -> Artifact {
        self.add_with(content, new(name))
    }

    pub(crate) fn add_from(&mut self, name: &str, content: &[u8], edges: Vec<Edge>) -> Artifact {
        self.add_with(content, NewArtifact { edges, ..new(name) })
    }

    pub(crate) fn add_with(&mut self, content: &[u8], new: NewArtifact) -> Artifact {
        let stored = self.put(content);
        let tx = self.conn.transaction().unwrap();
        let (artifact, statement) = add(&tx, &stored, new).unwrap();
        tx.commit().unwrap();
        self.chain.take(&statement);
        artifact
    }

    /// Something else that is written.
    pub(crate) fn write<T>(&mut self, what: impl FnOnce(&rusqlite::Transaction<'_>) -> T) -> T {
        let tx = self.conn.transaction().unwrap();
        let done = what(&tx);
        tx.commit().unwrap();
        done
    }

    pub(crate) fn artifacts(&self) -> PathBuf {
        self.dir.path().join("artifacts")
    }

    pub(crate) fn file_of(&self, digest: &Digest) -> PathBuf {
        file_of(self.dir.path(), digest)
    }
}

pub(crate) fn open(home: &Path) -> (Connection, Store) {
    let mut conn = Connection::open(home.join("hotcell.db")).unwrap();
    conn.execute_batch("PRAGMA journal_mode = WAL; PRAGMA foreign_keys = ON").unwrap();
    let tx = conn.transaction().unwrap();
    migrate(&tx).unwrap();
    tx.commit().unwrap();
    (conn, Store::open(&home.join("artifacts")).unwrap())
}

pub(crate) fn file_of(home: &Path, digest: &Digest) -> PathBuf {
    let text = digest.to_string();
    let (shard, rest) = text.split_at(2);
    home.join("artifacts").join(shard).join(rest)
}

/// Too large for the ledger itself.
pub(crate) fn large(begin: &[u8]) -> Vec<u8> {
    let mut content = begin.to_vec();
    content.resize(begin.len() + MAX_SMALL as usize, b'.');
    content.push(b'!');
    content
}

/// Files below a directory, relative to it.
pub(crate) fn files_below(dir: &Path) -> Vec<String> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if entry.file_type().unwrap().is_dir() {
            files.extend(files_below(&entry.path()).iter().map(|below| format!("{name}/{below}")));
        } else {
            files.push(name);
        }
    }
    files.sort();
    files
}

pub(crate) fn by(subject: &str, time: i64) -> By {
    By { tenant: Name::LOCAL, subject: subject.parse().unwrap(), time }
}

pub(crate) fn call(number: u64) -> CallId {
    CallId::new(number, [7; 10])
}

pub(crate) fn new(name: &str) -> NewArtifact {
    NewArtifact {
        by: by("alice", 1_700_000_000_000_000_000),
        call: call(1),
        tool: Some("sort@1".parse().unwrap()),
        name: name.parse().unwrap(),
        kind: Type::Data,
        role: Role::File,
        edges: vec![Edge::unknown_input()],
    }
}

pub(crate) fn from(id: ArtifactId) -> Edge {
    use hotcell_ledger::{Relation, Target};
    Edge::new(Relation::DerivedFrom, Target::Artifact(id))
}
