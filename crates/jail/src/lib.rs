//! The launcher: builds the jail and becomes the program.
//!
//! One launcher serves one hotcell process and one root tree. It is two processes: the *guard*, which
//! stays in the host's namespaces and outlives hotcell just long enough to end and clean everything,
//! and the *spawner*, pid 1 of a pid namespace of its own, which builds the tree once and then makes a
//! *cell* for each job: an init of ours (`cell`) and the program. A *zygote* is an interpreter that has
//! done its start already; cells forked from it go on as that interpreter. Everything here is
//! single-threaded, allocates nothing, and runs without libc.
#![cfg_attr(not(test), no_std)]

mod attest;
mod cell;
mod cgroups;
pub mod chan;
mod fail;
pub mod guard;
mod landlock;
mod orphans;
mod proc;
mod proxy;
mod spawner;
mod sys;
mod tree;
pub mod wire;
pub mod zygote;

pub use cell::{Fork, Rehearse};
pub use sys::{exit, landlock_abi, lock_byte, unlock_byte};

/// Where the run's writable places are.
pub mod place {
    use core::ffi::CStr;

    /// The run's writable places, in its own file system.
    pub const NAMES: [&CStr; 3] = [c"work", c"tmp", c"shm"];
    pub const WORK: &CStr = c"/work";
    pub const TMP: &CStr = c"/tmp";
    pub const SHM: &CStr = c"/dev/shm";
    pub const PROC: &CStr = c"/proc";
    /// The one file system behind the writable places. No Landlock rule covers it, so it is reached
    /// only through them.
    pub const CELL: &CStr = c"/.cell";
    /// What the way out is in, of a run that has one: a file system of its own, which nobody inside can
    /// write.
    pub const PROXY: &CStr = c"/run/hotcell";
    pub const PROXY_SOCKET: &CStr = c"/run/hotcell/proxy.sock";
    /// The same for programs that know no Unix sockets, on the run's own loopback.
    pub const PROXY_PORT: u16 = 3128;
    /// A file that no Landlock rule covers: reading it must fail, which proves that Landlock is on.
    pub const SENTINEL: &CStr = c"/.hotcell";
    /// The same where the run's places are a directory of the host.
    pub const BARE_SENTINEL: &CStr = c"sentinel";
}

/// Id of the program inside its own user namespace.
pub const INNER_ID: u32 = 1000;
