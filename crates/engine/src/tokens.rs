//! Tokens: made for what the policy allows as a whole, made narrower, taken back. A token is for whoever
//! asked for it, and only a person at the command line or a program that embeds the engine can ask for one.
//! Whoever comes through the server with a key can list, narrow and take back their own.

use std::sync::Arc;

use hotcell_bearer::{
    self as bearer, Allowed, Bearer, BearerId, Change, Claims, Holder, Moment, Narrower, Paths,
    Presented, Swept, Transaction, Who,
};
use hotcell_glob::Glob;
use hotcell_record::{Draft, Durability, Kind, WriteError, now};
use hotcell_request::{Arguments, Call, Registered, Request, Token, ToolName, VersionReq};
use hotcell_review::versions;
use hotcell_types::{CallId, Caller, Door, Effect, Name, Span, Status};

use crate::engine::{Engine, new_id};
use crate::path::not_recorded;
use crate::reply::{Problem, ProblemKind};
use crate::rulebook::{Book, Look, not_looked_up, stale};
use crate::spend::{Unspent, of_bearer, stated};
use crate::story;
use crate::weigh::{allowed, moment, no_ring};

/// What can be asked about tokens.
#[derive(Debug)]
pub enum TokenAsk {
    /// A token for calls of one tool, which the policy has to allow all.
    Mint { tool: ToolName, bounds: TokenBounds },
    /// A token for some of what this one is for. It takes its operations from it.
    Attenuate { token: Token, bounds: TokenBounds },
    /// Makes a token worth nothing, and with it everything that was derived from it.
    Revoke(BearerId),
    /// The tenant's own with higher numbers than that, in their order, [`bearer::MAX_PAGE`] at most.
    List { after: u64, limit: usize },
    /// A new key signs from now on. What older ones signed is good for so much longer, or not at all.
    Rotate { grace: Option<Span> },
}

/// What a token is for, of all that its tool can do, or that the token does which it is derived from.
#[derive(Debug, Clone)]
pub struct TokenBounds {
    /// Every path of a call has to match one of them. Without any: calls without paths, or those of `args`;
    /// and where it is derived, the paths of that token.
    pub paths: Vec<Glob>,
    /// Exactly these arguments.
    pub args: Option<Arguments>,
    pub uses: u32,
    /// As long as is usual, or as long as the token that it is derived from.
    pub life: Option<Span>,
    /// Only for calls that come from this run.
    pub run: Option<CallId>,
}

impl Default for TokenBounds {
    fn default() -> TokenBounds {
        TokenBounds { paths: Vec::new(), args: None, uses: 1, life: None, run: None }
    }
}

#[derive(Debug)]
pub enum TokenAnswer {
    /// The text is nowhere else, and is never told again.
    Minted {
        bearer: Bearer,
        claims: Box<Claims>,
    },
    /// Whether it was good for anything until now.
    Revoked(bool),
    Listed(Vec<bearer::Listed>),
    Rotated,
}

impl TokenAsk {
    fn operation(&self) -> &'static str {
        match self {
            TokenAsk::Mint { .. } => "token.mint",
            TokenAsk::Attenuate { .. } => "token.narrow",
            TokenAsk::Revoke(_) => "token.revoke",
            TokenAsk::List { .. } => "token.list",
            TokenAsk::Rotate { .. } => "token.rotate",
        }
    }
}

impl Engine {
    /// What is refused is on the disk before it is told.
    pub(crate) fn ask_token(&self, caller: &Caller, ask: TokenAsk) -> Result<TokenAnswer, Problem> {
        let operation = ask.operation();
        let answer = may_ask(caller, &ask).and_then(|()| self.answer_about_tokens(caller, ask));
        answer.map_err(|problem| {
            // Without a policy that can be used there is no token either.
            if !matches!(problem.kind, ProblemKind::Blocked | ProblemKind::Error) {
                return problem;
            }
            let refusal = story::refusal(caller, operation, &problem);
            let failed = self.record_now(refusal).err();
            failed.filter(|_| problem.kind == ProblemKind::Blocked).unwrap_or(problem)
        })
    }

    fn answer_about_tokens(&self, caller: &Caller, ask: TokenAsk) -> Result<TokenAnswer, Problem> {
        match ask {
            TokenAsk::Mint { tool, bounds } => self.mint(caller, &tool, bounds),
            TokenAsk::Attenuate { token, bounds } => self.attenuate(caller, &token, bounds),
            TokenAsk::Revoke(id) => self.revoke(caller, id),
            TokenAsk::Rotate { grace } => self.rotate(caller, grace),
            TokenAsk::List { after, limit } => {
                let list = |conn: &bearer::Connection| match sees_all(caller) {
                    true => bearer::list(conn, &caller.tenant, after, limit).map_err(Look::from),
                    false => own(conn, caller, after, limit).map_err(Look::from),
                };
                let listed = self.recording()?.look(list);
                listed.map(TokenAnswer::Listed).map_err(|error| not_looked_up(&error))
            }
        }
    }

    fn mint(
        &self,
        caller: &Caller,
        tool: &ToolName,
        bounds: TokenBounds,
    ) -> Result<TokenAnswer, Problem> {
        let book = self.book()?;
        let tool = self.registry.get(tool, None);
        let tool = tool.map_err(|error| Problem::from(&error.fault()))?;
        let call = bounds.args.map(|args| self.exact(caller, &tool, args)).transpose()?;
        if call.is_none() && tool.tool().effects.has(Effect::Network) {
            let why = format!("`{}` reaches others, and where it goes is open", tool.tool().name);
            let fix = "fix the arguments";
            return Err(not_made(why, fix));
        }
        let paths = match &call {
            Some(call) if bounds.paths.is_empty() => {
                call.paths().into_iter().map(exactly).collect()
            }
            _ => bounds.paths,
        };
        let scope = bearer::Scope {
            operation: word(tool.tool().operation())?,
            tool: Some(bearer::Tool {
                name: word(&tool.tool().name)?,
                digest: *tool.digest().as_bytes(),
            }),
            paths: Paths::new(paths).map_err(|error| unlike(error.to_string()))?,
            args: None,
        };
        let scope = bound_to(call.as_ref(), scope)?;
        let (facts, _) = self.facts_of(caller, &book)?;
        allowed(&book, caller, &tool, &scope, call.as_ref(), &facts).map_err(|why| {
            let fix =
                "ask for less, or fix the arguments; a token only remembers what the policy allows";
            not_made(why.to_string(), fix)
        })?;
        let holder = Holder {
            tenant: caller.tenant.clone(),
            subject: caller.subject.clone(),
            run: bounds.run,
        };
        let allowed = Allowed::by_policy(holder, scope, *book.policy.digest().as_bytes());
        let (ring, uses, life) = (Arc::clone(self.ring()?), bounds.uses, bounds.life);
        let minted = self.change_tokens(caller, Some(&book), move |tx, moment| {
            // Whoever makes one removes those that are long over.
            let swept = bearer::sweep(tx, moment)?;
            let minted = bearer::mint(tx, &ring, allowed, uses, life, moment)?;
            Ok(((minted.bearer, minted.claims), Changes { all: vec![minted.change], swept }))
        });
        minted.map(minted_as)
    }

    fn attenuate(
        &self,
        caller: &Caller,
        token: &Token,
        bounds: TokenBounds,
    ) -> Result<TokenAnswer, Problem> {
        let book = self.book()?;
        let ring = Arc::clone(self.ring()?);
        let parent = Presented::read(&ring, token.reveal()).map_err(|error| of_bearers(&error))?;
        let mut scope = parent.claims().scope.clone();
        if !bounds.paths.is_empty() {
            scope.paths = Paths::new(bounds.paths).map_err(|error| unlike(error.to_string()))?;
        }
        if let Some(args) = bounds.args {
            let name = scope.tool.as_ref().and_then(|tool| tool.name.as_str().parse().ok());
            let name: ToolName = name.ok_or_else(|| unlike("it has no tool of its own".into()))?;
            let tool = self.registry.get(&name, None);
            let tool = tool.map_err(|error| Problem::from(&error.fault()))?;
            let call = self.exact(caller, &tool, args)?;
            scope = bound_to(Some(&call), scope)?;
        }
        let TokenBounds { run, uses, life, .. } = bounds;
        let narrower = Narrower { run, scope, uses, life };
        let (by, policy) = (caller.clone(), *book.policy.digest().as_bytes());
        let minted = self.change_tokens(caller, Some(&book), move |tx, moment| {
            let who = Who { tenant: &by.tenant, subject: &by.subject, run: None };
            let (child, shared) =
                bearer::attenuate(tx, &ring, &parent, &who, policy, narrower, moment)?;
            let all = vec![shared, child.change];
            Ok(((child.bearer, child.claims), Changes { all, swept: None }))
        });
        minted.map(minted_as)
    }

    fn revoke(&self, caller: &Caller, id: BearerId) -> Result<TokenAnswer, Problem> {
        let tenant: Name = caller.tenant.clone();
        let only = (!sees_all(caller)).then(|| caller.subject.clone());
        let revoked = self.change_tokens(caller, None, move |tx, moment| {
            if let Some(subject) = only {
                let held = bearer::get(tx, &tenant, id)?;
                held.filter(|held| held.claims.holder.subject == subject)
                    .ok_or(bearer::Error::NoBearer(id))?;
            }
            let change = bearer::revoke(tx, &tenant, id, moment)?;
            let is_new = change.is_some();
            Ok((is_new, Changes { all: change.into_iter().collect(), swept: None }))
        });
        revoked.map(TokenAnswer::Revoked)
    }

    /// On the disk before it happens, and again if it did not.
    fn rotate(&self, caller: &Caller, grace: Option<Span>) -> Result<TokenAnswer, Problem> {
        let operation = "token.rotate";
        let moment = moment(now())?;
        let ring = self.ring()?;
        let reason = match grace {
            Some(grace) => format!("the keys of tokens are replaced, and good for {grace} more"),
            None => "the keys of tokens are replaced, and all tokens are worth nothing".into(),
        };
        let event = draft(Kind::BearerChanged, caller, operation, reason);
        let written = self.recording()?.write(Durability::Synced, move |tx| {
            let time = bearer::advance(tx, &moment)?;
            Ok::<_, Unspent>((time, vec![event]))
        });
        let (time, _) = written.map_err(|error| not_changed(error, None))?;
        ring.rotate(time, grace).map_err(|error| {
            let failed = format!("the keys of tokens were not replaced: {}", error.why);
            let failed = Draft {
                status: Some(Status::Error),
                ..draft(Kind::BearerChanged, caller, operation, failed)
            };
            self.record_now(failed).err().unwrap_or_else(|| no_ring(&error))
        })?;
        Ok(TokenAnswer::Rotated)
    }

    /// The only call that a token with these arguments is for.
    fn exact(&self, caller: &Caller, tool: &Registered, args: Arguments) -> Result<Call, Problem> {
        let mut request = Request::new(tool.tool().name.clone(), args);
        request.version = Some(VersionReq::exactly(tool.tool().version));
        Call::new(request, caller.clone(), new_id(), &self.registry).map_err(|error| {
            let fault = error.faults().first().map(Problem::from);
            fault.unwrap_or_else(|| unlike(error.to_string()))
        })
    }

    /// Rows and what the chain says of them, on the disk, as long as the policy holds that allowed it.
    fn change_tokens<T: Send + 'static>(
        &self,
        caller: &Caller,
        book: Option<&Book>,
        change: impl FnOnce(&Transaction<'_>, &Moment) -> Result<(T, Changes), Unspent> + Send + 'static,
    ) -> Result<T, Problem> {
        let moment = moment(now())?;
        let version = book.and_then(Book::must_hold);
        let by = caller.clone();
        let written = self.recording()?.write(Durability::Synced, move |tx| {
            if let Some(version) = version
                && versions::newest_number(tx)? != version
            {
                return Err(Unspent::Stale);
            }
            let (value, changes) = change(tx, &moment)?;
            Ok((value, changes.told(&by, moment.clock)))
        });
        written.map(|(value, _)| value).map_err(|error| not_changed(error, book))
    }
}

/// What was done to tokens in one transaction.
struct Changes {
    all: Vec<Change>,
    swept: Option<Swept>,
}

impl Changes {
    fn told(&self, by: &Caller, time: i64) -> Vec<Draft> {
        let swept = self.swept.iter().map(|swept| {
            let reason = format!("{} tokens that expired long ago were removed", swept.count);
            let stated = Some(stated(&swept.statement));
            Draft { stated, time, ..draft(Kind::BearerChanged, by, "token.sweep", reason) }
        });
        swept.chain(self.all.iter().map(|change| of_bearer(change, by, None, time))).collect()
    }
}

/// What runs in a sandbox, or asks for a model, never gets more than it was given. Whoever comes with a key
/// can give up what they have, or some of it, and gets nothing by that.
fn may_ask(caller: &Caller, ask: &TokenAsk) -> Result<(), Problem> {
    match (caller.door, ask) {
        (Door::Cli | Door::Library, _) => Ok(()),
        (Door::Rest, TokenAsk::List { .. } | TokenAsk::Attenuate { .. } | TokenAsk::Revoke(_)) => {
            Ok(())
        }
        (door, _) => {
            let why = match door {
                Door::Rest => {
                    "who comes through `rest` may use, narrow and revoke tokens, and not make them"
                        .to_owned()
                }
                door => {
                    format!(
                        "who comes through `{door}` may use tokens, and not make or change them"
                    )
                }
            };
            let fix = "have somebody do it at the command line: `hotcell token`";
            let what = "tokens are not for everybody to make";
            Err(Problem::new(what, why, fix).of(ProblemKind::Blocked))
        }
    }
}

/// Whether somebody is told of the tokens of others.
fn sees_all(caller: &Caller) -> bool {
    matches!(caller.door, Door::Cli | Door::Library)
}

/// The caller's own with higher numbers than that, in their order. What a tenant can have is bounded, and so
/// is the looking.
fn own(
    conn: &bearer::Connection,
    caller: &Caller,
    mut after: u64,
    limit: usize,
) -> Result<Vec<bearer::Listed>, bearer::Error> {
    let mut own = Vec::new();
    while own.len() < limit {
        let page = bearer::list(conn, &caller.tenant, after, bearer::MAX_PAGE)?;
        let Some(last) = page.last() else { break };
        after = last.stored.claims.nonce;
        let is_own = |one: &bearer::Listed| one.stored.claims.holder.subject == caller.subject;
        own.extend(page.into_iter().filter(is_own));
    }
    own.truncate(limit);
    Ok(own)
}

/// The scope with the arguments of its only call, which it has to be for.
fn bound_to(call: Option<&Call>, scope: bearer::Scope) -> Result<bearer::Scope, Problem> {
    let Some(call) = call else { return Ok(scope) };
    if !scope.paths.cover(&call.paths()) {
        return Err(unlike("its arguments have paths that it is not for, or none".into()));
    }
    Ok(bearer::Scope { args: Some(*call.args_digest().as_bytes()), ..scope })
}

/// A root has no pattern of its own; where the arguments are fixed, all paths are no more than theirs.
fn exactly(path: &str) -> Glob {
    let exact = Glob::exactly(path);
    match Glob::parse(exact.as_str()) {
        Ok(_) => exact,
        Err(_) => Glob::parse("**").unwrap_or(exact),
    }
}

fn word(name: &ToolName) -> Result<bearer::Word, Problem> {
    name.to_string().parse().map_err(|error: bearer::BadWord| unlike(error.to_string()))
}

fn minted_as((bearer, claims): (Bearer, Claims)) -> TokenAnswer {
    TokenAnswer::Minted { bearer, claims: Box::new(claims) }
}

fn draft(kind: Kind, caller: &Caller, operation: &str, reason: String) -> Draft {
    let mut draft = Draft::new(kind, caller.clone(), now());
    draft.operation = Some(operation.to_owned());
    draft.reason = Some(reason);
    draft
}

fn not_made(why: String, fix: &str) -> Problem {
    let what = "the policy does not allow all that the token would be for";
    Problem::new(what, why, fix).of(ProblemKind::Blocked)
}

fn unlike(why: String) -> Problem {
    let what = "there is no token like this";
    Problem::new(what, why, "ask for another").of(ProblemKind::Invalid)
}

fn not_changed(error: WriteError<Unspent>, book: Option<&Book>) -> Problem {
    match (error, book) {
        (WriteError::Own(Unspent::Stale), Some(book)) => stale(book),
        (WriteError::Own(Unspent::Token(error)), _) => of_bearers(&error),
        (WriteError::Own(error), _) => not_recorded(&error),
        (WriteError::Append(error), _) => not_recorded(&error),
    }
}

fn of_bearers(error: &bearer::Error) -> Problem {
    let problem = |what: &str, fix: &str| Problem::new(what, error.to_string(), fix);
    match error {
        bearer::Error::Refused(_) => {
            let fix = "`hotcell token ls` shows what there is; `hotcell token mint` makes another";
            problem("the token is not good for that", fix).of(ProblemKind::Blocked)
        }
        bearer::Error::NoBearer(_) => {
            let fix = "`hotcell token ls` lists them";
            problem("there is no such token", fix).of(ProblemKind::NotFound)
        }
        bearer::Error::Impossible(_) => unlike(error.to_string()),
        bearer::Error::Full { .. } => {
            problem("there is no room for it", "wait").of(ProblemKind::Busy)
        }
        bearer::Error::Ring(error) => no_ring(error),
        _ => problem("tokens cannot be changed", "`hotcell audit verify` says more"),
    }
}
