//! Evaluates the extension rules of a policy.
//!
//! The program ([`run`], with the feature `program`) is what is executed in the policy sandbox; without
//! the feature there is only [`wire`], for whoever speaks to it.

pub mod wire;

#[cfg(feature = "program")]
mod program;
#[cfg(feature = "program")]
mod room;

#[cfg(feature = "program")]
pub use program::run;
