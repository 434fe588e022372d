//! The one path that every call takes, whatever door it came through. Made to be embedded:
//!
//! ```no_run
//! use hotcell_engine::{Ask, Answer, Engine, Options};
//! use hotcell_request::{Arguments, Request};
//! use hotcell_types::{Caller, Door, Name};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let engine = Engine::open(Options::at("/var/lib/agent"))?;
//! let caller = Caller::local(Name::LOCAL, Door::Library);
//! let request = Request::new("add".parse()?, Arguments::Value(serde_json::json!({"a": 1, "b": 2})));
//! if let Answer::Called(reply) = engine.ask(&caller, Ask::Call(Box::new(request))) {
//!     println!("{}", serde_json::to_string(&reply)?);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Every request gets exactly one answer. A call that can change something is on the disk before it
//! happens; one that cannot be recorded does not happen.

mod archive;
pub mod artifacts;
mod at_once;
mod attached;
mod backup;
mod batch;
mod changes;
mod early;
mod ended;
mod engine;
mod environment;
mod extended;
mod gc;
mod guard;
mod hands;
mod health;
mod interrupt;
mod keys;
mod live;
mod logs;
mod network;
mod once;
mod path;

pub mod policy;
mod prepare;
mod products;
mod queue;
mod replay;
mod reply;
mod rulebook;
mod secrets;
mod show;
mod spend;
mod stage;
mod stay;
mod story;
mod stream;
mod surroundings;
mod tally;
#[cfg(test)]
mod tests;
mod tokens;
mod under_way;
mod web;
mod weigh;
mod workflow;

pub use at_once::AtOnce;
pub use attached::{Attached, Attachment, Input};
#[doc(hidden)]
pub use backup::names_in_backup;
pub use backup::{BackedUp, Restored, restore};
pub use batch::{BATCH_MOST, Step};
pub use early::Early;
pub use ended::MOST_VALUE;
pub use engine::{Anchor, Answer, Ask, Asker, Engine, OpenError, Options, new_id};
pub use gc::{Amount, Collected, Full, Gc, Keep, Room};
pub use guard::breaker::Patience;
pub use health::{Health, Load};
pub use hotcell_environment::requirement::{
    MOST_BYTES as MOST_REQUIREMENTS, lines as requirement_lines,
};
pub use hotcell_glob::HostPattern;
pub use hotcell_policy::{Protected, Snapshot as Policy};
pub use hotcell_review::Workflow;
pub use hotcell_sandbox::{Sink, lang};
pub use hotcell_tools::{Changes, Way, environment as env, exec, run, stay as sandboxes};
pub use hotcell_workspace::{Globs, SnapshotBounds};
pub use keys::{Admitted, KeyAnswer, KeyAsk, NotAdmitted};
pub use logs::{Entry, Listen, Position, Said, Until};
pub use network::NetworkOptions;
pub use queue::{QueueAnswer, QueueAsk, Queued};
pub use replay::{Difference, Ignore, MOST_DIFFERENCES, Replayed};
pub use reply::{Problem, ProblemKind, Registered, Reply};
pub use rulebook::{Book, POLICY_FILE};
pub use secrets::{SecretAnswer, SecretAsk};
pub use show::{Kept, Shown};
pub use stage::{Stage, Watch};
pub use stay::StayBounds;
pub use stream::{
    Brake, Held, Job, Order, Pace, Results, SIDE_BY_SIDE_MOST, Streamed, WAITING_EACH, side_by_side,
};
pub use surroundings::{Bounds, Surroundings};
pub use tokens::{TokenAnswer, TokenAsk, TokenBounds};
pub use workflow::WorkflowAsk;

/// The blocks of the guide are compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/embedding.md")]
mod guide {}
