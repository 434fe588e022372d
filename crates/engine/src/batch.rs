//! Calls that go side by side.

use hotcell_request::Request;
use hotcell_types::Caller;

use crate::attached::Attached;
use crate::engine::Engine;
use crate::reply::Reply;

/// Most calls of a batch that go at one time; the scheduler has its own limits.
const SIDE_BY_SIDE: usize = 16;

impl Engine {
    /// Each has its own reply, in the order of the requests.
    pub(crate) fn batch(&self, caller: &Caller, requests: Vec<Request>) -> Vec<Reply> {
        let mut replies = Vec::with_capacity(requests.len());
        let mut requests = requests.into_iter();
        loop {
            let part: Vec<Request> = requests.by_ref().take(SIDE_BY_SIDE).collect();
            if part.is_empty() {
                return replies;
            }
            std::thread::scope(|scope| {
                let begin = |request| {
                    scope.spawn(move || self.guarded(caller, request, Attached::default()))
                };
                let running: Vec<_> = part.into_iter().map(begin).collect();
                replies.extend(running.into_iter().filter_map(|thread| thread.join().ok()));
            });
        }
    }
}
