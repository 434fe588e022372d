//! Builds the airlock, which is executed in a sandbox of its own and is embedded by `src/start.rs`.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() -> Result<(), Box<dyn Error>> {
    let crates = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("..").canonicalize()?;
    println!("cargo::rerun-if-changed={}", crates.join("airlock").display());
    let target = env::var("TARGET")?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    // Beside the outer build's own folders, so that it does not wait for the build that it is part of,
    // and is made once for all profiles: OUT_DIR is target/PROFILE/build/PACKAGE/out.
    let folder = out.ancestors().nth(4).unwrap_or(&out).join("airlock");
    let status = Command::new(env::var("CARGO")?)
        .args(["build", "--quiet", "--locked", "--package", "hotcell-airlock"])
        .args(["--profile", "launcher", "--target", &target, "--features", "program"])
        .arg("--manifest-path")
        .arg(crates.join("airlock/Cargo.toml"))
        .arg("--target-dir")
        .arg(&folder)
        // Flags and wrappers, such as clippy's, belong to the outer build.
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("RUSTFLAGS")
        .env_remove("RUSTC_WRAPPER")
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .status()?;
    if !status.success() {
        return Err(format!("building the airlock failed: {status}").into());
    }
    let program = out.join("hotcell-airlock");
    fs::copy(folder.join(target).join("launcher/hotcell-airlock"), &program)?;
    println!("cargo::rustc-env=HOTCELL_AIRLOCK={}", program.display());
    Ok(())
}
