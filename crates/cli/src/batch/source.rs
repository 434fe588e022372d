//! Where jobs come from.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use hotcell_engine::Brake;
use hotcell_sandbox::cause;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::problem::Problem;

/// How often whoever waits for a line looks whether it is to end.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Bytes that are read at once.
const AT_ONCE: usize = 64 * 1024;

#[derive(Debug)]
pub(super) struct Source {
    file: File,
}

impl Source {
    pub(super) fn open(path: &Path) -> Result<Source, Problem> {
        let file = match path == Path::new("-") {
            true => io::stdin().as_fd().try_clone_to_owned().map(File::from),
            false => File::open(path),
        };
        let file = file.and_then(|file| match file.metadata()?.is_dir() {
            true => Err(io::ErrorKind::IsADirectory.into()),
            false => Ok(file),
        });
        file.map(|file| Source { file }).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                Problem::not_found(format!("there is no file `{}`", path.display()))
                    .fix("check the spelling; `-` is standard input")
            }
            _ => Problem::invalid(format!("`{}` cannot be read", path.display()))
                .why(cause(&error))
                .fix("give a file with a job on each line; `-` is standard input"),
        })
    }

    /// How many lines there are, where that is known before.
    pub(super) fn count(&self) -> Option<u64> {
        let data = self.file.metadata().ok()?;
        if !data.is_file() {
            return None;
        }
        // By a description of its own: where this one is must not change.
        let own =
            File::open(format!("/proc/self/fd/{}", rustix::fd::AsRawFd::as_raw_fd(&self.file)))
                .ok()?;
        let mut lines = 0;
        let mut reader = BufReader::with_capacity(AT_ONCE, own);
        loop {
            let part = reader.fill_buf().ok()?;
            if part.is_empty() {
                return Some(lines);
            }
            lines += part.iter().filter(|&&byte| byte == b'\n').count() as u64;
            let used = part.len();
            reader.consume(used);
        }
    }

    pub(super) fn reader(self, brake: &Brake) -> impl BufRead + Send {
        BufReader::with_capacity(AT_ONCE, Interruptible { file: self.file, brake })
    }
}

/// A file that has ended when the brake is pulled, also while it is waited for.
struct Interruptible<'a> {
    file: File,
    brake: &'a Brake,
}

impl Read for Interruptible<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while !self.brake.is_pulled() {
            let patience =
                Timespec::try_from(LOOK_EVERY).map_err(|_| io::ErrorKind::InvalidInput)?;
            let mut fds = [PollFd::new(&self.file, PollFlags::IN)];
            match poll(&mut fds, Some(&patience)) {
                Ok(0) => {}
                Ok(_) => return self.file.read(into),
                Err(error) if error == rustix::io::Errno::INTR => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(0)
    }
}
