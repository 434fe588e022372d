//! What was done to a key, and what its row says since. The chain carries the digest of that: the last
//! statement about a key is the one that its row has to match.

use std::fmt;

use hotcell_types::Name;
use sha2::{Digest as _, Sha256};

use crate::id::KeyId;
use crate::key::Key;

/// A SHA-256.
pub type Digest = [u8; 32];

/// What was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    Created,
    Revoked,
    /// It had ended long before.
    Removed,
}

impl What {
    pub fn name(self) -> &'static str {
        match self {
            What::Created => "created",
            What::Revoked => "revoked",
            What::Removed => "removed",
        }
    }

    /// As the record calls it.
    pub fn operation(self) -> &'static str {
        match self {
            What::Created => "key.create",
            What::Revoked => "key.revoke",
            What::Removed => "key.remove",
        }
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A change of a key, for the chain in the same transaction. There is nothing secret in it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Change {
    pub what: What,
    pub id: KeyId,
    pub name: Name,
    pub tenant: Name,
    pub subject: Name,
    pub statement: Statement,
    scopes: String,
}

impl Change {
    pub(crate) fn new(what: What, key: &Key) -> Change {
        let statement = match what {
            What::Created | What::Revoked => Statement::of_row(key),
            What::Removed => Statement::of_removal(key.number),
        };
        let (name, tenant, subject) = (key.name.clone(), key.tenant.clone(), key.subject.clone());
        Change {
            what,
            id: key.id,
            name,
            tenant,
            subject,
            statement,
            scopes: key.scopes.to_string(),
        }
    }

    /// For people.
    pub fn reason(&self) -> String {
        let Change { what, name, tenant, subject, scopes, .. } = self;
        match what {
            What::Created => {
                format!("key `{name}` of `{subject}` in `{tenant}` created, for {scopes}")
            }
            _ => format!("key `{name}` of `{subject}` in `{tenant}` {what}"),
        }
    }
}

/// The name of a row as it was after a change, and the bytes that stand for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    row: String,
    bytes: Vec<u8>,
}

impl Statement {
    /// `key NUMBER CHANGE`, or `key NUMBER removed`.
    pub fn row(&self) -> &str {
        &self.row
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn digest(&self) -> Digest {
        Sha256::digest(&self.bytes).into()
    }

    pub(crate) fn of_row(key: &Key) -> Statement {
        let mut bytes = b"hotcell key row 1\n".to_vec();
        bytes.extend_from_slice(&key.id.0);
        bytes.extend_from_slice(&key.digest);
        for text in
            [key.name.as_str(), key.tenant.as_str(), key.subject.as_str(), &key.scopes.to_string()]
        {
            bytes.extend_from_slice(&(text.len() as u64).to_le_bytes());
            bytes.extend_from_slice(text.as_bytes());
        }
        // None of these is ever zero.
        let (rate, burst) =
            key.rate.map_or((0, 0), |rate| (rate.per_second.get(), rate.burst.get()));
        for number in [rate, burst, key.concurrent.map_or(0, u32::from)] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(&key.created.to_le_bytes());
        for moment in [key.expires, key.revoked] {
            bytes.push(u8::from(moment.is_some()));
            bytes.extend_from_slice(&moment.unwrap_or(0).to_le_bytes());
        }
        bytes.extend_from_slice(&key.changes.to_le_bytes());
        Statement { row: format!("key {} {}", key.number, key.changes), bytes }
    }

    pub(crate) fn of_removal(number: u64) -> Statement {
        let mut bytes = b"hotcell key removed 1\n".to_vec();
        bytes.extend_from_slice(&number.to_le_bytes());
        Statement { row: format!("key {number} removed"), bytes }
    }
}
