//! Finding the real program behind links and shims.
//!
//! Nothing found here is executed on the host. A shim (a script, or a link to a version manager)
//! is resolved by reading the manager's own files, and passed over where that is not possible.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::OFlags;

use super::shebang::HEAD;
use super::{Error, Language, WORK_DIR};

/// Longest file of a version manager or virtual environment that is read.
const SMALL_FILE: u64 = 64 * 1024;

/// Looked at after everything on PATH: where a distribution puts its own.
const SYSTEM_BIN: [&str; 2] = ["/usr/bin", "/bin"];

/// Top-level directories that every run sees read-only.
const SYSTEM: [&str; 7] = ["usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32"];

/// Directories that the sandbox builds for itself, so that nothing of the host can be shown in them.
const BUILT_INSIDE: [&str; 7] = [WORK_DIR, "/tmp", "/var/tmp", "/dev", "/proc", "/sys", "/run"];

/// What in a home directory is never shown, nor any directory that contains it.
const PRIVATE: [&str; 4] = ["", ".ssh", ".config", ".local/share"];

/// Version managers whose shims are scripts at `ROOT/shims/NAME` for `ROOT/versions/V/bin/NAME`:
/// what a shim of theirs mentions, and the variable that overrules `ROOT/version`.
const MANAGERS: [(&str, &str); 2] =
    [("PYENV_ROOT", "PYENV_VERSION"), ("NODENV_ROOT", "NODENV_VERSION")];

/// Where the user's programs are. Read once from hotcell's own environment, or from that of whoever asks.
#[derive(Debug, Clone, Default)]
pub struct Host {
    path: Vec<PathBuf>,
    /// What names with a `/` are relative to, if that is not where this process is.
    pub(super) here: Option<PathBuf>,
    home: Option<PathBuf>,
    versions: BTreeMap<&'static str, OsString>,
    built_inside: Vec<PathBuf>,
}

/// A program that can be run as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    /// The real executable.
    pub(super) program: PathBuf,
    /// What it is to be called: the name decides what busybox does and which virtual environment
    /// Python is in.
    pub(super) argv0: PathBuf,
    pub(super) read_only: Vec<PathBuf>,
    /// What was chosen and why.
    pub(super) note: String,
}

/// What a file on PATH turned out to be.
#[derive(Debug)]
pub(super) enum Kind {
    Elf,
    /// Its first bytes.
    Text(Vec<u8>),
}

impl Host {
    pub fn of_this_process() -> Host {
        Host { here: None, ..Host::of(|name| std::env::var_os(name), std::env::home_dir()) }
    }

    /// Of a process with these variables, in a directory of its own.
    pub fn of_another(variable: impl Fn(&str) -> Option<OsString>, here: PathBuf) -> Host {
        let home = variable("HOME").map(PathBuf::from);
        Host { here: Some(here).filter(|here| here.is_absolute()), ..Host::of(variable, home) }
    }

    /// The variables that it looks at.
    pub const VARIABLES: [&str; 4] = ["PATH", "HOME", MANAGERS[0].1, MANAGERS[1].1];

    fn of(variable: impl Fn(&str) -> Option<OsString>, home: Option<PathBuf>) -> Host {
        let path = variable("PATH").unwrap_or_default();
        let versions = MANAGERS.into_iter().filter_map(|(_, name)| Some((name, variable(name)?)));
        Host {
            // A relative entry means whatever the current directory contains, which may be the
            // untrusted code itself.
            path: std::env::split_paths(&path).filter(|dir| dir.is_absolute()).collect(),
            here: None,
            home: home.filter(|h| h.is_absolute()).map(|h| real_or_same(&h)),
            versions: versions.collect(),
            built_inside: BUILT_INSIDE.map(PathBuf::from).into(),
        }
    }

    /// The first interpreter of `language` on PATH that can be used, or the system's.
    pub(super) fn interpreter(&self, language: Language) -> Result<Found, Error> {
        self.first_of(language, language.row().programs)
    }

    /// The same for one name, such as `python3.11`.
    pub(super) fn interpreter_called(
        &self,
        language: Language,
        name: &str,
    ) -> Result<Found, Error> {
        self.first_of(language, &[name])
    }

    fn first_of(&self, language: Language, names: &[&str]) -> Result<Found, Error> {
        let mut passed_over: Vec<String> = Vec::new();
        for candidate in names.iter().flat_map(|name| self.all_called(OsStr::new(name))) {
            match self.interpreter_at(language, &candidate) {
                Ok(mut found) => {
                    for why in passed_over {
                        found.note.push_str("; passed over ");
                        found.note.push_str(&why);
                    }
                    return Ok(found);
                }
                Err(why) => passed_over.push(format!("{}: {why}", candidate.display())),
            }
        }
        Err(Error::NoInterpreter { language: language.name(), passed_over })
    }

    /// Every executable file of this name, in the order of PATH, the system's last.
    fn all_called(&self, name: &OsStr) -> Vec<PathBuf> {
        let mut all: Vec<PathBuf> = Vec::new();
        for dir in self.path.iter().map(PathBuf::as_path).chain(SYSTEM_BIN.map(Path::new)) {
            let file = dir.join(name);
            if is_executable_file(&file) && !all.contains(&file) {
                all.push(file);
            }
        }
        all
    }

    /// The first executable file of this name on PATH.
    pub(super) fn first_called(&self, name: &OsStr) -> Option<PathBuf> {
        self.path.iter().map(|dir| dir.join(name)).find(|file| is_executable_file(file))
    }

    /// The interpreter at, or behind, `candidate`; otherwise why it cannot be used.
    pub(super) fn interpreter_at(
        &self,
        language: Language,
        candidate: &Path,
    ) -> Result<Found, String> {
        match kind(candidate)? {
            Kind::Elf => self.usable(language, candidate),
            Kind::Text(head) => {
                let (target, from) = self.behind_shim(candidate, &head).unwrap_or_else(|| {
                    Err("it is a script, and what it stands for could only be learnt by running \
                         it outside the sandbox"
                        .into())
                })?;
                match kind(&target)? {
                    Kind::Elf => {
                        let mut found = self.usable(language, &target)?;
                        found.note = format!("{} ({from})", found.note);
                        Ok(found)
                    }
                    Kind::Text(_) => Err(format!("{} is a script as well", target.display())),
                }
            }
        }
    }

    /// The file that a pyenv or nodenv shim stands for, and what decided it. `None` if it is no
    /// such shim.
    ///
    /// A `.python-version` in the current directory is not read: that directory may be the untrusted
    /// content, and it does not get to choose.
    pub(super) fn behind_shim(
        &self,
        shim: &Path,
        head: &[u8],
    ) -> Option<Result<(PathBuf, String), String>> {
        let dir = shim.parent().filter(|dir| dir.file_name() == Some(OsStr::new("shims")))?;
        let root = dir.parent()?;
        let (_, var) = MANAGERS
            .into_iter()
            .find(|(mark, _)| head.windows(mark.len()).any(|window| window == mark.as_bytes()))?;
        let (versions, from) = self.chosen_versions(root, var);
        let target = versions
            .split(|b| b.is_ascii_whitespace() || *b == b':')
            .filter_map(|version| one_component(OsStr::from_bytes(version)))
            .map(|version| root.join("versions").join(version).join("bin"))
            .map(|bin| bin.join(shim.file_name().unwrap_or_default()))
            .find(|file| is_executable_file(file));
        Some(match target {
            Some(file) => Ok((file, format!("chosen by {from}"))),
            None => {
                Err(format!("it is a shim, and no version chosen by {from} has such a program"))
            }
        })
    }

    /// What a version manager's user chose, and where.
    fn chosen_versions(&self, root: &Path, var: &'static str) -> (Vec<u8>, String) {
        match self.versions.get(var).filter(|v| !v.is_empty()) {
            Some(value) => (value.as_bytes().to_vec(), var.into()),
            None => {
                let file = root.join("version");
                (read_small(&file).unwrap_or_default(), file.display().to_string())
            }
        }
    }

    /// An ELF interpreter with the prefixes that it needs.
    fn usable(&self, language: Language, candidate: &Path) -> Result<Found, String> {
        let program = real(candidate)?;
        let name = program.file_name().unwrap_or_default().as_bytes();
        if !language.row().real.iter().any(|real| name.starts_with(real.as_bytes())) {
            return Err(format!("it leads to {}, a version manager", program.display()));
        }
        must_be_open_to_all(&program)?;
        let mut read_only = Vec::new();
        self.show_prefix(&program, &mut read_only)?;
        let mut argv0 = visible_name(&program, candidate);
        let beside = candidate.with_file_name(VENV_FILE);
        if beside.symlink_metadata().is_ok() {
            return Err(format!("Python would believe {} first", beside.display()));
        }
        if let Some(venv) = virtual_environment(candidate) {
            argv0 = venv.join("bin").join(candidate.file_name().unwrap_or_default());
            self.show(venv.clone(), &mut read_only)?;
            for base in base_prefixes(&venv, &program)? {
                self.show(base, &mut read_only)?;
            }
        }
        let note = if argv0.parent() == program.parent() {
            program.display().to_string()
        } else {
            format!("{} as {}", program.display(), argv0.display())
        };
        Ok(Found { program, argv0, read_only: outermost(read_only), note })
    }

    /// Shows the installation that `program` belongs to: the directory above its `bin`. A program
    /// that is in no `bin` is shown alone.
    fn show_prefix(&self, program: &Path, read_only: &mut Vec<PathBuf>) -> Result<(), String> {
        let bin = program.parent().filter(|dir| dir.file_name() == Some(OsStr::new("bin")));
        match bin.and_then(Path::parent) {
            Some(prefix) if !is_system(program) => self.show(prefix.to_owned(), read_only),
            Some(_) => Ok(()),
            None => self.show_file(program, read_only),
        }
    }

    fn show(&self, prefix: PathBuf, read_only: &mut Vec<PathBuf>) -> Result<(), String> {
        if is_system(&prefix) {
            return Ok(());
        }
        if self.is_too_wide(&prefix) {
            return Err(format!("all of {} would have to be shown to the run", prefix.display()));
        }
        self.must_be_showable(&prefix)?;
        must_be_open_to_all(&prefix)?;
        read_only.push(prefix);
        Ok(())
    }

    /// Shows one file, unless it is visible anyway.
    pub(super) fn show_file(
        &self,
        file: &Path,
        read_only: &mut Vec<PathBuf>,
    ) -> Result<(), String> {
        if !is_system(file) && !read_only.iter().any(|shown| file.starts_with(shown)) {
            self.must_be_showable(file)?;
            read_only.push(file.to_owned());
        }
        Ok(())
    }

    fn must_be_showable(&self, path: &Path) -> Result<(), String> {
        match self.built_inside.iter().find(|dir| path.starts_with(dir)) {
            Some(dir) => Err(format!(
                "{} is below {}, of which the sandbox has its own",
                path.display(),
                dir.display()
            )),
            None => Ok(()),
        }
    }

    /// The root, a top-level directory, a home directory, or anything that contains private files.
    fn is_too_wide(&self, prefix: &Path) -> bool {
        let depth = prefix.components().filter(|c| matches!(c, Component::Normal(_))).count();
        depth < 2
            || prefix.parent() == Some(Path::new("/home"))
            || self.home.iter().any(|h| PRIVATE.iter().any(|p| h.join(p).starts_with(prefix)))
    }
}

/// What every run sees of the host.
pub(super) fn is_system(path: &Path) -> bool {
    let mut components = path.components();
    let (Some(Component::RootDir), Some(Component::Normal(top))) =
        (components.next(), components.next())
    else {
        return false;
    };
    SYSTEM.iter().any(|dir| top == *dir)
}

/// ELF or text, by the first bytes. Never blocks: a FIFO or a device is refused before it is read.
pub(super) fn kind(path: &Path) -> Result<Kind, String> {
    let (file, _) = open_regular(path).ok_or("it is not a file that can be read")?;
    let mut head = Vec::with_capacity(HEAD);
    file.take(HEAD as u64).read_to_end(&mut head).map_err(|e| e.to_string())?;
    Ok(if head.starts_with(b"\x7fELF") { Kind::Elf } else { Kind::Text(head) })
}

/// The path behind every link.
pub(super) fn real(path: &Path) -> Result<PathBuf, String> {
    fs::canonicalize(path).map_err(|e| e.to_string())
}

fn real_or_same(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// Runs have an id of their own: what only its owner may read or execute is closed to them. The
/// directories above do not matter, as they are built anew inside.
pub(super) fn must_be_open_to_all(path: &Path) -> Result<(), String> {
    let mode = fs::metadata(path).map_err(|e| e.to_string())?.mode();
    if mode & 0o005 == 0o005 {
        return Ok(());
    }
    Err(format!("not every user may read and execute {}", path.display()))
}

/// The name that was asked for, where the directory of the real program has it as well: links from
/// elsewhere do not exist inside.
fn visible_name(program: &Path, asked: &Path) -> PathBuf {
    let beside = program.with_file_name(asked.file_name().unwrap_or_default());
    if fs::canonicalize(&beside).is_ok_and(|p| p == program) { beside } else { program.to_owned() }
}

/// What makes a directory a virtual environment.
const VENV_FILE: &str = "pyvenv.cfg";

/// The virtual environment whose `bin` has `candidate`.
fn virtual_environment(candidate: &Path) -> Option<PathBuf> {
    let venv = fs::canonicalize(candidate.parent()?.parent()?).ok()?;
    is_small_file(&venv.join(VENV_FILE)).then_some(venv)
}

/// The installation that a virtual environment was made from, as its file spells it and behind
/// links: Python reads the spelling. The file may have come with untrusted code, so that it is believed
/// only where the interpreter itself lies below what it names.
fn base_prefixes(venv: &Path, program: &Path) -> Result<Vec<PathBuf>, String> {
    let cfg = venv.join(VENV_FILE);
    let text = read_small(&cfg).ok_or_else(|| format!("{} cannot be read", cfg.display()))?;
    let home = home_in(&text).ok_or_else(|| format!("{} names no one home", cfg.display()))?;
    let prefix = Some(home.as_path())
        .filter(|h| h.is_absolute() && !h.components().any(|c| c == Component::ParentDir))
        .and_then(Path::parent)
        .ok_or_else(|| format!("{} names no absolute home", cfg.display()))?;
    let behind = real(prefix)?;
    if !program.starts_with(&behind) {
        return Err(format!("{} names a home that its interpreter is not in", cfg.display()));
    }
    let mut prefixes = vec![behind];
    if prefixes.iter().all(|p| p != prefix) {
        prefixes.push(prefix.to_owned());
    }
    Ok(prefixes)
}

/// The home that every Python finds in such a file. From 3.11 on it takes the first line whose key is `home`
/// in any case, before that the first one in small letters, and it cuts long lines: where they could
/// disagree, there is none.
fn home_in(text: &[u8]) -> Option<PathBuf> {
    /// Far below where it cuts.
    const LINE_MOST: usize = 1024;
    let text = std::str::from_utf8(text).ok()?;
    let is_plain = |c: char| !c.is_control() || matches!(c, '\n' | '\r' | '\t');
    if !text.chars().all(is_plain) || text.lines().any(|line| line.len() > LINE_MOST) {
        return None;
    }
    let pairs = text.split(['\n', '\r']).filter_map(|line| line.split_once('='));
    let mut homes = pairs.filter(|(key, _)| key.trim().eq_ignore_ascii_case("home"));
    let (key, home) = homes.next()?;
    let is_only = homes.next().is_none() && key.trim() == "home";
    is_only.then(|| PathBuf::from(home.trim()))
}

/// Without duplicates and without what lies below another.
fn outermost(mut paths: Vec<PathBuf>) -> Vec<PathBuf> {
    paths.sort();
    paths.dedup();
    let all = paths.clone();
    paths.retain(|p| !all.iter().any(|other| other != p && p.starts_with(other)));
    paths
}

/// A version is a name, never a path.
fn one_component(name: &OsStr) -> Option<&OsStr> {
    let mut components = Path::new(name).components();
    match (components.next(), components.next()) {
        (Some(Component::Normal(only)), None) if only == name => Some(name),
        _ => None,
    }
}

fn is_executable_file(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|m| m.is_file() && m.mode() & 0o111 != 0)
}

fn is_small_file(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|m| m.is_file() && m.len() <= SMALL_FILE)
}

fn read_small(path: &Path) -> Option<Vec<u8>> {
    let (file, _) = open_regular(path)?;
    let mut content = Vec::new();
    file.take(SMALL_FILE).read_to_end(&mut content).ok()?;
    Some(content)
}

fn open_regular(path: &Path) -> Option<(File, Metadata)> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(i32::try_from(flags.bits()).ok()?)
        .open(path)
        .ok()?;
    let metadata = file.metadata().ok().filter(Metadata::is_file)?;
    Some((file, metadata))
}

#[cfg(test)]
pub(super) mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    /// A made-up machine in a directory of its own.
    pub(in crate::lang) struct Machine {
        root: tempfile::TempDir,
        pub(in crate::lang) host: Host,
    }

    impl Machine {
        /// With these directories on PATH, relative to its root.
        pub(in crate::lang) fn new(path: &[&str]) -> Machine {
            let root = tempfile::tempdir().unwrap();
            let host = Host {
                path: path.iter().map(|p| root.path().join(p)).collect(),
                home: Some(root.path().join("home/me")),
                ..Host::default()
            };
            Machine { root, host }
        }

        pub(in crate::lang) fn at(&self, path: &str) -> PathBuf {
            self.root.path().join(path)
        }

        pub(in crate::lang) fn file(&self, path: &str, content: &str, mode: u32) {
            let file = self.at(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            // Whatever the umask of whoever runs the tests.
            for dir in file.ancestors().skip(1).take_while(|dir| *dir != self.root.path()) {
                fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).unwrap();
            }
            fs::write(&file, content).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        }

        pub(in crate::lang) fn elf(&self, path: &str) {
            self.file(path, "\x7fELF and so on", 0o755);
        }

        pub(in crate::lang) fn link(&self, path: &str, target: &str) {
            let link = self.at(path);
            fs::create_dir_all(link.parent().unwrap()).unwrap();
            symlink(target, link).unwrap();
        }

        /// What is found, with the root of the machine written as nothing.
        fn python(&self) -> String {
            match self.host.interpreter(Language::Python) {
                Ok(found) => self.tidy(&format!(
                    "{} called {} shows {:?}: {}",
                    found.program.display(),
                    found.argv0.display(),
                    found.read_only,
                    found.note
                )),
                Err(error) => self.tidy(&error.to_string()),
            }
        }

        pub(in crate::lang) fn tidy(&self, text: &str) -> String {
            text.replace(self.root.path().to_str().unwrap(), "")
        }
    }

    const SHIM: &str = "#!/usr/bin/env bash\nexport PYENV_ROOT=\"/x\"\nexec pyenv exec python3\n";

    #[test]
    fn an_installation_outside_the_system_is_shown_with_its_prefix() {
        let machine = Machine::new(&["opt/py/bin"]);
        machine.elf("opt/py/bin/python3.12");
        machine.link("opt/py/bin/python3", "python3.12");
        assert_eq!(
            machine.python(),
            "/opt/py/bin/python3.12 called /opt/py/bin/python3 shows [\"/opt/py\"]: \
             /opt/py/bin/python3.12"
        );
    }

    #[test]
    fn a_link_from_elsewhere_leads_to_its_installation() {
        let machine = Machine::new(&["home/me/.local/bin"]);
        machine.elf("home/me/.local/share/uv/python/cpython-3.12/bin/python3.12");
        machine
            .link("home/me/.local/bin/python3", "../share/uv/python/cpython-3.12/bin/python3.12");
        let uv = "/home/me/.local/share/uv/python/cpython-3.12";
        assert_eq!(
            machine.python(),
            format!(
                "{uv}/bin/python3.12 called {uv}/bin/python3.12 shows [\"{uv}\"]: {uv}/bin/python3.12"
            )
        );
    }

    #[test]
    fn a_pyenv_shim_is_read_and_not_run() {
        let mut machine = Machine::new(&["pyenv/shims"]);
        machine.file("pyenv/shims/python3", SHIM, 0o755);
        machine.file("pyenv/version", "3.11.7\n3.10.1\n", 0o644);
        machine.elf("pyenv/versions/3.11.7/bin/python3");
        machine.elf("pyenv/versions/3.10.1/bin/python3");
        assert_eq!(
            machine.python(),
            "/pyenv/versions/3.11.7/bin/python3 called /pyenv/versions/3.11.7/bin/python3 shows \
             [\"/pyenv/versions/3.11.7\"]: /pyenv/versions/3.11.7/bin/python3 (chosen by /pyenv/version)"
        );
        machine.host.versions.insert("PYENV_VERSION", "3.10.1".into());
        assert!(machine.python().ends_with("(chosen by PYENV_VERSION)"), "{}", machine.python());
    }

    /// What the system's own interpreter is on the machine that runs the test does not matter here.
    fn passed_over(machine: &Machine, why: &str) {
        let text = match machine.host.interpreter(Language::Python) {
            Ok(found) => found.note,
            Err(error) => error.why(),
        };
        assert!(text.contains(why), "`{why}` is not in: {text}");
    }

    #[test]
    fn a_shim_whose_version_is_a_path_or_missing_is_passed_over() {
        for version in ["../../../evil", "/evil", ".", "..", "9.9.9", "system", ""] {
            let machine = Machine::new(&["pyenv/shims"]);
            machine.file("pyenv/shims/python3", SHIM, 0o755);
            machine.file("pyenv/version", version, 0o644);
            machine.elf("evil/bin/python3");
            machine.elf("pyenv/versions/bin/python3");
            machine.elf("pyenv/bin/python3");
            passed_over(&machine, "pyenv/shims/python3: it is a shim, and no version chosen by");
        }
    }

    #[test]
    fn what_cannot_be_used_is_passed_over_with_the_reason() {
        let machine =
            Machine::new(&["a/bin", "opt/volta/bin", "closed/bin", "home/me/bin", "shut/bin"]);
        machine.file("a/bin/python3", "#!/bin/sh\nexec asdf exec python3", 0o755);
        machine.elf("opt/mise");
        machine.link("opt/volta/bin/python3", "../../mise");
        machine.file("closed/bin/python3", "\x7fELF", 0o700);
        machine.elf("home/me/bin/python3");
        machine.elf("shut/bin/python3");
        fs::set_permissions(machine.at("shut"), fs::Permissions::from_mode(0o700)).unwrap();
        for why in [
            "a/bin/python3: it is a script",
            "opt/mise, a version manager",
            "may read and execute",
            "home/me would have to be shown",
            "shut",
        ] {
            passed_over(&machine, why);
        }
    }

    #[test]
    fn what_lies_where_the_sandbox_builds_its_own_is_passed_over() {
        let mut machine = Machine::new(&["opt/py/bin"]);
        machine.elf("opt/py/bin/python3");
        machine.host.built_inside = vec![machine.at("opt")];
        passed_over(&machine, "of which the sandbox has its own");
    }

    #[test]
    fn a_virtual_environment_is_shown_with_its_base() {
        let machine = Machine::new(&["proj/.venv/bin"]);
        machine.elf("opt/py/bin/python3.12");
        machine.link("opt/minor", "py");
        machine
            .link("proj/.venv/bin/python3", machine.at("opt/py/bin/python3.12").to_str().unwrap());
        let cfg = format!("home = {}\nversion = 3.12\n", machine.at("opt/minor/bin").display());
        machine.file("proj/.venv/pyvenv.cfg", &cfg, 0o644);
        assert_eq!(
            machine.python(),
            "/opt/py/bin/python3.12 called /proj/.venv/bin/python3 shows \
             [\"/opt/minor\", \"/opt/py\", \"/proj/.venv\"]: \
             /opt/py/bin/python3.12 as /proj/.venv/bin/python3"
        );
    }

    #[test]
    fn a_virtual_environment_without_a_sound_base_is_passed_over() {
        for cfg in ["home = \n", "home = bin\n", "home = /opt/../..\n"] {
            let machine = Machine::new(&["proj/.venv/bin"]);
            machine.elf("proj/.venv/bin/python3");
            machine.file("proj/.venv/pyvenv.cfg", cfg, 0o644);
            passed_over(&machine, "names no absolute home");
        }
    }

    /// Python 3.11 takes the first key that is `home` in any case, 3.10 the first in small letters, and lines
    /// longer than a buffer are several to it.
    #[test]
    fn a_virtual_environment_whose_home_pythons_disagree_about_is_passed_over() {
        let long = format!("{}HOME = /evil/bin\nhome = BASE\n", "x".repeat(4096));
        for cfg in [
            "",
            "HOME = /evil/bin\nhome = BASE\n",
            "home = BASE\nHome = /evil/bin\n",
            "home = BASE\nhome = /evil/bin\n",
            "\u{a0}home = /evil/bin\nhome = BASE\n",
            "version = 3\rHOME = /evil/bin\nhome = BASE\n",
            "x\0HOME = /evil/bin\nhome = BASE\n",
            "HOME = BASE\n",
            &long,
        ] {
            let machine = Machine::new(&["proj/.venv/bin"]);
            machine.elf("opt/py/bin/python3.12");
            let base = machine.at("opt/py/bin");
            machine.link("proj/.venv/bin/python3", base.join("python3.12").to_str().unwrap());
            let cfg = cfg.replace("BASE", base.to_str().unwrap());
            machine.file("proj/.venv/pyvenv.cfg", &cfg, 0o644);
            passed_over(&machine, "names no one home");
        }
    }

    #[test]
    fn a_configuration_beside_the_interpreter_itself_is_not_believed() {
        let machine = Machine::new(&["opt/py/bin"]);
        machine.elf("opt/py/bin/python3");
        machine.file("opt/py/bin/pyvenv.cfg", "home = /evil/bin\n", 0o644);
        passed_over(&machine, "Python would believe");
    }

    #[test]
    fn wide_directories_are_never_shown() {
        let host = Host { home: Some("/home/me".into()), ..Host::default() };
        for wide in ["/", "/opt", "/root", "/home", "/home/you", "/home/me", "/home/me/.local"] {
            assert!(host.is_too_wide(Path::new(wide)), "{wide}");
        }
        for narrow in ["/opt/py", "/home/me/miniconda3", "/home/me/.nvm/versions/node/v22"] {
            assert!(!host.is_too_wide(Path::new(narrow)), "{narrow}");
        }
    }

    #[test]
    fn the_system_is_what_every_run_sees() {
        for path in ["/usr/bin/python3", "/bin", "/lib/x", "/lib64/ld.so", "/sbin/init"] {
            assert!(is_system(Path::new(path)), "{path}");
        }
        for path in ["/", "/opt/usr", "/usrx", "/library/x", "/root/.pyenv", "usr/bin"] {
            assert!(!is_system(Path::new(path)), "{path}");
        }
    }

    #[test]
    fn fifos_and_directories_are_not_programs() {
        let machine = Machine::new(&[]);
        let fifo = machine.at("python3");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &fifo,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o777),
            0,
        )
        .unwrap();
        assert!(kind(&fifo).is_err());
        assert!(kind(machine.root.path()).is_err());
        assert!(kind(&machine.at("missing")).is_err());
    }
}
