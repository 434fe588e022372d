//! What to run: a file, code, standard input or a command.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use hotcell_engine::Attachment;
use hotcell_engine::run::{Run, Word};
use hotcell_sandbox::cause;
use hotcell_sandbox::lang::{self, Language};
use hotcell_types::Bytes;

use super::{Args, inputs};
use crate::problem::Problem;

/// Most code taken from standard input.
const MAX_CODE: u64 = 16 * 1024 * 1024;

/// As much of a script as is looked at to tell its language, and text from data.
const HEAD: usize = 8 * 1024;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Target {
    File { path: PathBuf, args: Vec<OsString> },
    Code { code: OsString, args: Vec<OsString> },
    Stdin { args: Vec<OsString> },
    Command { name: OsString, args: Vec<OsString> },
}

impl Target {
    pub(super) fn of(args: &Args, is_command: bool) -> Result<Target, Problem> {
        if let Some(code) = &args.code {
            return Ok(Target::Code { code: code.clone(), args: args.words.clone() });
        }
        match args.words.split_first() {
            None if is_command => {
                Err(Problem::invalid("no command was given after `--`")
                    .fix("see `hotcell run --help`"))
            }
            None if io::stdin().is_terminal() => Err(nothing_to_run()),
            None => Ok(Target::Stdin { args: vec![] }),
            Some(_) if is_command && args.lang.is_some() => {
                Err(Problem::invalid("`--lang` does not go together with a command")
                    .fix("leave out either `--lang` or `--`"))
            }
            Some((name, rest)) if is_command => {
                Ok(Target::Command { name: name.clone(), args: rest.to_vec() })
            }
            Some((dash, rest)) if dash == "-" => Ok(Target::Stdin { args: rest.to_vec() }),
            Some((path, rest)) => Ok(Target::File { path: path.into(), args: rest.to_vec() }),
        }
    }

    pub(super) fn reads_stdin(&self) -> bool {
        matches!(self, Target::Stdin { .. })
    }

    /// What the call says of it, and the file that goes along.
    pub(super) fn describe(
        self,
        lang: Option<Language>,
        disk: Bytes,
    ) -> Result<(Run, Option<Attachment>), Problem> {
        match self {
            Target::Command { name, args } => {
                let words = std::iter::once(name).chain(args);
                Ok((Run { command: words.map(Word::new).collect(), ..Run::default() }, None))
            }
            Target::File { path, args } => {
                let (script, language) = script(&path, lang, disk)?;
                Ok(scripted(script, language, args))
            }
            Target::Code { code, args } => {
                let language = language_of(code.as_bytes(), lang, "the code")?;
                Ok(scripted(main_file(language, code.into_vec()), language, args))
            }
            Target::Stdin { args } => {
                let code = code_from_stdin()?;
                if code.is_empty() && lang.is_none() {
                    return Err(nothing_to_run());
                }
                let language = language_of(&code, lang, "standard input")?;
                Ok(scripted(main_file(language, code), language, args))
            }
        }
    }
}

fn scripted(
    script: Attachment,
    language: Language,
    args: Vec<OsString>,
) -> (Run, Option<Attachment>) {
    let run = Run {
        script: Some(Word::new(script.name().clone())),
        language: Some(language.name().into()),
        arguments: args.into_iter().map(Word::new).collect(),
        ..Run::default()
    };
    (run, Some(script))
}

fn main_file(language: Language, code: Vec<u8>) -> Attachment {
    Attachment::of_bytes(language.main_file(), code)
}

fn language_of(code: &[u8], lang: Option<Language>, what: &str) -> Result<Language, Problem> {
    lang.or_else(|| Language::detect(Path::new(""), code)).ok_or_else(|| unknown_language(what))
}

fn script(
    path: &Path,
    lang: Option<Language>,
    disk: Bytes,
) -> Result<(Attachment, Language), Problem> {
    let file = inputs::open_regular(path).map_err(|unusable| unusable.not_run())?;
    let mut head = vec![0; HEAD];
    let read = file.read_at(&mut head, 0).map_err(|e| {
        Problem::not_runnable(format!("`{}` cannot be read", path.display())).why(cause(&e))
    })?;
    head.truncate(read);
    must_be_text(path, &head)?;
    let language = lang.or_else(|| Language::detect(path, &head));
    let language = language.ok_or_else(|| unknown_language(&format!("`{}`", path.display())))?;
    Ok((inputs::attach(path, file, disk)?, language))
}

fn must_be_text(path: &Path, head: &[u8]) -> Result<(), Problem> {
    let shown = path.display();
    let binary = || Problem::not_runnable(format!("`{shown}` is a binary, not a script"));
    if head.starts_with(b"\x7fELF") {
        let here = if path.components().count() == 1 { "./" } else { "" };
        return Err(binary().fix(format!("run it as a command: hotcell run -- {here}{shown}")));
    }
    if head.contains(&0) {
        return Err(binary().why("it contains NUL bytes").fix("give the source, encoded as UTF-8"));
    }
    Ok(())
}

fn code_from_stdin() -> Result<Vec<u8>, Problem> {
    let mut code = Vec::new();
    let read = io::stdin().lock().take(MAX_CODE + 1).read_to_end(&mut code);
    read.map_err(|e| Problem::error("standard input could not be read").why(cause(&e)))?;
    if code.len() as u64 > MAX_CODE {
        return Err(Problem::invalid("the code on standard input is longer than 16MiB")
            .fix("give it as a file"));
    }
    Ok(code)
}

fn nothing_to_run() -> Problem {
    Problem::invalid("there is nothing to run")
        .fix("give a file, `--lang LANG -c CODE`, code on standard input, or `-- COMMAND`")
}

fn unknown_language(what: &str) -> Problem {
    Problem::invalid(format!("the language of {what} is not known"))
        .why("neither an extension nor a first line with #! names one that hotcell knows")
        .fix(format!(
            "say it with --lang: {}; for another, `hotcell run --input FILE -- INTERPRETER FILE`",
            lang::language_names()
        ))
}
