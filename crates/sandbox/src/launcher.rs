//! Starts the launcher and talks to it.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::process::{Child, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use hotcell_jail::chan;
use hotcell_jail::wire::{
    Failed, MAX_PACKET, Order, Ready, Report, Setup, Standing, Writer, ZygoteParts,
};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use crate::image::image;
use crate::layout::Layout;

/// Largest order.
const MAX_ORDER: usize = 512;

/// How long a packet may wait for its receiver.
const SEND_MOST: Duration = Duration::from_secs(20);

/// How long a launcher may take to build its tree. Far longer than it ever takes: a hang must not last.
const READY_MOST: Timespec = Timespec { tv_sec: 20, tv_nsec: 0 };

/// Why a launcher did not come up.
#[derive(Debug)]
pub(crate) enum StartError {
    /// It could not be executed at all.
    Spawn(io::Error),
    /// A step inside it failed.
    Step(Failed),
    /// It went away without a word, or said something else.
    Silent(io::Error),
}

/// What the launcher holds as long as anything that it started lives.
#[derive(Debug)]
pub(crate) struct Kept<'a> {
    /// This process's own directory in each cgroup hierarchy, which it removes if this process cannot.
    pub(crate) cgroups: Vec<BorrowedFd<'a>>,
    pub(crate) cgroup_name: &'a CStr,
    pub(crate) others: Vec<BorrowedFd<'a>>,
}

/// A launcher that was executed and waits to be told what it is for. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Idle {
    /// Closed first when this is dropped, which ends the launcher.
    control: Option<OwnedFd>,
    guard: Child,
}

/// A launcher for one root tree, with everything that it ever started. Dropping it ends them all.
#[derive(Debug)]
pub(crate) struct Launcher {
    idle: Idle,
    /// Its answer, once somebody had to wait for it.
    answer: OnceLock<Result<Ready, StartError>>,
}

impl Idle {
    pub(crate) fn execute() -> io::Result<Idle> {
        let (ours, theirs) = packet_pair()?;
        Ok(Idle { guard: execute(theirs)?, control: Some(ours) })
    }

    /// Tells it what to build. It holds `kept` until everything has ended. Orders may follow at once;
    /// [`Launcher::ready`] waits for the answer.
    pub(crate) fn set_up(
        self,
        setup: Setup,
        layout: &Layout,
        kept: &Kept<'_>,
    ) -> Result<Launcher, StartError> {
        let mut buffer = vec![0; MAX_PACKET];
        let mut writer = Writer::new(&mut buffer);
        let standing = Standing {
            setup,
            cgroup_name: kept.cgroup_name,
            cgroups: u32::try_from(kept.cgroups.len()).unwrap_or(u32::MAX),
        };
        layout.write(&standing, &mut writer);
        let packet = writer.finish().map_err(|_| silent("the root tree is too large"))?;
        let leash = leash().map_err(StartError::Silent)?;
        let held = [leash].into_iter().chain(kept.others.iter().copied());
        let fds: Vec<_> = kept.cgroups.iter().copied().chain(held).collect();
        let control = self.control().map_err(StartError::Silent)?;
        chan::send(control, packet, &fds).map_err(|e| StartError::Silent(e.into()))?;
        Ok(Launcher { idle: self, answer: OnceLock::new() })
    }

    fn control(&self) -> io::Result<BorrowedFd<'_>> {
        self.control.as_ref().map(AsFd::as_fd).ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl Launcher {
    /// Waits until its tree stands.
    pub(crate) fn ready(&self) -> Result<Ready, &StartError> {
        self.answer.get_or_init(|| self.hear()).as_ref().copied()
    }

    fn hear(&self) -> Result<Ready, StartError> {
        let mut answer = [0; chan::MAX_REPORT];
        let control = self.idle.control().map_err(StartError::Silent)?;
        let mut fds = [PollFd::from_borrowed_fd(control, PollFlags::IN)];
        match rustix::event::poll(&mut fds, Some(&READY_MOST)) {
            Ok(0) => return Err(silent("the launcher does not come up")),
            Ok(_) => {}
            Err(errno) => return Err(StartError::Silent(errno.into())),
        }
        let received =
            chan::receive(control, &mut answer).map_err(|e| StartError::Silent(e.into()))?;
        match Report::read(answer.get(..received.length).unwrap_or_default()) {
            Ok(Report::Ready(ready)) => Ok(ready),
            Ok(Report::Failed(failed)) => Err(StartError::Step(failed)),
            _ => Err(silent("the launcher gave no sensible answer")),
        }
    }

    /// Whether it has ended, although nobody told it to.
    pub(crate) fn is_gone(&self) -> bool {
        let Ok(control) = self.idle.control() else { return true };
        let mut fds = [PollFd::from_borrowed_fd(control, PollFlags::empty())];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        rustix::event::poll(&mut fds, Some(&now)).is_ok_and(|events| events > 0)
    }

    /// Orders a cell. Everything about it is then told on the run's own socket, the first of `fds`.
    pub(crate) fn order(&self, order: &Order<'_>, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut buffer = [0; MAX_ORDER];
        let mut writer = Writer::new(&mut buffer);
        order.write(&mut writer);
        let packet = writer.finish().map_err(|_| io::ErrorKind::InvalidInput)?;
        Ok(chan::send(self.idle.control()?, packet, fds)?)
    }

    /// Starts a zygote. Everything about it is then told on its own socket, the first of `fds`.
    pub(crate) fn start_zygote(
        &self,
        zygote: &ZygoteParts<'_>,
        fds: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        let mut buffer = vec![0; MAX_PACKET];
        let mut writer = Writer::new(&mut buffer);
        zygote.write(&mut writer);
        let packet = writer.finish().map_err(|_| io::ErrorKind::InvalidInput)?;
        Ok(chan::send(self.idle.control()?, packet, fds)?)
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        // A last word tells the end of a launcher from the end of this process.
        if let Ok(control) = self.control() {
            rustix::io::write(control, b"b").ok();
        }
        self.control = None;
        // The guard ends once everything has; waiting keeps it from becoming a zombie.
        if let Err(error) = self.guard.wait() {
            debug_assert!(false, "the guard cannot be waited for: {error}");
        }
    }
}

fn silent(what: &'static str) -> StartError {
    StartError::Silent(io::Error::other(what))
}

/// A pair of packet sockets large enough for the largest packet. Sending on the first never waits for
/// ever.
pub(crate) fn packet_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let pair = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?;
    sockopt::set_socket_send_buffer_size(&pair.0, 2 * MAX_PACKET)?;
    sockopt::set_socket_timeout(&pair.0, sockopt::Timeout::Send, Some(SEND_MOST))?;
    Ok(pair)
}

fn execute(control: OwnedFd) -> io::Result<Child> {
    let image = image()?;
    std::process::Command::new(format!("/proc/self/fd/{}", image.as_raw_fd()))
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::from(control))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
}

/// One end of a pipe whose other end this process holds as long as it lives, and no longer.
fn leash() -> io::Result<BorrowedFd<'static>> {
    static LEASH: OnceLock<(OwnedFd, OwnedFd)> = OnceLock::new();
    if let Some((read, _write)) = LEASH.get() {
        return Ok(read.as_fd());
    }
    let pipe = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    Ok(LEASH.get_or_init(|| pipe).0.as_fd())
}
