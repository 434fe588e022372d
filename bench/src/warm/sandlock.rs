//! sandlock, from a Python process that stays: it is a library there.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use crate::peers::Failure;

const DRIVER: &str = include_str!("sandlock.py");

/// A process that runs one command, as often as it is told.
#[derive(Debug)]
pub(super) struct Sandlock {
    process: Mutex<(Child, BufReader<ChildStdout>)>,
    pub(super) version: String,
}

impl Sandlock {
    /// With an interpreter that has the package.
    pub(super) fn start(python: &str, prints: &str, command: &[&str]) -> Result<Sandlock, Failure> {
        let mut child = Command::new(python)
            .args(["-c", DRIVER, prints])
            .args(command)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let stdout = BufReader::new(child.stdout.take().ok_or("there is no pipe")?);
        let process = Mutex::new((child, stdout));
        let mut sandlock = Sandlock { process, version: String::new() };
        sandlock.version = sandlock.said(None)?;
        Ok(sandlock)
    }

    pub(super) fn run(&self) -> Result<(), Failure> {
        match self.said(Some("\n"))?.as_str() {
            "good" => Ok(()),
            other => Err(format!("sandlock: {other}").into()),
        }
    }

    /// Its next line.
    fn said(&self, told: Option<&str>) -> Result<String, Failure> {
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        let (child, stdout) = &mut *process;
        if let Some(told) = told {
            child.stdin.as_mut().ok_or("there is no pipe")?.write_all(told.as_bytes())?;
        }
        let mut line = String::new();
        match stdout.read_line(&mut line)? {
            0 => Err("it ended (HOTCELL_BENCH_PYTHON names a Python that has its packages)".into()),
            _ => Ok(line.trim_end().to_owned()),
        }
    }
}

impl Drop for Sandlock {
    fn drop(&mut self) {
        let process = self.process.get_mut().unwrap_or_else(PoisonError::into_inner);
        // The end of its input is the end of it.
        drop(process.0.stdin.take());
        process.0.wait().ok();
    }
}
