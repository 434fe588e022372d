//! Every route of the table, as it is meant to be used.

use serde_json::{Value, json};

use crate::person::{PASSPHRASE, at_terminal};
use crate::support::Server;

fn good(server: &Server, key: &str, method: &str, path: &str, body: Option<Value>) -> Value {
    let body = body.map(|body| body.to_string());
    let answer = server.ask(method, path, Some(key), "", body.as_deref());
    assert_eq!(answer.status, 200, "{method} {path}: {}", answer.text());
    assert_eq!(answer.header("content-type"), Some("application/json"), "{method} {path}");
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    answer.json()
}

#[test]
fn code_runs_and_everything_about_it_can_be_asked() {
    let server = Server::start();
    if !server.has_sandbox() {
        return;
    }
    let key = server.key("admin");
    let get = |path: &str| good(&server, &key, "GET", path, None);
    let post = |path: &str, body: Value| good(&server, &key, "POST", path, Some(body));
    let called = post(
        "/v1/runs",
        json!({"run": {
        "language": "python",
        "code": "import sys; open('out.txt', 'w').write(sys.stdin.read() + open('in').read()); print(6 * 7)",
        "stdin": "a", "files": [{"name": "in", "base64": "Yg=="}],
    }, "manner": {"priority": 3}}),
    );
    assert_eq!(
        (&called["status"], &called["value"]["stdout"]),
        (&json!("success"), &json!("42\n"))
    );
    let id = called["id"].as_str().unwrap().to_owned();
    let failed = post("/v1/runs", json!({"run": {"command": ["sh", "-c", "exit 3"]}}));
    assert_eq!((&failed["status"], &failed["run"]["exit"]["code"]), (&json!("failure"), &json!(3)));

    let runs = get("/v1/runs?limit=10&tool=run@1.0.0&status=success");
    assert_eq!(runs["runs"][0]["call"], id.as_str(), "{runs}");
    let shown = get(&format!("/v1/runs/{id}"));
    assert_eq!(shown["caller"], json!({"tenant": "local", "subject": "me", "door": "rest"}));
    let replayed = good(&server, &key, "POST", &format!("/v1/runs/{id}/replay"), None);
    assert_eq!((&replayed["old"], &replayed["same"]), (&json!(id), &json!(true)), "{replayed}");
    let replayed = post(&format!("/v1/runs/{id}/replay"), json!({"ignore": ["stdout"]}));
    assert_eq!(replayed["same"], true, "{replayed}");

    let first = get("/v1/artifacts/out.txt@1");
    let artifact = first["artifact"]["id"].as_str().unwrap().to_owned();
    let artifacts = get(&format!("/v1/artifacts?name=out.txt&call={id}"));
    assert_eq!(artifacts["artifacts"][0]["id"], artifact.as_str(), "{artifacts}");
    let content = server.get(&format!("/v1/artifacts/{artifact}/content"), Some(&key));
    assert_eq!((content.status, content.text().as_str()), (200, "ab"));
    let lineage = get(&format!("/v1/artifacts/{artifact}/lineage?depth=2"));
    assert!(!lineage["ancestors"].as_array().unwrap().is_empty(), "{lineage}");
    let tag = format!("/v1/artifacts/{artifact}/tags/keep");
    assert_eq!(good(&server, &key, "PUT", &tag, None)["changed"], true);
    assert_eq!(get("/v1/artifacts?tag=keep")["artifacts"][0]["id"], artifact.as_str());
    assert_eq!(good(&server, &key, "DELETE", &tag, None)["changed"], true);
    let verdict = json!({"aspect": "syntax", "ruling": "pass", "note": "looked at"});
    let ruled =
        server.post(&format!("/v1/artifacts/{artifact}/verdict"), &key, &verdict.to_string());
    assert!([200, 422].contains(&ruled.status), "{ruled:?}");
    let back = post("/v1/artifacts/out.txt/rollback", json!({"version": 1}));
    assert_eq!(back["artifact"]["name"], "out.txt", "{back}");

    let events = get(&format!("/v1/audit/events?call={id}&kind=intent"));
    assert_eq!(events["events"].as_array().unwrap().len(), 1, "{events}");
    assert_eq!(good(&server, &key, "POST", "/v1/audit/verify", None)["standing"], "sound");
    let calls = json!({"calls": [
        {"request": {"tool": "add", "arguments": {"a": 1, "b": 2}}},
        {"request": {"tool": "add", "arguments": {"a": 3, "b": 4}}, "after": [0]},
    ]});
    let batch = post("/v1/batch", calls);
    assert_eq!((&batch["calls"][0]["value"], &batch["calls"][1]["value"]), (&json!(3), &json!(7)));
}

/// TOK-12: with a key for it, one's own tokens are listed, narrowed and revoked. None is made here.
#[test]
fn tokens_are_listed_narrowed_and_revoked_by_whose_they_are_and_never_made() {
    let server = Server::start();
    let made = server.command(&["token", "mint", "add", "--for", "60s", "--uses", "3"]);
    let made = { made }.output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let token = String::from_utf8(made.stdout).unwrap().trim_end().to_owned();
    let whose = format!("uid{}", rustix::process::geteuid().as_raw());
    let key = server.key_with("tokens,tools", &["--subject", &whose]);
    let listed = good(&server, &key, "GET", "/v1/tokens?limit=10", None);
    assert_eq!(listed["tokens"].as_array().unwrap().len(), 1, "{listed}");
    let id = listed["tokens"][0]["id"].as_str().unwrap().to_owned();
    let narrow = json!({"token": token, "bounds": {"uses": 1}});
    let child = good(&server, &key, "POST", "/v1/tokens/narrow", Some(narrow.clone()));
    let call = |token: &Value| {
        let body = json!({"arguments": {"a": 1, "b": 2}, "token": token});
        server.post("/v1/tools/add/call", &key, &body.to_string()).status
    };
    assert_eq!(call(&child["token"]), 200);

    let mint = json!({"tool": "add", "bounds": {"uses": 1}}).to_string();
    let refused = server.post("/v1/tokens", &key, &mint);
    refused.is_problem(403, "blocked");
    assert!(refused.json()["fix"].as_str().unwrap().contains("hotcell token"), "{refused:?}");
    let more = json!({"token": token, "bounds": {"uses": 9}}).to_string();
    assert!([403, 422].contains(&server.post("/v1/tokens/narrow", &key, &more).status));

    // Somebody else of the same tenant, and a key that is for other things.
    let revoke = format!("/v1/tokens/{id}/revoke");
    let foreign = server.key("tokens");
    let none = good(&server, &foreign, "GET", "/v1/tokens", None);
    assert_eq!(none["tokens"], json!([]));
    server.post("/v1/tokens/narrow", &foreign, &narrow.to_string()).is_problem(403, "blocked");
    server.ask("POST", &revoke, Some(&foreign), "", None).is_problem(404, "not-found");
    let tools = server.key_with("tools", &["--subject", &whose]);
    server.get("/v1/tokens", Some(&tools)).is_problem(403, "wrong-scope");
    server.ask("POST", &revoke, Some(&tools), "", None).is_problem(403, "wrong-scope");

    assert_eq!(good(&server, &key, "POST", &revoke, None)["changed"], true);
    assert_eq!(good(&server, &key, "POST", &revoke, None)["changed"], false);
    let after = good(&server, &key, "GET", "/v1/tokens", None);
    let states: Vec<_> =
        after["tokens"].as_array().unwrap().iter().map(|one| &one["state"]).collect();
    assert!(states.iter().all(|state| *state == "revoked"), "{after}");
    server.post("/v1/tokens/narrow", &key, &narrow.to_string()).is_problem(403, "blocked");
}

#[test]
fn tools_and_the_policy_can_be_asked() {
    let server = Server::start();
    let key = server.key("admin");
    let get = |path: &str| good(&server, &key, "GET", path, None);
    let post = |path: &str, body: Value| good(&server, &key, "POST", path, Some(body));
    let all = get("/v1/tools")["tools"].as_array().unwrap().len();
    let some = get("/v1/tools?words=add")["tools"].as_array().unwrap().len();
    assert!(some > 0 && some < all);
    assert_eq!(get("/v1/tools/add")["name"], "add");
    let called = post("/v1/tools/add/call", json!({"arguments": {"a": 1, "b": 2}}));
    assert_eq!((&called["value"], &called["rules"]), (&json!(3), &json!(["pure-tools"])));

    assert!(get("/v1/policy")["version"].is_number());
    let rules = "rules:\n  - { name: sums, match: { tool: add }, action: allow }\n";
    let text = json!({"text": rules});
    assert_eq!(post("/v1/policy/check", json!({"rules": text}))["good"], true);
    let bad = post("/v1/policy/check", json!({"rules": {"text": "rules: 1"}}));
    assert!(bad["good"] == false && !bad["faults"].as_array().unwrap().is_empty(), "{bad}");
    let request = json!({"tool": "add", "arguments": {"a": 1, "b": 2}});
    let explained = post("/v1/policy/explain", json!({"request": request}));
    assert_eq!(explained["decision"], "allow", "{explained}");
    post("/v1/policy/compare", json!({"rules": text}));
    good(&server, &key, "POST", "/v1/policy/learn", None);
    let broken = json!({"rules": {"text": "rules: 1"}}).to_string();
    server.post("/v1/policy/compare", &key, &broken).is_problem(422, "invalid");
    let tests = server.post(
        "/v1/policy/test",
        &key,
        &json!({"rules": text, "tests": "nonsense: ["}).to_string(),
    );
    tests.is_problem(422, "invalid");
    let unsigned = json!({"rules": text, "signature": "x"}).to_string();
    let refused = server.ask("PUT", "/v1/policy", Some(&key), "", Some(&unsigned));
    assert!([403, 422].contains(&refused.status), "{refused:?}");
}

#[test]
fn what_somebody_has_to_agree_to_waits_and_is_withdrawn_or_carried_out() {
    let rules =
        "rules:\n  - { name: look, match: { tool: add }, action: require_review, reason: sums }\n";
    let server = Server::with_alice(rules);
    let key = server.key("admin");
    let sum = json!({"arguments": {"a": 1, "b": 2}}).to_string();
    let ask = || {
        let answer = server.post("/v1/tools/add/call", &key, &sum);
        assert_eq!(
            (answer.status, &answer.json()["status"]),
            (202, &json!("review")),
            "{answer:?}"
        );
        answer.json()["review"].as_str().unwrap().to_owned()
    };
    let item = ask();
    let items = good(&server, &key, "GET", "/v1/approvals?limit=5", None);
    assert_eq!(items["items"][0]["id"], item.as_str(), "{items}");
    let one = good(&server, &key, "GET", &format!("/v1/approvals/{item}"), None);
    assert_eq!((&one["state"], &one["tool"]), (&json!("waiting"), &json!("add@1.0.0")), "{one}");
    let forged = json!({"given": {"verdict": "approve", "time_ns": 1, "expires_ns": 2,
        "approver": "0".repeat(32), "signature": "0".repeat(128)}});
    let refused = server.post(&format!("/v1/approvals/{item}/answer"), &key, &forged.to_string());
    assert!([403, 422].contains(&refused.status), "{refused:?}");
    let withdrawn = good(&server, &key, "POST", &format!("/v1/approvals/{item}/withdraw"), None);
    assert_ne!(withdrawn["state"], "waiting", "{withdrawn}");
    let gone = server.ask("POST", &format!("/v1/approvals/{item}/await"), Some(&key), "", None);
    assert_eq!((gone.status, &gone.json()["status"]), (200, &json!("cancelled")), "{gone:?}");
    // Who waits and goes away has not withdrawn anything.
    let item = ask();
    let mut waits = server.connect();
    let head = server.head("POST", &format!("/v1/approvals/{item}/await"), Some(&key), "\r\n");
    std::io::Write::write_all(&mut waits, head.as_bytes()).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(300));
    drop(waits);
    let one = good(&server, &key, "GET", &format!("/v1/approvals/{item}"), None);
    assert_eq!(one["state"], "waiting", "{one}");
    // Somebody waits, somebody else agrees, and the call is carried out.
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| {
            server.ask("POST", &format!("/v1/approvals/{item}/await"), Some(&key), "", None)
        });
        let approve = server.command(&["approve", &item]);
        let (approved, screen) = at_terminal(&approve, &[("Passphrase of alice", PASSPHRASE)]);
        assert!(approved.status.success(), "{screen}");
        let answer = waits.join().unwrap();
        assert_eq!((answer.status, &answer.json()["value"]), (200, &json!(3)), "{answer:?}");
    });
}

#[test]
fn what_needs_no_key_is_cheap_and_tells_nothing_api_19() {
    let server = Server::start();
    assert_eq!(server.get("/healthz", None).json(), json!({"status": "ok"}));
    let ready = server.get("/readyz", None);
    let document = ready.json();
    assert_eq!(ready.status == 200, document["ready"] == true);
    assert_eq!(document["record"], "ok");
    let text = ready.text() + &server.get("/openapi.json", None).text();
    assert!(!text.contains(server.home().to_str().unwrap()) && !text.contains("hck_"));
    server.get("/metrics", None).is_problem(401, "no-key");
    server.get("/metrics", Some(&server.key("run"))).is_problem(403, "wrong-scope");
    let metrics = server.get("/metrics", Some(&server.key("metrics")));
    assert_eq!(metrics.status, 200);
    assert!(metrics.text().contains("hotcell_requests_total{route=\"readiness\""), "{metrics:?}");
}

#[test]
fn readiness_says_that_nothing_can_be_run() {
    let server = Server::powerless();
    let key = server.key("run,tools");
    let ready = server.get("/readyz", None);
    let told = ready.json();
    assert_eq!((ready.status, &told["ready"]), (503, &json!(false)), "{told}");
    assert_eq!((&told["sandbox"], &told["level"]), (&json!("refused"), &json!(null)), "{told}");
    assert_eq!((&told["record"], &told["policy"]), (&json!("ok"), &json!("ok")), "{told}");
    // It is true: nothing is run at any lower level, and what needs no sandbox is done.
    let run = json!({"run": {"command": ["true"]}}).to_string();
    server.post("/v1/runs", &key, &run).is_problem(503, "refused");
    let sum = json!({"arguments": {"a": 1, "b": 2}}).to_string();
    assert_eq!(server.post("/v1/tools/add/call", &key, &sum).status, 200);
    assert_eq!(server.get("/healthz", None).status, 200);
}

#[test]
fn readiness_says_what_cannot_be_done() {
    let server = Server::start();
    let key = server.key("tools");
    // Nobody can write while another process holds the lock.
    let database = rusqlite::Connection::open(server.home().join("hotcell.db")).unwrap();
    database.execute_batch("BEGIN EXCLUSIVE").unwrap();
    std::thread::sleep(std::time::Duration::from_millis(1200));
    let ready = server.get("/readyz", None);
    assert_eq!((ready.status, &ready.json()["record"]), (503, &json!("not writable")), "{ready:?}");
    assert_eq!(server.get("/healthz", None).status, 200);
    database.execute_batch("ROLLBACK").unwrap();
    let begun = std::time::Instant::now();
    while server.get("/readyz", None).json()["record"] != "ok" {
        assert!(begun.elapsed() < crate::support::LONG);
    }
    assert_eq!(server.get("/v1/tools", Some(&key)).status, 200);
}
