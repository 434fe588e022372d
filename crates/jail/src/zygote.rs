//! A zygote: an interpreter that has done its start, and is forked for each run. This is what it does
//! with its life, in a library that it loads: it waits for orders of the spawner and forks a cell for
//! each. The cell's init never goes back into the interpreter; the program's process does, once it is in
//! a jail of its own, was read back from outside and let go.
//!
//! A zygote has run nothing but the interpreter's own code. It has no capability, an id that nothing else
//! has, the root tree of runs, and no network.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{Resource, Rlimit, Signal};
use rustix::thread::{Gid, Uid};

use crate::cell::{self, Fork, Ground, Plan, Rehearse};
use crate::chan::{self, Fds, MAX_REPORT};
use crate::fail::{At, Done, failed};
use crate::proc::HostProc;
use crate::spawner::namespaces;
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
        let forking = Forking::read(packet).at(Step::Zygote)?;
        let flags = namespaces(&forking.order) | sys::SIBLING;
        let into = forking.order.entrance.born.then(|| received.fds.get(2)).transpose();
        match sys::clone(flags, into.at(Step::Zygote)?) {
            Ok(Cloned::Parent { pidfd, .. }) => {
                chan::report(line(), &Report::Born, Some(pidfd.as_fd())).at(Step::Zygote)?;
            }
            Ok(Cloned::Child) => {
                let task = become_cell(&forking, &received.fds, fork, rehearse);
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

fn become_cell(forking: &Forking<'_>, fds: &Fds, fork: Fork, rehearse: Rehearse) -> Task {
    let last = fds.count().saturating_sub(1);
    let (Ok(cord), Ok(ruleset)) = (fds.get(0), fds.get(last)) else { sys::exit(1) };
    let ground = Ground {
        setup: forking.setup,
        landlock_abi: forking.landlock_abi,
        drops_groups: forking.drops_groups,
    };
    let plan = Plan { order: &forking.order, fds, ruleset, ground, cord };
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
    pidfd: OwnedFd,
    line: OwnedFd,
    /// To hotcell.
    socket: OwnedFd,
    /// Where it lives, which no run may.
    pub(crate) namespaces: [u64; 7],
    pub(crate) is_hatched: bool,
}

/// How long the spawner waits for the answer to an order. Forking takes a millisecond.
const BORN_WITHIN: Timespec = Timespec { tv_sec: 2, tv_nsec: 0 };
const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

impl Zygote {
    pub(crate) fn start(host: &HostProc, wanted: &wire::Zygote<'_>, fds: &mut Fds) -> Done<Zygote> {
        let (ours, theirs) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .at(Step::Zygote)?;
        use linux_raw_sys::general as nr;
        let apart = nr::CLONE_NEWNET | nr::CLONE_NEWIPC | nr::CLONE_NEWUTS;
        match sys::clone(u64::from(apart), None).at(Step::Zygote)? {
            Cloned::Child => {
                let Err(_) = execute(wanted, &theirs, fds);
                // The closed line tells it.
                sys::exit(1)
            }
            Cloned::Parent { pidfd, .. } => Ok(Zygote {
                number: wanted.number,
                namespaces: host
                    .behind(&pidfd)
                    .and_then(|process| process.namespaces())
                    .at(Step::Zygote)?,
                pidfd,
                line: ours,
                socket: fds.take(0).at(Step::Protocol)?,
                is_hatched: false,
            }),
        }
    }

    pub(crate) fn line(&self) -> BorrowedFd<'_> {
        self.line.as_fd()
    }

    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Has a cell forked, and gives its init, which is a child of this process.
    pub(crate) fn fork(
        &self,
        ground: Ground,
        order: &Order<'_>,
        fds: &[BorrowedFd<'_>],
    ) -> Done<OwnedFd> {
        let mut buffer = [0; MAX_FORKING];
        let mut writer = wire::Writer::new(&mut buffer);
        let Ground { setup, landlock_abi, drops_groups } = ground;
        Forking { setup, landlock_abi, drops_groups, order: *order }.write(&mut writer);
        let packet = writer.finish().at(Step::Zygote)?;
        chan::send(&self.line, packet, fds).at(Step::Zygote)?;
        match self.hear_within(&BORN_WITHIN)? {
            (Report::Born, Some(pidfd)) if sys::is_child(&pidfd) => Ok(pidfd),
            (Report::Failed(failure), _) => Err(failure),
            _ => Err(failed(Step::Zygote, Errno::PROTO, 0)),
        }
    }

    fn hear_within(&self, most: &Timespec) -> Done<(Report, Option<OwnedFd>)> {
        let mut fds = [PollFd::new(&self.line, PollFlags::IN)];
        match poll(&mut fds, Some(most)) {
            Ok(0) => return Err(failed(Step::Zygote, Errno::TIMEDOUT, 0)),
            other => other.at(Step::Zygote)?,
        };
        self.hear()
    }

    /// What it said; that it has ended is an error.
    pub(crate) fn hear(&self) -> Done<(Report, Option<OwnedFd>)> {
        let mut buffer = [0; MAX_REPORT];
        let mut received = chan::receive(&self.line, &mut buffer).at(Step::Zygote)?;
        let packet = buffer.get(..received.length).unwrap_or_default();
        let report = Report::read(packet).at(Step::Zygote)?;
        Ok((report, received.fds.take(0).ok()))
    }
}

impl Drop for Zygote {
    /// Ends it. Cells that were forked from it go on: they are not its children.
    fn drop(&mut self) {
        rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL).ok();
        let reaped = sys::reap(&self.pidfd);
        debug_assert!(reaped.is_ok(), "it is a child of this process");
        // What it forked for an order that nobody waits for any more.
        while let Ok((_, Some(late))) = self.hear_within(&AT_ONCE) {
            if sys::is_child(&late)
                && rustix::process::pidfd_send_signal(&late, Signal::KILL).is_ok()
            {
                sys::reap(&late).ok();
            }
        }
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
    settle_descriptors(line, fds).at(step)?;
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    rustix::process::setrlimit(Resource::Core, none).at(step)?;
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
    let too_many = || failed(step, Errno::TOOBIG, 0);
    let (mut args, mut env) = (Vector::new(), Vector::new());
    let args = args.fill(wanted.args.clone()).ok_or_else(too_many)?;
    let env = env.fill(wanted.env.clone()).ok_or_else(too_many)?;
    Err(failed(step, sys::execute(wanted.program, 0, args, env), 0))
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
