//! What a client can use: tools, code, artifacts, and what is told about them.

use std::fs;

use serde_json::{Value, json};

use crate::client::{World, hello, text, write};
use crate::person;

fn names(list: &Value) -> Vec<String> {
    let tools = list["result"]["tools"].as_array().unwrap();
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

fn tool(list: &Value, name: &str) -> Value {
    let tools = list["result"]["tools"].as_array().unwrap();
    tools.iter().find(|tool| tool["name"] == name).unwrap_or_else(|| panic!("no {name}")).clone()
}

#[test]
fn those_that_the_policy_could_allow_are_listed_with_schemas_and_hints() {
    let mut client = World::new().client(&[]);
    let list = client.ask("tools/list", json!({}));
    let all = names(&list);
    for there in ["run_code", "read_artifact", "await_approval", "add", "fs-read", "shell-run"] {
        let expected = there != "shell-run";
        assert_eq!(all.contains(&there.to_owned()), expected, "{there} {all:?}");
    }
    let inner = ["run", "code_execute", "fs-change", "net-connect"];
    for never in inner.into_iter().chain(["fs-write", "fs.read", "search_tools"]) {
        assert!(!all.contains(&never.to_owned()), "{never}");
    }
    let read = tool(&list, "fs-read");
    assert_eq!(read["annotations"]["readOnlyHint"], true);
    assert_eq!(read["inputSchema"]["type"], "object");
    assert_eq!(read["outputSchema"]["type"], "object");
    let run = tool(&list, "run_code");
    assert_eq!(run["annotations"]["readOnlyHint"], false);
    assert_eq!(run["annotations"]["openWorldHint"], false);
    assert!(run["inputSchema"]["properties"]["code"].is_object(), "{run}");
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    assert!(all.iter().all(|name| name.len() <= 64 && name.chars().all(is_plain)));
}

#[test]
fn a_call_is_answered_with_text_and_with_structure() {
    let world = World::new();
    write(&world.work().join("a.txt"), "hello\n");
    let mut client = world.client(&[]);
    let result = client.call("fs-read", json!({ "path": "a.txt" }));
    assert_eq!(result["isError"], false, "{result}");
    assert_eq!(result["structuredContent"]["text"], "hello\n", "{result}");
    // A text is told as it is.
    let result = client.call("uppercase", json!({ "text": "ä" }));
    assert_eq!(text(&result), "Ä", "{result}");
    // hotcell's own spelling is understood.
    assert_eq!(client.call("fs.exists", json!({ "path": "a.txt" }))["isError"], false);
}

#[test]
fn what_is_refused_or_wrong_says_why_and_what_would_help() {
    let mut client = World::new().client(&[]);
    let result = client.call("fs-write", json!({ "path": "a", "text": "b" }));
    assert_eq!(
        (result["isError"].clone(), result["_meta"]["hotcell/status"].clone()),
        (json!(true), json!("blocked"))
    );
    let told = text(&result);
    assert!(told.contains("why: no rule allows it") && told.contains("fix: "), "{told}");
    for (name, arguments) in [
        ("add", json!({ "a": 1 })),
        ("add", json!({ "a": 1, "b": 2, "sandbox": false })),
        ("run_code", json!({ "code": "x", "privileged": true })),
        ("run_code", json!({})),
        ("run_code", json!({ "language": "cobol", "code": "x" })),
        ("read_artifact", json!({ "uri": "file:///etc/passwd" })),
        ("read_artifact", json!({ "uri": "artifact://01ARZ3NDEKTSV4RRFFQ69G5FAV" })),
        ("await_approval", json!({ "item": "x" })),
    ] {
        let result = client.call(name, arguments.clone());
        assert_eq!(result["isError"], true, "{name} {arguments}: {result}");
        assert!(text(&result).starts_with("error: "), "{result}");
    }
    let unknown = client.ask("tools/call", json!({ "name": "no-such" }));
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
    let denied = client.ask("tools/call", json!({ "name": "../../etc" }));
    assert_eq!(denied["error"]["code"], -32602, "{denied}");
}

#[test]
fn code_runs_in_a_sandbox_and_what_it_made_can_be_read() {
    let Some(world) = World::with_sandbox() else { return };
    let mut client = world.client(&[]);
    let code = "import sys\nprint(sys.stdin.read(), open('in.txt').read())\nopen('out.bin', 'wb').write(bytes(range(256)))";
    let result = client.call(
        "run_code",
        json!({ "language": "python", "code": code, "stdin": "one",
            "files": [{ "name": "in.txt", "text": "two" }], "limits": { "timeout": "20s" } }),
    );
    assert_eq!(result["structuredContent"]["stdout"], "one two\n", "{result}");
    let blocks = result["content"].as_array().unwrap();
    let link = blocks.iter().find(|block| block["type"] == "resource_link").unwrap();
    assert_eq!((&link["name"], &link["size"]), (&json!("out.bin"), &json!(256)), "{link}");
    let uri = link["uri"].as_str().unwrap();
    let read = client.ask("resources/read", json!({ "uri": uri }));
    let contents = &read["result"]["contents"][0];
    assert_eq!(contents["uri"], uri);
    assert!(contents["blob"].as_str().unwrap().starts_with("AAECAwQF"), "{contents}");
    let part = client.ask("resources/read", json!({ "uri": format!("{uri}?from=65&length=3") }));
    assert_eq!(part["result"]["contents"][0]["text"], "ABC", "{part}");
    // A program that fails is a result that the model can read.
    let result =
        client.call("run_code", json!({ "language": "shell", "code": "echo no >&2; exit 3" }));
    assert_eq!(result["isError"], true);
    assert_eq!(result["structuredContent"]["exit_code"], 3, "{result}");
}

#[test]
fn images_are_images_and_large_output_is_a_link_with_its_beginning_and_end() {
    let Some(world) = World::with_sandbox() else { return };
    let mut client = world.client(&[]);
    let code = "import base64\nb = base64.b64decode('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==')\nopen('a.png','wb').write(b)\nopen('false.png','w').write('<script>')\nopen('b.svg','w').write('<svg/>')\nprint('begin' + 'x' * 100000 + 'end')";
    let result = client.call("run_code", json!({ "language": "python", "code": code }));
    let blocks = result["content"].as_array().unwrap();
    let images: Vec<&Value> = blocks.iter().filter(|block| block["type"] == "image").collect();
    assert_eq!(images.len(), 1, "{result}");
    assert_eq!(images[0]["mimeType"], "image/png");
    let drawing = blocks.iter().find(|block| block["type"] == "resource").unwrap();
    assert_eq!(drawing["resource"]["text"], "<svg/>");
    let stdout = result["structuredContent"]["stdout"].as_str().unwrap();
    assert!(stdout.len() < 20_000 && stdout.starts_with("beginx") && stdout.ends_with("xend\n"));
    let is_address = |word: &&str| word.starts_with("artifact://");
    let uri = stdout.split_whitespace().find(is_address).unwrap();
    assert!(blocks.iter().any(|block| block["uri"] == uri), "{uri}");
    // The whole of it, in the parts in which a model reads it.
    let first = client.call("read_artifact", json!({ "uri": uri }));
    assert!(text(&first).contains("?from=65536"), "{:.200}", text(&first));
    let rest = client.call("read_artifact", json!({ "uri": uri, "from": 65536 }));
    assert!(text(&rest).ends_with("xend\n"));
}

#[test]
fn artifacts_are_listed_in_pages_and_completed() {
    let world = World::new();
    let mut client = world.client(&[]);
    let empty = client.ask("resources/list", json!({}));
    assert_eq!(empty["result"]["resources"], json!([]), "{empty}");
    let templates = client.ask("resources/templates/list", json!({}));
    let template = templates["result"]["resourceTemplates"][0]["uriTemplate"].clone();
    assert_eq!(template, "artifact://{id}{?from,length}");
    let bad = client.ask("resources/list", json!({ "cursor": "no such" }));
    assert_eq!(bad["error"]["code"], -32602, "{bad}");
    let gone =
        client.ask("resources/read", json!({ "uri": "artifact://01ARZ3NDEKTSV4RRFFQ69G5FAV" }));
    assert_eq!(gone["error"]["code"], -32002, "{gone}");
    let Some(world) = World::with_sandbox() else { return };
    let mut client = world.client(&[]);
    let code = "for i in $(seq 60); do echo $i > f$i; done";
    for _ in 0..2 {
        client.call("run_code", json!({ "language": "shell", "code": code }));
    }
    let first = client.ask("resources/list", json!({}));
    let next = first["result"]["nextCursor"].as_str().unwrap();
    let second = client.ask("resources/list", json!({ "cursor": next }));
    let uris = |list: &Value| -> Vec<String> {
        let all = list["result"]["resources"].as_array().unwrap();
        all.iter().map(|one| one["uri"].as_str().unwrap().to_owned()).collect()
    };
    let (first, second) = (uris(&first), uris(&second));
    assert_eq!(first.len(), 100);
    assert!(second.len() >= 20 && second.iter().all(|uri| !first.contains(uri)));
    let id = first[0].strip_prefix("artifact://").unwrap();
    let completed = client.ask(
        "completion/complete",
        json!({ "ref": { "type": "ref/resource", "uri": template },
            "argument": { "name": "id", "value": id } }),
    );
    assert_eq!(completed["result"]["completion"]["values"], json!([id]), "{completed}");
}

#[test]
fn many_tools_are_found_described_and_called() {
    for words in [&["--search"][..], &["--many", "5"]] {
        let world = World::new();
        let mut client = world.client(words);
        let list = client.ask("tools/list", json!({}));
        let expected = [
            "await_approval",
            "call_tool",
            "describe_tool",
            "read_artifact",
            "run_code",
            "search_tools",
        ];
        assert_eq!(names(&list), expected);
        let found = client.call("search_tools", json!({ "query": "square root" }));
        assert_eq!(found["structuredContent"]["tools"][0]["name"], "sqrt", "{found}");
        let told = client.call("describe_tool", json!({ "name": "fs-read" }));
        assert_eq!(told["structuredContent"]["inputSchema"]["type"], "object", "{told}");
        let called = client.call("call_tool", json!({ "name": "sqrt", "arguments": { "x": 9 } }));
        let wrong = text(&called);
        let argument = told_argument(&mut client, "sqrt");
        let called =
            client.call("call_tool", json!({ "name": "sqrt", "arguments": { argument: 9 } }));
        assert_eq!(text(&called), "3", "{called} {wrong}");
        // What the caller can never use is not found, and refused like anything else.
        let found = client.call("search_tools", json!({ "query": "write file" }));
        assert!(!found.to_string().contains("fs-write"), "{found}");
        assert_eq!(client.call("describe_tool", json!({ "name": "fs-write" }))["isError"], true);
        let arguments = json!({ "name": "fs-write", "arguments": { "path": "a", "text": "b" } });
        assert_eq!(client.call("call_tool", arguments)["isError"], true);
        let around = json!({ "name": "call_tool", "arguments": { "name": "call_tool" } });
        assert_eq!(client.call("call_tool", around)["isError"], true);
        assert!(!world.work().join("a").exists());
    }
}

fn told_argument(client: &mut crate::client::Client, name: &str) -> String {
    let told = client.call("describe_tool", json!({ "name": name }));
    let properties = told["structuredContent"]["inputSchema"]["properties"].as_object().unwrap();
    properties.keys().next().unwrap().clone()
}

#[test]
fn a_client_hears_how_far_a_run_is_and_how_calls_end() {
    let Some(world) = World::with_sandbox() else { return };
    let mut client = world.client(&[]);
    assert_eq!(client.ask("logging/setLevel", json!({ "level": "info" }))["result"], json!({}));
    let id = client.begin(
        "tools/call",
        json!({ "name": "run_code", "_meta": { "progressToken": "token" },
            "arguments": { "language": "shell", "code": "echo 12345; sleep 2.5" } }),
    );
    client.answer(id);
    let told: Vec<&Value> =
        client.kept().filter(|one| one["method"] == "notifications/progress").collect();
    assert!(told.len() >= 2, "{told:?}");
    assert!(told.iter().all(|one| one["params"]["progressToken"] == "token"));
    let numbers: Vec<f64> =
        told.iter().map(|one| one["params"]["progress"].as_f64().unwrap()).collect();
    assert!(numbers.windows(2).all(|two| two[0] < two[1]), "{numbers:?}");
    assert!(told.iter().any(|one| one.to_string().contains("6 bytes printed")), "{told:?}");
    let logged = client.kept().find(|one| one["method"] == "notifications/message").unwrap();
    assert_eq!(logged["params"]["data"]["status"], "success");
    let level = client.ask("logging/setLevel", json!({ "level": "loud" }));
    assert_eq!(level["error"]["code"], -32602, "{level}");
}

#[test]
fn a_client_hears_when_the_policy_gives_it_other_tools() {
    let world = World::new();
    let mut client = world.client(&[]);
    let before = names(&client.ask("tools/list", json!({})));
    let rules =
        "version: 1\nrules:\n  - { name: a, match: { operation: fs.write }, action: allow }\n";
    person::follow(&world.home(), &[], rules);
    client.until(|one| one["method"] == "notifications/tools/list_changed");
    let after = names(&client.ask("tools/list", json!({})));
    assert!(!before.contains(&"fs-write".into()) && after.contains(&"fs-write".into()));
    assert!(before.contains(&"add".into()) && !after.contains(&"add".into()), "{after:?}");
}

#[test]
fn calls_are_made_for_whom_the_server_was_started_and_through_this_door() {
    let world = World::new();
    let rules = "version: 1\nidentities: [{ subject: robot, tags: [trusted] }]\nrules:\n  - { name: a, match: { tag: trusted, door: mcp, effect: pure }, action: allow }\n";
    person::follow(&world.home(), &[], rules);
    for (words, allowed) in [(&["--subject", "robot"][..], true), (&[], false)] {
        let mut client = world.client(words);
        let there = names(&client.ask("tools/list", json!({}))).contains(&"add".into());
        assert_eq!(there, allowed, "{words:?}");
        let result = client.call("add", json!({ "a": 1, "b": 2 }));
        assert_eq!(result["isError"], !allowed, "{result}");
    }
    let events = world.run(&["audit", "log", "--json"]);
    let events = String::from_utf8(events.stdout).unwrap();
    assert!(events.contains("\"mcp\"") && events.contains("\"robot\""), "{events}");
}

#[test]
fn the_workspace_is_the_current_directory_or_the_one_that_is_named() {
    let world = World::new();
    write(&world.work().join("here"), "1");
    let other = world.work().join("other");
    fs::create_dir(&other).unwrap();
    write(&other.join("there"), "2");
    assert_eq!(world.client(&[]).call("fs-read", json!({ "path": "here" }))["isError"], false);
    let mut client = world.client(&["--workspace", "other"]);
    assert_eq!(client.call("fs-read", json!({ "path": "there" }))["isError"], false);
    assert_eq!(client.call("fs-read", json!({ "path": "../here" }))["isError"], true);
    // Above hotcell's own home there is none, and everything else works.
    let mut command = world.command(&["mcp"]);
    command.current_dir("/");
    let mut client = world.started(command);
    assert_eq!(client.call("add", json!({ "a": 1, "b": 2 }))["isError"], false);
    assert_eq!(client.call("fs-read", json!({ "path": "etc/hostname" }))["isError"], true);
}

#[test]
fn a_client_of_2026_07_28_needs_no_handshake() {
    let mut client = World::new().silent(&[]);
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let found = client.ask("server/discover", json!({ "_meta": meta }));
    let versions = found["result"]["supportedVersions"].as_array().unwrap();
    assert!(versions.contains(&json!("2026-07-28")), "{found}");
    let called = client.ask(
        "tools/call",
        json!({ "name": "add", "arguments": { "a": 1, "b": 2 }, "_meta": meta }),
    );
    assert_eq!(called["result"]["resultType"], "complete", "{called}");
    assert_eq!(called["result"]["content"][0]["text"], "3", "{called}");
}

#[test]
fn older_clients_are_answered_in_their_version() {
    for (asked, answered) in [
        ("2025-11-25", "2025-11-25"),
        ("2025-06-18", "2025-06-18"),
        ("2024-11-05", "2024-11-05"),
        ("1999-01-01", "2025-11-25"),
    ] {
        let mut client = World::new().silent(&[]);
        let mut said = hello(json!({}));
        said["protocolVersion"] = asked.into();
        let heard = client.ask("initialize", said);
        assert_eq!(heard["result"]["protocolVersion"], answered, "{heard}");
    }
}
