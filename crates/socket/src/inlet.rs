//! The parts of one request, between the thread that reads the connection and the one that answers. Parts
//! come in order, and no more of them lie here than there is room for: the other side was told how much.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::bounds::WINDOW;
use crate::frame::{self, FrameError, Of};
use crate::outlet::Outlet;

#[derive(Debug)]
pub(crate) struct Inlet {
    id: u64,
    files: u32,
    stdin: bool,
    state: Mutex<State>,
    changed: Condvar,
    outlet: Arc<Outlet>,
}

#[derive(Debug, Default)]
struct State {
    pieces: VecDeque<(Of, Vec<u8>)>,
    /// How much of the first piece was read.
    read: usize,
    unread: usize,
    /// What was read since the other side was last told.
    freed: usize,
    /// The last that is complete.
    ended: Option<Of>,
    /// Nothing more will come.
    is_over: bool,
}

impl Inlet {
    pub(crate) fn new(id: u64, files: u32, stdin: bool, outlet: Arc<Outlet>) -> Arc<Inlet> {
        let (state, changed) = (Mutex::default(), Condvar::new());
        Arc::new(Inlet { id, files, stdin, state, changed, outlet })
    }

    pub(crate) fn files(&self) -> u32 {
        self.files
    }

    pub(crate) fn has_stdin(&self) -> bool {
        self.stdin
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a part that has come.
    pub(crate) fn put(&self, of: Of, data: Vec<u8>, end: bool) -> Result<(), FrameError> {
        let mut state = self.state();
        if Some(of) != self.expected(state.ended) {
            let id = self.id;
            return Err(FrameError::Order(format!("a part of request {id} is out of order")));
        }
        let unread = state.unread.saturating_add(data.len());
        if unread > WINDOW {
            let id = self.id;
            return Err(FrameError::Order(format!("request {id} has more parts than it may")));
        }
        if !data.is_empty() && !state.is_over {
            state.unread = unread;
            state.pieces.push_back((of, data));
        }
        if end {
            state.ended = Some(of);
        }
        drop(state);
        self.changed.notify_all();
        Ok(())
    }

    /// What a part has to be of.
    fn expected(&self, ended: Option<Of>) -> Option<Of> {
        let next = match ended {
            None => Of::File(0),
            Some(Of::File(index)) => Of::File(index.saturating_add(1)),
            Some(Of::Stdin) => return None,
        };
        match next {
            Of::File(index) if index < self.files => Some(next),
            _ => self.stdin.then_some(Of::Stdin),
        }
    }

    /// Nothing more will come, and what came is not wanted.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.is_over = true;
        state.pieces.clear();
        drop(state);
        self.changed.notify_all();
    }

    /// Waits for bytes of this. What comes before it and was not read is passed over.
    pub(crate) fn read(&self, of: Of, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        let mut state = self.state();
        loop {
            if state.is_over {
                return Err(io::Error::new(
                    io::ErrorKind::ConnectionAborted,
                    "the request was cancelled",
                ));
            }
            match state.pieces.front().map(|(piece, _)| *piece) {
                Some(piece) if piece < of => {
                    let freed = state.skip();
                    state = self.grant(state, freed);
                }
                Some(piece) if piece == of => {
                    let count = state.take(into);
                    drop(self.grant(state, count));
                    return Ok(count);
                }
                Some(_) => return Ok(0),
                None if state.ended.is_some_and(|ended| ended >= of) => return Ok(0),
                None => {
                    state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }

    /// Tells the other side that there is room again, once it is worth a frame.
    fn grant<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        freed: usize,
    ) -> MutexGuard<'a, State> {
        state.unread = state.unread.saturating_sub(freed);
        state.freed += freed;
        if state.freed < WINDOW / 2 {
            return state;
        }
        let bytes = std::mem::take(&mut state.freed);
        drop(state);
        if let Ok(frame) = frame::more(self.id, bytes as u64) {
            // Who is gone sends nothing more, which the reader of the connection finds out.
            drop(self.outlet.send(&frame));
        }
        self.state()
    }
}

impl State {
    fn skip(&mut self) -> usize {
        let piece = self.pieces.pop_front().map_or(0, |(_, bytes)| bytes.len());
        piece.saturating_sub(std::mem::take(&mut self.read))
    }

    fn take(&mut self, into: &mut [u8]) -> usize {
        let Some((_, piece)) = self.pieces.front() else { return 0 };
        let rest = piece.get(self.read..).unwrap_or_default();
        let count = rest.len().min(into.len());
        if let (Some(from), Some(to)) = (rest.get(..count), into.get_mut(..count)) {
            to.copy_from_slice(from);
        }
        self.read += count;
        if self.read >= piece.len() {
            self.pieces.pop_front();
            self.read = 0;
        }
        count
    }
}

/// The standard input of a request while it comes.
#[derive(Debug)]
pub struct Stdin(pub(crate) Arc<Inlet>);

impl Read for Stdin {
    /// Fails when the request is cancelled: then nothing more comes.
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(Of::Stdin, into)
    }
}
