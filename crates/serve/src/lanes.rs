//! Who is served when. The engine blocks, so that each request takes a thread for as long as it lasts: there
//! are so many in each lane, so many for each key, and so many that wait. A place that becomes free goes to
//! the key that has the fewest, so that whoever sends one request need not wait for somebody's thousand. All
//! places together are fewer than the connections, so that there is always one for whoever comes next.

use std::collections::{HashMap, VecDeque};
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::StatusCode;
use tokio::sync::oneshot;

use crate::problem::{SOON, Trouble};
use crate::route::Lane;

/// Longest that a request waits for a place.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
/// Places for each that wait for one.
const WAITING_EACH: usize = 4;
/// Connections for which there are as many places as [`places`] says; with fewer, there are fewer.
const CONNECTIONS: usize = 1024;
/// Fewest places of a lane: one that a key may have, and one for others. They need 17 connections.
const FEWEST: usize = 2;

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
        Lane::Talks | Lane::Listens => 128,
    }
}

/// Threads that all lanes together can need.
pub(crate) fn threads() -> usize {
    Lane::ALL.into_iter().filter(|lane| lane.has_thread()).map(places).sum()
}

#[derive(Debug)]
pub(crate) struct Lanes {
    lanes: HashMap<Lane, Arc<Queue>>,
    going: Arc<Going>,
}

impl Lanes {
    /// For a server with so many connections.
    pub(crate) fn new(connections: usize) -> Lanes {
        let places = |lane| (places(lane) * connections.min(CONNECTIONS) / CONNECTIONS).max(FEWEST);
        let queue = |lane| (lane, Arc::new(Queue::new(places(lane))));
        Lanes { lanes: Lane::ALL.into_iter().map(queue).collect(), going: Arc::default() }
    }

    /// A place, or why there is none. `most` is what the key may have at one time, whatever it is; without
    /// it, the request does not count.
    pub(crate) async fn enter(
        &self,
        lane: Lane,
        key: &str,
        most: Option<NonZeroU32>,
    ) -> Result<Place, Trouble> {
        self.enter_with(lane, key, most, 1).await.map(|(place, _)| place)
    }

    /// The same for one that does several things at one time: as many of them as the key still may.
    pub(crate) async fn enter_with(
        &self,
        lane: Lane,
        key: &str,
        most: Option<NonZeroU32>,
        wanted: usize,
    ) -> Result<(Place, usize), Trouble> {
        let Some(queue) = self.lanes.get(&lane) else { return Err(full()) };
        let counted = match most {
            Some(most) => Some(self.going.count(key, most.get() as usize, wanted)?),
            None => None,
        };
        let much = counted.as_ref().map_or(wanted, |counted| counted.much);
        let mut place = queue.enter(key).await?;
        place.counted = counted;
        Ok((place, much))
    }

    /// How many are served, and how many wait, by lane.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (Lane, usize, usize)> {
        Lane::ALL.into_iter().filter_map(|lane| {
            let state = self.lanes.get(&lane)?.state();
            Some((lane, state.taken, state.waiting.len()))
        })
    }
}

/// How much each key has at one time that has a limit of its own, in all lanes, what waits included.
#[derive(Debug, Default)]
struct Going(Mutex<HashMap<String, usize>>);

/// Counts until it is dropped.
#[derive(Debug)]
struct Counted {
    going: Arc<Going>,
    key: String,
    much: usize,
}

impl Going {
    fn all(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(self: &Arc<Going>, key: &str, most: usize, wanted: usize) -> Result<Counted, Trouble> {
        let mut all = self.all();
        let own = all.get(key).copied().unwrap_or(0);
        let much = wanted.min(most.saturating_sub(own));
        if much == 0 {
            return Err(too_many(format!("{own} of this key go on, which is what it may have")));
        }
        *all.entry(key.to_owned()).or_default() += much;
        Ok(Counted { going: Arc::clone(self), key: key.to_owned(), much })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        take_off(&mut self.going.all(), &self.key, self.much);
    }
}

/// A key that has nothing is forgotten.
fn take_off(all: &mut HashMap<String, usize>, key: &str, much: usize) {
    if let Some(own) = all.get_mut(key) {
        *own = own.saturating_sub(much);
        if *own == 0 {
            all.remove(key);
        }
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
    place: oneshot::Sender<Place>,
}

/// Held as long as somebody is served.
#[derive(Debug)]
pub(crate) struct Place {
    queue: Option<Arc<Queue>>,
    key: String,
    counted: Option<Counted>,
}

impl Queue {
    fn new(places: usize) -> Queue {
        Queue { places, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What one key can have: never all that there is.
    fn share(&self) -> usize {
        (self.places * 3 / 4).max(1)
    }

    async fn enter(self: &Arc<Queue>, key: &str) -> Result<Place, Trouble> {
        let waiting = {
            let mut state = self.state();
            let share = self.share();
            let own = state.by_key.get(key).copied().unwrap_or(0);
            let own_waiting = state.waiting.iter().filter(|waiter| waiter.key == key).count();
            if own_waiting >= share * WAITING_EACH {
                let why = format!("{own} of this key are being answered, and others wait");
                return Err(too_many(why));
            }
            if state.taken < self.places && own < share && state.waiting.is_empty() {
                return Ok(self.take(&mut state, key.to_owned()));
            }
            if state.waiting.len() >= self.places * WAITING_EACH {
                return Err(full());
            }
            let (place, waiting) = oneshot::channel();
            state.waiting.push_back(Waiter { key: key.to_owned(), place });
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
        Place { queue: Some(Arc::clone(self)), key, counted: None }
    }

    /// Gives free places to those who wait: first to whose key has the fewest, then to who came first.
    fn give(self: &Arc<Queue>, state: &mut State) {
        state.waiting.retain(|waiter| !waiter.place.is_closed());
        let share = self.share();
        while state.taken < self.places {
            let has = |waiter: &Waiter| state.by_key.get(&waiter.key).copied().unwrap_or(0);
            let may = state.waiting.iter().enumerate().filter(|(_, one)| has(one) < share);
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
        take_off(&mut self.by_key, key, 1);
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

fn too_many(why: String) -> Trouble {
    let fix = "wait for some of them";
    let status = StatusCode::TOO_MANY_REQUESTS;
    Trouble::new(status, "too-many-at-once", "too many requests at one time", why, fix)
        .retry_after(SOON)
}

pub(crate) fn full() -> Trouble {
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
                greedy.push(queue.enter("greedy").await.unwrap());
            }
            let waits = tokio::spawn({
                let queue = Arc::clone(&queue);
                async move { queue.enter("greedy").await.map(drop) }
            });
            tokio::task::yield_now().await;
            let modest = queue.enter("modest").await.unwrap();
            assert_eq!(seen(&queue), (4, 1));
            let other = tokio::spawn({
                let queue = Arc::clone(&queue);
                async move { queue.enter("other").await }
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
    fn a_keys_own_limit_holds_in_all_lanes_together_and_is_a_429() {
        run(async {
            let (lanes, two) = (Lanes::new(1024), NonZeroU32::new(2));
            let call = lanes.enter(Lane::Calls, "a", two).await.unwrap();
            let (batch, jobs) = lanes.enter_with(Lane::Batches, "a", two, 16).await.unwrap();
            assert_eq!(jobs, 1, "what is left of two");
            for lane in Lane::ALL {
                let refused = lanes.enter(lane, "a", two).await.unwrap_err();
                assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
            }
            drop(lanes.enter(Lane::Reads, "a", None).await.unwrap());
            drop(lanes.enter(Lane::Calls, "b", two).await.unwrap());
            drop((call, batch));
            let (_batch, jobs) = lanes.enter_with(Lane::Batches, "a", two, 16).await.unwrap();
            assert_eq!(jobs, 2);
            assert_eq!(lanes.going.all().len(), 1, "nobody else has anything");
        });
    }

    #[test]
    fn who_waits_counts_and_who_gives_up_does_not() {
        run(async {
            let (lanes, two) = (Arc::new(Lanes::new(0)), NonZeroU32::new(2));
            let _place = lanes.enter(Lane::Calls, "a", two).await.unwrap();
            let waits = tokio::spawn({
                let lanes = Arc::clone(&lanes);
                async move { lanes.enter(Lane::Calls, "a", two).await.map(drop) }
            });
            tokio::task::yield_now().await;
            assert!(lanes.enter(Lane::Reads, "a", two).await.is_err());
            waits.abort();
            drop(waits.await);
            drop(lanes.enter(Lane::Reads, "a", two).await.unwrap());
        });
    }

    #[test]
    fn all_places_together_are_fewer_than_the_connections() {
        for connections in [17, 32, 64, 100, 1000, 1024, 65_535] {
            let lanes = Lanes::new(connections);
            let all: usize = lanes.lanes.values().map(|queue| queue.places).sum();
            assert!(all < connections, "{all} of {connections}");
            assert!(lanes.lanes.values().all(|queue| queue.share() < queue.places));
        }
    }

    #[test]
    fn a_full_house_is_a_503() {
        run(async {
            let queue = Arc::new(Queue::new(2));
            let one = queue.enter("a").await.unwrap();
            let two = queue.enter("b").await.unwrap();
            let mut waiting = Vec::new();
            for n in 0..8 {
                let queue = Arc::clone(&queue);
                waiting.push(tokio::spawn(
                    async move { queue.enter(&format!("k{n}")).await.map(drop) },
                ));
                tokio::task::yield_now().await;
            }
            let refused = queue.enter("c").await.unwrap_err();
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
            let place = queue.enter("a").await.unwrap();
            let waits = tokio::spawn({
                let queue = Arc::clone(&queue);
                async move { queue.enter("b").await.map(drop) }
            });
            tokio::task::yield_now().await;
            waits.abort();
            drop(waits.await);
            drop(place);
            assert_eq!(seen(&queue), (0, 0));
        });
    }
}
