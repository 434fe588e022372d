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

/// Makes archives that mean no good: each line of output is the name of one.
const HOSTILE: &str = r#"
import io, struct, sys, tarfile
outside, whole = sys.argv[1], tarfile.open("home.tar")
parts = [(entry, whole.extractfile(entry).read()) for entry in whole.getmembers()]
database = next(content for entry, content in parts if entry.name == "hotcell.db")

def make(name, entries, first=True, form=tarfile.USTAR_FORMAT, without=None):
    out = tarfile.open(name + ".tar", "w", format=form)
    def add(entry, content=b""):
        entry.size = len(content) if entry.isreg() else 0
        out.addfile(entry, io.BytesIO(content))
    def some():
        for entry, content in parts:
            add(tarfile.TarInfo(entry.name), content)
    mark = tarfile.TarInfo("hotcell-backup")
    if first:
        some()
    else:
        add(mark, b"1\n")
    for entry, content in entries:
        add(entry, content)
    if not first:
        for entry, content in parts[1:]:
            if entry.name != without:
                add(tarfile.TarInfo(entry.name), content)
    out.close()
    print(name)

def entry(name, kind=tarfile.REGTYPE, link="", mode=0o644, pax={}):
    made = tarfile.TarInfo(name)
    made.type, made.linkname, made.mode, made.pax_headers = kind, link, mode, pax
    return made

evil = b"evil\n"
for first in (True, False):
    when = "late" if first else "early"
    def both(name, *entries, **more):
        make(f"{name}-{when}", entries, first, **more)
    both("dots", (entry("../canary"), evil))
    both("deep-dots", (entry("artifacts/../../outside/canary"), evil))
    both("absolute", (entry(outside + "/canary"), evil))
    both("link", (entry("keys", tarfile.SYMTYPE, outside), b""), (entry("keys/canary"), evil))
    both("chain", (entry("a/b/c/up", tarfile.SYMTYPE, "../.."), b""),
        (entry("a/b/escape", tarfile.SYMTYPE, "c/up/../.."), b""), (entry("a/b/escape/canary"), evil))
    both("database-link", (entry("hotcell.db", tarfile.SYMTYPE, outside + "/canary"), b""))
    both("hard", (entry("exfil", tarfile.LNKTYPE, outside + "/canary"), b""), (entry("exfil"), evil))
    both("device", (entry("anchor.log", tarfile.CHRTYPE), b""))
    both("fifo", (entry("anchor.log", tarfile.FIFOTYPE), b""))
    both("directory", (entry("artifacts/ab", tarfile.DIRTYPE, mode=0o777), b""))
    both("suid", (entry("keys/suid", mode=0o6755), evil))
    both("second", (entry("hotcell.db"), database))
    both("config", (entry("config.toml"), b"min_level = 'landlock-only'\n"))
    # The header says one size and the extension another: what follows is read in two ways.
    hidden = tarfile.TarInfo("config.toml")
    hidden.size = len(evil)
    inner = hidden.tobuf(tarfile.USTAR_FORMAT) + evil.ljust(512, b"\0")
    both("pax-size", (entry("anchor.log", pax={"size": "0"}), inner), form=tarfile.PAX_FORMAT)
    both("pax-path", (entry("anchor.log", pax={"path": "../canary"}), evil), form=tarfile.PAX_FORMAT)
    both("gnu-long", (entry("x" * 200 + "/../../canary"), evil), form=tarfile.GNU_FORMAT)
# In the place of what a backup has, with nothing else that is wrong.
for kind in (tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE):
    made = entry("anchor.log", kind, outside + "/canary")
    make("instead-" + kind.decode(), [(made, b"")], first=False, without="anchor.log")
# A size that is none.
raw = bytearray(open("home.tar", "rb").read())
for name, size in (("negative", b"\xff" * 12), ("huge", b"\x80" + b"\0" * 3 + b"\x7f" * 8)):
    changed = bytearray(raw)
    changed[124:136] = size
    changed[148:156] = b" " * 8
    changed[148:156] = b"%06o\0 " % sum(changed[:512])
    open(name + ".tar", "wb").write(changed)
    print(name)
"#;

#[test]
fn fs_22_fs_23_a_hostile_archive_is_refused_as_a_whole() {
    let Some(world) = World::new() else { return };
    call(&world, &["--", "sh", "-c", "seq 100000"]);
    assert_eq!(world.run(&["backup", "home.tar"]).code, 0);
    let outside = world.at("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("canary"), "as it was").unwrap();
    let made = std::process::Command::new("python3")
        .args(["-I", "-c", HOSTILE])
        .arg(&outside)
        .current_dir(world.at("."))
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let names = String::from_utf8(made.stdout).unwrap();
    assert_eq!(names.lines().count(), 39);
    let other = world.at("other");
    for name in names.lines() {
        let archive = format!("{name}.tar");
        let refused = in_home(&world, &other, &["restore", &archive]);
        is_refused(&refused, 121, &format!("`{archive}` is not a whole backup"));
        assert_eq!(files(&other), [""; 0], "{name}: {refused:?}");
        let left = files(&other.join("run"));
        assert!(left.iter().all(|name| !name.starts_with("copy-")), "{name}: {left:?}");
        assert_eq!(fs::read_to_string(outside.join("canary")).unwrap(), "as it was", "{name}");
        assert_eq!(files(&outside), ["canary"], "{name}");
        assert!(!world.at("canary").exists() && !world.at("../canary").exists(), "{name}");
    }
    // The same without what means no good is fine.
    assert_eq!(in_home(&world, &other, &["restore", "home.tar"]).code, 0);
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
    assert!(warned.errors().ends_with(" of its 300.0KiB (critical); `hotcell gc` makes room\n"));
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

/// Takes the newest call of a home away, with all that speaks of it inside.
fn cut(home: &Path) {
    let database = rusqlite::Connection::open(home.join("hotcell.db")).unwrap();
    let guards = "SELECT name FROM sqlite_master WHERE type = 'trigger'";
    let guards: Vec<String> = {
        let mut guards = database.prepare(guards).unwrap();
        guards.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    };
    guards.iter().for_each(|name| database.execute_batch(&format!("DROP TRIGGER {name}")).unwrap());
    let newest = "SELECT max(seq) FROM event WHERE kind = 'intent'";
    let first: i64 = database.query_row(newest, [], |row| row.get(0)).unwrap();
    for table in ["checkpoint", "event", "payload", "small", "unfinished"] {
        database.execute(&format!("DELETE FROM {table} WHERE seq >= ?1"), [first]).unwrap();
    }
}

#[test]
fn an_anchor_elsewhere_shows_a_cut_that_the_one_in_the_home_cannot_show() {
    for elsewhere in [false, true] {
        let Some(world) = World::new() else { return };
        let world = world.on_its_own();
        let anchor = match elsewhere {
            true => world.at("kept.log"),
            false => world.home().join("anchor.log"),
        };
        if elsewhere {
            let path = world.home().join("config.toml");
            let before = fs::read_to_string(&path).unwrap_or_default();
            fs::write(path, format!("{before}\n[record]\nanchor = \"{}\"\n", anchor.display()))
                .unwrap();
        }
        call(&world, &["--", "true"]);
        let before = fs::read_to_string(&anchor).unwrap();
        call(&world, &["--", "true"]);
        assert!(fs::read_to_string(&anchor).unwrap().lines().count() > before.lines().count());
        let sound = world.run(&["audit", "verify"]);
        assert_eq!(sound.code, 0, "{sound:?}");
        // With the default, it says what that means.
        let beside = "cannot be found: a rewrite by somebody who can also write the anchor and read the \
                      key, which lie beside the database";
        assert_eq!(sound.text().contains(beside), !elsewhere, "{sound:?}");
        // Whoever can write the home can cut the record, and what is in the home with it.
        cut(&world.home());
        let in_home = world.home().join("anchor.log");
        if !elsewhere {
            fs::write(&in_home, &before).unwrap();
        }
        let verdict = world.run(&["audit", "verify"]);
        assert_eq!(verdict.code, if elsewhere { 120 } else { 0 }, "{verdict:?}");
        assert_eq!(verdict.text().starts_with("broken: "), elsewhere, "{verdict:?}");
        assert_eq!(world.run(&["artifact", "verify"]).code, verdict.code);
    }
}

#[test]
fn a_restored_home_is_compared_with_the_anchor_elsewhere() {
    let Some(world) = World::new() else { return };
    let world = world.on_its_own();
    let other = world.at("other");
    fs::create_dir(&other).unwrap();
    let config = fs::read_to_string(world.home().join("config.toml")).unwrap_or_default();
    let config = format!("{config}\n[record]\nanchor = \"{}\"\n", world.at("kept.log").display());
    fs::write(world.home().join("config.toml"), &config).unwrap();
    fs::write(other.join("config.toml"), &config).unwrap();
    call(&world, &["--", "true"]);
    assert_eq!(world.run(&["backup", "home.tar"]).code, 0);
    // All that the anchor has is in it: checkpoints of the copy are there, and it goes on.
    let now = in_home(&world, &other, &["restore", "home.tar"]);
    assert_eq!(now.code, 0, "{now:?}");
    assert_eq!(in_home(&world, &other, &["audit", "verify"]).code, 0);
    // By then the backup is an old one.
    let third = world.at("third");
    fs::create_dir(&third).unwrap();
    fs::write(third.join("config.toml"), &config).unwrap();
    let late = in_home(&world, &third, &["restore", "home.tar"]);
    is_refused(
        &late,
        120,
        &format!("the anchor `{}` speaks against it", world.at("kept.log").display()),
    );
    assert_eq!(files(&third), ["config.toml"]);
}

#[test]
fn checkpoints_in_the_system_s_log_are_asked_for() {
    let Some(world) = World::new() else { return };
    let world = world.on_its_own();
    call(&world, &["--", "true"]);
    fs::write(
        world.home().join("config.toml"),
        format!(
            "{}\n[record]\nanchor = \"syslog\"\n",
            fs::read_to_string(world.home().join("config.toml")).unwrap_or_default()
        ),
    )
    .unwrap();
    let verdict = world.run(&["audit", "verify"]);
    assert_eq!(verdict.code, 122, "{verdict:?}");
    assert!(
        verdict.text().contains("\nmissing: the system's log: its lines as a file"),
        "{verdict:?}"
    );
    // What was in another place before counts if it is given.
    let anchor = world.home().join("anchor.log");
    assert_eq!(world.run(&["audit", "verify", "--anchor", anchor.to_str().unwrap()]).code, 0);
}

#[test]
fn neither_a_restore_nor_a_verification_waits_for_who_may_write_into_a_fifo() {
    let Some(world) = World::new() else { return };
    call(&world, &["--", "true"]);
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    let fifo = world.at("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let verdict = world.run(&["audit", "verify", "--anchor", "fifo"]);
    assert_eq!(verdict.code, 122, "{verdict:?}");
    let why = "missing: the anchor: it is not a regular file";
    assert!(verdict.text().contains(why), "{verdict:?}");
    let restored = in_home(&world, &world.at("other"), &["restore", "fifo"]);
    is_refused(&restored, 121, "`fifo` cannot be read");
    assert!(restored.errors().contains("it is not a regular file"), "{restored:?}");
}

/// Half of many times that a record takes for one event on the disk.
fn median_append(record: &hotcell_record::Record, times: usize) -> std::time::Duration {
    use hotcell_record::{Draft, Durability, Kind};
    use hotcell_types::{Caller, Door, Name};
    let mut took: Vec<_> = (0..times)
        .map(|_| {
            let begun = std::time::Instant::now();
            let draft = Draft::new(Kind::Note, Caller::local(Name::LOCAL, Door::Library), 1);
            record.append(draft, Durability::Synced).unwrap();
            begun.elapsed()
        })
        .collect();
    took.sort();
    took[times / 2]
}

/// A run that writes and syncs without end is to no disk that the record is on. What it takes of the processors
/// is its share; a stall behind somebody's dirty pages would take hundreds of times as long.
#[test]
fn res_21_a_run_that_writes_and_syncs_does_not_hold_up_the_record() {
    const TIMES: usize = 200;
    const MOST: u32 = 20;
    let Some(world) = World::alone() else { return };
    let home = world.at("record");
    let record = hotcell_record::Record::open(&home, hotcell_record::Options::default()).unwrap();
    median_append(&record, TIMES);
    let before = median_append(&record, TIMES);
    let code = "import os, sys
print('begun', file=sys.stderr, flush=True)
while True:
    file = os.open('dirty', os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    for _ in range(64):
        os.write(file, bytes(1 << 20))
        os.fsync(file)
    os.close(file)";
    let words = ["run", "--disk", "128MiB", "--timeout", "5m", "--lang", "python", "-c", code];
    let mut busy = Started::new(world.command(&words));
    busy.has_said("begun");
    let beside = median_append(&record, TIMES);
    assert!(busy.child.try_wait().unwrap().is_none(), "it writes all the time");
    busy.signal(Signal::TERM);
    busy.finish(LONG);
    let after = median_append(&record, TIMES);
    let idle = before.max(after);
    assert!(beside <= idle * MOST, "{beside:?} beside it, {before:?} and {after:?} alone");
}
