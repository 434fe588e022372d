//! The three descriptors of a run: pipes, or a socket pair of its own, so that nothing of the host's own
//! descriptors ever crosses into a run.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use hotcell_types::Output;
use rustix::fs::{Gid, OFlags, Uid};
use rustix::pipe::PipeFlags;

use crate::Stdin;

/// Bytes moved at once.
const CHUNK: usize = 64 * 1024;

/// Both ends of the run's pipes.
#[derive(Debug)]
pub(crate) struct Pipes {
    pub(crate) ours: Ours,
    pub(crate) theirs: [OwnedFd; 3],
}

#[derive(Debug)]
pub(crate) struct Ours {
    /// `None` when the run's standard input is empty.
    pub(crate) stdin: Option<OwnedFd>,
    pub(crate) stdout: OwnedFd,
    pub(crate) stderr: OwnedFd,
}

impl Pipes {
    /// Makes them; the run's ends belong to `owner`, so that it can open `/dev/stdout` by name.
    pub(crate) fn new(stdin: &Stdin, owner: Option<u32>) -> io::Result<Pipes> {
        // An empty one is a pipe that nobody writes to: not even /dev/null of the host crosses.
        let (their_in, our_in) = match stdin {
            Stdin::Line(socket) => (socket.try_clone()?, None),
            Stdin::Empty => (pipe(owner)?.0, None),
            Stdin::From(_) | Stdin::Held => {
                let (theirs, ours) = pipe(owner)?;
                (theirs, Some(ours))
            }
        };
        let (our_out, their_out) = pipe(owner)?;
        let (our_err, their_err) = pipe(owner)?;
        for fd in our_in.iter().chain([&our_out, &our_err]) {
            let flags = rustix::fs::fcntl_getfl(fd)? | OFlags::NONBLOCK;
            rustix::fs::fcntl_setfl(fd, flags)?;
        }
        Ok(Pipes {
            ours: Ours { stdin: our_in, stdout: our_out, stderr: our_err },
            theirs: [their_in, their_out, their_err],
        })
    }
}

fn pipe(owner: Option<u32>) -> io::Result<(OwnedFd, OwnedFd)> {
    let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    if let Some(id) = owner {
        rustix::fs::fchown(&read, Some(Uid::from_raw(id)), Some(Gid::from_raw(id)))?;
    }
    Ok((read, write))
}

/// One output stream of a run: the first bytes are kept and passed on, all are counted.
#[derive(Debug)]
pub(crate) struct Stream {
    pipe: Option<File>,
    kept: Vec<u8>,
    total: u64,
    most: usize,
}

impl Stream {
    pub(crate) fn new(pipe: OwnedFd, most: usize) -> Stream {
        Stream { pipe: Some(File::from(pipe)), kept: Vec::new(), total: 0, most }
    }

    /// The pipe, until the run has closed it.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().map(AsFd::as_fd)
    }

    /// Gives the pipe away: from here on it is somebody else's to read.
    pub(crate) fn take(&mut self) -> Option<File> {
        self.pipe.take()
    }

    /// Takes one chunk and passes on what is below the limit. `false` when there is nothing more now.
    pub(crate) fn pump(&mut self, buffer: &mut [u8], mut pass_on: impl FnMut(&[u8])) -> bool {
        let Some(pipe) = &mut self.pipe else { return false };
        match pipe.read(buffer) {
            Ok(0) => self.pipe = None,
            Ok(length) => {
                let chunk = buffer.get(..length).unwrap_or_default();
                self.total = self.total.saturating_add(chunk.len() as u64);
                let room = self.most.saturating_sub(self.kept.len());
                let fits = chunk.get(..room.min(chunk.len())).unwrap_or_default();
                if !fits.is_empty() {
                    self.kept.extend_from_slice(fits);
                    pass_on(fits);
                }
                return true;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return true,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // A pipe gives no other error; if it does, there is nothing more to be had.
            Err(_) => self.pipe = None,
        }
        false
    }

    pub(crate) fn finish(self) -> Output {
        let truncated = self.total > self.kept.len() as u64;
        Output { bytes: self.kept, total: self.total, truncated }
    }
}

/// What is written to the run's standard input, as the run takes it.
#[derive(Debug)]
pub(crate) struct Feed {
    source: File,
    pipe: File,
    pending: Vec<u8>,
}

/// What a feed waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wants {
    Source,
    Pipe,
}

impl Feed {
    pub(crate) fn new(source: File, pipe: OwnedFd) -> Feed {
        Feed { source, pipe: File::from(pipe), pending: Vec::new() }
    }

    pub(crate) fn wants(&self) -> (Wants, BorrowedFd<'_>) {
        if self.pending.is_empty() {
            (Wants::Source, self.source.as_fd())
        } else {
            (Wants::Pipe, self.pipe.as_fd())
        }
    }

    /// Moves what can be moved. `false` when it is over: the source has ended or the run reads no more.
    pub(crate) fn pump(&mut self) -> bool {
        match self.wants().0 {
            Wants::Source => self.fill(),
            Wants::Pipe => self.drain(),
        }
    }

    fn fill(&mut self) -> bool {
        self.pending.resize(CHUNK, 0);
        let read = self.source.read(&mut self.pending);
        self.pending.truncate(*read.as_ref().unwrap_or(&0));
        match read {
            Ok(0) => false,
            Ok(_) => true,
            Err(error) => again(&error),
        }
    }

    fn drain(&mut self) -> bool {
        match self.pipe.write(&self.pending) {
            Ok(length) => {
                self.pending.drain(..length.min(self.pending.len()));
                true
            }
            Err(error) => again(&error),
        }
    }
}

fn again(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock)
}
