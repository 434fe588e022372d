//! Calls that write to overlapping paths wait for each other; all others go side by side.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// The whole workspace, as calls spell it.
pub(crate) const WHOLE: &str = ".";

/// What is being written at this moment.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    held: Mutex<Held>,
    freed: Condvar,
}

#[derive(Debug, Default)]
struct Held {
    next: u64,
    /// In the order of asking, so that nobody is overtaken for ever.
    claims: Vec<(u64, Vec<String>)>,
}

/// Paths that nobody else writes until this is dropped.
#[derive(Debug)]
pub(crate) struct Claim<'a> {
    claims: &'a Claims,
    number: u64,
}

impl Claims {
    /// Waits until nobody who asked before writes to any of these paths, or above or below one; `None`
    /// when somebody still did after that time.
    pub(crate) fn take(&self, paths: Vec<String>, patience: Duration) -> Option<Claim<'_>> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let number = held.next;
        held.next += 1;
        held.claims.push((number, paths));
        // From here on it is given up when it is dropped, taken or not.
        let claim = Claim { claims: self, number };
        let is_blocked = |held: &mut Held| held.is_blocked(number);
        let waited = self.freed.wait_timeout_while(held, patience, is_blocked);
        let (held, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        drop(held);
        (!waited.timed_out()).then_some(claim)
    }
}

impl Held {
    fn is_blocked(&self, number: u64) -> bool {
        let Some((_, own)) = self.claims.iter().find(|(n, _)| *n == number) else { return false };
        let earlier = self.claims.iter().filter(|(n, _)| *n < number);
        earlier.flat_map(|(_, paths)| paths).any(|other| own.iter().any(|path| meet(path, other)))
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut held = self.claims.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.claims.retain(|(number, _)| *number != self.number);
        let is_last = held.claims.is_empty();
        drop(held);
        // Who waits has a claim as well.
        if !is_last {
            self.claims.freed.notify_all();
        }
    }
}

/// Whether one is the other, or lies in it. Paths are relative and in normal form.
fn meet(one: &str, other: &str) -> bool {
    let lies_in = |inner: &str, outer: &str| {
        outer == WHOLE
            || inner
                .strip_prefix(outer)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    lies_in(one, other) || lies_in(other, one)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn who_waits_in_vain_is_told_and_blocks_nobody_afterwards() {
        let claims = Claims::default();
        let first = claims.take(vec!["a".into()], LONG).unwrap();
        assert!(claims.take(vec![WHOLE.into()], Duration::from_millis(1)).is_none());
        drop(claims.take(vec!["b".into()], LONG).unwrap());
        drop(first);
        assert!(claims.take(vec![WHOLE.into()], LONG).is_some());
        assert!(claims.held.lock().unwrap().claims.is_empty());
    }

    #[test]
    fn paths_meet_when_one_lies_in_the_other() {
        for (one, other, expected) in [
            ("a", "a", true),
            ("a", "a/b", true),
            ("a/b", "a", true),
            ("a", "ab", false),
            ("a/b", "a/c", false),
            (".", "a", true),
            ("a/b", ".", true),
            (".", ".", true),
            (".", ".git", true),
            (".git", "a", false),
        ] {
            assert_eq!(meet(one, other), expected, "{one:?} {other:?}");
        }
    }

    #[test]
    fn only_those_that_overlap_wait() {
        let claims = Claims::default();
        let first = claims.take(vec!["a".into()], LONG).unwrap();
        drop(claims.take(vec!["b".into()], LONG).unwrap());
        std::thread::scope(|scope| {
            let (told, heard) = mpsc::channel();
            let claims = &claims;
            scope.spawn(move || {
                let claim = claims.take(vec!["a/x".into(), "c".into()], LONG).unwrap();
                told.send(()).unwrap();
                drop(claim);
            });
            assert!(heard.recv_timeout(Duration::from_millis(50)).is_err());
            drop(first);
            heard.recv_timeout(Duration::from_secs(10)).unwrap();
        });
    }

    #[test]
    fn never_two_at_once_on_one_path() {
        let (claims, inside) = (Claims::default(), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (claims, inside) = (&claims, &inside);
                scope.spawn(move || {
                    for round in 0..200 {
                        let paths = vec![format!("own{thread}"), "shared".to_owned()];
                        let paths = if round % 2 == 0 { paths } else { vec!["shared/x".into()] };
                        let claim = claims.take(paths, LONG).unwrap();
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        inside.fetch_sub(1, Ordering::SeqCst);
                        drop(claim);
                    }
                });
            }
        });
    }
}
