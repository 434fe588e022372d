//! Requests that are being answered, for whoever wants them to end: a client that went away, or the whole
//! server; and calls that somebody wants to hear of as soon as they are in the record.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hotcell_api::Called;
use hotcell_engine::{self as engine, Brake, Engine, Stage, Watch};
use hotcell_types::{CallId, Caller};
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot, watch};

use crate::events::{Phase, Phases};
use crate::metrics::Metrics;
use crate::route::Lane;
use crate::traces::Traces;

/// How often a call is asked to end that cannot be found yet, or any more.
const AGAIN: Duration = Duration::from_millis(50);

#[derive(Debug, Default)]
pub(crate) struct UnderWay {
    /// Numbers are given once.
    next: AtomicU64,
    all: Mutex<HashMap<u64, Arc<Job>>>,
    ended: Notify,
}

/// One of them.
#[derive(Debug)]
pub(crate) struct Job {
    number: u64,
    lane: Lane,
    /// Set when nobody waits for it any more.
    pub(crate) interrupt: Arc<AtomicBool>,
    work: Work,
}

/// What it has the engine do, and for whom.
#[derive(Debug)]
pub(crate) enum Work {
    /// Nothing that could be ended.
    Nothing,
    Call(Caller, CallId),
    Batch(Caller, Arc<Brake>),
}

impl UnderWay {
    pub(crate) fn begin(&self, lane: Lane, work: Work) -> Arc<Job> {
        self.begin_with(lane, work, Arc::default())
    }

    /// The same for somebody who has a word for its end already.
    pub(crate) fn begin_with(
        &self,
        lane: Lane,
        work: Work,
        interrupt: Arc<AtomicBool>,
    ) -> Arc<Job> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let job = Arc::new(Job { number, lane, interrupt, work });
        self.all().insert(number, Arc::clone(&job));
        job
    }

    pub(crate) fn end(&self, job: &Job) {
        self.all().remove(&job.number);
        self.ended.notify_waiters();
    }

    fn has(&self, job: &Job) -> bool {
        self.all().contains_key(&job.number)
    }

    pub(crate) fn count(&self) -> usize {
        self.all().len()
    }

    /// Lets go of those that only wait: what they wait for goes on without them.
    pub(crate) fn interrupt_waits(&self) {
        let all = self.all();
        let waits = all.values().filter(|job| job.lane == Lane::Waits);
        waits.for_each(|job| job.interrupt.store(true, Ordering::SeqCst));
    }

    /// Ends all of them, as far as they can be ended.
    pub(crate) fn cancel_all(&self, engine: &Engine) {
        let all: Vec<_> = self.all().values().cloned().collect();
        all.iter().for_each(|job| job.cancel(engine));
    }

    /// Until there is none.
    pub(crate) async fn gone(&self) {
        loop {
            let ended = self.ended.notified();
            tokio::pin!(ended);
            ended.as_mut().enable();
            if self.count() == 0 {
                return;
            }
            ended.await;
        }
    }

    fn all(&self) -> MutexGuard<'_, HashMap<u64, Arc<Job>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Job {
    fn cancel(&self, engine: &Engine) {
        self.interrupt.store(true, Ordering::SeqCst);
        match &self.work {
            Work::Nothing => {}
            // That it is not there, or not yet, is found out by looking again.
            Work::Call(caller, call) => drop(engine.ask(caller, engine::Ask::Cancel(*call))),
            Work::Batch(caller, brake) => engine.brake(caller, brake),
        }
    }
}

/// Held by whoever waits for an answer. Who goes away before it is there ends what was asked for.
#[derive(Debug)]
pub(crate) struct Attention {
    pub(crate) job: Arc<Job>,
    under_way: Arc<UnderWay>,
    engine: Arc<Engine>,
}

impl Attention {
    pub(crate) fn new(job: Arc<Job>, under_way: Arc<UnderWay>, engine: Arc<Engine>) -> Attention {
        Attention { job, under_way, engine }
    }
}

impl Drop for Attention {
    fn drop(&mut self) {
        if !self.under_way.has(&self.job) {
            return;
        }
        self.job.interrupt.store(true, Ordering::SeqCst);
        // A server that has ended asks for nothing any more.
        let Ok(runtime) = Handle::try_current() else { return };
        let (job, under_way) = (Arc::clone(&self.job), Arc::clone(&self.under_way));
        let engine = Arc::clone(&self.engine);
        runtime.spawn(async move {
            while under_way.has(&job) {
                job.cancel(&engine);
                tokio::time::sleep(AGAIN).await;
            }
        });
    }
}

/// Is told by an engine how far its calls have come. Made before the engine, which has to know it.
#[derive(Debug, Clone, Default)]
pub struct Observer(Arc<Observed>);

#[derive(Debug, Default)]
struct Observed {
    traces: Option<Traces>,
    metrics: Arc<Metrics>,
    begun: Mutex<HashMap<CallId, oneshot::Sender<()>>>,
    /// Calls that go on in this process and are in the record.
    phases: Mutex<HashMap<CallId, watch::Sender<Phase>>>,
}

thread_local! {
    /// Stages of a call are told on the call's own thread, one after the other.
    static GOES_ON: RefCell<Option<GoesOn>> = const { RefCell::new(None) };
}

/// Until it is dropped, somebody can ask how far a call is: by its end, by the next call of its thread, or
/// by the end of that.
struct GoesOn(Arc<Observed>, CallId);

impl Drop for GoesOn {
    fn drop(&mut self) {
        lock(&self.0.phases).remove(&self.1);
    }
}

impl Observed {
    fn passed(self: &Arc<Observed>, call: CallId, stage: Stage) {
        match stage {
            Stage::Intended => {
                lock(&self.phases).insert(call, watch::Sender::new(Phase::Queued));
                // The one before has come as far as it will.
                GOES_ON.set(Some(GoesOn(Arc::clone(self), call)));
            }
            Stage::Scheduled => {
                if let Some(phase) = lock(&self.phases).get(&call) {
                    phase.send_replace(Phase::Running);
                }
            }
            Stage::Recorded => GOES_ON.set(None),
            Stage::Called | Stage::Judged | Stage::Prepared | Stage::CarriedOut => {}
        }
    }
}

impl Observer {
    /// One that makes spans of what it is told, if there is somewhere to send them.
    pub fn new(traces: Option<Traces>) -> Observer {
        Observer(Arc::new(Observed { traces, ..Observed::default() }))
    }

    pub(crate) fn traces(&self) -> Option<&Traces> {
        self.0.traces.as_ref()
    }

    /// For [`hotcell_engine::Options::watch`].
    pub fn watch(&self) -> Watch {
        let observed = Arc::clone(&self.0);
        Watch::new(move |call, stage| {
            observed.metrics.passed(call, stage);
            observed.passed(call, stage);
            if let Some(traces) = &observed.traces {
                traces.passed(call, stage);
            }
            if stage == Stage::Intended
                && let Some(tell) = lock(&observed.begun).remove(&call)
            {
                // Whoever asked may be gone.
                tell.send(()).ok();
            }
        })
    }

    /// For calls of the same engine that come through another door: they are counted as those of this one.
    pub fn counts(&self) -> impl Fn(&Called) + Send + Sync + 'static {
        let metrics = self.metrics();
        move |called| metrics.called(called)
    }

    pub(crate) fn metrics(&self) -> Arc<Metrics> {
        Arc::clone(&self.0.metrics)
    }

    /// Hears when a call is in the record.
    pub(crate) fn when_begun(&self, call: CallId) -> oneshot::Receiver<()> {
        let (tell, hear) = oneshot::channel();
        lock(&self.0.begun).insert(call, tell);
        hear
    }

    /// How far a call is, and what becomes of that; nothing of one that does not go on here.
    pub(crate) fn follow(&self, call: CallId) -> Option<Phases> {
        lock(&self.0.phases).get(&call).map(watch::Sender::subscribe)
    }

    pub(crate) fn forget(&self, call: CallId) {
        lock(&self.0.begun).remove(&call);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
