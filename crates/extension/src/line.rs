//! One question and one answer over the pipes of the evaluator, within a time.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::time::Instant;

use hotcell_evaluator::wire::{self, Answer, HEADER, MOST_ANSWER};
use hotcell_sandbox::Talk;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

#[derive(Debug)]
pub(crate) struct Line {
    talk: Talk,
}

/// Why there was no answer. After any of these the other side cannot be trusted to be where we think.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lost {
    Late,
    Ended,
    Malformed,
}

impl Line {
    pub(crate) fn new(talk: Talk) -> Line {
        Line { talk }
    }

    pub(crate) fn ask(&mut self, frame: &[u8], deadline: Instant) -> Result<Answer, Lost> {
        let mut rest = frame;
        while !rest.is_empty() {
            let written = self.talk.to.write(rest);
            let count = done(written, &self.talk.to, PollFlags::OUT, deadline)?;
            rest = rest.get(count..).unwrap_or_default();
        }
        let mut header = [0; HEADER];
        self.fill(&mut header, deadline)?;
        let length = wire::length(header, MOST_ANSWER).map_err(|_| Lost::Malformed)?;
        let mut body = vec![0; length];
        self.fill(&mut body, deadline)?;
        Answer::read(&body).map_err(|_| Lost::Malformed)
    }

    fn fill(&mut self, buffer: &mut [u8], deadline: Instant) -> Result<(), Lost> {
        let mut rest = buffer;
        while !rest.is_empty() {
            let count = match self.talk.from.read(rest) {
                Ok(0) => return Err(Lost::Ended),
                read => done(read, &self.talk.from, PollFlags::IN, deadline)?,
            };
            rest = rest.get_mut(count..).unwrap_or_default();
        }
        Ok(())
    }
}

/// How much was moved; if nothing could be, waits until something can.
fn done(
    moved: io::Result<usize>,
    pipe: &File,
    wanted: PollFlags,
    deadline: Instant,
) -> Result<usize, Lost> {
    match moved {
        Ok(count) => Ok(count),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(0),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            wait(pipe, wanted, deadline)?;
            Ok(0)
        }
        Err(_) => Err(Lost::Ended),
    }
}

fn wait(pipe: &File, wanted: PollFlags, deadline: Instant) -> Result<(), Lost> {
    let left = deadline.saturating_duration_since(Instant::now());
    let timeout =
        Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
    match poll(&mut [PollFd::from_borrowed_fd(pipe.as_fd(), wanted)], Some(&timeout)) {
        Ok(0) => Err(Lost::Late),
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(_) => Err(Lost::Ended),
    }
}
