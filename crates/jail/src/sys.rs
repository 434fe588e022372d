//! The system calls that rustix does not have, each as a small safe function. All `unsafe` of the
//! launcher is here and in `main.rs`.
#![expect(unsafe_code, reason = "the one place with raw system calls")]

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_int};
use core::mem::MaybeUninit;
use core::num::NonZeroU32;
use core::sync::atomic::{AtomicBool, Ordering};

use linux_raw_sys::general as nr;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use rustix::io::{Errno, Result};
use rustix::process::Pid;

use crate::wire::{MAX_PACKET, MAX_STRINGS};

/// Performs a system call.
///
/// # Safety
/// The arguments must be what the call with this number expects: pointers valid for what the kernel
/// reads and writes through them for as long as the call lasts.
#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn call(number: u32, a: [usize; 6]) -> Result<usize> {
    let [a0, a1, a2, a3, a4, a5] = a;
    let result: isize;
    // SAFETY: the kernel clobbers rcx and r11 and nothing else; the caller answers for the arguments.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") number as usize as isize => result,
            in("rdi") a0, in("rsi") a1, in("rdx") a2, in("r10") a3, in("r8") a4, in("r9") a5,
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    outcome(result)
}

/// As above.
///
/// # Safety
/// As above.
#[cfg(target_arch = "aarch64")]
#[inline]
unsafe fn call(number: u32, a: [usize; 6]) -> Result<usize> {
    let [a0, a1, a2, a3, a4, a5] = a;
    let result: isize;
    // SAFETY: the kernel returns in x0 and clobbers nothing else; the caller answers for the arguments.
    unsafe {
        core::arch::asm!(
            "svc 0",
            in("x8") number as usize,
            inlateout("x0") a0 as isize => result,
            in("x1") a1, in("x2") a2, in("x3") a3, in("x4") a4, in("x5") a5,
            options(nostack),
        );
    }
    outcome(result)
}

fn outcome(result: isize) -> Result<usize> {
    match usize::try_from(result) {
        Ok(value) => Ok(value),
        Err(_) => Err(Errno::from_raw_os_error(result.unsigned_abs() as i32)),
    }
}

/// Performs a call whose arguments are plain numbers, so that it cannot touch our memory.
fn call_numbers(number: u32, a: [usize; 6]) -> Result<usize> {
    // SAFETY: only used in this file, for calls that take no pointers.
    unsafe { call(number, a) }
}

/// The flag of `clone` for a child of one's own parent.
pub(crate) const SIBLING: u64 = nr::CLONE_PARENT as u64;

/// What `clone3` returned.
#[derive(Debug)]
pub(crate) enum Cloned {
    Child,
    Parent { pid: Pid, pidfd: OwnedFd },
}

/// Forks with new namespaces; `into` is a cgroup v2 directory to be born in.
///
/// Memory is copied as by `fork`, so that the child may go on with everything that it had; there is
/// only this one thread.
pub(crate) fn clone(flags: u64, into: Option<BorrowedFd<'_>>) -> Result<Cloned> {
    let mut pidfd: RawFd = -1;
    let is_sibling = flags & SIBLING != 0;
    let into_flag = if into.is_some() { nr::CLONE_INTO_CGROUP } else { 0 };
    let args = nr::clone_args {
        flags: flags | u64::from(nr::CLONE_PIDFD) | into_flag,
        pidfd: (&raw mut pidfd).expose_provenance() as u64,
        child_tid: 0,
        parent_tid: 0,
        // A sibling tells its end as this process does.
        exit_signal: if is_sibling { 0 } else { u64::from(nr::SIGCHLD) },
        stack: 0,
        stack_size: 0,
        tls: 0,
        set_tid: 0,
        set_tid_size: 0,
        cgroup: into.map_or(0, |fd| fd.as_raw_fd() as u64),
    };
    let size = size_of::<nr::clone_args>();
    // SAFETY: `args` is a whole clone_args and `pidfd` is writable; both outlive the call. Without
    // CLONE_VM the child has its own copy of the stack, so returning in it is sound.
    let pid = unsafe {
        call(nr::__NR_clone3, [(&raw const args).expose_provenance(), size, 0, 0, 0, 0])
    }?;
    match Pid::from_raw(pid as i32) {
        None => Ok(Cloned::Child),
        // SAFETY: the kernel has just stored a descriptor there that nobody else owns.
        Some(pid) => Ok(Cloned::Parent { pid, pidfd: unsafe { OwnedFd::from_raw_fd(pidfd) } }),
    }
}

/// Ends this process at once.
pub fn exit(code: u8) -> ! {
    loop {
        // The call does not return; the loop is for the type.
        if call_numbers(nr::__NR_exit_group, [usize::from(code), 0, 0, 0, 0, 0]).is_err() {
            continue;
        }
    }
}

/// Closes every descriptor from `first` to `last`.
pub(crate) fn close_range(first: u32, last: u32) -> Result<()> {
    call_numbers(nr::__NR_close_range, [first as usize, last as usize, 0, 0, 0, 0]).map(drop)
}

/// Moves a descriptor to exactly `number`, without close-on-exec.
pub(crate) fn place(fd: impl AsFd, number: u32) -> Result<()> {
    dup3(fd, number, 0)
}

/// Moves a descriptor to exactly `number`, closed on exec.
pub(crate) fn place_cloexec(fd: impl AsFd, number: u32) -> Result<()> {
    dup3(fd, number, nr::O_CLOEXEC)
}

fn dup3(fd: impl AsFd, number: u32, flags: u32) -> Result<()> {
    let old = fd.as_fd().as_raw_fd() as usize;
    match call_numbers(nr::__NR_dup3, [old, number as usize, flags as usize, 0, 0, 0]) {
        // Already there: what is left is its close-on-exec flag.
        Err(Errno::INVAL) if old == number as usize => {
            let cloexec = usize::from(flags != 0);
            let set = [old, nr::F_SETFD as usize, cloexec, 0, 0, 0];
            call_numbers(nr::__NR_fcntl, set).map(drop)
        }
        other => other.map(drop),
    }
}

/// A descriptor by number, for those that were put at fixed places.
pub(crate) fn at(number: u32) -> BorrowedFd<'static> {
    // SAFETY: only used for numbers that this process has filled and keeps open to its end; a
    // closed number would only make a call fail with EBADF. The number is never -1.
    unsafe { BorrowedFd::borrow_raw(number as RawFd) }
}

/// Makes a mount and all below it read-only, without set-user-id and, unless `devices`, without
/// device nodes.
pub(crate) fn restrict_mount(mount: impl AsFd, devices: bool) -> Result<()> {
    let nodev = if devices { 0 } else { nr::MOUNT_ATTR_NODEV };
    let set = nr::MOUNT_ATTR_RDONLY | nr::MOUNT_ATTR_NOSUID | nodev;
    set_mount(mount, set, nr::AT_RECURSIVE)
}

/// Makes just this mount read-only.
pub(crate) fn make_read_only(mount: impl AsFd) -> Result<()> {
    set_mount(mount, nr::MOUNT_ATTR_RDONLY, 0)
}

fn set_mount(mount: impl AsFd, set: u32, flags: u32) -> Result<()> {
    let attr =
        nr::mount_attr { attr_set: u64::from(set), attr_clr: 0, propagation: 0, userns_fd: 0 };
    let fd = mount.as_fd().as_raw_fd() as usize;
    let flags = (nr::AT_EMPTY_PATH | flags) as usize;
    let (path, attr_at) = (c"".as_ptr().expose_provenance(), (&raw const attr).expose_provenance());
    // SAFETY: an empty NUL-terminated path and a whole mount_attr, both living through the call.
    unsafe {
        call(nr::__NR_mount_setattr, [fd, path, flags, attr_at, size_of::<nr::mount_attr>(), 0])
    }
    .map(drop)
}

/// Joins a new, empty session keyring.
pub(crate) fn new_keyring() -> Result<()> {
    const KEYCTL_JOIN_SESSION_KEYRING: usize = 1;
    call_numbers(nr::__NR_keyctl, [KEYCTL_JOIN_SESSION_KEYRING, 0, 0, 0, 0, 0]).map(drop)
}

/// Installs a filter and gives the listener for its reports.
pub(crate) fn install_filter(filter: &[u8]) -> Result<OwnedFd> {
    const SECCOMP_FILTER_FLAG_NEW_LISTENER: usize = 1 << 3;
    let fd = add_filter(filter, SECCOMP_FILTER_FLAG_NEW_LISTENER)?;
    // SAFETY: with this flag the call gives a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// Installs a filter that reports nothing.
pub(crate) fn install_silent_filter(filter: &[u8]) -> Result<()> {
    add_filter(filter, 0).map(drop)
}

fn add_filter(filter: &[u8], flags: usize) -> Result<usize> {
    #[repr(C)]
    struct Program {
        length: u16,
        filter: *const u8,
    }
    const INSTRUCTION: usize = 8;
    let length = u16::try_from(filter.len() / INSTRUCTION).map_err(|_| Errno::INVAL)?;
    if !filter.len().is_multiple_of(INSTRUCTION) {
        return Err(Errno::INVAL);
    }
    let program = Program { length, filter: filter.as_ptr() };
    const SECCOMP_SET_MODE_FILTER: usize = 1;
    let program_at = (&raw const program).expose_provenance();
    let args = [SECCOMP_SET_MODE_FILTER, flags, program_at, 0, 0, 0];
    // SAFETY: `program` describes `length` instructions that live through the call; the kernel
    // copies them, and needs no alignment for that.
    unsafe { call(nr::__NR_seccomp, args) }
}

/// A call that waits for an answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Notice {
    pub(crate) id: u64,
    pub(crate) number: u32,
    /// Who made it, as this process's pid namespace numbers it.
    pub(crate) caller: Option<Pid>,
}

#[repr(C)]
struct SeccompNotif {
    id: u64,
    pid: u32,
    flags: u32,
    number: i32,
    arch: u32,
    instruction_pointer: u64,
    args: [u64; 6],
}

#[repr(C)]
struct SeccompNotifResp {
    id: u64,
    value: i64,
    error: i32,
    flags: u32,
}

const SECCOMP_IOCTL_NOTIF_RECV: usize = 0xc050_2100;
const SECCOMP_IOCTL_NOTIF_SEND: usize = 0xc018_2101;

/// Takes the next reported call.
pub(crate) fn next_notice(listener: impl AsFd) -> Result<Notice> {
    let mut notif = SeccompNotif {
        id: 0,
        pid: 0,
        flags: 0,
        number: 0,
        arch: 0,
        instruction_pointer: 0,
        args: [0; 6],
    };
    let fd = listener.as_fd().as_raw_fd() as usize;
    let args = [fd, SECCOMP_IOCTL_NOTIF_RECV, (&raw mut notif).expose_provenance(), 0, 0, 0];
    // SAFETY: a zeroed struct of the size that the request number encodes.
    unsafe { call(nr::__NR_ioctl, args) }?;
    let caller = Pid::from_raw(notif.pid.cast_signed());
    Ok(Notice { id: notif.id, number: notif.number as u32, caller })
}

/// The call in which a process that executes nothing waits to be let go: every filter reports it, and is
/// never answered but with no, except this once.
pub(crate) const RELEASE: u32 = nr::__NR_ptrace;
/// The answer. The kernel itself has no such one.
const LET_GO: usize = 0x686f_7463;

/// Waits to be let go. Whatever else ends the wait is not that.
pub(crate) fn await_release() -> Result<()> {
    const NO_REQUEST: usize = usize::MAX;
    match call_numbers(RELEASE, [NO_REQUEST, 0, 0, 0, 0, 0])? {
        LET_GO => Ok(()),
        _ => Err(Errno::PROTO),
    }
}

/// Lets a process go that waits for it.
pub(crate) fn let_go(listener: impl AsFd, notice: Notice) -> Result<()> {
    answer(listener, SeccompNotifResp { id: notice.id, value: LET_GO as i64, error: 0, flags: 0 })
}

/// Answers a reported call with "operation not permitted". There is no answer that lets it run, so
/// nothing can change between looking and doing.
pub(crate) fn refuse(listener: impl AsFd, notice: Notice) -> Result<()> {
    let error = -Errno::PERM.raw_os_error();
    answer(listener, SeccompNotifResp { id: notice.id, value: 0, error, flags: 0 })
}

fn answer(listener: impl AsFd, answer: SeccompNotifResp) -> Result<()> {
    let fd = listener.as_fd().as_raw_fd() as usize;
    let args = [fd, SECCOMP_IOCTL_NOTIF_SEND, (&raw const answer).expose_provenance(), 0, 0, 0];
    // SAFETY: a whole struct of the size that the request number encodes; the kernel only reads it.
    unsafe { call(nr::__NR_ioctl, args) }.map(drop)
}

/// `struct landlock_ruleset_attr` as of ABI 6.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RulesetAttr {
    pub(crate) access_fs: u64,
    pub(crate) access_net: u64,
    pub(crate) scoped: u64,
}

/// The Landlock ABI of this kernel; `None` where Landlock is not there or not on.
pub fn landlock_abi() -> Option<u32> {
    const LANDLOCK_CREATE_RULESET_VERSION: usize = 1;
    let args = [0, 0, LANDLOCK_CREATE_RULESET_VERSION, 0, 0, 0];
    let abi = call_numbers(nr::__NR_landlock_create_ruleset, args).ok()?;
    NonZeroU32::new(abi as u32).map(NonZeroU32::get)
}

/// Makes a ruleset. Kernels before a field was known refuse it unless it is zero.
pub(crate) fn landlock_ruleset(attr: &RulesetAttr) -> Result<OwnedFd> {
    let args = [(&raw const *attr).expose_provenance(), size_of::<RulesetAttr>(), 0, 0, 0, 0];
    // SAFETY: a whole attribute struct that lives through the call and is only read.
    let fd = unsafe { call(nr::__NR_landlock_create_ruleset, args) }?;
    // SAFETY: the call gives a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// Allows `access` on `parent` and everything below it.
pub(crate) fn landlock_allow(ruleset: impl AsFd, parent: impl AsFd, access: u64) -> Result<()> {
    #[repr(C, packed)]
    struct PathBeneath {
        access: u64,
        parent: i32,
    }
    const LANDLOCK_RULE_PATH_BENEATH: usize = 1;
    let rule = PathBeneath { access, parent: parent.as_fd().as_raw_fd() };
    let fd = ruleset.as_fd().as_raw_fd() as usize;
    let args = [fd, LANDLOCK_RULE_PATH_BENEATH, (&raw const rule).expose_provenance(), 0, 0, 0];
    // SAFETY: a whole rule of the type that is named, living through the call and only read.
    unsafe { call(nr::__NR_landlock_add_rule, args) }.map(drop)
}

/// Puts this process under the ruleset for good.
pub(crate) fn landlock_restrict(ruleset: impl AsFd) -> Result<()> {
    let fd = ruleset.as_fd().as_raw_fd() as usize;
    call_numbers(nr::__NR_landlock_restrict_self, [fd, 0, 0, 0, 0, 0]).map(drop)
}

/// Waits for any child and gives its pid and wait status.
pub(crate) fn wait_any() -> Result<(Pid, u32)> {
    wait4(-1)
}

/// Waits for one child and gives its wait status.
pub(crate) fn wait_for(pid: Pid) -> Result<u32> {
    wait4(pid.as_raw_pid()).map(|(_, status)| status)
}

fn wait4(which: c_int) -> Result<(Pid, u32)> {
    let mut status: c_int = 0;
    let args =
        [which as usize, (&raw mut status).expose_provenance(), nr::__WALL as usize, 0, 0, 0];
    // SAFETY: `status` is writable for the length of the call; no rusage is asked for.
    let pid = unsafe { call(nr::__NR_wait4, args) }?;
    Pid::from_raw(pid as i32).map(|pid| (pid, status as u32)).ok_or(Errno::CHILD)
}

/// A child that has ended and was not waited for: which of several is the kernel's choice.
pub(crate) fn ended_child() -> Result<Option<Pid>> {
    const P_ALL: usize = 0;
    /// siginfo_t is 128 bytes; the pid comes after three ints and their padding.
    const PID_AT: usize = 4;
    let mut information = [0_i32; 32];
    let options = (nr::WEXITED | nr::__WALL | nr::WNOHANG | nr::WNOWAIT) as usize;
    let args = [P_ALL, 0, information.as_mut_ptr().expose_provenance(), options, 0, 0];
    // SAFETY: a zeroed siginfo_t that is writable for the length of the call; no rusage is asked for.
    unsafe { call(nr::__NR_waitid, args) }?;
    Ok(information.get(PID_AT).and_then(|pid| Pid::from_raw(*pid)))
}

/// Whether a descriptor is that of a process, and that process a child of this one.
pub(crate) fn is_child(pidfd: impl AsFd) -> bool {
    wait_behind(pidfd, nr::WNOHANG | nr::WNOWAIT).is_ok()
}

/// Reaps the child behind a descriptor, which has ended or is about to.
pub(crate) fn reap(pidfd: impl AsFd) -> Result<()> {
    wait_behind(pidfd, 0)
}

fn wait_behind(pidfd: impl AsFd, extra: u32) -> Result<()> {
    const P_PIDFD: usize = 3;
    let options = (nr::WEXITED | nr::__WALL | extra) as usize;
    let args = [P_PIDFD, pidfd.as_fd().as_raw_fd() as usize, 0, options, 0, 0];
    // Nothing is asked for but whether it can be waited for.
    call_numbers(nr::__NR_waitid, args).map(drop)
}

/// Processor time of the children that were waited for, in microseconds.
pub(crate) fn children_cpu_micros() -> u64 {
    const RUSAGE_CHILDREN: isize = -1;
    // struct rusage is two timevals and fourteen longs.
    let mut usage = [0_i64; 18];
    let args = [RUSAGE_CHILDREN as usize, usage.as_mut_ptr().expose_provenance(), 0, 0, 0, 0];
    // SAFETY: the array has the size and alignment of struct rusage and is writable.
    if unsafe { call(nr::__NR_getrusage, args) }.is_err() {
        return 0;
    }
    let [user_s, user_us, sys_s, sys_us, ..] = usage;
    let seconds = user_s.saturating_add(sys_s).saturating_mul(1_000_000);
    seconds.saturating_add(user_us).saturating_add(sys_us).unsigned_abs()
}

/// Sends SIGKILL to every process that this one may signal. Inside a pid namespace whose pid 1 we
/// are, that is everything else in it.
pub(crate) fn kill_all() -> Result<()> {
    call_numbers(nr::__NR_kill, [-1_isize as usize, nr::SIGKILL as usize, 0, 0, 0, 0]).map(drop)
}

/// Room for a NULL-terminated array of strings, as `execve` takes it. Most of it is never used, and
/// touching it would cost more than anything else here.
#[derive(Debug)]
pub(crate) struct Vector {
    /// With room for the terminator.
    pointers: [MaybeUninit<*const u8>; MAX_STRINGS + 1],
}

/// A NULL-terminated array of strings that outlive it.
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Strings<'a> {
    first: *const MaybeUninit<*const u8>,
    strings: core::marker::PhantomData<&'a CStr>,
}

impl Vector {
    pub(crate) const fn new() -> Vector {
        Vector { pointers: [MaybeUninit::uninit(); MAX_STRINGS + 1] }
    }

    /// `None` when there are more strings than fit with the terminator.
    pub(crate) fn fill<'a>(
        &'a mut self,
        strings: impl Iterator<Item = &'a CStr>,
    ) -> Option<Strings<'a>> {
        let pointers = strings.map(|text| text.as_ptr().cast());
        let mut places = self.pointers.iter_mut();
        for pointer in pointers.chain([core::ptr::null()]) {
            places.next()?.write(pointer);
        }
        Some(Strings { first: self.pointers.as_ptr(), strings: core::marker::PhantomData })
    }
}

/// Becomes another program; returns only when that failed. `key` is what the filter may ask for in
/// the sixth argument, which the call itself does not look at.
pub(crate) fn execute(path: &CStr, key: u64, args: Strings<'_>, env: Strings<'_>) -> Errno {
    let argv = args.first.expose_provenance();
    let envp = env.first.expose_provenance();
    let path = path.as_ptr().expose_provenance();
    // Paths are absolute, so that the directory does not matter.
    let call_args = [nr::AT_FDCWD as usize, path, argv, envp, 0, key as usize];
    // SAFETY: a NUL-terminated path and NULL-terminated arrays (written when
    // they were filled) of strings that they keep borrowed.
    match unsafe { call(nr::__NR_execveat, call_args) } {
        Ok(_) => Errno::INVAL,
        Err(errno) => errno,
    }
}

/// Sends one packet with a descriptor, now or not at all. `key` as for [`execute`].
pub(crate) fn send_descriptor(
    socket: BorrowedFd<'_>,
    packet: &[u8],
    descriptor: BorrowedFd<'_>,
    key: u64,
) -> Result<()> {
    const SOL_SOCKET: i32 = 1;
    const SCM_RIGHTS: i32 = 1;
    const DONTWAIT_NOSIGNAL: usize = 0x40 | 0x4000;
    // struct iovec, struct cmsghdr with one descriptor (padded to its alignment) and struct msghdr.
    let piece = [packet.as_ptr().expose_provenance(), packet.len()];
    #[repr(C)]
    struct Control(usize, [i32; 4]);
    let control = Control(
        size_of::<usize>() + 3 * size_of::<i32>(),
        [SOL_SOCKET, SCM_RIGHTS, descriptor.as_raw_fd(), 0],
    );
    let header: [usize; 7] = [
        0,
        0,
        piece.as_ptr().expose_provenance(),
        1,
        (&raw const control).expose_provenance(),
        size_of::<Control>(),
        0,
    ];
    let call_args = [
        socket.as_raw_fd() as usize,
        header.as_ptr().expose_provenance(),
        DONTWAIT_NOSIGNAL,
        0,
        0,
        key as usize,
    ];
    // SAFETY: a message header whose one piece and one control message it is told the lengths of; all of them,
    // and what they point to, live until the call returns, and it writes to none.
    match unsafe { call(nr::__NR_sendmsg, call_args) }? {
        sent if sent == packet.len() => Ok(()),
        _ => Err(Errno::MSGSIZE),
    }
}

/// Leaves namespaces of the given kinds for new ones.
pub(crate) fn unshare(flags: u32) -> Result<()> {
    call_numbers(nr::__NR_unshare, [flags as usize, 0, 0, 0, 0, 0]).map(drop)
}

/// Takes a capability out of the bounding set for good.
pub(crate) fn drop_bounding(capability: u32) -> Result<()> {
    const PR_CAPBSET_DROP: usize = 24;
    call_numbers(nr::__NR_prctl, [PR_CAPBSET_DROP, capability as usize, 0, 0, 0, 0]).map(drop)
}

/// Every signal back to its default, and none blocked: both are inherited from whoever started us.
pub(crate) fn reset_signals() {
    const SIGNALS: usize = 64;
    const SET_BYTES: usize = 8;
    // struct sigaction of the kernel is at most 32 bytes; all zero is "default, no flags, no mask".
    let default = [0_u64; 4];
    let action = default.as_ptr().expose_provenance();
    for signal in 1..=SIGNALS {
        let args = [signal, action, 0, SET_BYTES, 0, 0];
        // SAFETY: a whole zeroed sigaction that is only read; SIGKILL and SIGSTOP just fail.
        if unsafe { call(nr::__NR_rt_sigaction, args) }.is_err() {
            continue;
        }
    }
    mask_signals(0);
}

/// Blocks every signal that can be blocked, for a process that must see its work to the end.
pub(crate) fn block_signals() {
    mask_signals(u64::MAX);
}

fn mask_signals(mask: u64) {
    const SIG_SETMASK: usize = 2;
    let args = [SIG_SETMASK, (&raw const mask).expose_provenance(), 0, size_of::<u64>(), 0, 0];
    // SAFETY: eight bytes as the new mask, only read; the old one is not asked for.
    let done = unsafe { call(nr::__NR_rt_sigprocmask, args) };
    debug_assert!(done.is_ok(), "every mask is accepted");
}

/// Brings the loopback interface of this network namespace up.
pub(crate) fn loopback_up(socket: impl AsFd) -> Result<()> {
    #[repr(C)]
    struct InterfaceRequest {
        name: [u8; 16],
        flags: i16,
        rest: [u8; 22],
    }
    const SIOCSIFFLAGS: usize = 0x8914;
    const IFF_UP: i16 = 1;
    let mut request = InterfaceRequest { name: [0; 16], flags: IFF_UP, rest: [0; 22] };
    for (to, from) in request.name.iter_mut().zip(*b"lo") {
        *to = from;
    }
    let fd = socket.as_fd().as_raw_fd() as usize;
    let args = [fd, SIOCSIFFLAGS, (&raw mut request).expose_provenance(), 0, 0, 0];
    // SAFETY: a whole struct ifreq (40 bytes) that lives through the call.
    unsafe { call(nr::__NR_ioctl, args) }.map(drop)
}

/// Takes an exclusive lock on one byte of a file, for this open file description and whoever inherits
/// it. `false` when somebody else has it. The lock ends with its last holder, however that ends.
pub fn lock_byte(file: impl AsFd, at: u32) -> Result<bool> {
    match set_lock(file, at, nr::F_WRLCK as i16) {
        Ok(()) => Ok(true),
        Err(Errno::AGAIN | Errno::ACCESS) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Gives the byte back.
pub fn unlock_byte(file: impl AsFd, at: u32) -> Result<()> {
    set_lock(file, at, nr::F_UNLCK as i16)
}

fn set_lock(file: impl AsFd, at: u32, kind: i16) -> Result<()> {
    #[repr(C)]
    struct Lock {
        kind: i16,
        whence: i16,
        start: i64,
        length: i64,
        pid: i32,
    }
    const F_OFD_SETLK: usize = 37;
    let lock = Lock { kind, whence: 0, start: i64::from(at), length: 1, pid: 0 };
    let fd = file.as_fd().as_raw_fd() as usize;
    let args = [fd, F_OFD_SETLK, (&raw const lock).expose_provenance(), 0, 0, 0];
    // SAFETY: a whole struct flock of a 64-bit machine, living through the call and only read.
    unsafe { call(nr::__NR_fcntl, args) }.map(drop)
}

/// Memory for one thing that costs nothing until something is in it: on the stack it would have to be
/// cleared first, page by page, in every process.
#[derive(Debug)]
pub(crate) struct Reserve<T> {
    is_taken: AtomicBool,
    content: UnsafeCell<T>,
}

/// Memory for one packet.
pub(crate) type Packet = Reserve<[u8; MAX_PACKET]>;

impl Packet {
    pub(crate) const fn new() -> Packet {
        Reserve::of([0; MAX_PACKET])
    }
}

// SAFETY: the content is reached only through `take`, which gives it out once.
unsafe impl<T> Sync for Reserve<T> {}

impl<T> Reserve<T> {
    pub(crate) const fn of(content: T) -> Reserve<T> {
        Reserve { is_taken: AtomicBool::new(false), content: UnsafeCell::new(content) }
    }

    /// The memory, for whoever asks first. A forked process has its own copy of what was taken before.
    #[expect(clippy::mut_from_ref, reason = "given out once, which the flag sees to")]
    pub(crate) fn take(&'static self) -> Result<&'static mut T> {
        if self.is_taken.swap(true, Ordering::Relaxed) {
            return Err(Errno::BUSY);
        }
        // SAFETY: the flag was not set before, so that nobody has had this reference, and it is never
        // cleared, so that nobody will.
        Ok(unsafe { &mut *self.content.get() })
    }
}
