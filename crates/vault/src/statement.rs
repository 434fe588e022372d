//! What was done to a secret, and what its row says since, without the value: the chain carries the digest of
//! that, in which the sealed bytes stand for the value.

use std::fmt;

use hotcell_types::Name;
use sha2::{Digest as _, Sha256};

use crate::name::SecretName;
use crate::store::Secret;

/// A SHA-256.
pub type Digest = [u8; 32];

/// What was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    Set,
    /// Another value or other bindings took its place.
    Replaced,
    Removed,
}

impl What {
    /// As the record calls it.
    pub fn operation(self) -> &'static str {
        match self {
            What::Set => "secret.set",
            What::Replaced => "secret.replace",
            What::Removed => "secret.remove",
        }
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            What::Set => "set",
            What::Replaced => "replaced",
            What::Removed => "removed",
        })
    }
}

/// A change of a secret, for the chain in the same transaction. There is nothing secret in it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Change {
    pub what: What,
    pub name: SecretName,
    pub tenant: Name,
    pub statement: Statement,
    hosts: String,
    tools: String,
}

impl Change {
    pub(crate) fn new(what: What, secret: &Secret) -> Change {
        let statement = match what {
            What::Set => Statement::of_row(secret),
            What::Replaced | What::Removed => Statement::of_removal(secret.number),
        };
        let (hosts, tools) = secret.binding.texts();
        let (name, tenant) = (secret.name.clone(), secret.tenant.clone());
        Change { what, name, tenant, statement, hosts, tools }
    }

    /// For people.
    pub fn reason(&self) -> String {
        let Change { what, name, tenant, hosts, tools, .. } = self;
        let tools = if tools.is_empty() { "the command line" } else { tools };
        match what {
            What::Set => format!("secret `{name}` of `{tenant}` set for {hosts}, used by {tools}"),
            What::Replaced | What::Removed => format!("secret `{name}` of `{tenant}` {what}"),
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
    /// `secret NUMBER`, or `secret NUMBER removed`.
    pub fn row(&self) -> &str {
        &self.row
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn digest(&self) -> Digest {
        Sha256::digest(&self.bytes).into()
    }

    pub(crate) fn of_row(secret: &Secret) -> Statement {
        let mut bytes = b"hotcell secret row 1\n".to_vec();
        bytes.extend_from_slice(&secret.label().bytes());
        bytes.extend_from_slice(&Sha256::digest(&secret.sealed));
        Statement { row: format!("secret {}", secret.number), bytes }
    }

    pub(crate) fn of_removal(number: u64) -> Statement {
        let mut bytes = b"hotcell secret removed 1\n".to_vec();
        bytes.extend_from_slice(&number.to_le_bytes());
        Statement { row: format!("secret {number} removed"), bytes }
    }
}
