//! Ends every process of a cgroup, and waits in small steps for the kernel to be done.

use std::collections::HashSet;
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::dir::Dir;
use super::parse;

/// Longest wait for processes to die, to freeze or to leave. Processes that the kernel holds longer
/// than this are in trouble that waiting does not mend.
pub(super) const WAIT_MOST: Duration = Duration::from_secs(2);
const FIRST_STEP: Duration = Duration::from_micros(20);
const LONGEST_STEP: Duration = Duration::from_millis(2);

/// Asks until the answer is yes or the deadline has passed; `false` means that it passed. Asks at
/// least once.
pub(super) fn wait_until<E>(
    deadline: Instant,
    mut is_done: impl FnMut() -> Result<bool, E>,
) -> Result<bool, E> {
    let mut step = FIRST_STEP;
    loop {
        if is_done()? {
            return Ok(true);
        }
        if Instant::now() >= deadline {
            return Ok(false);
        }
        thread::sleep(step);
        step = (step * 2).min(LONGEST_STEP);
    }
}

/// Kills what is in `dir` with one write where the kernel can, frozen or forking as it may be.
pub(super) fn kill_at_once(dir: &Dir) -> Result<(), Errno> {
    match dir.write(c"cgroup.kill", b"1") {
        // v1, or a kernel before 5.14: the processes are killed one by one.
        Err(Errno::NOENT) => Ok(()),
        done => done,
    }
}

/// A frozen v1 cgroup does not let its members die.
pub(super) fn thaw_v1(dir: &Dir) -> Result<(), Errno> {
    match dir.write(c"freezer.state", b"THAWED") {
        Err(Errno::NOENT) => Ok(()),
        done => done,
    }
}

/// Kills every member of `dir` once; tells whether there was none.
pub(super) fn kill_members(dir: &Dir) -> Result<bool, Errno> {
    let first = dir.procs()?;
    if first.is_empty() {
        return Ok(true);
    }
    let held: Vec<_> = parse::pids(&first).filter_map(hold).collect();
    // A number may have passed to a stranger before it was held. Only who is a member now was one
    // when it was held.
    let second = dir.procs()?;
    let members: HashSet<u32> = parse::pids(&second).collect();
    for (_, process) in held.iter().filter(|(pid, _)| members.contains(pid)) {
        match pidfd_send_signal(process, Signal::KILL) {
            Ok(()) | Err(Errno::SRCH) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(false)
}

/// `None` for what has died, for what this pid namespace does not show, and for this process.
fn hold(pid: u32) -> Option<(u32, rustix::fd::OwnedFd)> {
    let raw = i32::try_from(pid).ok().filter(|_| pid != std::process::id())?;
    let held = pidfd_open(Pid::from_raw(raw)?, PidfdFlags::empty()).ok()?;
    Some((pid, held))
}
