//! `hotcell batch`: every job has one result, and none is run twice, whenever and however it ends.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::person::Pty;
use crate::support::{LONG, Ran, Started, World, line, until};
use crate::traces::Traces;

/// Longer than a batch of tests takes on a busy machine.
const LONGER: Duration = Duration::from_secs(180);

fn shell(id: &str, code: &str) -> Value {
    json!({"id": id, "run": {"language": "shell", "code": code}})
}

/// A job on each line.
fn jsonl(jobs: impl IntoIterator<Item = Value>) -> Vec<u8> {
    jobs.into_iter().map(|job| format!("{job}\n")).collect::<String>().into_bytes()
}

/// The results, by what they are known by.
fn results(text: &[u8]) -> Vec<Value> {
    text.split_inclusive(|&byte| byte == b'\n')
        .map(|line| {
            assert!(line.ends_with(b"\n"), "{:?}", String::from_utf8_lossy(line));
            serde_json::from_slice(line).unwrap()
        })
        .collect()
}

fn by_id(results: &[Value]) -> BTreeMap<String, &Value> {
    let all: BTreeMap<_, _> = results.iter().map(|one| (one["id"].to_string(), one)).collect();
    assert_eq!(all.len(), results.len(), "a job has two results");
    all
}

fn status(result: &Value) -> &str {
    result["result"]["status"].as_str().unwrap()
}

fn batch(world: &World, words: &[&str]) -> Ran {
    let command = world.command(&[&["batch"], words].concat());
    Started::new(command).finish(LONGER)
}

/// Calls of `run` in the record.
fn calls(world: &World) -> Vec<String> {
    // Nothing is recorded before the first.
    if !world.home().join("hotcell.db").exists() {
        return Vec::new();
    }
    let listed = world.run(&["runs", "--json", "--limit", "10000"]);
    assert_eq!(listed.code, 0, "{listed:?}");
    let calls = results(&listed.stdout).into_iter().filter(|run| run["tool"] == "run@1.0.0");
    calls.map(|run| run["call"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn every_line_has_a_result_and_what_is_wrong_with_one_stops_no_other() {
    let Some(world) = World::new() else { return };
    let mut lines = jsonl([
        json!({"id": "good", "run": {"language": "python", "code": "print(6 * 7)"}}),
        json!({"id": "bad", "run": {"language": "shell", "code": "echo no >&2; exit 3"}}),
        json!({"id": "late", "run": {"command": ["sleep", "60"], "limits": {"timeout": "300ms"}}}),
        json!({"run": {"command": ["cat"], "stdin": "given"}}),
        json!({"run": {"command": ["cat", "a.txt"], "files": [{"name": "a.txt", "text": "file"}]}}),
        json!({"run": {"command": ["no-such-command"]}}),
        json!({"id": "good", "run": {"command": ["true"]}}),
        json!({"run": {"command": ["true"], "uid": 0}}),
    ]);
    lines.extend_from_slice(b"nonsense\n[]\n{\"run\": 1, \"run\": 2}\n\n\xff\n");
    lines.extend_from_slice(&vec![b'x'; (8 << 20) + 1]);
    lines.extend_from_slice(b"\n{\"run\": {\"command\": [\"true\"]}}");
    world.file("jobs.jsonl", &lines);
    let ran = batch(&world, &["jobs.jsonl", "--in-order"]);
    let all = results(&ran.stdout);
    let told: Vec<_> = all.iter().map(|one| (one["line"].as_u64().unwrap(), status(one))).collect();
    let invalid = |line| (line, "invalid");
    let expected = [
        (1, "success"),
        (2, "failure"),
        (3, "timeout"),
        (4, "success"),
        (5, "success"),
        invalid(6),
        invalid(7),
        invalid(8),
        invalid(9),
        invalid(10),
        invalid(11),
        // The twelfth is blank.
        invalid(13),
        invalid(14),
        (15, "success"),
    ];
    assert_eq!(told, expected);
    let summary = "hotcell: 14 results: 4 success, 1 failure, 1 timeout, 8 invalid\n";
    assert_eq!((ran.code, &*ran.errors()), (1, summary));
    let ids: Vec<_> = all.iter().map(|one| one["id"].clone()).collect();
    assert_eq!(ids[..4], [json!("good"), json!("bad"), json!("late"), json!(4)]);
    assert_eq!((&ids[6], &ids[8]), (&json!(7), &json!(9)), "whose id is taken has a number");
    let stdout = |at: usize| all[at]["result"]["value"]["stdout"].clone();
    assert_eq!((stdout(0), stdout(3), stdout(4)), (json!("42\n"), json!("given"), json!("file")));
    for one in all.iter().filter(|one| status(one) == "invalid") {
        let problem = &one["result"]["problems"][0];
        assert!(problem["what"].is_string() && problem["fix"].is_string(), "{one}");
    }
    assert_eq!(all[12]["result"]["problems"][0]["what"], "the line is too long");
    assert_eq!(world.run(&["batch", "/dev/null"]).code, 0);
}

#[test]
fn only_successes_are_a_success() {
    let Some(world) = World::new() else { return };
    world.file("jobs.jsonl", &jsonl((0..20).map(|n| shell(&n.to_string(), &format!("echo {n}")))));
    let ran = batch(&world, &["jobs.jsonl", "--jobs", "4"]);
    assert_eq!((ran.code, &*ran.errors()), (0, "hotcell: 20 results: 20 success\n"));
    for (id, result) in by_id(&results(&ran.stdout)) {
        let printed = result["result"]["value"]["stdout"].as_str().unwrap();
        assert_eq!(format!("\"{}\"", printed.trim()), id);
    }
    for (words, why) in [
        (&["missing.jsonl"][..], "there is no file `missing.jsonl`"),
        (&["."], "`.` cannot be read"),
        (&["jobs.jsonl", "--jobs", "0"], "`0` does not suit"),
        (&["jobs.jsonl", "--jobs", "129"], "`129` does not suit"),
        (&["jobs.jsonl", "--output", "."], "the results cannot be written to `.`"),
        (&["jobs.jsonl", "--output", "jobs.jsonl"], "line 1 of it is not the result of a job"),
    ] {
        let ran = batch(&world, words);
        assert_eq!(ran.code, if words[0] == "missing.jsonl" { 127 } else { 121 }, "{ran:?}");
        assert!(ran.stdout.is_empty() && ran.errors().contains(why), "{ran:?}");
    }
    assert_eq!(fs::read(world.at("jobs.jsonl")).unwrap().split(|b| *b == b'\n').count(), 21);
}

#[test]
fn a_stream_is_begun_before_its_end_is_seen() {
    let Some(world) = World::new() else { return };
    let mut command = world.command(&["batch", "-", "--jobs", "2"]);
    let (mut started, mut stdout) = Started::with_stdout({
        command.stdin(Stdio::piped());
        command
    });
    let mut stdin = started.child.stdin.take().unwrap();
    for n in 0..5 {
        stdin.write_all(&jsonl([shell(&n.to_string(), "true")])).unwrap();
        let result: Value = serde_json::from_str(&line(&mut stdout)).unwrap();
        assert_eq!(result["id"], json!(n.to_string()));
    }
    drop(stdin);
    assert_eq!(started.finish(LONG).code, 0);
}

/// However many lines there are, only so many are read as can be begun.
#[test]
fn who_is_slow_to_take_results_holds_up_the_jobs() {
    let Some(world) = World::new() else { return };
    let mut command = world.command(&["batch", "-", "--jobs", "2"]);
    let (mut started, mut stdout) = Started::with_stdout({
        command.stdin(Stdio::piped());
        command
    });
    let mut stdin = started.child.stdin.take().unwrap();
    // Each result has more than a pipe holds.
    let code = "head -c 200000 /dev/zero | tr '\\0' x";
    let job = json!({"run": {"language": "shell", "code": code}, "manner": {}});
    let feeder = thread::spawn(move || {
        for _ in 0..40 {
            stdin.write_all(&jsonl([job.clone()])).unwrap();
        }
    });
    // As many as there is room for, and no more.
    let most = 2 * (1 + 4) + 1;
    until(LONG, || (calls(&world).len() >= most - 2).then_some(())).unwrap();
    thread::sleep(Duration::from_millis(500));
    assert!(calls(&world).len() <= most, "{}", calls(&world).len());
    let mut text = Vec::new();
    stdout.read_to_end(&mut text).unwrap();
    feeder.join().unwrap();
    assert_eq!(results(&text).len(), 40);
    assert_eq!(started.finish(LONG).code, 0);
}

/// The results in the file, and whether every call in the record is that of one of them.
fn each_once(world: &World, count: usize) -> BTreeMap<String, String> {
    let all = results(&fs::read(world.at("out.jsonl")).unwrap());
    let all = by_id(&all);
    assert_eq!(all.len(), count);
    let mut told: Vec<_> =
        all.values().map(|one| one["result"]["id"].as_str().unwrap().to_owned()).collect();
    let mut made = calls(world);
    told.sort_unstable();
    made.sort_unstable();
    assert_eq!(told, made, "a job was run twice, or not at all");
    all.into_iter().map(|(id, one)| (id, status(one).to_owned())).collect()
}

#[test]
fn a_batch_that_was_killed_goes_on_and_no_job_is_run_twice() {
    let Some(world) = World::new() else { return };
    let count = 150;
    let jobs = (0..count).map(|n| shell(&format!("j{n}"), &format!("sleep 0.03; echo {n}")));
    world.file("jobs.jsonl", &jsonl(jobs));
    let words = ["batch", "jobs.jsonl", "--output", "out.jsonl", "--jobs", "3"];
    let mut kills = 0;
    // Numbers that look like chance, and are the same each time.
    let mut chance = 12345_u64;
    let last = loop {
        chance =
            chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mut started = Started::new(world.command(&words));
        // All of it takes a second and a half at least, however fast the machine is.
        let moment = Duration::from_millis(20 + (chance >> 33) % 300);
        let ended = until(moment, || started.child.try_wait().unwrap());
        if ended.is_some() || kills == 12 {
            break started.finish(LONGER);
        }
        kills += 1;
        let traces = Traces::below(started.pid());
        started.child.kill().unwrap();
        started.finish(LONG);
        traces.are_gone();
        // As if it had been in the middle of a line.
        if kills % 3 == 0 && world.at("out.jsonl").exists() {
            let mut out = fs::OpenOptions::new().append(true).open(world.at("out.jsonl")).unwrap();
            out.write_all(b"{\"id\":\"j0\",\"line\":1,\"jo").unwrap();
        }
    };
    assert!(kills >= 3, "only {kills}");
    let statuses = each_once(&world, count);
    // What was going on when it was killed was ended, or nobody knows.
    let open = statuses.values().filter(|status| *status != "success").count();
    assert!(open <= 3 * kills, "{statuses:?}");
    for status in statuses.values() {
        assert!(["success", "unknown", "cancelled"].contains(&&**status), "{statuses:?}");
    }
    assert_eq!(last.code, i32::from(open > 0), "{last:?}");
    assert!(!world.at("out.jsonl.batch").exists(), "it is complete");
    // Once more changes nothing.
    let before = fs::read(world.at("out.jsonl")).unwrap();
    let again = Started::new(world.command(&words)).finish(LONG);
    assert_eq!(again.code, last.code);
    assert!(again.errors().contains(&format!("({count} were there already)")), "{again:?}");
    assert_eq!(fs::read(world.at("out.jsonl")).unwrap(), before);
}

/// The job was done, and its line did not reach the file: the reply is that of then.
#[test]
fn a_result_that_was_lost_on_the_way_comes_from_the_record() {
    let Some(world) = World::new() else { return };
    world.file("jobs.jsonl", &jsonl((0..6).map(|n| shell(&n.to_string(), &format!("echo {n}")))));
    let words = ["jobs.jsonl", "--output", "out.jsonl", "--in-order", "--jobs", "1"];
    // The name of the batch, as it is while it is not complete.
    world.file("out.jsonl", b"");
    world.file("out.jsonl.batch", b"01M7H273SCYEAF25DWQ59F196X\n");
    assert_eq!(batch(&world, &words).code, 0);
    let first = results(&fs::read(world.at("out.jsonl")).unwrap());
    let kept: String = first[..2].iter().map(|one| format!("{one}\n")).collect();
    world.file("out.jsonl", kept.as_bytes());
    world.file("out.jsonl.batch", b"01M7H273SCYEAF25DWQ59F196X\n");
    let again = batch(&world, &words);
    assert_eq!((again.code, again.errors().contains("(2 were there already)")), (0, true));
    each_once(&world, 6);
    let second = results(&fs::read(world.at("out.jsonl")).unwrap());
    for (one, other) in first.iter().zip(&second) {
        for field in ["id", "line", "job"] {
            assert_eq!(one[field], other[field]);
        }
        for field in ["id", "status", "value", "rules"] {
            assert_eq!(one["result"][field], other["result"][field]);
        }
    }
    // Results that somebody removed are those of a batch that begins anew.
    fs::remove_file(world.at("out.jsonl")).unwrap();
    world.file("out.jsonl.batch", b"01M7H273SCYEAF25DWQ59F196X\n");
    assert_eq!(batch(&world, &words).code, 0);
    assert_eq!(calls(&world).len(), 12);
}

#[test]
fn results_are_not_mixed_with_those_of_other_jobs() {
    let Some(world) = World::new() else { return };
    world.file("jobs.jsonl", &jsonl([shell("a", "true"), shell("b", "true")]));
    let words = ["jobs.jsonl", "--output", "out.jsonl"];
    assert_eq!(batch(&world, &words).code, 0);
    let before = fs::read(world.at("out.jsonl")).unwrap();
    world.file("jobs.jsonl", &jsonl([shell("a", "echo other")]));
    let other = batch(&world, &words);
    assert_eq!(other.code, 121, "{other:?}");
    assert!(other.errors().contains("the results are those of other jobs"), "{other:?}");
    assert_eq!(fs::read(world.at("out.jsonl")).unwrap(), before);
    // More jobs are no other jobs.
    world.file("jobs.jsonl", &jsonl([shell("a", "true"), shell("b", "true"), shell("c", "true")]));
    let more = batch(&world, &words);
    assert_eq!(
        (more.code, more.errors().contains("(2 were there already)")),
        (0, true),
        "{more:?}"
    );
    // Two at one time would write over each other.
    let held = fs::OpenOptions::new().append(true).open(world.at("out.jsonl")).unwrap();
    held.lock().unwrap();
    let locked = batch(&world, &words);
    assert_eq!(locked.code, 121);
    assert!(locked.errors().contains("another hotcell batch writes to it"), "{locked:?}");
}

#[test]
fn ctrl_c_ends_what_runs_and_records_it_and_the_rest_is_done_later() {
    let Some(world) = World::new() else { return };
    let jobs = (0..6).map(|n| shell(&n.to_string(), if n < 2 { "true" } else { "sleep 1000" }));
    world.file("jobs.jsonl", &jsonl(jobs));
    let words = ["batch", "jobs.jsonl", "--output", "out.jsonl", "--jobs", "2", "--in-order"];
    let started = Started::new(world.command(&words));
    let both = || (calls(&world).len() == 4).then_some(());
    until(LONG, both).unwrap();
    let traces = Traces::below(started.pid());
    let asked = Instant::now();
    started.signal(Signal::INT);
    let ran = started.finish(LONG);
    assert_eq!(ran.code, 130, "{ran:?}");
    assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
    let summary = "hotcell: 4 results: 2 success, 2 cancelled; the rest was not begun\n";
    assert_eq!(ran.errors(), summary);
    traces.are_gone();
    each_once(&world, 4);
    assert!(world.at("out.jsonl.batch").exists(), "it is not complete");
}

#[test]
fn a_signal_while_nothing_comes_ends_it() {
    let Some(world) = World::new() else { return };
    let mut command = world.command(&["batch", "-"]);
    command.stdin(Stdio::piped());
    let (mut started, mut stdout) = Started::with_stdout(command);
    let mut stdin = started.child.stdin.take().unwrap();
    stdin.write_all(&jsonl([shell("a", "true")])).unwrap();
    stdin.write_all(b"{\"run\": {\"command\": [\"tou").unwrap();
    line(&mut stdout);
    started.signal(Signal::TERM);
    let ran = started.finish(LONG);
    assert_eq!((ran.code, calls(&world).len()), (143, 1), "{ran:?}");
    drop(stdin);
}

#[test]
fn who_leaves_ends_the_batch() {
    let Some(world) = World::new() else { return };
    let jobs = (0..2000).map(|n| shell(&n.to_string(), "true"));
    world.file("jobs.jsonl", &jsonl(jobs));
    let (started, mut stdout) = Started::with_stdout(world.command(&["batch", "jobs.jsonl"]));
    line(&mut stdout);
    drop(stdout);
    assert_eq!(started.finish(LONG).code, 141);
    assert!(calls(&world).len() < 1000);
}

/// More jobs at one time than the machine has room for wait; they do not fail because others take long.
#[test]
fn jobs_wait_for_room_longer_than_they_may_take() {
    let Some(world) = World::new() else { return };
    let late = json!({"run": {"command": ["sleep", "9"], "limits": {"timeout": "200ms"}}});
    world.file("jobs.jsonl", &jsonl(vec![late; 24]));
    let ran = batch(&world, &["jobs.jsonl", "--jobs", "24"]);
    assert_eq!(ran.errors(), "hotcell: 24 results: 24 timeout\n");
    assert_eq!(ran.code, 1);
}

#[test]
fn a_second_signal_does_not_wait() {
    let Some(world) = World::new().map(World::on_its_own) else { return };
    world.file("jobs.jsonl", &jsonl([shell("a", "sleep 1000")]));
    let started = Started::new(world.command(&["batch", "jobs.jsonl"]));
    until(LONG, || (calls(&world).len() == 1).then_some(())).unwrap();
    // Nobody can write what became of it, so that the first one waits.
    let others = rusqlite::Connection::open(world.home().join("hotcell.db")).unwrap();
    others.execute_batch("BEGIN IMMEDIATE").unwrap();
    let traces = Traces::below(started.pid());
    started.signal(Signal::INT);
    thread::sleep(Duration::from_millis(300));
    started.signal(Signal::INT);
    assert_eq!(started.finish(Duration::from_secs(3)).code, 130);
    traces.are_gone();
}

/// Whoever serves the home is killed in the middle: the same command goes on by itself.
#[test]
fn a_batch_outlives_the_hotcell_that_carries_it_out() {
    let Some(world) = World::new().map(World::on_its_own) else { return };
    let count = 60;
    let jobs = (0..count).map(|n| shell(&n.to_string(), "sleep 0.05"));
    world.file("jobs.jsonl", &jsonl(jobs));
    let (mut resident, mut stdout) =
        Started::with_stdout(world.command(&["resident", "serve", "--idle", "10m"]));
    assert_eq!(line(&mut stdout), "ready");
    let words = ["batch", "jobs.jsonl", "--output", "out.jsonl", "--jobs", "2"];
    let started = Started::new(world.command(&words));
    let some = || (fs::read(world.at("out.jsonl")).ok()?.len() > 20_000).then_some(());
    until(LONG, some).unwrap();
    resident.child.kill().unwrap();
    resident.finish(LONG);
    let ended = started.finish(LONG);
    assert_eq!(ended.code, 120, "{ended:?}");
    assert!(ended.errors().contains("the hotcell that serves this home"), "{ended:?}");
    let done = results(&fs::read(world.at("out.jsonl")).unwrap()).len();
    assert!((5..count).contains(&done), "{done}");
    let last = Started::new(world.command(&words)).finish(LONGER);
    let statuses = each_once(&world, count);
    let unknown = statuses.values().filter(|status| *status == "unknown").count();
    let success = statuses.values().filter(|status| *status == "success").count();
    assert!(unknown <= 2 && success == count - unknown, "{statuses:?}");
    assert_eq!(last.code, i32::from(unknown > 0), "{last:?}");
}

#[test]
fn a_person_at_a_terminal_sees_how_far_it_is() {
    let Some(world) = World::new() else { return };
    world.file("jobs.jsonl", &jsonl((0..30).map(|n| shell(&n.to_string(), "sleep 0.05"))));
    let script = "exec \"$0\" batch jobs.jsonl --output out.jsonl 2> /dev/tty";
    let mut command = world.shell(script);
    command.env("TERM", "xterm");
    let (mut pty, mut child) = Pty::start(&command);
    pty.wait_for("/30 ");
    pty.wait_for("hotcell: 30 results: 30 success");
    assert!(child.wait().unwrap().success());
    // Nowhere else.
    let ran = batch(&world, &["jobs.jsonl"]);
    assert_eq!(ran.errors(), "hotcell: 30 results: 30 success\n");
}
