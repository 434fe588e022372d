//! Approvals as people use them, and as an agent with a shell of the same user would like to.

use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use hotcell_approver::{Approver, SignedPolicy};
use hotcell_record::{Options, Record};
use hotcell_review::versions::{self, Rules};
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

/// An agent with a shell of the same user. Each try is a script; what it was told, and what the record tells.
struct Agent<'a> {
    home: &'a Home,
    /// The last event that was looked at.
    seen: u64,
}

impl Agent<'_> {
    /// What was recorded since it was asked last.
    fn news(&mut self) -> Vec<Value> {
        let after = self.seen.to_string();
        let (_, log, _) = self.home.run(&["audit", "log", "--json", "--after", &after]);
        let events: Vec<Value> =
            log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        self.seen = events.last().map_or(self.seen, |event| event["seq"].as_u64().unwrap());
        events
    }

    /// Runs a script in a session of its own, with hotcell as `$0`.
    fn shell(&self, script: &str) -> (i32, String, String) {
        let hotcell = self.home.world.command::<&str>(&[]);
        let mut shell = Command::new("setsid");
        shell.args(["--wait", "sh", "-c", script]).arg(hotcell.get_program());
        shell.current_dir(self.home.world.at("")).env_clear().stdin(Stdio::null());
        shell.envs(hotcell.get_envs().filter_map(|(key, value)| Some((key, value?))));
        said(&shell.output().unwrap())
    }

    /// It fails as it has to, nothing is carried out, and one event tells why.
    #[track_caller]
    fn tries(&mut self, script: &str, code: i32, told: &str, (kind, reason): (&str, &str)) {
        self.news();
        let (was, stdout, stderr) = self.shell(script);
        assert_eq!((was, stdout.as_str()), (code, ""), "{script}: {stderr}");
        assert!(stderr.contains(told), "{script}: {stderr}");
        let news = self.news();
        let is_it = |event: &&Value| {
            event["kind"] == kind && event["reason"].as_str().is_some_and(|is| is.contains(reason))
        };
        assert_eq!(news.iter().filter(is_it).count(), 1, "{script}: {news:?}");
        let is_done = |event: &Value| {
            ["intent", "outcome", "called", "policy_changed"]
                .contains(&event["kind"].as_str().unwrap())
                || event["decision"] == "allow"
        };
        assert!(!news.iter().any(is_done), "{script}: {news:?}");
    }
}

/// Approve itself, edit the policy, replay a grant, change one byte of an approved call, use it twice, use it
/// after a change of the policy.
#[test]
fn tok_12_pol_17_pol_18_an_agent_with_a_shell_gets_nothing_done_and_every_try_is_in_the_record() {
    let home = Home::new();
    let database = || rusqlite::Connection::open(home.world.home().join("hotcell.db")).unwrap();
    let add = |a: i64| format!("\"$0\" tool call add '{{\"a\": {a}, \"b\": 2}}' --no-wait");
    let approved = |a: i64| {
        let item = home.asked(a);
        let (output, screen) = home.answer(&["approve", &item], PASSPHRASE);
        assert_eq!(output.status.code(), Some(0), "{screen}");
        item
    };
    let mut agent = Agent { home: &home, seen: 0 };

    // It approves itself: without a terminal, and with an answer that it has made up.
    let item = home.asked(1);
    let refused = format!("an answer to item {item} was refused");
    for verb in ["approve", "reject"] {
        let script = format!("echo '{PASSPHRASE}' | \"$0\" {verb} {item}");
        agent.tries(&script, 119, "there is no terminal to ask at", ("review", &refused));
    }
    let forged = "UPDATE review SET state = 'approved', verdict = 'approve', approver = 'AAAA-AAAA-AAAA-AAAA',
        approver_name = 'alice', reason = '', answered = asked + 1, grant_expires = expires,
        signature = zeroblob(64) WHERE state = 'waiting'";
    database().execute_batch(forged).unwrap();
    let wait = format!("\"$0\" approvals wait {item}");
    agent.tries(&wait, 119, "", ("denied", "the approval does not count"));

    // It edits the policy, replaces it, takes it away, signs one itself, and has a tool write it.
    let changed = "`policy.yaml` is not the policy that holds";
    let edit = |how: &str, then: &str| {
        format!("cd \"$HOTCELL_HOME\" && cp policy.yaml aside && {how} && cd - > /dev/null; {then}")
    };
    let by_hand = "sed -i s/require_review/allow/ policy.yaml";
    agent.tries(&edit(by_hand, &add(3)), 120, changed, ("denied", changed));
    agent.tries("\"$0\" run -- true", 120, changed, ("denied", changed));
    agent.tries("\"$0\" token mint add --uses 9", 120, changed, ("denied", changed));
    agent.tries(&wait, 120, changed, ("denied", changed));
    let put_back = "cd \"$HOTCELL_HOME\" && cp aside policy.yaml";
    assert_eq!(agent.shell(put_back).0, 0);
    let gone = "`policy.yaml` is gone";
    agent.tries(&edit("rm policy.yaml", &add(3)), 120, gone, ("denied", gone));
    assert_eq!(agent.shell(put_back).0, 0);
    let mallory = Approver::make("mallory".parse().unwrap()).unwrap();
    let rules = format!("approvers:\n  - {}\nrules: []\n", mallory.public());
    let of_mallory = Rules { text: rules.clone(), ..Rules::default() };
    let statement = versions::statement(&of_mallory, home_id(&home), 1, 1);
    let signature = SignedPolicy::sign(&mallory, statement).to_string();
    home.world.file("mine.yaml", rules.as_bytes());
    home.world.file("mine.sig", format!("{signature}\n").as_bytes());
    agent.tries(
        "\"$0\" policy update mine.yaml --signature mine.sig",
        119,
        "no approver of this home",
        ("denied", "this does not become the policy"),
    );
    let write = "\"$0\" tool call --workspace . fs.write '{\"path\": \"policy.yaml\", \"text\": \"rules: []\"}'";
    let only = "the policy is changed by `policy.update` only";
    agent.tries(write, 119, only, ("denied", only));

    // It replays a grant: the answer to one item in the row of another.
    let (good, other) = (approved(4), home.asked(5));
    let copied = "UPDATE review SET (state, verdict, approver, approver_name, reason, answered, grant_expires,
            signature) = (SELECT state, verdict, approver, approver_name, reason, answered, grant_expires, signature
            FROM review WHERE state = 'approved' AND signature <> zeroblob(64)) WHERE state = 'waiting'";
    database().execute_batch(copied).unwrap();
    let wait = format!("\"$0\" approvals wait {other}");
    agent.tries(&wait, 119, "", ("denied", "the approval does not count"));
    assert_eq!(home.run(&["approvals", "cancel", &other]).0, 0);

    // It changes one byte of what was approved: in a call of its own, and where the call is kept.
    agent.tries(&add(40), 119, "waits for somebody to agree", ("review", "is waiting"));
    let byte = |from: &str, to: &str| {
        let change = "UPDATE review SET call = CAST(replace(CAST(call AS TEXT), ?1, ?2) AS BLOB)
            WHERE state = 'approved' AND instr(CAST(call AS TEXT), ?1)";
        assert_eq!(database().execute(change, [from, to]).unwrap(), 1);
    };
    byte("\"a\":4,", "\"a\":6,");
    let wait = format!("\"$0\" approvals wait {good}");
    let not_shown = format!("item {good} cannot be shown as what it is");
    agent.tries(&wait, 119, &not_shown, ("denied", &not_shown));
    byte("\"a\":6,", "\"a\":4,");

    // What was approved is worth one use, and not a second one.
    assert_eq!(agent.shell(&add(4)).1, "6\n");
    agent.tries(&add(4), 119, "waits for somebody to agree", ("review", "is waiting"));

    // It waits with another one until the policy has changed.
    let late = approved(7);
    let old = std::fs::read_to_string(home.world.home().join("policy.yaml")).unwrap();
    home.world.file("new.yaml", format!("# The next one.\n{old}").as_bytes());
    let (output, screen) = home.answer(&["policy", "update", "new.yaml"], PASSPHRASE);
    assert_eq!(output.status.code(), Some(0), "{screen}{}", text(&output.stderr));
    let wait = format!("\"$0\" approvals wait {late}");
    agent.tries(
        &wait,
        119,
        "the approval does not count",
        ("denied", "the approval does not count"),
    );
    agent.tries(&add(7), 119, "waits for somebody to agree", ("review", "is waiting"));

    // In all of that, one call was carried out: the one that alice agreed to.
    let (_, log, _) = home.run(&["audit", "log", "--json", "--limit", "1000"]);
    let intents = log.lines().filter(|line| line.contains("\"kind\":\"intent\"")).count();
    assert_eq!(intents, 1, "{log}");
    assert_eq!(home.run(&["audit", "verify"]).0, 0, "and none of it touched the record");
}

fn home_id(home: &Home) -> [u8; 16] {
    let record = Record::open(&home.world.home(), Options::default()).unwrap();
    let id = record.home_id().0;
    record.close().unwrap();
    id
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
