//! Hosts that nobody has all at hand, as data: facts and what a run came to in, level, reason and
//! command out.

use std::path::Path;

use hotcell_types::{Layer, LayerReport, Level};

use super::*;
use crate::cgroup::Missing;
use crate::lang::Language;

/// An ordinary, well-made machine, seen by root.
fn debian() -> HostFacts {
    HostFacts {
        kernel: "6.1.0-28-amd64".into(),
        distribution: Some("Debian GNU/Linux 12 (bookworm)".into()),
        families: words("debian"),
        program: "/usr/local/bin/hotcell".into(),
        uid: 0,
        sys_admin: true,
        ids_mapped: true,
        landlock_abi: Some(2),
        lsm: Some(words("capability,landlock,yama,apparmor")),
        apparmor_restricts: false,
        userns_clone_off: false,
        forbidden_namespaces: vec![],
        memfd_noexec: 0,
        seccomp_filters: true,
        open_files: 524_288,
        under_seccomp: false,
        container: None,
        wsl: false,
        chrooted: false,
        masked_proc: vec![],
        missing_controllers: vec![],
    }
}

/// The same for an ordinary user.
fn user() -> HostFacts {
    HostFacts { uid: 1000, sys_admin: false, ..debian() }
}

fn ubuntu_24_04() -> HostFacts {
    HostFacts {
        kernel: "6.8.0-49-generic".into(),
        distribution: Some("Ubuntu 24.04.1 LTS".into()),
        landlock_abi: Some(4),
        apparmor_restricts: true,
        ..user()
    }
}

fn docker() -> HostFacts {
    HostFacts {
        sys_admin: false,
        under_seccomp: true,
        container: Some(Container::Docker),
        masked_proc: paths("/proc/acpi,/proc/kcore,/proc/keys,/proc/sys"),
        missing_controllers: missing("`/sys/fs/cgroup` is mounted read-only"),
        ..debian()
    }
}

fn words(list: &str) -> Vec<String> {
    list.split(',').map(str::to_owned).collect()
}

fn paths(list: &str) -> Vec<std::path::PathBuf> {
    list.split(',').map(Into::into).collect()
}

fn missing(why: &str) -> Vec<Missing> {
    let one = |controller| Missing { controller, why: why.into(), fix: "give cgroups".into() };
    ["memory", "pids", "cpu"].map(one).into()
}

/// A run with everything that a level has.
fn ran(level: Level) -> Trial {
    let report = |layer: Layer| LayerReport {
        layer,
        active: layer.since() <= level,
        seen: "as it was read back".into(),
    };
    Trial::Ran { level, layers: Layer::ALL.map(report).into() }
}

fn refused(layer: Layer) -> Trial {
    Trial::Refused { layer: Some(layer), why: "what the launcher said".into(), fix: String::new() }
}

struct Expected {
    level: Option<Level>,
    /// Of the first obstacle; empty where there is none.
    reason: &'static str,
    /// In its explanation.
    why: &'static str,
    /// In its command.
    fix: &'static str,
}

fn check(host: &str, facts: &HostFacts, trial: &Trial, expected: &Expected) {
    let diagnosis = diagnose(facts, trial);
    assert_eq!(diagnosis.level, expected.level, "{host}");
    assert_eq!(diagnosis.layers.len(), Layer::ALL.len(), "{host}");
    let Some(next) = diagnosis.next else {
        assert_eq!(expected.reason, "", "{host}");
        return;
    };
    let first = next.obstacles.first().unwrap_or_else(|| panic!("{host}: nothing is in the way"));
    assert_eq!(first.reason.id(), expected.reason, "{host}: {first:?}");
    assert!(first.reason.why().contains(expected.why), "{host}: {}", first.reason.why());
    assert!(first.reason.fix().contains(expected.fix), "{host}: {}", first.reason.fix());
    let nameless = matches!(trial, Trial::Refused { layer: None, .. });
    assert_eq!(first.layers.is_empty(), nameless, "{host}");
}

#[test]
fn each_level_says_what_keeps_it_from_the_next() {
    let no_cgroups =
        HostFacts { missing_controllers: missing("it was not given memory"), ..user() };
    let masked = HostFacts { masked_proc: paths("/proc/kcore,/proc/acpi"), ..no_cgroups.clone() };
    let no_namespaces = HostFacts { userns_clone_off: true, ..no_cgroups.clone() };
    for (level, facts, reason, why, fix) in [
        (Level::Full, &debian(), "", "", ""),
        (Level::User, &user(), "not-root", "only root", "sudo hotcell run"),
        (Level::NoCgroup, &no_cgroups, "no-cgroup", "was not given memory", "give cgroups"),
        (Level::NoProc, &masked, "masked-proc", "/proc/kcore, /proc/acpi", "mountinfo"),
        (
            Level::LandlockOnly,
            &no_namespaces,
            "userns-clone-off",
            "only root may make user namespaces",
            "sysctl kernel.unprivileged_userns_clone=1",
        ),
    ] {
        let expected = Expected { level: Some(level), reason, why, fix };
        check(level.name(), facts, &ran(level), &expected);
    }
}

#[test]
fn every_kind_of_host_is_explained() {
    let none = |reason, why, fix| Expected { level: None, reason, why, fix };
    let at = |level, reason, why, fix| Expected { level: Some(level), reason, why, fix };
    let fedora = HostFacts {
        kernel: "6.11.6-300.fc41.x86_64".into(),
        lsm: Some(words("lockdown,capability,yama,selinux,bpf,landlock,ipe,ima,evm")),
        ..user()
    };
    let rhel_9 = HostFacts { kernel: "5.14.0-427.13.1.el9_4.x86_64".into(), ..user() };
    let rhel_9_off = HostFacts {
        landlock_abi: None,
        lsm: Some(words("lockdown,capability,yama,selinux,bpf")),
        ..rhel_9.clone()
    };
    let old = HostFacts { kernel: "5.10.0-33-amd64".into(), landlock_abi: None, ..debian() };
    let wsl = HostFacts {
        kernel: "6.6.87.2-microsoft-standard-WSL2".into(),
        lsm: None,
        wsl: true,
        missing_controllers: missing("no hierarchy that has it is mounted here"),
        ..user()
    };
    let wsl_off = HostFacts { landlock_abi: None, ..wsl.clone() };
    let docker_open =
        HostFacts { masked_proc: vec![], under_seccomp: false, uid: 1000, ..docker() };
    let docker_proc = HostFacts { masked_proc: paths("/proc/kcore"), ..docker_open.clone() };
    let podman = HostFacts {
        container: Some(Container::Podman),
        ids_mapped: false,
        under_seccomp: true,
        ..docker()
    };
    let kubernetes = HostFacts { container: Some(Container::Kubernetes), ..docker() };
    let lxc = HostFacts {
        container: Some(Container::Lxc),
        ids_mapped: false,
        sys_admin: true,
        under_seccomp: true,
        ..debian()
    };
    let ci = HostFacts {
        program: "/home/runner/work/hotcell/target/release/hotcell".into(),
        ..ubuntu_24_04()
    };
    let unit = HostFacts { under_seccomp: true, ..user() };
    let weak_root = HostFacts { sys_admin: false, ..debian() };
    let mapped_root = HostFacts { ids_mapped: false, ..debian() };
    let off = HostFacts { landlock_abi: None, lsm: Some(words("capability,yama")), ..debian() };
    let hidden = HostFacts { landlock_abi: None, ..docker() };
    let noexec = HostFacts { memfd_noexec: 2, ..debian() };
    let limits = HostFacts { forbidden_namespaces: vec![Layer::UserNamespace], ..user() };
    let net = HostFacts { forbidden_namespaces: vec![Layer::NetNamespace], ..user() };
    let chroot = HostFacts { chrooted: true, ..user() };
    let plain = HostFacts { seccomp_filters: false, ..debian() };
    let userns = refused(Layer::UserNamespace);
    let pid = refused(Layer::PidNamespace);
    for (host, facts, trial, expected) in [
        ("Debian", &debian(), &ran(Level::Full), at(Level::Full, "", "", "")),
        (
            "Ubuntu 24.04",
            &ubuntu_24_04(),
            &userns,
            none(
                "apparmor-userns",
                "AppArmor",
                "'  userns,' '}' | sudo tee /etc/apparmor.d/hotcell",
            ),
        ),
        // There the namespace can be made, and nothing can be done in it.
        (
            "Ubuntu 24.04, mount",
            &ubuntu_24_04(),
            &refused(Layer::MountNamespace),
            none("apparmor-userns", "profile", "apparmor_parser -r"),
        ),
        (
            "Ubuntu 24.04, bare",
            &ubuntu_24_04(),
            &ran(Level::LandlockOnly),
            at(
                Level::LandlockOnly,
                "apparmor-userns",
                "profile",
                "profile hotcell /usr/local/bin/hotcell",
            ),
        ),
        (
            "CI runner",
            &ci,
            &userns,
            none(
                "apparmor-userns",
                "AppArmor",
                "sudo install /home/runner/work/hotcell/target/release/hotcell /usr/local/bin/hotcell && ",
            ),
        ),
        ("Fedora", &fedora, &ran(Level::User), at(Level::User, "not-root", "", "")),
        ("RHEL 9", &rhel_9, &ran(Level::User), at(Level::User, "not-root", "", "")),
        (
            "RHEL 9 without Landlock",
            &rhel_9_off,
            &refused(Layer::Landlock),
            none(
                "landlock-off",
                "lockdown, capability, yama, selinux, bpf",
                "lsm=landlock,lockdown,yama,selinux,bpf`",
            ),
        ),
        (
            "kernel 5.10",
            &old,
            &refused(Layer::Landlock),
            none("old-kernel", "5.10.0-33-amd64", "linux-generic-hwe"),
        ),
        ("kernel 5.10, earlier", &old, &refused(Layer::Root), none("old-kernel", "5.13", "")),
        ("WSL2", &wsl, &ran(Level::NoCgroup), at(Level::NoCgroup, "no-cgroup", "", "give cgroups")),
        (
            "WSL2 without Landlock",
            &wsl_off,
            &refused(Layer::Landlock),
            none("landlock-off", "switched off", "wsl --update"),
        ),
        (
            "Docker",
            &docker(),
            &pid,
            none("container", "Docker", "docker run --security-opt seccomp=unconfined"),
        ),
        (
            "Docker, another user",
            &HostFacts { uid: 1000, ..docker() },
            &userns,
            none("container", "Docker", "apparmor=unconfined"),
        ),
        (
            "Docker without seccomp",
            &docker_proc,
            &ran(Level::NoProc),
            at(Level::NoProc, "masked-proc", "/proc/kcore", "systempaths=unconfined"),
        ),
        (
            "Docker, systempaths=unconfined",
            &docker_open,
            &ran(Level::NoCgroup),
            at(Level::NoCgroup, "no-cgroup", "read-only", ""),
        ),
        ("Podman rootless", &podman, &userns, none("container", "Podman", "unmask=ALL")),
        ("Kubernetes", &kubernetes, &pid, none("container", "Kubernetes", "procMount: Unmasked")),
        ("LXC", &lxc, &userns, none("container", "LXC", "security.nesting true")),
        ("a unit", &unit, &userns, none("under-seccomp", "filter", "RestrictNamespaces=no")),
        (
            "root without capabilities",
            &weak_root,
            &ran(Level::User),
            at(Level::User, "root-without-privileges", "CAP_SYS_ADMIN", "--cap-add=SYS_ADMIN"),
        ),
        (
            "root of a user namespace",
            &mapped_root,
            &userns,
            none("unmapped-ids", "ordinary user outside", ""),
        ),
        (
            "Landlock off",
            &off,
            &refused(Layer::Landlock),
            none("landlock-off", "capability, yama", "lsm=landlock,yama`"),
        ),
        (
            "Landlock hidden",
            &hidden,
            &refused(Layer::Landlock),
            none("landlock-hidden", "hides it", "seccomp=unconfined"),
        ),
        (
            "memfd_noexec",
            &noexec,
            &refused(Layer::Root),
            none("memfd-noexec", "vm.memfd_noexec is 2", "sysctl vm.memfd_noexec=1"),
        ),
        (
            "no user namespaces",
            &limits,
            &userns,
            none(
                "namespaces-forbidden",
                "user.max_user_namespaces is 0",
                "sysctl user.max_user_namespaces=",
            ),
        ),
        (
            "no network namespaces",
            &net,
            &pid,
            none("namespaces-forbidden", "", "sysctl user.max_net_namespaces="),
        ),
        (
            "Docker, keyrings",
            &docker(),
            &refused(Layer::Session),
            none("under-seccomp", "Docker put it under", "seccomp=unconfined"),
        ),
        (
            "few open files",
            &HostFacts { open_files: 256, ..debian() },
            &Trial::Refused { layer: None, why: "it went away".into(), fix: String::new() },
            none("few-open-files", "no more than 256", "ulimit -n 1024"),
        ),
        ("a chroot", &chroot, &userns, none("chroot", "in a chroot", "nspawn")),
        (
            "no filters",
            &plain,
            &refused(Layer::Seccomp),
            none("no-seccomp", "", "CONFIG_SECCOMP_FILTER"),
        ),
        (
            "something else",
            &debian(),
            &refused(Layer::Session),
            none("unexplained", "what the launcher said", "report it"),
        ),
    ] {
        check(host, facts, trial, &expected);
    }
}

#[test]
fn a_run_that_did_not_start_says_yes_only_to_what_the_kernel_answered_for() {
    let on = |facts: &HostFacts, failed| {
        let layers = diagnose(facts, &refused(failed)).layers;
        layers.into_iter().filter(|c| c.active).map(|c| c.layer).collect::<Vec<_>>()
    };
    let facts = HostFacts { missing_controllers: missing("closed"), ..ubuntu_24_04() };
    assert_eq!(on(&facts, Layer::UserNamespace), [Layer::Landlock, Layer::Seccomp]);
    assert_eq!(on(&facts, Layer::Seccomp), [Layer::Landlock]);
    let cgroups = [Layer::CgroupMemory, Layer::CgroupPids, Layer::CgroupCpu];
    assert_eq!(on(&ubuntu_24_04(), Layer::Landlock)[1..], cgroups);
    let trial = Trial::Refused { layer: None, why: "it went away".into(), fix: String::new() };
    let diagnosis = diagnose(&debian(), &trial);
    let next = diagnosis.next.unwrap();
    assert_eq!(next.obstacles[0].reason.why(), "it went away");
    assert!(diagnosis.layers[0].seen.starts_with("not tried"), "{:?}", diagnosis.layers[0]);
}

#[test]
fn without_namespaces_proc_is_off_for_their_reason() {
    let proc = |level| {
        let facts = HostFacts { masked_proc: paths("/proc/kcore"), ..ubuntu_24_04() };
        let layers = diagnose(&facts, &ran(level)).layers;
        layers.into_iter().find(|c| c.layer == Layer::Proc).and_then(|c| c.reason).map(|r| r.id())
    };
    assert_eq!(proc(Level::LandlockOnly), Some("apparmor-userns"));
    assert_eq!(proc(Level::NoProc), Some("masked-proc"));
    assert_eq!(proc(Level::NoCgroup), None);
}

#[test]
fn what_one_command_changes_is_said_once_and_different_ones_each() {
    let mut facts = HostFacts { missing_controllers: missing("closed"), ..user() };
    let obstacles =
        |facts: &HostFacts| diagnose(facts, &ran(Level::NoCgroup)).next.unwrap().obstacles;
    let all = [Layer::CgroupMemory, Layer::CgroupPids, Layer::CgroupCpu];
    assert_eq!(obstacles(&facts)[0].layers, all);
    assert_eq!(obstacles(&facts).len(), 1);
    facts.missing_controllers[1].fix = "another".into();
    assert_eq!(obstacles(&facts).len(), 2);
}

#[test]
fn a_profile_is_only_for_a_path_that_its_user_cannot_replace() {
    let fix = |program: &str| Reason::AppArmor { program: Path::new(program).into() }.fix();
    assert!(fix("/opt/hotcell/bin/hotcell").contains("profile hotcell /opt/hotcell/bin/hotcell f"));
    for odd in ["/usr/bin/hot'cell", "/usr/bin/hotcell (deleted)", "", "/usr/*/hotcell"] {
        let fix = fix(odd);
        assert!(fix.contains("`sudo install hotcell /usr/local/bin/hotcell && "), "{odd}: {fix}");
        assert!(fix.contains("profile hotcell /usr/local/bin/hotcell "), "{odd}: {fix}");
    }
}

#[test]
fn a_missing_interpreter_is_installed_as_the_distribution_does_it() {
    for (families, language, command) in [
        ("debian", Language::Python, "`sudo apt install python3`"),
        ("linuxmint,ubuntu,debian", Language::JavaScript, "`sudo apt install nodejs`"),
        ("rocky,rhel,centos,fedora", Language::JavaScript, "`sudo dnf install nodejs`"),
        ("alpine", Language::Shell, "`sudo apk add bash`"),
        ("arch", Language::Python, "`sudo pacman -S python`"),
        ("opensuse-leap,suse,opensuse", Language::Python, "`sudo zypper install python3`"),
        ("nixos", Language::Python, "install python3 from the distribution"),
    ] {
        let facts = HostFacts { families: words(families), ..debian() };
        assert_eq!(install(&facts, language), command, "{families}");
    }
}

/// docs/doctor.md has a heading for each reason, with what is said and what would help.
#[test]
fn every_reason_is_in_the_documentation() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/doctor.md");
    let docs = std::fs::read_to_string(docs).unwrap();
    for reason in samples() {
        let section = docs.split("\n### ").find(|s| s.starts_with(reason.id()));
        let section = section.unwrap_or_else(|| panic!("`{}` has no heading", reason.id()));
        for text in [reason.why(), reason.fix()] {
            assert!(section.contains(&text), "not under `{}`:\n{text}", reason.id());
        }
    }
}

/// Each reason at least once, in the wording of the documentation.
fn samples() -> Vec<Reason> {
    let containers = [
        Container::Docker,
        Container::Podman,
        Container::Kubernetes,
        Container::Lxc,
        Container::Other,
    ];
    let masked =
        |container| Reason::MaskedProc { container, masked: paths("/proc/kcore,/proc/acpi") };
    let mut samples = vec![
        Reason::OldKernel { release: "5.10.0-33-amd64".into() },
        Reason::LandlockOff { lsm: Some(words("capability,yama")), wsl: false },
        Reason::LandlockOff { lsm: None, wsl: true },
        Reason::LandlockHidden { container: None },
        Reason::NoSeccomp,
        Reason::FewOpenFiles { limit: 256 },
        Reason::MemfdNoexec,
        Reason::NamespacesForbidden { layer: Layer::UserNamespace },
        Reason::UsernsCloneOff,
        Reason::AppArmor { program: "/usr/local/bin/hotcell".into() },
        Reason::Chroot,
        Reason::UnderSeccomp { container: None },
        Reason::UnderSeccomp { container: Some(Container::Docker) },
        Reason::RootWithoutPrivileges,
        Reason::UnmappedIds,
        masked(None),
        Reason::NotRoot,
    ];
    samples.extend(containers.map(|container| Reason::Container { container }));
    samples.extend(containers.map(|container| masked(Some(container))));
    samples
}
