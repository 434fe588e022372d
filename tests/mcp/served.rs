//! A server of the binary that is tested, and packages that ask it.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::binary::binary;

pub(crate) fn skip(what: &str, why: &str) {
    let line = format!("SKIPPED {what}: {why}\n");
    // The harness captures what goes through `eprintln`, not what goes through the descriptor.
    let stderr = std::io::stderr().as_fd().try_clone_to_owned().unwrap();
    fs::File::from(stderr).write_all(line.as_bytes()).unwrap();
}

/// Where a package is, or why it is not there.
pub(crate) fn package(name: &str) -> Result<PathBuf, String> {
    let made = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("mcp/setup"))
        .arg(name)
        .output()
        .map_err(|error| error.to_string())?;
    if !made.status.success() {
        let text = String::from_utf8_lossy(&made.stderr);
        return Err(text.lines().last().unwrap_or("setup failed").to_owned());
    }
    Ok(PathBuf::from(String::from_utf8(made.stdout).unwrap().trim_end()))
}

/// Whether anything can be run here.
pub(crate) fn has_sandbox(home: &Path) -> bool {
    let run = Command::new(binary()).args(["run", "--", "true"]).env("HOTCELL_HOME", home).output();
    run.unwrap().status.success()
}

/// A server, until it is dropped.
pub(crate) struct Server {
    child: Child,
    /// Without a path.
    pub(crate) url: String,
}

impl Server {
    pub(crate) fn start(home: &Path, work: &Path) -> Server {
        let mut serve = Command::new(binary());
        serve.args(["serve", "--listen", "127.0.0.1:0", "--workspace"]).arg(work);
        serve.env("HOTCELL_HOME", home).stdin(Stdio::null()).stderr(Stdio::piped());
        let mut child = serve.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let line = lines.by_ref().map(Result::unwrap).find(|line| line.contains("serving at"));
        let line = line.expect("it serves");
        let address = line.rsplit("at ").next().unwrap().trim();
        let url = address.to_owned();
        // Whoever serves is never held up by who reads.
        std::thread::spawn(move || lines.for_each(drop));
        Server { child, url }
    }

    pub(crate) fn key(home: &Path, scopes: &str) -> String {
        let mut create = Command::new(binary());
        create.args(["key", "create", "me", "--scope", scopes]);
        let made = create.env("HOTCELL_HOME", home).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        String::from_utf8(made.stdout).unwrap().trim_end().to_owned()
    }
}

impl Drop for Server {
    /// In order, also after everything that was done to it.
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let status = self.child.wait().unwrap();
        assert!(status.success() || std::thread::panicking(), "{status}");
    }
}
