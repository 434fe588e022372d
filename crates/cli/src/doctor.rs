//! `hotcell doctor`: what this host can enforce, tried and not guessed.

mod probe;
mod report;

use hotcell_types::{Level, Status};

use crate::config::Config;
use crate::{exit, print, problem};
use probe::Probe;

/// Says what this host can enforce, and how to get more
///
/// Really runs a small program in a sandbox, and lists every layer as it was read back, the level that
/// they make, what keeps this host from the next one with the command that would change it, and the
/// interpreters that a run can use. Ends with 0 if the lowest accepted level is reached and the run
/// worked, otherwise with 122. docs/doctor.md explains each reason and the JSON document.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub(crate) fn main(args: Args) -> u8 {
    let config = match Config::load() {
        Ok(config) => config,
        Err(problem) => return problem::report(&problem, args.json),
    };
    let (level, source) = config.min_level();
    let minimum = Minimum { level, source: source.into() };
    let probe = Probe::of_this_host(&config.settings().home);
    let text =
        if args.json { report::document(&probe, &minimum) } else { report::text(&probe, &minimum) };
    print::data_and(&text, if is_well(&probe, &minimum) { 0 } else { exit::REFUSED })
}

/// What the operator accepts.
#[derive(Debug)]
struct Minimum {
    level: Level,
    source: String,
}

impl Minimum {
    fn is_met(&self, probe: &Probe) -> bool {
        probe.diagnosis.level.is_some_and(|level| level >= self.level)
    }
}

fn is_well(probe: &Probe, minimum: &Minimum) -> bool {
    let ran = probe.run.result.as_ref().is_ok_and(|outcome| outcome.status == Status::Success);
    ran && minimum.is_met(probe)
}
