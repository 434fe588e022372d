//! From words to an expression.

use super::expr::{Expr, Find, Kind, Loop, Op, Pattern, Var};
use super::lex::{Token, tokens};
use super::{Bad, DEPTH_MOST, LOOPS_MOST, NODES_MOST};
use crate::fault::{instead, shown};

pub(crate) fn parse(text: &str) -> Result<Expr, Bad> {
    let tokens = tokens(text)?;
    let mut parser = Parser { tokens: &tokens, next: 0, nodes: 0, depth: 0, locals: Vec::new() };
    let expr = parser.choice()?;
    match parser.peek() {
        Token::End => Ok(expr),
        _ => Err(Bad::new(parser.at(), "text behind the end", "join conditions with `&&` or `||`")),
    }
}

struct Parser<'a> {
    tokens: &'a [(usize, Token)],
    next: usize,
    nodes: usize,
    depth: usize,
    /// Names that loops have bound, the innermost last.
    locals: Vec<String>,
}

/// Operators of one strength, the weakest first.
const LEVELS: [&[(&str, Op)]; 5] = [
    &[("||", Op::Or)],
    &[("&&", Op::And)],
    &[
        ("==", Op::Equal),
        ("!=", Op::Unequal),
        ("<=", Op::LessOrEqual),
        (">=", Op::GreaterOrEqual),
        ("<", Op::Less),
        (">", Op::Greater),
    ],
    &[("+", Op::Plus), ("-", Op::Minus)],
    &[("*", Op::Times), ("/", Op::Divide), ("%", Op::Rest)],
];

impl Parser<'_> {
    fn peek(&self) -> &Token {
        self.tokens.get(self.next).map_or(&Token::End, |(_, token)| token)
    }

    fn at(&self) -> usize {
        self.tokens.get(self.next).or(self.tokens.last()).map_or(0, |(at, _)| *at)
    }

    fn take(&mut self, sign: &str) -> bool {
        let is_it = matches!(self.peek(), Token::Sign(found) if *found == sign);
        self.next += usize::from(is_it);
        is_it
    }

    fn expect(&mut self, sign: &str) -> Result<(), Bad> {
        if self.take(sign) {
            return Ok(());
        }
        Err(Bad::new(self.at(), format!("`{sign}` is missing"), "write it here"))
    }

    fn expr(&mut self, at: usize, kind: Kind) -> Result<Expr, Bad> {
        self.nodes += 1;
        if self.nodes > NODES_MOST {
            return Err(Bad::new(at, "`when` has too many parts", format!("at most {NODES_MOST}")));
        }
        Ok(Expr { at, kind })
    }

    fn deeper<T>(&mut self, inner: impl FnOnce(&mut Self) -> Result<T, Bad>) -> Result<T, Bad> {
        if self.depth >= DEPTH_MOST {
            let fix = format!("at most {DEPTH_MOST} levels");
            return Err(Bad::new(self.at(), "`when` is nested too deep", fix));
        }
        self.depth += 1;
        let result = inner(self);
        self.depth -= 1;
        result
    }

    fn choice(&mut self) -> Result<Expr, Bad> {
        self.deeper(|parser| {
            let at = parser.at();
            let condition = parser.binary(0)?;
            if !parser.take("?") {
                return Ok(condition);
            }
            let yes = parser.binary(0)?;
            parser.expect(":")?;
            let no = parser.choice()?;
            parser.expr(at, Kind::Choice(Box::new([condition, yes, no])))
        })
    }

    fn binary(&mut self, level: usize) -> Result<Expr, Bad> {
        let Some(operators) = LEVELS.get(level) else { return self.unary() };
        let mut left = self.binary(level + 1)?;
        loop {
            let at = self.at();
            let found = operators.iter().find(|(sign, _)| self.take(sign)).map(|(_, op)| *op);
            let is_in = found.is_none() && level == 2 && *self.peek() == Token::Name("in".into());
            self.next += usize::from(is_in);
            let Some(op) = found.or(is_in.then_some(Op::In)) else { return Ok(left) };
            let right = self.binary(level + 1)?;
            left = self.expr(at, Kind::Binary(op, Box::new([left, right])))?;
        }
    }

    fn unary(&mut self) -> Result<Expr, Bad> {
        let at = self.at();
        if self.take("!") {
            let inner = self.deeper(Parser::unary)?;
            return self.expr(at, Kind::Not(Box::new(inner)));
        }
        if self.take("-") {
            let inner = self.deeper(Parser::unary)?;
            return self.expr(at, Kind::Minus(Box::new(inner)));
        }
        self.member()
    }

    fn member(&mut self) -> Result<Expr, Bad> {
        let mut expr = self.primary()?;
        loop {
            let at = self.at();
            if self.take(".") {
                let (at, name) = self.name()?;
                expr = match self.take("(") {
                    true => self.method(expr, at, &name)?,
                    false => self.expr(at, Kind::Select(Box::new(expr), name.into()))?,
                };
            } else if self.take("[") {
                let index = self.choice()?;
                self.expect("]")?;
                expr = self.expr(at, Kind::Index(Box::new([expr, index])))?;
            } else {
                return Ok(expr);
            }
        }
    }

    fn name(&mut self) -> Result<(usize, String), Bad> {
        let at = self.at();
        match self.peek() {
            Token::Name(name) => {
                let name = name.clone();
                self.next += 1;
                Ok((at, name))
            }
            _ => Err(Bad::new(at, "a name is missing", "write the name of a field or a function")),
        }
    }

    fn primary(&mut self) -> Result<Expr, Bad> {
        let at = self.at();
        let token = self.peek().clone();
        self.next += 1;
        let kind = match token {
            Token::Int(number) => Kind::Int(number),
            Token::Double(number) => Kind::Double(number),
            Token::Text(text) => Kind::Text(text.into()),
            Token::Sign("(") => {
                let inner = self.choice()?;
                self.expect(")")?;
                return Ok(inner);
            }
            Token::Sign("[") => Kind::List(self.items()?.into()),
            Token::Name(name) => match name.as_str() {
                "true" => Kind::Bool(true),
                "false" => Kind::Bool(false),
                "null" => Kind::Null,
                _ if self.take("(") => return self.function(at, &name),
                _ => self.variable(at, &name)?,
            },
            Token::Sign(sign) => {
                return Err(Bad::new(
                    at,
                    format!("`{sign}` is not expected here"),
                    "write a value",
                ));
            }
            Token::End => return Err(Bad::new(at, "`when` ends too early", "write a value")),
        };
        self.expr(at, kind)
    }

    fn items(&mut self) -> Result<Vec<Expr>, Bad> {
        let mut items = Vec::new();
        while !self.take("]") {
            items.push(self.choice()?);
            if !self.take(",") {
                self.expect("]")?;
                break;
            }
        }
        Ok(items)
    }

    fn variable(&self, at: usize, name: &str) -> Result<Kind, Bad> {
        if let Some(depth) = self.locals.iter().rposition(|local| local == name) {
            return Ok(Kind::Local(depth));
        }
        if let Some((_, var)) = Var::ALL.iter().find(|(known, _)| *known == name) {
            return Ok(Kind::Var(*var));
        }
        let known: Vec<&str> = Var::ALL.iter().map(|(known, _)| *known).collect();
        Err(Bad::new(at, format!("there is no `{}`", shown(name)), instead(name, &known)))
    }

    fn function(&mut self, at: usize, name: &str) -> Result<Expr, Bad> {
        if name != "size" && name != "has" {
            let known =
                ["size", "has", "startsWith", "endsWith", "contains", "matches", "all", "exists"];
            let what = format!("there is no function `{}`", shown(name));
            return Err(Bad::new(at, what, instead(name, &known)));
        }
        let inner = self.choice()?;
        self.expect(")")?;
        match (name, inner.kind) {
            ("size", kind) => self.expr(at, Kind::Size(Box::new(Expr { kind, ..inner }))),
            (_, Kind::Select(of, field)) => self.expr(at, Kind::Has(of, field)),
            _ => Err(Bad::new(
                inner.at,
                "`has` of what is no field",
                "write it as in `has(args.name)`",
            )),
        }
    }

    fn method(&mut self, of: Expr, at: usize, name: &str) -> Result<Expr, Bad> {
        let of = Box::new(of);
        let find = match name {
            "startsWith" => Find::StartsWith,
            "endsWith" => Find::EndsWith,
            "contains" => Find::Contains,
            "size" => {
                self.expect(")")?;
                return self.expr(at, Kind::Size(of));
            }
            "matches" => return self.matches(of, at),
            "all" => return self.looped(*of, at, Loop::All),
            "exists" => return self.looped(*of, at, Loop::Exists),
            "exists_one" => return self.looped(*of, at, Loop::ExistsOne),
            _ => {
                let known = [
                    "startsWith",
                    "endsWith",
                    "contains",
                    "size",
                    "matches",
                    "all",
                    "exists",
                    "exists_one",
                ];
                let what = format!("there is no function `{}`", shown(name));
                return Err(Bad::new(at, what, instead(name, &known)));
            }
        };
        let text = self.choice()?;
        self.expect(")")?;
        self.expr(at, Kind::Find(find, Box::new([*of, text])))
    }

    fn matches(&mut self, of: Box<Expr>, at: usize) -> Result<Expr, Bad> {
        let place = self.at();
        let Token::Text(pattern) = self.peek().clone() else {
            let what = "a pattern that is not written down";
            return Err(Bad::new(place, what, "write it in quotes: it is compiled once"));
        };
        self.next += 1;
        self.expect(")")?;
        let pattern = Pattern::compile(&pattern).map_err(|error| {
            let why = error.to_string();
            let why = why.lines().last().unwrap_or_default().trim_start_matches("error: ");
            Bad::new(place, format!("the pattern cannot be used: {}", shown(why)), "correct it")
        })?;
        self.expr(at, Kind::Matches(of, Box::new(pattern)))
    }

    fn looped(&mut self, of: Expr, at: usize, kind: Loop) -> Result<Expr, Bad> {
        let (place, name) = self.name()?;
        self.expect(",")?;
        if Var::ALL.iter().any(|(known, _)| *known == name) || self.locals.contains(&name) {
            let what = format!("`{}` has a meaning already", shown(&name));
            return Err(Bad::new(place, what, "choose another name"));
        }
        if self.locals.len() >= LOOPS_MOST {
            let fix = format!("at most {LOOPS_MOST} in one another");
            return Err(Bad::new(at, "too many loops in one another", fix));
        }
        self.locals.push(name);
        let body = self.choice();
        self.locals.pop();
        let body = body?;
        self.expect(")")?;
        self.expr(at, Kind::Loop(kind, Box::new([of, body])))
    }
}
