//! Snapshots, and what a run made of them.

use std::fs::{self, File, FileTimes, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::{Duration, SystemTime};

use hotcell_workspace::{
    Changeset, DiffBounds, Digest, Error, Globs, Kind, SnapshotBounds, TooMuch, unified,
};

use crate::support::*;

fn except(patterns: &[&str]) -> SnapshotBounds {
    SnapshotBounds { except: Globs::new(patterns).unwrap(), ..SnapshotBounds::default() }
}

fn too_much(error: Error) -> TooMuch {
    match error {
        Error::TooMuch(too_much) => too_much,
        other => panic!("{other}"),
    }
}

#[test]
fn a_tree_is_handed_over_as_it_is_with_links_as_text() {
    let outside = tree(&[("secret", "CANARY")]);
    let dir = tree(&[("a/b", "1"), ("run", "2"), ("private", "3"), ("a/empty/x", "")]);
    let set = |name: &str, mode| {
        fs::set_permissions(dir.path().join(name), Permissions::from_mode(mode)).unwrap();
    };
    set("run", 0o6755);
    set("private", 0o600);
    fs::remove_file(dir.path().join("a/empty/x")).unwrap();
    symlink(outside.path().join("secret"), dir.path().join("link")).unwrap();
    fs::hard_link(outside.path().join("secret"), dir.path().join("hard")).unwrap();
    let (snapshot, copy) = hand_over(&root(&dir), SnapshotBounds::default());
    let mut expected = contents(dir.path());
    assert_eq!(expected.remove("hard").unwrap(), b"CANARY");
    assert_eq!(contents(copy.path()), expected);
    assert!(is_executable(&copy.path().join("run")));
    assert_eq!(snapshot.skipped().len(), 1);
    assert_eq!(snapshot.manifest().len(), 6);
    assert!(matches!(snapshot.manifest()[&path("link")], Kind::Symlink { .. }));
    assert!(diff(&snapshot, &copy).0.is_empty());
}

#[test]
fn too_much_names_what_is_large() {
    let dir = tree(&[
        ("src/a", "1234"),
        ("src/b", ""),
        ("target/a", "12"),
        ("target/b", ""),
        ("target/c", ""),
    ]);
    let root = root(&dir);
    let end = |bounds| root.snapshot(bounds).unwrap().find_map(Result::err).map(too_much);
    let few = SnapshotBounds { entries: 6, ..SnapshotBounds::default() };
    let heaviest = "target".to_owned();
    assert_eq!(end(few), Some(TooMuch::Entries { most: 6, heaviest, part: 3 }));
    let small = SnapshotBounds { bytes: 5, ..SnapshotBounds::default() };
    let heaviest = "src".to_owned();
    assert_eq!(end(small), Some(TooMuch::Bytes { most: 5, heaviest, part: 4 }));
    let late = SnapshotBounds { within: Duration::ZERO, ..SnapshotBounds::default() };
    assert_eq!(end(late), Some(TooMuch::Time));
    assert_eq!(end(SnapshotBounds { entries: 7, bytes: 6, ..SnapshotBounds::default() }), None);
    // Holes count: they have to be read as well.
    File::create(dir.path().join("sparse")).unwrap().set_len(1 << 42).unwrap();
    assert!(matches!(end(SnapshotBounds::default()), Some(TooMuch::Bytes { .. })));
    // What fails is not compared with anything, and neither is what was not copied to its end.
    let mut handover = root.snapshot(SnapshotBounds::default()).unwrap();
    while handover.next().is_some() {}
    assert!(matches!(handover.finish(), Err(Error::Unfinished)));
    let unfinished = root.snapshot(SnapshotBounds::default()).unwrap();
    assert!(matches!(unfinished.finish(), Err(Error::Unfinished)));
}

#[test]
fn a_change_is_found_by_size_time_or_right_and_told_with_digests() {
    let dir = tree(&[
        ("same", "s"),
        ("size", "1"),
        ("time", "1"),
        ("right", "1"),
        ("gone/deep", "g"),
        ("touched", "t"),
    ]);
    let (snapshot, copy) = hand_over(&root(&dir), SnapshotBounds::default());
    put(copy.path(), "size", "12");
    put(copy.path(), "time", "2");
    put(copy.path(), "touched", "t");
    put(copy.path(), "new/deep", "n");
    fs::set_permissions(copy.path().join("right"), Permissions::from_mode(0o755)).unwrap();
    fs::remove_dir_all(copy.path().join("gone")).unwrap();
    let (changeset, store) = diff(&snapshot, &copy);
    assert_eq!(changeset.to_string(), "D gone/deep\nA new/deep\nM right\nM size\nM time\n");
    let change = |name: &str| changeset.changes().iter().find(|c| c.path == path(name)).unwrap();
    let (size, right, gone) = (change("size"), change("right"), change("gone/deep"));
    assert_eq!((size.before, size.after), (Some(Digest::of(b"1")), Some(Digest::of(b"12"))));
    assert_eq!((size.bytes, size.executable), (2, false));
    assert!(right.executable && right.before == right.after);
    assert_eq!((gone.before, gone.after), (Some(Digest::of(b"g")), None));
    // Only what can have changed was read.
    assert!(!store.contains_key(&Digest::of(b"s")) && store.contains_key(&Digest::of(b"n")));
}

#[test]
fn only_what_is_really_absent_counts_as_deleted() {
    let dir = tree(&[("d/a", "1"), ("d/b", "2"), ("e/c", "3"), ("f", "4"), ("g", "5"), ("h", "6")]);
    let (snapshot, copy) = hand_over(&root(&dir), SnapshotBounds::default());
    let at = |name: &str| copy.path().join(name);
    // A second name, a link in the place of a directory and of a file, a pipe.
    fs::hard_link(at("d/a"), at("second")).unwrap();
    fs::rename(at("e"), at("moved")).unwrap();
    symlink("moved", at("e")).unwrap();
    fs::remove_file(at("f")).unwrap();
    symlink("/etc/passwd", at("f")).unwrap();
    fs::remove_file(at("g")).unwrap();
    let fifo = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, at("g"), fifo, rustix::fs::Mode::RWXU, 0).unwrap();
    let (changeset, _) = diff(&snapshot, &copy);
    assert_eq!(
        changeset.to_string(),
        "A moved/c\n\
         skipped d/a: it has more than one name (hard links)\n\
         skipped e: it is a symbolic link\n\
         skipped f: it is a symbolic link\n\
         skipped g: it is a pipe\n\
         skipped second: it has more than one name (hard links)\n"
    );
}

#[test]
fn links_are_compared_and_never_taken_over() {
    let dir = tree(&[("a", "1")]);
    for (target, name) in
        [("a", "stays"), ("a", "turned"), ("a", "removed"), ("a", "filled"), ("a", "grown")]
    {
        symlink(target, dir.path().join(name)).unwrap();
    }
    let (snapshot, copy) = hand_over(&root(&dir), SnapshotBounds::default());
    for name in ["turned", "removed", "filled", "grown"] {
        fs::remove_file(copy.path().join(name)).unwrap();
    }
    symlink("/etc/shadow", copy.path().join("turned")).unwrap();
    symlink("/etc/shadow", copy.path().join("new")).unwrap();
    put(copy.path(), "filled", "content");
    put(copy.path(), "grown/inside", "content");
    let (changeset, _) = diff(&snapshot, &copy);
    assert_eq!(
        changeset.to_string(),
        "skipped filled: it was a symbolic link\n\
         skipped grown: it was a symbolic link\n\
         skipped new: it is a symbolic link\n\
         skipped removed: it was a symbolic link, and was removed\n\
         skipped turned: it is a symbolic link\n"
    );
}

#[test]
fn what_was_left_out_stays_out() {
    let dir = tree(&[("src/a", "1"), ("target/big", "2")]);
    put(dir.path(), ".hotcell-apply-0123456789abcdef/0", "left by somebody who was killed");
    let (snapshot, copy) = hand_over(&root(&dir), except(&["/target"]));
    assert_eq!(contents(copy.path()).into_keys().collect::<Vec<_>>(), ["src/", "src/a"]);
    put(copy.path(), "target/own", "3");
    put(copy.path(), ".hotcell-apply-x/0", "4");
    put(copy.path(), ".hotcell-kept-x/0", "4");
    let reserved = "its name is reserved for applying changes";
    assert_eq!(
        diff(&snapshot, &copy).0.to_string(),
        format!(
            "skipped .hotcell-apply-x: {reserved}\n\
             skipped .hotcell-kept-x: {reserved}\n\
             skipped target: it was left out when the tree was handed over\n"
        )
    );
}

#[test]
fn a_hidden_change_changes_nothing() {
    let dir = tree(&[("a", "1")]);
    let (snapshot, copy) = hand_over(&root(&dir), SnapshotBounds::default());
    let was = fs::metadata(copy.path().join("a")).unwrap().modified().unwrap();
    put(copy.path(), "a", "2");
    let file = File::options().write(true).open(copy.path().join("a")).unwrap();
    file.set_times(FileTimes::new().set_modified(was)).unwrap();
    assert!(diff(&snapshot, &copy).0.is_empty());
}

#[test]
fn what_somebody_else_changed_meanwhile_has_no_before() {
    let dir = tree(&[("a", "1"), ("b", "1"), ("c", "1")]);
    let (snapshot, copy) = hand_over(&root(&dir), SnapshotBounds::default());
    put(dir.path(), "a", "theirs");
    fs::remove_file(dir.path().join("b")).unwrap();
    put(copy.path(), "a", "of the run");
    put(copy.path(), "b", "of the run");
    put(copy.path(), "c", "of the run");
    let (changeset, _) = diff(&snapshot, &copy);
    let before: Vec<bool> = changeset.changes().iter().map(|c| c.before.is_some()).collect();
    assert_eq!(before, [false, false, true]);
}

#[test]
fn a_run_that_leaves_too_much_is_bounded() {
    let dir = tree(&[("a", "1")]);
    let (snapshot, copy) = hand_over(&root(&dir), SnapshotBounds::default());
    let end = |bounds: DiffBounds| {
        let read_all =
            |source: &mut dyn Read| io::copy(source, &mut io::sink()).map(|_| Digest::of(b""));
        snapshot.diff(&root(&copy), bounds, read_all)
    };
    File::create(copy.path().join("huge")).unwrap().set_len(1 << 42).unwrap();
    put(copy.path(), "small", "x");
    let most = DiffBounds::default().bytes;
    let changed = TooMuch::Changed { most, path: "huge".into() };
    assert_eq!(end(DiffBounds::default()).map_err(too_much).unwrap_err(), changed);
    // What was not looked at is not said to be deleted.
    let few = DiffBounds { entries: 1, ..DiffBounds::default() };
    assert_eq!(end(few).map_err(too_much).unwrap_err(), TooMuch::Left { most: 1 });
    let late = DiffBounds { within: Duration::ZERO, ..DiffBounds::default() };
    assert_eq!(end(late).map_err(too_much).unwrap_err(), TooMuch::Time);
}

#[test]
fn a_store_that_fails_ends_the_comparison() {
    let dir = tree(&[]);
    let (snapshot, copy) = hand_over(&root(&dir), SnapshotBounds::default());
    put(copy.path(), "a", "1");
    let full = |_: &mut dyn Read| Err(io::ErrorKind::StorageFull.into());
    let error = snapshot.diff(&root(&copy), DiffBounds::default(), full).unwrap_err();
    assert_eq!(error.to_string(), "keeping `a` failed: no storage space");
}

#[test]
fn hostile_times_are_only_times() {
    let dir = tree(&[("a", "1")]);
    let (snapshot, copy) = hand_over(&root(&dir), SnapshotBounds::default());
    let file = File::options().write(true).open(copy.path().join("a")).unwrap();
    let past = SystemTime::UNIX_EPOCH - Duration::from_secs(1 << 31);
    file.set_times(FileTimes::new().set_modified(past)).unwrap();
    // It was read, and is the same.
    assert!(diff(&snapshot, &copy).0.is_empty());
}

/// What a reviewer sees of one changed file.
fn review(old: impl AsRef<[u8]>, new: impl AsRef<[u8]>) -> String {
    let dir = tree(&[]);
    put(dir.path(), "f", old);
    let (snapshot, copy) = hand_over(&root(&dir), SnapshotBounds::default());
    put(copy.path(), "f", new);
    let (changeset, store) = diff(&snapshot, &copy);
    unified(&root(&dir), &changeset, from(&store))
}

#[test]
fn a_reviewer_sees_text_as_it_is_or_hears_why_not() {
    assert_eq!(
        review("1\n2\n3\n", "1\ntwo\n3\n"),
        "--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n 1\n-2\n+two\n 3\n"
    );
    for (new, why) in [
        (&b"\xff"[..], "it is binary"),
        (b"a\0", "control characters"),
        (b"\x1b[2J", "control characters"),
        (b"good\rbad", "control characters"),
        ("if x {\u{202e}} esle".as_bytes(), "turn the text"),
        (&[b'x'; 600_000], "too large"),
    ] {
        let shown = review("old", new);
        assert!(shown.starts_with("M f: ") && shown.contains(why), "{shown:?}");
        assert!(!shown.contains(['\u{1b}', '\r', '\u{202e}']), "{shown:?}");
    }
    assert!(review("a\r\nb\r\n", "a\r\nc\r\n").contains("+c\r\n"));
}

#[test]
fn a_review_shows_additions_deletions_and_rights_and_is_bounded() {
    let dir = tree(&[("gone", "g\n"), ("right", "r\n"), ("theirs", "t\n")]);
    let (snapshot, copy) = hand_over(&root(&dir), SnapshotBounds::default());
    put(copy.path(), "new", "n\n");
    put(copy.path(), "theirs", "u\n");
    fs::remove_file(copy.path().join("gone")).unwrap();
    fs::set_permissions(copy.path().join("right"), Permissions::from_mode(0o755)).unwrap();
    let (changeset, store) = diff(&snapshot, &copy);
    put(dir.path(), "theirs", "v\n");
    assert_eq!(
        unified(&root(&dir), &changeset, from(&store)),
        "--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-g\n\
         --- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+n\n\
         M right: only its right of execution changes\n\
         M theirs: it was changed since the run began\n"
    );
    let text = "x\n".repeat(200_000);
    for number in 0..20 {
        put(copy.path(), &format!("many/{number}"), format!("{number}\n{text}"));
    }
    let (changeset, store) = diff(&snapshot, &copy);
    let shown = unified(&root(&dir), &changeset, from(&store));
    assert!(
        shown.len() < 6 << 20 && shown.contains("more changes are not shown"),
        "{}",
        shown.len()
    );
}

#[test]
fn an_empty_changeset_says_nothing() {
    assert_eq!(Changeset::default().to_string(), "");
    assert_eq!(
        serde_json::to_string(&Changeset::default()).unwrap(),
        r#"{"changes":[],"skipped":[]}"#
    );
}

#[test]
fn what_a_text_would_change_is_shown_before_it_is_written() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("there"), "one\ntwo\n").unwrap();
    std::fs::write(dir.path().join("binary"), b"\xff\0").unwrap();
    std::os::unix::fs::symlink("there", dir.path().join("link")).unwrap();
    let root = hotcell_workspace::Root::open(dir.path()).unwrap();
    for (path, text, expected) in [
        ("there", "one\n2\n", Ok("--- a/there\n+++ b/there\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n")),
        ("there", "one\ntwo\n", Ok("")),
        ("new", "a\n", Ok("--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+a\n")),
        ("binary", "a\n", Err("it is binary")),
        ("link", "a\n", Err("what is there cannot be read")),
        ("new", "a\x1b[2J\n", Err("it has control characters, or such as turn the text")),
    ] {
        let path = hotcell_workspace::Relative::parse(path).unwrap();
        let shown = hotcell_workspace::unified_text(&root, &path, text);
        assert_eq!(shown.as_deref(), expected.as_ref().copied(), "{path}");
    }
}
