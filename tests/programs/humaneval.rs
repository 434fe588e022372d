//! The problems of HumanEval, as they come from the package index, through `hotcell batch`.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::science::bin;
use crate::support::{hotcell, skip};

#[test]
fn every_canonical_solution_of_humaneval_passes_its_tests() {
    let bin = match bin() {
        Ok(bin) => bin,
        Err(why) => return skip("HumanEval", why),
    };
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/humaneval.py");
    let made = Command::new(bin.join("python")).arg(example).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let dir = tempfile::tempdir().unwrap();
    let jobs = dir.path().join("jobs.jsonl");
    std::fs::write(&jobs, made.stdout).unwrap();
    let words = ["batch", jobs.to_str().unwrap(), "--jobs", "1"];
    let ran = hotcell(&words, None);
    let results: Vec<Value> = ran
        .stdout
        .split_inclusive(|&byte| byte == b'\n')
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect();
    let failed: Vec<_> =
        results.iter().filter(|one| one["result"]["status"] != "success").collect();
    assert!(failed.is_empty(), "{failed:#?}");
    assert_eq!(results.len(), 164, "{}", String::from_utf8_lossy(&ran.stderr));
    let mut ids: Vec<_> = results.iter().map(|one| one["id"].as_str().unwrap()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 164);
    assert_eq!(ran.status.code(), Some(0));
}
