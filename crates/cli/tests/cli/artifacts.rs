//! `hotcell artifact`, as a user sees it, on a home with artifacts that the engine's library made.

use std::fs;
use std::process::Output;

use hotcell_engine::artifacts::{Artifacts, Content, Origin, Product, Sight};
use hotcell_ledger::Role;
use hotcell_record::{Draft, Kind, Options, Record};
use hotcell_types::{CallId, Caller, Door, Name};
use serde_json::Value;

use crate::support::World;

const CALL: &str = "01HF7YAT0003G40R40M30E209M";

fn said(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

/// Two runs of one script, which sorts a file.
fn world() -> World {
    let world = World::new();
    let home = world.at("../home");
    let record = Record::open(&home, Options::default()).unwrap();
    let artifacts = Artifacts::at(&home);
    for number in 0..2_u8 {
        let call: CallId = CALL.parse().unwrap();
        let call = if number == 0 { call } else { CallId::new(1, [number; 10]) };
        let caller = Caller::local(Name::LOCAL, Door::Cli);
        let time = 1_700_000_000_000_000_000;
        let origin = Origin { call, caller: caller.clone(), tool: Some("run@1.0.0".into()), time };
        let bytes = |text: String| Content::Bytes(text.into_bytes());
        let given = vec![
            Product::new(Role::Script, "sort.py", bytes(format!("sort({number})"))),
            Product::new(Role::Input, "data.csv", bytes("b,2\na,1\n".into())),
        ];
        let large = format!("{number}").repeat(100_000);
        let made = vec![
            Product::new(Role::File, "sorted.csv", bytes("a,1\nb,2\n".into())),
            Product::new(Role::File, "plot.png", Content::Bytes(b"\x89PNG\r\n\x1a\n\0".to_vec())),
            Product::new(Role::File, "large.txt", bytes(large)),
            Product::new(Role::File, "trap.txt", bytes("text \x1b[2J".into())),
            Product::printed(Role::Stdout, "sort.py", b"done\n".to_vec(), 0).unwrap(),
        ];
        let draft = |kind| Draft { call: Some(call), ..Draft::new(kind, caller.clone(), time) };
        let begun = artifacts.begin(&record, draft(Kind::Intent), &origin, given);
        let (given, intent) = begun.unwrap();
        let sight = if number == 0 { Sight::Given } else { Sight::More };
        let outcome = draft(Kind::Outcome);
        artifacts.finish(intent, outcome, &origin, &given, sight, made).unwrap();
    }
    record.close().unwrap();
    world.served()
}

fn json(world: &World, words: &[&str]) -> Value {
    let (code, stdout, stderr) = said(&world.run(words));
    assert_eq!(code, 0, "{words:?}: {stderr}");
    serde_json::from_str(&stdout).unwrap()
}

fn names(listed: &Value) -> Vec<String> {
    let artifacts = listed["artifacts"].as_array().unwrap();
    artifacts
        .iter()
        .map(|one| format!("{}@{}", one["name"].as_str().unwrap(), one["version"]))
        .collect()
}

#[test]
fn artifacts_are_listed_by_name_role_tag_run_and_words() {
    let world = world();
    let (code, stdout, _) = said(&world.run(&["artifact", "ls"]));
    assert_eq!((code, stdout.lines().count()), (0, 15));
    let last = stdout.lines().nth(1).unwrap();
    assert!(
        last.contains("  2023-11-14T22:13:20Z  stdout             5  sort.py:stdout@2"),
        "{last}"
    );
    for (words, expected) in [
        (&["--name", "sort.py"][..], &["sort.py@2", "sort.py@1"][..]),
        (&["--name", "sort.py*", "--limit", "1"], &["sort.py:stdout@2"]),
        (&["--role", "script"], &["sort.py@2", "sort.py@1"]),
        (&["--run", CALL, "--role", "input"], &["data.csv@1"]),
        (&["image/png"], &["plot.png@2", "plot.png@1"]),
        (&["--role", "file", "sort"], &["sorted.csv@2", "sorted.csv@1"]),
        (&["--tag", "none"], &[]),
    ] {
        let all = [&["artifact", "ls", "--json"], words].concat();
        assert_eq!(names(&json(&world, &all)), expected, "{words:?}");
    }
    for bad in [&["--role", "nonsense"][..], &["--run", "x"], &["--name", ""], &["--tag", "a\nb"]] {
        let (code, stdout, stderr) = said(&world.run(&[&["artifact", "ls"], bad].concat()));
        assert_eq!((code, stdout.as_str()), (121, ""), "{bad:?}: {stderr}");
    }
}

#[test]
fn a_content_is_written_as_it_was_and_never_over_a_file() {
    let world = world();
    let script = world.run(&["artifact", "get", "sort.py@1"]);
    assert_eq!(said(&script), (0, "sort(0)".into(), String::new()));
    assert_eq!(said(&world.run(&["artifact", "get", "sort.py"])).1, "sort(1)");
    let known = json(&world, &["artifact", "get", "--json", "sort.py@1"]);
    assert_eq!(
        (&known["artifact"]["role"], &known["tags"]),
        (&"script".into(), &Value::Array(vec![]))
    );
    // What is binary goes to a file or a pipe.
    let png = world.run(&["artifact", "get", "plot.png"]);
    assert_eq!(png.stdout, b"\x89PNG\r\n\x1a\n\0");
    let listed = json(&world, &["artifact", "ls", "--json", "--name", "large.txt"]);
    let id = listed["artifacts"][0]["id"].as_str().unwrap();
    let get = ["artifact", "get", id, "-o", "out.txt"];
    assert_eq!(said(&world.run(&get)), (0, String::new(), String::new()));
    assert_eq!(fs::read_to_string(world.at("out.txt")).unwrap(), "1".repeat(100_000));
    let (code, _, stderr) = said(&world.run(&["artifact", "get", "sort.py", "-o", "out.txt"]));
    assert_eq!(code, 121);
    assert_eq!(
        stderr,
        "error: `out.txt` is there already\n  fix: give another file, or --force to write over it\n"
    );
    assert_eq!(fs::metadata(world.at("out.txt")).unwrap().len(), 100_000);
    let force = ["artifact", "get", "sort.py", "-o", "out.txt", "--force"];
    assert_eq!(said(&world.run(&force)).0, 0);
    assert_eq!(fs::read_to_string(world.at("out.txt")).unwrap(), "sort(1)");

    for (which, expected) in [
        ("nothing", "error: there is no artifact `nothing`\n"),
        ("sort.py@9", "error: there is no version 9 of `sort.py`\n"),
        ("01ARZ3NDEKTSV4RRFFQ69G5FAV", "error: there is no artifact 01ARZ3NDEKTSV4RRFFQ69G5FAV\n"),
    ] {
        let (code, stdout, stderr) = said(&world.run(&["artifact", "get", which]));
        assert_eq!((code, stdout.as_str()), (127, ""), "{stderr}");
        assert!(stderr.starts_with(expected), "{stderr}");
    }
}

/// In a terminal of its own, where there is a program to make one.
#[test]
fn a_terminal_gets_text_and_nothing_that_it_would_obey() {
    let world = world();
    let hotcell = env!("CARGO_BIN_EXE_hotcell");
    for (name, code, expected) in [
        ("sort.py", 0, "sort(1)"),
        ("plot.png", 121, "error: `plot.png` is not text"),
        ("trap.txt", 121, "error: `trap.txt` is not text"),
    ] {
        let line = format!("{hotcell} artifact get {name}");
        let mut script = std::process::Command::new("script");
        script.args(["-qec", &line, "/dev/null"]).env_clear().env("PATH", "/usr/bin:/bin");
        script.env("HOTCELL_HOME", world.at("../home")).env("NO_COLOR", "1");
        let Ok(output) = script.stdin(std::process::Stdio::null()).output() else {
            eprintln!("SKIPPED what a terminal gets: there is no `script` here");
            return;
        };
        let (found, stdout, _) = said(&output);
        assert_eq!(found, code, "{stdout}");
        assert!(stdout.contains(expected) && !stdout.contains("\x1b[2J"), "{stdout}");
    }
}

#[test]
fn lineage_is_a_tree_both_ways() {
    let world = world();
    let (code, stdout, _) = said(&world.run(&["artifact", "lineage", "sorted.csv@1"]));
    assert_eq!(code, 0);
    // Without the ids, of which each line but those of calls and tools has one at its end.
    let plain = |text: &str| -> Vec<String> {
        text.lines().map(|line| line.rsplit_once("  0").map_or(line, |(l, _)| l).into()).collect()
    };
    assert_eq!(
        plain(&stdout),
        [
            "sorted.csv@1",
            "  came from",
            &format!("    run: {CALL}"),
            "    tool: run@1.0.0",
            "    code: sort.py@1",
            "    input: data.csv@1",
        ]
    );
    let (_, stdout, _) = said(&world.run(&["artifact", "lineage", "sorted.csv@2"]));
    assert!(stdout.contains("\n    input: something that nobody recorded\n"), "{stdout}");
    let (_, stdout, _) = said(&world.run(&["artifact", "lineage", "sort.py@1"]));
    let lines = plain(&stdout);
    assert_eq!(lines[1], "  led to");
    assert_eq!(lines[2], "    code: sorted.csv@1");
    assert_eq!(lines.len(), 7, "{stdout}");
    let document = json(&world, &["artifact", "lineage", "--json", "sorted.csv@1"]);
    assert_eq!(document["ancestors"].as_array().unwrap().len(), 4);
    assert_eq!(document["ancestors"][0]["to"]["call"], CALL);
    assert_eq!(said(&world.run(&["artifact", "lineage", "x", "--depth", "0"])).0, 121);
}

#[test]
fn tags_and_rollbacks_are_written_and_recorded() {
    let world = world();
    let (code, stdout, _) = said(&world.run(&["artifact", "tag", "sort.py@1", "good"]));
    assert!(code == 0 && stdout.ends_with("  sort.py@1\n"), "{stdout}");
    let (code, stdout, _) = said(&world.run(&["artifact", "tag", "sort.py@1", "good"]));
    assert!(code == 0 && stdout.ends_with("sort.py@1: nothing to change\n"), "{stdout}");
    let tagged = ["artifact", "ls", "--json", "--tag", "good"];
    assert_eq!(names(&json(&world, &tagged)), ["sort.py@1"]);
    assert_eq!(said(&world.run(&["artifact", "tag", "--remove", "sort.py@1", "good"])).0, 0);
    assert_eq!(names(&json(&world, &tagged)), [""; 0]);
    let (code, stdout, _) = said(&world.run(&["artifact", "rollback", "sort.py@1"]));
    assert!(code == 0 && stdout.ends_with("  sort.py@3\n"), "{stdout}");
    assert_eq!(said(&world.run(&["artifact", "get", "sort.py"])).1, "sort(0)");
    let (code, _, stderr) = said(&world.run(&["artifact", "rollback", "sort.py"]));
    assert_eq!(code, 121, "{stderr}");
    assert_eq!(said(&world.run(&["artifact", "rollback", "sort.py@7"])).0, 127);
    let (_, log, _) = said(&world.run(&["audit", "log", "--json"]));
    for operation in ["artifact.tag", "artifact.untag", "artifact.rollback"] {
        assert_eq!(log.matches(operation).count(), 1, "{log}");
    }
    let (code, stdout, _) = said(&world.run(&["artifact", "verify"]));
    assert_eq!(code, 0, "{stdout}");
    assert_eq!(said(&world.run(&["audit", "verify"])).0, 0);
}

#[test]
fn what_is_not_as_it_was_is_found_named_and_not_given_out() {
    let world = world();
    let (code, stdout, _) = said(&world.run(&["artifact", "verify"]));
    assert_eq!(code, 0, "{stdout}");
    assert!(
        stdout.starts_with("sound: 14 artifacts, 0 tags, 0 verdicts, 9 contents of "),
        "{stdout}"
    );
    // A file of the store.
    let listed = json(&world, &["artifact", "ls", "--json", "--name", "large.txt"]);
    let digest = listed["artifacts"][0]["digest"].as_str().unwrap();
    let (shard, rest) = digest.split_at(2);
    let file = world.at("../home/artifacts").join(shard).join(rest);
    fs::remove_file(&file).unwrap();
    fs::write(&file, "2".repeat(100_000)).unwrap();
    let (code, stdout, _) = said(&world.run(&["artifact", "verify"]));
    assert_eq!(code, 120);
    assert!(stdout.starts_with("broken: "), "{stdout}");
    assert!(stdout.contains(&format!("\nfault: the content {digest} was changed\n")), "{stdout}");
    let document = world.run(&["artifact", "verify", "--json"]);
    let document: Value = serde_json::from_slice(&document.stdout).unwrap();
    assert_eq!((&document["sound"], &document["artifacts"]["faults"]), (&false.into(), &1.into()));
    let (code, _, stderr) = said(&world.run(&["artifact", "get", "large.txt", "-o", "out"]));
    assert_eq!(code, 120, "{stderr}");
    assert!(stderr.contains("is not what was stored") && !world.at("out").exists(), "{stderr}");
    // One letter of a row, where it lies: whoever writes next moves the log there.
    assert_eq!(said(&world.run(&["tool", "call", "add", r#"{"a": 1, "b": 2}"#])).0, 0);
    let database = world.at("../home/hotcell.db");
    let mut bytes = fs::read(&database).unwrap();
    let name = b"data.csv";
    for place in 0..bytes.len() - name.len() {
        if &bytes[place..place + name.len()] == name {
            bytes[place] = b'D';
        }
    }
    fs::write(&database, bytes).unwrap();
    let (code, stdout, _) = said(&world.run(&["artifact", "verify"]));
    assert_eq!(code, 120, "{stdout}");
    assert!(stdout.contains("is not what the record says"), "{stdout}");
}

#[test]
fn without_a_home_there_is_nothing_and_nothing_is_made() {
    let world = World::new();
    for words in [&["artifact", "ls"][..], &["artifact", "get", "x"], &["artifact", "verify"]] {
        let (code, stdout, stderr) = said(&world.run(words));
        assert_eq!((code, stdout.as_str()), (127, ""), "{words:?}: {stderr}");
    }
    assert_eq!(fs::read_dir(world.at("../home")).unwrap().count(), 0);
}

#[test]
fn a_verdict_stays_with_what_it_is_about() {
    let world = world();
    let words = ["artifact", "judge", "sorted.csv", "--aspect", "review", "--ruling", "accept"];
    let (code, stdout, stderr) = said(&world.run(&words));
    assert_eq!((code, &*stderr), (0, ""));
    assert!(stdout.ends_with("  sorted.csv@2\n"), "{stdout}");
    let words = ["artifact", "judge", "sorted.csv@2", "--aspect", "test", "--ruling"];
    let written = json(
        &world,
        &[&words[..], &["revision-needed", "--note", "row 3 is late", "--json"]].concat(),
    );
    assert_eq!(written["artifact"]["name"], "sorted.csv", "{written}");
    let details = json(&world, &["artifact", "get", "sorted.csv", "--json"]);
    let verdicts: Vec<_> = details["verdicts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["aspect"].clone(), one["ruling"].clone(), one["note"].clone()))
        .collect();
    let review = ("review".into(), "accept".into(), Value::Null);
    let test = ("test".into(), "revision-needed".into(), "row 3 is late".into());
    assert_eq!(verdicts, [review, test], "{details}");
    for (words, why) in [
        (["judge", "sorted.csv", "--aspect", "taste", "--ruling", "accept"], "`taste`"),
        (["judge", "sorted.csv", "--aspect", "review", "--ruling", "maybe"], "`maybe`"),
        (["judge", "nothing", "--aspect", "review", "--ruling", "accept"], "`nothing`"),
    ] {
        let (code, stdout, stderr) = said(&world.run(&[&["artifact"], &words[..]].concat()));
        assert!(code != 0 && stdout.is_empty() && stderr.contains(why), "{stderr}");
    }
    assert_eq!(said(&world.run(&["artifact", "verify"])).0, 0);
}

#[test]
fn an_export_has_every_content_under_a_safe_name_and_a_list_of_them() {
    let world = world();
    let (code, stdout, stderr) = said(&world.run(&["artifact", "export", "out"]));
    assert_eq!((code, &*stderr), (0, ""));
    assert!(stdout.starts_with("written: 14 contents ("), "{stdout}");
    let manifest = fs::read_to_string(world.at("out/manifest.jsonl")).unwrap();
    for line in manifest.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let file = world.at("out").join(line["file"].as_str().unwrap());
        let size = fs::metadata(&file).unwrap().len();
        assert_eq!(line["size"], size, "{line}");
    }
    assert_eq!(fs::read_dir(world.at("out")).unwrap().count(), 15);
    let done = json(&world, &["artifact", "export", "few", "--name", "sorted.csv", "--json"]);
    assert_eq!((&done["files"], &done["refused"]), (&2.into(), &0.into()), "{done}");
    // Nothing is written over.
    let (code, stdout, stderr) = said(&world.run(&["artifact", "export", "out"]));
    assert!(code == 120 && stdout.is_empty() && stderr.contains("it is not empty"), "{stderr}");
    // What was changed is told, and not written.
    let large = json(&world, &["artifact", "get", "large.txt", "--json"]);
    let digest = large["artifact"]["digest"].as_str().unwrap();
    let (shard, rest) = digest.split_at(2);
    let stored = world.home().join("artifacts").join(shard).join(rest);
    fs::remove_file(stored).unwrap();
    let (code, stdout, _) = said(&world.run(&["artifact", "export", "rest"]));
    assert!(code == 120 && stdout.contains("1 refused"), "{stdout}");
}
