//! A request as whoever answers it sees it.

use std::io::{self, Read};
use std::sync::{Arc, Mutex, PoisonError};

use hotcell_request::Value;
use serde::Serialize;

use crate::cancel::Cancel;
use crate::frame::{self, FrameError, Of, Raw};
use crate::inlet::{Inlet, Stdin};
use crate::outlet::Outlet;
use crate::problem::Problem;
use crate::transport::Peer;

/// Answers requests, each on a thread of its own.
pub trait Answerer: Send + Sync {
    /// The one answer. What panics is answered with a problem, and costs this request alone.
    fn answer(&self, request: Incoming, events: &Events) -> Result<Raw, Problem>;
}

/// A request.
#[derive(Debug)]
pub struct Incoming {
    pub(crate) peer: Peer,
    pub(crate) who: Arc<str>,
    pub(crate) version: u32,
    pub(crate) id: u64,
    pub(crate) ask: Value,
    pub(crate) context: Option<Value>,
    pub(crate) cancel: Cancel,
    pub(crate) inlet: Arc<Inlet>,
    pub(crate) next: u32,
}

impl Incoming {
    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// What the client calls itself: nothing to rely on.
    pub fn who(&self) -> &str {
        &self.who
    }

    /// The version of the protocol that is spoken.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Its number on its connection.
    pub fn id(&self) -> u64 {
        self.id
    }

    pub fn ask(&self) -> &Value {
        &self.ask
    }

    /// Takes the document out; afterwards it is null.
    pub fn take_ask(&mut self) -> Value {
        self.ask.take()
    }

    pub fn context(&self) -> Option<&Value> {
        self.context.as_ref()
    }

    pub fn take_context(&mut self) -> Option<Value> {
        self.context.take()
    }

    pub fn cancel(&self) -> &Cancel {
        &self.cancel
    }

    /// How many files come along.
    pub fn files(&self) -> u32 {
        self.inlet.files()
    }

    /// The next of them. What of the one before was not read is passed over.
    pub fn next_file(&mut self) -> Option<FilePart<'_>> {
        let index = self.next;
        if index >= self.files() {
            return None;
        }
        self.next += 1;
        Some(FilePart { index, inlet: &self.inlet })
    }

    /// Whether standard input comes along.
    pub fn has_stdin(&self) -> bool {
        self.inlet.has_stdin()
    }

    /// Standard input, which comes after the files: they are passed over as far as they were not read. It
    /// may be read on another thread; once the request is answered, reading fails.
    pub fn stdin(&mut self) -> Option<Stdin> {
        self.has_stdin().then(|| Stdin(Arc::clone(&self.inlet)))
    }
}

/// A file that comes along with a request.
#[derive(Debug)]
pub struct FilePart<'a> {
    index: u32,
    inlet: &'a Inlet,
}

impl FilePart<'_> {
    /// Which one it is, from 0.
    pub fn index(&self) -> u32 {
        self.index
    }
}

impl Read for FilePart<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.inlet.read(Of::File(self.index), into)
    }
}

/// Tells the client what goes on before there is an answer.
#[derive(Debug)]
pub struct Events {
    pub(crate) id: u64,
    pub(crate) told: Mutex<u64>,
    pub(crate) outlet: Arc<Outlet>,
}

/// Why an event was not told.
#[derive(Debug, thiserror::Error)]
pub enum Gone {
    /// The client is gone, and its requests are cancelled.
    #[error("nobody is there to hear it")]
    HungUp,
    #[error(transparent)]
    Frame(#[from] FrameError),
}

impl Events {
    /// Sends an event. Waits for the client to read what was sent before; one that does not is given up.
    pub fn tell<T: Serialize + ?Sized>(&self, event: &T) -> Result<(), Gone> {
        let raw = Raw::of(event)?;
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let frame = frame::event(self.id, told.saturating_add(1), &raw)?;
        self.outlet.send(&frame).map_err(|_| Gone::HungUp)?;
        *told += 1;
        Ok(())
    }
}
