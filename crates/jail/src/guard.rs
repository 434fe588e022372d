//! The launcher's first process. It stays in the host's namespaces, starts the spawner, and is there
//! until everything is gone.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, Signal};

use crate::cgroups;
use crate::chan;
use crate::fail::{At, Done, failed};
use crate::landlock::Rules;
use crate::orphans;
use crate::proc::{HostProc, Path};
use crate::spawner::Spawner;
use crate::sys::{self, Cloned, Packet};
use crate::tree;
use crate::wire::{Entries, Report, Setup, Standing, Step};

/// hotcell gives its socket as standard input.
const CONTROL: u32 = 0;

const FAILED: u8 = 70;

/// The wait status of a spawner that hotcell dismissed.
const DISMISSED: u32 = 0;

/// Of all processes, what untrusted code does is the first to go when the host runs out of memory.
const OOM_SCORE: &[u8] = b"500";

/// The hard limit on open files that the launcher itself needs.
const DESCRIPTORS_LEAST: u64 = 900;

/// The Landlock ABI that keeps signals in. Without a pid namespace nothing else does.
const SIGNALS_SINCE: u32 = 6;

/// The whole life of the launcher.
pub fn main() -> ! {
    match run() {
        Ok(()) => sys::exit(0),
        Err(failure) => {
            // If hotcell does not hear it, it sees the closed socket.
            let told = chan::report(sys::at(CONTROL), &Report::Failed(failure), None);
            sys::exit(if told.is_ok() { FAILED } else { FAILED + 1 })
        }
    }
}

fn run() -> Done {
    clean()?;
    static SETUP: Packet = Packet::new();
    let packet = SETUP.take().at(Step::Protocol)?;
    let received = chan::receive(sys::at(CONTROL), packet).at(Step::Protocol)?;
    let packet = packet.get(..received.length).unwrap_or_default();
    let (standing, entries) = Standing::read(packet).at(Step::Protocol)?;
    let setup = standing.setup;
    if setup.user_namespace {
        own_user_namespace()?;
    }
    let namespaces = if setup.bare {
        become_reaper()?;
        0
    } else {
        linux_raw_sys::general::CLONE_NEWNS | linux_raw_sys::general::CLONE_NEWPID
    };
    match sys::clone(u64::from(namespaces), None).at(Step::Namespaces)? {
        Cloned::Child => match spawn(setup, entries) {
            Ok(dismissed) => sys::exit(u8::from(!dismissed)),
            Err(failure) => {
                let told = chan::report(sys::at(CONTROL), &Report::Failed(failure), None);
                sys::exit(if told.is_ok() { FAILED } else { FAILED + 1 })
            }
        },
        Cloned::Parent { pid, pidfd } => {
            // It is the last to go, and what ends hotcell must not end this.
            sys::block_signals();
            let leash = received.fds.get(standing.cgroups as usize).at(Step::Protocol)?;
            let hotcell_is_gone = watch(&pidfd, leash).at(Step::Protocol)?;
            if hotcell_is_gone {
                cgroups::thaw(&standing, &received.fds);
            }
            let status = sys::wait_for(pid).at(Step::Protocol)?;
            if setup.bare {
                // No namespace has ended them.
                let host = HostProc::open().at(Step::HostProc)?;
                orphans::end(&host, |_| false);
            }
            // While hotcell lives it does this itself, and other launchers may be using them.
            if hotcell_is_gone || (status != DISMISSED && is_cut(leash)) {
                cgroups::remove(&standing, &received.fds);
            }
            Ok(())
        }
    }
}

/// The first act: nothing inherited but the control socket.
fn clean() -> Done {
    // A terminal's signals are for hotcell, and so is what becomes of its process group. The launcher
    // of the escape tests stays, to show what a run's own session is for.
    #[cfg(not(feature = "holes"))]
    rustix::process::setsid().at(Step::Session)?;
    sys::close_range(CONTROL + 1, u32::MAX).at(Step::Descriptors)?;
    sys::reset_signals();
    let own = HostProc::open().and_then(|host| host.own()).at(Step::HostProc)?;
    own.write(c"oom_score_adj", OOM_SCORE).at(Step::Rlimits)?;
    rustix::process::umask(Mode::empty());
    // Cells put their descriptors at high numbers.
    let most = rustix::process::getrlimit(Resource::Nofile).maximum;
    if most.is_some_and(|most| most < DESCRIPTORS_LEAST) {
        return Err(failed(Step::Rlimits, Errno::MFILE, DESCRIPTORS_LEAST as usize));
    }
    let files = Rlimit { current: most, maximum: most };
    rustix::process::setrlimit(Resource::Nofile, files).at(Step::Rlimits)
}

/// An ordinary user becomes the owner of a user namespace, under the same id.
fn own_user_namespace() -> Done {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    sys::unshare(linux_raw_sys::general::CLONE_NEWUSER).at(Step::UserNamespace)?;
    let own = HostProc::open().and_then(|host| host.own()).at(Step::IdMap)?;
    own.write(c"setgroups", b"deny").at(Step::IdMap)?;
    for (file, id) in [(c"uid_map", uid), (c"gid_map", gid)] {
        let line = Path::of(format_args!("{id} {id} 1")).at(Step::IdMap)?;
        own.write(file, line.as_c().at(Step::IdMap)?.to_bytes()).at(Step::IdMap)?;
    }
    Ok(())
}

/// Without a pid namespace: what runs leave behind comes back here.
fn become_reaper() -> Done {
    let own = rustix::process::getpid();
    rustix::process::set_child_subreaper(Some(own)).at(Step::Namespaces)
}

/// The life of the spawner, in its own mount and pid namespace.
fn spawn(setup: Setup, entries: Entries<'_>) -> Done<bool> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).at(Step::DeathSignal)?;
    let host = HostProc::open().at(Step::HostProc)?;
    if setup.bare {
        become_reaper()?;
    } else {
        tree::enter(setup, entries.clone())?;
    }
    let rules = Rules::of(entries, setup.bare)?;
    if setup.bare && rules.abi < SIGNALS_SINCE {
        return Err(failed(Step::LandlockRuleset, Errno::OPNOTSUPP, 0));
    }
    let control = rustix::io::fcntl_dupfd_cloexec(sys::at(CONTROL), 3).at(Step::Descriptors)?;
    let mut spawner = Spawner::new(control, host, rules, setup)?;
    spawner.serve()?;
    Ok(spawner.is_dismissed)
}

/// Returns when the spawner has ended, or is about to because hotcell is gone, and tells whether it is.
/// The leash is a pipe whose other end hotcell holds as long as it lives.
fn watch(spawner: &OwnedFd, leash: BorrowedFd<'_>) -> rustix::io::Result<bool> {
    let mut fds = [
        PollFd::from_borrowed_fd(spawner.as_fd(), PollFlags::IN),
        PollFd::from_borrowed_fd(leash, PollFlags::empty()),
    ];
    loop {
        match poll(&mut fds, None) {
            Err(Errno::INTR) => continue,
            other => other?,
        };
        let [spawner_ended, hotcell_gone] = fds.each_ref().map(|fd| !fd.revents().is_empty());
        if hotcell_gone {
            return match rustix::process::pidfd_send_signal(spawner, Signal::KILL) {
                Ok(()) | Err(Errno::SRCH) => Ok(true),
                Err(errno) => Err(errno),
            };
        }
        if spawner_ended {
            return Ok(false);
        }
    }
}

/// Whether hotcell is gone, although the spawner ended first: the two ends of a killed process may be
/// seen one after the other.
fn is_cut(leash: BorrowedFd<'_>) -> bool {
    const PATIENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
    let mut fds = [PollFd::from_borrowed_fd(leash, PollFlags::empty())];
    poll(&mut fds, Some(&PATIENCE)).is_ok_and(|events| events > 0)
}
