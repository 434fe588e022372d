//! The helper process that runs one attack.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};

/// The helper's program.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_victim");

/// Runs an attack in a helper that is started by `before`, a command that executes its arguments.
pub(crate) fn run_behind(before: &[&str], code: &str, layers: u32, flags: &str) -> String {
    let layers = layers.to_string();
    let all = [before, &[PROGRAM, code, &layers, flags, "20000"]].concat();
    let done = Command::new(all[0]).args(&all[1..]).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(said.contains("running"), "{said}\n{}", String::from_utf8_lossy(&done.stderr));
    said
}

/// A helper whose run has begun.
pub(crate) struct Victim {
    pub(crate) process: Child,
    output: BufReader<ChildStdout>,
}

impl Victim {
    pub(crate) fn start(code: &str, env: &[(&str, &str)]) -> Victim {
        let mut process = Command::new(PROGRAM)
            .args([code, "0", "", "60000"])
            .envs(env.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(line, "running\n");
        Victim { process, output }
    }

    pub(crate) fn finish(mut self) -> String {
        let mut said = String::new();
        self.output.read_to_string(&mut said).unwrap();
        self.process.wait().unwrap();
        said
    }
}

/// A test that fails leaves no process behind.
impl Drop for Victim {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}
