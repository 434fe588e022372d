//! A program in a sandbox that stays, beside the same executed bare, and beside a sandbox made for it.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::thread;

use hotcell_sandbox::{Keep, Kept, Sandbox};
use hotcell_types::{Status, Template};

use crate::host;
use crate::peers::{Failure, Program, Silent, contestant, finish, job, open_sandbox};
use crate::report::Report;
use crate::rounds;
use crate::stats::millis;
use crate::{Options, say};

/// What somebody pays who asks a process that is there to execute something.
const BARE_AND_BACK: &str = "bare, and a socket round trip";
const EXEC: &str = "in a sandbox that stays";
const OWN: &str = "in a sandbox of its own";

/// The promise that is measured here.
const EXEC_OVER_BARE: f64 = 1.5;

pub(crate) fn measure(options: Options, report: &mut Report) -> Result<(), Failure> {
    let sandbox = open_sandbox()?;
    report.made_with(&[
        format!("Linux {}", host::kernel()),
        format!("{} processors", host::cores()),
        format!("hotcell at level `{}`", sandbox.level()),
    ]);
    say("a program in a sandbox that stays");
    let program = Program::nothing();
    let kept = keep(&sandbox, &program)?;
    let asked = Asked::new()?;
    let contestants = [
        contestant(BARE_AND_BACK, || {
            asked.round_trip()?;
            finish(Command::new("/bin/true"), None)
        }),
        contestant(EXEC, || {
            let running = kept.exec(job(&program, &Template::DEFAULT))?;
            ended(running.wait_for_end(&mut Silent)?.status)
        }),
        contestant(OWN, || {
            let running = sandbox.start(job(&program, &Template::DEFAULT))?;
            ended(running.wait(&mut Silent, None)?.status)
        }),
    ];
    let samples = rounds::interleave(&contestants, options.rounds(400), 1)?;
    report.heading("`/bin/true` in a running process");
    report.beside(&samples, BARE_AND_BACK, "ms", millis);
    let what = "`/bin/true` in a sandbox that stays over executing it bare and a socket round trip";
    report.over(&samples, EXEC, BARE_AND_BACK, EXEC_OVER_BARE, what);
    Ok(())
}

fn keep(sandbox: &Sandbox, program: &Program) -> Result<Kept, Failure> {
    let job = job(program, &Template::DEFAULT);
    let (view, limits) = (job.command.view(), job.limits);
    Ok(sandbox.keep(Keep { view, limits, profile: job.profile, network: job.network })?)
}

fn ended(status: Status) -> Result<Option<[u64; 5]>, Failure> {
    match status {
        Status::Success => Ok(None),
        other => Err(format!("it ended as {other:?}").into()),
    }
}

/// Somebody on another thread who answers each byte with one.
#[derive(Debug)]
struct Asked(Mutex<UnixStream>);

impl Asked {
    fn new() -> Result<Asked, Failure> {
        let (ours, mut theirs) = UnixStream::pair()?;
        thread::spawn(move || {
            let mut byte = [0];
            while theirs.read_exact(&mut byte).and_then(|()| theirs.write_all(&byte)).is_ok() {}
        });
        Ok(Asked(Mutex::new(ours)))
    }

    fn round_trip(&self) -> Result<(), Failure> {
        let mut stream = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        stream.write_all(b"x")?;
        Ok(stream.read_exact(&mut [0])?)
    }
}
