//! Sandboxes that stay: a jail whose init waits for programs instead of having one, with limits for all of
//! them together. What one program leaves running belongs to the sandbox, and ends with it.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use hotcell_types::{Layer, Level, Limits, Profile};

use crate::cgroup::Stats;
use crate::{Job, Network, Refusal, Running, Sandbox, View, WorkingCopy};

/// What a sandbox that stays is made with. None of it changes while it is there.
#[derive(Debug, Clone)]
pub struct Keep {
    /// All that any of its programs may see of the host.
    pub view: View,
    /// Of all programs together, but for `timeout` and `output`, which are each program's own: for how long
    /// it is kept is for whoever keeps it to see to.
    pub limits: Limits,
    /// The widest that any of its programs may have.
    pub profile: Profile,
    pub network: Network,
    #[cfg(feature = "holes")]
    pub holes: crate::Holes,
}

/// A sandbox that stays. Dropping it ends it, and everything in it.
#[derive(Debug)]
pub struct Kept {
    level: Level,
}

/// What a sandbox has used so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Consumption {
    /// Where there is a cgroup that counts.
    pub cgroup: Option<Stats>,
    /// Bytes in its writable places, and files and directories there.
    pub disk_bytes: u64,
    pub files: u64,
}

impl Sandbox {
    /// Makes a sandbox that stays.
    pub fn keep(&self, spec: Keep) -> Result<Kept, Refusal> {
        self.keep_at(Level::LandlockOnly, spec)
    }

    /// The same for somebody who may demand more than the operator does, and never gets less.
    pub fn keep_at(&self, minimum: Level, spec: Keep) -> Result<Kept, Refusal> {
        let Keep { .. } = spec;
        Err(not_yet(minimum))
    }
}

impl Kept {
    /// Starts a program in it, walled and read back as any other. Several may run at one time. Of the job's
    /// limits its time and its output count. What the job brings is put into the working directory, in the
    /// place of what has the same name there.
    ///
    /// The outcome comes when the program itself has ended. What it leaves running stays; what is too late
    /// or cancelled is ended with its session, and with what the sandbox can tell descends from it. Nothing
    /// is collected: see [`work_dir`](Kept::work_dir).
    pub fn exec(&self, job: Job) -> Result<Running, Refusal> {
        drop(job);
        Err(not_yet(self.level))
    }

    /// Puts something into the working directory, in the place of what has the same name there.
    pub fn fill(&self, what: Arc<dyn WorkingCopy>) -> Result<(), Refusal> {
        drop(what);
        Err(not_yet(self.level))
    }

    /// Stops everything in it until it is resumed; the time of its programs stands still. Needs a cgroup.
    pub fn pause(&self) -> Result<(), Refusal> {
        Err(not_yet(self.level))
    }

    pub fn resume(&self) -> Result<(), Refusal> {
        Err(not_yet(self.level))
    }

    pub fn is_paused(&self) -> bool {
        false
    }

    pub fn usage(&self) -> Consumption {
        Consumption::default()
    }

    /// The working directory, to be read. Names in it are not to be trusted: open them beneath this,
    /// following nothing.
    pub fn work_dir(&self) -> BorrowedFd<'_> {
        rustix::fs::CWD
    }

    /// With [`Network::Proxied`], once: see [`Running::listeners`].
    pub fn listeners(&self) -> Vec<OwnedFd> {
        Vec::new()
    }

    pub fn level(&self) -> Level {
        self.level
    }

    /// Whether it is not there any more: it was stopped, or has ended by itself, as it does when its memory
    /// is used up where the kernel ends all for that.
    pub fn has_ended(&self) -> bool {
        true
    }

    /// Ends everything in it, frozen or not, and waits until nothing is left. Again is no error.
    pub fn stop(&self) -> Result<(), Refusal> {
        Err(not_yet(self.level))
    }
}

fn not_yet(level: Level) -> Refusal {
    Refusal::Layer {
        layer: Layer::PidNamespace,
        why: format!("sandboxes that stay are not there yet, at level {level}"),
        fix: "run each program by itself".into(),
    }
}
