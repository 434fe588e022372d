//! Results that may be given again. Opt-in per tool; a key holds everything that the result depends on.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Most results, and most bytes of results, that are kept.
const MOST_ENTRIES: usize = 4096;
const MOST_BYTES: usize = 64 * 1024 * 1024;

/// What a result depends on: a digest over tenant, tool with its whole surface, arguments, and the
/// content of declared inputs.
pub(crate) type Key = [u8; 32];

#[derive(Debug, Default)]
pub(crate) struct Cache {
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    results: HashMap<Key, Entry>,
    bytes: usize,
    /// Counts uses, to tell which was used longest ago.
    clock: u64,
}

#[derive(Debug)]
struct Entry {
    result: Arc<[u8]>,
    until: Instant,
    used: u64,
}

impl Cache {
    pub(crate) fn get(&self, key: &Key, now: Instant) -> Option<Arc<[u8]>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.clock += 1;
        let clock = kept.clock;
        let entry = kept.results.get_mut(key).filter(|entry| entry.until > now)?;
        entry.used = clock;
        Some(Arc::clone(&entry.result))
    }

    pub(crate) fn put(&self, key: Key, result: &[u8], keep: Duration, now: Instant) {
        if result.len() > MOST_BYTES / 16 {
            return;
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.remove(&key);
        while kept.results.len() >= MOST_ENTRIES || kept.bytes + result.len() > MOST_BYTES {
            let oldest = kept.results.iter().min_by_key(|(_, entry)| entry.used);
            let Some(oldest) = oldest.map(|(key, _)| *key) else { break };
            kept.remove(&oldest);
        }
        kept.clock += 1;
        kept.bytes += result.len();
        let entry = Entry { result: result.into(), until: now + keep, used: kept.clock };
        kept.results.insert(key, entry);
    }
}

impl Kept {
    fn remove(&mut self, key: &Key) {
        if let Some(entry) = self.results.remove(key) {
            self.bytes = self.bytes.saturating_sub(entry.result.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_kept_for_its_time_and_its_key() {
        let cache = Cache::default();
        let now = Instant::now();
        cache.put([1; 32], b"one", Duration::from_secs(1), now);
        assert_eq!(cache.get(&[1; 32], now).as_deref(), Some(&b"one"[..]));
        assert_eq!(cache.get(&[2; 32], now), None);
        assert_eq!(cache.get(&[1; 32], now + Duration::from_secs(1)), None);
    }

    #[test]
    fn it_never_grows_beyond_its_bounds_and_keeps_what_is_used() {
        let cache = Cache::default();
        let now = Instant::now();
        let key = |number: usize| {
            let mut key = [0; 32];
            key[..8].copy_from_slice(&number.to_le_bytes());
            key
        };
        for number in 0..2 * MOST_ENTRIES {
            cache.put(key(number), b"x", Duration::from_secs(60), now);
            cache.get(&key(0), now);
        }
        assert!(cache.get(&key(0), now).is_some());
        let kept = cache.kept.lock().unwrap();
        assert!(kept.results.len() <= MOST_ENTRIES && kept.bytes == kept.results.len());
    }

    #[test]
    fn what_is_too_large_is_not_kept() {
        let cache = Cache::default();
        let now = Instant::now();
        cache.put([1; 32], &vec![0; MOST_BYTES], Duration::from_secs(1), now);
        assert_eq!(cache.get(&[1; 32], now), None);
    }
}
