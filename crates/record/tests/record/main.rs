//! The record as its users and its enemies see it. Tests that are named after an attack
//! (`aud_01_…`) show that it fails, or is found.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

mod audit;
mod clock;
mod common;
mod compact;
mod crash;
mod disk;
mod encoding;
mod faults;
mod life;
mod mutations;
mod sqlite;
