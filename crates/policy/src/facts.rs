//! What a decision depends on besides the call and the policy.

use std::sync::Arc;

use hotcell_request::{Digest, Label};

use crate::constraints::Constraints;
use crate::settled::Settled;
use crate::verdict::Spoken;

/// What is so at the moment of the decision, fetched by the engine.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// The one clock reading of an evaluation, in nanoseconds since 1970. The token was checked by it, too.
    pub now: i64,
    /// The mode and the state of the caller's workflow.
    pub mode: Option<String>,
    pub state: Option<String>,
    /// What the operator has given to the caller's identity.
    pub tags: Vec<Label>,
    pub token: TokenStatus,
    pub grant: Option<Grant>,
    pub extension: Extension,
    /// Of a change that a call has made in its copy of the workspace: what was settled about the call.
    pub settled: Option<Arc<Settled>>,
}

/// What became of the token that the call came with.
#[derive(Debug, Clone, Default)]
pub enum TokenStatus {
    #[default]
    None,
    /// It is expired, used up, revoked, or for something else: as if there were none.
    Invalid(String),
    /// It is for exactly this call. With what the policy wanted when it was made, as
    /// [`Snapshot::allows_all_of`](crate::Snapshot::allows_all_of) says.
    Valid(Constraints),
}

/// Somebody agreed to one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The digest of the call, and that of the policy that asked.
    pub call: Digest,
    pub policy: Digest,
    /// Until when it counts, in nanoseconds since 1970.
    pub expires: i64,
    pub approver: String,
}

/// What the extensions of the policy say.
#[derive(Debug, Clone, Default)]
pub enum Extension {
    #[default]
    NotConfigured,
    NotAsked,
    /// What those say that do not abstain.
    Answered(Vec<Spoken<'static>>),
    /// It is not there, late or broken: a deny.
    Failed(String),
}
