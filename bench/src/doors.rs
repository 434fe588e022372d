//! The doors: calls over HTTP beside a bare axum handler and beside the same in process, what a burst gets,
//! what a server needs of memory, and `hotcell run` through a resident.

mod client;
mod resident;
mod server;
mod tables;

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use hotcell_api::{self as api, With};
use hotcell_engine::{Attached, Engine};
use hotcell_types::{Caller, Door, Name, Status};
use serde_json::json;

use crate::host;
use crate::path::{Memory, calls};
use crate::peers::{Failure, contestant};
use crate::report::Report;
use crate::rounds;
use crate::scratch::Scratch;
use crate::stats::Samples;
use crate::{Options, say};
use client::{Answered, Ask, Client, Single, Until};
use server::{Served, Share};

pub(crate) use server::{Role, play};

/// Connections at one time.
const MANY: usize = 64;
/// Requests at one moment.
const BURST: usize = 1000;
/// After so many requests everything is there that is made with its first use.
const FIRST: u64 = 1000;
/// Requests after which a server needs as much memory as before.
const REQUESTS: usize = 100_000;
/// One batch of requests without a pause. What is recorded later is a small part of it.
const BATCH: Duration = Duration::from_millis(500);
/// What a batch leaves to be recorded is written in here, and not in the next one's time.
const SETTLE: Duration = Duration::from_millis(100);

const AXUM: &str = "bare axum";
const HOTCELL: &str = "hotcell";
const DURABLE: &str = "hotcell, durable calls";
const IN_PROCESS: &str = "in process";
const REST: &str = "over HTTP";

/// One measurement after the other, each with its peers.
pub(crate) fn measure(options: Options, report: &mut Report) -> Result<(), Failure> {
    let scratch = Scratch::new()?;
    server::raise_open_files();
    report.made_with(&[
        format!("Linux {}", host::kernel()),
        format!("{} processors", host::cores()),
        format!("files on {}", scratch.file_system().unwrap_or_default()),
        resident::python_version()?,
    ]);
    report.requests(&requests(options, scratch.path())?);
    report.sandboxed(&sandboxed(options, scratch.path())?);
    report.bursts(&bursts(options, scratch.path())?);
    report.server_memory(&memory(options, scratch.path())?);
    report.through_resident(&resident::measure(options)?);
    Ok(())
}

/// What one server managed, in each of its batches.
#[derive(Debug)]
struct Rates {
    name: &'static str,
    per_second: Vec<f64>,
    /// Bytes of a request and of its answer, bodies only.
    sizes: [usize; 2],
    /// Processor time of a request, in microseconds: the server's and the client's.
    server_micros: f64,
    client_micros: f64,
}

/// One of those who take turns.
struct Lane<'a> {
    server: &'a Served,
    client: Client,
    ask: fn(u64) -> Ask,
    spent: [f64; 2],
    requests: f64,
    rates: Rates,
}

impl<'a> Lane<'a> {
    fn new(name: &'static str, server: &'a Served, ask: fn(u64) -> Ask) -> Result<Self, Failure> {
        let client = Client::new(server.target(), MANY, Share::Second)?;
        let sizes = [ask(1).body().len(), server.asked_once(&ask(1))?.body.len()];
        let (per_second, server_micros, client_micros) = (Vec::new(), 0.0, 0.0);
        let rates = Rates { name, per_second, sizes, server_micros, client_micros };
        Ok(Lane { server, client, ask, spent: [0.0; 2], requests: 0.0, rates })
    }

    fn batch(&mut self, is_counted: bool) -> Result<(), Failure> {
        let before = [self.server.spent()?, host::spent(std::process::id())?];
        let (requests, took) = self.client.load(self.ask, Until::Over(BATCH))?;
        thread::sleep(SETTLE);
        let after = [self.server.spent()?, host::spent(std::process::id())?];
        if is_counted {
            self.rates.per_second.push(requests as f64 / took.as_secs_f64());
            self.requests += requests as f64;
            for (sum, (after, before)) in self.spent.iter_mut().zip(after.iter().zip(before)) {
                *sum += after - before;
            }
        }
        Ok(())
    }

    fn rates(mut self) -> Rates {
        let [server, client] = self.spent.map(|seconds| seconds * 1e6 / self.requests);
        (self.rates.server_micros, self.rates.client_micros) = (server, client);
        self.rates
    }
}

/// Requests per second of both servers, on the same processors; the client has the others.
fn requests(options: Options, scratch: &Path) -> Result<Vec<Rates>, Failure> {
    say(&format!("requests per second, {MANY} connections"));
    let axum = Served::start(Role::Axum, scratch, Share::First)?;
    let hotcell = Served::start(Role::Hotcell, &scratch.join("rates"), Share::First)?;
    let mut lanes = [
        Lane::new(AXUM, &axum, Ask::add)?,
        Lane::new(HOTCELL, &hotcell, Ask::add)?,
        Lane::new(DURABLE, &hotcell, Ask::write)?,
    ];
    for number in 0..=options.rounds(40) {
        // A B C, C B A, …: nobody always comes after the same one. The first round warms up.
        let turn = |lane: &mut Lane<'_>| lane.batch(number > 0);
        match number % 2 {
            0 => lanes.iter_mut().try_for_each(turn)?,
            _ => lanes.iter_mut().rev().try_for_each(turn)?,
        }
    }
    Ok(lanes.into_iter().map(Lane::rates).collect())
}

/// `/bin/true` in a sandbox, asked for over HTTP and in this process.
fn sandboxed(options: Options, scratch: &Path) -> Result<Vec<Samples>, Failure> {
    say("`/bin/true` in a sandbox, in process and over HTTP");
    let engine = calls::engine(&scratch.join("in-process"), None)?;
    let served = Served::start(Role::Hotcell, &scratch.join("over-http"), Share::All)?;
    let client = Single::new(served.target())?;
    let contestants = [
        contestant(IN_PROCESS, || in_process(&engine).map(|()| None)),
        contestant(REST, || client.succeeds(&Ask::nothing()).map(|()| None)),
    ];
    rounds::interleave(&contestants, options.rounds(400), 1)
}

fn in_process(engine: &Engine) -> Result<(), Failure> {
    let mut ask = Ask::nothing().body_as_value();
    if let Some(ask) = ask.as_object_mut() {
        ask.insert("ask".into(), json!("run"));
    }
    let (interrupt, caller) = (AtomicBool::new(false), Caller::local(Name::LOCAL, Door::Library));
    let with = With { attached: Attached::default(), interrupt: &interrupt, log: &mut |_, _| true };
    match api::answer(engine, &caller, serde_json::from_value(ask)?, with) {
        Ok(api::Answer::Called(called)) if called.status == Status::Success => Ok(()),
        other => Err(format!("`/bin/true`: {other:?}").into()),
    }
}

/// Many requests at one moment, several times.
fn bursts(options: Options, scratch: &Path) -> Result<Vec<Answered>, Failure> {
    say(&format!("{BURST} requests at once"));
    let served = Served::start(Role::Hotcell, &scratch.join("burst"), Share::All)?;
    let mut client = Client::new(served.target(), BURST, Share::All)?;
    let mut all = Vec::new();
    for _ in 0..options.rounds(20) {
        all.extend(client.burst(Ask::add)?);
        thread::sleep(SETTLE);
    }
    Ok(all)
}

/// How much a server has after so many requests, of which one in ten is durable.
fn memory(options: Options, scratch: &Path) -> Result<Vec<(u64, Memory)>, Failure> {
    say("the memory of a server");
    let served = Served::start(Role::Hotcell, &scratch.join("memory"), Share::All)?;
    let mut client = Client::new(served.target(), MANY, Share::All)?;
    let mixed = |number| if number % 10 == 0 { Ask::write(number) } else { Ask::add(number) };
    let mut all = vec![(0, served.memory()?)];
    let mut made = 0;
    for further in [FIRST, options.rounds(REQUESTS) as u64] {
        client.load(mixed, Until::Made(further))?;
        thread::sleep(SETTLE);
        made += further;
        all.push((made, served.memory()?));
    }
    Ok(all)
}
