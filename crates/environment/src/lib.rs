//! Environments: packages as a read-only tree that is known by its content, and names for such trees.
//!
//! [`requirement`] says what may be asked for, [`pip`] has the host's pip fetch it without executing any of
//! it, [`tree`] takes what a sandbox made of that as data, [`Store`] is where trees lie, and [`rows`] are what
//! they are called. Nothing here decides, runs a sandbox or records.

mod name;
pub mod pip;
pub mod requirement;
pub mod rows;
mod schema;
mod store;
pub mod tree;

pub use hotcell_workspace::Digest;
pub use name::{BadName, Name};
pub use rows::{Environment, Interpreter, Made, Package};
pub use store::{Held, Settled, Staging, Store};

/// Where a run sees its environment.
pub const AT: &str = "/env";
