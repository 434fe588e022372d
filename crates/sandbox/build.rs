//! Builds the launcher for the machine it will run on: static, without libc, and small, with flags
//! that the rest of the workspace must not have. The result is embedded by `src/launcher.rs`.

use std::env;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() -> Result<(), Box<dyn Error>> {
    let jail = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("../jail").canonicalize()?;
    println!("cargo::rerun-if-changed={}", jail.display());
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let image = build(&jail, &out, "launcher")?;
    println!("cargo::rustc-env=HOTCELL_LAUNCHER={}", image.display());
    if env::var_os("CARGO_FEATURE_HOLES").is_some() {
        let image = build(&jail, &out, "launcher,holes")?;
        println!("cargo::rustc-env=HOTCELL_LAUNCHER_WITH_HOLES={}", image.display());
    }
    Ok(())
}

/// Runs cargo for the launcher alone, in a target folder of its own so that it does not wait for the
/// build that it is part of.
fn build(jail: &Path, out: &Path, features: &str) -> Result<PathBuf, Box<dyn Error>> {
    let target = env::var("TARGET")?;
    let folder = out.join(features.replace(',', "-"));
    let flags = [
        "-Crelocation-model=static",
        "-Clink-arg=-nostartfiles",
        "-Clink-arg=-nostdlib",
        "-Clink-arg=-static",
        "-Clink-arg=-Wl,--build-id=none",
        "-Clink-arg=-Wl,-z,noexecstack",
    ];
    let status = Command::new(env::var("CARGO")?)
        .args([
            "build",
            "--quiet",
            "--locked",
            "--package",
            "hotcell-jail",
            "--bin",
            "hotcell-jail",
        ])
        .args(["--profile", "launcher", "--target", &target, "--features", features])
        .arg("--manifest-path")
        .arg(jail.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(&folder)
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"))
        .env_remove("RUSTFLAGS")
        // Wrappers such as clippy's belong to the outer build.
        .env_remove("RUSTC_WRAPPER")
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .status()?;
    if !status.success() {
        return Err(format!("building the launcher failed: {status}").into());
    }
    Ok(folder.join(target).join("launcher/hotcell-jail"))
}
