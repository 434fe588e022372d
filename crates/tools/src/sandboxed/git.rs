//! git, in a copy of the workspace. Nothing of the host's configuration is used; hooks and other programs
//! that a repository names are not started, but for its filters, which git cannot do without and which
//! are in the sandbox as git is. No argument of the caller can be an option: revisions are checked, paths
//! come after `--` and stand for themselves.

use std::collections::BTreeMap;

use hotcell_request::{Effect, ToolError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Changes, Plan, Program, Ran, Source, changes, in_sandbox, succeeded, variables};
use crate::BuiltIn;
use crate::path::PathArg;
use crate::spec::spec;

/// Before every subcommand.
const OPTIONS: [&str; 15] = [
    "--no-pager",
    "--no-optional-locks",
    // `*`, `:!` and the like are parts of names.
    "--literal-pathspecs",
    // The copy need not belong to whoever runs git.
    "-c",
    "safe.directory=*",
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "core.fsmonitor=false",
    "-c",
    "commit.gpgSign=false",
    // It would go on in the background.
    "-c",
    "gc.auto=0",
    "-c",
    "maintenance.auto=false",
];

const ENVIRONMENT: [(&str, &str); 5] = [
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_ATTR_NOSYSTEM", "1"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("HOME", "/tmp"),
];

/// Most paths of a call.
const PATHS_MOST: usize = 256;
/// Most commits of a log, and how many they are unless asked for otherwise.
const LOG_MOST: u64 = 1000;
const LOG_USUAL: u64 = 20;
/// Most characters of a message, and of a name.
const MESSAGE_MOST: usize = 64 << 10;
const NAME_MOST: usize = 200;
/// Most bytes of a revision.
const REVISION_MOST: usize = 200;
const CONTEXT_MOST: u64 = 100;

const FIX: &str = "look at the repository: git.status, git.log";

pub(super) fn tools() -> Vec<BuiltIn> {
    vec![
        in_sandbox(
            spec(
                "git.status",
                "git",
                &[Effect::Read],
                "Tells the branch, and which files of the workspace are changed, staged or unknown to git.",
            ),
            || {
                [(
                    json!({}),
                    json!({
                        "branch": "main",
                        "commit": "89e6c98d92887913cadf06b2adb97f26cde4849b",
                        "files": [{"path": "notes.txt", "staged": ".", "unstaged": "M"}],
                        "truncated": false,
                    }),
                )]
            },
            |args: Status| Ok(git_plan(&STATUS, &args.paths)),
            status,
        ),
        in_sandbox(
            spec(
                "git.diff",
                "git",
                &[Effect::Read],
                "Shows what was changed in the workspace, what is staged, or the difference of two revisions.",
            ),
            || {
                [(
                    json!({"from": "HEAD~1", "to": "HEAD", "paths": ["notes.txt"]}),
                    json!({"diff": "diff --git a/notes.txt b/notes.txt\n…", "truncated": false}),
                )]
            },
            |args: Diff| args.plan(),
            |ran: &Ran| {
                let ran = succeeded(ran, "git diff", FIX)?;
                Ok(Difference { diff: ran.stdout.clone(), truncated: ran.truncated })
            },
        ),
        in_sandbox(
            spec("git.log", "git", &[Effect::Read], "Lists commits, the newest first."),
            || {
                [(
                    json!({"most": 1}),
                    json!({
                        "commits": [{
                            "commit": "89e6c98d92887913cadf06b2adb97f26cde4849b",
                            "author": "Ada",
                            "email": "ada@example.com",
                            "date": "2026-01-31T12:00:00+00:00",
                            "subject": "Begin",
                        }],
                        "truncated": false,
                    }),
                )]
            },
            |args: Log| args.plan(),
            log,
        ),
        in_sandbox(
            spec(
                "git.commit",
                "git",
                &[Effect::Write],
                "Stages the given paths of the workspace and commits what is staged. Hooks are not run. What \
                 that changes in the repository is applied as far as the policy allows.",
            ),
            || {
                [(
                    json!({"message": "Begin", "paths": ["notes.txt"]}),
                    json!({
                        "commit": "89e6c98d92887913cadf06b2adb97f26cde4849b",
                        "changes": {"files": [{"path": ".git/refs/heads/main", "kind": "modified", "bytes": 41}], "skipped": [], "left_out": 0},
                    }),
                )]
            },
            |args: Commit| args.plan(),
            |ran: &Ran| {
                let ran = succeeded(ran, "git commit", FIX)?;
                let commit = ran.stdout.trim().to_owned();
                Ok(Committed { commit, changes: changes(ran).unwrap_or_default() })
            },
        ),
    ]
}

/// What is read unless asked for otherwise. It is there so that a policy has something to judge.
fn everything() -> Vec<PathArg> {
    vec![PathArg::root()]
}

/// A plan for one subcommand; the paths are the last of its arguments.
fn git_plan(arguments: &[&str], paths: &[PathArg]) -> Plan {
    let mut argv = vec!["git".to_owned()];
    argv.extend(OPTIONS.iter().chain(arguments).map(|&text| text.to_owned()));
    argv.push("--".into());
    // A log of the root leaves out commits that change nothing; one without paths is of everything.
    if !paths.iter().any(PathArg::is_root) {
        argv.extend(paths.iter().map(|path| path.as_str().to_owned()));
    }
    Plan { env: variables(environment()), ..Plan::in_copy(Program::command(argv)) }
}

fn environment() -> BTreeMap<String, String> {
    ENVIRONMENT.iter().map(|&(name, value)| (name.into(), value.into())).collect()
}

/// What names a commit: a branch, a tag, a digest, with `~2` or `^` behind it. It cannot be an option, a
/// range or a path.
fn revision(text: &str) -> Result<&str, ToolError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_./-~^@".contains(c);
    let begins = text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_' || c == '@');
    let good = begins
        && text.len() <= REVISION_MOST
        && text.chars().all(plain)
        && !text.contains("..")
        && !text.contains("//");
    if good {
        return Ok(text);
    }
    let shown: String = text.chars().filter(|c| !c.is_control()).take(80).collect();
    Err(ToolError::new(
        format!("`{shown}` is not a revision"),
        "it does not look like the name or the digest of a commit",
        "send a branch, a tag or a digest, such as `main`, `v1.0` or `HEAD~2`",
    ))
}

#[derive(Deserialize, JsonSchema)]
struct Status {
    /// Only these files and directories.
    #[serde(default = "everything")]
    #[schemars(length(min = 1, max = PATHS_MOST))]
    paths: Vec<PathArg>,
}

const STATUS: [&str; 6] = [
    "status",
    "--porcelain=v2",
    "--branch",
    "--untracked-files=all",
    // A renamed file is one that was deleted and one that was added.
    "--no-renames",
    "-z",
];

#[derive(Serialize, JsonSchema)]
struct State {
    /// Without one, HEAD is detached.
    #[serde(skip_serializing_if = "Option::is_none")]
    branch: Option<String>,
    /// Without one, nothing was committed yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    commit: Option<String>,
    files: Vec<FileState>,
    /// Whether there are more files than are told.
    truncated: bool,
}

#[derive(Serialize, JsonSchema)]
struct FileState {
    path: String,
    /// A letter as git has them: `M`, `A`, `D`, `T`, `U`, `?`, or `.` for no change.
    staged: char,
    unstaged: char,
}

fn status(ran: &Ran) -> Result<State, ToolError> {
    let ran = succeeded(ran, "git status", FIX)?;
    let mut state =
        State { branch: None, commit: None, files: Vec::new(), truncated: ran.truncated };
    for record in whole_records(&ran.stdout) {
        if let Some(branch) = record.strip_prefix("# branch.head ") {
            state.branch = (branch != "(detached)").then(|| branch.to_owned());
        } else if let Some(commit) = record.strip_prefix("# branch.oid ") {
            state.commit = (commit != "(initial)").then(|| commit.to_owned());
        } else {
            state.files.extend(file_state(record));
        }
    }
    Ok(state)
}

/// What ends with a NUL; the output may be cut in the middle of one.
fn whole_records(output: &str) -> impl Iterator<Item = &str> {
    output.split_inclusive('\0').filter_map(|record| record.strip_suffix('\0'))
}

/// A line of `git status --porcelain=v2`: so many fields, and then the path.
fn file_state(record: &str) -> Option<FileState> {
    let (letter, rest) = record.split_once(' ')?;
    let fields = match letter {
        "1" => 8,
        "u" => 10,
        "?" => return Some(FileState { path: rest.into(), staged: '?', unstaged: '?' }),
        _ => return None,
    };
    let mut letters = rest.chars();
    let (staged, unstaged) = (letters.next()?, letters.next()?);
    let path = rest.splitn(fields, ' ').nth(fields - 1)?.to_owned();
    Some(FileState { path, staged, unstaged })
}

#[derive(Deserialize, JsonSchema)]
struct Diff {
    /// A revision to compare with; by default what is staged.
    from: Option<String>,
    /// A revision to compare `from` with; by default the workspace.
    to: Option<String>,
    /// What is staged in place of the workspace.
    #[serde(default)]
    staged: bool,
    /// Only these files and directories.
    #[serde(default = "everything")]
    #[schemars(length(min = 1, max = PATHS_MOST))]
    paths: Vec<PathArg>,
    /// Lines shown around each change.
    #[serde(default = "three")]
    #[schemars(range(max = CONTEXT_MOST))]
    context: u64,
}

fn three() -> u64 {
    3
}

#[derive(Serialize, JsonSchema)]
struct Difference {
    /// As git writes it.
    diff: String,
    /// Whether the end of it is missing.
    truncated: bool,
}

impl Diff {
    fn plan(self) -> Result<Plan, ToolError> {
        let context = format!("--unified={}", self.context);
        let mut arguments = vec!["diff", "--no-ext-diff", "--no-textconv", "--no-color", &context];
        if self.staged {
            arguments.push("--cached");
        }
        match (&self.from, &self.to) {
            (None, Some(_)) => {
                let why = "it has a `to` and no `from`";
                return Err(ToolError::new("there is nothing to compare", why, "send both"));
            }
            (Some(_), Some(_)) if self.staged => {
                let why = "two revisions are compared with each other";
                let fix = "leave `staged` or `to` out";
                return Err(ToolError::new("`staged` has no meaning here", why, fix));
            }
            (from, to) => {
                for text in [from, to].into_iter().flatten() {
                    arguments.push(revision(text)?);
                }
            }
        }
        Ok(git_plan(&arguments, &self.paths))
    }
}

#[derive(Deserialize, JsonSchema)]
struct Log {
    /// The revision to begin with; by default HEAD.
    revision: Option<String>,
    /// Most commits.
    #[serde(default = "log_usual")]
    #[schemars(range(min = 1, max = LOG_MOST))]
    most: u64,
    /// Only commits that changed these files and directories.
    #[serde(default = "everything")]
    #[schemars(length(min = 1, max = PATHS_MOST))]
    paths: Vec<PathArg>,
}

fn log_usual() -> u64 {
    LOG_USUAL
}

#[derive(Serialize, JsonSchema)]
struct Logged {
    commits: Vec<LoggedCommit>,
    /// Whether the end is missing, `most` apart.
    truncated: bool,
}

#[derive(Serialize, JsonSchema)]
struct LoggedCommit {
    commit: String,
    author: String,
    email: String,
    /// When it was written, as ISO 8601.
    date: String,
    subject: String,
}

impl Log {
    fn plan(self) -> Result<Plan, ToolError> {
        let most = format!("--max-count={}", self.most);
        let format = "--format=%H%x00%an%x00%ae%x00%aI%x00%s";
        let mut arguments =
            vec!["log", "--no-show-signature", "--no-color", "--no-decorate", "-z", format, &most];
        if let Some(text) = &self.revision {
            arguments.push(revision(text)?);
        }
        Ok(git_plan(&arguments, &self.paths))
    }
}

fn log(ran: &Ran) -> Result<Logged, ToolError> {
    let ran = succeeded(ran, "git log", FIX)?;
    let fields: Vec<&str> = whole_records(&ran.stdout).collect();
    let (commits, _) = fields.as_chunks::<5>();
    let commits = commits.iter().map(|fields| {
        let [commit, author, email, date, subject] = fields.map(str::to_owned);
        LoggedCommit { commit, author, email, date, subject }
    });
    Ok(Logged { commits: commits.collect(), truncated: ran.truncated })
}

#[derive(Deserialize, JsonSchema)]
struct Commit {
    #[schemars(length(min = 1, max = MESSAGE_MOST))]
    message: String,
    /// Files and directories to stage before; what is staged already is committed as well.
    #[serde(default)]
    #[schemars(length(max = PATHS_MOST))]
    paths: Vec<PathArg>,
    /// The name of the author.
    #[serde(default = "nobody")]
    #[schemars(length(min = 1, max = NAME_MOST))]
    author: String,
    /// The address of the author.
    #[serde(default = "nowhere")]
    #[schemars(length(min = 1, max = NAME_MOST))]
    email: String,
}

fn nobody() -> String {
    "hotcell".into()
}

fn nowhere() -> String {
    "hotcell@localhost".into()
}

#[derive(Serialize, JsonSchema)]
struct Committed {
    /// The digest of the commit.
    commit: String,
    changes: Changes,
}

impl Commit {
    fn plan(self) -> Result<Plan, ToolError> {
        let mut argv: Vec<String> = ["sh", "-c", &commit_script(), "sh"].map(String::from).into();
        argv.extend(self.paths.iter().map(|path| path.as_str().to_owned()));
        let mut env = environment();
        for who in ["AUTHOR", "COMMITTER"] {
            env.insert(format!("GIT_{who}_NAME"), self.author.clone());
            env.insert(format!("GIT_{who}_EMAIL"), self.email.clone());
        }
        let plan = Plan::in_copy(Program::command(argv));
        let (stdin, env) = (Source::Text(self.message), variables(env));
        Ok(Plan { stdin, env, brings_changes: true, also_writes: &[".git"], ..plan })
    }
}

/// Stages the paths that are its arguments, commits with the message on standard input, and prints the
/// digest. Only constants are in it.
fn commit_script() -> String {
    let options = OPTIONS.map(|option| format!("'{option}'")).join(" ");
    format!(
        "git() {{ command git {options} \"$@\"; }}\n\
         if [ $# -gt 0 ]; then git add --all -- \"$@\" || exit; fi\n\
         git commit --quiet --no-verify --cleanup=whitespace --file=- && git rev-parse HEAD"
    )
}
