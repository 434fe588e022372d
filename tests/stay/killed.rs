//! Sandboxes of a hotcell that is killed, or that are themselves.

use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use hotcell_tests::{Snapshot, descendants, holds_within, skip, token, with_token};

use super::alone;

/// A hotcell that serves a home of its own.
struct Resident {
    binary: PathBuf,
    process: Child,
    home: tempfile::TempDir,
}

impl Resident {
    /// Nothing, loudly, where there is no binary to test.
    fn start(test: &str) -> Option<Resident> {
        let Some(binary) = std::env::var_os("HOTCELL_BIN").map(PathBuf::from) else {
            skip(test, "HOTCELL_BIN does not say which hotcell");
            return None;
        };
        let home = tempfile::tempdir().unwrap();
        // As far down as an ordinary user without cgroups is.
        std::fs::write(home.path().join("config.toml"), "min_level = \"no-cgroup\"\n").unwrap();
        let mut command = Command::new(&binary);
        command.args(["resident", "serve"]).env("HOTCELL_HOME", home.path());
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut ready = [0; 6];
        process.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
        Some(Resident { binary, process, home })
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        command.arg("sandbox").args(words).env("HOTCELL_HOME", self.home.path());
        command
    }

    #[track_caller]
    fn says(&self, words: &[&str]) -> String {
        let output = self.command(words).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// A program that goes on, with a token to find it by.
    fn goes_on(&self, id: &str, token: &str) -> Child {
        let code = format!("echo here; sleep 60; true {token}");
        let mut command = self.command(&["exec", id, "--", "sh", "-c", &code]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut first = [0; 5];
        child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
        assert_eq!(&first, b"here\n");
        child
    }
}

impl Drop for Resident {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

/// Processes in sandboxes, which is not the client that asked for them.
fn in_sandboxes(token: &str) -> usize {
    with_token(token).iter().filter(|process| process.name != "hotcell").count()
}

fn kill(pid: u32) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

#[test]
fn nothing_is_left_when_hotcell_itself_is_killed() {
    let _alone = alone();
    let before = Snapshot::take();
    let Some(resident) = Resident::start("nothing_is_left_when_hotcell_itself_is_killed") else {
        return;
    };
    let token = token();
    let ids = [resident.says(&["create"]), resident.says(&["create"])];
    let clients = ids.each_ref().map(|id| resident.goes_on(id, &token));
    // What stands still does not die by itself.
    resident.command(&["pause", &ids[0]]).output().unwrap();
    assert!(in_sandboxes(&token) >= 2);
    drop(resident);
    assert!(
        holds_within(Duration::from_secs(15), || in_sandboxes(&token) == 0),
        "something runs on"
    );
    clients.into_iter().for_each(|mut client| {
        client.kill().ok();
        client.wait().unwrap();
    });
    let left = before.left_over();
    assert!(left.is_empty(), "left behind:\n{}", left.join("\n"));
}

#[test]
fn one_that_was_killed_is_told_so_and_can_be_made_anew() {
    let _alone = alone();
    let Some(resident) = Resident::start("one_that_was_killed_is_told_so") else { return };
    let id = resident.says(&["create"]);
    resident.says(&["exec", &id, "--", "touch", "a"]);
    // All of it: the one that holds it, and the one that waits for a program.
    for process in descendants(resident.process.id()) {
        if process.name == "hotcell-init" {
            kill(process.pid);
        }
    }
    let told = || resident.says(&["inspect", &id]);
    assert!(holds_within(Duration::from_secs(15), || told().contains("destroyed")), "{}", told());
    assert!(told().contains("killed from outside"), "{}", told());
    let refused = resident.command(&["exec", &id, "--", "true"]).output().unwrap();
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && why.contains("sandbox restart"), "{why}");
    resident.says(&["restart", &id]);
    assert_eq!(resident.says(&["exec", &id, "--", "ls", "-A"]), "");
}
