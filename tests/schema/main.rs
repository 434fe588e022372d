//! The OpenAPI document of the server, taken at its word: Schemathesis asks every route with what the document
//! allows and with what it does not. No answer may be a fault of the server, or be one that the document does
//! not have, and what the document forbids has to be refused. Schemathesis comes from the Python package index;
//! where it cannot be had, that is said.

#[path = "../programs/binary.rs"]
mod binary;
#[path = "../mcp/served.rs"]
mod served;

use std::fs;
use std::path::Path;
use std::process::Command;

use binary::binary;
use served::{Server, has_sandbox, package, skip};

/// How long it asks.
const SECONDS: &str = "60";
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
    response_headers_conformance,response_schema_conformance,unsupported_method,\
    allow_header_conformance,negative_data_rejection";
/// Fewer questions than this are not what was meant.
const LEAST_CASES: u64 = 500;

#[test]
fn every_route_answers_as_the_document_says() {
    let what = "Schemathesis";
    let dir = tempfile::tempdir().unwrap();
    let (home, work) = (dir.path().join("home"), dir.path().join("work"));
    fs::create_dir(&home).unwrap();
    fs::create_dir(&work).unwrap();
    fs::write(home.join("config.toml"), "min_level = \"landlock-only\"\n").unwrap();
    fs::write(work.join("a.txt"), "hello\n").unwrap();
    if !has_sandbox(&home) {
        return skip(what, "no sandbox on this host");
    }
    let place = match package("schema") {
        Ok(place) => place,
        Err(why) => return skip(what, &why),
    };
    let server = Server::start(&home, &work);
    let key = Server::key(&home, "admin");
    let run = Path::new(env!("CARGO_MANIFEST_DIR")).join("schema/run.py");
    let output = Command::new(place.join("bin/python"))
        .arg(run)
        .args(["run", &format!("{}/openapi.json", server.url), "--checks", CHECKS])
        .args(["--header", &format!("Authorization: Bearer {key}"), "--max-time", SECONDS])
        .args(["--phases", "examples,coverage,fuzzing", "--max-examples", "10", "--workers", "2"])
        .args(["--seed", "1", "--generation-database", "none", "--request-timeout", "30"])
        .args(["--warnings", "off", "--no-color", "--continue-on-failure"])
        // Its body is lines, which have tests of their own.
        .args(["--exclude-path", "/v1/batches"])
        .current_dir(dir.path())
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}\n{errors}");
    let cases = told.lines().find_map(|line| line.trim().split_once(" generated"));
    let cases: u64 = cases.and_then(|(count, _)| count.parse().ok()).unwrap_or(0);
    assert!(cases >= LEAST_CASES, "{cases} cases: {told}");
    // Whatever was asked, the server ends in order and its record is sound.
    drop(server);
    let mut verify = Command::new(binary());
    let verified = verify.args(["audit", "verify"]).env("HOTCELL_HOME", &home).output().unwrap();
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
}
