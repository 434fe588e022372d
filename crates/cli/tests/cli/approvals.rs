//! Approvals as people use them, and as an agent with a shell of the same user would like to.

use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::person::{self, PASSPHRASE, at_terminal};
use crate::support::World;

const RULES: &str = "
rules:
  - { name: look, match: { tool: add }, action: require_review, reason: sums are looked at }
  - { name: never, match: { tool: multiply }, action: deny, reason: no }
";
const LONGEST: Duration = Duration::from_secs(60);

struct Home {
    world: World,
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The number that it ended with, and what it printed.
fn said(output: &Output) -> (i32, String, String) {
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

impl Home {
    /// With a key that was made at a terminal, and a policy that names it.
    fn new() -> Home {
        let world = World::new();
        world.user_config("min_level = \"no-proc\"\n");
        let new = world.command(&["approver", "new", "alice"]);
        let typed = [("New passphrase for alice: ", PASSPHRASE), ("The same again: ", PASSPHRASE)];
        let (output, screen) = at_terminal(&new, &typed);
        let (code, line, stderr) = said(&output);
        assert_eq!(code, 0, "{stderr}{screen}");
        assert!(!screen.contains(PASSPHRASE), "{screen}");
        assert_eq!(text(&world.run(&["approver", "show"]).stdout), line);
        person::follow(&world.home(), &[line.trim_end().parse().unwrap()], RULES);
        Home { world: world.served() }
    }

    fn run(&self, words: &[&str]) -> (i32, String, String) {
        said(&self.world.run(words))
    }

    /// A call that waits, and is not waited for.
    fn asked(&self, a: i64) -> String {
        let arguments = format!("{{\"a\": {a}, \"b\": 2}}");
        let words = ["tool", "call", "add", &arguments, "--no-wait", "--json"];
        let (code, stdout, stderr) = self.run(&words);
        assert_eq!((code, stderr.as_str()), (119, ""), "{stdout}");
        let reply: Value = serde_json::from_str(&stdout).unwrap();
        assert_eq!(reply["status"], "review");
        reply["review"].as_str().unwrap().to_owned()
    }

    fn answer(&self, words: &[&str], passphrase: &str) -> (Output, String) {
        at_terminal(&self.world.command(words), &[("Passphrase of alice", passphrase)])
    }

    fn state(&self, item: &str) -> String {
        let (_, stdout, _) = self.run(&["approvals", "show", item, "--json"]);
        let item: Value = serde_json::from_str(&stdout).unwrap();
        item["state"].as_str().unwrap().to_owned()
    }

    fn start(&self, words: &[&str]) -> Child {
        let mut command = self.world.command(words);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// The item that somebody waits for at this moment.
    fn waiting(&self) -> String {
        let deadline = Instant::now() + LONGEST;
        loop {
            let (code, stdout, _) = self.run(&["approvals", "--json"]);
            let list: Value = serde_json::from_str(&stdout).unwrap_or_default();
            if let (0, Some(id)) = (code, list["items"][0]["id"].as_str()) {
                return id.to_owned();
            }
            assert!(Instant::now() < deadline, "{stdout}");
        }
    }
}

#[test]
fn a_call_waits_until_a_person_has_agreed_to_what_was_shown() {
    let home = Home::new();
    let waiting = home.start(&["tool", "call", "add", "{\"a\": 1, \"b\": 2}"]);
    let item = home.waiting();
    let (code, stdout, _) = home.run(&["approvals"]);
    assert_eq!(code, 0);
    assert!(stdout.starts_with("ID ") && stdout.contains(&item), "{stdout}");
    assert!(stdout.contains("sums are looked at"), "{stdout}");
    let (code, page, _) = home.run(&["approvals", "show", &item]);
    assert_eq!(code, 0);
    assert!(page.contains("rule       look: sums are looked at\n"), "{page}");
    assert!(page.contains("  |   \"a\": 1,\n"), "{page}");
    let words = ["approve", &item, "--reason", "small numbers"];
    let (output, screen) = home.answer(&words, PASSPHRASE);
    assert_eq!(said(&output), (0, String::new(), format!("hotcell: item {item} is approved\n")));
    // The person saw the same page, at the terminal itself, and before the prompt.
    assert!(screen.replace("\r\n", "\n").starts_with(&page), "{screen}");
    let (code, stdout, stderr) = said(&waiting.wait_with_output().unwrap());
    assert_eq!((code, stdout.as_str()), (0, "3\n"), "{stderr}");
    assert!(stderr.contains(&format!("hotcell approve {item}")), "{stderr}");
    // The story in order, by name.
    let (_, log, _) = home.run(&["audit", "log"]);
    let places: Vec<usize> =
        ["is waiting", "is approved, by alice", "its approval is used", "outcome"]
            .iter()
            .map(|word| log.find(word).unwrap_or_else(|| panic!("{word}: {log}")))
            .collect();
    assert!(places.is_sorted(), "{log}");
    let (_, shown, _) = home.run(&["runs", "show"]);
    assert!(shown.contains("small numbers") && shown.contains("status      success"), "{shown}");
    let (_, _, logs) = home.run(&["logs"]);
    assert!(logs.contains("is approved, by alice"), "{logs}");
    // Whoever comes back gets the same.
    assert_eq!(home.run(&["approvals", "wait", &item]), (0, "3\n".into(), String::new()));
}

#[test]
fn what_is_rejected_or_taken_back_is_told_to_whoever_waits() {
    let home = Home::new();
    let waiting = home.start(&["tool", "call", "add", "{\"a\": 1, \"b\": 2}", "--json"]);
    let item = home.waiting();
    let (output, _) = home.answer(&["reject", &item, "--reason", "no", "--json"], PASSPHRASE);
    let (code, stdout, _) = said(&output);
    let answered: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((code, answered["answer"]["by"].as_str()), (0, Some("alice")), "{stdout}");
    let (code, stdout, _) = said(&waiting.wait_with_output().unwrap());
    let reply: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((code, reply["status"].as_str()), (119, Some("blocked")), "{stdout}");
    assert!(stdout.contains("`alice` rejected it: no"), "{stdout}");
    let item = home.asked(5);
    assert_eq!(home.run(&["approvals", "cancel", &item]).0, 0);
    let (code, _, stderr) = home.run(&["approvals", "wait", &item]);
    assert_eq!(code, 130, "{stderr}");
    assert!(stderr.contains("it was taken back"), "{stderr}");
    let (_, all, _) = home.run(&["approvals", "ls", "--all"]);
    assert!(all.contains("rejected") && all.contains("cancelled"), "{all}");
    assert!(!home.run(&["approvals", "ls"]).1.contains(&item));
}

#[test]
fn who_stops_waiting_leaves_it_and_is_told_how_to_come_back() {
    let home = Home::new();
    for json in [false, true] {
        let call = ["tool", "call", "add", "{\"a\": 1, \"b\": 2}", "--json"];
        let waiting = home.start(if json { &call } else { &call[..4] });
        // It says so when it begins to wait.
        let item = home.waiting();
        let pid = rustix::process::Pid::from_child(&waiting);
        let deadline = Instant::now() + LONGEST;
        let status = format!("/proc/{}/status", waiting.id());
        // Signals are caught from the moment on at which it waits: SIGINT is number 2.
        let catches = |status: &str| {
            let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:\t")).unwrap();
            u64::from_str_radix(mask.trim(), 16).unwrap() & 0b10 != 0
        };
        while !catches(&std::fs::read_to_string(&status).unwrap()) {
            assert!(Instant::now() < deadline);
        }
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        let (code, stdout, stderr) = said(&waiting.wait_with_output().unwrap());
        assert_eq!(code, 130, "{stderr}");
        assert!(stderr.contains(&format!("hotcell approvals wait {item}")), "{stderr}");
        assert_eq!(stdout.lines().count(), usize::from(json), "{stdout}");
        assert_eq!(home.state(&item), "waiting");
    }
}

#[test]
fn what_a_person_agreed_to_is_learned_and_what_they_rejected_is_not() {
    let home = Home::new();
    let learned = || {
        let (code, text, stderr) = home.run(&["policy", "learn"]);
        assert_eq!(code, 0, "{stderr}");
        text
    };
    let (good, bad) = (home.asked(1), home.asked(2));
    let (output, screen) = home.answer(&["reject", &bad], PASSPHRASE);
    assert_eq!(output.status.code(), Some(0), "{screen}");
    let none = "# Learned from 0 calls that were refused, or approved. Read it before you use it.\nrules: []\n";
    assert_eq!(learned(), none);
    let (output, screen) = home.answer(&["approve", &good], PASSPHRASE);
    assert_eq!(output.status.code(), Some(0), "{screen}");
    let text = learned();
    let one =
        "# Learned from 1 call that was refused, or approved. Read it before you use it.\nrules:\n";
    assert!(text.starts_with(one), "{text}");
    let (_, document, _) = home.run(&["policy", "learn", "--json"]);
    let document: Value = serde_json::from_str(&document).unwrap();
    assert_eq!(document["calls"], 1, "{document}");
    // A policy that can be used, for this and nothing else.
    home.world.file("learned.yaml", text.as_bytes());
    let tests = "tests:
  - { call: add, args: { a: 1, b: 2 }, expect: allow }
  - { call: multiply, args: { a: 1, b: 2 }, expect: deny }
";
    home.world.file("tests.yaml", tests.as_bytes());
    let (code, _, stderr) = home.run(&["policy", "test", "learned.yaml", "tests.yaml"]);
    assert_eq!(code, 0, "{text}{stderr}");
    assert_eq!(home.state(&good), "approved", "and nothing is permitted by it");
}

#[test]
fn those_that_come_are_told_to_whoever_watches() {
    use std::io::{BufRead, BufReader};
    let home = Home::new();
    let first = home.asked(1);
    let mut watching = home.start(&["approvals", "--watch", "--json"]);
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    let mut next = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    assert_eq!(next()["id"], first);
    let second = home.asked(2);
    assert_eq!(next()["id"], second);
    let pid = rustix::process::Pid::from_child(&watching);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(watching.wait().unwrap().code(), Some(130));
}

#[test]
fn tok_12_nobody_answers_without_the_passphrase_typed_at_a_terminal() {
    let home = Home::new();
    let item = home.asked(1);
    let events = || home.run(&["audit", "log"]).1.lines().count();
    let before = events();
    // A wrong passphrase.
    let (output, screen) = home.answer(&["approve", &item], "wrong horse");
    let (code, _, stderr) = said(&output);
    assert_eq!(code, 119, "{stderr}");
    assert!(stderr.contains("the passphrase is not the one of this key"), "{stderr}{screen}");
    // No terminal: what is piped in is no passphrase, and neither is a variable or an argument.
    for verb in ["approve", "reject"] {
        let mut command = Command::new("setsid");
        let hotcell = home.world.command(&[verb, &item]);
        command.arg("--wait").arg(hotcell.get_program()).args(hotcell.get_args()).env_clear();
        for (key, value) in hotcell.get_envs() {
            command.env(key, value.unwrap());
        }
        command.env("HOTCELL_PASSPHRASE", PASSPHRASE).stdin(Stdio::piped());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), PASSPHRASE.as_bytes()).ok();
        let (code, _, stderr) = said(&child.wait_with_output().unwrap());
        assert_eq!(code, 119, "{stderr}");
        assert!(stderr.contains("there is no terminal to ask at"), "{stderr}");
    }
    // Below something that is called as hotcell is when it serves a model, at a terminal of its own.
    let serving = home.world.at("hotcell");
    std::fs::copy("/bin/sh", &serving).unwrap();
    let hotcell = home.world.command(&["approve", &item]);
    let mut below = Command::new(&serving);
    below
        .args(["-c", "\"$@\"; exit $?", "mcp"])
        .arg(hotcell.get_program())
        .args(hotcell.get_args());
    below.current_dir(home.world.at("")).env_clear();
    below.envs(hotcell.get_envs().filter_map(|(key, value)| Some((key, value?))));
    let (output, screen) = at_terminal(&below, &[]);
    let (code, _, stderr) = said(&output);
    assert_eq!(code, 119, "{stderr}{screen}");
    assert!(stderr.contains("started for a model, by `hotcell mcp`"), "{stderr}");
    // It changes nothing, and each try is recorded: by passphrase, twice without a terminal, below a model.
    assert_eq!((home.state(&item).as_str(), events()), ("waiting", before + 4));
    let log = home.run(&["audit", "log", "--json"]).1;
    assert_eq!(log.matches(&format!("an answer to item {item} was refused")).count(), 4, "{log}");
}

/// An agent with a shell of the same user, and everything that such a shell can do to the files.
#[test]
fn pol_17_a_shell_of_the_same_user_cannot_answer_by_writing_to_the_home() {
    let home = Home::new();
    let (approved, other) = (home.asked(1), home.asked(2));
    let (output, screen) = home.answer(&["approve", &approved, "--for", "10m"], PASSPHRASE);
    assert_eq!(output.status.code(), Some(0), "{screen}");
    let database = || rusqlite::Connection::open(home.world.home().join("hotcell.db")).unwrap();
    // The answer to one item, in the row of another.
    let copied = database().execute_batch(
        "UPDATE review SET (state, verdict, approver, approver_name, reason, answered, grant_expires, signature)
         = (SELECT state, verdict, approver, approver_name, reason, answered, grant_expires, signature
            FROM review WHERE state = 'approved') WHERE state = 'waiting'",
    );
    copied.unwrap();
    assert_eq!(home.state(&other), "approved");
    let (code, stdout, stderr) = home.run(&["approvals", "wait", &other]);
    assert_eq!((code, stdout.as_str()), (119, ""), "{stderr}");
    assert!(stderr.contains("the approval does not count"), "{stderr}");
    // A row that says so, and has no signature at all.
    let third = home.asked(3);
    database().execute_batch("UPDATE review SET state = 'approved' WHERE state = 'waiting'").ok();
    let (code, stdout, stderr) = home.run(&["approvals", "wait", &third]);
    assert_eq!((code, stdout.as_str()), (119, ""), "{stderr}");
    // What was really approved is worth one use.
    let call = ["tool", "call", "add", "{\"a\": 1, \"b\": 2}", "--no-wait"];
    assert_eq!(home.run(&call).1, "3\n");
    assert_eq!(home.run(&call).0, 119);
    let (_, log, _) = home.run(&["audit", "log"]);
    assert_eq!(log.matches("  intent ").count(), 1, "{log}");
}

#[test]
fn a_person_is_asked_where_no_rule_speaks_and_never_where_one_denies() {
    let home = Home::new();
    for (tool, ask, expected) in [
        ("fs.write", false, "blocked"),
        ("multiply", false, "blocked"),
        ("multiply", true, "blocked"),
    ] {
        let arguments = match tool {
            "fs.write" => "{\"path\": \"a\", \"text\": \"b\"}",
            _ => "{\"a\": 1, \"b\": 2}",
        };
        let mut words = vec!["tool", "call", tool, arguments, "--no-wait", "--json"];
        words.extend(ask.then_some("--ask"));
        let (code, stdout, _) = home.run(&words);
        let reply: Value = serde_json::from_str(&stdout).unwrap();
        assert_eq!((code, reply["status"].as_str()), (119, Some(expected)), "{stdout}");
    }
    let words = ["tool", "call", "fs.write", "{\"path\": \"a\", \"text\": \"b\\n\"}", "--no-wait"];
    let workspace = home.world.at("");
    let more = ["--ask", "--json", "--workspace", workspace.to_str().unwrap()];
    let (code, stdout, _) = home.run(&[&words[..], &more].concat());
    let reply: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((code, reply["status"].as_str()), (119, Some("review")), "{stdout}");
    let item = reply["review"].as_str().unwrap();
    let words = ["approvals", "show", item, "--workspace", workspace.to_str().unwrap()];
    let (_, page, _) = home.run(&words);
    assert!(page.contains("no rule allows it") && page.contains("  | +b\n"), "{page}");
}

#[test]
fn what_is_not_there_is_told() {
    let home = Home::new();
    for (words, code, word) in [
        (&["approvals", "show", "00000000"][..], 127, "there is no item 00000000"),
        (&["approvals", "wait", "00000000"], 127, "there is no item 00000000"),
        (&["approvals", "cancel", "00000000"], 127, "there is no item 00000000"),
        (&["approvals", "show", "nothing"], 121, "does not suit"),
    ] {
        let (was, _, stderr) = home.run(words);
        assert_eq!(was, code, "{words:?}: {stderr}");
        assert!(stderr.contains(word), "{words:?}: {stderr}");
    }
    let new = home.world.command(&["approver", "new", "bob"]);
    let (output, _) = at_terminal(&new, &[]);
    assert_eq!(output.status.code(), Some(121));
}
