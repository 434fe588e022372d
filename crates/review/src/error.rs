//! What can go wrong, in words.

use hotcell_approver::{ItemId, NotSigned, PolicyRefused};
use hotcell_types::Name;

use crate::words::State;

/// Why something was not queued, answered or granted. Nothing was changed, then.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the queue of reviews cannot be read or written")]
    Sql(#[from] rusqlite::Error),
    #[error(
        "the queue of reviews has version {found}, and this hotcell knows {known} at most; use a newer hotcell"
    )]
    Newer { found: i64, known: i64 },
    #[error("the kernel gives no random numbers")]
    Chance(#[source] std::io::Error),
    #[error("a time is too far away")]
    Time,

    #[error("{most} calls of `{of}` wait for an answer already; wait for some, or cancel them")]
    Full { of: Name, most: usize },
    #[error("the call has {bytes} bytes, and nobody is shown more than {most}")]
    TooLarge { bytes: usize, most: usize },
    #[error("the id of a bearer has at most {most} bytes")]
    LongBearer { most: usize },

    /// Also what belongs to somebody else.
    #[error("there is no item {0}")]
    NoItem(ItemId),
    #[error("item {id} is {state}")]
    Is { id: ItemId, state: State },
    #[error("item {0} is over: nobody answered in time")]
    Expired(ItemId),
    #[error("the policy has changed since item {0} was made; make the call again")]
    OtherPolicy(ItemId),
    #[error("whoever signed it is no approver of this home")]
    UnknownApprover,
    #[error("the answer is not one to this item: {0}")]
    NotSigned(#[from] NotSigned),
    #[error("`{0}` asked for it, and cannot be the one who agrees")]
    OwnCall(Name),
    #[error("the answer was given at another time: before the item was made, or after now")]
    OtherTime,
    #[error("an approval holds from now on, for at most {} hours", crate::MOST_GRANT / 3_600_000_000_000)]
    BadExpiry,

    #[error("the approval of item {0} is over; ask again")]
    GrantExpired(ItemId),
    #[error("item {0} is about another call; an approval is for the exact call that was shown")]
    OtherCall(ItemId),
    #[error("item {0} has its result already")]
    HasResult(ItemId),

    #[error("version {number} of the policy is damaged: {what} cannot be read")]
    BadVersion { number: u64, what: &'static str },
    #[error("this would be version {number} of the policy, and the last one is {last}")]
    NotNext { number: u64, last: u64 },
    #[error(transparent)]
    PolicyRefused(#[from] PolicyRefused),
}
