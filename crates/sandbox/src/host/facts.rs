//! What can be read of the host without changing anything on it.
//!
//! None of this decides whether a layer works: that is tried. It explains why one did not.

use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use hotcell_types::Layer;
use rustix::process::{Resource, getrlimit};

use crate::cgroup::{Cgroups, Missing};
use crate::native::pool_in;

/// Most that is read of one file: mountinfo is the largest.
const MOST: u64 = 4 << 20;

/// Number of the capability that making namespaces takes.
const CAP_SYS_ADMIN: u32 = 21;

/// The kernel's limits on namespaces, by the layer that needs them.
const LIMITS: [(&str, Layer); 7] = [
    ("user", Layer::UserNamespace),
    ("mnt", Layer::MountNamespace),
    ("pid", Layer::PidNamespace),
    ("net", Layer::NetNamespace),
    ("ipc", Layer::IpcNamespace),
    ("uts", Layer::UtsNamespace),
    ("cgroup", Layer::CgroupNamespace),
];

/// What explains why a host gives what it gives. Everything that cannot be read is as if it were not
/// there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostFacts {
    /// As `uname -r` has it.
    pub kernel: String,
    /// `PRETTY_NAME` of os-release.
    pub distribution: Option<String>,
    /// `ID` and `ID_LIKE` of os-release.
    pub families: Vec<String>,
    /// Where hotcell's own executable is.
    pub program: PathBuf,
    pub uid: u32,
    /// Whether this process has CAP_SYS_ADMIN.
    pub sys_admin: bool,
    /// Whether the ids that runs get exist in this user namespace.
    pub ids_mapped: bool,
    pub landlock_abi: Option<u32>,
    /// The security modules that are on; `None` where securityfs is not mounted.
    pub lsm: Option<Vec<String>>,
    /// `kernel.apparmor_restrict_unprivileged_userns`
    pub apparmor_restricts: bool,
    /// `kernel.unprivileged_userns_clone` is 0.
    pub userns_clone_off: bool,
    /// Namespaces that `user.max_…_namespaces` forbids altogether.
    pub forbidden_namespaces: Vec<Layer>,
    /// `vm.memfd_noexec`
    pub memfd_noexec: u8,
    /// Whether the kernel has system call filters that report.
    pub seccomp_filters: bool,
    /// The hard limit of open files.
    pub open_files: u64,
    /// Whether this process is already under a system call filter.
    pub under_seccomp: bool,
    pub container: Option<Container>,
    pub wsl: bool,
    /// Whether the root is not that of the mount namespace.
    pub chrooted: bool,
    /// What is mounted over parts of /proc.
    pub masked_proc: Vec<PathBuf>,
    /// The controllers that cannot be used.
    pub missing_controllers: Vec<Missing>,
}

/// What kind of container this is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Container {
    Docker,
    Podman,
    Kubernetes,
    Lxc,
    Other,
}

impl Container {
    pub fn name(self) -> &'static str {
        match self {
            Container::Docker => "Docker",
            Container::Podman => "Podman",
            Container::Kubernetes => "Kubernetes",
            Container::Lxc => "LXC",
            Container::Other => "a container",
        }
    }
}

impl HostFacts {
    /// Reads them.
    pub fn of_this_host(cgroups: CgroupSearch) -> HostFacts {
        let status = text("/proc/self/status");
        let uid_map = text("/proc/self/uid_map");
        let kernel = text("/proc/sys/kernel/osrelease").trim().to_owned();
        let mountinfo = text("/proc/self/mountinfo");
        let release = text("/etc/os-release") + &text("/usr/lib/os-release");
        HostFacts {
            distribution: os_release(&release, "PRETTY_NAME").filter(|name| !name.is_empty()),
            families: families(&release),
            program: std::env::current_exe().unwrap_or_default(),
            uid: rustix::process::geteuid().as_raw(),
            sys_admin: has_capability(&status, CAP_SYS_ADMIN),
            ids_mapped: pool_in(&uid_map).is_some(),
            landlock_abi: hotcell_jail::landlock_abi(),
            lsm: lsm(),
            apparmor_restricts: sysctl("kernel/apparmor_restrict_unprivileged_userns") == Some(1),
            userns_clone_off: sysctl("kernel/unprivileged_userns_clone") == Some(0),
            forbidden_namespaces: forbidden_namespaces(),
            memfd_noexec: sysctl("vm/memfd_noexec").and_then(|n| n.try_into().ok()).unwrap_or(0),
            seccomp_filters: text("/proc/sys/kernel/seccomp/actions_avail")
                .split_whitespace()
                .any(|action| action == "user_notif"),
            open_files: getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX),
            under_seccomp: field(&status, "Seccomp:") == Some("2"),
            container: container(&Marks::of_this_host()),
            wsl: is_wsl(&kernel),
            chrooted: is_chrooted(&mountinfo),
            masked_proc: masked_proc(&mountinfo),
            missing_controllers: match cgroups {
                CgroupSearch::Search => {
                    Cgroups::find().err().map(|e| e.missing).unwrap_or_default()
                }
                CgroupSearch::Skip => Vec::new(),
            },
            kernel,
        }
    }

    /// Major and minor; zeros where the release does not begin with them.
    pub fn kernel_version(&self) -> (u32, u32) {
        let mut numbers = self.kernel.split(|c: char| !c.is_ascii_digit()).map(str::parse);
        let mut next = || numbers.next().and_then(Result::ok).unwrap_or(0);
        (next(), next())
    }
}

/// Whether to look for a place for cgroups: only worth it where a run had none, as on v2 looking may
/// move this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CgroupSearch {
    Search,
    Skip,
}

/// As text, empty if it cannot be read: nothing here is needed.
fn text(path: impl AsRef<Path>) -> String {
    let mut bytes = Vec::new();
    let read = fs::File::open(path).and_then(|file| file.take(MOST).read_to_end(&mut bytes));
    read.map(|_| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

fn sysctl(name: &str) -> Option<u64> {
    text(Path::new("/proc/sys").join(name)).trim().parse().ok()
}

fn lsm() -> Option<Vec<String>> {
    let list = text("/sys/kernel/security/lsm");
    Some(list.trim().split(',').map(str::to_owned).collect()).filter(|_| !list.is_empty())
}

fn forbidden_namespaces() -> Vec<Layer> {
    let forbidden = |name: &str| sysctl(&format!("user/max_{name}_namespaces")) == Some(0);
    LIMITS.into_iter().filter(|(name, _)| forbidden(name)).map(|(_, layer)| layer).collect()
}

/// The kernel's name for the namespaces of a layer, as in `user.max_NAME_namespaces`.
pub(super) fn kernel_name(layer: Layer) -> Option<&'static str> {
    LIMITS.into_iter().find(|(_, of)| *of == layer).map(|(name, _)| name)
}

/// The first word after a name in `/proc/self/status`.
fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()
}

fn has_capability(status: &str, number: u32) -> bool {
    let effective = field(status, "CapEff:").and_then(|hex| u64::from_str_radix(hex, 16).ok());
    effective.is_some_and(|sets| sets >> number & 1 == 1)
}

/// The first value of a name in os-release.
fn os_release(text: &str, name: &str) -> Option<String> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))?;
    Some(line.trim_matches(['"', '\'']).to_owned())
}

fn families(release: &str) -> Vec<String> {
    let lists = ["ID", "ID_LIKE"].map(|name| os_release(release, name).unwrap_or_default());
    lists.iter().flat_map(|list| list.split_whitespace()).map(str::to_owned).collect()
}

fn is_wsl(kernel: &str) -> bool {
    kernel.to_ascii_lowercase().contains("microsoft")
}

/// What containers leave lying about.
#[derive(Debug, Default)]
struct Marks {
    dockerenv: bool,
    containerenv: bool,
    kubernetes: bool,
    lxc: bool,
    /// What systemd was told.
    systemd: String,
}

impl Marks {
    fn of_this_host() -> Marks {
        Marks {
            dockerenv: Path::new("/.dockerenv").exists(),
            containerenv: Path::new("/run/.containerenv").exists(),
            kubernetes: Path::new("/var/run/secrets/kubernetes.io").exists(),
            lxc: Path::new("/dev/lxd").exists() || Path::new("/dev/lxc").exists(),
            systemd: text("/run/systemd/container").trim().to_owned(),
        }
    }
}

fn container(marks: &Marks) -> Option<Container> {
    match marks.systemd.as_str() {
        "docker" => return Some(Container::Docker),
        "podman" => return Some(Container::Podman),
        "lxc" | "lxc-libvirt" => return Some(Container::Lxc),
        // WSL says so itself, and masks nothing.
        "" | "wsl" => {}
        _ => return Some(Container::Other),
    }
    // The orchestrator before its runtime: it is what has to be told.
    match marks {
        Marks { kubernetes: true, .. } => Some(Container::Kubernetes),
        Marks { containerenv: true, .. } => Some(Container::Podman),
        Marks { dockerenv: true, .. } => Some(Container::Docker),
        Marks { lxc: true, .. } => Some(Container::Lxc),
        _ => None,
    }
}

/// In a chroot nothing is mounted at `/`, unless a mount was what was changed into: then only root can
/// tell, by looking at the first process.
fn is_chrooted(mountinfo: &str) -> bool {
    let identity = |path| fs::metadata(path).map(|m| (m.dev(), m.ino())).ok();
    let differs = match (identity("/proc/1/root/"), identity("/")) {
        (Some(first), Some(own)) => first != own,
        _ => false,
    };
    differs || (!mountinfo.is_empty() && !mount_points(mountinfo).any(|point| point == "/"))
}

fn mount_points(mountinfo: &str) -> impl Iterator<Item = &str> {
    mountinfo.lines().filter_map(|line| line.split(' ').nth(4))
}

/// What is mounted below the /proc that is seen. One such mount is enough for the kernel to refuse a
/// new /proc to whoever did not make it. What systemd mounts on an empty directory hides nothing.
fn masked_proc(mountinfo: &str) -> Vec<PathBuf> {
    let below = mount_points(mountinfo).filter(|point| point.starts_with("/proc/"));
    let hides = |point: &&str| *point != "/proc/sys/fs/binfmt_misc";
    below.filter(hides).map(PathBuf::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_tells_capabilities_and_filters() {
        let status = "Name:\tx\nCapEff:\t000001fffeffffff\nSeccomp:\t2\nSeccomp_filters:\t1\n";
        assert!(has_capability(status, CAP_SYS_ADMIN));
        assert!(!has_capability(status, 24));
        assert!(!has_capability("CapEff:\t0000000000000000\n", CAP_SYS_ADMIN));
        assert!(!has_capability("CapEff:\tnonsense\n", CAP_SYS_ADMIN));
        assert_eq!(field(status, "Seccomp:"), Some("2"));
        assert_eq!(field("", "Seccomp:"), None);
    }

    #[test]
    fn mounts_over_parts_of_proc_are_seen() {
        let info = "22 27 0:21 / /proc rw - proc proc rw\n\
                    60 22 0:5 /null /proc/kcore rw - tmpfs tmpfs rw\n\
                    61 22 0:50 / /proc/acpi ro - tmpfs tmpfs ro\n\
                    62 22 0:51 / /proc/sys/fs/binfmt_misc rw - autofs systemd-1 rw\n\
                    63 27 0:52 / /process rw - tmpfs tmpfs rw\n\nodd\n";
        assert_eq!(masked_proc(info), [PathBuf::from("/proc/kcore"), "/proc/acpi".into()]);
        assert!(masked_proc("").is_empty());
    }

    #[test]
    fn a_chroot_has_no_mount_at_its_root() {
        assert!(is_chrooted("22 27 0:21 / /proc rw - proc proc rw\n"));
    }

    #[test]
    fn containers_are_told_by_their_marks() {
        let check = |marks: Marks, expected| assert_eq!(container(&marks), expected, "{marks:?}");
        let none = Marks::default;
        check(none(), None);
        check(Marks { dockerenv: true, ..none() }, Some(Container::Docker));
        check(Marks { containerenv: true, ..none() }, Some(Container::Podman));
        check(Marks { dockerenv: true, kubernetes: true, ..none() }, Some(Container::Kubernetes));
        check(Marks { lxc: true, ..none() }, Some(Container::Lxc));
        check(Marks { systemd: "lxc".into(), ..none() }, Some(Container::Lxc));
        check(Marks { systemd: "systemd-nspawn".into(), ..none() }, Some(Container::Other));
        check(Marks { systemd: "wsl".into(), ..none() }, None);
    }

    #[test]
    fn the_distribution_is_named_as_it_names_itself() {
        let text =
            "NAME=x\nPRETTY_NAME=\"Linux Mint 22\"\nID=linuxmint\nID_LIKE=\"ubuntu debian\"\n";
        assert_eq!(os_release(text, "PRETTY_NAME").as_deref(), Some("Linux Mint 22"));
        assert_eq!(families(text), ["linuxmint", "ubuntu", "debian"]);
        assert_eq!(families("ID='alpine'\n"), ["alpine"]);
        assert_eq!((os_release("", "ID"), families("")), (None, vec![]));
    }

    #[test]
    fn this_host_can_be_read() {
        let facts = HostFacts::of_this_host(CgroupSearch::Skip);
        assert!(facts.kernel_version() > (4, 0), "{facts:?}");
        assert_eq!(facts.uid, rustix::process::geteuid().as_raw());
        assert!(facts.program.is_absolute());
    }
}
