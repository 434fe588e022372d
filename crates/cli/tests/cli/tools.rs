//! `hotcell tool`, `hotcell audit` and `hotcell runs`, as a user sees them.

use std::process::Command;

use serde_json::Value;

use crate::support::World;

fn world() -> World {
    unserved().served()
}

fn unserved() -> World {
    let world = World::new();
    world.user_config("min_level = \"no-proc\"\n");
    world
}

fn said(output: &std::process::Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_tool_is_called_and_its_result_printed() {
    let world = world();
    let (code, stdout, stderr) = said(&world.run(&["tool", "call", "add", r#"{"a": 1, "b": 2}"#]));
    assert_eq!((code, stdout.as_str(), stderr.as_str()), (0, "3\n", ""));
}

#[test]
fn what_is_wrong_is_told_by_its_place_and_with_a_number() {
    let world = world();
    for (arguments, expected) in [
        (r#"{"a": 1}"#, "error: /b: `b` is missing\n"),
        (r#"{"a": 1, "a": 2, "b": 3}"#, "error: "),
        ("not json", "error: "),
        (r#"{"a": 1, "b": 2, "sandbox": false}"#, "error: /sandbox: `sandbox` is not known here\n"),
    ] {
        let (code, stdout, stderr) = said(&world.run(&["tool", "call", "add", arguments]));
        assert_eq!((code, stdout.as_str()), (121, ""), "{arguments}: {stderr}");
        assert!(stderr.starts_with(expected), "{arguments}: {stderr}");
    }
    let (code, _, stderr) = said(&world.run(&["tool", "call", "no_such_tool"]));
    assert_eq!(code, 121, "{stderr}");
}

#[test]
fn a_refusal_says_why_and_is_in_the_record() {
    let world = world();
    let words = ["tool", "call", "fs.write", r#"{"path": "a", "text": "b"}"#];
    let (code, stdout, stderr) = said(&world.run(&words));
    assert_eq!((code, stdout.as_str()), (119, ""));
    assert_eq!(
        stderr,
        "error: the policy does not allow `fs.write`\n  why: no rule allows it\n  \
         fix: a policy with this:\n       - { name: allow-fs.write, match: { operation: fs.write, path: \
         [\"/a\"] }, action: allow }\n"
    );
    let (code, log, _) = said(&world.run(&["audit", "log", "--json"]));
    assert_eq!(code, 0);
    let last: Value = serde_json::from_str(log.lines().last().unwrap()).unwrap();
    assert_eq!((&last["kind"], &last["decision"]), (&"denied".into(), &"deny".into()), "{log}");
}

#[test]
fn the_record_is_verified_and_a_changed_one_is_not() {
    let world = unserved();
    let (code, _, stderr) = said(&world.run(&["audit", "verify"]));
    assert_eq!(code, 127, "nothing is recorded yet: {stderr}");
    for _ in 0..3 {
        assert_eq!(said(&world.run(&["tool", "call", "echo", r#"{"message": "hello"}"#])).0, 0);
    }
    let (code, stdout, _) = said(&world.run(&["audit", "verify"]));
    assert_eq!(code, 0, "{stdout}");
    assert!(stdout.starts_with("sound: 4 events checked\n"), "{stdout}");
    // One letter of an event, where it lies: in the database, or in the log that goes with it.
    let name = b"echo@1.0.0";
    let mut is_changed = false;
    for file in ["hotcell.db", "hotcell.db-wal"] {
        let file = world.at("../home").join(file);
        let mut bytes = std::fs::read(&file).unwrap();
        while let Some(place) = bytes.windows(name.len()).position(|window| window == name) {
            bytes[place] = b'E';
            is_changed = true;
        }
        std::fs::write(&file, bytes).unwrap();
    }
    assert!(is_changed);
    let (code, stdout, _) = said(&world.run(&["audit", "verify"]));
    assert_eq!(code, 120, "{stdout}");
    assert!(stdout.starts_with("broken: "), "{stdout}");
}

#[test]
fn tools_are_listed_found_and_shown() {
    let world = world();
    let (code, stdout, _) = said(&world.run(&["tool", "ls", "--json"]));
    assert_eq!(code, 0);
    let document: Value = serde_json::from_str(&stdout).unwrap();
    let names: Vec<&str> =
        document["tools"].as_array().unwrap().iter().filter_map(|t| t["name"].as_str()).collect();
    assert!(names.contains(&"code_execute") && names.contains(&"search.grep"), "{names:?}");
    let (_, found, _) = said(&world.run(&["tool", "search", "square", "root"]));
    assert!(found.lines().nth(1).is_some_and(|line| line.starts_with("sqrt ")), "{found}");
    let (code, shown, _) = said(&world.run(&["tool", "show", "fs.read"]));
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!((code, &shown["effects"]), (0, &serde_json::json!(["read"])));
    assert_eq!(said(&world.run(&["tool", "show", "nothing"])).0, 127);
}

#[test]
fn clk_07_neither_zone_nor_locale_changes_what_is_recorded_or_told() {
    let mut world = world();
    let call = ["tool", "call", "fs.write", r#"{"path": "a", "text": "b"}"#];
    let zones = [
        "",
        "UTC",
        "Pacific/Kiritimati",
        "right/America/New_York",
        "EST5EDT,M3.2.0,M11.1.0",
        "/etc/passwd",
    ];
    for zone in zones {
        world.env("TZ", zone);
        world.env("LC_ALL", "tr_TR.UTF-8");
        assert_eq!(said(&world.run(&call)).0, 119, "{zone}");
    }
    let told = |world: &World| {
        let log = said(&world.run(&["audit", "log"]));
        let runs = said(&world.run(&["audit", "log", "--json"]));
        assert_eq!((log.0, runs.0), (0, 0), "{log:?}");
        (log.1, runs.1)
    };
    let expected = told(&world);
    assert_eq!(expected.0.lines().count(), 1 + zones.len());
    for zone in zones {
        world.env("TZ", zone);
        assert_eq!(told(&world), expected, "{zone}");
    }
    assert_eq!(said(&world.run(&["audit", "verify"])).0, 0);
    // In the order of the events, and in Universal Time.
    let now = Command::new("date").args(["-u", "+%Y-%m-%d"]).output().unwrap();
    let now = String::from_utf8(now.stdout).unwrap();
    assert!(expected.0.contains(now.trim()), "{} {now}", expected.0);
}

#[test]
fn tool_15_what_a_tool_gives_back_is_data_on_a_terminal_as_well() {
    let world = world();
    let hostile = "\u{1b}[2J\u{9b}2J\u{202e}gnp.exe\u{2066}\u{7f}\u{85}\u{200f}";
    let arguments = serde_json::json!({ "text": hostile }).to_string();
    for json in [&[][..], &["--json"]] {
        let words = [&["tool", "call"][..], json, &["uppercase", &arguments]].concat();
        let (code, stdout, stderr) = said(&world.run(&words));
        assert_eq!(code, 0, "{stderr}");
        let is_plain =
            |c: char| c == '\n' || !(c.is_control() || ('\u{200e}'..='\u{2069}').contains(&c));
        assert!(stdout.chars().all(is_plain), "{stdout:?}");
        // It still says the same.
        let document: serde_json::Value = serde_json::from_str(&stdout).unwrap();
        let value = document.get("value").unwrap_or(&document);
        assert_eq!(value, &serde_json::json!(hostile.to_uppercase()), "{stdout:?}");
    }
}
