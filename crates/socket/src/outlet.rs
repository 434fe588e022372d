//! What goes out of a connection. There is no queue: a frame is written by whoever has it, and the kernel's
//! buffer is all that a client that does not read can fill.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::bounds::FAREWELL;
use crate::transport::Transport;
use crate::turn::{Taken, Turn};

#[derive(Debug)]
pub(crate) struct Outlet {
    transport: Arc<dyn Transport>,
    /// Frames go one after the other.
    turn: Turn,
    is_over: AtomicBool,
    /// Longest that a frame takes. Looked at between writes, so that it can last twice as long.
    stall: Option<Duration>,
}

/// Nobody is there any more to whom something could be sent.
#[derive(Debug)]
pub(crate) struct Over;

impl Outlet {
    pub(crate) fn new(
        transport: Arc<dyn Transport>,
        stall: Option<Duration>,
    ) -> io::Result<Outlet> {
        if stall.is_some() {
            transport.set_send_timeout(stall)?;
        }
        Ok(Outlet { transport, turn: Turn::default(), is_over: AtomicBool::new(false), stall })
    }

    pub(crate) fn transport(&self) -> &dyn Transport {
        &*self.transport
    }

    /// Sends all of it, or ends the connection: half a frame cannot be taken back.
    pub(crate) fn send(&self, frame: &[u8]) -> Result<(), Over> {
        let turn = self.turn.take();
        if self.is_over() {
            return Err(Over);
        }
        if self.write(frame).is_ok() {
            return Ok(());
        }
        self.end(Some(turn));
        Err(Over)
    }

    /// The same, except that a connection into which nothing can be written may still be read.
    pub(crate) fn send_or_leave(&self, frames: &[u8]) -> io::Result<()> {
        let _turn = self.turn.take();
        self.write(frames)
    }

    fn write(&self, mut frame: &[u8]) -> io::Result<()> {
        let mut until = None;
        while !frame.is_empty() {
            match self.transport.send(frame) {
                Ok(sent) => frame = frame.get(sent..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if frame.is_empty() {
                break;
            }
            if let Some(stall) = self.stall
                && Instant::now() >= *until.get_or_insert_with(|| Instant::now() + stall)
            {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        Ok(())
    }

    /// Sends a last frame, if that is possible within a moment, and ends the connection.
    pub(crate) fn farewell(&self, frame: &[u8]) {
        let turn = self.turn.take_within(FAREWELL);
        if turn.is_some()
            && !self.is_over()
            && self.transport.set_send_timeout(Some(FAREWELL)).is_ok()
        {
            // Whoever cannot be told sees the end itself.
            drop(self.transport.send(frame));
        }
        self.end(turn);
    }

    /// Ends the connection, and wakes who reads it and who waits for room in it.
    pub(crate) fn close(&self) {
        self.end(None);
    }

    fn end(&self, turn: Option<Taken<'_>>) {
        self.is_over.store(true, Ordering::Release);
        drop(turn);
        // It fails only if the other side has ended it already.
        drop(self.transport.shutdown());
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }
}
