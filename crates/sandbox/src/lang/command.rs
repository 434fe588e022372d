//! From what the user asked for to a [`Command`].

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::find::{Found, Host, Kind, kind, must_be_open_to_all, real};
use super::shebang::Shebang;
use super::{Error, Language, WORK_DIR};
use crate::Command;

/// Runs the input called `name` in the working directory.
///
/// Code is always a file, never `-c CODE`: an argument is limited to 128 KiB, and tracebacks show
/// the lines of a file.
pub fn script(
    host: &Host,
    language: Language,
    name: &OsStr,
    args: &[OsString],
) -> Result<Command, Error> {
    let found = host.interpreter(language)?;
    let mut words: Vec<OsString> = language.row().flags.iter().map(OsString::from).collect();
    words.push(Path::new(WORK_DIR).join(name).into());
    words.extend_from_slice(args);
    Ok(Command { forks: language == Language::Python, ..assemble(found, words) })
}

/// Runs `name` as a shell would: looked up on PATH unless it has a `/`. A program outside the
/// system's directories is shown to the run as that one file; an interpreter with its installation.
pub fn command(host: &Host, name: &OsStr, args: &[OsString]) -> Result<Command, Error> {
    let language = Language::of_program(Path::new(name).file_name().unwrap_or_default());
    if let (Some(language), Some(bare)) = (language, bare_name(name)) {
        return Ok(assemble(host.interpreter_called(language, bare)?, args.to_vec()));
    }
    let mut file = locate(host, name)?;
    let mut found = kind(&file).map_err(|why| cannot(&file, why))?;
    if let Kind::Text(head) = &found
        && let Some(target) = host.behind_shim(&file, head)
    {
        (file, _) = target.map_err(|why| cannot(&file, why))?;
        found = kind(&file).map_err(|why| cannot(&file, why))?;
    }
    match found {
        Kind::Elf => Ok(assemble(executable(host, &file, name)?, args.to_vec())),
        Kind::Text(head) => interpreted(host, &file, &head, args),
    }
}

/// The interpreter of a language that [`script`] would choose, without anything to run.
pub fn interpreter(host: &Host, language: Language) -> Result<Command, Error> {
    Ok(assemble(host.interpreter(language)?, Vec::new()))
}

/// The interpreter at a path.
pub fn interpreter_at(host: &Host, language: Language, path: &Path) -> Result<Command, Error> {
    let found = host.interpreter_at(language, path).map_err(|why| cannot(path, why))?;
    Ok(assemble(found, Vec::new()))
}

fn assemble(found: Found, rest: Vec<OsString>) -> Command {
    let mut args = vec![OsString::from(found.argv0)];
    args.extend(rest);
    let Found { program, read_only, note, .. } = found;
    Command { program, args, read_only, tree: None, note: Some(note), forks: false }
}

fn bare_name(name: &OsStr) -> Option<&str> {
    name.to_str().filter(|n| !n.contains('/'))
}

fn locate(host: &Host, name: &OsStr) -> Result<PathBuf, Error> {
    let missing = || Error::NoCommand { name: name.display().to_string() };
    if !name.as_encoded_bytes().contains(&b'/') {
        return host.first_called(name).ok_or_else(missing);
    }
    let named = host.here.as_ref().map_or_else(|| PathBuf::from(name), |here| here.join(name));
    let file = std::path::absolute(named).map_err(|_| missing())?;
    match file.try_exists() {
        Ok(true) => Ok(file),
        Ok(false) => Err(missing()),
        Err(e) => Err(cannot(&file, e.to_string())),
    }
}

/// An ELF file. Only an interpreter is shown with its installation: the directory above another
/// program's `bin` may hold anything (`~/.cargo/credentials.toml`).
fn executable(host: &Host, file: &Path, name: &OsStr) -> Result<Found, Error> {
    if let Some(language) = Language::of_program(file.file_name().unwrap_or_default()) {
        return host.interpreter_at(language, file).map_err(|why| cannot(file, why));
    }
    let alone = || {
        let program = real(file)?;
        must_be_open_to_all(&program)?;
        let mut read_only = Vec::new();
        host.show_file(&program, &mut read_only)?;
        let note = program.display().to_string();
        // The name as it was typed: programs with many names decide by it what they do.
        Ok(Found { program, argv0: name.into(), read_only, note })
    };
    alone().map_err(|why| cannot(file, why))
}

/// A script with a `#!` line, given to its interpreter explicitly.
fn interpreted(host: &Host, file: &Path, head: &[u8], args: &[OsString]) -> Result<Command, Error> {
    let shebang = Shebang::parse(head).ok_or_else(|| {
        cannot(file, "it is neither an ELF executable nor a script with a #! line".into())
    })?;
    let mut found = interpreter_of(host, &shebang).map_err(|why| cannot(file, why))?;
    let show = |found: &mut Found| {
        let script = real(file)?;
        must_be_open_to_all(&script)?;
        host.show_file(&script, &mut found.read_only)?;
        Ok(script)
    };
    let script = show(&mut found).map_err(|why| cannot(file, why))?;
    let mut words = shebang.args;
    words.push(script.into());
    words.extend_from_slice(args);
    Ok(assemble(found, words))
}

fn interpreter_of(host: &Host, shebang: &Shebang) -> Result<Found, String> {
    let program = Path::new(&shebang.program);
    let explain = |e: Error| format!("its #! line needs `{}`: {}", program.display(), e.why());
    let name = program.file_name().unwrap_or_default();
    match (Language::of_program(name), bare_name(&shebang.program)) {
        (Some(language), Some(bare)) => host.interpreter_called(language, bare).map_err(explain),
        (Some(language), None) => host.interpreter_at(language, program),
        (None, _) => {
            let file = locate(host, &shebang.program).map_err(explain)?;
            match kind(&file)? {
                Kind::Elf => executable(host, &file, &shebang.program).map_err(explain),
                Kind::Text(_) => Err(format!("{} is a script as well", file.display())),
            }
        }
    }
}

fn cannot(file: &Path, why: String) -> Error {
    Error::NotRunnable {
        program: file.display().to_string(),
        why,
        fix: "run a script as `hotcell run FILE`; a program must be an ELF file that every user \
              may read and execute (chmod a+rx), outside /tmp and /work"
            .into(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::find::tests::Machine;
    use super::*;

    fn os(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    fn show(machine: &Machine, result: Result<Command, Error>) -> String {
        machine.tidy(&match result {
            Ok(c) => format!("{} {:?} shows {:?}", c.program.display(), c.args, c.read_only),
            Err(e) => format!("{e}: {}", e.why()),
        })
    }

    fn run(machine: &Machine, words: &[&str]) -> String {
        let words = os(words);
        let (name, args) = words.split_first().unwrap();
        show(machine, command(&machine.host, name, args))
    }

    #[test]
    fn a_script_is_run_from_the_working_directory() {
        let machine = Machine::new(&["opt/py/bin"]);
        machine.elf("opt/py/bin/python3");
        let made = script(&machine.host, Language::Python, OsStr::new("-x.py"), &os(&["-v"]));
        assert_eq!(
            show(&machine, made),
            r#"/opt/py/bin/python3 ["/opt/py/bin/python3", "-u", "/work/-x.py", "-v"] shows ["/opt/py"]"#
        );
    }

    #[test]
    fn a_command_is_looked_up_as_a_shell_would() {
        let machine = Machine::new(&["none", "cargo/bin", "opt/py/bin"]);
        machine.elf("cargo/bin/rg-14");
        machine.link("cargo/bin/rg", "rg-14");
        machine.elf("opt/py/bin/python3");
        machine.file("cargo/bin/notes", "hello", 0o644);
        assert_eq!(
            run(&machine, &["rg", "-x"]),
            r#"/cargo/bin/rg-14 ["rg", "-x"] shows ["/cargo/bin/rg-14"]"#
        );
        assert_eq!(
            run(&machine, &["python3", "-V"]),
            r#"/opt/py/bin/python3 ["/opt/py/bin/python3", "-V"] shows ["/opt/py"]"#
        );
        assert!(run(&machine, &["notes"]).starts_with("there is no command `notes`"));
        assert!(run(&machine, &["./missing/x"]).starts_with("there is no command `./missing/x`"));
        assert!(run(&machine, &[""]).starts_with("there is no command ``"));
    }

    #[test]
    fn a_script_is_given_to_the_interpreter_of_its_first_line() {
        let machine = Machine::new(&["opt/py/bin", "bin"]);
        machine.elf("opt/py/bin/python3");
        machine.elf("bin/perl");
        let python = machine.at("opt/py/bin/python3");
        machine.file("opt/py/bin/pytest", &format!("#!{}\nimport x", python.display()), 0o755);
        machine.file("bin/tool", "#!/usr/bin/env -S python3 -X dev\n", 0o755);
        machine.file("bin/old", "#!/usr/bin/env perl\n", 0o755);
        machine.file("bin/none", "echo hello", 0o755);
        machine.file("bin/mine", "#!/usr/bin/env python3\n", 0o700);
        assert_eq!(
            run(&machine, &["pytest", "-q"]),
            r#"/opt/py/bin/python3 ["/opt/py/bin/python3", "/opt/py/bin/pytest", "-q"] shows ["/opt/py"]"#
        );
        assert_eq!(
            run(&machine, &["tool"]),
            r#"/opt/py/bin/python3 ["/opt/py/bin/python3", "-X", "dev", "/bin/tool"] shows ["/opt/py", "/bin/tool"]"#
        );
        assert_eq!(
            run(&machine, &["old"]),
            r#"/bin/perl ["perl", "/bin/old"] shows ["/bin/perl", "/bin/old"]"#
        );
        assert!(run(&machine, &["none"]).contains("neither an ELF executable nor a script"));
        assert!(run(&machine, &["mine"]).contains("not every user may read"));
    }

    #[test]
    fn a_shim_of_any_command_is_resolved() {
        let machine = Machine::new(&["pyenv/shims"]);
        machine.file("pyenv/shims/pytest", "#!/usr/bin/env bash\nPYENV_ROOT=/x\n", 0o755);
        machine.file("pyenv/version", "3.11.7", 0o644);
        machine.elf("pyenv/versions/3.11.7/bin/python3");
        let python = machine.at("pyenv/versions/3.11.7/bin/python3");
        machine.file(
            "pyenv/versions/3.11.7/bin/pytest",
            &format!("#!{}\n", python.display()),
            0o755,
        );
        let bin = "/pyenv/versions/3.11.7/bin";
        assert_eq!(
            run(&machine, &["pytest"]),
            format!(
                r#"{bin}/python3 ["{bin}/python3", "{bin}/pytest"] shows ["/pyenv/versions/3.11.7"]"#
            )
        );
    }
}
