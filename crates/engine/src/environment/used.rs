//! An environment as a run sees it.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use hotcell_environment::{AT, Environment, Held, Interpreter, Store};
use hotcell_request::Call;
use hotcell_sandbox::lang::{self, Host, Language};
use hotcell_sandbox::{Command, Input, Tree, cause};
use hotcell_tools::Program;
use hotcell_workspace::{Relative, Root};

use super::name_of;
use crate::attached::Attached;
use crate::engine::Engine;
use crate::prepare::{host_of, kept, resolve};
use crate::reply::{Problem, ProblemKind};

/// Where programs of packages are, below the tree.
const BIN: &str = "bin";

/// An environment with everything that a run in it needs, held until that is over.
#[derive(Debug)]
pub(crate) struct Used {
    environment: Environment,
    interpreter: Command,
    tree: Tree,
    pub(crate) held: Held,
}

impl Engine {
    /// The environment of this name, whose interpreter is still the one that it was made for.
    pub(crate) fn used_environment(
        &self,
        call: &Call,
        name: &str,
        attached: &Attached<'_>,
    ) -> Result<Used, Problem> {
        let asked = name_of(name).map_err(|problem| {
            let fix = "`hotcell env ls` lists environments; a variable is written KEY=VALUE";
            Problem { fix: fix.into(), ..problem }
        })?;
        let environment = self.environment(&call.caller().tenant, &asked)?;
        let gone = |why: String| {
            let fix = format!("make it again: `hotcell env create {name} --replace …`");
            let what = format!("the environment `{name}` cannot be used");
            Problem::new(what, why, fix).of(ProblemKind::NotFound)
        };
        let held = Store::at(self.home()).hold(&environment.made.digest);
        let held =
            held.map_err(|error| gone(format!("its files cannot be opened: {}", cause(&error))))?;
        let held = held.ok_or_else(|| gone("its files are not there".into()))?;
        let tree = Tree::new(held.path().to_owned(), held.dir(), AT);
        let tree = tree.map_err(|error| gone(cause(&error)))?;
        let interpreter = &environment.made.interpreter;
        let path = Path::new(&interpreter.path);
        let found = lang::interpreter_at(&host_of(attached), Language::Python, path);
        let found =
            found.map_err(|error| gone(format!("its interpreter is gone: {}", error.why())))?;
        is_the_same(interpreter, &found.program).map_err(gone)?;
        Ok(Used { environment, interpreter: found, tree, held })
    }
}

/// Whether packages that were made for an interpreter can be used with it still. Another release of the same
/// version is the same to them; which version it is says the name of the executable, and otherwise only an
/// executable that has not changed is surely the same.
fn is_the_same(known: &Interpreter, program: &Path) -> Result<(), String> {
    let was = format!("it was made for {} {}", known.program, known.version);
    if program != Path::new(&known.program) {
        return Err(format!("{was}, and {} is now {}", known.path, program.display()));
    }
    let found = program.metadata().map_err(|error| format!("{was}: {}", cause(&error)))?;
    let modified = found.mtime().saturating_mul(1_000_000_000).saturating_add(found.mtime_nsec());
    let is_unchanged = found.len() == known.size && modified == known.modified;
    let version: Vec<&str> = known.version.splitn(3, '.').take(2).collect();
    let is_named = program
        .file_name()
        .and_then(OsStr::to_str)
        .and_then(|name| name.strip_prefix("python"))
        .is_some_and(|name| name == version.join("."));
    if is_unchanged || is_named {
        return Ok(());
    }
    Err(format!("{was}, which was changed since"))
}

impl Used {
    /// The command with the environment in its view. What is written in Python runs on the environment's own
    /// interpreter, and so do the programs that came with packages.
    pub(crate) fn resolve(
        &self,
        program: Program,
        host: &Host,
        of_host: bool,
        inputs: &mut Vec<Input>,
    ) -> Result<Command, Problem> {
        let mut command = match program {
            Program::Script { name, language, arguments } => {
                self.must_be_python(&language)?;
                self.script(Path::new(lang::WORK_DIR).join(name), arguments)
            }
            Program::Code { language, code } => {
                self.must_be_python(&language)?;
                let name = OsStr::new(Language::Python.main_file());
                inputs.push(Input { name: name.into(), file: kept(code.as_bytes())? });
                self.script(Path::new(lang::WORK_DIR).join(name), Vec::new())
            }
            Program::Command(words) => match self.own(&words)? {
                Some(command) => command,
                None => resolve(Program::Command(words), host, of_host, inputs)?,
            },
        };
        for path in &self.interpreter.read_only {
            if !command.read_only.contains(path) {
                command.read_only.push(path.clone());
            }
        }
        command.tree = Some(self.tree.clone());
        let (name, digest) = (&self.environment.name, &self.environment.made.digest);
        let note = command.note.take().unwrap_or_else(|| command.program.display().to_string());
        command.note = Some(format!("{note}, environment {name} ({digest})"));
        Ok(command)
    }

    fn must_be_python(&self, language: &str) -> Result<(), Problem> {
        if language.parse::<Language>()? == Language::Python {
            return Ok(());
        }
        let what = format!("the environment `{}` cannot be used", self.environment.name);
        let why = format!("it is for Python, and this is {language}");
        let fix = "leave it out, or name one for that language";
        Err(Problem::new(what, why, fix).of(ProblemKind::Invalid))
    }

    fn script(&self, path: PathBuf, arguments: Vec<OsString>) -> Command {
        let mut command = self.interpreter.clone();
        // As it appears, as every script is run.
        command.args.extend(["-u".into(), path.into()]);
        command.args.extend(arguments);
        command
    }

    /// A command of the environment itself: its interpreter, or a program that came with a package.
    fn own(&self, words: &[OsString]) -> Result<Option<Command>, Problem> {
        let Some((name, rest)) = words.split_first() else { return Ok(None) };
        let Some(name) = name.to_str().filter(|name| !name.contains('/')) else { return Ok(None) };
        if ["python", "python3"].contains(&name) {
            let mut command = self.interpreter.clone();
            command.args.extend_from_slice(rest);
            return Ok(Some(command));
        }
        let Some(head) = self.head_of(name) else { return Ok(None) };
        let path = Path::new(AT).join(BIN).join(name);
        if head == *b"\x7fELF" {
            let mut args = vec![name.into()];
            args.extend_from_slice(rest);
            let note = Some(path.display().to_string());
            return Ok(Some(Command {
                program: path,
                args,
                read_only: Vec::new(),
                tree: None,
                note,
                forks: false,
            }));
        }
        Ok(Some(self.script(path, rest.to_vec())))
    }

    /// The first bytes of a program of this name, where a package has one.
    fn head_of(&self, name: &str) -> Option<[u8; 4]> {
        let root = Root::held(self.held.dir().try_clone().ok()?.into()).ok()?;
        let path = Relative::parse(&format!("{BIN}/{name}")).ok()?;
        let (mut file, _) = root.file(&path).ok()?;
        let mut head = [0; 4];
        file.read_exact(&mut head).ok()?;
        Some(head)
    }

    /// `PATH`, with what packages brought first.
    pub(crate) fn search_path(&self, command: &Command) -> OsString {
        let own = lang::search_path(&self.interpreter);
        let rest = lang::search_path(command);
        let mut all = vec![Path::new(AT).join(BIN)];
        for dir in std::env::split_paths(&own).chain(std::env::split_paths(&rest)) {
            if !all.contains(&dir) {
                all.push(dir);
            }
        }
        // None of them has a separator in it.
        std::env::join_paths(all).unwrap_or(rest)
    }

    /// Where modules are looked for: after what the caller says, before the interpreter's own. No `.pth` file
    /// counts there.
    pub(crate) fn add_to(&self, env: &mut BTreeMap<OsString, OsString>) {
        let own = env.entry("PYTHONPATH".into()).or_default();
        if !own.is_empty() {
            own.push(":");
        }
        own.push(AT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_release_of_the_same_version_is_the_same_and_everything_else_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| {
            let program = dir.path().join(name);
            std::fs::write(&program, "one").unwrap();
            let found = program.metadata().unwrap();
            let modified = found.mtime() * 1_000_000_000 + found.mtime_nsec();
            let known = Interpreter {
                language: "python".into(),
                path: "python3".into(),
                program: program.display().to_string(),
                size: found.len(),
                modified,
                version: "3.11.7".into(),
                platform: "x".into(),
            };
            (program, known)
        };
        let (plain, known) = at("python3");
        assert_eq!(is_the_same(&known, &plain), Ok(()));
        let (versioned, other) = at("python3.11");
        assert!(is_the_same(&known, &versioned).unwrap_err().contains("is now"));
        std::fs::write(&plain, "another").unwrap();
        std::fs::write(&versioned, "another").unwrap();
        assert!(is_the_same(&known, &plain).unwrap_err().contains("changed"));
        assert_eq!(is_the_same(&other, &versioned), Ok(()));
        let newer = Interpreter { version: "3.1.11".into(), ..other.clone() };
        assert!(is_the_same(&newer, &versioned).is_err());
        std::fs::remove_file(&versioned).unwrap();
        assert!(is_the_same(&other, &versioned).is_err());
    }
}
