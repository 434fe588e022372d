//! Whether a bearer is good for a call: pure, in one order, with one reason.

use hotcell_types::{CallId, Name};

use crate::claims::{Audience, Digest};
use crate::rows::{Lineage, Stored};
use crate::token::Presented;

/// What happens, as the engine knows it. Nothing of it is taken from the bearer.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// What the bearer is presented as.
    pub audience: Audience,
    pub who: Who<'a>,
    pub operation: &'a str,
    pub tool: &'a str,
    /// Of the tool's definition.
    pub tool_digest: Digest,
    pub paths: &'a [&'a str],
    /// Of the arguments.
    pub args: Digest,
    /// Of the policy that holds.
    pub policy: Digest,
    /// The one reading of an evaluation, by [`crate::now`].
    pub now: i64,
}

/// Who presents it.
#[derive(Debug, Clone, Copy)]
pub struct Who<'a> {
    pub tenant: &'a Name,
    pub subject: &'a Name,
    /// The run that the call came from.
    pub run: Option<CallId>,
}

/// Why a bearer is worth nothing here. It is not a denial: the policy decides as if there were none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Why {
    #[error("it is not spelled as a token")]
    Malformed,
    #[error("its signature is not ours")]
    Signature,
    #[error("it has expired")]
    Expired,
    #[error("it is not known here")]
    Unknown,
    #[error("it was revoked")]
    Revoked,
    /// One of its ancestors is not what it has to be.
    #[error("it goes beyond what it was derived from")]
    Wider,
    #[error("what it was derived from has {MAX_DEPTH} generations, which is the most", MAX_DEPTH = crate::MAX_DEPTH)]
    Deep,
    #[error("all its operations are used")]
    UsedUp,
    #[error("it is for another purpose")]
    Audience,
    #[error("it belongs to somebody else, or to another run")]
    Subject,
    #[error("it is for another operation")]
    Operation,
    #[error("it is for another tool, or for another definition of it")]
    Tool,
    #[error("it is not for every path of the call")]
    Path,
    #[error("it is for other arguments")]
    Arguments,
    #[error("the policy is another one than the one that allowed it")]
    Policy,
}

/// Proof that a bearer was good for a call. [`crate::consume`] takes it and looks again at what may have
/// changed in the meantime.
///
/// It is used once, and only [`Presented::status`] makes one:
///
/// ```compile_fail,E0382
/// # use hotcell_bearer::{Covered, Moment, Transaction, consume};
/// fn twice(tx: &Transaction<'_>, covered: Covered, moment: &Moment) {
///     drop(consume(tx, covered, moment));
///     drop(consume(tx, covered, moment));
/// }
/// ```
///
/// ```compile_fail,E0423
/// # use hotcell_bearer::{Covered, Presented};
/// fn forge(presented: Presented) -> Covered {
///     Covered(presented)
/// }
/// ```
#[derive(Debug)]
#[must_use = "nothing is used up before it is consumed"]
pub struct Covered(pub(crate) Presented);

impl Presented {
    /// Whether it is good for what happens, as the store has it (see [`crate::find`]).
    pub fn status(&self, known: Option<&Lineage>, facts: &Facts<'_>) -> Result<Covered, Why> {
        let own = self.stands(known, facts.now)?;
        if own.left == 0 {
            return Err(Why::UsedUp);
        }
        self.claims().covers(facts)?;
        Ok(Covered(self.clone()))
    }

    /// Not expired, known, not revoked, and a part of each of its ancestors, of which the same is true.
    pub(crate) fn stands<'a>(
        &self,
        known: Option<&'a Lineage>,
        now: i64,
    ) -> Result<&'a Stored, Why> {
        if self.until() <= now {
            return Err(Why::Expired);
        }
        let lineage = known.filter(|lineage| lineage.own.body == self.body());
        let lineage = lineage.ok_or(Why::Unknown)?;
        lineage.stands(Some(now))?;
        Ok(&lineage.own)
    }
}

impl Lineage {
    /// Without a time, nothing has expired.
    pub(crate) fn stands(&self, now: Option<i64>) -> Result<(), Why> {
        let mut child = &self.own;
        child.is_alive(now)?;
        for parent in &self.ancestors {
            parent.is_alive(now)?;
            if !parent.claims.includes(&child.claims) {
                return Err(Why::Wider);
            }
            child = parent;
        }
        // The first has none: what is missing was swept, or is further away than there can be.
        if child.claims.parent.is_some() { Err(Why::Unknown) } else { Ok(()) }
    }
}

impl Stored {
    fn is_alive(&self, now: Option<i64>) -> Result<(), Why> {
        if now.is_some_and(|now| self.claims.expires <= now) {
            return Err(Why::Expired);
        }
        if self.revoked.is_some() { Err(Why::Revoked) } else { Ok(()) }
    }
}
