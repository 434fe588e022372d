//! What a cached result depends on.

use std::time::Instant;

use hotcell_request::{Cache as Rule, Call, canonical};
use hotcell_workspace::{Relative, Root};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::engine::Engine;
use crate::guard::cache::Key;
use crate::surroundings::Surroundings;

/// Most bytes of a declared input. The result for a larger one is not kept.
const BYTES_MOST: usize = 16 * 1024 * 1024;

impl Engine {
    /// A result that is still good.
    pub(crate) fn cached(&self, key: &Key, now: Instant) -> Option<Value> {
        let bytes = self.cache.get(key, now)?;
        serde_json::from_slice(&bytes).ok()
    }

    /// Keeps a result for its key, unless what it depends on was changed while it was made.
    pub(crate) fn keep(
        &self,
        call: &Call,
        from: Option<&Surroundings>,
        (key, value): (Key, &Value),
        now: Instant,
    ) {
        if let Rule::Keep { span, .. } = &call.tool().tool().cache
            && self.key(call, from) == Some(key)
        {
            self.cache.put(key, &canonical::bytes(value), span.duration(), now);
        }
    }

    /// `None` for tools whose results are not kept, and where an input cannot be read.
    pub(crate) fn key(&self, call: &Call, from: Option<&Surroundings>) -> Option<Key> {
        let inputs = call.cache_inputs()?;
        let mut hash = Sha256::new();
        for part in [
            call.caller().tenant.as_str().as_bytes(),
            call.tool().digest().as_bytes(),
            call.args_digest().as_bytes(),
        ] {
            add(&mut hash, part);
        }
        if let Some(added) = self.added(call.tool()) {
            add(&mut hash, &added.number.to_le_bytes());
        }
        for path in inputs {
            add_input(self.workspace_of(from)?, &mut hash, path)?;
        }
        Some(hash.finalize().into())
    }
}

/// The content of a declared input; that it is not there is one as well.
fn add_input(root: &Root, hash: &mut Sha256, path: &str) -> Option<()> {
    let path = Relative::parse(path).ok()?;
    match root.exists(&path).ok()? {
        None => add(hash, b"absent"),
        Some(_) => {
            let content = root.read(&path, .., BYTES_MOST).ok().filter(|all| !all.truncated)?;
            add(hash, b"file");
            add(hash, &content.bytes);
        }
    }
    Some(())
}

/// With its length, so that no two lists of parts are the same bytes.
fn add(hash: &mut Sha256, part: &[u8]) {
    hash.update((part.len() as u64).to_le_bytes());
    hash.update(part);
}
