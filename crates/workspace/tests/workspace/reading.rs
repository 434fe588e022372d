//! Reading, looking, listing and walking.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use hotcell_workspace::{
    Bounds, Content, Cut, Error, Found, Kind, ListOptions, Relative, Root, Unfit,
};
use proptest::prelude::*;
use rustix::fs::{CWD, FileType, Mode};

use crate::support::*;

const MINUTE: Duration = Duration::from_secs(60);
const ALL: ListOptions = ListOptions { depth: 64, most: 1000, hidden: true };

fn refusal(root: &Root, text: &str) -> Unfit {
    match root.read(&path(text), .., 100) {
        Err(Error::Unfit { why, .. }) => why,
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn a_part_of_a_file_is_read_and_what_is_left_is_told() {
    let dir = tree(&[("a", "0123456789")]);
    let root = root(&dir);
    let cases: &[(std::ops::Range<u64>, usize, &str, bool)] = &[
        (0..u64::MAX, 100, "0123456789", false),
        (0..u64::MAX, 4, "0123", true),
        (3..6, 100, "345", false),
        (3..6, 2, "34", true),
        (8..20, 2, "89", false),
        (10..20, 5, "", false),
        (u64::MAX - 1..u64::MAX, 5, "", false),
        (0..5, 0, "", true),
    ];
    for (range, most, expected, truncated) in cases {
        let read = root.read(&path("a"), range.clone(), *most).unwrap();
        let expected = Content { bytes: (*expected).into(), total: 10, truncated: *truncated };
        assert_eq!(read, expected, "{range:?} {most}");
    }
    assert_eq!(root.read(&path("a"), ..=2, 100).unwrap().text(), Some("012"));
}

#[test]
fn a_cut_character_is_left_out_of_a_text_and_bytes_are_no_text() {
    let dir = tree(&[("text", "aä")]);
    put(dir.path(), "bytes", [b'a', 0xff]);
    put(dir.path(), "half", [b'a', 0xc3]);
    let root = root(&dir);
    assert_eq!(root.read(&path("text"), .., 2).unwrap().text(), Some("a"));
    assert_eq!(root.read(&path("text"), .., 3).unwrap().text(), Some("aä"));
    assert_eq!(root.read(&path("bytes"), .., 3).unwrap().text(), None);
    assert_eq!(root.read(&path("half"), .., 3).unwrap().text(), None);
}

#[test]
fn existence_tells_files_directories_and_the_rest_apart() {
    let dir = tree(&[("d/file", "12345"), ("d/run", "")]);
    fs::set_permissions(dir.path().join("d/run"), fs::Permissions::from_mode(0o755)).unwrap();
    symlink("file", dir.path().join("d/link")).unwrap();
    symlink("d", dir.path().join("way")).unwrap();
    let root = root(&dir);
    for (text, expected) in [
        ("d", Some(Found::Directory)),
        ("d/file", Some(Found::File { bytes: 5, executable: false })),
        ("d/run", Some(Found::File { bytes: 0, executable: true })),
        ("d/link", Some(Found::Other(Unfit::Symlink))),
        ("way", Some(Found::Other(Unfit::Symlink))),
        ("none", None),
        ("none/none", None),
        ("d/file/none", None),
    ] {
        assert_eq!(root.exists(&path(text)).unwrap(), expected, "{text}");
    }
    // What is behind a link is not said to be absent.
    assert!(matches!(
        root.exists(&path("way/file")),
        Err(Error::Unfit { why: Unfit::Symlink, .. })
    ));
}

#[test]
fn fs_03_no_link_is_followed_wherever_it_stands_and_points() {
    let outside = tree(&[("secret", "CANARY")]);
    let dir = tree(&[("d/file", "x")]);
    let secret = outside.path().join("secret");
    symlink(&secret, dir.path().join("absolute")).unwrap();
    symlink("d/file", dir.path().join("inside")).unwrap();
    symlink("../../../../../../etc/passwd", dir.path().join("d/up")).unwrap();
    symlink(outside.path(), dir.path().join("out")).unwrap();
    symlink("loop", dir.path().join("loop")).unwrap();
    symlink("/proc/self/root/etc/passwd", dir.path().join("magic")).unwrap();
    let root = root(&dir);
    for text in ["absolute", "inside", "d/up", "out/secret", "loop", "loop/x", "magic"] {
        assert_eq!(refusal(&root, text), Unfit::Symlink, "{text}");
    }
    assert!(root.list(Some(&path("out")), ALL).is_err());
    let listing = root.list(None, ALL).unwrap();
    let links: Vec<&str> = listing
        .entries
        .iter()
        .filter(|entry| matches!(entry.kind, Kind::Symlink { .. }))
        .map(|entry| entry.path.as_str())
        .collect();
    assert_eq!(links, ["absolute", "d/up", "inside", "loop", "magic", "out"]);
    let target = secret.to_str().unwrap().to_owned();
    assert_eq!(listing.entries[0].kind, Kind::Symlink { target });
}

#[test]
fn fs_07_a_file_with_a_second_name_is_not_read() {
    let outside = tree(&[("secret", "CANARY")]);
    let dir = tree(&[]);
    fs::hard_link(outside.path().join("secret"), dir.path().join("mine")).unwrap();
    let root = root(&dir);
    assert_eq!(refusal(&root, "mine"), Unfit::ManyNames);
    assert_eq!(root.exists(&path("mine")).unwrap(), Some(Found::Other(Unfit::ManyNames)));
    let listing = root.list(None, ALL).unwrap();
    assert_eq!((listing.entries.len(), listing.skipped.len()), (0, 1));
    fs::remove_file(outside.path().join("secret")).unwrap();
    assert_eq!(root.read(&path("mine"), .., 10).unwrap().text(), Some("CANARY"));
}

#[test]
fn fs_09_magic_links_lead_nowhere() {
    let root = Root::open("/proc/self".as_ref()).unwrap();
    for text in ["root/etc/passwd", "cwd", "cwd/Cargo.toml", "exe", "fd/0", "fd/1", "ns/net"] {
        assert!(matches!(refusal(&root, text), Unfit::Symlink | Unfit::Mount), "{text}");
    }
}

#[test]
fn what_is_mounted_in_the_tree_is_not_entered() {
    let root = Root::open("/".as_ref()).unwrap();
    for text in ["proc", "proc/version", "proc/self/environ"] {
        assert_eq!(refusal(&root, text), Unfit::Mount, "{text}");
        assert!(root.exists(&path(text)).is_err(), "{text}");
    }
    let flat = ListOptions { depth: 1, ..ALL };
    let listing = root.list(None, flat).unwrap();
    let mounted = listing.skipped.iter().find(|skipped| skipped.path == "proc").unwrap();
    assert_eq!(mounted.why, "it is on another mount");
}

#[test]
fn pipes_sockets_and_devices_are_told_and_never_opened() {
    let dir = tree(&[]);
    let at = |name: &str| dir.path().join(name);
    rustix::fs::mknodat(CWD, at("pipe"), FileType::Fifo, Mode::RWXU, 0).unwrap();
    let _socket = UnixListener::bind(at("socket")).unwrap();
    let null = rustix::fs::makedev(1, 3);
    let device =
        rustix::fs::mknodat(CWD, at("device"), FileType::CharacterDevice, Mode::RWXU, null);
    if device.is_err() {
        skip("a device in a tree", "only root makes devices");
    }
    let root = root(&dir);
    let begun = Instant::now();
    for (name, why) in [("device", Unfit::Device), ("pipe", Unfit::Pipe), ("socket", Unfit::Socket)]
    {
        if name != "device" || device.is_ok() {
            assert_eq!(refusal(&root, name), why);
            assert_eq!(root.exists(&path(name)).unwrap(), Some(Found::Other(why)));
        }
    }
    let skipped = root.list(None, ALL).unwrap().skipped;
    assert!(skipped.iter().any(|s| s.path == "pipe" && s.why == "it is a pipe"), "{skipped:?}");
    assert!(begun.elapsed() < MINUTE, "something blocked");
    // Nobody was ever at the pipe's other end.
    let writing = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::NONBLOCK;
    let opened = rustix::fs::open(at("pipe"), writing, Mode::empty());
    assert_eq!(opened.err(), Some(rustix::io::Errno::NXIO));
}

#[test]
fn the_root_is_what_was_opened_whatever_becomes_of_its_name() {
    let above = tree(&[("work/file", "mine"), ("other/file", "CANARY")]);
    let work = above.path().join("work");
    let root = Root::open(&work).unwrap();
    fs::rename(&work, above.path().join("moved")).unwrap();
    symlink("other", &work).unwrap();
    assert_eq!(root.read(&path("file"), .., 10).unwrap().text(), Some("mine"));
    assert_eq!(root.list(None, ALL).unwrap().entries.len(), 1);
}

#[test]
fn a_root_is_a_directory() {
    let dir = tree(&[("file", "")]);
    assert!(Root::open(&dir.path().join("file")).is_err());
    assert!(Root::open(&dir.path().join("none")).is_err());
    assert!(Root::held(fs::File::open(dir.path().join("file")).unwrap().into()).is_err());
    assert!(Root::held(fs::File::open(dir.path()).unwrap().into()).is_ok());
}

#[test]
fn a_listing_is_sorted_and_counts_what_it_leaves_out() {
    let dir =
        tree(&[("b/y", ""), ("b/x/z", ""), ("a", ""), ("b.txt", ""), (".env", ""), (".git/c", "")]);
    let root = root(&dir);
    let names = |at: Option<&str>, options| {
        let listing = root.list(at.map(path).as_ref(), options).unwrap();
        let entries = listing.entries.iter();
        let names: Vec<String> = entries.map(|entry| entry.path.to_string()).collect();
        (names.join(" "), listing.hidden, listing.left_out, listing.truncated)
    };
    let plain = ListOptions { depth: 1, most: 100, hidden: false };
    let cases = [
        (None, plain, "a b b.txt", 2, 0),
        (None, ListOptions { depth: 2, ..plain }, "a b b/x b/y b.txt", 2, 0),
        (None, ALL, ".env .git .git/c a b b/x b/x/z b/y b.txt", 0, 0),
        (Some("b"), plain, "b/x b/y", 0, 0),
        (Some("b"), ListOptions { depth: 9, ..plain }, "b/x b/x/z b/y", 0, 0),
        (None, ListOptions { most: 2, ..plain }, "a b", 2, 1),
        (None, ListOptions { most: 2, ..ALL }, ".env .git", 0, 7),
        (None, ListOptions { depth: 0, ..plain }, "a b b.txt", 2, 0),
    ];
    for (at, options, expected, hidden, left_out) in cases {
        let expected = (expected.to_owned(), hidden, left_out, left_out > 0);
        assert_eq!(names(at, options), expected, "{at:?} {options:?}");
    }
    assert!(root.list(Some(&path("a")), plain).is_err());
    assert!(root.list(Some(&path("none")), plain).is_err());
}

#[test]
fn hostile_names_are_skipped_with_the_reason_and_shown_harmlessly() {
    let dir = tree(&[("-rf", ""), ("a b", ""), ("\u{202e}x", ""), ("$(id)", "")]);
    let names: [&[u8]; 4] = [b"new\nline", b"\x1b[2J", b"\xff\xfe", b"tab\t"];
    for name in names {
        fs::write(dir.path().join(OsStr::from_bytes(name)), "").unwrap();
    }
    let listing = root(&dir).list(None, ALL).unwrap();
    assert_eq!(listing.entries.len(), 4);
    let skipped: Vec<(&str, &str)> =
        listing.skipped.iter().map(|s| (s.path.as_str(), s.why.as_str())).collect();
    let control = "its name has control characters";
    assert_eq!(
        skipped,
        [
            ("\\u{1b}[2J", control),
            ("new\\u{a}line", control),
            ("tab\\u{9}", control),
            ("\u{fffd}\u{fffd}", "its name is not UTF-8"),
        ]
    );
}

#[test]
fn fs_20_a_deep_tree_ends_at_the_bound() {
    let dir = tree(&[]);
    let mut directory = fs::File::open(dir.path()).unwrap();
    for _ in 0..200 {
        let name = "d".repeat(100);
        rustix::fs::mkdirat(&directory, &name, Mode::RWXU).unwrap();
        let flags = rustix::fs::OFlags::DIRECTORY;
        directory = rustix::fs::openat(&directory, &name, flags, Mode::empty()).unwrap().into();
    }
    let mut walk = root(&dir).walk(None, Bounds::within(MINUTE)).unwrap();
    let told: Vec<_> = (&mut walk).collect();
    // The path is too long before it has too many parts.
    let depth = Relative::MOST_BYTES / 101;
    assert_eq!(told.len(), depth + 1);
    assert_eq!(told.iter().filter(|told| told.is_ok()).count(), depth);
    let last = told.last().unwrap().as_ref().unwrap_err();
    assert_eq!(last.why, "it is too deep, or its path too long");
    assert_eq!(walk.cut(), None);
}

#[test]
fn a_walk_ends_at_its_bounds_and_says_at_which() {
    let dir = tree(&[]);
    for number in 0..500 {
        put(dir.path(), &format!("{number:03}"), "");
    }
    let root = root(&dir);
    let far = Bounds::within(Duration::MAX);
    let mut walk = root.walk(None, Bounds { entries: 10, ..far }).unwrap();
    let first: Vec<String> = (&mut walk).map(|told| told.unwrap().path.into()).collect();
    // The first ones, and not those that the file system happens to give first.
    assert_eq!(first, (0..10).map(|number| format!("{number:03}")).collect::<Vec<_>>());
    assert_eq!(walk.cut(), Some(Cut::Entries));
    let mut walk = root.walk(None, Bounds { entries: 500, ..far }).unwrap();
    assert_eq!(((&mut walk).count(), walk.cut()), (500, None));
    let over = Bounds { until: Instant::now() - Duration::from_millis(1), ..far };
    let mut walk = root.walk(None, over).unwrap();
    assert_eq!(((&mut walk).count(), walk.cut()), (0, Some(Cut::Time)));
}

#[test]
fn a_directory_that_cannot_be_listed_is_told() {
    let dir = tree(&[("closed/file", ""), ("open/file", "")]);
    let closed = dir.path().join("closed");
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
    let listing = root(&dir).list(None, ALL).unwrap();
    let can_read = fs::read_dir(&closed).is_ok();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
    if can_read {
        return skip("a directory without rights", "root may read everything");
    }
    assert_eq!(listing.skipped[0].path, "closed");
    assert_eq!(listing.skipped[0].why, "permission denied");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(40) })]

    #[test]
    fn a_walk_tells_everything_once_in_the_order_of_paths(
        files in proptest::collection::btree_set("[ab.-]{1,2}(/[ab.-]{1,2}){0,3}", 0..20),
    ) {
        let dir = tree(&[]);
        for name in files.iter().filter(|name| Relative::parse(name).is_ok()) {
            let path = dir.path().join(name);
            // A name may already be a file or a directory; whatever comes first stays.
            if fs::create_dir_all(path.parent().unwrap()).is_ok() {
                fs::write(path, name).ok();
            }
        }
        let walk = root(&dir).walk(None, Bounds::within(MINUTE)).unwrap();
        let told: Vec<_> = walk.map(|told| told.unwrap()).collect();
        prop_assert!(told.windows(2).all(|pair| pair[0].path < pair[1].path));
        let names = told.iter().map(|entry| match entry.kind {
            Kind::Directory => format!("{}/", entry.path),
            _ => entry.path.to_string(),
        });
        let expected = contents(dir.path()).into_keys().collect::<std::collections::BTreeSet<_>>();
        prop_assert_eq!(names.collect::<std::collections::BTreeSet<_>>(), expected);
    }
}
