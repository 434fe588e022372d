//! What was done to a bearer, and what its row says since. The chain carries the digest of that: the last
//! statement about a bearer is the one that its row has to match.

use std::fmt;

use hotcell_types::Name;
use sha2::{Digest as _, Sha256};

use crate::claims::{Audience, Digest, Word};
use crate::id::BearerId;
use crate::rows::Stored;

/// What was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum What {
    Minted,
    /// A child got some of its operations.
    Shared,
    Used,
    /// A review holds an operation.
    Reserved,
    /// The review is over, and the operation is back.
    Released,
    Revoked,
}

impl What {
    pub fn name(self) -> &'static str {
        match self {
            What::Minted => "minted",
            What::Shared => "shared",
            What::Used => "used",
            What::Reserved => "reserved",
            What::Released => "released",
            What::Revoked => "revoked",
        }
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A change of a bearer, for the chain in the same transaction. There is nothing secret in it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Change {
    pub id: BearerId,
    pub audience: Audience,
    pub tenant: Name,
    pub subject: Name,
    pub operation: Word,
    pub what: What,
    /// Operations that are left afterwards.
    pub left: u32,
    pub statement: Statement,
}

impl Change {
    pub(crate) fn new(what: What, stored: &Stored) -> Change {
        let claims = &stored.claims;
        Change {
            id: claims.id,
            audience: claims.audience,
            tenant: claims.holder.tenant.clone(),
            subject: claims.holder.subject.clone(),
            operation: claims.scope.operation.clone(),
            what,
            left: stored.left,
            statement: Statement::of_row(stored),
        }
    }

    /// For people: `token used, 2 left`.
    pub fn reason(&self) -> String {
        format!("{} {}, {} left", self.audience, self.what, self.left)
    }
}

/// The name of a row as it was after a change, and the bytes that stand for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    row: String,
    bytes: Vec<u8>,
}

impl Statement {
    /// `bearer NONCE CHANGE`, or `bearers up to NONCE` of those that were swept.
    pub fn row(&self) -> &str {
        &self.row
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn digest(&self) -> Digest {
        Sha256::digest(&self.bytes).into()
    }

    pub(crate) fn of_row(stored: &Stored) -> Statement {
        let mut bytes = b"hotcell bearer row 1\n".to_vec();
        let body: Digest = Sha256::digest(&stored.body).into();
        bytes.extend_from_slice(&body);
        bytes.extend_from_slice(&stored.left.to_le_bytes());
        bytes.extend_from_slice(&stored.held.to_le_bytes());
        bytes.push(u8::from(stored.revoked.is_some()));
        bytes.extend_from_slice(&stored.revoked.unwrap_or(0).to_le_bytes());
        bytes.extend_from_slice(&stored.changes.to_le_bytes());
        Statement { row: format!("bearer {} {}", stored.claims.nonce, stored.changes), bytes }
    }

    pub(crate) fn of_sweep(upto: u64) -> Statement {
        let mut bytes = b"hotcell bearer sweep 1\n".to_vec();
        bytes.extend_from_slice(&upto.to_le_bytes());
        Statement { row: format!("bearers up to {upto}"), bytes }
    }
}
