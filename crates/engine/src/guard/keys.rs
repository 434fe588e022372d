//! What a cached result depends on.

use std::time::Instant;

use hotcell_request::{Cache as Rule, Call, canonical};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::engine::Engine;
use crate::guard::cache::Key;

impl Engine {
    /// A result that is still good, of a tool that allows it.
    pub(crate) fn cached(&self, call: &Call, now: Instant) -> Option<Value> {
        let bytes = self.cache.get(&self.key(call)?, now)?;
        serde_json::from_slice(&bytes).ok()
    }

    pub(crate) fn keep(&self, call: &Call, value: Option<&Value>, now: Instant) {
        let (Some(key), Some(value)) = (self.key(call), value) else { return };
        if let Rule::Keep { span, .. } = &call.tool().tool().cache {
            self.cache.put(key, &canonical::bytes(value), span.duration(), now);
        }
    }

    /// `None` for tools whose results are not kept, and where an input cannot be read.
    fn key(&self, call: &Call) -> Option<Key> {
        let Rule::Keep { inputs, .. } = &call.tool().tool().cache else { return None };
        if !inputs.is_empty() {
            // Content of declared inputs is not part of the key yet: such results are not kept.
            return None;
        }
        let mut hash = Sha256::new();
        for part in [
            call.caller().tenant.as_str().as_bytes(),
            call.tool().digest().as_bytes(),
            call.args_digest().as_bytes(),
        ] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        Some(hash.finalize().into())
    }
}
