//! Reads back every layer of the program's process from outside, before it is let go. Nothing that
//! the process says of itself counts, but for the Landlock sentinel, which no file shows: that is
//! tried by our own code before any byte of the job is looked at.

use core::mem::MaybeUninit;

use rustix::fd::AsFd;
use rustix::fs::RawDir;
use rustix::io::Errno;

use crate::cell::own;
use crate::fail::{At, Done, require};
use crate::place;
use crate::proc::{self, HostProc, MAX_FILE, Path, Process};
use crate::wire::{Order, Seen, Setup, Step};

/// Mounts that each run adds to the tree: the cell and its three places.
const OWN_WRITABLE: u32 = 4;

/// What must be seen.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Expected<'a> {
    pub(crate) order: Order<'a>,
    pub(crate) setup: Setup,
    pub(crate) drops_groups: bool,
    /// Of the launcher itself.
    pub(crate) namespaces: [u64; 7],
    /// Of the zygote that it was forked from.
    pub(crate) origin: Option<[u64; 7]>,
    /// Of the cell inside which it was made.
    pub(crate) within: Option<[u64; 7]>,
    pub(crate) tree_mounts: u32,
    pub(crate) landlock_denied: bool,
}

/// Looks at everything and refuses at the first thing that is not as it has to be.
pub(crate) fn attest(host: &HostProc, pidfd: impl AsFd, expected: &Expected<'_>) -> Done<Seen> {
    let process = host.behind(pidfd).at(Step::AttestNamespaces)?;
    let mut buffer = [0; MAX_FILE];
    let mut seen = Seen { landlock_denied: expected.landlock_denied, ..Seen::default() };
    require(seen.landlock_denied, Step::AttestLandlock)?;
    if !expected.setup.bare {
        namespaces(&process, expected, &mut seen)?;
        mounts(&process, expected, &mut buffer, &mut seen)?;
    }
    if expected.order.proxied {
        listeners(&process, expected, &mut buffer, &mut seen)?;
    }
    status(&process, expected, &mut buffer, &mut seen)?;
    cgroup(&process, expected, &mut buffer, &mut seen)?;
    limits(&process, expected, &mut buffer, &mut seen)?;
    session(&process, &mut buffer, &mut seen)?;
    descriptors(&process, expected, &mut buffer, &mut seen)?;
    Ok(seen)
}

fn namespaces(process: &Process, expected: &Expected<'_>, seen: &mut Seen) -> Done {
    seen.namespaces = process.namespaces().at(Step::AttestNamespaces)?;
    for others in [Some(expected.namespaces), expected.origin].into_iter().flatten() {
        for (theirs, other) in seen.namespaces.iter().zip(others) {
            require(*theirs != other, Step::AttestNamespaces)?;
        }
    }
    match &expected.within {
        Some(around) => require(is_within(&seen.namespaces, around), Step::AttestNamespaces),
        None => Ok(()),
    }
}

/// Whether it has together with the cell around it what it has to, and the rest for itself.
fn is_within(own: &[u64; 7], around: &[u64; 7]) -> bool {
    /// user, mnt, pid, net, ipc, uts, cgroup
    const SHARED: [bool; 7] = [true, false, false, true, true, true, false];
    own.iter().zip(around).zip(SHARED).all(|((own, around), shared)| (own == around) == shared)
}

fn status(process: &Process, expected: &Expected<'_>, buffer: &mut [u8], seen: &mut Seen) -> Done {
    read_status(process.read(c"status", buffer).at(Step::AttestStatus)?, expected, seen)
}

fn read_status(text: &[u8], expected: &Expected<'_>, seen: &mut Seen) -> Done {
    seen.uid = same_ids(text, b"Uid:")?;
    seen.gid = same_ids(text, b"Gid:")?;
    let ids = seen.uid == expected.order.outer_uid && seen.gid == expected.order.outer_gid;
    require(ids, Step::AttestIds)?;
    require(!expected.drops_groups || groups_are(text, seen.gid), Step::AttestIds)?;
    // Without a user namespace the bounding set cannot be emptied; no_new_privs makes it moot.
    let bounding = (!expected.setup.bare).then_some(&b"CapBnd:"[..]);
    let sets = [&b"CapInh:"[..], b"CapPrm:", b"CapEff:", b"CapAmb:"];
    for set in sets.into_iter().chain(bounding) {
        // A set that cannot be read counts as full.
        let set = proc::field(text, set).and_then(proc::hexadecimal).unwrap_or(u64::MAX);
        seen.capabilities |= set;
    }
    require(seen.capabilities == 0, Step::Capabilities)?;
    seen.no_new_privs = proc::field(text, b"NoNewPrivs:") == Some(b"1");
    require(seen.no_new_privs, Step::NoNewPrivs)?;
    require(proc::field(text, b"Seccomp:") == Some(b"2"), Step::Seccomp)?;
    // Older kernels do not count the filters.
    let filters = proc::field(text, b"Seccomp_filters:").and_then(proc::number).unwrap_or(1);
    seen.seccomp_filters = u32::try_from(filters).unwrap_or(u32::MAX);
    Ok(())
}

/// The id, when the real, effective, saved and file system ones are all the same.
fn same_ids(text: &[u8], name: &[u8]) -> Done<u32> {
    let line = proc::field(text, name).unwrap_or_default();
    let mut ids = proc::words(line).map(proc::number);
    let first = ids.next().flatten().and_then(|id| u32::try_from(id).ok());
    let same = ids.all(|id| id.is_some() && id == first.map(u64::from));
    require(same && first.is_some(), Step::AttestIds)?;
    Ok(first.unwrap_or(u32::MAX))
}

/// No supplementary group but the run's own.
fn groups_are(text: &[u8], own: u32) -> bool {
    let line = proc::field(text, b"Groups:").unwrap_or_default();
    proc::words(line).all(|group| proc::number(group) == Some(u64::from(own)))
}

fn mounts(process: &Process, expected: &Expected<'_>, buffer: &mut [u8], seen: &mut Seen) -> Done {
    let text = process.read(c"mountinfo", buffer).at(Step::AttestMounts)?;
    let mut root_seen = false;
    let (mut proc_mounts, mut proxy_mounts) = (0, 0);
    for line in proc::lines(text) {
        let mut fields = proc::words(line).skip(4);
        let point = fields.next().unwrap_or_default();
        let options = fields.next().unwrap_or_default();
        seen.mounts += 1;
        let has_nosuid = options.split(|&b| b == b',').any(|option| option == b"nosuid");
        require(has_nosuid, Step::AttestMounts)?;
        proc_mounts += u32::from(point == place::PROC.to_bytes());
        if options.starts_with(b"ro,") || options == b"ro" {
            root_seen |= point == b"/";
            proxy_mounts += u32::from(point == place::PROXY.to_bytes());
        } else {
            seen.writable_mounts += 1;
            let own = [place::CELL, place::WORK, place::TMP, place::SHM];
            require(own.iter().any(|p| p.to_bytes() == point), Step::AttestMounts)?;
        }
    }
    // The run's own /proc lies over the spawner's.
    seen.proc_mounted = proc_mounts == 2;
    require(seen.proc_mounted == expected.setup.proc, Step::AttestMounts)?;
    require(root_seen, Step::AttestMounts)?;
    require(seen.writable_mounts == OWN_WRITABLE, Step::AttestMounts)?;
    let proxied = u32::from(expected.order.proxied);
    require(proxy_mounts == proxied, Step::AttestMounts)?;
    let all = expected.tree_mounts + OWN_WRITABLE + u32::from(expected.setup.proc) + proxied;
    require(seen.mounts == all, Step::AttestMounts)
}

/// The sockets of the way out listen where they have to, in the network namespace of this process.
fn listeners(
    process: &Process,
    expected: &Expected<'_>,
    buffer: &mut [u8],
    seen: &mut Seen,
) -> Done {
    let text = process.read(c"net/unix", buffer).at(Step::AttestProxy)?;
    seen.listeners += proc::lines(text).filter(|line| is_proxy(line)).count() as u32;
    if expected.order.loopback {
        let text = process.read(c"net/tcp", buffer).at(Step::AttestProxy)?;
        seen.listeners += proc::lines(text).filter(|line| is_proxy_port(line)).count() as u32;
    }
    require(seen.listeners as usize == expected.order.listeners(), Step::AttestProxy)
}

/// number, references, protocol, flags, type, state, inode, path
fn is_proxy(line: &[u8]) -> bool {
    const ACCEPTS: &[u8] = b"00010000";
    let mut fields = proc::words(line).skip(3);
    fields.next() == Some(ACCEPTS) && fields.nth(3) == Some(place::PROXY_SOCKET.to_bytes())
}

/// number, local address, remote address, state
fn is_proxy_port(line: &[u8]) -> bool {
    /// 127.0.0.1, as the number that its bytes are.
    const LOCALHOST: &[u8] = b"0100007F:";
    const LISTENS: &[u8] = b"0A";
    let mut fields = proc::words(line).skip(1);
    let port = fields.next().and_then(|at| at.strip_prefix(LOCALHOST)).and_then(proc::hexadecimal);
    port == Some(u64::from(place::PROXY_PORT)) && fields.nth(1) == Some(LISTENS)
}

fn cgroup(process: &Process, expected: &Expected<'_>, buffer: &mut [u8], seen: &mut Seen) -> Done {
    let wanted = expected.order.entrance.descriptors() as u32;
    if wanted == 0 {
        return Ok(());
    }
    read_cgroups(process.read(c"cgroup", buffer).at(Step::AttestCgroup)?, expected, seen)
}

fn read_cgroups(text: &[u8], expected: &Expected<'_>, seen: &mut Seen) -> Done {
    let wanted = expected.order.entrance.descriptors() as u32;
    let name = expected.order.cgroup_name;
    require(!name.is_empty(), Step::AttestCgroup)?;
    for line in proc::lines(text) {
        let above = line.strip_suffix(name).unwrap_or_default();
        seen.cgroups += u32::from(above.ends_with(b"/"));
    }
    require(seen.cgroups >= wanted, Step::AttestCgroup)
}

fn limits(process: &Process, expected: &Expected<'_>, buffer: &mut [u8], seen: &mut Seen) -> Done {
    read_limits(process.read(c"limits", buffer).at(Step::AttestRlimits)?, expected, seen)
}

fn read_limits(text: &[u8], expected: &Expected<'_>, seen: &mut Seen) -> Done {
    // The host may have set a lower one, which stays.
    let of = |name: &[u8]| {
        let line = proc::field(text, name).unwrap_or_default();
        let mut words = proc::words(line).map(proc::number);
        Some((words.next().flatten()?, words.next().flatten()?))
    };
    let at_most = |name: &[u8], value: u64| {
        of(name).filter(|&(soft, hard)| soft == hard && hard <= value).map(|(_, hard)| hard)
    };
    let limits = &expected.order.limits;
    for (name, value) in [
        (&b"Max core file size"[..], 0),
        (b"Max nice priority", 0),
        (b"Max realtime priority", 0),
        (b"Max locked memory", own::LOCKED),
        (b"Max pending signals", own::PENDING),
        (b"Max msgqueue size", own::QUEUES),
        (b"Max file size", limits.file_bytes),
    ] {
        require(at_most(name, value).is_some(), Step::AttestRlimits)?;
    }
    for (name, value) in
        [(&b"Max data size"[..], limits.data_bytes), (b"Max processes", limits.processes)]
    {
        require(value == 0 || at_most(name, value).is_some(), Step::AttestRlimits)?;
    }
    let seconds = limits.cpu_seconds;
    let cpu = of(b"Max cpu time")
        .filter(|&(soft, hard)| soft <= seconds && hard <= seconds.saturating_add(1));
    require(seconds == 0 || cpu.is_some(), Step::AttestRlimits)?;
    let open_files = at_most(b"Max open files", limits.open_files);
    require(open_files.is_some(), Step::AttestRlimits)?;
    seen.open_files = open_files.unwrap_or(0);
    Ok(())
}

/// Leader of a session of its own, without a terminal.
fn session(process: &Process, buffer: &mut [u8], seen: &mut Seen) -> Done {
    let text = process.read(c"stat", buffer).at(Step::AttestSession)?;
    let after_name = text.rsplit(|&b| b == b')').next().unwrap_or_default();
    // state, parent, group, session, terminal
    let mut fields = proc::words(after_name).skip(3);
    let session = fields.next().and_then(proc::number);
    let terminal = fields.next().and_then(proc::number);
    seen.own_session = session == Some(process.pid) && terminal == Some(0);
    require(seen.own_session, Step::AttestSession)
}

/// Only 0, 1 and 2 stay open across the start of the program: the others close themselves. Where nothing
/// is executed, there are no others.
fn descriptors(
    process: &Process,
    expected: &Expected<'_>,
    buffer: &mut [u8],
    seen: &mut Seen,
) -> Done {
    let dir = process.open_dir(c"fd").at(Step::AttestDescriptors)?;
    let mut space = [MaybeUninit::uninit(); 2048];
    let mut entries = RawDir::new(&dir, &mut space);
    while let Some(entry) = entries.next() {
        let entry = entry.at(Step::AttestDescriptors)?;
        let Some(number) = proc::number(entry.file_name().to_bytes()) else { continue };
        if number <= 2 {
            seen.descriptors += 1;
        } else {
            require(expected.origin.is_none(), Step::AttestDescriptors)?;
            let closes = closed_on_exec(process, number, buffer).at(Step::AttestDescriptors)?;
            require(closes, Step::AttestDescriptors)?;
        }
    }
    require(seen.descriptors == 3, Step::AttestDescriptors)
}

fn closed_on_exec(process: &Process, number: u64, buffer: &mut [u8]) -> rustix::io::Result<bool> {
    const O_CLOEXEC: u64 = 0o2_000_000;
    let path = Path::of(format_args!("fdinfo/{number}"))?;
    let text = match process.read(path.as_c()?, buffer) {
        // It has sent the filter's listener and closes its own copy about now.
        Err(Errno::NOENT) => return Ok(true),
        other => other?,
    };
    let flags = proc::field(text, b"flags:").and_then(proc::octal).unwrap_or(0);
    Ok(flags & O_CLOEXEC != 0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wire::{Entrance, Limits};

    #[test]
    fn ids_count_only_when_all_four_are_the_same() {
        for (line, id) in [
            (&b"Uid:\t1000\t1000\t1000\t1000\n"[..], Some(1000)),
            (b"Uid:\t1000\t1000\t0\t1000\n", None),
            (b"Uid:\t\n", None),
            (b"Uid:\t-1\t-1\t-1\t-1\n", None),
            (b"Gid:\t1\t1\t1\t1\n", None),
            (b"", None),
        ] {
            assert_eq!(same_ids(line, b"Uid:").ok(), id, "{}", line.escape_ascii());
        }
    }

    #[test]
    fn inside_a_kept_cell_processes_mounts_and_cgroups_are_its_own_and_the_rest_is_shared() {
        let around = [1, 2, 3, 4, 5, 6, 7];
        assert!(is_within(&[1, 12, 13, 4, 5, 6, 17], &around));
        for index in 0..around.len() {
            let mut own = [1, 12, 13, 4, 5, 6, 17];
            own[index] = if own[index] == around[index] { 99 } else { around[index] };
            assert!(!is_within(&own, &around), "{index}");
        }
    }

    #[test]
    fn a_supplementary_group_other_than_the_runs_own_is_seen() {
        assert!(groups_are(b"Groups:\t \n", 7));
        assert!(groups_are(b"Groups:\t7 \n", 7));
        assert!(!groups_are(b"Groups:\t7 27 \n", 7));
        assert!(!groups_are(b"Groups:\tx\n", 7));
    }

    #[test]
    fn only_what_listens_at_its_own_place_is_the_way_out() {
        let unix = |flags, path| {
            format!("0000000000000000: 00000002 00000000 {flags} 0001 01 4711 {path}").into_bytes()
        };
        assert!(is_proxy(&unix("00010000", "/run/hotcell/proxy.sock")));
        assert!(!is_proxy(&unix("00000000", "/run/hotcell/proxy.sock")));
        assert!(!is_proxy(&unix("00010000", "@/run/hotcell/proxy.sock")));
        assert!(!is_proxy(b"Num       RefCount Protocol Flags    Type St Inode Path"));
        for (line, expected) in [
            (&b"   0: 0100007F:0C38 00000000:0000 0A 00000000:00000000 00:0"[..], true),
            (b"   0: 00000000:0C38 00000000:0000 0A 00000000:00000000 00:0", false),
            (b"   0: 0100007F:0C38 0100007F:9999 01 00000000:00000000 00:0", false),
            (b"   0: 0100007F:0C39 00000000:0000 0A 00000000:00000000 00:0", false),
            (b"  sl  local_address rem_address   st tx_queue rx_queue tr tm", false),
        ] {
            assert_eq!(is_proxy_port(line), expected, "{}", line.escape_ascii());
        }
    }

    fn expected() -> Expected<'static> {
        let limits = Limits {
            file_bytes: 4096,
            open_files: 64,
            data_bytes: 8192,
            processes: 32,
            cpu_seconds: 5,
            ..Limits::default()
        };
        let order = Order {
            outer_uid: 7,
            outer_gid: 8,
            limits,
            entrance: Entrance { born: true, joins: 1 },
            cgroup_name: b"hotcell-1/2",
            loopback: false,
            proxied: false,
            brings_places: false,
            zygote: 0,
            keeps: 0,
            inside: 0,
            #[cfg(feature = "holes")]
            holes: 0,
        };
        Expected {
            order,
            setup: Setup { user_namespace: false, proc: true, bare: false },
            drops_groups: true,
            namespaces: [0; 7],
            origin: None,
            within: None,
            tree_mounts: 0,
            landlock_denied: true,
        }
    }

    type Check = fn(&[u8], &Expected<'_>, &mut Seen) -> Done;

    /// All as it has to be is seen so, and with any one line otherwise, or without it, there is no run.
    fn table(check: Check, good: &str, wrong: &[(&str, Step)]) {
        let outcome = |text: &str| check(text.as_bytes(), &expected(), &mut Seen::default());
        assert!(outcome(good).is_ok());
        for (line, step) in wrong {
            let name = line.split_inclusive(':').next().unwrap_or(line);
            let name =
                if line.starts_with("Max") { line.split("  ").next().unwrap() } else { name };
            let kept = good.lines().filter(|line| !line.starts_with(name));
            let without: String = kept.map(|line| format!("{line}\n")).collect();
            assert!(without.len() < good.len(), "{name}");
            for text in [format!("{without}{line}\n"), without] {
                let failed = outcome(&text).expect_err(line);
                assert_eq!(failed.step, *step, "{line}");
            }
        }
    }

    #[test]
    fn a_status_that_is_not_as_it_has_to_be_is_refused_line_by_line() {
        let good = "Uid:\t7\t7\t7\t7\nGid:\t8\t8\t8\t8\nGroups:\t8 \nNoNewPrivs:\t1\nSeccomp:\t2\n\
                    CapInh:\t0\nCapPrm:\t0\nCapEff:\t0\nCapBnd:\t0\nCapAmb:\t0\n";
        table(
            read_status,
            good,
            &[
                ("Uid:\t7\t7\t0\t7", Step::AttestIds),
                ("Uid:\t9\t9\t9\t9", Step::AttestIds),
                ("Gid:\t8\t8\t8\t0", Step::AttestIds),
                ("CapInh:\t1", Step::Capabilities),
                ("CapPrm:\t1", Step::Capabilities),
                ("CapEff:\t1", Step::Capabilities),
                ("CapBnd:\t1", Step::Capabilities),
                ("CapAmb:\t1", Step::Capabilities),
                ("NoNewPrivs:\t0", Step::NoNewPrivs),
                ("Seccomp:\t0", Step::Seccomp),
                ("Seccomp:\t1", Step::Seccomp),
            ],
        );
        let more = good.replace("Groups:\t8 ", "Groups:\t8 27 ");
        let refused = read_status(more.as_bytes(), &expected(), &mut Seen::default());
        assert_eq!(refused.unwrap_err().step, Step::AttestIds);
    }

    #[test]
    fn a_limit_that_is_not_as_it_has_to_be_is_refused_one_by_one() {
        let good = "Max core file size  0  0  bytes\nMax nice priority  0  0\n\
                    Max realtime priority  0  0\nMax locked memory  65536  65536  bytes\n\
                    Max pending signals  1024  1024  signals\nMax msgqueue size  65536  65536  bytes\n\
                    Max file size  4096  4096  bytes\nMax data size  8192  8192  bytes\n\
                    Max processes  32  32  processes\nMax cpu time  5  6  seconds\n\
                    Max open files  64  64  files\n";
        table(
            read_limits,
            good,
            &[
                ("Max core file size  0  unlimited  bytes", Step::AttestRlimits),
                ("Max nice priority  20  20", Step::AttestRlimits),
                ("Max realtime priority  0  99", Step::AttestRlimits),
                ("Max locked memory  65536  65537  bytes", Step::AttestRlimits),
                ("Max pending signals  1025  1025  signals", Step::AttestRlimits),
                ("Max msgqueue size  unlimited  unlimited  bytes", Step::AttestRlimits),
                ("Max file size  4096  8192  bytes", Step::AttestRlimits),
                ("Max data size  8192  unlimited  bytes", Step::AttestRlimits),
                ("Max processes  33  33  processes", Step::AttestRlimits),
                ("Max cpu time  6  6  seconds", Step::AttestRlimits),
                ("Max cpu time  5  7  seconds", Step::AttestRlimits),
                ("Max open files  65  65  files", Step::AttestRlimits),
            ],
        );
    }

    #[test]
    fn membership_of_another_cgroup_is_refused() {
        let check = |text: &str| read_cgroups(text.as_bytes(), &expected(), &mut Seen::default());
        assert!(check("4:memory:/a/hotcell-1/2\n0::/b/hotcell-1/2\n").is_ok());
        for wrong in [
            "4:memory:/a/hotcell-1/2\n0::/\n",
            "4:memory:/a/hotcell-1/3\n0::/b/hotcell-1/2\n",
            "4:memory:/a/hotcell-1/2/x\n0::/b/hotcell-1/2\n",
            "",
        ] {
            assert_eq!(check(wrong).unwrap_err().step, Step::AttestCgroup, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn garbage_never_panics(text in proptest::collection::vec(any::<u8>(), 0..300)) {
            is_proxy(&text);
            is_proxy_port(&text);
            same_ids(&text, b"Uid:").ok();
            groups_are(&text, 1);
        }
    }
}
