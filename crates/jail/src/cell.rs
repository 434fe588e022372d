//! What happens inside a run. Our own init builds the jail around itself and forks the program's
//! process, which waits for its job, puts on the last layers and waits to be let go. The init reaps
//! until the end.
//!
//! The same code runs in the launcher, where the program's process then executes the program, and in a
//! zygote ([`crate::zygote`]), where it goes on as the interpreter that it was forked from.

use core::ffi::CStr;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Access, AtFlags, FileType, Mode, OFlags, ResolveFlags, Timespec, Timestamps};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{DumpableBehavior, Pid, Resource, Rlimit, Signal};
use rustix::thread::{CapabilitySet, CapabilitySets, Gid, Uid};

use crate::chan::{self, Fds, Received};
use crate::fail::{At, Done, failed, require};
use crate::proxy::{self, Listeners};
use crate::sys::{self, Cloned, Packet, Vector};
use crate::wire::{
    Ended, Entrance, Item, Job, Limits, MAX_CGROUPS, Moment, Order, Report, Setup, Step, Supplies,
    What, hole,
};
use crate::{INNER_ID, landlock, place, proc, tree};

/// Descriptors of a cell stand at fixed numbers, above any that the spawner has and out of the way of
/// those that come with a job.
mod slot {
    use super::MAX_CGROUPS;

    /// To the spawner.
    pub(super) const CORD: u32 = 800;
    /// To hotcell: the job comes over it, and the init's last word goes.
    pub(super) const LINE: u32 = 801;
    pub(super) const RULESET: u32 = 802;
    pub(super) const ACCOUNT: u32 = 803;
    pub(super) const CELL: u32 = 804;
    pub(super) const CGROUP: u32 = 805;
    pub(super) const END: u32 = CGROUP + MAX_CGROUPS as u32;
}

/// The name of every init.
const INIT_NAME: &CStr = c"hotcell-init";
/// The name of every machine.
const HOSTNAME: &[u8] = b"hotcell";
/// What a kernel without one has.
const DOMAIN_NAME: &[u8] = b"(none)";

/// The last capability that a kernel may know; those it does not know are refused, which is the end
/// of the list.
const LAST_CAPABILITY: u32 = 63;

/// How many descriptors a program has: standard input, output and error.
const STANDARD: u32 = 3;

/// Exit codes of our own processes, for the log only: what counts is what the launcher sees.
const FAILED: u8 = 70;

/// An order with what the spawner adds.
#[derive(Debug)]
pub(crate) struct Plan<'a> {
    pub(crate) order: &'a Order<'a>,
    pub(crate) fds: &'a Fds,
    pub(crate) ruleset: BorrowedFd<'a>,
    pub(crate) ground: Ground,
    pub(crate) cord: BorrowedFd<'a>,
}

/// What is the same for all cells of a spawner.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ground {
    pub(crate) setup: Setup,
    pub(crate) landlock_abi: u32,
    pub(crate) drops_groups: bool,
}

/// How the C library of a zygote forks, so that what it keeps about its process is true in the child.
pub type Fork = extern "C" fn() -> i32;

/// The whole life of the init, and of a program's process up to its program. Called in a new process that
/// nobody else shares memory with.
pub(crate) fn live(plan: &Plan<'_>) -> ! {
    let program = build(plan).and_then(|()| {
        fork_program(plan, || match sys::clone(0, None)? {
            Cloned::Child => Ok(None),
            Cloned::Parent { pid, .. } => Ok(Some(pid)),
        })
    });
    match program {
        Ok(Some(program)) => watch(program),
        Ok(None) => {
            let Err(failure) = become_program(plan);
            fail_and_wait(&failure)
        }
        Err(failure) => fail(&failure),
    }
}

/// What the interpreter does in a program's process before there is a job.
pub type Rehearse = extern "C" fn();

/// The same in a zygote: returns in the program's process, once that was let go, with its job.
pub(crate) fn live_on(plan: &Plan<'_>, fork: Fork, rehearse: Rehearse) -> Job<'static> {
    let program = build(plan).and_then(|()| {
        fork_program(plan, || match fork() {
            0 => Ok(None),
            pid => Pid::from_raw(pid.max(0)).map(Some).ok_or(Errno::AGAIN),
        })
    });
    match program {
        Ok(Some(program)) => {
            // The interpreter's handlers are for its own process: to the init of a pid namespace only a
            // signal that has one can be sent from inside.
            sys::reset_signals();
            watch(program)
        }
        Ok(None) => match go_on(plan, rehearse) {
            Ok(job) => job,
            Err(failure) => fail_and_wait(&failure),
        },
        Err(failure) => fail(&failure),
    }
}

/// Tells the spawner and ends. If even this cannot be said, it sees a cell that ended without a word.
fn fail(failure: &crate::wire::Failed) -> ! {
    let told = chan::report(sys::at(slot::CORD), &Report::Failed(*failure), None);
    sys::exit(if told.is_ok() { FAILED } else { FAILED + 1 })
}

/// The same for the program's process, whose end the init would tell hotcell before the spawner tells
/// the reason. It waits for the end that the spawner brings; a closed cord is that as well.
fn fail_and_wait(failure: &crate::wire::Failed) -> ! {
    if chan::report(sys::at(slot::CORD), &Report::Failed(*failure), None).is_ok() {
        while rustix::io::read(sys::at(slot::CORD), &mut [0]).is_ok_and(|length| length > 0) {}
    }
    sys::exit(FAILED)
}

/// Everything up to the fork of the program's process.
fn build(plan: &Plan<'_>) -> Done {
    let order = plan.order;
    settle_descriptors(plan).at(Step::Descriptors)?;
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).at(Step::DeathSignal)?;
    join_cgroup(order)?;
    if !order.leaves_out(hole::KEYRING) {
        sys::new_keyring().at(Step::Keyring)?;
    }
    let listeners = if plan.ground.setup.bare {
        // What the program leaves behind comes to this process, as it would to a pid 1.
        let own = rustix::process::getpid();
        rustix::process::set_child_subreaper(Some(own)).at(Step::Namespaces)?;
        require(!order.proxied, Step::Proxy)?;
        None
    } else {
        furnish(plan)?
    };
    hand_out(listeners).at(Step::Writable)?;
    wall_in(plan)
}

/// What hotcell holds of the cell. Nothing of the way out stays inside but its names.
fn hand_out(listeners: Option<Listeners>) -> rustix::io::Result<()> {
    let mut fds = [sys::at(slot::CELL); 1 + proxy::MOST];
    let handed = listeners.iter().flat_map(Listeners::each);
    let mut count = 1;
    for (place, fd) in fds.iter_mut().skip(1).zip(handed) {
        *place = fd;
        count += 1;
    }
    chan::report_with(sys::at(slot::CORD), &Report::Built, fds.get(..count).unwrap_or_default())
}

/// What the namespaces are filled with.
fn furnish(plan: &Plan<'_>) -> Done<Option<Listeners>> {
    let order = plan.order;
    let has_cgroup = order.entrance != Entrance::default();
    if has_cgroup && !order.leaves_out(hole::CGROUP_NAMESPACE) {
        // Only now, so that the run's cgroup is what it sees as the root.
        let flag = linux_raw_sys::general::CLONE_NEWCGROUP;
        sys::unshare(flag).at(Step::CgroupNamespace)?;
    }
    let is_alone = order.inside == 0;
    if is_alone {
        name_and_connect(order)?;
    }
    if plan.ground.setup.proc {
        if !order.leaves_out(hole::PID) {
            if !is_alone {
                tree::leave_proc().at(Step::ProcMount)?;
            }
            tree::own_proc().at(Step::ProcMount)?;
        }
        open_account().at(Step::ProcMount)?;
        if has_cgroup && !order.leaves_out(hole::CGROUP_NAMESPACE) {
            let is_root = is_root_of_its_cgroups().at(Step::CgroupNamespace)?;
            require(is_root, Step::CgroupNamespace)?;
        }
    }
    wait_for_word().at(Step::IdMap)?;
    // Where they cannot be dropped, the user's own groups stay, as overflow ids.
    switch_id(plan.ground.drops_groups).at(Step::SwitchId)?;
    let cell = if is_alone {
        tree::writable(order.limits.disk_bytes, order.limits.files)
    } else {
        tree::shared_places()
    };
    sys::place_cloexec(cell.at(Step::Writable)?, slot::CELL).at(Step::Descriptors)?;
    let opens_way_out = order.proxied && is_alone;
    opens_way_out.then(|| proxy::open(order.loopback)).transpose().at(Step::Proxy)
}

/// Namespaces that are new: a machine's name, and a loopback interface.
fn name_and_connect(order: &Order<'_>) -> Done {
    if !order.leaves_out(hole::UTS) {
        rustix::system::sethostname(HOSTNAME).at(Step::Hostname)?;
        rustix::system::setdomainname(DOMAIN_NAME).at(Step::Hostname)?;
    }
    if order.loopback && !order.leaves_out(hole::NET) {
        loopback().at(Step::Loopback)?;
    }
    Ok(())
}

/// Whether this process sees its own cgroup as the root in every hierarchy. From outside nobody can see that.
pub(crate) fn is_root_of_its_cgroups() -> rustix::io::Result<bool> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = rustix::fs::open(c"/proc/self/cgroup", flags, Mode::empty())?;
    let mut buffer = [0; 4096];
    let length = rustix::io::read(file, &mut buffer)?;
    let text = buffer.get(..length).unwrap_or_default();
    Ok(length > 0 && proc::lines(text).all(|line| line.ends_with(b":/")))
}

/// Exactly the descriptors of this cell, at their places; everything else is closed.
fn settle_descriptors(plan: &Plan<'_>) -> rustix::io::Result<()> {
    sys::place_cloexec(plan.cord, slot::CORD)?;
    sys::place_cloexec(plan.fds.get(1)?, slot::LINE)?;
    sys::place_cloexec(plan.ruleset, slot::RULESET)?;
    // The run's socket is the spawner's, and a directory to be born in has done its work already.
    let first = 2 + usize::from(plan.order.entrance.born);
    let joined = u32::from(plan.order.entrance.joins);
    for (index, number) in (first..).zip(slot::CGROUP..slot::CGROUP + joined) {
        sys::place_cloexec(plan.fds.get(index)?, number)?;
    }
    sys::close_range(slot::RULESET + 1, slot::CGROUP - 1)?;
    if plan.order.brings_places {
        let last = plan.fds.count().checked_sub(1).ok_or(Errno::BADF)?;
        sys::place_cloexec(plan.fds.get(last)?, slot::CELL)?;
    }
    sys::close_range(0, slot::CORD - 1)?;
    sys::close_range(slot::CGROUP + joined, u32::MAX)
}

fn join_cgroup(order: &Order<'_>) -> Done {
    for index in 0..u32::from(order.entrance.joins) {
        // "0" in a `tasks` file is the one way in that does not wait for all processors: this thread,
        // by itself.
        let tasks = sys::at(slot::CGROUP + index);
        rustix::io::write(tasks, b"0").at_index(Step::CgroupAttach, index as usize)?;
    }
    sys::close_range(slot::CGROUP, slot::END).at(Step::Descriptors)
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

/// The spawner says one word when the ids are mapped, and one when the program may go.
fn wait_for_word() -> rustix::io::Result<()> {
    match rustix::io::read(sys::at(slot::CORD), &mut [0])? {
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

/// No new privileges, Landlock, no capability in any set.
fn wall_in(plan: &Plan<'_>) -> Done {
    if !plan.order.leaves_out(hole::NO_NEW_PRIVS) {
        rustix::thread::set_no_new_privs(true).at(Step::NoNewPrivs)?;
    }
    if !plan.order.leaves_out(hole::LANDLOCK) {
        let ruleset = sys::at(slot::RULESET);
        landlock::allow_places(ruleset, plan.ground.landlock_abi, sys::at(slot::CELL))?;
        if plan.ground.setup.proc {
            landlock::allow_proc(ruleset)?;
        }
        sys::landlock_restrict(ruleset).at(Step::Landlock)?;
    }
    if plan.ground.setup.bare {
        // The end of such a run is a signal to everybody that this process may signal. That it may not
        // signal its own parent shows that this means the run, and not everything of this user.
        let parent =
            rustix::process::getppid().and_then(|p| rustix::process::test_kill_process(p).err());
        require(parent == Some(Errno::PERM), Step::AttestLandlock)?;
    }
    if !plan.order.leaves_out(hole::CAPABILITIES) {
        drop_capabilities(plan.ground.setup.bare).at(Step::Capabilities)?;
    }
    Ok(())
}

fn drop_capabilities(bare: bool) -> rustix::io::Result<()> {
    match drop_bounding_set() {
        // Without a user namespace there is no right to it; no_new_privs makes it moot.
        Err(Errno::PERM) if bare => {}
        other => other?,
    }
    clear_capabilities()
}

/// What no program that is executed from here on can have.
pub(crate) fn drop_bounding_set() -> rustix::io::Result<()> {
    for capability in 0..=LAST_CAPABILITY {
        match sys::drop_bounding(capability) {
            Err(Errno::INVAL) => break,
            other => other?,
        }
    }
    Ok(())
}

pub(crate) fn clear_capabilities() -> rustix::io::Result<()> {
    rustix::thread::clear_ambient_capability_set()?;
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    rustix::thread::set_capabilities(None, sets)
}

/// Forks the program's process; nothing in that process itself.
fn fork_program(
    plan: &Plan<'_>,
    fork: impl FnOnce() -> rustix::io::Result<Option<Pid>>,
) -> Done<Option<Pid>> {
    // From here on nobody inside can look into this process; the child is opened again for the
    // spawner's eyes, and has nothing in it yet.
    set_dumpable(plan.order, DumpableBehavior::NotDumpable)?;
    let program = fork().at(Step::Fork)?;
    if program.is_some() {
        // For whoever looks at the host's processes.
        rustix::thread::set_name(INIT_NAME).at(Step::Fork)?;
        sys::close_range(slot::RULESET, slot::RULESET).at(Step::Descriptors)?;
        sys::close_range(slot::CELL, u32::MAX).at(Step::Descriptors)?;
    }
    Ok(program)
}

fn set_dumpable(order: &Order<'_>, behaviour: DumpableBehavior) -> Done {
    if order.leaves_out(hole::DUMPABLE) {
        return Ok(());
    }
    rustix::process::set_dumpable_behavior(behaviour).at(Step::Fork)
}

/// The program's process: waits for its job, puts on the rest of the layers, waits for release, and
/// becomes the program.
fn become_program(plan: &Plan<'_>) -> Done<core::convert::Infallible> {
    let landlock_denied = stand(plan)?;
    let job = take_job(plan)?;
    let too_many = || failed(Step::Program, Errno::TOOBIG, 0);
    let (mut args, mut env) = (Vector::new(), Vector::new());
    let args = args.fill(job.args.clone()).ok_or_else(too_many)?;
    let env = env.fill(job.env.clone()).ok_or_else(too_many)?;
    poise(&job, landlock_denied)?;
    wait_for_word().at(Step::Protocol)?;
    let errno = sys::execute(job.program, job.exec_key, args, env);
    Err(failed(Step::Program, errno, 0))
}

/// The same where the program is this very process. Nothing is executed that would close descriptors, so
/// that the last one is closed before the process is read back, and it waits for its release in a call
/// that the filter reports, whose answer is the word; anything else is the end.
fn go_on(plan: &Plan<'_>, rehearse: Rehearse) -> Done<Job<'static>> {
    let landlock_denied = stand(plan)?;
    // Whatever is done now is not waited for later. It is still nobody's code but the interpreter's own.
    rehearse();
    let job = take_job(plan)?;
    poise(&job, landlock_denied)?;
    sys::close_range(STANDARD, u32::MAX).at(Step::Descriptors)?;
    sys::await_release().at(Step::Protocol)?;
    Ok(job)
}

/// Everything that is done before there is a job. Tells whether Landlock refused the sentinel.
fn stand(plan: &Plan<'_>) -> Done<bool> {
    let order = plan.order;
    set_dumpable(order, DumpableBehavior::Dumpable)?;
    if !order.leaves_out(hole::SESSION) {
        rustix::process::setsid().at(Step::Session)?;
    }
    rustix::process::umask(Mode::from_raw_mode(0o022));
    if !order.leaves_out(hole::LANDLOCK) {
        // A second domain within the init's: signals and looks reach down from the init and not up.
        sys::landlock_restrict(sys::at(slot::RULESET)).at(Step::Landlock)?;
    }
    if plan.ground.setup.bare {
        stand_alone()?;
    } else {
        rustix::process::chdir(place::WORK).at(Step::Session)?;
    }
    sys::close_range(slot::RULESET, slot::ACCOUNT).at(Step::Descriptors)?;
    Ok(sentinel_is_refused(plan.ground.setup.bare))
}

/// Waits for the job, and does everything that comes before the filter.
fn take_job(plan: &Plan<'_>) -> Done<Job<'static>> {
    let order = plan.order;
    static HANDED: Packet = Packet::new();
    let packet = HANDED.take().at(Step::Protocol)?;
    let received = take_supplies(packet, order.inside != 0)?;
    let packet: &'static [u8] = packet;
    let packet = packet.get(..received.length).unwrap_or_default();
    let job = Job::read(packet).at(Step::Protocol)?;
    require_descriptors(&received, Job::DESCRIPTORS)?;
    // A program that is not there is told before anything counts as started.
    rustix::fs::access(job.program, Access::EXEC_OK).at(Step::Program)?;
    let last = if order.leaves_out(hole::DESCRIPTORS) { slot::LINE } else { slot::CORD };
    keep_three(received.fds, last).at(Step::Descriptors)?;
    // Not before: a job may come with more descriptors than its program may open.
    if !order.leaves_out(hole::RLIMITS) {
        limit(&order.limits).at(Step::Rlimits)?;
    }
    if order.leaves_out(hole::DESCRIPTORS) {
        for number in [slot::CORD, slot::LINE] {
            sys::place(sys::at(number), number).at(Step::Descriptors)?;
        }
    }
    Ok(job)
}

/// Puts on the filter, and tells the spawner.
fn poise(job: &Job<'_>, landlock_denied: bool) -> Done {
    let listener = sys::install_filter(job.filter).at(Step::Seccomp)?;
    let poised = Report::Poised { landlock_denied };
    let cord = sys::at(slot::CORD);
    chan::report_with_key(cord, &poised, listener.as_fd(), job.exec_key).at(Step::Seccomp)
}

/// What a pid and a mount namespace would have done for the program's process.
fn stand_alone() -> Done {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).at(Step::DeathSignal)?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let work = rustix::fs::openat(sys::at(slot::CELL), c"work", flags, Mode::empty());
    rustix::process::fchdir(work.at(Step::Session)?).at(Step::Session)
}

/// Locked memory, queued signals and message queues of every run: enough for ordinary programs, nothing to
/// hoard with.
pub(crate) mod own {
    pub(crate) const LOCKED: u64 = 64 * 1024;
    pub(crate) const PENDING: u64 = 1024;
    pub(crate) const QUEUES: u64 = 64 * 1024;
}

fn limit(limits: &Limits) -> rustix::io::Result<()> {
    limit_oneself()?;
    let fixed = [
        (Resource::Memlock, own::LOCKED),
        (Resource::Sigpending, own::PENDING),
        (Resource::Msgqueue, own::QUEUES),
        (Resource::Fsize, limits.file_bytes),
        (Resource::Nofile, limits.open_files),
    ];
    let per_process = [(Resource::Data, limits.data_bytes), (Resource::Nproc, limits.processes)];
    let wanted = per_process.into_iter().filter(|&(_, value)| value != 0);
    for (resource, value) in fixed.into_iter().chain(wanted) {
        limit_to(resource, value, value)?;
    }
    match limits.cpu_seconds {
        0 => Ok(()),
        // First the signal that says what it is; who ignores that has a second more.
        soft => limit_to(Resource::Cpu, soft, soft.saturating_add(1)),
    }
}

/// What every run and every zygote has. Nothing that is counted for a user: the limit of whoever makes a
/// user namespace holds for all that are in such ones together, so that runs of one zygote would take from
/// each other.
pub(crate) fn limit_oneself() -> rustix::io::Result<()> {
    let all = [Resource::Core, Resource::Nice, Resource::Rtprio];
    all.into_iter().try_for_each(|resource| limit_to(resource, 0, 0))
}

/// A lower hard limit that the host already set stays.
fn limit_to(resource: Resource, soft: u64, hard: u64) -> rustix::io::Result<()> {
    let most = rustix::process::getrlimit(resource).maximum.unwrap_or(u64::MAX);
    let limit = Rlimit { current: Some(soft.min(most)), maximum: Some(hard.min(most)) };
    rustix::process::setrlimit(resource, limit)
}

/// Fills the working directory until the job comes, and leaves that in `packet`. Where none comes, this is
/// the end. `replaces` what is there already.
fn take_supplies(packet: &mut [u8], replaces: bool) -> Done<Received> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let cell = sys::at(slot::CELL);
    let work = rustix::fs::openat(cell, c"work", flags, Mode::empty()).at(Step::Inputs)?;
    let mut placed = 0;
    loop {
        let received = chan::receive(sys::at(slot::LINE), packet).at(Step::Protocol)?;
        if received.length == 0 {
            sys::exit(0);
        }
        let part = packet.get(..received.length).unwrap_or_default();
        if Job::is_one(part) {
            return Ok(received);
        }
        let supplies = Supplies::read(part).at(Step::Protocol)?;
        require_descriptors(&received, supplies.descriptors())?;
        let mut files = 0..;
        let is_last = supplies.is_last;
        for item in supplies.items {
            if replaces {
                make_way(&work, item).at_index(Step::Inputs, placed)?;
            }
            place(&work, item, &received.fds, &mut files, replaces)
                .at_index(Step::Inputs, placed)?;
            placed += 1;
        }
        if !is_last {
            chan::report(sys::at(slot::LINE), &Report::Taken, None).at(Step::Protocol)?;
        }
    }
}

fn require_descriptors(received: &Received, count: usize) -> Done {
    if received.fds.count() == count {
        return Ok(());
    }
    Err(failed(Step::Protocol, Errno::BADF, received.fds.count()))
}

/// Where programs were before, something may have the name already. A directory stays where one is wanted,
/// and is never removed.
fn make_way(work: &OwnedFd, item: Item<'_>) -> rustix::io::Result<()> {
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    let there = match rustix::fs::statat(work, item.path, flags) {
        Ok(stat) => FileType::from_raw_mode(stat.st_mode),
        Err(Errno::NOENT) => return Ok(()),
        Err(errno) => return Err(errno),
    };
    match (there, item.what) {
        (FileType::Directory, What::Directory) => Ok(()),
        (FileType::Directory, _) => Err(Errno::ISDIR),
        _ => rustix::fs::unlinkat(work, item.path, AtFlags::empty()),
    }
}

fn place(
    work: &OwnedFd,
    item: Item<'_>,
    fds: &Fds,
    files: &mut impl Iterator<Item = usize>,
    replaces: bool,
) -> rustix::io::Result<()> {
    match item.what {
        What::Directory => match rustix::fs::mkdirat(work, item.path, Mode::from_raw_mode(0o755)) {
            Err(Errno::EXIST) if replaces => Ok(()),
            other => other,
        },
        What::Link(target) => rustix::fs::symlinkat(target, work, item.path),
        What::File(content) => {
            let source = fds.get(files.next().ok_or(Errno::BADF)?)?;
            let mode = Mode::from_raw_mode(if content.executable { 0o755 } else { 0o644 });
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
            let target = rustix::fs::openat2(work, item.path, flags, mode, resolve)?;
            copy(source, &target, content.bytes)?;
            stamp(&target, content.modified)
        }
    }
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

fn stamp(target: &OwnedFd, modified: Moment) -> rustix::io::Result<()> {
    let time = Timespec { tv_sec: modified.seconds, tv_nsec: modified.nanos.into() };
    rustix::fs::futimens(target, &Timestamps { last_access: time, last_modification: time })
}

/// The job's first three descriptors become 0, 1 and 2; of the rest only the cord, or what comes up to
/// `last`, stays, until exec.
fn keep_three(fds: Fds, last: u32) -> rustix::io::Result<()> {
    // They came one after the other into an empty table, so that none stands in another's place.
    for number in 0..STANDARD {
        sys::place(fds.get(number as usize)?, number)?;
    }
    // Numbers, from here on: their owner must not close what was just put there.
    core::mem::forget(fds);
    sys::close_range(STANDARD, slot::CORD - 1)?;
    sys::close_range(last + 1, u32::MAX)
}

/// The one thing about Landlock that can be seen: a file that no rule covers.
fn sentinel_is_refused(bare: bool) -> bool {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let opened = if bare {
        rustix::fs::openat(sys::at(slot::CELL), place::BARE_SENTINEL, flags, Mode::empty())
    } else {
        rustix::fs::open(place::SENTINEL, flags, Mode::empty())
    };
    matches!(opened, Err(Errno::ACCESS))
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
    let told = chan::report(sys::at(slot::LINE), &Report::Ended(ended), None);
    sys::exit(if told.is_ok() { 0 } else { FAILED })
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
