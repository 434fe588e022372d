//! How much of the jail a host allows, and what was really on.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// How much of the jail the host allows, weakest first, so that the strongest wins by `max`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// No namespaces: Landlock, seccomp, rlimits.
    LandlockOnly,
    /// Namespaces, but no /proc inside.
    NoProc,
    /// As `User`, limits per process only.
    NoCgroup,
    /// The user's own id mapped, cgroups delegated.
    User,
    /// Everything, a unique unprivileged id per run.
    Full,
}

impl Level {
    /// The lowest level that is accepted when the operator has not said otherwise.
    pub const DEFAULT_MINIMUM: Level = Level::User;

    pub const ALL: [Level; 5] =
        [Level::LandlockOnly, Level::NoProc, Level::NoCgroup, Level::User, Level::Full];

    pub fn name(self) -> &'static str {
        match self {
            Level::LandlockOnly => "landlock-only",
            Level::NoProc => "no-proc",
            Level::NoCgroup => "no-cgroup",
            Level::User => "user",
            Level::Full => "full",
        }
    }

    /// One line for people.
    pub fn meaning(self) -> &'static str {
        match self {
            Level::LandlockOnly => "no namespaces: Landlock, seccomp and per-process limits only",
            Level::NoProc => "all namespaces, but no /proc inside",
            Level::NoCgroup => "all namespaces; memory and task totals are not enforced",
            Level::User => "everything, under the user's own id",
            Level::Full => "everything, and an unprivileged id of its own for each run",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no level `{0}`: write full, user, no-cgroup, no-proc or landlock-only")]
pub struct UnknownLevel(String);

impl FromStr for Level {
    type Err = UnknownLevel;

    fn from_str(name: &str) -> Result<Level, UnknownLevel> {
        Level::ALL.into_iter().find(|l| l.name() == name).ok_or_else(|| UnknownLevel(name.into()))
    }
}

/// One wall of the jail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layer {
    UserNamespace,
    MountNamespace,
    PidNamespace,
    NetNamespace,
    IpcNamespace,
    UtsNamespace,
    CgroupNamespace,
    /// A root built from nothing; the host's is detached.
    Root,
    /// Its own /proc.
    Proc,
    Landlock,
    Seccomp,
    Capabilities,
    NoNewPrivs,
    /// An id that no other run has.
    UniqueId,
    /// Session, keyring and descriptors of its own.
    Session,
    CgroupMemory,
    CgroupPids,
    CgroupCpu,
    Rlimits,
}

impl Layer {
    pub const ALL: [Layer; 19] = [
        Layer::UserNamespace,
        Layer::MountNamespace,
        Layer::PidNamespace,
        Layer::NetNamespace,
        Layer::IpcNamespace,
        Layer::UtsNamespace,
        Layer::CgroupNamespace,
        Layer::Root,
        Layer::Proc,
        Layer::Landlock,
        Layer::Seccomp,
        Layer::Capabilities,
        Layer::NoNewPrivs,
        Layer::UniqueId,
        Layer::Session,
        Layer::CgroupMemory,
        Layer::CgroupPids,
        Layer::CgroupCpu,
        Layer::Rlimits,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Layer::UserNamespace => "user-namespace",
            Layer::MountNamespace => "mount-namespace",
            Layer::PidNamespace => "pid-namespace",
            Layer::NetNamespace => "net-namespace",
            Layer::IpcNamespace => "ipc-namespace",
            Layer::UtsNamespace => "uts-namespace",
            Layer::CgroupNamespace => "cgroup-namespace",
            Layer::Root => "root",
            Layer::Proc => "proc",
            Layer::Landlock => "landlock",
            Layer::Seccomp => "seccomp",
            Layer::Capabilities => "capabilities",
            Layer::NoNewPrivs => "no-new-privs",
            Layer::UniqueId => "unique-id",
            Layer::Session => "session",
            Layer::CgroupMemory => "cgroup-memory",
            Layer::CgroupPids => "cgroup-pids",
            Layer::CgroupCpu => "cgroup-cpu",
            Layer::Rlimits => "rlimits",
        }
    }

    /// The lowest level that has this layer. A run at that level or above without it does not start.
    pub fn since(self) -> Level {
        match self {
            Layer::Landlock
            | Layer::Seccomp
            | Layer::Capabilities
            | Layer::NoNewPrivs
            | Layer::Session
            | Layer::Rlimits => Level::LandlockOnly,
            Layer::UserNamespace
            | Layer::MountNamespace
            | Layer::PidNamespace
            | Layer::NetNamespace
            | Layer::IpcNamespace
            | Layer::UtsNamespace
            | Layer::CgroupNamespace
            | Layer::Root => Level::NoProc,
            Layer::Proc => Level::NoCgroup,
            Layer::CgroupMemory | Layer::CgroupPids | Layer::CgroupCpu => Level::User,
            Layer::UniqueId => Level::Full,
        }
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What was seen of one layer, from outside, before the program was let go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerReport {
    pub layer: Layer,
    pub active: bool,
    /// What was read back, or why it is off.
    pub seen: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_ordered_and_their_names_read_back() {
        assert!(Level::ALL.is_sorted());
        for level in Level::ALL {
            assert_eq!(level.name().parse(), Ok(level));
        }
        assert!("FULL".parse::<Level>().is_err());
    }

    #[test]
    fn each_level_adds_layers_and_takes_none_away() {
        let counts = Level::ALL.map(|l| Layer::ALL.iter().filter(|y| y.since() <= l).count());
        assert_eq!(counts, [6, 14, 15, 18, 19]);
    }
}
