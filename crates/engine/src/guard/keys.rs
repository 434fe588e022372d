//! What a cached result depends on.

use std::time::{Duration, Instant};

use hotcell_request::{Cache as Rule, Call, PathPattern, canonical};
use hotcell_workspace::{GlobOptions, Globs, Kind};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::engine::Engine;
use crate::guard::cache::Key;

/// Most declared inputs, bytes of one of them, and time to read them all. Beyond that a result is not kept.
const FILES_MOST: usize = 1000;
const BYTES_MOST: usize = 16 * 1024 * 1024;
const TIME_MOST: Duration = Duration::from_secs(2);

impl Engine {
    /// A result that is still good.
    pub(crate) fn cached(&self, key: &Key, now: Instant) -> Option<Value> {
        let bytes = self.cache.get(key, now)?;
        serde_json::from_slice(&bytes).ok()
    }

    /// Keeps a result for its key, unless what it depends on was changed while it was made.
    pub(crate) fn keep(&self, call: &Call, key: Key, value: &Value, now: Instant) {
        if let Rule::Keep { span, .. } = &call.tool().tool().cache
            && self.key(call) == Some(key)
        {
            self.cache.put(key, &canonical::bytes(value), span.duration(), now);
        }
    }

    /// `None` for tools whose results are not kept, and where an input cannot be read.
    pub(crate) fn key(&self, call: &Call) -> Option<Key> {
        let Rule::Keep { inputs, .. } = &call.tool().tool().cache else { return None };
        let mut hash = Sha256::new();
        for part in [
            call.caller().tenant.as_str().as_bytes(),
            call.tool().digest().as_bytes(),
            call.args_digest().as_bytes(),
        ] {
            add(&mut hash, part);
        }
        if !inputs.is_empty() {
            self.add_inputs(&mut hash, inputs)?;
        }
        Some(hash.finalize().into())
    }

    /// The paths and contents of the declared inputs that are there.
    fn add_inputs(&self, hash: &mut Sha256, inputs: &[PathPattern]) -> Option<()> {
        let root = self.workspace.as_ref()?;
        let globs = Globs::new(inputs.iter().map(PathPattern::as_str)).ok()?;
        let until = Instant::now() + TIME_MOST;
        let options = GlobOptions { most: FILES_MOST, hidden: true, within: TIME_MOST };
        let found = root.glob(&globs, options).ok().filter(|found| !found.truncated)?;
        for entry in found.entries {
            match entry.kind {
                Kind::Directory => continue,
                Kind::Symlink { .. } => return None,
                Kind::File(_) => {}
            }
            let content = root.read(&entry.path, .., BYTES_MOST).ok()?;
            if content.truncated || Instant::now() > until {
                return None;
            }
            add(hash, entry.path.as_str().as_bytes());
            add(hash, &content.bytes);
        }
        Some(())
    }
}

/// With its length, so that no two lists of parts are the same bytes.
fn add(hash: &mut Sha256, part: &[u8]) {
    hash.update((part.len() as u64).to_le_bytes());
    hash.update(part);
}
