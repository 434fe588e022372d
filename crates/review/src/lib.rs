//! One queue for everything that a person has to answer: calls that a policy wants looked at, calls that
//! it refused, and changes of the policy itself.
//!
//! An [`Item`] has the exact call. An approver's signed answer is checked against the item as it is
//! stored, and against what holds now ([`Terms`]); an approval becomes a [`Grant`], which is taken once,
//! in the transaction of the intent of that very call. Rows are in the record's database, and every step
//! but the last gives the drafts of events that belong into the chain with it.
//!
//! ```text
//! enqueue ─▶ waiting ─answer─▶ approved ─take_grant─▶ carried_out ─finish─▶ (with its result)
//!               │    ╲             │
//!               │     ╲─answer─▶ rejected
//!               └── cancel, expire ┴──▶ cancelled, expired
//! ```
//!
//! The call has its secrets with it, since somebody has to carry it out. They leave the row when the item
//! ends or its grant is taken; what SQLite has not written over yet can still be found in its files, which
//! are the owner's only.
//!
//! Time only goes forward here, also when the clock does not: see [`now`].

/// What rows are read from, and added in.
pub use rusqlite::{Connection, Transaction};

mod answer;
mod clock;
mod end;
mod enqueue;
mod error;
mod grant;
mod item;
mod query;
mod row;
mod schema;
mod story;
pub mod versions;
mod wait;
mod words;
mod workflow;

pub use answer::{MOST_GRANT, Terms, answer};
pub use clock::now;
pub use end::{MOST_EXPIRED, MOST_PRUNED, MOST_RESULT, cancel, expire, finish, is_any_over, prune};
pub use enqueue::{
    Exact, LASTS, MOST_BEARER, MOST_CALL, MOST_LASTS, MOST_RULES, MOST_TEXT, MOST_WAITING,
    MOST_WAITING_OF_CALLER, New, enqueue,
};
pub use error::Error;
pub use grant::{Grant, check_grant, take_grant};
pub use hotcell_approver::{Fingerprint, ItemId, Reason, Signature, Verdict};
pub use item::{Answered, Given, Item, Rule};
pub use query::{
    BadCursor, Cursor, MOST_PAGE, MOST_PAGE_BYTES, Page, find, get, list, stored_call,
};
pub use schema::{is_current, migrate};
pub use wait::{MOST_WAIT, wait};
pub use words::{Kind, State};
pub use workflow::{Workflow, set_workflow, workflow, workflow_number};
