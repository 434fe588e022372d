//! Serves jobs: makes a cell for each, reads it back, lets the program go, and tells how it ended.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use rustix::process::{Pid, PidfdFlags, Signal};
use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::INNER_ID;
use crate::attest::{self, Expected};
use crate::cell::{self, Ground, Plan};
use crate::chan::{self, Fds, MAX_REPORT};
use crate::fail::{At, Done, failed};
use crate::landlock::Rules;
use crate::proc::{HostProc, Path, Process};
use crate::sys::{self, Cloned, Packet};
use crate::wire::{
    self, Blocked, Entrance, Failed, Gone, MAX_NAME, Order, Ready, Report, Setup, Step, hole,
};
use crate::zygote::Zygote;
use crate::{orphans, proxy};

/// Most runs at one time.
const MAX_RUNS: usize = 96;
/// Most zygotes at one time.
const MAX_ZYGOTES: usize = 8;
/// Most cells that are kept at one time.
const MAX_KEPT: usize = 32;
/// Sources of events: the control socket, four of each run and three of each zygote.
const MAX_EVENTS: usize = 1 + 4 * MAX_RUNS + 3 * MAX_ZYGOTES;
/// How many seconds a zygote may take to answer an order. Forking takes a millisecond.
const BORN_WITHIN: i64 = 2;
/// Most descriptors that are passed on to a zygote with an order.
const MAX_PASSED: usize = 2 + wire::MAX_CGROUPS + 1;
/// Reported calls that are answered one by one. Beyond that the listener is closed, and the kernel
/// itself refuses: a program cannot keep the spawner busy.
const MAX_REPORTED: u64 = 4096;

/// What the spawner has once the tree stands.
#[derive(Debug)]
pub(crate) struct Spawner {
    pub(crate) control: OwnedFd,
    pub(crate) host: HostProc,
    pub(crate) rules: Rules,
    pub(crate) namespaces: [u64; 7],
    pub(crate) tree_mounts: u32,
    pub(crate) ground: Ground,
    /// hotcell lives and wants no more of this launcher.
    pub(crate) is_dismissed: bool,
    runs: [Option<Run>; MAX_RUNS],
    /// Those that a zygote was told to fork, each at the place that its run will have.
    births: [Option<Birth>; MAX_RUNS],
    zygotes: [Option<Zygote>; MAX_ZYGOTES],
    kept: [Option<Kept>; MAX_KEPT],
    /// A zygote has ended before it could say what it had forked.
    has_strangers: bool,
}

/// A cell that was ordered from a zygote and is not there yet.
#[derive(Debug)]
struct Birth {
    /// When, which is also the order of the answers.
    asked: Timespec,
    origin: [u64; 7],
    plans: Plans,
}

/// A cell inside which others are made.
#[derive(Debug)]
struct Kept {
    /// Its name in orders.
    number: u32,
    /// The place of its run.
    run: usize,
    /// Held since it was born, so that they are its own whatever becomes of it.
    doors: [OwnedFd; 5],
    namespaces: [u64; 7],
}

/// What a run is made with.
#[derive(Debug)]
struct Plans {
    socket: OwnedFd,
    cord: OwnedFd,
    order: Order<'static>,
    cgroup_name: Name,
}

/// A run from its clone to its reaping.
#[derive(Debug)]
struct Run {
    /// As the host numbers it.
    number: u64,
    pid: Option<Pid>,
    pidfd: OwnedFd,
    /// To hotcell.
    socket: OwnedFd,
    /// hotcell wants the end; nothing more is heard from it.
    is_condemned: bool,
    /// To the cell, until it has nothing more to say.
    cord: Option<OwnedFd>,
    /// The program's process, once it was let go without a pid namespace around it.
    program: Option<OwnedFd>,
    listener: Option<OwnedFd>,
    /// Forked from a zygote and about to wait for its release: what it saw of Landlock.
    poised: Option<bool>,
    /// Where the zygote lives that it was forked from.
    origin: Option<[u64; 7]>,
    order: Order<'static>,
    cgroup_name: Name,
    gone: Gone,
    reported: u64,
}

#[derive(Debug, Clone, Copy)]
struct Name {
    bytes: [u8; MAX_NAME],
    length: usize,
}

impl Name {
    fn of(text: &[u8]) -> Option<Name> {
        let mut bytes = [0; MAX_NAME];
        bytes.get_mut(..text.len())?.copy_from_slice(text);
        Some(Name { bytes, length: text.len() })
    }

    fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

/// Something that happened.
#[derive(Debug, Clone, Copy)]
enum Event {
    Control,
    /// hotcell wants the end, or has gone.
    Condemned(usize),
    Cord(usize),
    Notice(usize),
    /// Nobody is left who could make a reported call.
    Unheard(usize),
    Exited(usize),
    /// A zygote said something, or has ended.
    Zygote(usize),
    /// hotcell wants no more of a zygote.
    Dismissed(usize),
    /// A zygote is dead.
    Died(usize),
}

impl Spawner {
    pub(crate) fn new(
        control: OwnedFd,
        host: HostProc,
        rules: Rules,
        setup: Setup,
    ) -> Done<Spawner> {
        let own = host.own().at(Step::HostProc)?;
        let namespaces = own.namespaces().at(Step::HostProc)?;
        // Without a tree of our own they are the host's, and say nothing about a run.
        let tree_mounts = if setup.bare { 0 } else { count_mounts(&own)? };
        // Only who may set groups can drop them.
        let drops_groups = !setup.bare && !setup.user_namespace && may_set_groups(&own);
        let ground = Ground { setup, landlock_abi: rules.abi, drops_groups };
        Ok(Spawner {
            control,
            host,
            rules,
            namespaces,
            tree_mounts,
            ground,
            is_dismissed: false,
            runs: [const { None }; MAX_RUNS],
            births: [const { None }; MAX_RUNS],
            zygotes: [const { None }; MAX_ZYGOTES],
            kept: [const { None }; MAX_KEPT],
            has_strangers: false,
        })
    }

    /// Serves until hotcell goes away. Then this process, pid 1 of its namespace, ends, and with it
    /// everything that it ever started.
    pub(crate) fn serve(&mut self) -> Done {
        let ready = Ready { landlock_abi: self.rules.abi };
        chan::report(&self.control, &Report::Ready(ready), None).at(Step::Protocol)?;
        static ORDERS: Packet = Packet::new();
        let packet = ORDERS.take().at(Step::Protocol)?;
        loop {
            let mut events = [const { None }; MAX_EVENTS];
            self.wait(&mut events).at(Step::Protocol)?;
            for event in events.into_iter().map_while(|event| event) {
                match event {
                    Event::Control => {
                        if !self.take_order(packet)? {
                            return Ok(());
                        }
                    }
                    Event::Condemned(run) => self.condemn(run),
                    Event::Cord(run) => self.hear(run),
                    Event::Notice(run) => self.answer(run),
                    Event::Unheard(run) => self.stop_listening(run),
                    Event::Exited(run) => self.bury(run),
                    Event::Zygote(zygote) => self.hear_zygote(zygote),
                    Event::Dismissed(zygote) => self.end_zygote(zygote),
                    Event::Died(zygote) => self.bury_zygote(zygote),
                }
            }
            self.give_up_late_births();
            self.reap_strangers();
        }
    }

    /// Waits until something happens, and lists it: of one run its exit last, so that nothing it said
    /// is lost.
    fn wait(&self, events: &mut [Option<Event>; MAX_EVENTS]) -> rustix::io::Result<()> {
        let mut sources = [const { None }; MAX_EVENTS];
        let mut polled: [PollFd<'_>; MAX_EVENTS] =
            core::array::from_fn(|_| PollFd::new(&self.control, PollFlags::IN));
        let mut count = 0;
        for (fd, event) in self.sources() {
            if let (Some(place), Some(source)) = (polled.get_mut(count), sources.get_mut(count)) {
                *place = PollFd::from_borrowed_fd(fd, PollFlags::IN);
                *source = Some(event);
                count += 1;
            }
        }
        let polled = polled.get_mut(..count).unwrap_or_default();
        let first = self.births.iter().flatten().map(|birth| birth.asked.tv_sec).min();
        let patience = first.map(|asked| {
            // A whole second more than is waited for: it is never early.
            let left = asked + BORN_WITHIN + 1 - clock_gettime(ClockId::Monotonic).tv_sec;
            Timespec { tv_sec: left.max(0), tv_nsec: 0 }
        });
        match poll(polled, patience.as_ref()) {
            Err(Errno::INTR) => return Ok(()),
            other => other?,
        };
        let happened = polled.iter().zip(sources).filter(|(p, _)| !p.revents().is_empty());
        for (place, (polled, source)) in events.iter_mut().zip(happened) {
            *place = match source {
                Some(Event::Notice(run)) if !polled.revents().contains(PollFlags::IN) => {
                    Some(Event::Unheard(run))
                }
                other => other,
            };
        }
        Ok(())
    }

    fn sources(&self) -> impl Iterator<Item = (BorrowedFd<'_>, Event)> {
        let runs = self.runs.iter().enumerate().filter_map(|(i, run)| Some((i, run.as_ref()?)));
        let of_runs = runs.flat_map(|(index, run)| {
            let cord = run.cord.as_ref().map(|fd| (fd.as_fd(), Event::Cord(index)));
            let notice = run.listener.as_ref().map(|fd| (fd.as_fd(), Event::Notice(index)));
            let order =
                (!run.is_condemned).then_some((run.socket.as_fd(), Event::Condemned(index)));
            let exit = (run.pidfd.as_fd(), Event::Exited(index));
            order.into_iter().chain(cord).chain(notice).chain([exit])
        });
        // Runs that end make room for what is ordered.
        let is_full = self.free_place().is_none();
        let some_end = self.runs.iter().flatten().any(|run| run.cord.is_none());
        let waits = is_full && some_end;
        let control = (!waits).then_some((self.control.as_fd(), Event::Control));
        let zygotes = self.zygotes.iter().enumerate().filter_map(|(i, z)| Some((i, z.as_ref()?)));
        let of_zygotes = zygotes.flat_map(|(index, zygote)| {
            let line = (zygote.line(), Event::Zygote(index));
            let socket = (zygote.socket(), Event::Dismissed(index));
            let living = (!zygote.is_dying).then_some([line, socket]);
            living.into_iter().flatten().chain([(zygote.pidfd(), Event::Died(index))])
        });
        of_runs.chain(of_zygotes).chain(control)
    }

    /// Takes an order from the control socket and makes its cell. `false` when hotcell has gone.
    fn take_order(&mut self, packet: &mut [u8]) -> Done<bool> {
        let mut received = match chan::receive(&self.control, packet) {
            Ok(received) => received,
            // A packet that is too large is dropped with its descriptors; the run's socket closes,
            // which hotcell sees.
            Err(Errno::MSGSIZE) => return Ok(true),
            Err(errno) => return Err(failed(Step::Protocol, errno, 0)),
        };
        if received.length <= 1 {
            // A last word, or the end without one.
            self.is_dismissed = received.length == 1;
            return Ok(false);
        }
        let packet = packet.get(..received.length).unwrap_or_default();
        let made = if wire::Zygote::is_one(packet) {
            self.start_zygote(packet, &mut received.fds)
        } else {
            self.make_cell(packet, &mut received.fds)
        };
        if let Err(failure) = made {
            // A cell that was cloned and is nobody's ends by itself, and has to be reaped.
            self.has_strangers = true;
            if let Ok(socket) = received.fds.get(0) {
                tell(socket, &Report::Failed(failure), None);
            }
        }
        Ok(true)
    }

    fn make_cell(&mut self, packet: &[u8], fds: &mut Fds) -> Done {
        let order = Order::read(packet).at(Step::Protocol)?;
        if fds.count() != order.descriptors() {
            return Err(failed(Step::Protocol, Errno::BADF, fds.count()));
        }
        let cgroup_name =
            Name::of(order.cgroup_name).ok_or_else(|| failed(Step::Protocol, Errno::INVAL, 0))?;
        let free = self.free_place();
        let free = free.ok_or_else(|| failed(Step::Busy, Errno::AGAIN, MAX_RUNS))?;
        let (cord, their_cord) = cord().at(Step::Clone)?;
        if order.zygote != 0 {
            let origin = self.fork_cell(&order, fds, &their_cord)?;
            let socket = fds.take(0).at(Step::Protocol)?;
            let order = Order { cgroup_name: &[], ..order };
            let plans = Plans { socket, cord, order, cgroup_name };
            let asked = clock_gettime(ClockId::Monotonic);
            if let Some(place) = self.births.get_mut(free) {
                *place = Some(Birth { asked, origin, plans });
            }
            return Ok(());
        }
        if order.keeps != 0 {
            self.check_keeping(order.keeps)?;
        }
        let (pid, pidfd) = match order.inside {
            0 => self.clone_cell(&order, fds, &their_cord)?,
            kept => (None, self.clone_inside(kept, &order, fds, &their_cord)?),
        };
        drop(their_cord);
        let process = self.host.behind(&pidfd).at(Step::Clone)?;
        if order.keeps != 0
            && let Err(failure) = self.keep(order.keeps, free, &process)
        {
            self.disown(&pidfd);
            return Err(failure);
        }
        let socket = fds.take(0).at(Step::Protocol)?;
        let order = Order { cgroup_name: &[], ..order };
        let plans = Plans { socket, cord, order, cgroup_name };
        self.begin(free, Run::of(plans, pidfd, process.pid, pid, None));
        Ok(())
    }

    /// Whether there can be another one with this name.
    fn check_keeping(&self, number: u32) -> Done {
        if self.ground.setup.bare || self.kept(number).is_some() {
            return Err(failed(Step::Inside, Errno::EXIST, 0));
        }
        let has_room = self.kept.iter().any(Option::is_none);
        has_room.then_some(()).ok_or_else(|| failed(Step::Busy, Errno::AGAIN, MAX_KEPT))
    }

    /// From now on others are made inside this cell, until it ends.
    fn keep(&mut self, number: u32, run: usize, process: &Process) -> Done {
        let doors = process.doors().at(Step::Inside)?;
        let namespaces = process.namespaces().at(Step::Inside)?;
        let place = self.kept.iter_mut().find(|place| place.is_none());
        *place.ok_or_else(|| failed(Step::Busy, Errno::AGAIN, MAX_KEPT))? =
            Some(Kept { number, run, doors, namespaces });
        Ok(())
    }

    fn kept(&self, number: u32) -> Option<&Kept> {
        self.kept.iter().flatten().find(|kept| kept.number == number)
    }

    /// What was made inside a cell that has ended ends with it.
    fn end_inside(&mut self, run: usize) {
        let of_it = |kept: &mut Kept| kept.run == run;
        let Some(kept) = self.kept.iter_mut().find_map(|place| place.take_if(of_it)) else {
            return;
        };
        for run in self.runs.iter_mut().flatten().filter(|run| run.order.inside == kept.number) {
            run.is_condemned = true;
            run.kill();
        }
    }

    /// A place that no run has, and none that is to be born.
    fn free_place(&self) -> Option<usize> {
        self.runs.iter().zip(&self.births).position(|(run, birth)| run.is_none() && birth.is_none())
    }

    fn begin(&mut self, index: usize, run: Run) {
        let mapped = match run.order.inside {
            _ if self.ground.setup.bare => Ok(()),
            0 => self.map_ids(&run).and_then(|()| run.say(b"m").at(Step::IdMap)),
            // It is in a user namespace that has its id.
            _ => run.say(b"m").at(Step::IdMap),
        };
        let place = self.runs.get_mut(index);
        let run = place.map(|place| place.insert(run));
        if let (Some(run), Err(failure)) = (run, mapped) {
            // A cell that ended meanwhile knows better why.
            match run.last_words() {
                Some(Report::Failed(reason)) => run.fail(reason),
                _ => run.fail(failure),
            }
        }
    }

    fn clone_cell(
        &self,
        order: &Order<'_>,
        fds: &Fds,
        cord: &OwnedFd,
    ) -> Done<(Option<Pid>, OwnedFd)> {
        let into = order.entrance.born.then(|| fds.get(2)).transpose().at(Step::Protocol)?;
        let ruleset = self.rules.ruleset(order.loopback)?;
        let flags = if self.ground.setup.bare { 0 } else { namespaces(order) };
        match sys::clone(flags, into).at(Step::Clone)? {
            Cloned::Parent { pid, pidfd } => Ok((Some(pid), pidfd)),
            Cloned::Child => cell::live(&Plan {
                order,
                fds,
                ruleset: ruleset.as_fd(),
                ground: self.ground,
                cord: cord.as_fd(),
            }),
        }
    }

    /// The same inside a kept cell. Whoever enters a user namespace does not come back, so that a process
    /// made for it does, clones the cell as a child of this one, and ends. It runs nothing but our own code
    /// and waits for nobody, and what is inside cannot see it.
    fn clone_inside(
        &self,
        number: u32,
        order: &Order<'_>,
        fds: &Fds,
        cord: &OwnedFd,
    ) -> Done<OwnedFd> {
        let gone = || failed(Step::Inside, Errno::SRCH, 0);
        let kept = self.kept(number).ok_or_else(gone)?;
        let into = order.entrance.born.then(|| fds.get(2)).transpose().at(Step::Protocol)?;
        let ruleset = self.rules.ruleset(order.loopback)?;
        let (ours, theirs) = pair().at(Step::Inside)?;
        let helper = match sys::clone(0, None).at(Step::Inside)? {
            Cloned::Parent { pidfd, .. } => pidfd,
            Cloned::Child => match enter_and_clone(&kept.doors, order, into) {
                Ok(Cloned::Child) => cell::live(&Plan {
                    order,
                    fds,
                    ruleset: ruleset.as_fd(),
                    ground: self.ground,
                    cord: cord.as_fd(),
                }),
                Ok(Cloned::Parent { pidfd, .. }) => {
                    tell(&theirs, &Report::Born, Some(pidfd.as_fd()));
                    sys::exit(0)
                }
                Err(failure) => {
                    tell(&theirs, &Report::Failed(failure), None);
                    sys::exit(1)
                }
            },
        };
        // What it had to say is there by then; if there is nothing, it was killed.
        sys::reap(&helper).at(Step::Inside)?;
        drop(theirs);
        let mut buffer = [0; MAX_REPORT];
        let mut received = chan::receive_now(&ours, &mut buffer).at(Step::Inside)?;
        match Report::read(buffer.get(..received.length).unwrap_or_default()) {
            Ok(Report::Born) => received.fds.take(0).at(Step::Inside),
            Ok(Report::Failed(failure)) => Err(failure),
            _ => Err(gone()),
        }
    }

    /// The same, by a zygote, which answers later. Gives where that lives.
    fn fork_cell(&self, order: &Order<'_>, fds: &Fds, cord: &OwnedFd) -> Done<[u64; 7]> {
        let ruleset = self.rules.ruleset(order.loopback)?;
        let gone = || failed(Step::Zygote, Errno::SRCH, 0);
        let zygote = self.zygote(order.zygote).filter(|zygote| zygote.is_ready());
        let zygote = zygote.ok_or_else(gone)?;
        let mut passed = [cord.as_fd(); MAX_PASSED];
        let count = fds.count();
        for (index, place) in passed.iter_mut().enumerate().take(count).skip(1) {
            *place = fds.get(index).at(Step::Protocol)?;
        }
        *passed.get_mut(count).ok_or_else(gone)? = ruleset.as_fd();
        let passed = passed.get(..=count).unwrap_or_default();
        zygote.fork(self.ground, order, passed)?;
        Ok(zygote.namespaces)
    }

    fn zygote(&self, number: u8) -> Option<&Zygote> {
        self.zygotes.iter().flatten().find(|zygote| zygote.number == number)
    }

    /// The place of the first answer that a zygote owes.
    fn next_birth(&self, number: u8) -> Option<usize> {
        let births = self.births.iter().enumerate().filter_map(|(i, b)| Some((i, b.as_ref()?)));
        let of_it = births.filter(|(_, birth)| birth.plans.order.zygote == number);
        of_it.min_by_key(|(_, b)| (b.asked.tv_sec, b.asked.tv_nsec)).map(|(index, _)| index)
    }

    /// A zygote answers an order.
    fn answer_birth(&mut self, number: u8, answer: (Report, Option<OwnedFd>)) -> Done {
        let unasked = || failed(Step::Zygote, Errno::PROTO, 0);
        let next = self.next_birth(number);
        let place = next.and_then(|index| self.births.get_mut(index)).and_then(Option::take);
        match (answer, next.zip(place)) {
            ((Report::Born, Some(pidfd)), Some((index, birth))) => self.adopt(index, birth, pidfd),
            ((Report::Failed(failure), _), Some((_, birth))) => {
                tell(&birth.plans.socket, &Report::Failed(failure), None);
                Ok(())
            }
            ((Report::Born, Some(pidfd)), None) => {
                self.disown(&pidfd);
                Err(unasked())
            }
            _ => Err(unasked()),
        }
    }

    fn adopt(&mut self, index: usize, birth: Birth, pidfd: OwnedFd) -> Done {
        let number = self.host.behind(&pidfd).map(|process| process.pid);
        // A child of this process, and not one that is known already.
        let is_new = |number: &u64| {
            sys::is_child(&pidfd)
                && self.runs.iter().flatten().all(|run| run.number != *number)
                && self.zygotes.iter().flatten().all(|zygote| zygote.pid != *number)
        };
        let Some(number) = number.ok().filter(is_new) else {
            let failure = failed(Step::Zygote, Errno::PROTO, 0);
            tell(&birth.plans.socket, &Report::Failed(failure), None);
            return Err(failure);
        };
        self.begin(index, Run::of(birth.plans, pidfd, number, None, Some(birth.origin)));
        Ok(())
    }

    /// Ends a cell that nobody waits for any more.
    fn disown(&mut self, pidfd: &OwnedFd) {
        let is_somebodys = self
            .host
            .behind(pidfd)
            .is_ok_and(|process| self.runs.iter().flatten().any(|run| run.number == process.pid));
        if sys::is_child(pidfd) && !is_somebodys {
            rustix::process::pidfd_send_signal(pidfd, Signal::KILL).ok();
            self.has_strangers = true;
        }
    }

    /// Zygotes that owe an answer for too long are given up.
    fn give_up_late_births(&mut self) {
        let now = clock_gettime(ClockId::Monotonic).tv_sec;
        let is_late = |birth: &&Birth| now - birth.asked.tv_sec > BORN_WITHIN;
        while let Some(late) = self.births.iter().flatten().find(is_late) {
            let number = late.plans.order.zygote;
            let is_it = |place: &Option<Zygote>| place.as_ref().is_some_and(|z| z.number == number);
            if let Some(index) = self.zygotes.iter().position(is_it) {
                self.end_zygote(index);
            }
            self.fail_births(number, Errno::TIMEDOUT);
        }
    }

    fn fail_births(&mut self, number: u8, errno: Errno) {
        for place in &mut self.births {
            if let Some(birth) = place.take_if(|birth| birth.plans.order.zygote == number) {
                let failure = failed(Step::Zygote, errno, 0);
                tell(&birth.plans.socket, &Report::Failed(failure), None);
            }
        }
    }

    /// Reaps children that no run has: their zygote ended before it told of them. Without a cord they end
    /// by themselves.
    fn reap_strangers(&self) {
        if !self.has_strangers {
            return;
        }
        while let Ok(Some(pid)) = sys::ended_child() {
            let has_ended = |fd: BorrowedFd<'_>| {
                let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
                let now = Timespec { tv_sec: 0, tv_nsec: 0 };
                !matches!(poll(&mut fds, Some(&now)), Ok(0))
            };
            let runs = self.runs.iter().flatten().map(|run| run.pidfd.as_fd());
            let zygotes = self.zygotes.iter().flatten().map(Zygote::pidfd);
            if runs.chain(zygotes).any(has_ended) {
                // It may be that one, which is buried by its event.
                return;
            }
            sys::wait_for(pid).ok();
        }
    }

    fn start_zygote(&mut self, packet: &[u8], fds: &mut Fds) -> Done {
        let wanted = wire::Zygote::read(packet).at(Step::Protocol)?;
        if fds.count() != wanted.descriptors() {
            return Err(failed(Step::Protocol, Errno::BADF, fds.count()));
        }
        // Without namespaces of its own a run is not forked from anything.
        if self.ground.setup.bare || self.zygote(wanted.number).is_some() {
            return Err(failed(Step::Zygote, Errno::EXIST, 0));
        }
        let place = self.zygotes.iter_mut().find(|place| place.is_none());
        let place = place.ok_or_else(|| failed(Step::Zygote, Errno::AGAIN, MAX_ZYGOTES))?;
        *place = Some(Zygote::start(&self.host, &wanted, fds)?);
        Ok(())
    }

    /// That it is ready is told once, and then it answers orders; anything else is its end.
    fn hear_zygote(&mut self, index: usize) {
        let Spawner { zygotes, host, .. } = self;
        let Some(Some(zygote)) = zygotes.get_mut(index) else { return };
        let number = zygote.number;
        let heard = match zygote.hear() {
            Ok((Report::Hatched, None)) if !zygote.is_ready() => zygote.hatch(host).map(|()| {
                tell(zygote.socket(), &Report::Hatched, None);
            }),
            Ok(answer) => {
                if !zygote.bore(host) {
                    tell(zygote.socket(), &Report::Outgrown, None);
                }
                self.answer_birth(number, answer)
            }
            Err(failure) => Err(failure),
        };
        if heard.is_err() {
            self.end_zygote(index);
        }
    }

    /// What it still owes is not waited for; hotcell executes those.
    fn end_zygote(&mut self, index: usize) {
        let Some(Some(zygote)) = self.zygotes.get_mut(index) else { return };
        zygote.kill();
        let number = zygote.number;
        self.fail_births(number, Errno::SRCH);
    }

    /// Reaps one that is dead, and ends what it had forked and nobody heard of. Only now its socket is
    /// closed.
    fn bury_zygote(&mut self, index: usize) {
        let Some(zygote) = self.zygotes.get_mut(index).and_then(Option::take) else { return };
        let reaped = sys::reap(zygote.pidfd());
        debug_assert!(reaped.is_ok(), "a readable pidfd is a child that can be reaped");
        while let Some((_, pidfd)) = zygote.hear_at_once() {
            pidfd.iter().for_each(|pidfd| self.disown(pidfd));
        }
        // It may have forked what it did not come to say.
        self.has_strangers = true;
        self.fail_births(zygote.number, Errno::SRCH);
    }

    /// Gives the run its one id.
    fn map_ids(&self, run: &Run) -> Done {
        let process = self.host.behind(&run.pidfd).at(Step::IdMap)?;
        for (file, outer) in [(c"uid_map", run.order.outer_uid), (c"gid_map", run.order.outer_gid)]
        {
            let line = Path::of(format_args!("{INNER_ID} {outer} 1")).at(Step::IdMap)?;
            let line = line.as_c().at(Step::IdMap)?;
            process.write(file, line.to_bytes()).at(Step::IdMap)?;
        }
        Ok(())
    }

    /// Any word on a run's socket, its end included, ends the run.
    fn condemn(&mut self, index: usize) {
        if let Some(Some(run)) = self.runs.get_mut(index) {
            run.is_condemned = true;
            run.kill();
        }
    }

    /// Takes what the cell says.
    fn hear(&mut self, index: usize) {
        let Some(Some(run)) = self.runs.get_mut(index) else { return };
        let mut buffer = [0; MAX_REPORT];
        let Some(cord) = &run.cord else { return };
        let Ok(mut received) = chan::receive(cord, &mut buffer) else { return run.kill() };
        if received.length == 0 {
            // Its init is on its way out.
            run.cord = None;
            return;
        }
        let packet = buffer.get(..received.length).unwrap_or_default();
        match Report::read(packet) {
            Ok(Report::Built) => run.pass_on(&received.fds),
            Ok(Report::Poised { landlock_denied }) => {
                run.listener = received.fds.take(0).ok();
                if run.listener.is_none() {
                    run.fail(failed(Step::Seccomp, Errno::BADF, 0));
                } else if run.origin.is_some() {
                    // Its next call says that it is.
                    run.poised = Some(landlock_denied);
                } else {
                    self.release(index, received.sender, landlock_denied, |run| run.say(b"g"));
                }
            }
            Ok(Report::Failed(failure)) => run.fail(failure),
            _ => run.kill(),
        }
    }

    /// Reads the program's process back and lets it go, or ends the run.
    fn release(
        &mut self,
        index: usize,
        program: Option<Pid>,
        landlock_denied: bool,
        let_go: impl FnOnce(&Run) -> rustix::io::Result<()>,
    ) {
        let Spawner { runs, host, namespaces, tree_mounts, ground, kept, .. } = self;
        let Some(Some(run)) = runs.get_mut(index) else { return };
        let name = run.cgroup_name;
        let around = kept.iter().flatten().find(|kept| kept.number == run.order.inside);
        if around.is_none() && run.order.inside != 0 {
            return run.fail(failed(Step::Inside, Errno::SRCH, 0));
        }
        let expected = Expected {
            order: Order { cgroup_name: name.as_bytes(), ..run.order },
            setup: ground.setup,
            drops_groups: ground.drops_groups,
            namespaces: *namespaces,
            origin: run.origin,
            within: around.map(|kept| kept.namespaces),
            tree_mounts: *tree_mounts,
            landlock_denied,
        };
        let released =
            release(host, run, program, &expected).and_then(|()| let_go(run).at(Step::Protocol));
        if let Err(failure) = released {
            run.fail(failure);
        }
    }

    /// Counts a reported call and refuses it.
    fn answer(&mut self, index: usize) {
        let Some(Some(run)) = self.runs.get_mut(index) else { return };
        let Some(listener) = &run.listener else { return };
        let notice = match sys::next_notice(listener) {
            Ok(notice) => notice,
            // The caller died while it waited.
            Err(Errno::NOENT | Errno::INTR) => return,
            Err(_) => return run.stop_listening(),
        };
        if let Some(landlock_denied) = run.poised.take() {
            if notice.number != sys::RELEASE {
                return run.fail(failed(Step::Protocol, Errno::PROTO, 0));
            }
            return self.release(index, notice.caller, landlock_denied, |run| {
                sys::let_go(run.listener.as_ref().ok_or(Errno::PIPE)?, notice)
            });
        }
        if run.reported == 0 {
            // While the program still waits, so that it is said before its end is.
            tell(&run.socket, &Report::Refusing, None);
        }
        let refused = sys::refuse(listener, notice);
        run.count(notice.number);
        if !matches!(refused, Ok(()) | Err(Errno::NOENT | Errno::INTR)) {
            run.listener = None;
        }
    }

    fn stop_listening(&mut self, index: usize) {
        if let Some(Some(run)) = self.runs.get_mut(index) {
            run.stop_listening();
        }
    }

    /// Reaps a run's init, with which the whole run has ended, and tells hotcell.
    fn bury(&mut self, index: usize) {
        let Some(run) = self.runs.get_mut(index).and_then(Option::take) else { return };
        self.end_inside(index);
        // What it said last may still lie in the cord.
        while let Some(report) = run.last_words() {
            if matches!(report, Report::Failed(_)) {
                tell(&run.socket, &report, None);
            }
        }
        // Its own status says nothing that was not said already; reaping frees its number.
        let reaped = sys::reap(&run.pidfd);
        debug_assert!(reaped.is_ok(), "a readable pidfd is a child that can be reaped");
        if self.ground.setup.bare {
            let is_init = |pid| self.runs.iter().flatten().any(|run| run.pid == Some(pid));
            orphans::end(&self.host, is_init);
        }
        tell(&run.socket, &Report::Gone(run.gone), None);
    }
}

fn may_set_groups(own: &Process) -> bool {
    own.read(c"setgroups", &mut [0; 16]).is_ok_and(|word| word.trim_ascii() == b"allow")
}

fn count_mounts(own: &Process) -> Done<u32> {
    let mut buffer = [0; crate::proc::MAX_FILE];
    let mounts = own.read(c"mountinfo", &mut buffer).at(Step::HostProc)?;
    Ok(u32::try_from(crate::proc::lines(mounts).count()).unwrap_or(u32::MAX))
}

/// Reads back every layer, and tells what was seen.
fn release(host: &HostProc, run: &mut Run, program: Option<Pid>, expected: &Expected<'_>) -> Done {
    let attest_begun = clock_gettime(ClockId::Monotonic);
    let program = program.ok_or_else(|| failed(Step::Protocol, Errno::SRCH, 0))?;
    let pidfd =
        rustix::process::pidfd_open(program, PidfdFlags::empty()).at(Step::AttestNamespaces)?;
    let seen = match attest::attest(host, &pidfd, expected) {
        // Somebody asked for a hole and gets a run with one.
        #[cfg(feature = "holes")]
        Err(_) if run.order.holes != 0 && !run.order.leaves_out(hole::SEEN) => {
            crate::wire::Seen::default()
        }
        other => other?,
    };
    run.program = expected.setup.bare.then_some(pidfd);
    // In this order, so that a run that hotcell does not know to be released was not.
    let released = Report::Released(seen, micros_since(attest_begun));
    chan::report(&run.socket, &released, None).at(Step::Protocol)
}

impl Run {
    fn of(
        plans: Plans,
        pidfd: OwnedFd,
        number: u64,
        pid: Option<Pid>,
        origin: Option<[u64; 7]>,
    ) -> Run {
        let Plans { socket, cord, order, cgroup_name } = plans;
        Run {
            number,
            pid,
            pidfd,
            socket,
            is_condemned: false,
            cord: Some(cord),
            program: None,
            listener: None,
            poised: None,
            origin,
            order,
            cgroup_name,
            gone: Gone::default(),
            reported: 0,
        }
    }

    /// Ends everything in the run. It is told once its init has been reaped.
    fn kill(&self) {
        // With a pid namespace around it, a run ends with its init. Without one, its init ends the rest
        // once the program has ended.
        let target = self.program.as_ref().unwrap_or(&self.pidfd);
        // The only way this fails is that it has ended already.
        rustix::process::pidfd_send_signal(target, Signal::KILL).ok();
    }

    /// Who waits to be let go can not be any more.
    fn stop_listening(&mut self) {
        self.listener = None;
        if self.poised.take().is_some() {
            self.fail(failed(Step::Seccomp, Errno::PIPE, 0));
        }
    }

    fn say(&self, word: &[u8; 1]) -> rustix::io::Result<()> {
        rustix::io::write(self.cord.as_ref().ok_or(Errno::PIPE)?, word).map(drop)
    }

    /// Something that the cell said and nobody has heard yet.
    fn last_words(&self) -> Option<Report> {
        let mut buffer = [0; MAX_REPORT];
        let cord = self.cord.as_ref()?;
        let (_, length) =
            rustix::net::recv(cord, &mut buffer[..], rustix::net::RecvFlags::DONTWAIT).ok()?;
        Report::read(buffer.get(..length)?).ok()
    }

    /// Hands hotcell what its cell handed out.
    fn pass_on(&self, fds: &Fds) {
        let mut passed = [self.socket.as_fd(); 1 + proxy::MOST];
        let count = 1 + self.order.handed();
        let all = passed.iter_mut().enumerate().take(count);
        let taken = all.map(|(index, place)| fds.get(index).map(|fd| *place = fd));
        match taken.collect::<rustix::io::Result<()>>() {
            Ok(()) if fds.count() == count => {
                let passed = passed.get(..count).unwrap_or_default();
                chan::report_with(&self.socket, &Report::Built, passed).ok();
            }
            _ => self.fail(failed(Step::Writable, Errno::BADF, fds.count())),
        }
    }

    fn fail(&self, failure: Failed) {
        tell(&self.socket, &Report::Failed(failure), None);
        self.kill();
    }

    fn count(&mut self, number: u32) {
        self.reported += 1;
        if self.reported >= MAX_REPORTED {
            self.listener = None;
        }
        let mut counters = self.gone.blocked.iter_mut();
        if let Some(counter) = counters.find(|b| b.count == 0 || b.number == number) {
            *counter = Blocked { number, count: counter.count + 1 };
        }
    }
}

/// The namespaces that a cell is born into.
pub(crate) fn namespaces(order: &Order<'_>) -> u64 {
    use linux_raw_sys::general as nr;
    let always = nr::CLONE_NEWUSER | nr::CLONE_NEWNS;
    let left_out = [
        (nr::CLONE_NEWPID, hole::PID),
        (nr::CLONE_NEWNET, hole::NET),
        (nr::CLONE_NEWIPC, hole::IPC),
        (nr::CLONE_NEWUTS, hole::UTS),
        (nr::CLONE_NEWCGROUP, hole::CGROUP_NAMESPACE),
    ];
    let kept = left_out.into_iter().filter(|&(_, hole)| !order.leaves_out(hole));
    let flags = kept.fold(always, |flags, (flag, _)| flags | flag);
    // A cell makes this one itself, once it is in its cgroup. Made at its birth, the root of it would be where
    // this process is: always where a cell joins, and on some kernels also where it is born into its cgroup.
    let has_cgroup = order.entrance != Entrance::default();
    let later = if has_cgroup { nr::CLONE_NEWCGROUP } else { 0 };
    u64::from(flags & !later)
}

/// In a process made for it: goes into the namespaces of a kept cell, and clones one that has processes,
/// mounts and a view of its cgroup for itself.
fn enter_and_clone(
    doors: &[OwnedFd; 5],
    order: &Order<'_>,
    into: Option<BorrowedFd<'_>>,
) -> Done<Cloned> {
    use linux_raw_sys::general as nr;
    for (index, door) in doors.iter().enumerate() {
        rustix::thread::move_into_link_name_space(door.as_fd(), None)
            .at_index(Step::Inside, index)?;
    }
    let own = nr::CLONE_NEWPID | nr::CLONE_NEWNS | nr::CLONE_NEWCGROUP;
    let flags = namespaces(order) & u64::from(own);
    sys::clone(flags | sys::SIBLING, into).at(Step::Clone)
}

/// A pair of sockets between spawner and cell; the kernel says who speaks on ours.
fn cord() -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    let (ours, theirs) = pair()?;
    sockopt::set_socket_passcred(&ours, true)?;
    Ok((ours, theirs))
}

pub(crate) fn pair() -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    let (family, flags) = (AddressFamily::UNIX, SocketFlags::CLOEXEC);
    rustix::net::socketpair(family, SocketType::SEQPACKET, flags, None)
}

/// Sends to hotcell. If it is gone, the closed socket ends the run anyway; if it does not read, that
/// must not stop the others.
fn tell(socket: impl AsFd, report: &Report, fd: Option<BorrowedFd<'_>>) {
    chan::report(socket, report, fd).ok();
}

fn micros_since(begun: Timespec) -> u32 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = now.tv_sec.saturating_sub(begun.tv_sec).saturating_mul(1_000_000);
    let micros = seconds.saturating_add((now.tv_nsec - begun.tv_nsec) / 1000);
    u32::try_from(micros).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::path::PathBuf;

    use rustix::fd::{AsFd, OwnedFd};
    use rustix::process::WaitOptions;

    use super::*;

    fn order(entrance: Entrance) -> Order<'static> {
        let (limits, cgroup_name) = (wire::Limits::default(), &b""[..]);
        Order {
            outer_uid: 0,
            outer_gid: 0,
            limits,
            entrance,
            cgroup_name,
            loopback: false,
            proxied: false,
            brings_places: false,
            zygote: 0,
            keeps: 0,
            inside: 0,
            #[cfg(feature = "holes")]
            holes: 0,
        }
    }

    #[test]
    fn a_cell_with_a_cgroup_makes_the_namespace_of_it_once_it_is_in() {
        let flag = u64::from(linux_raw_sys::general::CLONE_NEWCGROUP);
        for (born, joins, at_birth) in
            [(false, 0, true), (true, 0, false), (false, 3, false), (true, 3, false)]
        {
            let flags = namespaces(&order(Entrance { born, joins }));
            assert_eq!(flags & flag != 0, at_birth, "born: {born}, joins: {joins}");
        }
    }

    /// A cgroup of v2 without limits, which this process may make.
    struct Group {
        path: PathBuf,
        dir: OwnedFd,
    }

    impl Group {
        fn make() -> Option<Group> {
            let points = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"].map(PathBuf::from);
            let point = points.into_iter().find(|p| p.join("cgroup.subtree_control").exists())?;
            let path = point.join(format!("jail-test-{}", std::process::id()));
            std::fs::create_dir(&path).ok()?;
            let dir = File::open(&path).unwrap().into();
            Some(Group { path, dir })
        }
    }

    impl Drop for Group {
        fn drop(&mut self) {
            std::fs::remove_dir(&self.path).unwrap();
        }
    }

    /// What a child that was born into `group` with these flags says of itself.
    fn in_a_child(group: &Group, flags: u64, answer: fn() -> bool) -> bool {
        match sys::clone(flags, Some(group.dir.as_fd())).unwrap() {
            Cloned::Child => sys::exit(u8::from(answer())),
            Cloned::Parent { pid, .. } => {
                let status = rustix::process::waitpid(Some(pid), WaitOptions::empty()).unwrap();
                status.unwrap().1.exit_status() == Some(1)
            }
        }
    }

    #[test]
    fn who_is_born_into_a_cgroup_is_its_root_in_a_namespace_of_its_own() {
        let Some(group) = Group::make() else {
            return skip("who is born into a cgroup", "it needs root and a v2 hierarchy");
        };
        // The control: as a member it is seen below the root.
        assert!(!in_a_child(&group, 0, || cell::is_root_of_its_cgroups() == Ok(true)));
        assert!(in_a_child(&group, 0, || {
            let flag = linux_raw_sys::general::CLONE_NEWCGROUP;
            sys::unshare(flag).is_ok() && cell::is_root_of_its_cgroups() == Ok(true)
        }));
    }

    /// Written past the test harness, which would swallow it.
    fn skip(test: &str, why: &str) {
        let line = format!("\nSKIPPED {test}: {why}\n");
        std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes()).unwrap();
    }
}
