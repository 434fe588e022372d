//! Runs the binary in a directory and a home of its own, and never waits without a bound.

use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Longer than anything here takes, even on a busy machine: reaching it is a failure.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// What a run may take beyond its deadline.
pub(crate) const GRACE: Duration = Duration::from_secs(1);

/// Tests about time run without the others beside them.
static MACHINE: RwLock<()> = RwLock::new(());

pub(crate) struct World {
    /// Ends before its home goes.
    resident: Option<Resident>,
    dir: tempfile::TempDir,
    _beside_others: Option<RwLockReadGuard<'static, ()>>,
    _alone: Option<RwLockWriteGuard<'static, ()>>,
}

/// What came of a command.
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    pub(crate) took: Duration,
}

/// A command that is under way. Its output is read all the time.
pub(crate) struct Started {
    pub(crate) child: Child,
    begun: Instant,
    stdout: Option<Reading>,
    stderr: Option<Reading>,
}

/// A pipe that is read all the time.
struct Reading {
    bytes: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

/// A hotcell that serves the home of a test. All tests here run with `HOTCELL_RESIDENT` as well: what comes
/// of a command is the same.
struct Resident(Child);

impl Resident {
    fn wanted() -> bool {
        std::env::var_os("HOTCELL_RESIDENT").is_some()
    }

    fn new(mut command: Command) -> Resident {
        let mut child = command.stderr(Stdio::inherit()).spawn().unwrap();
        assert_eq!(line(child.stdout.as_mut().unwrap()), "ready");
        Resident(child)
    }
}

impl Drop for Resident {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        self.0.wait().unwrap();
    }
}

impl World {
    /// `None`, and a word on the terminal, where there is no sandbox.
    pub(crate) fn new() -> Option<World> {
        let shared = MACHINE.read().unwrap_or_else(PoisonError::into_inner);
        let world = World { _beside_others: Some(shared), ..World::without_sandbox() };
        match sandbox() {
            Ok(_) => Some(world.served()),
            Err(why) => {
                skip(&format!("no sandbox on this host: {why}"));
                None
            }
        }
    }

    fn served(self) -> World {
        let resident = Resident::wanted()
            .then(|| Resident::new(self.command(&["resident", "serve", "--idle", "10m"])));
        World { resident, ..self }
    }

    /// For what is about the process that makes the call itself.
    pub(crate) fn on_its_own(mut self) -> World {
        self.resident = None;
        self
    }

    /// The same without other tests beside it.
    pub(crate) fn alone() -> Option<World> {
        let mut world = World::new()?;
        drop(world._beside_others.take());
        let alone = MACHINE.write().unwrap_or_else(PoisonError::into_inner);
        Some(World { _beside_others: None, _alone: Some(alone), ..world })
    }

    /// Where the host enforces limits on runs as a whole.
    pub(crate) fn with_cgroups() -> Option<World> {
        World::new()?.only_with_cgroups()
    }

    pub(crate) fn only_with_cgroups(self) -> Option<World> {
        match sandbox() {
            Ok(level) if ["full", "user"].contains(&level.as_str()) => Some(self),
            level => {
                skip(&format!("level {level:?} has no cgroups"));
                None
            }
        }
    }

    fn without_sandbox() -> World {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("home")).unwrap();
        fs::create_dir(dir.path().join("here")).unwrap();
        // Whatever the host gives is tested.
        fs::write(dir.path().join("home/config.toml"), "min_level = \"no-proc\"\n").unwrap();
        World { resident: None, dir, _beside_others: None, _alone: None }
    }

    /// A path below the current directory of the binary.
    pub(crate) fn at(&self, name: impl AsRef<Path>) -> PathBuf {
        self.dir.path().join("here").join(name)
    }

    pub(crate) fn file(&self, name: impl AsRef<Path>, content: &[u8]) -> PathBuf {
        let path = self.at(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.dir.path().join("home")
    }

    pub(crate) fn command<S: AsRef<OsStr>>(&self, words: &[S]) -> Command {
        let mut command = Command::new(binary());
        command.args(words);
        self.dress(command)
    }

    /// `script` in a shell outside, with the binary as `$0`.
    pub(crate) fn shell(&self, script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]).arg(binary());
        self.dress(command)
    }

    fn dress(&self, mut command: Command) -> Command {
        command.current_dir(self.at("")).env_clear().env("HOTCELL_HOME", self.home());
        for name in ["PATH", "HOME"] {
            command.envs(std::env::var_os(name).map(|value| (name, value)));
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub(crate) fn run<S: AsRef<OsStr>>(&self, words: &[S]) -> Ran {
        Started::new(self.command(words)).finish(LONG)
    }

    /// The words, then code in a language.
    pub(crate) fn code(&self, words: &[&str], lang: &str, code: &str) -> Ran {
        self.run(&[&["run"], words, &["--lang", lang, "-c", code]].concat())
    }

    /// The document of a run.
    pub(crate) fn json(&self, words: &[&str], lang: &str, code: &str) -> Value {
        self.code(&[&["--json"], words].concat(), lang, code).json()
    }
}

impl fmt::Debug for Ran {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "exit {} after {:?}: {:.2000?} {:.2000?}",
            self.code,
            self.took,
            self.text(),
            self.errors()
        )
    }
}

impl Ran {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    pub(crate) fn errors(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        assert!(self.stderr.is_empty(), "{}", self.errors());
        serde_json::from_slice(&self.stdout).expect("stdout is one document")
    }

    /// The exit status, and everything that was printed.
    #[track_caller]
    pub(crate) fn is(&self, code: i32, stdout: &str, stderr: &str) {
        assert_eq!((self.code, &*self.text(), &*self.errors()), (code, stdout, stderr));
    }
}

impl Started {
    pub(crate) fn new(mut command: Command) -> Started {
        let begun = Instant::now();
        let mut child = command.spawn().unwrap();
        let stdout = child.stdout.take().map(Reading::new);
        let stderr = child.stderr.take().map(Reading::new);
        Started { child, begun, stdout, stderr }
    }

    /// With stdout left to the caller.
    pub(crate) fn with_stdout(mut command: Command) -> (Started, std::process::ChildStdout) {
        let begun = Instant::now();
        let mut child = command.spawn().unwrap();
        let stdout = child.stdout.take().unwrap();
        let stderr = child.stderr.take().map(Reading::new);
        (Started { child, begun, stdout: None, stderr }, stdout)
    }

    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(self.pid()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Waits until it has said something on stderr.
    #[track_caller]
    pub(crate) fn has_said(&self, text: &str) {
        let said = || self.stderr.as_ref().is_some_and(|pipe| pipe.has(text)).then_some(());
        assert!(until(LONG, said).is_some(), "it did not say {text:?} within {LONG:?}");
    }

    /// Waits for its end; one that takes longer than `most` is killed and a failure.
    #[track_caller]
    pub(crate) fn finish(mut self, most: Duration) -> Ran {
        let ended = until(most, || self.child.try_wait().unwrap());
        let took = self.begun.elapsed();
        let Some(status) = ended else {
            self.child.kill().unwrap();
            self.child.wait().unwrap();
            let text = |pipe| String::from_utf8_lossy(&rest(pipe)).into_owned();
            let (out, err) = (text(self.stdout.take()), text(self.stderr.take()));
            panic!("it did not end within {most:?}: {:.1000}\n{:.1000}", out, err);
        };
        let code = status.code().unwrap_or_else(|| -status.signal().unwrap());
        Ran { code, stdout: rest(self.stdout), stderr: rest(self.stderr), took }
    }
}

impl Reading {
    fn new(mut pipe: impl Read + Send + 'static) -> Reading {
        let bytes = Arc::<Mutex<Vec<u8>>>::default();
        let seen = Arc::clone(&bytes);
        let reader = thread::spawn(move || {
            let mut part = [0; 64 * 1024];
            loop {
                match pipe.read(&mut part).unwrap() {
                    0 => return,
                    size => seen.lock().unwrap().extend_from_slice(&part[..size]),
                }
            }
        });
        Reading { bytes, reader }
    }

    fn has(&self, text: &str) -> bool {
        String::from_utf8_lossy(&self.bytes.lock().unwrap()).contains(text)
    }
}

/// Everything that came, when nothing comes any more.
fn rest(pipe: Option<Reading>) -> Vec<u8> {
    pipe.map_or_else(Vec::new, |pipe| {
        pipe.reader.join().unwrap();
        std::mem::take(&mut *pipe.bytes.lock().unwrap())
    })
}

/// Looks until there is something to see, for at most `most`.
pub(crate) fn until<T>(most: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + most;
    loop {
        let late = Instant::now() >= deadline;
        match look() {
            Some(seen) => return Some(seen),
            None if late => return None,
            None => thread::sleep(Duration::from_millis(2)),
        }
    }
}

/// Reads one line; the bound is the harness's patience with everything else: nothing else can wait here.
pub(crate) fn line(pipe: &mut impl Read) -> String {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while pipe.read(&mut byte).unwrap() == 1 && byte != [b'\n'] {
        bytes.push(byte[0]);
    }
    String::from_utf8(bytes).unwrap()
}

/// `HOTCELL_BIN`, such as the release build, or the one that cargo has just made.
fn binary() -> PathBuf {
    std::env::var_os("HOTCELL_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_hotcell").into()).into()
}

/// Whether times of the binary mean anything: without optimisation, hashing 16 MiB takes a second.
pub(crate) fn is_optimised() -> bool {
    std::env::var_os("HOTCELL_BIN").is_some() || !cfg!(debug_assertions)
}

/// The level that this host gives, found out by one run.
fn sandbox() -> &'static Result<String, String> {
    static LEVEL: OnceLock<Result<String, String>> = OnceLock::new();
    LEVEL.get_or_init(|| {
        let ran = World::without_sandbox().run(&["run", "--json", "--", "true"]);
        let report: Value = serde_json::from_slice(&ran.stdout).map_err(|e| e.to_string())?;
        let refused = report["status"] == "refused";
        // Anything but a refusal is for the tests to judge.
        if refused {
            Err(report["error"].to_string())
        } else {
            Ok(report["level"].as_str().unwrap_or_default().into())
        }
    })
}

/// Says on the terminal, whatever the harness captures, that the current test was skipped.
pub(crate) fn skip(why: &str) {
    let name = thread::current().name().unwrap_or_default().to_owned();
    let mut terminal = fs::File::from(std::io::stderr().as_fd().try_clone_to_owned().unwrap());
    terminal.write_all(format!("SKIPPED {name}: {why}\n").as_bytes()).unwrap();
}
