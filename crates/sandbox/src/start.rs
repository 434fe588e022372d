//! Builds the jail around a job: hands it to the launcher and waits until every layer was read back.

use std::ffi::{OsStr, OsString};
use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hotcell_jail::chan::{self, Fds};
use hotcell_jail::wire::{
    Failed, JobParts, MAX_PACKET, MAX_STRINGS, Ready, Report, Seen, Step, Writer,
};
use hotcell_types::{Layer, LayerReport, Level, Limits, Start};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use crate::cell::{Cell, Kind, cgroup_refusal};
use crate::keeper::Seat;
use crate::lang::WORK_DIR;
use crate::native::Parts;
use crate::places::Places;
use crate::running::{Running, Shared};
use crate::seccomp::{self, Around};
use crate::seen::{self, Context};
use crate::streams::{Feed, Ours, Pipes, Stream};
use crate::supplies::{self, Placed};
use crate::warm::Seed;
use crate::{Job, Network, Refusal, Stdin, random, steps};

/// How long a run may take to be built. Far longer than it ever takes: a hang must not last.
pub(crate) const BUILD_MOST: Duration = Duration::from_secs(10);

/// A filter of one instruction: return, allow.
#[cfg(feature = "holes")]
const ALLOW_ALL: [u8; 8] = [0x06, 0, 0, 0, 0, 0, 0xff, 0x7f];

/// What was told while the jail was built.
#[derive(Debug)]
struct Built {
    cell: OwnedFd,
    listeners: Vec<OwnedFd>,
    seen: Seen,
    /// When it got its job, how long it was read back, when it was let go.
    given: Instant,
    attest: Duration,
    released: Instant,
}

/// A cell whose program was let go.
#[derive(Debug)]
pub(crate) struct Given {
    cell: Cell,
    pipes: Ours,
    built: Built,
    layers: Vec<LayerReport>,
    placed: Placed,
    /// Made ahead of the job.
    has_waited: bool,
}

impl Given {
    pub(crate) fn waited(self) -> Given {
        Given { has_waited: true, ..self }
    }
}

/// Builds the jail around a job, or takes one that waits, and lets the program go.
pub(crate) fn give(parts: &Parts<'_>, job: &Job) -> Result<Given, Refusal> {
    check_network(parts.base.level, parts.base.setup.bare, job.network)?;
    match give_a_cell(parts, job) {
        // Cells that wait for jobs of another kind take the room of one that is there.
        Err(Refusal::Busy { .. }) if parts.base.spares.end_all() => give_a_cell(parts, job),
        other => other,
    }
}

/// A run that may reach something by way of somebody must be kept from everything else.
pub(crate) fn check_network(level: Level, is_bare: bool, network: Network) -> Result<(), Refusal> {
    if network == Network::None || !is_bare {
        return Ok(());
    }
    Err(Refusal::Layer {
        layer: Layer::NetNamespace,
        why: format!("at level {level} nothing keeps a run with a proxy from other networks"),
        fix: "run it without a network, or on a host with namespaces: `hotcell doctor` says what \
              forbids them here"
            .into(),
    })
}

fn give_a_cell(parts: &Parts<'_>, job: &Job) -> Result<Given, Refusal> {
    let nursery = &parts.base.nursery;
    if let Some(number) = Seed::of(job).and_then(|seed| nursery.ready(&seed)) {
        match give_a_cell_of(Kind { zygote: number, ..Kind::of(job) }, parts, job) {
            // It was not let go: nothing of the job has run, and the way without a zygote is there as ever.
            Err(refusal) if refusal.is_lost() => {
                let executed = give_a_cell_of(Kind::of(job), parts, job);
                if executed.is_ok() {
                    // A job that fails this way as well has only itself to blame.
                    nursery.give_up(number);
                }
                return executed;
            }
            other => {
                nursery.worked();
                return other;
            }
        }
    }
    give_a_cell_of(Kind::of(job), parts, job)
}

fn give_a_cell_of(kind: Kind, parts: &Parts<'_>, job: &Job) -> Result<Given, Refusal> {
    if let Some(cell) = parts.base.spares.take(kind, parts.base.nursery.wait_most()) {
        match give_to(cell, parts, job) {
            // The waiting cell was lost; nothing of the job has run, so that another can take it.
            Err(refusal) if refusal.is_lost() => {}
            other => return other.map(Given::waited),
        }
    }
    give_to(Cell::order(parts.ground, parts.base, kind)?, parts, job)
}

/// Gives a cell its job and waits until every layer was read back.
pub(crate) fn give_to(cell: Cell, parts: &Parts<'_>, job: &Job) -> Result<Given, Refusal> {
    let pipes = Pipes::new(&job.stdin, cell.owner()).map_err(internal("making the run's pipes"))?;
    let mut placed = Placed::default();
    // Before the program can start, which it cannot before it is known: the cell may have waited for long.
    let of_cgroup = read_cgroup(&cell)?;
    let given = Instant::now();
    match supplies::send(&cell, job, &mut placed).and_then(|()| send(&cell, job, &pipes)) {
        // A cell that could not be made has said why before it closed the socket.
        Err(refusal) if refusal.is_lost() => {}
        sent => sent?,
    }
    drop(pipes.theirs);
    let ready = parts.base.launcher.ready().map_err(|_| {
        Refusal::of_talking("waiting for the launcher", io::ErrorKind::BrokenPipe.into())
    })?;
    let built = await_release(&cell, parts, job, &placed, given)?;
    placed.is_done();
    let layers = read_layers(parts, job, &built.seen, &cell, of_cgroup, ready)?;
    Ok(Given { cell, pipes: pipes.ours, built, layers, placed, has_waited: false })
}

/// The run of a program that was let go.
pub(crate) fn run(parts: &Parts<'_>, job: Job, given: Given) -> Result<Running, Refusal> {
    let seat = parts.keeper.seat(parts.base, Kind::of(&job), Seed::of(&job));
    go_on(parts, job, given, seat)
}

/// The same in a sandbox that stays.
pub(crate) fn run_inside(parts: &Parts<'_>, job: Job, given: Given) -> Result<Running, Refusal> {
    go_on(parts, job, given, parts.keeper.seat_inside(parts.base))
}

fn go_on(parts: &Parts<'_>, job: Job, given: Given, seat: Seat) -> Result<Running, Refusal> {
    let Given { cell, pipes, built, layers, placed, has_waited } = given;
    let start = match (cell.kind.zygote, has_waited) {
        (0, false) => Start::New,
        (0, true) => Start::Ready,
        (_, false) => Start::Forked,
        (_, true) => Start::Waiting,
    };
    let most = usize::try_from(job.limits.output.get()).unwrap_or(usize::MAX);
    let (feed, held) = match (job.stdin, pipes.stdin) {
        (Stdin::From(source), Some(pipe)) => (Some(Feed::new(source, pipe)), None),
        (Stdin::Held, pipe) => (None, pipe),
        _ => (None, None),
    };
    Ok(Running {
        stdout: Stream::new(pipes.stdout, most),
        stderr: Stream::new(pipes.stderr, most),
        feed,
        held,
        shared: Arc::new(Shared::new(cell.hold).map_err(internal("making the run's bell"))?),
        base: Arc::clone(parts.base),
        socket: cell.socket,
        line: Some(cell.line),
        ended: None,
        cell: built.cell,
        listeners: built.listeners,
        places: cell.places,
        id: cell.id,
        limits: job.limits,
        layers,
        program: job.command.program,
        note: job.command.note,
        placed,
        begun: parts.begun,
        given: built.given,
        released: built.released,
        attest: built.attest,
        is_refusing: false,
        start,
        seat,
    })
}

pub(crate) fn internal(doing: &'static str) -> impl FnOnce(io::Error) -> Refusal {
    move |source| Refusal::Internal { doing: doing.into(), source }
}

/// Hands the job over.
fn send(cell: &Cell, job: &Job, pipes: &Pipes) -> Result<(), Refusal> {
    let exec_key = random_key().map_err(internal("asking for random bytes"))?;
    let arch = seccomp::Arch::native().ok_or_else(|| Refusal::Layer {
        layer: Layer::Seccomp,
        why: "there is no filter for this processor".into(),
        fix: "use a 64-bit x86 or ARM machine".into(),
    })?;
    let around = if cell.places.is_some() { Around::Host } else { Around::Namespaces };
    let filter = seccomp::filter(job.profile, around, arch, exec_key);
    #[cfg(feature = "holes")]
    let filter = if job.holes.seccomp { ALLOW_ALL.to_vec() } else { filter };
    let env = environment(job, cell.places.as_ref());
    let env: Vec<&[u8]> = env.iter().map(Vec::as_slice).collect();
    let program = localised(job.command.program.as_os_str(), job, cell.places.as_ref());
    let args = arguments(job, cell.places.as_ref());
    let args: Vec<&[u8]> = args.iter().map(|arg| arg.as_bytes()).collect();
    let wire = JobParts {
        filter: &filter,
        exec_key: if job.profile.executes_once() { exec_key.get() } else { 0 },
        program: program.as_bytes(),
        args: &args,
        env: &env,
    };
    let mut buffer = vec![0; MAX_PACKET];
    let mut writer = Writer::new(&mut buffer);
    wire.write(&mut writer);
    let packet = writer.finish().map_err(|_| too_large())?;
    if args.len() > MAX_STRINGS || env.len() > MAX_STRINGS {
        return Err(too_large());
    }
    let fds: Vec<_> = pipes.theirs.iter().map(AsFd::as_fd).collect();
    let sent = chan::send(&cell.line, packet, &fds);
    sent.map_err(|errno| Refusal::of_talking("handing the job to its cell", errno.into()))
}

fn too_large() -> Refusal {
    Refusal::Invalid {
        what: "the program's arguments and environment".into(),
        why: "together they are too large (128 KiB and 2048 strings each at most)".into(),
        fix: "pass large values in a file, with `--input`".into(),
    }
}

/// Variables that are lists of paths, of which some may be of the run's own places.
const LISTS: [&str; 2] = ["PATH", "PYTHONPATH"];

/// The environment as strings. Where the run's places are a directory of the host, their names are
/// the host's.
fn environment(job: &Job, places: Option<&Places>) -> Vec<Vec<u8>> {
    let mut env = job.env.clone();
    if let Some(places) = places {
        for key in ["HOME", "TMPDIR"] {
            env.insert(key.into(), places.path("tmp").into());
        }
        for (_, list) in env.iter_mut().filter(|(key, _)| LISTS.iter().any(|list| key == list)) {
            let named = std::env::split_paths(list)
                .map(|path| localised(path.as_os_str(), job, Some(places)));
            // What cannot be joined again has a separator in it, and stays as it is.
            *list = std::env::join_paths(named).unwrap_or_else(|_| list.clone());
        }
    }
    env.iter().map(variable).collect()
}

pub(crate) fn variable((key, value): (&OsString, &OsString)) -> Vec<u8> {
    [key.as_bytes(), b"=", value.as_bytes()].concat()
}

/// The arguments; those that name a file in the working directory, or in the tree, name it where that is.
fn arguments(job: &Job, places: Option<&Places>) -> Vec<OsString> {
    job.command.args.iter().map(|arg| localised(arg, job, places)).collect()
}

fn localised(name: &OsStr, job: &Job, places: Option<&Places>) -> OsString {
    let Some(places) = places else { return name.to_owned() };
    let path = Path::new(name);
    if let Ok(inside) = path.strip_prefix(WORK_DIR) {
        return places.path("work").join(inside).into();
    }
    let tree = job.command.tree.as_ref();
    match tree.and_then(|tree| Some((tree, path.strip_prefix(tree.at).ok()?))) {
        Some((tree, inside)) => tree.from.join(inside).into(),
        None => name.to_owned(),
    }
}

fn random_key() -> io::Result<NonZeroU64> {
    loop {
        if let Some(key) = NonZeroU64::new(random::number()?) {
            return Ok(key);
        }
    }
}

/// Waits for the three words of a good start: built, released, or what failed.
fn await_release(
    cell: &Cell,
    parts: &Parts<'_>,
    job: &Job,
    placed: &Placed,
    given: Instant,
) -> Result<Built, Refusal> {
    let deadline = Instant::now() + BUILD_MOST;
    let mut handed = None;
    loop {
        let (report, fds) = next_report(&cell.socket, deadline)?;
        match report {
            Report::Built => handed = Some(take_handed(fds)?),
            Report::Released(seen, micros) => {
                let Some((place, listeners)) = handed else { return Err(nonsense()) };
                if listeners.len() != cell.handed() {
                    return Err(nonsense());
                }
                let attest = Duration::from_micros(micros.into());
                let released = Instant::now();
                return Ok(Built { cell: place, listeners, seen, given, attest, released });
            }
            Report::Failed(failed) if cell.kind.zygote != 0 && !is_of_job(failed.step) => {
                return Err(not_forked());
            }
            Report::Failed(failed) => return Err(failure(failed, parts, job, placed)),
            Report::Gone(_) if cell.kind.zygote != 0 && !is_out_of_memory(cell) => {
                return Err(not_forked());
            }
            Report::Gone(_) => return Err(ended_early(cell, job)),
            _ => return Err(nonsense()),
        }
    }
}

/// The run's writable file system, and the sockets of its way out.
pub(crate) fn take_handed(mut fds: Fds) -> Result<(OwnedFd, Vec<OwnedFd>), Refusal> {
    let place = fds.take(0).map_err(|_| nonsense())?;
    let listeners = (1..fds.count()).map(|index| fds.take(index).map_err(|_| nonsense()));
    Ok((place, listeners.collect::<Result<_, _>>()?))
}

/// The next report with its descriptors; an end of the launcher or of our patience is an error.
pub(crate) fn next_report(socket: &OwnedFd, deadline: Instant) -> Result<(Report, Fds), Refusal> {
    let mut fds = [PollFd::new(socket, PollFlags::IN)];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = rustix::event::Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        match rustix::event::poll(&mut fds, Some(&timeout)) {
            Ok(0) => {
                let source = io::ErrorKind::TimedOut.into();
                return Err(internal("waiting for the launcher")(source));
            }
            Ok(_) => break,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(internal("waiting for the launcher")(errno.into())),
        }
    }
    let mut buffer = [0; chan::MAX_REPORT];
    let received = chan::receive(socket, &mut buffer)
        .map_err(|errno| Refusal::of_talking("hearing from the launcher", errno.into()))?;
    if received.length == 0 {
        let source = io::ErrorKind::UnexpectedEof.into();
        return Err(Refusal::of_talking("hearing from the launcher", source));
    }
    let packet = buffer.get(..received.length).unwrap_or_default();
    let report = Report::read(packet).map_err(|_| nonsense())?;
    Ok((report, received.fds))
}

pub(crate) fn nonsense() -> Refusal {
    internal("understanding the launcher")(io::ErrorKind::InvalidData.into())
}

/// Whether a step fails because of the job, whatever it runs in.
fn is_of_job(step: Step) -> bool {
    matches!(step, Step::Program | Step::Inputs | Step::Busy)
}

/// A zygote, or what was forked from it, was of no use. It was not let go.
fn not_forked() -> Refusal {
    Refusal::of_talking("forking an interpreter", io::ErrorKind::UnexpectedEof.into())
}

fn is_out_of_memory(cell: &Cell) -> bool {
    cell.hold.stats().oom_kills.unwrap_or(0) > 0
}

/// A cell that ended before its program started: if it was for want of memory, that is the job's.
fn ended_early(cell: &Cell, job: &Job) -> Refusal {
    if !is_out_of_memory(cell) {
        return internal("building the jail, which was killed")(io::ErrorKind::Other.into());
    }
    Refusal::Invalid {
        what: "the job".into(),
        why: format!("its inputs do not fit into the run's {} of memory", job.limits.memory),
        fix: "give more with `--mem`: files count as memory".into(),
    }
}

/// A failed step of this job: some are the job's own fault.
fn failure(failed: Failed, parts: &Parts<'_>, job: &Job, placed: &Placed) -> Refusal {
    let errno = Errno::from_raw_os_error(failed.errno);
    match failed.step {
        Step::Program => not_runnable(&job.command.program, failed),
        Step::Busy => Refusal::Busy { running: failed.index },
        Step::Inputs => input_refusal(errno, &placed.path(failed.index as usize), &job.limits),
        _ => steps::refusal(failed, &parts.base.layout),
    }
}

pub(crate) fn not_runnable(program: &Path, failed: Failed) -> Refusal {
    let errno = Errno::from_raw_os_error(failed.errno);
    Refusal::NotRunnable {
        program: program.display().to_string(),
        why: io::Error::from(errno).to_string(),
    }
}

pub(crate) fn input_refusal(errno: Errno, name: &str, limits: &Limits) -> Refusal {
    let (why, fix) = match errno {
        Errno::NOSPC => (
            format!(
                "it does not fit into the run's {} of disk, or is more than {} files",
                limits.disk, limits.files
            ),
            "give more with `--disk` (files count as memory: `--mem`) or `--files`",
        ),
        Errno::DQUOT => ("there are too many files".into(), "give more with `--files`"),
        Errno::ISDIR => ("a directory has this name already".into(), "remove that, or rename it"),
        Errno::EXIST => ("the same name is given twice".into(), "rename one of them"),
        Errno::IO => ("it changed while it was copied".into(), "run it again"),
        other => (io::Error::from(other).to_string(), "give a regular file that can be read"),
    };
    Refusal::Invalid { what: format!("input `{name}`"), why, fix: fix.into() }
}

/// The limits of the cell's cgroup, each of which has to be what it was set to.
fn read_cgroup(cell: &Cell) -> Result<Vec<(Layer, String)>, Refusal> {
    let Some(cgroup) = cell.hold.cgroup() else { return Ok(Vec::new()) };
    let layer_of = |controller: &str| match controller {
        "memory" => Some(Layer::CgroupMemory),
        "pids" => Some(Layer::CgroupPids),
        "cpu" => Some(Layer::CgroupCpu),
        _ => None,
    };
    let seen = cgroup.read_back().map_err(cgroup_refusal)?;
    Ok(seen.into_iter().filter_map(|(name, text)| Some((layer_of(name)?, text))).collect())
}

/// What was read back, as layers. A layer that the level promises and that is not there ends it.
fn read_layers(
    parts: &Parts<'_>,
    job: &Job,
    seen: &Seen,
    cell: &Cell,
    of_cgroup: Vec<(Layer, String)>,
    ready: Ready,
) -> Result<Vec<LayerReport>, Refusal> {
    let context = Context {
        level: parts.base.level,
        landlock_abi: ready.landlock_abi,
        profile: job.profile,
        network: job.network,
        cgroup: of_cgroup,
        unique_id: cell.owner().is_some(),
    };
    let layers = seen::layers(seen, &context);
    #[cfg(feature = "holes")]
    if job.holes.layers & hotcell_jail::wire::hole::SEEN == 0
        && job.holes != crate::Holes::default()
    {
        return Ok(layers);
    }
    match layers.iter().find(|report| !report.active && report.layer.since() <= parts.base.level) {
        None => Ok(layers),
        Some(missing) => Err(Refusal::Layer {
            layer: missing.layer,
            why: format!("level {} has it, and it was not seen", parts.base.level),
            fix: "`hotcell doctor` says what this host allows".into(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_nothing_keeps_a_run_from_other_networks_it_gets_no_proxy() {
        let checked = |bare, network| check_network(Level::LandlockOnly, bare, network);
        let Err(Refusal::Layer { layer, why, fix }) = checked(true, Network::Proxied) else {
            panic!("a run without a network namespace got a proxy");
        };
        assert_eq!(layer, Layer::NetNamespace);
        assert!(why.contains("landlock-only") && fix.contains("doctor"), "{why} {fix}");
        assert!(checked(true, Network::None).is_ok() && checked(false, Network::Proxied).is_ok());
    }
}
