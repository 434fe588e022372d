//! What a condition says of a call. Total: every step is counted, every number checked, and what has no
//! value is an error. Nothing is copied but numbers.

use std::cmp::Ordering;

use hotcell_request::Value;
use hotcell_types::Caller;
use serde_json::{Map, Number};
use smallvec::SmallVec;

use super::expr::{Expr, Find, Kind, Loop, Op, Var};
use super::{LOOPS_MOST, STEPS_MOST};
use crate::subject::Subject;

/// Why a condition has no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Wrong {
    #[error("there is no `{0}`")]
    NoField(String),
    #[error("the list has no such item")]
    NoItem,
    #[error("{0}")]
    Kind(&'static str),
    #[error("a number is too large")]
    Overflow,
    #[error("a number is divided by zero")]
    Zero,
    #[error("the call has no {0}")]
    None(&'static str),
    #[error("the call has more than one {0}: use `{0}s`")]
    Several(&'static str),
    /// Which is not nothing: it could be anything.
    #[error("nobody sees the {0} of this call")]
    Unseen(&'static str),
    #[error("it takes more than {STEPS_MOST} steps")]
    Steps,
}

pub(crate) fn holds(expr: &Expr, subject: &Subject<'_>) -> Result<bool, Wrong> {
    let mut run = Run { subject, left: STEPS_MOST, locals: SmallVec::new() };
    run.truth(expr)
}

#[derive(Debug, Clone, Copy)]
enum Val<'a> {
    Null,
    Bool(bool),
    /// Every number of JSON that is whole, and what is made of 64 bits before it is checked.
    Int(i128),
    Double(f64),
    Text(&'a str),
    List(List<'a>),
    Object(&'a Map<String, Value>),
    Caller(&'a Caller),
}

#[derive(Debug, Clone, Copy)]
enum List<'a> {
    Json(&'a [Value]),
    Exprs(&'a [Expr]),
    Texts(&'a [&'a str]),
}

impl List<'_> {
    fn len(&self) -> usize {
        match self {
            List::Json(items) => items.len(),
            List::Exprs(items) => items.len(),
            List::Texts(items) => items.len(),
        }
    }
}

struct Run<'a, 's> {
    subject: &'a Subject<'s>,
    left: u32,
    /// What each loop is at, the outermost first.
    locals: SmallVec<[Val<'a>; LOOPS_MOST]>,
}

impl<'a, 's: 'a> Run<'a, 's> {
    fn spend(&mut self, steps: usize) -> Result<(), Wrong> {
        let steps = u32::try_from(steps).unwrap_or(u32::MAX);
        self.left = self.left.checked_sub(steps).ok_or(Wrong::Steps)?;
        Ok(())
    }

    /// What looking at a text costs.
    fn read(&mut self, text: &str) -> Result<(), Wrong> {
        self.spend(text.len() / 256)
    }

    fn truth(&mut self, expr: &'a Expr) -> Result<bool, Wrong> {
        match self.eval(expr)? {
            Val::Bool(truth) => Ok(truth),
            _ => Err(Wrong::Kind("what should be true or false is not")),
        }
    }

    fn eval(&mut self, expr: &'a Expr) -> Result<Val<'a>, Wrong> {
        self.spend(1)?;
        Ok(match &expr.kind {
            Kind::Null => Val::Null,
            Kind::Bool(truth) => Val::Bool(*truth),
            Kind::Int(number) => Val::Int((*number).into()),
            Kind::Double(number) => Val::Double(*number),
            Kind::Text(text) => Val::Text(text),
            Kind::List(items) => {
                // One without a value leaves the list without one, wherever it stands.
                for item in items.iter().filter(|item| !item.is_literal()) {
                    self.eval(item)?;
                }
                Val::List(List::Exprs(items))
            }
            Kind::Var(var) => self.var(*var)?,
            Kind::Local(depth) => self.locals.get(*depth).copied().ok_or(Wrong::NoItem)?,
            Kind::Select(of, name) => {
                let of = self.eval(of)?;
                self.seen(of, name)?.ok_or_else(|| Wrong::NoField(name.to_string()))?
            }
            Kind::Has(of, name) => {
                let of = self.eval(of)?;
                Val::Bool(field(of, name)?.is_some())
            }
            Kind::Index(both) => self.index(both)?,
            Kind::Not(inner) => Val::Bool(!self.truth(inner)?),
            Kind::Minus(inner) => match self.eval(inner)? {
                Val::Int(number) => whole(-number)?,
                Val::Double(number) => Val::Double(-number),
                _ => return Err(Wrong::Kind("what is not a number is negated")),
            },
            Kind::Binary(op, both) => self.binary(*op, both)?,
            Kind::Choice(parts) => {
                let [condition, yes, no] = &**parts;
                let chosen = if self.truth(condition)? { yes } else { no };
                self.eval(chosen)?
            }
            Kind::Size(of) => self.size(of)?,
            Kind::Find(find, both) => self.find(*find, both)?,
            Kind::Matches(of, pattern) => {
                let text = self.text(of)?;
                self.spend(pattern.cost(text))?;
                Val::Bool(pattern.is_match(text))
            }
            Kind::Loop(kind, both) => Val::Bool(self.looped(*kind, both)?),
        })
    }

    fn var(&self, var: Var) -> Result<Val<'a>, Wrong> {
        let subject = self.subject;
        let only = |places: &'a [&'a str], what: &'static str| match places {
            [] => Err(Wrong::None(what)),
            [one] => Ok(Val::Text(one)),
            _ => Err(Wrong::Several(what)),
        };
        let word = |word: Option<&'a str>| word.map_or(Val::Null, Val::Text);
        Ok(match var {
            Var::Args => json(subject.args)?,
            Var::Caller => Val::Caller(subject.caller),
            Var::Tool => Val::Text(subject.tool_text()),
            Var::Operation => Val::Text(subject.operation_text()),
            Var::Path => only(&subject.paths, "path")?,
            Var::Host => only(&subject.hosts, "host")?,
            Var::Method | Var::Methods if subject.has_unseen_method() => {
                return Err(Wrong::Unseen("method"));
            }
            Var::Method => only(&subject.methods, "method")?,
            Var::Paths => Val::List(List::Texts(&subject.paths)),
            Var::Hosts => Val::List(List::Texts(&subject.hosts)),
            Var::Methods => Val::List(List::Texts(&subject.methods)),
            Var::State => word(subject.state),
            Var::Mode => word(subject.mode),
        })
    }

    /// A field, if anybody sees it.
    fn seen(&self, of: Val<'a>, name: &str) -> Result<Option<Val<'a>>, Wrong> {
        let is_args = matches!((of, self.subject.args), (Val::Object(of), Value::Object(args)) if std::ptr::eq(of, args));
        match self.subject.unseen(name) {
            Some(what) if is_args => Err(Wrong::Unseen(what)),
            _ => field(of, name),
        }
    }

    fn text(&mut self, expr: &'a Expr) -> Result<&'a str, Wrong> {
        match self.eval(expr)? {
            Val::Text(text) => Ok(text),
            _ => Err(Wrong::Kind("what should be text is not")),
        }
    }

    fn item(&mut self, list: List<'a>, index: usize) -> Result<Val<'a>, Wrong> {
        match list {
            List::Json(items) => json(items.get(index).ok_or(Wrong::NoItem)?),
            List::Exprs(items) => self.eval(items.get(index).ok_or(Wrong::NoItem)?),
            List::Texts(items) => items.get(index).map(|text| Val::Text(text)).ok_or(Wrong::NoItem),
        }
    }

    fn index(&mut self, [of, index]: &'a [Expr; 2]) -> Result<Val<'a>, Wrong> {
        let of = self.eval(of)?;
        match (of, self.eval(index)?) {
            (Val::List(list), Val::Int(index)) => {
                self.item(list, usize::try_from(index).map_err(|_| Wrong::NoItem)?)
            }
            (of @ (Val::Object(_) | Val::Caller(_)), Val::Text(name)) => {
                self.seen(of, name)?.ok_or_else(|| Wrong::NoField(crate::fault::shown(name)))
            }
            _ => Err(Wrong::Kind("what is taken by `[]` is neither a list nor a field")),
        }
    }

    fn size(&mut self, of: &'a Expr) -> Result<Val<'a>, Wrong> {
        let size = match self.eval(of)? {
            Val::Text(text) => {
                self.read(text)?;
                text.chars().count()
            }
            Val::List(list) => list.len(),
            Val::Object(members) => members.len(),
            _ => return Err(Wrong::Kind("`size` of what has none")),
        };
        Ok(Val::Int(size as i128))
    }

    fn find(&mut self, find: Find, [of, part]: &'a [Expr; 2]) -> Result<Val<'a>, Wrong> {
        let (text, part) = (self.text(of)?, self.text(part)?);
        self.read(text)?;
        Ok(Val::Bool(match find {
            Find::StartsWith => text.starts_with(part),
            Find::EndsWith => text.ends_with(part),
            Find::Contains => text.contains(part),
        }))
    }

    /// One that decides makes up for another that has no value, as in CEL.
    fn looped(&mut self, kind: Loop, [of, body]: &'a [Expr; 2]) -> Result<bool, Wrong> {
        let Val::List(list) = self.eval(of)? else {
            return Err(Wrong::Kind("what should be a list is not"));
        };
        let (mut failed, mut found) = (None, 0);
        for index in 0..list.len() {
            let item = self.item(list, index)?;
            self.locals.push(item);
            let truth = self.truth(body);
            self.locals.pop();
            match (kind, truth) {
                (_, Err(Wrong::Steps)) => return Err(Wrong::Steps),
                (Loop::ExistsOne, Err(wrong)) => return Err(wrong),
                (_, Err(wrong)) => failed = failed.or(Some(wrong)),
                (Loop::All, Ok(false)) => return Ok(false),
                (Loop::Exists, Ok(true)) => return Ok(true),
                (_, Ok(truth)) => found += usize::from(truth),
            }
        }
        match (failed, kind) {
            (Some(wrong), _) => Err(wrong),
            (None, Loop::All) => Ok(true),
            (None, Loop::Exists) => Ok(false),
            (None, Loop::ExistsOne) => Ok(found == 1),
        }
    }

    fn binary(&mut self, op: Op, [left, right]: &'a [Expr; 2]) -> Result<Val<'a>, Wrong> {
        let decides = match op {
            Op::Or => Some(true),
            Op::And => Some(false),
            _ => None,
        };
        if let Some(decides) = decides {
            return self.joined(decides, left, right).map(Val::Bool);
        }
        let (left, right) = (self.eval(left)?, self.eval(right)?);
        Ok(match op {
            Op::Equal => Val::Bool(self.equal(left, right)?),
            Op::Unequal => Val::Bool(!self.equal(left, right)?),
            Op::In => Val::Bool(self.is_in(left, right)?),
            Op::Less => Val::Bool(self.order(left, right)?.is_some_and(Ordering::is_lt)),
            Op::LessOrEqual => Val::Bool(self.order(left, right)?.is_some_and(Ordering::is_le)),
            Op::Greater => Val::Bool(self.order(left, right)?.is_some_and(Ordering::is_gt)),
            Op::GreaterOrEqual => Val::Bool(self.order(left, right)?.is_some_and(Ordering::is_ge)),
            Op::Plus | Op::Minus | Op::Times | Op::Divide | Op::Rest => {
                arithmetic(op, left, right)?
            }
            Op::Or | Op::And => return Err(Wrong::Kind("it cannot be joined")),
        })
    }

    /// `&&` is decided by a false, `||` by a true, on whichever side, even if the other has no value.
    fn joined(&mut self, decides: bool, left: &'a Expr, right: &'a Expr) -> Result<bool, Wrong> {
        match self.truth(left) {
            Ok(truth) if truth == decides => Ok(decides),
            Ok(_) => self.truth(right),
            Err(Wrong::Steps) => Err(Wrong::Steps),
            Err(wrong) => match self.truth(right)? {
                truth if truth == decides => Ok(decides),
                _ => Err(wrong),
            },
        }
    }

    /// Of different kinds is not equal; a number is what it is, however it is written.
    fn equal(&mut self, left: Val<'a>, right: Val<'a>) -> Result<bool, Wrong> {
        self.spend(1)?;
        Ok(match (left, right) {
            (Val::Null, Val::Null) => true,
            (Val::Bool(left), Val::Bool(right)) => left == right,
            (Val::Text(left), Val::Text(right)) => {
                self.read(left)?;
                left == right
            }
            (Val::Int(_) | Val::Double(_), Val::Int(_) | Val::Double(_)) => {
                compare(left, right) == Some(Ordering::Equal)
            }
            (Val::List(left), Val::List(right)) => {
                if left.len() != right.len() {
                    return Ok(false);
                }
                for index in 0..left.len() {
                    let (one, other) = (self.item(left, index)?, self.item(right, index)?);
                    if !self.equal(one, other)? {
                        return Ok(false);
                    }
                }
                true
            }
            (Val::Object(left), Val::Object(right)) => {
                if left.len() != right.len() {
                    return Ok(false);
                }
                for (name, one) in left {
                    let Some(other) = right.get(name) else { return Ok(false) };
                    let (one, other) = (json(one)?, json(other)?);
                    if !self.equal(one, other)? {
                        return Ok(false);
                    }
                }
                true
            }
            _ => false,
        })
    }

    fn is_in(&mut self, item: Val<'a>, of: Val<'a>) -> Result<bool, Wrong> {
        match (item, of) {
            (_, Val::List(list)) => {
                for index in 0..list.len() {
                    let other = self.item(list, index)?;
                    if self.equal(item, other)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            (Val::Text(name), Val::Object(members)) => Ok(members.contains_key(name)),
            _ => Err(Wrong::Kind("`in` of what is neither a list nor an object")),
        }
    }

    fn order(&mut self, left: Val<'a>, right: Val<'a>) -> Result<Option<Ordering>, Wrong> {
        match (left, right) {
            (Val::Text(one), Val::Text(other)) => {
                self.read(one)?;
                Ok(Some(one.cmp(other)))
            }
            (Val::Int(_) | Val::Double(_), Val::Int(_) | Val::Double(_)) => {
                Ok(compare(left, right))
            }
            _ => Err(Wrong::Kind("what is compared has no order")),
        }
    }
}

fn field<'a>(of: Val<'a>, name: &str) -> Result<Option<Val<'a>>, Wrong> {
    match of {
        Val::Object(members) => members.get(name).map(json).transpose(),
        Val::Caller(caller) => Ok(match name {
            "tenant" => Some(Val::Text(caller.tenant.as_str())),
            "subject" => Some(Val::Text(caller.subject.as_str())),
            "door" => Some(Val::Text(caller.door.name())),
            _ => None,
        }),
        _ => Err(Wrong::Kind("a field of what has none")),
    }
}

fn json(value: &Value) -> Result<Val<'_>, Wrong> {
    Ok(match value {
        Value::Null => Val::Null,
        Value::Bool(truth) => Val::Bool(*truth),
        Value::Number(value) => number(value).ok_or(Wrong::Overflow)?,
        Value::String(text) => Val::Text(text),
        Value::Array(items) => Val::List(List::Json(items)),
        Value::Object(members) => Val::Object(members),
    })
}

fn number<'a>(number: &Number) -> Option<Val<'a>> {
    let whole = number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from));
    whole.map(Val::Int).or_else(|| number.as_f64().map(Val::Double))
}

/// A result has to fit into 64 bits, as in CEL.
fn whole<'a>(number: i128) -> Result<Val<'a>, Wrong> {
    i64::try_from(number).map(|number| Val::Int(number.into())).map_err(|_| Wrong::Overflow)
}

fn arithmetic<'a>(op: Op, left: Val<'a>, right: Val<'a>) -> Result<Val<'a>, Wrong> {
    if let (Val::Int(left), Val::Int(right)) = (left, right) {
        let result = match op {
            Op::Plus => left.checked_add(right),
            Op::Minus => left.checked_sub(right),
            Op::Times => left.checked_mul(right),
            Op::Divide | Op::Rest if right == 0 => return Err(Wrong::Zero),
            Op::Divide => left.checked_div(right),
            _ => left.checked_rem(right),
        };
        return whole(result.ok_or(Wrong::Overflow)?);
    }
    let (left, right) = (double(left)?, double(right)?);
    Ok(Val::Double(match op {
        Op::Plus => left + right,
        Op::Minus => left - right,
        Op::Times => left * right,
        Op::Divide => left / right,
        _ => return Err(Wrong::Kind("`%` of a number that is not whole")),
    }))
}

fn double(value: Val<'_>) -> Result<f64, Wrong> {
    match value {
        Val::Int(number) => Ok(number as f64),
        Val::Double(number) => Ok(number),
        _ => Err(Wrong::Kind("what is not a number is counted with")),
    }
}

/// Exact, also where a whole number has no double.
fn compare(left: Val<'_>, right: Val<'_>) -> Option<Ordering> {
    match (left, right) {
        (Val::Int(left), Val::Int(right)) => Some(left.cmp(&right)),
        (Val::Int(left), Val::Double(right)) => compare_mixed(left, right),
        (Val::Double(left), Val::Int(right)) => compare_mixed(right, left).map(Ordering::reverse),
        (Val::Double(left), Val::Double(right)) => left.partial_cmp(&right),
        _ => None,
    }
}

fn compare_mixed(whole: i128, double: f64) -> Option<Ordering> {
    if double.is_nan() {
        return None;
    }
    // The conversion stops at the ends, beyond all that is a whole number here.
    let order = whole.cmp(&(double.trunc() as i128));
    Some(order.then_with(|| 0.0.partial_cmp(&double.fract()).unwrap_or(Ordering::Equal)))
}
