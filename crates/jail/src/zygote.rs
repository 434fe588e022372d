//! A zygote: an interpreter that has done its start, and is forked for each run. This is what it does
//! with its life, in a library that it loads: it waits for orders of the spawner and forks a cell for
//! each. The cell's init never goes back into the interpreter; the program's process does, once it is in
//! a jail of its own, was read back from outside and let go.
//!
//! A zygote has run nothing but the interpreter's own code. It has no capability, an id that nothing else
//! has, the root tree of runs, a cgroup of its own, and no network.
//!
//! What it cannot have is what its children could not take off again or build under: Landlock forbids every
//! mount to whoever is in a domain, so that no cell could have its own places; and limits can only be
//! lowered, or hold for all its children together. Its filter forbids what neither cells nor programs of any profile
//! do. It answers by way of SECCOMP_RET_TRACE, which without a tracer is ENOSYS and, unlike an error,
//! weaker than a report: what a run's own filter reports stays reported.

use core::mem::MaybeUninit;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::RawDir;
use rustix::io::Errno;
use rustix::process::Signal;
use rustix::thread::{Gid, Uid};

use crate::cell::{self, Fork, Ground, Plan, Rehearse};
use crate::chan::{self, Fds, MAX_REPORT};
use crate::fail::{At, Done, failed, require};
use crate::proc::{self, HostProc, Process};
use crate::spawner::{namespaces, pair};
use crate::sys::{self, Cloned, Reserve, Strings, Vector};
use crate::wire::{self, Forking, MAX_FORKING, Order, Report, Step};

/// What the process of a run is to be: NULL-terminated arrays of strings that are there to its end.
#[derive(Debug)]
#[repr(C)]
pub struct Task {
    args: Strings<'static>,
    env: Strings<'static>,
}

/// Serves until the spawner goes away. Returns only in a program's process that was let go. `fork` is the
/// C library's, so that what that keeps about its process is true in the child; `rehearse` is called in
/// each of those before there is a job for it.
pub fn serve(fork: Fork, rehearse: Rehearse) -> Task {
    match forks(fork, rehearse) {
        Ok(Some(task)) => task,
        Ok(None) => sys::exit(0),
        Err(failure) => {
            chan::report(line(), &Report::Failed(failure), None).ok();
            sys::exit(1)
        }
    }
}

fn line() -> BorrowedFd<'static> {
    sys::at(wire::Zygote::LINE)
}

fn forks(fork: Fork, rehearse: Rehearse) -> Done<Option<Task>> {
    chan::report(line(), &Report::Hatched, None).at(Step::Zygote)?;
    let mut buffer = [0; MAX_FORKING];
    loop {
        let received = chan::receive(line(), &mut buffer).at(Step::Zygote)?;
        if received.length == 0 {
            return Ok(None);
        }
        let packet = buffer.get(..received.length).unwrap_or_default();
        let Forking { setup, landlock_abi, drops_groups, order } =
            Forking::read(packet).at(Step::Zygote)?;
        // The name is for the spawner's eyes.
        let order = Order { cgroup_name: &[], ..order };
        let ground = Ground { setup, landlock_abi, drops_groups };
        // Nothing of this order, nor of a longer one before it, is for the program to find.
        buffer.fill(0);
        core::hint::black_box(&buffer);
        let flags = namespaces(&order) | sys::SIBLING;
        let into = order.entrance.born.then(|| received.fds.get(2)).transpose();
        match sys::clone(flags, into.at(Step::Zygote)?) {
            Ok(Cloned::Parent { pidfd, .. }) => {
                chan::report(line(), &Report::Born, Some(pidfd.as_fd())).at(Step::Zygote)?;
            }
            Ok(Cloned::Child) => {
                let task = become_cell(&order, ground, &received.fds, fork, rehearse);
                // Their numbers are the run's own by now.
                core::mem::forget(received);
                return Ok(Some(task));
            }
            Err(errno) => {
                let failure = Report::Failed(failed(Step::Clone, errno, 0));
                chan::report(line(), &failure, None).at(Step::Zygote)?;
            }
        }
    }
}

fn become_cell(
    order: &Order<'_>,
    ground: Ground,
    fds: &Fds,
    fork: Fork,
    rehearse: Rehearse,
) -> Task {
    let last = fds.count().saturating_sub(1);
    let (Ok(cord), Ok(ruleset)) = (fds.get(0), fds.get(last)) else { sys::exit(1) };
    let plan = Plan { order, fds, ruleset, ground, cord };
    let job = cell::live_on(&plan, fork, rehearse);
    static ARGS: Reserve<Vector> = Reserve::of(Vector::new());
    static ENV: Reserve<Vector> = Reserve::of(Vector::new());
    let args = ARGS.take().ok().and_then(|room| room.fill(job.args));
    let env = ENV.take().ok().and_then(|room| room.fill(job.env));
    match (args, env) {
        (Some(args), Some(env)) => Task { args, env },
        // There is room for as many as a job can have.
        _ => sys::exit(1),
    }
}

/// A zygote as the spawner knows it.
#[derive(Debug)]
pub(crate) struct Zygote {
    pub(crate) number: u8,
    /// As the host numbers it.
    pub(crate) pid: u64,
    pidfd: OwnedFd,
    line: OwnedFd,
    /// To hotcell. Closed once it is dead, and not before: hotcell then gives its id to somebody else.
    socket: OwnedFd,
    /// Where it lives, which no run may.
    pub(crate) namespaces: [u64; 7],
    /// As it was when it hatched.
    hatched: Option<Stature>,
    forks: u32,
    pub(crate) is_dying: bool,
}

/// After how many forks it is looked at again.
const LOOKED_AT_EVERY: u32 = 32;

impl Zygote {
    pub(crate) fn start(host: &HostProc, wanted: &wire::Zygote<'_>, fds: &mut Fds) -> Done<Zygote> {
        let (ours, theirs) = pair().at(Step::Zygote)?;
        use linux_raw_sys::general as nr;
        let apart = nr::CLONE_NEWNET | nr::CLONE_NEWIPC | nr::CLONE_NEWUTS;
        let into = wanted.entrance.born.then(|| fds.get(wire::Zygote::DESCRIPTORS));
        let into = into.transpose().at(Step::Protocol)?;
        match sys::clone(u64::from(apart), into).at(Step::Zygote)? {
            Cloned::Child => {
                let Err(_) = execute(wanted, &theirs, fds);
                // The closed line tells it.
                sys::exit(1)
            }
            Cloned::Parent { pidfd, .. } => {
                let process = host.behind(&pidfd).at(Step::Zygote)?;
                Ok(Zygote {
                    number: wanted.number,
                    pid: process.pid,
                    namespaces: process.namespaces().at(Step::Zygote)?,
                    pidfd,
                    line: ours,
                    socket: fds.take(0).at(Step::Protocol)?,
                    hatched: None,
                    forks: 0,
                    is_dying: false,
                })
            }
        }
    }

    pub(crate) fn line(&self) -> BorrowedFd<'_> {
        self.line.as_fd()
    }

    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub(crate) fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.hatched.is_some() && !self.is_dying
    }

    /// It says that it is ready. Whether its children could write to something together is looked at, and
    /// what it is like by now is kept.
    pub(crate) fn hatch(&mut self, host: &HostProc) -> Done {
        let process = host.behind(&self.pidfd).at(Step::Zygote)?;
        let mut shared = 0;
        process.each_line(c"maps", |line| shared += u32::from(is_shared(line))).at(Step::Zygote)?;
        require(shared == 0, Step::Zygote)?;
        let stature = Stature::of(&process).at(Step::Zygote)?;
        require(stature.threads == 1, Step::Zygote)?;
        self.hatched = Some(stature);
        Ok(())
    }

    /// A cell was born. Now and then tells whether it is what it was.
    pub(crate) fn bore(&mut self, host: &HostProc) -> bool {
        self.forks = self.forks.wrapping_add(1);
        let Some(hatched) = &self.hatched else { return false };
        if !self.forks.is_multiple_of(LOOKED_AT_EVERY) {
            return true;
        }
        let now = host.behind(&self.pidfd).and_then(|process| Stature::of(&process));
        // One that has ended meanwhile is told otherwise.
        now.map_or(true, |now| !now.has_outgrown(hatched))
    }

    /// Has a cell forked. The answer comes over its line: one for each order, in their order.
    pub(crate) fn fork(&self, ground: Ground, order: &Order<'_>, fds: &[BorrowedFd<'_>]) -> Done {
        let mut buffer = [0; MAX_FORKING];
        let mut writer = wire::Writer::new(&mut buffer);
        let Ground { setup, landlock_abi, drops_groups } = ground;
        Forking { setup, landlock_abi, drops_groups, order: *order }.write(&mut writer);
        let packet = writer.finish().at(Step::Zygote)?;
        chan::send_now(&self.line, packet, fds).at(Step::Zygote)
    }

    /// What it said; that it has ended is an error.
    pub(crate) fn hear(&self) -> Done<(Report, Option<OwnedFd>)> {
        let mut buffer = [0; MAX_REPORT];
        let mut received = chan::receive(&self.line, &mut buffer).at(Step::Zygote)?;
        let packet = buffer.get(..received.length).unwrap_or_default();
        let report = Report::read(packet).at(Step::Zygote)?;
        Ok((report, received.fds.take(0).ok()))
    }

    /// The same, where there may be nothing.
    pub(crate) fn hear_at_once(&self) -> Option<(Report, Option<OwnedFd>)> {
        let mut fds = [PollFd::new(&self.line, PollFlags::IN)];
        match poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
            Ok(1) => self.hear().ok(),
            _ => None,
        }
    }

    /// Begins its end: its exit is heard of. Cells that were forked from it go on, which are not its
    /// children.
    pub(crate) fn kill(&mut self) {
        self.is_dying = true;
        rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL).ok();
    }
}

/// A line of `maps`: what several processes can write to.
fn is_shared(line: &[u8]) -> bool {
    let access = proc::words(line).nth(1).unwrap_or_default();
    access.get(1) == Some(&b'w') && access.get(3) == Some(&b's')
}

/// What of a zygote can be seen from outside. It only ever forks, so that none of it changes.
#[derive(Debug, Clone, Copy)]
struct Stature {
    threads: u64,
    descriptors: u64,
    /// Memory of its own.
    memory_kib: u64,
}

impl Stature {
    /// What it has while it forks: the descriptors of one order, and those of its answer.
    const DESCRIPTORS_MORE: u64 = 24;
    const MEMORY_MORE_KIB: u64 = 4 * 1024;

    fn of(process: &Process) -> rustix::io::Result<Stature> {
        let mut buffer = [0; 4096];
        let text = process.read(c"status", &mut buffer)?;
        let of = |name: &[u8]| {
            let mut words = proc::words(proc::field(text, name)?);
            words.next().and_then(proc::number)
        };
        let threads = of(b"Threads:").ok_or(Errno::SRCH)?;
        let memory_kib = of(b"RssAnon:").ok_or(Errno::SRCH)?;
        let dir = process.open_dir(c"fd")?;
        let mut space = [MaybeUninit::uninit(); 2048];
        let mut entries = RawDir::new(&dir, &mut space);
        let mut descriptors = 0;
        while let Some(entry) = entries.next() {
            descriptors += u64::from(proc::number(entry?.file_name().to_bytes()).is_some());
        }
        Ok(Stature { threads, descriptors, memory_kib })
    }

    fn has_outgrown(&self, hatched: &Stature) -> bool {
        self.threads != hatched.threads
            || self.descriptors > hatched.descriptors + Stature::DESCRIPTORS_MORE
            || self.memory_kib > hatched.memory_kib + Stature::MEMORY_MORE_KIB
    }
}

/// In the zygote's own process: nothing but what it needs, and then the interpreter.
fn execute(
    wanted: &wire::Zygote<'_>,
    line: &OwnedFd,
    fds: &Fds,
) -> Done<core::convert::Infallible> {
    let step = Step::Zygote;
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).at(step)?;
    rustix::process::setsid().at(step)?;
    rustix::process::chdir(c"/").at(step)?;
    enter_cgroup(wanted, fds).at(step)?;
    settle_descriptors(line, fds).at(step)?;
    cell::limit_oneself().at(step)?;
    cell::drop_bounding_set().at(step)?;
    let (uid, gid) = (Uid::from_raw(wanted.uid), Gid::from_raw(wanted.gid));
    if rustix::process::geteuid() != uid {
        rustix::thread::set_thread_groups(&[]).at(step)?;
        rustix::thread::set_thread_res_gid(gid, gid, gid).at(step)?;
        rustix::thread::set_thread_res_uid(uid, uid, uid).at(step)?;
        // The signal of a parent's death does not outlive a change of ids.
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).at(step)?;
    }
    cell::clear_capabilities().at(step)?;
    rustix::thread::set_no_new_privs(true).at(step)?;
    sys::install_silent_filter(wanted.filter).at(step)?;
    let too_many = || failed(step, Errno::TOOBIG, 0);
    let (mut args, mut env) = (Vector::new(), Vector::new());
    let args = args.fill(wanted.args.clone()).ok_or_else(too_many)?;
    let env = env.fill(wanted.env.clone()).ok_or_else(too_many)?;
    Err(failed(step, sys::execute(wanted.program, 0, args, env), 0))
}

/// By files that somebody opened who may.
fn enter_cgroup(wanted: &wire::Zygote<'_>, fds: &Fds) -> rustix::io::Result<()> {
    let first = wire::Zygote::DESCRIPTORS + usize::from(wanted.entrance.born);
    for index in first..wanted.descriptors() {
        rustix::io::write(fds.get(index)?, b"0")?;
    }
    Ok(())
}

/// Nothing to read and nowhere to write, and what it serves with.
fn settle_descriptors(line: &OwnedFd, fds: &Fds) -> rustix::io::Result<()> {
    /// Out of the way of where they are put.
    const ABOVE: i32 = 100;
    let kept = [line.as_fd(), fds.get(1)?, fds.get(2)?];
    // Pipes, as runs have: interpreters remember what their streams are.
    let pipe = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let input = rustix::io::fcntl_dupfd_cloexec(&pipe.0, ABOVE)?;
    let output = rustix::io::fcntl_dupfd_cloexec(&pipe.1, ABOVE)?;
    // Their numbers may be among those that are filled next.
    drop(pipe);
    let [line, library, script] = kept.map(|fd| rustix::io::fcntl_dupfd_cloexec(fd, ABOVE));
    sys::place(input, 0)?;
    sys::place(&output, 1)?;
    sys::place(output, 2)?;
    sys::place(line?, wire::Zygote::LINE)?;
    sys::place(library?, wire::Zygote::LIBRARY)?;
    sys::place(script?, wire::Zygote::SCRIPT)?;
    sys::close_range(wire::Zygote::SCRIPT + 1, u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_several_can_write_to_is_seen() {
        for (line, expected) in [
            (&b"7f00-7f01 rw-s 00000000 00:05 1  /memfd:x (deleted)"[..], true),
            (b"7f00-7f01 -w-s 00000000 00:05 1", true),
            (b"7f00-7f01 r--s 00000000 08:01 1 /usr/lib/gconv-modules.cache", false),
            (b"7f00-7f01 rw-p 00000000 00:00 0 [heap]", false),
            (b"", false),
        ] {
            assert_eq!(is_shared(line), expected, "{}", line.escape_ascii());
        }
    }

    #[test]
    fn what_grows_is_seen_and_what_an_order_takes_is_none_of_it() {
        let hatched = Stature { threads: 1, descriptors: 6, memory_kib: 9000 };
        for (now, expected) in [
            (hatched, false),
            (Stature { descriptors: 20, memory_kib: 9500, ..hatched }, false),
            (Stature { threads: 2, ..hatched }, true),
            (Stature { descriptors: 38, ..hatched }, true),
            (Stature { memory_kib: 14_000, ..hatched }, true),
        ] {
            assert_eq!(now.has_outgrown(&hatched), expected, "{now:?}");
        }
    }
}
