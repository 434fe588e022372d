//! The local door from both sides, over real sockets.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod attack;
mod desk;
mod frames;
mod listen;
mod memory;
mod panics;
mod speed;
mod stop;
mod strangers;
mod talk;
mod versions;
