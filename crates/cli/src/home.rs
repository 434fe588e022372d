//! The engine of this user's home, and how what it says is shown.

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use hotcell_engine::{Anchor, Answer, Ask, Bounds, Early, Engine, OpenError, Options, StayBounds};
use hotcell_local::{Remote, Unreached};
use hotcell_record::Filter;
use hotcell_sandbox::Settings;
use hotcell_types::{CallId, Caller, Door, Name, Utc};

use crate::config::Config;
use crate::exit;
use crate::kernel::not_asked;
use crate::print::{self, harmless};
use crate::problem::Problem;

/// How long whoever serves a home may take to write down what it has answered.
const SETTLES_WITHIN: Duration = Duration::from_secs(5);

/// Opens the engine, and with it the record.
pub(crate) fn open(workspace: Option<PathBuf>) -> Result<Engine, Problem> {
    open_with(options(&Config::load()?, workspace))
}

/// The same, with options of one's own.
pub(crate) fn open_with(options: Options) -> Result<Engine, Problem> {
    Engine::open(options).map_err(unusable)
}

/// The same for one call that is about to come.
pub(crate) fn engine_soon(options: Options, early: Early) -> Result<Engine, Problem> {
    Engine::soon(options, early).map_err(unusable)
}

/// The same, except that the record is opened with the first call.
pub(crate) fn engine(options: Options) -> Result<Engine, Problem> {
    Engine::new(options).map_err(unusable)
}

pub(crate) fn options(config: &Config, workspace: Option<PathBuf>) -> Options {
    let Settings { minimum, home } = config.settings();
    let (quota, ceiling, copies) = (config.quota(), config.ceiling(), config.copies());
    let (at_once, patience, anchor) = (config.at_once(), config.patience(), config.anchor());
    Options {
        quota,
        minimum,
        zygotes: config.zygotes(),
        workspace,
        ceiling,
        copies,
        at_once,
        patience,
        anchor,
        network: config.network(),
        // Of who serves; whoever runs one thing ends with it.
        stays: StayBounds::NONE,
        ..Options::at(home)
    }
}

/// What whoever serves the home has to keep to for this process.
pub(crate) fn bounds(options: &Options) -> Bounds {
    let Options { ceiling, minimum, zygotes, .. } = options;
    Bounds { ceiling: *ceiling, minimum: Some(*minimum), no_zygote: !zygotes }
}

pub(crate) fn unusable(error: OpenError) -> Problem {
    let fix = match &error {
        OpenError::Record(error) => error.fix.clone(),
        _ => "see that the directory is yours and has room; HOTCELL_HOME names another".into(),
    };
    Problem::error("the home cannot be used").why(error.to_string()).fix(fix)
}

/// The same, to look at what there is: nothing is made.
pub(crate) fn look() -> Result<Engine, Problem> {
    look_with(None)
}

/// The same, with the directory that calls are about.
pub(crate) fn look_with(workspace: Option<PathBuf>) -> Result<Engine, Problem> {
    database()?;
    open(workspace)
}

/// Has whoever serves this home write down what was answered there: it is in the record before that is read.
/// Who cannot be asked, or does not answer, keeps nobody from looking.
pub(crate) fn settle(home: &Path) {
    if !hotcell_local::socket(home).exists() {
        return;
    }
    let (tell, hear) = mpsc::channel();
    let home = home.to_owned();
    let ask = move || tell.send(settled(&home));
    let asked = thread::Builder::new().name("settling".into()).spawn(ask);
    let why = match asked.ok().and_then(|_| hear.recv_timeout(SETTLES_WITHIN).ok()) {
        Some(Ok(())) => return,
        Some(Err(problem)) => problem.line(),
        None => "the hotcell that serves this home does not answer".to_owned(),
    };
    print::to_people(&format!(
        "hotcell: what was called in the last moment may be missing here ({})\n",
        harmless(&why)
    ));
}

fn settled(home: &Path) -> Result<(), Problem> {
    match Remote::find(home) {
        Ok(None) => Ok(()),
        Ok(Some(remote)) => remote.settle().map_err(not_asked),
        Err(Unreached(problem)) => Err(problem.into()),
    }
}

/// Asks the engine of a home in which something is recorded.
pub(crate) fn ask(ask: Ask) -> Result<Answer, Problem> {
    match look()?.ask(&caller(), ask) {
        Answer::Failed(problem) => Err(problem.into()),
        answer => Ok(answer),
    }
}

/// The call that was named, or the newest that ran something.
pub(crate) fn or_newest(engine: &Engine, named: Option<CallId>) -> Result<CallId, Problem> {
    if let Some(call) = named {
        return Ok(call);
    }
    let filter = Filter { limit: 1, last: true, ..Filter::of(Name::LOCAL) };
    match engine.ask(&caller(), Ask::Runs(filter)) {
        Answer::Failed(problem) => Err(problem.into()),
        Answer::Runs(runs) => {
            let call = runs.last().and_then(|run| run.intent.call);
            call.ok_or_else(|| Problem::not_found("there was no call yet"))
        }
        _ => Err(Problem::error("the record gave no answer")),
    }
}

/// The record's file, which may be broken, with everything in it that was answered.
pub(crate) fn database() -> Result<PathBuf, Problem> {
    database_and_anchor().map(|(database, _)| database)
}

/// The same, and where its checkpoints go.
pub(crate) fn database_and_anchor() -> Result<(PathBuf, Anchor), Problem> {
    let config = Config::load()?;
    let home = config.settings().home;
    let database = home.join("hotcell.db");
    if database.exists() {
        settle(&home);
        return Ok((database, config.anchor()));
    }
    Err(Problem::not_found(format!("nothing is recorded in `{}`", home.display()))
        .fix("`hotcell tool call` records what it does; HOTCELL_HOME names another home"))
}

/// Whoever runs this process.
pub(crate) fn caller() -> Caller {
    let subject = format!("uid{}", rustix::process::geteuid().as_raw());
    Caller::local(subject.parse().unwrap_or(Name::LOCAL), Door::Cli)
}

/// What is left to do when all is said: the record is closed in order.
pub(crate) fn close(engine: Engine, code: u8) -> u8 {
    match engine.close_with_process() {
        Ok(()) => code,
        Err(_) if code != 0 => code,
        Err(_) => exit::ERROR,
    }
}

/// A moment in UTC, to the second, as ISO 8601 has it.
pub(crate) fn moment(nanos: i64) -> String {
    let Utc { year, month, day, hour, minute, second, .. } =
        Utc::at(nanos.div_euclid(1_000_000_000));
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_700_000_000, "2023-11-14T22:13:20Z"),
            (-1, "1969-12-31T23:59:59Z"),
            (4_102_444_800, "2100-01-01T00:00:00Z"),
        ] {
            assert_eq!(moment(seconds * 1_000_000_000), text);
        }
        for extreme in [i64::MIN, i64::MAX] {
            assert!(moment(extreme).ends_with('Z'));
        }
    }
}
