//! Without a pid namespace, what a run leaves behind when its init is killed comes back to the nearest
//! of our processes that reaps, and is ended there.

use rustix::process::{Pid, Signal};

use crate::proc::{HostProc, MAX_FILE};
use crate::sys;

/// More rounds than a run within its limits can go on forking.
const ROUNDS: u32 = 1 << 16;

/// Ends and reaps every child of this process, but for those to be kept.
pub(crate) fn end(host: &HostProc, is_kept: impl Fn(Pid) -> bool) {
    for _ in 0..ROUNDS {
        let mut buffer = [0; MAX_FILE];
        let Ok(children) = host.own_children(&mut buffer) else { return };
        let mut orphans = children.filter(|pid| !is_kept(*pid)).peekable();
        if orphans.peek().is_none() {
            return;
        }
        for orphan in orphans {
            // It is our child and not waited for, so that the number is still its own.
            if rustix::process::kill_process(orphan, Signal::KILL).is_ok() {
                sys::wait_for(orphan).ok();
            }
        }
    }
}
