//! The levels for real, with the real binary: as root, as another user with and without cgroups of
//! its own, and in namespaces that hide or forbid what containers hide and forbid.
//!
//! Making such places takes root; without it these tests say so and pass.

mod hosts;
mod ordinary;
mod support;
