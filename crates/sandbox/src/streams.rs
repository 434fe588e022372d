//! The three descriptors of a run: pipes, or a socket pair of its own, so that nothing of the host's own
//! descriptors ever crosses into a run.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use hotcell_types::Output;
use rustix::fs::{FileType, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;
use rustix::net::RecvFlags;
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
        Feed { source: unwaiting(source), pipe: File::from(pipe), pending: Vec::new() }
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
        let read = read_now(&mut self.source, &mut self.pending);
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

/// Major numbers of terminals that are the same when they are opened again.
const TERMINALS: [std::ops::RangeInclusive<u32>; 2] = [4..=4, 136..=143];

/// The same source, whose reading never waits: what somebody else reads as well can be gone when its turn comes,
/// and a run whose input is waited for would not be ended. Opened anew, since a flag would be everybody's.
fn unwaiting(source: File) -> File {
    let is_terminal = |stat: &rustix::fs::Stat| {
        let major = rustix::fs::major(stat.st_rdev);
        TERMINALS.iter().any(|majors| majors.contains(&major))
    };
    let is_one =
        rustix::fs::fstat(&source).is_ok_and(|stat| match FileType::from_raw_mode(stat.st_mode) {
            FileType::Fifo => true,
            FileType::CharacterDevice => is_terminal(&stat),
            _ => false,
        });
    if !is_one {
        return source;
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let path = format!("/proc/self/fd/{}", source.as_raw_fd());
    // What may not be opened again is read when there is something to be read, like everything else.
    rustix::fs::open(path, flags, Mode::empty()).map_or(source, File::from)
}

fn read_now(source: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    match rustix::net::recv(&*source, &mut *buffer, RecvFlags::DONTWAIT) {
        Err(Errno::NOTSOCK) => source.read(buffer),
        received => Ok(received.map(|(_, length)| length)?),
    }
}

fn again(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    /// Somebody else reads what there was between the look and the turn of the feed.
    fn fed_by(source: OwnedFd, mut writer: impl Write, mut other_reader: impl Read) {
        let (inside, pipe) = pipe(None).unwrap();
        let mut feed = Feed::new(source.into(), pipe);
        writer.write_all(b"taken").unwrap();
        other_reader.read_exact(&mut [0; 5]).unwrap();
        let (tells, hears) = mpsc::channel();
        std::thread::spawn(move || tells.send((feed.pump(), feed)));
        let (goes_on, mut feed) = hears.recv_timeout(Duration::from_secs(10)).expect("it waits");
        assert!(goes_on && feed.wants().0 == Wants::Source);
        writer.write_all(b"given").unwrap();
        assert!(feed.pump() && feed.wants().0 == Wants::Pipe && feed.pump());
        let mut given = [0; 5];
        File::from(inside).read_exact(&mut given).unwrap();
        assert_eq!(&given, b"given");
        drop(writer);
        assert!(!feed.pump(), "its end is seen");
    }

    #[test]
    fn a_source_that_somebody_else_reads_as_well_is_not_waited_for() {
        let (reader, writer) = io::pipe().unwrap();
        fed_by(reader.try_clone().unwrap().into(), writer, reader);
        let (reader, writer) = UnixStream::pair().unwrap();
        fed_by(reader.try_clone().unwrap().into(), writer, reader);
    }

    #[test]
    fn a_file_is_read_from_where_its_holder_is() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"skipped kept").unwrap();
        std::io::Seek::seek(&mut file, io::SeekFrom::Start(8)).unwrap();
        let (inside, pipe) = pipe(None).unwrap();
        let mut feed = Feed::new(file, pipe);
        while feed.pump() {}
        drop(feed);
        assert_eq!(io::read_to_string(File::from(inside)).unwrap(), "kept");
    }
}
