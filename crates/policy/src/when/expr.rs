//! A condition that was read: every name is known, and what is bound in a loop is a number.

use regex::{Regex, RegexBuilder};

use super::{PATTERN_COSTS, PATTERN_MOST};

/// An expression, and at which character it stands.
#[derive(Debug, Clone)]
pub(crate) struct Expr {
    pub(crate) at: usize,
    pub(crate) kind: Kind,
}

#[derive(Debug, Clone)]
pub(crate) enum Kind {
    Null,
    Bool(bool),
    Int(i64),
    Double(f64),
    Text(Box<str>),
    List(Box<[Expr]>),
    Var(Var),
    /// What the loop of this depth is at.
    Local(usize),
    Select(Box<Expr>, Box<str>),
    /// `has(a.b)`
    Has(Box<Expr>, Box<str>),
    Index(Box<[Expr; 2]>),
    Not(Box<Expr>),
    Minus(Box<Expr>),
    Binary(Op, Box<[Expr; 2]>),
    /// If, then, else.
    Choice(Box<[Expr; 3]>),
    Size(Box<Expr>),
    Find(Find, Box<[Expr; 2]>),
    Matches(Box<Expr>, Box<Pattern>),
    /// Over a list, with the body that is asked for each item of it.
    Loop(Loop, Box<[Expr; 2]>),
}

impl Expr {
    /// Whether it, or something in it, is one of those.
    pub(crate) fn has(&self, wanted: &dyn Fn(&Expr) -> bool) -> bool {
        let within: &[Expr] = match &self.kind {
            Kind::List(items) => items,
            Kind::Select(of, _)
            | Kind::Has(of, _)
            | Kind::Not(of)
            | Kind::Minus(of)
            | Kind::Size(of)
            | Kind::Matches(of, _) => std::slice::from_ref(of),
            Kind::Index(both)
            | Kind::Binary(_, both)
            | Kind::Find(_, both)
            | Kind::Loop(_, both) => &**both,
            Kind::Choice(parts) => &**parts,
            Kind::Null
            | Kind::Bool(_)
            | Kind::Int(_)
            | Kind::Double(_)
            | Kind::Text(_)
            | Kind::Var(_)
            | Kind::Local(_) => &[],
        };
        wanted(self) || within.iter().any(|part| part.has(wanted))
    }

    /// Whether it has its value without being asked.
    pub(crate) fn is_literal(&self) -> bool {
        matches!(
            self.kind,
            Kind::Null | Kind::Bool(_) | Kind::Int(_) | Kind::Double(_) | Kind::Text(_)
        )
    }
}

/// What `matches` looks for.
#[derive(Debug, Clone)]
pub(crate) struct Pattern {
    regex: Regex,
    cost: usize,
}

impl Pattern {
    pub(crate) fn compile(text: &str) -> Result<Pattern, regex::Error> {
        let within = |most: usize| {
            RegexBuilder::new(text).size_limit(most).dfa_size_limit(PATTERN_MOST).build()
        };
        // How large it is shows in what it fits into.
        let [smaller @ .., (most, cost)] = PATTERN_COSTS;
        let fits = |(most, cost)| Some(Pattern { regex: within(most).ok()?, cost });
        match smaller.into_iter().find_map(fits) {
            Some(pattern) => Ok(pattern),
            None => Ok(Pattern { regex: within(most)?, cost }),
        }
    }

    /// The steps that a text takes.
    pub(crate) fn cost(&self, text: &str) -> usize {
        text.len().saturating_mul(self.cost) / 64
    }

    pub(crate) fn is_match(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }
}

/// What there is besides the arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Var {
    Args,
    Caller,
    Tool,
    Operation,
    Path,
    Host,
    Method,
    Paths,
    Hosts,
    Methods,
    State,
    Mode,
}

impl Var {
    pub(crate) const ALL: [(&str, Var); 12] = [
        ("args", Var::Args),
        ("caller", Var::Caller),
        ("tool", Var::Tool),
        ("operation", Var::Operation),
        ("path", Var::Path),
        ("host", Var::Host),
        ("method", Var::Method),
        ("paths", Var::Paths),
        ("hosts", Var::Hosts),
        ("methods", Var::Methods),
        ("state", Var::State),
        ("mode", Var::Mode),
    ];
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    Or,
    And,
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
    Plus,
    Minus,
    Times,
    Divide,
    Rest,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Find {
    StartsWith,
    EndsWith,
    Contains,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loop {
    All,
    Exists,
    ExistsOne,
}
