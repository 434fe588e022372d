//! The launcher's entry point, for a machine without libc: the kernel's start, and the few functions
//! that the compiler takes for granted.
#![no_std]
#![no_main]
#![expect(unsafe_code, reason = "there is no runtime below this file")]

use core::panic::PanicInfo;

/// Where the kernel jumps to. The stack is not aligned as functions expect it.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn _start() -> ! {
    core::arch::naked_asm!(
        "xor ebp, ebp",
        "and rsp, -16",
        "call {main}",
        "ud2",
        main = sym begin,
    )
}

/// As above.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn _start() -> ! {
    core::arch::naked_asm!("mov x29, 0", "mov x30, 0", "bl {main}", "brk 1", main = sym begin)
}

extern "C" fn begin() -> ! {
    hotcell_jail::guard::main()
}

/// A bug ends the launcher, and with it every run: nothing goes on half built.
#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    hotcell_jail::exit(101)
}

/// # Safety
/// As in C.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, count: usize) -> *mut u8 {
    // SAFETY: the caller's: both valid for `count` bytes and not overlapping.
    unsafe { bytes::forward(to, from, count) };
    to
}

/// # Safety
/// As in C.
#[unsafe(no_mangle)]
unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, count: usize) -> *mut u8 {
    if to.addr().wrapping_sub(from.addr()) < count {
        // SAFETY: the caller's: both valid for `count` bytes; from the end, as they overlap.
        unsafe { bytes::backward(to, from, count) };
    } else {
        // SAFETY: the caller's, and writing forward does not reach bytes before they are read.
        unsafe { bytes::forward(to, from, count) };
    }
    to
}

/// # Safety
/// As in C.
#[unsafe(no_mangle)]
unsafe extern "C" fn memset(to: *mut u8, value: i32, count: usize) -> *mut u8 {
    // SAFETY: the caller's: valid for `count` bytes.
    unsafe { bytes::fill(to, value as u8, count) };
    to
}

/// # Safety
/// As in C.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcmp(a: *const u8, b: *const u8, count: usize) -> i32 {
    for at in 0..count {
        // SAFETY: the caller's: valid for `count` bytes, and `at` is below that. Volatile, so that
        // the compiler does not turn this loop into a call of itself.
        let x = unsafe { a.add(at).read_volatile() };
        // SAFETY: as above.
        let y = unsafe { b.add(at).read_volatile() };
        if x != y {
            return i32::from(x) - i32::from(y);
        }
    }
    0
}

/// # Safety
/// As in C.
#[unsafe(no_mangle)]
unsafe extern "C" fn bcmp(a: *const u8, b: *const u8, count: usize) -> i32 {
    // SAFETY: the caller's, which are the same.
    unsafe { memcmp(a, b, count) }
}

/// # Safety
/// As in C.
#[unsafe(no_mangle)]
unsafe extern "C" fn strlen(text: *const u8) -> usize {
    let mut length = 0;
    // SAFETY: the caller's: NUL-terminated, so that every byte up to there is valid.
    while unsafe { text.add(length).read_volatile() } != 0 {
        length += 1;
    }
    length
}

/// Moving bytes with single instructions, which the compiler cannot turn into calls of the functions
/// above.
#[cfg(target_arch = "x86_64")]
mod bytes {
    use core::arch::asm;

    /// # Safety
    /// Both valid for `count` bytes.
    pub(super) unsafe fn forward(to: *mut u8, from: *const u8, count: usize) {
        // SAFETY: the caller's; the direction flag is clear by the ABI.
        unsafe {
            asm!("rep movsb", inout("rcx") count => _, inout("rdi") to => _, inout("rsi") from => _,
                options(nostack, preserves_flags));
        }
    }

    /// # Safety
    /// Both valid for `count` bytes, and `count` is not zero.
    pub(super) unsafe fn backward(to: *mut u8, from: *const u8, count: usize) {
        let (to, from) = (to.wrapping_add(count - 1), from.wrapping_add(count - 1));
        // SAFETY: the caller's; the direction flag is set and cleared again.
        unsafe {
            asm!("std", "rep movsb", "cld", inout("rcx") count => _, inout("rdi") to => _,
                inout("rsi") from => _, options(nostack));
        }
    }

    /// # Safety
    /// Valid for `count` bytes.
    pub(super) unsafe fn fill(to: *mut u8, value: u8, count: usize) {
        // SAFETY: the caller's; the direction flag is clear by the ABI.
        unsafe {
            asm!("rep stosb", inout("rcx") count => _, inout("rdi") to => _, in("al") value,
                options(nostack, preserves_flags));
        }
    }
}

/// As above, byte by byte.
#[cfg(target_arch = "aarch64")]
mod bytes {
    /// # Safety
    /// Both valid for `count` bytes.
    pub(super) unsafe fn forward(to: *mut u8, from: *const u8, count: usize) {
        for at in 0..count {
            // SAFETY: the caller's, with `at` below `count`.
            let byte = unsafe { from.add(at).read_volatile() };
            // SAFETY: as above.
            unsafe { to.add(at).write_volatile(byte) };
        }
    }

    /// # Safety
    /// Both valid for `count` bytes.
    pub(super) unsafe fn backward(to: *mut u8, from: *const u8, count: usize) {
        for at in (0..count).rev() {
            // SAFETY: the caller's, with `at` below `count`.
            let byte = unsafe { from.add(at).read_volatile() };
            // SAFETY: as above.
            unsafe { to.add(at).write_volatile(byte) };
        }
    }

    /// # Safety
    /// Valid for `count` bytes.
    pub(super) unsafe fn fill(to: *mut u8, value: u8, count: usize) {
        for at in 0..count {
            // SAFETY: the caller's, with `at` below `count`.
            unsafe { to.add(at).write_volatile(value) };
        }
    }
}
