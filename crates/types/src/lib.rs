//! The nouns of hotcell. Every other crate speaks in these; none of them does IO.

mod caller;
mod date;
mod decision;
mod effect;
pub mod hex;
mod id;
mod level;
mod limits;
mod outcome;
mod template;
mod units;

pub use caller::{BadName, Caller, Door, Name};
pub use date::Utc;
pub use decision::Decision;
pub use effect::{Effect, Effects};
pub use id::{BadId, CallId};
pub use level::{Layer, LayerReport, Level, UnknownLevel};
pub use limits::{Above, Limit, Limits, SomeLimits};
pub use outcome::{
    Artifact, BlockedSyscall, Exit, Outcome, Output, Refusal, Skipped, Stage, Start, Status,
    Timing, Traffic, Usage,
};
pub use template::{Network, Profile, Template, UnknownTemplate};
pub use units::{Bytes, Count, Cpus, Span, UnitError};
