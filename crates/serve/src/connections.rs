//! Connections: how many, and how long each may do nothing. One is *in use* from the moment at which its
//! request was read and its key found good until the last byte of the answer was taken; everything else is
//! waiting, and whoever waits longest makes room when there is none. So neither idle connections nor slow
//! senders keep anybody out. Of those in use, one whose request has no place yet makes room as well, when
//! nobody else can: it is told so.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes, HttpBody};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::{Frame, SizeHint};
use tokio::sync::Notify;

use crate::lanes::full;
use crate::problem::Trouble;

/// Longest that one may take that was told to go.
const LINGER: Duration = Duration::from_secs(2);

/// How connections are bounded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) most: usize,
    /// Longest between two requests, and for the body of one to be looked at.
    pub(crate) idle: Duration,
    /// Longest that the head of a request may take to arrive, from its first byte on.
    pub(crate) head: Duration,
    /// Longest that an answer is not taken.
    pub(crate) stall: Duration,
}

#[derive(Debug)]
pub(crate) struct Connections {
    bounds: Bounds,
    next: AtomicU64,
    all: Mutex<HashMap<u64, Arc<Connection>>>,
    /// Rung whenever one ends.
    ended: Notify,
}

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) peer: SocketAddr,
    state: Mutex<State>,
    close: Notify,
    /// Rung when it has to go without a place.
    leave: Notify,
}

#[derive(Debug, Clone, Copy)]
enum State {
    /// Since when it waits for its next request, and since when the head of that arrives.
    Waiting { since: Instant, head: Option<Instant> },
    /// Since when a head is there; the rest of the request arrives, or its key is looked at.
    Asked(Instant),
    /// Since when it waits for a place, with a good key.
    Queued(Instant),
    /// It is being answered.
    InUse,
    /// When some of the answer was last asked for.
    Sending(Instant),
    /// Since when it is told that there is no room. It is not counted any more.
    Leaving(Instant),
}

/// Why a connection is closed that was let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Late {
    /// Nothing happened, or nobody took the answer.
    Idle,
    /// The head of a request did not arrive in time.
    Head,
}

impl Late {
    /// For the metrics.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Late::Idle => "late",
            Late::Head => "slow head",
        }
    }
}

/// Until it is dropped, the connection is counted.
#[derive(Debug)]
pub(crate) struct Counted {
    number: u64,
    all: Arc<Connections>,
    pub(crate) connection: Arc<Connection>,
}

impl Connections {
    pub(crate) fn new(bounds: Bounds) -> Arc<Connections> {
        Arc::new(Connections {
            bounds,
            next: AtomicU64::new(0),
            all: Mutex::default(),
            ended: Notify::new(),
        })
    }

    /// Counts one more. If there are too many, the one that has waited longest goes; if all are in use,
    /// this one does.
    pub(crate) fn admit(self: &Arc<Connections>, peer: SocketAddr) -> (Option<Counted>, bool) {
        let mut all = self.all();
        let mut has_evicted = false;
        if all.len() >= self.bounds.most {
            let waits =
                |(number, one): (&u64, &Arc<Connection>)| Some((one.makes_room()?, *number));
            let Some((_, first)) = all.iter().filter_map(waits).min() else {
                return (None, false);
            };
            // It may have got its place just now.
            if !all.get(&first).is_some_and(|one| one.leave()) {
                return (None, false);
            }
            all.remove(&first);
            has_evicted = true;
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let state = Mutex::new(State::Waiting { since: Instant::now(), head: None });
        let (close, leave) = (Notify::new(), Notify::new());
        let connection = Arc::new(Connection { peer, state, close, leave });
        all.insert(number, Arc::clone(&connection));
        (Some(Counted { number, all: Arc::clone(self), connection }), has_evicted)
    }

    /// How many there may be.
    pub(crate) fn most(&self) -> usize {
        self.bounds.most
    }

    /// Longest that somebody may do nothing.
    pub(crate) fn idle(&self) -> Duration {
        self.bounds.idle
    }

    pub(crate) fn count(&self) -> usize {
        self.all().len()
    }

    /// Closes those that have waited too long, or whose answers nobody takes; why, for each of them.
    pub(crate) fn sweep(&self, now: Instant) -> Vec<Late> {
        let all = self.all();
        let late = all.values().filter_map(|one| Some((one, one.is_late(now, &self.bounds)?)));
        late.map(|(one, why)| {
            one.close();
            why
        })
        .collect()
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

    fn all(&self) -> MutexGuard<'_, HashMap<u64, Arc<Connection>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.all.all().remove(&self.number);
        self.all.ended.notify_waiters();
    }
}

impl Connection {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Who goes first when there is no room: those without a request of somebody known, then those who wait
    /// for a place, and of either whoever has waited longest.
    fn makes_room(&self) -> Option<(bool, Instant)> {
        match *self.state() {
            State::Waiting { since, .. } | State::Asked(since) => Some((false, since)),
            State::Queued(since) => Some((true, since)),
            State::InUse | State::Sending(_) | State::Leaving(_) => None,
        }
    }

    /// Has it go, if it still can. One that waits for a place hears that there is none.
    fn leave(&self) -> bool {
        let mut state = self.state();
        match *state {
            State::Waiting { .. } | State::Asked(_) => self.close(),
            State::Queued(_) => {
                *state = State::Leaving(Instant::now());
                self.leave.notify_one();
            }
            State::InUse | State::Sending(_) | State::Leaving(_) => return false,
        }
        true
    }

    fn is_late(&self, now: Instant, bounds: &Bounds) -> Option<Late> {
        let (since, most, why) = match *self.state() {
            State::Waiting { head: Some(since), .. } => (since, bounds.head, Late::Head),
            State::Waiting { since, head: None } | State::Asked(since) => {
                (since, bounds.idle, Late::Idle)
            }
            State::Sending(last) => (last, bounds.stall, Late::Idle),
            State::Queued(_) | State::InUse | State::Leaving(_) => return None,
        };
        (now.saturating_duration_since(since) > most).then_some(why)
    }

    /// Something was read. If it waits for a request, that begins to arrive.
    pub(crate) fn reads(&self) {
        if let State::Waiting { head: head @ None, .. } = &mut *self.state() {
            *head = Some(Instant::now());
        }
    }

    /// The head of a request is there: what is missing has as long as an idle connection has.
    pub(crate) fn hears(&self) {
        self.becomes(State::Asked(Instant::now()));
    }

    fn rests(&self) {
        self.becomes(State::Waiting { since: Instant::now(), head: None });
    }

    /// One that has to go does nothing else any more.
    fn becomes(&self, next: State) {
        let mut state = self.state();
        if !matches!(*state, State::Leaving(_)) {
            *state = next;
        }
    }

    /// The request has its answer. One that is sent piece by piece says itself how far it is.
    pub(crate) fn answers(&self) {
        if matches!(*self.state(), State::Asked(_) | State::Queued(_)) {
            self.rests();
        }
    }

    /// Waits for the place of a request with a good key, or until it has to go without one.
    pub(crate) async fn queued<T>(
        &self,
        place: impl Future<Output = Result<T, Trouble>>,
    ) -> Result<T, Trouble> {
        self.becomes(State::Queued(Instant::now()));
        let placed = tokio::select! {
            biased;
            placed = place => placed?,
            () = self.leave.notified() => return Err(full().last()),
        };
        self.is_used();
        match *self.state() {
            State::Leaving(_) => Err(full().last()),
            _ => Ok(placed),
        }
    }

    /// Whether it was told to go, and did not.
    pub(crate) fn lingers(&self) -> bool {
        matches!(*self.state(), State::Leaving(since) if since.elapsed() > LINGER)
    }

    /// Whether it is being answered, or waits for that.
    pub(crate) fn is_in_use(&self) -> bool {
        matches!(*self.state(), State::Queued(_) | State::InUse | State::Sending(_))
    }

    fn is_used(&self) {
        self.becomes(State::InUse);
    }

    fn sends(&self) {
        self.becomes(State::Sending(Instant::now()));
    }

    /// Ends it as it is.
    pub(crate) fn close(&self) {
        self.close.notify_one();
    }

    /// Until somebody closes it.
    pub(crate) async fn closed(&self) {
        self.close.notified().await;
    }
}

/// An answer that tells its connection how far it is, and keeps what it needs until it is over.
pub(crate) struct Watched<K> {
    body: UnsyncBoxBody<Bytes, axum::Error>,
    connection: Arc<Connection>,
    _kept: K,
}

pub(crate) fn watched<K: Send + Unpin + 'static>(
    body: Body,
    connection: Arc<Connection>,
    kept: K,
) -> Body {
    connection.sends();
    Body::new(Watched { body: body.boxed_unsync(), connection, _kept: kept })
}

impl<K: Unpin> HttpBody for Watched<K> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let piece = Pin::new(&mut self.body).poll_frame(context);
        match piece {
            // It is for us to go on.
            Poll::Pending => self.connection.is_used(),
            Poll::Ready(_) => self.connection.sends(),
        }
        piece
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<K> Drop for Watched<K> {
    fn drop(&mut self) {
        // What is left of it is for the kernel to send; until the next request it waits.
        self.connection.rests();
    }
}

/// A body that is made piece by piece.
pub(crate) fn from_pieces<S>(
    mut next: impl FnMut(&mut Context<'_>) -> Poll<Option<Result<Bytes, S>>> + Send + Unpin + 'static,
    size: Option<u64>,
) -> Body
where
    S: Into<axum::BoxError> + 'static,
{
    struct Pieces<F> {
        next: F,
        left: Option<u64>,
    }

    impl<F, S> HttpBody for Pieces<F>
    where
        F: FnMut(&mut Context<'_>) -> Poll<Option<Result<Bytes, S>>> + Unpin,
    {
        type Data = Bytes;
        type Error = S;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, S>>> {
            let piece = (self.next)(context);
            if let (Poll::Ready(Some(Ok(bytes))), Some(left)) = (&piece, &mut self.left) {
                *left = left.saturating_sub(bytes.len() as u64);
            }
            piece.map(|piece| piece.map(|piece| piece.map(Frame::data)))
        }

        fn size_hint(&self) -> SizeHint {
            self.left.map_or_else(SizeHint::new, SizeHint::with_exact)
        }
    }
    Body::new(Pieces { next: move |context: &mut Context<'_>| next(context), left: size })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connections(most: usize) -> Arc<Connections> {
        let second = Duration::from_secs(1);
        Connections::new(Bounds { most, idle: second, head: second / 2, stall: second })
    }

    fn peer() -> SocketAddr {
        "127.0.0.1:1".parse().unwrap()
    }

    #[test]
    fn who_has_waited_longest_makes_room_and_who_is_in_use_never_does() {
        let all = connections(2);
        let (first, second) = (all.admit(peer()).0.unwrap(), all.admit(peer()).0.unwrap());
        first.connection.is_used();
        let (third, has_evicted) = all.admit(peer());
        assert!(has_evicted && all.count() == 2);
        third.as_ref().unwrap().connection.is_used();
        assert!(all.admit(peer()).0.is_none(), "both are in use");
        drop((first, second, third));
        assert_eq!(all.count(), 0);
    }

    #[test]
    fn who_does_nothing_is_late() {
        let all = connections(9);
        let waits = all.admit(peer()).0.unwrap();
        let used = all.admit(peer()).0.unwrap();
        used.connection.is_used();
        let sends = all.admit(peer()).0.unwrap();
        sends.connection.sends();
        let queued = all.admit(peer()).0.unwrap();
        *queued.connection.state() = State::Queued(Instant::now());
        let now = Instant::now();
        assert_eq!(all.sweep(now), []);
        assert_eq!(all.sweep(now + Duration::from_secs(2)), [Late::Idle; 2]);
        drop((waits, used, sends, queued));
    }

    #[test]
    fn a_head_has_less_time_than_silence_from_its_first_byte_on_and_a_body_has_as_much() {
        let all = connections(9);
        let one = all.admit(peer()).0.unwrap();
        let late = |after: Duration| all.sweep(Instant::now() + after);
        let (soon, later) = (Duration::from_millis(700), Duration::from_secs(2));
        assert_eq!(late(soon), [], "nothing has come yet");
        one.connection.reads();
        assert_eq!(late(soon), [Late::Head]);
        one.connection.hears();
        one.connection.reads();
        assert_eq!((late(soon), late(later)), (vec![], vec![Late::Idle]), "it is a body");
        // With its answer it waits for the next request, which has a head again.
        one.connection.answers();
        assert_eq!(late(soon), []);
        one.connection.reads();
        assert_eq!(late(soon), [Late::Head]);
    }

    fn run<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        runtime.unwrap().block_on(future)
    }

    #[test]
    fn who_waits_for_a_place_makes_room_last_and_hears_of_it() {
        run(async {
            let all = connections(3);
            let queued = all.admit(peer()).0.unwrap();
            let waits = tokio::spawn({
                let connection = Arc::clone(&queued.connection);
                async move { connection.queued(std::future::pending::<Result<(), _>>()).await }
            });
            tokio::task::yield_now().await;
            let used = all.admit(peer()).0.unwrap();
            used.connection.queued(std::future::ready(Ok(()))).await.unwrap();
            let idle = all.admit(peer()).0.unwrap();
            // Whoever has no request goes first, though the other one has waited for longer.
            let (next, has_evicted) = all.admit(peer());
            let next = next.unwrap();
            assert!(has_evicted && queued.connection.is_in_use());
            idle.connection.closed().await;
            next.connection.queued(std::future::ready(Ok(()))).await.unwrap();
            let (last, has_evicted) = all.admit(peer());
            assert!(last.is_some() && has_evicted);
            let told = waits.await.unwrap().unwrap_err();
            assert_eq!(told.status(), axum::http::StatusCode::SERVICE_UNAVAILABLE);
            assert!(used.connection.is_in_use() && next.connection.is_in_use());
            assert_eq!(all.count(), 3);
        });
    }

    #[test]
    fn a_place_that_comes_when_its_connection_has_to_go_is_given_back() {
        run(async {
            let one = connections(1).admit(peer()).0.unwrap();
            let connection = &one.connection;
            let place = async {
                assert!(connection.leave());
                Ok(())
            };
            assert!(connection.queued(place).await.is_err());
        });
    }
}
