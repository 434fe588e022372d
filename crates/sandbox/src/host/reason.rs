//! Why a host gives no more, and the command that would change it. docs/doctor.md lists them all.

use std::path::{Path, PathBuf};

use hotcell_types::Layer;

use super::facts::{self, Container};

/// Where the AppArmor profile and the documentation expect hotcell when it is installed.
const INSTALLED: &str = "/usr/local/bin/hotcell";

/// The oldest kernel that can have everything: Landlock came with it.
pub(super) const OLDEST_KERNEL: (u32, u32) = (5, 13);

/// Descriptors that a launcher and a run of the default template need.
pub(super) const OPEN_FILES_LEAST: u64 = 1024;

/// Why a layer is off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    OldKernel {
        release: String,
    },
    LandlockOff {
        lsm: Option<Vec<String>>,
        wsl: bool,
    },
    LandlockHidden {
        container: Option<Container>,
    },
    NoSeccomp,
    FewOpenFiles {
        limit: u64,
    },
    MemfdNoexec,
    NamespacesForbidden {
        layer: Layer,
    },
    UsernsCloneOff,
    AppArmor {
        program: PathBuf,
    },
    Container {
        container: Container,
    },
    Chroot,
    UnderSeccomp {
        container: Option<Container>,
    },
    RootWithoutPrivileges,
    UnmappedIds,
    MaskedProc {
        container: Option<Container>,
        masked: Vec<PathBuf>,
    },
    NoCgroup {
        controller: &'static str,
        why: String,
        fix: String,
    },
    NotRoot,
    /// What the launcher said, where nothing on the host explains it.
    Unexplained {
        said: String,
        fix: String,
    },
}

impl Reason {
    /// The word for it in JSON and in docs/doctor.md.
    pub fn id(&self) -> &'static str {
        match self {
            Reason::OldKernel { .. } => "old-kernel",
            Reason::LandlockOff { .. } => "landlock-off",
            Reason::LandlockHidden { .. } => "landlock-hidden",
            Reason::NoSeccomp => "no-seccomp",
            Reason::FewOpenFiles { .. } => "few-open-files",
            Reason::MemfdNoexec => "memfd-noexec",
            Reason::NamespacesForbidden { .. } => "namespaces-forbidden",
            Reason::UsernsCloneOff => "userns-clone-off",
            Reason::AppArmor { .. } => "apparmor-userns",
            Reason::Container { .. } => "container",
            Reason::Chroot => "chroot",
            Reason::UnderSeccomp { .. } => "under-seccomp",
            Reason::RootWithoutPrivileges => "root-without-privileges",
            Reason::UnmappedIds => "unmapped-ids",
            Reason::MaskedProc { .. } => "masked-proc",
            Reason::NoCgroup { .. } => "no-cgroup",
            Reason::NotRoot => "not-root",
            Reason::Unexplained { .. } => "unexplained",
        }
    }

    pub fn why(&self) -> String {
        match self {
            Reason::OldKernel { release } => {
                let (major, minor) = OLDEST_KERNEL;
                format!("kernel {release} is too old: hotcell needs {major}.{minor} or newer")
            }
            Reason::LandlockOff { lsm: Some(lsm), .. } => format!(
                "Landlock is not among the security modules that are on: {}",
                lsm.join(", ")
            ),
            Reason::LandlockOff { lsm: None, .. } => "the kernel has Landlock switched off".into(),
            Reason::LandlockHidden { .. } => {
                "the kernel has Landlock, and a system call filter around hotcell hides it".into()
            }
            Reason::NoSeccomp => "the kernel has no system call filters that report".into(),
            Reason::FewOpenFiles { limit } => {
                format!("no more than {limit} files may be open, and {OPEN_FILES_LEAST} are needed")
            }
            Reason::MemfdNoexec => {
                "vm.memfd_noexec is 2, so that nothing can be executed from memory".into()
            }
            Reason::NamespacesForbidden { layer } => {
                format!("{} is 0, so that nobody may make one", limit(*layer))
            }
            Reason::UsernsCloneOff => {
                "kernel.unprivileged_userns_clone is 0: only root may make user namespaces".into()
            }
            Reason::AppArmor { .. } => {
                "AppArmor allows user namespaces only to programs that have a profile for it".into()
            }
            Reason::Container { container } => {
                format!("{} does not let its processes make namespaces", container.name())
            }
            Reason::Chroot => "the kernel makes no user namespaces in a chroot".into(),
            Reason::UnderSeccomp { container } => {
                let who = container.map_or("whatever started hotcell", Container::name);
                format!("{who} put it under a system call filter that forbids it")
            }
            Reason::RootWithoutPrivileges => {
                "this root may not give ids away: it has no CAP_SYS_ADMIN".into()
            }
            Reason::UnmappedIds => {
                "this root is an ordinary user outside, and the ids of runs do not exist here"
                    .into()
            }
            Reason::MaskedProc { masked, .. } if masked.is_empty() => {
                "the kernel does not allow a new /proc here".into()
            }
            Reason::MaskedProc { masked, .. } => masked_why(masked),
            Reason::NoCgroup { why, .. } => why.clone(),
            Reason::NotRoot => "only root can give each run an id of its own".into(),
            Reason::Unexplained { said, .. } => said.clone(),
        }
    }

    /// A command where there is one.
    pub fn fix(&self) -> String {
        match self {
            Reason::OldKernel { .. } => {
                "boot a newer kernel: `sudo apt install linux-generic-hwe-20.04` on Ubuntu 20.04, the \
                 one of the backports on Debian 11, another release elsewhere"
                    .into()
            }
            Reason::LandlockOff { wsl: true, .. } => {
                "`wsl --update` in Windows, and no kernelCommandLine with lsm= in .wslconfig unless \
                 it has landlock"
                    .into()
            }
            Reason::LandlockOff { lsm, .. } => lsm_fix(lsm.as_deref().unwrap_or_default()),
            Reason::LandlockHidden { container } | Reason::UnderSeccomp { container } => {
                container.map_or(UNIT_FIX, container_fix).into()
            }
            Reason::NoSeccomp => {
                "boot a kernel with CONFIG_SECCOMP_FILTER, 5.0 or newer: `uname -r` names this one"
                    .into()
            }
            Reason::FewOpenFiles { .. } => format!(
                "`ulimit -n {OPEN_FILES_LEAST}`, `LimitNOFILE={OPEN_FILES_LEAST}` in a systemd unit, \
                 `--ulimit nofile={OPEN_FILES_LEAST}` for a container"
            ),
            Reason::MemfdNoexec => "`sudo hotcell doctor` once, which puts the launcher where only \
                                    root can write; or `sudo sysctl vm.memfd_noexec=1`"
                .into(),
            Reason::NamespacesForbidden { layer } => format!("`sudo sysctl {}=10000`", limit(*layer)),
            Reason::UsernsCloneOff => "`sudo sysctl kernel.unprivileged_userns_clone=1`".into(),
            Reason::AppArmor { program } => apparmor_fix(program),
            Reason::Container { container } => container_fix(*container).into(),
            Reason::Chroot => {
                "enter it with pivot_root instead: `sudo systemd-nspawn --directory=DIR`, or `bwrap \
                 --bind DIR / --dev /dev --proc /proc hotcell …`"
                    .into()
            }
            Reason::RootWithoutPrivileges => {
                "run hotcell as an ordinary user, or give root the capabilities SYS_ADMIN, SETUID and \
                 SETGID (`docker run --cap-add=SYS_ADMIN …`): no run may have root's id"
                    .into()
            }
            Reason::UnmappedIds => "run hotcell outside this container, as its user or as root".into(),
            Reason::MaskedProc { container, .. } => masked_fix(*container).into(),
            Reason::NoCgroup { fix, .. } | Reason::Unexplained { fix, .. } => fix.clone(),
            Reason::NotRoot => "`sudo hotcell run`, if one id for all of your runs is not enough".into(),
        }
    }
}

const UNIT_FIX: &str = "in the systemd unit, `RestrictNamespaces=no` and no `SystemCallFilter=`; \
                        otherwise start hotcell from a shell";

fn limit(layer: Layer) -> String {
    format!("user.max_{}_namespaces", facts::kernel_name(layer).unwrap_or("user"))
}

fn masked_why(masked: &[PathBuf]) -> String {
    let first: Vec<String> = masked.iter().take(3).map(|p| p.display().to_string()).collect();
    let more = masked.len().saturating_sub(first.len());
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    format!(
        "parts of /proc are covered ({}{more}), so the kernel allows no new one",
        first.join(", ")
    )
}

fn masked_fix(container: Option<Container>) -> &'static str {
    match container {
        Some(Container::Docker) => "`docker run --security-opt systempaths=unconfined …`",
        Some(Container::Podman) => "`podman run --security-opt unmask=ALL …`",
        Some(Container::Kubernetes) => {
            "`procMount: Unmasked` and `hostUsers: false` in the container's securityContext and the \
             pod's spec"
        }
        Some(Container::Lxc) => "`lxc config set NAME security.nesting true && lxc restart NAME`",
        Some(Container::Other) | None => {
            "start hotcell where nothing is mounted below /proc: `grep ' /proc/' /proc/self/mountinfo` \
             lists what is"
        }
    }
}

/// What lets a container's processes make namespaces, and then a /proc in them.
fn container_fix(container: Container) -> &'static str {
    match container {
        Container::Docker => {
            "`docker run --security-opt seccomp=unconfined --security-opt apparmor=unconfined \
             --security-opt systempaths=unconfined …`"
        }
        Container::Podman => {
            "`podman run --security-opt seccomp=unconfined --security-opt unmask=ALL …`"
        }
        Container::Kubernetes => {
            "`seccompProfile: {type: Unconfined}` and `procMount: Unmasked` in the container's \
             securityContext, `hostUsers: false` in the pod's spec"
        }
        Container::Lxc => "`lxc config set NAME security.nesting true && lxc restart NAME`",
        Container::Other => "start it so that its processes may make namespaces and mounts",
    }
}

/// Adds to what is on: the parameter replaces the whole list.
fn lsm_fix(on: &[String]) -> String {
    let mut list = vec!["landlock"];
    list.extend(on.iter().map(String::as_str).filter(|&name| name != "capability"));
    if on.is_empty() {
        list.extend(["lockdown", "yama", "integrity", "apparmor", "bpf"]);
    }
    format!(
        "add `lsm={}` to the kernel's command line (GRUB_CMDLINE_LINUX in /etc/default/grub, then \
         `sudo update-grub`) and boot",
        list.join(",")
    )
}

/// One profile for hotcell, not the switch for all programs.
fn apparmor_fix(program: &Path) -> String {
    let program = program.to_str().filter(|path| is_plain(path)).unwrap_or("hotcell");
    let (install, at) = match is_of_the_system(program) {
        true => (String::new(), program),
        false => (format!("sudo install {program} {INSTALLED} && "), INSTALLED),
    };
    format!(
        "`{install}printf '%s\\n' 'abi <abi/4.0>,' 'include <tunables/global>' 'profile hotcell {at} \
         flags=(unconfined) {{' '  userns,' '}}' | sudo tee /etc/apparmor.d/hotcell && sudo \
         apparmor_parser -r /etc/apparmor.d/hotcell`"
    )
}

/// Whether a path can stand in a profile and on a command line as it is.
fn is_plain(path: &str) -> bool {
    !path.is_empty() && path.chars().all(|c| c.is_ascii_alphanumeric() || "/._+-".contains(c))
}

/// A profile for a file that the user can replace would be one for whatever the user puts there.
fn is_of_the_system(path: &str) -> bool {
    ["/usr/", "/opt/", "/nix/", "/bin/"].iter().any(|dir| path.starts_with(dir))
}
