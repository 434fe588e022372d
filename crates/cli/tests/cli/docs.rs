//! docs/cli.md is the help of each command, and the help is the one source of it.

use crate::support::{World, same_as_file};

const COMMANDS: &[&str] = &[
    "",
    "run",
    "batch",
    "doctor",
    "tool",
    "tool ls",
    "tool search",
    "tool show",
    "tool call",
    "policy",
    "policy check",
    "policy explain",
    "policy test",
    "policy show",
    "policy update",
    "policy learn",
    "policy sign",
    "init",
    "serve",
    "runs",
    "runs show",
    "logs",
    "replay",
    "audit",
    "audit log",
    "audit verify",
    "audit export",
    "approvals",
    "approvals ls",
    "approvals show",
    "approvals wait",
    "approvals cancel",
    "approve",
    "reject",
    "approver",
    "approver new",
    "approver show",
    "artifact",
    "artifact ls",
    "artifact get",
    "artifact lineage",
    "artifact verify",
    "artifact tag",
    "artifact judge",
    "artifact export",
    "artifact rollback",
    "sandbox",
    "sandbox create",
    "sandbox exec",
    "sandbox cp",
    "sandbox diff",
    "sandbox apply",
    "sandbox pause",
    "sandbox resume",
    "sandbox restart",
    "sandbox stop",
    "sandbox rm",
    "sandbox ls",
    "sandbox inspect",
    "env",
    "env create",
    "env ls",
    "env show",
    "env rm",
    "token",
    "token mint",
    "token ls",
    "token revoke",
    "token narrow",
    "token rotate",
    "key",
    "key create",
    "key ls",
    "key revoke",
    "secret",
    "secret set",
    "secret ls",
    "secret rm",
    "mcp",
    "gc",
    "backup",
    "restore",
    "template",
    "template ls",
    "config",
    "config show",
    "resident",
    "resident start",
    "resident stop",
    "resident status",
    "resident serve",
    "completions",
];

#[test]
fn the_reference_is_the_help() {
    let world = World::new();
    let mut text = String::from(
        "# The command line\n\nMade from `--help` by the tests (`UPDATE_DOCS=1 cargo test -p hotcell`); \
         do not edit. What `--json` prints is in [result.md](result.md).\n",
    );
    for command in COMMANDS {
        let mut words: Vec<&str> = command.split_whitespace().collect();
        words.push("--help");
        let output = world.run(&words);
        assert!(output.status.success() && output.stderr.is_empty(), "{command}: {output:?}");
        let name = format!("hotcell {command}");
        let help = String::from_utf8(output.stdout).unwrap();
        for inner in commands(&help).map(|inner| format!("{command} {inner}")) {
            assert!(COMMANDS.contains(&inner.trim()), "`{inner}` is not in the reference");
        }
        text.push_str(&format!("\n## {}\n\n```text\n{}\n```\n", name.trim(), help.trim_end()));
    }
    same_as_file("docs/cli.md", &text);
}

/// Those that a help lists.
fn commands(help: &str) -> impl Iterator<Item = &str> {
    let listed = help.split_once("\nCommands:\n").map_or("", |(_, rest)| rest);
    let listed = listed.split("\n\n").next().unwrap_or_default();
    let named = listed.lines().filter_map(|line| line.strip_prefix("  "));
    named.filter(|line| !line.starts_with(' ')).filter_map(|line| line.split(' ').next())
}

#[test]
fn short_help_lists_the_exits_as_well() {
    let output = World::new().run(&["run", "-h"]);
    let help = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success());
    for number in ["120", "121", "122", "123", "124", "125", "126", "127", "128+N", "130"] {
        assert!(help.contains(&format!("\n  {number} ")), "{number} is missing");
    }
}

#[test]
fn completions_name_the_options() {
    let world = World::new();
    for shell in ["bash", "zsh", "fish"] {
        let output = world.run(&["completions", shell]);
        assert!(output.status.success(), "{shell}");
        let script = String::from_utf8(output.stdout).unwrap();
        assert!(script.contains("output-dir") && script.contains("max-output"), "{shell}");
    }
}
