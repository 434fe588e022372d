//! `hotcell mcp`, driven over its standard streams by a client that also says what no client should.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod approvals;
mod bad_input;
mod client;
mod ends;
#[path = "../common/person.rs"]
mod person;
mod tools;
