//! Whether calls can be carried out here, and how many are: for whoever runs a server.

use std::convert::Infallible;

use hotcell_record::{Durability, Lag, WriteError};
use hotcell_types::Level;

use crate::engine::Engine;
use crate::reply::Problem;

/// Whether a call that comes now could be recorded and run. Each is tried, not remembered.
#[derive(Debug)]
pub struct Health {
    /// Whether the record takes something.
    pub record: Result<(), Problem>,
    /// The level that runs have, or why there are none.
    pub sandbox: Result<Level, Problem>,
    /// Whether there is a policy that can be used.
    pub policy: Result<(), Problem>,
}

/// What goes on at this moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Load {
    /// Calls that have their turn.
    pub running: usize,
    /// Calls that wait for one, or for other calls.
    pub waiting: usize,
    pub record: Lag,
}

impl Engine {
    pub fn health(&self) -> Health {
        let sandbox = self.sandbox().map(|sandbox| sandbox.level()).map_err(Problem::from);
        Health { record: self.can_record(), sandbox, policy: self.can_decide() }
    }

    pub fn going_on(&self) -> Load {
        let scheduled = self.machine_if_used().map(|machine| machine.scheduler.snapshot());
        let (running, waiting) = scheduled.map_or((0, 0), |now| {
            (now.running.len(), now.waiting.iter().sum::<usize>() + now.dependent)
        });
        let record = self.record().map(hotcell_record::Record::lag).unwrap_or_default();
        Load { running, waiting, record }
    }

    /// A transaction of its own that changes nothing: it needs the lock, and a file that can be written.
    fn can_record(&self) -> Result<(), Problem> {
        let record = self.recording()?;
        let written =
            record.write(Durability::Committed, |_| Ok::<_, Infallible>(((), Vec::new())));
        match written {
            Err(WriteError::Append(error)) => {
                let fix = "see that the disk has room and can be written";
                Err(Problem::new("the record cannot be written", error.to_string(), fix))
            }
            Err(WriteError::Own(never)) => match never {},
            Ok(_) => Ok(()),
        }
    }
}
