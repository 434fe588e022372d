//! Output while it appears.
//!
//! A thread of its own writes it: whoever reads hotcell's output may be slow or stopped, and the
//! run's deadline must not wait for them. What waits is bounded by the output limit, as the outcome
//! keeps the same bytes.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};

use hotcell_sandbox::{Handle, Sink};

pub(super) struct Live {
    run: Handle,
    /// With --json nothing is written before the end.
    silent: bool,
    /// Started with the first output: many runs have none.
    writer: Option<Writer>,
    failed: Option<io::Error>,
}

struct Writer {
    chunks: Sender<Chunk>,
    thread: JoinHandle<io::Result<()>>,
}

enum Chunk {
    Stdout(Vec<u8>),
    Stderr(Vec<u8>),
}

impl Live {
    pub(super) fn new(run: Handle, silent: bool) -> Live {
        Live { run, silent, writer: None, failed: None }
    }

    /// Waits until everything is written, and says whether it was.
    pub(super) fn finish(self) -> io::Result<()> {
        if let Some(Writer { chunks, thread }) = self.writer {
            drop(chunks);
            thread.join().map_err(|_| io::Error::other("the writing thread ended early"))??;
        }
        self.failed.map_or(Ok(()), Err)
    }

    fn send(&mut self, chunk: Chunk) {
        if self.silent || self.failed.is_some() {
            return;
        }
        if self.writer.is_none() {
            match Writer::start(self.run.clone()) {
                Ok(writer) => self.writer = Some(writer),
                Err(e) => {
                    self.failed = Some(e);
                    self.run.cancel();
                    return;
                }
            }
        }
        if let Some(writer) = &self.writer {
            // It is gone when writing failed; `finish` then says why.
            drop(writer.chunks.send(chunk));
        }
    }
}

impl Sink for Live {
    fn stdout(&mut self, chunk: &[u8]) {
        self.send(Chunk::Stdout(chunk.to_vec()));
    }

    fn stderr(&mut self, chunk: &[u8]) {
        self.send(Chunk::Stderr(chunk.to_vec()));
    }
}

impl Writer {
    fn start(run: Handle) -> io::Result<Writer> {
        // Without the buffers of the standard library: a chunk appears when it is there.
        let mut stdout = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        let mut stderr = File::from(io::stderr().as_fd().try_clone_to_owned()?);
        let (chunks, arriving) = mpsc::channel();
        let thread = thread::Builder::new().name("output".into()).spawn(move || {
            let written = arriving.into_iter().try_for_each(|chunk| match chunk {
                Chunk::Stdout(bytes) => stdout.write_all(&bytes),
                Chunk::Stderr(bytes) => stderr.write_all(&bytes),
            });
            if written.is_err() {
                // Nobody is there for the rest.
                run.cancel();
            }
            written
        })?;
        Ok(Writer { chunks, thread })
    }
}
