//! Memory for large frames that are being read: many connections together may not hold more than one
//! server's share.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

#[derive(Debug)]
pub(crate) struct Room {
    most: usize,
    taken: AtomicUsize,
}

/// Some of it, until it is dropped.
#[derive(Debug)]
pub(crate) struct Taken {
    room: Arc<Room>,
    bytes: usize,
}

impl Room {
    pub(crate) fn new(most: usize) -> Arc<Room> {
        Arc::new(Room { most, taken: AtomicUsize::new(0) })
    }

    pub(crate) fn none(self: &Arc<Room>) -> Taken {
        Taken { room: Arc::clone(self), bytes: 0 }
    }
}

impl Taken {
    /// Takes more, so that it is this much in all. Whether there was that much.
    pub(crate) fn grow(&mut self, to: usize) -> bool {
        let more = to.saturating_sub(self.bytes);
        let fits = |taken: usize| taken.checked_add(more).filter(|all| *all <= self.room.most);
        let took = self.room.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok();
        if took {
            self.bytes += more;
        }
        took
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.room.taken.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_together_take_no_more_than_there_is() {
        let room = Room::new(10);
        let (mut one, mut other) = (room.none(), room.none());
        assert!(one.grow(4) && one.grow(6) && one.grow(5));
        assert!(!other.grow(5) && other.grow(4));
        drop(one);
        assert!(other.grow(10) && !other.grow(11) && !other.grow(usize::MAX));
        drop(other);
        assert_eq!(room.taken.load(Ordering::Relaxed), 0);
    }
}
