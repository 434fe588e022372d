//! The tree of a host under friendly and hostile hands.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod applying;
mod changes;
mod killed;
mod law;
mod races;
mod reading;
mod searching;
mod support;
