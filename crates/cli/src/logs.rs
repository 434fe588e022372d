//! `hotcell logs`: what a call printed, or prints.

use std::io::{self, Write};

use hotcell_engine::{Entry, Listen, Said, Until};
use hotcell_types::{CallId, Status};

use crate::home;
use crate::print::{self, exit_of};
use crate::problem::{self, Problem};

/// Prints what a call printed: its stdout to stdout, its stderr to stderr
///
/// While it goes on, what both streams have is in the order in which it appeared; once it has ended, one
/// comes after the other.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A call, as `hotcell runs` lists it; without it, the newest
    #[arg(value_name = "ID")]
    call: Option<CallId>,
    /// Go on until the call has ended, in whatever process it is
    #[arg(long, short)]
    follow: bool,
    /// Print one JSON document for each piece, with its time, and for what the call uses meanwhile
    #[arg(long)]
    json: bool,
}

pub(crate) fn main(args: Args) -> u8 {
    let json = args.json;
    logs(args).unwrap_or_else(|problem| problem::report(&problem, json))
}

fn logs(args: Args) -> Result<u8, Problem> {
    let engine = home::look()?;
    let call = home::or_newest(&engine, args.call)?;
    let until = if args.follow { Until::TheEnd } else { Until::Now };
    let mut written = Ok(());
    let mut each = |entry: Entry| {
        written = if args.json { tell_json(entry) } else { tell(&entry.what) };
        written.is_ok()
    };
    let shown = engine.logs(&home::caller(), call, Listen::new(until), &mut each)?;
    if !args.json {
        for reason in shown.reviews().filter_map(|event| event.reason.as_ref()) {
            print::to_people(&format!("hotcell: {}\n", print::harmless(reason)));
        }
    }
    if written.is_ok() && args.follow && !args.json && shown.status() == Some(Status::Unknown) {
        print::to_people("hotcell: whoever ran it ended before it did\n");
    }
    Ok(exit_of(written))
}

fn tell(said: &Said) -> io::Result<()> {
    match said {
        Said::Stdout(bytes) => all(&mut io::stdout().lock(), bytes),
        Said::Stderr(bytes) => all(&mut io::stderr().lock(), bytes),
        Said::Used { .. } => Ok(()),
    }
}

fn all(out: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    out.write_all(bytes)?;
    out.flush()
}

fn tell_json(entry: Entry) -> io::Result<()> {
    all(&mut io::stdout().lock(), print::document(&hotcell_api::Log::from(entry)).as_bytes())
}
