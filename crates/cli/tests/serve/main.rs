//! The real binary, serving on a real port: every route, every refusal, and clients that mean no good. The
//! published cases are named by their ids.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    reason = "a test that cannot go on has failed"
)]

mod approvals;
mod batches;
mod contents;
mod crowds;
mod door;
mod ends;
mod events;
mod local;
mod mcp;
mod metrics;
#[path = "../common/person.rs"]
mod person;
mod policy;
mod refusals;
mod routes;
mod support;
mod traces;
