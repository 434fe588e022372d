//! The commands around the record, on runs that really were.

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use std::path::Path;

use crate::support::{LONG, Ran, Started, World, line, until};

/// Runs it, and gives the id of its call.
fn call(world: &World, words: &[&str]) -> String {
    let ran = world.run(&[&["run", "--json"], words].concat());
    ran.json()["id"].as_str().unwrap().to_owned()
}

fn newest(world: &World) -> String {
    let run = world.run(&["runs", "--json", "--limit", "1"]).json();
    run["call"].as_str().unwrap().to_owned()
}

fn shown(world: &World, id: &str) -> Value {
    world.run(&["runs", "show", "--json", id]).json()
}

#[track_caller]
fn is_refused(ran: &Ran, code: i32, what: &str) {
    assert_eq!((ran.code, &*ran.text()), (code, ""), "{ran:?}");
    assert!(ran.errors().starts_with(&format!("error: {what}")), "{ran:?}");
}

#[test]
fn a_call_is_shown_with_all_that_is_known_of_it() {
    let Some(world) = World::new() else { return };
    world.file("data.csv", b"b,2\na,1\n");
    let script = "cat data.csv; echo oops >&2; sort data.csv > sorted.csv; exit 3";
    let words = ["--input", "data.csv", "--timeout", "7s", "--", "sh", "-c", script];
    let id = call(&world, &words);
    let call = shown(&world, &id);
    assert_eq!((&call["call"], &call["tool"]), (&json!(id), &json!("run@1.0.0")));
    assert_eq!((&call["decision"], &call["status"]), (&json!("allow"), &json!("failure")));
    assert_eq!(call["rules"], json!(["code-in-a-sandbox"]));
    assert_eq!(call["arguments"]["command"], json!(["sh", "-c", script]));
    let run = &call["run"];
    assert_eq!((&run["exit"], &run["limits"]["timeout"]), (&json!({"code": 3}), &json!(7000)));
    assert_eq!(run["stdout"], json!({"bytes": 8, "truncated": false}));
    assert!(run["usage"]["wall_ms"].is_u64() && run["usage"]["cpu_ms"] != Value::Null, "{run}");
    assert!(run["layers"].as_array().is_some_and(|layers| layers.len() > 3), "{run}");
    let made: Vec<_> = call["artifacts"].as_array().unwrap().iter().map(|a| &a["role"]).collect();
    assert_eq!(made, ["input", "file", "stdout", "stderr"]);
    let events: Vec<_> = call["events"].as_array().unwrap().iter().map(|e| &e["kind"]).collect();
    assert_eq!((events.first(), events.len()), (Some(&&json!("intent")), 6), "{events:?}");
    let page = world.run(&["runs", "show", &id]);
    for line in ["status      failure", "ended with  exit 3", "given ", "printed ", "made "] {
        assert!(page.text().contains(&format!("\n{line}")), "{line}: {page:?}");
    }
}

#[test]
fn what_did_not_run_is_shown_as_well() {
    let Some(world) = World::new() else { return };
    let denied = world.run(&["tool", "call", "fs.write", r#"{"path": "a", "text": "b"}"#]);
    assert_eq!(denied.code, 119);
    let log = world.run(&["audit", "log", "--json"]).text();
    let event: Value = serde_json::from_str(log.lines().last().unwrap()).unwrap();
    let call = shown(&world, event["call"].as_str().unwrap());
    assert_eq!((&call["decision"], &call["status"]), (&json!("deny"), &json!("blocked")));
    assert_eq!((&call["run"], &call["reason"]), (&Value::Null, &json!("no rule allows it")));
}

#[test]
fn a_file_may_be_called_show_and_who_means_a_call_is_told() {
    let Some(world) = World::new() else { return };
    let unknown = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
    let ran = world.run(&["run", "show", unknown]);
    is_refused(&ran, 127, "there is no file `show`\n  fix: `hotcell runs show ID` shows a call");
    world.file("show", b"#!/bin/sh\necho a file\n");
    world.run(&["run", "show", unknown]).is(0, "a file\n", "");
    is_refused(&world.run(&["runs", "show", unknown]), 127, &format!("there is no call {unknown}"));
    is_refused(&world.run(&["runs", "show", "x"]), 121, "`x` does not suit");
}

/// A run that says `ready` and ends when there is something on its standard input.
fn waiting(world: &World, then: &str) -> (Started, std::process::ChildStdin) {
    let script = format!("echo ready; echo so >&2; read word; {then}");
    let mut command = world.command(&["run", "--stdin", "-", "--", "sh", "-c", &script]);
    command.stdin(std::process::Stdio::piped());
    let (mut started, mut stdout) = Started::with_stdout(command);
    assert_eq!(line(&mut stdout), "ready");
    let stdin = started.child.stdin.take().unwrap();
    // What is not read any more must not end it.
    std::thread::spawn(move || std::io::copy(&mut stdout, &mut std::io::sink()));
    (started, stdin)
}

fn live_files(world: &World) -> usize {
    fs::read_dir(world.home().join("run/live")).map_or(0, Iterator::count)
}

#[test]
fn a_run_of_another_process_is_followed_until_its_end() {
    let Some(world) = World::new() else { return };
    let (started, stdin) = waiting(&world, "echo $((6 * 7)); echo end >&2; exit 3");
    let (follower, mut stdout) = Started::with_stdout(world.command(&["logs", "-f"]));
    assert_eq!(line(&mut stdout), "ready");
    until(LONG, || (live_files(&world) == 1).then_some(())).expect("it is on the disk");
    // Without -f, what there is so far.
    world.run(&["logs"]).is(0, "ready\n", "so\n");
    let id = newest(&world);
    assert_eq!(shown(&world, &id)["status"], Value::Null);
    drop(stdin);
    assert_eq!(line(&mut stdout), "42");
    assert_eq!(line(&mut stdout), "");
    let followed = follower.finish(LONG);
    assert_eq!((followed.code, &*followed.errors()), (0, "so\nend\n"));
    assert_eq!(started.finish(LONG).code, 3);
    assert_eq!(live_files(&world), 0);
    // And afterwards from the ledger.
    world.run(&["logs", &id]).is(0, "ready\n42\n", "so\nend\n");
    world.run(&["logs", "-f", &id]).is(0, "ready\n42\n", "so\nend\n");
}

#[test]
fn who_follows_a_run_whose_process_is_killed_is_told() {
    let Some(world) = World::new().map(World::on_its_own) else { return };
    let (started, stdin) = waiting(&world, "echo never");
    until(LONG, || (live_files(&world) == 1).then_some(())).expect("it is on the disk");
    let (follower, mut stdout) = Started::with_stdout(world.command(&["logs", "-f"]));
    assert_eq!(line(&mut stdout), "ready");
    started.signal(Signal::KILL);
    let followed = follower.finish(LONG);
    assert_eq!(followed.code, 0);
    assert_eq!(followed.errors(), "so\nhotcell: whoever ran it ended before it did\n");
    drop((stdin, started.finish(LONG)));
    let id = newest(&world);
    assert_eq!(shown(&world, &id)["status"], json!("unknown"));
    // What it left is swept by the next that lasts.
    let (next, stdin) = waiting(&world, "true");
    until(LONG, || {
        let names = fs::read_dir(world.home().join("run/live")).unwrap();
        let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
        (names.len() == 1 && names[0] != *id).then_some(())
    })
    .expect("it is swept");
    drop(stdin);
    next.finish(LONG);
}

#[test]
fn what_a_run_uses_is_told_with_times_while_it_goes_on() {
    let Some(world) = World::with_cgroups() else { return };
    let (started, stdin) = waiting(&world, "true");
    let (follower, mut stdout) = Started::with_stdout(world.command(&["logs", "-f", "--json"]));
    let entries: Vec<Value> =
        (0..4).map(|_| serde_json::from_str(&line(&mut stdout)).unwrap()).collect();
    drop(stdin);
    let used: Vec<&Value> = entries.iter().filter(|e| e["memory_bytes"].is_u64()).collect();
    assert_eq!(used.len(), 2, "{entries:?}");
    let at: Vec<f64> = used.iter().map(|entry| entry["at_ms"].as_f64().unwrap()).collect();
    assert!(at[0] >= 200.0 && at[1] - at[0] >= 500.0, "{at:?}");
    assert!(used.iter().all(|entry| entry["cpu_ms"].is_f64()), "{used:?}");
    std::thread::spawn(move || std::io::copy(&mut stdout, &mut std::io::sink()));
    follower.finish(LONG);
    started.finish(LONG);
}

fn replayed(world: &World, id: &str, words: &[&str]) -> (i32, Value) {
    let ran = world.run(&[&["replay", "--json", id], words].concat());
    (ran.code, ran.json())
}

#[test]
fn a_replay_is_a_new_call_from_the_recorded_inputs_that_comes_to_the_same() {
    let Some(world) = World::new() else { return };
    world.file("data.csv", b"b,2\na,1\n");
    world.file("in.txt", b"words\n");
    let script = "cat; cat data.csv; echo oops >&2; sort data.csv > sorted.csv; exit 3";
    let words = ["--input", "data.csv", "--stdin", "in.txt", "--env", "A=b"];
    let id = call(&world, &[&words[..], &["--", "sh", "-c", script]].concat());
    // What is read is what was recorded, and not what is there now.
    fs::remove_file(world.at("data.csv")).unwrap();
    world.file("in.txt", b"other words\n");
    let (code, found) = replayed(&world, &id, &[]);
    assert_eq!((code, &found["same"]), (0, &json!(true)), "{found}");
    assert_eq!(found["alike"], json!(["exit", "status", "stderr", "stdout", "sorted.csv"]));
    let new = found["new"].as_str().unwrap();
    assert_eq!(shown(&world, new)["parent"], json!(id));
    assert_eq!(shown(&world, &id)["children"], json!([new]));
    // Of a script, and of a tool that runs nothing.
    world.file("hello.py", b"print('hello')\n");
    let script = call(&world, &["hello.py", "an argument"]);
    assert_eq!(replayed(&world, &script, &[]).0, 0);
    world.run(&["tool", "call", "add", r#"{"a": 1, "b": 2}"#]).is(0, "3\n", "");
    let log = world.run(&["audit", "log", "--json"]).text();
    let add: Value = serde_json::from_str(log.lines().last().unwrap()).unwrap();
    let (code, found) = replayed(&world, add["call"].as_str().unwrap(), &[]);
    assert_eq!((code, &found["alike"]), (0, &json!(["status", "value"])), "{found}");
}

#[test]
fn what_differs_is_told_and_what_may_differ_is_left_out() {
    let Some(world) = World::new() else { return };
    let script = "echo same; od -An -N8 -tx1 /dev/urandom | tee now.log; echo kept > kept.txt";
    let id = call(&world, &["--", "sh", "-c", script]);
    let (code, found) = replayed(&world, &id, &[]);
    let what = |found: &Value| -> Vec<String> {
        let all = found["differences"].as_array().unwrap().iter();
        all.map(|one| one["what"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!((code, what(&found)), (1, vec!["stdout".to_owned(), "now.log".to_owned()]));
    let was = found["differences"][0]["was"].as_str().unwrap();
    assert!(was.starts_with("line 2 `"), "{was}");
    let (code, found) = replayed(&world, &id, &["--ignore", "*.log", "--ignore", "stdout"]);
    assert_eq!((code, &found["ignored"]), (0, &json!(["stdout", "now.log"])), "{found}");
    let text = world.run(&["replay", &id, "--ignore", "stdout"]);
    assert_eq!(text.code, 1);
    assert!(text.text().contains("\ndifferent: now.log\n  was: 25 bytes, "), "{text:?}");
    assert!(text.text().contains("\nignored: stdout\nsame: exit, status, kept.txt\n"), "{text:?}");
}

#[test]
fn what_was_not_kept_cannot_be_replayed_and_the_reason_is_told() {
    let Some(world) = World::new() else { return };
    world.file("key", format!("{}ghp_0123456789", "x ".repeat(1 << 20)).as_bytes());
    let key = call(&world, &["--input", "key", "--", "true"]);
    let live = call(&world, &["--stdin", "-", "--", "cat"]);
    let secret = call(&world, &["--env", "sk-proj-0123456789abcdef=x", "--", "true"]);
    for (id, why) in [
        (key, "the content "),
        (live, "its standard input was passed on while it ran"),
        (secret, "something secret is among the names of its arguments"),
    ] {
        let ran = world.run(&["replay", &id]);
        let what = format!("the call {id} cannot be replayed\n  why: {why}");
        is_refused(&ran, 121, &what);
    }
    let unknown = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
    is_refused(&world.run(&["replay", unknown]), 127, &format!("there is no call {unknown}"));
    is_refused(&world.run(&["replay", unknown, "--ignore", "["]), 121, "`--ignore` cannot be used");
}

/// What a secret was in is given as it was recorded, and that is told.
#[test]
fn a_call_with_a_secret_is_replayed_with_a_placeholder() {
    let Some(world) = World::new() else { return };
    let key = ["--env", "KEY=sk-proj-0123456789abcdef", "--", "sh", "-c"];
    let same = call(&world, &[&key[..], &["test -n \"$KEY\""]].concat());
    let (code, found) = replayed(&world, &same, &[]);
    assert_eq!(
        (code, &found["placeholders"], &found["same"]),
        (0, &json!(1), &json!(true)),
        "{found}"
    );
    let other = call(&world, &[&key[..], &["echo ${#KEY}"]].concat());
    let (code, found) = replayed(&world, &other, &[]);
    assert_eq!((code, &found["placeholders"]), (1, &json!(1)), "{found}");
    assert_eq!(found["differences"][0]["is"], "line 1 `13`", "{found}");
    let text = world.run(&["replay", &other]).text();
    assert!(text.contains("\nplaceholders: 1 (secrets were not recorded, "), "{text}");
}

/// In another home.
fn in_home(world: &World, home: &Path, words: &[&str]) -> Ran {
    let mut command = world.command(words);
    command.env("HOTCELL_HOME", home);
    Started::new(command).finish(LONG)
}

/// Everything below a directory but what comes and goes.
fn files(home: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(home) else { return Vec::new() };
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| name != "run").collect();
    names.sort();
    names
}

#[test]
fn a_home_is_restored_from_a_backup_and_an_old_one_is_told_by_the_anchor() {
    let Some(world) = World::new() else { return };
    let id = call(&world, &["--", "sh", "-c", "seq 100000"]);
    let copied = world.run(&["backup", "home.tar"]);
    assert!(copied.text().starts_with("copied: "), "{copied:?}");
    assert!(copied.text().contains(" and 1 large contents"), "{copied:?}");
    is_refused(&world.run(&["backup", "home.tar"]), 121, "`home.tar` cannot be made");
    call(&world, &["--", "true"]);
    let other = world.at("other");
    let restored = in_home(&world, &other, &["restore", "home.tar"]);
    assert_eq!((restored.code, &*restored.errors()), (0, ""), "{restored:?}");
    assert!(restored.text().starts_with("restored: 1 artifacts and "), "{restored:?}");
    assert!(restored.text().contains("\ncannot be found: what was recorded after"), "{restored:?}");
    for words in [&["audit", "verify"][..], &["artifact", "verify"]] {
        assert_eq!(in_home(&world, &other, words).code, 0);
    }
    let printed = world.run(&["logs", &id]).stdout;
    assert!(printed.len() > 500_000 && in_home(&world, &other, &["logs", &id]).stdout == printed);
    // Its configuration is not in it.
    fs::copy(world.home().join("config.toml"), other.join("config.toml")).unwrap();
    assert_eq!(in_home(&world, &other, &["replay", &id]).code, 0);
    // What the home that was copied knows besides.
    let anchor = world.home().join("anchor.log");
    let told = in_home(&world, &other, &["audit", "verify", "--anchor", anchor.to_str().unwrap()]);
    assert_eq!(told.code, 120, "{told:?}");
    // A home that has something is left alone.
    let before = fs::read(other.join("hotcell.db")).unwrap();
    let again = in_home(&world, &other, &["restore", "home.tar"]);
    is_refused(&again, 121, &format!("the home `{}` is not empty", other.display()));
    assert!(before == fs::read(other.join("hotcell.db")).unwrap());
}

#[test]
fn what_is_not_a_whole_and_sound_backup_is_not_put_in_place() {
    let Some(world) = World::new() else { return };
    call(&world, &["--", "sh", "-c", "seq 100000"]);
    assert_eq!(world.run(&["backup", "home.tar"]).code, 0);
    let whole = fs::read(world.at("home.tar")).unwrap();
    let changed = |place: usize| {
        let mut bytes = whole.clone();
        bytes[place] ^= 1;
        bytes
    };
    let find = |text: &[u8]| whole.windows(text.len()).position(|some| some == text).unwrap();
    for (bad, what) in [
        (b"not an archive".to_vec(), "`bad.tar` is not a whole backup"),
        (whole[..whole.len() / 2].to_vec(), "`bad.tar` is not a whole backup"),
        (changed(find(b"hotcell.db\0")), "`bad.tar` is not a whole backup"),
        // A content, and an event.
        (changed(find(b"\n31415\n")), "the backup is not what was recorded"),
        (changed(find(b"code.execute")), "the backup is not what was recorded"),
    ] {
        world.file("bad.tar", &bad);
        let other = world.at("other");
        let refused = in_home(&world, &other, &["restore", "bad.tar"]);
        assert!([120, 121].contains(&refused.code), "{refused:?}");
        is_refused(&refused, refused.code, what);
        assert_eq!(files(&other), [""; 0], "{refused:?}");
    }
    is_refused(&world.run(&["restore", "missing.tar"]), 121, "`missing.tar` cannot be read");
}

/// Three who run something again and again, for a while.
fn writers<'scope>(
    scope: &'scope std::thread::Scope<'scope, '_>,
    world: &'scope World,
) -> [std::thread::ScopedJoinHandle<'scope, ()>; 3] {
    [0; 3].map(|_| {
        scope.spawn(|| {
            for _ in 0..5 {
                let ran = world.run(&["run", "--", "sh", "-c", "seq 20000; seq 99 > made"]);
                assert_eq!(ran.code, 0, "{ran:?}");
            }
        })
    })
}

#[test]
fn a_backup_that_is_made_while_others_write_is_sound() {
    let Some(world) = World::new() else { return };
    call(&world, &["--", "true"]);
    std::thread::scope(|scope| {
        let writers = writers(scope, &world);
        for number in 0..4 {
            let (file, other) = (format!("{number}.tar"), world.at(format!("home{number}")));
            let copied = world.run(&["backup", &file]);
            assert_eq!(copied.code, 0, "{copied:?}");
            let restored = in_home(&world, &other, &["restore", &file]);
            assert_eq!(restored.code, 0, "{restored:?}");
        }
        writers.into_iter().for_each(|writer| writer.join().unwrap());
    });
    assert_eq!(world.run(&["artifact", "verify"]).code, 0);
}

#[test]
fn what_is_old_is_removed_what_is_tagged_stays_and_the_chain_still_proves_all() {
    let Some(world) = World::new() else { return };
    let small = call(&world, &["--", "echo", "small"]);
    let large = call(&world, &["--", "sh", "-c", "seq 100000; echo kept > kept.txt"]);
    assert_eq!(world.run(&["artifact", "tag", "kept.txt", "good"]).code, 0);
    let nothing = world.run(&["gc"]);
    assert!(
        nothing.text().starts_with("removed: 0 contents of artifacts (0 bytes), 0 "),
        "{nothing:?}"
    );
    let gc = |words: &[&str]| {
        let ran = world.run(&[&["gc", "--json"], words].concat());
        (ran.code, ran.json())
    };
    let (_, told) = gc(&["--dry-run", "--keep", "0d"]);
    assert_eq!(told["artifact_contents"]["count"], 2, "{told}");
    world.run(&["logs", &small]).is(0, "small\n", "");
    let (code, done) = gc(&["--keep", "0d"]);
    assert_eq!((code, &done["artifact_contents"]), (0, &told["artifact_contents"]), "{done}");
    assert!(done["payloads"]["count"].as_u64().unwrap() >= 4, "{done}");
    for words in [&["audit", "verify"][..], &["artifact", "verify"]] {
        let verified = world.run(words);
        assert_eq!(verified.code, 0, "{verified:?}");
    }
    assert_eq!(
        fs::read_dir(world.home().join("artifacts"))
            .unwrap()
            .flat_map(|shard| { fs::read_dir(shard.unwrap().path()).unwrap() })
            .count(),
        0,
        "the file is gone"
    );
    world.run(&["artifact", "get", "kept.txt"]).is(0, "kept\n", "");
    let gone =
        "the content of `sh:stdout` is not there any more\n  why: it was removed to make room";
    is_refused(&world.run(&["artifact", "get", "sh:stdout"]), 120, gone);
    is_refused(&world.run(&["logs", &large]), 120, gone);
    let call = shown(&world, &large);
    assert_eq!(call["arguments_missing"], json!("it was removed to make room"));
    let why = format!("the call {large} cannot be replayed\n  why: its arguments cannot be read");
    is_refused(&world.run(&["replay", &large]), 121, &why);
    // What is made again is there again.
    world.run(&["run", "--", "echo", "small"]).is(0, "small\n", "");
    world.run(&["logs", &small]).is(0, "small\n", "");
}

#[test]
fn a_home_beyond_its_quota_is_warned_of_once_and_made_to_fit() {
    let Some(world) = World::new().map(World::on_its_own) else { return };
    fs::write(world.home().join("config.toml"), "min_level = \"no-proc\"\nquota = \"300KiB\"\n")
        .unwrap();
    let run = || world.run(&["run", "--", "sh", "-c", "seq 100000 > a"]);
    let warned = run();
    assert!(warned.errors().starts_with("hotcell: the home has "), "{warned:?}");
    run().is(0, "", "");
    let used = |words: &[&str]| {
        let ran = world.run(&[&["gc", "--json"], words].concat()).json();
        (ran["used_bytes"].as_u64().unwrap(), ran["artifact_contents"]["count"].clone())
    };
    let (before, removed) = used(&[]);
    let (after, none) = used(&["--dry-run"]);
    assert!(before > 500_000 && after < 300 * 1024, "{before} {after}");
    assert_eq!((removed, none), (json!(1), json!(0)));
    world.file("project/.hotcell/config.toml", b"quota = \"1\"\n");
    let mut command = world.command(&["gc"]);
    command.current_dir(world.at("project"));
    let refused = Started::new(command).finish(LONG);
    assert_eq!(refused.code, 121, "{refused:?}");
    assert!(refused.errors().contains("config.toml cannot set quota\n"), "{refused:?}");
}

#[test]
fn room_is_made_beside_runs_and_nothing_of_theirs_is_lost() {
    let Some(world) = World::new() else { return };
    call(&world, &["--", "true"]);
    std::thread::scope(|scope| {
        let writers = writers(scope, &world);
        while !writers.iter().all(|writer| writer.is_finished()) {
            let ran = world.run(&["gc", "--keep", "0d"]);
            assert_eq!(ran.code, 0, "{ran:?}");
        }
        writers.into_iter().for_each(|writer| writer.join().unwrap());
    });
    for words in [&["audit", "verify"][..], &["artifact", "verify"]] {
        let verified = world.run(words);
        assert_eq!(verified.code, 0, "{verified:?}");
    }
}
