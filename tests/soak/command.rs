//! The command: one process for each run.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::Stages;
use crate::binary::binary;
use crate::census::{self, home};

/// Leaves whatever a program can leave: children in other sessions, files, System V objects, semaphores,
/// shared memory, locks. Says that it is ready, and then does not end.
const CLUTTER: &str = "import os, ctypes, time, socket, fcntl
libc = ctypes.CDLL(None)
libc.shmget(1, 4096, 0o1600); libc.semget(2, 1, 0o1600); libc.msgget(3, 0o1600)
for _ in range(5):
    if os.fork() == 0: os.setsid(); time.sleep(1000)
for n in range(100): open(f'/work/{n}', 'w').write('x'); open(f'/tmp/{n}', 'w')
s = socket.socket(socket.AF_UNIX); s.bind('/tmp/socket'); s.listen()
open('/dev/shm/x', 'w').write('x'); f = open('/work/0'); fcntl.flock(f, fcntl.LOCK_EX)
print('ready', flush=True)
time.sleep(1000)
";

fn hotcell(words: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command.args(words).env("HOTCELL_HOME", home());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

pub(crate) fn probe() -> Result<(), String> {
    // Long enough that it can be followed: whatever a home has is there from then on.
    let output = hotcell(&["run", "--", "sleep", "0.5"]).output().unwrap();
    if output.status.code() == Some(122) {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    assert!(output.status.success(), "{output:?}");
    Ok(())
}

/// The next process closes in the record what the killed ones before it left open, and removes the files by
/// which their deaths are known.
fn next() {
    let output = hotcell(&["run", "--", "true"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

pub(crate) fn stages(stages: &mut Stages, runs: usize) {
    let few = (runs / 10).clamp(5, 200);
    stages.stage(&format!("{few} commands in a row"), || {
        for _ in 0..few {
            let status = hotcell(&["run", "--", "true"]).output().unwrap().status;
            assert!(status.success(), "{status}");
        }
    });
    stages.stage("64 commands at once", || {
        let words = ["run", "--lang", "sh", "-c", "sleep 0.3; echo done"];
        let children: Vec<Child> = (0..64).map(|_| hotcell(&words).spawn().unwrap()).collect();
        let outputs = children.into_iter().map(|child| child.wait_with_output().unwrap());
        let wrong: Vec<_> = outputs.filter(|output| output.stdout != b"done\n").collect();
        assert!(wrong.is_empty(), "{wrong:?}");
    });
    stages.stage(&format!("kill -9 of {few} commands in mid-run"), || {
        for _ in 0..few {
            let mut child = hotcell(&["run", "--lang", "python", "-c", CLUTTER]).spawn().unwrap();
            child.stdout.take().unwrap().read_exact(&mut [0; 6]).unwrap();
            end(child);
        }
        next();
    });
    stages.stage(&format!("kill -9 of {few} commands at every moment of their start"), || {
        // From before anything was made to well after the program began.
        let whole = Duration::from_millis(60);
        for step in 0..few {
            let child = hotcell(&["run", "--lang", "python", "-c", CLUTTER]).spawn().unwrap();
            let at = Instant::now() + whole * step as u32 / few as u32;
            std::thread::sleep(at.saturating_duration_since(Instant::now()));
            end(child);
        }
        next();
    });
    for (generation, name) in [(0, "guards"), (1, "spawners")] {
        stages.stage(&format!("kill -9 of the {name} of {few} commands"), || {
            for _ in 0..few {
                let mut child =
                    hotcell(&["run", "--lang", "python", "-c", CLUTTER]).spawn().unwrap();
                child.stdout.take().unwrap().read_exact(&mut [0; 6]).unwrap();
                let launcher = census::launcher_of(child.id().cast_signed(), generation);
                census::kill(launcher);
                let output = child.wait_with_output().unwrap();
                assert_eq!(output.status.code(), Some(120), "{output:?}");
                census::reap_orphans();
            }
        });
    }
}

fn end(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
    // The guard, which outlives it to clean up, is adopted by this process.
    let deadline = Instant::now() + Duration::from_secs(5);
    while !census::living().is_empty() && Instant::now() < deadline {
        census::reap_orphans();
        std::thread::sleep(Duration::from_millis(2));
    }
    census::reap_orphans();
}
