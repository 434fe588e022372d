//! The native backend: finds what the host gives, and starts jobs.

use std::collections::HashMap;
use std::ffi::CString;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use std::{fs, io};

use hotcell_jail::wire::{Failed, Setup, Step};
use hotcell_types::{Layer, Level};
use rustix::thread::{CapabilitySet, capabilities};

use crate::cell::Spares;
use crate::cgroup::Cgroups;
use crate::ids::IdPool;
use crate::launcher::{Idle, Kept, Launcher, StartError};
use crate::layout::{self, Layout};
use crate::running::Running;
use crate::{Job, Refusal, Settings, places, start, steps};

/// Where the ids of runs are kept apart. Only root gives runs ids of their own.
const ID_DIR: &str = "/run/hotcell";

/// Most launchers that one job tries: there are that many levels to go down.
const MOST_TRIES: u32 = 5;

/// What this process keeps to run jobs: launchers, the cgroup, the id pool.
#[derive(Debug)]
pub struct Sandbox {
    minimum: Level,
    home: PathBuf,
    cgroups: Option<Cgroups>,
    ids: Option<IdPool>,
    state: Mutex<State>,
    #[cfg(feature = "holes")]
    host_visible: bool,
}

/// What is found out, or made, when it is first needed.
#[derive(Debug)]
struct State {
    setup: Setup,
    found: Found,
    /// A launcher without a tree yet.
    idle: Option<Idle>,
    /// One launcher for each set of paths that runs can see.
    bases: HashMap<Vec<PathBuf>, Arc<Base>>,
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
    /// Ends before its launcher.
    pub(crate) spares: Spares,
    pub(crate) launcher: Launcher,
    pub(crate) layout: Layout,
}

/// What a run takes from the sandbox that it runs in.
#[derive(Debug)]
pub(crate) struct Parts<'a> {
    pub(crate) level: Level,
    /// Without namespaces.
    pub(crate) bare: bool,
    pub(crate) home: &'a Path,
    pub(crate) cgroups: Option<&'a Cgroups>,
    pub(crate) ids: Option<&'a IdPool>,
    pub(crate) base: Arc<Base>,
    pub(crate) begun: Instant,
}

impl Sandbox {
    /// Finds what this host gives; fails closed below `settings.minimum`. What needs the launcher is
    /// found out with the first job, in the same way.
    pub fn open(settings: &Settings) -> Result<Sandbox, Refusal> {
        // It comes up while the rest is found out.
        let idle = Idle::execute().ok();
        let powers = Powers::of_this_process();
        let mut found = Found::everything();
        let ids = if powers.gives_ids { found.take_ids() } else { found.without_ids() };
        let cgroups = found.take_cgroups();
        found.check(settings.minimum)?;
        let setup = Setup { user_namespace: !powers.administers, proc: true, bare: false };
        let state = State { setup, found, idle, bases: HashMap::new() };
        Ok(Sandbox {
            minimum: settings.minimum,
            home: settings.home.clone(),
            cgroups,
            ids,
            state: Mutex::new(state),
            #[cfg(feature = "holes")]
            host_visible: false,
        })
    }

    /// A sandbox whose runs have the host's tree at `/host`, writable as far as their id goes.
    #[cfg(feature = "holes")]
    pub fn open_with_host(settings: &Settings) -> Result<Sandbox, Refusal> {
        Ok(Sandbox { host_visible: true, ..Sandbox::open(settings)? })
    }

    /// The level as far as it is known: the first job may find that the host gives less.
    pub fn level(&self) -> Level {
        self.state().found.level
    }

    /// Builds the jail, reads back every layer, and lets the program go.
    pub fn start(&self, job: Job) -> Result<Running, Refusal> {
        let begun = Instant::now();
        #[cfg(feature = "holes")]
        let job = if self.host_visible { job.seeing_the_host() } else { job };
        for path in &job.command.read_only {
            check_shared(path)?;
        }
        let mut tries = 0;
        loop {
            tries += 1;
            let (base, level) = self.base(&job.command.read_only)?;
            let parts = Parts {
                level,
                bare: level == Level::LandlockOnly,
                home: &self.home,
                cgroups: self.cgroups.as_ref(),
                ids: self.ids.as_ref(),
                base: Arc::clone(&base),
                begun,
            };
            match start::give(&parts, &job) {
                Ok(given) => return start::run(&parts, job, given),
                // Nothing of the job has run: where the launcher is to blame, another may do better.
                Err(refusal) => self.replace(&base, tries, refusal)?,
            }
        }
    }

    /// After a failed start: makes way for another launcher where that helps, or gives the reason why
    /// not.
    fn replace(&self, base: &Arc<Base>, tries: u32, refusal: Refusal) -> Result<(), Refusal> {
        let mut state = self.state();
        match base.launcher.ready() {
            Ok(_) if base.launcher.is_gone() && tries <= 1 => state.forget(base),
            Ok(_) => return Err(refusal),
            // The host gives less than it seemed to: once more at a lower level, if that is accepted.
            Err(StartError::Step(failed)) if state.lower(*failed) => {
                state.found.check(self.minimum)?;
                state.forget(base);
            }
            // Another job found that out first.
            Err(StartError::Step(_)) if state.forgot(base) && tries <= MOST_TRIES => {}
            Err(error) => {
                state.forget(base);
                return Err(start_refusal(error, &base.layout));
            }
        }
        if state.setup.bare {
            places::sweep(&self.home);
        }
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The launcher for runs that see these paths, and the level that it gives.
    fn base(&self, read_only: &[PathBuf]) -> Result<(Arc<Base>, Level), Refusal> {
        let mut state = self.state();
        if let Some(base) = state.bases.get(read_only) {
            return Ok((Arc::clone(base), state.found.level));
        }
        let layout = self.layout(state.setup, read_only);
        let idle = state.idle.take();
        let launcher = self.launcher(idle, state.setup, &layout);
        let launcher = launcher.map_err(|error| start_refusal(&error, &layout))?;
        let base = Arc::new(Base { spares: Spares::default(), launcher, layout });
        state.bases.insert(read_only.to_vec(), Arc::clone(&base));
        Ok((base, state.found.level))
    }

    fn layout(&self, setup: Setup, read_only: &[PathBuf]) -> Layout {
        if setup.bare {
            return Layout::bare(read_only);
        }
        let layout = Layout::new(read_only);
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
        if let Some(cgroups) = &self.cgroups {
            let failed = |error| StartError::Spawn(io::Error::other(error));
            dirs = cgroups.keep_alive_fds().map_err(failed)?;
            name = CString::new(cgroups.name().map_err(failed)?).unwrap_or_default();
        }
        let kept = Kept {
            cgroups: dirs.iter().map(AsFd::as_fd).collect(),
            cgroup_name: &name,
            others: self.ids.iter().map(IdPool::lock).collect(),
        };
        let idle = match idle {
            Some(idle) => idle,
            None => Idle::execute().map_err(StartError::Spawn)?,
        };
        idle.set_up(setup, layout, &kept)
    }
}

impl State {
    fn forget(&mut self, base: &Arc<Base>) {
        self.bases.retain(|_, known| !Arc::ptr_eq(known, base));
    }

    fn forgot(&self, base: &Arc<Base>) -> bool {
        !self.bases.values().any(|known| Arc::ptr_eq(known, base))
    }

    /// Goes down to the level at which a failed step is not needed. `false` when there is none.
    fn lower(&mut self, failed: Failed) -> bool {
        match failed.step {
            Step::ProcMount if self.setup.proc => {
                self.found.without_proc(failed.errno);
                self.setup.proc = false;
                true
            }
            Step::UserNamespace
            | Step::IdMap
            | Step::Namespaces
            | Step::Propagation
            | Step::RootMount
            | Step::Pivot
                if !self.setup.bare =>
            {
                self.found.without_namespaces(failed);
                self.setup = Setup { user_namespace: false, proc: false, bare: true };
                true
            }
            _ => false,
        }
    }
}

/// What this process may do by itself. Being root is not enough: a container's root may do neither.
#[derive(Debug, Clone, Copy)]
struct Powers {
    /// Make namespaces without a user namespace of its own first.
    administers: bool,
    /// Give runs ids that are not its own.
    gives_ids: bool,
}

impl Powers {
    fn of_this_process() -> Powers {
        let has = |wanted: CapabilitySet| {
            capabilities(None).is_ok_and(|sets| sets.effective.contains(wanted))
        };
        let ids = CapabilitySet::SETUID | CapabilitySet::SETGID;
        let administers = has(CapabilitySet::SYS_ADMIN);
        let maps = ["/proc/self/uid_map", "/proc/self/gid_map"];
        let has_ids = maps.into_iter().all(|map| fs::read_to_string(map).is_ok_and(has_pool));
        Powers { administers, gives_ids: administers && has(ids) && has_ids }
    }
}

/// Whether the ids of the pool exist in a user namespace with this map.
fn has_pool(map: String) -> bool {
    map.lines().any(|line| {
        let mut numbers = line.split_whitespace().map(str::parse::<u64>);
        let (Some(Ok(first)), _, Some(Ok(count))) =
            (numbers.next(), numbers.next(), numbers.next())
        else {
            return false;
        };
        let pool = IdPool::range();
        first <= u64::from(pool.start) && u64::from(pool.end) <= first.saturating_add(count)
    })
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

    fn take_ids(&mut self) -> Option<IdPool> {
        match IdPool::open(Path::new(ID_DIR)) {
            Ok(pool) => Some(pool),
            Err(error) => {
                let why = format!("ids cannot be reserved in `{ID_DIR}`: {error}");
                self.lower(Level::User, why, format!("make `{ID_DIR}` writable for root"));
                None
            }
        }
    }

    fn without_ids(&mut self) -> Option<IdPool> {
        let why = "only root can give each run an id of its own".to_owned();
        self.lower(Level::User, why, "run hotcell as root, or accept level `user`".to_owned());
        None
    }

    fn take_cgroups(&mut self) -> Option<Cgroups> {
        match Cgroups::find() {
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
        let why = format!("the kernel does not allow a /proc of its own here: {error}");
        let fix = "in a container, start it so that /proc is not masked \
                   (`--security-opt systempaths=unconfined`)";
        self.lower(Level::NoProc, why, fix.to_owned());
    }

    fn without_namespaces(&mut self, failed: Failed) {
        let error = io::Error::from_raw_os_error(failed.errno);
        let why = format!("{} is not allowed: {error}", steps::doing(failed.step));
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
            why: format!("the launcher cannot be executed: {error}"),
            fix: "allow execution from memory: `sysctl vm.memfd_noexec=0`".to_owned(),
        },
        StartError::Silent(error) => Refusal::Internal {
            doing: format!("starting the launcher: {error}"),
            source: io::Error::new(error.kind(), "the launcher did not come up"),
        },
    }
}

fn check_shared(path: &Path) -> Result<(), Refusal> {
    if layout::can_be_shared(path) {
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
    use super::*;

    #[test]
    fn the_pool_is_used_only_where_its_ids_exist() {
        for (map, has) in [
            ("         0          0 4294967295\n", true),
            ("0 100000 65536\n", false),
            ("0 1000 1\n1 100000 65536\n", false),
            ("0 0 1000\n1000 1000 4294966295\n", true),
            ("0 0 18446744073709551615\n", true),
            ("", false),
            ("x y z\n0 0\n", false),
        ] {
            assert_eq!(has_pool(map.to_owned()), has, "{map:?}");
        }
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
