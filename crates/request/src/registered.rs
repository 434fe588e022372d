//! A tool that was checked, and one that is made and checked with its first use.

use std::fmt;
use std::sync::{Arc, OnceLock};

use crate::canonical::{self, Digest};
use crate::fault::Fault;
use crate::json::{self, Bounds};
use crate::name::{ToolName, Version};
use crate::schema::{Schema, check_arguments, closed};
use crate::settle::settle;
use crate::text::{hidden_in, shown};
use crate::tool::{Cache, Tool};
use crate::typed::Spec;

/// A tool that was checked: its schemas compile, its examples fit them, and nothing in it hides. Of one
/// that is made [`Later`], tests of the program that brings it have checked that.
#[derive(Debug)]
pub struct Registered {
    tool: Tool,
    input: OnceLock<Schema>,
    output: OnceLock<Schema>,
    digest: Digest,
    /// `name@version`.
    label: String,
}

/// Why a tool was not registered. Nothing has changed then.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    #[error("the {which} schema of `{tool}` is not usable: {fault}")]
    Schema { tool: ToolName, which: &'static str, fault: Box<Fault> },
    #[error("`{tool}` is not a tool: {}", first(.faults))]
    Invalid { tool: ToolName, faults: Vec<Fault> },
    #[error("`{tool}` {version} is registered already: unregister it, or raise the version")]
    Twice { tool: ToolName, version: Version },
    #[error("there are {most} tools, as many as there can be: unregister some")]
    Full { most: usize },
}

impl RegisterError {
    /// What is wrong with the document, by its places in it.
    pub fn faults(&self) -> Vec<Fault> {
        match self {
            RegisterError::Schema { which, fault, .. } => {
                vec![Fault::clone(fault).within(&format!("/{which}"))]
            }
            RegisterError::Invalid { faults, .. } => faults.clone(),
            RegisterError::Twice { .. } | RegisterError::Full { .. } => Vec::new(),
        }
    }
}

fn first(faults: &[Fault]) -> String {
    faults.first().map(ToString::to_string).unwrap_or_default()
}

impl Registered {
    /// Checks a tool.
    pub fn new(tool: Tool) -> Result<Registered, RegisterError> {
        let registered = Registered::trusted(tool)?;
        let unusable = |which, fault| RegisterError::Schema {
            tool: registered.tool.name.clone(),
            which,
            fault: Box::new(fault),
        };
        let faulty = |fault| unusable("input", fault);
        check_arguments(&registered.tool.input).map_err(faulty)?;
        registered.input().validator().map_err(faulty)?;
        registered.output().validator().map_err(|fault| unusable("output", fault))?;
        let inputs = wrong_inputs(&registered.tool.cache, registered.input());
        let faults: Vec<Fault> = inputs.into_iter().chain(registered.wrong_examples()).collect();
        if !faults.is_empty() {
            return Err(RegisterError::Invalid { tool: registered.tool.name, faults });
        }
        Ok(registered)
    }

    /// The same without what takes long: the schemas are compiled when they are needed, and that the
    /// rest fits them is believed.
    fn trusted(mut tool: Tool) -> Result<Registered, RegisterError> {
        let invalid =
            |tool: &Tool, faults| RegisterError::Invalid { tool: tool.name.clone(), faults };
        let surface = tool.take_surface();
        let surface =
            surface.map_err(|error| invalid(&tool, vec![not_json(&error.to_string())]))?;
        let surface =
            json::adopt(surface, &Bounds::TOOL).map_err(|fault| invalid(&tool, vec![fault]))?;
        let faults: Vec<Fault> = hidden_in(&surface).into_iter().chain(tool.check()).collect();
        if !faults.is_empty() {
            return Err(invalid(&tool, faults));
        }
        let digest = canonical::digest(&surface);
        tool.put_schemas(surface);
        let label = format!("{}@{}", tool.name, tool.version);
        Ok(Registered { tool, input: OnceLock::new(), output: OnceLock::new(), digest, label })
    }

    pub fn tool(&self) -> &Tool {
        &self.tool
    }

    /// `name@version`.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Of its arguments; refuses what it does not name.
    pub fn input(&self) -> &Schema {
        self.input.get_or_init(|| Schema::later(closed(self.tool.input.clone())))
    }

    /// Of its result.
    pub fn output(&self) -> &Schema {
        self.output.get_or_init(|| Schema::later(self.tool.output.clone()))
    }

    /// Of everything that it says of itself: another digest is another tool.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    fn wrong_examples(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        for (index, example) in self.tool.examples.iter().enumerate() {
            let settled = settle(self.input(), example.input.clone()).err().into_iter().flatten();
            faults.extend(settled.map(|fault| fault.within(&format!("/examples/{index}/input"))));
            let wrong = self.output().validate(&example.output).err().into_iter().flatten();
            faults.extend(wrong.map(|fault| fault.within(&format!("/examples/{index}/output"))));
        }
        faults
    }
}

/// A tool that is made with its first use: for those that a program brings with it, of which one process
/// uses few. Its tests prove what is not looked at then, by giving each to [`Registered::new`].
pub struct Later {
    name: ToolName,
    version: Version,
    make: Box<dyn Fn() -> Result<Tool, Fault> + Send + Sync>,
    made: OnceLock<Result<Arc<Registered>, RegisterError>>,
}

impl Later {
    /// `make` gives the tool that has the name and the version of `spec`, each time the same.
    pub fn new(
        spec: &Spec,
        make: impl Fn() -> Result<Tool, Fault> + Send + Sync + 'static,
    ) -> Result<Later, Fault> {
        let (name, version) = spec.name_and_version()?;
        Ok(Later { name, version, make: Box::new(make), made: OnceLock::new() })
    }

    pub(crate) fn made(&self) -> Result<&Arc<Registered>, &RegisterError> {
        self.made.get_or_init(|| self.make().map(Arc::new)).as_ref()
    }

    pub(crate) fn name(&self) -> &ToolName {
        &self.name
    }

    pub(crate) fn version(&self) -> Version {
        self.version
    }

    fn make(&self) -> Result<Registered, RegisterError> {
        let invalid =
            |fault| RegisterError::Invalid { tool: self.name.clone(), faults: vec![fault] };
        let tool = (self.make)().map_err(invalid)?;
        if (&tool.name, tool.version) != (&self.name, self.version) {
            let what = format!("it says that it is `{}` {}", tool.name, tool.version);
            let why = format!("it was announced as `{}` {}", self.name, self.version);
            return Err(invalid(Fault::new("/name", what, why, "announce it as what it is")));
        }
        Registered::trusted(tool)
    }
}

impl fmt::Debug for Later {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let made = self.made.get().is_some();
        f.debug_struct("Later").field("name", &self.name).field("made", &made).finish()
    }
}

/// The inputs of a cache rule are arguments that name paths.
fn wrong_inputs(cache: &Cache, input: &Schema) -> Vec<Fault> {
    let names = cache.inputs().iter().enumerate();
    let wrong = names.filter(|(_, name)| !input.takes_path(name)).map(|(index, name)| {
        Fault::new(
            &format!("/cache/keep/inputs/{index}"),
            format!("`{}` is not an argument that names a path", shown(name, 80)),
            "what it names is looked at before a kept result is used",
            "name one of `properties` that is marked with `\"x-hotcell\": \"path\"`",
        )
    });
    wrong.collect()
}

fn not_json(why: &str) -> Fault {
    Fault::new("", "the tool cannot be written as JSON", why, "use values that JSON has")
}
