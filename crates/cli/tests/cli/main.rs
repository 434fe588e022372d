//! The real binary, as far as it can be tested without a sandbox: bad input, help, exits,
//! configuration. `UPDATE_DOCS=1` writes the files that these tests compare with.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod artifacts;
mod bad_input;
mod config;
mod docs;
mod house;
mod pipes;
mod support;
mod tools;
