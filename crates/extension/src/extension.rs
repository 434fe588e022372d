//! The rules, loaded and asked.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use hotcell_evaluator::wire::{Answer, Failure, MOST_FILES, MOST_NAME, Request, Said, Verb};
use hotcell_sandbox::{Job, Refusal, Running};
use hotcell_types::Decision;

use crate::desk::Desk;
use crate::line::Lost;
use crate::process::{Process, Silence, Starter};
use crate::{CallView, FactsView};

/// How long one evaluation may take.
const EVALUATED_WITHIN: Duration = Duration::from_millis(100);

/// A file of rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    pub name: String,
    /// TypeScript.
    pub text: String,
}

/// What a rule said. A rule that passes says nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spoken {
    pub rule: String,
    pub decision: Decision,
    pub reason: String,
}

/// Why there is no decision. Each of these is a deny.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failed {
    #[error("the extension rules are late: {why}")]
    Late { why: String },
    #[error("the extension rules are broken: {why}")]
    Broken { why: String },
    #[error("the extension rules are not there: {why}")]
    Missing { why: String },
}

/// Why the rules cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {why}")]
pub struct Fault {
    /// Empty if it is not about one file.
    pub file: String,
    /// From 1; 0 if they are not known.
    pub line: u32,
    pub column: u32,
    pub what: String,
    pub why: String,
    pub fix: String,
}

/// Rules in a process of their own. Dropping it ends that.
#[derive(Debug)]
pub struct Extension {
    rules: Vec<String>,
    desk: Arc<Desk>,
    attendant: Option<JoinHandle<()>>,
}

impl Extension {
    /// Loads the rules into a run that `start` starts, now and after each failure.
    pub fn start(
        sources: &[Source],
        start: impl Fn(Job) -> Result<Running, Refusal> + Send + 'static,
    ) -> Result<Extension, Fault> {
        let frame = check(sources)?;
        let starter: Starter = Box::new(start);
        let first = Process::start(&starter, &frame)?;
        let rules = first.rules.clone();
        let desk = Arc::new(Desk::new());
        let kept = Arc::clone(&desk);
        let attendant = thread::Builder::new().name("extension".into());
        let attendant = attendant.spawn(move || attend(&kept, &starter, &frame, first));
        let attendant = attendant.map_err(|error| Fault::internal(error.to_string()))?;
        Ok(Extension { rules, desk, attendant: Some(attendant) })
    }

    /// The names of all rules: the file, or the file and the export.
    pub fn rules(&self) -> &[String] {
        &self.rules
    }

    /// What the rules say about a call.
    pub fn evaluate(
        &self,
        call: &CallView<'_>,
        facts: &FactsView<'_>,
    ) -> Result<Vec<Spoken>, Failed> {
        let json = |error: serde_json::Error| Failed::Broken { why: error.to_string() };
        let call = serde_json::to_string(call).map_err(json)?;
        let facts = serde_json::to_string(facts).map_err(json)?;
        let mut turn = self.desk.turn()?;
        let number = turn.number;
        let Some(frame) = (Request::Evaluate { number, call, facts }).frame() else {
            self.desk.done(turn);
            return Err(Failed::Broken { why: "the call is too large for rules to see".into() });
        };
        let answer = turn.line.ask(&frame, Instant::now() + EVALUATED_WITHIN);
        match answer.and_then(|answer| self.understand(answer, number)) {
            Ok(answer) => {
                self.desk.done(turn);
                answer
            }
            Err(lost) => {
                self.desk.give_up(&turn);
                Err(lost.into())
            }
        }
    }

    /// An answer counts if it is to this question and about rules that there are.
    fn understand(&self, answer: Answer, asked: u64) -> Result<Result<Vec<Spoken>, Failed>, Lost> {
        match answer {
            Answer::Spoken { number, rules } if number == asked && self.are_ours(&rules) => {
                Ok(Ok(rules.into_iter().map(Spoken::from).collect()))
            }
            Answer::Failed { number, kind, rule, why } if number == asked => {
                let why = format!("rule `{rule}`: {why}");
                Ok(Err(match kind {
                    Failure::Late => Failed::Late { why },
                    Failure::Broken => Failed::Broken { why },
                }))
            }
            _ => Err(Lost::Malformed),
        }
    }

    /// Each at most once, in the order in which they were loaded.
    fn are_ours(&self, said: &[Said]) -> bool {
        let mut known = self.rules.iter();
        said.iter().all(|said| known.any(|rule| *rule == said.rule))
    }
}

impl Drop for Extension {
    fn drop(&mut self) {
        self.desk.close();
        if let Some(attendant) = self.attendant.take()
            && attendant.join().is_err()
        {
            debug_assert!(false, "the attendant panicked");
        }
    }
}

/// Sees one process after the other to its end.
fn attend(desk: &Desk, starter: &Starter, frame: &[u8], first: Process) {
    let mut next = Some(first);
    loop {
        if let Some(Process { running, line, .. }) = next {
            desk.open(line, running.handle());
            // However it ended: it should not have.
            running.wait(&mut Silence, None).ok();
        }
        desk.lost();
        if !desk.rest() {
            return;
        }
        next = Process::start(starter, frame).ok();
    }
}

/// The sources as they are sent.
fn check(sources: &[Source]) -> Result<Vec<u8>, Fault> {
    let refused = |file: &str, what: &str, why: String, fix: &str| Fault {
        file: file.into(),
        line: 0,
        column: 0,
        what: what.into(),
        why,
        fix: fix.into(),
    };
    if sources.len() > MOST_FILES {
        let why = format!("there are {}, and {MOST_FILES} are the most", sources.len());
        return Err(refused("", "there are too many files of rules", why, "join some of them"));
    }
    let mut seen = BTreeSet::new();
    for Source { name, .. } in sources {
        let is_plain = !name.is_empty() && name.bytes().all(|b| b.is_ascii_graphic() && b != b':');
        if !is_plain || name.len() > MOST_NAME / 2 || !seen.insert(name) {
            let why =
                format!("`{}` is empty, too long, there twice, or not plain", name.escape_debug());
            let fix = "give each file a name of its own, in ASCII, without blanks and colons";
            return Err(refused(name, "the name of the file cannot be used", why, fix));
        }
    }
    let files = sources.iter().map(|source| (source.name.clone(), source.text.clone()));
    Request::Load(files.collect()).frame().ok_or_else(|| {
        let why = "they do not fit into what is sent at once, 2 MiB".into();
        refused("", "the files of rules are too long", why, "make them shorter")
    })
}

impl Fault {
    pub(crate) fn internal(why: String) -> Fault {
        Fault {
            file: String::new(),
            line: 0,
            column: 0,
            what: "the process for extension rules cannot be started".into(),
            why,
            fix: "`hotcell doctor` says what this host allows".into(),
        }
    }
}

impl From<Said> for Spoken {
    fn from(said: Said) -> Spoken {
        let decision = match said.verb {
            Verb::Allow => Decision::Allow,
            Verb::Deny => Decision::Deny,
            Verb::RequireReview => Decision::Review,
        };
        Spoken { rule: said.rule, decision, reason: said.reason }
    }
}

impl From<Lost> for Failed {
    fn from(lost: Lost) -> Failed {
        match lost {
            Lost::Late => Failed::Late { why: "there was no answer within 100 ms".into() },
            Lost::Ended => Failed::Broken { why: "the process ended".into() },
            Lost::Malformed => Failed::Broken { why: "the answer is not one".into() },
        }
    }
}
