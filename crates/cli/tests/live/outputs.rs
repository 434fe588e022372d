//! What comes out: every kind of thing that a program can leave behind is copied safely, or listed with
//! why it was not.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::support::{LONG, Started, World, skip};

/// `path` of a list, with another field.
fn by_path<'a>(list: &'a Value, field: &str) -> BTreeMap<&'a str, &'a Value> {
    list.as_array()
        .unwrap()
        .iter()
        .map(|entry| (entry["path"].as_str().unwrap(), &entry[field]))
        .collect()
}

/// The names in a directory, lossily.
fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn files_come_back_and_are_listed() {
    let Some(world) = World::new() else { return };
    world.file("same", b"same");
    world.file("changed", b"before");
    let code = "mkdir -p a/b; printf deep > a/b/c; printf new > new; printf after > changed; printf x > run; chmod +x run; mkdir empty; printf t > /tmp/not-here";
    let words = ["--input", "same", "--input", "changed", "--output-dir", "out"];
    let report = world.json(&words, "shell", code);
    let artifacts = by_path(&report["artifacts"], "bytes");
    let expected = [("a/b/c", 4), ("changed", 5), ("new", 3), ("run", 1)];
    assert_eq!(
        artifacts,
        expected.map(|(path, n)| (path, Value::from(n))).iter().map(|(p, n)| (*p, n)).collect()
    );
    let sums = by_path(&report["artifacts"], "sha256");
    assert_eq!(sums["new"], "11507a0e2f5e69d5dfa40a62a1bd7b6ee57e6bcd85c67c9b8431b36fff21c437");
    assert_eq!(report["skipped"], Value::Array(vec![]));
    let out = world.at("out");
    assert_eq!(fs::read(out.join("a/b/c")).unwrap(), b"deep");
    assert_eq!(fs::read(out.join("changed")).unwrap(), b"after");
    assert!(!out.join("same").exists());
    let mode = |name: &str| fs::metadata(out.join(name)).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode("run"), mode("new")), (0o755, 0o644));
}

#[test]
fn without_a_directory_they_are_only_listed() {
    let Some(world) = World::new() else { return };
    let report = world.json(&[], "shell", "printf x > file");
    assert_eq!(by_path(&report["artifacts"], "bytes"), [("file", &Value::from(1))].into());
    assert_eq!(names(&world.at("")), Vec::<String>::new());
}

#[test]
fn odd_things_are_copied_safely_or_listed_with_why() {
    let Some(world) = World::new() else { return };
    let code = r"import os, socket
os.symlink('/etc/passwd', 'link'); os.symlink('/', 'root'); os.symlink('nowhere', 'dangling'); os.mkfifo('fifo')
s = socket.socket(socket.AF_UNIX); s.bind('socket')
open('one', 'w').write('x'); os.link('one', 'two')
open('suid', 'w').write('x'); os.chmod('suid', 0o6755)
open('shut', 'w').write('x'); os.chmod('shut', 0)
os.mkdir('shut-dir'); open('shut-dir/f', 'w').write('x'); os.chmod('shut-dir', 0)
for name in [b'new\nline', b'\xff\xfe', b'esc\x1b[2J']: open(name, 'w')
for name in ['quote\'\x22$(id)', '-rf', '🦀', 'x' * 255, '~', ' ']: open(name, 'w')
here = os.open('.', os.O_RDONLY)
for _ in range(300): os.mkdir('d'); os.chdir('d')
open('deep', 'w'); os.fchdir(here)
try: os.mknod('device', 0o020666, os.makedev(1, 3))
except OSError as e: print(e.strerror)";
    let report = world.json(&["--output-dir", "out"], "python", code);
    assert_eq!(report["stdout"]["text"], "Operation not permitted\n", "{report}");
    let skipped = by_path(&report["skipped"], "why");
    let why = |path: &str| skipped.get(path).and_then(|why| why.as_str()).unwrap_or("taken");
    for (path, expected) in [
        ("link", "it is a symbolic link"),
        ("root", "it is a symbolic link"),
        ("dangling", "it is a symbolic link"),
        ("fifo", "it is a pipe"),
        ("socket", "it is a socket"),
        ("one", "it has more than one name"),
        ("two", "it has more than one name"),
        ("new\nline", "its name has control characters"),
        ("esc\u{1b}[2J", "its name has control characters"),
        ("\u{fffd}\u{fffd}", "its name is not UTF-8"),
    ] {
        assert_eq!(why(path), expected, "{path}");
    }
    let deep = skipped.iter().find(|(path, _)| path.starts_with("d/")).expect("the deep directory");
    assert_eq!(*deep.1, "it is too deep");
    let taken = by_path(&report["artifacts"], "bytes");
    for name in ["quote'\"$(id)", "-rf", "🦀", &"x".repeat(255), "~", " ", "suid"] {
        assert!(
            taken.contains_key(name) && world.at("out").join(name).is_file(),
            "{name}: {taken:?}"
        );
    }
    // Root reads what is shut, another user is told.
    for path in ["shut", "shut-dir"] {
        let below = taken.keys().any(|taken| taken.starts_with(path));
        assert!(below || why(path).starts_with("cannot be"), "{path}: {report}");
    }
    everything_is_plain(&world.at("out"));
}

/// Regular files and directories, with modes of our own.
fn everything_is_plain(dir: &Path) {
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let metadata = fs::symlink_metadata(entry.path()).unwrap();
        let mode = metadata.permissions().mode() & 0o7777;
        let bad = entry.file_name().as_bytes().iter().any(|b| b.is_ascii_control());
        assert!(!bad && [0o644, 0o755].contains(&mode), "{entry:?} {mode:o}");
        if metadata.is_dir() {
            everything_is_plain(&entry.path());
        } else {
            assert!(metadata.is_file(), "{entry:?}");
        }
    }
}

/// hotcell's own name for a file that is being written belongs to the program as well.
#[test]
fn a_file_called_as_hotcells_own_part_is_not_lost() {
    let Some(world) = World::new() else { return };
    for code in [
        "printf mine > .hotcell-part; printf a > a; printf b > b",
        "printf a > a; printf b > b; printf mine > .hotcell-part",
    ] {
        let out = world.at("out");
        let report = world.json(&["--output-dir", "out"], "shell", code);
        let listed: Vec<&str> = by_path(&report["artifacts"], "bytes").into_keys().collect();
        assert_eq!(names(&out), listed, "what is listed is there");
        fs::remove_dir_all(&out).unwrap();
    }
}

#[test]
fn a_directory_called_as_hotcells_own_part_does_not_keep_the_others_back() {
    let Some(world) = World::new() else { return };
    for code in [
        "mkdir .hotcell-part; printf a > a",
        "printf a > a; mkdir .hotcell-part; printf x > .hotcell-part/x",
    ] {
        let out = world.at("out");
        let report = world.json(&["--output-dir", "out"], "shell", code);
        assert_eq!(report["skipped"], Value::Array(vec![]), "{code}");
        assert_eq!(fs::read(out.join("a")).unwrap(), b"a");
        fs::remove_dir_all(&out).unwrap();
    }
}

/// Files of holes cost the run nothing. They must not cost the host more than the run may have on disk,
/// nor keep it busy long after the deadline.
#[test]
fn sparse_giants_do_not_grow_outside() {
    let Some(world) = World::alone() else { return };
    let code = "import os\nfor n in range(64): os.truncate(os.open(str(n), os.O_CREAT | os.O_WRONLY), 63 << 20)";
    let words = [
        "run",
        "--json",
        "--disk",
        "64MiB",
        "--timeout",
        "3s",
        "--output-dir",
        "out",
        "--lang",
        "python",
        "-c",
        code,
    ];
    let ran = Started::new(world.command(&words)).finish(LONG);
    let report = ran.json();
    let taken: u64 =
        by_path(&report["artifacts"], "bytes").values().map(|n| n.as_u64().unwrap()).sum();
    let listed =
        report["artifacts"].as_array().unwrap().len() + report["skipped"].as_array().unwrap().len();
    assert_eq!(listed, 64, "each is taken or listed");
    assert!(taken <= 64 << 20, "{} MiB came out of a run with 64 MiB of disk", taken >> 20);
    assert!(ran.took < Duration::from_secs(4), "{:?}", ran.took);
}

#[test]
fn ten_thousand_files_are_bounded() {
    let Some(world) = World::new() else { return };
    let code = "for n in range(9990): open(f'{n}', 'w').close()";
    let report = world.json(&["--output-dir", "out"], "python", code);
    let listed = report["artifacts"].as_array().unwrap().len();
    assert_eq!((listed, names(&world.at("out")).len()), (9990, 9990));
}

#[test]
fn outputs_never_meet_what_is_there() {
    let Some(world) = World::new() else { return };
    fs::create_dir(world.at("full")).unwrap();
    world.file("full/file", b"mine");
    std::os::unix::fs::symlink("elsewhere", world.at("dangling")).unwrap();
    for dir in ["full", "full/file", "dangling", "missing/below"] {
        let ran = world.code(&["--output-dir", dir], "shell", "printf x > file");
        assert_eq!(ran.code, 121, "{dir}: {ran:?}");
    }
    assert_eq!(fs::read(world.at("full/file")).unwrap(), b"mine");
    assert!(!world.at("elsewhere").exists());
    // One that is empty is used, also by way of a link.
    fs::create_dir(world.at("empty")).unwrap();
    std::os::unix::fs::symlink("empty", world.at("link")).unwrap();
    world.code(&["--output-dir", "link"], "shell", "printf x > file").is(0, "", "");
    assert_eq!(fs::read(world.at("empty/file")).unwrap(), b"x");
}

#[test]
fn the_outputs_of_a_run_that_failed_come_back_too() {
    let Some(world) = World::new() else { return };
    let code = "printf x > before; sleep 60";
    let ran = world.code(&["--timeout", "300ms", "--output-dir", "out"], "shell", code);
    assert_eq!(ran.code, 124, "{ran:?}");
    assert_eq!(fs::read(world.at("out/before")).unwrap(), b"x");
}

/// A small file system, gone with its guard.
struct Small<'a>(&'a Path);

impl Small<'_> {
    fn mount(at: &Path) -> Option<Small<'_>> {
        fs::create_dir(at).unwrap();
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m", "none"]).arg(at).output();
        match mounted {
            Ok(output) if output.status.success() => Some(Small(at)),
            _ => {
                skip("a small file system cannot be mounted (needs root)");
                None
            }
        }
    }
}

impl Drop for Small<'_> {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(self.0).status();
        assert!(unmounted.is_ok_and(|status| status.success()), "{:?} stays mounted", self.0);
    }
}

#[test]
fn a_full_disk_for_outputs_is_a_clear_error() {
    let Some(world) = World::new() else { return };
    let at = world.at("small");
    let Some(_small) = Small::mount(&at) else { return };
    let words = ["--output-dir", "small/out"];
    let code = "head -c 3M /dev/zero > large; printf x > little";
    let report = world.json(&words, "shell", code);
    let skipped = by_path(&report["skipped"], "why");
    assert!(skipped["large"].as_str().unwrap().contains("space"), "{report}");
    assert_eq!(names(&world.at("small/out")), ["little"], "nothing half-written stays");
    fs::remove_dir_all(world.at("small/out")).unwrap();
    // A person who asked for files and gets fewer must be told.
    let ran = world.code(&words, "shell", code);
    assert!(
        ran.errors().contains("large") && ran.errors().contains("space"),
        "silently lost: {ran:?}"
    );
}

#[test]
fn things_that_were_not_taken_are_told_to_people_as_well() {
    let Some(world) = World::new() else { return };
    let ran = world.code(&["--output-dir", "out"], "shell", "ln -s x link; printf x > file");
    assert!(ran.errors().contains("link"), "silently left out: {ran:?}");
}

#[test]
fn an_output_directory_that_goes_away_meanwhile_is_told_for_each_file() {
    let Some(world) = World::new() else { return };
    let out = world.at("out");
    let mut words: Vec<OsString> = vec!["run".into(), "--output-dir".into(), out.clone().into()];
    words.extend(
        ["--lang", "sh", "-c", "echo ready; printf x > file; sleep 0.3"].map(OsString::from),
    );
    let (started, mut stdout) = Started::with_stdout(world.command(&words));
    crate::support::line(&mut stdout);
    fs::remove_dir(&out).unwrap();
    let ran = started.finish(LONG);
    assert_eq!(
        ran.errors(),
        "hotcell: `file` was not taken: cannot be copied: no such file or directory\n"
    );
}
