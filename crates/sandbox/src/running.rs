//! A run from its release to its one outcome: feeds it, streams it, keeps its deadlines, and ends it as
//! a whole.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hotcell_jail::chan;
use hotcell_jail::wire::{Ended, Gone, Report, Step};
use hotcell_types::{
    Artifact, BlockedSyscall, Exit, Layer, LayerReport, Limit, Limits, Outcome, Span, Stage, Start,
    Status, Timing, Usage,
};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use crate::cgroup::{Cgroup, CgroupError, Stats};
use crate::collect::{self, Bounds, Collected};
use crate::hold::Hold;
use crate::ids::Id;
use crate::keeper::{Remains, Seat};
use crate::native::Base;
use crate::places::Places;
use crate::start::{next_report, not_runnable};
use crate::streams::{Feed, Stream, Wants};
use crate::supplies::Placed;
use crate::{Look, Refusal, Sink, Talk, seccomp, steps};

/// How long a killed run may take to be gone.
const END_MOST: Duration = Duration::from_secs(5);
/// How long output is drained once everything that could write it has ended.
const DRAIN_MOST: Duration = Duration::from_millis(500);
/// How long files are collected beyond the run's own time.
const COLLECT_MOST: Duration = Duration::from_millis(500);
/// Bytes read at once.
const CHUNK: usize = 64 * 1024;
/// How often processor time is looked at when it nears its limit; far from it, less often.
const CPU_CHECK_LEAST: Duration = Duration::from_millis(5);

/// A job that was let go. Dropping it without waiting ends it.
#[derive(Debug)]
pub struct Running {
    pub(crate) base: Arc<Base>,
    /// To the spawner.
    pub(crate) socket: OwnedFd,
    /// To the init, until it has said its last word.
    pub(crate) line: Option<OwnedFd>,
    /// That word.
    pub(crate) ended: Option<Ended>,
    /// The run's writable file system.
    pub(crate) cell: OwnedFd,
    /// Of its way out, until somebody takes them.
    pub(crate) listeners: Vec<OwnedFd>,
    pub(crate) stdout: Stream,
    pub(crate) stderr: Stream,
    pub(crate) feed: Option<Feed>,
    /// The run's standard input, until whoever started it takes it.
    pub(crate) held: Option<OwnedFd>,
    pub(crate) shared: Arc<Shared>,
    /// Removed when the run's files were collected.
    pub(crate) places: Option<Places>,
    pub(crate) id: Option<Id>,
    pub(crate) limits: Limits,
    pub(crate) layers: Vec<LayerReport>,
    pub(crate) program: PathBuf,
    pub(crate) note: Option<String>,
    pub(crate) placed: Placed,
    pub(crate) begun: Instant,
    pub(crate) given: Instant,
    pub(crate) released: Instant,
    pub(crate) attest: Duration,
    /// Calls were refused and counted.
    pub(crate) is_refusing: bool,
    pub(crate) start: Start,
    /// Goes last: with it others get their turn.
    pub(crate) seat: Seat,
}

/// Ends, pauses or resumes a run from another thread.
#[derive(Debug, Clone)]
pub struct Handle {
    shared: Arc<Shared>,
}

/// What the run's thread and its handles share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Wakes the run's thread.
    bell: OwnedFd,
    cancelled: AtomicBool,
    /// Until the run is over: a handle that somebody keeps must not keep this.
    hold: Mutex<Hold>,
    pause: Mutex<Pause>,
}

/// Time spent paused does not count against the run's own.
#[derive(Debug, Default)]
struct Pause {
    since: Option<Instant>,
    total: Duration,
    /// The run is being ended: what is killed must not be frozen any more.
    is_ending: bool,
}

/// Why hotcell ended a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    Timeout,
    CpuTime,
    Cancelled,
}

/// Where a run stands when its processes are gone.
#[derive(Debug)]
struct End {
    ended: Ended,
    gone: Gone,
    cause: Option<Cause>,
    at: Instant,
}

impl Handle {
    /// Ends the run; its outcome is `cancelled`.
    pub fn cancel(&self) {
        self.shared.cancel();
    }

    /// Stops every process of the run until it is resumed. Needs a cgroup.
    pub fn pause(&self) -> Result<(), Refusal> {
        let mut pause = self.shared.pause();
        if pause.since.is_none() && !pause.is_ending {
            self.shared.freezer(Cgroup::freeze)?;
            pause.since = Some(Instant::now());
        }
        drop(pause);
        self.shared.ring();
        Ok(())
    }

    pub fn resume(&self) -> Result<(), Refusal> {
        let mut pause = self.shared.pause();
        if let Some(since) = pause.since {
            self.shared.freezer(Cgroup::thaw)?;
            pause.total += since.elapsed();
            pause.since = None;
        }
        drop(pause);
        self.shared.ring();
        Ok(())
    }
}

impl Shared {
    pub(crate) fn new(hold: Hold) -> io::Result<Shared> {
        let bell = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let (cancelled, pause) = (AtomicBool::new(false), Mutex::default());
        Ok(Shared { bell, cancelled, hold: Mutex::new(hold), pause })
    }

    fn ring(&self) {
        // It fails only when it has been rung often enough already.
        rustix::io::write(&self.bell, &1_u64.to_ne_bytes()).ok();
    }

    fn hush(&self) {
        // It fails only when it was not rung.
        rustix::io::read(&self.bell, &mut [0_u8; 8]).ok();
    }

    fn pause(&self) -> MutexGuard<'_, Pause> {
        self.pause.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hold(&self) -> MutexGuard<'_, Hold> {
        self.hold.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The sandbox that stays, and that the run is in, was paused or goes on.
    pub(crate) fn stand_still(&self, since: Instant) {
        self.pause().since.get_or_insert(since);
        self.ring();
    }

    pub(crate) fn go_on(&self) {
        let mut pause = self.pause();
        if let Some(since) = pause.since.take() {
            pause.total += since.elapsed();
        }
        drop(pause);
        self.ring();
    }

    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
        self.ring();
    }

    /// Killed, it does not die yet: it is frozen together with others, whom this run may not thaw.
    fn is_held_still(&self) -> bool {
        self.pause().since.is_some() && self.hold().is_shared()
    }

    /// The run is over, or is being ended: nothing of it is frozen, and nothing will be, since what is
    /// frozen does not die.
    fn close(&self) {
        let mut pause = self.pause();
        pause.is_ending = true;
        let hold = self.hold();
        if let (Some(cgroup), Some(since)) = (hold.own(), pause.since)
            && cgroup.thaw().is_ok()
        {
            pause.total += since.elapsed();
            pause.since = None;
        }
    }

    /// Ends and removes what is left of a run that could not be followed to its end.
    fn abandon(&self) {
        if let Some(cgroup) = std::mem::take(&mut *self.hold()).into_own() {
            // Whatever stays behind even so is swept by the next process.
            cgroup.kill().and_then(|()| cgroup.remove()).ok();
        }
    }

    fn freezer(&self, act: fn(&Cgroup) -> Result<(), CgroupError>) -> Result<(), Refusal> {
        match &*self.hold() {
            Hold::Own(cgroup) => act(cgroup).map_err(freezing),
            Hold::Shared(_) => Err(Refusal::Invalid {
                what: "one program of a sandbox that stays".into(),
                why: "it can be paused only together with what else is in there".into(),
                fix: "pause the sandbox".into(),
            }),
            Hold::None => Err(Refusal::Layer {
                layer: Layer::CgroupPids,
                why: "a run can be paused only in a cgroup, and while it runs".into(),
                fix: "`hotcell doctor` says how to get one".into(),
            }),
        }
    }
}

/// Where there is none, it is never.
fn sooner(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    [one, other].into_iter().flatten().min()
}

fn collecting(source: io::Error) -> Refusal {
    Refusal::Internal { doing: "collecting the run's files".into(), source }
}

fn freezing(error: CgroupError) -> Refusal {
    Refusal::Internal { doing: "pausing or resuming a run".into(), source: io::Error::other(error) }
}

impl Running {
    pub fn handle(&self) -> Handle {
        Handle { shared: Arc::clone(&self.shared) }
    }

    /// For a run that was started with [`Stdin::Held`](crate::Stdin::Held): its standard input and output,
    /// once. Somebody still has to [`wait`](Running::wait) for its end.
    pub fn talk(&mut self) -> Option<Talk> {
        let to = std::fs::File::from(self.held.take()?);
        Some(Talk { to, from: self.stdout.take()? })
    }

    /// For a run with [`Network::Proxied`](crate::Network::Proxied), once: sockets that listen in its
    /// namespaces, and never wait. The first is at `/run/hotcell/proxy.sock`; with profile
    /// `standard-net` the second is at port 3128 of its own 127.0.0.1. Whoever holds them decides what the
    /// run reaches; when nobody does, its connections are refused.
    pub fn listeners(&mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.listeners)
    }

    /// Streams output until the run has ended as a whole. Artifacts go to `outputs`, an existing
    /// directory; without one they are only listed.
    pub fn wait(self, sink: &mut dyn Sink, outputs: Option<&Path>) -> Result<Outcome, Refusal> {
        self.wait_and_look(sink, outputs, |_, _| ()).map(|(outcome, ())| outcome)
    }

    /// The same, with a look at the working directory that the run left, and at what was collected there.
    /// Nobody of the run is there any more, and its names are not to be trusted: open them beneath the
    /// descriptor, following nothing.
    pub fn wait_and_look<T>(
        mut self,
        sink: &mut dyn Sink,
        outputs: Option<&Path>,
        look: impl FnOnce(BorrowedFd<'_>, &[Artifact]) -> T,
    ) -> Result<(Outcome, T), Refusal> {
        // Held from here on, so that nobody can put another in its place.
        let outputs = outputs.map(open_outputs).transpose()?;
        let (end, work) = self.follow(sink)?;
        let collected = collect::collect(&work, &self.placed, self.bounds(&end), outputs);
        let collected = collected.map_err(collecting)?;
        let looked = look(work.as_fd(), &collected.artifacts);
        drop(work);
        Ok((self.conclude(&end, collected), looked))
    }

    /// The same, except that nothing is collected: whoever looks takes everything that counts, and looks
    /// only if the program came to a good end.
    pub fn wait_and_take<T>(
        mut self,
        sink: &mut dyn Sink,
        take: impl FnOnce(BorrowedFd<'_>) -> T,
    ) -> Result<(Outcome, Option<T>), Refusal> {
        let (end, work) = self.follow(sink)?;
        let exit = end.ended.wait_status.and_then(exit_of);
        let is_good = end.cause.is_none() && exit == Some(Exit::Code(0));
        let taken = is_good.then(|| take(work.as_fd()));
        drop(work);
        Ok((self.conclude(&end, Collected::default()), taken))
    }

    /// The same for a program in a sandbox that stays: what it leaves stays there as well.
    pub fn wait_for_end(mut self, sink: &mut dyn Sink) -> Result<Outcome, Refusal> {
        let end = self.follow_to_end(sink)?;
        Ok(self.conclude(&end, Collected::default()))
    }

    /// Streams until the run has ended as a whole.
    fn follow_to_end(&mut self, sink: &mut dyn Sink) -> Result<End, Refusal> {
        let end = self.attend(sink).inspect_err(|_| self.shared.abandon())?;
        // Its init may still be on its way out.
        self.shared.close();
        self.drain(sink);
        Ok(end)
    }

    /// The same, and opens the working directory that it left.
    fn follow(&mut self, sink: &mut dyn Sink) -> Result<(End, OwnedFd), Refusal> {
        let end = self.follow_to_end(sink)?;
        let work = collect::open_work(&self.cell).map_err(collecting)?;
        Ok((end, work))
    }

    fn conclude(self, end: &End, collected: Collected) -> Outcome {
        let full = self.full_places();
        let hold = std::mem::take(&mut *self.shared.hold());
        let stats = hold.stats();
        self.outcome(end, hold.into_own(), stats, collected, full)
    }

    /// Does everything until the run has ended.
    fn attend(&mut self, sink: &mut dyn Sink) -> Result<End, Refusal> {
        let mut buffer = vec![0; CHUNK];
        loop {
            if let Some(cause) = self.due() {
                return self.end(cause, sink, &mut buffer);
            }
            let ready = self.poll(sooner(self.patience(), self.until_look(sink)))?;
            self.stream(ready, sink, &mut buffer);
            if self.until_look(sink).is_some_and(|left| left.is_zero()) {
                sink.look(self.look());
            }
            if ready.feed && self.feed.as_mut().is_some_and(|feed| !feed.pump()) {
                self.feed = None;
            }
            if let Some(end) = self.hear(ready, None, Instant::now() + END_MOST)? {
                return Ok(end);
            }
        }
    }

    /// Passes on what there is of both streams.
    fn stream(&mut self, ready: Ready, sink: &mut dyn Sink, buffer: &mut [u8]) {
        if ready.stdout {
            self.stdout.pump(buffer, |chunk| sink.stdout(chunk));
        }
        if ready.stderr {
            self.stderr.pump(buffer, |chunk| sink.stderr(chunk));
        }
        if ready.bell {
            self.shared.hush();
        }
    }

    /// How long nobody wants to know how the run goes.
    fn until_look(&self, sink: &dyn Sink) -> Option<Duration> {
        sink.next_look().map(|at| at.saturating_sub(self.released.elapsed()))
    }

    fn look(&self) -> Look {
        let hold = self.shared.hold();
        Look {
            at: self.released.elapsed(),
            cpu: hold.own().and_then(Cgroup::cpu_used),
            memory_bytes: hold.own().and_then(Cgroup::memory_now),
        }
    }

    /// Whether something asks for the end of the run now.
    fn due(&self) -> Option<Cause> {
        if self.shared.cancelled.load(Ordering::Acquire) {
            return Some(Cause::Cancelled);
        }
        if self.time_left().is_some_and(|left| left.is_zero()) {
            return Some(Cause::Timeout);
        }
        self.cpu_left().is_some_and(|left| left.is_zero()).then_some(Cause::CpuTime)
    }

    /// Wall time left; `None` while the run is paused.
    fn time_left(&self) -> Option<Duration> {
        let pause = self.shared.pause();
        if pause.since.is_some() {
            return None;
        }
        let used = self.released.elapsed().saturating_sub(pause.total);
        Some(self.limits.timeout.duration().saturating_sub(used))
    }

    /// Processor time left, where there is a limit and a cgroup that counts.
    fn cpu_left(&self) -> Option<Duration> {
        let limit = self.limits.cpu_time?.duration();
        let used = self.shared.hold().own()?.cpu_used()?;
        Some(limit.saturating_sub(used))
    }

    /// How long nothing has to be looked at.
    fn patience(&self) -> Option<Duration> {
        let wall = self.time_left();
        // With all processors busy, the rest cannot be used up sooner than this.
        let cpu = self.cpu_left().map(|left| {
            (left * 1000 / self.limits.cpu.as_thousandths().max(1)).max(CPU_CHECK_LEAST)
        });
        sooner(wall, cpu)
    }

    /// Waits for the first thing that can be done.
    fn poll(&self, patience: Option<Duration>) -> Result<Ready, Refusal> {
        let mut fds = vec![
            PollFd::new(&self.socket, PollFlags::IN),
            PollFd::new(&self.shared.bell, PollFlags::IN),
        ];
        let mut places = [None; 4];
        let stdout = self.stdout.fd().map(|fd| (fd, PollFlags::IN));
        let stderr = self.stderr.fd().map(|fd| (fd, PollFlags::IN));
        let feed = self.feed.as_ref().map(|feed| match feed.wants() {
            (Wants::Source, fd) => (fd, PollFlags::IN),
            (Wants::Pipe, fd) => (fd, PollFlags::OUT),
        });
        let line = self.line.as_ref().map(|fd| (fd.as_fd(), PollFlags::IN));
        for (place, wanted) in places.iter_mut().zip([stdout, stderr, feed, line]) {
            if let Some((fd, flags)) = wanted {
                *place = Some(fds.len());
                fds.push(PollFd::from_borrowed_fd(fd, flags));
            }
        }
        let timeout = patience.map(|left| Timespec {
            // Rounded up, so that what was waited for has come.
            tv_sec: left.as_secs() as i64,
            tv_nsec: i64::from(left.subsec_nanos()),
        });
        match rustix::event::poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => {
                return Err(Refusal::Internal {
                    doing: "waiting for the run".into(),
                    source: errno.into(),
                });
            }
        }
        let is_ready = |at: usize| fds.get(at).is_some_and(|fd| !fd.revents().is_empty());
        let [stdout, stderr, feed, line] = places.map(|place| place.is_some_and(is_ready));
        Ok(Ready { socket: is_ready(0), bell: is_ready(1), line, stdout, stderr, feed })
    }

    /// Ends everything in the run and waits until it is gone; output goes on being drained, so that
    /// nothing blocks on it.
    fn end(
        &mut self,
        cause: Cause,
        sink: &mut dyn Sink,
        buffer: &mut [u8],
    ) -> Result<End, Refusal> {
        self.kill();
        // Nothing more is fed, but the end of its input would reach the program before the signal does, and let
        // it end as if by itself.
        let _held = self.feed.take();
        if self.shared.is_held_still() {
            // It never runs again, and dies when the others go on.
            let (ended, gone, at) = (Ended::default(), Gone::default(), Instant::now());
            return Ok(End { ended, gone, cause: Some(cause), at });
        }
        let deadline = Instant::now() + END_MOST;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let mut ready = self.poll(Some(left))?;
            self.stream(ready, sink, buffer);
            // Too late: that is an error of the waiting itself.
            ready.socket |= left.is_zero();
            if let Some(end) = self.hear(ready, Some(cause), deadline)? {
                return Ok(end);
            }
        }
    }

    fn kill(&self) {
        // Any word on the socket means the end. If the launcher is gone, so is the run.
        rustix::io::write(&self.socket, b"k").ok();
        if let Some(cgroup) = self.shared.hold().own() {
            cgroup.hurry();
        }
        self.shared.close();
    }

    /// Takes what is said, and tells the end when it has come.
    fn hear(
        &mut self,
        ready: Ready,
        cause: Option<Cause>,
        deadline: Instant,
    ) -> Result<Option<End>, Refusal> {
        if ready.line {
            self.hear_the_init();
        }
        // What the spawner said before the init's last word is there when that is.
        let mut has_news = ready.socket || (ready.line && is_readable(&self.socket));
        let mut gone = None;
        while has_news && gone.is_none() {
            gone = match self.hear_the_spawner(deadline) {
                // The launcher was killed; how the program ended is known all the same.
                Err(refusal) if refusal.is_lost() && self.ended.is_some() => Some(Gone::default()),
                other => other?,
            };
            has_news = is_readable(&self.socket);
        }
        if gone.is_some() {
            self.hear_the_init();
        }
        let at = Instant::now();
        // Somebody may have killed it on the way to telling it.
        let is_cancelled = self.shared.cancelled.load(Ordering::Acquire);
        let cause = cause.or(is_cancelled.then_some(Cause::Cancelled));
        Ok(match (gone, self.ended) {
            (Some(gone), ended) => Some(End { ended: ended.unwrap_or_default(), gone, cause, at }),
            (None, Some(ended)) if self.ends_with_its_program() => {
                Some(End { ended, gone: Gone::default(), cause, at })
            }
            (None, _) => None,
        })
    }

    /// The init says one thing, or nothing when it was killed.
    fn hear_the_init(&mut self) {
        let Some(line) = self.line.take_if(|line| is_readable(line)) else { return };
        let mut buffer = [0; chan::MAX_REPORT];
        let Ok(received) = chan::receive(&line, &mut buffer) else { return };
        let packet = buffer.get(..received.length).unwrap_or_default();
        if let Ok(Report::Ended(ended)) = Report::read(packet) {
            self.ended = Some(ended);
        }
    }

    fn hear_the_spawner(&mut self, deadline: Instant) -> Result<Option<Gone>, Refusal> {
        match next_report(&self.socket, deadline)?.0 {
            Report::Gone(gone) => return Ok(Some(gone)),
            Report::Refusing => self.is_refusing = true,
            Report::Failed(failed) if failed.step == Step::Program => {
                return Err(not_runnable(&self.program, failed));
            }
            Report::Failed(failed) => return Err(steps::refusal(failed, &self.base.layout)),
            _ => {}
        }
        Ok(None)
    }

    /// Whether nothing more has to be seen once the init has said that everything has ended. Without
    /// a pid namespace that is the spawner's to say, and so are the counts of refused calls.
    fn ends_with_its_program(&self) -> bool {
        !self.base.setup.bare && !self.is_refusing
    }

    /// Takes what still lies in the pipes. Nobody can write to them any more, so that they end at once;
    /// the bound is for a pipe that somehow does not.
    fn drain(&mut self, sink: &mut dyn Sink) {
        let deadline = Instant::now() + DRAIN_MOST;
        let mut buffer = vec![0; CHUNK];
        while Instant::now() < deadline {
            let more = self.stdout.pump(&mut buffer, |chunk| sink.stdout(chunk))
                | self.stderr.pump(&mut buffer, |chunk| sink.stderr(chunk));
            if !more {
                return;
            }
        }
    }

    /// Collecting takes what the run has left of its time, and a little more.
    fn bounds(&self, end: &End) -> Bounds {
        let left = self.time_left().unwrap_or_default();
        Bounds { bytes: self.limits.disk.get(), until: end.at + left + COLLECT_MOST }
    }

    /// Which limits of the writable places were reached.
    fn full_places(&self) -> Vec<Limit> {
        // A directory of the host has the host's limits.
        if self.places.is_some() {
            return Vec::new();
        }
        let Ok(usage) = rustix::fs::fstatvfs(&self.cell) else { return Vec::new() };
        let mut full = Vec::new();
        if usage.f_bavail == 0 {
            full.push(Limit::Disk);
        }
        if usage.f_favail == 0 {
            full.push(Limit::Files);
        }
        full
    }

    fn outcome(
        self,
        end: &End,
        cgroup: Option<Cgroup>,
        stats: Stats,
        collected: Collected,
        full: Vec<Limit>,
    ) -> Outcome {
        self.seat.leave(Remains { socket: self.socket, cgroup, id: self.id, is_nothing: false });
        let finished = Instant::now();
        let exit = end.ended.wait_status.and_then(exit_of);
        let oom_kills = stats.oom_kills.unwrap_or(0);
        let cpu_us = stats.cpu_us.unwrap_or(end.ended.cpu_micros);
        let spent = Duration::from_micros(cpu_us);
        // The kernel's limit is measured in its ticks, which may be a good part of a second off.
        let near = |most: Span| most.duration() - most.duration() / 4;
        let is_spent = self.limits.cpu_time.is_some_and(|most| spent >= near(most));
        let (status, limit) = verdict(end.cause, exit, oom_kills, is_spent);
        let limit = limit.map(|limit| as_it_was_set(limit, &self.limits));
        let mut limits_hit = full;
        if oom_kills > 0 {
            limits_hit.push(Limit::Memory);
        }
        if stats.pids_max_hits.unwrap_or(0) > 0 {
            limits_hit.push(Limit::Pids);
        }
        limits_hit.extend(limit.filter(|limit| !limits_hit.contains(limit)));
        let (stdout, stderr) = (self.stdout.finish(), self.stderr.finish());
        if stdout.truncated || stderr.truncated {
            limits_hit.push(Limit::Output);
        }
        limits_hit.sort();
        let execute = end.at.duration_since(self.released);
        let build = self.released.duration_since(self.given).saturating_sub(self.attest);
        let timings = [
            (Stage::Prepare, self.given.duration_since(self.begun)),
            (Stage::Build, build),
            (Stage::Attest, self.attest),
            (Stage::Execute, execute),
            (Stage::Finish, finished.duration_since(end.at)),
        ];
        let timing =
            |(stage, time): (Stage, Duration)| Timing { stage, micros: time.as_micros() as u64 };
        Outcome {
            status,
            exit,
            limit,
            limits_hit,
            stdout,
            stderr,
            artifacts: collected.artifacts,
            skipped: collected.skipped,
            usage: Usage {
                wall_ms: execute.as_millis() as u64,
                cpu_ms: Some(cpu_us / 1000),
                peak_memory_bytes: stats.memory_peak,
                peak_pids: stats.pids_peak,
                written_bytes: end.ended.written,
                oom_kills: stats.oom_kills,
            },
            blocked_syscalls: blocked(&end.gone),
            level: self.base.level,
            layers: self.layers,
            timings: timings.map(timing).to_vec(),
            network: None,
            interpreter: self.note,
            start: self.start,
            error: None,
        }
    }
}

pub(crate) fn is_readable(socket: &OwnedFd) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut fds = [PollFd::new(socket, PollFlags::IN)];
    rustix::event::poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0)
}

fn open_outputs(path: &Path) -> Result<OwnedFd, Refusal> {
    let opened = std::fs::File::open(path).and_then(|dir| match dir.metadata()?.is_dir() {
        true => Ok(OwnedFd::from(dir)),
        false => Err(io::ErrorKind::NotADirectory.into()),
    });
    opened.map_err(|error| Refusal::Invalid {
        what: format!("output directory `{}`", path.display()),
        why: error.to_string(),
        fix: "give a directory that is there and can be written".into(),
    })
}

/// What can be done without waiting.
#[derive(Debug, Clone, Copy)]
struct Ready {
    socket: bool,
    line: bool,
    bell: bool,
    stdout: bool,
    stderr: bool,
    feed: bool,
}

/// A wait status as the kernel encodes it.
fn exit_of(status: u32) -> Option<Exit> {
    match status & 0x7f {
        0 => Some(Exit::Code((status >> 8) as u8)),
        signal => Some(Exit::Signal(signal as u8)),
    }
}

/// How a run is judged. A program that exited has ended by itself, also when our signal was already on
/// its way; otherwise what hotcell did counts first, then what the kernel did, then the program.
fn verdict(
    cause: Option<Cause>,
    exit: Option<Exit>,
    oom_kills: u64,
    is_cpu_spent: bool,
) -> (Status, Option<Limit>) {
    const SIGKILL: u8 = 9;
    const SIGXCPU: u8 = 24;
    const SIGXFSZ: u8 = 25;
    match (cause, exit) {
        (_, Some(Exit::Code(0))) => (Status::Success, None),
        (_, Some(Exit::Code(_)) | None) if cause.is_none() && oom_kills > 0 => {
            (Status::Oom, Some(Limit::Memory))
        }
        (_, Some(Exit::Code(_))) => (Status::Failure, None),
        (Some(cause), None | Some(Exit::Signal(SIGKILL))) => match cause {
            Cause::Cancelled => (Status::Cancelled, None),
            Cause::Timeout => (Status::Timeout, Some(Limit::Timeout)),
            Cause::CpuTime => (Status::Limit, Some(Limit::CpuTime)),
        },
        // Without a cgroup the kernel sends them at the limit; any program can send them to itself.
        (None, Some(Exit::Signal(SIGXCPU | SIGKILL))) if is_cpu_spent && oom_kills == 0 => {
            (Status::Limit, Some(Limit::CpuTime))
        }
        (_, Some(Exit::Signal(SIGXFSZ))) => (Status::Limit, Some(Limit::FileSize)),
        (None, Some(Exit::Signal(_))) if oom_kills > 0 => (Status::Oom, Some(Limit::Memory)),
        (_, Some(Exit::Signal(_)) | None) => (Status::Killed, None),
    }
}

/// No file may be larger than the disk either: by whose name the kernel's limit goes that both are kept with.
fn as_it_was_set(limit: Limit, limits: &Limits) -> Limit {
    match limit {
        Limit::FileSize if limits.file_size.is_none_or(|most| most >= limits.disk) => Limit::Disk,
        other => other,
    }
}

fn blocked(gone: &Gone) -> Vec<BlockedSyscall> {
    let counted = gone.blocked.iter().filter(|blocked| blocked.count > 0);
    counted
        .map(|blocked| BlockedSyscall {
            number: blocked.number,
            name: seccomp::syscall_name(blocked.number).map(Into::into),
            count: blocked.count,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use hotcell_types::{Bytes, Template};

    use super::*;

    #[test]
    fn a_wait_status_is_read_as_the_kernel_writes_it() {
        assert_eq!(exit_of(0), Some(Exit::Code(0)));
        assert_eq!(exit_of(3 << 8), Some(Exit::Code(3)));
        assert_eq!(exit_of(9), Some(Exit::Signal(9)));
        assert_eq!(exit_of(11 | 0x80), Some(Exit::Signal(11)));
    }

    #[test]
    fn a_file_that_is_too_large_is_told_by_the_limit_that_somebody_set() {
        let disk = Limits { disk: Bytes::mib(64), ..Template::DEFAULT.limits };
        for (file_size, expected) in [
            (None, Limit::Disk),
            (Some(Bytes::mib(1)), Limit::FileSize),
            (Some(Bytes::mib(64)), Limit::Disk),
            (Some(Bytes::mib(65)), Limit::Disk),
        ] {
            let limits = Limits { file_size, ..disk };
            assert_eq!(as_it_was_set(Limit::FileSize, &limits), expected, "{file_size:?}");
            assert_eq!(as_it_was_set(Limit::Timeout, &limits), Limit::Timeout);
        }
    }

    #[test]
    fn state_and_exit_agree_whatever_came_first() {
        use Cause::{Cancelled, CpuTime, Timeout};
        for (cause, exit, oom, expected) in [
            (None, Some(Exit::Code(0)), 0, (Status::Success, None)),
            (None, Some(Exit::Code(0)), 1, (Status::Success, None)),
            (None, Some(Exit::Code(3)), 0, (Status::Failure, None)),
            (None, Some(Exit::Code(1)), 2, (Status::Oom, Some(Limit::Memory))),
            (None, Some(Exit::Signal(9)), 1, (Status::Oom, Some(Limit::Memory))),
            (None, Some(Exit::Signal(11)), 0, (Status::Killed, None)),
            (None, Some(Exit::Signal(24)), 0, (Status::Killed, None)),
            (None, Some(Exit::Signal(25)), 0, (Status::Limit, Some(Limit::FileSize))),
            (None, None, 0, (Status::Killed, None)),
            (None, None, 1, (Status::Oom, Some(Limit::Memory))),
            (Some(Timeout), None, 0, (Status::Timeout, Some(Limit::Timeout))),
            (Some(Timeout), Some(Exit::Code(0)), 0, (Status::Success, None)),
            (Some(Timeout), Some(Exit::Code(3)), 0, (Status::Failure, None)),
            (Some(Timeout), Some(Exit::Signal(9)), 0, (Status::Timeout, Some(Limit::Timeout))),
            (Some(Timeout), Some(Exit::Signal(11)), 0, (Status::Killed, None)),
            (Some(CpuTime), None, 0, (Status::Limit, Some(Limit::CpuTime))),
            (Some(Cancelled), None, 1, (Status::Cancelled, None)),
        ] {
            assert_eq!(verdict(cause, exit, oom, false), expected, "{cause:?} {exit:?} {oom}");
        }
        for signal in [9, 24] {
            let at_the_limit = verdict(None, Some(Exit::Signal(signal)), 0, true);
            assert_eq!(at_the_limit, (Status::Limit, Some(Limit::CpuTime)));
        }
    }
}
