//! Output while it appears.
//!
//! A thread of its own writes it: whoever reads hotcell's output may be slow or stopped, and the
//! run's deadline must not wait for them. What waits is bounded by the output limit, as the outcome
//! keeps the same bytes.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};

use hotcell_sandbox::Sink;

/// Ends the run, because nobody is there for the rest of its output.
type Cancel = Arc<dyn Fn() + Send + Sync>;

pub(super) enum Live {
    /// Nothing is written while the run lasts.
    Silent,
    /// No output yet: many runs have none, and need no thread.
    Waiting {
        streams: Streams,
        cancel: Cancel,
    },
    Writing {
        chunks: Sender<Chunk>,
        thread: JoinHandle<io::Result<()>>,
    },
    Failed(io::Error),
}

/// Where output goes, without the buffers of the standard library: a chunk appears when it is there.
pub(super) struct Streams {
    stdout: File,
    stderr: File,
}

pub(super) enum Chunk {
    Stdout(Vec<u8>),
    Stderr(Vec<u8>),
}

impl Streams {
    /// hotcell's own.
    pub(super) fn own() -> io::Result<Streams> {
        Ok(Streams {
            stdout: io::stdout().as_fd().try_clone_to_owned()?.into(),
            stderr: io::stderr().as_fd().try_clone_to_owned()?.into(),
        })
    }

    fn write(&mut self, chunk: Chunk) -> io::Result<()> {
        match chunk {
            Chunk::Stdout(bytes) => self.stdout.write_all(&bytes),
            Chunk::Stderr(bytes) => self.stderr.write_all(&bytes),
        }
    }
}

impl Live {
    pub(super) fn new(streams: Streams, cancel: impl Fn() + Send + Sync + 'static) -> Live {
        Live::Waiting { streams, cancel: Arc::new(cancel) }
    }

    /// Waits until everything is written, and says whether it was.
    pub(super) fn finish(self) -> io::Result<()> {
        match self {
            Live::Silent | Live::Waiting { .. } => Ok(()),
            Live::Failed(error) => Err(error),
            Live::Writing { chunks, thread } => {
                drop(chunks);
                let ended = thread.join();
                ended.unwrap_or_else(|_| Err(io::Error::other("the writing thread ended early")))
            }
        }
    }

    fn send(&mut self, chunk: Chunk) {
        if let Live::Waiting { .. } = self {
            // `Silent` stands in only until the next line.
            *self = std::mem::replace(self, Live::Silent).started();
        }
        if let Live::Writing { chunks, .. } = self {
            // The thread is gone when writing failed; `finish` says why.
            drop(chunks.send(chunk));
        }
    }

    fn started(self) -> Live {
        let Live::Waiting { mut streams, cancel } = self else { return self };
        let (chunks, arriving) = mpsc::channel();
        let also_cancel = Arc::clone(&cancel);
        let thread = thread::Builder::new().name("output".into()).spawn(move || {
            let written = arriving.into_iter().try_for_each(|chunk| streams.write(chunk));
            if written.is_err() {
                also_cancel();
            }
            written
        });
        match thread {
            Ok(thread) => Live::Writing { chunks, thread },
            Err(error) => {
                cancel();
                Live::Failed(error)
            }
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

#[cfg(test)]
mod tests {
    use std::io::{PipeReader, Read, pipe};
    use std::os::fd::OwnedFd;
    use std::time::Duration;

    use super::*;

    fn file(end: impl Into<OwnedFd>) -> File {
        File::from(end.into())
    }

    /// With the ends that read, and what hears of a cancellation.
    fn live() -> (Live, PipeReader, PipeReader, mpsc::Receiver<()>) {
        let (out, stdout) = pipe().unwrap();
        let (err, stderr) = pipe().unwrap();
        let (cancelled, hears) = mpsc::channel();
        let streams = Streams { stdout: file(stdout), stderr: file(stderr) };
        (Live::new(streams, move || cancelled.send(()).unwrap()), out, err, hears)
    }

    fn read(mut end: PipeReader) -> Vec<u8> {
        let mut bytes = Vec::new();
        end.read_to_end(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn each_stream_goes_to_its_own_place() {
        let (mut live, out, err, cancelled) = live();
        live.stdout(b"a\xff");
        live.stderr(b"b");
        live.stdout(b"c");
        live.finish().unwrap();
        assert_eq!((read(out), read(err)), (b"a\xffc".to_vec(), b"b".to_vec()));
        assert!(cancelled.try_recv().is_err());
    }

    #[test]
    fn a_reader_that_does_not_read_holds_nothing_up() {
        let (mut live, out, _err, _cancelled) = live();
        let chunk = vec![b'x'; 64 * 1024];
        for _ in 0..16 {
            live.stdout(&chunk);
        }
        let reader = thread::spawn(|| read(out).len());
        live.finish().unwrap();
        assert_eq!(reader.join().unwrap(), 1 << 20);
    }

    #[test]
    fn a_reader_that_left_ends_the_run() {
        let (mut live, out, _err, cancelled) = live();
        drop(out);
        live.stdout(b"x");
        cancelled.recv_timeout(Duration::from_secs(10)).unwrap();
        live.stdout(b"x");
        assert_eq!(live.finish().unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}
