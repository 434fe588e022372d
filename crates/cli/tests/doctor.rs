//! The doctor on whatever host runs the tests: what it says must hold together.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::process::{Command, Output};

use serde_json::Value;

fn doctor(home: &std::path::Path, args: &[&str], env: &[(&str, &str)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_hotcell"))
        .arg("doctor")
        .args(args)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOTCELL_HOME", home)
        .envs(env.iter().copied())
        .current_dir(home)
        .output()
        .unwrap()
}

fn json(output: &Output) -> Value {
    assert!(output.stderr.is_empty(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn the_document_the_table_and_the_exit_agree() {
    let home = tempfile::tempdir().unwrap();
    let document = doctor(home.path(), &["--json"], &[]);
    let table = doctor(home.path(), &[], &[]);
    let exit = document.status.code();
    assert_eq!(exit, table.status.code());
    let document = json(&document);
    let well = document["run"]["status"] == "success" && document["minimum"]["met"] == true;
    assert_eq!((document["ok"].as_bool(), exit), (Some(well), Some(if well { 0 } else { 122 })));
    assert_eq!(document["layers"].as_array().unwrap().len(), 19);
    assert_eq!(document["languages"].as_array().unwrap().len(), 3);
    let table = String::from_utf8(table.stdout).unwrap();
    let level = document["level"].as_str().unwrap_or("none");
    assert!(table.contains(&format!("\nlevel: {level} (")), "{table}");
    for layer in document["layers"].as_array().unwrap() {
        let on = if layer["active"] == true { "yes" } else { "no" };
        let row = format!("\n{:<16}  {on:<3}  ", layer["layer"].as_str().unwrap());
        assert!(table.contains(&row), "{row:?} is not in:\n{table}");
    }
    assert!(!table.contains('\x1b'), "{table}");
}

#[test]
fn a_higher_minimum_changes_the_exit_and_nothing_else() {
    let home = tempfile::tempdir().unwrap();
    let document = json(&doctor(home.path(), &["--json"], &[("HOTCELL_MIN_LEVEL", "full")]));
    assert_eq!(document["minimum"]["level"], "full");
    assert_eq!(document["minimum"]["source"], "HOTCELL_MIN_LEVEL");
    assert_eq!(document["minimum"]["met"], document["level"] == "full");
    assert_eq!(document["next"].is_null(), document["level"] == "full");
}

#[test]
fn a_broken_configuration_is_an_error_and_not_a_level() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("config.toml"), "min_level = \"none\"\n").unwrap();
    let output = doctor(home.path(), &["--json"], &[]);
    assert_eq!(output.status.code(), Some(121));
    assert_eq!(json(&output)["status"], "invalid");
}
