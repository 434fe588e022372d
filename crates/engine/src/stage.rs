//! The named steps of the path, for whoever wants to see how far a call has come.

use std::fmt;
use std::sync::Arc;

use hotcell_types::CallId;

/// How far a call has come. Each is told when it is passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// Read, checked and spelled in one way.
    Called,
    /// The policy allows it.
    Judged,
    /// What it needs is there, and nothing has been started.
    Prepared,
    /// That it will be carried out is on the disk.
    Intended,
    /// It has its turn.
    Scheduled,
    /// It has been carried out, and its result is what its tool says.
    CarriedOut,
    /// What became of it is in the record.
    Recorded,
}

impl Stage {
    pub const ALL: [Stage; 7] = [
        Stage::Called,
        Stage::Judged,
        Stage::Prepared,
        Stage::Intended,
        Stage::Scheduled,
        Stage::CarriedOut,
        Stage::Recorded,
    ];
}

/// Is told every stage of every call, on the thread of the call. It must not take long.
#[derive(Clone)]
pub struct Watch(Arc<dyn Fn(CallId, Stage) + Send + Sync>);

impl Watch {
    pub fn new(watch: impl Fn(CallId, Stage) + Send + Sync + 'static) -> Watch {
        Watch(Arc::new(watch))
    }

    pub(crate) fn tell(&self, call: CallId, stage: Stage) {
        (self.0)(call, stage);
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watch(…)")
    }
}
