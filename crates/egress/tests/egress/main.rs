//! The way out, from outside: decisions, the gate with a real airlock, and hotcell's own client. Servers and
//! names are the tests' own, on loopback.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::string_slice,
    reason = "a test that cannot go on has failed"
)]

mod client;
mod decide;
mod gate;
mod lookups;
mod odd;
mod support;
