//! The official SDKs as clients: of `hotcell mcp`, of `hotcell mcp` while a server has the home, and of that
//! server over HTTP. They come from npm and from the Python package index; where
//! they cannot be had, that is said.

#[path = "../programs/binary.rs"]
mod binary;
mod served;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use binary::binary;
use served::{Server, has_sandbox, package, skip};

fn here(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("mcp").join(name)
}

/// How a client gets there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// `hotcell mcp` with an engine of its own.
    Alone,
    /// `hotcell mcp`, while somebody serves the same home.
    Served,
    /// `/mcp` of that server.
    Http,
}

/// Runs a client, which prints what it saw. It is the same for all of them, on every way.
fn check(what: &str, way: Way, client: impl FnOnce(&Path) -> Result<Command, String>) {
    let dir = tempfile::tempdir().unwrap();
    let (home, work) = (dir.path().join("home"), dir.path().join("work"));
    fs::create_dir(&home).unwrap();
    fs::create_dir(&work).unwrap();
    fs::write(home.join("config.toml"), "min_level = \"landlock-only\"\n").unwrap();
    fs::write(work.join("a.txt"), "hello\n").unwrap();
    if !has_sandbox(&home) {
        return skip(what, "no sandbox on this host");
    }
    let mut command = match client(dir.path()) {
        Ok(command) => command,
        Err(why) => return skip(what, &why),
    };
    let server = (way != Way::Alone).then(|| Server::start(&home, &work));
    match &server {
        Some(server) if way == Way::Http => command
            .arg(format!("{}/mcp", server.url))
            .arg(Server::key(&home, "tools,run,artifacts:read")),
        _ => command.arg(binary()),
    };
    command.env("HOTCELL_HOME", &home).current_dir(&work);
    let output = command.output().unwrap();
    // Python spells them with capital letters.
    let told =
        String::from_utf8_lossy(&output.stdout).replace("True", "true").replace("False", "false");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}\n{errors}");
    let expected = "\
server hotcell
tools true true false
add 3
read hello
code 42
image image/png
link artifact content
refused true true
progress true
cancelled true
end
";
    assert_eq!(told, expected, "{errors}");
}

fn python(way: Way) {
    check("the Python SDK", way, |_| {
        let mut command = Command::new(package("python")?.join("bin/python"));
        command.arg(here("client.py"));
        Ok(command)
    });
}

fn typescript(way: Way) {
    check("the TypeScript SDK", way, |dir| {
        let place = package("node")?;
        // Modules are looked for from where the file is, and it need not be ours to write to.
        fs::copy(here("client.mjs"), dir.join("client.mjs")).unwrap();
        symlink(place.join("node_modules"), dir.join("node_modules")).unwrap();
        let mut command = Command::new(place.join("node"));
        command.arg(dir.join("client.mjs"));
        Ok(command)
    });
}

#[test]
fn the_python_sdk() {
    python(Way::Alone);
}

#[test]
fn the_python_sdk_while_somebody_serves_the_home() {
    python(Way::Served);
}

#[test]
fn the_python_sdk_over_http() {
    python(Way::Http);
}

#[test]
fn the_typescript_sdk() {
    typescript(Way::Alone);
}

#[test]
fn the_typescript_sdk_while_somebody_serves_the_home() {
    typescript(Way::Served);
}

#[test]
fn the_typescript_sdk_over_http() {
    typescript(Way::Http);
}
