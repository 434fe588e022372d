//! What a host allows, and what would make it allow more: the knowledge behind `hotcell doctor`.
//!
//! [`HostFacts`] is what was read of the host, [`Trial`] what came of really running something, and
//! [`diagnose`] a pure function of the two. A host that nobody has at hand is a few lines in the tests.

mod diagnose;
mod facts;
mod install;
mod reason;
#[cfg(test)]
mod tests;

pub use diagnose::{Check, Diagnosis, Next, Obstacle, Trial, diagnose};
pub use facts::{CgroupSearch, Container, HostFacts};
pub use install::install;
pub use reason::Reason;
