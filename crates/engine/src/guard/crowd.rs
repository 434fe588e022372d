//! So many calls of a tool at one time; the others wait.

use std::collections::HashMap;
use std::num::NonZeroU16;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Calls that are going on, by tool.
#[derive(Debug, Default)]
pub(crate) struct Crowds {
    inside: Mutex<HashMap<String, u16>>,
    left: Condvar,
}

/// One of the places of a tool, until this is dropped.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    crowds: &'a Crowds,
    /// `None` where nobody counts.
    tool: Option<String>,
}

impl Crowds {
    /// Waits for a place; `None` when there was none in that time.
    pub(crate) fn enter(
        &self,
        tool: &str,
        most: Option<NonZeroU16>,
        patience: Duration,
    ) -> Option<Place<'_>> {
        let Some(most) = most else { return Some(Place { crowds: self, tool: None }) };
        let is_full =
            |inside: &mut HashMap<String, u16>| inside.get(tool).is_some_and(|n| *n >= most.get());
        let waited = self.left.wait_timeout_while(self.inside(), patience, is_full);
        let (mut inside, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() {
            return None;
        }
        *inside.entry(tool.to_owned()).or_default() += 1;
        Some(Place { crowds: self, tool: Some(tool.to_owned()) })
    }

    fn inside(&self) -> MutexGuard<'_, HashMap<String, u16>> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let Some(tool) = &self.tool else { return };
        let mut inside = self.crowds.inside();
        if let Some(count) = inside.get_mut(tool) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                inside.remove(tool);
            }
        }
        drop(inside);
        self.crowds.left.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU16, Ordering};

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn never_more_than_the_tool_allows_and_all_get_in() {
        let (crowds, inside) = (Crowds::default(), AtomicU16::new(0));
        let most = NonZeroU16::new(3);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        let _place = crowds.enter("t", most, LONG).unwrap();
                        assert!(inside.fetch_add(1, Ordering::SeqCst) < 3);
                        std::thread::yield_now();
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert!(crowds.inside().is_empty());
    }

    #[test]
    fn who_does_not_get_in_is_told_and_other_tools_do_not_matter() {
        let crowds = Crowds::default();
        let one = NonZeroU16::new(1);
        let _place = crowds.enter("t", one, LONG).unwrap();
        assert!(crowds.enter("t", one, Duration::from_millis(1)).is_none());
        assert!(crowds.enter("other", one, LONG).is_some());
        assert!(crowds.enter("t", None, LONG).is_some());
    }
}
