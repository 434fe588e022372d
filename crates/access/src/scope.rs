//! What a key is for. A scope opens a door and no more than that: what is asked for behind it is judged by
//! the policy as anybody else's call is.

use std::fmt;
use std::str::FromStr;

/// A part of what a server can be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// Running code, calling tools that execute something, and ending what one runs.
    Run,
    /// Finding tools, and calling those that execute nothing; with `run`, all.
    Tools,
    /// What became of calls: states, output, live events.
    RunsRead,
    /// Sandboxes that stay, and files in them. Opens nothing yet.
    Sandboxes,
    /// What calls were given and made.
    ArtifactsRead,
    /// Tags, verdicts and going back to older versions.
    ArtifactsWrite,
    /// Events of the tenant, and whether the record is sound.
    Audit,
    /// What waits for somebody to agree.
    ApprovalsRead,
    /// Handing in answers, which an approver has to have signed, and taking back what one asked for.
    ApprovalsWrite,
    /// The policy, and what it would say.
    PolicyRead,
    /// Handing in a policy, which an approver has to have signed.
    PolicyWrite,
    /// One's own tokens: listing, narrowing and revoking them. None is made with it.
    Tokens,
    /// Numbers about the server, of all tenants.
    Metrics,
    /// All of these.
    Admin,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no scope `{0}`: choose among {known}", known = Scope::ALL.map(Scope::name).join(", "))]
pub struct BadScope(String);

impl Scope {
    pub const ALL: [Scope; 14] = [
        Scope::Run,
        Scope::Tools,
        Scope::RunsRead,
        Scope::Sandboxes,
        Scope::ArtifactsRead,
        Scope::ArtifactsWrite,
        Scope::Audit,
        Scope::ApprovalsRead,
        Scope::ApprovalsWrite,
        Scope::PolicyRead,
        Scope::PolicyWrite,
        Scope::Tokens,
        Scope::Metrics,
        Scope::Admin,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Scope::Run => "run",
            Scope::Tools => "tools",
            Scope::RunsRead => "runs:read",
            Scope::Sandboxes => "sandboxes",
            Scope::ArtifactsRead => "artifacts:read",
            Scope::ArtifactsWrite => "artifacts:write",
            Scope::Audit => "audit",
            Scope::ApprovalsRead => "approvals:read",
            Scope::ApprovalsWrite => "approvals:write",
            Scope::PolicyRead => "policy:read",
            Scope::PolicyWrite => "policy:write",
            Scope::Tokens => "tokens",
            Scope::Metrics => "metrics",
            Scope::Admin => "admin",
        }
    }

    fn bit(self) -> u16 {
        1 << self as u16
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Scope {
    type Err = BadScope;

    fn from_str(text: &str) -> Result<Scope, BadScope> {
        let found = Scope::ALL.into_iter().find(|scope| scope.name() == text);
        found.ok_or_else(|| {
            BadScope(text.chars().take(32).collect::<String>().escape_default().to_string())
        })
    }
}

/// Scopes, each once; written in one order, with one space between them.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Scopes(u16);

impl Scopes {
    /// Whether it is one of them, or all are.
    pub fn has(self, scope: Scope) -> bool {
        self.0 & (scope.bit() | Scope::Admin.bit()) != 0
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Those that were named.
    pub fn each(self) -> impl Iterator<Item = Scope> {
        Scope::ALL.into_iter().filter(move |scope| self.0 & scope.bit() != 0)
    }

    /// As they are written, and in no other way.
    pub(crate) fn read(text: &str) -> Option<Scopes> {
        let scopes: Scopes =
            text.split(' ').map(|name| name.parse().ok()).collect::<Option<_>>()?;
        (scopes.to_string() == text).then_some(scopes)
    }
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Scopes {
        Scopes(scopes.into_iter().fold(0, |all, scope| all | scope.bit()))
    }
}

impl fmt::Display for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut each = self.each();
        each.next().map_or(Ok(()), |first| f.write_str(first.name()))?;
        each.try_for_each(|scope| write!(f, " {scope}"))
    }
}

impl fmt::Debug for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scopes({self})")
    }
}
