//! Bearers as their users and their enemies see them. Tests that are named after an attack (`tok_01_…`)
//! show that it fails.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod attacks;
mod common;
mod keys;
mod life;
mod model;
mod processes;
