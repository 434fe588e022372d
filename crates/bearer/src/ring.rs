//! The keys that bearers are signed with. The newest signs; each says which of the older ones are still
//! good and until when, so that a file that is put back later makes no old key good again.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hmac::{Hmac, Mac};
use hotcell_types::Span;
use sha2::Sha256;

use crate::keyfile::{KeyFile, Place, Terms};

/// Of HMAC-SHA256, in bytes.
pub(crate) const MAC: usize = 32;
/// What every signed message begins with, so that no signature for anything else is one for this.
const DOMAIN: &[u8] = b"hotcell bearer 1\n";

/// Most keys at a time: the newest, and those that are good for a while.
pub const MAX_KEYS: usize = 16;
/// How long an older key is good at most: as long as anything that it signed.
pub const MAX_GRACE: Span = Span::seconds(7 * 24 * 3600);

/// Why there is no key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the keys of tokens in `{}` cannot be used: {why}", path.display())]
pub struct RingError {
    pub path: PathBuf,
    pub why: String,
    pub fix: &'static str,
}

/// The keys of a home. Other processes may add some at any time.
#[derive(Debug)]
pub struct Ring {
    place: Place,
    keys: Mutex<Arc<Keys>>,
}

/// Never none.
#[derive(Debug)]
pub(crate) struct Keys {
    newest: Key,
    /// From the oldest on, which is also the first that is good for nothing.
    older: Vec<Key>,
}

/// Never shown.
#[derive(Clone)]
pub(crate) struct Key {
    number: u32,
    until: Option<i64>,
    hmac: Hmac<Sha256>,
}

impl Ring {
    /// Opens the keys of a home, in `keys/`, and makes the first one if there is none.
    pub fn open(home: &Path) -> Result<Ring, RingError> {
        let place = Place::open(home)?;
        let mut keys = Keys::of(place.load()?);
        if keys.is_none() {
            let _lock = place.lock()?;
            // Another process may have been first.
            keys = Keys::of(place.load()?);
            if keys.is_none() {
                place.make(Terms { number: 1, oldest: 1, older_until: 0 })?;
                keys = Keys::of(place.load()?);
            }
        }
        let keys = keys.ok_or_else(|| place.gone())?;
        Ok(Ring { place, keys: Mutex::new(Arc::new(keys)) })
    }

    /// Makes a new key, which signs from now on. Older ones are good for `grace` longer, or not at all:
    /// take none if a key was stolen. Files of keys that are good for nothing are removed.
    pub fn rotate(&self, now: i64, grace: Option<Span>) -> Result<(), RingError> {
        let grace = grace.map_or(0, |grace| grace.min(MAX_GRACE).as_millis());
        let grace = i64::try_from(grace).unwrap_or(i64::MAX).saturating_mul(1_000_000);
        let _lock = self.place.lock()?;
        let keys = self.keys()?;
        let over = keys.older.iter().take_while(|key| key.until.is_some_and(|until| until <= now));
        for key in over.clone() {
            self.place.remove(key.number)?;
        }
        let mut good = keys.older.iter().skip(over.count()).chain([&keys.newest]);
        if good.clone().count() >= MAX_KEYS {
            let why = format!("{MAX_KEYS} of them are still good, which is the most");
            return Err(self.place.refuse(why, "wait until older ones are good for nothing"));
        }
        let number = keys.newest.number.checked_add(1);
        let number = number.ok_or_else(|| self.place.refuse("no number is left", "begin anew"))?;
        let oldest = good.next().map_or(number, |key| key.number);
        self.place.make(Terms { number, oldest, older_until: now.saturating_add(grace) })?;
        self.keys().map(drop)
    }

    /// As they are on disk.
    pub(crate) fn keys(&self) -> Result<Arc<Keys>, RingError> {
        let mut held = self.held();
        // A newer one has the next number; if that is gone already, so is ours, which went before it.
        let number = held.newest.number;
        let has_newer = self.place.has(number.saturating_add(1))?;
        if has_newer || !self.place.has(number)? {
            let keys = Keys::of(self.place.load()?);
            *held = Arc::new(keys.ok_or_else(|| self.place.gone())?);
        }
        Ok(Arc::clone(&held))
    }

    fn held(&self) -> MutexGuard<'_, Arc<Keys>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Keys {
    pub(crate) fn newest(&self) -> &Key {
        &self.newest
    }

    pub(crate) fn get(&self, number: u32) -> Option<&Key> {
        self.older.iter().chain([&self.newest]).find(|key| key.number == number)
    }

    /// `None` if there are none.
    fn of(mut files: Vec<KeyFile>) -> Option<Keys> {
        files.sort_by_key(|file| file.terms.number);
        let oldest = files.last()?.terms.oldest;
        files.retain(|file| file.terms.number >= oldest);
        let mut until: Option<i64> = None;
        let mut keys = Vec::with_capacity(files.len());
        for KeyFile { terms, hmac } in files.into_iter().rev() {
            keys.push(Key { number: terms.number, until, hmac });
            // Whichever of the newer ones is the strictest.
            until = Some(until.map_or(terms.older_until, |until| until.min(terms.older_until)));
        }
        let mut keys = keys.into_iter();
        Some(Keys { newest: keys.next()?, older: keys.rev().collect() })
    }
}

impl Key {
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Until when it is good; the newest has no end.
    pub(crate) fn until(&self) -> Option<i64> {
        self.until
    }

    pub(crate) fn mac(&self, message: &[u8]) -> [u8; MAC] {
        self.over(message).finalize().into_bytes().into()
    }

    /// In the same time whatever differs.
    pub(crate) fn is_mac_of(&self, message: &[u8], mac: &[u8; MAC]) -> bool {
        self.over(message).verify_slice(mac).is_ok()
    }

    fn over(&self, message: &[u8]) -> Hmac<Sha256> {
        self.hmac.clone().chain_update(DOMAIN).chain_update(message)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.number)
    }
}
