//! `hotcell replay`: a recorded call again, and whether the same comes of it.

use hotcell_api::{Difference, Replayed};
use hotcell_types::CallId;

use crate::kernel::Kernel;
use crate::print::{self, harmless};
use crate::problem::{self, Problem};
use crate::{home, progress};

/// Something came out differently.
const DIFFERENT: u8 = 1;

/// Makes a recorded call again, from its recorded arguments and inputs, and compares what comes of it
///
/// It is a new call, judged by today's policy, with the old one as its parent. Status, exit, stdout,
/// stderr and files are compared, and for tools without a program their value; times, ids and usage are
/// not. Exits with 0 if all is the same and 1 if not. Refused if something was not kept: arguments or
/// inputs that were too large, pruned, secret, passed on while it ran, or read from a workspace.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A call, as `hotcell runs` lists it; without it, the newest
    #[arg(value_name = "ID")]
    call: Option<CallId>,
    /// What may differ: the path of a file, a pattern such as `*.log`, or exit, stdout, stderr, value
    #[arg(long, value_name = "PATH")]
    ignore: Vec<String>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub(crate) fn main(args: Args) -> u8 {
    let json = args.json;
    replay(args).unwrap_or_else(|problem| problem::report(&problem, json))
}

fn replay(args: Args) -> Result<u8, Problem> {
    home::database()?;
    let kernel = Kernel::open(None)?;
    let call = kernel.or_newest(args.call)?;
    let again = || kernel.replay(call, args.ignore);
    let replayed = progress::while_doing("making the call again", again)?;
    let code = if replayed.same { 0 } else { DIFFERENT };
    let text = match args.json {
        true => print::document(&replayed),
        false => words(&replayed),
    };
    Ok(kernel.close(print::data_and(&text, code)))
}

fn words(replayed: &Replayed) -> String {
    let list = |names: &[String]| harmless(&names.join(", "));
    let mut text = format!("call {} replays {}\n", replayed.new, replayed.old);
    for Difference { what, was, is } in &replayed.differences {
        let (what, was, is) = (harmless(what), harmless(was), harmless(is));
        text.push_str(&format!("different: {what}\n  was: {was}\n  is:  {is}\n"));
    }
    if replayed.more_differences > 0 {
        text.push_str(&format!("different: {} more\n", replayed.more_differences));
    }
    if replayed.placeholders > 0 {
        let why = "secrets were not recorded, and what comes of it may differ for that alone";
        text.push_str(&format!("placeholders: {} ({why})\n", replayed.placeholders));
    }
    if !replayed.ignored.is_empty() {
        text.push_str(&format!("ignored: {}\n", list(&replayed.ignored)));
    }
    if !replayed.alike.is_empty() {
        text.push_str(&format!("same: {}\n", list(&replayed.alike)));
    }
    text
}
