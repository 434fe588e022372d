//! numpy, pandas and matplotlib, as they come from the package index, in a virtual environment outside
//! the repository that `setup` makes.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use serde_json::Value;

use crate::support::{hotcell, judge, skip};

/// The `bin` of the virtual environment, or why there is none.
pub(crate) fn bin() -> Result<&'static Path, &'static str> {
    static BIN: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let bin = BIN.get_or_init(|| {
        let setup = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/setup");
        let made = Command::new(setup).output().map_err(|e| e.to_string())?;
        if !made.status.success() {
            let text = String::from_utf8_lossy(&made.stderr);
            return Err(format!(
                "programs/setup failed: {}",
                text.lines().last().unwrap_or_default()
            ));
        }
        let venv = String::from_utf8(made.stdout).map_err(|e| e.to_string())?;
        let venv = Path::new(venv.trim_end());
        // Runs have a /tmp of their own, so that no environment can be shown there.
        if venv.starts_with("/tmp") || venv.starts_with("/var/tmp") {
            return Err(format!("the environment is in {}", venv.display()));
        }
        Ok(venv.join("bin"))
    });
    bin.as_deref().map_err(String::as_str)
}

/// Runs code in the virtual environment; `None` when there is none.
fn run(name: &str, options: &[&str], code: &str) -> Option<Value> {
    let bin = match bin() {
        Ok(bin) => bin,
        Err(why) => {
            skip(name, why);
            return None;
        }
    };
    let mut words = vec!["run", "--json"];
    words.extend(options);
    words.extend(["--lang", "python", "-c", code]);
    Some(serde_json::from_slice(&hotcell(&words, Some(bin)).stdout).unwrap())
}

fn check(name: &str, code: &str, expected: &str) {
    if let Some(report) = run(name, &[], code) {
        judge(name, &report, expected).unwrap();
        let interpreter = report["interpreter"].as_str().unwrap();
        assert!(interpreter.contains(bin().unwrap().to_str().unwrap()), "{interpreter}");
    }
}

#[test]
fn numpy() {
    check(
        "numpy",
        "import numpy as np
a = np.random.default_rng(0).normal(size=(400, 400)); print(np.allclose(a @ np.linalg.inv(a), np.eye(400), atol=1e-6))
print(np.fft.fft(np.ones(8))[0].real, np.linalg.eigvalsh(np.diag([3., 1., 2.])).tolist(), (np.arange(10**6) ** 2).sum())
np.save('a.npy', a); print(np.load('a.npy', mmap_mode='r').shape); np.savez_compressed('b', a=a[:2]); print(np.load('b.npz')['a'].shape)
import os; os.unlink('a.npy'); os.unlink('b.npz')
",
        "True\n8.0 [1.0, 2.0, 3.0] 333332833333500000\n(400, 400)\n(2, 400)\n",
    );
}

#[test]
fn pandas() {
    check(
        "pandas",
        "import pandas as pd, io
frame = pd.read_csv(io.StringIO('day,n\\n2024-01-01,1\\n2024-01-02,2\\n2024-02-01,4\\n'), parse_dates=['day'])
print(frame.groupby(frame.day.dt.month).n.sum().to_dict(), frame.n.describe()['mean'].round(2))
print(frame.set_index('day').tz_localize('UTC').tz_convert('Asia/Tokyo').index[0].isoformat())
print(frame.merge(frame, on='n').shape, frame.pivot_table(index='n', aggfunc='count').shape)
frame.to_csv('/tmp/a.csv'); frame.to_pickle('/tmp/a.pkl'); print(pd.read_pickle('/tmp/a.pkl').equals(frame))
import sqlite3; db = sqlite3.connect(':memory:'); frame.to_sql('t', db); print(pd.read_sql('select sum(n) s from t', db).s[0])
",
        "{1: 3, 2: 4} 2.33\n2024-01-01T09:00:00+09:00\n(3, 3) (3, 1)\nTrue\n7\n",
    );
}

#[test]
fn a_plot_of_matplotlib_comes_back_as_a_png() {
    let out = tempfile::tempdir().unwrap();
    let code = "import matplotlib.pyplot as plt
plt.plot([1, 4, 9]); plt.title('größer'); plt.savefig('plot.png', dpi=50); plt.savefig('plot.svg'); print(plt.get_backend().lower())
";
    let options = ["--output-dir", out.path().to_str().unwrap()];
    let Some(report) = run("matplotlib", &options, code) else { return };
    judge("matplotlib", &report, "agg\n").unwrap();
    let names: Vec<&str> = report["artifacts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|a| a["path"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["plot.png", "plot.svg"]);
    check_png(&std::fs::read(out.path().join("plot.png")).unwrap());
    let svg = std::fs::read_to_string(out.path().join("plot.svg")).unwrap();
    assert!(svg.contains("<svg") && svg.trim_end().ends_with("</svg>"));
}

/// The signature, and chunks from the header of 320 by 240 pixels to the end.
fn check_png(bytes: &[u8]) {
    let mut rest = bytes.strip_prefix(b"\x89PNG\r\n\x1a\n").expect("it has no signature");
    let mut kinds = Vec::new();
    while !rest.is_empty() {
        let length = u32::from_be_bytes(rest[..4].try_into().unwrap()) as usize;
        let (kind, data) = (&rest[4..8], &rest[8..8 + length]);
        if kind == b"IHDR" {
            assert_eq!(data[..8], [0, 0, 1, 64, 0, 0, 0, 240]);
        }
        kinds.push(kind);
        rest = &rest[12 + length..];
    }
    assert_eq!(kinds.first(), Some(&&b"IHDR"[..]));
    assert_eq!(kinds.last(), Some(&&b"IEND"[..]));
    assert!(kinds.contains(&&b"IDAT"[..]));
}
