//! What is wrong is said clearly, with its exit number, and nothing hangs.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixListener;

use crate::support::{World, same_as_file};

/// A directory with everything that can be given by mistake.
fn world() -> World {
    let world = World::new();
    world.file("dir/inner.py", b"");
    world.file("data.csv", b"1,2\n");
    world.file("dir/data.csv", b"3,4\n");
    world.file("notes.txt", b"hello\n");
    world.file("main.py", b"print(1)\n");
    world.file("main.sh", b"true\n");
    world.file("perl", b"#!/usr/bin/perl\n");
    world.file("elf.py", b"\x7fELF\x02\x01\x01\0");
    world.file("nul.py", b"print(1)\0");
    world.file("big.bin", &[b'x'; 4096]);
    let fifo = rustix::fs::mknodat(
        rustix::fs::CWD,
        world.at("fifo.py"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    );
    fifo.unwrap();
    drop(UnixListener::bind(world.at("socket.py")).unwrap());
    std::os::unix::fs::symlink("loop.py", world.at("loop.py")).unwrap();
    world
}

#[test]
fn every_wrong_use_has_its_message_and_number() {
    let world = world();
    let lines = [
        // the command line itself
        "",
        "frobnicate",
        "run --jsn main.py",
        "run --",
        "run -c print(1)",
        "run --lang python -- ls",
        "run --lang cobol main.py",
        "run --template nope main.py",
        "completions powershell",
        // what to run
        "run missing.py",
        "run dir",
        "run dir/..",
        "run fifo.py",
        "run socket.py",
        "run loop.py",
        "run /dev/zero",
        "run elf.py",
        "run nul.py",
        "run notes.txt",
        "run perl",
        "run main.py/x",
        "run",
        "run -",
        "run -- no-such-command-anywhere",
        "run -- ./missing",
        "run -- ./notes.txt",
        "run -- ./dir",
        "run -- ./fifo.py",
        // limits
        "run --mem 1mb main.py",
        "run --mem 0 main.py",
        "run --mem=-1 main.py",
        "run --mem -1GiB main.py",
        "gc --keep soon",
        "tool show nothing",
        "run --mem 99999999999999999999GiB main.py",
        "run --mem unlimited main.py",
        "run --timeout 30 main.py",
        "run --timeout 9000h main.py",
        "run --cpu 0 main.py",
        "run --cpu 5000 main.py",
        "run --cpu 0.0001 main.py",
        "run --pids 1.5 main.py",
        "run --pids",
        "run --mem 1GiB --mem 2GiB main.py",
        // inputs and outputs
        "run --env NAME -- true",
        "run --env =value -- true",
        "run --env a --env b -- true",
        "run --env nothing -- true",
        // sandboxes that stay
        "sandbox",
        "sandbox exec",
        "sandbox exec x",
        "sandbox exec x -- true",
        "sandbox exec x -c 1",
        "sandbox exec 01M7V1EDBHG8TRDYBTKZEZK5DQ -- true",
        "sandbox exec 01M7V1EDBHG8TRDYBTKZEZK5DQ -e novalue -- true",
        "sandbox create --idle soon",
        "sandbox create --template nope",
        "sandbox create --mem 0",
        "sandbox inspect 01M7V1EDBHG8TRDYBTKZEZK5DQ",
        "sandbox cp a b",
        "sandbox cp dir 01M7V1EDBHG8TRDYBTKZEZK5DQ:",
        "sandbox cp missing 01M7V1EDBHG8TRDYBTKZEZK5DQ:",
        "sandbox cp data.csv 01M7V1EDBHG8TRDYBTKZEZK5DQ:",
        // environments
        "env",
        "env create",
        "env create x",
        "env create x --preset nope",
        "env create x --preset data --python notes.txt",
        "env create ../x --preset python",
        "env create X --preset python",
        "env create x --python missing.txt",
        "env create x --python dir",
        "env create x --python fifo.py",
        "env create x --python data.csv",
        "env create x --preset python --mem 0",
        "env show nothing",
        "env rm nothing",
        "env rm ..",
        "run --input missing -- true",
        "run --input dir -- true",
        "run --input fifo.py -- true",
        "run --input socket.py -- true",
        "run --input /dev/null -- true",
        "run --input data.csv --input dir/data.csv -- true",
        "run --input main.sh --lang sh -c true",
        "run --input big.bin --disk 1KiB -- true",
        "run --stdin missing -- true",
        "run --stdin fifo.py -- true",
        "run --lang sh --stdin - -",
        "run --output-dir dir -- true",
        "run --output-dir data.csv -- true",
        "run --output-dir a/b -- true",
        // the record; `restore` leaves nothing behind
        "restore missing",
        "restore dir",
        "restore fifo.py",
        "restore socket.py",
        "restore /dev/zero",
    ];
    let mut text = String::new();
    for line in lines {
        let words: Vec<&str> = line.split_whitespace().collect();
        text.push_str(&world.transcript(&words));
    }
    let hostile: [&OsStr; 3] = [
        OsStr::from_bytes(b"\xff\xfe.py"),
        OsStr::new("\x1b[2J\u{202e}.py"),
        OsStr::new("two words.py"),
    ];
    for name in hostile {
        text.push_str(&world.transcript(&[OsStr::new("run"), name]));
    }
    same_as_file("crates/cli/tests/cli/bad_input.txt", &text);
}

#[test]
fn too_many_inputs_are_refused() {
    let world = world();
    let mut words = vec!["run"];
    for _ in 0..129 {
        words.extend(["--input", "data.csv"]);
    }
    words.extend(["--", "true"]);
    let text = world.transcript(&words);
    assert!(text.contains("error: 129 inputs are too many\n") && text.contains("[121]"), "{text}");
}

#[test]
fn with_json_every_problem_is_a_document_and_stderr_is_silent() {
    let world = world();
    for (line, code, status) in [
        ("run --json missing.py", 127, "invalid"),
        ("run --json dir", 126, "invalid"),
        ("run --json --mem 0 main.py", 121, "invalid"),
        ("run --json --nonsense", 121, "invalid"),
        ("run --json --lang cobol main.py", 121, "invalid"),
        ("run --json -- no-such-command-anywhere", 127, "invalid"),
        ("run --json", 121, "invalid"),
    ] {
        let words: Vec<&str> = line.split_whitespace().collect();
        let output = world.run(&words);
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect(line);
        assert_eq!(output.status.code(), Some(code), "{line}");
        assert_eq!(json["version"], 1, "{line}");
        assert_eq!(json["status"], status, "{line}");
        assert!(json["error"]["what"].is_string(), "{line}: {json}");
        assert!(output.stderr.is_empty(), "{line}");
        assert_eq!(output.stdout.iter().filter(|&&b| b == b'\n').count(), 1, "{line}");
    }
}

#[test]
fn a_json_option_of_the_program_is_not_ours() {
    let output = world().run(&["run", "--bad-option", "--", "ls", "--json"]);
    assert!(output.stdout.is_empty() && !output.stderr.is_empty());
}

#[test]
fn a_refused_run_leaves_no_output_directory() {
    let world = world();
    let output = world.run(&["run", "--output-dir", "new", "missing.py"]);
    assert_eq!(output.status.code(), Some(127));
    assert!(!world.at("new").exists());
}

#[test]
fn without_colour_for_files_and_pipes() {
    let mut world = world();
    world.env("CLICOLOR_FORCE", "0");
    let words: [OsString; 2] = ["run".into(), "missing.py".into()];
    assert!(!world.run(&words).stderr.contains(&0x1b));
}
