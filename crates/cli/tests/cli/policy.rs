//! `hotcell policy` and `hotcell init`, as people use them.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::person;
use crate::support::World;

const SECRET: &str = "correct horse battery";
const NEW: [(&str, &str); 2] =
    [("New passphrase for alice: ", SECRET), ("The same again: ", SECRET)];
const ASKED: (&str, &str) = ("Passphrase of alice, ", SECRET);

/// What came of it.
#[derive(Debug)]
struct Said {
    code: i32,
    stdout: String,
    stderr: String,
    /// On the screen.
    seen: String,
}

/// Runs it, and types each text, with Enter, when its prompt is there.
fn at_terminal(world: &World, words: &[&str], typed: &[(&str, &str)]) -> Said {
    let (output, seen) = person::at_terminal(&world.command(words), typed);
    let (code, stdout, stderr) = said(&output);
    Said { code, stdout, stderr, seen }
}

fn world() -> World {
    unserved().served()
}

fn unserved() -> World {
    let world = World::new();
    world.user_config("min_level = \"no-proc\"\n");
    world
}

/// A home with the policy of a profile.
fn initialised(profile: &str) -> World {
    let world = world();
    let words = ["init", "--profile", profile, "--name", "alice"];
    let said = at_terminal(&world, &words, &NEW);
    assert_eq!(
        (said.code, said.stdout.as_str()),
        (0, "version 1 of the policy holds\n"),
        "{said:?}"
    );
    world
}

fn said(output: &std::process::Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

fn policy_file(world: &World) -> PathBuf {
    world.at("../home/policy.yaml")
}

fn add(world: &World) -> (i32, String, String) {
    said(&world.run(&["tool", "call", "add", r#"{"a": 1, "b": 2}"#]))
}

#[test]
fn a_policy_that_was_proposed_holds_when_an_approver_has_signed_it() {
    let world = initialised("dev");
    let text = fs::read_to_string(policy_file(&world)).unwrap();
    world.file("new.yaml", format!("# Proposed.\n{text}").as_bytes());
    let (code, _, stderr) = said(&world.run(&["policy", "update", "new.yaml", "--propose"]));
    assert_eq!(code, 119, "{stderr}");
    let (_, listed, _) = said(&world.run(&["approvals", "--json"]));
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let item = listed["items"][0]["id"].as_str().unwrap();
    let shows = |expected: &str| {
        let (_, shown, _) = said(&world.run(&["policy", "show"]));
        assert_eq!(shown.starts_with("# Proposed.\n"), expected == "new", "{shown}");
    };
    let wrong = at_terminal(&world, &["approve", item], &[(ASKED.0, "wrong horse")]);
    assert_eq!(wrong.code, 119, "{wrong:?}");
    shows("old");
    let done = at_terminal(&world, &["approve", item], &[ASKED]);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.seen.contains("# Proposed."), "the whole policy is shown: {done:?}");
    shows("new");
    assert_eq!(add(&world).0, 0);
    assert_eq!(at_terminal(&world, &["approve", item], &[]).code, 119, "once");
}

/// By whichever way a policy comes, who signs it sees what it would change, and many calls that it would break are
/// accepted in words.
#[test]
fn what_a_policy_would_break_is_accepted_in_words_whoever_proposes_it() {
    let world = initialised("dev");
    for _ in 0..6 {
        assert_eq!(add(&world).0, 0);
    }
    let text = fs::read_to_string(policy_file(&world)).unwrap();
    let nothing =
        text.replace("effect: pure }", "effect: pure, door: mcp }").replace("[pure, ", "[");
    world.file("new.yaml", nothing.as_bytes());
    assert_eq!(said(&world.run(&["policy", "update", "new.yaml", "--propose"])).0, 119);
    let (_, listed, _) = said(&world.run(&["approvals", "--json"]));
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let item = listed["items"][0]["id"].as_str().unwrap();
    let (_, page, _) = said(&world.run(&["approvals", "show", item]));
    assert!(page.contains("  | -    match: { effect: pure }\n"), "{page}");
    assert!(page.contains("  |   BREAKING allow -> deny  "), "{page}");
    let typed = [("type `break 6 calls`: ", "yes")];
    let refused = at_terminal(&world, &["approve", item], &typed);
    assert_eq!(refused.code, 119, "{refused:?}");
    assert!(refused.stderr.contains("that is not the phrase"), "{refused:?}");
    assert!(refused.seen.contains("BREAKING"), "{refused:?}");
    // Signed elsewhere, and installed without a terminal.
    let signed = at_terminal(&world, &["policy", "sign", "new.yaml"], &[ASKED]);
    assert_eq!(signed.code, 0, "{signed:?}");
    world.file("signature", signed.stdout.as_bytes());
    let install = ["policy", "update", "new.yaml", "--signature", "signature"];
    let (code, _, stderr) = said(&world.run(&install));
    assert_eq!(code, 119, "{stderr}");
    assert!(stderr.contains("--accept 'break 6 calls'"), "{stderr}");
    let (code, _, stderr) = said(&world.run(&[&install[..], &["--accept", "yes"]].concat()));
    assert_eq!(code, 119, "{stderr}");
    assert_eq!(add(&world).0, 0, "the old one stays");
    let phrase = ("type `break 7 calls`: ", "break 7 calls");
    let done = at_terminal(&world, &["approve", item], &[phrase, ASKED]);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(add(&world).0, 119);
}

#[test]
fn a_home_is_given_a_policy_that_is_shown_changed_and_kept() {
    let world = initialised("dev");
    assert_eq!(add(&world).0, 0);
    let (code, _, stderr) =
        said(&world.run(&["tool", "call", "policy.update", r#"{"rules": "rules: []"}"#]));
    assert_eq!(code, 119, "{stderr}");
    assert!(stderr.contains("names no approver"), "{stderr}");
    let (code, text, heading) = said(&world.run(&["policy", "show"]));
    assert_eq!((code, &text), (0, &fs::read_to_string(policy_file(&world)).unwrap()));
    assert!(heading.starts_with("version 1, signed by alice ("), "{heading}");
    let (_, shown, _) = said(&world.run(&["policy", "show", "--json"]));
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!((&shown["number"], &shown["signed"]["by"]), (&1.into(), &"alice".into()));
    assert_eq!(shown["approvers"].as_array().unwrap().len(), 1);
    let (code, _, stderr) = said(&world.run(&["init", "--profile", "strict"]));
    assert_eq!(code, 119, "{stderr}");
    assert!(stderr.starts_with("error: this home has a policy already\n"), "{stderr}");

    // Six calls that are allowed now and would not be.
    for _ in 0..6 {
        assert_eq!(add(&world).0, 0);
    }
    let nothing =
        text.replace("effect: pure }", "effect: pure, door: mcp }").replace("[pure, ", "[");
    world.file("new.yaml", nothing.as_bytes());
    let update = ["policy", "update", "new.yaml"];
    let Said { code, stderr, .. } =
        at_terminal(&world, &update, &[("type `break 7 calls`: ", "yes")]);
    assert_eq!(code, 119, "{stderr}");
    assert!(stderr.contains("-    match: { effect: pure }\n"), "{stderr}");
    assert!(stderr.contains("  BREAKING allow -> deny  "), "{stderr}");
    assert!(stderr.contains("warning: 7 of them were allowed and would be refused\n"), "{stderr}");
    let phrase = ("type `break 7 calls`: ", "break 7 calls");
    let wrong = ("Passphrase of alice, ", "wrong horse");
    let Said { code, stderr, seen, .. } = at_terminal(&world, &update, &[phrase, wrong]);
    assert_eq!(code, 119, "{stderr}");
    assert!(stderr.contains("error: the key stays closed\n") && !seen.contains("wrong"), "{seen}");
    assert_eq!(add(&world).0, 0, "the old one stays");
    // One more was allowed meanwhile.
    let phrase = ("type `break 8 calls`: ", "break 8 calls");
    let done = at_terminal(&world, &update, &[phrase, ASKED]);
    assert_eq!(
        (done.code, done.stdout.as_str()),
        (0, "version 2 of the policy holds\n"),
        "{done:?}"
    );
    assert_eq!(add(&world).0, 119);
    let (_, _, stderr) = said(&world.run(&["policy", "update", "new.yaml"]));
    assert_eq!(stderr, "this is the policy that holds\n");
    let (_, log, _) = said(&world.run(&["audit", "log", "--json"]));
    let changes: Vec<&str> = log.lines().filter(|line| line.contains("policy_changed")).collect();
    assert_eq!(changes.len(), 2, "{log}");
    assert!(changes[1].contains("version 2 holds, signed by alice"), "{changes:?}");
    assert_eq!(said(&world.run(&["audit", "verify"])).0, 0);
}

#[test]
fn without_a_terminal_nothing_is_signed_and_nothing_made() {
    let world = world();
    let (code, _, stderr) = said(&world.run(&["init", "--profile", "dev"]));
    assert_eq!(code, 119, "{stderr}");
    assert!(stderr.contains("there is no terminal to ask at"), "{stderr}");
    assert!(!policy_file(&world).exists() && !world.at("../home/keys/approver.key").exists());
    let words = ["init", "--profile", "dev", "--name", "alice"];
    let other = [NEW[0], ("The same again: ", "something else")];
    let refused = at_terminal(&world, &words, &other);
    assert_eq!(refused.code, 119, "{refused:?}");
    assert!(!policy_file(&world).exists() && !world.at("../home/keys/approver.key").exists());
}

#[test]
fn pol_01_pol_18_a_policy_that_nobody_signed_decides_nothing() {
    let world = initialised("strict");
    let file = policy_file(&world);
    let text = fs::read_to_string(&file).unwrap();
    let (code, _, stderr) = {
        fs::write(&file, format!("{text}# mine\n")).unwrap();
        add(&world)
    };
    assert_eq!(code, 120, "{stderr}");
    assert!(stderr.starts_with("error: `policy.yaml` is not the policy that holds\n"), "{stderr}");
    let (code, stdout, stderr) = said(&world.run(&["run", "--", "true"]));
    assert_eq!((code, stdout.as_str()), (120, ""), "{stderr}");
    // Each of them is in the record, and says why.
    let denied = || denied(&world, "`policy.yaml` is not the policy that holds");
    assert_eq!(denied(), ["add@1.0.0", "run@1.0.0"]);
    let (code, shown, stderr) = said(&world.run(&["policy", "show"]));
    assert_eq!((code, shown.as_str()), (120, text.as_str()), "{stderr}");
    fs::remove_file(&file).unwrap();
    let (code, _, stderr) = add(&world);
    assert_eq!(code, 120, "{stderr}");
    assert!(stderr.starts_with("error: `policy.yaml` is gone\n"), "{stderr}");
    assert_eq!(self::denied(&world, "`policy.yaml` is gone"), ["add@1.0.0"]);
    fs::write(&file, &shown).unwrap();
    assert_eq!(add(&world).0, 0, "as the fix says");
    assert_eq!(denied().len(), 2, "and nothing else is told");
}

/// The tools of calls that were refused for that reason, as the record tells.
fn denied(world: &World, why: &str) -> Vec<String> {
    let (_, log, _) = said(&world.run(&["audit", "log", "--json"]));
    let events = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let is_it = |event: &Value| {
        event["kind"] == "denied" && event["reason"].as_str().is_some_and(|told| told.contains(why))
    };
    let tools = events.filter(is_it).map(|event| event["tool"].as_str().unwrap().to_owned());
    tools.collect()
}

/// What it ended with, and what it said: what serves ends by itself only if it does not begin.
fn not_begun(world: &World, words: &[&str]) -> (i32, String) {
    let mut command = world.command(words);
    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    let begun = std::time::Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > std::time::Duration::from_secs(60) {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("{words:?} serves");
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let (code, _, stderr) = said(&child.wait_with_output().unwrap());
    (code, stderr)
}

/// For each way to stay and carry out calls: the kernel does not start.
#[test]
fn pol_01_pol_18_nobody_serves_a_home_whose_policy_is_not_the_one_that_was_signed() {
    const KEPT: [&[&str]; 4] = [
        &["serve", "--listen", "127.0.0.1:0"],
        &["resident", "start", "--idle", "1s"],
        &["resident", "serve", "--idle", "1s"],
        &["mcp"],
    ];
    let refuses = |world: &World, what: &str| {
        for words in KEPT {
            let (code, stderr) = not_begun(world, words);
            assert_eq!(code, 120, "{words:?}: {stderr}");
            assert!(stderr.starts_with(&format!("error: `policy.yaml` {what}\n")), "{stderr}");
            assert!(stderr.contains("\n  why: ") && stderr.contains("\n  fix: "), "{stderr}");
        }
        let served = said(&world.run(&["resident", "status"])).1;
        assert!(served.starts_with("nobody serves"), "{served}");
    };
    let starts = |world: &World| {
        // It ends with its standard input.
        assert_eq!(not_begun(world, &["mcp"]), (0, String::new()));
        assert_eq!(not_begun(world, &["resident", "serve", "--idle", "1ms"]), (0, String::new()));
    };
    let world = unserved();
    starts(&world);
    fs::write(policy_file(&world), "rules: []\n").unwrap();
    refuses(&world, "is there, and nobody has signed it");
    fs::remove_file(policy_file(&world)).unwrap();
    let words = ["init", "--profile", "dev", "--name", "alice"];
    assert_eq!(at_terminal(&world, &words, &NEW).code, 0);
    starts(&world);
    let text = fs::read_to_string(policy_file(&world)).unwrap();
    fs::write(policy_file(&world), text.replacen("deny", "allow", 1) + "# mine\n").unwrap();
    refuses(&world, "is not the policy that holds");
    fs::write(policy_file(&world), "rules:\n  - { nome: a }\n").unwrap();
    refuses(&world, "is not the policy that holds");
    fs::remove_file(policy_file(&world)).unwrap();
    refuses(&world, "is gone");
    fs::write(policy_file(&world), &text).unwrap();
    starts(&world);
}

/// Who works for a model through somebody who serves is told as well.
#[test]
fn an_agent_is_told_at_its_start_that_whoever_serves_cannot_decide() {
    let world = initialised("dev");
    let mut serve = world.command(&["resident", "serve", "--idle", "10m"]);
    let mut resident = None;
    if std::env::var_os("HOTCELL_RESIDENT").is_none() {
        let mut child = serve.stdout(std::process::Stdio::piped()).spawn().unwrap();
        let mut ready = [0; 6];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut ready).unwrap();
        resident = Some(child);
    }
    assert_eq!(not_begun(&world, &["mcp"]), (0, String::new()));
    let text = fs::read_to_string(policy_file(&world)).unwrap();
    fs::write(policy_file(&world), format!("{text}# mine\n")).unwrap();
    let (code, stderr) = not_begun(&world, &["mcp"]);
    assert_eq!(code, 120, "{stderr}");
    assert!(stderr.starts_with("error: `policy.yaml` is not the policy that holds\n"), "{stderr}");
    if let Some(mut child) = resident {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn somebody_else_signs_on_another_machine() {
    let (alices, world) = (initialised("strict"), world());
    let (_, shown, _) = said(&alices.run(&["policy", "show", "--json"]));
    let shown: Value = serde_json::from_str(&shown).unwrap();
    let line = shown["approvers"][0].as_str().unwrap();
    world.file("alice.pub", format!("{line}\n").as_bytes());
    let words = ["init", "--profile", "dev", "--approver", "alice.pub"];
    let (code, told, stderr) = said(&world.run(&words));
    assert_eq!(code, 0, "{stderr}");
    assert!(!policy_file(&world).exists());
    let sign = told.lines().find(|line| line.contains("policy sign")).unwrap();
    let sign: Vec<&str> = sign.split_whitespace().skip(1).take_while(|word| *word != ">").collect();
    let signed = at_terminal(&alices, &sign, &[ASKED]);
    assert_eq!(signed.code, 0, "{signed:?}");
    world.file("signature", signed.stdout.as_bytes());
    let install = ["policy", "update", sign[2], "--signature", "signature"];
    let (code, stdout, stderr) = said(&world.run(&install));
    assert_eq!((code, stdout.as_str()), (0, "version 1 of the policy holds\n"), "{stderr}");
    // The same signature again, for rules that only look new.
    world.file("old.yaml", &fs::read(policy_file(&world)).unwrap());
    let proposed = ["policy", "update", "old.yaml", "--propose"];
    let (code, _, stderr) = said(&world.run(&proposed));
    assert_eq!(code, 119, "{stderr}");
    assert!(stderr.contains("`policy.update` waits for somebody to agree"), "{stderr}");
    world.file("other.yaml", b"rules: []\n");
    let (code, _, stderr) =
        said(&world.run(&["policy", "update", "other.yaml", "--signature", "signature"]));
    assert_eq!(code, 119, "{stderr}");
    assert!(stderr.contains("it was signed as version 1, and the next one is 2"), "{stderr}");
}

#[test]
fn what_is_wrong_with_a_file_is_shown_where_it_stands() {
    let world = unserved();
    world.file(
        "bad.yaml",
        b"rules:\n  - name: a\n    match: { operation: fs.write }\n    action: alow\n",
    );
    let (code, stdout, stderr) = said(&world.run(&["policy", "check", "bad.yaml"]));
    assert_eq!((code, stdout.as_str()), (121, ""));
    assert_eq!(
        stderr,
        "bad.yaml:4:13: `alow` is not an action: did you mean `allow`?\n  |     action: alow\n  \
         |             ^\n"
    );
    world.file("large.yaml", &vec![b'#'; 50 << 20]);
    let (code, _, stderr) = said(&world.run(&["policy", "check", "large.yaml"]));
    assert_eq!(code, 121);
    assert!(stderr.contains("has more than 1048576 bytes"), "{stderr}");
    world.file("odd.yaml", b"rules:\n  - name: a\n    match: { path: [] }\n    action: allow\n");
    let (code, stdout, stderr) = said(&world.run(&["policy", "check", "odd.yaml"]));
    assert_eq!((code, stdout.as_str()), (0, "good: 1 rule\n"));
    assert!(stderr.starts_with("odd.yaml:3:20: warning: "), "{stderr}");
    world.file("tests.yaml", b"tests:\n  - { call: add, args: { a: 1, b: 2 }, expect: allow }\n");
    for words in [
        &["policy", "check", "no.yaml"][..],
        &["policy", "test", "no.yaml", "tests.yaml"],
        &["policy", "test", "odd.yaml", "no.yaml"],
        &["policy", "update", "no.yaml"],
        &["policy", "sign", "no.yaml"],
    ] {
        let (code, stdout, stderr) = said(&world.run(words));
        assert_eq!((code, stdout.as_str()), (127, ""), "{words:?}");
        assert!(stderr.starts_with("error: `no.yaml` cannot be read\n  why: "), "{stderr}");
        assert!(stderr.contains("\n  fix: name a file "), "{stderr}");
    }
    world.file("more.yaml", b"rules: []\nextensions: [no.ts]\n");
    let (code, _, stderr) = said(&world.run(&["policy", "check", "more.yaml"]));
    assert_eq!(code, 127, "{stderr}");
    assert!(stderr.contains("\n  fix: "), "{stderr}");
    let (code, stdout, stderr) = said(&world.run(&["policy", "test", "odd.yaml", "tests.yaml"]));
    assert_eq!((code, stdout.as_str()), (1, "1 of 1 test failed\n"), "{stderr}");
    assert!(stderr.starts_with("odd.yaml:3:20: warning: "), "{stderr}");
    assert!(stderr.contains("\ntests.yaml:2:5: add: deny, and not allow: no rule allows it\n"));
    assert!(!world.at("../home/hotcell.db").exists(), "checking needs no home");
}

#[test]
fn a_refusal_is_explained_and_learned_from() {
    let world = world();
    let call = ["fs.write", r#"{"path": "src/a.rs", "text": "b"}"#];
    assert_eq!(said(&world.run(&[&["tool", "call"][..], &call].concat())).0, 119);
    let (code, explained, _) = said(&world.run(&[&["policy", "explain"][..], &call].concat()));
    assert_eq!(code, 0);
    assert!(explained.starts_with("fs.write: deny: no rule allows it\n"), "{explained}");
    let (_, rule) = explained.split_once("what would allow it:\n").unwrap();
    let (code, learned, _) = said(&world.run(&["policy", "learn", "--since", "1h"]));
    assert_eq!(code, 0);
    let one = "# Learned from 1 call that was refused, or approved. Read it before you use it.\n";
    assert!(learned.starts_with(one), "{learned}");
    // Both are rules that can be used, and that allow the call.
    let tests = format!("tests:\n  - {{ call: {}, args: {}, expect: allow }}\n", call[0], call[1]);
    world.file("tests.yaml", tests.as_bytes());
    for rules in [format!("rules:\n{rule}"), learned] {
        world.file("learned.yaml", rules.as_bytes());
        let (code, _, stderr) = said(&world.run(&["policy", "test", "learned.yaml", "tests.yaml"]));
        assert_eq!(code, 0, "{rules}: {stderr}");
    }
    let words = ["policy", "explain", "add", r#"{"a": 1, "b": 2}"#, "--state", "resting"];
    let (code, _, stderr) = said(&world.run(&words));
    assert_eq!(code, 121, "{stderr}");
}

/// What is hardly meant is told wherever a policy is read or begins to decide, and to whoever is to sign it.
#[test]
fn what_is_hardly_meant_in_a_policy_is_told_at_every_door() {
    let world = initialised("dev");
    let text = fs::read_to_string(policy_file(&world)).unwrap();
    let odd = "rules:\n  - { name: odd, match: { path: [] }, action: deny }\n";
    let text = text.replacen("rules:\n", odd, 1);
    world.file("odd.yaml", text.as_bytes());
    world.file("tests.yaml", b"tests:\n  - { call: add, args: { a: 1, b: 2 }, expect: allow }\n");
    let is_told = |file: &str, told: &str| {
        let line = told.lines().find(|line| line.contains("warning: "));
        assert!(line.is_some_and(|line| line.contains(file)), "{told}");
    };
    for words in [
        &["policy", "check", "odd.yaml"][..],
        &["policy", "test", "odd.yaml", "tests.yaml"],
        &["policy", "update", "odd.yaml", "--propose"],
    ] {
        let (_, _, stderr) = said(&world.run(words));
        is_told("odd.yaml:", &stderr);
    }
    let (_, listed, _) = said(&world.run(&["approvals", "--json"]));
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let item = listed["items"][0]["id"].as_str().unwrap();
    let (_, page, _) = said(&world.run(&["approvals", "show", item]));
    is_told("policy.yaml:", &page);
    let signed = at_terminal(&world, &["policy", "sign", "odd.yaml"], &[ASKED]);
    is_told("odd.yaml:", &signed.stderr);
    let updated = at_terminal(&world, &["policy", "update", "odd.yaml"], &[ASKED]);
    assert_eq!(updated.stdout, "version 2 of the policy holds\n", "{updated:?}");
    is_told("odd.yaml:", &updated.stderr);
    // Where somebody serves the home, it was told there.
    if std::env::var_os("HOTCELL_RESIDENT").is_none() {
        is_told("policy.yaml:", &said(&world.run(&["mcp"])).2);
    }
}

/// Each block with tests is about the block of rules before it.
#[test]
fn the_examples_of_the_guide_and_of_the_repository_pass_their_tests() {
    let world = world();
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let guide = fs::read_to_string(root.join("docs/policy.md")).unwrap();
    let blocks = guide.split("```yaml\n").skip(1).filter_map(|rest| rest.split("\n```").next());
    let (mut rules, mut pairs) = (String::new(), Vec::new());
    for block in blocks {
        match block.starts_with("tests:") {
            false => {
                rules = block.to_owned();
                world.file("rules.yaml", rules.as_bytes());
                let (code, _, stderr) = said(&world.run(&["policy", "check", "rules.yaml"]));
                assert_eq!(code, 0, "{stderr}\n{rules}");
            }
            true => pairs.push((rules.clone(), format!("{block}\n"))),
        }
    }
    assert!(pairs.len() >= 10, "{} worked examples", pairs.len());
    let example =
        |name: &str| fs::read_to_string(root.join("examples/policies").join(name)).unwrap();
    pairs.push((example("workflow.yaml"), example("workflow-tests.yaml")));
    for (rules, tests) in pairs {
        world.file("rules.yaml", rules.as_bytes());
        world.file("tests.yaml", tests.as_bytes());
        let (code, stdout, stderr) =
            said(&world.run(&["policy", "test", "rules.yaml", "tests.yaml"]));
        assert_eq!(code, 0, "{stdout}{stderr}\n{rules}\n{tests}");
    }
}
