//! Where a call is made from. A process that serves others carries out their calls as they would have been
//! carried out in the caller's own process: with its workspace, its programs, and whatever its
//! configuration adds to the operator's bounds. Nothing in them loosens what holds for the engine.

use std::path::Path;

use hotcell_sandbox::lang::Host;
use hotcell_types::{Level, SomeLimits};
use hotcell_workspace::Root;

use crate::engine::{Engine, OpenError, open_workspace};

/// A caller's own surroundings.
#[derive(Debug, Clone, Default)]
pub struct Surroundings {
    pub(crate) workspace: Option<Root>,
    /// Bounds that hold besides those of the engine.
    pub bounds: Bounds,
    /// Where a person's programs are.
    pub host: Option<Host>,
}

/// What a caller's own configuration demands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bounds {
    pub ceiling: SomeLimits,
    pub minimum: Option<Level>,
    /// Nothing of theirs is forked from an interpreter that others' runs are forked from.
    pub no_zygote: bool,
}

impl Engine {
    /// With a workspace, which is held from now on.
    pub fn surroundings(
        &self,
        workspace: Option<&Path>,
        bounds: Bounds,
    ) -> Result<Surroundings, OpenError> {
        let workspace = workspace.map(|path| open_workspace(path, self.home())).transpose()?;
        Ok(Surroundings { workspace, bounds, host: None })
    }

    /// The tree of a call that came from there.
    pub(crate) fn workspace_of<'a>(&'a self, of: Option<&'a Surroundings>) -> Option<&'a Root> {
        of.map_or(self.workspace.as_ref(), |of| of.workspace.as_ref())
    }

    /// The stricter of both.
    pub(crate) fn ceiling_of(&self, of: Option<&Surroundings>) -> SomeLimits {
        of.map_or(self.ceiling, |of| self.ceiling.and(of.bounds.ceiling))
    }
}
