//! Patterns of paths and of hosts: whether one matches, which of many match, whether two have something in
//! common, and whether one lies within another. Depends on nothing else of hotcell, and does no IO.
//!
//! Paths are those of a call: relative, `/` between their parts, no `.` and no `..`; the root itself is `.`.
//!
//! ```
//! use hotcell_glob::Glob;
//!
//! let sources: Glob = "src/**/*.rs".parse()?;
//! assert!(sources.matches("src/main.rs") && sources.matches("src/a/b.rs"));
//! assert!(sources.covers(&"src/a/?.rs".parse()?) && !sources.intersects(&"/tests/".parse()?));
//! # Ok::<(), hotcell_glob::BadGlob>(())
//! ```

mod glob;
mod host;
mod parse;
mod relate;
mod segment;
mod set;
#[cfg(test)]
mod tests;

pub use glob::Glob;
pub use host::{BadHost, HostPattern, HostSet};
pub use parse::BadGlob;
pub use set::GlobSet;
