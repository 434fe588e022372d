//! The queue, by what can be seen from outside.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod answers;
mod common;
mod crash;
mod grants;
mod queue;
mod rows;
mod states;
mod waits;
