//! One case is one run: a program, and what it must print.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::binary::binary;

/// A program as data.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// Commands of the host that it needs. Each is given to the run as a variable of its name that holds
    /// its path; where one is missing, the case is skipped and says so.
    pub(crate) needs: &'static [&'static str],
    /// Further options of `hotcell run`.
    pub(crate) options: &'static [&'static str],
    pub(crate) lang: &'static str,
    pub(crate) code: &'static str,
    pub(crate) expected: &'static str,
}

impl Case {
    pub(crate) const fn new(
        name: &'static str,
        lang: &'static str,
        code: &'static str,
        expected: &'static str,
    ) -> Case {
        Case { name, needs: &[], options: &[], lang, code, expected }
    }
}

/// Runs all of them, so that one failure does not hide another.
pub(crate) fn check(cases: &[Case]) {
    let wrong: Vec<String> = cases.iter().filter_map(|case| one(case).err()).collect();
    assert!(
        wrong.is_empty(),
        "{} of {} went wrong\n{}",
        wrong.len(),
        cases.len(),
        wrong.join("\n")
    );
}

fn one(case: &Case) -> Result<(), String> {
    let mut words: Vec<OsString> = vec!["run".into(), "--json".into()];
    words.extend(case.options.iter().map(OsString::from));
    for name in case.needs {
        match tool(name) {
            Ok(path) => words.extend(["--env".into(), format!("{name}={}", path.display()).into()]),
            Err(why) => {
                skip(case.name, &why);
                return Ok(());
            }
        }
    }
    words.extend(["--lang", case.lang, "-c", case.code].map(OsString::from));
    let output = hotcell(&words, None);
    let report: Value = serde_json::from_slice(&output.stdout).map_err(|e| {
        let stderr = String::from_utf8_lossy(&output.stderr);
        format!("{}: no document ({e}), but {stderr}", case.name)
    })?;
    judge(case.name, &report, case.expected)
}

/// Success, exactly this output, nothing on stderr, and no call refused.
pub(crate) fn judge(name: &str, report: &Value, expected: &str) -> Result<(), String> {
    let (stdout, stderr) = (&report["stdout"]["text"], &report["stderr"]["text"]);
    let blocked = &report["blocked_syscalls"];
    let good = report["status"] == "success"
        && stdout == expected
        && stderr == ""
        && blocked.as_array().is_some_and(Vec::is_empty);
    if good {
        return Ok(());
    }
    Err(format!(
        "{name}: {}, blocked {blocked}\n  expected {expected:?}\n  stdout {stdout}\n  stderr {stderr}\n  error {}",
        report["status"], report["error"]
    ))
}

/// Says on the terminal, whatever the harness captures, that something was not tested.
pub(crate) fn skip(what: &str, why: &str) {
    use std::io::Write;
    let line = format!("SKIPPED {what}: {why}\n");
    // The harness captures what goes through `eprintln`, not what goes through the descriptor.
    let mut terminal = std::fs::File::from(
        std::os::fd::AsFd::as_fd(&std::io::stderr()).try_clone_to_owned().unwrap(),
    );
    terminal.write_all(line.as_bytes()).unwrap();
}

/// A command that runs can see: on PATH and in a directory of the system.
pub(crate) fn tool(name: &str) -> Result<PathBuf, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.is_file());
    let found = found.ok_or_else(|| format!("there is no `{name}` on PATH"))?;
    if found.starts_with("/usr") || found.starts_with("/bin") {
        return Ok(found);
    }
    Err(format!("`{}` is outside the directories that runs see", found.display()))
}

/// Runs the binary, with `first` before everything else on PATH.
pub(crate) fn hotcell(words: &[impl AsRef<OsStr>], first: Option<&Path>) -> Output {
    let mut command = Command::new(binary());
    if let Some(dir) = first {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let dirs = [dir.to_owned()].into_iter().chain(std::env::split_paths(&path));
        command.env("PATH", std::env::join_paths(dirs).unwrap());
    }
    command.args(words).stdin(Stdio::null()).output().unwrap()
}
