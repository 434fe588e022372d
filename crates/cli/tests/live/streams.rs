//! Output as it appears, input as it is taken, and readers and writers that are not there.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::process::Stdio;

use crate::support::{LONG, Started, World, line, skip};

#[test]
fn a_line_arrives_while_the_program_waits() {
    let Some(world) = World::new() else { return };
    let code = "echo first; read -r word; echo \"$word again\"; echo aside >&2";
    let mut command = world.command(&["run", "--stdin", "-", "--lang", "sh", "-c", code]);
    command.stdin(Stdio::piped());
    let (mut started, mut stdout) = Started::with_stdout(command);
    let mut stdin = started.child.stdin.take().unwrap();
    // The program waits for a line that is not written before its own has arrived.
    assert_eq!(line(&mut stdout), "first");
    stdin.write_all(b"once\n").unwrap();
    assert_eq!(line(&mut stdout), "once again");
    started.finish(LONG).is(0, "", "aside\n");
}

#[test]
fn the_two_streams_are_apart_and_every_byte_passes() {
    let Some(world) = World::new() else { return };
    let code = "import sys, os\nos.write(1, bytes(range(256)) * 4)\nos.write(2, b'\\x00\\xff')";
    let ran = world.code(&[], "python", code);
    assert_eq!((ran.code, &ran.stderr[..]), (0, &b"\x00\xff"[..]));
    assert_eq!(ran.stdout, (0..=255).collect::<Vec<u8>>().repeat(4));
}

#[test]
fn a_reader_that_leaves_ends_the_run() {
    let Some(world) = World::new() else { return };
    let (started, mut stdout) = Started::with_stdout(world.command(&["run", "--", "yes"]));
    assert_eq!(line(&mut stdout), "y");
    drop(stdout);
    started.finish(LONG).is(141, "", "");
    let ran = Started::new(world.shell("\"$0\" run -- yes | head -1")).finish(LONG);
    ran.is(0, "y\n", "");
}

#[test]
fn standard_input_is_a_file_hotcells_own_or_nothing() {
    let Some(world) = World::new() else { return };
    let large: Vec<u8> = (0..8_u32 << 18).flat_map(u32::to_le_bytes).collect();
    world.file("large", &large);
    let count =
        "import sys, hashlib; data = sys.stdin.buffer.read(); print(len(data), data[-4:].hex())";
    let expected = "8388608 ffff1f00\n";
    world.code(&["--stdin", "large"], "python", count).is(0, expected, "");
    let mut command = world.command(&["run", "--stdin", "-", "--lang", "python", "-c", count]);
    command.stdin(File::open(world.at("large")).unwrap());
    Started::new(command).finish(LONG).is(0, expected, "");
    world.code(&[], "python", count).is(0, "0 \n", "");
}

#[test]
fn input_that_nobody_takes_holds_nothing_up() {
    let Some(world) = World::new() else { return };
    // Endless, and the program takes two bytes of it.
    let mut command = world.command(&["run", "--stdin", "-", "--", "head", "-c2"]);
    command.stdin(File::open("/dev/zero").unwrap());
    Started::new(command).finish(LONG).is(0, "\0\0", "");
    // Never written and never closed.
    let mut command = world.command(&["run", "--stdin", "-", "--", "echo", "x"]);
    let (_kept, writer) = std::io::pipe().map(|(reader, writer)| (writer, reader)).unwrap();
    command.stdin(writer);
    Started::new(command).finish(LONG).is(0, "x\n", "");
    // Closed by the program while there is more.
    world.file("much", &vec![b'x'; 4 << 20]);
    world.code(&["--stdin", "much"], "shell", "exec <&-; sleep 0.1; echo over").is(0, "over\n", "");
}

#[test]
fn standard_input_that_is_closed_is_empty() {
    let Some(world) = World::new() else { return };
    for script in [
        "exec \"$0\" run --stdin - --lang sh -c 'cat; echo over' <&-",
        "exec \"$0\" run --lang sh -c 'cat; echo over' <&-",
    ] {
        Started::new(world.shell(script)).finish(LONG).is(0, "over\n", "");
    }
    let ran = Started::new(world.shell("exec \"$0\" run --lang sh - <&-")).finish(LONG);
    assert!(ran.code == 0 || ran.code == 121, "{ran:?}");
}

#[test]
fn standard_output_that_is_closed_is_not_another_file() {
    let Some(world) = World::new() else { return };
    // The next file that hotcell opens gets the number 1: output must not be written into it.
    world.file("script.sh", b"echo out; echo err >&2; exit 4\n");
    let ran = Started::new(world.shell("exec \"$0\" run script.sh >&-")).finish(LONG);
    assert_eq!((ran.code, ran.errors().contains("err\n")), (4, true), "{ran:?}");
    let ran = Started::new(world.shell("exec \"$0\" run script.sh >&- 2>&- <&-")).finish(LONG);
    assert_eq!(ran.code, 4, "{ran:?}");
    assert_eq!(fs::read(world.at("script.sh")).unwrap(), b"echo out; echo err >&2; exit 4\n");
}

#[test]
fn a_full_disk_behind_stdout_is_reported_and_ends_the_run() {
    let Some(world) = World::new() else { return };
    let Ok(full) = fs::OpenOptions::new().write(true).open("/dev/full") else {
        return skip("no /dev/full");
    };
    let message = "error: the output could not be written\n  why: no space left on device\n";
    for words in [&["run", "--", "yes"][..], &["run", "--json", "--", "echo", "x"]] {
        let mut command = world.command(words);
        command.stdout(full.try_clone().unwrap());
        Started::new(command).finish(LONG).is(120, "", message);
    }
}

#[test]
fn a_reader_that_is_slow_gets_everything_after_the_end_of_the_run() {
    let Some(world) = World::new() else { return };
    let (started, mut stdout) = Started::with_stdout(world.command(&[
        "run",
        "--timeout",
        "500ms",
        "--lang",
        "sh",
        "-c",
        "yes",
    ]));
    let mut first = [0; 2];
    stdout.read_exact(&mut first).unwrap();
    // The pipe is full long before the deadline. Whoever reads then finds all that was kept.
    std::thread::sleep(std::time::Duration::from_millis(800));
    let mut rest = Vec::new();
    stdout.read_to_end(&mut rest).unwrap();
    assert_eq!(rest.len() + 2, 1 << 20);
    let ran = started.finish(LONG);
    assert_eq!(ran.code, 124, "{ran:?}");
    assert!(ran.errors().contains("stdout cut at 1MiB"), "{ran:?}");
}
