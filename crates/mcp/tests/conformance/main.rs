//! The conformance suite of the protocol, against the server over streamable HTTP. The suite and the Node that
//! it needs come from npm; where they cannot be had, that is said.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(
    deprecated,
    reason = "the suite also tests what newer versions of the protocol leave out"
)]

mod fixtures;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use fixtures::Fixtures;
use hotcell_engine::{Engine, Options as EngineOptions};
use hotcell_mcp::http::StreamableHttpServerConfig;
use hotcell_mcp::{Here, Options, Server};
use hotcell_types::{Caller, Door, Name};
use rmcp::transport::streamable_http_server::StreamableHttpService;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use serde_json::Value;

const SPEC: &str = "2025-11-25";
/// Fewer scenarios than this are not what was meant.
const LEAST_SCENARIOS: usize = 25;
/// Its answer is an error, and has to be.
const ERROR_WANTED: &str = "tools-call-error";

fn skip(why: &str) {
    let line = format!("SKIPPED the conformance suite: {why}\n");
    // The harness captures what goes through `eprintln`, not what goes through the descriptor.
    let stderr = std::os::fd::AsFd::as_fd(&std::io::stderr()).try_clone_to_owned().unwrap();
    fs::File::from(stderr).write_all(line.as_bytes()).unwrap();
}

/// Where npm's packages are, or why they are not.
fn packages() -> Result<PathBuf, String> {
    let setup = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/mcp/setup");
    let made = Command::new(setup).arg("node").output().map_err(|error| error.to_string())?;
    if !made.status.success() {
        let text = String::from_utf8_lossy(&made.stderr);
        return Err(text.lines().last().unwrap_or("tests/mcp/setup failed").to_owned());
    }
    Ok(PathBuf::from(String::from_utf8(made.stdout).unwrap().trim_end()))
}

/// The server on a port of this host, until the process ends.
fn serve(home: &Path) -> String {
    let engine = Arc::new(Engine::open(EngineOptions::at(home)).unwrap());
    fixtures::register(&engine);
    let server = Server::new(
        Arc::new(Here::new(engine, Caller::local(Name::LOCAL, Door::Mcp))),
        Options::default(),
    );
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    listener.set_nonblocking(true).unwrap();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let config = StreamableHttpServerConfig::default();
            let service: StreamableHttpService<Fixtures, LocalSessionManager> =
                StreamableHttpService::new(
                    move || Ok(Fixtures(server.session())),
                    Default::default(),
                    config,
                );
            let router = axum::Router::new().nest_service("/mcp", service);
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            axum::serve(listener, router).await.unwrap();
        });
    });
    format!("http://{address}/mcp")
}

/// What is wrong with the checks of one scenario.
fn faults(scenario: &str, checks: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    for check in checks.as_array().unwrap() {
        let id = check["id"].as_str().unwrap_or_default();
        if check["status"] == "FAILURE" {
            faults.push(format!("{scenario}: {id}: {}", check["errorMessage"]));
        }
        // A tool that is not there is answered with an error, and some checks look no further.
        if !scenario.contains(ERROR_WANTED) && has_error(&check["details"]) {
            faults.push(format!("{scenario}: {id}: the answer is an error: {}", check["details"]));
        }
    }
    faults
}

fn has_error(value: &Value) -> bool {
    match value {
        Value::Object(members) => {
            members.get("isError") == Some(&Value::Bool(true)) || members.values().any(has_error)
        }
        Value::Array(items) => items.iter().any(has_error),
        _ => false,
    }
}

#[test]
fn the_server_conforms_to_the_protocol() {
    let packages = match packages() {
        Ok(packages) => packages,
        Err(why) => return skip(&why),
    };
    let dir = tempfile::tempdir().unwrap();
    let url = serve(&dir.path().join("home"));
    let results = dir.path().join("results");
    let output = Command::new(packages.join("node"))
        .arg(packages.join("node_modules/@modelcontextprotocol/conformance/dist/index.js"))
        .args(["server", "--url", &url, "--suite", "all", "--spec-version", SPEC, "-o"])
        .arg(&results)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    let mut scenarios = 0;
    let mut wrong = Vec::new();
    for entry in fs::read_dir(&results).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let Ok(text) = fs::read_to_string(entry.path().join("checks.json")) else { continue };
        let checks: Value = serde_json::from_str(&text).unwrap();
        scenarios += 1;
        wrong.extend(faults(&name, &checks));
    }
    assert!(scenarios >= LEAST_SCENARIOS, "{scenarios} scenarios\n{told}");
    assert!(wrong.is_empty(), "{}\n{told}", wrong.join("\n"));
    assert!(output.status.success(), "{told}");
}

#[test]
fn an_error_where_none_is_wanted_is_a_fault() {
    let check = serde_json::json!([{ "id": "x", "status": "SUCCESS",
        "details": { "result": { "isError": true } } }]);
    assert_eq!(faults("server-tools-call-image", &check).len(), 1);
    assert_eq!(faults("server-tools-call-error", &check).len(), 0);
    let check = serde_json::json!([{ "id": "x", "status": "FAILURE", "details": {} }]);
    assert_eq!(faults("server-tools-call-error", &check).len(), 1);
    assert_eq!(check[0]["status"], "FAILURE");
}
