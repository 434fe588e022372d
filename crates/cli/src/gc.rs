//! `hotcell gc`: makes room in the home, and the word of warning when it gets full.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use hotcell_engine::{Amount, Collected, Engine, Full, Gc, Keep};
use hotcell_record::Compacted;
use hotcell_types::{Bytes, Span};
use serde_json::json;

use crate::config::Config;
use crate::print;
use crate::problem::{self, Problem};
use crate::run::report::size;
use crate::{home, progress};

/// Removes old contents, so that the home stays within its quota
///
/// What goes are contents of artifacts, and arguments and results of calls: the oldest first, until the home
/// is within its quota, and with --keep everything that is older; of arguments and results also what the
/// settings `record.keep` and `record.most` do not have kept. The chain stays, and with it what everything
/// was and when; so does the content of whatever has a tag or a verdict. Environments that no name stands for
/// and no run uses go in any case. Others may use the home meanwhile.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only say what would be removed, to the minute
    #[arg(long)]
    dry_run: bool,
    /// Remove all that is older than this, such as 30d or 12h
    #[arg(long, value_name = "AGE")]
    keep: Option<Age>,
    /// The most that the home may have on the disk [default: the setting `quota`]
    #[arg(long, value_name = "SIZE")]
    quota: Option<Bytes>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Days, or what a time is otherwise written as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Age(pub(crate) Duration);

impl fmt::Display for Age {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DAY: u64 = 24 * 3600;
        match self.0.as_secs() {
            seconds if seconds.is_multiple_of(DAY) => write!(f, "{}d", seconds / DAY),
            seconds if seconds.is_multiple_of(3600) => write!(f, "{}h", seconds / 3600),
            seconds => write!(f, "{seconds}s"),
        }
    }
}

impl FromStr for Age {
    type Err = String;

    fn from_str(text: &str) -> Result<Age, String> {
        if let Some(days) = text.strip_suffix('d') {
            let hours = days.parse::<u32>().ok().and_then(|days| days.checked_mul(24));
            let hours = hours.ok_or("it is not a number of days: write 30d")?;
            return Ok(Age(Duration::from_secs(u64::from(hours) * 3600)));
        }
        let form = || format!("`{text}` is not an age: write a whole number with d, h, m or s");
        text.parse::<Span>().map(|span| Age(span.duration())).map_err(|_| form())
    }
}

pub(crate) fn main(args: Args) -> u8 {
    let json = args.json;
    collect(args).unwrap_or_else(|problem| problem::report(&problem, json))
}

fn collect(args: Args) -> Result<u8, Problem> {
    let config = Config::load()?;
    let quota = args.quota.unwrap_or(config.quota()).get();
    let payloads = config.retention();
    let engine = home::look()?;
    let gc = if args.dry_run { Gc::OnlyTell } else { Gc::Remove };
    let keep = Keep { age: args.keep.map(|age| age.0), quota, payloads };
    let collect = || engine.gc(&home::caller(), keep.clone(), gc);
    let collected = progress::while_doing("looking for what can go", collect)?;
    let Collected { contents, environments, payloads, used, compacted } = collected;
    let text = if args.json {
        let amount = |amount: Amount| json!({ "count": amount.count, "bytes": amount.bytes });
        let document = json!({
            "version": 1, "dry_run": args.dry_run, "artifact_contents": amount(contents),
            "environments": amount(environments), "payloads": amount(payloads),
            "used_bytes": used, "quota_bytes": quota, "record": compacted.map(document),
        });
        format!("{document}\n")
    } else {
        let verb = if args.dry_run { "would be removed" } else { "removed" };
        format!(
            "{verb}: {} contents of artifacts ({}), {} arguments and results ({}){}\n\
             used before: {} of {}\n{}",
            contents.count,
            size(contents.bytes),
            payloads.count,
            size(payloads.bytes),
            of_environments(environments),
            size(used),
            size(quota),
            compacted.map(words).unwrap_or_default(),
        )
    };
    Ok(home::close(engine, print::data(&text)))
}

/// Most homes have none.
fn of_environments(amount: Amount) -> String {
    match amount.count {
        0 => String::new(),
        count => format!(", {count} environments ({})", size(amount.bytes)),
    }
}

/// What became of the record's own file.
fn words(compacted: Compacted) -> String {
    match compacted {
        Compacted::NotWorth => String::new(),
        Compacted::Smaller { before, after } => {
            format!("the record: {} before, {} now\n", size(before), size(after))
        }
        Compacted::InUse => {
            "the record: it has room inside that was not given back, since others use the \
                             home; `hotcell gc` when nobody does\n"
                .into()
        }
        Compacted::TooMuch => {
            "the record: it has room inside that was not given back, since there is too \
                               much to write anew; it is used for what comes next\n"
                .into()
        }
    }
}

fn document(compacted: Compacted) -> serde_json::Value {
    match compacted {
        Compacted::NotWorth => json!({ "compacted": false, "why": "not_worth" }),
        Compacted::InUse => json!({ "compacted": false, "why": "in_use" }),
        Compacted::TooMuch => json!({ "compacted": false, "why": "too_much" }),
        Compacted::Smaller { before, after } => {
            json!({ "compacted": true, "bytes_before": before, "bytes": after })
        }
    }
}

/// At the end of a run, once a day at most.
pub(crate) fn warn(engine: &Engine, quota: Bytes, record: u64) {
    let Some(room) = engine.is_nearly_full(quota.get(), record) else { return };
    for (what, full) in [("the home", room.home), ("the record", room.record)] {
        if let Some(full) = full {
            print::to_people(&format!("hotcell: {what} {}\n", full_words(full)));
        }
    }
}

fn full_words(Full { used, most, is_critical }: Full) -> String {
    let urgent = if is_critical { " (critical)" } else { "" };
    format!("has {} of its {}{urgent}; `hotcell gc` makes room", size(used), size(most))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_is_written_in_days_or_as_any_time() {
        for (text, seconds) in [("30d", 2_592_000), ("0d", 0), ("12h", 43_200), ("90s", 90)] {
            assert_eq!(text.parse(), Ok(Age(Duration::from_secs(seconds))), "{text}");
        }
        for text in ["90d", "0d", "12h", "90s"] {
            assert_eq!(text.parse::<Age>().unwrap().to_string(), text);
        }
        for bad in ["", "d", "-1d", "1.5d", "x", "99999999999d", "4294967295d"] {
            assert!(bad.parse::<Age>().is_err(), "{bad}");
        }
    }
}
