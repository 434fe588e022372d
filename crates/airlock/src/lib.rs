//! The airlock: parses what a run sends towards the network, and what comes back for it, in a process of its own.
//!
//! The program (`run`, with the feature `program`) accepts on listeners that belong to runs. It asks hotcell about
//! each request and each tunnel, gets a connected socket or a refusal, and passes bytes on. Without the feature
//! there are only [`wire`], in which it is spoken to, and the parsers: [`head`], [`target`], [`chunked`],
//! [`hello`], [`socks`]. They read bytes and know nothing else.
//!
//! What it must not do, and cannot in its sandbox: make a socket or connect one, look a name up, open a file, start
//! anything, keep a secret of the operator's. What it must not do although it could: decide. It does not know which
//! hosts are allowed and does not compare names but those that one client has said twice. It believes nothing that
//! a run or a server says, and hotcell believes nothing that the airlock says beyond what [`wire`] can express: its
//! numbers are counts, its hosts are not canonical. Its end is a deny.

pub mod chunked;
pub mod head;
pub mod hello;
pub mod socks;
pub mod target;
pub mod wire;

#[cfg(feature = "program")]
mod program;

#[cfg(feature = "program")]
pub use program::run;
