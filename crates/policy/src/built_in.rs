//! The rules that every policy has, and that nobody can take away: what decides and what remembers is not
//! written by those it is about, and nothing is written that somebody else would execute.

use hotcell_types::{Decision, Effect};

use crate::subject::Subject;

/// A rule of the built-in layer.
#[derive(Debug)]
pub(crate) struct BuiltIn {
    pub(crate) name: &'static str,
    pub(crate) reason: &'static str,
    pub(crate) decision: Decision,
    pub(crate) speaks: fn(&Subject<'_>, &Protected) -> bool,
}

/// Names of files and directories that the built-in rules protect, wherever they are and however they are
/// spelled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Protected {
    /// The policy.
    pub policy: Vec<String>,
    /// The record and its anchor.
    pub audit: Vec<String>,
    /// The state.
    pub state: Vec<String>,
    /// What sets a home up. None, unless it lies in workspaces.
    pub bootstrap: Vec<String>,
    /// What hotcell itself consists of. None, unless it lies in workspaces.
    pub kernel: Vec<String>,
}

impl Default for Protected {
    fn default() -> Protected {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Protected {
            policy: names(&["policy.yaml", "policy.yml"]),
            audit: names(&["hotcell.db", "hotcell.db-wal", "hotcell.db-shm", "anchor.log"]),
            state: names(&["state.db", "state.db-wal", "state.db-shm"]),
            bootstrap: Vec::new(),
            kernel: Vec::new(),
        }
    }
}

/// At most 10.
pub(crate) const BUILT_IN: &[BuiltIn] = &[
    BuiltIn {
        name: "protect-policy",
        reason: "the policy is changed by `policy.update` only",
        decision: Decision::Deny,
        speaks: |subject, protected| writes(subject, &protected.policy),
    },
    BuiltIn {
        name: "protect-audit",
        reason: "the record is written by hotcell alone",
        decision: Decision::Deny,
        speaks: |subject, protected| writes(subject, &protected.audit),
    },
    BuiltIn {
        name: "protect-state",
        reason: "the state is written by hotcell alone",
        decision: Decision::Deny,
        speaks: |subject, protected| writes(subject, &protected.state),
    },
    BuiltIn {
        name: "protect-bootstrap",
        reason: "it would change how a home is set up",
        decision: Decision::Review,
        speaks: |subject, protected| writes(subject, &protected.bootstrap),
    },
    BuiltIn {
        name: "protect-kernel",
        reason: "it would change hotcell itself",
        decision: Decision::Review,
        speaks: |subject, protected| writes(subject, &protected.kernel),
    },
    BuiltIn {
        name: "review-policy-update",
        reason: "it would change what is allowed",
        decision: Decision::Review,
        speaks: |subject, _| subject.operation.bare() == "policy.update",
    },
    BuiltIn {
        name: "nothing-that-starts-itself",
        reason: "somebody else would execute it without being asked",
        decision: Decision::Deny,
        speaks: |subject, _| {
            is_write(subject) && subject.paths.iter().any(|path| starts_itself(path))
        },
    },
];

/// A tool that says it writes, or that is called so.
fn is_write(subject: &Subject<'_>) -> bool {
    subject.effects.has(Effect::Write) || subject.operation.bare() == "fs.write"
}

fn writes(subject: &Subject<'_>, names: &[String]) -> bool {
    let is_named = |part: &str| names.iter().any(|name| is_plainly(part, name));
    is_write(subject) && subject.paths.iter().any(|path| path.split('/').any(is_named))
}

/// What others execute without being asked, or take their settings from: version control other than git,
/// its usual places for hooks, editors, agents, shells that enter a directory, and hotcell itself.
const SELF_STARTING: &[&str] = &[
    ".hg",
    ".svn",
    ".bzr",
    ".jj",
    ".husky",
    ".githooks",
    ".envrc",
    ".vscode",
    ".idea",
    ".devcontainer",
    ".claude",
    ".cursor",
    ".mcp.json",
    ".hotcell",
];

/// All that a commit needs to change of a repository. Everything else in it is settings, hooks, or leads
/// git to a place that has them: a `.git` that is a file, `commondir`, `modules`, `worktrees`.
const COMMITTED: &[&str] =
    &["HEAD", "ORIG_HEAD", "COMMIT_EDITMSG", "index", "packed-refs", "refs/", "logs/", "objects/"];

/// Whether a path is one of those, or lies in one, in whatever directory that is.
fn starts_itself(path: &str) -> bool {
    let is_listed = |part: &str| SELF_STARTING.iter().any(|name| is_plainly(part, name));
    path.split('/').any(is_listed)
        || path.split('/').position(is_git).is_some_and(|git| {
            // As it is spelled: `.GIT/head` is nothing that git itself writes.
            let rest: Vec<&str> = path.split('/').skip(git).collect();
            !is_of_a_commit(&rest.join("/"))
        })
}

fn is_git(part: &str) -> bool {
    is_plainly(part, ".git") || is_plainly(part, "git~1")
}

/// Whether a path is what git itself writes for a commit.
fn is_of_a_commit(path: &str) -> bool {
    path.strip_prefix(".git/").is_some_and(|inner| {
        let in_list = COMMITTED.iter().any(|place| match place.strip_suffix('/') {
            Some(_) => inner.starts_with(place),
            None => inner == *place,
        });
        // Other repositories, whose objects would be taken for this one's.
        let is_elsewhere = inner.starts_with("objects/info/");
        in_list && !is_elsewhere && !inner.split('/').any(|part| is_plainly(part, ".git"))
    })
}

/// Whether a part of a path is a name to the most careless file system: in any case, with characters that
/// are not shown, and cut where Windows cuts it.
fn is_plainly(part: &str, name: &str) -> bool {
    // Most names differ in their first letter.
    if let (Some(one), Some(other)) = (part.as_bytes().first(), name.as_bytes().first())
        && one.is_ascii()
        && other.is_ascii()
        && !one.eq_ignore_ascii_case(other)
    {
        return false;
    }
    let shown = part.chars().filter(|c| !is_ignored(*c)).take_while(|c| *c != ':');
    let mut shown = shown.flat_map(folded);
    name.chars().flat_map(folded).all(|c| shown.next() == Some(c))
        && shown.all(|c| matches!(c, '.' | ' '))
}

/// By way of upper case, as some letters have no other: the long `ſ` is an `s`, and the sign of Kelvin a `k`.
fn folded(c: char) -> impl Iterator<Item = char> {
    c.to_uppercase().flat_map(char::to_lowercase)
}

/// What file systems leave out when they compare names without regard to case: what Unicode calls default
/// ignorable (ext4 and f2fs), of which HFS+ has some.
fn is_ignored(c: char) -> bool {
    matches!(
        c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{fff0}'..='\u{fff8}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_starts_itself_is_known_by_any_of_its_names() {
        for path in [
            ".git",
            "sub/.git",
            ".git/hooks/pre-commit",
            ".GIT/Hooks/x",
            ".Git/HEAD",
            "sub/.git/config",
            ".git/commondir",
            ".git/config.worktree",
            ".git/worktrees/w/HEAD",
            ".git/modules/m/hooks/x",
            ".git/info/attributes",
            ".git/objects/info/alternates",
            ".git/refs/.git/config",
            ".git/refs/x/.GIT",
            ".git/indexes",
            ".git/HEAD/x",
            "git~1/config",
            "GIT~1",
            ".git./config",
            ".git ./config",
            ".g\u{200c}it/config",
            ".git::$INDEX_ALLOCATION/config",
            "a/.hg/hgrc",
            ".husky/pre-commit",
            ".VSCode/tasks.json",
            "a/b/.envrc",
            ".hotcell",
            // As a file system without regard to case reads them.
            ".v\u{17f}code/tasks.json",
            ".hu\u{17f}\u{212a}y/pre-commit",
            ".\u{ad}git/config",
            ".g\u{fe0f}it/hooks/x",
            ".e\u{34f}nvrc",
        ] {
            assert!(starts_itself(path), "{path:?}");
        }
    }

    #[test]
    fn what_a_commit_writes_and_what_is_only_called_alike_is_not() {
        for path in [
            ".git/HEAD",
            ".git/index",
            ".git/COMMIT_EDITMSG",
            ".git/logs/HEAD",
            ".git/logs/refs/heads/main",
            ".git/refs/heads/main",
            ".git/objects/ab/cdef",
            ".git/objects/pack/pack-1.idx",
            "sub/.git/index",
            ".gitignore",
            ".gitattributes",
            ".github/workflows/x.yml",
            "a.git/config",
            "hooks/pre-commit",
            "envrc",
            "vscode/x",
        ] {
            assert!(!starts_itself(path), "{path:?}");
        }
    }
}
