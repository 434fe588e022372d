//! `hotcell token`: what the policy allows, remembered for a while and for so many calls.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use hotcell_bearer::{BearerId, Claims, MAX_PAGE};
use hotcell_engine::{Answer, Ask, Engine, TokenAnswer, TokenAsk, TokenBounds};
use hotcell_glob::Glob;
use hotcell_record::now;
use hotcell_request::{Arguments, Token, ToolName};
use hotcell_sandbox::cause;
use hotcell_types::Span;

use crate::home;
use crate::print::{self, harmless};
use crate::problem::{self, Problem};

/// Most tokens that are listed: the newest.
const MOST_LISTED: usize = 10_000;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Makes a token for calls of one tool
    ///
    /// Only if the policy allows all of them. It is for you alone, and only as long as the policy stays the
    /// same. The token is printed to standard output, once: nothing keeps it.
    Mint {
        /// As `hotcell tool ls` has it
        tool: ToolName,
        #[command(flatten)]
        bounds: Bounds,
        /// Print one JSON document, with the token in it
        #[arg(long)]
        json: bool,
    },
    /// Lists tokens that can still be used
    Ls {
        /// Those that expired, were used up or revoked as well
        #[arg(long)]
        all: bool,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Makes a token worth nothing, and everything that was derived from it
    Revoke {
        /// As `hotcell token ls` shows it
        id: BearerId,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Makes a token for less than another one is for
    ///
    /// It takes its uses from that one. Printed to standard output, once.
    Narrow {
        /// A file with the token; `-` is standard input
        file: PathBuf,
        #[command(flatten)]
        bounds: Bounds,
        /// Print one JSON document, with the token in it
        #[arg(long)]
        json: bool,
    },
    /// Makes a new key that signs tokens
    ///
    /// Tokens that older keys signed are worth nothing from now on, or after some time.
    Rotate {
        /// How long older keys stay good, a week at most
        #[arg(long, value_name = "TIME")]
        grace: Option<Span>,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct Bounds {
    /// Only for paths that match, as in gitignore; `**` is every path. Without it, for calls without paths
    /// (of a narrower token: for the same paths)
    #[arg(long = "path", value_name = "GLOB", value_parser = glob)]
    paths: Vec<Glob>,
    /// Only for exactly these arguments, a JSON object. Tools that reach a network need it
    #[arg(long, value_name = "JSON")]
    args: Option<String>,
    /// For how many calls
    #[arg(long, value_name = "N", default_value_t = 1)]
    uses: u32,
    /// For how long, an hour at most [default: 30s; of a narrower token: as long as the other one]
    #[arg(long = "for", value_name = "TIME")]
    life: Option<Span>,
}

fn glob(text: &str) -> Result<Glob, String> {
    Glob::parse(text).map_err(|error| error.to_string())
}

impl From<Bounds> for TokenBounds {
    fn from(bounds: Bounds) -> TokenBounds {
        let Bounds { paths, args, uses, life } = bounds;
        let args = args.map(|args| Arguments::Bytes(args.into_bytes()));
        TokenBounds { paths, args, uses, life, run: None }
    }
}

pub(crate) fn main(command: Command) -> u8 {
    let (done, json) = match command {
        Command::Mint { tool, bounds, json } => {
            let bounds = bounds.into();
            (make(home::open(None), TokenAsk::Mint { tool, bounds }, json), json)
        }
        Command::Ls { all, json } => (list(all, json), json),
        Command::Revoke { id, json } => (revoke(id, json), json),
        Command::Narrow { file, bounds, json } => (narrow(&file, bounds.into(), json), json),
        Command::Rotate { grace, json } => (rotate(grace, json), json),
    };
    done.unwrap_or_else(|problem| problem::report(&problem, json))
}

/// The token in a file, or on standard input. What is wrong with it is told without showing it.
pub(crate) fn read(file: &Path) -> Result<Token, Problem> {
    let read =
        if file == "-" { text_of(io::stdin().lock()) } else { File::open(file).and_then(text_of) };
    let unread = |error: io::Error| {
        let what = format!("the token in `{}` cannot be read", file.display());
        Problem::invalid(what).why(cause(&error)).fix("give a file with one token, or `-`")
    };
    let text = read.map_err(unread)?;
    text.trim_end_matches(['\r', '\n']).parse().map_err(|error: hotcell_request::BadKey| {
        Problem::invalid(format!("there is no token in `{}`", file.display()))
            .why(error.to_string())
            .fix("give a file with what `hotcell token mint` printed")
    })
}

fn text_of(source: impl Read) -> io::Result<String> {
    /// One too many is enough to see that it is too long.
    const MOST: u64 = Token::MAX as u64 + 3;
    let mut text = String::new();
    source.take(MOST).read_to_string(&mut text)?;
    Ok(text)
}

fn ask(engine: &Engine, ask: TokenAsk) -> Result<TokenAnswer, Problem> {
    match engine.ask(&home::caller(), Ask::Token(ask)) {
        Answer::Token(answer) => Ok(answer),
        Answer::Failed(problem) => Err(problem.into()),
        _ => Err(no_answer()),
    }
}

/// The token to programs, what it is for to people.
fn make(engine: Result<Engine, Problem>, asked: TokenAsk, json: bool) -> Result<u8, Problem> {
    let engine = engine?;
    let TokenAnswer::Minted { bearer, claims } = ask(&engine, asked)? else {
        return Err(no_answer());
    };
    if json {
        let document = print::document(&hotcell_api::Minted::of(&bearer, &claims));
        return Ok(home::close(engine, print::data(&document)));
    }
    let code = print::data(&format!("{}\n", bearer.reveal()));
    if code == 0 {
        let (id, uses) = (claims.id, claims.uses);
        let (what, until) = (meant(&claims), home::moment(claims.expires));
        let calls = if uses == 1 { "call" } else { "calls" };
        print::to_people(&format!(
            "hotcell: token {id} is for {uses} {calls} of {what}, until {until}\n"
        ));
    }
    Ok(home::close(engine, code))
}

/// Which calls it is for.
fn meant(claims: &Claims) -> String {
    let scope = &claims.scope;
    let tool = scope.tool.as_ref().map_or(&scope.operation, |tool| &tool.name).as_str();
    let paths: Vec<&str> = scope.paths.globs().iter().map(Glob::as_str).collect();
    let on = if paths.is_empty() { String::new() } else { format!(" on {}", paths.join(" ")) };
    let with = if scope.args.is_some() { " with the arguments given" } else { "" };
    harmless(&format!("{tool}{on}{with}"))
}

fn narrow(file: &Path, bounds: TokenBounds, json: bool) -> Result<u8, Problem> {
    let token = read(file)?;
    make(home::look(), TokenAsk::Attenuate { token, bounds }, json)
}

fn revoke(id: BearerId, json: bool) -> Result<u8, Problem> {
    let engine = home::look()?;
    let TokenAnswer::Revoked(is_new) = ask(&engine, TokenAsk::Revoke(id))? else {
        return Err(no_answer());
    };
    if json {
        let document = hotcell_api::Revoked { version: 1, changed: is_new };
        return Ok(home::close(engine, print::data(&print::document(&document))));
    }
    print::to_people(&match is_new {
        true => format!("hotcell: token {id} is worth nothing now, nor what was derived from it\n"),
        false => format!("hotcell: token {id} was revoked before\n"),
    });
    Ok(home::close(engine, 0))
}

fn rotate(grace: Option<Span>, json: bool) -> Result<u8, Problem> {
    let engine = home::open(None)?;
    ask(&engine, TokenAsk::Rotate { grace })?;
    if json {
        let grace_ms = grace.map_or(0, Span::as_millis);
        let document = serde_json::json!({ "version": 1, "grace_ms": grace_ms });
        return Ok(home::close(engine, print::data(&print::document(&document))));
    }
    print::to_people(&match grace {
        Some(grace) => {
            format!("hotcell: a new key signs tokens; older ones are good for {grace} more\n")
        }
        None => "hotcell: a new key signs tokens; all tokens so far are worth nothing\n".into(),
    });
    Ok(home::close(engine, 0))
}

fn list(all: bool, json: bool) -> Result<u8, Problem> {
    let engine = home::look()?;
    let (mut tokens, mut after, mut left_out) = (VecDeque::new(), 0, false);
    loop {
        let TokenAnswer::Listed(page) = ask(&engine, TokenAsk::List { after, limit: MAX_PAGE })?
        else {
            return Err(no_answer());
        };
        let Some(last) = page.last() else { break };
        after = last.stored.claims.nonce;
        for listed in page {
            let token = hotcell_api::Token::of(&listed, now());
            if all || token.can_be_used() {
                tokens.push_back((meant(&listed.stored.claims), token));
            }
            if tokens.len() > MOST_LISTED {
                tokens.pop_front();
                left_out = true;
            }
        }
    }
    if left_out {
        print::to_people(&format!("hotcell: only the newest {MOST_LISTED} are listed\n"));
    }
    let code = print::data(&match json {
        true => {
            let tokens = tokens.into_iter().map(|(_, token)| token).collect();
            print::document(&hotcell_api::Tokens { version: 1, tokens, next: None })
        }
        false => table(&tokens),
    });
    Ok(home::close(engine, code))
}

fn table(tokens: &VecDeque<(String, hotcell_api::Token)>) -> String {
    let row = |id: &str, state: &str, left: &str, until: &str, what: &str| {
        format!("{id:<32}  {state:<7}  {left:>9}  {until:<20}  {what}\n")
    };
    let mut text = row("ID", "STATE", "LEFT", "UNTIL", "FOR");
    for (what, token) in tokens {
        let left = format!("{}/{}", token.left, token.uses);
        text.push_str(&row(&token.id, token.state, &left, &home::moment(token.expires_ns), what));
    }
    text
}

fn no_answer() -> Problem {
    Problem::error("the record gave no answer about tokens")
}
