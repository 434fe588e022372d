//! The native backend.

use std::path::Path;

use hotcell_types::{Level, Outcome};

use crate::{Job, Refusal, Settings, Sink};

/// What this process keeps to run jobs: the launcher, the cgroup, the id pool.
#[derive(Debug)]
pub struct Sandbox {
    level: Level,
}

/// A job that was let go.
#[derive(Debug)]
pub struct Running {}

/// Ends, pauses or resumes a run from another thread.
#[derive(Debug, Clone)]
pub struct Handle {}

impl Sandbox {
    /// Finds what this host gives; fails closed below `settings.minimum`.
    pub fn open(settings: &Settings) -> Result<Sandbox, Refusal> {
        Ok(Sandbox { level: settings.minimum })
    }

    pub fn level(&self) -> Level {
        self.level
    }

    /// Builds the jail, reads back every layer, and lets the program go.
    pub fn start(&self, _job: Job) -> Result<Running, Refusal> {
        Err(Refusal::Internal {
            doing: "starting a run".into(),
            source: std::io::ErrorKind::Unsupported.into(),
        })
    }
}

impl Running {
    pub fn handle(&self) -> Handle {
        Handle {}
    }

    /// Streams output until the run has ended as a whole. Artifacts go to `outputs`, an existing
    /// directory; without one they are only listed.
    pub fn wait(self, _sink: &mut dyn Sink, _outputs: Option<&Path>) -> Result<Outcome, Refusal> {
        Err(Refusal::Internal {
            doing: "waiting for a run".into(),
            source: std::io::ErrorKind::Unsupported.into(),
        })
    }
}

impl Handle {
    pub fn cancel(&self) {}
    pub fn pause(&self) -> Result<(), Refusal> {
        Ok(())
    }
    pub fn resume(&self) -> Result<(), Refusal> {
        Ok(())
    }
}
