//! The real binary, as far as it can be tested without a sandbox: bad input, help, exits,
//! configuration. `UPDATE_DOCS=1` writes the files that these tests compare with.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod approvals;
mod artifacts;
mod bad_input;
mod config;
mod docs;
mod house;
mod keys;
mod manners;
#[path = "../common/person.rs"]
mod person;
mod pipes;
mod policy;
mod screen;
mod secrets;
mod shell;
mod support;
mod tokens;
mod tools;
