//! The rules of a policy, ready to be asked.

use hotcell_request::Call;
use hotcell_types::{Decision, Effect};

use crate::{Facts, Spoken};

/// One version of a policy. Never changes: another policy is another snapshot.
#[derive(Debug, Clone)]
pub struct Snapshot {
    name: &'static str,
    rules: Vec<&'static [Rule]>,
}

#[derive(Debug)]
struct Rule {
    name: &'static str,
    reason: &'static str,
    decision: Decision,
    matches: fn(&Call) -> bool,
}

/// What holds where nobody has written a policy: nothing outside a sandbox is changed.
const BUILT_IN: &[Rule] = &[
    Rule {
        name: "pure-tools",
        reason: "it depends on its arguments alone",
        decision: Decision::Allow,
        matches: |call| call.effects().has(Effect::Pure),
    },
    Rule {
        name: "read-tools",
        reason: "it only reads",
        decision: Decision::Allow,
        matches: |call| {
            let effects = call.effects();
            effects.has(Effect::Read) && !effects.can_change_something()
        },
    },
    Rule {
        name: "code-in-a-sandbox",
        reason: "it runs in a sandbox without a network, and only files that it made come back",
        decision: Decision::Allow,
        matches: |call| {
            call.operation().bare() == "code.execute" && call.operation().namespace().is_none()
        },
    },
];

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

/// What is added where whoever embeds hotcell lets runs change the workspace.
const WORKSPACE_WRITES: &[Rule] = &[
    Rule {
        name: "workspace-writes",
        reason: "it works on a copy, and what it changed is judged path by path",
        decision: Decision::Allow,
        matches: |call| call.effects().has(Effect::Write) && !call.effects().has(Effect::Network),
    },
    Rule {
        name: "nothing-that-starts-itself",
        reason: "somebody else would execute it without being asked",
        decision: Decision::Deny,
        matches: |call| {
            call.effects().has(Effect::Write) && call.paths().into_iter().any(starts_itself)
        },
    },
];

/// Whether a path is one of those, or lies in one, in whatever directory that is.
fn starts_itself(path: &str) -> bool {
    let parts: Vec<String> = path.split('/').map(plain).collect();
    let is_listed = |part: &String| SELF_STARTING.contains(&part.as_str());
    let is_git = |part: &String| part == ".git" || part == "git~1";
    parts.iter().any(is_listed)
        || parts.iter().position(is_git).is_some_and(|git| {
            // As it is spelled: `.GIT/head` is nothing that git itself writes.
            let rest: Vec<&str> = path.split('/').skip(git).collect();
            !is_of_a_commit(&rest.join("/"))
        })
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
        in_list && !is_elsewhere && !inner.split('/').any(|part| plain(part) == ".git")
    })
}

/// A name as the most careless file system has it: in any case, with characters that are not shown, and
/// cut where Windows cuts it.
fn plain(part: &str) -> String {
    let shown: String = part.chars().filter(|c| !is_ignored(*c)).collect();
    let (name, _) = shown.split_once(':').unwrap_or((&shown, ""));
    name.trim_end_matches(['.', ' ']).to_lowercase()
}

/// What HFS+ leaves out when it compares names.
fn is_ignored(c: char) -> bool {
    matches!(c, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}')
}

impl Snapshot {
    /// The policy of a home without one.
    pub fn built_in() -> Snapshot {
        Snapshot { name: "built-in 1", rules: vec![BUILT_IN] }
    }

    /// The same, and what runs change in a copy of the workspace is brought back, except where somebody
    /// else would execute it without being asked. For who embeds hotcell and owns the workspace.
    pub fn with_workspace_writes() -> Snapshot {
        Snapshot { name: "built-in 1, with writes", rules: vec![BUILT_IN, WORKSPACE_WRITES] }
    }

    /// Which version this is, for the record.
    pub fn name(&self) -> &str {
        self.name
    }

    /// What every rule says that does not abstain.
    pub(crate) fn speak(&self, call: &Call, _facts: &Facts) -> Vec<Spoken> {
        let speaking = self.rules.iter().copied().flatten().filter(|rule| (rule.matches)(call));
        speaking
            .map(|rule| Spoken {
                rule: rule.name.into(),
                decision: rule.decision,
                reason: rule.reason.into(),
            })
            .collect()
    }
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
