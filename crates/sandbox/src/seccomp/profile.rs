//! The profiles as data: what each system call may do.
//!
//! A call that is not mentioned, known or unknown, answers ENOSYS, so that run-times and libraries
//! take the path they have for older kernels. That is deliberate for, among others, clone3 and
//! openat2 in strict (their flags are behind a pointer, which a filter cannot follow), io_uring_setup
//! (libuv calls it at every start), the NUMA calls (allocators and BLAS libraries probe them), the
//! pidfd calls, System V and POSIX message queues, Landlock and seccomp itself: a program that could
//! add a filter could answer a reported call before the report and so hide it.
//!
//! Two numbers never reach a filter: newer x86_64 kernels answer uretprobe and uprobe themselves, with
//! SIGILL or an error to whoever is not a probe that the host's administrator has set.

use std::num::NonZeroU64;

use hotcell_types::Profile;

use super::table::Syscall;
use super::table::call::*;

/// What happens to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Verdict {
    Allow,
    /// Fails with this error number, and nobody is told.
    Errno(u16),
    /// The supervisor is notified, records the number and answers EPERM.
    Report,
    /// ENOSYS where nobody traces, and less than a report: of two filters the one that reports decides.
    Missing,
}

/// For everything that is not mentioned.
pub(super) const UNMENTIONED: Verdict = Verdict::Errno(errno::ENOSYS);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    Always(Verdict),
    /// The first rule that holds decides.
    ByArguments {
        rules: Vec<Rule>,
        otherwise: Verdict,
    },
}

/// Holds when all of its tests hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) tests: Vec<Test>,
    pub(super) then: Verdict,
}

/// About one argument, exact for what the kernel reads: most arguments are ints, of which the kernel
/// ignores the upper half of the register, and so must a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Test {
    /// The bits of `mask` in the lower half spell one of `values`.
    OneOf { argument: u8, mask: u32, values: &'static [u32] },
    /// The lower half has at least one bit of `mask`.
    AnyBit { argument: u8, mask: u32 },
    /// Both halves together.
    Exactly { argument: u8, value: u64 },
}

mod errno {
    pub(super) const EPERM: u16 = 1;
    pub(super) const EACCES: u16 = 13;
    pub(super) const EINVAL: u16 = 22;
    pub(super) const ENOTTY: u16 = 25;
    pub(super) const ENOSYS: u16 = 38;
    pub(super) const ENOPROTOOPT: u16 = 92;
    pub(super) const EPROTONOSUPPORT: u16 = 93;
    pub(super) const EAFNOSUPPORT: u16 = 97;
}

const EPERM: Verdict = Verdict::Errno(errno::EPERM);

/// The mentioned calls of a profile, each once.
///
/// `exec_key` is for [`exec_once`].
pub(super) fn actions(profile: Profile, exec_key: NonZeroU64) -> Vec<(Syscall, Action)> {
    let by_profile = match profile {
        Profile::Airlock => return airlock(exec_key),
        Profile::Strict => strict(exec_key),
        Profile::Standard | Profile::StandardNet => standard(),
    };
    let allowed = ALLOWED.iter().flat_map(|group| {
        let verdict = if profile >= group.from { Verdict::Allow } else { EPERM };
        group.calls.iter().map(move |call| (*call, Action::Always(verdict)))
    });
    let refused = REFUSED.iter().map(|call| (*call, Action::Always(EPERM)));
    let reported = REPORTED.iter().map(|call| (*call, Action::Always(Verdict::Report)));
    let same_everywhere = [
        (prlimit64, only(is(0, SELF), EPERM)),
        (prctl, only(is(0, PRCTL_OPTIONS), Verdict::Errno(errno::EINVAL))),
        (arch_prctl, only(is(0, ARCH_PRCTL_CODES), Verdict::Errno(errno::EINVAL))),
        (personality, only(is(0, PERSONALITIES), Verdict::Report)),
        (ioctl, ioctls()),
        (socket, sockets(profile)),
        (socketpair, sockets(Profile::Strict)),
        (setsockopt, socket_options()),
        (fcntl, descriptor_commands()),
    ];
    allowed.chain(refused).chain(reported).chain(same_everywhere).chain(by_profile).collect()
}

const PARENTAGE: &[u32] = &[1, 36]; // PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER

/// Changes of what a file is rather than of what is in it. Landlock covers none of them.
#[rustfmt::skip] // paragraphs, not columns
const METADATA: &[Syscall] = &[
    chmod, fchmod, fchmodat, fchmodat2, chown, fchown, lchown, fchownat, utime, utimes, futimesat,
    utimensat, setxattr, lsetxattr, fsetxattr, setxattrat, removexattr, lremovexattr, fremovexattr,
    removexattrat, file_setattr,
];

/// What namespaces do for a run that has them: without a network namespace no socket may reach
/// anything, by name or address; without a pid namespace other processes of the user keep their
/// priorities; without a mount namespace the user's other files keep their modes, owners, times and
/// attributes.
pub(super) fn keep_off_the_host(actions: &mut [(Syscall, Action)]) {
    for (call, action) in actions {
        let own_only = match *call {
            c if METADATA.contains(&c) => Some(Action::Always(EPERM)),
            c if c == socket => Some(Action::ByArguments {
                rules: vec![Rule { tests: vec![is(0, NEVER)], then: Verdict::Report }],
                otherwise: Verdict::Errno(errno::EACCES),
            }),
            c if c == sched_setaffinity || c == sched_setparam => Some(only(is(0, SELF), EPERM)),
            c if c == setpriority => Some(Action::ByArguments {
                rules: vec![Rule { tests: vec![is(0, SELF), is(1, SELF)], then: Verdict::Allow }],
                otherwise: EPERM,
            }),
            c if c == sched_setscheduler => Some(Action::Always(EPERM)),
            // How a run's processes are found and ended when there is no pid namespace.
            c if c == prctl => Some(Action::ByArguments {
                rules: vec![
                    Rule { tests: vec![is(0, PARENTAGE)], then: EPERM },
                    Rule { tests: vec![is(0, PRCTL_OPTIONS)], then: Verdict::Allow },
                ],
                otherwise: Verdict::Errno(errno::EINVAL),
            }),
            _ => None,
        };
        // What the profile refuses already stays refused.
        if let Some(own_only) = own_only
            && !matches!(action, Action::Always(Verdict::Errno(_)))
        {
            *action = own_only;
        }
    }
}

/// Calls that need no look at their arguments, by purpose.
struct Group {
    /// The lowest profile that allows them. Below it they are EPERM.
    from: Profile,
    calls: &'static [Syscall],
}

#[rustfmt::skip] // paragraphs, not columns
const ALLOWED: &[Group] = &[
    // Open descriptors.
    Group {
        from: Profile::Strict,
        calls: &[
            read, write, pread64, pwrite64, readv, writev, preadv, pwritev, preadv2, pwritev2,
            lseek, close, close_range, dup, dup2, dup3, fsync, fdatasync, fadvise64, pipe,
            pipe2, eventfd, eventfd2,
        ],
    },
    // Waiting for descriptors.
    Group {
        from: Profile::Strict,
        calls: &[
            poll, ppoll, select, pselect6, epoll_create, epoll_create1, epoll_ctl, epoll_wait,
            epoll_pwait, epoll_pwait2,
        ],
    },
    // Looking at files. Opening them is decided by arguments.
    Group {
        from: Profile::Strict,
        calls: &[
            stat, fstat, lstat, newfstatat, statx, access, faccessat, faccessat2, readlink,
            readlinkat, getdents, getdents64, getcwd, chdir, fchdir, statfs, fstatfs,
        ],
    },
    // Memory. Locking it is bounded by RLIMIT_MEMLOCK.
    Group {
        from: Profile::Strict,
        calls: &[
            brk, mmap, munmap, mremap, mprotect, madvise, msync, mseal, mlock, mlock2, munlock,
            munlockall, pkey_alloc, pkey_free, pkey_mprotect, membarrier,
        ],
    },
    // Threads of the same process; making them is decided by arguments. raise and abort are tgkill,
    // or tkill with musl.
    Group {
        from: Profile::Strict,
        calls: &[
            futex, set_robust_list, set_tid_address, rseq, gettid, tgkill, tkill, exit, exit_group,
            restart_syscall, sched_yield, sched_getaffinity, sched_setaffinity, sched_getparam,
            sched_getscheduler, sched_getattr, sched_get_priority_max, sched_get_priority_min,
            sched_rr_get_interval, getcpu,
        ],
    },
    // Receiving signals.
    Group {
        from: Profile::Strict,
        calls: &[
            rt_sigaction, rt_sigprocmask, rt_sigreturn, rt_sigpending, rt_sigsuspend,
            rt_sigtimedwait, sigaltstack, pause,
        ],
    },
    // Time: reading it and waiting for it.
    Group {
        from: Profile::Strict,
        calls: &[
            time, gettimeofday, clock_gettime, clock_getres, clock_nanosleep, nanosleep, times,
            alarm, getitimer, setitimer, timerfd_create, timerfd_settime, timerfd_gettime,
        ],
    },
    // Who and where the process is, and its own limits, which it can only lower.
    Group {
        from: Profile::Strict,
        calls: &[
            getpid, getppid, getpgrp, getpgid, getsid, getuid, geteuid, getgid, getegid, getresuid,
            getresgid, getgroups, capget, uname, sysinfo, getrusage, getrlimit, setrlimit,
            getpriority, getrandom,
        ],
    },
    // Sockets. Which families exist is decided where they are made.
    Group {
        from: Profile::Strict,
        calls: &[
            bind, connect, listen, accept, accept4, getsockname, getpeername, getsockopt, sendto,
            recvfrom, sendmsg, recvmsg, sendmmsg, recvmmsg, shutdown,
        ],
    },
    // Processes. Their number and reach are bounded by the cgroup and the pid namespace.
    Group {
        from: Profile::Standard,
        calls: &[fork, vfork, execve, wait4, waitid, setpgid, setsid, setpriority, sched_setparam],
    },
    // Sending signals, and the rarer ways to receive them.
    Group {
        from: Profile::Standard,
        calls: &[kill, rt_sigqueueinfo, rt_tgsigqueueinfo, signalfd, signalfd4],
    },
    // Changing files. What can be reached is decided by the mounts and by Landlock.
    Group {
        from: Profile::Standard,
        calls: &[
            creat, mkdir, mkdirat, rmdir, unlink, unlinkat, rename, renameat, renameat2, link,
            linkat, symlink, symlinkat, chmod, fchmod, fchmodat, fchmodat2, chown, fchown, lchown,
            fchownat, truncate, ftruncate, fallocate, utime, utimes, futimesat, utimensat, umask,
            flock, sync_file_range, memfd_create,
        ],
    },
    // Extended attributes; without capabilities these are the `user.` ones.
    Group {
        from: Profile::Standard,
        calls: &[
            getxattr, lgetxattr, fgetxattr, listxattr, llistxattr, flistxattr, setxattr, lsetxattr,
            fsetxattr, removexattr, lremovexattr, fremovexattr,
        ],
    },
    // Moving data between descriptors without a copy, and watching files.
    Group {
        from: Profile::Standard,
        calls: &[
            sendfile, splice, tee, copy_file_range, readahead, mincore,
        ],
    },
    // Timers that send signals.
    Group {
        from: Profile::Standard,
        calls: &[timer_create, timer_settime, timer_gettime, timer_getoverrun, timer_delete],
    },
    // Ids. There is one user, one group and no capability, so the kernel lets a process become only
    // what it is; programs that drop privileges insist on the call succeeding.
    Group {
        from: Profile::Standard,
        calls: &[
            setuid, setgid, setreuid, setregid, setresuid, setresgid, setfsuid, setfsgid, setgroups,
            capset,
        ],
    },
];

/// Refused without a report: programs do these in passing, and take no for an answer.
#[rustfmt::skip] // paragraphs, not columns
const REFUSED: &[Syscall] = &[
    // Would make the host's disks work for the run.
    sync, syncfs,
    // Priorities; sched_setattr has its policy behind a pointer.
    sched_setattr, ioprio_set, ioprio_get, mlockall,
    // Memory of other processes.
    process_madvise, process_mrelease,
];

/// Never allowed, and nothing an ordinary program does: the result names them.
#[rustfmt::skip] // paragraphs, not columns
const REPORTED: &[Syscall] = &[
    // Other processes and their descriptors.
    ptrace, process_vm_readv, process_vm_writev, kcmp, pidfd_getfd,
    // Namespaces, mounts and the root.
    unshare, setns, chroot, pivot_root, mount, umount2, open_tree, open_tree_attr, move_mount,
    fsopen, fsconfig, fsmount, fspick, mount_setattr,
    // Programs and rings inside the kernel. io_uring_setup is not here, see the top.
    bpf, perf_event_open, userfaultfd, io_uring_enter, io_uring_register,
    // The kernel and the machine.
    kexec_load, kexec_file_load, init_module, finit_module, delete_module, reboot, swapon, swapoff,
    acct, quotactl, quotactl_fd, syslog, ioperm, iopl, lookup_dcookie, vhangup, sethostname,
    setdomainname,
    // The clock.
    settimeofday, clock_settime, adjtimex, clock_adjtime,
    // Keyrings, which outlive a run.
    add_key, request_key, keyctl,
    // Files by handle, past every directory on the way, and events of whole mounts.
    open_by_handle_at, name_to_handle_at, fanotify_init, fanotify_mark,
];

/// Those of them that make a cell out of a process, or ask for its release.
#[rustfmt::skip] // paragraphs, not columns
const BUILD: &[Syscall] = &[
    ptrace, unshare, open_tree, move_mount, fsopen, fsconfig, fsmount, mount_setattr, sethostname,
    setdomainname, keyctl,
];

/// What a process has no use for from its time as a zygote to the end of its run.
pub(super) fn never_needed() -> Vec<(Syscall, Action)> {
    let reported = REPORTED.iter().filter(|call| !BUILD.contains(call));
    let unmentioned = [io_uring_setup];
    let calls = reported.copied().chain(unmentioned);
    calls.map(|call| (call, Action::Always(Verdict::Missing))).collect()
}

/// pid_t: the caller.
const SELF: &[u32] = &[0];

/// PER_LINUX, and the question which one it is.
const PERSONALITIES: &[u32] = &[0, 0xffff_ffff];

/// What a process may set about itself. Absent are, above all, PR_SET_SECCOMP (see the top), PR_SET_MM,
/// PR_SET_SYSCALL_USER_DISPATCH and PR_SET_PTRACER.
const PRCTL_OPTIONS: &[u32] = &[
    15,          // PR_SET_NAME
    16,          // PR_GET_NAME
    0x5356_4d41, // PR_SET_VMA: names for anonymous memory
    1,           // PR_SET_PDEATHSIG
    2,           // PR_GET_PDEATHSIG
    3,           // PR_GET_DUMPABLE
    4,           // PR_SET_DUMPABLE
    23,          // PR_CAPBSET_READ
    27,          // PR_GET_SECUREBITS
    29,          // PR_SET_TIMERSLACK
    30,          // PR_GET_TIMERSLACK
    36,          // PR_SET_CHILD_SUBREAPER
    37,          // PR_GET_CHILD_SUBREAPER
    38,          // PR_SET_NO_NEW_PRIVS
    39,          // PR_GET_NO_NEW_PRIVS
    41,          // PR_SET_THP_DISABLE
    42,          // PR_GET_THP_DISABLE
];

/// Thread-local storage and the AMX registers. The shadow stack codes answer EINVAL, as they do on a
/// processor without it.
const ARCH_PRCTL_CODES: &[u32] = &[
    0x1002, // ARCH_SET_FS
    0x1003, // ARCH_GET_FS
    0x1001, // ARCH_SET_GS
    0x1004, // ARCH_GET_GS
    0x1021, // ARCH_GET_XCOMP_SUPP
    0x1022, // ARCH_GET_XCOMP_PERM
    0x1023, // ARCH_REQ_XCOMP_PERM
];

/// There is no terminal and no device inside, so the rest answers what a pipe or a file would: ENOTTY.
fn ioctls() -> Action {
    const HARMLESS: &[u32] = &[
        0x5401,      // TCGETS: isatty
        0x802c_542a, // TCGETS2: isatty of newer libraries
        0x5413,      // TIOCGWINSZ
        0x541b,      // FIONREAD
        0x5421,      // FIONBIO
        0x5450,      // FIONCLEX
        0x5451,      // FIOCLEX
    ];
    const TYPES_FOR_ANOTHER: &[u32] = &[
        0x5412, // TIOCSTI
        0x541c, // TIOCLINUX
    ];
    Action::ByArguments {
        rules: vec![
            Rule { tests: vec![is(1, HARMLESS)], then: Verdict::Allow },
            Rule { tests: vec![is(1, TYPES_FOR_ANOTHER)], then: Verdict::Report },
        ],
        otherwise: Verdict::Errno(errno::ENOTTY),
    }
}

const NEVER: &[u32] = &[17, 38, 40]; // AF_PACKET, AF_ALG, AF_VSOCK

/// Families are listed. What is not listed answers EAFNOSUPPORT, as on a kernel without it: glibc's
/// getaddrinfo probes AF_NETLINK, servers probe AF_INET6.
fn sockets(profile: Profile) -> Action {
    const UNIX: &[u32] = &[1];
    const INTERNET: &[u32] = &[2, 10]; // AF_INET, AF_INET6
    const STREAM_DGRAM: &[u32] = &[1, 2]; // not SOCK_RAW, nor SOCK_PACKET, which is AF_PACKET in disguise
    const CLOEXEC_NONBLOCK: u32 = 0x8_0800;
    const TCP_UDP: &[u32] = &[0, 6, 17]; // not ICMP, SCTP, MPTCP and what else a module brings

    let internet = is(0, INTERNET);
    let kind = Test::OneOf { argument: 1, mask: !CLOEXEC_NONBLOCK, values: STREAM_DGRAM };
    let rule = |tests: &[Test], then| Rule { tests: tests.to_vec(), then };

    let mut rules = vec![rule(&[is(0, UNIX)], Verdict::Allow)];
    if profile == Profile::StandardNet {
        rules.push(rule(&[internet, kind, is(2, TCP_UDP)], Verdict::Allow));
        rules.push(rule(&[internet, kind], Verdict::Errno(errno::EPROTONOSUPPORT)));
        rules.push(rule(&[internet], EPERM));
    } else {
        // Not EAFNOSUPPORT: the network is there and this run may not use it, which is what "permission
        // denied" says to whoever reads the message.
        rules.push(rule(&[internet], Verdict::Errno(errno::EACCES)));
    }
    rules.push(rule(&[is(0, NEVER)], Verdict::Report));
    Action::ByArguments { rules, otherwise: Verdict::Errno(errno::EAFNOSUPPORT) }
}

/// All but those by which a run hears of, or holds up, what others do with files that it only shares.
/// For the same reason inotify is not listed at all: its instances are counted for whoever made the
/// run's namespaces, so that one run could use up the host's.
fn descriptor_commands() -> Action {
    const LEASE_AND_NOTIFY: &[u32] = &[1024, 1025, 1026]; // F_SETLEASE, F_GETLEASE, F_NOTIFY
    Action::ByArguments {
        rules: vec![Rule {
            tests: vec![is(1, LEASE_AND_NOTIFY)],
            then: Verdict::Errno(errno::EINVAL),
        }],
        otherwise: Verdict::Allow,
    }
}

/// All but those that give the kernel a program to compile or load a protocol on top of TCP.
fn socket_options() -> Action {
    const SOL_SOCKET: &[u32] = &[1];
    const ATTACH_PROGRAM: &[u32] = &[26, 50, 51, 52]; // SO_ATTACH_{FILTER,BPF,REUSEPORT_CBPF,_EBPF}
    const SOL_TCP: &[u32] = &[6];
    const TCP_ULP: &[u32] = &[31];
    Action::ByArguments {
        rules: vec![
            Rule { tests: vec![is(2, ATTACH_PROGRAM), is(1, SOL_SOCKET)], then: EPERM },
            Rule {
                tests: vec![is(2, TCP_ULP), is(1, SOL_TCP)],
                then: Verdict::Errno(errno::ENOPROTOOPT),
            },
        ],
        otherwise: Verdict::Allow,
    }
}

/// What a program does that has a few sockets and moves bytes between them.
#[rustfmt::skip] // paragraphs, not columns
const AIRLOCK: &[Syscall] = &[
    // Descriptors that it has or is handed.
    read, write, readv, writev, pread64, lseek, close, splice, pipe2, recvmsg, recvfrom, accept4,
    shutdown, getsockopt, getsockname, getpeername,
    // Waiting for them.
    poll, ppoll, epoll_create1, epoll_ctl, epoll_wait, epoll_pwait, epoll_pwait2, eventfd2,
    // Memory; what can be executed of it is decided by arguments.
    brk, munmap, mremap, madvise,
    // One thread, its signals and its end.
    futex, set_robust_list, set_tid_address, rseq, getpid, gettid, sched_yield, sched_getaffinity,
    rt_sigaction, rt_sigprocmask, rt_sigreturn, sigaltstack, restart_syscall, exit, exit_group,
    // Time and chance.
    time, gettimeofday, clock_gettime, clock_getres, clock_nanosleep, nanosleep, getrandom,
    // What a dynamic loader looks at; opening is decided by arguments.
    fstat, newfstatat, statx, access, faccessat, readlink, readlinkat,
];

/// For the program that reads what runs send: whoever takes it over has the sockets that it was handed,
/// and cannot make, bind or connect one, start a process or a thread, or execute what it wrote.
fn airlock(exec_key: NonZeroU64) -> Vec<(Syscall, Action)> {
    let always = |call: &Syscall, verdict| (*call, Action::Always(verdict));
    let by_arguments = |rules, otherwise| Action::ByArguments { rules, otherwise };
    let refuse = |tests: &[Test]| Rule { tests: tests.to_vec(), then: EPERM };
    let unheard_of = Rule { tests: vec![is(0, NEVER)], then: Verdict::Report };
    let mut own: Vec<_> = AIRLOCK.iter().map(|call| always(call, Verdict::Allow)).collect();
    own.extend([
        (execveat, exec_once(exec_key)),
        (open, Action::Always(EPERM)),
        (openat, only(reads(2), EPERM)),
        (clone, by_arguments(vec![makes_namespace()], EPERM)),
        (socket, by_arguments(vec![unheard_of], EPERM)),
        (socketpair, Action::Always(EPERM)),
        // It could carry descriptors, sockets of the host to a run: the launcher's last one does, with the key.
        (sendmsg, exec_once(exec_key)),
        // Fast Open would connect a socket whose attempt to be connected was taken back.
        (
            sendto,
            by_arguments(
                vec![
                    refuse(&[connects(3)]),
                    Rule { tests: vec![NO_ADDRESS], then: Verdict::Allow },
                ],
                EPERM,
            ),
        ),
        // A loader maps libraries, which nobody inside can write.
        (
            mmap,
            by_arguments(
                vec![refuse(&[EXECUTABLE, ANONYMOUS]), refuse(&[EXECUTABLE, WRITABLE])],
                Verdict::Allow,
            ),
        ),
        (mprotect, by_arguments(vec![refuse(&[EXECUTABLE])], Verdict::Allow)),
        (prlimit64, only(is(0, SELF), EPERM)),
        (prctl, only(is(0, PRCTL_OPTIONS), Verdict::Errno(errno::EINVAL))),
        (arch_prctl, only(is(0, ARCH_PRCTL_CODES), Verdict::Errno(errno::EINVAL))),
        (personality, only(is(0, PERSONALITIES), Verdict::Report)),
        (ioctl, ioctls()),
        (setsockopt, socket_options()),
        (fcntl, descriptor_commands()),
    ]);
    let elsewhere = ALLOWED.iter().flat_map(|group| group.calls).chain(REFUSED);
    let refused = elsewhere.map(|call| always(call, EPERM));
    let reported = REPORTED.iter().map(|call| always(call, Verdict::Report));
    let is_new = |(call, _): &(Syscall, Action)| own.iter().all(|(known, _)| known != call);
    let others: Vec<_> = refused.chain(reported).filter(is_new).collect();
    own.into_iter().chain(others).collect()
}

/// MSG_FASTOPEN, which sends and connects at once.
fn connects(argument: u8) -> Test {
    Test::AnyBit { argument, mask: 0x2000_0000 }
}

/// Of sendto: the socket is connected to whom it sends.
const NO_ADDRESS: Test = Test::Exactly { argument: 4, value: 0 };
/// Of mmap and mprotect: PROT_EXEC, PROT_WRITE; of mmap: MAP_ANONYMOUS.
const EXECUTABLE: Test = Test::AnyBit { argument: 2, mask: 0x4 };
const WRITABLE: Test = Test::AnyBit { argument: 2, mask: 0x2 };
const ANONYMOUS: Test = Test::AnyBit { argument: 3, mask: 0x20 };

fn strict(exec_key: NonZeroU64) -> Vec<(Syscall, Action)> {
    const THREAD: u32 = 0x1_0100; // CLONE_THREAD, CLONE_VM
    let thread = Test::OneOf { argument: 0, mask: THREAD, values: &[THREAD] };
    vec![
        (
            clone,
            Action::ByArguments {
                rules: vec![makes_namespace(), Rule { tests: vec![thread], then: Verdict::Allow }],
                otherwise: EPERM,
            },
        ),
        (execveat, exec_once(exec_key)),
        (open, only(reads(1), EPERM)),
        (openat, only(reads(2), EPERM)),
        (mknod, Action::Always(EPERM)),
        (mknodat, Action::Always(EPERM)),
        (sched_setscheduler, Action::Always(EPERM)),
    ]
}

fn standard() -> Vec<(Syscall, Action)> {
    // SCHED_OTHER, SCHED_BATCH, SCHED_IDLE: nothing that runs before others.
    const NOT_REALTIME: &[u32] = &[0, 3, 5];
    const RESET_ON_FORK: u32 = 0x4000_0000;
    let ordinary = Test::OneOf { argument: 1, mask: !RESET_ON_FORK, values: NOT_REALTIME };
    vec![
        (clone, Action::ByArguments { rules: vec![makes_namespace()], otherwise: Verdict::Allow }),
        (execveat, Action::Always(Verdict::Allow)),
        (open, Action::Always(Verdict::Allow)),
        (openat, Action::Always(Verdict::Allow)),
        (openat2, Action::Always(Verdict::Allow)),
        (mknod, only(no_device(1), EPERM)),
        (mknodat, only(no_device(2), EPERM)),
        (sched_setscheduler, only(ordinary, EPERM)),
    ]
}

/// clone reads the lower half of its flags. Every flag that makes a namespace is there, and
/// CLONE_NEWTIME, which clone itself takes for part of the exit signal, is a bit that no signal has.
fn makes_namespace() -> Rule {
    // CLONE_NEW{TIME,NS,CGROUP,UTS,IPC,USER,PID,NET}
    const NAMESPACES: u32 = 0x80 | 0x2_0000 | 0x7e00_0000;
    let namespace = Test::AnyBit { argument: 0, mask: NAMESPACES };
    Rule { tests: vec![namespace], then: Verdict::Report }
}

/// The launcher's own exec, and no other.
///
/// Nothing that execveat reads can tell the two apart: an absolute path makes the kernel ignore the
/// descriptor, AT_EMPTY_PATH or not, and whatever address the path had, the program can map. So the
/// launcher puts a secret into the sixth argument, which execveat does not have and a filter sees all
/// the same. The program cannot learn it: exec replaces the memory and clears the registers, and a
/// filter can be read back only with CAP_SYS_ADMIN and ptrace. Guessing takes 2^63 calls.
fn exec_once(exec_key: NonZeroU64) -> Action {
    only(Test::Exactly { argument: 5, value: exec_key.get() }, EPERM)
}

/// open flags: O_RDONLY, and none of O_CREAT, O_TRUNC and the bit of O_TMPFILE that is its own.
fn reads(argument: u8) -> Test {
    const WRITES: u32 = 0o3 | 0o100 | 0o1000 | 0o2000_0000;
    Test::OneOf { argument, mask: WRITES, values: &[0] }
}

/// The type in a file mode: none or a regular file, a fifo, a socket.
fn no_device(argument: u8) -> Test {
    Test::OneOf { argument, mask: 0o170_000, values: &[0, 0o100_000, 0o010_000, 0o140_000] }
}

/// An int argument is one of `values`.
fn is(argument: u8, values: &'static [u32]) -> Test {
    Test::OneOf { argument, mask: u32::MAX, values }
}

fn only(test: Test, otherwise: Verdict) -> Action {
    let rules = vec![Rule { tests: vec![test], then: Verdict::Allow }];
    Action::ByArguments { rules, otherwise }
}
