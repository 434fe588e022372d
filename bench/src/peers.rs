//! Who is compared: bare execution, bubblewrap with the same tree, docker, and hotcell as a library and
//! as a command. All run the same file with the same arguments and environment.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use hotcell_sandbox::lang::{self, Host, Language};
use hotcell_sandbox::{Job, Network, Sandbox, Settings, Sink, Stdin};
use hotcell_types::{Level, Status, Template};

use crate::docker::Docker;
use crate::path;
use crate::rounds::Contestant;
use crate::scratch::Scratch;

pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

pub(crate) const BARE: &str = "bare";
pub(crate) const BWRAP: &str = "bubblewrap";
pub(crate) const HOTCELL: &str = "hotcell";
pub(crate) const HOTCELL_UNLIKE: &str = "hotcell, unlike the job before";
pub(crate) const DOCKER: &str = "docker run";
pub(crate) const WITHOUT_PATH: &str = "without the path";
pub(crate) const ONLY_STARTS: &str = "`hotcell config show`";

const DEVICES: [&str; 5] = ["/dev/full", "/dev/null", "/dev/random", "/dev/urandom", "/dev/zero"];

const LINKS: [(&str, &str); 5] = [
    ("/proc/self/fd", "/dev/fd"),
    ("/proc/self/fd/0", "/dev/stdin"),
    ("/proc/self/fd/1", "/dev/stdout"),
    ("/proc/self/fd/2", "/dev/stderr"),
    ("/tmp", "/var/tmp"),
];

/// Where a file is that is given to a run.
const INPUT: &str = "/work/main.py";

/// What is run, with everything that differs from host to host already found.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    /// For people: `python3 -I -S -c 'print(1)'`.
    pub(crate) name: String,
    pub(crate) language: Option<Language>,
    command: hotcell_sandbox::Command,
    env: BTreeMap<OsString, OsString>,
    /// What it prints; `None` when it prints nothing and gets nowhere to print to.
    prints: Option<&'static str>,
    /// For `hotcell run`.
    words: Vec<OsString>,
}

impl Program {
    /// `/bin/true`.
    pub(crate) fn nothing() -> Program {
        let program = real("/bin/true");
        let words = vec!["--".into(), program.clone().into()];
        Program::of(program, &[], vec![], None, words, "/bin/true".into(), None)
    }

    /// The shortest program that prints something, by the real interpreter behind all shims; `None`
    /// when there is none.
    pub(crate) fn hello(language: Language, flags: &[&str]) -> Option<Program> {
        let (called, end, code) = match language {
            Language::Python => ("python3", "-c", "print(1)"),
            Language::JavaScript => ("node", "-e", "console.log(1)"),
            Language::Shell => ("sh", "-c", "echo 1"),
        };
        let found = lang::command(&Host::of_this_process(), called.as_ref(), &[]).ok()?;
        let args: Vec<&str> = flags.iter().copied().chain([end, code]).collect();
        let words = ["--lang", language.name(), "-c", code].map(Into::into).into();
        let shown = args.split_last().map(|(_, rest)| rest.join(" ")).unwrap_or_default();
        let name = format!("{called} {shown} '{code}'");
        let language = Some(language);
        Some(Program::of(found.program, &args, found.read_only, Some("1\n"), words, name, language))
    }

    fn of(
        program: PathBuf,
        args: &[&str],
        read_only: Vec<PathBuf>,
        prints: Option<&'static str>,
        words: Vec<OsString>,
        name: String,
        language: Option<Language>,
    ) -> Program {
        // The same first word for everybody: an interpreter finds its library by it.
        let own = OsString::from(&program);
        let args = [own].into_iter().chain(args.iter().map(OsString::from)).collect();
        let (tree, note, forks) = (None, None, false);
        let command = hotcell_sandbox::Command { program, args, read_only, tree, note, forks };
        let mut env = lang::runtime_env(&Template::DEFAULT.limits);
        env.insert("PATH".into(), lang::search_path(&command));
        Program { name, language, command, env, prints, words }
    }

    /// Version of the interpreter, as it says itself.
    pub(crate) fn version(&self) -> Option<String> {
        let output = Command::new(&self.command.program).arg("--version").output().ok()?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    fn rest(&self) -> impl Iterator<Item = &OsString> {
        self.command.args.iter().skip(1)
    }
}

fn real(path: &str) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.into())
}

/// Everybody who can take part on this machine.
#[derive(Debug)]
pub(crate) struct Peers {
    pub(crate) sandbox: Sandbox,
    /// For jobs that are never like the one before.
    changing: Sandbox,
    pub(crate) bwrap: Option<String>,
    hotcell: PathBuf,
    scratch: Scratch,
}

impl Peers {
    pub(crate) fn find() -> Result<Peers, Failure> {
        let bwrap = Command::new("bwrap").arg("--version").output().ok();
        let bwrap = bwrap.map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned());
        Ok(Peers {
            sandbox: open_sandbox()?,
            changing: open_sandbox()?,
            bwrap,
            hotcell: build_hotcell()?,
            scratch: Scratch::new()?,
        })
    }

    /// From a running hotcell process.
    pub(crate) fn resident<'a>(&'a self, program: &'a Program) -> Vec<Contestant<'a>> {
        let mut all = self.others(program);
        all.push(contestant(HOTCELL, || {
            resident(&self.sandbox, program, &Template::DEFAULT).map(Some)
        }));
        if program.prints.is_none() {
            // Each job finds a cell that was made for another kind: ending that one and making its
            // own is part of its time.
            let turn = AtomicBool::new(false);
            let tool = Template::BUILT_IN.into_iter().find(|t| t.name == "tool");
            let kinds = (Template::DEFAULT, tool.unwrap_or(Template::DEFAULT));
            all.push(contestant(HOTCELL_UNLIKE, move || {
                let is_other = turn.fetch_xor(true, Ordering::Relaxed);
                let kind = if is_other { &kinds.1 } else { &kinds.0 };
                resident(&self.changing, program, kind).map(Some)
            }));
        }
        all
    }

    /// `hotcell run`, everything included.
    pub(crate) fn commands<'a>(&'a self, program: &'a Program) -> Vec<Contestant<'a>> {
        let mut all = self.others(program);
        all.push(contestant(HOTCELL, || {
            let mut command = Command::new(&self.hotcell);
            command.arg("run").args(&program.words).env("HOTCELL_HOME", self.scratch.home());
            finish(command, program.prints)
        }));
        all
    }

    /// `hotcell run` beside the same without the path and its record, which this program does itself, and
    /// beside a command that does nothing but start.
    pub(crate) fn with_and_without_the_path<'a>(
        &'a self,
        program: &'a Program,
    ) -> Result<Vec<Contestant<'a>>, Failure> {
        let own = std::env::current_exe()?;
        let at_home = |mut command: Command| {
            command.env("HOTCELL_HOME", self.scratch.home());
            command
        };
        Ok(vec![
            contestant(WITHOUT_PATH, move || {
                let mut command = at_home(Command::new(&own));
                command.arg(path::Role::Run.name()).args(&program.words);
                finish(command, program.prints)
            }),
            contestant(HOTCELL, move || {
                let mut command = at_home(Command::new(&self.hotcell));
                command.arg("run").args(&program.words);
                finish(command, program.prints)
            }),
            contestant(ONLY_STARTS, move || {
                let mut command = at_home(Command::new(&self.hotcell));
                command.args(["config", "show"]);
                finish(command, None)
            }),
        ])
    }

    fn others<'a>(&'a self, program: &'a Program) -> Vec<Contestant<'a>> {
        let mut all = vec![contestant(BARE, || {
            let mut command = Command::new(&program.command.program);
            command.args(program.rest()).env_clear().envs(&program.env);
            finish(command, program.prints)
        })];
        if self.bwrap.is_some() {
            let words = bwrap_words(program, None);
            all.push(contestant(BWRAP, move || {
                let mut command = Command::new("bwrap");
                command.args(&words).env_clear().envs(&program.env);
                command.env("PATH", "/usr/local/bin:/usr/bin:/bin");
                finish(command, program.prints)
            }));
        }
        all
    }

    /// `docker run` beside hotcell and bubblewrap.
    pub(crate) fn beside_docker<'a>(&'a self, docker: &'a Docker) -> Vec<Contestant<'a>> {
        let program: &'static Program = Box::leak(Box::new(Program::nothing()));
        let mut all = self.others(program);
        all.push(contestant(HOTCELL, || {
            resident(&self.sandbox, program, &Template::DEFAULT).map(Some)
        }));
        all.push(docker.contestant());
        all
    }
}

pub(crate) fn contestant<'a>(
    name: &'static str,
    run: impl Fn() -> Result<Option<[u64; 5]>, Failure> + Sync + 'a,
) -> Contestant<'a> {
    Contestant { name, run: Box::new(run) }
}

/// Starts a command without a fork of this process (`posix_spawn`), waits, and looks at what it printed.
pub(crate) fn finish(
    mut command: Command,
    prints: Option<&str>,
) -> Result<Option<[u64; 5]>, Failure> {
    command.stdin(Stdio::null());
    let (status, printed) = match prints {
        Some(_) => {
            let output = command.stderr(Stdio::piped()).output()?;
            (output.status, output.stdout)
        }
        None => (command.stdout(Stdio::null()).stderr(Stdio::null()).status()?, Vec::new()),
    };
    if !status.success() || printed != prints.unwrap_or_default().as_bytes() {
        return Err(format!("{command:?} ended with {status}").into());
    }
    Ok(None)
}

pub(crate) struct Silent;

impl Sink for Silent {
    fn stdout(&mut self, _: &[u8]) {}
    fn stderr(&mut self, _: &[u8]) {}
}

pub(crate) fn open_sandbox() -> Result<Sandbox, Failure> {
    let home = std::env::temp_dir().join("hotcell-bench");
    Ok(Sandbox::open(&Settings { minimum: Level::NoProc, home })?)
}

pub(crate) fn job(program: &Program, template: &Template) -> Job {
    Job {
        command: program.command.clone(),
        env: program.env.clone(),
        stdin: Stdin::Empty,
        inputs: Vec::new(),
        working_copy: None,
        limits: template.limits,
        profile: template.profile,
        network: Network::None,
    }
}

/// One job from its start to its outcome; the stages as the library tells them.
fn resident(
    sandbox: &Sandbox,
    program: &Program,
    template: &Template,
) -> Result<[u64; 5], Failure> {
    let outcome = sandbox.start(job(program, template))?.wait(&mut Silent, None)?;
    let printed = outcome.stdout.bytes == program.prints.unwrap_or_default().as_bytes();
    if outcome.status != Status::Success || !printed {
        return Err(format!("{:?}: {:?}", outcome.status, outcome.exit).into());
    }
    let mut stages = [0; 5];
    for (place, timing) in stages.iter_mut().zip(&outcome.timings) {
        *place = timing.micros;
    }
    Ok(stages)
}

/// The program that sleeps while its memory is looked at.
pub(crate) fn sleeping(sandbox: &Sandbox) -> Result<hotcell_sandbox::Running, Failure> {
    let program = real("/bin/sleep");
    let program = Program::of(program, &["60"], vec![], None, vec![], "/bin/sleep".into(), None);
    Ok(sandbox.start(job(&program, &Template::DEFAULT))?)
}

/// A file under bubblewrap, executed by an interpreter.
pub(crate) fn under_bwrap(interpreter: &str, file: &Path) -> Command {
    let words = ["-u", INPUT];
    let program =
        Program::of(real(interpreter), &words, vec![], None, vec![], interpreter.into(), None);
    let mut command = Command::new("bwrap");
    command.args(bwrap_words(&program, Some(file))).env_clear().envs(&program.env);
    command.env("PATH", "/usr/local/bin:/usr/bin:/bin");
    command
}

/// The tree that hotcell builds, as bubblewrap's options, with as many walls as it has. It gets no
/// cgroup, no seccomp filter and no files of its own making in /etc, all of which hotcell's runs have.
fn bwrap_words(program: &Program, input: Option<&Path>) -> Vec<OsString> {
    let mut words: Vec<OsString> =
        ["--unshare-all", "--unshare-user", "--new-session", "--die-with-parent"]
            .map(Into::into)
            .into();
    words.extend(["--uid", "1000", "--gid", "1000", "--cap-drop", "ALL"].map(Into::into));
    words.extend(["--hostname", "hotcell"].map(Into::into));
    let shown = hotcell_sandbox::shown_paths();
    for path in shown.into_iter().chain(program.command.read_only.iter().cloned()) {
        share(&path, &mut words);
    }
    for device in DEVICES {
        words.extend(["--dev-bind", device, device].map(Into::into));
    }
    for (to, at) in LINKS {
        words.extend(["--symlink", to, at].map(Into::into));
    }
    words.extend(["--proc", "/proc"].map(Into::into));
    for place in ["/tmp", "/work", "/dev/shm"] {
        words.extend(["--tmpfs", place].map(Into::into));
    }
    if let Some(input) = input {
        words.extend(["--ro-bind".into(), input.into(), INPUT.into()]);
    }
    words.extend(["--remount-ro", "/", "--chdir", "/work"].map(Into::into));
    words.push(program.command.program.clone().into());
    words.extend(program.rest().cloned());
    words
}

fn share(path: &Path, words: &mut Vec<OsString>) {
    if let Ok(target) = fs::read_link(path) {
        words.extend(["--symlink".into(), target.into(), path.into()]);
    } else if path.exists() {
        words.extend(["--ro-bind".into(), path.into(), path.into()]);
    }
}

/// The command, of the same build as this one.
pub(crate) fn build_hotcell() -> Result<PathBuf, Failure> {
    let beside = std::env::current_exe()?.with_file_name("hotcell");
    if let Some(cargo) = std::env::var_os("CARGO") {
        let built = Command::new(cargo)
            .args(["build", "--release", "--quiet", "--package", "hotcell", "--manifest-path"])
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml"))
            .status()?;
        if !built.success() {
            return Err("building hotcell failed".into());
        }
    }
    match beside.exists() {
        true => Ok(beside),
        false => Err("there is no `hotcell` beside this program: cargo build --release".into()),
    }
}
