//! Builds the evaluator, which is executed in a sandbox of its own and is embedded by `src/process.rs`.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() -> Result<(), Box<dyn Error>> {
    let crates = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("..").canonicalize()?;
    for name in ["evaluator", "strip"] {
        println!("cargo::rerun-if-changed={}", crates.join(name).display());
    }
    let target = env::var("TARGET")?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    // Beside the outer build's own folders, so that it does not wait for the build that it is part of,
    // and is made once for all profiles: OUT_DIR is target/PROFILE/build/PACKAGE/out.
    let folder = out.ancestors().nth(4).unwrap_or(&out).join("evaluator");
    let status = Command::new(env::var("CARGO")?)
        .args(["build", "--quiet", "--locked", "--package", "hotcell-evaluator"])
        .args(["--profile", "launcher", "--target", &target, "--features", "program"])
        .arg("--manifest-path")
        .arg(crates.join("evaluator/Cargo.toml"))
        .arg("--target-dir")
        .arg(&folder)
        // Flags and wrappers, such as clippy's, belong to the outer build.
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("RUSTFLAGS")
        .env_remove("RUSTC_WRAPPER")
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .status()?;
    if !status.success() {
        return Err(format!("building the evaluator failed: {status}").into());
    }
    let program = out.join("hotcell-evaluator");
    fs::copy(folder.join(target).join("launcher/hotcell-evaluator"), &program)?;
    println!("cargo::rustc-env=HOTCELL_EVALUATOR={}", program.display());
    Ok(())
}
