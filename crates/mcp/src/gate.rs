//! From here to the engine, which blocks: each question has a thread while it is asked, and there is a most
//! of everything. Nothing else in this crate reaches the engine.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use hotcell_api::{Answer, Ask, Problem, ProblemKind, With, answer};
use hotcell_engine::{Attached, Engine, Sink, new_id};
use hotcell_request::{Tool, ToolName};
use hotcell_types::{CallId, Caller};
use rmcp::ErrorData;
use rmcp::model::ErrorCode;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio_util::sync::CancellationToken;

/// Most requests that are here at once, of all clients together. What comes on top is refused.
const REQUESTS_MOST: usize = 256;
/// Most calls that the engine has from here at once, and most that wait for a person; others wait before.
const CALLS_MOST: usize = 16;
const WAITS_MOST: usize = 32;
/// Most short looks at once.
const LOOKS_MOST: usize = 8;
/// How often a call that is to end is told so: before it has begun, nobody hears it.
const CANCEL_STEP: Duration = Duration::from_millis(20);

/// The way to the engine, shared by all sessions of a process.
#[derive(Clone)]
pub(crate) struct Gate {
    engine: Arc<Engine>,
    requests: Arc<Semaphore>,
    calls: Arc<Semaphore>,
    waits: Arc<Semaphore>,
    looks: Arc<Semaphore>,
}

/// What is known of a call while it goes on.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) is_running: AtomicBool,
    pub(crate) printed: AtomicU64,
}

/// A call that the engine has.
pub(crate) struct UnderWay {
    pub(crate) id: CallId,
    pub(crate) seen: Arc<Seen>,
    caller: Caller,
    /// Set when nobody waits for a person any more.
    interrupt: Arc<AtomicBool>,
    task: JoinHandle<Result<Answer, Problem>>,
}

/// Whether a call waits for a person, for which there is other room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    Call,
    Wait,
}

impl Gate {
    pub(crate) fn new(engine: Arc<Engine>) -> Gate {
        let room = |most| Arc::new(Semaphore::new(most));
        Gate {
            engine,
            requests: room(REQUESTS_MOST),
            calls: room(CALLS_MOST),
            waits: room(WAITS_MOST),
            looks: room(LOOKS_MOST),
        }
    }

    /// A place among all requests, as long as it is held.
    pub(crate) fn seat(&self) -> Result<OwnedSemaphorePermit, ErrorData> {
        Arc::clone(&self.requests).try_acquire_owned().map_err(|_| {
            let text = format!("{REQUESTS_MOST} requests are here already: try again later");
            ErrorData::new(ErrorCode(-32000), text, None)
        })
    }

    /// Asks for something that is answered soon.
    pub(crate) async fn look(&self, caller: &Caller, ask: Ask) -> Result<Answer, Problem> {
        let _turn = self.looks.acquire().await;
        let (engine, caller) = (Arc::clone(&self.engine), caller.clone());
        let asked = spawn_blocking(move || {
            let interrupt = AtomicBool::new(false);
            let attached = Attached::default();
            answer(
                &engine,
                &caller,
                ask,
                With { attached, interrupt: &interrupt, log: &mut |_, _| true },
            )
        });
        asked.await.unwrap_or_else(|_| Err(broken()))
    }

    /// What a tool says of itself, which is known without asking anybody.
    pub(crate) fn tool(&self, name: &ToolName) -> Option<Tool> {
        self.engine.registry().get(name, None).ok().map(|found| found.tool().clone())
    }

    /// Asks for a call, when there is room for it. `None` if it was given up before.
    pub(crate) async fn begin(
        &self,
        caller: &Caller,
        ask: Ask,
        room: Room,
        given_up: &CancellationToken,
    ) -> Option<UnderWay> {
        let room = match room {
            Room::Call => &self.calls,
            Room::Wait => &self.waits,
        };
        let turn = tokio::select! {
            biased;
            () = given_up.cancelled() => return None,
            turn = Arc::clone(room).acquire_owned() => turn.ok()?,
        };
        let id = new_id();
        let (interrupt, seen) = (Arc::new(AtomicBool::new(false)), Arc::new(Seen::default()));
        let task = {
            let (engine, caller) = (Arc::clone(&self.engine), caller.clone());
            let (interrupt, seen) = (Arc::clone(&interrupt), Arc::clone(&seen));
            spawn_blocking(move || {
                // Until the engine is done with it, whoever else has lost interest.
                let _turn = turn;
                call(&engine, &caller, ask, id, &interrupt, &seen)
            })
        };
        Some(UnderWay { id, seen, caller: caller.clone(), interrupt, task })
    }

    /// When the engine has no call from here any more.
    pub(crate) async fn idle(&self) {
        for (room, most) in [(&self.calls, CALLS_MOST), (&self.waits, WAITS_MOST)] {
            let most = u32::try_from(most).unwrap_or(u32::MAX);
            // It fails only if it was closed, and nobody closes it.
            room.acquire_many(most).await.ok();
        }
    }

    /// Ends a call. It is told until it hears.
    pub(crate) async fn end(&self, mut call: UnderWay) -> Result<Answer, Problem> {
        call.stop_waiting();
        loop {
            tokio::select! {
                biased;
                done = &mut call.task => return done.unwrap_or_else(|_| Err(broken())),
                () = tokio::time::sleep(CANCEL_STEP) => {}
            }
            // Where there is nothing to end yet, or any more, the next look tells.
            self.look(&call.caller, Ask::Cancel { call: call.id }).await.ok();
        }
    }
}

impl Drop for UnderWay {
    /// Whoever goes away does not wait for a person any more. What runs has its own end.
    fn drop(&mut self) {
        self.stop_waiting();
    }
}

impl UnderWay {
    /// What came of it. Can be asked for again if nobody waited for the end.
    pub(crate) async fn done(&mut self) -> Result<Answer, Problem> {
        (&mut self.task).await.unwrap_or_else(|_| Err(broken()))
    }

    /// Waits for a person no longer; what runs goes on.
    pub(crate) fn stop_waiting(&self) {
        self.interrupt.store(true, Ordering::SeqCst);
    }
}

fn call(
    engine: &Engine,
    caller: &Caller,
    ask: Ask,
    id: CallId,
    interrupt: &AtomicBool,
    seen: &Arc<Seen>,
) -> Result<Answer, Problem> {
    let mut ear = Ear(Arc::clone(seen));
    let begun = Arc::clone(seen);
    let attached = Attached {
        id: Some(id),
        sink: Some(&mut ear),
        started: Some(Box::new(move |_| begun.is_running.store(true, Ordering::Relaxed))),
        ..Attached::default()
    };
    answer(engine, caller, ask, With { attached, interrupt, log: &mut |_, _| true })
}

/// Hears how much is printed. What is printed is in the answer.
struct Ear(Arc<Seen>);

impl Sink for Ear {
    fn stdout(&mut self, chunk: &[u8]) {
        self.0.printed.fetch_add(chunk.len() as u64, Ordering::Relaxed);
    }

    fn stderr(&mut self, chunk: &[u8]) {
        self.stdout(chunk);
    }
}

fn broken() -> Problem {
    let fix = "report it, with what was asked for";
    Problem::new(ProblemKind::Error, "there is no answer", "what was to give it has ended", fix)
}
