//! What the launcher's steps mean to people: the layer they belong to, and what would help.

use hotcell_jail::wire::{Failed, Step};
use hotcell_types::Layer;
use rustix::io::Errno;

use crate::Refusal;
use crate::layout::Layout;

/// The layer that a step builds or reads back.
pub(crate) fn layer(step: Step) -> Layer {
    match step {
        Step::UserNamespace | Step::IdMap | Step::SwitchId => Layer::UserNamespace,
        Step::Namespaces | Step::Clone | Step::AttestNamespaces | Step::Fork | Step::Inside => {
            Layer::PidNamespace
        }
        Step::Propagation => Layer::MountNamespace,
        Step::HostProc | Step::ProcMount => Layer::Proc,
        Step::Protocol
        | Step::Busy
        | Step::RootMount
        | Step::TreeEntry
        | Step::Pivot
        | Step::RootReadOnly
        | Step::Writable
        | Step::Inputs
        | Step::Program
        | Step::Zygote
        | Step::AttestMounts => Layer::Root,
        Step::LandlockRuleset | Step::Landlock | Step::AttestLandlock => Layer::Landlock,
        Step::CgroupAttach | Step::AttestCgroup => Layer::CgroupMemory,
        Step::CgroupNamespace => Layer::CgroupNamespace,
        Step::Hostname => Layer::UtsNamespace,
        Step::Loopback | Step::Proxy | Step::AttestProxy => Layer::NetNamespace,
        Step::DeathSignal
        | Step::Keyring
        | Step::Session
        | Step::Descriptors
        | Step::AttestDescriptors
        | Step::AttestSession => Layer::Session,
        Step::NoNewPrivs => Layer::NoNewPrivs,
        Step::Capabilities | Step::AttestStatus => Layer::Capabilities,
        Step::AttestIds => Layer::UniqueId,
        Step::Rlimits | Step::AttestRlimits => Layer::Rlimits,
        Step::Seccomp => Layer::Seccomp,
    }
}

/// What was being done.
pub(crate) fn doing(step: Step) -> &'static str {
    match step {
        Step::Protocol => "talking to the launcher",
        Step::Zygote => "forking an interpreter that had started",
        Step::Proxy => "making the sockets of the run's way out",
        Step::AttestProxy => "reading back the sockets of the run's way out",
        Step::Busy => "finding room for another run",
        Step::UserNamespace => "making a user namespace",
        Step::IdMap => "mapping the run's id",
        Step::Namespaces => "making the launcher's namespaces",
        Step::Propagation => "cutting the mount tree off from the host's",
        Step::HostProc => "reading the host's /proc",
        Step::RootMount => "making a new root",
        Step::TreeEntry => "showing a path in the new root",
        Step::ProcMount => "mounting /proc",
        Step::Pivot => "leaving the host's root",
        Step::RootReadOnly => "making the root read-only",
        Step::LandlockRuleset => "making the Landlock rules",
        Step::Clone => "making the run's namespaces",
        Step::CgroupAttach => "entering the run's cgroup",
        Step::CgroupNamespace => "making a cgroup namespace",
        Step::DeathSignal => "binding the run's life to hotcell's",
        Step::Hostname => "setting the host name inside",
        Step::Keyring => "joining a new keyring",
        Step::Loopback => "bringing the loopback interface up",
        Step::SwitchId => "switching to the run's id",
        Step::Writable => "making the writable places",
        Step::Inputs => "placing an input",
        Step::NoNewPrivs => "giving up new privileges",
        Step::Landlock => "switching Landlock on",
        Step::Capabilities => "dropping capabilities",
        Step::Fork => "starting the program's process",
        Step::Session => "starting a new session",
        Step::Rlimits => "setting limits",
        Step::Descriptors => "closing descriptors",
        Step::Seccomp => "switching the system call filter on",
        Step::Program => "executing the program",
        Step::AttestNamespaces => "reading back the namespaces",
        Step::AttestStatus => "reading back the process status",
        Step::AttestIds => "reading back the ids",
        Step::AttestMounts => "reading back the mounts",
        Step::AttestCgroup => "reading back the cgroup",
        Step::AttestRlimits => "reading back the limits",
        Step::AttestDescriptors => "reading back the descriptors",
        Step::AttestLandlock => "trying the Landlock layer",
        Step::AttestSession => "reading back the session",
        Step::Inside => "entering a sandbox that stays",
    }
}

/// A failed step as a refusal.
pub(crate) fn refusal(failed: Failed, layout: &Layout) -> Refusal {
    let errno = Errno::from_raw_os_error(failed.errno);
    let mut why = doing(failed.step).to_owned();
    if failed.step == Step::TreeEntry
        && let Some(path) = layout.path_of(failed.index as usize)
    {
        why = format!("{why} (`{}`)", path.display());
    }
    // What was read back wrong has no error number of its own.
    let why = if errno == Errno::ILSEQ {
        format!("{why}: it is not as it has to be")
    } else {
        format!("{why}: {}", std::io::Error::from(errno))
    };
    Refusal::Layer {
        layer: layer(failed.step),
        why,
        fix: "`hotcell doctor` says what this host allows and how to change it".into(),
    }
}
