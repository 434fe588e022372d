//! Room for long bodies, from before they arrive until what they ask for has been made of them: also while
//! they wait for their place. No key has more than three quarters of it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use axum::body::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::lanes::{PATIENCE, full};
use crate::problem::Trouble;

/// All of them together, and those of one key.
const ALL: usize = 128 << 20;
const EACH: usize = ALL / 4 * 3;
/// Up to here a body needs no room: there are no more of them than connections.
pub(crate) const SMALL: usize = 64 * 1024;
/// What is counted.
const UNIT: usize = 1024;

#[derive(Debug)]
pub(crate) struct Bodies {
    all: Arc<Semaphore>,
    /// Of those keys that have any.
    each: Mutex<HashMap<String, Weak<Semaphore>>>,
}

impl Default for Bodies {
    fn default() -> Bodies {
        Bodies { all: Arc::new(Semaphore::new(ALL / UNIT)), each: Mutex::default() }
    }
}

/// A body that is there. What it takes is given back when it is dropped.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    pub(crate) bytes: Bytes,
    room: Option<Room>,
}

/// Room for a body, of its key and of all.
#[derive(Debug)]
pub(crate) struct Room {
    own: OwnedSemaphorePermit,
    all: OwnedSemaphorePermit,
}

impl Taken {
    pub(crate) fn new(bytes: Bytes, mut room: Option<Room>) -> Taken {
        if let Some(room) = &mut room {
            room.shrink(bytes.len());
        }
        Taken { bytes, room }
    }

    /// For somebody who goes on with the bytes elsewhere.
    pub(crate) fn split(self) -> (Bytes, Option<Room>) {
        (self.bytes, self.room)
    }
}

impl Bodies {
    /// Room for so many bytes, as soon as there is some.
    pub(crate) async fn room(&self, key: &str, bytes: usize) -> Result<Option<Room>, Trouble> {
        if bytes <= SMALL {
            return Ok(None);
        }
        let (own, units) = (self.of(key), units(bytes));
        let room = async {
            // First its own: whoever has none left holds up nobody else.
            let own = own.acquire_many_owned(units).await.ok()?;
            let all = Arc::clone(&self.all).acquire_many_owned(units).await.ok()?;
            Some(Room { own, all })
        };
        let room = tokio::time::timeout(PATIENCE, room).await.ok().flatten();
        room.map(Some).ok_or_else(full)
    }

    fn of(&self, key: &str) -> Arc<Semaphore> {
        let mut each = self.each.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = each.get(key).and_then(Weak::upgrade) {
            return known;
        }
        each.retain(|_, one| one.strong_count() > 0);
        let made = Arc::new(Semaphore::new(EACH / UNIT));
        each.insert(key.to_owned(), Arc::downgrade(&made));
        made
    }
}

impl Room {
    /// Gives back what turned out not to be needed.
    fn shrink(&mut self, bytes: usize) {
        for permit in [&mut self.own, &mut self.all] {
            let spare = permit.num_permits().saturating_sub(units(bytes) as usize);
            drop(permit.split(spare));
        }
    }
}

fn units(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::MOST_BODY;

    fn run<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        runtime.unwrap().block_on(future)
    }

    #[test]
    fn a_key_has_three_quarters_of_the_room_and_others_the_rest() {
        run(async {
            let bodies = Bodies::default();
            let mut held = Vec::new();
            for _ in 0..EACH / MOST_BODY {
                held.push(bodies.room("greedy", MOST_BODY).await.unwrap());
            }
            let refused = bodies.room("greedy", SMALL + 1).await.unwrap_err();
            assert_eq!(refused.status(), 503);
            assert!(bodies.room("greedy", SMALL).await.unwrap().is_none(), "that needs none");
            let other = bodies.room("other", MOST_BODY).await.unwrap();
            drop(held.pop());
            drop(bodies.room("greedy", MOST_BODY).await.unwrap().unwrap());
            drop((held, other));
            assert_eq!(bodies.all.available_permits(), ALL / UNIT, "all of it is back");
            drop(bodies.room("another", MOST_BODY).await.unwrap());
            assert_eq!(bodies.each.lock().unwrap().len(), 1, "nobody else is remembered");
        });
    }

    #[test]
    fn a_body_takes_what_it_is_and_gives_it_back_at_its_end() {
        run(async {
            let bodies = Bodies::default();
            let room = bodies.room("a", MOST_BODY).await.unwrap();
            let taken = Taken::new(vec![0; 100 * UNIT].into(), room);
            assert_eq!(bodies.all.available_permits(), ALL / UNIT - 100);
            drop(taken);
            assert_eq!(bodies.all.available_permits(), ALL / UNIT);
        });
    }
}
