//! The official SDKs as clients of `hotcell mcp`. They come from npm and from the Python package index; where
//! they cannot be had, that is said.

#[path = "../programs/binary.rs"]
mod binary;

use std::fs;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use binary::binary;

fn skip(what: &str, why: &str) {
    let line = format!("SKIPPED {what}: {why}\n");
    // The harness captures what goes through `eprintln`, not what goes through the descriptor.
    let stderr = std::io::stderr().as_fd().try_clone_to_owned().unwrap();
    fs::File::from(stderr).write_all(line.as_bytes()).unwrap();
}

fn here(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("mcp").join(name)
}

/// Where an SDK is, or why it is not there.
fn sdk(name: &str) -> Result<PathBuf, String> {
    let made = Command::new(here("setup")).arg(name).output().map_err(|error| error.to_string())?;
    if !made.status.success() {
        let text = String::from_utf8_lossy(&made.stderr);
        return Err(text.lines().last().unwrap_or("setup failed").to_owned());
    }
    Ok(PathBuf::from(String::from_utf8(made.stdout).unwrap().trim_end()))
}

/// Whether anything can be run here.
fn has_sandbox(home: &Path) -> bool {
    let run = Command::new(binary()).args(["run", "--", "true"]).env("HOTCELL_HOME", home).output();
    run.unwrap().status.success()
}

/// Runs a client, which prints what it saw. It is the same for all of them.
fn check(what: &str, client: impl FnOnce(&Path) -> Result<Command, String>) {
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
    command.arg(binary()).env("HOTCELL_HOME", &home).current_dir(&work);
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

#[test]
fn the_python_sdk() {
    check("the Python SDK", |_| {
        let mut command = Command::new(sdk("python")?.join("bin/python"));
        command.arg(here("client.py"));
        Ok(command)
    });
}

#[test]
fn the_typescript_sdk() {
    check("the TypeScript SDK", |dir| {
        let place = sdk("node")?;
        // Modules are looked for from where the file is, and it need not be ours to write to.
        fs::copy(here("client.mjs"), dir.join("client.mjs")).unwrap();
        symlink(place.join("node_modules"), dir.join("node_modules")).unwrap();
        let mut command = Command::new(place.join("node"));
        command.arg(dir.join("client.mjs"));
        Ok(command)
    });
}
