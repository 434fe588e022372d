//! Calls that write to overlapping paths wait for each other; all others go side by side.

use std::sync::{Condvar, Mutex, PoisonError};

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
    /// Waits until nobody who asked before writes to any of these paths, or above or below one.
    pub(crate) fn take(&self, paths: Vec<String>) -> Claim<'_> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let number = held.next;
        held.next += 1;
        held.claims.push((number, paths));
        while held.is_blocked(number) {
            held = self.freed.wait(held).unwrap_or_else(PoisonError::into_inner);
        }
        Claim { claims: self, number }
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
        drop(held);
        self.claims.freed.notify_all();
    }
}

/// Whether one is the other, or lies in it. Paths are relative and in normal form; the empty one is the
/// whole workspace.
fn meet(one: &str, other: &str) -> bool {
    let lies_in = |inner: &str, outer: &str| {
        outer.is_empty()
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
    use std::time::Duration;

    use super::*;

    #[test]
    fn paths_meet_when_one_lies_in_the_other() {
        for (one, other, expected) in [
            ("a", "a", true),
            ("a", "a/b", true),
            ("a/b", "a", true),
            ("a", "ab", false),
            ("a/b", "a/c", false),
            ("", "a", true),
            ("", "", true),
        ] {
            assert_eq!(meet(one, other), expected, "{one:?} {other:?}");
        }
    }

    #[test]
    fn only_those_that_overlap_wait() {
        let claims = Claims::default();
        let first = claims.take(vec!["a".into()]);
        drop(claims.take(vec!["b".into()]));
        std::thread::scope(|scope| {
            let (told, heard) = mpsc::channel();
            let claims = &claims;
            scope.spawn(move || {
                let claim = claims.take(vec!["a/x".into(), "c".into()]);
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
                        let claim = claims.take(if round % 2 == 0 {
                            paths
                        } else {
                            vec!["shared/x".into()]
                        });
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        inside.fetch_sub(1, Ordering::SeqCst);
                        drop(claim);
                    }
                });
            }
        });
    }
}
