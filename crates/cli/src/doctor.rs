//! `hotcell doctor`: what this host can enforce.

use crate::problem::{self, Problem};

/// Says what this host can enforce, and how to get more
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub(crate) fn main(args: Args) -> u8 {
    let problem = Problem::error("`hotcell doctor` is not part of this build");
    problem::report(&problem, args.json)
}
