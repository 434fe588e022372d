//! The airlock.
pub mod chunked;
pub mod head;
pub mod hello;
pub mod socks;
pub mod target;
pub mod wire;
