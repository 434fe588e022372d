//! Parses what a run sends towards the network.

pub mod wire;
