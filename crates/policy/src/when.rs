//! `when`: a condition on the arguments of a call, in a subset of CEL that always ends soon.
//!
//! There are `args`, `caller.tenant`, `caller.subject`, `caller.door`, `tool`, `operation`, `path`, `host`,
//! `method`, `paths`, `hosts`, `methods`, `state` and `mode`; numbers, text, lists, `null`; `! - * / % + <
//! <= > >= == != in && || ?:`, `.` and `[]`, `has`, `size`, `startsWith`, `endsWith`, `contains`, `matches`
//! with a fixed pattern, `all`, `exists` and `exists_one`. What a call does not have is an error, and so is
//! `path` of a call with two. No clock, no chance, and nothing that makes new values larger than a number.
//!
//! Own code, and not the crate `cel`: its parser goes as deep as the text does, so that a few thousand
//! brackets end the process, it needs a parser generator's run-time, and its values are copied. It is what
//! the tests compare with.

mod check;
mod eval;
mod expr;
mod lex;
mod parse;

use std::sync::Arc;

use hotcell_request::Registered;

pub(crate) use eval::Wrong;
use expr::{Expr, Kind, Var};

use crate::subject::Subject;

/// Longest text, in characters.
pub(crate) const TEXT_MOST: usize = 4096;
/// Most operations, names and values in one.
pub(crate) const NODES_MOST: usize = 512;
/// Deepest nesting.
pub(crate) const DEPTH_MOST: usize = 32;
/// How deep `all` and `exists` stand in one another.
pub(crate) const LOOPS_MOST: usize = 2;
/// Most steps of an evaluation. Text costs one more for each 256 bytes that are looked at.
pub(crate) const STEPS_MOST: u32 = 20_000;
/// Largest pattern of `matches`, compiled, in bytes.
pub(crate) const PATTERN_MOST: usize = 256 << 10;
/// How large patterns are, and how many steps 64 bytes of text cost with one of that size: in the worst case each
/// byte is compared with each place in the pattern.
pub(crate) const PATTERN_COSTS: [(usize, usize); 3] =
    [(16 << 10, 4), (64 << 10, 16), (PATTERN_MOST, 64)];

#[derive(Debug, Clone)]
pub(crate) struct When {
    expr: Expr,
}

/// What is wrong with a `when`, and at which character, counted from 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bad {
    pub(crate) at: usize,
    pub(crate) what: String,
    pub(crate) fix: String,
}

impl Bad {
    fn new(at: usize, what: impl Into<String>, fix: impl Into<String>) -> Bad {
        Bad { at, what: what.into(), fix: fix.into() }
    }
}

impl When {
    /// Reads a condition and checks it against what each of the tools takes.
    pub(crate) fn parse(text: &str, tools: &[Arc<Registered>]) -> Result<When, Bad> {
        let expr = parse::parse(text)?;
        if tools.is_empty() {
            check::check(&expr, None)?;
        }
        for tool in tools {
            check::check(&expr, Some(tool.tool()))?;
        }
        Ok(When { expr })
    }

    pub(crate) fn depends_on_workflow(&self) -> bool {
        self.expr.has(&|expr| matches!(expr.kind, Kind::Var(Var::State | Var::Mode)))
    }

    /// Whether it looks at arguments, or at what was found in them.
    pub(crate) fn looks_at_places(&self) -> bool {
        let is_place = |var: Var| {
            !matches!(var, Var::Caller | Var::Tool | Var::Operation | Var::State | Var::Mode)
        };
        self.expr.has(&|expr| matches!(expr.kind, Kind::Var(var) if is_place(var)))
    }

    pub(crate) fn holds(&self, subject: &Subject<'_>) -> Result<bool, Wrong> {
        eval::holds(&self.expr, subject)
    }
}

#[cfg(test)]
mod tests;
