//! The ledger and its store, on a real file system and a real database.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

mod crash;
mod encoding;
mod export;
mod full;
mod home;
mod prune;
mod query;
mod rows;
mod store;
mod verify;
