//! What stands between a permitted call and its execution, besides the queue.

pub(crate) mod breaker;
pub(crate) mod cache;
pub(crate) mod claims;
pub(crate) mod crowd;
mod keys;
pub(crate) mod rate;
pub(crate) mod size;
