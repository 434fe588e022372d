//! The configuration file, mutated, as the binary reads it: a value, or an error that names the file;
//! never a panic, never a hang, and never a level below the one that the environment asks for. For
//! `HOTCELL_FUZZ_SECONDS`, 2 unless it is set.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const SEEDS: [&str; 8] = [
    "",
    "min_level = \"user\"\n",
    "min_level = \"no-proc\"\ntemplate = \"tool\"\n",
    "template = 'policy-sandbox' # why\n",
    "[run]\ntemplate = \"tool\"\n",
    "min_level = [\"full\"]\nmin_level.x = 1\n",
    "\"min_level\" = \"\\u0066ull\"\n'template' = \"\"\"\ntool\"\"\"\n",
    "min_level = 1979-05-27T07:32:00Z\nx = 0x_f\ny = inf\nz = {a = [1, {}]}\n",
];

#[test]
fn any_configuration_file_is_a_value_or_an_error() {
    let seconds =
        std::env::var("HOTCELL_FUZZ_SECONDS").map_or(2.0, |s| s.parse().expect("a number"));
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("config.toml");
    let deadline = Instant::now() + Duration::from_secs_f64(seconds);
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move |most: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random % most as u64) as usize
    };
    let mut tried = 0;
    while Instant::now() < deadline {
        let mut text = SEEDS[tried % SEEDS.len()].as_bytes().to_vec();
        // The seeds themselves first.
        let changes = if tried < SEEDS.len() { 0 } else { 1 + next(4) };
        for _ in 0..changes {
            change(&mut text, &mut next);
        }
        fs::write(&file, &text).unwrap();
        check(home.path(), &text);
        tried += 1;
    }
    println!("{tried} files");
}

fn change(text: &mut Vec<u8>, next: &mut impl FnMut(usize) -> usize) {
    const WORDS: [&[u8]; 16] = [
        b"\"",
        b"'",
        b"\"\"\"",
        b"\n",
        b"\r",
        b"\0",
        b"\xff",
        b"[",
        b"]",
        b"{",
        b"=",
        b".",
        b"#",
        b"\\u0000",
        b"min_level",
        b"full",
    ];
    let at = next(text.len() + 1);
    let end = at + next(text.len() - at + 1);
    match next(4) {
        0 => drop(text.drain(at..end)),
        1 => {
            let part = text[at..end].to_vec();
            text.splice(at..at, part);
        }
        2 if at < text.len() => text[at] = next(256) as u8,
        _ => {
            text.splice(at..at, WORDS[next(WORDS.len())].iter().copied());
        }
    }
}

fn check(home: &std::path::Path, text: &[u8]) {
    let shown = || String::from_utf8_lossy(text).into_owned();
    let output = Command::new(env!("CARGO_BIN_EXE_hotcell"))
        .args(["config", "show"])
        .env_clear()
        .env("HOTCELL_HOME", home)
        .current_dir(home)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let (stdout, stderr) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    match output.status.code() {
        Some(0) => assert!(
            stdout.contains("min_level") && stderr.is_empty(),
            "{:?}: {stdout}{stderr}",
            shown()
        ),
        Some(121) => {
            let named = stderr.starts_with("error: ") && stderr.contains("config.toml");
            assert!(named && stdout.is_empty(), "{:?}: {stdout}{stderr}", shown());
            assert!(
                !stderr.contains(['\0', '\x1b', '\r']),
                "raw input on the terminal: {stderr:?}"
            );
        }
        other => panic!("{:?} ends with {other:?}: {stderr}", shown()),
    }
}
