//! The path and its record: what a call costs beside what it cannot do without, and what `hotcell run`
//! costs more than the same run in a sandbox alone.

pub(crate) mod calls;
mod idle;
mod plain;
mod tables;
mod verification;

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;
use std::thread;

use hotcell_sandbox::lang::Language;

use crate::host;
use crate::peers::{Failure, Peers, Program};
use crate::report::Report;
use crate::rounds::{self, Contestant};
use crate::scratch::Scratch;
use crate::stats::Samples;
use crate::{Options, say};
pub(crate) use idle::Memory;

use calls::{Bare, Calls, Echo};

/// Callers at one time.
const MANY: usize = 64;
/// Calls in a row, of which one is too short to be measured. As many as can wait to be recorded.
const IN_A_ROW: usize = 1000;
/// Calls in a row that are more than can wait to be recorded.
const BURST: usize = 50_000;
/// Events that are verified.
const EVENTS: usize = 1_000_000;
/// Calls after which a process needs as much memory as before.
const CALLS: usize = 100_000;

/// What this program does when a measurement starts it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// A run in a sandbox, and nothing else.
    Run,
    /// Says how much memory it has with an open engine.
    Idle,
}

impl Role {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Role::Run => "as-run-without-the-path",
            Role::Idle => "as-idle-engine",
        }
    }

    pub(crate) fn named(name: &OsStr) -> Option<Role> {
        [Role::Run, Role::Idle].into_iter().find(|role| role.name() == name)
    }
}

pub(crate) fn play(role: Role, words: Vec<OsString>) -> ExitCode {
    let played = match role {
        Role::Run => plain::run(&words),
        Role::Idle => idle::tell(&words).map(|()| ExitCode::SUCCESS),
    };
    played.unwrap_or_else(|failure| {
        eprintln!("hotcell-bench {}: {failure}", role.name());
        ExitCode::from(2)
    })
}

/// One measurement after the other, each with its peers.
pub(crate) fn measure(options: Options, report: &mut Report) -> Result<(), Failure> {
    let scratch = Scratch::new()?;
    {
        let calls = Calls::open(&scratch.path().join("calls"))?;
        durable(options, &scratch, &calls, report)?;
        buffered(options, &calls, report)?;
    }
    let events = options.rounds(EVENTS);
    say(&format!("the verification of {events} events"));
    let verified = verification::measure(&scratch.path().join("long"), events, options.rounds(3))?;
    report.verification(&verified);
    say("the memory of a process with an open engine");
    report.idle(&idle::measure(&scratch.path().join("idle"), options.rounds(CALLS))?);
    let peers = Peers::find()?;
    commands(options, &peers, report)?;
    report.made_with(&[
        format!("Linux {}", host::kernel()),
        format!("{} processors", host::cores()),
        format!("hotcell at level `{}`", peers.sandbox.level()),
        format!("SQLite {}", rusqlite::version()),
        format!("files on {}", scratch.file_system().unwrap_or_default()),
    ]);
    Ok(())
}

/// Calls that are on the disk before they happen.
fn durable(
    options: Options,
    scratch: &Scratch,
    calls: &Calls,
    report: &mut Report,
) -> Result<(), Failure> {
    let bytes = calls.bytes_of_one()?;
    let bare = Bare::new(&scratch.path().join("bare.db"), bytes)?;
    let (bare, durable, record) = (bare.contestant(), calls.durable(), calls.record_alone());
    say("a durable call");
    let contestants = [bare, durable, record];
    let samples = rounds::interleave(&contestants, options.rounds(1000), 1)?;
    report.durable(&samples, bytes);
    say(&format!("durable calls per second, {MANY} callers"));
    let [bare, durable, _] = &contestants;
    let lanes = [(bare, 1), (durable, 1), (bare, MANY), (durable, MANY)];
    report.rates_of_calls(&rates(&lanes, options.rounds(20))?);
    Ok(())
}

/// Calls per second of each batch; batches take turns.
fn rates(lanes: &[(&Contestant<'_>, usize)], batches: usize) -> Result<Vec<Rates>, Failure> {
    let new = |&(contestant, callers): &(&Contestant<'_>, usize)| Rates {
        name: contestant.name,
        callers,
        per_second: Vec::new(),
    };
    let mut all: Vec<Rates> = lanes.iter().map(new).collect();
    for number in 0..=batches {
        for ((contestant, callers), rates) in lanes.iter().zip(&mut all) {
            let rate = rounds::batch(contestant, *callers)?;
            // The first one warms up.
            if number > 0 {
                rates.per_second.push(rate);
            }
            thread::sleep(rounds::SETTLE);
        }
    }
    Ok(all)
}

/// What one contestant managed with so many callers.
#[derive(Debug)]
struct Rates {
    name: &'static str,
    callers: usize,
    per_second: Vec<f64>,
}

/// Calls that are recorded with the next ones.
fn buffered(options: Options, calls: &Calls, report: &mut Report) -> Result<(), Failure> {
    say("a buffered call");
    let echo = Echo::new(calls.sizes_of_one()?)?;
    let contestants = [echo.contestant(), calls.buffered(), calls.kept()];
    let samples = rounds::interleave(&contestants, options.rounds(100), 1)?;
    let each: Vec<Samples> = samples.into_iter().map(|samples| of_one(samples, IN_A_ROW)).collect();
    let burst = calls.burst(options.rounds(BURST) as u64)?;
    report.buffered(&each, echo.sizes(), burst);
    Ok(())
}

/// What one needed of so many in a row.
fn of_one(mut samples: Samples, count: usize) -> Samples {
    samples.micros.iter_mut().for_each(|micros| *micros /= count as f64);
    samples
}

/// `hotcell run`, which starts from nothing and leaves nothing but its record.
fn commands(options: Options, peers: &Peers, report: &mut Report) -> Result<(), Failure> {
    report.begin_commands_of_path();
    let python = Program::hello(Language::Python, &[]);
    for (program, rounds) in [(Some(Program::nothing()), 400), (python, 200)] {
        let Some(program) = program else {
            report.skip("`python3 -c`: no interpreter was found on this machine");
            continue;
        };
        say(&format!("`hotcell run` with and without the path, `{}`", program.name));
        let contestants = peers.with_and_without_the_path(&program)?;
        let samples = rounds::interleave(&contestants, options.rounds(rounds), 1)?;
        report.command_of_path(&program.name, &samples);
    }
    Ok(())
}
