//! Tools that are a program. Their plans are carried out here without a sandbox, in a directory of the
//! test: what is tested is what of a plan is a program and what is data.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use hotcell_request::ToolError;
use hotcell_tools::{Plan, Program, Ran, Source};
use hotcell_types::{Artifact, Status};
use hotcell_workspace::{Change, ChangeKind, Changeset, Digest, Relative, Skipped};
use serde_json::{Value, json};

use crate::{assert_helps, call, checked, plan, ran, sandboxed_tool};

/// What would make a file `canary` if any of it were read by a shell.
pub(crate) const HOSTILE: &[&str] = &[
    "; touch canary",
    "$(touch canary)",
    "`touch canary`",
    "&& touch canary",
    "|| touch canary",
    "| touch canary",
    "> canary",
    "\"; touch canary; \"",
    "'; touch canary; '",
    "%0a touch canary",
    "${IFS}touch${IFS}canary",
    "--help",
    "-rf",
    "-",
    "--",
    "~",
    "*",
    "$HOME",
    "!!",
    "\\",
    "a b  c",
    "ä🦀",
];

/// Also those with line ends, which no path can have.
fn hostile_texts() -> impl Iterator<Item = &'static str> {
    let more = ["\ntouch canary\n", "a\r\ntouch canary", "EOF\ntouch canary", "\u{1b}[2J", "\t"];
    HOSTILE.iter().copied().chain(more)
}

pub(crate) fn carry_out(plan: &Plan, dir: &Path) -> Ran {
    let Program::Command(argv) = &plan.program else { panic!("{plan:?}") };
    let mut child = Command::new(&argv[0])
        .args(&argv[1..])
        .current_dir(dir)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .envs(&plan.env)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Small enough for the pipe; a program that does not read it may be gone.
    let mut stdin = child.stdin.take().unwrap();
    if let Err(error) = stdin.write_all(text_of(&plan.stdin).as_bytes()) {
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    }
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    Ran {
        status: if output.status.success() { Status::Success } else { Status::Failure },
        exit_code: output.status.code(),
        stderr: String::from_utf8(output.stderr).unwrap(),
        ..ran(&String::from_utf8(output.stdout).unwrap())
    }
}

fn answer(name: &str, ran: &Ran) -> Result<Value, ToolError> {
    let answer = sandboxed_tool(name).answer(ran);
    answer.map(|answer| checked(name, answer)).inspect_err(assert_helps)
}

fn text_of(stdin: &Source) -> &str {
    match stdin {
        Source::Empty => "",
        Source::Text(text) => text,
        other => panic!("{other:?}"),
    }
}

fn command(plan: &Plan) -> &[OsString] {
    match &plan.program {
        Program::Command(argv) => argv,
        other => panic!("{other:?}"),
    }
}

#[test]
fn code_is_the_content_of_a_file() {
    for text in hostile_texts() {
        for language in ["python", "javascript", "shell"] {
            let args = json!({
                "language": language,
                "code": text,
                "stdin": text,
                "env": {"A": text},
                "files": {"a": text, "d/b": text},
            });
            let made = plan("code_execute", args).unwrap();
            let expected = Program::Code { language: language.into(), code: text.into() };
            assert_eq!(made.program, expected);
            assert_eq!(made.stdin, Source::Text(text.into()));
            assert_eq!(made.env[OsStr::new("A")], text);
            assert_eq!((made.files["a"].as_str(), made.files["d/b"].as_str()), (text, text));
            assert!(!made.working_copy && !made.brings_changes);
        }
    }
}

#[test]
fn files_and_variables_have_names_that_can_be_used() {
    let code = |env: Value, files: Value| json!({"language": "python", "code": "", "env": env, "files": files});
    for name in ["../a", "/etc/a", "a//b", ".", "", "a\0", "a\n"] {
        let error = plan("code_execute", code(json!({}), json!({name: ""}))).unwrap_err();
        assert_helps(&error);
    }
    for name in ["", "A=B", "1A", "A B", "A\0", "A\nB", "ä", "A-B"] {
        assert!(call("code_execute", code(json!({name: ""}), json!({}))).is_err(), "{name:?}");
    }
    let both = plan("code_execute", code(json!({}), json!({"a": "", "a-": "", "a/b/c": ""})));
    assert_eq!(both.unwrap_err().what, "`a` would be a file and a directory");
    let nul = plan("code_execute", code(json!({"A": "\0"}), json!({}))).unwrap_err();
    assert_eq!(nul.why, "an argument or variable has a NUL character");
    assert!(call("code_execute", json!({"language": "cobol", "code": ""})).is_err());
}

#[test]
fn a_command_for_the_shell_is_one_argument() {
    for text in hostile_texts() {
        let made = plan("shell.run", json!({"command": text})).unwrap();
        assert_eq!(command(&made), ["sh", "-c", text]);
        assert!(made.working_copy && made.brings_changes);
    }
    let made =
        plan("shell.run", json!({"command": "cat; echo $A", "stdin": "x", "env": {"A": "1 2"}}));
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(carry_out(&made.unwrap(), dir.path()).stdout, "x1 2\n");
}

#[test]
fn tool_03_each_argument_of_a_command_stays_one() {
    let dir = tempfile::tempdir().unwrap();
    for text in hostile_texts() {
        let made = plan("test.run", json!({"command": ["printf", "%s|", text, text]})).unwrap();
        assert_eq!(command(&made), ["printf", "%s|", text, text]);
        assert!(made.working_copy && !made.brings_changes);
        assert_eq!(carry_out(&made, dir.path()).stdout, format!("{text}|{text}|"));
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn tool_03_a_path_and_a_text_are_written_as_they_are() {
    let texts = hostile_texts().chain(["", "\0", "no end"]);
    for (path, text) in HOSTILE.iter().cycle().zip(texts) {
        for path in [(*path).to_owned(), format!("{path}/{path}/x")] {
            let dir = tempfile::tempdir().unwrap();
            let made = plan("fs.write", json!({"path": path, "text": text})).unwrap();
            assert_eq!(command(&made).last().unwrap(), &OsString::from(format!("./{path}")));
            assert_eq!(made.stdin, Source::Text(text.into()));
            let ran = carry_out(&made, dir.path());
            assert_eq!((ran.status, ran.stderr.as_str()), (Status::Success, ""), "{path}");
            assert_eq!(fs::read_to_string(dir.path().join(&path)).unwrap(), text, "{path}");
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "{path}");
        }
    }
}

#[test]
fn a_file_that_cannot_be_written_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), "").unwrap();
    for path in ["file/x", "file/x/y"] {
        let ran =
            carry_out(&plan("fs.write", json!({"path": path, "text": ""})).unwrap(), dir.path());
        let error = answer("fs.write", &ran).unwrap_err();
        assert_eq!(error.what, "writing the file failed");
        assert!(error.why.contains("irectory"), "{error:?}");
    }
    assert_helps(&plan("fs.write", json!({"path": ".", "text": ""})).unwrap_err());
}

#[test]
fn what_a_kernel_would_refuse_is_refused_before() {
    for (command, why) in [
        (json!([""]), "the name of the program is empty"),
        (json!(["a", "\0"]), "an argument or variable has a NUL character"),
        (json!(["a", "x".repeat(128 << 10)]), "an argument or variable is longer than 128 KiB"),
        (json!(vec!["x".repeat(100 << 10); 11]), "arguments and variables are longer than 1 MiB"),
    ] {
        let error = plan("test.run", json!({"command": command})).unwrap_err();
        assert_helps(&error);
        assert_eq!(error.why, why);
    }
    assert!(call("test.run", json!({"command": []})).is_err());
    assert!(call("test.run", json!({"command": vec!["a"; 257]})).is_err());
}

#[test]
fn how_a_program_ended_is_the_answer() {
    let change = Change {
        path: Relative::parse("a").unwrap(),
        kind: ChangeKind::Added,
        before: None,
        after: Some(Digest::of(b"x")),
        bytes: 1,
        executable: false,
    };
    let skipped = Skipped { path: "l".into(), why: "it is a symbolic link".into() };
    let ran = Ran {
        status: Status::Killed,
        exit_code: None,
        signal: Some(9),
        stderr: "x".into(),
        truncated: true,
        artifacts: vec![Artifact { path: "a".into(), bytes: 1, sha256: "00".into() }],
        changes: Some(Changeset::new(vec![change], vec![skipped]).unwrap()),
        ..ran("")
    };
    for name in ["code_execute", "shell.run", "test.run"] {
        assert_eq!(
            answer(name, &ran).unwrap(),
            json!({
                "status": "killed",
                "signal": 9,
                "stdout": "",
                "stderr": "x",
                "truncated": true,
                "artifacts": [{"path": "a", "bytes": 1, "sha256": "00"}],
                "changes": {
                    "files": [{"path": "a", "kind": "added", "bytes": 1}],
                    "skipped": [{"path": "l", "why": "it is a symbolic link"}],
                    "left_out": 0,
                },
            })
        );
    }
    for status in Status::ALL {
        let of = Ran { status, ..ran.clone() };
        assert_eq!(answer("test.run", &of).unwrap()["status"], status.name());
        for name in ["fs.write", "git.status", "git.diff", "git.log", "git.commit"] {
            assert_eq!(answer(name, &of).is_ok(), status == Status::Success, "{name} {status:?}");
        }
    }
}

#[test]
fn what_was_changed_is_told_as_far_as_it_fits() {
    let change = |number: usize| Change {
        path: Relative::parse(&format!("{number:04}")).unwrap(),
        kind: ChangeKind::Deleted,
        before: None,
        after: None,
        bytes: 0,
        executable: false,
    };
    let all = Changeset::new((0..1003).map(change).collect(), Vec::new()).unwrap();
    let ran = Ran { changes: Some(all), ..ran("") };
    for name in ["shell.run", "fs.write", "git.commit"] {
        let changes = &answer(name, &ran).unwrap()["changes"];
        assert_eq!(
            (changes["files"].as_array().unwrap().len(), &changes["left_out"]),
            (1000, &json!(3))
        );
    }
}

#[test]
fn what_a_program_said_in_an_error_is_short_and_harmless() {
    let stderr = format!("\u{1b}[2J\0\u{9b}{}", "x".repeat(100_000));
    let failed = Ran { status: Status::Failure, stderr, ..ran("") };
    let error = answer("git.log", &failed).unwrap_err();
    assert!(error.why.len() <= 1000 && !error.why.contains(char::is_control), "{error:?}");
    let silent = Ran { status: Status::Failure, ..ran("") };
    assert_eq!(
        answer("git.log", &silent).unwrap_err().why,
        "the program failed and did not say why"
    );
    let timeout = Ran { status: Status::Timeout, ..ran("") };
    let error = answer("fs.write", &timeout).unwrap_err();
    assert_eq!(error.why, "the run ended with the status `timeout`");
}
