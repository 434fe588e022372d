//! Builds the launcher for the machine it will run on: static, without libc, and small, with flags
//! that the rest of the workspace must not have; and the same code as a library that interpreters load.
//! The results are embedded by `src/image.rs`.

use std::env;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Something that is built by itself.
struct Part {
    package: &'static str,
    target: &'static [&'static str],
    feature: &'static str,
    file: &'static str,
    variable: &'static str,
    flags: &'static [&'static str],
}

const LAUNCHER: Part = Part {
    package: "hotcell-jail",
    target: &["--bin", "hotcell-jail"],
    feature: "launcher",
    file: "hotcell-jail",
    variable: "HOTCELL_LAUNCHER",
    flags: &["-Crelocation-model=static", "-Clink-arg=-static"],
};

const ZYGOTE: Part = Part {
    package: "hotcell-zygote",
    target: &["--lib"],
    feature: "library",
    file: "libhotcell_zygote.so",
    variable: "HOTCELL_ZYGOTE",
    flags: &[],
};

const FLAGS: [&str; 4] = [
    "-Clink-arg=-nostartfiles",
    "-Clink-arg=-nostdlib",
    "-Clink-arg=-Wl,--build-id=none",
    "-Clink-arg=-Wl,-z,noexecstack",
];

fn main() -> Result<(), Box<dyn Error>> {
    let crates = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("..").canonicalize()?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    for part in [LAUNCHER, ZYGOTE] {
        let source = crates.join(part.package.trim_start_matches("hotcell-"));
        println!("cargo::rerun-if-changed={}", source.display());
        let file = build(&part, &source, &out, part.feature)?;
        println!("cargo::rustc-env={}={}", part.variable, file.display());
        if env::var_os("CARGO_FEATURE_HOLES").is_some() {
            let file = build(&part, &source, &out, &format!("{},holes", part.feature))?;
            println!("cargo::rustc-env={}_WITH_HOLES={}", part.variable, file.display());
        }
    }
    Ok(())
}

/// Runs cargo for one part alone, in a target folder of its own so that it does not wait for the build
/// that it is part of.
fn build(
    part: &Part,
    source: &Path,
    out: &Path,
    features: &str,
) -> Result<PathBuf, Box<dyn Error>> {
    let target = env::var("TARGET")?;
    let folder = out.join(features.replace(',', "-"));
    let flags = [part.flags, &FLAGS].concat();
    let status = Command::new(env::var("CARGO")?)
        .args(["build", "--quiet", "--locked", "--package", part.package])
        .args(part.target)
        .args(["--profile", "launcher", "--target", &target, "--features", features])
        .arg("--manifest-path")
        .arg(source.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(&folder)
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"))
        .env_remove("RUSTFLAGS")
        // Wrappers such as clippy's belong to the outer build.
        .env_remove("RUSTC_WRAPPER")
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .status()?;
    if !status.success() {
        return Err(format!("building {} failed: {status}", part.package).into());
    }
    Ok(folder.join(target).join("launcher").join(part.file))
}
