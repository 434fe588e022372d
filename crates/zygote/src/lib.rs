//! The one function that an interpreter calls to be forked into jails. Everything else is in
//! `hotcell_jail::zygote`. It is linked to nothing, and takes the few functions that the compiler takes
//! for granted from the C library that the interpreter has.
#![cfg_attr(feature = "library", no_std)]
#![cfg(feature = "library")]
#![expect(unsafe_code, reason = "a function with a name for C")]

use core::panic::PanicInfo;

use hotcell_jail::zygote::{self, Task};
use hotcell_jail::{Fork, Rehearse};

/// Serves the launcher for ever; returns only in a process that is in a jail of its own, and gives what
/// that is to run. `rehearse` is called there before there is a job.
#[unsafe(no_mangle)]
pub extern "C" fn hotcell_serve(fork: Fork, rehearse: Rehearse) -> Task {
    zygote::serve(fork, rehearse)
}

/// A bug ends the process: nothing goes on half built.
#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    hotcell_jail::exit(101)
}
