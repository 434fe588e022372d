//! A terminal that somebody sits at, for tests. Also used by those of the documentation.

use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

/// Longer than anything here takes.
const LONGEST: Duration = Duration::from_secs(60);

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

    /// Sees what has come, or waits for it for a moment.
    pub(crate) fn look(&mut self) {
        let mut waiting = [PollFd::from_borrowed_fd(self.master.as_fd(), PollFlags::IN)];
        let most = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        if poll(&mut waiting, Some(&most)).unwrap() == 1 {
            let mut bytes = [0; 4096];
            let read = rustix::io::read(&self.master, &mut bytes).unwrap_or(0);
            self.seen.extend(bytes.iter().take(read));
        }
    }
}
