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
mod attached;
mod backup;
mod batch;
mod changes;
mod ended;
mod engine;
mod gc;
mod guard;
mod hands;
mod live;
mod logs;
mod path;
mod prepare;
mod products;
mod replay;
mod reply;
mod show;
mod stage;
mod story;
#[cfg(test)]
mod tests;

pub use attached::{Attached, Attachment, Input};
pub use backup::{BackedUp, Restored, restore};
pub use batch::{BATCH_MOST, Step};
pub use ended::MOST_VALUE;
pub use engine::{Answer, Ask, Engine, OpenError, Options};
pub use gc::{Amount, Collected, Gc, Keep};
pub use hotcell_policy::Snapshot as Policy;
pub use hotcell_tools::run;
pub use logs::{Entry, Said, Until};
pub use replay::{Difference, Ignore, MOST_DIFFERENCES, Replayed};
pub use reply::{Problem, ProblemKind, Registered, Reply};
pub use show::{Kept, Shown};
pub use stage::{Stage, Watch};

/// The blocks of the guide are compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/embedding.md")]
mod guide {}
