//! Runs that wait for somebody to agree.

use rustix::process::Signal;
use serde_json::Value;

use crate::person::{self, PASSPHRASE, at_terminal};
use crate::support::{LONG, Started, World, until};

const RULES: &str = "
rules:
  - { name: look, match: { tool: run }, action: require_review, reason: runs are looked at }
";

/// Where alice has to agree to every run.
fn world() -> Option<World> {
    let world = World::new()?;
    let new = world.command(&["approver", "new", "alice"]);
    let typed = [("New passphrase for alice: ", PASSPHRASE), ("The same again: ", PASSPHRASE)];
    let (output, screen) = at_terminal(&new, &typed);
    assert!(output.status.success(), "{screen}");
    let line = String::from_utf8(output.stdout).unwrap();
    person::follow(&world.home(), &[line.trim_end().parse().unwrap()], RULES);
    Some(world)
}

/// The item that somebody waits for at this moment.
fn waiting(world: &World) -> String {
    let look = || {
        let list: Value =
            serde_json::from_slice(&world.run(&["approvals", "--json"]).stdout).ok()?;
        Some(list["items"][0]["id"].as_str()?.to_owned())
    };
    until(LONG, look).unwrap()
}

fn approve(world: &World, item: &str) -> String {
    let approve = world.command(&["approve", item]);
    let (output, screen) = at_terminal(&approve, &[("Passphrase of alice", PASSPHRASE)]);
    assert!(output.status.success(), "{output:?} {screen}");
    screen
}

#[test]
fn a_run_waits_and_runs_when_somebody_has_agreed_with_its_streams_and_files() {
    let Some(world) = world() else { return };
    world.file("made.sh", b"cat; echo \"$1\"; echo no >&2; echo file > kept; exit 3\n");
    world.file("in", b"given\n");
    let words = ["run", "--stdin", "in", "--output-dir", "out", "made.sh", "word"];
    let started = Started::new(world.command(&words));
    let item = waiting(&world);
    assert!(approve(&world, &item).contains("  | cat; echo \"$1\""));
    let ran = started.finish(LONG);
    assert_eq!((ran.code, ran.text().as_str()), (3, "given\nword\n"), "{ran:?}");
    assert!(ran.errors().contains(&item) && ran.errors().ends_with("no\n"), "{ran:?}");
    assert_eq!(std::fs::read_to_string(world.at("out/kept")).unwrap(), "file\n");
}

#[test]
fn a_run_that_nobody_waited_for_is_carried_out_for_whoever_comes_back() {
    let Some(world) = world() else { return };
    world.file("made.sh", b"echo made\n");
    let ran = world.run(&["run", "--no-wait", "--json", "made.sh"]);
    let reply = ran.json();
    assert_eq!((ran.code, reply["status"].as_str()), (119, Some("review")), "{ran:?}");
    let item = reply["review"].as_str().unwrap();
    std::fs::remove_file(world.at("made.sh")).unwrap();
    approve(&world, item);
    let ran = world.run(&["approvals", "wait", item, "--json"]);
    let reply = ran.json();
    assert_eq!((ran.code, reply["status"].as_str()), (0, Some("success")), "{ran:?}");
    assert!(reply["value"].to_string().contains("made"), "{reply}");
    assert_eq!(world.run(&["logs"]).text(), "made\n");
}

#[test]
fn ctrl_c_ends_the_waiting_and_not_what_is_waited_for() {
    let Some(world) = world() else { return };
    for json in [false, true] {
        let words = ["run", "--json", "--output-dir", "out", "--", "true"];
        let started = Started::new(world.command(match json {
            true => &words[..],
            false => &["run", "--output-dir", "out", "--", "true"],
        }));
        let item = waiting(&world);
        // The second one waits for what has been in the queue before it began.
        started.has_said(&format!("hotcell approve {item}"));
        started.signal(Signal::INT);
        let ran = started.finish(LONG);
        assert_eq!((ran.code, ran.text().lines().count()), (130, usize::from(json)), "{ran:?}");
        assert!(ran.errors().contains(&format!("hotcell approvals wait {item}")), "{ran:?}");
        assert!(!world.at("out").exists());
        assert_eq!(waiting(&world), item);
    }
}
