//! What a decision uses up: an operation of a token, an approval. It goes in the transaction of the intent,
//! so that of ten who use the same, one begins; and only while the policy still holds that decided.

use hotcell_approver::ItemId;
use hotcell_bearer::{self as bearer, Change, Covered, Moment, Statement};
use hotcell_ledger::Transaction;
use hotcell_record::{Draft, Hex, Kind, Stated, now};
use hotcell_request::Call;
use hotcell_review::{self as review, Terms, versions};
use hotcell_types::{CallId, Caller};

use crate::once::Once;

/// What is used up when a call is begun.
#[derive(Debug, Default)]
pub(crate) struct Spend {
    /// The version of the policy that has to hold still.
    pub(crate) version: Option<u64>,
    /// Where the caller's work has to be still.
    pub(crate) workflow: Option<u64>,
    /// The key that the call comes with.
    pub(crate) once: Option<Once>,
    pub(crate) token: Option<Token>,
    /// The call for which a review holds an operation of a token: that one is used, and no other.
    pub(crate) held: Option<CallId>,
    pub(crate) approval: Option<Approval>,
    /// When a token was shown that had expired by then. That is remembered, so that no clock that is set
    /// back makes it good again.
    pub(crate) expired: Option<Moment>,
}

/// An operation of a token.
#[derive(Debug)]
pub(crate) struct Token {
    pub(crate) id: String,
    pub(crate) covered: Covered,
    pub(crate) moment: Moment,
}

/// An approval of exactly this call.
#[derive(Debug)]
pub(crate) struct Approval {
    pub(crate) item: ItemId,
    pub(crate) terms: Terms,
    pub(crate) call: Box<Call>,
    pub(crate) clock: i64,
}

/// Why nothing was used up, and nothing begun.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unspent {
    #[error("the policy was changed meanwhile")]
    Stale,
    #[error("the work of the caller has gone on meanwhile")]
    Moved,
    #[error("another call has its key")]
    Taken,
    #[error(transparent)]
    Once(#[from] hotcell_once::Error),
    #[error(transparent)]
    Token(#[from] bearer::Error),
    #[error(transparent)]
    Approval(#[from] review::Error),
}

impl Spend {
    /// Whether there is anything to be done when the call is begun.
    pub(crate) fn is_nothing(&self) -> bool {
        let has_to_hold = self.version.is_some() || self.workflow.is_some();
        !has_to_hold && self.once.is_none() && !self.is_of_bearers()
    }

    /// Whether something is used up that cannot be used again, or remembered.
    pub(crate) fn is_of_bearers(&self) -> bool {
        let uses_up = self.token.is_some() || self.held.is_some() || self.approval.is_some();
        uses_up || self.expired.is_some()
    }

    /// What the record calls what was shown.
    pub(crate) fn bearer(&self) -> Option<String> {
        let token = self.token.as_ref().map(|token| token.id.clone());
        token.or_else(|| self.approval.as_ref().map(|approval| approval.item.to_string()))
    }

    pub(crate) fn settle(
        self,
        tx: &Transaction<'_>,
        of: &Caller,
        call: CallId,
    ) -> Result<Vec<Draft>, Unspent> {
        if let Some(version) = self.version
            && versions::newest_number(tx)? != version
        {
            return Err(Unspent::Stale);
        }
        if let Some(workflow) = self.workflow
            && review::workflow_number(tx, of)? != workflow
        {
            return Err(Unspent::Moved);
        }
        if let Some(once) = &self.once
            && !once.claim(tx, call, now())?
        {
            return Err(Unspent::Taken);
        }
        if let Some(moment) = self.expired {
            bearer::advance(tx, &moment)?;
        }
        let used = match (self.held, self.token) {
            (Some(held), _) => Some(bearer::redeem(tx, held)?),
            (None, Some(token)) => Some(bearer::consume(tx, token.covered, &token.moment)?),
            (None, None) => None,
        };
        let mut drafts: Vec<Draft> =
            used.iter().map(|change| of_bearer(change, of, Some(call), now())).collect();
        if let Some(Approval { item, terms, call, clock }) = self.approval {
            let (_, events) = review::take_grant(tx, &terms, item, &call, clock)?;
            drafts.extend(events);
        }
        Ok(drafts)
    }
}

/// A change of a bearer, as the chain tells it.
pub(crate) fn of_bearer(change: &Change, by: &Caller, call: Option<CallId>, time: i64) -> Draft {
    let mut draft = Draft::new(Kind::BearerChanged, by.clone(), time);
    draft.call = call;
    draft.operation = Some(change.operation.as_str().to_owned());
    draft.bearer = Some(change.id.to_string());
    draft.reason = Some(change.reason());
    draft.stated = Some(stated(&change.statement));
    draft
}

/// What the chain vouches for.
pub(crate) fn stated(statement: &Statement) -> Stated {
    let (row, digest) = (statement.row().to_owned(), Hex(statement.digest()));
    Stated { row, digest, length: statement.bytes().len() as u64 }
}
