//! `hotcell key`, as a user sees it.

use std::process::Output;

use serde_json::Value;

use crate::support::World;

fn world() -> World {
    let world = World::new();
    world.user_config("min_level = \"no-proc\"\n");
    world.served()
}

fn said(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

fn listed(world: &World, more: &[&str]) -> Vec<Value> {
    let (code, stdout, stderr) = said(&world.run(&[&["key", "ls", "--json"], more].concat()));
    assert_eq!(code, 0, "{stderr}");
    let document: Value = serde_json::from_str(&stdout).unwrap();
    document["keys"].as_array().unwrap().clone()
}

#[test]
fn a_key_is_printed_once_and_kept_nowhere() {
    let world = world();
    let words = ["key", "create", "ci", "--scope", "run,tools", "--scope", "audit", "--for", "24h"];
    let (code, stdout, stderr) = said(&world.run(&words));
    assert_eq!(code, 0, "{stderr}");
    let key = stdout.strip_suffix('\n').unwrap();
    assert!(key.starts_with("hck_") && key.len() == 60, "{key}");
    let (id, secret) = (key.get(4..20).unwrap(), key.get(20..).unwrap());
    assert!(stderr.starts_with(&format!(
        "hotcell: key {id} is for run tools audit, as ci in local, until 2"
    )));
    assert!(!stderr.contains(key));
    // The secret is in no file of the home.
    for file in ["hotcell.db", "hotcell.db-wal", "anchor.log"] {
        let bytes = std::fs::read(world.home().join(file)).unwrap_or_default();
        let is_there = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
        assert!(!is_there, "{file}");
    }
    let (_, exported, _) = said(&world.run(&["audit", "export"]));
    assert!(exported.contains("key.create") && !exported.contains(secret));
    let keys = listed(&world, &[]);
    assert_eq!(keys.len(), 1);
    let expected = serde_json::json!(["run", "tools", "audit"]);
    assert_eq!((&keys[0]["id"], &keys[0]["scopes"]), (&Value::from(id), &expected));
    assert_eq!((&keys[0]["rate"], &keys[0]["used_ns"]), (&Value::Null, &Value::Null));
    let (_, table, _) = said(&world.run(&["key", "ls"]));
    assert!(table.contains(&format!("{id}  good     ci ")) && !table.contains(secret), "{table}");
}

#[test]
fn a_key_has_a_tenant_a_subject_and_limits_and_is_revoked_once() {
    let world = world();
    let words = "key create worker --scope admin --tenant acme --subject bot --rate 10 --burst 20 --concurrent 3";
    let words: Vec<&str> = words.split(' ').chain(["--json"]).collect();
    let (code, stdout, stderr) = said(&world.run(&words));
    assert_eq!((code, stderr.as_str()), (0, ""));
    let made: Value = serde_json::from_str(&stdout).unwrap();
    assert!(made["key"].as_str().unwrap().starts_with("hck_"));
    assert_eq!((&made["tenant"], &made["subject"]), (&"acme".into(), &"bot".into()));
    assert_eq!(made["rate"], serde_json::json!({"per_second": 10, "burst": 20}));
    assert_eq!((&made["concurrent"], &made["expires_ns"]), (&3.into(), &Value::Null));
    let id = made["id"].as_str().unwrap();
    assert_eq!(listed(&world, &["--tenant", "acme"]).len(), 1);
    assert_eq!(listed(&world, &["--tenant", "other"]).len(), 0);
    let (code, _, stderr) = said(&world.run(&["key", "revoke", id]));
    assert_eq!((code, stderr), (0, format!("hotcell: key {id} is worth nothing now\n")));
    let (code, stdout, _) = said(&world.run(&["key", "revoke", id, "--json"]));
    let again: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((code, &again["was_good"]), (0, &false.into()));
    assert_eq!(listed(&world, &[]).len(), 0);
    assert_eq!(listed(&world, &["--all"])[0]["state"], "revoked");
    let (code, stdout, _) = said(&world.run(&["audit", "verify"]));
    assert!(code == 0 && stdout.contains("1 API keys against what the chain says"), "{stdout}");
}

#[test]
fn what_is_no_key_is_told_as_that() {
    let world = world();
    for (words, code, expected) in [
        ("key create ci", 121, "--scope"),
        ("key create ci --scope root", 121, "there is no scope `root`"),
        ("key create ci --scope run --burst 3", 121, "--rate"),
        ("key create ci --scope run --rate 0", 121, "0"),
        ("key create ci --scope run --rate 2000000", 121, "million"),
        ("key create a/b --scope run", 121, "is not a name"),
        ("key create ci --scope run --for 0s", 121, "0s"),
        ("key revoke 0123456789ABCDEF", 127, "there is no such key"),
        ("key revoke hck_", 121, "16 digits"),
    ] {
        let words: Vec<&str> = words.split(' ').collect();
        let output = said(&world.run(&words));
        // A home that nobody used yet has no keys either.
        assert_eq!(output.0, code, "{words:?}: {output:?}");
        if !output.2.contains("nothing is recorded") {
            assert!(output.2.contains(expected), "{words:?}: {output:?}");
        }
    }
}
