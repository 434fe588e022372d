//! Where somebody on this machine asks from. For doors whose callers are the same user as this process, and
//! could as well have done it themselves: what is here can only add to what holds already.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use hotcell_engine::lang::Host;
use hotcell_engine::run::{LimitWords, Word};
use hotcell_engine::{Bounds, Engine, OpenError, Surroundings};
use hotcell_types::{Door, Level, Name};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::problem::{Problem, ProblemKind};

/// Where the problem of a workspace that cannot be used is.
pub const WORKSPACE: &str = "/context/workspace";

/// A caller's own surroundings.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Context {
    /// What kind of program asks: `cli`, `mcp` or `socket`.
    #[schemars(with = "String")]
    pub door: Door,
    /// Who an agent's calls are made for, if that is not whoever runs it. From `mcp` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub subject: Option<Name>,
    /// The directory that tools read, and that working copies are taken from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<Word>,
    /// Where it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub here: Option<Word>,
    /// Variables that say where programs are.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub variables: BTreeMap<String, Word>,
    /// The most that its own configuration allows.
    #[serde(default)]
    pub ceiling: LimitWords,
    /// The lowest level that it accepts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub minimum: Option<Level>,
    /// Whether all of its runs are executed, and none is forked from an interpreter that had started.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_zygote: bool,
}

impl Context {
    /// Of this process.
    pub fn here(door: Door, workspace: Option<&Path>, bounds: Bounds) -> Context {
        let here = std::env::current_dir().ok();
        let workspace = workspace.map(|path| match &here {
            Some(here) => here.join(path),
            None => path.to_owned(),
        });
        let variable = |name: &str| Some((name.to_owned(), Word::new(std::env::var_os(name)?)));
        let word = |path: PathBuf| Word::new(path.into_os_string());
        Context {
            door,
            subject: None,
            workspace: workspace.map(word),
            here: here.map(word),
            variables: Host::VARIABLES.into_iter().filter_map(variable).collect(),
            ceiling: LimitWords::of(&bounds.ceiling),
            minimum: bounds.minimum,
            no_zygote: bounds.no_zygote,
        }
    }

    /// Which of the doors that such a caller can stand at.
    pub fn door(&self) -> Result<Door, Problem> {
        match self.door {
            Door::Cli | Door::Mcp | Door::Socket => Ok(self.door),
            other => {
                let why = format!("nobody comes through `{other}` here");
                Err(Problem::invalid("/context/door", "the door cannot be used", why))
            }
        }
    }

    pub fn read(self, engine: &Engine) -> Result<Surroundings, Problem> {
        let ceiling = self.ceiling.read().map_err(|error| {
            let problem = Problem::new(ProblemKind::Invalid, error.what, error.why, error.fix);
            Problem { at: "/context/ceiling".into(), ..problem }
        })?;
        let bounds = Bounds { ceiling, minimum: self.minimum, no_zygote: self.no_zygote };
        let workspace = self.workspace.map(|word| PathBuf::from(OsString::from(word)));
        let surroundings = engine.surroundings(workspace.as_deref(), bounds);
        let mut surroundings = surroundings.map_err(|error| no_workspace(&error))?;
        let variables: BTreeMap<String, OsString> =
            self.variables.into_iter().map(|(name, value)| (name, value.into())).collect();
        let variable = |name: &str| variables.get(name).cloned();
        surroundings.host =
            self.here.map(|here| Host::of_another(variable, PathBuf::from(OsString::from(here))));
        Ok(surroundings)
    }
}

fn no_workspace(error: &OpenError) -> Problem {
    let what = "the workspace cannot be used";
    let fix = "name a directory that can be read, and that hotcell's home does not lie in";
    let problem = Problem::new(ProblemKind::Invalid, what, error.to_string(), fix);
    Problem { at: WORKSPACE.into(), ..problem }
}
