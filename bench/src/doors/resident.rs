//! `hotcell run` as a command, through a resident and on its own, beside the interpreter alone.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::peers::{BARE, Failure, build_hotcell, contestant, finish};
use crate::rounds;
use crate::scratch::Scratch;
use crate::stats::Samples;
use crate::{Options, say};

pub(super) const RESIDENT: &str = "`hotcell run`, through a resident";
pub(super) const ALONE: &str = "`hotcell run`, on its own";

/// The distribution's own: behind no shim. hotcell finds the same by this path.
const PYTHON: &str = "/usr/bin/python3";
const PATH: &str = "/usr/bin:/bin";
const CODE: &str = "print(1)";

/// How long it may take until a run is forked from an interpreter that waited.
const WARM_WITHIN: Duration = Duration::from_secs(20);
const STEP: Duration = Duration::from_millis(50);
/// Should nothing else end the resident.
const IDLE: &str = "5m";

pub(super) fn python_version() -> Result<String, Failure> {
    let output = Command::new(PYTHON).arg("--version").output()?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// What was measured, and from what the resident started the runs.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) samples: Vec<Samples>,
    pub(super) start: String,
}

pub(super) fn measure(options: Options) -> Result<Measured, Failure> {
    say("`hotcell run`, through a resident");
    let hotcell = build_hotcell()?;
    let (alone, home) = (Scratch::new()?, Scratch::new()?);
    let resident = Resident::start(&hotcell, &home.home())?;
    let start = resident.warm_up()?;
    let run = |home: PathBuf| {
        let hotcell = &hotcell;
        move || {
            let mut command = at(hotcell, &home);
            command.args(["run", "--lang", "python", "-c", CODE]);
            finish(command, Some("1\n"))
        }
    };
    let contestants = [
        contestant(BARE, || {
            let mut command = Command::new(PYTHON);
            command.args(["-c", CODE]).env_clear().env("PATH", PATH);
            finish(command, Some("1\n"))
        }),
        contestant(RESIDENT, run(home.home())),
        contestant(ALONE, run(alone.home())),
    ];
    let samples = rounds::interleave(&contestants, options.rounds(200), 1)?;
    Ok(Measured { samples, start })
}

fn at(hotcell: &Path, home: &Path) -> Command {
    let mut command = Command::new(hotcell);
    command.env("HOTCELL_HOME", home).env("PATH", PATH).stdin(Stdio::null());
    command
}

/// One for as long as this is there.
#[derive(Debug)]
struct Resident<'a> {
    hotcell: &'a Path,
    home: PathBuf,
}

impl<'a> Resident<'a> {
    fn start(hotcell: &'a Path, home: &Path) -> Result<Resident<'a>, Failure> {
        let resident = Resident { hotcell, home: home.to_owned() };
        let mut command = at(hotcell, home);
        let started = command.args(["resident", "start", "--idle", IDLE]).status()?;
        match started.success() {
            true => Ok(resident),
            false => Err("no resident was started".into()),
        }
    }

    /// Until a run begins with an interpreter that waited; from what it began in the end.
    fn warm_up(&self) -> Result<String, Failure> {
        let begun = Instant::now();
        loop {
            let mut command = at(self.hotcell, &self.home);
            let output =
                command.args(["run", "--json", "--lang", "python", "-c", CODE]).output()?;
            let result: Value = serde_json::from_slice(&output.stdout)?;
            let start = result.get("start").and_then(Value::as_str).unwrap_or_default();
            if start == "waiting" || begun.elapsed() > WARM_WITHIN {
                return Ok(start.to_owned());
            }
            thread::sleep(STEP);
        }
    }
}

impl Drop for Resident<'_> {
    fn drop(&mut self) {
        let stopped = at(self.hotcell, &self.home).args(["resident", "stop"]).status();
        if !stopped.is_ok_and(|status| status.success()) {
            eprintln!(
                "the resident did not end by itself; it will when it has been idle for {IDLE}"
            );
        }
    }
}
