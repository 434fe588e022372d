//! What became of jobs that have ended, for those that name them as dependencies later.

use std::collections::{HashMap, VecDeque};

use hotcell_types::{CallId, Name};

/// Most ended jobs that are remembered. The one that ended first is forgotten first.
pub const MOST_REMEMBERED: usize = 4096;

#[derive(Debug, Default)]
pub(crate) struct Remembered {
    fates: HashMap<CallId, Fate>,
    /// In the order of their ends, each with its number: an id that ended twice is forgotten with the
    /// second.
    order: VecDeque<(u64, CallId)>,
    count: u64,
}

#[derive(Debug)]
struct Fate {
    number: u64,
    tenant: Name,
    is_success: bool,
}

impl Remembered {
    pub(crate) fn ended(&mut self, id: CallId, tenant: Name, is_success: bool) {
        self.count = self.count.wrapping_add(1);
        let number = self.count;
        self.fates.insert(id, Fate { number, tenant, is_success });
        self.order.push_back((number, id));
        if self.order.len() > MOST_REMEMBERED
            && let Some((number, id)) = self.order.pop_front()
            && self.fates.get(&id).is_some_and(|fate| fate.number == number)
        {
            self.fates.remove(&id);
        }
    }

    /// Whether it succeeded. Nobody hears of another tenant's jobs.
    pub(crate) fn is_success(&self, id: CallId, tenant: &Name) -> Option<bool> {
        self.fates.get(&id).filter(|fate| fate.tenant == *tenant).map(|fate| fate.is_success)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: usize) -> CallId {
        CallId::from_bytes((n as u128).to_be_bytes())
    }

    #[test]
    fn the_last_ended_are_remembered_and_no_more() {
        let mut remembered = Remembered::default();
        for n in 0..3 * MOST_REMEMBERED {
            remembered.ended(id(n), Name::LOCAL, n % 2 == 0);
            // One that ends again and again takes no more than one place in the map.
            remembered.ended(id(usize::MAX), Name::LOCAL, true);
        }
        assert!(remembered.fates.len() <= MOST_REMEMBERED);
        assert_eq!(remembered.order.len(), MOST_REMEMBERED);
        let last = 3 * MOST_REMEMBERED - 1;
        assert_eq!(remembered.is_success(id(last), &Name::LOCAL), Some(false));
        assert_eq!(remembered.is_success(id(usize::MAX), &Name::LOCAL), Some(true));
        assert_eq!(remembered.is_success(id(0), &Name::LOCAL), None);
        assert_eq!(remembered.is_success(id(last), &"other".parse().unwrap()), None);
    }
}
