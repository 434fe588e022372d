//! A reader that has left is no reason for a panic or a message.

use std::io::pipe;

use crate::support::World;

#[test]
fn nobody_reads_stdout() {
    let world = World::new();
    for line in ["template ls", "config show", "completions bash", "run --help", "run --json x.py"]
    {
        let (reader, writer) = pipe().unwrap();
        drop(reader);
        let words: Vec<&str> = line.split_whitespace().collect();
        let output = world.command(&words).stdout(writer).output().unwrap();
        assert_eq!(output.status.code(), Some(141), "{line}");
        assert!(output.stderr.is_empty(), "{line}: {output:?}");
    }
}

#[test]
fn nobody_reads_stderr() {
    let world = World::new();
    let (reader, writer) = pipe().unwrap();
    drop(reader);
    let output = world.command(&["run", "missing.py"]).stderr(writer).output().unwrap();
    assert_eq!(output.status.code(), Some(127));
}

#[test]
fn a_full_disk_is_reported() {
    let Ok(full) = std::fs::OpenOptions::new().write(true).open("/dev/full") else { return };
    let output = World::new().command(&["template", "ls"]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(120));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.starts_with("error: the output could not be written\n  why: "), "{text}");
}
