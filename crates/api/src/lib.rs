//! What every door says and hears, as JSON documents. A door reads an [`Ask`], hands it to [`answer`] with
//! what came along, and writes the [`Answer`]: there is no other way from a door to the engine, and one
//! spelling of everything for all of them.
//!
//! Documents only grow: a field keeps its meaning, and whoever reads one ignores what it does not know.

mod answer;
mod artifact;
mod ask;
pub mod batch;
mod call;
mod code;
mod context;
mod event;
mod policy;
mod problem;
mod queue;
mod token;
mod tool;
mod words;

pub use answer::{Answer, Cancelled, Content, Difference, Installed, Replayed, With, answer};
pub use artifact::{Artifact, Artifacts, Details, Edge, Lineage, Link, Ruled, Written};
pub use ask::{ArtifactFilter, Ask, Filter, Manner, PAGE, PAGE_MOST, Step};
pub use call::{Called, Calls, Registered};
pub use code::{Code, File};
pub use context::{Context, WORKSPACE};
pub use event::{Call, Event, Events, Log, Run, Runs, Verified};
pub use policy::{
    Changed, Checked, Compared, Explained, Fault, Learned, Policy, RuleSaid, Rules, Signed,
    Suppose, Tested,
};
pub use problem::{Problem, ProblemKind, without_types};
pub use queue::{Answered, Given, Item, Items, Rule};
pub use token::{Bounds, Minted, Revoked, Token, Tokens};
pub use tool::{Tool, Tools};
