//! `hotcell backup` and `hotcell restore`: a home in one file, and a home from one.

use std::path::PathBuf;

use hotcell_record::Standing;
use serde_json::json;

use crate::config::Config;
use crate::print;
use crate::problem::{self, Problem};
use crate::run::report::size;
use crate::{exit, home, progress};

/// What a restored home cannot know.
const CANNOT: &str = "what was recorded after the backup was made: compare with the anchor.log of the \
                      home that was copied (`hotcell audit verify --anchor FILE`)";

/// Copies the home into one file, while others use it
///
/// The record, its key, its anchor and all artifacts are in it, as a tar; the configuration is not, nor are the
/// keys of tokens and of secrets: a restored home has no secrets. Keep it as safe as the home: whoever has the
/// key can sign.
#[derive(Debug, clap::Args)]
pub(crate) struct BackupArgs {
    /// A file that is not there yet
    file: PathBuf,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Makes a home from a backup, and verifies it
///
/// Only where nothing is recorded yet: a new home, or an empty one. HOTCELL_HOME names it. Nothing is put in
/// place unless all of it is what was recorded. Exits as `hotcell audit verify` does.
#[derive(Debug, clap::Args)]
pub(crate) struct RestoreArgs {
    /// What `hotcell backup` made
    file: PathBuf,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub(crate) fn backup(args: BackupArgs) -> u8 {
    back_up(&args).unwrap_or_else(|problem| problem::report(&problem, args.json))
}

fn back_up(args: &BackupArgs) -> Result<u8, Problem> {
    let engine = home::look()?;
    let copy = || engine.backup(&home::caller(), &args.file);
    let copied = progress::while_doing("copying the home", copy)?;
    let (events, contents) = (copied.verdict.events, copied.contents);
    Ok(home::close(
        engine,
        print::data(&if args.json {
            let document = json!({
                "version": 1, "events": events, "contents": contents, "bytes": copied.bytes,
            });
            format!("{document}\n")
        } else {
            let bytes = size(copied.bytes);
            format!("copied: {events} events and {contents} large contents, {bytes}\n")
        }),
    ))
}

pub(crate) fn restore(args: RestoreArgs) -> u8 {
    put_back(&args).unwrap_or_else(|problem| problem::report(&problem, args.json))
}

fn put_back(args: &RestoreArgs) -> Result<u8, Problem> {
    let config = Config::load()?;
    let (home, anchor) = (config.settings().home, config.anchor());
    let restore = || hotcell_engine::restore(&home::caller(), &home, &anchor, &args.file);
    let restored = progress::while_doing("restoring, and verifying", restore)?;
    let code = match restored.verdict.standing {
        _ if !restored.artifacts.is_fine() => exit::ERROR,
        Standing::Sound => 0,
        Standing::Unproven => exit::REFUSED,
        Standing::Broken => exit::ERROR,
    };
    let mut verdict = restored.verdict;
    verdict.cannot.push(CANNOT.into());
    let text = if args.json {
        let document = json!({
            "version": 1, "sound": code == 0, "events": verdict.events,
            "artifacts": restored.artifacts, "missing": verdict.missing,
            "cannot_be_found": verdict.cannot,
        });
        format!("{document}\n")
    } else {
        let artifacts = restored.artifacts.artifacts;
        format!("restored: {artifacts} artifacts and {} events\n{verdict}", verdict.events)
    };
    Ok(print::data_and(&text, code))
}
