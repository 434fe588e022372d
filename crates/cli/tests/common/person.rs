//! A person at a terminal, and a home with a policy that names them.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use hotcell_approver::{Approver, Public, SignedPolicy};
use hotcell_record::{Durability, Options, ReadError, Record};
use hotcell_review::versions::{self, Rules, Version};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

/// Longer than anything here takes.
const LONGEST: Duration = Duration::from_secs(60);

pub(crate) const PASSPHRASE: &str = "correct horse";

/// A terminal that somebody sits at.
pub(crate) struct Pty {
    master: OwnedFd,
    pub(crate) seen: Vec<u8>,
}

impl Pty {
    /// Starts a command in a session of its own, with this as its controlling terminal. Its stdout and
    /// stderr are pipes, so that what was written to the terminal itself is known.
    pub(crate) fn start(command: &Command) -> (Pty, Child) {
        Pty::start_with(command, |child, _| {
            child.stdout(Stdio::piped()).stderr(Stdio::piped());
        })
    }

    /// The same, with stdout and stderr as `streams` has them; it is given the terminal.
    pub(crate) fn start_with(
        command: &Command,
        streams: impl FnOnce(&mut Command, &OwnedFd),
    ) -> (Pty, Child) {
        let master =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let tty = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
        let mut child = Command::new("setsid");
        child.args(["--ctty", "--wait"]).arg(command.get_program()).args(command.get_args());
        child.env_clear();
        for (key, value) in command.get_envs() {
            child.env(key, value.unwrap());
        }
        let child = child.current_dir(command.get_current_dir().unwrap());
        streams(child, &tty);
        let child = child.stdin(tty).spawn();
        (Pty { master, seen: Vec::new() }, child.expect("util-linux has setsid"))
    }

    pub(crate) fn write(&self, bytes: &[u8]) {
        assert_eq!(rustix::io::write(&self.master, bytes).unwrap(), bytes.len());
    }

    /// Waits until so much has appeared on the screen.
    pub(crate) fn wait_for(&mut self, text: &str) {
        self.wait_until(|screen| screen.contains(text));
    }

    /// Waits until the screen is as it should be.
    pub(crate) fn wait_until(&mut self, is_so: impl Fn(&str) -> bool) {
        let deadline = Instant::now() + LONGEST;
        while !is_so(&String::from_utf8_lossy(&self.seen)) {
            assert!(Instant::now() < deadline, "{:?}", String::from_utf8_lossy(&self.seen));
            self.look();
        }
    }

    /// Waits until it has ended, and has seen everything; with what number it ended.
    pub(crate) fn until_end(&mut self, child: &mut Child) -> Option<i32> {
        let deadline = Instant::now() + LONGEST;
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < deadline, "{:?}", String::from_utf8_lossy(&self.seen));
            self.look();
        };
        self.look();
        status.code()
    }

    fn look(&mut self) {
        let mut waiting = [PollFd::from_borrowed_fd(self.master.as_fd(), PollFlags::IN)];
        let most = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        if poll(&mut waiting, Some(&most)).unwrap() == 1 {
            let mut bytes = [0; 4096];
            let read = rustix::io::read(&self.master, &mut bytes).unwrap_or(0);
            self.seen.extend(bytes.iter().take(read));
        }
    }
}

/// A command at a terminal, where these are typed at the prompts; what it printed, and the screen.
pub(crate) fn at_terminal(command: &Command, typed: &[(&str, &str)]) -> (Output, String) {
    let (mut pty, mut child) = Pty::start(command);
    for (prompt, typed) in typed {
        pty.wait_for(prompt);
        pty.write(format!("{typed}\n").as_bytes());
    }
    pty.until_end(&mut child);
    let output = child.wait_with_output().unwrap();
    (output, String::from_utf8_lossy(&pty.seen).into_owned())
}

/// Makes a policy the one of a home. Whoever is in `also` may answer as well.
pub(crate) fn follow(home: &Path, also: &[Public], rules: &str) {
    let signer = Approver::make("signer".parse().unwrap()).unwrap();
    let mut text = format!("approvers:\n  - {}\n", signer.public());
    also.iter().for_each(|public| text.push_str(&format!("  - {public}\n")));
    text.push_str(rules);
    let rules = Rules { text: text.clone(), ..Rules::default() };
    let record = Record::open(home, Options::default()).unwrap();
    let statement = versions::statement(&rules, record.home_id().0, 0, 0);
    let version = Version { rules, signed: SignedPolicy::sign(&signer, statement) };
    let added = record.write(Durability::Synced, move |tx| {
        hotcell_review::migrate(tx)?;
        versions::add(tx, &version)?;
        Ok::<_, Failed>(((), Vec::new()))
    });
    added.unwrap();
    record.close().unwrap();
    std::fs::write(home.join("policy.yaml"), text).unwrap();
}

#[derive(Debug)]
struct Failed(#[expect(dead_code, reason = "it is shown")] io::Error);

impl From<hotcell_review::Error> for Failed {
    fn from(error: hotcell_review::Error) -> Failed {
        Failed(io::Error::other(error.to_string()))
    }
}

impl From<ReadError> for Failed {
    fn from(error: ReadError) -> Failed {
        Failed(io::Error::other(error.to_string()))
    }
}
