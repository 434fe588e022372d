//! Bearers as they are stored.

use crate::claims::Claims;
use crate::id::BearerId;

/// A bearer, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stored {
    pub claims: Claims,
    /// The claims as they were signed.
    pub(crate) body: Vec<u8>,
    /// Operations that can still be used, here or by children to come.
    pub left: u32,
    /// Operations that reviews hold.
    pub held: u32,
    /// When it was revoked.
    pub revoked: Option<i64>,
    /// How often the row was changed, its making included.
    pub changes: u64,
}

impl Stored {
    pub fn id(&self) -> BearerId {
        self.claims.id
    }
}

/// A bearer and what it was derived from, the nearest first.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lineage {
    pub own: Stored,
    pub ancestors: Vec<Stored>,
}
