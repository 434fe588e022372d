//! The local door of a server: commands of this user come in through its socket, and are the same as those
//! that come any other way.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Output, Stdio};
use std::time::Instant;

use hotcell_approver::Approver;
use serde_json::{Value, json};

use super::mcp::{begin, call, last, post};
use super::person;
use super::support::{LONG, Server, command};

fn output(server: &Server, words: &[&str]) -> Output {
    server.command(words).output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// What a command prints that succeeds.
#[track_caller]
fn said(server: &Server, words: &[&str]) -> String {
    let output = output(server, words);
    assert!(output.status.success(), "{words:?}: {output:?}");
    text(&output)
}

#[track_caller]
fn document(server: &Server, words: &[&str]) -> Value {
    serde_json::from_str(&said(server, words)).unwrap()
}

/// Of a family with one label, how many there are with this value.
fn counted(server: &Server, key: &str, line: &str) -> u64 {
    let metrics = server.get("/metrics", Some(key)).text();
    let found = metrics.lines().find_map(|one| one.strip_prefix(line));
    found.map_or(0, |count| count.trim().parse::<f64>().unwrap() as u64)
}

#[test]
fn commands_run_in_the_server_and_it_counts_them_as_its_own() {
    let server = Server::start();
    if !server.has_sandbox() {
        return;
    }
    let key = server.key("metrics");
    let all = || {
        let of =
            |status| counted(&server, &key, &format!("hotcell_calls_total{{status=\"{status}\"}}"));
        (of("success"), of("failure"), of("blocked"))
    };
    assert_eq!(all(), (0, 0, 0));
    assert_eq!(said(&server, &["run", "--lang", "sh", "-c", "echo $((6 * 7))"]), "42\n");
    let failed = output(&server, &["run", "--", "sh", "-c", "echo out; echo err >&2; exit 7"]);
    assert_eq!((failed.status.code(), &*text(&failed)), (Some(7), "out\n"));
    assert_eq!(String::from_utf8_lossy(&failed.stderr), "err\n");
    assert_eq!(all(), (1, 1, 0));
    let sum = said(&server, &["tool", "call", "add", "{\"a\": 1, \"b\": 2}"]);
    assert_eq!(sum, "3\n");
    let write =
        output(&server, &["tool", "call", "fs.write", "{\"path\": \"a\", \"text\": \"b\"}"]);
    assert_eq!(write.status.code(), Some(119));
    assert_eq!(all(), (2, 1, 1));
    fs::write(server.home().with_file_name("jobs"), "{\"run\": {\"command\": [\"true\"]}}\n")
        .unwrap();
    let done = said(&server, &["batch", "jobs"]);
    assert!(done.contains("\"success\""), "{done}");
    assert_eq!(all(), (3, 1, 1));
    // A replay is a call like any other, and is made where the others are.
    let again = document(&server, &["replay", "--json"]);
    assert_eq!(again["same"], true, "{again}");
    assert_eq!(all(), (4, 1, 1));
    let verdict = said(&server, &["audit", "verify"]);
    assert!(verdict.starts_with("sound"), "{verdict}");
}

/// What has been answered is in the record for every command that reads it, however soon it is started: the
/// server writes what changes nothing from time to time.
#[test]
fn what_was_answered_is_seen_by_every_command_at_once() {
    let server = Server::start();
    let key = server.key("tools");
    let made = || {
        let sum = json!({"arguments": {"a": 1, "b": 2}}).to_string();
        let answer = server.post("/v1/tools/add/call", &key, &sum).json();
        assert_eq!(answer["value"], 3, "{answer}");
        answer["id"].as_str().unwrap().to_owned()
    };
    made();
    let id = made();
    assert_eq!(document(&server, &["runs", "show", "--json", &id])["status"], "success");
    let id = made();
    let log = document(&server, &["audit", "log", "--limit", "1", "--json"]);
    assert_eq!((&log["call"], &log["kind"]), (&json!(id), &json!("called")));
    let ends = || said(&server, &["audit", "export"]).matches("\"kind\":\"called\"").count();
    let before = ends();
    made();
    assert_eq!(ends(), before + 1);
    // Which would be told that there is no such call.
    let id = made();
    let again = document(&server, &["replay", "--json", &id]);
    assert_eq!((&again["old"], &again["same"]), (&json!(id), &json!(true)), "{again}");
}

/// What commands change beside the server holds for its next answer, and what the server keeps for later is
/// told to them.
#[test]
fn what_a_command_changes_holds_for_the_server_at_once() {
    let server = Server::start();
    let key = server.key("tools,audit");
    let mine = || document(&server, &["key", "ls", "--json"])["keys"][0].clone();
    assert!(mine()["used_ns"].is_null());
    assert_eq!(server.get("/v1/tools", Some(&key)).status, 200);
    let first = mine()["used_ns"].as_i64().expect("it was used");
    assert_eq!(server.get("/v1/tools", Some(&key)).status, 200);
    assert!(mine()["used_ns"].as_i64().unwrap() > first, "and used again within the minute");
    said(&server, &["key", "revoke", mine()["id"].as_str().unwrap()]);
    assert_eq!(server.get("/v1/tools", Some(&key)).status, 401);
}

#[test]
fn a_socket_that_does_not_answer_is_told_by_readiness() {
    let server = Server::start();
    let socket = |expected: &str| {
        let begun = Instant::now();
        loop {
            let ready = server.get("/readyz", None);
            let document = ready.json();
            if document["socket"] == expected {
                return (ready.status, document);
            }
            assert!(begun.elapsed() < LONG, "{document}");
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    };
    let (_, ready) = socket("ok");
    assert_eq!(ready["record"], "ok", "{ready}");
    fs::remove_file(server.home().join("door/socket")).unwrap();
    let (status, ready) = socket("does not answer");
    assert_eq!((status, &ready["ready"], &ready["record"]), (503, &json!(false), &json!("ok")));
}

/// Code in a shell is denied, and in Python allowed, by one rule of one policy.
const RULES: &str = "rules:
  - { name: code, match: { operation: code.execute }, action: allow }
  - name: no-shells
    match: { tool: [run, code_execute] }
    when: 'args.language == \"shell\"'
    action: deny
    reason: no shells here
";

/// What a door said of a run: its name, its status, and everything that it said.
type Said = (&'static str, String, String);

fn of_document(door: &'static str, called: &Value) -> Said {
    (door, called["status"].as_str().unwrap_or_default().to_owned(), called.to_string())
}

fn code_of(language: &str) -> &'static str {
    if language == "shell" { "echo 42" } else { "print(6 * 7)" }
}

/// One MCP server at standard input and output, for one call.
fn by_stdio(server: &Server, arguments: &Value) -> Said {
    let mut mcp = server.command(&["mcp"]);
    let mut child = mcp.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut lines = BufReader::new(stdout).lines();
    let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    for message in [super::mcp::hello(), ready, call("run_code", arguments.clone())] {
        writeln!(stdin, "{message}").unwrap();
    }
    let answer = loop {
        let line: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        if line["id"] == 1 {
            break line;
        }
    };
    drop(stdin);
    assert!(child.wait().unwrap().success());
    of_mcp("mcp", &answer)
}

fn of_mcp(door: &'static str, answer: &Value) -> Said {
    let result = &answer["result"];
    let status = result["_meta"]["hotcell/status"].as_str().unwrap_or_default();
    (door, status.to_owned(), answer.to_string())
}

/// The same run through every door of a server.
fn everywhere(server: &Server, key: &str, language: &str) -> Vec<Said> {
    let code = code_of(language);
    let run = json!({"run": {"language": language, "code": code}});
    let line = format!("{run}\n");
    let mut told = by_command(server, language, &line);
    let rest = server.post("/v1/runs", key, &run.to_string()).json();
    told.push(("rest", rest["status"].as_str().unwrap_or("blocked").to_owned(), rest.to_string()));
    let batch = "Content-Type: application/x-ndjson\r\n";
    let head = server.head("POST", "/v1/batches", Some(key), batch);
    let whole = format!("{head}Content-Length: {}\r\n\r\n{line}", line.len());
    let batch = server.raw(whole.as_bytes()).unwrap();
    let done: Value = serde_json::from_slice(&batch.body).unwrap_or_else(|_| panic!("{batch:?}"));
    told.push(of_document("rest", &done["result"]));
    let session = begin(server, key);
    let arguments = json!({"language": language, "code": code});
    let answer = post(server, key, Some(&session), &call("run_code", arguments.clone()));
    told.push(of_mcp("mcp", &last(&answer)));
    told.push(by_stdio(server, &arguments));
    told
}

/// The same through commands, with a server or without.
fn by_command(server: &Server, language: &str, line: &str) -> Vec<Said> {
    let run = output(server, &["run", "--json", "--lang", language, "-c", code_of(language)]);
    let run: Value = serde_json::from_slice(&run.stdout).unwrap();
    let status = run["status"].as_str().unwrap().replace("refused", "blocked");
    let jobs = server.home().with_file_name("jobs.jsonl");
    fs::write(jobs, line).unwrap();
    let done = output(server, &["batch", "jobs.jsonl"]);
    let done: Value = serde_json::from_slice(&done.stdout).unwrap();
    let arguments = json!({"language": language, "code": code_of(language)}).to_string();
    let tool = output(server, &["tool", "call", "--json", "code_execute", &arguments]);
    let tool: Value = serde_json::from_slice(&tool.stdout).unwrap();
    let run = ("cli", status, run.to_string());
    vec![run, of_document("cli", &done["result"]), of_document("cli", &tool)]
}

/// POL-10 with the real binary: commands on their own and through a socket, batches, REST, and both kinds of
/// MCP. One policy, one decision, one reason, and an event for each.
#[test]
fn pol_10_every_door_of_the_binary_refuses_the_same_call_by_the_same_policy() {
    let server = Server::prepared(|dir| {
        let approver = Approver::make("alice".parse().unwrap()).unwrap();
        person::follow(&dir.path().join("home"), &[approver.public()], RULES);
        // Nobody serves yet: the decision is that of the command itself.
        let mut alone = command(dir, &["tool", "call", "--json", "code_execute"]);
        alone.arg(json!({"language": "shell", "code": "echo 42"}).to_string());
        let refused = alone.output().unwrap();
        assert_eq!(refused.status.code(), Some(119), "{refused:?}");
        assert!(String::from_utf8_lossy(&refused.stdout).contains("no shells here"));
    });
    let key = server.key("admin,run,tools");
    let told = everywhere(&server, &key, "shell");
    for (door, status, all) in &told {
        assert_eq!(status, "blocked", "{door}: {all}");
        assert!(all.contains("no shells here"), "{door}: {all}");
    }
    let log = said(&server, &["audit", "log", "--limit", "1000", "--json"]);
    let events = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let denied: Vec<Value> = events.filter(|event| event["kind"] == "denied").collect();
    assert_eq!(denied.len(), told.len() + 1, "{denied:?}");
    for event in &denied {
        assert_eq!(event["rules"], json!(["code", "no-shells"]), "{event}");
        assert_eq!(
            (&event["decision"], &event["reason"]),
            (&json!("deny"), &json!("no shells here"))
        );
    }
    let doors: Vec<&str> =
        denied.iter().map(|event| event["caller"]["door"].as_str().unwrap()).collect();
    let mut expected: Vec<&str> = told.iter().map(|(door, ..)| *door).collect();
    expected.insert(0, "cli");
    assert_eq!(doors, expected);
    if server.has_sandbox() {
        for (door, status, all) in everywhere(&server, &key, "python") {
            assert_eq!(status, "success", "{door}: {all}");
        }
    }
}
