//! Runs that a token allows.

use serde_json::Value;

use crate::support::World;

#[test]
fn tok_11_tool_18_a_run_uses_a_token_and_its_program_sees_nothing_of_it() {
    let Some(world) = World::new() else { return };
    let minted = world.run(&["token", "mint", "run", "--uses", "2", "--for", "10m"]);
    assert_eq!(minted.code, 0);
    let token = String::from_utf8(minted.stdout).unwrap();
    world.file("token", token.as_bytes());
    let look = "cat /proc/*/cmdline /proc/*/environ; ls -R /work /tmp; cat";
    let ran = world.run(&["run", "--token-file", "token", "--", "sh", "-c", look]);
    assert_eq!(ran.code, 0);
    let seen = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(seen.contains("cmdline") && !seen.contains("hct_"), "{seen}");
    let shown = world.run(&["runs", "show", "--json"]);
    let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!(shown["rules"], serde_json::json!(["token"]), "{shown}");
    assert!(!shown.to_string().contains("hct_"));
    // The rest of standard input is not the program's: it has none.
    let piped = r#""$0" run --token-file - -- cat < token; "$0" token ls"#;
    let piped = world.shell(piped).output().unwrap();
    let said = String::from_utf8(piped.stdout).unwrap();
    assert!(said.starts_with("ID ") && said.lines().count() == 1, "{said}");
}
