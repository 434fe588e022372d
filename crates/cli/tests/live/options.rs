//! The options that are no limits, and the shape of the document.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use crate::support::World;

#[test]
fn the_environment_is_built_and_not_inherited() {
    let Some(world) = World::new() else { return };
    let code = "import os; print('SECRET' in os.environ, os.environ['A'], os.environ['B'] == '', os.environ['PATH'], os.environb[b'C'].hex())";
    let mut words: Vec<std::ffi::OsString> =
        ["run", "--env", "A=b=c d", "--env", "B=", "--env", "PATH=/usr/bin", "--env"]
            .map(Into::into)
            .to_vec();
    words.push(std::os::unix::ffi::OsStringExt::from_vec(b"C=\xff\n".to_vec()));
    words.extend(["--lang", "python", "-c", code].map(Into::into));
    let mut command = world.command(&words);
    command.env("SECRET", "x");
    crate::support::Started::new(command).finish(crate::support::LONG).is(
        0,
        "False b=c d True /usr/bin ff0a\n",
        "",
    );
    let listed = world.code(&[], "shell", "env | cut -d= -f1 | sort").text();
    for name in ["HOME", "LANG", "PATH", "TMPDIR"] {
        assert!(listed.lines().any(|line| line == name), "{listed}");
    }
    for name in ["HOTCELL_HOME", "USER", "SSH_AUTH_SOCK"] {
        assert!(!listed.lines().any(|line| line == name), "{listed}");
    }
}

#[test]
fn files_code_standard_input_and_commands_all_run() {
    let Some(world) = World::new() else { return };
    world.file("a.py", b"import sys; print('py', sys.argv[1:])");
    world.file("a.js", b"console.log('js', process.argv.slice(2).join())");
    world.file("a.sh", b"echo sh \"$@\"");
    world.file("shebang", b"#!/usr/bin/env -S python3 -X dev\nprint('shebang')");
    world.run(&["run", "a.py", "-x", "--json"]).is(0, "py ['-x', '--json']\n", "");
    world.run(&["run", "a.sh", "--", "two words"]).is(0, "sh -- two words\n", "");
    world.run(&["run", "shebang"]).is(0, "shebang\n", "");
    world
        .run(&["run", "--lang", "py", "-c", "import sys; print(sys.argv[1:])", "x"])
        .is(0, "['x']\n", "");
    world.run(&["run", "--", "echo", "-n", "--json"]).is(0, "--json", "");
    let node = world.run(&["run", "a.js", "x", "y"]);
    if node.code == 127 && node.errors().contains("no interpreter") {
        crate::support::skip("there is no node");
    } else {
        node.is(0, "js x,y\n", "");
    }
}

#[test]
fn each_template_gives_its_limits_and_profile() {
    let Some(world) = World::new() else { return };
    for (name, memory, pids, profile) in [
        ("ai-provider", 256_u64 << 20, "10", "strict"),
        ("code-executor", 1 << 30, "100", "standard"),
        ("policy-sandbox", 128 << 20, "5", "strict"),
        ("integration-test", 1 << 30, "100", "standard-net"),
        ("tool", 512 << 20, "64", "standard"),
    ] {
        // One of them has 100 ms, which a busy machine may need to start a shell.
        let words = ["--template", name, "--timeout", "20s"];
        let report =
            world.json(&words, "shell", "echo hello; { /bin/true && echo executed; } 2> /dev/null");
        let text = report["stdout"]["text"].as_str().unwrap();
        let expected = if profile == "strict" { "hello\n" } else { "hello\nexecuted\n" };
        assert_eq!(text, expected, "{name}: {report}");
        let seen = |layer: &str| {
            let layers = report["layers"].as_array().unwrap();
            layers.iter().find(|l| l["layer"] == layer).unwrap()["seen"]
                .as_str()
                .unwrap()
                .to_owned()
        };
        assert!(
            seen("seccomp").contains(&format!("profile {profile},")),
            "{name}: {}",
            seen("seccomp")
        );
        if ["full", "user"].contains(&report["level"].as_str().unwrap()) {
            assert!(
                seen("cgroup-memory").contains(&memory.to_string()),
                "{name}: {}",
                seen("cgroup-memory")
            );
            assert!(
                seen("cgroup-pids").ends_with(&format!("={pids}")),
                "{name}: {}",
                seen("cgroup-pids")
            );
        }
    }
}

#[test]
fn the_document_has_the_shape_of_the_documentation() {
    let Some(world) = World::new() else { return };
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/result.md");
    let docs = std::fs::read_to_string(docs).unwrap();
    let example = docs.split("```json\n").nth(1).unwrap().split("```").next().unwrap();
    let example: Value = serde_json::from_str(example).unwrap();
    let code = "seq 9; ln -s a link; printf x > file; python3 -c 'import ctypes; ctypes.CDLL(None).ptrace(0, 0, 0, 0)'; kill -9 $$";
    let ran = world.code(&["--json", "--max-output", "4"], "shell", code);
    assert_eq!(ran.stdout.iter().filter(|&&b| b == b'\n').count(), 1, "one line");
    let report = ran.json();
    let (mut expected, mut got) = (BTreeSet::new(), BTreeSet::new());
    fields("", &example, &mut expected);
    fields("", &report, &mut got);
    assert_eq!(got, expected);
    assert_eq!(report["blocked_syscalls"][0]["name"], "ptrace", "{report}");
    assert!(report["layers"].as_array().unwrap().iter().all(|l| l["active"].is_boolean()));
    let stages: Vec<&str> = report["timings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|t| t["stage"].as_str().unwrap())
        .collect();
    assert_eq!(stages, ["prepare", "build", "attest", "execute", "finish"]);
}

/// The paths of all fields; lists count as one element.
fn fields(prefix: &str, value: &Value, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            map.iter().for_each(|(key, value)| fields(&format!("{prefix}/{key}"), value, into))
        }
        Value::Array(list) => {
            list.iter().for_each(|value| fields(&format!("{prefix}[]"), value, into))
        }
        _ => {
            into.insert(prefix.into());
        }
    }
}

#[test]
fn what_is_measured_is_plausible() {
    let Some(world) = World::with_cgroups() else { return };
    let code = "import threading, time
block = bytearray(50 << 20)
threads = [threading.Thread(target=time.sleep, args=(0.1,)) for _ in range(5)]
for t in threads: t.start()
open('file', 'wb').write(bytes(1 << 20))
end = time.process_time() + 0.2
while time.process_time() < end: pass
time.sleep(0.1)";
    let usage = &world.json(&[], "python", code)["usage"];
    let between = |field: &str, least: u64, most: u64| {
        let n = usage[field].as_u64().unwrap_or_else(|| panic!("{field}: {usage}"));
        assert!((least..=most).contains(&n), "{field}: {usage}");
    };
    between("wall_ms", 300, 5000);
    between("cpu_ms", 200, 2000);
    between("peak_memory_bytes", 50 << 20, 120 << 20);
    between("peak_pids", 6, 10);
    between("written_bytes", 1 << 20, (1 << 20) + (64 << 10));
    between("oom_kills", 0, 0);
}
