//! What the checks of the repository share. They read files and ask cargo and git; nothing here is
//! part of the product.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The root of the repository.
pub fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    root.canonicalize().expect("the repository is there")
}

/// What a command prints, from the root of the repository; it must succeed.
pub fn output_of(command: &mut Command) -> String {
    let output = command.current_dir(root()).output().expect("the command can be started");
    assert!(
        output.status.success(),
        "{command:?} failed\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("it prints UTF-8")
}

pub fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // What cargo says of the test's own package is not for another build: build scripts that look at it (ring's)
    // would run again, and everything that needs them be built anew.
    let names = std::env::vars_os().map(|(name, _)| name);
    let is_own = |name: &OsString| {
        let name = name.to_string_lossy();
        name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
    };
    for name in names.filter(is_own) {
        cargo.env_remove(name);
    }
    cargo
}

/// Every file that belongs to the repository, by its path from the root: tracked, or new and not
/// ignored. `None` outside a git clone.
pub fn files() -> Option<Vec<String>> {
    let mut git = Command::new("git");
    git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let listed = git.current_dir(root()).output().ok().filter(|o| o.status.success())?;
    let text = String::from_utf8(listed.stdout).expect("names are UTF-8");
    let names = text.split('\0').filter(|name| !name.is_empty() && root().join(name).is_file());
    Some(names.map(str::to_owned).collect())
}

/// Says on the terminal, whatever the test harness captures, that something was not checked.
pub fn skip(what: &str, why: &str) {
    use std::io::Write;
    let line = format!("SKIPPED {what}: {why}\n");
    // What goes through `eprintln` is captured; what goes through the descriptor is not.
    let stderr = std::os::fd::AsFd::as_fd(&std::io::stderr()).try_clone_to_owned();
    let mut stderr = std::fs::File::from(stderr.expect("stderr is open"));
    stderr.write_all(line.as_bytes()).expect("stderr can be written");
}

/// What the build of the product says about itself, message by message. The profile is that of
/// `HOTCELL_TEST_PROFILE`, `release` without it.
pub fn build_messages() -> Vec<Value> {
    let profile = std::env::var("HOTCELL_TEST_PROFILE").unwrap_or_else(|_| "release".into());
    let text = output_of(
        cargo()
            .args(["build", "--quiet", "--locked", "--package", "hotcell", "--profile", &profile])
            .arg("--message-format=json"),
    );
    text.lines().map(|line| serde_json::from_str(line).expect("cargo prints JSON")).collect()
}

/// The binary under test: `HOTCELL_BIN`, or the one that was just built.
pub fn binary() -> PathBuf {
    if let Some(path) = std::env::var_os("HOTCELL_BIN") {
        return path.into();
    }
    built(&build_messages())
}

/// The binary `hotcell` among the messages of its build.
pub fn built(messages: &[Value]) -> PathBuf {
    let paths = messages.iter().filter(|m| m["target"]["name"] == "hotcell");
    match paths.filter_map(|m| m["executable"].as_str()).next() {
        Some(path) => path.into(),
        None => panic!("cargo built no `hotcell`"),
    }
}
