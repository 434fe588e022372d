//! `hotcell batch`: a line is a job, and each has a result. Read [`run`] from top to bottom.

mod carrier;
mod output;
mod progress;
mod source;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use hotcell_api::batch::{Done, Jobs, Task};
use hotcell_engine::{Brake, Order, Pace, SIDE_BY_SIDE_MOST, WAITING_EACH, side_by_side};
use hotcell_sandbox::cause;
use hotcell_types::Status;

use crate::config::Config;
use crate::problem::{self, Problem};
use crate::signals::Signals;
use crate::{exit, home, print};
use carrier::Carrier;
use output::Output;
use progress::Progress;
use source::Source;

const EXAMPLES: &str = "Examples:
  hotcell batch jobs.jsonl > results.jsonl
  hotcell batch jobs.jsonl --output results.jsonl
  make-jobs | hotcell batch - --jobs 8 --in-order | judge";

const EXITS: &str = "Exit status:
  0       every job has a result, and the status of each is success
  1       every job has a result, and the status of some is another one
  120     error: hotcell itself failed, or the results could not be written
  121     invalid: arguments, or a FILE that cannot be read or written
  127     there is no such FILE
  130     ended by Ctrl-C (143 by SIGTERM, 129 by SIGHUP, 141 when the reader left)";

/// Runs many jobs: one on each line, and a result for each
///
/// A line is a JSON object such as {"id": "a", "run": {"language": "python", "code": "print(1)"}}; `run`
/// and `manner` are those of POST /v1/runs, and `id` is what the result is known by. A line that is wrong has a
/// result that says so, and the rest goes on. With --output, the same command goes on where it was ended, and
/// no job is run twice. docs/batch.md has more. Ctrl-C ends the jobs that run, and records that; a second one
/// does not wait.
#[derive(Debug, clap::Args)]
#[command(after_help = EXITS, after_long_help = format!("{EXAMPLES}\n\n{EXITS}"))]
pub(crate) struct Args {
    /// The jobs; `-` is standard input, and jobs begin before its end is seen
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Write the results to FILE instead of stdout, after those that are there already
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,

    #[arg(long, short, value_name = "N", help = jobs_help(), value_parser = jobs)]
    jobs: Option<usize>,

    #[arg(long, help = order_help())]
    in_order: bool,

    /// Execute every job: fork none from an interpreter that had started, with which runs share some things
    /// (docs/warm.md)
    #[arg(long)]
    no_zygote: bool,
}

fn jobs_help() -> String {
    format!("Jobs at one time, {SIDE_BY_SIDE_MOST} at most [default: the number of processors]")
}

fn order_help() -> String {
    format!(
        "Results in the order of the jobs, not as they finish. Where {WAITING_EACH} times as many wait for an \
         earlier one as there are jobs at one time, nothing is begun until that one has ended"
    )
}

fn jobs(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=SIDE_BY_SIDE_MOST).contains(number));
    number.ok_or_else(|| format!("`{text}` is not such a number: give 1 to {SIDE_BY_SIDE_MOST}"))
}

pub(crate) fn main(args: Args) -> u8 {
    match run(args) {
        Ok(code) => code,
        Err(problem) => problem::report(&problem, false),
    }
}

fn run(args: Args) -> Result<u8, Problem> {
    let mut options = home::options(&Config::load()?, None);
    options.zygotes &= !args.no_zygote;
    let signals = Signals::catch().map_err(failed("catching signals"))?;
    let source = Source::open(&args.file)?;
    let mut output = Output::open(args.output.as_deref())?;
    let brake = Arc::<Brake>::default();
    let carrier = Arc::new(Carrier::find(options)?);
    let (ends, pulls) = (Arc::clone(&carrier), Arc::clone(&brake));
    let signals =
        signals.listen(move || ends.end(&pulls), || ()).map_err(failed("starting a thread"))?;
    let progress = Progress::new(&source, output.is_file());
    let tally = carry_out(&args, source, &mut output, &carrier, &brake, &progress);
    progress.finish();
    let ended = output.close(tally.is_complete(&brake));
    let code = tally.tell(&brake, signals.first(), ended.err());
    Ok(match Arc::into_inner(carrier) {
        Some(carrier) => carrier.close(code),
        // Somebody still ends something: so does this process.
        None => code,
    })
}

fn pace(args: &Args) -> Pace {
    let order = if args.in_order { Order::Given } else { Order::Finished };
    let jobs = args.jobs.unwrap_or(Pace::of_machine().jobs);
    Pace { jobs, order }
}

/// From lines to results. Whatever goes wrong, everything that was begun comes to its end.
fn carry_out(
    args: &Args,
    source: Source,
    output: &mut Output,
    carrier: &Carrier,
    brake: &Brake,
    progress: &Progress,
) -> Tally {
    let mut tally = Tally::default();
    let earlier = output.earlier();
    for status in earlier.statuses() {
        tally.count(status);
        tally.earlier += 1;
        progress.step();
    }
    let mut jobs = Jobs::new(source.reader(brake), output.name());
    let next = move || {
        loop {
            let task = jobs.next().filter(|_| !brake.is_pulled())?;
            match task.map_err(|error| not_read(&error)).and_then(|task| earlier.is_left(task)) {
                Ok(None) => {}
                Ok(Some(task)) => return Some(Ok(task)),
                Err(problem) => return Some(Err(problem)),
            }
        }
    };
    let one = |task: Result<Task, Problem>| task.and_then(|task| carrier.carry_out(task, brake));
    thread::scope(|scope| {
        let tasks = std::iter::from_fn(next);
        for (_, result) in side_by_side(scope, pace(args), tasks, one) {
            let written = match result {
                Ok(Some(done)) => tally.take(&done, output, progress),
                Ok(None) => Ok(()),
                Err(problem) => Err(Failure::Problem(problem)),
            };
            if let Err(failure) = written {
                tally.failure.get_or_insert(failure);
                carrier.end(brake);
            }
        }
    });
    tally
}

/// Why there is no result, or nobody to give it to.
#[derive(Debug)]
enum Failure {
    Problem(Problem),
    /// The reader left.
    Left,
}

/// What there is of each status.
#[derive(Debug, Default)]
struct Tally {
    all: u64,
    /// From when this was begun before.
    earlier: u64,
    by_status: [(u64, Option<Status>); Status::ALL.len()],
    failure: Option<Failure>,
}

impl Tally {
    fn count(&mut self, status: Status) {
        self.all += 1;
        let place = Status::ALL.iter().position(|one| *one == status);
        if let Some(place) = place.and_then(|place| self.by_status.get_mut(place)) {
            *place = (place.0 + 1, Some(status));
        }
    }

    fn of(&self, status: Status) -> u64 {
        let all = self.by_status.iter().filter(|(_, one)| *one == Some(status));
        all.map(|(count, _)| count).sum()
    }

    fn take(
        &mut self,
        done: &Done,
        output: &mut Output,
        progress: &Progress,
    ) -> Result<(), Failure> {
        if matches!(self.failure, Some(Failure::Left)) {
            return Ok(());
        }
        let written = progress.aside(|| output.write(done));
        written.map_err(|error| match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::Left,
            _ => Failure::Problem(Problem::not_written(&error)),
        })?;
        self.count(done.result.status);
        progress.step();
        Ok(())
    }

    /// Whether there is nothing left to do when the batch comes again.
    fn is_complete(&self, brake: &Brake) -> bool {
        self.failure.is_none() && !brake.is_pulled()
    }

    /// A line for people, and the number to exit with.
    fn tell(self, brake: &Brake, signal: Option<u8>, not_closed: Option<io::Error>) -> u8 {
        let is_pulled = brake.is_pulled();
        let counts = self.by_status.iter().filter_map(|(count, status)| Some((count, (*status)?)));
        let counts: Vec<_> =
            counts.map(|(count, status)| format!("{count} {}", status.name())).collect();
        let mut line = match self.all {
            1 => "hotcell: 1 result".to_owned(),
            all => format!("hotcell: {all} results"),
        };
        if !counts.is_empty() {
            line.push_str(&format!(": {}", counts.join(", ")));
        }
        if self.earlier > 0 {
            line.push_str(&format!(" ({} were there already)", self.earlier));
        }
        if is_pulled {
            line.push_str("; the rest was not begun");
        }
        let is_good = self.of(Status::Success) == self.all;
        let not_closed = not_closed.map(|error| Failure::Problem(Problem::not_written(&error)));
        let code = match self.failure.or(not_closed) {
            Some(Failure::Left) => exit::PIPE,
            Some(Failure::Problem(problem)) => problem::report(&problem, false),
            None => match signal {
                Some(signal) => exit::SIGNAL.saturating_add(signal),
                None => u8::from(!is_good),
            },
        };
        print::to_people(&(line + "\n"));
        code
    }
}

fn not_read(error: &io::Error) -> Problem {
    Problem::error("the jobs cannot be read any more").why(cause(error))
}

fn failed(doing: &'static str) -> impl Fn(io::Error) -> Problem {
    move |error| Problem::error(format!("{doing} failed")).why(cause(&error))
}
