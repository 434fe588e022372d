//! The binary, the ordinary user and the places to run it in.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use serde_json::Value;

/// An id that no distribution hands out. It needs no entry in /etc/passwd, so that nothing is left
/// behind. Each test has its own, or one would count the processes of another.
const FIRST_UID: u32 = 62_000;

pub(crate) fn is_root() -> bool {
    let root = fs::metadata("/proc/self").map(|m| std::os::unix::fs::MetadataExt::uid(&m));
    let root = root.is_ok_and(|uid| uid == 0);
    if !root {
        eprintln!("skipped: giving a test another user, cgroups and namespaces takes root");
    }
    root
}

/// The product's binary, where every user can execute it. Gone with the last person who has it.
pub(crate) struct Binary {
    dir: tempfile::TempDir,
}

impl Binary {
    fn shared() -> Arc<Binary> {
        static CURRENT: Mutex<Weak<Binary>> = Mutex::new(Weak::new());
        let mut current = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
        current.upgrade().unwrap_or_else(|| {
            let binary = Arc::new(Binary::copied());
            *current = Arc::downgrade(&binary);
            binary
        })
    }

    fn copied() -> Binary {
        static BUILT: OnceLock<PathBuf> = OnceLock::new();
        let named = || std::env::var_os("HOTCELL_BIN").map(PathBuf::from);
        let built = BUILT.get_or_init(|| named().unwrap_or_else(build));
        let dir = tempfile::Builder::new().prefix("hotcell-levels-").tempdir().unwrap();
        open_to_all(dir.path());
        let binary = Binary { dir };
        fs::copy(built, binary.path()).unwrap();
        open_to_all(&binary.path());
        binary
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("hotcell")
    }
}

fn build() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["build", "--quiet", "--package", "hotcell"])
        .arg("--target-dir")
        .arg(root.join("target"))
        .current_dir(&root)
        .status()
        .unwrap();
    assert!(status.success(), "the binary cannot be built");
    root.join("target/debug/hotcell")
}

pub(crate) fn open_to_all(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Somebody, with a home and a current directory of their own.
pub(crate) struct Person {
    pub(crate) uid: u32,
    binary: Arc<Binary>,
    dir: tempfile::TempDir,
    /// What stands before the program: `unshare …`, `setpriv …`.
    before: Vec<String>,
    env: Vec<(String, String)>,
    /// What the root of a user namespace does first, below which everything then takes place.
    below: Option<String>,
    pub(crate) cgroups: Option<Cgroups>,
}

impl Person {
    pub(crate) fn root() -> Person {
        Person::of(0)
    }

    /// An ordinary user without anything.
    pub(crate) fn ordinary() -> Person {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        // Test binaries may run side by side.
        let offset = std::process::id() % 100 * 20 + NEXT.fetch_add(1, Ordering::Relaxed);
        Person::of(FIRST_UID + offset)
    }

    pub(crate) fn of(uid: u32) -> Person {
        let dir = tempfile::Builder::new().prefix("hotcell-levels-").tempdir().unwrap();
        open_to_all(dir.path());
        for name in ["home", "here"] {
            let path = dir.path().join(name);
            fs::create_dir(&path).unwrap();
            chown(&path, Some(uid), Some(uid)).unwrap();
        }
        let binary = Binary::shared();
        let mut person =
            Person { uid, binary, dir, before: vec![], env: vec![], below: None, cgroups: None };
        person.env("HOTCELL_HOME", person.at("home").to_str().unwrap());
        person.env("HOME", person.at("home").to_str().unwrap());
        if uid != 0 {
            person.before = words(&format!("setpriv --reuid={uid} --regid={uid} --clear-groups"));
        }
        person
    }

    /// An ordinary user with cgroups.
    pub(crate) fn with_cgroups() -> Person {
        let mut person = Person::ordinary();
        let cgroups = Cgroups::of(person.uid);
        person.inside(&cgroups.enter());
        person.cgroups = Some(cgroups);
        person
    }

    /// Accepts a level, as the configuration of this user.
    pub(crate) fn accepting(self, level: &str) -> Person {
        let file = self.at("home/config.toml");
        fs::write(&file, format!("min_level = \"{level}\"\n")).unwrap();
        chown(&file, Some(self.uid), Some(self.uid)).unwrap();
        self
    }

    /// Puts these words before everything else.
    pub(crate) fn inside(&mut self, before: &[String]) {
        self.before.splice(0..0, before.iter().cloned());
    }

    /// Runs a script as root before everything else, in what was put there by `inside` later on.
    pub(crate) fn after(&mut self, script: &str) {
        let script = format!("set -e\n{script}\nexec \"$@\"");
        self.inside(&["sh".into(), "-c".into(), script, "sh".into()]);
    }

    /// Says how to become this person.
    pub(crate) fn becoming(&mut self, line: &str) {
        self.before = words(line);
    }

    pub(crate) fn env(&mut self, key: &str, value: &str) {
        self.env.retain(|(known, _)| known != key);
        self.env.push((key.into(), value.into()));
    }

    pub(crate) fn without_env(&mut self, key: &str) {
        self.env.retain(|(known, _)| known != key);
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn command<S: AsRef<OsStr>>(&self, args: &[S]) -> Command {
        let binary = self.binary.path();
        let mut words: Vec<&OsStr> = self.before.iter().map(OsStr::new).collect();
        words.push(binary.as_os_str());
        words.extend(args.iter().map(AsRef::as_ref));
        let mut command = Command::new(words[0]);
        command
            .args(&words[1..])
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
            .envs(self.env.iter().map(|(key, value)| (key, value)))
            .current_dir(self.at("here"))
            .stdin(Stdio::null());
        command
    }

    /// Puts everything below a user namespace of its own that has all ids, after its root has run
    /// `script`. What is limited there is limited nowhere else.
    pub(crate) fn below_a_user_namespace(&mut self, script: &str) {
        self.below = Some(script.into());
    }

    fn below(&self, script: &str, inner: &Command) -> Said {
        let mut command = Command::new("unshare");
        // Only what is executed once the ids are there is root, with what root may do.
        command.args(["--user", "sh", "-c", "read go; exec \"$@\"", "sh"]);
        command.args(["sh", "-c", &format!("set -e\n{script}\nexec \"$@\""), "sh"]);
        command.arg(inner.get_program()).args(inner.get_args());
        command.env_clear().envs(inner.get_envs().filter_map(|(k, v)| Some((k, v?))));
        command.current_dir(self.at("here"));
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().unwrap();
        let of = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/user")).unwrap();
        let pid = child.id().to_string();
        while of(&pid) == of("self") {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        for map in ["uid_map", "gid_map"] {
            fs::write(format!("/proc/{pid}/{map}"), "0 0 70000").unwrap();
        }
        std::io::Write::write_all(child.stdin.as_mut().unwrap(), b"go\n").unwrap();
        Said::of(child.wait_with_output().unwrap())
    }

    pub(crate) fn hotcell<S: AsRef<OsStr>>(&self, args: &[S]) -> Said {
        let mut command = self.command(args);
        match &self.below {
            Some(script) => self.below(script, &command),
            None => Said::of(command.output().unwrap()),
        }
    }

    pub(crate) fn python(&self, code: &str) -> Said {
        self.hotcell(&["run", "--json", "--lang", "python", "-c", code])
    }
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) exit: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Said {
    fn of(output: Output) -> Said {
        Said {
            exit: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    /// Its level and the layers that are off.
    pub(crate) fn level(&self) -> (String, Vec<String>) {
        let document = self.json();
        let level = document["level"].as_str().unwrap_or_else(|| panic!("no level: {self:?}"));
        (level.into(), off(&document))
    }

    /// What the program itself printed.
    pub(crate) fn program_said(&self) -> String {
        let document = self.json();
        assert_eq!(document["status"], "success", "{self:?}");
        document["stdout"]["text"].as_str().unwrap().trim_end().into()
    }
}

/// The layers that are off in a document.
fn off(document: &Value) -> Vec<String> {
    let layers = document["layers"].as_array().unwrap_or_else(|| panic!("{document}"));
    let off = layers.iter().filter(|layer| layer["active"] == false);
    off.map(|layer| layer["layer"].as_str().unwrap().to_owned()).collect()
}

pub(crate) fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

/// A cgroup in each hierarchy that belongs to one user, as a delegation gives it.
pub(crate) struct Cgroups {
    /// With the directory that processes go into.
    places: Vec<(PathBuf, PathBuf)>,
}

impl Cgroups {
    fn of(uid: u32) -> Cgroups {
        let name = format!("hotcell-levels-{uid}");
        let info = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let places = info.lines().filter_map(|line| {
            let (mount, kind) = line.split_once(" - ")?;
            let point = Path::new(mount.split(' ').nth(4)?);
            let useful = ["memory", "pids", "cpu", "cpuacct", "freezer"];
            let has = |name: &&str| kind.rsplit([',', ' ']).any(|word| word == *name);
            if kind.starts_with("cgroup2 ") {
                Some(v2(point, &name, uid))
            } else if kind.starts_with("cgroup ") && useful.iter().any(has) {
                Some(v1(point, &name, uid))
            } else {
                None
            }
        });
        let cgroups = Cgroups { places: places.collect() };
        assert!(!cgroups.places.is_empty(), "this host has no cgroups");
        cgroups
    }

    /// What hotcell has left there.
    pub(crate) fn left(&self) -> Vec<PathBuf> {
        let below = self.places.iter().flat_map(|(place, _)| below(place));
        below.filter(|dir| self.places.iter().all(|(_, leaf)| leaf != dir)).collect()
    }

    /// Words that put a process there and go on.
    fn enter(&self) -> Vec<String> {
        let script: String = self
            .places
            .iter()
            .map(|(_, p)| format!("echo $$ > {}/cgroup.procs\n", p.display()))
            .collect();
        ["sh", "-c", &format!("set -e\n{script}exec \"$@\""), "sh"].map(str::to_owned).into()
    }
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        for (place, _) in &self.places {
            for dir in below(place).iter().rev().chain([place]) {
                // What is busy stays to be seen.
                drop(fs::remove_dir(dir));
            }
        }
    }
}

/// Directories below this one, parents first.
fn below(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let dirs = entries.map(|entry| entry.path()).filter(|path| path.is_dir());
    dirs.flat_map(|path| [vec![path.clone()], below(&path)].concat()).collect()
}

fn v1(point: &Path, name: &str, uid: u32) -> (PathBuf, PathBuf) {
    let place = point.join(name);
    make_owned(&place, uid);
    (place.clone(), place)
}

/// Processes go into a leaf, so that what is above it can pass its controllers on.
fn v2(point: &Path, name: &str, uid: u32) -> (PathBuf, PathBuf) {
    // Beside v1 there are none to pass on.
    drop(fs::write(point.join("cgroup.subtree_control"), "+memory +pids +cpu"));
    let place = point.join(name);
    make_owned(&place, uid);
    let leaf = place.join("shell");
    make_owned(&leaf, uid);
    (place, leaf)
}

fn make_owned(dir: &Path, uid: u32) {
    fs::create_dir(dir).unwrap();
    chown(dir, Some(uid), Some(uid)).unwrap();
    for entry in fs::read_dir(dir).unwrap() {
        chown(entry.unwrap().path(), Some(uid), Some(uid)).unwrap();
    }
}
