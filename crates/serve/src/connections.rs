//! Connections: how many, and how long each may do nothing. One is *in use* from the moment at which its
//! request was read and its key found good until the last byte of the answer was taken; everything else is
//! waiting, and whoever waits longest makes room when there is none. So neither idle connections nor slow
//! senders keep anybody out.

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

/// How connections are bounded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) most: usize,
    /// Longest between two requests, and for a request to arrive.
    pub(crate) idle: Duration,
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
}

#[derive(Debug, Clone, Copy)]
enum State {
    /// Since when it waits for its next request, or for the rest of one.
    Waiting(Instant),
    /// It is being answered.
    InUse,
    /// When some of the answer was last asked for.
    Sending(Instant),
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
                |(number, one): (&u64, &Arc<Connection>)| Some((one.waits_since()?, *number));
            let Some((_, longest)) = all.iter().filter_map(waits).min() else {
                return (None, false);
            };
            if let Some(gone) = all.remove(&longest) {
                gone.close();
                has_evicted = true;
            }
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let state = Mutex::new(State::Waiting(Instant::now()));
        let connection = Arc::new(Connection { peer, state, close: Notify::new() });
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

    /// Closes those that have waited too long, or whose answers nobody takes. How many there were.
    pub(crate) fn sweep(&self, now: Instant) -> usize {
        let all = self.all();
        let late = all.values().filter(|one| one.is_late(now, &self.bounds));
        late.map(|one| one.close()).count()
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

    fn waits_since(&self) -> Option<Instant> {
        match *self.state() {
            State::Waiting(since) => Some(since),
            State::InUse | State::Sending(_) => None,
        }
    }

    fn is_late(&self, now: Instant, bounds: &Bounds) -> bool {
        match *self.state() {
            State::Waiting(since) => now.saturating_duration_since(since) > bounds.idle,
            State::Sending(last) => now.saturating_duration_since(last) > bounds.stall,
            State::InUse => false,
        }
    }

    /// A request begins to arrive: it has as long as an idle connection has.
    pub(crate) fn hears(&self) {
        *self.state() = State::Waiting(Instant::now());
    }

    pub(crate) fn is_used(&self) {
        *self.state() = State::InUse;
    }

    /// Whether it is being answered.
    pub(crate) fn is_in_use(&self) -> bool {
        self.waits_since().is_none()
    }

    fn sends(&self) {
        *self.state() = State::Sending(Instant::now());
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
        self.connection.hears();
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
        Connections::new(Bounds { most, idle: second, stall: second })
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
        let now = Instant::now();
        assert_eq!(all.sweep(now), 0);
        assert_eq!(all.sweep(now + Duration::from_secs(2)), 2);
        drop((waits, used, sends));
    }
}
