//! A batch: a job on each line of the body, and a result on each line of the answer, while the body is still
//! arriving. Bounded in both directions: nothing is read that cannot be begun, and nothing is begun while
//! results are not taken. What does not come to its end is broken off, so that nobody takes it for the whole.

use std::io::{self, BufRead, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, Response, header};
use hotcell_api::batch::{Jobs, Name, Task};
use hotcell_engine::{Brake, Engine, Order, Pace, side_by_side};
use hotcell_types::Caller;
use http_body_util::BodyExt;
use tokio::sync::mpsc;

use crate::connections::from_pieces;
use crate::metrics::Metrics;
use crate::traces::{self as trace, Traces};

/// Most jobs of one batch that go at one time.
pub(crate) const JOBS_MOST: usize = 16;
/// What a body may be.
pub(crate) const MEDIA: [&str; 2] = ["application/x-ndjson", "application/jsonl"];
/// Pieces of a body that wait to be read, each of them what a connection has read at once.
const PIECES: usize = 4;
/// Results that wait to be sent.
const WAITING: usize = 4;

/// How a batch is to be carried out.
#[derive(Debug)]
pub(crate) struct Manner {
    pub(crate) jobs: usize,
    pub(crate) order: Order,
    pub(crate) name: Option<Name>,
}

/// What both sides of a batch look at.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) brake: Arc<Brake>,
    /// Lines that were read so far.
    lines: AtomicU64,
}

/// The results on their way out, and whether there is more to come.
type Piece = Result<Bytes, &'static str>;

/// A body on its way in.
type Arriving = Result<Bytes, io::ErrorKind>;

/// Passes a body on, as fast as it is read. One that brings no job for so long, while none is going on, is
/// over.
pub(crate) fn receive(mut body: Body, batch: Arc<Batch>, silence: Duration) -> impl BufRead + Send {
    let (give, taken) = mpsc::channel::<Arriving>(PIECES);
    tokio::spawn(async move {
        let mut look = tokio::time::interval(silence);
        look.tick().await;
        let mut seen = 0;
        loop {
            let piece = tokio::select! {
                frame = body.frame() => match frame {
                    None => return,
                    Some(Ok(frame)) => match frame.into_data() {
                        Ok(data) if data.is_empty() => continue,
                        Ok(data) => Ok(data),
                        Err(_) => continue,
                    },
                    Some(Err(_)) => Err(io::ErrorKind::ConnectionReset),
                },
                _ = look.tick() => {
                    let lines = batch.lines.load(Ordering::Relaxed);
                    let is_silent = lines == seen && batch.brake.is_idle();
                    seen = lines;
                    if !is_silent {
                        continue;
                    }
                    Err(io::ErrorKind::TimedOut)
                }
            };
            let is_last = piece.is_err();
            // Whoever took it may be gone.
            if give.send(piece).await.is_err() || is_last {
                return;
            }
        }
    });
    Received { taken, held: Bytes::new() }
}

/// Read on a thread that may block.
struct Received {
    taken: mpsc::Receiver<Arriving>,
    held: Bytes,
}

impl Read for Received {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let length = self.fill_buf()?.read(into)?;
        self.consume(length);
        Ok(length)
    }
}

impl BufRead for Received {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.held.is_empty()
            && let Some(piece) = self.taken.blocking_recv()
        {
            self.held = piece?;
        }
        Ok(&self.held)
    }

    fn consume(&mut self, length: usize) {
        drop(self.held.split_to(length.min(self.held.len())));
    }
}

/// On a thread that may block: from lines to lines.
pub(crate) struct Line {
    out: mpsc::Sender<Piece>,
}

impl Line {
    pub(crate) fn new() -> (Line, mpsc::Receiver<Piece>) {
        let (out, taken) = mpsc::channel(WAITING);
        (Line { out }, taken)
    }

    pub(crate) fn carry_out(
        self,
        source: impl BufRead + Send,
        manner: Manner,
        batch: &Batch,
        (engine, caller, metrics): (&Engine, &Caller, &Metrics),
        trace: Option<(Traces, trace::Context)>,
    ) {
        let brake = &*batch.brake;
        let pace = Pace { jobs: manner.jobs.min(JOBS_MOST), order: manner.order };
        let mut all = Jobs::new(source, manner.name);
        let tasks = std::iter::from_fn(|| {
            let task = all.next().filter(|_| !brake.is_pulled());
            batch.lines.fetch_add(1, Ordering::Relaxed);
            task
        });
        let one = |task: io::Result<Task>| {
            // Each job has a thread, and all are of this request.
            let _traced = trace.as_ref().map(|(traces, context)| traces.enter(*context));
            task.map(|task| task.answer(engine, caller, brake))
        };
        thread::scope(|scope| {
            for (_, done) in side_by_side(scope, pace, tasks, one) {
                let is_sent = match done {
                    Ok(Some(done)) => {
                        metrics.called(&done.result);
                        let mut line = serde_json::to_vec(&done).unwrap_or_default();
                        line.push(b'\n');
                        self.out.blocking_send(Ok(line.into())).is_ok()
                    }
                    Ok(None) => true,
                    // The rest of the body did not arrive.
                    Err(_) => false,
                };
                if !is_sent {
                    engine.brake_until_idle(caller, brake);
                }
            }
        });
        if brake.is_pulled() {
            // Nobody may be there to hear it.
            self.out.blocking_send(Err("the batch was ended early")).ok();
        }
    }
}

pub(crate) fn response(mut results: mpsc::Receiver<Piece>) -> Response<Body> {
    let mut broken_off = None;
    let next = move |context: &mut Context<'_>| {
        if let Some(why) = broken_off.take() {
            return Poll::Ready(Some(Err(why)));
        }
        let piece = results.poll_recv(context);
        let Poll::Ready(Some(Err(why))) = piece else { return piece };
        // A connection forgets what it has not sent yet when its answer fails: it gets to send that first.
        broken_off = Some(why);
        context.waker().wake_by_ref();
        Poll::Pending
    };
    let mut response = Response::new(from_pieces(next, None));
    let media = HeaderValue::from_static(MEDIA[0]);
    response.headers_mut().insert(header::CONTENT_TYPE, media);
    response
}
