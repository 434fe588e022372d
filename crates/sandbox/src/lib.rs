//! Runs a [`Job`] in a jail and tells what happened.
//!
//! [`Sandbox`] is made once per process: it finds out what this host allows, refuses below the
//! operator's minimum, and keeps the launcher. [`Sandbox::start`] gives a [`Running`] job, whose
//! `wait` streams output and returns the one [`Outcome`](hotcell_types::Outcome).

pub mod cgroup;
mod job;
pub mod lang;
mod native;
pub mod seccomp;

pub use job::{Command, Input, Job, Refusal, Settings, Sink, Stdin};
pub use native::{Handle, Running, Sandbox};
