//! Runs the second program, which can leave layers out, and reads what it found.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::peers::Failure;

/// What one layer adds to a run, in microseconds.
#[derive(Debug, Clone)]
pub(crate) struct Layer {
    pub(crate) name: String,
    /// All work of all processes, one after the other.
    pub(crate) work: f64,
    /// What a job waits longer for.
    pub(crate) latency: f64,
}

pub(crate) fn measure(rounds: usize) -> Result<Vec<Layer>, Failure> {
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/layers/Cargo.toml");
    let cargo = std::env::var_os("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from);
    let output = Command::new(cargo)
        .args(["run", "--release", "--quiet", "--manifest-path", manifest, "--"])
        .arg(rounds.to_string())
        .stderr(Stdio::inherit())
        .output()?;
    if !output.status.success() {
        return Err(format!("the layers could not be measured: {}", output.status).into());
    }
    let text = String::from_utf8(output.stdout)?;
    text.lines().map(read).collect()
}

/// `name TAB work TAB latency`.
fn read(line: &str) -> Result<Layer, Failure> {
    let mut fields = line.split('\t');
    let (Some(name), Some(work), Some(latency)) = (fields.next(), fields.next(), fields.next())
    else {
        return Err(format!("the layers' program printed `{line}`").into());
    };
    Ok(Layer { name: name.into(), work: work.parse()?, latency: latency.parse()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_name_and_two_numbers() {
        let layer = read("landlock\t12.5\t-3").unwrap();
        assert_eq!((layer.name.as_str(), layer.work, layer.latency), ("landlock", 12.5, -3.0));
        assert!(read("landlock\t12.5").is_err());
        assert!(read("landlock\tx\t1").is_err());
    }
}
