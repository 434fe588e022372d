//! What `#[tool]` says about functions that cannot be tools.

use std::process::Command;

#[test]
fn a_function_that_cannot_be_a_tool_is_told_why() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    if Command::new(cargo).arg("--version").output().is_err() {
        // A user without a toolchain: what a compiler says is the same for all users.
        eprintln!("SKIPPED what #[tool] says: there is no cargo on PATH");
        return;
    }
    trybuild::TestCases::new().compile_fail("tests/macro/*.rs");
}
