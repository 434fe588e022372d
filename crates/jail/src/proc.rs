//! Reads /proc, the host's, held since before the root was changed.

use core::fmt::Write as _;

use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::{Errno, Result};
use rustix::process::Pid;

/// Largest file that is read: a mountinfo of some hundred mounts.
pub(crate) const MAX_FILE: usize = 48 * 1024;

/// A path built on the stack.
pub(crate) struct Path {
    bytes: [u8; 64],
    length: usize,
}

impl core::fmt::Write for Path {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        let end = self.length + text.len();
        // One byte stays for the terminator.
        let room = self.bytes.len() - 1;
        let place = self.bytes.get_mut(self.length..end.min(room)).ok_or(core::fmt::Error)?;
        if place.len() != text.len() {
            return Err(core::fmt::Error);
        }
        place.copy_from_slice(text.as_bytes());
        self.length = end;
        Ok(())
    }
}

impl Path {
    pub(crate) fn of(parts: core::fmt::Arguments<'_>) -> Result<Path> {
        let mut path = Path { bytes: [0; 64], length: 0 };
        path.write_fmt(parts).map_err(|_| Errno::NAMETOOLONG)?;
        Ok(path)
    }

    pub(crate) fn as_c(&self) -> Result<&core::ffi::CStr> {
        core::ffi::CStr::from_bytes_until_nul(&self.bytes).map_err(|_| Errno::INVAL)
    }
}

/// The host's /proc.
#[derive(Debug)]
pub(crate) struct HostProc {
    dir: OwnedFd,
}

/// One process's directory in it. Refers to that process only, also after its number was used again.
#[derive(Debug)]
pub(crate) struct Process {
    dir: OwnedFd,
    pub(crate) pid: u64,
}

impl HostProc {
    pub(crate) fn open() -> Result<HostProc> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::openat(CWD, c"/proc", flags, Mode::empty()).map(|dir| HostProc { dir })
    }

    /// This process.
    pub(crate) fn own(&self) -> Result<Process> {
        self.process(c"self", 0)
    }

    /// The process behind a pidfd. Its number here differs from the one in our own pid namespace.
    pub(crate) fn behind(&self, pidfd: impl AsFd) -> Result<Process> {
        let path = Path::of(format_args!("self/fdinfo/{}", pidfd.as_fd().as_raw_fd()))?;
        let mut buffer = [0; 512];
        let info = read_at(&self.dir, path.as_c()?, &mut buffer)?;
        let pid = field(info, b"Pid:").and_then(number).ok_or(Errno::SRCH)?;
        let path = Path::of(format_args!("{pid}"))?;
        self.process(path.as_c()?, pid)
    }

    /// This process's children, in its own pid namespace, which is the host's where this is asked.
    pub(crate) fn own_children<'b>(
        &self,
        buffer: &'b mut [u8],
    ) -> Result<impl Iterator<Item = Pid> + use<'b>> {
        let own = rustix::process::getpid().as_raw_pid();
        let path = Path::of(format_args!("self/task/{own}/children"))?;
        let text = read_at(&self.dir, path.as_c()?, buffer)?;
        let pids = words(text).filter_map(number).filter_map(|pid| i32::try_from(pid).ok());
        Ok(pids.filter_map(Pid::from_raw))
    }

    fn process(&self, name: &core::ffi::CStr, pid: u64) -> Result<Process> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::openat(&self.dir, name, flags, Mode::empty())?;
        Ok(Process { dir, pid })
    }
}

impl Process {
    pub(crate) fn read<'b>(
        &self,
        name: &core::ffi::CStr,
        buffer: &'b mut [u8],
    ) -> Result<&'b [u8]> {
        read_at(&self.dir, name, buffer)
    }

    pub(crate) fn write(&self, name: &core::ffi::CStr, content: &[u8]) -> Result<()> {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.dir, name, flags, Mode::empty())?;
        // Such files take one write or fail.
        match rustix::io::write(&file, content)? {
            n if n == content.len() => Ok(()),
            _ => Err(Errno::IO),
        }
    }

    /// Ways into its user, mnt, net, ipc and uts namespace.
    pub(crate) fn doors(&self) -> Result<[OwnedFd; 5]> {
        let open = |name| {
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            rustix::fs::openat(&self.dir, name, flags, Mode::empty())
        };
        // The user namespace first: by entering it one may enter the others.
        Ok([
            open(c"ns/user")?,
            open(c"ns/mnt")?,
            open(c"ns/net")?,
            open(c"ns/ipc")?,
            open(c"ns/uts")?,
        ])
    }

    /// Inodes of user, mnt, pid, net, ipc, uts, cgroup.
    pub(crate) fn namespaces(&self) -> Result<[u64; 7]> {
        let mut inodes = [0; 7];
        let names =
            [c"ns/user", c"ns/mnt", c"ns/pid", c"ns/net", c"ns/ipc", c"ns/uts", c"ns/cgroup"];
        for (inode, name) in inodes.iter_mut().zip(names) {
            *inode = rustix::fs::statat(&self.dir, name, rustix::fs::AtFlags::empty())?.st_ino;
        }
        Ok(inodes)
    }

    /// Goes through a file of any length, line by line; of a long line, its beginning.
    pub(crate) fn each_line(
        &self,
        name: &core::ffi::CStr,
        mut see: impl FnMut(&[u8]),
    ) -> Result<()> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.dir, name, flags, Mode::empty())?;
        let (mut part, mut line, mut length) = ([0; 2048], [0; 128], 0);
        loop {
            let count = rustix::io::read(&file, &mut part)?;
            for &byte in part.get(..count).unwrap_or_default() {
                if byte == b'\n' {
                    see(line.get(..length).unwrap_or_default());
                    length = 0;
                } else if let Some(place) = line.get_mut(length) {
                    *place = byte;
                    length += 1;
                }
            }
            if count == 0 {
                return Ok(());
            }
        }
    }

    pub(crate) fn open_dir(&self, name: &core::ffi::CStr) -> Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::openat(&self.dir, name, flags, Mode::empty())
    }
}

/// Reads a whole file; one that does not fit is an error, never half an answer.
fn read_at<'b>(dir: &OwnedFd, name: &core::ffi::CStr, buffer: &'b mut [u8]) -> Result<&'b [u8]> {
    let file = rustix::fs::openat(dir, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut length = 0;
    loop {
        let rest = buffer.get_mut(length..).filter(|r| !r.is_empty()).ok_or(Errno::FBIG)?;
        match rustix::io::read(&file, rest)? {
            0 => return buffer.get(..length).ok_or(Errno::IO),
            n => length += n,
        }
    }
}

/// The rest of the first line that starts with `name`, without surrounding blanks.
pub(crate) fn field<'a>(text: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    lines(text).find_map(|line| line.strip_prefix(name)).map(<[u8]>::trim_ascii)
}

pub(crate) fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|&b| b == b'\n').filter(|line| !line.is_empty())
}

pub(crate) fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

pub(crate) fn number(digits: &[u8]) -> Option<u64> {
    core::str::from_utf8(digits).ok()?.parse().ok()
}

pub(crate) fn octal(digits: &[u8]) -> Option<u64> {
    u64::from_str_radix(core::str::from_utf8(digits).ok()?, 8).ok()
}

pub(crate) fn hexadecimal(digits: &[u8]) -> Option<u64> {
    u64::from_str_radix(core::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_at_the_start_of_a_line_only() {
        let text = b"Name:\tSeccomp: 0\nSeccomp:\t2\nSeccomp_filters:\t1\n";
        assert_eq!(field(text, b"Seccomp:"), Some(&b"2"[..]));
        assert_eq!(field(text, b"NoNewPrivs:"), None);
    }

    #[test]
    fn numbers_are_numbers_or_nothing() {
        assert_eq!(number(b"12"), Some(12));
        assert_eq!(octal(b"02100001"), Some(0o2_100_001));
        assert_eq!(hexadecimal(b"000001fffeffffff"), Some(0x1ff_feff_ffff));
        for bad in [&b""[..], b"-1", b"1 ", b"18446744073709551616", b"\xff"] {
            assert_eq!(number(bad), None, "{}", bad.escape_ascii());
        }
    }

    #[test]
    fn a_path_that_does_not_fit_is_an_error() {
        assert!(Path::of(format_args!("{}", "x".repeat(63))).is_ok());
        assert!(Path::of(format_args!("{}", "x".repeat(64))).is_err());
    }

    #[test]
    fn a_process_is_found_behind_its_pidfd_and_a_file_too_large_is_an_error() {
        let host = HostProc::open().unwrap();
        let pid = rustix::process::getpid();
        let pidfd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap();
        let process = host.behind(&pidfd).unwrap();
        assert_eq!(process.pid, pid.as_raw_nonzero().get() as u64);
        assert_eq!(process.namespaces().unwrap(), host.own().unwrap().namespaces().unwrap());
        assert_eq!(process.read(c"status", &mut [0; 16]), Err(Errno::FBIG));
    }
}
