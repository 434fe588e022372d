//! A condition that was read: every name is known, and what is bound in a loop is a number.

use regex::Regex;

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
    Matches(Box<Expr>, Box<Regex>),
    /// Over a list, with the body that is asked for each item of it.
    Loop(Loop, Box<[Expr; 2]>),
}

impl Expr {
    /// Whether it has its value without being asked.
    pub(crate) fn is_literal(&self) -> bool {
        matches!(
            self.kind,
            Kind::Null | Kind::Bool(_) | Kind::Int(_) | Kind::Double(_) | Kind::Text(_)
        )
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
