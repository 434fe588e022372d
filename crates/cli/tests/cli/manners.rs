//! What a terminal gets and a program does not, and what programs get everywhere.

use std::io::Read;

use hotcell_record::{Draft, Kind, Options, Record, now};
use hotcell_types::{Caller, Door, Name};
use serde_json::Value;

use crate::screen;
use crate::support::World;

const RED: &str = "\x1b[1;31m";

#[test]
fn only_a_terminal_has_colour_and_only_if_nobody_objects() {
    let plain: [(&[&str], &str, &str); 6] = [
        (&["--color", "never", "runs"], "", ""),
        (&["runs", "--color=never"], "", ""),
        (&["frobnicate", "--color", "never"], "", ""),
        (&["runs"], "NO_COLOR", "1"),
        (&["frobnicate"], "NO_COLOR", "1"),
        (&["runs"], "TERM", "dumb"),
    ];
    let coloured: [(&[&str], &str, &str); 4] = [
        (&["runs"], "", ""),
        (&["frobnicate"], "", ""),
        (&["runs"], "NO_COLOR", ""),
        (&["--color", "always", "runs"], "NO_COLOR", "1"),
    ];
    let cases =
        plain.map(|case| (case, false)).into_iter().chain(coloured.map(|case| (case, true)));
    for ((words, name, value), expected) in cases {
        let mut world = World::new();
        if !name.is_empty() {
            world.env(name, value);
        }
        let (_, screen) = screen::all_at_terminal(&world.command(words));
        assert!(screen.contains("error:"), "{words:?} {screen}");
        assert_eq!(screen.contains(RED), expected, "{words:?} {name} {screen:?}");
        assert_eq!(screen.contains('\x1b'), expected, "{words:?} {name} {screen:?}");
    }
    for (words, expected) in [(&["runs"][..], false), (&["--color", "always", "runs"], true)] {
        let stderr = World::new().run(words).stderr;
        assert_eq!(String::from_utf8(stderr).unwrap().contains(RED), expected, "{words:?}");
    }
}

#[test]
fn help_has_no_colour_where_nobody_wants_it() {
    let world = World::new();
    for (words, expected) in
        [(&["--help"][..], true), (&["run", "--help", "--color", "never"], false)]
    {
        let (code, screen) = screen::all_at_terminal(&world.command(words));
        assert_eq!((code, screen.contains('\x1b')), (Some(0), expected), "{screen:?}");
    }
}

#[test]
fn a_wrong_colour_is_told() {
    let text = World::new().transcript(&["--color", "red", "runs"]);
    assert!(text.contains("invalid value `red`") && text.contains("[121]"), "{text}");
}

/// More than a pipe takes.
const MANY: usize = 2000;

#[test]
fn what_takes_long_shows_how_far_it_is_at_a_terminal_and_nowhere_else() {
    let mut world = World::new();
    let record = Record::open(&world.home(), Options::default()).unwrap();
    for _ in 0..MANY {
        let caller = Caller::local(Name::LOCAL, Door::Cli);
        record.append_later(Draft::new(Kind::Note, caller, now())).unwrap();
    }
    record.close().unwrap();
    let words = ["audit", "export"];
    world.env("TERM", "xterm");
    // It takes as long as nobody reads what it writes.
    let (mut pty, mut child) = screen::with_errors(&world.command(&words));
    pty.wait_for("writing events [");
    pty.wait_for("/2,001");
    let mut data = String::new();
    child.stdout.take().unwrap().read_to_string(&mut data).unwrap();
    assert_eq!(pty.until_end(&mut child), Some(0));
    let screen = String::from_utf8_lossy(&pty.seen).into_owned();
    assert!(!screen.contains('\n') && screen.ends_with("\x1b[2K"), "{screen:?}");
    assert_eq!(data.lines().filter(|line| line.contains("\"type\":\"event\"")).count(), MANY + 1);

    let output = world.run(&words);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), data);

    world.env("TERM", "dumb");
    let (mut pty, mut child) = screen::with_errors(&world.command(&words));
    let mut again = String::new();
    child.stdout.take().unwrap().read_to_string(&mut again).unwrap();
    assert_eq!((pty.until_end(&mut child), pty.seen.as_slice()), (Some(0), &b""[..]));
}

/// The only line of what it printed, which nothing came beside.
#[track_caller]
fn document(world: &World, words: &[&str], code: i32) -> Value {
    let output = world.run(words);
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(code), "{words:?} {stdout}");
    assert!(output.stderr.is_empty(), "{words:?} {:?}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(stdout.lines().count(), 1, "{words:?} {stdout}");
    serde_json::from_str(&stdout).unwrap()
}

#[test]
fn commands_that_once_had_words_only_print_documents() {
    let world = World::new();
    world.user_config("min_level = \"no-proc\"\n");
    let good = "rules:\n  - { name: adds, match: { operation: add }, action: allow }\n";
    world.file("good.yaml", good.as_bytes());
    world.file("bad.yaml", b"rules:\n  - { nome: a }\n");
    world.file("wrong.yaml", b"tests:\n  - { call: { operation: add }, expect: deny }\n");

    assert_eq!(document(&world, &["tool", "show", "add", "--json"], 0)["name"], "add");
    let absent = document(&world, &["tool", "show", "nothing", "--json"], 127);
    assert_eq!(absent["status"], "invalid");
    let checked = document(&world, &["policy", "check", "good.yaml", "--json"], 0);
    assert_eq!((&checked["good"], &checked["rules"]), (&true.into(), &1.into()));
    let checked = document(&world, &["policy", "check", "bad.yaml", "--json"], 121);
    assert_eq!((&checked["good"], &checked["faults"][0]["line"]), (&false.into(), &2.into()));
    let explained =
        document(&world, &["policy", "explain", "add", "{\"a\":1,\"b\":2}", "--json"], 0);
    assert_eq!(explained["decision"], "allow");
    let tested = document(&world, &["policy", "test", "bad.yaml", "wrong.yaml", "--json"], 121);
    assert_eq!(tested["good"], false);
    let rotated = document(&world, &["token", "rotate", "--json", "--grace", "1m"], 0);
    assert_eq!(rotated["grace_ms"], 60_000);
    let minted =
        document(&world, &["token", "mint", "add", "--args", "{\"a\":1,\"b\":2}", "--json"], 0);
    let (token, id) = (minted["token"].as_str().unwrap(), minted["id"].as_str().unwrap());
    assert!(token.starts_with("hct_"), "{minted}");
    assert_eq!(document(&world, &["token", "revoke", id, "--json"], 0)["changed"], true);
    assert_eq!(document(&world, &["token", "revoke", id, "--json"], 0)["changed"], false);
    let learned = document(&world, &["policy", "learn", "--json"], 0);
    assert!(learned["rules"].is_string(), "{learned}");
    assert_eq!(document(&world, &["resident", "status", "--json"], 0)["serving"], false);
    let nobody = document(&world, &["approver", "new", "alice", "--json"], 119);
    assert_eq!(nobody["status"], "blocked");
    let nobody = document(&world, &["init", "--profile", "strict", "--json"], 119);
    assert_eq!(nobody["status"], "blocked");
}
