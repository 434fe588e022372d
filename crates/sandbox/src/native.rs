//! The native backend: finds what the host gives, and starts jobs.

use std::collections::HashMap;
use std::ffi::CString;
use std::ops::Range;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use std::{fs, io};

use hotcell_jail::wire::{Failed, Setup, Step};
use hotcell_types::{Layer, Level, Limits};
use rustix::io::Errno;
use rustix::net::AddressFamily;
use rustix::thread::{CapabilitySet, capabilities};

use crate::cell::{Cell, Kind};
use crate::cgroup::{Cgroups, Unavailable};
use crate::ids::IdPool;
use crate::keeper::{Keeper, Spares};
use crate::kept::{Keep, Kept};
use crate::launcher::{self, Idle, Launcher, StartError};
use crate::layout::{self, Layout};
use crate::running::Running;
use crate::warm::{Bounds, Nursery};
use crate::{Job, Refusal, Settings, Stdin, View, cause, places, start, steps};

/// Where the ids of runs are kept apart. Only root gives runs ids of their own.
const ID_DIR: &str = "/run/hotcell";

/// Launchers beyond which those without a run are ended.
const MOST_BASES: usize = 16;
/// Most launchers that one job tries: there are that many levels to go down.
const MOST_TRIES: u32 = 5;

/// The init, which is ours, and the program.
const PIDS_LEAST: u64 = 2;
/// The same for the one that holds a sandbox that stays, for a cell that waits, and for a program.
const PIDS_LEAST_KEPT: u64 = 3 * PIDS_LEAST;

/// What this process keeps to run jobs: launchers, the cgroup, the id pool.
#[derive(Debug)]
pub struct Sandbox {
    minimum: Level,
    ground: Arc<Ground>,
    /// Launchers end before what their runs left is buried.
    state: Mutex<State>,
    keeper: Arc<Keeper>,
    bounds: Bounds,
    #[cfg(feature = "holes")]
    host_visible: bool,
}

/// What all runs of a process stand on.
#[derive(Debug)]
pub(crate) struct Ground {
    pub(crate) home: PathBuf,
    pub(crate) cgroups: Option<Cgroups>,
    pub(crate) ids: Option<IdPool>,
}

/// What is found out, or made, when it is first needed.
#[derive(Debug)]
struct State {
    setup: Setup,
    found: Found,
    /// A launcher without a tree yet.
    idle: Option<Idle>,
    /// One launcher for each view of the host.
    bases: HashMap<View, Arc<Base>>,
}

/// How far the host goes, and why not further.
#[derive(Debug, Clone)]
struct Found {
    level: Level,
    why: String,
    fix: String,
}

/// A launcher with the tree that it built.
#[derive(Debug)]
pub(crate) struct Base {
    /// The level that it gives, and how it stands.
    pub(crate) level: Level,
    pub(crate) setup: Setup,
    /// Both end before their launcher.
    pub(crate) spares: Spares,
    pub(crate) nursery: Nursery,
    pub(crate) launcher: Launcher,
    pub(crate) layout: Layout,
    /// How many sandboxes that stay have had a number in it.
    pub(crate) names: AtomicU32,
}

/// What a run takes from the sandbox that it runs in.
#[derive(Debug)]
pub(crate) struct Parts<'a> {
    pub(crate) ground: &'a Arc<Ground>,
    pub(crate) base: &'a Arc<Base>,
    pub(crate) keeper: &'a Arc<Keeper>,
    pub(crate) begun: Instant,
}

/// What this host gives, found out before it is known what for, with a launcher that waits to be told.
#[derive(Debug)]
pub struct Site {
    idle: Option<Idle>,
    /// Whether this process makes namespaces without a user namespace of its own first.
    administers: bool,
    found: Found,
    ids: Option<IdPool>,
    cgroups: Option<Cgroups>,
}

impl Site {
    pub fn explore() -> Result<Site, Refusal> {
        Site::explore_with(Cgroups::find, Idle::execute)
    }

    fn explore_with(
        find_cgroups: impl FnOnce() -> Result<Cgroups, Unavailable>,
        execute: impl FnOnce() -> io::Result<Idle>,
    ) -> Result<Site, Refusal> {
        // On v2 this process may have to move before it can divide a cgroup, and only alone: what it has
        // started would be in the way, or stay behind where it may put nothing into a run's cgroup.
        let cgroups = find_cgroups();
        // It comes up while the rest is found out.
        let idle = execute().ok();
        let powers = Powers::of_this_process();
        let mut found = Found::everything();
        let ids = match powers.ids {
            Some(ids) => found.take_ids(ids),
            None => found.without_ids(),
        };
        if ids.is_none() && powers.is_host_root {
            return Err(root_without_ids(&found));
        }
        let cgroups = found.take_cgroups(cgroups);
        Ok(Site { idle, administers: powers.administers, found, ids, cgroups })
    }

    /// Fails closed below `settings.minimum`. What needs the launcher is found out with the first job, in
    /// the same way.
    pub fn open(self, settings: &Settings) -> Result<Sandbox, Refusal> {
        let Site { idle, administers, found, ids, cgroups } = self;
        found.check(settings.minimum)?;
        let setup = Setup { user_namespace: !administers, proc: true, bare: false };
        let state = State { setup, found, idle, bases: HashMap::new() };
        let ground = Arc::new(Ground { home: settings.home.clone(), cgroups, ids });
        Ok(Sandbox {
            minimum: settings.minimum,
            keeper: Arc::new(Keeper::new(Arc::clone(&ground))),
            ground,
            state: Mutex::new(state),
            bounds: Bounds::default(),
            #[cfg(feature = "holes")]
            host_visible: false,
        })
    }
}

impl Sandbox {
    /// Finds what this host gives, and stands on it.
    pub fn open(settings: &Settings) -> Result<Sandbox, Refusal> {
        Site::explore()?.open(settings)
    }

    /// A sandbox whose runs have the host's tree at `/host`, writable as far as their id goes.
    #[cfg(feature = "holes")]
    pub fn open_with_host(settings: &Settings) -> Result<Sandbox, Refusal> {
        let mut sandbox = Sandbox::open(settings)?;
        sandbox.host_visible = true;
        Ok(sandbox)
    }

    /// A sandbox whose zygotes are used for longer, or not as long.
    pub fn open_bounded(settings: &Settings, bounds: Bounds) -> Result<Sandbox, Refusal> {
        let mut sandbox = Sandbox::open(settings)?;
        sandbox.bounds = bounds;
        Ok(sandbox)
    }

    /// The level as far as it is known: the first job may find that the host gives less.
    pub fn level(&self) -> Level {
        self.state().found.level
    }

    /// Has the tree built that runs which see these paths need, while the caller does something else. The
    /// job itself hears of what goes wrong.
    pub fn expect(&self, view: &View) -> Result<(), Refusal> {
        self.base(view, self.minimum).map(drop)
    }

    /// The same, and a cell for one such job.
    pub fn warm(&self, view: &View, kind: Kind) -> Result<(), Refusal> {
        let base = self.base(view, self.minimum)?;
        base.spares.add(Cell::order(&self.ground, &base, kind)?);
        Ok(())
    }

    /// Builds the jail, reads back every layer, and lets the program go.
    pub fn start(&self, job: Job) -> Result<Running, Refusal> {
        self.start_at(self.minimum, job)
    }

    /// The same for somebody who may demand more than the operator does, and never gets less.
    pub fn start_at(&self, minimum: Level, job: Job) -> Result<Running, Refusal> {
        let minimum = minimum.max(self.minimum);
        let begun = Instant::now();
        #[cfg(feature = "holes")]
        let job = if self.host_visible { job.seeing_the_host() } else { job };
        check_pids(&job.limits, PIDS_LEAST)?;
        check_open_files(&job.limits)?;
        check_line(&job)?;
        for path in &job.command.read_only {
            check_shared(path)?;
        }
        let mut tries = 0;
        loop {
            tries += 1;
            let base = self.base(&job.command.view(), minimum)?;
            let parts = Parts { ground: &self.ground, base: &base, keeper: &self.keeper, begun };
            match start::give(&parts, &job) {
                Ok(given) => return start::run(&parts, job, given),
                // Nothing of the job has run: where the launcher is to blame, another may do better.
                Err(refusal) => self.replace(&base, tries, refusal, minimum)?,
            }
        }
    }

    /// Makes a sandbox that stays until it is stopped, and in which one program after the other runs.
    pub fn keep(&self, keep: Keep) -> Result<Kept, Refusal> {
        self.keep_at(self.minimum, keep)
    }

    /// The same for somebody who may demand more than the operator does, and never gets less.
    pub fn keep_at(&self, minimum: Level, keep: Keep) -> Result<Kept, Refusal> {
        let minimum = minimum.max(self.minimum);
        let begun = Instant::now();
        check_pids(&keep.limits, PIDS_LEAST_KEPT)?;
        check_open_files(&keep.limits)?;
        for path in &keep.view.read_only {
            check_shared(path)?;
        }
        let mut tries = 0;
        loop {
            tries += 1;
            let base = self.base(&keep.view, minimum)?;
            let parts = Parts { ground: &self.ground, base: &base, keeper: &self.keeper, begun };
            match Kept::make(&parts, &keep) {
                Ok(kept) => return Ok(kept),
                Err(refusal) => self.replace(&base, tries, refusal, minimum)?,
            }
        }
    }

    /// Ends every launcher that nobody uses, and what its runs left. The next job starts another.
    pub fn rest(&self) {
        let mut state = self.state();
        let is_used = |base: &Arc<Base>| Arc::strong_count(base) > 1;
        let unused = state.bases.extract_if(|_, base| !is_used(base));
        let unused: Vec<_> = unused.map(|(_, base)| base).collect();
        let idle = state.idle.take();
        // Ending them takes a while; what is buried before its launcher has ended takes longer.
        drop(state);
        drop((unused, idle));
        self.keeper.bury();
    }

    /// After a failed start: makes way for another launcher where that helps, or gives the reason why
    /// not.
    fn replace(
        &self,
        base: &Arc<Base>,
        tries: u32,
        refusal: Refusal,
        minimum: Level,
    ) -> Result<(), Refusal> {
        if tries > MOST_TRIES {
            return Err(refusal);
        }
        let answer = base.launcher.ready();
        let mut state = self.state();
        match answer {
            // Only a run that was surely not let go is started again.
            Ok(_) if base.launcher.is_gone() && refusal.is_lost() => {
                state.forget(base);
                Ok(())
            }
            Ok(_) => Err(refusal),
            Err(error) => {
                state.forget(base);
                state.lower(base, error, minimum)
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The launcher for runs that see these paths.
    fn base(&self, view: &View, minimum: Level) -> Result<Arc<Base>, Refusal> {
        let mut state = self.state();
        // Whatever led here: below the minimum nothing is started.
        state.found.check(minimum)?;
        if let Some(base) = state.bases.get(view) {
            return Ok(Arc::clone(base));
        }
        state.make_room();
        let layout = self.layout(state.setup, view);
        let idle = state.idle.take();
        let launcher = self.launcher(idle, state.setup, &layout);
        let launcher = launcher.map_err(|error| start_refusal(&error, &layout))?;
        if state.setup.bare {
            places::sweep(&self.ground.home);
        }
        let (level, setup) = (state.found.level, state.setup);
        let (spares, nursery) = (Spares::default(), Nursery::new(self.bounds));
        let names = AtomicU32::new(0);
        let base = Arc::new(Base { level, setup, spares, nursery, launcher, layout, names });
        state.bases.insert(view.clone(), Arc::clone(&base));
        Ok(base)
    }

    fn layout(&self, setup: Setup, view: &View) -> Layout {
        if setup.bare {
            return Layout::bare(view);
        }
        let layout = Layout::new(view);
        #[cfg(feature = "holes")]
        let layout = if self.host_visible { layout.with_host() } else { layout };
        layout
    }

    /// A launcher that builds the tree. It need not be ready yet.
    fn launcher(
        &self,
        idle: Option<Idle>,
        setup: Setup,
        layout: &Layout,
    ) -> Result<Launcher, StartError> {
        let (mut dirs, mut name) = (Vec::new(), CString::default());
        if let Some(cgroups) = &self.ground.cgroups {
            let failed = |error| StartError::Spawn(io::Error::other(error));
            dirs = cgroups.keep_alive_fds().map_err(failed)?;
            name = CString::new(cgroups.name().map_err(failed)?).unwrap_or_default();
        }
        let kept = launcher::Kept {
            cgroups: dirs.iter().map(AsFd::as_fd).collect(),
            cgroup_name: &name,
            others: self.ground.ids.iter().map(IdPool::lock).collect(),
        };
        let idle = match idle {
            Some(idle) => idle,
            None => Idle::execute().map_err(StartError::Spawn)?,
        };
        idle.set_up(setup, layout, &kept)
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        self.keeper.close();
    }
}

impl State {
    fn forget(&mut self, base: &Arc<Base>) {
        self.bases.retain(|_, known| !Arc::ptr_eq(known, base));
    }

    /// Ends launchers that nobody uses when there are many.
    fn make_room(&mut self) {
        if self.bases.len() >= MOST_BASES {
            self.bases.retain(|_, base| Arc::strong_count(base) > 1);
        }
    }

    /// After a launcher failed to come up: goes down to the level at which the failed step is not
    /// needed, if there is one and it is accepted. Until that is sure, nothing changes.
    fn lower(&mut self, base: &Base, error: &StartError, minimum: Level) -> Result<(), Refusal> {
        if self.setup != base.setup {
            // Another job found that out first.
            return Ok(());
        }
        let refused = || start_refusal(error, &base.layout);
        let StartError::Step(failed) = error else { return Err(refused()) };
        let (setup, found) = self.below(*failed).ok_or_else(refused)?;
        found.check(minimum)?;
        (self.setup, self.found) = (setup, found);
        Ok(())
    }

    /// How to stand without a step that the host forbids. A step that failed for want of something
    /// else is no reason to do without it.
    fn below(&self, failed: Failed) -> Option<(Setup, Found)> {
        let forbidden =
            [Errno::PERM, Errno::ACCESS, Errno::NOSYS, Errno::INVAL, Errno::NOSPC, Errno::USERS];
        if !forbidden.contains(&Errno::from_raw_os_error(failed.errno)) {
            return None;
        }
        let mut found = self.found.clone();
        match failed.step {
            Step::ProcMount if self.setup.proc => {
                found.without_proc(failed.errno);
                Some((Setup { proc: false, ..self.setup }, found))
            }
            Step::UserNamespace
            | Step::IdMap
            | Step::Namespaces
            | Step::Propagation
            | Step::RootMount
            | Step::Pivot
                if !self.setup.bare =>
            {
                found.without_namespaces(failed);
                Some((Setup { user_namespace: false, proc: false, bare: true }, found))
            }
            _ => None,
        }
    }
}

/// What this process may do by itself. Being root is not enough: a container's root may do neither.
#[derive(Debug, Clone)]
struct Powers {
    /// Make namespaces without a user namespace of its own first.
    administers: bool,
    /// Ids that it can give to runs.
    ids: Option<Range<u32>>,
    /// Its own id is that of the host's root, which no run may have.
    is_host_root: bool,
}

impl Powers {
    fn of_this_process() -> Powers {
        let has = |wanted: CapabilitySet| {
            capabilities(None).is_ok_and(|sets| sets.effective.contains(wanted))
        };
        let ids = CapabilitySet::SETUID | CapabilitySet::SETGID;
        let administers = has(CapabilitySet::SYS_ADMIN);
        let map_of = |kind: &str| fs::read_to_string(format!("/proc/self/{kind}_map"));
        let pools = ["uid", "gid"].map(|kind| map_of(kind).ok().and_then(|map| pool_in(&map)));
        let [pool, of_groups] = pools;
        let pool = pool.filter(|pool| of_groups.as_ref() == Some(pool));
        let is_root = rustix::process::geteuid().is_root();
        let is_host_root = is_root && !map_of("uid").is_ok_and(|map| is_elsewhere(&map));
        Powers { administers, ids: pool.filter(|_| administers && has(ids)), is_host_root }
    }
}

/// Whether root of a user namespace with this map is somebody else outside.
fn is_elsewhere(map: &str) -> bool {
    map.lines().any(|line| {
        let mut words = line.split_whitespace();
        words.next() == Some("0") && words.next().is_some_and(|outer| outer != "0")
    })
}

/// The one id that a run must never have is root's.
fn root_without_ids(found: &Found) -> Refusal {
    Refusal::Layer {
        layer: Layer::UniqueId,
        why: format!("as root each run needs an id of its own, and {}", found.why),
        fix: format!("{}; or run hotcell as an ordinary user", found.fix),
    }
}

/// Ids for runs in a user namespace with this map: the usual ones, or some near the end of a large
/// range, as containers have it.
pub(crate) fn pool_in(map: &str) -> Option<Range<u32>> {
    /// A range that is large enough for users and for runs; and where in it, counted from its end, the
    /// runs' are: before `nobody`.
    const LARGE: u64 = 65_536;
    const FROM_END: u64 = 8_192;
    const COUNT: u64 = 4_096;
    let ranges = map.lines().filter_map(|line| {
        let mut numbers = line.split_whitespace().map(str::parse::<u64>);
        let (first, _outer, count) =
            (numbers.next()?.ok()?, numbers.next()?.ok()?, numbers.next()?.ok()?);
        Some(first..first.saturating_add(count))
    });
    let ranges: Vec<Range<u64>> = ranges.collect();
    let usual = IdPool::USUAL;
    let has = |range: &Range<u64>| {
        range.start <= u64::from(usual.start) && u64::from(usual.end) <= range.end
    };
    if ranges.iter().any(has) {
        return Some(usual);
    }
    let large = ranges.into_iter().find(|range| range.end - range.start >= LARGE)?;
    let first = u32::try_from(large.end - FROM_END).ok()?;
    Some(first..first.checked_add(COUNT as u32)?)
}

impl Found {
    fn everything() -> Found {
        Found { level: Level::Full, why: String::new(), fix: String::new() }
    }

    fn lower(&mut self, level: Level, why: String, fix: String) {
        if level < self.level {
            *self = Found { level, why, fix };
        }
    }

    fn take_ids(&mut self, ids: Range<u32>) -> Option<IdPool> {
        match IdPool::open(Path::new(ID_DIR), ids) {
            Ok(pool) => Some(pool),
            Err(error) => {
                let why = format!("ids cannot be reserved in `{ID_DIR}`: {}", cause(&error));
                self.lower(Level::User, why, format!("make `{ID_DIR}` writable for root"));
                None
            }
        }
    }

    fn without_ids(&mut self) -> Option<IdPool> {
        let why = "only root with all its capabilities and ids can give each run an id of its own";
        let fix = "run hotcell as root, or accept level `user`";
        self.lower(Level::User, why.to_owned(), fix.to_owned());
        None
    }

    fn take_cgroups(&mut self, cgroups: Result<Cgroups, Unavailable>) -> Option<Cgroups> {
        match cgroups {
            Ok(cgroups) => {
                cgroups.sweep();
                Some(cgroups)
            }
            Err(missing) => {
                self.lower(Level::NoCgroup, missing.to_string(), missing.fix());
                None
            }
        }
    }

    fn without_proc(&mut self, errno: i32) {
        let error = io::Error::from_raw_os_error(errno);
        let why = format!("the kernel does not allow a /proc of its own here: {}", cause(&error));
        let fix = "in a container, start it so that /proc is not masked \
                   (`--security-opt systempaths=unconfined`)";
        self.lower(Level::NoProc, why, fix.to_owned());
    }

    fn without_namespaces(&mut self, failed: Failed) {
        let error = io::Error::from_raw_os_error(failed.errno);
        let why = format!("{} is not allowed: {}", steps::doing(failed.step), cause(&error));
        let fix = "`hotcell doctor` names what forbids it and the command that allows it";
        self.lower(Level::LandlockOnly, why, fix.to_owned());
    }

    fn check(&self, minimum: Level) -> Result<(), Refusal> {
        if self.level >= minimum {
            return Ok(());
        }
        let Found { level: given, why, fix } = self.clone();
        let fix = format!(
            "{fix}; or, as the operator, accept it: `min_level = \"{given}\"` in hotcell's config.toml"
        );
        Err(Refusal::Level { given, minimum, why, fix })
    }
}

fn start_refusal(error: &StartError, layout: &Layout) -> Refusal {
    match error {
        StartError::Step(failed) => steps::refusal(*failed, layout),
        StartError::Spawn(error) => Refusal::Layer {
            layer: Layer::Root,
            why: format!("the launcher cannot be executed: {}", cause(error)),
            fix: "run `sudo hotcell doctor` once, which puts the launcher where only root can write; \
                  or allow execution from memory: `sudo sysctl vm.memfd_noexec=1`"
                .to_owned(),
        },
        StartError::Silent(error) => Refusal::Internal {
            doing: format!("starting the launcher: {}", cause(error)),
            source: io::Error::new(error.kind(), "the launcher did not come up"),
        },
    }
}

fn check_pids(limits: &Limits, least: u64) -> Result<(), Refusal> {
    if limits.pids.get() >= least {
        return Ok(());
    }
    Err(Refusal::Invalid {
        what: format!("a limit of {} processes is too low", limits.pids),
        why: format!("{least} are needed: every program has an init of its own besides"),
        fix: format!("give at least {least} with `--pids`"),
    })
}

fn check_open_files(limits: &Limits) -> Result<(), Refusal> {
    /// Standard input, output and error, and the filter's own descriptor before it is sent away.
    const LEAST: u64 = 4;
    if limits.open_files.get() >= LEAST {
        return Ok(());
    }
    Err(Refusal::Invalid {
        what: format!("a limit of {} open files is too low", limits.open_files),
        why: "a run needs three for its input and output, and one more to start".into(),
        fix: "give at least 4 with `--open-files`".into(),
    })
}

pub(crate) fn check_line(job: &Job) -> Result<(), Refusal> {
    let Stdin::Line(line) = &job.stdin else { return Ok(()) };
    if rustix::net::sockopt::socket_domain(line) == Ok(AddressFamily::UNIX) {
        return Ok(());
    }
    Err(Refusal::Invalid {
        what: "the descriptor for its standard input".into(),
        why: "nothing of the host's crosses into a run, and it is no Unix socket".into(),
        fix: "give one end of a pair of Unix sockets".into(),
    })
}

/// Trees that are the kernel's own or change under everybody's hands.
const KERNEL: [&str; 4] = ["/proc", "/sys", "/dev", "/run"];

fn check_shared(path: &Path) -> Result<(), Refusal> {
    if layout::can_be_shared(path) && !KERNEL.iter().any(|top| path.starts_with(top)) {
        return Ok(());
    }
    Err(Refusal::Invalid {
        what: format!("`{}` cannot be shown to a run", path.display()),
        why: "it is relative, not in normal form, or as wide as a root or home directory".into(),
        fix: "name the directory that is needed, by its full path".into(),
    })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn ids_of_runs_exist_in_the_user_namespace() {
        for (map, pool) in [
            ("         0          0 4294967295\n", Some(IdPool::USUAL)),
            ("0 0 1000\n1000 1000 4294966295\n", Some(IdPool::USUAL)),
            ("0 0 18446744073709551615\n", Some(IdPool::USUAL)),
            ("0 100000 65536\n", Some(57_344..61_440)),
            ("0 1000 1\n1 100000 65536\n", Some(57_345..61_441)),
            ("0 1000 1\n", None),
            ("0 0 65535\n", None),
            ("", None),
            ("x y z\n0 0\n", None),
        ] {
            assert_eq!(pool_in(map), pool, "{map:?}");
        }
    }

    #[test]
    fn root_of_a_namespace_is_told_from_the_hosts() {
        assert!(!is_elsewhere("         0          0 4294967295\n"));
        assert!(is_elsewhere("0 1000 1\n1 100000 65536\n"));
        assert!(!is_elsewhere(""));
    }

    /// A launcher that was there before would stay in the cgroup that this process leaves.
    #[test]
    fn nothing_is_started_before_this_process_is_where_it_may_make_cgroups() {
        let is_found = Cell::new(false);
        let find = || {
            is_found.set(true);
            Cgroups::find()
        };
        let execute = || {
            assert!(is_found.get(), "the launcher was executed first");
            Err(io::ErrorKind::Unsupported.into())
        };
        // As root of a container it refuses, after both.
        Site::explore_with(find, execute).ok();
        assert!(is_found.get());
    }

    fn standing(found: Found) -> State {
        let setup = Setup { user_namespace: true, proc: true, bare: false };
        State { setup, found, idle: None, bases: HashMap::new() }
    }

    #[test]
    fn only_what_is_forbidden_lowers_the_level() {
        let state = standing(Found::everything());
        let failed = |step, errno: Errno| Failed { step, errno: errno.raw_os_error(), index: 0 };
        let below = |step, errno| state.below(failed(step, errno)).map(|(_, found)| found.level);
        assert_eq!(below(Step::ProcMount, Errno::PERM), Some(Level::NoProc));
        assert_eq!(below(Step::UserNamespace, Errno::NOSPC), Some(Level::LandlockOnly));
        for errno in [Errno::AGAIN, Errno::NOMEM, Errno::MFILE, Errno::IO, Errno::INTR] {
            assert_eq!(below(Step::UserNamespace, errno), None, "{errno}");
        }
        assert_eq!(below(Step::LandlockRuleset, Errno::PERM), None);
    }

    #[test]
    fn a_level_below_the_minimum_is_refused_with_its_reason_and_the_way_out() {
        let mut found = Found::everything();
        assert!(found.check(Level::Full).is_ok());
        found.lower(Level::NoCgroup, "no cgroup".into(), "get one".into());
        found.lower(Level::User, "no ids".into(), "be root".into());
        let Err(Refusal::Level { given, minimum, why, fix }) = found.check(Level::User) else {
            panic!("a level below the minimum was accepted");
        };
        assert_eq!((given, minimum, why.as_str()), (Level::NoCgroup, Level::User, "no cgroup"));
        assert!(fix.contains("get one") && fix.contains("min_level = \"no-cgroup\""), "{fix}");
        assert!(found.check(Level::NoCgroup).is_ok());
    }
}
