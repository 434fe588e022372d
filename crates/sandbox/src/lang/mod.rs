//! Languages and interpreters: which program runs a piece of code, and what its start needs to see.
//!
//! [`script`] and [`command`] turn what a user asked for into a [`Command`](crate::Command);
//! [`runtime_env`] is the whole environment that it gets. Nothing of the host is executed to find
//! out: shims are read, not run.

mod command;
mod env;
mod find;
mod shebang;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::str::FromStr;

pub use command::{command, interpreter, interpreter_at, script};
pub use env::{runtime_env, search_path};
pub use find::Host;
use shebang::Shebang;

/// The working directory inside: inputs are put there, and what a run leaves there are its artifacts.
pub const WORK_DIR: &str = "/work";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Language {
    Python,
    JavaScript,
    Shell,
}

/// Everything about one language.
struct Row {
    /// What to call it, the first being its name.
    names: &'static [&'static str],
    /// Lower case, without the dot.
    extensions: &'static [&'static str],
    /// What to look for on PATH, best first.
    programs: &'static [&'static str],
    /// How the file name of a real interpreter begins. A link from `node` to something else is a
    /// version manager that decides by its own name what to start (volta, mise, snap).
    real: &'static [&'static str],
    /// Given to the interpreter before the script.
    flags: &'static [&'static str],
    /// The file name that code without one gets.
    main: &'static str,
}

impl Language {
    pub const ALL: [Language; 3] = [Language::Python, Language::JavaScript, Language::Shell];

    fn row(self) -> &'static Row {
        match self {
            Language::Python => &Row {
                names: &["python", "py"],
                extensions: &["py"],
                programs: &["python3", "python"],
                real: &["python", "pypy"],
                // -u so that output appears when it is printed. Not -I: it would hide the script's
                // own directory, where its inputs are, and ignore the variables the user set; what
                // it protects from (PYTHONSTARTUP, user site) is absent from an environment that
                // is constructed, and whatever runs at start runs with every layer already on.
                flags: &["-u"],
                main: "main.py",
            },
            Language::JavaScript => &Row {
                names: &["javascript", "js", "node"],
                extensions: &["js", "mjs", "cjs"],
                programs: &["node", "nodejs"],
                real: &["node"],
                flags: &[],
                main: "main.js",
            },
            Language::Shell => &Row {
                names: &["shell", "sh", "bash"],
                extensions: &["sh", "bash"],
                // bash first: it runs what is written for sh, not the other way round.
                programs: &["bash", "sh"],
                real: &["bash", "sh", "dash", "busybox", "ksh", "mksh", "zsh"],
                flags: &[],
                main: "main.sh",
            },
        }
    }

    pub fn name(self) -> &'static str {
        self.row().names.first().copied().unwrap_or_default()
    }

    /// The file name that code given without one gets in the working directory.
    pub fn main_file(self) -> &'static str {
        self.row().main
    }

    /// By the extension of the name, otherwise by a `#!` line at the start of the content.
    pub fn detect(file: &Path, head: &[u8]) -> Option<Language> {
        Language::by_extension(file).or_else(|| Language::by_shebang(head))
    }

    fn by_extension(file: &Path) -> Option<Language> {
        let extension = file.extension()?.to_str()?.to_ascii_lowercase();
        Language::ALL.into_iter().find(|l| l.row().extensions.contains(&extension.as_str()))
    }

    fn by_shebang(head: &[u8]) -> Option<Language> {
        Language::of_program(Path::new(&Shebang::parse(head)?.program).file_name()?)
    }

    /// The language that a program of this file name interprets: `python3.11` is Python.
    fn of_program(name: &OsStr) -> Option<Language> {
        let name = name.as_bytes();
        let end = name.iter().rposition(|b| !b.is_ascii_digit() && *b != b'.').map_or(0, |i| i + 1);
        let stem = std::str::from_utf8(name.get(..end)?).ok()?;
        Language::ALL
            .into_iter()
            .find(|l| l.row().programs.iter().any(|p| p.trim_end_matches('3') == stem))
    }
}

impl FromStr for Language {
    type Err = Error;

    fn from_str(name: &str) -> Result<Language, Error> {
        Language::ALL
            .into_iter()
            .find(|l| l.row().names.contains(&name))
            .ok_or_else(|| Error::UnknownLanguage { name: name.into() })
    }
}

/// Every name that a language can be called by, for help and errors: `python (py), …`.
pub fn language_names() -> String {
    let names = Language::ALL.map(|l| match l.row().names {
        [name, aliases @ ..] => format!("{name} ({})", aliases.join(", ")),
        [] => String::new(),
    });
    names.join(", ")
}

/// Why no command could be made. `to_string` says what; [`Error::why`] and [`Error::fix`] the rest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("there is no language `{name}`")]
    UnknownLanguage { name: String },
    #[error("no interpreter for {language} was found")]
    NoInterpreter { language: &'static str, passed_over: Vec<String> },
    #[error("there is no command `{name}`")]
    NoCommand { name: String },
    #[error("`{program}` cannot be run")]
    NotRunnable { program: String, why: String, fix: String },
}

impl Error {
    pub fn why(&self) -> String {
        match self {
            Error::UnknownLanguage { .. } => format!("the languages are {}", language_names()),
            Error::NoInterpreter { passed_over, .. } if passed_over.is_empty() => {
                "nothing of that name is on PATH or in /usr/bin".into()
            }
            Error::NoInterpreter { passed_over, .. } => passed_over.join("; "),
            Error::NoCommand { name } if name.contains('/') => "there is no such file".into(),
            Error::NoCommand { .. } => "nothing of that name is on PATH".into(),
            Error::NotRunnable { why, .. } => why.clone(),
        }
    }

    pub fn fix(&self) -> String {
        match self {
            Error::UnknownLanguage { .. } => "say one of them with --lang".into(),
            Error::NoInterpreter { language, .. } => format!(
                "install {language} from the distribution, or put an interpreter on PATH that \
                 every user can read and execute"
            ),
            Error::NoCommand { .. } => "check the spelling, or install what provides it".into(),
            Error::NotRunnable { fix, .. } => fix.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_of_a_language_reads_back() {
        for (name, language) in [
            ("python", Language::Python),
            ("py", Language::Python),
            ("javascript", Language::JavaScript),
            ("js", Language::JavaScript),
            ("node", Language::JavaScript),
            ("shell", Language::Shell),
            ("sh", Language::Shell),
            ("bash", Language::Shell),
        ] {
            assert_eq!(name.parse(), Ok(language), "{name}");
        }
        for name in ["", "Python", "python3", "cobol", "py "] {
            let error = name.parse::<Language>().unwrap_err();
            assert!(error.why().contains("javascript"), "{name}: {}", error.why());
        }
    }

    #[test]
    fn the_extension_decides_and_then_the_first_line() {
        let check = |file: &str, head: &str, expected: Option<Language>| {
            assert_eq!(
                Language::detect(Path::new(file), head.as_bytes()),
                expected,
                "{file} with {head:?}"
            );
        };
        check("a.py", "", Some(Language::Python));
        check("A.PY", "", Some(Language::Python));
        check("a.mjs", "", Some(Language::JavaScript));
        check("a.sh", "", Some(Language::Shell));
        check("a.py", "#!/bin/sh\n", Some(Language::Python));
        check("a", "#!/bin/sh\n", Some(Language::Shell));
        check("a", "#!/usr/bin/env python3\nprint()", Some(Language::Python));
        check("a", "#!/usr/bin/env -S python3.11 -u\n", Some(Language::Python));
        check("a.txt", "#!/usr/local/bin/node", Some(Language::JavaScript));
        check("a", "#! /bin/bash -e\n", Some(Language::Shell));
        check("a", "#!/usr/bin/perl\n", None);
        check("a", "#!\n", None);
        check("a", "#!/usr/bin/env\n", None);
        check("a", "print(1)", None);
        check("a.c", "", None);
        check("", "", None);
        check(".py", "", None);
    }

    #[test]
    fn a_program_of_a_language_is_known_with_its_version() {
        let check = |name: &str, expected| {
            assert_eq!(Language::of_program(OsStr::new(name)), expected, "{name}");
        };
        check("python", Some(Language::Python));
        check("python3", Some(Language::Python));
        check("python3.13", Some(Language::Python));
        check("nodejs", Some(Language::JavaScript));
        check("sh", Some(Language::Shell));
        check("python-config", None);
        check("3", None);
        check("", None);
    }
}
