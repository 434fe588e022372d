//! git, with a real one where there is one.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::Path;
use std::process::Command;

use hotcell_request::ToolError;
use hotcell_tools::{Plan, Program};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::sandboxed::{HOSTILE, carry_out};
use crate::{assert_helps, checked, plan, sandboxed_tool};

fn argv(plan: &Plan) -> &[OsString] {
    match &plan.program {
        Program::Command(argv) => argv,
        other => panic!("{other:?}"),
    }
}

/// A repository whose own configuration names programs that make a file `canary`.
struct Repository(TempDir);

impl Repository {
    fn new() -> Option<Repository> {
        let dir = tempfile::tempdir().unwrap();
        let git = |args: &[&str]| {
            let mut git = Command::new("git");
            git.args(args).current_dir(dir.path()).env_clear().env("HOME", "/nowhere");
            git.env("PATH", std::env::var_os("PATH").unwrap_or_default()).output()
        };
        if git(&["init", "--quiet", "--initial-branch=main"]).is_err() {
            eprintln!("SKIPPED git: there is no git on this host");
            return None;
        }
        for (key, value) in [
            ("core.fsmonitor", "touch canary"),
            ("core.pager", "touch canary"),
            ("diff.external", "touch canary"),
            ("diff.evil.textconv", "touch canary"),
            ("commit.gpgSign", "true"),
            ("gpg.program", ".git/hooks/pre-commit"),
            ("log.showSignature", "true"),
            ("core.editor", "touch canary"),
            ("alias.status", "!touch canary"),
        ] {
            assert!(git(&["config", key, value]).unwrap().status.success(), "{key}");
        }
        let repository = Repository(dir);
        for hook in ["pre-commit", "commit-msg", "post-commit", "post-index-change"] {
            let path = repository.path().join(".git/hooks").join(hook);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "#!/bin/sh\ntouch canary\n").unwrap();
            let all = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            fs::set_permissions(path, all).unwrap();
        }
        repository.write(".gitattributes", "* diff=evil\n");
        Some(repository)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn call(&self, name: &str, args: Value) -> Result<Value, ToolError> {
        let plan = plan(name, args)?;
        assert!(plan.working_copy);
        let ran = carry_out(&plan, self.path());
        assert!(!self.path().join("canary").exists(), "{name}: {ran:?}");
        let answer = sandboxed_tool(name).answer(&ran);
        answer.map(|answer| checked(name, answer)).inspect_err(assert_helps)
    }
}

#[test]
fn a_repository_is_read_and_committed_to_and_starts_nothing() {
    let Some(repository) = Repository::new() else { return };
    repository.write("a.txt", "one\n");
    repository.write("d/b.txt", "two\n");
    let status = repository.call("git.status", json!({})).unwrap();
    assert_eq!(status["branch"], "main");
    assert_eq!(status.get("commit"), None);
    assert_eq!(status["files"][1], json!({"path": "a.txt", "staged": "?", "unstaged": "?"}));
    assert_helps(&repository.call("git.log", json!({})).unwrap_err());
    assert_helps(&repository.call("git.commit", json!({"message": "nothing"})).unwrap_err());

    let message = "First; $(touch canary)\n\n# not a comment\n";
    let args = json!({"message": message, "paths": ["a.txt", "d"], "author": "Ada `x`"});
    let committed = repository.call("git.commit", args).unwrap();
    let commit = committed["commit"].as_str().unwrap();
    assert!(commit.len() >= 40 && commit.chars().all(|c| c.is_ascii_hexdigit()), "{commit}");

    let log = repository.call("git.log", json!({"revision": "main"})).unwrap();
    assert_eq!(log["commits"][0]["commit"], commit);
    assert_eq!(log["commits"][0]["author"], "Ada `x`");
    assert_eq!(log["commits"][0]["email"], "hotcell@localhost");
    assert_eq!(log["commits"][0]["subject"], "First; $(touch canary)");

    repository.write("a.txt", "one\nmore\n");
    repository.write("with space.txt", "x");
    fs::remove_file(repository.path().join("d/b.txt")).unwrap();
    let status = repository.call("git.status", json!({})).unwrap();
    assert_eq!(status["commit"], commit);
    assert_eq!(
        status["files"],
        json!([
            {"path": "a.txt", "staged": ".", "unstaged": "M"},
            {"path": "d/b.txt", "staged": ".", "unstaged": "D"},
            {"path": ".gitattributes", "staged": "?", "unstaged": "?"},
            {"path": "with space.txt", "staged": "?", "unstaged": "?"},
        ])
    );
    let only = repository.call("git.status", json!({"paths": ["with space.txt"]})).unwrap();
    assert_eq!(only["files"].as_array().unwrap().len(), 1);

    let diff = repository.call("git.diff", json!({"paths": ["a.txt"]})).unwrap();
    assert!(diff["diff"].as_str().unwrap().contains("\n+more\n"), "{diff}");
    // A deleted file is staged as well.
    repository.call("git.commit", json!({"message": "Second", "paths": ["."]})).unwrap();
    let staged = repository.call("git.diff", json!({"staged": true})).unwrap();
    assert_eq!(staged["diff"], "");
    let diff = repository.call("git.diff", json!({"from": "HEAD~1", "to": "HEAD", "context": 0}));
    assert!(diff.unwrap()["diff"].as_str().unwrap().contains("deleted file"));
    let log = repository.call("git.log", json!({"most": 1, "paths": ["d"]})).unwrap();
    assert_eq!(log["commits"][0]["subject"], "Second");
    assert_eq!(log["commits"].as_array().unwrap().len(), 1);
}

/// The control: these programs are started by a git that is called without our options.
#[test]
fn a_plain_git_would_start_them() {
    for (args, starts) in [
        (&["status"][..], "core.fsmonitor"),
        (&["-c", "core.fsmonitor=false", "diff"], "diff.external"),
        (&["-c", "core.fsmonitor=false", "diff", "--no-ext-diff"], "diff.evil.textconv"),
        (
            &["-c", "core.fsmonitor=false", "-c", "commit.gpgSign=false", "commit", "-amx"],
            "the hook pre-commit",
        ),
        (
            &["-c", "core.fsmonitor=false", "-c", "core.hooksPath=/", "commit", "-amx"],
            "gpg.program",
        ),
    ] {
        let Some(repository) = Repository::new() else { return };
        repository.write("a.txt", "one\n");
        repository.call("git.commit", json!({"message": "First", "paths": ["."]})).unwrap();
        repository.write("a.txt", "two\n");
        let mut git = Command::new("git");
        git.args(args).current_dir(repository.path()).env_clear().env("HOME", "/nowhere");
        git.env("PATH", std::env::var_os("PATH").unwrap()).envs(IDENTITY);
        git.output().unwrap();
        assert!(repository.path().join("canary").exists(), "{starts}");
    }
}

const IDENTITY: [(&str, &str); 4] = [
    ("GIT_AUTHOR_NAME", "a"),
    ("GIT_AUTHOR_EMAIL", "a"),
    ("GIT_COMMITTER_NAME", "a"),
    ("GIT_COMMITTER_EMAIL", "a"),
];

#[test]
fn tool_03_a_path_is_a_path_to_git() {
    let Some(repository) = Repository::new() else { return };
    repository.write("other", "x");
    let named = HOSTILE.iter().copied().chain([":!other", ":(exclude)other", ":", "HEAD"]);
    for path in named {
        repository.write(path, "x");
        let args = json!({"message": path, "paths": [path]});
        repository.call("git.commit", args).unwrap_or_else(|error| panic!("{path}: {error:?}"));
        repository.write(path, "y");
        let status = repository.call("git.status", json!({"paths": [path]})).unwrap();
        let changed = json!([{"path": path, "staged": ".", "unstaged": "M"}]);
        assert_eq!(status["files"], changed);
        let diff = repository.call("git.diff", json!({"paths": [path]})).unwrap();
        assert_eq!(diff["diff"].as_str().unwrap().matches("diff --git").count(), 1, "{path}");
        let log = repository.call("git.log", json!({"paths": [path]})).unwrap();
        assert_eq!(log["commits"].as_array().unwrap().len(), 1, "{path}");
    }
    let other = repository.call("git.status", json!({"paths": ["other"]})).unwrap();
    assert_eq!(other["files"][0]["staged"], "?", "it was never among the paths");
}

#[test]
fn a_revision_is_never_an_option_a_range_or_a_path() {
    for bad in [
        "",
        "-",
        "--help",
        "-O/etc/passwd",
        "--output=x",
        "a b",
        "a..b",
        "a...b",
        "^a",
        ":a",
        "a:b",
        "HEAD:/etc",
        "a@{1}",
        "~",
        "a\n",
        "a\0",
        "$(x)",
        "a;b",
        "ä",
        "/a",
        ".a",
        "a//b",
        &"a".repeat(201),
    ] {
        for (name, args) in [
            ("git.log", json!({"revision": bad})),
            ("git.diff", json!({"from": bad})),
            ("git.diff", json!({"from": "HEAD", "to": bad})),
        ] {
            assert_helps(&plan(name, args).expect_err(bad));
        }
    }
    for good in ["HEAD", "main", "v1.0", "feature/x-1", "HEAD~2", "HEAD^", "@", "89e6c98d"] {
        let made = plan("git.log", json!({"revision": good, "paths": ["--x"]})).unwrap();
        let argv = argv(&made);
        assert_eq!(argv[argv.len() - 3..], [good, "--", "--x"]);
    }
}

#[test]
fn what_contradicts_itself_is_refused() {
    for args in [json!({"to": "a"}), json!({"from": "a", "to": "b", "staged": true})] {
        assert_helps(&plan("git.diff", args).unwrap_err());
    }
}

#[test]
fn the_environment_is_constructed_and_the_options_come_first() {
    for (name, args) in [
        ("git.status", json!({})),
        ("git.diff", json!({})),
        ("git.log", json!({})),
        ("git.commit", json!({"message": "m"})),
    ] {
        let made = plan(name, args).unwrap();
        assert_eq!(made.env[OsStr::new("GIT_CONFIG_NOSYSTEM")], "1");
        assert_eq!(
            (
                made.env[OsStr::new("GIT_CONFIG_GLOBAL")].to_str().unwrap(),
                made.env[OsStr::new("HOME")].to_str().unwrap()
            ),
            ("/dev/null", "/tmp")
        );
        let all = argv(&made).join(OsStr::new(" ")).into_string().unwrap();
        for option in [
            "--no-pager",
            "--no-optional-locks",
            "--literal-pathspecs",
            "safe.directory=*",
            "core.hooksPath=/dev/null",
        ] {
            assert!(all.contains(option), "{name}: {option}");
        }
    }
}

/// Output that was cut ends in the middle of something, which is not told as if it were whole.
#[test]
fn only_whole_records_are_told() {
    let ran = |stdout: &str| hotcell_tools::Ran { truncated: true, ..crate::ran(stdout) };
    let log = sandboxed_tool("git.log").answer(&ran("a\0b\0c\0d\0e\0f\0g\0h\0i\0sub")).unwrap();
    assert_eq!((log["commits"].as_array().unwrap().len(), &log["truncated"]), (1, &json!(true)));
    let status = sandboxed_tool("git.status").answer(&ran("? a\0? b/c")).unwrap();
    assert_eq!(status["files"], json!([{"path": "a", "staged": "?", "unstaged": "?"}]));
    for junk in ["", "\0", "1\0", "1 \0", "1 M\0", "1 MM N\0", "u UU\0", "x y\0", "# branch.head"] {
        let status = sandboxed_tool("git.status").answer(&ran(junk)).unwrap();
        assert_eq!(status["files"], json!([]), "{junk:?}");
    }
}

/// A repository can make git print anything, up to the limit on output.
#[test]
fn res_17_output_that_means_no_good_is_read_at_once() {
    const MOST: usize = 1 << 20;
    let filled = |with: &str| with.repeat(MOST / with.len());
    let bombs = [
        filled("\0"),
        filled("1 \0"),
        filled("? a\0"),
        filled("1 MM "),
        filled("# branch.head x\0"),
        filled("u\u{1b}[2J\n\0"),
        filled(r#"[{"a":"#),
    ];
    for bomb in bombs {
        for name in ["git.status", "git.log", "git.diff", "git.commit"] {
            let begun = std::time::Instant::now();
            let answer = sandboxed_tool(name).answer(&crate::ran(&bomb)).unwrap();
            // Ten times what it takes without optimisation; what goes over it again and again takes hours.
            assert!(begun.elapsed() < std::time::Duration::from_secs(10), "{name}");
            let told = answer.to_string().len();
            // Of what is told about a file, its path is the shortest part.
            assert!(told <= 64 * MOST, "{name}: {told}");
        }
    }
}
