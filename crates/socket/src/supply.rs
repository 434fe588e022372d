//! What a client sends along with a request, as far as the server has room for it.

use std::fmt;
use std::io::{self, Read};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::bounds::{INLINE_MOST, PART, WINDOW};
use crate::frame::{self, FrameError, Of};
use crate::outlet::Outlet;

/// A content that goes along.
pub enum Source {
    /// Small ones go with the request in one write.
    Bytes(Vec<u8>),
    /// Is read on another thread. That outlives the request if it waits for something that never comes, as
    /// from a terminal.
    Reader(Box<dyn Read + Send>),
}

impl Source {
    pub fn reader(reader: impl Read + Send + 'static) -> Source {
        Source::Reader(Box::new(reader))
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Bytes(bytes) => write!(f, "Bytes({})", bytes.len()),
            Source::Reader(_) => f.write_str("Reader"),
        }
    }
}

/// The parts of all of them in one piece, if they are small.
pub(crate) fn inline(id: u64, sources: &[(Of, Source)]) -> Result<Option<Vec<u8>>, FrameError> {
    let mut all = Vec::new();
    for (of, source) in sources {
        let Source::Bytes(bytes) = source else { return Ok(None) };
        all.extend_from_slice(&frame::part(id, *of, bytes, true)?);
        if all.len() > INLINE_MOST {
            return Ok(None);
        }
    }
    Ok(Some(all))
}

/// How much may be sent, and whether anybody still wants it.
#[derive(Debug)]
pub(crate) struct Window {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    left: usize,
    is_over: bool,
    /// Why a content could not be read.
    failed: Option<io::Error>,
}

impl Window {
    pub(crate) fn new() -> Arc<Window> {
        let state = State { left: WINDOW, is_over: false, failed: None };
        Arc::new(Window { state: Mutex::new(state), changed: Condvar::new() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn widen(&self, bytes: u64) {
        let mut state = self.state();
        state.left = state.left.saturating_add(usize::try_from(bytes).unwrap_or(usize::MAX));
        drop(state);
        self.changed.notify_all();
    }

    /// Nobody wants more. Why a content could not be read, if that is how it was.
    pub(crate) fn close(&self) -> Option<io::Error> {
        let mut state = self.state();
        state.is_over = true;
        let failed = state.failed.take();
        drop(state);
        self.changed.notify_all();
        failed
    }

    /// Waits until so much may be sent. Whether it is still wanted.
    fn take(&self, bytes: usize) -> bool {
        let mut state = self.state();
        while state.left < bytes && !state.is_over {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.left = state.left.saturating_sub(bytes);
        !state.is_over
    }
}

/// Sends contents in parts, on a thread of its own.
pub(crate) struct Supply {
    pub(crate) id: u64,
    pub(crate) outlet: Arc<Outlet>,
    pub(crate) window: Arc<Window>,
}

/// Why no more is sent.
enum Stop {
    /// Nobody wants it.
    Over,
    Unreadable(io::Error),
}

impl Supply {
    pub(crate) fn start(self, sources: Vec<(Of, Source)>) -> io::Result<()> {
        thread::Builder::new().name("socket-parts".into()).spawn(move || self.run(sources))?;
        Ok(())
    }

    fn run(&self, sources: Vec<(Of, Source)>) {
        for (of, source) in sources {
            match self.send(of, source) {
                Ok(()) => {}
                Err(Stop::Over) => return,
                Err(Stop::Unreadable(error)) => return self.give_up(error),
            }
        }
    }

    fn send(&self, of: Of, source: Source) -> Result<(), Stop> {
        match source {
            Source::Bytes(bytes) => {
                for piece in bytes.chunks(PART) {
                    self.part(of, piece, false)?;
                }
            }
            Source::Reader(mut reader) => {
                let mut piece = vec![0; PART];
                loop {
                    match reader.read(&mut piece) {
                        Ok(0) => break,
                        Ok(count) => {
                            self.part(of, piece.get(..count).unwrap_or_default(), false)?
                        }
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                        Err(error) => return Err(Stop::Unreadable(error)),
                    }
                }
            }
        }
        self.part(of, &[], true)
    }

    fn part(&self, of: Of, data: &[u8], end: bool) -> Result<(), Stop> {
        if !self.window.take(data.len()) {
            return Err(Stop::Over);
        }
        let frame = frame::part(self.id, of, data, end).map_err(|_| Stop::Over)?;
        self.outlet.send(&frame).map_err(|_| Stop::Over)
    }

    /// The request cannot be completed: it is cancelled, and its end tells why.
    fn give_up(&self, error: io::Error) {
        self.window.state().failed = Some(error);
        if let Ok(frame) = frame::cancel(self.id) {
            // Where the connection is over, so is the request.
            drop(self.outlet.send(&frame));
        }
    }
}
