//! From here to whoever answers, which blocks: each question has a thread while it is asked, and there is a
//! most of everything. Nothing else in this crate asks anybody.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use hotcell_api::{Ask, Problem, ProblemKind};
use hotcell_engine::new_id;
use hotcell_request::{Tool, ToolName};
use hotcell_types::CallId;
use rmcp::ErrorData;
use rmcp::model::{ErrorCode, Extensions};
use rmcp::service::{RequestContext, RoleServer};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinHandle, spawn_blocking};

use crate::found::Found;

/// Most requests that are here at once. What comes on top is refused.
const REQUESTS_MOST: usize = 256;
/// How often a call that is to end is told so: before it has begun, nobody hears it.
const CANCEL_STEP: Duration = Duration::from_millis(20);

/// Who answers, and for whom: an engine of this process, a hotcell that serves the same home, or a server
/// that has looked at a key.
pub trait Behind: Send + Sync {
    /// Whether whoever asks may have such a thing at all.
    fn may(&self, _: Need) -> Result<(), Problem> {
        Ok(())
    }

    /// Room for one question, as long as it is held; or why there is none.
    fn room(&self, room: Room) -> Waiting<'_>;

    /// The answer. Blocks as long as that takes.
    fn ask(&self, ask: Ask, talk: &Talk) -> Result<Found, Problem>;

    /// Ends a call, or has no effect if it has not begun yet, or has ended.
    fn end(&self, talk: &Talk);

    /// What a tool says of itself, where that is known without asking anybody.
    fn tool(&self, _: &ToolName) -> Option<Tool> {
        None
    }
}

/// What is waited for.
pub type Waiting<'a> = Pin<Box<dyn Future<Output = Result<Held, Problem>> + Send + 'a>>;
/// Given back by being dropped.
pub type Held = Box<dyn Send>;

/// What a question is about, for whoever says who may ask it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Finding tools, calling them, and waiting for somebody to agree to a call.
    Tools,
    /// Running code, and calling tools that do.
    Run,
    /// What calls were given and made.
    Artifacts,
    /// Taking back a call that waits.
    Withdraw,
}

/// How long a question takes, for which there is different room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// Answered soon.
    Look,
    /// Answered soon, and nobody waits for it.
    Watch,
    Call,
    /// Waits for a person.
    Wait,
}

/// What whoever asks and whoever answers tell each other meanwhile.
#[derive(Debug)]
pub struct Talk {
    /// The call that it makes, if it makes one.
    pub id: CallId,
    /// Set when nobody waits for a person any more. What runs goes on.
    pub interrupt: Arc<AtomicBool>,
    pub is_running: AtomicBool,
    /// Bytes so far.
    pub printed: AtomicU64,
    /// What the transport knows of the request.
    pub extensions: Extensions,
}

impl Talk {
    fn new(extensions: Extensions) -> Arc<Talk> {
        Arc::new(Talk {
            extensions,
            id: new_id(),
            interrupt: Arc::default(),
            is_running: AtomicBool::new(false),
            printed: AtomicU64::new(0),
        })
    }

    fn stop_waiting(&self) {
        self.interrupt.store(true, Ordering::SeqCst);
    }
}

/// Hears how much is printed. What is printed is in the answer.
#[derive(Debug)]
pub struct Ear<'a>(pub &'a Talk);

impl hotcell_engine::Sink for Ear<'_> {
    fn stdout(&mut self, chunk: &[u8]) {
        self.0.printed.fetch_add(chunk.len() as u64, Ordering::Relaxed);
    }

    fn stderr(&mut self, chunk: &[u8]) {
        self.stdout(chunk);
    }
}

/// The way to whoever answers, shared by all sessions of a server.
#[derive(Clone)]
pub(crate) struct Gate {
    behind: Arc<dyn Behind>,
    requests: Arc<Semaphore>,
    /// As many as there are calls under way, so that their end can be waited for.
    under_way: Arc<Semaphore>,
}

/// A call that is being made.
pub(crate) struct UnderWay {
    pub(crate) talk: Arc<Talk>,
    task: JoinHandle<Result<Found, Problem>>,
}

impl Gate {
    pub(crate) fn new(behind: Arc<dyn Behind>) -> Gate {
        let room = |most| Arc::new(Semaphore::new(most));
        Gate { behind, requests: room(REQUESTS_MOST), under_way: room(REQUESTS_MOST) }
    }

    /// A place among all requests, as long as it is held.
    pub(crate) fn seat(&self) -> Result<OwnedSemaphorePermit, ErrorData> {
        Arc::clone(&self.requests).try_acquire_owned().map_err(|_| {
            let text = format!("{REQUESTS_MOST} requests are here already: try again later");
            ErrorData::new(ErrorCode(-32000), text, None)
        })
    }

    pub(crate) fn may(&self, need: Need) -> bool {
        self.behind.may(need).is_ok()
    }

    /// Asks for something that is answered soon.
    pub(crate) async fn look(&self, ask: Ask) -> Result<Found, Problem> {
        self.look_from(Room::Look, ask).await
    }

    /// The same, when nobody waits for it.
    pub(crate) async fn look_from(&self, room: Room, ask: Ask) -> Result<Found, Problem> {
        self.behind.may(need(&ask))?;
        let turn = self.behind.room(room).await?;
        let behind = Arc::clone(&self.behind);
        let asked = spawn_blocking(move || {
            let _turn = turn;
            behind.ask(ask, &Talk::new(Extensions::default()))
        });
        asked.await.unwrap_or_else(|_| Err(broken()))
    }

    /// What a tool says of itself, which is known without asking anybody.
    pub(crate) fn tool(&self, name: &ToolName) -> Option<Tool> {
        self.behind.tool(name)
    }

    /// Asks for a call, when there is room for it.
    pub(crate) async fn begin(
        &self,
        ask: Ask,
        room: Room,
        context: &RequestContext<RoleServer>,
    ) -> Result<UnderWay, Problem> {
        self.behind.may(need(&ask))?;
        let turn = tokio::select! {
            biased;
            () = context.ct.cancelled() => return Err(given_up_before()),
            turn = self.behind.room(room) => turn?,
        };
        // There are no more of them than requests.
        let counted = Arc::clone(&self.under_way).acquire_owned().await.ok();
        let talk = Talk::new(context.extensions.clone());
        let (behind, heard) = (Arc::clone(&self.behind), Arc::clone(&talk));
        let task = spawn_blocking(move || {
            // Until it is answered, whoever else has lost interest.
            let _held = (turn, counted);
            behind.ask(ask, &heard)
        });
        Ok(UnderWay { talk, task })
    }

    /// When there is no call from here any more.
    pub(crate) async fn idle(&self) {
        let most = u32::try_from(REQUESTS_MOST).unwrap_or(u32::MAX);
        // It fails only if it was closed, and nobody closes it.
        self.under_way.acquire_many(most).await.ok();
    }

    /// Ends a call. It is told until it hears.
    pub(crate) async fn end(&self, mut call: UnderWay) -> Result<Found, Problem> {
        call.stop_waiting();
        loop {
            tokio::select! {
                biased;
                done = &mut call.task => return done.unwrap_or_else(|_| Err(broken())),
                () = tokio::time::sleep(CANCEL_STEP) => {}
            }
            let (behind, talk) = (Arc::clone(&self.behind), Arc::clone(&call.talk));
            spawn_blocking(move || behind.end(&talk)).await.ok();
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
    pub(crate) async fn done(&mut self) -> Result<Found, Problem> {
        (&mut self.task).await.unwrap_or_else(|_| Err(broken()))
    }

    /// Waits for a person no longer; what runs goes on.
    pub(crate) fn stop_waiting(&self) {
        self.talk.stop_waiting();
    }
}

/// What the questions of this door are about. What a call needs that one of them leads to is for whoever answers
/// to find out, who knows its tool.
fn need(ask: &Ask) -> Need {
    match ask {
        Ask::Run { .. } => Need::Run,
        Ask::Artifacts { .. } | Ask::Content { .. } => Need::Artifacts,
        Ask::Withdraw { .. } => Need::Withdraw,
        _ => Need::Tools,
    }
}

fn given_up_before() -> Problem {
    let why = "it was given up before it began";
    Problem::new(ProblemKind::Busy, "nothing was done", why, "")
}

fn broken() -> Problem {
    let fix = "report it, with what was asked for";
    Problem::new(ProblemKind::Error, "there is no answer", "what was to give it has ended", fix)
}
