//! The real binary in a real sandbox, from end to end: every option, every way to end, hostile inputs,
//! outputs and programs. On a host that gives no sandbox at all the tests say so and are skipped.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod approvals;
mod batch;
mod chaos;
mod ends;
mod hostile;
mod inputs;
mod limits;
mod many;
mod network;
mod options;
mod outputs;
#[path = "../common/person.rs"]
mod person;
mod record;
mod resident;
mod signals;
mod streams;
mod support;
mod tokens;
mod traces;
