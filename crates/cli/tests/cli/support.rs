//! Runs the binary in a directory and an environment of its own.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

pub(crate) struct World {
    /// Ends before its home goes.
    _resident: Option<Resident>,
    dir: tempfile::TempDir,
    env: Vec<(OsString, OsString)>,
}

/// A hotcell that serves the home of a test.
struct Resident(Child);

impl Drop for Resident {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        self.0.wait().unwrap();
    }
}

impl World {
    /// From here on somebody serves the home, if the tests are run with `HOTCELL_RESIDENT`: what comes of a
    /// command is the same.
    pub(crate) fn served(self) -> World {
        if std::env::var_os("HOTCELL_RESIDENT").is_none() {
            return self;
        }
        let mut serve = self.command(&["resident", "serve", "--idle", "10m"]);
        let mut child = serve.stdout(Stdio::piped()).spawn().unwrap();
        let mut ready = [0; 6];
        child.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
        assert_eq!(&ready, b"ready\n");
        World { _resident: Some(Resident(child)), ..self }
    }

    pub(crate) fn new() -> World {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("home")).unwrap();
        fs::create_dir(dir.path().join("here")).unwrap();
        World { _resident: None, dir, env: vec![] }
    }

    /// A path below the current directory of the binary.
    pub(crate) fn at(&self, name: impl AsRef<Path>) -> PathBuf {
        self.dir.path().join("here").join(name)
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.dir.path().join("home")
    }

    pub(crate) fn file(&self, name: impl AsRef<Path>, content: &[u8]) {
        let path = self.at(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    pub(crate) fn user_config(&self, text: &str) {
        fs::write(self.dir.path().join("home/config.toml"), text).unwrap();
    }

    pub(crate) fn env(&mut self, key: &str, value: impl AsRef<OsStr>) {
        self.env.push((key.into(), value.as_ref().into()));
    }

    pub(crate) fn command<S: AsRef<OsStr>>(&self, words: &[S]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hotcell"));
        command
            .args(words)
            .current_dir(self.at(""))
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOTCELL_HOME", self.dir.path().join("home"))
            .envs(self.env.iter().map(|(k, v)| (k, v)))
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn run<S: AsRef<OsStr>>(&self, words: &[S]) -> Output {
        self.command(words).output().unwrap()
    }

    /// The command line with everything that came of it.
    pub(crate) fn transcript<S: AsRef<OsStr>>(&self, words: &[S]) -> String {
        let output = self.run(words);
        let mut text = String::from("$ hotcell");
        for word in words {
            let word = word.as_ref();
            let plain = word.to_str().is_some_and(|w| !w.is_empty() && !w.contains([' ', '\x1b']));
            text.push_str(&if plain {
                format!(" {}", word.display())
            } else {
                format!(" {word:?}")
            });
        }
        text.push('\n');
        text.push_str(&String::from_utf8_lossy(&output.stdout));
        text.push_str(&String::from_utf8_lossy(&output.stderr));
        text.push_str(&format!("[{}]\n\n", output.status.code().unwrap()));
        text.replace(self.dir.path().to_str().unwrap(), "DIR")
    }
}

/// Compares with a file that is checked in, by its path from the root of the repository.
pub(crate) fn same_as_file(path: &str, text: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
        return;
    }
    let expected = fs::read_to_string(&file).unwrap_or_default();
    if let Some((i, (new, old))) = first_difference(text, &expected) {
        panic!(
            "{path} differs from line {i} on; UPDATE_DOCS=1 rewrites it\n  now: {new}\n  was: {old}"
        );
    }
}

fn first_difference<'a>(a: &'a str, b: &'a str) -> Option<(usize, (&'a str, &'a str))> {
    let (mut a, mut b) = (a.split('\n'), b.split('\n'));
    (1..)
        .zip(std::iter::from_fn(|| match (a.next(), b.next()) {
            (None, None) => None,
            (x, y) => Some((x.unwrap_or("(end)"), y.unwrap_or("(end)"))),
        }))
        .find(|(_, (x, y))| x != y)
}
