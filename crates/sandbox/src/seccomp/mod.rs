//! Seccomp filters: which system calls a program may make, per [`Profile`], compiled to the bytes that
//! the kernel takes. Pure code: it installs nothing and calls nothing.
//!
//! Allowed calls are listed; `profile.rs` has the lists and their reasons. A refused call answers an
//! error that ordinary programs cope with. A call that nothing ordinary makes is sent to the
//! supervisor as a user notification (SECCOMP_RET_USER_NOTIF): it always answers EPERM and records the
//! number, so that the result can name the call. A call by another ABI (32-bit, x32) kills the process.
//!
//! The filter must be the last layer that the launcher puts on. After it, in strict and airlock, only sendmsg
//! (for the notification descriptor), close and the one exec are left to it; airlock asks for the key in both.

mod compile;
#[cfg(test)]
mod interpret;
mod profile;
mod table;
#[cfg(test)]
mod tests;

use std::num::NonZeroU64;

use hotcell_types::Profile;

/// A processor architecture with its 64-bit system call table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arch {
    X86_64,
    Aarch64,
}

impl Arch {
    /// The one this program was built for; there is no filter for any other.
    pub const fn native() -> Option<Arch> {
        if cfg!(target_arch = "x86_64") {
            Some(Arch::X86_64)
        } else if cfg!(target_arch = "aarch64") {
            Some(Arch::Aarch64)
        } else {
            None
        }
    }
}

/// What is around a run besides its filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Around {
    /// Namespaces of its own.
    Namespaces,
    /// The host itself: no socket reaches anything, and priorities are one's own only.
    Host,
}

/// The filter as the bytes of a `struct sock_filter` array; `struct sock_fprog` counts eight per entry.
///
/// In [`Profile::Strict`] and [`Profile::Airlock`] the only exec is an `execveat` with `exec_key` as its sixth argument. The key
/// must be random, new for each run, and unknown to the program: not in its arguments, environment,
/// inherited memory or descriptors. The other profiles ignore it.
pub fn filter(profile: Profile, around: Around, arch: Arch, exec_key: NonZeroU64) -> Vec<u8> {
    let mut actions = profile::actions(profile, exec_key);
    if around == Around::Host {
        profile::keep_off_the_host(&mut actions);
    }
    compile::bytes(&compile::compile(arch, &actions, profile::UNMENTIONED))
}

/// The filter of a zygote, and so of everything that is forked from one, below its own: what neither the
/// making of a cell nor any profile needs is not there.
pub fn zygote_filter(arch: Arch) -> Vec<u8> {
    let actions = profile::never_needed();
    compile::bytes(&compile::compile(arch, &actions, profile::Verdict::Allow))
}

/// The name of a system call of the native architecture.
pub fn syscall_name(number: u32) -> Option<&'static str> {
    let arch = Arch::native()?;
    table::ALL.iter().find(|call| call.number(arch) == Some(number)).map(|call| call.name)
}
