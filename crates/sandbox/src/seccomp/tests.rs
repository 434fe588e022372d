//! The filters of both architectures, run by the interpreter.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::num::NonZeroU64;
use std::path::Path;

use hotcell_types::Profile;
use proptest::prelude::*;

use super::compile::{self, Instruction, KILL_PROCESS};
use super::interpret::{Data, End, check, run};
use super::profile::{self, Action, Rule, Test, UNMENTIONED, Verdict};
use super::table::{self, Syscall, call};
use super::{Arch, Around, syscall_name};

const KEY: NonZeroU64 = NonZeroU64::new(0x0123_4567_89ab_cdef).unwrap();
const PROFILES: [Profile; 4] =
    [Profile::Airlock, Profile::Strict, Profile::Standard, Profile::StandardNet];
/// Those that somebody can ask for, from the narrowest to the widest.
const OF_RUNS: [Profile; 3] = [Profile::Strict, Profile::Standard, Profile::StandardNet];
const ARCHES: [Arch; 2] = [Arch::X86_64, Arch::Aarch64];

const EPERM: Verdict = Verdict::Errno(1);
const EACCES: Verdict = Verdict::Errno(13);
const EINVAL: Verdict = Verdict::Errno(22);
const ENOTTY: Verdict = Verdict::Errno(25);
const ENOSYS: Verdict = Verdict::Errno(38);
const ENOPROTOOPT: Verdict = Verdict::Errno(92);
const EPROTONOSUPPORT: Verdict = Verdict::Errno(93);
const EAFNOSUPPORT: Verdict = Verdict::Errno(97);

fn program(profile: Profile, arch: Arch) -> Vec<Instruction> {
    let program = compile::compile(arch, &profile::actions(profile, KEY), UNMENTIONED);
    check(&program).unwrap();
    program
}

/// A zygote's filter lies below that of each run: what it says must never hide what that reports, and what a
/// profile allows has to be there.
#[test]
fn the_filter_of_a_zygote_is_weaker_than_any_report_and_takes_nothing_from_a_run() {
    for arch in ARCHES {
        let missing = profile::never_needed();
        let below = compile::compile(arch, &missing, Verdict::Allow);
        check(&below).unwrap();
        let said = |program: &[Instruction], call: &Syscall| {
            let number = call.number(arch)?;
            Some(run(program, &Data { number, arch: arch.audit(), args: [0; 6] }).value)
        };
        for profile in PROFILES {
            let own = program(profile, arch);
            for call in table::ALL {
                let (Some(below), Some(own)) = (said(&below, call), said(&own, call)) else {
                    continue;
                };
                // The kernel takes the lower of two answers.
                assert!(below.min(own) == own || own == compile::ALLOW, "{}", call.name);
                assert!(own != compile::ALLOW || below == compile::ALLOW, "{}", call.name);
            }
        }
        for call in [call::bpf, call::userfaultfd, call::io_uring_setup, call::mount] {
            assert!(said(&below, &call).is_none_or(|said| said == compile::TRACE), "{}", call.name);
        }
    }
}

fn every_filter() -> impl Iterator<Item = (Profile, Arch)> {
    PROFILES.into_iter().flat_map(|profile| ARCHES.map(|arch| (profile, arch)))
}

/// The profile read directly, without a compiler.
fn judge(action: Option<&Action>, args: &[u64; 6]) -> Verdict {
    match action {
        None => UNMENTIONED,
        Some(Action::Always(verdict)) => *verdict,
        Some(Action::ByArguments { rules, otherwise }) => rules
            .iter()
            .find(|rule| rule.tests.iter().all(|test| holds(test, args)))
            .map_or(*otherwise, |rule| rule.then),
    }
}

fn holds(test: &Test, args: &[u64; 6]) -> bool {
    match *test {
        Test::OneOf { argument, mask, values } => {
            values.contains(&(args[usize::from(argument)] as u32 & mask))
        }
        Test::AnyBit { argument, mask } => args[usize::from(argument)] as u32 & mask != 0,
        Test::Exactly { argument, value } => args[usize::from(argument)] == value,
    }
}

fn by_number(actions: &[(Syscall, Action)], arch: Arch) -> BTreeMap<u32, &Action> {
    actions.iter().filter_map(|(call, action)| Some((call.number(arch)?, action))).collect()
}

/// Values near everything that any test compares with.
fn interesting_values() -> Vec<u64> {
    let mut values = vec![0, 1, u64::from(u32::MAX), u64::MAX, 1 << 32, KEY.get()];
    for (profile, _) in every_filter() {
        for (_, action) in profile::actions(profile, KEY) {
            let Action::ByArguments { rules, .. } = action else { continue };
            for test in rules.iter().flat_map(|rule| &rule.tests) {
                match *test {
                    Test::OneOf { values: listed, .. } => {
                        values.extend(listed.iter().map(|value| u64::from(*value)));
                    }
                    Test::AnyBit { mask, .. } => values.push(u64::from(mask)),
                    Test::Exactly { value, .. } => values.push(value),
                }
            }
        }
    }
    values.sort_unstable();
    values.dedup();
    values
}

#[test]
fn every_number_is_judged_as_the_profile_says() {
    let values = interesting_values();
    for (profile, arch) in every_filter() {
        let program = program(profile, arch);
        let actions = profile::actions(profile, KEY);
        let actions = by_number(&actions, arch);
        for number in (0..=600).chain([0xffff, 0x3fff_ffff, 0x8000_0000]) {
            let action = actions.get(&number).copied();
            for value in &values {
                let args = [*value; 6];
                let end = run(&program, &Data { number, arch: arch.audit(), args });
                let expected = judge(action, &args).value();
                assert_eq!(end.value, expected, "{profile} {arch:?} {number} {value:#x}");
            }
        }
    }
}

#[test]
fn unknown_numbers_answer_enosys() {
    for (profile, arch) in every_filter() {
        let program = program(profile, arch);
        let known: BTreeSet<_> = table::ALL.iter().filter_map(|call| call.number(arch)).collect();
        for number in (0..=1000).chain([0xffff, 0x3fff_ffff]).filter(|n| !known.contains(n)) {
            let end = run(&program, &Data { number, arch: arch.audit(), args: [0; 6] });
            assert_eq!(end.value, ENOSYS.value(), "{profile} {arch:?} {number}");
        }
    }
}

#[test]
fn another_abi_kills_the_process() {
    const I386: u32 = 0x4000_0003;
    const ARM: u32 = 0x4000_0028;
    for (profile, arch) in every_filter() {
        let program = program(profile, arch);
        let other = ARCHES.into_iter().find(|other| *other != arch).unwrap().audit();
        for foreign in [I386, ARM, other, 0, u32::MAX] {
            for number in 0..=600 {
                let end = run(&program, &Data { number, arch: foreign, args: [0; 6] });
                assert_eq!(end.value, KILL_PROCESS, "{profile} {arch:?} {foreign:#x} {number}");
            }
        }
    }
}

#[test]
fn every_x32_number_kills_the_process() {
    for profile in PROFILES {
        let program = program(profile, Arch::X86_64);
        for number in (0..=600).chain([0xffff, 0x3fff_ffff]) {
            for number in [number | 0x4000_0000, number | 0xc000_0000] {
                let data = Data { number, arch: Arch::X86_64.audit(), args: [0; 6] };
                assert_eq!(run(&program, &data).value, KILL_PROCESS, "{profile} {number:#x}");
            }
        }
    }
}

/// Runs one call through the filter of each architecture that has it.
#[track_caller]
fn expect(profile: Profile, syscall: Syscall, args: &[u64], expected: Verdict) {
    let mut six = [0xdead_beef_dead_beef; 6];
    six[..args.len()].copy_from_slice(args);
    for arch in ARCHES {
        let Some(number) = syscall.number(arch) else { continue };
        let data = Data { number, arch: arch.audit(), args: six };
        let end = run(&program(profile, arch), &data);
        assert_eq!(
            end.value,
            expected.value(),
            "{profile} {arch:?} {}({args:x?}): expected {expected:?}",
            syscall.name
        );
    }
}

/// Starting from values that matter, changes one argument in every way that has fooled a filter and
/// compares with a rule that was written down a second time, here.
fn expect_rule(
    profile: Profile,
    syscall: Syscall,
    argument: usize,
    starts: &[[u64; 6]],
    rule: impl Fn(&[u64; 6]) -> Verdict,
) {
    let programs = ARCHES.map(|arch| (arch, program(profile, arch)));
    for start in starts {
        let value = start[argument];
        let flips = (0..64).map(|bit| value ^ (1 << bit));
        let sums = [value, value.wrapping_add(1_000_000), value.wrapping_add(1), !value];
        let high = [value | 0xffff_ffff_0000_0000, value << 32];
        for changed in flips.chain(sums).chain(high) {
            let mut args = *start;
            args[argument] = changed;
            for (arch, program) in &programs {
                let Some(number) = syscall.number(*arch) else { continue };
                let end = run(program, &Data { number, arch: arch.audit(), args });
                let expected = rule(&args).value();
                assert_eq!(end.value, expected, "{profile} {arch:?} {}({args:x?})", syscall.name);
            }
        }
    }
}

/// Six arguments, of which one is given.
fn args(argument: usize, value: u64) -> [u64; 6] {
    let mut args = [0; 6];
    args[argument] = value;
    args
}

fn int(args: &[u64; 6], argument: usize) -> u32 {
    args[argument] as u32
}

fn allow_if(condition: bool, otherwise: Verdict) -> Verdict {
    if condition { Verdict::Allow } else { otherwise }
}

/// What glibc passes for fork and for pthread_create, and CLONE_VM | CLONE_VFORK | SIGCHLD.
const FORK: u64 = 0x0120_0011;
const THREAD: u64 = 0x003d_0f00;
const SPAWN: u64 = 0x4111;

#[test]
fn clone_makes_no_namespace() {
    let starts = [0, FORK, THREAD, SPAWN].map(|flags| args(0, flags));
    let namespace = |args: &[u64; 6]| int(args, 0) & 0x7e02_0080 != 0;
    for profile in [Profile::Standard, Profile::StandardNet] {
        expect_rule(profile, call::clone, 0, &starts, |args| {
            allow_if(!namespace(args), Verdict::Report)
        });
    }
    expect_rule(Profile::Strict, call::clone, 0, &starts, |args| {
        let thread = int(args, 0) & 0x0001_0100 == 0x0001_0100;
        if namespace(args) { Verdict::Report } else { allow_if(thread, EPERM) }
    });
}

#[test]
fn strict_has_threads_and_no_processes() {
    expect(Profile::Strict, call::clone, &[THREAD], Verdict::Allow);
    for flags in [FORK, SPAWN, 0x11, 0x100, 0x1_0000] {
        expect(Profile::Strict, call::clone, &[flags], EPERM);
    }
    for syscall in [call::fork, call::vfork, call::execve] {
        expect(Profile::Strict, syscall, &[], EPERM);
        expect(Profile::Standard, syscall, &[], Verdict::Allow);
    }
}

#[test]
fn the_airlock_makes_and_connects_no_socket() {
    const FASTOPEN: u64 = 0x2000_0000;
    const NOSIGNAL: u64 = 0x4000;
    for family in [1, 2, 10, 16] {
        expect(Profile::Airlock, call::socket, &[family, 1, 0], EPERM);
    }
    expect(Profile::Airlock, call::socket, &[17, 3, 0], Verdict::Report);
    for syscall in [call::socketpair, call::connect, call::bind, call::listen, call::sendmmsg] {
        expect(Profile::Airlock, syscall, &[0; 6], EPERM);
        expect(Profile::Strict, syscall, &[1, 0, 0, 0, 0, 0], Verdict::Allow);
    }
    for syscall in [call::accept4, call::recvmsg, call::shutdown, call::splice, call::epoll_pwait] {
        expect(Profile::Airlock, syscall, &[0; 6], Verdict::Allow);
    }
    // Nothing that could carry a descriptor, but for whoever knows the key.
    expect_rule(Profile::Airlock, call::sendmsg, 5, &[[0; 6], [3, 0, NOSIGNAL, 0, 0, 0]], |args| {
        allow_if(args[5] == KEY.get(), EPERM)
    });
    let starts = [[0; 6], [3, 0, 0, NOSIGNAL, 0, 0], [3, 0, 0, 0, 0x7fff_0000_1000, 16]];
    for argument in [3, 4, 5] {
        expect_rule(Profile::Airlock, call::sendto, argument, &starts, |args| {
            allow_if(int(args, 3) & FASTOPEN as u32 == 0 && args[4] == 0, EPERM)
        });
    }
}

#[test]
fn the_airlock_starts_nothing_and_executes_nothing_that_it_wrote() {
    for flags in [FORK, THREAD, SPAWN, 0] {
        expect(Profile::Airlock, call::clone, &[flags], EPERM);
    }
    for syscall in [call::fork, call::vfork, call::execve, call::kill, call::tgkill, call::setsid] {
        expect(Profile::Airlock, syscall, &[0; 6], EPERM);
    }
    expect_rule(Profile::Airlock, call::execveat, 5, &[args(5, KEY.get())], |args| {
        allow_if(args[5] == KEY.get(), EPERM)
    });
    // Reading, private; executing, private; the same without a file; both at once.
    let starts =
        [[0, 0, 1, 2, 3, 0], [0, 0, 5, 2, 3, 0], [0, 0, 5, 0x22, 0, 0], [0, 0, 7, 2, 3, 0]];
    for argument in [2, 3] {
        expect_rule(Profile::Airlock, call::mmap, argument, &starts, |args| {
            let (protection, flags) = (int(args, 2), int(args, 3));
            let is_odd = protection & 4 != 0 && (flags & 0x20 != 0 || protection & 2 != 0);
            allow_if(!is_odd, EPERM)
        });
    }
    expect_rule(Profile::Airlock, call::mprotect, 2, &starts, |args| {
        allow_if(int(args, 2) & 4 == 0, EPERM)
    });
    for syscall in [call::pkey_mprotect, call::memfd_create, call::open, call::ftruncate] {
        expect(Profile::Airlock, syscall, &[0; 6], EPERM);
    }
    let starts = [0, 0o2_000_000, 0o1101, 0o2].map(|flags| args(2, flags));
    expect_rule(Profile::Airlock, call::openat, 2, &starts, |args| {
        allow_if(int(args, 2) & (0o3 | 0o100 | 0o1000 | 0o2000_0000) == 0, EPERM)
    });
}

#[test]
fn clone3_hides_its_flags_and_does_not_exist() {
    for profile in PROFILES {
        expect(profile, call::clone3, &[], ENOSYS);
    }
}

#[test]
fn strict_executes_only_with_the_key() {
    let starts = [args(5, KEY.get()), args(5, 0)];
    expect_rule(Profile::Strict, call::execveat, 5, &starts, |args| {
        allow_if(args[5] == KEY.get(), EPERM)
    });
    expect(Profile::Standard, call::execveat, &[], Verdict::Allow);
}

#[test]
fn strict_opens_for_reading_only() {
    const CLOEXEC: u64 = 0o2_000_000;
    let reads = |flags: u32| flags & 0o3 == 0 && flags & (0o100 | 0o1000 | 0o2000_0000) == 0;
    for (syscall, argument) in [(call::open, 1), (call::openat, 2)] {
        let starts = [0, CLOEXEC, 0o1101, 0o2].map(|flags| args(argument, flags));
        expect_rule(Profile::Strict, syscall, argument, &starts, |args| {
            allow_if(reads(int(args, argument)), EPERM)
        });
        for start in starts {
            expect(Profile::Standard, syscall, &start, Verdict::Allow);
        }
    }
    expect(Profile::Strict, call::openat2, &[], ENOSYS);
    expect(Profile::Standard, call::openat2, &[], Verdict::Allow);
}

#[test]
fn strict_changes_no_file() {
    use call::*;
    #[rustfmt::skip]
    let changes = [
        creat, mkdir, mkdirat, rmdir, unlink, unlinkat, rename, renameat, renameat2, link, linkat,
        symlink, symlinkat, chmod, fchmod, fchmodat, fchmodat2, chown, fchown, lchown, fchownat,
        truncate, ftruncate, fallocate, utime, utimes, futimesat, utimensat, setxattr, lsetxattr,
        fsetxattr, removexattr, lremovexattr, fremovexattr, mknod, mknodat, copy_file_range,
    ];
    for syscall in changes {
        expect(Profile::Strict, syscall, &[0; 6], EPERM);
        expect(Profile::Standard, syscall, &[0; 6], Verdict::Allow);
    }
    for syscall in [setxattrat, removexattrat, file_setattr] {
        expect(Profile::Strict, syscall, &[0; 6], ENOSYS);
    }
}

#[test]
fn socket_families_are_listed() {
    const UNIX: u64 = 1;
    const INET: u64 = 2;
    const INET6: u64 = 10;
    let starts = [UNIX, INET, INET6, 16, 17, 38, 40].map(|family| [family, 1, 0, 0, 0, 0]);
    let without_network = |args: &[u64; 6]| match int(args, 0) {
        1 => Verdict::Allow,
        2 | 10 => EACCES,
        17 | 38 | 40 => Verdict::Report,
        _ => EAFNOSUPPORT,
    };
    let with_network = |args: &[u64; 6]| match int(args, 0) {
        2 | 10 => match (int(args, 1) & !0o2_004_000, int(args, 2)) {
            (1 | 2, 0 | 6 | 17) => Verdict::Allow,
            (1 | 2, _) => EPROTONOSUPPORT,
            _ => EPERM,
        },
        _ => without_network(args),
    };
    for argument in 0..3 {
        expect_rule(Profile::Strict, call::socket, argument, &starts, without_network);
        expect_rule(Profile::Standard, call::socket, argument, &starts, without_network);
        expect_rule(Profile::StandardNet, call::socket, argument, &starts, with_network);
        expect_rule(Profile::StandardNet, call::socketpair, argument, &starts, without_network);
    }
    const RAW: u64 = 3;
    const PACKET: u64 = 10;
    for kind in [RAW, PACKET, RAW | 0o2_000_000] {
        expect(Profile::StandardNet, call::socket, &[INET, kind, 0], EPERM);
    }
    const ICMP: u64 = 1;
    expect(Profile::StandardNet, call::socket, &[INET, 2, ICMP], EPROTONOSUPPORT);
}

#[test]
fn sockets_take_no_programs() {
    let starts = [[1, 26], [1, 2], [1, 50], [6, 31], [6, 1], [1, 31], [6, 26]]
        .map(|[level, option]| [3, level, option, 0, 0, 0]);
    for profile in PROFILES {
        for argument in [1, 2] {
            expect_rule(profile, call::setsockopt, argument, &starts, |args| {
                match (int(args, 1), int(args, 2)) {
                    (1, 26 | 50..=52) => EPERM,
                    (6, 31) => ENOPROTOOPT,
                    _ => Verdict::Allow,
                }
            });
        }
    }
}

#[test]
fn ioctls_are_listed_and_the_upper_half_is_not_read() {
    const TIOCSTI: u64 = 0x5412;
    let starts = [0x5401, 0x541b, 0x5421, TIOCSTI, 0x541c, 0x540e, 0x4004_9409, 0x802c_542a]
        .map(|command| args(1, command));
    for profile in PROFILES {
        expect_rule(profile, call::ioctl, 1, &starts, |args| match int(args, 1) {
            0x5401 | 0x5413 | 0x541b | 0x5421 | 0x5450 | 0x5451 | 0x802c_542a => Verdict::Allow,
            0x5412 | 0x541c => Verdict::Report,
            _ => ENOTTY,
        });
        expect(profile, call::ioctl, &[0, TIOCSTI | 1 << 32], Verdict::Report);
        expect(profile, call::ioctl, &[0, TIOCSTI | 0xffff_ffff_0000_0000], Verdict::Report);
    }
}

#[test]
fn prctl_options_are_listed() {
    const SECCOMP: u64 = 22;
    const MM: u64 = 35;
    const SYSCALL_USER_DISPATCH: u64 = 59;
    const PTRACER: u64 = 0x5961_6d61;
    let starts =
        [15, 38, 0x5356_4d41, SECCOMP, MM, SYSCALL_USER_DISPATCH, PTRACER].map(|o| args(0, o));
    let listed = [1, 2, 3, 4, 15, 16, 23, 27, 29, 30, 36, 37, 38, 39, 41, 42, 0x5356_4d41];
    for profile in PROFILES {
        expect_rule(profile, call::prctl, 0, &starts, |args| {
            allow_if(listed.contains(&int(args, 0)), EINVAL)
        });
        for option in [SECCOMP, MM, SYSCALL_USER_DISPATCH, PTRACER] {
            expect(profile, call::prctl, &[option], EINVAL);
        }
    }
}

#[test]
fn arch_prctl_sets_thread_local_storage() {
    let starts = [0x1002, 0x1023, 0x3001, 0x5001].map(|code| args(0, code));
    for profile in PROFILES {
        expect_rule(profile, call::arch_prctl, 0, &starts, |args| {
            allow_if(matches!(int(args, 0), 0x1001..=0x1004 | 0x1021..=0x1023), EINVAL)
        });
    }
}

#[test]
fn personality_is_asked_and_never_changed() {
    const ADDR_NO_RANDOMIZE: u64 = 0x4_0000;
    const READ_IMPLIES_EXEC: u64 = 0x40_0000;
    let starts = [0, 0xffff_ffff, ADDR_NO_RANDOMIZE, READ_IMPLIES_EXEC].map(|p| args(0, p));
    for profile in PROFILES {
        expect_rule(profile, call::personality, 0, &starts, |args| {
            allow_if(matches!(int(args, 0), 0 | u32::MAX), Verdict::Report)
        });
    }
}

#[test]
fn prlimit_reaches_only_the_caller() {
    for profile in PROFILES {
        expect_rule(profile, call::prlimit64, 0, &[args(0, 0), args(0, 1)], |args| {
            allow_if(int(args, 0) == 0, EPERM)
        });
    }
}

#[test]
fn no_device_is_made() {
    for (syscall, argument) in [(call::mknod, 1), (call::mknodat, 2)] {
        let starts = [0o644, 0o100_644, 0o010_600, 0o140_600, 0o020_600, 0o060_600, 0o040_700]
            .map(|mode| args(argument, mode));
        expect_rule(Profile::Standard, syscall, argument, &starts, |args| {
            let kind = int(args, argument) & 0o170_000;
            allow_if(matches!(kind, 0 | 0o100_000 | 0o010_000 | 0o140_000), EPERM)
        });
        expect(Profile::Strict, syscall, &starts[0], EPERM);
    }
}

#[test]
fn no_realtime_scheduling() {
    let starts = [0, 1, 2, 3, 5, 6, 0x4000_0000, 0x4000_0001].map(|policy| args(1, policy));
    expect_rule(Profile::Standard, call::sched_setscheduler, 1, &starts, |args| {
        allow_if(matches!(int(args, 1) & !0x4000_0000, 0 | 3 | 5), EPERM)
    });
    for profile in PROFILES {
        expect(profile, call::sched_setattr, &[], EPERM);
    }
}

#[test]
fn the_never_list_is_never_allowed() {
    use call::*;
    #[rustfmt::skip]
    let reported = [
        ptrace, process_vm_readv, process_vm_writev, mount, umount2, pivot_root, fsopen, fsconfig,
        fsmount, fspick, open_tree, open_tree_attr, move_mount, mount_setattr, bpf, perf_event_open,
        keyctl, add_key, request_key, userfaultfd, io_uring_enter, io_uring_register, unshare,
        setns, kexec_load, kexec_file_load, init_module, finit_module, delete_module, clock_settime,
        settimeofday, adjtimex, clock_adjtime, open_by_handle_at, name_to_handle_at, pidfd_getfd,
        kcmp, chroot, reboot, swapon, syslog, ioperm, iopl, fanotify_init, quotactl, lookup_dcookie,
    ];
    #[rustfmt::skip]
    let silent = [
        io_uring_setup, seccomp, landlock_restrict_self, mbind, set_mempolicy, get_mempolicy,
        move_pages, migrate_pages, pidfd_open, memfd_secret, modify_ldt, shmget, msgget, semget,
        mq_open, io_setup, vmsplice, uselib, _sysctl, listns,
    ];
    for profile in PROFILES {
        for syscall in reported {
            expect(profile, syscall, &[0; 6], Verdict::Report);
        }
        for syscall in silent {
            expect(profile, syscall, &[0; 6], ENOSYS);
        }
    }
}

#[test]
fn no_call_is_mentioned_twice() {
    for profile in PROFILES {
        let actions = profile::actions(profile, KEY);
        let names: BTreeSet<_> = actions.iter().map(|(call, _)| call.name).collect();
        assert_eq!(names.len(), actions.len(), "{profile}");
    }
}

#[test]
fn a_wider_profile_allows_what_a_narrower_one_does() {
    let values = interesting_values();
    for pair in OF_RUNS.windows(2) {
        let [narrow, wide] = [pair[0], pair[1]].map(|profile| profile::actions(profile, KEY));
        let wide = by_number(&wide, Arch::X86_64);
        for (number, action) in by_number(&narrow, Arch::X86_64) {
            for value in &values {
                let allowed = |action| judge(action, &[*value; 6]) == Verdict::Allow;
                let narrower_or_equal =
                    !allowed(Some(action)) || allowed(wide.get(&number).copied());
                assert!(narrower_or_equal, "{pair:?} {number} {value:#x}");
            }
        }
    }
}

/// The numbers that the documentation gives. An always-allowed call costs its path only once: the
/// kernel walks it at installation and remembers the answer.
#[test]
fn filters_are_short_and_their_paths_too() {
    let values = interesting_values();
    for (profile, arch) in every_filter() {
        let program = program(profile, arch);
        let steps = |number, value| {
            run(&program, &Data { number, arch: arch.audit(), args: [value; 6] }).steps
        };
        let calls = || table::ALL.iter().filter_map(|call| call.number(arch));
        let longest =
            calls().flat_map(|n| values.iter().map(move |value| steps(n, *value))).max().unwrap();
        let all: Vec<_> = calls().map(|number| steps(number, 0)).collect();
        let mean = all.iter().sum::<usize>() as f64 / all.len() as f64;
        let length = program.len();
        println!(
            "{profile} {arch:?}: {length} instructions, longest path {longest}, mean {mean:.1}"
        );
        assert!(length <= 300, "{profile} {arch:?}: {length} instructions");
        assert!(longest <= 40, "{profile} {arch:?}: {longest} instructions in one call");
        assert!(mean <= 13.0, "{profile} {arch:?}: {mean} instructions per call");
    }
}

#[test]
fn jumps_beyond_the_reach_of_a_branch_arrive() {
    // A different error for each call and value: nothing can be shared or merged.
    static VALUES: [u32; 300] = {
        let mut values = [0; 300];
        let mut i = 0;
        while i < values.len() {
            values[i] = i as u32;
            i += 1;
        }
        values
    };
    let actions: Vec<_> = table::ALL
        .iter()
        .step_by(40)
        .zip(100..)
        .map(|(call, errno)| {
            let test = Test::OneOf { argument: 0, mask: 0xffff, values: &VALUES };
            let rule = Rule { tests: vec![test], then: Verdict::Allow };
            let otherwise = Verdict::Errno(errno);
            (*call, Action::ByArguments { rules: vec![rule], otherwise })
        })
        .collect();
    for arch in ARCHES {
        let program = compile::compile(arch, &actions, UNMENTIONED);
        check(&program).unwrap();
        assert!(program.iter().any(|instruction| instruction.code == compile::JUMP));
        let actions = by_number(&actions, arch);
        for number in 0..500 {
            for value in [0, 1, 150, 299, 300, 0xffff, 0x1_0000, 1 << 32] {
                let args = [value; 6];
                let End { value, .. } = run(&program, &Data { number, arch: arch.audit(), args });
                assert_eq!(value, judge(actions.get(&number).copied(), &args).value());
            }
        }
    }
}

#[test]
fn bytes_have_the_layout_of_sock_filter() {
    let instruction = Instruction { code: 0x0102, jt: 3, jf: 4, k: 0x0506_0708 };
    assert_eq!(compile::bytes(&[instruction]), [2, 1, 3, 4, 8, 7, 6, 5]);
    let filter = super::filter(Profile::Standard, Around::Namespaces, Arch::X86_64, KEY);
    assert_eq!(filter.len(), 8 * program(Profile::Standard, Arch::X86_64).len());
}

#[test]
fn names_are_found_by_number() {
    let number = call::ptrace.number(Arch::native().unwrap()).unwrap();
    assert_eq!(syscall_name(number), Some("ptrace"));
    assert_eq!(syscall_name(0xffff), None);
}

fn any_value() -> impl Strategy<Value = u64> {
    let interesting = proptest::sample::select(interesting_values());
    prop_oneof![
        2 => interesting.clone(),
        1 => (interesting.clone(), 0..64_u32).prop_map(|(value, bit)| value ^ (1 << bit)),
        1 => (interesting.clone(), interesting).prop_map(|(a, b)| a | b),
        1 => any::<u64>(),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn the_filter_is_the_profile(
        (profile, arch) in proptest::sample::select(every_filter().collect::<Vec<_>>()),
        number in prop_oneof![8 => 0..480_u32, 1 => 0..0x4000_0000_u32],
        args in prop::array::uniform6(any_value()),
    ) {
        let actions = profile::actions(profile, KEY);
        let program = compile::compile(arch, &actions, UNMENTIONED);
        let end = run(&program, &Data { number, arch: arch.audit(), args });
        let action = by_number(&actions, arch).get(&number).copied();
        prop_assert_eq!(end.value, judge(action, &args).value());
    }
}

/// The lists to review, one file per filter. `HOTCELL_UPDATE_GOLDEN=1` writes them anew.
#[test]
fn the_lists_are_the_reviewed_ones() {
    for (profile, arch) in every_filter() {
        let file = format!("{arch:?}-{profile}.txt").to_lowercase();
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/seccomp/golden").join(file);
        let list = describe_all(profile, arch);
        if std::env::var_os("HOTCELL_UPDATE_GOLDEN").is_some() {
            std::fs::write(&path, &list).unwrap();
        }
        let golden = std::fs::read_to_string(&path).unwrap();
        for (ours, reviewed) in list.lines().zip(golden.lines()) {
            assert_eq!(ours, reviewed, "{}", path.display());
        }
        assert_eq!(list.len(), golden.len(), "{}", path.display());
    }
}

fn describe_all(profile: Profile, arch: Arch) -> String {
    let actions = profile::actions(profile, KEY);
    let actions = by_number(&actions, arch);
    let known: BTreeMap<_, _> =
        table::ALL.iter().filter_map(|call| Some((call.number(arch)?, call.name))).collect();
    let mut list = String::new();
    for (number, name) in known {
        let action = actions.get(&number).map_or(describe(UNMENTIONED), |a| describe_action(a));
        writeln!(list, "{number} {name} {action}").unwrap();
    }
    writeln!(list, "* * {}", describe(UNMENTIONED)).unwrap();
    list
}

fn describe_action(action: &Action) -> String {
    match action {
        Action::Always(verdict) => describe(*verdict),
        Action::ByArguments { rules, otherwise } => {
            let rules = rules.iter().map(|rule| {
                let tests: Vec<_> = rule.tests.iter().map(describe_test).collect();
                format!("{} if {}; ", describe(rule.then), tests.join(" and "))
            });
            rules.collect::<String>() + "else " + &describe(*otherwise)
        }
    }
}

fn describe_test(test: &Test) -> String {
    match *test {
        Test::OneOf { argument, mask: u32::MAX, values } => {
            format!("arg{argument} in {values:#x?}")
        }
        Test::OneOf { argument, mask, values } => {
            format!("arg{argument}&{mask:#x} in {values:#x?}")
        }
        Test::AnyBit { argument, mask } => format!("arg{argument}&{mask:#x}"),
        Test::Exactly { argument, .. } => format!("arg{argument} is the key"),
    }
    .replace(",\n]", "]")
    .replace("[\n", "[")
    .replace('\n', "")
    .replace("    ", " ")
    .replace("[ ", "[")
}

fn describe(verdict: Verdict) -> String {
    let errno = match verdict {
        Verdict::Allow => return "allow".into(),
        Verdict::Report => return "report".into(),
        Verdict::Missing => return "missing".into(),
        EPERM => "EPERM",
        EACCES => "EACCES",
        EINVAL => "EINVAL",
        ENOTTY => "ENOTTY",
        ENOSYS => "ENOSYS",
        ENOPROTOOPT => "ENOPROTOOPT",
        EPROTONOSUPPORT => "EPROTONOSUPPORT",
        EAFNOSUPPORT => "EAFNOSUPPORT",
        Verdict::Errno(other) => panic!("no name for error {other}"),
    };
    errno.into()
}

#[test]
fn on_the_host_no_socket_opens_and_only_own_priorities_change() {
    let judged = |profile: Profile, name: &str, args: [u64; 6]| {
        let mut actions = profile::actions(profile, KEY);
        profile::keep_off_the_host(&mut actions);
        let call = actions.iter().find(|(call, _)| call.name == name);
        judge(call.map(|(_, action)| action), &args)
    };
    for profile in OF_RUNS {
        for family in [1, 2, 10, 16] {
            assert_eq!(judged(profile, "socket", [family, 1, 0, 0, 0, 0]), EACCES, "{family}");
        }
        assert_eq!(judged(profile, "socket", [17, 3, 0, 0, 0, 0]), Verdict::Report);
        assert_eq!(judged(profile, "socketpair", [1, 1, 0, 0, 0, 0]), Verdict::Allow);
        assert_eq!(judged(profile, "sched_setaffinity", [0; 6]), Verdict::Allow);
        assert_eq!(judged(profile, "sched_setaffinity", [7, 0, 0, 0, 0, 0]), EPERM);
        assert_eq!(judged(profile, "setpriority", [0, 7, 0, 0, 0, 0]), EPERM);
        assert_eq!(judged(profile, "setpriority", [2, 0, 0, 0, 0, 0]), EPERM);
        assert_eq!(judged(profile, "sched_setscheduler", [0; 6]), EPERM);
        for name in ["chmod", "fchmodat", "fchown", "utimensat", "setxattr"] {
            assert_eq!(judged(profile, name, [0; 6]), EPERM, "{name}");
        }
    }
    for (option, verdict) in [(1, EPERM), (36, EPERM), (15, Verdict::Allow), (8, EINVAL)] {
        assert_eq!(judged(Profile::Standard, "prctl", [option, 0, 0, 0, 0, 0]), verdict);
    }
    // What the profile refused before is not allowed by this.
    assert_eq!(judged(Profile::Strict, "setpriority", [0; 6]), EPERM);
    assert_eq!(judged(Profile::Standard, "setpriority", [0; 6]), Verdict::Allow);
}
