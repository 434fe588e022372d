//! The one form of an error: what, why, fix. To people on stderr, or as JSON on stdout.

use std::io;

use hotcell_api::ProblemKind;
use hotcell_sandbox::{Refusal, cause, lang};
use serde::Serialize;

use crate::print::{self, harmless};
use crate::{exit, run};

/// Something that kept hotcell from doing what it was asked.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Problem {
    what: String,
    why: Option<String>,
    fix: Option<String>,
    #[serde(skip)]
    exit: u8,
}

impl Problem {
    /// In one line, for the record.
    pub(crate) fn line(&self) -> String {
        match &self.why {
            Some(why) => format!("{}: {why}", self.what),
            None => self.what.clone(),
        }
    }
}

/// Prints a problem and gives the number to exit with.
pub(crate) fn report(problem: &Problem, json: bool) -> u8 {
    if json {
        print::data_and(&run::report::problem_document(problem), problem.exit)
    } else {
        print::to_people(&problem.text(print::colour()));
        problem.exit
    }
}

impl Problem {
    fn new(exit: u8, what: impl Into<String>) -> Problem {
        Problem { what: what.into(), why: None, fix: None, exit }
    }

    pub(crate) fn invalid(what: impl Into<String>) -> Problem {
        Problem::new(exit::INVALID, what)
    }

    pub(crate) fn not_found(what: impl Into<String>) -> Problem {
        Problem::new(exit::NOT_FOUND, what)
    }

    pub(crate) fn not_runnable(what: impl Into<String>) -> Problem {
        Problem::new(exit::NOT_RUNNABLE, what)
    }

    /// Refused, and not because anything is wrong with it.
    pub(crate) fn blocked(what: impl Into<String>) -> Problem {
        Problem::new(exit::BLOCKED, what)
    }

    pub(crate) fn error(what: impl Into<String>) -> Problem {
        Problem::new(exit::ERROR, what)
    }

    pub(crate) fn not_written(error: &io::Error) -> Problem {
        Problem::error("the output could not be written").why(cause(error))
    }

    pub(crate) fn why(mut self, why: impl Into<String>) -> Problem {
        self.why = Some(why.into()).filter(|w: &String| !w.is_empty());
        self
    }

    pub(crate) fn fix(mut self, fix: impl Into<String>) -> Problem {
        self.fix = Some(fix.into()).filter(|f: &String| !f.is_empty());
        self
    }

    pub(crate) fn headline(&self) -> &str {
        &self.what
    }

    pub(crate) fn because(&self) -> Option<&str> {
        self.why.as_deref()
    }

    pub(crate) fn remedy(&self) -> Option<&str> {
        self.fix.as_deref()
    }

    /// The word for it in a JSON document.
    pub(crate) fn status(&self) -> &'static str {
        match self.exit {
            exit::INVALID | exit::NOT_RUNNABLE | exit::NOT_FOUND => "invalid",
            exit::REFUSED => "refused",
            exit::BLOCKED => "blocked",
            _ => "error",
        }
    }

    pub(crate) fn text(&self, colour: bool) -> String {
        let label = if colour { "\x1b[1;31merror:\x1b[0m" } else { "error:" };
        let mut text = format!("{label} {}\n", harmless(&self.what));
        if let Some(why) = &self.why {
            text.push_str(&format!("  why: {}\n", harmless(why)));
        }
        // A rule that would help has several lines; none of them begins where another error could.
        let fix: Vec<String> = self.fix.iter().flat_map(|fix| fix.lines()).map(harmless).collect();
        if !fix.is_empty() {
            text.push_str(&format!("  fix: {}\n", fix.join("\n       ")));
        }
        text
    }
}

impl From<hotcell_engine::Problem> for Problem {
    fn from(problem: hotcell_engine::Problem) -> Problem {
        hotcell_api::Problem::from(problem).into()
    }
}

impl From<hotcell_api::Problem> for Problem {
    fn from(problem: hotcell_api::Problem) -> Problem {
        let exit = match problem.kind {
            ProblemKind::Invalid | ProblemKind::Conflict => exit::INVALID,
            ProblemKind::NotFound => exit::NOT_FOUND,
            ProblemKind::NotRunnable => exit::NOT_RUNNABLE,
            ProblemKind::Blocked => exit::BLOCKED,
            ProblemKind::Refused | ProblemKind::Busy => exit::REFUSED,
            ProblemKind::Failed => 1,
            ProblemKind::Error => exit::ERROR,
        };
        let place = if problem.at.is_empty() { String::new() } else { format!("{}: ", problem.at) };
        Problem::new(exit, place + &problem.what).why(problem.why).fix(problem.fix)
    }
}

impl From<lang::Error> for Problem {
    fn from(error: lang::Error) -> Problem {
        hotcell_engine::Problem::from(error).into()
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Problem {
        hotcell_engine::Problem::from(refusal).into()
    }
}

#[cfg(test)]
mod tests {
    use hotcell_types::{Layer, Level};

    use super::*;

    #[test]
    fn a_problem_says_what_why_and_how_to_fix_it() {
        let problem = Problem::invalid("`a\x1b[2Jb` is a directory").why("x\ny").fix("z");
        assert_eq!(
            problem.text(false),
            "error: `a\\u{1b}[2Jb` is a directory\n  why: x\\ny\n  fix: z\n"
        );
        assert!(problem.text(true).starts_with("\x1b[1;31merror:\x1b[0m `a"));
        assert_eq!(Problem::error("x").why("").text(false), "error: x\n");
    }

    #[test]
    fn each_refusal_has_its_number_and_word() {
        let text = || String::from("t");
        for (refusal, exit, status) in [
            (
                Refusal::Level {
                    given: Level::NoProc,
                    minimum: Level::User,
                    why: text(),
                    fix: text(),
                },
                122,
                "refused",
            ),
            (Refusal::Layer { layer: Layer::Seccomp, why: text(), fix: text() }, 122, "refused"),
            (Refusal::Invalid { what: text(), why: text(), fix: text() }, 121, "invalid"),
            (Refusal::NotRunnable { program: text(), why: text() }, 126, "invalid"),
            (Refusal::Busy { running: 96 }, 122, "refused"),
            (
                Refusal::Internal { doing: text(), source: io::ErrorKind::Other.into() },
                120,
                "error",
            ),
        ] {
            let problem = Problem::from(refusal);
            assert_eq!((problem.exit, problem.status()), (exit, status), "{problem:?}");
        }
    }
}
