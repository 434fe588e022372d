//! Warm starts: a Python program to its first output and to its end, executed bare, executed in a sandbox,
//! forked into one made for it, and forked into one that waited.

use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hotcell_sandbox::{Input, Job, Sandbox, Sink, Stdin, in_memory, lang};
use hotcell_types::{Limits, Profile, Start, Template};

use crate::host;
use crate::peers::{BARE, Failure, contestant, open_sandbox};
use crate::report::{Bound, Goal, Report, ratio};
use crate::rounds;
use crate::scratch::Scratch;
use crate::stats::{Samples, find, millis};
use crate::{Options, say};

const CODE: &str = "print(1)\n";
/// The distribution's own: behind no shim.
const PYTHON: &str = "/usr/bin/python3";

const EXECUTED: &str = "hotcell, executed";
const FORKED: &str = "hotcell, forked";
const WAITING: &str = "hotcell, waiting";

/// The promises that are measured here.
const FORKED_OVER_BARE: f64 = 0.20;
const WAITING_OVER_BARE: f64 = 0.06;
const RATE_OVER_BARE: f64 = 3.5;

/// Between two runs: what waits has to be made again, and that is not measured here but by the rates.
const SETTLE: Duration = Duration::from_millis(25);
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
    report.made_with(&[
        format!("Linux {}", host::kernel()),
        format!("{} processors", host::cores()),
        format!("hotcell at level `{}`", python.cold.level()),
        version()?,
    ]);
    say("a Python program, executed, forked and waiting");
    let samples = python.take_turns(options.rounds(300))?;
    report.warm_starts(&samples);
    say("Python programs per second");
    report.warm_rates(&python.rates(options.rounds(20))?);
    Ok(())
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
        let begun = Instant::now();
        let mut command = Command::new(PYTHON);
        let mut child = command.arg("-u").arg(&self.file).stdout(Stdio::piped()).spawn()?;
        let mut stdout = child.stdout.take().ok_or("there is no pipe")?;
        stdout.read_exact(&mut [0; 2])?;
        let first = begun.elapsed();
        child.wait()?;
        Ok([first, begun.elapsed()])
    }

    /// Nothing is made ahead for a job whose limits nobody had before.
    fn forked(&self) -> Result<(Times, Start), Failure> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let mut limits = Template::DEFAULT.limits;
        let files = 5000 + COUNT.fetch_add(1, Ordering::Relaxed) % 4000;
        limits.files = files.to_string().parse().map_err(|_| "a number is no number")?;
        run(&self.fresh, true, limits)
    }

    fn take_turns(&self, rounds: usize) -> Result<Vec<Samples>, Failure> {
        let names = [BARE, EXECUTED, FORKED, WAITING];
        let mut all = names.map(|name| Samples { name, ..Samples::default() });
        let limits = Template::DEFAULT.limits;
        for _ in 0..rounds {
            for samples in &mut all {
                thread::sleep(SETTLE);
                let (times, is_counted) = match samples.name {
                    BARE => (self.bare()?, true),
                    EXECUTED => (run(&self.cold, false, limits)?.0, true),
                    FORKED => {
                        self.forked().map(|(times, start)| (times, start == Start::Forked))?
                    }
                    _ => run(&self.ready, true, limits)
                        .map(|(times, start)| (times, start == Start::Waiting))?,
                };
                if is_counted {
                    let [first, end] = times.map(|time| time.as_micros() as u64);
                    samples.micros.push(end as f64);
                    samples.stages.push([first, 0, 0, 0, 0]);
                }
            }
        }
        Ok(all.into())
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
    let profile = Profile::Standard;
    let job = Job { command, env, stdin, inputs, working_copy, limits, profile };
    let begun = Instant::now();
    let mut first = First(None);
    let outcome = sandbox.start(job)?.wait(&mut first, None)?;
    let end = begun.elapsed();
    let first = first.0.ok_or("it printed nothing")?.duration_since(begun);
    Ok(([first, end], outcome.start))
}

impl Report {
    fn warm_starts(&mut self, samples: &[Samples]) {
        self.heading(
            "`python3 -u FILE`, which prints 1: to its first output, and until nothing is left",
        );
        self.tables += "| who | rounds | first output, median ms | × bare | p10 ms | median ms | p99 ms | × bare |\n\
                        |---|---|---|---|---|---|---|---|\n";
        let first = |one: &Samples| one.stage_medians().first().copied().unwrap_or(f64::NAN);
        let bare = find(samples, BARE);
        for one in samples {
            let over =
                |of: &dyn Fn(&Samples) -> f64| bare.map_or(f64::NAN, |bare| of(one) / of(bare));
            self.tables += &format!(
                "| {} | {} | {} | {} | {} | {} | {} | {} |\n",
                one.name,
                one.micros.len(),
                millis(first(one)),
                ratio(over(&first)),
                millis(one.p10()),
                millis(one.median()),
                millis(one.p99()),
                ratio(over(&Samples::median)),
            );
        }
        for (who, most) in [(FORKED, FORKED_OVER_BARE), (WAITING, WAITING_OVER_BARE)] {
            let Some((one, bare)) = find(samples, who).zip(bare) else { continue };
            let tenth = |of: &Samples| {
                let first: Vec<f64> = of.stages.iter().map(|[first, ..]| *first as f64).collect();
                crate::stats::percentile(&first, 10.0)
            };
            self.promise(Goal {
                what: format!("first output, {who} over bare"),
                bound: Bound::AtMost(most),
                unit: "×",
                got: first(one) / first(bare),
                undisturbed: tenth(one) / tenth(bare),
            });
        }
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
