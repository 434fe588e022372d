//! Making one: download, install in a sandbox, take what that made, keep it, name it. Whatever goes wrong,
//! and whenever, nothing of it stays.

use std::fs::{self, DirBuilder};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hotcell_environment::tree::{self, Taken, Unfit};
use hotcell_environment::{Environment, Interpreter, Made, Staging, Store, pip, rows};
use hotcell_record::{Durability, now};
use hotcell_sandbox::lang::{self, Language, WORK_DIR};
use hotcell_sandbox::{Handle, Input, Job, Network, Sink, Stdin, Tree, cause};
use hotcell_types::{Level, Limits, Name as Tenant, Outcome, Span, Status};

use super::{Creation, not_changed};
use crate::attached::Attached;
use crate::engine::Engine;
use crate::hands::Reins;
use crate::path::Done;
use crate::prepare::kept;
use crate::reply::{Problem, ProblemKind};

/// What is given to the sandbox, and what it is called there.
const INSTALL: &str = include_str!("install.py");
const SCRIPT: &str = "install.py";
/// Where it sees the wheels.
const WHEELS: &str = "/wheels";
/// What it makes, and where it works meanwhile, below its working directory.
const TARGET: &str = "env";
const TEMPORARY: &str = "temporary";
/// Most characters of what it said that are told.
const SAID_MOST: usize = 1000;
/// How long taking what it made may go on beyond the call's own time.
const TAKE_MORE: Duration = Duration::from_secs(60);

/// How far it is told to whoever waits for it.
struct Teller<'a, 'b> {
    sink: Option<&'a mut (dyn Sink + 'b)>,
}

impl Teller<'_, '_> {
    fn tell(&mut self, line: &str) {
        if let Some(sink) = &mut self.sink {
            sink.stderr(format!("{line}\n").as_bytes());
        }
    }
}

/// What the sandbox prints is told when it is over, and only if it failed.
struct Unheard;

impl Sink for Unheard {
    fn stdout(&mut self, _: &[u8]) {}
    fn stderr(&mut self, _: &[u8]) {}
}

/// What came of the sandbox.
struct Built {
    outcome: Outcome,
    taken: Option<Result<Taken, Unfit>>,
}

impl Engine {
    pub(super) fn create_environment(
        &self,
        tenant: &Tenant,
        creation: Creation,
        attached: &mut Attached<'_>,
        reins: &Reins,
    ) -> Done {
        let sink = attached.sink.take();
        let mut teller = Teller { sink };
        let minimum = attached.from.as_ref().and_then(|from| from.bounds.minimum);
        let limits = Some(creation.limits);
        let until = Instant::now() + creation.limits.timeout.duration();
        let (started, interrupt) = (attached.started.take(), attached.interrupt);
        let work = Making { engine: self, creation: &creation, reins, interrupt, until };
        let staged = work.download(&mut teller);
        let (staging, interpreter) = match staged {
            Ok(staged) => staged,
            Err(problem) => return work.ended(problem),
        };
        teller.tell("installing in a sandbox");
        let minimum = minimum.unwrap_or(self.settings().minimum);
        let built = match work.install(&staging, minimum, started) {
            Ok(built) => built,
            Err(problem) => return work.ended(problem),
        };
        let Built { outcome, taken } = built;
        let run = |done: Done| Done { run: Some(Box::new(outcome.clone())), limits, ..done };
        let Some(taken) = taken else {
            let status = outcome.status;
            return run(Done { status, ..Done::failed(not_installed(&outcome, &creation.limits)) });
        };
        let named = taken.map_err(|unfit| not_taken(unfit, &creation)).and_then(|taken| {
            teller.tell(&format!("keeping {} files", taken.files));
            self.keep_environment(tenant, &creation, &staging, (taken, interpreter))
        });
        // What is not needed any more goes before anybody is told.
        drop(staging);
        match named {
            Ok(environment) => run(super::answered(Ok(self.tell_environment(&environment)))),
            Err(problem) => run(work.ended(problem)),
        }
    }

    /// On the disk before it has a name, and held until it has one.
    fn keep_environment(
        &self,
        tenant: &Tenant,
        creation: &Creation,
        staging: &Staging,
        (taken, interpreter): (Taken, Interpreter),
    ) -> Result<Environment, Problem> {
        let digest = taken.digest(&interpreter);
        let store = Store::at(self.home());
        let (used, quota) = (self.used()?, self.artifacts.quota());
        let is_there = store.hold(&digest).is_ok_and(|held| held.is_some());
        if !is_there && used.saturating_add(taken.bytes) > quota {
            let why = format!("it has {} bytes, and the home {used} of {quota}", taken.bytes);
            let fix = "make room with `hotcell gc` or `hotcell env rm`, or raise `quota`";
            let what = "there is no room for the environment";
            return Err(Problem::new(what, why, fix).of(ProblemKind::Refused));
        }
        let settled =
            store.settle(&staging.path().join(TARGET), &digest).map_err(|e| not_kept(&e))?;
        let Taken { packages, files, bytes, .. } = taken;
        let environment = Environment {
            name: creation.name.clone(),
            requirements: creation.requirements.iter().map(ToString::to_string).collect(),
            created: now(),
            made: Made { digest, interpreter, packages, files, bytes },
        };
        let (tenant, row, replace) = (tenant.clone(), environment.clone(), creation.replace);
        let named = self.recording()?.write(Durability::Synced, move |tx| {
            Ok((rows::name(tx, &tenant, &row, replace)?, Vec::new()))
        });
        drop(settled);
        match named {
            Ok((replaced, _)) => {
                // What is still used goes with the next `gc`.
                replaced.map(|old| self.remove_tree(&old)).transpose().ok();
                Ok(environment)
            }
            Err(error) => {
                self.remove_tree(&digest).ok();
                Err(not_changed(error))
            }
        }
    }
}

/// One creation under way.
struct Making<'a> {
    engine: &'a Engine,
    creation: &'a Creation,
    reins: &'a Reins,
    interrupt: Option<&'a AtomicBool>,
    until: Instant,
}

impl Making<'_> {
    fn goes_on(&self) -> bool {
        let is_left = self.interrupt.is_some_and(|flag| flag.load(Ordering::Acquire));
        !is_left && !self.reins.rope.is_pulled()
    }

    /// Cancelled is cancelled, whatever failed because of it.
    fn ended(&self, problem: Problem) -> Done {
        if self.goes_on() { Done::failed(problem) } else { Done::cancelled() }
    }

    /// Everything that is needed, in a place of its own.
    fn download(&self, teller: &mut Teller<'_, '_>) -> Result<(Staging, Interpreter), Problem> {
        let Creation { interpreter: command, requirements, limits, .. } = self.creation;
        let path = Path::new(command.args.first().map_or(command.program.as_os_str(), |own| own));
        let facts =
            pip::probe(path).map_err(|failed| not_downloaded(failed, &self.creation.limits))?;
        if !facts.has_pip && !requirements.is_empty() {
            let what = format!("`{}` has no pip", path.display());
            let fix = "install it: `apt install python3-pip`, or `python3 -m ensurepip`";
            let problem = Problem::new(what, "packages are downloaded and installed by it", fix);
            return Err(problem.of(ProblemKind::NotFound));
        }
        let interpreter = described(path, &command.program, facts)?;
        let staging = Store::at(self.engine.home()).stage().map_err(|error| not_kept(&error))?;
        let (wheels, temporary) = (staging.path().join("wheels"), staging.path().join(TEMPORARY));
        for directory in [&wheels, &temporary] {
            let made = DirBuilder::new().mode(0o755).create(directory);
            made.map_err(|error| not_kept(&error))?;
        }
        let download = pip::Download {
            interpreter: path,
            requirements,
            to: &wheels,
            temporary: &temporary,
            most_bytes: limits.disk.get(),
            until: self.until,
        };
        let done = pip::download(&download, &mut |line| teller.tell(line), &|| self.goes_on());
        done.map_err(|failed| not_downloaded(failed, limits))?;
        fs::remove_dir_all(&temporary).map_err(|error| not_kept(&error))?;
        Ok((staging, interpreter))
    }

    fn install(
        &self,
        staging: &Staging,
        minimum: Level,
        started: Option<Box<dyn FnOnce(Handle) + '_>>,
    ) -> Result<Built, Problem> {
        let (job, left) = (self.job(staging)?, self.left());
        let running = self.engine.sandbox()?.start_at(minimum, job)?;
        if let Some(started) = started {
            started(running.handle());
        }
        self.reins.take(&running.handle());
        let target = staging.path().join(TARGET);
        let bounds = tree::Bounds {
            entries: self.creation.limits.files.get(),
            bytes: self.creation.limits.disk.get(),
            until: Instant::now() + left.duration() + TAKE_MORE,
        };
        let take = |work: BorrowedFd<'_>| {
            let work = work.try_clone_to_owned()?;
            tree::take(work, TARGET, &target, bounds, &|| self.goes_on())
        };
        let (outcome, taken) = running.wait_and_take(&mut Unheard, take)?;
        Ok(Built { outcome, taken })
    }

    /// What is left of the call's time, and not nothing.
    fn left(&self) -> Span {
        let left = self.until.saturating_duration_since(Instant::now());
        Span::millis(u32::try_from(left.as_millis()).unwrap_or(u32::MAX).max(1))
    }

    fn job(&self, staging: &Staging) -> Result<Job, Problem> {
        let Creation { interpreter, limits, profile, .. } = self.creation;
        let mut command = interpreter.clone();
        let at = |name: &str| Path::new(WORK_DIR).join(name).into_os_string();
        command.args.push("-u".into());
        command.args.extend([at(SCRIPT), WHEELS.into(), at(TARGET), at(TEMPORARY)]);
        command.args.push(pip::REQUIREMENTS.into());
        let wheels = staging.path().join("wheels");
        let held = fs::File::open(&wheels).map_err(|error| not_kept(&error))?;
        let tree = Tree::new(wheels, &held, WHEELS).map_err(|error| not_kept(&error))?;
        command.tree = Some(tree);
        let mut env = lang::runtime_env(limits);
        env.insert("PATH".into(), lang::search_path(&command));
        // The same packages are to be the same files.
        env.insert("PYTHONHASHSEED".into(), "0".into());
        let input = Input { name: SCRIPT.into(), file: kept(INSTALL.as_bytes())? };
        Ok(Job {
            command,
            env,
            stdin: Stdin::Empty,
            inputs: vec![input],
            working_copy: None,
            limits: Limits { timeout: self.left(), ..*limits },
            profile: *profile,
            network: Network::None,
        })
    }
}

fn described(path: &Path, program: &Path, facts: pip::Facts) -> Result<Interpreter, Problem> {
    let text = |path: &Path| {
        path.to_str().map(str::to_owned).ok_or_else(|| {
            let what = format!("`{}` cannot be used for an environment", path.display());
            let problem = Problem::new(what, "its path is not text", "use another interpreter");
            problem.of(ProblemKind::NotRunnable)
        })
    };
    let found = program.metadata().map_err(|error| not_kept(&error))?;
    let modified = found.mtime().saturating_mul(1_000_000_000).saturating_add(found.mtime_nsec());
    Ok(Interpreter {
        language: Language::Python.name().into(),
        path: text(path)?,
        program: text(program)?,
        size: found.len(),
        modified,
        version: facts.version,
        platform: facts.platform,
    })
}

fn not_downloaded(failed: pip::Failed, limits: &Limits) -> Problem {
    let what = "the packages cannot be downloaded";
    let (kind, fix) = match &failed {
        pip::Failed::Refused(_) => (
            ProblemKind::Failed,
            "check names and versions; a package must have a wheel for this interpreter and platform, \
             since nothing of one is executed outside a sandbox"
                .to_owned(),
        ),
        pip::Failed::TooMuch(_) => {
            (ProblemKind::Failed, format!("ask for less, or for more than {} of disk", limits.disk))
        }
        pip::Failed::Late => {
            (ProblemKind::Failed, format!("ask for more time than {}", limits.timeout))
        }
        pip::Failed::Cancelled => (ProblemKind::Failed, "ask again".into()),
        pip::Failed::Interpreter { .. } => {
            (ProblemKind::NotRunnable, "put another Python first on PATH".into())
        }
        pip::Failed::Io(_) => {
            (ProblemKind::Error, "see that hotcell's home can be written and has room".into())
        }
    };
    Problem::new(what, failed.to_string(), fix).of(kind)
}

fn not_installed(outcome: &Outcome, limits: &Limits) -> Problem {
    if outcome.level == Level::LandlockOnly && outcome.status == Status::Failure {
        // pip changes modes, and looks at files of the host that are there and that it must not read.
        let what = "an environment cannot be made at level `landlock-only`";
        let why = "pip needs a root of its own";
        let fix = "`hotcell doctor` says how this host gives a higher level";
        return Problem::new(what, why, fix).of(ProblemKind::Refused);
    }
    let harmless = |c: char| if c.is_control() { ' ' } else { c };
    let said = String::from_utf8_lossy(&outcome.stderr.bytes);
    let said: String = said.trim().chars().map(harmless).collect();
    let cut = said.chars().count().saturating_sub(SAID_MOST);
    let said: String = said.chars().skip(cut).collect();
    let room = format!(
        "give the sandbox more room: it had {} of memory and {} of disk for {} files, all of them in memory",
        limits.memory, limits.disk, limits.files
    );
    let (why, fix) = match outcome.status {
        // pip has cleared away what did not fit by now; only its words are left of it.
        Status::Failure if !outcome.limits_hit.is_empty() || said.contains("No space left") => {
            (said, room)
        }
        Status::Failure => (said, "try another version of what it names".into()),
        Status::Timeout => ("there was no time for it".into(), "ask for more time".into()),
        other => (format!("the sandbox ended with the status `{}`", other.name()), room),
    };
    Problem::new("the packages cannot be installed", why, fix).of(ProblemKind::Failed)
}

fn not_taken(unfit: Unfit, creation: &Creation) -> Problem {
    let what = "what was installed cannot be kept";
    let (kind, fix) = match &unfit {
        Unfit::Content { .. } => (
            ProblemKind::Failed,
            "leave out the package that has it: an environment has plain files and directories only",
        ),
        Unfit::TooMuch(_) => (ProblemKind::Failed, "ask for less, or for more `disk` and `files`"),
        Unfit::Cancelled => (ProblemKind::Failed, "ask again"),
        Unfit::Io(_) => (ProblemKind::Error, "see that hotcell's home can be written and has room"),
    };
    let why = match &unfit {
        Unfit::TooMuch(_) => {
            let Limits { disk, files, .. } = creation.limits;
            format!("{unfit} ({disk} in {files} files at most)")
        }
        Unfit::Io(error) => cause(error),
        other => other.to_string(),
    };
    Problem::new(what, why, fix).of(kind)
}

fn not_kept(error: &std::io::Error) -> Problem {
    let fix = "see that hotcell's home can be written and has room";
    Problem::new("the environment cannot be kept", cause(error), fix)
}
