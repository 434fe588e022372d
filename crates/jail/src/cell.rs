//! What happens inside a run: our own init builds the last of the jail around itself, forks the
//! program's process, which puts on the rest and waits to be let go, and then reaps until the end.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags, Timespec, Timestamps};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{DumpableBehavior, Pid, Resource, Rlimit, Signal};
use rustix::thread::{CapabilitySet, CapabilitySets, Gid, Uid};

use crate::chan::{self, Fds};
use crate::fail::{At, Done, failed};
use crate::sys::{self, Cloned, Vector};
use crate::wire::{Ended, Job, MAX_CGROUPS, MAX_STRINGS, Report, Step, hole};
use crate::{INNER_ID, landlock, place, proc, tree};

/// Descriptors of a cell stand at fixed numbers, above any that the spawner has.
mod slot {
    use super::MAX_CGROUPS;

    pub(super) const CORD: u32 = 800;
    pub(super) const STDIN: u32 = 801;
    pub(super) const STDERR: u32 = 803;
    pub(super) const RULESET: u32 = 804;
    pub(super) const ACCOUNT: u32 = 805;
    pub(super) const CGROUP: u32 = 806;
    pub(super) const INPUT: u32 = CGROUP + MAX_CGROUPS as u32;
}

/// The name of every machine.
const HOSTNAME: &[u8] = b"hotcell";

/// The last capability that a kernel may know; those it does not know are refused, which is the end
/// of the list.
const LAST_CAPABILITY: u32 = 63;

/// Exit codes of the init, for the log only: what counts is what the launcher sees.
const BUILD_FAILED: u8 = 70;

/// A job with what the spawner adds.
#[derive(Debug)]
pub(crate) struct Plan<'a> {
    pub(crate) job: &'a Job<'a>,
    pub(crate) fds: &'a Fds,
    pub(crate) ruleset: BorrowedFd<'a>,
    pub(crate) landlock_abi: u32,
    pub(crate) cord: BorrowedFd<'a>,
    pub(crate) proc: bool,
    pub(crate) drop_groups: bool,
}

/// The whole life of the init. Called in a new process that nobody else shares memory with.
pub(crate) fn live(plan: &Plan<'_>) -> ! {
    match build(plan) {
        Ok(program) => watch(program),
        Err(failure) => {
            // If even this cannot be said, the launcher sees a run that ended without starting.
            let told = chan::report(sys::at(slot::CORD), &Report::Failed(failure), None);
            sys::exit(if told.is_ok() { BUILD_FAILED } else { BUILD_FAILED + 1 })
        }
    }
}

/// Everything up to the fork of the program's process.
fn build(plan: &Plan<'_>) -> Done<Pid> {
    settle_descriptors(plan).at(Step::Descriptors)?;
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).at(Step::DeathSignal)?;
    enter_cgroup(plan.job)?;
    if !plan.job.leaves_out(hole::UTS) {
        rustix::system::sethostname(HOSTNAME).at(Step::Hostname)?;
    }
    if !plan.job.leaves_out(hole::KEYRING) {
        sys::new_keyring().at(Step::Keyring)?;
    }
    if plan.job.loopback {
        loopback().at(Step::Loopback)?;
    }
    if plan.proc {
        if !plan.job.leaves_out(hole::PID) {
            tree::own_proc().at(Step::ProcMount)?;
        }
        open_account().at(Step::ProcMount)?;
    }
    wait_for_map().at(Step::IdMap)?;
    switch_id(plan.drop_groups).at(Step::SwitchId)?;
    let numbers = &plan.job.numbers;
    let cell = tree::writable(numbers.disk_bytes, numbers.files).at(Step::Writable)?;
    chan::report(sys::at(slot::CORD), &Report::Built, Some(cell.as_fd())).at(Step::Writable)?;
    place_inputs(plan.job, &cell)?;
    drop(cell);
    wall_in(plan)?;
    fork_program(plan.job)
}

/// Exactly the descriptors of this job, at their places; everything else is closed.
fn settle_descriptors(plan: &Plan<'_>) -> rustix::io::Result<()> {
    sys::place_cloexec(plan.cord, slot::CORD)?;
    sys::place_cloexec(plan.ruleset, slot::RULESET)?;
    let mut next = 1;
    for number in slot::STDIN..=slot::STDERR {
        sys::place_cloexec(plan.fds.get(next)?, number)?;
        next += 1;
    }
    // A directory to be born in has done its work already.
    next += usize::from(plan.job.entrance.born);
    let joined = u32::from(plan.job.entrance.joins);
    for number in slot::CGROUP..slot::CGROUP + joined {
        sys::place_cloexec(plan.fds.get(next)?, number)?;
        next += 1;
    }
    let mut number = slot::INPUT;
    while next < plan.fds.count() {
        sys::place_cloexec(plan.fds.get(next)?, number)?;
        next += 1;
        number += 1;
    }
    sys::close_range(0, slot::CORD - 1)?;
    sys::close_range(slot::CGROUP + joined, slot::INPUT - 1)?;
    sys::close_range(number, u32::MAX)
}

fn enter_cgroup(job: &Job<'_>) -> Done {
    for index in 0..u32::from(job.entrance.joins) {
        let tasks = sys::at(slot::CGROUP + index);
        // "0" in a `tasks` file is the one way in that does not wait for all processors: this thread,
        // by itself.
        rustix::io::write(tasks, b"0").at_index(Step::CgroupAttach, index as usize)?;
    }
    if job.entrance.joins == 0 || job.leaves_out(hole::CGROUP_NAMESPACE) {
        return Ok(());
    }
    // Only now, so that the run's cgroup is what it sees as the root.
    sys::unshare(linux_raw_sys::general::CLONE_NEWCGROUP).at(Step::CgroupNamespace)
}

fn loopback() -> rustix::io::Result<()> {
    let socket = rustix::net::socket_with(
        AddressFamily::INET,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    sys::loopback_up(socket)
}

/// Opened before this process becomes opaque to others, its own id included.
fn open_account() -> rustix::io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let account = rustix::fs::open(c"/proc/self/io", flags, Mode::empty())?;
    sys::place_cloexec(account, slot::ACCOUNT)
}

/// The launcher writes the id maps from outside and says so.
fn wait_for_map() -> rustix::io::Result<()> {
    let mut word = [0; 1];
    match rustix::io::read(sys::at(slot::CORD), &mut word)? {
        1 => Ok(()),
        _ => Err(Errno::PIPE),
    }
}

fn switch_id(drop_groups: bool) -> rustix::io::Result<()> {
    if drop_groups {
        rustix::thread::set_thread_groups(&[])?;
    }
    let gid = Gid::from_raw(INNER_ID);
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    let uid = Uid::from_raw(INNER_ID);
    rustix::thread::set_thread_res_uid(uid, uid, uid)
}

fn place_inputs(job: &Job<'_>, cell: &OwnedFd) -> Done {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let work = rustix::fs::openat(cell, c"work", flags, Mode::empty()).at(Step::Inputs)?;
    for (index, input) in job.inputs.clone().enumerate() {
        let source = sys::at(slot::INPUT + index as u32);
        let mode = Mode::from_raw_mode(if input.executable { 0o755 } else { 0o644 });
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let target =
            rustix::fs::openat(&work, input.name, flags, mode).at_index(Step::Inputs, index)?;
        copy(source, &target, input.bytes).at_index(Step::Inputs, index)?;
        stamp(&target, input.modified).at_index(Step::Inputs, index)?;
    }
    Ok(())
}

/// Copies exactly the bytes that were announced: a file that shrank meanwhile is an error.
fn copy(source: BorrowedFd<'_>, target: &OwnedFd, bytes: u64) -> rustix::io::Result<()> {
    /// The kernel's own bound for one call.
    const AT_ONCE: u64 = 0x7fff_f000;
    let mut offset = 0;
    while offset < bytes {
        let count = (bytes - offset).min(AT_ONCE) as usize;
        if rustix::fs::sendfile(target, source, Some(&mut offset), count)? == 0 {
            return Err(Errno::IO);
        }
    }
    Ok(())
}

fn stamp(target: &OwnedFd, seconds: u64) -> rustix::io::Result<()> {
    let time = Timespec { tv_sec: seconds as i64, tv_nsec: 0 };
    rustix::fs::futimens(target, &Timestamps { last_access: time, last_modification: time })
}

/// No new privileges, Landlock, no capability in any set.
fn wall_in(plan: &Plan<'_>) -> Done {
    if !plan.job.leaves_out(hole::NO_NEW_PRIVS) {
        rustix::thread::set_no_new_privs(true).at(Step::NoNewPrivs)?;
    }
    if !plan.job.leaves_out(hole::LANDLOCK) {
        let ruleset = sys::at(slot::RULESET);
        landlock::allow_own_places(ruleset, plan.landlock_abi, plan.proc)?;
        sys::landlock_restrict(ruleset).at(Step::Landlock)?;
    }
    if !plan.job.leaves_out(hole::CAPABILITIES) {
        drop_capabilities().at(Step::Capabilities)?;
    }
    Ok(())
}

fn drop_capabilities() -> rustix::io::Result<()> {
    for capability in 0..=LAST_CAPABILITY {
        match sys::drop_bounding(capability) {
            Ok(()) => {}
            Err(Errno::INVAL) => break,
            Err(errno) => return Err(errno),
        }
    }
    rustix::thread::clear_ambient_capability_set()?;
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    rustix::thread::set_capabilities(None, sets)
}

fn fork_program(job: &Job<'_>) -> Done<Pid> {
    match sys::clone(0, None).at(Step::Fork)? {
        Cloned::Child => become_program(job),
        Cloned::Parent { pid, .. } => {
            // Nobody inside can look into this process from here on.
            if !job.leaves_out(hole::DUMPABLE) {
                let opaque = DumpableBehavior::NotDumpable;
                rustix::process::set_dumpable_behavior(opaque).at(Step::Fork)?;
            }
            // The program's pipes must end with the program.
            sys::close_range(slot::STDIN, slot::RULESET).at(Step::Descriptors)?;
            sys::close_range(slot::ACCOUNT + 1, u32::MAX).at(Step::Descriptors)?;
            Ok(pid)
        }
    }
}

/// The program's process: the rest of the layers, the wait for release, and then the program.
fn become_program(job: &Job<'_>) -> ! {
    let Err(failure) = start(job);
    let told = chan::report(sys::at(slot::CORD), &Report::Failed(failure), None);
    sys::exit(if told.is_ok() { BUILD_FAILED } else { BUILD_FAILED + 1 })
}

fn start(job: &Job<'_>) -> Done<core::convert::Infallible> {
    if !job.leaves_out(hole::SESSION) {
        rustix::process::setsid().at(Step::Session)?;
    }
    rustix::process::umask(Mode::from_raw_mode(0o022));
    rustix::process::chdir(place::WORK).at(Step::Session)?;
    let too_many = || failed(Step::Program, Errno::TOOBIG, 0);
    let args = Vector::<'_, { MAX_STRINGS + 1 }>::new(job.args.clone()).ok_or_else(too_many)?;
    let env = Vector::<'_, { MAX_STRINGS + 1 }>::new(job.env.clone()).ok_or_else(too_many)?;
    for (number, from) in (0..).zip(slot::STDIN..=slot::STDERR) {
        sys::place(sys::at(from), number).at(Step::Descriptors)?;
    }
    if !job.leaves_out(hole::RLIMITS) {
        limit(job).at(Step::Rlimits)?;
    }
    if job.leaves_out(hole::DESCRIPTORS) {
        sys::place(sys::at(slot::CORD), slot::CORD).at(Step::Descriptors)?;
    }
    let landlock_denied = sentinel_is_refused();
    let listener = sys::install_filter(job.filter).at(Step::Seccomp)?;
    let poised = Report::Poised { landlock_denied };
    chan::report(sys::at(slot::CORD), &poised, Some(listener.as_fd())).at(Step::Seccomp)?;
    drop(listener);
    wait_for_map().at(Step::Protocol)?;
    let errno = sys::execute(job.program, job.exec_key, &args, &env);
    Err(failed(Step::Program, errno, 0))
}

fn limit(job: &Job<'_>) -> rustix::io::Result<()> {
    /// Locked memory, queued signals and message queues: enough for ordinary programs, nothing to
    /// hoard with.
    const LOCKED: u64 = 64 * 1024;
    const PENDING: u64 = 1024;
    const QUEUES: u64 = 64 * 1024;
    let n = &job.numbers;
    let fixed = [
        (Resource::Core, 0),
        (Resource::Memlock, LOCKED),
        (Resource::Sigpending, PENDING),
        (Resource::Msgqueue, QUEUES),
        (Resource::Nice, 0),
        (Resource::Rtprio, 0),
        (Resource::Fsize, n.disk_bytes),
        (Resource::Nofile, n.open_files),
    ];
    let per_process = [
        (Resource::Data, n.data_bytes),
        (Resource::Nproc, n.processes),
        (Resource::Cpu, n.cpu_seconds),
    ];
    let wanted = per_process.into_iter().filter(|&(_, value)| value != 0);
    for (resource, value) in fixed.into_iter().chain(wanted) {
        // A lower hard limit that the host already set stays.
        let most = rustix::process::getrlimit(resource).maximum.unwrap_or(u64::MAX);
        let value = Some(value.min(most));
        rustix::process::setrlimit(resource, Rlimit { current: value, maximum: value })?;
    }
    Ok(())
}

/// The one thing about Landlock that can be seen: a file that no rule covers.
fn sentinel_is_refused() -> bool {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    matches!(rustix::fs::open(place::SENTINEL, flags, Mode::empty()), Err(Errno::ACCESS))
}

/// Reaps until the program has ended, then ends the rest and tells how it was.
fn watch(program: Pid) -> ! {
    let mut ended = Ended::default();
    loop {
        match sys::wait_any() {
            Ok((pid, status)) if pid == program => {
                ended.wait_status = Some(status);
                break;
            }
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => break,
        }
    }
    end_everything();
    ended.cpu_micros = sys::children_cpu_micros();
    ended.written = written();
    let told = chan::report(sys::at(slot::CORD), &Report::Ended(ended), None);
    sys::exit(if told.is_ok() { 0 } else { BUILD_FAILED })
}

/// Kills what the program left behind and waits for it, so that what it used is counted. Whatever
/// escapes this ends with the pid namespace.
fn end_everything() {
    /// More rounds than there can be processes.
    const ROUNDS: u32 = 1 << 22;
    for _ in 0..ROUNDS {
        if sys::kill_all().is_err() {
            // Nobody is left to be killed; reap the last ones.
            while sys::wait_any().is_ok() {}
            return;
        }
        match sys::wait_any() {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

fn written() -> Option<u64> {
    let mut buffer = [0; 512];
    let length = rustix::io::pread(sys::at(slot::ACCOUNT), &mut buffer, 0).ok()?;
    proc::field(buffer.get(..length)?, b"wchar:").and_then(proc::number)
}
