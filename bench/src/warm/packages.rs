//! Python programs with packages: numpy, in a named environment, and HumanEval's canonical solutions.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Instant;

use serde_json::Value;

use super::recorded::Recorded;
use super::{PYTHON, SETTLE, Times, first_output, packages_python};
use crate::peers::{BARE, Failure, build_hotcell};
use crate::report::{Bound, Goal, Report};
use crate::scratch::Scratch;
use crate::stats::{Samples, millis};
use crate::{Options, say};

/// The promises that are measured here.
const NUMPY_OVER_BARE: f64 = 0.10;
const SOLUTIONS_OVER_BARE: f64 = 1.0;
const SOLUTIONS: usize = 164;

const HOTCELL: &str = "hotcell, in an environment, recorded";
const BATCH: &str = "`hotcell batch --jobs 1`";
const ONE_BY_ONE: &str = "`python3 FILE`, one by one";
/// hotcell finds the distribution's own interpreter by this path.
const PATH: &str = "/usr/bin:/bin";
const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/humaneval.py");

pub(super) fn measure(options: Options, report: &mut Report) -> Result<(), Failure> {
    say("a Python program that imports numpy");
    match numpy(options) {
        Ok((samples, start)) => report.numpy(&samples, &start),
        Err(why) => report.skip(&format!("numpy: {why}")),
    }
    say("HumanEval's canonical solutions");
    match solutions(options) {
        Ok((samples, passed)) => report.solutions(&samples, passed),
        Err(why) => report.skip(&format!("HumanEval: {why}")),
    }
    Ok(())
}

fn hotcell(words: &[&str], home: &Path) -> Result<Command, Failure> {
    let mut command = Command::new(build_hotcell()?);
    command.args(words).env("HOTCELL_HOME", home).env("PATH", PATH).stdin(Stdio::null());
    Ok(command)
}

/// What a command prints, if it succeeds.
fn printed(mut command: Command) -> Result<Vec<u8>, Failure> {
    let output = command.output()?;
    match output.status.success() {
        true => Ok(output.stdout),
        false => Err(String::from_utf8_lossy(&output.stderr).trim_end().to_owned().into()),
    }
}

/// The same interpreter with the same files on both sides.
fn numpy(options: Options) -> Result<([Samples; 2], String), Failure> {
    let scratch = Scratch::new()?;
    let tree = environment(&scratch)?;
    let code = "import numpy; print(1)";
    let recorded = Recorded::new(scratch, code, Some("bench"))?;
    let start = recorded.warm_up()?;
    let mut all = [BARE, HOTCELL].map(|name| Samples { name, ..Samples::default() });
    let bare = || -> Result<Times, Failure> {
        let mut command = Command::new(PYTHON);
        command.args(["-u", "-c", code]).env_clear().env("PYTHONPATH", &tree);
        first_output(command)
    };
    for _ in 0..options.rounds(100) {
        for samples in &mut all {
            thread::sleep(SETTLE);
            let times = if samples.name == BARE { bare()? } else { recorded.run()?.0 };
            super::note(samples, times);
        }
    }
    Ok((all, format!("{start:?}").to_lowercase()))
}

/// One with numpy, and where its files are.
fn environment(scratch: &Scratch) -> Result<PathBuf, Failure> {
    let requirements = scratch.path().join("requirements.txt");
    std::fs::write(&requirements, "numpy\n")?;
    let home = scratch.home();
    let mut create = hotcell(&["env", "create", "bench", "--python"], &home)?;
    create.arg(requirements);
    printed(create)?;
    let shown = printed(hotcell(&["env", "show", "bench", "--json"], &home)?)?;
    let shown: Value = serde_json::from_slice(&shown)?;
    let digest = shown.get("sha256").and_then(Value::as_str).ok_or("it has no digest")?;
    Ok(home.join("envs").join(digest))
}

/// All of them, several times; and how many hotcell said had passed, the least of the times.
fn solutions(options: Options) -> Result<([Samples; 2], usize), Failure> {
    let scratch = Scratch::new()?;
    let mut make = Command::new(packages_python());
    make.arg(EXAMPLE);
    let jobs = printed(make)?;
    let file = scratch.path().join("jobs.jsonl");
    std::fs::write(&file, &jobs)?;
    let mut programs = Vec::new();
    for (number, line) in jobs.split(|&byte| byte == b'\n').filter(|l| !l.is_empty()).enumerate() {
        let job: Value = serde_json::from_slice(line)?;
        let code = job.pointer("/run/code").and_then(Value::as_str).ok_or("a job without code")?;
        let program = scratch.path().join(format!("{number}.py"));
        std::fs::write(&program, code)?;
        programs.push(program);
    }
    let mut all = [ONE_BY_ONE, BATCH].map(|name| Samples { name, ..Samples::default() });
    let mut passed = usize::MAX;
    for _ in 0..options.rounds(10) {
        for samples in &mut all {
            let begun = Instant::now();
            if samples.name == BATCH {
                passed = passed.min(batch(&file, &scratch.home())?);
            } else {
                one_by_one(&programs)?;
            }
            samples.micros.push(begun.elapsed().as_secs_f64() * 1e6);
        }
    }
    Ok((all, passed))
}

fn one_by_one(programs: &[PathBuf]) -> Result<(), Failure> {
    for program in programs {
        let mut command = Command::new(PYTHON);
        command.arg(program).env_clear().env("PATH", PATH);
        printed(command)?;
    }
    Ok(())
}

/// How many have succeeded.
fn batch(jobs: &Path, home: &Path) -> Result<usize, Failure> {
    let mut command = hotcell(&["batch", "--jobs", "1"], home)?;
    // That one has failed is told by the results.
    let results = command.arg(jobs).stderr(Stdio::null()).output()?.stdout;
    let succeeded = |line: &[u8]| {
        let result: Option<Value> = serde_json::from_slice(line).ok();
        let status = result.as_ref().and_then(|result| result.pointer("/result/status"));
        status.and_then(Value::as_str) == Some("success")
    };
    Ok(results.split(|&byte| byte == b'\n').filter(|line| succeeded(line)).count())
}

impl Report {
    fn numpy(&mut self, samples: &[Samples; 2], start: &str) {
        self.heading("`import numpy; print(1)`: to its first output, and until nothing is left");
        self.tables += &format!("What hotcell's runs began with: `{start}`.\n\n");
        self.first_outputs(samples);
        self.over_first_output(samples, HOTCELL, NUMPY_OVER_BARE, "with numpy imported, ");
    }

    fn solutions(&mut self, samples: &[Samples; 2], passed: usize) {
        self.heading("HumanEval's canonical solutions with their tests, recorded");
        self.beside(samples, ONE_BY_ONE, "ms", millis);
        let what = "HumanEval's solutions, `hotcell batch --jobs 1` over bare one by one";
        self.over(samples, BATCH, ONE_BY_ONE, SOLUTIONS_OVER_BARE, what);
        let got = passed as f64;
        self.promise(Goal {
            what: "HumanEval's solutions that pass".into(),
            bound: Bound::AtLeast(SOLUTIONS as f64),
            unit: "of them",
            got,
            undisturbed: got,
        });
    }
}
