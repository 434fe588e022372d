//! Tokens: what the policy allows, remembered for a while and for so many calls.

use hotcell_bearer as bearer;
use hotcell_engine::TokenBounds;
use hotcell_glob::Glob;
use hotcell_request::Arguments;
use hotcell_types::{CallId, hex};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::problem::Problem;
use crate::words;

/// What a token is for, of all that its tool can do.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Bounds {
    /// Every path of a call has to match one of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// Exactly these arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Map<String, Value>>,
    /// For how many calls; one, if nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uses: Option<u32>,
    /// For how long, such as `30s`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub life: Option<String>,
    /// Only for calls that come from this run.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "words::maybe_id")]
    pub run: Option<CallId>,
}

/// A token that was made. Its text is nowhere else.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Minted {
    pub version: u32,
    pub token: String,
    pub id: String,
    pub uses: u32,
    pub expires_ns: i64,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Token {
    pub id: String,
    /// `good`, `held` (all that is left waits for somebody to agree), `used up`, `expired` or `revoked`.
    pub state: &'static str,
    pub subject: String,
    #[schemars(schema_with = "words::maybe_id")]
    pub run: Option<CallId>,
    pub operation: String,
    pub tool: Option<String>,
    pub paths: Vec<String>,
    pub arguments_sha256: Option<String>,
    pub uses: u32,
    pub left: u32,
    pub held: u32,
    pub issued_ns: i64,
    pub expires_ns: i64,
    pub revoked_ns: Option<i64>,
    pub parent: Option<String>,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Tokens {
    pub version: u32,
    pub tokens: Vec<Token>,
    /// What to give as `after` for those that follow, if there may be any.
    pub next: Option<u64>,
}

/// Whether it was good for anything until now.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Revoked {
    pub version: u32,
    pub changed: bool,
}

impl Minted {
    pub fn of(bearer: &bearer::Bearer, claims: &bearer::Claims) -> Minted {
        Minted {
            version: 1,
            token: bearer.reveal().to_owned(),
            id: claims.id.to_string(),
            uses: claims.uses,
            expires_ns: claims.expires,
        }
    }
}

impl Bounds {
    pub(crate) fn read(self) -> Result<TokenBounds, Problem> {
        let wrong = |at: &str, why: &dyn std::fmt::Display| {
            Problem::invalid(at, "the bounds of a token cannot be read", why.to_string())
        };
        let glob = |text: &String| Glob::parse(text).map_err(|error| wrong("/paths", &error));
        let life = self.life.map(|life| life.parse()).transpose();
        Ok(TokenBounds {
            paths: self.paths.iter().map(glob).collect::<Result<_, _>>()?,
            args: self.arguments.map(|args| Arguments::Value(Value::Object(args))),
            uses: self.uses.unwrap_or(1),
            life: life.map_err(|error| wrong("/life", &error))?,
            run: self.run,
        })
    }
}

impl Tokens {
    /// Of a page that may have been cut at `limit`.
    pub(crate) fn of(page: &[bearer::Listed], limit: usize, now: i64) -> Tokens {
        let next = page.last().filter(|_| page.len() >= limit);
        let next = next.map(|last| last.stored.claims.nonce);
        let tokens = page.iter().map(|listed| Token::of(listed, now)).collect();
        Tokens { version: 1, tokens, next }
    }
}

const GOOD: &str = "good";
/// All that is left waits for somebody to agree.
const HELD: &str = "held";

impl Token {
    pub fn of(listed: &bearer::Listed, now: i64) -> Token {
        let stored = &listed.stored;
        let bearer::Claims { id, holder, scope, uses, issued, expires, parent, .. } =
            &stored.claims;
        Token {
            id: id.to_string(),
            state: state(listed, now),
            subject: holder.subject.to_string(),
            run: holder.run,
            operation: scope.operation.as_str().to_owned(),
            tool: scope.tool.as_ref().map(|tool| tool.name.as_str().to_owned()),
            paths: scope.paths.globs().iter().map(|glob| glob.as_str().to_owned()).collect(),
            arguments_sha256: scope.args.map(|digest| hex::text(&digest)),
            uses: *uses,
            left: stored.left,
            held: stored.held,
            issued_ns: *issued,
            expires_ns: *expires,
            revoked_ns: stored.revoked,
            parent: parent.map(|parent| parent.to_string()),
        }
    }

    pub fn can_be_used(&self) -> bool {
        self.state == GOOD || self.state == HELD
    }
}

fn state(listed: &bearer::Listed, now: i64) -> &'static str {
    match &listed.stored {
        _ if listed.is_revoked => "revoked",
        stored if stored.claims.expires <= now => "expired",
        bearer::Stored { left: 0, held: 0, .. } => "used up",
        bearer::Stored { left: 0, .. } => HELD,
        _ => GOOD,
    }
}
