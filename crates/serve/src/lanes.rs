//! Who is served when. The engine blocks, so that each request takes a thread for as long as it lasts: there
//! are so many in each lane, so many for each key, and so many that wait. A place that becomes free goes to
//! the key that has the fewest, so that whoever sends one request need not wait for somebody's thousand.

use std::collections::{HashMap, VecDeque};
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::StatusCode;
use tokio::sync::oneshot;

use crate::problem::{SOON, Trouble};
use crate::route::Lane;

/// Longest that a request waits for a place.
const PATIENCE: Duration = Duration::from_secs(5);
/// Places for each that wait for one.
const WAITING_EACH: usize = 4;

/// Places of a lane. Calls wait for their turn in the engine, which knows what the machine has room for:
/// there are more places here than runs there.
fn places(lane: Lane) -> usize {
    match lane {
        Lane::Reads => 32,
        Lane::Calls => 128,
        // Each has threads of its own for as many jobs as it has at one time.
        Lane::Batches => 8,
        Lane::Waits => 256,
        Lane::Contents => 16,
    }
}

/// Threads that all lanes together can need.
pub(crate) fn threads() -> usize {
    Lane::ALL.into_iter().map(places).sum()
}

#[derive(Debug)]
pub(crate) struct Lanes {
    lanes: HashMap<Lane, Arc<Queue>>,
}

impl Default for Lanes {
    fn default() -> Lanes {
        let queue = |lane| (lane, Arc::new(Queue::new(places(lane))));
        Lanes { lanes: Lane::ALL.into_iter().map(queue).collect() }
    }
}

impl Lanes {
    /// A place, or why there is none.
    pub(crate) async fn enter(
        &self,
        lane: Lane,
        key: &str,
        most: Option<NonZeroU32>,
    ) -> Result<Place, Trouble> {
        let Some(queue) = self.lanes.get(&lane) else { return Err(full()) };
        queue.enter(key, most.map(|most| most.get() as usize)).await
    }

    /// How many are served, and how many wait, by lane.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (Lane, usize, usize)> {
        Lane::ALL.into_iter().filter_map(|lane| {
            let state = self.lanes.get(&lane)?.state();
            Some((lane, state.taken, state.waiting.len()))
        })
    }
}

#[derive(Debug)]
struct Queue {
    places: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    taken: usize,
    by_key: HashMap<String, usize>,
    waiting: VecDeque<Waiter>,
}

#[derive(Debug)]
struct Waiter {
    key: String,
    most: usize,
    place: oneshot::Sender<Place>,
}

/// Held as long as somebody is served.
#[derive(Debug)]
pub(crate) struct Place {
    queue: Option<Arc<Queue>>,
    key: String,
}

impl Queue {
    fn new(places: usize) -> Queue {
        Queue { places, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What one key can have: its own limit, and never all that there is.
    fn share(&self, most: Option<usize>) -> usize {
        let share = (self.places * 3 / 4).max(1);
        most.unwrap_or(share).min(share)
    }

    async fn enter(self: &Arc<Queue>, key: &str, most: Option<usize>) -> Result<Place, Trouble> {
        let waiting = {
            let mut state = self.state();
            let share = self.share(most);
            let own = state.by_key.get(key).copied().unwrap_or(0);
            let own_waiting = state.waiting.iter().filter(|waiter| waiter.key == key).count();
            if most.is_some_and(|most| own >= most) || own_waiting >= share * WAITING_EACH {
                return Err(too_many(own));
            }
            if state.taken < self.places && own < share && state.waiting.is_empty() {
                return Ok(self.take(&mut state, key.to_owned()));
            }
            if state.waiting.len() >= self.places * WAITING_EACH {
                return Err(full());
            }
            let (place, waiting) = oneshot::channel();
            state.waiting.push_back(Waiter { key: key.to_owned(), most: share, place });
            self.give(&mut state);
            waiting
        };
        match tokio::time::timeout(PATIENCE, waiting).await {
            Ok(Ok(place)) => Ok(place),
            _ => Err(full()),
        }
    }

    fn take(self: &Arc<Queue>, state: &mut State, key: String) -> Place {
        state.taken += 1;
        *state.by_key.entry(key.clone()).or_default() += 1;
        Place { queue: Some(Arc::clone(self)), key }
    }

    /// Gives free places to those who wait: first to whose key has the fewest, then to who came first.
    fn give(self: &Arc<Queue>, state: &mut State) {
        state.waiting.retain(|waiter| !waiter.place.is_closed());
        while state.taken < self.places {
            let has = |waiter: &Waiter| state.by_key.get(&waiter.key).copied().unwrap_or(0);
            let may = state.waiting.iter().enumerate().filter(|(_, one)| has(one) < one.most);
            let Some((next, _)) = may.min_by_key(|(_, one)| has(one)) else { return };
            let Some(waiter) = state.waiting.remove(next) else { return };
            let place = self.take(state, waiter.key);
            if let Err(mut unwanted) = waiter.place.send(place) {
                // It is dropped here, where the state is locked: given back by hand.
                unwanted.queue = None;
                state.give_back(&unwanted.key);
            }
        }
    }
}

impl State {
    fn give_back(&mut self, key: &str) {
        self.taken = self.taken.saturating_sub(1);
        if let Some(own) = self.by_key.get_mut(key) {
            *own = own.saturating_sub(1);
            if *own == 0 {
                self.by_key.remove(key);
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(queue) = self.queue.take() {
            let mut state = queue.state();
            state.give_back(&self.key);
            queue.give(&mut state);
        }
    }
}

fn too_many(own: usize) -> Trouble {
    let why = format!("{own} requests of this key are being answered, and others wait");
    let fix = "wait for some of them";
    let status = StatusCode::TOO_MANY_REQUESTS;
    Trouble::new(status, "too-many-at-once", "too many requests at one time", why, fix)
        .retry_after(SOON)
}

fn full() -> Trouble {
    let why = "as many requests as there is room for are being answered";
    let status = StatusCode::SERVICE_UNAVAILABLE;
    Trouble::new(status, "busy", "there is no room for it now", why, "try again").retry_after(SOON)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Places that are taken, and those who wait.
    fn seen(queue: &Queue) -> (usize, usize) {
        let state = queue.state();
        (state.taken, state.waiting.len())
    }

    fn run<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        runtime.unwrap().block_on(future)
    }

    #[test]
    fn a_key_never_has_all_places_and_the_next_one_goes_to_who_has_fewest() {
        run(async {
            let queue = Arc::new(Queue::new(4));
            let mut greedy = Vec::new();
            for _ in 0..3 {
                greedy.push(queue.enter("greedy", None).await.unwrap());
            }
            let waits = tokio::spawn({
                let queue = Arc::clone(&queue);
                async move { queue.enter("greedy", None).await.map(drop) }
            });
            tokio::task::yield_now().await;
            let modest = queue.enter("modest", None).await.unwrap();
            assert_eq!(seen(&queue), (4, 1));
            let other = tokio::spawn({
                let queue = Arc::clone(&queue);
                async move { queue.enter("other", None).await }
            });
            tokio::task::yield_now().await;
            drop(greedy.pop());
            let other = other.await.unwrap().unwrap();
            assert_eq!(other.key, "other", "who came later has fewer");
            drop((greedy, modest));
            waits.await.unwrap().unwrap();
            drop(other);
            assert_eq!(queue.state().taken, 0);
        });
    }

    #[test]
    fn a_keys_own_limit_is_a_429_and_a_full_house_a_503() {
        run(async {
            let queue = Arc::new(Queue::new(2));
            let one = queue.enter("a", Some(1)).await.unwrap();
            let refused = queue.enter("a", Some(1)).await.unwrap_err();
            assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
            let two = queue.enter("b", None).await.unwrap();
            let mut waiting = Vec::new();
            for n in 0..8 {
                let queue = Arc::clone(&queue);
                waiting.push(tokio::spawn(async move {
                    queue.enter(&format!("k{n}"), None).await.map(drop)
                }));
                tokio::task::yield_now().await;
            }
            let refused = queue.enter("c", None).await.unwrap_err();
            assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
            drop((one, two));
            for one in waiting {
                one.await.unwrap().unwrap();
            }
        });
    }

    #[test]
    fn who_goes_away_while_waiting_takes_nothing_along() {
        run(async {
            let queue = Arc::new(Queue::new(1));
            let place = queue.enter("a", None).await.unwrap();
            let waits = tokio::spawn({
                let queue = Arc::clone(&queue);
                async move { queue.enter("b", None).await.map(drop) }
            });
            tokio::task::yield_now().await;
            waits.abort();
            drop(waits.await);
            drop(place);
            assert_eq!(seen(&queue), (0, 0));
        });
    }
}
