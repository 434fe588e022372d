//! Warm starts: a Python program to its first output and to its end, executed bare, executed in a sandbox,
//! forked into one made for it, and forked into one that waited.

mod beside;
mod packages;
mod recorded;
mod sandlock;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hotcell_sandbox::{Input, Job, Network, Sandbox, Sink, Stdin, in_memory, lang};
use hotcell_types::{Limits, Profile, Start, Template};

use crate::host;
use crate::memory;
use crate::peers::{BARE, BWRAP, Failure, contestant, open_sandbox, under_bwrap};
use crate::report::{Bound, Goal, Report, ratio};
use crate::rounds;
use crate::scratch::Scratch;
use crate::stats::{Samples, find, millis, percentile};
use crate::{Options, say};
use recorded::Recorded;
use sandlock::Sandlock;

const CODE: &str = "print(1)\n";
/// The distribution's own: behind no shim.
const PYTHON: &str = "/usr/bin/python3";

const EXECUTED: &str = "hotcell, executed";
const FORKED: &str = "hotcell, forked";
const WAITING: &str = "hotcell, waiting";
const RECORDED: &str = "hotcell, waiting, recorded";
const SANDLOCK: &str = "sandlock";

/// The promises that are measured here.
const FORKED_OVER_BARE: f64 = 0.20;
const WAITING_OVER_BARE: f64 = 0.06;
const RATE_OVER_BARE: f64 = 3.5;
const WAITING_KB: f64 = 3.0 * 1000.0;

/// Between two runs: what waits has to be made again, and that is not measured here but by the rates.
const SETTLE: Duration = Duration::from_millis(25);
/// Until the next one waits, once one has been used.
const HATCHES: Duration = Duration::from_secs(1);
/// How long it may take until something can be forked.
const HATCHED_WITHIN: Duration = Duration::from_secs(20);

/// When something was printed, and when everything was over, counted from the beginning.
type Times = [Duration; 2];

pub(crate) fn measure(options: Options, report: &mut Report) -> Result<(), Failure> {
    let scratch = Scratch::new()?;
    let file = scratch.path().join("main.py");
    std::fs::write(&file, CODE)?;
    let python =
        Python { file, cold: open_sandbox()?, fresh: open_sandbox()?, ready: open_sandbox()? };
    python.warm_up()?;
    let recorded = Recorded::new(Scratch::new()?, CODE, None)?;
    recorded.warm_up()?;
    let sandlock = Sandlock::start(&packages_python(), "1\n", &[PYTHON, "-c", CODE]);
    if let Err(why) = &sandlock {
        report.skip(&format!("sandlock: {why}"));
    }
    report.skip("nsjail: there is no package of it to install it from");
    report.made_with(&[
        format!("Linux {}", host::kernel()),
        format!("{} processors", host::cores()),
        format!("hotcell at level `{}`", python.cold.level()),
        version()?,
    ]);
    say("a Python program, executed, forked and waiting");
    let samples = python.take_turns(options.rounds(300), &recorded, sandlock.as_ref().ok())?;
    report.warm_starts(&samples);
    say("Python programs per second");
    report.warm_rates(&python.rates(options.rounds(20))?);
    say("the memory of what waits");
    python.warm_up()?;
    thread::sleep(HATCHES);
    report.waiting_memory(memory::waiting());
    drop((python, recorded));
    beside::measure(options, report)?;
    packages::measure(options, report)
}

/// The interpreter that has what the package index has: sandlock, and HumanEval's problems.
fn packages_python() -> String {
    std::env::var("HOTCELL_BENCH_PYTHON").unwrap_or_else(|_| "python3".into())
}

fn version() -> Result<String, Failure> {
    let output = Command::new(PYTHON).arg("--version").output()?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The program and everybody who runs it, each with a sandbox of their own.
#[derive(Debug)]
struct Python {
    file: PathBuf,
    cold: Sandbox,
    fresh: Sandbox,
    ready: Sandbox,
}

impl Python {
    fn warm_up(&self) -> Result<(), Failure> {
        for sandbox in [&self.fresh, &self.ready] {
            let begun = Instant::now();
            while run(sandbox, true, Template::DEFAULT.limits)?.1 != Start::Waiting {
                if begun.elapsed() > HATCHED_WITHIN {
                    return Err("nothing is ever forked here".into());
                }
                thread::sleep(SETTLE);
            }
        }
        Ok(())
    }

    fn bare(&self) -> Result<Times, Failure> {
        let mut command = Command::new(PYTHON);
        command.arg("-u").arg(&self.file);
        first_output(command)
    }

    /// Nothing is made ahead for a job whose limits nobody had before.
    fn forked(&self) -> Result<(Times, Start), Failure> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let mut limits = Template::DEFAULT.limits;
        let files = 5000 + COUNT.fetch_add(1, Ordering::Relaxed) % 4000;
        limits.files = files.to_string().parse().map_err(|_| "a number is no number")?;
        run(&self.fresh, true, limits)
    }

    fn take_turns(
        &self,
        rounds: usize,
        recorded: &Recorded,
        sandlock: Option<&Sandlock>,
    ) -> Result<Vec<Samples>, Failure> {
        let has_bwrap = Path::new("/usr/bin/bwrap").exists();
        let names = [
            Some(BARE),
            has_bwrap.then_some(BWRAP),
            sandlock.map(|_| SANDLOCK),
            Some(EXECUTED),
            Some(FORKED),
            Some(WAITING),
            Some(RECORDED),
        ];
        let names = names.into_iter().flatten();
        let mut all: Vec<_> = names.map(|name| Samples { name, ..Samples::default() }).collect();
        let limits = Template::DEFAULT.limits;
        for _ in 0..rounds {
            for samples in &mut all {
                thread::sleep(SETTLE);
                let (times, is_counted) = match samples.name {
                    BARE => (self.bare()?, true),
                    BWRAP => (first_output(under_bwrap(PYTHON, &self.file))?, true),
                    SANDLOCK => {
                        let begun = Instant::now();
                        sandlock.map_or(Ok(()), Sandlock::run)?;
                        // It hands over what was printed when everything is over.
                        let end = begun.elapsed();
                        ([end, end], true)
                    }
                    RECORDED => {
                        recorded.run().map(|(times, start)| (times, start == Start::Waiting))?
                    }
                    EXECUTED => (run(&self.cold, false, limits)?.0, true),
                    FORKED => {
                        self.forked().map(|(times, start)| (times, start == Start::Forked))?
                    }
                    _ => run(&self.ready, true, limits)
                        .map(|(times, start)| (times, start == Start::Waiting))?,
                };
                if is_counted {
                    note(samples, times);
                }
            }
        }
        Ok(all)
    }

    fn rates(&self, batches: usize) -> Result<[Vec<(&'static str, f64)>; 2], Failure> {
        let limits = Template::DEFAULT.limits;
        let contestants = [
            contestant(BARE, || self.bare().map(|_| None)),
            contestant(EXECUTED, || run(&self.cold, false, limits).map(|_| None)),
            contestant(FORKED, || run(&self.ready, true, limits).map(|_| None)),
        ];
        Ok([rounds::rates(&contestants, batches, 1)?, rounds::rates(&contestants, batches, 2)?])
    }
}

fn note(samples: &mut Samples, times: Times) {
    let [first, end] = times.map(|time| time.as_micros() as u64);
    samples.micros.push(end as f64);
    samples.stages.push([first, 0, 0, 0, 0]);
}

/// A command that prints two bytes, and ends well.
fn first_output(mut command: Command) -> Result<Times, Failure> {
    let begun = Instant::now();
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let mut stdout = child.stdout.take().ok_or("there is no pipe")?;
    let printed = stdout.read_exact(&mut [0; 2]);
    let first = begun.elapsed();
    let status = child.wait()?;
    printed?;
    match status.success() {
        true => Ok([first, begun.elapsed()]),
        false => Err(format!("{command:?} ended with {status}").into()),
    }
}

/// Notes when the first output came.
struct First(Option<Instant>);

impl Sink for First {
    fn stdout(&mut self, _: &[u8]) {
        self.0.get_or_insert_with(Instant::now);
    }

    fn stderr(&mut self, _: &[u8]) {}
}

fn run(sandbox: &Sandbox, forks: bool, limits: Limits) -> Result<(Times, Start), Failure> {
    let command = hotcell_sandbox::Command {
        program: std::fs::canonicalize(PYTHON)?,
        args: [PYTHON, "-u", "/work/main.py"].map(Into::into).into(),
        read_only: Vec::new(),
        tree: None,
        note: None,
        forks,
    };
    let input = Input { name: "main.py".into(), file: in_memory(CODE.as_bytes())? };
    let mut env = lang::runtime_env(&limits);
    env.insert("PATH".into(), lang::search_path(&command));
    let (stdin, inputs, working_copy) = (Stdin::Empty, vec![input], None);
    let (profile, network) = (Profile::Standard, Network::None);
    let job = Job { command, env, stdin, inputs, working_copy, limits, profile, network };
    let begun = Instant::now();
    let mut first = First(None);
    let outcome = sandbox.start(job)?.wait(&mut first, None)?;
    let end = begun.elapsed();
    let first = first.0.ok_or("it printed nothing")?.duration_since(begun);
    Ok(([first, end], outcome.start))
}

/// When the first output came.
fn first(samples: &Samples, percent: f64) -> f64 {
    let first: Vec<f64> = samples.stages.iter().map(|[first, ..]| *first as f64).collect();
    percentile(&first, percent)
}

impl Report {
    fn warm_starts(&mut self, samples: &[Samples]) {
        self.heading(
            "`python3 -u FILE`, which prints 1: to its first output, and until nothing is left",
        );
        self.first_outputs(samples);
        for (who, most) in [(FORKED, FORKED_OVER_BARE), (WAITING, WAITING_OVER_BARE)] {
            self.over_first_output(samples, who, most, "");
        }
    }

    /// One line each, with the ratios to bare.
    fn first_outputs(&mut self, samples: &[Samples]) {
        self.tables += "| who | rounds | first output, median ms | × bare | p10 ms | median ms | p99 ms | × bare |\n\
                        |---|---|---|---|---|---|---|---|\n";
        let bare = find(samples, BARE);
        for one in samples {
            let over =
                |of: &dyn Fn(&Samples) -> f64| bare.map_or(f64::NAN, |bare| of(one) / of(bare));
            self.tables += &format!(
                "| {} | {} | {} | {} | {} | {} | {} | {} |\n",
                one.name,
                one.micros.len(),
                millis(first(one, 50.0)),
                ratio(over(&|of| first(of, 50.0))),
                millis(one.p10()),
                millis(one.median()),
                millis(one.p99()),
                ratio(over(&Samples::median)),
            );
        }
    }

    fn over_first_output(&mut self, samples: &[Samples], who: &str, most: f64, what: &str) {
        let Some((one, bare)) = find(samples, who).zip(find(samples, BARE)) else { return };
        self.promise(Goal {
            what: format!("first output, {what}{who} over bare"),
            bound: Bound::AtMost(most),
            unit: "×",
            got: first(one, 50.0) / first(bare, 50.0),
            undisturbed: first(one, 10.0) / first(bare, 10.0),
        });
    }

    fn waiting_memory(&mut self, measured: Result<f64, Failure>) {
        let got = match measured {
            Ok(got) => got,
            Err(error) => {
                return self.skip(&format!("memory: {error} (reading it needs root)"));
            }
        };
        self.promise(Goal {
            what: "unshared memory of an interpreter that waits, its kernel memory included".into(),
            bound: Bound::AtMost(WAITING_KB),
            unit: "kB",
            got,
            undisturbed: got,
        });
    }

    fn warm_rates(&mut self, [one, two]: &[Vec<(&'static str, f64)>; 2]) {
        self.heading("Runs per second, without a pause between them");
        self.tables += "| who | 1 worker | 2 workers | × bare, 1 / 2 |\n|---|---|---|---|\n";
        let of = |rates: &[(&str, f64)], who: &str| {
            rates.iter().find(|(name, _)| *name == who).map_or(f64::NAN, |(_, rate)| *rate)
        };
        for who in [BARE, EXECUTED, FORKED] {
            let (first, second) = (of(one, who), of(two, who));
            let (over_one, over_two) = (first / of(one, BARE), second / of(two, BARE));
            self.tables += &format!(
                "| {who} | {first:.0} | {second:.0} | {} / {} |\n",
                ratio(over_one),
                ratio(over_two)
            );
        }
        let got = of(two, FORKED) / of(two, BARE);
        self.promise(Goal {
            what: "runs per second with 2 workers, forked over bare".into(),
            bound: Bound::AtLeast(RATE_OVER_BARE),
            unit: "×",
            got,
            undisturbed: got,
        });
    }
}
