//! `hotcell token`, and calls with one, as a user sees them.

use std::fs;
use std::io::Write;
use std::process::{Output, Stdio};

use serde_json::Value;

use crate::support::World;

const READ: [&str; 6] = ["tool", "call", "--json", "--workspace", ".", "fs.read"];
const ARGS: &str = r#"{"path": "src/a.txt"}"#;

fn world() -> World {
    let world = World::new();
    world.user_config("min_level = \"no-proc\"\n");
    world.file("src/a.txt", b"one\n");
    world.served()
}

fn said(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

fn with_stdin(world: &World, words: &[&str], stdin: &str) -> (i32, String, String) {
    let mut command = world.command(words);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(stdin.as_bytes()).unwrap();
    said(&child.wait_with_output().unwrap())
}

/// A token, and its id.
#[track_caller]
fn made(world: &World, words: &[&str]) -> (String, String) {
    let (code, stdout, stderr) = said(&world.run(words));
    assert_eq!(code, 0, "{stderr}");
    let token = stdout.strip_suffix('\n').unwrap();
    assert!(token.starts_with("hct_") && !token.contains(char::is_whitespace), "{stdout}");
    assert!(!stderr.contains(token), "{stderr}");
    let id = stderr.strip_prefix("hotcell: token ").and_then(|rest| rest.split_once(" is for "));
    (token.to_owned(), id.unwrap().0.to_owned())
}

fn mint(world: &World, more: &[&str]) -> (String, String) {
    made(world, &[&["token", "mint", "fs.read", "--path", "src/**"], more].concat())
}

/// Which rules allowed a call with the token in a file.
fn read_with(world: &World, file: &str) -> Value {
    let words = [&READ[..], &[ARGS, "--token-file", file]].concat();
    let (code, stdout, stderr) = said(&world.run(&words));
    assert_eq!(code, 0, "{stdout} {stderr}");
    let reply: Value = serde_json::from_str(&stdout).unwrap();
    reply.get("rules").cloned().unwrap_or_default()
}

fn listed(world: &World, more: &[&str]) -> Vec<(String, String)> {
    let (code, stdout, _) = said(&world.run(&[&["token", "ls", "--json"], more].concat()));
    assert_eq!(code, 0);
    let document: Value = serde_json::from_str(&stdout).unwrap();
    let text = |token: &Value, field: &str| token.get(field)?.as_str().map(str::to_owned);
    let tokens = document.get("tokens").and_then(Value::as_array).unwrap().iter();
    tokens
        .map(|token| Some((text(token, "id")?, text(token, "state")?)))
        .collect::<Option<_>>()
        .unwrap()
}

#[test]
fn a_token_is_printed_once_and_used_from_a_file_or_standard_input() {
    let world = world();
    let (token, id) = mint(&world, &["--uses", "2", "--for", "10m"]);
    let (_, table, _) = said(&world.run(&["token", "ls"]));
    assert!(table.contains(&format!("{id}  good           2/2  ")), "{table}");
    assert!(table.contains("  fs.read on src/**\n"), "{table}");
    world.file("token", format!("{token}\n").as_bytes());
    assert_eq!(read_with(&world, "token"), serde_json::json!(["token"]));
    let words = [&READ[..], &[ARGS, "--token-file", "-"]].concat();
    let (code, stdout, stderr) = with_stdin(&world, &words, &token);
    assert!(code == 0 && stdout.contains(r#""rules":["token"]"#), "{stdout} {stderr}");
    assert_eq!(listed(&world, &["--all"]), [(id.clone(), "used up".to_owned())]);
    assert_eq!(listed(&world, &[]), []);
    // Used up, it is as good as none.
    assert_eq!(read_with(&world, "token"), serde_json::json!(["read-tools"]));
    let (_, log, _) = said(&world.run(&["audit", "log", "--json"]));
    let of_it = log.lines().filter(|line| line.contains(&format!(r#""bearer":"{id}""#)));
    assert_eq!(of_it.count(), 5, "minted, and twice intended and used: {log}");
    let (code, verified, _) = said(&world.run(&["audit", "verify"]));
    assert!(code == 0 && verified.contains(" and 1 tokens against what"), "{verified}");
    // It is nowhere but where it was put.
    for file in ["hotcell.db", "hotcell.db-wal", "anchor.log"] {
        let bytes = fs::read(world.at("../home").join(file)).unwrap_or_default();
        let end = token.as_bytes().get(token.len() - 40..).unwrap();
        assert!(!bytes.windows(end.len()).any(|window| window == end), "{file}");
    }
}

#[test]
fn what_is_wrong_with_a_token_is_told_and_the_token_is_not() {
    let world = world();
    let (token, _) = mint(&world, &[]);
    world.file("token", token.as_bytes());
    world.file("empty", b"\n");
    world.file("two", format!("{token}\n{token}\n").as_bytes());
    world.file("long", &[b'x'; 10_000]);
    world.file("binary", &[0xff; 10]);
    for (file, expected) in [
        ("absent", "error: the token in `absent` cannot be read\n"),
        ("empty", "error: there is no token in `empty`\n"),
        ("two", "error: there is no token in `two`\n"),
        ("long", "error: there is no token in `long`\n"),
        ("binary", "error: the token in `binary` cannot be read\n"),
    ] {
        for words in [
            &["tool", "call", "add", "--token-file", file][..],
            &["run", "--token-file", file, "--", "true"],
            &["token", "narrow", file],
        ] {
            let (code, stdout, stderr) = said(&world.run(words));
            assert_eq!((code, stdout.as_str()), (121, ""), "{words:?}: {stderr}");
            assert!(stderr.starts_with(expected) && !stderr.contains("hct_"), "{stderr}");
        }
    }
    for words in [
        &["tool", "call", "add", "-", "--token-file", "-"][..],
        &["run", "--token-file", "-", "--stdin", "-", "--", "cat"],
        &["run", "--token-file", "-", "--lang", "python", "-"],
        &["tool", "call", "add", "--token", "hct_x"],
    ] {
        let (code, stdout, stderr) = said(&world.run(words));
        assert_eq!((code, stdout.as_str()), (121, ""), "{words:?}: {stderr}");
    }
    let write = ["tool", "call", "fs.write", r#"{"path": "src/b", "text": ""}"#];
    let words = [&write[..], &["--token-file", "token", "--workspace", "."]].concat();
    let (code, _, stderr) = said(&world.run(&words));
    assert_eq!(code, 119);
    assert!(stderr.contains("its token does not count: it is for another operation"), "{stderr}");
}

#[test]
fn a_token_is_not_made_for_more_than_the_policy_allows() {
    let world = world();
    for (words, code, expected) in [
        (&["fs.write", "--path", "src/**"][..], 119, "no rule allows all of it"),
        (&["no.such"], 121, ""),
        (&["fs.read", "--path", "a[", "--uses", "2"], 121, ""),
        (&["fs.read", "--path", "**", "--uses", "0"], 121, "too many operations or none"),
        (&["fs.read", "--path", "**", "--for", "2h"], 121, "lives too long"),
        (&["fs.read", "--args", "{}"], 121, ""),
    ] {
        let words = [&["token", "mint"], words].concat();
        let (found, stdout, stderr) = said(&world.run(&words));
        assert_eq!((found, stdout.as_str()), (code, ""), "{words:?}: {stderr}");
        assert!(stderr.contains(expected) && stderr.contains("\n  fix: "), "{words:?}: {stderr}");
    }
}

#[test]
fn a_token_is_narrowed_revoked_and_made_worthless_by_a_new_key() {
    let world = world();
    let (token, id) = mint(&world, &["--uses", "3", "--for", "10m"]);
    world.file("token", token.as_bytes());
    let (child, child_id) = made(&world, &["token", "narrow", "token", "--path", "src/a.txt"]);
    let (code, stdout, _) = with_stdin(&world, &["token", "narrow", "-", "--args", ARGS], &token);
    assert!(code == 0 && stdout.starts_with("hct_"));
    let (code, stdout, stderr) = said(&world.run(&["token", "narrow", "token", "--path", "**"]));
    assert_eq!((code, stdout.as_str()), (119, ""), "{stderr}");
    assert!(stderr.contains("it goes beyond what it was derived from"), "{stderr}");
    world.file("child", child.as_bytes());
    assert_eq!(read_with(&world, "child"), serde_json::json!(["token"]));
    let (code, stdout, stderr) = said(&world.run(&["token", "revoke", &id]));
    assert_eq!((code, stdout.as_str()), (0, ""), "{stderr}");
    let states: Vec<_> = listed(&world, &["--all"]).into_iter().map(|(_, state)| state).collect();
    assert_eq!(states, ["revoked", "revoked", "revoked"]);
    assert!(listed(&world, &["--all"]).iter().any(|(listed, _)| *listed == child_id));
    let again = said(&world.run(&["token", "revoke", &id])).2;
    assert!(again.contains("was revoked before"), "{again}");
    let (code, _, stderr) = said(&world.run(&["token", "revoke", &"0".repeat(32)]));
    assert_eq!(code, 127, "{stderr}");
    assert_eq!(said(&world.run(&["token", "revoke", "x"])).0, 121);

    let (token, _) = mint(&world, &["--uses", "3", "--for", "10m"]);
    world.file("token", token.as_bytes());
    assert_eq!(said(&world.run(&["token", "rotate", "--grace", "1h"])).0, 0);
    assert_eq!(read_with(&world, "token"), serde_json::json!(["token"]));
    let (code, stdout, stderr) = said(&world.run(&["token", "rotate"]));
    assert_eq!((code, stdout.as_str()), (0, ""), "{stderr}");
    assert_eq!(read_with(&world, "token"), serde_json::json!(["read-tools"]));
}
