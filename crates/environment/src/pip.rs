//! The host's pip, which knows where packages come from, and only ever downloads: wheels are archives that
//! nothing of is executed, and what has no wheel is refused. Addresses and secrets of its configuration stay
//! with it.

use std::collections::VecDeque;
use std::fs::{self, Permissions};
use std::io::{self, BufRead, BufReader, PipeReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::requirement::Requirement;

/// Below what packages were downloaded to: what was asked for.
pub const REQUIREMENTS: &str = "requirements.txt";

/// What an interpreter has to say about itself, and how long that may take.
const PROBE: &str = "import sys, sysconfig, importlib.util as u; \
    print('.'.join(map(str, sys.version_info[:3])), \
    sys.implementation.cache_tag + '-' + sysconfig.get_platform(), bool(u.find_spec('pip')))";
const PROBE_MOST: Duration = Duration::from_secs(30);

/// Runs pip, until whoever started it is gone: its standard input is open as long as that lives.
const PIP: &str = "import os, runpy, sys, threading
def watch():
    os.read(0, 1)
    os._exit(75)
threading.Thread(target=watch, daemon=True).start()
runpy.run_module('pip', run_name='__main__', alter_sys=True)
";

/// How often it is looked whether it is to go on.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Lines that are kept of what it said, and characters of each.
const LINES_MOST: usize = 60;
const LINE_MOST: u64 = 1000;
/// Lines that wait to be heard.
const QUEUE: usize = 64;
/// Most characters of its errors that are told.
const TOLD_MOST: usize = 1000;

/// What an interpreter says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    pub version: String,
    pub platform: String,
    pub has_pip: bool,
}

/// What to download, and how much of it at most.
#[derive(Debug)]
pub struct Download<'a> {
    pub interpreter: &'a Path,
    pub requirements: &'a [Requirement],
    /// An empty directory.
    pub to: &'a Path,
    /// Where pip keeps what it is at: another one.
    pub temporary: &'a Path,
    pub most_bytes: u64,
    pub until: Instant,
}

#[derive(Debug, thiserror::Error)]
pub enum Failed {
    #[error("`{interpreter}` does not run: {why}")]
    Interpreter { interpreter: String, why: String },
    /// In pip's own words, without addresses.
    #[error("{0}")]
    Refused(String),
    #[error("the packages are more than {0} bytes")]
    TooMuch(u64),
    #[error("there was no time for it")]
    Late,
    #[error("somebody asked for the end")]
    Cancelled,
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// Asks an interpreter of the host what it is.
pub fn probe(interpreter: &Path) -> Result<Facts, Failed> {
    let failed =
        |why: String| Failed::Interpreter { interpreter: interpreter.display().to_string(), why };
    let mut command = Command::new(interpreter);
    command.args(["-I", "-c", PROBE]).current_dir("/");
    let mut said = Vec::new();
    let mut process = Process::start(command).map_err(|error| failed(error.to_string()))?;
    let deadline = Instant::now() + PROBE_MOST;
    let is_good = process.wait(&mut |line| said.push(line.to_owned()), &mut || {
        if Instant::now() > deadline { Err(Failed::Late) } else { Ok(()) }
    })?;
    let words: Vec<&str> = said.last().map(|line| line.split(' ').collect()).unwrap_or_default();
    match (is_good, words.as_slice()) {
        (true, [version, platform, has_pip]) => Ok(Facts {
            version: (*version).to_owned(),
            platform: (*platform).to_owned(),
            has_pip: *has_pip == "True",
        }),
        _ => Err(failed(said.join(" ").chars().take(TOLD_MOST).collect())),
    }
}

/// Downloads wheels of everything that is asked for, with all that it needs. `hear` is told how it goes on.
pub fn download(
    download: &Download<'_>,
    hear: &mut dyn FnMut(&str),
    goes_on: &dyn Fn() -> bool,
) -> Result<(), Failed> {
    let Download { interpreter, requirements, to, temporary, most_bytes, until } = *download;
    let list = to.join(REQUIREMENTS);
    let text: String = requirements.iter().map(|one| format!("{one}\n")).collect();
    fs::write(&list, text)?;
    // Whatever the umask is: the sandbox has another id.
    fs::set_permissions(to, Permissions::from_mode(0o755))?;
    fs::set_permissions(&list, Permissions::from_mode(0o644))?;
    if requirements.is_empty() {
        return Ok(());
    }
    let mut command = Command::new(interpreter);
    command
        .args(["-I", "-c", PIP, "download", "--only-binary", ":all:", "--no-input"])
        .args(["--disable-pip-version-check", "--progress-bar", "off", "--no-color", "--dest"])
        .arg(to)
        .arg("--requirement")
        .arg(&list)
        .current_dir(temporary)
        .env("TMPDIR", temporary);
    let mut said = VecDeque::new();
    let mut process = Process::start(command)?;
    let is_good = process.wait(
        &mut |line| {
            if said.len() == LINES_MOST {
                said.pop_front();
            }
            said.push_back(line.to_owned());
            hear(line);
        },
        &mut || {
            if !goes_on() {
                Err(Failed::Cancelled)
            } else if Instant::now() > until {
                Err(Failed::Late)
            } else if bytes_in(to, 0).saturating_add(bytes_in(temporary, 0)) > most_bytes {
                Err(Failed::TooMuch(most_bytes))
            } else {
                Ok(())
            }
        },
    )?;
    if is_good {
        return only_wheels(to);
    }
    let errors = said.iter().filter_map(|line| line.strip_prefix("ERROR: "));
    let errors: Vec<&str> = errors.collect();
    let words =
        if errors.is_empty() { said.make_contiguous().join("; ") } else { errors.join("; ") };
    Err(Failed::Refused(words.chars().take(TOLD_MOST).collect()))
}

/// Whatever pip did: nothing but archives that are only unpacked goes into the sandbox.
fn only_wheels(to: &Path) -> Result<(), Failed> {
    for entry in fs::read_dir(to)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_wheel = name.ends_with(".whl") && entry.file_type()?.is_file();
        if !is_wheel && name != REQUIREMENTS {
            return Err(Failed::Refused(format!("pip downloaded `{name}`, which is no wheel")));
        }
        fs::set_permissions(entry.path(), Permissions::from_mode(0o644))?;
    }
    Ok(())
}

fn bytes_in(directory: &Path, depth: usize) -> u64 {
    /// pip's temporary directories are not deeper.
    const DEPTH: usize = 4;
    let Ok(entries) = fs::read_dir(directory) else { return 0 };
    let of = |entry: fs::DirEntry| match entry.metadata() {
        Ok(found) if found.is_dir() && depth < DEPTH => bytes_in(&entry.path(), depth + 1),
        Ok(found) => found.len(),
        Err(_) => 0,
    };
    entries.flatten().map(of).fold(0, u64::saturating_add)
}

/// A program of the host. It is ended with this.
struct Process {
    child: Child,
    /// It ends when this is closed, however that comes.
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Process {
    fn start(mut command: Command) -> io::Result<Process> {
        let (reader, writer) = io::pipe()?;
        command.stdin(Stdio::piped()).stdout(writer.try_clone()?).stderr(writer);
        let mut child = command.spawn()?;
        // It has the ends of the pipe that are to be closed with the child.
        drop(command);
        let stdin = child.stdin.take();
        let (to, lines) = sync_channel(QUEUE);
        let reading = thread::Builder::new().name("pip".into()).spawn(move || {
            let mut reader = BufReader::new(reader);
            while let Some(line) = next_line(&mut reader) {
                if to.send(line).is_err() {
                    return;
                }
            }
        });
        let process = Process { child, stdin, lines };
        reading.map(|_| process)
    }

    /// Tells each line, and asks again and again whether to go on. Says whether it succeeded.
    fn wait(
        &mut self,
        hear: &mut dyn FnMut(&str),
        goes_on: &mut dyn FnMut() -> Result<(), Failed>,
    ) -> Result<bool, Failed> {
        loop {
            match self.lines.recv_timeout(LOOK_EVERY) {
                Ok(line) => hear(&line),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            goes_on()?;
        }
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status.success());
            }
            goes_on()?;
            thread::sleep(LOOK_EVERY);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stdin.take();
        // One that has ended is only reaped.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// A line, without what would steer a terminal and without addresses: they may have secrets in them.
fn next_line(reader: &mut BufReader<PipeReader>) -> Option<String> {
    let mut bytes = Vec::new();
    let mut part = reader.by_ref().take(LINE_MOST);
    if part.read_until(b'\n', &mut bytes).ok()? == 0 {
        return None;
    }
    Some(harmless(&String::from_utf8_lossy(&bytes)))
}

fn harmless(line: &str) -> String {
    let words = line.split_whitespace().map(|word| {
        let is_address = ["://", "host="].iter().any(|mark| word.contains(mark));
        if is_address { "…".to_owned() } else { word.replace(char::is_control, "") }
    });
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_has_no_addresses_and_does_not_steer_a_terminal() {
        assert_eq!(
            harmless(
                "Looking in indexes: https://me:secret@packages.example/simple \u{1b}[31mred\n"
            ),
            "Looking in indexes: … [31mred"
        );
        assert_eq!(
            harmless("by HTTPSConnectionPool(host='packages.example', port=443)"),
            "by … port=443)"
        );
    }

    fn python() -> std::path::PathBuf {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let found = std::env::split_paths(&path).map(|dir| dir.join("python3"));
        found.into_iter().find(|file| file.is_file()).expect("there is no python3 on PATH")
    }

    #[test]
    fn an_interpreter_says_what_it_is() {
        let facts = probe(&python()).unwrap();
        assert!(facts.version.starts_with("3."), "{facts:?}");
        assert!(facts.platform.contains("linux"), "{facts:?}");
        assert!(matches!(probe(Path::new("/nonexistent/python")), Err(Failed::Interpreter { .. })));
        assert!(matches!(probe(Path::new("/bin/false")), Err(Failed::Interpreter { .. })));
    }

    #[test]
    fn a_program_ends_with_whoever_started_it() {
        let mut command = Command::new(python());
        command.args([
            "-I",
            "-c",
            "import os, threading, time; threading.Thread(target=lambda: (os.read(0, 1), \
             os._exit(75)), daemon=True).start(); print('up', flush=True); time.sleep(600)",
        ]);
        let mut process = Process::start(command).unwrap();
        let mut heard = false;
        let result = process.wait(&mut |_| (), &mut || Err(Failed::Cancelled));
        assert!(matches!(result, Err(Failed::Cancelled)));
        // Only its standard input is closed.
        process.stdin.take();
        let deadline = Instant::now() + Duration::from_secs(60);
        while !heard {
            heard = process.child.try_wait().unwrap().is_some();
            assert!(Instant::now() < deadline, "it goes on");
            thread::sleep(LOOK_EVERY);
        }
    }
}
