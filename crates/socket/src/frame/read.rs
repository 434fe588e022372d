//! Frames out of a transport, with a deadline for each that has begun.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Frame, FrameError, decode};
use crate::bounds::{FRAME_MOST, READING_MOST};
use crate::room::Room;
use crate::transport::Transport;

/// What is read at once. Frames that fit are understood where they lie.
const CHUNK: usize = 16 << 10;

/// Least by which the memory for a large frame grows.
const STEP: usize = 64 << 10;

/// How long a reader waits.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// For a frame to begin. Without it: as long as it takes.
    pub begin: Option<Duration>,
    /// From its beginning to its end. It is looked at between reads, so that it can last twice as long.
    pub frame: Duration,
}

/// Why there is no frame.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("the connection was closed")]
    Closed,
    #[error("the connection was closed in the middle of a frame")]
    Truncated,
    #[error("nothing came in time")]
    Silent,
    #[error("a frame took too long")]
    Slow,
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error("the connection cannot be read")]
    Io(#[source] io::Error),
}

/// Reads one connection.
#[derive(Debug)]
pub struct FrameReader {
    chunk: Box<[u8]>,
    /// What of the chunk was received and not yet understood.
    from: usize,
    to: usize,
    /// What the transport's timeout is set to.
    timeout: Option<Duration>,
    room: Arc<Room>,
}

impl FrameReader {
    pub fn new() -> FrameReader {
        FrameReader::within(&Room::new(READING_MOST))
    }

    /// Takes the memory for large frames from there.
    pub(crate) fn within(room: &Arc<Room>) -> FrameReader {
        let chunk = vec![0; CHUNK].into_boxed_slice();
        FrameReader { chunk, from: 0, to: 0, timeout: None, room: Arc::clone(room) }
    }

    /// The next frame.
    pub fn next(
        &mut self,
        transport: &dyn Transport,
        patience: Patience,
    ) -> Result<Frame, ReadError> {
        if self.unread().is_empty() {
            (self.from, self.to) = (0, 0);
            self.set_timeout(transport, patience.begin)?;
            let until = patience.begin.map(|wait| Instant::now() + wait);
            if self.fill(transport, until).map_err(|error| timed(error, ReadError::Silent))? == 0 {
                return Err(ReadError::Closed);
            }
        }
        if let Some(body) = self.whole()? {
            return Ok(decode(body)?);
        }
        self.set_timeout(transport, Some(patience.frame))?;
        let body = self.rest(transport, Instant::now() + patience.frame)?;
        Ok(decode(&body)?)
    }

    fn unread(&self) -> &[u8] {
        self.chunk.get(self.from..self.to).unwrap_or_default()
    }

    /// The length of the frame that begins here, if that much of it has come.
    fn announced(&self) -> Result<Option<usize>, FrameError> {
        let Some(head) = self.unread().first_chunk() else { return Ok(None) };
        match u32::from_be_bytes(*head) as usize {
            0 => Err(FrameError::Empty),
            bytes if bytes > FRAME_MOST => Err(FrameError::TooLarge { bytes }),
            bytes => Ok(Some(bytes)),
        }
    }

    /// The frame that begins here, if all of it has come.
    fn whole(&mut self) -> Result<Option<&[u8]>, FrameError> {
        let Some(length) = self.announced()? else { return Ok(None) };
        let start = self.from + 4;
        let end = start + length;
        if end > self.to {
            return Ok(None);
        }
        self.from = end;
        Ok(self.chunk.get(start..end))
    }

    /// The frame of which not all has come. Memory grows with what came, at most twofold.
    fn rest(&mut self, transport: &dyn Transport, until: Instant) -> Result<Vec<u8>, ReadError> {
        let length = loop {
            if let Some(length) = self.announced()? {
                break length;
            }
            self.move_to_front();
            if self.fill(transport, Some(until)).map_err(|error| timed(error, ReadError::Slow))?
                == 0
            {
                return Err(ReadError::Truncated);
            }
        };
        let came = self.unread().get(4..).unwrap_or_default();
        let (body, after) = came.split_at_checked(length).unwrap_or((came, &[]));
        let (mut body, after) = (body.to_vec(), after.len());
        self.from = self.to - after;
        let mut taken = self.room.none();
        while body.len() < length {
            let have = body.len();
            let size = have.saturating_add(have.max(STEP)).min(length);
            if !taken.grow(size) {
                return Err(FrameError::NoRoom { bytes: length }.into());
            }
            body.resize(size, 0);
            let mut filled = have;
            while filled < size {
                let into = body.get_mut(filled..).unwrap_or_default();
                match receive(transport, into, Some(until))
                    .map_err(|error| timed(error, ReadError::Slow))?
                {
                    0 => return Err(ReadError::Truncated),
                    count => filled += count,
                }
            }
        }
        Ok(body)
    }

    fn move_to_front(&mut self) {
        self.chunk.copy_within(self.from..self.to, 0);
        (self.from, self.to) = (0, self.to - self.from);
    }

    fn fill(&mut self, transport: &dyn Transport, until: Option<Instant>) -> io::Result<usize> {
        let into = self.chunk.get_mut(self.to..).unwrap_or_default();
        let count = receive(transport, into, until)?;
        self.to += count;
        Ok(count)
    }

    fn set_timeout(
        &mut self,
        transport: &dyn Transport,
        timeout: Option<Duration>,
    ) -> Result<(), ReadError> {
        if self.timeout != timeout {
            transport.set_receive_timeout(timeout).map_err(ReadError::Io)?;
            self.timeout = timeout;
        }
        Ok(())
    }
}

impl Default for FrameReader {
    fn default() -> FrameReader {
        FrameReader::new()
    }
}

/// Some bytes, none at the end. Whoever trickles does not get round the deadline.
fn receive(
    transport: &dyn Transport,
    into: &mut [u8],
    until: Option<Instant>,
) -> io::Result<usize> {
    loop {
        if until.is_some_and(|until| Instant::now() >= until) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match transport.receive(into) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(io::ErrorKind::TimedOut.into());
            }
            // Whoever closes with something unread resets, which is an end like others.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(0),
            other => return other,
        }
    }
}

fn timed(error: io::Error, late: ReadError) -> ReadError {
    match error.kind() {
        io::ErrorKind::TimedOut => late,
        _ => ReadError::Io(error),
    }
}
