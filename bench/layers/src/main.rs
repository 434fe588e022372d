//! What each layer of the jail adds to a run of `/bin/true`, by leaving out one at a time.
//!
//! Prints a line per layer: its name, the work that it adds and the latency that it adds, in
//! microseconds, with tabs between. The first line is the run with every layer on.
//!
//! Two columns, because much of a cell is made ahead, beside the job before: *work* is measured with
//! everything on one processor and no pause, so that nothing can be done beside anything else;
//! *latency* with all processors and pauses, which is what a job waits for. Reading back is left out of
//! both: it ends early in a run that has a hole. The harness has it as the stage `attest`.

use std::collections::BTreeMap;
use std::error::Error;
use std::thread::sleep;
use std::time::{Duration, Instant};

use hotcell_sandbox::{Command, Holes, Job, Network, Sandbox, Settings, Sink, Stdin, hole};
use hotcell_types::{Level, Stage, Status, Template};
use rustix::thread::{CpuSet, sched_setaffinity};

/// Runs in a row, of which the first, before which others ran, does not count.
const BATCH: usize = 9;
/// Before a run whose latency counts: the spare cell is there, and what ran before is gone.
const SETTLE: Duration = Duration::from_millis(4);

struct Variant {
    name: &'static str,
    sandbox: Sandbox,
    holes: Holes,
    micros: Vec<f64>,
}

struct Silent;

impl Sink for Silent {
    fn stdout(&mut self, _: &[u8]) {}
    fn stderr(&mut self, _: &[u8]) {}
}

fn main() -> Result<(), Box<dyn Error>> {
    let rounds = std::env::args().nth(1).map_or(Ok(40), |rounds| rounds.parse())?;
    let latency = measure(rounds * BATCH / 3, |variant| {
        sleep(SETTLE);
        run_once(variant)
    })?;
    // Everything that is started from here on inherits it.
    let mut one = CpuSet::new();
    one.set(rustix::thread::sched_getcpu());
    sched_setaffinity(None, &one)?;
    let work = measure(rounds, |variant| {
        run_once(variant)?;
        let all: Result<Vec<f64>, _> = (1..BATCH).map(|_| run_once(variant)).collect();
        all.map(|all| all.iter().sum::<f64>() / all.len() as f64)
    })?;
    let (Some((_, work_full)), Some((_, latency_full))) = (work.first(), latency.first()) else {
        return Err("nothing was measured".into());
    };
    println!("everything (less reading back)\t{work_full:.1}\t{latency_full:.1}");
    for ((name, work), (_, latency)) in work.iter().zip(&latency).skip(1) {
        println!("{name}\t{:.1}\t{:.1}", work_full - work, latency_full - latency);
    }
    Ok(())
}

/// What each variant needs when it is disturbed little: the fifth that is fastest ends there. They take
/// turns.
fn measure(
    rounds: usize,
    once: impl Fn(&Variant) -> Result<f64, Box<dyn Error>>,
) -> Result<Vec<(&'static str, f64)>, Box<dyn Error>> {
    let mut variants = variants()?;
    for variant in &variants {
        (0..4).try_for_each(|_| run_once(variant).map(drop))?;
    }
    for round in 0..rounds {
        let count = variants.len();
        for turn in 0..count {
            if let Some(variant) = variants.get_mut((round + turn) % count) {
                variant.micros.push(once(variant)?);
            }
        }
    }
    Ok(variants.into_iter().map(|v| (v.name, undisturbed(v.micros))).collect())
}

/// Disturbances only ever add, and one layer is a small part of a run: differences of medians drown.
fn undisturbed(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 5).copied().unwrap_or(f64::NAN)
}

/// Each with a launcher and a spare cell of its own. The first has no hole.
fn variants() -> Result<Vec<Variant>, Box<dyn Error>> {
    let layer = |name, layers| (name, Holes { layers, ..Holes::default() });
    let all = [
        ("everything", Holes::default()),
        layer("network namespace", hole::NET),
        layer("ipc namespace", hole::IPC),
        layer("uts namespace", hole::UTS),
        layer("pid namespace and its /proc", hole::PID),
        layer("cgroup namespace", hole::CGROUP_NAMESPACE),
        ("cgroup: make, enter, read back, remove", Holes { cgroup: true, ..Holes::default() }),
        layer("Landlock", hole::LANDLOCK),
        ("seccomp filter", Holes { seccomp: true, ..Holes::default() }),
        layer("capabilities", hole::CAPABILITIES),
        layer("rlimits", hole::RLIMITS),
        ("an id of its own", Holes { own_id: true, ..Holes::default() }),
        layer("session", hole::SESSION),
        layer("keyring", hole::KEYRING),
        layer("opaque init", hole::DUMPABLE),
    ];
    let open = |(name, holes)| {
        let home = std::env::temp_dir().join("hotcell-bench");
        let sandbox = Sandbox::open(&Settings { minimum: Level::NoProc, home })?;
        Ok(Variant { name, sandbox, holes, micros: Vec::new() })
    };
    all.into_iter().map(open).collect()
}

/// Microseconds of one run, without reading back.
fn run_once(variant: &Variant) -> Result<f64, Box<dyn Error>> {
    let command = Command {
        program: std::fs::canonicalize("/bin/true")?,
        args: vec!["true".into()],
        read_only: Vec::new(),
        tree: None,
        note: None,
        forks: false,
    };
    let job = Job {
        command,
        env: BTreeMap::new(),
        stdin: Stdin::Empty,
        inputs: Vec::new(),
        working_copy: None,
        limits: Template::DEFAULT.limits,
        profile: Template::DEFAULT.profile,
        network: Network::None,
        holes: variant.holes,
    };
    let begun = Instant::now();
    let outcome = variant.sandbox.start(job)?.wait(&mut Silent, None)?;
    let micros = begun.elapsed().as_secs_f64() * 1e6;
    if outcome.status != Status::Success {
        return Err(format!("{}: {:?}", variant.name, outcome.status).into());
    }
    let attest = outcome.timings.iter().find(|timing| timing.stage == Stage::Attest);
    Ok(micros - attest.map_or(0.0, |timing| timing.micros as f64))
}
