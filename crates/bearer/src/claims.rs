//! What a bearer says: who may do what, how often and until when.

use std::fmt;
use std::str::FromStr;

use hotcell_glob::Glob;
use hotcell_types::{CallId, Name, Span};

use crate::check::{Facts, Who, Why};
use crate::id::BearerId;

/// A SHA-256.
pub type Digest = [u8; 32];

/// Most patterns of paths.
pub const MAX_PATHS: usize = 32;
/// Most operations of one bearer.
pub const MAX_USES: u32 = 1_000_000;
/// Most generations: a bearer without a parent is the first.
pub const MAX_DEPTH: usize = 8;

/// For what a bearer is presented. One of these is never taken for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Audience {
    /// A remembered decision of the policy.
    Token,
    /// What code in a sandbox calls back with.
    Run,
    /// What code in a sandbox reaches the network with.
    Proxy,
}

impl Audience {
    pub const ALL: [Audience; 3] = [Audience::Token, Audience::Run, Audience::Proxy];

    pub fn name(self) -> &'static str {
        match self {
            Audience::Token => "token",
            Audience::Run => "run",
            Audience::Proxy => "proxy",
        }
    }

    /// How long one lives if nobody says.
    pub fn usual_life(self) -> Span {
        match self {
            Audience::Token => Span::seconds(30),
            Audience::Run | Audience::Proxy => Span::seconds(24 * 3600),
        }
    }

    /// How long one lives at most.
    pub fn longest_life(self) -> Span {
        match self {
            Audience::Token => Span::seconds(3600),
            Audience::Run | Audience::Proxy => Span::seconds(7 * 24 * 3600),
        }
    }
}

impl fmt::Display for Audience {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The name of an operation or of a tool, as the policy has it: 1 to 129 visible characters of ASCII.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Word(Box<str>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an operation or a tool has a name of 1 to {} visible characters of ASCII", Word::MAX)]
pub struct BadWord;

impl Word {
    /// A tool's name with its namespace.
    pub const MAX: usize = 129;

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Word {
    type Err = BadWord;

    fn from_str(text: &str) -> Result<Word, BadWord> {
        let is_visible = text.bytes().all(|byte| byte.is_ascii_graphic());
        let fits = (1..=Word::MAX).contains(&text.len());
        if fits && is_visible { Ok(Word(text.into())) } else { Err(BadWord) }
    }
}

/// Who may present it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    pub tenant: Name,
    pub subject: Name,
    /// Only within this run; without one, within any of the subject's and outside.
    pub run: Option<CallId>,
}

impl Holder {
    pub(crate) fn is(&self, who: &Who<'_>) -> bool {
        let is_run = self.run.is_none() || self.run == who.run;
        self.tenant == *who.tenant && self.subject == *who.subject && is_run
    }

    /// Whether whoever is the other one is this one too.
    pub(crate) fn includes(&self, other: &Holder) -> bool {
        let run = other.run;
        self.is(&Who { tenant: &other.tenant, subject: &other.subject, run })
    }
}

/// A tool as it described itself then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tool {
    pub name: Word,
    /// Of its definition.
    pub digest: Digest,
}

/// Patterns of paths, each once and in one order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Paths(Vec<Glob>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a token has at most {MAX_PATHS} patterns of paths")]
pub struct TooManyPaths;

impl Paths {
    pub fn new(mut globs: Vec<Glob>) -> Result<Paths, TooManyPaths> {
        globs.sort_by(|one, other| one.as_str().cmp(other.as_str()));
        globs.dedup_by(|one, other| one.as_str() == other.as_str());
        if globs.len() <= MAX_PATHS { Ok(Paths(globs)) } else { Err(TooManyPaths) }
    }

    pub fn globs(&self) -> &[Glob] {
        &self.0
    }

    /// All of them, and there are some; or there are none, and no patterns either.
    pub fn cover(&self, paths: &[&str]) -> bool {
        let is_in = |path: &&str| self.0.iter().any(|glob| glob.matches(path));
        self.0.is_empty() == paths.is_empty() && paths.iter().all(is_in)
    }

    fn include(&self, other: &Paths) -> bool {
        let is_in = |narrow: &Glob| self.0.iter().any(|wide| wide.covers(narrow));
        self.0.is_empty() == other.0.is_empty() && other.0.iter().all(is_in)
    }
}

/// Which calls it is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    pub operation: Word,
    /// Without one, every tool of the operation.
    pub tool: Option<Tool>,
    /// Every path of a call has to match one of them. Without any, only calls without paths are meant:
    /// `**` is how all paths are written.
    pub paths: Paths,
    /// Without one, any arguments.
    pub args: Option<Digest>,
}

impl Scope {
    /// Any tool and any arguments.
    pub fn new(operation: Word, paths: Paths) -> Scope {
        Scope { operation, tool: None, paths, args: None }
    }

    pub(crate) fn covers(&self, facts: &Facts<'_>) -> Result<(), Why> {
        let is_tool =
            |tool: &Tool| tool.name.as_str() == facts.tool && tool.digest == facts.tool_digest;
        for (is_so, why) in [
            (self.operation.as_str() == facts.operation, Why::Operation),
            (self.tool.as_ref().is_none_or(is_tool), Why::Tool),
            (self.paths.cover(facts.paths), Why::Path),
            (self.args.is_none_or(|args| args == facts.args), Why::Arguments),
        ] {
            if !is_so {
                return Err(why);
            }
        }
        Ok(())
    }

    /// Whether every call of the other one is one of this. Says yes only if that is so.
    pub fn includes(&self, other: &Scope) -> bool {
        self.operation == other.operation
            && (self.tool.is_none() || self.tool == other.tool)
            && self.paths.include(&other.paths)
            && (self.args.is_none() || self.args == other.args)
    }
}

/// Everything that a bearer says. Made by minting, or read from what was minted.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Claims {
    pub id: BearerId,
    pub audience: Audience,
    pub holder: Holder,
    pub scope: Scope,
    /// Operations at issue.
    pub uses: u32,
    /// Nanoseconds since 1970, as [`crate::now`] has it.
    pub issued: i64,
    pub expires: i64,
    /// 1, 2, 3 … of the home.
    pub nonce: u64,
    /// The policy that allowed it: under another it is worth nothing.
    pub policy: Digest,
    pub parent: Option<BearerId>,
}

impl Claims {
    /// What holds of every bearer that was ever minted.
    pub(crate) fn is_possible(&self) -> bool {
        let longest = i128::from(self.audience.longest_life().as_millis()) * 1_000_000;
        let life = i128::from(self.expires) - i128::from(self.issued);
        (1..=longest).contains(&life)
            && self.issued >= 0
            && (1..=MAX_USES).contains(&self.uses)
            && (1..=i64::MAX as u64).contains(&self.nonce)
    }

    /// Whether the other one is a child of this, and can do nothing that this cannot.
    pub(crate) fn includes(&self, child: &Claims) -> bool {
        child.parent == Some(self.id)
            && self.nonce < child.nonce
            && self.audience == child.audience
            && self.holder.includes(&child.holder)
            && self.scope.includes(&child.scope)
            && self.uses >= child.uses
            && self.issued <= child.issued
            && self.expires >= child.expires
            && self.policy == child.policy
    }

    /// Whether it is for what happens, apart from time and from what was used.
    pub(crate) fn covers(&self, facts: &Facts<'_>) -> Result<(), Why> {
        if self.audience != facts.audience {
            return Err(Why::Audience);
        }
        if !self.holder.is(&facts.who) {
            return Err(Why::Subject);
        }
        self.scope.covers(facts)?;
        if self.policy == facts.policy { Ok(()) } else { Err(Why::Policy) }
    }
}
