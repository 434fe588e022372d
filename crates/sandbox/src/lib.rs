//! Runs a [`Job`] in a jail and tells what happened.
//!
//! [`Sandbox`] is made once per process: it finds out what this host allows, refuses below the
//! operator's minimum, and keeps the launcher. [`Sandbox::start`] gives a [`Running`] job, whose
//! `wait` streams output and returns the one [`Outcome`](hotcell_types::Outcome).

mod cell;
pub mod cgroup;
mod collect;
mod demand;
mod hold;
pub mod host;
mod ids;
mod image;
mod job;
mod keeper;
mod kept;
pub mod lang;
mod launcher;
mod layout;
mod native;
mod places;
mod pressure;
mod random;
mod running;
pub mod seccomp;
mod seen;
mod start;
mod steps;
mod streams;
mod supplies;
mod warm;

pub use cell::Kind;
#[cfg(feature = "holes")]
pub use hotcell_jail::wire::hole;
#[cfg(feature = "holes")]
pub use hotcell_jail::{chan, wire};
#[cfg(feature = "holes")]
pub use job::Holes;
pub use job::{
    Command, Input, Item, Job, Look, Network, Refusal, Settings, Sink, Stdin, Talk, Tree, View,
    What, WorkingCopy, cause, in_memory,
};
pub use kept::{Consumption, Keep, Kept, PROGRAMS_MOST, Still};
pub use layout::shown_paths;
pub use native::{Sandbox, Site};
pub use running::{Handle, Running};
pub use warm::Bounds;
